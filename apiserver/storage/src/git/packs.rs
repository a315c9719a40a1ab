//! Packs: how new objects get into the repository, and how their number stays small.
//!
//! One pack holds the objects of a batch of commits. Since libgit2 has no `gc`, the small packs are
//! merged into larger ones as they pile up, the way `git repack --geometric` does it, so that each
//! object is rewritten only as often as its pack doubles.

use std::{collections::BTreeSet, fs, io, path::Path};

use git2::{Oid, Repository};

use super::objects::Objects;
use crate::local::{create_private_dir, sync_dir};

/// With this many packs, small ones are merged.
const MANY: usize = 40;
/// At least so many are merged then.
const MERGE: usize = 24;

/// Where packs are while they are written.
const UNFINISHED: &str = "unfinished-packs";

/// Makes the place for new packs, without what a crash may have left there.
pub(super) fn prepare(repository: &Repository) -> Result<(), git2::Error> {
    let unfinished = repository.path().join(UNFINISHED);
    match fs::remove_dir_all(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
        _ => create_private_dir(&unfinished).map_err(failed),
    }
}

/// Adds objects to the repository, durably.
pub(super) fn publish(repository: &Repository, objects: &Objects) -> Result<(), git2::Error> {
    // Made aside: whoever copies the directory meanwhile, as a clone on this machine does, is to
    // find finished packs only.
    let name = objects.write(&repository.path().join(UNFINISHED))?;
    finish(repository, &name)
}

/// Gives a pack that was written and synced the place where it counts.
fn finish(repository: &Repository, name: &str) -> Result<(), git2::Error> {
    let directory = repository.path().join("objects/pack");
    let rename = || {
        for suffix in ["pack", "idx"] {
            let file = format!("{name}.{suffix}");
            fs::rename(repository.path().join(UNFINISHED).join(&file), directory.join(&file))?;
        }
        sync_dir(&directory)
    };
    rename().map_err(failed)
}

/// Writes one pack with objects of the repository, durably, and returns its name without suffix.
fn pack(repository: &Repository, objects: BTreeSet<Oid>) -> Result<String, git2::Error> {
    let mut builder = repository.packbuilder()?;
    builder.set_threads(1);
    for object in objects {
        builder.insert_object(object, None)?;
    }
    // libgit2 syncs the files, as its configuration asks.
    builder.write(&repository.path().join(UNFINISHED), 0o444)?;
    let name = format!("pack-{}", builder.name()?.unwrap_or_default());
    finish(repository, &name)?;
    Ok(name)
}

/// Merges the smallest packs when there are many.
pub(super) fn consolidate(repository: &Repository) -> Result<(), git2::Error> {
    let directory = repository.path().join("objects/pack");
    let mut packs = packs(&directory).map_err(failed)?;
    if packs.len() < MANY {
        return Ok(());
    }
    packs.sort();
    let mut merged = Vec::new();
    let mut sum = 0;
    for (size, name) in packs {
        if merged.len() >= MERGE && size > sum {
            break;
        }
        sum += size;
        merged.push(name);
    }
    let mut objects = BTreeSet::new();
    for name in &merged {
        let index = fs::read(directory.join(format!("{name}.idx"))).map_err(failed)?;
        objects.extend(ids(&index).ok_or_else(|| git2::Error::from_str("the index of a pack makes no sense"))?);
    }
    // A fresh handle: this one has read no pack yet that will be gone in a moment.
    let new = pack(&super::repository::open(repository.path())?, objects)?;
    for name in merged.iter().filter(|name| **name != new) {
        // The index first: a pack without one is ignored, an index without its pack an error.
        for suffix in ["idx", "rev", "bitmap", "mtimes", "pack"] {
            match fs::remove_file(directory.join(format!("{name}.{suffix}"))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
    }
    Ok(())
}

fn failed(error: io::Error) -> git2::Error {
    git2::Error::from_str(&format!("packs cannot be written: {error}"))
}

/// The size and name, without suffix, of every pack that may be merged.
fn packs(directory: &Path) -> io::Result<Vec<(u64, String)>> {
    let mut packs = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_pack = path.extension().is_some_and(|extension| extension == "pack");
        if !is_pack || !path.with_extension("idx").exists() || path.with_extension("keep").exists() {
            continue;
        }
        if let Some(name) = path.file_stem().and_then(|name| name.to_str()) {
            packs.push((path.metadata()?.len(), name.to_owned()));
        }
    }
    Ok(packs)
}

/// The ids in a pack index of version 2: a header of 8 bytes, 256 counts, then the ids in order.
fn ids(index: &[u8]) -> Option<Vec<Oid>> {
    const HEADER: &[u8] = b"\xfftOc\0\0\0\x02";
    let fanout = index.strip_prefix(HEADER)?;
    let count = u32::from_be_bytes(fanout.get(255 * 4..256 * 4)?.try_into().ok()?) as usize;
    let ids = fanout.get(256 * 4..)?.get(..count.checked_mul(20)?)?;
    ids.chunks_exact(20).map(|id| Oid::from_bytes(id).ok()).collect()
}
