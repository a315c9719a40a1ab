//! A fake API server of one kind for tests: it records requests, ends watches, and drops its history on demand.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::stream;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::Body;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};
use stoa_engine::{Owner, Resource, ResourceId, ResourceType};
use tokio::sync::mpsc;

use crate::KubernetesRuntime;
use crate::cluster::Cluster;
use crate::connections::{Connection, Connections};

/// A fake server of `Widget` in `example.com/v1`, namespaced. It can serve another version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server(Arc<Mutex<ServerState>>);

#[derive(Debug, Default)]
struct ServerState {
    version: u64,
    /// By namespace and name.
    objects: BTreeMap<(String, String), Value>,
    /// Watch events, with their versions.
    events: Vec<(u64, Value)>,
    /// The last version without history.
    forgotten: u64,
    watches: Vec<Open>,
    asked: Vec<String>,
    /// Requests without an answer.
    held: Option<String>,
    /// Delayed requests: a part of path and query, and the delay.
    slow: Option<(String, Duration)>,
    /// Its address, if not by its name.
    place: Option<String>,
    /// The namespace of objects that name none, if not `default`.
    namespace: Option<String>,
    is_away: bool,
    away_as: Option<String>,
    /// The version that it is served in, if not `v1`. Objects are the same in all.
    served: Option<String>,
    /// It is served in no version.
    is_retired: bool,
    /// Another server has it, and is away: what is answered for it.
    without_server: Option<u16>,
    /// A top-level field to prune from the next applied objects, and how often.
    pruned: Option<(String, usize)>,
    /// Verbs and paths, or parts of them, that are answered with this code and message.
    refused: Vec<(String, u16, String)>,
    /// A namespace that is being deleted.
    terminating: Option<String>,
    /// A namespace that is not there.
    lacking: Option<String>,
}

#[derive(Debug)]
struct Open {
    namespace: String,
    name: Option<String>,
    lines: mpsc::UnboundedSender<Bytes>,
}

impl Open {
    fn shows(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        metadata["namespace"] == self.namespace.as_str() && self.name.as_ref().is_none_or(|n| metadata["name"] == **n)
    }

    fn send(&self, event: &Value) {
        // Whoever is gone misses nothing.
        let _ = self.lines.send(format!("{event}\n").into());
    }
}

/// A widget as a Spec has it.
pub(crate) fn widget(namespace: &str, name: &str) -> Resource {
    let object = json!({"apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": name, "namespace": namespace}});
    Resource {
        id: ResourceId(format!("example.com/v1:Widget:{namespace}:{name}")),
        kind: ResourceType::Kubernetes,
        attributes: object.as_object().unwrap().clone(),
        depends_on: Vec::new(),
        extensions: Map::new(),
    }
}

impl Server {
    /// A runtime with this single cluster.
    pub(crate) fn runtime(&self) -> KubernetesRuntime {
        runtime_of(&[("main", self)])
    }

