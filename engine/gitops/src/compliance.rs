//! Compliance of clusters with a commit, by the status of Flux and Argo CD.
//!
//! Start at [`Reading`], the status of one of their objects, and [`Reading::of`], which compares it with a commit. A
//! reconciler at a later commit complies too, so that the [`Lineage`] of revisions is needed
//! ([`GitOpsRuntime::lineage`]).
//!
//! Follows the status of Flux's Kustomization (`kustomize.toolkit.fluxcd.io`: `lastAppliedRevision` is set once the
//! applied objects are healthy, `lastAttemptedRevision` before) and of Argo CD's Application (`argoproj.io`:
//! `sync.revision` is the revision that the cluster was compared with, in sync or not).
//!
//! Elsewhere: `deployment` has the one deployment that an object reports to the hub.

mod deployment;

use std::collections::{BTreeMap, BTreeSet};

use git2::{Oid, Repository};
use serde_json::{Map, Value};
use stoa_engine::revision::commit as commit_of;
use stoa_runtime::RuntimeError;

use crate::branch::Branch;
use crate::history::{History, Reached};
use crate::{GitOpsRuntime, bounded};

pub use self::deployment::{Deployment, Progress};

/// The maximum length of a reconciler's message, in characters.
const SAID: usize = 300;

/// Whether a cluster has a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compliance {
    /// It was brought about, by itself or with later ones, and is healthy.
    Compliant,
    /// It is not there yet, or not healthy yet.
    Pending,
    /// Nobody can say.
    Unknown,
    /// It was tried, and failed.
    NonCompliant,
}

/// The status of a reconciler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The last applied revision, as the reconciler writes it; empty without one.
    pub revision: String,
    /// The commits of what it last brought about: of each of its sources one.
    applied: Vec<String>,
    /// The commits that it last tried.
    attempted: Vec<String>,
    stands: ReconcilerState,
    is_suspended: bool,
}

/// The state of a reconciler, at whatever revision.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ReconcilerState {
    Ready,
    /// It is on its way, or waits for something.
    Progressing(String),
    Failed(String),
    Unknown(String),
}

impl Reading {
    /// Reads a Kustomization of Flux.
    pub fn kustomization(object: &Map<String, Value>) -> Self {
        let status = object.get("status").unwrap_or(&Value::Null);
        let revision = text(status, "lastAppliedRevision");
        // The commit of an artifact that was made from a repository.
        let origin = text(status, "lastAppliedOriginRevision");
        let applied = commit_of(&revision).or_else(|| commit_of(&origin));
        let attempted = commit_of(&text(status, "lastAttemptedRevision"));
        let is_suspended = object.get("spec").and_then(|spec| spec.get("suspend")) == Some(&Value::Bool(true));
        let stands = ready_state(object);
        Self {
            revision,
            applied: applied.into_iter().collect(),
            attempted: attempted.into_iter().collect(),
            stands,
            is_suspended,
        }
    }

    /// Reads an Application of Argo CD.
    pub fn application(object: &Map<String, Value>) -> Self {
        let none = Value::Null;
        let status = object.get("status").unwrap_or(&none);
        let (sync, health) = (status.get("sync").unwrap_or(&none), status.get("health").unwrap_or(&none));
        let operation = status.get("operationState").unwrap_or(&none);
        let synced = operation.get("syncResult").unwrap_or(&none);
        let phase = text(operation, "phase");
        let is_synced = text(sync, "status") == "Synced";
        // Out of sync, the compared revision is not applied.
        let brought = if is_synced {
            revisions(sync)
        } else if phase == "Succeeded" {
            revisions(synced)
        } else {
            Vec::new()
        };
        let error = conditions(status).find(|condition| text(condition, "type").ends_with("Error"));
        let error = error.map(|condition| message(condition, "message"));
        let stands = match text(sync, "status").as_str() {
            "Synced" => match text(health, "status").as_str() {
                "Healthy" => ReconcilerState::Ready,
                "Degraded" => ReconcilerState::Failed(or(message(health, "message"), "it is degraded")),
                "" | "Unknown" => ReconcilerState::Unknown(or(message(health, "message"), "its health is unknown")),
                other => {
                    ReconcilerState::Progressing(or(message(health, "message"), &format!("its health is {other}")))
                }
            },
            "OutOfSync" if matches!(phase.as_str(), "Failed" | "Error") => {
                ReconcilerState::Failed(or(message(operation, "message"), "its synchronization failed"))
            }
            "OutOfSync" => ReconcilerState::Progressing(error.unwrap_or_else(|| "it is out of sync".to_owned())),
            _ => {
                ReconcilerState::Unknown(error.unwrap_or_else(|| "it does not report whether it is in sync".to_owned()))
            }
        };
        let attempted = revisions(synced).iter().filter_map(|revision| commit_of(revision)).collect();
        let applied = brought.iter().filter_map(|revision| commit_of(revision)).collect();
        Self { revision: brought.join(", "), applied, attempted, stands, is_suspended: false }
    }

