//! Whether clusters have what was committed, by what those say that brought it there: Flux and Argo CD.
//!
//! Start at [`Reading`], which is what an object of theirs says, and [`Reading::of`], which compares it with a commit. A
//! reconciler that is past a commit has it, too, so that the [`Lineage`] of revisions is needed, which the repository tells
//! ([`GitOpsRuntime::lineage`]).
//!
//! Follows the status of Flux's Kustomization (`kustomize.toolkit.fluxcd.io`: `lastAppliedRevision` is set once what was applied
//! is healthy, `lastAttemptedRevision` before) and of Argo CD's Application (`argoproj.io`: `sync.revision` is what the
//! cluster was compared with, whether it is so or not).

use std::collections::{BTreeMap, BTreeSet};

use git2::{Oid, Repository};
use serde_json::{Map, Value};
use stoa_runtime::RuntimeError;

use crate::history::{History, Reached};
use crate::place::Place;
use crate::{GitOpsRuntime, bounded};

/// How much of what a reconciler says is passed on, in characters.
const SAID: usize = 300;

/// How a commit and what a cluster has compare.
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

/// What a reconciler says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// What it last brought about, as it writes that; empty when it tells nothing.
    pub revision: String,
    /// The commits of what it last brought about: of each of its sources one.
    applied: Vec<String>,
    /// The commits that it last tried.
    attempted: Vec<String>,
    stands: Stands,
    is_suspended: bool,
}

/// How a reconciler fares, whatever it is at.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stands {
    Ready,
    /// It is on its way, or waits for something.
    Progressing(String),
    Failed(String),
    Untold(String),
}

impl Reading {
    /// What a Kustomization of Flux says.
    pub fn kustomization(object: &Map<String, Value>) -> Self {
        let status = object.get("status").unwrap_or(&Value::Null);
        let revision = text(status, "lastAppliedRevision");
        // Of an artifact that was made from a repository, this is the commit.
        let origin = text(status, "lastAppliedOriginRevision");
        let applied = commit_of(&revision).or_else(|| commit_of(&origin));
        let attempted = commit_of(&text(status, "lastAttemptedRevision"));
        let generation = object.get("metadata").and_then(|metadata| metadata.get("generation")).and_then(Value::as_i64);
        let is_suspended = object.get("spec").and_then(|spec| spec.get("suspend")) == Some(&Value::Bool(true));
        let ready = conditions(status).find(|condition| text(condition, "type") == "Ready");
        let is_current = |of: &Value| of.get("observedGeneration").and_then(Value::as_i64) >= generation;
        let stands = match ready {
            None => Stands::Progressing("it has not said how it fares".to_owned()),
            Some(ready) => {
                let said = said(ready, "message");
                match text(ready, "status").as_str() {
                    "True" if is_current(status) => Stands::Ready,
                    "True" => Stands::Progressing("it has not taken up its own last change".to_owned()),
                    "False" => match text(ready, "reason").as_str() {
                        // What it waits for may come.
                        "Progressing" | "ProgressingWithRetry" | "DependencyNotReady" | "ArtifactFailed" => {
                            Stands::Progressing(said)
                        }
                        _ if ready.get("observedGeneration").is_some() && !is_current(ready) => {
                            Stands::Progressing("it has not taken up its own last change".to_owned())
                        }
                        _ => Stands::Failed(said),
                    },
                    _ => Stands::Progressing(said),
                }
            }
        };
        Self {
            revision,
            applied: applied.into_iter().collect(),
            attempted: attempted.into_iter().collect(),
            stands,
            is_suspended,
        }
    }

