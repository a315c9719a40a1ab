//! A process that ends with its parent.
//!
//! A provider notices neither the end of its parent nor that of its connections. The kernel can kill it then, which the
//! process itself has to request before it becomes the provider.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Pid, Signal};

/// Becomes a provider that ends with its parent. The arguments are the parent's process id, the executable, and its
/// arguments. Returns only if that fails, or if the parent has already ended.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> io::Error {
    let mut arguments = arguments.into_iter();
    let parent = arguments.next().and_then(|id| id.to_str()?.parse::<i32>().ok());
    let (Some(parent), Some(executable)) = (parent, arguments.next()) else {
        return io::Error::new(io::ErrorKind::InvalidInput, "a process id and an executable are required");
    };
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    // A parent that ended before the request is not noticed.
    if rustix::process::getppid().map(Pid::as_raw_pid) != Some(parent) {
        return io::Error::other("the parent has ended");
    }
    Command::new(executable).args(arguments).exec()
}
