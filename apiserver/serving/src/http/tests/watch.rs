//! Watches, frame by frame.

use std::{
    convert::Infallible,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    task::{Context, Wake, Waker},
    time::Duration,
};

use futures_util::StreamExt as _;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::{
    body::{Body as _, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stoa_meta::definition::ResourceDefinition;
use stoa_registry::strategy::DefaultStrategy;
use tokio_tungstenite::{WebSocketStream, tungstenite::protocol::Role};

use super::support::{Server, TABLE, gadget};
use crate::http::Body;

const GADGETS: &str = "/apis/test.dev/v1/namespaces/shop/gadgets";
const A: &str = "/apis/test.dev/v1/namespaces/shop/gadgets/a";

/// A watch whose frames are read one by one.
struct Watch {
    body: Body,
    read: Vec<u8>,
}

impl Watch {
    async fn open(server: &Server, query: &str, accept: &str) -> Self {
        Self::of(server, GADGETS, query, accept).await
    }

    async fn of(server: &Server, objects: &str, query: &str, accept: &str) -> Self {
        let headers = [("accept", accept)];
        let response = server.open("GET", &format!("{objects}?watch=true&{query}"), &headers, "").await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "application/json");
        Self { body: response.into_body(), read: Vec::new() }
    }

    /// The next event; nothing at the end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<_> = self.read.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame =
                tokio::time::timeout(Duration::from_secs(20), self.body.frame()).await.expect("a frame in time");
            match frame {
                Some(frame) => self.read.extend_from_slice(&frame.unwrap().into_data().unwrap()),
                None => {
                    assert!(self.read.is_empty(), "a frame was cut off");
                    return None;
                }
            }
        }
    }
}

#[tokio::test]
async fn events_are_framed_one_to_a_line() {
    let server = Server::start().await;
    let a = server.create("shop", gadget("a", 1)).await;
    let mut watch = Watch::open(&server, "", "*/*").await;
    assert_eq!(watch.next().await, Some(json!({"type": "ADDED", "object": a})));
    let changed = server.merge(A, &json!({"spec": {"size": 2}})).await.json();
    assert_eq!(watch.next().await, Some(json!({"type": "MODIFIED", "object": changed})));
    server.send("DELETE", A, &[], "").await;
    let deleted = watch.next().await.unwrap();
    assert_eq!((&deleted["type"], &deleted["object"]["spec"]), (&json!("DELETED"), &changed["spec"]));
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    assert!(version(&deleted["object"]) > version(&changed));
}

