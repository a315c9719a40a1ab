//! Pull requests of sources: shows on each what it would change.
//!
//! The plans of a pull request are Runs, one for each stack and workspace, whose names follow from what is planned: the
//! pull request, its commit, and how the stack is rendered. So whoever goes on after a crash creates the same again, and
//! finds them. They are deleted once they are of an older commit, the pull request is closed, or a run has followed its merge,
//! but as long as somebody carries them out who named them.
//! Only so many are made at once ([`plans::There::has_room`]). What was told of them is in the source's status, as a digest, so
//! that nothing is told twice.
//!
//! [`listing`] asks the server which pull requests there are, [`snapshot`] finds out what they change, [`plans`] makes the runs,
//! and [`merges`] keeps them until the merge is deployed. Apart from that [`reporter`] has [`publish`] tell of them what [`report`]
//! puts in words. Both wait for the turn of the source's namespace (`stoa_controller::probes`): a dozen namespaces whose servers do not
//! answer can keep others from looking for as long as these are waited for, and some forty from telling.

mod listing;
mod merges;
mod plans;
mod publish;
mod report;
mod reporter;
mod snapshot;

use std::time::Duration;

use serde::Deserialize;
use stoa_controller::{
    index::{GATHER, Member},
    object::ObjectKey,
    probes::{MANY_AT_ONCE, NamespaceSlots, ProbeSlots, Requeue},
    queue::{self, Trigger},
};
use stoa_kinds::{readiness, run_view::OfRunMetadata};
use stoa_machinery::ApiError;
use stoa_pulls::{PullError, PullRequest};
use stoa_runs::Services;
use stoa_types::{
    Project, Run, Source, Stack,
    config::{ProjectSpec, PullRequestPlans, StackSpec},
    delivery::MergedPlan,
    labels, reason,
};
use tokio_util::sync::CancellationToken;

use self::{
    listing::{Due, Known},
    plans::{plans_of, remove},
    publish::{Reported, clear, tell},
    snapshot::{SourceSnapshot, Stop},
};

/// How many pull requests of a source are planned: the latest.
const MOST: usize = 100;
/// How many sources are looked at at once: all, since a look waits for the turn of its namespace.
const AT_ONCE: usize = usize::MAX;
/// How long after the last look it is looked again whether plans are still carried out that nobody else needs.
const NEEDED: Duration = Duration::from_mins(1);
/// How long to wait for what may pass by itself.
const AGAIN: Duration = Duration::from_secs(10);

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let Ok(registry) = services.lookup.registry() else { return };
    let lookup = services.lookup.clone();
    let triggers = vec![
        // Not what is written here.
        Trigger::on_change(&registry.api::<Source>(), |source: &Member<serde_json::Value, OfSourceStatus>| {
            vec![source.key()]
        }),
        Trigger::on_part(&registry.api::<Run>(), |run: &OfRun| run.sources()).within(GATHER),
        Trigger::on_change(&registry.api::<Project>(), |project: &Member<ProjectSpec, serde::de::IgnoredAny>| {
            vec![(project.namespace().to_owned(), project.spec.source.name.clone())]
        })
        .within(GATHER),
        Trigger::on_change(&registry.api::<Stack>(), move |stack: &Member<StackSpec, serde::de::IgnoredAny>| {
            let source = readiness::source_of(&lookup, stack.namespace(), &stack.spec.project);
            source.map(|source| (stack.namespace().to_owned(), source)).into_iter().collect()
        })
        .within(GATHER),
    ];
    let (requeue, poked) = Requeue::triggering();
    let known = Known::with(requeue);
    // Who tells takes no turn of those who look, and waits for nobody but the server, with no more than a comment in memory. A look
    // has all plans of its source there, and waits for function-runners, too.
    let (looks, tales) = (ProbeSlots::default(), ProbeSlots::new(MANY_AT_ONCE));
    let look = |key: ObjectKey| look(services.clone(), known.clone(), looks.of(&key.0), key);
    let tell = |key: ObjectKey| reporter::look(services.clone(), known.clone(), tales.of(&key.0), key);
    tokio::select! {
        () = queue::drive_some(services.queues.of("pull-requests"), AT_ONCE, triggers, end.clone(), look) => {}
        () = queue::drive_some(services.queues.of("pull-requests-told"), AT_ONCE, vec![poked], end, tell) => {}
    }
}

/// What of a source's status there is something to do for.
#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct OfSourceStatus {
    observed_commit: Option<String>,
    last_webhook_time: Option<String>,
}

