//! Writes behave as those of built-in kinds.

use std::fs;

use serde_json::{Value, json};
use stoa_e2e::fixture::{Organization, config_maps};
use stoa_e2e::{Cluster, Kubectl, Server, Standalone};

/// Replaces an object with kubectl; what it said when that failed.
fn replace(kubectl: &Kubectl, object: &Value) -> Result<(), String> {
    let file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    fs::write(file.path(), object.to_string()).unwrap();
    let output = kubectl.command(&["replace", "--filename", file.path().to_str().unwrap()]).output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8(output.stderr).unwrap()) }
}

fn stale_write_conflicts(server: &dyn Server) {
    let kubectl = server.kubectl();
    let organization = Organization::create(server);
    let mut stale = kubectl.get(&["project", &organization.name, "--namespace", &organization.name]);
    let label = ["label", "project", &organization.name, "--namespace", &organization.name, "tier=front"];
    kubectl.run(&label);
    stale["spec"]["description"] = "stale".into();
    let said = replace(&kubectl, &stale).expect_err("a stale write was accepted");
    let sentence = format!(
        "Operation cannot be fulfilled on projects.config.stoa.dev \"{}\": the object has been modified; please apply your changes to the latest version and try again",
        organization.name
    );
    assert!(said.contains("(Conflict)") && said.contains(&sentence), "{said}");
    let now = kubectl.get(&["project", &organization.name, "--namespace", &organization.name]);
    assert_eq!((&now["spec"]["description"], &now["metadata"]["labels"]["tier"]), (&Value::Null, &"front".into()));
}

#[test]
fn stale_write_conflicts_and_changes_nothing_on_its_own() {
    stale_write_conflicts(&*Standalone::shared());
}

#[test]
fn stale_write_conflicts_and_changes_nothing_in_a_cluster() {
    stale_write_conflicts(&Cluster::shared());
}

fn finalizer_holds(server: &dyn Server) {
    let kubectl = server.kubectl();
    let organization = Organization::create(server);
    let name = &organization.name;
    kubectl.apply(&format!(
        "{{apiVersion: config.stoa.dev/v1alpha1, kind: Source, metadata: {{name: held, namespace: {name}}},
          spec: {{remote: \"file:///held.git\"}}}}"
    ));
    let on_source = |args: &[&str]| kubectl.run(&[args, &["source/held", "--namespace", name]].concat());
    let finalizers = |list: &str| {
        on_source(&["patch", "--type=merge", &format!("--patch={{\"metadata\":{{\"finalizers\":{list}}}}}")])
    };
    finalizers("[\"example.com/hold\"]");
    on_source(&["delete", "--wait=false"]);
    let held = kubectl.get(&["source", "held", "--namespace", name]);
    assert!(held["metadata"]["deletionTimestamp"].is_string(), "{held:#}");
    let more = "--patch={\"metadata\":{\"finalizers\":[\"example.com/hold\",\"example.com/more\"]}}";
    let refused = kubectl.refused(&["patch", "source/held", "--namespace", name, "--type=merge", more]);
    assert!(
        refused
            .contains("metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted"),
        "{refused}"
    );
    finalizers("null");
    kubectl.run(&["wait", "--for=delete", "--timeout=120s", "source/held", "--namespace", name]);
}

#[test]
fn finalizer_delays_deletion_standalone() {
    finalizer_holds(&*Standalone::shared());
}

#[test]
fn finalizer_delays_deletion_in_cluster() {
    finalizer_holds(&Cluster::shared());
}

#[test]
fn generation_counts_changes_of_the_spec_and_nothing_else() {
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&*server);
    let name = &organization.name;
    let generation = || kubectl.get(&["project", name, "--namespace", name])["metadata"]["generation"].clone();
    let patch =
        |patch: &str| kubectl.run(&["patch", "project", name, "--namespace", name, "--type=merge", "--patch", patch]);
    assert_eq!(generation(), 1);
    patch("{\"metadata\":{\"labels\":{\"a\":\"b\"}}}");
    assert_eq!(generation(), 1);
    patch("{\"spec\":{\"description\":\"x\"}}");
    assert_eq!(generation(), 2);
    // The status is written by itself only, and without counting.
    patch("{\"status\":{\"stacks\":77}}");
    let project = kubectl.get(&["project", name, "--namespace", name]);
    assert_ne!(project["status"]["stacks"], 77, "{project:#}");
    assert_eq!(generation(), 2);
    let version = project["metadata"]["resourceVersion"].clone();
    patch("{\"spec\":{\"description\":\"x\"}}");
    let again = kubectl.get(&["project", name, "--namespace", name]);
    assert_eq!(again["metadata"]["resourceVersion"], version, "a write that changes nothing makes a version");
}

#[test]
fn what_was_decided_once_does_not_change() {
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&*server);
    let name = &organization.name;
    organization.stack("web", &config_maps("app", 1, "a"));
    let run = organization.succeed("web", "Apply", "");
    let run = format!("run/{}", run["metadata"]["name"].as_str().unwrap());
    let release = format!("release/web.{name}.1");
    for (object, patch, wanted) in [
        (run.as_str(), json!({"spec": {"operation": "Destroy"}}), "a run is immutable"),
        (&release, json!({"spec": {"tombstone": true}}), "field is immutable"),
        (
            "stack/web",
            json!({"spec": {"project": "other"}}),
            "spec.project: Invalid value: \"other\": field is immutable",
        ),
        (&format!("project/{name}"), json!({"spec": {"source": {"name": "other"}}}), "field is immutable"),
    ] {
        let patch = format!("--patch={patch}");
        let refused = kubectl.refused(&["patch", object, "--namespace", name, "--type=merge", &patch]);
        assert!(refused.contains(wanted), "{object}: {refused}");
    }
    let made = kubectl.create_refused(&format!(
        "{{apiVersion: delivery.stoa.dev/v1alpha1, kind: Release, metadata: {{name: forged, namespace: {name}}},
          spec: {{stack: web, stackUID: x, workspace: {name}, revision: 9, run: x, planDigest: x, specDigest: x, stateDigest: x}}}}"
    ));
    assert!(made.contains("(Forbidden)") && made.contains("written by Stoa alone"), "{made}");
}