    /// The commits whose lineage is needed.
    pub fn commits(&self) -> impl Iterator<Item = &str> {
        self.applied.iter().chain(&self.attempted).map(String::as_str)
    }

    /// Whether a cluster has a commit, and why not.
    pub fn of(&self, commit: &str, lineage: &Lineage) -> (Compliance, String) {
        if let Some(why) = lineage.lost.get(commit) {
            return (Compliance::NonCompliant, why.clone());
        }
        let has = |revisions: &[String]| {
            let mut known = None;
            for revision in revisions {
                known = known.max(lineage.has(revision, commit));
            }
            known
        };
        let shown = if self.revision.is_empty() { "nothing yet".to_owned() } else { self.revision.clone() };
        let at = |more: &str| {
            let suspended = if self.is_suspended { "; it is suspended" } else { "" };
            let more = if more.is_empty() { String::new() } else { format!(": {more}") };
            format!("it has applied {shown}{suspended}{more}")
        };
        let applied =
            if self.applied.is_empty() && self.revision.is_empty() { Some(false) } else { has(&self.applied) };
        match (applied, &self.stands) {
            (Some(true), ReconcilerState::Ready) => (Compliance::Compliant, String::new()),
            (Some(true), ReconcilerState::Progressing(why)) => (Compliance::Pending, why.clone()),
            (Some(true), ReconcilerState::Failed(why)) => (Compliance::NonCompliant, why.clone()),
            (_, ReconcilerState::Failed(why)) if has(&self.attempted) == Some(true) => {
                (Compliance::NonCompliant, why.clone())
            }
            (_, ReconcilerState::Unknown(why)) => (Compliance::Unknown, why.clone()),
            (Some(false), ReconcilerState::Ready) => (Compliance::Pending, at("")),
            (Some(false), ReconcilerState::Progressing(why) | ReconcilerState::Failed(why)) => {
                (Compliance::Pending, at(why))
            }
            (None, _) => {
                let why = lineage.problem.clone();
                (Compliance::Unknown, at(&why.unwrap_or_else(|| "the repository has no such commit".to_owned())))
            }
        }
    }
}

/// Which revisions have which commits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage {
    /// Whether a revision (the first) contains a commit, if known.
    has: BTreeMap<(String, String), bool>,
    /// Commits that the branch has no more, and what to say of them.
    lost: BTreeMap<String, String>,
    /// Why no more is known.
    problem: Option<String>,
}

impl Lineage {
    /// Nothing is known, for this reason.
    pub fn unknown(why: String) -> Self {
        Self { problem: Some(why), ..Self::default() }
    }

    fn has(&self, revision: &str, commit: &str) -> Option<bool> {
        if revision == commit {
            return Some(true);
        }
        self.has.get(&(revision.to_owned(), commit.to_owned())).copied()
    }

    fn read(place: &Branch, commits: &BTreeSet<String>, revisions: &BTreeSet<String>) -> Result<Self, RuntimeError> {
        let (repository, head) = place.head()?;
        // One history for all revisions: there may be many, with any ancestors.
        let history = History::of(&repository);
        let looked = Self::search(&repository, &history, (place.branch(), head), commits, revisions);
        let (mut lineage, cut) = looked.map_err(|err| place.explain_in(&repository, &err))?;
        lineage.problem = cut.map(|err| place.explain_in(&repository, &err).to_string());
        Ok(lineage)
    }

