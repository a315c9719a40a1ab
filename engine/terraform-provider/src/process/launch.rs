//! The command of a provider.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use tokio::process::Command;

/// The network of a provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Network {
    /// All of it.
    Allow,
    /// None.
    #[default]
    Deny,
}

/// A provider to run.
#[derive(Clone, Copy)]
pub struct Program<'a> {
    /// The executable, in the folder of its package.
    pub executable: &'a Path,
    /// The SHA-256 of the executable, if it is known.
    pub digest: Option<&'a [u8; 32]>,
    /// All variables of its environment.
    pub environment: &'a [(OsString, OsString)],
    /// The folder of its own, with its socket.
    pub folder: &'a Path,
    /// Its network.
    pub network: Network,
}

/// The environment may contain secrets.
impl fmt::Debug for Program<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("executable", &self.executable).finish_non_exhaustive()
    }
}

/// Makes the command that runs a provider. A sandbox is a launcher whose command enters the sandbox first.
///
/// The streams are set afterwards.
pub trait Launcher: fmt::Debug + Send + Sync {
    /// The command, with the environment of the provider.
    fn command(&self, program: &Program<'_>) -> Command;

    /// Whether the command runs the executable only if it has its digest. Otherwise the pool compares the digest before each start.
    fn verifies(&self) -> bool {
        false
    }
}

/// Runs the executable itself, without a sandbox. The provider survives a parent that is killed.
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectLauncher;

impl Launcher for DirectLauncher {
    fn command(&self, program: &Program<'_>) -> Command {
        let mut command = Command::new(program.executable);
        command.env_clear().envs(program.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}
