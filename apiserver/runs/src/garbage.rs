//! Removal of documents in Backends without a reference.
//!
//! Runs, Releases and the records of deployments refer to documents by digest. A document is removed once it had no
//! reference and no writer for `GRACE`, because a Run writes a document before it refers to it. `Holds` blocks writes of
//! the same documents during the removal. The last check of references comes after `Holds` is in force. A crash leaves
//! documents that the next round finds.
//!
//! A record for each stack and Backend names the stores of documents, because a deleted stack has no other trace.
//!
//! Elsewhere: `removal` empties each store at a pace of its own.

mod removal;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use kube::ResourceExt as _;
use memchr::memmem;
use parking_lot::Mutex;
use stoa_machinery::{
    Key,
    log::{Change, Expect, Log, LogError, Write},
    registry::ListOptions,
};
use stoa_storage::documents::{Digest, DocumentError, DocumentStore, Measured};
use stoa_types::{Release, Run, Stack, Workspace};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::removal::{AllStuck, Due};
use super::{Services, StepError};

/// How often documents are looked at.
const EVERY: Duration = Duration::from_secs(3600);
/// How long nothing must have referred to a document.
const GRACE: Duration = Duration::from_secs(3600);
/// Where the records are of where documents may be: `<namespace>/<stack uid>/<backend>` below this.
const SCOPES: &str = "/stoa/documents/";

/// A store whose documents are removed only while nobody is about to refer to them.
#[derive(Debug)]
pub(crate) struct Guarded {
    store: Arc<dyn DocumentStore>,
    holds: Arc<Holds>,
}

/// Documents that may not be removed or not be stored, of all stores: two Backends may share a place.
#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    /// When documents were last put.
    put: HashMap<(String, Digest), Instant>,
    /// Those that are being removed.
    going: HashSet<(String, Digest)>,
}

impl Guarded {
    pub(crate) fn new(store: Arc<dyn DocumentStore>, holds: Arc<Holds>) -> Self {
        Self { store, holds }
    }
}

/// Documents of a scope that are being removed: nobody can put them until they are released, or this is dropped.
#[derive(Debug)]
struct Going {
    holds: Arc<Holds>,
    scope: String,
    digests: Vec<Digest>,
}

impl Going {
    /// Lets the last one be put again: it is gone, or stays.
    fn release_last(&mut self) {
        if let Some(digest) = self.digests.pop() {
            self.holds.0.lock().going.remove(&(self.scope.clone(), digest));
        }
    }

    /// The last one alone, which is not released with the others.
    fn split_last(&mut self) -> Self {
        let last = self.digests.pop();
        Self { holds: self.holds.clone(), scope: self.scope.clone(), digests: last.into_iter().collect() }
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        let mut held = self.holds.0.lock();
        for digest in &self.digests {
            held.going.remove(&(self.scope.clone(), *digest));
        }
    }
}

impl Holds {
    /// Begins to remove those of some documents that nobody has put for a while, and nobody else removes.
    fn begin(self: &Arc<Self>, scope: &str, digests: &[Digest], grace: Duration) -> Going {
        let mut held = self.0.lock();
        held.put.retain(|_, at| at.elapsed() < grace);
        let mut going = Vec::new();
        for digest in digests {
            let key = (scope.to_owned(), *digest);
            if !held.put.contains_key(&key) && held.going.insert(key) {
                going.push(*digest);
            }
        }
        Going { holds: self.clone(), scope: scope.to_owned(), digests: going }
    }

    /// Notes that a document is put, unless it is just being removed.
    fn note_put(&self, scope: &str, bytes: &[u8]) -> Result<(), DocumentError> {
        let key = (scope.to_owned(), Digest::of(bytes));
        let mut held = self.0.lock();
        if held.going.contains(&key) {
            return Err(DocumentError::Unavailable("the document is just being removed".into()));
        }
        held.put.insert(key, Instant::now());
        Ok(())
    }
}

#[async_trait]
impl DocumentStore for Guarded {
    async fn put(&self, scope: &str, bytes: Bytes) -> Result<Digest, DocumentError> {
        self.holds.note_put(scope, &bytes)?;
        self.store.put(scope, bytes).await
    }