#[tokio::test]
async fn watch_from_a_version_tells_what_came_after() {
    let server = Server::start().await;
    let a = server.create("shop", gadget("a", 1)).await;
    let b = server.create("shop", gadget("b", 1)).await;
    let version = a["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = Watch::open(&server, &format!("resourceVersion={version}"), "*/*").await;
    assert_eq!(watch.next().await, Some(json!({"type": "ADDED", "object": b})));
}

/// As Go's types are: whatever was not said of it is empty, and there.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "test.dev", version = "v1", kind = "Parcel", namespaced, no_spec)]
struct ParcelFields {
    #[serde(default)]
    spec: ParcelSpec,
    #[serde(default, rename = "status")]
    observed: ParcelStatus,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct ParcelSpec {
    #[serde(default)]
    weight: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct ParcelStatus {}

#[tokio::test]
async fn bookmark_contains_required_fields_of_type() {
    let server = Server::of(ResourceDefinition::of::<Parcel>(), DefaultStrategy::<Parcel>::default()).await;
    let parcels = "/apis/test.dev/v1/namespaces/shop/parcels";
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let bookmark = Watch::of(&server, parcels, query, "*/*").await.next().await.unwrap();
    let object = &bookmark["object"];
    assert_eq!((&bookmark["type"], &object["kind"]), (&json!("BOOKMARK"), &json!("Parcel")));
    assert_eq!((&object["spec"], &object["status"]), (&json!({"weight": 0}), &json!({})));
    assert_eq!(object["metadata"]["annotations"], json!({"k8s.io/initial-events-end": "true"}));
    let table =
        Watch::of(&server, parcels, &format!("{query}&includeObject=Object"), TABLE).await.next().await.unwrap();
    assert_eq!(&table["object"]["rows"][0]["object"], object);
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let server = Server::start().await;
    let a = server.create("shop", gadget("a", 1)).await;
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut objects = Watch::open(&server, query, "*/*").await;
    assert_eq!(objects.next().await, Some(json!({"type": "ADDED", "object": a})));
    let version = &a["metadata"]["resourceVersion"];
    let mark = json!({"k8s.io/initial-events-end": "true"});
    let bookmark = json!({
        "type": "BOOKMARK",
        "object": {
            "kind": "Gadget",
            "apiVersion": "test.dev/v1",
            "metadata": {"resourceVersion": version, "annotations": mark},
        },
    });
    assert_eq!(objects.next().await, Some(bookmark));

    let partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let mut watch = Watch::open(&server, query, partial).await;
    let kind = |event: &Value| (event["type"].clone(), event["object"]["kind"].clone());
    assert_eq!(kind(&watch.next().await.unwrap()), (json!("ADDED"), json!("PartialObjectMetadata")));
    let bookmark = watch.next().await.unwrap();
    assert_eq!(kind(&bookmark), (json!("BOOKMARK"), json!("PartialObjectMetadata")));
    assert_eq!(bookmark["object"]["metadata"]["annotations"], mark);

    let list = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    assert_eq!(Watch::open(&server, query, list).await.next().await, None, "one object is no list");

    let mut watch = Watch::open(&server, &format!("{query}&includeObject=None"), TABLE).await;
    let added = watch.next().await.unwrap();
    assert_eq!((kind(&added), &added["object"]["rows"][0]["object"]), ((json!("ADDED"), json!("Table")), &Value::Null));
    let bookmark = watch.next().await.unwrap();
    assert_eq!(kind(&bookmark), (json!("BOOKMARK"), json!("Table")));
    assert_eq!(bookmark["object"]["rows"][0]["object"]["metadata"]["annotations"], mark);

    // Another bookmark comes when it says more.
    let b = server.create("shop", gadget("b", 1)).await;
    assert_eq!(objects.next().await, Some(json!({"type": "ADDED", "object": b})));
    let later = objects.next().await.unwrap();
    let metadata = json!({"resourceVersion": b["metadata"]["resourceVersion"]});
    assert_eq!((&later["type"], &later["object"]["metadata"]), (&json!("BOOKMARK"), &metadata));
}

#[tokio::test]
async fn only_the_first_table_has_columns() {
    let server = Server::start().await;
    server.create("shop", gadget("a", 1)).await;
    server.create("shop", gadget("b", 2)).await;
    let mut watch = Watch::open(&server, "", TABLE).await;
    let first = watch.next().await.unwrap();
    assert_eq!(first["object"]["columnDefinitions"].as_array().map(Vec::len), Some(4));
    assert_eq!(first["object"]["rows"][0]["cells"][0], "a");
    let second = watch.next().await.unwrap();
    assert_eq!(second["object"]["columnDefinitions"], Value::Null);
    assert_eq!(second["object"]["rows"][0]["cells"][0], "b");
}

/// A clock that is a day later each time it is looked at.
fn days() -> Timestamp {
    static DAYS: AtomicI64 = AtomicI64::new(1);
    Timestamp::now() + SignedDuration::from_hours(24 * DAYS.fetch_add(1, Ordering::Relaxed))
}

#[tokio::test]
async fn ages_in_a_table_are_those_at_the_event() {
    let server = Server::with_clock(days).await;
    server.create("shop", gadget("a", 1)).await;
    let mut watch = Watch::open(&server, "", TABLE).await;
    let mut ages = Vec::new();
    for size in 2..5 {
        let event = watch.next().await.unwrap();
        let age = event["object"]["rows"][0]["cells"][3].as_str().unwrap().to_owned();
        ages.push(age.strip_suffix('d').unwrap_or_else(|| panic!("{age} is in days")).parse::<u32>().unwrap());
        server.merge(A, &json!({"spec": {"size": size}})).await;
    }
    assert!(ages.is_sorted_by(|a, b| a < b), "{ages:?}");
}

#[tokio::test]
async fn watch_of_one_object_sees_no_other() {
    let server = Server::start().await;
    server.create("shop", gadget("a", 1)).await;
    let b = server.create("shop", gadget("b", 1)).await;
    let mut watch = Watch::open(&server, "fieldSelector=metadata.name%3Db", "*/*").await;
    assert_eq!(watch.next().await, Some(json!({"type": "ADDED", "object": b})));

    let old_style = "/apis/test.dev/v1/watch/namespaces/shop/gadgets/b?timeoutSeconds=1";
    let answer = server.get(old_style).await;
    assert_eq!(answer.json(), json!({"type": "ADDED", "object": b}));
    let answer = server.get(&format!("{old_style}&fieldSelector=metadata.name%3D%3Db,spec.size%3D1")).await;
    assert_eq!(answer.json(), json!({"type": "ADDED", "object": b}));
    server.get(&format!("{old_style}&fieldSelector=metadata.name%3Da")).await.assert_status(
        400,
        "BadRequest",
        "fieldSelector metadata.name doesn't match requested name",
    );
    // Its options are those of a list, unless it says that it is a watch, too.
    let code = async |query: &str| server.get(&format!("{old_style}&{query}")).await.code.as_u16();
    let version = b["metadata"]["resourceVersion"].as_str().unwrap();
    assert_eq!(code("sendInitialEvents=true&resourceVersionMatch=NotOlderThan").await, 422);
    assert_eq!(code(&format!("resourceVersionMatch=NotOlderThan&resourceVersion={version}")).await, 200);
    assert_eq!(code(&format!("watch=1&resourceVersionMatch=NotOlderThan&resourceVersion={version}")).await, 422);
    let of_no_namespace = server.get("/apis/test.dev/v1/watch/gadgets/b?timeoutSeconds=1").await;
    assert_eq!(of_no_namespace.code, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn watch_ends_cleanly_when_its_time_is_over() {
    let server = Server::start().await;
    let mut watch = Watch::open(&server, "timeoutSeconds=1", "*/*").await;
    assert_eq!(watch.next().await, None);
    server.create("shop", gadget("a", 1)).await;
    let mut watch = Watch::open(&server, "timeoutSeconds=-1&allowWatchBookmarks=true", "*/*").await;
    assert_eq!(watch.next().await, None, "it was over before it began");
}

#[tokio::test]
async fn wrong_watch_options_are_refused_before_it_begins() {
    let server = Server::start().await;
    server.get(&format!("{GADGETS}?watch=true&sendInitialEvents=true&resourceVersion=1")).await.assert_status(
        422,
        "Invalid",
        "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
    );
    let both =
        server.get(&format!("{GADGETS}?watch=true&continue=x&resourceVersion=1&resourceVersionMatch=Exact")).await;
    let causes: Vec<_> =
        both.json()["details"]["causes"].as_array().unwrap().iter().map(|cause| cause["message"].clone()).collect();
    assert_eq!(
        causes,
        [
            "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            "Unsupported value: \"Exact\": supported values: \"NotOlderThan\"",
            "Forbidden: resourceVersionMatch is forbidden when continue is provided",
        ]
    );
    let yaml =
        server.send("GET", &format!("{GADGETS}?watch=true&limit=x"), &[("accept", "application/yaml")], "").await;
    assert_eq!(yaml.code, StatusCode::BAD_REQUEST, "{}", yaml.text());
    let yaml = server.send("GET", &format!("{GADGETS}?watch=true"), &[("accept", "application/yaml")], "").await;
    let message = "message: \"only the following media types are accepted: application/json;stream=watch\"\n";
    assert!(yaml.code == StatusCode::NOT_ACCEPTABLE && yaml.text().contains(message), "{}", yaml.text());
}

#[tokio::test]
async fn watches_that_are_told_the_same_share_its_bytes() {
    const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let server = Server::start().await;
    let a = server.create("shop", gadget("a", 1)).await;
    let version = a["metadata"]["resourceVersion"].as_str().unwrap();
    let mut frames = Vec::new();
    let (query, all) = (format!("resourceVersion={version}"), ["*/*", "*/*", PARTIAL, PARTIAL, TABLE, "*/*"]);
    let mut watches = Vec::new();
    for accept in all {
        watches.push(Watch::open(&server, &query, accept).await);
    }
    server.merge(A, &json!({"spec": {"size": 2}})).await;
    for watch in &mut watches {
        frames.push(watch.body.frame().await.unwrap().unwrap().into_data().unwrap());
    }
    let [one, two, partial, second, table, last] = frames.try_into().unwrap();
    assert_eq!((one.as_ptr(), partial.as_ptr()), (two.as_ptr(), second.as_ptr()));
    assert_eq!(one, last);
    let kind = |frame: &[u8]| serde_json::from_slice::<Value>(frame).unwrap()["object"]["kind"].clone();
    assert_eq!([kind(&one), kind(&partial), kind(&table)], ["Gadget", "PartialObjectMetadata", "Table"]);

    // The same object comes into the sight of one watch, and goes out of that of another.
    let small = Watch::open(&server, &format!("{query}&fieldSelector=spec.size%3D1"), "*/*").await;
    let large = Watch::open(&server, &format!("{query}&fieldSelector=spec.size%3D2"), "*/*").await;
    for (mut watch, kind) in [(small, "DELETED"), (large, "ADDED")] {
        assert_eq!(watch.next().await.unwrap()["type"], kind);
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn watch_frame_wakes_latest_task() {
    let server = Server::start().await;
    server.create("shop", gadget("a", 0)).await;
    let mut body = Watch::open(&server, "", "*/*").await.body;
    let wakers = [(); 2].map(|()| Arc::<Woken>::default());
    for size in 1..9 {
        let [first, second] = [size % 2, size / 2 % 2].map(|index| &wakers[index]);
        let mut poll = |woken: &Arc<Woken>| {
            let waker = Waker::from(Arc::clone(woken));
            Pin::new(&mut body).poll_frame(&mut Context::from_waker(&waker)).is_ready()
        };
        assert!(poll(first), "there was an event before {size}");
        assert!(!poll(second), "{size}");
        second.0.store(false, Ordering::SeqCst);
        server.merge(A, &json!({"spec": {"size": size}})).await;
        assert!(second.0.load(Ordering::SeqCst), "{size}");
    }
}

/// A connection that cannot write takes no frame when an event wakes it, and asks for one later.
#[tokio::test]
async fn event_after_a_frame_is_ready_without_another_wake() {
    let server = Server::start().await;
    server.create("shop", gadget("a", 0)).await;
    let mut body = Watch::open(&server, "", "*/*").await.body;
    let waker = Waker::from(Arc::<Woken>::default());
    let mut is_ready = || Pin::new(&mut body).poll_frame(&mut Context::from_waker(&waker)).is_ready();
    assert!(is_ready(), "the object that exists is an event");
    server.merge(A, &json!({"spec": {"size": 1}})).await;
    assert!(is_ready(), "the change is an event");
}

#[tokio::test]
async fn websocket_may_be_asked_to_last_for_ever() {
    let server = Server::start().await;
    let a = server.create("shop", gadget("a", 1)).await;
    let (near, far) = tokio::io::duplex(4096);
    let service = service_fn(|request: Request<Incoming>| async {
        let request = request.map(|body| body.map_err(io::Error::other).boxed_unsync());
        Ok::<_, Infallible>(server.handle(request).await)
    });
    let serving =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(near), service).with_upgrades();
    let asking = async {
        let (mut client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(far)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        let request = Request::get(format!("{GADGETS}?watch=true&timeoutSeconds={}", i64::MAX / 1_000_000_000))
            .header("host", "localhost")
            .header("origin", "https://localhost")
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .body(Empty::<bytes::Bytes>::new())
            .unwrap();
        let answer = client.send_request(request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
        let connection = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
        let mut socket = WebSocketStream::from_raw_socket(connection, Role::Client, None).await;
        let event = socket.next().await.unwrap().unwrap().into_text().unwrap();
        assert_eq!(serde_json::from_str::<Value>(&event).unwrap(), json!({"type": "ADDED", "object": a}));
    };
    let (served, ()) = tokio::join!(serving, asking);
    served.unwrap();
}
