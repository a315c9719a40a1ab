//! What tests have kubectl do most often, without starting it, which takes a tenth of a second of a processor: plain reads,
//! watches, and creations, with what kubectl would send.
//!
//! Whatever is not plain, or is refused, is left to kubectl, so that tests are told what people are told.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{AsyncBufReadExt as _, FutureExt as _, TryStreamExt as _};
use http::Request;
use kube::Client;
use kube::client::Body;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

/// How long an answer may take before kubectl is left to ask.
const PATIENCE: Duration = Duration::from_secs(60);
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Where the connections are, of all tests of a program: they may be called from any thread.
static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap());

/// Waits for something on the shared runtime, whatever runtime the caller is in.
fn wait<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    RUNTIME.spawn(async move {
        // Nobody listens any more when the program ends.
        let _ = done.send(work.await);
    });
    is_done.recv().expect("it does not panic")
}

/// A server as the user of a kubeconfig, or somebody that this user acts as.
#[derive(Clone)]
pub(crate) struct Direct {
    client: Client,
    kinds: Arc<Mutex<Arc<Kinds>>>,
    user: Option<String>,
}

/// What came of a creation.
pub(crate) enum Created {
    /// It is there, under this name.
    Named(String),
    /// It is there, or is not.
    Unknown(String),
    /// It is not there. kubectl says why, or succeeds.
    LeftToKubectl,
}

/// Where the objects of a kind are.
#[derive(Clone, Debug)]
struct Kind {
    /// As in `v1` or `config.stoa.dev/v1alpha1`.
    version: String,
    kind: String,
    plural: String,
    is_namespaced: bool,
}

/// The kinds of a server by what people call them, and by version and kind.
#[derive(Debug, Default)]
struct Kinds {
    names: HashMap<String, Kind>,
    kinds: HashMap<(String, String), Kind>,
}

impl Kind {
    fn path(&self, namespace: Option<&str>, name: Option<&str>) -> Option<String> {
        let root = if self.version.contains('/') { "apis" } else { "api" };
        let mut path = format!("/{root}/{}", self.version);
        if let (true, Some(namespace)) = (self.is_namespaced, namespace) {
            path += &format!("/namespaces/{namespace}");
        } else if self.is_namespaced && name.is_some() {
            // kubectl knows which namespace is meant.
            return None;
        }
        path += &format!("/{}", self.plural);
        Some(name.map_or(path.clone(), |name| format!("{path}/{name}")))
    }
}

impl Kinds {
    fn add(&mut self, discovered: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        for group in list(&discovered["items"]) {
            let name = text(&group["metadata"]["name"]);
            for version in list(&group["versions"]) {
                let bare = text(&version["version"]);
                let qualified = if name.is_empty() { bare.clone() } else { format!("{name}/{bare}") };
                for resource in list(&version["resources"]) {
                    let kind = Kind {
                        version: qualified.clone(),
                        kind: text(&resource["responseKind"]["kind"]),
                        plural: text(&resource["resource"]),
                        is_namespaced: resource["scope"] == "Namespaced",
                    };
                    let mut names = vec![kind.plural.clone(), text(&resource["singularResource"])];
                    names.push(kind.kind.to_lowercase());
                    names.extend(list(&resource["shortNames"]).iter().map(text));
                    for called in names.iter().filter(|called| !called.is_empty()) {
                        // The first group that has the name is meant, and its first version.
                        for called in [called.clone(), format!("{called}.{name}")] {
                            self.names.entry(called).or_insert_with(|| kind.clone());
                        }
                    }
                    self.kinds.insert((qualified.clone(), kind.kind.clone()), kind);
                }
            }
        }
    }
}

/// The arguments of a plain `kubectl get`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Get<'a> {
    kind: &'a str,
    name: Option<&'a str>,
    namespace: Option<&'a str>,
    everywhere: bool,
    query: Vec<(&'static str, &'a str)>,
}

