//! Resources that Terraform or Kusion made are adopted: the next plan is empty.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::{Map, Value, json};
use stoa_e2e::{Standalone, skipped};

use crate::harness::{Bed, STACK, id, of, resource};

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
    plan_is_empty(&bed, &written, &wanted());
    organization.succeed(STACK, "Destroy", "");
}

#[test]
fn written_state_continues_in_terraform() {
    let server = Standalone::shared();
    let providers = [("random", "3.6.0"), ("tls", "4.0.5")];
    let bed = Bed::new(&*server, &providers);
    let organization = &bed.organization;
    let name = of("random_password", "db", "result");
    let mut resources = wanted();
    let more = [
        resource("random_shuffle", "zones", &json!({"input": ["a", "b", "c"], "keepers": {"secret": name}})),
        resource("tls_private_key", "web", &json!({"algorithm": "ED25519"})),
        resource(
            "tls_self_signed_cert",
            "web",
            &json!({
                "private_key_pem": of("tls_private_key", "web", "private_key_pem"),
                "validity_period_hours": 24, "allowed_uses": ["server_auth"],
                "subject": [{"common_name": "shop.example.com"}],
            }),
        ),
    ];
    resources.as_array_mut().unwrap().extend(more);
    bed.commit(&resources);
    organization.succeed(STACK, "Apply", "");
    let namespace = &organization.name;
    let path = format!("/apis/config.stoa.dev/v1alpha1/namespaces/{namespace}/stacks/{STACK}/terraformstate");
    let written: Value = serde_json::from_str(&bed.kubectl.raw(&path)).unwrap();
    plan_is_empty(&bed, &written, &resources);
    organization.succeed(STACK, "Destroy", "");
}

/// Runs `terraform plan` of a state with the configuration that a Spec's resources are in Terraform: it plans no change.
fn plan_is_empty(bed: &Bed, state: &Value, resources: &Value) {
    if Command::new("terraform").arg("version").output().is_err() {
        return skipped("the plan of a written state, since terraform is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut of_type: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for resource in resources.as_array().unwrap() {
        let name = resource["id"].as_str().unwrap().rsplit(':').next().unwrap();
        let kind = resource["extensions"]["resourceType"].as_str().unwrap();
        // References have the form of Terraform's.
        let attributes = reference_in_terraform(&resource["attributes"]);
        of_type.entry(kind).or_default().insert(name.to_owned(), attributes);
    }
    let required: Map<String, Value> = bed
        .mirror
        .providers()
        .iter()
        .map(|(name, version)| (name.clone(), json!({"source": format!("hashicorp/{name}"), "version": version})))
        .collect();
    let configuration = json!({"terraform": {"required_providers": required}, "resource": of_type});
    fs::write(folder.path().join("main.tf.json"), configuration.to_string()).unwrap();
    fs::write(folder.path().join("terraform.tfstate"), state.to_string()).unwrap();
    let terraform = |arguments: &[&str]| {
        let mut command = Command::new("terraform");
        command.current_dir(folder.path()).args(arguments).arg("-input=false").arg("-no-color");
        let output = command.env("CHECKPOINT_DISABLE", "1").output().expect("terraform runs");
        let told = [output.stdout, output.stderr].map(|told| String::from_utf8_lossy(&told).into_owned()).concat();
        (output.status.code(), told)
    };
    let (code, told) = terraform(&["init", &format!("-plugin-dir={}", bed.mirror.path().display())]);
    assert_eq!(code, Some(0), "{told}");
    for refresh in ["-refresh=true", "-refresh=false"] {
        let (code, told) = terraform(&["plan", "-detailed-exitcode", refresh]);
        assert_eq!(code, Some(0), "{refresh}: {told}");
    }
}

/// Attributes with the references of Terraform instead of those of a Spec.
fn reference_in_terraform(value: &Value) -> Value {
    match value {
        Value::String(text) => match text.strip_prefix("$kusion_path.") {
            Some(reference) => {
                // `hashicorp:<provider>:<type>:<name>.<path>`
                let (_, address) = reference.split_once(':').and_then(|(_, rest)| rest.split_once(':')).unwrap();
                format!("${{{}}}", address.replacen(':', ".", 1)).into()
            }
            None => value.clone(),
        },
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), reference_in_terraform(value))).collect()
        }
        Value::Array(elements) => elements.iter().map(reference_in_terraform).collect(),
        value => value.clone(),
    }
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
