//! Functions as pods: an image that is allowed runs in a cluster, with Porch's wrapper server before its program.
//!
//! Start at [`Pods`]. A pod serves all calls of one image for some time, those of other function-runners too. It has no service
//! account, no privileges and no network (by the NetworkPolicy in `manifests/functions`). The kubelet ends it, even if no runner
//! does.
//!
//! `image` reads the digest and the program of an image, and `manifest` writes the pod.

mod image;
mod manifest;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex as SyncMutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use stoa_packages::function_metadata::FunctionDescription;
use stoa_workers::Limits;
use tokio::sync::{Mutex, OnceCell};
use tonic::Code;
use tonic::transport::Endpoint;
use tracing::Instrument as _;

use self::image::Program;
use super::evaluator::ask;
use super::{Call, Executor, Output};
use crate::cluster_access;
use crate::failure::{Failure, reason};

/// How long a pod serves calls. Its deadline is later, so that calls under way finish.
const REUSE: Duration = Duration::from_secs(25 * 60);
/// How long a pod may take to be ready.
const START: Duration = Duration::from_secs(60);
/// The time between reads of a pod that starts.
const READ_INTERVAL: Duration = Duration::from_millis(250);
/// The bytes of a message beside the objects and the image.
const ENVELOPE: usize = 1 << 10;
/// The port of the wrapper server.
const PORT: u16 = 9446;
/// Reasons of containers that do not start without a change.
const BROKEN: [&str; 5] =
    ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError"];

/// How pods run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The namespace of the pods.
    pub(crate) namespace: String,
    /// The beginnings of the images that are allowed, each up to the end of a part of the name ([`is_allowed`]).
    pub(crate) images: Vec<String>,
    /// The image with Porch's wrapper server.
    pub(crate) wrapper: String,
    /// The kubeconfig of the cluster; the service account of this pod by default.
    pub(crate) kubeconfig: Option<PathBuf>,
}

/// A pod that serves calls.
#[derive(Clone, Debug)]
struct Warm {
    pod: String,
    address: String,
    since: Instant,
}

type Slot = Arc<Mutex<Option<Warm>>>;

/// Whether the beginning of an image's name is one that is allowed. It ends where a part of the name ends, so that
/// `example.com/fn` allows `example.com/fn/check:v1`, and not `example.com/fn-other/check:v1`.
fn is_allowed(image: &str, beginning: &str) -> bool {
    let Some(rest) = image.strip_prefix(beginning) else { return false };
    // After a host alone, a colon begins the port of another server.
    let ends: &[char] = if beginning.contains('/') { &['/', ':', '@'] } else { &['/'] };
    rest.is_empty() || beginning.ends_with(['/', ':', '@']) || rest.starts_with(ends)
}

/// Runs images as pods. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Pods(Arc<Shared>);

struct Shared {
    options: Options,
    limits: Limits,
    /// A random id of this process, which its pods name.
    instance: String,
    client: OnceCell<Client>,
    /// One pod for each image. A call waits while another one starts the pod.
    slots: SyncMutex<HashMap<String, Slot>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pods").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Pods {
    pub(super) fn new(options: Options, limits: Limits) -> Self {
        let instance = uuid::Uuid::new_v4().simple().to_string();
        Self(Arc::new(Shared { options, limits, instance, client: OnceCell::new(), slots: SyncMutex::default() }))
    }

    async fn api(&self) -> Result<Api<Pod>, Failure> {
        let shared = &self.0;
        let client = shared.client.get_or_try_init(|| connect(shared.options.kubeconfig.as_ref())).await?;
        Ok(Api::namespaced(client.clone(), &shared.options.namespace))
    }

    fn slot(&self, image: &str) -> Slot {
        let mut slots = self.0.slots.lock().unwrap_or_else(PoisonError::into_inner);
        // An image without a pod, such as one that does not exist, needs no slot after its call.
        slots.retain(|_, slot| Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(|warm| warm.is_some()));
        Arc::clone(slots.entry(image.to_owned()).or_default())
    }

    /// A pod that is ready: the one of the last call, or another one that serves the same, or a new one.
    async fn ready(&self, image: &str) -> Result<Warm, Failure> {
        let slot = self.slot(image);
        let mut warm = slot.lock().await;
        if let Some(known) = warm.as_ref().filter(|known| known.since.elapsed() < REUSE) {
            return Ok(known.clone());
        }
        if let Some(old) = warm.take() {
            self.remove_after_calls(old.pod);
        }
        // A tag may move, so the registry is asked for each new pod.
        let program = Box::pin(image::read(image)).await?;
        let new = Box::pin(self.obtain(image, &program)).await?;
        *warm = Some(new.clone());
        Ok(new)
    }

