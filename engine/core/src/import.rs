//! Imports: existing objects are recorded without a change.
//!
//! Start at [`candidates`], which lists the objects of a [`Selection`] that have to be read, and [`plan`], which
//! decides afterwards. The record has only the identity of an object ([`StateResource::found`]). Nothing was applied,
//! so that no field is ours, and the next plan shows what an apply would change.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cluster::{Clusters, Identity};
use crate::encrypted::is_encrypted;
use crate::moved::{MOVED_FROM, former_id};
use crate::object::{ObjectRef, uid_of};
use crate::owner::{Owner, Ownership};
use crate::plan::{Action, FoundResource, Live, Plan, PlannedAction};
use crate::planner::{Draft, with_attributes};
use crate::problem::{Problem, reason};
use crate::provider_state::ProviderState;
use crate::spec::{Resource, ResourceId, ResourceType, Spec};
use crate::state::{State, StateResource};
use crate::validate::{check_id, identity};

/// The extension with the external name of an existing resource, as in Kusion. Such a resource is applied like any other
/// and never deleted.
///
/// The name of a Kubernetes object is its id, or `<namespace>/<name>`, or `<name>` without a namespace.
pub const IMPORT_ID: &str = "kusionstack.io/import-id";

/// The message about a resource that is not deleted because of its [`IMPORT_ID`].
pub const LEFT_AS_IMPORTED: &str = "it was imported and is not deleted";

/// The resources that an import selects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Selection {
    /// Resources of the Spec: each has to be there.
    #[serde(default)]
    pub resources: Vec<Selected>,
    /// Also every other existing resource of the Spec without an owner.
    #[serde(default)]
    pub all: bool,
    /// Records of another system: existing ones are imported, even outside of the Spec.
    #[serde(default)]
    pub records: Vec<ForeignRecord>,
    /// Whether records outside of the Spec are left out.
    #[serde(default)]
    pub only_wanted: bool,
}

/// One resource of the Spec.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Selected {
    /// Its id.
    pub id: ResourceId,
    /// Its external name, if the id does not imply it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure_id: Option<String>,
}

/// A record of another system, without values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForeignRecord {
    /// Its id, which is the same here.
    pub id: ResourceId,
    /// Its dependencies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<ResourceId>,
    /// Its recorded extensions.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extensions: Map<String, Value>,
    /// Whether it has no namespace, although its id has one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unplaced: bool,
    /// The type of the resource.
    #[serde(default, rename = "type", skip_serializing_if = "ResourceType::is_kubernetes")]
    pub kind: ResourceType,
    /// The state that its provider needs back, for resources of providers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_state: Option<ProviderState>,
}

impl Selection {
    /// The record of a resource of a provider that locates its object: by the state of another system, or by the external
    /// name. `None` where the selection has neither.
    pub fn located(&self, id: &ResourceId, extensions: &Map<String, Value>) -> Option<StateResource> {
        let mut located = StateResource {
            id: id.clone(),
            kind: ResourceType::Terraform,
            extensions: extensions.clone(),
            ..StateResource::default()
        };
        let record = self.records.iter().find(|record| record.id == *id && record.provider_state.is_some());
        if let Some(record) = record {
            located.provider_state.clone_from(&record.provider_state);
            return Some(located);
        }
        let named = self.resources.iter().find(|selected| selected.id == *id);
        if let Some(name) = named.and_then(|selected| selected.infrastructure_id.clone()) {
            located.extensions.insert(IMPORT_ID.to_owned(), name.into());
        }
        is_never_deleted(&located.extensions).then_some(located)
    }
}

/// An object that an import has to read.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Which object it is.
    pub resource: StateResource,
    /// The extensions to record it with.
    extensions: Map<String, Value>,
    /// As it is wanted, where the Spec has it.
    pub desired: Option<Resource>,
    /// What a missing object, or one of another owner, means.
    asked: Requirement,
}

/// How a candidate was selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Requirement {
    /// By its id: it has to exist without an owner.
    Named,
    /// By another system's record: it may be gone, and has to be without an owner.
    ForeignRecord,
    /// With everything else: what is not there or another's is passed over.
    Optional,
}

