//! A pool of one open repository.
//!
//! Opening reads the settings of the repository and of the machine, and lists every pack. That would take more than a third of
//! the cost of a batch of commits. An open repository reads refs each time, and lists packs again when it misses an object. So it
//! finds what other processes wrote.
//!
//! Start at [`RepoPool`].

use std::{ops::Deref, path::Path, sync::Arc};

use git2::Repository;
use parking_lot::Mutex;

use super::repository;

/// The most uses of one handle: merged and removed packs take disk space as long as they are open.
const USES: usize = 64;

/// The pool, which has the repository while it is unused.
#[derive(Clone, Default, educe::Educe)]
#[educe(Debug)]
pub(super) struct RepoPool(#[educe(Debug(ignore))] Arc<Mutex<Option<Open>>>);

/// A repository, and the number of its uses.
struct Open {
    repository: Repository,
    uses: usize,
}

impl RepoPool {
    /// The repository at `path` for one use: the open one, or another while that is in use.
    pub(super) fn lend(&self, path: &Path) -> Result<PooledRepo, git2::Error> {
        let kept = self.0.lock().take();
        let open = match kept {
            Some(open) => open,
            None => Open { repository: repository::open(path)?, uses: 0 },
        };
        Ok(PooledRepo { open: Some(open), pool: self.clone() })
    }

    /// Closes the repository until its next use.
    pub(super) fn close(&self) {
        drop(self.0.lock().take());
    }
}

/// The repository while it is used.
pub(super) struct PooledRepo {
    open: Option<Open>,
    pool: RepoPool,
}

impl Deref for PooledRepo {
    type Target = Repository;

    fn deref(&self) -> &Repository {
        &self.open.as_ref().expect("it is there until this is dropped").repository
    }
}

impl Drop for PooledRepo {
    fn drop(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        open.uses += 1;
        if open.uses < USES {
            let other = self.pool.0.lock().replace(open);
            // It is dropped after the lock is released.
            drop(other);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use git2::{ObjectType, Oid};
    use tempfile::TempDir;

    use super::*;
    use crate::{
        commit_builder::CommitBuilder,
        repository::{ControlRepository, MAIN},
    };

    fn uses(pool: &RepoPool) -> Option<usize> {
        pool.0.lock().as_ref().map(|open| open.uses)
    }

    #[test]
    fn pool_reuses_repository_limited_times() {
        let directory = TempDir::new().unwrap();
        ControlRepository::open(directory.path(), false).unwrap();
        let pool = RepoPool::default();
        let lend = || pool.lend(directory.path()).unwrap();
        drop(lend());
        drop(lend());
        assert_eq!(uses(&pool), Some(2));
        // Whoever comes meanwhile has another.
        let (first, second) = (lend(), lend());
        assert_eq!(uses(&pool), None);
        drop(second);
        assert_eq!(uses(&pool), Some(1));
        drop(first);
        assert_eq!(uses(&pool), Some(3));
        for _ in 3..USES {
            drop(lend());
        }
        assert_eq!(uses(&pool), None, "it is opened anew");
        drop(lend());
        assert_eq!(uses(&pool), Some(1));
        pool.close();
        assert_eq!(uses(&pool), None);
    }

    fn git(directory: &TempDir, arguments: &[&str]) -> String {
        let output = Command::new("git").arg("-C").arg(directory.path()).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn open_repository_finds_repacked_objects() {
        let directory = TempDir::new().unwrap();
        let control = ControlRepository::open(directory.path(), false).unwrap();
        let commit = |base: Option<Oid>, content: &str| {
            control.commit(base, &[CommitBuilder::of_file("web.yaml", content)]).unwrap().unwrap()
        };
        let first = commit(None, "1");
        assert!(control.advance(None, first).unwrap());
        let second = commit(Some(first), "2");
        let pool = RepoPool::default();
        let open = pool.lend(directory.path()).unwrap();
        assert_eq!(open.refname_to_id(MAIN).unwrap(), first);
        open.find_commit(first).unwrap();
        // All of it comes into a pack that is new, and those that are open are removed.
        assert!(control.advance(Some(first), second).unwrap());
        git(&directory, &["repack", "-a", "-d", "-q"]);
        git(&directory, &["pack-refs", "--all"]);
        let blob = Oid::hash_object(ObjectType::Blob, b"2").unwrap();
        assert_eq!(open.refname_to_id(MAIN).unwrap(), second);
        assert_eq!(open.find_blob(blob).unwrap().content(), b"2");
        assert_eq!(open.find_commit(second).unwrap().parent_id(0).unwrap(), first);
        // What is loose and what is in another pack, too.
        let third = commit(Some(second), "3");
        open.find_commit(third).unwrap();
        let loose = Repository::open_bare(directory.path()).unwrap().blob(b"loose").unwrap();
        assert_eq!(open.find_blob(loose).unwrap().content(), b"loose");
    }
}
