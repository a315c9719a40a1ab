//! The files of a folder, and which of them are text that clients see.
//!
//! Start at [`list`]. [`Opaque`] says why a client does not see a file: a write keeps such a file as it is.

use std::fmt;

use git2::{FileMode, ObjectType, Oid, Repository, Tree};

use crate::bounded;

/// The most files of a folder, with all that is below.
pub const MOST_FILES: usize = 100_000;

/// The most bytes of the paths of these files.
const MOST_PATHS: usize = 32 << 20;

/// The deepest folder, in levels.
pub(crate) const DEEPEST: usize = 64;

/// The limit of a file without another one, in bytes.
pub const DEFAULT_FILE_BYTES: usize = 1 << 20;

/// Why clients do not see a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opaque {
    /// It is not UTF-8, or has a NUL.
    Binary,
    /// It is larger than the limit.
    TooLarge,
    /// It is a symbolic link.
    Link,
    /// It is a submodule.
    Submodule,
}

impl fmt::Display for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Binary => "Binary",
            Self::TooLarge => "TooLarge",
            Self::Link => "Link",
            Self::Submodule => "Submodule",
        })
    }
}

/// A file in Git, or a link or submodule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// From the folder, such as `base/deploy.yaml`.
    pub path: String,
    /// Its object; of a submodule a commit of another repository.
    pub id: Oid,
    /// Its mode.
    pub mode: FileMode,
}

impl Entry {
    /// Whether it is an executable file.
    pub fn is_executable(&self) -> bool {
        self.mode == FileMode::BlobExecutable
    }

    /// Its content if clients see it, else the reason, and its size in bytes.
    ///
    /// # Errors
    ///
    /// Those of libgit2, as for a missing object.
    pub fn read(&self, repository: &Repository, most: usize) -> Result<(Result<Vec<u8>, Opaque>, usize), git2::Error> {
        match self.mode {
            FileMode::Link => return Ok((Err(Opaque::Link), bounded::size(repository, self.id)?)),
            FileMode::Commit => return Ok((Err(Opaque::Submodule), 0)),
            _ => {}
        }
        let size = bounded::size(repository, self.id)?;
        if size > most {
            return Ok((Err(Opaque::TooLarge), size));
        }
        let content = bounded::file(repository, self.id)?.content().to_vec();
        let is_text = !content.contains(&0) && std::str::from_utf8(&content).is_ok();
        Ok((if is_text { Ok(content) } else { Err(Opaque::Binary) }, size))
    }
}

/// All files below a folder, sorted by path.
///
/// # Errors
///
/// Those of libgit2; [`bounded::is_too_large`] recognizes a folder with too many files, or one that is too deep.
pub fn list(repository: &Repository, folder: &Tree<'_>) -> Result<Vec<Entry>, git2::Error> {
    let mut walk = Walk { repository, entries: Vec::new(), folders: 0, paths: 0 };
    walk.folder(folder, "", 0)?;
    let mut entries = walk.entries;
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(entries)
}

struct Walk<'r> {
    repository: &'r Repository,
    entries: Vec<Entry>,
    /// The number of folders. A few that are in each other many times have no file, and no end.
    folders: usize,
    /// The bytes of all paths.
    paths: usize,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &Tree<'_>, path: &str, depth: usize) -> Result<(), git2::Error> {
        self.folders += 1;
        if depth > DEEPEST {
            return Err(bounded::refused(&format!("folder {path} is deeper than {DEEPEST} levels")));
        }
        if self.folders > MOST_FILES {
            return Err(bounded::refused(&format!("the folder has more than {MOST_FILES} folders")));
        }
        for entry in folder {
            let Ok(name) = std::str::from_utf8(entry.name_bytes()) else {
                return Err(bounded::refused(&format!("folder {path:?} has a file whose name is not UTF-8")));
            };
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            if entry.kind() == Some(ObjectType::Tree) {
                self.folder(&bounded::tree(self.repository, entry.id())?, &path, depth + 1)?;
                continue;
            }
            self.paths += path.len();
            self.entries.push(Entry { path, id: entry.id(), mode: mode(entry.filemode()) });
            if self.entries.len() > MOST_FILES || self.paths > MOST_PATHS {
                return Err(bounded::refused(&format!("the folder has more than {MOST_FILES} files")));
            }
        }
        Ok(())
    }
}

fn mode(mode: i32) -> FileMode {
    match mode {
        0o100_755 => FileMode::BlobExecutable,
        0o120_000 => FileMode::Link,
        0o160_000 => FileMode::Commit,
        _ => FileMode::Blob,
    }
}

/// The commit that an id stands for: itself, or that of an annotated tag.
///
/// # Errors
///
/// Those of libgit2, as for an object that is neither; [`bounded::is_too_large`] recognizes a larger one.
pub fn commit_of(repository: &Repository, id: Oid) -> Result<Oid, git2::Error> {
    bounded::check(repository, id, bounded::LARGEST_COMMIT)?;
    Ok(repository.find_object(id, None)?.peel_to_commit()?.id())
}

/// The folder at a path of a commit; nothing if no folder is there. An empty path is the root.
///
/// # Errors
///
/// Those of libgit2.
pub fn folder<'r>(repository: &'r Repository, commit: Oid, path: &str) -> Result<Option<Tree<'r>>, git2::Error> {
    let commit = commit_of(repository, commit)?;
    let root = bounded::root(repository, &bounded::commit(repository, commit)?)?;
    folder_of(repository, root, path)
}

/// The same of a root folder.
pub(crate) fn folder_of<'r>(
    repository: &'r Repository,
    root: Tree<'r>,
    path: &str,
) -> Result<Option<Tree<'r>>, git2::Error> {
    if path.is_empty() {
        return Ok(Some(root));
    }
    match bounded::entry(repository, &root, path)? {
        Some(entry) if entry.kind() == Some(ObjectType::Tree) => bounded::tree(repository, entry.id()).map(Some),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_without_files_have_an_end() {
        let directory = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(directory.path()).unwrap();
        let mut below = repository.treebuilder(None).unwrap().write().unwrap();
        for _ in 0..6 {
            let mut tree = repository.treebuilder(None).unwrap();
            for name in 0..10 {
                tree.insert(format!("d{name}"), below, FileMode::Tree.into()).unwrap();
            }
            below = tree.write().unwrap();
        }
        let error = list(&repository, &repository.find_tree(below).unwrap()).unwrap_err();
        assert!(bounded::is_too_large(&error) && error.message().contains("folders"), "{error}");
    }
}
