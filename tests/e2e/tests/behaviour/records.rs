//! What is kept of a rollout, and what is left alone.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use stoa_e2e::fixture::{Organization, Repository, condition, config_maps};
use stoa_e2e::{Cluster, Kubectl, Server as _, Standalone, git, run};

use crate::PATIENCE;

/// What is said of a format that there is not.
const UNKNOWN_FORMAT: &str = "format: Unsupported value: \"xml\"";

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

/// Sends an empty object to a subresource of the stack `web` and returns what it answered.
fn post(kubectl: &Kubectl, namespace: &str, subresource: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("body.json");
    fs::write(&file, "{}").unwrap();
    let path = format!("/apis/config.stoa.dev/v1alpha1/namespaces/{namespace}/stacks/web/{subresource}");
    kubectl.run(&["create", "--raw", &path, "--filename", file.to_str().unwrap()])
}

#[test]
fn stack_has_separate_releases_per_workspace() {
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&*server);
    let name = &organization.name;
    let folder = tempfile::tempdir().unwrap();
    let prod = folder.path().join("prod.git");
    run(Command::new("git").args(["init", "--quiet", "--bare", "--initial-branch=main"]).arg(&prod));
    kubectl.apply(&format!(
        "apiVersion: platform.stoa.dev/v1alpha1\nkind: Workspace\nmetadata: {{name: {name}-prod}}\nspec:\n  backend: {{name: {name}}}\n{}",
        server.target(&prod)
    ));
    organization.stack("web", &config_maps("web", 2, "a"));
    let workspaces = format!("--patch={{\"spec\":{{\"workspaces\":[\"{name}\",\"{name}-prod\"]}}}}");
    kubectl.run(&["patch", "stack/web", "--namespace", name, "--type=merge", &workspaces]);

    let first = organization.succeed("web", "Apply", &format!("workspace: {name}"));
    assert!(!git(&prod, &["for-each-ref"]).contains("main"), "a workspace was deployed to that no run named");
    organization.stack("web", &config_maps("web", 2, "b"));
    kubectl.run(&["patch", "stack/web", "--namespace", name, "--type=merge", &workspaces]);
    let second = organization.succeed("web", "Apply", &format!("workspace: {name}-prod"));
    for run in [&first, &second] {
        assert_eq!(run["status"]["release"], 1, "releases are numbered per workspace: {run:#}");
    }
    let value = |repository: &Path| git(repository, &["grep", "-h", "value:", "main"]);
    assert!(value(&organization.deploy).contains("value: a") && value(&prod).contains("value: b"));
    let diff = format!("releases/web.{name}-prod.1/diff?with=web.{name}.1&format=text");
    let diff = kubectl.raw(&format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{name}/{diff}"));
    assert!(diff.starts_with(&format!("From web.{name}.1 to web.{name}-prod.1:")), "{diff}");
    assert!(diff.contains("data.value: \"a\" → \"b\"") && diff.contains("2 changed; 1 unchanged."), "{diff}");

    for (workspace, release) in [(name.clone(), &first), (format!("{name}-prod"), &second)] {
        let selector = format!("--field-selector=spec.stack=web,spec.workspace={workspace}");
        let releases = kubectl.get(&["releases", "--namespace", name, &selector]);
        assert_eq!(names(&releases), [format!("web.{workspace}.1")]);
        assert_eq!(releases["items"][0]["spec"]["run"], release["metadata"]["name"]);
    }
    let ambiguous = kubectl.create_refused(&format!(
        "{{apiVersion: delivery.stoa.dev/v1alpha1, kind: Run, metadata: {{generateName: web-, namespace: {name}}},
          spec: {{stack: web, operation: Apply}}}}"
    ));
    assert!(ambiguous.contains("spec.workspace: Required value"), "{ambiguous}");
}

