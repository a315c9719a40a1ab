//! Hooks of a plan: before the changes, and after them. One after the other is created and has to complete.
//!
//! Start at [`Hooks::run`]. A hook has no intent: its object names the Run that created it, so that a Run that is resumed
//! waits for it and creates no second one. Its result is recorded before its object is deleted, so a resumed Run repeats
//! no hook with a result.
//!
//! Elsewhere: `stoa_engine::hook` says which objects are hooks, and in which order.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Map, Value};
use stoa_engine::declared::declared;
use stoa_engine::hook::{CREATED_BY, DeletePolicy, HOOK};
use stoa_engine::object::{is_terminating, uid_of};
use stoa_engine::timeout::timeout;
use stoa_engine::{
    Action, KubernetesObject, ObjectRef, Plan, PlannedAction, PlannedHook, Problem, Resource, ResourceId, Sensitive,
    Stage, StateResource, problem::reason,
};
use stoa_runtime::{ApplyRequest, Deleted, Grant, Health, Live, ReadRequest, Runtime, RuntimeError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::call::MARGIN;
use crate::observer::{Abandoned, Observer, ResourceOutcome, ResourceResult};
use crate::retry::{RetryLog, retried};
use crate::values::Values;
use crate::verify;

/// A hook that failed in an earlier try of the same Run. Its object may be deleted by now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedHook {
    /// The id of its result.
    pub id: ResourceId,
    /// The recorded message.
    pub message: String,
}

/// The hooks of an execution.
#[derive(Debug)]
pub(crate) struct Hooks<'e> {
    pub(crate) plan: &'e Plan,
    pub(crate) runtime: &'e dyn Runtime,
    pub(crate) observer: &'e dyn Observer,
    pub(crate) values: &'e Values,
    /// The ids that an earlier try of the same Run finished.
    pub(crate) done: &'e [ResourceId],
    /// The hooks whose failure an earlier try of the same Run recorded.
    pub(crate) failed: &'e [FailedHook],
    /// The uid of the Run.
    pub(crate) run: &'e str,
    /// The time for one hook without a timeout of its own.
    pub(crate) limit: Duration,
    pub(crate) stop: &'e CancellationToken,
    pub(crate) grant: &'e Grant,
}

/// How the hooks before or after the changes ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// All have completed.
    Completed,
    /// The Run was stopped. A hook may be under way.
    Stopped,
    /// One failed, and later ones were skipped.
    Failed(Box<Problem>),
}

/// Why a hook did not complete.
enum Failure {
    /// The Run was stopped. The hook may be under way.
    Stopped,
    /// It failed, for this reason.
    Failed(String),
}

impl From<(RuntimeError, &Sensitive)> for Failure {
    fn from((error, sensitive): (RuntimeError, &Sensitive)) -> Self {
        Self::Failed(sensitive.redact(&error.to_string()))
    }
}

