//! The commits that the branches and tags of a source lead to.

use std::collections::{BTreeSet, HashSet};

use git2::{Oid, Repository};

/// Those of some commits that nothing in `heads` leads to. All of them are looked for in one walk, from what is new to what
/// is old, which ends where the last one is found.
pub(super) fn not_led_to(
    repository: &Repository,
    heads: impl Iterator<Item = Oid>,
    mut commits: HashSet<Oid>,
) -> Result<HashSet<Oid>, git2::Error> {
    // What is no commit leads to none, and what came about just now was not fetched.
    let peel = |oid| repository.find_object(oid, None).and_then(|object| object.peel_to_commit()).ok();
    let tips: BTreeSet<Oid> = heads.filter_map(peel).map(|commit| commit.id()).collect();
    let mut walk = repository.revwalk()?;
    for tip in tips {
        walk.push(tip)?;
    }
    while !commits.is_empty() {
        match walk.next() {
            Some(commit) => drop(commits.remove(&commit?)),
            None => break,
        }
    }
    Ok(commits)
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
    fn unreachable_commit_is_found() {
        let folder = TempDir::new().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        let first = commit(&repository, "first", None);
        let second = commit(&repository, "second", Some(first));
        let [stray, other] = ["stray", "other"].map(|message| commit(&repository, message, Some(first)));
        let ask = |tips: &[Oid], commits: &[Oid]| {
            not_led_to(&repository, tips.iter().copied(), commits.iter().copied().collect()).unwrap()
        };
        assert_eq!(ask(&[second], &[first, stray]), HashSet::from([stray]));
        assert_eq!(ask(&[second], &[other, stray]), HashSet::from([stray, other]));
        assert_eq!(ask(&[second, stray], &[stray, other]), HashSet::from([other]));
        assert_eq!(ask(&[second, stray], &[]), HashSet::new());
    }
}
