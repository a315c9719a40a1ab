//! Joins everything into a running server; what differs between the forms is in [`Parts`].

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use async_trait::async_trait;
use stoa_machinery::{
    auth::{AllowAll, Authenticator, Authorizer},
    log::Log,
    registry::{NamespaceLookup, Registry},
    serve::{Api, Health, Limits, Probe, Reload, Server, ServingCertificate, VersionInfo},
};
use stoa_storage::local::{LocalLog, LocalOptions};
use tokio::{signal::unix::SignalKind, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::Cluster,
    compaction, controllers,
    events::Recorder,
    git,
    kinds::{self, lookup::Lookup},
    runs::{Services, backends::Backends, runner::Runner},
    subresources::Subresources,
};

/// How long tasks may take to end.
const END: Duration = Duration::from_secs(10);

/// What a form of the server brings along.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) data_dir: PathBuf,
    pub(crate) address: SocketAddr,
    pub(crate) limits: Limits,
    pub(crate) certificate: Arc<ServingCertificate>,
    pub(crate) reloads: Vec<Arc<dyn Reload>>,
    pub(crate) authenticator: Arc<dyn Authenticator>,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) cluster: Arc<dyn Cluster>,
    /// The lookup that the cluster may use already.
    pub(crate) lookup: Lookup,
    pub(crate) namespaces: Namespaces,
    pub(crate) runner: Runner,
}

/// Whose the namespaces are.
#[derive(Debug)]
pub(crate) enum Namespaces {
    /// The cluster's.
    OfCluster(Arc<dyn NamespaceLookup>),
    /// This server's, which serves the core kinds itself.
    Own,
}

/// A server that listens, before it serves.
#[derive(Debug)]
pub(crate) struct Bound {
    server: Server,
    tasks: JoinSet<()>,
    end: CancellationToken,
    shutdown: CancellationToken,
}

/// Opens the log, loads the registry, starts the controllers and listens.
///
/// # Errors
///
/// When any of that cannot be done; nothing is left running then.
pub(crate) async fn bind(parts: Parts) -> anyhow::Result<Bound> {
    let end = CancellationToken::new();
    let shutdown = CancellationToken::new();
    let guard = end.clone().drop_guard();
    let mut tasks = JoinSet::new();
    let log_dir = parts.data_dir.join("log");
    let local = tokio::task::spawn_blocking(move || LocalLog::open(&log_dir, LocalOptions::default()))
        .await?
        .context("the log cannot be opened")?;
    let log: Arc<dyn Log> = Arc::new(local);
    let subresources = Subresources::default();
    let builder = Registry::builder(log.clone()).end_with(end.clone());
    let builder = kinds::register(builder, &parts.lookup, &parts.cluster, &subresources);
    let builder = match &parts.namespaces {
        Namespaces::OfCluster(lookup) => builder.namespaces(lookup.clone()),
        Namespaces::Own => kinds::core::register(builder).namespaces_in("", "v1", "namespaces"),
    };
    let registry = builder.build().await.context("the objects cannot be loaded")?;
    parts.lookup.set(registry.clone());

    let recorder = Recorder::start(parts.cluster.clone(), end.clone());
    let services = Services {
        lookup: parts.lookup.clone(),
        log: log.clone(),
        backends: Backends::new(parts.lookup.clone(), parts.data_dir.join("documents")),
        runner: parts.runner,
        cluster: parts.cluster,
        recorder,
        authorizer: parts.authorizer.clone(),
        identity: "stoa-apiserver".to_owned(),
    };
    subresources.set(services.clone());

    let api = Arc::new(Api::new(&registry, shutdown.clone())?);
    let health = Arc::new(Health::default());
    health.add("log", Probe::Live, LogCheck(log.clone()));
    let mut server = Server::builder(parts.certificate, parts.authenticator, parts.authorizer.clone(), api)
        .address(parts.address)
        .limits(parts.limits)
        .health(health)
        .version(version());
    for reload in parts.reloads {
        server = server.reload(reload);
    }
    let server = server.bind().await?;

    controllers::start(&services, &end, &mut tasks);
    if matches!(parts.namespaces, Namespaces::Own) {
        tasks.spawn(controllers::namespaces::run(registry.clone(), parts.lookup.clone(), end.clone()));
    }
    let pushes: Arc<dyn Authorizer> = match parts.namespaces {
        Namespaces::OfCluster(_) => parts.authorizer,
        // Only masters get in, and whoever may push to the repository is one.
        Namespaces::Own => Arc::new(AllowAll),
    };
    let git =
        git::start(registry, log.clone(), &parts.data_dir, pushes, services.recorder, end.clone(), &mut tasks).await?;
    tasks.spawn(compaction::run(log, git, end.clone()));
    guard.disarm();
    Ok(Bound { server, tasks, end, shutdown })
}

impl Bound {
    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Serves until a signal to end, then ends in order.
    pub(crate) async fn serve(mut self) -> anyhow::Result<()> {
        tokio::spawn(signals(self.shutdown.clone())?);
        self.server.run(self.shutdown).await;
        self.end.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(END, ended).await.is_err() {
            tracing::warn!("some tasks did not end in time; what they were at is taken up at the next start");
        }
        tracing::info!("ended");
        Ok(())
    }
}

/// Cancels the token at the first SIGTERM or SIGINT.
fn signals(shutdown: CancellationToken) -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = tokio::signal::unix::signal(SignalKind::terminate())?;
    let mut interrupt = tokio::signal::unix::signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("a signal to end");
        shutdown.cancel();
    })
}

/// The log is well while its head can be told.
struct LogCheck(Arc<dyn Log>);

#[async_trait]
impl stoa_machinery::serve::HealthCheck for LogCheck {
    async fn check(&self) -> Result<(), String> {
        self.0.head().await.map(|_| ()).map_err(|error| error.to_string())
    }
}

/// The version of the Kubernetes API whose behaviour this server has, and its own.
fn version() -> VersionInfo {
    VersionInfo {
        major: "1".to_owned(),
        minor: "36".to_owned(),
        emulation_major: "1".to_owned(),
        emulation_minor: "36".to_owned(),
        min_compatibility_major: "1".to_owned(),
        min_compatibility_minor: "35".to_owned(),
        git_version: format!("v1.36.0+stoa-{}", env!("CARGO_PKG_VERSION")),
        git_commit: option_env!("STOA_GIT_COMMIT").unwrap_or("unknown").to_owned(),
        git_tree_state: "clean".to_owned(),
        build_date: "1970-01-01T00:00:00Z".to_owned(),
        go_version: "rust".to_owned(),
        compiler: "rustc".to_owned(),
        platform: format!(
            "{}/{}",
            std::env::consts::OS,
            std::env::consts::ARCH.replace("x86_64", "amd64").replace("aarch64", "arm64")
        ),
    }
}
