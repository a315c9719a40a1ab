//! Stack: knows the commit it would be deployed from, and decides on its infrastructure when it goes.
//!
//! Elsewhere: how deployed commits compare with the desired one is in `commits`, what it takes to have a stack destroyed in
//! `destruction`.

mod commits;
mod destruction;

use std::{
    collections::{BTreeSet, HashMap},
    ops::RangeInclusive,
    sync::Arc,
    time::Duration,
};

use futures_util::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use serde::de::IgnoredAny;
use stoa_controller::{
    events::Kind,
    finalizers::{remove_finalizer, update_same},
    index::{Index, Member},
    object::{Kind as ServedKind, ObjectKey},
    probes::Requeue,
    queue::{self, Trigger},
};
use stoa_kinds::{
    deletion,
    lookup::Lookup,
    readiness::{self, OfSourceStatus, Origin},
    run_status::{awaits_approval, awaits_merge, is_internal, status},
    run_view::OfRunStatus,
    stack::is_deployed,
    validation::allows_move,
};
use stoa_machinery::{
    ApiError,
    registry::{Api, ListOptions},
};
use stoa_types::{
    DeletionPolicy, Project, Run, Source, Stack, Workspace,
    config::{ProjectSpec, StackSpec, StackStatus},
    delivery::{Operation, RunPhase, RunSpec},
    labels, reason,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::commits::Commits;
pub(super) use self::destruction::Destruction;
pub(crate) use self::destruction::destroy;
use super::{
    folders::{Folders, Seen},
    references::UNDER_WAY,
};
use stoa_runs::{Services, contents::Folder, state};

/// How often to look while something is going, besides whenever one of its runs ends.
const WAIT: RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_secs(60);
/// How long after a Refresh was refused the next is started.
const REFUSED: Duration = Duration::from_mins(5);
/// How long a new commit waits for its comparison with the deployed ones, so that both are one write of the status.
const COMPARISON: Duration = Duration::from_secs(5);

/// What a stack goes by.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Reference {
    Project(ObjectKey),
    Workspace(String),
}

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let Ok(registry) = services.lookup.registry() else { return };
    let by_reference = Index::default();
    let (of_source, of_project, of_workspace) = (by_reference.clone(), by_reference.clone(), by_reference.clone());
    let changed = by_reference.follow(&registry.api::<Stack>(), |s: &Member<StackSpec, StackStatus>| {
        let project = Reference::Project((s.namespace().to_owned(), s.spec.project.clone()));
        let deployed = s.status.iter().flat_map(|status| &status.deployments).map(|of| &of.workspace);
        let workspaces: BTreeSet<&String> = s.spec.workspaces.iter().chain(deployed).collect();
        workspaces.into_iter().cloned().map(Reference::Workspace).chain([project]).collect()
    });
    let (requeue, poked) = Requeue::triggering();
    let asked = Lookups::new(requeue);
    let triggers = vec![
        poked,
        of_runs_waited_for::<Stack>(&services.lookup, &registry.api::<Run>(), |namespace, stack| (namespace, stack)),
        Trigger::new(changed.map(|moved| moved.objects.iter().map(queue::key_at).collect()).boxed()),
        // Stacks follow the head of their project's source.
        of_moved_sources(&services.lookup, &registry.api::<Source>(), move |project| {
            of_source.members(&Reference::Project(project))
        }),
        // They have their folders in that of their project.
        Trigger::on_change(&registry.api::<Project>(), move |p: &Member<ProjectSpec, IgnoredAny>| {
            of_project.members(&Reference::Project(p.key()))
        }),
        // Stacks say when a workspace that they name does not exist, and nothing of what failed in one that is gone. What
        // could not be destroyed may be when it leads elsewhere.
        Trigger::on_change(&registry.api::<Workspace>(), move |w: &Member<serde_json::Value, IgnoredAny>| {
            of_workspace.members(&Reference::Workspace(w.key().1))
        }),
    ];
    queue::drive(services.queues.of("stacks"), triggers, end, |key| look(services.clone(), asked.clone(), key)).await;
}

