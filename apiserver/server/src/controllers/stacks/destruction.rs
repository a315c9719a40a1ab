//! What it takes to have stacks destroyed: a Destroy in every workspace where anything of them is, unless one has begun.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use stoa_controller::{events::Kind, finalizers::update_same, object::Kind as ServedKind, queue::FirstError};
use stoa_kinds::{
    lookup::Lookup,
    run_status::{awaits_approval, is_internal, status},
    stack::live_workspaces,
    trigger,
};
use stoa_machinery::{ApiError, backoff::Policy, registry::ListOptions};
use stoa_runs::Services;
use stoa_types::{
    Backend, Organization, Project, Run, Stack, Workspace,
    delivery::{Decision, Operation, RunPhase},
    labels,
};

use super::{recorded_in, run_of};

/// How long after Destroys that failed the next is started.
const DESTROY_AGAIN: Policy = Policy::new(Duration::from_mins(1), Duration::from_hours(1));

/// How long to wait after so many Destroys that failed in a row.
fn wait_after(failures: usize) -> Duration {
    DESTROY_AGAIN.after(u32::try_from(failures).unwrap_or(u32::MAX))
}

/// Whether it is a Destroy that the server started for a deletion and somebody rejected. It is not started again, or else
/// they would be asked again and again: whoever wants it all the same starts a Destroy, or deletes the one that was rejected.
fn is_rejected(run: &Run) -> bool {
    let status = status(run);
    is_internal(&status.requester) && status.approval.is_some_and(|approval| approval.decision == Decision::Rejected)
}

pub(in crate::controllers) struct Destruction {
    destroys: HashMap<String, Vec<OfRun>>,
    /// What waits to be approved to change something otherwise: it would have its turn first; by stack.
    waiting: HashMap<String, Vec<OfRun>>,
    now: Timestamp,
}

/// What counts of a run. There may be many, and a whole one takes several times its bytes.
struct OfRun {
    name: String,
    uid: Option<String>,
    workspace: String,
    stack_uid: Option<String>,
    began: Option<Timestamp>,
    ended: Option<Timestamp>,
    /// Where the server started it for a deletion, and it did not succeed: which try it was. Earlier ones may be gone.
    failed: Option<usize>,
    is_rejected: bool,
}

impl OfRun {
    /// Whether no other stack of the same name is known to be what it is for.
    fn is_of(&self, stack: &Stack) -> bool {
        self.stack_uid.is_none() || self.stack_uid == stack.metadata.uid
    }
}

fn of_run(run: Run) -> (String, OfRun) {
    let status = status(&run);
    let has_failed = is_internal(&status.requester) && matches!(status.phase, RunPhase::Failed | RunPhase::Canceled);
    // Of an earlier version it says nothing.
    let attempt = run.annotations().get(labels::ATTEMPT).and_then(|attempt| attempt.parse::<u32>().ok()).unwrap_or(1);
    let of = OfRun {
        name: run.name_any(),
        uid: run.uid(),
        workspace: run.spec.workspace.clone(),
        began: status.start_time.as_ref().map(|Time(at)| *at),
        ended: status.completion_time.as_ref().filter(|_| status.phase.is_terminal()).map(|Time(at)| *at),
        failed: has_failed.then(|| usize::try_from(attempt).unwrap_or(usize::MAX)),
        is_rejected: is_rejected(&run),
        stack_uid: status.stack_uid,
    };
    (run.spec.stack, of)
}

/// What became of the Destroys of a stack in a workspace.
struct Attempts<'a>(Vec<&'a OfRun>);

