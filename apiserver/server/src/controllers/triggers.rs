//! Triggers: starts the runs of stacks that follow their desired version.
//!
//! A run is started for a *cause*: what the stack is rendered from (its folder in the source, by content) and how (its
//! spec). The stack's status keeps the last cause of each workspace, and the name of a run follows from what the status
//! says before it is created. So whoever goes on after a crash between the two creates the same run again, and finds it.
//! A task of its own asks the source what the folder is (`controllers::asks`), so that no look waits for that. On whose behalf
//! a run is started is found in [`people`].

mod people;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures_util::StreamExt as _;
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use stoa_engine::digest::{canonical_json, hex};
use stoa_machinery::{ApiError, registry::Api};
use stoa_types::{
    Project, Run, Source, Stack,
    common::condition,
    config::{self, Started, TriggerStatus},
    delivery::{Operation, RunPhase, RunStatus},
    labels, reason,
};
use tokio_util::sync::CancellationToken;

use super::{
    asks::{AGAIN, Poke, Questions, Turns, TurnsOf},
    groups::{Groups, Member, Moved},
    queue::{self, FirstError, ObjectKey, Trigger},
    stacks,
};
use crate::{
    events::Kind,
    kinds::{check::set_condition, trigger},
    runs::{Halt, Services, awaits_approval, queued_at, readiness, runner, status, target::Target},
};

/// As whom runs are created.
const COMPONENT: &str = "trigger";
/// The user that this is.
const USER: &str = "system:stoa:trigger";
/// How many stacks are looked at at once.
const AT_ONCE: usize = 8;
/// How long after a run that failed since its source was out of reach another one is started for the same: that long, then
/// twice as long and so on.
const RETRY: SignedDuration = SignedDuration::from_mins(1);
/// How often that is tried.
const RETRIES: i64 = 5;
/// How many names are tried if others have taken them.
const NAMES: i64 = 5;

/// What is known of stacks besides what is in the log: nothing that cannot be found out again.
#[derive(Debug, Default)]
struct Memory {
    /// Of which folder of each that is asked, or was.
    folders: Mutex<HashMap<ObjectKey, Folder>>,
    /// What folders were found to be.
    contents: Questions<Folder, String>,
    /// Whose turn it is to ask a source.
    turns: Turns,
    /// The stacks of which it is known that every run that was started is noted.
    noted: Mutex<HashSet<ObjectKey>>,
    poke: Poke,
}

/// The folder of a stack: whose, at which commit, and its path.
type Folder = (ObjectKey, String, String);

impl Memory {
    /// Forgets what another folder was that the stack had before.
    fn meet(&self, folder: &Folder) {
        let before = self.folders.lock().insert(folder.0.clone(), folder.clone());
        if let Some(before) = before.filter(|before| before != folder) {
            self.contents.forget(&before);
        }
    }

    /// Forgets what a stack's folder was.
    fn forget(&self, stack: &ObjectKey) {
        self.noted.lock().remove(stack);
        let folder = self.folders.lock().remove(stack);
        if let Some(folder) = folder {
            self.contents.forget(&folder);
        }
    }
}

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let (Ok(of_stacks), Ok(runs), Ok(projects)) =
        (services.lookup.api::<Stack>(), services.lookup.api::<Run>(), services.lookup.api::<Project>())
    else {
        return;
    };
    let (poke, poked) = Poke::triggering();
    let memory = Arc::new(Memory { poke, ..Memory::default() });
    let by_project = Groups::default();
    let changed = by_project.follow(&of_stacks, |s: &Member<OfStackSpec, OfStackStatus>| {
        let has_started = s.status.as_ref().is_some_and(|status| status.trigger.is_some());
        let is_following = has_started || trigger::operation(s.spec.trigger).is_some();
        is_following.then(|| (s.namespace().to_owned(), s.spec.project.clone())).into_iter().collect()
    });
    let (following, of_project) = (by_project.clone(), by_project);
    let of_followers = move |moved: Moved<ObjectKey>| {
        let has_left = !moved.groups.is_empty();
        moved.objects.iter().filter(|stack| has_left || following.has(stack)).map(queue::key_at).collect()
    };
    let triggers = vec![
        poked,
        // A source that moved comes as a stack whose observed commit did.
        Trigger::new(changed.map(of_followers).boxed()),
        Trigger::on_part(&runs, |run: &Member<OfRunSpec, OfRunStatus>| {
            let has_ended = |status: &OfRunStatus| status.requester.username == USER && status.phase.is_terminal();
            let is_own = run.status.as_ref().is_some_and(has_ended);
            is_own.then(|| (run.namespace().to_owned(), run.spec.stack.clone())).into_iter().collect()
        }),
        // A project's status counts its stacks, most of which follow nothing.
        Trigger::on_change(&projects, move |p: &Member<Value, IgnoredAny>| of_project.members(&p.key())),
    ];
    let look = |key| look(services.clone(), memory.clone(), key);
    queue::drive_some(services.queues.of("triggers"), AT_ONCE, triggers, end, look).await;
}

