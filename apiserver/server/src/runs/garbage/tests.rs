//! What is removed from a store on disk, and what is not.

use serde_json::json;
use stoa_machinery::registry::DeleteOptions;

use super::*;
use crate::controllers::runs::tests::World;

const GRACE: Duration = Duration::from_millis(300);

struct Bed {
    world: World,
    store: Arc<dyn DocumentStore>,
    place: Place,
    collector: Collector,
    end: CancellationToken,
}

impl Bed {
    async fn new() -> Self {
        let world = World::with_secrets().await;
        let uid = world.registry.api::<Stack>().get("shop", "web").await.unwrap().uid().unwrap();
        let store = world.services.backends.store("default").await.unwrap();
        let collector = Collector::new(world.services.clone(), GRACE);
        let place = Place { namespace: "shop".to_owned(), uid, backend: "default".to_owned() };
        note_scope(&*world.services.log, "shop", &place.uid, "default").await.unwrap();
        Self { world, store, place, collector, end: CancellationToken::new() }
    }

    async fn put(&self, text: &'static str) -> Digest {
        self.store.put(&self.place.scope(), Bytes::from_static(text.as_bytes())).await.unwrap()
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
        tokio::time::sleep(GRACE * 2).await;
        self.round().await
    }

    async fn release(&self, revision: i64, state: Digest) {
        let spec = json!({"stack": "web", "stackUID": self.place.uid, "workspace": "dev", "revision": revision,
            "run": "r", "planDigest": "", "specDigest": state.to_string(), "stateDigest": state.to_string()});
        self.world.create("Release", &format!("web.dev.{revision}"), spec).await;
    }

    async fn record(&self, value: String) {
        let write = Write {
            key: Key::new(format!("/stoa/state/{}/dev/resources/v1:ConfigMap:a:b", self.place.uid)),
            expect: Expect::Any,
            change: Change::Put(value.into()),
            fence: None,
            origin: Origin::default(),
        };
        self.world.services.log.append(write).await.unwrap();
    }
}

#[tokio::test]
async fn documents_stay_as_long_as_anything_refers_to_them() {
    let mut bed = Bed::new().await;
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
    runs.update_with("shop", "one", |run: &mut Run| run.finalizers_mut().clear()).await.unwrap();
    runs.delete("shop", "one", &DeleteOptions::default()).await.unwrap();
    assert_eq!(bed.collect().await, 2);
    assert!(bed.is_there(&state).await);
    let releases = bed.world.registry.api::<Release>();
    releases.delete("shop", "web.dev.1", &DeleteOptions::default()).await.unwrap();
    assert_eq!(bed.collect().await, 1);
}

#[tokio::test]
async fn what_is_put_again_or_referred_to_at_last_is_not_removed() {
    let mut bed = Bed::new().await;
    let [again, late] = [bed.put("again").await, bed.put("late").await];
    assert_eq!(bed.round().await, 0);
    tokio::time::sleep(GRACE * 2).await;
    // A run puts what is there already, and will refer to it.
    bed.put("again").await;
    // It was found to be loose, and is referred to by the time it is to go.
    bed.release(1, late).await;
    let removed = bed.collector.remove(&bed.store, &bed.place, &[again, late], &bed.end).await.unwrap();
    assert_eq!(removed, 0);
    assert!(bed.is_there(&again).await && bed.is_there(&late).await);
    assert_eq!(bed.round().await, 0);
    assert!(bed.is_there(&again).await);
}

#[tokio::test]
async fn nobody_puts_what_is_just_being_removed() {
    let bed = Bed::new().await;
    let digest = bed.put("loose").await;
    let scope = bed.place.scope();
    let holds = bed.world.services.backends.holds().clone();
    assert_eq!(holds.begin(&scope, &[digest], GRACE), [], "it was put just now");
    tokio::time::sleep(GRACE * 2).await;
    assert_eq!(holds.begin(&scope, &[digest], GRACE), [digest]);
    let refused = bed.store.put(&scope, Bytes::from_static(b"loose")).await;
    assert!(matches!(refused, Err(DocumentError::Unavailable(_))), "{refused:?}");
    assert!(bed.store.put("shop/another", Bytes::from_static(b"loose")).await.is_ok(), "another document");
    holds.end(&scope, &[digest]);
    bed.put("loose").await;
}

#[tokio::test]
async fn documents_of_a_stack_that_is_gone_go_and_then_nothing_tells_of_it() {
    let mut bed = Bed::new().await;
    let stacks = bed.world.registry.api::<Stack>();
    let digest = bed.put("state").await;
    bed.release(1, digest).await;
    stacks.update_with("shop", "web", |stack: &mut Stack| stack.finalizers_mut().clear()).await.unwrap();
    stacks.delete("shop", "web", &DeleteOptions::default()).await.unwrap();
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
