//! The hidden command `worker`, with which the pool starts this binary again.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Parser;
use stoa_kcl::Compiler;
use stoa_workers::More;
use stoa_workers::sandbox::{Profile, Servers};
use stoa_workers::worker::{Terms, serve};

use crate::{generate, source};

/// The command that makes this binary a worker.
const COMMAND: &str = "worker";

/// This binary, even if another one is at its path by now.
const THIS: &str = "/proc/self/exe";

/// The limit of a worker's stack, in bytes: enough to parse deep expressions.
const STACK: u64 = stoa_cel::STACK as u64 + (8 << 20);

/// The limit of the stack of a process that reads a source, in bytes. Each of its threads has as much, which counts as memory.
const STACK_OF_SOURCES: u64 = 8 << 20;

/// The environment of a process that reaches Git servers: a folder of authorities, whose certificates are read on demand, and the
/// settings and known hosts of the user.
const OF_SERVERS: [&str; 3] = ["HOME", "XDG_CONFIG_HOME", "SSL_CERT_DIR"];

/// The variable with the file of all authorities' certificates.
const AUTHORITIES: &str = "SSL_CERT_FILE";

/// The paths that a process reads to reach a Git server: libraries and settings of name resolution, and certificates of authorities. None
/// is secret; the runner's own keys and tokens are mounted elsewhere.
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

/// The command line of a worker.
#[derive(Debug, Parser)]
pub(crate) struct WorkerArgs {
    /// The process that started it
    #[arg(long)]
    parent: u32,

    /// The limit of its memory, in bytes
    #[arg(long)]
    memory: u64,

    /// The folder of a source's cache, if it reads a source
    #[arg(long)]
    cache: Option<PathBuf>,

    /// Another path that it may read
    #[arg(long)]
    read: Vec<PathBuf>,

    /// The repository on this machine that it writes
    #[arg(long, requires = "cache")]
    write: Option<PathBuf>,

    /// The file with the certificates of all authorities
    #[arg(long)]
    authorities: Option<PathBuf>,

    /// The tree that it reads, if it renders one
    #[arg(long, conflicts_with = "cache")]
    tree: Option<PathBuf>,

    /// KCL's library without Python, if it renders programs in KCL
    #[arg(long, requires = "tree")]
    kcl_object: Option<PathBuf>,
}

/// The program that a pool starts.
pub(crate) fn program() -> PathBuf {
    PathBuf::from(THIS)
}

/// The command line of a worker with this limit of memory, in bytes.
pub(crate) fn command(memory: u64) -> Vec<OsString> {
    let terms = [format!("--parent={}", std::process::id()), format!("--memory={memory}")];
    [COMMAND.to_owned()].into_iter().chain(terms).map(OsString::from).collect()
}

/// The command line of all processes that read sources. libgit2 has found the certificates of authorities by now.
pub(crate) fn command_for_sources(memory: u64) -> Vec<OsString> {
    let file = std::env::var_os(AUTHORITIES).and_then(|file| std::path::absolute(file).ok());
    command(memory).into_iter().chain(file.map(|file| flag("--authorities=", &file))).collect()
}

/// The arguments of one process, with its cache, other folders that it may read, and a repository that it may write. They follow
/// [`command_for_sources`].
pub(crate) fn more_for_source(cache: &Path, others: &[PathBuf], writes: Option<&Path>) -> More {
    let read = others.iter().map(|path| flag("--read=", path));
    let write = writes.map(|path| flag("--write=", path));
    More { arguments: [flag("--cache=", cache)].into_iter().chain(read).chain(write).collect() }
}

/// The arguments of a process that renders a tree.
pub(crate) fn more_for_tree(root: &Path) -> More {
    More { arguments: vec![flag("--tree=", root)] }
}

/// The command line of all processes with KCL's library. The tree follows ([`more_for_tree`]).
pub(crate) fn command_for_kcl(memory: u64, object: &Path) -> Vec<OsString> {
    command(memory).into_iter().chain([flag("--kcl-object=", object)]).collect()
}

fn flag(flag: &str, path: &Path) -> OsString {
    let mut said = OsString::from(flag);
    said.push(path);
    said
}

/// The environment of a process that reads a source.
pub(crate) fn environment_for_sources() -> Vec<(OsString, OsString)> {
    let none = (OsString::from(AUTHORITIES), OsString::from("/dev/null"));
    let others = OF_SERVERS.iter().filter_map(|name| Some(((*name).into(), std::env::var_os(name)?)));
    others.chain([none]).collect()
}

