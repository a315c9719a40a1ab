//! The Runs controller: one Run at a time changes a stack in a workspace, in the order of creation ([`run_queue`]). Previews
//! execute beside it. [`slots`] limits how many Runs execute at once.
//!
//! A Run whose plan waits for approval keeps its position in the queue, because the changes of another Run would make the plan
//! stale. It has no task, lease or function-runner until somebody decides or cancels it.
//!
//! A Run whose pull request waits for a merge gives up its position, because the next Run proposes by the same pull request. It
//! gets a position again for each check of the pull request.
//!
//! A Run makes no progress while a cluster, a Backend or a Git server does not answer. It gives up its slot until the next try
//! ([`Stuck`]). It keeps its position: it may have begun to apply, and the next Run would meet the same problem.

mod panics;
mod queue_status;
mod run_queue;
mod slots;
mod time_limit;
mod ttl;

use std::{
    collections::{HashMap, HashSet},
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use stoa_controller::{object::ObjectKey, queue};
use stoa_failpoint::reached;
use stoa_kinds::run_status::{awaits_approval, awaits_merge, queued_at, status, wants_end};
use stoa_machinery::registry::api::Change;
use stoa_runs::{
    Services,
    executor::{self, Attempts, Stops},
};
use stoa_types::{
    Run,
    delivery::{OnConflict, RunPhase},
    reason,
};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use self::{
    panics::Panics,
    queue_status::{Cause, Reported},
    run_queue::DeploymentQueues,
    slots::Slots,
    time_limit::{Stopwatch, limit_of},
    ttl::FinishedRuns,
};

/// How long after a run was put down it is taken up again.
const TAKE_UP: Duration = Duration::from_secs(1);
/// The shortest and longest wait before another look whether a pull request was merged: a twentieth of the time that it waits.
const MERGE: std::ops::RangeInclusive<Duration> = Duration::from_secs(3)..=Duration::from_secs(60);
/// How often it is looked for what was put off.
const SWEEP: Duration = Duration::from_secs(1);

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let Ok(runs) = services.lookup.api::<Run>() else { return };
    let mut changes = runs.subscribe(None);
    let mut scheduler = Scheduler::new(services, end.clone());
    let mut sweep = tokio::time::interval(SWEEP);
    sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = end.cancelled() => break,
            change = changes.next() => match change {
                None => break,
                Some(Change::Restarted(mut all)) => {
                    all.sort_by_cached_key(turn);
                    for run in all {
                        scheduler.see(run).await;
                    }
                }
                Some(Change::Applied(run)) => scheduler.see(run).await,
                Some(Change::Deleted(run)) => scheduler.gone(&run),
            },
            Some(ended) = scheduler.tasks.join_next() => match ended {
                Ok(ended) => scheduler.ended(ended).await,
                Err(error) => tracing::error!(%error, "a run's task ended badly"),
            },
            Some(looked) = scheduler.kept.next() => match looked {
                Ok(looked) => scheduler.kept.note(looked),
                Err(error) => tracing::error!(%error, "a look at ended runs ended badly"),
            },
            _ = sweep.tick() => {
                scheduler.sweep().await;
                scheduler.tell_waiting();
            }
        }
    }
    while scheduler.tasks.join_next().await.is_some() {}
}

/// The order of Runs at a start: begun ones first, then by their creation.
fn turn(run: &Run) -> impl Ord + use<> {
    (status(run).start_time.is_none(), awaits_merge(run), queued_at(run), run.name_any())
}

struct Scheduler {
    services: Services,
    end: CancellationToken,
    active: HashMap<String, Active>,
    /// Whose turn it is of those that change something.
    lanes: DeploymentQueues,
    /// Who of those that may be executed is.
    slots: Slots,
    /// From when the time of each run counts that was taken up and has not ended, by uid.
    began: HashMap<String, Stopwatch>,
    panics: Panics,
    /// Those that got nowhere, by uid, until they are tried again.
    stuck: HashMap<String, Stuck>,
    later: HashMap<ObjectKey, Instant>,
    kept: FinishedRuns,
    /// What those that wait know of why.
    told: Reported,
    /// Those that are told now. A log that is slow is not to keep the others from beginning.
    telling: Option<AbortOnDropHandle<queue_status::Due>>,
    tasks: JoinSet<Ended>,
}

