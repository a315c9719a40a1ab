//! A typed client of one kind for components of the same process, such as controllers.
//!
//! It goes through the [`Store`] like every other write: rules, strategy, admission and log.

use std::{
    fmt::Debug,
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt as _, stream, stream::BoxStream};
use serde::{Serialize, de::DeserializeOwned};
use stoa_log::Version;
use stoa_meta::{definition::Target, object::Object, request::RequestContext, status::ApiError};

use super::{DeleteOptions, Deleted, Event, ListOptions, Store, Stored, UpdateSource};

/// How long one watch of a subscription lasts before the next one takes over from it.
const WATCH_TIMEOUT: Duration = Duration::from_secs(3600);
/// How long a subscription waits after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// Reads and writes objects of kind `K`.
#[derive(Debug)]
pub struct Api<K> {
    store: Arc<Store>,
    context: RequestContext,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Api<K> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), context: self.context.clone(), kind: PhantomData }
    }
}

/// What a subscription tells.
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// This is everything there is: at the beginning, and after history was missed. Whatever the
    /// subscriber knows besides is gone.
    Restarted(Vec<K>),
    /// The object is new or changed.
    Applied(K),
    /// The object is gone; this was its last state.
    Deleted(K),
}

/// What a change of an object comes to: nothing to say, or a refusal.
pub trait ChangeResult {
    /// As a result.
    fn into_result(self) -> Result<(), ApiError>;
}

impl ChangeResult for () {
    fn into_result(self) -> Result<(), ApiError> {
        Ok(())
    }
}

impl ChangeResult for Result<(), ApiError> {
    fn into_result(self) -> Result<(), ApiError> {
        self
    }
}

impl<K> Api<K> {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store, context: RequestContext::internal("controller"), kind: PhantomData }
    }

    /// The same client acting in another context: another component, or a user.
    #[must_use]
    pub fn with_context(mut self, context: RequestContext) -> Self {
        self.context = context;
        self
    }

    /// The store under it.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }
}

