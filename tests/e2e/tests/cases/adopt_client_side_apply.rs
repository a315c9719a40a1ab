//! Case `adopt-client-side-apply`.
//!
//! Reports: kubernetes/kubernetes#99003, kubernetes/kubernetes#80914, fluxcd/kustomize-controller#486.

use serde_json::Value;

use crate::harness::{Case, STACK};

#[test]
fn fields_of_client_side_apply_leave_with_the_source() {
    let case = Case::new("adopt-client-side-apply");
    case.prepare("same/all.yaml");
    case.commit("same");
    case.organization.succeed(STACK, "Import", "");
    case.apply("same");
    case.assert_settled();

    let planned = case.preview("changed");
    assert_eq!(Case::count(&planned, "update"), 3, "{planned:#}");
    case.apply("changed");
    let get = |what: &str| case.kubectl().get(&[what, "--namespace", "adopted"]);
    let ports = |list: &Value, key: &str| -> Vec<i64> {
        list.as_array().unwrap().iter().map(|port| port[key].as_i64().unwrap()).collect()
    };
    assert_eq!(ports(&get("service/web")["spec"]["ports"], "port"), [8081]);
    let web = get("deployment/web");
    let containers = web["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 1, "{containers:?}");
    assert_eq!(ports(&containers[0]["ports"], "containerPort"), [8080]);
    assert_eq!(containers[0]["env"].as_array().map(Vec::len), Some(1));
    assert_eq!(containers[0].get("args"), None);
    for what in ["configmap/settings", "service/web", "deployment/web"] {
        let object = get(what).to_string();
        assert!(!object.to_lowercase().contains("legacy"), "{object}");
    }
    case.assert_settled();
    case.destroy();
}
