//! The condition `Waiting` of Runs that are queued.
//!
//! A queued Run names the Run just before it, rather than the one that executes, so its message stays the same
//! while the queue moves. A wait of less than a second is not reported. A message that changed is reported
//! again after half a minute, and only some Runs are written at once.

use std::{collections::HashMap, time::Duration};

use futures_util::future::join_all;
use kube::ResourceExt as _;
use stoa_controller::{conditions::set_condition, finalizers::update_status_of_same, queue};
use stoa_kinds::run_status::{status, wants_end};
use stoa_machinery::registry::Api;
use stoa_types::{Run, delivery::RunPhase, reason};
use tokio::time::Instant;

/// How soon a run is told something else.
const AGAIN: Duration = Duration::from_secs(30);
/// How many runs are told something at once.
const AT_ONCE: usize = 16;

/// What keeps a run from beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The run of this name comes first.
    Turn(String),
    /// All places are taken, so many.
    Places(usize),
    /// The run's namespace has as many places as it may of all that there are, so many.
    Share(usize),
}

impl Cause {
    fn reason(&self) -> &'static str {
        match self {
            Self::Turn(_) => reason::QUEUED,
            Self::Places(_) => reason::NO_PLACE,
            Self::Share(..) => reason::NAMESPACE_SHARE_USED,
        }
    }

    fn message(&self, run: &Run) -> String {
        match self {
            Self::Turn(first) => format!(
                "run {first} is first in the queue of stack {} in workspace {}",
                run.spec.stack, run.spec.workspace
            ),
            Self::Places(1) => "the only slot for runs is in use".to_owned(),
            Self::Places(all) => format!("all {all} slots for runs are in use"),
            Self::Share(all) => format!(
                "namespace {} has its share of the {all} slots for runs; the free slots are for namespaces with fewer \
                 runs",
                run.namespace().unwrap_or_default()
            ),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Reported {
    /// By uid: what, when, and in which round it was last still waiting.
    told: HashMap<String, (Cause, Instant, u64)>,
    round: u64,
}

pub(super) type Due = Vec<(Run, Cause)>;

impl Reported {
    /// What those that wait are to be told: what for, as far as they do not know it.
    pub(super) fn due<'r>(&mut self, waiting: impl Iterator<Item = (&'r Run, Cause)>) -> Due {
        self.round += 1;
        let mut due = Due::new();
        for (run, cause) in waiting {
            let uid = run.uid().unwrap_or_default();
            if status(run).start_time.is_some() {
                continue;
            }
            if let Some((told, at, last)) = self.told.get_mut(&uid) {
                *last = self.round;
                if *told == cause || at.elapsed() < AGAIN {
                    continue;
                }
            }
            if due.len() < AT_ONCE {
                due.push((run.clone(), cause));
            }
        }
        let round = self.round;
        self.told.retain(|_, (.., last)| *last == round);
        due
    }

    pub(super) fn note(&mut self, told: Due) {
        for (run, cause) in told {
            self.told.insert(run.uid().unwrap_or_default(), (cause, Instant::now(), self.round));
        }
    }
}

pub(super) async fn tell(runs: Api<Run>, due: Due) -> Due {
    let writes = join_all(due.iter().map(|(run, cause)| tell_one(&runs, run, cause))).await;
    due.into_iter().zip(writes).filter(|(_, is_told)| *is_told).map(|(told, _)| told).collect()
}

async fn tell_one(runs: &Api<Run>, run: &Run, cause: &Cause) -> bool {
    let (why, message) = (cause.reason(), cause.message(run));
    let change = |run: &mut Run| {
        // It may have begun since, or be about to end.
        let is_waiting = status(run).phase == RunPhase::Pending && status(run).start_time.is_none() && !wants_end(run);
        if is_waiting {
            let generation = run.metadata.generation;
            let conditions = &mut run.status.get_or_insert_default().conditions;
            set_condition(conditions, reason::WAITING, true, why, message.as_str(), generation);
        }
    };
    let written = queue::unless_gone(update_status_of_same(runs, run, change).await);
    if let Err(error) = &written {
        tracing::debug!(run = run.name_any(), %error, "a run does not show what it waits for");
    }
    written.is_ok()
}
