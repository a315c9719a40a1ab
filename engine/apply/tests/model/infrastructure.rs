//! The infrastructure of the model test: a runtime and an observer that count steps, interrupt them, and record broken
//! rules.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::time::Duration;
use std::{fmt, sync::Arc};

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use stoa_apply::{Abandoned, Grant, Intended, Observer, ResourceOutcome, ResourceResult};
use stoa_engine::object::is_terminating;
use stoa_engine::owner::MARK;
use stoa_engine::{
    Action, FieldConflict, Owner, Plan, PlannedAction, Preview, Resource, ResourceId, ResourceType, StateResource,
};
use stoa_runtime::fake::{FakeCloud, FakeRuntime};
use stoa_runtime::fake_provider::{ChangeFault, FakeProvider};
use stoa_runtime::{
    Applied, ApplyRequest, Deleted, DeletionReport, Finished, Found, Health, HealthReport, KubernetesChecks,
    KubernetesObject, Live, ProviderChecks, ReadRequest, Runtime, RuntimeError, RuntimeSet,
};
use tokio_util::sync::CancellationToken;

use crate::script::{FIXED, Fault, Goal, Interrupt, NAMESPACE, OTHERS_MARK, SLOTS, Try, slot_of};
use crate::store::Store;

/// How long a process is suspended: longer than any lease.
pub(crate) const SUSPENDED: Duration = Duration::from_secs(100_000);

/// How long a finalizer of an object lasts, times a power of two of its slot, so that no two events coincide.
const LINGERS: Duration = Duration::from_millis(20_250);

/// All objects, by slot.
pub(crate) type Objects = BTreeMap<usize, Map<String, Value>>;

/// The current walk.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    pub(crate) run: String,
    pub(crate) goal: Goal,
    pub(crate) plan: Plan,
    /// Whether no other client did anything since the plan.
    pub(crate) is_alone: bool,
    pub(crate) cancel: CancellationToken,
    /// The process ended: its futures never complete.
    pub(crate) crashed: CancellationToken,
    pub(crate) now: Try,
    pub(crate) steps: usize,
}

#[derive(Debug, Default)]
struct Inner {
    store: Store,
    /// None while nothing but plans is made.
    walk: Option<Walk>,
    /// The uids of objects that are ours.
    ours: BTreeSet<String>,
    /// The uids of those that were made by our calls, and not taken over, and the runs that made them.
    made: BTreeMap<String, String>,
    /// The uids of objects without our owner annotation when one of our calls adopted them.
    taken_over: BTreeSet<String>,
    /// The slots of objects that are not healthy.
    sick: BTreeSet<usize>,
    /// The slots of those that are let go a while after they were deleted.
    lingering: BTreeSet<usize>,
    broken: Vec<String>,
    trace: Vec<String>,
}

pub(crate) struct Infrastructure {
    pub(crate) cloud: FakeCloud,
    pub(crate) provider: FakeProvider,
    /// The runtime of the cloud alone, and the one of both.
    of_cloud: FakeRuntime,
    runtime: RuntimeSet,
    inner: Mutex<Inner>,
}

impl fmt::Debug for Infrastructure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Infrastructure")
    }
}

/// The uid of an object, or the id of one of the provider.
pub(crate) fn uid(object: &Map<String, Value>) -> Option<&str> {
    object.get("metadata").map_or_else(|| object.get("id"), |metadata| metadata.get("uid"))?.as_str()
}

/// The beginning of texts that no record and no plan has.
pub(crate) const SECRET: &str = "pa55word";

/// The owner annotation of an object, read without the engine, which may be wrong.
fn mark(object: &Map<String, Value>) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(MARK)?.as_str()
}

pub(crate) fn is_theirs(object: &Map<String, Value>) -> bool {
    mark(object) == Some(OTHERS_MARK)
}

impl Infrastructure {
    pub(crate) fn is_ours(&self, object: &Map<String, Value>) -> bool {
        mark(object) == Some(&self.of_cloud.owner().mark())
    }

    /// Whether one of our calls made it.
    pub(crate) fn is_made(&self, uid: &str) -> bool {
        self.inner.lock().made.contains_key(uid)
    }

    /// Whether one of our calls took it as it was.
    pub(crate) fn is_taken_over(&self, uid: &str) -> bool {
        self.inner.lock().taken_over.contains(uid)
    }

