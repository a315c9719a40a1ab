//! Tests of the health of built-in kinds, and of custom kinds that follow the conventions.

use serde_json::json;

use super::*;

#[track_caller]
fn check(api_version: &str, kind: &str, object: Value, expected: Health) {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let gvk = Gvk { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() };
    let (found, message) = health(&gvk, object.as_object().unwrap());
    assert_eq!(found, expected, "{message}");
    assert!(!message.is_empty());
}

fn deployment(status: Value) -> Value {
    json!({"metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": status})
}

#[test]
fn deployment_is_current_with_new_replicas() {
    let conditions = json!([
        {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
        {"type": "Available", "status": "True"}
    ]);
    let done = json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2, "readyReplicas": 2, "conditions": conditions});
    check("apps/v1", "Deployment", deployment(done.clone()), Health::Current);
    check("apps/v1", "Deployment", deployment(json!({})), Health::InProgress);
    for (key, value) in [
        ("observedGeneration", json!(1)),
        ("updatedReplicas", json!(1)),
        ("replicas", json!(3)),
        ("availableReplicas", json!(1)),
        ("readyReplicas", json!(0)),
        ("conditions", json!([])),
    ] {
        let mut status = done.clone();
        status[key] = value;
        check("apps/v1", "Deployment", deployment(status), Health::InProgress);
    }
}

#[test]
fn deployment_past_its_deadline_has_failed() {
    let conditions =
        json!([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "m"}]);
    check(
        "apps/v1",
        "Deployment",
        deployment(json!({"observedGeneration": 2, "conditions": conditions})),
        Health::Failed,
    );
}

#[test]
fn stateful_set_follows_its_strategy() {
    let set = |strategy: Value, status: Value| json!({"metadata": {"generation": 1}, "spec": {"replicas": 3, "updateStrategy": strategy}, "status": status});
    let done = json!({"observedGeneration": 1, "replicas": 3, "readyReplicas": 3, "currentReplicas": 3, "updatedReplicas": 3, "currentRevision": "a", "updateRevision": "a"});
    check("apps/v1", "StatefulSet", set(json!({}), done.clone()), Health::Current);
    let mut updating = done.clone();
    updating["updateRevision"] = json!("b");
    check("apps/v1", "StatefulSet", set(json!({}), updating), Health::InProgress);
    check("apps/v1", "StatefulSet", set(json!({"type": "OnDelete"}), json!({})), Health::Current);
    let mut partition = done;
    partition["updatedReplicas"] = json!(1);
    check(
        "apps/v1",
        "StatefulSet",
        set(json!({"rollingUpdate": {"partition": 2}}), partition.clone()),
        Health::Current,
    );
    check("apps/v1", "StatefulSet", set(json!({"rollingUpdate": {"partition": 1}}), partition), Health::InProgress);
}

#[test]
fn daemon_set_waits_for_every_node() {
    let set = |ready: i64| {
        json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "desiredNumberScheduled": 2,
        "currentNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2, "numberReady": ready}})
    };
    check("apps/v1", "DaemonSet", set(2), Health::Current);
    check("apps/v1", "DaemonSet", set(1), Health::InProgress);
    check("apps/v1", "DaemonSet", json!({}), Health::InProgress);
}

#[test]
fn replica_set_waits_for_its_pods() {
    let set = |ready: i64| json!({"spec": {"replicas": 2}, "status": {"replicas": 2, "fullyLabeledReplicas": 2, "availableReplicas": 2, "readyReplicas": ready}});
    check("apps/v1", "ReplicaSet", set(2), Health::Current);
    check("apps/v1", "ReplicaSet", set(1), Health::InProgress);
}

#[test]
fn finished_job_being_deleted_is_current() {
    let job = |status: Value| json!({"metadata": {}, "spec": {"ttlSecondsAfterFinished": 0}, "status": status});
    let ended = |condition: &str| json!({"startTime": "x", "conditions": [{"type": condition, "status": "True"}]});
    let going = |status: Value| {
        let mut job = job(status);
        job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        job
    };
    check("batch/v1", "Job", going(ended("Complete")), Health::Current);
    check("batch/v1", "Job", going(ended("Failed")), Health::Failed);
    check("batch/v1", "Job", going(json!({"startTime": "x", "active": 1})), Health::Terminating);
}

