//! The hidden command `provider`, by which this binary enters a sandbox and becomes a program: a provider, the renderer, or a function.
//!
//! The environment of the program is that of the command, with a prefix on each name. Without it, a variable such as `LD_PRELOAD`
//! would have its effect before the sandbox.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use clap::Parser;
use stoa_terraform_provider::process::{Launcher, Network, Program};
use stoa_workers::program;
use tokio::process::Command;

/// The command that makes this binary another program.
const COMMAND: &str = "provider";
/// The prefix of the provider's variables.
const PREFIX: &str = "STOA_PROVIDER_";

/// Runs providers in sandboxes.
#[derive(Clone, Debug)]
pub(crate) struct SandboxLauncher {
    /// This binary.
    pub(crate) program: PathBuf,
    /// The limit of a provider's memory, in bytes.
    pub(crate) memory: u64,
    /// The folders that providers write beside their own.
    pub(crate) directories: Vec<PathBuf>,
}

impl Launcher for SandboxLauncher {
    fn command(&self, program: &Program<'_>) -> Command {
        // A file without a known digest does not run.
        let digest = program.digest.copied().unwrap_or_default();
        let mut command = command(&self.program, self.memory, &digest, program.executable, program.folder);
        command.args(self.directories.iter().map(|folder| flag("--write=", folder)));
        if program.network == Network::Deny {
            command.arg("--deny-network");
        }
        with_environment(&mut command, program.environment);
        command
    }

    fn verifies(&self) -> bool {
        true
    }
}

/// The command that becomes the program with this digest, without any environment.
fn command(this: &Path, memory: u64, digest: &[u8; 32], executable: &Path, folder: &Path) -> Command {
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut command = Command::new(this);
    command.env_clear().arg(COMMAND);
    command.args([format!("--parent={}", std::process::id()), format!("--memory={memory}")]);
    command.arg(format!("--digest={digest}"));
    command.arg(flag("--executable=", executable)).arg(flag("--folder=", folder));
    // Signals to all processes of a terminal are for the runner.
    command.process_group(0);
    command
}

fn with_environment(command: &mut Command, environment: &[(OsString, OsString)]) {
    for (name, value) in environment {
        command.env(joined(PREFIX, name), value);
    }
}

/// A program that reads a folder, writes no file and has no network. It may have a socket in the folder where it runs. It reads no file
/// beside its executable, where the runner's own may be.
#[derive(Debug)]
pub(crate) struct Reading<'a> {
    /// This binary.
    pub(crate) this: &'a Path,
    /// The limit of its memory, in bytes.
    pub(crate) memory: u64,
    /// The SHA-256 of the executable.
    pub(crate) digest: [u8; 32],
    pub(crate) executable: &'a Path,
    /// The folder in which it runs.
    pub(crate) folder: &'a Path,
    /// The folder that it reads.
    pub(crate) reads: &'a Path,
    pub(crate) arguments: &'a [OsString],
    pub(crate) environment: &'a [(OsString, OsString)],
}

impl Reading<'_> {
    pub(crate) fn command(&self) -> Command {
        let mut command = command(self.this, self.memory, &self.digest, self.executable, self.folder);
        command.arg(flag("--read=", self.reads)).args(["--alone", "--deny-network", "--largest-file=0"]);
        command.args(self.arguments.iter().map(|argument| joined("--argument=", argument)));
        with_environment(&mut command, self.environment);
        command
    }
}

fn joined(prefix: &str, rest: &OsStr) -> OsString {
    let mut text = OsString::from(prefix);
    text.push(rest);
    text
}

fn flag(flag: &str, path: &Path) -> OsString {
    joined(flag, path.as_os_str())
}

/// The command line of a program.
#[derive(Debug, Parser)]
pub(crate) struct ProviderArgs {
    /// The process that started it
    #[arg(long)]
    parent: u32,

    /// The limit of its memory, in bytes
    #[arg(long)]
    memory: u64,

    /// The SHA-256 of the executable
    #[arg(long, value_parser = digest)]
    digest: [u8; 32],

    /// The executable, in the folder of its package
    #[arg(long)]
    executable: PathBuf,

    /// Whether it reads no other file of that folder
    #[arg(long)]
    alone: bool,

    /// The folder in which it runs
    #[arg(long)]
    folder: PathBuf,

    /// Another folder that it writes
    #[arg(long)]
    write: Vec<PathBuf>,

    /// Another folder that it reads
    #[arg(long)]
    read: Vec<PathBuf>,

    /// How large a file may become, in bytes
    #[arg(long, default_value_t = program::LARGEST_FILE)]
    largest_file: u64,

