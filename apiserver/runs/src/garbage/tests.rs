//! What is removed from a store, and what is not: on disk, and in a bucket of a real S3 server.

use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use serde_json::json;
use stoa_controller::testing::FaultyLog;
use stoa_kinds::core_v1;
use stoa_machinery::{log::MemoryLog, registry::DeleteOptions};
use stoa_storage::documents::Refusal;
use stoa_test_s3::{REGION, S3Server};
use tokio::sync::{Semaphore, watch};

use super::*;
use crate::testing::{TestServices, unreachable_runner};

/// Services with the core kinds of a standalone server.
async fn world(log: Arc<dyn Log>) -> TestServices {
    TestServices::over(log, unreachable_runner(), core_v1::register, |_| |_, definition| definition).await
}

struct Bed {
    world: TestServices,
    _server: Option<S3Server>,
    store: Arc<dyn DocumentStore>,
    place: Place,
    collector: Collector,
    end: CancellationToken,
}

impl Bed {
    async fn on_disk() -> Self {
        Self::of(world(Arc::new(MemoryLog::new())).await, "default", None).await
    }

    /// With a Backend that is a bucket, if there is a server for it.
    async fn in_bucket() -> Option<Self> {
        if S3Server::program().is_none() {
            eprintln!("skipped: STOA_TEST_S3 names no S3 server");
            return None;
        }
        let server = S3Server::start("documents");
        let world = world(Arc::new(MemoryLog::new())).await;
        let keys = [("accessKey", &server.access_key), ("secretKey", &server.secret_key)];
        let keys = keys.map(|(name, text)| (name.to_owned(), ByteString(text.clone().into_bytes())));
        let mut secret = Secret { data: Some(keys.into()), ..Secret::default() };
        (secret.metadata.namespace, secret.metadata.name) = (Some("platform".to_owned()), Some("s3".to_owned()));
        world.registry.api::<Secret>().create(&secret).await.unwrap();
        let s3 = json!({"bucket": "documents", "prefix": "team", "region": REGION, "endpoint": server.url(),
            "credentialsSecretRef": {"namespace": "platform", "name": "s3"}});
        world.create("Backend", "far", json!({"type": "S3", "s3": s3})).await;
        Some(Self::of(world, "far", Some(server)).await)
    }

    async fn of(world: TestServices, backend: &str, server: Option<S3Server>) -> Self {
        let uid = world.registry.api::<Stack>().get("shop", "web").await.unwrap().uid().unwrap();
        let store = world.services.backends.store(backend).await.unwrap();
        let collector = Collector::new(world.services.clone(), GRACE);
        let place = Place { namespace: "shop".to_owned(), uid, backend: backend.to_owned() };
        note_scope(&*world.services.log, "shop", &place.uid, backend).await.unwrap();
        Self { world, _server: server, store, place, collector, end: CancellationToken::new() }
    }

    /// Has all that was put or found to be loose by now be so since the grace period.
    fn wait(&mut self) {
        self.world.services.backends.holds().0.lock().put.values_mut().for_each(|at| *at -= GRACE);
        self.collector.unreferenced.values_mut().for_each(|since| *since -= GRACE);
    }

    async fn put(&self, text: &'static str) -> Digest {
        self.store.put(&self.place.scope(), Bytes::from_static(text.as_bytes())).await.unwrap()
    }

    /// Documents as they are found to be loose.
    fn due(&self, digests: &[Digest]) -> Vec<Due> {
        self.due_in("default", &self.store, digests)
    }

    fn due_in(&self, backend: &str, store: &Arc<dyn DocumentStore>, digests: &[Digest]) -> Vec<Due> {
        let (backend, scope) = (backend.to_owned(), self.place.scope());
        vec![Due { backend, store: store.clone(), scope, digests: digests.to_vec() }]
    }

    async fn is_there(&self, digest: &Digest) -> bool {
        self.store.get(&self.place.scope(), digest).await.unwrap().is_some()
    }

    async fn round(&mut self) -> usize {
        self.collector.round(&self.end).await.unwrap()
    }

