//! A runtime that keeps its resources in memory, for tests.
//!
//! It counts and records its calls, sets a uid and a resourceVersion as a server does, knows an object by its group, kind,
//! namespace and name as a cluster does, keeps fields that others set, removes those that it applied before and that are
//! not wanted any more, keeps fields for those who manage them, and fails, hangs or waits as it is told.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use stoa_engine::owner::taken_from;
use stoa_engine::spec::RECREATE;
use stoa_engine::{FieldConflict, Ignored, Live, ObjectRef, Owner, Preview, Resource, ResourceId, StateResource};
use tokio::sync::Semaphore;

use crate::{
    Applied, ApplyRequest, Deleted, Finished, Found, Grant, Health, HealthReport, KubernetesObject, LostCall,
    ReadRequest, Runtime, RuntimeError,
};

/// What [`Runtime::finish`] of a deferred runtime is held back by.
pub const FINISH: &str = "finish";

/// A call that a [`FakeRuntime`] was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// [`Runtime::read`], once for each resource.
    Read,
    /// [`Runtime::look_for`], once for each resource.
    LookFor,
    /// [`Runtime::preview`]
    Preview,
    /// [`Runtime::apply`]
    Apply,
    /// [`Runtime::delete`]
    Delete,
    /// [`Runtime::wait_healthy`]
    WaitHealthy,
}

/// The infrastructure behind fake runtimes: it outlives the runtime of one run.
#[derive(Clone, Debug, Default)]
pub struct FakeCloud {
    state: Arc<Mutex<State>>,
}

/// What tells one object from another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// Group, kind, namespace and name: whatever version it is written in.
    Object([String; 4]),
    /// What is no Kubernetes object has its id alone.
    Other(ResourceId),
}

impl Place {
    fn of(id: &ResourceId, attributes: &Map<String, Value>) -> Self {
        match ObjectRef::of(attributes) {
            Some(object) => Self::Object([object.group, object.kind, object.namespace, object.name]),
            None => Self::Other(id.clone()),
        }
    }
}

/// What is live.
#[derive(Clone, Debug)]
struct Stored {
    /// The id under which it was last applied or put.
    id: ResourceId,
    object: Map<String, Value>,
    /// What was applied last: the fields that go when they are no longer wanted.
    applied: Map<String, Value>,
    /// The fields that others manage.
    claims: Vec<Claim>,
}

/// A field, two deep, that another manager has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    manager: String,
    /// Whether it applies the field, rather than having changed it once.
    applies: bool,
    field: [String; 2],
}

impl Claim {
    fn value<'a>(&self, object: &'a Map<String, Value>) -> Option<&'a Value> {
        object.get(&self.field[0])?.get(&self.field[1])
    }

    fn as_conflict(&self) -> FieldConflict {
        let fields = vec![format!(".{}", self.field.join("."))];
        FieldConflict { manager: self.manager.clone(), applies: self.applies, fields }
    }
}

#[derive(Debug, Default)]
struct State {
    live: BTreeMap<Place, Stored>,
    /// Fields at the top of objects that cannot be changed in place.
    fixed: BTreeSet<String>,
    /// What cannot be looked for.
    hidden: BTreeSet<ResourceId>,
    /// Errors in place of the answers to calls that are made.
    lost: BTreeMap<ResourceId, VecDeque<RuntimeError>>,
    version: u64,
    calls: Vec<(Operation, ResourceId)>,
    faults: BTreeMap<(Operation, ResourceId), VecDeque<RuntimeError>>,
    gates: BTreeMap<ResourceId, Arc<Semaphore>>,
    healths: BTreeMap<ResourceId, Vec<(Health, String)>>,
    in_flight: usize,
    most_in_flight: usize,
}

