//! One cluster: its client, and the calls made to it.
//!
//! Calls are built here rather than with `kube::Api`, because that hides the `Retry-After` header and decodes whole
//! lists before anything can be left out.
//!
//! Elsewhere: `discovery` has the served kinds, and `lists` reads collections.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Method, Request, header};
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use stoa_runtime::Turns;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::body;
use crate::connections::Connection;
use crate::discovery::Catalog;
use crate::error::{CallError, Failure};
use crate::pending_calls::{PendingCall, PendingCalls};
use crate::target::{Api, Target, collection_path, named_path};
use crate::transport;
use crate::verdict::Verdict;
use crate::watch::Watches;
use crate::webhooks::Webhooks;

/// The field manager of everything that is applied.
pub(crate) const FIELD_MANAGER: &str = "stoa";
/// kube-apiserver gives up on a request after 60 s.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(65);
/// The maximum number of tries when the server asks for a retry.
const ATTEMPTS: u32 = 6;
/// The longest time that `Retry-After` is waited for within one call.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// How long a server may be starting that does not say whether it is ready.
const STARTING: Duration = Duration::from_secs(20);
/// The interval of readiness requests.
const ASK: Duration = Duration::from_millis(500);
/// How long a server may not answer before calls to it are suspended.
const GIVE_UP: Duration = Duration::from_secs(60);
/// The interval of probes to a suspended server.
const PROBE: Duration = Duration::from_secs(5);
/// The time after which a pending answer is reported.
const SLOW: Duration = Duration::from_secs(4);
/// The time after which a pending deletion is reported.
const LINGERS: Duration = Duration::from_secs(10);

/// The media type of whole objects.
pub(crate) const JSON: &str = "application/json";

/// Options of a server-side apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ApplyOptions {
    pub(crate) dry_run: bool,
    /// Take fields from other managers.
    pub(crate) force: bool,
}

pub(crate) struct Cluster {
    pub(crate) name: String,
    /// The address, which identifies the server under all of its names.
    pub(crate) url: String,
    /// The call limits. Watches are exempt: they last long, and cost a cluster little.
    pub(crate) turns: Turns,
    pub(crate) watches: Watches,
    connection: Connection,
    pub(crate) catalog: Catalog,
    /// Since when the server has refused calls, and did not say that it is ready.
    unready: Mutex<Option<Instant>>,
    away: Mutex<Option<Away>>,
    /// Webhooks that fail.
    webhooks: Webhooks,
    /// Lets one workload be explained at a time.
    pub(crate) diagnoses: Semaphore,
    pending: PendingCalls,
    /// Pending deletions.
    pub(crate) going: PendingCalls,
}