impl<K> Api<K>
where
    K: kube_core::Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug + Send + 'static,
{
    /// Reads one object; the namespace of a cluster-scoped one is ignored. Fails with 404 when it does not exist.
    pub async fn get(&self, namespace: &str, name: &str) -> Result<K, ApiError> {
        decode(&*self.store.get(namespace, name, None).await?)
    }

    /// Reads one object, if it exists. Fails when it cannot be read.
    pub async fn get_opt(&self, namespace: &str, name: &str) -> Result<Option<K>, ApiError> {
        match self.get(namespace, name).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.code() == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lists the objects of one namespace, or of all, that a label selector matches.
    ///
    /// Objects that do not decode are left out, with an error in the log. Fails with 400 for a selector that does not
    /// parse.
    pub async fn list(&self, namespace: Option<&str>, label_selector: &str) -> Result<Vec<K>, ApiError> {
        let options = ListOptions { label_selector: Some(label_selector.to_owned()), ..ListOptions::default() };
        self.list_with(namespace, &options).await
    }

    /// Lists with any options, such as a field selector.
    pub async fn list_with(&self, namespace: Option<&str>, options: &ListOptions) -> Result<Vec<K>, ApiError> {
        self.list_of(namespace, options, Some).await
    }

    /// Lists what `of` makes of each object. One is decoded after the other: decoded objects take several times the memory
    /// that the list takes, and those of no interest are gone before the next.
    pub async fn list_of<T>(
        &self,
        namespace: Option<&str>,
        options: &ListOptions,
        of: impl FnMut(K) -> Option<T>,
    ) -> Result<Vec<T>, ApiError> {
        let list = self.store.list(namespace, options).await?;
        Ok(list.items.iter().filter_map(|object| decode(object).ok()).filter_map(of).collect())
    }

    /// Creates an object in the namespace that its metadata names.
    pub async fn create(&self, object: &K) -> Result<K, ApiError> {
        let object = encode(object)?;
        let namespace = object.namespace().to_owned();
        decode(&*self.store.create(&self.context, &namespace, object).await?)
    }

    /// Replaces an object, if it still is at the version that it carries; its status stays.
    ///
    /// # Errors
    ///
    /// As for [`Store::update`]; 409 `Conflict` when it was changed meanwhile.
    pub async fn replace(&self, object: &K) -> Result<K, ApiError> {
        self.put(object, Target::Main).await
    }

    /// Replaces an object's status, if it still is at the version that it carries.
    pub async fn replace_status(&self, object: &K) -> Result<K, ApiError> {
        self.put(object, Target::Status).await
    }

    async fn put(&self, object: &K, target: Target) -> Result<K, ApiError> {
        let object = encode(object)?;
        let (namespace, name) = (object.namespace().to_owned(), object.name().to_owned());
        self.update(&namespace, &name, target, UpdateSource::Object(object)).await
    }

    /// Changes the current object, again when another write comes between; its status stays.
    /// The change may refuse by returning an error, which is then the result.
    ///
    /// # Errors
    ///
    /// As for [`Store::update`], and whatever `change` returns.
    pub async fn update_with<R: ChangeResult>(
        &self,
        namespace: &str,
        name: &str,
        change: impl FnMut(&mut K) -> R + Send,
    ) -> Result<K, ApiError> {
        self.change(namespace, name, Target::Main, change).await
    }

    /// Changes the current object's status, again when another write comes between.
    pub async fn update_status_with<R: ChangeResult>(
        &self,
        namespace: &str,
        name: &str,
        change: impl FnMut(&mut K) -> R + Send,
    ) -> Result<K, ApiError> {
        self.change(namespace, name, Target::Status, change).await
    }

    async fn change<R: ChangeResult>(
        &self,
        namespace: &str,
        name: &str,
        target: Target,
        mut change: impl FnMut(&mut K) -> R + Send,
    ) -> Result<K, ApiError> {
        let source = UpdateSource::transform(|current| {
            let mut object = typed(current)?;
            change(&mut object).into_result()?;
            encode(&object)
        });
        self.update(namespace, name, target, source).await
    }

    async fn update(
        &self,
        namespace: &str,
        name: &str,
        target: Target,
        source: UpdateSource<'_>,
    ) -> Result<K, ApiError> {
        let (stored, _created) = self.store.update(&self.context, namespace, name, target, source).await?;
        decode(&stored)
    }

    /// Deletes an object, or marks it as being deleted while it has finalizers.
    pub async fn delete(&self, namespace: &str, name: &str, options: &DeleteOptions) -> Result<Deleted, ApiError> {
        self.store.delete(&self.context, namespace, name, options).await
    }

    /// Streams everything that happens to the objects of one namespace, or of all.
    ///
    /// Begins with what is there and goes on until the registry ends: when history was missed it
    /// starts over. Objects that do not decode are left out, with an error in the log.
    pub fn subscribe(&self, namespace: Option<&str>) -> BoxStream<'static, Change<K>> {
        self.subscribed(namespace, |stored| decode(stored))
    }

    /// The same for a type that has no more of the fields than are wanted, and not the version: the other fields cost
    /// next to nothing. The object itself is beside it, since it is in memory anyway.
    pub fn subscribe_stored<P: DeserializeOwned + Send + 'static>(
        &self,
        namespace: Option<&str>,
    ) -> BoxStream<'static, Change<(Arc<Stored>, P)>> {
        self.subscribed(namespace, |stored| Ok((Arc::clone(stored), decoded(stored, Stored::decode_part)?)))
    }

    fn subscribed<T: Send + 'static>(
        &self,
        namespace: Option<&str>,
        decode: fn(&Arc<Stored>) -> Result<T, ApiError>,
    ) -> BoxStream<'static, Change<T>> {
        subscribed(&self.store, namespace, Listing::default(), decode)
    }
}

impl Store {
    /// Streams everything that happens to the objects of one namespace, or of all, as they are stored: as
    /// [`Api::subscribe`] does, for whoever knows no type of them.
    ///
    /// What was answered before it is polled is in it by then, but for what a subscription that starts over has yet to list.
    pub fn subscribe(self: &Arc<Self>, namespace: Option<&str>) -> BoxStream<'static, Change<Arc<Stored>>> {
        self.subscribe_listing(namespace).0
    }

    /// The same, and whether it has yet to list what there is.
    pub fn subscribe_listing(
        self: &Arc<Self>,
        namespace: Option<&str>,
    ) -> (BoxStream<'static, Change<Arc<Stored>>>, Listing) {
        let listing = Listing::default();
        (subscribed(self, namespace, listing.clone(), |stored| Ok(Arc::clone(stored))), listing)
    }
}

