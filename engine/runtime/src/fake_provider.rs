//! A fake cloud behind a provider, for tests: its resources are of the type Terraform.
//!
//! Start at [`FakeProvider`]; its runtimes are in `runtime`, its schema and its plans in `planned`. As a provider does, it
//! decides what a change is, chooses values itself, and finds an object only by the state that it returned before. It
//! records its calls; it fails, loses answers, stops halfway or waits on demand.

mod planned;
mod runtime;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};
use stoa_engine::{FieldPath, Owner, ProviderPlan, ProviderState, ResourceId};
use tokio::sync::Semaphore;

use self::planned::{Before, Provider};
use crate::RuntimeError;
use crate::fake::Operation;
pub use runtime::FakeProviderRuntime;

/// The only type of resources, for the extension `resourceType`.
pub const RESOURCE_TYPE: &str = "fake_object";

/// A fault of the next change of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeFault {
    /// It is not made, and has no answer.
    LostBefore,
    /// It is made, and has no answer.
    LostAfter,
    /// It fails halfway: a new object is tainted, a changed one has its new name alone. A deletion fails.
    Halfway,
}

/// A call that can get no answer, however long it is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stalled {
    /// [`ProviderChecks::prepare`](crate::ProviderChecks::prepare)
    Prepare,
    /// [`Runtime::inspect`](crate::Runtime::inspect)
    Inspect,
    /// [`Runtime::read`](crate::Runtime::read)
    Read,
    /// [`Runtime::close`](crate::Runtime::close)
    Close,
}

/// The cloud and its provider: they outlive the runtime of one run.
#[derive(Clone, Debug, Default)]
pub struct FakeProvider(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// The objects by their handles, which only states have.
    objects: BTreeMap<String, Map<String, Value>>,
    /// The number of objects and values that it has made.
    made: u64,
    /// The version of the schema.
    version: u32,
    color: String,
    calls: Vec<(Operation, ResourceId)>,
    faults: BTreeMap<(Operation, ResourceId), VecDeque<RuntimeError>>,
    change_faults: BTreeMap<ResourceId, VecDeque<ChangeFault>>,
    gates: BTreeMap<ResourceId, Arc<Semaphore>>,
    stalled: Option<Stalled>,
    in_flight: usize,
    most_in_flight: usize,
}

impl Default for State {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            made: 0,
            version: 1,
            color: "blue".to_owned(),
            calls: Vec::new(),
            faults: BTreeMap::new(),
            change_faults: BTreeMap::new(),
            gates: BTreeMap::new(),
            stalled: None,
            in_flight: 0,
            most_in_flight: 0,
        }
    }
}

/// The state of an object, as the provider encodes it.
#[derive(Debug)]
struct StoredObject {
    handle: String,
    is_tainted: bool,
}