    pub(crate) fn new() -> Arc<Self> {
        let (cloud, provider) = (FakeCloud::new(), FakeProvider::new());
        cloud.fix(FIXED);
        let of_cloud = cloud.runtime();
        let owner = of_cloud.owner().clone();
        let of_provider = Arc::new(provider.runtime(owner.clone()));
        let runtime = RuntimeSet::new(owner)
            .with(ResourceType::Kubernetes, Arc::new(of_cloud.clone()))
            .with(ResourceType::Terraform, of_provider);
        Arc::new(Self { cloud, provider, of_cloud, runtime, inner: Mutex::default() })
    }

    pub(crate) fn objects(&self) -> Objects {
        let ids = self.cloud.ids();
        let of_cloud = ids.iter().filter_map(|id| Some((slot_of(id), self.cloud.live(&id.0)?)));
        of_cloud.chain(self.provided()).collect()
    }

    /// The objects of the provider.
    fn provided(&self) -> impl Iterator<Item = (usize, Map<String, Value>)> {
        self.provider.objects().into_values().filter_map(|object| {
            let slot = SLOTS.iter().position(|slot| slot.is_provided && object["name"] == slot.provided_name())?;
            Some((slot, object))
        })
    }

    /// Every object of the provider is recorded, or a call that may have created it is unresolved. There is one for each
    /// resource.
    pub(crate) fn check_provided(&self) {
        let store = self.store();
        let mut seen = BTreeSet::new();
        for (slot, object) in self.provided() {
            let id = SLOTS[slot].id(false);
            let recorded = store.record(&id);
            let is_recorded = recorded.is_some_and(|record| uid(&record.live) == uid(&object));
            let is_unknown = store.open().any(|call| call.id == id && call.may_have_made(recorded.is_some()));
            if !is_recorded && !is_unknown {
                self.broken(format!("{id} has an object that is neither recorded nor unknown: {object:?}"));
            }
            if !seen.insert(slot) {
                self.broken(format!("{id} has two objects"));
            }
        }
    }

    /// A user searches the objects of a lost call, deletes them, and permits another call.
    pub(crate) fn decide(&self, slot: usize) {
        let id = SLOTS[slot].id(false);
        let store = self.store();
        let recorded = store.record(&id).and_then(|record| uid(&record.live));
        if store.open().any(|call| call.id == id) {
            let lost = self.provided().filter(|(of, object)| *of == slot && uid(object) != recorded);
            lost.for_each(|(_, object)| self.provider.remove(uid(&object).unwrap()));
            self.inner.lock().store.retry(&id);
        }
    }

    /// The fields of an object that others have.
    pub(crate) fn claims(&self, slot: usize) -> Vec<FieldConflict> {
        let ids = self.cloud.ids();
        ids.iter().filter(|id| slot_of(id) == slot).flat_map(|id| self.cloud.claims(&id.0)).collect()
    }

    pub(crate) fn store(&self) -> Store {
        self.inner.lock().store.clone()
    }

    /// Begins a walk, or nothing but plans.
    pub(crate) fn walk(&self, walk: Option<Walk>) {
        let mut inner = self.inner.lock();
        inner.store.begin();
        inner.walk = walk;
    }

    /// Another deployment has it from now on.
    pub(crate) fn is_theirs(&self, uid: &str) {
        let mut inner = self.inner.lock();
        inner.ours.remove(uid);
    }

    /// An object is not healthy from now on, or is again.
    pub(crate) fn sicken(&self, slot: usize, is_sick: bool) {
        let mut inner = self.inner.lock();
        if is_sick {
            inner.sick.insert(slot);
        } else {
            inner.sick.remove(&slot);
        }
        let health = if is_sick { Health::Failed } else { Health::Current };
        [false, true].iter().for_each(|earlier| self.cloud.set_health(&SLOTS[slot].id(*earlier).0, &[(health, "")]));
    }

    /// Adds a finalizer to an object: for a while, or until others remove it.
    pub(crate) fn hold(&self, slot: usize, is_for_a_while: bool) {
        if is_for_a_while {
            self.inner.lock().lingering.insert(slot);
        }
        self.cloud.ids().iter().filter(|id| slot_of(id) == slot).for_each(|id| self.cloud.hold(&id.0));
    }

