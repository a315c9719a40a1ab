//! Adds the answers of modules to a Spec. Runs in a worker.

use std::collections::HashMap;

use serde_json::Value;
use stoa_engine::health::POLICY;
use stoa_engine::import::IMPORT_ID;
use stoa_engine::spec::{FILE, LINE};
use stoa_engine::{Resource, ResourceId, ResourceType, Spec};
use stoa_kubernetes_model::normalize::normalize;
use stoa_kusion_module::patcher::Patcher;
use stoa_kusion_module::proto::GeneratorResponse;
use stoa_proto::Problem;

use super::calls::Call;
use super::patches::{self, Change};
use crate::convert;
use crate::failure::{Failure, reason};
use crate::generate::{Generated, check, yaml};
use crate::source::SourceFile;

/// The extension of a resource that patches of workloads are for.
const IS_WORKLOAD: &str = "kusion.io/is-workload";

/// A Spec with the answers to calls.
pub(in crate::generate) fn merge(
    spec: &[u8],
    calls: &[Call],
    responses: &[GeneratorResponse],
) -> Result<Generated, Failure> {
    let mut spec: Spec = serde_json::from_slice(spec).map_err(|error| Failure::internal(&error))?;
    let mut problems = Vec::new();
    let mut warnings = Vec::new();
    let mut origins: HashMap<ResourceId, String> = HashMap::new();
    let mut workloads: HashMap<&str, Vec<ResourceId>> = HashMap::new();
    let mut changes = Vec::new();
    for (call, response) in calls.iter().zip(responses) {
        if response.resources.is_empty() && response.patcher.is_empty() {
            warnings.push(format!(
                "{} returns nothing for {}; a module whose code panics does that, too",
                call.subject(),
                call.field
            ));
        }
        let of_application = workloads.entry(application(call)).or_default();
        if !call.workload.is_empty() && of_application.is_empty() {
            of_application.push(ResourceId(call.workload.clone()));
        }
        for (at, bytes) in response.resources.iter().enumerate() {
            match read_resource(call, at + 1, bytes) {
                Err(problem) => problems.push(*problem),
                Ok(resource) => {
                    let of_spec =
                        || spec.resources.iter().any(|it| it.id == resource.id).then(|| "the program".to_owned());
                    if let Some(other) = origins.get(&resource.id).cloned().or_else(of_spec) {
                        let message = format!("returns {}, and so does {other}; remove one of them", resource.id);
                        problems.push(call.problem(reason::DUPLICATE_RESOURCE, &message));
                        continue;
                    }
                    origins.insert(resource.id.clone(), call.subject());
                    if is_workload(call, &resource) {
                        of_application.push(resource.id.clone());
                    }
                    spec.resources.push(resource);
                }
            }
        }
        match read_patcher(call, &response.patcher) {
            Err(problem) => problems.push(*problem),
            Ok(Some(patcher)) => changes.push((call, patcher)),
            Ok(None) => {}
        }
    }
    if problems.is_empty() {
        let change = |(call, patcher)| Change {
            call,
            workloads: workloads.get(application(call)).cloned().unwrap_or_default(),
            patcher,
        };
        problems = patches::apply(&mut spec, changes.into_iter().map(change));
    }
    if problems.is_empty() {
        normalize(&mut spec);
        let located = |found: stoa_engine::Problem| {
            let subject = found.resource_id.as_ref().and_then(|id| origins.get(id)).cloned();
            let problem = convert::problem_in(&spec, found);
            match subject {
                Some(subject) => Problem { message: format!("{subject}: {}", problem.message), ..problem },
                None => problem,
            }
        };
        problems = check(&spec).err().into_iter().flatten().map(located).collect();
    }
    if problems.is_empty() { Ok(Generated { warnings, ..spec.into() }) } else { Err(Failure::invalid(problems)) }
}

fn application(call: &Call) -> &str {
    call.request.as_ref().map_or("", |request| request.app.as_str())
}

/// Whether patches of the application's workload are for a resource: the module marks it, or it is the workload's own.
fn is_workload(call: &Call, resource: &Resource) -> bool {
    let mark = resource.extensions.get(IS_WORKLOAD).and_then(Value::as_bool);
    let is_one = || call.is_workload && patches::template_of(&resource.attributes).is_some();
    mark.unwrap_or_else(is_one)
}

/// The value of one document of YAML, and the same value with exact numbers if it has some that are no floats.
fn read(call: &Call, bytes: &[u8], part: &str) -> Result<(Value, Option<Value>), Box<Problem>> {
    let file = SourceFile { path: String::new(), bytes: bytes.to_vec() };
    let wrong =
        |message: &str| Box::new(call.problem(reason::NOT_RENDERED, &format!("{part} of its answer {message}")));
    let documents = yaml::with_exact(&file).map_err(|problem| wrong(&format!("is invalid: {}", problem.message)))?;
    match <[_; 1]>::try_from(documents) {
        Ok([(document, exact)]) => Ok((document.value, exact)),
        Err(_) => Err(wrong("must be one document of YAML")),
    }
}

fn read_resource(call: &Call, number: usize, bytes: &[u8]) -> Result<Resource, Box<Problem>> {
    let part = format!("resource {number}");
    let wrong = |error: serde_json::Error| {
        Box::new(call.problem(reason::NOT_RENDERED, &format!("{part} of its answer is no resource of a Spec: {error}")))
    };
    let (value, exact) = read(call, bytes, &part)?;
    let mut resource: Resource = serde_json::from_value(value).map_err(wrong)?;
    if let Some(exact) = exact.filter(|_| resource.kind == ResourceType::Terraform) {
        resource = serde_json::from_value(exact).map_err(wrong)?;
    }
    let extensions = &mut resource.extensions;
    extensions.insert(FILE.to_owned(), call.file.clone().into());
    extensions.remove(LINE);
    if call.line > 0 {
        extensions.insert(LINE.to_owned(), call.line.into());
    }
    if let Some(name) = call.imported.get(&resource.id.0) {
        extensions.insert(IMPORT_ID.to_owned(), name.clone().into());
    }
    if !call.health_policy.is_empty() && !extensions.contains_key(POLICY) {
        extensions.insert(POLICY.to_owned(), serde_json::from_str(&call.health_policy).map_err(wrong)?);
    }
    Ok(resource)
}

fn read_patcher(call: &Call, bytes: &[u8]) -> Result<Option<Patcher>, Box<Problem>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let part = "the patcher";
    let wrong = |error: serde_json::Error| {
        Box::new(call.problem(reason::NOT_RENDERED, &format!("{part} of its answer is invalid: {error}")))
    };
    let (value, _) = read(call, bytes, part)?;
    serde_json::from_value(value).map(Some).map_err(wrong)
}
