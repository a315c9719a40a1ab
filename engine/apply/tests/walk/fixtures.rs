//! Fixtures: a stack on a fake cloud, whose state is recorded as the API server does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::{Value, json};
use stoa_apply::{
    Abandoned, Execution, FailedHook, Grant, Intended, Interrupted, Observer, Options, Outcome, PlanError, Planned,
    Planning, ResourceOutcome, ResourceResult,
};
use stoa_engine::hook::is_hook_id;
use stoa_engine::{
    Action, DigestKeys, HookOperation, OpenCall, Owner, Problem, ResourceId, Spec, State, StateResource,
};
use stoa_runtime::fake::{FakeCloud, FakeRuntime};
use stoa_runtime::{Health, Runtime};
use tokio::sync::{Barrier, Notify, Semaphore};
use tokio_util::sync::CancellationToken;

/// An observer that records everything in memory.
#[derive(Debug, Default)]
pub(crate) struct RecordingObserver {
    kept: Mutex<Recorded>,
    /// Every intent waits for a permit here, when there is one.
    pub(crate) gate: Mutex<Option<Arc<Semaphore>>>,
    /// If set, results are recorded once this many are reported together.
    pub(crate) together: Mutex<Option<Arc<Barrier>>>,
    pub(crate) changed: Notify,
}

#[derive(Debug, Default)]
struct Recorded {
    state: BTreeMap<ResourceId, StateResource>,
    intents: Vec<(Action, Vec<ResourceId>)>,
    results: Vec<ResourceResult>,
    /// Intents without a result.
    open: BTreeMap<ResourceId, OpenCall>,
    owed: BTreeSet<ResourceId>,
    healths: Vec<(ResourceId, Health, String)>,
    timed_out: Vec<(ResourceId, Health, String)>,
    /// How many results are recorded before the observer is lost.
    results_left: Option<usize>,
}

#[async_trait]
impl Observer for RecordingObserver {
    async fn intent(&self, calls: &[Intended], action: Action) -> Result<(), Abandoned> {
        let gate = self.gate.lock().clone();
        if let Some(gate) = gate {
            gate.acquire().await.map_err(|_| Abandoned)?.forget();
        }
        let mut kept = self.kept.lock();
        kept.intents.push((action, calls.iter().map(|call| call.id.clone()).collect()));
        for Intended { id, place } in calls.iter().cloned() {
            // An import calls for nothing: what an earlier call made, only its result tells.
            if action != Action::Import || !kept.open.contains_key(&id) {
                let call = OpenCall { id: id.clone(), action, run: "run".to_owned(), place, retry: false };
                kept.open.insert(id, call);
            }
        }
        drop(kept);
        self.changed.notify_waiters();
        Ok(())
    }

    async fn result(&self, result: ResourceResult) -> Result<(), Abandoned> {
        let together = self.together.lock().clone();
        if let Some(together) = together {
            together.wait().await;
        }
        let mut kept = self.kept.lock();
        if let Some(left) = &mut kept.results_left {
            *left = left.checked_sub(1).ok_or(Abandoned)?;
        }
        match (result.outcome, &result.resource) {
            (ResourceOutcome::Done | ResourceOutcome::Failed, Some(resource)) => {
                kept.state.insert(result.id.clone(), resource.clone());
            }
            (ResourceOutcome::Done, None) => drop(kept.state.remove(&result.id)),
            (ResourceOutcome::Failed | ResourceOutcome::Skipped | ResourceOutcome::Unknown, _) => {}
        }
        if result.outcome == ResourceOutcome::Done && result.action.is_call() {
            kept.owed.insert(result.id.clone());
        }
        let is_failed_import = result.action == Action::Import && result.outcome != ResourceOutcome::Done;
        let is_of_another_call = kept.open.get(&result.id).is_some_and(|call| call.action != Action::Import);
        if result.outcome != ResourceOutcome::Unknown && !(is_failed_import && is_of_another_call) {
            kept.open.remove(&result.id);
        }
        kept.results.push(result);
        self.changed.notify_waiters();
        Ok(())
    }

    async fn health(&self, id: &ResourceId, health: Health, message: &str) {
        let mut kept = self.kept.lock();
        kept.healths.push((id.clone(), health, message.to_owned()));
        if health.is_settled() {
            kept.owed.remove(id);
        }
    }

    async fn finished(&self, id: &ResourceId) {
        if let Some(record) = self.kept.lock().state.get_mut(id) {
            record.finished = true;
        }
    }

    async fn health_timed_out(&self, id: &ResourceId, health: Health, message: &str) {
        self.kept.lock().timed_out.push((id.clone(), health, message.to_owned()));
    }
}

impl RecordingObserver {
    pub(crate) fn state(&self) -> State {
        let kept = self.kept.lock();
        let verified = |record: &StateResource| !kept.owed.contains(&record.id);
        let resources =
            kept.state.values().map(|record| StateResource { verified: verified(record), ..record.clone() });
        State { resources: resources.collect(), open: kept.open.values().cloned().collect() }
    }

