//! Tests of health policies.

use serde_json::json;
use stoa_engine::ResourceId;

use super::*;

fn resource(extensions: Value, annotations: Value) -> Resource {
    let object = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "annotations": annotations}});
    Resource {
        id: ResourceId("example.com/v1:Widget:w".to_owned()),
        kind: ResourceType::Kubernetes,
        attributes: object.as_object().unwrap().clone(),
        depends_on: Vec::new(),
        extensions: extensions.as_object().unwrap().clone(),
    }
}

fn policy(cel: Value) -> HealthPolicy {
    HealthPolicy::of(&resource(json!({"healthPolicy": {"cel": cel}}), json!({}))).unwrap().unwrap()
}

/// What is wrong with a policy: fields and messages, one to a line.
#[track_caller]
fn refused(policy: Value, expected: &[(&str, &str)]) {
    let problems = HealthPolicy::of(&resource(json!({ "healthPolicy": policy }), json!({}))).unwrap_err();
    let found: Vec<_> = problems.iter().map(|problem| (problem.field.as_str(), problem.message.as_str())).collect();
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for ((field, message), (in_field, says)) in found.iter().zip(expected) {
        assert_eq!(field, in_field);
        assert!(message.contains(says), "{message}");
    }
}

async fn health_of(policy: &HealthPolicy, kind: &str, object: Value) -> (Health, String) {
    let gvk = Gvk { group: String::new(), version: "v1".to_owned(), kind: kind.to_owned() };
    policy.health(&gvk, object.as_object().unwrap()).await
}

#[tokio::test]
async fn expressions_are_evaluated_in_flux_order() {
    let policy = policy(json!({
        "current": "status.phase in ['Running', 'Both', 'All']",
        "failed": "status.phase in ['Broken', 'Both', 'All']",
        "inProgress": "status.phase in ['Starting', 'All']",
    }));
    for (phase, expected, says) in [
        ("Running", Health::Current, "`current` of its health policy holds"),
        ("Broken", Health::Failed, "`failed` of its health policy holds"),
        ("Starting", Health::InProgress, "`inProgress` of its health policy holds"),
        ("Both", Health::Failed, "`failed` of its health policy holds"),
        ("All", Health::InProgress, "`inProgress` of its health policy holds"),
        ("Other", Health::InProgress, "`current` of its health policy does not hold yet"),
    ] {
        let found = health_of(&policy, "Widget", json!({"status": {"phase": phase}})).await;
        assert_eq!(found, (expected, says.to_owned()), "{phase}");
    }
}

#[tokio::test]
async fn unobserved_change_is_in_progress() {
    let policy = policy(json!({"current": "true"}));
    let of = |generation: u64, observed: u64| json!({"metadata": {"generation": generation}, "status": {"observedGeneration": observed}});
    assert_eq!(health_of(&policy, "Widget", of(2, 1)).await.0, Health::InProgress);
    assert_eq!(health_of(&policy, "Widget", of(2, 2)).await.0, Health::Current);
    // Conditions tell it, too.
    for (name, observed, expected) in
        [("Ready", 1, Health::InProgress), ("Programmed", 1, Health::InProgress), ("Programmed", 2, Health::Current)]
    {
        let condition = json!({"type": name, "status": "True", "observedGeneration": observed});
        let object = json!({"metadata": {"generation": 2}, "status": {"conditions": [condition]}});
        assert_eq!(health_of(&policy, "Widget", object).await.0, expected, "{name} of generation {observed}");
    }
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    assert_eq!(health_of(&policy, "Widget", deleted).await.0, Health::Terminating);
    // What kstatus would go by is for the expressions to decide.
    let stalled = json!({"status": {"conditions": [{"type": "Stalled", "status": "True"}]}});
    assert_eq!(health_of(&policy, "Widget", stalled).await.0, Health::Current);
}

#[tokio::test]
async fn expressions_that_people_share_for_flux_hold() {
    let sealed = policy(json!({
        "inProgress": "!has(status.conditions)",
        "failed": "status.conditions.filter(e, e.type == 'Synced').all(e, e.status == 'False')",
        "current": "status.conditions.filter(e, e.type == 'Synced').all(e, e.status == 'True')",
    }));
    let with = |status: &str| json!({"status": {"conditions": [{"type": "Synced", "status": status}]}});
    assert_eq!(health_of(&sealed, "Widget", with("True")).await.0, Health::Current);
    assert_eq!(health_of(&sealed, "Widget", with("False")).await.0, Health::Failed);
    assert_eq!(health_of(&sealed, "Widget", with("Unknown")).await.0, Health::InProgress);
    assert_eq!(health_of(&sealed, "Widget", json!({"status": {}})).await.0, Health::InProgress);
    let data = policy(json!({"current": "has(data.endpoint) && object.immutable"}));
    assert_eq!(
        health_of(&data, "Widget", json!({"data": {"endpoint": "x"}, "immutable": true})).await.0,
        Health::Current
    );
}

#[tokio::test]
async fn evaluation_error_is_in_progress_with_cause() {
    for (current, object, says) in [
        ("status.phase == 'Running'", json!({}), "cannot be evaluated: no such attribute(s): status"),
        ("status.phase == 'Running'", json!({"status": {}}), "cannot be evaluated: no such key: phase"),
        ("status.phase", json!({"status": {"phase": "Running"}}), "is string, not a bool"),
        ("[1, 2, 3].map(a, a)", json!({}), "is list, not a bool"),
    ] {
        let (health, message) = health_of(&policy(json!({"current": current})), "Widget", object).await;
        assert_eq!(health, Health::InProgress, "{message}");
        assert_eq!(message.strip_prefix("`current` of its health policy ").unwrap(), says);
    }
}

