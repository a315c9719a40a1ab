//! The garbage collector over a log in memory: with its looks one after the other, and as it runs.

mod listing;

use std::collections::{BTreeSet, HashSet};

use futures_util::stream;
use parking_lot::Mutex;
use serde_json::{Value, json};
use stoa_kinds::{cluster::standalone::StandaloneCluster, lookup::Lookup, testing::deploying};
use stoa_machinery::{
    Object, RequestContext,
    log::{Log, MemoryLog},
    metrics::Families,
    registry::{DeleteOptions, Store, Stored, Target, UpdateSource, api::Change},
};
use stoa_types::Stack;
use tokio_util::sync::DropGuard;

use super::*;
use crate::testing::TestServer;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often objects may be due again because of each other.
const ROUNDS: usize = 50;

/// A server of core kinds, and a collector that looks only when it is told to.
struct Fixture {
    registry: Arc<Registry>,
    collector: Arc<Collector>,
    due: mpsc::UnboundedReceiver<Vec<ObjectKey>>,
    _end: DropGuard,
}

impl Fixture {
    async fn new() -> Self {
        Self::over(Arc::new(MemoryLog::new())).await
    }

    async fn over(log: Arc<dyn Log>) -> Self {
        let end = CancellationToken::new();
        let registry = registry_over(log, &end).await;
        let recorder = recorder_of(&registry, &end);
        Self::of(registry, recorder, end)
    }

    fn of(registry: Arc<Registry>, recorder: Recorder, end: CancellationToken) -> Self {
        let (feed, collector, due) = Collector::new(registry.clone(), recorder);
        tokio::spawn(tokio::task::unconstrained(feed.run(end.clone())));
        Self { registry, collector, due, _end: end.drop_guard() }
    }

    /// Looks at whatever is due until nothing is; the failures.
    async fn try_settle(&mut self) -> Vec<ApiError> {
        let mut failed = Vec::new();
        for _ in 0..ROUNDS {
            self.collector.seen.ask(|_| ()).await.unwrap();
            let mut due = HashSet::new();
            while let Ok(keys) = self.due.try_recv() {
                due.extend(keys);
            }
            if due.is_empty() {
                return failed;
            }
            for key in due {
                failed.extend(self.collector.look(key).await.err());
            }
        }
        panic!("something is always due");
    }

    async fn settle(&mut self) {
        let failed = self.try_settle().await;
        assert!(failed.is_empty(), "{failed:?}");
    }

    /// Makes a ConfigMap in `shop`; its uid.
    async fn make(&self, name: &str, owners: &[Value]) -> String {
        make(&self.registry, "configmaps", "shop", name, owners).await
    }

    async fn delete(&self, name: &str, policy: &str) {
        delete(&self.registry, name, policy).await;
    }

    /// The names of the ConfigMaps that are there.
    async fn left(&self) -> Vec<String> {
        left(&self.registry).await
    }

