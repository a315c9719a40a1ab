//! A remote of record over SSH, behind OpenSSH's own server.

#![expect(clippy::unwrap_used, reason = "this is a test, helpers and all")]

use std::{fs, time::Duration};

use stoa_control_repo::RemoteOptions;
use stoa_git::testing::SshServer;

use crate::{
    control_remote::{Remote, away},
    support::{Bench, put},
};

/// A remote and its server; nothing where there can be no server.
struct SshRemote {
    remote: Remote,
    server: SshServer,
}

impl SshRemote {
    /// The key that gets in and what is known of the server are among the credentials, and nothing else is.
    async fn start() -> Option<Self> {
        let server = SshServer::start().await?;
        let remote = Remote::start().await;
        fs::remove_dir_all(remote.credentials()).unwrap();
        fs::create_dir(remote.credentials()).unwrap();
        let remote = Self { remote, server };
        remote.show("ssh-privatekey", &remote.server.private_key());
        remote.show("known_hosts", &remote.server.known_hosts());
        Some(remote)
    }

    /// From now on this is among the credentials.
    fn show(&self, key: &str, value: &str) {
        fs::write(self.remote.credentials().join(key), value).unwrap();
    }

    /// For whoever gets in, or `""` for whom the credentials name.
    fn options(&self, user: &str) -> RemoteOptions {
        let (poll, longest_retry) = (Duration::from_millis(200), Duration::from_millis(400));
        let url = self.server.url(user, &self.remote.repository());
        // A connection takes longer than one by HTTP.
        RemoteOptions { url, poll, longest_retry, ..self.remote.options() }
    }
}

/// Nothing of a key may be told.
#[track_caller]
fn check_told(told: &str, keys: &[&str]) {
    for line in keys.iter().flat_map(|key| key.lines()).filter(|line| !line.starts_with('-')) {
        assert!(!told.contains(line), "{line} in {told}");
    }
}

#[tokio::test]
async fn over_ssh_decisions_are_pushed_and_pushes_become_decisions() {
    let Some(remote) = SshRemote::start().await else { return };
    let user = SshServer::user();
    // Who is named by the URL or else by the credentials; over SSH it cannot be both.
    for (in_url, in_folder) in [(format!("{user}@"), "somebody-else"), (String::new(), user.as_str())] {
        remote.show("username", in_folder);
        let bench = Bench::new(Some(remote.options(&in_url))).run();
        let last = bench.write(put("web", "replicas: 1", "anna")).await;
        bench.projected(last).await;
        assert_eq!(remote.remote.show("things/web.yaml"), "replicas: 1");
        let clone = remote.remote.clone_repository();
        clone.write("things/web.yaml", "replicas: 2 # by hand\n");
        clone.commit_and_push("scale out");
        bench.ingested_all(&clone).await;
        assert_eq!(bench.value("web").await.as_deref(), Some("replicas: 2"));
        let last = bench.write(put("db", "size: 1", "anna")).await;
        bench.projected(last).await;
        assert!(remote.remote.versions().values().all(|count| *count == 1));
        assert_eq!(remote.remote.history().last(), Some(&last.0));
        // Another machine fetches it all.
        let bench = bench.stop().await.elsewhere().run();
        let last = bench.write(put("db", "size: 2", "anna")).await;
        bench.projected(last).await;
        assert_eq!(remote.remote.show("things/db.yaml"), "size: 2");
        remote.remote.git(&["fsck", "--strict", "--full"]);
        bench.stop().await;
        for name in remote.remote.git(&["for-each-ref", "--format=%(refname)"]).lines() {
            remote.remote.git(&["update-ref", "-d", name]);
        }
    }
    assert!(remote.server.log().contains("Accepted publickey"));
}

#[tokio::test]
async fn ssh_client_requires_known_host_key() {
    let Some(remote) = SshRemote::start().await else { return };
    let (_, of_another) = remote.server.other_key();
    remote.show("known_hosts", &of_another);
    let options = remote.options(&format!("{}@", SshServer::user()));
    let bench = Bench::new(Some(options.clone())).run();
    let last = bench.write(put("web", "replicas: 1", "anna")).await;
    let error = away(&bench, "RemoteUnauthorized").await;
    assert!(error.contains("is not who it should be") && error.contains("known_hosts has another key"), "{error}");
    assert!(error.contains("ssh://127.0.0.1:"), "{error}");
    check_told(&error, &[&remote.server.private_key()]);
    // The key is the server's, and another server's.
    remote.show("known_hosts", &remote.server.known_hosts().replace("[127.0.0.1]", "[git.example.com]"));
    let bench = bench.stop().await.run();
    away(&bench, "RemoteUnauthorized").await;
    // Without the file it is the process' own user who knows hosts, and does not know this one.
    fs::remove_file(remote.remote.credentials().join("known_hosts")).unwrap();
    let bench = bench.stop().await.run();
    away(&bench, "RemoteUnauthorized").await;
    assert!(!remote.server.log().contains("publickey"), "it was shown a key: {}", remote.server.log());
    remote.show("known_hosts", &remote.server.known_hosts());
    bench.projected(last).await;
    // One that is away is no stranger.
    drop(remote.server);
    let error = away(&bench, "RemoteUnavailable").await;
    assert!(error.contains("cannot be reached"), "{error}");
}

#[tokio::test]
async fn ssh_error_reports_bad_key_without_contents() {
    let Some(remote) = SshRemote::start().await else { return };
    let (other, _) = remote.server.other_key();
    let (locked, passphrase) = (remote.server.private_key_with("open-sesame"), "open-sesame");
    let garbage = "-----BEGIN OPENSSH PRIVATE KEY-----\nbm90IGEga2V5\n-----END OPENSSH PRIVATE KEY-----\n";
    let mut bench = Bench::new(Some(remote.options(&format!("{}@", SshServer::user()))));
    let last = bench.write(put("web", "replicas: 1", "anna")).await;
    for key in [other.as_str(), garbage, &locked, ""] {
        remote.show("ssh-privatekey", key);
        bench = bench.run();
        let error = away(&bench, "RemoteUnauthorized").await;
        assert!(error.contains("refuses the credentials"), "{error}");
        check_told(&error, &[&other, garbage, &locked, passphrase]);
        bench = bench.stop().await;
    }
    remote.show("ssh-privatekey", &locked);
    remote.show("ssh-passphrase", passphrase);
    let bench = bench.run();
    bench.projected(last).await;
    assert_eq!(remote.remote.show("things/web.yaml"), "replicas: 1");
    check_told(&fs::read_to_string(bench.repository().join("config")).unwrap(), &[&locked, passphrase]);
}
