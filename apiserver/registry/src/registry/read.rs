//! Reads: get, list and watch, all from the watch cache.
//!
//! What `resourceVersion` asks for is decided here, once for all three.

use std::{
    cell::Cell,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream::BoxStream};
use stoa_log::{Key, Version};
use stoa_meta::{
    definition::Scope,
    selector::{FieldSelector, FieldTerms, LabelSelector},
    status::{ApiError, FieldError, quote},
};

use super::{Event, List, ListOptions, Store, Stored, WatchOptions, historical_reads, token, token::Continue};
use crate::cache::{CacheEntry, TooOld, View, WatchRequest};

/// How long a read waits for a version that has not come yet.
const FRESH_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a read waits for the cache to reach the log's head. Only a server in trouble takes so long.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How fresh a read must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Freshness {
    Current,
    Any,
    NotOlderThan(Version),
}

impl Freshness {
    /// What a `resourceVersion` parameter asks for.
    ///
    /// One that is no number is a 500 without a reason, which is what upstream answers.
    fn parse(parameter: Option<&str>) -> Result<Self, ApiError> {
        match parameter {
            None | Some("") => Ok(Self::Current),
            Some("0") => Ok(Self::Any),
            Some(text) => match parse_version(text) {
                Ok(version) => Ok(Self::NotOlderThan(Version(version))),
                Err(detail) => {
                    let error = FieldError::invalid("resourceVersion", text, detail);
                    Err(ApiError::new(500, "", format!("{}: {}", error.field, error.message)))
                }
            },
        }
    }
}

/// Reads a version as Go's `strconv.ParseUint` does, or says why not in its words.
pub(super) fn parse_version(text: &str) -> Result<u64, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let why = if is_number { "value out of range" } else { "invalid syntax" };
    text.parse().ok().filter(|_| is_number).ok_or_else(|| format!("strconv.ParseUint: parsing {}: {why}", quote(text)))
}

/// 504 for a version that has not come, with the seconds after which to try again.
fn too_large(version: Version, current: Version, retry_after: i32) -> ApiError {
    ApiError::timeout(format!("Too large resource version: {version}, current: {current}"), retry_after).with_cause(
        "ResourceVersionTooLarge",
        "",
        "Too large resource version",
    )
}

impl Store {
    /// Reads one object. `resource_version`: unset for the current state, `0` for whatever is at
    /// hand, a number for nothing older.
    ///
    /// # Errors
    ///
    /// 404 when it does not exist; 500 when what is stored does not decode, see
    /// [`is_undecodable`](super::is_undecodable); 504 with cause `ResourceVersionTooLarge` when the
    /// version has not come after 3 s.
    pub async fn get(
        &self,
        namespace: &str,
        name: &str,
        resource_version: Option<&str>,
    ) -> Result<Arc<Stored>, ApiError> {
        if let Some(view) = &self.view {
            return Box::pin(view.get(namespace, name, resource_version)).await;
        }
        if let Some(computed) = &self.computed {
            return Box::pin(computed.get(self, namespace, name, resource_version)).await;
        }
        self.freshen("get", Freshness::parse(resource_version)?).await?;
        self.readable(self.cache.get(&self.key(namespace, name)))?.ok_or_else(|| self.not_found(name))
    }