impl Hooks<'_> {
    /// Runs the hooks before or after the changes. The first failure ends that.
    ///
    /// # Errors
    ///
    /// [`Abandoned`] when a result cannot be recorded.
    pub(crate) async fn run(&self, is_before: bool) -> Result<Ended, Abandoned> {
        let hooks: Vec<&PlannedHook> = self.plan.hooks(is_before).collect();
        let mut succeeded = Vec::new();
        let mut ended = Ended::Completed;
        for (position, hook) in hooks.iter().enumerate() {
            if self.done.contains(&hook.id()) {
                succeeded.push(*hook);
                continue;
            }
            let completed = match self.failed_before(hook) {
                Some(found) => Err(found),
                None => match self.complete(hook).await {
                    Ok(object) => Ok(object),
                    Err(Failure::Stopped) => return Ok(Ended::Stopped),
                    Err(Failure::Failed(why)) => Err(failed(hook, &why)),
                },
            };
            match completed {
                Ok(object) => {
                    let result = ResourceResult { kubernetes: object, ..result(hook, ResourceOutcome::Done) };
                    self.observer.result(result).await?;
                    succeeded.push(*hook);
                }
                Err(found) => {
                    let message = found.message.clone();
                    let result = ResourceResult {
                        message,
                        problem: Some(found.clone()),
                        ..result(hook, ResourceOutcome::Failed)
                    };
                    self.observer.result(result).await?;
                    self.skip(&hooks[position + 1..], &format!("hook {hook} failed")).await?;
                    self.delete(hook, DeletePolicy::HookFailed).await;
                    ended = Ended::Failed(Box::new(found));
                    break;
                }
            }
        }
        for hook in succeeded.into_iter().rev() {
            self.delete(hook, DeletePolicy::HookSucceeded).await;
        }
        Ok(ended)
    }

    /// Reports that the hooks before or after the changes are not run.
    ///
    /// # Errors
    ///
    /// As of [`run`](Self::run).
    pub(crate) async fn skip_all(&self, is_before: bool, why: &str) -> Result<(), Abandoned> {
        let hooks: Vec<&PlannedHook> = self.plan.hooks(is_before).collect();
        self.skip(&hooks, why).await
    }

    async fn skip(&self, hooks: &[&PlannedHook], why: &str) -> Result<(), Abandoned> {
        // Once the grant is over, another runner may report.
        if self.grant.check().is_err() {
            return Ok(());
        }
        let has_result = |hook: &PlannedHook| self.done.contains(&hook.id()) || self.failed_before(hook).is_some();
        for hook in hooks.iter().filter(|hook| !has_result(hook)) {
            let message = why.to_owned();
            self.observer.result(ResourceResult { message, ..result(hook, ResourceOutcome::Skipped) }).await?;
        }
        Ok(())
    }

    /// The recorded problem of a hook that failed in an earlier try.
    fn failed_before(&self, hook: &PlannedHook) -> Option<Problem> {
        let id = hook.id();
        let FailedHook { message, .. } = self.failed.iter().find(|failed| failed.id == id)?;
        Some(Problem::new(reason::HOOK_FAILED, message.clone()).of(&hook.resource))
    }

    /// Creates a hook, unless this Run did already, and waits until it has completed.
    async fn complete(&self, hook: &PlannedHook) -> Result<Option<KubernetesObject>, Failure> {
        let wanted = self.values.wanted(&hook.resource);
        let wanted = wanted.ok_or_else(|| Failure::Failed("the Spec does not have it; plan again".to_owned()))?;
        let desired = created_by(wanted, &self.mark(hook));
        let own = timeout(&desired.extensions, &desired.attributes).ok().flatten();
        let limit = own.unwrap_or(self.limit);
        let told = RetryLog::default();
        let work = tokio::time::timeout(limit, self.work(hook, &desired, &told));
        let failure = match self.stop.run_until_cancelled(self.grant.during(work)).await {
            Some(Ok(Ok(ended))) => return ended,
            Some(Ok(Err(_))) => {
                let because = told.take().map_or_else(String::new, |said| format!("; last report: {said}"));
                Failure::Failed(format!("it did not complete within {limit:?}{because}"))
            }
            Some(Err(_)) | None => Failure::Stopped,
        };
        // A request of the dropped call may still arrive, and another runner may start after the result.
        let _ = self.grant.during(tokio::time::sleep(MARGIN)).await;
        Err(failure)
    }

    async fn work(
        &self,
        hook: &PlannedHook,
        desired: &Resource,
        told: &RetryLog,
    ) -> Result<Option<KubernetesObject>, Failure> {
        let sensitive = &self.sensitive(desired);
        let live = self.read(desired, told, sensitive).await?;
        let is_created = live.as_ref().is_some_and(|live| !is_terminating(live) && self.is_of_this_run(hook, live));
        let mut object = None;
        if !is_created {
            if let Some(live) = live {
                self.make_way(hook, desired, &live, told).await?;
            }
            let request = ApplyRequest { create: true, sensitive: Some(sensitive), ..ApplyRequest::new(desired, None) };
            let applied = retried(self.stop, sensitive, told, || self.runtime.apply(&request)).await;
            object = applied.map_err(|error| Failure::from((error, sensitive)))?.kubernetes;
        }
        self.wait(hook, desired, sensitive, told).await?;
        Ok(object)
    }

    async fn read(
        &self,
        desired: &Resource,
        told: &RetryLog,
        sensitive: &Sensitive,
    ) -> Result<Option<Map<String, Value>>, Failure> {
        let read = async || {
            let request = [ReadRequest { desired: Some(desired), prior: None }];
            self.runtime.read(&request).await?.pop().unwrap_or(Ok(Live::Absent))
        };
        match retried(self.stop, sensitive, told, read).await.map_err(|error| Failure::from((error, sensitive)))? {
            Live::Present(live) => Ok(Some(live)),
            Live::Absent => Ok(None),
            Live::Unverified(why) => Err(Failure::Failed(why)),
        }
    }

    /// Deletes the object of an earlier Run, if its policy says so.
    async fn make_way(
        &self,
        hook: &PlannedHook,
        desired: &Resource,
        live: &Map<String, Value>,
        told: &RetryLog,
    ) -> Result<(), Failure> {
        if let Some(owner) = self.runtime.owner().other(live) {
            return Err(Failure::Failed(format!(
                "the existing object is owned by {owner}; delete it or rename the hook"
            )));
        }
        if !self.runtime.owner().has(live) && !is_annotated(live, HOOK) {
            let why = "an object of its name exists and is no hook; delete it or rename the hook";
            return Err(Failure::Failed(why.to_owned()));
        }
        // The contents of a definition would go with it.
        let is_definition = ObjectRef::of(&desired.attributes).is_some_and(|it| it.is_custom_resource_definition());
        if is_definition {
            return Ok(());
        }
        if !hook.is_deleted(DeletePolicy::BeforeHookCreation) && !is_terminating(live) {
            let why = "an object of its name exists, and its helm.sh/hook-delete-policy has no before-hook-creation; \
                       delete it";
            return Err(Failure::Failed(why.to_owned()));
        }
        self.delete_object(desired, live, told).await
    }

    /// Deletes an object, and waits until it is deleted.
    async fn delete_object(
        &self,
        desired: &Resource,
        live: &Map<String, Value>,
        told: &RetryLog,
    ) -> Result<(), Failure> {
        let sensitive = &self.sensitive(desired);
        let record = StateResource {
            id: desired.id.clone(),
            kind: desired.kind,
            attributes: desired.attributes.clone(),
            extensions: desired.recorded_extensions(),
            cluster: self.runtime.kubernetes().clusters().of_wanted(desired).to_owned(),
            ..StateResource::default()
        };
        let record = record.with_uid(uid_of(live).unwrap_or_default());
        let deleted = retried(self.stop, sensitive, told, || self.runtime.delete(&record)).await;
        match deleted.map_err(|error| Failure::from((error, sensitive)))? {
            Deleted::Gone => Ok(()),
            Deleted::Left(why) => Err(Failure::Failed(why.to_string())),
            Deleted::Terminating(object) => {
                let report = |held: &str| told.note_deletion(sensitive.redact(held));
                let waited = retried(self.stop, sensitive, told, || self.runtime.wait_deleted(&object, &report)).await;
                waited.map_err(|error| Failure::from((error, sensitive)))
            }
        }
    }

    /// Waits until a created hook has completed.
    async fn wait(
        &self,
        hook: &PlannedHook,
        desired: &Resource,
        sensitive: &Sensitive,
        told: &RetryLog,
    ) -> Result<(), Failure> {
        let secrets = self.values.secrets();
        let shown = |message: &str| secrets.redact(&sensitive.redact(message));
        let (reports, mut heard) = mpsc::unbounded_channel::<(Health, String)>();
        let report = move |health: Health, message: &str| {
            // The receiver lives as long as the wait does.
            let _ = reports.send((health, message.to_owned()));
        };
        let waiting = async {
            loop {
                match self.runtime.wait_completed(desired, &report).await {
                    Err(error) if error.is_retryable() => {
                        told.note(&error, sensitive);
                        tokio::time::sleep(verify::AGAIN).await;
                    }
                    ended => return ended,
                }
            }
        };
        let mut waiting = std::pin::pin!(waiting);
        let (id, mut last) = (hook.id(), String::new());
        let ended = loop {
            tokio::select! {
                biased;
                Some((health, message)) = heard.recv() => {
                    last = shown(&message);
                    told.note_message(last.clone());
                    self.observer.health(&id, health, &last).await;
                }
                ended = &mut waiting => break ended,
            }
        };
        while let Ok((health, message)) = heard.try_recv() {
            last = shown(&message);
            self.observer.health(&id, health, &last).await;
        }
        match ended.map_err(|error| Failure::from((error, sensitive)))? {
            Health::Failed => Err(Failure::Failed(last)),
            _ => Ok(()),
        }
    }

    /// Deletes the object that this Run created, if the policy of its hook says so. One that cannot be deleted now is
    /// deleted before the hook runs again.
    async fn delete(&self, hook: &PlannedHook, when: DeletePolicy) {
        let Some(wanted) = self.values.wanted(&hook.resource).filter(|_| hook.is_deleted(when)) else { return };
        if ObjectRef::of(&wanted.attributes).is_some_and(|it| it.is_custom_resource_definition()) {
            return;
        }
        let told = RetryLog::default();
        let work = async {
            let live = self.read(wanted, &told, &self.sensitive(wanted)).await?;
            match live.filter(|live| self.is_of_this_run(hook, live)) {
                Some(live) => self.delete_object(wanted, &live, &told).await,
                None => Ok(()),
            }
        };
        let work = self.grant.during(tokio::time::timeout(self.limit, work));
        let ended = self.stop.run_until_cancelled(work).await;
        if let Some(Ok(Ok(Err(Failure::Failed(why))))) = ended {
            tracing::warn!(%hook, why, "the object of a hook is not deleted");
        }
    }

    fn mark(&self, hook: &PlannedHook) -> String {
        format!("{}/{}", self.run, hook.event)
    }

    fn is_of_this_run(&self, hook: &PlannedHook, live: &Map<String, Value>) -> bool {
        self.runtime.owner().has(live)
            && annotations(live).and_then(|it| it.get(CREATED_BY)) == Some(&self.mark(hook).into())
    }

    fn sensitive(&self, desired: &Resource) -> Sensitive {
        Sensitive::of(&desired.attributes, &declared(desired))
    }
}

