//! The plans of a pull request: one run for each stack and workspace, whose names follow from what is planned.

use std::collections::HashMap;

use kube::ResourceExt as _;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use stoa_controller::{
    object::ObjectKey,
    queue::{self, FirstError},
};
use stoa_engine::digest::{canonical_json, hex};
use stoa_kinds::{
    pull_request::is_plan,
    run_status::status,
    trigger::{self, Deciders},
};
use stoa_machinery::ApiError;
use stoa_pulls::PullRequest;
use stoa_runs::Services;
use stoa_types::{
    Run, Source, Stack,
    common::condition,
    delivery::{Operation, RunEnd},
    labels, reason,
};

use super::{
    report::{Outcome, Plan},
    snapshot::SourceSnapshot,
};
use crate::controllers::{references, stacks};

/// As whom runs are created.
const COMPONENT: &str = "pull-request";
/// How many plans a pull request has.
const MOST_PLANS: usize = 50;
/// How many plans of a source are made at once: what else is run in its organization waits for no more.
pub(super) const UNDER_WAY: usize = 20;
/// How many of them one pull request has, so that those that are pushed to again and again keep no other from its turn.
pub(super) const UNDER_WAY_EACH: usize = 5;

/// The plans of a source that are there.
pub(super) struct There<'a> {
    runs: HashMap<String, &'a Run>,
    /// How many have not ended, by the number of their pull request.
    under_way: HashMap<String, usize>,
    /// Why one could not be made, which keeps no other from being made.
    pub(super) failed: FirstError,
}

impl<'a> There<'a> {
    pub(super) fn new(runs: &'a [Run]) -> Self {
        let mut under_way: HashMap<String, usize> = HashMap::new();
        for run in runs.iter().filter(|run| !status(run).phase.is_terminal()) {
            let number = run.labels().get(labels::PULL_REQUEST).cloned().unwrap_or_default();
            *under_way.entry(number).or_default() += 1;
        }
        Self { runs: runs.iter().map(|run| (run.name_any(), run)).collect(), under_way, failed: FirstError::default() }
    }

    /// Whether another plan of a pull request may be made now.
    fn has_room(&self, number: &str) -> bool {
        let each = self.under_way.get(number).copied().unwrap_or_default();
        each < UNDER_WAY_EACH && self.under_way.values().sum::<usize>() < UNDER_WAY
    }
}

impl SourceSnapshot {
    /// The plans of a pull request, whose runs are there after this as far as there is room, and how many are left out.
    pub(super) async fn plans(
        &self,
        source: &Source,
        pull: &PullRequest,
        commit: &str,
        stacks: &[&Stack],
        there: &mut There<'_>,
    ) -> Result<(Vec<Plan>, usize), ApiError> {
        let number = pull.number.to_string();
        let all: usize = stacks.iter().map(|stack| stack.spec.workspaces.len()).sum();
        let each = stacks.iter().flat_map(|stack| stack.spec.workspaces.iter().map(|workspace| (*stack, workspace)));
        let mut plans = Vec::new();
        let each: Vec<(&Stack, &String)> = each.take(MOST_PLANS).collect();
        for (stack, workspace) in each {
            let run = run_of(source, pull, commit, stack, workspace);
            let name = run.name_any();
            let outcome = match there.runs.get(&name).copied() {
                Some(run) => outcome(run),
                None if there.has_room(&number) => {
                    let created = self.create(pull, stack, &run).await;
                    let outcome = there.failed.note(created).unwrap_or(Outcome::Pending);
                    if outcome == Outcome::Pending {
                        *there.under_way.entry(number.clone()).or_default() += 1;
                    }
                    outcome
                }
                // Its turn comes when another ends, which makes the source due.
                None => Outcome::Pending,
            };
            let (stack, workspace) = (stack.name_any(), workspace.clone());
            plans.push(Plan { stack, workspace, run: name, outcome });
        }
        Ok((plans, all.saturating_sub(MOST_PLANS)))
    }