/// What of a stack says whether there is anything to look at.
#[derive(Deserialize)]
struct OfStackSpec {
    project: String,
    #[serde(default)]
    trigger: config::Trigger,
}

#[derive(Deserialize)]
struct OfStackStatus {
    trigger: Option<IgnoredAny>,
}

/// What of a run says whether it was started here and has ended.
#[derive(Deserialize)]
struct OfRunSpec {
    stack: String,
}

#[derive(Deserialize)]
struct OfRunStatus {
    #[serde(default)]
    phase: RunPhase,
    #[serde(default)]
    requester: OfRequester,
}

#[derive(Default, Deserialize)]
struct OfRequester {
    #[serde(default)]
    username: String,
}

fn is_following(stack: &Stack) -> bool {
    trigger::operation(stack.spec.trigger).is_some()
}

/// Whether a trigger started a run.
pub(crate) fn is_triggered(run: &Run) -> bool {
    status(run).requester.username == USER
}

/// What a look came to, for the condition `Triggered`.
type Told = (bool, &'static str, String);

async fn look(services: Services, memory: Arc<Memory>, key: ObjectKey) -> Result<Option<Duration>, ApiError> {
    let stacks = services.lookup.api::<Stack>()?;
    let found = stacks.get_opt(&key.0, &key.1).await?.filter(|stack| stack.metadata.deletion_timestamp.is_none());
    let Some(stack) = found.as_ref().filter(|stack| is_following(stack)) else {
        memory.forget(&key);
        return match found {
            Some(stack) => forget(&stacks, &stack).await.map(|()| None),
            None => Ok(None),
        };
    };
    let operation = trigger::operation(stack.spec.trigger).unwrap_or(Operation::Preview);
    let (followed, again) = follow(&services, &memory, stack.clone(), operation).await?;
    if let Some((stack, told)) = followed {
        tell(&stacks, &stack, told).await?;
    }
    Ok(again)
}

/// What is to be said of a stack, as it is then, if anything is by now; and when to look again.
type Followed = (Option<(Stack, Told)>, Option<Duration>);

/// Starts what is to be started.
async fn follow(
    services: &Services,
    memory: &Memory,
    mut stack: Stack,
    operation: Operation,
) -> Result<Followed, ApiError> {
    // What is written here brings the stack as it is by then, with what others decided meanwhile. The operation and the
    // cause are of this one.
    let read = stack.clone();
    stack = forget_left(&services.lookup.api::<Stack>()?, stack).await?;
    if stack.spec.workspaces.is_empty() {
        let message = "the stack lists no workspace, so that nothing is started for it".to_owned();
        return Ok((Some((stack, (false, reason::NO_WORKSPACES, message))), None));
    }
    let Some(commit) = readiness::head(&services.lookup, &stack) else {
        let message = format!("the commit of version {:?} is not known", stack.spec.desired_version);
        return Ok((Some((stack, (false, reason::VERSION_NOT_FOUND, message))), None));
    };
    // Whoever answers has it looked at.
    let Some(content) = content(services, memory, &stack, &commit).await else { return Ok((None, Some(AGAIN))) };
    let content = match content {
        Ok(content) => content,
        Err(Halt::Failed { reason, message }) => return Ok((Some((stack, (false, reason, message))), Some(AGAIN))),
        Err(Halt::Retry(message) | Halt::SourceUnreachable(message) | Halt::Abandoned(message)) => {
            return Ok((Some((stack, (false, reason::NOT_STARTED, message))), Some(AGAIN)));
        }
        Err(Halt::Canceled | Halt::AwaitingApproval | Halt::AwaitingMerge | Halt::Superseded(_)) => {
            return Ok((Some((stack, (false, reason::NOT_STARTED, String::new()))), Some(AGAIN)));
        }
    };
    let cause = cause_of(&stack, operation, &content);
    let key = queue::key_of(&stack);
    let is_noted = memory.noted.lock().contains(&key);
    let unnoted = if is_noted { BTreeSet::new() } else { unnoted_in(services, &stack, &cause).await? };
    let (mut refused, mut failed) = (None, FirstError::default());
    for workspace in stack.spec.workspaces.clone() {
        let before = started_in(&stack, &workspace).filter(|it| it.cause == cause && !unnoted.contains(&workspace));
        let retries = match before.map(|started| (started, time_to_retry(services, &stack, started))) {
            None => 0,
            Some((started, Some(left))) if left.is_zero() && is_readable(services, &stack) => started.retries + 1,
            Some(_) => continue,
        };
        // The workspace before may have taken a while, in which somebody may have decided otherwise. It is looked at as it is
        // now.
        if !is_as_read(services, &read).await? {
            return Ok((None, Some(Duration::ZERO)));
        }
        memory.noted.lock().remove(&key);
        match start(services, &stack, &workspace, operation, &commit, &cause).await {
            Ok(started) => stack = note(services, &stack, Started { retries, ..started }).await?,
            // Others do not wait for it.
            Err(error) if queue::is_refusal(&error) => {
                refused = Some(format!("workspace {workspace}: {}", error.message()));
            }
            Err(error) => drop(failed.note::<()>(Err(error))),
        }
    }
    failed.told()?;
    if refused.is_none() {
        memory.noted.lock().insert(key);
    }
    stack = note_ends(services, stack).await?;
    let waits = stack.spec.workspaces.iter().filter_map(|workspace| {
        let started = started_in(&stack, workspace).filter(|started| started.cause == cause)?;
        // One whose time has come waits for its source.
        time_to_retry(services, &stack, started).map(|left| if left.is_zero() { AGAIN } else { left })
    });
    let again = waits.chain(refused.is_some().then_some(AGAIN)).min();
    let told = match refused {
        Some(message) => (false, reason::NOT_STARTED, message),
        None => summary(&stack),
    };
    Ok((Some((stack, told)), again))
}

/// Whether a stack still wants what it did when it was read.
async fn is_as_read(services: &Services, stack: &Stack) -> Result<bool, ApiError> {
    let (namespace, name) = queue::key_of(stack);
    let now = services.lookup.api::<Stack>()?.get_opt(&namespace, &name).await?;
    Ok(now.is_some_and(|now| {
        now.metadata.uid == stack.metadata.uid && now.spec == stack.spec && now.metadata.deletion_timestamp.is_none()
    }))
}

/// What the stack's folder is at a commit, once that is known.
async fn content(services: &Services, memory: &Memory, stack: &Stack, commit: &str) -> Option<Result<String, Halt>> {
    let key = queue::key_of(stack);
    let path = match Target::path_of(services, stack).await {
        Ok(path) => path,
        Err(halt) => return Some(Err(halt)),
    };
    let folder: Folder = (key.clone(), commit.to_owned(), path);
    memory.meet(&folder);
    memory.contents.answer(folder.clone(), (&memory.poke, &key), || {
        let (services, turns, stack) = (services.clone(), memory.turns.of(&key.0), stack.clone());
        let (_, commit, path) = folder;
        async move { Box::pin(ask(&services, &turns, &stack, (commit, path))).await }
    })
}

/// Asks the source for the content of a folder at a commit.
async fn ask(
    services: &Services,
    turns: &TurnsOf,
    stack: &Stack,
    (commit, path): (String, String),
) -> Result<String, Halt> {
    let source = Some(Target::source_of(services, stack).await?);
    let request = stoa_proto::ContentRequest { source, commit, path };
    let response = turns.ask_repository(services.runner.content(request)).await?;
    let response = response.map_err(|status| runner::halt(&status, reason::SOURCE_UNREACHABLE))?;
    Ok(response.into_inner().digest)
}

/// The digest of what a run is started for.
fn cause_of(stack: &Stack, operation: Operation, content: &str) -> String {
    let spec = &stack.spec;
    let cause = json!({
        "operation": operation, "content": content, "desiredVersion": spec.desired_version, "path": spec.path,
        "stackName": spec.stack_name, "generator": spec.generator,
    });
    hex(&Sha256::digest(canonical_json(&cause)))
}

fn started_in<'a>(stack: &'a Stack, workspace: &str) -> Option<&'a Started> {
    let trigger = stack.status.as_ref()?.trigger.as_ref()?;
    trigger.started.iter().find(|started| started.workspace == workspace)
}