impl FakeCloud {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// A runtime for one run of the deployment `fake/stack/workspace`, which makes every change at once.
    pub fn runtime(&self) -> FakeRuntime {
        let owner = Owner {
            organization: "fake".to_owned(),
            stack: "stack".to_owned(),
            workspace: "workspace".to_owned(),
            stack_uid: "uid".to_owned(),
        };
        FakeRuntime { cloud: self.clone(), owner, deferred: None, accepts_sensitive: true }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is live under an id.
    pub fn live(&self, id: &str) -> Option<Map<String, Value>> {
        self.lock().live.values().find(|stored| stored.id.0 == id).map(|stored| stored.object.clone())
    }

    /// The ids of everything that is live.
    pub fn ids(&self) -> Vec<ResourceId> {
        let mut ids: Vec<_> = self.lock().live.values().map(|stored| stored.id.clone()).collect();
        ids.sort();
        ids
    }

    /// Puts something there, or changes it, as somebody else would.
    pub fn put(&self, id: &str, object: Value) {
        let (id, object) = (ResourceId::from(id), object.as_object().cloned().unwrap_or_default());
        let mut state = self.lock();
        let place = Place::of(&id, &object);
        let before = state.live.remove(&place);
        let (applied, claims) = before.map(|stored| (stored.applied, stored.claims)).unwrap_or_default();
        state.live.insert(place, Stored { id, object, applied, claims });
    }

    /// Lets another manager have a field of what is there, such as `["data", "a"]`, with the value that it has.
    /// `applies` when it applies the field, rather than having changed it once.
    pub fn claim(&self, id: &str, field: [&str; 2], manager: &str, applies: bool) {
        let claim = Claim { manager: manager.to_owned(), applies, field: field.map(str::to_owned) };
        let mut state = self.lock();
        let Some(stored) = state.live.values_mut().find(|stored| stored.id.0 == id) else { return };
        stored.claims.retain(|other| other.field != claim.field);
        stored.claims.push(claim);
    }

    /// Lets nobody else have fields of what is there any more.
    pub fn release(&self, id: &str) {
        let mut state = self.lock();
        state.live.values_mut().filter(|stored| stored.id.0 == id).for_each(|stored| stored.claims.clear());
    }

    /// The fields of what is there that others have.
    pub fn claims(&self, id: &str) -> Vec<FieldConflict> {
        let state = self.lock();
        let stored = state.live.values().filter(|stored| stored.id.0 == id);
        stored.flat_map(|stored| stored.claims.iter().map(Claim::as_conflict)).collect()
    }

    /// Removes something, as somebody else would.
    pub fn remove(&self, id: &str) {
        self.lock().live.retain(|_, stored| stored.id.0 != id);
    }

    /// Lets a field at the top of objects never be changed in place, as a Secret's `type`.
    pub fn fix(&self, field: &str) {
        self.lock().fixed.insert(field.to_owned());
    }

    fn at(&self, place: &Place) -> Option<Map<String, Value>> {
        self.lock().live.get(place).map(|stored| stored.object.clone())
    }

    /// Lets the next call of this kind for the resource fail; called again, the one after it too.
    pub fn fail(&self, operation: Operation, id: &str, error: RuntimeError) {
        self.lock().faults.entry((operation, id.into())).or_default().push_back(error);
    }

    /// Lets the next [`Runtime::apply`] or [`Runtime::delete`] of the resource be made and its answer be lost: the
    /// caller gets this error.
    pub fn lose(&self, id: &str, error: RuntimeError) {
        self.lock().lost.entry(id.into()).or_default().push_back(error);
    }

    /// Loses no more answers of the resource.
    pub fn answer_again(&self, id: &str) {
        self.lock().lost.remove(id);
    }

    /// Lets nobody look for what became of a lost call, as where a create has to answer with the name of what it made. What
    /// is live is found by its uid alone.
    pub fn hide(&self, id: &str) {
        self.lock().hidden.insert(id.into());
    }

    /// Holds back [`Runtime::apply`] and [`Runtime::delete`] of a resource, or [`Runtime::finish`] where that makes the
    /// changes ([`FINISH`]), until a permit is added to the semaphore; one lets one call through.
    pub fn gate(&self, id: &str) -> Arc<Semaphore> {
        let gate = Arc::new(Semaphore::new(0));
        self.lock().gates.insert(id.into(), Arc::clone(&gate));
        gate
    }

    /// Lets a resource report these healths, one after the other; it keeps the last. When that is
    /// [`Health::InProgress`], it stays so for ever.
    pub fn set_health(&self, id: &str, healths: &[(Health, &str)]) {
        let healths = healths.iter().map(|(health, message)| (*health, (*message).to_owned())).collect();
        self.lock().healths.insert(id.into(), healths);
    }

    /// All calls so far, in the order in which they began.
    pub fn calls(&self) -> Vec<(Operation, ResourceId)> {
        self.lock().calls.clone()
    }

    /// The ids of all calls of one kind so far, in order.
    pub fn called(&self, operation: Operation) -> Vec<ResourceId> {
        self.lock().calls.iter().filter(|(made, _)| *made == operation).map(|(_, id)| id.clone()).collect()
    }

    /// Forgets the calls so far.
    pub fn clear_calls(&self) {
        self.lock().calls.clear();
    }

    /// How many changes were under way at once at most.
    pub fn most_in_flight(&self) -> usize {
        self.lock().most_in_flight
    }

    /// Notes a call, and fails it when it is to fail.
    fn begin(&self, operation: Operation, id: &ResourceId) -> Result<(), RuntimeError> {
        let mut state = self.lock();
        state.calls.push((operation, id.clone()));
        match state.faults.get_mut(&(operation, id.clone())).and_then(VecDeque::pop_front) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Whether the answer to a call that was made is lost.
    fn answer(&self, id: &ResourceId) -> Result<(), RuntimeError> {
        let error = self.lock().lost.get_mut(id).and_then(VecDeque::pop_front);
        error.map_or(Ok(()), Err)
    }

    /// Counts a change as under way until the guard is dropped, and waits for its gate.
    async fn enter(&self, id: &ResourceId) -> InFlight {
        let gate = {
            let mut state = self.lock();
            state.in_flight += 1;
            state.most_in_flight = state.most_in_flight.max(state.in_flight);
            state.gates.get(id).cloned()
        };
        let guard = InFlight(self.clone());
        if let Some(gate) = gate
            && let Ok(permit) = gate.acquire().await
        {
            permit.forget();
        }
        guard
    }

    /// What applying makes of what is there: wanted fields are set, those that were applied before and are no longer
    /// wanted go, and all others stay.
    fn merged(&self, owner: &Owner, desired: &Resource) -> Stored {
        let before = self.lock().live.get(&Place::of(&desired.id, &desired.attributes)).cloned();
        let mut wanted = desired.attributes.clone();
        if let (Some(before), Ok(ignored)) = (&before, Ignored::of(desired)) {
            wanted = ignored.as_live(wanted, &before.object);
        }
        let before = before.unwrap_or_else(|| Stored {
            id: desired.id.clone(),
            object: Map::new(),
            applied: Map::new(),
            claims: Vec::new(),
        });
        let mut object = before.object.clone();
        drop_unwanted(&mut object, &before.applied, &wanted);
        for claim in before.claims.iter().filter(|claim| claim.value(&wanted).is_none()) {
            if let (Some(Value::Object(fields)), Some(value)) =
                (object.get_mut(&claim.field[0]), claim.value(&before.object))
            {
                fields.insert(claim.field[1].clone(), value.clone());
            }
        }
        merge(&mut object, &owner.marked(&wanted));
        Stored { id: desired.id.clone(), object, applied: wanted, claims: before.claims }
    }

    /// The fields that others have and that this would change.
    fn contested(&self, merged: &Stored) -> Vec<FieldConflict> {
        let state = self.lock();
        let Some(before) = state.live.get(&Place::of(&merged.id, &merged.object)) else { return Vec::new() };
        let changed = |claim: &&Claim| claim.value(&before.object) != claim.value(&merged.object);
        let mut conflicts: Vec<_> = before.claims.iter().filter(changed).map(Claim::as_conflict).collect();
        conflicts.sort();
        conflicts
    }

    /// Whether this would change in place what cannot be.
    fn is_fixed(&self, merged: &Stored) -> bool {
        let state = self.lock();
        let Some(before) = state.live.get(&Place::of(&merged.id, &merged.object)) else { return false };
        state.fixed.iter().any(|field| {
            let before = before.object.get(field);
            before.is_some() && before != merged.object.get(field)
        })
    }

    fn store(&self, mut stored: Stored) -> Map<String, Value> {
        let mut state = self.lock();
        let place = Place::of(&stored.id, &stored.object);
        if let Some(before) = state.live.get_mut(&place)
            && without_version(&before.object) == without_version(&stored.object)
        {
            (before.id, before.applied) = (stored.id, stored.applied);
            return before.object.clone();
        }
        if let Some(before) = state.live.get(&place) {
            // What was changed was taken from whoever had it.
            stored.claims = before.claims.clone();
            stored.claims.retain(|claim| claim.value(&before.object) == claim.value(&stored.object));
        }
        state.version += 1;
        let version = state.version;
        let metadata = stored.object.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.entry("uid").or_insert_with(|| json!(format!("uid-{version}")));
            metadata.insert("resourceVersion".to_owned(), json!(version.to_string()));
        }
        let object = stored.object.clone();
        state.live.insert(place, stored);
        object
    }
}

struct InFlight(FakeCloud);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.lock().in_flight -= 1;
    }
}

