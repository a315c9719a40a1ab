//! The slots of Runs: how many Runs execute at once, and which Run is next.
//!
//! A Run that executes has a slot; other Runs wait. A free slot is for the namespace with the fewest slots, and among equals for
//! the next in turn ([`FairSemaphore`]). One namespace alone gets 48 of 64 slots, the next one 8 at once, then 4, 2, 1 and 1. So
//! the long rollouts of a few namespaces delay no other namespace. A Run that only ends needs no slot. A Run that makes no
//! progress has one only during a try.

use std::collections::{HashMap, VecDeque};

use kube::ResourceExt as _;
use stoa_fairness::{FairSemaphore, MaxShare, Permit};
use stoa_kinds::run_status::status;
use stoa_types::Run;

use super::queue_status::Cause;
use crate::controllers::stacks;

/// The slots, the runs that hold them, and the runs that wait.
#[derive(Debug)]
pub(super) struct Slots {
    slots: FairSemaphore,
    /// The slots that are held, by namespace; never empty.
    held: HashMap<String, Vec<Permit>>,
    waiting: HashMap<String, RunQueue>,
    /// The runs that wait, by uid: thousands may wait, and each is seen again with every change of it.
    runs: HashMap<String, Run>,
    turns: VecDeque<String>,
}

/// The uids of waiting runs of one namespace in their order. Begun and new runs take turns.
#[derive(Debug, Default)]
struct RunQueue {
    begun: VecDeque<String>,
    new: VecDeque<String>,
    /// Drift checks, of which hundreds may come at once and for which nobody waits: all other runs come first.
    drift_checks: VecDeque<String>,
    was_begun: bool,
}

impl RunQueue {
    fn is_empty(&self) -> bool {
        self.begun.is_empty() && self.new.is_empty() && self.drift_checks.is_empty()
    }

    fn next(&mut self) -> Option<String> {
        if self.begun.is_empty() && self.new.is_empty() {
            return self.drift_checks.pop_front();
        }
        self.was_begun = if self.was_begun { self.new.is_empty() } else { !self.begun.is_empty() };
        if self.was_begun { self.begun.pop_front() } else { self.new.pop_front() }
    }
}

impl Slots {
    /// So many slots, but at least one.
    pub(super) fn new(slots: usize) -> Self {
        Self {
            slots: FairSemaphore::new(slots.max(1), MaxShare::ThreeQuarters),
            held: HashMap::new(),
            waiting: HashMap::new(),
            runs: HashMap::new(),
            turns: VecDeque::new(),
        }
    }

