//! The builder of a [`Registry`], and the task that keeps its caches in step with the log.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures_util::StreamExt as _;
use stoa_log::{Entry, Log, LogError, Record, Snapshot, Version};
use stoa_meta::{
    definition::ResourceDefinition,
    managed_fields::FieldManagers,
    schema::{Decoder, SchemaError},
};
use tokio_util::sync::CancellationToken;

use super::{
    Computed, History, Metrics, NamespaceLookup, Observer, Registry, Scaling, Store, View,
    computed::Computation,
    erased::{Erased, ErasedStrategy},
    namespace::StoredNamespaces,
    view::Viewed,
};
use crate::{
    admission::{Chain, NamespaceLifecycle},
    cache::{Progress, WatchCache, Window},
    strategy::Strategy,
};

/// How long to wait before the log is tried again when it failed.
const RETRY: Duration = Duration::from_millis(500);
/// How often a watch that asked for them gets a bookmark.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// Why a [`Registry`] could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The log cannot be read.
    #[error("the log cannot be read")]
    Log(#[from] LogError),
    /// A resource's schema cannot be used, which is the fault of whoever defined it.
    #[error("the schema of {kind} cannot be used")]
    Schema {
        /// The kind.
        kind: String,
        /// What is wrong with its schema.
        source: SchemaError,
    },
}

/// Describes a [`Registry`].
#[derive(Debug)]
pub struct RegistryBuilder {
    log: Arc<dyn Log>,
    resources: Vec<Described>,
    namespaces: Namespaces,
    admission: Chain,
    observers: Observers,
    history: Option<Arc<dyn History>>,
    metrics: Metrics,
    window: Window,
    bookmark_interval: Duration,
    end: CancellationToken,
}

/// A resource, its strategy, and the origin of its objects.
type Described = (Arc<ResourceDefinition>, Box<dyn ErasedStrategy>, Objects);

/// The origin of the objects of a resource.
#[derive(Debug)]
enum Objects {
    Stored,
    /// Each is computed from an object of another resource.
    Viewed(Arc<dyn View>),
    /// They are computed from the objects of others.
    Computed(Arc<dyn Computed>),
}

/// By the prefix of the keys that they hear of.
type Observers = Vec<(String, Arc<dyn Observer>)>;

#[derive(Debug)]
enum Namespaces {
    Unchecked,
    Lookup(Arc<dyn NamespaceLookup>),
    /// Group, version and plural noun of the resource that they are.
    Resource(String, String, String),
}

impl RegistryBuilder {
    pub(super) fn new(log: Arc<dyn Log>) -> Self {
        Self {
            log,
            resources: Vec::new(),
            namespaces: Namespaces::Unchecked,
            admission: Chain::default(),
            observers: Vec::new(),
            history: None,
            metrics: Metrics::default(),
            window: Window::default(),
            bookmark_interval: BOOKMARK_INTERVAL,
            end: CancellationToken::new(),
        }
    }

    /// Adds a resource and what its writes mean.
    #[must_use]
    pub fn register(mut self, definition: ResourceDefinition, strategy: impl Strategy) -> Self {
        let definition = Arc::new(definition);
        let strategy = Erased { strategy, definition: definition.clone() };
        self.resources.push((definition, Box::new(strategy), Objects::Stored));
        self
    }

    /// Adds a resource whose objects are computed from those of another resource. Its writes become writes of these.
    #[must_use]
    pub fn register_view(
        mut self,
        definition: ResourceDefinition,
        strategy: impl Strategy,
        view: Arc<dyn View>,
    ) -> Self {
        let definition = Arc::new(definition);
        let strategy = Erased { strategy, definition: definition.clone() };
        self.resources.push((definition, Box::new(strategy), Objects::Viewed(view)));
        self
    }

    /// Adds a resource whose objects are computed from those of others, and which has no writes.
    #[must_use]
    pub fn register_computed(
        mut self,
        definition: ResourceDefinition,
        strategy: impl Strategy,
        computed: Arc<dyn Computed>,
    ) -> Self {
        let definition = Arc::new(definition);
        let strategy = Erased { strategy, definition: definition.clone() };
        self.resources.push((definition, Box::new(strategy), Objects::Computed(computed)));
        self
    }

    /// Asks `lookup` for the namespaces in which objects are created. Without this, or
    /// [`namespaces_in`](Self::namespaces_in), every namespace counts as there.
    #[must_use]
    pub fn namespaces(mut self, lookup: Arc<dyn NamespaceLookup>) -> Self {
        self.namespaces = Namespaces::Lookup(lookup);
        self
    }

