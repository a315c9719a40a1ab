//! The configuration of admission in a cluster, kept up to date by watches.
//!
//! kube-apiserver runs no admission for the servers behind it, so they read the same objects and run it themselves.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::{
    Api, Client,
    runtime::{
        WatchStreamExt as _, reflector,
        watcher::{self, watcher},
    },
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use stoa_meta::{errors::chain, status::ApiError};
use stoa_registry::admission::Attributes;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cluster_namespaces::ClusterNamespaces;

/// How long a request waits for configurations that have not been read yet, or are being compiled; upstream's `timeToWaitForReady`.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// Something made of all objects of one kind, made again whenever they change.
///
/// Making it takes a while, as where policies are compiled. A request that comes after a change was received waits until the
/// change counts ([`get`](Self::get)): no write passes a policy that this server knows of.
#[derive(educe::Educe)]
#[educe(Debug)]
pub struct Watched<T> {
    #[educe(Debug(ignore))]
    current: ArcSwap<T>,
    progress: watch::Sender<Progress>,
}

/// How many changes there were; the first is the list of all objects.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    received: u64,
    /// The number of those that count in what was made last.
    made: u64,
}

impl Progress {
    fn is_current(self) -> bool {
        self.made > 0 && self.made == self.received
    }
}

impl<T: Send + Sync + 'static> Watched<T> {
    /// Something that is as it is.
    pub fn fixed(value: T) -> Arc<Self> {
        let progress = watch::Sender::new(Progress { received: 1, made: 1 });
        Arc::new(Self { current: ArcSwap::from_pointee(value), progress })
    }

    /// Watches all objects of a kind in the cluster until `end`, and makes of them what `make` does, on a thread that may
    /// block.
    pub fn follow<K>(
        client: Client,
        end: CancellationToken,
        make: impl FnMut(Vec<Arc<K>>) -> T + Send + 'static,
    ) -> Arc<Self>
    where
        K: kube::Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let (store, writer) = reflector::store::<K>();
        let changes = watcher(Api::<K>::all(client), watcher::Config::default()).default_backoff().reflect(writer);
        Self::of_changes(changes, store, end, make)
    }

    /// The same of changes that are in `store` already when they come.
    pub(super) fn of_changes<K>(
        changes: impl Stream<Item = Result<watcher::Event<K>, watcher::Error>> + Send + 'static,
        store: reflector::Store<K>,
        end: CancellationToken,
        mut make: impl FnMut(Vec<Arc<K>>) -> T + Send + 'static,
    ) -> Arc<Self>
    where
        K: kube::Resource<DynamicType = ()> + Clone + fmt::Debug + Send + Sync + 'static,
    {
        let (current, progress) = (ArcSwap::from_pointee(make(Vec::new())), watch::Sender::new(Progress::default()));
        let this = Arc::new(Self { current, progress });
        // Two tasks, so that a change is received while an earlier one is being made.
        tokio::spawn(receive(changes, end, Arc::downgrade(&this)));
        tokio::spawn(make_again(store, this.progress.subscribe(), Arc::downgrade(&this), make));
        this
    }

    /// What it is now, though it may be empty for not having been read yet.
    pub fn current(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Whether it has been read, and every change counts that was received since.
    pub fn is_ready(&self) -> bool {
        self.progress.borrow().is_current()
    }

    /// What it is; waits a while for changes that are received and do not count yet.
    ///
    /// `None` when they do not in that time.
    pub async fn get(&self) -> Option<Arc<T>> {
        if !self.is_ready() {
            let mut progress = self.progress.subscribe();
            // Not for later changes: else a stream of them would keep a request waiting.
            let received = progress.borrow().received.max(1);
            let made = progress.wait_for(|progress| progress.made >= received);
            let _seen = tokio::time::timeout(READY_WITHIN, made).await.ok()?.ok()?;
        }
        Some(self.current())
    }
}

/// Counts changes as they come.
async fn receive<K, T>(
    changes: impl Stream<Item = Result<watcher::Event<K>, watcher::Error>>,
    end: CancellationToken,
    watched: Weak<Watched<T>>,
) where
    K: kube::Resource<DynamicType = ()>,
{
    let mut changes = std::pin::pin!(changes);
    while let Some(Some(change)) = end.run_until_cancelled(changes.next()).await {
        match change {
            // A new list counts from its end on, not before.
            Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => continue,
            Ok(watcher::Event::InitDone | watcher::Event::Apply(_) | watcher::Event::Delete(_)) => {}
            // An older cluster does not have the kind, so nothing is configured with it.
            Err(error) if is_unknown(&error) => {
                tracing::debug!(kind = %K::kind(&()), "the cluster has no such kind");
            }
            Err(error) => {
                tracing::warn!(kind = %K::kind(&()), error = chain(&error), "a watch for admission failed");
                continue;
            }
        }
        let Some(watched) = watched.upgrade() else { return };
        watched.progress.send_modify(|progress| progress.received += 1);
    }
}

