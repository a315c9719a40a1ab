//! Who has a place for a call, and who waits for one.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stoa_shares::{Most, Shares};
use tokio::sync::oneshot;

use super::Caller;

/// Which part of the places an organization may have while one of its calls there is slow.
const PART: usize = 4;

/// How many calls may be under way, and who waits. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Limit(Arc<Mutex<Queue>>);

#[derive(Debug)]
struct Queue {
    places: Shares,
    /// How many of those that have places are slow, by organization; never 0.
    slow: HashMap<Arc<str>, usize>,
    /// The organizations whose calls wait, in the order of their turns.
    turns: VecDeque<Arc<str>>,
    /// What waits, by organization; never empty.
    waiting: HashMap<Arc<str>, Waiting>,
}

/// What waits of one organization.
#[derive(Debug, Default)]
struct Waiting {
    /// The runs whose calls wait, in the order of their turns.
    runs: VecDeque<Arc<str>>,
    /// Whoever waits, by run; never empty.
    calls: HashMap<Arc<str>, VecDeque<oneshot::Sender<Place>>>,
}

impl Waiting {
    fn push(&mut self, run: &Arc<str>, call: oneshot::Sender<Place>) {
        if !self.calls.contains_key(run) {
            self.runs.push_back(Arc::clone(run));
        }
        self.calls.entry(Arc::clone(run)).or_default().push_back(call);
    }

    /// Whose turn it is.
    fn pop(&mut self) -> Option<oneshot::Sender<Place>> {
        let run = self.runs.pop_front()?;
        let of_run = self.calls.get_mut(&run).expect("it waits");
        let next = of_run.pop_front();
        if of_run.is_empty() {
            self.calls.remove(&run);
        } else {
            self.runs.push_back(run);
        }
        next
    }
}

impl Queue {
    /// Whether an organization has as many places as it may while one of its calls is slow.
    fn is_slowed(&self, organization: &str) -> bool {
        self.slow.contains_key(organization) && self.places.of(organization) >= (self.places.all() / PART).max(1)
    }

    /// Whether an organization may have one more place.
    fn is_free(&self, organization: &str) -> bool {
        !self.is_slowed(organization) && self.places.is_free(organization, 1)
    }

    fn push(&mut self, caller: &Caller, call: oneshot::Sender<Place>) {
        let Caller { organization, run } = caller;
        if !self.waiting.contains_key(organization) {
            self.turns.push_back(Arc::clone(organization));
        }
        self.waiting.entry(Arc::clone(organization)).or_default().push(run, call);
    }

    /// Whose turn it is, who has a place from here on: of an organization that has fewest, as which calls without one count. One that may have none now keeps its
    /// turn.
    fn next(&mut self) -> Option<(Arc<str>, oneshot::Sender<Place>)> {
        let turns = self.turns.iter().enumerate().filter(|(_, organization)| !self.is_slowed(organization));
        let at = self.places.turn(turns.map(|(at, organization)| (at, &**organization)))?;
        let organization = self.turns.remove(at)?;
        let waiting = self.waiting.get_mut(&organization).expect("it waits");
        let next = waiting.pop()?;
        if waiting.runs.is_empty() {
            self.waiting.remove(&organization);
        } else {
            self.turns.push_back(Arc::clone(&organization));
        }
        self.places.take(&organization, 1);
        Some((organization, next))
    }
}

/// A place for one call of an organization, given on when it is dropped.
#[derive(Debug)]
pub(super) struct Place(Option<(Limit, Arc<str>)>);

/// A mark that one of those of an organization that have places is slow, until it is dropped.
#[derive(Debug)]
pub(super) struct Slow(Limit, Arc<str>);

impl Limit {
    pub(super) fn new(calls: usize, most: Most) -> Self {
        let (slow, turns, waiting) = (HashMap::new(), VecDeque::new(), HashMap::new());
        Self(Arc::new(Mutex::new(Queue { places: Shares::new(calls, most), slow, turns, waiting })))
    }

    /// Whether somebody else has it, too.
    pub(super) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn place(&self, caller: &Caller) -> Place {
        let turn = {
            let mut queue = self.queue();
            if queue.is_free(&caller.organization) {
                queue.places.take(&caller.organization, 1);
                return Place(Some((self.clone(), Arc::clone(&caller.organization))));
            }
            let (given, turn) = oneshot::channel();
            queue.push(caller, given);
            turn
        };
        turn.await.expect("whoever has a place gives it on")
    }

