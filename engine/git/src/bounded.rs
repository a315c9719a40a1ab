//! Bounded reads of Git objects: anything may be in a repository, so that objects over a size limit are not unpacked.

use std::cell::RefCell;

use git2::{Blob, Commit, ErrorClass, ErrorCode, ObjectType, Oid, Repository, Tree, TreeEntry};

/// The largest file with an object, in bytes.
pub const LARGEST_FILE: usize = 16 << 20;
/// The largest folder, in bytes, without what is in it.
const LARGEST_TREE: usize = 64 << 20;
/// The largest commit, in bytes: a message, signatures, and who its parents are.
pub(crate) const LARGEST_COMMIT: usize = 16 << 20;
/// The maximum number of parents of a commit, which are in memory with it.
const MOST_PARENTS: usize = 4096;

/// Reads a commit.
///
/// # Errors
///
/// Those of libgit2; [`is_too_large`] recognizes a commit that is larger, or has too many parents.
pub fn commit(repository: &Repository, id: Oid) -> Result<Commit<'_>, git2::Error> {
    check(repository, id, LARGEST_COMMIT)?;
    let commit = repository.find_commit(id)?;
    if commit.parent_count() > MOST_PARENTS {
        return Err(refused(&format!("commit {id} has more than {MOST_PARENTS} parents")));
    }
    Ok(commit)
}

/// Reads the root folder of a commit.
///
/// # Errors
///
/// As [`tree`].
pub fn root<'r>(repository: &'r Repository, commit: &Commit<'_>) -> Result<Tree<'r>, git2::Error> {
    tree(repository, commit.tree_id())
}

/// Reads a folder.
///
/// # Errors
///
/// Those of libgit2; [`is_too_large`] recognizes a larger folder.
pub fn tree(repository: &Repository, id: Oid) -> Result<Tree<'_>, git2::Error> {
    check(repository, id, LARGEST_TREE)?;
    repository.find_tree(id)
}

/// Reads a file.
///
/// # Errors
///
/// Those of libgit2; [`is_too_large`] recognizes a larger file.
pub fn file(repository: &Repository, id: Oid) -> Result<Blob<'_>, git2::Error> {
    check(repository, id, LARGEST_FILE)?;
    repository.find_blob(id)
}

/// The entry at a path of a tree, if any.
///
/// # Errors
///
/// As [`tree`], about the folders on the way.
pub fn entry(repository: &Repository, root: &Tree<'_>, path: &str) -> Result<Option<TreeEntry<'static>>, git2::Error> {
    Paths::of(repository, root).entry(path)
}

/// The paths of a tree. Folders on the way to the last path are cached, so that sorted paths read each folder once.
pub struct Paths<'t> {
    /// The repository of the tree.
    pub repository: &'t Repository,
    root: &'t Tree<'t>,
    /// The folders on the way, by their names.
    folders: RefCell<Vec<(String, Tree<'t>)>>,
}

impl<'t> Paths<'t> {
    /// The paths of a tree.
    pub fn of(repository: &'t Repository, root: &'t Tree<'t>) -> Self {
        Self { repository, root, folders: RefCell::default() }
    }

    /// The entry at a path, if any.
    ///
    /// # Errors
    ///
    /// As [`tree`], about the folders on the way.
    pub fn entry(&self, path: &str) -> Result<Option<TreeEntry<'static>>, git2::Error> {
        if path.contains('\0') {
            // Git has no such names, and git2 panics on them.
            return Ok(None);
        }
        let mut folders = self.folders.borrow_mut();
        let mut names = path.split('/').enumerate().peekable();
        while let Some((depth, name)) = names.next() {
            let is_last = names.peek().is_none();
            if !is_last && folders.get(depth).is_some_and(|(known, _)| known == name) {
                continue;
            }
            let around = if depth == 0 { self.root } else { &folders[depth - 1].1 };
            let found = around.get_name(name).map(|entry| entry.to_owned());
            let Some(entry) = found else { return Ok(None) };
            if is_last {
                return Ok(Some(entry));
            }
            if entry.kind() != Some(ObjectType::Tree) {
                return Ok(None);
            }
            let folder = tree(self.repository, entry.id()).map_err(|err| match is_too_large(&err) {
                true => too_large(&path.split('/').take(depth + 1).collect::<Vec<_>>().join("/"), LARGEST_TREE),
                false => err,
            })?;
            folders.truncate(depth);
            folders.push((name.to_owned(), folder));
        }
        Ok(None)
    }
}

/// The code and class of an error about what is too large. libgit2 has its own errors of memory by another code: what lacks
/// memory now may be read later.
const TOO_LARGE: (ErrorCode, ErrorClass) = (ErrorCode::BufSize, ErrorClass::NoMemory);

/// The error of a history query over its limit of parents.
pub fn too_long(parents: usize) -> git2::Error {
    refused(&format!("the search in the history needs more than {parents} parents of commits"))
}

/// The error of a search over another limit.
pub fn too_many(things: &str) -> git2::Error {
    refused(&format!("there are too many {things}"))
}

