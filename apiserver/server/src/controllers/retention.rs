//! Retention: a Workspace says how many runs and releases of each stack are kept, and others go.
//!
//! What is needed is never among them: the current release, releases that a rollback under way goes back to, or a step of
//! a workflow that has not ended, runs that have not ended, previews that an apply under way carries out, runs of such
//! workflows, and runs that a stack's status names. What was given to somebody since that was read is found right before
//! previews or releases go. Plans of pull requests do not count: who made them removes them, and
//! would make them again. Nor do looks for drift, of which there are a few at a time, each for its time: they would take the places
//! of what people did, and be made again where there is room for fewer. The documents of what went are removed by `garbage`.

pub(crate) mod deleted;

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde::de::IgnoredAny;
use stoa_controller::{
    index::Member,
    object::{Kind, ObjectKey},
    queue::{self, FirstError, Trigger},
};
use stoa_kinds::{pull_request, run_status::status, run_view::OfRunStatus};
use stoa_machinery::{
    ApiError,
    registry::{Api, ListOptions},
};
use stoa_runs::Services;
use stoa_types::{
    Release, Resource, Run, Stack, Workflow, Workspace,
    delivery::{Operation, ReleaseSpec, RunSpec},
    labels,
    platform::{Retention, WorkspaceSpec},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    cooldown::Cooldown,
    references::{self, gone_back_to},
    stacks,
};

/// How often it is looked whether what was needed still is: by then nothing else may happen in the workspace.
const AGAIN: Duration = Duration::from_mins(10);
/// How long what happens in a workspace is gathered: each look reads all that is on record there.
const GATHER: Duration = Duration::from_secs(30);

type Deployment = (String, String, String);

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let Ok(registry) = services.lookup.registry() else { return };
    let of = |workspace: &str| (String::new(), workspace.to_owned());
    let triggers = vec![
        Trigger::on_change(&registry.api::<Workspace>(), |w: &Member<WorkspaceSpec, IgnoredAny>| vec![w.key()]),
        Trigger::on_part(&registry.api::<Run>(), move |run: &Member<RunSpec, OfRunStatus>| {
            let has_ended = run.status.as_ref().is_some_and(|status| status.phase.is_terminal());
            has_ended.then(|| of(&run.spec.workspace)).into_iter().collect()
        })
        .within(GATHER),
        Trigger::on_part(&registry.api::<Release>(), move |release: &Member<ReleaseSpec, IgnoredAny>| {
            vec![of(&release.spec.workspace)]
        })
        .within(GATHER),
    ];
    let cooldown = Cooldown::default();
    queue::drive(services.queues.of("retention"), triggers, end, |key| look(services.clone(), cooldown.clone(), key))
        .await;
}

async fn look(services: Services, cooldown: Cooldown, (_, name): ObjectKey) -> Result<Option<Duration>, ApiError> {
    let Some(workspace) = services.lookup.api::<Workspace>()?.get_opt("", &name).await? else {
        cooldown.forget(&name);
        return Ok(None);
    };
    let Some(retention) = workspace.spec.retention.filter(|kept| kept.runs.is_some() || kept.releases.is_some()) else {
        return Ok(None);
    };
    if let Some(left) = cooldown.left(&name) {
        return Ok(Some(left));
    }
    let began = Instant::now();
    let removed = remove_excess(&services, &name, &retention).await;
    cooldown.begin(&name, began, AGAIN);
    removed?;
    Ok(Some(AGAIN))
}

