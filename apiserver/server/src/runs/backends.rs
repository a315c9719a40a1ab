//! From a Backend object to the store of documents that it stands for.

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use parking_lot::Mutex;
use stoa_storage::documents::{DocumentStore, LocalDocuments};
use stoa_types::{Backend, platform::BackendType, reason};

use super::Halt;
use crate::kinds::lookup::Lookup;

/// Opens the stores that Backends stand for, each once.
#[derive(Clone, Debug)]
pub(crate) struct Backends {
    lookup: Lookup,
    root: PathBuf,
    open: Arc<Mutex<HashMap<PathBuf, Arc<dyn DocumentStore>>>>,
}

impl Backends {
    /// `root` is the server's folder for documents, which relative directories are in.
    pub(crate) fn new(lookup: Lookup, root: PathBuf) -> Self {
        Self { lookup, root, open: Arc::default() }
    }

    /// The store of a Backend.
    ///
    /// # Errors
    ///
    /// Failed when there is no such Backend or it is of a kind that cannot be served; Retry when it
    /// cannot be opened.
    pub(crate) async fn store(&self, name: &str) -> Result<Arc<dyn DocumentStore>, Halt> {
        let Some(backend) = self.lookup.api::<Backend>()?.get_opt("", name).await? else {
            return Err(Halt::failed(reason::REFERENCE_NOT_FOUND, format!("backend {name:?} does not exist")));
        };
        self.open(name, &backend)
    }

    /// The store of a Backend that was read already.
    pub(crate) fn open(&self, name: &str, backend: &Backend) -> Result<Arc<dyn DocumentStore>, Halt> {
        if backend.spec.kind != BackendType::Local {
            let message = format!("backend {name:?} is of type {:?}, which is not available yet", backend.spec.kind);
            return Err(Halt::failed(reason::BACKEND_UNAVAILABLE, message));
        }
        let directory = backend.spec.local.as_ref().map_or("", |l| l.directory.as_str());
        let path = self.root.join(if directory.is_empty() { name } else { directory });
        let mut open = self.open.lock();
        if let Some(store) = open.get(&path) {
            return Ok(store.clone());
        }
        let store: Arc<dyn DocumentStore> = Arc::new(
            LocalDocuments::open(&path)
                .map_err(|error| Halt::Retry(format!("backend {name:?} cannot be opened: {error}")))?,
        );
        open.insert(path, store.clone());
        Ok(store)
    }
}
