//! Who has room and who waits for it, whoever comes and goes.

use futures_util::FutureExt as _;
use proptest::prelude::*;

use super::*;

/// Begins to wait; the room, or else who waits.
fn take(room: &Room, tenant: &str, amount: usize) -> Result<Taken, Waiting> {
    let mut waiting = room.take(tenant, amount);
    (&mut waiting).now_or_never().ok_or(waiting)
}

/// All that a tenant gets now that takes one after the other.
fn take_all(room: &Room, tenant: &str) -> Vec<Taken> {
    std::iter::from_fn(|| room.try_take(tenant, 1)).collect()
}

#[test]
fn tenant_that_has_its_share_waits_and_is_in_nobodys_way() {
    let room = Room::new(8, Most::Half);
    let first = take(&room, "a", 4).unwrap();
    let mut second = take(&room, "a", 1).unwrap_err();
    assert!(room.try_take("a", 1).is_none());
    let other = take(&room, "b", 2).expect("it has nothing");
    assert!((&mut second).now_or_never().is_none());
    assert_eq!((room.waiting("a"), room.waiting("b")), (1, 0));
    drop(first);
    drop(second.now_or_never().expect("it has nothing any more"));
    assert_eq!((room.of("a"), room.of("b"), room.free(), room.all()), (0, 2, 6, 8));
    drop(other);
}

