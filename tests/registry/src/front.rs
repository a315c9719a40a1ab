//! A server on loopback that answers as a test says, or passes requests on to a registry.

use std::{
    convert::Infallible,
    fmt,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo},
};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A request as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedRequest {
    /// The path with its query.
    pub path: String,
    /// The header `Authorization`.
    pub authorization: Option<String>,
}

/// The answer to a request.
pub enum Answer {
    /// That of the registry behind.
    PassOn,
    /// Another one.
    Own(Response<Bytes>),
}

impl Answer {
    /// An answer with a status, headers and a body.
    pub fn own(status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Self {
        let answer = Response::builder().status(status);
        let answer = headers.iter().fold(answer, |answer, (name, value)| answer.header(*name, *value));
        Self::Own(answer.body(body.into()).unwrap())
    }
}

/// A server on loopback; ends with the value. Needs a runtime.
pub struct Front {
    port: u16,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    task: JoinHandle<()>,
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").field("port", &self.port).finish_non_exhaustive()
    }
}

impl Front {
    /// Starts one before the registry at this host, if there is any. It may have credentials for it.
    pub async fn start(behind: &str, answer: impl Fn(&ReceivedRequest) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::<Mutex<Vec<ReceivedRequest>>>::default();
        let (log, behind, answer) = (Arc::clone(&seen), Arc::<str>::from(behind), Arc::new(answer));
        let task = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let (log, behind, answer) = (Arc::clone(&log), Arc::clone(&behind), Arc::clone(&answer));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (log, behind, answer) = (Arc::clone(&log), Arc::clone(&behind), Arc::clone(&answer));
                    async move {
                        let authorization = request.headers().get(header::AUTHORIZATION);
                        let authorization = authorization.map(|it| it.to_str().unwrap().to_owned());
                        let path = request.uri().path_and_query().unwrap().as_str().to_owned();
                        let seen = ReceivedRequest { path, authorization };
                        log.lock().unwrap().push(seen.clone());
                        let answer = match answer(&seen) {
                            Answer::Own(answer) => answer,
                            Answer::PassOn => pass_on(&behind, request).await,
                        };
                        Ok::<_, Infallible>(answer.map(Full::new))
                    }
                });
                tokio::spawn(async move {
                    // A client that leaves is an error here.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { port, seen, task }
    }

    /// Its host and port.
    pub fn host(&self) -> String {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)).to_string()
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<ReceivedRequest> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The answer of the registry behind, which gets no credentials.
async fn pass_on(behind: &str, request: Request<Incoming>) -> Response<Bytes> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let mut passed = Request::builder()
        .method(request.method())
        .uri(format!("http://{behind}{}", request.uri().path_and_query().unwrap()));
    for (name, value) in request.headers() {
        if !matches!(*name, header::HOST | header::AUTHORIZATION) {
            passed = passed.header(name, value);
        }
    }
    let answer = client.request(passed.body(Full::default()).unwrap()).await.unwrap();
    let (head, body) = answer.into_parts();
    Response::from_parts(head, body.collect().await.unwrap().to_bytes())
}
