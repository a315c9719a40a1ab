//! Commits that Runs observe before the controller of Sources does.
//!
//! A Run asks the repository itself. The Source is reconciled soon after, so that its status does not stay behind.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use serde::Deserialize;
use stoa_controller::{index::Member, object::ObjectKey};
use stoa_kinds::{lookup::Lookup, readiness};
use stoa_types::{
    Source, Stack,
    delivery::{Operation, RunPhase, RunSource, RunSpec},
};

pub(super) type OfRun = Member<RunSpec, OfRunStatus>;

#[derive(Deserialize, PartialEq)]
pub(super) struct OfRunStatus {
    #[serde(default)]
    phase: RunPhase,
    source: Option<RunSource>,
}

/// The last such commit of each source.
#[derive(Clone, Debug, Default)]
pub(super) struct ObservedCommits(Arc<Mutex<HashMap<ObjectKey, String>>>);

impl ObservedCommits {
    /// Notes what a run found, if that is another commit than the source says; of which source.
    pub(super) fn note(&self, lookup: &Lookup, run: &OfRun) -> Option<ObjectKey> {
        let (source, commit) = found(lookup, run)?;
        self.0.lock().insert(source.clone(), commit);
        Some(source)
    }

    /// A commit that a run has found and the source does not name yet, until it was [looked](Self::looked) at.
    pub(super) fn of(&self, key: &ObjectKey, source: &Source) -> Option<String> {
        let mut all = self.0.lock();
        let commit = all.get(key)?.clone();
        let status = source.status.as_ref();
        let observed = status.and_then(|status| status.observed_commit.as_ref());
        let versions = status.into_iter().flat_map(|status| &status.versions);
        let mut said = observed.into_iter().chain(versions.filter_map(|of| of.commit.as_ref()));
        if said.any(|said| *said == commit) {
            all.remove(key);
            return None;
        }
        Some(commit)
    }

    /// Forgets a commit once its source was looked at for it, unless a run has found another one since.
    pub(super) fn looked(&self, key: &ObjectKey, commit: &str) {
        let mut all = self.0.lock();
        if all.get(key).is_some_and(|last| last == commit) {
            all.remove(key);
        }
    }

    pub(super) fn forget(&self, key: &ObjectKey) {
        self.0.lock().remove(key);
    }
}

/// The source of a run that has just found another commit of what its stack desires than the source says, and the commit.
fn found(lookup: &Lookup, run: &OfRun) -> Option<(ObjectKey, String)> {
    let (spec, status) = (&run.spec, run.status.as_ref()?);
    let planned = spec.operation.planned(spec.of);
    let asks = matches!(planned, Operation::Apply | Operation::Import) && spec.plan.is_none();
    if !asks || status.phase != RunPhase::Generating {
        return None;
    }
    let commit = &status.source.as_ref()?.commit;
    let stack: Stack = lookup.cached(run.namespace(), &spec.stack)?;
    let is_other = spec.version.as_ref().is_some_and(|version| *version != stack.spec.desired_version);
    if is_other || readiness::head(lookup, &stack).as_ref() == Some(commit) {
        return None;
    }
    let source = readiness::source_of(lookup, run.namespace(), &stack.spec.project)?;
    Some(((run.namespace().to_owned(), source), commit.clone()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use stoa_runs::testing::unreachable_runner;

    use super::*;
    use crate::testing::TestServer;

    #[tokio::test]
    async fn run_with_newer_commit_triggers_one_source_check() {
        let world = TestServer::with_runner(unreachable_runner()).await;
        let sources = world.registry.api::<Source>();
        let observe =
            |source: &mut Source| source.status.get_or_insert_default().observed_commit = Some("a".repeat(40));
        sources.update_status_with("shop", "config", observe).await.unwrap();
        let source = sources.get("shop", "config").await.unwrap();
        let key = ("shop".to_owned(), "config".to_owned());
        let ahead = ObservedCommits::default();
        let looks = |spec: Value, phase: &str, letter: &str| {
            let status = json!({"phase": phase, "source": {"commit": letter.repeat(40)}});
            let run = json!({"metadata": {"name": "one", "namespace": "shop"}, "spec": spec, "status": status});
            let noted = ahead.note(&world.services.lookup, &serde_json::from_value(run).unwrap());
            assert!(noted.is_none_or(|noted| noted == key));
            let found = ahead.of(&key, &source);
            assert_eq!(ahead.of(&key, &source), found, "it stays until the look");
            ahead.looked(&key, "another");
            assert_eq!(ahead.of(&key, &source), found, "what was found since stays");
            if let Some(commit) = &found {
                ahead.looked(&key, commit);
            }
            (found.is_some(), ahead.of(&key, &source).is_some())
        };
        let apply = json!({"stack": "web", "workspace": "dev", "operation": "Apply"});
        let with = |field: &str, value: &str| {
            let mut spec = apply.clone();
            spec[field] = value.into();
            spec
        };
        assert_eq!(looks(apply.clone(), "Generating", "b"), (true, false));
        assert_eq!(looks(with("version", "latest"), "Generating", "b"), (true, false));
        assert_eq!(looks(with("operation", "Import"), "Generating", "b"), (true, false));
        let preview = |of: Value| json!({"stack": "web", "workspace": "dev", "operation": "Preview", "of": of});
        for (of, asks) in
            [(Value::Null, true), ("Apply".into(), true), ("Import".into(), true), ("Rollback".into(), false)]
        {
            assert_eq!(looks(preview(of.clone()), "Generating", "b"), (asks, false), "a Preview of {of}");
        }
        for (spec, phase, letter) in [
            (apply.clone(), "Generating", "a"),
            (apply.clone(), "Succeeded", "b"),
            (with("version", "v1"), "Generating", "b"),
            (with("plan", "preview"), "Generating", "b"),
            (with("operation", "Rollback"), "Generating", "b"),
            (with("stack", "none"), "Generating", "b"),
        ] {
            assert_eq!(looks(spec.clone(), phase, letter), (false, false), "{spec} {phase} {letter}");
        }
    }
}
