//! Retention: a Workspace says how many runs and releases of each stack are kept, and others go.
//!
//! What is needed is never among them: the current release, releases that a rollback under way goes back to, or a step of
//! a workflow that has not ended, runs that have not ended, previews that an apply under way carries out, runs of such
//! workflows, and runs that a stack's status names. What was given to somebody since that was read is found right before
//! previews or releases go ([`needed`]). Plans of pull requests do not count: who made them removes them, and
//! would make them again. The documents of what went are removed by `garbage`.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde::{Deserialize, de::IgnoredAny};
use stoa_machinery::{ApiError, registry::ListOptions};
use stoa_types::{
    Release, Resource, Run, Stack, Workflow, Workspace,
    delivery::{Operation, RunPhase},
    labels,
};
use tokio_util::sync::CancellationToken;

use super::{
    groups::{GATHER, Member},
    needed::{self, gone_back_to},
    pull_requests,
    queue::{self, FirstError, ObjectKey, Trigger},
};
use crate::{
    kinds::lookup::Kind,
    runs::{Services, status},
};

/// How often it is looked whether what was needed still is: by then nothing else may happen in the workspace.
const AGAIN: Duration = Duration::from_mins(10);

/// A stack in a workspace: namespace, stack, workspace.
type Deployment = (String, String, String);

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let (Ok(workspaces), Ok(runs), Ok(releases)) =
        (services.lookup.api::<Workspace>(), services.lookup.api::<Run>(), services.lookup.api::<Release>())
    else {
        return;
    };
    let of = |workspace: &str| (String::new(), workspace.to_owned());
    let triggers = vec![
        Trigger::on(&workspaces, |w| vec![queue::key_of(w)]),
        Trigger::on_part(&runs, move |run: &Member<OfWorkspace, OfStatus>| {
            let has_ended = run.status.as_ref().is_some_and(|status| status.phase.is_terminal());
            has_ended.then(|| of(&run.spec.workspace)).into_iter().collect()
        })
        .within(GATHER),
        Trigger::on_part(&releases, move |release: &Member<OfWorkspace, IgnoredAny>| vec![of(&release.spec.workspace)])
            .within(GATHER),
    ];
    queue::drive("retention", triggers, end, |key| look(services.clone(), key)).await;
}

/// What of a record says where it belongs: this is read with every change of it.
#[derive(Deserialize)]
struct OfWorkspace {
    #[serde(default)]
    workspace: String,
}

#[derive(Deserialize)]
struct OfStatus {
    #[serde(default)]
    phase: RunPhase,
}

async fn look(services: Services, (_, name): ObjectKey) -> Result<Option<Duration>, ApiError> {
    let Some(workspace) = services.lookup.api::<Workspace>()?.get_opt("", &name).await? else { return Ok(None) };
    let Some(retention) = workspace.spec.retention.filter(|kept| kept.runs.is_some() || kept.releases.is_some()) else {
        return Ok(None);
    };
    let of_workspace = ListOptions { field_selector: Some(format!("spec.workspace={name}")), ..ListOptions::default() };
    let (runs, releases, resources) =
        (services.lookup.api::<Run>()?, services.lookup.api::<Release>()?, services.lookup.api::<Resource>()?);
    let named = |stack: Stack| Some(named_by(&stack).collect::<Vec<_>>());
    let named = services.lookup.api::<Stack>()?.list_of(None, &ListOptions::default(), named).await?;
    let named = named.into_iter().flatten().collect();
    // What refers to others is read after them, so that what is made meanwhile has found them or is found here.
    let all_releases = releases.list_with(None, &of_workspace).await?;
    let all_resources = resources.list_with(None, &of_workspace).await?;
    let all_runs = runs.list_with(None, &of_workspace).await?;
    // They have to see how their runs did.
    let workflows = needed::workflows_under_way(&services.lookup, None).await?;
    // One that cannot be deleted keeps no other.
    let mut failed = FirstError::default();
    if let Some(kept) = retention.releases {
        let excess = excess_releases(&all_releases, &all_runs, &workflows, kept_of(kept));
        let gone = remove_releases(&services, &excess, &mut failed).await;
        let left = all_releases.iter().filter(|release| !gone.contains(&queue::key_of(*release)));
        for resource in excess_resources(&all_resources, left) {
            failed.note(queue::delete(&resources, resource).await);
        }
    }
    if let Some(kept) = retention.runs {
        let workflows: HashSet<ObjectKey> = workflows.iter().map(queue::key_of).collect();
        let is_needed = |run: &&Run| {
            let workflow = run.labels().get(labels::WORKFLOW);
            workflow.is_some_and(|name| workflows.contains(&(run.namespace().unwrap_or_default(), name.clone())))
        };
        let excess = excess_runs(&all_runs, named, kept_of(kept));
        let excess: Vec<&Run> = excess.into_iter().filter(|run| !is_needed(run)).collect();
        remove_runs(&services, &excess, &mut failed).await;
    }
    failed.told()?;
    Ok(Some(AGAIN))
}