    /// A user confirms that the calls for these left nothing behind.
    pub(crate) fn retry(&self, ids: &[&str]) {
        let mut kept = self.kept.lock();
        kept.open.values_mut().for_each(|call| call.retry = ids.contains(&call.id.0.as_str()));
    }

    pub(crate) fn record(&self, id: &str) -> StateResource {
        self.state().resources.into_iter().find(|record| record.id.0 == id).unwrap()
    }

    pub(crate) fn keep(&self, resource: StateResource) {
        self.kept.lock().state.insert(resource.id.clone(), resource);
    }

    /// Goes away after this many results more.
    pub(crate) fn leave_after(&self, results: usize) {
        self.kept.lock().results_left = Some(results);
    }

    /// Comes back.
    pub(crate) fn stay(&self) {
        self.kept.lock().results_left = None;
    }

    pub(crate) fn intents(&self) -> Vec<(Action, Vec<ResourceId>)> {
        self.kept.lock().intents.clone()
    }

    pub(crate) fn health_timed_out(&self) -> Vec<(ResourceId, Health, String)> {
        self.kept.lock().timed_out.clone()
    }

    pub(crate) fn healths(&self) -> Vec<(ResourceId, Health, String)> {
        self.kept.lock().healths.clone()
    }

    /// Resources that were not settled after their last change.
    pub(crate) fn owed(&self) -> Vec<ResourceId> {
        self.kept.lock().owed.iter().cloned().collect()
    }

    /// The results so far as `<outcome> <id>`, sorted.
    pub(crate) fn results(&self) -> Vec<String> {
        let kept = self.kept.lock();
        let mut results: Vec<_> = kept.results.iter().map(|it| format!("{} {}", it.outcome, it.id)).collect();
        results.sort();
        results
    }

    pub(crate) fn result(&self, id: &str) -> ResourceResult {
        self.kept.lock().results.iter().rfind(|result| result.id.0 == id).cloned().unwrap()
    }

    /// The ids of finished resources, without Unchanged ones.
    pub(crate) fn done(&self) -> Vec<ResourceId> {
        let kept = self.kept.lock();
        let is_done = |it: &&ResourceResult| it.outcome == ResourceOutcome::Done && it.action != Action::Unchanged;
        kept.results.iter().filter(is_done).map(|it| it.id.clone()).collect()
    }

    /// The failed hooks, as the API server records them.
    pub(crate) fn failed_hooks(&self) -> Vec<FailedHook> {
        let kept = self.kept.lock();
        let failed = kept.results.iter().filter(|it| it.outcome == ResourceOutcome::Failed && is_hook_id(&it.id));
        failed.map(|it| FailedHook { id: it.id.clone(), message: it.message.clone() }).collect()
    }

    pub(crate) fn clear(&self) {
        let mut kept = self.kept.lock();
        kept.results.clear();
        kept.intents.clear();
        kept.healths.clear();
        kept.timed_out.clear();
    }

    /// Returns when a report makes this true.
    pub(crate) async fn until(&self, is_so: impl Fn(&Self) -> bool) {
        loop {
            let changed = self.changed.notified();
            if is_so(self) {
                return;
            }
            changed.await;
        }
    }
}

/// One stack in one workspace.
#[derive(Debug, Default)]
pub(crate) struct Stack {
    pub(crate) cloud: FakeCloud,
    /// Whose it is, where there are several.
    pub(crate) owner: Option<Owner>,
    pub(crate) observer: Arc<RecordingObserver>,
    pub(crate) cancel: CancellationToken,
    pub(crate) keys: Keys,
    /// The uid of its next run.
    pub(crate) run: &'static str,
    /// The hooks that failed in an earlier try of this run.
    pub(crate) failed_hooks: Vec<FailedHook>,
}

/// Digest keys.
#[derive(Debug)]
pub(crate) struct Keys(pub(crate) DigestKeys);

impl Default for Keys {
    fn default() -> Self {
        Self(DigestKeys::new(&[7; 32], &[]))
    }
}

pub(crate) fn options() -> Options {
    Options {
        parallelism: 4,
        resource_timeout: Duration::from_secs(60),
        health_timeout: Duration::from_secs(60),
        grace: Duration::from_secs(10),
        grant: Grant::unlimited(),
        ..Options::default()
    }
}

impl Stack {
    /// Another stack on the same infrastructure.
    pub(crate) fn beside(&self, stack: &str) -> Self {
        let owner = Owner {
            organization: "fake".to_owned(),
            stack: stack.to_owned(),
            workspace: "workspace".to_owned(),
            stack_uid: format!("uid-of-{stack}"),
        };
        Self { cloud: self.cloud.clone(), owner: Some(owner), ..Self::default() }
    }

    pub(crate) fn runtime(&self) -> FakeRuntime {
        let runtime = self.cloud.runtime();
        match &self.owner {
            Some(owner) => runtime.of(owner.clone()),
            None => runtime,
        }
    }

    pub(crate) async fn plan(&self, spec: &Spec) -> Result<Planned, PlanError> {
        self.planned(Arc::new(self.runtime()), spec, false).await
    }