    /// The owners of a ConfigMap, by name.
    async fn owners(&self, name: &str) -> Vec<String> {
        let object = get(&self.registry, name).await.expect("it is there").object();
        let owners = object.get_path(&["metadata", "ownerReferences"]).and_then(Value::as_array);
        owners.into_iter().flatten().map(|owner| owner["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Changes the metadata of a ConfigMap.
    async fn change(&self, name: &str, mut change: impl FnMut(&mut serde_json::Map<String, Value>) + Send) {
        let source = UpdateSource::transform(|current: &Object| {
            let mut new = current.clone();
            change(new.metadata_mut());
            Ok(new)
        });
        store(&self.registry, "configmaps").update(&user(), "shop", name, Target::Main, source).await.unwrap();
    }
}

async fn registry_over(log: Arc<dyn Log>, end: &CancellationToken) -> Arc<Registry> {
    stoa_kinds::core_v1::register(Registry::builder(log).end_with(end.clone())).build().await.unwrap()
}

fn recorder_of(registry: &Arc<Registry>, end: &CancellationToken) -> Recorder {
    let lookup = Lookup::of(registry);
    Recorder::start(Arc::new(StandaloneCluster { lookup }), end.clone())
}

fn user() -> RequestContext {
    RequestContext::internal("test")
}

fn store<'a>(registry: &'a Arc<Registry>, plural: &str) -> &'a Arc<Store> {
    registry.store("", "v1", plural).unwrap()
}

async fn make(registry: &Arc<Registry>, plural: &str, namespace: &str, name: &str, owners: &[Value]) -> String {
    let Value::Object(object) = json!({ "metadata": { "name": name, "ownerReferences": owners } }) else {
        unreachable!("a map")
    };
    let made = store(registry, plural).create(&user(), namespace, Object(object)).await.unwrap();
    made.uid().to_owned()
}

async fn get(registry: &Arc<Registry>, name: &str) -> Option<Arc<Stored>> {
    store(registry, "configmaps").get("shop", name, None).await.ok()
}

async fn delete(registry: &Arc<Registry>, name: &str, policy: &str) {
    let options = DeleteOptions { propagation_policy: Some(policy.to_owned()), ..DeleteOptions::default() };
    store(registry, "configmaps").delete(&user(), "shop", name, &options).await.unwrap();
}

async fn left(registry: &Arc<Registry>) -> Vec<String> {
    let list = store(registry, "configmaps").list(Some("shop"), &Default::default()).await.unwrap();
    list.items.iter().map(|stored| stored.name().to_owned()).collect()
}

/// A reference to an owner, which waits for whom has it when it is deleted in the foreground.
fn owner(kind: &str, name: &str, uid: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "blockOwnerDeletion": true })
}

fn config_map(name: &str, uid: &str) -> Value {
    owner("ConfigMap", name, uid)
}

/// The same, for whom nobody waits.
fn not_blocking(mut owner: Value) -> Value {
    owner["blockOwnerDeletion"] = false.into();
    owner
}

/// An object that stays until the test takes its finalizer away.
async fn hold(place: &Fixture, name: &str) {
    place.change(name, |metadata| drop(metadata.insert("finalizers".to_owned(), json!(["example.com/held"])))).await;
}

async fn release(place: &Fixture, name: &str) {
    let is_other = |finalizer: &Value| finalizer != "example.com/held";
    place.change(name, |metadata| metadata["finalizers"].as_array_mut().unwrap().retain(is_other)).await;
}

#[tokio::test]
async fn dependents_go_with_the_last_of_their_owners() {
    let mut place = Fixture::new().await;
    let (a, b) = (place.make("a", &[]).await, place.make("b", &[]).await);
    let of_a = place.make("of-a", &[config_map("a", &a)]).await;
    place.make("of-both", &[config_map("a", &a), config_map("b", &b)]).await;
    place.make("of-of-a", &[config_map("of-a", &of_a)]).await;
    place.settle().await;
    place.delete("a", "Background").await;
    place.settle().await;
    assert_eq!(place.left().await, ["b", "of-both"]);
    assert_eq!(place.owners("of-both").await, ["b"], "what is gone is taken out");
    place.delete("b", "Background").await;
    place.settle().await;
    assert!(place.left().await.is_empty());
}

#[tokio::test]
async fn collector_removes_dependents_of_missing_owner() {
    let mut place = Fixture::new().await;
    let a = place.make("a", &[]).await;
    place.make("of-nothing", &[config_map("gone", "1")]).await;
    place.make("of-another-uid", &[config_map("a", "2")]).await;
    place.make("of-some", &[config_map("a", &a), config_map("gone", "1")]).await;
    place.settle().await;
    assert_eq!(place.left().await, ["a", "of-some"]);
    assert_eq!(place.owners("of-some").await, ["a"]);
}

