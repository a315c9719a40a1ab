//! A plan is carried out once somebody else approved it, with whichever kubectl commands come naturally.

use std::collections::BTreeSet;
use std::io::Write as _;

use serde_json::{Value, json};
use stoa_e2e::fixture::{Organization, condition, config_maps};
use stoa_e2e::{Cluster, Kubectl, Server, Standalone, eventually, unique};

use crate::PATIENCE;

/// Where a run's approval is.
fn path(organization: &Organization, run: &str) -> String {
    format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{}/runs/{run}/approval", organization.name)
}

/// Starts a run and waits until its plan waits for approval; the run, and the digest of the plan.
fn waiting(admin: &Kubectl, starts: &Kubectl, organization: &Organization, operation: &str) -> (String, String) {
    let manifest = format!(
        "apiVersion: delivery.stoa.dev/v1alpha1
kind: Run
metadata: {{generateName: web-, namespace: {}}}
spec: {{stack: web, operation: {operation}}}
",
        organization.name
    );
    let run = eventually("the run is admitted", PATIENCE, || starts.try_create(&manifest).ok());
    let digest = admin.watch(&organization.name, &format!("run/{run}"), PATIENCE, |run| {
        let is_told = condition(run, "Waiting")["reason"] == "AwaitingApproval";
        is_told.then(|| run["status"]["plan"]["digest"].as_str().unwrap().to_owned())
    });
    (run, digest)
}

/// Patches the approval of a run; what kubectl said when that failed.
fn patch(by: &Kubectl, organization: &Organization, run: &str, approval: &Value) -> Result<(), String> {
    let patch = format!("--patch={}", json!({ "status": { "approval": approval } }));
    let args = ["patch", "run", run, "--subresource=approval", "--type=merge", &patch];
    let output = by.command(&[&args[..], &["--namespace", &organization.name]].concat()).output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8(output.stderr).unwrap()) }
}

fn set_require_approval(admin: &Kubectl, object: &str, namespace: &str) {
    let patch = "--patch={\"spec\":{\"requireApproval\":true}}";
    admin.run(&["patch", object, "--type=merge", patch, "--namespace", namespace]);
}

/// Gives somebody a role in the organization.
pub(crate) fn bind(admin: &Kubectl, organization: &Organization, user: &str, role: &str) {
    admin.run(&[
        "create",
        "rolebinding",
        &unique("binding"),
        "--clusterrole",
        role,
        "--user",
        user,
        "--namespace",
        &organization.name,
    ]);
}

/// Lets somebody deploy to the organization's workspace.
pub(crate) fn may_use(admin: &Kubectl, organization: &Organization, user: &str) {
    let name = &organization.name;
    admin.apply(&format!(
        "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: {user}}}
rules: [{{apiGroups: [platform.stoa.dev], resources: [workspaces, backends], verbs: [use], resourceNames: [{name}]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: {user}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {user}}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: {user}}}]
"
    ));
}

/// Two people of an organization whose workspace wants plans approved: a developer and an approver.
fn people(admin: &Kubectl, organization: &Organization) -> [(String, Kubectl); 2] {
    let name = &organization.name;
    set_require_approval(admin, &format!("workspace/{name}"), "");
    let (ann, bob) = (unique("ann"), unique("bob"));
    may_use(admin, organization, &ann);
    bind(admin, organization, &ann, "stoa:developer");
    bind(admin, organization, &bob, "stoa:approver");
    [ann, bob].map(|user| (user.clone(), admin.impersonate(&user)))
}

