//! The kinds have the names and fields of Kalypso's CustomResourceDefinitions, and read what a real repository has.

use std::{collections::BTreeSet, fs, path::PathBuf};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::*;
use crate::hub::{DeploymentDescriptor, Reconciler};

fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/kalypso")
}

fn ours() -> [CustomResourceDefinition; 14] {
    [
        Assignment::crd(),
        AssignmentPackage::crd(),
        BaseRepo::crd(),
        ClusterType::crd(),
        ConfigSchema::crd(),
        DeploymentDescriptor::crd(),
        DeploymentTarget::crd(),
        Environment::crd(),
        GitOpsRepo::crd(),
        Reconciler::crd(),
        SchedulingPolicy::crd(),
        Template::crd(),
        Workload::crd(),
        WorkloadRegistration::crd(),
    ]
}

/// Each field of a schema with its type, and whether it is required.
fn fields(path: &str, schema: &Value, found: &mut BTreeSet<String>) {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let mark = if required.contains(&name.as_str()) { " required" } else { "" };
        found.insert(format!("{path}: {}{mark}", field["type"].as_str().unwrap_or_default()));
        // Conditions are Kubernetes' own.
        if name != "conditions" {
            fields(&path, field, found);
            fields(&format!("{path}[]"), &field["items"], found);
        }
    }
}

fn fields_of(crd: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    for part in ["spec", "status"] {
        fields(part, &schema["properties"][part], &mut found);
    }
    found
}

#[test]
fn kinds_have_the_names_and_fields_of_kalypso() {
    for crd in ours() {
        let ours = serde_json::to_value(&crd).unwrap();
        let file = data().join(format!("crds/{}_{}.yaml", crd.spec.group, crd.spec.names.plural));
        let theirs: Value = serde_saphyr::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let kind = &crd.spec.names.kind;
        for name in ["kind", "plural", "singular"] {
            assert_eq!(ours["spec"]["names"][name], theirs["spec"]["names"][name], "{kind}");
        }
        assert_eq!(ours["spec"]["scope"], theirs["spec"]["scope"], "{kind}");
        let (mut ours, mut theirs) = (fields_of(&ours), fields_of(&theirs));
        if kind == "ClusterType" {
            // Repositories before December 2023 lack it.
            assert!(theirs.remove("spec.configType: string required") && ours.remove("spec.configType: string"));
        }
        // Kalypso's policies have no scheduler of their own.
        ours.retain(|field| kind != "SchedulingPolicy" || !field.starts_with("spec.scheduler"));
        // Kalypso's reconcilers have no webhook.
        ours.retain(|field| kind != "Reconciler" || !field.starts_with("spec.webhook"));
        // Stoa records more in statuses than Kalypso, and nothing less.
        ours.retain(|field| theirs.contains(field) || !field.starts_with("status."));
        assert_eq!(ours, theirs, "{kind}");
    }
}

fn reads<T: DeserializeOwned + Serialize>(text: &str, found: &mut usize) {
    let object: Value = serde_saphyr::from_str(text).unwrap();
    let read: T = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap()["spec"], object["spec"], "{text}");
    *found += 1;
}

#[test]
fn objects_of_a_real_repository_are_read() {
    let mut folders: Vec<PathBuf> = ["dev", "stage", "prod"].map(|name| data().join(name).join("input")).into();
    let mut found = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let kind = text.lines().find_map(|line| line.strip_prefix("kind: ")).unwrap_or_default();
            match kind {
                "BaseRepo" => reads::<BaseRepo>(&text, &mut found),
                "ClusterType" => reads::<ClusterType>(&text, &mut found),
                "Environment" => reads::<Environment>(&text, &mut found),
                "GitOpsRepo" => reads::<GitOpsRepo>(&text, &mut found),
                "SchedulingPolicy" => reads::<SchedulingPolicy>(&text, &mut found),
                "Template" => reads::<Template>(&text, &mut found),
                "Workload" => reads::<Workload>(&text, &mut found),
                "WorkloadRegistration" => reads::<WorkloadRegistration>(&text, &mut found),
                other => assert_eq!(other, "ConfigMap", "{}", path.display()),
            }
        }
    }
    assert_eq!(found, 60);
}
