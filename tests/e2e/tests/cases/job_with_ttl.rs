//! Case `job-with-ttl`.
//!
//! Reports: fluxcd/kustomize-controller#1578, helm/helm#11347.

use std::fs;
use std::time::Duration;

use serde_json::Value;
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

#[test]
fn job_that_ended_unseen_never_reruns() {
    let case = Case::new("job-with-ttl");
    let kubectl = case.kubectl();
    // Its policy makes it healthy at once, so that no Run follows it to its end.
    let manifests = fs::read_to_string(case.input("all.yaml"))
        .unwrap()
        .replace("jobs", "jobs-unseen")
        .replace("name: migrate,", "name: migrate, annotations: {stoa.dev/health-current: \"true\"},")
        .replace("completions: 0", "completions: 1")
        .replace("parallelism: 0", "parallelism: 1");
    case.commit("");
    case.organization.source.commit(&format!("apps/{STACK}/all.yaml"), &manifests);
    case.organization.succeed(STACK, "Apply", "");
    let pod = eventually("the Job has a Pod", Duration::from_secs(60), || {
        let pods = kubectl.try_get(&["pods", "--namespace", "jobs-unseen"])?;
        pods["items"].as_array()?.first()?["metadata"]["name"].as_str().map(str::to_owned)
    });
    // No kubelet is here: the test says what one would.
    let succeeded = ["--subresource=status", "--type=merge", "--patch", r#"{"status":{"phase":"Succeeded"}}"#];
    kubectl.run(&[&["patch", "pod", &pod, "--namespace", "jobs-unseen"], &succeeded[..]].concat());
    let is_gone = || kubectl.try_get(&["job/migrate", "--namespace", "jobs-unseen"]).is_none().then_some(());
    eventually("Kubernetes deletes the Job", Duration::from_secs(60), is_gone);
    // Its Event tells how it ended, and later nothing does.
    case.assert_settled();
    kubectl.run(&["delete", "events", "--all", "--namespace", "jobs-unseen"]);
    case.assert_settled();
    let warning = |run: &Value| condition(run, "PlannedWithWarnings")["message"].to_string();
    let assumed = case.organization.succeed(STACK, "Preview", "");
    assert!(
        warning(&assumed).contains("jobs-unseen:migrate: the Job no longer exists, and counts as finished"),
        "{assumed:#}"
    );
    case.organization.succeed(STACK, "Apply", "");
    assert_eq!(is_gone(), Some(()), "an Apply does not run it again");
    let recorded = case.organization.succeed(STACK, "Preview", "");
    assert_eq!(warning(&recorded), "null", "the Apply has recorded its end");
    case.destroy();
}
