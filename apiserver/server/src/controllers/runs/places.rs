//! Who works next: so many runs at once, and every namespace in its turn.
//!
//! A run that is executed has a place, wherever it is in its life. Those that find none wait, and each place that becomes
//! free goes to a namespace that has fewest, and of several to the one whose turn is next. One namespace alone has at most three
//! quarters: of 64 it has 48, the next that comes 8 at once, then 4, 2, 1 and 1 ([`Shares`]). So what a few tenants have at work
//! for hours keeps no other from working; it takes six that have all they may to leave none. A run that only ends needs none, and
//! one that gets nowhere has one only while it is tried, for which it waits like any other.

use std::collections::{HashMap, VecDeque};

use kube::ResourceExt as _;
use stoa_kinds::run_status::status;
use stoa_shares::{Most, Shares};
use stoa_types::Run;

use crate::controllers::runs::queue_status::Cause;
use crate::controllers::stacks;

#[derive(Debug)]
pub(super) struct Places {
    /// Which are taken, by namespace. They are for minutes as a rule.
    shares: Shares,
    /// What waits, by namespace.
    waiting: HashMap<String, Waiting>,
    /// What waits, by uid: thousands may, and each is seen again with every change of it.
    runs: HashMap<String, Run>,
    /// The namespaces in which something waits, the one whose turn is next first.
    turns: VecDeque<String>,
}

/// The uids of what waits in one namespace, each in the order in which it came. What has begun, such as to apply, and what has
/// not take turns, so that neither waits for all that there is of the other.
#[derive(Debug, Default)]
struct Waiting {
    begun: VecDeque<String>,
    new: VecDeque<String>,
    /// Looks for drift, for which nobody waits, and of which hundreds may come at once: everything else comes first.
    looks: VecDeque<String>,
    /// Whose turn it was last.
    was_begun: bool,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.begun.is_empty() && self.new.is_empty() && self.looks.is_empty()
    }

    fn next(&mut self) -> Option<String> {
        if self.begun.is_empty() && self.new.is_empty() {
            return self.looks.pop_front();
        }
        self.was_begun = if self.was_begun { self.new.is_empty() } else { !self.begun.is_empty() };
        if self.was_begun { self.begun.pop_front() } else { self.new.pop_front() }
    }
}

impl Places {
    /// So many places, but at least one.
    pub(super) fn new(all: usize) -> Self {
        Self {
            shares: Shares::new(all.max(1), Most::ThreeQuarters),
            waiting: HashMap::new(),
            runs: HashMap::new(),
            turns: VecDeque::new(),
        }
    }

    /// Has a run wait for a place; one that waits already is replaced by what it is now. [`next`](Self::next) tells who
    /// has one.
    pub(super) fn queue(&mut self, run: Run) {
        let (namespace, uid) = (run.namespace().unwrap_or_default(), run.uid().unwrap_or_default());
        let (has_begun, is_look) = (status(&run).start_time.is_some(), stacks::is_look(&run));
        if self.runs.insert(uid.clone(), run).is_some() {
            return;
        }
        let waiting = self.waiting.entry(namespace.clone()).or_default();
        if waiting.is_empty() {
            self.turns.push_back(namespace);
        }
        let queue = match (is_look, has_begun) {
            (true, _) => &mut waiting.looks,
            (false, true) => &mut waiting.begun,
            (false, false) => &mut waiting.new,
        };
        queue.push_back(uid);
    }

