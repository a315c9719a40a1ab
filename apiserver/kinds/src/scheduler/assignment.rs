//! Assignment: a deployment target on a cluster type, computed from both and from the policies that select them.
//!
//! Nothing of this kind is stored, so that a fleet may have a million. The conditions of an assignment that cannot be rendered are in
//! the status of the GitOpsRepo, which its controller writes.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use async_trait::async_trait;
use serde_json::{Value, json};
use stoa_machinery::{
    ApiError, Object, ResourceDefinition, Version,
    definition::{Cell, Column, SelectableField},
    registry::{Computed, PageRequest},
    strategy::DefaultStrategy,
};
use stoa_types::{
    common::condition,
    labels, names, reason,
    scheduler::{Assignment, GitIssueStatus, GitOpsRepo},
};

use super::schedules::{Scheduled, Schedules, bases};
use crate::{
    computed::page,
    kind::{Kind, Surroundings},
    lookup::Lookup,
    ready,
    rights::{OBJECTS, READ, READERS, right},
};

/// The labels of an assignment and of its package, by Kalypso's names.
const CLUSTER_TYPE: &str = "cluster-type";
const WORKLOAD: &str = "workload";
const TARGET: &str = "deployment-target";
const POLICY: &str = "scheduling-policy";

/// The time of a condition that is not written yet.
const NEVER: &str = "1970-01-01T00:00:00Z";

/// The kind Assignment.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, Surroundings { lookup, fleets, .. }| {
        let assignments = Assignments { schedules: fleets.schedules(lookup.clone()), lookup };
        builder.register_computed(definition, DefaultStrategy::<Assignment>::default(), Arc::new(assignments))
    },
    rights: &[right(READERS, OBJECTS, READ), right(READERS, &["diff", "provenance"], &["get"])],
    ..Kind::of::<Assignment>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<Assignment>()
        .columns(&[
            Column::new("Workload", Cell::Path(&["spec", "workload"]), "The Workload."),
            Column::new("Target", Cell::Path(&["spec", "deploymentTarget"]), "The DeploymentTarget."),
            Column::new("ClusterType", Cell::Path(&["spec", "clusterType"]), "The ClusterType."),
            ready::status("Whether its files are rendered."),
            Column::age(),
            ready::reason(),
            ready::message(),
        ])
        .selectable(&[
            SelectableField { name: "spec.workload", path: &["spec", "workload"] },
            SelectableField { name: "spec.deploymentTarget", path: &["spec", "deploymentTarget"] },
            SelectableField { name: "spec.clusterType", path: &["spec", "clusterType"] },
        ])
        .limited_to(READ)
}

#[derive(Debug)]
struct Assignments {
    schedules: Schedules,
    lookup: Lookup,
}

/// The renderings of a namespace, as its GitOpsRepo has them.
#[derive(Debug, Default)]
struct Renderings {
    is_rendered: bool,
    broken: BTreeMap<String, String>,
    replaced: BTreeMap<String, String>,
    invalid: BTreeMap<String, String>,
    issues: BTreeMap<String, GitIssueStatus>,
    time: String,
}

impl Renderings {
    async fn of(lookup: &Lookup, namespace: &str) -> Result<Self, ApiError> {
        let mut renderings = Self { time: NEVER.to_owned(), ..Self::default() };
        for repo in lookup.api::<GitOpsRepo>()?.list(Some(namespace), "").await? {
            let Some(status) = repo.status else { continue };
            renderings.is_rendered |= !status.base_commit.is_empty();
            if let Some(ready) = condition(&status.conditions, reason::READY) {
                renderings.time = ready.last_transition_time.0.to_string();
            }
            renderings.broken.extend(status.broken_assignments.into_iter().map(|it| (it.name, it.message)));
            renderings.issues.extend(status.issues.into_iter().map(|it| (it.assignment, it.issue)));
            renderings.replaced.extend(status.replaced_values.into_iter().map(|it| (it.name, it.message)));
            renderings.invalid.extend(status.invalid_results.into_iter().map(|it| (it.name, it.message)));
        }
        Ok(renderings)
    }

    /// The status of an assignment.
    fn status(&self, name: &str) -> Value {
        let issue = self.issues.get(name).cloned().unwrap_or_default();
        json!({ "conditions": self.conditions(name), "gitIssueStatus": issue })
    }

    fn conditions(&self, name: &str) -> Vec<Value> {
        let condition = |kind: &str, status: &str, why: &str, message: &str| {
            json!({
                "type": kind, "status": status, "reason": why, "message": message, "lastTransitionTime": self.time,
            })
        };
        let ready = |status: &str, why: &str, message: &str| condition(reason::READY, status, why, message);
        let ready = match self.broken.get(name) {
            Some(message) => Some(ready("False", reason::RENDER_FAILED, message)),
            None if self.is_rendered => {
                Some(ready("True", reason::ASSIGNMENT_PACKAGE_CREATED, "its files are rendered"))
            }
            None => None,
        };
        let warning = |kind: &str, of: &BTreeMap<String, String>| {
            of.get(name).map(|message| condition(kind, "True", kind, message))
        };
        let replaced = warning(reason::VALUES_REPLACED, &self.replaced);
        let invalid = warning(reason::RESULTS_INVALID, &self.invalid);
        ready.into_iter().chain(replaced).chain(invalid).collect()
    }
}