/// Whether an error is about a size limit.
pub fn is_too_large(err: &git2::Error) -> bool {
    (err.code(), err.class()) == TOO_LARGE
}

/// The size of an object in bytes, which Git knows without unpacking it.
///
/// # Errors
///
/// Those of libgit2.
pub fn size(repository: &Repository, id: Oid) -> Result<usize, git2::Error> {
    repository.odb()?.read_header(id).map(|(size, _)| size)
}

pub(crate) fn check(repository: &Repository, id: Oid, most: usize) -> Result<(), git2::Error> {
    if size(repository, id)? <= most {
        return Ok(());
    }
    Err(too_large(&format!("object {id}"), most))
}

fn too_large(what: &str, most: usize) -> git2::Error {
    refused(&format!("{what} is larger than {} MiB", most >> 20))
}

/// The error of an object over a limit.
pub(crate) fn refused(why: &str) -> git2::Error {
    let (code, class) = TOO_LARGE;
    git2::Error::new(code, class, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_through_file_is_not_found() {
        let directory = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(directory.path()).unwrap();
        let blob = repository.blob(b"x").unwrap();
        let mut root = repository.treebuilder(None).unwrap().write().unwrap();
        for name in ["c", "b", "a"] {
            let mut tree = repository.treebuilder(None).unwrap();
            let (below, mode) = if name == "c" { (blob, 0o100_644) } else { (root, 0o040_000) };
            tree.insert(name, below, mode).unwrap();
            root = tree.write().unwrap();
        }
        let tree = tree(&repository, root).unwrap();
        for path in ["a", "a/b", "a/b/c", "b", "a/c", "a/b/c/d", ""] {
            let expected = tree.get_path(path.as_ref()).ok().map(|entry| entry.id());
            let found = entry(&repository, &tree, path).unwrap().map(|entry| entry.id());
            assert_eq!(found, expected, "{path}");
        }
        assert_eq!(entry(&repository, &tree, "a/b/c").unwrap().unwrap().id(), blob);
        for path in ["\0", "a\0", "a/b\0/c", "a/b/c\0"] {
            assert!(entry(&repository, &tree, path).unwrap().is_none(), "{path:?}");
        }
    }

    #[test]
    fn folder_is_read_once_for_sorted_paths() {
        let directory = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(directory.path()).unwrap();
        let blob = repository.blob(b"x").unwrap();
        // Git keeps small ones by itself.
        let mut files = repository.treebuilder(None).unwrap();
        for number in 0..1000 {
            files.insert(format!("file-{number:03}"), blob, 0o100_644).unwrap();
        }
        let files = files.write().unwrap();
        let mut folders = repository.treebuilder(None).unwrap();
        for name in ["a", "b"] {
            folders.insert(name, files, 0o040_000).unwrap();
        }
        let root = repository.find_tree(folders.write().unwrap()).unwrap();
        let paths = Paths::of(&repository, &root);
        assert_eq!(paths.entry("a/file-000").unwrap().unwrap().id(), blob);
        let id = files.to_string();
        std::fs::remove_file(directory.path().join("objects").join(&id[..2]).join(&id[2..])).unwrap();
        for found in ["a/file-001", "a/file-999"] {
            assert_eq!(paths.entry(found).unwrap().unwrap().id(), blob, "{found}");
        }
        for absent in ["a", "a/none", "none/file-001", "a/file-001/x"] {
            assert_eq!(paths.entry(absent).unwrap().map(|entry| entry.id()), (absent == "a").then_some(files));
        }
        assert_eq!(paths.entry("a/file-002").unwrap().unwrap().id(), blob);
        assert!(paths.entry("b/file-000").is_err(), "it is gone");
    }

    #[test]
    fn commit_with_too_many_parents_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(directory.path()).unwrap();
        let tree = repository.treebuilder(None).unwrap().write().unwrap();
        let with = |parents: usize| {
            let parents = format!("parent {tree}\n").repeat(parents);
            let who = "a <a@example.com> 0 +0000";
            let text = format!("tree {tree}\n{parents}author {who}\ncommitter {who}\n\nmerge\n");
            repository.odb().unwrap().write(ObjectType::Commit, text.as_bytes()).unwrap()
        };
        assert_eq!(commit(&repository, with(MOST_PARENTS)).unwrap().parent_count(), MOST_PARENTS);
        let Err(err) = commit(&repository, with(MOST_PARENTS + 1)) else { panic!("it is read") };
        assert!(is_too_large(&err) && err.message().contains("more than 4096 parents"), "{err}");
    }

    #[test]
    fn oversized_file_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(directory.path()).unwrap();
        let of = |bytes: usize| repository.blob(&vec![b'x'; bytes]).unwrap();
        assert_eq!(file(&repository, of(LARGEST_FILE)).unwrap().size(), LARGEST_FILE);
        let Err(err) = file(&repository, of(LARGEST_FILE + 1)) else { panic!("it is read") };
        assert!(is_too_large(&err), "{err}");
        let lacking = git2::Error::new(ErrorCode::GenericError, ErrorClass::NoMemory, "Out of memory");
        assert!(!is_too_large(&lacking), "it may be there later");
    }
}
