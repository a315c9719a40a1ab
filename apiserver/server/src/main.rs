//! The Stoa API server: serves the kinds of Stoa as Kubernetes objects and runs their controllers.
//!
//! `stoa-apiserver standalone` is everything on one machine, with its own certificates;
//! `stoa-apiserver serve` stands behind the aggregation layer of a cluster.

mod aside;
mod cluster;
mod compaction;
mod controllers;
mod delegated;
mod events;
mod git;
mod kinds;
mod leader;
mod lease;
mod notifications;
mod options;
mod runs;
mod sealing;
mod server;
mod standalone;
mod storage;
mod subresources;
mod webhook;

use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use mimalloc::MiMalloc;
use stoa_machinery::profile;
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use crate::options::{Command, LogFormat, Options};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// How long work that cannot be stopped may still take at the end.
const LAST_WORDS: Duration = Duration::from_secs(5);

fn main() -> anyhow::Result<()> {
    #[expect(unsafe_code, reason = "libgit2's options are globals")]
    // SAFETY: no other thread exists yet.
    let timeouts = unsafe { stoa_git::set_timeouts() };
    timeouts.context("libgit2 takes no timeouts")?;
    let options = Options::parse();
    let filter = EnvFilter::try_new(&options.log_filter)?;
    let registry = tracing_subscriber::registry().with(filter);
    match options.log_format {
        LogFormat::Text => registry.with(fmt::layer().with_writer(std::io::stderr)).init(),
        LogFormat::Json => registry.with(fmt::layer().json().with_writer(std::io::stderr)).init(),
    }
    // Both ends of TLS use the same provider; an earlier choice would be the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if options.command.profiling() {
        profile::enter_thread();
        runtime.on_thread_start(profile::enter_thread);
    }
    let runtime = runtime.enable_all().build()?;
    let ended = runtime.block_on(async {
        match options.command {
            Command::Serve(options) => delegated::run(*options).await,
            Command::Standalone(options) => standalone::run(*options).await,
        }
    });
    // A Git server that does not answer must not hold up the end.
    runtime.shutdown_timeout(LAST_WORDS);
    ended
}
