//! The resources of one server over one log: what Go's generic registry is to kube-apiserver.
//!
//! Start at [`Registry::builder`]. A [`Store`] serves one resource: reads come from its watch
//! cache, writes go through metadata rules, the kind's strategy and admission to the log.
//! Controllers in the same process use the typed [`Api`].
//!
//! A write is answered when its record is durable and in the cache, so that whoever wrote reads
//! it back.

mod admit;
pub mod api;
mod append;
mod apply;
mod builder;
mod changes;
mod computed;
mod create;
mod delete;
mod ephemeral;
mod erased;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod historical_reads;
mod in_flight;
mod metadata;
mod metrics;
mod namespace;
mod observer;
mod options;
mod parts;
mod read;
mod scale;
mod size_limit;
mod token;
mod undecodable;
mod update;
mod values;
mod view;

use std::sync::{Arc, OnceLock};

pub use admit::{MANAGED_FIELDS, Written, managed_fields_of, put_managed_fields};
pub use api::Api;
pub use builder::{BuildError, RegistryBuilder};
pub use changes::Changes;
pub use computed::{Computed, PageRequest};
pub use historical_reads::{History, HistoryError, Past};
pub use metadata::{AdmissionPhase, FIELD_MANAGER_BYTES, dedup_owners, field_manager_errors};
pub use metadata::{FOREGROUND_DELETION, ORPHAN_DEPENDENTS};
pub use metrics::Metrics;
pub use observer::Observer;
pub use options::{Apply, DeleteOptions, Deleted, Finish, List, ListOptions, Transform, UpdateSource, WatchOptions};
pub use options::{check_delete, is_dry_run};
pub use scale::Scaling;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
pub use undecodable::is_undecodable;
pub use update::check_name;
pub use view::View;

use crate::{admission::Chain, cache::WatchCache};
pub use crate::{
    admission::{NamespaceLookup, NamespacePhase},
    cache::{Event, Stored, Window},
};
use erased::ErasedStrategy;
use stoa_log::{Change, Entry, Key, Log, LogError, Record, Version};
pub use stoa_meta::definition::{CreateHandler, Target};
use stoa_meta::{
    definition::{ResourceDefinition, Scope},
    managed_fields::FieldManagers,
    schema::Decoder,
    status::ApiError,
};

/// All resources of one server over one log.
#[derive(Debug)]
pub struct Registry {
    log: Arc<dyn Log>,
    stores: Vec<Arc<Store>>,
}

impl Registry {
    /// Begins to describe a server over this log.
    pub fn builder(log: Arc<dyn Log>) -> RegistryBuilder {
        RegistryBuilder::new(log)
    }

    /// The stores, in the order in which their resources were registered.
    pub fn stores(&self) -> impl Iterator<Item = &Arc<Store>> {
        self.stores.iter()
    }

    /// The store of one resource, by its plural noun.
    pub fn store(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Store>> {
        self.stores.iter().find(|store| {
            let definition = store.definition();
            definition.group == group && definition.version == version && definition.plural == plural
        })
    }

    /// The log under all of it.
    pub fn log(&self) -> &Arc<dyn Log> {
        &self.log
    }

    /// A typed client of one kind, for components of this server. It acts as the server itself.
    ///
    /// # Panics
    ///
    /// When the kind is not registered.
    pub fn api<K>(self: &Arc<Self>) -> Api<K>
    where
        K: kube_core::Resource<DynamicType = ()>,
    {
        let (group, version, plural) = (K::group(&()), K::version(&()), K::plural(&()));
        let store = self
            .store(&group, &version, &plural)
            .unwrap_or_else(|| panic!("{plural}.{group}/{version} is not a registered resource"));
        Api::new(store.clone())
    }
}

/// One resource: its objects and what may be done with them.
#[derive(Debug)]
pub struct Store {
    definition: Arc<ResourceDefinition>,
    /// What an object has besides its metadata when nothing was said of it.
    zero: Arc<Map<String, Value>>,
    strategy: Box<dyn ErasedStrategy>,
    decoder: Arc<Decoder>,
    log: Arc<dyn Log>,
    cache: Arc<WatchCache>,
    metrics: Metrics,
    field_managers: FieldManagers,
    /// Set when the registry is complete.
    admission: OnceLock<Chain>,
    /// How its objects are computed, where they are not stored.
    view: Option<view::Viewed>,
    /// How its objects are computed, where any number of them follow from those of others.
    computed: Option<computed::Computation>,
    /// How its `scale` is served, if there is one.
    scaling: Option<scale::Scaling>,
    /// Who keeps what the log has no more, if anybody does.
    history: Option<Arc<dyn History>>,
    /// What is being written, so that the cache need not parse it again.
    in_flight: in_flight::InFlight,
    bookmark_interval: std::time::Duration,
    end: CancellationToken,
}

impl Store {
    /// Reads the objects.
    pub fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// What the resource looks like.
    pub fn definition(&self) -> &Arc<ResourceDefinition> {
        &self.definition
    }

