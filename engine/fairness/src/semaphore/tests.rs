//! Who gets permits and who waits, in the order in which tenants come and go.

use std::collections::{HashMap, VecDeque};

use futures_util::FutureExt as _;
use proptest::prelude::*;

use super::*;

fn semaphore(permits: usize) -> FairSemaphore {
    FairSemaphore::new(permits, MaxShare::ThreeQuarters)
}

/// The permit, or else the request that waits for it.
fn acquire(semaphore: &FairSemaphore, tenant: &str, weight: usize) -> Result<Permit, Acquire> {
    let mut request = semaphore.acquire(tenant, weight);
    (&mut request).now_or_never().ok_or(request)
}

/// All permits that a tenant gets now, one by one.
fn take_all(semaphore: &FairSemaphore, tenant: &str) -> Vec<Permit> {
    std::iter::from_fn(|| semaphore.try_acquire(tenant, 1)).collect()
}

#[test]
fn tenant_at_its_share_waits_and_delays_nobody() {
    let semaphore = semaphore(8);
    let first = acquire(&semaphore, "a", 6).unwrap();
    let mut second = acquire(&semaphore, "a", 1).unwrap_err();
    assert!(semaphore.try_acquire("a", 1).is_none());
    let other = acquire(&semaphore, "b", 2).expect("it holds nothing");
    assert!((&mut second).now_or_never().is_none());
    assert_eq!((semaphore.queued_by("a"), semaphore.queued_by("b")), (1, 0));
    drop(first);
    drop(second.now_or_never().expect("it holds nothing any more"));
    assert_eq!((semaphore.held_by("a"), semaphore.held_by("b"), semaphore.available()), (0, 2, 6));
    drop(other);
    assert!(semaphore.is_idle());
}

#[test]
fn large_request_is_served_before_later_ones() {
    let semaphore = semaphore(8);
    let first = acquire(&semaphore, "a", 4).unwrap();
    let mut large = acquire(&semaphore, "b", 5).unwrap_err();
    let mut small = acquire(&semaphore, "c", 1).unwrap_err();
    assert!(semaphore.try_acquire("d", 1).is_none(), "it waits like the others");
    drop(first);
    let large = (&mut large).now_or_never().unwrap();
    drop((&mut small).now_or_never().unwrap());
    let dropped = acquire(&semaphore, "d", 6).unwrap_err();
    let mut small = acquire(&semaphore, "c", 1).unwrap_err();
    drop(dropped);
    assert!((&mut small).now_or_never().is_some(), "a dropped request delays nobody");
    drop(large);
    assert!(semaphore.is_idle());
}

#[test]
fn small_request_waits_behind_large_one_of_tenant() {
    let semaphore = semaphore(8);
    let first = acquire(&semaphore, "a", 2).unwrap();
    let mut large = acquire(&semaphore, "a", 7).unwrap_err();
    let mut small = acquire(&semaphore, "a", 1).unwrap_err();
    assert!((&mut small).now_or_never().is_none());
    drop(first);
    let large = (&mut large).now_or_never().unwrap();
    assert!((&mut small).now_or_never().is_none(), "its tenant has its share");
    drop(large);
    assert!((&mut small).now_or_never().is_some());
}

#[test]
fn tenants_that_need_everything_take_turns() {
    let semaphore = semaphore(8);
    let first = acquire(&semaphore, "a", 100).expect("a larger weight counts as all permits");
    let mut again = acquire(&semaphore, "a", 8).unwrap_err();
    let mut third = acquire(&semaphore, "a", 8).unwrap_err();
    let mut other = acquire(&semaphore, "b", 1).unwrap_err();
    drop(first);
    let second = (&mut again).now_or_never().expect("it came first");
    drop(second);
    let other = (&mut other).now_or_never().expect("the other tenant had its turn");
    assert!((&mut third).now_or_never().is_none());
    drop(other);
    assert!(third.now_or_never().is_some());
}