    /// Whether it has no network
    #[arg(long)]
    deny_network: bool,

    /// An argument of the program
    #[arg(long)]
    argument: Vec<OsString>,
}

fn digest(text: &str) -> Result<[u8; 32], String> {
    let wrong = || "64 hexadecimal digits are expected".to_owned();
    if text.len() != 64 || !text.is_ascii() {
        return Err(wrong());
    }
    let mut digest = [0; 32];
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
    }
    Ok(digest)
}

/// Parses the command line, if it is a provider's.
pub(crate) fn arguments() -> Option<ProviderArgs> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let is_provider = arguments.peek().is_some_and(|first| first == COMMAND);
    // The command takes the position of the program's name.
    is_provider.then(|| ProviderArgs::parse_from(arguments))
}

impl ProviderArgs {
    /// Becomes the provider. Returns only if that fails.
    pub(crate) fn run(self) -> anyhow::Error {
        let Self {
            parent,
            memory,
            digest,
            executable,
            alone,
            folder,
            write,
            read,
            largest_file,
            deny_network,
            argument,
        } = self;
        let network = if deny_network { program::Network::Deny } else { program::Network::Allow };
        let (arguments, environment) = (argument, environment(std::env::vars_os()));
        let program = program::Program {
            parent,
            executable,
            is_alone: alone,
            digest,
            arguments,
            environment,
            folder,
            writes: write,
            reads: read,
            largest_file,
            network,
            memory,
        };
        program::run(&program).into()
    }
}

/// The environment of the provider, from that of the command.
fn environment(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
    let own = |(name, value): (OsString, OsString)| {
        let name = name.as_bytes().strip_prefix(PREFIX.as_bytes())?.to_vec();
        Some((OsString::from_vec(name), value))
    };
    variables.filter_map(own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_parses_its_command_line() {
        let launcher = SandboxLauncher {
            program: PathBuf::from("runner"),
            memory: 5 << 20,
            directories: vec![PathBuf::from("/shared a")],
        };
        let environment = [("TOKEN".into(), "a=b".into()), ("LD_PRELOAD".into(), "/x.so".into())];
        let mut program = Program {
            executable: Path::new("/package/provider"),
            digest: Some(&[171; 32]),
            environment: &environment,
            folder: Path::new("/own"),
            network: Network::Deny,
        };
        let command = launcher.command(&program);
        let parsed = |command: &Command| ProviderArgs::parse_from(command.as_std().get_args());
        let args = parsed(&command);
        assert_eq!((args.parent, args.memory, args.digest), (std::process::id(), 5 << 20, [171; 32]));
        assert_eq!(args.executable, Path::new("/package/provider"));
        assert_eq!((args.folder.as_path(), args.write), (Path::new("/own"), vec![PathBuf::from("/shared a")]));
        assert!(args.deny_network && !args.alone);
        let variables = command.as_std().get_envs().map(|(name, value)| (name.to_owned(), value.unwrap().to_owned()));
        let variables: Vec<_> = variables.collect();
        assert!(variables.iter().all(|(name, _)| name.as_bytes().starts_with(PREFIX.as_bytes())));
        let mut restored = super::environment(variables.into_iter());
        restored.sort();
        assert_eq!(restored, [environment[1].clone(), environment[0].clone()]);
        assert!(super::environment([(OsString::from("PATH"), OsString::from("/bin"))].into_iter()).is_empty());

        program.network = Network::Allow;
        assert!(!parsed(&launcher.command(&program)).deny_network);
    }

    #[test]
    fn reading_program_writes_nothing() {
        let reading = Reading {
            this: Path::new("runner"),
            memory: 5 << 20,
            digest: [171; 32],
            executable: Path::new("/package/renderer"),
            folder: Path::new("/own"),
            reads: Path::new("/trees"),
            arguments: &["--code=/a b".into(), "run".into()],
            environment: &[("A".into(), "b".into())],
        };
        let args = ProviderArgs::parse_from(reading.command().as_std().get_args());
        assert_eq!((args.read, args.write), (vec![PathBuf::from("/trees")], Vec::new()));
        assert_eq!((args.largest_file, args.deny_network, args.alone, args.memory), (0, true, true, 5 << 20));
        assert_eq!(args.argument, ["--code=/a b", "run"]);
    }

    #[test]
    fn digests_have_64_digits() {
        assert_eq!(digest(&"0f".repeat(32)), Ok([15; 32]));
        for text in ["", "0f", &"0g".repeat(32), &"é".repeat(32)] {
            assert!(digest(text).is_err(), "{text}");
        }
    }
}