#[test]
fn job_is_current_or_failed() {
    check("batch/v1", "Job", json!({"status": {}}), Health::InProgress);
    check("batch/v1", "Job", json!({"status": {"startTime": "2026-01-01T00:00:00Z", "active": 1}}), Health::Current);
    let failed = json!([{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]);
    check("batch/v1", "Job", json!({"status": {"startTime": "x", "conditions": failed}}), Health::Failed);
}

#[test]
fn pod_that_crashes_has_failed() {
    let pod = |phase: &str, ready: &str, state: Value| {
        json!({"status": {"phase": phase,
        "conditions": [{"type": "Ready", "status": ready}], "containerStatuses": [{"name": "a", "state": state}]}})
    };
    check("v1", "Pod", pod("Running", "True", json!({})), Health::Current);
    check("v1", "Pod", pod("Running", "False", json!({})), Health::InProgress);
    check("v1", "Pod", pod("Running", "False", json!({"waiting": {"reason": "CrashLoopBackOff"}})), Health::Failed);
    check("v1", "Pod", pod("Succeeded", "False", json!({})), Health::Current);
    check("v1", "Pod", pod("Failed", "False", json!({})), Health::Failed);
    check("v1", "Pod", pod("Pending", "False", json!({})), Health::InProgress);
}

#[test]
fn services_and_claims_wait_for_assignments() {
    check("v1", "Service", json!({"spec": {"type": "ClusterIP"}}), Health::Current);
    let balanced = |ingress: Value| json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1"}, "status": {"loadBalancer": {"ingress": ingress}}});
    check("v1", "Service", balanced(json!([])), Health::InProgress);
    check("v1", "Service", balanced(json!([{"ip": "1.2.3.4"}])), Health::Current);
    check("v1", "PersistentVolumeClaim", json!({"status": {"phase": "Pending"}}), Health::InProgress);
    check("v1", "PersistentVolumeClaim", json!({"status": {"phase": "Bound"}}), Health::Current);
}

#[test]
fn definition_is_current_when_established() {
    let with = |conditions: Value| json!({"status": {"conditions": conditions}});
    let crd = "CustomResourceDefinition";
    check("apiextensions.k8s.io/v1", crd, with(json!([])), Health::InProgress);
    check(
        "apiextensions.k8s.io/v1",
        crd,
        with(json!([{"type": "Established", "status": "False", "reason": "Installing"}])),
        Health::InProgress,
    );
    check("apiextensions.k8s.io/v1", crd, with(json!([{"type": "Established", "status": "True"}])), Health::Current);
    check("apiextensions.k8s.io/v1", crd, with(json!([{"type": "NamesAccepted", "status": "False"}])), Health::Failed);
}

#[test]
fn custom_kinds_follow_conventions() {
    let check = |object: Value, expected| check("example.com/v1", "Widget", object, expected);
    let with = |name: &str, status: &str| json!({"status": {"conditions": [{"type": name, "status": status}]}});
    check(json!({}), Health::Current);
    check(with("Ready", "True"), Health::Current);
    check(with("Ready", "False"), Health::InProgress);
    check(with("Ready", "Unknown"), Health::InProgress);
    check(with("Reconciling", "True"), Health::InProgress);
    check(with("Stalled", "True"), Health::Failed);
    check(json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1}}), Health::InProgress);
    check(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), Health::Terminating);
}

