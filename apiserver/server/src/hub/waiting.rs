//! The Reconcilers whose transitions wait for the archive, known without a read of all.
//!
//! The first call reads every Reconciler. Later calls read those that have changed since, so that a hundred thousand clusters
//! cost as much as their transitions.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use serde::{Deserialize, de::IgnoredAny};
use stoa_controller::blocking::on_own_thread;
use stoa_machinery::{
    ApiError, Version,
    registry::{Changes, ListOptions, Store, Stored},
};
use stoa_types::hub::{Reconciler, normal_endpoint};

use super::HubService;

/// The names of the Reconcilers with waiting transitions, by namespace.
pub(super) type Names = BTreeMap<String, BTreeSet<String>>;

/// The Reconcilers with waiting transitions.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// The version to which they are known; `None` before the first read.
    version: Option<Version>,
    names: Names,
}

impl Waiting {
    fn set(&mut self, namespace: &str, name: &str, is_waiting: bool) {
        if is_waiting {
            self.names.entry(namespace.to_owned()).or_default().insert(name.to_owned());
        } else if let Some(of) = self.names.get_mut(namespace) {
            of.remove(name);
            if of.is_empty() {
                self.names.remove(namespace);
            }
        }
    }
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

/// Whether transitions of a Reconciler wait. One that does not decode has none.
fn is_waiting(stored: &Stored) -> bool {
    let status = stored.decode_part::<Part>().ok().and_then(|part| part.status);
    status.is_some_and(|status| !status.transitions.is_empty())
}

/// The objects, each with whether its transitions wait.
async fn examined(objects: Vec<Arc<Stored>>) -> Vec<(Arc<Stored>, bool)> {
    let examine = |stored: Arc<Stored>| {
        let is_waiting = is_waiting(&stored);
        (stored, is_waiting)
    };
    on_own_thread(move || objects.into_iter().map(examine).collect()).await
}

impl HubService {
    /// The Reconcilers with waiting transitions. Reports of Reconcilers that do not exist any more are forgotten.
    ///
    /// # Errors
    ///
    /// When Reconcilers cannot be read.
    pub(super) async fn names_of_waiting(&self) -> Result<Names, ApiError> {
        let store = self.reconcilers()?;
        store.reach_current().await?;
        let mut waiting = self.waiting.lock().await;
        let changes = waiting.version.and_then(|version| store.changes_after(version));
        let (version, changed) = match changes {
            Some(Changes { version, changed, deleted }) => {
                for stored in deleted {
                    waiting.set(stored.namespace(), stored.name(), false);
                    self.memory.forget(stored.namespace(), stored.name());
                }
                (version, changed)
            }
            None => {
                let options = ListOptions { resource_version: Some("0".to_owned()), ..ListOptions::default() };
                let list = store.list(None, &options).await?;
                let existing: HashSet<(&str, &str)> =
                    list.items.iter().map(|stored| (stored.namespace(), stored.name())).collect();
                self.memory.retain(|namespace, name| existing.contains(&(namespace, name)));
                drop(existing);
                waiting.names.clear();
                (list.version, list.items)
            }
        };
        for (stored, is_waiting) in examined(changed).await {
            waiting.set(stored.namespace(), stored.name(), is_waiting);
        }
        waiting.version = Some(version);
        Ok(waiting.names.clone())
    }

    fn reconcilers(&self) -> Result<Arc<Store>, ApiError> {
        Ok(self.services.lookup.api::<Reconciler>()?.store().clone())
    }

    /// A Reconciler as the watch cache has it; `None` where it does not exist any more or does not decode.
    pub(super) async fn reconciler(&self, namespace: &str, name: &str) -> Result<Option<Reconciler>, ApiError> {
        // A read from the cache never waits, so a long loop of them would keep the thread from other tasks.
        tokio::task::yield_now().await;
        match self.reconcilers()?.get(namespace, name, Some("0")).await {
            Ok(stored) => Ok(stored.decode().ok()),
            Err(error) if error.code() == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The transitions of a Reconciler that wait for the archive, as rows.
pub(super) fn rows(reconciler: &Reconciler) -> Vec<stoa_hub::Transition> {
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
