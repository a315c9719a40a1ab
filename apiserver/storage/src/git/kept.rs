//! The repository kept open from one use to the next.
//!
//! To open it reads its settings and those of the machine and looks at every pack. Each step of a batch of commits did so,
//! which took more than a third of what the batch costs. One that is open reads refs each time, and looks for new packs when
//! it misses an object, so that what others wrote is found all the same.

use std::{fmt, ops::Deref, path::Path, sync::Arc};

use git2::Repository;
use parking_lot::Mutex;

use super::repository;

/// After so many uses it is opened anew: packs that were merged and removed meanwhile take their room on disk as long as
/// they are open.
const USES: usize = 64;

/// Where others have an index of many packs: nothing here writes one, and no setting keeps libgit2 from it.
const MULTI_PACK_INDEX: &str = "objects/pack/multi-pack-index";

/// Where the repository is while nobody uses it.
#[derive(Clone, Default)]
pub(super) struct Kept(Arc<Mutex<Option<Open>>>);

/// A repository, and how often it was used.
struct Open {
    repository: Repository,
    uses: usize,
}

impl Open {
    /// Whether objects may be found by an index of many packs. One that is open knows nothing of what others pack anew: it
    /// does not look for the objects of a pack that is gone, but fails.
    fn may_go_by_an_index_of_others(&self) -> bool {
        self.repository.path().join(MULTI_PACK_INDEX).exists()
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kept").finish_non_exhaustive()
    }
}

impl Kept {
    /// The repository at `path` for one use: the one that is open, or another if somebody uses that.
    pub(super) fn lend(&self, path: &Path) -> Result<Lent, git2::Error> {
        let kept = self.0.lock().take();
        let open = match kept {
            Some(open) => open,
            None => Open { repository: repository::open(path)?, uses: 0 },
        };
        Ok(Lent { open: Some(open), kept: self.clone() })
    }

    /// Lets the repository go, until it is used again.
    pub(super) fn close(&self) {
        drop(self.0.lock().take());
    }
}

/// The repository while it is used.
pub(super) struct Lent {
    open: Option<Open>,
    kept: Kept,
}

impl Deref for Lent {
    type Target = Repository;

    fn deref(&self) -> &Repository {
        &self.open.as_ref().expect("it is there until this is dropped").repository
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        open.uses += 1;
        if open.uses < USES && !open.may_go_by_an_index_of_others() {
            let other = self.kept.0.lock().replace(open);
            // Not closed while the lock is held.
            drop(other);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use git2::{ObjectType, Oid};
    use tempfile::TempDir;

    use super::*;
    use crate::git::{
        draft::Draft,
        repository::{ControlRepository, MAIN},
    };

    fn uses(kept: &Kept) -> Option<usize> {
        kept.0.lock().as_ref().map(|open| open.uses)
    }

    #[test]
    fn one_repository_is_used_again_and_again_and_not_for_ever() {
        let directory = TempDir::new().unwrap();
        ControlRepository::open(directory.path(), false).unwrap();
        let kept = Kept::default();
        let lend = || kept.lend(directory.path()).unwrap();
        drop(lend());
        drop(lend());
        assert_eq!(uses(&kept), Some(2));
        // Whoever comes meanwhile has another.
        let (first, second) = (lend(), lend());
        assert_eq!(uses(&kept), None);
        drop(second);
        assert_eq!(uses(&kept), Some(1));
        drop(first);
        assert_eq!(uses(&kept), Some(3));
        for _ in 3..USES {
            drop(lend());
        }
        assert_eq!(uses(&kept), None, "it is opened anew");
        drop(lend());
        assert_eq!(uses(&kept), Some(1));
        kept.close();
        assert_eq!(uses(&kept), None);
    }

    fn git(directory: &TempDir, arguments: &[&str]) -> String {
        let output = Command::new("git").arg("-C").arg(directory.path()).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn what_others_write_and_pack_anew_is_found_by_one_that_was_open() {
        let directory = TempDir::new().unwrap();
        let control = ControlRepository::open(directory.path(), false).unwrap();
        let commit = |base: Option<Oid>, content: &str| {
            control.commit(base, &[Draft::of_file("web.yaml", content)]).unwrap().unwrap()
        };
        let first = commit(None, "1");
        assert!(control.advance(None, first).unwrap());
        let second = commit(Some(first), "2");
        let kept = Kept::default();
        let open = kept.lend(directory.path()).unwrap();
        assert_eq!(open.refname_to_id(MAIN).unwrap(), first);
        open.find_commit(first).unwrap();
        // All of it comes into a pack that is new, and those that are open are removed.
        assert!(control.advance(Some(first), second).unwrap());
        git(&directory, &["repack", "-a", "-d", "-q"]);
        git(&directory, &["pack-refs", "--all"]);
        let blob = Oid::hash_object(ObjectType::Blob, b"2").unwrap();
        assert_eq!(open.refname_to_id(MAIN).unwrap(), second);
        assert_eq!(open.find_blob(blob).unwrap().content(), b"2");
        assert_eq!(open.find_commit(second).unwrap().parent_id(0).unwrap(), first);
        // What is loose and what is in another pack, too.
        let third = commit(Some(second), "3");
        open.find_commit(third).unwrap();
        let loose = Repository::open_bare(directory.path()).unwrap().blob(b"loose").unwrap();
        assert_eq!(open.find_blob(loose).unwrap().content(), b"loose");
    }
    #[test]
    fn what_others_make_an_index_of_and_pack_anew_is_found() {
        let directory = TempDir::new().unwrap();
        let control = ControlRepository::open(directory.path(), false).unwrap();
        let mut base = None;
        for content in ["1", "2"] {
            let commit = control.commit(base, &[Draft::of_file("web.yaml", content)]).unwrap();
            assert!(control.advance(base, commit.unwrap()).unwrap());
            base = commit;
        }
        let kept = Kept::default();
        let read = || {
            let open = kept.lend(directory.path()).unwrap();
            let blob = Oid::hash_object(ObjectType::Blob, b"1").unwrap();
            assert_eq!(open.find_blob(blob).unwrap().content(), b"1");
        };
        read();
        assert_eq!(uses(&kept), Some(1));
        git(&directory, &["multi-pack-index", "write"]);
        for _ in 0..2 {
            read();
            assert_eq!(uses(&kept), None);
        }
        git(&directory, &["repack", "-a", "-d", "-q"]);
        read();
    }
}