    fn cluster(&self, name: &str, connections: &Connections) -> Cluster {
        let (server, called) = (self.clone(), name.to_owned());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (server, called) = (server.clone(), called.clone());
            async move {
                while server.holds(&request) {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                if let Some(time) = server.takes(&request) {
                    tokio::time::sleep(time).await;
                }
                let (parts, body) = request.into_parts();
                let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
                server.answer(&called, &Request::from_parts(parts, body))
            }
        });
        let namespace = self.kept().namespace.clone().unwrap_or_else(|| "default".to_owned());
        let connection = Connection::new(format!("https://{name}.example.com"), Client::new(service, namespace));
        let place = self.kept().place.clone();
        let connection = connections.put(name.to_owned(), place.into_iter().fold(connection, Connection::at));
        Cluster::new(name.to_owned(), connection)
    }

    /// Sets the address, which identifies the server under all names.
    pub(crate) fn be_at(&self, place: &str) {
        self.kept().place = Some(place.to_owned());
    }

    /// Sets the default namespace from the next run on.
    pub(crate) fn default_to(&self, namespace: &str) {
        self.kept().namespace = Some(namespace.to_owned());
    }

    fn holds(&self, request: &Request<Body>) -> bool {
        self.kept().held.as_ref().is_some_and(|part| request.uri().to_string().contains(part))
    }

    fn takes(&self, request: &Request<Body>) -> Option<Duration> {
        let kept = self.kept();
        kept.slow.as_ref().filter(|(part, _)| request.uri().to_string().contains(part)).map(|(_, time)| *time)
    }

    /// Answers what has this in its path and query so late, from now on.
    pub(crate) fn slow_down(&self, part: &str, time: Duration) {
        self.kept().slow = Some((part.to_owned(), time));
    }

    /// Answers nothing that has this in its path and query, from now on; with `None`, everything again.
    pub(crate) fn hold(&self, part: Option<&str>) {
        self.kept().held = part.map(str::to_owned);
    }

    fn kept(&self) -> MutexGuard<'_, ServerState> {
        self.0.lock().unwrap()
    }

    /// Sets the status of an object, and sends it to watches.
    pub(crate) fn set(&self, namespace: &str, name: &str, status: Value) {
        let mut object =
            self.object(namespace, name).unwrap_or_else(|| Value::Object(widget(namespace, name).attributes));
        object["status"] = status;
        self.kept().put(namespace, name, object);
    }

    /// Makes an object with these in its metadata.
    pub(crate) fn make(&self, namespace: &str, name: &str, metadata: Value) {
        let mut object = Value::Object(widget(namespace, name).attributes);
        object["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        self.kept().put(namespace, name, object);
    }

    /// Sets the condition Ready of an object.
    pub(crate) fn set_ready(&self, namespace: &str, name: &str, ready: &str) {
        self.set(namespace, name, json!({"conditions": [{"type": "Ready", "status": ready, "message": ready}]}));
    }

    /// Starts to delete an object with a finalizer.
    pub(crate) fn begin_to_remove(&self, namespace: &str, name: &str) {
        let mut object = self.object(namespace, name).unwrap();
        object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        self.kept().put(namespace, name, object);
    }

    /// Removes an object.
    pub(crate) fn remove(&self, namespace: &str, name: &str) {
        self.kept().delete(namespace, name);
    }

    /// Something happens to another object.
    pub(crate) fn tell_of_versions(&self) {
        let mut kept = self.kept();
        let version = kept.version.to_string();
        kept.watches.retain(|open| !open.lines.is_closed());
        for open in &kept.watches {
            open.send(&json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}}));
        }
    }

    /// Starts an oversized event to all watches, without an end.
    pub(crate) fn send_oversized_answers(&self) {
        let endless = Bytes::from(vec![b'x'; crate::body::LARGEST]);
        for open in &self.kept().watches {
            let _ = open.lines.send(endless.clone());
        }
    }

    /// Ends the watches that are open.
    pub(crate) fn end_watches(&self) {
        self.kept().watches.clear();
    }

    /// Ends the watches that are open, and forgets what happened so far.
    pub(crate) fn forget(&self) {
        let mut kept = self.kept();
        kept.version += 1;
        kept.forgotten = kept.version;
        kept.events.clear();
        let gone = json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}});
        kept.watches.drain(..).for_each(|open| open.send(&gone));
    }

    /// Ends the watches that are open, and forgets what was before the last thing that happened.
    pub(crate) fn forget_before_now(&self) {
        let mut kept = self.kept();
        kept.forgotten = kept.version;
        kept.watches.clear();
    }

    /// Serves the kind in this version and no other, from now on.
    pub(crate) fn serve_in(&self, version: &str) {
        self.kept().served = Some(version.to_owned());
    }

    /// Serves the kind in no version any more.
    pub(crate) fn serve_nothing(&self) {
        self.kept().is_retired = true;
    }

    /// Has the kind from another server, which is away, and answers for it with this code from now on; with `None`, serves it
    /// again by itself.
    pub(crate) fn be_without_server(&self, answers: Option<u16>) {
        self.kept().without_server = answers;
    }

    /// Answers what has this in its verb, a space, its path and query with a code, from now on.
    pub(crate) fn refuse(&self, part: &str, code: u16) {
        self.refuse_with(part, code, "no");
    }

    /// The same with a message.
    pub(crate) fn refuse_with(&self, part: &str, code: u16, message: &str) {
        self.kept().refused.push((part.to_owned(), code, message.to_owned()));
    }

    /// Answers everything as it would by itself.
    pub(crate) fn refuse_nothing(&self) {
        self.kept().refused.clear();
    }

    /// Takes nothing new in a namespace, as one that is being deleted, from now on.
    pub(crate) fn terminate(&self, namespace: &str) {
        self.kept().terminating = Some(namespace.to_owned());
    }

    /// Has no such namespace, from now on.
    pub(crate) fn lack(&self, namespace: &str) {
        self.kept().lacking = Some(namespace.to_owned());
    }

    /// Prunes a top-level field from the next applied objects, this often.
    pub(crate) fn prune(&self, field: &str, times: usize) {
        self.kept().pruned = Some((field.to_owned(), times));
    }

    /// The number of open watches.
    pub(crate) fn open_watches(&self) -> usize {
        let mut kept = self.kept();
        kept.watches.retain(|open| !open.lines.is_closed());
        kept.watches.len()
    }

    /// The requests since the last call, without discovery: `GET`, `LIST` and `WATCH` with the path after the group and
    /// version.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.kept().asked)
    }

    fn answer(
        &self,
        called: &str,
        request: &Request<Bytes>,
    ) -> std::io::Result<Response<UnsyncBoxBody<Bytes, Infallible>>> {
        let mut kept = self.kept();
        if kept.is_away || kept.away_as.as_deref() == Some(called) {
            return Err(std::io::ErrorKind::ConnectionRefused.into());
        }
        let (code, body) = kept.answer(request);
        Ok(Response::builder().status(code).body(body).unwrap())
    }

    /// Makes the server unreachable, or reachable again.
    pub(crate) fn be_away(&self, is_away: bool) {
        self.kept().is_away = is_away;
    }

    /// Under which of its names it cannot be reached, from now on.
    pub(crate) fn be_away_as(&self, name: Option<&str>) {
        self.kept().away_as = name.map(str::to_owned);
    }

    /// An object as it is.
    pub(crate) fn object(&self, namespace: &str, name: &str) -> Option<Value> {
        self.kept().objects.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }
}

