//! Deliveries from a log in memory to receivers on loopback.

mod dead_letters;
mod history;
mod retries;

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use prometheus::Registry;
use serde_json::{Value, json};
use stoa_kinds::core_v1;
use stoa_kinds::testing::TestRegistry;
use stoa_machinery::{Object, RequestContext, log::MemoryLog, registry::DeleteOptions};
use stoa_storage::SystemClock;
use stoa_types::{Condition, Run, Workspace, common::condition, delivery::RunPhase, reason};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::testing::{Received, Receiver, Reply};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);
/// What events are signed with.
const KEY: &str = "whsec_c3RvYS1zdG9hLXN0b2Etc3RvYS1zdG9h";

/// A server whose deliveries can be ended like a process.
struct Bed {
    world: TestRegistry,
    services: Services,
    metrics: Registry,
    running: Option<(JoinHandle<()>, CancellationToken)>,
}

/// The services of a server in memory.
fn services_of(world: &TestRegistry) -> Services {
    Services {
        lookup: world.lookup.clone(),
        log: world.registry.log().clone(),
        recorder: Recorder::start(world.cluster.clone(), world.end.clone()),
        cluster: world.cluster.clone(),
        clock: Arc::new(SystemClock),
    }
}

impl Bed {
    async fn new() -> Self {
        let world = TestRegistry::over(Arc::new(MemoryLog::new()), core_v1::register).await;
        world.create_web().await;
        let services = services_of(&world);
        let bed = Self { world, services, metrics: Registry::new(), running: None };
        bed.make("Secret", "stoa-system", json!({"metadata": {"name": "hooks"}, "stringData": {"key": KEY}})).await;
        bed
    }

    async fn started() -> Self {
        let mut bed = Self::new().await;
        bed.start();
        bed
    }

    /// Begins to deliver.
    fn start(&mut self) {
        self.metrics = Registry::new();
        let end = CancellationToken::new();
        let term = Term { fence: None, end: end.clone() };
        let metrics = Metrics::new(&self.metrics).unwrap();
        self.running = Some((tokio::spawn(run(self.services.clone(), metrics, term)), end));
    }

    /// Ends it like a crash: nothing is done any more.
    async fn crash(&mut self) {
        let (task, end) = self.running.take().expect("it runs");
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        // Workers are dropped where they are; by then they are.
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(end);
    }

    /// Ends it in order.
    async fn stop(&mut self) {
        let (task, end) = self.running.take().expect("it runs");
        end.cancel();
        task.await.unwrap();
    }

    async fn make(&self, kind: &str, namespace: &str, object: Value) {
        let store = self.world.registry.stores().find(|store| store.definition().kind == kind).unwrap();
        let Value::Object(object) = object else { unreachable!("a map") };
        store.create(&RequestContext::internal("test"), namespace, Object(object)).await.unwrap();
    }

    /// Makes a sink that posts to a receiver, quickly again when it has to.
    async fn sink(&self, name: &str, receiver: &Receiver, more: Value) {
        let mut spec = json!({
            "url": receiver.url(),
            "secretRef": {"namespace": "stoa-system", "name": "hooks", "key": "key"},
            "timeout": "5s",
            "retry": {"minBackoff": "100ms", "maxBackoff": "1s"},
        });
        let Value::Object(more) = more else { unreachable!("a map") };
        for (field, value) in more {
            match (spec.get_mut(&field).and_then(Value::as_object_mut), value) {
                (Some(there), Value::Object(value)) => there.extend(value),
                (_, value) => spec[field] = value,
            }
        }
        self.world.create("NotificationSink", name, spec).await;
    }

    /// A run that has begun.
    async fn begin(&self, name: &str) {
        let spec = json!({"stack": "web", "workspace": "dev", "operation": "Apply"});
        self.world.create("Run", name, spec).await;
        self.set(name, |run| {
            let status = run.status.get_or_insert_default();
            status.phase = RunPhase::Generating;
            status.start_time = Some(Time(Timestamp::now()));
        })
        .await;
    }

    /// And ended.
    async fn end(&self, name: &str, phase: RunPhase) {
        self.set(name, |run| {
            let status = run.status.get_or_insert_default();
            status.phase = phase;
            status.completion_time = Some(Time(Timestamp::now()));
        })
        .await;
    }

