//! Compares the files of a fleet with a branch, and commits the difference to the branch of its proposal.
//!
//! Folders at the root belong to the fleet, unless their names begin with a dot. Their files that are not among those of the
//! request are stale, and go. Files at the root, and all else below folders with a dot, stay.
//!
//! **Invariant:** a commit of others on the proposal's branch is never overwritten, and no push rewrites history.

use std::collections::{BTreeMap, HashSet};

use git2::{Commit, FileMode, Oid, Repository, Sort};
use stoa_engine_git::bounded;
use stoa_engine_git::commit::{Change, CommitError, NewCommit, Person, make, write_tree};
use stoa_engine_git::files::{Entry, commit_of, list};
use stoa_engine_git::push::{self as git_push, Outcome, RefUpdate};
use stoa_proto::{FileDifference, GitPerson, GitRef, ProposeFilesRequest, ProposeFilesResponse};
use tonic::Code;

use crate::failure::{Failure, reason};
use crate::packages::discover;
use crate::source::{Cache, Head, Heads, error};

/// The trailer of our commits.
const TRAILER: &str = "Stoa-Fleet";
/// How often a push is tried when refs move meanwhile.
const RACES: usize = 3;
/// The most commits of a proposal that are read.
const MOST_COMMITS: usize = 10_000;
/// The most bytes of contents in an answer.
const CONTENTS: usize = 4 << 20;

/// Compares, commits and pushes. A second call with the same request pushes nothing.
pub(crate) fn propose(cache: &Cache, request: &ProposeFilesRequest) -> Result<ProposeFilesResponse, Failure> {
    let base = branch_ref("base", &request.base)?;
    let head = match request.head.as_str() {
        "" => None,
        name if name == request.base && !request.keeps_others => {
            return Err(Failure::request("head is base; name another branch"));
        }
        name => Some(branch_ref("head", name)?),
    };
    let mut raced = ProposeFilesResponse::default();
    for _ in 0..RACES {
        let heads = cache.list()?;
        let tip = |name: &str| heads.iter().find(|found| found.name == name).cloned();
        let Some(base) = tip(&base) else {
            let message = format!("branch {:?} does not exist in the repository; create it", request.base);
            return Err(Failure::new(Code::NotFound, reason::VERSION_NOT_FOUND, message));
        };
        if !request.expected_base.is_empty() && request.expected_base != base.oid.to_string() {
            let rejected = format!("branch {:?} has moved to {}", request.base, base.oid);
            return Ok(ProposeFilesResponse { rejected, base_commit: base.oid.to_string(), ..raced });
        }
        let head = head.as_ref().map(|name| (name.as_str(), tip(name)));
        fetch(cache, &heads, [Some(&base), head.as_ref().and_then(|(_, tip)| tip.as_ref())])?;
        let proposal = Proposal { cache, request, base: base.oid };
        let (response, update) = proposal.compare(head)?;
        let Some(update) = update else { return Ok(response) };
        let pushed = git_push::push(&cache.repository, &cache.access()?, std::slice::from_ref(&update));
        match pushed.map_err(error::of_push)? {
            Outcome::Done { .. } => return Ok(ProposeFilesResponse { is_pushed: true, ..response }),
            Outcome::Rejected { message, .. } => {
                let rejected = if message.is_empty() { "the push was rejected".to_owned() } else { message };
                return Ok(ProposeFilesResponse { rejected, head_commit: String::new(), ..response });
            }
            Outcome::Conflict(_) => raced = response,
        }
    }
    let rejected = format!("branch {:?} moved {RACES} times during the push; it is tried again", request.head);
    Ok(ProposeFilesResponse { rejected, head_commit: String::new(), ..raced })
}

fn branch_ref(field: &str, name: &str) -> Result<String, Failure> {
    let full = format!("refs/heads/{name}");
    if name.is_empty() || !git2::Reference::is_valid_name(&full) {
        return Err(Failure::request(format!("{field}: {name:?} is no name of a branch")));
    }
    Ok(full)
}

fn fetch<const N: usize>(cache: &Cache, heads: &Heads, wanted: [Option<&Head>; N]) -> Result<(), Failure> {
    let missing: Vec<GitRef> = wanted
        .into_iter()
        .flatten()
        .filter(|head| !cache.has(head.oid))
        .map(|head| GitRef { name: head.name.clone(), commit: head.oid.to_string() })
        .collect();
    let Some(first) = missing.first() else { return Ok(()) };
    discover::fetch(cache, Some(heads), &missing.iter().collect::<Vec<_>>(), &first.name)
}

/// The commits that the proposal's branch has and the base has not.
#[derive(Debug, Default)]
struct Unmerged {
    is_empty: bool,
    /// The newest that is not ours.
    foreign: Option<String>,
}

struct Proposal<'c> {
    cache: &'c Cache,
    request: &'c ProposeFilesRequest,
    base: Oid,
}

