//! Finds the commit that changed a file, and the files that the projection changed, by a bounded walk over commits.
//!
//! Start at [`Blame`]. Elsewhere: `walk` compares two trees.

use std::collections::{BTreeMap, BTreeSet};

use git2::{Commit, Oid, Repository, Sort};

use super::{
    commit_builder::Person,
    layout::{CommitInfo, Layout},
    walk::{Excess, Take, Walk},
};

/// The most commits of a walk. Changes that come with more are attributed to the newest commit, and the projection may write
/// over files that were pushed before more.
const DEPTH: usize = 1_000;
/// The walks of all these commits together count this many times as many entries as the walk of a push. A commit costs as
/// many entries as its changed folders have, which may be thousands.
const ENTRIES: usize = 64;

/// The last commit that changed each file, found by a walk as far back as necessary.
pub(super) struct Blame<'r> {
    repository: &'r Repository,
    files: Walk<'r>,
    commits: Vec<Oid>,
    /// The number of walked commits.
    seen: usize,
    found: BTreeMap<String, Oid>,
    newest: Oid,
}

impl<'r> Blame<'r> {
    /// Attributes the changes between two commits, with this limit of entries for the walk of a push.
    pub(super) fn new(
        repository: &'r Repository,
        layout: &'r dyn Layout,
        most_entries: usize,
        from: Option<Oid>,
        to: Oid,
    ) -> Result<Self, git2::Error> {
        let mut walk = repository.revwalk()?;
        walk.set_sorting(Sort::TOPOLOGICAL)?;
        walk.push(to)?;
        if let Some(from) = from {
            walk.hide(from)?;
        }
        let commits = walk.take(DEPTH).collect::<Result<_, _>>()?;
        let files = Walk::new(repository, layout, ENTRIES * most_entries);
        Ok(Self { repository, files, commits, seen: 0, found: BTreeMap::new(), newest: to })
    }

    /// The commit that changed the file at `path` last.
    pub(super) fn commit(&mut self, path: &str) -> Result<CommitInfo, git2::Error> {
        while !self.found.contains_key(path) && self.seen < self.commits.len() {
            let id = self.commits[self.seen];
            self.seen += 1;
            let commit = self.repository.find_commit(id)?;
            // The changes of a merge belong to the commits that it merges.
            if commit.parent_count() > 1 {
                continue;
            }
            let found = &mut self.found;
            let excess = changed_files(&mut self.files, &commit, &mut |_, path, _| {
                found.entry(path.into_owned()).or_insert(id);
            })?;
            if excess.is_some() {
                self.seen = self.commits.len();
            }
        }
        let commit = self.repository.find_commit(self.found.get(path).copied().unwrap_or(self.newest))?;
        Ok(info(&commit))
    }
}

/// The paths that our commits changed from `since` to `tip`; `None` when `tip` does not descend from it, or when a limit is
/// exceeded.
pub(super) fn projected_since(
    repository: &Repository,
    layout: &dyn Layout,
    most_entries: usize,
    since: Oid,
    tip: Oid,
) -> Result<Option<BTreeSet<String>>, git2::Error> {
    if since != tip && !repository.graph_descendant_of(tip, since)? {
        return Ok(None);
    }
    let mut walk = repository.revwalk()?;
    walk.push(tip)?;
    walk.hide(since)?;
    let ours = Person::stoa().email;
    let mut paths = BTreeSet::new();
    let mut files = Walk::new(repository, layout, ENTRIES * most_entries);
    for (number, id) in walk.enumerate() {
        if number == DEPTH {
            return Ok(None);
        }
        let commit = repository.find_commit(id?)?;
        if commit.committer().email_bytes() == ours.as_bytes()
            && changed_files(&mut files, &commit, &mut |_, path, _| {
                paths.insert(path.into_owned());
            })?
            .is_some()
        {
            return Ok(None);
        }
    }
    Ok(Some(paths))
}

/// Takes the files of objects that a commit changed against its first parent; returns an exceeded limit.
fn changed_files(walk: &mut Walk<'_>, commit: &Commit<'_>, take: &mut Take<'_>) -> Result<Option<Excess>, git2::Error> {
    let parent = commit.parents().next().map(|parent| parent.tree_id());
    walk.differing(parent, Some(commit.tree_id()), take)
}

/// The public information about a commit.
pub(super) fn info(commit: &Commit<'_>) -> CommitInfo {
    let author = commit.author();
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    CommitInfo {
        id: commit.id().to_string(),
        author: lossy(author.name_bytes()),
        email: lossy(author.email_bytes()),
        subject: lossy(commit.summary_bytes().unwrap_or_default()),
        time: author.when().seconds(),
    }
}

#[cfg(test)]
mod tests {
    use git2::Signature;
    use tempfile::TempDir;

    use super::*;
    use crate::walk::testing::Folders;

    /// A history in which each commit changes one of these many files in one folder, and the commits, oldest first.
    fn history(repository: &Repository, files: usize, commits: usize) -> Vec<Oid> {
        let signature = Signature::now("Stoa", &Person::stoa().email).unwrap();
        let first = repository.blob(b"0").unwrap();
        let mut tree = repository.treebuilder(None).unwrap();
        for number in 0..files {
            tree.insert(format!("{number}.yaml"), first, 0o100_644).unwrap();
        }
        let mut made: Vec<Oid> = Vec::new();
        for number in 0..=commits {
            if number > 0 {
                let content = repository.blob(number.to_string().as_bytes()).unwrap();
                tree.insert(format!("{number}.yaml"), content, 0o100_644).unwrap();
            }
            let tree = repository.find_tree(tree.write().unwrap()).unwrap();
            let parent = made.last().map(|id| repository.find_commit(*id).unwrap());
            let parents: Vec<&Commit<'_>> = parent.iter().collect();
            made.push(repository.commit(None, &signature, &signature, "change", &tree, &parents).unwrap());
        }
        made
    }

    #[test]
    fn blame_finds_last_change_over_many_commits() {
        let folder = TempDir::new().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        let (files, count) = (100, 60);
        let commits = history(&repository, files, count);
        let layout = Folders(3);
        // One that changes every file may be pushed, and no more.
        let mut blame = Blame::new(&repository, &layout, 2 * files, Some(commits[0]), commits[count]).unwrap();
        for (number, id) in commits.iter().enumerate().skip(1) {
            assert_eq!(blame.commit(&format!("{number}.yaml")).unwrap().id, id.to_string());
        }
        let projected = projected_since(&repository, &layout, 2 * files, commits[0], commits[count]).unwrap().unwrap();
        assert_eq!(projected.len(), count);
    }
}