    /// Takes the objects of a registered resource as the namespaces: group, version and plural
    /// noun, such as `("", "v1", "namespaces")`.
    #[must_use]
    pub fn namespaces_in(mut self, group: &str, version: &str, plural: &str) -> Self {
        self.namespaces = Namespaces::Resource(group.to_owned(), version.to_owned(), plural.to_owned());
        self
    }

    /// Asks these plugins about every write; after `NamespaceLifecycle`, where namespaces are looked up.
    #[must_use]
    pub fn admission(mut self, chain: Chain) -> Self {
        self.admission = chain;
        self
    }

    /// Tells `observer` of every record whose key begins with `prefix`, which is outside `/registry/`.
    #[must_use]
    pub fn observe(mut self, prefix: &str, observer: Arc<dyn Observer>) -> Self {
        self.observers.push((prefix.to_owned(), observer));
        self
    }

    /// Serves exact versions that are older than what the cache keeps from `history`, of the resources that it keeps.
    #[must_use]
    pub fn history(mut self, history: Arc<dyn History>) -> Self {
        self.history = Some(history);
        self
    }

    /// Counts in these metrics.
    #[must_use]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Sets how much history is kept in memory.
    #[must_use]
    pub fn window(mut self, window: Window) -> Self {
        self.window = window;
        self
    }

    /// Sets how often a watch that asked for them gets a bookmark; a minute if not set.
    #[must_use]
    pub fn bookmark_interval(mut self, interval: Duration) -> Self {
        self.bookmark_interval = interval;
        self
    }

    /// Ends the registry's task and all watches when this is cancelled.
    #[must_use]
    pub fn end_with(mut self, token: CancellationToken) -> Self {
        self.end = token;
        self
    }

    /// Reads the log and begins to follow it; returns when the caches have caught up.
    ///
    /// # Panics
    ///
    /// When [`namespaces_in`](Self::namespaces_in) names a resource that is not registered.
    pub async fn build(self) -> Result<Arc<Registry>, BuildError> {
        let progress = Arc::new(Progress::default());
        let store = |(definition, strategy, objects): Described| {
            let decoder = Decoder::new(&definition)
                .map_err(|source| BuildError::Schema { kind: definition.kind.clone(), source })?;
            let (fields, counts) = (definition.selectable_fields.clone(), self.metrics.of_cache(&definition));
            let cache = Arc::new(WatchCache::new(fields, self.window, progress.clone(), counts));
            self.metrics.follow(&definition, &cache);
            let (view, computed) = match objects {
                Objects::Stored => (None, None),
                Objects::Viewed(view) => (Some(Viewed::new(view, &definition)), None),
                Objects::Computed(of) => (None, Some(Computation::new(of, &definition.selectable_fields))),
            };
            Ok(Arc::new(Store {
                decoder: Arc::new(decoder),
                field_managers: FieldManagers::new(&definition),
                view,
                computed,
                scaling: Scaling::new(&definition),
                history: self.history.clone().filter(|history| history.keeps(&definition)),
                definition,
                zero: Arc::new(strategy.zero()),
                strategy,
                log: self.log.clone(),
                cache,
                metrics: self.metrics.clone(),
                admission: OnceLock::new(),
                in_flight: super::in_flight::InFlight::default(),
                bookmark_interval: self.bookmark_interval,
                end: self.end.clone(),
            }))
        };
        let stores = self.resources.into_iter().map(store).collect::<Result<_, BuildError>>()?;
        let registry = Arc::new(Registry { stores, log: self.log.clone() });
        for view in registry.stores.iter().filter_map(|store| store.view.as_ref()) {
            view.find_base(&registry);
        }
        for store in &registry.stores {
            if let Some(computed) = &store.computed {
                computed.find_bases(&registry, store);
            }
        }
        let lookup: Option<Arc<dyn NamespaceLookup>> = match self.namespaces {
            Namespaces::Unchecked => None,
            Namespaces::Lookup(lookup) => Some(lookup),
            Namespaces::Resource(group, version, plural) => {
                let store = registry.store(&group, &version, &plural).expect("namespaces are a registered resource");
                Some(Arc::new(StoredNamespaces(Arc::downgrade(store))))
            }
        };
        let mut chain = self.admission;
        if let Some(lookup) = lookup {
            chain.prepend(Arc::new(NamespaceLifecycle::new(lookup)));
        }
        for store in &registry.stores {
            store.admission.set(chain.clone()).expect("it is set nowhere else");
        }
        let follower = Follower::new(self.log, &registry.stores, self.observers, progress.clone(), self.window.events);
        let head = follower.log.head().await?;
        let since = follower.load(true).await?;
        tokio::spawn(self.end.run_until_cancelled_owned(follower.run(since)));
        progress.reach(head).await;
        Ok(registry)
    }
}

