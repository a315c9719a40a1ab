//! What the server knows of clusters for as long as it runs: the times of their last reports, and how many reports it takes.
//!
//! Each replica knows the reports that it received. A restart loses these times, and no transition.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::{SignedDuration, Timestamp};
use stoa_machinery::ApiError;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::{
    deployment_state::KnownPairs,
    descriptors::{Descriptors, KnownDescriptors},
};
use crate::lookup::Lookup;

/// The most reported deployments that the server works on at once.
const MAX_AT_ONCE: u32 = 20_000;
/// The default time for which transitions stay in the archive, in days.
const DEFAULT_DAYS: u32 = 90;

/// The time of the last report by the name of the Reconciler, by namespace.
type Reports = HashMap<String, HashMap<String, Timestamp>>;

/// The memory of the hub. Clones share it.
#[derive(Clone, Debug)]
pub struct Hub(Arc<Memory>);

#[derive(Debug)]
struct Memory {
    reports: Mutex<Reports>,
    descriptors: KnownDescriptors,
    pairs: KnownPairs,
    slots: Arc<Semaphore>,
    is_archive_due: Notify,
    retention: SignedDuration,
}

impl Default for Hub {
    fn default() -> Self {
        Self::new(DEFAULT_DAYS)
    }
}

impl Hub {
    /// An empty memory. The archive keeps transitions for `retention_days` days.
    pub fn new(retention_days: u32) -> Self {
        Self(Arc::new(Memory {
            reports: Mutex::default(),
            descriptors: KnownDescriptors::default(),
            pairs: KnownPairs::default(),
            slots: Arc::new(Semaphore::new(MAX_AT_ONCE as usize)),
            is_archive_due: Notify::new(),
            retention: SignedDuration::from_hours(24 * i64::from(retention_days)),
        }))
    }

    /// The time for which transitions stay in the archive.
    pub fn retention(&self) -> SignedDuration {
        self.0.retention
    }

    fn reports(&self) -> MutexGuard<'_, Reports> {
        self.0.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes reports of reconcilers of a namespace.
    pub(super) fn note<'r>(&self, namespace: &str, reconcilers: impl Iterator<Item = &'r String>, now: Timestamp) {
        let mut reports = self.reports();
        let of = reports.entry(namespace.to_owned()).or_default();
        for reconciler in reconcilers {
            match of.get_mut(reconciler) {
                Some(time) => *time = now,
                None => drop(of.insert(reconciler.clone(), now)),
            }
        }
    }

    /// The time of the last report of a reconciler that this replica received.
    pub fn last_report(&self, namespace: &str, reconciler: &str) -> Option<Timestamp> {
        self.reports().get(namespace)?.get(reconciler).copied()
    }

    /// The descriptors of a namespace, as the watch cache has them.
    ///
    /// # Errors
    ///
    /// 503 while the server has not loaded them yet.
    pub async fn descriptors(&self, lookup: &Lookup, namespace: &str) -> Result<Arc<Descriptors>, ApiError> {
        self.0.descriptors.of(lookup, namespace).await
    }

    pub(super) fn pairs(&self) -> &KnownPairs {
        &self.0.pairs
    }

    /// Forgets a reconciler that was deleted.
    pub fn forget(&self, namespace: &str, reconciler: &str) {
        let mut reports = self.reports();
        if let Some(of) = reports.get_mut(namespace) {
            of.remove(reconciler);
            if of.is_empty() {
                reports.remove(namespace);
            }
        }
    }

    /// Forgets reconcilers that do not exist any more.
    pub fn retain(&self, exists: impl Fn(&str, &str) -> bool) {
        self.reports().retain(|namespace, of| {
            of.retain(|reconciler, _| exists(namespace, reconciler));
            !of.is_empty()
        });
    }

    /// A permit for a report of that many deployments, which ends when it is dropped. `None` while the server works on too many.
    pub(super) fn room(&self, deployments: usize) -> Option<OwnedSemaphorePermit> {
        let deployments = u32::try_from(deployments).unwrap_or(u32::MAX).clamp(1, MAX_AT_ONCE);
        self.0.slots.clone().try_acquire_many_owned(deployments).ok()
    }

    /// Asks for the archive of the transitions before its time.
    pub(super) fn ask_for_archive(&self) {
        self.0.is_archive_due.notify_one();
    }

    /// Waits until somebody asks for the archive.
    pub async fn archive_is_due(&self) {
        self.0.is_archive_due.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_the_last_report_of_existing_reconcilers() {
        let hub = Hub::default();
        let (web, api) = ("web".to_owned(), "api".to_owned());
        hub.note("fleet", [&web, &api].into_iter(), Timestamp::UNIX_EPOCH);
        let later = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(5);
        hub.note("fleet", [&web].into_iter(), later);
        assert_eq!(hub.last_report("fleet", "web"), Some(later));
        assert_eq!(hub.last_report("other", "web"), None);
        hub.retain(|_, name| name == "api");
        assert_eq!(hub.last_report("fleet", "web"), None);
        assert_eq!(hub.last_report("fleet", "api"), Some(Timestamp::UNIX_EPOCH));
        hub.forget("fleet", "api");
        hub.forget("fleet", "api");
        assert_eq!(hub.last_report("fleet", "api"), None);
    }

    #[test]
    fn room_is_bounded() {
        let hub = Hub::default();
        let all = hub.room(usize::MAX);
        assert!(all.is_some());
        assert!(hub.room(1).is_none());
        drop(all);
        assert!(hub.room(1).is_some());
    }
}