    pub(super) fn slow(&self, organization: &Arc<str>) -> Slow {
        *self.queue().slow.entry(Arc::clone(organization)).or_default() += 1;
        Slow(self.clone(), Arc::clone(organization))
    }

    /// Makes a change by which there are more places, and gives them to those that wait.
    fn change(&self, change: impl FnOnce(&mut Queue)) {
        let mut next = {
            let mut queue = self.queue();
            change(&mut queue);
            queue.next()
        };
        while let Some((organization, call)) = next {
            let sent = call.send(Place(Some((self.clone(), organization))));
            let mut queue = self.queue();
            if let Err(mut unwanted) = sent
                && let Some((_, organization)) = unwanted.0.take()
            {
                // Whoever waited went away.
                queue.places.give_back(&organization, 1);
            }
            next = queue.next();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((limit, organization)) = self.0.take() else { return };
        limit.change(|queue| queue.places.give_back(&organization, 1));
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.0.change(|queue| {
            let Some(slow) = queue.slow.get_mut(&self.1) else { return };
            *slow -= 1;
            if *slow == 0 {
                queue.slow.remove(&self.1);
            }
        });
    }
}

#[cfg(test)]
impl Limit {
    /// How many places an organization has.
    pub(super) fn taken(&self, organization: &str) -> usize {
        self.queue().places.of(organization)
    }

    /// Whether nobody has a place, or waits for one.
    pub(super) fn is_idle(&self) -> bool {
        let queue = self.queue();
        let nobody_has_one = queue.places.taken() == 0 && queue.slow.is_empty();
        nobody_has_one && queue.turns.is_empty() && queue.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use futures_util::FutureExt as _;
    use proptest::prelude::*;

    use super::*;

    type Waits = Pin<Box<dyn Future<Output = Place> + Send>>;

    fn place(limit: &Limit, organization: &str, run: &str) -> Waits {
        let (limit, caller) = (limit.clone(), Caller { organization: organization.into(), run: run.into() });
        Box::pin(async move { limit.place(&caller).await })
    }

    /// All the places that an organization gets now.
    fn take_all(limit: &Limit, organization: &str) -> Vec<Place> {
        std::iter::from_fn(|| place(limit, organization, "run").now_or_never()).collect()
    }

    #[test]
    fn organization_that_has_much_keeps_its_turn_while_others_are_served() {
        let limit = Limit::new(4, Most::SevenEighths);
        let (mut a, mut b) = (take_all(&limit, "a"), take_all(&limit, "b"));
        assert_eq!((a.len(), b.len()), (2, 1));
        let mut of_a = place(&limit, "a", "run");
        assert!((&mut of_a).now_or_never().is_none());
        let _c = place(&limit, "c", "run").now_or_never().expect("one is free for who has none");
        let (mut of_b, mut of_d) = (place(&limit, "b", "run"), place(&limit, "d", "run"));
        assert!((&mut of_b).now_or_never().is_none() && (&mut of_d).now_or_never().is_none());
        a.pop();
        assert!((&mut of_a).now_or_never().is_none(), "it has one, and one is free");
        let _d = (&mut of_d).now_or_never().expect("it has none");
        b.pop();
        assert!((&mut of_a).now_or_never().is_none(), "it has one still");
        let _b = of_b.now_or_never().expect("it has none any more");
        a.pop();
        assert!(of_a.now_or_never().is_some());
    }

    #[test]
    fn organization_with_a_slow_call_has_less_at_once_and_others_have_not() {
        let limit = Limit::new(16, Most::Half);
        let mut a = take_all(&limit, "a");
        assert_eq!(a.len(), 8);
        let slow = limit.slow(&"a".into());
        a.truncate(4);
        assert!(place(&limit, "a", "run").now_or_never().is_none(), "it has a quarter");
        let mut b = take_all(&limit, "b");
        assert_eq!(b.len(), 8, "none of its calls is slow");
        b.truncate(6);
        assert!(place(&limit, "a", "run").now_or_never().is_none(), "it has a quarter still");
        drop(slow);
        assert_eq!(take_all(&limit, "a").len(), 2, "a quarter is left, and nothing more");
    }

    #[test]
    fn organization_that_has_fewer_goes_ahead_of_one_that_waits_for_longer() {
        let limit = Limit::new(32, Most::SevenEighths);
        let (mut a, _others) = (take_all(&limit, "a"), take_all(&limit, "others"));
        assert_eq!(a.len(), 28, "all but an eighth, and four at least");
        let _b = place(&limit, "b", "run").now_or_never().expect("it has none");
        let (mut of_a, mut of_b) = (place(&limit, "a", "run"), place(&limit, "b", "run"));
        assert!((&mut of_a).now_or_never().is_none() && (&mut of_b).now_or_never().is_none());
        a.pop();
        assert!((&mut of_a).now_or_never().is_none(), "it has many");
        assert!(of_b.now_or_never().is_some(), "it has one");
        a.truncate(24);
        assert!(of_a.now_or_never().is_some(), "more than an eighth is free");
    }

    #[test]
    fn calls_of_no_organization_have_their_turns_however_many_are_under_way() {
        let limit = Limit::new(8, Most::SevenEighths);
        let mut of_none = take_all(&limit, "");
        of_none.truncate(5);
        let mut named = Vec::from(["a", "b", "c"].map(|of| place(&limit, of, "run").now_or_never().unwrap()));
        let mut more = place(&limit, "", "run");
        assert!((&mut more).now_or_never().is_none());
        // Others that have one each always have more to do.
        let mut again = ["a", "b", "c"].map(|of| place(&limit, of, "run"));
        for waits in &mut again {
            assert!(waits.now_or_never().is_none());
        }
        named.pop();
        assert!((&mut again[2]).now_or_never().is_none(), "what has no name came first");
        of_none.push((&mut more).now_or_never().expect("it has its turn"));
        assert_eq!((limit.taken(""), limit.taken("c")), (6, 0));
    }

    #[derive(Clone, Debug)]
    enum Event {
        Calls { organization: u8, run: u8 },
        Ends(usize),
        IsSlow(usize),
        GoesAway(usize),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            3 => (0..5_u8, 0..3_u8).prop_map(|(organization, run)| Event::Calls { organization, run }),
            2 => any::<usize>().prop_map(Event::Ends),
            1 => any::<usize>().prop_map(Event::IsSlow),
            1 => any::<usize>().prop_map(Event::GoesAway),
        ]
    }

