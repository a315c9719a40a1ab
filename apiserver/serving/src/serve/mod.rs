//! The server: TLS, the filters in front of the API, health, metrics, and an orderly end.
//!
//! Start at [`ExtensionServer`](crate::extension::ExtensionServer) for a server behind a cluster, and at [`Server::builder`] for any other. What it serves
//! behind the filters is one [`Handler`], as a rule an [`Api`]; who may come in is decided by an [`Authenticator`] and an
//! [`Authorizer`] from [`crate::auth`].
//!
//! Submodules: `connection` accepts and ends connections, `h2_executor` and `write_buffer` drive those of HTTP/2; `chain` is
//! the path of a request through the filters, and `stream` that of an answer out of the server.

use std::{
    fmt, io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use http::{Request, Response};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    audit::Auditor,
    auth::{Authenticator, Impersonation},
    http::{Body, RequestInfo},
};

mod api;
mod chain;
mod connection;
mod debug;
mod exposition;
mod filters;
mod h2_executor;
mod health;
mod inflight;
mod metrics;
mod plaintext;
mod pretty;
mod record;
mod request_guard;
mod routes;
mod signals;
mod slis;
mod statusz;
mod stream;
mod tls;
mod write_buffer;
mod write_timeout;

pub use api::Api;
pub use health::{Health, HealthCheck, Probe};
pub use metrics::Metrics;
pub use signals::shutdown_signal;
pub use stoa_tls::{CertificateError, Reload, ReloadError, ServingCertificate};
pub use tls::CaFile;

use chain::Chain;
use inflight::InFlight;
use stoa_log::LogError;
use stoa_meta::{
    authorizer::Authorizer,
    request::{Outlasting, RequestContext},
};
use stoa_registry::metrics::Families;
use tls::Tls;

