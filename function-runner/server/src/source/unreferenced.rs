//! Commits that no branch or tag of a source leads to, such as those of pull requests from forks.
//!
//! They are in a repository of their own inside the cache, which borrows the objects of the cache. libgit2 never removes an
//! object, so the whole repository is removed once it is too old or has too many commits, and a commit that is still needed is fetched
//! again. The caller holds the lock of the cache, so nobody reads a repository that is removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use git2::{Oid, Repository};

/// How many commits a cache keeps.
pub(super) const MOST: u32 = 100;
/// How long a cache keeps them.
const KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The refs that keep them.
const REFS: &str = "refs/stoa/";

/// The repository for commits of a cache that no ref leads to.
pub(super) struct Unreferenced {
    folder: PathBuf,
    most: usize,
}

/// The refspec that fetches a commit.
pub(super) fn refspec(oid: Oid) -> String {
    format!("+{oid}:{REFS}{oid}")
}

impl Unreferenced {
    /// Opens those of a cache, which has them from now on as if they were its own.
    pub(super) fn of(cache: &Repository, most: usize) -> Result<Self, git2::Error> {
        let unreferenced = Self { folder: cache.path().join("strays"), most };
        unreferenced.show(cache)?;
        Ok(unreferenced)
    }

    /// Lets the cache see the commits that were fetched.
    pub(super) fn show(&self, cache: &Repository) -> Result<(), git2::Error> {
        if self.folder.exists() { add(cache, &self.folder) } else { Ok(()) }
    }

    /// The repository for another commit. It is made anew if it has too many commits or is too old.
    pub(super) fn ready(&self, cache: &Repository) -> Result<Repository, git2::Error> {
        if self.is_over() {
            fs::remove_dir_all(&self.folder).map_err(|err| git2::Error::from_str(&err.to_string()))?;
        }
        // One that a killed process began is made to its end.
        let repository = Repository::open_bare(&self.folder).or_else(|_| Repository::init_bare(&self.folder))?;
        add(&repository, cache.path())?;
        // The server is told these, so that it sends no more than is missing.
        for head in cache.references_glob("refs/heads/*")? {
            let head = head?;
            let (Ok(name), Some(target)) = (head.name(), head.target()) else { continue };
            if repository.refname_to_id(name).ok() != Some(target) {
                repository.reference(name, target, true, "as the cache has it")?;
            }
        }
        Ok(repository)
    }

    fn is_over(&self) -> bool {
        // It is written when the repository is made, and never again.
        let made = fs::metadata(self.folder.join("HEAD")).and_then(|head| head.modified());
        let is_old = made.is_ok_and(|made| SystemTime::now().duration_since(made).is_ok_and(|age| age >= KEPT));
        let kept = fs::read_dir(self.folder.join(REFS)).map_or(0, Iterator::count);
        is_old || kept >= self.most
    }
}

/// Lets a repository have the objects of another one.
fn add(repository: &Repository, other: &Path) -> Result<(), git2::Error> {
    let objects = other.join("objects");
    let objects = objects.to_str().ok_or_else(|| git2::Error::from_str("the path of a cache is no text"))?;
    repository.odb()?.add_disk_alternate(objects)
}
