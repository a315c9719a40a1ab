//! The hidden command `worker`: what this binary is when its pool starts it again.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Parser;
use stoa_workers::More;
use stoa_workers::sandbox::{Reach, Servers};
use stoa_workers::worker::{Terms, serve};

use crate::{generate, source};

/// The command by which a worker is told from a runner.
const COMMAND: &str = "worker";

/// This binary, even if another one is at its path by now.
const THIS: &str = "/proc/self/exe";

/// How large the stack of a worker may become, in bytes: what reading an expression takes, beside what programs have anyway.
const STACK: u64 = stoa_cel::STACK as u64 + (8 << 20);

/// How large the stack of a process may become that fetches and reads a source, in bytes. Its threads have as much each, which
/// counts as its memory.
const STACK_OF_SOURCES: u64 = 8 << 20;

/// The variables that a process has which reaches Git servers: where certificates of authorities are, and the settings and
/// known hosts of the user.
const OF_SERVERS: [&str; 4] = ["HOME", "XDG_CONFIG_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR"];

/// The variables that say where certificates of authorities are.
const AUTHORITIES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// What is read to reach a Git server: libraries that names are looked up with, how, and certificates of authorities. Nothing
/// of it is anybody's secret; what is mounted for the runner, such as its keys and tokens, is elsewhere.
const READ_FOR_SERVERS: [&str; 20] = [
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/share",
    "/usr/local/share",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/gitconfig",
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ld.so.cache",
    "/dev/urandom",
    "/dev/null",
];

/// What a worker is told.
#[derive(Debug, Parser)]
pub(crate) struct WorkerArgs {
    /// The process that started it
    #[arg(long)]
    parent: u32,

    /// How many bytes of memory it may have
    #[arg(long)]
    memory: u64,

    /// The folder of a source's cache, if it is to fetch and read that one
    #[arg(long)]
    cache: Option<PathBuf>,

    /// What it may read besides
    #[arg(long)]
    read: Vec<PathBuf>,
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

/// What comes after [`command`] for a process that fetches and reads the source with its cache in this folder, and may read a
/// few others. It is either on this machine, in one of these, or a server's.
pub(crate) fn more_for_source(cache: &Path, local: Option<&[PathBuf]>) -> More {
    let flag = |flag: &str, path: &Path| {
        let mut said = OsString::from(flag);
        said.push(path);
        said
    };
    let read = local.unwrap_or_default().iter().map(|path| flag("--read=", path));
    let arguments = [flag("--cache=", cache)].into_iter().chain(read).collect();
    // libgit2 reads all certificates of authorities before it knows whether it needs any, which takes most of the time of a
    // process that reads what is here. SSH needs none either, but Git's settings may have another URL take its place.
    let no_authorities = || AUTHORITIES.map(|name| (OsString::from(name), OsString::from("/dev/null"))).to_vec();
    More { arguments, environment: local.map(|_| no_authorities()).unwrap_or_default() }
}

/// What such a process has of the environment.
pub(crate) fn environment_for_sources() -> Vec<(OsString, OsString)> {
    OF_SERVERS.iter().filter_map(|name| Some(((*name).into(), std::env::var_os(name)?))).collect()
}

/// What such a process reads to reach a server.
fn read_for_servers() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let home = variable("HOME");
    let of_home =
        [".gitconfig", ".config/git", ".ssh/known_hosts"].map(|path| home.as_ref().map(|home| home.join(path)));
    let others = [
        variable("SSL_CERT_FILE"),
        variable("SSL_CERT_DIR"),
        variable("XDG_CONFIG_HOME").map(|settings| settings.join("git")),
    ];
    READ_FOR_SERVERS.iter().map(PathBuf::from).chain(of_home.into_iter().chain(others).flatten()).collect()
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
    pub(crate) fn serve(self) -> anyhow::Result<()> {
        let Self { parent, memory, cache, read } = self;
        let terms = |stack, reach| Terms { parent, memory, stack, reach };
        let served = match cache {
            Some(folder) => {
                let reads = read_for_servers().into_iter().chain(read).collect();
                let servers = Servers { folder, reads, file: source::MOST_OF_A_FILE };
                serve(&terms(STACK_OF_SOURCES, Reach::Servers(servers)), source::work)
            }
            None => {
                // Expressions are read on the thread that there is.
                stoa_cel::on_the_calling_thread();
                serve(&terms(STACK, Reach::Nothing), generate::work)
            }
        };
        served.context("this worker cannot work")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_understands_what_its_pool_tells_it() {
        let worker = WorkerArgs::parse_from(command(5 << 20));
        assert_eq!((worker.parent, worker.memory), (std::process::id(), 5 << 20));
        assert_eq!((worker.cache, worker.read), (None, Vec::new()));
        let folders = ["/a b", "/c"].map(PathBuf::from);
        let more = more_for_source(Path::new("/cache/0/git/x"), Some(&folders[..]));
        let worker = WorkerArgs::parse_from(command(1).into_iter().chain(more.arguments));
        assert_eq!((worker.cache.as_deref(), worker.read), (Some(Path::new("/cache/0/git/x")), folders.into()));
    }

    #[test]
    fn source_on_this_machine_needs_no_authorities() {
        let environment = |local| more_for_source(Path::new("/cache/0/git/x"), local).environment;
        let nowhere = AUTHORITIES.map(|name| (OsString::from(name), OsString::from("/dev/null")));
        let folders = [PathBuf::from("/srv")];
        assert_eq!(environment(Some(&folders[..])), nowhere);
        assert!(environment(None).is_empty());
    }
}