    async fn create(&self, pull: &PullRequest, stack: &Stack, run: &Run) -> Result<Outcome, ApiError> {
        let mut context = trigger::on_behalf_of(COMPONENT, Deciders::of(&self.services.lookup, stack).await?.last);
        if !pull.url.is_empty() {
            context.user.extra.insert(labels::PULL_REQUEST.to_owned(), vec![pull.url.clone()]);
        }
        let runs = self.services.lookup.api::<Run>()?;
        match runs.clone().with_context(context).create(run).await {
            Ok(_) => Ok(Outcome::Pending),
            // An earlier try made it, unless somebody took the name.
            Err(error) if error.is("AlreadyExists") => {
                let there = runs.get_opt(&self.key.0, &run.name_any()).await?;
                Ok(match there.filter(is_plan) {
                    Some(there) => outcome(&there),
                    None => Outcome::Refused(error.message().to_owned()),
                })
            }
            // Others do not wait for it.
            Err(error) if queue::is_refusal(&error) => Ok(Outcome::Refused(error.message().to_owned())),
            Err(error) => Err(error),
        }
    }
}

/// The run that makes a plan: nothing else makes one of its name.
fn run_of(source: &Source, pull: &PullRequest, commit: &str, stack: &Stack, workspace: &str) -> Run {
    let of = json!({
        "source": source.uid(), "pull": pull.number, "commit": commit, "stack": stack.uid(), "workspace": workspace,
        "path": stack.spec.path, "stackName": stack.spec.stack_name, "generator": stack.spec.generator,
    });
    let digest = hex(&Sha256::digest(canonical_json(&of)));
    let mut run = stacks::run_of(stack, workspace, Operation::Preview);
    run.spec.version = Some(commit.to_owned());
    run.metadata.generate_name = None;
    run.metadata.name = Some(format!("{}-pr{}-{}", stack.name_any(), pull.number, &digest[..10]));
    run.labels_mut().insert(labels::SOURCE.to_owned(), source.name_any());
    run.labels_mut().insert(labels::PULL_REQUEST.to_owned(), pull.number.to_string());
    run
}

fn outcome(run: &Run) -> Outcome {
    let now = status(run);
    let failed = condition(&now.conditions, reason::FAILED).map(|failed| failed.message.clone());
    match now.phase.end() {
        // It is made anew once it is gone.
        _ if run.metadata.deletion_timestamp.is_some() => Outcome::Pending,
        Some(RunEnd::Succeeded) => match now.plan {
            Some(plan) => Outcome::Made { digest: plan.digest, summary: plan.summary },
            None => Outcome::Failed("the run made no plan".to_owned()),
        },
        Some(RunEnd::Failed) => Outcome::Failed(failed.unwrap_or_else(|| "the run failed".to_owned())),
        Some(RunEnd::Canceled) => Outcome::Failed(failed.unwrap_or_else(|| "the run was cancelled".to_owned())),
        None => Outcome::Pending,
    }
}

pub(super) async fn plans_of(services: &Services, (namespace, name): &ObjectKey) -> Result<Vec<Run>, ApiError> {
    let selector = format!("{}={name},{}", labels::SOURCE, labels::PULL_REQUEST);
    let runs = services.lookup.api::<Run>()?.list(Some(namespace), &selector).await?;
    Ok(runs.into_iter().filter(is_plan).collect())
}

/// Deletes runs, which cancels them first, but those whose plans somebody carries out who named them; whether any of them stays.
pub(super) async fn remove(services: &Services, runs: impl Iterator<Item = &Run>) -> Result<bool, ApiError> {
    let api = services.lookup.api::<Run>()?;
    let runs: Vec<&Run> = runs.filter(|run| run.metadata.deletion_timestamp.is_none()).collect();
    let mut is_any_needed = false;
    for batch in runs.chunks(references::BATCH) {
        let needed = references::to_be_carried_out(&services.lookup, batch).await?;
        for key in batch.iter().map(|run| queue::key_of(*run)) {
            if needed.contains(&key) {
                is_any_needed = true;
                continue;
            }
            queue::unless_gone(api.delete(&key.0, &key.1, &Default::default()).await)?;
        }
    }
    Ok(is_any_needed)
}