    /// Removes a finalizer. The contents of a namespace are deleted with it.
    pub(crate) fn let_go(&self, slot: usize) {
        self.inner.lock().lingering.remove(&slot);
        if slot == NAMESPACE && self.is_namespace_going() {
            for id in self.cloud.ids().iter().filter(|id| SLOTS[slot_of(id)].is_in_namespace()) {
                self.let_go(slot_of(id));
                self.cloud.remove(&id.0);
            }
        }
        [false, true].iter().for_each(|earlier| self.cloud.let_go(&SLOTS[slot].id(*earlier).0));
    }

    /// Whether the namespace is terminating.
    pub(crate) fn is_namespace_going(&self) -> bool {
        self.objects().get(&NAMESPACE).is_some_and(is_terminating)
    }

    pub(crate) fn is_sick(&self, slot: usize) -> bool {
        self.inner.lock().sick.contains(&slot)
    }

    pub(crate) fn broken(&self, rule: impl Into<String>) {
        self.inner.lock().broken.push(rule.into());
    }

    pub(crate) fn note(&self, line: String) {
        self.inner.lock().trace.push(line);
    }

    /// The broken rules so far, with the steps until then.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        let inner = self.inner.lock();
        if inner.broken.is_empty() {
            return Ok(());
        }
        Err(format!("broken:\n  {}\nafter:\n  {}", inner.broken.join("\n  "), inner.trace.join("\n  ")))
    }

    /// Something may happen here.
    async fn step(&self, what: String) {
        let interrupt = {
            let mut inner = self.inner.lock();
            let Some(walk) = &mut inner.walk else { return };
            if walk.crashed.is_cancelled() {
                None
            } else {
                let interrupt = walk.now.interrupt.filter(|(at, _)| *at == walk.steps).map(|(_, how)| how);
                let line = match interrupt {
                    Some(how) => format!("{:>3} {what}: {how:?}", walk.steps),
                    None => format!("{:>3} {what}", walk.steps),
                };
                walk.steps += 1;
                match interrupt {
                    Some(Interrupt::Crash) => walk.crashed.cancel(),
                    Some(Interrupt::Cancel) => walk.cancel.cancel(),
                    Some(Interrupt::Suspend) | None => {}
                }
                let has_crashed = walk.crashed.is_cancelled();
                inner.trace.push(line);
                if has_crashed { None } else { Some(interrupt) }
            }
        };
        match interrupt {
            None => pending().await,
            Some(Some(Interrupt::Suspend)) => tokio::time::advance(SUSPENDED).await,
            Some(_) => {}
        }
    }

    /// The fault of this call.
    fn fault(&self, slot: usize) -> Option<Fault> {
        let mut inner = self.inner.lock();
        let faults = &mut inner.walk.as_mut()?.now.faults;
        let at = faults.iter().position(|(of, ..)| *of == slot)?;
        if faults[at].1 > 0 {
            faults[at].1 -= 1;
            return None;
        }
        Some(faults.remove(at).2)
    }

    /// Checks that a call may be made now, and lets it not be made.
    async fn before(&self, is_apply: bool, id: &ResourceId) -> Result<Option<Fault>, RuntimeError> {
        let what = if is_apply { "apply" } else { "delete" };
        self.check_call(is_apply, id);
        self.step(format!("{what} {id}")).await;
        let fault = self.fault(slot_of(id));
        if let Some(fault) = fault {
            self.note(format!("    {fault:?}"));
        }
        let is_provided = SLOTS[slot_of(id)].is_provided;
        match fault {
            // A provider does not say that a call which may have been made can be repeated.
            Some(Fault::Passing) if is_provided => Err(RuntimeError::Unread { message: "busy".to_owned() }),
            Some(Fault::Lingers | Fault::Stuck) if is_provided => {
                self.provider.fail_change(&id.0, ChangeFault::Halfway);
                Ok(fault)
            }
            Some(Fault::Refused) => {
                Err(RuntimeError::Rejected { message: "no".to_owned(), field: None, by_definition: false })
            }
            Some(Fault::Passing) => Err(passing(id).await),
            Some(Fault::HangsBefore) => pending().await,
            Some(Fault::Lost | Fault::HangsAfter | Fault::Lingers | Fault::Stuck) | None => Ok(fault),
        }
    }

    /// The call took effect; its answer may be lost.
    async fn after(&self, id: &ResourceId, fault: Option<Fault>) -> Result<(), RuntimeError> {
        self.provider.clear_faults();
        self.step(format!("called {id}")).await;
        match fault {
            Some(Fault::Lost) if SLOTS[slot_of(id)].is_provided => {
                Err(RuntimeError::Lost { message: "no answer".to_owned() })
            }
            Some(Fault::Lost) => Err(passing(id).await),
            Some(Fault::HangsAfter) => pending().await,
            Some(Fault::Refused | Fault::Passing | Fault::HangsBefore | Fault::Lingers | Fault::Stuck) | None => Ok(()),
        }
    }

    fn check_call(&self, is_apply: bool, id: &ResourceId) {
        let objects = self.objects();
        let mut inner = self.inner.lock();
        let Some(walk) = &inner.walk else {
            return inner.broken.push(format!("{id} is called for by a plan"));
        };
        let mut broken = Vec::new();
        match named(&walk.plan, is_apply, id) {
            None => broken.push(format!("no action of the plan is this call for {id}")),
            Some(planned) => {
                let intent = inner.store.intent_of(&planned.id);
                if intent.is_none_or(|call| call.action != planned.action || call.run != walk.run) {
                    broken.push(format!("{id} is called for before its intent is recorded"));
                }
                let done = inner.store.done_by(&walk.run);
                let left =
                    |id: &ResourceId| walk.plan.actions.iter().any(|it| it.id == *id && it.action == Action::Unchanged);
                for before in planned.after.iter().filter(|before| !done.contains(before) && !left(before)) {
                    broken.push(format!("{id} is called for before the result of {before} is recorded"));
                }
                if !is_apply && slot_of(id) == NAMESPACE {
                    let stays = |it: &PlannedAction| match it.action {
                        Action::Create | Action::Replace => planned.action == Action::Delete,
                        _ => it.action.keeps(),
                    };
                    let inside = walk.plan.actions.iter().filter(|it| SLOTS[slot_of(&it.id)].is_in_namespace());
                    broken.extend(inside.filter(|it| stays(it)).map(|it| format!("{} goes with {id}", it.id)));
                }
                if planned.action == Action::Delete {
                    // Deletions wait for all changes: what replaces something may fail.
                    let changes = walk.plan.actions.iter().filter(|it| it.action.is_call() && it.action.keeps());
                    for change in changes.filter(|it| !done.contains(&it.id)) {
                        broken.push(format!("{id} is deleted before {} has succeeded", change.id));
                    }
                    // Records of one object under two ids may contradict each other.
                    let is_other = |it: &StateResource| it.id != *id && slot_of(&it.id) == slot_of(id);
                    let contradicts = |dependent: &ResourceId| {
                        inner.store.records().any(|it| is_other(it) && it.depends_on.contains(dependent))
                    };
                    let dependents = inner.store.records().filter(|it| it.id != *id && it.depends_on.contains(id));
                    let dependents = dependents.filter(|it| !contradicts(&it.id));
                    broken.extend(dependents.map(|it| format!("{id} is deleted while {} depends on it", it.id)));
                } else if is_apply && walk.is_alone {
                    let want = walk.goal.want(slot_of(id));
                    let dependencies = want.map(|want| want.after.iter().chain(want.refers.iter().map(|(to, _)| to)));
                    for slot in dependencies.into_iter().flatten() {
                        let is_recorded = walk.goal.id(*slot).is_some_and(|id| inner.store.record(&id).is_some());
                        if !objects.contains_key(slot) || !is_recorded {
                            broken.push(format!("{id} is applied before {} is there", SLOTS[*slot].name));
                        }
                    }
                }
            }
        }
        inner.broken.extend(broken);
    }

    /// Checks what a call did to the object of the provider.
    fn check_provided_effect(&self, is_apply: bool, id: &ResourceId, before: Option<&str>, after: Option<&str>) {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let Some(walk) = &inner.walk else { return };
        let planned = named(&walk.plan, is_apply, id);
        let recorded = inner.store.record(id).and_then(|record| uid(&record.live));
        match (before, after) {
            (None, Some(after)) if is_apply => {
                let is_creation = |it: &PlannedAction| matches!(it.action, Action::Create | Action::Replace);
                if !planned.is_some_and(is_creation) {
                    inner.broken.push(format!("{id} was created, and no creation was planned"));
                }
                inner.made.insert(after.to_owned(), walk.run.clone());
            }
            (Some(before), None) if !is_apply => {
                if recorded != Some(before) {
                    inner.broken.push(format!("{id} was deleted, and another object is recorded"));
                }
                if inner.made.get(before) == Some(&walk.run) {
                    inner.broken.push(format!("{id} was deleted by the run that made it"));
                }
            }
            (before, after) if before == after => {}
            (before, after) => inner.broken.push(format!("{id} was {before:?}, and a call made it {after:?}")),
        }
    }

    /// Checks what a call did to the objects.
    fn check_effect(&self, is_apply: bool, id: &ResourceId, before: &Objects, claims: &[FieldConflict]) {
        let after = self.objects();
        let slot = slot_of(id);
        if SLOTS[slot].is_provided {
            let [had, has] = [before, &after].map(|objects| objects.get(&slot).and_then(uid));
            return self.check_provided_effect(is_apply, id, had, has);
        }
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        for other in (0..SLOTS.len()).filter(|other| *other != slot && before.get(other) != after.get(other)) {
            inner.broken.push(format!("the call for {id} changed {}", SLOTS[other].name));
        }
        let inside: Vec<_> =
            before.iter().filter(|(slot, _)| SLOTS[**slot].is_in_namespace()).map(|(_, object)| object).collect();
        let (before, after) = (before.get(&slot), after.get(&slot));
        if before == after {
            return;
        }
        if !is_apply && slot == NAMESPACE && inside.iter().any(|object| is_theirs(object) && !is_terminating(object)) {
            inner.broken.push(format!("what others own goes with {id}"));
        }
        if before.is_some_and(is_theirs) {
            let walk = inner.walk.as_ref();
            let is_wanted = walk.and_then(|walk| walk.goal.want(slot)).is_some_and(|want| want.take_over);
            // What others make after the plan is taken over all the same where the resource says so.
            let is_planned = walk.is_some_and(|walk| {
                !walk.is_alone || named(&walk.plan, is_apply, id).is_some_and(|planned| planned.owned_by.is_some())
            });
            if !(is_apply && is_wanted && is_planned) {
                inner.broken.push(format!("{id} is another deployment's and was changed"));
            }
        }
        let planned = inner.walk.as_ref().and_then(|walk| named(&walk.plan, is_apply, id));
        if planned.is_some_and(|planned| matches!(planned.action, Action::Create | Action::Replace) && is_apply)
            && before.is_some_and(|it| mark(it).is_none())
        {
            inner.broken.push(format!("{id} was not to be there, and is taken from whoever made it"));
        }
        if let Some(update) = planned.filter(|planned| planned.action == Action::Update && is_apply)
            && let Some(before) = before.filter(|it| mark(it).is_none())
        {
            let ids = [Some(id), update.recorded_as.as_ref()].into_iter().flatten();
            let recorded: Vec<_> = ids.filter_map(|id| inner.store.record(id)?.uid()).collect();
            if uid(before).is_some_and(|uid| !recorded.is_empty() && !recorded.contains(&uid)) {
                inner.broken.push(format!("{id} was to be another, and is taken from whoever made it"));
            }
        }
        // The only field that others ever have.
        let value = |object: &Map<String, Value>| object[SLOTS[slot].values].get("v").cloned();
        if let (Some(before), Some(after)) = (before, after)
            && value(before) != value(after)
        {
            let walk = inner.walk.as_ref();
            let says_so = walk.and_then(|walk| walk.goal.want(slot)).is_some_and(|want| want.force);
            let planned = walk.and_then(|walk| named(&walk.plan, is_apply, id));
            for claim in claims.iter().filter(|claim| claim.applies) {
                // What could not be asked before is decided about by the resource alone.
                let is_planned = planned.is_some_and(|it| it.unverified.is_some() || it.taken.contains(claim));
                if !(says_so && is_planned) {
                    inner.broken.push(format!("{id} was changed where {} has it", claim.manager));
                }
            }
        }
        match after {
            Some(after) if is_apply => {
                let uid = uid(after).expect("what was applied has a uid").to_owned();
                if before.and_then(self::uid) != Some(&uid) {
                    let run = inner.walk.as_ref().map(|walk| walk.run.clone()).unwrap_or_default();
                    inner.made.insert(uid.clone(), run);
                } else if !before.is_some_and(|before| self.is_ours(before)) {
                    inner.taken_over.insert(uid.clone());
                }
                inner.ours.insert(uid);
                if !self.is_ours(after) {
                    inner.broken.push(format!("{id} was applied and does not bear our mark"));
                }
            }
            Some(after) if !is_terminating(after) => {
                inner.broken.push(format!("{id} was to be deleted and was changed"));
            }
            Some(_) | None => {
                if !before.and_then(self::uid).is_some_and(|uid| inner.ours.contains(uid)) {
                    inner.broken.push(format!("{id} was deleted and was not ours"));
                }
                let made_by = before.and_then(self::uid).and_then(|uid| inner.made.get(uid));
                if made_by.is_some() && made_by == inner.walk.as_ref().map(|walk| &walk.run) {
                    inner.broken.push(format!("{id} was deleted by the run that made it"));
                }
            }
        }
    }
}