fn unknown_field_is_refused(server: &dyn Server) {
    let organization = Organization::create(server);
    let said = server.kubectl().create_refused(&format!(
        "{{apiVersion: config.stoa.dev/v1alpha1, kind: Source, metadata: {{name: a, namespace: {}}}, spec: {{remote: x, remotes: y}}}}",
        organization.name
    ));
    assert!(said.contains("strict decoding error: unknown field \"spec.remotes\""), "{said}");
}

#[test]
fn unknown_field_is_refused_by_name_on_its_own() {
    unknown_field_is_refused(&*Standalone::shared());
}

#[test]
fn unknown_field_is_refused_by_name_in_a_cluster() {
    unknown_field_is_refused(&Cluster::shared());
}

fn pages_are_one_snapshot(server: &dyn Server) {
    let kubectl = server.kubectl();
    let organization = Organization::create(server);
    let name = &organization.name;
    let manifest: Vec<String> = (0..25)
        .map(|number| {
            format!(
                "apiVersion: config.stoa.dev/v1alpha1\nkind: Source\nmetadata: {{name: s{number:02}, namespace: {name}, labels: {{paged: \"yes\"}}}}\nspec: {{remote: \"file:///none-{number}.git\", pollInterval: 1h}}\n"
            )
        })
        .collect();
    kubectl.create(&manifest.join("---\n"));
    let page = |query: &str| -> Value {
        let path = format!(
            "/apis/config.stoa.dev/v1alpha1/namespaces/{name}/sources?labelSelector=paged%3Dyes&limit=10{query}"
        );
        serde_json::from_str(&kubectl.raw(&path)).unwrap()
    };
    let names = |page: &Value| -> Vec<String> {
        page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let first = page("");
    assert_eq!(names(&first).len(), 10);
    // What is written between pages does not show on them.
    kubectl.run(&["delete", "source", "s15", "--namespace", name]);
    let mut seen = names(&first);
    let mut last = first.clone();
    while let Some(token) = last["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
        last = page(&format!("&continue={token}"));
        assert_eq!(last["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
        seen.extend(names(&last));
    }
    let expected: Vec<String> = (0..25).map(|number| format!("s{number:02}")).collect();
    assert_eq!(seen, expected);
    kubectl.run(&["delete", "sources", "--selector=paged=yes", "--namespace", name]);
    assert_eq!(names(&page("")).len(), 0);
}

#[test]
fn pages_are_one_snapshot_on_its_own() {
    pages_are_one_snapshot(&*Standalone::shared());
}

#[test]
fn pages_are_one_snapshot_in_a_cluster() {
    pages_are_one_snapshot(&Cluster::shared());
}

#[test]
fn writes_survive_a_crash_of_the_server() {
    let mut server = Standalone::start();
    let organization = Organization::create(&server);
    let name = organization.name.clone();
    let kubectl = server.kubectl();
    let before = kubectl.get(&["sources,projects", "--namespace", &name]);
    let created: Vec<Value> = (0..5)
        .map(|number| {
            let source = format!("s{number}");
            kubectl.create(&format!(
                "{{apiVersion: config.stoa.dev/v1alpha1, kind: Source, metadata: {{name: {source}, namespace: {name}}},
                  spec: {{remote: \"file:///{source}.git\", pollInterval: 1h}}}}"
            ));
            kubectl.get(&["source", &source, "--namespace", &name])["metadata"]["uid"].clone()
        })
        .collect();
    server.kill();
    server.restart();
    let after = kubectl.get(&["sources,projects", "--namespace", &name]);
    let uids = |list: &Value| -> Vec<Value> {
        list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["uid"].clone()).collect()
    };
    for uid in uids(&before).iter().chain(&created) {
        assert!(uids(&after).contains(uid), "an acknowledged object is lost");
    }
}