/// Makes the stacks of a source due when the commits of its versions change. `stacks_of` finds those of a project.
pub(super) fn of_moved_sources(
    lookup: &Lookup,
    sources: &Api<Source>,
    stacks_of: impl Fn(ObjectKey) -> Vec<ObjectKey> + Send + 'static,
) -> Trigger {
    let lookup = lookup.clone();
    Trigger::on_change(sources, move |s: &Member<IgnoredAny, OfSourceStatus>| {
        let (namespace, source) = s.key();
        let projects = lookup.cached_keys::<Project>(&namespace, "spec.source.name", &source);
        projects.into_iter().flat_map(&stacks_of).collect()
    })
}

/// Makes objects due that are being deleted when a Run of their stacks ends or waits for approval.
pub(super) fn of_runs_waited_for<K: ServedKind>(
    lookup: &Lookup,
    runs: &Api<Run>,
    whose: fn(String, String) -> ObjectKey,
) -> Trigger {
    let lookup = lookup.clone();
    Trigger::on_part(runs, move |run: &Member<RunSpec, OfRunStatus>| {
        let is_awaited =
            |status: &OfRunStatus| status.phase.is_terminal() || status.phase == RunPhase::AwaitingApproval;
        if !run.status.as_ref().is_some_and(is_awaited) {
            return Vec::new();
        }
        let key = whose(run.namespace().to_owned(), run.spec.stack.clone());
        if lookup.is_going::<K>(&key.0, &key.1) { vec![key] } else { Vec::new() }
    })
}

/// The questions about stacks that are under way, and what is known of the answers.
#[derive(Debug)]
struct Lookups {
    folders: Arc<Folders>,
    commits: Commits,
    /// The stacks whose new commit waits for its comparison, and since when.
    waiting: Mutex<HashMap<ObjectKey, Instant>>,
}

impl Lookups {
    /// Has a stack looked at by `requeue` once an answer is there.
    fn new(requeue: Requeue) -> Arc<Self> {
        let folders = Folders::new(requeue.clone());
        Arc::new(Self { folders, commits: Commits::new(requeue), waiting: Mutex::default() })
    }

    fn forget(&self, key: &ObjectKey) {
        self.folders.forget(key);
        self.commits.forget(key);
        self.waiting.lock().remove(key);
    }

    /// How long the new commit of a stack still waits for its comparison; nothing where it waits no longer.
    fn wait_for_comparison(&self, key: &ObjectKey, is_asking: bool) -> Option<Duration> {
        let mut waiting = self.waiting.lock();
        if !is_asking {
            waiting.remove(key);
            return None;
        }
        let since = waiting.entry(key.clone()).or_insert_with(Instant::now);
        COMPARISON.checked_sub(since.elapsed()).filter(|left| *left > Duration::ZERO)
    }
}

async fn look(services: Services, asked: Arc<Lookups>, key: ObjectKey) -> Result<Option<Duration>, ApiError> {
    let stacks = services.lookup.api::<Stack>()?;
    let (namespace, name) = &key;
    let mut stack = match stacks.get_opt(namespace, name).await? {
        Some(stack) if stack.metadata.deletion_timestamp.is_none() => stack,
        gone => {
            asked.forget(&key);
            return match gone {
                Some(stack) => remove(&services, &stack).await,
                None => Ok(None),
            };
        }
    };
    let origin = Origin::of(&services.lookup, &stack);
    let seen = look_for_folder(&services, &asked.folders, &key, origin.as_ref(), &stack);
    let head = readiness::head_of(origin.as_ref(), &stack);
    let answers = commits::compare(&services, &asked.commits, &stack, head.as_ref());
    let observed = stack.status.as_ref().and_then(|status| status.observed_commit.as_ref());
    // A commit of a source makes each of its stacks due, so a second write for the order would double the cost.
    let wait = asked.wait_for_comparison(&key, answers.is_asking && head.as_ref() != observed);
    let observe = |origin: Option<&Origin>, stack: &mut Stack| {
        seen.note(&mut stack.status.get_or_insert_default().missing_folder);
        answers.note(stack);
        match wait {
            Some(_) => readiness::set(&services.lookup, stack, None),
            None => readiness::observe_from(&services.lookup, origin, stack),
        }
    };
    let stored = stack.status.clone();
    observe(origin.as_ref(), &mut stack);
    // Most looks find what the write itself has noted.
    if stack.status != stored {
        let observe = |stack: &mut Stack| observe(Origin::of(&services.lookup, stack).as_ref(), stack);
        stacks.update_status_with(namespace, name, observe).await?;
    }
    let drift = look_for_drift(&services, &stack).await?;
    Ok(drift.into_iter().chain(seen.again()).chain(answers.again).chain(wait).min())
}

