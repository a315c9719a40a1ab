//! Proposals: a commit on a branch of the deployment, and one pull request for it.
//!
//! Start at [`propose`]. Only changes on the base branch of the pull request count as done. A repeated Run finds there
//! whether people merged its pull request.
//!
//! **Invariant:** no push is forced. The branch only moves to descendants of its head, and never while it has commits
//! of others.

use std::fmt;
use std::sync::Arc;

use git2::{Commit, Oid, Repository};
use stoa_engine::Owner;
use stoa_failpoint::reached;
use stoa_pulls::{CommentText, PullError, PullRequest, PullRequests, PullState, Text, is_marked, marked, quoted};
use stoa_runtime::{Finished, Grant, Proposal, ProposalState, RuntimeError};

use crate::bounded::{self, Paths};
use crate::branch::{Advance, Branch};
use crate::commit::{self, Draft, FileChange, Gathered};
use crate::history::History;
use crate::{FIELD, GitOpsRuntime, RunInfo, invalid};

/// How many files a description lists.
const NAMED: usize = 100;

/// The pull request settings.
#[derive(Clone)]
pub struct Proposing {
    /// The pull requests of the repository.
    pub pulls: Arc<dyn PullRequests>,
    /// The prefix of branch names, before the organization; empty means `stoa/`.
    pub branch_prefix: String,
    /// The pull request that an earlier try of the same run opened or found.
    pub earlier: Option<u64>,
}

impl fmt::Debug for Proposing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proposing").field("pulls", &self.pulls).field("earlier", &self.earlier).finish_non_exhaustive()
    }
}

impl Proposing {
    /// The branch of a deployment: `stoa/<organization>/<stack>/<workspace>`.
    pub(crate) fn branch(&self, owner: &Owner) -> Result<String, RuntimeError> {
        let prefix = if self.branch_prefix.is_empty() { "stoa/" } else { &self.branch_prefix };
        let parts = [owner.organization.as_str(), &owner.stack, &owner.workspace];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let branch = format!("{prefix}{}", parts.join("/"));
        if !git2::Reference::is_valid_name(&format!("refs/heads/{branch}")) {
            let message = format!("`{branch}` would be the branch of the pull request, but is not a branch name");
            return Err(invalid(&message, "spec.gitops.pullRequest.branchPrefix"));
        }
        Ok(branch)
    }
}

/// The marker in a deployment's pull request.
fn marker(owner: &Owner) -> String {
    format!("stoa:proposal:{}/{}", commit::stack(owner), owner.workspace)
}

