//! Resources whose objects are not stored: they are computed from the objects of another resource, its base.
//!
//! Start at [`View`], which the server implements. A [`Store`] with a view has everything that kinds share: decoding,
//! strategies, field ownership, patches, admission and dry runs. It reads and writes through the base, so that an object and its
//! view have one resourceVersion, and a watch of either misses nothing.
//!
//! Elsewhere: `read`, `update` and `delete` ask [`Viewed`] where a store has one.

use std::{
    collections::HashMap,
    fmt,
    pin::pin,
    sync::{Arc, OnceLock},
};

use async_trait::async_trait;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream, stream::BoxStream};
use stoa_log::{Key, Version};
use stoa_meta::{
    definition::{ResourceDefinition, SelectableField},
    object::Object,
    request::RequestContext,
    status::ApiError,
};

use super::{Event, List, ListOptions, Registry, Store, Stored, WatchOptions, append::Outcome};
use crate::cache::{CacheEntry, Prepared};

/// How many objects of a list are computed at a time.
const AT_ONCE: usize = 16;
/// The most bytes of a list.
const LARGEST_LIST: usize = 256 << 20;

/// Computes the objects of one resource from those of another.
#[async_trait]
pub trait View: fmt::Debug + Send + Sync + 'static {
    /// Group, version and plural noun of the resource that is stored.
    fn base(&self) -> (&'static str, &'static str, &'static str);

    /// The object of the view, with its `managedFields`, for a stored object. It has the metadata of that one, and no
    /// resourceVersion.
    ///
    /// # Errors
    ///
    /// The [`ApiError`] that the reader gets, such as 503 where a document is out of reach.
    async fn view(&self, base: &Stored) -> Result<Object, ApiError>;

    /// The same for an object that was deleted: without its documents, which may not exist any more.
    fn view_of_deleted(&self, base: &Stored) -> Object;

    /// The same in a list or watch for an object whose view fails: without its documents, and with the error. One broken object
    /// hides no other.
    ///
    /// # Errors
    ///
    /// An [`ApiError`] that concerns every object, such as 503 of a server that is starting.
    fn view_of_unreadable(&self, base: &Stored, error: &ApiError) -> Result<Object, ApiError>;

    /// Whether two states of a stored object have the same view. Then a write that is based on the older one is not stale,
    /// and a watch does not report the newer one.
    fn is_same(&self, one: &Stored, other: &Stored) -> bool;

    /// Writes the stored object for a changed object of the view, if it is still at the version of `current`. Returns it, or
    /// nothing where another write came first.
    ///
    /// # Errors
    ///
    /// The [`ApiError`] that the client gets.
    async fn write(
        &self,
        context: &RequestContext,
        object: Object,
        current: &Stored,
        base: &Arc<Store>,
    ) -> Result<Option<Arc<Stored>>, ApiError>;
}

/// The view of a store.
pub(super) struct Viewed {
    view: Arc<dyn View>,
    fields: Vec<SelectableField>,
    base: OnceLock<Arc<Store>>,
}

impl fmt::Debug for Viewed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The base is shown as a store of its own.
        self.view.fmt(f)
    }
}

impl Viewed {
    pub(super) fn new(view: Arc<dyn View>, definition: &ResourceDefinition) -> Self {
        Self { view, fields: definition.selectable_fields.clone(), base: OnceLock::new() }
    }

    /// Finds the base among the resources of a registry.
    pub(super) fn find_base(&self, registry: &Registry) {
        let (group, version, plural) = self.view.base();
        let base = registry.store(group, version, plural).expect("the base of a view is a registered resource");
        self.base.get_or_init(|| base.clone());
    }

    /// The store of the base.
    pub(super) fn base(&self) -> Result<&Arc<Store>, ApiError> {
        self.base.get().ok_or_else(|| ApiError::service_unavailable("the server is starting"))
    }

    async fn of(&self, base: &Stored) -> Result<Arc<Stored>, ApiError> {
        self.stored(base, &self.view.view(base).await?)
    }

    /// The object in a list or watch, and whether its documents were read.
    async fn listed(&self, base: &Stored) -> Result<(Arc<Stored>, bool), ApiError> {
        match self.of(base).await {
            Ok(stored) => Ok((stored, true)),
            Err(error) => {
                let object = self.view.view_of_unreadable(base, &error)?;
                tracing::warn!(key = %base.key, %error, "the view of an object is listed without its documents");
                Ok((self.stored(base, &object)?, false))
            }
        }
    }

    fn stored(&self, base: &Stored, object: &Object) -> Result<Arc<Stored>, ApiError> {
        let prepared = Prepared::new(object, &self.fields).map_err(|error| {
            tracing::error!(key = %base.key, %error, "the view of an object does not encode");
            ApiError::internal("the object does not encode")
        })?;
        Ok(Arc::new(prepared.stored(base.key.clone(), base.version)))
    }

    pub(super) async fn get(
        &self,
        namespace: &str,
        name: &str,
        resource_version: Option<&str>,
    ) -> Result<Arc<Stored>, ApiError> {
        self.of(&*self.base()?.get(namespace, name, resource_version).await?).await
    }

