//! The Stoa API server: serves the kinds of Stoa as Kubernetes objects and runs their controllers.
//!
//! `stoa-apiserver standalone` is everything on one machine, with its own certificates;
//! `stoa-apiserver serve` stands behind the aggregation layer of a cluster.

mod behaviours;
mod compaction;
mod controllers;
#[cfg(test)]
mod dashboards_tests;
mod delegated;
mod fleet;
#[cfg(test)]
mod generated_tests;
mod git;
mod hub;
mod options;
mod packages;
mod server;
mod services;
mod standalone;
mod storage;
mod subresources;
#[cfg(test)]
mod testing;
mod webhook;

use std::{io::IsTerminal as _, time::Duration};

use anyhow::Context as _;
use clap::Parser as _;
use mimalloc::MiMalloc;
use tracing::Subscriber;
use tracing_subscriber::{
    EnvFilter, Layer,
    fmt::{self, writer::BoxMakeWriter},
    layer::SubscriberExt as _,
    registry::LookupSpan,
    util::SubscriberInitExt as _,
};

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
    // `NO_COLOR` is how people turn colours off, see https://no-color.org.
    let is_coloured = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
    let lines = log_lines(options.log_format, BoxMakeWriter::new(std::io::stderr), is_coloured);
    tracing_subscriber::registry().with(filter).with(lines).init();
    // Both ends of TLS use the same provider; an earlier choice would be the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
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

/// What is logged as lines of text or of JSON; text is in colours only where somebody looks at it.
fn log_lines<S>(format: LogFormat, writer: BoxMakeWriter, is_coloured: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    match format {
        LogFormat::Text => fmt::layer().with_writer(writer).with_ansi(is_coloured).boxed(),
        LogFormat::Json => fmt::layer().json().with_writer(writer).boxed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(format: LogFormat, is_coloured: bool) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines = log_lines(format, BoxMakeWriter::new(file.reopen().unwrap()), is_coloured);
        let subscriber = tracing_subscriber::registry().with(lines);
        tracing::subscriber::with_default(subscriber, || tracing::warn!(answer = 42, "told"));
        std::fs::read_to_string(file.path()).unwrap()
    }

    #[test]
    fn log_that_goes_to_a_file_has_no_colours() {
        let text = logged(LogFormat::Text, false);
        assert!(text.contains(" WARN ") && text.ends_with("told answer=42\n") && !text.contains('\u{1b}'), "{text:?}");
        assert!(logged(LogFormat::Text, true).contains('\u{1b}'));
        let json = logged(LogFormat::Json, true);
        assert!(json.starts_with('{') && !json.contains('\u{1b}'), "{json:?}");
    }
}