/// The workspaces in which something was started that is not noted, since the server ended in between: what was noted for
/// this cause is not the last there, and has to take its place.
async fn unnoted_in(services: &Services, stack: &Stack, cause: &str) -> Result<BTreeSet<String>, ApiError> {
    let runs = stacks::runs_of(services, stack).await?;
    let is_unnoted = |run: &&Run| {
        let (workspace, name) = (&run.spec.workspace, run.name_any());
        let Some(noted) = started_in(stack, workspace).filter(|noted| noted.cause == cause) else { return false };
        if !is_triggered(run) || name == noted.run || name == name_of(stack, workspace, cause, noted.number + 1) {
            return false;
        }
        match runs.iter().find(|it| it.name_any() == noted.run) {
            Some(noted) => queued_at(run) > queued_at(noted),
            // Somebody deleted it. Earlier ones have begun, or were to be cancelled.
            None => is_waiting(run) && !run.spec.cancel,
        }
    };
    Ok(runs.iter().filter(is_unnoted).map(|run| run.spec.workspace.clone()).collect())
}

/// Whether a run has not begun, or not begun to change anything.
fn is_waiting(run: &Run) -> bool {
    awaits_approval(run) || (!status(run).phase.is_terminal() && status(run).start_time.is_none())
}

/// How long until another run is started for what this one was, if one is to be.
fn time_to_retry(services: &Services, stack: &Stack, started: &Started) -> Option<Duration> {
    let Time(at) = started.retry_time.as_ref().filter(|_| !was_mended(stack, started))?;
    let left = at.duration_since(services.now());
    // Nobody knows how long it has been when the clock was set back to before the run ended.
    Some(if left > wait_after(started.retries) { Duration::ZERO } else { left.try_into().unwrap_or_default() })
}

