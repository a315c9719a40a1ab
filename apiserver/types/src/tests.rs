//! Tests of what types read and write.

use super::*;

#[test]
fn durations_are_read_as_go_writes_them() {
    for (text, seconds) in [("30s", 30.0), ("1h30m", 5400.0), ("0s", 0.0), ("0", 0.0), ("1.5s", 1.5), ("250ms", 0.25)] {
        assert_eq!(DurationString(text.to_owned()).parse().unwrap().as_secs_f64(), seconds, "{text}");
    }
    for text in ["", "30", "s", "1d", "-1s", "1h30"] {
        assert!(DurationString(text.to_owned()).parse().is_err(), "{text:?} is no duration");
    }
}

/// An empty text stands for the version that the stack desires, and not for the head of its source.
#[test]
fn an_empty_version_is_none() {
    let run = |version: &str| -> Run {
        let spec = serde_json::json!({"stack": "web", "operation": "Apply", "version": version});
        serde_json::from_value(serde_json::json!({"metadata": {}, "spec": spec})).unwrap()
    };
    assert_eq!(run("").spec.version, None);
    assert_eq!(run("v2").spec.version.as_deref(), Some("v2"));
    assert_eq!(serde_json::to_value(run("")).unwrap()["spec"].get("version"), None);
    let workflow = |version: &str| -> Workflow {
        let step = serde_json::json!({"name": "a", "run": {"operation": "Apply", "version": version}});
        let spec = serde_json::json!({"stack": "web", "version": version, "steps": [step]});
        serde_json::from_value(serde_json::json!({"metadata": {}, "spec": spec})).unwrap()
    };
    let versions = |workflow: Workflow| (workflow.spec.version, workflow.spec.steps[0].run.clone().unwrap().version);
    assert_eq!(versions(workflow("")), (None, None));
    assert_eq!(versions(workflow("v2")), (Some("v2".to_owned()), Some("v2".to_owned())));
}

#[test]
fn new_run_equals_minimal_parsed_run() {
    let written = serde_json::json!({"stack": "web", "workspace": "dev", "operation": "Apply"});
    let read: delivery::RunSpec = serde_json::from_value(written).unwrap();
    assert_eq!(delivery::RunSpec::new("web", "dev", delivery::Operation::Apply), read);
}
