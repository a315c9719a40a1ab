//! Makes a commit that replaces one folder, and nothing else.
//!
//! Start at [`make`]. The same request makes the same commit, whenever and wherever it is made.

use std::collections::{BTreeMap, BTreeSet};

use git2::{FileMode, ObjectType, Oid, Repository, Signature, Time, Tree};

use crate::bounded;
use crate::files::{self, Entry};

/// A person in a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// The name.
    pub name: String,
    /// The email address.
    pub email: String,
    /// Seconds since 1970, UTC.
    pub seconds: i64,
}

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileToWrite<'f> {
    /// From the folder.
    pub path: &'f str,
    /// The content.
    pub content: &'f [u8],
    /// Whether it is executable. A file that was executable stays so.
    pub is_executable: bool,
}

/// The change of the folder.
#[derive(Clone, Debug)]
pub enum Change<'f> {
    /// None: the commit has the tree of its first parent.
    Nothing,
    /// The folder has these files.
    Files {
        /// The folder whose files stay that clients do not see.
        base: Option<Oid>,
        /// All files that clients see.
        files: Vec<FileToWrite<'f>>,
        /// Files of the base that do not stay, though clients do not see them.
        removed: BTreeSet<&'f str>,
        /// The size from which clients do not see a file, in bytes.
        most: usize,
    },
    /// The folder is this tree.
    Folder(Oid),
    /// The folder is removed.
    Remove,
    /// The whole commit has this tree; the path is empty.
    Root(Oid),
}

/// A commit to make.
#[derive(Clone, Debug)]
pub struct NewCommit<'f> {
    /// The first one's tree is the base.
    pub parents: Vec<Oid>,
    /// The message.
    pub message: &'f str,
    /// The author.
    pub author: Person,
    /// The committer.
    pub committer: Person,
    /// The path of the folder; it may be empty without a change.
    pub path: &'f str,
    /// The change.
    pub change: Change<'f>,
}

/// A commit that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// The commit.
    pub commit: Oid,
    /// The tree of the folder, if it exists.
    pub tree: Option<Oid>,
}

/// Why a commit cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The request is wrong, such as a path that leads out of the folder.
    #[error("{0}")]
    Invalid(String),
    /// A parent or folder does not exist.
    #[error("{0} does not exist")]
    Missing(String),
    /// An error of Git.
    #[error("the repository cannot be written")]
    Git(#[from] git2::Error),
}

/// Makes the commit and its trees. No ref leads to it.
///
/// # Errors
///
/// [`CommitError`].
pub fn make(repository: &Repository, request: &NewCommit<'_>) -> Result<Made, CommitError> {
    if !matches!(request.change, Change::Nothing | Change::Root(_)) {
        check_path(request.path)?;
    }
    let missing = |id: Oid| CommitError::Missing(format!("commit {id}"));
    let parents = request.parents.iter().map(|id| {
        if !repository.odb()?.exists(*id) {
            return Err(missing(*id));
        }
        bounded::commit(repository, *id).map_err(|err| match err.code() {
            git2::ErrorCode::NotFound => missing(*id),
            _ => err.into(),
        })
    });
    let parents: Vec<git2::Commit<'_>> = parents.collect::<Result<_, _>>()?;
    let root = parents.first().map(|parent| bounded::root(repository, parent)).transpose()?;
    let names: Vec<&str> = request.path.split('/').collect();
    let tree = match &request.change {
        Change::Nothing => match &root {
            Some(root) => root.id(),
            None => repository.treebuilder(None)?.write()?,
        },
        Change::Root(tree) => *tree,
        change => {
            let folder = folder(repository, change)?;
            let with = replaced(repository, root.as_ref(), &names, folder)?;
            with.map_or_else(|| repository.treebuilder(None)?.write(), Ok)?
        }
    };
    let tree = repository.find_tree(tree)?;
    let (author, committer) = (signature(&request.author)?, signature(&request.committer)?);
    let parents: Vec<&git2::Commit<'_>> = parents.iter().collect();
    let commit = repository.commit(None, &author, &committer, request.message, &tree, &parents)?;
    Ok(Made { commit, tree: files::folder_of(repository, tree, request.path)?.map(|folder| folder.id()) })
}

/// Writes the tree that has these files, by their paths from its root.
///
/// # Errors
///
/// [`CommitError::Invalid`] where a path is wrong, is there twice, or leads through a file.
pub fn write_tree<'f>(
    repository: &Repository,
    files: impl IntoIterator<Item = (&'f str, Oid, FileMode)>,
) -> Result<Oid, CommitError> {
    let mut root = Folder::default();
    for (path, id, mode) in files {
        check_path(path)?;
        if !root.put(path, id, mode) {
            let message = format!("file {path:?} is there twice, or a folder of it is a file; rename one");
            return Err(CommitError::Invalid(message));
        }
    }
    Ok(root.write(repository)?.map_or_else(|| repository.treebuilder(None)?.write(), Ok)?)
}

/// Checks a path from a folder.
///
/// # Errors
///
/// [`CommitError::Invalid`] if Git would not take it, or if it leads elsewhere.
pub fn check_path(path: &str) -> Result<(), CommitError> {
    let is_wrong = |name: &str| {
        name.is_empty()
            || matches!(name, "." | "..")
            || name.eq_ignore_ascii_case(".git")
            || name.contains(['\0', '\\'])
    };
    // A deeper folder is not read again.
    let is_deep = path.split('/').count() > files::DEEPEST;
    if path.len() > 4096 || is_deep || path.split('/').any(is_wrong) {
        let message = format!(
            "path {path:?} is no path of a file in a package; use names without `..`, `.git` and `\\`, and at most {} levels",
            files::DEEPEST
        );
        return Err(CommitError::Invalid(message));
    }
    Ok(())
}

