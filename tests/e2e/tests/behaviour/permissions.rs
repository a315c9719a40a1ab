//! RBAC decides: who may start which run of which stack, to which workspace.

use stoa_e2e::fixture::{Organization, condition, config_maps};
use stoa_e2e::{Cluster, Kubectl, Server as _, eventually, unique};

use crate::PATIENCE;

/// A run that applies the stack `web` of a namespace.
fn apply_run(namespace: &str) -> String {
    format!(
        "apiVersion: delivery.stoa.dev/v1alpha1
kind: Run
metadata: {{generateName: web-, namespace: {namespace}}}
spec: {{stack: web, operation: Apply}}
"
    )
}

/// Grants `user` some verbs on some resources, in a namespace or, if that is empty, everywhere. Returns the name of
/// the role and its binding.
fn grant(admin: &Kubectl, user: &str, namespace: &str, rule: &str) -> String {
    let (role, scope) = if namespace.is_empty() {
        ("ClusterRole", String::new())
    } else {
        ("Role", format!(", namespace: {namespace}"))
    };
    let name = unique(user);
    admin.apply(&format!(
        "apiVersion: rbac.authorization.k8s.io/v1
kind: {role}
metadata: {{name: {name}{scope}}}
rules: [{rule}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {role}Binding
metadata: {{name: {name}{scope}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: {role}, name: {name}}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: {user}}}]
"
    ));
    name
}

fn rule(group: &str, resource: &str, verbs: &str, names: &str) -> String {
    let names = if names.is_empty() { String::new() } else { format!(", resourceNames: [{names}]") };
    format!("{{apiGroups: [{group}], resources: [{resource}], verbs: [{verbs}]{names}}}")
}

fn as_args(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// Tries until the refusal names `wanted`: a decision may be remembered for ten seconds.
fn refused_for(user: &Kubectl, run: &str, wanted: &[&str]) {
    let mut last = String::new();
    eventually(&format!("a refusal that names {wanted:?}"), PATIENCE, || {
        last = user.try_create(run).expect_err("a run was created without permission");
        assert!(last.contains("(Forbidden)"), "refused otherwise than by permission: {last}");
        let named = wanted.iter().all(|word| last.contains(word));
        if !named {
            eprintln!("still: {last}");
        }
        named.then_some(())
    });
}

#[test]
fn run_error_names_each_missing_permission() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    organization.stack("web", &config_maps(&format!("{name}-web"), 2, "a"));
    let user_name = unique("ann");
    let user = admin.impersonate(&user_name);
    let run = apply_run(name);

    refused_for(&user, &run, &["cannot create resource \"runs\""]);
    grant(&admin, &user_name, name, &rule("delivery.stoa.dev", "runs", "create, get, list, watch", ""));
    grant(&admin, &user_name, name, &rule("config.stoa.dev", "stacks", "get, list, watch", ""));
    eventually("the stack can be read", PATIENCE, || {
        user.succeeds(&["get", "stack", "web", "--namespace", name]).then_some(())
    });
    refused_for(&user, &run, &["create", "stacks/apply", "\"web\""]);

    grant(&admin, &user_name, name, &rule("config.stoa.dev", "stacks/apply", "create", "web"));
    refused_for(&user, &run, &["use", "workspaces", name]);

    grant(&admin, &user_name, "", &rule("platform.stoa.dev", "workspaces", "use", name));
    refused_for(&user, &run, &["use", "backends", name]);
    assert_eq!(organization.of_stack("runs", "web").len(), 0, "a refused run was kept");

    grant(&admin, &user_name, "", &rule("platform.stoa.dev", "backends", "use", name));
    let created = eventually("the run is admitted", PATIENCE, || user.try_create(&run).ok());
    let run = organization.ended(&created, PATIENCE);
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    assert_eq!(run["status"]["requester"]["username"], user_name.as_str());
    // What a grant does not cover stays closed.
    let refused = user.create_refused(&apply_run(name).replace("Apply", "Destroy"));
    assert!(refused.contains("stacks/destroy"), "{refused}");
}

#[test]
fn withdrawn_permission_stops_waiting_run_before_changes() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    let namespace = format!("{name}-web");
    organization.stack("web", &config_maps(&namespace, 2, "a"));
    let user_name = unique("bob");
    let user = admin.impersonate(&user_name);
    grant(&admin, &user_name, name, &rule("delivery.stoa.dev", "runs", "create", ""));
    grant(&admin, &user_name, name, &rule("config.stoa.dev", "stacks/apply", "create", "web"));
    let use_of_workspace = grant(&admin, &user_name, "", &rule("platform.stoa.dev", "workspaces", "use", name));
    grant(&admin, &user_name, "", &rule("platform.stoa.dev", "backends", "use", name));

    // While its source is out of reach, a run waits.
    organization.read_from("https://127.0.0.1:1/away.git");
    let run = eventually("the run is admitted", PATIENCE, || user.try_create(&apply_run(name)).ok());
    admin.run(&["delete", "clusterrolebinding", &use_of_workspace]);
    eventually("the withdrawal holds", PATIENCE, || user.would_create(&apply_run(name)).err());
    organization.read_from(&organization.source.url());

    let run = organization.ended(&run, PATIENCE);
    let failed = condition(&run, "Failed");
    assert_eq!(failed["reason"], "PermissionDenied", "{run:#}");
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains("use") && message.contains(name) && message.contains(&user_name), "{message}");
    assert!(!admin.succeeds(&["get", "namespace", &namespace]), "a run without permission changed something");
}