/// The action that a call is for.
fn named<'a>(plan: &'a Plan, is_apply: bool, id: &ResourceId) -> Option<&'a PlannedAction> {
    plan.actions.iter().find(|planned| match planned.action {
        Action::Create | Action::Update | Action::Adopt => is_apply && planned.id == *id,
        Action::Replace if is_apply => planned.id == *id,
        // What an earlier try made has the new id already.
        Action::Replace => planned.id == *id || planned.recorded_as.as_ref() == Some(id),
        Action::Delete => !is_apply && planned.id == *id,
        Action::Import | Action::Forget | Action::Read | Action::Unchanged => false,
    })
}

/// A retryable error after a time of its own, so that waiters wake in the same order every time, although pauses are
/// random.
async fn passing(id: &ResourceId) -> RuntimeError {
    tokio::time::sleep(Duration::from_secs(1 << slot_of(id))).await;
    RuntimeError::Unavailable { message: "connection reset".to_owned() }
}

/// The runtime as the executor sees it.
#[derive(Debug)]
pub(crate) struct CheckedRuntime(pub(crate) Arc<Infrastructure>);

#[async_trait]
impl Runtime for CheckedRuntime {
    fn owner(&self) -> &Owner {
        self.0.runtime.owner()
    }

    fn kubernetes(&self) -> &dyn KubernetesChecks {
        self.0.runtime.kubernetes()
    }