impl Attempts<'_> {
    /// How many have failed in a row, also where only the last is kept.
    fn failures(&self) -> usize {
        let failed = || self.0.iter().filter_map(|run| run.failed);
        failed().max().unwrap_or_default().max(failed().count())
    }

    /// Whether no other is to be started: one is under way, was rejected, or has just failed.
    fn are_enough(&self, lookup: &Lookup, stack: &Stack, workspace: &str, now: Timestamp) -> bool {
        if self.0.iter().any(|run| run.is_rejected || run.ended.is_none()) {
            return true;
        }
        let Some(last) = self.0.iter().max_by_key(|run| run.ended) else { return false };
        let wait = wait_after(self.failures());
        // What ended in the future did so before the clock was set back, nobody knows when.
        let is_soon =
            last.ended.is_some_and(|at| Duration::try_from(now.duration_since(at)).is_ok_and(|ago| ago < wait));
        is_soon && !last.began.or(last.ended).is_some_and(|since| has_changed(lookup, stack, workspace, since))
    }
}

/// Whether somebody has changed a stack, its workspace or that one's Backend since.
fn has_changed(lookup: &Lookup, stack: &Stack, workspace: &str, since: Timestamp) -> bool {
    let workspace: Option<Workspace> = lookup.cached("", workspace);
    let backend: Option<Backend> = workspace.as_ref().and_then(|of| lookup.cached("", &of.spec.backend.name));
    is_changed(stack, since)
        || workspace.is_some_and(|workspace| is_changed(&workspace, since))
        || backend.is_some_and(|backend| is_changed(&backend, since))
}

/// Whether more than an object's status was changed since, to the second.
fn is_changed<K: ServedKind>(object: &K, since: Timestamp) -> bool {
    let entries = object.meta().managed_fields.iter().flatten();
    let mut of_main = entries.filter(|entry| entry.subresource.as_deref().unwrap_or_default().is_empty());
    of_main.any(|entry| entry.time.as_ref().is_some_and(|Time(at)| at.as_second() >= since.as_second()))
}

fn by_stack(runs: Vec<(String, OfRun)>) -> HashMap<String, Vec<OfRun>> {
    let mut by_stack: HashMap<String, Vec<OfRun>> = HashMap::new();
    for (stack, run) in runs {
        by_stack.entry(stack).or_default().push(run);
    }
    by_stack
}

impl Destruction {
    /// Those of the stacks of a namespace that these options select.
    pub(in crate::controllers) async fn of(
        services: &Services,
        namespace: &str,
        stacks: &ListOptions,
    ) -> Result<Self, ApiError> {
        let (runs, now) = (services.lookup.api::<Run>()?, services.now());
        let selected = |fields: &str| ListOptions { field_selector: Some(fields.to_owned()), ..stacks.clone() };
        let destroys = |run: Run| Some(of_run(run));
        let destroys = runs.list_of(Some(namespace), &selected("spec.operation=Destroy"), destroys).await?;
        let waits = |run: &Run| run.spec.operation != Operation::Destroy && awaits_approval(run) && !run.spec.cancel;
        let waits = |run: Run| waits(&run).then(|| of_run(run));
        let waiting = runs.list_of(Some(namespace), &selected("status.phase=AwaitingApproval"), waits).await?;
        Ok(Self { destroys: by_stack(destroys), waiting: by_stack(waiting), now })
    }