struct Active {
    key: ObjectKey,
    cancel: CancellationToken,
    has_place: bool,
    /// Whether its task ended in a panic.
    has_panicked: Arc<AtomicBool>,
}

struct Ended {
    uid: String,
    /// Those of a run that gets nowhere and is to be tried again.
    tries: Option<Attempts>,
}

/// A run that gets nowhere. It has no place until it is tried again, and its time goes on, unless it waits for a merge.
struct Stuck {
    key: ObjectKey,
    tries: Attempts,
    limit: Duration,
}

/// How long to wait before another look whether the pull request of a run was merged.
fn look_after(run: &Run, now: Timestamp) -> Duration {
    let since = status(run).pull_request.and_then(|pull| pull.time);
    let waited = since.and_then(|Time(since)| Duration::try_from(now.duration_since(since)).ok());
    (waited.unwrap_or_default() / 20).clamp(*MERGE.start(), *MERGE.end())
}

/// Executes a Run as it is now. Returns its attempts where it is to be suspended.
async fn take_up(services: Services, seen: Run, began: Stopwatch, stops: Stops, tries: Attempts) -> Option<Attempts> {
    let (namespace, name) = queue::key_of(&seen);
    let runs = services.lookup.api::<Run>().ok()?;
    let run = match runs.get_opt(&namespace, &name).await {
        Ok(Some(run)) if run.uid() == seen.uid() && !status(&run).phase.is_terminal() => run,
        Ok(_) => return None,
        Err(error) => {
            tracing::warn!(run = name, %error, "a run cannot be read");
            return None;
        }
    };
    if wants_end(&run) {
        stops.cancel.cancel();
    }
    let left = limit_of(&run).saturating_sub(began.spent());
    if left.is_zero() {
        // It only ends.
        stops.overdue.cancel();
        stops.cancel.cancel();
    }
    let _alarm = AbortOnDropHandle::new(tokio::spawn({
        let Stops { overdue, cancel, .. } = stops.clone();
        async move {
            tokio::time::sleep(left).await;
            overdue.cancel();
            cancel.cancel();
        }
    }));
    Box::pin(executor::run_to_completion(services, run, stops, tries)).await
}

impl Scheduler {
    fn new(services: Services, end: CancellationToken) -> Self {
        Self {
            slots: Slots::new(services.max_runs),
            kept: FinishedRuns::new(services.clone()),
            services,
            end,
            active: HashMap::new(),
            lanes: DeploymentQueues::default(),
            began: HashMap::new(),
            panics: Panics::default(),
            stuck: HashMap::new(),
            later: HashMap::new(),
            told: Reported::default(),
            telling: None,
            tasks: JoinSet::new(),
        }
    }

    async fn see(&mut self, run: Run) {
        let uid = run.uid().unwrap_or_default();
        let state = status(&run);
        if state.phase.is_terminal() {
            self.kept.see(&run);
            return;
        }
        if let Some(active) = self.active.get(&uid) {
            if wants_end(&run) {
                active.cancel.cancel();
            }
            return;
        }
        if wants_end(&run) || self.is_overdue(&uid) {
            // A run that never started ends here; one that did is taken up to end orderly.
            if !self.lanes.has_turn(&uid) {
                self.unqueue(&uid);
            }
            self.slots.forget(&run.namespace().unwrap_or_default(), &uid);
            self.execute(run, false);
            return;
        }
        if state.start_time.is_none() {
            reached("run-recorded");
        }
        let is_put_off = awaits_merge(&run) || self.stuck.contains_key(&uid);
        if is_put_off && self.later.contains_key(&queue::key_of(&run)) {
            return;
        }
        if !run.spec.operation.is_mutating() {
            self.start(run);
            return;
        }
        self.queue(run).await;
    }

    /// Whether the time of a run is up that got nowhere, and that no task ends for that.
    fn is_overdue(&self, uid: &str) -> bool {
        let stuck = self.stuck.get(uid).zip(self.began.get(uid));
        stuck.is_some_and(|(stuck, began)| began.is_over(stuck.limit))
    }