/// Removes what is beyond what a workspace keeps.
async fn remove_excess(services: &Services, workspace: &str, retention: &Retention) -> Result<(), ApiError> {
    let of_workspace =
        ListOptions { field_selector: Some(format!("spec.workspace={workspace}")), ..ListOptions::default() };
    let (runs, releases, resources) =
        (services.lookup.api::<Run>()?, services.lookup.api::<Release>()?, services.lookup.api::<Resource>()?);
    let named = |stack: Stack| Some(named_by(&stack).collect::<Vec<_>>());
    let named = services.lookup.api::<Stack>()?.list_of(None, &ListOptions::default(), named).await?;
    let named = named.into_iter().flatten().collect();
    // What refers to others is read after them, so that what is made meanwhile has found them or is found here.
    let all_releases = releases.list_of(None, &of_workspace, |release| Some(OfRelease::of(&release))).await?;
    let all_resources = resources.list_of(None, &of_workspace, |resource| OfResource::of(&resource)).await?;
    let all_runs = runs.list_of(None, &of_workspace, |run| Some(OfRun::of(&run))).await?;
    // They have to see how their runs did.
    let workflows = references::workflows_under_way(&services.lookup, None).await?;
    // One that cannot be deleted keeps no other.
    let mut failed = FirstError::default();
    if let Some(kept) = retention.releases {
        let excess = excess_releases(&all_releases, &all_runs, &workflows, kept_of(kept));
        let excess: Vec<&Read> = excess.into_iter().map(|release| &release.read).collect();
        let gone = remove_releases(services, &excess, &mut failed).await;
        let left = all_releases.iter().filter(|release| !gone.contains(&release.read.key));
        for resource in excess_resources(&all_resources, left) {
            failed.note(remove_resource(services, &resource.read).await);
        }
    }
    if let Some(kept) = retention.runs {
        let workflows: HashSet<ObjectKey> = workflows.iter().map(queue::key_of).collect();
        let is_needed = |run: &&OfRun| run.workflow.as_ref().is_some_and(|workflow| workflows.contains(workflow));
        let excess = excess_runs(&all_runs, named, kept_of(kept)).into_iter().filter(|run| !is_needed(run));
        let excess: Vec<&Read> = excess.map(|run| &run.read).collect();
        remove_runs(services, &excess, &mut failed).await;
    }
    failed.told()
}

/// Removes releases as they were read, but those that somebody goes back to by now; the keys of those that go.
async fn remove_releases(services: &Services, releases: &[&Read], failed: &mut FirstError) -> HashSet<ObjectKey> {
    let mut gone = HashSet::new();
    for batch in releases.chunks(references::BATCH) {
        let read: Vec<Release> = all_unchanged(services, batch, failed).await;
        let needed = references::to_be_gone_back_to(&services.lookup, &read.iter().collect::<Vec<_>>()).await;
        gone.extend(remove(services, &read, needed, failed).await);
    }
    gone
}

/// Removes runs as they were read, but those whose plans somebody carries out by now; the keys of those that go.
async fn remove_runs(services: &Services, runs: &[&Read], failed: &mut FirstError) -> HashSet<ObjectKey> {
    let mut gone = HashSet::new();
    for batch in runs.chunks(references::BATCH) {
        let read: Vec<Run> = all_unchanged(services, batch, failed).await;
        let needed = references::to_be_carried_out(&services.lookup, &read.iter().collect::<Vec<_>>()).await;
        gone.extend(remove(services, &read, needed, failed).await);
    }
    gone
}

async fn remove<K: Kind>(
    services: &Services,
    objects: &[K],
    needed: Result<HashSet<ObjectKey>, ApiError>,
    failed: &mut FirstError,
) -> Vec<ObjectKey> {
    let mut gone = Vec::new();
    let (Some(needed), Some(api)) = (failed.note(needed), failed.note(services.lookup.api::<K>())) else { return gone };
    for (key, object) in objects.iter().map(|object| (queue::key_of(object), object)) {
        if !needed.contains(&key) && failed.note(queue::delete(&api, object).await) == Some(true) {
            gone.push(key);
        }
    }
    gone
}

/// Those of the objects that are there as they were read.
async fn all_unchanged<K: Kind>(services: &Services, read: &[&Read], failed: &mut FirstError) -> Vec<K> {
    let mut all = Vec::new();
    let Some(api) = failed.note(services.lookup.api::<K>()) else { return all };
    for read in read {
        all.extend(failed.note(unchanged(&api, read).await).flatten());
    }
    all
}

/// Removes a resource's record as it was read; whether it goes.
async fn remove_resource(services: &Services, read: &Read) -> Result<bool, ApiError> {
    let resources = services.lookup.api::<Resource>()?;
    match unchanged(&resources, read).await? {
        Some(resource) => queue::delete(&resources, &resource).await,
        None => Ok(false),
    }
}

