//! The folders that a process keeps for later, which go once nobody has used them for long, or they have too much.
//!
//! Start at [`Folders::take`]. When a folder was last used is its own time of modification, so that the next process knows, too.
//!
//! **Invariant:** no folder goes while somebody has its [`Kept`].

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, SystemTime},
};

use super::{UNFINISHED, take_away};

/// A file takes whole blocks of the disk.
const BLOCK: u64 = 4096;

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// For how long a folder is kept after it was last used.
    pub unused: Duration,
    /// How many bytes all of them may have together; those that are in use stay all the same.
    pub bytes: u64,
}

/// The folders of one process, `<kind>/<name>` below another that is its alone.
#[derive(Clone, Debug)]
pub struct Folders {
    root: PathBuf,
    in_use: Arc<Mutex<HashMap<PathBuf, Weak<Used>>>>,
}

/// A folder that stays for as long as this does, or a clone of it.
#[derive(Clone, Debug)]
pub struct Kept(Arc<Used>);

#[derive(Debug)]
struct Used {
    path: PathBuf,
}

impl Kept {
    /// Where it is, once whoever has it makes it.
    pub fn path(&self) -> &Path {
        &self.0.path
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        use_now(&self.path);
    }
}

/// Notes that a folder is used now. One that is not there has nothing to note, and one that cannot be noted goes early.
fn use_now(folder: &Path) {
    let _ = File::open(folder).and_then(|folder| folder.set_modified(SystemTime::now()));
}

/// A folder that may go.
struct Candidate {
    path: PathBuf,
    used: SystemTime,
    bytes: u64,
}

impl Folders {
    /// Those below this one.
    pub fn new(root: PathBuf) -> Self {
        Self { root, in_use: Arc::default() }
    }

    /// A folder, whether it is there or not. Several may have one at once.
    pub fn take(&self, kind: &str, name: &str) -> Kept {
        let path = self.root.join(kind).join(name);
        let mut in_use = self.in_use();
        if let Some(used) = in_use.get(&path).and_then(Weak::upgrade) {
            return Kept(used);
        }
        in_use.retain(|_, used| used.strong_count() > 0);
        // A process that is killed notes nothing when it ends.
        use_now(&path);
        let used = Arc::new(Used { path: path.clone() });
        in_use.insert(path, Arc::downgrade(&used));
        Kept(used)
    }

    /// Removes the folders that nobody has used for too long, and then those last used longest ago, while all have too much.
    /// Returns how many went.
    ///
    /// # Errors
    ///
    /// When a folder cannot be read, and then none goes; or cannot be removed, and then the others go all the same.
    pub fn sweep(&self, bounds: Bounds) -> io::Result<usize> {
        let mut candidates = self.candidates()?;
        candidates.sort_by_key(|candidate| candidate.used);
        let (now, mut bytes) = (SystemTime::now(), candidates.iter().map(|candidate| candidate.bytes).sum::<u64>());
        let (mut removed, mut failed) = (0, None);
        for candidate in candidates {
            let unused = now.duration_since(candidate.used).unwrap_or_default();
            if unused < bounds.unused && bytes <= bounds.bytes {
                break;
            }
            match self.remove(&candidate) {
                Ok(true) => (removed, bytes) = (removed + 1, bytes - candidate.bytes),
                Ok(false) => {}
                Err(err) => failed = Some(err),
            }
        }
        failed.map_or(Ok(removed), Err)
    }

    /// Removes a folder, unless somebody has it, or had it since it was looked at.
    fn remove(&self, candidate: &Candidate) -> io::Result<bool> {
        let gone = {
            let in_use = self.in_use();
            let is_in_use = in_use.get(&candidate.path).is_some_and(|used| used.strong_count() > 0);
            let used = match fs::metadata(&candidate.path) {
                Ok(metadata) => metadata.modified()?,
                // Whoever had it removed it.
                Err(err) if is_absent(&err) => return Ok(false),
                Err(err) => return Err(err),
            };
            if is_in_use || used != candidate.used {
                return Ok(false);
            }
            // Nobody waits until all of it has gone.
            take_away(&candidate.path)?
        };
        gone.close().map(|()| true)
    }

    fn candidates(&self) -> io::Result<Vec<Candidate>> {
        let mut candidates = Vec::new();
        for kind in folders_in(&self.root)? {
            for path in folders_in(&kind)? {
                match fs::metadata(&path) {
                    Ok(metadata) => {
                        let (used, bytes) = (metadata.modified()?, size(&path)?);
                        candidates.push(Candidate { path, used, bytes });
                    }
                    // Whoever has it makes it anew.
                    Err(err) if is_absent(&err) => {}
                    Err(err) => return Err(err),
                }
            }
        }
        Ok(candidates)
    }

