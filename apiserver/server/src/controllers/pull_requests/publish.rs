//! Writes to pull requests: the statuses and comments of their plans, and the record of them in the Source.

use serde_json::json;
use sha2::{Digest as _, Sha256};
use stoa_controller::{conditions::set_condition, finalizers::update_status_of_same};
use stoa_engine::digest::{canonical_json, hex};
use stoa_machinery::ApiError;
use stoa_pulls::{CommentText, CommitStatus, PullError, PullRequest, StatusState};
use stoa_runs::Services;
use stoa_types::{
    Run, Source,
    common::condition,
    config::{PlannedPullRequest, PlansPhase},
    reason,
};

use super::{
    listing::interval,
    report::{self, Outcome, Plan, Texts},
    snapshot::{SourceSnapshot, Stop},
};
use crate::subresources::plan_text;

/// What a look came to, for the condition `PullRequestsPlanned`.
pub(super) type Reported = (bool, &'static str, String);

impl SourceSnapshot {
    /// Tells a pull request how its plans are, where that is news. The source is then as that left it.
    pub(super) async fn report(
        &self,
        source: &mut Source,
        pull: &PullRequest,
        commit: &str,
        plans: &[Plan],
        left_out: usize,
    ) -> Result<Result<(), Stop>, ApiError> {
        let number = i64::try_from(pull.number).unwrap_or(i64::MAX);
        let mut entries = source.status.iter().flat_map(|status| &status.pull_requests);
        let before = entries.find(|entry| entry.number == number).cloned().unwrap_or_default();
        let told = digest_of(source, commit, plans, left_out);
        if before.told == told {
            return Ok(Ok(()));
        }
        if let Some(why) = self.known.put_off(&self.key, pull.number, &told) {
            return Ok(Err(Stop::One(why)));
        }
        let phase = report::phase(plans);
        // Who has nothing to say says nothing, unless something else was said before.
        let comments = phase != PlansPhase::Pending && (!plans.is_empty() || before.commented);
        let text = if comments {
            match self.texts(plans).await? {
                Ok(texts) => Some(report::comment(&self.key.0, commit, plans, &texts, left_out)),
                Err(message) => {
                    let message = format!("pull request {number}: {message}");
                    return Ok(Err(Stop::One((reason::BACKEND_UNAVAILABLE, message))));
                }
            }
        } else {
            None
        };
        let mut entry = PlannedPullRequest {
            number,
            url: pull.url.clone(),
            commit: commit.to_owned(),
            phase,
            plans: i64::try_from(plans.len()).unwrap_or(i64::MAX),
            commented: before.commented || comments,
            comment: before.comment,
            told: String::new(),
        };
        // Whoever goes on after a crash has to know what there may be to take back.
        *source = note(&self.services, source, number, Some(&entry)).await?;
        let (state, description) = report::commit_status(plans);
        let said = CommitStatus { context: self.context(), state, description, url: None };
        let marker = self.marker();
        let before = before.comment.and_then(|id| u64::try_from(id).ok());
        let text = text.as_deref().map(|body| CommentText { marker: &marker, body, before });
        match self.say(pull, commit, &said, text.as_ref()).await {
            Ok(Some(id)) => entry.comment = i64::try_from(id).ok(),
            Ok(None) => {}
            Err(error) if error.is_retryable() => return Ok(Err(Stop::Server(error))),
            Err(error) => {
                let why = (reason::PULL_REQUESTS_NOT_REPORTED, format!("pull request {number}: {error}"));
                self.known.note_put_off(&self.key, pull.number, told, why.clone(), interval(source));
                return Ok(Err(Stop::One(why)));
            }
        }
        entry.told = told;
        *source = note(&self.services, source, number, Some(&entry)).await?;
        Ok(Ok(()))
    }

    async fn say(
        &self,
        pull: &PullRequest,
        commit: &str,
        said: &CommitStatus,
        text: Option<&CommentText<'_>>,
    ) -> Result<Option<u64>, PullError> {
        self.client.set_status(commit, said).await?;
        match text {
            Some(text) => self.client.comment(pull.number, text).await.map(Some),
            None => Ok(None),
        }
    }

    /// What is shown of the plans as people read them, or why they cannot be read now.
    async fn texts(&self, plans: &[Plan]) -> Result<Result<Texts, String>, ApiError> {
        let runs = self.services.lookup.api::<Run>()?;
        let mut texts = Texts::of(plans.len());
        for plan in plans {
            let run = match plan.outcome {
                Outcome::Made { .. } => runs.get_opt(&self.key.0, &plan.run).await?,
                Outcome::Pending | Outcome::Failed(_) | Outcome::Refused(_) => None,
            };
            let most = texts.most();
            let shown = match run {
                Some(run) => match plan_text(&self.services, &run, move |text| report::cut(text, most)).await {
                    Ok(shown) => Some(shown),
                    Err(error) if matches!(error.code(), 404 | 422) => None,
                    // One Backend that is away keeps no other plan from being told.
                    Err(error) => return Ok(Err(error.message().to_owned())),
                },
                None => None,
            };
            texts.add(&plan.outcome, shown);
        }
        Ok(Ok(texts))
    }

    /// Takes back that something is to be said of a commit, since nobody will.
    pub(super) async fn part_with(&self, pull: &PlannedPullRequest) -> Result<(), PullError> {
        if pull.phase != PlansPhase::Pending {
            return Ok(());
        }
        let description = "not planned, because the pull request is no longer open".to_owned();
        let said = CommitStatus { context: self.context(), state: StatusState::Error, description, url: None };
        match self.client.set_status(&pull.commit, &said).await {
            Err(error) if error.is_retryable() => Err(error),
            // Such as when the commit is gone.
            _ => Ok(()),
        }
    }

    fn context(&self) -> String {
        format!("stoa/{}/{}", self.key.0, self.key.1)
    }

    fn marker(&self) -> String {
        format!("stoa:plans:{}/{}", self.key.0, self.key.1)
    }
}

/// The digest of what a pull request is told. While plans are being made that is nothing of them.
fn digest_of(source: &Source, commit: &str, plans: &[Plan], left_out: usize) -> String {
    // Another server has been told nothing yet.
    let at = source.spec.pull_requests.as_ref().map(|at| (at.provider, &at.url));
    let server = json!([source.spec.remote, at]);
    let is_pending = report::phase(plans) == PlansPhase::Pending;
    let of_plan = |plan: &Plan| match &plan.outcome {
        _ if is_pending => json!([plan.run]),
        Outcome::Pending => json!([plan.run]),
        Outcome::Made { digest, .. } => json!([plan.run, digest]),
        Outcome::Failed(why) | Outcome::Refused(why) => json!([plan.run, null, why]),
    };
    let of: Vec<_> = plans.iter().map(of_plan).collect();
    hex(&Sha256::digest(canonical_json(
        &json!({"server": server, "commit": commit, "plans": of, "pending": is_pending, "more": left_out}),
    )))
}

/// Keeps what is known of a pull request, or that there is nothing any more.
pub(super) async fn note(
    services: &Services,
    source: &Source,
    number: i64,
    entry: Option<&PlannedPullRequest>,
) -> Result<Source, ApiError> {
    let known = source.status.iter().flat_map(|status| &status.pull_requests).find(|of| of.number == number);
    if known == entry {
        return Ok(source.clone());
    }
    write(services, source, |source| {
        // Nothing is known of them any more.
        if source.spec.pull_requests.is_none() {
            return;
        }
        let pulls = &mut source.status.get_or_insert_default().pull_requests;
        pulls.retain(|of| of.number != number);
        pulls.extend(entry.cloned());
        pulls.sort_by_key(|of| of.number);
    })
    .await
}

/// Keeps for which commit of the branch it is known which pull requests were merged.
pub(super) async fn note_known(services: &Services, source: &Source, commit: &str) -> Result<Source, ApiError> {
    let known = source.status.as_ref().and_then(|status| status.merges_known_at.as_deref());
    if known == Some(commit) {
        return Ok(source.clone());
    }
    write(services, source, |source| {
        source.status.get_or_insert_default().merges_known_at = Some(commit.to_owned());
    })
    .await
}

pub(super) async fn tell(
    services: &Services,
    source: &Source,
    (is_done, why, message): Reported,
) -> Result<(), ApiError> {
    let generation = source.metadata.generation;
    let set = |source: &mut Source| {
        let conditions = &mut source.status.get_or_insert_default().conditions;
        set_condition(conditions, reason::PULL_REQUESTS_PLANNED, is_done, why, message.clone(), generation)
    };
    if !set(&mut source.clone()) {
        return Ok(());
    }
    let tell = |source: &mut Source| {
        set(source);
    };
    write(services, source, tell).await.map(drop)
}

pub(super) async fn clear(services: &Services, source: &Source) -> Result<(), ApiError> {
    let is_told = |source: &Source| {
        let status = source.status.clone().unwrap_or_default();
        let is_planned = condition(&status.conditions, reason::PULL_REQUESTS_PLANNED).is_some();
        !status.pull_requests.is_empty() || status.merges_known_at.is_some() || is_planned
    };
    if !is_told(source) {
        return Ok(());
    }
    let clear = |source: &mut Source| {
        let status = source.status.get_or_insert_default();
        status.pull_requests.clear();
        status.merges_known_at = None;
        status.conditions.retain(|condition| condition.type_ != reason::PULL_REQUESTS_PLANNED);
    };
    write(services, source, clear).await.map(drop)
}

/// Writes the status of a source that is still the same object.
async fn write(
    services: &Services,
    source: &Source,
    change: impl FnMut(&mut Source) + Send,
) -> Result<Source, ApiError> {
    update_status_of_same(&services.lookup.api::<Source>()?, source, change).await
}
