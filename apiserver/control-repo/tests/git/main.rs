//! The projection and ingest end to end, on a log, with the real `git` on the other side.

mod bomb;
mod control_remote;
mod fan_out;
mod kill;
mod locks;
mod past;
mod refused;
mod remote;
mod ssh;
mod support;
mod undecodable;

use std::time::Duration;

use futures_util::future::join_all;
use stoa_control_repo::GitHistory;
use stoa_machinery::log::{Expect, Version};
use support::{Bench, elsewhere, put, remove};

#[tokio::test]
async fn each_write_becomes_a_commit() {
    let bench = Bench::start().await;
    let first = bench.write(put("web", "replicas: 1", "anna@example.com")).await;
    let second = bench.write(put("web", "replicas: 2", "system:serviceaccount:shop:robot")).await;
    let last = bench.write(remove("web", "ben")).await;
    bench.projected(last).await;

    let log = bench.git(&[
        "log",
        "--reverse",
        "--format=%an|%ae|%cn|%at|%s|%(trailers:key=Resource-Version,valueonly,separator=)",
    ]);
    let lines: Vec<&str> = log.lines().skip(1).collect();
    assert_eq!(
        lines,
        [
            format!("anna@example.com|anna-example.com@users.stoa.dev|Stoa|1700000001|create thing web|{first}"),
            format!(
                "system:serviceaccount:shop:robot|system-serviceaccount-shop-robot@users.stoa.dev|Stoa|1700000001|update \
                 thing web|{second}"
            ),
            format!("ben|ben@users.stoa.dev|Stoa|1700000001|delete thing web|{last}"),
        ]
    );
    assert_eq!(bench.git(&["show", "main~1:things/web.yaml"]), "replicas: 2");
    assert_eq!(bench.git(&["ls-tree", "-r", "--name-only", "main"]), "");
    bench.git(&["fsck", "--strict", "--full"]);
}

#[tokio::test]
async fn write_without_spec_change_makes_no_commit() {
    let bench = Bench::start().await;
    bench.write(put("web", "replicas: 1", "anna")).await;
    bench.write(support::status("web", "replicas: 1", "Ready")).await;
    let last = bench.write(elsewhere()).await;
    bench.projected(last).await;
    assert_eq!(bench.subjects(), ["start the control repository", "create thing web"]);
}

#[tokio::test]
async fn server_applies_pushed_file_once() {
    let bench = Bench::start().await;
    let last = bench.write(put("web", "replicas: 1", "anna")).await;
    bench.projected(last).await;
    let clone = bench.clone_repository();
    clone.write("things/web.yaml", "# more for the weekend\nreplicas: 5\n");
    clone.write("things/db.yaml", "size: 10\n");
    clone.write("README.md", "hello\n");
    clone.commit_and_push("scale out");
    let head = clone.git(&["rev-parse", "HEAD"]);
    bench.ingested(&head).await;

    assert_eq!(bench.value("web").await.as_deref(), Some("replicas: 5"));
    assert_eq!(bench.value("db").await.as_deref(), Some("size: 10"));
    let from = |path: &str| (path.to_owned(), "scale out".to_owned());
    assert_eq!(bench.applied().await, [from("things/db.yaml"), from("things/web.yaml")]);
    let last = bench.write(put("db", "size: 11", "anna")).await;
    bench.projected(last).await;
    assert_eq!(bench.subjects(), ["start the control repository", "create thing web", "scale out", "update thing db"]);
    assert_eq!(bench.git(&["show", "main:things/web.yaml"]), "# more for the weekend\nreplicas: 5");
    assert_eq!(bench.git(&["show", "main:README.md"]), "hello");
    // A change by the API leaves the comment alone.
    let last = bench.write(put("web", "replicas: 6", "anna")).await;
    bench.projected(last).await;
    assert_eq!(bench.git(&["show", "main:things/web.yaml"]), "# more for the weekend\nreplicas: 6");
    // The clone can go on from there.
    clone.git(&["pull", "--ff-only"]);
    assert_eq!(clone.read("things/db.yaml"), "size: 11\n");
}