    /// What became of the Destroys of a stack, by workspace.
    fn attempts(&self, stack: &Stack) -> HashMap<&str, Attempts<'_>> {
        let mut attempts: HashMap<&str, Attempts<'_>> = HashMap::new();
        for run in of_stack(&self.destroys, stack) {
            attempts.entry(run.workspace.as_str()).or_insert_with(|| Attempts(Vec::new())).0.push(run);
        }
        attempts
    }

    /// Starts a Destroy in every workspace where the stack is deployed and none has begun, or the last has failed long
    /// enough ago. What waits there to be approved to change it otherwise is cancelled. Whether anything of the stack may
    /// be there.
    pub(in crate::controllers) async fn begin(&self, services: &Services, stack: &Stack) -> Result<bool, ApiError> {
        // What was decided about an earlier stack of the same name says nothing of this one.
        let (attempts, waiting) = (self.attempts(stack), of_stack(&self.waiting, stack));
        let begun =
            attempts.iter().filter(|(workspace, of)| of.are_enough(&services.lookup, stack, workspace, self.now));
        let begun: BTreeSet<&str> = begun.map(|(workspace, _)| *workspace).collect();
        let mut workspaces: BTreeSet<String> = live_workspaces(stack).map(str::to_owned).collect();
        // The status may be older than the records; they are read unless all that it names is destroyed.
        if workspaces.is_empty() || !workspaces.iter().all(|workspace| begun.contains(workspace.as_str())) {
            workspaces.extend(recorded_in(services, stack).await?);
        }
        // Where it is refused it keeps no other workspace waiting.
        let mut failed = FirstError::default();
        for workspace in &workspaces {
            for run in &waiting {
                if run.workspace == *workspace {
                    failed.note(cancel(services, stack, run).await);
                }
            }
            if !begun.contains(workspace.as_str()) {
                let failures = attempts.get(workspace.as_str()).map_or(0, Attempts::failures);
                failed.note(start_destroy(services, stack, workspace, failures).await);
            }
        }
        failed.told()?;
        Ok(!workspaces.is_empty())
    }
}

fn of_stack<'a>(runs: &'a HashMap<String, Vec<OfRun>>, stack: &Stack) -> Vec<&'a OfRun> {
    runs.get(&stack.name_any()).into_iter().flatten().filter(|run| run.is_of(stack)).collect()
}

async fn cancel(services: &Services, stack: &Stack, of: &OfRun) -> Result<(), ApiError> {
    let (runs, namespace) = (services.lookup.api::<Run>()?, stack.namespace().unwrap_or_default());
    if let Some(run) = runs.get_opt(&namespace, &of.name).await?.filter(|run| run.uid() == of.uid) {
        update_same(&runs, &run, |run| run.spec.cancel = true).await?;
    }
    Ok(())
}

/// Has a stack destroyed wherever it is deployed, as `Destruction::begin` does. Whether anything of it may be there.
pub(crate) async fn destroy(services: &Services, stack: &Stack) -> Result<bool, ApiError> {
    let namespace = stack.namespace().unwrap_or_default();
    Destruction::of(services, &namespace, &super::of_stack(stack)).await?.begin(services, stack).await
}

async fn start_destroy(services: &Services, stack: &Stack, workspace: &str, failures: usize) -> Result<(), ApiError> {
    let mut run = run_of(stack, workspace, Operation::Destroy);
    run.annotations_mut().insert(labels::ATTEMPT.to_owned(), failures.saturating_add(1).to_string());
    let context = trigger::on_behalf_of("stacks", deleted_by(services, stack).await?);
    let run = services.lookup.api::<Run>()?.with_context(context).create(&run).await?;
    let mut message = format!("run {} destroys it in workspace {workspace}", run.name_any());
    if failures > 0 {
        let wait = wait_after(failures.saturating_add(1)).as_secs() / 60;
        message +=
            &format!("; attempts failed before: {failures}; if this run fails too, the next begins {wait} min later");
    }
    services.recorder.record(stack, Kind::Normal, "Destroying", message);
    Ok(())
}

