use serde_json::{Value, json};
use stoa_control_repo::{Document, Layout as _, Location};
use stoa_machinery::{
    log::{Change, Key, Origin, Record, Version},
    schema::{self, Format},
};

use super::super::layout::ControlLayout;

fn render(key: &str, object: &Value) -> String {
    read(key, object).yaml().expect("rendered")
}

fn read(key: &str, object: &Value) -> Box<dyn Document> {
    ControlLayout.read(&Key::new(key), object.to_string().as_bytes()).expect("read")
}

fn stack() -> Value {
    json!({
        "apiVersion": "config.stoa.dev/v1alpha1",
        "kind": "Stack",
        "metadata": {
            "name": "web-dev", "namespace": "shop", "uid": "0b6f", "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"env": "dev"},
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{\"secretKey\":\"abc\"}",
                "note": "first line\nsecond line",
            },
            "finalizers": ["stoa.dev/infrastructure"],
            "managedFields": [{"manager": "kubectl"}],
            "ownerReferences": [],
        },
        "spec": {
            "project": "web", "stackName": "dev", "path": "apps/web/dev", "desiredVersion": "1.0",
            "workspaces": ["dev"], "trigger": "Manual", "driftInterval": "0s",
            "generator": {"type": "Auto", "parameters": {"cell": "on"}},
            "requireApproval": false, "deletionPolicy": "Refuse", "description": "The web shop, for developers",
        },
        "status": {"observedCommit": "abc"},
    })
}

#[test]
fn file_reads_as_what_it_says_with_defaults() {
    let path = "organizations/shop/projects/web/stacks/web-dev.yaml";
    let read = |file: &str| ControlLayout.read_file(path, file.as_bytes()).map(|read| read.yaml().expect("rendered"));
    let short = read("# ours\nspec: {description: null, project: web}\n").expect("it makes sense");
    assert!(short.contains("name: web-dev\n  namespace: shop\n") && short.contains("trigger: Manual\n"), "{short}");
    assert_eq!(read(&short), Some(short));
    assert_eq!(read("- none\n"), None);
    assert_eq!(read("spec: {project: [web]}\n"), None);
}