    fn providers(&self) -> &dyn ProviderChecks {
        self.0.runtime.providers()
    }

    async fn read(&self, requests: &[ReadRequest<'_>]) -> Result<Vec<Result<Live, RuntimeError>>, RuntimeError> {
        self.0.step("read".to_owned()).await;
        self.0.runtime.read(requests).await
    }

    async fn inspect(&self, resources: &[&StateResource]) -> Result<Vec<Result<Found, RuntimeError>>, RuntimeError> {
        self.0.step("look for".to_owned()).await;
        self.0.runtime.inspect(resources).await
    }

    async fn preview(
        &self,
        request: &ApplyRequest<'_>,
        live: Option<&Map<String, Value>>,
    ) -> Result<Preview, RuntimeError> {
        self.0.runtime.preview(request, live).await
    }

    async fn apply(&self, request: &ApplyRequest<'_>) -> Result<Applied, RuntimeError> {
        let id = &request.desired.id;
        let fault = self.0.before(true, id).await?;
        let (before, claims) = (self.0.objects(), self.0.claims(slot_of(id)));
        let applied = self.0.runtime.apply(request).await;
        self.0.check_effect(true, id, &before, &claims);
        self.0.after(id, fault).await?;
        applied
    }

    async fn delete(&self, prior: &StateResource) -> Result<Deleted, RuntimeError> {
        let fault = self.0.before(false, &prior.id).await?;
        if matches!(fault, Some(Fault::Lingers | Fault::Stuck)) && !SLOTS[slot_of(&prior.id)].is_provided {
            self.0.hold(slot_of(&prior.id), fault == Some(Fault::Lingers));
        }
        let before = self.0.objects();
        let deleted = self.0.runtime.delete(prior).await;
        self.0.check_effect(false, &prior.id, &before, &[]);
        self.0.after(&prior.id, fault).await?;
        deleted
    }

    async fn wait_deleted(&self, object: &KubernetesObject, report: &DeletionReport<'_>) -> Result<(), RuntimeError> {
        let there = self.0.objects().into_iter().find(|(_, there)| uid(there) == Some(&object.uid));
        if let Some((slot, _)) = there {
            let id = SLOTS[slot].id(false);
            self.0.step(format!("wait for {id} to be gone")).await;
            match self.0.fault(slot) {
                Some(Fault::Refused) => {
                    return Err(RuntimeError::Rejected { message: "no".to_owned(), field: None, by_definition: false });
                }
                Some(Fault::Passing | Fault::Lost) => return Err(passing(&id).await),
                Some(Fault::HangsBefore | Fault::HangsAfter) => pending().await,
                Some(Fault::Lingers | Fault::Stuck) | None => {}
            }
            if self.0.inner.lock().lingering.contains(&slot) {
                tokio::time::sleep(LINGERS * (1 << slot)).await;
                self.0.let_go(slot);
            }
        }
        self.0.runtime.wait_deleted(object, report).await?;
        self.0.step("it is gone".to_owned()).await;
        Ok(())
    }

    async fn wait_healthy(&self, desired: &Resource, report: &HealthReport<'_>) -> Result<Health, RuntimeError> {
        self.0.runtime.wait_healthy(desired, report).await
    }

    async fn finish(&self, grant: &Grant) -> Result<Finished, RuntimeError> {
        self.0.step("finish".to_owned()).await;
        self.0.runtime.finish(grant).await
    }
}

/// Records reports of the executor and checks them.
#[derive(Debug)]
pub(crate) struct CheckedObserver(pub(crate) Arc<Infrastructure>);

#[async_trait]
impl Observer for CheckedObserver {
    async fn intent(&self, calls: &[Intended], action: Action) -> Result<(), Abandoned> {
        let names = calls.iter().map(|call| call.id.to_string()).collect::<Vec<_>>().join(", ");
        self.0.step(format!("intent {action} {names}")).await;
        {
            let mut inner = self.0.inner.lock();
            let inner = &mut *inner;
            let walk = inner.walk.as_ref().ok_or(Abandoned)?;
            inner.store.intent(calls, action, &walk.run);
        }
        self.0.step(format!("recorded {action} {names}")).await;
        Ok(())
    }