/// Looks for the folder of a stack that was deployed nowhere yet, or that is to be moved: a run of any other has found it.
fn look_for_folder(
    services: &Services,
    folders: &Folders,
    key: &ObjectKey,
    origin: Option<&Origin>,
    stack: &Stack,
) -> Seen {
    let mut deployments = stack.status.iter().flat_map(|status| &status.deployments);
    let is_deployed = deployments.any(|of| of.release.is_some() || of.resources > 0);
    let folder = || {
        let (source, path) = origin?.folder(stack);
        let commit = readiness::head_of(origin, stack)?;
        Some(Folder { source, commit, path, values_files: Vec::new() })
    };
    match (!is_deployed || allows_move(stack)).then(folder).flatten() {
        Some(folder) => folders.look(services, key, folder),
        None => Seen::Unknown,
    }
}

/// Starts a Refresh wherever `driftInterval` has passed; how long until the next is due.
async fn look_for_drift(services: &Services, stack: &Stack) -> Result<Option<Duration>, ApiError> {
    let every = stack.spec.drift_interval.parse().unwrap_or_default();
    if every == Duration::ZERO {
        return Ok(None);
    }
    let runs = runs_of(services, stack).await?;
    let now = services.now();
    let mut next = every;
    let deployments = stack.status.iter().flat_map(|status| &status.deployments);
    for deployment in deployments.filter(|d| d.release.is_some() && d.resources > 0) {
        let of_workspace = runs.iter().filter(|run| run.spec.workspace == deployment.workspace);
        let last = of_workspace.filter(|run| may_look(run, stack)).filter_map(|run| looked_ago(run, now)).min();
        match last.and_then(|ago| every.checked_sub(ago)).filter(|left| *left > Duration::ZERO) {
            Some(left) => next = next.min(left),
            None => {
                let mut run = run_of(stack, &deployment.workspace, Operation::Refresh);
                // Longer than until the next, which has to find it.
                run.spec.ttl_seconds_after_finished = i64::try_from((every * 2).as_secs() + 600).ok();
                // One that is refused, as without its workspace, keeps no other waiting.
                if let Err(error) = services.lookup.api::<Run>()?.create(&run).await {
                    let workspace = &deployment.workspace;
                    tracing::warn!(stack = stack.name_any(), workspace, %error, "drift is not looked for");
                    next = next.min(REFUSED);
                }
            }
        }
    }
    Ok(Some(next))
}

/// Whether a run is a look for drift that nobody asked for.
pub(super) fn is_look(run: &Run) -> bool {
    run.spec.operation == Operation::Refresh && is_internal(&status(run).requester)
}

/// Whether no other stack of the same name is known to be what a run was for.
pub(super) fn is_of(run: &Run, stack: &Stack) -> bool {
    status(run).stack_uid.is_none_or(|of| Some(of) == stack.metadata.uid)
}

/// Whether a run looks at what is live, or did: what is being changed is looked at afterwards, and what was changed was
/// looked at then. One that ended without a plan has seen nothing, but that a Refresh ended says that there was one.
fn may_look(run: &Run, stack: &Stack) -> bool {
    let (status, operation) = (status(run), run.spec.operation);
    let has_seen = !status.phase.is_terminal() || status.plan.is_some() || operation == Operation::Refresh;
    is_of(run, stack) && has_seen && operation != Operation::Preview
}