    /// What an Application of Argo CD says.
    pub fn application(object: &Map<String, Value>) -> Self {
        let none = Value::Null;
        let status = object.get("status").unwrap_or(&none);
        let (sync, health) = (status.get("sync").unwrap_or(&none), status.get("health").unwrap_or(&none));
        let operation = status.get("operationState").unwrap_or(&none);
        let synced = operation.get("syncResult").unwrap_or(&none);
        let phase = text(operation, "phase");
        let is_synced = text(sync, "status") == "Synced";
        // Out of sync, what it was compared with is not what is there.
        let brought = if is_synced {
            revisions(sync)
        } else if phase == "Succeeded" {
            revisions(synced)
        } else {
            Vec::new()
        };
        let error = conditions(status).find(|condition| text(condition, "type").ends_with("Error"));
        let error = error.map(|condition| said(condition, "message"));
        let stands = match text(sync, "status").as_str() {
            "Synced" => match text(health, "status").as_str() {
                "Healthy" => Stands::Ready,
                "Degraded" => Stands::Failed(or(said(health, "message"), "it is degraded")),
                "" | "Unknown" => Stands::Untold(or(said(health, "message"), "its health is not known")),
                other => Stands::Progressing(or(said(health, "message"), &format!("its health is {other}"))),
            },
            "OutOfSync" if matches!(phase.as_str(), "Failed" | "Error") => {
                Stands::Failed(or(said(operation, "message"), "its synchronization failed"))
            }
            "OutOfSync" => Stands::Progressing(error.unwrap_or_else(|| "it is out of sync".to_owned())),
            _ => Stands::Untold(error.unwrap_or_else(|| "it does not say whether it is in sync".to_owned())),
        };
        let attempted = revisions(synced).iter().filter_map(|revision| commit_of(revision)).collect();
        let applied = brought.iter().filter_map(|revision| commit_of(revision)).collect();
        Self { revision: brought.join(", "), applied, attempted, stands, is_suspended: false }
    }

    /// The commits whose lineage has to be known.
    pub fn commits(&self) -> impl Iterator<Item = &str> {
        self.applied.iter().chain(&self.attempted).map(String::as_str)
    }

    /// How a commit and what the cluster has compare, and why it is not compliant.
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
            format!("it has {shown}{suspended}{more}")
        };
        let applied =
            if self.applied.is_empty() && self.revision.is_empty() { Some(false) } else { has(&self.applied) };
        match (applied, &self.stands) {
            (Some(true), Stands::Ready) => (Compliance::Compliant, String::new()),
            (Some(true), Stands::Progressing(why)) => (Compliance::Pending, why.clone()),
            (Some(true), Stands::Failed(why)) => (Compliance::NonCompliant, why.clone()),
            (_, Stands::Failed(why)) if has(&self.attempted) == Some(true) => (Compliance::NonCompliant, why.clone()),
            (_, Stands::Untold(why)) => (Compliance::Unknown, why.clone()),
            (Some(false), Stands::Ready) => (Compliance::Pending, at("")),
            (Some(false), Stands::Progressing(why) | Stands::Failed(why)) => (Compliance::Pending, at(why)),
            (None, _) => {
                let why = lineage.problem.clone();
                (Compliance::Unknown, at(&why.unwrap_or_else(|| "that is no commit of the repository".to_owned())))
            }
        }
    }
}

/// Which revisions have which commits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage {
    /// Whether a revision (the first) has a commit, where both are known.
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

    fn read(place: &Place, commits: &BTreeSet<String>, revisions: &BTreeSet<String>) -> Result<Self, RuntimeError> {
        let (repository, head) = place.head()?;
        // One for all of them: there may be many revisions, and anybody may have made what they lead to.
        let history = History::of(&repository);
        let looked = Self::look(&repository, &history, (place.branch(), head), commits, revisions);
        let (mut lineage, cut) = looked.map_err(|err| place.explain_in(&repository, &err))?;
        lineage.problem = cut.map(|err| place.explain_in(&repository, &err).to_string());
        Ok(lineage)
    }

    /// What the history tells, and why that is not all, where it is not. Walks once from the head of the branch, and once from
    /// each revision.
    fn look(
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
                    let why = format!("branch {branch} does not have commit {commit} any more");
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
    /// Which of these revisions have which of these commits of the branch. Fetches.
    ///
    /// # Errors
    ///
    /// When the repository cannot be reached. Where its history is too large to tell all, the rest is not known.
    pub async fn lineage(
        &self,
        commits: BTreeSet<String>,
        revisions: BTreeSet<String>,
    ) -> Result<Lineage, RuntimeError> {
        self.blocking(move |place| Lineage::read(place, &commits, &revisions)).await
    }
}

/// The commit that a revision names: `<commit>`, `main@sha1:<commit>` or, before Flux 2, `main/<commit>`.
fn commit_of(revision: &str) -> Option<String> {
    let name = revision.rsplit([':', '/', '@']).next().unwrap_or_default();
    (name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| name.to_ascii_lowercase())
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
fn said(of: &Value, field: &str) -> String {
    let line: String = text(of, field).chars().map(|c| if c.is_control() { ' ' } else { c }).take(SAID).collect();
    line.trim().to_owned()
}

fn or(said: String, otherwise: &str) -> String {
    if said.is_empty() { otherwise.to_owned() } else { said }
}

#[cfg(test)]
mod tests;