/// The API behind the filters.
#[async_trait]
pub trait Handler: fmt::Debug + Send + Sync + 'static {
    /// Answers a request that has been let in. `context` has the user and the authorizer.
    ///
    /// The future is dropped when the client goes away or the request's time is up.
    async fn handle(&self, info: RequestInfo, context: RequestContext, request: Request<Body>) -> Response<Body>;

    /// The paths of documents about the API, which the server lists at its root.
    fn paths(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What `/version` says, as `k8s.io/apimachinery/pkg/version.Info`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionInfo {
    /// Major version of the API that is served, such as `1`.
    pub major: String,
    /// Minor version of the API that is served, such as `36`.
    pub minor: String,
    /// The whole version, such as `v1.36.0+stoa-0.1.0`; clients parse it as a semantic version.
    pub git_version: String,
    /// The commit it was built from.
    pub git_commit: String,
    /// `clean` or `dirty`.
    pub git_tree_state: String,
    /// Major version of the API whose behaviour is emulated.
    pub emulation_major: String,
    /// Minor version of the API whose behaviour is emulated.
    pub emulation_minor: String,
    /// Major version of the oldest API that it works with.
    pub min_compatibility_major: String,
    /// Minor version of the oldest API that it works with.
    pub min_compatibility_minor: String,
    /// When it was built, RFC 3339.
    pub build_date: String,
    /// The language it is written in, where Go servers name theirs.
    pub go_version: String,
    /// The compiler.
    pub compiler: String,
    /// Operating system and architecture, such as `linux/amd64`.
    pub platform: String,
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Bind {
        /// Which address.
        address: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
    /// The registry of metrics has the server's already.
    #[error("cannot register the server's metrics")]
    Metrics(#[from] prometheus::Error),
    /// The log is out of reach, or full.
    #[error("cannot begin the log")]
    Log(#[from] LogError),
}

/// How long and how much.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How many requests that read are worked on at once; watches do not count.
    pub reading: usize,
    /// How many requests that change something are worked on at once.
    pub mutating: usize,
    /// How long a request may take that does not go on by its nature.
    pub request_timeout: Duration,
    /// How long the server still takes requests after it said that it is not ready any more.
    pub shutdown_delay: Duration,
    /// How long requests may then go on before they are broken off.
    pub drain_timeout: Duration,
    /// How often certificate files are looked into.
    pub reload_interval: Duration,
}

impl Default for Limits {
    /// Upstream's: 400 and 200 at once, 60 s each, no delay, 60 s to drain; files every 10 s.
    fn default() -> Self {
        Self {
            reading: 400,
            mutating: 200,
            request_timeout: Duration::from_secs(60),
            shutdown_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(60),
            reload_interval: Duration::from_secs(10),
        }
    }
}

/// The parts of a server before it is bound. [`Server::builder`] takes those without a default and sets the others.
#[derive(Debug)]
pub struct ServerBuilder {
    /// The certificate that clients see.
    pub certificate: Arc<ServingCertificate>,
    /// Identifies the users.
    pub authenticator: Arc<dyn Authenticator>,
    /// Decides on their permissions.
    pub authorizer: Arc<dyn Authorizer>,
    /// Answers the requests of the API.
    pub handler: Arc<dyn Handler>,
    /// Where to listen; port 0 for any. By default 127.0.0.1:0.
    pub address: SocketAddr,
    /// How long and how much.
    pub limits: Limits,
    /// What `/version` says.
    pub version: VersionInfo,
    /// Records requests in an audit log; without this, none are.
    pub auditor: Option<Arc<Auditor>>,
    /// What `/metrics` shows, in which others may have theirs. Nothing but the server's by default.
    pub metrics: Families,
    /// The checks behind `/readyz` and its like; more can be added later.
    pub health: Arc<Health>,
    /// Files that are read again while the server runs, such as a [`CaFile`], besides the serving certificate's.
    pub reloads: Vec<Arc<dyn Reload>>,
    /// Whether profiles of the process are at `/debug/pprof/`, for who may `get` that path. By default they are. Threads
    /// have to take part: see [`profile`](crate::profile).
    pub profiling: bool,
    /// Whether a request for a path that does not exist lists the paths that do (404), as by Go's extension servers. By
    /// default the answer is kube-apiserver's, plain text that says no more than that.
    pub lists_paths: bool,
}

impl ServerBuilder {
    /// Binds the address. Connections wait until [`Server::run`].
    pub async fn bind(self) -> Result<Server, ServeError> {
        let metrics = Arc::new(Metrics::new(&self.metrics)?);
        self.health.slis().started(metrics.started);
        let tls = Tls::new(self.certificate.clone(), self.authenticator.clone())?;
        let failed = |source| ServeError::Bind { address: self.address, source };
        let listener = TcpListener::bind(self.address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let mut reloads = self.reloads;
        reloads.push(self.certificate);
        let chain = Chain {
            authenticator: self.authenticator,
            authorizer: self.authorizer,
            impersonation: Impersonation::counted(&self.metrics)?,
            in_flight: InFlight::new(self.limits.reading, self.limits.mutating, &metrics),
            request_timeout: self.limits.request_timeout,
            health: self.health,
            metrics,
            version: self.version,
            auditor: self.auditor,
            handler: self.handler,
            outlasting: Outlasting::default(),
            profiling: self.profiling,
            lists_paths: self.lists_paths,
        };
        Ok(Server { listener, address, tls, chain: Arc::new(chain), limits: self.limits, reloads })
    }
}

/// A server that is bound and not yet serving.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    tls: Tls,
    chain: Arc<Chain>,
    limits: Limits,
    reloads: Vec<Arc<dyn Reload>>,
}

impl Server {
    /// A server of `handler`, for whom `authenticator` knows and `authorizer` allows.
    pub fn builder(
        certificate: Arc<ServingCertificate>,
        authenticator: Arc<dyn Authenticator>,
        authorizer: Arc<dyn Authorizer>,
        handler: Arc<dyn Handler>,
    ) -> ServerBuilder {
        ServerBuilder {
            certificate,
            authenticator,
            authorizer,
            handler,
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            limits: Limits::default(),
            version: VersionInfo::default(),
            auditor: None,
            metrics: Families::default(),
            health: Arc::default(),
            reloads: Vec::new(),
            profiling: true,
            lists_paths: false,
        }
    }

    /// The address that clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`, and then ends in order: `/readyz` fails and requests are still served for the shutdown
    /// delay; then no more connections are taken, watches end, and HTTP/2 clients hear GOAWAY; requests being worked
    /// on may finish until the drain timeout.
    ///
    /// Returns when the last connection has ended, and with it what goes on without one, such as a WebSocket. When the
    /// future is dropped, connections are broken off.
    pub async fn run(self, stop: CancellationToken) {
        connection::run(self, stop).await;
    }
}

#[cfg(test)]
mod tests;
