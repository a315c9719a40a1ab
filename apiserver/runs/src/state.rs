//! What is recorded of the resources of one stack in one workspace: one record of the log per resource, and a head.
//!
//! Everything is written under the run's lease, so that a run that lost it can write no more. An intent is durable
//! before its call is made and a result before anything that depends on it starts. Records of removed resources stay,
//! marked, until the run has ended: a run that is taken up again knows from them what it has done.
//!
//! Elsewhere: `provider_states` encrypts the states of providers.

mod provider_states;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};
use stoa_engine::{
    Action, Health, ResourceId, ResourceOutcome, StateResource,
    document::{self, Document, DocumentError},
    hook,
    record::{Intent, Record},
};
use stoa_kinds::state_records::{RESOURCES, entry_key, head_key, prefix};
use stoa_machinery::{
    Key, Version,
    log::{Change, Entry, Expect, Fence, Log, LogError, Origin, Write},
};
use stoa_storage::documents::DocumentStore;
use stoa_types::reason;

use super::{StepError, documents, encryption::Encryption, resources};
use stoa_controller::blocking::{SMALL, run_blocking};

/// The largest record in the log, in bytes; etcd accepts four times as much.
const LARGEST: usize = 256 << 10;

/// What is recorded of the whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Head {
    /// The uid of the last run that wrote.
    pub run: String,
    /// Whether something changed since the last release.
    pub dirty: bool,
    /// The number of the last release; 0 before the first.
    pub last_release: i64,
    /// The uid of the run that made it.
    pub(crate) last_release_run: String,
    /// Records up to this version were healthy when it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) verified: Option<Version>,
    /// The process of the function-runner that may have calls under way: none once a conversation ended in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<String>,
}

impl Document for Head {
    const SCHEMA_VERSION: u32 = 1;
}

/// The recorded state, as its only writer sees it.
#[derive(Clone, Debug)]
pub struct State {
    prefix: String,
    fence: Option<Fence>,
    head: (Head, Option<Version>),
    entries: BTreeMap<ResourceId, (Record, Version)>,
    /// Whose health was told since it was read.
    told: BTreeSet<ResourceId>,
    /// The store of large bodies, and the keys of provider states.
    bodies: Option<Bodies>,
}

/// The store of the documents of a Stack, their scope, and the keys for it.
#[derive(Clone, Debug)]
pub struct Bodies {
    /// The store.
    pub store: Arc<dyn DocumentStore>,
    /// The scope of the Stack's documents.
    pub scope: String,
    /// The keys.
    pub encryption: Encryption,
}

/// The records of a stack in a workspace, as the log has them.
#[derive(Debug)]
pub struct Records {
    prefix: String,
    entries: Vec<Entry>,
}

impl Records {
    /// Reads them.
    ///
    /// # Errors
    ///
    /// Retry when the log cannot be read.
    pub async fn read(log: &dyn Log, stack_uid: &str, workspace: &str) -> Result<Self, StepError> {
        let prefix = prefix(stack_uid, workspace);
        let entries = log.scan(&prefix, None).await.map_err(|e| halt(&e))?.entries;
        Ok(Self { prefix, entries })
    }

