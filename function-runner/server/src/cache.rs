//! The folder in which a function-runner keeps what it fetched.
//!
//! A runner may start while the one before it still ends, and must not share its files. So each runner has a folder of its own below
//! the given one, and locks it while it lives: `0` for the only runner, the next number while that is taken.
//!
//! The folder is readable for its owner alone, since its files were fetched with credentials.
//!
//! It contains the caches of sources (`git`), the copies of GitOps repositories (`gitops`) and the packages of providers (`providers`),
//! each for one remote and one set of credentials. A folder is removed when nobody has used it for some time ([`keep_sweeping`]).

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
/// Only the owner may enter a folder.
const OWN: u32 = 0o700;

/// A folder that is this process's alone until it is dropped.
#[derive(Debug)]
pub(crate) struct CacheFolder {
    path: PathBuf,
    lock: File,
}

impl CacheFolder {
    /// Locks the first free folder, removes leftovers of a killed process there, and removes the free folders after it.
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
        let folder = taken.ok_or_else(|| {
            io::Error::other(format!(
                "{} is in use by {MOST} function-runners already; set another --cache-dir",
                root.display()
            ))
        })?;
        stoa_git::cache::remove_leftovers(&folder.path)?;
        make_own(&folder.path)?;
        // One that is there may be from before, and everybody's. The folder around it may be somebody else's, as that of a
        // volume is.
        if fs::metadata(&folder.path)?.permissions().mode() & 0o777 != OWN {
            fs::set_permissions(&folder.path, Permissions::from_mode(OWN))?;
        }
        Ok(folder)
    }

    /// A folder for temporary files, without those of earlier processes, beside the other and as private. No sweep for unused caches finds it.
    pub(crate) fn temporary(&self) -> io::Result<PathBuf> {
        let path = self.path.with_extension("run");
        match fs::remove_dir_all(&path) {
            // What programs of others left there disturbs nobody.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, folder = %path.display(), "temporary files cannot be removed");
            }
            _ => {}
        }
        make_own(&path)?;
        Ok(path)
    }

    /// The folder, which this process keeps until it ends: a sweep, or a call without a caller, may still work in it.
    pub(crate) fn until_the_end(self) -> PathBuf {
        std::mem::forget(self.lock);
        self.path
    }

    #[cfg(test)]
    fn path(&self) -> &Path {
        &self.path
    }
}

/// Creates a folder that only its owner may enter, unless it exists.
fn make_own(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(OWN).create(folder)
}

/// How often unused caches are removed, and the size of all is checked. Each fetch makes room as well (`crate::source::disk`).
const EVERY: Duration = Duration::from_secs(5 * 60);

/// Removes unused caches, now and periodically, and leftovers of processes that died in the copy of a repository: no process
/// works longer than `long`.
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
                Ok(Ok(removed)) => tracing::info!(removed, "removed unused caches"),
                Ok(Err(error)) => tracing::warn!(%error, "unused caches cannot be removed"),
                Err(error) => tracing::error!(%error, "the sweep for unused caches failed"),
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
    fn runners_lock_folders_and_reuse_the_first() {
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
    fn temporary_folder_begins_empty_and_private() {
        let root = tempfile::tempdir().unwrap();
        let cache = CacheFolder::take(root.path()).unwrap();
        let folder = cache.temporary().unwrap();
        assert_eq!(folder, root.path().join("0.run"));
        fs::write(folder.join("left"), "").unwrap();
        assert_eq!(fs::read_dir(cache.temporary().unwrap()).unwrap().count(), 0);
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, OWN);
    }

    #[test]
    fn cache_folder_is_private() {
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
    fn locked_folder_is_not_shared_before_its_end() {
        let root = tempfile::tempdir().unwrap();
        let first = CacheFolder::take(root.path()).unwrap().until_the_end();
        let second = CacheFolder::take(root.path()).unwrap();
        assert_eq!((&*first, second.path()), (&*root.path().join("0"), &*root.path().join("1")));
    }

    #[tokio::test(start_paused = true)]
    async fn unused_caches_are_removed_periodically() {
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
    async fn leftovers_are_removed_from_a_copy_in_use() {
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