fn without_version(object: &Map<String, Value>) -> Map<String, Value> {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    object
}

fn merge(into: &mut Map<String, Value>, wanted: &Map<String, Value>) {
    for (key, value) in wanted {
        match (into.get_mut(key), value) {
            (Some(Value::Object(into)), Value::Object(wanted)) => merge(into, wanted),
            _ => drop(into.insert(key.clone(), value.clone())),
        }
    }
}

fn drop_unwanted(from: &mut Map<String, Value>, prior: &Map<String, Value>, wanted: &Map<String, Value>) {
    for (key, prior) in prior {
        match (prior, wanted.get(key), from.get_mut(key)) {
            (_, None, _) => drop(from.remove(key)),
            (Value::Object(prior), Some(Value::Object(wanted)), Some(Value::Object(from))) => {
                drop_unwanted(from, prior, wanted);
            }
            _ => {}
        }
    }
}

/// A runtime over a [`FakeCloud`].
#[derive(Clone, Debug)]
pub struct FakeRuntime {
    cloud: FakeCloud,
    owner: Owner,
    /// What a deferred runtime gathered; `None` for one that makes every change at once.
    deferred: Option<Arc<Mutex<Gathered>>>,
    accepts_sensitive: bool,
}

#[derive(Debug, Default)]
struct Gathered {
    changes: BTreeMap<ResourceId, Change>,
    finished: Finished,
}

