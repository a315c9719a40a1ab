//! The hidden command `worker`: what this binary is when its pool starts it again.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Parser;
use stoa_workers::worker::{Terms, serve};

use crate::generate;

/// The command by which a worker is told from a runner.
const COMMAND: &str = "worker";

/// This binary, even if another one is at its path by now.
const THIS: &str = "/proc/self/exe";

/// How large the stack of a worker may become, in bytes: what reading an expression takes, beside what programs have anyway.
const STACK: u64 = stoa_cel::STACK as u64 + (8 << 20);

/// What a worker is told.
#[derive(Debug, Parser)]
pub(crate) struct WorkerArgs {
    /// The process that started it
    #[arg(long)]
    parent: u32,

    /// How many bytes of memory it may have
    #[arg(long)]
    memory: u64,
}

/// The program that a pool starts.
pub(crate) fn program() -> PathBuf {
    PathBuf::from(THIS)
}

/// The command line of a worker that may have so many bytes of memory.
pub(crate) fn command(memory: u64) -> Vec<OsString> {
    let terms = [format!("--parent={}", std::process::id()), format!("--memory={memory}")];
    [COMMAND.to_owned()].into_iter().chain(terms).map(OsString::from).collect()
}

/// What a worker has of the environment: nothing, but for tests.
pub(crate) fn environment() -> Vec<(OsString, OsString)> {
    #[cfg(debug_assertions)]
    if let Some(trials) = std::env::var_os(generate::trials::VARIABLE) {
        return vec![(generate::trials::VARIABLE.into(), trials)];
    }
    Vec::new()
}

/// The command line, if it is a worker's.
pub(crate) fn arguments() -> Option<WorkerArgs> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let is_worker = arguments.peek().is_some_and(|first| first == COMMAND);
    // The command itself stands where a program's name does.
    is_worker.then(|| WorkerArgs::parse_from(arguments))
}

impl WorkerArgs {
    /// Does jobs until the pool wants no more.
    pub(crate) fn serve(&self) -> anyhow::Result<()> {
        // Expressions are read on the thread that there is.
        stoa_cel::on_the_calling_thread();
        let terms = Terms { parent: self.parent, memory: self.memory, stack: STACK };
        serve(terms, generate::work).context("this worker cannot work")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_understands_what_its_pool_tells_it() {
        let worker = WorkerArgs::parse_from(command(5 << 20));
        assert_eq!((worker.parent, worker.memory), (std::process::id(), 5 << 20));
    }
}
