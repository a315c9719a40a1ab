//! Reads what is no larger than such a thing is, of a repository where anybody may have put anything: Git knows how large an
//! object is without unpacking it.

use git2::{Blob, Commit, ErrorClass, ErrorCode, ObjectType, Oid, Repository, Tree, TreeEntry};

/// The largest file with an object, in bytes.
pub(crate) const LARGEST_FILE: usize = 16 << 20;
/// The largest folder, in bytes, without what is in it.
const LARGEST_TREE: usize = 64 << 20;
/// The largest commit, in bytes: a message, signatures, and who its parents are.
const LARGEST_COMMIT: usize = 16 << 20;

/// A commit.
pub(crate) fn commit(repository: &Repository, id: Oid) -> Result<Commit<'_>, git2::Error> {
    check(repository, id, LARGEST_COMMIT)?;
    repository.find_commit(id)
}

/// The folder that a commit is of.
pub(crate) fn root<'r>(repository: &'r Repository, commit: &Commit<'_>) -> Result<Tree<'r>, git2::Error> {
    tree(repository, commit.tree_id())
}

/// A folder.
pub(crate) fn tree(repository: &Repository, id: Oid) -> Result<Tree<'_>, git2::Error> {
    check(repository, id, LARGEST_TREE)?;
    repository.find_tree(id)
}

/// A file.
pub(crate) fn file(repository: &Repository, id: Oid) -> Result<Blob<'_>, git2::Error> {
    check(repository, id, LARGEST_FILE)?;
    repository.find_blob(id)
}

/// What is at a path of a tree, if anything is.
pub(crate) fn entry(
    repository: &Repository,
    root: &Tree<'_>,
    path: &str,
) -> Result<Option<TreeEntry<'static>>, git2::Error> {
    if path.contains('\0') {
        // Git has no such names, and git2 panics when it is asked for one.
        return Ok(None);
    }
    let mut names = path.split('/').peekable();
    let mut folder: Option<Tree<'_>> = None;
    while let Some(name) = names.next() {
        let found = folder.as_ref().unwrap_or(root).get_name(name).map(|entry| entry.to_owned());
        let Some(entry) = found else { return Ok(None) };
        if names.peek().is_none() {
            return Ok(Some(entry));
        }
        if entry.kind() != Some(ObjectType::Tree) {
            return Ok(None);
        }
        folder = Some(tree(repository, entry.id())?);
    }
    Ok(None)
}

/// The code and class of an error about what is too large. libgit2 has its own errors of memory by another code: what lacks
/// memory now may be read later.
const TOO_LARGE: (ErrorCode, ErrorClass) = (ErrorCode::BufSize, ErrorClass::NoMemory);

/// That a question about a history is not answered by so many commits.
pub(crate) fn too_long(commits: usize) -> git2::Error {
    let (code, class) = TOO_LARGE;
    let message = format!("more than {commits} commits would have to be looked at to tell which leads to which");
    git2::Error::new(code, class, message)
}

/// Whether something was not read for how large it is.
pub(crate) fn is_too_large(err: &git2::Error) -> bool {
    (err.code(), err.class()) == TOO_LARGE
}

fn check(repository: &Repository, id: Oid, most: usize) -> Result<(), git2::Error> {
    let (size, _) = repository.odb()?.read_header(id)?;
    if size <= most {
        return Ok(());
    }
    let (code, class) = TOO_LARGE;
    Err(git2::Error::new(code, class, format!("object {id} has more than {} MiB", most >> 20)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_at_a_path_is_found_and_what_leads_through_a_file_is_not() {
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
    fn what_is_larger_than_a_file_is_not_read() {
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
