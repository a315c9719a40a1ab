//! Locks that were left where a process was killed.

#![expect(clippy::unwrap_used, reason = "this is a test, helpers and all")]

use std::{
    fs::{self, File},
    path::Path,
    time::{Duration, Instant},
};

use crate::{
    control_remote::{Remote, away},
    support::{Bench, RETRY, put},
};

const MAIN: &str = "refs/heads/main";
/// So many attempts are looked at; between two of them is the time of [`RETRY`].
const ATTEMPTS: u64 = 10;

fn leave(repository: &Path, name: &str, age: Duration) -> std::path::PathBuf {
    let path = repository.join(format!("{name}.lock"));
    let file = File::create(&path).unwrap();
    file.set_modified(file.metadata().unwrap().modified().unwrap() - age).unwrap();
    path
}

#[tokio::test]
async fn projection_removes_stale_repository_locks() {
    let remote = Remote::start().await;
    for options in [None, Some(remote.options())] {
        let bench = Bench::new(options).run();
        let last = bench.write(put("web", "replicas: 1", "anna")).await;
        bench.projected(last).await;
        let bench = bench.stop().await;
        let refs = bench.git(&["for-each-ref", "--format=%(refname)", "refs/stoa"]);
        let ours: Vec<&str> = refs.lines().chain(["config", "libgit2.config"]).collect();
        assert!(ours.len() > 4, "{ours:?}");
        for name in ours {
            leave(&bench.repository(), name, Duration::ZERO);
        }
        for name in [MAIN, "packed-refs", "HEAD"] {
            leave(&bench.repository(), name, Duration::from_secs(120));
        }
        let bench = bench.run();
        let last = bench.write(put("web", "replicas: 2", "anna")).await;
        bench.projected(last).await;
        assert_eq!(bench.git(&["show", "main:things/web.yaml"]), "replicas: 2");
    }
}

#[tokio::test]
async fn status_reports_fresh_main_lock_until_removed() {
    let bench = Bench::start().await;
    let lock = leave(&bench.repository(), MAIN, Duration::ZERO);
    let last = bench.write(put("web", "replicas: 1", "anna")).await;
    bench.wait(|status| status.error.as_ref().is_some_and(|error| error.contains("locked"))).await;
    // It neither spins nor fills the log meanwhile.
    let (began, before, restarts) = (Instant::now(), bench.head().await, bench.status().restarts);
    bench.wait(|status| status.restarts >= restarts + ATTEMPTS).await;
    assert!(began.elapsed() >= RETRY * 9, "{ATTEMPTS} attempts took {:?}", began.elapsed());
    let (written, attempts) = (bench.head().await.0 - before.0, bench.status().restarts - restarts);
    assert!(written <= attempts + 1, "{written} records of {attempts} attempts");
    assert!(bench.status().error.is_some());
    fs::remove_file(lock).unwrap();
    bench.projected(last).await;
    assert_eq!(bench.subjects(), ["start the control repository", "create thing web"]);
}

#[tokio::test]
async fn status_reports_stale_lock_of_local_remote() {
    let remote = Remote::start().await;
    let bench = Bench::new(Some(remote.by_path())).run();
    let first = bench.write(put("web", "replicas: 1", "anna")).await;
    bench.projected(first).await;
    let lock = leave(&remote.repository(), MAIN, Duration::from_secs(120));
    let last = bench.write(put("web", "replicas: 2", "anna")).await;
    let error = away(&bench, "RemoteUnavailable").await;
    assert!(error.contains("control.git is locked: "), "{error}");
    fs::remove_file(lock).unwrap();
    bench.projected(last).await;
    assert_eq!(remote.show("things/web.yaml"), "replicas: 2");
}