impl<'a> Get<'a> {
    /// Nothing when they are not plain.
    fn parse(args: &[&'a str]) -> Option<Self> {
        let mut get = Self::default();
        let mut words = Vec::new();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let (flag, value) = match arg.split_once('=') {
                Some((flag, value)) if flag.starts_with("--") => (flag, Some(value)),
                _ => (*arg, None),
            };
            match (flag, value) {
                ("--all-namespaces", None) => get.everywhere = true,
                ("--namespace" | "--selector" | "--field-selector", _) => {
                    let value = value.or_else(|| args.next().copied())?;
                    match flag {
                        "--namespace" => get.namespace = Some(value),
                        "--selector" => get.query.push(("labelSelector", value)),
                        _ => get.query.push(("fieldSelector", value)),
                    }
                }
                _ if arg.starts_with('-') || arg.contains(',') => return None,
                _ => words.push(*arg),
            }
        }
        (get.kind, get.name) = match words[..] {
            [word] => word.split_once('/').map_or((word, None), |(kind, name)| (kind, Some(name))),
            [kind, name] if !kind.contains('/') && !name.contains('/') => (kind, Some(name)),
            _ => return None,
        };
        Some(get)
    }
}

/// The objects of a text; nothing when it cannot be read.
fn documents(manifest: &str) -> Option<Vec<Value>> {
    let mut documents: Vec<Value> = serde_saphyr::from_multiple(manifest).ok()?;
    documents.retain(|document| !document.is_null());
    (!documents.is_empty()).then_some(documents)
}

fn text<'v>(object: &'v Value, path: &str) -> Option<&'v str> {
    object.pointer(path).and_then(Value::as_str)
}

