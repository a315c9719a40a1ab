//! The command of a provider.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use tokio::process::Command;

/// Makes the command that runs a provider. A sandbox is a launcher whose command enters the sandbox first.
///
/// The environment, the streams and the folder of the socket are set afterwards.
pub trait Launcher: fmt::Debug + Send + Sync {
    /// The command.
    fn command(&self, executable: &Path) -> Command;
}

/// Runs the executable itself. The provider survives a parent that is killed.
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectLauncher;

impl Launcher for DirectLauncher {
    fn command(&self, executable: &Path) -> Command {
        Command::new(executable)
    }
}

/// Runs the executable by a program that calls [`guard::run`](super::guard::run), so that the provider ends with its
/// parent.
#[derive(Clone, Debug)]
pub struct GuardedLauncher {
    /// The program.
    pub program: PathBuf,
    /// Arguments before those of the guard, such as a subcommand.
    pub arguments: Vec<OsString>,
}

impl Launcher for GuardedLauncher {
    fn command(&self, executable: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg(std::process::id().to_string()).arg(executable);
        command
    }
}
