//! Watches of objects: one watch for all awaited objects of a kind in one namespace.
//!
//! Start at [`Followed`]. The first follower of an object in a collection starts the watch, others join it, and it ends
//! with the last of them. A watch that ends is resumed at its version. When the server has no history left, the
//! collection is listed once. Credentials that may not watch a collection watch each object by its name.
//!
//! Elsewhere: `health` and `write` interpret the states of an object.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use http::Request;
use kube::client::Body;
use kube::core::Status;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use stoa_backoff::Policy;
use tokio::sync::watch::{Receiver, Sender};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::body;
use crate::cluster::{Cluster, Readiness};
use crate::error::{CallError, Failure};
use crate::kstatus;
use crate::target::{Api, Gvk, Target, collection_path};
use crate::transport;
use crate::verdict::Verdict;

const WATCH: Duration = Duration::from_secs(290);
/// How long a silent connection may outlast its watch.
const GRACE: Duration = Duration::from_secs(15);
/// How long a watch may be silent before its server is probed.
const QUIET: Duration = Duration::from_secs(10);
/// The shortest and longest pause before a watch is begun again that did not last.
const AGAIN: Policy = Policy::new(Duration::from_millis(500), Duration::from_secs(10));
/// A watch that lasted this long is begun again at once.
const LASTED: Duration = Duration::from_secs(5);
/// How long a server may be unreachable before its waiters are told.
const PATIENCE: Duration = Duration::from_secs(30);

/// An object as it is; `None` when it is not there.
pub(crate) type State = Option<Arc<Map<String, Value>>>;

pub(crate) struct Followed<'a> {
    cluster: &'a Arc<Cluster>,
    scope: Scope,
    path: String,
    name: String,
    /// The first known state, until it is reported.
    first: Option<State>,
    /// The version of the last reported state.
    version: Option<String>,
    place: Option<Subscription>,
    /// It may have changed unobserved since the last read.
    is_unsure: bool,
}

impl<'a> Followed<'a> {
    /// Follows an object from `first` on.
    pub(crate) fn new(
        cluster: &'a Arc<Cluster>,
        target: &Target,
        api: &Api,
        first: Option<Map<String, Value>>,
    ) -> Self {
        let collection = collection_path(&target.gvk, api, target.namespace_in(api, cluster.default_namespace()));
        // An object that is deleted when finished needs a watch from its own version on: it may be deleted before
        // another watch is joined.
        let ends = first.as_ref().is_some_and(|object| kstatus::is_deleted_when_finished(&target.gvk, object));
        let alone = (ends || cluster.watches.is_refused(&collection)).then(|| target.name.clone());
        Self {
            cluster,
            path: cluster.path(target, api),
            scope: Scope { gvk: target.gvk.clone(), collection, alone },
            name: target.name.clone(),
            version: first.as_ref().and_then(version_of).map(str::to_owned),
            first: Some(first.map(Arc::new)),
            place: None,
            is_unsure: false,
        }
    }

    /// The state that it was followed from, and then each that it comes to have; of several in between perhaps only the
    /// last. A Job that Kubernetes deletes because it has finished ends as it was then. May be called again after its future was dropped.
    pub(crate) async fn next(&mut self) -> Result<State, CallError> {
        if let Some(first) = self.first.take() {
            return Ok(first);
        }
        loop {
            if self.is_unsure {
                return self.read().await;
            }
            let Some(place) = &mut self.place else {
                let (place, is_late) = join(self.cluster, &self.scope, &self.name, self.version.as_deref());
                self.place = Some(place);
                self.is_unsure = is_late;
                continue;
            };
            // A watch that ended silently is joined again.
            let seen = match place.seen.changed().await {
                Ok(()) => place.seen.borrow_and_update().clone(),
                Err(_) => Observation::Unsure,
            };
            match seen {
                Observation::Nothing => {}
                Observation::Is(version, state) => {
                    if is_newer(version.as_deref(), self.version.as_deref()) {
                        self.version = version;
                        return Ok(state);
                    }
                }
                Observation::Unsure => self.is_unsure = true,
                Observation::Refused => {
                    self.cluster.watches.refuse(&self.scope.collection);
                    self.scope.alone = Some(self.name.clone());
                    self.place = None;
                }
                Observation::Failed(error) => return Err(error),
            }
        }
    }

