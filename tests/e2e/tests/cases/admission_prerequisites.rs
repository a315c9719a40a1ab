//! Case `admission-prerequisites`.
//!
//! Reports: carvel-dev/kapp#95, helm/helm#5916, fluxcd/kustomize-controller#1194.

use std::time::Duration;

use crate::harness::{Case, STACK};

#[test]
fn plan_accepts_prerequisites_it_creates_itself() {
    let case = Case::new("admission-prerequisites");
    case.apply("before");
    let planned = case.preview("after");
    let plan = case.document(&planned, "plan");
    for says in ["ServiceAccount:asks:asks: ", "PriorityClass:asks: ", "RuntimeClass:asks: "] {
        assert!(plan.contains("may be accepted after") && plan.contains(says), "{plan}");
    }
    case.apply("after");
    case.assert_settled();
    case.destroy();
    // The same on an empty cluster.
    case.apply("after");
    case.assert_settled();
    // What nothing in the plan brings is refused.
    let misspelt = std::fs::read_to_string(case.input("after/all.yaml")).unwrap();
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: misspelt, namespace: asks}\n\
               spec: {priorityClassName: ask, containers: [{name: a, image: \"registry.invalid/a:1\"}]}\n";
    case.organization.source.commit(&format!("apps/{STACK}/all.yaml"), &format!("{misspelt}\n---\n{pod}"));
    let (_, message) = case.fails_within("Preview", Duration::from_secs(120));
    assert!(message.contains("v1:Pod:asks:misspelt") && message.contains("PriorityClass"), "{message}");
    case.destroy();
}
