//! Resources whose objects are computed from those of other resources, any number of them from a few.
//!
//! Start at [`Computed`], which the server implements. A [`Store`] with one reads nothing from its cache: it asks for pages of
//! objects, and applies selectors to them. Such a resource has no writes. A watch computes the objects anew after a change of a
//! base, and reports the differences; it keeps a digest of each object, and no object.
//!
//! Elsewhere: [`view`](super::view) has resources with one object for each object of one base.

use std::{
    collections::{BTreeMap, VecDeque},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream, stream::BoxStream};
use serde_json::json;
use stoa_log::{Key, Version};
use stoa_meta::{definition::SelectableField, object::Object, status::ApiError};
use tokio::time::Instant;

use super::{Event, List, ListOptions, Registry, Store, Stored, WatchOptions, read::Selection, token, token::Continue};
use crate::cache::Prepared;

/// How many objects are asked for at a time.
const PAGE: usize = 500;
/// How long changes of the bases are gathered before the objects are computed anew.
const GATHER: Duration = Duration::from_millis(200);

/// A limited number of computed objects, in the order of namespace and name.
#[derive(Clone, Copy, Debug)]
pub struct PageRequest<'p> {
    /// The namespace; `None` or empty for all.
    pub namespace: Option<&'p str>,
    /// The namespace and the name of the last object before the page.
    pub after: Option<(&'p str, &'p str)>,
    /// The most objects.
    pub most: usize,
    /// The version of the list. All of its pages have the same one.
    pub version: Version,
}

/// Computes the objects of a resource from those of others.
#[async_trait]
pub trait Computed: std::fmt::Debug + Send + Sync + 'static {
    /// Group, version and plural noun of the resources that the objects follow from.
    fn bases(&self) -> Vec<(&'static str, &'static str, &'static str)>;

    /// One object, if it exists.
    ///
    /// # Errors
    ///
    /// The [`ApiError`] that the reader gets.
    async fn get(&self, namespace: &str, name: &str) -> Result<Option<Object>, ApiError>;

    /// A page of objects: fewer than the most where no others follow.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    async fn page(&self, request: PageRequest<'_>) -> Result<Vec<Object>, ApiError>;

    /// Whether further pages of a list at this version have the same objects, perhaps with newer statuses, though a base has
    /// changed since. Where they have not, the client lists again.
    async fn remembers(&self, _namespace: Option<&str>, _version: Version) -> bool {
        false
    }

    /// Whether all objects of a list at this version are known, so that a watch from it hears of every change since. A list that
    /// ended has asked for all of them.
    async fn remembers_all(&self, namespace: Option<&str>, version: Version) -> bool {
        self.remembers(namespace, version).await
    }
}

/// The computation of a store.
#[derive(Clone, educe::Educe)]
#[educe(Debug)]
pub(super) struct Computation {
    computed: Arc<dyn Computed>,
    fields: Vec<SelectableField>,
    /// The store of the objects itself, and those of the bases, which are shown as stores of their own.
    #[educe(Debug(ignore))]
    stores: OnceLock<(Weak<Store>, Vec<Arc<Store>>)>,
}

impl Computation {
    pub(super) fn new(computed: Arc<dyn Computed>, fields: &[SelectableField]) -> Self {
        Self { computed, fields: fields.to_vec(), stores: OnceLock::new() }
    }

    /// Finds the bases among the resources of a registry.
    pub(super) fn find_bases(&self, registry: &Registry, own: &Arc<Store>) {
        let find = |(group, version, plural): (&str, &str, &str)| {
            registry.store(group, version, plural).expect("the base of a computed resource is registered").clone()
        };
        self.stores.get_or_init(|| (Arc::downgrade(own), self.computed.bases().into_iter().map(find).collect()));
    }

    fn stores(&self) -> Result<&(Weak<Store>, Vec<Arc<Store>>), ApiError> {
        self.stores.get().ok_or_else(|| ApiError::service_unavailable("the server is starting"))
    }

    fn stored(&self, store: &Store, object: &Object, version: Version) -> Result<Arc<Stored>, ApiError> {
        let key = store.key(object.namespace(), object.name());
        let prepared = Prepared::new(object, &self.fields).map_err(|error| {
            tracing::error!(%key, %error, "a computed object does not encode");
            ApiError::internal("the object does not encode")
        })?;
        Ok(Arc::new(prepared.stored(key, version)))
    }

