//! Cached repositories of a process: each complete or absent, so that a killed process leaves nothing that the next one fails on.
//!
//! [`Folders`] has the folders of a process, and removes unused ones.

mod folders;

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use git2::{ErrorClass, ErrorCode, Repository};
use tempfile::TempDir;

pub use self::folders::{Bounds, Folders, Kept};

/// What the names of things begin with that no other process has a use for, such as those that are being made.
pub const UNFINISHED: &str = "new-";

/// Makes a file or folder, unless it is there. Several may do so at once: each makes its own, and one of them stays.
///
/// # Errors
///
/// Those of `make`, and of class [`ErrorClass::Os`] when the folder around it cannot be written.
pub fn put(path: &Path, make: impl FnOnce(&Path) -> Result<(), git2::Error>) -> Result<(), git2::Error> {
    if path.exists() {
        return Ok(());
    }
    let around = path.parent().ok_or_else(|| git2::Error::from_str("the root is no place to make anything"))?;
    fs::create_dir_all(around).map_err(|err| os(&err))?;
    let unfinished = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(around).map_err(|err| os(&err))?;
    let made = unfinished.path().join("made");
    make(&made)?;
    match fs::rename(&made, path) {
        Err(_) if path.exists() => Ok(()),
        renamed => renamed.map_err(|err| os(&err)),
    }
}

/// The bare repository at a path, which is made when nothing is there.
///
/// # Errors
///
/// Those of libgit2, and those of [`put`].
pub fn open_or_make_bare(path: &Path) -> Result<Repository, git2::Error> {
    make_bare(path)?;
    Repository::open_bare(path)
}

/// Makes a bare repository, unless something is there.
///
/// # Errors
///
/// Those of [`put`].
pub fn make_bare(path: &Path) -> Result<(), git2::Error> {
    put(path, |path| Repository::init_bare(path).map(drop))
}

/// Removes a folder, which is away at once for whoever makes it anew. Those who are at work in it fail.
///
/// # Errors
///
/// When it is not there, or cannot be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    take_away(path)?.close()
}

/// Brings a folder to where nobody finds it, and from where it goes with what is returned, or with the next process.
fn take_away(path: &Path) -> io::Result<TempDir> {
    let around = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let gone = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(around)?;
    fs::rename(path, gone.path().join("gone"))?;
    Ok(gone)
}

/// What libgit2 has in the names of objects and packs that it has not written to their end.
const UNFINISHED_OBJECTS: &str = "_git2_";

/// Removes what a process left that was killed: files that lock references and settings of the bare repositories below a
/// folder, packs that did not come to their end, and folders that are [`UNFINISHED`]. Nobody else may use them at that time.
///
/// # Errors
///
/// When a folder cannot be read or a file not removed; a folder that is not there has nothing to remove.
pub fn remove_leftovers(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        match entry.file_type()?.is_dir() {
            true if name.starts_with(UNFINISHED) => fs::remove_dir_all(path)?,
            // There are many of them.
            true if name == "objects" => {
                remove_unfinished_objects(&path, Duration::ZERO)?;
            }
            true => remove_leftovers(&path)?,
            false if name.ends_with(".lock") => fs::remove_file(path)?,
            _ => {}
        }
    }
    Ok(())
}

/// Removes objects and packs of a bare repository that came to no end and that nobody has written to for so long. Others may be
/// at work there meanwhile. No link is followed: whoever wrote there may have left some that lead to what is others'.
///
/// # Errors
///
/// As [`remove_leftovers`] has them.
pub fn remove_abandoned(repository: &Path, unchanged: Duration) -> io::Result<()> {
    if is_folder(repository)? { remove_unfinished_objects(&repository.join("objects"), unchanged) } else { Ok(()) }
}

/// Whether there is a folder at a path, and no link to one.
fn is_folder(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(false),
        found => Ok(found?.is_dir()),
    }
}

/// Removes what was to become objects or packs below the folder of a repository that has these.
fn remove_unfinished_objects(objects: &Path, unchanged: Duration) -> io::Result<()> {
    for folder in [objects.to_owned(), objects.join("pack")] {
        if !is_folder(&folder)? {
            break;
        }
        remove_unfinished_files(&folder, unchanged)?;
    }
    Ok(())
}