/// Whether nothing is known to keep the stack's source from being read.
fn is_readable(services: &Services, stack: &Stack) -> bool {
    let namespace = stack.namespace().unwrap_or_default();
    let project = services.lookup.cached::<Project>(&namespace, &stack.spec.project);
    let source = project.and_then(|project| services.lookup.cached::<Source>(&namespace, &project.spec.source.name));
    let conditions = source.and_then(|source| source.status).map(|status| status.conditions).unwrap_or_default();
    condition(&conditions, reason::READY).is_none_or(|ready| ready.status == "True")
}

/// Whether somebody else has brought to a good end what this run did not.
fn was_mended(stack: &Stack, failed: &Started) -> bool {
    stack.status.iter().flat_map(|status| &status.deployments).any(|deployment| {
        deployment.workspace == failed.workspace
            && deployment.phase == Some(RunPhase::Succeeded)
            && deployment.commit.as_ref() == Some(&failed.commit)
    })
}

/// When to start another run for what one was started for that ended so, after so many others.
fn retry_time(ended: &RunStatus, retries: i64) -> Option<Time> {
    let failed = condition(&ended.conditions, reason::FAILED)?;
    let is_tried_again =
        ended.phase == RunPhase::Failed && failed.reason == reason::SOURCE_UNREACHABLE && retries < RETRIES;
    is_tried_again.then(|| Some(Time(ended.completion_time.as_ref()?.0 + wait_after(retries))))?
}

/// How long after its end a run is followed by another one, after so many others.
fn wait_after(retries: i64) -> SignedDuration {
    RETRY * 2_i32.saturating_pow(u32::try_from(retries).unwrap_or_default())
}

/// The name of the run with this number: nothing else makes one of it.
fn name_of(stack: &Stack, workspace: &str, cause: &str, number: i64) -> String {
    let uid = stack.uid().unwrap_or_default();
    let digest = hex(&Sha256::digest(format!("{uid}/{workspace}/{cause}/{number}")));
    format!("{}-{}", stack.name_any(), &digest[..10])
}