/// Finds the changes merged into the base, or opens a pull request.
///
/// # Errors
///
/// [`RuntimeError::Rejected`] when commits of others are in the way, or the pull request was merged with other content.
pub(crate) async fn propose(
    runtime: &GitOpsRuntime,
    proposing: &Proposing,
    branch: Arc<Branch>,
    changes: Gathered,
    grant: &Grant,
) -> Result<Finished, RuntimeError> {
    let pulls = &*proposing.pulls;
    // Before the base is read, which then has the merge.
    let (base_name, head_name) = (runtime.place.branch().to_owned(), branch.branch().to_owned());
    let earlier = match proposing.earlier {
        Some(number) => Some(pulls.get(number).await.map_err(|err| explain(&err))?),
        None => None,
    };
    // The workspace may have another branch by now.
    let earlier = earlier.filter(|pull| pull.base == base_name && pull.head == head_name && !pull.is_fork);
    let (run, of_grant) = (Arc::clone(&runtime.run), grant.clone());
    let state = earlier.as_ref().map(|pull| pull.state.clone());
    let work = Branching { run, base: base_name.clone(), changes, earlier: state, grant: of_grant };
    let branched = runtime.blocking(move |base| work.write(base, &branch)).await?;
    let proposal = |pull: &PullRequest, commit: String, state, blocked| {
        let (number, url, branch) = (pull.number, pull.url.clone(), head_name.clone());
        let proposal = Proposal { number, url, branch, commit, state, blocked };
        Finished { proposal: Some(proposal), ..Finished::default() }
    };
    match branched {
        Branched::InBase { finished, is_stale } => {
            if is_stale {
                withdraw(pulls, &runtime.run.owner, &head_name, &base_name, grant).await?;
            }
            Ok(finished)
        }
        Branched::Ended { commit, state } => {
            let pull = match earlier {
                Some(pull) => Some(pull),
                None => pulls.find(&head_name, &base_name).await.map_err(|err| explain(&err))?,
            };
            let pull = pull.ok_or_else(|| rejected("another run of the deployment has taken the branch".to_owned()))?;
            Ok(proposal(&pull, commit, state, None))
        }
        Branched::Ready { commit, text, blocked, was_there } => {
            let pull = match earlier {
                Some(pull) => Some(pull),
                None => pulls.find(&head_name, &base_name).await.map_err(|err| explain(&err))?,
            };
            if pull.is_none() && was_there {
                // An earlier try may have opened it, and a user closed it before that was recorded. The text names the
                // run: servers may report the present head for an older one.
                let closed = pulls.find_closed(&head_name, &base_name, &commit).await.map_err(|err| explain(&err))?;
                if let Some(pull) = closed.filter(|pull| has_text(pull, &text)) {
                    return Ok(proposal(&pull, commit, ProposalState::Closed, None));
                }
            }
            grant.check()?;
            let pull = match pull {
                None => pulls.open(&head_name, &base_name, &text).await.map_err(|err| explain(&err))?,
                Some(pull) => {
                    // One that a person opened has their words.
                    if !has_text(&pull, &text) && is_marked(&pull.body, &marker(&runtime.run.owner)) {
                        pulls.update(pull.number, &text).await.map_err(|err| explain(&err))?;
                    }
                    pull
                }
            };
            reached("pull-request-opened");
            Ok(proposal(&pull, commit, ProposalState::Open, blocked))
        }
    }
}

fn has_text(pull: &PullRequest, text: &Text) -> bool {
    pull.title == text.title && pull.body.trim_end() == text.body.trim_end()
}

/// Closes our pull request, if it is open: there is nothing left to propose.
async fn withdraw(
    pulls: &dyn PullRequests,
    owner: &Owner,
    head: &str,
    base: &str,
    grant: &Grant,
) -> Result<(), RuntimeError> {
    let Some(pull) = pulls.find(head, base).await.map_err(|err| explain(&err))? else { return Ok(()) };
    if !is_marked(&pull.body, &marker(owner)) {
        return Ok(());
    }
    grant.check()?;
    let why = format!("Branch {} already has these changes, so there is nothing left to merge.", quoted(base));
    let comment = CommentText { marker: "stoa:withdrawn", body: &why, before: None };
    pulls.comment(pull.number, &comment).await.map_err(|err| explain(&err))?;
    pulls.close(pull.number).await.map_err(|err| explain(&err))
}

fn explain(err: &PullError) -> RuntimeError {
    let message = format!("pull requests: {err}");
    match err {
        PullError::Limited { wait, .. } => RuntimeError::Limited { message, wait: *wait },
        PullError::Unavailable(_) => RuntimeError::Unavailable { message },
        PullError::Unauthorized(_) | PullError::NotFound(_) | PullError::Refused(_) | PullError::Malformed(_) => {
            RuntimeError::Rejected { message, field: Some(FIELD.to_owned()), by_definition: false }
        }
    }
}

fn rejected(message: String) -> RuntimeError {
    RuntimeError::Rejected { message, field: None, by_definition: false }
}

/// The result on the branch.
enum Branched {
    /// The base has everything. `is_stale`: what is proposed, if anything is, was so by this run or earlier ones alone.
    InBase { finished: Finished, is_stale: bool },
    /// The proposal is no more.
    Ended { commit: String, state: ProposalState },
    /// The branch has the changes and needs a pull request, which may be blocked. `was_there`: it had commits of this
    /// run before.
    Ready { commit: String, text: Text, blocked: Option<String>, was_there: bool },
}

