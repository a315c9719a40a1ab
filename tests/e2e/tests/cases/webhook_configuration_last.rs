//! Case `webhook-configuration-last`.
//!
//! Reports: kubernetes-sigs/kustomize#821, kubernetes-sigs/kustomize#3794.

use std::fs;
use std::time::Duration;

use stoa_e2e::eventually;
use stoa_e2e::repeat::is_in_full;

use crate::harness::{Case, STACK};

/// A guarded object that nobody deploys.
const PROBE: &str = r#"{"apiVersion": "v1", "kind": "ConfigMap",
    "metadata": {"name": "probe", "namespace": "guarded", "labels": {"guarded": "yes"}}}"#;
const WEBHOOK: &str = "check.guarded.example.com";

#[test]
fn webhook_without_server_fails_only_changes() {
    let case = Case::new("webhook-configuration-last");
    let rounds = if is_in_full() { 10 } else { 3 };
    for _ in 0..rounds {
        case.apply("");
        case.destroy();
    }
    case.apply("");
    eventually("the webhook is in force", Duration::from_secs(60), || {
        case.kubectl().would_create(PROBE).is_err_and(|said| said.contains(WEBHOOK)).then_some(())
    });
    let changed = fs::read_to_string(case.input("02-server.yaml")).unwrap().replace("a: \"1\"", "a: \"changed\"");
    case.organization.source.commit(&format!("apps/{STACK}/02-server.yaml"), &changed);
    for operation in ["Preview", "Apply"] {
        let (run, message) = case.fails_within(operation, Duration::from_secs(120));
        let parts = ["v1:ConfigMap:guarded:settings-1", "failed calling webhook", WEBHOOK];
        assert!(parts.iter().all(|part| message.contains(part)), "{operation}: {message}");
        case.assert_none_unknown(&run);
    }
    case.apply("");
    case.destroy();
}
