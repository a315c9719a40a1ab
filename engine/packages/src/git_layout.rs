//! The names of package revisions in Git, as Porch has them.
//!
//! Start at [`RevisionRef`], a branch or tag of one revision. [`Annotation`] is the line in a commit's message that names the
//! revision and its task. Follows `pkg/externalrepo/git` of Porch.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The revision number of packages on the deployed branch.
pub const BRANCH_REVISION: i32 = -1;

/// What Porch calls itself as the committer of its commits.
pub const COMMITTER: (&str, &str) = ("Package Orchestration Service", "porch@kpt.dev");

const BRANCHES: &str = "refs/heads/";
const TAGS: &str = "refs/tags/";

/// The meaning of a ref of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefKind {
    /// The branch of a draft.
    Draft,
    /// The branch of a proposed draft.
    Proposed,
    /// The branch that marks a published revision whose deletion is proposed.
    DeletionProposed,
    /// The tag of a published revision.
    Tag,
}

impl RefKind {
    const ALL: [Self; 4] = [Self::Draft, Self::Proposed, Self::DeletionProposed, Self::Tag];

    fn prefix(self) -> &'static str {
        match self {
            Self::Draft => "refs/heads/drafts/",
            Self::Proposed => "refs/heads/proposed/",
            Self::DeletionProposed => "refs/heads/deletionProposed/",
            Self::Tag => TAGS,
        }
    }
}

/// A ref of a package revision.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RevisionRef {
    /// The meaning.
    pub kind: RefKind,
    /// The path of the package from the root of the repository, such as `packages/network/web`.
    pub path: String,
    /// The last part: the workspace of a draft, or the revision of a tag, such as `v3`.
    pub last: String,
}

impl RevisionRef {
    /// The ref of a draft, or of a proposed one.
    pub fn draft(kind: RefKind, path: &str, workspace: &str) -> Self {
        Self { kind, path: path.to_owned(), last: workspace.to_owned() }
    }

    /// The tag of a published revision, or the branch that proposes its deletion. On the deployed branch, whose revision is
    /// [`BRANCH_REVISION`], the workspace stands for the number.
    pub fn published(kind: RefKind, path: &str, revision: i32, workspace: &str) -> Self {
        let last = if revision > 0 { format!("v{revision}") } else { workspace.to_owned() };
        Self { kind, path: path.to_owned(), last }
    }

    /// Parses the full name of a ref; nothing if it is not of a revision. Any tag with a slash may be of one: its package has to
    /// exist in its commit.
    pub fn parse(name: &str) -> Option<Self> {
        let (kind, rest) = RefKind::ALL.into_iter().find_map(|kind| Some((kind, name.strip_prefix(kind.prefix())?)))?;
        let (path, last) = rest.rsplit_once('/').filter(|(path, last)| !path.is_empty() && !last.is_empty())?;
        Some(Self { kind, path: path.to_owned(), last: last.to_owned() })
    }

    /// The revision number that the last part of a tag stands for: `v3` and `3` are 3, other texts are [`BRANCH_REVISION`].
    pub fn revision(&self) -> i32 {
        revision_of(&self.last)
    }
}

impl fmt::Display for RevisionRef {
    /// The full name of the ref.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}/{}", self.kind.prefix(), self.path, self.last)
    }
}

/// The full name of the deployed branch.
pub fn branch_ref(branch: &str) -> String {
    format!("{BRANCHES}{branch}")
}

/// The number of a revision's text: `v3` and `3` are 3, others are [`BRANCH_REVISION`].
pub fn revision_of(text: &str) -> i32 {
    text.strip_prefix('v').unwrap_or(text).parse().unwrap_or(BRANCH_REVISION)
}

/// The name of a package in a directory, such as `network/web` of `packages/network/web` in `packages`; nothing if it is
/// outside, or is the directory itself.
pub fn package_in<'p>(path: &'p str, directory: &str) -> Option<&'p str> {
    let directory = directory.trim_matches('/');
    let name = if directory.is_empty() { path } else { path.strip_prefix(directory)?.strip_prefix('/')? };
    Some(name).filter(|name| !name.is_empty())
}

/// The path of a package from the root of the repository.
pub fn path_in(package: &str, directory: &str) -> String {
    match directory.trim_matches('/') {
        "" => package.to_owned(),
        directory => format!("{directory}/{package}"),
    }
}

/// The line `kpt:{…}` in the message of a commit, which names the package revision that the commit is for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Annotation {
    /// The path from the root of the repository.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub package: String,
    /// The workspace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub workspace_name: String,
    /// The revision number; `0` of a draft.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// The task that made the commit, as in `spec.tasks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<Value>,
}

const ANNOTATION: &str = "kpt:";

/// The tasks that begin a revision.
const FIRST_TASKS: [&str; 4] = ["init", "clone", "edit", "upgrade"];

impl Annotation {
    /// The annotations of a message. Lines that are broken are left out.
    pub fn all(message: &str) -> Vec<Self> {
        let lines = message.lines().filter_map(|line| line.trim().strip_prefix(ANNOTATION));
        lines.filter_map(|json| serde_json::from_str(json).ok()).collect()
    }

