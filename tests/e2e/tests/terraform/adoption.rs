//! Resources that Terraform or Kusion made are adopted: the next plan is empty.

use std::fs;

use serde_json::{Value, json};
use stoa_e2e::Standalone;

use crate::harness::{Bed, STACK, id, resource};

/// The state of a password and a pet that `terraform apply` of Terraform 1.11.4 wrote.
const STATE: &str = include_str!("../../../data/terraform/terraform.tfstate");

/// The attributes of a resource in it.
fn attributes(kind: &str) -> Value {
    let state: Value = serde_json::from_str(STATE).unwrap();
    let resources = state["resources"].as_array().unwrap();
    resources.iter().find(|it| it["type"] == kind).unwrap()["instances"][0]["attributes"].clone()
}

fn wanted() -> Value {
    json!([
        resource("random_password", "db", &json!({"length": 16, "special": false})),
        resource("random_pet", "name", &json!({"prefix": "shop", "length": 2})),
    ])
}

fn write(server: &Standalone, bed: &Bed, path: &str, text: &str) {
    let file = server.data().join("documents").join(&bed.organization.name).join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

#[test]
fn state_of_terraform_is_adopted() {
    let server = Standalone::shared();
    let bed = Bed::new(&*server, &[("random", "3.6.0")]);
    let organization = &bed.organization;
    write(&server, &bed, "old/terraform.tfstate", STATE);
    bed.commit(&json!([wanted()[0]]));
    let told = organization.fail(STACK, "Import", "import: {terraform: {path: old/none.tfstate}}");
    assert!(told.contains("old/none.tfstate") && told.contains("Backend"), "{told}");
    let imported = organization.succeed(STACK, "Import", "import: {terraform: {path: old/terraform.tfstate}}");
    assert_eq!(Bed::summary(&imported), "import 1", "{imported:#}");
    let log = bed.document(&imported, "log");
    assert!(log.contains(&format!("{} is not in the Spec", id("random_pet", "name"))), "{log}");
    bed.commit(&wanted());
    organization.succeed(STACK, "Import", "import: {terraform: {path: old/terraform.tfstate}}");
    organization.nothing_is_left(STACK, "Preview");
    let record = bed.resource(&id("random_pet", "name"));
    assert_eq!(record["spec"]["cloud"]["id"], attributes("random_pet")["id"], "{record:#}");
    let password = attributes("random_password")["result"].as_str().unwrap().to_owned();
    assert!(!log.contains(&password) && !bed.everything_shown().contains(&password));
    organization.succeed(STACK, "Apply", "");

    // Whoever leaves gets a state with the same resources.
    let namespace = &organization.name;
    let path = format!("/apis/config.stoa.dev/v1alpha1/namespaces/{namespace}/stacks/{STACK}/terraformstate");
    let written: Value = serde_json::from_str(&bed.kubectl.raw(&path)).unwrap();
    let before: Value = serde_json::from_str(STATE).unwrap();
    for resource in before["resources"].as_array().unwrap() {
        let all = written["resources"].as_array().unwrap();
        let same = all.iter().find(|it| it["type"] == resource["type"]).unwrap();
        for field in ["mode", "name", "provider"] {
            assert_eq!(same[field], resource[field]);
        }
        for field in ["attributes", "schema_version"] {
            assert_eq!(same["instances"][0][field], resource["instances"][0][field], "{same:#}");
        }
    }
    organization.succeed(STACK, "Destroy", "");
}

#[test]
fn release_of_kusion_is_adopted() {
    let server = Standalone::shared();
    let bed = Bed::new(&*server, &[("random", "3.6.0")]);
    let organization = &bed.organization;
    let recorded = |kind: &str, name: &str| {
        json!({
            "id": id(kind, name), "type": "Terraform", "attributes": attributes(kind),
            "extensions": {"provider": "registry.terraform.io/hashicorp/random/3.6.0", "resourceType": kind},
        })
    };
    let release = json!({
        "project": "shop", "workspace": "prod", "revision": 1, "stack": "prod",
        "state": {"resources": [recorded("random_password", "db"), recorded("random_pet", "name")]},
        "phase": "succeeded", "createTime": "2025-03-01T10:00:00Z", "modifiedTime": "2025-03-01T10:00:05Z",
    });
    write(&server, &bed, "releases/shop/prod/1.yaml", &release.to_string());
    bed.commit(&wanted());
    let fields = "import: {kusion: {project: shop, workspace: prod, revision: 1}}";
    let imported = organization.succeed(STACK, "Import", fields);
    assert_eq!(Bed::summary(&imported), "import 2", "{imported:#}");
    organization.nothing_is_left(STACK, "Preview");
    organization.succeed(STACK, "Destroy", "");
}

#[test]
fn object_is_imported_by_its_id() {
    let server = Standalone::shared();
    let bed = Bed::new(&*server, &[("random", "3.6.0")]);
    let organization = &bed.organization;
    bed.commit(&json!([resource("random_integer", "port", &json!({"min": 1, "max": 9, "keepers": {}}))]));
    let id = id("random_integer", "port");
    let told = organization.fail(STACK, "Import", &format!("import: {{resources: [{{id: \"{id}\"}}]}}"));
    assert!(told.contains("infrastructureId") && told.contains("terraform import"), "{told}");
    let fields = format!("import: {{resources: [{{id: \"{id}\", infrastructureId: \"5,1,9\"}}]}}");
    organization.succeed(STACK, "Import", &fields);
    let preview = organization.succeed(STACK, "Preview", "");
    assert_eq!(Bed::summary(&preview), "", "{}", bed.document(&preview, "plan"));
    assert_eq!(bed.resource(&id)["spec"]["cloud"]["id"], "5");
    organization.succeed(STACK, "Destroy", "");
}
