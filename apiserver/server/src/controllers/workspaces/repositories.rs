//! Whether the repository of a workspace can be read and has the branch.
//!
//! Each question has a task of its own ([`stoa_controller::probes`]), so that no server that does not answer holds the controller.
//! Workspaces with the same repository, branch and Secret share a question and its answer. The function-runner lists the refs
//! of the repository and fetches nothing.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::StreamExt as _;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use stoa_controller::{
    object::ObjectKey,
    probes::{NamespaceSlots, ProbeSlots, Probes, Requeue},
    queue::Trigger,
};
use stoa_kinds::workspace::{self, referents::Referents};
use stoa_runs::{Services, StepError, runner, target};
use stoa_types::{Workspace, platform::GitOpsTarget, reason};
use tokio::time::Instant;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Code;

use super::{LOOK, SOON};

/// A question: the branch of a repository, with the credentials of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Repository {
    remote: String,
    branch: String,
    /// Namespace and name of the Secret.
    secret: Option<(Option<String>, String)>,
}

impl Repository {
    fn of(gitops: &GitOpsTarget) -> Self {
        let secret = gitops.secret_ref.as_ref().map(|secret| (secret.namespace.clone(), secret.name.clone()));
        Self { remote: gitops.repository.clone(), branch: gitops.branch.clone(), secret }
    }
}

#[derive(Clone, Debug)]
struct Answer {
    at: Instant,
    found: Found,
}

#[derive(Clone, Debug)]
enum Found {
    Branch,
    NoBranch,
    Unusable(&'static str, String),
}

impl Answer {
    /// How long the answer remains valid.
    fn left(&self) -> Duration {
        let term = if matches!(self.found, Found::Branch) { LOOK } else { SOON };
        term.saturating_sub(self.at.elapsed())
    }
}

#[derive(Debug)]
pub(super) struct Repositories {
    of: Mutex<HashMap<String, Repository>>,
    answers: Probes<Repository, Answer, StepError>,
    turns: ProbeSlots,
    requeue: Requeue,
}

impl Repositories {
    /// None yet, and the trigger that makes workspaces due once there is an answer about their repository.
    pub(super) fn new() -> (Arc<Self>, Trigger) {
        let (requeue, answered) = Requeue::new();
        let (of, answers, turns) = (Mutex::default(), Probes::default(), ProbeSlots::default());
        let repositories = Arc::new(Self { of, answers, turns, requeue });
        let all = Arc::downgrade(&repositories);
        let due = UnboundedReceiverStream::new(answered)
            .map(move |(_, asker)| Weak::upgrade(&all).map(|all| all.sharing(&asker)).unwrap_or_default());
        (repositories, Trigger::new(due.boxed()))
    }

    /// The workspaces that share the repository of one.
    fn sharing(&self, workspace: &str) -> Vec<ObjectKey> {
        let of = self.of.lock();
        let Some(repository) = of.get(workspace) else { return Vec::new() };
        let sharing = of.iter().filter(|(_, other)| *other == repository);
        sharing.map(|(name, _)| (String::new(), name.clone())).collect()
    }

    /// Forgets a workspace. A question that no other workspace has is dropped.
    pub(super) fn forget(&self, workspace: &str) {
        self.set(workspace, None);
    }

    fn set(&self, workspace: &str, repository: Option<&Repository>) {
        let mut of = self.of.lock();
        let before = match repository {
            Some(repository) => of.insert(workspace.to_owned(), repository.clone()),
            None => of.remove(workspace),
        };
        let left = before.filter(|before| Some(before) != repository && !of.values().any(|other| other == before));
        if let Some(left) = left {
            self.answers.forget(&left);
        }
    }

