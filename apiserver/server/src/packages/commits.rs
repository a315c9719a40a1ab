//! Pushes: the refs of a repository for each lifecycle of a revision.
//!
//! | change | commits | refs |
//! |---|---|---|
//! | a draft is saved | the files on the last draft | `drafts/<package>/<workspace>` |
//! | it is proposed or rejected | – | `proposed/…` instead of `drafts/…`, or the reverse |
//! | it is published | the draft, and its folder on the branch | the branch, the tag `<package>/v<n>`; drafts are removed |
//! | its deletion is proposed | – | `deletionProposed/<package>/v<n>` |
//! | it is deleted | without a tag: the branch without the folder | its refs are removed |
//!
//! All refs of a push move or none, each from its expected commit.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::to_value;
use stoa_kinds::{errors, validation::without_credentials};
use stoa_machinery::ApiError;
use stoa_packages::git_layout::{self, Annotation, RefKind};
use stoa_proto::{
    CommitRef, DiscoverRequest, FilesRequest, FolderFiles, FolderOf, GitPerson, MovedRef, NewCommit, PushRequest,
    PushResponse, RefUpdate, commit_ref, new_commit::Change, push_response::Outcome, ref_update,
};
use stoa_runs::runner::Runner;
use stoa_types::porch::{GitLock, Lifecycle, Locator, PackageRevision, StoredInGit};

use super::{
    contents::Document,
    digest,
    refs::{RevisionInGit, short},
    unanswered,
};

/// How often a publication begins again because the branch moved.
const TRIES: usize = 8;

/// How long the lookup of a tag's workspace may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The outcome of a push.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pushed {
    /// The state of the revision in Git, or in a registry.
    pub(crate) git: StoredInGit,
}

impl Pushed {
    /// Records it in the object.
    pub(crate) fn record(&self, in_git: &RevisionInGit, revision: &mut PackageRevision) {
        self.record_with(Some(lock_of(&in_git.repo, &in_git.path, &self.git)), revision);
    }

    /// The same with the lock of the revision.
    pub(super) fn record_with(&self, lock: Option<Locator>, revision: &mut PackageRevision) {
        let status = revision.status.get_or_insert_default();
        status.self_lock = lock;
        status.git = Some(self.git.clone());
        super::set_condition(&mut status.conditions, stoa_types::reason::PUSHED, None);
    }
}

/// The lock of a revision in Git.
pub(crate) fn lock_of(repo: &str, path: &str, git: &StoredInGit) -> Locator {
    Locator {
        kind: "git".to_owned(),
        git: Some(GitLock {
            repo: without_credentials(repo),
            directory: path.to_owned(),
            reference: short(&git.reference).to_owned(),
            commit: git.commit.clone(),
        }),
    }
}

fn existing(commit: &str) -> CommitRef {
    CommitRef { commit: Some(commit_ref::Commit::Id(commit.to_owned())) }
}

fn new(position: usize) -> CommitRef {
    CommitRef { commit: Some(commit_ref::Commit::NewCommit(u32::try_from(position).unwrap_or(u32::MAX))) }
}

fn moved(name: String, expected: &str, commit: CommitRef) -> RefUpdate {
    RefUpdate { name, expected: expected.to_owned(), target: Some(ref_update::Target::Commit(commit)) }
}

fn removed(name: &str, expected: &str) -> RefUpdate {
    RefUpdate { name: name.to_owned(), expected: expected.to_owned(), target: Some(ref_update::Target::Delete(true)) }
}

/// The state of a draft in Git, if it is there.
fn draft_in_git(revision: &PackageRevision) -> Option<&StoredInGit> {
    let git = revision.status.as_ref()?.git.as_ref()?;
    Some(git).filter(|git| !git.commit.is_empty() && !git.lifecycle.is_published())
}

/// Whether Git has the content of a revision.
fn has_content(revision: &PackageRevision, git: &StoredInGit) -> bool {
    digest(revision).is_empty() || digest(revision) == git.digest
}

/// The time of a commit that a repeated push has again: that of the object's creation.
fn seconds(revision: &PackageRevision) -> i64 {
    revision.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second())
}

fn annotation(in_git: &RevisionInGit, revision: &PackageRevision, number: i64) -> Annotation {
    let is_first = draft_in_git(revision).is_none() && number == 0;
    let task = revision.spec.tasks.first().filter(|_| is_first);
    Annotation {
        package: in_git.path.clone(),
        workspace_name: in_git.workspace.clone(),
        revision: number.to_string(),
        task: task.and_then(|task| to_value(task).ok()),
    }
}