/// How long ago a Run looked at what is live; nothing where it waits for somebody or the clock was set back.
fn looked_ago(run: &Run, now: Timestamp) -> Option<Duration> {
    let waits_behind_others = status(run).phase == RunPhase::Pending && run.spec.operation != Operation::Refresh;
    if awaits_approval(run) || awaits_merge(run) || waits_behind_others {
        return None;
    }
    if !status(run).phase.is_terminal() {
        return Some(Duration::ZERO);
    }
    let Time(at) = status(run).completion_time?;
    Duration::try_from(now.duration_since(at)).ok()
}

/// A run of a stack that nobody asked for.
pub(super) fn run_of(stack: &Stack, workspace: &str, operation: Operation) -> Run {
    let mut run = Run::new("", RunSpec::new(stack.name_any(), workspace, operation));
    run.metadata.name = None;
    run.metadata.generate_name = Some(format!("{}-", stack.name_any()));
    run.metadata.namespace = stack.namespace();
    run
}

async fn remove(services: &Services, stack: &Stack) -> Result<Option<Duration>, ApiError> {
    if !stack.finalizers().iter().any(|f| f == labels::INFRASTRUCTURE_FINALIZER) {
        return Ok(None);
    }
    let began = Instant::now();
    let later = || Ok(Some(queue::wait_after_look(began.elapsed(), WAIT)));
    let effective = deletion::of_stack(&services.lookup, stack).await?;
    match effective.policy {
        DeletionPolicy::Destroy => {
            if destroy(services, stack).await? {
                return later();
            }
        }
        DeletionPolicy::Refuse => {
            if is_deployed(stack) || !recorded_in(services, stack).await?.is_empty() {
                // It was deployed after its deletion was admitted.
                let message = format!(
                    "the stack waits to be destroyed: its infrastructure is live and its deletionPolicy is {effective}"
                );
                services.recorder.record(stack, Kind::Warning, reason::TERMINATING, message);
                return later();
            }
        }
        DeletionPolicy::Orphan => {}
    }
    let mut is_busy = false;
    for run in active_runs(services, stack).await? {
        is_busy = true;
        // Merged after its run has ended, what it proposes would be deployed and nobody would know of it.
        if awaits_merge(&run) && effective.policy != DeletionPolicy::Orphan {
            let pull = status(&run).pull_request.map(|pull| pull.number).unwrap_or_default();
            let run = run.name_any();
            let message = format!("the stack waits until pull request {pull} of run {run} is merged or closed");
            services.recorder.record(stack, Kind::Warning, reason::TERMINATING, message);
            return later();
        }
        if !run.spec.cancel {
            update_same(&services.lookup.api::<Run>()?, &run, |r| r.spec.cancel = true).await?;
        }
    }
    if is_busy {
        return later();
    }
    let uid = stack.uid().unwrap_or_default();
    state::forget_stack(&*services.log, &uid).await.map_err(|error| {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            stack = stack.name_any(),
            "the state of a stack cannot be removed"
        );
        ApiError::internal("the storage failed")
    })?;
    remove_finalizer(&services.lookup.api::<Stack>()?, stack, labels::INFRASTRUCTURE_FINALIZER).await?;
    Ok(None)
}

/// The workspaces in which something of a stack is recorded; reads all records.
async fn recorded_in(services: &Services, stack: &Stack) -> Result<BTreeSet<String>, ApiError> {
    let recorded = state::workspaces_of(&*services.log, &stack.uid().unwrap_or_default()).await;
    recorded.map_err(|error| {
        let name = stack.name_any();
        tracing::error!(error = &error as &dyn std::error::Error, stack = name, "the state of a stack cannot be read");
        ApiError::internal("the storage failed")
    })
}

pub(super) async fn runs_of(services: &Services, stack: &Stack) -> Result<Vec<Run>, ApiError> {
    services.lookup.api::<Run>()?.list_with(stack.namespace().as_deref(), &of_stack(stack)).await
}

fn of_stack(stack: &Stack) -> ListOptions {
    let label_selector = Some(format!("{}={}", labels::STACK, stack.name_any()));
    ListOptions { label_selector, ..ListOptions::default() }
}