/// A runtime with these clusters.
pub(crate) fn runtime_of(servers: &[(&str, &Server)]) -> KubernetesRuntime {
    let connections = Connections::default();
    let clusters = servers.iter().map(|(name, server)| Arc::new(server.cluster(name, &connections))).collect();
    KubernetesRuntime::of(clusters, owner())
}

/// The deployment of all tests.
pub(crate) fn owner() -> Owner {
    Owner {
        organization: "shop".to_owned(),
        stack: "web".to_owned(),
        workspace: "dev".to_owned(),
        stack_uid: "uid".to_owned(),
    }
}

/// The name in a field selector of a query: one requirement with escaped terminators.
fn selected_name(selector: &str) -> Option<String> {
    let selector = percent_decode_str(selector).decode_utf8().ok()?;
    let mut value = selector.strip_prefix("metadata.name=")?.chars();
    let mut name = String::new();
    while let Some(c) = value.next() {
        name.push(match c {
            '\\' => value.next()?,
            ',' | '=' => return None,
            c => c,
        });
    }
    Some(name)
}

type Answer = (u16, UnsyncBoxBody<Bytes, Infallible>);

fn document(code: u16, document: &Value) -> Answer {
    (code, Full::from(document.to_string()).boxed_unsync())
}

fn failure(code: u16, details: Value) -> Answer {
    refusal(code, "no", details)
}

fn refusal(code: u16, message: &str, details: Value) -> Answer {
    document(
        code,
        &json!({"kind": "Status", "status": "Failure", "message": message, "code": code, "details": details}),
    )
}

impl ServerState {
    fn put(&mut self, namespace: &str, name: &str, mut object: Value) -> Value {
        static UIDS: AtomicUsize = AtomicUsize::new(0);
        self.version += 1;
        let key = (namespace.to_owned(), name.to_owned());
        let before = self.objects.get(&key);
        let kind = if before.is_some() { "MODIFIED" } else { "ADDED" };
        let new = || format!("uid-{}", UIDS.fetch_add(1, Ordering::Relaxed)).into();
        object["metadata"]["uid"] = before.map_or_else(new, |before| before["metadata"]["uid"].clone());
        if let Some(going) = before.and_then(|before| before["metadata"].get("deletionTimestamp")) {
            object["metadata"]["deletionTimestamp"] = going.clone();
        }
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        object["metadata"]["namespace"] = namespace.into();
        self.objects.insert(key, object.clone());
        self.happened(self.version, kind, &object);
        object
    }

    fn delete(&mut self, namespace: &str, name: &str) {
        let Some(mut object) = self.objects.remove(&(namespace.to_owned(), name.to_owned())) else { return };
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.happened(self.version, "DELETED", &object);
    }

    fn happened(&mut self, version: u64, kind: &str, object: &Value) {
        let event = json!({"type": kind, "object": object});
        self.watches.iter().filter(|open| open.shows(object)).for_each(|open| open.send(&event));
        self.events.push((version, event));
    }

