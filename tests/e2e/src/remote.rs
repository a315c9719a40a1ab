//! A remote of record for the control repository: a bare repository behind a Git server that asks for a password.

use std::fs;
use std::io::{Seek as _, Write as _};
use std::iter;
use std::ops::Deref;
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
            "--git-remote-pace-seconds=1".to_owned(),
            "--git-remote-patience-seconds=2".to_owned(),
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
        self.file_of("main", path)
    }

    fn file_of(&self, commit: &str, path: &str) -> Option<String> {
        let output = self.git(&["show", &format!("{commit}:{path}")]).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// The last commit on main that changed a file.
    pub fn last_commit_of(&self, path: &str) -> String {
        run(&mut self.git(&["log", "-1", "--format=%H", "main", "--", path]))
    }

    /// Changes a file as somebody's push does: by a commit on top of main, which is refused where main has moved on.
    ///
    /// Without a clone, which takes longer the more there is: while writes keep coming, main moves every few seconds, and
    /// whoever takes longer from the look at it to the push comes too late.
    pub fn push(&self, path: &str, change: impl Fn(Option<String>) -> String) {
        eventually("a push", PATIENCE, || {
            let main = run(&mut self.git(&["rev-parse", "main"]));
            let main = main.trim();
            let content = change(self.file_of(main, path));
            let message = format!("Change {path}");
            let mut commit = tempfile::tempfile().unwrap();
            write!(
                commit,
                "commit refs/heads/main\ncommitter Ann <ann@localhost> now\ndata {}\n{message}\n\nfrom {main}\n\
                 M 100644 inline {path}\ndata {}\n{content}\n",
                message.len() + 1,
                content.len()
            )
            .unwrap();
            commit.rewind().unwrap();
            let mut import = self.git(&["fast-import", "--quiet", "--date-format=now"]);
            let output = import.stdin(commit).output().unwrap();
            match output.status.code() {
                Some(0) => Some(()),
                // Main was moved. Whatever else may be wrong breaks it off with another code.
                Some(1) => None,
                _ => panic!("{import:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)),
            }
        });
    }

    fn git(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("git");
        command.arg("--git-dir").arg(self.repository()).args(arguments);
        command
    }
}