impl FakeProvider {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// A runtime for one run of a deployment.
    pub fn runtime(&self, owner: Owner) -> FakeProviderRuntime {
        FakeProviderRuntime::new(self.clone(), owner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All objects, by their ids.
    pub fn objects(&self) -> BTreeMap<String, Map<String, Value>> {
        let state = self.lock();
        let by_id = state.objects.values().map(|object| (text(object, "id"), object.clone()));
        by_id.collect()
    }

    /// The only object with this name, in upper case.
    ///
    /// # Panics
    ///
    /// When there are several.
    pub fn named(&self, name: &str) -> Option<Map<String, Value>> {
        let mut found: Vec<_> = self.objects().into_values().filter(|it| text(it, "name") == name).collect();
        assert!(found.len() < 2, "there are several objects with the name {name}");
        found.pop()
    }

    /// Creates an object as another client, and returns its id.
    pub fn put(&self, arguments: Value) -> String {
        let mut state = self.lock();
        let mut object = planned::upgraded(arguments.as_object().unwrap_or(&Map::new()), state.version);
        state.complete(&mut object);
        let id = text(&object, "id");
        let handle = state.new_handle();
        state.objects.insert(handle, object);
        id
    }

    /// Sets an attribute of an object as another client.
    pub fn edit(&self, id: &str, attribute: &str, value: Value) {
        let mut state = self.lock();
        for object in state.objects.values_mut().filter(|object| text(object, "id") == id) {
            object.insert(attribute.to_owned(), value.clone());
        }
    }

    /// Deletes an object as another client.
    pub fn remove(&self, id: &str) {
        self.lock().objects.retain(|_, object| text(object, "id") != id);
    }

    /// Installs the next version of the provider: its schema has more attributes, and its states another form.
    pub fn upgrade(&self) {
        let mut state = self.lock();
        state.version += 1;
        let version = state.version;
        for object in state.objects.values_mut() {
            *object = planned::upgraded(object, version);
            let copy = object.get("secret").cloned().unwrap_or_default();
            object.insert("copy".to_owned(), copy);
        }
    }

    /// The version of the provider.
    fn version(&self) -> u32 {
        self.lock().version
    }

    /// The color that new objects have which want none.
    pub fn set_color(&self, color: &str) {
        color.clone_into(&mut self.lock().color);
    }

    /// Lets the next call of this kind for the resource fail before it does anything; called again, the one after it too.
    pub fn fail(&self, operation: Operation, id: &str, error: RuntimeError) {
        self.lock().faults.entry((operation, id.into())).or_default().push_back(error);
    }

    /// Gives the next change of the resource a fault; called again, the one after it too.
    pub fn fail_change(&self, id: &str, fault: ChangeFault) {
        self.lock().change_faults.entry(id.into()).or_default().push_back(fault);
    }

    /// Forgets the faults of changes that have not come.
    pub fn clear_faults(&self) {
        self.lock().change_faults.clear();
    }

    /// Holds back changes of a resource until a permit is added to the semaphore; one lets one call through.
    pub fn gate(&self, id: &str) -> Arc<Semaphore> {
        let gate = Arc::new(Semaphore::new(0));
        self.lock().gates.insert(id.into(), Arc::clone(&gate));
        gate
    }

    /// Answers no call of this kind any more.
    pub fn stall(&self, call: Stalled) {
        self.lock().stalled = Some(call);
    }

    /// Waits for the answer to a call.
    async fn answer(&self, call: Stalled) {
        let is_stalled = self.lock().stalled == Some(call);
        if is_stalled {
            std::future::pending::<()>().await;
        }
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

    /// Records a call, and fails it when it is to fail.
    fn begin(&self, operation: Operation, id: &ResourceId) -> Result<(), RuntimeError> {
        let mut state = self.lock();
        state.calls.push((operation, id.clone()));
        match state.faults.get_mut(&(operation, id.clone())).and_then(VecDeque::pop_front) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn change_fault(&self, id: &ResourceId) -> Option<ChangeFault> {
        self.lock().change_faults.get_mut(id).and_then(VecDeque::pop_front)
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

    /// Reads a state, of an earlier version of the schema too.
    fn known(&self, state: Option<&ProviderState>) -> Result<StoredObject, RuntimeError> {
        let rejected =
            |message: &str| RuntimeError::Rejected { message: message.to_owned(), field: None, by_definition: false };
        let Some(text) = state.and_then(ProviderState::open) else {
            return Err(rejected("its record has no state of the provider; restore the record, or import the object"));
        };
        let unreadable = || rejected("the state of the provider is unreadable");
        let value: Value = serde_json::from_str(text).map_err(|_| unreadable())?;
        let version = value["version"].as_u64().ok_or_else(unreadable)?;
        if version > u64::from(self.lock().version) {
            return Err(rejected("a newer version of the provider has written the state; use that version"));
        }
        let handle = if version == 1 { &value["handle"] } else { &value["object"]["handle"] };
        let handle = handle.as_str().ok_or_else(unreadable)?.to_owned();
        Ok(StoredObject { handle, is_tainted: value["tainted"] == true })
    }

    /// The state to return for an object.
    fn encoded(&self, known: &StoredObject) -> ProviderState {
        let state = self.lock();
        let object = state.objects.get(&known.handle).cloned().unwrap_or_default();
        let value = match state.version {
            1 => json!({"version": 1, "handle": known.handle, "tainted": known.is_tainted, "attributes": object}),
            version => json!({
                "version": version,
                "object": {"handle": known.handle, "attributes": object},
                "tainted": known.is_tainted,
            }),
        };
        ProviderState::Open(value.to_string())
    }

    fn at(&self, handle: &str) -> Option<Map<String, Value>> {
        self.lock().objects.get(handle).cloned()
    }

    /// Finds an existing object by its id.
    fn imported(&self, id: &str) -> Option<StoredObject> {
        let state = self.lock();
        let (handle, _) = state.objects.iter().find(|(_, object)| text(object, "id") == id)?;
        Some(StoredObject { handle: handle.clone(), is_tainted: false })
    }

    fn plan(
        &self,
        arguments: &Map<String, Value>,
        unknown: &BTreeSet<FieldPath>,
        before: Option<&Before>,
    ) -> Result<ProviderPlan, RuntimeError> {
        let state = self.lock();
        planned::plan(Provider { version: state.version, color: &state.color }, arguments, unknown, before)
    }

    /// Makes a new object, and returns its handle.
    fn create(&self, plan: &ProviderPlan) -> String {
        let mut state = self.lock();
        let mut object = plan.after.clone();
        state.complete(&mut object);
        let handle = state.new_handle();
        state.objects.insert(handle.clone(), object);
        handle
    }

    /// Changes an object as planned, or its name alone.
    fn update(&self, handle: &str, plan: &ProviderPlan, is_half: bool) {
        let mut state = self.lock();
        let Some(before) = state.objects.get(handle).cloned() else { return };
        let mut object = if is_half { before } else { plan.after.clone() };
        if is_half {
            for key in ["name", "computed"] {
                object.insert(key.to_owned(), plan.after.get(key).cloned().unwrap_or_default());
            }
        }
        state.complete(&mut object);
        state.objects.insert(handle.to_owned(), object);
    }

    fn delete(&self, handle: &str) {
        self.lock().objects.remove(handle);
    }
}

impl State {
    fn next(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// A handle that nobody can guess from the attributes.
    fn new_handle(&mut self) -> String {
        format!("handle-{:08x}", self.next().wrapping_mul(0x9e37_79b9))
    }

    /// Chooses the values that an object lacks.
    fn complete(&mut self, object: &mut Map<String, Value>) {
        if object.get("id").is_none_or(Value::is_null) {
            object.insert("id".to_owned(), format!("obj-{}", self.next()).into());
        }
        if object.get("password").is_none_or(Value::is_null) {
            object.insert("password".to_owned(), format!("pa55word-{:06}", self.next() * 7919).into());
        }
        if object.get("computed").is_none_or(Value::is_null) {
            let computed = format!("{}-{}", text(object, "name"), self.next());
            object.insert("computed".to_owned(), computed.into());
        }
        if object.get("color").is_none_or(Value::is_null) {
            object.insert("color".to_owned(), self.color.clone().into());
        }
    }
}

fn text(object: &Map<String, Value>, attribute: &str) -> String {
    object.get(attribute).and_then(Value::as_str).unwrap_or_default().to_owned()
}

struct InFlight(FakeProvider);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.lock().in_flight -= 1;
    }
}
