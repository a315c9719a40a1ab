//! What is recorded of the resources of one stack in one workspace: one record of the log per
//! resource, and a head.
//!
//! Everything is written under the run's lease, so that a run that lost it can write no more. An
//! intent is durable before its call is made and a result before anything that depends on it
//! starts. Records of removed resources stay, marked, until the run has ended: a run that is
//! taken up again knows from them what it has done.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};
use stoa_engine::{
    Action, Health, ResourceId, ResourceOutcome,
    document::{self, Document, DocumentError},
    record::{Intent, Record},
};
use stoa_machinery::{
    Key, Version,
    log::{Change, Expect, Fence, Log, LogError, Origin, Write},
};
use stoa_storage::documents::DocumentStore;
use stoa_types::reason;

use super::{Halt, documents, resources};
use crate::aside::aside;

/// The largest record in the log, in bytes: etcd takes little more than four times as much, and the log of all runs is
/// read whole now and then.
const LARGEST: usize = 256 << 10;
/// Where in a deployment's records those of its resources are.
const RESOURCES: &str = "resources/";

/// What is recorded of the whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Head {
    /// The uid of the last run that wrote.
    pub(crate) run: String,
    /// Whether something changed since the last release.
    pub(crate) dirty: bool,
    /// The number of the last release; 0 before the first.
    pub(crate) last_release: i64,
    /// The uid of the run that made it.
    pub(crate) last_release_run: String,
    /// Records up to this version were healthy when it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) verified: Option<Version>,
    /// The process of the function-runner that may have calls under way: none once a conversation ended in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) runner: Option<String>,
}

impl Document for Head {
    const SCHEMA_VERSION: u32 = 1;
}

/// The recorded state, as its only writer sees it.
#[derive(Debug)]
pub(crate) struct State {
    prefix: String,
    fence: Option<Fence>,
    head: (Head, Option<Version>),
    entries: BTreeMap<ResourceId, (Record, Version)>,
    /// Whose health was told since it was read.
    told: BTreeSet<ResourceId>,
    /// Where large bodies are, and the scope they are in.
    bodies: Option<(Arc<dyn DocumentStore>, String)>,
    /// How many bytes of records and bodies were read.
    bytes_read: usize,
}

impl State {
    /// Reads the state of a stack in a workspace. With a fence it can be written; without, it is a
    /// view for previews. Large bodies are missing from it until [`with_bodies`](Self::with_bodies).
    ///
    /// # Errors
    ///
    /// Retry when the log cannot be read, and Failed, with what to do about it, when a record cannot be understood.
    pub(crate) async fn load(
        log: &dyn Log,
        stack_uid: &str,
        workspace: &str,
        fence: Option<Fence>,
    ) -> Result<Self, Halt> {
        let prefix = prefix(stack_uid, workspace);
        let snapshot = log.scan(&prefix, None).await.map_err(|e| halt(&e))?;
        let mut state = Self {
            fence,
            head: (Head::default(), None),
            entries: BTreeMap::new(),
            told: BTreeSet::new(),
            bodies: None,
            bytes_read: snapshot.entries.iter().map(|entry| entry.value.len()).sum(),
            prefix,
        };
        for entry in snapshot.entries {
            if entry.key == state.head_key() {
                state.head = (decode_head(&entry.key, &entry.value)?, Some(entry.version));
            } else {
                let id = entry.key.as_str().strip_prefix(&state.prefix).unwrap_or_default();
                let id = id.strip_prefix(RESOURCES).unwrap_or(id);
                let record: Record =
                    document::decode(&entry.value).map_err(|e| unreadable(id, entry.key.as_str(), &e))?;
                state.entries.insert(record.id.clone(), (record, entry.version));
            }
        }
        if !state.head.0.dirty && state.head.0.verified.is_none() {
            // Of a release that did not note it yet. Nothing was changed since.
            state.head.0.verified = state.newest();
        }
        Ok(state)
    }

    /// Reads the bodies that are kept as documents, and keeps those there that become large.
    ///
    /// # Errors
    ///
    /// Retry when the Backend cannot be read, Failed when a document is not there or cannot be understood.
    pub(crate) async fn with_bodies(mut self, store: Arc<dyn DocumentStore>, scope: String) -> Result<Self, Halt> {
        for (entry, _) in self.entries.values_mut() {
            let Some(digest) = &entry.document else { continue };
            let body = documents::get(&*store, &scope, digest).await?;
            self.bytes_read += body.len();
            let decoded = aside(body.len(), move || document::decode(&body)).await;
            entry.resource = Some(decoded.map_err(|e| unreadable(&entry.id.0, digest, &e))?);
        }
        self.bodies = Some((store, scope));
        Ok(self)
    }