    /// Asks for the object itself, as what the watch has shown before may be missing.
    async fn read(&mut self) -> Result<State, CallError> {
        if self.place.as_ref().is_some_and(|place| place.seen.has_changed().is_err()) {
            self.place = None;
        }
        let found = self.cluster.get(&self.path).await?;
        self.is_unsure = false;
        if let Some(version) = found.as_ref().and_then(version_of) {
            self.version = Some(version.to_owned());
        }
        Ok(found.map(Arc::new))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Scope {
    gvk: Gvk,
    /// The path of the collection.
    collection: String,
    /// The only object of it that is watched.
    alone: Option<String>,
}

impl Scope {
    /// The description of the pending watch.
    fn awaited(&self) -> String {
        format!("WATCH {}", self.collection)
    }
}

#[derive(Clone, Debug)]
enum Observation {
    /// Nothing yet.
    Nothing,
    /// It is so since a version.
    Is(Option<String>, State),
    /// It may have changed unseen.
    Unsure,
    /// The collection may not be watched.
    Refused,
    /// Nothing more will be seen.
    Failed(CallError),
}

#[derive(Debug, Default)]
pub(crate) struct Watches(Mutex<WatchTable>);

#[derive(Debug, Default)]
struct WatchTable {
    open: HashMap<Scope, Weak<Watch>>,
    /// Collections that may not be watched.
    refused: HashSet<String>,
}

impl Watches {
    fn is_refused(&self, collection: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).refused.contains(collection)
    }

    fn refuse(&self, collection: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).refused.insert(collection.to_owned());
    }
}

/// A watch, as long as it has subscriptions.
#[derive(Debug)]
struct Watch {
    waiting: Arc<Waiters>,
    task: AbortHandle,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Subscription {
    seen: Receiver<Observation>,
    _watch: Arc<Watch>,
}

/// Joins the watch of a scope, or begins it at the version that is known of the object. Whether the watch is past that.
fn join(cluster: &Arc<Cluster>, scope: &Scope, name: &str, version: Option<&str>) -> (Subscription, bool) {
    let mut known = cluster.watches.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(watch) = known.open.get(scope).and_then(Weak::upgrade)
        && let Some((seen, is_late)) = watch.waiting.add(name, version)
    {
        return (Subscription { seen, _watch: watch }, is_late);
    }
    let waiting = Arc::new(Waiters::default());
    let since = version.map(str::to_owned);
    let seen = waiting.begin(name, since.clone());
    let task = tokio::spawn(run(Arc::clone(cluster), scope.clone(), Arc::clone(&waiting), since)).abort_handle();
    let watch = Arc::new(Watch { waiting, task });
    known.open.retain(|_, watch| watch.strong_count() > 0);
    known.open.insert(scope.clone(), Arc::downgrade(&watch));
    (Subscription { seen, _watch: watch }, false)
}

#[derive(Debug, Default)]
struct Waiters(Mutex<Subscribers>);

#[derive(Debug, Default)]
struct Subscribers {
    names: HashMap<String, Sender<Observation>>,
    /// All events up to this version are reported.
    version: Option<String>,
    /// Subscribers since the start of a list, which may be older than their known states.
    joined: Option<HashSet<String>>,
    has_ended: bool,
}

impl Subscribers {
    fn wants(&self, name: &str) -> bool {
        self.names.get(name).is_some_and(|sender| !sender.is_closed())
    }

    fn report(&mut self, name: &str, seen: Observation) {
        if let Some(sender) = self.names.get(name) {
            sender.send_replace(seen);
        }
    }
}

impl Waiters {
    fn subscribers(&self) -> std::sync::MutexGuard<'_, Subscribers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first subscription, of a watch that starts at a version.
    fn begin(&self, name: &str, version: Option<String>) -> Receiver<Observation> {
        let mut subscribers = self.subscribers();
        let (sender, seen) = tokio::sync::watch::channel(Observation::Nothing);
        subscribers.names.insert(name.to_owned(), sender);
        subscribers.version = version;
        seen
    }

    /// Another subscription, and whether the watch may be past its known version. `None` when the watch has ended.
    fn add(&self, name: &str, version: Option<&str>) -> Option<(Receiver<Observation>, bool)> {
        let mut subscribers = self.subscribers();
        if subscribers.has_ended {
            return None;
        }
        let is_late = is_newer(subscribers.version.as_deref(), version);
        if let Some(joined) = &mut subscribers.joined {
            joined.insert(name.to_owned());
        }
        let sender = subscribers.names.entry(name.to_owned()).or_insert_with(|| Sender::new(Observation::Nothing));
        Some((sender.subscribe(), is_late))
    }

    fn wants(&self, name: &str) -> bool {
        self.subscribers().wants(name)
    }