/// What of a run says of which source it is a plan, or of which it follows merges.
#[derive(Deserialize)]
struct OfRun {
    metadata: OfRunMetadata,
    #[serde(default)]
    status: OfRunStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfRunStatus {
    #[serde(default)]
    merged_plans: Vec<MergedPlan>,
}

impl OfRun {
    fn sources(&self) -> Vec<ObjectKey> {
        let merged = self.status.merged_plans.first().map(|plan| &plan.source);
        let named = self.metadata.labels.get(labels::SOURCE).into_iter().chain(merged);
        named.map(|source| (self.metadata.namespace.clone(), source.clone())).collect()
    }
}

async fn look(
    services: Services,
    known: Known,
    turns: NamespaceSlots,
    key: ObjectKey,
) -> Result<Option<Duration>, ApiError> {
    let _turn = match read(&services, &key).await?.1 {
        Some(_) => Some(turns.take().await),
        None => None,
    };
    // As it is by then.
    let (source, plans) = match read(&services, &key).await? {
        (Some(source), Some(plans)) => (source, plans),
        (found, _) => {
            known.forget(&key);
            let is_any_needed = remove(&services, plans_of(&services, &key).await?.iter()).await?;
            if let Some(source) = &found {
                clear(&services, source).await?;
            }
            return Ok(is_any_needed.then_some(NEEDED));
        }
    };
    let client = match known.client(&services, &key, &source, &plans).await {
        Ok(client) => client,
        Err((why, message)) => {
            conclude(&services, &known, &key, &source, (false, why, message)).await?;
            return Ok(Some(AGAIN));
        }
    };
    let open = match known.pulls(&key, &source, &*client).await {
        Ok(Due::Later(left)) => return Ok(Some(left)),
        Ok(Due::Now(open)) => open,
        Err(error) => return refused(&services, &known, &key, &source, &error).await.map(Some),
    };
    let (pulls, left_out) = wanted(&open, plans.allow_forks);
    let world = SourceSnapshot { services: services.clone(), known: known.clone(), key: key.clone(), client };
    match world.bring_about(source.clone(), &pulls).await? {
        Ok(planned) => {
            let message = summary(open.len(), planned, &left_out);
            conclude(&services, &known, &key, &source, (true, reason::AVAILABLE, message)).await?;
            Ok(Some(known.succeeded(&key, &source)))
        }
        Err(Stop::Server(error)) => refused(&services, &known, &key, &source, &error).await.map(Some),
        Err(Stop::One((why, message))) => {
            conclude(&services, &known, &key, &source, (false, why, message)).await?;
            Ok(Some(known.succeeded(&key, &source).max(AGAIN)))
        }
        Err(Stop::Runner(message)) => {
            conclude(&services, &known, &key, &source, (false, reason::SOURCE_UNREACHABLE, message)).await?;
            Ok(Some(AGAIN))
        }
        Err(Stop::Time) => Ok(Some(Duration::ZERO)),
    }
}

/// A source that is to stay, and how its pull requests are planned, if they are.
async fn read(
    services: &Services,
    (namespace, name): &ObjectKey,
) -> Result<(Option<Source>, Option<PullRequestPlans>), ApiError> {
    let found = services.lookup.api::<Source>()?.get_opt(namespace, name).await?;
    let found = found.filter(|source| source.metadata.deletion_timestamp.is_none());
    let plans = found.as_ref().and_then(|source| source.spec.pull_requests.clone());
    Ok((found, plans))
}

/// Says what a look came to.
async fn conclude(
    services: &Services,
    known: &Known,
    key: &ObjectKey,
    source: &Source,
    told: Reported,
) -> Result<(), ApiError> {
    tell(services, source, known.conclude(key, told)).await
}

/// The server does not do what it is asked: says so, and when to go on.
async fn refused(
    services: &Services,
    known: &Known,
    key: &ObjectKey,
    source: &Source,
    error: &PullError,
) -> Result<Duration, ApiError> {
    let wait = known.failed(key, source, error);
    conclude(services, known, key, source, (false, reason::PULL_REQUESTS_UNAVAILABLE, error.to_string())).await?;
    Ok(wait)
}

#[derive(Debug, Default, PartialEq)]
struct LeftOut {
    forks: usize,
    empty: usize,
    too_many: usize,
}

fn wanted(open: &[PullRequest], allow_forks: bool) -> (Vec<(PullRequest, String)>, LeftOut) {
    let mut left_out = LeftOut::default();
    let mut wanted = Vec::new();
    for pull in open {
        match &pull.head_commit {
            _ if pull.is_fork && !allow_forks => left_out.forks += 1,
            Some(commit) => wanted.push((pull.clone(), commit.to_ascii_lowercase())),
            None => left_out.empty += 1,
        }
    }
    wanted.sort_by_key(|(pull, _)| std::cmp::Reverse(pull.number));
    left_out.too_many = wanted.len().saturating_sub(MOST);
    wanted.truncate(MOST);
    (wanted, left_out)
}

/// How many of all that are open change something, and why others are not looked at.
fn summary(open: usize, planned: usize, left_out: &LeftOut) -> String {
    let mut message = format!("{planned} of {open} open pull requests change stacks");
    if left_out.forks > 0 {
        message.push_str(&format!("; {} from forks are left out", left_out.forks));
    }
    if left_out.empty > 0 {
        message.push_str(&format!("; {} are left out because their branches do not exist", left_out.empty));
    }
    if left_out.too_many > 0 {
        message
            .push_str(&format!("; {} more are left out because only the latest {MOST} are planned", left_out.too_many));
    }
    message
}

#[cfg(test)]
mod tests;