#[tokio::test]
async fn collector_ignores_owners_of_unserved_kind() {
    let mut place = Fixture::new().await;
    let unknown = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "1" });
    place.make("of-unknown", std::slice::from_ref(&unknown)).await;
    place.make("of-unknown-and-gone", &[config_map("gone", "2"), unknown]).await;
    place.settle().await;
    assert_eq!(place.left().await, ["of-unknown", "of-unknown-and-gone"]);
    assert_eq!(place.owners("of-unknown-and-gone").await, ["gone", "web"]);
}

#[tokio::test]
async fn owners_are_cluster_scoped_or_in_the_same_namespace() {
    let mut place = Fixture::new().await;
    let registry = place.registry.clone();
    let team = make(&registry, "namespaces", "", "team", &[]).await;
    let elsewhere = make(&registry, "configmaps", "other", "a", &[]).await;
    place.make("of-team", &[owner("Namespace", "team", &team)]).await;
    place.make("of-elsewhere", &[config_map("a", &elsewhere)]).await;
    make(&registry, "namespaces", "", "of-namespaced", &[config_map("a", &elsewhere)]).await;
    let mut events = store(&registry, "events").subscribe(None);
    place.settle().await;
    assert_eq!(place.left().await, ["of-team"]);
    store(&registry, "namespaces").get("", "of-namespaced", None).await.expect("nobody can tell what it belongs to");

    let mut told = BTreeSet::new();
    let all_told = async {
        while told.len() < 2 {
            let happened = match events.next().await.expect("the server runs") {
                Change::Restarted(all) => all,
                Change::Applied(event) => vec![event],
                Change::Deleted(_) => Vec::new(),
            };
            for event in happened.iter().map(|stored| stored.object()) {
                let text = |path: &[&str]| event.get_path(path).and_then(Value::as_str).unwrap_or_default().to_owned();
                assert_eq!(text(&["reason"]), "OwnerRefInvalidNamespace");
                told.insert((text(&["involvedObject", "name"]), text(&["message"])));
            }
        }
    };
    tokio::time::timeout(PATIENCE, all_told).await.expect("both are told of");
    let message = |namespace: &str| {
        format!(
            "ownerRef [v1/ConfigMap, namespace: {namespace}, name: a, uid: {elsewhere}] does not exist in namespace \
             {namespace:?}"
        )
    };
    let expected = [("of-elsewhere".to_owned(), message("shop")), ("of-namespaced".to_owned(), message(""))];
    assert_eq!(told, BTreeSet::from(expected), "in upstream's words");
}

#[tokio::test]
async fn foreground_deletion_waits_for_blocking_dependents() {
    let mut place = Fixture::new().await;
    let a = place.make("a", &[]).await;
    let held = place.make("held", &[config_map("a", &a)]).await;
    place.make("of-held", &[config_map("held", &held)]).await;
    place.make("not-blocking", &[not_blocking(config_map("a", &a))]).await;
    for name in ["held", "not-blocking"] {
        hold(&place, name).await;
    }
    place.settle().await;
    place.delete("a", "Foreground").await;
    place.settle().await;
    assert_eq!(place.left().await, ["a", "held", "not-blocking"], "what belongs to a dependent goes first");
    for name in ["held", "not-blocking"] {
        assert!(get(&place.registry, name).await.unwrap().is_deleting(), "{name}");
    }
    release(&place, "held").await;
    place.settle().await;
    assert_eq!(place.left().await, ["not-blocking"]);
    release(&place, "not-blocking").await;
    assert!(place.left().await.is_empty());
}

#[tokio::test]
async fn second_owner_unblocks_foreground_deletion() {
    let mut place = Fixture::new().await;
    let (a, b) = (place.make("a", &[]).await, place.make("b", &[]).await);
    place.make("of-both", &[config_map("a", &a), config_map("b", &b)]).await;
    place.make("unblocks", &[config_map("a", &a), config_map("b", &b)]).await;
    hold(&place, "unblocks").await;
    place.delete("unblocks", "Background").await;
    place.settle().await;
    place.delete("a", "Foreground").await;
    place.settle().await;
    assert_eq!(place.owners("of-both").await, ["b"]);
    assert_eq!(place.left().await, ["a", "b", "of-both", "unblocks"], "one that goes anyway is waited for");
    place.change("unblocks", |metadata| metadata["ownerReferences"][0]["blockOwnerDeletion"] = false.into()).await;
    place.settle().await;
    assert_eq!(place.left().await, ["b", "of-both", "unblocks"]);
}

