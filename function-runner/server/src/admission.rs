//! How much is let in at once, such as calls: so much room, which organizations share.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stoa_runtime::Shares;
use tokio::sync::oneshot;

/// Room for so much, which organizations [share](Shares). Clones are the same room.
#[derive(Clone, Debug)]
pub(crate) struct Room(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    shares: Shares,
    /// Who waits, in the order in which they came.
    waiting: VecDeque<Waits>,
}

#[derive(Debug)]
struct Waits {
    organization: Arc<str>,
    amount: usize,
    given: oneshot::Sender<Taken>,
}

/// What is taken of a room, until it is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    room: Room,
    organization: Arc<str>,
    amount: usize,
}

impl State {
    /// Whether nothing is given before this one has its room to whoever comes after it. What waits only for its share to become
    /// less is not in the way of others.
    fn is_in_the_way(&self, waits: &Waits) -> bool {
        waits.organization.is_empty() || self.shares.of(&waits.organization) == 0
    }

    /// Whether an organization would pass one of those that came before it. It does not pass what waits of its own.
    fn would_pass<'w>(&self, organization: &str, mut before: impl Iterator<Item = &'w Waits>) -> bool {
        before.any(|waits| *waits.organization == *organization || self.is_in_the_way(waits))
    }

    /// Who is next, who has room from here on.
    fn next(&mut self) -> Option<Waits> {
        // Whoever went away is in nobody's way.
        self.waiting.retain(|waits| !waits.given.is_closed());
        let at = self.waiting.iter().enumerate().position(|(at, waits)| {
            let Waits { organization, amount, .. } = waits;
            self.shares.is_free(organization, *amount) && !self.would_pass(organization, self.waiting.iter().take(at))
        })?;
        let next = self.waiting.remove(at)?;
        self.shares.take(&next.organization, next.amount);
        Some(next)
    }
}

