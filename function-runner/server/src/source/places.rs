//! Places for processes, which organizations share, and the processes that stay in theirs for the next call.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use stoa_shares::{Most, Room, Taken};
use tokio::runtime::Handle;

use super::readers::Reader;

/// How long a process stays for the next call.
const STAYS: Duration = Duration::from_secs(5);

/// Places for processes, which organizations [share](stoa_shares::Shares): servers of one that do not answer keep nobody else
/// waiting.
///
/// A process that is idle has a place, too, and ends when somebody waits for that.
#[derive(Clone, Debug)]
pub(super) struct Places(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    room: Room,
    /// Whoever looks for a free place has the lock, and whoever keeps one.
    stay: Mutex<Stay>,
}

/// The processes that nobody works with.
#[derive(Debug, Default)]
struct Stay {
    /// Those that have been idle for longest come first.
    idle: Vec<Idle>,
    /// How many end for those that wait, and still have their places.
    ending: usize,
}

#[derive(Debug)]
struct Idle {
    reader: Reader,
    /// Tells it from others of its source that are idle later.
    mark: Arc<()>,
}

/// A place, until it is dropped, or whoever waits for one. With each that is given back another organization may have more than
/// before, for which idle processes end then.
#[derive(Debug)]
pub(super) struct Place {
    taken: Option<Taken>,
    /// Not the places themselves, which have those of the idle processes.
    shared: Weak<Shared>,
    /// Whether its process ends for those that wait.
    is_ending: bool,
}

impl Stay {
    /// So many of the idle processes, which end from here on: those of an organization first, and then, where that is of use to
    /// it, anybody's.
    fn end(&mut self, organization: &str, count: usize, is_of_use: bool) -> Vec<Reader> {
        let mut next = || {
            let own = self.idle.iter().position(|idle| idle.reader.organization() == organization);
            let at = own.or_else(|| (is_of_use && !self.idle.is_empty()).then_some(0))?;
            let mut reader = self.idle.remove(at).reader;
            reader.place().is_ending = true;
            Some(reader)
        };
        let ends: Vec<Reader> = (0..count).map_while(|_| next()).collect();
        self.ending += ends.len();
        ends
    }
}

impl Places {
    /// So many, of which one organization has at most this part.
    pub(super) fn new(all: usize, most: Most) -> Self {
        Self(Arc::new(Shared { room: Room::new(all, most), stay: Mutex::default() }))
    }

    /// A place for an organization. Where there is none, so many of the idle processes end as it lacks places: its own, or else,
    /// where it may have more places than it has, anybody's.
    pub(super) async fn take(&self, organization: &str) -> Place {
        let Self(shared) = self;
        let place = |taken| Place { taken, shared: Arc::downgrade(shared), is_ending: false };
        let (waiting, ends) = {
            let mut stay = shared.stay();
            if let Some(taken) = shared.room.try_take(organization, 1) {
                return place(Some(taken));
            }
            let is_of_use = !shared.room.has_its_most(organization);
            let ends = stay.end(organization, shared.room.lacks(organization, 1), is_of_use);
            (shared.room.take(organization, 1), ends)
        };
        // What is given to one that goes away meanwhile is given back as any other.
        let mut place = place(None);
        end(ends);
        place.taken = Some(waiting.await);
        place
    }

    /// The process that is idle for a source, by the cache of that and the organization, if there is one.
    pub(super) fn idle_for(&self, cache: &Path, organization: &str) -> Option<Reader> {
        loop {
            let mut reader = {
                let mut stay = self.0.stay();
                let at = stay.idle.iter().rposition(|idle| idle.reader.is_for(cache, organization))?;
                stay.idle.remove(at).reader
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
            let mut stay = self.0.stay();
            if self.0.room.is_waited_for(reader.organization()) {
                return Some(reader);
            }
            stay.idle.push(Idle { reader, mark: Arc::clone(&mark) });
        }
        let places = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(STAYS).await;
            let ends = {
                let mut stay = places.0.stay();
                let at = stay.idle.iter().position(|idle| Arc::ptr_eq(&idle.mark, &mark));
                at.map(|at| stay.idle.remove(at))
            };
            if let Some(Idle { reader, .. }) = ends {
                reader.end().await;
            }
        });
        None
    }
}

impl Shared {
    fn stay(&self) -> MutexGuard<'_, Stay> {
        self.stay.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends as many idle processes as those that wait lack places still, when one was given back.
    fn make_room(&self, was_ending: bool) {
        let ends = {
            let mut stay = self.stay();
            stay.ending -= usize::from(was_ending);
            let Some((organization, lacks)) = self.room.lacking() else { return };
            let count = lacks.saturating_sub(stay.ending);
            stay.end(&organization, count, true)
        };
        end(ends);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // First of all: what is taken still is lacked.
        drop(self.taken.take());
        if let Some(shared) = self.shared.upgrade() {
            shared.make_room(self.is_ending);
        }
    }
}

/// Ends processes. Whoever has waited for longer than others has their places.
fn end(readers: Vec<Reader>) {
    for reader in readers {
        // Without a runtime it is killed.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(reader.end());
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn no_organization_has_more_than_half_of_the_places_and_no_two_have_all() {
        let places = Places::new(4, Most::Half);
        let mut of_a = vec![places.take("a").await, places.take("a").await];
        assert!(places.take("a").now_or_never().is_none());
        let of_b = places.take("b").await;
        assert!(places.take("b").now_or_never().is_none(), "one is left for others");
        let of_c = places.take("c").await;
        assert!(places.take("d").now_or_never().is_none(), "all are taken");
        of_a.pop();
        let of_d = places.take("d").await;
        assert!(places.take("a").now_or_never().is_none(), "d has it");
        drop((of_a, of_b, of_c, of_d));
        assert_eq!(places.0.room.free(), 4);
        assert!(Places::new(1, Most::Half).take("a").now_or_never().is_some(), "one place is somebody's");
    }

    #[tokio::test]
    async fn sources_of_no_organization_share_no_half() {
        let places = Places::new(2, Most::Half);
        let _of_none = [places.take("").await, places.take("").now_or_never().expect("all are anybody's")];
        assert!(places.take("").now_or_never().is_none());
    }
}
