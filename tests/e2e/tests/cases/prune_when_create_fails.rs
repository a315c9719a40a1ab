//! Case `prune-when-create-fails`.
//!
//! Reports: fluxcd/kustomize-controller#734, fluxcd/kustomize-controller#340.

use std::time::Duration;

use stoa_e2e::eventually;

use crate::harness::Case;

/// An object that the policy rejects, and that nobody deploys.
const PROBE: &str = r#"{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "probe", "namespace": "moved-to"},
    "spec": {"ports": [{"port": 80}]}}"#;

/// The same in a namespace that exists.
const OLD_PROBE: &str = r#"{"apiVersion": "v1", "kind": "Service",
    "metadata": {"name": "policy-probe", "namespace": "moved-from"}, "spec": {"ports": [{"port": 80}]}}"#;

/// What is moved from one namespace to another.
const FRONT: [&str; 2] = ["service/front", "deployment/front"];

#[test]
fn rejected_move_leaves_application_in_old_namespace() {
    let case = Case::new("prune-when-create-fails");
    case.apply("old");
    case.prepare("cluster/policy.yaml");
    let kubectl = case.kubectl();
    eventually("the policy is in force", Duration::from_secs(60), || kubectl.would_create(OLD_PROBE).err());
    // No dry run can ask the policy: the new namespace does not exist.
    let planned = case.preview("moved");
    assert_eq!(Case::summary(&planned), "create 3, delete 2, unchanged 2, unverified 2");
    let (run, message) = case.fails_within("Apply", Duration::from_secs(120));
    assert!(message.contains("nothing new is admitted here"), "{message}");
    let log = case.document(&run, "log");
    for id in ["v1:Service:moved-from:front", "apps/v1:Deployment:moved-from:front"] {
        assert!(message.contains(id) && log.contains(id), "{message}\n{log}");
        let resources = run["status"]["resources"].as_array().unwrap();
        let left = resources.iter().find(|resource| resource["id"] == id).unwrap();
        assert_eq!(left["phase"], "Skipped", "{left}");
    }
    for object in FRONT {
        kubectl.run(&["get", object, "--namespace", "moved-from"]);
    }
    kubectl.run(&["delete", "--filename", case.input("cluster/policy.yaml").to_str().unwrap()]);
    // The API server goes on with a deleted policy for a moment.
    eventually("the policy is out of force", Duration::from_secs(60), || kubectl.would_create(PROBE).ok());
    case.apply("moved");
    for object in FRONT {
        kubectl.run(&["get", object, "--namespace", "moved-to"]);
        kubectl.refused(&["get", object, "--namespace", "moved-from"]);
    }
    case.assert_settled();
    case.destroy();
}
