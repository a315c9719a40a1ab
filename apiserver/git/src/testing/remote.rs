//! A remote of record for tests: a bare repository behind a Git server with a password, and the credentials for it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use super::GitServer;

/// The repository, its server and the folder with the credentials for that.
#[derive(Debug)]
pub struct ControlRemote {
    folder: TempDir,
    /// The server, which may misbehave.
    pub server: GitServer,
}

impl ControlRemote {
    /// What opens the server.
    pub const TOKEN: &str = "a-token-that-opens-it";

    /// Makes an empty one. With a certificate and its key, PEM, the server speaks TLS.
    pub async fn start(tls: Option<(&str, &str)>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        git(&["init", "--quiet", "--bare", "--initial-branch=main", "control.git"], folder.path());
        let server = GitServer::start(folder.path(), Self::TOKEN, tls).await;
        let remote = Self { folder, server };
        remote.show_token(Self::TOKEN);
        remote
    }

    /// Another server in front of the same repository, for tests that have to know who asked.
    pub async fn another_server(&self) -> GitServer {
        GitServer::start(self.folder.path(), Self::TOKEN, None).await
    }

    /// The repository behind the server.
    pub fn repository(&self) -> PathBuf {
        self.folder.path().join("control.git")
    }

    /// Where it is by `http` or `https`.
    pub fn url(&self, scheme: &str) -> String {
        Self::url_at(&self.server, scheme)
    }

    /// Where a server of its folder has it.
    pub fn url_at(server: &GitServer, scheme: &str) -> String {
        server.url(scheme, "control.git")
    }

    /// The folder with the credentials.
    pub fn credentials(&self) -> PathBuf {
        self.folder.path().join("credentials")
    }

    /// From now on this token is among the credentials.
    pub fn show_token(&self, token: &str) {
        fs::create_dir_all(self.credentials()).unwrap();
        fs::write(self.credentials().join("username"), "bot\n").unwrap();
        fs::write(self.credentials().join("token"), format!("{token}\n")).unwrap();
    }
}

/// How often each version is in a commit on main of a repository.
pub fn committed(repository: &Path) -> BTreeMap<u64, usize> {
    let format = "--format=%(trailers:key=Resource-Version,valueonly,separator=)";
    let mut versions = BTreeMap::new();
    for version in git(&["log", format, "main"], repository).lines().filter_map(|line| line.trim().parse().ok()) {
        *versions.entry(version).or_default() += 1;
    }
    versions
}

fn git(arguments: &[&str], folder: &Path) -> String {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