#[tokio::test]
async fn orphans_lose_their_owner_before_it_goes() {
    let mut place = Fixture::new().await;
    let (a, b) = (place.make("a", &[]).await, place.make("b", &[]).await);
    place.make("of-both", &[config_map("a", &a), config_map("b", &b)]).await;
    place.settle().await;
    // Seen by nobody before the deletion.
    place.make("of-a", &[config_map("a", &a)]).await;
    place.delete("a", "Orphan").await;
    place.settle().await;
    assert_eq!(place.left().await, ["b", "of-a", "of-both"]);
    assert!(place.owners("of-a").await.is_empty());
    assert_eq!(place.owners("of-both").await, ["b"]);
}

#[tokio::test]
async fn what_loses_its_owners_goes_by_its_own_finalizers() {
    let mut place = Fixture::new().await;
    let a = place.make("a", &[]).await;
    let b = place.make("b", &[config_map("a", &a)]).await;
    place.make("of-b", &[config_map("b", &b)]).await;
    place.change("b", |metadata| drop(metadata.insert("finalizers".to_owned(), json!(["orphan"])))).await;
    place.delete("a", "Background").await;
    place.settle().await;
    assert_eq!(place.left().await, ["of-b"]);
    assert!(place.owners("of-b").await.is_empty());
}

/// Makes three objects each of which belongs to the one before, and the first to the last.
async fn make_cycle(place: &Fixture) {
    let a = place.make("a", &[]).await;
    let b = place.make("b", &[config_map("a", &a)]).await;
    let c = place.make("c", &[config_map("b", &b)]).await;
    place
        .change("a", |metadata| drop(metadata.insert("ownerReferences".to_owned(), json!([config_map("c", &c)]))))
        .await;
}

#[tokio::test]
async fn cycles_stay_as_long_as_all_of_them_do() {
    let mut place = Fixture::new().await;
    make_cycle(&place).await;
    place.settle().await;
    assert_eq!(place.left().await, ["a", "b", "c"]);
    place.delete("b", "Background").await;
    place.settle().await;
    assert!(place.left().await.is_empty());
}

#[tokio::test]
async fn cycles_do_not_wait_for_themselves() {
    let mut place = Fixture::new().await;
    make_cycle(&place).await;
    place.settle().await;
    place.delete("a", "Foreground").await;
    place.settle().await;
    assert!(place.left().await.is_empty());

    make_cycle(&place).await;
    let own = place.make("own", &[]).await;
    let of_itself = json!([config_map("own", &own)]);
    place.change("own", |metadata| drop(metadata.insert("ownerReferences".to_owned(), of_itself.clone()))).await;
    place.settle().await;
    // All of them wait before anybody looks at any.
    for name in ["a", "b", "c", "own"] {
        place.delete(name, "Foreground").await;
    }
    place.settle().await;
    assert!(place.left().await.is_empty());
}

#[tokio::test]
async fn collector_rechecks_changed_object_before_deletion() {
    let place = Fixture::new().await;
    let a = place.make("a", &[]).await;
    let read =
        async |name: &str| Found::new(store(&place.registry, "configmaps"), get(&place.registry, name).await.unwrap());
    for name in ["touched", "owned", "replaced"] {
        place.make(name, &[config_map("gone", "1")]).await;
    }
    let (touched, owned, replaced) = (read("touched").await, read("owned").await, read("replaced").await);
    place.change("touched", |metadata| drop(metadata.insert("labels".to_owned(), json!({ "a": "b" })))).await;
    let owners = json!([config_map("a", &a)]);
    place.change("owned", |metadata| drop(metadata.insert("ownerReferences".to_owned(), owners.clone()))).await;
    place.delete("replaced", "Background").await;
    place.make("replaced", &[]).await;
    let objects = &place.collector.objects;
    objects.delete(&touched, Propagation::Background).await.unwrap();
    assert_eq!(objects.delete(&owned, Propagation::Background).await.unwrap_err().code(), 409);
    objects.delete(&replaced, Propagation::Background).await.unwrap();
    objects.remove_owners(&replaced, &["1".to_owned()]).await.unwrap();
    assert_eq!(place.left().await, ["a", "owned", "replaced"]);
}

