//! What is recorded of the resources of one stack in one workspace: one record of the log per
//! resource, and a head.
//!
//! Everything is written under the run's lease, so that a run that lost it can write no more. An
//! intent is durable before its call is made and a result before anything that depends on it
//! starts. Records of removed resources stay, marked, until the run has ended: a run that is
//! taken up again knows from them what it has done.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::future::try_join_all;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stoa_machinery::{
    Key, Version,
    log::{Change, Expect, Fence, Log, LogError, Origin, Write},
};
use stoa_types::delivery::KubernetesIdentity;

use super::Halt;

/// What is recorded of one resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    /// The engine's id.
    pub(crate) id: String,
    /// The engine's StateResource; absent when nothing was ever there, or no longer is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resource: Option<serde_json::Value>,
    /// A call that may have been made and whose result is not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) intent: Option<Intent>,
    /// What came of the last call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<Outcome>,
}

/// A call about to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Intent {
    /// The engine's action.
    pub(crate) action: String,
    /// The uid of the Run.
    pub(crate) run: String,
}

/// What came of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Outcome {
    /// The uid of the Run.
    pub(crate) run: String,
    /// The engine's action.
    pub(crate) action: String,
    /// Done, Failed or Unknown.
    pub(crate) outcome: String,
    /// When.
    #[serde(default)]
    pub(crate) time: Timestamp,
    /// What Kubernetes calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kubernetes: Option<KubernetesIdentity>,
    /// What it depends on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) depends_on: Vec<String>,
    /// How it fares, in kstatus' words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) health: String,
}

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
}

/// The recorded state, as its only writer sees it.
#[derive(Debug)]
pub(crate) struct State {
    prefix: String,
    fence: Option<Fence>,
    head: (Head, Option<Version>),
    entries: BTreeMap<String, (Entry, Version)>,
}

impl State {
    /// Reads the state of a stack in a workspace. With a fence it can be written; without, it is a
    /// view for previews.
    ///
    /// # Errors
    ///
    /// When the log cannot be read, or a record does not decode.
    pub(crate) async fn load(
        log: &dyn Log,
        stack_uid: &str,
        workspace: &str,
        fence: Option<Fence>,
    ) -> Result<Self, Halt> {
        let prefix = format!("/stoa/state/{stack_uid}/{workspace}/");
        let snapshot = log.scan(&prefix, None).await.map_err(|e| halt(&e))?;
        let mut state = Self { fence, head: (Head::default(), None), entries: BTreeMap::new(), prefix };
        for entry in snapshot.entries {
            let corrupt =
                |e: serde_json::Error| Halt::Retry(format!("the record at {} does not decode: {e}", entry.key));
            if entry.key.as_str() == state.head_key().as_str() {
                state.head = (serde_json::from_slice(&entry.value).map_err(corrupt)?, Some(entry.version));
            } else {
                let recorded: Entry = serde_json::from_slice(&entry.value).map_err(corrupt)?;
                state.entries.insert(recorded.id.clone(), (recorded, entry.version));
            }
        }
        Ok(state)
    }

    /// The head.
    pub(crate) fn head(&self) -> &Head {
        &self.head.0
    }

