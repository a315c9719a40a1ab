//! Validation of custom resources whose definition is in the same Spec.
//!
//! Start at [`Custom::check`]. A cluster with no definition, or with an older one, cannot validate such a resource in a
//! dry run. The Run would fail halfway. Therefore the resource is validated against the wanted definition. While a
//! definition changes, rejections by the old one are ignored ([`Custom::outdated`]), and so are fields that the old one
//! prunes ([`Custom::ignore_pruned_previews`]).

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use stoa_engine::definitions::{Definitions, served_version};
use stoa_engine::planner::Sketch;
use stoa_engine::problem::reason;
use stoa_engine::pruned::is_pruned;
use stoa_engine::{Action, Clusters, Live, ObjectRef, Preview, Problem, Resource, ResourceId, ResourceType};
use stoa_runtime::{Level, Runtime, RuntimeError, Validation};
use stoa_schemas::Fault;

use crate::planning::Desired;
use crate::structural::{Instance, Validator};
use crate::validation::{Manifest, Unasked, problem};

/// The wanted resources, and the definitions among them.
#[derive(Debug)]
pub(crate) struct Custom<'p> {
    clusters: &'p Clusters,
    desired: &'p Desired<'p>,
    sketch: &'p Sketch<'p>,
    live: &'p BTreeMap<ResourceId, Live>,
    definitions: Definitions<'p>,
    /// The validation of resources that no cluster checks.
    validation: &'p Validation,
}

#[derive(Debug, Default)]
pub(crate) struct Checked {
    /// Problems that would be rejections.
    pub(crate) problems: Vec<Problem>,
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
        Self { clusters, desired, sketch, live, definitions, validation }
    }

    /// Why a cluster's rejection does not count: the definition changes first, and may then accept the resource.
    pub(crate) fn outdated(&self, id: &ResourceId, error: &RuntimeError) -> Option<String> {
        if !matches!(error, RuntimeError::Rejected { by_definition: true, .. }) {
            return None;
        }
        self.changing_definition(self.desired.get(id)?)
    }

    /// Ignores dry runs in which the old definition prunes wanted fields, since the new one may keep them. Otherwise
    /// the resource would look Unchanged.
    pub(crate) fn ignore_pruned_previews(&self, previews: &mut BTreeMap<ResourceId, Preview>) {
        for (id, preview) in previews {
            if let (Preview::Changed(made), Some(resource)) = (&*preview, self.desired.get(id))
                && is_pruned(&resource.attributes, made)
                && let Some(why) = self.changing_definition(resource)
            {
                *preview = Preview::Unverified(why);
            }
        }
    }

    /// Validates the resources to apply, after all dry runs.
    pub(crate) async fn check(&self, runtime: &dyn Runtime, previews: &BTreeMap<ResourceId, Preview>) -> Checked {
        let is_asked = runtime.validates();
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
            if !self.is_applied(id) {
                continue;
            }
            let version = self.wanted_version(resource);
            if !is_asked {
                unasked.check(&mut validator, resource, unknown, version.is_some(), &mut checked).await;
            }
            let is_there = matches!(self.live.get(id), Some(Live::Present(_)));
            let is_unanswered = is_asked && !is_there && !is_answered(previews.get(id));
            let is_open = !is_asked || is_unanswered || self.changing_definition(resource).is_some();
            let Some(version) = version.filter(|_| is_open) else { continue };
            let Manifest { attributes, unknown } = &Manifest::of(&resource.attributes, unknown);
            for finding in validator.check(version, Instance { attributes, unknown }).await {
                match finding.fault {
                    // Others may have set it.
                    Fault::Missing if is_asked && is_there => {}
                    Fault::Dropped => {
                        checked.notes.push(format!("{id}: attributes.{}: {}", finding.field, finding.message));
                    }
                    Fault::Missing | Fault::Invalid | Fault::Kind => {
                        report(&unasked, problem(finding).of(id), &mut checked);
                    }
                }
            }
        }
        checked.notes.extend(unasked.undefined());
        checked
    }

    /// The wanted version of a resource's definition, as far as it is known and not sensitive.
    fn wanted_version(&self, resource: &Resource) -> Option<&'p Value> {
        let (_, definition, version) = self.definition_of(resource)?;
        served_version(definition, &version)
    }

    /// Why an answer by the present definition does not count, if the plan changes the definition.
    fn changing_definition(&self, resource: &Resource) -> Option<String> {
        let (definition, ..) = self.definition_of(resource)?;
        self.is_called(definition).then(|| format!("its kind changes when {definition} is applied"))
    }

    /// The problem of a resource in a version that its definition will not serve. Without any server for the version,
    /// the planner reports it.
    fn unserved(&self, id: &ResourceId, resource: &Resource) -> Option<Problem> {
        let (definition, said, version) = self.definition_of(resource)?;
        // One that names none is refused itself.
        said.get("spec")?.get("versions")?.as_array().filter(|versions| !versions.is_empty())?;
        let is_known = matches!(self.live.get(id)?, Live::Present(_) | Live::Absent);
        let is_new =
            is_known && (self.is_called(definition) || self.is_called(id)) && served_version(said, &version).is_none();
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

    /// Whether the plan applies a resource.
    fn is_applied(&self, id: &ResourceId) -> bool {
        let action = self.sketch.actions.get(id).map(|planned| planned.action);
        matches!(action, Some(Action::Create | Action::Update | Action::Adopt | Action::Replace))
    }

    fn is_called(&self, id: &ResourceId) -> bool {
        self.sketch.actions.get(id).is_some_and(|planned| planned.action.is_call())
    }

    /// The content of a definition, as far as it is known and not sensitive.
    fn definition(&self, id: &ResourceId) -> Option<&'p Map<String, Value>> {
        let known = self.sketch.desired.get(id)?;
        let is_plain = known.unknown.is_empty() && known.sensitive.is_empty();
        Some(&self.desired.get(id)?.attributes).filter(|_| is_plain)
    }
}

/// Whether a server has validated a resource.
fn is_answered(preview: Option<&Preview>) -> bool {
    match preview {
        Some(Preview::Changed(_) | Preview::Contested(..) | Preview::Replaced(_) | Preview::Refused(_)) => true,
        Some(Preview::Unverified(_) | Preview::MissingNamespace(_) | Preview::RejectedUntil(..)) | None => false,
    }
}