    /// A pod that a function-runner made for the same, or else a new one, once it is ready.
    async fn obtain(&self, image: &str, program: &Program) -> Result<Warm, Failure> {
        let api = self.api().await?;
        let shared = &self.0;
        let wanted = manifest::pod(&manifest::Wanted {
            image,
            program,
            wrapper: &shared.options.wrapper,
            instance: &shared.instance,
            memory: shared.limits.memory,
            answer: shared.limits.answer,
            port: PORT,
        });
        let name = match self.find(&api, &wanted).await? {
            Some(name) => name,
            None => {
                let made = api.create(&PostParams::default(), &wanted).await;
                made.map_err(|error| unavailable("be created", &error))?.name_any()
            }
        };
        let waited = tokio::time::timeout(START, async {
            loop {
                let pod = api.get(&name).await.map_err(|error| unread(image, &error))?;
                match state(&pod) {
                    State::Ready(address) => return Ok((address, age(&pod))),
                    State::Broken(why) => {
                        let message = format!("the pod of function {image} does not start: {why}");
                        return Err(Failure::new(Code::FailedPrecondition, reason::NOT_AVAILABLE, message));
                    }
                    State::Starting => tokio::time::sleep(READ_INTERVAL).await,
                }
            }
        });
        let ready = match waited.await {
            Ok(found) => found,
            Err(_) => {
                let message = format!(
                    "the pod of function {image} is not ready after {} s; see the pods in namespace {}, and try again",
                    START.as_secs(),
                    shared.options.namespace
                );
                Err(Failure::new(Code::Unavailable, reason::UNAVAILABLE, message))
            }
        };
        match ready {
            Ok((address, age)) => {
                let now = Instant::now();
                Ok(Warm { pod: name, address, since: now.checked_sub(age).unwrap_or(now) })
            }
            Err(failure) => {
                self.remove(&name).await;
                Err(failure)
            }
        }
    }

    /// The newest pod that serves the same as the wanted one and is young enough. Pods that have ended are removed meanwhile.
    async fn find(&self, api: &Api<Pod>, wanted: &Pod) -> Result<Option<String>, Failure> {
        let listed = api.list(&ListParams::default().labels(manifest::LABEL)).await;
        let listed = listed.map_err(|error| unavailable("be listed", &error))?;
        let mut found: Option<(Duration, String)> = None;
        for pod in listed {
            if has_ended(&pod) {
                self.remove(&pod.name_any()).await;
                continue;
            }
            let is_usable = pod.metadata.deletion_timestamp.is_none() && !matches!(state(&pod), State::Broken(_));
            let age = age(&pod);
            if manifest::is_same(&pod, wanted)
                && is_usable
                && age < REUSE
                && found.as_ref().is_none_or(|(newest, _)| age < *newest)
            {
                found = Some((age, pod.name_any()));
            }
        }
        Ok(found.map(|(_, name)| name))
    }

    /// Removes a pod that gets no more calls, once those under way have ended.
    fn remove_after_calls(&self, pod: String) {
        let pods = self.clone();
        tokio::spawn(async move {
            // The clock of another runner may be late.
            tokio::time::sleep(pods.0.limits.time * 2).await;
            pods.remove(&pod).await;
        });
    }

    async fn remove(&self, pod: &str) {
        let Ok(api) = self.api().await else { return };
        match api.delete(pod, &DeleteParams::default()).await {
            Ok(_) => {}
            // Another function-runner was first.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            // The kubelet ends the pod at its deadline.
            Err(error) => tracing::warn!(%error, pod, "the pod of a function cannot be removed"),
        }
    }

    /// Forgets a pod that does not answer.
    async fn forget(&self, image: &str, warm: &Warm) {
        let slot = self.slot(image);
        let mut known = slot.lock().await;
        if known.as_ref().is_some_and(|known| known.pod == warm.pod) {
            *known = None;
            drop(known);
            self.remove(&warm.pod).await;
        }
    }

    /// Removes the pods that have ended. Others serve the other function-runners, and the next process.
    pub(super) async fn shut_down(&self) {
        if self.0.client.get().is_none() {
            return;
        }
        let Ok(api) = self.api().await else { return };
        let Ok(pods) = api.list(&ListParams::default().labels(manifest::LABEL)).await else { return };
        for pod in pods {
            if has_ended(&pod) {
                self.remove(&pod.name_any()).await;
            }
        }
    }
}

