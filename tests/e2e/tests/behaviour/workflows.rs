//! Runs follow each other, as a workflow says, whatever becomes of the server meanwhile.

use std::{process::Command, sync::atomic::Ordering::SeqCst};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use stoa_e2e::endpoint::{Endpoint, KEY};
use stoa_e2e::fixture::{Organization, condition, config_maps};
use stoa_e2e::{Cluster, Kubectl, Server, Standalone, eventually, run, unique};

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

/// Makes the Secret that hooks are signed with.
fn key(kubectl: &Kubectl, organization: &Organization) {
    kubectl.apply(&format!(
        "apiVersion: v1
kind: Secret
metadata: {{name: hooks, namespace: {}}}
stringData: {{key: {KEY}}}
",
        organization.name
    ));
}

/// A run of `dev` with a hook before and one after it.
fn hooked(organization: &Organization, endpoint: &Endpoint) -> String {
    let hook = |name: &str| {
        format!(
            "{{name: {name}, url: \"http://127.0.0.1:{}/{name}\", secretRef: {{name: hooks, key: key}}, \
             retry: {{minBackoff: 100ms, maxBackoff: 1s}}}}",
            endpoint.port
        )
    };
    format!(
        "apiVersion: delivery.stoa.dev/v1alpha1
kind: Workflow
metadata: {{name: release, namespace: {}}}
spec:
  version: main
  steps:
  - name: dev
    run: {{stack: dev, operation: Apply}}
    hooks:
      pre: [{}]
      post: [{}]
",
        organization.name,
        hook("ask"),
        hook("verify")
    )
}

/// What came of one hook, with what was answered.
fn came(endpoint: &Endpoint, hook: &str) -> Vec<(u16, Value)> {
    let came = endpoint.came.lock().unwrap();
    came.iter().filter(|(_, event)| event["data"]["hook"] == hook).cloned().collect()
}

