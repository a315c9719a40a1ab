//! Which file stands for which object.
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

use serde_json::Value;
use stoa_machinery::{ResourceDefinition, log::Key};

/// The kinds that people write, and that therefore are in Git.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Authored {
    Organization,
    Project,
    Stack,
    Source,
    Workspace,
    Backend,
    NotificationSink,
}

/// The group of what application teams write.
const CONFIG: &str = "config.stoa.dev";
/// The group of what the platform team writes.
const PLATFORM: &str = "platform.stoa.dev";
/// The one version that both groups have.
pub(super) const VERSION: &str = "v1alpha1";
const SUFFIX: &str = ".yaml";

impl Authored {
    pub(super) const ALL: [Self; 7] = [
        Self::Organization,
        Self::Project,
        Self::Stack,
        Self::Source,
        Self::Workspace,
        Self::Backend,
        Self::NotificationSink,
    ];

    pub(super) fn group(self) -> &'static str {
        match self {
            Self::Organization | Self::Project | Self::Stack | Self::Source => CONFIG,
            Self::Workspace | Self::Backend | Self::NotificationSink => PLATFORM,
        }
    }

    pub(super) fn api_version(self) -> String {
        format!("{}/{VERSION}", self.group())
    }

    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Organization => "Organization",
            Self::Project => "Project",
            Self::Stack => "Stack",
            Self::Source => "Source",
            Self::Workspace => "Workspace",
            Self::Backend => "Backend",
            Self::NotificationSink => "NotificationSink",
        }
    }

    /// The singular noun, as people say it.
    pub(super) fn singular(self) -> &'static str {
        match self {
            Self::Organization => "organization",
            Self::Project => "project",
            Self::Stack => "stack",
            Self::Source => "source",
            Self::Workspace => "workspace",
            Self::Backend => "backend",
            Self::NotificationSink => "notificationsink",
        }
    }

    pub(super) fn plural(self) -> &'static str {
        match self {
            Self::Organization => "organizations",
            Self::Project => "projects",
            Self::Stack => "stacks",
            Self::Source => "sources",
            Self::Workspace => "workspaces",
            Self::Backend => "backends",
            Self::NotificationSink => "notificationsinks",
        }
    }

    fn of_resource(group: &str, plural: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.group() == group && kind.plural() == plural)
    }

    fn is_namespaced(self) -> bool {
        matches!(self, Self::Project | Self::Stack | Self::Source)
    }
}

/// Whether the objects of a resource are in Git.
pub(super) fn is_authored(definition: &ResourceDefinition) -> bool {
    Authored::of_resource(&definition.group, &definition.plural).is_some()
}