    /// What waits, and what it lacks. What a namespace may have changes with what the others have, of which nobody is told
    /// each time.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (&Run, Cause)> {
        let all = self.shares.all();
        self.runs.values().map(move |run| {
            let has_any = self.shares.of(&run.namespace().unwrap_or_default()) > 0;
            (run, if has_any && all > 1 { Cause::Share(all) } else { Cause::Places(all) })
        })
    }

    /// The next run that has a place now, if there is one.
    pub(super) fn next(&mut self) -> Option<Run> {
        let at = self.shares.turn(self.turns.iter().map(String::as_str).enumerate())?;
        let namespace = self.turns.remove(at)?;
        let waiting = self.waiting.get_mut(&namespace)?;
        let run = self.runs.remove(&waiting.next()?)?;
        if waiting.is_empty() {
            self.waiting.remove(&namespace);
        } else {
            self.turns.push_back(namespace.clone());
        }
        self.shares.take(&namespace, 1);
        Some(run)
    }

    /// Gives the place of a run of this namespace back.
    pub(super) fn leave(&mut self, namespace: &str) {
        self.shares.give_back(namespace, 1);
    }

    /// Takes a run that waits out.
    pub(super) fn forget(&mut self, namespace: &str, uid: &str) {
        if self.runs.remove(uid).is_none() {
            return;
        }
        let Some(waiting) = self.waiting.get_mut(namespace) else { return };
        for queue in [&mut waiting.begun, &mut waiting.new, &mut waiting.looks] {
            queue.retain(|waits| waits != uid);
        }
        if waiting.is_empty() {
            self.waiting.remove(namespace);
            self.turns.retain(|turn| turn != namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use proptest::prelude::*;
    use serde_json::json;
    use stoa_types::delivery::Operation;

    use super::*;

    fn run(namespace: &str, name: &str) -> Run {
        let metadata = json!({"namespace": namespace, "name": name, "uid": format!("{namespace}/{name}")});
        let spec = json!({"stack": "web", "operation": "Preview"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn names(places: &mut Places) -> Vec<String> {
        std::iter::from_fn(|| places.next()).map(|run| run.uid().unwrap()).collect()
    }

    #[test]
    fn namespaces_take_turns() {
        let mut places = Places::new(8);
        for name in ["1", "2", "3", "4", "5", "6"] {
            places.queue(run("many", name));
        }
        let half = ["many/1", "many/2", "many/3", "many/4"];
        assert_eq!(names(&mut places), half, "half of the places are for others");
        places.queue(run("few", "1"));
        places.queue(run("other", "1"));
        places.queue(run("other", "2"));
        assert_eq!(names(&mut places), ["few/1", "other/1", "other/2"]);
        places.leave("many");
        assert_eq!(names(&mut places), [""; 0], "it has three, and two are free");
        places.queue(run("few", "2"));
        assert_eq!(names(&mut places), ["few/2"]);
        places.leave("many");
        places.leave("many");
        assert_eq!(names(&mut places), ["many/5"], "it has one, and three are free");
    }

    #[test]
    fn namespace_that_has_fewer_goes_ahead_of_one_that_waits_for_longer() {
        let mut places = Places::new(16);
        for number in 0..20 {
            places.queue(run("many", &number.to_string()));
        }
        assert_eq!(names(&mut places).len(), 12, "a quarter is left");
        for number in 0..8 {
            places.queue(run("few", &number.to_string()));
        }
        assert_eq!(names(&mut places), ["few/0", "few/1"], "half of what was left");
        for _ in 0..4 {
            places.leave("many");
        }
        assert_eq!(names(&mut places), ["few/2", "few/3"], "a quarter is left for others still");
        for _ in 0..3 {
            places.leave("many");
        }
        assert_eq!(names(&mut places), ["few/4", "many/12", "few/5"], "they have the same but for one");
    }

    #[test]
    fn several_namespaces_that_have_all_they_may_leave_places_to_others() {
        let mut places = Places::new(64);
        let mut counts = Vec::new();
        for namespace in 0..6 {
            for number in 0..60 {
                places.queue(run(&namespace.to_string(), &number.to_string()));
            }
            counts.push(names(&mut places).len());
        }
        assert_eq!(counts, [48, 8, 4, 2, 1, 1], "each has less than the one before");
        places.queue(run("another", "1"));
        assert_eq!(names(&mut places), [""; 0], "six have all of them");
        let causes = |places: &Places, namespace: &str| {
            let of = |(run, _): &(&Run, Cause)| run.namespace().as_deref() == Some(namespace);
            places.waiting().filter(of).map(|(_, cause)| cause).collect::<Vec<_>>()
        };
        assert_eq!(
            (causes(&places, "0"), causes(&places, "another")),
            (vec![Cause::Share(64); 12], vec![Cause::Places(64)])
        );
        places.leave("0");
        assert_eq!(names(&mut places), ["another/1"], "what is given back is for who has none");
    }

    #[test]
    fn what_waits_is_there_once_and_as_it_is_now() {
        let mut places = Places::new(1);
        places.queue(run("a", "1"));
        assert_eq!(names(&mut places), ["a/1"]);
        places.queue(run("a", "2"));
        let mut changed = run("a", "2");
        changed.spec.cancel = true;
        places.queue(changed);
        places.queue(run("b", "1"));
        places.forget("b", "b/1");
        places.leave("a");
        assert!(places.next().is_some_and(|run| run.spec.cancel));
        places.leave("a");
        assert!(
            places.next().is_none() && places.waiting.is_empty() && places.turns.is_empty() && places.runs.is_empty()
        );
    }

    #[test]
    fn what_has_begun_and_what_has_not_take_turns() {
        let mut places = Places::new(1);
        for name in ["1", "2", "3"] {
            places.queue(run("a", name));
        }
        for name in ["4", "5", "6", "7", "8"] {
            let mut begun = run("a", name);
            begun.status.get_or_insert_default().start_time = Some(Time(jiff::Timestamp::UNIX_EPOCH));
            places.queue(begun);
        }
        places.forget("a", "a/6");
        let mut came = Vec::new();
        while let Some(next) = places.next() {
            came.push(next.uid().unwrap());
            places.leave("a");
        }
        assert_eq!(came, ["a/4", "a/1", "a/5", "a/2", "a/7", "a/3", "a/8"]);
        assert!(places.waiting.is_empty() && places.turns.is_empty());
    }

    #[test]
    fn looks_for_drift_come_when_nothing_else_waits() {
        let mut places = Places::new(1);
        let look = |name: &str| {
            let mut look = run("a", name);
            look.spec.operation = Operation::Refresh;
            let requester = &mut look.status.get_or_insert_default().requester;
            requester.username = "system:stoa:stacks".to_owned();
            requester.groups = vec!["system:masters".to_owned()];
            look
        };
        for name in ["1", "2", "3", "4"] {
            places.queue(look(name));
        }
        let mut asked_for = run("a", "5");
        asked_for.spec.operation = Operation::Refresh;
        places.queue(asked_for);
        let mut begun = run("a", "6");
        begun.status.get_or_insert_default().start_time = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        places.queue(begun);
        places.forget("a", "a/2");
        let mut came = Vec::new();
        while let Some(next) = places.next() {
            came.push(next.uid().unwrap());
            if came.len() == 3 {
                places.queue(run("a", "7"));
            }
            places.leave("a");
        }
        assert_eq!(came, ["a/6", "a/5", "a/1", "a/7", "a/3", "a/4"]);
        assert!(places.waiting.is_empty() && places.turns.is_empty());
    }

    proptest! {
        /// Whatever comes and goes, no more work than may, nobody who has none waits while a place is free, nobody waits while
        /// more than a quarter is, nobody gets one who leaves less than that and less than they have, and everybody gets one in
        /// the end.
        #[test]
        fn everybody_gets_a_place(all in 1..25_usize, comes in proptest::collection::vec((0..4_u8, any::<bool>()), 0..60)) {
            let (mut places, left) = (Places::new(all), all.div_ceil(4).max(4));
            let mut working: VecDeque<String> = VecDeque::new();
            let mut waiting = 0_usize;
            let of = |working: &VecDeque<String>, of: &str| working.iter().filter(|other| *other == of).count();
            for (number, (namespace, leaves)) in comes.iter().enumerate() {
                places.queue(run(&namespace.to_string(), &number.to_string()));
                waiting += 1;
                if *leaves && let Some(done) = working.pop_front() {
                    places.leave(&done);
                }
                while let Some(next) = places.next() {
                    waiting -= 1;
                    let namespace = next.namespace().unwrap();
                    prop_assert!(of(&working, &namespace).min(left) + working.len() < all);
                    working.push_back(namespace);
                }
                prop_assert!(working.len() <= all);
                prop_assert!(places.waiting().count() == 0 || working.len() + left >= all);
                for (waits, _) in places.waiting().filter(|_| working.len() < all) {
                    prop_assert!(of(&working, &waits.namespace().unwrap()) > 0);
                }
            }
            while let Some(done) = working.pop_front() {
                places.leave(&done);
                while let Some(next) = places.next() {
                    waiting -= 1;
                    working.push_back(next.namespace().unwrap());
                }
            }
            prop_assert_eq!(waiting, 0);
        }
    }
}
