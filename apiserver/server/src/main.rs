//! The Stoa API server: serves the kinds of Stoa as Kubernetes objects and runs their controllers.
//!
//! `stoa-apiserver standalone` is everything on one machine, with its own certificates;
//! `stoa-apiserver serve` stands behind the aggregation layer of a cluster.

mod cluster;
mod compaction;
mod controllers;
mod delegated;
mod events;
mod git;
mod kinds;
mod leader;
mod lease;
mod options;
mod runs;
mod server;
mod standalone;
mod storage;
mod subresources;

use clap::Parser as _;
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use crate::options::{Command, LogFormat, Options};

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let filter = EnvFilter::try_new(&options.log_filter)?;
    let registry = tracing_subscriber::registry().with(filter);
    match options.log_format {
        LogFormat::Text => registry.with(fmt::layer().with_writer(std::io::stderr)).init(),
        LogFormat::Json => registry.with(fmt::layer().json().with_writer(std::io::stderr)).init(),
    }
    // Both ends of TLS use the same provider; an earlier choice would be the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match options.command {
            Command::Serve(options) => delegated::run(*options).await,
            Command::Standalone(options) => standalone::run(options).await,
        }
    })
}
