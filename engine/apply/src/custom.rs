//! Custom resources that are wanted together with the definition of their kind.
//!
//! Start at [`check`]. A cluster that has no such definition yet, or another one, cannot be asked about them, and what is wrong
//! with them would be found in the middle of a run. So they are held against the definition that is wanted, which is what will
//! hold. Where the cluster could be asked, and goes on to have the definition that it has, it has decided.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use stoa_engine::definitions::{Definitions, served_version};
use stoa_engine::object::is_going;
use stoa_engine::planner::Sketch;
use stoa_engine::problem::reason;
use stoa_engine::{Action, Clusters, Live, ObjectRef, Preview, Problem, ResourceId, ResourceType};
use stoa_runtime::Runtime;

use crate::planning::Desired;
use crate::structural::{Fault, Finding, Instance, Validator};

/// What is known by the time that everybody has been asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'p> {
    pub(crate) desired: &'p Desired<'p>,
    pub(crate) sketch: &'p Sketch<'p>,
    pub(crate) live: &'p BTreeMap<ResourceId, Live>,
    pub(crate) previews: &'p BTreeMap<ResourceId, Preview>,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    /// What would be refused.
    pub(crate) problems: Vec<Problem>,
    /// What people should know.
    pub(crate) notes: Vec<String>,
}

/// Checks what is to be applied.
pub(crate) async fn check(runtime: &dyn Runtime, asked: Asked<'_>) -> Checked {
    let clusters = runtime.clusters();
    let definitions = Definitions::of(asked.desired.values().map(AsRef::as_ref), clusters);
    let admission = Admission::of(asked.desired, clusters);
    let (mut validator, mut checked) = (Validator::default(), Checked::default());
    for (id, resource) in asked.desired {
        let Some(object) = ObjectRef::of(&resource.attributes).filter(|_| resource.kind == ResourceType::Kubernetes)
        else {
            continue;
        };
        let cluster = clusters.of_wanted(resource);
        let said = definitions.custom(cluster, &object).and_then(|definition| {
            let version = served_version(asked.definition(definition)?, &object.version)?;
            asked.is_open(runtime, id, (definition, version)).then_some(version)
        });
        let Some(version) = said else { continue };
        let unknown = &asked.sketch.desired[id].unknown;
        let instance = Instance { attributes: &resource.attributes, live: asked.changed(id), unknown };
        let may_mend = admission.may_change(clusters.server(cluster), &object.group);
        for finding in validator.check(version, instance).await {
            let is_told = finding.fault == Fault::Dropped || (finding.fault == Fault::Unknown && !runtime.validates());
            if is_told {
                checked.notes.push(format!("{id}: attributes.{}: {}", finding.field, finding.message));
            } else if !may_mend || finding.fault.precedes_admission() {
                checked.problems.push(problem(finding).of(id));
            }
        }
    }
    checked
}

impl<'p> Asked<'p> {
    /// Whether nobody has decided about a resource that is to be applied by what its definition says of its version.
    fn is_open(&self, runtime: &dyn Runtime, id: &ResourceId, (definition, version): (&ResourceId, &Value)) -> bool {
        let action = |id| self.sketch.actions.get(id).map(|planned| planned.action);
        let is_applied = matches!(action(id), Some(Action::Create | Action::Update | Action::Adopt | Action::Replace));
        let is_answered = match self.previews.get(id) {
            Some(Preview::Changed(_) | Preview::Contested(..) | Preview::Replaced(_)) => runtime.validates(),
            Some(Preview::Unverified(_)) | None => false,
        };
        let is_called = action(definition).is_some_and(Action::is_call);
        is_applied && (!is_answered || (is_called && !self.is_said_already(definition, version)))
    }

    /// Whether a definition is there and has the schema of this version already, whatever else of it is going to change.
    fn is_said_already(&self, definition: &ResourceId, version: &Value) -> bool {
        let Some(Live::Present(live)) = self.live.get(definition) else { return false };
        let there = version["name"].as_str().and_then(|name| served_version(live, name));
        there.is_some_and(|there| there["schema"] == version["schema"])
    }

    /// What a definition says, as far as that is known and may be told.
    fn definition(&self, id: &ResourceId) -> Option<&'p Map<String, Value>> {
        let known = self.sketch.desired.get(id)?;
        let is_plain = known.unknown.is_empty() && known.sensitive.is_empty();
        Some(&self.desired.get(id)?.attributes).filter(|_| is_plain)
    }

    /// What is there of a resource and is going to be changed.
    fn changed(&self, id: &ResourceId) -> Option<&'p Map<String, Value>> {
        match (self.sketch.actions.get(id)?.action, self.live.get(id)?) {
            (Action::Update | Action::Adopt, Live::Present(live)) if !is_going(live) => Some(live),
            _ => None,
        }
    }
}

fn problem(finding: Finding) -> Problem {
    let Finding { fault, field, message } = finding;
    let why = match fault {
        Fault::Missing => reason::MISSING_FIELD,
        Fault::Mistyped | Fault::Unknown | Fault::Dropped | Fault::Refused => reason::INVALID_RESOURCE,
    };
    Problem::new(why, message).at(format!("attributes.{field}"))
}

/// What is wanted that changes objects before a cluster looks at their values: by server and group, which may be `*`.
#[derive(Debug)]
struct Admission<'p>(BTreeSet<(&'p str, &'p str)>);

impl<'p> Admission<'p> {
    fn of(desired: &'p Desired<'p>, clusters: &'p Clusters) -> Self {
        let mut groups = BTreeSet::new();
        for resource in desired.values() {
            let Some(object) = ObjectRef::of(&resource.attributes) else { continue };
            let attributes = &resource.attributes;
            let rules: Vec<&Value> = match (object.group.as_str(), object.kind.as_str()) {
                ("admissionregistration.k8s.io", "MutatingWebhookConfiguration") => {
                    items(attributes.get("webhooks")).flat_map(|webhook| items(webhook.get("rules"))).collect()
                }
                ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => {
                    let constraints = attributes.get("spec").and_then(|spec| spec.get("matchConstraints"));
                    items(constraints.and_then(|it| it.get("resourceRules"))).collect()
                }
                _ => continue,
            };
            let server = clusters.server(clusters.of_wanted(resource));
            let named = rules.into_iter().flat_map(|rule| items(rule.get("apiGroups"))).filter_map(Value::as_str);
            groups.extend(named.map(|group| (server, group)));
        }
        Self(groups)
    }

    fn may_change(&self, server: &str, group: &str) -> bool {
        [group, "*"].iter().any(|group| self.0.contains(&(server, *group)))
    }
}

fn items(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}
