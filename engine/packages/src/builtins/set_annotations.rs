//! `set-annotations`: sets annotations of all objects, and of the pods that they make.

use serde_json::{Map, Value, json};

use super::{
    Failure,
    config::{Config, additional_fields, config, texts},
    fields::{FieldSpec, set_entries},
};
use crate::{
    files::Limits,
    resources::Resource,
    results::{Field, FileRef, Finding},
};

/// Group, version, kind and path of the fields with annotations.
const FIELDS: &[[&str; 4]] = &[
    ["", "", "", "metadata/annotations"],
    ["", "v1", "ReplicationController", "spec/template/metadata/annotations"],
    ["", "", "Deployment", "spec/template/metadata/annotations"],
    ["", "", "ReplicaSet", "spec/template/metadata/annotations"],
    ["", "", "DaemonSet", "spec/template/metadata/annotations"],
    ["", "", "StatefulSet", "spec/template/metadata/annotations"],
    ["batch", "", "Job", "spec/template/metadata/annotations"],
    ["batch", "", "CronJob", "spec/jobTemplate/metadata/annotations"],
    ["batch", "", "CronJob", "spec/jobTemplate/spec/template/metadata/annotations"],
];

/// Runs the function.
pub(super) fn run(items: &mut [Resource], source: Option<&Resource>, _: &Limits) -> Result<Vec<Finding>, Failure> {
    let (annotations, mut specs) = match config(source, "SetAnnotations")? {
        Config::Data(annotations) => (annotations, Vec::new()),
        Config::Object(object) => {
            (texts(object, "annotations")?, additional_fields(object, "additionalAnnotationFields")?)
        }
    };
    if annotations.is_empty() {
        return Err(Failure::new(
            "input annotation list cannot be empty; set `data` of the ConfigMap, or `annotations`",
        ));
    }
    specs.extend(FIELDS.iter().map(|spec| FieldSpec::of(*spec, true)));
    let message = format!("set annotations: {}", json!(annotations));
    let mut findings = Vec::new();
    for resource in items.iter_mut() {
        let specs: Vec<&FieldSpec> = specs.iter().filter(|spec| spec.matches(resource)).collect();
        for spec in specs {
            let mut changed = 0;
            spec.visit(&mut resource.value, &Value::Object(Map::new()), &mut |field| {
                changed += set_entries(field, &annotations);
            });
            if changed > 0 {
                findings.push(Finding {
                    field: Some(Field { path: spec.path.replace('/', "."), ..Field::default() }),
                    file: Some(FileRef { path: resource.path.clone(), index: resource.index.unwrap_or_default() }),
                    ..Finding::info(message.clone())
                });
            }
        }
    }
    if findings.is_empty() {
        findings.push(Finding::info("no annotations applied"));
    }
    Ok(findings)
}