#[derive(Debug)]
enum Change {
    /// What is stored, and from whom it may be taken over.
    Store(Stored, Option<String>),
    Remove(Place),
}

impl FakeRuntime {
    fn gather(&self, id: &ResourceId, change: Change) -> bool {
        let Some(gathered) = &self.deferred else { return false };
        gathered.lock().unwrap_or_else(PoisonError::into_inner).changes.insert(id.clone(), change);
        true
    }

    /// The same for another deployment.
    #[must_use]
    pub fn of(self, owner: Owner) -> Self {
        Self { owner, ..self }
    }

    /// The other deployment that has what is live.
    fn other(&self, place: &Place) -> Option<String> {
        self.owner.other(&self.cloud.at(place)?)
    }

    /// Refuses what another deployment has.
    fn guard(&self, place: &Place, from: Option<&str>) -> Result<(), RuntimeError> {
        let live = self.cloud.at(place);
        live.map_or(Ok(()), |live| RuntimeError::unless_owned(&self.owner, from, &live))
    }

    /// The fields that are taken from others; refuses what is not to be taken.
    fn taken(&self, request: &ApplyRequest<'_>, merged: &Stored) -> Result<Vec<FieldConflict>, RuntimeError> {
        let conflicts = self.cloud.contested(merged);
        if conflicts.is_empty() || request.takes(&conflicts) {
            return Ok(conflicts);
        }
        let managers: Vec<&str> = conflicts.iter().map(|conflict| conflict.manager.as_str()).collect();
        Err(RuntimeError::Conflict(format!("fields are managed by {}", managers.join(", "))))
    }

