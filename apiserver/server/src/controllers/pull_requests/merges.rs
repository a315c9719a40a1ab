//! Pull requests that are not open any more: which of them were merged, and what became of their plans.
//!
//! The plans of a merged pull request stay until a run that its stack's trigger started has followed the merge: that run
//! compares its own plan with them (`merged`, a step of the Run). Where nothing follows, as when somebody takes the change back at
//! once, they stay for [`HOLD`].

use std::{
    collections::{BTreeSet, HashMap, HashSet, hash_map::Entry},
    time::Duration,
};

use kube::ResourceExt as _;
use stoa_controller::{finalizers::update_status_of_same, queue};
use stoa_kinds::{
    pull_request::{has_followed, is_following},
    run_status::status,
    trigger::{self, is_triggered},
};
use stoa_machinery::ApiError;
use stoa_pulls::{CommentText, PullError, PullRequest, PullState};
use stoa_types::{
    Run, Source, Stack,
    common::condition,
    delivery::{Operation, RunPhase},
    labels, reason,
};
use tokio::time::Instant;

use super::{
    listing::branch,
    report,
    snapshot::{SourceSnapshot, Stop},
};

/// How long the plans of a merged pull request stay that no run follows.
const HOLD: Duration = Duration::from_secs(3600);

/// What is known of pull requests that are not open any more.
#[derive(Debug, Default)]
pub(super) struct Merges {
    pub(super) kept: HashSet<String>,
    held: Vec<Run>,
    /// Why it could not be found out of all.
    pub(super) refused: Option<PullError>,
    /// Whether some are left to be asked for in another look.
    pub(super) is_partial: bool,
}

/// Something to say under a pull request.
#[derive(Debug)]
pub(super) struct Followed {
    number: u64,
    /// The uid of the plan's run, and of the run that follows it.
    uids: [String; 2],
    marker: String,
    text: String,
}

fn is_made(run: &Run) -> bool {
    let status = status(run);
    run.metadata.deletion_timestamp.is_none() && status.phase == RunPhase::Succeeded && status.plan.is_some()
}

fn number_of(run: &Run) -> Option<u64> {
    run.labels().get(labels::PULL_REQUEST)?.parse().ok()
}

impl SourceSnapshot {
    /// Finds out which of the pull requests that are not listed were merged. None is asked for after `until`, and the next look
    /// goes on: of those that were asked for it is known from then on, or their plans go.
    pub(super) async fn merges(
        &self,
        source: &Source,
        runs: &[Run],
        pulls: &[(PullRequest, String)],
        until: Instant,
    ) -> Result<Merges, ApiError> {
        let mut merges = Merges::default();
        let is_listed = |number: &u64| pulls.iter().any(|(pull, _)| pull.number == *number);
        let numbers = runs.iter().filter(|run| is_made(run)).filter_map(number_of);
        let numbers: BTreeSet<u64> = numbers.filter(|number| !is_listed(number)).collect();
        for number in numbers {
            let its = || runs.iter().filter(|run| number_of(run) == Some(number) && is_made(run));
            if !its().any(|run| status(run).merged) {
                if merges.refused.is_none() && Instant::now() >= until {
                    merges.kept.extend(its().map(Run::name_any));
                    merges.is_partial = true;
                    continue;
                }
                let pull = match &merges.refused {
                    None => self.client.get(number).await,
                    Some(error) => Err(error.clone()),
                };
                match pull {
                    // It may have been pointed at another branch since it was planned.
                    Ok(pull) if matches!(pull.state, PullState::Merged(_)) && pull.goes_to(branch(source)) => {}
                    Ok(_) => continue,
                    Err(error) if error.is_retryable() => {
                        merges.kept.extend(its().map(Run::name_any));
                        merges.refused = Some(error);
                        continue;
                    }
                    Err(_) => continue,
                }
            }
            self.hold(&mut merges, runs, number).await?;
        }
        Ok(merges)
    }

