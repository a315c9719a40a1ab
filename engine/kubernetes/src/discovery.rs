//! Discovery: the kinds that a cluster serves, their schemas, and recent changes of their definitions.
//!
//! Runs share the served kinds ([`Discovery`]), and the changes of definitions on a server ([`Changed`]), whatever its
//! name and credentials. Schemas are cached for one Run.
//!
//! Elsewhere: `kinds` has kinds that are not served yet.

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

/// How long a server may take to observe a changed definition.
const HEARD: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Discovered {
    Served(Api),
    /// The group and version exist without this kind.
    NoKind,
    /// The group and version are not there.
    NoVersion,
}

/// The discovery of one run.
#[derive(Debug)]
pub(crate) struct Catalog {
    /// When the run started.
    began: Instant,
    kinds: Arc<Discovery>,
    /// The OpenAPI documents, by group and version.
    described: Mutex<HashMap<String, Arc<OnceCell<Option<Value>>>>>,
    changed: Arc<Changed>,
}

impl Catalog {
    pub(crate) fn new(kinds: Arc<Discovery>, changed: Arc<Changed>) -> Self {
        Self { began: Instant::now(), kinds, described: Mutex::default(), changed }
    }
}

impl Cluster {
    /// How this cluster serves a kind. Requests each group and version once, or not at all after an earlier run.
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

    /// Whether the definition of a kind has changed so recently that a server may not have observed it yet.
    pub(crate) fn is_new(&self, gvk: &Gvk) -> bool {
        self.catalog.changed.is_new(gvk)
    }

    /// Drops the discovery of all versions of a group.
    pub(crate) fn forget_group(&self, group: &str) {
        self.catalog.kinds.forget_group(group);
    }

    /// The merge schema of a kind, from OpenAPI v3. Requests each group and version once; `None` without a document.
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

    /// Drops a discovery from before this run whose result turned out to be wrong. Returns whether a new one may help.
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

/// The error about a group and version of another server that does not answer.
pub(crate) fn unanswered(gvk: &Gvk, answer: Option<&str>) -> CallError {
    let because = answer.map(|answer| format!(": {answer}")).unwrap_or_default();
    let api = gvk.api_version();
    CallError::Unreachable(format!("no server answers for API {api}{because}"))
}

/// The kinds of a group and version; `None` when it is not served.
type Served = Option<HashMap<String, Api>>;

#[derive(Debug, Default)]
pub(crate) struct Discovery(Mutex<HashMap<String, CachedGroup>>);

#[derive(Debug)]
struct CachedGroup {
    at: Instant,
    served: Arc<OnceCell<Served>>,
}

impl CachedGroup {
    fn now() -> Self {
        Self { at: Instant::now(), served: Arc::default() }
    }
}

impl Discovery {
    /// The entry of a group and version. An entry from before `began` counts only if it has the kind, which may have
    /// been added since.
    fn of(&self, path: &str, kind: &str, began: Instant) -> Arc<OnceCell<Served>> {
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = groups.entry(path.to_owned()).or_insert_with(CachedGroup::now);
        let has_kind = || asked.served.get().and_then(Option::as_ref).is_some_and(|kinds| kinds.contains_key(kind));
        if asked.at < began && !has_kind() {
            *asked = CachedGroup::now();
        }
        Arc::clone(&asked.served)
    }

    fn forget(&self, path: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
    }

    /// Drops the discovery of all versions of a group.
    fn forget_group(&self, group: &str) {
        let is_of = |path: &String| {
            path.strip_prefix("/apis/")
                .and_then(|path| path.strip_prefix(group))
                .is_some_and(|rest| rest.starts_with('/'))
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|path, _| !is_of(path));
    }

    /// Drops an entry from before `began`. Returns whether there was one.
    fn forget_older(&self, path: &str, began: Instant) -> bool {
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_older = groups.get(path).is_some_and(|asked| asked.at < began);
        if is_older {
            groups.remove(path);
        }
        is_older
    }
}

/// When definitions were changed on a server.
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