    /// The same, but changes are made by [`finish`](Runtime::finish).
    #[must_use]
    pub fn deferred(self) -> Self {
        Self { deferred: Some(Arc::default()), ..self }
    }

    /// The same, but sensitive values are not taken.
    #[must_use]
    pub fn in_the_open(self) -> Self {
        Self { accepts_sensitive: false, ..self }
    }
}

/// The object as it is served in the version that is asked for.
fn served(mut object: Map<String, Value>, asked: &Map<String, Value>) -> Map<String, Value> {
    if let Some(version) = asked.get("apiVersion") {
        object.insert("apiVersion".to_owned(), version.clone());
    }
    object
}

fn uid(object: &Map<String, Value>) -> Option<&str> {
    object.get("metadata")?.get("uid")?.as_str()
}

fn fixed() -> RuntimeError {
    RuntimeError::Rejected { message: "the field is immutable".to_owned(), field: None }
}

fn check(resource: &Resource) -> Result<ObjectRef, RuntimeError> {
    ObjectRef::of(&resource.attributes).ok_or_else(|| RuntimeError::Invalid {
        message: "an object needs apiVersion, kind and metadata.name".to_owned(),
        field: Some("attributes".to_owned()),
    })
}

#[async_trait]
impl Runtime for FakeRuntime {
    fn owner(&self) -> &Owner {
        &self.owner
    }

    fn is_deferred(&self) -> bool {
        self.deferred.is_some()
    }

    fn accepts_sensitive(&self) -> bool {
        self.accepts_sensitive
    }

