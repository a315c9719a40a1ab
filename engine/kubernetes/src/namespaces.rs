//! Namespaces of a Run: those that do not exist, and those that are being deleted.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use stoa_engine::object::is_terminating;
use tokio::sync::OnceCell;

use crate::cluster::Cluster;
use crate::error::CallError;
use crate::target::named_path;

/// The position of a cluster, and the name of a namespace in it.
pub(crate) type NamespaceKey = (usize, String);

/// The namespaces that a run has read.
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    /// Missing namespaces. A server looks twice before it reports one, which takes seconds for hundreds of objects.
    missing: Mutex<HashSet<NamespaceKey>>,
    /// Terminating namespaces, in which nothing more is dry-run.
    terminating: Mutex<HashSet<NamespaceKey>>,
    /// Whether the namespaces that were read are terminating.
    looked: Mutex<HashMap<NamespaceKey, Arc<OnceCell<bool>>>>,
}

impl Namespaces {
    pub(crate) fn is_missing(&self, cluster: usize, namespace: &str) -> bool {
        let missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        missing.contains(&(cluster, namespace.to_owned()))
    }

    /// All missing namespaces, by name.
    pub(crate) fn missing(&self) -> Vec<NamespaceKey> {
        let mut missing: Vec<NamespaceKey> =
            self.missing.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
        missing.sort();
        missing
    }

    pub(crate) fn set_missing(&self, cluster: usize, namespace: &str) {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).insert((cluster, namespace.to_owned()));
    }

    pub(crate) fn is_terminating(&self, cluster: usize, namespace: &str) -> bool {
        let terminating = self.terminating.lock().unwrap_or_else(PoisonError::into_inner);
        terminating.contains(&(cluster, namespace.to_owned()))
    }

    pub(crate) fn set_terminating(&self, cluster: usize, namespace: &str) {
        self.terminating.lock().unwrap_or_else(PoisonError::into_inner).insert((cluster, namespace.to_owned()));
    }

    /// Marks a namespace as existing.
    pub(crate) fn set_existing(&self, cluster: usize, namespace: &str) {
        let place = (cluster, namespace.to_owned());
        for gone in [&self.missing, &self.terminating] {
            gone.lock().unwrap_or_else(PoisonError::into_inner).remove(&place);
        }
        self.looked.lock().unwrap_or_else(PoisonError::into_inner).remove(&place);
    }

    /// Reads once whether a namespace is terminating, which changes in it do not report. An unreadable or missing
    /// namespace is not.
    ///
    /// # Errors
    ///
    /// The cluster does not answer, or fails. The next call reads it again.
    pub(crate) async fn read_terminating(
        &self,
        cluster: usize,
        of: &Cluster,
        namespace: &str,
    ) -> Result<bool, CallError> {
        let place = (cluster, namespace.to_owned());
        let looked = Arc::clone(self.looked.lock().unwrap_or_else(PoisonError::into_inner).entry(place).or_default());
        let look = || async {
            match of.get(&named_path("/api/v1/namespaces", namespace)).await {
                Ok(found) => Ok(found.as_ref().is_some_and(is_terminating)),
                Err(CallError::Status(failure)) if matches!(failure.code, 401 | 403 | 404) => Ok(false),
                Err(error) => Err(error),
            }
        };
        looked.get_or_try_init(look).await.copied()
    }
}