    /// Lists objects of one namespace or of all, in key order.
    ///
    /// # Errors
    ///
    /// 400 for selectors and tokens that do not parse; 422 for options that do not go together;
    /// 410 when the version asked for is outside the window, for a token with another one in
    /// `metadata.continue`; 504 as for [`get`](Self::get).
    pub async fn list(&self, namespace: Option<&str>, options: &ListOptions) -> Result<List, ApiError> {
        if let Some(view) = &self.view {
            return Box::pin(view.list(namespace, options)).await;
        }
        if let Some(computed) = &self.computed {
            return Box::pin(computed.list(self, namespace, options)).await;
        }
        let selection = self.selection(namespace, options)?;
        let version = options.resource_version.as_deref().filter(|version| !version.is_empty());
        // What is at hand is given whole, as upstream's watch cache gives it.
        let limit = options.limit.filter(|limit| *limit > 0 && version != Some("0"));
        if let Some(text) = options.token() {
            let selection = selection.of_a_further_page(self, namespace);
            let token = Continue::decode(text)?;
            if version.is_some_and(|version| version != "0") {
                return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
            }
            let view = match token.version {
                None => self.current("list").await?,
                Some(version) => {
                    self.freshen("list", Freshness::NotOlderThan(version)).await?;
                    match self.cache.at(version) {
                        Ok(view) => view,
                        Err(TooOld { .. }) if token.exact && self.has_history() => {
                            return self.past_page(version, &selection, limit, Some(&token.after)).await;
                        }
                        Err(TooOld { .. }) => return Err(token::expired(token)),
                    }
                }
            };
            let exact = token.exact;
            return Ok(self.page(view, &selection, limit, Some(token), exact));
        }
        let freshness = Freshness::parse(version)
            .map_err(|error| ApiError::bad_request(format!("invalid resource version: {}", error.message())))?;
        if let Freshness::NotOlderThan(version) = freshness
            && selection.is_of_one
            && options.is_of_a_version()
        {
            // Such a list does not wait: upstream has it from etcd.
            let head = self.log.head().await.map_err(|error| self.log_failed("list", &error))?;
            if version > head {
                return Err(too_large(version, head, 0));
            }
        }
        let fresh = self.freshen("list", freshness).await;
        if freshness == Freshness::Current {
            self.cache.counts().read_consistently(fresh.is_ok());
        }
        fresh?;
        // A limit asks for an exact version, too, but a client that says nothing else goes on from now when that is gone.
        let exact = options.says_exact() && self.has_history();
        let view = match freshness {
            Freshness::NotOlderThan(version) if options.wants_exact(selection.is_of_one) => {
                match self.cache.at(version) {
                    Ok(view) => view,
                    Err(TooOld { .. }) if exact => return self.past_page(version, &selection, limit, None).await,
                    Err(TooOld { .. }) => return Err(historical_reads::too_old()),
                }
            }
            Freshness::NotOlderThan(_) | Freshness::Current | Freshness::Any => self.cache.current(),
        };
        Ok(self.page(view, &selection, limit, None, exact))
    }

    /// Which objects a list is about, once nothing is wrong with how it says that.
    /// Fails with 400 for selectors that do not parse; 422 for options that do not go together.
    pub(super) fn selection(&self, namespace: Option<&str>, options: &ListOptions) -> Result<Selection, ApiError> {
        let selectors = Selectors::parse(&options.label_selector, &options.field_selector)?;
        options.validate()?;
        Selection::new(self, namespace, selectors, None)
    }

    /// The same of a watch.
    pub(super) fn watched(&self, namespace: Option<&str>, options: &WatchOptions) -> Result<Selection, ApiError> {
        let selectors = Selectors::parse(&options.label_selector, &options.field_selector)?;
        options.validate()?;
        Selection::new(self, namespace, selectors, options.name.as_deref())
    }