/// Removes files right in a folder that were to become objects or packs, and have not changed for so long.
fn remove_unfinished_files(folder: &Path, unchanged: Duration) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().contains(UNFINISHED_OBJECTS) {
            continue;
        }
        let is_old = |file: &fs::Metadata| {
            let since = file.modified().ok().and_then(|modified| modified.elapsed().ok());
            unchanged.is_zero() || since.is_some_and(|since| since >= unchanged)
        };
        match entry.metadata() {
            Ok(file) if file.is_file() && is_old(&file) => gone(fs::remove_file(entry.path()))?,
            metadata => gone(metadata.map(drop))?,
        }
    }
    Ok(())
}

/// What is not there any more was brought to its end meanwhile.
fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn os(err: &io::Error) -> git2::Error {
    git2::Error::new(ErrorCode::GenericError, ErrorClass::Os, err.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_made_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        let failed = put(&path, |path| {
            fs::write(path, "half").unwrap();
            Err(git2::Error::from_str("no"))
        });
        assert_eq!(failed.unwrap_err().message(), "no");
        assert_eq!(fs::read_dir(folder.path().join("a")).unwrap().count(), 0);

        put(&path, |path| fs::write(path, "whole").map_err(|err| os(&err))).unwrap();
        put(&path, |_| panic!("it is there")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
    }

    #[test]
    fn repositories_are_made_by_many_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| open_or_make_bare(&path).unwrap());
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing unfinished is left");
    }

    #[test]
    fn startup_removes_only_leftovers_of_killed_process() {
        let folder = tempfile::tempdir().unwrap();
        remove_leftovers(&folder.path().join("absent")).unwrap();
        let path = folder.path().join("git/r");
        let repository = open_or_make_bare(&path).unwrap();
        let blob = repository.blob(b"kept").unwrap();
        fs::create_dir(folder.path().join("git/new-1")).unwrap();
        fs::write(folder.path().join("git/new-1/made"), "half").unwrap();
        fs::write(path.join("refs/heads/main.lock"), "").unwrap();
        fs::write(path.join("config.lock"), "").unwrap();
        // As libgit2 names them.
        let unfinished =
            ["objects/pack/pack_git2_a8WyPd", "objects/tmp_object_git2_x3Qs0k"].map(|file| path.join(file));
        for file in &unfinished {
            fs::write(file, "half").unwrap();
        }
        assert!(repository.config().unwrap().set_str("a.b", "c").is_err(), "the lock is in the way");

        remove_leftovers(folder.path()).unwrap();
        repository.config().unwrap().set_str("a.b", "c").unwrap();
        assert!(!path.join("refs/heads/main.lock").exists() && !folder.path().join("git/new-1").exists());
        assert!(unfinished.iter().all(|file| !file.exists()));
        assert_eq!(repository.find_blob(blob).unwrap().content(), b"kept");
    }

    #[test]
    fn cleanup_removes_only_abandoned_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r");
        let blob = open_or_make_bare(&path).unwrap().blob(b"kept").unwrap();
        let minute = Duration::from_secs(60);
        let at = |file: &str, age: Duration| {
            let path = path.join("objects").join(file);
            fs::write(&path, "half").unwrap();
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(std::time::SystemTime::now() - age).unwrap();
            path
        };
        let old = ["pack/pack_git2_a8WyPd", "tmp_object_git2_x3Qs0k"].map(|file| at(file, 2 * minute));
        let new = at("pack/pack_git2_b9XzQe", Duration::ZERO);
        remove_abandoned(&path, minute).unwrap();
        assert!(new.exists() && !old.iter().any(|file| file.exists()));
        assert_eq!(Repository::open_bare(&path).unwrap().find_blob(blob).unwrap().content(), b"kept");
    }

    #[test]
    fn nothing_is_removed_where_a_link_leads() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        make_bare(&path("others")).unwrap();
        let theirs =
            ["objects/tmp_object_git2_x3Qs0k", "objects/pack/pack_git2_a8WyPd"].map(|file| path("others").join(file));
        for file in &theirs {
            fs::write(file, "theirs").unwrap();
        }
        let link = |from: &str, to: &str| {
            fs::create_dir_all(path(to).parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(path(from), path(to)).unwrap();
        };
        link("others", "link");
        link("others/objects", "of-objects/objects");
        link("others/objects/pack", "of-packs/objects/pack");
        for name in ["link", "of-objects", "of-packs"] {
            remove_abandoned(&path(name), Duration::ZERO).unwrap();
        }
        assert!(theirs.iter().all(|file| file.exists()));
        remove_abandoned(&path("others"), Duration::ZERO).unwrap();
        assert!(!theirs.iter().any(|file| file.exists()));
    }
}