    /// Reads the lineage from history, and why it is incomplete, if so. One walk from the head of the branch, and one
    /// from each revision.
    fn search(
        repository: &Repository,
        history: &History<'_>,
        (branch, head): (&str, Option<Oid>),
        commits: &BTreeSet<String>,
        revisions: &BTreeSet<String>,
    ) -> Result<(Self, Option<git2::Error>), git2::Error> {
        let find = |commit: &str| Oid::from_str(commit).ok().filter(|id| bounded::commit(repository, *id).is_ok());
        let mut lineage = Self::default();
        let named: Vec<(&String, Option<Oid>)> = commits.iter().map(|commit| (commit, find(commit))).collect();
        let wanted = named.iter().filter_map(|(_, id)| *id).collect();
        let of_branch = match head {
            Some(head) => history.leads_to_which(head, &wanted)?,
            None => Reached::default(),
        };
        let mut there = Vec::new();
        for (commit, id) in named {
            match id.map(|id| (id, of_branch.has(id))) {
                Some((id, Some(true))) => there.push((commit, id)),
                Some((_, None)) => {}
                Some((_, Some(false))) | None => {
                    let why = format!("branch {branch} no longer contains commit {commit}");
                    lineage.lost.insert(commit.clone(), why);
                }
            }
        }
        let mut cut = of_branch.cut;
        let wanted = there.iter().map(|(_, id)| *id).collect();
        for revision in revisions {
            let Some(of) = find(revision) else { continue };
            // The head has them.
            let reached = if Some(of) == head { None } else { Some(history.leads_to_which(of, &wanted)?) };
            for (commit, id) in &there {
                if let Some(has) = reached.as_ref().map_or(Some(true), |reached| reached.has(*id)) {
                    lineage.has.insert((revision.clone(), (*commit).clone()), has);
                }
            }
            cut = cut.or(reached.and_then(|reached| reached.cut));
        }
        Ok((lineage, cut))
    }
}

impl GitOpsRuntime {
    /// Which of these revisions contain which of these commits of the branch. Fetches the branch.
    ///
    /// # Errors
    ///
    /// The repository cannot be reached. Lineage beyond the limit of the history is unknown.
    pub async fn lineage(
        &self,
        commits: BTreeSet<String>,
        revisions: BTreeSet<String>,
    ) -> Result<Lineage, RuntimeError> {
        self.blocking(move |place| Lineage::read(place, &commits, &revisions)).await
    }
}

/// The condition Ready of an object of Flux.
fn ready(status: &Value) -> Option<&Value> {
    conditions(status).find(|condition| text(condition, "type") == "Ready")
}

/// The state of an object of Flux, by its condition Ready.
fn ready_state(object: &Map<String, Value>) -> ReconcilerState {
    let status = object.get("status").unwrap_or(&Value::Null);
    let generation = object.get("metadata").and_then(|metadata| metadata.get("generation")).and_then(Value::as_i64);
    let is_current = |of: &Value| of.get("observedGeneration").and_then(Value::as_i64) >= generation;
    let Some(ready) = ready(status) else {
        return ReconcilerState::Progressing("it has not reported a Ready condition".to_owned());
    };
    let message = message(ready, "message");
    match text(ready, "status").as_str() {
        "True" if is_current(status) => ReconcilerState::Ready,
        "True" => ReconcilerState::Progressing("it has not observed its last change".to_owned()),
        "False" => match text(ready, "reason").as_str() {
            // Its dependencies may become ready.
            "Progressing" | "ProgressingWithRetry" | "DependencyNotReady" | "ArtifactFailed" => {
                ReconcilerState::Progressing(message)
            }
            _ if ready.get("observedGeneration").is_some() && !is_current(ready) => {
                ReconcilerState::Progressing("it has not observed its last change".to_owned())
            }
            _ => ReconcilerState::Failed(message),
        },
        _ => ReconcilerState::Progressing(message),
    }
}

/// The revisions of an Application's sources.
fn revisions(of: &Value) -> Vec<String> {
    let several = of.get("revisions").and_then(Value::as_array).into_iter().flatten();
    let several: Vec<String> = several.filter_map(Value::as_str).map(str::to_owned).collect();
    let one = Some(text(of, "revision")).filter(|revision| !revision.is_empty());
    if several.is_empty() { one.into_iter().collect() } else { several }
}

fn conditions(status: &Value) -> impl Iterator<Item = &Value> {
    status.get("conditions").and_then(Value::as_array).into_iter().flatten()
}

fn text(of: &Value, field: &str) -> String {
    of.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// A sentence of a reconciler, on one line and not too long.
fn message(of: &Value, field: &str) -> String {
    let line: String = text(of, field).chars().map(|c| if c.is_control() { ' ' } else { c }).take(SAID).collect();
    line.trim().to_owned()
}

fn or(said: String, otherwise: &str) -> String {
    if said.is_empty() { otherwise.to_owned() } else { said }
}

#[cfg(test)]
mod tests;
