//! A fake runtime in memory, for tests.
//!
//! Start at [`FakeCloud`]; its runtimes are in `runtime`. As a server does, it sets uid and resourceVersion, identifies
//! an object by group, kind, namespace and name, keeps fields of other managers, and removes its own dropped fields. It
//! records its calls, keeps objects with finalizers, and fails, hangs or waits on demand.

mod runtime;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use stoa_engine::object::{is_terminating, uid_of};
use stoa_engine::{FieldConflict, Ignored, ObjectRef, Owner, Resource, ResourceId};
use tokio::sync::{Notify, Semaphore};

use crate::{Health, JobEnd, KubernetesObject, RuntimeError};
pub use runtime::FakeRuntime;

/// The name of [`Runtime::finish`](crate::Runtime::finish) in blocked calls of a deferred runtime.
pub const FINISH: &str = "finish";

/// The value in a preview of a field that the server sets later.
const DUMMY: &str = "a dummy";

/// A call that a [`FakeRuntime`] was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// [`Runtime::read`](crate::Runtime::read), once for each resource.
    Read,
    /// [`Runtime::inspect`](crate::Runtime::inspect), once for each resource.
    LookFor,
    /// [`Runtime::foreign_contents`](crate::Runtime::foreign_contents)
    ForeignContents,
    /// [`Runtime::preview`](crate::Runtime::preview)
    Preview,
    /// [`Runtime::apply`](crate::Runtime::apply)
    Apply,
    /// [`Runtime::delete`](crate::Runtime::delete)
    Delete,
    /// [`Runtime::wait_deleted`](crate::Runtime::wait_deleted), of what is still there.
    WaitGone,
    /// [`Runtime::wait_healthy`](crate::Runtime::wait_healthy)
    WaitHealthy,
    /// [`Runtime::finish`](crate::Runtime::finish) of a deferred runtime, with the id [`FINISH`].
    Finish,
}

/// The infrastructure behind fake runtimes: it outlives the runtime of one run.
#[derive(Clone, Debug, Default)]
pub struct FakeCloud {
    state: Arc<Mutex<State>>,
    /// Notified when an object may be deleted.
    gone: Arc<Notify>,
}

/// The identity of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ObjectKey {
    /// Group, kind, namespace and name, without the version.
    Object([String; 4]),
    /// The id of a resource that is not a Kubernetes object.
    Other(ResourceId),
}

impl ObjectKey {
    fn of(id: &ResourceId, attributes: &Map<String, Value>) -> Self {
        match ObjectRef::of(attributes) {
            Some(object) => Self::Object([object.group, object.kind, object.namespace, object.name]),
            None => Self::Other(id.clone()),
        }
    }
}

/// A live object.
#[derive(Clone, Debug)]
struct Stored {
    /// The id under which it was last applied or put.
    id: ResourceId,
    object: Map<String, Value>,
    /// The fields of the last apply, which are removed when they are dropped.
    applied: Map<String, Value>,
    /// The fields that others manage.
    claims: Vec<Claim>,
}

