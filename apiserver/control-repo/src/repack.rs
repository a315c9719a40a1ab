//! Keeps the number of packs small, in a task of its own.
//!
//! libgit2 has no `gc`. Small packs and loose objects become one pack, as with `git repack --geometric=2`: each pack has at least
//! twice as many objects as the next smaller one. With n objects there are about log n packs, and an object is copied only when
//! its pack doubles.
//!
//! No write waits for a merge; its lock excludes only other merges. Merged packs are removed a round later, so no reader
//! misses a pack that it is about to open. A crash at any point leaves objects twice at worst, which the next round merges.
//!
//! Start at [`keep_few`]. Elsewhere: `merge` makes one pack of several.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use git2::{Oid, Repository};

use super::{
    merge, objects,
    pack_index::COUNT_AT,
    packs::{self, failed},
    repository,
};
use stoa_storage::local::require_room_at;

/// The number of packs below the progression that leads to a merge.
const SMALL: usize = 8;
/// The number of loose objects that leads to a merge.
const LOOSE: usize = 64;
/// The largest loose object that is merged: it has to be in memory.
const TOO_LARGE: usize = 64 << 20;
/// How much room a merge leaves to others, in bytes.
const SPARE: u64 = 64 << 20;
/// Where packs are while they are written.
const UNFINISHED: &str = "unfinished-repacks";

/// A pack and the number of its objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pack {
    objects: usize,
    written: SystemTime,
    name: String,
}

/// The exclusive right to merge packs of a repository. Two concurrent merges might each remove the new pack of the other.
struct Repacker {
    path: PathBuf,
    /// The files that the last round merged.
    merged: Vec<PathBuf>,
    _lock: File,
}