    async fn set(&self, name: &str, change: impl FnMut(&mut Run) + Send) {
        self.world.registry.api::<Run>().update_status_with("shop", name, change).await.unwrap();
    }

    /// A workspace that becomes unavailable: an event that is no stack's.
    async fn lose(&self, workspace: &str) {
        let target = json!({"backend": {"name": "none"}, "gitops": {"repository": "file:///deploy.git"}});
        self.world.create("Workspace", workspace, target).await;
        assert!(self.world.registry.api::<Workspace>().get("", workspace).await.is_ok());
    }

    async fn read(&self, sink: &str) -> NotificationSink {
        self.world.registry.api::<NotificationSink>().get("", sink).await.unwrap()
    }

    async fn update(&self, sink: &str, change: impl FnMut(&mut NotificationSink) + Send) {
        self.world.registry.api::<NotificationSink>().update_with("", sink, change).await.unwrap();
    }

    async fn ready(&self, sink: &str) -> Option<Condition> {
        condition(&self.read(sink).await.status?.conditions, reason::READY).cloned()
    }

    /// Waits until a sink is as expected.
    async fn until(&self, sink: &str, is_there: impl Fn(&NotificationSink) -> bool) -> NotificationSink {
        let found = async {
            loop {
                let found = self.read(sink).await;
                if is_there(&found) {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        match tokio::time::timeout(PATIENCE, found).await {
            Ok(found) => found,
            Err(_) => panic!("{sink} does not get there: {:#?}", self.read(sink).await.status),
        }
    }

    async fn until_ready(&self, sink: &str, why: &str) {
        let is_there = |sink: &NotificationSink| {
            let conditions = sink.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
            condition(conditions, reason::READY).is_some_and(|ready| ready.reason == why)
        };
        self.until(sink, is_there).await;
    }

    /// Everything that is kept of sinks, as text.
    async fn kept(&self) -> Vec<(String, String)> {
        let entries = self.services.log.scan("/stoa/notifications/", None).await.unwrap().entries;
        entries.iter().map(|e| (e.key.to_string(), String::from_utf8(e.value.to_vec()).unwrap())).collect()
    }

    /// Waits until so many records are kept of sinks.
    async fn keeps(&self, count: usize) {
        let kept = async {
            while self.kept().await.len() != count {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, kept).await.is_err() {
            panic!("{count} records are to be kept, not {:?}", self.kept().await);
        }
    }

    /// Waits until this is a line of the metrics.
    async fn until_metric(&self, line: &str) {
        let is_there = async {
            while self.metric(line.split(' ').next().unwrap()) != line {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, is_there).await.is_err() {
            panic!("{line} is not in {}", self.metric("stoa"));
        }
    }

    /// The lines of the metrics that begin with this.
    fn metric(&self, name: &str) -> String {
        let text = prometheus::TextEncoder::new().encode_to_string(&self.metrics.gather()).unwrap();
        text.lines().filter(|line| line.starts_with(name)).collect::<Vec<_>>().join("\n")
    }
}

/// Type and subject of what came.
fn told(received: &Received) -> String {
    let event = &received.event;
    let event_type = event["type"].as_str().unwrap().trim_start_matches("dev.stoa.");
    format!("{event_type} {}", event["subject"].as_str().unwrap())
}

#[tokio::test]
async fn what_happens_is_told_as_signed_cloud_events() {
    let bed = Bed::started().await;
    let receiver = Receiver::start(|_| Reply::Code(204)).await;
    bed.sink("chat", &receiver, json!({"source": "https://stoa.example.com"})).await;
    bed.begin("web-1").await;
    let started = receiver.next().await;
    assert_eq!(told(&started), "run.started runs/web-1");
    let uid = bed.world.registry.api::<Run>().get("shop", "web-1").await.unwrap().uid().unwrap();
    let event = &started.event;
    assert_eq!(event["specversion"], "1.0");
    assert_eq!(event["source"], "https://stoa.example.com/apis/config.stoa.dev/v1alpha1/organizations/shop");
    assert_eq!(event["datacontenttype"], "application/json");
    let link = "https://stoa.example.com/apis/delivery.stoa.dev/v1alpha1/namespaces/shop/runs/web-1";
    let data = json!({
        "kind": "Run", "name": "web-1", "uid": uid, "link": link, "namespace": "shop", "organization": "shop",
        "project": "web", "stack": "web", "workspace": "dev", "operation": "Apply", "phase": "Generating",
        "requester": "system:stoa:test",
        "command": r#"kubectl get --raw "/apis/delivery.stoa.dev/v1alpha1/namespaces/shop/runs/web-1/log""#,
    });
    assert_eq!(event["data"], data);
    let header = |name: &str| started.headers.get(name).unwrap().to_str().unwrap();
    assert_eq!(header("content-type"), "application/cloudevents+json; charset=utf-8");
    assert_eq!(header("webhook-id"), event["id"]);
    let timestamp: i64 = header("webhook-timestamp").parse().unwrap();
    assert!((Timestamp::now().as_second() - timestamp).abs() < 30, "{timestamp}");

    // As a receiver verifies it.
    let key = STANDARD.decode(KEY.strip_prefix("whsec_").unwrap()).unwrap();
    let signed = [format!("{}.{timestamp}.", header("webhook-id")).as_bytes(), &started.body].concat();
    let signature = STANDARD.decode(header("webhook-signature").strip_prefix("v1,").unwrap()).unwrap();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key);
    ring::hmac::verify(&key, &signed, &signature).expect("the signature is that of the key");

    // Later writes of the run are no news.
    bed.set("web-1", |run| run.status.get_or_insert_default().phase = RunPhase::Planning).await;
    bed.end("web-1", RunPhase::Succeeded).await;
    assert_eq!(told(&receiver.next().await), "run.succeeded runs/web-1");
    let runs = bed.world.registry.api::<Run>();
    let label = |run: &mut Run| {
        run.labels_mut().insert("touched".to_owned(), String::new());
    };
    runs.update_with("shop", "web-1", label).await.unwrap();
    bed.lose("lost").await;
    assert_eq!(told(&receiver.next().await), "workspace.unavailable workspaces/lost");
    assert_eq!(bed.ready("chat").await.unwrap().reason, reason::AVAILABLE);
    bed.until_metric("stoa_notification_attempts_total{outcome=\"delivered\",sink=\"chat\"} 3").await;
    bed.until_metric("stoa_notification_pending_events{sink=\"chat\"} 0").await;
}

#[tokio::test]
async fn sink_receives_only_requested_events() {
    let bed = Bed::started().await;
    let receiver = Receiver::start(|_| Reply::Code(200)).await;
    let more = json!({"events": ["dev.stoa.run.failed", "dev.stoa.workspace.*"]});
    bed.sink("chat", &receiver, more).await;
    bed.until_ready("chat", reason::AVAILABLE).await;
    let kept = bed.kept().await;
    assert_eq!(kept.len(), 1, "where it begins: {kept:?}");
    for name in ["a", "b", "c"] {
        bed.begin(name).await;
        bed.end(name, RunPhase::Succeeded).await;
    }
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(bed.kept().await, kept, "nothing was to be sent");
    bed.end("c", RunPhase::Failed).await;
    bed.lose("lost").await;
    let mut both = [told(&receiver.next().await), told(&receiver.next().await)];
    both.sort();
    assert_eq!(both, ["run.failed runs/c", "workspace.unavailable workspaces/lost"]);
}

#[tokio::test]
async fn sink_reports_missing_key_and_waits() {
    let bed = Bed::started().await;
    let receiver = Receiver::start(|_| Reply::Code(200)).await;
    let reference = json!({"secretRef": {"namespace": "stoa-system", "name": "later", "key": "key"}});
    bed.sink("chat", &receiver, reference).await;
    bed.until_ready("chat", reason::REFERENCE_NOT_FOUND).await;
    bed.begin("web-1").await;
    bed.make("Secret", "stoa-system", json!({"metadata": {"name": "later"}, "stringData": {"key": "short"}})).await;
    bed.until_ready("chat", reason::INVALID_KEY).await;
    let told = bed.ready("chat").await.unwrap();
    assert_eq!(told.message, "key \"key\" of Secret stoa-system/later: the key in line 1 is shorter than 24 bytes");
    let secrets = bed.world.registry.api::<k8s_openapi::api::core::v1::Secret>();
    let two = format!("{KEY}\nanother key, which is long enough\n");
    let exchange = |secret: &mut k8s_openapi::api::core::v1::Secret| {
        secret.data = Some([("key".to_owned(), k8s_openapi::ByteString(two.clone().into_bytes()))].into());
    };
    secrets.update_with("stoa-system", "later", exchange).await.unwrap();
    let signatures = receiver.next().await.headers["webhook-signature"].to_str().unwrap().to_owned();
    assert_eq!(signatures.split(' ').filter(|signature| signature.starts_with("v1,")).count(), 2, "{signatures}");
    bed.until_ready("chat", reason::AVAILABLE).await;
    let sink = serde_json::to_string(&bed.read("chat").await).unwrap();
    for text in [sink, format!("{:?}", bed.kept().await), bed.metric("")] {
        assert!(!text.contains("another key") && !text.contains(KEY), "{text}");
    }
}

#[tokio::test]
async fn a_suspended_sink_is_told_later() {
    let bed = Bed::started().await;
    let receiver = Receiver::start(|_| Reply::Code(200)).await;
    bed.sink("chat", &receiver, json!({})).await;
    bed.until_ready("chat", reason::AVAILABLE).await;
    bed.update("chat", |sink| sink.spec.suspend = true).await;
    bed.until_ready("chat", reason::SUSPENDED).await;
    bed.begin("web-1").await;
    bed.end("web-1", RunPhase::Failed).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(receiver.try_next().is_none());
    bed.update("chat", |sink| sink.spec.suspend = false).await;
    assert_eq!(told(&receiver.next().await), "run.started runs/web-1");
    assert_eq!(told(&receiver.next().await), "run.failed runs/web-1");
}

#[tokio::test]
async fn initially_suspended_sink_receives_events_after_resume() {
    let bed = Bed::started().await;
    let receiver = Receiver::start(|_| Reply::Code(200)).await;
    bed.sink("chat", &receiver, json!({"suspend": true})).await;
    bed.until_ready("chat", reason::SUSPENDED).await;
    bed.begin("web-1").await;
    bed.update("chat", |sink| sink.spec.suspend = false).await;
    assert_eq!(told(&receiver.next().await), "run.started runs/web-1");
}

#[tokio::test]
async fn changed_sink_starts_at_its_creation() {
    let mut bed = Bed::new().await;
    let receiver = Receiver::start(|_| Reply::Code(200)).await;
    bed.begin("before").await;
    bed.sink("chat", &receiver, json!({})).await;
    bed.begin("web-1").await;
    for seconds in ["6s", "7s"] {
        bed.update("chat", |sink| sink.spec.timeout = seconds.into()).await;
    }
    bed.end("web-1", RunPhase::Failed).await;
    bed.start();
    assert_eq!(told(&receiver.next().await), "run.started runs/web-1");
    assert_eq!(told(&receiver.next().await), "run.failed runs/web-1");
    assert_eq!(receiver.count_for(Duration::from_millis(100)).await, 0);

    // Another of its name is another, and where history is gone, that is told.
    let sinks = bed.world.registry.api::<NotificationSink>();
    sinks.delete("", "chat", &DeleteOptions::default()).await.unwrap();
    bed.keeps(0).await;
    bed.stop().await;
    bed.begin("web-2").await;
    bed.sink("chat", &receiver, json!({})).await;
    bed.begin("web-3").await;
    bed.update("chat", |sink| sink.spec.timeout = "6s".into()).await;
    let log = bed.services.log.clone();
    log.compact(log.head().await.unwrap()).await.unwrap();
    bed.start();
    let sink = bed.until("chat", |sink| sink.status.as_ref().is_some_and(|status| status.gaps == 1)).await;
    assert!(sink.status.unwrap().last_gap.is_some());
    let mut came = Vec::new();
    while !came.contains(&"run.started runs/web-3".to_owned()) {
        came.push(told(&receiver.next().await));
    }
}

#[tokio::test]
async fn of_a_deleted_sink_nothing_is_kept() {
    let mut bed = Bed::started().await;
    let receiver = Receiver::start(|_| Reply::Code(200)).await;
    for sink in ["one", "two", "three"] {
        bed.sink(sink, &receiver, json!({})).await;
        bed.until_ready(sink, reason::AVAILABLE).await;
    }
    assert_eq!(bed.kept().await.len(), 3);
    let sinks = bed.world.registry.api::<NotificationSink>();
    let delete = async |name: &str| sinks.delete("", name, &DeleteOptions::default()).await.unwrap();
    delete("one").await;
    bed.keeps(2).await;
    // Nobody delivers when the next one goes.
    bed.stop().await;
    delete("two").await;
    bed.start();
    bed.keeps(1).await;
}