/// Removes releases as they were read, but those that somebody goes back to by now; the keys of those that go.
async fn remove_releases(services: &Services, releases: &[&Release], failed: &mut FirstError) -> HashSet<ObjectKey> {
    let mut gone = HashSet::new();
    for batch in releases.chunks(needed::BATCH) {
        let needed = needed::to_be_gone_back_to(&services.lookup, batch).await;
        gone.extend(remove(services, batch, needed, failed).await);
    }
    gone
}

/// Removes runs as they were read, but those whose plans somebody carries out by now; the keys of those that go.
async fn remove_runs(services: &Services, runs: &[&Run], failed: &mut FirstError) -> HashSet<ObjectKey> {
    let mut gone = HashSet::new();
    for batch in runs.chunks(needed::BATCH) {
        let needed = needed::to_be_carried_out(&services.lookup, batch).await;
        gone.extend(remove(services, batch, needed, failed).await);
    }
    gone
}

async fn remove<K: Kind>(
    services: &Services,
    objects: &[&K],
    needed: Result<HashSet<ObjectKey>, ApiError>,
    failed: &mut FirstError,
) -> Vec<ObjectKey> {
    let mut gone = Vec::new();
    let (Some(needed), Some(api)) = (failed.note(needed), failed.note(services.lookup.api::<K>())) else { return gone };
    for (key, object) in objects.iter().map(|object| (queue::key_of(*object), *object)) {
        if !needed.contains(&key) && failed.note(queue::delete(&api, object).await) == Some(true) {
            gone.push(key);
        }
    }
    gone
}

fn kept_of(kept: i64) -> usize {
    usize::try_from(kept).unwrap_or(usize::MAX).max(1)
}

fn deployment_of(run: &Run) -> Deployment {
    (run.namespace().unwrap_or_default(), run.spec.stack.clone(), run.spec.workspace.clone())
}

/// The runs that a stack's status names: the last ones, and those that are followed.
fn named_by(stack: &Stack) -> impl Iterator<Item = ObjectKey> {
    let status = stack.status.as_ref();
    let last = status.into_iter().flat_map(|status| &status.deployments).filter_map(|of| of.last_run.clone());
    let started = status.and_then(|status| status.trigger.as_ref()).into_iter().flat_map(|trigger| &trigger.started);
    let followed = started.filter(|started| started.phase.is_none()).map(|started| started.run.clone());
    let namespace = stack.namespace().unwrap_or_default();
    last.chain(followed).map(move |run| (namespace.clone(), run))
}

/// The ended runs beyond the newest ones of each stack, but those that somebody needs, as who names them does.
fn excess_runs(runs: &[Run], named: HashSet<ObjectKey>, kept: usize) -> Vec<&Run> {
    let mut needed = named;
    let mut ended: HashMap<Deployment, Vec<&Run>> = HashMap::new();
    for run in runs {
        if status(run).phase.is_terminal() && !pull_requests::is_plan(run) {
            ended.entry(deployment_of(run)).or_default().push(run);
        } else if let Some(plan) = &run.spec.plan {
            needed.insert((run.namespace().unwrap_or_default(), plan.clone()));
        }
    }
    let mut excess = Vec::new();
    for mut runs in ended.into_values() {
        runs.sort_by_key(|run| std::cmp::Reverse(ended_at(run)));
        excess.extend(runs.into_iter().skip(kept));
    }
    excess.retain(|run| run.metadata.deletion_timestamp.is_none() && !needed.contains(&queue::key_of(*run)));
    excess.sort_by_key(|run| queue::key_of(*run));
    excess
}

