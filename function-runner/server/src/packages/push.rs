//! Makes commits of packages, and moves refs of their repository: all or none.

use std::collections::BTreeSet;

use git2::Oid;
use stoa_engine_git::commit::{Change, CommitError, FileToWrite, Made, NewCommit, Person, check_path, make};
use stoa_engine_git::files::{commit_of, folder};
use stoa_engine_git::push::{self as git_push, Moved, Outcome, RefUpdate};
use stoa_proto::{
    CommitRef, FolderOf, GitPerson, GitRef, MovedRef, PushConflict, PushDone, PushRejected, PushRequest, PushResponse,
    PushedCommit, commit_ref, new_commit, push_response, ref_update,
};
use tonic::Code;

use super::{discover, files};
use crate::failure::{Failure, reason};
use crate::source::{Cache, Heads, error, parse_commit};

/// The most commits and refs of a request.
const MOST: usize = 100;

/// Makes the commits, and pushes the refs. A second call with the same request changes nothing.
pub(crate) fn push(cache: &Cache, request: &PushRequest) -> Result<PushResponse, Failure> {
    check(request)?;
    if let Some(conflict) = fetch(cache, request)? {
        return Ok(PushResponse { outcome: Some(conflict), ..PushResponse::default() });
    }
    let mut made: Vec<Made> = Vec::with_capacity(request.commits.len());
    for commit in &request.commits {
        let commit = Commits { cache, made: &made }.make(commit)?;
        made.push(commit);
    }
    let commits = Commits { cache, made: &made };
    let updates: Result<Vec<RefUpdate>, Failure> = request
        .updates
        .iter()
        .map(|update| {
            let target = match &update.target {
                Some(ref_update::Target::Commit(commit)) => Some(commits.id(Some(commit))?),
                Some(ref_update::Target::Delete(_)) | None => None,
            };
            Ok(RefUpdate { name: update.name.clone(), expected: expected(&update.expected)?, target })
        })
        .collect();
    let updates = updates?;
    let pushed = git_push::push(&cache.repository, &cache.access()?, &updates).map_err(error::of_push)?;
    let outcome = match pushed {
        Outcome::Done { was_done } => {
            remember(cache, &updates);
            let target = |update: &RefUpdate| update.target.map(|id| id.to_string()).unwrap_or_default();
            let refs = updates.iter().map(|update| GitRef { name: update.name.clone(), commit: target(update) });
            push_response::Outcome::Done(PushDone { refs: refs.collect(), was_done })
        }
        Outcome::Conflict(moved) => conflict(moved),
        Outcome::Rejected { name, message } => push_response::Outcome::Rejected(PushRejected { r#ref: name, message }),
    };
    let pushed = |made: &Made| PushedCommit {
        commit: made.commit.to_string(),
        tree: made.tree.map(|tree| tree.to_string()).unwrap_or_default(),
    };
    Ok(PushResponse { commits: made.iter().map(pushed).collect(), outcome: Some(outcome) })
}

fn conflict(moved: Vec<Moved>) -> push_response::Outcome {
    let id = |id: Option<Oid>| id.map(|id| id.to_string()).unwrap_or_default();
    let refs = moved.into_iter().map(|Moved { name, expected, actual }| MovedRef {
        name,
        expected: id(expected),
        actual: id(actual),
    });
    push_response::Outcome::Conflict(PushConflict { refs: refs.collect() })
}

/// Checks names and numbers before anything is fetched.
fn check(request: &PushRequest) -> Result<(), Failure> {
    if request.updates.is_empty() {
        return Err(Failure::request("updates is empty; name a ref to move"));
    }
    if request.commits.len() > MOST || request.updates.len() > MOST {
        return Err(Failure::request(format!(
            "commits and updates have more than {MOST} entries; send several pushes"
        )));
    }
    let mut names = BTreeSet::new();
    for update in &request.updates {
        let name = &update.name;
        let is_ref = name.starts_with("refs/heads/") || name.starts_with("refs/tags/");
        if !is_ref || !git2::Reference::is_valid_name(name) {
            return Err(Failure::request(format!("updates: {name:?} is no full name of a branch or tag")));
        }
        if !names.insert(name) {
            return Err(Failure::request(format!("updates: {name} is there twice")));
        }
        expected(&update.expected)?;
        let is_deletion = match &update.target {
            Some(ref_update::Target::Commit(_)) => false,
            Some(ref_update::Target::Delete(true)) => true,
            Some(ref_update::Target::Delete(false)) | None => {
                return Err(Failure::request(format!("updates: {name} has no target")));
            }
        };
        if is_deletion && update.expected.is_empty() {
            return Err(Failure::request(format!("updates: the deletion of {name} needs `expected`")));
        }
    }
    Ok(())
}

fn expected(text: &str) -> Result<Option<Oid>, Failure> {
    if text.is_empty() { Ok(None) } else { parse_commit(text).map(Some) }
}

/// The commits that exist, and that a request names.
fn existing(request: &PushRequest) -> Result<BTreeSet<Oid>, Failure> {
    let of_commits = request.commits.iter().flat_map(|commit| {
        let of_change = match &commit.change {
            Some(new_commit::Change::Files(files)) => files.base.as_ref().and_then(|of| of.commit.as_ref()),
            Some(new_commit::Change::Folder(of)) => of.commit.as_ref(),
            Some(new_commit::Change::Remove(_)) | None => None,
        };
        commit.parents.iter().chain(of_change)
    });
    let of_updates = request.updates.iter().filter_map(|update| match &update.target {
        Some(ref_update::Target::Commit(commit)) => Some(commit),
        Some(ref_update::Target::Delete(_)) | None => None,
    });
    let ids = of_commits.chain(of_updates).filter_map(|of| match &of.commit {
        Some(commit_ref::Commit::Id(id)) => Some(parse_commit(id)),
        Some(commit_ref::Commit::NewCommit(_)) | None => None,
    });
    ids.collect()
}

/// Fetches the commits that a request names. A conflict if one is gone, and a ref moved.
fn fetch(cache: &Cache, request: &PushRequest) -> Result<Option<push_response::Outcome>, Failure> {
    let missing = |cache: &Cache| -> Result<Vec<Oid>, Failure> {
        Ok(existing(request)?.into_iter().filter(|id| !cache.has(*id)).collect())
    };
    if missing(cache)?.is_empty() {
        return Ok(None);
    }
    let heads = cache.list()?;
    let refs: Vec<GitRef> = heads
        .iter()
        .filter(|head| !cache.has(head.oid))
        .map(|head| GitRef { name: head.name.clone(), commit: head.oid.to_string() })
        .collect();
    if let Some(first) = refs.first() {
        discover::fetch(cache, Some(&heads), &refs.iter().collect::<Vec<_>>(), &first.name)?;
    }
    let Some(absent) = missing(cache)?.first().copied() else { return Ok(None) };
    let moved = moved(&heads, request)?;
    if !moved.is_empty() {
        return Ok(Some(conflict(moved)));
    }
    // Perhaps no ref leads to it.
    cache.ensure(absent)?;
    for id in missing(cache)? {
        cache.ensure(id)?;
    }
    Ok(None)
}

/// The refs that are not where a request expects them.
fn moved(heads: &Heads, request: &PushRequest) -> Result<Vec<Moved>, Failure> {
    let mut moved = Vec::new();
    for update in &request.updates {
        let expected = expected(&update.expected)?;
        let actual = heads.iter().find(|head| head.name == update.name).map(|head| head.oid);
        if expected != actual {
            moved.push(Moved { name: update.name.clone(), expected, actual });
        }
    }
    Ok(moved)
}

/// Moves the refs of the cache, so that the next fetch names their commits as known.
fn remember(cache: &Cache, updates: &[RefUpdate]) {
    for update in updates {
        let noted = match update.target {
            Some(id) => cache.repository.reference(&update.name, id, true, "pushed").map(drop),
            None => cache.repository.find_reference(&update.name).and_then(|mut reference| reference.delete()),
        };
        if let Err(error) = noted {
            tracing::debug!(name = update.name, %error, "the cache does not remember a pushed ref");
        }
    }
}

/// The commits of a request, made up to now.
struct Commits<'c> {
    cache: &'c Cache,
    made: &'c [Made],
}

impl Commits<'_> {
    fn id(&self, of: Option<&CommitRef>) -> Result<Oid, Failure> {
        match of.and_then(|of| of.commit.as_ref()) {
            Some(commit_ref::Commit::Id(id)) => parse_commit(id),
            Some(commit_ref::Commit::NewCommit(number)) => {
                let made = self.made.get(*number as usize).map(|made| made.commit);
                made.ok_or_else(|| Failure::request(format!("new_commit {number} is not a commit before this one")))
            }
            None => Err(Failure::request("a commit is missing")),
        }
    }

    fn parent(&self, of: &CommitRef) -> Result<Oid, Failure> {
        commit_of(&self.cache.repository, self.id(Some(of))?).map_err(|err| error::here(&err))
    }

    /// The tree of a folder, if it exists; an empty path is the default.
    fn tree(&self, of: &FolderOf, default: &str) -> Result<Option<Oid>, Failure> {
        let path = if of.path.is_empty() { default } else { &of.path };
        check_path(path).map_err(|err| Failure::request(err.to_string()))?;
        let commit = self.id(of.commit.as_ref())?;
        let found = folder(&self.cache.repository, commit, path).map_err(|err| error::here(&err))?;
        Ok(found.map(|tree| tree.id()))
    }

    fn make(&self, commit: &stoa_proto::NewCommit) -> Result<Made, Failure> {
        let parents: Vec<Oid> = commit.parents.iter().map(|parent| self.parent(parent)).collect::<Result<_, _>>()?;
        let author = person(commit.author.as_ref())?;
        let committer = match &commit.committer {
            None => author.clone(),
            some => person(some.as_ref())?,
        };
        let change = match &commit.change {
            None => Change::Nothing,
            Some(new_commit::Change::Remove(_)) => Change::Remove,
            Some(new_commit::Change::Folder(of)) => {
                let missing = || {
                    let path = if of.path.is_empty() { &commit.path } else { &of.path };
                    Failure::new(Code::NotFound, reason::PATH_NOT_FOUND, format!("the commit has no folder {path:?}"))
                };
                Change::Folder(self.tree(of, &commit.path)?.ok_or_else(missing)?)
            }
            Some(new_commit::Change::Files(folder)) => {
                let base = match &folder.base {
                    Some(of) => self.tree(of, &commit.path)?,
                    None => match commit.parents.first() {
                        Some(first) => {
                            let of = FolderOf { commit: Some(first.clone()), path: String::new() };
                            self.tree(&of, &commit.path)?
                        }
                        None => None,
                    },
                };
                let files = folder.files.iter().filter(|file| file.kept.is_empty());
                let files = files.map(|file| FileToWrite {
                    path: &file.path,
                    content: &file.content,
                    is_executable: file.is_executable,
                });
                let removed = folder.removed.iter().map(String::as_str).collect();
                Change::Files { base, files: files.collect(), removed, most: files::limit(folder.max_file_bytes) }
            }
        };
        let request = NewCommit { parents, message: &commit.message, author, committer, path: &commit.path, change };
        make(&self.cache.repository, &request).map_err(|err| match err {
            CommitError::Invalid(message) => Failure::request(message),
            CommitError::Missing(_) => Failure::new(Code::NotFound, reason::VERSION_NOT_FOUND, err.to_string()),
            CommitError::Git(err) => error::here(&err),
        })
    }
}

fn person(person: Option<&GitPerson>) -> Result<Person, Failure> {
    let GitPerson { name, email, seconds } =
        person.ok_or_else(|| Failure::request("a new commit has no author"))?.clone();
    Ok(Person { name, email, seconds })
}
