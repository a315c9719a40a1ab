//! Resources of providers without a cluster, beside a GitOps repository.

use serde_json::json;
use stoa_e2e::Standalone;

use crate::harness::{Bed, STACK, of, resource};

fn config_map(value: &str) -> serde_json::Value {
    json!({"id": "v1:ConfigMap:shop:names", "type": "Kubernetes", "attributes": {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "names", "namespace": "shop"},
        "data": {"name": value},
    }})
}

#[test]
fn value_of_provider_is_committed() {
    let server = Standalone::shared();
    let bed = Bed::new(&*server, &[("random", "3.6.0")]);
    let organization = &bed.organization;
    let name = of("random_pet", "name", "id");
    bed.commit(&json!([resource("random_pet", "name", &json!({"prefix": "shop"})), config_map(&name)]));
    organization.succeed(STACK, "Apply", "");
    let deployed = stoa_e2e::fixture::Repository::clone_of(&organization.deploy);
    let files = deployed.git(&["grep", "-h", "shop-", "HEAD"]);
    assert!(files.contains("name: shop-"), "{files}");
    organization.nothing_is_left(STACK, "Preview");
    organization.succeed(STACK, "Destroy", "");
    deployed.git(&["pull", "--quiet"]);
    assert!(!deployed.git(&["ls-files"]).contains("names"));
}

#[test]
fn sensitive_value_is_not_committed() {
    let server = Standalone::shared();
    let bed = Bed::new(&*server, &[("random", "3.6.0")]);
    let organization = &bed.organization;
    let password = resource("random_password", "db", &json!({"length": 12}));
    let secret = of("random_password", "db", "result");
    bed.commit(&json!([password, config_map(&secret)]));
    let told = organization.fail(STACK, "Apply", "");
    assert!(told.contains("sensitive"), "{told}");
    let branches = stoa_e2e::fixture::Repository::clone_of(&organization.deploy).git(&["branch", "--all"]);
    assert_eq!(branches.trim(), "", "nothing was committed");
    organization.succeed(STACK, "Destroy", "");
}
