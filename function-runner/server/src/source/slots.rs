//! Slots for processes, which organizations share, and the idle processes that wait for the next call of their source.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stoa_fairness::{FairSemaphore, MaxShare, Permit};

use super::reader_pool::Reader;

/// How long an idle process waits for the next call.
const IDLE: Duration = Duration::from_secs(5);

/// Slots for processes, which organizations share by the rule of [`stoa_fairness`]: an organization whose servers do not answer
/// delays no other.
///
/// An idle process holds no slot, and ends before another process needs its memory: there are never more processes than slots.
#[derive(Clone, Debug)]
pub(super) struct Slots(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    slots: FairSemaphore,
    /// In the order in which they became idle.
    idle: Mutex<Vec<Idle>>,
}

#[derive(Debug)]
struct Idle {
    reader: Reader,
    /// Distinguishes it from later idle processes of its source.
    mark: Arc<()>,
}

impl Slots {
    /// So many slots.
    pub(super) fn new(slots: usize, max_share: MaxShare) -> Self {
        Self(Arc::new(Shared { slots: FairSemaphore::new(slots, max_share), idle: Mutex::default() }))
    }

    /// Waits for a slot for an organization.
    pub(super) async fn acquire(&self, organization: &str) -> Permit {
        self.0.slots.acquire(organization, 1).await
    }

    /// Takes the idle process that reads this cache for this organization, or writes its source, if there is one.
    pub(super) fn take_idle(&self, cache: &Path, organization: &str, writes: bool) -> Option<Reader> {
        loop {
            let mut reader = {
                let mut idle = self.idle();
                let at = idle.iter().rposition(|idle| idle.reader.is_for(cache, organization, writes))?;
                idle.remove(at).reader
            };
            if reader.is_usable() {
                return Some(reader);
            }
            tokio::spawn(reader.end());
        }
    }

    /// Takes the process that has been idle for longest, if it has to end before the holder of a slot starts another one.
    pub(super) fn evict(&self) -> Option<Reader> {
        let mut idle = self.idle();
        let held = self.0.slots.permits() - self.0.slots.available();
        (held + idle.len() > self.0.slots.permits() && !idle.is_empty()).then(|| idle.remove(0).reader)
    }

    /// Keeps a process for the next call of its source, and frees its slot.
    pub(super) fn keep(&self, mut reader: Reader) {
        let mark = Arc::new(());
        let slot = reader.take_slot();
        self.idle().push(Idle { reader, mark: Arc::clone(&mark) });
        drop(slot);
        let slots = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(IDLE).await;
            let ended = {
                let mut idle = slots.idle();
                let at = idle.iter().position(|idle| Arc::ptr_eq(&idle.mark, &mark));
                at.map(|at| idle.remove(at))
            };
            if let Some(Idle { reader, .. }) = ended {
                reader.end().await;
            }
        });
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
