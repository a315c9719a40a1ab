//! Validation of custom resources whose definition is in the same Spec.
//!
//! Start at [`Custom::check`]. A cluster with no definition, or with an older one, cannot validate such a resource in a
//! dry run. The Run would fail halfway. Therefore the resource is validated against the wanted definition. The cluster
//! decides about definitions that it has and that do not change. Its rejections by an old definition are ignored
//! ([`Custom::outdated`]), and so are fields that an old definition prunes ([`Custom::ignore_pruned_previews`]).
//!
//! Submodule: `compared` finds definitions whose schemas change.

mod compared;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use stoa_engine::object::is_terminating;
use stoa_engine::planner::Sketch;
use stoa_engine::problem::reason;
use stoa_engine::{Action, Clusters, FieldPath, Live, ObjectRef, Preview, Problem, Resource, ResourceId, ResourceType};
use stoa_kubernetes_model::definitions::{Definitions, served_version};
use stoa_kubernetes_model::pruned::is_pruned;
use stoa_runtime::{Level, Runtime, RuntimeError, Validation};

use crate::planning::Desired;
use crate::structural::{Fault, Finding, Instance, Validator, are_equal};
use crate::validation::{Manifest, Unasked};
use compared::{Compared, is_same};

/// The wanted resources, and the definitions among them.
#[derive(Debug)]
pub(crate) struct Custom<'p> {
    clusters: &'p Clusters,
    desired: &'p Desired<'p>,
    sketch: &'p Sketch<'p>,
    live: &'p BTreeMap<ResourceId, Live>,
    definitions: Definitions<'p>,
    compared: Compared<'p>,
    /// The validation of resources that no cluster checks.
    validation: &'p Validation,
}

/// A version of the definition of a resource's kind.
#[derive(Clone, Copy, Debug)]
struct Defined<'p> {
    definition: &'p ResourceId,
    group: &'p str,
    /// An entry of its `spec.versions`.
    version: &'p Value,
}

impl Defined<'_> {
    /// Why an answer by the present definition does not count.
    fn is_another(&self) -> String {
        format!("its kind changes when {} is applied", self.definition)
    }
}

/// The findings.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    /// Problems that would be rejections.
    pub(crate) problems: Vec<Problem>,
    /// Warnings.
    pub(crate) notes: Vec<String>,
}

impl<'p> Custom<'p> {
    pub(crate) fn new(
        clusters: &'p Clusters,
        desired: &'p Desired<'p>,
        sketch: &'p Sketch<'p>,
        live: &'p BTreeMap<ResourceId, Live>,
        validation: &'p Validation,
    ) -> Self {
        let definitions = Definitions::of(desired.values().map(AsRef::as_ref), clusters);
        Self { clusters, desired, sketch, live, definitions, compared: Compared::default(), validation }
    }

    /// Why a cluster's rejection does not count: the definition changes first, and may then accept the resource.
    pub(crate) fn outdated(
        &self,
        id: &ResourceId,
        error: &RuntimeError,
        previews: &BTreeMap<ResourceId, Preview>,
    ) -> Option<String> {
        if !matches!(error, RuntimeError::Rejected { by_definition: true, .. }) {
            return None;
        }
        let defined = self.defined(self.desired.get(id)?)?;
        self.is_new(defined, previews).then(|| defined.is_another())
    }

    /// Ignores dry runs in which the old definition prunes wanted fields, since the new one may keep them. Otherwise
    /// the resource would look Unchanged.
    pub(crate) fn ignore_pruned_previews(&self, previews: &mut BTreeMap<ResourceId, Preview>) {
        let lacking: Vec<(ResourceId, String)> = previews
            .iter()
            .filter_map(|(id, preview)| {
                let (Preview::Changed(made), resource) = (preview, self.desired.get(id)?) else { return None };
                let defined = self.defined(resource)?;
                let is_new = is_pruned(&resource.attributes, made) && self.is_new(defined, previews);
                is_new.then(|| (id.clone(), defined.is_another()))
            })
            .collect();
        previews.extend(lacking.into_iter().map(|(id, why)| (id, Preview::Unverified(why))));
    }

