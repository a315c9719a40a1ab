//! Case `aggregated-clusterrole`.
//!
//! Reports: carvel-dev/kapp#227, kyverno/kyverno#4866, fluxcd/flux2#2472.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use stoa_e2e::eventually;

use crate::harness::{Case, STACK};

#[test]
fn control_plane_owns_rules_of_aggregated_role() {
    let case = Case::new("aggregated-clusterrole");
    case.apply("");
    let role = || case.kubectl().get(&["clusterrole/everything"]);
    let aggregated = eventually("the rules are aggregated", Duration::from_secs(60), || {
        let role = role();
        role["rules"].as_array().is_some_and(|rules| !rules.is_empty()).then_some(role)
    });
    case.assert_settled();

    let labelled = fs::read_to_string(case.input("all.yaml")).unwrap().replacen(
        "metadata: {name: everything}",
        "metadata: {name: everything, labels: {team: web}}",
        1,
    );
    case.organization.source.commit(&format!("apps/{STACK}/all.yaml"), &labelled);
    case.organization.succeed(STACK, "Apply", "");
    assert_eq!(role()["metadata"]["labels"]["team"], "web");
    case.assert_settled();
    // Every version since then has the aggregated rules.
    let since = aggregated["metadata"]["resourceVersion"].as_str().unwrap();
    let watch = format!(
        "/apis/rbac.authorization.k8s.io/v1/clusterroles?watch=true&fieldSelector=metadata.name%3Deverything\
         &resourceVersion={since}&timeoutSeconds=2"
    );
    let events = case.kubectl().run(&["get", "--raw", &watch]);
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!events.is_empty(), "the label is an event");
    for event in events {
        assert_eq!(event["object"]["rules"], aggregated["rules"], "{event:#}");
    }
    case.destroy();
}