#[test]
fn who_may_only_read_writes_nothing() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    let user_name = unique("eve");
    let user = admin.impersonate(&user_name);
    grant(&admin, &user_name, name, &rule("config.stoa.dev", "\"*\"", "get, list, watch", ""));
    eventually("sources can be read", PATIENCE, || {
        user.succeeds(&["get", "sources", "--namespace", name]).then_some(())
    });
    for command in [
        &["label", "source/config", "a=b"][..],
        &["delete", "source/config"],
        &["patch", "source/config", "--type=merge", "--patch={\"spec\":{\"ref\":\"x\"}}"],
    ] {
        let refused = user.refused(&[command, &["--namespace", name]].concat());
        assert!(refused.contains("(Forbidden)") && refused.contains(&user_name), "{command:?}: {refused}");
    }
    let elsewhere = user.refused(&["get", "sources", "--namespace=default"]);
    assert!(elsewhere.contains("cannot list resource \"sources\" in API group \"config.stoa.dev\""), "{elsewhere}");
}

#[test]
fn organization_grants_roles_in_its_namespace() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    let (ann, eve) = (unique("ann"), unique("eve"));
    let members = |members: &str| format!("--patch={{\"spec\":{{\"members\":[{members}]}}}}");
    let member = |user: &str, role: &str| {
        format!("{{\"subject\":{{\"kind\":\"User\",\"name\":\"{user}\"}},\"role\":\"{role}\"}}")
    };
    let object = format!("organization/{name}");
    admin.run(&["patch", &object, "--type=merge", &members(&member(&ann, "developer"))]);
    let ann_may_create = |subresource: &str| {
        let what = ["auth", "can-i", "create", "stacks.config.stoa.dev", subresource, "--namespace", name];
        admin.impersonate(&ann).succeeds(&what)
    };
    eventually("the developer may write stacks", PATIENCE, || ann_may_create("--subresource=").then_some(()));
    assert!(!ann_may_create("--subresource=destroy"), "a developer may destroy");
    let bindings = admin.get(&["rolebinding", "stoa:developer", "--namespace", name]);
    assert_eq!(bindings["subjects"][0]["name"], ann.as_str(), "{bindings:#}");

    // Whoever may write the organization gives nobody a role that they may not bind.
    grant(&admin, &eve, "", &rule("config.stoa.dev", "organizations", "get, update, patch", name));
    let eves = admin.impersonate(&eve);
    eventually("eve may write the organization", PATIENCE, || {
        let patch = "--patch={\"spec\":{\"description\":\"Eve was here\"}}";
        eves.succeeds(&["patch", &object, "--type=merge", patch]).then_some(())
    });
    let both = [member(&ann, "developer"), member(&eve, "owner")].join(",");
    let refused = eves.refused(&["patch", &object, "--type=merge", &members(&both)]);
    assert!(refused.contains("cannot bind") && refused.contains("stoa:owner"), "{refused}");

    // A binding that is none of Stoa's stays as it is.
    admin.run(&["create", "rolebinding", "stoa:viewer", "--clusterrole=view", "--user=other", "--namespace", name]);
    let both = [member(&ann, "owner"), member(&eve, "viewer")].join(",");
    admin.run(&["patch", &object, "--type=merge", &members(&both)]);
    let message = admin.watch("", &object, PATIENCE, |organization| {
        let bound = condition(organization, "RolesBound");
        (bound["reason"] == "RoleBindingExists").then(|| bound["message"].as_str().unwrap().to_owned())
    });
    assert!(message.contains("stoa:viewer"), "{message}");
    assert!(admin.succeeds(&["get", "rolebinding", "stoa:owner", "--namespace", name]));
    assert!(!admin.succeeds(&["get", "rolebinding", "stoa:developer", "--namespace", name]), "nobody is a developer");
}