#[tokio::test]
async fn expressions_have_cost_and_message_limits() {
    let ten = "[0,1,2,3,4,5,6,7,8,9]";
    let endless = (0..8).fold("true".to_owned(), |inner, depth| format!("{ten}.all(x{depth}, {inner})"));
    let began = std::time::Instant::now();
    let (health, message) = health_of(&policy(json!({"current": endless})), "Widget", json!({})).await;
    assert_eq!((health, message.as_str()), (Health::InProgress, "its health policy takes too many steps"));
    assert!(began.elapsed() < std::time::Duration::from_secs(20));

    let long = json!({"data": {"key": "é".repeat(100_000)}});
    let quoting = policy(json!({"current": "url(data.key) == url('/')"}));
    let (_, message) = health_of(&quoting, "Widget", long).await;
    assert!(message.contains("URL parse error") && message.len() < LONGEST_ERROR + 100, "{message}");
    let (_, message) = health_of(&quoting, "Secret", json!({"data": {"key": "aHVudGVyMg=="}})).await;
    assert_eq!(message, "`current` of its health policy cannot be evaluated");
}

#[test]
fn kcl_policy_is_rejected_with_alternative() {
    let field = "extensions.healthPolicy[health.kcl]";
    refused(json!({"health.kcl": "assert res.status.ready"}), &[(field, "extensions.healthPolicy: {cel: {current:")]);
    refused(json!({"health.kcl": "x", "cel": {"current": "true"}}), &[(field, "KCL")]);
}

#[test]
fn policy_problems_are_reported_by_field() {
    refused(json!("true"), &[("extensions.healthPolicy", "must be a map with `cel`")]);
    refused(json!({}), &[("extensions.healthPolicy", "must be a map with `cel`")]);
    refused(json!({"cel": "true"}), &[("extensions.healthPolicy", "must be a map with `cel`")]);
    refused(
        json!({"cel": {"healthy": "true", "current": 1}, "lua": "x"}),
        &[
            ("extensions.healthPolicy.lua", "a health policy has the field cel"),
            ("extensions.healthPolicy.cel.healthy", "current, failed or inProgress"),
            ("extensions.healthPolicy.cel.current", "must be an expression"),
        ],
    );
    refused(json!({"cel": {"failed": "true"}}), &[("extensions.healthPolicy.cel.current", "is required")]);
    refused(
        json!({"cel": {"current": "status.ready ==", "failed": "statsu.ready", "inProgress": "authorizer.path('/')"}}),
        &[
            ("extensions.healthPolicy.cel.inProgress", "undeclared reference to 'authorizer'"),
            ("extensions.healthPolicy.cel.failed", "undeclared reference to 'statsu'"),
            ("extensions.healthPolicy.cel.current", "compilation failed: ERROR: <input>:1:"),
        ],
    );
    let long = format!("true{}", " && true".repeat(20_000));
    refused(json!({"cel": {"current": long}}), &[("extensions.healthPolicy.cel.current", "too long")]);
    let terraform = Resource { kind: ResourceType::Terraform, ..resource(json!({"healthPolicy": {}}), json!({})) };
    assert_eq!(HealthPolicy::of(&terraform).unwrap_err()[0].field, "extensions.healthPolicy");
}

#[tokio::test]
async fn manifests_have_their_policy_in_annotations() {
    let annotations = json!({"stoa.dev/health-current": "status.up", "stoa.dev/health-failed": "status.down"});
    let found = HealthPolicy::of(&resource(json!({}), annotations.clone())).unwrap().unwrap();
    let status = |up: bool, down: bool| json!({"status": {"up": up, "down": down}});
    assert_eq!(health_of(&found, "Widget", status(true, false)).await.0, Health::Current);
    assert_eq!(health_of(&found, "Widget", status(true, true)).await.0, Health::Failed);
    // Who writes extensions means them.
    let both = resource(json!({"healthPolicy": {"cel": {"current": "status.down"}}}), annotations);
    let found = HealthPolicy::of(&both).unwrap().unwrap();
    assert_eq!(health_of(&found, "Widget", status(true, true)).await.0, Health::Current);
    assert!(HealthPolicy::of(&resource(json!({"healthPolicy": null}), json!({"a": "b"}))).unwrap().is_none());
    let problems = HealthPolicy::of(&resource(json!({}), json!({"stoa.dev/health-failed": "true"}))).unwrap_err();
    assert_eq!(problems[0].field, "attributes.metadata.annotations[stoa.dev/health-current]");
}

#[test]
fn workspace_policy_error_names_field() {
    let broken = KindHealth { current: "true".to_owned(), failed: Some("status.".to_owned()), ..KindHealth::default() };
    let error = KindPolicies::new(&[KindHealth { current: "true".to_owned(), ..KindHealth::default() }, broken]);
    let RuntimeError::Invalid { message, field } = error.unwrap_err() else { panic!("it is no other error") };
    assert_eq!(field.as_deref(), Some("spec.healthPolicies[1].failed"));
    assert!(message.contains("compilation failed"), "{message}");
}