    /// Tells of an object, and that the watch has come so far.
    fn report(&self, name: &str, version: &str, state: State) {
        let mut subscribers = self.subscribers();
        subscribers.report(name, Observation::Is(Some(version.to_owned()), state));
        subscribers.version = Some(version.to_owned());
    }

    /// The watch has come so far.
    fn reach(&self, version: &str) {
        self.subscribers().version = Some(version.to_owned());
    }

    /// Skips a change of an object without a subscriber; returns whether it has none. Under one lock: a later
    /// subscriber is late.
    fn pass(&self, name: &str, version: &str) -> bool {
        let mut subscribers = self.subscribers();
        let is_passed = !subscribers.wants(name);
        if is_passed {
            subscribers.version = Some(version.to_owned());
        }
        is_passed
    }

    /// A list is begun.
    fn begin_list(&self) {
        self.subscribers().joined = Some(HashSet::new());
    }

    /// Reports the result of a list at its version.
    fn listed(&self, version: &str, mut found: HashMap<String, Map<String, Value>>) {
        let mut subscribers = self.subscribers();
        let joined = subscribers.joined.take().unwrap_or_default();
        subscribers.names.retain(|_, sender| !sender.is_closed());
        for (name, sender) in &subscribers.names {
            sender.send_replace(match found.remove(name) {
                _ if joined.contains(name) => Observation::Unsure,
                Some(object) => Observation::Is(version_of(&object).map(str::to_owned), Some(Arc::new(object))),
                None => Observation::Is(Some(version.to_owned()), None),
            });
        }
        subscribers.version = Some(version.to_owned());
    }