    async fn put_owed(&self, scope: &str, bytes: Bytes) -> Result<Digest, DocumentError> {
        self.holds.note_put(scope, &bytes)?;
        self.store.put_owed(scope, bytes).await
    }

    async fn size(&self, scope: &str, digest: &Digest) -> Result<Option<u64>, DocumentError> {
        self.store.size(scope, digest).await
    }

    async fn get(&self, scope: &str, digest: &Digest) -> Result<Option<Bytes>, DocumentError> {
        self.store.get(scope, digest).await
    }

    async fn get_at_most(&self, scope: &str, digest: &Digest, most: u64) -> Result<Option<Measured>, DocumentError> {
        self.store.get_at_most(scope, digest, most).await
    }

    async fn list(&self, scope: &str) -> Result<Vec<Digest>, DocumentError> {
        self.store.list(scope).await
    }

    async fn file(&self, path: &str, most: u64) -> Result<Option<Bytes>, DocumentError> {
        self.store.file(path, most).await
    }

    async fn delete(&self, scope: &str, digest: &Digest) -> Result<(), DocumentError> {
        self.store.delete(scope, digest).await
    }
}

/// Where it is noted that a stack may have documents in a Backend.
fn scope_key(namespace: &str, uid: &str, backend: &str) -> Key {
    Key::new(format!("{SCOPES}{namespace}/{uid}/{backend}"))
}

/// Notes that a stack may have documents in a Backend from now on.
pub(super) async fn note_scope(log: &dyn Log, namespace: &str, uid: &str, backend: &str) -> Result<(), StepError> {
    let there = Change::Put(Bytes::from_static(b"{}"));
    let write = Write::new(scope_key(namespace, uid, backend), Expect::Absent, there).by("system:stoa:runs");
    match log.append(write).await {
        Ok(_) | Err(LogError::Conflict { .. }) => Ok(()),
        Err(error) => Err(StepError::Retry(error.to_string())),
    }
}

