//! A remote of record: the projection pushes to it, takes what people push there, and loses and doubles nothing whatever
//! becomes of the remote, of the machine or of a push.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use stoa_control_repo::RemoteOptions;
use stoa_git::testing::Behaviour;
use stoa_machinery::log::{Change, Version};
use stoa_pki::{CertificateAuthority, CertificateRequest};

use crate::{
    control_remote::{Remote, away},
    support::{Bench, put, remove},
};

#[tokio::test]
async fn many_writes_are_one_push() {
    let remote = Remote::start().await;
    let bench = Bench::new(Some(remote.options()));
    let mut last = Version(0);
    for n in 0..300 {
        last = bench.write(put(&format!("t{}", n % 9), &format!("n: {n}"), "anna")).await;
    }
    // What was there before it began is one commit.
    let bench = bench.run();
    bench.projected(last).await;
    let before = bench.status().remote_pushes;
    let bench = bench.stop().await;
    for n in 0..300 {
        last = bench.write(put(&format!("t{}", n % 9), &format!("m: {n}"), "anna")).await;
    }
    let bench = bench.run();
    bench.projected(last).await;
    assert!(bench.status().remote_pushes <= 2 && before <= 4, "{before}, {:?}", bench.status());
    assert_eq!(remote.subjects().iter().filter(|subject| subject.contains("thing t")).count(), 600);
    assert_eq!(remote.show("things/t2.yaml"), "m: 299");
    assert_eq!(remote.history().last(), Some(&last.0));
    remote.git(&["fsck", "--strict", "--full"]);
    assert_eq!(bench.git(&["rev-parse", "main"]), remote.git(&["rev-parse", "main"]));
}

