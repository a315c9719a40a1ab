//! `function-runner agent`: reports the deployments of a cluster to the hub, without any other part of a runner.
//!
//! Start at [`run`]. `watch` follows the objects of Flux and Argo CD, `queue` keeps what the hub does not have yet, `reporter`
//! sends it, `hub` has the calls, `assignment` finds the Reconciler of an object, and `metrics` counts.

mod args;
mod assignment;
mod hub;
mod metrics;
mod queue;
mod reporter;
mod watch;

use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

pub(crate) use self::args::{AgentArgs, arguments};
use self::hub::HubClient;
use self::metrics::AgentMetrics;
use self::queue::Queue;
use self::reporter::Reporter;
use crate::cluster_access;
use crate::metrics::listen;
use crate::serve::end_request;

/// The interval in which changes are collected to one report.
const TICK: Duration = Duration::from_secs(1);
/// The changes that wait for the reporter.
const WAITING_CHANGES: usize = 256;

/// Reports until a signal.
pub(crate) async fn run(args: AgentArgs) -> anyhow::Result<()> {
    let hub = cluster_access::watching(Some(&args.hub_kubeconfig)).await.map_err(anyhow::Error::msg);
    let hub = hub.with_context(|| format!("--hub-kubeconfig {}", args.hub_kubeconfig.display()))?;
    let cluster = cluster_access::watching(args.kubeconfig.as_deref()).await.map_err(anyhow::Error::msg);
    let cluster = cluster.context("the agent cannot reach its cluster; set --kubeconfig outside of a pod")?;
    let queue = Queue::open(&args.queue_file, args.queue_deployments as usize);
    let queue = queue.with_context(|| format!("--queue-file {}", args.queue_file.display()))?;

    let end = CancellationToken::new();
    let asked = end.clone();
    tokio::spawn(async move {
        if let Some(why) = end_request(false).await {
            tracing::info!(why, "shutting down");
            asked.cancel();
        }
    });
    let metrics = AgentMetrics::new()?;
    if let Some(address) = args.metrics_listen {
        listen(address, metrics.registry(), end.clone()).await?;
    }
    let (sender, mut changes) = mpsc::channel(WAITING_CHANGES);
    let mut watches = JoinSet::new();
    for kind in watch::KINDS {
        watches.spawn(watch::watch(cluster.clone(), kind, sender.clone()));
    }
    drop(sender);
    let heartbeat = Duration::from_secs(args.heartbeat_seconds.into());
    let mut reporter = Reporter::new(HubClient::new(hub, args.namespace, args.host), queue, heartbeat, metrics);
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tracing::info!("reporting");
    loop {
        tokio::select! {
            () = end.cancelled() => break,
            Some(change) = changes.recv() => reporter.take(change, Timestamp::now()),
            _ = ticks.tick() => {
                if end.run_until_cancelled(reporter.work()).await.is_none() {
                    break;
                }
            }
        }
    }
    reporter.save();
    Ok(())
}