/// When a run ended. Of those that did in the same second, the one that was written last did last.
fn ended_at(run: &Run) -> (Option<Timestamp>, u64, String) {
    let version = run.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default();
    (status(run).completion_time.map(|Time(at)| at), version, run.name_any())
}

/// The releases beyond the newest ones of each stack, but those that a run or a workflow under way goes back to.
fn excess_releases<'a>(releases: &'a [Release], runs: &[Run], workflows: &[Workflow], kept: usize) -> Vec<&'a Release> {
    let under_way =
        runs.iter().filter(|run| run.spec.planned() == Operation::Rollback && !status(run).phase.is_terminal());
    let needed: HashSet<(Deployment, i64)> =
        under_way.filter_map(|run| Some((deployment_of(run), run.spec.release?))).collect();
    let planned: HashSet<(String, String, i64)> = workflows.iter().flat_map(gone_back_to).collect();
    // Another stack of the same name has a history of its own.
    let mut histories: HashMap<(Deployment, &str), Vec<&Release>> = HashMap::new();
    for release in releases {
        histories.entry((deployed_by(release), &release.spec.stack_uid)).or_default().push(release);
    }
    let mut excess = Vec::new();
    for mut releases in histories.into_values() {
        releases.sort_by_key(|release| std::cmp::Reverse(release.spec.revision));
        excess.extend(releases.into_iter().skip(kept));
    }
    excess.retain(|release| {
        release.metadata.deletion_timestamp.is_none()
            && !needed.contains(&(deployed_by(release), release.spec.revision))
            && !planned.contains(&(
                release.namespace().unwrap_or_default(),
                release.spec.stack.clone(),
                release.spec.revision,
            ))
    });
    excess.sort_by_key(|release| (queue::key_of(*release).0, release.spec.stack.clone(), release.spec.revision));
    excess
}

fn deployed_by(release: &Release) -> Deployment {
    (release.namespace().unwrap_or_default(), release.spec.stack.clone(), release.spec.workspace.clone())
}