#[test]
fn tenant_with_fewer_permits_passes_earlier_requests() {
    let semaphore = semaphore(16);
    let (mut many, _rest) = (take_all(&semaphore, "a"), take_all(&semaphore, "rest"));
    assert_eq!((many.len(), semaphore.available()), (12, 2));
    let few = acquire(&semaphore, "b", 1).unwrap();
    let mut of_a = acquire(&semaphore, "a", 1).unwrap_err();
    let mut of_b = acquire(&semaphore, "b", 1).unwrap_err();
    drop(many.pop());
    let _more = (&mut of_b).now_or_never().expect("it holds one");
    assert!((&mut of_a).now_or_never().is_none());
    many.truncate(7);
    let _again = (&mut of_a).now_or_never().expect("more than a quarter is free");
    drop(few);
}

#[test]
fn unnamed_tenant_keeps_its_turn_whatever_it_holds() {
    let semaphore = semaphore(8);
    let mut unnamed = take_all(&semaphore, "");
    assert_eq!(unnamed.len(), 8);
    unnamed.truncate(5);
    let (of_a, of_b) = (acquire(&semaphore, "a", 1).unwrap(), acquire(&semaphore, "b", 1).unwrap());
    unnamed.push(semaphore.try_acquire("", 1).unwrap());
    let mut more = acquire(&semaphore, "", 1).unwrap_err();
    let mut of_c = acquire(&semaphore, "c", 1).unwrap_err();
    let mut again = acquire(&semaphore, "a", 1).unwrap_err();
    drop(of_b);
    unnamed.push((&mut more).now_or_never().expect("it came first"));
    let mut last = acquire(&semaphore, "", 1).unwrap_err();
    assert!((&mut of_c).now_or_never().is_none());
    unnamed.pop();
    let of_c = (&mut of_c).now_or_never().expect("it holds nothing, and came before the last");
    drop(of_c);
    unnamed.push((&mut last).now_or_never().expect("what is free is for it"));
    assert!((&mut again).now_or_never().is_none(), "its tenant holds one");
    let mut larger = acquire(&semaphore, "", 3).unwrap_err();
    unnamed.pop();
    assert!(semaphore.try_acquire("d", 1).is_none() && semaphore.try_acquire("a", 1).is_none());
    unnamed.truncate(4);
    assert!((&mut larger).now_or_never().is_some());
    drop((unnamed, of_a));
    assert!(again.now_or_never().is_some());
}

#[test]
fn lanes_of_a_tenant_take_turns() {
    let semaphore = semaphore(1);
    let mut held = semaphore.try_acquire("a", 1);
    let tenant: Arc<str> = "a".into();
    let lanes = ["many", "many", "many", "few", "one", "few"];
    let mut requests: Vec<(&str, Acquire)> =
        lanes.map(|lane| (lane, semaphore.acquire_in_lane(&tenant, &lane.into(), 1))).into();
    let mut served = Vec::new();
    while !requests.is_empty() {
        drop(held.take());
        requests.retain_mut(|(lane, request)| {
            held = held.take().or_else(|| request.now_or_never().inspect(|_| served.push(*lane)));
            request.granted.is_some()
        });
    }
    assert_eq!(served, ["many", "few", "one", "many", "few", "many"]);
}

#[test]
fn throttled_tenant_waits_and_delays_nobody() {
    let semaphore = semaphore(4);
    let throttles = [semaphore.throttle(&"slow".into()), semaphore.throttle(&"".into())];
    let held = [semaphore.try_acquire("slow", 1).unwrap(), semaphore.try_acquire("", 1).unwrap()];
    let mut waiting = ["slow", ""].map(|tenant| acquire(&semaphore, tenant, 1).unwrap_err());
    let _other = acquire(&semaphore, "quick", 1).expect("a throttled tenant delays nobody");
    assert!(waiting.iter_mut().all(|request| request.now_or_never().is_none()));
    drop(throttles);
    assert!((&mut waiting[1]).now_or_never().is_some());
    drop((waiting, held));
    assert_eq!(semaphore.available(), 3);
}