    pub(super) async fn get(
        &self,
        store: &Store,
        namespace: &str,
        name: &str,
        resource_version: Option<&str>,
    ) -> Result<Arc<Stored>, ApiError> {
        let version = store.reach_for_computed("get", resource_version).await?;
        let found = self.computed.get(namespace, name).await?;
        self.stored(store, &found.ok_or_else(|| store.not_found(name))?, version)
    }

    pub(super) async fn list(
        &self,
        store: &Store,
        namespace: Option<&str>,
        options: &ListOptions,
    ) -> Result<List, ApiError> {
        let mut selection = store.selection(namespace, options)?;
        let token = options.token().map(Continue::decode).transpose()?;
        let version = store.reach_for_computed("list", options.resource_version.as_deref()).await?;
        let limit = options.limit.filter(|limit| *limit > 0);
        let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        if let Some(token) = token {
            let of = token.version.unwrap_or(version);
            let is_remembered = self.computed.remembers(namespace, of).await;
            if !is_remembered && of != version && self.have_changed(of)? {
                return Err(token::expired(token));
            }
            selection = selection.of_a_further_page(store, namespace);
            let version = if is_remembered { of } else { version };
            return self.pages(store, namespace, (&selection, Some(token.after), limit, version)).await;
        }
        self.pages(store, namespace, (&selection, None, limit, version)).await
    }

    /// The selected objects after a key, up to a limit.
    async fn pages(
        &self,
        store: &Store,
        namespace: Option<&str>,
        (selection, mut after, limit, version): (&Selection, Option<String>, usize, Version),
    ) -> Result<List, ApiError> {
        let prefix = store.prefix(namespace);
        let mut items: Vec<Arc<Stored>> = Vec::new();
        loop {
            let position = after.as_deref().map(|after| position(namespace, after));
            // One more, which says whether another page follows.
            let wanted = limit.saturating_sub(items.len()).saturating_add(1).min(PAGE);
            let request = PageRequest { namespace, after: position, most: wanted, version };
            let page = self.computed.page(request).await?;
            let is_last = page.len() < wanted;
            for object in &page {
                let stored = self.stored(store, object, version)?;
                if !selection.matches(&stored) {
                    after = Some(stored.key.as_str()[prefix.len()..].to_owned());
                    continue;
                }
                if items.len() == limit {
                    let next = Continue {
                        version: Some(version),
                        after: after.unwrap_or_default(),
                        remaining: None,
                        exact: false,
                    };
                    return Ok(List {
                        version,
                        items,
                        continue_token: Some(next.encode()),
                        remaining_item_count: None,
                    });
                }
                after = Some(stored.key.as_str()[prefix.len()..].to_owned());
                items.push(stored);
            }
            if is_last {
                return Ok(List { version, items, continue_token: None, remaining_item_count: None });
            }
        }
    }

    /// Whether a base has changed since a version, as far as is known.
    fn have_changed(&self, since: Version) -> Result<bool, ApiError> {
        Ok(self.stores()?.1.iter().any(|base| base.last_change() > since))
    }

    pub(super) async fn watch(
        &self,
        namespace: Option<&str>,
        options: &WatchOptions,
    ) -> Result<BoxStream<'static, Event>, ApiError> {
        let (own, bases) = self.stores()?;
        let store = own.upgrade().ok_or_else(|| ApiError::service_unavailable("the server is shutting down"))?;
        let selection = store.watched(namespace, options)?;
        if options.timeout.is_zero() {
            return Ok(stream::empty().boxed());
        }
        let wanted = options.resource_version.as_deref().filter(|version| !matches!(*version, "" | "0"));
        let version = store.reach_for_computed("watch", options.resource_version.as_deref()).await?;
        let is_initial = options.send_initial_events.unwrap_or(wanted.is_none());
        let since = wanted.filter(|_| !is_initial).and_then(|since| since.parse::<u64>().ok()).map(Version);
        let changed_since = match since {
            Some(since) if self.have_changed(since)? => Some(since),
            Some(_) | None => None,
        };
        if let Some(since) = changed_since
            && !self.computed.remembers_all(namespace, since).await
        {
            let expired = ApiError::expired("the objects have changed since this resource version; list them again");
            return Ok(stream::iter([Event::Error(expired)]).boxed());
        }
        let bases = bases.iter().map(|base| base.watch_after(None, version, options.timeout));
        let mut watching = Watching {
            computation: self.clone(),
            store,
            namespace: namespace.map(str::to_owned),
            selection,
            changes: stream::select_all(bases),
            known: BTreeMap::new(),
            events: VecDeque::new(),
            until: Instant::now() + options.timeout,
            is_over: false,
        };
        if let Some(since) = changed_since {
            // The watcher has the objects of its list. It gets only those that differ now.
            watching.compute(since, false).await?;
        }
        watching.compute(version, is_initial || changed_since.is_some()).await?;
        if is_initial && options.allow_bookmarks && options.send_initial_events == Some(true) {
            watching.events.push_back(Event::Bookmark { version, initial_events_end: true });
        }
        Ok(stream::unfold(watching, |mut watching| async move { Some((watching.next().await?, watching)) }).boxed())
    }
}

