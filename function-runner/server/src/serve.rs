//! Sockets, TLS, signals and the order of shutting down.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use stoa_proto::function_runner_server::FunctionRunnerServer;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};

use crate::args::Args;
use crate::metrics::{self, Metrics};
use crate::runtimes::Runtimes;
use crate::service::{Limits, Service};
use crate::source::Sources;

/// Specs and states of large stacks come in one message.
const MESSAGE_LIMIT: usize = 256 << 20;
/// How long calls in flight may take to end once the process is asked to.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(60);
/// A caller that vanished without a word is noticed within two of these.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Serves until a signal or the end of standard input.
pub(crate) async fn serve(args: Args) -> anyhow::Result<()> {
    let metrics = Metrics::new()?;
    std::fs::create_dir_all(&args.cache_dir).with_context(|| format!("creating {}", args.cache_dir.display()))?;
    let tls = tls(&args)?;
    let incoming = TcpIncoming::bind(args.listen).with_context(|| format!("listening on {}", args.listen))?;
    let address = incoming.local_addr()?;

    let shutdown = CancellationToken::new();
    tokio::spawn(until_asked_to_end(args.exit_on_stdin_close, shutdown.clone()));
    if let Some(listen) = args.metrics_listen {
        metrics::listen(listen, metrics.clone(), shutdown.clone()).await?;
    }
    let service = Service::new(
        Sources::new(args.cache_dir.clone()),
        Runtimes::new(args.kubeconfig.clone(), args.cache_dir.clone()),
        metrics,
        Limits { parallelism: args.parallelism, calls: args.max_calls },
        shutdown.clone(),
    );
    let service = FunctionRunnerServer::new(service)
        .max_decoding_message_size(MESSAGE_LIMIT)
        .max_encoding_message_size(MESSAGE_LIMIT);
    let server = Server::builder()
        .tls_config(tls)?
        .tcp_nodelay(true)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .add_service(service)
        .serve_with_incoming_shutdown(incoming.with_nodelay(Some(true)), shutdown.clone().cancelled_owned());

    if let Some(file) = &args.address_file {
        write_address(file, address)?;
    }
    tracing::info!(%address, "serving");
    tokio::select! {
        served = server => served?,
        () = async { shutdown.cancelled().await; tokio::time::sleep(SHUTDOWN_LIMIT).await } => {
            tracing::warn!("ending though calls are still in flight");
        }
    }
    tracing::info!("ended");
    Ok(())
}

fn tls(args: &Args) -> anyhow::Result<ServerTlsConfig> {
    let read = |file: &Path| std::fs::read(file).with_context(|| format!("reading {}", file.display()));
    let identity = Identity::from_pem(read(&args.tls_cert)?, read(&args.tls_key)?);
    Ok(ServerTlsConfig::new().identity(identity).client_ca_root(Certificate::from_pem(read(&args.client_ca)?)))
}

/// Whole or not at all, since somebody waits for the file to appear.
fn write_address(file: &Path, address: SocketAddr) -> anyhow::Result<()> {
    let new = file.with_extension("new");
    std::fs::write(&new, format!("{address}\n"))
        .and_then(|()| std::fs::rename(&new, file))
        .with_context(|| format!("writing {}", file.display()))
}

async fn until_asked_to_end(stdin_too: bool, shutdown: CancellationToken) {
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
        return;
    };
    let why = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
        () = stdin.cancelled() => "standard input closed",
    };
    tracing::info!(why, "ending: calls in flight are finished first");
    shutdown.cancel();
}