/// As kubectl shows an object.
fn shown(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

/// Whether an object has all that another says.
fn has(object: &Value, said: &Value) -> bool {
    match (object, said) {
        (Value::Object(object), Value::Object(said)) => {
            said.iter().all(|(key, said)| object.get(key).is_some_and(|there| has(there, said)))
        }
        _ => object == said,
    }
}

impl Direct {
    /// With a kubeconfig, and as `user` where one is given. Nothing when the kubeconfig is not for a client of ours.
    pub(crate) fn new(kubeconfig: &PathBuf, user: Option<String>) -> Option<Self> {
        /// The last one of each kubeconfig, with what that said.
        static ALL: Mutex<Vec<(PathBuf, String, Direct)>> = Mutex::new(Vec::new());
        let said = fs::read_to_string(kubeconfig).ok()?;
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((.., direct)) = all.iter().find(|(path, known, _)| path == kubeconfig && *known == said) {
            return Some(Self { user, ..direct.clone() });
        }
        let parsed = Kubeconfig::read_from(kubeconfig).ok()?;
        // Reading the files waits for nothing.
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(parsed, &options).now_or_never()?.ok()?;
        config.connect_timeout = Some(Duration::from_secs(5));
        config.default_retry = false;
        let _entered = RUNTIME.enter();
        let direct = Self { client: Client::try_from(config).ok()?, kinds: Arc::default(), user: None };
        all.retain(|(path, ..)| path != kubeconfig);
        all.push((kubeconfig.clone(), said, direct.clone()));
        Some(Self { user, ..direct })
    }

    fn request(&self, method: &str, path: &str, accept: &str, body: Option<&Value>) -> Option<Request<Vec<u8>>> {
        let mut request = Request::builder().method(method).uri(path).header("Accept", accept);
        if let Some(user) = &self.user {
            request = request.header("Impersonate-User", user);
        }
        if body.is_some() {
            request = request.header("Content-Type", "application/json");
        }
        request.body(body.map(|body| body.to_string().into_bytes()).unwrap_or_default()).ok()
    }

    /// The code of the answer, and what it says; an error when none came.
    fn ask(&self, request: Request<Vec<u8>>) -> Result<(u16, Vec<u8>), String> {
        let client = self.client.clone();
        wait(async move {
            let answered = tokio::time::timeout(PATIENCE, async {
                let answer = client.send(request.map(Body::from)).await.map_err(|error| error.to_string())?;
                let code = answer.status().as_u16();
                let body = answer.into_body().collect_bytes().await.map_err(|error| error.to_string())?;
                Ok((code, body.to_vec()))
            });
            answered.await.unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}")))
        })
    }

    /// What a path has; nothing when that is not read well.
    pub(crate) fn raw(&self, path: &str) -> Option<String> {
        match self.ask(self.request("GET", path, "application/json, */*", None)?) {
            Ok((200, body)) => String::from_utf8(body).ok(),
            _ => None,
        }
    }

    fn read(&self, path: &str, accept: &str) -> Option<Value> {
        match self.ask(self.request("GET", path, accept, None)?) {
            Ok((200, body)) => serde_json::from_slice(&body).ok(),
            _ => None,
        }
    }

    /// Finds a kind among those that are known, or asks for them anew.
    fn find(&self, find: impl Fn(&Kinds) -> Option<&Kind>) -> Option<Kind> {
        let known = self.kinds.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(kind) = find(&known) {
            return Some(kind.clone());
        }
        let mut kinds = Kinds::default();
        for path in ["/api", "/apis"] {
            // A server behind another has no core group.
            if let Some(discovered) = self.read(path, DISCOVERY) {
                kinds.add(&discovered);
            }
        }
        let found = find(&kinds).cloned();
        *self.kinds.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(kinds);
        found
    }

    fn named(&self, name: &str) -> Option<Kind> {
        self.find(|kinds| kinds.names.get(name))
    }

    fn kind_of(&self, object: &Value) -> Option<Kind> {
        let key = (text(object, "/apiVersion")?.to_owned(), text(object, "/kind")?.to_owned());
        self.find(|kinds| kinds.kinds.get(&key))
    }

    /// What `kubectl get --output=json` prints with these arguments; nothing when kubectl has to be asked.
    pub(crate) fn get(&self, args: &[&str]) -> Option<Value> {
        let get = Get::parse(args)?;
        let kind = self.named(get.kind)?;
        if let Some(name) = get.name {
            return self.read(&kind.path(get.namespace, Some(name))?, "application/json").map(shown);
        }
        if kind.is_namespaced && get.namespace.is_none() != get.everywhere {
            return None;
        }
        let query: Vec<String> = get
            .query
            .iter()
            .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)))
            .collect();
        let path = format!("{}?{}", kind.path(get.namespace, None)?, query.join("&"));
        let mut list = self.read(&path, "application/json")?;
        let mut items = list["items"].as_array_mut().map(std::mem::take)?;
        for item in &mut items {
            (item["apiVersion"], item["kind"]) = (json!(kind.version), json!(kind.kind));
        }
        let items: Vec<Value> = items.into_iter().map(shown).collect();
        Some(json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items}))
    }

    /// Creates the one object of a text, as `kubectl create` does.
    pub(crate) fn create(&self, manifest: &str) -> Created {
        let object = match documents(manifest).as_deref() {
            Some([object]) => object.clone(),
            _ => return Created::LeftToKubectl,
        };
        self.post(&object, "kubectl-create")
    }

    fn post(&self, object: &Value, manager: &str) -> Created {
        let collection = self.kind_of(object).filter(|kind| !kind.is_namespaced || namespace_of(object).is_some());
        let request = collection.and_then(|kind| kind.path(namespace_of(object), None)).and_then(|path| {
            let path = format!("{path}?fieldManager={manager}&fieldValidation=Strict");
            self.request("POST", &path, "application/json", Some(object))
        });
        let Some(request) = request else { return Created::LeftToKubectl };
        match self.ask(request) {
            Ok((201, body)) => {
                let created: Value = serde_json::from_slice(&body).unwrap();
                Created::Named(text(&created, "/metadata/name").unwrap_or_default().to_owned())
            }
            Ok((code, _)) if code < 500 => Created::LeftToKubectl,
            // It may have been made, and kubectl would make another one.
            Ok((code, body)) => Created::Unknown(format!("{code}: {}", String::from_utf8_lossy(&body))),
            Err(error) => Created::Unknown(error),
        }
    }

    /// Applies the objects of a text that are not there, or are as it says already; the others, as a text, are left to
    /// kubectl. Nothing is done when they cannot be told apart.
    pub(crate) fn apply(&self, manifest: &str) -> Option<Vec<Value>> {
        let mut left = Vec::new();
        for object in documents(manifest)? {
            if !left.is_empty() || !self.apply_plainly(&object) {
                // One after the other, in their order.
                left.push(object);
            }
        }
        Some(left)
    }

    fn apply_plainly(&self, object: &Value) -> bool {
        let path = || self.kind_of(object)?.path(namespace_of(object), Some(text(object, "/metadata/name")?));
        let Some(request) = path().and_then(|path| self.request("GET", &path, "application/json", None)) else {
            return false;
        };
        let mut applied = object.clone();
        if applied["metadata"]["annotations"].is_null() {
            applied["metadata"]["annotations"] = json!({});
        }
        let said = applied.to_string();
        match self.ask(request) {
            Ok((404, _)) => {
                applied["metadata"]["annotations"][LAST_APPLIED] = format!("{said}\n").into();
                matches!(self.post(&applied, "kubectl-client-side-apply"), Created::Named(_))
            }
            Ok((200, body)) => {
                let there: Value = serde_json::from_slice(&body).unwrap();
                let last = there["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap_or_default();
                last.trim_end() == said && has(&there, object)
            }
            _ => false,
        }
    }

    /// Watches one object until `done` answers about it or the deadline is over; nothing when kubectl has to.
    pub(crate) fn watch<T>(
        &self,
        namespace: &str,
        (kind, name): (&str, &str),
        deadline: Instant,
        last: &mut Value,
        mut done: impl FnMut(&Value) -> Option<T>,
    ) -> Option<T> {
        let kind = self.named(kind)?;
        if kind.is_namespaced && namespace.is_empty() {
            return None;
        }
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        let path = format!("{}?fieldSelector=metadata.name%3D{name}", kind.path(namespace, None)?);
        while Instant::now() < deadline {
            let Some(list) = self.read(&path, "application/json") else {
                // A server that is away is asked again.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            for mut object in list["items"].as_array().cloned().unwrap_or_default() {
                (object["apiVersion"], object["kind"]) = (json!(kind.version), json!(kind.kind));
                *last = shown(object);
                if let Some(answer) = done(last) {
                    return Some(answer);
                }
            }
            let since = text(&list, "/metadata/resourceVersion").unwrap_or_default();
            let request =
                self.request("GET", &format!("{path}&watch=true&resourceVersion={since}"), "application/json", None)?;
            let events = self.events(request);
            while let Ok(event) = events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                if !["ADDED", "MODIFIED", "DELETED"].contains(&event["type"].as_str().unwrap_or_default()) {
                    break;
                }
                *last = shown(event["object"].clone());
                if let Some(answer) = done(last) {
                    return Some(answer);
                }
            }
        }
        None
    }

    /// The events of a watch until it ends, or nobody takes them any more.
    fn events(&self, request: Request<Vec<u8>>) -> mpsc::Receiver<Value> {
        let (told, events) = mpsc::channel();
        let client = self.client.clone();
        RUNTIME.spawn(async move {
            let Ok(lines) = client.request_stream(request).await else { return };
            let mut lines = lines.lines();
            while let Ok(Some(line)) = lines.try_next().await {
                let Ok(event) = serde_json::from_str(&line) else { return };
                if told.send(event).is_err() {
                    return;
                }
            }
        });
        events
    }
}