    /// Two rounds with the grace period in between.
    async fn collect(&mut self) -> usize {
        assert_eq!(self.round().await, 0, "nothing goes at once");
        self.wait();
        self.round().await
    }

    async fn release(&self, revision: i64, state: Digest) {
        let spec = json!({"stack": "web", "stackUID": self.place.uid, "workspace": "dev", "revision": revision,
            "run": "r", "planDigest": "", "specDigest": state.to_string(), "stateDigest": state.to_string()});
        self.world.create("Release", &format!("web.dev.{revision}"), spec).await;
    }

    async fn record(&self, value: String) {
        self.write(format!("/stoa/state/{}/dev/resources/v1:ConfigMap:a:b", self.place.uid), value).await;
    }

    async fn write(&self, key: String, value: String) {
        let write = Write::new(Key::new(key), Expect::Any, Change::Put(value.into()));
        self.world.services.log.append(write).await.unwrap();
    }
}

#[tokio::test]
async fn referenced_documents_stay() {
    referred_to(Bed::on_disk().await).await;
}

#[tokio::test]
async fn documents_of_what_does_not_decode_stay() {
    let mut bed = Bed::on_disk().await;
    let [state, loose] = [bed.put("state").await, bed.put("loose").await];
    let release = format!(r#"{{"metadata":{{"name":"web.dev.1"}},"spec":"of the future, with {state}"}}"#);
    bed.write("/registry/delivery.stoa.dev/releases/shop/web.dev.1".to_owned(), release).await;
    assert_eq!(bed.collect().await, 1);
    assert!(bed.is_there(&state).await && !bed.is_there(&loose).await);
}

#[tokio::test]
async fn document_that_is_put_again_stays() {
    at_last(Bed::on_disk().await).await;
}

#[tokio::test]
async fn nobody_puts_what_is_just_being_removed() {
    just_being_removed(Bed::on_disk().await).await;
}

#[tokio::test]
async fn documents_of_a_deleted_stack_are_removed() {
    stack_is_gone(Bed::on_disk().await).await;
}

#[tokio::test]
async fn documents_can_be_put_again_before_removal() {
    let log = FaultyLog::new(0);
    let world = world(log.clone()).await;
    let mut bed = Bed::of(world, "default", None).await;
    let digest = bed.put("loose").await;
    bed.wait();
    log.hang_scans("/stoa/state/");
    tokio::select! {
        removed = bed.collector.remove(bed.due(&[digest]), &bed.end) => panic!("{removed:?}"),
        () = log.hangs.notified() => {}
    }
    bed.put("loose").await;
    assert!(bed.is_there(&digest).await);
}

#[tokio::test]
async fn references_are_read_once_for_many_stacks() {
    const STACKS: usize = 20;
    let log = FaultyLog::new(0);
    let world = world(log.clone()).await;
    let mut bed = Bed::of(world, "default", None).await;
    let mut reads = Vec::new();
    for stacks in [1, STACKS] {
        for number in 0..stacks {
            let uid = format!("{stacks}-{number}");
            note_scope(&*log, "shop", &uid, "default").await.unwrap();
            bed.store.put(&format!("shop/{uid}"), Bytes::from_static(b"loose")).await.unwrap();
        }
        assert_eq!(bed.round().await, 0);
        bed.wait();
        let before = log.heads();
        assert_eq!(bed.round().await, stacks);
        reads.push(log.heads() - before);
    }
    // The Backend of each stack is read, and others may ask where the log ends meanwhile.
    assert!(reads[1] < reads[0] + 2 * STACKS, "{reads:?}");
}

/// Longer than anything takes that is not waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// A store that removes a document when it is let, or never.
#[derive(Debug)]
struct Stubborn {
    store: Arc<dyn DocumentStore>,
    lets: Option<Semaphore>,
    /// What it never removes.
    never: Vec<Digest>,
    /// How often it was asked to.
    asked: watch::Sender<usize>,
}

impl Stubborn {
    fn new(store: &Arc<dyn DocumentStore>, lets: Option<Semaphore>) -> Arc<Self> {
        Arc::new(Self { store: store.clone(), lets, never: Vec::new(), asked: watch::Sender::new(0) })
    }
}

#[async_trait]
impl DocumentStore for Stubborn {
    async fn put(&self, scope: &str, bytes: Bytes) -> Result<Digest, DocumentError> {
        self.store.put(scope, bytes).await
    }

    async fn size(&self, scope: &str, digest: &Digest) -> Result<Option<u64>, DocumentError> {
        self.store.size(scope, digest).await
    }

    async fn get(&self, scope: &str, digest: &Digest) -> Result<Option<Bytes>, DocumentError> {
        self.store.get(scope, digest).await
    }

    async fn list(&self, scope: &str) -> Result<Vec<Digest>, DocumentError> {
        self.store.list(scope).await
    }

    async fn file(&self, path: &str, most: u64) -> Result<Option<Bytes>, DocumentError> {
        self.store.file(path, most).await
    }

    async fn delete(&self, scope: &str, digest: &Digest) -> Result<(), DocumentError> {
        self.asked.send_modify(|asked| *asked += 1);
        let Some(lets) = self.lets.as_ref().filter(|_| !self.never.contains(digest)) else {
            return Err(DocumentError::Refused { refusal: Refusal::Access, source: "403 AccessDenied".into() });
        };
        lets.acquire().await.expect("it is never closed").forget();
        self.store.delete(scope, digest).await
    }
}

#[tokio::test]
async fn store_that_refuses_removal_delays_no_other() {
    let mut bed = Bed::on_disk().await;
    let [kept, also, loose] = [bed.put("kept").await, bed.put("also").await, bed.put("loose").await];
    bed.wait();
    let stubborn = Stubborn::new(&bed.store, None);
    let refusing: Arc<dyn DocumentStore> = stubborn.clone();
    let others: Vec<Digest> = (0..20_u8).map(|number| Digest::of(&[number])).collect();
    let due = [
        bed.due_in("a", &refusing, &[kept]),
        bed.due_in("a", &refusing, &others),
        bed.due_in("b", &bed.store, &[also, loose]),
    ];
    let removed = bed.collector.remove(due.concat(), &bed.end).await;
    assert_eq!(removed.unwrap(), 2);
    assert!(bed.is_there(&kept).await && !bed.is_there(&also).await && !bed.is_there(&loose).await);
    assert_eq!(*stubborn.asked.borrow(), 5, "the rest is left for the next round");
    // What was asked for may arrive yet.
    let refused = bed.store.put(&bed.place.scope(), Bytes::from_static(b"kept")).await;
    assert!(matches!(refused, Err(DocumentError::Unavailable(_))), "{refused:?}");
    let scope = bed.place.scope();
    assert!(bed.store.put(&scope, Bytes::from_static(&[0])).await.is_ok(), "nobody asked for it to go");
    bed.put("loose").await;
}

#[tokio::test]
async fn unremovable_documents_do_not_delay_others() {
    let mut bed = Bed::on_disk().await;
    let [loose, also] = [bed.put("loose").await, bed.put("also").await];
    bed.wait();
    let never: Vec<Digest> = (0..5_u8).map(|number| Digest::of(&[number])).collect();
    let (store, lets) = (bed.store.clone(), Some(Semaphore::new(10)));
    let stubborn = Arc::new(Stubborn { store, lets, never: never.clone(), asked: watch::Sender::new(0) });
    let refusing: Arc<dyn DocumentStore> = stubborn.clone();
    // The last of a scope is removed first.
    let due = [bed.due_in("a", &refusing, &[&[loose][..], &never].concat()), bed.due_in("a", &refusing, &[also])];
    let due = due.concat();
    for (removed, asked) in [(0, 5), (2, 12)] {
        assert_eq!(bed.collector.remove(due.clone(), &bed.end).await.unwrap(), removed);
        assert_eq!(*stubborn.asked.borrow(), asked, "they are tried again, after the others");
        // As if no removal were on its way any more.
        bed.world.services.backends.holds().0.lock().going.clear();
    }
    assert!(!bed.is_there(&loose).await && !bed.is_there(&also).await);
}

#[tokio::test]
async fn interrupted_round_keeps_failed_removals() {
    let bed = Bed::on_disk().await;
    let stubborn = Stubborn::new(&bed.store, None);
    let refusing: Arc<dyn DocumentStore> = stubborn.clone();
    // The last store waits until another is done.
    let due_in = |number: usize| {
        let number = number.to_string();
        bed.due_in(&number, &refusing, &[Digest::of(number.as_bytes())])
    };
    let due: Vec<Due> = (0..=removal::AT_ONCE).flat_map(due_in).collect();
    let reads = AtomicUsize::new(0);
    let references = || {
        let is_first = reads.fetch_add(1, Ordering::Relaxed) == 0;
        std::future::ready(if is_first { Ok(HashSet::new()) } else { Err(StepError::Retry("away".to_owned())) })
    };
    let (holds, stuck) = (bed.world.services.backends.holds(), &bed.collector.stuck);
    let removed = removal::remove(due, holds, GRACE, references, &bed.end, stuck).await;
    assert!(removed.is_err(), "{removed:?}");
    // Those of the others that are under way yet.
    let mut asked = stubborn.asked.subscribe();
    let all = asked.wait_for(|asked| *asked == removal::AT_ONCE);
    tokio::time::timeout(PATIENCE, all).await.expect("they go on").unwrap();
    assert_eq!(stuck.lock().len(), removal::AT_ONCE);
}

#[tokio::test]
async fn slow_store_delays_no_other_store() {
    let mut bed = Bed::on_disk().await;
    let [first, second, other] = [bed.put("first").await, bed.put("second").await, bed.put("other").await];
    bed.wait();
    let stubborn = Stubborn::new(&bed.store, Some(Semaphore::new(0)));
    let slow: Arc<dyn DocumentStore> = stubborn.clone();
    let due = [bed.due_in("a", &slow, &[first, second]), bed.due_in("b", &bed.store, &[other])].concat();
    let meanwhile = async {
        let mut asked = stubborn.asked.subscribe();
        let lets = stubborn.lets.as_ref().unwrap();
        asked.wait_for(|asked| *asked == 1).await.unwrap();
        while bed.is_there(&other).await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // It is let go in the moment after it has gone.
        while bed.store.put(&bed.place.scope(), Bytes::from_static(b"other")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Nor is one held that is gone.
        lets.add_permits(1);
        asked.wait_for(|asked| *asked == 2).await.unwrap();
        bed.put("second").await;
        let refused = bed.store.put(&bed.place.scope(), Bytes::from_static(b"first")).await;
        assert!(matches!(refused, Err(DocumentError::Unavailable(_))), "{refused:?}");
        lets.add_permits(1);
    };
    let both = async { tokio::join!(bed.collector.remove(due, &bed.end), meanwhile) };
    let (removed, ()) = tokio::time::timeout(PATIENCE, both).await.expect("nobody waits for the slow one");
    assert_eq!(removed.unwrap(), 3);
}

mod buckets {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn referenced_documents_stay() {
        let Some(bed) = Bed::in_bucket().await else { return };
        referred_to(bed).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn document_that_is_put_again_stays() {
        let Some(bed) = Bed::in_bucket().await else { return };
        at_last(bed).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn nobody_puts_what_is_just_being_removed() {
        let Some(bed) = Bed::in_bucket().await else { return };
        just_being_removed(bed).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn documents_of_a_deleted_stack_are_removed() {
        let Some(bed) = Bed::in_bucket().await else { return };
        stack_is_gone(bed).await;
    }
}

async fn referred_to(mut bed: Bed) {
    let [plan, state, body, loose] =
        [bed.put("plan").await, bed.put("state").await, bed.put("body").await, bed.put("loose").await];
    bed.world.create("Run", "one", json!({"stack": "web", "workspace": "dev", "operation": "Preview"})).await;
    let planned = |run: &mut Run| {
        let planned = json!({"digest": "", "document": plan.to_string()});
        run.status.get_or_insert_default().plan = serde_json::from_value(planned).unwrap();
    };
    let runs = bed.world.registry.api::<Run>();
    runs.update_status_with("shop", "one", planned).await.unwrap();
    bed.release(1, state).await;
    // Nobody has to understand what refers to one.
    bed.record(format!(r#"{{"schemaVersion":1000,"bodyOfTheFuture":"{body}"}}"#)).await;
    assert_eq!(bed.collect().await, 1);
    assert!(!bed.is_there(&loose).await);
    for kept in [&plan, &state, &body] {
        assert!(bed.is_there(kept).await);
    }
    bed.record("{}".to_owned()).await;
    runs.delete("shop", "one", &DeleteOptions::default()).await.unwrap();
    runs.update_with("shop", "one", |run: &mut Run| run.finalizers_mut().clear()).await.unwrap();
    assert_eq!(bed.collect().await, 2);
    assert!(bed.is_there(&state).await);
    let releases = bed.world.registry.api::<Release>();
    releases.delete("shop", "web.dev.1", &DeleteOptions::default()).await.unwrap();
    assert_eq!(bed.collect().await, 1);
}

async fn at_last(mut bed: Bed) {
    let [again, late] = [bed.put("again").await, bed.put("late").await];
    assert_eq!(bed.round().await, 0);
    bed.wait();
    // A run puts what is there already, and will refer to it.
    bed.put("again").await;
    // It was found to be loose, and is referred to by the time it is to go.
    bed.release(1, late).await;
    let removed = bed.collector.remove(bed.due(&[again, late]), &bed.end).await.unwrap();
    assert_eq!(removed, 0);
    assert!(bed.is_there(&again).await && bed.is_there(&late).await);
    assert_eq!(bed.round().await, 0);
    assert!(bed.is_there(&again).await);
}

async fn just_being_removed(mut bed: Bed) {
    let digest = bed.put("loose").await;
    let scope = bed.place.scope();
    let holds = bed.world.services.backends.holds().clone();
    assert_eq!(holds.begin(&scope, &[digest], GRACE).digests, [], "it was put just now");
    bed.wait();
    let going = holds.begin(&scope, &[digest], GRACE);
    assert_eq!(going.digests, [digest]);
    assert_eq!(holds.begin(&scope, &[digest], GRACE).digests, [], "as through another Backend to the same bucket");
    let refused = bed.store.put(&scope, Bytes::from_static(b"loose")).await;
    assert!(matches!(refused, Err(DocumentError::Unavailable(_))), "{refused:?}");
    assert!(bed.store.put("shop/another", Bytes::from_static(b"loose")).await.is_ok(), "another document");
    drop(going);
    bed.put("loose").await;
}

async fn stack_is_gone(mut bed: Bed) {
    let stacks = bed.world.registry.api::<Stack>();
    let digest = bed.put("state").await;
    bed.release(1, digest).await;
    stacks.delete("shop", "web", &DeleteOptions::default()).await.unwrap();
    stacks.update_with("shop", "web", |stack: &mut Stack| stack.finalizers_mut().clear()).await.unwrap();
    assert_eq!(bed.collect().await, 0, "its release tells of it");
    bed.world.registry.api::<Release>().delete("shop", "web.dev.1", &DeleteOptions::default()).await.unwrap();
    assert_eq!(bed.collect().await, 1);
    let noted = async || bed.world.services.log.scan(SCOPES, None).await.unwrap().entries.len();
    assert_eq!(noted().await, 1);
    bed.collector.round(&bed.end).await.unwrap();
    assert_eq!(noted().await, 0);
}

#[test]
fn digests_are_found_wherever_they_are() {
    let [one, two] = [Digest::of(b"one"), Digest::of(b"two")];
    let text = format!(r#"{{"a":"{one}","b":["x {two} y"],"c":"sha256:0123","d":"sha256:sha256:"}} sha256:"#);
    let mut found = HashSet::new();
    digests_in(text.as_bytes(), &mut found);
    assert_eq!(found, [one, two].into());
}
