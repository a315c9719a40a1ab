//! Custom resources that are wanted together with the definition of their kind.
//!
//! Start at [`Custom::check`]. A cluster that has no such definition yet, or another one, cannot be asked about them, and what
//! is wrong with them would be found in the middle of a run. So they are held against the definition that is wanted, which is
//! what will hold. Where the cluster could be asked, and goes on to have the definition that it has, it has decided. What it
//! refuses by a definition that changes first is not known to be wrong ([`Custom::outdated`]), and what it leaves out by one is
//! not known to be left out ([`Custom::take_back`]).
//!
//! Submodule: `compared` finds out which definitions are going to be others.

mod compared;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use stoa_engine::definitions::{Definitions, served_version};
use stoa_engine::object::is_going;
use stoa_engine::planner::Sketch;
use stoa_engine::problem::reason;
use stoa_engine::pruned::is_pruned;
use stoa_engine::{Action, Clusters, FieldPath, Live, ObjectRef, Preview, Problem, Resource, ResourceId, ResourceType};
use stoa_runtime::{Level, Runtime, RuntimeError, Validation};

use crate::planning::Desired;
use crate::structural::{Fault, Finding, Instance, Validator, are_equal};
use crate::validation::{Manifest, Unasked};
use compared::{Compared, is_same};

/// What is wanted, and the definitions among it.
#[derive(Debug)]
pub(crate) struct Custom<'p> {
    clusters: &'p Clusters,
    desired: &'p Desired<'p>,
    sketch: &'p Sketch<'p>,
    live: &'p BTreeMap<ResourceId, Live>,
    definitions: Definitions<'p>,
    compared: Compared<'p>,
    /// How what no cluster is asked about is validated.
    validation: &'p Validation,
}

/// What the definition of a resource's kind says of its version.
#[derive(Clone, Copy, Debug)]
struct Defined<'p> {
    definition: &'p ResourceId,
    group: &'p str,
    /// An entry of its `spec.versions`.
    version: &'p Value,
}

impl Defined<'_> {
    /// Why an answer by what is there says nothing.
    fn is_another(&self) -> String {
        format!("its kind is another once {} is there as it is wanted", self.definition)
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    /// What would be refused.
    pub(crate) problems: Vec<Problem>,
    /// What people should know.
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

    /// Why what a cluster refuses of a resource now says nothing: it may be taken once its definition is there as it is
    /// wanted, which comes first.
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

    /// Takes back what a cluster says to make of resources where it leaves out some of what is wanted, which it may keep once
    /// its definition is there as it is wanted: nothing would seem to change.
    pub(crate) fn take_back(&self, previews: &mut BTreeMap<ResourceId, Preview>) {
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

    /// Checks what is to be applied, once everybody has been asked.
    pub(crate) async fn check(&self, runtime: &dyn Runtime, previews: &BTreeMap<ResourceId, Preview>) -> Checked {
        let (admission, is_asked) = (Admission::of(self.desired, self.clusters), runtime.validates());
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
            // What is made anew has nothing that may stay.
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

    /// What is wrong with an object by what its definition is going to say, where a cluster says to make `made` of it.
    async fn found(
        &self,
        validator: &mut Validator<'p>,
        defined: Defined<'p>,
        instance: Instance<'_>,
        made: Option<&Map<String, Value>>,
    ) -> Vec<Finding> {
        let found = validator.check(defined.version, instance).await;
        let Some(attributes) = made.filter(|_| !found.is_empty()) else { return found };
        // The cluster's own admission may mend it. The definition that is there has left out and filled in fields, too, so that
        // nothing else is found in what came of that.
        let still = validator.check(defined.version, Instance { attributes, ..instance }).await;
        let still: Vec<Finding> = still.into_iter().filter(|it| it.fault.follows_admission()).collect();
        // What that definition fills in nobody does once it is gone.
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

    /// What is wanted of the definition of a resource's kind, as far as that is known and may be told.
    fn defined(&self, resource: &Resource) -> Option<Defined<'p>> {
        let (definition, said, version) = self.definition_of(resource)?;
        let group = said.get("spec")?.get("group")?.as_str()?;
        Some(Defined { definition, group, version: served_version(said, &version)? })
    }

    /// What is wrong with a resource in a version that its definition is not going to serve. Where nobody serves it now, who
    /// plans says so.
    fn unserved(&self, id: &ResourceId, resource: &Resource) -> Option<Problem> {
        let (definition, said, version) = self.definition_of(resource)?;
        // One that names none is refused itself.
        said.get("spec")?.get("versions")?.as_array().filter(|versions| !versions.is_empty())?;
        let is_known = matches!(self.live.get(id)?, Live::Present(_) | Live::Absent);
        let is_called = |id: &ResourceId| self.sketch.actions.get(id).is_some_and(|planned| planned.action.is_call());
        let is_new = is_known && (is_called(definition) || is_called(id)) && served_version(said, &version).is_none();
        let message = || format!("{definition}, as it is wanted, does not serve its kind in version {version:?}");
        is_new.then(|| Problem::new(reason::UNKNOWN_KIND, message()).of(id).at("attributes.apiVersion"))
    }

    /// The definition of a resource's kind, what is wanted of it, and the version that the resource is written in.
    fn definition_of(&self, resource: &Resource) -> Option<(&'p ResourceId, &'p Map<String, Value>, String)> {
        let object = ObjectRef::of(&resource.attributes).filter(|_| resource.kind == ResourceType::Kubernetes)?;
        let definition = self.definitions.custom(self.clusters.of_wanted(resource), &object)?;
        // Where people wrote that it comes later, the one that is there decides.
        if !self.sketch.actions.get(&resource.id)?.depends_on.contains(definition) {
            return None;
        }
        Some((definition, self.definition(definition)?, object.version))
    }

    /// Whether nobody has decided about a resource that is to be applied by what its definition says of its version.
    fn is_open(
        &self,
        id: &ResourceId,
        answer: Option<&Preview>,
        defined: Defined<'p>,
        previews: &BTreeMap<ResourceId, Preview>,
    ) -> bool {
        let is_answered = match answer {
            Some(Preview::Changed(_) | Preview::Contested(..) | Preview::Replaced(_) | Preview::Refused(_)) => true,
            Some(Preview::Unverified(_) | Preview::MissingNamespace(_) | Preview::Lifted(..)) | None => false,
        };
        self.is_applied(id) && (!is_answered || self.is_new(defined, previews))
    }

    /// Whether the plan applies a resource.
    fn is_applied(&self, id: &ResourceId) -> bool {
        let action = self.sketch.actions.get(id).map(|planned| planned.action);
        matches!(action, Some(Action::Create | Action::Update | Action::Adopt | Action::Replace))
    }

    /// Whether a definition is going to have another schema of a version than it has, whatever else of it changes. What the
    /// cluster makes of it counts, where it said so: it writes some things otherwise than people do.
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

    /// What the definition that is there says of a version.
    fn there(&self, Defined { definition, version, .. }: Defined<'p>) -> Option<&'p Value> {
        match self.live.get(definition)? {
            Live::Present(live) => served_version(live, version["name"].as_str()?),
            Live::Absent | Live::Unverified(_) => None,
        }
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

/// What admission makes of a resource, as a cluster says.
fn admitted(preview: &Preview) -> Option<&Map<String, Value>> {
    match preview {
        Preview::Changed(object) | Preview::Contested(object, _) => Some(object),
        Preview::Replaced(object) => object.as_ref(),
        Preview::Unverified(_) | Preview::MissingNamespace(_) | Preview::Lifted(..) | Preview::Refused(_) => None,
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