/// Whether a resource with these recorded extensions is not deleted.
pub(crate) fn is_never_deleted(extensions: &Map<String, Value>) -> bool {
    extensions.get(IMPORT_ID).is_some_and(|id| !id.is_null() && id != "")
}

/// Checks that the import id of a Kubernetes object names that object, as far as no reference hides that.
pub(crate) fn check_import_id(resource: &Resource) -> Option<Problem> {
    let field = format!("extensions.{IMPORT_ID}");
    let name = match resource.extensions.get(IMPORT_ID)? {
        Value::Null => return None,
        Value::String(name) => name,
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            return Some(Problem::new(reason::INVALID_RESOURCE, "must be text").at(field));
        }
    };
    identity(&resource.attributes)?;
    let object = ObjectRef::of(&resource.attributes)?;
    (!name.is_empty() && !is_name_of(name, &resource.id, &object)).then(|| misnamed(name, &object).at(field))
}

/// Why an id does not match the object with these attributes: [`Problem::field`] has the difference.
pub fn disagreement(id: &ResourceId, attributes: &Map<String, Value>) -> Option<Problem> {
    let unnamed = || Problem::new(reason::MISSING_FIELD, "it does not name an object").of(id).at("attributes");
    match ObjectRef::of(attributes).filter(|_| identity(attributes).is_some()) {
        Some(object) => check_id(id, &object, None),
        None => Some(unnamed()),
    }
}

fn is_name_of(name: &str, id: &ResourceId, object: &ObjectRef) -> bool {
    let ObjectRef { namespace, name: own, .. } = object;
    name == id.0 || if namespace.is_empty() { name == own } else { name == format!("{namespace}/{own}") }
}

fn misnamed(name: &str, object: &ObjectRef) -> Problem {
    let ObjectRef { kind, namespace, name: own, .. } = object;
    let place = if namespace.is_empty() { own.clone() } else { format!("{namespace}/{own}") };
    let message = format!("`{name}` does not match the id of the {kind}; use the id or `{place}`");
    Problem::new(reason::INVALID_RESOURCE_ID, message)
}

/// The objects that an import has to read, by id: selected and not recorded yet.
///
/// # Errors
///
/// Selected resources that are not in the Spec, have unknown names, or have another external name.
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
    let mut take = |id: &ResourceId, infrastructure_id: Option<&str>, asked: Requirement| {
        let Some(resource) = wanted.get(id) else { return };
        match wanted_candidate(resource, draft, selection, infrastructure_id, asked) {
            Ok(mut candidate) => {
                // The former id may have the same object, which it must not delete.
                if let Some(former) = former_id(resource).filter(|former| recorded.contains(former)) {
                    candidate.extensions.insert(MOVED_FROM.to_owned(), former.0.into());
                }
                let object = clusters.recorded(&candidate.resource);
                if !recorded.contains(id) && object.is_none_or(|object| !objects.contains(&object)) {
                    found.insert(id.clone(), candidate);
                }
            }
            Err(_) if asked == Requirement::Optional => {}
            Err(problem) => problems.push(problem.of(id)),
        }
    };
    if selection.all {
        wanted.keys().for_each(|id| take(id, None, Requirement::Optional));
    }
    for Selected { id, infrastructure_id } in &selection.resources {
        take(id, infrastructure_id.as_deref(), Requirement::Named);
    }
    for record in &selection.records {
        take(&record.id, None, Requirement::ForeignRecord);
    }
    for Selected { id, .. } in selection.resources.iter().filter(|it| !wanted.contains_key(&it.id)) {
        let message = "the Spec of the stack has no resource with this id";
        problems.push(Problem::new(reason::NOT_IN_SPEC, message).of(id));
    }
    for record in selection.records.iter().filter(|it| !wanted.contains_key(&it.id) && !recorded.contains(&it.id)) {
        if selection.only_wanted {
            continue;
        }
        if record.kind != ResourceType::Kubernetes {
            let located = selection.located(&record.id, &record.extensions);
            if let Some(resource) = located {
                let resource = resource.depending_on(record.depends_on.clone());
                let (extensions, asked) = (record.extensions.clone(), Requirement::ForeignRecord);
                found.insert(record.id.clone(), Candidate { resource, extensions, desired: None, asked });
            }
            continue;
        }
        let Some(named) = StateResource::named_by(&record.id) else {
            let message = "the id does not name a Kubernetes object";
            problems.push(Problem::new(reason::INVALID_RESOURCE_ID, message).of(&record.id));
            continue;
        };
        let unplaced = named.without_namespace().filter(|_| record.unplaced);
        let resource = StateResource { extensions: record.extensions.clone(), ..unplaced.unwrap_or(named) };
        if clusters.recorded(&resource).is_some_and(|object| objects.contains(&object)) {
            continue;
        }
        let resource = resource.depending_on(record.depends_on.clone());
        let (extensions, asked) = (record.extensions.clone(), Requirement::ForeignRecord);
        found.insert(record.id.clone(), Candidate { resource, extensions, desired: None, asked });
    }
    problems.sort();
    problems.dedup();
    if problems.is_empty() { Ok(found) } else { Err(problems) }
}