#[tokio::test]
async fn concurrent_orphan_choice_overrides_collector_deletion() {
    let mut place = Fixture::new().await;
    let mut read = Vec::new();
    for name in ["orphans", "to-orphan"] {
        let uid = place.make(name, &[config_map("gone", "1")]).await;
        place.make(&format!("of-{name}"), &[config_map(name, &uid)]).await;
        read.push(Found::new(store(&place.registry, "configmaps"), get(&place.registry, name).await.unwrap()));
    }
    place.delete("orphans", "Orphan").await;
    place.change("to-orphan", |metadata| drop(metadata.insert("finalizers".to_owned(), json!(["orphan"])))).await;
    for object in &read {
        let refused = place.collector.objects.delete(object, Propagation::Background).await.unwrap_err();
        assert_eq!(refused.code(), 409, "{refused:?}");
    }
    place.settle().await;
    assert_eq!(place.left().await, ["of-orphans", "of-to-orphan"]);
}

#[tokio::test]
async fn what_another_began_is_finished_after_a_restart() {
    let log: Arc<MemoryLog> = Arc::new(MemoryLog::new());
    let mut place = Fixture::over(log.clone()).await;
    for policy in ["Foreground", "Orphan", "Background"] {
        let (name, of) = (policy.to_lowercase(), format!("of-{}", policy.to_lowercase()));
        let uid = place.make(&name, &[]).await;
        let dependent = place.make(&of, &[config_map(&name, &uid)]).await;
        place.make(&format!("of-{of}"), &[config_map(&of, &dependent)]).await;
    }
    hold(&place, "of-of-foreground").await;
    place.settle().await;
    place.delete("foreground", "Foreground").await;
    place.settle().await;
    assert_eq!(place.left().await.len(), 9, "all wait for the one that is held");
    // Nobody looks at these any more.
    place.delete("orphan", "Orphan").await;
    place.delete("background", "Background").await;
    release(&place, "of-of-foreground").await;
    drop(place);

    let mut place = Fixture::over(log).await;
    place.settle().await;
    assert_eq!(place.left().await, ["of-of-orphan", "of-orphan"]);
    assert!(place.owners("of-orphan").await.is_empty());
}

#[tokio::test]
async fn relist_finds_missed_deletions() {
    let place = Fixture::new().await;
    let a = place.make("a", &[]).await;
    let b = place.make("b", &[config_map("a", &a)]).await;
    place.make("c", &[config_map("b", &b)]).await;
    let configs = store(&place.registry, "configmaps");
    let all = configs.list(None, &Default::default()).await.unwrap().items;
    let graph = Mutex::new(Graph::default());
    let restart = |all: Vec<Arc<Stored>>| {
        feed::restart(&graph, configs, &all, |stored| {
            assert!(graph.try_lock().is_some(), "the graph is there for others while a list is read");
            Found::new(configs, Arc::clone(stored))
        })
    };
    restart(all.clone());
    assert!(graph.lock().unsettled().is_empty());
    let without = |name: &str| all.iter().filter(|stored| stored.name() != name).cloned().collect::<Vec<_>>();
    let key = |name: &str| ("shop".to_owned(), format!("configmaps/{name}"));
    assert_eq!(restart(without("a")), [key("b")]);
    assert_eq!(graph.lock().unsettled(), [key("b")]);
    assert_eq!(restart(without("b")), [key("c")]);
}