    /// The object for a write, if it exists.
    pub(super) async fn current(&self, namespace: &str, name: &str) -> Result<Option<Arc<Stored>>, ApiError> {
        match self.get(namespace, name, None).await {
            Ok(stored) => Ok(Some(stored)),
            Err(error) if error.code() == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn list(&self, namespace: Option<&str>, options: &ListOptions) -> Result<List, ApiError> {
        let List { version, items, continue_token, remaining_item_count } =
            self.base()?.list(namespace, options).await?;
        let items = stream::iter(items)
            .map(|item| async move { self.listed(&item).await.map(|(stored, _)| stored) })
            .buffered(AT_ONCE);
        Ok(List { version, items: collected(items, LARGEST_LIST).await?, continue_token, remaining_item_count })
    }

    pub(super) async fn watch(
        &self,
        namespace: Option<&str>,
        options: &WatchOptions,
    ) -> Result<BoxStream<'static, Event>, ApiError> {
        let base = self.base()?.clone();
        let events = base.watch(namespace, options).await?;
        let viewed = Self { view: self.view.clone(), fields: self.fields.clone(), base: OnceLock::from(base) };
        let watching = Watching { viewed, events, reported: HashMap::new(), is_over: false };
        Ok(stream::unfold(watching, |mut watching| async move { Some((watching.next().await?, watching)) }).boxed())
    }

    /// Whether the object at an earlier version has the same view, as far as the watch cache knows.
    pub(super) fn is_unchanged(&self, version: u64, current: &Stored) -> bool {
        let Some(base) = self.base.get().filter(|_| version < current.version.0) else { return false };
        let Ok(then) = base.cache.at(Version(version)) else { return false };
        let now =
            base.cache.get(&current.key).filter(|now| now.object().is_some_and(|it| it.version == current.version));
        let then = then.objects.get(&current.key).and_then(CacheEntry::object);
        match (then, now.as_ref().and_then(CacheEntry::object)) {
            (Some(then), Some(now)) => then.uid() == now.uid() && self.view.is_same(then, now),
            _ => false,
        }
    }

    pub(super) async fn write(
        &self,
        context: &RequestContext,
        object: Object,
        current: &Stored,
    ) -> Result<Outcome<Arc<Stored>>, ApiError> {
        match self.view.write(context, object, current, self.base()?).await? {
            Some(base) => Ok(Outcome::Done(self.of(&base).await?)),
            None => Ok(Outcome::Lost),
        }
    }
}

/// The objects of a list, which are in memory together.
///
/// # Errors
///
/// 413 for more bytes than `most`, and the first error of the objects.
async fn collected(
    objects: impl Stream<Item = Result<Arc<Stored>, ApiError>>,
    most: usize,
) -> Result<Vec<Arc<Stored>>, ApiError> {
    let mut objects = pin!(objects);
    let (mut collected, mut bytes) = (Vec::new(), 0_usize);
    while let Some(object) = objects.try_next().await? {
        bytes = bytes.saturating_add(object.value().len());
        if bytes > most {
            let detail = "the objects of this list do not fit into memory; set a smaller limit, or get single objects";
            return Err(ApiError::request_entity_too_large(detail));
        }
        collected.push(object);
    }
    Ok(collected)
}

/// A watch of the base, whose events become those of the view.
struct Watching {
    viewed: Viewed,
    events: BoxStream<'static, Event>,
    /// The last states of the base that the watcher knows.
    reported: HashMap<Key, Arc<Stored>>,
    is_over: bool,
}

impl Watching {
    async fn listed(&mut self, base: &Stored) -> Result<Arc<Stored>, ApiError> {
        let (stored, is_readable) = self.viewed.listed(base).await?;
        if !is_readable {
            // The next state may be readable, so the watcher needs it even if it has the same documents.
            self.reported.remove(&base.key);
        }
        Ok(stored)
    }

    async fn next(&mut self) -> Option<Event> {
        while !self.is_over {
            let event = self.events.next().await?;
            let viewed = match &event {
                Event::Added(base) => {
                    self.reported.insert(base.key.clone(), base.clone());
                    self.listed(base).await.map(Event::Added)
                }
                Event::Modified(base) => {
                    let before = self.reported.insert(base.key.clone(), base.clone());
                    if before.is_some_and(|before| self.viewed.view.is_same(&before, base)) {
                        continue;
                    }
                    self.listed(base).await.map(Event::Modified)
                }
                Event::Deleted(base) => {
                    self.reported.remove(&base.key);
                    self.viewed.stored(base, &self.viewed.view.view_of_deleted(base)).map(Event::Deleted)
                }
                Event::Bookmark { .. } | Event::Error(_) => return Some(event),
            };
            return Some(viewed.unwrap_or_else(|error| {
                self.is_over = true;
                Event::Error(error)
            }));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[tokio::test]
    async fn list_of_too_many_bytes_is_rejected() {
        let Value::Object(object) = json!({"metadata": {"name": "web"}, "spec": {"text": "abc"}}) else {
            panic!("an object")
        };
        let stored = Stored::ephemeral(Key::new("/registry/a/b/c/web"), &Object(object), &[]).unwrap();
        let (bytes, stored) = (stored.value().len(), Arc::new(stored));
        let list = |most: usize| collected(stream::iter([Ok(stored.clone()), Ok(stored.clone())]), most);
        assert_eq!(list(2 * bytes).await.unwrap().len(), 2);
        assert_eq!(list(2 * bytes - 1).await.unwrap_err().code(), 413);
    }
}