fn namespace_of(object: &Value) -> Option<&str> {
    text(object, "/metadata/namespace").filter(|namespace| !namespace.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_arguments_are_read() {
        let one = Get { kind: "run", name: Some("a"), namespace: Some("shop"), ..Get::default() };
        assert_eq!(Get::parse(&["run", "a", "--namespace", "shop"]), Some(one));
        let one = Get { kind: "run", name: Some("a"), namespace: Some("shop"), ..Get::default() };
        assert_eq!(Get::parse(&["run/a", "--namespace=shop"]), Some(one));
        let query = vec![("labelSelector", "a=b"), ("fieldSelector", "c=d")];
        let list = Get { kind: "runs", everywhere: true, query, ..Get::default() };
        assert_eq!(Get::parse(&["runs", "--all-namespaces", "--selector=a=b", "--field-selector", "c=d"]), Some(list));
        for left in [&["runs,stacks"][..], &["run/a", "run/b"], &["run", "a", "--show-managed-fields"], &["--raw", "/"]]
        {
            assert_eq!(Get::parse(left), None, "{left:?}");
        }
    }

    #[test]
    fn object_has_what_is_said() {
        let there = json!({"a": {"b": 1, "c": [1, 2]}, "d": null});
        assert!(has(&there, &json!({"a": {"c": [1, 2]}})) && has(&there, &json!({})));
        assert!(!has(&there, &json!({"a": {"c": [1]}})) && !has(&there, &json!({"e": null})));
    }
}
