//! The hub's archive: transitions of reconcilers in columnar segments, from the reports of clusters to the rows of a query.
//!
//! Start at [`HubService`]. A transition is in the status of its Reconciler before a report is answered. [`archive`] moves it to a
//! segment, a document of the Backend. The `index` of a namespace, a record in the log, names its segments. [`rows`] reads the
//! waiting transitions first and the segments second, so that none is missed; one that is in both is the same row twice.
//!
//! Elsewhere: `stoa_kinds::hub` receives reports, `stoa_hub` knows the format of segments and computes tables, and the controller
//! `deployment_archive` decides when.

mod archive;
mod index;
mod rows;
#[cfg(test)]
mod tests;

use std::{error::Error, sync::Arc};

use serde::{Deserialize, de::IgnoredAny};
use stoa_controller::blocking::on_own_thread;
use stoa_kinds::hub::memory::Hub;
use stoa_machinery::{
    ApiError,
    log::LogError,
    registry::{ListOptions, Stored},
};
use stoa_runs::Services;
use stoa_storage::documents::DocumentStore;
use stoa_types::{
    hub::{Reconciler, normal_endpoint},
    reason,
};
use tokio::sync::Semaphore;

pub(crate) use self::rows::Found;

/// The server's own folder of segments, where no Backend is set.
const FOLDER: &str = "_hub";
/// How many queries read segments at once. Others wait.
const QUERIES: usize = 2;

/// The archive of all namespaces. Clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct HubService {
    services: Services,
    memory: Hub,
    /// The Backend of new segments; empty: the server's own folder.
    backend: String,
    queries: Arc<Semaphore>,
}

impl HubService {
    pub(crate) fn new(services: Services, memory: Hub, backend: Option<String>) -> Self {
        let queries = Arc::new(Semaphore::new(QUERIES));
        Self { services, memory, backend: backend.unwrap_or_default(), queries }
    }

    pub(crate) fn services(&self) -> &Services {
        &self.services
    }

    pub(crate) fn memory(&self) -> &Hub {
        &self.memory
    }

    /// The Reconcilers of a namespace, or of all, as they are stored.
    async fn reconcilers(&self, namespace: Option<&str>) -> Result<Vec<Arc<Stored>>, ApiError> {
        let store = self.services.lookup.api::<Reconciler>()?.store().clone();
        Ok(store.list(namespace, &ListOptions::default()).await?.items)
    }

    /// The store of a Backend, or the server's own folder.
    async fn store(&self, backend: &str) -> Result<Arc<dyn DocumentStore>, ApiError> {
        if backend.is_empty() {
            let own = self.services.backends.own(FOLDER).await;
            return own.map_err(|error| unavailable("the folder of the hub cannot be opened", &error));
        }
        let store = self.services.backends.store(backend).await;
        store.map_err(|halt| ApiError::service_unavailable(halt.into_reason(reason::UNREACHABLE).1))
    }
}

/// The scope of the documents of a namespace. No organization has its name.
fn scope(namespace: &str) -> String {
    format!("_hub/{namespace}")
}

/// 503 with its cause in the server's log.
fn unavailable(what: &str, error: &(dyn Error + 'static)) -> ApiError {
    tracing::warn!(error, "{what}");
    ApiError::service_unavailable(format!("{what}: {error}")).with_retry_after(5)
}

fn of_log(error: &LogError) -> ApiError {
    unavailable("the index of the hub's archive cannot be read or written", error)
}

/// The part of a Reconciler that says whether transitions wait, which costs less than the whole.
#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    status: Option<PartOfStatus>,
}

#[derive(Deserialize)]
struct PartOfStatus {
    #[serde(default)]
    transitions: Vec<IgnoredAny>,
}

/// The Reconcilers with transitions that wait for the archive. One that does not decode has none.
async fn with_waiting(stored: Vec<Arc<Stored>>) -> Vec<Reconciler> {
    let has_waiting = |stored: &&Arc<Stored>| {
        let status = stored.decode_part::<Part>().ok().and_then(|part| part.status);
        status.is_some_and(|status| !status.transitions.is_empty())
    };
    let decode = move || stored.iter().filter(has_waiting).filter_map(|stored| stored.decode().ok()).collect();
    on_own_thread(decode).await
}

/// The transitions of a Reconciler that wait for the archive, as rows.
fn waiting(reconciler: &Reconciler) -> Vec<stoa_hub::Transition> {
    let Some(status) = &reconciler.status else { return Vec::new() };
    let name: Arc<str> = reconciler.metadata.name.as_deref().unwrap_or_default().into();
    let host: Arc<str> = reconciler.spec.host_name.as_str().into();
    let endpoint: Arc<str> = normal_endpoint(&reconciler.spec.manifests_endpoint).into();
    let row = |transition: &stoa_types::hub::Transition| stoa_hub::Transition {
        host: host.clone(),
        reconciler: name.clone(),
        time: transition.time.0.as_microsecond(),
        endpoint: endpoint.clone(),
        commit: transition.git_ops_commit_id.as_str().into(),
        status: transition.status.name().into(),
        message: transition.status_message.as_str().into(),
    };
    status.transitions.iter().map(row).collect()
}
