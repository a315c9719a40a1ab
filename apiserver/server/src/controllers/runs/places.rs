//! Who works next: so many runs at once, and every namespace in its turn.
//!
//! A run that is executed has a place, wherever it is in its life. Those that find none wait, and each place that becomes
//! free goes to the next namespace in which one waits. No namespace has more than half of the places, so that what one
//! tenant has at work for hours keeps no other tenant from working. A run that only ends needs none, and one that gets nowhere has one
//! only while it is tried, for which it waits like any other.

use std::collections::{HashMap, VecDeque};

use kube::ResourceExt as _;
use stoa_types::Run;

use super::waiting::Cause;
use crate::runs::status;

#[derive(Debug)]
pub(super) struct Places {
    all: usize,
    /// How many are taken, by namespace.
    taken: HashMap<String, usize>,
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
    /// Whose turn it was last.
    was_begun: bool,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.begun.is_empty() && self.new.is_empty()
    }

    fn next(&mut self) -> Option<String> {
        self.was_begun = if self.was_begun { self.new.is_empty() } else { !self.begun.is_empty() };
        if self.was_begun { self.begun.pop_front() } else { self.new.pop_front() }
    }
}

impl Places {
    /// So many places, but at least one.
    pub(super) fn new(all: usize) -> Self {
        Self {
            all: all.max(1),
            taken: HashMap::new(),
            waiting: HashMap::new(),
            runs: HashMap::new(),
            turns: VecDeque::new(),
        }
    }

    /// Has a run wait for a place; one that waits already is replaced by what it is now. [`next`](Self::next) tells who
    /// has one.
    pub(super) fn queue(&mut self, run: Run) {
        let (namespace, uid) = (run.namespace().unwrap_or_default(), run.uid().unwrap_or_default());
        let has_begun = status(&run).start_time.is_some();
        if self.runs.insert(uid.clone(), run).is_some() {
            return;
        }
        let waiting = self.waiting.entry(namespace.clone()).or_default();
        if waiting.is_empty() {
            self.turns.push_back(namespace);
        }
        if has_begun { &mut waiting.begun } else { &mut waiting.new }.push_back(uid);
    }

    /// How many places a namespace may have.
    fn share(&self) -> usize {
        (self.all / 2).max(1)
    }

    /// What waits, and what it lacks.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (&Run, Cause)> {
        let (all, share) = (self.all, self.share());
        self.runs.values().map(move |run| {
            let taken = self.taken.get(&run.namespace().unwrap_or_default()).copied().unwrap_or(0);
            (run, if taken >= share && share < all { Cause::Share(share, all) } else { Cause::Places(all) })
        })
    }

    /// The next run that has a place now, if there is one.
    pub(super) fn next(&mut self) -> Option<Run> {
        if self.taken.values().sum::<usize>() >= self.all {
            return None;
        }
        let most = self.share();
        let taken = |namespace: &String| self.taken.get(namespace).copied().unwrap_or(0);
        let at = self.turns.iter().position(|namespace| taken(namespace) < most)?;
        let namespace = self.turns.remove(at)?;
        let waiting = self.waiting.get_mut(&namespace)?;
        let run = self.runs.remove(&waiting.next()?)?;
        if waiting.is_empty() {
            self.waiting.remove(&namespace);
        } else {
            self.turns.push_back(namespace.clone());
        }
        *self.taken.entry(namespace).or_default() += 1;
        Some(run)
    }

    /// Gives the place of a run of this namespace back.
    pub(super) fn leave(&mut self, namespace: &str) {
        if let Some(taken) = self.taken.get_mut(namespace) {
            *taken -= 1;
            if *taken == 0 {
                self.taken.remove(namespace);
            }
        }
    }

    /// Takes a run that waits out.
    pub(super) fn forget(&mut self, namespace: &str, uid: &str) {
        if self.runs.remove(uid).is_none() {
            return;
        }
        let Some(waiting) = self.waiting.get_mut(namespace) else { return };
        waiting.begun.retain(|waits| waits != uid);
        waiting.new.retain(|waits| waits != uid);
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
        let mut places = Places::new(4);
        for name in ["1", "2", "3", "4", "5"] {
            places.queue(run("many", name));
        }
        assert_eq!(names(&mut places), ["many/1", "many/2"], "half of the places are for others");
        places.queue(run("few", "1"));
        places.queue(run("other", "1"));
        places.queue(run("other", "2"));
        assert_eq!(names(&mut places), ["few/1", "other/1"]);
        places.leave("many");
        assert_eq!(names(&mut places), ["many/3"], "whose turn is next, and has less than half");
        places.leave("few");
        assert_eq!(names(&mut places), ["other/2"]);
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

    proptest! {
        /// Whatever comes and goes, no more work than may, everybody gets a place in the end, and within a round of the
        /// others.
        #[test]
        fn everybody_gets_a_place(all in 1..6_usize, comes in proptest::collection::vec((0..4_u8, any::<bool>()), 0..60)) {
            let mut places = Places::new(all);
            let (mut working, mut waiting) = (VecDeque::new(), 0_usize);
            let most = (all / 2).max(1);
            for (number, (namespace, leaves)) in comes.iter().enumerate() {
                places.queue(run(&namespace.to_string(), &number.to_string()));
                waiting += 1;
                if *leaves && let Some(done) = working.pop_front() {
                    places.leave(done);
                }
                while let Some(next) = places.next() {
                    waiting -= 1;
                    working.push_back(next.namespace().unwrap().leak());
                }
                prop_assert!(working.len() <= all);
                for namespace in &working {
                    prop_assert!(working.iter().filter(|other| *other == namespace).count() <= most);
                }
            }
            while let Some(done) = working.pop_front() {
                places.leave(done);
                while let Some(next) = places.next() {
                    waiting -= 1;
                    working.push_back(next.namespace().unwrap().leak());
                }
            }
            prop_assert_eq!(waiting, 0);
        }
    }
}