#[tokio::test]
async fn pushed_comment_survives_later_writes() {
    let bench = Bench::start().await;
    bench.write(put("web", "replicas: 1", "anna")).await;
    bench.write(put("web", "replicas: 2", "anna")).await;
    let last = bench.write(support::status("web", "replicas: 2", "Ready")).await;
    bench.projected(last).await;
    let clone = bench.clone_repository();
    clone.write("things/web.yaml", "# mind the weekend\nreplicas: 2\n");
    clone.commit_and_push("say why");
    bench.ingested(&clone.git(&["rev-parse", "HEAD"])).await;
    for replicas in [3, 4] {
        bench.write(support::status("web", &format!("replicas: {}", replicas - 1), "Ready")).await;
        let last = bench.write(put("web", &format!("replicas: {replicas}"), "anna")).await;
        bench.projected(last).await;
        let expected = format!("# mind the weekend\nreplicas: {replicas}");
        assert_eq!(bench.git(&["show", "main:things/web.yaml"]), expected);
    }
}

#[tokio::test]
async fn a_revert_undoes_and_a_removed_file_deletes() {
    let bench = Bench::start().await;
    bench.write(put("web", "replicas: 1", "anna")).await;
    let last = bench.write(put("web", "replicas: 9", "anna")).await;
    bench.projected(last).await;
    let clone = bench.clone_repository();
    clone.git(&["revert", "--no-edit", "HEAD"]);
    clone.git(&["push"]);
    bench.ingested(&clone.git(&["rev-parse", "HEAD"])).await;
    assert_eq!(bench.value("web").await.as_deref(), Some("replicas: 1"));
    clone.git(&["rm", "-q", "things/web.yaml"]);
    clone.commit_and_push("no more web");
    bench.ingested(&clone.git(&["rev-parse", "HEAD"])).await;
    assert_eq!(bench.value("web").await, None);
    let last = bench.write(put("other", "a: 1", "anna")).await;
    bench.projected(last).await;
    assert_eq!(bench.subjects()[3..], ["Revert \"update thing web\"", "no more web", "create thing other"]);
}

#[tokio::test]
async fn queued_push_survives_projection_of_previous_push() {
    let bench = Bench::start().await;
    bench.write(put("web", "replicas: 1", "anna")).await;
    bench.write(put("db", "size: 1", "anna")).await;
    let last = bench.write(put("queue", "length: 1", "anna")).await;
    bench.projected(last).await;
    // Both pushes are seen before the record of the first becomes a commit, which is once there are as many as a pack takes.
    let bench = bench.stop().await.lingering(Duration::from_secs(3600)).run();
    let clone = bench.clone_repository();
    let before = bench.subjects().len();
    bench.write(put("first", "a: 1", "anna")).await;
    clone.write("things/web.yaml", "replicas: 5\n");
    clone.write("things/queue.yaml", "length: 5\n");
    clone.git(&["rm", "-q", "things/db.yaml"]);
    clone.commit_and_push("one");
    bench.ingested(&clone.git(&["rev-parse", "HEAD"])).await;
    clone.git(&["rm", "-q", "things/web.yaml"]);
    clone.write("things/queue.yaml", "length: [\n");
    clone.write("things/db.yaml", "# again\nsize: 7\n");
    clone.commit_and_push("two");
    bench.ingested(&clone.git(&["rev-parse", "HEAD"])).await;
    let last = bench.write(put("last", "a: 1", "anna")).await;
    for _ in 0..11 {
        join_all((0..100).map(|_| bench.write(elsewhere()))).await;
    }
    bench.projected(last).await;

    assert_eq!(bench.subjects()[before..], ["one", "two", "create thing first", "create thing last"]);
    assert_eq!(bench.git(&["show", "main:things/db.yaml"]), "# again\nsize: 7");
    assert_eq!(bench.git(&["show", "main:things/queue.yaml"]), "length: [");
    assert_eq!(bench.value("web").await, None);
    assert_eq!(bench.value("queue").await.as_deref(), Some("length: 5"));
    assert_eq!(bench.invalid(), ["things/queue.yaml"]);
}

#[tokio::test]
async fn a_push_rewrites_and_deletes_nothing() {
    let bench = Bench::start().await;
    bench.write(put("web", "replicas: 1", "anna")).await;
    let last = bench.write(put("web", "replicas: 9", "anna")).await;
    bench.projected(last).await;
    let before = bench.git(&["rev-parse", "main"]);
    let clone = bench.clone_repository();
    clone.git(&["reset", "--hard", "HEAD~1"]);
    clone.git(&["commit", "--allow-empty", "-m", "start over"]);
    for (push, why) in [
        (["push", "--force", "origin", "main"], "non-fast-forward"),
        (["push", "--delete", "origin", "main"], "deletion prohibited"),
        (["push", "origin", "HEAD:refs/replace/1111111111111111111111111111111111111111", "--"], "hidden ref"),
        (["push", "origin", "HEAD:refs/stoa/refused/x", "--"], "hidden ref"),
    ] {
        let refusal = clone.refused(&push);
        assert!(refusal.contains(why), "{push:?}: {refusal}");
    }
    assert_eq!(bench.git(&["rev-parse", "main"]), before);
}