    /// The same, unless they have more than so many bytes: nothing then.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub async fn read_within(
        log: &dyn Log,
        stack_uid: &str,
        workspace: &str,
        bytes: usize,
    ) -> Result<Option<Self>, StepError> {
        let prefix = prefix(stack_uid, workspace);
        let found = log.scan_within(&prefix, bytes).await.map_err(|e| halt(&e))?;
        Ok(found.map(|found| Self { prefix, entries: found.entries }))
    }

    /// The size of their documents in the log, in bytes.
    pub fn bytes(&self) -> usize {
        self.entries.iter().map(|entry| entry.value.len()).sum()
    }

    /// The state that they are.
    ///
    /// # Errors
    ///
    /// As of [`State::load`].
    pub fn decode(self, fence: Option<Fence>) -> Result<State, StepError> {
        let mut state = State {
            fence,
            head: (Head::default(), None),
            entries: BTreeMap::new(),
            told: BTreeSet::new(),
            bodies: None,
            prefix: self.prefix,
        };
        for entry in self.entries {
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
}

impl State {
    /// Reads the state of a stack in a workspace. With a fence it can be written; without, it is a
    /// view for previews. Large bodies are missing from it until [`with_bodies`](Self::with_bodies).
    ///
    /// # Errors
    ///
    /// Retry when the log cannot be read, and Failed, with what to do about it, when a record cannot be understood.
    pub async fn load(
        log: &dyn Log,
        stack_uid: &str,
        workspace: &str,
        fence: Option<Fence>,
    ) -> Result<Self, StepError> {
        Records::read(log, stack_uid, workspace).await?.decode(fence)
    }

    /// Reads the bodies that are kept as documents, and keeps those there that become large.
    ///
    /// # Errors
    ///
    /// Retry when the Backend cannot be read, Failed when a document is not there or cannot be understood.
    pub async fn with_bodies(mut self, bodies: Bodies) -> Result<Self, StepError> {
        for (entry, _) in self.entries.values_mut() {
            let Some(digest) = &entry.document else { continue };
            let body = documents::get(&*bodies.store, &bodies.scope, digest).await?;
            let decoded = run_blocking(body.len(), move || document::decode(&body)).await;
            entry.resource = Some(decoded.map_err(|e| unreadable(&entry.id.0, digest, &e))?);
        }
        self.bodies = Some(bodies);
        Ok(self)
    }

    /// The record as it is kept in the log, which takes small ones only.
    async fn stored(&self, entry: &mut Record) -> Result<Bytes, StepError> {
        if entry.document.is_none() {
            let bytes = document::encode(entry);
            let (Some(resource), Some(Bodies { store, scope, .. })) = (&entry.resource, &self.bodies) else {
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

    /// The digests of the bodies that are kept as documents, and whose they are, for who reads them apart.
    pub fn kept_bodies(&self) -> impl Iterator<Item = (&ResourceId, &str)> {
        self.entries().filter_map(|entry| Some((&entry.id, entry.document.as_deref()?)))
    }

    /// Puts such a body where it belongs.
    ///
    /// # Errors
    ///
    /// Failed when it cannot be understood.
    pub fn set_body(&mut self, id: &ResourceId, body: &[u8]) -> Result<(), StepError> {
        let Some((entry, _)) = self.entries.get_mut(id) else { return Ok(()) };
        let digest = entry.document.as_deref().unwrap_or_default();
        entry.resource = Some(document::decode(body).map_err(|e| unreadable(&id.0, digest, &e))?);
        Ok(())
    }

    /// The head, as it was read or last written.
    pub fn head(&self) -> &Head {
        &self.head.0
    }

    /// What is recorded, by id; removed resources included while their run lasts.
    pub fn entries(&self) -> impl Iterator<Item = &Record> {
        self.entries.values().map(|(entry, _)| entry)
    }

    /// How many resources are live, as far as is recorded, or may be: what became of a call is not known.
    pub(crate) fn live(&self) -> usize {
        self.entries().filter(|e| e.is_there() || e.intent.is_some()).count()
    }

    /// The ids with a change of this Run on record; others may be repeated.
    pub(crate) fn done_by(&self, run: &str) -> Vec<String> {
        self.changes_by(run).map(|id| id.0.clone()).collect()
    }

    /// The hooks whose failure is on record for this Run. They are not run again.
    pub(crate) fn failed_hooks_of(&self, run: &str) -> Vec<stoa_proto::FailedHook> {
        let failed = self.entries().filter(|entry| hook::is_hook_id(&entry.id)).filter_map(|entry| {
            let result = entry.result.as_ref().filter(|r| r.run == run && r.outcome == ResourceOutcome::Failed)?;
            Some(stoa_proto::FailedHook { id: entry.id.0.clone(), message: result.message.clone() })
        });
        failed.collect()
    }

    /// How many they are.
    pub(crate) fn changed_by(&self, run: &str) -> usize {
        self.changes_by(run).count()
    }

    /// Whether this run has changed something, or may have by a call whose end is not known.
    pub(crate) fn may_be_changed_by(&self, run: &str) -> bool {
        self.changed_by(run) > 0 || !self.unheard_of(run).is_empty()
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

    pub(crate) fn newest(&self) -> Option<Version> {
        self.entries.values().map(|(_, version)| *version).max()
    }

    /// The ids that were not seen healthy after their last change: no Release is made before they are.
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
        entry_key(&self.prefix, &id.0)
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

    pub(crate) async fn set_head(&mut self, log: &dyn Log, head: Head) -> Result<(), StepError> {
        if self.head.1.is_some() && self.head.0 == head {
            return Ok(());
        }
        let write = self.write(self.head_key(), self.head.1, Change::Put(document::encode(&head).into()), &head.run);
        let version = log.append(write).await.map_err(|e| halt(&e))?;
        self.head = (head, Some(version));
        Ok(())
    }

    /// Records entries, all at once, with their provider states encrypted; each is durable when this returns.
    ///
    /// # Errors
    ///
    /// When the log does not take them, or when another writer has recorded since.
    pub async fn record(&mut self, log: &dyn Log, mut entries: Vec<Record>) -> Result<(), StepError> {
        entries.iter_mut().try_for_each(|entry| self.seal(entry))?;
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

    /// The record of an id, to be changed and recorded; it says by itself whether it was healthy.
    pub fn entry(&self, id: &ResourceId) -> Record {
        let mut entry = self.entries.get(id).map_or_else(|| Record::new(id.clone()), |(entry, _)| entry.clone());
        let is_verified = self.is_verified(id);
        if let Some(result) = &mut entry.result {
            result.verified = is_verified;
        }
        entry
    }

    /// Sets the health of a resource. [`record_health`](Self::record_health) records it where no Release is made.
    pub(crate) fn set_health(&mut self, id: &ResourceId, health: Health) {
        if let Some(result) = self.entries.get_mut(id).and_then(|(entry, _)| entry.result.as_mut()) {
            result.health = Some(health);
            result.verified = health.is_settled();
            self.told.insert(id.clone());
        }
    }

    /// Records how resources fare, as far as that was told.
    pub(crate) async fn record_health(&mut self, log: &dyn Log) -> Result<(), StepError> {
        let entries = self.told.iter().filter_map(|id| self.entries.get(id)).map(|(entry, _)| entry.clone()).collect();
        self.record(log, entries).await
    }

    /// The ids of the resources that are removed, as long as the run lasts that removed them.
    pub(crate) fn removed(&self) -> impl Iterator<Item = &ResourceId> {
        let is_removed = |entry: &&Record| !entry.is_there() && entry.intent.is_none() && !hook::is_hook_id(&entry.id);
        self.entries().filter(is_removed).map(|entry| &entry.id)
    }

    pub(crate) fn fence(&self) -> Option<Fence> {
        self.fence.clone()
    }

    /// Drops what is kept only while a run lasts.
    pub(crate) async fn forget_removed(&mut self, log: &dyn Log, run: &str) -> Result<(), StepError> {
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
    pub fn document(&self) -> Bytes {
        let resources = self.entries().filter_map(|e| e.resource.clone()).collect();
        Bytes::from(document::encode(&stoa_engine::State { resources, open: Vec::new() }))
    }

    /// The resources of which there is a call whose end nobody knows.
    pub fn open(&self) -> impl Iterator<Item = &ResourceId> {
        self.entries().filter(|entry| entry.intent.is_some()).map(|entry| &entry.id)
    }

    /// The ids of the calls of a run of which nobody heard what became of them.
    pub(crate) fn unheard_of(&self, run: &str) -> Vec<ResourceId> {
        self.entries().filter(|entry| resources::is_unheard_of(entry, run)).map(|entry| entry.id.clone()).collect()
    }

    /// The state as the function-runner takes it, with provider states in clear.
    ///
    /// # Errors
    ///
    /// Failed when a provider state does not decrypt.
    pub async fn for_runner(&self) -> Result<Vec<stoa_proto::StateEntry>, StepError> {
        self.for_run(&[], "").await
    }

    /// The same for the run with this uid, by which some calls may be made again that nobody can look for: those that it
    /// names, as far as they are of earlier runs. What it called for itself nobody has looked for since.
    pub(crate) async fn for_run(&self, retry: &[String], uid: &str) -> Result<Vec<stoa_proto::StateEntry>, StepError> {
        let bytes = self.sealed_bytes();
        if bytes < SMALL {
            return self.entries_for(retry, uid);
        }
        let (state, retry, uid) = (self.clone(), retry.to_vec(), uid.to_owned());
        run_blocking(bytes, move || state.entries_for(&retry, &uid)).await
    }

    fn entries_for(&self, retry: &[String], uid: &str) -> Result<Vec<stoa_proto::StateEntry>, StepError> {
        let may_be_retried = |id: &ResourceId, intent: &Intent| intent.run != uid && retry.contains(&id.0);
        let of_runner = |entry: &Record| {
            let resource = entry.resource.as_ref().map(|resource| self.opened(resource)).transpose()?;
            let encode =
                |resource: &StateResource| serde_json::to_vec(resource).expect("a recorded resource serializes");
            Ok(stoa_proto::StateEntry {
                id: entry.id.0.clone(),
                resource: resource.as_deref().map(encode).unwrap_or_default().into(),
                intent: entry.intent.as_ref().map(|i| stoa_proto::Intent {
                    action: i.action.to_string(),
                    run: i.run.clone(),
                    place: Some(stoa_proto::Place {
                        clusters: i.place.clusters.clone(),
                        import_id: i.place.import_id.clone(),
                        r#type: i.place.kind.to_string(),
                    }),
                    retry: may_be_retried(&entry.id, i),
                }),
                finished: entry.intent.is_none() && entry.result.as_ref().is_some_and(|result| result.finished),
                verified: entry.intent.is_none() && self.is_verified(&entry.id),
            })
        };
        self.entries().filter(|e| e.resource.is_some() || e.intent.is_some()).map(of_runner).collect()
    }
}

/// What it means for a run that a record cannot be understood. The record stays as it is.
fn unreadable(of: &str, at: &str, error: &DocumentError) -> StepError {
    let cause = std::error::Error::source(error).map(|cause| format!(" ({cause})")).unwrap_or_default();
    let message = format!(
        "the record of {of} cannot be read: {error}{cause}. Nothing was changed; {}. The record is at {at}",
        error.advice()
    );
    StepError::failed(reason::UNREADABLE_STATE, message)
}

fn decode_head(key: &Key, bytes: &[u8]) -> Result<Head, StepError> {
    document::decode(bytes).map_err(|e| unreadable("the deployment", key.as_str(), &e))
}

/// The head of a stack in a workspace.
///
/// # Errors
///
/// As of [`State::load`].
pub async fn head(log: &dyn Log, stack_uid: &str, workspace: &str) -> Result<Head, StepError> {
    let key = head_key(&prefix(stack_uid, workspace));
    let entry = log.read(&key).await.map_err(|e| halt(&e))?;
    entry.map_or_else(|| Ok(Head::default()), |entry| decode_head(&key, &entry.value))
}

/// The workspaces for which something is recorded of a stack that is there or may be, or that cannot be read.
pub async fn workspaces_of(log: &dyn Log, stack_uid: &str) -> Result<BTreeSet<String>, LogError> {
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
pub async fn forget_stack(log: &dyn Log, stack_uid: &str) -> Result<(), LogError> {
    let snapshot = log.scan(&format!("/stoa/state/{stack_uid}/"), None).await?;
    for entry in snapshot.entries {
        log.append(Write::new(entry.key, Expect::Any, Change::Delete).by("system:stoa:stacks")).await?;
    }
    Ok(())
}

/// What a failure of the log means for a run.
pub fn halt(error: &LogError) -> StepError {
    match error {
        LogError::Fenced { .. } | LogError::Conflict { .. } => StepError::Abandoned(error.to_string()),
        LogError::Held { .. } | LogError::Unavailable(_) | LogError::Expired { .. } | LogError::Future { .. } => {
            StepError::Retry(error.to_string())
        }
        // Neither passes by itself.
        LogError::TooLarge { .. } => StepError::failed(reason::APPLY_FAILED, error.to_string()),
        LogError::Corrupt(_) => StepError::failed(reason::UNREADABLE_STATE, error.to_string()),
    }
}

#[cfg(test)]
mod tests;