impl Repacker {
    /// `None` while another process has the right, or before the repository exists.
    fn new(path: PathBuf) -> io::Result<Option<Self>> {
        if !path.join("objects/pack").is_dir() {
            return Ok(None);
        }
        let lock = File::create(path.join("repack.lock"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self { path, merged: Vec::new(), _lock: lock })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Removes the files that the last round merged, and merges again if need be.
    fn round(&mut self) -> Result<(), git2::Error> {
        remove(&std::mem::take(&mut self.merged)).map_err(failed)?;
        self.merged = round(&self.path)?;
        Ok(())
    }
}

/// Merges packs of the repository at `path` whenever they are many, until dropped.
pub(super) async fn keep_few(path: PathBuf, interval: Duration) {
    let mut repacker = None;
    loop {
        tokio::time::sleep(interval).await;
        repacker = turn(path.clone(), repacker).await;
    }
}

/// One round, on a blocking thread. The round and its lock last to its end, also after the caller left.
async fn turn(path: PathBuf, repacker: Option<Repacker>) -> Option<Repacker> {
    let round = tokio::task::spawn_blocking(move || {
        let repacker = repacker.map_or_else(|| Repacker::new(path).map_err(failed), |repacker| Ok(Some(repacker)))?;
        let Some(mut repacker) = repacker else { return Ok(None) };
        repacker.round()?;
        Ok::<_, git2::Error>(Some(repacker))
    });
    match round.await {
        Ok(Ok(turn)) => return turn,
        Ok(Err(error)) => tracing::warn!(%error, "the control repository is not repacked for now"),
        Err(error) => tracing::error!(%error, "the repack of the control repository ended badly"),
    }
    None
}

/// Merges packs and loose objects; returns the useless files in the order of their removal.
fn round(path: &Path) -> Result<Vec<PathBuf>, git2::Error> {
    let directory = path.join("objects/pack");
    let mut all = list(&directory).map_err(failed)?;
    all.sort();
    let repository = repository::open(path)?;
    let odb = repository.odb()?;
    let mut loose = loose(path).map_err(failed)?;
    loose.retain(|(id, _)| odb.read_header(*id).is_ok_and(|(size, _)| size <= TOO_LARGE));
    let counts: Vec<usize> = all.iter().map(|pack| pack.objects).collect();
    let small = rolled_up(&counts, loose.len());
    if small < SMALL && loose.len() < LOOSE {
        return Ok(Vec::new());
    }
    let mut merged = all[..small].to_vec();
    merged.sort_by_key(|pack| std::cmp::Reverse(pack.written));
    let new = write(&repository, &merged, &loose)?;
    tracing::debug!(packs = merged.len(), loose = loose.len(), "packs are merged");
    let mut files = Vec::new();
    for pack in merged.iter().filter(|pack| pack.name != new) {
        // The index first: a pack without one is ignored, an index without its pack an error.
        files.extend(["idx", "rev", "bitmap", "mtimes", "pack"].map(|s| directory.join(format!("{}.{s}", pack.name))));
    }
    files.extend(loose.into_iter().map(|(_, file)| file));
    Ok(files)
}

/// The number of packs, counted from the smallest, that become one with the loose objects, so that each remaining pack has
/// at least twice as many objects as the next smaller one.
fn rolled_up(counts: &[usize], loose: usize) -> usize {
    let broken = (1..counts.len()).rev().find(|i| counts[*i] < counts[*i - 1].saturating_mul(2));
    let mut split = broken.map_or(0, |i| i + 1);
    let mut sum: usize = counts[..split].iter().sum::<usize>() + loose;
    while sum > 0 && split < counts.len() && counts[split] < sum.saturating_mul(2) {
        sum += counts[split];
        split += 1;
    }
    split
}

/// Writes one pack, durably, with the objects of some packs, newest first, and loose objects; returns its name without
/// suffix.
fn write(repository: &Repository, packs: &[Pack], loose: &[(Oid, PathBuf)]) -> Result<String, git2::Error> {
    let folder = repository.path().join(UNFINISHED);
    packs::empty(&folder).map_err(failed)?;
    let directory = repository.path().join("objects/pack");
    let file = |pack: &Pack| directory.join(format!("{}.pack", pack.name));
    let sizes: io::Result<u64> =
        packs.iter().map(file).chain(loose.iter().map(|(_, file)| file.clone())).map(size_of).sum();
    sizes.and_then(|bytes| require_room_at(&folder, bytes, SPARE)).map_err(failed)?;
    let open = |pack: &Pack| merge::Pack::open(&file(pack));
    let sources: Vec<merge::Pack> = packs.iter().map(open).collect::<io::Result<_>>().map_err(failed)?;
    let odb = repository.odb()?;
    let entry = |id: Oid| {
        let object = odb.read(id).map_err(io::Error::other)?;
        objects::whole(object.kind(), object.data())
    };
    let others: Vec<Oid> = loose.iter().map(|(id, _)| *id).collect();
    packs::or_empty(&folder, || {
        let name = merge::merge(&folder, sources, &others, entry).map_err(failed)?;
        packs::finish(repository, &folder, &name)?;
        Ok(name)
    })
}

/// How long a file is, in bytes.
fn size_of(path: PathBuf) -> io::Result<u64> {
    Ok(fs::metadata(path)?.len())
}

fn remove(files: &[PathBuf]) -> io::Result<()> {
    for file in files {
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The packs that may be merged.
fn list(directory: &Path) -> io::Result<Vec<Pack>> {
    let mut packs = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let index = path.with_extension("idx");
        let is_pack = path.extension().is_some_and(|extension| extension == "pack");
        if !is_pack || !index.exists() || path.with_extension("keep").exists() {
            continue;
        }
        let mut count = [0; 4];
        File::open(&index)?.read_exact_at(&mut count, COUNT_AT)?;
        if let Some(name) = path.file_stem().and_then(|name| name.to_str()) {
            let written = fs::metadata(&path)?.modified()?;
            packs.push(Pack { objects: u32::from_be_bytes(count) as usize, written, name: name.to_owned() });
        }
    }
    Ok(packs)
}

/// The loose objects and their files.
fn loose(path: &Path) -> io::Result<Vec<(Oid, PathBuf)>> {
    let mut loose = Vec::new();
    for folder in fs::read_dir(path.join("objects"))? {
        let folder = folder?;
        let first = folder.file_name();
        let Some(first) = first.to_str().filter(|name| name.len() == 2) else { continue };
        for file in fs::read_dir(folder.path())? {
            let file = file?;
            // Git writes others beside them for a moment.
            let id = file.file_name().to_str().filter(|name| name.len() == 38).map(|name| format!("{first}{name}"));
            if let Some(id) = id.and_then(|id| Oid::from_str(&id).ok()) {
                loose.push((id, file.path()));
            }
        }
    }
    Ok(loose)
}

#[cfg(test)]
mod tests {
    use git2::ObjectType;
    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;
    use crate::{objects::Objects, repository::ControlRepository};

    proptest! {
        #[test]
        fn what_is_left_doubles_from_pack_to_pack(mut counts in proptest::collection::vec(1_usize..5_000, 0..40), loose in 0_usize..300) {
            counts.sort();
            let split = rolled_up(&counts, loose);
            let mut after = vec![counts[..split].iter().sum::<usize>() + loose];
            after.extend(&counts[split..]);
            after.retain(|count| *count > 0);
            prop_assert!(after.windows(2).all(|two| two[1] >= 2 * two[0]), "{:?} of {:?}", after, counts);
        }
    }

    /// A repository, and what is in it: a pack for each blob and some loose ones.
    fn repository(packs: usize, loose: usize) -> (TempDir, Vec<Oid>) {
        let directory = TempDir::new().unwrap();
        ControlRepository::open(directory.path(), false).unwrap();
        let repository = repository::open(directory.path()).unwrap();
        let mut ids = Vec::new();
        for number in 0..packs {
            let mut objects = Objects::default();
            ids.push(objects.add(ObjectType::Blob, format!("packed {number}").as_bytes()).unwrap());
            packs::publish(&repository, &objects).unwrap();
        }
        ids.extend((0..loose).map(|number| repository.blob(format!("loose {number}").as_bytes()).unwrap()));
        (directory, ids)
    }

    #[track_caller]
    fn check(directory: &TempDir, ids: &[Oid], packs: usize, loose: usize) {
        let repository = repository::open(directory.path()).unwrap();
        ids.iter().for_each(|id| drop(repository.find_blob(*id).unwrap()));
        assert_eq!(list(&directory.path().join("objects/pack")).unwrap().len(), packs);
        assert_eq!(super::loose(directory.path()).unwrap().len(), loose);
        let fsck = ["fsck", "--strict", "--full", "--no-dangling"];
        let out = std::process::Command::new("git").arg("-C").arg(directory.path()).args(fsck).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }

    #[test]
    fn packs_and_loose_objects_become_one_pack() {
        let (directory, ids) = repository(30, 5);
        let merged = round(directory.path()).unwrap();
        check(&directory, &ids, 31, 5);
        remove(&merged).unwrap();
        check(&directory, &ids, 1, 0);
        assert!(round(directory.path()).unwrap().is_empty());
        // Few do not matter, many loose ones do.
        let (directory, ids) = repository(3, LOOSE);
        remove(&round(directory.path()).unwrap()).unwrap();
        check(&directory, &ids, 1, 0);
        let (directory, ids) = repository(3, 3);
        assert!(round(directory.path()).unwrap().is_empty());
        check(&directory, &ids, 3, 3);
    }

    #[test]
    fn a_round_that_broke_off_is_made_up_for() {
        let (directory, ids) = repository(20, 4);
        let merged = round(directory.path()).unwrap();
        // Wherever it breaks off: files are left in any number, and half-written ones beside.
        for stop in 0..merged.len() {
            remove(&merged[..stop]).unwrap();
            let repository = repository::open(directory.path()).unwrap();
            ids.iter().for_each(|id| drop(repository.find_blob(*id).unwrap()));
        }
        fs::write(directory.path().join(UNFINISHED).join("pack-half.pack"), b"PACK").unwrap();
        remove(&round(directory.path()).unwrap()).unwrap();
        remove(&merged).unwrap();
        check(&directory, &ids, 1, 0);
        // Nothing was removed at all.
        let (directory, ids) = repository(20, 4);
        round(directory.path()).unwrap();
        remove(&round(directory.path()).unwrap()).unwrap();
        check(&directory, &ids, 1, 0);
    }

    #[test]
    fn a_merge_that_fails_leaves_nothing() {
        let (directory, ids) = repository(30, 5);
        let packs = directory.path().join("objects/pack");
        let damaged = packs.join(format!("{}.pack", list(&packs).unwrap()[0].name));
        let whole = fs::read(&damaged).unwrap();
        let mut bytes = whole.clone();
        bytes[13] ^= 1;
        // It may only be read as it is.
        fs::remove_file(&damaged).unwrap();
        fs::write(&damaged, bytes).unwrap();
        round(directory.path()).unwrap_err();
        assert_eq!(fs::read_dir(directory.path().join(UNFINISHED)).unwrap().count(), 0);
        fs::write(&damaged, whole).unwrap();
        remove(&round(directory.path()).unwrap()).unwrap();
        check(&directory, &ids, 1, 0);
    }

    #[test]
    fn repacker_excludes_others_and_removes_merged_packs() {
        let (directory, ids) = repository(30, 5);
        let repacker = || Repacker::new(directory.path().to_owned()).unwrap();
        let mut first = repacker().unwrap();
        first.round().unwrap();
        assert!(repacker().is_none());
        check(&directory, &ids, 31, 5);
        first.round().unwrap();
        check(&directory, &ids, 1, 0);
        drop(first);
        assert!(repacker().is_some());
    }

    #[test]
    fn repack_leaves_oversized_loose_object() {
        let (directory, mut ids) = repository(0, LOOSE);
        ids.push(repository::open(directory.path()).unwrap().blob(&vec![0; TOO_LARGE + 1]).unwrap());
        remove(&round(directory.path()).unwrap()).unwrap();
        check(&directory, &ids, 1, 1);
    }
}