#[test]
fn lists_are_read_on_no_thread_that_serves_requests() {
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let end = CancellationToken::new();
        let registry = registry_over(Arc::new(MemoryLog::new()), &end).await;
        let a = make(&registry, "configmaps", "shop", "a", &[]).await;
        make(&registry, "configmaps", "shop", "b", &[config_map("a", &a)]).await;
        // The only thread for what takes long.
        let (release, released) = std::sync::mpsc::channel::<()>();
        let working = tokio::task::spawn_blocking(move || released.recv().unwrap());
        let recorder = recorder_of(&registry, &end);
        let place = Fixture::of(registry, recorder, end);
        let mut asked = Box::pin(place.collector.seen.ask(|graph| graph.dependents(&a).len()));
        tokio::time::timeout(Duration::from_millis(200), &mut asked).await.unwrap_err();
        release.send(()).unwrap();
        working.await.unwrap();
        assert_eq!(tokio::time::timeout(PATIENCE, asked).await.unwrap().unwrap(), 1);
    });
}

#[tokio::test]
async fn live_infrastructure_stays_when_its_stack_loses_its_owner() {
    let world = TestServer::with_secrets().await;
    make(&world.registry, "namespaces", "", "shop", &[]).await;
    let uid = make(&world.registry, "configmaps", "shop", "a", &[]).await;
    let stacks = world.registry.api::<Stack>();
    let own = |stack: &mut Stack| {
        stack.metadata.owner_references = Some(vec![serde_json::from_value(config_map("a", &uid)).unwrap()]);
        stack.spec.deletion_policy = Some(stoa_types::DeletionPolicy::Destroy);
    };
    stacks.update_with("shop", "web", own).await.unwrap();
    stacks.update_status_with("shop", "web", deploying(json!([{"workspace": "dev", "resources": 1}]))).await.unwrap();
    let mut place = Fixture::of(world.registry.clone(), world.services.recorder.clone(), CancellationToken::new());
    place.delete("a", "Background").await;
    let failed = place.try_settle().await;
    assert_eq!(failed.iter().map(ApiError::code).collect::<Vec<_>>(), [403], "{failed:?}");
    assert!(stacks.get("shop", "web").await.unwrap().metadata.deletion_timestamp.is_none());
}

/// Waits until these ConfigMaps are left.
async fn until_left(registry: &Arc<Registry>, expected: &[&str]) {
    let mut changes = stream::select_all(registry.stores().map(|store| store.subscribe(None)));
    let is_so = async {
        while left(registry).await != expected {
            changes.next().await.expect("the server runs");
        }
    };
    tokio::time::timeout(PATIENCE, is_so).await.expect("it gets there");
}

#[tokio::test]
async fn collector_hears_of_what_changes_whatever_is_refused() {
    let end = CancellationToken::new();
    let registry = registry_over(Arc::new(MemoryLog::new()), &end).await;
    let queues = queue::Metrics::new(&Families::default()).unwrap();
    let running = tokio::spawn(run(registry.clone(), recorder_of(&registry, &end), queues, end.clone()));
    let a = make(&registry, "configmaps", "shop", "a", &[]).await;
    let b = make(&registry, "configmaps", "shop", "b", &[config_map("a", &a)]).await;
    make(&registry, "configmaps", "shop", "c", &[config_map("b", &b)]).await;
    // A namespace that may not be deleted keeps nothing else.
    make(&registry, "namespaces", "", "default", &[owner("Namespace", "gone", "1")]).await;
    delete(&registry, "a", "Foreground").await;
    until_left(&registry, &[]).await;
    let a = make(&registry, "configmaps", "shop", "a", &[]).await;
    make(&registry, "configmaps", "shop", "b", &[config_map("a", &a)]).await;
    delete(&registry, "a", "Orphan").await;
    until_left(&registry, &["b"]).await;
    let orphan = get(&registry, "b").await.unwrap().object();
    assert_eq!(orphan.get_path(&["metadata", "ownerReferences"]), None);
    end.cancel();
    running.await.unwrap();
}