/// The commit of the files of a draft, on its last commit or on the branch.
fn draft_commit(in_git: &RevisionInGit, revision: &PackageRevision, document: &Document, author: &str) -> NewCommit {
    let on = draft_in_git(revision).map_or(in_git.branch_commit.as_str(), |git| git.commit.as_str());
    let annotation = annotation(in_git, revision, 0);
    let message = git_layout::task_message(annotation.task_type());
    let time = if draft_in_git(revision).is_some() { Timestamp::now().as_second() } else { seconds(revision) };
    let base = document
        .base
        .as_ref()
        .map(|folder| FolderOf { commit: Some(existing(&folder.commit)), path: folder.path.clone() });
    NewCommit {
        parents: if on.is_empty() { Vec::new() } else { vec![existing(on)] },
        message: annotation.append_to(&message),
        author: Some(in_git.person(author, time)),
        committer: Some(committer(time)),
        path: in_git.path.clone(),
        change: Some(Change::Files(FolderFiles {
            files: document.files(),
            base,
            max_file_bytes: 8 << 20,
            ..FolderFiles::default()
        })),
    }
}

fn committer(seconds: i64) -> GitPerson {
    let (name, email) = git_layout::COMMITTER;
    GitPerson { name: name.to_owned(), email: email.to_owned(), seconds }
}

/// Brings the branches of a draft or proposal to its object.
///
/// # Errors
///
/// 409 where Git has another commit, 503 where it is out of reach.
pub(crate) async fn push_draft(
    runner: &Runner,
    in_git: &RevisionInGit,
    revision: &PackageRevision,
    document: &Document,
) -> Result<Pushed, ApiError> {
    let lifecycle = revision.spec.lifecycle;
    let (kind, other) = match lifecycle {
        Lifecycle::Proposed => (RefKind::Proposed, RefKind::Draft),
        _ => (RefKind::Draft, RefKind::Proposed),
    };
    let (name, other) = (in_git.draft(kind), in_git.draft(other));
    let before = draft_in_git(revision);
    let mut commits = Vec::new();
    let commit = match before.filter(|git| has_content(revision, git)) {
        Some(git) => existing(&git.commit),
        None => {
            commits.push(draft_commit(in_git, revision, document, ""));
            new(0)
        }
    };
    let expected = |name: &str| before.filter(|git| git.reference == name).map_or("", |git| git.commit.as_str());
    let mut updates = vec![moved(name.clone(), expected(&name), commit)];
    if !expected(&other).is_empty() {
        updates.push(removed(&other, expected(&other)));
    }
    let response = push(runner, in_git, commits, updates).await?;
    let (mut commit, tree) = match response.commits.first() {
        Some(pushed) => (pushed.commit.clone(), pushed.tree.clone()),
        None => before.map(|git| (git.commit.clone(), git.tree.clone())).unwrap_or_default(),
    };
    match other_commit(&response, &name) {
        // An earlier push arrived, whose answer was lost.
        Some(actual) if is_same(runner, in_git, actual, &tree).await => actual.clone_into(&mut commit),
        _ => check(revision, &response)?,
    }
    let digest = digest(revision).to_owned();
    Ok(Pushed { git: StoredInGit { reference: name, commit, tree, digest, lifecycle } })
}

/// The outcome of a publication.
#[derive(Debug)]
pub(crate) enum Publication {
    /// Git has the revision under the number.
    Done(Pushed),
    /// Another revision has the number.
    Taken,
}

