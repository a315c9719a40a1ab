//! The commits that the branches and tags of a source lead to.
//!
//! Only a walk over the whole history shows that nothing leads to a commit, and a caller may ask for the same commit again and again. So
//! the cache records such commits, with the heads at which the walk began. A walk from the same heads would end in the same way.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::{fs, io};

use git2::{Oid, Repository};
use sha2::{Digest as _, Sha256};

/// Where they are in a cache: the digest of where the walk began on the first line, and a commit on each of the others.
const FILE: &str = "unreachable";
/// So many are kept.
const MOST: usize = 1_000;

/// Those of some commits that nothing in `heads` leads to. All of them are looked for in one walk, from what is new to what
/// is old, which ends where the last one is found.
pub(super) fn not_led_to(
    repository: &Repository,
    heads: impl Iterator<Item = Oid>,
    commits: HashSet<Oid>,
) -> Result<HashSet<Oid>, git2::Error> {
    if commits.is_empty() {
        return Ok(commits);
    }
    // What is no commit leads to none, and what came about just now was not fetched.
    let peel = |oid| repository.find_object(oid, None).and_then(|object| object.peel_to_commit()).ok();
    let tips: BTreeSet<Oid> = heads.filter_map(peel).map(|commit| commit.id()).collect();
    let known = Known::of(repository, &tips);
    let (mut unreachable, mut missing): (HashSet<Oid>, HashSet<Oid>) =
        commits.into_iter().partition(|oid| known.commits.contains(oid));
    if missing.is_empty() {
        return Ok(unreachable);
    }
    let mut walk = repository.revwalk()?;
    for tip in tips {
        walk.push(tip)?;
    }
    for commit in walk {
        missing.remove(&commit?);
        if missing.is_empty() {
            return Ok(unreachable);
        }
    }
    known.keep(&missing);
    unreachable.extend(missing);
    Ok(unreachable)
}

/// What is known of where some commits lead.
struct Known {
    file: PathBuf,
    /// Of the commits that it is known of.
    digest: String,
    /// The ones that they do not lead to.
    commits: HashSet<Oid>,
}

impl Known {
    fn of(repository: &Repository, tips: &BTreeSet<Oid>) -> Self {
        let mut hasher = Sha256::new();
        tips.iter().for_each(|tip| hasher.update(tip.as_bytes()));
        let digest: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let file = repository.path().join(FILE);
        let text = fs::read_to_string(&file).unwrap_or_default();
        let commits = match text.split_once('\n') {
            Some((of, commits)) if of == digest => commits.lines().filter_map(|id| Oid::from_str(id).ok()).collect(),
            _ => HashSet::new(),
        };
        Self { file, digest, commits }
    }

    /// Keeps what was found besides. Where that fails, it is found again.
    fn keep(&self, found: &HashSet<Oid>) {
        let ids = found.iter().chain(&self.commits).take(MOST).map(Oid::to_string).collect::<Vec<_>>();
        let text = format!("{}\n{}\n", self.digest, ids.join("\n"));
        // Whole or not at all, since the process may be killed.
        let unfinished = self.file.with_extension("new");
        let write = || -> io::Result<()> {
            fs::write(&unfinished, text)?;
            fs::rename(&unfinished, &self.file)
        };
        if let Err(err) = write() {
            tracing::debug!(error = %err, "commits that nobody leads to are not kept");
        }
    }
}

#[cfg(test)]
mod tests {
    use git2::Signature;
    use tempfile::TempDir;

    use super::*;

    fn commit(repository: &Repository, message: &str, parent: Option<Oid>) -> Oid {
        let who = Signature::now("a", "a@example.com").unwrap();
        let tree = repository.find_tree(repository.treebuilder(None).unwrap().write().unwrap()).unwrap();
        let parent = parent.map(|id| repository.find_commit(id).unwrap());
        let parents: Vec<_> = parent.iter().collect();
        repository.commit(None, &who, &who, message, &tree, &parents).unwrap()
    }

    #[test]
    fn unreachable_commit_is_recorded() {
        let folder = TempDir::new().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        let first = commit(&repository, "first", None);
        let second = commit(&repository, "second", Some(first));
        let [stray, other] = ["stray", "other"].map(|message| commit(&repository, message, Some(first)));
        let ask = |tips: &[Oid], commits: &[Oid]| {
            // As in another process.
            let repository = Repository::open_bare(folder.path()).unwrap();
            not_led_to(&repository, tips.iter().copied(), commits.iter().copied().collect())
        };
        assert_eq!(ask(&[second], &[first, stray]).unwrap(), HashSet::from([stray]));
        assert_eq!(ask(&[second], &[other, stray]).unwrap(), HashSet::from([stray, other]));
        // A branch leads to one of them now, whatever was known before.
        assert_eq!(ask(&[second, stray], &[stray, other]).unwrap(), HashSet::from([other]));
        assert_eq!(ask(&[second], &[first, stray, other]).unwrap(), HashSet::from([stray, other]));
        // No walk can be made any more.
        let name = first.to_string();
        fs::remove_file(folder.path().join("objects").join(&name[..2]).join(&name[2..])).unwrap();
        assert_eq!(ask(&[second], &[stray, other]).unwrap(), HashSet::from([stray, other]));
        ask(&[second, stray], &[other]).unwrap_err();
    }
}