    pub(crate) async fn planned(
        &self,
        runtime: Arc<dyn Runtime>,
        spec: &Spec,
        destroy: bool,
    ) -> Result<Planned, PlanError> {
        self.planned_to(runtime, spec, [destroy, false]).await
    }

    /// Looks what moved away from what was applied.
    pub(crate) async fn refreshed(&self, spec: &Spec) -> Result<Planned, PlanError> {
        self.planned_to(Arc::new(self.runtime()), spec, [false, true]).await
    }

    pub(crate) async fn planned_to(
        &self,
        runtime: Arc<dyn Runtime>,
        spec: &Spec,
        [destroy, refresh]: [bool; 2],
    ) -> Result<Planned, PlanError> {
        let (state, spec_digest) = (self.observer.state(), spec.digest());
        let hooks = Some(match destroy {
            true => HookOperation::Delete,
            false if state.resources.is_empty() => HookOperation::Install,
            false => HookOperation::Upgrade,
        });
        let planning = Planning {
            spec,
            spec_digest: &spec_digest,
            state: &state,
            destroy,
            refresh,
            keys: &self.keys.0,
            forget_clusters: &[],
            hooks,
        };
        stoa_apply::plan(runtime, &planning).await
    }

    /// The problems of a plan.
    pub(crate) async fn refusal(&self, runtime: FakeRuntime, spec: &Spec) -> Vec<Problem> {
        match self.planned(Arc::new(runtime), spec, false).await {
            Err(PlanError::Problems(problems)) => problems,
            other => panic!("{other:?} instead of problems"),
        }
    }

    pub(crate) async fn execute(
        &self,
        spec: &Spec,
        planned: &Planned,
        done: &[ResourceId],
    ) -> Result<Outcome, Interrupted> {
        self.execute_with(Arc::new(self.runtime()), spec, planned, done, &options()).await
    }

    pub(crate) async fn execute_with(
        &self,
        runtime: Arc<dyn Runtime>,
        spec: &Spec,
        planned: &Planned,
        done: &[ResourceId],
        options: &Options,
    ) -> Result<Outcome, Interrupted> {
        let state = self.observer.state();
        let owed = self.observer.owed();
        let spec_digest = spec.digest();
        let execution = Execution {
            spec,
            spec_digest: &spec_digest,
            plan: &planned.plan,
            state: &state,
            done,
            failed_hooks: &self.failed_hooks,
            owed: &owed,
            keys: &self.keys.0,
            import: None,
            run: self.run,
        };
        stoa_apply::execute(execution, runtime, self.observer.clone(), options, self.cancel.clone()).await
    }

    /// Plans and applies.
    pub(crate) async fn apply(&self, spec: &Spec) -> Outcome {
        let planned = self.plan(spec).await.unwrap();
        self.execute(spec, &planned, &[]).await.unwrap()
    }

    /// Plans and applies what must succeed, and forgets the calls it took.
    pub(crate) async fn bring(&self, spec: &Spec) {
        let outcome = self.apply(spec).await;
        assert!(outcome.succeeded, "{outcome:?}");
        self.cloud.clear_calls();
        self.observer.clear();
    }

    pub(crate) async fn destroy(&self) -> Outcome {
        let spec = Spec::default();
        let runtime = Arc::new(self.runtime());
        let planned = self.planned(runtime, &spec, true).await.unwrap();
        self.execute(&spec, &planned, &[]).await.unwrap()
    }
}

pub(crate) fn id(name: &str) -> String {
    format!("v1:ConfigMap:shop:{name}")
}

pub(crate) fn config_map(name: &str, depends_on: &[&str], data: Value) -> Value {
    json!({
        "id": id(name), "type": "Kubernetes", "dependsOn": depends_on.iter().map(|name| id(name)).collect::<Vec<_>>(),
        "attributes": {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}, "data": data,
        },
    })
}

/// A ConfigMap that names no namespace, with an id as Kusion has it.
pub(crate) fn unplaced(name: &str, data: Value) -> Value {
    json!({"id": format!("v1:ConfigMap:default:{name}"), "type": "Kubernetes", "attributes": {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}})
}

pub(crate) fn secret(name: &str, strings: Value) -> Value {
    json!({"id": format!("v1:Secret:shop:{name}"), "type": "Kubernetes", "attributes": {
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "shop"}, "stringData": strings}})
}

pub(crate) fn spec(resources: Vec<Value>) -> Spec {
    serde_json::from_value(json!({ "resources": resources })).unwrap()
}

/// ConfigMaps with these names and dependencies.
pub(crate) fn maps(of: &[(&str, &[&str])]) -> Spec {
    spec(of.iter().map(|(name, depends_on)| config_map(name, depends_on, json!({"a": "1"}))).collect())
}

/// Names out of ids.
pub(crate) fn names(ids: &[ResourceId]) -> Vec<&str> {
    ids.iter().map(|id| id.0.rsplit(':').next().unwrap()).collect()
}