#[test]
fn hooks_decide_about_a_step_for_who_may_have_them_called() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    let commit = organization.stack("dev", &config_maps(&format!("{name}-dev"), 1, "a"));
    key(&admin, &organization);
    let endpoint = Endpoint::start(200);
    let ann_name = unique("ann");
    let ann = admin.impersonate(&ann_name);
    bind(&admin, &organization, &ann_name, "stoa:developer");
    may_use(&admin, &organization, &ann_name);
    let refused = eventually("she may use the workspace", PATIENCE, || {
        let refused = ann.try_create(&hooked(&organization, &endpoint)).unwrap_err();
        refused.contains("cannot use resource \"hookhosts\"").then_some(refused)
    });
    assert!(refused.contains("Forbidden"), "{refused}");
    let may = |port: u16| {
        admin.apply(&format!(
            "apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: hooks, namespace: {name}}}
rules:
- {{apiGroups: [platform.stoa.dev], resources: [hookhosts], verbs: [use], resourceNames: [\"127.0.0.1:{port}\"]}}
- {{apiGroups: [\"\"], resources: [secrets], verbs: [use], resourceNames: [hooks]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: hooks, namespace: {name}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: hooks}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: {ann_name}}}]
"
        ));
    };
    may(endpoint.port);
    eventually("she may have hooks called", PATIENCE, || ann.try_create(&hooked(&organization, &endpoint)).ok());
    wait(&admin, &organization, "release", "Complete");
    let (asked, verified) = (came(&endpoint, "ask"), came(&endpoint, "verify"));
    let [(200, asked)] = &asked[..] else { panic!("{asked:#?}") };
    let [(200, verified)] = &verified[..] else { panic!("{verified:#?}") };
    let run = runs(&admin, &organization, "release").remove(0);
    assert_eq!(asked["type"], "dev.stoa.workflow.hook");
    let data = &asked["data"];
    assert_eq!(
        (&data["phase"], &data["requester"], &data["commit"]),
        (&json!("Pre"), &json!(ann_name), &json!(commit))
    );
    assert_eq!(data["runs"], json!([{"name": run["metadata"]["name"], "workspace": name}]));
    assert_eq!((&verified["data"]["phase"], &verified["data"]["outcome"]), (&json!("Post"), &json!("Succeeded")));
    assert_eq!(verified["data"]["runs"][0]["phase"], "Succeeded");
    let ended = workflow(&admin, &organization, "release");
    let hooks = ended["status"]["steps"][0]["hooks"].as_array().unwrap();
    let told: Vec<_> =
        hooks.iter().map(|hook| (hook["name"].as_str().unwrap(), &hook["phase"], &hook["attempts"])).collect();
    assert_eq!(told, [("ask", &json!("Succeeded"), &json!(1)), ("verify", &json!("Succeeded"), &json!(1))]);

    // What is refused is not begun.
    endpoint.code.store(403, SeqCst);
    admin.run(&["delete", "workflow", "release", "--namespace", name]);
    ann.try_create(&hooked(&organization, &endpoint)).unwrap();
    wait(&admin, &organization, "release", "Failed");
    let ended = workflow(&admin, &organization, "release");
    assert_eq!(condition(&ended, "Failed")["message"], "step dev: hook ask failed: it answered 403 Forbidden");
    assert!(runs(&admin, &organization, "release").is_empty());
}

#[test]
fn hook_is_called_again_after_a_crash_and_has_passed_once() {
    let mut server = Standalone::start();
    let admin = server.kubectl();
    let organization = Organization::create(&server);
    organization.stack("dev", &config_maps(&format!("{}-dev", organization.name), 1, "a"));
    key(&admin, &organization);
    let endpoint = Endpoint::start(503);
    admin.create(&hooked(&organization, &endpoint));
    eventually("the hook is called", PATIENCE, || (!came(&endpoint, "ask").is_empty()).then_some(()));
    server.kill();
    endpoint.code.store(200, SeqCst);
    let before = came(&endpoint, "ask").len();
    server.restart();
    eventually("the run was started", PATIENCE, || (!runs(&admin, &organization, "release").is_empty()).then_some(()));
    server.kill();
    server.restart();
    wait(&admin, &organization, "release", "Complete");
    let asked = came(&endpoint, "ask");
    assert_eq!(asked.len(), before + 1, "that it passed is remembered");
    assert!(asked.iter().all(|(_, event)| event["id"] == asked[0].1["id"]), "{asked:#?}");
    assert_eq!(runs(&admin, &organization, "release").len(), 1);
    assert!(!came(&endpoint, "verify").is_empty());
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

/// Makes another workspace of the organization: its name, which ends so.
fn workspace(kubectl: &Kubectl, organization: &Organization, suffix: &str, target: &str) -> String {
    let (backend, name) = (&organization.name, format!("{}-{suffix}", organization.name));
    kubectl.apply(&format!(
        "apiVersion: platform.stoa.dev/v1alpha1
kind: Workspace
metadata: {{name: {name}}}
spec:
  backend: {{name: {backend}}}
{target}"
    ));
    name
}

/// Makes a stack that is for these workspaces.
fn stack_for(kubectl: &Kubectl, organization: &Organization, stack: &str, workspaces: &[String], spec: &str) {
    let name = &organization.name;
    organization.source.commit(&format!("apps/{stack}/spec.yaml"), spec);
    kubectl.apply(&format!(
        "apiVersion: config.stoa.dev/v1alpha1
kind: Stack
metadata: {{name: {stack}, namespace: {name}}}
spec: {{project: {name}, workspaces: [{}]}}
",
        workspaces.join(", ")
    ));
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

/// Decides about the plan of a run that waits for it.
fn decide(by: &Kubectl, organization: &Organization, run: &str, decision: &str) {
    let digest = organization.run(run)["status"]["plan"]["digest"].clone();
    let approval = json!({"planDigest": digest, "decision": decision, "message": "as tested"});
    let patch = format!("--patch={}", json!({ "status": { "approval": approval } }));
    let args = ["patch", "run", run, "--subresource=approval", "--type=merge", &patch];
    by.run(&[&args[..], &["--namespace", &organization.name]].concat());
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

/// Waits until the runs of the first step of `release` are in these phases.
fn ran(kubectl: &Kubectl, organization: &Organization, expected: &[(&str, &str)]) -> Value {
    kubectl.watch(&organization.name, "workflow/release", PATIENCE, |workflow| {
        let runs = workflow["status"]["steps"][0]["runs"].as_array().map(Vec::as_slice).unwrap_or_default();
        let said = |run: &Value, field: &str| run[field].as_str().unwrap_or_default().to_owned();
        let mut runs: Vec<_> = runs.iter().map(|run| (said(run, "workspace"), said(run, "phase"))).collect();
        runs.sort();
        let is_so = runs.len() == expected.len()
            && runs.iter().zip(expected).all(|((workspace, phase), (suffix, wanted))| {
                workspace == &format!("{}-{suffix}", organization.name) && phase == wanted
            });
        is_so.then(|| workflow.clone())
    })
}

/// When something was, in seconds.
fn seconds(time: &Value) -> i64 {
    serde_json::from_value::<Time>(time.clone()).unwrap().0.as_second()
}

#[test]
fn branches_begin_after_what_they_follow_and_one_that_fails_stops_what_depends_on_it_alone() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    let of = |suffix: &str| format!("{name}-{suffix}");
    let target = cluster.target(&organization.deploy);
    organization.stack("dev", &held(&of("dev")));
    for (stack, spec) in [("eu", held(&of("eu"))), ("us", config_maps(&of("us"), 1, "a"))] {
        stack_for(&admin, &organization, stack, &[workspace(&admin, &organization, stack, &target)], &spec);
    }
    for stack in ["more", "both", "undo"] {
        organization.stack(stack, &config_maps(&of(stack), 1, "a"));
    }
    release(
        &admin,
        &organization,
        "  version: main
  steps:
  - {name: both, dependsOn: [eu, us], run: {stack: both, operation: Apply}}
  - {name: dev, run: {stack: dev, operation: Apply}}
  - {name: eu, dependsOn: [dev], run: {stack: eu, operation: Apply}}
  - {name: us, dependsOn: [dev], run: {stack: us, operation: Apply, requireApproval: true}}
  - {name: more, dependsOn: [eu], run: {stack: more, operation: Apply}}
  - {name: undo, dependsOn: [us], when: Failure, run: {stack: undo, operation: Apply}}
",
    );
    let made = |expected: &[&str]| {
        let made = runs(&admin, &organization, "release");
        let mut stacks: Vec<&str> = made.iter().map(|run| run["spec"]["stack"].as_str().unwrap()).collect();
        stacks.sort_unstable();
        assert_eq!(stacks, expected);
        made
    };
    // What dev is made of is there, but it is not healthy.
    balance(&admin, &of("dev"), "held", &json!([]));
    stepped(&admin, &organization, &["Pending", "Running", "Pending", "Pending", "Pending", "Pending"]);
    made(&["dev"]);

    balance(&admin, &of("dev"), "held", &healthy());
    let forked =
        stepped(&admin, &organization, &["Pending", "Succeeded", "Running", "AwaitingApproval", "Pending", "Pending"]);
    let made_then = made(&["dev", "eu", "us"]);
    let run_of = |stack: &str| made_then.iter().find(|run| run["spec"]["stack"] == stack).unwrap();
    for stack in ["eu", "us"] {
        assert_eq!(run_of(stack)["spec"]["workspace"], of(stack));
        let created = seconds(&run_of(stack)["metadata"]["creationTimestamp"]);
        assert!(created >= seconds(&run_of("dev")["status"]["completionTime"]), "{stack} began first: {forked:#}");
    }

    decide(&admin, &organization, run_of("us")["metadata"]["name"].as_str().unwrap(), "Rejected");
    stepped(&admin, &organization, &["Skipped", "Succeeded", "Running", "Failed", "Pending", "Succeeded"]);
    made(&["dev", "eu", "undo", "us"]);

    balance(&admin, &of("eu"), "held", &healthy());
    wait(&admin, &organization, "release", "Failed");
    let ended = workflow(&admin, &organization, "release");
    assert_eq!(phases(&ended), ["Skipped", "Succeeded", "Succeeded", "Failed", "Succeeded", "Succeeded"]);
    assert_eq!(ended["status"]["steps"][0]["message"], "step us did not succeed");
    assert_eq!(ended["status"]["progress"], json!({"total": 6, "done": 4, "failed": 1, "skipped": 1}));
    let why = condition(&ended, "Failed");
    let message = why["message"].as_str().unwrap();
    assert_eq!((&ended["status"]["phase"], &why["reason"]), (&json!("Failed"), &json!("StepFailed")));
    assert!(message.starts_with("step us: run ") && message.contains("as tested"), "{message}");
    made(&["dev", "eu", "more", "undo", "us"]);
    let is_there = |stack: &str| admin.succeeds(&["get", "configmap", "c0", "--namespace", &of(stack)]);
    assert_eq!(["more", "undo", "us", "both"].map(is_there), [true, true, false, false]);
}

#[test]
fn wave_begins_after_the_one_before_and_none_after_one_that_failed() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let workspaces = ["canary", "eu", "us", "zone"].map(|suffix| {
        // One cluster has each object once; a repository has a folder for each of them.
        let deploy = organization.deploy.display();
        let target = format!("  gitops: {{repository: \"file://{deploy}\", branch: main, directory: {suffix}}}\n");
        workspace(&admin, &organization, suffix, &target)
    });
    let [canary, eu, us, zone] = &workspaces;
    stack_for(&admin, &organization, "web", &workspaces, &config_maps("web", 1, "a"));
    organization.stack("next", &config_maps(&format!("{}-next", organization.name), 1, "a"));
    release(
        &admin,
        &organization,
        &format!(
            "  steps:
  - name: web
    run:
      stack: web
      operation: Apply
      requireApproval: true
      waves:
      - {{workspaces: [{canary}], pauseAfter: 2s}}
      - {{workspaces: [{eu}, {us}]}}
      - {{workspaces: [{zone}]}}
  - {{name: next, dependsOn: [web], run: {{stack: next, operation: Apply}}}}
"
        ),
    );
    let made = |expected: &[&String]| {
        let made = runs(&admin, &organization, "release");
        let mut places: Vec<&str> = made.iter().map(|run| run["spec"]["workspace"].as_str().unwrap()).collect();
        places.sort_unstable();
        assert_eq!(places, expected);
        made
    };
    let decide_in = |workspace: &str, decision: &str| {
        let made = runs(&admin, &organization, "release");
        let run = made.iter().find(|run| run["spec"]["workspace"] == workspace).unwrap();
        decide(&admin, &organization, run["metadata"]["name"].as_str().unwrap(), decision);
    };
    let waits = ran(&admin, &organization, &[("canary", "AwaitingApproval")]);
    assert_eq!(waits["status"]["steps"][0]["wave"], 1);
    made(&[canary]);

    decide_in(canary, "Approved");
    let second = [("canary", "Succeeded"), ("eu", "AwaitingApproval"), ("us", "AwaitingApproval")];
    let waits = ran(&admin, &organization, &second);
    assert_eq!(waits["status"]["steps"][0]["wave"], 2);
    let made_then = made(&[canary, eu, us]);
    let of = |workspace: &str| made_then.iter().find(|run| run["spec"]["workspace"] == workspace).unwrap();
    let ended = seconds(&of(canary)["status"]["completionTime"]);
    for workspace in [eu, us] {
        let after = seconds(&of(workspace)["metadata"]["creationTimestamp"]) - ended;
        assert!(after >= 2, "it began {after} s after the wave before, which is to be 2 s");
    }

    // One of two is not the wave.
    decide_in(eu, "Approved");
    let one = [("canary", "Succeeded"), ("eu", "Succeeded"), ("us", "AwaitingApproval")];
    let waits = ran(&admin, &organization, &one);
    assert_eq!((&waits["status"]["steps"][0]["wave"], phases(&waits)[1]), (&json!(2), "Pending"));
    made(&[canary, eu, us]);

    decide_in(us, "Rejected");
    wait(&admin, &organization, "release", "Failed");
    let ended = workflow(&admin, &organization, "release");
    assert_eq!(phases(&ended), ["Failed", "Skipped"]);
    assert_eq!(ended["status"]["steps"][0]["counts"], json!({"total": 4, "started": 3, "succeeded": 2, "failed": 1}));
    made(&[canary, eu, us]);
    let deploy = organization.deploy.to_str().unwrap();
    let folders = run(Command::new("git").args(["--git-dir", deploy, "ls-tree", "--name-only", "main"]));
    assert_eq!(folders.lines().collect::<Vec<_>>(), ["canary", "eu"]);
}

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
fn paused_workflow_begins_nothing_though_what_is_under_way_ends_until_somebody_resumes_it() {
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
fn cancelled_workflow_ends_what_is_under_way_and_begins_nothing() {
    cancel_under_way(false);
}

#[test]
fn paused_workflow_that_is_cancelled_ends_what_is_under_way_and_begins_nothing() {
    cancel_under_way(true);
}

#[test]
fn workflow_that_is_cancelled_before_it_began_has_done_nothing() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let organization = Organization::create(&cluster);
    held_chain(&admin, &organization, "  paused: true\n");
    wait(&admin, &organization, "release", "Paused");
    canceled(&admin, &organization);
    assert!(runs(&admin, &organization, "release").is_empty());
    assert!(!admin.succeeds(&["get", "namespace", &format!("{}-dev", organization.name)]), "dev was deployed");
}
