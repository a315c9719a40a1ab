//! The files of authored objects.

use serde_json::{Value, json};
use stoa_git_path::ObjectPath;
use stoa_machinery::log::Key;

use crate::GIT_PATHS;

fn check(key: &str, object: Value, path: Option<&str>) {
    let found = GIT_PATHS.of_object(&Key::new(key), &object);
    assert_eq!(found.as_ref().map(ObjectPath::path).as_deref(), path, "{key}");
    if let Some(path) = path {
        assert_eq!(GIT_PATHS.of_path(path), found, "{path}");
        assert_eq!(found.map(|found| found.identity.key().to_string()).as_deref(), Some(key));
    }
}

#[test]
fn authored_objects_have_their_files() {
    let config = "/registry/config.stoa.dev";
    let platform = "/registry/platform.stoa.dev";
    for (key, path) in [
        (format!("{config}/organizations/shop"), "organizations/shop/organization.yaml"),
        (format!("{config}/projects/shop/web"), "organizations/shop/projects/web/project.yaml"),
        (format!("{config}/stacks/shop/web-dev"), "organizations/shop/projects/web/stacks/web-dev.yaml"),
        (format!("{config}/sources/shop/a.b"), "organizations/shop/sources/a.b.yaml"),
        (format!("{platform}/workspaces/dev"), "platform/workspaces/dev.yaml"),
        (format!("{platform}/backends/default"), "platform/backends/default.yaml"),
        (format!("{platform}/notificationsinks/chat"), "platform/notificationsinks/chat.yaml"),
        (format!("{platform}/variablesets/eu"), "platform/variablesets/eu.yaml"),
        (format!("{platform}/modules/network"), "platform/modules/network.yaml"),
    ] {
        check(&key, json!({"spec": {"project": "web"}}), Some(path));
        // Every folder on the way is looked into, and nothing behind a file.
        let ends = path.match_indices('/').map(|(end, _)| end).chain([0]);
        for folder in ends.map(|end| &path[..end]) {
            assert!(GIT_PATHS.may_be_under(folder), "{folder:?} of {path}");
        }
        assert!(!GIT_PATHS.may_be_under(&format!("{path}/in")), "{path}");
    }
}

#[test]
fn folders_of_others_are_not_looked_into() {
    for folder in [
        "docs",
        "organizations/",
        "organizations/.git",
        "organizations/shop/docs",
        "organizations/shop/projects/.git",
        "organizations/shop/projects/web/docs",
        "organizations/shop/projects/web/stacks/dev",
        "organizations/shop/sources/a",
        "platform/docs",
        "platform/workspaces/dev",
    ] {
        assert!(!GIT_PATHS.may_be_under(folder), "{folder}");
    }
}

#[test]
fn derived_and_core_kinds_have_none() {
    for key in [
        "/registry/delivery.stoa.dev/runs/shop/web-dev-1",
        "/registry/delivery.stoa.dev/releases/shop/web-dev.dev.1",
        "/registry/core/secrets/shop/git",
        "/registry/core/namespaces/shop",
        "/stoa/git/control",
    ] {
        check(key, json!({}), None);
    }
}

#[test]
fn names_that_lead_elsewhere_have_none() {
    for project in ["..", ".git", "", "a/b"] {
        check("/registry/config.stoa.dev/stacks/shop/web", json!({"spec": {"project": project}}), None);
    }
}

#[test]
fn other_files_are_peoples_own() {
    for path in [
        "README.md",
        "organizations/shop/README.yaml",
        "organizations/shop/projects/web/README.md",
        "organizations/shop/projects/web/stacks/dev/README.yaml",
        "organizations/shop/sources/config.yml",
        "platform/workspaces/.yaml",
        "platform/runs/x.yaml",
        "/platform/workspaces/dev.yaml",
        "organizations//organization.yaml",
    ] {
        assert_eq!(GIT_PATHS.of_path(path), None, "{path}");
    }
}
