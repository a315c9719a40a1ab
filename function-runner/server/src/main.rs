//! The binary `function-runner`: engine, generators and runtimes behind gRPC.
//!
//! Start at `service`, which has one module for each gRPC service. `source` and `generate` render a path in Git to a Spec, both in
//! processes of their own (`worker`). `runtimes` connects to the clusters and repositories of a workspace, `terraform` has its providers, `secret_store` its secrets,
//! `packages` has package repositories, `functions` the functions of packages, `fleet` the templates and proposals of fleets,
//! and `apply` carries out a plan in conversation with the API server. `blocking` runs long computations. `serve` has sockets, health and shutdown, `incoming` TLS.
//!
//! Two other programs are in the same binary: `agent` reports the deployments of a cluster to the hub, and `ocm` is an external
//! scheduler with the decisions of Open Cluster Management.
//!
//! **Invariant:** a call leaves nothing about a run behind except fetched Git objects.

mod agent;
mod apply;
mod args;
mod blocking;
mod cache;
mod capabilities;
mod cluster_access;
mod compliance;
mod convert;
mod failure;
mod fleet;
mod functions;
mod generate;
mod graceful_close;
mod incoming;
mod installed;
mod local;
mod metrics;
mod ocm;
mod packages;
mod runtimes;
mod secret_store;
mod serve;
mod service;
mod source;
mod terraform;
mod worker;

use anyhow::Context as _;
use clap::Parser as _;
use tracing_subscriber::EnvFilter;

use crate::agent::AgentArgs;
use crate::args::{Args, LogFormat};
use crate::ocm::OcmArgs;

fn main() -> anyhow::Result<()> {
    if let Some(worker) = worker::arguments() {
        return worker.serve();
    }
    if let Some(provider) = terraform::sandbox::arguments() {
        return Err(provider.run());
    }
    if let Some(agent) = agent::arguments() {
        return run_agent(agent);
    }
    if let Some(scheduler) = ocm::arguments() {
        return run_scheduler(scheduler);
    }
    let args = Args::parse().absolute()?;
    args.check()?;
    start_logging(&args.log, args.log_format)?;
    #[expect(unsafe_code, reason = "libgit2's options are globals")]
    // SAFETY: no other thread exists yet.
    let timeouts = unsafe { stoa_git::set_timeouts() };
    timeouts.context("libgit2 takes no timeouts")?;
    use_ring();
    let threads = args.limits.waiting_threads();
    let runtime = tokio::runtime::Builder::new_multi_thread().max_blocking_threads(threads).enable_all().build()?;
    let served = runtime.block_on(serve::serve(args));
    // A Git server that does not answer must not hold up the end.
    runtime.shutdown_background();
    served
}

/// Two crates in the build bring a TLS provider each; this is the one that is meant.
fn use_ring() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

fn run_agent(args: AgentArgs) -> anyhow::Result<()> {
    start_logging(&args.log, args.log_format)?;
    run_small(agent::run(args))
}

fn run_scheduler(args: OcmArgs) -> anyhow::Result<()> {
    start_logging(&args.log, args.log_format)?;
    run_small(ocm::run(args))
}

/// Runs a program that needs little.
fn run_small(program: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    use_ring();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let ended = runtime.block_on(program);
    runtime.shutdown_background();
    ended
}

/// What a client of clusters says of each answer that is no success, as an error: refusals of dry runs, and servers that are
/// away, which runs tell of themselves.
const ANSWERS: &str = "kube_client::client::builder=off";

/// The events that are logged. Whoever names the client has all that it says.
fn events(log: &str) -> anyhow::Result<EnvFilter> {
    let filter = EnvFilter::try_new(log).with_context(|| format!("--log {log:?}"))?;
    Ok(if log.contains("kube_client") { filter } else { filter.add_directive(ANSWERS.parse()?) })
}

fn start_logging(log: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter = events(log)?;
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => subscriber.with_ansi(false).init(),
        LogFormat::Json => subscriber.json().init(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tracing::{Level, enabled, subscriber::with_default};
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn cluster_answers_are_logged_on_request_only() {
        let logged = |log: &str| {
            with_default(tracing_subscriber::registry().with(events(log).unwrap()), || {
                [
                    enabled!(target: "kube_client::client::builder", Level::ERROR),
                    enabled!(target: "function_runner::service", Level::ERROR),
                ]
            })
        };
        assert_eq!(logged("info"), [false, true]);
        assert_eq!(logged("info,function_runner=debug"), [false, true]);
        assert_eq!(logged("info,kube_client=error"), [true, true]);
    }
}