/// Who deleted a stack, or what takes it along. Of its namespace nobody tells.
async fn deleted_by(services: &Services, stack: &Stack) -> Result<Vec<String>, ApiError> {
    let namespace = stack.namespace().unwrap_or_default();
    let project = services.lookup.api::<Project>()?.get_opt(&namespace, &stack.spec.project).await?;
    let organization = services.lookup.api::<Organization>()?.get_opt("", &namespace).await?;
    let of_stack = stack.status.as_ref().map(|status| status.deleted_by.clone());
    let of_project = project.and_then(|project| project.status).map(|status| status.deleted_by);
    let of_organization = organization.and_then(|organization| organization.status).map(|status| status.deleted_by);
    Ok([of_stack, of_project, of_organization].into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stoa_kinds::testing::deploying;
    use stoa_machinery::registry::DeleteOptions;
    use stoa_runs::testing::unreachable_runner;

    use super::*;
    use crate::testing::TestServer;

    #[tokio::test]
    async fn runs_of_one_stack_say_nothing_of_another() {
        let world = TestServer::with_runner(unreachable_runner()).await;
        world.create("Stack", "api", json!({"project": "web"})).await;
        let (stacks, runs) = (world.registry.api::<Stack>(), world.registry.api::<Run>());
        let deployed = json!([{"workspace": "dev", "resources": 1}]);
        for name in ["web", "api"] {
            let deploy = deploying(deployed.clone());
            stacks.update_status_with("shop", name, deploy).await.unwrap();
        }
        for (name, operation) in [("change", "Apply"), ("down", "Destroy")] {
            world.create("Run", name, json!({"stack": "web", "workspace": "dev", "operation": operation})).await;
        }
        let wait = |run: &mut Run| run.status.get_or_insert_default().phase = RunPhase::AwaitingApproval;
        runs.update_status_with("shop", "change", wait).await.unwrap();

        let destruction = Destruction::of(&world.services, "shop", &ListOptions::default()).await.unwrap();
        let begin = async |name: &str| {
            let stack = stacks.get("shop", name).await.unwrap();
            assert!(destruction.begin(&world.services, &stack).await.unwrap(), "something of {name} is there");
            let all = runs.list(Some("shop"), "").await.unwrap();
            let destroyed = all.into_iter().filter(|run| run.spec.operation == Operation::Destroy);
            let mut destroyed: Vec<String> = destroyed.map(|run| run.spec.stack).collect();
            destroyed.sort();
            (destroyed, runs.get("shop", "change").await.unwrap().spec.cancel)
        };
        let both = vec!["api".to_owned(), "web".to_owned()];
        assert_eq!(begin("api").await, (both.clone(), false));
        assert_eq!(begin("web").await, (both, true), "what has begun goes on, and nothing is in its way");
    }

    #[tokio::test]
    async fn backoff_grows_without_retained_failed_runs() {
        let world = TestServer::with_runner(unreachable_runner()).await;
        let (stacks, runs) = (world.registry.api::<Stack>(), world.registry.api::<Run>());
        let deploy = deploying(json!([{"workspace": "dev", "resources": 1}]));
        stacks.update_status_with("shop", "web", deploy).await.unwrap();
        let long_ago = Time(world.services.now() - Duration::from_secs(2 * 3600));
        let mut last: Option<String> = None;
        for attempt in 1..=8 {
            let stack = stacks.get("shop", "web").await.unwrap();
            assert!(destroy(&world.services, &stack).await.unwrap());
            // Retention leaves the last one alone.
            if let Some(name) = last {
                runs.delete("shop", &name, &DeleteOptions::default()).await.unwrap();
                drop(runs.update_with("shop", &name, |run: &mut Run| run.finalizers_mut().clear()).await);
            }
            let all = runs.list(Some("shop"), "").await.unwrap();
            let [run] = &all[..] else { panic!("{} runs", all.len()) };
            assert_eq!(run.annotations()[labels::ATTEMPT], attempt.to_string());
            let fail = |run: &mut Run| {
                let status = run.status.get_or_insert_default();
                status.phase = RunPhase::Failed;
                (status.start_time, status.completion_time) = (Some(long_ago.clone()), Some(long_ago.clone()));
            };
            runs.update_status_with("shop", &run.name_any(), fail).await.unwrap();
            last = Some(run.name_any());
        }
        let stack = stacks.get("shop", "web").await.unwrap();
        let destruction = Destruction::of(&world.services, "shop", &ListOptions::default()).await.unwrap();
        let failures = destruction.attempts(&stack)["dev"].failures();
        assert_eq!((failures, wait_after(failures)), (8, Duration::from_hours(1)));
    }
}
