//! Whether the repository of a workspace can be read and has the branch.
//!
//! Each question has a task of its own ([`stoa_controller::probes`]), so that no server that does not answer holds the controller.
//! Workspaces with the same repository, branch and Secret share a question and its answer. The function-runner lists the refs
//! of the repository and fetches nothing.

use std::{collections::HashMap, time::Duration};

use stoa_controller::{
    probes::{NamespaceSlots, Questions},
    queue,
};
use stoa_kinds::workspace::{self, referents::Referents};
use stoa_runs::{Services, StepError, runner, target};
use stoa_types::{Workspace, platform::GitOpsTarget, reason};
use tokio::time::Instant;
use tonic::Code;

use super::{LOOK, SOON};

/// A question: the branch of a repository, with the credentials of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Repository {
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
pub(super) struct Answer {
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

/// The questions of Workspaces.
pub(super) type Repositories = Questions<Repository, Answer, StepError>;

/// The result about the repository of a workspace, and when to ask again; the last one stays meanwhile.
pub(super) fn find(
    repositories: &Repositories,
    services: &Services,
    workspace: &Workspace,
    gitops: &GitOpsTarget,
) -> (Referents, Duration) {
    let (key, repository) = (queue::key_of(workspace), Repository::of(gitops));
    repositories.set(&key, [repository.clone()].into());
    let known = || workspace::known_referents(workspace, Some(workspace));
    let answer = || {
        repositories.answer(&key, &repository, server_of(&gitops.repository), |turns| {
            let (services, gitops) = (services.clone(), gitops.clone());
            async move {
                let found = Box::pin(ask(&services, &turns, &gitops)).await?;
                Ok(Answer { at: Instant::now(), found })
            }
        })
    };
    let answer = match answer() {
        Some(Ok(old)) if old.left().is_zero() => {
            repositories.repeat(&repository);
            answer()
        }
        answer => answer,
    };
    match answer {
        // The answer makes the workspace due. This wait is for one whose question another workspace dropped meanwhile.
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
        ..stoa_proto::Source::default()
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
