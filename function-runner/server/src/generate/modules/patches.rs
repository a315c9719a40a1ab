//! Applies the patchers of modules to the resources of a Spec.
//!
//! Two modules that set one label, annotation or variable to different values are an error, and so are a module and the application.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};
use stoa_engine::{ResourceId, Spec};
use stoa_kusion_module::patcher::{JsonPatch, PatchType, Patcher};
use stoa_proto::Problem;

use super::calls::Call;
use crate::failure::reason;

/// The patcher of a call, and the resources that are its application's workload.
#[derive(Debug)]
pub(super) struct Change<'a> {
    pub(super) call: &'a Call,
    pub(super) workloads: Vec<ResourceId>,
    pub(super) patcher: Patcher,
}

/// A field of a resource, and the module that set it.
type SetBy = HashMap<(ResourceId, String), String>;

/// Applies changes in order.
pub(super) fn apply<'a>(spec: &mut Spec, changes: impl Iterator<Item = Change<'a>>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut set_by = SetBy::new();
    for Change { call, workloads, patcher } in changes {
        let mut wrong = |message: String| problems.push(call.problem(reason::NOT_RENDERED, &message));
        if workloads.is_empty() && has_part_for_workload(&patcher) {
            wrong("patches the workload of the application, which has none".to_owned());
            continue;
        }
        for id in &workloads {
            let Some(resource) = spec.resources.iter_mut().find(|it| it.id == *id) else { continue };
            let mut target = Target { id, attributes: &mut resource.attributes, set_by: &mut set_by, call };
            if let Err(message) = target.patch(&patcher) {
                wrong(format!("patches {id}: {message}"));
            }
        }
        for (id, patch) in &patcher.json_patches {
            let Some(resource) = spec.resources.iter_mut().find(|it| it.id.0 == *id) else {
                wrong(format!("patches {id}, which is not in the Spec"));
                continue;
            };
            match patched(&resource.attributes, patch) {
                Ok(attributes) => resource.attributes = attributes,
                Err(message) => wrong(format!("patches {id}: {message}")),
            }
        }
    }
    problems
}

fn has_part_for_workload(patcher: &Patcher) -> bool {
    let Patcher { environments, labels, pod_labels, annotations, pod_annotations, .. } = patcher;
    let texts = [labels, pod_labels, annotations, pod_annotations];
    !environments.is_empty() || texts.into_iter().any(|texts| !texts.is_empty())
}

/// The path of the Pod template in a workload; nothing for other objects.
pub(super) fn template_of(attributes: &Map<String, Value>) -> Option<&'static [&'static str]> {
    match attributes.get("kind").and_then(Value::as_str)? {
        "CronJob" => Some(&["spec", "jobTemplate", "spec", "template"]),
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" | "Job" | "CollaSet" | "Rollout" => {
            Some(&["spec", "template"])
        }
        _ => None,
    }
}

/// A workload that is patched.
struct Target<'a> {
    id: &'a ResourceId,
    attributes: &'a mut Map<String, Value>,
    set_by: &'a mut SetBy,
    call: &'a Call,
}

impl Target<'_> {
    fn patch(&mut self, patcher: &Patcher) -> Result<(), String> {
        self.texts(&["metadata", "labels"], &patcher.labels)?;
        self.texts(&["metadata", "annotations"], &patcher.annotations)?;
        if patcher.environments.is_empty() && patcher.pod_labels.is_empty() && patcher.pod_annotations.is_empty() {
            return Ok(());
        }
        let template = template_of(self.attributes).ok_or("it is no workload with a Pod template")?;
        self.texts(&[template, &["metadata", "labels"]].concat(), &patcher.pod_labels)?;
        self.texts(&[template, &["metadata", "annotations"]].concat(), &patcher.pod_annotations)?;
        self.variables(template, &patcher.environments)
    }

    /// Adds texts to a map.
    fn texts(&mut self, path: &[&str], texts: &BTreeMap<String, String>) -> Result<(), String> {
        for (name, text) in texts {
            let map = map_at(self.attributes, path)?;
            let value = Value::from(text.as_str());
            let before = map.get(name).filter(|before| !before.is_null()).cloned();
            if before.is_none() {
                map.insert(name.clone(), value.clone());
            }
            self.record(&format!("{}[{name:?}]", path.join(".")), before.as_ref(), &value)?;
        }
        Ok(())
    }

    /// Adds variables to all containers.
    fn variables(&mut self, template: &[&str], variables: &[Map<String, Value>]) -> Result<(), String> {
        if variables.is_empty() {
            return Ok(());
        }
        let spec = map_at(self.attributes, &[template, &["spec"]].concat())?;
        let containers = spec.get("containers").and_then(Value::as_array).map_or(0, Vec::len);
        for container in 0..containers {
            for variable in variables {
                let name = variable.get("name").and_then(Value::as_str).ok_or("a variable has no name")?;
                let spec = map_at(self.attributes, &[template, &["spec"]].concat())?;
                let Some(Value::Object(of)) = spec.get_mut("containers").and_then(|list| list.get_mut(container))
                else {
                    return Err(format!("container {container} must be a map"));
                };
                let env = of.entry("env").or_insert_with(|| Value::Array(Vec::new()));
                if env.is_null() {
                    *env = Value::Array(Vec::new());
                }
                let list = env.as_array_mut().ok_or_else(|| format!("env of container {container} must be a list"))?;
                let value = Value::Object(variable.clone());
                let before = list.iter().find(|it| it.get("name").is_some_and(|it| it == name)).cloned();
                if before.is_none() {
                    list.push(value.clone());
                }
                self.record(&format!("variable {name} of container {container}"), before.as_ref(), &value)?;
            }
        }
        Ok(())
    }

    /// Records a field as set by this module, unless another value was there before.
    fn record(&mut self, field: &str, before: Option<&Value>, value: &Value) -> Result<(), String> {
        let key = (self.id.clone(), field.to_owned());
        if before.is_some_and(|before| before != value) {
            let other = self.set_by.get(&key).map_or("the application", String::as_str);
            return Err(format!("{field} has another value by {other}; remove one of them"));
        }
        self.set_by.entry(key).or_insert_with(|| self.call.subject());
        Ok(())
    }
}

/// The map at a path, which is made if it is missing.
fn map_at<'a>(attributes: &'a mut Map<String, Value>, path: &[&str]) -> Result<&'a mut Map<String, Value>, String> {
    let mut map = attributes;
    for (at, field) in path.iter().enumerate() {
        let value = map.entry(*field).or_insert_with(|| Value::Object(Map::new()));
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        map = value.as_object_mut().ok_or_else(|| format!("{} must be a map", path[..=at].join(".")))?;
    }
    Ok(map)
}

/// Attributes with a patch.
fn patched(attributes: &Map<String, Value>, patch: &JsonPatch) -> Result<Map<String, Value>, String> {
    let mut value = Value::Object(attributes.clone());
    match patch.kind {
        PatchType::MergePatch => json_patch::merge(&mut value, &patch.payload),
        PatchType::JSONPatch => {
            let patch: json_patch::Patch = serde_json::from_value(patch.payload.clone())
                .map_err(|error| format!("the payload is no JSON patch: {error}"))?;
            json_patch::patch(&mut value, &patch).map_err(|error| error.to_string())?;
        }
    }
    match value {
        Value::Object(attributes) => Ok(attributes),
        _ => Err("the result is no map".to_owned()),
    }
}