/// Whether a subscription has yet to list what there is, at the beginning and after it missed history.
#[derive(Clone, Debug)]
pub struct Listing(Arc<AtomicBool>);

impl Default for Listing {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

impl Listing {
    /// As of when the subscription was polled last: until then it tells nothing of what it missed.
    pub fn is_due(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    fn set_due(&self, is_due: bool) {
        self.0.store(is_due, Ordering::SeqCst);
    }
}

fn subscribed<T: Send + 'static>(
    store: &Arc<Store>,
    namespace: Option<&str>,
    listing: Listing,
    decode: fn(&Arc<Stored>) -> Result<T, ApiError>,
) -> BoxStream<'static, Change<T>> {
    let namespace = namespace.map(str::to_owned);
    let subscriber = Subscriber { store: store.clone(), namespace, since: None, events: None, listing };
    stream::unfold(subscriber, move |mut subscriber| async move {
        subscriber.next(decode).await.map(|change| (change, subscriber))
    })
    .boxed()
}

/// A list followed by watches, over and over.
struct Subscriber {
    store: Arc<Store>,
    namespace: Option<String>,
    /// Everything up to here has been told; nothing when a list comes next.
    since: Option<Version>,
    events: Option<BoxStream<'static, Event>>,
    listing: Listing,
}

impl Subscriber {
    async fn next<T>(&mut self, decode: fn(&Arc<Stored>) -> Result<T, ApiError>) -> Option<Change<T>> {
        while !self.store.end.is_cancelled() {
            let Some(events) = &mut self.events else {
                match self.begin().await {
                    Ok(None) => {}
                    Ok(Some(objects)) => {
                        return Some(Change::Restarted(
                            objects.iter().filter_map(|object| decode(object).ok()).collect(),
                        ));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a subscription could not begin and will try again");
                        self.store.end.run_until_cancelled(tokio::time::sleep(RETRY)).await;
                    }
                }
                continue;
            };
            let change = match events.next().await {
                Some(Event::Added(object) | Event::Modified(object)) => {
                    self.since = Some(object.version);
                    decode(&object).map(Change::Applied)
                }
                Some(Event::Deleted(object)) => {
                    self.since = Some(object.version);
                    decode(&object).map(Change::Deleted)
                }
                Some(Event::Bookmark { version, .. }) => {
                    self.since = Some(version);
                    continue;
                }
                Some(Event::Error(error)) => {
                    tracing::info!(%error, "a subscription starts over");
                    (self.since, self.events) = (None, None);
                    self.listing.set_due(true);
                    continue;
                }
                // Its time is up; the next one goes on from here.
                None => {
                    self.events = None;
                    continue;
                }
            };
            // What does not decode has been logged, and is left out.
            if let Ok(change) = change {
                return Some(change);
            }
        }
        None
    }

    /// Begins with a list, which it returns, or goes on with a watch.
    async fn begin(&mut self) -> Result<Option<Vec<Arc<Stored>>>, ApiError> {
        let namespace = self.namespace.as_deref();
        let Some(since) = self.since else {
            let list = self.store.list(namespace, &ListOptions::default()).await?;
            self.since = Some(list.version);
            self.listing.set_due(false);
            return Ok(Some(list.items));
        };
        self.events = Some(self.store.watch_after(namespace, since, WATCH_TIMEOUT));
        Ok(None)
    }
}

fn decode<K: DeserializeOwned>(stored: &Stored) -> Result<K, ApiError> {
    decoded(stored, Stored::decode)
}

fn decoded<T>(stored: &Stored, decode: impl FnOnce(&Stored) -> Result<T, serde_json::Error>) -> Result<T, ApiError> {
    decode(stored).map_err(|error| {
        tracing::error!(key = %stored.key, %error, "stored object does not decode");
        ApiError::internal("the stored object does not decode")
    })
}

fn typed<K: DeserializeOwned>(object: &Object) -> Result<K, ApiError> {
    object.to_typed().map_err(|error| {
        tracing::error!(name = object.name(), %error, "stored object does not decode");
        ApiError::internal("the stored object does not decode")
    })
}

fn encode<K: Serialize>(object: &K) -> Result<Object, ApiError> {
    Object::from_typed(object).map_err(|error| ApiError::internal(format_args!("object does not encode: {error}")))
}
