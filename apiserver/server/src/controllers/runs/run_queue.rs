//! The queue of each deployment: Runs that change it execute one after the other, in the order of their creation.

use std::{
    collections::{HashMap, VecDeque},
    iter,
};

use kube::ResourceExt as _;
use stoa_types::Run;

use super::queue_status::Cause;

/// What excludes each other: namespace, stack and workspace.
type Lane = (String, String, String);

fn lane(run: &Run) -> Lane {
    (run.namespace().unwrap_or_default(), run.spec.stack.clone(), run.spec.workspace.clone())
}

struct Turn {
    uid: String,
    name: String,
}

impl Turn {
    fn of(run: &Run) -> Self {
        Self { uid: run.uid().unwrap_or_default(), name: run.name_any() }
    }
}

#[derive(Default)]
pub(super) struct DeploymentQueues {
    /// For each lane whose turn it is and those that wait.
    lanes: HashMap<Lane, (Turn, VecDeque<Run>)>,
    lane_of: HashMap<String, Lane>,
}

impl DeploymentQueues {
    pub(super) fn has(&self, uid: &str) -> bool {
        self.lane_of.contains_key(uid)
    }

    pub(super) fn has_turn(&self, uid: &str) -> bool {
        let lane = self.lane_of.get(uid).and_then(|lane| self.lanes.get(lane));
        lane.is_some_and(|(current, _)| current.uid == uid)
    }

    pub(super) fn is_taken(&self, run: &Run) -> bool {
        self.lanes.contains_key(&lane(run))
    }

    /// Has a run come to its lane. It comes back where it is its turn at once.
    pub(super) fn join(&mut self, run: Run) -> Option<Run> {
        let lane = lane(&run);
        self.lane_of.insert(run.uid().unwrap_or_default(), lane.clone());
        if let Some((_, waiting)) = self.lanes.get_mut(&lane) {
            waiting.push_back(run);
            return None;
        }
        self.lanes.insert(lane, (Turn::of(&run), VecDeque::new()));
        Some(run)
    }

    /// Takes a run out of its lane, if it is in one. Returns the run whose turn comes by that.
    pub(super) fn leave(&mut self, uid: &str) -> Option<Run> {
        let lane = self.lane_of.remove(uid)?;
        let (current, waiting) = self.lanes.get_mut(&lane)?;
        if current.uid != uid {
            waiting.retain(|run| run.uid().as_deref() != Some(uid));
            return None;
        }
        let next = waiting.pop_front();
        match &next {
            Some(next) => *current = Turn::of(next),
            None => drop(self.lanes.remove(&lane)),
        }
        next
    }

    /// Those that wait, and for whom: each for the one before it.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (&Run, Cause)> {
        self.lanes.values().flat_map(|(current, waiting)| {
            let before = iter::once(current.name.clone()).chain(waiting.iter().map(|run| run.name_any()));
            waiting.iter().zip(before.map(Cause::Turn))
        })
    }
}