/// Makes it again whenever there are changes that do not count yet; those that come together count together.
async fn make_again<K, T>(
    store: reflector::Store<K>,
    mut progress: watch::Receiver<Progress>,
    watched: Weak<Watched<T>>,
    make: impl FnMut(Vec<Arc<K>>) -> T + Send + 'static,
) where
    K: kube::Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    let make = Arc::new(Mutex::new(make));
    let mut tried = 0;
    // Fails once the last owner has dropped it.
    while let Ok(progress) = progress.wait_for(|progress| progress.received > tried).await.map(|progress| *progress) {
        tried = progress.received;
        let (make, found) = (Arc::clone(&make), store.state());
        match tokio::task::spawn_blocking(move || make.lock()(found)).await {
            Ok(made) => {
                let Some(watched) = watched.upgrade() else { return };
                watched.current.store(Arc::new(made));
                watched.progress.send_modify(|progress| progress.made = tried);
            }
            // Writes are refused until the configuration changes: its rules are unknown.
            Err(error) => tracing::error!(kind = %K::kind(&()), %error, "a configuration of admission cannot be read"),
        }
    }
}

/// Whether a list failed for there being no such resource.
fn is_unknown(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}

/// Knows the namespaces with all that is in them.
#[async_trait]
pub trait Namespaces: fmt::Debug + Send + Sync + 'static {
    /// The namespace of that name.
    /// Fails with 404 when there is none; 503 when that could not be found out.
    async fn namespace(&self, name: &str) -> Result<Arc<Namespace>, ApiError>;
}

#[async_trait]
impl Namespaces for ClusterNamespaces {
    async fn namespace(&self, name: &str) -> Result<Arc<Namespace>, ApiError> {
        self.get(name).await?.ok_or_else(|| ApiError::not_found("", "namespaces", name))
    }
}

/// The namespace of that name for a write that is in it.
///
/// Nothing when it is missing and a component of the server itself writes: such a write has to finish what a namespace
/// left behind, and nobody selects its labels.
pub(super) async fn namespace_of(
    attributes: &Attributes<'_>,
    name: &str,
    namespaces: &dyn Namespaces,
) -> Result<Option<Arc<Namespace>>, ApiError> {
    match namespaces.namespace(name).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.code() == 404 && attributes.context.user.is_internal() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Finds where the Service of a webhook is reached.
#[async_trait]
pub trait ServiceResolver: fmt::Debug + Send + Sync + 'static {
    /// The host, a name or an address, at which a Service answers; the port stays as it is.
    async fn resolve(&self, namespace: &str, name: &str) -> Result<String, String>;
}

/// Looks Services up in the cluster: `ExternalName` by that name, all others by their cluster IP.
///
/// Follows `ResolveCluster` in `k8s.io/apiserver/pkg/util/proxy`.
#[derive(educe::Educe)]
#[educe(Debug)]
pub struct ClusterServices(#[educe(Debug(ignore))] Client);

impl ClusterServices {
    /// Looks them up with `client`.
    pub fn new(client: Client) -> Self {
        Self(client)
    }
}

#[async_trait]
impl ServiceResolver for ClusterServices {
    async fn resolve(&self, namespace: &str, name: &str) -> Result<String, String> {
        let api: Api<Service> = Api::namespaced(self.0.clone(), namespace);
        let found = api.get_opt(name).await.map_err(|error| chain(&error))?;
        let spec = found.ok_or_else(|| format!("service {name:?} not found"))?.spec.unwrap_or_default();
        if spec.type_.as_deref() == Some("ExternalName") {
            return Ok(spec.external_name.unwrap_or_default());
        }
        match spec.cluster_ip.as_deref() {
            // A headless Service has no address of its own, but the cluster's DNS knows those behind it.
            Some("None") => Ok(format!("{name}.{namespace}.svc")),
            None | Some("") => Err(format!("service {name:?} has no cluster IP")),
            Some(address) => Ok(address.to_owned()),
        }
    }
}

/// The failure of a call to another API server, as our own client hears it: its Status as it is, and 503 when that
/// server could not be reached.
pub fn api_error(error: kube::Error) -> ApiError {
    match error {
        kube::Error::Api(status) => serde_json::to_value(&*status).and_then(serde_json::from_value).map_or_else(
            |_| ApiError::new(status.code, &status.reason, status.message.clone()),
            |status| ApiError(Box::new(status)),
        ),
        other => {
            tracing::warn!(error = &other as &dyn std::error::Error, "kube-apiserver cannot be reached");
            ApiError::service_unavailable("the cluster's API server cannot be reached")
        }
    }
}