    /// The result about the repository of a workspace, and when to ask again; the last one stays meanwhile.
    pub(super) fn find(
        &self,
        services: &Services,
        workspace: &Workspace,
        gitops: &GitOpsTarget,
    ) -> (Referents, Duration) {
        let (name, repository) = (workspace.name_any(), Repository::of(gitops));
        self.set(&name, Some(&repository));
        let known = || workspace::known_referents(workspace, Some(workspace));
        let answer = match self.answer(services, &name, &repository, gitops) {
            Some(Ok(answer)) if answer.left().is_zero() => {
                self.answers.forget(&repository);
                self.answer(services, &name, &repository, gitops)
            }
            answer => answer,
        };
        match answer {
            // The answer makes the workspace due. This wait is for one whose asker was deleted meanwhile.
            None => match known() {
                known @ (Referents::Found | Referents::Unusable(..) | Referents::Unreachable(_)) => (known, SOON),
                Referents::Missing(_) | Referents::Unread(_) | Referents::Unseen => (Referents::Unseen, SOON),
            },
            Some(Ok(answer)) => (for_workspace(&answer.found, gitops), answer.left()),
            Some(Err(halt)) => match known() {
                known @ (Referents::Found | Referents::Unusable(..)) => (known, SOON),
                _ => (Referents::Unreachable(halt.into_reason(reason::SOURCE_UNREACHABLE).1), SOON),
            },
        }
    }

    fn answer(
        &self,
        services: &Services,
        workspace: &str,
        repository: &Repository,
        gitops: &GitOpsTarget,
    ) -> Option<Result<Answer, StepError>> {
        let question = || {
            let (services, gitops) = (services.clone(), gitops.clone());
            let turns = self.turns.of(server_of(&gitops.repository));
            async move {
                let found = Box::pin(ask(&services, &turns, &gitops)).await?;
                Ok(Answer { at: Instant::now(), found })
            }
        };
        let key = (String::new(), workspace.to_owned());
        self.answers.answer(repository.clone(), (&self.requeue, &key), question)
    }
}

/// The host of a repository's address: one that does not answer takes only its share of the turns.
fn server_of(remote: &str) -> &str {
    let rest = remote.split_once("://").map_or(remote, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    host.split(':').next().unwrap_or_default()
}

async fn ask(services: &Services, turns: &NamespaceSlots, gitops: &GitOpsTarget) -> Result<Found, StepError> {
    let credentials = match &gitops.secret_ref {
        None => HashMap::new(),
        Some(reference) => target::referenced_secret(services, "", reference).await?,
    };
    let source = stoa_proto::Source {
        provider: "Git".to_owned(),
        remote: gitops.repository.clone(),
        credentials,
        organization: String::new(),
    };
    let request = stoa_proto::LookRequest {
        source: Some(source),
        r#ref: gitops.branch.clone(),
        versions: Vec::new(),
        branch_only: true,
    };
    let Err(status) = turns.ask_repository(services.runner.look(request)).await? else { return Ok(Found::Branch) };
    if runner::lacks_version(&status) {
        return Ok(Found::NoBranch);
    }
    let reason = match status.code() {
        Code::NotFound => reason::REPOSITORY_NOT_FOUND,
        Code::InvalidArgument => reason::REPOSITORY_REFUSED,
        _ => return Err(runner::halt(&status, reason::SOURCE_UNREACHABLE)),
    };
    Ok(Found::Unusable(reason, runner::halt(&status, reason).into_reason(reason).1))
}

/// The meaning of an answer for a workspace.
fn for_workspace(found: &Found, gitops: &GitOpsTarget) -> Referents {
    match found {
        Found::Branch => Referents::Found,
        Found::NoBranch if gitops.create_branch => Referents::Found,
        Found::NoBranch => {
            let message = format!(
                "the repository has no branch {:?}; create the branch, or set spec.gitops.createBranch: true",
                gitops.branch
            );
            Referents::Unusable(reason::BRANCH_NOT_FOUND, message)
        }
        Found::Unusable(why, message) => Referents::Unusable(why, message.clone()),
    }
}

#[cfg(test)]
mod tests;