#[test]
fn other_user_or_privileged_requester_approves_plan() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    organization.stack("web", &config_maps(&namespace, 1, "a"));
    let [(ann_name, ann), (bob_name, bob)] = people(&admin, &organization);
    let (run, digest) = waiting(&admin, &ann, &organization, "Apply");
    assert!(!admin.succeeds(&["get", "namespace", &namespace]), "it was applied without approval");

    // Whoever is to decide sees what about.
    let log = path(&organization, &run).replace("/approval", "/log");
    let shown = eventually("the approver reads the plan", PATIENCE, || {
        let output = bob.command(&["get", "--raw", &log]).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    });
    assert!(shown.contains(&digest) && shown.contains(&format!("v1:ConfigMap:{namespace}:c0")), "{shown}");
    let table = bob.run(&["get", "run", &run, "--namespace", &organization.name, "--output=wide"]);
    assert!(table.contains("AwaitingApproval") && table.contains(&digest), "{table}");

    let approve = json!({"planDigest": digest, "decision": "Approved", "message": "looks good"});
    let refused = patch(&ann, &organization, &run, &approve).unwrap_err();
    assert!(refused.contains("cannot") && refused.contains("runs/approval"), "{refused}");
    bind(&admin, &organization, &ann_name, "stoa:approver");
    eventually("it is refused as her own", PATIENCE, || {
        let refused = patch(&ann, &organization, &run, &approve).unwrap_err();
        refused.contains(&format!("{ann_name} requested this run")).then_some(())
    });
    let other = json!({"planDigest": "sha256:0", "decision": "Approved"});
    let refused = patch(&bob, &organization, &run, &other).unwrap_err();
    assert!(refused.contains("(Conflict)") || refused.contains("Operation cannot be fulfilled"), "{refused}");
    assert!(refused.contains(&format!("the plan that waits for approval is {digest}")), "{refused}");
    patch(&bob, &organization, &run, &approve).unwrap();
    let ended = organization.ended(&run, PATIENCE);
    assert_eq!(ended["status"]["phase"], "Succeeded", "{ended:#}");
    assert_eq!(ended["status"]["approval"]["approver"]["username"], bob_name.as_str());
    let sentence = format!("{bob_name} approved plan {digest} (+2 ~0 -0): looks good");
    assert_eq!(
        (&condition(&ended, "Approved")["status"], &condition(&ended, "Approved")["message"]),
        (&json!("True"), &json!(sentence))
    );
    let events = ["get", "events", "--namespace", &organization.name, "--field-selector", "reason=Approved"];
    eventually("the decision is an event", PATIENCE, || admin.run(&events).contains(&sentence).then_some(()));
    eventually("every try is in the audit log", PATIENCE, || {
        let audited = cluster.audit(&run);
        let of_run = audited.iter().filter(|event| {
            let object = &event["objectRef"];
            event["verb"] == "patch" && object["subresource"] == "approval" && object["name"] == run.as_str()
        });
        let codes: BTreeSet<u64> = of_run.filter_map(|event| event["responseStatus"]["code"].as_u64()).collect();
        codes.is_superset(&BTreeSet::from([200, 403, 409])).then_some(())
    });

    // Granted by name or for all, the verb lets people decide about their own.
    organization.stack("web", &config_maps(&namespace, 1, "b"));
    let (run, digest) = waiting(&admin, &ann, &organization, "Apply");
    admin.run(&[
        "create",
        "role",
        "own",
        "--verb=approve-own",
        "--resource=runs.delivery.stoa.dev",
        "--namespace",
        &organization.name,
    ]);
    admin.run(&["create", "rolebinding", "own", "--role=own", "--user", &ann_name, "--namespace", &organization.name]);
    let approve = json!({"planDigest": digest, "decision": "Approved"});
    eventually("she may approve it herself", PATIENCE, || patch(&ann, &organization, &run, &approve).ok());
    assert_eq!(organization.ended(&run, PATIENCE)["status"]["phase"], "Succeeded");
}

#[test]
fn rejected_or_stale_plan_changes_nothing() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    organization.stack("web", &config_maps(&namespace, 1, "a"));
    organization.succeed("web", "Apply", "");
    let [(_, ann), (bob_name, bob)] = people(&admin, &organization);
    // What changes nothing waits for nobody.
    organization.succeed("web", "Apply", "");
    organization.succeed("web", "Preview", "");
    organization.stack("web", &config_maps(&namespace, 1, "b"));
    let value = || admin.get(&["configmap", "c0", "--namespace", &namespace])["data"]["value"].clone();

    // A program sends the whole object back.
    let (run, digest) = waiting(&admin, &ann, &organization, "Apply");
    let raw = path(&organization, &run);
    let read = eventually("the approver reads it", PATIENCE, || {
        let output = bob.command(&["get", "--raw", &raw]).output().unwrap();
        output.status.success().then_some(output.stdout)
    });
    let mut object: Value = serde_json::from_slice(&read).unwrap();
    object["status"]["approval"] = json!({"planDigest": digest, "decision": "Rejected", "message": "not today"});
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(object.to_string().as_bytes()).unwrap();
    bob.run(&["replace", "--raw", &raw, "--filename", file.path().to_str().unwrap()]);
    let ended = organization.ended(&run, PATIENCE);
    let sentence = format!("{bob_name} rejected plan {digest} (+0 ~1 -0): not today");
    let failed = condition(&ended, "Failed");
    assert_eq!((&failed["reason"], &failed["message"]), (&json!("Rejected"), &json!(sentence)));
    assert_eq!(condition(&ended, "Approved")["status"], "False");
    assert_eq!(value(), "a");

    let (run, digest) = waiting(&admin, &ann, &organization, "Apply");
    let by_hand = ["patch", "configmap/c0", "--type=merge", "--patch={\"data\":{\"value\":\"other\"}}"];
    admin.run(&[&by_hand[..], &["--namespace", &namespace]].concat());
    patch(&bob, &organization, &run, &json!({"planDigest": digest, "decision": "Approved"})).unwrap();
    let failed = condition(&organization.ended(&run, PATIENCE), "Failed");
    assert_eq!(failed["reason"], "PlanStale", "{failed}");
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains(&format!("v1:ConfigMap:{namespace}:c0: data.value changes differently")), "{message}");
    assert_eq!(value(), "other", "a plan that no longer holds was applied");
    assert_eq!(organization.of_stack("releases", "web").len(), 1);
}

