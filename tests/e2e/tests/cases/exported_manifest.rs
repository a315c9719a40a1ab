//! Case `exported-manifest`.
//!
//! Reports: argoproj/argo-cd#28585, kubernetes/kubernetes#81453.

use std::time::Duration;

use serde_json::Value;

use crate::harness::{Case, STACK};

const PATIENCE: Duration = Duration::from_secs(60);

/// Runs an operation, which has to succeed within a minute.
fn succeed(case: &Case, operation: &str) -> Value {
    let run = case.organization.ended(&case.organization.start(STACK, operation, ""), PATIENCE);
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    run
}

#[test]
fn apply_omits_server_fields_and_stores_no_secret() {
    let case = Case::new("exported-manifest");
    let kubectl = case.kubectl();
    for folder in ["managed-fields", "foreign-uid", "stale-version"] {
        if folder != "managed-fields" {
            kubectl.run(&["create", "namespace", "exported"]);
        }
        if folder == "stale-version" {
            kubectl.run(&["create", "configmap", "settings", "--namespace=exported"]);
        }
        case.commit(folder);
        succeed(&case, "Preview");
        succeed(&case, "Apply");
        let live = kubectl.get(&["configmap", "settings", "--namespace=exported"]);
        assert_eq!(live["data"]["colour"], "blue", "{folder}");
        assert_ne!(live["metadata"]["uid"], "0b1f6f0e-5f7c-4c59-9a2e-1d6b9f0c1a01");
        case.assert_settled();
        case.destroy();
    }
    case.commit("secret-copy");
    let runs = [succeed(&case, "Preview"), succeed(&case, "Apply")];
    let secret = kubectl.get(&["secret", "door", "--namespace=exported"]);
    assert_eq!(secret["data"]["password"], "bmV3LXZhbHVlLTAx");
    assert!(secret["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"].is_null());
    let name = &case.organization.name;
    let mut kept: Vec<String> = Vec::new();
    for run in &runs {
        kept.push(run.to_string());
        kept.extend(["plan", "log"].map(|part| case.document(run, part)));
    }
    let releases = case.organization.of_stack("releases", STACK);
    assert!(!releases.is_empty());
    for release in &releases {
        let path = format!(
            "/apis/delivery.stoa.dev/v1alpha1/namespaces/{name}/releases/{}",
            release["metadata"]["name"].as_str().unwrap()
        );
        kept.push(release.to_string());
        kept.extend(["spec", "state", "diff?format=json"].map(|part| kubectl.raw(&format!("{path}/{part}"))));
    }
    kept.push(
        kubectl.raw(&format!("/apis/config.stoa.dev/v1alpha1/namespaces/{name}/stacks/{STACK}/state?workspace={name}")),
    );
    for document in &kept {
        for value in ["b2xkLXZhbHVlLTAx", "old-value-01", "bmV3LXZhbHVlLTAx", "new-value-01"] {
            assert!(!document.contains(value), "{document}");
        }
    }
    case.destroy();
}