/// Publishes a revision under a number: its folder becomes that of the branch, with a tag.
///
/// # Errors
///
/// 409 where Git has another draft, or the number with other files of this workspace; 503 where it is out of reach.
pub(crate) async fn publish(
    runner: &Runner,
    in_git: &RevisionInGit,
    revision: &PackageRevision,
    (document, number, author): (&Document, i64, &str),
) -> Result<Publication, ApiError> {
    let tag = in_git.published(RefKind::Tag, number);
    let before = draft_in_git(revision);
    let mut branch_commit = in_git.branch_commit.clone();
    let now = Timestamp::now().as_second();
    for _ in 0..TRIES {
        let mut commits = Vec::new();
        let draft = match before.filter(|git| has_content(revision, git)) {
            Some(git) => existing(&git.commit),
            None => {
                commits.push(draft_commit(in_git, revision, document, author));
                new(0)
            }
        };
        let message = git_layout::approval_message(&in_git.path, i32::try_from(number).unwrap_or(i32::MAX));
        let on_branch = (!branch_commit.is_empty()).then(|| existing(&branch_commit));
        commits.push(NewCommit {
            parents: on_branch.into_iter().chain([draft.clone()]).collect(),
            message: annotation(in_git, revision, number).append_to(&message),
            author: Some(in_git.person(author, now)),
            committer: Some(committer(now)),
            path: in_git.path.clone(),
            change: Some(Change::Folder(FolderOf { commit: Some(draft), path: in_git.path.clone() })),
        });
        let published = commits.len() - 1;
        let mut updates =
            vec![moved(in_git.branch.clone(), &branch_commit, new(published)), moved(tag.clone(), "", new(published))];
        updates.extend(before.map(|git| removed(&git.reference, &git.commit)));
        let response = push(runner, in_git, commits, updates).await?;
        if let Some(Outcome::Conflict(conflict)) = &response.outcome
            && let Some(branch) = conflict.refs.iter().find(|moved| moved.name == in_git.branch)
            && conflict.refs.iter().all(|moved| moved.name == in_git.branch)
        {
            branch_commit.clone_from(&branch.actual);
            continue;
        }
        let pushed = response.commits.get(published).cloned().unwrap_or_default();
        let mut commit = pushed.commit;
        match other_commit(&response, &tag) {
            // Revisions with the same files may be published at the same time.
            Some(_) if workspace_of(runner, in_git, &tag).await?.as_deref() != Some(&*in_git.workspace) => {
                return Ok(Publication::Taken);
            }
            // An earlier approval arrived, whose answer was lost.
            Some(actual) if is_same(runner, in_git, actual, &pushed.tree).await => actual.clone_into(&mut commit),
            _ => check(revision, &response)?,
        }
        return Ok(Publication::Done(Pushed {
            git: StoredInGit {
                reference: tag,
                commit,
                tree: pushed.tree,
                digest: digest(revision).to_owned(),
                lifecycle: Lifecycle::Published,
            },
        }));
    }
    let why = format!("{} moved {TRIES} times during the publication; retry later", in_git.branch);
    Err(errors::conflict::<PackageRevision>(&revision.name_any(), why))
}

/// Proposes the deletion of a published revision, or withdraws the proposal.
///
/// # Errors
///
/// As [`push_draft`].
pub(crate) async fn mark_deletion(
    runner: &Runner,
    in_git: &RevisionInGit,
    revision: &PackageRevision,
    is_proposed: bool,
) -> Result<Pushed, ApiError> {
    let git = revision.status.as_ref().and_then(|status| status.git.clone()).unwrap_or_default();
    let marker = in_git.published(RefKind::DeletionProposed, revision.spec.revision);
    let update = match is_proposed {
        true => moved(marker, "", existing(&git.commit)),
        false => removed(&marker, &git.commit),
    };
    let response = push(runner, in_git, Vec::new(), vec![update]).await?;
    // A marker that somebody else made or removed has the same meaning.
    if !matches!(response.outcome, Some(Outcome::Conflict(_))) {
        check(revision, &response)?;
    }
    let lifecycle = if is_proposed { Lifecycle::DeletionProposed } else { Lifecycle::Published };
    Ok(Pushed { git: StoredInGit { lifecycle, ..git } })
}

/// Removes the refs of a revision, or its folder from the branch where it has no ref of its own.
///
/// # Errors
///
/// As [`push_draft`].
pub(crate) async fn remove(
    runner: &Runner,
    in_git: &RevisionInGit,
    revision: &PackageRevision,
) -> Result<(), ApiError> {
    let Some(git) = revision.status.as_ref().and_then(|status| status.git.clone()) else { return Ok(()) };
    if git.commit.is_empty() {
        return Ok(());
    }
    let marker = in_git.published(RefKind::DeletionProposed, revision.spec.revision);
    let mut branch_commit = in_git.branch_commit.clone();
    let mut expected: Vec<(String, String)> = Vec::new();
    let is_on_branch = git.reference == in_git.branch;
    if !is_on_branch {
        expected.push((git.reference.clone(), git.commit.clone()));
    }
    if git.lifecycle == Lifecycle::DeletionProposed {
        expected.push((marker.clone(), git.commit.clone()));
    }
    let now = Timestamp::now().as_second();
    for _ in 0..TRIES {
        let mut commits = Vec::new();
        let mut updates: Vec<RefUpdate> = expected.iter().map(|(name, commit)| removed(name, commit)).collect();
        if is_on_branch && !branch_commit.is_empty() {
            commits.push(NewCommit {
                parents: vec![existing(&branch_commit)],
                message: format!("Deleting package {}\n", in_git.path),
                author: Some(in_git.person("", now)),
                committer: Some(committer(now)),
                path: in_git.path.clone(),
                change: Some(Change::Remove(true)),
            });
            updates.push(moved(in_git.branch.clone(), &branch_commit, new(0)));
        }
        if updates.is_empty() {
            return Ok(());
        }
        let response = push(runner, in_git, commits, updates).await?;
        let Some(Outcome::Conflict(conflict)) = &response.outcome else { return check(revision, &response) };
        for MovedRef { name, actual, .. } in &conflict.refs {
            if *name == in_git.branch {
                branch_commit.clone_from(actual);
            } else if actual.is_empty() || !git.lifecycle.is_published() {
                // Somebody else removed it, or has another draft there, which stays.
                expected.retain(|(expected, _)| expected != name);
            } else if *name == marker {
                expected
                    .iter_mut()
                    .filter(|(expected, _)| expected == name)
                    .for_each(|(_, commit)| commit.clone_from(actual));
            } else {
                return check(revision, &response);
            }
        }
    }
    let why = format!("the refs of {} moved {TRIES} times during the deletion; retry later", in_git.path);
    Err(errors::conflict::<PackageRevision>(&revision.name_any(), why))
}