    /// Streams changes of the objects of one namespace or of all, until the timeout.
    ///
    /// Without a version, and with `0`, it begins with what is there. A version outside the
    /// window makes a stream of one [`Event::Error`] with 410 `Expired`, as upstream.
    ///
    /// # Errors
    ///
    /// 400 for selectors that do not parse; 422 for options that do not go together; 504 as for
    /// [`get`](Self::get), when initial events are asked for at a version that has not come.
    pub async fn watch(
        &self,
        namespace: Option<&str>,
        options: &WatchOptions,
    ) -> Result<BoxStream<'static, Event>, ApiError> {
        if let Some(view) = &self.view {
            return Box::pin(view.watch(namespace, options)).await;
        }
        if let Some(computed) = &self.computed {
            return Box::pin(computed.watch(namespace, options)).await;
        }
        let selection = self.watched(namespace, options)?;
        let freshness = Freshness::parse(options.resource_version.as_deref())?;
        if options.timeout.is_zero() {
            return Ok(futures_util::stream::empty().boxed());
        }
        let initial = options.send_initial_events.unwrap_or(!matches!(freshness, Freshness::NotOlderThan(_)));
        let (since, initial_objects) = match freshness {
            // One that is too old is the watch's first event.
            Freshness::NotOlderThan(version) if !initial => (version, Vec::new()),
            Freshness::NotOlderThan(_) | Freshness::Current | Freshness::Any => {
                self.freshen("watch", freshness).await?;
                let view = self.cache.current();
                let objects = if initial { selection.objects(&view).cloned().collect() } else { Vec::new() };
                (view.version, objects)
            }
        };
        let mark_initial_end = options.send_initial_events == Some(true) && options.allow_bookmarks;
        // The version of the request, or of the bookmark that ends what there was, is known; of what there was without
        // one, that of the newest object.
        let known = match initial && !mark_initial_end {
            true => initial_objects.iter().map(|object| object.version).max(),
            false => Some(since),
        };
        let request = WatchRequest {
            prefix: selection.prefix,
            labels: selection.labels,
            fields: selection.fields,
            initial: initial_objects,
            mark_initial_end,
            since,
            known: known.unwrap_or_default(),
            bookmarks: options.allow_bookmarks.then_some(self.bookmark_interval),
            timeout: options.timeout,
        };
        Ok(crate::cache::watch(self.cache.clone(), request, self.end.clone()))
    }

    /// Streams what comes after `since`, for components of this server.
    pub(super) fn watch_after(
        &self,
        namespace: Option<&str>,
        since: Version,
        timeout: Duration,
    ) -> BoxStream<'static, Event> {
        let request = WatchRequest {
            prefix: self.prefix(namespace),
            labels: LabelSelector::default(),
            fields: FieldSelector::default(),
            initial: Vec::new(),
            mark_initial_end: false,
            since,
            known: since,
            bookmarks: Some(self.bookmark_interval),
            timeout,
        };
        crate::cache::watch(self.cache.clone(), request, self.end.clone())
    }

    async fn current(&self, operation: &str) -> Result<View, ApiError> {
        self.freshen(operation, Freshness::Current).await?;
        Ok(self.cache.current())
    }

    /// Waits until the caches have what a read of computed objects asks for, and gives the version that they have.
    pub(super) async fn reach_for_computed(
        &self,
        operation: &str,
        resource_version: Option<&str>,
    ) -> Result<Version, ApiError> {
        self.freshen(operation, Freshness::parse(resource_version)?).await?;
        Ok(self.cache.progress().applied())
    }

    pub(super) async fn freshen_to(&self, operation: &str, version: Version) -> Result<(), ApiError> {
        self.freshen(operation, Freshness::NotOlderThan(version)).await
    }

    async fn freshen(&self, operation: &str, freshness: Freshness) -> Result<(), ApiError> {
        let progress = self.cache.progress();
        match freshness {
            Freshness::Any => Ok(()),
            Freshness::Current => {
                let head = self.log.head().await.map_err(|error| self.log_failed(operation, &error))?;
                let reached = self.waited(tokio::time::timeout(HEAD_TIMEOUT, progress.reach(head)));
                match self.end.run_until_cancelled(reached).await {
                    Some(Ok(())) => Ok(()),
                    Some(Err(_)) => Err(ApiError::timeout("the watch cache has not caught up with the log", 1)),
                    None => Err(ApiError::service_unavailable("the server is shutting down")),
                }
            }
            Freshness::NotOlderThan(version) => {
                let reached = self.waited(tokio::time::timeout(FRESH_TIMEOUT, progress.reach(version))).await;
                reached.map_err(|_| too_large(version, progress.applied(), 1))
            }
        }
    }

    /// Waits, and counts how long.
    async fn waited<T>(&self, wait: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let reached = wait.await;
        self.cache.counts().waited(began.elapsed());
        reached
    }

    /// Waits until the cache shows a write that is durable already. A server that ends, or whose
    /// cache is in trouble, does not keep the writer from its answer.
    pub(super) async fn wait_applied(&self, version: Version) {
        let applied = tokio::time::timeout(HEAD_TIMEOUT, self.cache.progress().reach(version));
        if self.end.run_until_cancelled(applied).await.is_some_and(|applied| applied.is_err()) {
            tracing::warn!(%version, "a write is durable, and the watch cache does not show it yet");
        }
    }

    /// What is at a key now, for a write that will be checked against it.
    pub(super) async fn current_kept(&self, operation: &str, key: &Key) -> Result<Option<CacheEntry>, ApiError> {
        self.freshen(operation, Freshness::Current).await?;
        Ok(self.cache.get(key))
    }

    fn page(
        &self,
        view: View,
        selection: &Selection,
        limit: Option<u64>,
        token: Option<Continue>,
        exact: bool,
    ) -> List {
        let max = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let after = token.as_ref().map(|token| token.after.as_str());
        let fetched = Cell::new(0);
        let objects = selection.all_objects(&view, after).inspect(|_| fetched.set(fetched.get() + 1));
        let mut objects = objects.filter(|object| selection.matches(object));
        let items: Vec<Arc<Stored>> = objects.by_ref().take(max).cloned().collect();
        // Whatever comes after the page makes another one, selected or not, as upstream.
        let more = items.len() == max && items.last().is_some_and(|last| selection.is_more_after(&view, &last.key));
        let after = items.last().filter(|_| more).map(|last| last.key.as_str()[selection.prefix.len()..].to_owned());
        let Some(after) = after else {
            drop(objects);
            self.cache.counts().listed(fetched.get(), items.len());
            return List { version: view.version, items, continue_token: None, remaining_item_count: None };
        };
        let page = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let remaining = selection.is_everything().then(|| match token.as_ref().and_then(|token| token.remaining) {
            Some(before) => before - page,
            None => i64::try_from(objects.count()).unwrap_or(i64::MAX),
        });
        let next = Continue { version: Some(view.version), after, remaining, exact };
        self.cache.counts().listed(fetched.get(), items.len());
        self.cache.keep(&view);
        List { version: view.version, items, continue_token: Some(next.encode()), remaining_item_count: next.remaining }
    }
}