    /// Validates the resources to apply, after all dry runs.
    pub(crate) async fn check(&self, runtime: &dyn Runtime, previews: &BTreeMap<ResourceId, Preview>) -> Checked {
        let (admission, is_asked) = (Admission::of(self.desired, self.clusters), runtime.kubernetes().validates());
        let (mut validator, mut checked) = (Validator::default(), Checked::default());
        if !is_asked && self.validation.level == Level::Off {
            return checked;
        }
        let mut unasked = Unasked::new(self.validation);
        let report = |unasked: &Unasked<'_>, problem: Problem, checked: &mut Checked| match is_asked {
            true => checked.problems.push(problem),
            false => unasked.report(problem, checked),
        };
        for (id, resource) in self.desired {
            if let Some(problem) = self.unserved(id, resource) {
                report(&unasked, problem, &mut checked);
            }
            let Some(unknown) = self.sketch.desired.get(id).map(|known| &known.unknown) else { continue };
            let defined = self.defined(resource);
            if !is_asked && self.is_applied(id) {
                unasked.check(&mut validator, resource, unknown, defined.is_some(), &mut checked).await;
            }
            let answer = previews.get(id).filter(|_| is_asked);
            let defined = defined.filter(|it| self.is_open(id, answer, *it, previews));
            let Some(defined) = defined else { continue };
            // A recreated object keeps no live values.
            let live = self.changed(id).filter(|_| !matches!(answer, Some(Preview::Replaced(_))));
            let manifest = Manifest::of(&resource.attributes, unknown);
            let instance = Instance { attributes: &manifest.attributes, live, unknown: &manifest.unknown };
            let found = self.found(&mut validator, defined, instance, answer.and_then(admitted)).await;
            let server = self.clusters.server(self.clusters.of_wanted(resource));
            let may_mend = admission.may_change(server, defined.group);
            for finding in found {
                if finding.fault == Fault::Dropped {
                    checked.notes.push(format!("{id}: attributes.{}: {}", finding.field, finding.message));
                } else if !may_mend || !finding.fault.follows_admission() {
                    report(&unasked, problem(finding).of(id), &mut checked);
                }
            }
        }
        checked.notes.extend(unasked.undefined());
        checked
    }

    /// The findings of an object by its new definition; `made` is the result of its dry run.
    async fn found(
        &self,
        validator: &mut Validator<'p>,
        defined: Defined<'p>,
        instance: Instance<'_>,
        made: Option<&Map<String, Value>>,
    ) -> Vec<Finding> {
        let found = validator.check(defined.version, instance).await;
        let Some(attributes) = made.filter(|_| !found.is_empty()) else { return found };
        // Mutating admission in the cluster may fix it. The present definition has also pruned and defaulted fields, so
        // that only the same finding in the result counts.
        let still = validator.check(defined.version, Instance { attributes, ..instance }).await;
        let still: Vec<Finding> = still.into_iter().filter(|it| it.fault.follows_admission()).collect();
        // Defaults of the present definition are lost with it.
        let filled = self.there(defined).and_then(|version| validator.filled_in(version, instance));
        let is_filled = |field: &FieldPath| {
            let filled = filled.as_ref().and_then(|filled| field.get(filled));
            filled.zip(field.get(attributes)).is_some_and(|(filled, made)| are_equal(filled, made))
        };
        let (after, mut left): (Vec<Finding>, _) = found.into_iter().partition(|it| it.fault.follows_admission());
        let is_among = |findings: &[Finding], it: &Finding| findings.iter().any(|other| other.field == it.field);
        left.extend(after.iter().filter(|it| !is_among(&still, it) && is_filled(&it.field)).cloned());
        left.extend(still.into_iter().filter(|it| is_among(&after, it)));
        left
    }

    /// The wanted definition of a resource's kind, as far as it is known and not sensitive.
    fn defined(&self, resource: &Resource) -> Option<Defined<'p>> {
        let (definition, said, version) = self.definition_of(resource)?;
        let group = said.get("spec")?.get("group")?.as_str()?;
        Some(Defined { definition, group, version: served_version(said, &version)? })
    }

    /// The problem of a resource in a version that its definition will not serve. Without any server for the version,
    /// the planner reports it.
    fn unserved(&self, id: &ResourceId, resource: &Resource) -> Option<Problem> {
        let (definition, said, version) = self.definition_of(resource)?;
        // One that names none is refused itself.
        said.get("spec")?.get("versions")?.as_array().filter(|versions| !versions.is_empty())?;
        let is_known = matches!(self.live.get(id)?, Live::Present(_) | Live::Absent);
        let is_called = |id: &ResourceId| self.sketch.actions.get(id).is_some_and(|planned| planned.action.is_call());
        let is_new = is_known && (is_called(definition) || is_called(id)) && served_version(said, &version).is_none();
        let message = || format!("{definition} in the Spec does not serve its kind in version {version:?}");
        is_new.then(|| Problem::new(reason::UNKNOWN_KIND, message()).of(id).at("attributes.apiVersion"))
    }

    /// The definition of a resource's kind, what is wanted of it, and the version that the resource is written in.
    fn definition_of(&self, resource: &Resource) -> Option<(&'p ResourceId, &'p Map<String, Value>, String)> {
        let object = ObjectRef::of(&resource.attributes).filter(|_| resource.kind == ResourceType::Kubernetes)?;
        let definition = self.definitions.custom(self.clusters.of_wanted(resource), &object)?;
        // If the definition follows the resource by `dependsOn`, the present one decides.
        if !self.sketch.actions.get(&resource.id)?.depends_on.contains(definition) {
            return None;
        }
        Some((definition, self.definition(definition)?, object.version))
    }

    /// Whether no server has validated a resource to apply by the new schema of its version.
    fn is_open(
        &self,
        id: &ResourceId,
        answer: Option<&Preview>,
        defined: Defined<'p>,
        previews: &BTreeMap<ResourceId, Preview>,
    ) -> bool {
        let is_answered = match answer {
            Some(
                Preview::Changed(_)
                | Preview::Contested(..)
                | Preview::Replaced(_)
                | Preview::Refused(_)
                | Preview::Planned(_),
            ) => true,
            Some(Preview::Unverified(_) | Preview::MissingNamespace(_) | Preview::RejectedUntil(..)) | None => false,
        };
        self.is_applied(id) && (!is_answered || self.is_new(defined, previews))
    }

    /// Whether the plan applies a resource.
    fn is_applied(&self, id: &ResourceId) -> bool {
        let action = self.sketch.actions.get(id).map(|planned| planned.action);
        matches!(action, Some(Action::Create | Action::Update | Action::Adopt | Action::Replace))
    }

    /// Whether the schema of a version changes, whatever else of the definition does. The dry run of the definition
    /// counts, since a server normalizes it.
    fn is_new(&self, defined: Defined<'p>, previews: &BTreeMap<ResourceId, Preview>) -> bool {
        let Defined { definition, version, .. } = defined;
        let name = version["name"].as_str().unwrap_or_default();
        self.compared.is_new(definition, name, || {
            let is_called = self.sketch.actions.get(definition).is_some_and(|planned| planned.action.is_call());
            let there = self.there(defined);
            let made = previews.get(definition).and_then(admitted);
            let wanted = made.map_or(Some(version), |made| served_version(made, name));
            let [there, wanted] = [there, wanted].map(|version| version?.pointer("/schema/openAPIV3Schema"));
            is_called && (there.is_none() || !is_same(there, wanted))
        })
    }

    /// The present version of a definition.
    fn there(&self, Defined { definition, version, .. }: Defined<'p>) -> Option<&'p Value> {
        match self.live.get(definition)? {
            Live::Present(live) => served_version(live, version["name"].as_str()?),
            Live::Absent | Live::Unverified(_) => None,
        }
    }

    /// The content of a definition, as far as it is known and not sensitive.
    fn definition(&self, id: &ResourceId) -> Option<&'p Map<String, Value>> {
        let known = self.sketch.desired.get(id)?;
        let is_plain = known.unknown.is_empty() && known.sensitive.is_empty();
        Some(&self.desired.get(id)?.attributes).filter(|_| is_plain)
    }

    /// The live object of a resource that changes.
    fn changed(&self, id: &ResourceId) -> Option<&'p Map<String, Value>> {
        match (self.sketch.actions.get(id)?.action, self.live.get(id)?) {
            (Action::Update | Action::Adopt, Live::Present(live)) if !is_terminating(live) => Some(live),
            _ => None,
        }
    }
}

/// The result of admission in a dry run.
fn admitted(preview: &Preview) -> Option<&Map<String, Value>> {
    match preview {
        Preview::Changed(object) | Preview::Contested(object, _) => Some(object),
        Preview::Replaced(object) => object.as_ref(),
        Preview::Unverified(_)
        | Preview::MissingNamespace(_)
        | Preview::RejectedUntil(..)
        | Preview::Refused(_)
        | Preview::Planned(_) => None,
    }
}

pub(crate) fn problem(finding: Finding) -> Problem {
    let Finding { fault, field, message } = finding;
    let why = match fault {
        Fault::Missing => reason::MISSING_FIELD,
        Fault::Mistyped | Fault::Unknown | Fault::Dropped | Fault::Refused => reason::INVALID_RESOURCE,
    };
    Problem::new(why, message).at(format!("attributes.{field}"))
}

/// Wanted admission configurations that may change objects before validation: by server and group, which may be `*`.
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