#[test]
fn dropped_request_leaves_nothing_behind() {
    let semaphore = semaphore(1);
    let first = acquire(&semaphore, "a", 1).unwrap();
    let (dropped, granted) = (acquire(&semaphore, "a", 1).unwrap_err(), acquire(&semaphore, "b", 1).unwrap_err());
    drop(dropped);
    drop(first);
    assert_eq!(semaphore.held_by("b"), 1, "nobody took the permit that it was granted");
    drop(granted);
    assert!(semaphore.is_idle() && !semaphore.is_shared());
}

#[test]
fn semaphore_selects_first_tenant_with_fewest_permits() {
    let semaphore = semaphore(16);
    let mut many = take_all(&semaphore, "many");
    let _few = semaphore.try_acquire("few", 1).unwrap();
    let next = |turns: &[&'static str]| {
        semaphore.try_acquire_for_next(turns.iter().map(|tenant| (*tenant, *tenant))).map(|(tenant, _permit)| tenant)
    };
    assert_eq!(next(&["many", "few", "new", "newer"]), Some("new"));
    assert_eq!(next(&["many", "few"]), Some("few"));
    assert_eq!(next(&["many"]), None, "a quarter is for others");
    many.truncate(10);
    assert_eq!((next(&["many", "few"]), next(&["many"])), (Some("few"), Some("many")));
}

#[test]
fn tenants_that_always_want_more_hold_the_same() {
    let semaphore = semaphore(64);
    let (mut held, mut waiting) = (VecDeque::new(), Vec::new());
    for tenant in ["first", "second"] {
        waiting.extend((0..200).map(|_| (tenant.to_owned(), 1, semaphore.acquire(tenant, 1))));
        serve(&mut waiting, &mut held);
        assert_eq!(semaphore.held_by("first"), 48);
    }
    for _ in 0..200 {
        drop(held.pop_front());
        serve(&mut waiting, &mut held);
    }
    assert_eq!((semaphore.held_by("first"), semaphore.held_by("second")), (24, 24));
}

/// Moves requests that are served to the permits.
fn serve(waiting: &mut Vec<(String, usize, Acquire)>, held: &mut VecDeque<Permit>) {
    waiting.retain_mut(|(_, _, request)| match request.now_or_never() {
        Some(permit) => {
            held.push_back(permit);
            false
        }
        None => true,
    });
}

#[derive(Clone, Debug)]
enum Event {
    Requests { tenant: u8, lane: u8 },
    Returns(usize),
    Drops(usize),
    Throttles(u8),
    Unthrottles,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..6_u8, 0..3_u8).prop_map(|(tenant, lane)| Event::Requests { tenant, lane }),
        3 => any::<usize>().prop_map(Event::Returns),
        1 => any::<usize>().prop_map(Event::Drops),
        1 => (0..6_u8).prop_map(Event::Throttles),
        1 => Just(Event::Unthrottles),
    ]
}

/// A request that waits for one permit.
struct PendingRequest {
    tenant: String,
    request: Acquire,
    /// How many permits were granted since it came.
    passed: usize,
    /// How many may be, where its tenant held nothing and this was its first request.
    may_pass: Option<usize>,
}

