//! Pull requests of sources: shows on each what it would change.
//!
//! The plans of a pull request are Runs, one for each stack and workspace, whose names follow from what is planned: the
//! pull request, its commit, and how the stack is rendered. So whoever goes on after a crash creates the same again, and
//! finds them. They are deleted once they are of an older commit or the pull request is not open any more. Only so many are
//! made at once ([`There::has_room`]). What was told of them is in the source's status, as a digest, so that nothing is
//! told twice.
//!
//! [`listing`] asks the server which pull requests there are; [`report`] says what they are told.

mod listing;
mod report;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use kube::ResourceExt as _;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use stoa_engine::{
    digest::{canonical_json, hex},
    render::{Colour, render},
};
use stoa_machinery::{ApiError, RequestContext, registry::ListOptions};
use stoa_pulls::{CommitStatus, PullError, PullRequest, PullRequests, StatusState};
use stoa_types::{
    Project, Run, Source, Stack,
    common::condition,
    config::{PlannedPullRequest, PlansPhase},
    delivery::{Operation, RunPhase},
    labels, reason,
};
use tokio_util::sync::CancellationToken;

use self::{
    listing::{Due, Known, Refusal},
    report::{Outcome, Plan},
};
use super::{
    groups::{GATHER, Member},
    queue::{self, ObjectKey, Trigger},
    stacks, triggers,
};
use crate::{
    kinds::{check::set_condition, trigger},
    runs::{Halt, Services, readiness, runner, status, target},
    subresources::kept_plan,
};

/// As whom runs are created.
const COMPONENT: &str = "pull-request";
/// The user that this is.
pub(crate) const USER: &str = "system:stoa:pull-request";
/// How many pull requests of a source are planned: the latest.
const MOST: usize = 100;
/// How many plans a pull request has.
const MOST_PLANS: usize = 50;
/// How many plans of a source are made at once: what else is run in its organization waits for no more.
const UNDER_WAY: usize = 20;
/// How many of them one pull request has, so that those that are pushed to again and again keep no other from its turn.
const UNDER_WAY_EACH: usize = 5;
/// How many sources are looked at at once.
const AT_ONCE: usize = 4;
/// How long to wait for what may pass by itself.
const AGAIN: Duration = Duration::from_secs(10);
/// How long the comparison of two commits may take.
const COMPARE: Duration = Duration::from_secs(60);

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let (Ok(sources), Ok(runs), Ok(projects), Ok(stacks)) = (
        services.lookup.api::<Source>(),
        services.lookup.api::<Run>(),
        services.lookup.api::<Project>(),
        services.lookup.api::<Stack>(),
    ) else {
        return;
    };
    let lookup = services.lookup.clone();
    let triggers = vec![
        // Not what is written here.
        Trigger::on_change(&sources, |source: &Member<serde_json::Value, OfSourceStatus>| vec![source.key()]),
        Trigger::on_part(&runs, |run: &OfRun| run.source().into_iter().collect()).within(GATHER),
        Trigger::on_change(&projects, |project: &Member<readiness::OfProjectSpec, serde::de::IgnoredAny>| {
            vec![(project.namespace().to_owned(), project.spec.source.name.clone())]
        })
        .within(GATHER),
        Trigger::on_change(&stacks, move |stack: &Member<OfStackSpec, serde::de::IgnoredAny>| {
            let source = readiness::source_of(&lookup, stack.namespace(), &stack.spec.project);
            source.map(|source| (stack.namespace().to_owned(), source)).into_iter().collect()
        })
        .within(GATHER),
    ];
    let known = Known::default();
    let look = |key| look(services.clone(), known.clone(), key);
    queue::drive_some("pull-requests", AT_ONCE, triggers, end, look).await;
}

/// What of a source's status there is something to do for.
#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct OfSourceStatus {
    observed_commit: Option<String>,
    last_webhook_time: Option<String>,
}

