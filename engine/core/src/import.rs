//! What is there already is recorded as it is: an import changes nothing but the record.
//!
//! Start at [`candidates`], which says what of a [`Selection`] has to be looked for, and [`plan`], which decides when it was.
//! Of an object only its identity is recorded ([`StateResource::found`]): nothing was applied to it, so that no field is
//! ours, and the next plan asks the infrastructure what applying would change.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cluster::{Clusters, Identity};
use crate::object::{ObjectRef, uid_of};
use crate::owner::{Owner, Standing};
use crate::plan::{Action, FoundResource, Live, Plan, PlannedAction};
use crate::planner::{Draft, with_attributes};
use crate::problem::{Problem, reason};
use crate::spec::{Resource, ResourceId, ResourceType, Spec};
use crate::state::{State, StateResource};
use crate::validate::{check_id, identity};

/// The extension that says what a resource which was there before is called outside, as in Kusion. A resource that has it
/// is applied like any other, and never removed: what was there before a deployment stays after it.
///
/// A Kubernetes object is called by its id, or by `<namespace>/<name>`, or by its name where it has no namespace.
pub const IMPORT_ID: &str = "kusionstack.io/import-id";

/// What is told of a resource that is left alone because of its [`IMPORT_ID`].
pub const LEFT_AS_IMPORTED: &str = "it was imported, and is left alone";

/// What an import is to take up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Selection {
    /// Resources of the Spec: each has to be there.
    #[serde(default)]
    pub resources: Vec<Selected>,
    /// Every other resource of the Spec that is there and nobody's yet.
    #[serde(default)]
    pub all: bool,
    /// What another system has on record: what of it is there, in the Spec or not.
    #[serde(default)]
    pub records: Vec<ForeignRecord>,
}

/// One resource of the Spec.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Selected {
    /// Its id.
    pub id: ResourceId,
    /// What it is called outside, where its id does not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure_id: Option<String>,
}

/// What another system has on record of a resource, without its values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForeignRecord {
    /// Its id, which is the same here.
    pub id: ResourceId,
    /// What it depends on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<ResourceId>,
    /// What is kept of its extensions.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extensions: Map<String, Value>,
    /// Whether it names no namespace, whatever its id says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unplaced: bool,
}

/// Something to look for.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Which object it is, and the extensions to record it with.
    pub resource: StateResource,
    /// As it is wanted, where the Spec has it.
    pub desired: Option<Resource>,
    /// What it means when it is not there, or another's.
    asked: Asked,
}

/// How it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// By its id: it has to be there, and nobody's.
    ByName,
    /// It is on record elsewhere: it may be gone meanwhile, and has to be nobody's.
    Elsewhere,
    /// With everything else: what is not there or another's is passed over.
    WithAll,
}

/// Whether something that is recorded with these extensions is left alone when it is wanted no more.
pub(crate) fn is_to_be_left(extensions: &Map<String, Value>) -> bool {
    extensions.get(IMPORT_ID).is_some_and(|id| !id.is_null() && id != "")
}

/// Checks that the import id of a Kubernetes object names that object, as far as no reference hides that.
pub(crate) fn check_import_id(resource: &Resource) -> Option<Problem> {
    let field = format!("extensions.{IMPORT_ID}");
    let name = match resource.extensions.get(IMPORT_ID)? {
        Value::Null => return None,
        Value::String(name) => name,
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            return Some(Problem::new(reason::INVALID_RESOURCE, "text is wanted here").at(field));
        }
    };
    identity(&resource.attributes)?;
    let object = ObjectRef::of(&resource.attributes)?;
    (!name.is_empty() && !is_name_of(name, &resource.id, &object)).then(|| misnamed(name, &object).at(field))
}

