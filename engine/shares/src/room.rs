//! Who has room, and who waits for it.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::shares::{Most, Shares};

/// Room for so much, which tenants [share](Shares), and a line of those that wait for it. Clones are the same room.
///
/// Tenants have their turns one after the other, those that have least first, and what waits of one is in the order in which it
/// came. What belongs to no tenant has its turns as if it were of one that has nothing. Whoever needs much has its turn before others that need little: nobody is served before a tenant that has nothing but
/// those that had no more, and were there before. One that waits for no more than its share is in nobody's way.
#[derive(Clone, Debug)]
pub struct Room(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    shares: Shares,
    /// The tenants that wait, in the order of their turns.
    turns: VecDeque<Arc<str>>,
    /// What waits, by tenant, in the order in which it came; never empty.
    waiting: HashMap<Arc<str>, VecDeque<Waits>>,
}

#[derive(Debug)]
struct Waits {
    amount: usize,
    given: oneshot::Sender<Taken>,
}

/// What is taken of a room, until it is dropped.
#[derive(Debug)]
pub struct Taken {
    room: Room,
    tenant: Arc<str>,
    amount: usize,
}

/// A place in the line, which becomes what it waits for. Nothing is left behind when it is dropped.
#[derive(Debug)]
#[must_use = "whoever does not wait has nothing"]
pub struct Waiting {
    turn: oneshot::Receiver<Taken>,
    tenant: Arc<str>,
    room: Room,
}

impl State {
    /// Whether nothing is given before this tenant has what it waits for to whoever has its turn after it.
    fn is_in_the_way(&self, tenant: &str) -> bool {
        self.shares.rank(tenant) == 0
    }

    /// Whether a tenant would pass one that waits, or what waits of its own.
    fn would_pass(&self, tenant: &str) -> bool {
        self.turns.iter().any(|other| **other == *tenant || self.is_in_the_way(other))
    }

    fn push(&mut self, tenant: &Arc<str>, waits: Waits) {
        if !self.waiting.contains_key(tenant) {
            self.turns.push_back(Arc::clone(tenant));
        }
        self.waiting.entry(Arc::clone(tenant)).or_default().push_back(waits);
    }

    /// Which of the turns is next, if there is room for it.
    fn turn(&self) -> Option<usize> {
        let turns = self.turns.iter().enumerate();
        let mut turns: Vec<(usize, usize)> = turns.map(|(at, tenant)| (self.shares.rank(tenant), at)).collect();
        turns.sort_unstable();
        for (_, at) in turns {
            let tenant = &self.turns[at];
            let amount = self.waiting.get(tenant)?.front()?.amount;
            if self.shares.is_free(tenant, amount) {
                return Some(at);
            }
            if self.is_in_the_way(tenant) {
                return None;
            }
        }
        None
    }

    /// Who is next, who has room from here on, and its turn behind all others.
    fn next(&mut self) -> Option<(Arc<str>, Waits)> {
        let at = self.turn()?;
        let tenant = self.turns.remove(at)?;
        let waiting = self.waiting.get_mut(&tenant)?;
        let next = waiting.pop_front()?;
        if waiting.is_empty() {
            self.waiting.remove(&tenant);
        } else {
            self.turns.push_back(Arc::clone(&tenant));
        }
        self.shares.take(&tenant, next.amount);
        Some((tenant, next))
    }

    /// Takes those of a tenant out of the line who went away.
    fn forget_unwanted(&mut self, tenant: &str) {
        let Some(waiting) = self.waiting.get_mut(tenant) else { return };
        waiting.retain(|waits| !waits.given.is_closed());
        if waiting.is_empty() {
            self.waiting.remove(tenant);
            self.turns.retain(|other| **other != *tenant);
        }
    }
}

impl Room {
    /// Room for so much, of which one tenant has at most this part.
    pub fn new(all: usize, most: Most) -> Self {
        let (turns, waiting) = (VecDeque::new(), HashMap::new());
        Self(Arc::new(Mutex::new(State { shares: Shares::new(all, most), turns, waiting })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much there is, taken or not.
    pub fn all(&self) -> usize {
        self.state().shares.all()
    }

    /// How much nobody has.
    pub fn free(&self) -> usize {
        self.state().shares.free()
    }

    /// How much a tenant has.
    pub fn of(&self, tenant: &str) -> usize {
        self.state().shares.of(tenant)
    }

    /// How many a tenant has in the line.
    pub fn waiting(&self, tenant: &str) -> usize {
        self.state().waiting.get(tenant).map_or(0, VecDeque::len)
    }

    /// Whether somebody waits to whom it makes a difference what a tenant gives back.
    pub fn is_waited_for(&self, tenant: &str) -> bool {
        let state = self.state();
        state.turns.iter().any(|waits| **waits == *tenant || !state.shares.has_its_most(waits))
    }

    /// Whether a tenant has its [most](Shares::has_its_most).
    pub fn has_its_most(&self, tenant: &str) -> bool {
        self.state().shares.has_its_most(tenant)
    }

    /// What a tenant [lacks](Shares::lacks) for so much more, those aside that wait.
    pub fn lacks(&self, tenant: &str, amount: usize) -> usize {
        self.state().shares.lacks(tenant, amount)
    }

    /// Which of the tenants that wait, and do not have their [most](Shares::has_its_most), lacks most, and how much.
    pub fn lacking(&self) -> Option<(Arc<str>, usize)> {
        let state = self.state();
        let lacks = state.turns.iter().filter(|tenant| !state.shares.has_its_most(tenant)).filter_map(|tenant| {
            let amount = state.waiting.get(tenant)?.front()?.amount;
            Some((Arc::clone(tenant), state.shares.lacks(tenant, amount)))
        });
        lacks.max_by_key(|(_, lacks)| *lacks)
    }

    /// So much of it for a tenant, if that is free and nobody waits whose turn is before.
    pub fn try_take(&self, tenant: &str, amount: usize) -> Option<Taken> {
        let mut state = self.state();
        let is_taken = !state.would_pass(tenant) && state.shares.take(tenant, amount);
        is_taken.then(|| Taken { room: self.clone(), tenant: tenant.into(), amount })
    }

    /// So much of it for a tenant, which has to be no more than all of it, as soon as that is free. It is in the line from here
    /// on, and not only once somebody waits.
    pub fn take(&self, tenant: &str, amount: usize) -> Waiting {
        let (given, turn) = oneshot::channel();
        let tenant: Arc<str> = tenant.into();
        self.state().push(&tenant, Waits { amount, given });
        self.serve();
        Waiting { turn, tenant, room: self.clone() }
    }

    /// Gives what is free to those that wait.
    fn serve(&self) {
        loop {
            let next = self.state().next();
            let Some((tenant, Waits { amount, given })) = next else { return };
            // Whoever went away right now gives it on.
            let _ = given.send(Taken { room: self.clone(), tenant, amount });
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.state().shares.give_back(&self.tenant, self.amount);
        self.room.serve();
    }
}

impl Future for Waiting {
    type Output = Taken;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Taken> {
        Pin::new(&mut self.turn).poll(context).map(|given| given.expect("whoever has room gives it on"))
    }
}

impl Drop for Waiting {
    /// Lets those go ahead that came after it. What it was given and never took is given on after this.
    fn drop(&mut self) {
        self.turn.close();
        self.room.state().forget_unwanted(&self.tenant);
        self.room.serve();
    }
}

#[cfg(test)]
mod tests;