    async fn read(&self, requests: &[ReadRequest<'_>]) -> Result<Vec<Result<Live, RuntimeError>>, RuntimeError> {
        let read = requests.iter().map(|request| {
            self.cloud.begin(Operation::Read, request.id())?;
            let attributes = request.desired.map(|it| &it.attributes).or(request.prior.map(|it| &it.attributes));
            let Some(attributes) = attributes else { return Ok(Live::Absent) };
            let live = self.cloud.at(&Place::of(request.id(), attributes));
            Ok(live.map_or(Live::Absent, |live| Live::Present(served(live, attributes))))
        });
        Ok(read.collect())
    }

    async fn look_for(&self, calls: &[LostCall<'_>]) -> Result<Vec<Result<Found, RuntimeError>>, RuntimeError> {
        let found = calls.iter().map(|LostCall { resource, .. }| {
            self.cloud.begin(Operation::LookFor, &resource.id)?;
            let state = self.cloud.lock();
            let stored = state.live.get(&Place::of(&resource.id, &resource.attributes));
            let live = stored.map(|stored| stored.object.clone());
            let is_recorded = live.as_ref().and_then(uid).is_some_and(|uid| Some(uid) == resource.uid());
            if state.hidden.contains(&resource.id) && !is_recorded {
                return Ok(Found::Unknowable);
            }
            let Some(live) = live else { return Ok(Found::Absent) };
            let is_recorded = is_recorded && self.owner.other(&live).is_none();
            if !self.owner.has(&live) && !is_recorded {
                return Ok(Found::Foreign);
            }
            let kubernetes = KubernetesObject { cluster: "fake".to_owned(), ..KubernetesObject::default() };
            Ok(Found::Ours(Applied { live, kubernetes: Some(kubernetes) }))
        });
        Ok(found.collect())
    }

    async fn preview(
        &self,
        request: &ApplyRequest<'_>,
        _: Option<&Map<String, Value>>,
    ) -> Result<Preview, RuntimeError> {
        self.cloud.begin(Operation::Preview, &request.desired.id)?;
        check(request.desired)?;
        let merged = self.cloud.merged(&self.owner, request.desired);
        let conflicts = self.taken(request, &merged)?;
        if self.cloud.is_fixed(&merged) {
            let may_be_replaced = request.prior.is_some() && request.desired.is_set(RECREATE);
            return if may_be_replaced { Ok(Preview::Replaced(None)) } else { Err(fixed()) };
        }
        if conflicts.is_empty() {
            return Ok(Preview::Changed(merged.object));
        }
        Ok(Preview::Contested(merged.object, conflicts))
    }

    async fn apply(&self, request: &ApplyRequest<'_>) -> Result<Applied, RuntimeError> {
        let id = &request.desired.id;
        let guard = self.cloud.enter(id).await;
        self.cloud.begin(Operation::Apply, id)?;
        let ObjectRef { group, version, kind, namespace, name } = check(request.desired)?;
        let merged = self.cloud.merged(&self.owner, request.desired);
        let from = taken_from(request.desired).map(str::to_owned);
        let live = if self.gather(id, Change::Store(merged.clone(), from.clone())) {
            merged.object
        } else {
            let place = Place::of(id, &request.desired.attributes);
            self.guard(&place, from.as_deref())?;
            self.cloud.at(&place).map_or(Ok(()), |live| request.unless_late(&live))?;
            self.taken(request, &merged)?;
            if self.cloud.is_fixed(&merged) {
                return Err(fixed());
            }
            self.cloud.store(merged)
        };
        self.cloud.answer(id)?;
        drop(guard);
        let uid = live["metadata"].get("uid").and_then(Value::as_str).unwrap_or_default().to_owned();
        let kubernetes = KubernetesObject { cluster: "fake".to_owned(), group, version, kind, namespace, name, uid };
        Ok(Applied { live, kubernetes: Some(kubernetes) })
    }

    async fn delete(&self, prior: &StateResource) -> Result<Deleted, RuntimeError> {
        let guard = self.cloud.enter(&prior.id).await;
        self.cloud.begin(Operation::Delete, &prior.id)?;
        let place = Place::of(&prior.id, &prior.attributes);
        if !self.gather(&prior.id, Change::Remove(place.clone())) {
            if let Some(other) = self.other(&place) {
                return Ok(Deleted::Left(other));
            }
            let live = self.cloud.at(&place);
            if let (Some(live), Some(recorded)) = (&live, prior.uid())
                && uid(live) != Some(recorded)
            {
                return Err(RuntimeError::Conflict("the object is not the one that was applied".to_owned()));
            }
            self.cloud.lock().live.remove(&place);
        }
        self.cloud.answer(&prior.id)?;
        drop(guard);
        Ok(Deleted::Gone)
    }

    async fn wait_healthy(&self, desired: &Resource, report: &HealthReport<'_>) -> Result<Health, RuntimeError> {
        self.cloud.begin(Operation::WaitHealthy, &desired.id)?;
        let told = self.cloud.lock().healths.get(&desired.id).cloned();
        let told = told.unwrap_or_else(|| vec![(Health::Current, String::new())]);
        let mut last = Health::Unknown;
        for (health, message) in &told {
            report(*health, message);
            last = *health;
        }
        if matches!(last, Health::InProgress | Health::Terminating) {
            std::future::pending::<()>().await;
        }
        Ok(last)
    }

    async fn finish(&self, grant: &Grant) -> Result<Finished, RuntimeError> {
        let Some(gathered) = &self.deferred else { return Ok(Finished::default()) };
        let _guard = self.cloud.enter(&FINISH.into()).await;
        grant.check()?;
        let mut gathered = gathered.lock().unwrap_or_else(PoisonError::into_inner);
        for (id, change) in &gathered.changes {
            if let Change::Store(stored, from) = change {
                self.guard(&Place::of(id, &stored.object), from.as_deref())?;
            }
        }
        for (id, change) in std::mem::take(&mut gathered.changes) {
            match change {
                Change::Store(stored, _) => drop(self.cloud.store(stored)),
                Change::Remove(place) => {
                    if let Some(other) = self.other(&place) {
                        gathered.finished.left.insert(id, other);
                        continue;
                    }
                    self.cloud.lock().live.remove(&place);
                }
            }
            gathered.finished.commit = Some(format!("{:040x}", self.cloud.lock().version));
        }
        Ok(gathered.finished.clone())
    }
}