/// Why an id is not that of the object with these attributes, if it is not: [`Problem::field`] says in what.
pub fn disagreement(id: &ResourceId, attributes: &Map<String, Value>) -> Option<Problem> {
    let unnamed = || Problem::new(reason::MISSING_FIELD, "it names no object").of(id).at("attributes");
    match ObjectRef::of(attributes).filter(|_| identity(attributes).is_some()) {
        Some(object) => check_id(id, &object, None),
        None => Some(unnamed()),
    }
}

/// Whether a Kubernetes object is called so.
fn is_name_of(name: &str, id: &ResourceId, object: &ObjectRef) -> bool {
    let ObjectRef { namespace, name: own, .. } = object;
    name == id.0 || if namespace.is_empty() { name == own } else { name == format!("{namespace}/{own}") }
}

fn misnamed(name: &str, object: &ObjectRef) -> Problem {
    let ObjectRef { kind, namespace, name: own, .. } = object;
    let place = if namespace.is_empty() { own.clone() } else { format!("{namespace}/{own}") };
    let message = format!("`{name}` is not the {kind} that the id names, which is called by its id or `{place}`");
    Problem::new(reason::INVALID_RESOURCE_ID, message)
}

/// What has to be looked for, by id: what is selected and not recorded yet.
///
/// # Errors
///
/// What is selected and not in the Spec, cannot be named yet, or is called otherwise outside.
pub fn candidates(
    spec: &Spec,
    draft: &Draft,
    state: &State,
    selection: &Selection,
    clusters: &Clusters,
) -> Result<BTreeMap<ResourceId, Candidate>, Vec<Problem>> {
    let wanted: BTreeMap<&ResourceId, &Resource> = spec.resources.iter().map(|it| (&it.id, it)).collect();
    let recorded: BTreeSet<&ResourceId> = state.resources.iter().map(|it| &it.id).collect();
    // An object may be recorded under an id that it had before.
    let objects: BTreeSet<Identity> = state.resources.iter().filter_map(|it| clusters.recorded(it)).collect();
    let mut problems = Vec::new();
    let mut found = BTreeMap::new();
    let mut take = |id: &ResourceId, infrastructure_id: Option<&str>, asked: Asked| {
        let Some(resource) = wanted.get(id) else { return };
        match wanted_candidate(resource, draft, infrastructure_id, asked) {
            Ok(candidate) => {
                let object = clusters.recorded(&candidate.resource);
                if !recorded.contains(id) && object.is_none_or(|object| !objects.contains(&object)) {
                    found.insert(id.clone(), candidate);
                }
            }
            Err(_) if asked == Asked::WithAll => {}
            Err(problem) => problems.push(problem.of(id)),
        }
    };
    if selection.all {
        wanted.keys().for_each(|id| take(id, None, Asked::WithAll));
    }
    for Selected { id, infrastructure_id } in &selection.resources {
        take(id, infrastructure_id.as_deref(), Asked::ByName);
    }
    for record in &selection.records {
        take(&record.id, None, Asked::Elsewhere);
    }
    for Selected { id, .. } in selection.resources.iter().filter(|it| !wanted.contains_key(&it.id)) {
        let message = "the Spec of the stack has no resource with this id";
        problems.push(Problem::new(reason::NOT_IN_SPEC, message).of(id));
    }
    for record in selection.records.iter().filter(|it| !wanted.contains_key(&it.id) && !recorded.contains(&it.id)) {
        let Some(named) = StateResource::named_by(&record.id) else {
            let message = "an id that names no Kubernetes object";
            problems.push(Problem::new(reason::INVALID_RESOURCE_ID, message).of(&record.id));
            continue;
        };
        let unplaced = named.without_namespace().filter(|_| record.unplaced);
        let resource = StateResource { extensions: record.extensions.clone(), ..unplaced.unwrap_or(named) };
        if clusters.recorded(&resource).is_some_and(|object| objects.contains(&object)) {
            continue;
        }
        let resource = resource.depending_on(record.depends_on.clone());
        found.insert(record.id.clone(), Candidate { resource, desired: None, asked: Asked::Elsewhere });
    }
    problems.sort();
    problems.dedup();
    if problems.is_empty() { Ok(found) } else { Err(problems) }
}