struct Follower {
    log: Arc<dyn Log>,
    /// By the prefix of their keys.
    stores: HashMap<String, Vec<Arc<Store>>>,
    observers: Observers,
    progress: Arc<Progress>,
    /// How many records before the head are replayed at the start, for watches to resume in.
    replay: u64,
}

impl Follower {
    fn new(
        log: Arc<dyn Log>,
        stores: &[Arc<Store>],
        observers: Observers,
        progress: Arc<Progress>,
        window: usize,
    ) -> Self {
        let mut by_prefix: HashMap<String, Vec<Arc<Store>>> = HashMap::new();
        for store in stores {
            by_prefix.entry(store.definition.key_prefix()).or_default().push(store.clone());
        }
        Self { log, stores: by_prefix, observers, progress, replay: u64::try_from(window).unwrap_or(u64::MAX) }
    }

    /// Fills the caches from the log and returns the version to follow from: with history as
    /// much of it back as the window wants and the log still has, otherwise the head.
    async fn load(&self, with_history: bool) -> Result<Version, LogError> {
        let mut at = None;
        if with_history {
            at = Some(self.log.before_last(self.replay).await?);
        }
        let (snapshot, observed) = loop {
            match self.scan(at).await {
                Err(LogError::Expired { oldest, .. }) if at.is_none_or(|at| at < oldest) => at = Some(oldest),
                other => break other?,
            }
        };
        for ((_, observer), entries) in self.observers.iter().zip(&observed) {
            observer.reset(entries);
        }
        let mut entries: HashMap<&str, Vec<Entry>> = HashMap::new();
        for entry in snapshot.entries {
            if let Some((prefix, _)) = self.stores.get_key_value(prefix_of(entry.key.as_str())) {
                entries.entry(prefix.as_str()).or_default().push(entry);
            }
        }
        for (prefix, stores) in &self.stores {
            let entries = entries.remove(prefix.as_str()).unwrap_or_default();
            for store in stores {
                store.reset(snapshot.version, entries.iter().cloned());
            }
        }
        self.progress.advance(snapshot.version);
        Ok(snapshot.version)
    }

    /// Everything that the stores and the observers have to know, at one version.
    async fn scan(&self, at: Option<Version>) -> Result<(Snapshot, Vec<Vec<Entry>>), LogError> {
        let snapshot = self.log.scan("/registry/", at).await?;
        let mut observed = Vec::new();
        for (prefix, _) in &self.observers {
            observed.push(self.log.scan(prefix, Some(snapshot.version)).await?.entries);
        }
        Ok((snapshot, observed))
    }

    async fn run(self, mut since: Version) {
        loop {
            let error = match self.log.follow(since).await {
                Ok(mut records) => loop {
                    match records.next().await {
                        Some(Ok(record)) => {
                            self.apply(&record);
                            since = record.version;
                        }
                        Some(Err(error)) => break Some(error),
                        None => break None,
                    }
                },
                Err(error) => Some(error),
            };
            tracing::warn!(error = ?error, %since, "following the log was interrupted");
            if matches!(error, Some(LogError::Expired { .. })) {
                // What was missed is gone, so everything is read anew and watches begin again.
                match self.load(false).await {
                    Ok(version) => {
                        since = version;
                        continue;
                    }
                    Err(error) => tracing::error!(%error, "reading the log failed"),
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    fn apply(&self, record: &Record) {
        for store in self.stores.get(prefix_of(record.key.as_str())).into_iter().flatten() {
            store.apply(record);
        }
        for (prefix, observer) in &self.observers {
            if record.key.as_str().starts_with(prefix) {
                observer.apply(record);
            }
        }
        self.progress.advance(record.version);
    }
}

/// `/registry/<group>/<resource>/` of a key; the whole key when it has no such beginning.
fn prefix_of(key: &str) -> &str {
    match key.match_indices('/').nth(3) {
        Some((end, _)) => &key[..=end],
        None => key,
    }
}
