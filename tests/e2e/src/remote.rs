//! A remote of record for the control repository: a bare repository behind a Git server that asks for a password.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use stoa_git::testing::GitServer;
use tempfile::TempDir;

use crate::command::{eventually, run};

/// What opens the server.
pub const TOKEN: &str = "a-token-that-opens-it";
const PATIENCE: Duration = Duration::from_secs(60);

/// The repository and its server.
#[derive(Debug)]
pub struct ControlRemote {
    folder: TempDir,
    /// The server, which may misbehave.
    pub server: GitServer,
}

impl ControlRemote {
    /// Makes an empty one, and the folder with the credentials for it.
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let repository = folder.path().join("control.git");
        run(Command::new("git").args(["init", "--quiet", "--bare", "--initial-branch=main"]).arg(repository));
        let server = GitServer::start(folder.path(), TOKEN, None).await;
        let remote = Self { folder, server };
        remote.show_token(TOKEN);
        remote
    }

    /// What tells a stoa-apiserver of it.
    pub fn arguments(&self) -> Vec<String> {
        vec![
            format!("--git-remote={}", self.server.url("http", "control.git")),
            format!("--git-remote-credentials-dir={}", self.credentials().display()),
            "--git-remote-poll-seconds=1".to_owned(),
        ]
    }

    fn credentials(&self) -> PathBuf {
        self.folder.path().join("credentials")
    }

    /// From now on Stoa shows this token.
    pub fn show_token(&self, token: &str) {
        fs::create_dir_all(self.credentials()).unwrap();
        fs::write(self.credentials().join("username"), "bot\n").unwrap();
        fs::write(self.credentials().join("token"), format!("{token}\n")).unwrap();
    }

    /// The repository behind the server.
    pub fn repository(&self) -> PathBuf {
        self.folder.path().join("control.git")
    }

    /// A file on main; nothing when it is not there.
    pub fn file(&self, path: &str) -> Option<String> {
        let mut show = Command::new("git");
        show.arg("--git-dir").arg(self.repository()).args(["show", &format!("main:{path}")]);
        let output = show.output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
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

/// How often each version is in a commit on main of a repository.
pub fn committed(repository: &Path) -> BTreeMap<u64, usize> {
    let format = "--format=%(trailers:key=Resource-Version,valueonly,separator=)";
    let text = run(Command::new("git").arg("--git-dir").arg(repository).args(["log", format, "main"]));
    let mut versions = BTreeMap::new();
    for version in text.lines().filter_map(|line| line.trim().parse().ok()) {
        *versions.entry(version).or_default() += 1;
    }
    versions
}
