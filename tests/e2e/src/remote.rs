//! A remote of record for the control repository: a bare repository behind a Git server that asks for a password.

use std::fs;
use std::iter;
use std::ops::Deref;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use stoa_git::testing::SshServer;
pub use stoa_git::testing::committed;

use crate::command::{eventually, run};

const PATIENCE: Duration = Duration::from_secs(60);

/// The repository and its server.
#[derive(Debug)]
pub struct ControlRemote(stoa_git::testing::ControlRemote);

impl Deref for ControlRemote {
    type Target = stoa_git::testing::ControlRemote;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl ControlRemote {
    /// What opens the server.
    pub const TOKEN: &str = stoa_git::testing::ControlRemote::TOKEN;

    /// Makes an empty one, and the folder with the credentials for it.
    pub async fn start() -> Self {
        Self(stoa_git::testing::ControlRemote::start(None).await)
    }

    /// What tells a stoa-apiserver of it.
    pub fn arguments(&self) -> Vec<String> {
        vec![
            format!("--git-remote={}", self.url("http")),
            format!("--git-remote-credentials-dir={}", self.credentials().display()),
            "--git-remote-poll-seconds=1".to_owned(),
        ]
    }

    /// The same over SSH, with credentials that get in there alone.
    pub fn arguments_over(&self, server: &SshServer) -> Vec<String> {
        fs::remove_dir_all(self.credentials()).unwrap();
        fs::create_dir(self.credentials()).unwrap();
        for (name, value) in [("ssh-privatekey", server.private_key()), ("known_hosts", server.known_hosts())] {
            fs::write(self.credentials().join(name), value).unwrap();
        }
        let url = server.url(&format!("{}@", SshServer::user()), &self.repository());
        let others = self.arguments().into_iter().skip(1);
        iter::once(format!("--git-remote={url}")).chain(others).collect()
    }

    /// A file on main; nothing when it is not there.
    pub fn file(&self, path: &str) -> Option<String> {
        let mut show = Command::new("git");
        show.arg("--git-dir").arg(self.repository()).args(["show", &format!("main:{path}")]);
        let output = show.output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// The last commit on main that changed a file.
    pub fn last_commit_of(&self, path: &str) -> String {
        let mut log = Command::new("git");
        run(log.arg("--git-dir").arg(self.repository()).args(["log", "-1", "--format=%H", "main", "--", path]))
    }

    /// Changes a file as somebody with a clone does.
    pub fn push(&self, path: &str, change: impl Fn(Option<String>) -> String) {
        eventually("a push", PATIENCE, || {
            let clone = tempfile::tempdir().unwrap();
            let git = |arguments: &[&str]| {
                let identity = ["-c", "user.name=Ann", "-c", "user.email=ann@localhost", "-c", "commit.gpgsign=false"];
                let mut command = Command::new("git");
                command.arg("-C").arg(clone.path()).args(identity).args(arguments);
                command
            };
            run(Command::new("git").args(["clone", "--quiet"]).arg(self.repository()).arg(clone.path()));
            let file = clone.path().join(path);
            let before = fs::read_to_string(&file).ok();
            fs::create_dir_all(file.parent().unwrap_or(Path::new("/"))).unwrap();
            fs::write(&file, change(before)).unwrap();
            run(&mut git(&["add", "--all"]));
            run(&mut git(&["commit", "--quiet", "--message", &format!("Change {path}")]));
            git(&["push", "--quiet"]).output().unwrap().status.success().then_some(())
        });
    }
}