fn wanted_candidate(
    resource: &Resource,
    draft: &Draft,
    selection: &Selection,
    infrastructure_id: Option<&str>,
    asked: Requirement,
) -> Result<Candidate, Problem> {
    let planned = draft.plan.actions.iter().find(|planned| planned.id == resource.id);
    let depends_on = planned.map(|planned| planned.depends_on.clone()).unwrap_or_default();
    if resource.kind != ResourceType::Kubernetes {
        let located = selection.located(&resource.id, &resource.recorded_extensions()).ok_or_else(|| {
            let message = "the provider needs the id of the object; set it to the id that `terraform import` takes";
            Problem::new(reason::INVALID_RESOURCE_ID, message).at("infrastructureId")
        })?;
        let (resource, extensions) = (located.depending_on(depends_on), resource.recorded_extensions());
        return Ok(Candidate { resource, extensions, desired: None, asked });
    }
    let unnamed = || Problem::new(reason::INVALID_REFERENCE, "its name is known only after apply");
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
    let named = StateResource { extensions: resource.recorded_extensions(), ..named }.depending_on(depends_on);
    let desired = with_attributes(resource, resolved.attributes.clone().into_owned());
    let extensions = resource.recorded_extensions();
    Ok(Candidate { resource: named, extensions, desired: Some(desired), asked })
}

/// Plans the import of each candidate that exists without an owner.
///
/// # Errors
///
/// Required objects that do not exist or cannot be read, objects of another deployment, and encrypted ones that the Spec
/// has in clear.
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
            Some(Live::Absent) if candidate.asked == Requirement::Named => {
                let message = "the object does not exist, so it cannot be imported";
                problems.push(Problem::new(reason::NOT_THERE, message).of(id));
                continue;
            }
            Some(Live::Unverified(why)) if candidate.asked != Requirement::Optional => {
                problems.push(Problem::new(reason::NOT_THERE, format!("the object cannot be read: {why}")).of(id));
                continue;
            }
            Some(Live::Absent | Live::Unverified(_)) | None => continue,
        };
        if is_encrypted(found) && candidate.desired.as_ref().is_some_and(|it| !is_encrypted(&it.attributes)) {
            let message = "its file is encrypted by SOPS, and the manifest in the source is not; put the encrypted \
                           manifest into the source, or decrypt the file";
            problems.push(Problem::new(reason::INVALID_RESOURCE, message).of(id));
            continue;
        }
        match owner.ownership(None, found) {
            Ownership::Free => {}
            Ownership::Refused(_) | Ownership::TakesOver(_) if candidate.asked == Requirement::Optional => continue,
            Ownership::Refused(message) => {
                problems.push(Problem::new(reason::OWNED_BY_ANOTHER, message).of(id));
                continue;
            }
            Ownership::TakesOver(before) => {
                let message = format!("an earlier stack of the same name owns it ({before}); take it over by an Apply");
                problems.push(Problem::new(reason::OWNED_BY_ANOTHER, message).of(id));
                continue;
            }
        }
        let (depends_on, extensions) = (candidate.resource.depends_on.clone(), candidate.extensions.clone());
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
