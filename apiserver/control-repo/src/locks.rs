//! Takes the lock of the control repository, and removes the lock files of killed processes.
//!
//! Git and libgit2 lock a file by making `<name>.lock` beside it, and never remove the file of another process. A leftover would
//! fail every later change.
//!
//! Start at [`take`].

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use stoa_storage::local::create_private_dir;

/// Lock files that only the owner of the repository's lock writes, besides those of the refs in [`OURS_UNDER`].
const OURS: [&str; 2] = ["config.lock", "libgit2.config.lock"];
const OURS_UNDER: &str = "refs/stoa";
/// Lock files that pushes write, too.
const SHARED: [&str; 3] = ["refs/heads/main.lock", "packed-refs.lock", "HEAD.lock"];
/// The longest time for which a live process has one of those: it writes a line and syncs it.
const LONGEST: Duration = Duration::from_secs(60);

/// Takes the lock of the repository at `path`, until the file is dropped, and removes leftover lock files. It makes the
/// folder if need be.
pub(super) fn take(path: &Path) -> Result<File, git2::Error> {
    let cannot = |error: io::Error| git2::Error::from_str(&format!("it cannot be locked: {error}"));
    if let Some(parent) = path.parent() {
        create_private_dir(parent).map_err(cannot)?;
    }
    fs::create_dir_all(path).map_err(cannot)?;
    let lock = File::create(path.join("stoa.lock")).map_err(cannot)?;
    lock.try_lock().map_err(|error| git2::Error::from_str(&format!("it is in use by another process: {error}")))?;
    remove_left(path, &lock).map_err(cannot)?;
    Ok(lock)
}

/// The lock file, which was written just now, has the time of the file system.
fn remove_left(path: &Path, lock: &File) -> io::Result<()> {
    let mut left = OURS.map(|name| path.join(name)).to_vec();
    collect(&path.join(OURS_UNDER), &mut left)?;
    let now = lock.metadata()?.modified()?;
    for name in SHARED {
        let file = path.join(name);
        if let Ok(metadata) = fs::metadata(&file)
            && now.duration_since(metadata.modified()?).is_ok_and(|age| age > LONGEST)
        {
            left.push(file);
        }
    }
    for file in left {
        match fs::remove_file(&file) {
            Ok(()) => tracing::warn!(file = %file.display(), "a lock that was left is taken away"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The locks in a folder of refs.
fn collect(folder: &Path, locks: &mut Vec<PathBuf>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            collect(&path, locks)?;
        } else if path.extension().is_some_and(|extension| extension == "lock") {
            locks.push(path);
        }
    }
    Ok(())
}