    /// What an object has besides its metadata when nothing was said of it, by its type.
    pub fn zero(&self) -> &Arc<Map<String, Value>> {
        &self.zero
    }

    /// What all stores of the registry count in.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Whether its objects are computed from those of other stores.
    pub fn is_view(&self) -> bool {
        self.view.is_some() || self.computed.is_some()
    }

    /// The beginning of the keys of a namespace, or of all objects.
    fn prefix(&self, namespace: Option<&str>) -> String {
        let prefix = self.definition.key_prefix();
        match (self.definition.scope, namespace) {
            (Scope::Namespaced, Some(namespace)) if !namespace.is_empty() => format!("{prefix}{namespace}/"),
            (Scope::Namespaced | Scope::Cluster, _) => prefix,
        }
    }

    /// The key of an object; the namespace counts only when the resource has them.
    fn key(&self, namespace: &str, name: &str) -> Key {
        match self.definition.scope {
            Scope::Cluster => Key::new(format!("{}{name}", self.definition.key_prefix())),
            Scope::Namespaced => Key::new(format!("{}{namespace}/{name}", self.definition.key_prefix())),
        }
    }

    fn not_found(&self, name: &str) -> ApiError {
        ApiError::not_found(&self.definition.group, &self.definition.plural, name)
    }

    fn conflict(&self, name: &str, detail: impl std::fmt::Display) -> ApiError {
        ApiError::conflict(&self.definition.group, &self.definition.plural, name, detail)
    }

    /// What a client hears of a log that failed in a way it can do nothing about.
    fn log_failed(&self, operation: &str, error: &LogError) -> ApiError {
        let ResourceDefinition { group, plural, .. } = &*self.definition;
        tracing::error!(error = error as &dyn std::error::Error, resource = plural, operation, "the log failed");
        match error {
            LogError::Unavailable(_) => ApiError::server_timeout(group, plural, operation, 2),
            LogError::TooLarge { .. } => {
                ApiError::new(413, "RequestEntityTooLarge", format!("Request entity too large: {error}"))
            }
            LogError::Conflict { .. }
            | LogError::Expired { .. }
            | LogError::Future { .. }
            | LogError::Held { .. }
            | LogError::Fenced { .. }
            | LogError::Corrupt(_) => ApiError::internal("the storage failed"),
        }
    }

    fn apply(&self, record: &Record) {
        let kept = match &record.change {
            Change::Delete => None,
            Change::Put(value) => Some(self.read_back(record.key.clone(), record.version, value)),
        };
        self.cache.apply(&record.key, record.version, kept, record.time_ms);
    }

    fn reset(&self, version: Version, entries: impl Iterator<Item = Entry>) {
        let kept = |entry: Entry| (entry.key.clone(), self.read_back(entry.key, entry.version, &entry.value));
        self.cache.reset(version, entries.map(kept).collect());
    }
}

#[cfg(test)]
pub mod tests;
