//! The folder in which a runner keeps what it fetched.
//!
//! A runner that is started while the one before it still ends would share its files, and neither could tell what a
//! killed one left from what the other is writing. So each has a folder of its own below the given one, locked as long as
//! it lives: `0` for the only one there is, the next number while that is taken.
//!
//! What is fetched with somebody's credentials is nobody else's, other users of the machine included.
//!
//! In it are the caches of sources (`git`) and the copies of GitOps repositories (`gitops`), each for one remote and one set of
//! credentials, in a folder that goes when nobody has used it for some time ([`keep_sweeping`]).

use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use stoa_git::cache::{Bounds, Folders};
use tokio_util::sync::CancellationToken;

use crate::runtimes::COPIES;

/// More runners than this never share a directory.
const MOST: u32 = 64;
/// Only this user of the machine comes to what is in a folder.
const OWN: u32 = 0o700;

/// A folder that is this process's alone until it is dropped.
#[derive(Debug)]
pub(crate) struct CacheFolder {
    path: PathBuf,
    lock: File,
}

impl CacheFolder {
    /// Takes the first folder that is free, without what a killed process left there, and removes the free ones after it.
    ///
    /// # Errors
    ///
    /// When files cannot be read or written, or all folders are taken.
    pub(crate) fn take(root: &Path) -> io::Result<Self> {
        make_own(root)?;
        let mut taken = None;
        for number in 0..MOST {
            let path = root.join(number.to_string());
            if taken.is_some() && !path.exists() {
                break;
            }
            let lock = File::options().create(true).append(true).open(root.join(format!("{number}.lock")))?;
            match lock.try_lock() {
                Ok(()) if taken.is_none() => taken = Some(Self { path, lock }),
                Ok(()) => fs::remove_dir_all(path)?,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(err)) => return Err(err),
            }
        }
        let folder =
            taken.ok_or_else(|| io::Error::other(format!("{} is used by {MOST} processes", root.display())))?;
        stoa_git::cache::remove_leftovers(&folder.path)?;
        make_own(&folder.path)?;
        // One that is there may be from before, and everybody's. The folder around it may be somebody else's, as that of a
        // volume is.
        if fs::metadata(&folder.path)?.permissions().mode() & 0o777 != OWN {
            fs::set_permissions(&folder.path, Permissions::from_mode(OWN))?;
        }
        Ok(folder)
    }

    /// The folder, which stays this process's until that ends: a sweep, or a call that is not waited for any more, may be at
    /// work in it to the last.
    pub(crate) fn until_the_end(self) -> PathBuf {
        std::mem::forget(self.lock);
        self.path
    }

    #[cfg(test)]
    fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes a folder that only its owner comes to, unless it is there.
fn make_own(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(OWN).create(folder)
}

/// How often it is looked what nobody uses any more, and whether all of it has too much. Before anything is fetched
/// room is made for it besides (`crate::source::disk`).
const EVERY: Duration = Duration::from_secs(5 * 60);

/// Removes what is not to be kept any more, now and from time to time, and what a process left in the copy of a repository that
/// came to no end there: none is at work for as `long`.
pub(crate) async fn keep_sweeping(folders: Folders, bounds: Bounds, long: Duration, ended: CancellationToken) {
    let sweep = async {
        loop {
            let folders = folders.clone();
            let swept = tokio::task::spawn_blocking(move || {
                let abandoned = folders.remove_abandoned(COPIES, long);
                let swept = folders.sweep(bounds);
                abandoned.and(swept)
            });
            match swept.await {
                Ok(Ok(0)) => {}
                Ok(Ok(removed)) => tracing::info!(removed, "caches that nobody used went"),
                Ok(Err(error)) => tracing::warn!(%error, "caches that nobody uses cannot be removed"),
                Err(error) => tracing::error!(%error, "looking for caches that nobody uses came to no end"),
            }
            tokio::time::sleep(EVERY).await;
        }
    };
    ended.run_until_cancelled(sweep).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_folder_of_its_own_and_the_first_is_used_again() {
        let root = tempfile::tempdir().unwrap();
        let first = CacheFolder::take(root.path()).unwrap();
        let second = CacheFolder::take(root.path()).unwrap();
        assert_eq!((first.path(), second.path()), (&*root.path().join("0"), &*root.path().join("1")));
        fs::write(first.path().join("fetched"), "").unwrap();
        fs::write(first.path().join("main.lock"), "").unwrap();

        drop(first);
        let first = CacheFolder::take(root.path()).unwrap();
        assert_eq!(first.path(), root.path().join("0"));
        assert!(first.path().join("fetched").exists() && !first.path().join("main.lock").exists());
        assert!(second.path().exists(), "somebody has it");

        drop((first, second));
        CacheFolder::take(root.path()).unwrap();
        assert!(!root.path().join("1").exists(), "nobody has it any more");
    }

    #[test]
    fn nobody_else_comes_to_what_is_fetched() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let root = folder.path().join("runner/cache");
        let first = CacheFolder::take(&root).unwrap();
        assert_eq!([mode(&root), mode(first.path())], [OWN; 2]);
        // It is from before, and below somebody else's.
        for path in [&*root, first.path()] {
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        drop(first);
        let first = CacheFolder::take(&root).unwrap();
        assert_eq!([mode(&root), mode(first.path())], [0o755, OWN]);
    }

    #[test]
    fn folder_that_is_taken_until_the_end_is_nobody_elses_before() {
        let root = tempfile::tempdir().unwrap();
        let first = CacheFolder::take(root.path()).unwrap().until_the_end();
        let second = CacheFolder::take(root.path()).unwrap();
        assert_eq!((&*first, second.path()), (&*root.path().join("0"), &*root.path().join("1")));
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_uses_goes_at_the_start_and_from_time_to_time() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("git/a");
        let (folders, ended) = (Folders::new(root.path().to_owned()), CancellationToken::new());
        fs::create_dir_all(&folder).unwrap();
        let bounds = Bounds { unused: Duration::ZERO, bytes: 0 };
        let sweeping = tokio::spawn(keep_sweeping(folders, bounds, EVERY, ended.clone()));
        for _ in 0..3 {
            let gone = async {
                while folder.exists() {
                    tokio::time::sleep(Duration::from_secs(60)).await;
                }
            };
            tokio::time::timeout(2 * EVERY, gone).await.unwrap();
            fs::create_dir_all(&folder).unwrap();
        }
        ended.cancel();
        sweeping.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_process_left_in_a_copy_goes_while_others_use_that() {
        let root = tempfile::tempdir().unwrap();
        let (folders, ended) = (Folders::new(root.path().to_owned()), CancellationToken::new());
        let used = folders.take(COPIES, "a");
        let packs = used.path().join("copy/objects/pack");
        fs::create_dir_all(&packs).unwrap();
        let left = packs.join("pack_git2_a8WyPd");
        fs::write(&left, "half").unwrap();
        let an_hour_ago = std::time::SystemTime::now() - Duration::from_secs(60 * 60);
        File::options().write(true).open(&left).unwrap().set_modified(an_hour_ago).unwrap();
        let bounds = Bounds { unused: Duration::MAX, bytes: u64::MAX };
        let sweeping = tokio::spawn(keep_sweeping(folders, bounds, Duration::from_secs(60), ended.clone()));
        let gone = async {
            while left.exists() {
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
        };
        tokio::time::timeout(2 * EVERY, gone).await.unwrap();
        assert!(packs.exists());
        ended.cancel();
        sweeping.await.unwrap();
    }
}