fn wanted_candidate(
    resource: &Resource,
    draft: &Draft,
    infrastructure_id: Option<&str>,
    asked: Asked,
) -> Result<Candidate, Problem> {
    if resource.kind != ResourceType::Kubernetes {
        let message = format!("nothing here imports resources of type {}", resource.kind);
        return Err(Problem::new(reason::NO_RUNTIME, message));
    }
    let unnamed = || Problem::new(reason::INVALID_REFERENCE, "what it is called is known only after apply");
    let resolved = draft.desired.get(&resource.id).ok_or_else(unnamed)?;
    if identity(&resolved.attributes).is_none() {
        return Err(unnamed());
    }
    let object = ObjectRef::of(&resolved.attributes).ok_or_else(unnamed)?;
    if let Some(name) = infrastructure_id.filter(|name| !is_name_of(name, &resource.id, &object)) {
        return Err(misnamed(name, &object).at("infrastructureId"));
    }
    let named = StateResource::named_by(&resource.id).ok_or_else(unnamed)?;
    let unplaced = named.without_namespace().filter(|_| object.namespace.is_empty());
    let named = unplaced.unwrap_or(named);
    let planned = draft.plan.actions.iter().find(|planned| planned.id == resource.id);
    let depends_on = planned.map(|planned| planned.depends_on.clone()).unwrap_or_default();
    let named = StateResource { extensions: resource.kept_extensions(), ..named }.depending_on(depends_on);
    let desired = with_attributes(resource, resolved.attributes.clone().into_owned());
    Ok(Candidate { resource: named, desired: Some(desired), asked })
}

/// Decides what is recorded: each candidate that is there and nobody's.
///
/// # Errors
///
/// What has to be there and is not, or cannot be looked at, and what belongs to another deployment.
pub fn plan(
    owner: &Owner,
    spec_digest: &str,
    candidates: &BTreeMap<ResourceId, Candidate>,
    live: &BTreeMap<ResourceId, Live>,
) -> Result<Plan, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut actions = Vec::new();
    for (id, candidate) in candidates {
        let found = match live.get(id) {
            Some(Live::Present(found)) => found,
            Some(Live::Absent) if candidate.asked == Asked::ByName => {
                let message = "it is not there, so that there is nothing to import";
                problems.push(Problem::new(reason::NOT_THERE, message).of(id));
                continue;
            }
            Some(Live::Unverified(why)) if candidate.asked != Asked::WithAll => {
                problems.push(Problem::new(reason::NOT_THERE, format!("it cannot be looked for: {why}")).of(id));
                continue;
            }
            Some(Live::Absent | Live::Unverified(_)) | None => continue,
        };
        match owner.standing(None, found) {
            Standing::Free => {}
            Standing::Refused(_) | Standing::TakesOver(_) if candidate.asked == Asked::WithAll => continue,
            Standing::Refused(message) => {
                problems.push(Problem::new(reason::OWNED_BY_ANOTHER, message).of(id));
                continue;
            }
            Standing::TakesOver(before) => {
                let message =
                    format!("it bears the mark of {before}, an earlier stack of this name: apply takes it over");
                problems.push(Problem::new(reason::OWNED_BY_ANOTHER, message).of(id));
                continue;
            }
        }
        let StateResource { depends_on, extensions, .. } = candidate.resource.clone();
        let uid = uid_of(found).map(str::to_owned);
        actions.push(PlannedAction {
            depends_on,
            found: Some(FoundResource { uid, extensions }),
            ..PlannedAction::new(id.clone(), candidate.resource.kind, Action::Import)
        });
    }
    if problems.is_empty() { Ok(Plan { actions, ..Plan::of(spec_digest) }) } else { Err(problems) }
}

#[cfg(test)]
mod tests;