/// Work on the repository, on a thread that may block.
struct Branching {
    run: Arc<RunInfo>,
    /// The branch that is proposed to.
    base: String,
    changes: Gathered,
    /// The state of the pull request of an earlier try.
    earlier: Option<PullState>,
    grant: Grant,
}

/// The commits that the branch has and the base has not.
#[derive(Default)]
struct Unmerged {
    /// The newest that is not ours: what it is called and who made it.
    foreign: Option<String>,
    /// The run of the newest that is ours, by uid and name.
    newest: Option<(String, String)>,
    /// Whether one of them is of this run.
    has_own: bool,
    is_empty: bool,
}

impl Branching {
    fn write(&self, base: &Branch, head: &Branch) -> Result<Branched, RuntimeError> {
        let mut last = String::new();
        for race in 0..commit::RACES {
            commit::wait_before(race);
            let (repository, tip) = base.head().map_err(RuntimeError::before_a_change)?;
            let Some(tip) = tip else {
                let message =
                    format!("branch {} does not exist; create it so that a pull request can go to it", base.branch());
                let field = Some("spec.gitops.branch".to_owned());
                return Err(RuntimeError::Rejected { message, field, by_definition: false });
            };
            let (_, on_branch) = head.head().map_err(RuntimeError::before_a_change)?;
            let decided = self.decide(&repository, tip, on_branch, head);
            match decided.map_err(|err| base.explain_in(&repository, &err).before_a_change())?? {
                Decision::Done(branched) => return Ok(branched),
                Decision::Push { commit, text } => match head.advance(&repository, on_branch, commit, &self.grant)? {
                    Advance::Done => {
                        let commit = commit.to_string();
                        return Ok(Branched::Ready { commit, text, blocked: None, was_there: false });
                    }
                    Advance::Raced(why) => last = why,
                },
            }
        }
        Err(commit::outrun(&last))
    }