    /// The record as it is kept in the log, which takes small ones only.
    async fn stored(&self, entry: &mut Record) -> Result<Bytes, Halt> {
        if entry.document.is_none() {
            let bytes = document::encode(entry);
            let (Some(resource), Some((store, scope))) = (&entry.resource, &self.bodies) else {
                return Ok(bytes.into());
            };
            if bytes.len() <= LARGEST {
                return Ok(bytes.into());
            }
            let body = Bytes::from(document::encode(resource));
            entry.document = Some(documents::put_owed(&**store, scope, body).await?);
        }
        Ok(document::encode(&Record { resource: None, ..entry.clone() }).into())
    }

    /// How many bytes of records and bodies were read, which says how long it takes to show them.
    pub(crate) fn bytes_read(&self) -> usize {
        self.bytes_read
    }

    /// The head.
    pub(crate) fn head(&self) -> &Head {
        &self.head.0
    }

    /// What is recorded, by id; removed resources included while their run lasts.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Record> {
        self.entries.values().map(|(entry, _)| entry)
    }

    /// How many resources are live, as far as is recorded, or may be: what became of a call is not known.
    pub(crate) fn live(&self) -> usize {
        self.entries().filter(|e| e.is_there() || e.intent.is_some()).count()
    }

    /// The ids whose results of this run are recorded. What was left as it is can be left again, and what was only put on
    /// record before its call has that to come.
    pub(crate) fn done_by(&self, run: &str) -> Vec<String> {
        self.changes_by(run).map(|id| id.0.clone()).collect()
    }

    /// How many they are.
    pub(crate) fn changed_by(&self, run: &str) -> usize {
        self.changes_by(run).count()
    }

    fn changes_by(&self, run: &str) -> impl Iterator<Item = &ResourceId> {
        self.entries().filter_map(move |entry| {
            let result = entry.result.as_ref().filter(|r| r.run == run && r.outcome == ResourceOutcome::Done)?;
            let is_change = result.action != Action::Unchanged && entry.intent.is_none();
            is_change.then_some(&entry.id)
        })
    }

    /// The version of the record of an id, if there is one.
    pub(crate) fn version(&self, id: &ResourceId) -> Option<Version> {
        self.entries.get(id).map(|(_, version)| *version)
    }

    /// The version of the last record.
    pub(crate) fn newest(&self) -> Option<Version> {
        self.entries.values().map(|(_, version)| *version).max()
    }

    /// The ids of what was not seen healthy after its last change, or after a call that may have changed it: no release
    /// is made before it is.
    pub(crate) fn owed(&self) -> Vec<ResourceId> {
        let is_owed = |e: &&Record| e.intent.is_some() || (e.is_there() && !self.is_verified(&e.id));
        self.entries().filter(is_owed).map(|e| e.id.clone()).collect()
    }

    /// Whether it was told how a resource fares.
    pub(crate) fn was_told(&self, id: &ResourceId) -> bool {
        self.told.contains(id)
    }

    /// Whether a resource was seen healthy after its last change.
    pub(crate) fn is_verified(&self, id: &ResourceId) -> bool {
        self.entries.get(id).is_some_and(|(entry, version)| {
            self.head.0.verified.is_some_and(|verified| *version <= verified)
                || entry.result.as_ref().is_some_and(|result| result.verified)
        })
    }

    /// The uids of the objects that were seen healthy after their last changes, whatever ids they are on record under.
    pub(crate) fn verified_objects(&self) -> BTreeSet<String> {
        let (mut verified, mut others) = (BTreeSet::new(), BTreeSet::new());
        for entry in self.entries() {
            let Some(uid) = entry.resource.as_ref().and_then(|resource| resource.uid()) else { continue };
            let is_verified = entry.intent.is_none() && self.is_verified(&entry.id);
            let of_its_kind = if is_verified { &mut verified } else { &mut others };
            of_its_kind.insert(uid.to_owned());
        }
        verified.retain(|uid| !others.contains(uid));
        verified
    }

    fn head_key(&self) -> Key {
        head_key(&self.prefix)
    }

    fn entry_key(&self, id: &ResourceId) -> Key {
        Key::new(format!("{}{RESOURCES}{id}", self.prefix))
    }

    fn write(&self, key: Key, known: Option<Version>, change: Change, run: &str) -> Write {
        Write {
            key,
            expect: known.map_or(Expect::Absent, Expect::At),
            change,
            fence: self.fence.clone(),
            origin: Origin { user: "system:stoa:runs".to_owned(), verb: String::new(), message: run.to_owned() },
        }
    }

    /// Records the head.
    pub(crate) async fn set_head(&mut self, log: &dyn Log, head: Head) -> Result<(), Halt> {
        if self.head.1.is_some() && self.head.0 == head {
            return Ok(());
        }
        let write = self.write(self.head_key(), self.head.1, Change::Put(document::encode(&head).into()), &head.run);
        let version = log.append(write).await.map_err(|e| halt(&e))?;
        self.head = (head, Some(version));
        Ok(())
    }

    /// Records entries, all at once; each is durable when this returns.
    pub(crate) async fn record(&mut self, log: &dyn Log, mut entries: Vec<Record>) -> Result<(), Halt> {
        let stored: Vec<Bytes> = try_join_all(entries.iter_mut().map(|entry| self.stored(entry))).await?;
        let writes = entries.iter().zip(stored).map(|(entry, stored)| {
            let known = self.entries.get(&entry.id).map(|(_, version)| *version);
            let run = entry.intent.as_ref().map(|i| &i.run).or(entry.result.as_ref().map(|r| &r.run));
            self.write(self.entry_key(&entry.id), known, Change::Put(stored), run.map_or("", String::as_str))
        });
        // They share one sync of the disk.
        let versions = try_join_all(writes.map(|write| log.append(write))).await.map_err(|e| halt(&e))?;
        for (entry, version) in entries.into_iter().zip(versions) {
            self.entries.insert(entry.id.clone(), (entry, version));
        }
        Ok(())
    }

    /// The entry of an id, to be changed and recorded. Its version will say no more whether it was healthy, so that it
    /// does itself.
    pub(crate) fn entry(&self, id: &ResourceId) -> Record {
        let mut entry = self.entries.get(id).map_or_else(|| Record::new(id.clone()), |(entry, _)| entry.clone());
        let is_verified = self.is_verified(id);
        if let Some(result) = &mut entry.result {
            result.verified = is_verified;
        }
        entry
    }

    /// Notes how a resource fares. A release says of all that they are healthy; where none is made,
    /// [`record_health`](Self::record_health) says of each.
    pub(crate) fn set_health(&mut self, id: &ResourceId, health: Health) {
        if let Some(result) = self.entries.get_mut(id).and_then(|(entry, _)| entry.result.as_mut()) {
            result.health = Some(health);
            result.verified = health.is_settled();
            self.told.insert(id.clone());
        }
    }

    /// Records how resources fare, as far as that was told.
    pub(crate) async fn record_health(&mut self, log: &dyn Log) -> Result<(), Halt> {
        let entries = self.told.iter().filter_map(|id| self.entries.get(id)).map(|(entry, _)| entry.clone()).collect();
        self.record(log, entries).await
    }

    /// Drops what is kept only while a run lasts.
    pub(crate) async fn forget_removed(&mut self, log: &dyn Log, run: &str) -> Result<(), Halt> {
        let removed: Vec<(ResourceId, Version)> = self
            .entries
            .values()
            .filter(|(entry, _)| !entry.is_there() && entry.intent.is_none())
            .map(|(entry, version)| (entry.id.clone(), *version))
            .collect();
        let writes =
            removed.iter().map(|(id, version)| self.write(self.entry_key(id), Some(*version), Change::Delete, run));
        try_join_all(writes.map(|write| log.append(write))).await.map_err(|e| halt(&e))?;
        for (id, _) in removed {
            self.entries.remove(&id);
        }
        Ok(())
    }

    /// The state as a document, resources in the order of their ids.
    pub(crate) fn document(&self) -> Bytes {
        let resources = self.entries().filter_map(|e| e.resource.clone()).collect();
        Bytes::from(document::encode(&stoa_engine::State { resources, open: Vec::new() }))
    }

    /// The resources of which there is a call whose end nobody knows.
    pub(crate) fn open(&self) -> impl Iterator<Item = &ResourceId> {
        self.entries().filter(|entry| entry.intent.is_some()).map(|entry| &entry.id)
    }

    /// The ids of the calls of a run of which nobody heard what became of them.
    pub(crate) fn unheard_of(&self, run: &str) -> Vec<ResourceId> {
        self.entries().filter(|entry| resources::is_unheard_of(entry, run)).map(|entry| entry.id.clone()).collect()
    }

    /// The state as the function-runner takes it.
    pub(crate) fn for_runner(&self) -> Vec<stoa_proto::StateEntry> {
        self.for_run(&[], "")
    }

    /// The same for the run with this uid, by which some calls may be made again that nobody can look for: those that it
    /// names, as far as they are of earlier runs. What it called for itself nobody has looked for since.
    pub(crate) fn for_run(&self, retry: &[String], uid: &str) -> Vec<stoa_proto::StateEntry> {
        let may_be_retried = |id: &ResourceId, intent: &Intent| intent.run != uid && retry.contains(&id.0);
        let resource = |resource| serde_json::to_vec(resource).expect("a recorded resource serializes");
        self.entries()
            .filter(|e| e.resource.is_some() || e.intent.is_some())
            .map(|e| stoa_proto::StateEntry {
                id: e.id.0.clone(),
                resource: e.resource.as_ref().map(resource).unwrap_or_default().into(),
                intent: e.intent.as_ref().map(|i| stoa_proto::Intent {
                    action: i.action.to_string(),
                    run: i.run.clone(),
                    place: Some(stoa_proto::Place {
                        clusters: i.place.clusters.clone(),
                        import_id: i.place.import_id.clone(),
                    }),
                    retry: may_be_retried(&e.id, i),
                }),
            })
            .collect()
    }
}

