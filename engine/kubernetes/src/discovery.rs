//! What a cluster serves: its kinds, what it says of them, and which definitions of kinds were changed lately.
//!
//! Runs share which kinds there are ([`Discovery`]), and which definitions changed at a place ([`Changed`]), by whichever name
//! and credentials they get there. What a cluster says of its kinds is known for one run.
//!
//! Elsewhere: kinds that are not served, and may be soon, are in `kinds`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Method;
use serde::Deserialize;
use serde_json::Value;
use stoa_engine::Schema;
use tokio::{sync::OnceCell, time::Instant};

use crate::cluster::{Cluster, decode};
use crate::error::CallError;
use crate::target::{Api, Gvk};

/// How long a server may take to hear of a definition that was changed.
const HEARD: Duration = Duration::from_secs(5);

/// What a cluster says about a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Discovered {
    Served(Api),
    /// The group and version are there, without this kind.
    NoKind,
    /// The group and version are not there.
    NoVersion,
}

/// What one run knows of what a cluster serves.
#[derive(Debug)]
pub(crate) struct Catalog {
    /// When the run began.
    began: Instant,
    kinds: Arc<Discovery>,
    /// What the cluster says of its kinds, by group and version.
    described: Mutex<HashMap<String, Arc<OnceCell<Option<Value>>>>>,
    changed: Arc<Changed>,
}

impl Catalog {
    pub(crate) fn new(kinds: Arc<Discovery>, changed: Arc<Changed>) -> Self {
        Self { began: Instant::now(), kinds, described: Mutex::default(), changed }
    }
}

impl Cluster {
    /// How this cluster serves a kind. Asks once per group and version, or not at all where an earlier run did.
    pub(crate) async fn discover(&self, gvk: &Gvk) -> Result<Discovered, CallError> {
        let path = gvk.base_path();
        let cell = self.catalog.kinds.of(&path, &gvk.kind, self.catalog.began);
        let served = cell.get_or_try_init(|| self.fetch_served(gvk)).await?;
        Ok(match served {
            None => Discovered::NoVersion,
            Some(kinds) => kinds.get(&gvk.kind).cloned().map_or(Discovered::NoKind, Discovered::Served),
        })
    }

    /// Forgets what a group and version serves, because it may have changed.
    pub(crate) fn forget(&self, gvk: &Gvk) {
        self.catalog.kinds.forget(&gvk.base_path());
        self.catalog.described.lock().unwrap_or_else(PoisonError::into_inner).remove(&gvk.base_path());
    }

    /// Notes that the definition of a kind was changed.
    pub(crate) fn note_defined(&self, gvk: Gvk) {
        self.catalog.changed.note(gvk);
    }

    /// Whether the definition of a kind was changed so short a time ago that the server, or one beside it, may not have
    /// heard of that.
    pub(crate) fn is_new(&self, gvk: &Gvk) -> bool {
        self.catalog.changed.is_new(gvk)
    }

    /// Forgets what all versions of a group serve.
    pub(crate) fn forget_group(&self, group: &str) {
        self.catalog.kinds.forget_group(group);
    }

    /// What this cluster says of a kind in its OpenAPI v3. Asks once per group and version; `None` where it does not tell.
    pub(crate) async fn schema(&self, gvk: &Gvk) -> Result<Option<Schema>, CallError> {
        let path = gvk.base_path();
        let cell = {
            let mut described = self.catalog.described.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(described.entry(path.clone()).or_default())
        };
        let document = cell
            .get_or_try_init(async || match self.call(Method::GET, &format!("/openapi/v3{path}"), None).await {
                Ok(body) => decode(&body).map(Some),
                Err(CallError::Status(failure)) if matches!(failure.code, 403 | 404 | 406) => Ok(None),
                Err(err) => Err(err),
            })
            .await?;
        let document = document.as_ref();
        Ok(document.and_then(|document| Schema::of_kind(document, &gvk.group, &gvk.version, &gvk.kind)))
    }

    /// Forgets it where an earlier run asked for it, and something that follows from it is not there; whether it may be known
    /// better now.
    pub(crate) fn forget_older(&self, gvk: &Gvk) -> bool {
        self.catalog.kinds.forget_older(&gvk.base_path(), self.catalog.began)
    }