/// The paths that such a process reads to reach a server.
fn read_for_servers() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let home = variable("HOME");
    let of_home =
        [".gitconfig", ".config/git", ".ssh/known_hosts"].map(|path| home.as_ref().map(|home| home.join(path)));
    let others = [variable("SSL_CERT_DIR"), variable("XDG_CONFIG_HOME").map(|settings| settings.join("git"))];
    READ_FOR_SERVERS.iter().map(PathBuf::from).chain(of_home.into_iter().chain(others).flatten()).collect()
}

/// The paths that are read beside the copy of a repository: the settings of the user, and the time zone.
pub(crate) fn read_for_copies() -> Vec<PathBuf> {
    read_for_servers().into_iter().chain([PathBuf::from("/etc/localtime")]).collect()
}

/// The environment of a worker: empty, except for tests.
pub(crate) fn environment() -> Vec<(OsString, OsString)> {
    #[cfg(debug_assertions)]
    if let Some(trials) = std::env::var_os(generate::testing::VARIABLE) {
        return vec![(generate::testing::VARIABLE.into(), trials)];
    }
    Vec::new()
}

/// Parses the command line, if it is a worker's.
pub(crate) fn arguments() -> Option<WorkerArgs> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let is_worker = arguments.peek().is_some_and(|first| first == COMMAND);
    // The command takes the position of the program's name.
    is_worker.then(|| WorkerArgs::parse_from(arguments))
}

impl WorkerArgs {
    /// Does jobs until the pool closes the pipe.
    pub(crate) fn serve(self) -> anyhow::Result<()> {
        let Self { parent, memory, cache, read, write, authorities, tree, kcl_object } = self;
        let terms = |stack, profile| Terms { parent, memory, stack, profile };
        let served = match cache {
            Some(folder) => {
                let reads = read_for_servers().into_iter().chain(read).chain(authorities.clone()).collect();
                if let Some(file) = authorities {
                    source::authorities::are_in(file);
                }
                let folders = [folder].into_iter().chain(write).collect();
                let servers = Servers { folders, reads, file: source::MOST_OF_A_FILE };
                serve(&terms(STACK_OF_SOURCES, Profile::Servers(servers)), source::work)
            }
            None => {
                // Expressions are read on the thread that there is.
                stoa_cel::on_the_calling_thread();
                if let Some(object) = kcl_object {
                    // Nothing can be loaded in the sandbox.
                    generate::kcl::use_library(Compiler::load(&object).context("loading KCL's library")?);
                }
                serve(&terms(STACK, tree.map_or(Profile::Isolated, Profile::Tree)), generate::work)
            }
        };
        served.context("the worker failed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_parses_its_command_line() {
        let worker = WorkerArgs::parse_from(command(5 << 20));
        assert_eq!((worker.parent, worker.memory), (std::process::id(), 5 << 20));
        assert_eq!((worker.cache, worker.read, worker.authorities), (None, Vec::new(), None));
        let folders = ["/a b", "/c"].map(PathBuf::from);
        let more = more_for_source(Path::new("/cache/0/git/x"), &folders, Some(Path::new("/d.git")));
        let all = [flag("--authorities=", Path::new("/etc/all.pem"))];
        let worker = WorkerArgs::parse_from(command(1).into_iter().chain(all).chain(more.arguments));
        assert_eq!((worker.cache.as_deref(), worker.read), (Some(Path::new("/cache/0/git/x")), folders.into()));
        assert_eq!(worker.write.as_deref(), Some(Path::new("/d.git")));
        assert_eq!(worker.authorities.as_deref(), Some(Path::new("/etc/all.pem")));
        let tree = more_for_tree(Path::new("/trees/a"));
        let worker = WorkerArgs::parse_from(command(1).into_iter().chain(tree.arguments));
        assert_eq!((worker.tree.as_deref(), worker.cache), (Some(Path::new("/trees/a")), None));
    }

    #[test]
    fn process_for_a_source_begins_without_authorities() {
        let environment = environment_for_sources();
        let files: Vec<_> = environment.iter().filter(|(name, _)| name == AUTHORITIES).collect();
        assert_eq!(files, [&(OsString::from(AUTHORITIES), OsString::from("/dev/null"))]);
    }
}
