//! Decides which runs are executed when: one at a time that changes a stack in a workspace, in the
//! order in which they were created; previews at once.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use futures_util::StreamExt as _;
use jiff::Timestamp;
use kube::ResourceExt as _;
use stoa_machinery::{
    ApiError,
    registry::{DeleteOptions, api::Change},
};
use stoa_types::{
    Run,
    delivery::{OnConflict, RunPhase},
    labels, reason,
};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use super::queue;
use crate::runs::{Services, execute, execute::Execution, journal, status};

/// How long after a run was put down it is taken up again.
const TAKE_UP: Duration = Duration::from_secs(1);
/// How often ended runs are looked at whose time to be kept is running.
const SWEEP: Duration = Duration::from_secs(1);

/// What excludes each other: namespace, stack and workspace.
type Lane = (String, String, String);

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
                    // Those that were under way come first, then as they were created.
                    all.sort_by_key(|r| (status(r).start_time.is_none(), r.creation_timestamp(), r.name_any()));
                    for run in all {
                        scheduler.see(run).await;
                    }
                }
                Some(Change::Applied(run)) => scheduler.see(run).await,
                Some(Change::Deleted(run)) => scheduler.gone(&run),
            },
            Some(ended) = scheduler.tasks.join_next() => match ended {
                Ok(uid) => scheduler.ended(&uid).await,
                Err(error) => tracing::error!(%error, "a run's task ended badly"),
            },
            _ = sweep.tick() => scheduler.sweep().await,
        }
    }
    while scheduler.tasks.join_next().await.is_some() {}
}

struct Scheduler {
    services: Services,
    end: CancellationToken,
    /// The runs that are executed, by uid, with what cancels them.
    active: HashMap<String, CancellationToken>,
    /// For each lane the uid that is executed and those that wait.
    lanes: HashMap<Lane, (Option<String>, VecDeque<Run>)>,
    /// The lane of each run that is in one.
    lane_of: HashMap<String, Lane>,
    /// Runs to be taken up again, and ended runs to be deleted.
    later: HashMap<(String, String), Instant>,
    tasks: JoinSet<String>,
}

