//! Sockets, signals and the order of a shutdown.
//!
//! A runner that shuts down rejects new calls, and reports that by `grpc.health.v1`. Calls under way finish; applies begin no more
//! resources and are handed over to another runner. Then the runner stops listening.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use stoa_fairness::MaxShare;
use stoa_git::cache::Folders;
use stoa_proto::evaluator::function_evaluator_server::FunctionEvaluatorServer;
use stoa_proto::fleet_server::FleetServer;
use stoa_proto::function_runner_server::FunctionRunnerServer;
use stoa_proto::packages_server::PackagesServer;
use stoa_tls::{MutualTls, Reload, ServingCertificate, keep_reloading};
use stoa_workers::{Pool, SubprocessStarter};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::server::HealthReporter;

use crate::args::Args;
use crate::cache::{self, CacheFolder};
use crate::generate::Generators;
use crate::incoming;
use crate::local::LocalRepositories;
use crate::metrics::{self, Metrics};
use crate::runtimes::Runtimes;
use crate::service::{Calls, FleetService, FunctionService, PackageService, RunnerService};
use crate::source::{ReaderPool, Sources};

/// Specs and states of large stacks come in one message.
const MESSAGE_LIMIT: usize = 256 << 20;
/// How long connections may take to close after the last call.
const CLOSE: Duration = Duration::from_secs(5);
/// A dead caller is noticed within two of these.
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(10);

/// Serves until a signal or the end of standard input.
pub(crate) async fn serve(args: Args) -> anyhow::Result<()> {
    let metrics = Metrics::new()?;
    let cache = CacheFolder::take(&args.cache_dir).with_context(|| format!("taking {}", args.cache_dir.display()))?;
    let temporary = cache.temporary().context("making a folder for temporary files")?;
    let certificate = ServingCertificate::from_files(&args.tls_cert, &args.tls_key)?;
    let tls = Arc::new(MutualTls::new(certificate, &args.client_ca, &[b"h2"])?);
    let listener = TcpListener::bind(args.listen).await.with_context(|| format!("listening on {}", args.listen))?;
    let address = listener.local_addr()?;

    let asked = CancellationToken::new();
    tokio::spawn(until_asked_to_end(args.exit_on_stdin_close, asked.clone()));
    let ended = CancellationToken::new();
    let _guard = ended.clone().drop_guard();
    let every = Duration::from_secs(args.tls_reload_seconds.into());
    tokio::spawn(keep_reloading(vec![tls.clone() as Arc<dyn Reload>], every, ended.clone()));
    if let Some(listen) = args.metrics_listen {
        metrics::listen(listen, metrics.registry(), ended.clone()).await?;
    }
    let bounds = args.cache.of_folders();
    let caches = Folders::new(cache.until_the_end()).of_at_most(bounds.bytes);
    let subprocesses = args.sources.of_subprocesses();
    tokio::spawn(cache::keep_sweeping(caches.clone(), bounds, subprocesses.limits.time, ended.clone()));
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<FunctionRunnerServer<RunnerService>>().await;
    if let Some(listen) = args.health_listen {
        tell_health(listen, health.clone(), ended.clone())?;
    }
    let config = args.pool.of_pool();
    let tree_slots = config.workers;
    let pool = Pool::new(config, metrics.workers.clone());
    let tree_workers = SubprocessStarter::new(args.pool.of_trees()).context("starting processes for trees")?;
    let workers = pool.start().await?;
    let local = LocalRepositories::below(args.local_repositories.clone());
    let starter = SubprocessStarter::new(subprocesses).context("starting processes for sources")?;
    let readers = ReaderPool::new(starter, args.sources.source_processes as usize, local.folders());
    // Requests have a turn first, which organizations share.
    let of_repositories = readers.with_slots(args.limits.gitops_processes(), MaxShare::All);
    let renderer = args.pool.of_renderer(caches.clone(), temporary.clone());
    let kcl = args.kcl.of_workers(&args.pool, &temporary)?;
    let modules = args.kcl.of_modules(&args.pool, temporary.clone());
    let generators = Generators::new(pool, tree_workers, tree_slots, renderer, modules).with_kcl(kcl);
    let functions = args.functions.of_functions(
        &args.pool,
        generators.clone(),
        args.kubeconfig.clone(),
        temporary.clone(),
        caches.clone(),
    )?;
    let terraform = Arc::new(args.terraform.of_terraform(caches.clone(), temporary, metrics.providers.clone()));
    let runtimes = Runtimes::new(
        args.kubeconfig.clone(),
        caches.clone(),
        local.clone(),
        args.limits.of_runtimes(),
        of_repositories,
        Arc::clone(&terraform),
    );
    let sources = Sources::new(caches, local, readers);
    let calls = Arc::new(Calls::new(metrics, args.limits.of_calls(args.drain_limit()), asked.clone()));
    let idle = calls.idle();
    let packages = PackageService::new(Arc::clone(&calls), sources.clone(), functions.clone());
    let packages =
        PackagesServer::new(packages).max_decoding_message_size(MESSAGE_LIMIT).max_encoding_message_size(MESSAGE_LIMIT);
    let pods = functions.clone();
    let evaluator = |service: FunctionService| {
        FunctionEvaluatorServer::new(service)
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT)
    };
    if let Some(listen) = args.functions.functions_listen {
        let open = FunctionService::open(Arc::clone(&calls), functions.clone());
        serve_functions(listen, evaluator(open), health.clone(), ended.clone())?;
    }
    let functions = evaluator(FunctionService::new(Arc::clone(&calls), functions));
    let fleet = FleetService::new(Arc::clone(&calls), sources.clone(), generators.clone());
    let fleet =
        FleetServer::new(fleet).max_decoding_message_size(MESSAGE_LIMIT).max_encoding_message_size(MESSAGE_LIMIT);
    let runner = FunctionRunnerServer::new(RunnerService::new(calls, sources, generators.clone(), runtimes))
        .max_decoding_message_size(MESSAGE_LIMIT)
        .max_encoding_message_size(MESSAGE_LIMIT);
    let stop = CancellationToken::new();
    let server = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .add_service(runner)
        .add_service(packages)
        .add_service(functions)
        .add_service(fleet)
        .add_service(health)
        .serve_with_incoming_shutdown(incoming::secured(listener, tls, stop.clone()), stop.clone().cancelled_owned());
    let drained = async {
        asked.cancelled().await;
        not_serving(&reporter).await;
        if tokio::time::timeout(args.drain_limit(), idle).await.is_err() {
            tracing::warn!("shutting down while calls are under way");
        }
        if tokio::time::timeout(CLOSE, workers.close()).await.is_err() {
            tracing::warn!("shutting down while workers are busy");
        }
        generators.shut_down();
        if tokio::time::timeout(CLOSE, pods.shut_down()).await.is_err() {
            tracing::warn!("shutting down while pods of functions run; their deadline ends them");
        }
        if tokio::time::timeout(CLOSE, terraform.shut_down()).await.is_err() {
            tracing::warn!("shutting down while providers run; the kernel ends them");
        }
        stop.cancel();
        tokio::time::sleep(CLOSE).await;
    };

    if let Some(file) = &args.address_file {
        write_address(file, address)?;
    }
    tracing::info!(%address, "serving");
    tokio::select! {
        served = server => served?,
        () = drained => tracing::warn!("shutting down while connections are open"),
    }
    tracing::info!("ended");
    Ok(())
}

