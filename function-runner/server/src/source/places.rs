//! Places for processes, of which no organization has more than half, and the processes that stay in theirs for the next call.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::readers::Reader;

/// How long a process stays for the next call.
const STAYS: Duration = Duration::from_secs(5);

/// Places for processes, of which no organization has more than half: servers of one that do not answer keep nobody else
/// waiting. What belongs to no organization has no half: older API servers name none, and all of their sources would share it.
///
/// A process that is idle has a place, too, and ends when somebody waits for that.
#[derive(Clone, Debug)]
pub(super) struct Places {
    all: Arc<Room>,
    each: usize,
    organizations: Arc<Mutex<HashMap<String, Arc<Room>>>>,
    /// Those that have been so for longest come first. Whoever looks for a free place has the lock, and whoever keeps one.
    idle: Arc<Mutex<Vec<Idle>>>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    of_organization: Option<Arc<Room>>,
    of_all: Arc<Room>,
    _permits: (Option<OwnedSemaphorePermit>, OwnedSemaphorePermit),
}

/// So many places.
#[derive(Debug)]
struct Room {
    places: Arc<Semaphore>,
    /// How many wait for one.
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct Idle {
    reader: Reader,
    /// Tells it from others of its source that are idle later.
    mark: Arc<()>,
}

/// Somebody who waits for a place, until this is dropped.
struct Waiting<'r>(&'r Room);

impl<'r> Waiting<'r> {
    fn of(room: &'r Room) -> Self {
        room.waiting.fetch_add(1, Ordering::SeqCst);
        Self(room)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Room {
    fn new(places: usize) -> Arc<Self> {
        Arc::new(Self { places: Arc::new(Semaphore::new(places)), waiting: AtomicUsize::new(0) })
    }

    fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }
}

impl Place {
    fn is_waited_for(&self) -> bool {
        self.of_all.is_waited_for() || self.of_organization.as_ref().is_some_and(|room| room.is_waited_for())
    }
}

impl Places {
    pub(super) fn new(all: usize) -> Self {
        Self { all: Room::new(all), each: all.div_ceil(2), organizations: Arc::default(), idle: Arc::default() }
    }

    pub(super) async fn take(&self, organization: &str) -> Place {
        let of_organization = self.of(organization);
        let permit = match &of_organization {
            Some(room) => Some(self.take_in(room, |idle| idle.organization() == organization).await),
            None => None,
        };
        // Whoever waits for the organization's takes none from others meanwhile.
        let permits = (permit, self.take_in(&self.all, |_| true).await);
        Place { of_organization, of_all: Arc::clone(&self.all), _permits: permits }
    }

    /// A place in a room. Where there is none, one of the idle processes there ends that has it.
    async fn take_in(&self, room: &Room, is_there: impl Fn(&Reader) -> bool) -> OwnedSemaphorePermit {
        let places = Arc::clone(&room.places);
        let (_waiting, ends) = {
            let mut idle = self.idle();
            if let Ok(permit) = Arc::clone(&places).try_acquire_owned() {
                return permit;
            }
            let ends = idle.iter().position(|idle| is_there(&idle.reader)).map(|at| idle.remove(at));
            (Waiting::of(room), ends)
        };
        if let Some(Idle { reader, .. }) = ends {
            // Whoever has waited for longer than this has its place.
            tokio::spawn(reader.end());
        }
        places.acquire_owned().await.expect("nobody closes the semaphore")
    }

    /// The process that is idle for a source, by the cache of that and the organization, if there is one.
    pub(super) fn idle_for(&self, cache: &Path, organization: &str) -> Option<Reader> {
        loop {
            let mut reader = {
                let mut idle = self.idle();
                let at = idle.iter().rposition(|idle| idle.reader.is_for(cache, organization))?;
                idle.remove(at).reader
            };
            if reader.is_of_use() {
                return Some(reader);
            }
            tokio::spawn(reader.end());
        }
    }

    /// Keeps a process for the next call of its source, or gives it back where somebody waits for its place. Whoever keeps it
    /// until then ends it.
    pub(super) fn keep(&self, reader: Reader) -> Option<Reader> {
        let mark = Arc::new(());
        {
            let mut idle = self.idle();
            if reader.place().is_waited_for() {
                return Some(reader);
            }
            idle.push(Idle { reader, mark: Arc::clone(&mark) });
        }
        let places = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(STAYS).await;
            let ends = {
                let mut idle = places.idle();
                let at = idle.iter().position(|idle| Arc::ptr_eq(&idle.mark, &mark));
                at.map(|at| idle.remove(at))
            };
            if let Some(Idle { reader, .. }) = ends {
                reader.end().await;
            }
        });
        None
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that an organization may have.
    fn of(&self, organization: &str) -> Option<Arc<Room>> {
        if organization.is_empty() {
            return None;
        }
        let mut organizations = self.organizations.lock().unwrap_or_else(PoisonError::into_inner);
        // One that nobody has a place of, or waits for, is nothing to keep.
        organizations.retain(|_, room| Arc::strong_count(room) > 1);
        let room = organizations.entry(organization.to_owned());
        Some(Arc::clone(room.or_insert_with(|| Room::new(self.each))))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn no_organization_has_more_than_half_of_the_places() {
        let places = Places::new(4);
        let mut of_a = vec![places.take("a").await, places.take("a").await];
        assert!(places.take("a").now_or_never().is_none());
        let of_b = [places.take("b").await, places.take("b").await];
        assert!(places.take("c").now_or_never().is_none(), "all are taken");
        of_a.pop();
        let of_c = places.take("c").await;
        assert!(places.take("a").now_or_never().is_none(), "c has it");
        drop((of_a, of_b, of_c));
        drop(places.take("a").await);
        assert_eq!(places.organizations.lock().unwrap().len(), 1, "what nobody has a place of is forgotten");
        assert!(Places::new(1).take("a").now_or_never().is_some(), "one place is somebody's");
    }

    #[tokio::test]
    async fn sources_of_no_organization_share_no_half() {
        let places = Places::new(2);
        let _of_none = [places.take("").await, places.take("").now_or_never().expect("all are anybody's")];
        assert!(places.take("").now_or_never().is_none());
    }
}