/// What of a stack decides about what is planned.
#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct OfStackSpec {
    project: String,
    #[serde(default)]
    trigger: stoa_types::config::Trigger,
    #[serde(default)]
    workspaces: Vec<String>,
    #[serde(default)]
    path: String,
    desired_version: String,
}

/// What of a run says of which source it is a plan.
#[derive(Deserialize)]
struct OfRun {
    metadata: OfRunMetadata,
}

#[derive(Deserialize)]
struct OfRunMetadata {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

impl OfRun {
    fn source(&self) -> Option<ObjectKey> {
        let source = self.metadata.labels.get(labels::SOURCE)?;
        Some((self.metadata.namespace.clone(), source.clone()))
    }
}

/// Whether a run is a plan of a pull request. Labels alone are anybody's.
pub(crate) fn is_plan(run: &Run) -> bool {
    run.labels().contains_key(labels::PULL_REQUEST) && status(run).requester.username == USER
}

/// What a look came to, for the condition `PullRequestsPlanned`.
type Told = (bool, &'static str, String);

async fn look(services: Services, known: Known, key: ObjectKey) -> Result<Option<Duration>, ApiError> {
    let found = services.lookup.api::<Source>()?.get_opt(&key.0, &key.1).await?;
    let found = found.filter(|source| source.metadata.deletion_timestamp.is_none());
    let plans = found.as_ref().and_then(|source| source.spec.pull_requests.clone());
    let (Some(source), Some(plans)) = (&found, plans) else {
        known.forget(&key);
        remove(&services, plans_of(&services, &key).await?.iter()).await?;
        if let Some(source) = &found {
            clear(&services, source).await?;
        }
        return Ok(None);
    };
    let client = match known.client(&services, &key, source, &plans).await {
        Ok(client) => client,
        Err((why, message)) => {
            tell(&services, source, (false, why, message)).await?;
            return Ok(Some(AGAIN));
        }
    };
    let (pulls, left_out) = match known.pulls(&key, source, &*client).await {
        Ok(Due::Later(left)) => return Ok(Some(left)),
        Ok(Due::Now(pulls)) => wanted(&pulls, plans.allow_forks),
        Err(error) => return refused(&services, &known, &key, source, &error).await.map(Some),
    };
    let world = World { services: services.clone(), known: known.clone(), key: key.clone(), client };
    match world.bring_about(source.clone(), &pulls).await? {
        Ok(planned) => {
            let message = summary(pulls.len(), planned, &left_out);
            tell(&services, source, (true, reason::AVAILABLE, message)).await?;
            Ok(Some(known.succeeded(&key, source)))
        }
        Err(Stop::Server(error)) => refused(&services, &known, &key, source, &error).await.map(Some),
        Err(Stop::One((why, message))) => {
            tell(&services, source, (false, why, message)).await?;
            Ok(Some(known.succeeded(&key, source).max(AGAIN)))
        }
        Err(Stop::Runner(message)) => {
            tell(&services, source, (false, reason::SOURCE_UNREACHABLE, message)).await?;
            Ok(Some(AGAIN))
        }
    }
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
    tell(services, source, (false, reason::PULL_REQUESTS_UNAVAILABLE, error.to_string())).await?;
    Ok(wait)
}

/// What is not planned.
#[derive(Debug, Default, PartialEq)]
struct LeftOut {
    forks: usize,
    too_many: usize,
}

/// The pull requests that are planned, latest first, with their commits.
fn wanted(pulls: &[PullRequest], allow_forks: bool) -> (Vec<(PullRequest, String)>, LeftOut) {
    let mut left_out = LeftOut::default();
    let mut wanted = Vec::new();
    for pull in pulls {
        match &pull.head_commit {
            _ if pull.is_fork && !allow_forks => left_out.forks += 1,
            Some(commit) => wanted.push((pull.clone(), commit.to_ascii_lowercase())),
            // There is nothing that it would bring in.
            None => {}
        }
    }
    wanted.sort_by_key(|(pull, _)| std::cmp::Reverse(pull.number));
    left_out.too_many = wanted.len().saturating_sub(MOST);
    wanted.truncate(MOST);
    (wanted, left_out)
}

fn summary(open: usize, planned: usize, left_out: &LeftOut) -> String {
    let mut message = format!("of {open} open pull requests {planned} change stacks");
    if left_out.forks > 0 {
        message.push_str(&format!("; {} of forks are left out", left_out.forks));
    }
    if left_out.too_many > 0 {
        message.push_str(&format!("; {} more are left out, since the latest {MOST} are planned", left_out.too_many));
    }
    message
}

/// Why not all was done.
enum Stop {
    /// The server of the pull requests is away, or asks to be left alone.
    Server(PullError),
    /// Something is wrong with one pull request, and the others are gone on with.
    One(Refusal),
    /// Nothing can be found out about the source now.
    Runner(String),
}

impl From<Halt> for Stop {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::Failed { reason, message } => Self::One((reason, message)),
            Halt::Retry(message) | Halt::SourceUnreachable(message) | Halt::Abandoned(message) => Self::Runner(message),
            Halt::Canceled | Halt::AwaitingApproval | Halt::AwaitingMerge | Halt::Superseded(_) => {
                Self::Runner("the comparison was cancelled".to_owned())
            }
        }
    }
}

