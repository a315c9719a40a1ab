//! Calls to the members of an etcd cluster: one member at a time, and the next when it does not answer.

use std::{
    sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use parking_lot::RwLock;
use stoa_backoff::{Attempts, Jitter, Policy, Verdict};
use stoa_machinery::log::LogError;
use tokio::{sync::mpsc, time::Instant};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Code, Request, Status, Streaming,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use super::{
    EtcdTls,
    metrics::{Metrics, Operation},
    proto::{self, Call, Headed as _, WatchCreateRequest, WatchRequest, WatchResponse},
};

/// The timeout of one call, after which the next member is asked.
const ATTEMPT: Duration = Duration::from_secs(5);
/// The timeout of a connection attempt.
const CONNECT: Duration = Duration::from_secs(3);
/// The waits before a call is retried.
const BACKOFF: Policy = Policy::new(Duration::from_millis(20), Duration::from_secs(1)).with_jitter(Jitter::HALF);
/// The interval of pings on a silent connection while an answer is pending. etcd rejects anything under 5 s, and any ping
/// without a pending answer; TCP probes then.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// The timeout of a ping, and the interval of TCP probes.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of TCP probes before a connection is lost. The default of Linux is nine, each with a timeout of 75 s.
const KEEP_ALIVE_TRIES: u32 = 3;

/// What the status of a failed call says about a retry.
pub(super) fn failure(status: &Status) -> Verdict {
    match status.code() {
        Code::ResourceExhausted => exhausted(status.message()),
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Unauthenticated
        | Code::DataLoss => Verdict::Refuse,
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable => Verdict::Unknown,
    }
}

/// What it means that something is exhausted. A connection that the server has ended, since it is used too much, says so as
/// well, and then nobody has looked at the call, or it was carried out already.
fn exhausted(message: &str) -> Verdict {
    match message {
        "etcdserver: too many requests" => Verdict::Retry,
        // Its database is full.
        _ if message.starts_with("etcdserver:") => Verdict::Refuse,
        // What etcd's gRPC says of a request that is too large.
        _ if message.contains("received message larger than max") => Verdict::Refuse,
        _ => Verdict::Unknown,
    }
}

/// Whether the history of the requested revision was compacted.
pub(super) fn is_compacted(status: &Status) -> bool {
    status.code() == Code::OutOfRange && status.message().contains("compacted")
}

/// The failure of a call as the log's callers see it.
pub(super) fn unavailable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> LogError {
    LogError::Unavailable(error.into())
}

/// The attempts of one call.
pub(super) struct Patience(Attempts);

impl Patience {
    pub(super) fn new(patience: Duration) -> Self {
        Self(Attempts::new(BACKOFF.with_deadline(patience)))
    }

    /// Waits before the next attempt; false when there is to be none.
    pub(super) async fn wait(&mut self) -> bool {
        let Some(wait) = self.0.next_wait() else { return false };
        tokio::time::sleep(wait).await;
        true
    }
}

/// The members of one etcd cluster.
#[derive(Debug)]
pub(super) struct Client {
    servers: Vec<String>,
    channels: RwLock<Vec<Channel>>,
    /// Which of them is asked.
    current: AtomicUsize,
    /// The newest revision of any response.
    seen: AtomicI64,
    patience: Duration,
    pub metrics: Metrics,
}

fn channels(servers: &[String], tls: &EtcdTls) -> Result<Vec<Channel>, tonic::transport::Error> {
    let channel = |server: &String| {
        let mut endpoint = Endpoint::from_shared(server.clone())?
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(false)
            .tcp_keepalive(Some(KEEP_ALIVE))
            .tcp_keepalive_interval(Some(KEEP_ALIVE_TIMEOUT))
            .tcp_keepalive_retries(Some(KEEP_ALIVE_TRIES));
        if server.starts_with("https:") {
            let mut config = ClientTlsConfig::new();
            if let Some(ca) = &tls.ca_pem {
                config = config.ca_certificate(Certificate::from_pem(ca));
            }
            if let Some((certificate, key)) = &tls.client_pem {
                config = config.identity(Identity::from_pem(certificate, key));
            }
            endpoint = endpoint.tls_config(config)?;
        }
        Ok(endpoint.connect_lazy())
    };
    servers.iter().map(channel).collect()
}

impl Client {
    pub(super) fn new(
        servers: Vec<String>,
        tls: &EtcdTls,
        patience: Duration,
        metrics: Metrics,
    ) -> Result<Self, tonic::transport::Error> {
        let channels = RwLock::new(channels(&servers, tls)?);
        Ok(Self { servers, channels, current: AtomicUsize::new(0), seen: AtomicI64::new(0), patience, metrics })
    }

    /// Makes new connections with other certificates; calls under way keep theirs.
    pub(super) fn set_tls(&self, tls: &EtcdTls) -> Result<(), tonic::transport::Error> {
        *self.channels.write() = channels(&self.servers, tls)?;
        Ok(())
    }

    pub(super) fn patience(&self) -> Patience {
        Patience::new(self.patience)
    }

    /// The newest revision that is known to exist.
    pub(super) fn seen(&self) -> i64 {
        self.seen.load(Relaxed)
    }

    pub(super) fn observe(&self, revision: i64) {
        self.seen.fetch_max(revision, Relaxed);
    }

    fn pick(&self) -> (usize, Channel) {
        let channels = self.channels.read();
        let current = self.current.load(Relaxed) % channels.len();
        (current, channels[current].clone())
    }

    /// Leaves the member that did not answer, unless another caller has already.
    fn leave(&self, member: usize, why: &Status) {
        let next = (member + 1) % self.servers.len();
        if next != member && self.current.compare_exchange(member, next, Relaxed, Relaxed).is_ok() {
            tracing::warn!(from = self.servers[member], to = self.servers[next], %why, "another etcd member is asked");
        }
    }

    /// Makes a call once. A member that does not answer is not asked the next time.
    pub(super) async fn attempt<Q: Call>(&self, operation: Operation<'_>, request: Q) -> Result<Q::Response, Status> {
        let (member, channel) = self.pick();
        let started = Instant::now();
        let answer = tokio::time::timeout(ATTEMPT, request.call(channel)).await.unwrap_or_else(|_| {
            Err(Status::deadline_exceeded(format!("{} did not answer within {ATTEMPT:?}", self.servers[member])))
        });
        self.metrics.observe(operation, started.elapsed(), answer.is_err());
        match answer {
            Ok(response) => {
                self.observe(response.revision());
                Ok(response)
            }
            Err(status) => {
                if failure(&status) == Verdict::Unknown {
                    self.leave(member, &status);
                }
                Err(status)
            }
        }
    }

    /// Makes a call that changes nothing, again and again until there is an answer.
    ///
    /// The outer error is that there was none in time; the inner one is the server's.
    pub(super) async fn read<Q: Call>(
        &self,
        operation: Operation<'_>,
        request: &Q,
    ) -> Result<Result<Q::Response, Status>, LogError> {
        let mut patience = self.patience();
        loop {
            match self.attempt(operation, request.clone()).await {
                Ok(response) => return Ok(Ok(response)),
                Err(status) if failure(&status) == Verdict::Refuse => return Ok(Err(status)),
                Err(status) => {
                    if !patience.wait().await {
                        return Err(unavailable(status));
                    }
                }
            }
        }
    }

    /// Begins to watch. The sender is for requests of progress; the watch ends when it is dropped.
    pub(super) async fn watch(
        &self,
        request: WatchCreateRequest,
    ) -> Result<(mpsc::Sender<WatchRequest>, Streaming<WatchResponse>), Status> {
        let (member, channel) = self.pick();
        let (sender, receiver) = mpsc::channel(4);
        let create = WatchRequest { create: Some(request), progress: None };
        sender.try_send(create).expect("a new channel has room");
        let mut request = Request::new(ReceiverStream::new(receiver));
        // A member that has lost its leader ends the watch, instead of keeping still.
        request.metadata_mut().insert("hasleader", tonic::metadata::MetadataValue::from_static("true"));
        let answer = tokio::time::timeout(ATTEMPT, proto::watch(channel, request)).await;
        match answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("the watch was not begun in time"))) {
            Ok(response) => Ok((sender, response)),
            Err(status) => {
                self.leave(member, &status);
                Err(status)
            }
        }
    }

    /// Asks another member the next time, because a watch on this one went wrong.
    pub(super) fn leave_current(&self, why: &Status) {
        self.leave(self.pick().0, why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_etcd_itself_refuses_for_want_of_something() {
        for (message, expected) in [
            ("etcdserver: too many requests", Verdict::Retry),
            ("etcdserver: mvcc: database space exceeded", Verdict::Refuse),
            ("grpc: received message larger than max (2097171 vs. 2097152)", Verdict::Refuse),
            // ENHANCE_YOUR_CALM.
            ("h2 protocol error: http2 error", Verdict::Unknown),
            (
                "connection error detected: detected excessive load generating behavior: too_many_pings",
                Verdict::Unknown,
            ),
            ("", Verdict::Unknown),
        ] {
            assert_eq!(failure(&Status::resource_exhausted(message)), expected, "{message:?}");
        }
        assert_eq!(failure(&Status::invalid_argument("etcdserver: request is too large")), Verdict::Refuse);
        assert_eq!(failure(&Status::unavailable("etcdserver: no leader")), Verdict::Unknown);
    }
}
