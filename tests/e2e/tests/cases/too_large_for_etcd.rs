//! Case `too-large-for-etcd`.
//!
//! Reports: kubernetes/kubernetes#74600, kubernetes-sigs/prow#181, rancher/fleet#2388.

use std::process::Command;
use std::time::Duration;

use crate::harness::{Case, STACK};

#[test]
fn objects_too_large_for_etcd_fail_alone() {
    let case = Case::new("too-large-for-etcd");
    case.apply("small");
    let folder = tempfile::tempdir().unwrap();
    let script = case.input("generate.sh");
    assert!(Command::new("bash").arg(script).arg(folder.path()).status().unwrap().success());
    case.organization.stack_of_files(STACK, folder.path());
    let (run, message) = case.fails_within("Apply", Duration::from_secs(60));
    for part in ["barns.large.example.com", "v1:ConfigMap:large:wide", "make it smaller or split it"] {
        assert!(message.contains(part), "{message}");
    }
    let too_large = ["request is too large", "send message larger than max"];
    assert!(too_large.iter().any(|said| message.contains(said)), "{message}");
    case.assert_none_unknown(&run);
    let beside = case.kubectl().get(&["configmap/beside", "--namespace", "large"]);
    assert_eq!(beside["data"]["a"], "2");

    case.apply("small");
    case.assert_settled();
    case.destroy();
}