fn annotations(object: &Map<String, Value>) -> Option<&Map<String, Value>> {
    object.get("metadata")?.get("annotations")?.as_object()
}

fn is_annotated(object: &Map<String, Value>, name: &str) -> bool {
    annotations(object).is_some_and(|annotations| annotations.contains_key(name))
}

/// The resource with the mark of its Run.
fn created_by(wanted: &Resource, mark: &str) -> Resource {
    let mut desired = wanted.clone();
    let annotations = desired.attributes.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.insert(CREATED_BY.to_owned(), mark.into());
    }
    desired
}

/// The result of a hook, which is no part of the state.
fn result(hook: &PlannedHook, outcome: ResourceOutcome) -> ResourceResult {
    ResourceResult {
        id: hook.id(),
        action: Action::Create,
        outcome,
        message: String::new(),
        resource: None,
        kubernetes: None,
        left: false,
        depends_on: Vec::new(),
        problem: None,
    }
}

/// The problem of a failed hook, and how to find its cause. Stoa shows no output of containers.
fn failed(hook: &PlannedHook, why: &str) -> Problem {
    let mut parts = hook.resource.0.split(':').skip(1);
    let logs = match (parts.next(), parts.next(), parts.next()) {
        (Some(kind @ ("Job" | "Pod")), Some(namespace), Some(name)) if !hook.is_deleted(DeletePolicy::HookFailed) => {
            format!("; its output: kubectl logs -n {namespace} {}/{name}", kind.to_lowercase())
        }
        _ => String::new(),
    };
    Problem::new(reason::HOOK_FAILED, format!("the {} hook failed: {why}{logs}", hook.event)).of(&hook.resource)
}

