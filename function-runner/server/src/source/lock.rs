//! The lock file of Terraform's providers: of a stack's folder, or else of the nearest folder around it that has one.

use std::fs;
use std::path::Path;

use git2::{ObjectType, Repository, Tree, TreeEntry};
use stoa_proto::Problem;

use super::content::{LINKED, id_of, is_link, size};
use super::error::here;
use super::{LockFile, SourceFile};
use crate::failure::{Failure, problem, reason};

/// The name of such files.
const LOCK_FILE: &str = ".terraform.lock.hcl";
/// The largest one that is read, in bytes.
const LARGEST_LOCK: usize = 1 << 20;

/// The lock file that counts for a path of a commit.
pub(super) fn of_tree(repository: &Repository, root: &Tree<'_>, path: &str) -> Result<Option<LockFile>, Failure> {
    find(root, path).map(|(path, entry)| read(repository, path, &entry)).transpose()
}

/// The entry of the lock file that counts for a path.
fn find<'t>(root: &'t Tree<'_>, path: &str) -> Option<(String, TreeEntry<'t>)> {
    folders_around(path).find_map(|folder| {
        let path = in_folder(folder);
        let entry = root.get_path(path.as_ref()).ok().filter(|entry| entry.kind() == Some(ObjectType::Blob))?;
        Some((path, entry))
    })
}

/// The lock file that counts for a path of a commit whose files are in a folder.
pub(crate) fn of_folder(root: &Path, path: &str) -> Result<Option<LockFile>, Failure> {
    for folder in folders_around(path) {
        let lock = in_folder(folder);
        // A link may lead to a file of another commit.
        let is_plain = |part: &Path| root.join(part).symlink_metadata().is_ok_and(|found| !found.is_symlink());
        let Ok(found) = root.join(&lock).symlink_metadata() else { continue };
        if !found.is_file() || !Path::new(folder).ancestors().all(is_plain) {
            return Ok(Some(Err(linked(lock))));
        }
        if found.len() > LARGEST_LOCK as u64 {
            return Ok(Some(Err(large_lock(lock))));
        }
        let bytes = fs::read(root.join(&lock)).map_err(|err| Failure::internal(&err))?;
        return Ok(Some(Ok(SourceFile { path: lock, bytes })));
    }
    Ok(None)
}

/// A path and the folders around it, the nearest first.
pub(super) fn folders_around(path: &str) -> impl Iterator<Item = &str> {
    let around = path.rmatch_indices('/').map(|(end, _)| &path[..end]);
    std::iter::once(path).chain(around).chain((!path.is_empty()).then_some(""))
}

/// The path of the lock file of a folder.
fn in_folder(folder: &str) -> String {
    if folder.is_empty() { LOCK_FILE.to_owned() } else { format!("{folder}/{LOCK_FILE}") }
}

fn large_lock(file: String) -> Problem {
    let message = format!("has more than {} MiB", LARGEST_LOCK >> 20);
    Problem { file, ..problem(reason::TOO_LARGE, message) }
}

fn linked(file: String) -> Problem {
    Problem { file, ..problem(reason::INVALID_MANIFEST, LINKED) }
}

fn read(repository: &Repository, path: String, entry: &TreeEntry<'_>) -> Result<LockFile, Failure> {
    if is_link(entry) {
        return Ok(Err(linked(path)));
    }
    if size(repository, entry.id())? > LARGEST_LOCK {
        return Ok(Err(large_lock(path)));
    }
    let bytes = repository.find_blob(entry.id()).map_err(|err| here(&err))?.content().to_vec();
    Ok(Ok(SourceFile { path, bytes }))
}

/// The id of the lock file that counts for a path, if it is in a folder around it.
pub(super) fn id_around(root: &Tree<'_>, path: &str) -> Option<String> {
    let (lock, entry) = find(root, path)?;
    (lock != in_folder(path)).then(|| id_of(&entry))
}

#[cfg(test)]
mod tests {
    use stoa_git::testing::tree;

    use super::super::content::id_of_stack;
    use super::super::dependencies::{Dependencies, StackPath};
    use super::*;

    #[test]
    fn nearest_lock_file_counts() {
        let directory = tempfile::TempDir::new().unwrap();
        let repository = Repository::init_bare(directory.path()).unwrap();
        let lock = |folder: &str| format!("{folder}{LOCK_FILE}");
        let (top, apps, web) = (lock(""), lock("apps/"), lock("apps/web/"));
        let mut files = vec![("apps/web/prod/spec.yaml", "a"), ("apps/db/spec.yaml", "b"), ("x/y", "z")];
        let found = |files: &[(&str, &str)], path: &str| {
            let tree = repository.find_tree(tree(&repository, files)).unwrap();
            let found = of_tree(&repository, &tree, path).unwrap();
            let stack = StackPath { path, values_files: &[] };
            (found.map(|file| file.unwrap().path), id_of_stack(&Dependencies::new(&repository), &tree, stack))
        };
        let before = found(&files, "apps/web/prod");
        assert_eq!(before.0, None);
        files.extend([(&*top, "top"), (&*apps, "apps"), (&*web, "web")]);
        for (path, expected) in [
            ("apps/web/prod", &web),
            ("apps/web/prod/spec.yaml", &web),
            ("apps/web", &web),
            ("apps/db", &apps),
            ("x", &top),
            ("", &top),
        ] {
            assert_eq!(found(&files, path).0.as_ref(), Some(expected), "{path}");
        }
        // The content of a path has another id where another lock counts for it.
        let with_locks = found(&files, "apps/web/prod").1;
        assert_ne!(with_locks, before.1);
        let last = files.len() - 1;
        files[last].1 = "changed";
        assert_ne!(found(&files, "apps/web/prod").1, with_locks);
        files[last - 1].1 = "changed";
        assert_eq!(found(&files, "x").1, found(&files[..files.len() - 2], "x").1);
    }

    #[test]
    fn nearest_lock_file_of_a_folder_counts() {
        let folder = tempfile::TempDir::new().unwrap();
        fs::create_dir_all(folder.path().join("apps/web")).unwrap();
        assert_eq!(of_folder(folder.path(), "apps/web").unwrap(), None);
        fs::write(folder.path().join(LOCK_FILE), "top").unwrap();
        fs::write(folder.path().join("apps").join(LOCK_FILE), "apps").unwrap();
        let found = |path: &str| of_folder(folder.path(), path).unwrap().unwrap().unwrap();
        assert_eq!(found("apps/web"), SourceFile { path: in_folder("apps"), bytes: b"apps".to_vec() });
        assert_eq!(found("").bytes, b"top");
        std::os::unix::fs::symlink("../..", folder.path().join("apps/web").join(LOCK_FILE)).unwrap();
        let wrong = |path: &str| of_folder(folder.path(), path).unwrap().unwrap().unwrap_err();
        assert_eq!((wrong("apps/web").file, wrong("apps/web").message), (in_folder("apps/web"), LINKED.to_owned()));
        fs::write(folder.path().join(LOCK_FILE), vec![b' '; LARGEST_LOCK + 1]).unwrap();
        assert_eq!((wrong("").file, wrong("").reason), (in_folder(""), reason::TOO_LARGE.to_owned()));
    }
}
