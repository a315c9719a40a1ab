//! A stoa-apiserver of the test bed as a child of the test, which hears how it ends.

use std::fs::{self, File};
use std::process::{self, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::command::{eventually, run};
use crate::server::{Cluster, PATIENCE, Server as _};

/// The stoa-apiserver that is registered. It ends with the value.
#[derive(Debug)]
pub struct Child(process::Child);

impl Cluster {
    /// Ends the stoa-apiserver that is registered as a crash does, and starts it again as a child of this process, with the
    /// same arguments and on the same data; returns once it serves behind kube-apiserver.
    pub fn take_over_stoa(&self) -> Child {
        let arguments = fs::read(format!("/proc/{}/cmdline", self.env("STOA_PID"))).unwrap();
        let arguments = String::from_utf8(arguments).unwrap();
        let mut arguments = arguments.split_terminator('\0');
        let log = File::options().append(true).open(self.dir().join("logs/stoa-apiserver.log")).unwrap();
        self.kill("stoa");
        let mut command = Command::new(arguments.next().unwrap());
        command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = Child(command.spawn().unwrap());
        let serves = || self.kubectl().succeeds(&["get", "organizations.config.stoa.dev"]).then_some(());
        eventually("the server that was taken over serves", PATIENCE, serves);
        child
    }
}

impl Child {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// How much memory it takes now, in bytes.
    pub fn memory(&self) -> u64 {
        memory_of(self.id())
    }

    /// Asks it to end, as whoever replaces a pod does.
    pub fn terminate(&self) {
        run(Command::new("kill").args(["-s", "TERM", &self.id().to_string()]));
    }

    /// How it ended, if it has.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().unwrap()
    }

    /// Waits until it has ended.
    ///
    /// # Panics
    ///
    /// When it has not within `patience`.
    pub fn ended(&mut self, patience: Duration) -> ExitStatus {
        eventually("the server ends", patience, || self.has_ended())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How much memory a process takes now, in bytes.
pub(crate) fn memory_of(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let kibibytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    kibibytes.unwrap().parse::<u64>().unwrap() << 10
}