#[test]
fn stacks_of_one_project_are_configured_apart() {
    let server = Standalone::shared();
    let organization = Organization::create(&*server);
    organization.stack("dev", &config_maps("dev", 2, "small"));
    organization.stack("prod", &config_maps("prod", 2, "large"));
    organization.succeed("dev", "Apply", "");
    let files = || git(&organization.deploy, &["grep", "-h", "value:", "main"]);
    assert!(files().contains("small") && !files().contains("large"), "{}", files());
    organization.succeed("prod", "Apply", "");
    organization.succeed("dev", "Destroy", "");
    assert!(!files().contains("small") && files().contains("large"), "{}", files());
}

#[test]
fn generate_returns_spec_and_records_nothing() {
    let server = Cluster::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&server);
    let namespace = format!("{}-web", organization.name);
    let name = &organization.name;
    organization.stack("web", &config_maps(&namespace, 2, "a"));
    let spec = post(&kubectl, name, &format!("generate?workspace={name}"));
    assert!(spec.contains(&format!("id: v1:ConfigMap:{namespace}:c1")) && spec.contains("value: a"), "{spec}");
    let unknown = format!("/apis/config.stoa.dev/v1alpha1/namespaces/{name}/stacks/web/generate?workspace=nowhere");
    assert!(kubectl.refused(&["create", "--raw", &unknown, "--filename", "/dev/null"]).contains("nowhere"));
    let format = unknown.replace("nowhere", &format!("{name}&format=xml"));
    let refused = kubectl.refused(&["create", "--raw", &format, "--filename", "/dev/null"]);
    assert!(refused.contains(UNKNOWN_FORMAT), "{refused}");
    for kind in ["runs", "releases", "resources"] {
        assert!(organization.of_stack(kind, "web").is_empty(), "{kind} were made");
    }
}

#[test]
fn empty_version_selects_desired_version() {
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&*server);
    let name = &organization.name;
    let desired = organization.stack("web", &config_maps("web", 1, "desired"));
    let patch = format!("--patch={{\"spec\":{{\"desiredVersion\":\"{desired}\"}}}}");
    kubectl.run(&["patch", "stack/web", "--namespace", name, "--type=merge", &patch]);
    organization.source.commit("apps/web/spec.yaml", &config_maps("web", 1, "head"));

    let run = organization.succeed("web", "Preview", "version: \"\"");
    assert_eq!(run["status"]["source"]["commit"], desired.as_str(), "{run:#}");
    let run: Value = serde_json::from_str(&post(&kubectl, name, "preview?version=")).unwrap();
    let run = organization.ended(run["metadata"]["name"].as_str().unwrap(), PATIENCE);
    assert_eq!(run["status"]["source"]["commit"], desired.as_str(), "{run:#}");
    let spec = post(&kubectl, name, "generate?version=");
    assert!(spec.contains("value: desired"), "{spec}");
    let spec = post(&kubectl, name, "generate?version=latest");
    assert!(spec.contains("value: head"), "{spec}");
}

#[test]
fn operations_are_started_by_rest() {
    let server = Cluster::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&server);
    let namespace = format!("{}-web", organization.name);
    organization.stack("web", &config_maps(&namespace, 2, "a"));
    for (subresource, operation) in
        [("preview", "Preview"), ("apply", "Apply"), ("rollback?release=1", "Rollback"), ("destroy", "Destroy")]
    {
        let run: Value = serde_json::from_str(&post(&kubectl, &organization.name, subresource)).unwrap();
        assert_eq!(run["spec"]["operation"], operation, "{run:#}");
        let run = organization.ended(run["metadata"]["name"].as_str().unwrap(), PATIENCE);
        assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    }
    assert_eq!(organization.of_stack("releases", "web").len(), 2, "of the apply and of the destruction");
}

