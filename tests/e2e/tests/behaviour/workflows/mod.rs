//! Runs follow each other, as a workflow says, whatever becomes of the server meanwhile.

mod hooks;
mod order;
mod pauses;
mod plans;

use std::sync::atomic::Ordering::SeqCst;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use stoa_e2e::endpoint::{Endpoint, KEY};
use stoa_e2e::fixture::{Organization, condition, config_maps};
use stoa_e2e::{Cluster, Kubectl, Server, Standalone, eventually, unique};

use crate::{
    PATIENCE,
    approvals::{bind, may_use},
};

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
    may_use(&admin, &organization, &ann_name);
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
        refused.contains(&format!("{ann_name} requested this workflow")).then_some(())
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
fn workflow_survives_crashes_and_honors_cancellation() {
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

#[test]
fn steps_are_read_from_a_file_of_the_source() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    organization.stack("dev", &config_maps(&format!("{name}-dev"), 1, "a"));
    let file = "apiVersion: delivery.stoa.dev/v1alpha1
kind: Workflow
spec:
  stack: ${stack}
  steps:
  - name: look
    run: {operation: Preview}
  - name: go
    dependsOn: [look]
    run: {operation: Apply}
";
    let commit = organization.source.commit("workflows/rollout.yaml", file);
    let of_template = |workflow: &str, stack: &str| {
        admin.create(&format!(
            "apiVersion: delivery.stoa.dev/v1alpha1
kind: Workflow
metadata: {{name: {workflow}, namespace: {name}}}
spec:
  version: {commit}
  template: {{project: {name}, path: workflows/rollout.yaml, parameters: {{stack: {stack}}}}}
"
        ))
    };
    of_template("release", "dev");
    // What is pushed meanwhile is another workflow's.
    organization.source.commit("workflows/rollout.yaml", "none");
    of_template("other", "nowhere");
    wait(&admin, &organization, "release", "Complete");
    let ended = workflow(&admin, &organization, "release");
    let template = &ended["status"]["template"];
    assert_eq!((&template["commit"], &template["stack"]), (&json!(commit), &json!("dev")));
    assert_eq!(ended["status"]["progress"], json!({"total": 2, "done": 2, "failed": 0, "skipped": 0}));
    let mut operations: Vec<String> = runs(&admin, &organization, "release")
        .iter()
        .map(|run| {
            format!("{} {}", run["spec"]["operation"].as_str().unwrap(), run["status"]["phase"].as_str().unwrap())
        })
        .collect();
    operations.sort();
    assert_eq!(operations, ["Apply Succeeded", "Preview Succeeded"]);
    assert!(admin.succeeds(&["get", "configmap", "c0", "--namespace", &format!("{name}-dev")]));

    wait(&admin, &organization, "other", "Failed");
    let why = condition(&workflow(&admin, &organization, "other"), "Failed");
    assert_eq!(why["reason"], "InvalidTemplate");
    let message = why["message"].as_str().unwrap();
    assert!(message.contains("workflows/rollout.yaml: line 4: spec.stack: Not found: \"nowhere\""), "{message}");
}

#[test]
fn step_waits_until_what_it_deployed_is_healthy() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-dev", organization.name);
    let first = format!("v1:Service:{namespace}:first");
    let spec = [
        config_maps(&namespace, 0, ""),
        balancer(&namespace, "first", &format!("v1:Namespace:{namespace}")),
        balancer(&namespace, "second", &first),
    ];
    organization.stack("dev", &spec.concat());
    admin.create(&format!(
        "apiVersion: delivery.stoa.dev/v1alpha1
kind: Workflow
metadata: {{name: release, namespace: {}}}
spec:
  steps:
  - name: dev
    run: {{stack: dev, operation: Apply, health: {{healthyFor: 1s, timeout: 2m}}}}
",
        organization.name
    ));
    balance(&admin, &namespace, "first", &healthy());
    // It is no more by the time at which the run ends.
    eventually("the second is applied", PATIENCE, || {
        admin.succeeds(&["get", "service", "second", "--namespace", &namespace]).then_some(())
    });
    balance(&admin, &namespace, "first", &json!([]));
    balance(&admin, &namespace, "second", &healthy());
    let step = || workflow(&admin, &organization, "release")["status"]["steps"][0].clone();
    let message = eventually("the gate holds", PATIENCE, || {
        let step = step();
        let message = step["message"].as_str().unwrap_or_default();
        message.contains("is not healthy").then(|| message.to_owned())
    });
    assert!(message.contains(&first) && message.contains("it is InProgress"), "{message}");
    assert_eq!(runs(&admin, &organization, "release")[0]["status"]["phase"], "Succeeded");
    assert_eq!((&step()["phase"], step()["waveTime"].is_string()), (&json!("Running"), true));
    balance(&admin, &namespace, "first", &healthy());
    wait(&admin, &organization, "release", "Complete");
}

/// Creates the workflow `release` of these fields.
fn release(by: &Kubectl, organization: &Organization, fields: &str) {
    let head = "apiVersion: delivery.stoa.dev/v1alpha1\nkind: Workflow\nmetadata: {name: release, namespace: ";
    by.create(&format!("{head}{}}}\nspec:\n{fields}", organization.name));
}

/// Changes fields of the spec of the workflow `release`; what kubectl said when that failed.
fn set(by: &Kubectl, organization: &Organization, fields: &Value) -> Result<(), String> {
    let patch = format!("--patch={}", json!({ "spec": fields }));
    let args = ["patch", "workflow", "release", "--type=merge", &patch, "--namespace", &organization.name];
    let output = by.command(&args).output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8(output.stderr).unwrap()) }
}

/// A Service that is healthy once [`balance`] says so: nothing makes load balancers here.
fn balancer(namespace: &str, name: &str, after: &str) -> String {
    format!(
        "- id: v1:Service:{namespace}:{name}
  type: Kubernetes
  dependsOn: [\"{after}\"]
  attributes:
    apiVersion: v1
    kind: Service
    metadata: {{name: {name}, namespace: {namespace}}}
    spec: {{type: LoadBalancer, ports: [{{name: http, port: 80, protocol: TCP, targetPort: 80}}]}}
"
    )
}

/// A Spec whose run lasts until the test says that the Service `held` has a balancer.
fn held(namespace: &str) -> String {
    config_maps(namespace, 0, "") + &balancer(namespace, "held", &format!("v1:Namespace:{namespace}"))
}

/// Says which addresses the balancer of a Service has, once it is there.
fn balance(kubectl: &Kubectl, namespace: &str, service: &str, ingress: &Value) {
    let patch = format!("--patch={}", json!({"status": {"loadBalancer": {"ingress": ingress}}}));
    let args = ["patch", "service", service, "--subresource=status", "--type=merge", &patch, "--namespace", namespace];
    let is_there = || kubectl.succeeds(&args).then_some(());
    eventually(&format!("service {service} is there"), PATIENCE, is_there);
}

fn healthy() -> Value {
    json!([{"ip": "192.0.2.1"}])
}

/// The phases of the steps of a workflow, in the order of its spec.
fn phases(workflow: &Value) -> Vec<&str> {
    let steps = workflow["status"]["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    steps.iter().map(|step| step["phase"].as_str().unwrap()).collect()
}

/// Waits until the steps of the workflow `release` have these phases.
fn stepped(kubectl: &Kubectl, organization: &Organization, expected: &[&str]) -> Value {
    kubectl.watch(&organization.name, "workflow/release", PATIENCE, |workflow| {
        (phases(workflow) == expected).then(|| workflow.clone())
    })
}