/// A server that does not answer.
#[derive(Debug)]
struct Away {
    since: Instant,
    /// The time of the last probe.
    asked: Instant,
    /// Its result.
    message: String,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Cluster {
    pub(crate) fn new(name: String, connection: Connection) -> Self {
        let url = connection.url.clone();
        let catalog = Catalog::new(Arc::clone(&connection.discovery), Arc::clone(&connection.changed));
        let (unready, away) = (Mutex::default(), Mutex::default());
        let (turns, watches) = (Turns::unlimited(), Watches::default());
        let (webhooks, pending, going) = Default::default();
        let diagnoses = Semaphore::new(1);
        Self { name, url, turns, watches, connection, catalog, unready, away, webhooks, diagnoses, pending, going }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.connection.client
    }

    /// Tells its server from others.
    pub(crate) fn address(&self) -> &str {
        &self.connection.place
    }

    /// The default namespace.
    pub(crate) fn destination(&self) -> &str {
        &self.connection.destination
    }

    /// The namespace of a namespaced object that names none.
    pub(crate) fn default_namespace(&self) -> &str {
        self.client().default_namespace()
    }

    pub(crate) fn path(&self, target: &Target, api: &Api) -> String {
        named_path(&self.collection(target, api), &target.name)
    }

    /// The path of the collection that it is in.
    pub(crate) fn collection(&self, target: &Target, api: &Api) -> String {
        collection_path(&target.gvk, api, target.namespace_in(api, self.default_namespace()))
    }

    /// The object at a path, or `None`.
    pub(crate) async fn get(&self, path: &str) -> Result<Option<Map<String, Value>>, CallError> {
        match self.call(Method::GET, path, None).await {
            Ok(body) => decode(&body).map(Some),
            Err(CallError::Status(failure)) if failure.is_missing(path) => Ok(None),
            Err(CallError::Status(failure)) if failure.is_taken_for_list() => self.get_from_list(path).await,
            Err(err) => Err(err),
        }
    }

    /// The object at a path, read from its collection.
    async fn get_from_list(&self, path: &str) -> Result<Option<Map<String, Value>>, CallError> {
        #[derive(Deserialize)]
        struct List {
            items: Vec<Map<String, Value>>,
        }
        let (collection, name) = path.rsplit_once('/').unwrap_or_default();
        let query = format!("{collection}?fieldSelector=metadata.name%3D{name}");
        let list: List = decode(&self.call(Method::GET, &query, None).await?)?;
        Ok(list.items.into_iter().next())
    }

    /// The object that a write at a path left, by the answer to the write.
    async fn written(
        &self,
        path: &str,
        answer: Result<Map<String, Value>, CallError>,
    ) -> Result<Map<String, Value>, CallError> {
        match answer {
            Err(CallError::Status(failure)) if failure.is_taken_for_list() => {
                self.get_from_list(path).await?.ok_or(CallError::Status(failure))
            }
            answer => answer,
        }
    }

    /// Applies an object by server-side apply and returns it as it is, or would be, afterwards.
    pub(crate) async fn apply(
        &self,
        path: &str,
        object: &Map<String, Value>,
        options: ApplyOptions,
    ) -> Result<Map<String, Value>, CallError> {
        let dry_run = if options.dry_run { "&dryRun=All" } else { "" };
        let query =
            format!("{path}?fieldManager={FIELD_MANAGER}&force={}&fieldValidation=Strict{dry_run}", options.force);
        let body = body::of_apply(object);
        // A PATCH of this type can be repeated: the second finds what the first made.
        let answer = self.call(Method::PATCH, &query, Some(("application/apply-patch+yaml", body))).await;
        let answer = answer.and_then(|body| decode(&body));
        if options.dry_run { answer } else { self.written(path, answer).await }
    }

    /// Changes an object by a JSON patch, and returns it as it is afterwards.
    pub(crate) async fn patch(&self, path: &str, patch: &Value) -> Result<Map<String, Value>, CallError> {
        let query = format!("{path}?fieldManager={FIELD_MANAGER}");
        let body = serde_json::to_vec(patch).expect("JSON can be written");
        let answer = self.call(Method::PATCH, &query, Some(("application/json-patch+json", body))).await;
        self.written(path, answer.and_then(|body| decode(&body))).await
    }

    /// Asks whether an object could be created if its name were free. A server checks the name last, after everything
    /// else about the object (k8s.io/apiserver/pkg/registry/generic/registry/store.go).
    pub(crate) async fn check_creation(&self, collection: &str, object: &Map<String, Value>) -> Result<(), CallError> {
        let query = format!("{collection}?fieldManager={FIELD_MANAGER}&fieldValidation=Strict&dryRun=All");
        let body = serde_json::to_vec(object).expect("a JSON map can be written");
        match self.call(Method::POST, &query, Some(("application/json", body))).await {
            Ok(_) => Ok(()),
            Err(CallError::Status(failure)) if failure.is_there_already() => Ok(()),
            Err(err) => Err(err),
        }
    }

    /// Asks for the deletion of an object as it was `seen`; `Ok` also when it is not there any more.
    pub(crate) async fn delete(
        &self,
        path: &str,
        propagation: &str,
        seen: &Map<String, Value>,
    ) -> Result<(), CallError> {
        let metadata = &seen["metadata"];
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation,
            "preconditions": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
        });
        let body = options.to_string().into_bytes();
        match self.call(Method::DELETE, path, Some(("application/json", body))).await {
            Ok(_) => Ok(()),
            Err(CallError::Status(failure)) if failure.is_missing(path) || failure.is_taken_for_list() => Ok(()),
            Err(err) => Err(err),
        }
    }

    /// The error of the last call, if the server did not answer.
    pub(crate) fn away(&self) -> Option<String> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|away| away.message.clone())
    }

    /// What users of the cluster wait for, if it takes long: an answer, the server, or a deletion.
    pub(crate) fn awaited(&self) -> Option<String> {
        let name = &self.name;
        let request = self.pending.longer_than(SLOW).map(|request| format!("waiting for {request}"));
        match request.or_else(|| self.away()) {
            Some(answer) => Some(format!("cluster {name} does not answer: {answer}")),
            None => self.going.longer_than(LINGERS).map(|object| format!("cluster {name}: {object}")),
        }
    }

    /// Whether the server answers at all.
    pub(crate) async fn answers(&self) -> bool {
        !matches!(self.call_once(&Method::GET, "/readyz", JSON, None).await, Err(CallError::Unreachable(_)))
    }

    /// Asks whether the server answers, for the sake of what is waited for meanwhile.
    pub(crate) async fn ask_for(&self, awaited: String) {
        // The call records the outage or its end.
        let _ = self.call_awaited(awaited, &Method::GET, "/readyz", JSON, None).await;
    }

    /// Notes that something else than a call is waited for, until what this returns is dropped.
    pub(crate) fn awaits(&self, what: String) -> PendingCall {
        self.pending.begin(what)
    }

    /// Rejects calls to a suspended server, except for regular probes. Otherwise each call would take its whole
    /// timeout, and delay others.
    fn unless_suspended(&self) -> Result<(), CallError> {
        let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        match away.as_mut().filter(|away| away.since.elapsed() >= GIVE_UP) {
            Some(away) if away.asked.elapsed() < PROBE => Err(CallError::Suspended(away.message.clone())),
            Some(away) => {
                away.asked = Instant::now();
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn note(&self, answer: &Result<Vec<u8>, CallError>) {
        let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        *away = match answer {
            Err(CallError::Unreachable(message)) => {
                let now = Instant::now();
                let since = away.as_ref().map_or(now, |away| away.since);
                Some(Away { since, asked: now, message: message.clone() })
            }
            Ok(_) | Err(CallError::Status(_) | CallError::TooLarge | CallError::Suspended(_)) => None,
        };
    }

    /// One call. It respects `Retry-After` for a while, and gives a failing webhook time to recover.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, Vec<u8>)>,
    ) -> Result<Vec<u8>, CallError> {
        self.repeated(&method, path, JSON, body.as_ref()).await
    }

    /// The content at a path, in the media types of `accept`.
    pub(crate) async fn get_as(&self, accept: &str, path: &str) -> Result<Vec<u8>, CallError> {
        self.repeated(&Method::GET, path, accept, None).await
    }

    async fn repeated(
        &self,
        method: &Method,
        path: &str,
        accept: &str,
        body: Option<&(&str, Vec<u8>)>,
    ) -> Result<Vec<u8>, CallError> {
        let mut attempt = 1;
        let mut was_ready = false;
        let mut was_refused = false;
        // Webhooks that failed an earlier attempt of this call.
        let mut failed: Vec<String> = Vec::new();
        let began = Instant::now();
        self.unless_suspended()?;
        loop {
            let err = match self.call_once(method, path, accept, body).await {
                Ok(body) => {
                    if was_refused {
                        // It knows its roles now. When it starts once more, it has its time again.
                        *self.unready.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    }
                    failed.iter().for_each(|webhook| self.webhooks.recovered(webhook));
                    return Ok(body);
                }
                Err(err) => err,
            };
            if !was_ready && matches!(&err, CallError::Status(failure) if failure.code == 403) {
                was_refused = true;
                match self.readiness().await {
                    // It may have become so after the refusal: the next one counts.
                    Readiness::Ready => was_ready = true,
                    Readiness::Starting => tokio::time::sleep(ASK).await,
                    Readiness::Unknown => return Err(err),
                }
                continue;
            }
            let pause = match &err {
                CallError::Status(failure) if Verdict::of_answer(failure) == Verdict::RetryBriefly => {
                    let webhook = failure.webhook().unwrap_or_default();
                    failed.push(webhook.to_owned());
                    self.webhooks.pause(webhook, began)
                }
                CallError::Status(failure) if attempt < ATTEMPTS => pause(failure, attempt),
                CallError::Status(_) | CallError::Unreachable(_) | CallError::TooLarge | CallError::Suspended(_) => {
                    None
                }
            };
            let Some(pause) = pause else { return Err(err) };
            tracing::debug!(cluster = self.name, %method, path, ?pause, "repeating a call");
            tokio::time::sleep(pause).await;
            attempt += 1;
        }
    }

    /// Whether a rejection is valid. A kube-apiserver that has just started has not read any roles yet, and rejects
    /// every request, `/readyz` too.
    pub(crate) async fn readiness(&self) -> Readiness {
        let is_ready = self.call_once(&Method::GET, "/readyz", JSON, None).await.is_ok();
        let mut unready = self.unready.lock().unwrap_or_else(PoisonError::into_inner);
        if is_ready {
            *unready = None;
            return Readiness::Ready;
        }
        let since = *unready.get_or_insert_with(Instant::now);
        if since.elapsed() < STARTING { Readiness::Starting } else { Readiness::Unknown }
    }

    async fn call_once(
        &self,
        method: &Method,
        path: &str,
        accept: &str,
        body: Option<&(&str, Vec<u8>)>,
    ) -> Result<Vec<u8>, CallError> {
        let awaited = format!("{method} {}", path.split('?').next().unwrap_or_default());
        self.call_awaited(awaited, method, path, accept, body).await
    }

    /// One request; until it is answered, `awaited` is.
    async fn call_awaited(
        &self,
        awaited: String,
        method: &Method,
        path: &str,
        accept: &str,
        body: Option<&(&str, Vec<u8>)>,
    ) -> Result<Vec<u8>, CallError> {
        let mut request = Request::builder().method(method).uri(path).header(header::ACCEPT, accept);
        if let Some((content_type, _)) = body {
            request = request.header(header::CONTENT_TYPE, *content_type);
        }
        let body = Body::from(body.map_or_else(Vec::new, |(_, bytes)| bytes.clone()));
        let request = request.body(body).map_err(|err| CallError::Unreachable(err.to_string()))?;
        let exchange = async {
            let response = self.client().send(request).await.map_err(|err| transport::failed(&self.url, err))?;
            let code = response.status().as_u16();
            let retry_after =
                response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            let body = body::read(response.into_body()).await?;
            if (200..300).contains(&code) {
                Ok(body)
            } else {
                if matches!(code, 401 | 403) {
                    self.connection.refuse();
                }
                Err(CallError::Status(Failure::new(code, retry_after.map(Duration::from_secs), &body)))
            }
        };
        let _turn = self.turns.next().await;
        let _asked = self.pending.begin(awaited);
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, exchange)
            .await
            .unwrap_or_else(|_| Err(transport::late(&self.url, REQUEST_TIMEOUT)));
        self.note(&answer);
        answer
    }
}