#[tokio::test]
async fn projection_reverts_history_rewritten_on_disk() {
    let bench = Bench::start().await;
    bench.write(put("web", "replicas: 1", "anna")).await;
    bench.write(put("db", "size: 1", "anna")).await;
    let last = bench.write(put("web", "replicas: 9", "anna")).await;
    bench.projected(last).await;
    let before = bench.git(&["rev-parse", "main"]);
    let clone = bench.clone_repository();
    clone.git(&["reset", "--hard", "HEAD~2"]);
    clone.write("things/new.yaml", "a: 1\n");
    clone.git(&["add", "-A"]);
    clone.git(&["commit", "-m", "start over"]);
    let rewritten = clone.git(&["rev-parse", "HEAD"]);
    // Whoever may write the folder can lift the rule that refuses pushes.
    let lifted = "--receive-pack=git -c receive.denyNonFastForwards=false receive-pack";
    clone.git(&["push", "--force", lifted, "origin", "main"]);
    bench.refused_histories(1).await;

    assert_eq!(bench.git(&["rev-parse", "main"]), before);
    assert_eq!(bench.git(&["rev-parse", &format!("refs/stoa/refused/{rewritten}")]), rewritten);
    assert_eq!(bench.value("web").await.as_deref(), Some("replicas: 9"));
    assert_eq!(bench.value("db").await.as_deref(), Some("size: 1"));
    assert_eq!(bench.value("new").await, None);

    // The same while nobody looks.
    let bench = bench.stop().await;
    bench.git(&["update-ref", "refs/heads/main", &rewritten]);
    let bench = bench.run();
    bench.refused_histories(1).await;
    let last = bench.write(put("db", "size: 2", "anna")).await;
    bench.projected(last).await;
    assert_eq!(bench.git(&["rev-parse", "main~1"]), before);
    assert!(bench.applied().await.is_empty());
}

#[tokio::test]
async fn invalid_file_stays_until_next_change() {
    let bench = Bench::start().await;
    bench.write(put("web", "replicas: 1", "anna")).await;
    let last = bench.write(put("db", "size: 1", "anna")).await;
    bench.projected(last).await;
    let clone = bench.clone_repository();
    clone.write("things/web.yaml", "replicas: [\n");
    clone.write("things/db.yaml", "bad: true\n");
    clone.commit_and_push("oops");
    let bad = clone.git(&["rev-parse", "HEAD"]);
    bench.ingested(&bad).await;
    assert_eq!(bench.value("web").await.as_deref(), Some("replicas: 1"));
    assert_eq!(bench.invalid(), ["things/db.yaml", "things/web.yaml"]);
    assert_eq!(bench.status().invalid["things/db.yaml"].commit, bad);

    // Its status moves on, and another object changes: the files stay.
    bench.write(support::status("web", "replicas: 1", "Ready")).await;
    let last = bench.write(put("other", "a: 1", "anna")).await;
    bench.projected(last).await;
    assert_eq!(bench.git(&["show", "main:things/web.yaml"]), "replicas: [");
    // Not even a restart forgets it.
    let bench = bench.restart().await;
    assert_eq!(bench.status().invalid.len(), 2);

    let last = bench.write(put("db", "size: 2", "anna")).await;
    bench.projected(last).await;
    assert_eq!(bench.git(&["show", "main:things/db.yaml"]), "size: 2");
    clone.git(&["pull", "--ff-only"]);
    clone.write("things/web.yaml", "replicas: 3\n");
    clone.commit_and_push("mended");
    bench.ingested(&clone.git(&["rev-parse", "HEAD"])).await;
    assert_eq!(bench.value("web").await.as_deref(), Some("replicas: 3"));
    assert!(bench.invalid().is_empty());
    assert!(bench.status().invalid.is_empty());
}

