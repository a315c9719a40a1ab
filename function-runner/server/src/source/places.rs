//! Places for processes, which organizations share, and the processes that stay in theirs for the next call.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stoa_shares::{Most, Room, Taken};

use super::readers::Reader;

/// How long a process stays for the next call.
const STAYS: Duration = Duration::from_secs(5);

/// Places for processes, which organizations [share](stoa_shares::Shares): servers of one that do not answer keep nobody else
/// waiting.
///
/// A process that is idle has a place, too, and ends when somebody waits for that.
#[derive(Clone, Debug)]
pub(super) struct Places {
    room: Room,
    /// Those that have been so for longest come first. Whoever looks for a free place has the lock, and whoever keeps one.
    idle: Arc<Mutex<Vec<Idle>>>,
}

/// A place, until it is dropped.
pub(super) type Place = Taken;

#[derive(Debug)]
struct Idle {
    reader: Reader,
    /// Tells it from others of its source that are idle later.
    mark: Arc<()>,
}

impl Places {
    /// So many, of which one organization has at most this part.
    pub(super) fn new(all: usize, most: Most) -> Self {
        Self { room: Room::new(all, most), idle: Arc::default() }
    }

    /// A place for an organization. Where there is none, so many of the idle processes end as it lacks places: its own, or else,
    /// where it may have more places than it has, anybody's.
    pub(super) async fn take(&self, organization: &str) -> Place {
        let (waiting, ends) = {
            let mut idle = self.idle();
            if let Some(place) = self.room.try_take(organization, 1) {
                return place;
            }
            let is_of_use = !self.room.has_its_most(organization);
            let mut next = || {
                let own = idle.iter().position(|idle| idle.reader.organization() == organization);
                let at = own.or_else(|| (is_of_use && !idle.is_empty()).then_some(0))?;
                Some(idle.remove(at).reader)
            };
            let ends: Vec<Reader> = (0..self.room.lacks(organization, 1)).map_while(|_| next()).collect();
            (self.room.take(organization, 1), ends)
        };
        for reader in ends {
            // Whoever has waited for longer than this has its place.
            tokio::spawn(reader.end());
        }
        waiting.await
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
            if self.room.is_waited_for(reader.organization()) {
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
        assert_eq!(places.room.free(), 4);
        assert!(Places::new(1, Most::Half).take("a").now_or_never().is_some(), "one place is somebody's");
    }

    #[tokio::test]
    async fn sources_of_no_organization_share_no_half() {
        let places = Places::new(2, Most::Half);
        let _of_none = [places.take("").await, places.take("").now_or_never().expect("all are anybody's")];
        assert!(places.take("").now_or_never().is_none());
    }
}