#[test]
fn release_contains_spec_and_state_of_apply() {
    let server = Cluster::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&server);
    let namespace = format!("{}-web", organization.name);
    let name = &organization.name;
    organization.stack("web", &config_maps(&namespace, 2, "first"));
    organization.succeed("web", "Apply", "");
    organization.stack("web", &config_maps(&namespace, 2, "second"));
    let second = organization.succeed("web", "Apply", "");
    let document = |number: usize, part: &str| {
        let path = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{name}/releases/web.{name}.{number}/{part}");
        kubectl.raw(&path)
    };
    for (number, value, other) in [(1, "first", "second"), (2, "second", "first")] {
        for part in ["spec", "state"] {
            let text = document(number, part);
            let says = |what: &str| text.contains(&format!("value: {what}"));
            assert!(
                text.contains(&format!("id: v1:ConfigMap:{namespace}:c1")) && says(value) && !says(other),
                "{part} {number}: {text}"
            );
        }
    }
    let of_release = |part: &str| format!("delivery.stoa.dev/v1alpha1/namespaces/{name}/releases/web.{name}.1/{part}");
    let started = second["metadata"]["name"].as_str().unwrap();
    for document in [
        of_release("spec"),
        of_release("state"),
        format!("delivery.stoa.dev/v1alpha1/namespaces/{name}/runs/{started}/log"),
        format!("config.stoa.dev/v1alpha1/namespaces/{name}/stacks/web/state"),
    ] {
        let refused = kubectl.refused(&["get", "--raw", &format!("/apis/{document}?format=xml")]);
        assert!(refused.contains(UNKNOWN_FORMAT), "{document}: {refused}");
    }
    // They are in the folder of the backend that the workspace names.
    let files = run(Command::new("find").arg(server.data().join("documents").join(name)).args(["-type", "f"]));
    assert!(files.lines().count() >= 4, "documents of two releases: {files}");
}

#[test]
fn records_show_resources_as_applied() {
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&*server);
    let name = &organization.name;
    organization.stack("web", &config_maps("web", 1, "a"));
    organization.succeed("web", "Preview", "");
    assert!(organization.of_stack("resources", "web").is_empty(), "recorded before it was applied");
    organization.succeed("web", "Apply", "");
    let records = organization.of_stack("resources", "web");
    let record = records.iter().find(|record| record["spec"]["id"] == "v1:ConfigMap:web:c0").unwrap();
    let kubernetes = &record["spec"]["kubernetes"];
    let identity = ["version", "kind", "namespace", "name"].map(|field| kubernetes[field].as_str().unwrap());
    assert_eq!(identity, ["v1", "ConfigMap", "web", "c0"]);
    assert_eq!(record["metadata"]["namespace"], name.as_str());
    assert_eq!(record["metadata"]["labels"]["stoa.dev/project"], name.as_str());
    assert_eq!((&record["spec"]["workspace"], &record["spec"]["release"]), (&name.as_str().into(), &1.into()));
    assert_eq!(record["status"]["phase"], "Applied");
    assert!(record["spec"]["lastAppliedTime"].is_string(), "{record:#}");

    // What becomes of the infrastructure afterwards is not looked at.
    let clone = Repository::clone_of(&organization.deploy);
    clone.git(&["rm", "--quiet", "-r", "."]);
    clone.git(&["commit", "--quiet", "--message", "Remove everything"]);
    clone.git(&["push", "--quiet"]);
    let object = format!("resource/{}", record["metadata"]["name"].as_str().unwrap());
    let again = kubectl.get(&[&object, "--namespace", name]);
    assert_eq!(&again, record);
}

#[test]
fn history_stays_as_long_as_its_stack() {
    let server = Cluster::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&server);
    let namespace = format!("{}-web", organization.name);
    let name = &organization.name;
    organization.stack("web", &config_maps(&namespace, 1, "a"));
    organization.succeed("web", "Apply", "");
    let resource = organization.of_stack("resources", "web")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let records = [format!("release/web.{name}.1"), format!("resource.delivery.stoa.dev/{resource}")];
    for record in &records {
        let refused = kubectl.refused(&["delete", record, "--namespace", name]);
        assert!(refused.contains("(Forbidden)") && refused.contains("history of stack \"web\""), "{refused}");
    }
    organization.succeed("web", "Destroy", "");
    kubectl.run(&["delete", &records[1], "--namespace", name]);
    kubectl.run(&["delete", "stack", "web", "--namespace", name]);
    kubectl.run(&["delete", &records[0], "--namespace", name]);
}

