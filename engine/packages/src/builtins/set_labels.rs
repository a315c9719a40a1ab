//! `set-labels`: sets labels of all objects, and the selectors that go by them.
//!
//! Versions up to 0.1 change objects with `config.kubernetes.io/local-config`, too, and extend every selector. Later ones
//! leave such objects; in selectors that need not have all labels of the pods they only change the values.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    Failure,
    config::{Config, additional_fields, config, is_local, texts},
    fields::{FieldSpec, set_entries},
};
use crate::{files::Limits, resources::Resource, results::Finding};

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

/// The selectors that need not have all labels of the pods.
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

/// Runs a version from 0.2.
pub(super) fn run(items: &mut [Resource], config: Option<&Resource>, _: &Limits) -> Result<Vec<Finding>, Failure> {
    set(items, config, Version::Current)
}

/// Runs a version up to 0.1.
pub(super) fn run_old(items: &mut [Resource], config: Option<&Resource>, _: &Limits) -> Result<Vec<Finding>, Failure> {
    set(items, config, Version::Old)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    Old,
    Current,
}

fn set(items: &mut [Resource], source: Option<&Resource>, version: Version) -> Result<Vec<Finding>, Failure> {
    let (labels, mut specs) = match config(source, "SetLabels")? {
        Config::Data(labels) => (labels, Vec::new()),
        Config::Object(object) => (texts(object, "labels")?, additional_fields(object, "additionalLabelFields")?),
    };
    match (labels.is_empty(), version) {
        (true, Version::Old) => {
            return Err(Failure::new("input label list cannot be empty; set `data` of the ConfigMap, or `labels`"));
        }
        (true, Version::Current) => {
            let severity = "warning".to_owned();
            return Ok(vec![Finding {
                severity,
                ..Finding::info("no `labels` arguments are given in FunctionConfig")
            }]);
        }
        (false, _) => specs.extend(specs_of_kinds()),
    }
    let mut count = 0;
    for resource in items.iter_mut().filter(|resource| version == Version::Old || !is_local(resource)) {
        count += set_labels(resource, &specs, &labels, version);
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

fn set_labels(
    resource: &mut Resource,
    specs: &[FieldSpec],
    labels: &BTreeMap<String, String>,
    version: Version,
) -> usize {
    let mut count = 0;
    let specs: Vec<&FieldSpec> = specs.iter().filter(|spec| spec.matches(resource)).collect();
    for spec in specs {
        let adds = spec.create || version == Version::Old;
        spec.visit(&mut resource.value, &Value::Object(Map::new()), &mut |field| {
            let has = |key: &str| field.get(key).is_some();
            let entries: Vec<_> = labels.iter().filter(|(key, _)| adds || has(key)).collect();
            count += set_entries(field, entries);
        });
    }
    count
}