#[test]
fn only_owners_write_project_with_owner_access() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    organization.stack("web", &config_maps(&format!("{name}-web"), 1, "a"));
    let (ann, bob, eve) = (unique("ann"), unique("bob"), unique("eve"));
    let member = |user: &str, role: &str| {
        format!("{{\"subject\":{{\"kind\":\"User\",\"name\":\"{user}\"}},\"role\":\"{role}\"}}")
    };
    let members = [member(&ann, "owner"), member(&bob, "developer"), member(&eve, "developer")].join(",");
    let members = format!("--patch={{\"spec\":{{\"members\":[{members}]}}}}");
    admin.run(&["patch", &format!("organization/{name}"), "--type=merge", &members]);
    let project = format!("project/{name}");
    let patch = |object: &str, spec: &str| -> Vec<String> {
        let patch = format!("--patch={{\"spec\":{spec}}}");
        ["patch", object, "--namespace", name, "--type=merge", &patch].map(str::to_owned).to_vec()
    };
    let describe = |text: &str| patch("stack/web", &format!("{{\"description\":\"{text}\"}}"));
    let owned = format!("{{\"access\":\"Owners\",\"owners\":[{{\"kind\":\"User\",\"name\":\"{bob}\"}}]}}");
    admin.run(&as_args(&patch(&project, &owned)));

    for user_name in [&ann, &bob] {
        let (user, args) = (admin.impersonate(user_name), describe(user_name));
        eventually("who may edit the project writes its stacks", PATIENCE, || {
            user.succeeds(&as_args(&args)).then_some(())
        });
    }
    let eves = admin.impersonate(&eve);
    eventually("a developer may write sources", PATIENCE, || {
        eves.succeeds(&["label", "source/config", "--namespace", name, "--overwrite", "seen=true"]).then_some(())
    });
    let delete = |object: &str| ["delete", object, "--namespace", name].map(str::to_owned).to_vec();
    for args in [
        describe(&eve),
        delete("stack/web"),
        patch(&project, r#"{"access":"Organization"}"#),
        patch(&project, r#"{"owners":[]}"#),
        patch(&project, r#"{"path":"elsewhere"}"#),
        delete(&project),
    ] {
        let refused = eves.refused(&as_args(&args));
        let said = format!("User \"{eve}\" cannot edit resource \"projects\"");
        assert!(refused.contains("(Forbidden)") && refused.contains(&said), "{args:?}: {refused}");
    }
    // Its namespace goes for all that.
    admin.run(&["delete", &format!("organization/{name}"), "--wait=false"]);
    eventually("the namespace is gone", PATIENCE, || (!admin.succeeds(&["get", "namespace", name])).then_some(()));
}

#[test]
fn live_stack_deletion_requires_destroy_permission() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    organization.stack("web", &config_maps(&format!("{name}-web"), 2, "a"));
    organization.succeed("web", "Apply", "");
    let users = [
        ("workspace", format!("stack {name}/web is deployed")),
        ("backend", format!("it is the backend of workspace {name}")),
    ];
    for (kind, user) in users {
        let refused = admin.refused(&["delete", kind, name]);
        assert!(refused.contains("(Conflict)") || refused.contains("cannot be fulfilled"), "{refused}");
        assert!(refused.contains(&user), "{refused}");
    }
    let elsewhere = Organization::create(&cluster).name;
    let stray = apply_run(name).replace("operation: Apply", &format!("operation: Apply, workspace: {elsewhere}"));
    let refused = admin.create_refused(&stray);
    assert!(refused.contains("spec.workspace") && refused.contains(&format!("the stack is for {name}")), "{refused}");

    let user_name = unique("eve");
    let user = admin.impersonate(&user_name);
    grant(&admin, &user_name, name, &rule("config.stoa.dev", "stacks", "get, list, watch, update, patch, delete", ""));
    let stack = ["stack", "web", "--namespace", name];
    let refused_for = |args: &[&str], wanted: &str| {
        eventually(&format!("a refusal that names {wanted}"), PATIENCE, || {
            let refused = user.refused(args);
            refused.contains(wanted).then_some(())
        });
    };
    let set_policy =
        [&["patch"], &stack[..], &["--type=merge", r#"--patch={"spec":{"deletionPolicy":"Destroy"}}"#]].concat();
    let delete = [&["delete"], &stack[..], &["--wait=false"]].concat();
    refused_for(&set_policy, "stacks/destroy");
    admin.run(&set_policy);
    refused_for(&delete, "stacks/destroy");
    grant(&admin, &user_name, name, &rule("config.stoa.dev", "stacks/destroy", "create", "web"));
    refused_for(&delete, "workspaces");
    grant(&admin, &user_name, "", &rule("platform.stoa.dev", "workspaces", "use", name));
    refused_for(&delete, "backends");
    grant(&admin, &user_name, "", &rule("platform.stoa.dev", "backends", "use", name));
    eventually("the stack can be deleted", PATIENCE, || user.succeeds(&delete).then_some(()));
    eventually("the stack is gone", PATIENCE, || (!admin.succeeds(&[&["get"], &stack[..]].concat())).then_some(()));
    admin.run(&["delete", "workspace", name]);
    admin.run(&["delete", "backend", name]);
}
