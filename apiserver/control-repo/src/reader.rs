//! Reads files of commits, by their path or by the id of their content.
//!
//! Start at [`Reader`].

use std::{collections::BTreeSet, sync::Arc};

use git2::{ErrorClass, ErrorCode, ObjectType, Oid, Repository};
use parking_lot::Mutex;

use super::{
    blame,
    layout::{CommitInfo, Layout},
    repo_pool::PooledRepo,
    trees::{self, Directory},
};

/// A file with more bytes stands for no object: the API takes 3 MiB, and comments come on top.
pub(super) const LARGEST_FILE: usize = 16 << 20;

/// The last commit that was made or read here, with its trees that are in memory.
pub(super) type Newest = Arc<Mutex<Option<(Oid, Directory)>>>;

/// The content of a file when it was last applied or written, and a commit with that content.
pub(super) type Good = (Oid, Vec<u8>);

/// Reads files. It may miss concurrent writes of others.
pub(super) struct Reader {
    repository: PooledRepo,
    newest: Newest,
    most_entries: usize,
}

impl Reader {
    /// Reads from this repository, given the trees of `newest`.
    pub(super) fn new(repository: PooledRepo, newest: Newest, most_entries: usize) -> Self {
        Self { repository, newest, most_entries }
    }

    /// The content of the file at `path` in a commit; `None` when there is no such file or commit.
    pub(super) fn read(&self, commit: Oid, path: &str) -> Result<Option<Content>, git2::Error> {
        match self.tree(commit, |repository, tree| find(repository, tree, path))? {
            Some(Some(id)) => self.content(id),
            Some(None) | None => Ok(None),
        }
    }

    /// The content of the file at `path` when it was last applied or written, if that is known.
    pub(super) fn good(&self, commit: Option<Oid>, path: &str) -> Result<Option<Good>, git2::Error> {
        let Some(commit) = commit else { return Ok(None) };
        Ok(self.read(commit, path)?.map(|content| (commit, content.bytes())))
    }

    /// The pushed content of `path` in a commit: by its id, or else by its path. `None` for no content.
    ///
    /// # Errors
    ///
    /// A missing object that should exist.
    pub(super) fn pushed(&self, commit: Oid, path: &str, id: Option<Oid>) -> Result<Option<Content>, git2::Error> {
        let missing =
            || git2::Error::new(ErrorCode::NotFound, ErrorClass::Odb, format!("commit {commit} is not found"));
        let id = match id {
            Some(id) => Some(id),
            None => self.tree(commit, |repository, tree| find(repository, tree, path))?.ok_or_else(missing)?,
        };
        let Some(id) = id else { return Ok(None) };
        match content(&self.repository, id) {
            Err(error) if error.code() == ErrorCode::NotFound => {
                let names: Vec<&str> = path.split('/').collect();
                match self.tree(commit, |repository, tree| tree.is_submodule(repository, &names))? {
                    Some(true) => Ok(Some(Content::Submodule)),
                    Some(false) | None => Err(error),
                }
            }
            read => read.map(Some),
        }
    }

    /// The information about a commit, or about `otherwise` when the commit is missing.
    pub(super) fn commit_info(&self, id: Oid, otherwise: Oid) -> Result<CommitInfo, git2::Error> {
        let found = self.repository.find_commit(id).or_else(|_| self.repository.find_commit(otherwise))?;
        Ok(blame::info(&found))
    }

    /// A lookup in the tree of a commit; `None` when the commit is missing.
    fn tree<T>(
        &self,
        commit: Oid,
        look: impl FnOnce(&Repository, &mut Directory) -> Result<T, git2::Error>,
    ) -> Result<Option<T>, git2::Error> {
        let mut newest = self.newest.lock();
        if !matches!(*newest, Some((read, _)) if read == commit) {
            match trees::tree_of(&self.repository, Some(commit)) {
                Ok(tree) => *newest = Some((commit, tree)),
                Err(error) if error.code() == ErrorCode::NotFound => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        newest.as_mut().map(|(_, tree)| look(&self.repository, tree)).transpose()
    }

    /// The paths that our commits changed from `since` to `tip`; `None` when `tip` does not descend from it, or when a limit
    /// is exceeded.
    pub(super) fn projected_since(
        &self,
        since: Oid,
        tip: Oid,
        layout: &dyn Layout,
    ) -> Result<Option<BTreeSet<String>>, git2::Error> {
        blame::projected_since(&self.repository, layout, self.most_entries, since, tip)
    }

    /// The content of a file, by its id; `None` for a submodule and for a missing object.
    pub(super) fn content(&self, id: Oid) -> Result<Option<Content>, git2::Error> {
        match content(&self.repository, id) {
            Ok(Content::Submodule) => Ok(None),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
            read => read.map(Some),
        }
    }
}

/// The content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Bytes(Vec<u8>),
    /// More than [`LARGEST_FILE`]: this many bytes, unread.
    TooLarge(usize),
    /// A submodule: its id is that of a commit in another repository.
    Submodule,
}

impl Content {
    /// The bytes. We never write a file that is too large, so an edit has nothing to preserve there.
    pub(super) fn bytes(self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::TooLarge(_) | Self::Submodule => Vec::new(),
        }
    }
}

/// Reads a file by its id, unless it is too large: Git packs gigabytes of zeros into a few bytes.
///
/// # Errors
///
/// A missing file that should exist, or a submodule with its commit elsewhere.
pub(super) fn content(repository: &Repository, id: Oid) -> Result<Content, git2::Error> {
    match repository.odb()?.read_header(id)? {
        // A symbolic link is a blob too; only a submodule is a name for something elsewhere.
        (_, kind) if kind != ObjectType::Blob => Ok(Content::Submodule),
        (size, _) if size > LARGEST_FILE => Ok(Content::TooLarge(size)),
        _ => Ok(Content::Bytes(repository.find_blob(id)?.content().to_vec())),
    }
}

/// The file at `path`.
fn find(repository: &Repository, tree: &mut Directory, path: &str) -> Result<Option<Oid>, git2::Error> {
    tree.file(repository, &path.split('/').collect::<Vec<_>>())
}
