//! Commits of packages: their annotations, authors and tasks.

use std::collections::{BTreeSet, HashMap};

use git2::{Commit, Oid, Repository, Signature, Sort};
use stoa_engine_git::bounded;
use stoa_packages::git_layout::Annotation;
use stoa_proto::GitPerson;

/// The most commits of the deployed branch that are searched for authors.
const MOST_COMMITS: usize = 50_000;

/// The most commits of one revision.
const MOST_OF_REVISION: usize = 1000;

/// A person as in an answer.
pub(super) fn person(signature: &Signature<'_>) -> GitPerson {
    GitPerson {
        name: String::from_utf8_lossy(signature.name_bytes()).into_owned(),
        email: String::from_utf8_lossy(signature.email_bytes()).into_owned(),
        seconds: signature.when().seconds(),
    }
}

fn annotations(commit: &Commit<'_>) -> Vec<Annotation> {
    let message = commit.message_bytes();
    if !message.windows(4).any(|window| window == b"kpt:") {
        return Vec::new();
    }
    Annotation::all(&String::from_utf8_lossy(message))
}

/// The annotation of a commit for a package.
pub(super) fn annotation(commit: &Commit<'_>, path: &str) -> Option<Annotation> {
    annotations(commit).into_iter().find(|annotation| annotation.package == path)
}

/// The authors of the last commits of packages on the deployed branch, as far as annotations name them.
pub(super) fn authors(
    repository: &Repository,
    head: Oid,
    before: Option<Oid>,
    paths: &BTreeSet<&str>,
) -> Result<HashMap<String, GitPerson>, git2::Error> {
    let mut found = HashMap::new();
    if paths.is_empty() {
        return Ok(found);
    }
    let mut walk = repository.revwalk()?;
    walk.set_sorting(Sort::TIME)?;
    walk.push(head)?;
    if let Some(before) = before {
        walk.hide(before)?;
    }
    for id in walk.take(MOST_COMMITS) {
        let commit = bounded::commit(repository, id?)?;
        for annotation in annotations(&commit) {
            if paths.contains(&*annotation.package) && !found.contains_key(&annotation.package) {
                found.insert(annotation.package, person(&commit.author()));
            }
        }
        if found.len() == paths.len() {
            break;
        }
    }
    Ok(found)
}

/// The task that began a revision, as JSON; empty if its commits name none.
///
/// An approval's second parent is the draft, so that the line of the revision goes on there.
pub(super) fn first_task(
    repository: &Repository,
    commit: &Commit<'_>,
    path: &str,
    workspace: &str,
) -> Result<String, git2::Error> {
    let mut task = String::new();
    let mut next = Some(commit.clone());
    for _ in 0..MOST_OF_REVISION {
        let Some(commit) = next else { break };
        let own: Vec<Annotation> =
            annotations(&commit).into_iter().filter(|annotation| annotation.is_for(path, workspace)).collect();
        if own.is_empty() {
            break;
        }
        if let Some(first) = own.into_iter().find(Annotation::is_first_task) {
            task = first.task.map(|task| task.to_string()).unwrap_or_default();
        }
        let parent = commit.parent_id(1).or_else(|_| commit.parent_id(0)).ok();
        next = parent.map(|id| bounded::commit(repository, id)).transpose()?;
    }
    Ok(task)
}
