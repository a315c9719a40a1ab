//! Each of Stoa's kinds is served as kinds of Kubernetes are.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use stoa_e2e::fixture::{Organization, config_maps};
use stoa_e2e::kinds::{Kind, kinds};
use stoa_e2e::{Cluster, Kubectl, Server, Standalone};

fn raw(kubectl: &Kubectl, path: &str) -> Value {
    serde_json::from_str(&kubectl.raw(path)).unwrap()
}

fn kinds_are_discovered(server: &dyn Server) {
    let kubectl = server.kubectl();
    for Kind { group, version, plural, categories, short_names, verbs, subresources, .. } in kinds() {
        let list = raw(&kubectl, &format!("/apis/{group}/{version}"));
        let rows = list["resources"].as_array().unwrap();
        let found = rows.iter().find(|row| row["name"] == plural).unwrap_or_else(|| panic!("no {plural} in {list:#}"));
        let names = |field: &str| found[field].as_array().cloned().unwrap_or_default();
        assert_eq!(json!(names("categories")), json!(categories), "{plural}");
        assert_eq!(json!(names("shortNames")), json!(short_names), "{plural}");
        assert_eq!(found["verbs"], json!(verbs), "{plural}");
        assert!(found["singularName"].as_str().is_some_and(|name| !name.is_empty()), "{found:#}");
        // Nothing is stored of a kind that is only created.
        let hash = found["storageVersionHash"].as_str().map(str::len);
        assert_eq!(hash, (verbs != ["create"]).then_some(12), "{found:#}");
        let subresource = |row: &Value| {
            let name = row["name"].as_str()?.strip_prefix(&plural)?.strip_prefix('/')?;
            Some((name.to_owned(), row["verbs"].clone()))
        };
        let found: BTreeMap<_, _> = rows.iter().filter_map(subresource).collect();
        let expected: BTreeMap<_, _> = subresources.into_iter().map(|(name, verbs)| (name, json!(verbs))).collect();
        assert_eq!(found, expected, "{plural}");
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
    let kinds = kinds();
    for (group, version) in kinds.iter().map(|kind| (&kind.group, &kind.version)).collect::<BTreeSet<_>>() {
        let document = raw(&kubectl, &format!("/openapi/v3/apis/{group}/{version}"));
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let own = schemas.iter().filter(|(name, _)| name.starts_with("dev.stoa."));
        own.for_each(|(name, schema)| undescribed(name, schema, &mut found));
    }
    for Kind { group, plural, .. } in &kinds {
        let explained = kubectl.run(&["explain", &format!("{plural}.{group}")]);
        assert!(explained.contains("DESCRIPTION:") && !explained.contains("<empty>"), "{explained}");
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
fn status_subresource_writes_only_status_standalone() {
    status_is_apart(&*Standalone::shared());
}

#[test]
fn status_subresource_writes_only_status_in_cluster() {
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
fn unknown_field_error_names_path_standalone() {
    unknown_fields_are_told(&*Standalone::shared());
}

#[test]
fn unknown_field_error_names_path_in_cluster() {
    unknown_fields_are_told(&Cluster::shared());
}
