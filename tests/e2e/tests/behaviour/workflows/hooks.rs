//! Hooks of workflows: endpoints that are asked before and after runs.

use super::*;

/// Makes the Secret that hooks are signed with.
fn key(kubectl: &Kubectl, organization: &Organization) {
    kubectl.apply_secret(&organization.name, "hooks", &[("key", KEY)]);
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
fn hooks_decide_step_for_permitted_users() {
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
    assert_eq!(
        condition(&ended, "Failed")["message"],
        "step dev: hook ask failed: the endpoint answered 403 Forbidden"
    );
    assert!(runs(&admin, &organization, "release").is_empty());
}

#[test]
fn restart_repeats_hook_but_counts_one_success() {
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