#[tokio::test]
async fn projection_reports_oversized_file_as_invalid() {
    let bench = Bench::start().await;
    let last = bench.write(put("web", "replicas: 1", "anna")).await;
    bench.projected(last).await;
    let clone = bench.clone_repository();
    clone.write("things/web.yaml", &"\0".repeat((16 << 20) + 1));
    clone.write("things/db.yaml", "size: 1\n");
    clone.commit_and_push("a gift");
    bench.ingested_all(&clone).await;
    let reason = bench.status().invalid["things/web.yaml"].reason.clone();
    assert_eq!(reason, "the file has 16777217 bytes, and 16777216 are the most that one may have");
    assert_eq!(bench.value("web").await.as_deref(), Some("replicas: 1"));
    assert_eq!(bench.value("db").await.as_deref(), Some("size: 1"));
    // Records that were compacted away leave it alone, and a write replaces it.
    let bench = bench.stop().await;
    let last = bench.write(put("db", "size: 2", "anna")).await;
    bench.compact(last).await;
    let bench = bench.run();
    bench.projected(last).await;
    assert_eq!(bench.git(&["cat-file", "-s", "main:things/web.yaml"]), "16777217");
    let last = bench.write(put("web", "replicas: 2", "anna")).await;
    bench.projected(last).await;
    assert_eq!(bench.git(&["show", "main:things/web.yaml"]), "replicas: 2");
    assert!(bench.status().invalid.is_empty());
}

#[tokio::test]
async fn a_push_in_the_middle_of_writes_loses_neither() {
    let bench = Bench::start().await;
    let clone = bench.clone_repository();
    let mut last = Version(0);
    for round in 0..10 {
        for n in 0..20 {
            last = bench.write(put(&format!("api{n}"), &format!("round: {round}"), "anna")).await;
        }
        clone.write(&format!("things/pushed{round}.yaml"), &format!("round: {round}\n"));
        clone.commit_and_push_rebasing(&format!("push {round}"));
    }
    bench.ingested_all(&clone).await;
    bench.projected(last).await;
    for round in 0..10 {
        assert_eq!(bench.value(&format!("pushed{round}")).await, Some(format!("round: {round}")));
    }
    assert_eq!(bench.applied().await.len(), 10);
    let subjects = bench.subjects();
    assert_eq!(subjects.iter().filter(|subject| subject.starts_with("push ")).count(), 10);
    // Every write of the API has one commit.
    assert_eq!(subjects.iter().filter(|subject| subject.contains("thing api")).count(), 200);
    bench.git(&["fsck", "--strict", "--full"]);
}

#[tokio::test]
async fn restart_neither_loses_nor_doubles_commits() {
    let mut bench = Bench::start().await;
    let mut last = Version(0);
    for n in 0..30 {
        for m in 0..4 {
            last = bench.write(put(&format!("t{}", n % 7), &format!("n: {n}\nm: {m}"), "anna")).await;
        }
        if n % 3 == 0 {
            let clone = bench.clone_repository();
            clone.write(&format!("things/pushed{n}.yaml"), &format!("n: {n}\n"));
            clone.commit_and_push_rebasing(&format!("push {n}"));
        }
        // As sudden as a crash as far as the projection can tell: its future is dropped.
        bench = bench.interrupt(Duration::from_micros(n * 977 % 40_000)).await;
    }
    bench.ingested(&bench.git(&["rev-list", "-1", "--grep=^push 27$", "main"])).await;
    bench.projected(last).await;
    let subjects = bench.subjects();
    assert_eq!(subjects.iter().filter(|subject| subject.contains("thing t")).count(), 120);
    assert_eq!(subjects.iter().filter(|subject| subject.starts_with("push ")).count(), 10);
    assert_eq!(bench.applied().await.len(), 10);
    assert_eq!(bench.value("pushed27").await.as_deref(), Some("n: 27"));
}