    /// A message with this annotation at its end.
    pub fn append_to(&self, message: &str) -> String {
        let json = serde_json::to_string(self).expect("an annotation is JSON");
        format!("{message}\n\n{ANNOTATION}{json}\n")
    }

    /// Whether the commit is for this revision. Older commits name the workspace as the revision.
    pub fn is_for(&self, path: &str, workspace: &str) -> bool {
        let names = |text: &str| text == workspace;
        self.package == path
            && (names(&self.workspace_name) || (self.workspace_name.is_empty() && names(&self.revision)))
    }

    /// The type of the task, such as `init`.
    pub fn task_type(&self) -> Option<&str> {
        self.task.as_ref()?.get("type")?.as_str()
    }

    /// Whether the task begins a revision.
    pub fn is_first_task(&self) -> bool {
        self.task_type().is_some_and(|task| FIRST_TASKS.contains(&task))
    }
}

/// The first line of the message of a commit that a task of this type makes.
pub fn task_message(task: Option<&str>) -> String {
    match task {
        Some("init") => "Creating new empty revision".to_owned(),
        Some("render") => "Rendering package".to_owned(),
        Some("edit") => "Creating new revision by copying previous revision".to_owned(),
        Some("clone") => "Creating new revision by cloning".to_owned(),
        Some("upgrade") => "Upgrading revision".to_owned(),
        Some(task) => format!("Intermediate commit: {task}"),
        None => "Intermediate commit".to_owned(),
    }
}

/// The first line of the message of an approval.
pub fn approval_message(path: &str, revision: i32) -> String {
    format!("Approving package revision {path}/{revision}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn refs_of_revisions_survive_a_round_trip() {
        let refs = [
            ("refs/heads/drafts/web/ws", RefKind::Draft, "web", "ws"),
            ("refs/heads/proposed/a/web/ws", RefKind::Proposed, "a/web", "ws"),
            ("refs/heads/deletionProposed/web/v3", RefKind::DeletionProposed, "web", "v3"),
            ("refs/tags/a/b/web/v3", RefKind::Tag, "a/b/web", "v3"),
        ];
        for (name, kind, path, last) in refs {
            let parsed = RevisionRef::parse(name).unwrap();
            assert_eq!((parsed.kind, &*parsed.path, &*parsed.last), (kind, path, last));
            assert_eq!(parsed.to_string(), name);
        }
        for other in ["refs/heads/main", "refs/heads/drafts/web", "refs/tags/v1", "refs/heads/drafts//ws", "drafts/a/b"]
        {
            assert_eq!(RevisionRef::parse(other), None, "{other}");
        }
        assert_eq!(RevisionRef::draft(RefKind::Draft, "web", "ws").to_string(), refs[0].0);
        let published =
            |revision| RevisionRef::published(RefKind::DeletionProposed, "web", revision, "main").to_string();
        assert_eq!(published(3), refs[2].0);
        assert_eq!(published(BRANCH_REVISION), "refs/heads/deletionProposed/web/main");
    }

    #[test]
    fn tags_with_and_without_v_are_numbers() {
        for (text, revision) in [("v3", 3), ("12", 12), ("main", -1), ("v1.2", -1), ("", -1)] {
            assert_eq!(revision_of(text), revision, "{text}");
        }
    }

    #[test]
    fn packages_are_named_from_their_directory() {
        for (path, directory, package) in [
            ("web", "", Some("web")),
            ("packages/net/web", "/packages/", Some("net/web")),
            ("packages", "packages", None),
            ("packages2/web", "packages", None),
            ("", "", None),
        ] {
            assert_eq!(package_in(path, directory), package, "{path}");
            assert!(package.is_none_or(|package| path_in(package, directory) == path));
        }
    }

    #[test]
    fn annotations_are_those_of_porch() {
        let annotation = Annotation {
            package: "a/web".to_owned(),
            workspace_name: "ws".to_owned(),
            revision: "0".to_owned(),
            task: Some(json!({"type": "init", "init": {"description": "d"}})),
        };
        let message = annotation.append_to(&format!("{}\n", task_message(annotation.task_type())));
        let json = r#"{"package":"a/web","workspaceName":"ws","revision":"0","task":{"type":"init","init":{"description":"d"}}}"#;
        let (head, line) = message.split_once("kpt:").unwrap();
        assert_eq!(head, "Creating new empty revision\n\n\n");
        assert_eq!(serde_json::from_str::<Value>(line).unwrap(), serde_json::from_str::<Value>(json).unwrap());
        assert_eq!(Annotation::all(&format!("{message}kpt:{{broken:x}}\n")), std::slice::from_ref(&annotation));
        assert!(annotation.is_for("a/web", "ws") && !annotation.is_for("web", "ws") && annotation.is_first_task());
        let old = Annotation { package: "web".to_owned(), revision: "v1".to_owned(), ..Annotation::default() };
        assert!(old.is_for("web", "v1") && !old.is_first_task());
    }
}