#[async_trait]
impl Executor for Pods {
    fn has(&self, image: &str) -> bool {
        self.0.options.images.iter().any(|beginning| is_allowed(image, beginning))
    }

    fn offered(&self) -> Vec<FunctionDescription> {
        Vec::new()
    }

    async fn run(&self, call: &Call) -> Result<Output, Failure> {
        let largest = self.0.limits.answer.saturating_sub(ENVELOPE + call.image.len());
        if call.list.len() > largest {
            // The wrapper server would reject it as if it were overloaded, and the pod of all runners would be removed.
            let message = format!(
                "function {} takes objects of {largest} bytes at most, and not of {}; select fewer objects",
                call.image,
                call.list.len()
            );
            return Err(Failure::new(Code::FailedPrecondition, reason::FUNCTION_FAILED, message));
        }
        let (pods, image) = (self.clone(), call.image.clone());
        // A caller may leave meanwhile. Its pod serves the next one, and is not lost.
        let ready = tokio::spawn(async move { Box::pin(pods.ready(&image)).await }.in_current_span()).await;
        let warm = ready.map_err(|err| Failure::internal(&err))??;
        let endpoint =
            Endpoint::from_shared(format!("http://{}", warm.address)).map_err(|err| Failure::internal(&err))?;
        let asked = ask(endpoint.connect_lazy(), call, &self.0.limits, "the pod of the function").await;
        if let Err(failure) = &asked
            && failure.code() == Code::Unavailable
        {
            self.forget(&call.image, &warm).await;
        }
        asked
    }

    async fn shut_down(&self) {
        Pods::shut_down(self).await;
    }
}

async fn connect(kubeconfig: Option<&PathBuf>) -> Result<Client, Failure> {
    let failed = |why: String| {
        let message = format!("the function-runner cannot reach its cluster: {why}");
        Failure::new(Code::Unavailable, reason::UNAVAILABLE, message)
    };
    let config = cluster_access::config(kubeconfig.map(PathBuf::as_path)).await.map_err(failed)?;
    Client::try_from(config).map_err(|error| failed(error.to_string()))
}

fn unavailable(what: &str, error: &kube::Error) -> Failure {
    let message = format!("the pod of the function cannot {what}: {error}");
    match error {
        // A quota or a missing right stays until somebody changes it.
        kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429 => {
            Failure::new(Code::FailedPrecondition, reason::NOT_AVAILABLE, message)
        }
        _ => Failure::new(Code::Unavailable, reason::UNAVAILABLE, message),
    }
}

/// The failure to read a pod that starts.
fn unread(image: &str, error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) if status.code == 404 => {
            let message = format!("the pod of function {image} was removed while it started; try again");
            Failure::new(Code::Unavailable, reason::UNAVAILABLE, message)
        }
        error => unavailable("be read", error),
    }
}

/// The time since a pod was made.
fn age(pod: &Pod) -> Duration {
    let now = Timestamp::now();
    let made = pod.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    // The clock of the cluster may be ahead.
    Duration::try_from(now.duration_since(made)).unwrap_or_default()
}

fn has_ended(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Failed" | "Succeeded"))
}

/// How far a pod is.
#[derive(Debug, PartialEq, Eq)]
enum State {
    /// It serves at this address.
    Ready(String),
    Starting,
    /// It will not serve.
    Broken(String),
}

fn state(pod: &Pod) -> State {
    let Some(status) = &pod.status else { return State::Starting };
    if let Some(phase @ ("Failed" | "Succeeded")) = status.phase.as_deref() {
        let why = status.message.clone().or_else(|| status.reason.clone()).unwrap_or_default();
        return State::Broken(format!("its phase is {phase}: {why}"));
    }
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let waiting = containers.filter_map(|container| container.state.as_ref()?.waiting.as_ref());
    for waiting in waiting {
        let why = waiting.reason.as_deref().unwrap_or_default();
        if BROKEN.contains(&why) {
            return State::Broken(format!("{why}: {}", waiting.message.as_deref().unwrap_or_default()));
        }
    }
    let conditions = status.conditions.iter().flatten();
    let is_ready = conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    match status.pod_ip.as_deref().filter(|address| is_ready && !address.is_empty()) {
        Some(address) if address.contains(':') => State::Ready(format!("[{address}]:{PORT}")),
        Some(address) => State::Ready(format!("{address}:{PORT}")),
        None => State::Starting,
    }
}

#[cfg(test)]
mod tests;
