//! What is read of records, old ones too, and what is written over a log in memory.

use serde_json::{Value, json};
use stoa_engine::record::CallTarget;
use stoa_machinery::log::MemoryLog;
use stoa_storage::documents::LocalDocuments;

use super::*;

const HEAD: &str = "/stoa/state/uid/dev/head";
const A: &str = "/stoa/state/uid/dev/resources/v1:ConfigMap:shop:a";

async fn log_of(records: &[(&str, Value)]) -> MemoryLog {
    let log = MemoryLog::new();
    for (key, value) in records {
        let change = Change::Put(value.to_string().into());
        log.append(Write::new(Key::new(*key), Expect::Absent, change)).await.unwrap();
    }
    log
}

async fn load(log: &MemoryLog) -> Result<State, StepError> {
    State::load(log, "uid", "dev", None).await
}

/// As they were written before records had versions.
fn unversioned() -> [(&'static str, Value); 2] {
    let head = json!({"run": "r1", "dirty": true, "lastRelease": 2, "lastReleaseRun": "r0"});
    let resource = json!({"id": "v1:ConfigMap:shop:a", "type": "Kubernetes", "attributes": {"data": {"a": "1"}}});
    let result = json!({"run": "r1", "action": "Create", "outcome": "Done", "time": "2026-01-02T03:04:05Z",
        "kubernetes": {"cluster": "main", "version": "v1", "kind": "ConfigMap", "name": "a"},
        "dependsOn": ["v1:Namespace:shop"], "health": "InProgress"});
    let intent = json!({"action": "Update", "run": "r1"});
    let entry = json!({"id": "v1:ConfigMap:shop:a", "resource": resource, "intent": intent, "result": result});
    [(HEAD, head), (A, entry)]
}

#[tokio::test]
async fn unversioned_records_get_a_version() {
    let log = log_of(&unversioned()).await;
    let mut state = load(&log).await.unwrap();
    assert_eq!((state.head().last_release, state.live()), (2, 1));
    let entry = state.entry(&"v1:ConfigMap:shop:a".into());
    assert_eq!(entry.intent.as_ref().unwrap().action, Action::Update);
    let result = entry.result.as_ref().unwrap();
    assert_eq!((result.outcome, result.health), (ResourceOutcome::Done, Some(Health::InProgress)));
    assert_eq!(result.kubernetes.as_ref().unwrap().name, "a");

    state.record(&log, vec![entry.clone()]).await.unwrap();
    state.set_head(&log, Head { run: "r2".to_owned(), ..state.head().clone() }).await.unwrap();
    for kept in log.scan("/stoa/state/", None).await.unwrap().entries {
        let kept: Value = serde_json::from_slice(&kept.value).unwrap();
        assert_eq!(kept["schemaVersion"], 1, "{kept}");
    }
    assert_eq!(load(&log).await.unwrap().entry(&entry.id), entry);
    let document: Value = serde_json::from_slice(&state.document()).unwrap();
    assert_eq!((&document["schemaVersion"], &document["resources"][0]["id"]), (&json!(1), &json!(entry.id)));
}

#[tokio::test]
async fn unchanged_and_intended_resources_are_not_done() {
    for (action, done) in [("Update", 1), ("Forget", 1), ("Unchanged", 0)] {
        let result = json!({"run": "r1", "action": action, "outcome": "Done"});
        let record = json!({"id": "v1:ConfigMap:shop:a", "result": result});
        let state = load(&log_of(&[(A, record)]).await).await.unwrap();
        assert_eq!((state.done_by("r1").len(), state.changed_by("r1")), (done, done), "{action}");
        assert!(state.done_by("r2").is_empty());
    }
}

#[tokio::test]
async fn failed_hooks_of_a_run_have_their_messages() {
    let hook = "helm.sh/hook:pre-install:batch/v1:Job:shop:a";
    for (id, outcome, expected) in
        [(hook, "Failed", Some("exit code 1")), (hook, "Done", None), ("v1:ConfigMap:shop:a", "Failed", None)]
    {
        let result = json!({"run": "r1", "action": "Create", "outcome": outcome, "message": "exit code 1"});
        let state = load(&log_of(&[(A, json!({"id": id, "result": result}))]).await).await.unwrap();
        let failed = state.failed_hooks_of("r1");
        let found = failed.first().map(|it| (it.id.as_str(), it.message.as_str()));
        assert_eq!(found, expected.map(|message| (id, message)), "{outcome}");
        assert!(state.failed_hooks_of("r2").is_empty());
    }
}

#[tokio::test]
async fn unhealthy_resources_are_owed_until_a_release() {
    let log = log_of(&[]).await;
    let mut state = load(&log).await.unwrap();
    let dirty = Head { run: "r1".to_owned(), dirty: true, ..Head::default() };
    state.set_head(&log, dirty).await.unwrap();
    let (a, b): (ResourceId, ResourceId) = ("v1:ConfigMap:shop:a".into(), "v1:ConfigMap:shop:b".into());
    let changed = |state: &State, id: &ResourceId| {
        let unversioned = unversioned()[1].1.to_string();
        let mut entry: Record = document::decode(unversioned.as_bytes()).unwrap();
        entry = Record { id: id.clone(), intent: None, ..entry };
        assert!(!state.is_verified(id));
        entry
    };
    let entries = vec![changed(&state, &a), changed(&state, &b)];
    state.record(&log, entries).await.unwrap();
    assert_eq!(state.owed(), [a.clone(), b.clone()]);
    state.set_health(&a, Health::Current);
    state.set_health(&b, Health::InProgress);
    assert_eq!(state.owed(), std::slice::from_ref(&b));
    assert_eq!(load(&log).await.unwrap().owed(), [a.clone(), b.clone()], "it is not recorded yet");
    state.record_health(&log).await.unwrap();
    let mut state = load(&log).await.unwrap();
    assert_eq!(state.owed(), std::slice::from_ref(&b));

    let released = Head { dirty: false, verified: state.newest(), ..state.head().clone() };
    state.set_head(&log, released).await.unwrap();
    state.set_head(&log, Head { dirty: true, ..state.head().clone() }).await.unwrap();
    let mut state = load(&log).await.unwrap();
    assert!(state.owed().is_empty(), "the release says that all were healthy");
    // A call that may have changed one owes it again, and nothing else.
    let intent = Intent { action: Action::Update, run: "r2".to_owned(), place: CallTarget::default() };
    let entry = Record { intent: Some(intent), ..state.entry(&b) };
    state.record(&log, vec![entry]).await.unwrap();
    let mut state = load(&log).await.unwrap();
    assert_eq!(state.owed(), std::slice::from_ref(&b));
    let entry = Record { intent: None, ..state.entry(&b) };
    state.record(&log, vec![entry]).await.unwrap();
    assert!(load(&log).await.unwrap().owed().is_empty(), "it was refused, and is as it was");
}

#[tokio::test]
async fn large_bodies_are_documents() {
    let folder = tempfile::TempDir::new().unwrap();
    let store: Arc<dyn DocumentStore> = Arc::new(LocalDocuments::open(folder.path()).unwrap());
    let log = log_of(&[]).await;
    let encryption = Encryption::with_keys(&[1]);
    let bodies = || Bodies { store: store.clone(), scope: "shop/uid".to_owned(), encryption: encryption.clone() };
    let whole = async || load(&log).await.unwrap().with_bodies(bodies()).await;
    let mut state = whole().await.unwrap();
    let mut entry: Record = document::decode(unversioned()[1].1.to_string().as_bytes()).unwrap();
    let large = "x".repeat(1 << 20);
    entry.resource.as_mut().unwrap().attributes.insert("data".to_owned(), large.clone().into());
    state.record(&log, vec![entry.clone()]).await.unwrap();
    let size = async || log.scan("/stoa/state/", None).await.unwrap().entries[0].value.len();
    assert!(size().await < 1024, "{}", size().await);

    // Whoever only counts needs no bodies; whoever plans has them all.
    assert_eq!(load(&log).await.unwrap().live(), 1);
    let mut state = whole().await.unwrap();
    let mut read = state.entry(&entry.id);
    assert_eq!(read.resource, entry.resource);
    // Whoever reads them apart knows beforehand how much that is.
    let records = Records::read(&log, "uid", "dev").await.unwrap();
    assert!(records.bytes() < 1024, "{}", records.bytes());
    let mut apart = records.decode(None).unwrap();
    let bodies: Vec<_> = apart.kept_bodies().map(|(id, digest)| (id.clone(), digest.to_owned())).collect();
    let [(id, digest)] = &bodies[..] else { panic!("{bodies:?}") };
    assert!(documents::size(&*store, "shop/uid", digest).await.unwrap() > large.len() as u64);
    let body = documents::get(&*store, "shop/uid", digest).await.unwrap();
    apart.set_body(id, &body).unwrap();
    assert_eq!(apart.entry(id).resource, entry.resource);
    assert!(state.for_runner().await.unwrap()[0].resource.len() > large.len() && state.document().len() > large.len());
    // Another intent leaves the body as it is, and a body that is small again is in the record.
    read.intent = None;
    state.record(&log, vec![read.clone()]).await.unwrap();
    assert!(size().await < 1024);
    assert_eq!(whole().await.unwrap().entry(&entry.id).resource, entry.resource);
    read.resource.as_mut().unwrap().attributes.insert("data".to_owned(), "x".into());
    read.document = None;
    state.record(&log, vec![read]).await.unwrap();
    let state = load(&log).await.unwrap();
    assert_eq!(state.entry(&entry.id).resource.unwrap().attributes["data"], "x");
}

#[tokio::test]
async fn what_may_be_there_counts() {
    let [_, (key, mut entry)] = unversioned();
    let check = async |value: &Value| {
        let log = log_of(&[(key, value.clone())]).await;
        let workspaces: Vec<String> = workspaces_of(&log, "uid").await.unwrap().into_iter().collect();
        (load(&log).await.map_or(0, |state| state.live()), workspaces.join(","))
    };
    assert_eq!(check(&entry).await, (1, "dev".to_owned()));
    entry["resource"] = Value::Null;
    assert_eq!(check(&entry).await, (1, "dev".to_owned()), "the intent is open");
    entry["intent"] = Value::Null;
    assert_eq!(check(&entry).await, (0, String::new()), "it was removed");
    entry["schemaVersion"] = json!(1000);
    assert_eq!(check(&entry).await, (0, "dev".to_owned()), "nobody knows");
}

#[tokio::test]
async fn unverified_heads_owe_unhealthy_resources() {
    assert_eq!(load(&log_of(&unversioned()).await).await.unwrap().owed().len(), 1);
    let [(head, mut clean), mut entry] = unversioned();
    clean["dirty"] = json!(false);
    entry.1["intent"] = Value::Null;
    assert!(load(&log_of(&[(head, clean), entry]).await).await.unwrap().owed().is_empty());
}

#[tokio::test]
async fn error_about_a_record_names_a_remedy() {
    let check = async |record: usize, change: Value, expected: [&str; 3]| {
        let mut records = unversioned();
        records[record].1.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let Err(StepError::Failed { reason, message }) = load(&log_of(&records).await).await else {
            panic!("it is read")
        };
        assert_eq!(reason, reason::UNREADABLE_STATE);
        for part in expected {
            assert!(message.contains(part), "{message:?} says nothing of {part:?}");
        }
    };
    check(0, json!({"schemaVersion": 2}), ["the deployment", "schemaVersion 2", "run the version of Stoa"]).await;
    check(0, json!({"lastRelease": "two"}), ["the deployment", HEAD, "restore it from a backup"]).await;
    check(1, json!({"schemaVersion": 7, "resource": 1}), ["v1:ConfigMap:shop:a", "schemaVersion 7", A]).await;
    check(1, json!({"resource": 1}), ["v1:ConfigMap:shop:a", "does not decode", "restore it from a backup"]).await;
    check(1, json!({"intent": {"action": "Explode", "run": "r"}}), ["shop:a", "Explode", "Nothing was changed"]).await;
}