/// What it means for a run that a record cannot be understood. The record stays as it is.
fn unreadable(of: &str, at: &str, error: &DocumentError) -> Halt {
    let cause = std::error::Error::source(error).map(|cause| format!(" ({cause})")).unwrap_or_default();
    let message = format!(
        "what is recorded of {of} cannot be read: {error}{cause}. Nothing was changed; {}. It is at {at}",
        error.advice()
    );
    Halt::failed(reason::UNREADABLE_STATE, message)
}

/// Where the records of a stack in a workspace are.
fn prefix(stack_uid: &str, workspace: &str) -> String {
    format!("/stoa/state/{stack_uid}/{workspace}/")
}

fn head_key(prefix: &str) -> Key {
    Key::new(format!("{prefix}head"))
}

fn decode_head(key: &Key, bytes: &[u8]) -> Result<Head, Halt> {
    document::decode(bytes).map_err(|e| unreadable("the deployment", key.as_str(), &e))
}

/// The head of a stack in a workspace.
///
/// # Errors
///
/// As of [`State::load`].
pub(crate) async fn head(log: &dyn Log, stack_uid: &str, workspace: &str) -> Result<Head, Halt> {
    let key = head_key(&prefix(stack_uid, workspace));
    let entry = log.read(&key).await.map_err(|e| halt(&e))?;
    entry.map_or_else(|| Ok(Head::default()), |entry| decode_head(&key, &entry.value))
}