/// What is destroyed with it is what they asked for.
#[test]
fn who_deletes_a_stack_does_not_approve_that_alone() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let (name, namespace) = (organization.name.as_str(), format!("{}-web", organization.name));
    organization.stack("web", &config_maps(&namespace, 1, "a"));
    organization.succeed("web", "Apply", "");
    let [(ann_name, ann), (_, bob)] = people(&admin, &organization);
    for role in ["stoa:owner", "stoa:approver"] {
        bind(&admin, &organization, &ann_name, role);
    }
    let policy = ["patch", "stack/web", "--namespace", name, "--type=merge"];
    admin.run(&[&policy[..], &["--patch={\"spec\":{\"deletionPolicy\":\"Destroy\"}}"]].concat());
    eventually("she may delete it", PATIENCE, || {
        ann.succeeds(&["delete", "stack/web", "--namespace", name, "--wait=false"]).then_some(())
    });
    let destroy = eventually("its Destroy waits for approval", PATIENCE, || {
        let mut runs = organization.of_stack("runs", "web").into_iter();
        runs.find(|run| condition(run, "Waiting")["reason"] == "AwaitingApproval")
    });
    let (run, digest) = (destroy["metadata"]["name"].as_str().unwrap(), &destroy["status"]["plan"]["digest"]);
    let approve = json!({"planDigest": digest, "decision": "Approved"});
    eventually("it is refused as her own", PATIENCE, || {
        let refused = patch(&ann, &organization, run, &approve).unwrap_err();
        refused.contains(&format!("{ann_name} requested this run")).then_some(())
    });
    eventually("somebody else approves it", PATIENCE, || patch(&bob, &organization, run, &approve).ok());
    eventually("it is gone", PATIENCE, || (!admin.succeeds(&["get", "stack/web", "--namespace", name])).then_some(()));
    assert!(!admin.succeeds(&["get", "configmap/c0", "--namespace", &namespace]));
}

#[test]
fn changed_target_invalidates_approved_plan() {
    let server = Standalone::shared();
    let admin = server.kubectl();
    let organization = Organization::create(&*server);
    organization.stack("web", &config_maps("web", 1, "a"));
    set_require_approval(&admin, "stack/web", &organization.name);
    let (run, digest) = waiting(&admin, &admin, &organization, "Apply");
    let elsewhere = "--patch={\"spec\":{\"gitops\":{\"branch\":\"other\"}}}";
    admin.run(&["patch", "workspace", &organization.name, "--type=merge", elsewhere]);
    patch(&admin, &organization, &run, &json!({"planDigest": digest, "decision": "Approved"})).unwrap();
    let failed = condition(&organization.ended(&run, PATIENCE), "Failed");
    assert_eq!(failed["reason"], "PlanStale", "{failed}");
    assert!(failed["message"].as_str().unwrap().contains("the workspace has another target"), "{failed}");
}

#[test]
fn plan_waits_through_a_restart() {
    let mut server = Standalone::start();
    let admin = server.kubectl();
    let organization = Organization::create(&server);
    organization.stack("web", &config_maps("web", 1, "a"));
    set_require_approval(&admin, "stack/web", &organization.name);
    let (run, digest) = waiting(&admin, &admin, &organization, "Apply");
    server.kill();
    server.restart();
    let found = organization.run(&run);
    assert_eq!(
        (&found["status"]["phase"], &found["status"]["plan"]["digest"]),
        (&json!("AwaitingApproval"), &json!(digest))
    );
    // Whoever may do everything may approve their own.
    let approve = json!({"planDigest": digest, "decision": "Approved"});
    patch(&admin, &organization, &run, &approve).unwrap();
    assert_eq!(organization.ended(&run, PATIENCE)["status"]["phase"], "Succeeded");
    // Destroying has to be approved, too.
    let (run, digest) = waiting(&admin, &admin, &organization, "Destroy");
    patch(&admin, &organization, &run, &json!({"planDigest": digest, "decision": "Approved"})).unwrap();
    assert_eq!(organization.ended(&run, PATIENCE)["status"]["phase"], "Succeeded");
}
