//! The kinds that are in Git, as data: a new one is one value here.
//!
//! ```text
//! organizations/<org>/organization.yaml
//! organizations/<org>/sources/<name>.yaml
//! organizations/<org>/projects/<project>/project.yaml
//! organizations/<org>/projects/<project>/stacks/<stack>.yaml
//! platform/workspaces/<name>.yaml
//! platform/backends/<name>.yaml
//! platform/notificationsinks/<name>.yaml
//! ```
//!
//! Elsewhere: the files `organizations/<org>/destroyed/…`, which stand for no object, are in [`stoa_kinds::destroyed`].

use stoa_control_repo::{GitPath, GitPaths, document};
use stoa_types::{config, platform};

/// The one version that both groups have.
const VERSION: &str = "v1alpha1";

pub(super) static ORGANIZATION: GitPath = GitPath {
    group: "config.stoa.dev",
    version: VERSION,
    kind: "Organization",
    singular: "organization",
    plural: "organizations",
    pattern: "organizations/{name}/organization.yaml",
    removal_waits_for_references: false,
    document: document::<config::OrganizationSpec>,
};

static PROJECT: GitPath = GitPath {
    group: "config.stoa.dev",
    version: VERSION,
    kind: "Project",
    singular: "project",
    plural: "projects",
    pattern: "organizations/{namespace}/projects/{name}/project.yaml",
    removal_waits_for_references: false,
    document: document::<config::ProjectSpec>,
};

static STACK: GitPath = GitPath {
    group: "config.stoa.dev",
    version: VERSION,
    kind: "Stack",
    singular: "stack",
    plural: "stacks",
    pattern: "organizations/{namespace}/projects/{spec.project}/stacks/{name}.yaml",
    removal_waits_for_references: false,
    document: document::<config::StackSpec>,
};

static SOURCE: GitPath = GitPath {
    group: "config.stoa.dev",
    version: VERSION,
    kind: "Source",
    singular: "source",
    plural: "sources",
    pattern: "organizations/{namespace}/sources/{name}.yaml",
    removal_waits_for_references: true,
    document: document::<config::SourceSpec>,
};

static WORKSPACE: GitPath = GitPath {
    group: "platform.stoa.dev",
    version: VERSION,
    kind: "Workspace",
    singular: "workspace",
    plural: "workspaces",
    pattern: "platform/workspaces/{name}.yaml",
    removal_waits_for_references: false,
    document: document::<platform::WorkspaceSpec>,
};

static BACKEND: GitPath = GitPath {
    group: "platform.stoa.dev",
    version: VERSION,
    kind: "Backend",
    singular: "backend",
    plural: "backends",
    pattern: "platform/backends/{name}.yaml",
    removal_waits_for_references: true,
    document: document::<platform::BackendSpec>,
};

static NOTIFICATION_SINK: GitPath = GitPath {
    group: "platform.stoa.dev",
    version: VERSION,
    kind: "NotificationSink",
    singular: "notificationsink",
    plural: "notificationsinks",
    pattern: "platform/notificationsinks/{name}.yaml",
    removal_waits_for_references: false,
    document: document::<platform::NotificationSinkSpec>,
};

/// All kinds that people write, and that therefore are in Git.
pub(super) const PATHS: GitPaths =
    GitPaths(&[&ORGANIZATION, &PROJECT, &STACK, &SOURCE, &WORKSPACE, &BACKEND, &NOTIFICATION_SINK]);

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use stoa_control_repo::ObjectPath;
    use stoa_machinery::log::Key;

    use super::*;

    fn check(key: &str, object: Value, path: Option<&str>) {
        let found = PATHS.of_object(&Key::new(key), &object);
        assert_eq!(found.as_ref().map(ObjectPath::path).as_deref(), path, "{key}");
        if let Some(path) = path {
            assert_eq!(PATHS.of_path(path), found, "{path}");
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
        ] {
            check(&key, json!({"spec": {"project": "web"}}), Some(path));
            // Every folder on the way is looked into, and nothing behind a file.
            let ends = path.match_indices('/').map(|(end, _)| end).chain([0]);
            for folder in ends.map(|end| &path[..end]) {
                assert!(PATHS.may_be_under(folder), "{folder:?} of {path}");
            }
            assert!(!PATHS.may_be_under(&format!("{path}/in")), "{path}");
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
            assert!(!PATHS.may_be_under(folder), "{folder}");
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
            assert_eq!(PATHS.of_path(path), None, "{path}");
        }
    }
}
