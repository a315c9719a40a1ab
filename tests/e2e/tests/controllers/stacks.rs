//! Stacks: what becomes of what they deployed when their namespace goes, and what the garbage collector does with those of
//! a project that keeps them to its owners.

use std::{thread, time::Duration};

use serde_json::Value;
use stoa_e2e::fixture::{Organization, condition, config_maps};
use stoa_e2e::{Cluster, Kubectl, Server as _, eventually, unique};

use super::{A_WHILE, PATIENCE};

/// The namespace controller waits for up to a minute before it tries again.
const LONG_PATIENCE: Duration = Duration::from_secs(240);

/// Whether what a stack of the organization deployed is there.
fn is_live(kubectl: &Kubectl, organization: &Organization, stack: &str) -> bool {
    let namespace = format!("{}-{stack}", organization.name);
    kubectl.succeeds(&["get", "configmap", "c0", "--namespace", &namespace])
}

fn deploy(organization: &Organization, stack: &str) {
    organization.stack(stack, &config_maps(&format!("{}-{stack}", organization.name), 1, "a"));
    organization.succeed(stack, "Apply", "");
}

#[test]
fn namespace_deletion_follows_stack_deletion_policies() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    let set = |stack: &str, policy: &str| {
        let patch = format!("--patch={{\"spec\":{{\"deletionPolicy\":\"{policy}\"}}}}");
        kubectl.run(&["patch", "stack", stack, "--namespace", name, "--type=merge", &patch]);
    };
    for (stack, policy) in [("destroyed", "Destroy"), ("orphaned", "Orphan"), ("refused", "Refuse")] {
        deploy(&organization, stack);
        set(stack, policy);
    }
    let uid = kubectl.get(&["namespace", name])["metadata"]["uid"].clone();
    kubectl.run(&["delete", "namespace", name, "--wait=false"]);
    for stack in ["destroyed", "orphaned"] {
        eventually("the stack is gone", LONG_PATIENCE, || {
            (!kubectl.succeeds(&["get", "stack", stack, "--namespace", name])).then_some(())
        });
    }
    eventually("the namespace says what holds it", LONG_PATIENCE, || {
        let namespace = kubectl.get(&["namespace", name]);
        let failure = condition(&namespace, "NamespaceDeletionContentFailure");
        failure["message"].as_str().is_some_and(|said| said.contains("its deletionPolicy is Refuse")).then_some(())
    });
    let live = ["destroyed", "orphaned", "refused"].map(|stack| is_live(&kubectl, &organization, stack));
    assert_eq!(live, [false, true, true]);
    let refused = organization.refused("refused", "Destroy", "");
    assert!(refused.contains("because it is being terminated"), "{refused}");

    set("refused", "Destroy");
    // Its organization makes another of the name at once.
    eventually("the namespace is gone", LONG_PATIENCE, || {
        let found = kubectl.try_get(&["namespace", name]);
        found.is_none_or(|namespace| namespace["metadata"]["uid"] != uid).then_some(())
    });
    assert!(!is_live(&kubectl, &organization, "refused"));
    kubectl.run(&["delete", "organization", name, "--wait=false"]);
    kubectl.run(&["delete", "namespace", &format!("{name}-orphaned"), "--wait=false"]);
}

#[test]
fn organization_orphans_stacks_of_projects_restricted_to_owners() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    deploy(&organization, "web");
    let patch = |object: &str, spec: &str| {
        let patch = format!("--patch={{\"spec\":{spec}}}");
        kubectl.run(&["patch", object, "--namespace", name, "--type=merge", &patch]);
    };
    patch(&format!("project/{name}"), r#"{"access":"Owners"}"#);
    patch(&format!("organization/{name}"), r#"{"deletionPolicy":"Orphan"}"#);
    kubectl.run(&["delete", "organization", name, "--timeout=240s"]);
    assert!(!kubectl.succeeds(&["get", "namespace", name]), "the namespace outlived its organization");
    assert!(is_live(&kubectl, &organization, "web"));
    kubectl.run(&["delete", "namespace", &format!("{name}-web"), "--wait=false"]);
}

#[test]
fn garbage_collector_manages_stacks_of_restricted_project() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let namespace = unique("gc");
    kubectl.run(&["create", "namespace", &namespace]);
    let on = |arguments: &[&str]| kubectl.run(&[arguments, &["--namespace", namespace.as_str()][..]].concat());
    let find = |kind: &str, name: &str| -> Option<Value> {
        let list = kubectl.get(&[kind, "--namespace", &namespace]);
        list["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == name).cloned()
    };
    kubectl.apply(&format!(
        "{{apiVersion: config.stoa.dev/v1alpha1, kind: Project, metadata: {{name: web, namespace: {namespace}}},
          spec: {{source: {{name: none}}, access: Owners}}}}"
    ));
    for (owner, stack) in [("left", "stays"), ("gone", "goes")] {
        on(&["create", "configmap", owner]);
        let uid = find("configmaps", owner).unwrap()["metadata"]["uid"].clone();
        kubectl.apply(&format!(
            "apiVersion: config.stoa.dev/v1alpha1
kind: Stack
metadata:
  name: {stack}
  namespace: {namespace}
  ownerReferences: [{{apiVersion: v1, kind: ConfigMap, name: {owner}, uid: {uid}, blockOwnerDeletion: true}}]
spec: {{project: web}}
"
        ));
    }
    // The collector has to have seen them, or it finds none to deal with.
    thread::sleep(A_WHILE);
    on(&["delete", "configmap", "left", "--cascade=orphan", "--wait=false"]);
    on(&["delete", "configmap", "gone", "--cascade=foreground", "--wait=false"]);
    for (kind, name) in [("configmaps", "left"), ("stacks", "goes"), ("configmaps", "gone")] {
        eventually(&format!("{name} is gone"), PATIENCE, || find(kind, name).is_none().then_some(()));
    }
    thread::sleep(A_WHILE);
    let stack = find("stacks", "stays").unwrap();
    let metadata = &stack["metadata"];
    assert!(metadata["ownerReferences"].is_null() && metadata["deletionTimestamp"].is_null(), "{stack:#}");
    on(&["delete", "stack", "stays", "--cascade=foreground", "--timeout=120s"]);
    kubectl.run(&["delete", "namespace", &namespace, "--wait=false"]);
}
