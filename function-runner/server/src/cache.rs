//! The folder in which a runner keeps what it fetched.
//!
//! A runner that is started while the one before it still ends would share its files, and neither could tell what a
//! killed one left from what the other is writing. So each has a folder of its own below the given one, locked as long as
//! it lives: `0` for the only one there is, the next number while that is taken.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// More runners than this never share a directory.
const MOST: u32 = 64;

/// A folder that is this process's alone until it is dropped.
#[derive(Debug)]
pub(crate) struct CacheFolder {
    path: PathBuf,
    _lock: File,
}

impl CacheFolder {
    /// Takes the first folder that is free, without what a killed process left there, and removes the free ones after it.
    ///
    /// # Errors
    ///
    /// When files cannot be read or written, or all folders are taken.
    pub(crate) fn take(root: &Path) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        let mut taken = None;
        for number in 0..MOST {
            let path = root.join(number.to_string());
            if taken.is_some() && !path.exists() {
                break;
            }
            let lock = File::options().create(true).append(true).open(root.join(format!("{number}.lock")))?;
            match lock.try_lock() {
                Ok(()) if taken.is_none() => taken = Some(Self { path, _lock: lock }),
                Ok(()) => fs::remove_dir_all(path)?,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(err)) => return Err(err),
            }
        }
        let folder =
            taken.ok_or_else(|| io::Error::other(format!("{} is used by {MOST} processes", root.display())))?;
        stoa_git::cache::remove_leftovers(&folder.path)?;
        fs::create_dir_all(&folder.path)?;
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
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
}