#[test]
fn readiness_is_that_of_the_latest_generation() {
    let server = Cluster::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&server);
    let namespace = format!("{}-web", organization.name);
    let name = &organization.name;
    organization.stack("web", &config_maps(&namespace, 1, "a"));
    organization.succeed("web", "Apply", "");
    let patch = "--patch={\"spec\":{\"description\":\"web\"}}";
    kubectl.run(&["patch", "stack/web", "--namespace", name, "--type=merge", patch]);
    kubectl.run(&["wait", "--for=condition=Ready", "--timeout=120s", "--namespace", name, "stack/web"]);
    let patch = "--patch={\"spec\":{\"workspaces\":[\"nowhere\"]}}";
    kubectl.run(&["patch", "stack/web", "--namespace", name, "--type=merge", patch]);
    let message = kubectl.watch(name, "stack/web", PATIENCE, |stack| {
        let ready = condition(stack, "Ready");
        (ready["status"] == "False").then(|| ready["message"].as_str().unwrap_or_default().to_owned())
    });
    assert_eq!(message, "workspace \"nowhere\" does not exist");
}

#[test]
fn execution_stays_on_record() {
    let server = Cluster::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&server);
    let namespace = format!("{}-web", organization.name);
    let commit = organization.stack("web", &config_maps(&namespace, 1, "a"));
    let run = organization.succeed("web", "Apply", "");
    organization.succeed("web", "Destroy", "");
    kubectl.run(&["delete", "stack", "web", "--namespace", &organization.name]);
    // What was executed is still told when the stack is gone.
    let kept = organization.run(run["metadata"]["name"].as_str().unwrap());
    assert_eq!(kept["status"]["requester"]["username"], "admin", "who: {kept:#}");
    assert_eq!((&kept["spec"]["stack"], &kept["spec"]["operation"]), (&"web".into(), &"Apply".into()), "what");
    assert_eq!(kept["status"]["source"]["commit"], commit.as_str(), "from which commit");
    let time = |field: &str| kept["status"][field].as_str().unwrap_or_default().to_owned();
    assert!(!time("startTime").is_empty() && time("startTime") <= time("completionTime"), "when: {kept:#}");
    assert_eq!(kept["status"]["plan"]["summary"]["create"], 2, "with which changes: {kept:#}");
    assert_eq!(kept["status"]["resources"].as_array().map(Vec::len), Some(2), "and what became of them: {kept:#}");
}

#[test]
fn configuration_is_read_and_never_written() {
    let server = Standalone::shared();
    let organization = Organization::create(&*server);
    organization.stack("web", &config_maps("web", 2, "a"));
    let everything = || {
        let files = organization.source.git(&["status", "--porcelain", "--untracked-files=all"]);
        organization.source.git(&["for-each-ref"]) + &files
    };
    let before = everything();
    for (operation, fields) in [("Preview", ""), ("Apply", ""), ("Rollback", "release: 1"), ("Destroy", "")] {
        organization.succeed("web", operation, fields);
    }
    assert_eq!(everything(), before);
}

#[test]
fn organization_takes_its_projects_along() {
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&*server);
    let name = &organization.name;
    organization.stack("web", &config_maps("web", 1, "a"));
    let of_name = ["projects,stacks", "--all-namespaces", &format!("--field-selector=metadata.namespace={name}")];
    assert_eq!(names(&kubectl.get(&of_name)), [name.as_str(), "web"]);
    kubectl.run(&["delete", "organization", name, "--timeout=120s"]);
    assert!(names(&kubectl.get(&of_name)).is_empty());
}
