//! A remote of record and what is in it.

#![expect(clippy::unwrap_used, reason = "this is part of tests, where a panic is how they fail")]

use std::{collections::BTreeMap, ops::Deref, os::unix::fs::PermissionsExt as _, time::Duration};

use stoa_control_repo::RemoteOptions;
use stoa_git::testing::{ControlRemote, GitServer, committed};

use crate::support::{Bench, Clone, git};

/// A bare repository, and a server in front of it.
pub(crate) struct Remote(ControlRemote);

impl Deref for Remote {
    type Target = ControlRemote;

    fn deref(&self) -> &ControlRemote {
        &self.0
    }
}

impl Remote {
    pub(crate) const TOKEN: &str = ControlRemote::TOKEN;

    pub(crate) async fn start() -> Self {
        Self(ControlRemote::start(None).await)
    }

    /// With a certificate and its key.
    pub(crate) async fn start_with(tls: Option<(&str, &str)>) -> Self {
        Self(ControlRemote::start(tls).await)
    }

    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        git(&self.repository(), arguments)
    }

    pub(crate) fn options(&self) -> RemoteOptions {
        RemoteOptions {
            credentials: Some(self.credentials()),
            poll: Duration::from_millis(30),
            longest_retry: Duration::from_millis(100),
            pace: Duration::from_millis(5),
            ..RemoteOptions::new(self.url("http"))
        }
    }

    /// By another server in front of it.
    pub(crate) fn options_at(&self, server: &GitServer) -> RemoteOptions {
        RemoteOptions { url: ControlRemote::url_at(server, "http"), ..self.options() }
    }

    /// By its path on this machine.
    pub(crate) fn by_path(&self) -> RemoteOptions {
        RemoteOptions {
            credentials: None,
            ..RemoteOptions { url: format!("file://{}", self.repository().display()), ..self.options() }
        }
    }

    /// From now on the server refuses to move a ref.
    pub(crate) fn refuse(&self, name: &str) {
        self.when_moved(name, "echo not now; exit 1");
    }

    /// From now on the server asks a script whether a ref is to be moved: by its name, from where and where to.
    pub(crate) fn when_moved(&self, name: &str, script: &str) {
        let hook = self.repository().join("hooks/update");
        std::fs::write(&hook, format!("#!/bin/sh\ncase $1 in {name}) {script};; esac\n")).unwrap();
        std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(crate) fn refuse_nothing(&self) {
        std::fs::remove_file(self.repository().join("hooks/update")).unwrap();
    }

    pub(crate) fn clone_repository(&self) -> Clone {
        Clone::of(&self.repository())
    }

    /// The subjects of all commits on main, oldest first.
    pub(crate) fn subjects(&self) -> Vec<String> {
        self.git(&["log", "--reverse", "--format=%s", "main"]).lines().map(str::to_owned).collect()
    }

    pub(crate) fn show(&self, path: &str) -> String {
        self.git(&["show", &format!("main:{path}")])
    }

    /// How often each version has a commit on main.
    pub(crate) fn versions(&self) -> BTreeMap<u64, usize> {
        committed(&self.repository())
    }

    /// The versions in the history at the remote.
    pub(crate) fn history(&self) -> Vec<u64> {
        let name = self.git(&["for-each-ref", "--format=%(refname)", "refs/stoa/history"]);
        assert_eq!(name.lines().count(), 1, "{name}");
        let mut versions = Vec::new();
        for commit in self.git(&["rev-list", &name]).lines() {
            let names = self.git(&["ls-tree", "-r", "-t", "--name-only", commit]);
            let leaf = |name: &&str| name.starts_with("at/") && name.split('/').count() == 9;
            let version = |name: &str| u64::from_str_radix(&name[3..].replace('/', ""), 16).unwrap();
            versions.extend(names.lines().filter(leaf).map(version));
        }
        versions.sort();
        versions.dedup();
        versions
    }
}

/// Waits for a problem with the remote; what is said of it.
pub(crate) async fn away(bench: &Bench, problem: &str) -> String {
    bench.wait(|status| status.remote_problem == Some(problem)).await;
    bench.status().error.unwrap_or_default()
}