#[tokio::test]
async fn projection_applies_remote_pushes_and_reverts_none() {
    let remote = Remote::start().await;
    for options in [remote.options(), remote.by_path()] {
        let bench = Bench::new(Some(options)).run();
        let last = bench.write(put("web", "replicas: 1", "anna")).await;
        bench.projected(last).await;
        let clone = remote.clone_repository();
        let mut last = Version(0);
        for round in 0..8 {
            for n in 0..10 {
                last = bench.write(put(&format!("api{n}"), &format!("round: {round}"), "anna")).await;
            }
            clone.write(&format!("things/pushed{round}.yaml"), &format!("# ours\nround: {round}\n"));
            clone.commit_and_push_rebasing(&format!("push {round}"));
        }
        bench.ingested_all(&clone).await;
        bench.projected(last).await;
        for round in 0..8 {
            assert_eq!(bench.value(&format!("pushed{round}")).await, Some(format!("round: {round}")));
            assert_eq!(remote.show(&format!("things/pushed{round}.yaml")), format!("# ours\nround: {round}"));
        }
        let subjects = remote.subjects();
        assert_eq!(subjects.iter().filter(|subject| subject.starts_with("push ")).count(), 8);
        assert_eq!(subjects.iter().filter(|subject| subject.contains("thing api")).count(), 80);
        assert!(remote.versions().values().all(|count| *count == 1));
        remote.git(&["fsck", "--strict", "--full"]);
        // What came since the last push would conflict with its removal.
        clone.git(&["pull", "-q", "--rebase"]);
        clone.git(&["rm", "-rq", "things"]);
        clone.commit_and_push_rebasing("all gone");
        bench.ingested_all(&clone).await;
        assert_eq!(bench.value("web").await, None);
        bench.stop().await;
        // The next log begins with an empty remote again.
        remote.git(&["update-ref", "-d", "refs/heads/main"]);
        for name in remote.git(&["for-each-ref", "--format=%(refname)", "refs/stoa"]).lines() {
            remote.git(&["update-ref", "-d", name]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slow_push_succeeds_during_continuous_writes() {
    let remote = Remote::start().await;
    let (pace, poll) = (Duration::from_secs(3), Duration::from_millis(300));
    let bench = Bench::new(Some(RemoteOptions { pace, poll, ..remote.options() })).run();
    let first = bench.write(put("web", "n: 0", "anna")).await;
    bench.projected(first).await;
    let (began, before) = (Instant::now(), bench.status().remote_pushes);
    let log = bench.log();
    let writer = tokio::spawn(async move {
        for n in 0.. {
            log.append(put("web", &format!("n: {n}"), "anna")).await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let clone = remote.clone_repository();
    clone.write("things/db.yaml", "size: 1\n");
    clone.commit_and_push_after("by hand", Duration::from_secs(1), 30);
    let (took, pushes) = (began.elapsed(), bench.status().remote_pushes - before);
    writer.abort();
    writer.await.unwrap_err();
    // Those that have nothing but the history count, too: one for each that people made.
    assert!(u128::from(pushes) <= took.as_millis() / pace.as_millis() + 3, "{pushes} in {took:?}");
    bench.ingested_all(&clone).await;
    let last = bench.write(put("web", "n: last", "anna")).await;
    bench.projected(last).await;
    assert_eq!((remote.show("things/web.yaml"), remote.show("things/db.yaml")), ("n: last".into(), "size: 1".into()));
    assert!(remote.versions().values().all(|count| *count == 1));
}

#[tokio::test]
async fn pushes_apply_while_writes_await_quiet_main() {
    let remote = Remote::start().await;
    let pace = Duration::from_secs(3600);
    let bench = Bench::new(Some(RemoteOptions { pace, ..remote.options() })).run();
    // It was moved by now, to where it begins.
    bench.wait(|status| status.commit.is_some()).await;
    let last = bench.write(put("web", "replicas: 1", "anna")).await;
    let clone = remote.clone_repository();
    clone.write("things/db.yaml", "size: 1\n");
    clone.commit_and_push("by hand");
    bench.ingested_all(&clone).await;
    assert_eq!(bench.value("db").await.as_deref(), Some("size: 1"));
    assert!(remote.versions().is_empty(), "main has not rested");
    // Whoever has not moved it yet waits for nothing.
    let bench = bench.stop().await.run();
    bench.projected(last).await;
    assert!(remote.versions().contains_key(&last.0));
}

#[tokio::test]
async fn projection_catches_up_after_remote_outage() {
    let remote = Remote::start().await;
    let bench = Bench::new(Some(remote.options())).run();
    let first = bench.write(put("web", "replicas: 1", "anna")).await;
    bench.projected(first).await;
    remote.server.behave(Behaviour::Away);
    let mut last = Version(0);
    for n in 0..50 {
        last = bench.write(put("web", &format!("n: {n}"), "anna")).await;
    }
    let error = away(&bench, "RemoteUnavailable").await;
    assert!(error.contains("503"), "{error}");
    bench.wait(|status| status.backlog >= 50).await;
    assert!(bench.status().safe < last, "{:?}", bench.status());
    // Nobody hammers it: the waits are 100 ms at most here, and take a request each.
    let before = remote.server.requests();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(remote.server.requests() - before < 40);
    assert_eq!(bench.value("web").await.as_deref(), Some("n: 49"));
    remote.server.behave(Behaviour::Normal);
    bench.projected(last).await;
    assert_eq!(remote.subjects().len(), 52);
    assert_eq!((bench.status().error, bench.status().remote_problem), (None, None));
    assert!(bench.status().safe >= last);
}

#[tokio::test]
async fn a_token_is_read_again_and_never_told() {
    let remote = Remote::start().await;
    remote.show_token("a wrong token");
    let bench = Bench::new(Some(remote.options())).run();
    let last = bench.write(put("web", "replicas: 1", "anna")).await;
    let error = away(&bench, "RemoteUnauthorized").await;
    assert!(!error.contains("wrong token") && !error.contains(Remote::TOKEN), "{error}");
    remote.show_token(Remote::TOKEN);
    bench.projected(last).await;
    // A new one, as when they are rotated.
    remote.server.set_password("another");
    let last = bench.write(put("web", "replicas: 2", "anna")).await;
    away(&bench, "RemoteUnauthorized").await;
    remote.show_token("another");
    bench.projected(last).await;
    assert_eq!(remote.subjects().len(), 3);
    let config = std::fs::read_to_string(bench.repository().join("config")).unwrap();
    assert!(!config.contains("another") && !config.contains(Remote::TOKEN), "{config}");
}

#[tokio::test]
async fn the_server_has_to_be_who_it_says() {
    let authority = CertificateAuthority::new("git test").unwrap();
    let issued = authority.issue(&CertificateRequest::server("git").loopback()).unwrap();
    let remote = Remote::start_with(Some((&issued.certificate_pem, &issued.key_pem))).await;
    let options = RemoteOptions { url: remote.url("https"), ..remote.options() };
    let ca = remote.credentials().join("ca.crt");
    std::fs::write(&ca, CertificateAuthority::new("other").unwrap().certificate_pem()).unwrap();
    let bench = Bench::new(Some(options)).run();
    let last = bench.write(put("web", "replicas: 1", "anna")).await;
    let error = away(&bench, "RemoteUnauthorized").await;
    assert!(error.contains("is not who it should be"), "{error}");
    std::fs::write(&ca, authority.certificate_pem()).unwrap();
    bench.projected(last).await;
    assert_eq!(remote.show("things/web.yaml"), "replicas: 1");
}

#[tokio::test]
async fn projection_rejects_rewritten_main_until_restored() {
    let remote = Remote::start().await;
    let bench = Bench::new(Some(remote.options())).run();
    bench.write(put("web", "replicas: 1", "anna")).await;
    bench.write(put("db", "size: 1", "anna")).await;
    let last = bench.write(put("web", "replicas: 9", "anna")).await;
    bench.projected(last).await;
    let agreed = remote.git(&["rev-parse", "main"]);
    let clone = remote.clone_repository();
    clone.git(&["reset", "--hard", "HEAD~2"]);
    clone.write("things/new.yaml", "a: 1\n");
    clone.git(&["add", "-A"]);
    clone.git(&["commit", "-m", "start over"]);
    clone.git(&["push", "-q", "--force", "origin", "main"]);
    let rewritten = remote.git(&["rev-parse", "main"]);
    let error = away(&bench, "RemoteRewritten").await;
    assert!(error.contains(&agreed) && error.contains(&rewritten), "{error}");
    bench.write(put("db", "size: 2", "anna")).await;
    // Not by a machine that has never seen the right one, either.
    let bench = bench.stop().await.elsewhere().run();
    away(&bench, "RemoteRewritten").await;
    assert_eq!(remote.git(&["rev-parse", "main"]), rewritten, "nothing is pushed over it");
    assert_eq!(bench.value("web").await.as_deref(), Some("replicas: 9"));
    assert_eq!(bench.value("new").await, None);
}

#[tokio::test]
async fn a_main_that_was_put_back_goes_on() {
    let remote = Remote::start().await;
    let bench = Bench::new(Some(remote.options())).run();
    bench.write(put("web", "replicas: 1", "anna")).await;
    let last = bench.write(put("web", "replicas: 2", "anna")).await;
    bench.projected(last).await;
    let agreed = remote.git(&["rev-parse", "main"]);
    remote.git(&["update-ref", "refs/heads/main", "main~1"]);
    away(&bench, "RemoteRewritten").await;
    let last = bench.write(put("web", "replicas: 3", "anna")).await;
    remote.git(&["update-ref", "refs/heads/main", &agreed]);
    bench.projected(last).await;
    assert_eq!(remote.subjects().len(), 4);
    assert_eq!(remote.show("things/web.yaml"), "replicas: 3");
    // A branch that went away altogether comes back where it was.
    remote.git(&["update-ref", "-d", "refs/heads/main"]);
    let last = bench.write(put("web", "replicas: 4", "anna")).await;
    bench.projected(last).await;
    assert_eq!(remote.subjects().len(), 5);
}

#[tokio::test]
async fn projection_repairs_partially_rejected_push() {
    let remote = Remote::start().await;
    let bench = Bench::new(Some(remote.options())).run();
    let first = bench.write(put("web", "replicas: 1", "anna")).await;
    bench.projected(first).await;
    // Main stays, the history goes on.
    remote.refuse("refs/heads/main");
    let refused = bench.write(put("web", "replicas: 2", "anna")).await;
    let error = away(&bench, "RemoteRefused").await;
    assert!(error.contains("hook declined"), "{error}");
    // It cannot come about any more, so that nobody has to remember it.
    let mut records = bench.log().follow(refused).await.unwrap();
    for _ in 0..8 {
        let Change::Put(progress) = records.next().await.unwrap().unwrap().change else { panic!("it stays") };
        let progress: serde_json::Value = serde_json::from_slice(&progress).unwrap();
        assert_eq!(progress.get("earlier"), None);
    }
    let last = bench.write(put("web", "replicas: 3", "anna")).await;
    away(&bench, "RemoteRefused").await;
    let bench = bench.stop().await.elsewhere().run();
    away(&bench, "RemoteRefused").await;
    remote.refuse_nothing();
    bench.projected(last).await;
    assert_eq!(remote.subjects().len(), 4);
    assert_eq!(remote.history()[remote.history().len() - 3..], [first.0, refused.0, last.0][..]);
    // The history stays, main goes on; the next push has both.
    remote.refuse("refs/stoa/*");
    let second = bench.write(put("web", "replicas: 4", "anna")).await;
    bench.projected(second).await;
    assert_eq!(remote.show("things/web.yaml"), "replicas: 4");
    assert_eq!(remote.history().last(), Some(&last.0));
    remote.refuse_nothing();
    let third = bench.write(put("web", "replicas: 5", "anna")).await;
    bench.projected(third).await;
    assert_eq!(remote.history()[remote.history().len() - 2..], [second.0, third.0][..]);
    assert!(remote.versions().values().all(|count| *count == 1));
}

#[tokio::test]
async fn second_machine_repeats_lost_push() {
    let remote = Remote::start().await;
    let bench = Bench::new(Some(remote.options())).run();
    let first = bench.write(put("web", "replicas: 1", "anna")).await;
    bench.projected(first).await;
    remote.server.behave(Behaviour::TakesNoPush);
    bench.write(put("web", "replicas: 2", "anna")).await;
    away(&bench, "RemoteUnavailable").await;
    let bench = bench.stop().await.elsewhere();
    let last = bench.write(remove("web", "ben")).await;
    remote.server.behave(Behaviour::Normal);
    let bench = bench.run();
    bench.projected(last).await;
    let expected = ["start the control repository", "create thing web", "update thing web", "delete thing web"];
    assert_eq!(remote.subjects(), expected);
    assert!(remote.versions().values().all(|count| *count == 1));
}

#[tokio::test]
async fn second_machine_finds_unacknowledged_push() {
    let remote = Remote::start().await;
    let bench = Bench::new(Some(remote.options())).run();
    let first = bench.write(put("web", "replicas: 1", "anna")).await;
    bench.projected(first).await;
    remote.server.behave(Behaviour::Mute);
    let second = bench.write(put("web", "replicas: 2", "anna")).await;
    bench.until("it arrives", |_| remote.versions().contains_key(&second.0)).await;
    let bench = bench.stop().await.elsewhere();
    // Were it taken for somebody's push, it would undo this.
    bench.write(put("web", "replicas: 3", "anna")).await;
    let clone = remote.clone_repository();
    clone.write("things/db.yaml", "size: 1\n");
    clone.commit_and_push("on top of it");
    remote.server.behave(Behaviour::Normal);
    let bench = bench.run();
    let last = bench.write(put("web", "replicas: 4", "anna")).await;
    bench.projected(last).await;
    let expected = [
        "start the control repository",
        "create thing web",
        "update thing web",
        "on top of it",
        "update thing web",
        "update thing web",
    ];
    assert_eq!(remote.subjects(), expected);
    assert_eq!(bench.value("web").await.as_deref(), Some("replicas: 4"));
    assert_eq!(bench.applied().await, [("things/db.yaml".to_owned(), "on top of it".to_owned())]);
}

#[tokio::test]
async fn second_machine_recognizes_late_push_as_own() {
    for arrives_first in [true, false] {
        let remote = Remote::start().await;
        let bench = Bench::new(Some(remote.options())).run();
        let first = bench.write(put("web", "replicas: 1", "anna")).await;
        bench.projected(first).await;
        remote.server.behave(Behaviour::Late);
        bench.write(put("web", "replicas: 2", "anna")).await;
        away(&bench, "RemoteUnavailable").await;
        let bench = bench.stop().await.elsewhere();
        bench.write(put("web", "replicas: 3", "anna")).await;
        remote.server.behave(Behaviour::TakesNoPush);
        let bench = bench.run();
        away(&bench, "RemoteUnavailable").await;
        let last = bench.write(put("db", "size: 1", "anna")).await;
        if arrives_first {
            assert!(remote.server.deliver().await >= 1);
            remote.server.behave(Behaviour::Normal);
            bench.projected(last).await;
        } else {
            remote.server.behave(Behaviour::Normal);
            bench.projected(last).await;
            let main = remote.git(&["rev-parse", "main"]);
            assert!(remote.server.deliver().await >= 1);
            assert_eq!(remote.git(&["rev-parse", "main"]), main, "it comes too late");
        }
        assert_eq!(bench.value("web").await.as_deref(), Some("replicas: 3"));
        assert_eq!(remote.show("things/web.yaml"), "replicas: 3");
        assert_eq!(remote.subjects().len(), 5, "{:?}", remote.subjects());
        assert!(bench.applied().await.is_empty());
        assert!(remote.versions().values().all(|count| *count == 1));
    }
}

#[tokio::test]
async fn repeated_failover_neither_loses_nor_doubles_commits() {
    let seed = std::env::var("STOA_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    // The second loses, as a rule, a machine with the only copy of a history whose push was refused.
    let seeds = seed.map_or_else(|| vec![rand::random(), 7_988_785_491_349_917_746], |seed| vec![seed]);
    for seed in seeds {
        stop_at_any_moment_on_ever_new_machines(seed).await;
    }
}

async fn stop_at_any_moment_on_ever_new_machines(seed: u64) {
    eprintln!("STOA_TEST_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let remote = Remote::start().await;
    let mut bench = Bench::new(Some(remote.options())).run();
    let mut written = Vec::new();
    for round in 0..25 {
        for n in 0..random.random_range(1..6) {
            let thing = format!("t{}", random.random_range(0..7));
            written.push(bench.write(put(&thing, &format!("round: {round}\nn: {n}"), "anna")).await);
        }
        if random.random_bool(0.3) && !remote.git(&["for-each-ref", "refs/heads/main"]).is_empty() {
            let clone = remote.clone_repository();
            clone.write(&format!("things/pushed{round}.yaml"), &format!("round: {round}\n"));
            clone.commit_and_push_rebasing(&format!("push {round}"));
        }
        let behaviours =
            [Behaviour::Normal, Behaviour::Normal, Behaviour::Mute, Behaviour::TakesNoPush, Behaviour::Late];
        remote.server.behave(behaviours[random.random_range(0..behaviours.len())]);
        bench = bench.interrupt(Duration::from_millis(random.random_range(0..400))).await;
        if random.random_bool(0.5) {
            // Pushes that are still on their way from the old machine go on while the new one begins.
            bench = bench.interrupt(Duration::ZERO).await.elsewhere().interrupt(Duration::ZERO).await;
        }
        if random.random_bool(0.3) {
            remote.server.deliver().await;
        }
    }
    remote.server.behave(Behaviour::Normal);
    remote.server.deliver().await;
    let last = *written.last().expect("something is written in every round");
    bench.projected(last).await;
    let pushed = remote.git(&["rev-list", "-1", "--grep=^push ", "main"]);
    if !pushed.is_empty() {
        bench.ingested(&pushed).await;
    }
    let versions = remote.versions();
    let missing: Vec<_> = written.iter().filter(|version| !versions.contains_key(&version.0)).collect();
    assert!(missing.is_empty(), "no commit has {missing:?}");
    assert!(versions.values().all(|count| *count == 1), "{versions:?}");
    let history = remote.history();
    let missing: Vec<_> = written.iter().filter(|version| !history.contains(&version.0)).collect();
    assert!(missing.is_empty(), "the history lacks {missing:?}");
    let missing: Vec<_> = bench.pushed().await.into_iter().filter(|version| !history.contains(&version.0)).collect();
    assert!(missing.is_empty(), "the history lacks {missing:?}, which were pushed");
    let subjects = remote.subjects();
    let pushes = subjects.iter().filter(|subject| subject.starts_with("push ")).count();
    assert_eq!(bench.applied().await.len(), pushes);
    remote.git(&["fsck", "--strict", "--full"]);
}

#[tokio::test]
async fn local_repository_moves_to_remote_with_history() {
    let remote = Remote::start().await;
    let bench = Bench::start().await;
    let first = bench.write(put("web", "replicas: 1", "anna")).await;
    bench.projected(first).await;
    let second = bench.write(put("web", "replicas: 2", "anna")).await;
    bench.projected(second).await;
    let bench = bench.stop().await.with_remote(Some(remote.options())).run();
    bench.until("the history is there", |_| !remote.git(&["for-each-ref", "refs/stoa/history"]).is_empty()).await;
    assert_eq!(remote.subjects(), ["start the control repository", "create thing web", "update thing web"]);
    assert_eq!(remote.history()[1..], [first.0, second.0]);
    let last = bench.write(put("web", "replicas: 3", "anna")).await;
    bench.projected(last).await;
    // Nobody pushes to the copy.
    let refusal = bench.clone_repository().refused(&["push", "origin", "HEAD~1:refs/heads/other"]);
    assert!(refusal.contains("hidden ref"), "{refusal}");
    // And back.
    let bench = bench.stop().await.with_remote(None).run();
    let last = bench.write(put("web", "replicas: 4", "anna")).await;
    bench.projected(last).await;
    assert_eq!(bench.subjects().len(), 5);
    let clone = bench.clone_repository();
    clone.write("things/web.yaml", "replicas: 5\n");
    clone.commit_and_push("more");
    bench.ingested_all(&clone).await;
    assert_eq!(bench.value("web").await.as_deref(), Some("replicas: 5"));
}

#[tokio::test]
async fn new_log_applies_files_from_remote() {
    let remote = Remote::start().await;
    let bench = Bench::new(Some(remote.options())).run();
    let last = bench.write(put("web", "replicas: 1", "anna")).await;
    bench.projected(last).await;
    let bench = bench.stop().await.with_new_log().elsewhere().run();
    bench.ingested(&remote.git(&["rev-parse", "main"])).await;
    assert_eq!(bench.value("web").await.as_deref(), Some("replicas: 1"));
    let last = bench.write(put("web", "replicas: 2", "anna")).await;
    bench.projected(last).await;
    assert_eq!(remote.subjects().len(), 3);
    // Its history is another.
    assert_eq!(remote.git(&["for-each-ref", "refs/stoa/history"]).lines().count(), 2);
}

#[tokio::test]
async fn history_contains_every_version_of_push() {
    let remote = Remote::start().await;
    let bench = Bench::new(Some(remote.options())).run();
    let first = bench.write(put("web", "replicas: 1", "anna")).await;
    bench.projected(first).await;
    remote.server.behave(Behaviour::TakesNoPush);
    let clone = remote.clone_repository();
    for name in ["a", "b", "c"] {
        clone.write(&format!("things/{name}.yaml"), "size: 1\n");
    }
    clone.commit_and_push("three things");
    // Main is where it should be, and the history has to be pushed.
    away(&bench, "RemoteUnavailable").await;
    let pushed = bench.pushed().await;
    assert_eq!(pushed.len(), 3);
    let bench = bench.stop().await.elsewhere();
    remote.server.behave(Behaviour::Normal);
    let bench = bench.run();
    bench.projected(pushed[2]).await;
    let history = remote.history();
    assert!(pushed.iter().all(|version| history.contains(&version.0)), "{pushed:?} in {history:?}");
}

#[tokio::test]
async fn ingestion_ignores_own_rejected_commit() {
    let remote = Remote::start().await;
    let bench = Bench::new(Some(remote.options())).run();
    let last = bench.write(put("web", "replicas: 1", "anna")).await;
    bench.projected(last).await;
    let bench = bench.stop().await;
    let last = bench.write(put("web", "replicas: 2", "anna")).await;
    bench.compact(last).await;
    remote.when_moved("refs/heads/main", "git update-ref $1 $3; echo it is there already; exit 1");
    let bench = bench.run();
    bench.projected(last).await;
    assert_eq!(remote.subjects()[2..], ["reconcile with the log"]);
    assert_eq!((bench.status().pushes, bench.status().error), (0, None));
}

#[tokio::test]
async fn local_pushes_survive_switch_to_remote() {
    for is_there in [false, true] {
        let remote = Remote::start().await;
        let bench = Bench::start().await;
        let last = bench.write(put("web", "replicas: 1", "anna")).await;
        bench.projected(last).await;
        let clone = bench.clone_repository();
        if is_there {
            bench.git(&["push", "-q", remote.repository().to_str().unwrap(), "main"]);
        }
        let bench = bench.stop().await;
        clone.write("things/db.yaml", "size: 1\n");
        clone.commit_and_push("while nobody looks");
        let pushed = clone.git(&["rev-parse", "HEAD"]);
        let bench = bench.with_remote(Some(remote.options())).run();
        if is_there {
            // Main of the remote goes on from what was agreed on, without it.
            let last = bench.write(put("web", "replicas: 2", "anna")).await;
            bench.projected(last).await;
            assert_eq!(bench.git(&["rev-parse", &format!("refs/stoa/refused/{pushed}")]), pushed);
            assert_eq!(bench.value("db").await, None);
        } else {
            bench.ingested(&pushed).await;
            assert_eq!(bench.value("db").await.as_deref(), Some("size: 1"));
            let expected = ["start the control repository", "create thing web", "while nobody looks"];
            assert_eq!(remote.subjects(), expected);
            assert_eq!(bench.git(&["for-each-ref", "refs/stoa/refused"]), "");
        }
    }
}