    async fn result(&self, result: ResourceResult) -> Result<(), Abandoned> {
        self.0.step(format!("result {} {} {}", result.outcome, result.id, result.message)).await;
        let is_removed = result.action == Action::Delete && result.outcome == ResourceOutcome::Done && !result.left;
        let (objects, slot) = (self.0.objects(), slot_of(&result.id));
        {
            let mut inner = self.0.inner.lock();
            let inner = &mut *inner;
            let walk = inner.walk.as_ref().ok_or(Abandoned)?;
            let record = inner.store.record(&result.id).and_then(|record| uid(&record.live));
            if let Some(record) = &result.resource {
                let record = StateResource { provider_state: None, ..record.clone() };
                let has_secret = serde_json::to_string(&record).unwrap().contains(SECRET);
                if has_secret || result.message.contains(SECRET) {
                    inner.broken.push(format!("the result of {} has a secret", result.id));
                }
            }
            if is_removed && record.is_some() && objects.get(&slot).and_then(uid) == record {
                inner.broken.push(format!("{} is told to be gone, and is there", result.id));
            }
            inner.store.result(&result, &walk.run);
            if let (Action::Import, Some(record)) = (result.action, &result.resource) {
                // Whoever imports says that it is theirs.
                inner.ours.extend(record.uid().map(str::to_owned));
            }
        }
        self.0.step(format!("recorded {}", result.id)).await;
        Ok(())
    }

    async fn health(&self, id: &ResourceId, health: Health, _: &str) {
        if health.is_settled() {
            self.0.inner.lock().store.is_healthy(id);
        }
    }

    async fn health_timed_out(&self, _: &ResourceId, _: Health, _: &str) {}
}