#[test]
fn file_contains_user_fields_in_reading_order() {
    insta::assert_snapshot!(render("/registry/config.stoa.dev/stacks/shop/web-dev", &stack()), @r#"
    apiVersion: config.stoa.dev/v1alpha1
    kind: Stack
    metadata:
      name: web-dev
      namespace: shop
      labels:
        env: dev
      annotations:
        note: |-
          first line
          second line
    spec:
      description: The web shop, for developers
      project: web
      stackName: dev
      path: apps/web/dev
      desiredVersion: "1.0"
      workspaces:
      - dev
      trigger: Manual
      driftInterval: 0s
      generator:
        type: Auto
        parameters:
          cell: "on"
      requireApproval: false
      deletionPolicy: Refuse
    "#);
}

#[test]
fn workspace_keeps_its_free_form_settings() {
    let object = json!({
        "metadata": {"name": "dev", "labels": {"env": "dev"}},
        "spec": {
            "backend": {"name": "default"},
            "gitops": {"repository": "file:///srv/deploy.git", "branch": "main", "directory": "dev", "mode": "Commit"},
            "context": {"kubernetes": {"config": "~/.kube/config"}, "replicas": 3, "ratio": 0.5, "none": null, "list": []},
            "requireApproval": false,
        },
    });
    insta::assert_snapshot!(render("/registry/platform.stoa.dev/workspaces/dev", &object), @r#"
    apiVersion: platform.stoa.dev/v1alpha1
    kind: Workspace
    metadata:
      name: dev
      labels:
        env: dev
    spec:
      backend:
        name: default
      gitops:
        repository: file:///srv/deploy.git
        branch: main
        directory: dev
        mode: Commit
      context:
        kubernetes:
          config: ~/.kube/config
        list: []
        none: null
        ratio: 0.5
        replicas: 3
      requireApproval: false
    "#);
}

/// Values that YAML readers of one version or another take for something else than text.
const TRICKY: &[&str] = &[
    "",
    " ",
    "yes",
    "no",
    "on",
    "off",
    "y",
    "n",
    "true",
    "null",
    "~",
    "1",
    "1.0",
    "1e3",
    "0x1f",
    "0o17",
    "017",
    "1_000",
    "1:30",
    "2026-01-01",
    "2026-01-01T00:00:00Z",
    ".inf",
    "-",
    "- a",
    "a: b",
    "a #b",
    "#a",
    "&a",
    "*a",
    "!a",
    "%a",
    "@a",
    "`a`",
    "'a'",
    "\"a\"",
    "a'b\"c",
    "{a}",
    "[a]",
    "<<",
    "=",
    "---",
    "...",
    "|",
    ">",
    "?",
    ":",
    ",",
    "\\n",
    "a\tb",
    " a",
    "a ",
    "a\nb",
    "a\nb\n",
    "\na",
    "a\n\n",
    "a\n  b\n",
    "  a\nb",
    "ä€😀",
    "a\u{7f}b",
    "a\u{85}b",
    "\u{feff}a",
    "a\r\nb",
];

#[test]
fn file_reads_back_as_what_was_stored() {
    let long = "a long description that goes on and on ".repeat(8);
    let longer = format!("{long}\n\n  {long}\nend");
    for text in TRICKY.iter().copied().chain([long.as_str(), longer.as_str()]) {
        let mut object = stack();
        object["spec"]["description"] = text.into();
        object["metadata"]["annotations"] = json!({"note": text});
        let file = render("/registry/config.stoa.dev/stacks/shop/web-dev", &object);
        let read =
            schema::parse(file.as_bytes(), Format::Yaml).unwrap_or_else(|error| panic!("{text:?}: {error}\n{file}"));
        assert_eq!(read.value["spec"], object["spec"], "{file}");
        assert_eq!(read.value["metadata"]["annotations"], object["metadata"]["annotations"], "{file}");
        assert!(read.strict.is_empty(), "{file}");
        let document = super::layout::read("/registry/config.stoa.dev/stacks/shop/web-dev", &object);
        assert_eq!(document.json().expect("it is JSON"), read.value, "{file}");
    }
}

fn location(key: &str, value: &[u8]) -> Location {
    ControlLayout.location(&Key::new(key), value)
}

#[test]
fn object_that_goes_has_no_file() {
    let mut object = stack();
    let key = "/registry/config.stoa.dev/stacks/shop/web-dev";
    let location = |object: &Value| location(key, object.to_string().as_bytes());
    let path = "organizations/shop/projects/web/stacks/web-dev.yaml";
    assert_eq!(location(&object), Location::At(path.to_owned()));
    object["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
    assert_eq!(location(&object), Location::Nowhere);
}

#[test]
fn undecodable_object_location_comes_from_key() {
    let elsewhere = br#"{"metadata": {"name": "web"}, "spec": {"project": "other", "workspaces": 1}}"#;
    for value in [b"not JSON".as_slice(), b"{}", elsewhere, br#"{"metadata": {"name": "web"}, "spec": {}}"#] {
        let project = location("/registry/config.stoa.dev/projects/shop/web", value);
        assert_eq!(project, Location::At("organizations/shop/projects/web/project.yaml".to_owned()));
        assert_eq!(location("/registry/config.stoa.dev/stacks/shop/web", value), Location::Unknown);
        assert_eq!(location("/registry/delivery.stoa.dev/runs/shop/web", value), Location::Nowhere);
    }
}

#[test]
fn server_fields_cause_no_file_difference() {
    let key = Key::new("/registry/config.stoa.dev/stacks/shop/web-dev");
    let alike = |pointer: &str, value: Value| {
        let mut other = stack();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        other.pointer_mut(parent).unwrap()[name] = value;
        ControlLayout.reads_alike(&key, stack().to_string().as_bytes(), other.to_string().as_bytes())
    };
    assert!(alike("/status/observedCommit", json!("def")) && alike("/metadata/generation", json!(4)));
    assert!(!alike("/spec/path", json!("apps")) && !alike("/metadata/labels/env", json!("prod")));
    assert!(!alike("/metadata/annotations/note", json!("")));
    assert!(!alike("/metadata/name", json!("other")) && !alike("/metadata/namespace", json!("other")));
    let mut bare = stack();
    bare["metadata"].as_object_mut().unwrap().remove("labels");
    let mut null = bare.clone();
    null["metadata"]["labels"] = Value::Null;
    assert!(!ControlLayout.reads_alike(&key, null.to_string().as_bytes(), bare.to_string().as_bytes()));
    assert!(!alike("/metadata/deletionTimestamp", json!("2026-01-02T00:00:00Z")), "it has no file any more");
    assert!(!ControlLayout.reads_alike(&key, b"{", b"{"), "nobody knows");
    assert!(!ControlLayout.reads_alike(&Key::new("/registry/delivery.stoa.dev/runs/shop/a"), b"{}", b"{}"));
}

#[test]
fn subject_says_what_was_decided() {
    let before = json!({"spec": {"desiredVersion": "v1"}});
    let subject = |key: &str, verb: &str, now: Option<Value>| {
        let origin = Origin { user: "ann".to_owned(), verb: verb.to_owned(), message: String::new() };
        let change = if now.is_some() { Change::Put("{}".into()) } else { Change::Delete };
        let record = Record { version: Version(1), key: Key::new(key), change, origin, time_ms: 0 };
        ControlLayout.subject(&record, Some(&before), now.as_ref())
    };
    let (stack, project) =
        ("/registry/config.stoa.dev/stacks/shop/web-dev", "/registry/config.stoa.dev/projects/shop/web");
    let workspace = "/registry/platform.stoa.dev/workspaces/dev";
    let empty = || Some(json!({}));
    assert_eq!(subject(stack, "create", empty()), "create stack shop/web-dev");
    let moved = Some(json!({"spec": {"desiredVersion": "v2"}}));
    assert_eq!(subject(stack, "patch", moved), "update stack shop/web-dev: spec.desiredVersion");
    assert_eq!(subject(stack, "patch", Some(before.clone())), "update stack shop/web-dev");
    assert_eq!(subject(workspace, "update", empty()), "update workspace dev: spec");
    assert_eq!(subject(workspace, "patch", empty()), "update workspace dev: spec");
    assert_eq!(subject(project, "delete", empty()), "delete project shop/web");
    assert_eq!(subject(project, "delete", None), "delete project shop/web");
}

#[test]
fn what_kubectl_keeps_for_itself_is_not_written() {
    let mut object = stack();
    object["metadata"]["annotations"] = json!({"note": "x", "kubectl.kubernetes.io/last-applied-configuration": "{}"});
    let document = read("/registry/config.stoa.dev/stacks/shop/web-dev", &object);
    assert_eq!(document.json().expect("it is JSON")["metadata"]["annotations"], json!({"note": "x"}));
}

#[test]
fn records_of_destroyed_deployments_outlive_the_log() {
    assert!(ControlLayout.outlives_log("organizations/shop/destroyed/web/dev.yaml"));
    for path in ["organizations/shop/sources/config.yaml", "organizations/shop/organization.yaml"] {
        assert!(!ControlLayout.outlives_log(path), "{path}");
    }
}