/// Creates the run, or finds it; those that it takes the place of do not begin any more.
async fn start(
    services: &Services,
    stack: &Stack,
    workspace: &str,
    operation: Operation,
    commit: &str,
    cause: &str,
) -> Result<Started, ApiError> {
    let mut number = started_in(stack, workspace).map_or(0, |started| started.number);
    let last = number + NAMES;
    let mut run = stacks::run_of(stack, workspace, operation);
    run.spec.version = Some(commit.to_owned());
    run.metadata.generate_name = None;
    // The trigger itself, which was given leave when it was set, and by these.
    let (caused_by, seen) = people::behind(services, stack, workspace).await?;
    let context = trigger::on_behalf_of(COMPONENT, caused_by.clone());
    let runs = services.lookup.api::<Run>()?.with_context(context);
    loop {
        number += 1;
        let name = name_of(stack, workspace, cause, number);
        run.metadata.name = Some(name.clone());
        match runs.create(&run).await {
            Ok(created) => {
                let message = format!("run {name}: {operation:?} of commit {} in workspace {workspace}", short(commit));
                services.recorder.record(&created, Kind::Normal, reason::STARTED, &message);
                services.recorder.record(stack, Kind::Normal, reason::STARTED, message);
            }
            Err(error) if error.is("AlreadyExists") => {
                // An earlier try made it, unless somebody took the name.
                let there = runs.get_opt(&run.namespace().unwrap_or_default(), &name).await?;
                if !there.is_some_and(|there| is_triggered(&there)) {
                    if number < last {
                        continue;
                    }
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
        // Not before it is there: where it may not be, what waits is all that there is.
        supersede(services, stack, workspace, &name).await?;
        return Ok(Started {
            workspace: workspace.to_owned(),
            number,
            cause: cause.to_owned(),
            commit: commit.to_owned(),
            run: name,
            phase: None,
            retries: 0,
            retry_time: None,
            caused_by,
            seen: Some(seen),
        });
    }
}

/// Cancels what the trigger started in a workspace before, as far as it did not begin, or begin to change anything: what
/// waits to be approved is out of date.
async fn supersede(services: &Services, stack: &Stack, workspace: &str, by: &str) -> Result<(), ApiError> {
    let runs = services.lookup.api::<Run>()?;
    for run in stacks::runs_of(services, stack).await? {
        let is_earlier = is_triggered(&run) && run.spec.workspace == workspace && run.name_any() != by;
        if !is_earlier || !is_waiting(&run) || run.spec.cancel {
            continue;
        }
        let (namespace, name) = queue::key_of(&run);
        let cancel = |run: &mut Run| {
            // It may have begun in between: then it is finished.
            if is_waiting(run) {
                run.annotations_mut().insert(labels::SUPERSEDED_BY.to_owned(), by.to_owned());
                run.spec.cancel = true;
            }
        };
        match runs.update_with(&namespace, &name, cancel).await {
            Ok(_) => {}
            Err(error) if error.code() == 404 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Keeps what was started: for this cause no other run is.
async fn note(services: &Services, stack: &Stack, started: Started) -> Result<Stack, ApiError> {
    change(&services.lookup.api::<Stack>()?, stack, |trigger| {
        trigger.started.retain(|of| of.workspace != started.workspace);
        trigger.started.push(started.clone());
        trigger.started.sort_by(|a, b| a.workspace.cmp(&b.workspace));
    })
    .await
}

/// Keeps how runs ended, since they may be deleted.
async fn note_ends(services: &Services, stack: Stack) -> Result<Stack, ApiError> {
    let runs = services.lookup.api::<Run>()?;
    let namespace = stack.namespace().unwrap_or_default();
    let mut ended = HashMap::new();
    let started = stack.status.iter().flat_map(|status| &status.trigger).flat_map(|trigger| &trigger.started);
    for started in started.filter(|started| started.phase.is_none() && !started.run.is_empty()) {
        let end = match runs.get_opt(&namespace, &started.run).await? {
            Some(run) => {
                let end = status(&run);
                let is_settled = people::is_settled(&run, &end);
                Some((end, is_settled)).filter(|(end, _)| end.phase.is_terminal())
            }
            // Somebody deleted it before it ended.
            None => Some((RunStatus { phase: RunPhase::Canceled, ..RunStatus::default() }, false)),
        };
        let noted = end.map(|(end, is_settled)| (end.phase, retry_time(&end, started.retries), is_settled));
        ended.extend(noted.map(|noted| (started.run.clone(), noted)));
    }
    if ended.is_empty() {
        return Ok(stack);
    }
    change(&services.lookup.api::<Stack>()?, &stack, |trigger| {
        for started in &mut trigger.started {
            if let (None, Some((phase, retry_time, is_settled))) = (started.phase, ended.get(&started.run)) {
                (started.phase, started.retry_time) = (Some(*phase), retry_time.clone());
                if *is_settled {
                    started.caused_by.clear();
                }
            }
        }
    })
    .await
}

/// Drops the causes: whoever sets the trigger again has it started again.
async fn forget(stacks: &Api<Stack>, stack: &Stack) -> Result<(), ApiError> {
    let status = stack.status.as_ref();
    let has_causes = status.and_then(|s| s.trigger.as_ref()).is_some_and(|trigger| {
        !trigger.set_by.is_empty() || trigger.started.iter().any(|started| !started.cause.is_empty())
    });
    let is_told = status.is_some_and(|status| condition(&status.conditions, reason::TRIGGERED).is_some());
    if !has_causes && !is_told {
        return Ok(());
    }
    let (namespace, name) = queue::key_of(stack);
    let uid = stack.uid();
    let forget = |stack: &mut Stack| {
        if stack.uid() != uid || is_following(stack) {
            return;
        }
        let status = stack.status.get_or_insert_default();
        status.conditions.retain(|condition| condition.type_ != reason::TRIGGERED);
        if let Some(trigger) = &mut status.trigger {
            trigger.set_by.clear();
            trigger.started.iter_mut().for_each(|started| started.cause.clear());
        }
    };
    stacks.update_status_with(&namespace, &name, forget).await.map(drop)
}

/// Forgets for what runs were started in workspaces that the stack has left: should it come back, one is started again.
async fn forget_left(stacks: &Api<Stack>, stack: Stack) -> Result<Stack, ApiError> {
    let has_left = |started: &Started| !started.cause.is_empty() && !stack.spec.workspaces.contains(&started.workspace);
    let mut started = stack.status.iter().flat_map(|status| &status.trigger).flat_map(|trigger| &trigger.started);
    if !started.any(has_left) {
        return Ok(stack);
    }
    // Its number stays, since the names of runs are made of it.
    let forget = |trigger: &mut TriggerStatus| {
        trigger.started.iter_mut().filter(|started| has_left(started)).for_each(|started| started.cause.clear());
    };
    change(stacks, &stack, forget).await
}

async fn change(
    stacks: &Api<Stack>,
    stack: &Stack,
    mut change: impl FnMut(&mut TriggerStatus) + Send,
) -> Result<Stack, ApiError> {
    let (namespace, name) = queue::key_of(stack);
    let uid = stack.uid();
    let change = |stack: &mut Stack| {
        if stack.uid() != uid {
            return Err(ApiError::conflict("config.stoa.dev", "stacks", &stack.name_any(), "another took its name"));
        }
        change(stack.status.get_or_insert_default().trigger.get_or_insert_default());
        Ok(())
    };
    stacks.update_status_with(&namespace, &name, change).await
}

async fn tell(stacks: &Api<Stack>, stack: &Stack, (is_started, why, message): Told) -> Result<(), ApiError> {
    let generation = stack.metadata.generation;
    let mut conditions = stack.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    if !set_condition(&mut conditions, reason::TRIGGERED, is_started, why, message.clone(), generation) {
        return Ok(());
    }
    let (namespace, name) = queue::key_of(stack);
    let uid = stack.uid();
    let tell = |stack: &mut Stack| {
        if stack.uid() == uid {
            let conditions = &mut stack.status.get_or_insert_default().conditions;
            set_condition(conditions, reason::TRIGGERED, is_started, why, message.clone(), generation);
        }
    };
    stacks.update_status_with(&namespace, &name, tell).await.map(drop)
}

/// What there is to say once everything was started.
fn summary(stack: &Stack) -> Told {
    let status = stack.status.clone().unwrap_or_default();
    let of_stack = |started: &&Started| stack.spec.workspaces.contains(&started.workspace);
    let started: Vec<Started> = status.trigger.unwrap_or_default().started;
    let started: Vec<&Started> = started.iter().filter(of_stack).collect();
    let is_failed = |started: &&&Started| {
        matches!(started.phase, Some(RunPhase::Failed | RunPhase::Canceled)) && !was_mended(stack, started)
    };
    if let Some(failed) = started.iter().find(is_failed) {
        let Started { run, commit, workspace, retry_time, .. } = failed;
        let then = match retry_time {
            Some(Time(at)) => format!("another is started once the source can be read again, at {at} at the earliest"),
            None => "it is not started again before the source or the stack changes".to_owned(),
        };
        let message =
            format!("run {run} for commit {} in workspace {workspace} did not succeed; {then}", short(commit));
        return (false, reason::RUN_FAILED, message);
    }
    let told = started.iter().map(|started| {
        format!(
            "run {} was started for commit {} in workspace {}",
            started.run,
            short(&started.commit),
            started.workspace
        )
    });
    (true, reason::STARTED, told.collect::<Vec<_>>().join("; "))
}

/// A commit as people write it.
fn short(commit: &str) -> &str {
    commit.get(..8).unwrap_or(commit)
}

#[cfg(test)]
pub(crate) mod tests;