#[test]
fn condition_of_earlier_generation_is_ignored() {
    let check = |object: Value, expected| check("cert-manager.io/v1", "Certificate", object, expected);
    let with = |conditions: &[(&str, &str, Option<i64>)]| {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(name, status, observed)| json!({"type": name, "status": status, "observedGeneration": observed}))
            .collect();
        json!({"metadata": {"generation": 2}, "status": {"conditions": conditions}})
    };
    check(with(&[("Ready", "True", Some(1))]), Health::InProgress);
    check(with(&[("Ready", "True", Some(2))]), Health::Current);
    check(with(&[("Ready", "True", Some(3))]), Health::Current);
    check(with(&[("Ready", "True", None)]), Health::Current);
    check(with(&[("Stalled", "True", Some(1)), ("Ready", "False", Some(2))]), Health::InProgress);
    check(with(&[("Stalled", "True", Some(2)), ("Ready", "False", Some(2))]), Health::Failed);
    check(with(&[("Reconciling", "True", Some(1)), ("Ready", "True", Some(2))]), Health::InProgress);
    check(with(&[("Available", "True", Some(1)), ("Synced", "True", Some(2))]), Health::InProgress);
    // What is over, or was not touched by the change, may stay as it was.
    check(
        with(&[("Stalled", "False", Some(1)), ("Issuing", "False", Some(1)), ("Ready", "True", Some(2))]),
        Health::Current,
    );
    check(with(&[("Available", "True", Some(1)), ("Ready", "True", Some(2))]), Health::Current);
    // Nobody says anything of this generation.
    check(with(&[("Accepted", "True", Some(1)), ("Programmed", "True", Some(1))]), Health::InProgress);
    check(with(&[("Accepted", "True", Some(2)), ("Programmed", "True", Some(1))]), Health::Current);
    let mut observed = with(&[("Accepted", "True", Some(1))]);
    observed["status"]["observedGeneration"] = json!(2);
    check(observed.clone(), Health::Current);
    observed["status"]["conditions"][0]["type"] = json!("Ready");
    check(observed, Health::InProgress);
    let (_, message) = health(
        &Gvk { group: String::new(), version: "v1".to_owned(), kind: "Certificate".to_owned() },
        with(&[("Ready", "True", Some(1))]).as_object().unwrap(),
    );
    assert_eq!(message, "condition Ready is of generation 1, and 2 is not observed yet");
}

#[test]
fn custom_conditions_are_evaluated_in_order() {
    let check = |object: Value, expected| check("example.com/v1", "Widget", object, expected);
    let conditions = |conditions: &[(&str, &str)]| -> Value {
        conditions.iter().map(|(name, status)| json!({"type": name, "status": status})).collect()
    };
    let with = |generation: i64, observed: Value, all: &[(&str, &str)]| json!({"metadata": {"generation": generation}, "status": {"observedGeneration": observed, "conditions": conditions(all)}});
    // What it says was said of an earlier generation, whatever it is.
    check(with(2, json!(1), &[("Ready", "True")]), Health::InProgress);
    check(with(2, json!(1), &[("Stalled", "True")]), Health::InProgress);
    check(with(2, json!(3), &[("Ready", "True")]), Health::InProgress);
    check(with(2, json!(2), &[("Ready", "True")]), Health::Current);
    check(with(2, json!(2), &[("Ready", "True"), ("Reconciling", "True")]), Health::InProgress);
    check(with(2, json!(2), &[("Reconciling", "True"), ("Stalled", "True")]), Health::InProgress);
    check(with(2, json!(2), &[("Ready", "False"), ("Stalled", "True")]), Health::Failed);
    check(with(2, json!(2), &[("Ready", "True"), ("Stalled", "False"), ("Reconciling", "Unknown")]), Health::Current);
    check(with(2, json!(2), &[("Synced", "False")]), Health::Current);
    check(
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"conditions": conditions(&[("Ready", "True")])}}),
        Health::Terminating,
    );
    for status in [
        json!(null),
        json!("Ready"),
        json!({"conditions": "Ready"}),
        json!({"conditions": [null, 1, {"type": 7, "status": "True"}, {"type": "Stalled", "status": true}]}),
        json!({"observedGeneration": "1", "conditions": {"type": "Ready", "status": "False"}}),
    ] {
        check(json!({"metadata": {"generation": 2}, "status": status}), Health::Current);
    }
}

#[test]
fn kinds_without_status_are_current() {
    check("v1", "ConfigMap", json!({}), Health::Current);
    check("v1", "Namespace", json!({"status": {"phase": "Active"}}), Health::Current);
    check("v1", "Namespace", json!({"metadata": {"deletionTimestamp": "x"}}), Health::Terminating);
}
