//! Pushed files that cannot be applied, or not yet.

use std::time::Duration;

use stoa_control_repo::RemoteOptions;

use super::{
    control_remote::Remote,
    support::{Bench, Clone, put},
};

#[tokio::test]
async fn many_refused_files_take_few_records_of_little_size() {
    let bench = Bench::start().await;
    let clone = bench.clone_repository();
    let before = bench.saved().await.len();
    for number in 0..250 {
        clone.write(&format!("things/t{number}.yaml"), &format!("bad: {number}\n"));
    }
    clone.write("things/large.yaml", &format!("bad: \"{}\"\n", "é".repeat(1 << 15)));
    clone.commit_and_push("all wrong");
    bench.ingested_all(&clone).await;
    assert_eq!(bench.invalid().len(), 251);
    let saved = bench.saved().await;
    assert!(saved.len() - before < 100, "{} records", saved.len() - before);
    assert!(saved.iter().all(|size| *size < 64 << 10), "{saved:?}");
    let reason = bench.status().invalid["things/large.yaml"].reason.clone();
    assert!(reason.len() <= 1024 && reason.starts_with("bad is \"éé") && reason.ends_with("é…"), "{reason}");
    let last = bench.write(put("web", "replicas: 1", "anna")).await;
    bench.projected(last).await;
}

#[tokio::test]
async fn waiting_file_applies_after_dependency_appears() {
    let bench = Bench::start().await;
    let clone = bench.clone_repository();
    for name in ["a", "b"] {
        clone.write(&format!("things/{name}.yaml"), "# for the web\nneeds: web\n");
    }
    clone.write("things/c.yaml", "needs: nothing\n");
    clone.write("things/db.yaml", "size: 1\n");
    clone.commit_and_push("too early");
    bench.ingested_all(&clone).await;
    assert_eq!(bench.invalid(), ["things/a.yaml", "things/b.yaml", "things/c.yaml"]);
    assert_eq!(bench.value("db").await.as_deref(), Some("size: 1"));
    let file = bench.record().await.invalid("things/a.yaml").unwrap();
    let commit = clone.git(&["rev-parse", "HEAD"]);
    assert_eq!((file.reason.as_str(), file.commit, file.waits), ("web is not there", commit, true));

    let bench = bench.restart().await;
    let last = bench.write(put("web", "replicas: 1", "anna")).await;
    bench.projected(last).await;
    bench.wait(|status| status.invalid.len() == 1).await;
    assert_eq!(bench.invalid(), ["things/c.yaml"]);
    bench.projected(bench.head().await).await;
    for name in ["a", "b"] {
        assert_eq!(bench.value(name).await.as_deref(), Some("needs: \"web\""));
        assert_eq!(bench.git(&["show", &format!("main:things/{name}.yaml")]), "# for the web\nneeds: web");
    }
    assert_eq!(bench.subjects(), ["start the control repository", "too early", "create thing web"]);
    clone.git(&["pull", "-q", "--ff-only"]);
    clone.git(&["rm", "-q", "things/c.yaml"]);
    clone.commit_and_push("no more waiting");
    bench.ingested_all(&clone).await;
    assert!(bench.invalid().is_empty() && bench.status().invalid.is_empty());
    assert_eq!(bench.value("c").await, None);
}

#[tokio::test]
async fn what_is_no_file_or_not_there_deletes_nothing() {
    let bench = Bench::start().await;
    bench.write(put("web", "replicas: 1", "anna")).await;
    let last = bench.write(put("db", "size: 1", "anna")).await;
    bench.projected(last).await;
    let clone = bench.clone_repository();
    let submodule = format!("160000,{},things/web.yaml", "1".repeat(40));
    clone.git(&["update-index", "--cacheinfo", &submodule]);
    clone.git(&["commit", "-q", "-m", "a submodule"]);
    clone.git(&["push", "-q"]);
    bench.ingested_all(&clone).await;
    assert_eq!(bench.status().invalid["things/web.yaml"].reason, "a submodule is no file");
    assert_eq!(bench.value("web").await.as_deref(), Some("replicas: 1"));

    let bench = bench.stop().await;
    clone.write("things/db.yaml", "size: 2\n");
    push(&clone, "things/db.yaml");
    let (bench, restore) = without(bench, "things/db.yaml").await;
    assert_eq!(bench.value("db").await.as_deref(), Some("size: 1"));
    restore();
    bench.ingested_all(&clone).await;
    assert_eq!(bench.value("db").await.as_deref(), Some("size: 2"));
}

/// Pushes a file and nothing else.
fn push(clone: &Clone, path: &str) {
    clone.git(&["add", path]);
    clone.git(&["commit", "-q", "-m", "more"]);
    clone.git(&["push", "-q"]);
}

/// Runs one that was stopped without what is in a file, until it says so; and what puts that back.
async fn without(bench: Bench, path: &str) -> (Bench, impl FnOnce()) {
    let blob = bench.git(&["rev-parse", &format!("main:{path}")]);
    let object = bench.repository().join("objects").join(&blob[..2]).join(&blob[2..]);
    let aside = bench.repository().join("aside");
    std::fs::rename(&object, &aside).expect("it is there");
    let bench = bench.run();
    bench.wait(|status| status.error.as_ref().is_some_and(|error| error.contains(&blob))).await;
    (bench, move || std::fs::rename(&aside, &object).expect("it is there"))
}

