//! Workflows that are paused, and that are cancelled.

use super::*;

/// Makes the stack `dev`, whose run lasts until the test says otherwise, and `prod`; and `release`, which deploys one
/// after the other.
fn held_chain(by: &Kubectl, organization: &Organization, fields: &str) {
    let name = &organization.name;
    organization.stack("dev", &held(&format!("{name}-dev")));
    organization.stack("prod", &config_maps(&format!("{name}-prod"), 1, "a"));
    let steps = "  steps:
  - {name: dev, run: {stack: dev, operation: Apply}}
  - {name: prod, dependsOn: [dev], run: {stack: prod, operation: Apply}}
";
    release(by, organization, &format!("{fields}{steps}"));
}

/// Has another workflow begin and end, by which time whatever `release` would begin has begun.
fn meanwhile(kubectl: &Kubectl, organization: &Organization) {
    let (name, other) = (&organization.name, unique("other"));
    organization.stack("other", &config_maps(&format!("{name}-other"), 1, &other));
    kubectl.create(&format!(
        "apiVersion: delivery.stoa.dev/v1alpha1
kind: Workflow
metadata: {{name: {other}, namespace: {name}}}
spec: {{steps: [{{name: other, run: {{stack: other, operation: Apply}}}}]}}
"
    ));
    wait(kubectl, organization, &other, "Complete");
}

#[test]
fn paused_workflow_starts_nothing_until_resumed() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    let bob_name = unique("bob");
    let bob = admin.impersonate(&bob_name);
    bind(&admin, &organization, &bob_name, "stoa:developer");
    held_chain(&admin, &organization, "  paused: true\n");
    wait(&admin, &organization, "release", "Paused");
    meanwhile(&admin, &organization);
    let paused = workflow(&admin, &organization, "release");
    assert_eq!((&paused["status"]["phase"], &paused["status"]["startTime"]), (&json!("Paused"), &Value::Null));
    assert!(runs(&admin, &organization, "release").is_empty());

    set(&admin, &organization, &json!({"paused": false})).unwrap();
    balance(&admin, &format!("{name}-dev"), "held", &json!([]));
    set(&admin, &organization, &json!({"paused": true})).unwrap();
    wait(&admin, &organization, "release", "Paused");
    let paused = workflow(&admin, &organization, "release");
    assert_eq!((&paused["status"]["phase"], phases(&paused)), (&json!("Running"), vec!["Running", "Pending"]));
    balance(&admin, &format!("{name}-dev"), "held", &healthy());
    let paused = stepped(&admin, &organization, &["Succeeded", "Pending"]);
    assert_eq!(paused["status"]["phase"], "Paused");
    meanwhile(&admin, &organization);
    let paused = workflow(&admin, &organization, "release");
    assert_eq!((&paused["status"]["phase"], phases(&paused)), (&json!("Paused"), vec!["Succeeded", "Pending"]));
    assert_eq!(condition(&paused, "Paused")["message"], "nothing begins until paused is false");
    assert_eq!(runs(&admin, &organization, "release").len(), 1);
    assert!(!admin.succeeds(&["get", "namespace", &format!("{name}-prod")]), "prod was deployed meanwhile");

    // Whoever resumes it needs no more than that: what begins is by who created it.
    eventually("he may resume it", PATIENCE, || set(&bob, &organization, &json!({"paused": false})).ok());
    wait(&admin, &organization, "release", "Complete");
    let ended = workflow(&admin, &organization, "release");
    assert_eq!((&ended["status"]["phase"], condition(&ended, "Paused")), (&json!("Succeeded"), Value::Null));
    let made = runs(&admin, &organization, "release");
    assert_eq!(made.len(), 2);
    for run in &made {
        assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
        assert_eq!(run["status"]["requester"], ended["status"]["requester"]);
        assert_ne!(run["status"]["requester"]["username"], bob_name.as_str());
    }
    assert!(admin.succeeds(&["get", "configmap", "c0", "--namespace", &format!("{name}-prod")]));
}

/// Cancels `release` while the run of dev is under way: that run ends, and nothing begins, now or later.
fn cancel_under_way(is_paused: bool) {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    held_chain(&admin, &organization, "");
    balance(&admin, &format!("{name}-dev"), "held", &json!([]));
    if is_paused {
        set(&admin, &organization, &json!({"paused": true})).unwrap();
        wait(&admin, &organization, "release", "Paused");
    }
    let ended = canceled(&admin, &organization);
    let made = runs(&admin, &organization, "release");
    let [run] = &made[..] else { panic!("{made:#?}") };
    assert_eq!((&run["spec"]["cancel"], &run["status"]["phase"]), (&json!(true), &json!("Canceled")));

    // That is the end of it, and others may deploy.
    let refused = set(&admin, &organization, &json!({"cancel": false})).unwrap_err();
    assert!(refused.contains("may not become false again"), "{refused}");
    set(&admin, &organization, &json!({"paused": false})).unwrap();
    balance(&admin, &format!("{name}-dev"), "held", &healthy());
    organization.succeed("dev", "Apply", "");
    assert_eq!(workflow(&admin, &organization, "release")["status"], ended["status"]);
    assert_eq!(runs(&admin, &organization, "release").len(), 1);
    assert!(!admin.succeeds(&["get", "namespace", &format!("{name}-prod")]), "prod was deployed");
}

/// Cancels `release`, whose two steps have not ended, and waits until it has ended by that.
fn canceled(by: &Kubectl, organization: &Organization) -> Value {
    set(by, organization, &json!({"cancel": true})).unwrap();
    wait(by, organization, "release", "Failed");
    let ended = workflow(by, organization, "release");
    assert_eq!((&ended["status"]["phase"], phases(&ended)), (&json!("Canceled"), vec!["Canceled", "Canceled"]));
    let why = condition(&ended, "Failed");
    assert_eq!((&why["reason"], &why["message"]), (&json!("Canceled"), &json!("the workflow was cancelled")));
    ended
}

#[test]
fn cancelled_workflow_ends_running_steps() {
    cancel_under_way(false);
}

#[test]
fn cancelled_paused_workflow_ends_running_steps() {
    cancel_under_way(true);
}

#[test]
fn workflow_cancelled_before_start_does_nothing() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let organization = Organization::create(&cluster);
    held_chain(&admin, &organization, "  paused: true\n");
    wait(&admin, &organization, "release", "Paused");
    canceled(&admin, &organization);
    assert!(runs(&admin, &organization, "release").is_empty());
    assert!(!admin.succeeds(&["get", "namespace", &format!("{}-dev", organization.name)]), "dev was deployed");
}