    async fn queue(&mut self, run: Run) {
        let uid = run.uid().unwrap_or_default();
        if self.lanes.has(&uid) {
            // It has its turn and was put down, and now something is decided.
            if self.lanes.has_turn(&uid) && !awaits_approval(&run) {
                self.start(run);
            }
            return;
        }
        let is_new = status(&run).start_time.is_none();
        if is_new && run.spec.on_conflict == OnConflict::Refuse && self.lanes.is_taken(&run) {
            let message = "another run of the stack in the workspace is under way, and onConflict is Refuse";
            let services = self.services.clone();
            if let Err(halt) = executor::fail(services, run.clone(), reason::CONFLICTING_RUN, message).await {
                tracing::warn!(run = run.name_any(), ?halt, "a run that is refused does not end yet");
                self.later.insert(queue::key_of(&run), Instant::now() + TAKE_UP);
            }
            return;
        }
        if let Some(run) = self.lanes.join(run)
            && !awaits_approval(&run)
        {
            self.start(run);
        }
    }

    fn start(&mut self, run: Run) {
        self.slots.queue(run);
        self.fill();
    }

    fn fill(&mut self) {
        while let Some(run) = self.slots.next() {
            self.execute(run, true);
        }
    }

    fn execute(&mut self, run: Run, has_place: bool) {
        let uid = run.uid().unwrap_or_default();
        let key = queue::key_of(&run);
        let cancel = CancellationToken::new();
        let has_panicked = Arc::<AtomicBool>::default();
        let active = Active { key, cancel: cancel.clone(), has_place, has_panicked: has_panicked.clone() };
        self.active.insert(uid.clone(), active);
        let now = self.services.now();
        let began = self.began.entry(uid.clone()).or_insert_with(|| Stopwatch::new(&run, now));
        began.resume();
        let began = *began;
        let tries = self.stuck.remove(&uid).map(|stuck| stuck.tries).unwrap_or_default();
        let services = self.services.clone();
        let stops = Stops { cancel, end: self.end.clone(), ..Stops::default() };
        let is_given_up = self.panics.are_too_many(&uid);
        self.tasks.spawn(async move {
            let work = Box::pin(async move {
                if is_given_up {
                    panics::give_up(services, run, stops.end).await;
                    return None;
                }
                take_up(services, run, began, stops, tries).await
            });
            let tries = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
                tracing::error!(uid, "a run's task panicked");
                has_panicked.store(true, Ordering::Relaxed);
                None
            });
            Ended { uid, tries }
        });
    }

    /// A run's task has ended: the next of its lane starts, and one that was put down before its
    /// end is taken up again later. It keeps its turn, unless it waits for a merge: whatever another run changed
    /// meanwhile, the plan that it has made and goes on with would undo.
    async fn ended(&mut self, Ended { uid, tries }: Ended) {
        let Some(Active { key, has_place, has_panicked, .. }) = self.active.remove(&uid) else { return };
        self.panics.note(&uid, has_panicked.load(Ordering::Relaxed));
        let namespace = key.0.clone();
        self.put_down(&uid, key, tries).await;
        if has_place {
            self.slots.release(&namespace);
            self.fill();
        }
    }

    async fn put_down(&mut self, uid: &str, key: ObjectKey, tries: Option<Attempts>) {
        let found = match self.services.lookup.api::<Run>() {
            Ok(runs) => runs.get_opt(&key.0, &key.1).await,
            Err(error) => Err(error),
        };
        let run = match found {
            Ok(run) => run.filter(|run| run.uid().as_deref() == Some(uid) && !status(run).phase.is_terminal()),
            // It is not known to have ended. It may wait for approval, for as long as nothing can be read.
            Err(_) => {
                if let Some(began) = self.began.get_mut(uid) {
                    began.pause();
                }
                self.later.insert(key, Instant::now() + TAKE_UP);
                return;
            }
        };
        let Some(run) = run else {
            self.leave_lane(uid);
            self.forget(uid);
            return;
        };
        let (is_ending, awaits_approval, awaits_merge) = (wants_end(&run), awaits_approval(&run), awaits_merge(&run));
        if awaits_merge {
            self.leave_lane(uid);
        }
        if !is_ending
            && (awaits_approval || awaits_merge)
            && let Some(began) = self.began.get_mut(uid)
        {
            began.pause();
        }
        let wait = match status(&run).phase {
            _ if is_ending => TAKE_UP,
            // Whoever decides has it taken up.
            RunPhase::AwaitingApproval if awaits_approval => return,
            RunPhase::AwaitingMerge => look_after(&run, self.services.now()),
            phase => match (&tries, phase) {
                (Some(tries), _) => tries.again(),
                // It was decided while it was being put down, when nobody listened.
                (None, RunPhase::AwaitingApproval) => Duration::ZERO,
                (None, _) => TAKE_UP,
            },
        };
        if let Some(tries) = tries {
            self.stuck.insert(uid.to_owned(), Stuck { key: key.clone(), tries, limit: limit_of(&run) });
        }
        self.later.insert(key, Instant::now() + wait);
    }

    /// Forgets how a run fared that has ended.
    fn forget(&mut self, uid: &str) {
        self.began.remove(uid);
        self.stuck.remove(uid);
        self.panics.forget(uid);
    }

    /// Takes a run out of its lane, and has the next one executed if it was its turn.
    fn leave_lane(&mut self, uid: &str) {
        if let Some(next) = self.lanes.leave(uid) {
            self.start(next);
        }
    }

    /// Takes a run that waits out of its lane; one that is executed leaves it when its task ends.
    fn unqueue(&mut self, uid: &str) {
        if !self.active.contains_key(uid) {
            self.leave_lane(uid);
        }
    }

    fn gone(&mut self, run: &Run) {
        let uid = run.uid().unwrap_or_default();
        let key = queue::key_of(run);
        self.later.remove(&key);
        self.kept.forget(&key);
        self.slots.forget(&run.namespace().unwrap_or_default(), &uid);
        self.unqueue(&uid);
        match self.active.get(&uid) {
            Some(active) => active.cancel.cancel(),
            None => self.forget(&uid),
        }
    }

    /// What those wait for that have not begun.
    fn waiting(&self) -> impl Iterator<Item = (&Run, Cause)> {
        // What got nowhere says what is in its way.
        let is_new = |(run, _): &(&Run, Cause)| run.uid().is_none_or(|uid| !self.stuck.contains_key(&uid));
        self.lanes.waiting().chain(self.slots.waiting().filter(is_new))
    }

    /// Has those that wait say what for, a few at a time. Waits for none of them.
    fn tell_waiting(&mut self) {
        match self.telling.take() {
            Some(telling) if !telling.is_finished() => {
                self.telling = Some(telling);
                return;
            }
            // A task that failed has told nobody, who are told again.
            Some(telling) => self.told.note(telling.now_or_never().and_then(Result::ok).unwrap_or_default()),
            None => {}
        }
        let Ok(runs) = self.services.lookup.api::<Run>() else { return };
        let mut told = std::mem::take(&mut self.told);
        let due = told.due(self.waiting());
        self.told = told;
        if !due.is_empty() {
            self.telling = Some(AbortOnDropHandle::new(tokio::spawn(queue_status::tell(runs, due))));
        }
    }

    async fn sweep(&mut self) {
        let Ok(runs) = self.services.lookup.api::<Run>() else { return };
        let now = Instant::now();
        let due = self.later.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone());
        // Wherever they are, they end in time.
        let overdue = self.stuck.iter().filter(|(uid, _)| self.is_overdue(uid)).map(|(_, stuck)| stuck.key.clone());
        for key in due.chain(overdue).collect::<HashSet<_>>() {
            // Nothing else may tell of one that cannot be read now.
            let Ok(found) = runs.get_opt(&key.0, &key.1).await else { continue };
            self.later.remove(&key);
            let Some(run) = found else { continue };
            if status(&run).phase.is_terminal() {
                // It could not be read when its task ended.
                let uid = run.uid().unwrap_or_default();
                self.unqueue(&uid);
                self.forget(&uid);
            }
            Box::pin(self.see(run)).await;
        }
        self.kept.sweep();
    }
}

#[cfg(test)]
pub(crate) mod tests;