    /// Notes that a pull request is merged, so that its plans stay.
    pub(super) async fn hold(&self, merges: &mut Merges, runs: &[Run], number: u64) -> Result<(), ApiError> {
        for run in runs.iter().filter(|run| number_of(run) == Some(number) && is_made(run)) {
            if !status(run).merged {
                let merged = |now: &mut Run| now.status.get_or_insert_default().merged = true;
                let written = update_status_of_same(&self.services.lookup.api::<Run>()?, run, merged).await;
                if queue::unless_gone(written)?.is_none() {
                    continue;
                }
            }
            merges.held.push(run.clone());
        }
        Ok(())
    }

    /// Keeps the plans of merged pull requests that a run may still follow; the reports about followed ones.
    pub(super) async fn followed(
        &self,
        merges: &mut Merges,
        stacks: &[(Stack, String)],
    ) -> Result<Vec<Followed>, ApiError> {
        let (mut told, mut by_stack) = (Vec::new(), HashMap::new());
        let held = std::mem::take(&mut merges.held);
        for plan in &held {
            let is_deployed = |(stack, _): &(Stack, String)| {
                stack.name_any() == plan.spec.stack
                    && stack.metadata.uid == status(plan).stack_uid
                    && trigger::operation(stack.spec.trigger) == Some(Operation::Apply)
                    && stack.spec.workspaces.contains(&plan.spec.workspace)
            };
            if !stacks.iter().any(is_deployed) {
                continue;
            }
            let runs: &Vec<Run> = match by_stack.entry(&plan.spec.stack) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => {
                    let of_stack = format!("{}={}", labels::STACK, plan.spec.stack);
                    unknown.insert(self.services.lookup.api::<Run>()?.list(Some(&self.key.0), &of_stack).await?)
                }
            };
            let mut following: Vec<&Run> = runs.iter().filter(|run| is_following(run, plan)).collect();
            following.sort_by_key(|run| (run.creation_timestamp(), run.name_any()));
            if let Some(news) = following.last().and_then(|run| self.news(plan, run)) {
                told.push(news);
                merges.kept.insert(plan.name_any());
            } else if !runs.iter().any(|run| has_followed(run, plan)) {
                let is_under_way = |run: &Run| {
                    is_triggered(run) && run.spec.workspace == plan.spec.workspace && !status(run).phase.is_terminal()
                };
                let held_for = self.known.held_for(&self.key, &plan.uid().unwrap_or_default());
                if held_for < HOLD || runs.iter().any(is_under_way) {
                    merges.kept.insert(plan.name_any());
                }
            }
        }
        self.known.retain_held(&self.key, |uid| held.iter().any(|plan| plan.uid().as_deref() == Some(uid)));
        Ok(told)
    }

    /// What a pull request is to be told of a run that makes another plan than the one that it was shown.
    fn news(&self, plan: &Run, run: &Run) -> Option<Followed> {
        let state = status(run);
        let told = condition(&state.conditions, reason::MERGED_PLAN_HOLDS).filter(|told| told.status == "False")?;
        let uids = [plan.uid()?, run.uid()?];
        if self.known.is_told(&self.key, &uids) {
            return None;
        }
        let (stack, workspace) = (&plan.spec.stack, &plan.spec.workspace);
        Some(Followed {
            number: number_of(plan)?,
            uids,
            marker: format!("stoa:merged:{}/{}:{stack}/{workspace}", self.key.0, self.key.1),
            text: report::followed(run, told.reason == reason::PLAN_STALE, &told.message),
        })
    }

    /// Tells a merged pull request what became of its plan. What the server does not take is not told again.
    pub(super) async fn tell_followed(&self, news: &Followed) -> Result<(), Stop> {
        let Followed { number, uids, marker, text } = news;
        if self.known.is_told(&self.key, uids) {
            return Ok(());
        }
        let told = self.client.comment(*number, &CommentText { marker, body: text, before: None }).await;
        match told {
            Err(error) if error.is_retryable() => return Err(Stop::Server(error)),
            Ok(_) | Err(_) => self.known.note_told(&self.key, uids.clone()),
        }
        told.map(drop)
            .map_err(|error| Stop::One((reason::PULL_REQUESTS_NOT_REPORTED, format!("pull request {number}: {error}"))))
    }
}
