//! Joins everything into a running server; what differs between the forms is in [`Parts`].

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use stoa_controller::{
    events::Recorder,
    leader::{self, Term, Work},
    queue,
};
use stoa_kinds::{
    cluster::Cluster, hub::memory::Hub, kind::Surroundings, lookup::Lookup, package_repositories::Packages,
    scheduler::fleets::Fleets,
};
use stoa_machinery::{
    admission::{self, Chain},
    audit::{Auditor, LogFile, Policy},
    auth::{AllowAll, Authenticator, Authorizer, register_reviews},
    log,
    metrics::Families,
    registry::{self, Registry},
    serve::{Api, Health, Limits, Reload, Server, ServerBuilder, ServingCertificate, VersionInfo, shutdown_signal},
};
use stoa_runs::{
    Services,
    backends::Backends,
    contents::Contents,
    encryption::Encryption,
    runner::{Runner, RunnerCertificates, RunnerSettings},
};
use stoa_types::{Backend, names};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    behaviours, compaction, controllers, git,
    options::{HistoryOptions, RunOptions, SchedulerOptions, StorageOptions},
    services::AllServices,
    storage::{self, Storage},
    subresources::Subresources,
    webhook::Webhooks,
};

/// How long tasks may take to end.
const END: Duration = Duration::from_secs(10);
/// How long a Run keeps its slot while it is unknown which pull requests were merged.
const MERGES_PATIENCE: Duration = Duration::from_secs(30);

/// What a form of the server brings along.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) data_dir: PathBuf,
    pub(crate) storage: StorageOptions,
    pub(crate) address: SocketAddr,
    /// Where Git servers tell of pushes, if anywhere.
    pub(crate) webhooks: Option<SocketAddr>,
    pub(crate) runs: RunOptions,
    pub(crate) limits: Limits,
    /// Whether profiles are served.
    pub(crate) profiling: bool,
    pub(crate) certificate: Arc<ServingCertificate>,
    pub(crate) reloads: Vec<Arc<dyn Reload>>,
    pub(crate) authenticator: Arc<dyn Authenticator>,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) cluster: Arc<dyn Cluster>,
    /// The lookup that the cluster may use already.
    pub(crate) lookup: Lookup,
    pub(crate) namespaces: Namespaces,
    /// What is asked about every write.
    pub(crate) admission: Chain,
    /// Which requests are recorded, and where.
    pub(crate) audit: Option<(Policy, LogFile)>,
    pub(crate) runner: RunnerSettings,
    pub(crate) schedulers: SchedulerOptions,
    /// What is counted already, and all else that will be.
    pub(crate) metrics: Families,
}

/// Whose the namespaces are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Namespaces {
    /// The cluster's, which admission looks at.
    OfCluster,
    /// This server's, which serves the core kinds itself.
    Own,
}

impl Namespaces {
    fn are_own(&self) -> bool {
        matches!(self, Self::Own)
    }
}

/// A server that listens, before it serves.
#[derive(Debug)]
pub(crate) struct Bound {
    server: Server,
    tasks: JoinSet<()>,
    end: CancellationToken,
    /// Owns the objects, which strategies and controllers reach by a lookup that does not own them.
    _registry: Arc<Registry>,
    /// Holds the data directory until everything has ended.
    _storage: Storage,
}

/// What one replica at a time does.
struct Leader {
    services: AllServices,
    registry: Arc<Registry>,
    /// Where the control repository is, and the remote that has its main.
    repository: git::Repository,
    /// What people who push to the control repository may do.
    pushes: Arc<dyn Authorizer>,
    own_namespaces: bool,
    notification_metrics: stoa_notifications::Metrics,
    history: HistoryOptions,
}

impl Work for Leader {
    async fn lead(&self, term: Term) -> anyhow::Result<()> {
        let Services { log, recorder, lookup, queues, .. } = &self.services.base;
        // Whatever is left of them ends with this future.
        let mut tasks = JoinSet::new();
        behaviours::start(&self.services, &term.end, &mut tasks);
        tasks.spawn(stoa_notifications::run(
            self.services.notifications.clone(),
            self.notification_metrics.clone(),
            term.clone(),
        ));
        if self.own_namespaces {
            let (registry, own_queues) = (self.registry.clone(), queues.clone());
            tasks.spawn(controllers::namespaces::run(registry, lookup.clone(), own_queues, term.end.clone()));
            tasks.spawn(controllers::events::run(lookup.clone(), term.end.clone()));
            let (registry, recorder, queues) = (self.registry.clone(), recorder.clone(), queues.clone());
            tasks.spawn(controllers::garbage_collector::run(registry, recorder, queues, term.end.clone()));
        }
        let pushes = self.pushes.clone();
        let (registry, recorder) = (self.registry.clone(), recorder.clone());
        let git = git::start(registry, log.clone(), &self.repository, pushes, recorder, &term, &mut tasks).await?;
        tasks.spawn(compaction::run(log.clone(), self.history, git, term.end.clone()));
        leader::until_all_end(&mut tasks).await
    }
}