/// What was read, if it is there as it was: what changed since is decided about again.
async fn unchanged<K: Kind>(api: &Api<K>, read: &Read) -> Result<Option<K>, ApiError> {
    let found = api.get_opt(&read.key.0, &read.key.1).await?;
    Ok(found.filter(|found| found.meta().resource_version == read.version))
}

/// Which object was read. There may be many, of which little is needed to decide: a decoded one takes several times its bytes.
#[derive(Debug)]
struct Read {
    key: ObjectKey,
    version: Option<String>,
    is_going: bool,
}

impl Read {
    fn of<K: Kind>(object: &K) -> Self {
        let metadata = object.meta();
        let is_going = metadata.deletion_timestamp.is_some();
        Self { key: queue::key_of(object), version: metadata.resource_version.clone(), is_going }
    }
}

#[derive(Debug)]
struct OfRun {
    read: Read,
    of: Deployment,
    has_ended: bool,
    /// Whether somebody else removes it: it is a plan of a pull request, or a look for drift.
    is_apart: bool,
    ended_at: (Option<Timestamp>, u64),
    carries_out: Option<ObjectKey>,
    back_to: Option<i64>,
    workflow: Option<ObjectKey>,
}

impl OfRun {
    fn of(run: &Run) -> Self {
        let namespace = run.namespace().unwrap_or_default();
        let status = status(run);
        let beside = |name: &String| (namespace.clone(), name.clone());
        let version = run.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default();
        Self {
            read: Read::of(run),
            of: (namespace.clone(), run.spec.stack.clone(), run.spec.workspace.clone()),
            has_ended: status.phase.is_terminal(),
            is_apart: pull_request::is_plan(run) || is_kept_look(run),
            ended_at: (status.completion_time.map(|Time(at)| at), version),
            carries_out: run.spec.plan.as_ref().map(beside),
            back_to: run.spec.release.filter(|_| run.spec.planned() == Operation::Rollback),
            workflow: run.labels().get(labels::WORKFLOW).map(beside),
        }
    }

    /// When it ended. Of those that did in the same second, the one that was written last did last.
    fn end(&self) -> (Option<Timestamp>, u64, &str) {
        let (at, version) = self.ended_at;
        (at, version, self.read.key.1.as_str())
    }
}

/// Whether a run is a look for drift that goes by itself after a while.
fn is_kept_look(run: &Run) -> bool {
    stacks::is_look(run) && run.spec.ttl_seconds_after_finished.is_some()
}

#[derive(Debug)]
struct OfRelease {
    read: Read,
    of: Deployment,
    /// Another stack of the same name has a history of its own.
    stack_uid: String,
    revision: i64,
}

impl OfRelease {
    fn of(release: &Release) -> Self {
        let spec = &release.spec;
        let of = (release.namespace().unwrap_or_default(), spec.stack.clone(), spec.workspace.clone());
        Self { read: Read::of(release), of, stack_uid: spec.stack_uid.clone(), revision: spec.revision }
    }
}

#[derive(Debug)]
struct OfResource {
    read: Read,
    of: Deployment,
    release: i64,
}

impl OfResource {
    /// Nothing of one that is there, or of which nobody knows in which release it was destroyed.
    fn of(resource: &Resource) -> Option<Self> {
        let is_gone = resource.status.as_ref().is_some_and(|status| status.phase.is_gone());
        let spec = &resource.spec;
        let of = (resource.namespace().unwrap_or_default(), spec.stack.clone(), spec.workspace.clone());
        Some(Self { read: Read::of(resource), of, release: spec.release.filter(|_| is_gone)? })
    }
}

fn kept_of(kept: i64) -> usize {
    usize::try_from(kept).unwrap_or(usize::MAX).max(1)
}

/// The runs that a stack's status names: the last ones, and those that are followed.
fn named_by(stack: &Stack) -> impl Iterator<Item = ObjectKey> {
    let status = stack.status.as_ref();
    let deployments = status.into_iter().flat_map(|status| &status.deployments);
    let last = deployments
        .flat_map(|of| of.last_run.clone().into_iter().chain(of.before.as_ref().map(|before| before.run.clone())));
    let started = status.and_then(|status| status.trigger.as_ref()).into_iter().flat_map(|trigger| &trigger.started);
    let followed = started.filter(|started| started.phase.is_none()).map(|started| started.run.clone());
    let namespace = stack.namespace().unwrap_or_default();
    last.chain(followed).map(move |run| (namespace.clone(), run))
}