/// Reports that no calls are accepted any more.
async fn not_serving(reporter: &HealthReporter) {
    reporter.set_not_serving::<FunctionRunnerServer<RunnerService>>().await;
    reporter.set_service_status("", ServingStatus::NotServing).await;
}

/// Serves the health of the runner, and nothing else, to anybody: the kubelet's probes have no certificate.
pub(crate) fn tell_health(
    address: SocketAddr,
    health: HealthServer<impl Health>,
    ended: CancellationToken,
) -> anyhow::Result<()> {
    let incoming = TcpIncoming::bind(address).with_context(|| format!("listening on {address}"))?;
    tracing::info!(address = %incoming.local_addr()?, "serving health");
    let server = Server::builder().add_service(health);
    tokio::spawn(async move {
        let served = server.serve_with_incoming(incoming);
        if let Some(Err(error)) = ended.run_until_cancelled(served).await {
            tracing::error!(%error, "the health server failed");
        }
    });
    Ok(())
}

/// Serves functions and health, and nothing else, to anybody: Porch's server has no certificate.
fn serve_functions(
    address: SocketAddr,
    functions: FunctionEvaluatorServer<FunctionService>,
    health: HealthServer<impl Health>,
    ended: CancellationToken,
) -> anyhow::Result<()> {
    let incoming = TcpIncoming::bind(address).with_context(|| format!("listening on {address}"))?;
    tracing::info!(address = %incoming.local_addr()?, "serving functions");
    let server = Server::builder().add_service(functions).add_service(health);
    tokio::spawn(async move {
        let served = server.serve_with_incoming(incoming);
        if let Some(Err(error)) = ended.run_until_cancelled(served).await {
            tracing::error!(%error, "the server of functions failed");
        }
    });
    Ok(())
}

/// Writes the file as a whole, since a script may wait for it to appear.
pub(crate) fn write_address(file: &Path, address: SocketAddr) -> anyhow::Result<()> {
    let new = file.with_extension("new");
    std::fs::write(&new, format!("{address}\n"))
        .and_then(|()| std::fs::rename(&new, file))
        .with_context(|| format!("writing {}", file.display()))
}

async fn until_asked_to_end(stdin_too: bool, asked: CancellationToken) {
    let Some(why) = end_request(stdin_too).await else { return };
    tracing::info!(why, "shutting down: calls under way finish first, and applies are handed over");
    asked.cancel();
}

/// Waits for a signal, or for the end of standard input, and returns its name. `None` where signals cannot be handled.
pub(crate) async fn end_request(stdin_too: bool) -> Option<&'static str> {
    let stdin = CancellationToken::new();
    if stdin_too {
        let closed = stdin.clone();
        // A thread of its own, since nothing can interrupt a read of standard input.
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            closed.cancel();
        });
    }
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        tracing::error!("signals cannot be handled");
        return None;
    };
    Some(tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
        () = stdin.cancelled() => "standard input closed",
    })
}
