//! Publishes new objects as a pack: one pack for each batch of commits.
//!
//! Start at [`publish`]. Elsewhere: `repack` keeps the number of packs small.

use std::{fs, io, path::Path};

use git2::Repository;

use super::objects::Objects;
use stoa_storage::local::{create_private_dir, sync_dir};

/// The folder of packs that are being written.
const UNFINISHED: &str = "unfinished-packs";

/// Makes an empty folder for new packs, without leftovers of a crash.
pub(super) fn prepare(repository: &Repository) -> Result<(), git2::Error> {
    empty(&repository.path().join(UNFINISHED)).map_err(failed)
}

/// Makes a folder that is empty.
pub(super) fn empty(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => create_private_dir(folder),
    }
}

/// Adds objects to the repository, durably.
pub(super) fn publish(repository: &Repository, objects: &Objects) -> Result<(), git2::Error> {
    // Written in another folder, so that a concurrent copy of the pack directory, as a clone on this machine, finds finished
    // packs only.
    let folder = repository.path().join(UNFINISHED);
    or_empty(&folder, || finish(repository, &folder, &objects.write(&folder)?))
}

/// Writes packs into a folder. A failed attempt leaves nothing there: on a full disk it would take space from everything
/// else.
pub(super) fn or_empty<T>(folder: &Path, write: impl FnOnce() -> Result<T, git2::Error>) -> Result<T, git2::Error> {
    write().inspect_err(|_| {
        if let Err(error) = empty(folder) {
            tracing::warn!(folder = %folder.display(), %error, "unfinished packs cannot be removed for now");
        }
    })
}

/// Moves a synced pack from a folder into the pack directory.
pub(super) fn finish(repository: &Repository, folder: &Path, name: &str) -> Result<(), git2::Error> {
    let directory = repository.path().join("objects/pack");
    let place = |suffix: &str| {
        let file = format!("{name}.{suffix}");
        fs::rename(folder.join(&file), directory.join(&file))
    };
    let rename = || {
        place("pack")?;
        place("idx").inspect_err(|_| {
            // A pack without an index is never read, and never removed. An equal pack may have been there before.
            let [pack, index] = ["pack", "idx"].map(|suffix| directory.join(format!("{name}.{suffix}")));
            if !index.is_file()
                && let Err(error) = fs::remove_file(&pack)
            {
                tracing::warn!(pack = %pack.display(), %error, "a pack without an index cannot be removed");
            }
        })?;
        sync_dir(&directory)
    };
    rename().map_err(failed)
}

pub(super) fn failed(error: io::Error) -> git2::Error {
    git2::Error::from_str(&format!("packs cannot be written: {error}"))
}

#[cfg(test)]
mod tests {
    use git2::ObjectType;
    use tempfile::TempDir;

    use super::*;
    use crate::repository::{self, ControlRepository};

    #[test]
    fn a_pack_that_cannot_be_finished_leaves_nothing() {
        let directory = TempDir::new().unwrap();
        ControlRepository::open(directory.path(), false).unwrap();
        let repository = repository::open(directory.path()).unwrap();
        let mut objects = Objects::default();
        let id = objects.add(ObjectType::Blob, b"x").unwrap();
        let unfinished = directory.path().join(UNFINISHED);
        // The index cannot be made once the pack is there.
        fs::create_dir_all(unfinished.join("new.idx/in-the-way")).unwrap();
        publish(&repository, &objects).unwrap_err();
        assert_eq!(fs::read_dir(&unfinished).unwrap().count(), 0);
        publish(&repository, &objects).unwrap();
        assert_eq!(repository.find_blob(id).unwrap().content(), b"x");
    }

    #[test]
    fn failed_index_rename_removes_pack() {
        let directory = TempDir::new().unwrap();
        ControlRepository::open(directory.path(), false).unwrap();
        let repository = repository::open(directory.path()).unwrap();
        let mut objects = Objects::default();
        objects.add(ObjectType::Blob, b"x").unwrap();
        let folder = directory.path().join(UNFINISHED);
        let name = objects.write(&folder).unwrap();
        let packs = directory.path().join("objects/pack");
        fs::create_dir_all(packs.join(format!("{name}.idx/in-the-way"))).unwrap();
        finish(&repository, &folder, &name).unwrap_err();
        assert!(!packs.join(format!("{name}.pack")).exists());
        // One that was there with its index stays.
        fs::remove_dir_all(packs.join(format!("{name}.idx"))).unwrap();
        finish(&repository, &folder, &objects.write(&folder).unwrap()).unwrap();
        objects.write(&folder).unwrap();
        fs::remove_file(folder.join(format!("{name}.idx"))).unwrap();
        finish(&repository, &folder, &name).unwrap_err();
        assert!(packs.join(format!("{name}.pack")).exists());
    }
}
