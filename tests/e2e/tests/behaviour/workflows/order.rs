//! Which runs begin after which.

use stoa_e2e::{fixture, git};

use super::*;

/// Makes another workspace of the organization: its name, which ends so.
fn workspace(kubectl: &Kubectl, organization: &Organization, suffix: &str, target: &str) -> String {
    let (backend, name) = (&organization.name, format!("{}-{suffix}", organization.name));
    kubectl.apply(&fixture::workspace(&name, backend, target));
    name
}

/// Makes workspaces whose names end so, each of a folder of one repository: a cluster would have each object once.
fn folders<const N: usize>(kubectl: &Kubectl, organization: &Organization, suffixes: [&str; N]) -> [String; N] {
    suffixes.map(|suffix| {
        let deploy = organization.deploy.display();
        let target = format!(
            "  gitops: {{repository: \"file://{deploy}\", branch: main, createBranch: true, directory: {suffix}}}\n"
        );
        workspace(kubectl, organization, suffix, &target)
    })
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

/// Decides about the plan of a run that waits for it.
fn decide(by: &Kubectl, organization: &Organization, run: &str, decision: &str) {
    let digest = organization.run(run)["status"]["plan"]["digest"].clone();
    let approval = json!({"planDigest": digest, "decision": decision, "message": "as tested"});
    let patch = format!("--patch={}", json!({ "status": { "approval": approval } }));
    let args = ["patch", "run", run, "--subresource=approval", "--type=merge", &patch];
    by.run(&[&args[..], &["--namespace", &organization.name]].concat());
}

/// Decides about the plan of the run of `release` that is in this workspace.
fn decide_in(by: &Kubectl, organization: &Organization, workspace: &str, decision: &str) {
    let made = runs(by, organization, "release");
    let run = made.iter().find(|run| run["spec"]["workspace"] == workspace).unwrap();
    decide(by, organization, run["metadata"]["name"].as_str().unwrap(), decision);
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
fn failed_branch_stops_only_its_dependents() {
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
fn failed_wave_prevents_next_wave() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let workspaces = folders(&admin, &organization, ["canary", "eu", "us", "zone"]);
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
    let waits = ran(&admin, &organization, &[("canary", "AwaitingApproval")]);
    assert_eq!(waits["status"]["steps"][0]["wave"], 1);
    made(&[canary]);

    decide_in(&admin, &organization, canary, "Approved");
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
    decide_in(&admin, &organization, eu, "Approved");
    let one = [("canary", "Succeeded"), ("eu", "Succeeded"), ("us", "AwaitingApproval")];
    let waits = ran(&admin, &organization, &one);
    assert_eq!((&waits["status"]["steps"][0]["wave"], phases(&waits)[1]), (&json!(2), "Pending"));
    made(&[canary, eu, us]);

    decide_in(&admin, &organization, us, "Rejected");
    wait(&admin, &organization, "release", "Failed");
    let ended = workflow(&admin, &organization, "release");
    assert_eq!(phases(&ended), ["Failed", "Skipped"]);
    assert_eq!(ended["status"]["steps"][0]["counts"], json!({"total": 4, "started": 3, "succeeded": 2, "failed": 1}));
    made(&[canary, eu, us]);
    let folders = git(&organization.deploy, &["ls-tree", "--name-only", "main"]);
    assert_eq!(folders.lines().collect::<Vec<_>>(), ["canary", "eu"]);
}

#[test]
fn label_wave_selects_workspaces_and_tolerates_failures() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let workspaces = folders(&admin, &organization, ["canary", "eu", "us", "zone"]);
    let [canary, eu, us, zone] = &workspaces;
    let tier = format!("tier={}", organization.name);
    let label = |workspace: &str, label: &str| {
        admin.run(&["label", "workspace", workspace, label]);
    };
    label(eu, &tier);
    label(us, &tier);
    stack_for(&admin, &organization, "web", &workspaces, &config_maps("web", 1, "a"));
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
      maxFailures: 1
      waves:
      - {{workspaces: [{canary}]}}
      - workspaceSelector: {{matchLabels: {{tier: {}}}}}
",
            organization.name
        ),
    );
    ran(&admin, &organization, &[("canary", "AwaitingApproval")]);
    // Another is labelled, and one no more: what the step began with counts.
    label(zone, &tier);
    label(us, "tier-");
    decide_in(&admin, &organization, canary, "Approved");
    ran(&admin, &organization, &[("canary", "Succeeded"), ("eu", "AwaitingApproval"), ("us", "AwaitingApproval")]);
    decide_in(&admin, &organization, eu, "Rejected");
    ran(&admin, &organization, &[("canary", "Succeeded"), ("eu", "Failed"), ("us", "AwaitingApproval")]);
    decide_in(&admin, &organization, us, "Approved");
    wait(&admin, &organization, "release", "Complete");
    let ended = workflow(&admin, &organization, "release");
    assert_eq!(phases(&ended), ["Succeeded"]);
    assert_eq!(ended["status"]["steps"][0]["counts"], json!({"total": 3, "started": 3, "succeeded": 2, "failed": 1}));
}