async fn active_runs(services: &Services, stack: &Stack) -> Result<Vec<Run>, ApiError> {
    let options = ListOptions { field_selector: Some(UNDER_WAY.to_owned()), ..of_stack(stack) };
    let is_active = |run: Run| (!status(&run).phase.is_terminal()).then_some(run);
    services.lookup.api::<Run>()?.list_of(stack.namespace().as_deref(), &options, is_active).await
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use serde_json::json;
    use stoa_kinds::testing::deploying;
    use stoa_machinery::{Key, log, registry::DeleteOptions};
    use stoa_runs::testing::unreachable_runner;
    use stoa_types::common::condition;

    use super::*;
    use crate::testing::TestServer;

    /// A world in which the stack goes, and is destroyed before where it is deployed. A run that is to change it waits.
    async fn going() -> TestServer {
        let world = TestServer::with_runner(unreachable_runner()).await;
        let stacks = world.registry.api::<Stack>();
        world.create("Run", "change", json!({"stack": "web", "workspace": "dev", "operation": "Apply"})).await;
        let destroy = |stack: &mut Stack| stack.spec.deletion_policy = Some(DeletionPolicy::Destroy);
        stacks.update_with("shop", "web", destroy).await.unwrap();
        deploy(&world, 1).await;
        stacks.delete("shop", "web", &DeleteOptions::default()).await.unwrap();
        world
    }

    async fn deploy(world: &TestServer, resources: u64) {
        let set = deploying(json!([{"workspace": "dev", "resources": resources}]));
        world.registry.api::<Stack>().update_status_with("shop", "web", set).await.unwrap();
    }

    async fn enter(world: &TestServer, run: &str, phase: RunPhase) {
        let set = |run: &mut Run| run.status.get_or_insert_default().phase = phase;
        world.registry.api::<Run>().update_status_with("shop", run, set).await.unwrap();
    }

    async fn destroys(world: &TestServer) -> Vec<Run> {
        let runs = world.registry.api::<Run>().list(Some("shop"), "").await.unwrap();
        runs.into_iter().filter(|run| run.spec.operation == Operation::Destroy).collect()
    }

    /// Waits until something is so, which changes with a stack or a run.
    async fn until(world: &TestServer, is_so: impl AsyncFn() -> bool) {
        let (runs, stacks) = (world.registry.api::<Run>(), world.registry.api::<Stack>());
        let mut changes = stream::select(runs.subscribe(None).map(drop), stacks.subscribe(None).map(drop));
        let so = async {
            while !is_so().await {
                changes.next().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_hours(1), so).await.expect("it gets there");
    }

    #[tokio::test]
    async fn deleting_stack_rereads_records_only_after_destroys() {
        let world = going().await;
        let asked = Lookups::new(Requeue::default());
        let key = || ("shop".to_owned(), "web".to_owned());
        let look = async || look(world.services.clone(), asked.clone(), key()).await.unwrap();
        let destroyed_in =
            async || -> BTreeSet<String> { destroys(&world).await.into_iter().map(|run| run.spec.workspace).collect() };
        let wait = look().await.unwrap();
        assert!(WAIT.contains(&wait), "{wait:?}");
        assert_eq!(destroyed_in().await, BTreeSet::from(["dev".to_owned()]));

        // What nothing but its record tells of.
        let uid = world.registry.api::<Stack>().get("shop", "web").await.unwrap().uid().unwrap();
        world.create("Workspace", "prod", json!({"backend": {"name": "default"}})).await;
        let open = json!({"id": "v1:Namespace:a", "intent": {"action": "Create", "run": "lost"}}).to_string();
        let write = log::Write::new(
            Key::new(format!("/stoa/state/{uid}/prod/resources/v1:Namespace:a")),
            log::Expect::Absent,
            log::Change::Put(open.into()),
        );
        world.services.log.append(write).await.unwrap();
        look().await;
        assert_eq!(destroyed_in().await, BTreeSet::from(["dev".to_owned()]));
        deploy(&world, 0).await;
        look().await;
        assert_eq!(
            destroyed_in().await,
            BTreeSet::from(["dev", "prod"].map(str::to_owned)),
            "it is found out in the end"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn run_end_rechecks_deleting_stack_immediately() {
        let world = going().await;
        let (start, end) = (Instant::now(), CancellationToken::new());
        let driven = tokio::spawn(run(world.services.clone(), end.clone()));
        until(&world, async || !destroys(&world).await.is_empty()).await;
        let runs = world.registry.api::<Run>();
        enter(&world, "change", RunPhase::AwaitingApproval).await;
        until(&world, async || runs.get("shop", "change").await.unwrap().spec.cancel).await;
        enter(&world, "change", RunPhase::Canceled).await;
        deploy(&world, 0).await;
        enter(&world, &destroys(&world).await[0].name_any(), RunPhase::Succeeded).await;
        let stacks = world.registry.api::<Stack>();
        until(&world, async || stacks.get_opt("shop", "web").await.unwrap().is_none()).await;
        assert!(start.elapsed() < *WAIT.start(), "{:?}", start.elapsed());
        end.cancel();
        driven.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn deleted_workspace_clears_its_failure_from_stack() {
        let world = TestServer::with_runner(unreachable_runner()).await;
        let stacks = world.registry.api::<Stack>();
        let deployed = json!([{"workspace": "dev", "resources": 0, "phase": "Failed", "lastRun": "one"}]);
        let fail = |stack: &mut Stack| {
            stack.status.get_or_insert_default().deployments = serde_json::from_value(deployed.clone()).unwrap();
        };
        stacks.update_status_with("shop", "web", fail).await.unwrap();
        let is_ready = async |why: &str| {
            let stack = stacks.get("shop", "web").await.unwrap();
            condition(&stack.status.unwrap().conditions, reason::READY).is_some_and(|ready| ready.reason == why)
        };
        let end = CancellationToken::new();
        let driven = tokio::spawn(run(world.services.clone(), end.clone()));
        until(&world, async || is_ready(reason::RUN_FAILED).await).await;
        world.registry.api::<Workspace>().delete("", "dev", &DeleteOptions::default()).await.unwrap();
        until(&world, async || is_ready(reason::NOT_DEPLOYED).await).await;
        end.cancel();
        driven.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn new_commit_waits_seconds_for_its_comparison() {
        let asked = Lookups::new(Requeue::default());
        let key = ("shop".to_owned(), "web".to_owned());
        assert_eq!(asked.wait_for_comparison(&key, true), Some(COMPARISON));
        tokio::time::advance(COMPARISON / 2).await;
        assert_eq!(asked.wait_for_comparison(&key, true), Some(COMPARISON / 2));
        tokio::time::advance(COMPARISON / 2).await;
        assert_eq!(asked.wait_for_comparison(&key, true), None, "it is written without the order");
        assert_eq!(asked.wait_for_comparison(&key, false), None);
        assert_eq!(asked.wait_for_comparison(&key, true), Some(COMPARISON), "the next commit waits again");
    }

    #[test]
    fn run_that_saw_nothing_is_no_look_for_drift() {
        let stack = json!({"metadata": {"name": "web", "uid": "this"}, "spec": {"project": "shop", "path": "web"}});
        let stack: Stack = serde_json::from_value(stack).unwrap();
        let plan = json!({"digest": "d"});
        for (operation, status, looks) in [
            ("Apply", json!({"phase": "Succeeded", "plan": plan, "stackUID": "this"}), true),
            ("Apply", json!({"phase": "Failed", "plan": plan}), true),
            ("Apply", json!({"phase": "Planning"}), true),
            ("Apply", json!({"phase": "Canceled"}), false),
            ("Apply", json!({"phase": "Failed", "stackUID": "this"}), false),
            ("Apply", json!({"phase": "Succeeded", "plan": plan, "stackUID": "that"}), false),
            ("Refresh", json!({"phase": "Failed"}), true),
            ("Refresh", json!({"phase": "Failed", "stackUID": "that"}), false),
            ("Preview", json!({"phase": "Succeeded", "plan": plan}), false),
        ] {
            let spec = json!({"stack": "web", "workspace": "dev", "operation": operation});
            let run: Run = serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": status})).unwrap();
            assert_eq!(may_look(&run, &stack), looks, "{operation} {status}");
        }
    }
}