/// The plans of a source that are there.
struct There<'a> {
    runs: HashMap<String, &'a Run>,
    /// How many have not ended, by the number of their pull request.
    under_way: HashMap<String, usize>,
}

impl<'a> There<'a> {
    fn new(runs: &'a [Run]) -> Self {
        let mut under_way: HashMap<String, usize> = HashMap::new();
        for run in runs.iter().filter(|run| !status(run).phase.is_terminal()) {
            let number = run.labels().get(labels::PULL_REQUEST).cloned().unwrap_or_default();
            *under_way.entry(number).or_default() += 1;
        }
        Self { runs: runs.iter().map(|run| (run.name_any(), run)).collect(), under_way }
    }

    /// Whether another plan of a pull request may be made now.
    fn has_room(&self, number: &str) -> bool {
        let each = self.under_way.get(number).copied().unwrap_or_default();
        each < UNDER_WAY_EACH && self.under_way.values().sum::<usize>() < UNDER_WAY
    }
}

/// What a look at one source works with.
struct World {
    services: Services,
    known: Known,
    key: ObjectKey,
    client: Arc<dyn PullRequests>,
}

impl World {
    /// Makes the plans of all pull requests, and tells of them; how many of them change stacks.
    async fn bring_about(
        &self,
        mut source: Source,
        pulls: &[(PullRequest, String)],
    ) -> Result<Result<usize, Stop>, ApiError> {
        let is_open = |number: i64| pulls.iter().any(|(pull, _)| i64::try_from(pull.number) == Ok(number));
        let base = source.status.as_ref().and_then(|status| status.observed_commit.clone());
        let Some(base) = base else {
            return Ok(Err(Stop::Runner("the commit of the source is not known yet".to_owned())));
        };
        let stacks = self.stacks(&source).await?;
        let runs = plans_of(&self.services, &self.key).await?;
        let (mut there, mut kept) = (There::new(&runs), HashSet::new());
        let (mut told, mut trouble) = (Vec::new(), None);
        for (pull, commit) in pulls {
            match self.changed(&source, &stacks, pull.number, &base, commit).await? {
                Ok(changed) => {
                    let (plans, left_out) = self.plans(&source, pull, commit, &changed, &mut there).await?;
                    kept.extend(plans.iter().map(|plan| plan.run.clone()));
                    told.push((pull, commit, plans, left_out));
                }
                Err(Stop::One(why)) => {
                    let number = pull.number.to_string();
                    let is_its = |run: &&Run| run.labels().get(labels::PULL_REQUEST) == Some(&number);
                    kept.extend(runs.iter().filter(is_its).map(Run::name_any));
                    trouble.get_or_insert(Stop::One(why));
                }
                Err(stop) => return Ok(Err(stop)),
            }
        }
        // Before anything is told: a server that is away keeps nothing going that is out of date.
        remove(&self.services, runs.iter().filter(|run| !kept.contains(&run.name_any()))).await?;
        let planned = told.iter().filter(|(_, _, plans, _)| !plans.is_empty()).count();
        for (pull, commit, plans, left_out) in told {
            match self.report(&mut source, pull, commit, &plans, left_out).await? {
                Ok(()) => {}
                Err(Stop::One(why)) => {
                    trouble.get_or_insert(Stop::One(why));
                }
                Err(stop) => return Ok(Err(stop)),
            }
        }
        let gone = source.status.iter().flat_map(|status| &status.pull_requests);
        for pull in gone.filter(|pull| !is_open(pull.number)).cloned().collect::<Vec<_>>() {
            if let Err(error) = self.part_with(&pull).await {
                return Ok(Err(Stop::Server(error)));
            }
            source = note(&self.services, &source, pull.number, None).await?;
        }
        self.known.retain(&self.key, |number| is_open(i64::try_from(number).unwrap_or(i64::MAX)));
        Ok(trouble.map_or(Ok(planned), Err))
    }