    /// A call that has a place. The mark goes first.
    struct Held {
        organization: String,
        slow: Option<Slow>,
        _place: Place,
    }

    /// Gives places to those that they were given to.
    fn serve(waiting: &mut Vec<(String, Waits)>, held: &mut Vec<Held>) {
        waiting.retain_mut(|(organization, waits)| match waits.now_or_never() {
            Some(place) => {
                held.push(Held { organization: organization.clone(), slow: None, _place: place });
                false
            }
            None => true,
        });
    }

    proptest! {
        /// Whatever comes and goes, no more calls than may, no two organizations with all of them, none that has no call under
        /// way waits while a place is free, and everybody gets a place in the end.
        #[test]
        fn everybody_gets_a_place(
            most in 1..20_usize,
            of_one in proptest::sample::select(vec![Most::SevenEighths, Most::ThreeQuarters, Most::Half]),
            events in proptest::collection::vec(event(), 0..80),
        ) {
            let limit = Limit::new(most, of_one);
            let (mut held, mut waiting): (Vec<Held>, Vec<(String, Waits)>) = (Vec::new(), Vec::new());
            let own = |held: &[Held], organization: &str| held.iter().filter(|it| it.organization == organization).count();
            for event in events {
                match event {
                    Event::Calls { organization, run } => {
                        let organization = organization.to_string();
                        let waits = place(&limit, &organization, &run.to_string());
                        waiting.push((organization, waits));
                    }
                    Event::Ends(at) if !held.is_empty() => drop(held.swap_remove(at % held.len())),
                    Event::IsSlow(at) if !held.is_empty() => {
                        let at = at % held.len();
                        let Held { organization, slow, .. } = &mut held[at];
                        slow.get_or_insert_with(|| limit.slow(&organization.as_str().into()));
                    }
                    Event::GoesAway(at) if !waiting.is_empty() => drop(waiting.swap_remove(at % waiting.len())),
                    Event::Ends(_) | Event::IsSlow(_) | Event::GoesAway(_) => {}
                }
                serve(&mut waiting, &mut held);
                prop_assert!(held.len() <= most);
                let mut counts: Vec<usize> = (0..5_u8).map(|number| own(&held, &number.to_string())).collect();
                counts.sort_unstable();
                prop_assert!(most < 4 || counts[3] + counts[4] < most);
                for (organization, _) in waiting.iter().filter(|_| held.len() < most) {
                    prop_assert!(own(&held, organization) > 0);
                }
            }
            while !held.is_empty() {
                held.remove(0);
                serve(&mut waiting, &mut held);
            }
            prop_assert!(waiting.is_empty() && limit.is_idle());
        }
    }
}