/// An authored object by its names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    pub(super) kind: Authored,
    /// Empty for cluster-scoped kinds.
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Identity {
    /// The object at a key; nothing for kinds that are not in Git.
    pub(super) fn of_key(key: &Key) -> Option<Self> {
        let mut parts = key.as_str().strip_prefix("/registry/")?.split('/');
        let kind = Authored::of_resource(parts.next()?, parts.next()?)?;
        let namespace = if kind.is_namespaced() { parts.next()? } else { "" };
        let name = parts.next()?;
        let is_whole = parts.next().is_none() && !name.is_empty();
        is_whole.then(|| Self { kind, namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// The key of the object.
    pub(super) fn key(&self) -> Key {
        let Self { kind, namespace, name } = self;
        let folder = format!("/registry/{}/{}", kind.group(), kind.plural());
        Key::new(if kind.is_namespaced() { format!("{folder}/{namespace}/{name}") } else { format!("{folder}/{name}") })
    }
}

/// As people write it: `shop/web-dev`, or `dev`.
impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// An authored object and where its file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) identity: Identity,
    /// The project whose folder a stack's file is in; empty for other kinds.
    pub(super) project: String,
}

impl Place {
    /// What a file at `path` stands for; nothing when it can stand for no object.
    pub(super) fn of_path(path: &str) -> Option<Self> {
        let (folder, file) = path.rsplit_once('/')?;
        let stem = file.strip_suffix(SUFFIX)?;
        let folders: Vec<&str> = folder.split('/').collect();
        if folders.iter().chain([&stem]).any(|part| !is_part(part)) {
            return None;
        }
        let (kind, namespace, name, project) = match (folders.as_slice(), stem) {
            (["organizations", organization], "organization") => (Authored::Organization, "", *organization, ""),
            (["organizations", organization, "sources"], name) => (Authored::Source, *organization, name, ""),
            (["organizations", organization, "projects", project], "project") => {
                (Authored::Project, *organization, *project, "")
            }
            (["organizations", organization, "projects", project, "stacks"], name) => {
                (Authored::Stack, *organization, name, *project)
            }
            (["platform", plural], name) => (Authored::of_resource(PLATFORM, plural)?, "", name, ""),
            _ => return None,
        };
        let identity = Identity { kind, namespace: namespace.to_owned(), name: name.to_owned() };
        Some(Self { identity, project: project.to_owned() })
    }

    /// Whether files of objects may be in a folder, or in one that is in it; `""` is the folder that all others are in.
    pub(super) fn may_be_under(folder: &str) -> bool {
        match folder.split('/').collect::<Vec<_>>().as_slice() {
            [""] | ["organizations" | "platform"] => true,
            ["platform", plural] => Authored::of_resource(PLATFORM, plural).is_some(),
            ["organizations", organization] | ["organizations", organization, "sources" | "projects"] => {
                is_part(organization)
            }
            ["organizations", organization, "projects", project]
            | ["organizations", organization, "projects", project, "stacks"] => {
                is_part(organization) && is_part(project)
            }
            _ => false,
        }
    }

    /// Where an object's file is; nothing when the object has none.
    pub(super) fn of_object(key: &Key, object: &Value) -> Option<Self> {
        Self::of_key(key, object.get("spec").and_then(|spec| spec.get("project")).and_then(Value::as_str))
    }

    /// The same, given the `spec.project` that the object has, if any.
    pub(super) fn of_key(key: &Key, project: Option<&str>) -> Option<Self> {
        let identity = Identity::of_key(key)?;
        let project = if identity.kind == Authored::Stack { project? } else { "" };
        let place = Self { project: project.to_owned(), identity };
        // A name that would lead elsewhere has no file; no strategy lets one pass.
        (Self::of_path(&place.path()).as_ref() == Some(&place)).then_some(place)
    }

    /// The file's path in the repository.
    pub(super) fn path(&self) -> String {
        let Identity { kind, namespace, name } = &self.identity;
        match kind {
            Authored::Organization => format!("organizations/{name}/organization{SUFFIX}"),
            Authored::Source => format!("organizations/{namespace}/sources/{name}{SUFFIX}"),
            Authored::Project => format!("organizations/{namespace}/projects/{name}/project{SUFFIX}"),
            Authored::Stack => {
                format!("organizations/{namespace}/projects/{}/stacks/{name}{SUFFIX}", self.project)
            }
            Authored::Workspace | Authored::Backend | Authored::NotificationSink => {
                format!("platform/{}/{name}{SUFFIX}", kind.plural())
            }
        }
    }

    /// The organization in whose folder the file is, if it is in one.
    pub(super) fn organization(&self) -> Option<&str> {
        match self.identity.kind {
            Authored::Organization => Some(&self.identity.name),
            Authored::Project | Authored::Stack | Authored::Source => Some(&self.identity.namespace),
            Authored::Workspace | Authored::Backend | Authored::NotificationSink => None,
        }
    }
}

/// Whether a part of a path is a name, and neither a way out nor Git's own.
fn is_part(part: &str) -> bool {
    !part.is_empty() && !part.starts_with('.')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(key: &str, object: Value, path: Option<&str>) {
        let place = Place::of_object(&Key::new(key), &object);
        assert_eq!(place.as_ref().map(Place::path).as_deref(), path, "{key}");
        if let Some(path) = path {
            assert_eq!(Place::of_path(path), place, "{path}");
            assert_eq!(place.map(|place| place.identity.key().to_string()).as_deref(), Some(key));
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
                assert!(Place::may_be_under(folder), "{folder:?} of {path}");
            }
            assert!(!Place::may_be_under(&format!("{path}/in")), "{path}");
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
            assert!(!Place::may_be_under(folder), "{folder}");
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
            assert_eq!(Place::of_path(path), None, "{path}");
        }
    }
}