/// The workspaces for which something is recorded of a stack that is there or may be, or that cannot be read.
pub(crate) async fn workspaces_of(log: &dyn Log, stack_uid: &str) -> Result<BTreeSet<String>, LogError> {
    let prefix = format!("/stoa/state/{stack_uid}/");
    let entries = log.scan(&prefix, None).await?.entries;
    let recorded = entries.iter().filter_map(|entry| {
        let (workspace, of) = entry.key.as_str().strip_prefix(&prefix)?.split_once('/')?;
        let is_there = match document::decode::<Record>(&entry.value) {
            Ok(record) => record.is_there() || record.intent.is_some(),
            Err(_) => true,
        };
        (of.starts_with(RESOURCES) && is_there).then(|| workspace.to_owned())
    });
    Ok(recorded.collect())
}

/// Removes all that is recorded of a stack, in every workspace: what it deployed is no longer known.
pub(crate) async fn forget_stack(log: &dyn Log, stack_uid: &str) -> Result<(), LogError> {
    let snapshot = log.scan(&format!("/stoa/state/{stack_uid}/"), None).await?;
    for entry in snapshot.entries {
        let origin = Origin { user: "system:stoa:stacks".to_owned(), ..Origin::default() };
        let write = Write { key: entry.key, expect: Expect::Any, change: Change::Delete, fence: None, origin };
        log.append(write).await?;
    }
    Ok(())
}