    /// The versions of a group that are served, as of now. Kubernetes' own group without a name has but one.
    pub(crate) async fn versions(&self, group: &str) -> Result<Vec<String>, CallError> {
        if group.is_empty() {
            return Ok(vec!["v1".to_owned()]);
        }
        match self.call(Method::GET, &format!("/apis/{group}"), None).await {
            Ok(body) => {
                let group: GroupVersions = decode(&body)?;
                Ok(group.versions.into_iter().map(|served| served.version).collect())
            }
            Err(CallError::Status(failure)) if failure.code == 404 => Ok(Vec::new()),
            Err(err) => Err(err),
        }
    }

    async fn fetch_served(&self, gvk: &Gvk) -> Result<Served, CallError> {
        let body = match self.call(Method::GET, &gvk.base_path(), None).await {
            Ok(body) => body,
            Err(CallError::Status(failure)) if failure.code == 404 => return Ok(None),
            // Others may have it, who are away.
            Err(CallError::Status(failure)) if failure.code == 503 => {
                return Err(unanswered(gvk, Some(&failure.status.message)));
            }
            Err(err) => return Err(err),
        };
        let list: ResourceList = decode(&body)?;
        let kinds = list.resources.into_iter().filter(|r| !r.name.contains('/'));
        Ok(Some(kinds.map(|r| (r.kind, Api { plural: r.name, namespaced: r.namespaced })).collect()))
    }
}

/// What is said where nobody answers for a group and version that somebody has, and what was answered instead.
pub(crate) fn unanswered(gvk: &Gvk, answer: Option<&str>) -> CallError {
    let because = answer.map(|answer| format!(": {answer}")).unwrap_or_default();
    let api = gvk.api_version();
    CallError::Unreachable(format!("nobody answers for {api}, and so nobody knows what there is of it{because}"))
}

/// What a group and version serves: by kind, or nothing when it is not served at all.
type Served = Option<HashMap<String, Api>>;

/// What a cluster serves, as it was last asked.
#[derive(Debug, Default)]
pub(crate) struct Discovery(Mutex<HashMap<String, Asked>>);

#[derive(Debug)]
struct Asked {
    at: Instant,
    served: Arc<OnceCell<Served>>,
}

impl Asked {
    fn now() -> Self {
        Self { at: Instant::now(), served: Arc::default() }
    }
}

impl Discovery {
    /// Where it is kept what a group and version serves. What was asked for before `began` counts only where it has the kind:
    /// one that was not there then may be by now.
    fn of(&self, path: &str, kind: &str, began: Instant) -> Arc<OnceCell<Served>> {
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = groups.entry(path.to_owned()).or_insert_with(Asked::now);
        let has_kind = || asked.served.get().and_then(Option::as_ref).is_some_and(|kinds| kinds.contains_key(kind));
        if asked.at < began && !has_kind() {
            *asked = Asked::now();
        }
        Arc::clone(&asked.served)
    }

    fn forget(&self, path: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
    }

    /// Forgets what all versions of a group serve.
    fn forget_group(&self, group: &str) {
        let is_of = |path: &String| {
            path.strip_prefix("/apis/")
                .and_then(|path| path.strip_prefix(group))
                .is_some_and(|rest| rest.starts_with('/'))
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|path, _| !is_of(path));
    }

    /// Forgets what was asked for before `began`; whether there was something to forget.
    fn forget_older(&self, path: &str, began: Instant) -> bool {
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_older = groups.get(path).is_some_and(|asked| asked.at < began);
        if is_older {
            groups.remove(path);
        }
        is_older
    }
}

/// When the definitions of kinds were changed at a place.
#[derive(Debug, Default)]
pub(crate) struct Changed(Mutex<HashMap<Gvk, Instant>>);

impl Changed {
    fn note(&self, gvk: Gvk) {
        let mut changed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        changed.retain(|_, at| at.elapsed() < HEARD);
        changed.insert(gvk, Instant::now());
    }

    fn is_new(&self, gvk: &Gvk) -> bool {
        let changed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        changed.get(gvk).is_some_and(|at| at.elapsed() < HEARD)
    }
}

#[derive(Deserialize)]
struct ResourceList {
    resources: Vec<ServedResource>,
}

#[derive(Deserialize)]
struct ServedResource {
    name: String,
    kind: String,
    namespaced: bool,
}

#[derive(Deserialize)]
struct GroupVersions {
    versions: Vec<ServedVersion>,
}

#[derive(Deserialize)]
struct ServedVersion {
    version: String,
}
