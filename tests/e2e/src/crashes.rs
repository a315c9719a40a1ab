//! Processes that end at a boundary of a run (`stoa_failpoint`), as by a crash, and come back.

use std::path::Path;
use std::time::Duration;

use crate::command::eventually;
use crate::fixture::Organization;
use crate::server::{Cluster, Server, Standalone};

/// How long a process may take to get to a boundary, and a run to end after the restart.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// A server that can be made to crash at a boundary.
pub trait Armed: Server {
    /// Starts both processes anew, one of which is to end at a boundary and make this file.
    fn arm(&mut self, point: &str, file: &Path);

    /// Brings back what has ended.
    fn recover(&mut self, point: &str);
}

impl Armed for Standalone {
    fn arm(&mut self, point: &str, file: &Path) {
        self.kill();
        // A run that goes on from before may come to the boundary before the server is ready.
        let variable = (stoa_failpoint::VARIABLE, &*format!("{point}={}", file.display()));
        self.restart_unless(&[variable], || file.exists());
    }

    fn recover(&mut self, point: &str) {
        // It starts another runner by itself.
        if stoa_failpoint::SERVER.contains(&point) {
            self.kill();
            self.restart();
        }
    }
}

impl Armed for Cluster {
    fn arm(&mut self, point: &str, file: &Path) {
        self.kill("stoa");
        self.kill("runner");
        self.restart_with(&[(stoa_failpoint::VARIABLE, &format!("{point}={}", file.display()))]);
    }

    fn recover(&mut self, point: &str) {
        // Its file is there a moment before it has ended, and what still runs is not started anew.
        self.kill_if_running(if stoa_failpoint::SERVER.contains(&point) { "stoa" } else { "runner" });
        self.restart();
    }
}

/// Starts a run, has a process crash at a boundary of it, and brings that back; returns the run's name. Until the crash
/// `meanwhile` is done about the run again and again.
///
/// # Panics
///
/// When no process comes to the boundary.
pub fn crash_in(
    server: &mut dyn Armed,
    organization: &Organization,
    stack: &str,
    point: &str,
    start: &dyn Fn() -> Option<String>,
    meanwhile: &dyn Fn(&str),
) -> String {
    let known = organization.try_runs(stack).unwrap();
    let begun = || organization.try_runs(stack).map(|runs| runs.into_iter().find(|run| !known.contains(run)));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("reached");
    server.arm(point, &file);
    let mut run = start();
    // The crash may come before the answer; and a server that has just come back may have refused what begins the run.
    let find = || begun()?.or_else(start);
    eventually(&format!("{point} is reached by {stack}"), PATIENCE, || {
        if !file.exists() && run.is_none() {
            run = find();
        }
        if let Some(run) = &run {
            meanwhile(run);
        }
        file.exists().then_some(())
    });
    server.recover(point);
    // A run before it, which is still to be merged, may have come to the boundary first.
    eventually(&format!("a run of {stack} is begun"), PATIENCE, || run.clone().or_else(find))
}
