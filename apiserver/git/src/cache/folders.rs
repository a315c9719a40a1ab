//! The cached folders of a process, which are removed after a long time without use, or when they have too many bytes.
//!
//! Start at [`Folders::take`]. The modification time of a folder is its last use, so that the next process knows it. The sizes are
//! recorded by [`Folders::sweep`] and [`Folders::measure`], so that [`Folders::make_room`] reads no folder.
//!
//! **Invariant:** no folder is removed while its [`Kept`] exists.

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant, SystemTime},
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
    /// How many bytes all of them may have together before there is more.
    most: u64,
    in_use: Arc<Mutex<HashMap<PathBuf, Weak<Used>>>>,
    /// How much each had when it was looked at last.
    sizes: Arc<Mutex<HashMap<PathBuf, Size>>>,
    /// Held by whoever removes folders: two would each remove enough.
    making_room: Arc<Mutex<()>>,
}

/// How much a folder had.
#[derive(Clone, Copy, Debug)]
struct Size {
    bytes: u64,
    /// When the look at it, or at all, began.
    looked: Instant,
}

/// A folder that stays for as long as this does, or a clone of it.
#[derive(Clone, Debug)]
pub struct Kept(Arc<Used>);

#[derive(Debug)]
struct Used {
    path: PathBuf,
    /// For whom, if that is known.
    user: String,
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

/// What became of a folder that may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Removed,
    /// Others removed it.
    Absent,
    /// Somebody has it, or had it since it was looked at.
    InUse,
}

impl Folders {
    /// Those below this one.
    pub fn new(root: PathBuf) -> Self {
        Self { root, most: u64::MAX, in_use: Arc::default(), sizes: Arc::default(), making_room: Arc::default() }
    }

    /// The same, for which [`make_room`](Self::make_room) has so many bytes.
    #[must_use]
    pub fn of_at_most(self, bytes: u64) -> Self {
        Self { most: bytes, ..self }
    }

    /// How many bytes all of them may have together before there is more.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Where a folder is that somebody may [take](Self::take).
    pub fn path(&self, kind: &str, name: &str) -> PathBuf {
        self.root.join(kind).join(name)
    }

    /// A folder, whether it is there or not. Several may have one at once.
    pub fn take(&self, kind: &str, name: &str) -> Kept {
        self.take_for(kind, name, "")
    }

    /// The same for somebody whose use is [counted](Self::used_by): of several who have it at once, the first.
    pub fn take_for(&self, kind: &str, name: &str, user: &str) -> Kept {
        self.take_or_begin(kind, name, user, |_| ())
    }

    /// The same, after which there is nothing in it where it had more than so many bytes when it was looked at last, and
    /// nobody else has it.
    ///
    /// # Errors
    ///
    /// When it cannot be removed: it is as it was then, and taken all the same.
    pub fn take_up_to(&self, kind: &str, name: &str, user: &str, most: u64) -> (Kept, io::Result<()>) {
        let mut removed = Ok(());
        let kept = self.take_or_begin(kind, name, user, |path| {
            if self.sizes().get(path).is_some_and(|size| size.bytes > most) {
                removed = take_away(path).map(|gone| {
                    self.sizes().remove(path);
                    // Nobody waits until all of it has gone.
                    std::thread::spawn(move || drop(gone));
                });
            }
        });
        let is_absent = removed.as_ref().is_err_and(is_absent);
        (kept, if is_absent { Ok(()) } else { removed })
    }

    /// A folder, of which something is done if nobody else has it.
    fn take_or_begin(&self, kind: &str, name: &str, user: &str, begin: impl FnOnce(&Path)) -> Kept {
        let path = self.path(kind, name);
        let mut in_use = self.in_use();
        if let Some(used) = in_use.get(&path).and_then(Weak::upgrade) {
            return Kept(used);
        }
        in_use.retain(|_, used| used.strong_count() > 0);
        begin(&path);
        // A process that is killed notes nothing when it ends.
        use_now(&path);
        let used = Arc::new(Used { path: path.clone(), user: user.to_owned() });
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
        // Nobody who makes room waits until all has been looked at. What goes meanwhile is absent below.
        let began = Instant::now();
        let candidates = self.candidates()?;
        let _making = self.making_room();
        self.note(&candidates, began);
        self.shrink(candidates, bounds).map(|(removed, _)| removed)
    }