/// Removes what nothing refers to, again and again until the token ends.
pub async fn run(services: Services, end: CancellationToken) {
    let mut collector = Collector::new(services, GRACE);
    while end.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_some() {
        match end.run_until_cancelled(Box::pin(collector.round(&end))).await {
            None => return,
            Some(Ok(0)) => {}
            Some(Ok(removed)) => tracing::info!(removed, "documents that nothing refers to were removed"),
            Some(Err(why)) => tracing::warn!(?why, "documents are not looked at"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    namespace: String,
    uid: String,
    backend: String,
}

impl Place {
    fn scope(&self) -> String {
        format!("{}/{}", self.namespace, self.uid)
    }
}

#[derive(Debug)]
pub(crate) struct Collector {
    services: Services,
    grace: Duration,
    /// Since when.
    unreferenced: HashMap<(Place, Digest), Instant>,
    /// Those that could not be removed.
    stuck: AllStuck,
}

impl Collector {
    pub(crate) fn new(services: Services, grace: Duration) -> Self {
        Self { services, grace, unreferenced: HashMap::new(), stuck: AllStuck::default() }
    }

    /// Looks at all documents once; how many were removed.
    ///
    /// # Errors
    ///
    /// When something cannot be read; then nothing more is removed.
    pub(crate) async fn round(&mut self, end: &CancellationToken) -> Result<usize, StepError> {
        let places = self.places().await?;
        let referenced = self.references().await?;
        let mut known = HashMap::new();
        let mut all_due = Vec::new();
        for (place, is_gone) in places {
            let store = match self.services.backends.store(&place.backend).await {
                Ok(store) => store,
                // Its Backend is gone, or away: so are its documents.
                Err(_) => continue,
            };
            let listed = match store.list(&place.scope()).await {
                Ok(listed) => listed,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        backend = place.backend,
                        "is not looked at"
                    );
                    continue;
                }
            };
            if listed.is_empty() && is_gone {
                self.forget(&place).await?;
                continue;
            }
            let loose: Vec<Digest> = listed.into_iter().filter(|digest| !referenced.contains(digest)).collect();
            let mut due = Vec::new();
            for digest in loose {
                let key = (place.clone(), digest);
                let since = *self.unreferenced.get(&key).unwrap_or(&Instant::now());
                if since.elapsed() >= self.grace {
                    due.push(digest);
                }
                known.insert(key, since);
            }
            if !due.is_empty() {
                all_due.push(Due { scope: place.scope(), backend: place.backend, store, digests: due });
            }
        }
        self.unreferenced = known;
        self.remove(all_due, end).await
    }

    /// Removes those of some documents that nothing refers to now either; how many.
    async fn remove(&self, due: Vec<Due>, end: &CancellationToken) -> Result<usize, StepError> {
        let holds = self.services.backends.holds();
        let due = removal::put_stuck_last(due, &mut self.stuck.lock());
        removal::remove(due, holds, self.grace, || self.references(), end, &self.stuck).await
    }

    /// Where documents may be, and whether the stack that they were of is gone.
    async fn places(&self) -> Result<HashMap<Place, bool>, StepError> {
        let workspaces = self.services.lookup.api::<Workspace>()?.list(None, "").await?;
        let backends: HashMap<String, String> =
            workspaces.iter().map(|w| (w.name_any(), w.spec.backend.name.clone())).collect();
        let mut places = HashMap::new();
        let there = |stack: Stack| {
            let deployed = stack.status.iter().flat_map(|s| &s.deployments).map(|deployment| &deployment.workspace);
            for backend in stack.spec.workspaces.iter().chain(deployed).filter_map(|name| backends.get(name)) {
                let (namespace, uid) = (stack.namespace().unwrap_or_default(), stack.uid().unwrap_or_default());
                places.insert(Place { namespace, uid, backend: backend.clone() }, false);
            }
            stack.uid()
        };
        let there = self.services.lookup.api::<Stack>()?.list_of(None, &ListOptions::default(), there).await?;
        let there: HashSet<String> = there.into_iter().collect();
        let noted = self.services.log.scan(SCOPES, None).await.map_err(|error| StepError::Retry(error.to_string()))?;
        for entry in noted.entries {
            let parts: Vec<&str> = entry.key.as_str().trim_start_matches(SCOPES).split('/').collect();
            let [namespace, uid, backend] = parts[..] else { continue };
            let [namespace, uid, backend] = [namespace, uid, backend].map(str::to_owned);
            let is_gone = !there.contains(&uid);
            places.entry(Place { namespace, uid, backend }).or_insert(is_gone);
        }
        Ok(places)
    }

    async fn forget(&self, place: &Place) -> Result<(), StepError> {
        let Place { namespace, uid, backend } = place;
        let write = Write::new(scope_key(namespace, uid, backend), Expect::Any, Change::Delete).by("system:stoa:runs");
        self.services.log.append(write).await.map(drop).map_err(|error| StepError::Retry(error.to_string()))
    }

    /// All digests in Runs, Releases and records, found in the text: a later version may have written them.
    async fn references(&self) -> Result<HashSet<Digest>, StepError> {
        let mut found = HashSet::new();
        let lookup = &self.services.lookup;
        let options = ListOptions::default();
        for store in [lookup.api::<Run>()?.store().clone(), lookup.api::<Release>()?.store().clone()] {
            let list = store.list(None, &options).await?;
            list.items.iter().for_each(|object| digests_in(&object.json(), &mut found));
            store.undecodable_values().iter().for_each(|value| digests_in(value, &mut found));
        }
        let records = self.services.log.scan("/stoa/state/", None).await;
        let records = records.map_err(|error| StepError::Retry(error.to_string()))?;
        records.entries.iter().for_each(|entry| digests_in(&entry.value, &mut found));
        Ok(found)
    }
}

fn digests_in(text: &[u8], found: &mut HashSet<Digest>) {
    const PREFIX: &[u8] = b"sha256:";
    for at in memmem::find_iter(text, PREFIX) {
        let digest = text.get(at..at + PREFIX.len() + 64).and_then(|digest| std::str::from_utf8(digest).ok());
        found.extend(digest.and_then(|digest| digest.parse::<Digest>().ok()));
    }
}

#[cfg(test)]
mod tests;