proptest! {
    /// Whoever comes and goes: no more permits are held than exist; a tenant that holds nothing waits at most for one turn of each
    /// tenant before it; no more than a quarter is idle while a tenant waits that is not throttled; and everyone gets a permit in the end.
    #[test]
    fn nobody_starves(
        permits in 1..40_usize,
        events in proptest::collection::vec(event(), 0..120),
        throttling in any::<bool>(),
    ) {
        let semaphore = semaphore(permits);
        let (mut held, mut throttles): (Vec<Permit>, Vec<Throttle>) = (Vec::new(), Vec::new());
        let mut waiting: Vec<PendingRequest> = Vec::new();
        for event in events {
            match event {
                Event::Requests { tenant, lane } => {
                    let tenant = tenant.to_string();
                    let others: HashMap<&str, ()> = waiting.iter().map(|other| (other.tenant.as_str(), ())).collect();
                    let is_first = semaphore.held_by(&tenant) == 0 && !others.contains_key(tenant.as_str());
                    let may_pass = is_first.then_some(others.len());
                    let request = semaphore.acquire_in_lane(&tenant.as_str().into(), &lane.to_string().into(), 1);
                    waiting.push(PendingRequest { tenant, request, passed: 0, may_pass });
                }
                Event::Returns(at) if !held.is_empty() => drop(held.swap_remove(at % held.len())),
                Event::Drops(at) if !waiting.is_empty() => drop(waiting.swap_remove(at % waiting.len())),
                Event::Throttles(tenant) if throttling => throttles.push(semaphore.throttle(&tenant.to_string().into())),
                Event::Unthrottles => drop(throttles.pop()),
                Event::Returns(_) | Event::Drops(_) | Event::Throttles(_) => {}
            }
            let before = held.len();
            waiting.retain_mut(|waiting| match (&mut waiting.request).now_or_never() {
                Some(permit) => {
                    held.push(permit);
                    false
                }
                None => true,
            });
            let granted = held.len() - before;
            prop_assert_eq!(held.len() + semaphore.available(), permits);
            for waiting in &mut waiting {
                waiting.passed += granted;
                prop_assert!(semaphore.held_by(&waiting.tenant) > 0 || semaphore.available() == 0);
                prop_assert!(waiting.may_pass.is_none_or(|may_pass| waiting.passed <= may_pass));
                prop_assert!(!throttles.is_empty() || semaphore.available() <= permits.div_ceil(4));
            }
        }
        while !held.is_empty() {
            drop(held.remove(0));
            waiting.retain_mut(|waiting| match (&mut waiting.request).now_or_never() {
                Some(permit) => {
                    held.push(permit);
                    false
                }
                None => true,
            });
        }
        drop(throttles);
        prop_assert!(waiting.is_empty() && semaphore.is_idle());
    }

    /// However large requests are: no more permits are held than exist; a tenant that holds nothing waits only while a tenant
    /// that holds nothing needs more than is free; and everyone is served in the end.
    #[test]
    fn large_requests_do_not_starve(
        permits in 1..20_usize,
        max_share in proptest::sample::select(vec![MaxShare::ThreeQuarters, MaxShare::All]),
        comes in proptest::collection::vec((0..4_u8, 1..10_usize, any::<bool>(), any::<bool>()), 0..60),
    ) {
        let semaphore = FairSemaphore::new(permits, max_share);
        let mut held: VecDeque<Permit> = VecDeque::new();
        let mut waiting: Vec<(String, usize, Acquire)> = Vec::new();
        for (tenant, weight, returns, drops) in comes {
            let (tenant, weight) = (tenant.to_string(), weight.min(permits));
            waiting.push((tenant.clone(), weight, semaphore.acquire(&tenant, weight)));
            if returns {
                held.pop_front();
            }
            if drops {
                drop(waiting.remove(0));
            }
            serve(&mut waiting, &mut held);
            prop_assert_eq!(held.iter().map(|permit| permit.weight).sum::<usize>() + semaphore.available(), permits);
            let mut first: HashMap<&str, usize> = HashMap::new();
            for (tenant, weight, _) in &waiting {
                first.entry(tenant.as_str()).or_insert(*weight);
            }
            first.retain(|tenant, _| semaphore.held_by(tenant) == 0);
            prop_assert!(first.is_empty() || first.values().any(|weight| *weight > semaphore.available()));
        }
        while held.pop_front().is_some() {
            serve(&mut waiting, &mut held);
        }
        prop_assert!(waiting.is_empty() && semaphore.is_idle());
    }
}