    /// What is recorded, by id; removed resources included while their run lasts.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().map(|(entry, _)| entry)
    }

    /// How many resources are live, as far as is recorded.
    pub(crate) fn live(&self) -> usize {
        self.entries().filter(|e| e.resource.is_some()).count()
    }

    /// The ids whose results of this run are recorded.
    pub(crate) fn done_by(&self, run: &str) -> Vec<String> {
        self.results_of(run).map(|(id, _)| id.to_owned()).collect()
    }

    /// How many of them were changes.
    pub(crate) fn changed_by(&self, run: &str) -> usize {
        self.results_of(run).filter(|(_, result)| result.action != "Unchanged").count()
    }

    fn results_of(&self, run: &str) -> impl Iterator<Item = (&str, &Outcome)> {
        self.entries().filter_map(move |entry| {
            let result = entry.result.as_ref().filter(|r| r.run == run && r.outcome == "Done")?;
            entry.intent.is_none().then_some((entry.id.as_str(), result))
        })
    }

    fn head_key(&self) -> Key {
        Key::new(format!("{}head", self.prefix))
    }

    fn entry_key(&self, id: &str) -> Key {
        Key::new(format!("{}resources/{id}", self.prefix))
    }

    fn write<T: Serialize>(&self, key: Key, known: Option<Version>, value: Option<&T>, run: &str) -> Write {
        let change = match value {
            None => Change::Delete,
            Some(value) => Change::Put(Bytes::from(serde_json::to_vec(value).expect("a record serializes"))),
        };
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
        let write = self.write(self.head_key(), self.head.1, Some(&head), &head.run);
        let version = log.append(write).await.map_err(|e| halt(&e))?;
        self.head = (head, Some(version));
        Ok(())
    }

    /// Records entries, all at once; each is durable when this returns.
    pub(crate) async fn record(&mut self, log: &dyn Log, entries: Vec<Entry>) -> Result<(), Halt> {
        let writes = entries.iter().map(|entry| {
            let known = self.entries.get(&entry.id).map(|(_, version)| *version);
            let run = entry.intent.as_ref().map(|i| &i.run).or(entry.result.as_ref().map(|r| &r.run));
            self.write(self.entry_key(&entry.id), known, Some(entry), run.map_or("", String::as_str))
        });
        // They share one sync of the disk.
        let versions = try_join_all(writes.map(|write| log.append(write))).await.map_err(|e| halt(&e))?;
        for (entry, version) in entries.into_iter().zip(versions) {
            self.entries.insert(entry.id.clone(), (entry, version));
        }
        Ok(())
    }

    /// The entry of an id, to be changed and recorded.
    pub(crate) fn entry(&self, id: &str) -> Entry {
        self.entries.get(id).map_or_else(|| Entry { id: id.to_owned(), ..Entry::default() }, |(entry, _)| entry.clone())
    }

    /// Notes how a resource fares; it is recorded with the next result or at the end.
    pub(crate) fn set_health(&mut self, id: &str, health: &str) {
        if let Some(result) = self.entries.get_mut(id).and_then(|(entry, _)| entry.result.as_mut()) {
            health.clone_into(&mut result.health);
        }
    }

    /// Drops what is kept only while a run lasts.
    pub(crate) async fn forget_removed(&mut self, log: &dyn Log, run: &str) -> Result<(), Halt> {
        let removed: Vec<(String, Version)> = self
            .entries
            .values()
            .filter(|(entry, _)| entry.resource.is_none() && entry.intent.is_none())
            .map(|(entry, version)| (entry.id.clone(), *version))
            .collect();
        let writes =
            removed.iter().map(|(id, version)| self.write::<Entry>(self.entry_key(id), Some(*version), None, run));
        try_join_all(writes.map(|write| log.append(write))).await.map_err(|e| halt(&e))?;
        for (id, _) in removed {
            self.entries.remove(&id);
        }
        Ok(())
    }

    /// The state as a document: the engine's `State`, resources in the order of their ids.
    pub(crate) fn document(&self) -> Bytes {
        let resources: Vec<&serde_json::Value> = self.entries().filter_map(|e| e.resource.as_ref()).collect();
        Bytes::from(serde_json::to_vec(&serde_json::json!({ "resources": resources })).expect("a state serializes"))
    }

    /// The state as the function-runner takes it.
    pub(crate) fn for_runner(&self) -> Vec<stoa_proto::StateEntry> {
        let resource = |value: &serde_json::Value| serde_json::to_vec(value).expect("a recorded resource serializes");
        self.entries()
            .filter(|e| e.resource.is_some() || e.intent.is_some())
            .map(|e| stoa_proto::StateEntry {
                id: e.id.clone(),
                resource: e.resource.as_ref().map(resource).unwrap_or_default().into(),
                intent: e.intent.as_ref().map(|i| stoa_proto::Intent { action: i.action.clone(), run: i.run.clone() }),
            })
            .collect()
    }
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
        LogError::Held { .. }
        | LogError::Unavailable(_)
        | LogError::Expired { .. }
        | LogError::Future { .. }
        | LogError::TooLarge { .. }
        | LogError::Corrupt(_) => Halt::Retry(error.to_string()),
    }
}
