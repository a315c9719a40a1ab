//! Case `mutating-policy`.
//!
//! Reports: argoproj/argo-cd#17572.

use std::time::Duration;

use stoa_e2e::eventually;

use crate::harness::Case;

/// An object that shows whether the policy is in force.
const PROBE: &str = r#"{"apiVersion": "v1", "kind": "ConfigMap", "data": {"image": "docker.invalid/probe"},
    "metadata": {"name": "probe", "namespace": "rewritten", "labels": {"rewritten": "yes"}}}"#;

#[test]
fn values_that_a_policy_changes_are_no_drift() {
    let case = Case::new("mutating-policy");
    let kubectl = case.kubectl();
    let get = |what: &str| kubectl.get(&[what, "--namespace", "rewritten"]);
    let in_force = |expected: bool| {
        eventually("the policy is in force or not", Duration::from_secs(60), || {
            let _ = kubectl.try_to_run(&["delete", "configmap/probe", "--namespace", "rewritten"]);
            kubectl.create(PROBE);
            let is_changed = get("configmap/probe")["data"]["image"].as_str().unwrap().starts_with("mirror.");
            (is_changed == expected).then_some(())
        });
    };
    let images = || {
        let web = get("deployment/web");
        let container = &web["spec"]["template"]["spec"]["containers"][0];
        [container["image"].clone(), get("configmap/images")["data"]["image"].clone()]
    };
    kubectl.apply(r#"{apiVersion: v1, kind: Namespace, metadata: {name: rewritten, labels: {rewritten: "yes"}}}"#);
    case.prepare("cluster/policy.yaml");
    case.prepare("cluster/binding.yaml");
    in_force(true);

    case.apply("first");
    assert_eq!(images(), ["mirror.invalid/web:1"; 2]);
    case.assert_settled();
    kubectl.run(&["rollout", "restart", "deployment/web", "--namespace", "rewritten"]);
    case.assert_settled();
    let planned = case.preview("second");
    assert_eq!(Case::count(&planned, "update"), 2, "{planned:#}");
    let log = case.document(&planned, "log");
    assert!(log.contains("mirror.invalid/web:2"), "{log}");
    case.apply("second");
    assert_eq!(images(), ["mirror.invalid/web:2"; 2]);
    let annotations = get("deployment/web")["spec"]["template"]["metadata"]["annotations"].clone();
    assert!(annotations["kubectl.kubernetes.io/restartedAt"].is_string(), "{annotations}");
    case.assert_settled();

    kubectl.run(&["delete", "mutatingadmissionpolicybinding/rewrites", "mutatingadmissionpolicy/rewrites"]);
    in_force(false);
    let planned = case.preview("second");
    assert_eq!(Case::count(&planned, "update"), 2, "{planned:#}");
    case.apply("second");
    assert_eq!(images(), ["docker.invalid/web:2"; 2]);
    case.destroy();
    kubectl.run(&["delete", "namespace/rewritten"]);
}
