//! A workflow carries out the plans that it showed.

use super::*;

/// A Preview, and an Apply of its plan that waits until somebody approves it.
fn previewed(organization: &Organization, name: &str) -> String {
    format!(
        "apiVersion: delivery.stoa.dev/v1alpha1
kind: Workflow
metadata: {{name: {name}, namespace: {}}}
spec:
  stack: dev
  steps:
  - name: plan
    run: {{operation: Preview}}
  - name: go
    dependsOn: [plan]
    run: {{operation: Apply, planOf: plan, requireApproval: true}}
",
        organization.name
    )
}

/// The run of an operation, once it waits for approval.
fn waiting(kubectl: &Kubectl, organization: &Organization, name: &str) -> Value {
    eventually("the Apply waits for approval", PATIENCE, || {
        let found = runs(kubectl, organization, name).into_iter().find(|run| run["spec"]["operation"] == "Apply")?;
        (condition(&found, "Waiting")["reason"] == "AwaitingApproval").then_some(found)
    })
}

fn approve_plan(kubectl: &Kubectl, organization: &Organization, run: &Value) {
    let digest = &run["status"]["plan"]["digest"];
    let approval = json!({"status": {"approval": {"planDigest": digest, "decision": "Approved"}}});
    let run = format!("run/{}", run["metadata"]["name"].as_str().unwrap());
    let patch = format!("--patch={approval}");
    kubectl.run(&["patch", &run, "--subresource=approval", "--type=merge", &patch, "--namespace", &organization.name]);
}

#[test]
fn workflow_applies_the_plan_that_was_previewed_and_approved() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    let commit = stacks(&organization, "a");
    admin.create(&previewed(&organization, "release"));
    let run = waiting(&admin, &organization, "release");
    let preview = run["spec"]["plan"].as_str().unwrap().to_owned();
    let shown = admin.get(&["run", &preview, "--namespace", name]);
    assert_eq!(run["status"]["plan"]["digest"], shown["status"]["plan"]["digest"], "that plan is what is approved");
    let row = admin.run(&["get", "rn", &preview, "--namespace", name, "--no-headers"]);
    assert!(row.contains("+2 ~0 -0") && row.contains("Preview"), "{row}");
    let described = admin.run(&["describe", "run", &preview, "--namespace", name]);
    let status = described.split("\nStatus:\n").nth(1).unwrap();
    assert!(status.starts_with("  Changes:\n    + v1:"), "{described}");

    // What is pushed now is in no plan.
    stacks(&organization, "b");
    approve_plan(&admin, &organization, &run);
    wait(&admin, &organization, "release", "Complete");
    let release = admin.get(&["release", &format!("dev.{name}.1"), "--namespace", name]);
    assert_eq!(release["spec"]["commit"], commit.as_str());

    // A plan that somebody overtook is not carried out.
    admin.create(&previewed(&organization, "late"));
    let run = waiting(&admin, &organization, "late");
    let by_hand = ["patch", "configmap/c0", "--type=merge", "--patch={\"data\":{\"value\":\"other\"}}"];
    admin.run(&[&by_hand[..], &["--namespace", &format!("{name}-dev")]].concat());
    approve_plan(&admin, &organization, &run);
    wait(&admin, &organization, "late", "Failed");
    let ended = workflow(&admin, &organization, "late");
    let message = ended["status"]["steps"][1]["message"].as_str().unwrap();
    assert!(message.contains("no longer holds"), "{message}");
    // The source has a later commit, which is found out by itself.
    let stack = eventually("the stack is behind", PATIENCE, || {
        let stack = admin.get(&["stack", "dev", "--namespace", name]);
        condition(&stack, "Ready")["message"].as_str()?.contains("it is behind").then_some(stack)
    });
    let (ready, last) = (condition(&stack, "Ready"), condition(&stack, "LastRun"));
    assert_eq!((&ready["status"], &last["status"]), (&json!("True"), &json!("False")), "{stack:#}");
    assert!(ready["message"].as_str().unwrap().starts_with("release 1 is deployed"), "{ready}");
    assert_eq!(last["reason"], "PlanStale");
}
