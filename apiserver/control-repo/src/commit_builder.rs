//! Commits before they have a tree: the edited files, the author and the message.
//!
//! Start at [`CommitBuilder`]. Elsewhere: `project` makes them of records, and `repository` adds trees and parents.

use git2::Oid;

const COMMITTER: &str = "Stoa";
const DOMAIN: &str = "users.stoa.dev";

/// A person, as Git names people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Person {
    name: String,
    pub(super) email: String,
}

impl Person {
    pub(super) fn stoa() -> Self {
        Self::user(COMMITTER)
    }

    /// A Kubernetes user. Git's headers hold no control characters and no angle brackets.
    pub(super) fn user(user: &str) -> Self {
        let name: String = user.chars().filter(|c| !c.is_control() && !"<>".contains(*c)).collect();
        // Git strips these from both ends, and rejects an empty name.
        let name = name.trim_matches(|c: char| c.is_whitespace() || ".,:;\"\\'".contains(c));
        let name = if name.is_empty() { "unknown" } else { name };
        let local: String = name
            .to_lowercase()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "-_.+".contains(c) { c } else { '-' })
            .collect();
        Self { name: name.to_owned(), email: format!("{local}@{DOMAIN}") }
    }

    fn signature(&self, time_ms: i64) -> String {
        format!("{} <{}> {} +0000", self.name, self.email, time_ms.div_euclid(1000).max(0))
    }
}

/// A file that gets this content, or is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edit {
    pub path: String,
    pub content: Option<String>,
}

/// A commit to be made.
#[derive(Clone, Debug)]
pub(super) struct CommitBuilder {
    pub edits: Vec<Edit>,
    pub author: Person,
    pub time_ms: i64,
    pub message: String,
}

impl CommitBuilder {
    /// The commit as Git stores it.
    pub(super) fn encode(&self, tree: Oid, parent: Option<Oid>) -> String {
        let parent = parent.map(|parent| format!("parent {parent}\n")).unwrap_or_default();
        let (author, committer) = (self.author.signature(self.time_ms), Person::stoa().signature(self.time_ms));
        // A zero byte would end the message for some readers.
        let message = self.message.replace('\0', " ");
        format!("tree {tree}\n{parent}author {author}\ncommitter {committer}\n\n{message}")
    }
}

#[cfg(test)]
impl CommitBuilder {
    /// A commit that writes one file.
    pub(super) fn of_file(path: &str, content: &str) -> Self {
        let edits = vec![Edit { path: path.to_owned(), content: Some(content.to_owned()) }];
        Self { edits, author: Person::stoa(), time_ms: 0, message: "a commit\n".to_owned() }
    }
}