fn signature(person: &Person) -> Result<Signature<'static>, CommitError> {
    let plain = |text: &str| -> String {
        text.chars().map(|c| if c.is_control() || matches!(c, '<' | '>') { ' ' } else { c }).collect()
    };
    let (name, email) = (plain(&person.name), plain(&person.email));
    let name = if name.trim().is_empty() { "Unknown".to_owned() } else { name.trim().to_owned() };
    let made = Signature::new(&name, email.trim(), &Time::new(person.seconds, 0));
    made.map_err(|err| CommitError::Invalid(format!("author {name:?}: {}", err.message())))
}

/// The tree of the folder after the change; nothing if it is removed.
fn folder(repository: &Repository, change: &Change<'_>) -> Result<Option<Oid>, CommitError> {
    match change {
        Change::Nothing | Change::Remove => Ok(None),
        Change::Folder(tree) | Change::Root(tree) => Ok(Some(*tree)),
        Change::Files { base, files, removed, most } => {
            let base = match base {
                Some(base) => files::list(repository, &bounded::tree(repository, *base)?)?,
                None => Vec::new(),
            };
            let mut folder = Folder::default();
            let by_path: BTreeMap<&str, &Entry> = base.iter().map(|entry| (entry.path.as_str(), entry)).collect();
            for file in files {
                check_path(file.path)?;
                let was_executable = by_path.get(file.path).is_some_and(|entry| entry.is_executable());
                let mode = if file.is_executable || was_executable { FileMode::BlobExecutable } else { FileMode::Blob };
                if !folder.put(file.path, repository.blob(file.content)?, mode) {
                    let message = format!("file {:?} is twice in the package, or a folder of it too", file.path);
                    return Err(CommitError::Invalid(message));
                }
            }
            for entry in base.iter().filter(|entry| !removed.contains(entry.path.as_str())) {
                if folder.has(&entry.path) || entry.read(repository, *most)?.0.is_ok() {
                    continue;
                }
                // A new file in the place of one of its folders is stronger.
                folder.put(&entry.path, entry.id, entry.mode);
            }
            folder.write(repository).map_err(CommitError::from)
        }
    }
}

/// A folder that is not written yet.
#[derive(Debug, Default)]
struct Folder {
    nodes: BTreeMap<String, Node>,
}

#[derive(Debug)]
enum Node {
    File(Oid, FileMode),
    Folder(Folder),
}

impl Folder {
    /// Adds a file. False if its path is a folder already, or leads through a file.
    fn put(&mut self, path: &str, id: Oid, mode: FileMode) -> bool {
        match path.split_once('/') {
            None if self.nodes.contains_key(path) => false,
            None => {
                self.nodes.insert(path.to_owned(), Node::File(id, mode));
                true
            }
            Some((name, rest)) => {
                match self.nodes.entry(name.to_owned()).or_insert_with(|| Node::Folder(Self::default())) {
                    Node::Folder(below) => below.put(rest, id, mode),
                    Node::File(..) => false,
                }
            }
        }
    }

    /// Whether a path is a file or a folder.
    fn has(&self, path: &str) -> bool {
        match path.split_once('/') {
            None => self.nodes.contains_key(path),
            Some((name, rest)) => match self.nodes.get(name) {
                Some(Node::Folder(below)) => below.has(rest),
                Some(Node::File(..)) => true,
                None => false,
            },
        }
    }

    /// Writes the folder; nothing if it has no file.
    fn write(&self, repository: &Repository) -> Result<Option<Oid>, git2::Error> {
        let mut tree = repository.treebuilder(None)?;
        for (name, node) in &self.nodes {
            match node {
                Node::File(id, mode) => {
                    tree.insert(name, *id, (*mode).into())?;
                }
                Node::Folder(below) => {
                    if let Some(id) = below.write(repository)? {
                        tree.insert(name, id, FileMode::Tree.into())?;
                    }
                }
            }
        }
        if tree.is_empty() { Ok(None) } else { tree.write().map(Some) }
    }
}

/// A tree in which a folder is replaced or removed; nothing if it is empty then.
fn replaced(
    repository: &Repository,
    tree: Option<&Tree<'_>>,
    names: &[&str],
    folder: Option<Oid>,
) -> Result<Option<Oid>, CommitError> {
    let (name, below) = names.split_first().expect("a path has names");
    let mut builder = repository.treebuilder(tree)?;
    let found = tree.and_then(|tree| tree.get_name(name)).map(|entry| (entry.id(), entry.kind()));
    let new = if below.is_empty() {
        folder
    } else {
        let inner = match found {
            Some((id, Some(ObjectType::Tree))) => Some(bounded::tree(repository, id)?),
            Some(_) if folder.is_some() => {
                let message = format!("{name:?} on the way to the package is a file in the repository; rename either");
                return Err(CommitError::Invalid(message));
            }
            // There is nothing to remove.
            Some(_) | None if folder.is_none() => return Ok(tree.map(Tree::id)),
            _ => None,
        };
        replaced(repository, inner.as_ref(), below, folder)?
    };
    match new {
        Some(new) => {
            builder.insert(name, new, FileMode::Tree.into())?;
        }
        None if found.is_some() => builder.remove(name)?,
        None => {}
    }
    Ok(if builder.is_empty() { None } else { Some(builder.write()?) })
}

#[cfg(test)]
mod tests;