/// What a failure of the log means for a run.
pub(crate) fn halt(error: &LogError) -> Halt {
    match error {
        LogError::Fenced { .. } | LogError::Conflict { .. } => Halt::Abandoned(error.to_string()),
        LogError::Held { .. } | LogError::Unavailable(_) | LogError::Expired { .. } | LogError::Future { .. } => {
            Halt::Retry(error.to_string())
        }
        // Neither passes by itself.
        LogError::TooLarge { .. } => Halt::failed(reason::APPLY_FAILED, error.to_string()),
        LogError::Corrupt(_) => Halt::failed(reason::UNREADABLE_STATE, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use stoa_engine::record::Place;
    use stoa_machinery::log::MemoryLog;
    use stoa_storage::documents::LocalDocuments;

    use super::*;

    const HEAD: &str = "/stoa/state/uid/dev/head";
    const A: &str = "/stoa/state/uid/dev/resources/v1:ConfigMap:shop:a";

    async fn log_of(records: &[(&str, Value)]) -> MemoryLog {
        let log = MemoryLog::new();
        for (key, value) in records {
            let change = Change::Put(value.to_string().into());
            let origin = Origin::default();
            let write = Write { key: Key::new(*key), expect: Expect::Absent, change, fence: None, origin };
            log.append(write).await.unwrap();
        }
        log
    }

    async fn load(log: &MemoryLog) -> Result<State, Halt> {
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
    async fn records_of_before_there_were_versions_are_read_and_get_one() {
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
    async fn what_a_run_left_as_it_is_or_put_on_record_before_its_call_is_not_done() {
        for (action, done) in [("Update", 1), ("Forget", 1), ("Unchanged", 0)] {
            let result = json!({"run": "r1", "action": action, "outcome": "Done"});
            let record = json!({"id": "v1:ConfigMap:shop:a", "result": result});
            let state = load(&log_of(&[(A, record)]).await).await.unwrap();
            assert_eq!((state.done_by("r1").len(), state.changed_by("r1")), (done, done), "{action}");
            assert!(state.done_by("r2").is_empty());
        }
    }

    #[tokio::test]
    async fn what_was_not_seen_healthy_is_owed_until_a_release_is_made() {
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
        let intent = Intent { action: Action::Update, run: "r2".to_owned(), place: Place::default() };
        let entry = Record { intent: Some(intent), ..state.entry(&b) };
        state.record(&log, vec![entry]).await.unwrap();
        let mut state = load(&log).await.unwrap();
        assert_eq!(state.owed(), std::slice::from_ref(&b));
        let entry = Record { intent: None, ..state.entry(&b) };
        state.record(&log, vec![entry]).await.unwrap();
        assert!(load(&log).await.unwrap().owed().is_empty(), "it was refused, and is as it was");
    }

    #[tokio::test]
    async fn large_bodies_are_documents_and_the_log_has_their_digests() {
        let folder = tempfile::TempDir::new().unwrap();
        let store: Arc<dyn DocumentStore> = Arc::new(LocalDocuments::open(folder.path()).unwrap());
        let log = log_of(&[]).await;
        let whole = async || load(&log).await.unwrap().with_bodies(store.clone(), "shop/uid".to_owned()).await;
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
        assert!(state.bytes_read() > large.len() && load(&log).await.unwrap().bytes_read() < 1024, "by what is read");
        assert!(state.for_runner()[0].resource.len() > large.len() && state.document().len() > large.len());
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
    async fn before_releases_noted_it_what_is_not_healthy_is_owed_where_none_was_made_since() {
        assert_eq!(load(&log_of(&unversioned()).await).await.unwrap().owed().len(), 1);
        let [(head, mut clean), mut entry] = unversioned();
        clean["dirty"] = json!(false);
        entry.1["intent"] = Value::Null;
        assert!(load(&log_of(&[(head, clean), entry]).await).await.unwrap().owed().is_empty());
    }

    #[tokio::test]
    async fn what_cannot_be_understood_is_named_with_what_to_do() {
        let check = async |record: usize, change: Value, expected: [&str; 3]| {
            let mut records = unversioned();
            records[record].1.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            let Err(Halt::Failed { reason, message }) = load(&log_of(&records).await).await else {
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
        check(1, json!({"intent": {"action": "Explode", "run": "r"}}), ["shop:a", "Explode", "Nothing was changed"])
            .await;
    }
}
