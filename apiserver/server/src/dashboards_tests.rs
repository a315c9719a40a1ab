//! The dashboards in `manifests/dashboards`, and the alerts in `manifests/alerts`: the API serves each query, and a process
//! reports each metric.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use kube::CustomResourceExt as _;
use serde_json::Value;
use stoa_kinds::hub::deployment_query;
use stoa_types::{hub::DeploymentState, names};

use crate::testing::TestServer;

/// The beginnings of the names of metrics in expressions.
const METRICS: [&str; 7] = ["agent_", "apiserver_", "engine_", "process_", "runner_", "stoa_", "workqueue_"];
/// The endings that Prometheus adds to the names of histograms.
const OF_HISTOGRAMS: [&str; 3] = ["_bucket", "_count", "_sum"];
/// Metrics whose names have a common beginning in the source.
const NOTIFICATIONS: &str = "stoa_notification_";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The dashboards by the names of their files.
fn dashboards() -> BTreeMap<String, Value> {
    let folder = repository().join("manifests/dashboards");
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        (name.clone(), serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}")))
    };
    files.filter(|path| path.extension().is_some_and(|extension| extension == "json")).map(read).collect()
}

/// All maps in a document that have a field.
fn with<'v>(value: &'v Value, field: &str, found: &mut Vec<&'v Value>) {
    match value {
        Value::Object(map) => {
            if map.contains_key(field) {
                found.push(value);
            }
            map.values().for_each(|value| with(value, field, found));
        }
        Value::Array(items) => items.iter().for_each(|value| with(value, field, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_else(|| panic!("{field} of {value}"))
}

/// Whether DeploymentStates have a field such as `spec.host`.
fn is_state_field(definition: &Value, path: &str) -> bool {
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    path == "metadata.name" || path.split('.').fold(schema, |schema, name| &schema["properties"][name]).is_object()
}

/// The text of all Rust sources below a folder, without those of tests.
fn sources(folder: &Path, all: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.contains("tests") || name == "target" {
            continue;
        }
        if path.is_dir() {
            sources(&path, all);
        } else if name.ends_with(".rs") {
            all.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn dashboards_are_in_the_kustomization() {
    let kustomization = fs::read_to_string(repository().join("manifests/dashboards/kustomization.yaml")).unwrap();
    assert!(kustomization.contains("grafana_dashboard: \"1\""), "{kustomization}");
    let mut uids = Vec::new();
    for (file, dashboard) in dashboards() {
        assert!(kustomization.contains(&format!("files: [{file}]")), "{file} is in no ConfigMap");
        uids.push(text(&dashboard, "uid").to_owned());
        let mut panels: Vec<i64> =
            dashboard["panels"].as_array().unwrap().iter().map(|panel| panel["id"].as_i64().unwrap()).collect();
        panels.dedup();
        assert_eq!(panels.len(), dashboard["panels"].as_array().unwrap().len(), "{file}: ids of panels are unique");
    }
    uids.sort();
    uids.dedup();
    assert_eq!(uids.len(), 5);
}

/// Checks that the API serves a query of a file, with its columns and parameters.
fn check_query(server: &TestServer, file: &str, namespace: &str, query: &Value) {
    let definition = serde_json::to_value(DeploymentState::crd()).unwrap();
    let rows =
        [include_str!("subresources/deployment_rows.rs"), include_str!("subresources/deployment_rows/counted.rs")];
    let url = text(query, "url");
    let parts: Vec<&str> = url.split('/').collect();
    let ["", "apis", group, version, "namespaces", of, plural, rest @ ..] = parts.as_slice() else {
        panic!("{file}: {url}");
    };
    assert_eq!(*of, namespace, "{file}: {url}");
    let store = server.registry.store(group, version, plural);
    let store = store.unwrap_or_else(|| panic!("{file}: no resource is at {url}"));
    let is_states = *plural == names::plural::<DeploymentState>();
    match rest {
        [] => assert!(is_states && store.definition().verbs.contains(&"list"), "{file}: {url}"),
        [name, subresource] => {
            let found = store.definition().subresources.iter().find(|of| of.name == *subresource);
            assert!(found.is_some_and(|of| of.verbs.contains(&"get")), "{file}: {url}");
            assert!(deployment_query::exists(name), "{file}: {url}");
        }
        _ => panic!("{file}: {url}"),
    }
    assert_eq!(query["root_selector"], if is_states { "items" } else { "" }, "{file}: {url}");
    for column in query["columns"].as_array().unwrap() {
        let selector = text(column, "selector");
        let is_there = match is_states {
            true => is_state_field(&definition, selector),
            false => rows.iter().any(|source| source.contains(&format!("\"{selector}\":"))),
        };
        assert!(is_there, "{file}: {url} has no field {selector}");
    }
    for parameter in query["url_options"]["params"].as_array().unwrap() {
        let (key, value) = (text(parameter, "key"), text(parameter, "value"));
        let field = value.split_once('=').map(|(field, _)| field);
        let is_known = match is_states {
            true => key == "fieldSelector" && field.is_none_or(|field| is_state_field(&definition, field)),
            false => deployment_query::has_parameter(rest[0], key),
        };
        assert!(is_known, "{file}: {url} has no parameter {key}={value}");
    }
}

#[tokio::test]
async fn api_serves_the_queries_of_dashboards() {
    let server = TestServer::new().await;
    let mut count = 0;
    for (file, dashboard) in dashboards() {
        let mut queries = Vec::new();
        with(&dashboard, "url", &mut queries);
        for query in queries {
            check_query(&server, &file, "${namespace}", query);
            count += 1;
        }
    }
    assert!(count > 10, "{count} queries");
    let definition = serde_json::to_value(DeploymentState::crd()).unwrap();
    assert!(!is_state_field(&definition, "spec.nope") && !deployment_query::has_parameter("lag", "host"));
}

#[tokio::test]
async fn alerts_compare_numbers_that_the_api_serves() {
    let server = TestServer::new().await;
    let folder = repository().join("manifests/alerts");
    let kustomization = fs::read_to_string(folder.join("kustomization.yaml")).unwrap();
    assert!(kustomization.contains("grafana_alert: \"1\"") && kustomization.contains("files: [hub.json]"));
    let alerts: Value = serde_json::from_str(&fs::read_to_string(folder.join("hub.json")).unwrap()).unwrap();
    let mut columns = Vec::new();
    for rule in alerts["groups"][0]["rules"].as_array().unwrap() {
        let title = text(rule, "title");
        let [query, threshold] = &rule["data"].as_array().unwrap()[..] else { panic!("{title}: {rule:#}") };
        assert_eq!((&rule["condition"], &threshold["model"]["expression"]), (&threshold["refId"], &query["refId"]));
        check_query(&server, title, "fleet", &query["model"]);
        // Grafana compares the number of each row, whose texts are the labels of the alert.
        let all = query["model"]["columns"].as_array().unwrap();
        let (numbers, labels): (Vec<&Value>, Vec<&Value>) = all.iter().partition(|column| column["type"] == "number");
        assert_eq!(numbers.len(), 1, "{title}");
        columns.push(text(numbers[0], "selector"));
        let summary = text(&rule["annotations"], "summary");
        for label in labels {
            assert!(summary.contains(&format!("{{{{ .Labels.{} }}}}", text(label, "text"))), "{title}: {summary}");
        }
    }
    assert_eq!(columns, ["failed", "inProgress", "unknown"]);
}

#[test]
fn processes_report_the_metrics_of_dashboards() {
    let mut source = String::new();
    for folder in ["apiserver", "function-runner"] {
        sources(&repository().join(folder), &mut source);
    }
    let is_reported = |name: &str| {
        let is_literal = |name: &str| source.contains(&format!("\"{name}\""));
        is_literal(name) || name.strip_prefix(NOTIFICATIONS).is_some_and(is_literal)
    };
    let mut count = 0;
    for (file, dashboard) in dashboards() {
        let mut targets = Vec::new();
        with(&dashboard, "expr", &mut targets);
        for target in targets {
            let expression = text(target, "expr");
            let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let metrics: Vec<&str> =
                words.filter(|word| METRICS.iter().any(|beginning| word.starts_with(beginning))).collect();
            assert!(!metrics.is_empty(), "{file}: {expression}");
            for metric in metrics {
                let of_histogram = OF_HISTOGRAMS.iter().find_map(|ending| metric.strip_suffix(ending));
                let is_there = is_reported(metric) || of_histogram.is_some_and(is_reported);
                assert!(is_there, "{file}: no process reports {metric}");
                count += 1;
            }
        }
    }
    assert!(count > 20, "{count} metrics");
    assert!(!is_reported("stoa_nope_total"));
}