/// The actions that hooks before the changes need, and the rest: Namespaces and definitions come first, as with Helm. `None`
/// without one.
pub(crate) fn prerequisites(plan: &Plan, values: &Values) -> Option<(Plan, Plan)> {
    plan.hooks(true).next()?;
    let mut first: HashSet<&ResourceId> = HashSet::new();
    for planned in &plan.actions {
        let is_change = planned.action.keeps() && planned.action.is_call() && planned.recorded_as.is_none();
        let is_called = |id: &&ResourceId| plan.actions.iter().any(|it| it.id == **id && it.action.is_call());
        let is_free = || planned.after.iter().filter(is_called).all(|id| first.contains(id));
        let object = || values.wanted(&planned.id).and_then(|wanted| ObjectRef::of(&wanted.attributes));
        let is_holder = || object().is_some_and(|it| it.is_namespace() || it.is_custom_resource_definition());
        if is_change && planned.stage() == Stage::Changes && is_holder() && is_free() {
            first.insert(&planned.id);
        }
    }
    if first.is_empty() {
        return None;
    }
    let (early, rest): (Vec<PlannedAction>, _) = plan.actions.iter().cloned().partition(|it| first.contains(&it.id));
    Some((Plan { actions: early, ..plan.clone() }, Plan { actions: rest, ..plan.clone() }))
}
