//! What an object refers to: it is checked before any run, and kept while it is needed.

use stoa_e2e::fixture::{Organization, condition, config_maps};
use stoa_e2e::{Server, Standalone};

use super::{PATIENCE, control_repository::wait_for_commits};

#[test]
fn wrong_ref_and_folder_are_reported_before_any_run() {
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&*server);
    let name = &organization.name;
    let ready = |object: &str, why: &str| {
        kubectl.watch(name, object, PATIENCE, |object| {
            let ready = condition(object, "Ready");
            (ready["reason"] == why).then(|| ready["message"].as_str().unwrap_or_default().to_owned())
        })
    };
    organization.stack("web", &config_maps("app", 1, "a"));
    kubectl.apply(&format!(
        "{{apiVersion: config.stoa.dev/v1alpha1, kind: Stack, metadata: {{name: typo, namespace: {name}}},
          spec: {{project: {name}, stackName: wbe, workspaces: [{name}]}}}}"
    ));
    let message = ready("stack/typo", "PathNotFound");
    assert!(message.contains("source \"config\" has no folder or file \"apps/wbe\""), "{message}");
    ready("stack/web", "NotDeployed");
    ready(&format!("project/{name}"), "Available");

    let patch = |spec: &str| {
        let patch = format!("--patch={{\"spec\":{spec}}}");
        kubectl.run(&["patch", "source/config", "--namespace", name, "--type=merge", &patch]);
    };
    patch(r#"{"ref":"mian"}"#);
    let message = ready("source/config", "RefNotFound");
    assert!(message.contains("\"mian\"") && message.contains(&organization.source.url()), "{message}");
    ready(&format!("project/{name}"), "RefNotFound");
    patch(r#"{"ref":"main"}"#);
    ready("source/config", "Available");

    let refused = kubectl.refused(&["delete", "source", "config", "--namespace", name]);
    assert!(refused.contains("(Conflict)") || refused.contains(&format!("the source of project {name}")), "{refused}");
    let refused = kubectl.refused(&["delete", "backend", name]);
    assert!(refused.contains(&format!("the backend of workspace {name}")), "{refused}");
    let second = format!(
        "{{apiVersion: config.stoa.dev/v1alpha1, kind: Source, metadata: {{name: second, namespace: {name}}},
          spec: {{remote: \"{}/\"}}}}",
        organization.source.url()
    );
    let refused = kubectl.create_refused(&second);
    assert!(refused.contains("source \"config\" has the same repository"), "{refused}");
}

#[test]
fn destroyed_stack_leaves_a_commit_after_its_organization() {
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&*server);
    let name = &organization.name;
    let file = format!("organizations/{name}/destroyed/web/{name}.yaml");
    organization.stack("web", &config_maps("app", 2, "a"));
    organization.succeed("web", "Apply", "");
    let patch = |object: &[&str], policy: &str| {
        let patch = format!("--patch={{\"spec\":{{\"deletionPolicy\":{policy}}}}}");
        kubectl.run(&[&["patch", "--type=merge", &patch], object].concat());
    };
    patch(&["organization", name], "\"Destroy\"");
    patch(&["stack", "web", "--namespace", name], "\"Refuse\"");
    let refused = kubectl.refused(&["delete", "organization", name]);
    assert!(refused.contains("1 live stack with deletionPolicy Refuse (web); destroy it first"), "{refused}");
    patch(&["stack", "web", "--namespace", name], "null");
    kubectl.run(&["delete", "organization", name, "--timeout=120s"]);
    let lines = wait_for_commits(&server, &file, 1);
    assert!(lines[0].contains(&format!("destroy stack {name}/web in workspace {name}: release 2, ")), "{lines:#?}");
}