#[test]
fn who_needs_much_has_it_before_who_comes_later() {
    let room = Room::new(8, Most::Half);
    let first = take(&room, "a", 4).unwrap();
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
fn what_is_large_is_not_passed_by_what_is_small_of_its_own_tenant() {
    let room = Room::new(8, Most::Half);
    let first = take(&room, "a", 2).unwrap();
    let mut large = take(&room, "a", 6).unwrap_err();
    let mut small = take(&room, "a", 1).unwrap_err();
    assert!((&mut small).now_or_never().is_none());
    drop(first);
    let large = (&mut large).now_or_never().unwrap();
    assert!((&mut small).now_or_never().is_none(), "it has its share");
    drop(large);
    assert!((&mut small).now_or_never().is_some());
}

#[test]
fn tenants_that_need_all_of_it_have_their_turns() {
    let room = Room::new(8, Most::ThreeQuarters);
    let first = take(&room, "a", 8).unwrap();
    let mut again = take(&room, "a", 8).unwrap_err();
    let mut third = take(&room, "a", 8).unwrap_err();
    let mut other = take(&room, "b", 1).unwrap_err();
    drop(first);
    let second = (&mut again).now_or_never().expect("nobody came before it");
    drop(second);
    let other = (&mut other).now_or_never().expect("the one before it had its turn");
    assert!((&mut third).now_or_never().is_none());
    drop(other);
    assert!(third.now_or_never().is_some());
}

#[test]
fn who_has_less_goes_ahead_of_those_that_came_before() {
    let room = Room::new(16, Most::ThreeQuarters);
    let (mut much, _rest) = (take_all(&room, "a"), take_all(&room, "rest"));
    assert_eq!((much.len(), room.free()), (12, 2));
    let little = take(&room, "b", 1).unwrap();
    let mut of_a = take(&room, "a", 1).unwrap_err();
    let mut of_b = take(&room, "b", 1).unwrap_err();
    drop(much.pop());
    let _more = (&mut of_b).now_or_never().expect("it has one");
    assert!((&mut of_a).now_or_never().is_none());
    much.truncate(7);
    let _again = (&mut of_a).now_or_never().expect("a quarter is free, and one");
    drop(little);
}

#[test]
fn room_is_waited_for_where_it_makes_a_difference() {
    let room = Room::new(8, Most::Half);
    let of_a = take(&room, "a", 4).unwrap();
    assert!(room.has_its_most("a") && !room.is_waited_for("a"));
    let waits = take(&room, "a", 1).unwrap_err();
    assert_eq!((room.is_waited_for("a"), room.is_waited_for("b"), room.lacks("a", 1)), (true, false, 1));
    let of_b = take_all(&room, "b");
    assert_eq!((of_b.len(), room.lacks("b", 1)), (2, 1));
    let other = take(&room, "b", 1).unwrap_err();
    assert!(room.is_waited_for("a") && room.is_waited_for("c"));
    drop((waits, other));
    assert!(!room.is_waited_for("a"));
    drop(of_a);
}

#[test]
fn what_belongs_to_no_tenant_keeps_its_place_in_the_line() {
    let room = Room::new(8, Most::ThreeQuarters);
    let mut of_none = take_all(&room, "");
    assert_eq!(of_none.len(), 8);
    of_none.truncate(5);
    let (of_a, of_b) = (take(&room, "a", 1).unwrap(), take(&room, "b", 1).unwrap());
    of_none.push(room.try_take("", 1).unwrap());
    let mut more = take(&room, "", 1).unwrap_err();
    let mut of_c = take(&room, "c", 1).unwrap_err();
    let mut again = take(&room, "a", 1).unwrap_err();
    drop(of_b);
    of_none.push((&mut more).now_or_never().expect("it was first"));
    let mut last = take(&room, "", 1).unwrap_err();
    assert!((&mut of_c).now_or_never().is_none());
    of_none.pop();
    let of_c = (&mut of_c).now_or_never().expect("it has nothing, and was before the last");
    drop(of_c);
    of_none.push((&mut last).now_or_never().expect("what is free is for it"));
    assert!((&mut again).now_or_never().is_none(), "it has one");
    // Nor is it passed by who has less in all.
    let mut larger = take(&room, "", 3).unwrap_err();
    of_none.pop();
    assert!(room.try_take("d", 1).is_none() && room.try_take("a", 1).is_none());
    of_none.truncate(4);
    assert!((&mut larger).now_or_never().is_some());
    drop((of_none, of_a));
    assert!(again.now_or_never().is_some());
}

#[test]
fn who_waits_and_lacks_most_is_told() {
    let room = Room::new(8, Most::Half);
    assert_eq!(room.lacking(), None);
    let mut of_a = take_all(&room, "a");
    let (of_b, _of_c) = (take_all(&room, "b"), take_all(&room, "c"));
    let _of_d = take(&room, "d", 1).unwrap();
    assert_eq!((of_a.len(), of_b.len(), room.free()), (4, 2, 0));
    let waits = take(&room, "a", 1).unwrap_err();
    assert_eq!(room.lacking(), None, "it has its most");
    of_a.pop();
    assert_eq!(room.lacking(), Some(("a".into(), 3)));
    drop(waits);
    assert_eq!(room.lacking(), None);
}

#[test]
fn two_that_always_want_more_come_to_have_the_same() {
    for (most, all, each) in [(Most::SevenEighths, 56, 28), (Most::ThreeQuarters, 48, 24), (Most::Half, 32, 24)] {
        let room = Room::new(64, most);
        let (mut taken, mut waiting) = (VecDeque::new(), Vec::new());
        for tenant in ["first", "second"] {
            waiting.extend((0..200).map(|_| (tenant.to_owned(), 1, room.take(tenant, 1))));
            serve(&mut waiting, &mut taken);
            assert_eq!(room.of("first"), all, "{most:?}");
        }
        for _ in 0..200 {
            drop(taken.pop_front());
            serve(&mut waiting, &mut taken);
        }
        assert_eq!((room.of("first"), room.of("second")), (each, each), "{most:?}");
    }
}

fn most() -> impl Strategy<Value = Most> {
    proptest::sample::select(vec![Most::All, Most::SevenEighths, Most::ThreeQuarters, Most::Half, Most::Quarter])
}

#[derive(Clone, Debug)]
enum Event {
    Comes(u8),
    Leaves(usize),
    GoesAway(usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..6_u8).prop_map(Event::Comes),
        3 => any::<usize>().prop_map(Event::Leaves),
        1 => any::<usize>().prop_map(Event::GoesAway),
    ]
}

/// One that waits for a place.
struct Comer {
    tenant: String,
    turn: Waiting,
    /// How many got one since it came.
    passed: usize,
    /// How many may, where its tenant had nothing and it was the first of it.
    may_pass: Option<usize>,
}

/// Who has places and who waits for one.
#[derive(Default)]
struct Hall {
    taken: Vec<(String, Taken)>,
    waiting: Vec<Comer>,
}

impl Hall {
    fn comes(&mut self, room: &Room, tenant: String) {
        let mut others: Vec<&str> = self.waiting.iter().map(|comer| comer.tenant.as_str()).collect();
        others.sort_unstable();
        others.dedup();
        let is_first = room.of(&tenant) == 0 && !others.contains(&tenant.as_str());
        let (turn, may_pass) = (room.take(&tenant, 1), is_first.then_some(others.len()));
        self.waiting.push(Comer { tenant, turn, passed: 0, may_pass });
    }

