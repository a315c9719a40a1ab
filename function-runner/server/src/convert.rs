//! Between the engine's types and the proto's.

use serde_json::{Map, Value, json};
use stoa_apply::Planned;
use stoa_engine::digest::canonical_json;
use stoa_engine::{ResourceId, ResourceType, Spec, State, StateResource};
use stoa_proto::{KubernetesObject, PlanResponse, PlannedResource, Problem, StateEntry, Summary};

use crate::failure::Failure;
use crate::generate::FILE_EXTENSION;

/// The engine's problem, without the file, which the engine does not know.
pub(crate) fn problem(problem: stoa_engine::Problem) -> Problem {
    Problem {
        reason: problem.reason,
        message: problem.message,
        resource_id: problem.resource_id.map(|id| id.0).unwrap_or_default(),
        field: problem.field,
        ..Problem::default()
    }
}

/// The engine's problem, with the file that its resource was read from.
pub(crate) fn problem_in(spec: &Spec, found: stoa_engine::Problem) -> Problem {
    let mut problem = problem(found);
    problem.file = file_of(spec, &problem.resource_id);
    problem
}

/// The file of the source that a resource was read from, if its generator says so; else empty.
fn file_of(spec: &Spec, id: &str) -> String {
    let resource = spec.resources.iter().find(|resource| resource.id.0 == id);
    let file = resource.and_then(|resource| resource.extensions.get(FILE_EXTENSION)?.as_str());
    file.unwrap_or_default().to_owned()
}

/// The Spec of a request; empty bytes are the empty Spec.
pub(crate) fn spec(bytes: &[u8]) -> Result<Spec, Failure> {
    if bytes.is_empty() {
        return Ok(Spec::default());
    }
    serde_json::from_slice(bytes).map_err(|err| Failure::request(format!("spec is no Spec: {err}")))
}

/// The recorded state of a request.
///
/// An entry that only has the intent to create means that a call may have made something nobody knows of.
/// Where its id says which object that is, the object counts as recorded, so that a plan that no longer
/// wants it removes it; a plan that wants it finds out by looking. What was to be adopted was somebody
/// else's, and stays.
pub(crate) fn state(entries: &[StateEntry], spec: &Spec) -> Result<State, Failure> {
    let mut resources = Vec::with_capacity(entries.len());
    for entry in entries {
        if entry.resource.is_empty() {
            let wanted = spec.resources.iter().any(|resource| resource.id.0 == entry.id);
            if entry.intent.as_ref().is_some_and(|intent| intent.action == "Create") && !wanted {
                resources.extend(object_named(&entry.id));
            }
            continue;
        }
        let resource: StateResource = serde_json::from_slice(&entry.resource)
            .map_err(|err| Failure::request(format!("state of {} is no StateResource: {err}", entry.id)))?;
        if resource.id.0 != entry.id {
            return Err(Failure::request(format!("state of {} is of {}", entry.id, resource.id)));
        }
        resources.push(resource);
    }
    Ok(State { resources })
}

/// What an id of a Kubernetes object alone tells of it.
fn object_named(id: &str) -> Option<StateResource> {
    let parts: Vec<&str> = id.split(':').collect();
    let (api_version, kind, namespace, name) = match parts.as_slice() {
        [api_version, kind, name] => (api_version, kind, None, name),
        [api_version, kind, namespace, name] => (api_version, kind, Some(namespace), name),
        _ => return None,
    };
    let mut metadata = json!({"name": name});
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    let Value::Object(attributes) = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata}) else {
        return None;
    };
    Some(StateResource {
        id: ResourceId(id.to_owned()),
        kind: ResourceType::Kubernetes,
        attributes,
        live: Map::new(),
        depends_on: Vec::new(),
        extensions: Map::new(),
        cluster: String::new(),
        unknown: false,
    })
}

/// Which runtime's object it is, for the record.
pub(crate) fn kubernetes_object(object: stoa_runtime::KubernetesObject) -> KubernetesObject {
    KubernetesObject {
        cluster: object.cluster,
        group: object.group,
        version: object.version,
        kind: object.kind,
        namespace: object.namespace,
        name: object.name,
        uid: object.uid,
    }
}

/// A plan, in all the forms in which it is looked at.
pub(crate) fn plan(planned: Planned) -> PlanResponse {
    let Planned { plan, digest, summary, table } = planned;
    let resources = plan.actions.iter().map(|action| PlannedResource {
        id: action.id.0.clone(),
        action: action.action.to_string(),
        drift: action.drift,
        depends_on: action.depends_on.iter().map(|id| id.0.clone()).collect(),
    });
    PlanResponse {
        plan: canonical_json(&plan).into(),
        digest,
        summary: Some(Summary {
            create: summary.create,
            update: summary.update,
            delete: summary.delete,
            replace: summary.replace,
            adopt: summary.adopt,
            forget: summary.forget,
            unchanged: summary.unchanged,
            unverified: summary.unverified,
        }),
        table,
        resources: resources.collect(),
        warnings: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use stoa_proto::Intent;

    use super::*;

    fn check(id: &str, intent: &str, wanted: bool) -> Vec<String> {
        let entry = StateEntry {
            id: id.to_owned(),
            intent: (!intent.is_empty()).then(|| Intent { action: intent.to_owned(), run: "r".to_owned() }),
            ..StateEntry::default()
        };
        let mut spec = Spec::default();
        if wanted {
            let StateResource { id, kind, attributes, .. } = object_named(id).unwrap();
            spec.resources.push(stoa_engine::Resource {
                id,
                kind,
                attributes,
                depends_on: vec![],
                extensions: Map::new(),
            });
        }
        let state = state(&[entry], &spec).unwrap();
        state.resources.iter().map(|resource| Value::Object(resource.attributes.clone()).to_string()).collect()
    }

    #[test]
    fn what_may_have_been_made_and_is_no_longer_wanted_counts_as_recorded() {
        let object = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"}}"#;
        assert_eq!(check("apps/v1:Deployment:shop:web", "Create", false), [object]);
        assert!(check("apps/v1:Deployment:shop:web", "Create", true).is_empty());
        assert!(check("apps/v1:Deployment:shop:web", "", false).is_empty());
        assert!(check("apps/v1:Deployment:shop:web", "Adopt", false).is_empty(), "it was there before");
        assert!(check("a:b", "Create", false).is_empty(), "not an object's id");
    }

    #[test]
    fn a_state_that_is_not_what_it_says_is_refused() {
        let entry = |id: &str, resource: &str| StateEntry {
            id: id.to_owned(),
            resource: resource.as_bytes().to_vec().into(),
            ..StateEntry::default()
        };
        let good = serde_json::to_string(&object_named("v1:Namespace:a").unwrap()).unwrap();
        state(&[entry("v1:Namespace:a", &good)], &Spec::default()).unwrap();
        state(&[entry("v1:Namespace:b", &good)], &Spec::default()).unwrap_err();
        state(&[entry("v1:Namespace:a", "{}")], &Spec::default()).unwrap_err();
    }
}