#[tokio::test]
async fn a_file_that_waits_and_is_missing_waits_on() {
    let bench = Bench::start().await;
    let clone = bench.clone_repository();
    clone.write("things/a.yaml", "needs: web\n");
    push(&clone, "things/a.yaml");
    bench.ingested_all(&clone).await;
    let bench = bench.stop().await;
    bench.write(put("web", "replicas: 1", "anna")).await;
    let (bench, restore) = without(bench, "things/a.yaml").await;
    bench.recorded(&["things/a.yaml"]).await;
    assert_eq!(bench.value("a").await, None);
    restore();
    bench.recorded(&[]).await;
    assert_eq!(bench.value("a").await.as_deref(), Some("needs: \"web\""));
}

#[tokio::test]
async fn record_lists_waiting_files_during_patient_push() {
    let bench = Bench::new(None).patient(Duration::from_secs(3_600)).run();
    bench.wait(|status| status.commit.is_some()).await;
    let clone = bench.clone_repository();
    for (name, content) in [("a", "needs: web\n"), ("b", "needs: db\n")] {
        clone.write(&format!("things/{name}.yaml"), content);
    }
    clone.commit_and_push("too early");
    bench.recorded(&["things/a.yaml", "things/b.yaml"]).await;
    assert!(bench.record().await.invalid("things/a.yaml").unwrap().waits);
    // Whoever waits for the one that was applied does not wait for the other.
    bench.write(put("web", "replicas: 1", "anna")).await;
    bench.recorded(&["things/b.yaml"]).await;
    assert_eq!(bench.value("a").await.as_deref(), Some("needs: \"web\""));
    bench.write(put("db", "size: 1", "anna")).await;
    bench.ingested_all(&clone).await;
    bench.recorded(&[]).await;
    assert!(bench.invalid().is_empty(), "nothing was told");
}

/// Writes so many files that are refused. In the record each takes six bytes for each of 200 characters.
fn write_long_names(clone: &Clone, count: usize) {
    for number in 0..count {
        clone.write(&format!("things/{}{number}.yaml", "\u{1}".repeat(200)), "bad: 1\n");
    }
}

#[tokio::test]
async fn server_retries_files_rejected_among_many() {
    let bench = Bench::start().await;
    let clone = bench.clone_repository();
    write_long_names(&clone, 600);
    let waiting: Vec<String> = (0..20).map(|number| format!("z{number:02}")).collect();
    for name in &waiting {
        clone.write(&format!("things/{name}.yaml"), "needs: web\n");
    }
    clone.commit_and_push("very many");
    bench.ingested_all(&clone).await;
    let bench = bench.restart().await;
    let record = bench.record().await;
    assert_eq!(bench.status().invalid.len(), 620);
    for name in &waiting {
        let file = record.invalid(&format!("things/{name}.yaml")).expect("it keeps others from writing its object");
        assert!(file.waits);
    }
    bench.write(put("web", "replicas: 1", "anna")).await;
    bench.wait(|status| status.invalid.len() == 600).await;
    for name in &waiting {
        assert_eq!(bench.value(name).await.as_deref(), Some("needs: \"web\""));
    }
}

#[tokio::test]
async fn server_reports_waiting_files_beyond_record_limit() {
    let bench = Bench::start().await;
    let clone = bench.clone_repository();
    write_long_names(&clone, 1_300);
    let long = "\u{1}".repeat(200);
    let waiting: Vec<String> = (0..20).map(|number| format!("things/z{long}{number:02}.yaml")).collect();
    for path in &waiting {
        clone.write(path, "needs: nothing\n");
    }
    clone.commit_and_push("all too much");
    bench.ingested_all(&clone).await;
    let there = bench.status().invalid;
    assert!(waiting.iter().any(|path| !there.contains_key(path)), "there is no room for all");
    let told = bench.invalid();
    assert!(waiting.iter().all(|path| told.contains(path)), "{}", told.len());
}

#[tokio::test]
async fn waiting_file_retry_ignores_remote_poll_interval() {
    let remote = Remote::start().await;
    let bench = Bench::new(Some(remote.options())).run();
    bench.wait(|status| status.commit.is_some()).await;
    let clone = remote.clone_repository();
    clone.write("things/a.yaml", "needs: web\n");
    push(&clone, "things/a.yaml");
    bench.ingested_all(&clone).await;
    let seldom = RemoteOptions { poll: Duration::from_secs(3_600), ..remote.options() };
    let bench = bench.stop().await.with_remote(Some(seldom)).run();
    bench.wait(|status| status.commit.is_some()).await;
    bench.write(put("web", "replicas: 1", "anna")).await;
    bench.recorded(&[]).await;
    assert_eq!(bench.value("a").await.as_deref(), Some("needs: \"web\""));
}