/// The namespace and name of a key after the prefix of a list.
fn position<'k>(namespace: Option<&'k str>, after: &'k str) -> (&'k str, &'k str) {
    match namespace.filter(|namespace| !namespace.is_empty()) {
        Some(namespace) => (namespace, after),
        None => after.split_once('/').unwrap_or((after, "")),
    }
}

/// A watch, which compares the objects after each change of a base with those before it.
struct Watching {
    computation: Computation,
    store: Arc<Store>,
    namespace: Option<String>,
    selection: Selection,
    changes: stream::SelectAll<BoxStream<'static, Event>>,
    /// The digests of the objects that the watcher knows.
    known: BTreeMap<Key, u64>,
    events: VecDeque<Event>,
    until: Instant,
    is_over: bool,
}

impl Watching {
    /// Computes the objects, and reports those that differ.
    async fn compute(&mut self, version: Version, reports: bool) -> Result<(), ApiError> {
        let namespace = self.namespace.clone();
        let request = (&self.selection, None, usize::MAX, version);
        let List { items, .. } = self.computation.pages(&self.store, namespace.as_deref(), request).await?;
        let mut known = BTreeMap::new();
        for stored in items {
            let mut hasher = DefaultHasher::new();
            stored.value().hash(&mut hasher);
            let (digest, key) = (hasher.finish(), stored.key.clone());
            let before = self.known.remove(&key);
            known.insert(key, digest);
            match before {
                Some(before) if before == digest => {}
                Some(_) if reports => self.events.push_back(Event::Modified(stored)),
                None if reports => self.events.push_back(Event::Added(stored)),
                Some(_) | None => {}
            }
        }
        for (key, _) in std::mem::replace(&mut self.known, known) {
            self.events.push_back(Event::Deleted(self.gone(&key, version)?));
        }
        Ok(())
    }

    /// A removed object, with the known part of its metadata.
    fn gone(&self, key: &Key, version: Version) -> Result<Arc<Stored>, ApiError> {
        let definition = &self.store.definition;
        let (namespace, name) = position(None, &key.as_str()[definition.key_prefix().len()..]);
        let api_version = format!("{}/{}", definition.group, definition.version);
        let metadata = json!({ "namespace": namespace, "name": name });
        let object = json!({ "apiVersion": api_version, "kind": definition.kind, "metadata": metadata });
        let serde_json::Value::Object(object) = object else { return Err(ApiError::internal("it is an object")) };
        self.computation.stored(&self.store, &Object(object), version)
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if self.is_over {
                return None;
            }
            let change = tokio::time::timeout_at(self.until, self.changes.next()).await.ok()??;
            match change {
                Event::Bookmark { version, .. } => return Some(Event::Bookmark { version, initial_events_end: false }),
                Event::Error(error) => {
                    self.is_over = true;
                    return Some(Event::Error(error));
                }
                Event::Added(_) | Event::Modified(_) | Event::Deleted(_) => {}
            }
            // Others follow as a rule, and are in the same computation.
            let gathered = Instant::now() + GATHER;
            while let Ok(Some(_)) = tokio::time::timeout_at(gathered, self.changes.next()).await {}
            let version = self.store.cache.progress().applied();
            if let Err(error) = self.compute(version, true).await {
                self.is_over = true;
                return Some(Event::Error(error));
            }
        }
    }
}
