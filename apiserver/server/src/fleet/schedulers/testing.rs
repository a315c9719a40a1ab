//! An external scheduler of tests, without TLS.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use futures_util::{StreamExt as _, stream::BoxStream};
use http::Uri;
use parking_lot::Mutex;
use stoa_proto::scheduler::{
    DecideRequest, Decision, Decisions,
    scheduler_server::{Scheduler, SchedulerServer},
};
use stoa_runs::runner::RunnerCertificates;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::{
    Request, Response, Status,
    transport::{Server, server::TcpIncoming},
};

use super::Schedulers;

/// A scheduler that answers every call with the same decisions, and again when the test sets others. Without any, it ends the calls.
#[derive(Clone, Debug)]
pub(crate) struct FakeScheduler {
    answer: Arc<watch::Sender<Option<Decisions>>>,
    requests: Arc<Mutex<Vec<DecideRequest>>>,
}

impl FakeScheduler {
    pub(crate) fn new(answer: Option<Decisions>) -> Self {
        Self { answer: Arc::new(watch::Sender::new(answer)), requests: Arc::default() }
    }

    pub(crate) fn set(&self, answer: Option<Decisions>) {
        self.answer.send_replace(answer);
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<DecideRequest> {
        self.requests.lock().clone()
    }

    /// Serves it on any port of loopback; the schedulers of a server that knows it by the name `fake`.
    pub(crate) fn serve(&self) -> Schedulers {
        let incoming = TcpIncoming::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let uri: Uri = format!("http://{}", incoming.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(Server::builder().add_service(SchedulerServer::new(self.clone())).serve_with_incoming(incoming));
        let none = PathBuf::new();
        let certificates = RunnerCertificates { ca: none.clone(), certificate: none.clone(), key: none };
        Schedulers::new([("fake".to_owned(), uri)].into(), certificates).unwrap()
    }
}

#[tonic::async_trait]
impl Scheduler for FakeScheduler {
    type DecideStream = BoxStream<'static, Result<Decisions, Status>>;

    async fn decide(&self, request: Request<DecideRequest>) -> Result<Response<Self::DecideStream>, Status> {
        self.requests.lock().push(request.into_inner());
        let answers = WatchStream::new(self.answer.subscribe());
        let answers = answers.map(|answer| answer.ok_or_else(|| Status::unavailable("it is away")));
        Ok(Response::new(answers.boxed()))
    }
}

/// An answer of decisions, each with its cluster types and targets.
pub(crate) fn decisions(all: &[(&[&str], &[&str])]) -> Decisions {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let decision = |(cluster_types, targets): &(&[&str], &[&str])| Decision {
        cluster_types: names(cluster_types),
        deployment_targets: names(targets),
    };
    Decisions { decisions: all.iter().map(decision).collect(), undecided: String::new() }
}