/// The records of what was destroyed before any release that is left.
fn excess_resources<'a>(resources: &'a [Resource], left: impl Iterator<Item = &'a Release>) -> Vec<&'a Resource> {
    let mut first: HashMap<Deployment, i64> = HashMap::new();
    for release in left {
        let oldest = first.entry(deployed_by(release)).or_insert(i64::MAX);
        *oldest = release.spec.revision.min(*oldest);
    }
    let is_excess = |resource: &&Resource| {
        let spec = &resource.spec;
        let of = (resource.namespace().unwrap_or_default(), spec.stack.clone(), spec.workspace.clone());
        let is_gone = resource.status.as_ref().is_some_and(|status| status.phase.is_gone());
        is_gone && spec.release.zip(first.get(&of)).is_some_and(|(release, oldest)| release < *oldest)
    };
    resources.iter().filter(is_excess).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{controllers::runs::tests::World, runs::runner};
    use serde_json::{Value, json};
    use stoa_types::delivery::WorkflowPhase;

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

    fn names<K: Kind>(objects: &[&K]) -> Vec<String> {
        objects.iter().map(|object| object.name_any()).collect()
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
        assert_eq!(names(&excess_runs(&runs, HashSet::new(), 2)), ["a", "b"]);
        assert_eq!(names(&excess_runs(&runs, HashSet::new(), 4)), [""; 0]);
        let at_once = [("a", "10"), ("b", "9")].map(|(name, version)| {
            let mut run = run(name, Some(1), none.clone());
            run.metadata.resource_version = Some(version.to_owned());
            run
        });
        assert_eq!(names(&excess_runs(&at_once, HashSet::new(), 1)), ["b"], "which was written before the other");
        let applies = [&runs[..], &[run("applies", None, json!({"plan": "a"}))]].concat();
        assert_eq!(names(&excess_runs(&applies, HashSet::new(), 2)), ["b"], "a plan that is carried out");
        let status = json!({"deployments": [{"workspace": "dev", "lastRun": "b"}],
            "trigger": {"started": [{"workspace": "dev", "number": 1, "run": "a"}]}});
        let stack: Stack = object("Stack", "web", json!({"project": "web"}), status);
        assert_eq!(names(&excess_runs(&runs, named_by(&stack).collect(), 2)), [""; 0], "what the stack's status names");
        let mut plan = run("plan", Some(5), none);
        plan.labels_mut().insert(labels::PULL_REQUEST.to_owned(), "7".to_owned());
        let by_somebody = [&runs[..], &[plan.clone()]].concat();
        assert_eq!(names(&excess_runs(&by_somebody, HashSet::new(), 4)), ["a"], "a label is anybody's");
        plan.status.get_or_insert_default().requester.username = pull_requests::USER.to_owned();
        let with_plan = [&runs[..], &[plan]].concat();
        assert_eq!(
            names(&excess_runs(&with_plan, HashSet::new(), 4)),
            [""; 0],
            "a plan of a pull request takes no run's place"
        );
    }

    #[test]
    fn newest_releases_are_kept_and_those_that_are_gone_back_to() {
        let releases =
            [release(9, "u"), release(10, "u"), release(11, "u"), release(1, "before"), release(2, "before")];
        assert_eq!(names(&excess_releases(&releases, &[], &[], 2)), ["web.dev.9.u"]);
        assert_eq!(
            names(&excess_releases(&releases, &[], &[], 1)),
            ["web.dev.1.before", "web.dev.9.u", "web.dev.10.u"]
        );
        let back = [run("back", None, json!({"operation": "Rollback", "release": 9}))];
        assert_eq!(names(&excess_releases(&releases, &back, &[], 2)), [""; 0]);
        let done = [run("back", Some(1), json!({"operation": "Rollback", "release": 9}))];
        assert_eq!(names(&excess_releases(&releases, &done, &[], 2)), ["web.dev.9.u"]);
        let elsewhere = [run("back", None, json!({"operation": "Rollback", "release": 9, "workspace": "prod"}))];
        assert_eq!(names(&excess_releases(&releases, &elsewhere, &[], 2)), ["web.dev.9.u"]);
        let step = |stack: &str, release: i64| json!({"name": "back", "when": "Failure", "run": {"stack": stack, "operation": "Rollback", "release": release}});
        let workflow = |steps: Value| -> [Workflow; 1] {
            [object("Workflow", "deploys", json!({"stack": "web", "steps": steps}), Value::Null)]
        };
        let later = workflow(json!([step("", 9)]));
        assert_eq!(names(&excess_releases(&releases, &[], &later, 2)), [""; 0], "a step may be to come");
        let of_another = workflow(json!([step("api", 9)]));
        assert_eq!(names(&excess_releases(&releases, &[], &of_another, 2)), ["web.dev.9.u"]);
    }

    #[test]
    fn records_of_what_was_destroyed_go_with_the_releases_before_which_it_was() {
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
        assert_eq!(names(&excess_resources(&resources, left.iter())), ["gone-long-ago"]);
        assert_eq!(names(&excess_resources(&resources, [].iter())), [""; 0]);
    }

    /// Whether a run that was read is removed.
    async fn remove_run(world: &World, run: &Run) -> bool {
        let mut failed = FirstError::default();
        let gone = remove_runs(&world.services, &[run], &mut failed).await;
        failed.told().unwrap();
        gone.contains(&queue::key_of(run))
    }

    /// The same of a release.
    async fn remove_release(world: &World, release: &Release) -> bool {
        let mut failed = FirstError::default();
        let gone = remove_releases(&world.services, &[release], &mut failed).await;
        failed.told().unwrap();
        gone.contains(&queue::key_of(release))
    }

    async fn end(world: &World, run: &str) {
        let end = |run: &mut Run| run.status.get_or_insert_default().phase = RunPhase::Succeeded;
        world.registry.api::<Run>().update_status_with("shop", run, end).await.unwrap();
    }

    #[tokio::test]
    async fn preview_that_somebody_was_given_since_it_was_read_stays() {
        let world = World::with_runner(runner::unreachable()).await;
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
    async fn release_that_somebody_goes_back_to_since_it_was_read_stays() {
        let world = World::with_runner(runner::unreachable()).await;
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