async fn push(
    runner: &Runner,
    in_git: &RevisionInGit,
    commits: Vec<NewCommit>,
    updates: Vec<RefUpdate>,
) -> Result<PushResponse, ApiError> {
    let request = PushRequest { source: Some(in_git.source.clone()), commits, updates };
    runner.push(request).await.map_err(|status| unanswered(&status))
}

/// The commit of a ref that was not where the push expected it; nothing if it does not exist.
fn other_commit<'r>(response: &'r PushResponse, name: &str) -> Option<&'r str> {
    let Some(Outcome::Conflict(conflict)) = &response.outcome else { return None };
    let moved = conflict.refs.iter().find(|moved| moved.name == name)?;
    Some(moved.actual.as_str()).filter(|actual| !actual.is_empty())
}

/// The workspace that the annotation of a tag names, if the tag has the package.
async fn workspace_of(runner: &Runner, in_git: &RevisionInGit, tag: &str) -> Result<Option<String>, ApiError> {
    let folder = in_git.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let request = DiscoverRequest {
        source: Some(in_git.source.clone()),
        branch: short(&in_git.branch).to_owned(),
        directory: folder.to_owned(),
        ..DiscoverRequest::default()
    };
    let late = |_| ApiError::service_unavailable(format!("the repository did not answer within {PATIENCE:?}"));
    let found = tokio::time::timeout(PATIENCE, runner.discover(request)).await.map_err(late)?;
    let revisions = found.map_err(|status| unanswered(&status))?.revisions;
    let of_tag = revisions.into_iter().find(|found| found.r#ref == tag && found.path == in_git.path);
    Ok(of_tag.map(|found| found.workspace))
}

/// Whether the package has a tree in a commit.
async fn is_same(runner: &Runner, in_git: &RevisionInGit, commit: &str, tree: &str) -> bool {
    let request = FilesRequest {
        source: Some(in_git.source.clone()),
        commit: commit.to_owned(),
        path: in_git.path.clone(),
        // The tree is in the first message.
        max_file_bytes: 1,
        with_binary: false,
    };
    runner.package_files(request).await.is_ok_and(|found| !tree.is_empty() && found.tree.tree == tree)
}

/// Whether the refs moved.
///
/// # Errors
///
/// 409 where they were not where they were expected, or the Git server rejects the push.
fn check(revision: &PackageRevision, response: &PushResponse) -> Result<(), ApiError> {
    let why = match &response.outcome {
        Some(Outcome::Done(_)) => return Ok(()),
        Some(Outcome::Conflict(conflict)) => {
            let moved = conflict.refs.iter().map(|MovedRef { name, expected, actual }| {
                let state = |commit: &str| if commit.is_empty() { "absent".to_owned() } else { format!("at {commit}") };
                format!("{} is {} in Git instead of {}", short(name), state(actual), state(expected))
            });
            let moved = moved.collect::<Vec<_>>().join(", ");
            format!("somebody else changed the repository: {moved}; remove that ref from Git, or delete this revision")
        }
        Some(Outcome::Rejected(rejected)) => {
            format!("the Git server rejects the push of {}: {}", short(&rejected.r#ref), rejected.message)
        }
        None => "the function-runner gave no outcome of the push; upgrade the function-runner".to_owned(),
    };
    Err(errors::conflict::<PackageRevision>(&revision.name_any(), why))
}