    /// The stacks that follow the source's branch by themselves.
    async fn stacks(&self, source: &Source) -> Result<Vec<(Stack, String)>, ApiError> {
        let (namespace, name) = &self.key;
        let of_source =
            ListOptions { field_selector: Some(format!("spec.source.name={name}")), ..ListOptions::default() };
        let projects = self.services.lookup.api::<Project>()?.list_with(Some(namespace), &of_source).await?;
        let projects: HashMap<String, Project> = projects.into_iter().map(|it| (it.name_any(), it)).collect();
        let branch = source.spec.reference.as_str();
        let branches = ["latest", branch, branch.strip_prefix("refs/heads/").unwrap_or(branch)];
        let is_following = |stack: &Stack| {
            stack.metadata.deletion_timestamp.is_none()
                && trigger::operation(stack.spec.trigger).is_some()
                && branches.contains(&stack.spec.desired_version.as_str())
        };
        let stacks = self.services.lookup.api::<Stack>()?.list(Some(namespace), "").await?;
        let with_path = |stack: Stack| {
            let path = target::path(&stack, projects.get(&stack.spec.project)?);
            Some((stack, path))
        };
        Ok(stacks.into_iter().filter(is_following).filter_map(with_path).collect())
    }

    /// The stacks whose folder a pull request changes.
    async fn changed<'a>(
        &self,
        source: &Source,
        stacks: &'a [(Stack, String)],
        number: u64,
        base: &str,
        commit: &str,
    ) -> Result<Result<Vec<&'a Stack>, Stop>, ApiError> {
        let mut paths: Vec<String> = stacks.iter().map(|(_, path)| path.clone()).collect();
        paths.sort();
        paths.dedup();
        let mut hasher = DefaultHasher::new();
        (base, commit, &paths).hash(&mut hasher);
        let question = hasher.finish();
        let changed = match self.known.changed(&self.key, number, question) {
            Some(changed) => changed,
            None if paths.is_empty() => Arc::default(),
            None => {
                let changed: Arc<[String]> = match self.compare(source, base, commit, paths).await {
                    Ok(changed) => changed.into(),
                    Err(halt) => return Ok(Err(halt.into())),
                };
                self.known.note_changed(&self.key, number, question, changed.clone());
                changed
            }
        };
        Ok(Ok(stacks.iter().filter(|(_, path)| changed.contains(path)).map(|(stack, _)| stack).collect()))
    }

    async fn compare(
        &self,
        source: &Source,
        base: &str,
        commit: &str,
        paths: Vec<String>,
    ) -> Result<Vec<String>, Halt> {
        let source = target::source(&self.services, source).await?;
        let (base, commit) = (base.to_owned(), commit.to_owned());
        let request = stoa_proto::CompareRequest { source: Some(source), base, commit, paths };
        let response = tokio::time::timeout(COMPARE, self.services.runner.compare(request)).await;
        let response =
            response.map_err(|_| Halt::Retry(format!("the repository did not answer within {COMPARE:?}")))?;
        let response = response.map_err(|status| runner::halt(&status, reason::SOURCE_UNREACHABLE))?;
        Ok(response.into_inner().changed)
    }

    /// The plans of a pull request, whose runs are there after this as far as there is room, and how many are left out.
    async fn plans(
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
                    let outcome = self.create(pull, stack, &run).await?;
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

    /// Creates a run, or finds it.
    async fn create(&self, pull: &PullRequest, stack: &Stack, run: &Run) -> Result<Outcome, ApiError> {
        let mut context = RequestContext::internal(COMPONENT);
        let set_by = stack.status.as_ref().and_then(|status| status.trigger.as_ref()).map(|trigger| &trigger.set_by);
        if let Some(set_by) = set_by.filter(|set_by| !set_by.is_empty()) {
            context.user.extra.insert(triggers::SET_BY.to_owned(), vec![set_by.clone()]);
        }
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
                    None => Outcome::Failed(error.message().to_owned()),
                })
            }
            // Such as without the workspace; others do not wait for it.
            Err(error) if matches!(error.code(), 403 | 404 | 409 | 422) => {
                Ok(Outcome::Failed(error.message().to_owned()))
            }
            Err(error) => Err(error),
        }
    }

    /// Tells a pull request how its plans are, where that is news. The source is then as that left it.
    async fn report(
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
            told: String::new(),
        };
        // Whoever goes on after a crash has to know what there may be to take back.
        *source = note(&self.services, source, number, Some(&entry)).await?;
        let (state, description) = report::commit_status(plans);
        let said = CommitStatus { context: self.context(), state, description, url: None };
        match self.say(pull, commit, &said, text.as_deref()).await {
            Ok(()) => {}
            Err(error) if error.is_retryable() => return Ok(Err(Stop::Server(error))),
            Err(error) => {
                let why = (reason::PULL_REQUESTS_UNAVAILABLE, format!("pull request {number}: {error}"));
                self.known.note_put_off(&self.key, source, pull.number, told, why.clone());
                return Ok(Err(Stop::One(why)));
            }
        }
        entry.told = told;
        *source = note(&self.services, source, number, Some(&entry)).await?;
        Ok(Ok(()))
    }

    /// Makes the calls that tell a pull request how its plans are.
    async fn say(
        &self,
        pull: &PullRequest,
        commit: &str,
        said: &CommitStatus,
        text: Option<&str>,
    ) -> Result<(), PullError> {
        self.client.set_status(commit, said).await?;
        match text {
            Some(text) => self.client.comment(pull.number, &self.marker(), text).await,
            None => Ok(()),
        }
    }

    /// The plans as people read them, or why they cannot be read now.
    async fn texts(&self, plans: &[Plan]) -> Result<Result<Vec<Option<String>>, String>, ApiError> {
        let runs = self.services.lookup.api::<Run>()?;
        let mut texts = Vec::new();
        for plan in plans {
            let run = match plan.outcome {
                Outcome::Made { .. } => runs.get_opt(&self.key.0, &plan.run).await?,
                Outcome::Pending | Outcome::Failed(_) => None,
            };
            texts.push(match run {
                Some(run) => match kept_plan(&self.services, &run).await {
                    Ok(plan) => Some(render(&plan, Colour::Never)),
                    Err(error) if matches!(error.code(), 404 | 422) => None,
                    // One Backend that is away keeps no other plan from being told.
                    Err(error) => return Ok(Err(error.message().to_owned())),
                },
                None => None,
            });
        }
        Ok(Ok(texts))
    }

    /// Takes back that something is to be said of a commit, since nobody will.
    async fn part_with(&self, pull: &PlannedPullRequest) -> Result<(), PullError> {
        if pull.phase != PlansPhase::Pending {
            return Ok(());
        }
        let description = "not planned, since the pull request is not open any more".to_owned();
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

/// What came of a run.
fn outcome(run: &Run) -> Outcome {
    let now = status(run);
    let failed = condition(&now.conditions, reason::FAILED).map(|failed| failed.message.clone());
    match now.phase {
        // It is made anew once it is gone.
        _ if run.metadata.deletion_timestamp.is_some() => Outcome::Pending,
        RunPhase::Succeeded => match now.plan {
            Some(plan) => Outcome::Made { digest: plan.digest, summary: plan.summary },
            None => Outcome::Failed("the run made no plan".to_owned()),
        },
        RunPhase::Failed => Outcome::Failed(failed.unwrap_or_else(|| "the run failed".to_owned())),
        RunPhase::Canceled => Outcome::Failed(failed.unwrap_or_else(|| "the run was cancelled".to_owned())),
        RunPhase::Pending
        | RunPhase::Generating
        | RunPhase::Planning
        | RunPhase::AwaitingApproval
        | RunPhase::Applying
        | RunPhase::AwaitingMerge
        | RunPhase::Verifying => Outcome::Pending,
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
        Outcome::Failed(why) => json!([plan.run, null, why]),
    };
    let of: Vec<_> = plans.iter().map(of_plan).collect();
    hex(&Sha256::digest(canonical_json(
        &json!({"server": server, "commit": commit, "plans": of, "pending": is_pending, "more": left_out}),
    )))
}

/// The runs that are plans of a source's pull requests.
async fn plans_of(services: &Services, (namespace, name): &ObjectKey) -> Result<Vec<Run>, ApiError> {
    let selector = format!("{}={name},{}", labels::SOURCE, labels::PULL_REQUEST);
    let runs = services.lookup.api::<Run>()?.list(Some(namespace), &selector).await?;
    Ok(runs.into_iter().filter(is_plan).collect())
}

/// Deletes runs, which cancels them first.
async fn remove(services: &Services, runs: impl Iterator<Item = &Run>) -> Result<(), ApiError> {
    let api = services.lookup.api::<Run>()?;
    for run in runs.filter(|run| run.metadata.deletion_timestamp.is_none()) {
        let (namespace, name) = queue::key_of(run);
        match api.delete(&namespace, &name, &Default::default()).await {
            Ok(_) => {}
            Err(error) if error.code() == 404 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Keeps what is known of a pull request, or that there is nothing any more.
async fn note(
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
        let pulls = &mut source.status.get_or_insert_default().pull_requests;
        pulls.retain(|of| of.number != number);
        pulls.extend(entry.cloned());
        pulls.sort_by_key(|of| of.number);
    })
    .await
}

async fn tell(services: &Services, source: &Source, (is_done, why, message): Told) -> Result<(), ApiError> {
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

/// Drops what is known of a source's pull requests.
async fn clear(services: &Services, source: &Source) -> Result<(), ApiError> {
    let is_told = |source: &Source| {
        let status = source.status.clone().unwrap_or_default();
        !status.pull_requests.is_empty() || condition(&status.conditions, reason::PULL_REQUESTS_PLANNED).is_some()
    };
    if !is_told(source) {
        return Ok(());
    }
    let clear = |source: &mut Source| {
        let status = source.status.get_or_insert_default();
        status.pull_requests.clear();
        status.conditions.retain(|condition| condition.type_ != reason::PULL_REQUESTS_PLANNED);
    };
    write(services, source, clear).await.map(drop)
}

/// Writes the status of a source that is still the same object.
async fn write(
    services: &Services,
    source: &Source,
    mut change: impl FnMut(&mut Source) + Send,
) -> Result<Source, ApiError> {
    let (namespace, name) = queue::key_of(source);
    let uid = source.uid();
    let change = |source: &mut Source| {
        if source.uid() != uid {
            return Err(ApiError::conflict("config.stoa.dev", "sources", &source.name_any(), "another took its name"));
        }
        change(source);
        Ok(())
    };
    services.lookup.api::<Source>()?.update_status_with(&namespace, &name, change).await
}

#[cfg(test)]
mod tests;