/// The readiness of a server that rejects a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// It has everything that it decides by.
    Ready,
    /// It may not have it yet.
    Starting,
    /// Its readiness cannot be read.
    Unknown,
}

/// The pause before a call is repeated, if the server asks for it.
fn pause(failure: &Failure, attempt: u32) -> Option<Duration> {
    let asked = failure.retry_after.or_else(|| {
        failure
            .status
            .details
            .as_ref()
            .map(|d| u64::from(d.retry_after_seconds))
            .filter(|s| *s > 0)
            .map(Duration::from_secs)
    });
    let pause = match (failure.code, asked) {
        (429 | 500..=599, Some(asked)) => asked,
        (429, None) => Duration::from_millis(100 << attempt.min(6)),
        _ => return None,
    };
    (pause <= LONGEST_PAUSE).then_some(pause)
}

pub(crate) fn decode<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, CallError> {
    // The text is not quoted: it may hold a Secret.
    serde_json::from_slice(body).map_err(|err| {
        CallError::Unreachable(format!(
            "the answer does not decode: {:?} error at column {}",
            err.classify(),
            err.column()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a server answers that refuses everything, and is ready from some request on.
    async fn refused(ready_from: usize, allowed_from: usize) -> (u16, usize, Duration) {
        use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
        let (asked, called) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
        let (asked, calls) = (Arc::new(asked), Arc::clone(&called));
        let server = tower::service_fn(move |request: Request<Body>| {
            let is_allowed = match request.uri().path() {
                "/readyz" => asked.fetch_add(1, SeqCst) >= ready_from,
                _ => calls.fetch_add(1, SeqCst) >= allowed_from,
            };
            let response = http::Response::builder().status(if is_allowed { 200 } else { 403 });
            std::future::ready(Ok::<_, std::convert::Infallible>(response.body(Body::from(b"{}".to_vec())).unwrap()))
        });
        let cluster = Cluster::new("main".to_owned(), Connection::new(String::new(), Client::new(server, "default")));
        let start = Instant::now();
        let code = match cluster.get("/api/v1/namespaces/shop").await {
            Ok(_) => 200,
            Err(CallError::Status(failure)) => failure.code,
            Err(error) => panic!("{error:?}"),
        };
        (code, called.load(SeqCst), start.elapsed())
    }

    /// kube-apiserver 1.36 writes an object with `items` at its top and then fails to answer with it.
    #[tokio::test]
    async fn list_like_object_is_read_from_collection() {
        let object = r#"{"kind":"AllowList","metadata":{"name":"users"},"items":[{"cidr":"198.51.100.0/24"}]}"#;
        let server = tower::service_fn(move |request: Request<Body>| {
            let uri = request.uri().to_string();
            let (code, body) = if uri.ends_with("/allowlists?fieldSelector=metadata.name%3Dusers") {
                (200, format!(r#"{{"kind":"AllowListList","items":[{object}]}}"#))
            } else {
                let message = "*unstructured.Unstructured is not a list: no Items field in this object";
                (500, format!(r#"{{"kind":"Status","status":"Failure","code":500,"message":"{message}"}}"#))
            };
            let response = http::Response::builder().status(code).body(Body::from(body.into_bytes()));
            std::future::ready(Ok::<_, std::convert::Infallible>(response.unwrap()))
        });
        let cluster = Cluster::new("main".to_owned(), Connection::new(String::new(), Client::new(server, "default")));
        let object: Map<String, Value> = serde_json::from_str(object).unwrap();
        let path = "/apis/lists.example.com/v1/namespaces/lists/allowlists/users";
        assert_eq!(cluster.get(path).await.unwrap(), Some(object.clone()));
        let options = |dry_run| ApplyOptions { dry_run, force: false };
        assert_eq!(cluster.apply(path, &object, options(false)).await.unwrap(), object);
        let Err(CallError::Status(failure)) = cluster.apply(path, &object, options(true)).await else {
            panic!("nothing is there after a dry run")
        };
        assert!(failure.is_dry_run_unsupported());
    }

    #[tokio::test(start_paused = true)]
    async fn rejection_during_startup_is_retried() {
        let (code, calls, took) = refused(0, usize::MAX).await;
        assert_eq!((code, calls), (403, 2));
        assert!(took < ASK, "{took:?}");
        // One that has just started knows no roles, and learns them before or after it is asked.
        assert_eq!(refused(3, 3).await.0, 200);
        assert_eq!(refused(0, 1).await.0, 200);
        // Some servers never tell.
        let (code, _, took) = refused(usize::MAX, usize::MAX).await;
        assert_eq!(code, 403);
        assert!((STARTING..STARTING + 2 * ASK).contains(&took), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_webhook_call_has_full_timeout() {
        use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
        let calls = AtomicUsize::new(0);
        // The webhook fails the first try of each call.
        let server = tower::service_fn(move |_: Request<Body>| {
            let is_first = calls.fetch_add(1, SeqCst).is_multiple_of(2);
            let failure =
                br#"{"message": "Internal error occurred: failed calling webhook \"a.example.com\": refused"}"#;
            let (code, body) = if is_first { (500, failure.to_vec()) } else { (200, b"{}".to_vec()) };
            let response = http::Response::builder().status(code).body(Body::from(body)).unwrap();
            std::future::ready(Ok::<_, std::convert::Infallible>(response))
        });
        let cluster = Cluster::new("main".to_owned(), Connection::new(String::new(), Client::new(server, "default")));
        for second in [0, 20, 40, 60] {
            let answer = cluster.call(Method::POST, "/api/v1/namespaces/shop/configmaps", None).await;
            assert!(answer.is_ok(), "after {second} s: {answer:?}");
            tokio::time::advance(Duration::from_secs(20)).await;
        }
    }

    #[tokio::test]
    async fn requests_of_all_runs_are_limited() {
        use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
        use stoa_runtime::{CallLimits, Caller};
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (at_once, highest) = (Arc::clone(&now), Arc::clone(&most));
        let server = tower::service_fn(move |_: Request<Body>| {
            let (now, most) = (Arc::clone(&at_once), Arc::clone(&highest));
            async move {
                most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                tokio::time::sleep(Duration::from_millis(2)).await;
                now.fetch_sub(1, SeqCst);
                Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(b"{}".to_vec())))
            }
        });
        let client = Client::new(server, "default");
        let limits = CallLimits::new(100, 4);
        let clusters: Vec<Cluster> = (0..8)
            .map(|run| {
                // What it is called in a workspace makes it no other cluster.
                let mut cluster =
                    Cluster::new(format!("name-{run}"), Connection::new("https://10.0.0.1".to_owned(), client.clone()));
                let caller = Caller { organization: format!("organization-{run}").into(), run: "run".into() };
                cluster.turns = limits.turns(&cluster.url, caller);
                cluster
            })
            .collect();
        let gets = clusters.iter().flat_map(|cluster| (0..10).map(|_| cluster.get("/api/v1/namespaces/shop")));
        for got in futures_util::future::join_all(gets).await {
            assert!(got.unwrap().is_some());
        }
        assert_eq!((most.load(SeqCst), now.load(SeqCst)), (4, 0));
    }

    #[test]
    fn retry_after_header_is_respected() {
        let failure = |code, seconds: Option<u64>| Failure::new(code, seconds.map(Duration::from_secs), b"");
        assert_eq!(pause(&failure(429, Some(2)), 1), Some(Duration::from_secs(2)));
        assert_eq!(pause(&failure(503, Some(1)), 1), Some(Duration::from_secs(1)));
        assert_eq!(pause(&failure(429, None), 1), Some(Duration::from_millis(200)));
        assert_eq!(pause(&failure(503, None), 1), None, "nobody knows when");
        assert_eq!(pause(&failure(429, Some(3600)), 1), None, "longer than a call may take");
        assert_eq!(pause(&failure(422, Some(1)), 1), None, "no retry helps");
    }
}