/// Opens the log, loads the registry, starts the controllers and listens.
///
/// # Errors
///
/// When any of that cannot be done; nothing is left running then.
pub(crate) async fn bind(parts: Parts) -> anyhow::Result<Bound> {
    let end = CancellationToken::new();
    let guard = end.clone().drop_guard();
    let mut tasks = JoinSet::new();
    let shared_dir = parts.storage.shared_dir.clone().unwrap_or_else(|| parts.data_dir.clone());
    let remote = parts.storage.git.remote()?;
    let folder = if remote.is_some() { parts.data_dir.clone() } else { shared_dir.clone() };
    let metrics = parts.metrics;
    let repository = git::Repository {
        folder,
        remote,
        patience: parts.storage.git.patience(),
        metrics: git::Metrics::new(metrics.registry())?,
    };
    let health = Arc::new(Health::default());
    let etcd = parts.storage.etcd();
    let storage = storage::open(etcd.as_ref(), &parts.data_dir, &health, &metrics).await?;
    let log = storage.log.clone();
    log::begin(&*log).await.context("the log cannot be begun")?;
    let is_replicated = etcd.is_some();
    let wrapper = parts.storage.wrapper()?;
    let key_file = parts.storage.sealing_key_file.as_deref();
    let encryption = Encryption::open_wrapped(wrapper, key_file, is_replicated, &parts.data_dir)?;
    let recorder = Recorder::start(parts.cluster.clone(), end.clone());
    let (runner, runner_certificates) =
        Runner::new(&parts.runner, metrics.registry()).context("the function-runners cannot be called")?;
    let of_runners = parts.runner.certificates.clone();
    let ca = parts.schedulers.scheduler_ca.clone().unwrap_or_else(|| of_runners.ca.clone());
    let schedulers = (parts.schedulers.addresses()?, RunnerCertificates { ca, ..of_runners });
    let services = Services {
        lookup: parts.lookup.clone(),
        log: log.clone(),
        backends: Backends::new(parts.lookup.clone(), parts.cluster.clone(), shared_dir.join("documents")),
        encryption: encryption.clone(),
        runner,
        contents: Contents::default(),
        cluster: parts.cluster.clone(),
        recorder,
        authorizer: parts.authorizer.clone(),
        identity: storage.identity.clone(),
        clock: Arc::new(stoa_storage::SystemClock),
        max_runs: parts.runs.max_concurrent_runs.into(),
        run_lease: parts.runs.lease(),
        merges_patience: MERGES_PATIENCE,
        queues: queue::Metrics::new(&metrics)?,
    };
    let builder = Registry::builder(log.clone()).metrics(registry::Metrics::new(&metrics)?).end_with(end.clone());
    let builder = builder.window(parts.storage.history.window());
    let reports = Hub::new(parts.storage.hub.hub_retention_days);
    let all = AllServices::new(services.clone(), schedulers, reports.clone(), parts.storage.hub.hub_backend.clone())?;
    let rendered = Fleets::default();
    rendered.set(Arc::new(all.fleets.clone()));
    let subresources = Subresources::new(all.clone());
    let surroundings = Surroundings {
        fleets: rendered,
        hub: reports,
        lookup: parts.lookup.clone(),
        cluster: parts.cluster.clone(),
        packages: Packages::of(Arc::new(all.packages.clone())),
    };
    let builder = stoa_kinds::register(builder, &surroundings, |kind, definition| {
        behaviours::attach(kind, definition, &subresources)
    });
    let admission = parts.admission.counted(admission::Metrics::new(&metrics)?);
    let builder = git::attach(builder, admission, parts.cluster, log.clone(), &repository);
    let builder = match parts.namespaces {
        Namespaces::OfCluster => builder,
        Namespaces::Own => {
            register_reviews(stoa_kinds::core_v1::register(builder)).namespaces_in("", "v1", "namespaces")
        }
    };
    let registry = parts.lookup.build(builder).await.context("the objects cannot be loaded")?;

    if let Some(address) = parts.webhooks {
        let webhooks = Webhooks::bind(address, parts.certificate.clone()).await?;
        tasks.spawn(webhooks.serve(services.clone(), end.clone()));
    }
    let api = Arc::new(Api::new(&registry));
    let mut server = ServerBuilder {
        address: parts.address,
        limits: parts.limits,
        profiling: parts.profiling,
        // Standalone it is a kube-apiserver to its clients, and otherwise an extension of one.
        lists_paths: !parts.namespaces.are_own(),
        health,
        metrics: metrics.clone(),
        version: version(),
        ..Server::builder(parts.certificate, parts.authenticator, parts.authorizer.clone(), api)
    };
    if let Some((policy, file)) = parts.audit {
        // They may come with keys, which are moved to a Secret.
        let policy = policy.without_bodies(names::group::<Backend>(), names::plural::<Backend>());
        server.auditor = Some(Auditor::new(policy, file, &metrics)?);
    }
    let encryption: Arc<dyn Reload> = Arc::new(encryption);
    server.reloads = parts.reloads;
    server.reloads.extend(storage.reloads.iter().cloned().chain([encryption, runner_certificates]));
    let server = server.bind().await?;

    let leader = Leader {
        registry: registry.clone(),
        repository,
        // Only masters get in where the namespaces are the server's own, and whoever may push to the repository is one.
        pushes: if parts.namespaces.are_own() { Arc::new(AllowAll) } else { parts.authorizer },
        own_namespaces: parts.namespaces.are_own(),
        notification_metrics: stoa_notifications::Metrics::new(metrics.registry())?,
        history: parts.storage.history,
        services: all,
    };
    if let Some(etcd) = storage.etcd.clone() {
        tasks.spawn(compaction::while_full(etcd, parts.storage.history, end.clone()));
    }
    tasks.spawn(storage.candidate.clone().run(leader, end.clone()));
    guard.disarm();
    Ok(Bound { server, tasks, end, _registry: registry, _storage: storage })
}

impl Bound {
    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Serves until a signal to end, then ends in order.
    pub(crate) async fn serve(mut self) -> anyhow::Result<()> {
        self.server.run(shutdown_signal()?).await;
        self.end.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(END, ended).await.is_err() {
            tracing::warn!("some tasks did not end in time; what they were at is taken up at the next start");
        }
        tracing::info!("ended");
        Ok(())
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