/// A field, two deep, that another manager has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    manager: String,
    /// Whether the manager applies the field, rather than having updated it once.
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
    live: BTreeMap<ObjectKey, Stored>,
    /// Immutable top-level fields.
    fixed: BTreeSet<String>,
    /// Defaults of admission, two levels deep.
    admitted: BTreeMap<ResourceId, ([String; 2], Value)>,
    /// Fields, two deep, that the server gives a value for each value of another.
    given: BTreeMap<ResourceId, [[String; 2]; 2]>,
    /// Fields that are left out without a word, two deep.
    pruned: BTreeMap<ResourceId, [String; 2]>,
    /// The namespaces that are not there.
    lacking: BTreeSet<String>,
    /// Objects that cannot be searched.
    hidden: BTreeSet<ResourceId>,
    /// Objects with a finalizer.
    held: BTreeSet<ResourceId>,
    /// Errors in place of answers, by id; the calls take effect.
    lost: BTreeMap<ResourceId, VecDeque<RuntimeError>>,
    version: u64,
    calls: Vec<(Operation, ResourceId)>,
    faults: BTreeMap<(Operation, ResourceId), VecDeque<RuntimeError>>,
    gates: BTreeMap<ResourceId, Arc<Semaphore>>,
    healths: BTreeMap<ResourceId, Vec<(Health, String)>>,
    /// Jobs that finish, and that the infrastructure deletes then.
    finished: BTreeSet<ResourceId>,
    /// The ends of Jobs that no longer exist.
    ends: BTreeMap<ResourceId, JobEnd>,
    /// The delay of health reports.
    delays: BTreeMap<ResourceId, Duration>,
    in_flight: usize,
    most_in_flight: usize,
    /// Whether deferred changes become a pull request that is open.
    proposes: bool,
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
        FakeRuntime::new(self.clone(), owner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The live object of an id.
    pub fn live(&self, id: &str) -> Option<Map<String, Value>> {
        self.lock().live.values().find(|stored| stored.id.0 == id).map(|stored| stored.object.clone())
    }

    /// The ids of everything that is live.
    pub fn ids(&self) -> Vec<ResourceId> {
        let mut ids: Vec<_> = self.lock().live.values().map(|stored| stored.id.clone()).collect();
        ids.sort();
        ids
    }

    /// Creates or changes an object as another client.
    pub fn put(&self, id: &str, object: Value) {
        let (id, object) = (ResourceId::from(id), object.as_object().cloned().unwrap_or_default());
        let mut state = self.lock();
        let place = ObjectKey::of(&id, &object);
        let before = state.live.remove(&place);
        let (applied, claims) = before.map(|stored| (stored.applied, stored.claims)).unwrap_or_default();
        state.live.insert(place, Stored { id, object, applied, claims });
        self.gone.notify_waiters();
    }

    /// Gives another manager a field of an object, such as `["data", "a"]`, with its present value. `applies` if it
    /// applies the field, rather than having updated it once.
    pub fn claim(&self, id: &str, field: [&str; 2], manager: &str, applies: bool) {
        let claim = Claim { manager: manager.to_owned(), applies, field: field.map(str::to_owned) };
        let mut state = self.lock();
        let Some(stored) = state.live.values_mut().find(|stored| stored.id.0 == id) else { return };
        stored.claims.retain(|other| other.field != claim.field);
        stored.claims.push(claim);
    }

    /// Removes all other managers of an object.
    pub fn release(&self, id: &str) {
        let mut state = self.lock();
        state.live.values_mut().filter(|stored| stored.id.0 == id).for_each(|stored| stored.claims.clear());
    }

    /// The fields of an object with other managers.
    pub fn claims(&self, id: &str) -> Vec<FieldConflict> {
        let state = self.lock();
        let stored = state.live.values().filter(|stored| stored.id.0 == id);
        stored.flat_map(|stored| stored.claims.iter().map(Claim::as_conflict)).collect()
    }

    /// Deletes an object as another client.
    pub fn remove(&self, id: &str) {
        self.lock().live.retain(|_, stored| stored.id.0 != id);
        self.gone.notify_waiters();
    }

    /// Adds a finalizer: a deleted object is terminating until it is [released](Self::let_go).
    pub fn hold(&self, id: &str) {
        self.lock().held.insert(id.into());
    }

    /// Removes the finalizer: a terminating object is deleted.
    pub fn let_go(&self, id: &str) {
        let mut state = self.lock();
        state.held.remove(id);
        state.live.retain(|_, stored| stored.id.0 != id || !is_terminating(&stored.object));
        drop(state);
        self.gone.notify_waiters();
    }

    /// Lets a namespace not be there, which previews say.
    pub fn lack_namespace(&self, name: &str) {
        self.lock().lacking.insert(name.to_owned());
    }

    /// Makes a top-level field immutable, as a Secret's `type`.
    pub fn fix(&self, field: &str) {
        self.lock().fixed.insert(field.to_owned());
    }

    /// Sets an admission default for a field of a resource, two levels deep.
    pub fn admit(&self, id: &str, field: [&str; 2], value: Value) {
        self.lock().admitted.insert(id.into(), (field.map(str::to_owned), value));
    }

    /// Lets the server give a field, two deep, of a resource another value whenever another field of it changes, as a node port
    /// of a Service with its port. What a preview shows then is not what is given.
    pub fn give(&self, id: &str, field: [&str; 2], with: [&str; 2]) {
        self.lock().given.insert(id.into(), [field, with].map(|path| path.map(str::to_owned)));
    }

    /// Prunes a field of a resource, two levels deep; `None` ends that.
    pub fn prune(&self, id: &str, field: Option<[&str; 2]>) {
        let pruned = &mut self.lock().pruned;
        match field {
            Some(field) => drop(pruned.insert(id.into(), field.map(str::to_owned))),
            None => drop(pruned.remove(id)),
        }
    }

    fn at(&self, place: &ObjectKey) -> Option<Map<String, Value>> {
        self.lock().live.get(place).map(|stored| stored.object.clone())
    }

    /// Deletes an object; one with a finalizer is terminating from then on.
    fn delete(&self, place: &ObjectKey) -> Option<Map<String, Value>> {
        let mut state = self.lock();
        let State { live, held, .. } = &mut *state;
        let stored = live.get_mut(place)?;
        if !held.contains(&stored.id) {
            live.remove(place);
            drop(state);
            self.gone.notify_waiters();
            return None;
        }
        if let Some(metadata) = stored.object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.entry("deletionTimestamp").or_insert_with(|| json!("2026-01-01T00:00:00Z"));
        }
        Some(stored.object.clone())
    }

    fn id_of(&self, object: &KubernetesObject) -> Option<ResourceId> {
        let KubernetesObject { group, kind, namespace, name, uid, .. } = object;
        let place = ObjectKey::Object([group, kind, namespace, name].map(Clone::clone));
        let state = self.lock();
        let stored = state.live.get(&place)?;
        (uid_of(&stored.object) == Some(uid)).then(|| stored.id.clone())
    }

    /// Lets the next call of this kind for the resource fail; called again, the one after it too.
    pub fn fail(&self, operation: Operation, id: &str, error: RuntimeError) {
        self.lock().faults.entry((operation, id.into())).or_default().push_back(error);
    }

    /// Lets the next [apply](crate::Runtime::apply) or [delete](crate::Runtime::delete) of the resource be made and its
    /// answer be lost: the caller gets this error.
    pub fn lose(&self, id: &str, error: RuntimeError) {
        self.lock().lost.entry(id.into()).or_default().push_back(error);
    }

    /// Loses no more answers of the resource.
    pub fn answer_again(&self, id: &str) {
        self.lock().lost.remove(id);
    }

    /// Makes an object unsearchable after a lost call, as if a creation chose its name. A live object is then found by
    /// its uid alone.
    pub fn hide(&self, id: &str) {
        self.lock().hidden.insert(id.into());
    }

    /// Holds back [apply](crate::Runtime::apply) and [delete](crate::Runtime::delete) of a resource, or
    /// [finish](crate::Runtime::finish) where that makes the changes ([`FINISH`]), until a permit is added to the semaphore;
    /// one lets one call through.
    pub fn gate(&self, id: &str) -> Arc<Semaphore> {
        let gate = Arc::new(Semaphore::new(0));
        self.lock().gates.insert(id.into(), Arc::clone(&gate));
        gate
    }

    /// Sets the healths that a resource reports, one after the other; the last one stays. A last [`Health::InProgress`]
    /// never ends.
    pub fn set_health(&self, id: &str, healths: &[(Health, &str)]) {
        let healths = healths.iter().map(|(health, message)| (*health, (*message).to_owned())).collect();
        self.lock().healths.insert(id.into(), healths);
    }

    /// Lets a Job finish that the infrastructure deletes once it has.
    pub fn finish_job(&self, id: &str) {
        self.lock().finished.insert(id.into());
    }

    /// Ends a Job without a report, and removes it.
    pub fn end_job(&self, id: &str, end: JobEnd) {
        self.remove(id);
        self.lock().ends.insert(id.into(), end);
    }

    /// Delays the health reports of a resource.
    pub fn delay_health(&self, id: &str, delay: Duration) {
        self.lock().delays.insert(id.into(), delay);
    }

    /// Lets deferred runtimes open a pull request for their changes, until it is merged.
    pub fn propose(&self, is_open: bool) {
        self.lock().proposes = is_open;
    }

    /// All calls so far, in order.
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

    /// The maximum number of parallel changes so far.
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

    /// The lost answer of a call, if one is set.
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

    /// The result of an apply: wanted fields are set, dropped fields are removed, and others stay.
    fn merged(&self, owner: &Owner, desired: &Resource) -> Stored {
        let before = self.lock().live.get(&ObjectKey::of(&desired.id, &desired.attributes)).cloned();
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
        if let Some([outer, inner]) = self.lock().pruned.get(&desired.id)
            && let Some(fields) = object.get_mut(outer).and_then(Value::as_object_mut)
        {
            fields.remove(inner);
        }
        if let Some(([outer, inner], value)) = self.lock().admitted.get(&desired.id)
            && let Some(fields) = object.get_mut(outer).and_then(Value::as_object_mut)
        {
            fields.entry(inner).or_insert_with(|| value.clone());
        }
        if let Some([[outer, inner], [of, with]]) = self.lock().given.get(&desired.id)
            && before.object.get(of).and_then(|of| of.get(with)) != object.get(of).and_then(|of| of.get(with))
            && let Some(fields) = object.get_mut(outer).and_then(Value::as_object_mut)
        {
            fields.insert(inner.clone(), json!(DUMMY));
        }
        Stored { id: desired.id.clone(), object, applied: wanted, claims: before.claims }
    }

    /// The fields that others have and that this would change.
    fn contested(&self, merged: &Stored) -> Vec<FieldConflict> {
        let state = self.lock();
        let Some(before) = state.live.get(&ObjectKey::of(&merged.id, &merged.object)) else { return Vec::new() };
        let changed = |claim: &&Claim| claim.value(&before.object) != claim.value(&merged.object);
        let mut conflicts: Vec<_> = before.claims.iter().filter(changed).map(Claim::as_conflict).collect();
        conflicts.sort();
        conflicts
    }

    /// Whether an apply would change an immutable field.
    fn is_fixed(&self, merged: &Stored) -> bool {
        let state = self.lock();
        let Some(before) = state.live.get(&ObjectKey::of(&merged.id, &merged.object)) else { return false };
        state.fixed.iter().any(|field| {
            let before = before.object.get(field);
            before.is_some() && before != merged.object.get(field)
        })
    }

    fn store(&self, mut stored: Stored) -> Map<String, Value> {
        let mut state = self.lock();
        let place = ObjectKey::of(&stored.id, &stored.object);
        if let Some(before) = state.live.get_mut(&place)
            && without_version(&before.object) == without_version(&stored.object)
        {
            (before.id, before.applied) = (stored.id, stored.applied);
            return before.object.clone();
        }
        if let Some(before) = state.live.get(&place) {
            // The apply took the changed fields from their managers.
            stored.claims = before.claims.clone();
            stored.claims.retain(|claim| claim.value(&before.object) == claim.value(&stored.object));
        }
        state.version += 1;
        let version = state.version;
        if let Some([[outer, inner], _]) = state.given.get(&stored.id)
            && let Some(given) = stored.object.get_mut(outer).and_then(|fields| fields.get_mut(inner))
            && *given == DUMMY
        {
            *given = json!(format!("given-{version}"));
        }
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
