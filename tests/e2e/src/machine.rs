//! What machines do to the processes on them: disks get full, and clocks are set.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;

use stoa_git::testing::skipped;
use tempfile::TempDir;

use crate::command::run;

/// A small file system. It goes with the value, before which whatever is on it has to end.
#[derive(Debug)]
pub struct Disk(TempDir);

impl Disk {
    /// Makes one of so many MiB; nothing where that is not allowed, which it is to root alone.
    pub fn mount(mib: u32) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={mib}m");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder.path()).output();
        if mount.is_ok_and(|made| made.status.success()) {
            return Some(Self(folder));
        }
        skipped("what is about a full disk: the mount of a small file system to fill takes root");
        None
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Leaves no room on it.
    pub fn fill(&self) {
        let mut filler = File::create(self.path().join("filler")).unwrap();
        let page = [0; 4096];
        let full = loop {
            if let Err(error) = filler.write_all(&page) {
                break error;
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::StorageFull, "{full}");
    }

    /// Leaves room again.
    pub fn clear(&self) {
        fs::remove_file(self.path().join("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The runner of a server that was killed ends a moment later. A mount that stays is worth a word and no more.
        if !Command::new("umount").arg("--lazy").arg(self.path()).status().is_ok_and(|status| status.success()) {
            eprintln!("{} stays mounted", self.path().display());
        }
    }
}

/// A clock that processes are given in place of the machine's. How much time passes is not its affair.
#[derive(Debug)]
pub struct Clock {
    folder: TempDir,
    variables: [(&'static str, String); 2],
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// Makes one that says the time.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        fs::write(file("clock.c"), include_str!("clock.c")).unwrap();
        run(Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(file("clock.so")).arg(file("clock.c")));
        let text = |name: &str| file(name).into_os_string().into_string().unwrap();
        let variables = [("LD_PRELOAD", text("clock.so")), ("STOA_TEST_CLOCK", text("offset"))];
        let clock = Self { folder, variables };
        clock.set(0);
        clock
    }

    /// Sets it to so many seconds after the machine's, or before.
    pub fn set(&self, seconds: i64) {
        // Whoever reads it sees the one or the other.
        let new = self.folder.path().join("new");
        fs::write(&new, seconds.to_string()).unwrap();
        fs::rename(new, self.folder.path().join("offset")).unwrap();
    }

    /// What gives it to a process and those that it starts.
    pub fn variables(&self) -> Vec<(&str, &str)> {
        self.variables.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }
}