impl Scheduler {
    fn new(services: Services, end: CancellationToken) -> Self {
        Self {
            services,
            end,
            active: HashMap::new(),
            lanes: HashMap::new(),
            lane_of: HashMap::new(),
            later: HashMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Takes notice of a run as it is now.
    async fn see(&mut self, run: Run) {
        let uid = run.uid().unwrap_or_default();
        let state = status(&run);
        if state.phase.is_terminal() {
            if run.metadata.deletion_timestamp.is_some() {
                let gone = self.let_go(&run).await;
                self.complain(&run, gone);
            } else if run.spec.ttl_seconds_after_finished.is_some() {
                self.later.entry(queue::key_of(&run)).or_insert_with(Instant::now);
            }
            return;
        }
        let wants_end = run.spec.cancel || run.metadata.deletion_timestamp.is_some();
        if let Some(cancel) = self.active.get(&uid) {
            if wants_end {
                cancel.cancel();
            }
            return;
        }
        if wants_end {
            // A run that never started ends here; one that did is taken up to end orderly.
            self.unqueue(&uid);
            self.start(run, true);
            return;
        }
        if !run.spec.operation.is_mutating() {
            self.start(run, false);
            return;
        }
        self.queue(run).await;
    }

    async fn queue(&mut self, run: Run) {
        let uid = run.uid().unwrap_or_default();
        if self.lane_of.contains_key(&uid) {
            return;
        }
        let lane: Lane = (run.namespace().unwrap_or_default(), run.spec.stack.clone(), run.spec.workspace.clone());
        let (current, waiting) = self.lanes.entry(lane.clone()).or_default();
        if current.is_some() && run.spec.on_conflict == OnConflict::Refuse && status(&run).start_time.is_none() {
            let ended = self.refuse(run.clone()).await;
            self.complain(&run, ended);
            return;
        }
        self.lane_of.insert(uid.clone(), lane);
        if current.is_some() {
            waiting.push_back(run);
        } else {
            *current = Some(uid);
            self.start(run, false);
        }
    }

    async fn refuse(&self, run: Run) -> Result<(), ApiError> {
        let journal = journal::Journal::new(self.services.log.clone(), &run.uid().unwrap_or_default());
        let cancel = CancellationToken::new();
        let mut execution = Execution { services: self.services.clone(), run, journal, cancel };
        let message = "another run of the stack in the workspace is under way, and onConflict is Refuse";
        execution
            .finish(RunPhase::Failed, reason::CONFLICTING_RUN, message)
            .await
            .map_err(|halt| ApiError::internal(format!("{halt:?}")))
    }

    fn start(&mut self, run: Run, canceled: bool) {
        let uid = run.uid().unwrap_or_default();
        let cancel = CancellationToken::new();
        if canceled {
            cancel.cancel();
        }
        self.active.insert(uid.clone(), cancel.clone());
        let (services, end) = (self.services.clone(), self.end.clone());
        self.tasks.spawn(async move {
            let limit = run.spec.timeout.parse().unwrap_or(Duration::from_secs(3600));
            let spent = status(&run)
                .start_time
                .map_or(Duration::ZERO, |start| Timestamp::now().duration_since(start.0).unsigned_abs());
            let overdue = cancel.clone();
            let alarm = tokio::spawn(async move {
                tokio::time::sleep(limit.saturating_sub(spent)).await;
                overdue.cancel();
            });
            Box::pin(execute::execute(services, run, cancel, end)).await;
            alarm.abort();
            uid
        });
    }

    /// A run's task has ended: the next of its lane starts, and one that was put down before its
    /// end is taken up again later.
    async fn ended(&mut self, uid: &str) {
        self.active.remove(uid);
        let Some(lane) = self.lane_of.remove(uid) else { return };
        let Some((current, waiting)) = self.lanes.get_mut(&lane) else { return };
        if current.as_deref() == Some(uid) {
            *current = None;
        }
        if current.is_none() {
            match waiting.pop_front() {
                Some(next) => {
                    *current = next.uid();
                    self.start(next, false);
                }
                None => {
                    self.lanes.remove(&lane);
                }
            }
        }
        let Ok(runs) = self.services.lookup.api::<Run>() else { return };
        let selector = format!("{}={}", labels::STACK, lane.1);
        for run in runs.list(Some(&lane.0), &selector).await.unwrap_or_default() {
            if run.uid().as_deref() == Some(uid) && !status(&run).phase.is_terminal() {
                self.later.insert(queue::key_of(&run), Instant::now() + TAKE_UP);
            }
        }
    }

    fn unqueue(&mut self, uid: &str) {
        if let Some(lane) = self.lane_of.remove(uid)
            && let Some((_, waiting)) = self.lanes.get_mut(&lane)
        {
            waiting.retain(|r| r.uid().as_deref() != Some(uid));
        }
    }

    fn gone(&mut self, run: &Run) {
        let uid = run.uid().unwrap_or_default();
        self.later.remove(&queue::key_of(run));
        self.unqueue(&uid);
        if let Some(cancel) = self.active.get(&uid) {
            cancel.cancel();
        }
    }

    /// Looks at what was put off.
    async fn sweep(&mut self) {
        let now = Instant::now();
        let due: Vec<_> = self.later.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
        for key in due {
            self.later.remove(&key);
            let Ok(runs) = self.services.lookup.api::<Run>() else { return };
            let Ok(Some(run)) = runs.get_opt(&key.0, &key.1).await else { continue };
            let state = status(&run);
            let (Some(ttl), Some(completed), true) =
                (run.spec.ttl_seconds_after_finished, state.completion_time, state.phase.is_terminal())
            else {
                self.see(run).await;
                continue;
            };
            let kept = Timestamp::now().duration_since(completed.0).as_secs();
            if kept < ttl {
                let wait = Duration::from_secs(u64::try_from(ttl - kept).unwrap_or(1).min(3600));
                self.later.insert(key, now + wait);
            } else if let Err(error) = runs.delete(&key.0, &key.1, &DeleteOptions::default()).await {
                self.complain::<()>(&run, Err(error));
            }
        }
    }

    /// Removes what is kept beside an ended run, then lets it go.
    async fn let_go(&self, run: &Run) -> Result<(), ApiError> {
        if !run.finalizers().iter().any(|f| f == labels::RUN_FINALIZER) {
            return Ok(());
        }
        journal::remove(&*self.services.log, &run.uid().unwrap_or_default()).await.map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "a journal cannot be removed");
            ApiError::internal("the storage failed")
        })?;
        let (namespace, name) = queue::key_of(run);
        let runs = self.services.lookup.api::<Run>()?;
        runs.update_with(&namespace, &name, |r: &mut Run| r.finalizers_mut().retain(|f| f != labels::RUN_FINALIZER))
            .await?;
        Ok(())
    }

    /// Logs a failure and puts the run off, so that it is tried again.
    fn complain<T>(&mut self, run: &Run, result: Result<T, ApiError>) {
        if let Err(error) = result {
            tracing::warn!(run = run.name_any(), %error, "a run could not be taken care of");
            self.later.insert(queue::key_of(run), Instant::now() + TAKE_UP);
        }
    }
}