    fn in_use(&self) -> MutexGuard<'_, HashMap<PathBuf, Weak<Used>>> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The folders right in a folder, without those that are not finished.
fn folders_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && !entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            folders.push(entry.path());
        }
    }
    Ok(folders)
}

/// About how many bytes a folder takes, with all that is in it. Somebody may be at work there.
fn size(folder: &Path) -> io::Result<u64> {
    let entries = match fs::read_dir(folder) {
        Err(err) if is_absent(&err) => return Ok(0),
        entries => entries?,
    };
    let mut bytes = BLOCK;
    for entry in entries {
        let entry = entry?;
        bytes += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => size(&entry.path())?,
            Ok(metadata) => metadata.len().next_multiple_of(BLOCK),
            Err(err) if is_absent(&err) => 0,
            Err(err) => return Err(err),
        };
    }
    Ok(bytes)
}

fn is_absent(err: &io::Error) -> bool {
    err.kind() == io::ErrorKind::NotFound
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    const WEEK: Bounds = Bounds { unused: DAY.saturating_mul(7), bytes: u64::MAX };

    /// Makes folders of some 100 KiB each that were last used so many days ago.
    fn made(root: &Path, days: &[u32]) -> Folders {
        let folders = Folders::new(root.to_owned());
        for days in days {
            let kept = folders.take("git", &days.to_string());
            fs::create_dir_all(kept.path().join("objects")).unwrap();
            fs::write(kept.path().join("objects/pack"), vec![0; 100 << 10]).unwrap();
            drop(kept);
            age(root, *days);
        }
        folders
    }

    fn age(root: &Path, days: u32) {
        let folder = File::open(root.join("git").join(days.to_string())).unwrap();
        folder.set_modified(SystemTime::now() - DAY * days).unwrap();
    }

    fn left(root: &Path) -> Vec<String> {
        let entries = fs::read_dir(root.join("git")).unwrap();
        let mut names: Vec<String> = entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn folders_that_nobody_uses_go_and_those_in_use_stay() {
        let root = tempfile::tempdir().unwrap();
        let folders = made(root.path(), &[0, 6, 8, 9, 10]);
        let used = folders.take("git", "9");
        let (first, second) = (folders.take("git", "10"), folders.take("git", "10"));
        drop(first);
        // They were taken long ago.
        for days in [9, 10] {
            age(root.path(), days);
        }
        assert_eq!(folders.sweep(WEEK).unwrap(), 1);
        assert_eq!(left(root.path()), ["0", "10", "6", "9"]);
        // Whoever had them used them until now, for the next process, too.
        drop((used, second));
        assert_eq!(Folders::new(root.path().to_owned()).sweep(WEEK).unwrap(), 0);
        assert!(root.path().join("git/10/objects/pack").exists());
    }

    #[test]
    fn folders_last_used_longest_ago_go_while_all_have_too_much() {
        let root = tempfile::tempdir().unwrap();
        let folders = made(root.path(), &[0, 1, 2, 3]);
        // Somebody makes it: it is nothing yet that could go.
        fs::create_dir_all(root.path().join("git/new-1/made")).unwrap();
        let used = folders.take("git", "3");
        assert_eq!(folders.sweep(Bounds { bytes: 300 << 10, ..WEEK }).unwrap(), 2);
        assert_eq!(left(root.path()), ["0", "3", "new-1"]);
        assert_eq!(folders.sweep(Bounds { bytes: 1, ..WEEK }).unwrap(), 1);
        assert_eq!(left(root.path()), ["3", "new-1"], "what is in use stays, whatever it has");
        drop(used);
        assert_eq!(folders.sweep(Bounds { bytes: 1, ..WEEK }).unwrap(), 1);
    }

    #[test]
    fn folder_that_was_used_since_it_was_looked_at_stays() {
        let root = tempfile::tempdir().unwrap();
        let folders = made(root.path(), &[8]);
        let candidate = folders.candidates().unwrap().remove(0);
        drop(folders.take("git", "8"));
        assert!(!folders.remove(&candidate).unwrap());
        assert_eq!(left(root.path()), ["8"]);
    }

    #[test]
    fn folder_that_has_gone_since_it_was_looked_at_is_no_failure() {
        let root = tempfile::tempdir().unwrap();
        let folders = made(root.path(), &[8]);
        let candidate = folders.candidates().unwrap().remove(0);
        fs::remove_dir_all(&candidate.path).unwrap();
        assert!(!folders.remove(&candidate).unwrap());
    }

    #[test]
    fn nothing_is_swept_where_nothing_is_kept_and_nothing_is_left_in_memory() {
        let root = tempfile::tempdir().unwrap();
        let folders = Folders::new(root.path().to_owned());
        assert_eq!(folders.sweep(WEEK).unwrap(), 0);
        for name in 0..10 {
            drop(folders.take("git", &name.to_string()));
        }
        let _kept = folders.take("git", "one");
        assert_eq!(folders.in_use().len(), 1);
    }
}
