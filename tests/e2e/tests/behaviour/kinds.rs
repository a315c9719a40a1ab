//! Each of Stoa's kinds is served as kinds of Kubernetes are.

use serde_json::{Value, json};
use stoa_e2e::fixture::{Organization, config_maps};
use stoa_e2e::{Cluster, Kubectl, Server, Standalone};

/// Every group, with its kinds as URLs have them.
const GROUPS: [(&str, &[&str]); 3] = [
    ("config.stoa.dev", &["organizations", "projects", "sources", "stacks"]),
    ("delivery.stoa.dev", &["releases", "resources", "runs", "workflows"]),
    ("platform.stoa.dev", &["backends", "notificationsinks", "workspaces"]),
];

fn raw(kubectl: &Kubectl, path: &str) -> Value {
    serde_json::from_str(&kubectl.raw(path)).unwrap()
}

fn kinds_are_discovered(server: &dyn Server) {
    let kubectl = server.kubectl();
    for (group, kinds) in GROUPS {
        let list = raw(&kubectl, &format!("/apis/{group}/v1alpha1"));
        let rows = list["resources"].as_array().unwrap();
        let row = |name: &str| rows.iter().find(|row| row["name"] == name);
        for kind in kinds {
            let found = row(kind).unwrap_or_else(|| panic!("{kind} are not in {list:#}"));
            assert_eq!(found["categories"], json!(["stoa"]), "{kind}");
            assert!(found["singularName"].as_str().is_some_and(|name| !name.is_empty()), "{found:#}");
            assert!(found["storageVersionHash"].as_str().is_some_and(|hash| hash.len() == 12), "{found:#}");
            let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
            assert_eq!(found["verbs"], json!(verbs), "{kind}");
            assert!(row(&format!("{kind}/scale")).is_none(), "{kind} have no replicas");
            // A release is a record, and is as it is.
            let status = row(&format!("{kind}/status")).map(|row| row["verbs"].clone());
            let expected = (*kind != "releases").then(|| json!(["get", "patch", "update"]));
            assert_eq!(status, expected, "{kind}");
        }
    }
}

#[test]
fn kinds_are_discovered_on_their_own() {
    kinds_are_discovered(&*Standalone::shared());
}

#[test]
fn kinds_are_discovered_in_a_cluster() {
    kinds_are_discovered(&Cluster::shared());
}

/// The fields of a schema and of those inside of it that say nothing of themselves.
fn undescribed(path: &str, schema: &Value, found: &mut Vec<String>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if property["description"].as_str().is_none_or(str::is_empty) {
            found.push(path.clone());
        }
        undescribed(&path, property, found);
        undescribed(&path, &property["items"], found);
        undescribed(&path, &property["additionalProperties"], found);
    }
}

#[test]
fn every_field_of_every_kind_is_explained() {
    // Behind a cluster, documents come a while after the server.
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    let mut found = Vec::new();
    for (group, kinds) in GROUPS {
        let document = raw(&kubectl, &format!("/openapi/v3/apis/{group}/v1alpha1"));
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let own = schemas.iter().filter(|(name, _)| name.starts_with("dev.stoa."));
        own.for_each(|(name, schema)| undescribed(name, schema, &mut found));
        for kind in kinds {
            let explained = kubectl.run(&["explain", &format!("{kind}.{group}")]);
            assert!(explained.contains("DESCRIPTION:") && !explained.contains("<empty>"), "{explained}");
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

/// The objects that people write, as kubectl names them.
fn authored(organization: &Organization) -> Vec<String> {
    organization.stack("web", &config_maps("app", 1, "a"));
    let named = ["organization", "project", "workspace", "backend"];
    let mut objects: Vec<String> = named.map(|kind| format!("{kind}.{}/{}", group(kind), organization.name)).into();
    objects.extend(["source.config.stoa.dev/config".to_owned(), "stack.config.stoa.dev/web".to_owned()]);
    objects
}

fn group(kind: &str) -> &'static str {
    if matches!(kind, "workspace" | "backend") { "platform.stoa.dev" } else { "config.stoa.dev" }
}

fn status_is_apart(server: &dyn Server) {
    let kubectl = server.kubectl();
    let organization = Organization::create(server);
    let patch = |object: &str, more: &[&str], patch: &Value| -> Value {
        let patch = format!("--patch={patch}");
        let begin = ["patch", object, "--namespace", &organization.name, "--type=merge", "--output=json", &patch];
        serde_json::from_str(&kubectl.run(&[&begin, more].concat())).unwrap()
    };
    let probe = json!([{
        "type": "Probed", "status": "True", "reason": "Test", "message": "",
        "lastTransitionTime": "2020-01-01T00:00:00Z",
    }]);
    for object in authored(&organization) {
        let before = kubectl.get(&[&object, "--namespace", &organization.name]);
        let both = json!({ "spec": { "description": "by status" }, "status": { "conditions": probe } });
        let by_status = patch(&object, &["--subresource=status"], &both);
        assert_eq!(by_status["status"]["conditions"][0]["type"], "Probed", "{by_status:#}");
        assert_eq!(by_status["spec"], before["spec"], "{object}");
        assert_eq!(by_status["metadata"]["generation"], before["metadata"]["generation"], "{object}");

        let both = json!({ "spec": { "description": "by spec" }, "status": { "conditions": [] } });
        let by_spec = patch(&object, &[], &both);
        assert_eq!(by_spec["spec"]["description"], "by spec", "{object}");
        assert_ne!(by_spec["status"]["conditions"], json!([]), "{object}");
        let generation = before["metadata"]["generation"].as_i64().unwrap();
        assert_eq!(by_spec["metadata"]["generation"], generation + 1, "{object}");
        let again = patch(&object, &[], &json!({ "spec": { "description": "by spec" } }));
        assert_eq!(again["metadata"]["generation"], generation + 1, "{object}");
    }
}

#[test]
fn status_is_written_apart_from_the_rest_on_its_own() {
    status_is_apart(&*Standalone::shared());
}

#[test]
fn status_is_written_apart_from_the_rest_in_a_cluster() {
    status_is_apart(&Cluster::shared());
}

fn unknown_fields_are_told(server: &dyn Server) {
    let kubectl = server.kubectl();
    let organization = Organization::create(server);
    for object in authored(&organization) {
        let patch = "--patch={\"spec\":{\"nonsense\":{\"a\":1}},\"other\":1}";
        let begin = ["patch", &object, "--namespace", &organization.name, "--type=merge", patch];
        let output = kubectl.command(&begin).output().unwrap();
        let warnings = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{warnings}");
        for path in ["spec.nonsense", "other"] {
            assert!(warnings.contains(&format!("Warning: unknown field \"{path}\"")), "{object}: {warnings}");
        }
    }
}

#[test]
fn unknown_fields_are_told_by_their_path_on_their_own() {
    unknown_fields_are_told(&*Standalone::shared());
}

#[test]
fn unknown_fields_are_told_by_their_path_in_a_cluster() {
    unknown_fields_are_told(&Cluster::shared());
}
