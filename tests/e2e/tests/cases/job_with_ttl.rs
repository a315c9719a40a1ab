//! Case `job-with-ttl`.
//!
//! Reports: fluxcd/kustomize-controller#1578, helm/helm#11347.

use std::fs;
use std::time::Duration;

use stoa_e2e::eventually;
use stoa_e2e::fixture::condition;

use crate::harness::{Case, STACK};

const JOB: [&str; 3] = ["job/migrate", "--namespace", "jobs"];

#[test]
fn finished_job_never_reruns_after_ttl_deletion() {
    let case = Case::new("job-with-ttl");
    let refreshed = || {
        let run = case.organization.succeed(STACK, "Refresh", "");
        condition(&run, "Complete")["message"].as_str().unwrap_or_default().to_owned()
    };
    let is_gone = || case.kubectl().try_get(&JOB).is_none().then_some(());
    case.apply("");
    eventually("Kubernetes deletes the Job", Duration::from_secs(60), is_gone);
    assert_eq!(refreshed(), "nothing moved away from release 1");
    case.assert_settled();
    case.apply("");
    assert_eq!(is_gone(), Some(()), "an Apply does not run it again");

    // No pod of it ever starts.
    let endless = fs::read_to_string(case.input("all.yaml"))
        .unwrap()
        .replace("completions: 0", "completions: 1")
        .replace("ttlSecondsAfterFinished: 0", "ttlSecondsAfterFinished: 3600");
    case.organization.source.commit(&format!("apps/{STACK}/all.yaml"), &endless);
    let applied = case.organization.succeed(STACK, "Apply", "");
    assert_eq!(Case::count(&applied, "create"), 1, "its manifest has changed: {applied:#}");
    assert!(refreshed().starts_with("nothing moved away"));
    case.kubectl().run(&["delete", "job/migrate", "--namespace", "jobs"]);
    let message = refreshed();
    assert!(
        message.starts_with("1 resource moved away") && message.ends_with("batch/v1:Job:jobs:migrate"),
        "{message}"
    );
    let planned = case.organization.succeed(STACK, "Preview", "");
    assert_eq!(Case::count(&planned, "create"), 1, "{planned:#}");
    case.destroy();
}