impl Proposal<'_> {
    fn repository(&self) -> &Repository {
        &self.cache.repository
    }

    /// The differences, and the push that proposes them, if one is needed.
    fn compare(
        &self,
        head: Option<(&str, Option<Head>)>,
    ) -> Result<(ProposeFilesResponse, Option<RefUpdate>), Failure> {
        let repository = self.repository();
        let base = self.commit(self.base)?;
        let root = bounded::root(repository, &base).map_err(|err| error::here(&err))?;
        let before: BTreeMap<String, Entry> = list(repository, &root)
            .map_err(|err| too_large(&err))?
            .into_iter()
            .map(|it| (it.path.clone(), it))
            .collect();
        let after = self.files(&before)?;
        let mut response = ProposeFilesResponse {
            base_commit: base.id().to_string(),
            changes: self.differences(&before, &after)?,
            ..ProposeFilesResponse::default()
        };
        let Some((name, tip)) = head.filter(|_| !response.changes.is_empty()) else { return Ok((response, None)) };
        let files = after.iter().map(|(path, (id, mode))| (path.as_str(), *id, *mode));
        let tree = write_tree(repository, files).map_err(commit_failure)?;
        let Some(tip) = tip else {
            let commit = self.make(tree, vec![base.id()])?;
            response.head_commit = commit.to_string();
            return Ok((response, Some(RefUpdate { name: name.to_owned(), expected: None, target: Some(commit) })));
        };
        if tip.oid == self.base && name.strip_prefix("refs/heads/") == Some(self.request.base.as_str()) {
            let commit = self.make(tree, vec![base.id()])?;
            response.head_commit = commit.to_string();
            let update = RefUpdate { name: name.to_owned(), expected: Some(tip.oid), target: Some(commit) };
            return Ok((response, Some(update)));
        }
        let proposed = self.commit(tip.oid)?;
        let unmerged = self.unmerged(&proposed)?;
        let forked = repository.merge_base(base.id(), proposed.id()).ok();
        if proposed.tree_id() == tree && !unmerged.is_empty && forked == Some(base.id()) {
            response.head_commit = proposed.id().to_string();
            return Ok((response, None));
        }
        if let Some(foreign) = unmerged.foreign {
            // People work on it. The proposal stays as they left it.
            response.head_commit = proposed.id().to_string();
            response.foreign = foreign;
            return Ok((response, None));
        }
        let parents = match forked {
            // It was merged, and left behind.
            _ if unmerged.is_empty => vec![base.id()],
            Some(forked) if forked == base.id() => vec![proposed.id()],
            Some(_) | None => vec![proposed.id(), base.id()],
        };
        let commit = self.make(tree, parents)?;
        response.head_commit = commit.to_string();
        let update = RefUpdate { name: name.to_owned(), expected: Some(tip.oid), target: Some(commit) };
        Ok((response, Some(update)))
    }

    fn commit(&self, id: Oid) -> Result<Commit<'_>, Failure> {
        let repository = self.repository();
        let found = commit_of(repository, id).and_then(|id| bounded::commit(repository, id));
        found.map_err(|err| error::here(&err))
    }

    /// All files after the proposal.
    fn files(&self, before: &BTreeMap<String, Entry>) -> Result<BTreeMap<String, (Oid, FileMode)>, Failure> {
        let stays = stays(self.request);
        let mut after: BTreeMap<String, (Oid, FileMode)> = before
            .iter()
            .filter(|(path, _)| stays(path))
            .map(|(path, entry)| (path.clone(), (entry.id, entry.mode)))
            .collect();
        for file in &self.request.files {
            let id = self.repository().blob(&file.content).map_err(|err| error::here(&err))?;
            after.insert(file.path.clone(), (id, FileMode::Blob));
        }
        Ok(after)
    }

    fn differences(
        &self,
        before: &BTreeMap<String, Entry>,
        after: &BTreeMap<String, (Oid, FileMode)>,
    ) -> Result<Vec<FileDifference>, Failure> {
        let mut left = if self.request.with_contents { CONTENTS } else { 0 };
        let mut changes = Vec::new();
        let paths = before.keys().chain(after.keys().filter(|path| !before.contains_key(*path)));
        for path in paths {
            let (then, now) = (before.get(path), after.get(path));
            let change = match (then, now) {
                (Some(then), Some((id, _))) if then.id == *id => continue,
                (Some(_), Some(_)) => "Modified",
                (Some(_), None) => "Deleted",
                (None, _) => "Added",
            };
            let mut difference =
                FileDifference { path: path.clone(), change: change.to_owned(), ..FileDifference::default() };
            if let Some(then) = then.filter(|_| left > 0)
                && let Ok(content) = then.read(self.repository(), left).map_err(|err| error::here(&err))?.0
            {
                left -= content.len();
                difference.before = content.into();
            }
            changes.push(difference);
        }
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(changes)
    }

    fn unmerged(&self, head: &Commit<'_>) -> Result<Unmerged, Failure> {
        let repository = self.repository();
        let mut unmerged = Unmerged { is_empty: true, foreign: None };
        let mut walk = || -> Result<(), git2::Error> {
            let mut commits = repository.revwalk()?;
            commits.set_sorting(Sort::TOPOLOGICAL)?;
            commits.push(head.id())?;
            commits.hide(self.base)?;
            for id in commits.take(MOST_COMMITS) {
                let commit = bounded::commit(repository, id?)?;
                unmerged.is_empty = false;
                if !self.is_ours(&commit) {
                    let by = String::from_utf8_lossy(commit.author().name_bytes()).into_owned();
                    let by: String = by.chars().filter(|c| !c.is_control()).take(100).collect();
                    unmerged.foreign = Some(format!("{:.10} by {by}", commit.id().to_string()));
                    return Ok(());
                }
            }
            Ok(())
        };
        walk().map_err(|err| error::here(&err))?;
        Ok(unmerged)
    }

    fn is_ours(&self, commit: &Commit<'_>) -> bool {
        let message = String::from_utf8_lossy(commit.message_bytes());
        let last = message.lines().rev().find(|line| !line.is_empty());
        last == Some(self.trailer().as_str())
    }

    fn trailer(&self) -> String {
        let owner: String = self.request.owner.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        format!("{TRAILER}: {owner}")
    }

    fn make(&self, tree: Oid, parents: Vec<Oid>) -> Result<Oid, Failure> {
        let GitPerson { name, email, seconds } =
            self.request.author.clone().ok_or_else(|| Failure::request("author is missing"))?;
        let author = Person { name, email, seconds };
        let message = format!("{}\n\n{}\n", self.request.message.trim_end(), self.trailer());
        let request = NewCommit {
            parents,
            message: &message,
            committer: author.clone(),
            author,
            path: "",
            change: Change::Root(tree),
        };
        make(self.repository(), &request).map(|made| made.commit).map_err(commit_failure)
    }
}

