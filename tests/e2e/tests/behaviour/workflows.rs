//! Runs follow each other, as a workflow says, whatever becomes of the server meanwhile.

use serde_json::{Value, json};
use stoa_e2e::fixture::{Organization, condition, config_maps};
use stoa_e2e::{Cluster, Kubectl, Server, Standalone, eventually, unique};

use crate::{PATIENCE, approvals::bind};

/// Makes the stacks `dev` and `prod`; the commit that both are at.
fn stacks(organization: &Organization, value: &str) -> String {
    organization.stack("dev", &config_maps(&format!("{}-dev", organization.name), 1, value));
    organization.stack("prod", &config_maps(&format!("{}-prod", organization.name), 1, value))
}

/// dev, then an approval, then prod.
fn chain(organization: &Organization, name: &str) -> String {
    format!(
        "apiVersion: delivery.stoa.dev/v1alpha1
kind: Workflow
metadata: {{name: {name}, namespace: {}}}
spec:
  version: main
  steps:
  - name: dev
    run: {{stack: dev, operation: Apply}}
  - name: ok
    dependsOn: [dev]
    approval: {{message: \"is dev all right?\"}}
  - name: prod
    dependsOn: [ok]
    run: {{stack: prod, operation: Apply}}
",
        organization.name
    )
}

/// Patches the approvals of a workflow; what kubectl said when that failed.
fn approve(by: &Kubectl, organization: &Organization, name: &str) -> Result<(), String> {
    let approvals = json!({"status": {"approvals": [{"step": "ok", "decision": "Approved", "message": "it is"}]}});
    let patch = format!("--patch={approvals}");
    let args = ["patch", "workflow", name, "--subresource=approval", "--type=merge", &patch];
    let output = by.command(&[&args[..], &["--namespace", &organization.name]].concat()).output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8(output.stderr).unwrap()) }
}

fn wait(kubectl: &Kubectl, organization: &Organization, name: &str, condition: &str) {
    let (what, until) = (format!("workflow/{name}"), format!("--for=condition={condition}"));
    kubectl.run(&["wait", &what, &until, "--timeout=120s", "--namespace", &organization.name]);
}

fn workflow(kubectl: &Kubectl, organization: &Organization, name: &str) -> Value {
    kubectl.get(&["workflow", name, "--namespace", &organization.name])
}

/// The runs of a workflow.
fn runs(kubectl: &Kubectl, organization: &Organization, name: &str) -> Vec<Value> {
    let selector = format!("--selector=stoa.dev/workflow={name}");
    let list = kubectl.get(&["runs", "--namespace", &organization.name, &selector]);
    list["items"].as_array().unwrap().clone()
}

#[test]
fn prod_follows_dev_once_somebody_else_approves() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    let commit = stacks(&organization, "a");
    let (ann_name, bob_name) = (unique("ann"), unique("bob"));
    let (ann, bob) = (admin.impersonate(&ann_name), admin.impersonate(&bob_name));
    bind(&admin, &organization, &ann_name, "stoa:developer");
    bind(&admin, &organization, &bob_name, "stoa:approver");
    let refused = eventually("she may create workflows", PATIENCE, || {
        let refused = ann.try_create(&chain(&organization, "release")).unwrap_err();
        refused.contains("cannot use resource \"workspaces\"").then_some(refused)
    });
    assert!(refused.contains("Forbidden"), "{refused}");
    admin.apply(&format!(
        "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: {ann_name}}}
rules: [{{apiGroups: [platform.stoa.dev], resources: [workspaces, backends], verbs: [use], resourceNames: [{name}]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: {ann_name}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {ann_name}}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: {ann_name}}}]
"
    ));
    eventually("she may use the workspace", PATIENCE, || ann.try_create(&chain(&organization, "release")).ok());
    wait(&admin, &organization, "release", "AwaitingApproval");
    assert!(admin.succeeds(&["get", "namespace", &format!("{name}-dev")]), "dev is deployed");
    assert!(!admin.succeeds(&["get", "namespace", &format!("{name}-prod")]), "prod was deployed without approval");
    let table = bob.run(&["get", "wf", "release", "--namespace", name, "--output=wide"]);
    for shown in ["AwaitingApproval", "1/3", "ok", &ann_name, "is dev all right?"] {
        assert!(table.contains(shown), "{shown} is not in {table}");
    }

    let refused = approve(&ann, &organization, "release").unwrap_err();
    assert!(refused.contains("cannot") && refused.contains("workflows/approval"), "{refused}");
    bind(&admin, &organization, &ann_name, "stoa:approver");
    eventually("it is refused as her own", PATIENCE, || {
        let refused = approve(&ann, &organization, "release").unwrap_err();
        refused.contains(&format!("{ann_name} asked for this workflow")).then_some(())
    });
    // What is pushed now is not what was looked at.
    stacks(&organization, "b");
    approve(&bob, &organization, "release").unwrap();
    wait(&admin, &organization, "release", "Complete");
    let made = runs(&admin, &organization, "release");
    assert_eq!(made.len(), 2);
    for run in &made {
        assert_eq!(run["status"]["source"]["commit"], commit.as_str());
        assert_eq!(run["status"]["requester"]["username"], ann_name.as_str());
        assert_eq!(run["metadata"]["ownerReferences"][0]["name"], "release");
    }
    let ended = workflow(&admin, &organization, "release");
    assert_eq!(ended["status"]["steps"][1]["message"], format!("{bob_name} approved step ok: it is"));
    let value = admin.get(&["configmap", "c0", "--namespace", &format!("{name}-prod")])["data"]["value"].clone();
    assert_eq!(value, "a");

    // Its runs go with it.
    admin.run(&["delete", "workflow", "release", "--namespace", name]);
    eventually("the runs go", PATIENCE, || runs(&admin, &organization, "release").is_empty().then_some(()));
}

#[test]
fn workflow_goes_on_after_crashes_and_ends_when_it_is_cancelled() {
    let mut server = Standalone::start();
    let admin = server.kubectl();
    let organization = Organization::create(&server);
    stacks(&organization, "a");
    admin.create(&chain(&organization, "release"));
    server.kill();
    server.restart();
    wait(&admin, &organization, "release", "AwaitingApproval");
    assert_eq!(runs(&admin, &organization, "release").len(), 1);
    approve(&admin, &organization, "release").unwrap();
    server.kill();
    server.restart();
    wait(&admin, &organization, "release", "Complete");
    let made = runs(&admin, &organization, "release");
    assert_eq!(made.len(), 2);
    assert!(made.iter().all(|run| run["status"]["phase"] == "Succeeded"), "{made:#?}");

    admin.create(&chain(&organization, "other"));
    wait(&admin, &organization, "other", "AwaitingApproval");
    let cancel = "--patch={\"spec\":{\"cancel\":true}}";
    admin.run(&["patch", "workflow", "other", "--type=merge", cancel, "--namespace", &organization.name]);
    wait(&admin, &organization, "other", "Failed");
    let ended = workflow(&admin, &organization, "other");
    assert_eq!(
        (&ended["status"]["phase"], &condition(&ended, "Failed")["reason"]),
        (&json!("Canceled"), &json!("Canceled"))
    );
    assert_eq!(runs(&admin, &organization, "other").len(), 1);
}