impl Room {
    /// Room for so much.
    pub(crate) fn new(all: usize) -> Self {
        Self(Arc::new(Mutex::new(State { shares: Shares::new(all), waiting: VecDeque::new() })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much nobody has.
    pub(crate) fn free(&self) -> usize {
        self.state().shares.free()
    }

    /// How much an organization has.
    pub(crate) fn of(&self, organization: &str) -> usize {
        self.state().shares.of(organization)
    }

    /// So much of it for an organization, if that is free and nobody waits for it.
    pub(crate) fn try_take(&self, organization: &str, amount: usize) -> Option<Taken> {
        let mut state = self.state();
        let is_next = !state.would_pass(organization, state.waiting.iter());
        let is_taken = is_next && state.shares.take(organization, amount);
        is_taken.then(|| Taken { room: self.clone(), organization: organization.into(), amount })
    }

    /// So much of it for an organization, which has to be no more than all of it, as soon as that is free. Who comes first has it
    /// first, so that whoever needs much does not wait for ever while others come and go; but nobody waits for an organization
    /// that has its share. Nothing is left behind when this is dropped.
    pub(crate) async fn take(&self, organization: &str, amount: usize) -> Taken {
        let _leaves = Leaves(self);
        let (given, turn) = oneshot::channel();
        self.state().waiting.push_back(Waits { organization: organization.into(), amount, given });
        self.serve();
        turn.await.expect("whoever has room gives it on")
    }

    /// Gives what is free to those that wait.
    fn serve(&self) {
        loop {
            let next = self.state().next();
            let Some(Waits { organization, amount, given }) = next else { return };
            // Whoever went away right now gives it on.
            let _ = given.send(Taken { room: self.clone(), organization, amount });
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.state().shares.give_back(&self.organization, self.amount);
        self.room.serve();
    }
}

/// Whoever leaves, with room or without, lets those go ahead that came after it.
struct Leaves<'r>(&'r Room);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.serve();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use futures_util::FutureExt as _;
    use proptest::prelude::*;

    use super::*;

    type Waiting = Pin<Box<dyn Future<Output = Taken>>>;

    /// Begins to wait; the room, or else who waits.
    fn take(room: &Room, organization: &str, amount: usize) -> Result<Taken, Waiting> {
        let (room, organization) = (room.clone(), organization.to_owned());
        let mut waiting: Waiting = Box::pin(async move { room.take(&organization, amount).await });
        (&mut waiting).now_or_never().ok_or(waiting)
    }

    #[test]
    fn organization_that_has_its_share_waits_and_is_in_nobodys_way() {
        let room = Room::new(8);
        let first = take(&room, "a", 4).ok().unwrap();
        let mut second = take(&room, "a", 1).unwrap_err();
        assert!(room.try_take("a", 1).is_none());
        let other = take(&room, "b", 2).ok().expect("it has nothing");
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        drop(second.now_or_never().expect("it has nothing any more"));
        assert_eq!((room.of("a"), room.of("b"), room.free()), (0, 2, 6));
        drop(other);
    }

    #[test]
    fn who_needs_much_has_it_before_who_comes_later() {
        let room = Room::new(8);
        let first = take(&room, "a", 4).ok().unwrap();
        let mut large = take(&room, "b", 5).unwrap_err();
        let mut small = take(&room, "c", 1).unwrap_err();
        assert!(room.try_take("d", 1).is_none(), "it waits like the others");
        drop(first);
        let large = (&mut large).now_or_never().unwrap();
        drop((&mut small).now_or_never().unwrap());
        // Who goes away is in nobody's way.
        let larger = take(&room, "d", 6).unwrap_err();
        let mut small = take(&room, "c", 1).unwrap_err();
        drop(larger);
        assert!((&mut small).now_or_never().is_some());
        drop(large);
        assert!(room.try_take("", 8).is_some(), "all has been given back");
    }

    #[test]
    fn what_is_large_is_not_passed_by_what_is_small_of_its_own_organization() {
        let room = Room::new(8);
        let first = take(&room, "a", 2).ok().unwrap();
        let mut large = take(&room, "a", 6).unwrap_err();
        let mut small = take(&room, "a", 1).unwrap_err();
        assert!((&mut small).now_or_never().is_none());
        drop(first);
        let large = (&mut large).now_or_never().unwrap();
        assert!((&mut small).now_or_never().is_none(), "it has its share");
        drop(large);
        assert!((&mut small).now_or_never().is_some());
    }

    proptest! {
        /// Whatever comes and goes, no more is taken than there is, the first that has nothing waits only for more than is
        /// free, and everybody has room in the end.
        #[test]
        fn everybody_gets_room(
            all in 1..10_usize,
            comes in proptest::collection::vec((0..4_u8, 1..10_usize, any::<bool>()), 0..60),
        ) {
            let room = Room::new(all);
            let mut taken: VecDeque<Taken> = VecDeque::new();
            let mut waiting: Vec<(String, usize, Waiting)> = Vec::new();
            for (organization, amount, leaves) in comes {
                let (organization, amount) = (organization.to_string(), amount.min(all));
                match take(&room, &organization, amount) {
                    Ok(given) => taken.push_back(given),
                    Err(waits) => waiting.push((organization, amount, waits)),
                }
                if leaves {
                    taken.pop_front();
                }
                serve(&mut waiting, &mut taken);
                prop_assert_eq!(taken.iter().map(|taken| taken.amount).sum::<usize>() + room.free(), all);
                let first = waiting.iter().find(|(organization, ..)| room.of(organization) == 0);
                if let Some((_, amount, _)) = first {
                    prop_assert!(*amount > room.free());
                }
            }
            while taken.pop_front().is_some() {
                serve(&mut waiting, &mut taken);
            }
            prop_assert!(waiting.is_empty() && room.free() == all);
        }
    }

    fn serve(waiting: &mut Vec<(String, usize, Waiting)>, taken: &mut VecDeque<Taken>) {
        waiting.retain_mut(|(_, _, waits)| match waits.now_or_never() {
            Some(given) => {
                taken.push_back(given);
                false
            }
            None => true,
        });
    }
}