/// Whether a file that the request does not have stays in the base, by its path.
fn stays(request: &ProposeFilesRequest) -> impl Fn(&str) -> bool {
    let kept: HashSet<&str> = request.kept.iter().map(String::as_str).collect();
    let deletable: HashSet<&str> = request.deletable.iter().map(String::as_str).collect();
    let keeps_others = request.keeps_others;
    move |path: &str| {
        let is_foreign = keeps_others || !path.contains('/') || path.starts_with('.');
        is_foreign || is_inside(path, &kept) || !(deletable.is_empty() || is_inside(path, &deletable))
    }
}

/// Whether a file is in one of these folders, or below one.
fn is_inside(path: &str, folders: &HashSet<&str>) -> bool {
    path.match_indices('/').any(|(end, _)| folders.contains(&path[..end]))
}

fn commit_failure(err: CommitError) -> Failure {
    match err {
        CommitError::Invalid(message) => Failure::request(message),
        CommitError::Missing(_) => Failure::new(Code::NotFound, reason::VERSION_NOT_FOUND, err.to_string()),
        CommitError::Git(err) => error::here(&err),
    }
}

fn too_large(err: &git2::Error) -> Failure {
    if bounded::is_too_large(err) {
        let message = format!("the branch cannot be compared: {}", err.message());
        return Failure::new(Code::InvalidArgument, reason::TOO_LARGE, message);
    }
    error::here(err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_outside_of_deletable_folders_stay() {
        let names = |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
        let request = |deletable: &[&str], keeps_others| ProposeFilesRequest {
            kept: names(&["east", "canary/web"]),
            deletable: names(deletable),
            keeps_others,
            ..ProposeFilesRequest::default()
        };
        let paths = ["README.md", ".github/a", "canary/web/a", "canary/api/a", "east/web/a", "gone/web/a"];
        let deleted = |request: &ProposeFilesRequest| -> Vec<&'static str> {
            let stays = stays(request);
            paths.into_iter().filter(|path| !stays(path)).collect()
        };
        assert_eq!(deleted(&request(&[], false)), ["canary/api/a", "gone/web/a"]);
        assert_eq!(deleted(&request(&["canary"], false)), ["canary/api/a"]);
        assert_eq!(deleted(&request(&["canary"], true)), [] as [&str; 0]);
    }

    #[test]
    fn folder_contains_files_at_any_depth() {
        let folders = HashSet::from(["west", "east/web"]);
        for (path, expected) in [
            ("west/README.md", true),
            ("west/web/reconciler.yaml", true),
            ("western/web/reconciler.yaml", false),
            ("west", false),
            ("east/web/namespace.yaml", true),
            ("east/web-2/namespace.yaml", false),
            ("east/README.md", false),
        ] {
            assert_eq!(is_inside(path, &folders), expected, "{path}");
        }
    }
}
