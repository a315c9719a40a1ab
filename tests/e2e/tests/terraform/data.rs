//! A data source, and the lock file of the source: a public key is read from a private one, and a provider upgraded.

use serde_json::{Value, json};
use stoa_e2e::{Cluster, Server as _, unique};

use crate::harness::{Bed, Mirror, STACK, id, of, resource};

const DATA: &str = "hashicorp:tls:data:tls_public_key:web";

fn application(namespace: &str) -> Value {
    let mut key = resource(
        "tls_public_key",
        "web",
        &json!({
            "private_key_pem": of("tls_private_key", "web", "private_key_pem"),
        }),
    );
    key["id"] = DATA.into();
    key["extensions"]["mode"] = "data".into();
    json!([
        {"id": format!("v1:Namespace:{namespace}"), "type": "Kubernetes", "attributes":
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}},
        resource("tls_private_key", "web", &json!({"algorithm": "ED25519"})),
        resource("random_pet", "name", &json!({})),
        key,
        {"id": format!("v1:ConfigMap:{namespace}:key"), "type": "Kubernetes", "attributes":
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "key", "namespace": namespace},
             "data": {"key": format!("$kusion_path.{DATA}.public_key_openssh")}}},
    ])
}

#[test]
fn data_source_is_read_by_providers_of_the_source_lock() {
    let cluster = Cluster::shared();
    let versions = [("tls", "4.0.5"), ("random", "3.6.0"), ("random", "3.7.0")];
    let bed = Bed::new(&cluster, &versions[..1]);
    let mirror = Mirror::of(&versions);
    bed.use_mirror(&mirror, "");
    let (organization, kubectl) = (&bed.organization, cluster.kubectl());
    let namespace = unique("shop");
    let lock = |path: &str, providers: &[(&str, &str)]| organization.source.commit(path, &mirror.lock(providers));

    // The lock file of the source has to have each provider.
    bed.commit(&application(&namespace));
    let told = organization.fail(STACK, "Preview", "");
    assert!(told.contains("has no spec.terraform.lock, and the source has no .terraform.lock.hcl"), "{told}");
    lock("apps/.terraform.lock.hcl", &versions[..1]);
    let told = organization.fail(STACK, "Preview", "");
    assert!(told.contains("hashicorp/random is not in apps/.terraform.lock.hcl of the source"), "{told}");
    lock("apps/.terraform.lock.hcl", &versions[..2]);

    // The private key is not there yet, so that the apply reads the data source.
    let preview = organization.succeed(STACK, "Preview", "");
    assert_eq!(Bed::summary(&preview), "create 4", "{preview:#}");
    let plan = bed.document(&preview, "plan?format=table");
    assert!(plan.contains(&format!("< read     {DATA}")) && plan.contains("1 read"), "{plan}");
    let name = preview["metadata"]["name"].as_str().unwrap();
    let applied = organization.succeed(STACK, "Apply", &format!("plan: {name}"));
    assert!(bed.document(&applied, "log").contains(DATA));
    let map = kubectl.get(&["configmap", "key", "--namespace", &namespace]);
    let key = map["data"]["key"].as_str().unwrap().to_owned();
    assert!(key.starts_with("ssh-ed25519 "), "{key}");
    assert_eq!(bed.resource(DATA), Value::Null, "nothing is recorded of it");
    organization.nothing_is_left(STACK, "Preview");
    organization.nothing_is_left(STACK, "Refresh");

    // The nearest lock file counts, and the plan shows the other version.
    lock("apps/shop/.terraform.lock.hcl", &[versions[0], versions[2]]);
    let upgraded = organization.succeed(STACK, "Preview", "");
    assert_eq!(Bed::summary(&upgraded), "", "{upgraded:#}");
    let plan = bed.document(&upgraded, "plan?format=table");
    let upgrade =
        "provider hashicorp/random changes from 3.6.0 to 3.7.0 for 1 resource, by apps/shop/.terraform.lock.hcl";
    assert!(plan.contains(upgrade), "{plan}");
    organization.succeed(STACK, "Apply", "");
    let again = organization.succeed(STACK, "Preview", "");
    let plan = bed.document(&again, "plan?format=table");
    assert!(!plan.contains("changes from"), "{plan}");

    // The lock of the Workspace decides alone.
    bed.use_mirror(&mirror, &mirror.lock(&versions[..1]));
    let told = organization.fail(STACK, "Preview", "");
    assert!(told.contains("hashicorp/random is not in spec.terraform.lock of workspace"), "{told}");
    bed.use_mirror(&mirror, "");

    // The records have the lock, so the providers can delete the objects.
    let destroyed = organization.succeed(STACK, "Destroy", "");
    assert_eq!(Bed::summary(&destroyed), "delete 4", "{destroyed:#}");
    assert_eq!(bed.resource(&id("random_pet", "name"))["status"]["phase"], "Destroyed");
    assert!(!bed.everything_shown().contains("PRIVATE KEY"));
}
