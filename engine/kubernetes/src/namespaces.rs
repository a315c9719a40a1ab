//! What is known of the namespaces that objects go to: which are not there yet, and which are on their way out.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use stoa_engine::object::is_going;
use tokio::sync::OnceCell;

use crate::cluster::Cluster;
use crate::error::CallError;
use crate::target::named_path;

/// The position of a cluster, and the name of a namespace in it.
pub(crate) type Place = (usize, String);

/// What a run has heard of namespaces.
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    /// Those that were asked for and are not there. A server looks twice before it says so, which for a stack of hundreds of
    /// objects in a new namespace takes seconds.
    missing: Mutex<HashSet<Place>>,
    /// Those that are being deleted: nothing more is asked about in them.
    going: Mutex<HashSet<Place>>,
    /// Whether those that were looked at are being deleted.
    looked: Mutex<HashMap<Place, Arc<OnceCell<bool>>>>,
}

impl Namespaces {
    pub(crate) fn is_missing(&self, cluster: usize, namespace: &str) -> bool {
        let missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        missing.contains(&(cluster, namespace.to_owned()))
    }

    /// All of them, by their names.
    pub(crate) fn missing(&self) -> Vec<Place> {
        let mut missing: Vec<Place> =
            self.missing.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
        missing.sort();
        missing
    }

    pub(crate) fn set_missing(&self, cluster: usize, namespace: &str) {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).insert((cluster, namespace.to_owned()));
    }

    pub(crate) fn is_going(&self, cluster: usize, namespace: &str) -> bool {
        let going = self.going.lock().unwrap_or_else(PoisonError::into_inner);
        going.contains(&(cluster, namespace.to_owned()))
    }

    pub(crate) fn set_going(&self, cluster: usize, namespace: &str) {
        self.going.lock().unwrap_or_else(PoisonError::into_inner).insert((cluster, namespace.to_owned()));
    }

    /// It is there, whatever was heard of it before.
    pub(crate) fn set_there(&self, cluster: usize, namespace: &str) {
        let place = (cluster, namespace.to_owned());
        for gone in [&self.missing, &self.going] {
            gone.lock().unwrap_or_else(PoisonError::into_inner).remove(&place);
        }
        self.looked.lock().unwrap_or_else(PoisonError::into_inner).remove(&place);
    }

    /// Looks once whether it is being deleted, which nothing says to who changes what is in it. Where it may not be looked at,
    /// or is not there, it is not.
    ///
    /// # Errors
    ///
    /// When the cluster does not answer, or fails to. The next look asks it again.
    pub(crate) async fn look(&self, cluster: usize, of: &Cluster, namespace: &str) -> Result<bool, CallError> {
        let place = (cluster, namespace.to_owned());
        let looked = Arc::clone(self.looked.lock().unwrap_or_else(PoisonError::into_inner).entry(place).or_default());
        let look = || async {
            match of.get(&named_path("/api/v1/namespaces", namespace)).await {
                Ok(found) => Ok(found.as_ref().is_some_and(is_going)),
                Err(CallError::Status(failure)) if matches!(failure.code, 401 | 403 | 404) => Ok(false),
                Err(error) => Err(error),
            }
        };
        looked.get_or_try_init(look).await.copied()
    }
}
