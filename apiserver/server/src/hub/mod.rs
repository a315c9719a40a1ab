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
mod waiting;

use std::{error::Error, sync::Arc};

use stoa_kinds::hub::memory::Hub;
use stoa_machinery::{ApiError, log::LogError};
use stoa_runs::Services;
use stoa_storage::documents::DocumentStore;
use stoa_types::reason;
use tokio::sync::{Mutex, Semaphore};

pub(crate) use self::rows::Found;
use self::waiting::Waiting;

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
    waiting: Arc<Mutex<Waiting>>,
}

impl HubService {
    pub(crate) fn new(services: Services, memory: Hub, backend: Option<String>) -> Self {
        let queries = Arc::new(Semaphore::new(QUERIES));
        Self { services, memory, backend: backend.unwrap_or_default(), queries, waiting: Arc::default() }
    }

    pub(crate) fn services(&self) -> &Services {
        &self.services
    }

    pub(crate) fn memory(&self) -> &Hub {
        &self.memory
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