#[tokio::test]
async fn single_commit_replaces_lost_history() {
    let bench = Bench::start().await;
    bench.write(put("web", "replicas: 1", "anna")).await;
    let known = bench.write(put("db", "size: 1", "anna")).await;
    bench.projected(known).await;
    let bench = bench.stop().await;
    let gone = [
        bench.write(put("web", "replicas: 2", "anna")).await,
        bench.write(put("new", "a: 1", "anna")).await,
        bench.write(put("new", "a: 2", "anna")).await,
    ];
    bench.write(put("new", "a: 1", "anna")).await;
    let last = bench.write(remove("db", "anna")).await;
    bench.compact(last).await;
    let bench = bench.run();
    bench.projected(last).await;
    assert_eq!(bench.subjects()[3..], ["reconcile with the log"]);
    assert_eq!(bench.git(&["ls-tree", "-r", "--name-only", "main"]), "things/new.yaml\nthings/web.yaml");
    assert_eq!(bench.git(&["show", "main:things/web.yaml"]), "replicas: 2");
    let next = bench.write(put("new", "a: 2", "anna")).await;
    bench.projected(next).await;
    assert_eq!(bench.subjects()[4..], ["update thing new"]);
    // The past shows what is known, and nothing else in place of what is not.
    let history = GitHistory::new(bench.repository(), |_| true, bench.record().await);
    let read = async |version| past::read(&history, version).await.unwrap();
    assert_eq!(read(known).await.unwrap(), [r#"{"size":1}"#, r#"{"replicas":1}"#]);
    for version in gone {
        assert_eq!(read(version).await, None, "at {version}");
    }
    assert_eq!(read(last).await.unwrap(), [r#"{"a":1}"#, r#"{"replicas":2}"#]);
    assert_eq!(read(next).await.unwrap(), [r#"{"a":2}"#, r#"{"replicas":2}"#]);
}

/// What people wrote by hand, without a default of it.
const QUEUE: &str = "# for jobs\nqueue: jobs\n";

#[tokio::test]
async fn compaction_preserves_files_people_wrote() {
    let bench = Bench::start().await;
    let clone = bench.clone_repository();
    clone.write("things/queue.yaml", QUEUE);
    clone.commit_and_push("a queue");
    bench.ingested_all(&clone).await;
    bench.projected(bench.head().await).await;
    assert_eq!(bench.value("queue").await.as_deref(), Some("queue: \"jobs\"\nlength: 8"));
    let before = bench.subjects();
    let bench = bench.stop().await;
    // Past the record of the progress, which says less than that it is the last one.
    let last = bench.head().await;
    bench.compact(last).await;
    let bench = bench.run();
    bench.projected(last).await;
    assert_eq!(bench.subjects(), before);
    assert_eq!(bench.git(&["show", "main:things/queue.yaml"]), QUEUE.trim_end());
    let last = bench.write(put("queue", "queue: \"jobs\"\nlength: 9", "anna")).await;
    bench.projected(last).await;
    assert_eq!(bench.git(&["show", "main:things/queue.yaml"]), format!("{QUEUE}length: 9"));
}

#[tokio::test]
async fn what_is_reconciled_keeps_comments_and_order() {
    let bench = Bench::start().await;
    let clone = bench.clone_repository();
    clone.write("things/queue.yaml", QUEUE);
    clone.write("things/web.yaml", "# mind the weekend\nreplicas: 2 # two\nname: web\n");
    clone.commit_and_push("by hand");
    bench.ingested_all(&clone).await;
    bench.projected(bench.head().await).await;
    let bench = bench.stop().await;
    let last = bench.write(put("web", "name: \"web\"\nreplicas: 3", "anna")).await;
    bench.compact(last).await;
    let bench = bench.run();
    bench.projected(last).await;
    assert_eq!(bench.subjects().last().unwrap(), "reconcile with the log");
    let web = |replicas: u32| format!("# mind the weekend\nreplicas: {replicas} # two\nname: web");
    assert_eq!(bench.git(&["show", "main:things/web.yaml"]), web(3));
    assert_eq!(bench.git(&["show", "main:things/queue.yaml"]), QUEUE.trim_end());

    // The same where nobody knows what main was made of.
    clone.git(&["pull", "-q", "--ff-only"]);
    let bench = bench.stop().await;
    let last = bench.write(put("web", "name: \"web\"\nreplicas: 4", "anna")).await;
    std::fs::remove_dir_all(bench.repository()).unwrap();
    clone.git(&["init", "-q", "--bare", bench.repository().to_str().unwrap()]);
    clone.git(&["checkout", "-q", "--orphan", "another"]);
    clone.write("things/records/web.yaml", "removed: 1\n");
    clone.write("things/unknown.yaml", "a: 1\n");
    clone.git(&["add", "--all"]);
    clone.git(&["commit", "-q", "-m", "begin again"]);
    clone.git(&["push", "-q", "origin", "HEAD:refs/heads/main"]);
    let bench = bench.run();
    bench.projected(last).await;
    assert_eq!(bench.subjects(), ["begin again", "reconcile with the log"]);
    let files = bench.git(&["ls-tree", "-r", "--name-only", "main"]);
    assert_eq!(files, "things/queue.yaml\nthings/records/web.yaml\nthings/web.yaml", "a record outlives the log");
    assert_eq!(bench.git(&["show", "main:things/web.yaml"]), web(4));
    assert_eq!(bench.git(&["show", "main:things/queue.yaml"]), QUEUE.trim_end());
}

#[tokio::test]
async fn history_starts_at_compacted_log_state() {
    let bench = Bench::new(None);
    bench.write(elsewhere()).await;
    let compacted = bench.write(elsewhere()).await;
    bench.compact(compacted).await;
    let bench = bench.run();
    bench.wait(|status| status.commit.is_some()).await;
    let begun = bench.head().await;
    // As one batch, or as near to it as can be.
    let (web, other) = tokio::join!(bench.write(put("web", "replicas: 1", "anna")), bench.write(elsewhere()));
    bench.projected(web.max(other)).await;
    let db = bench.write(put("db", "size: 1", "anna")).await;
    bench.projected(db).await;
    let history = GitHistory::new(bench.repository(), |_| true, bench.record().await);
    let read = async |version| past::read(&history, version).await.unwrap();
    assert_eq!(read(Version(compacted.0 - 1)).await, None);
    assert_eq!(read(begun).await.unwrap(), [""; 0]);
    for version in [web, web.max(other)] {
        assert_eq!(read(version).await.unwrap(), [r#"{"replicas":1}"#], "at {version}");
    }
    assert_eq!(read(db).await.unwrap(), [r#"{"size":1}"#, r#"{"replicas":1}"#]);
}

#[tokio::test]
async fn a_repository_that_is_gone_is_made_again() {
    let bench = Bench::start().await;
    let last = bench.write(put("web", "replicas: 1", "anna")).await;
    bench.projected(last).await;
    let bench = bench.stop().await;
    std::fs::remove_dir_all(bench.repository()).unwrap();
    let bench = bench.run();
    bench.projected(last).await;
    let last = bench.write(put("web", "replicas: 2", "anna")).await;
    bench.projected(last).await;
    assert_eq!(bench.subjects().len(), 3);
    assert_eq!(bench.git(&["show", "main:things/web.yaml"]), "replicas: 2");
}

#[tokio::test]
async fn new_log_applies_existing_repository_files() {
    let bench = Bench::start().await;
    let last = bench.write(put("web", "replicas: 1", "anna")).await;
    bench.projected(last).await;
    let bench = bench.stop().await.with_new_log().run();
    bench.ingested(&bench.git(&["rev-parse", "main"])).await;
    assert_eq!(bench.value("web").await.as_deref(), Some("replicas: 1"));
}

/// Whether slow tests run in full, as for `hack/test --all`.
fn all_tests() -> bool {
    std::env::var_os("STOA_TEST_ALL").is_some()
}

#[tokio::test]
async fn packs_stay_few_however_long_the_history_is() {
    let bench = Bench::start().await;
    let clone = bench.clone_repository();
    let mut most = 0;
    let count: usize = if all_tests() { 300 } else { 120 };
    for n in 0..count {
        let last = bench.write(put("web", &format!("n: {n}"), "anna")).await;
        bench.projected(last).await;
        most = most.max(bench.packs());
        if n % 20 == 0 {
            // Pushes come as loose objects.
            clone.write("things/pushed.yaml", &format!("n: {n}\n"));
            clone.commit_and_push_rebasing(&format!("push {n}"));
            bench.ingested_all(&clone).await;
        }
    }
    // Some thousands of objects: 12 packs that double, and those that have come since the last round.
    assert!(most < 60, "{most}");
    bench.until("packs are merged", |bench| bench.packs() <= 12 + 8).await;
    assert_eq!(bench.subjects().len(), 1 + count + count.div_ceil(20));
    assert_eq!(bench.git(&["show", "main~5:things/web.yaml"]), format!("n: {}", count - 6));
    assert_eq!(bench.git(&["fsck", "--strict", "--full", "--no-dangling"]), "");
    let last = bench.write(put("web", "n: last", "anna")).await;
    bench.projected(last).await;
    assert_eq!(bench.git(&["show", "main:things/web.yaml"]), "n: last");
}

#[tokio::test]
async fn a_write_that_is_refused_elsewhere_leaves_no_trace() {
    let bench = Bench::start().await;
    let first = bench.write(put("web", "replicas: 1", "anna")).await;
    let stale = support::Write { expect: Expect::At(Version(first.0 + 7)), ..put("web", "replicas: 2", "ben") };
    bench.refused(stale).await;
    let last = bench.write(put("db", "size: 1", "anna")).await;
    bench.projected(last).await;
    assert_eq!(bench.subjects(), ["start the control repository", "create thing web", "create thing db"]);
}