    fn end(&self, seen: &Observation) {
        let mut subscribers = self.subscribers();
        subscribers.has_ended = true;
        for sender in subscribers.names.values() {
            sender.send_replace(seen.clone());
        }
    }
}

/// How a watch, or the list before it, ended.
enum Ended {
    /// All events up to this version are reported.
    At(String),
    /// The server has no history left to go on from.
    Behind,
    /// The server did not answer, or asked for a retry.
    Away(CallError),
    /// It will not say more.
    Failed(CallError),
}

impl From<CallError> for Ended {
    fn from(error: CallError) -> Self {
        match &error {
            CallError::Status(failure) if failure.code == 410 => Self::Behind,
            _ if Verdict::of(&error) == Verdict::Refuse => Self::Failed(error),
            _ => Self::Away(error),
        }
    }
}

/// Watches until the last subscription is dropped, which aborts this task.
async fn run(cluster: Arc<Cluster>, scope: Scope, waiting: Arc<Waiters>, mut since: Option<String>) {
    let mut failures = 0_u32;
    let mut away: Option<Instant> = None;
    let mut was_ready = false;
    loop {
        let began = Instant::now();
        let ended = match &since {
            Some(version) => watch(&cluster, &scope, &waiting, version.clone()).await,
            None => list(&cluster, &scope, &waiting).await,
        };
        let has_listed = since.is_none();
        let error = match ended {
            Ended::At(version) => {
                since = Some(version);
                away = None;
                if has_listed {
                    continue;
                }
                None
            }
            Ended::Behind => {
                since = None;
                away = None;
                None
            }
            Ended::Away(error) => Some(error),
            Ended::Failed(error) if error.is_refusal() => match cluster.readiness().await {
                // It knows no roles yet, or did not when it refused.
                Readiness::Starting => Some(error),
                Readiness::Ready if !was_ready => {
                    was_ready = true;
                    continue;
                }
                Readiness::Ready | Readiness::Unknown if scope.alone.is_none() => {
                    return waiting.end(&Observation::Refused);
                }
                Readiness::Ready | Readiness::Unknown => return waiting.end(&Observation::Failed(error)),
            },
            Ended::Failed(error) => return waiting.end(&Observation::Failed(error)),
        };
        if let Some(error) = error
            && away.get_or_insert(began).elapsed() >= PATIENCE
        {
            return waiting.end(&Observation::Failed(error));
        }
        if began.elapsed() >= LASTED {
            failures = 0;
            continue;
        }
        failures = failures.saturating_add(1);
        tokio::time::sleep(AGAIN.after(failures)).await;
    }
}

/// Looks how everything is that is waited for.
async fn list(cluster: &Cluster, scope: &Scope, waiting: &Waiters) -> Ended {
    waiting.begin_list();
    let listed = match &scope.alone {
        None => cluster.list(&scope.gvk, &scope.collection, &|name| waiting.wants(name)).await,
        Some(name) => cluster.list_one(&scope.collection, name).await,
    };
    match listed {
        Ok(listed) => {
            waiting.listed(&listed.version, listed.objects);
            Ended::At(listed.version)
        }
        Err(error) => Ended::from(error),
    }
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Peek {
    metadata: PeekMeta,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PeekMeta {
    name: String,
    resource_version: String,
}

/// Starts a watch.
async fn begin(cluster: &Cluster, path: &str) -> Result<Body, CallError> {
    let request = Request::get(path).body(Body::empty());
    let request = request.map_err(|error| CallError::Unreachable(error.to_string()))?;
    let response = cluster.client().send(request).await.map_err(|error| transport::failed(&cluster.url, error))?;
    let status = response.status();
    if status.is_success() {
        return Ok(response.into_body());
    }
    let said = body::read(response.into_body()).await?;
    Err(CallError::Status(Failure::new(status.as_u16(), None, &said)))
}

/// One watch from a version on. Only objects with subscribers are decoded.
async fn watch(cluster: &Cluster, scope: &Scope, waiting: &Waiters, mut version: String) -> Ended {
    let only = scope.alone.as_deref().map(selected).unwrap_or_default();
    let path = format!(
        "{}?watch=true&allowWatchBookmarks=true{only}&resourceVersion={version}&timeoutSeconds={}",
        scope.collection,
        WATCH.as_secs()
    );
    let asked = cluster.awaits(scope.awaited());
    let mut lines = match tokio::time::timeout(GRACE, begin(cluster, &path)).await {
        Ok(Ok(body)) => body::lines(body),
        Ok(Err(error)) => return Ended::from(error),
        Err(_) => return Ended::Away(transport::late(&cluster.url, GRACE)),
    };
    drop(asked);
    while let Ok(next) = tokio::select! {
        next = tokio::time::timeout(WATCH + GRACE, body::next_line(&mut lines)) => next,
        never = probe_while_quiet(cluster, scope) => match never {},
    } {
        let line = match next {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(error) => return Ended::from(error),
        };
        // An unreadable event leads to a new read.
        let Ok(event) = serde_json::from_slice::<Event<'_>>(&line) else { break };
        if event.kind == "ERROR" {
            let status: Result<Status, _> = serde_json::from_str(event.object.get());
            if status.is_ok_and(|status| status.code == 410) {
                return Ended::Behind;
            }
            break;
        }
        let Ok(Peek { metadata }) = serde_json::from_str(event.object.get()) else { break };
        match event.kind {
            "ADDED" | "MODIFIED" => {
                if !waiting.pass(&metadata.name, &metadata.resource_version) {
                    let Ok(object) = serde_json::from_str(event.object.get()) else { break };
                    waiting.report(&metadata.name, &metadata.resource_version, Some(Arc::new(object)));
                }
            }
            "DELETED" => {
                let last = || serde_json::from_str::<Map<String, Value>>(event.object.get()).ok();
                let is_end = |job: &Map<String, Value>| {
                    kstatus::is_deleted_when_finished(&scope.gvk, job) && kstatus::has_ended(job)
                };
                let last = scope.gvk.is("batch", "Job").then(last).flatten().filter(is_end);
                waiting.report(&metadata.name, &metadata.resource_version, last.map(Arc::new));
            }
            _ => waiting.reach(&metadata.resource_version),
        }
        version = metadata.resource_version;
    }
    Ended::At(version)
}

/// Selects the object of a name in a query. Names of RBAC objects may contain separators of selectors.
///
/// Follows `EscapeValue` of k8s.io/apimachinery/pkg/fields.
fn selected(name: &str) -> String {
    let escaped = name.replace('\\', r"\\").replace(',', r"\,").replace('=', r"\=");
    format!("&fieldSelector=metadata.name%3D{}", utf8_percent_encode(&escaped, NON_ALPHANUMERIC))
}

/// Probes the server of a silent watch: the connection itself does not show an outage, which waiters should learn of.
async fn probe_while_quiet(cluster: &Cluster, scope: &Scope) -> Infallible {
    loop {
        tokio::time::sleep(QUIET).await;
        cluster.ask_for(scope.awaited()).await;
    }
}

pub(crate) fn version_of(object: &Map<String, Value>) -> Option<&str> {
    object.get("metadata")?.get("resourceVersion")?.as_str()
}

/// Whether one version is after another. They are numbers; with any other text, nothing is older.
///
/// Follows "Resource versions" in the Kubernetes API concepts.
fn is_newer(version: Option<&str>, than: Option<&str>) -> bool {
    let number = |version: Option<&str>| version.and_then(|version| version.parse::<u128>().ok());
    match (number(version), number(than)) {
        (Some(version), Some(than)) => version > than,
        _ => version != than || version.is_none(),
    }
}

#[cfg(test)]
mod tests;
