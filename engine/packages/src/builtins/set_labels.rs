//! `set-labels`: sets labels of all objects, and the selectors that go by them.
//!
//! Versions up to 0.1 change objects with `config.kubernetes.io/local-config`, too; later ones leave them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    Failure,
    config::{Config, additional_fields, config, is_local, texts},
    fields::{FieldSpec, set_entries},
};
use crate::{resources::Resource, results::Finding};

/// Group, version, kind and path of the fields with labels that are added where they are missing.
const CREATED: &[[&str; 4]] = &[
    ["", "", "", "metadata/labels"],
    ["", "v1", "Service", "spec/selector"],
    ["", "v1", "ReplicationController", "spec/selector"],
    ["", "v1", "ReplicationController", "spec/template/metadata/labels"],
    ["", "", "Deployment", "spec/selector/matchLabels"],
    ["", "", "Deployment", "spec/template/metadata/labels"],
    ["", "", "ReplicaSet", "spec/selector/matchLabels"],
    ["", "", "ReplicaSet", "spec/template/metadata/labels"],
    ["", "", "DaemonSet", "spec/selector/matchLabels"],
    ["", "", "DaemonSet", "spec/template/metadata/labels"],
    ["apps", "", "StatefulSet", "spec/selector/matchLabels"],
    ["apps", "", "StatefulSet", "spec/template/metadata/labels"],
    ["apps", "", "StatefulSet", "spec/volumeClaimTemplates[]/metadata/labels"],
    ["batch", "", "Job", "spec/template/metadata/labels"],
    ["batch", "", "CronJob", "spec/jobTemplate/metadata/labels"],
    ["batch", "", "CronJob", "spec/jobTemplate/spec/template/metadata/labels"],
];

/// The fields with labels that change only where they are.
const EXISTING: &[[&str; 4]] = &[
    ["batch", "", "Job", "spec/selector/matchLabels"],
    ["batch", "", "CronJob", "spec/jobTemplate/spec/selector/matchLabels"],
    ["policy", "", "PodDisruptionBudget", "spec/selector/matchLabels"],
    ["networking.k8s.io", "", "NetworkPolicy", "spec/podSelector/matchLabels"],
    ["networking.k8s.io", "", "NetworkPolicy", "spec/ingress/from/podSelector/matchLabels"],
    ["networking.k8s.io", "", "NetworkPolicy", "spec/egress/to/podSelector/matchLabels"],
];

/// The selectors in the pods of Deployments and StatefulSets.
const IN_PODS: &[&str] = &[
    "affinity/podAffinity/preferredDuringSchedulingIgnoredDuringExecution/podAffinityTerm/labelSelector/matchLabels",
    "affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution/labelSelector/matchLabels",
    "affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/podAffinityTerm/labelSelector/matchLabels",
    "affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/labelSelector/matchLabels",
    "topologySpreadConstraints/labelSelector/matchLabels",
];

/// Runs a version that leaves objects of local configuration.
pub(super) fn run(items: &mut Vec<Resource>, config: Option<&Resource>) -> Result<Vec<Finding>, Failure> {
    set(items, config, false)
}

/// Runs a version that changes all objects.
pub(super) fn run_all(items: &mut Vec<Resource>, config: Option<&Resource>) -> Result<Vec<Finding>, Failure> {
    set(items, config, true)
}

fn set(items: &mut [Resource], source: Option<&Resource>, is_for_all: bool) -> Result<Vec<Finding>, Failure> {
    let (labels, mut specs) = match config(source, "SetLabels")? {
        Config::Data(labels) => (labels, Vec::new()),
        Config::Object(object) => (texts(object, "labels")?, additional_fields(object, "additionalLabelFields")?),
    };
    if labels.is_empty() {
        return Err(Failure::new("input label list cannot be empty; set `data` of the ConfigMap, or `labels`"));
    }
    specs.extend(specs_of_kinds());
    let mut count = 0;
    for resource in items.iter_mut().filter(|resource| is_for_all || !is_local(resource)) {
        count += set_labels(resource, &specs, &labels);
    }
    Ok(vec![Finding::info(format!("set {count} labels in total"))])
}

fn specs_of_kinds() -> Vec<FieldSpec> {
    let in_pods = IN_PODS.iter().flat_map(|path| {
        let path = format!("spec/template/spec/{path}");
        ["Deployment", "StatefulSet"].map(|kind| FieldSpec::of(["apps", "", kind, &path], false))
    });
    let created = CREATED.iter().map(|spec| FieldSpec::of(*spec, true));
    let existing = EXISTING.iter().map(|spec| FieldSpec::of(*spec, false));
    created.chain(existing).chain(in_pods).collect()
}

fn set_labels(resource: &mut Resource, specs: &[FieldSpec], labels: &BTreeMap<String, String>) -> usize {
    let mut count = 0;
    let specs: Vec<&FieldSpec> = specs.iter().filter(|spec| spec.matches(resource)).collect();
    for spec in specs {
        spec.visit(&mut resource.value, &Value::Object(Map::new()), &mut |field| {
            count += set_entries(field, labels);
        });
    }
    count
}