    fn decide(
        &self,
        repository: &Repository,
        tip: Oid,
        on_branch: Option<Oid>,
        head: &Branch,
    ) -> Result<Result<Decision, RuntimeError>, git2::Error> {
        let run = &*self.run;
        let base = bounded::commit(repository, tip)?;
        let mut draft = commit::draft(repository, &bounded::root(repository, &base)?, run, &self.changes)?;
        let unmerged = match on_branch {
            Some(branch) => self.unmerged(repository, tip, branch)?,
            None => Unmerged { is_empty: true, ..Unmerged::default() },
        };
        let has_proposed = self.earlier.is_some() || !commit::commits_of(repository, tip, &run.uid)?.is_empty();
        let in_base = |commit: Oid, draft: &mut Draft<'_>| {
            // Once this run has proposed something, what another one proposes is later.
            let is_later = unmerged.newest.as_ref().is_some_and(|(uid, _)| *uid != run.uid) && has_proposed;
            let is_stale = unmerged.foreign.is_none() && !is_later;
            let left = std::mem::take(&mut draft.left);
            let commit = (!self.changes.changes.is_empty()).then(|| commit.to_string());
            let finished = Finished { commit, left, proposal: None };
            Decision::Done(Branched::InBase { finished, is_stale })
        };
        if draft.tree.is_none() && draft.refused.is_none() {
            return Ok(Ok(in_base(tip, &mut draft)));
        }
        if let Some(merged) = self.merged(repository, tip, &draft)? {
            return Ok(Ok(in_base(merged, &mut draft)));
        }
        match &self.earlier {
            // Without a changed file, the reason is reported below.
            Some(PullState::Merged(_)) if draft.files.is_empty() => {}
            Some(PullState::Merged(_)) => {
                let paths: Vec<&str> = draft.files.keys().take(3).map(String::as_str).collect();
                let message = format!(
                    "the pull request was merged with other content than planned ({}); start another run",
                    paths.join(", ")
                );
                return Ok(Err(rejected(message)));
            }
            Some(PullState::Closed) => {
                let commit = on_branch.map(|commit| commit.to_string()).unwrap_or_default();
                return Ok(Ok(Decision::Done(Branched::Ended { commit, state: ProposalState::Closed })));
            }
            Some(PullState::Open) | None => {}
        }
        if let Some(error) = draft.refused.take() {
            return Ok(Err(error));
        }
        // Reviewers compare the proposal with the present base.
        let is_proposed = self.earlier.is_some() || unmerged.has_own;
        if let Some(error) = draft.stale().filter(|_| !is_proposed) {
            return Ok(Err(error));
        }
        let Some(tree) = draft.tree else { return Ok(Ok(in_base(tip, &mut draft))) };
        if let (Some(branch), true, Some((uid, name))) = (on_branch, unmerged.has_own, &unmerged.newest)
            && *uid != run.uid
        {
            let state = ProposalState::Superseded(name.clone());
            return Ok(Ok(Decision::Done(Branched::Ended { commit: branch.to_string(), state })));
        }
        let text = self.text(&draft);
        let Some(branch) = on_branch else {
            let commit = commit::make(repository, run, &draft, tree, &[&base])?;
            return Ok(Ok(Decision::Push { commit, text }));
        };
        if self.is_proposed(repository, &base, branch, &draft, &unmerged)? {
            let (commit, was_there) = (branch.to_string(), unmerged.has_own);
            return Ok(Ok(Decision::Done(Branched::Ready { commit, text, blocked: None, was_there })));
        }
        if let Some(foreign) = &unmerged.foreign {
            let there = bounded::root(repository, &bounded::commit(repository, branch)?)?;
            if unmerged.has_own && self.is_in(repository, &there, &draft)? {
                // The proposal still exists. The authors of the other commits can merge the base into the branch.
                let blocked = format!(
                    "{} changed the same files, and branch {} has commits of others, which Stoa never overwrites: \
                     {foreign}; merge the one into the other, or close the pull request",
                    self.base,
                    head.branch()
                );
                let commit = branch.to_string();
                return Ok(Ok(Decision::Done(Branched::Ready {
                    commit,
                    text,
                    blocked: Some(blocked),
                    was_there: true,
                })));
            }
            let message = format!(
                "branch {} has commits of others, which Stoa never overwrites: {foreign}; merge or close its pull \
                 request, or delete the branch, then start another run",
                head.branch()
            );
            return Ok(Err(rejected(message)));
        }
        let branch = bounded::commit(repository, branch)?;
        let parents: Vec<&Commit<'_>> = match History::of(repository).merge_base(tip, branch.id())? {
            // It was merged and left behind.
            _ if unmerged.is_empty => vec![&base],
            Some(forked) if forked == tip => vec![&branch],
            _ => vec![&branch, &base],
        };
        let commit = commit::make(repository, run, &draft, tree, &parents)?;
        Ok(Ok(Decision::Push { commit, text }))
    }

    /// Whether a tree has the changes.
    fn is_in(&self, repository: &Repository, tree: &git2::Tree<'_>, draft: &Draft<'_>) -> Result<bool, git2::Error> {
        commit::holds(repository, tree, &self.run.owner, &self.changes, &draft.others)
    }

    /// The commit by which the changes came into the base, though it may have moved on from them.
    fn merged(&self, repository: &Repository, tip: Oid, draft: &Draft<'_>) -> Result<Option<Oid>, git2::Error> {
        let by_server = match &self.earlier {
            Some(PullState::Merged(Some(commit))) => Oid::from_str(commit).ok(),
            Some(PullState::Merged(None) | PullState::Open | PullState::Closed) | None => None,
        };
        let by_server = by_server.and_then(|commit| bounded::commit(repository, commit).ok());
        let by_server = match by_server {
            Some(of) if History::of(repository).leads_to(tip, of.id())? => Some(of),
            Some(_) | None => None,
        };
        let own = commit::commits_of(repository, tip, &self.run.uid)?;
        for commit in by_server.into_iter().chain(own) {
            if self.is_in(repository, &bounded::root(repository, &commit)?, draft)? {
                return Ok(Some(commit.id()));
            }
        }
        Ok(None)
    }

    fn unmerged(&self, repository: &Repository, tip: Oid, branch: Oid) -> Result<Unmerged, git2::Error> {
        let mut unmerged = Unmerged { is_empty: true, ..Unmerged::default() };
        for id in History::of(repository).beyond(tip, branch)?.into_iter().take(commit::HISTORY) {
            let commit = bounded::commit(repository, id)?;
            unmerged.is_empty = false;
            if !commit::is_of(&commit, &self.run.owner) {
                let by = String::from_utf8_lossy(commit.author().name_bytes()).into_owned();
                let by: String = by.chars().filter(|c| !c.is_control()).take(100).collect();
                unmerged.foreign.get_or_insert_with(|| format!("{:.10} by {by}", commit.id().to_string()));
                continue;
            }
            let uid = commit::trailer(&commit, commit::RUN).unwrap_or_default();
            unmerged.has_own |= uid == self.run.uid;
            let name = commit::trailer(&commit, commit::RUN_NAME).unwrap_or_else(|| uid.clone());
            unmerged.newest.get_or_insert((uid, name));
        }
        Ok(unmerged)
    }

    /// Whether the branch already has the changes and can be merged. Additions of others to this run's proposal stay.
    fn is_proposed(
        &self,
        repository: &Repository,
        base: &Commit<'_>,
        branch: Oid,
        draft: &Draft<'_>,
        unmerged: &Unmerged,
    ) -> Result<bool, git2::Error> {
        let Some(forked) = History::of(repository).merge_base(base.id(), branch)? else { return Ok(false) };
        let forked = bounded::root(repository, &bounded::commit(repository, forked)?)?;
        let now = bounded::root(repository, base)?;
        let (before, after) = (Paths::of(repository, &forked), Paths::of(repository, &now));
        for path in draft.files.keys() {
            let of = |paths: &Paths<'_>| paths.entry(path).map(|it| it.map(|entry| entry.id()));
            if of(&before)? != of(&after)? {
                return Ok(false);
            }
        }
        let there = bounded::root(repository, &bounded::commit(repository, branch)?)?;
        if unmerged.has_own && self.is_in(repository, &there, draft)? {
            return Ok(true);
        }
        let wanted = commit::draft(repository, &forked, &self.run, &self.changes)?.tree;
        Ok(wanted == Some(there.id()))
    }

    /// The title and description.
    fn text(&self, draft: &Draft<'_>) -> Text {
        let run = &*self.run;
        let mut body = format!(
            "Stoa proposes this for stack {} in workspace {}.\n\n",
            quoted(&commit::stack(&run.owner)),
            quoted(&run.owner.workspace)
        );
        for (what, text) in
            [("run", &run.name), ("asked for by", &run.requester), ("commit of the source", &run.source_commit)]
        {
            if !text.is_empty() {
                body.push_str(&format!("- {what} {}\n", quoted(text)));
            }
        }
        body.push('\n');
        for (path, change) in draft.files.iter().take(NAMED) {
            body.push_str(&format!("- {} {}\n", FileChange::word(*change), quoted(path)));
        }
        if draft.files.len() > NAMED {
            body.push_str(&format!("- and {} more\n", draft.files.len() - NAMED));
        }
        body.push_str(
            "\nMerging this deploys the change and ends the run; closing it ends the run without a change. Later \
             runs update this pull request. Stoa never overwrites commits of others on the branch.",
        );
        Text { title: draft.title(run), body: marked(&body, &marker(&run.owner)) }
    }
}

enum Decision {
    Done(Branched),
    /// The branch is to be moved here.
    Push {
        commit: Oid,
        text: Text,
    },
}