    fn answer(&mut self, request: &Request<Bytes>) -> Answer {
        let text = request.uri().to_string();
        let path = request.uri().path();
        if path == "/readyz" {
            return document(200, &json!({}));
        }
        let namespace = path.strip_prefix("/api/v1/namespaces/").filter(|name| !name.contains('/'));
        if let (&Method::GET, Some(name)) = (request.method(), namespace) {
            return self.namespace(name);
        }
        if self.is_retired {
            return failure(404, json!({}));
        }
        let version = self.served.as_deref().unwrap_or("v1");
        if path == "/apis/example.com" {
            return document(200, &json!({"versions": [{"version": version}]}));
        }
        if self.without_server.is_some() && path.ends_with(&format!("/apiservices/{version}.example.com")) {
            return document(200, &json!({"spec": {"service": {"namespace": "shop", "name": "widgets"}}}));
        }
        let Some(rest) = path.strip_prefix(&format!("/apis/example.com/{version}")) else {
            return failure(404, json!({}));
        };
        if let Some(code) = self.without_server {
            return failure(code, json!({}));
        }
        if rest.is_empty() {
            return document(200, &json!({"resources": [{"name": "widgets", "kind": "Widget", "namespaced": true}]}));
        }
        let Some(rest) = rest.strip_prefix("/namespaces/") else { return failure(404, json!({})) };
        let mut parts = rest.split('/');
        let (namespace, name) = (parts.next().unwrap(), parts.nth(1));
        let query = request.uri().query().unwrap_or_default();
        let asks = |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
        let verb = match (request.method(), name, asks("watch")) {
            (&Method::PATCH, ..) if query.contains("dryRun") => "PREVIEW",
            (&Method::PATCH, ..) => "APPLY",
            (&Method::DELETE, ..) => "DELETE",
            (_, Some(_), _) => "GET",
            (_, None, Some(_)) => "WATCH",
            (_, None, None) => "LIST",
        };
        let only = asks("fieldSelector").and_then(selected_name);
        let told = only.as_ref().map(|name| format!(" only {name}")).unwrap_or_default();
        self.asked.push(format!("{verb} {rest}{told}"));
        let asked = format!("{verb} {text}");
        if let Some((_, code, message)) = self.refused.iter().find(|(part, ..)| asked.contains(part.as_str())) {
            return refusal(*code, message, json!({}));
        }
        match (verb, name) {
            ("PREVIEW" | "APPLY", Some(_)) if self.lacking.as_deref() == Some(namespace) => {
                failure(404, json!({"name": namespace, "kind": "namespaces"}))
            }
            ("PREVIEW" | "APPLY", Some(name))
                if self.terminating.as_deref() == Some(namespace)
                    && !self.objects.contains_key(&(namespace.to_owned(), name.to_owned())) =>
            {
                let cause = json!({"reason": "NamespaceTerminating", "message": "no", "field": "metadata.namespace"});
                failure(403, json!({ "causes": [cause] }))
            }
            ("PREVIEW" | "APPLY", Some(name)) => {
                let mut object: Value = serde_json::from_slice(request.body()).unwrap();
                if let Some((field, left)) = self.pruned.as_mut().filter(|(_, left)| *left > 0 && verb == "APPLY") {
                    *left -= 1;
                    object.as_object_mut().unwrap().remove(field);
                }
                let before = self.objects.get(&(namespace.to_owned(), name.to_owned()));
                object["status"] = before.map_or_else(|| json!({}), |before| before["status"].clone());
                let applied = if verb == "APPLY" { self.put(namespace, name, object) } else { object };
                document(200, &applied)
            }
            ("DELETE", Some(name)) => {
                self.delete(namespace, name);
                document(200, &json!({"kind": "Status", "status": "Success"}))
            }
            ("GET", Some(name)) => match self.objects.get(&(namespace.to_owned(), name.to_owned())) {
                Some(object) => document(200, object),
                None => failure(404, json!({"name": name, "kind": "widgets"})),
            },
            ("LIST", _) => {
                let items: Vec<&Value> = self
                    .objects
                    .iter()
                    .filter(|((place, _), _)| place == namespace)
                    .map(|(_, object)| object)
                    .collect();
                document(200, &json!({"metadata": {"resourceVersion": self.version.to_string()}, "items": items}))
            }
            _ => self.watch(namespace, only.as_deref(), asks("resourceVersion").unwrap_or_default()),
        }
    }

    /// A namespace, which exists and may be terminating.
    fn namespace(&mut self, name: &str) -> Answer {
        self.asked.push(format!("GET namespace {name}"));
        if let Some((_, code, message)) =
            self.refused.iter().find(|(part, ..)| *part == format!("GET namespace {name}"))
        {
            return refusal(*code, message, json!({}));
        }
        let is_terminating = self.terminating.as_deref() == Some(name);
        let time = is_terminating.then_some("2026-01-01T00:00:00Z");
        let metadata = json!({"name": name, "deletionTimestamp": time});
        document(200, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
    }

    fn watch(&mut self, namespace: &str, name: Option<&str>, since: &str) -> Answer {
        let since: u64 = since.parse().unwrap_or(self.version);
        if since < self.forgotten {
            return failure(410, json!({}));
        }
        let (lines, mut body) = mpsc::unbounded_channel();
        let open = Open { namespace: namespace.to_owned(), name: name.map(str::to_owned), lines };
        let shown = self.events.iter().filter(|(version, event)| *version > since && open.shows(&event["object"]));
        shown.for_each(|(_, event)| open.send(event));
        self.watches.push(open);
        let body =
            stream::poll_fn(move |context| body.poll_recv(context).map(|line| line.map(|line| Ok(Frame::data(line)))));
        (200, StreamBody::new(body).boxed_unsync())
    }
}