    fn serve(&mut self) {
        let before = self.waiting.len();
        for mut comer in std::mem::take(&mut self.waiting) {
            match (&mut comer.turn).now_or_never() {
                Some(place) => self.taken.push((comer.tenant, place)),
                None => self.waiting.push(comer),
            }
        }
        let given = before - self.waiting.len();
        for comer in &mut self.waiting {
            comer.passed += given;
        }
    }

    /// How many those two tenants have that have most.
    fn of_two(&self, room: &Room) -> usize {
        let mut tenants: Vec<&str> = self.taken.iter().map(|(tenant, _)| tenant.as_str()).collect();
        tenants.sort_unstable();
        tenants.dedup();
        let mut counts: Vec<usize> = tenants.iter().map(|tenant| room.of(tenant)).collect();
        counts.sort_unstable();
        counts.iter().rev().take(2).sum()
    }
}

/// How many places are idle at most while somebody waits for one, where that depends on nothing else.
fn idle(most: Most, all: usize) -> Option<usize> {
    match most {
        Most::All => Some(0),
        Most::SevenEighths => Some(all.div_ceil(8).max(4)),
        Most::ThreeQuarters => Some(all.div_ceil(4).max(4)),
        Most::Half | Most::Quarter => None,
    }
}

proptest! {
    /// Whoever comes and goes, there are no more places than there are, no two tenants have all of them, none is idle that
    /// somebody waits for and may have, who has none waits for no more than those before it, and everybody gets one in the end.
    #[test]
    fn places_are_shared(all in 1..40_usize, most in most(), events in proptest::collection::vec(event(), 0..120)) {
        let room = Room::new(all, most);
        let mut hall = Hall::default();
        for event in events {
            match event {
                Event::Comes(tenant) => hall.comes(&room, tenant.to_string()),
                Event::Leaves(at) if !hall.taken.is_empty() => drop(hall.taken.swap_remove(at % hall.taken.len())),
                Event::GoesAway(at) if !hall.waiting.is_empty() => {
                    drop(hall.waiting.swap_remove(at % hall.waiting.len()));
                }
                Event::Leaves(_) | Event::GoesAway(_) => {}
            }
            hall.serve();
            prop_assert_eq!(hall.taken.len() + room.free(), all);
            prop_assert!(most == Most::All || all < 4 || hall.of_two(&room) < all);
            if let Some(idle) = idle(most, all) {
                prop_assert!(hall.waiting.is_empty() || room.free() <= idle);
            }
            for comer in &hall.waiting {
                prop_assert!(room.lacks(&comer.tenant, 1) > 0);
                prop_assert!(comer.may_pass.is_none_or(|may_pass| comer.passed <= may_pass));
            }
        }
        while !hall.taken.is_empty() {
            hall.taken.remove(0);
            hall.serve();
        }
        prop_assert!(hall.waiting.is_empty());
        prop_assert_eq!(room.free(), all);
    }

    /// However much everybody needs, no more is taken than there is, one that has nothing waits only for one that has nothing
    /// and needs more than is free, and everybody has room in the end.
    #[test]
    fn everybody_has_room(
        all in 1..20_usize,
        most in most(),
        comes in proptest::collection::vec((0..4_u8, 1..10_usize, any::<bool>()), 0..60),
    ) {
        let room = Room::new(all, most);
        let mut taken: VecDeque<Taken> = VecDeque::new();
        let mut waiting: Vec<(String, usize, Waiting)> = Vec::new();
        for (tenant, amount, leaves) in comes {
            let (tenant, amount) = (tenant.to_string(), amount.min(all));
            match take(&room, &tenant, amount) {
                Ok(given) => taken.push_back(given),
                Err(waits) => waiting.push((tenant, amount, waits)),
            }
            if leaves {
                taken.pop_front();
            }
            serve(&mut waiting, &mut taken);
            prop_assert_eq!(taken.iter().map(|taken| taken.amount).sum::<usize>() + room.free(), all);
            let mut first: HashMap<&str, usize> = HashMap::new();
            for (tenant, amount, _) in &waiting {
                first.entry(tenant.as_str()).or_insert(*amount);
            }
            first.retain(|tenant, _| room.of(tenant) == 0);
            prop_assert!(first.is_empty() || first.values().any(|amount| *amount > room.free()));
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
