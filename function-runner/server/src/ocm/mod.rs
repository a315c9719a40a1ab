//! `function-runner ocm-scheduler`: an external scheduler of fleets with the decisions of Open Cluster Management.
//!
//! Start at [`run`]. `watch` follows PlacementDecisions and ManagedClusters, `placements` has those of the cluster and makes
//! answers of them, and `service` answers the API server.
//!
//! Follows `open-cluster-management.io/api` at 1.0.0: `cluster/v1beta1` and `cluster/v1`.

mod args;
mod placements;
mod service;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use stoa_proto::scheduler::scheduler_server::SchedulerServer;
use stoa_tls::{MutualTls, Reload, ServingCertificate, keep_reloading};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

pub(crate) use self::args::{OcmArgs, arguments};
use self::service::OcmScheduler;
use crate::serve::{KEEPALIVE, end_request, tell_health, write_address};
use crate::{cluster_access, incoming};

/// The largest request, in bytes.
const LARGEST_REQUEST: usize = 32 << 20;
/// The most calls on a connection: the API server has one for each policy.
const MOST_CALLS: u32 = 10_000;
/// The interval to reload certificates.
const RELOAD: Duration = Duration::from_secs(10);

/// Serves until a signal.
pub(crate) async fn run(args: OcmArgs) -> anyhow::Result<()> {
    let client = cluster_access::watching(args.kubeconfig.as_deref()).await.map_err(anyhow::Error::msg);
    let client = client.context("the scheduler cannot reach its cluster; set --kubeconfig outside of a pod")?;
    let certificate = ServingCertificate::from_files(&args.tls_cert, &args.tls_key)?;
    let tls = Arc::new(MutualTls::new(certificate, &args.client_ca, &[b"h2"])?);
    let listener = TcpListener::bind(args.listen).await.with_context(|| format!("listening on {}", args.listen))?;
    let address = listener.local_addr()?;

    let end = CancellationToken::new();
    let asked = end.clone();
    tokio::spawn(async move {
        if let Some(why) = end_request(false).await {
            tracing::info!(why, "shutting down");
            asked.cancel();
        }
    });
    tokio::spawn(keep_reloading(vec![tls.clone() as Arc<dyn Reload>], RELOAD, end.clone()));
    let scheduler = OcmScheduler::new(args.shared_namespaces);
    for kind in watch::KINDS {
        tokio::spawn(watch::watch(client.clone(), kind, scheduler.placements()));
    }
    let (reporter, health) = tonic_health::server::health_reporter();
    let service = SchedulerServer::new(scheduler).max_decoding_message_size(LARGEST_REQUEST);
    reporter.set_serving::<SchedulerServer<OcmScheduler>>().await;
    if let Some(listen) = args.health_listen {
        tell_health(listen, health.clone(), end.clone())?;
    }
    let server = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .max_concurrent_streams(MOST_CALLS)
        .add_service(service)
        .add_service(health)
        .serve_with_incoming(incoming::secured(listener, tls, end.clone()));
    if let Some(file) = &args.address_file {
        write_address(file, address)?;
    }
    tracing::info!(%address, "serving");
    tokio::select! {
        served = server => served?,
        // Callers keep the last decisions, and call again.
        () = end.cancelled() => {}
    }
    Ok(())
}