    /// Queues a run, or replaces its earlier state. [`next`](Self::next) returns the runs with a slot.
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
            (true, _) => &mut waiting.drift_checks,
            (false, true) => &mut waiting.begun,
            (false, false) => &mut waiting.new,
        };
        queue.push_back(uid);
    }

    /// The waiting runs, and their causes.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (&Run, Cause)> {
        let all = self.slots.permits();
        self.runs.values().map(move |run| {
            let holds_any = self.slots.held_by(&run.namespace().unwrap_or_default()) > 0;
            (run, if holds_any && all > 1 { Cause::Share(all) } else { Cause::Places(all) })
        })
    }

    pub(super) fn next(&mut self) -> Option<Run> {
        let (at, slot) = self.slots.try_acquire_for_next(self.turns.iter().map(String::as_str).enumerate())?;
        let namespace = self.turns.remove(at)?;
        let waiting = self.waiting.get_mut(&namespace)?;
        let run = self.runs.remove(&waiting.next()?)?;
        if waiting.is_empty() {
            self.waiting.remove(&namespace);
        } else {
            self.turns.push_back(namespace.clone());
        }
        self.held.entry(namespace).or_default().push(slot);
        Some(run)
    }

    pub(super) fn release(&mut self, namespace: &str) {
        let Some(held) = self.held.get_mut(namespace) else { return };
        held.pop();
        if held.is_empty() {
            self.held.remove(namespace);
        }
    }

    pub(super) fn forget(&mut self, namespace: &str, uid: &str) {
        if self.runs.remove(uid).is_none() {
            return;
        }
        let Some(waiting) = self.waiting.get_mut(namespace) else { return };
        for queue in [&mut waiting.begun, &mut waiting.new, &mut waiting.drift_checks] {
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

    fn names(slots: &mut Slots) -> Vec<String> {
        std::iter::from_fn(|| slots.next()).map(|run| run.uid().unwrap()).collect()
    }

    #[test]
    fn namespaces_take_turns() {
        let mut slots = Slots::new(8);
        for name in ["1", "2", "3", "4", "5", "6", "7", "8"] {
            slots.queue(run("many", name));
        }
        let most = ["many/1", "many/2", "many/3", "many/4", "many/5", "many/6"];
        assert_eq!(names(&mut slots), most, "a quarter of the slots is for others");
        slots.queue(run("few", "1"));
        slots.queue(run("other", "1"));
        slots.queue(run("other", "2"));
        assert_eq!(names(&mut slots), ["few/1", "other/1"]);
        slots.release("many");
        assert_eq!(names(&mut slots), [""; 0], "the last slot is for a namespace that holds none");
        slots.queue(run("few", "2"));
        slots.release("many");
        assert_eq!(names(&mut slots), ["other/2"], "it came before few");
        slots.release("many");
        assert_eq!(names(&mut slots), ["few/2"], "it holds fewer than many");
        slots.release("many");
        slots.release("many");
        assert_eq!(names(&mut slots), ["many/7"], "it holds one, and three are free");
    }

    #[test]
    fn namespace_with_fewer_slots_passes_earlier_runs() {
        let mut slots = Slots::new(16);
        for number in 0..20 {
            slots.queue(run("many", &number.to_string()));
        }
        assert_eq!(names(&mut slots).len(), 12, "a quarter is left");
        for number in 0..8 {
            slots.queue(run("few", &number.to_string()));
        }
        assert_eq!(names(&mut slots), ["few/0", "few/1"], "half of what was left");
        for _ in 0..4 {
            slots.release("many");
        }
        assert_eq!(names(&mut slots), ["few/2", "few/3"], "a quarter is left for others still");
        for _ in 0..3 {
            slots.release("many");
        }
        assert_eq!(names(&mut slots), ["few/4", "many/12", "few/5"], "they hold the same but for one");
    }

    #[test]
    fn several_namespaces_at_their_share_leave_slots_to_others() {
        let mut slots = Slots::new(64);
        let mut counts = Vec::new();
        for namespace in 0..6 {
            for number in 0..60 {
                slots.queue(run(&namespace.to_string(), &number.to_string()));
            }
            counts.push(names(&mut slots).len());
        }
        assert_eq!(counts, [48, 8, 4, 2, 1, 1], "each has less than the one before");
        slots.queue(run("another", "1"));
        assert_eq!(names(&mut slots), [""; 0], "six have all of them");
        let causes = |slots: &Slots, namespace: &str| {
            let of = |(run, _): &(&Run, Cause)| run.namespace().as_deref() == Some(namespace);
            slots.waiting().filter(of).map(|(_, cause)| cause).collect::<Vec<_>>()
        };
        assert_eq!(
            (causes(&slots, "0"), causes(&slots, "another")),
            (vec![Cause::Share(64); 12], vec![Cause::Places(64)])
        );
        slots.release("0");
        assert_eq!(names(&mut slots), ["another/1"], "what is given back is for who has none");
    }

    #[test]
    fn queued_run_is_unique_and_up_to_date() {
        let mut slots = Slots::new(1);
        slots.queue(run("a", "1"));
        assert_eq!(names(&mut slots), ["a/1"]);
        slots.queue(run("a", "2"));
        let mut changed = run("a", "2");
        changed.spec.cancel = true;
        slots.queue(changed);
        slots.queue(run("b", "1"));
        slots.forget("b", "b/1");
        slots.release("a");
        assert!(slots.next().is_some_and(|run| run.spec.cancel));
        slots.release("a");
        assert!(slots.next().is_none() && slots.waiting.is_empty() && slots.turns.is_empty() && slots.runs.is_empty());
    }

    #[test]
    fn new_and_begun_runs_take_turns() {
        let mut slots = Slots::new(1);
        for name in ["1", "2", "3"] {
            slots.queue(run("a", name));
        }
        for name in ["4", "5", "6", "7", "8"] {
            let mut begun = run("a", name);
            begun.status.get_or_insert_default().start_time = Some(Time(jiff::Timestamp::UNIX_EPOCH));
            slots.queue(begun);
        }
        slots.forget("a", "a/6");
        let mut came = Vec::new();
        while let Some(next) = slots.next() {
            came.push(next.uid().unwrap());
            slots.release("a");
        }
        assert_eq!(came, ["a/4", "a/1", "a/5", "a/2", "a/7", "a/3", "a/8"]);
        assert!(slots.waiting.is_empty() && slots.turns.is_empty());
    }

    #[test]
    fn drift_checks_come_after_all_other_runs() {
        let mut slots = Slots::new(1);
        let look = |name: &str| {
            let mut look = run("a", name);
            look.spec.operation = Operation::Refresh;
            let requester = &mut look.status.get_or_insert_default().requester;
            requester.username = "system:stoa:stacks".to_owned();
            requester.groups = vec!["system:masters".to_owned()];
            look
        };
        for name in ["1", "2", "3", "4"] {
            slots.queue(look(name));
        }
        let mut asked_for = run("a", "5");
        asked_for.spec.operation = Operation::Refresh;
        slots.queue(asked_for);
        let mut begun = run("a", "6");
        begun.status.get_or_insert_default().start_time = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        slots.queue(begun);
        slots.forget("a", "a/2");
        let mut came = Vec::new();
        while let Some(next) = slots.next() {
            came.push(next.uid().unwrap());
            if came.len() == 3 {
                slots.queue(run("a", "7"));
            }
            slots.release("a");
        }
        assert_eq!(came, ["a/6", "a/5", "a/1", "a/7", "a/3", "a/4"]);
        assert!(slots.waiting.is_empty() && slots.turns.is_empty());
    }

    proptest! {
        /// Whatever comes and goes, no more work than may, nobody who has none waits while a place is free, nobody waits while
        /// more than a quarter is, nobody gets one who leaves less than that and less than they have, and everybody gets one in
        /// the end.
        #[test]
        fn every_run_gets_a_slot(all in 1..25_usize, comes in proptest::collection::vec((0..4_u8, any::<bool>()), 0..60)) {
            let (mut slots, left) = (Slots::new(all), all.div_ceil(4));
            let mut working: VecDeque<String> = VecDeque::new();
            let mut waiting = 0_usize;
            let of = |working: &VecDeque<String>, of: &str| working.iter().filter(|other| *other == of).count();
            for (number, (namespace, leaves)) in comes.iter().enumerate() {
                slots.queue(run(&namespace.to_string(), &number.to_string()));
                waiting += 1;
                if *leaves && let Some(done) = working.pop_front() {
                    slots.release(&done);
                }
                while let Some(next) = slots.next() {
                    waiting -= 1;
                    let namespace = next.namespace().unwrap();
                    prop_assert!(of(&working, &namespace).min(left) + working.len() < all);
                    working.push_back(namespace);
                }
                prop_assert!(working.len() <= all);
                prop_assert!(slots.waiting().count() == 0 || working.len() + left >= all);
                for (waits, _) in slots.waiting().filter(|_| working.len() < all) {
                    prop_assert!(of(&working, &waits.namespace().unwrap()) > 0);
                }
            }
            while let Some(done) = working.pop_front() {
                slots.release(&done);
                while let Some(next) = slots.next() {
                    waiting -= 1;
                    working.push_back(next.namespace().unwrap());
                }
            }
            prop_assert_eq!(waiting, 0);
        }
    }
}