/// The selectors of a list or watch, read before its other options are looked at and their fields after that, as
/// upstream does it: this decides what is told when more than one is wrong.
struct Selectors<'a> {
    labels: LabelSelector,
    fields: FieldTerms<'a>,
}

impl<'a> Selectors<'a> {
    fn parse(labels: &'a Option<String>, fields: &'a Option<String>) -> Result<Self, ApiError> {
        Ok(Self {
            labels: LabelSelector::parse(labels.as_deref().unwrap_or(""))?,
            fields: FieldTerms::parse(fields.as_deref().unwrap_or(""))?,
        })
    }
}

/// Which objects a list or watch is about.
pub(super) struct Selection {
    pub(super) prefix: String,
    /// Whether the prefix is the key of the only object that it can be.
    is_of_one: bool,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    /// What `selectors` leave of a namespace or of all; of one object where a `name` is given.
    fn new(
        store: &Store,
        namespace: Option<&str>,
        selectors: Selectors<'_>,
        name: Option<&str>,
    ) -> Result<Self, ApiError> {
        let labels = selectors.labels;
        let mut fields = selectors.fields.of(store.cache.fields())?;
        if let Some(name) = name {
            if fields.is_empty() {
                fields = FieldSelector::of_name(name);
            } else if fields.exact_name() != Some(name) {
                return Err(ApiError::bad_request("fieldSelector metadata.name doesn't match requested name"));
            }
        }
        let namespace = namespace.filter(|namespace| !namespace.is_empty()).or_else(|| fields.exact_namespace());
        let one = match (store.definition.scope, namespace, fields.exact_name()) {
            // What else begins like its key the selector leaves out.
            (Scope::Cluster, _, Some(name)) => Some(store.key("", name)),
            (Scope::Namespaced, Some(namespace), Some(name)) => Some(store.key(namespace, name)),
            (Scope::Namespaced, _, _) | (Scope::Cluster, _, None) => None,
        };
        let is_of_one = one.is_some();
        let prefix = one.map_or_else(|| store.prefix(namespace), |key| key.as_str().to_owned());
        Ok(Self { prefix, is_of_one, labels, fields })
    }

    /// The same for a token, which counts from where the objects of the namespace are, whichever of them is wanted.
    pub(super) fn of_a_further_page(self, store: &Store, namespace: Option<&str>) -> Self {
        let namespace = namespace.filter(|namespace| !namespace.is_empty()).or_else(|| self.fields.exact_namespace());
        Self { prefix: store.prefix(namespace), is_of_one: false, ..self }
    }

    /// Whether a view has an object after this key, selected or not. After the only one that is asked for there is none,
    /// whatever else begins like its key.
    fn is_more_after(&self, view: &View, key: &Key) -> bool {
        if self.is_of_one {
            return false;
        }
        let after = view.objects.range(Key::new(format!("{}\0", key.as_str()))..);
        let mut after = after.take_while(|(key, _)| key.as_str().starts_with(&self.prefix));
        after.any(|(_, kept)| kept.object().is_some())
    }

    pub(super) fn matches(&self, object: &Stored) -> bool {
        self.is_everything() || object.matches(&self.labels, &self.fields)
    }

    fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The objects of a view that are selected.
    fn objects<'a>(&'a self, view: &'a View) -> impl Iterator<Item = &'a Arc<Stored>> {
        self.all_objects(view, None).filter(|object| self.matches(object))
    }

    /// The objects of a view from which it selects, after the key `prefix + after` when there is one.
    fn all_objects<'a>(
        &'a self,
        view: &'a View,
        after: Option<&str>,
    ) -> impl Iterator<Item = &'a Arc<Stored>> + use<'a> {
        // No key ends in a zero byte, so this is the first that can come after.
        let start = Key::new(match after {
            Some(after) => format!("{}{after}\0", self.prefix),
            None => self.prefix.clone(),
        });
        // A bound costs less than a look at the key of each object.
        let end = Key::new(after_all(&self.prefix));
        view.objects.range(start..end).filter_map(|(_, kept)| kept.object())
    }
}

/// What comes after all texts that begin with this one, which is not empty.
fn after_all(prefix: &str) -> String {
    let mut end = prefix.to_owned();
    let last = end.pop().map_or(0, u32::from);
    // After the last character there is only what begins with it, and no key does.
    end.push(char::from_u32(last + 1).unwrap_or(char::MAX));
    end
}