/// The ended runs beyond the newest ones of each stack, but those that somebody needs, as who names them does.
fn excess_runs(runs: &[OfRun], named: HashSet<ObjectKey>, kept: usize) -> Vec<&OfRun> {
    let mut needed = named;
    let mut ended: HashMap<&Deployment, Vec<&OfRun>> = HashMap::new();
    for run in runs {
        if run.has_ended && !run.is_apart {
            ended.entry(&run.of).or_default().push(run);
        } else {
            needed.extend(run.carries_out.clone());
        }
    }
    let mut excess = Vec::new();
    for mut runs in ended.into_values() {
        runs.sort_by(|a, b| b.end().cmp(&a.end()));
        excess.extend(runs.into_iter().skip(kept));
    }
    excess.retain(|run| !run.read.is_going && !needed.contains(&run.read.key));
    excess.sort_by_key(|run| run.read.key.clone());
    excess
}

/// The releases beyond the newest ones of each stack, but those that a run or a workflow under way goes back to.
fn excess_releases<'a>(
    releases: &'a [OfRelease],
    runs: &[OfRun],
    workflows: &[Workflow],
    kept: usize,
) -> Vec<&'a OfRelease> {
    let under_way = runs.iter().filter(|run| !run.has_ended);
    let needed: HashSet<(&Deployment, i64)> = under_way.filter_map(|run| Some((&run.of, run.back_to?))).collect();
    let planned: HashSet<(String, String, i64)> = workflows.iter().flat_map(gone_back_to).collect();
    let mut histories: HashMap<(&Deployment, &str), Vec<&OfRelease>> = HashMap::new();
    for release in releases {
        histories.entry((&release.of, &release.stack_uid)).or_default().push(release);
    }
    let mut excess = Vec::new();
    for mut releases in histories.into_values() {
        releases.sort_by_key(|release| std::cmp::Reverse(release.revision));
        excess.extend(releases.into_iter().skip(kept));
    }
    excess.retain(|release| {
        let (namespace, stack, _) = &release.of;
        !release.read.is_going
            && !needed.contains(&(&release.of, release.revision))
            && !planned.contains(&(namespace.clone(), stack.clone(), release.revision))
    });
    excess.sort_by_key(|release| (release.of.clone(), release.revision));
    excess
}