    /// Removes objects and packs that came to no end, and that nobody has written to for so long, of the bare repositories that
    /// are right in the folders of a kind. Others may be at work there meanwhile.
    ///
    /// # Errors
    ///
    /// When a folder cannot be read or a file not removed.
    pub fn remove_abandoned(&self, kind: &str, unchanged: Duration) -> io::Result<()> {
        for folder in folders_if_there(&self.root.join(kind))? {
            for repository in folders_if_there(&folder)? {
                super::remove_abandoned(&repository, unchanged)?;
            }
        }
        Ok(())
    }

    /// Looks how many bytes a folder has, and notes it; none where it is not there.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn measure(&self, folder: &Kept) -> io::Result<u64> {
        let looked = Instant::now();
        let bytes = size(folder.path())?;
        let mut sizes = self.sizes();
        let noted = sizes.entry(folder.path().to_owned()).or_insert(Size { bytes, looked });
        // Somebody else may have begun later, and been faster.
        if noted.looked <= looked {
            *noted = Size { bytes, looked };
        }
        Ok(bytes)
    }

    /// How many bytes a folder had when it was looked at last.
    pub fn size_of(&self, folder: &Kept) -> u64 {
        self.sizes().get(folder.path()).map_or(0, |size| size.bytes)
    }

    /// How many bytes the folders had when they were looked at last that are in use for somebody, one of them aside.
    pub fn used_by(&self, user: &str, besides: &Kept) -> u64 {
        let used: Vec<Arc<Used>> = self.in_use().values().filter_map(Weak::upgrade).collect();
        let sizes = self.sizes();
        let of_user = used.iter().filter(|used| used.user == user && used.path != besides.path());
        of_user.filter_map(|used| sizes.get(&used.path)).map(|size| size.bytes).sum()
    }

    /// Whether all had more than they may have together when they were looked at last.
    pub fn is_over(&self) -> bool {
        self.sizes().values().map(|size| size.bytes).sum::<u64>() > self.most
    }

    /// Removes the folders last used longest ago that nobody uses, while all had more than they may have together when they
    /// were looked at last. Returns whether they have no more than that now.
    ///
    /// # Errors
    ///
    /// As [`sweep`](Self::sweep) has them.
    pub fn make_room(&self) -> io::Result<bool> {
        let _making = self.making_room();
        let noted: Vec<(PathBuf, u64)> = self.sizes().iter().map(|(path, size)| (path.clone(), size.bytes)).collect();
        let mut candidates = Vec::new();
        for (path, bytes) in noted {
            match fs::metadata(&path) {
                Ok(metadata) => candidates.push(Candidate { path, used: metadata.modified()?, bytes }),
                Err(err) if is_absent(&err) => {
                    self.sizes().remove(&path);
                }
                Err(err) => return Err(err),
            }
        }
        let bounds = Bounds { unused: Duration::MAX, bytes: self.most };
        self.shrink(candidates, bounds).map(|(_, left)| left <= self.most)
    }

    /// Removes of these what is not to be kept: how many went, and how many bytes are left.
    fn shrink(&self, mut candidates: Vec<Candidate>, bounds: Bounds) -> io::Result<(usize, u64)> {
        candidates.sort_by_key(|candidate| candidate.used);
        let (now, mut bytes) = (SystemTime::now(), candidates.iter().map(|candidate| candidate.bytes).sum::<u64>());
        let (mut removed, mut failed) = (0, None);
        for candidate in candidates {
            let unused = now.duration_since(candidate.used).unwrap_or_default();
            if unused < bounds.unused && bytes <= bounds.bytes {
                break;
            }
            match self.remove(&candidate) {
                Ok(outcome @ (Outcome::Removed | Outcome::Absent)) => {
                    removed += usize::from(outcome == Outcome::Removed);
                    bytes -= candidate.bytes;
                    self.sizes().remove(&candidate.path);
                }
                Ok(Outcome::InUse) => {}
                Err(err) => failed = Some(err),
            }
        }
        failed.map_or(Ok((removed, bytes)), Err)
    }

    /// Notes how much each folder had in a look at all that began then. What was looked at since has what it had there.
    fn note(&self, candidates: &[Candidate], began: Instant) {
        let mut sizes = self.sizes();
        sizes.retain(|_, size| size.looked >= began);
        for Candidate { path, bytes, .. } in candidates {
            sizes.entry(path.clone()).or_insert(Size { bytes: *bytes, looked: began });
        }
    }

    /// Removes a folder, unless somebody has it, or had it since it was looked at.
    fn remove(&self, candidate: &Candidate) -> io::Result<Outcome> {
        let gone = {
            let in_use = self.in_use();
            let is_in_use = in_use.get(&candidate.path).is_some_and(|used| used.strong_count() > 0);
            let used = match fs::metadata(&candidate.path) {
                Ok(metadata) => metadata.modified()?,
                Err(err) if is_absent(&err) => return Ok(Outcome::Absent),
                Err(err) => return Err(err),
            };
            if is_in_use || used != candidate.used {
                return Ok(Outcome::InUse);
            }
            // Nobody waits until all of it has gone.
            take_away(&candidate.path)?
        };
        gone.close().map(|()| Outcome::Removed)
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

    fn making_room(&self) -> MutexGuard<'_, ()> {
        self.making_room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sizes(&self) -> MutexGuard<'_, HashMap<PathBuf, Size>> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner)
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

/// The same of a folder that may be gone.
fn folders_if_there(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match folders_in(folder) {
        Err(err) if is_absent(&err) => Ok(Vec::new()),
        folders => folders,
    }
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
    fn sweep_removes_only_unused_folders() {
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
    fn sweep_removes_least_recently_used_folders() {
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
    fn room_is_made_of_what_nobody_uses() {
        let root = tempfile::tempdir().unwrap();
        let folders = made(root.path(), &[0, 1, 2, 3]).of_at_most(300 << 10);
        assert!(!folders.is_over() && folders.make_room().unwrap(), "nothing is known yet");
        assert_eq!(folders.sweep(WEEK).unwrap(), 0);
        assert!(folders.is_over());
        let used = folders.take("git", "3");
        assert!(folders.make_room().unwrap() && !folders.is_over());
        assert_eq!(left(root.path()), ["0", "3"]);

        let (began, before) = (Instant::now(), folders.candidates().unwrap());
        fs::write(used.path().join("objects/pack"), vec![0; 500 << 10]).unwrap();
        assert!(folders.size_of(&used) < 200 << 10, "nobody looked");
        assert!(folders.measure(&used).unwrap() > 500 << 10);
        folders.note(&before, began);
        assert!(folders.is_over() && folders.size_of(&used) > 500 << 10, "a look that began before takes nothing back");
        assert!(!folders.make_room().unwrap());
        assert_eq!(left(root.path()), ["3"], "what is in use stays");
        drop(used);
        assert!(folders.make_room().unwrap());
        assert!(left(root.path()).is_empty() && !folders.is_over());
    }

    #[test]
    fn latest_measurement_determines_folder_size() {
        let root = tempfile::tempdir().unwrap();
        let folders = made(root.path(), &[0, 1]);
        let [shrinks, grows] = ["0", "1"].map(|name| folders.take("git", name));
        let write = |kept: &Kept, kib: usize| fs::write(kept.path().join("objects/pack"), vec![0; kib << 10]).unwrap();
        write(&shrinks, 500);
        assert!(folders.measure(&shrinks).unwrap() > 500 << 10);
        write(&shrinks, 10);
        folders.sweep(WEEK).unwrap();
        assert!(folders.size_of(&shrinks) < 50 << 10, "though it is in use");
        let (began, before) = (Instant::now(), folders.candidates().unwrap());
        write(&grows, 500);
        folders.measure(&grows).unwrap();
        drop(grows);
        folders.note(&before, began);
        let grown = folders.take("git", "1");
        assert!(folders.size_of(&grown) > 500 << 10, "though nobody used it by then");
        assert!(folders.size_of(&shrinks) < 50 << 10);
    }

    #[test]
    fn usage_excludes_requested_folder() {
        let root = tempfile::tempdir().unwrap();
        let folders = made(root.path(), &[0, 1, 2, 3]);
        folders.sweep(WEEK).unwrap();
        let [one, two, of_other] =
            [("0", "a"), ("1", "a"), ("2", "b")].map(|(name, user)| folders.take_for("git", name, user));
        let bytes = folders.size_of(&one);
        assert!(bytes > 100 << 10);
        assert_eq!(folders.used_by("a", &one), folders.size_of(&two));
        assert_eq!(folders.used_by("a", &of_other), bytes + folders.size_of(&two));
        let again = folders.take_for("git", "0", "b");
        assert_eq!((folders.used_by("b", &of_other), folders.used_by("c", &one)), (0, 0), "the first one has it");
        drop((one, two, again));
        assert_eq!(folders.used_by("a", &of_other), 0);
    }

    #[test]
    fn oversized_folder_restarts_empty_when_unused() {
        let root = tempfile::tempdir().unwrap();
        let folders = made(root.path(), &[0, 1]);
        let take = |name: &str| {
            let (kept, removed) = folders.take_up_to("git", name, "a", 50 << 10);
            removed.unwrap();
            kept
        };
        let used = take("0");
        assert!(used.path().exists(), "nobody has looked");
        folders.measure(&used).unwrap();
        assert!(take("0").path().exists(), "somebody has it");
        drop(used);
        let again = take("0");
        assert!(!again.path().exists() && folders.size_of(&again) == 0);
        drop(take("1"));
        folders.sweep(WEEK).unwrap();
        let small = folders.take_up_to("git", "1", "a", 1 << 20);
        assert!(small.1.is_ok() && small.0.path().exists());
        std::fs::remove_dir_all(small.0.path()).unwrap();
        drop(small);
        assert!(!take("1").path().exists(), "it had gone already");
    }

    #[test]
    fn sweep_spares_folder_used_since_measurement() {
        let root = tempfile::tempdir().unwrap();
        let folders = made(root.path(), &[8]);
        let candidate = folders.candidates().unwrap().remove(0);
        drop(folders.take("git", "8"));
        assert_eq!(folders.remove(&candidate).unwrap(), Outcome::InUse);
        assert_eq!(left(root.path()), ["8"]);
    }

    #[test]
    fn vanished_folder_spares_others_from_removal() {
        let root = tempfile::tempdir().unwrap();
        let folders = made(root.path(), &[0, 1, 2]);
        let candidates = folders.candidates().unwrap();
        folders.note(&candidates, Instant::now());
        fs::remove_dir_all(root.path().join("git/2")).unwrap();
        let (removed, bytes) = folders.shrink(candidates, Bounds { bytes: 300 << 10, ..WEEK }).unwrap();
        assert_eq!((removed, left(root.path())), (0, vec!["0".to_owned(), "1".to_owned()]));
        assert_eq!(folders.sizes().values().map(|size| size.bytes).sum::<u64>(), bytes);
    }

    #[test]
    fn cleanup_removes_only_abandoned_repository_files() {
        let root = tempfile::tempdir().unwrap();
        let folders = Folders::new(root.path().to_owned());
        folders.remove_abandoned("copies", DAY).unwrap();
        let at = |repository: &str, name: &str, days: u32| {
            let packs = root.path().join(repository).join("objects/pack");
            fs::create_dir_all(&packs).unwrap();
            let path = packs.join(name);
            fs::write(&path, "half").unwrap();
            File::options().write(true).open(&path).unwrap().set_modified(SystemTime::now() - DAY * days).unwrap();
            path
        };
        let abandoned = [at("copies/a/one", "pack_git2_x3Qs0k", 2), at("copies/b/two", "pack_git2_a8WyPd", 3)];
        let kept = [
            at("copies/a/one", "pack_git2_b9XzQe", 0),
            at("copies/a/one", "pack-1.pack", 2),
            at("others/a/one", "pack_git2_x3Qs0k", 2),
        ];
        folders.remove_abandoned("copies", DAY).unwrap();
        assert!(kept.iter().all(|path| path.exists()) && !abandoned.iter().any(|path| path.exists()));
    }

    #[test]
    fn unused_folders_leave_no_entry_in_memory() {
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