/// A uid that follows from what an object is.
pub(crate) fn uid(parts: &[&str]) -> String {
    let digest = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, parts).hash(&mut hasher);
        hasher.finish()
    };
    let (a, b) = (digest(1), digest(2));
    let (second, third) = ((a >> 16) & 0xffff, a & 0x0fff);
    let (fourth, last) = ((b >> 48) & 0x3fff | 0x8000, b & 0xffff_ffff_ffff);
    format!("{:08x}-{second:04x}-8{third:03x}-{fourth:04x}-{last:012x}", a >> 32)
}

/// The metadata of an assignment or of its package.
pub(super) fn metadata(kind: &str, namespace: &str, assignment: &Scheduled<'_>) -> Value {
    let name = assignment.name();
    let (workload, target) = (assignment.target.workload(), assignment.target.name.as_str());
    let cluster_type = assignment.cluster_type.name.as_str();
    let created = assignment.created();
    let instance = created.map_or("", String::as_str);
    let mut metadata = json!({
        "name": name,
        "namespace": namespace,
        "uid": uid(&[kind, namespace, &name, instance]),
        "labels": { CLUSTER_TYPE: cluster_type, WORKLOAD: workload, TARGET: target },
    });
    if let Some(created) = created.filter(|created| !created.is_empty()) {
        metadata["creationTimestamp"] = created.as_str().into();
    }
    metadata
}

/// An object of a kind of this group.
pub(super) fn object(kind: &str, metadata: Value, spec: Value, status: Value) -> Result<Object, ApiError> {
    let api_version = format!("{}/{}", names::group::<Assignment>(), names::version::<Assignment>());
    let object =
        json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec, "status": status });
    let Value::Object(object) = object else { return Err(ApiError::internal("an object is a map")) };
    Ok(Object(object))
}

impl Assignments {
    fn object(namespace: &str, assignment: &Scheduled<'_>, renderings: &Renderings) -> Result<Object, ApiError> {
        let kind = names::kind::<Assignment>();
        let mut metadata = metadata(kind, namespace, assignment);
        let policies = assignment.policies();
        // A label has one name. Selectors by another policy use the annotation.
        if let Some(policy) = policies.first() {
            metadata["labels"][POLICY] = policy.as_str().into();
        }
        metadata["annotations"] = json!({ (labels::SCHEDULING_POLICIES): policies.join(",") });
        let spec = json!({
            "workload": assignment.target.workload(),
            "deploymentTarget": assignment.target.name,
            "clusterType": assignment.cluster_type.name,
        });
        object(kind, metadata, spec, renderings.status(&assignment.name()))
    }
}

#[async_trait]
impl Computed for Assignments {
    fn bases(&self) -> Vec<(&'static str, &'static str, &'static str)> {
        let repos = (names::group::<GitOpsRepo>(), names::version::<GitOpsRepo>(), names::plural::<GitOpsRepo>());
        bases().into_iter().chain([repos]).collect()
    }

    async fn get(&self, namespace: &str, name: &str) -> Result<Option<Object>, ApiError> {
        let schedule = self.schedules.of(namespace).await?;
        let renderings = Renderings::of(&self.lookup, namespace).await?;
        schedule.get(name).map(|assignment| Self::object(namespace, &assignment, &renderings)).transpose()
    }

    async fn page(&self, request: PageRequest<'_>) -> Result<Vec<Object>, ApiError> {
        let of_namespace = move |namespace: String, after: Option<String>, most: usize| async move {
            let schedule = self.schedules.of(&namespace).await?;
            let renderings = Renderings::of(&self.lookup, &namespace).await?;
            let assignments = schedule.after(after.as_deref(), most);
            assignments.map(|assignment| Self::object(&namespace, &assignment, &renderings)).collect()
        };
        page(|| self.schedules.namespaces(), request, of_namespace).await
    }

    /// Statuses change with each commit. They change conditions, and the same assignments follow.
    async fn remembers(&self, namespace: Option<&str>, version: Version) -> bool {
        self.schedules.are_same_since(namespace, version).await
    }

    /// A watcher hears of the conditions, too.
    async fn remembers_all(&self, _namespace: Option<&str>, _version: Version) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_has_failure_replaced_values_and_issue() {
        let named = |name: &str, text: &str| BTreeMap::from([(name.to_owned(), text.to_owned())]);
        let issue = GitIssueStatus { issue_no: 7, content_hash: "abc".to_owned() };
        let renderings = Renderings {
            is_rendered: true,
            broken: named("web", "schema s"),
            replaced: named("api", "ConfigMap z"),
            invalid: named("api", "spec.interval"),
            issues: [("web".to_owned(), issue)].into(),
            time: NEVER.to_owned(),
        };
        let shown = |name: &str| {
            let status = renderings.status(name);
            let all = status["conditions"].as_array().unwrap().iter();
            let all = all.map(|it| format!("{}={}: {}", it["type"], it["status"], it["message"]).replace('"', ""));
            (all.collect::<Vec<_>>().join(", "), status["gitIssueStatus"]["issueNo"].as_i64())
        };
        assert_eq!(shown("web"), ("Ready=False: schema s".to_owned(), Some(7)));
        let api =
            "Ready=True: its files are rendered, ValuesReplaced=True: ConfigMap z, ResultsInvalid=True: spec.interval";
        assert_eq!(shown("api"), (api.to_owned(), Some(0)));
    }
}