/// The records of what was destroyed before any release that is left.
fn excess_resources<'a>(resources: &'a [OfResource], left: impl Iterator<Item = &'a OfRelease>) -> Vec<&'a OfResource> {
    let mut first: HashMap<&Deployment, i64> = HashMap::new();
    for release in left {
        let oldest = first.entry(&release.of).or_insert(i64::MAX);
        *oldest = release.revision.min(*oldest);
    }
    let is_excess = |of: &&OfResource| first.get(&of.of).is_some_and(|oldest| of.release < *oldest);
    resources.iter().filter(is_excess).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestServer;
    use serde_json::{Value, json};
    use stoa_runs::testing::unreachable_runner;
    use stoa_types::delivery::{RunPhase, WorkflowPhase};

    fn object<K: Kind>(kind: &str, name: &str, spec: Value, status: Value) -> K {
        let metadata = json!({"name": name, "namespace": "shop"});
        let object = json!({"apiVersion": "x/v1", "kind": kind, "metadata": metadata, "spec": spec, "status": status});
        serde_json::from_value(object).unwrap()
    }

    /// A run of stack `web` in workspace `dev` that ended in this minute, or has not.
    fn run(name: &str, ended: Option<u8>, more: Value) -> Run {
        let mut spec = json!({"stack": "web", "workspace": "dev", "operation": "Apply"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let phase = if ended.is_some() { RunPhase::Succeeded } else { RunPhase::Pending };
        let at = ended.map(|minute| format!("2026-01-01T00:{minute:02}:00Z"));
        object("Run", name, spec, json!({"phase": phase, "requester": {"username": "ann"}, "completionTime": at}))
    }

    fn release(revision: i64, uid: &str) -> Release {
        let spec = json!({"stack": "web", "stackUID": uid, "workspace": "dev", "revision": revision, "run": "r",
            "planDigest": "p", "specDigest": "s", "stateDigest": "t"});
        object("Release", &format!("web.dev.{revision}.{uid}"), spec, Value::Null)
    }

    /// The names of the runs that go.
    fn excess_of(runs: &[Run], named: HashSet<ObjectKey>, kept: usize) -> Vec<String> {
        let runs: Vec<OfRun> = runs.iter().map(OfRun::of).collect();
        excess_runs(&runs, named, kept).into_iter().map(|run| run.read.key.1.clone()).collect()
    }

    /// The names of the releases that go.
    fn releases_of(releases: &[Release], runs: &[Run], workflows: &[Workflow], kept: usize) -> Vec<String> {
        let releases: Vec<OfRelease> = releases.iter().map(OfRelease::of).collect();
        let runs: Vec<OfRun> = runs.iter().map(OfRun::of).collect();
        let excess = excess_releases(&releases, &runs, workflows, kept);
        excess.into_iter().map(|release| release.read.key.1.clone()).collect()
    }

    /// The names of the records that go.
    fn resources_of(resources: &[Resource], left: &[Release]) -> Vec<String> {
        let resources: Vec<OfResource> = resources.iter().filter_map(OfResource::of).collect();
        let left: Vec<OfRelease> = left.iter().map(OfRelease::of).collect();
        excess_resources(&resources, left.iter()).into_iter().map(|of| of.read.key.1.clone()).collect()
    }

    #[test]
    fn newest_runs_are_kept_and_those_that_somebody_needs() {
        let none = json!({});
        let runs = [
            run("a", Some(1), none.clone()),
            run("b", Some(2), none.clone()),
            run("c", Some(3), none.clone()),
            run("d", Some(4), none.clone()),
            run("other-stack", Some(0), json!({"stack": "api"})),
            run("other-workspace", Some(0), json!({"workspace": "prod"})),
            run("waits", None, none.clone()),
        ];
        assert_eq!(excess_of(&runs, HashSet::new(), 2), ["a", "b"]);
        assert_eq!(excess_of(&runs, HashSet::new(), 4), [""; 0]);
        let at_once = [("a", "10"), ("b", "9")].map(|(name, version)| {
            let mut run = run(name, Some(1), none.clone());
            run.metadata.resource_version = Some(version.to_owned());
            run
        });
        assert_eq!(excess_of(&at_once, HashSet::new(), 1), ["b"], "which was written before the other");
        let applies = [&runs[..], &[run("applies", None, json!({"plan": "a"}))]].concat();
        assert_eq!(excess_of(&applies, HashSet::new(), 2), ["b"], "a plan that is carried out");
        let status = json!({"deployments": [{"workspace": "dev", "lastRun": "b"}],
            "trigger": {"started": [{"workspace": "dev", "number": 1, "run": "a"}]}});
        let stack: Stack = object("Stack", "web", json!({"project": "web"}), status);
        assert_eq!(excess_of(&runs, named_by(&stack).collect(), 2), [""; 0], "what the stack's status names");
        let mut plan = run("plan", Some(5), none);
        plan.labels_mut().insert(labels::PULL_REQUEST.to_owned(), "7".to_owned());
        let by_somebody = [&runs[..], &[plan.clone()]].concat();
        assert_eq!(excess_of(&by_somebody, HashSet::new(), 4), ["a"], "a label is anybody's");
        plan.status.get_or_insert_default().requester.username = pull_request::USER.to_owned();
        let with_plan = [&runs[..], &[plan]].concat();
        assert_eq!(excess_of(&with_plan, HashSet::new(), 4), [""; 0], "a plan of a pull request takes no run's place");
        let refresh = |ttl: Option<i64>, username: &str| {
            let mut run = run("look", Some(5), json!({"operation": "Refresh", "ttlSecondsAfterFinished": ttl}));
            let requester = &mut run.status.get_or_insert_default().requester;
            (requester.username, requester.groups) = (username.to_owned(), vec!["system:masters".to_owned()]);
            [&runs[..], &[run]].concat()
        };
        let excess = |runs: Vec<Run>| excess_of(&runs, HashSet::new(), 4);
        assert_eq!(excess(refresh(Some(60), "system:stoa:stacks")), [""; 0], "nor does a look for drift");
        assert_eq!(excess(refresh(Some(60), "ann")), ["a"], "somebody asked for it");
        assert_eq!(excess(refresh(None, "system:stoa:stacks")), ["a"], "nobody else removes it");
    }

    #[test]
    fn retention_spares_newest_and_referenced_releases() {
        let releases =
            [release(9, "u"), release(10, "u"), release(11, "u"), release(1, "before"), release(2, "before")];
        assert_eq!(releases_of(&releases, &[], &[], 2), ["web.dev.9.u"]);
        assert_eq!(releases_of(&releases, &[], &[], 1), ["web.dev.1.before", "web.dev.9.u", "web.dev.10.u"]);
        let back = [run("back", None, json!({"operation": "Rollback", "release": 9}))];
        assert_eq!(releases_of(&releases, &back, &[], 2), [""; 0]);
        let done = [run("back", Some(1), json!({"operation": "Rollback", "release": 9}))];
        assert_eq!(releases_of(&releases, &done, &[], 2), ["web.dev.9.u"]);
        let elsewhere = [run("back", None, json!({"operation": "Rollback", "release": 9, "workspace": "prod"}))];
        assert_eq!(releases_of(&releases, &elsewhere, &[], 2), ["web.dev.9.u"]);
        let step = |stack: &str, release: i64| json!({"name": "back", "when": "Failure", "run": {"stack": stack, "operation": "Rollback", "release": release}});
        let workflow = |steps: Value| -> [Workflow; 1] {
            [object("Workflow", "deploys", json!({"stack": "web", "steps": steps}), Value::Null)]
        };
        let later = workflow(json!([step("", 9)]));
        assert_eq!(releases_of(&releases, &[], &later, 2), [""; 0], "a step may be to come");
        let of_another = workflow(json!([step("api", 9)]));
        assert_eq!(releases_of(&releases, &[], &of_another, 2), ["web.dev.9.u"]);
    }

    #[test]
    fn destroyed_resource_records_expire_with_older_releases() {
        let resource = |name: &str, release: Option<i64>, phase: &str| -> Resource {
            let spec =
                json!({"stack": "web", "workspace": "dev", "id": name, "type": "Kubernetes", "release": release});
            object("Resource", name, spec, json!({"phase": phase, "health": ""}))
        };
        let resources = [
            resource("gone-long-ago", Some(1), "Destroyed"),
            resource("gone", Some(2), "Destroyed"),
            resource("gone-nobody-knows-when", None, "Destroyed"),
            resource("old", Some(1), "Applied"),
        ];
        let left = [release(2, "u"), release(3, "u")];
        assert_eq!(resources_of(&resources, &left), ["gone-long-ago"]);
        assert_eq!(resources_of(&resources, &[]), [""; 0]);
    }

    /// Whether a run that was read is removed.
    async fn remove_run(world: &TestServer, run: &Run) -> bool {
        let mut failed = FirstError::default();
        let gone = remove_runs(&world.services, &[&Read::of(run)], &mut failed).await;
        failed.told().unwrap();
        gone.contains(&queue::key_of(run))
    }

    /// The same of a release.
    async fn remove_release(world: &TestServer, release: &Release) -> bool {
        let mut failed = FirstError::default();
        let gone = remove_releases(&world.services, &[&Read::of(release)], &mut failed).await;
        failed.told().unwrap();
        gone.contains(&queue::key_of(release))
    }

    async fn end(world: &TestServer, run: &str) {
        let end = |run: &mut Run| run.status.get_or_insert_default().phase = RunPhase::Succeeded;
        world.registry.api::<Run>().update_status_with("shop", run, end).await.unwrap();
    }

    /// A world whose workspace keeps one run, and in which three have ended.
    async fn keeping_one() -> TestServer {
        let world = TestServer::with_runner(unreachable_runner()).await;
        let keep = |workspace: &mut Workspace| {
            workspace.spec.retention = Some(Retention { runs: Some(1), ..Retention::default() });
        };
        world.registry.api::<Workspace>().update_with("", "dev", keep).await.unwrap();
        for name in ["a", "b", "c"] {
            world.create("Run", name, json!({"stack": "web", "workspace": "dev", "operation": "Preview"})).await;
            end(&world, name).await;
        }
        world
    }

    /// Looks at the workspace; the runs that are not going then.
    async fn left(world: &TestServer, cooldown: &Cooldown) -> Vec<String> {
        look(world.services.clone(), cooldown.clone(), (String::new(), "dev".to_owned())).await.unwrap();
        let runs = world.registry.api::<Run>().list(Some("shop"), "").await.unwrap();
        runs.iter().filter(|run| run.metadata.deletion_timestamp.is_none()).map(|run| run.name_any()).collect()
    }

    #[tokio::test]
    async fn cooldown_defers_next_workspace_pass() {
        let (world, cooldown) = (keeping_one().await, Cooldown::default());
        cooldown.set("dev", AGAIN);
        assert_eq!(left(&world, &cooldown).await, ["a", "b", "c"]);
        cooldown.forget("dev");
        assert_eq!(left(&world, &cooldown).await, ["c"], "the others ended before it");
        assert!(cooldown.until("dev").is_some());
    }

    #[tokio::test]
    async fn run_that_changed_since_it_was_read_stays() {
        let world = keeping_one().await;
        let runs = world.registry.api::<Run>();
        let read = runs.get("shop", "a").await.unwrap();
        let change = |run: &mut Run| run.status.get_or_insert_default().phase = RunPhase::Failed;
        runs.update_status_with("shop", "a", change).await.unwrap();
        assert!(!remove_run(&world, &read).await);
        let read = runs.get("shop", "a").await.unwrap();
        assert!(remove_run(&world, &read).await);
    }

    #[tokio::test]
    async fn newly_referenced_preview_survives_removal() {
        let world = TestServer::with_runner(unreachable_runner()).await;
        let runs = world.registry.api::<Run>();
        world.create("Run", "preview", json!({"stack": "web", "workspace": "dev", "operation": "Preview"})).await;
        end(&world, "preview").await;
        let read = runs.get("shop", "preview").await.unwrap();
        let apply = json!({"stack": "web", "workspace": "dev", "operation": "Apply", "plan": "preview"});
        world.create("Run", "apply", apply).await;
        assert!(!remove_run(&world, &read).await);
        assert_eq!(runs.get("shop", "preview").await.unwrap(), read);
        end(&world, "apply").await;
        assert!(remove_run(&world, &read).await);
        assert!(runs.get("shop", "preview").await.unwrap().metadata.deletion_timestamp.is_some());
    }

    #[tokio::test]
    async fn newly_referenced_release_survives_removal() {
        let world = TestServer::with_runner(unreachable_runner()).await;
        let uid = world.registry.api::<Stack>().get("shop", "web").await.unwrap().uid();
        let spec = json!({"stack": "web", "stackUID": uid, "workspace": "dev", "revision": 1, "run": "r",
            "planDigest": "", "specDigest": "", "stateDigest": ""});
        world.create("Release", "web.dev.1", spec).await;
        let releases = world.registry.api::<Release>();
        let read = releases.get("shop", "web.dev.1").await.unwrap();
        let back = json!({"stack": "web", "workspace": "dev", "operation": "Rollback", "release": 1});
        world.create("Run", "back", back).await;
        assert!(!remove_release(&world, &read).await);
        end(&world, "back").await;
        let step = json!({"name": "back", "run": {"operation": "Rollback", "release": 1, "workspaces": ["dev"],
            "maxParallel": 10, "timeout": "1h"}});
        world.create("Workflow", "goes-back", json!({"stack": "web", "steps": [step]})).await;
        assert!(!remove_release(&world, &read).await);
        let end = |workflow: &mut Workflow| workflow.status.get_or_insert_default().phase = WorkflowPhase::Succeeded;
        world.registry.api::<Workflow>().update_status_with("shop", "goes-back", end).await.unwrap();
        assert!(remove_release(&world, &read).await);
        assert!(releases.get_opt("shop", "web.dev.1").await.unwrap().is_none());
    }
}
