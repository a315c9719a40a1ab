//! Deletion of finished Runs after their time to live, as the TTL-after-finished controller of Kubernetes does.
//!
//! The execution of Runs never waits for a deletion. Thousands of Runs of one namespace may expire at once,
//! each with its log. Some are deleted at a time, and namespaces take turns. A failed deletion is retried.

use std::{
    collections::{HashMap, VecDeque},
    panic::AssertUnwindSafe,
    time::Duration,
};

use futures_util::FutureExt as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use stoa_controller::{finalizers::remove_finalizer, object::ObjectKey, queue};
use stoa_kinds::run_status::status;
use stoa_machinery::ApiError;
use stoa_runs::{Services, run_log};
use stoa_types::{Run, labels};
use tokio::{
    task::{JoinError, JoinSet},
    time::Instant,
};

use super::TAKE_UP;
use crate::controllers::references;

/// So many looks are taken at once, each at some runs of a namespace, one after the other.
const AT_ONCE: usize = 8;
/// How long after its time a Preview is kept on, and looked at again, whose plan another run is to carry out.
const NEEDED: Duration = Duration::from_secs(10);
/// The longest time until another look at a run that is kept: the clock may be set.
const LONGEST: Duration = Duration::from_hours(1);

/// The ended runs that go, or do so once their time is over.
pub(super) struct FinishedRuns {
    services: Services,
    runs: HashMap<ObjectKey, CleanUp>,
    /// The names of those that are due, by namespace. Some may be gone.
    due: HashMap<String, VecDeque<String>>,
    /// The namespaces in which any is due, the one whose turn is next first.
    turns: VecDeque<String>,
    looks: JoinSet<Vec<Cleaned>>,
}

/// What becomes of an ended run next.
#[derive(Debug, PartialEq)]
enum CleanUp {
    /// It is due then.
    At(Instant),
    /// It is looked at in its turn.
    Due,
    /// It is being looked at. If it was seen meanwhile, what was found may be older.
    Looking { is_seen: bool },
}

/// A run that was looked at, and how long to wait before it is again, if it is to be.
pub(super) type Cleaned = (ObjectKey, Option<Duration>);

impl FinishedRuns {
    pub(super) fn new(services: Services) -> Self {
        Self { services, runs: HashMap::new(), due: HashMap::new(), turns: VecDeque::new(), looks: JoinSet::new() }
    }

    /// Takes notice of an ended run.
    pub(super) fn see(&mut self, run: &Run) {
        let key = queue::key_of(run);
        if run.metadata.deletion_timestamp.is_none() {
            if let Some(left) = left(run, self.services.now()) {
                self.put_off(key, left);
            }
        } else if is_held(run) {
            self.put_off(key.clone(), Duration::ZERO);
            if matches!(self.runs.get(&key), Some(CleanUp::At(_))) {
                self.queue(key);
                self.fill();
            }
        }
    }

    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.runs.remove(key);
    }

    /// Has those looked at that are due by now.
    pub(super) fn sweep(&mut self) {
        let now = Instant::now();
        let is_due = |standing: &CleanUp| matches!(standing, CleanUp::At(at) if *at <= now);
        let due: Vec<ObjectKey> =
            self.runs.iter().filter(|(_, standing)| is_due(standing)).map(|(key, _)| key.clone()).collect();
        for key in due {
            self.queue(key);
        }
        self.fill();
    }

    /// Waits until a look has ended; nothing when there is none. It may be dropped at any time.
    pub(super) async fn next(&mut self) -> Option<Result<Vec<Cleaned>, JoinError>> {
        self.looks.join_next().await
    }

    /// Notes what came of a look.
    pub(super) fn note(&mut self, looked: Vec<Cleaned>) {
        for (key, mut wait) in looked {
            if let Some(CleanUp::Looking { is_seen }) = self.runs.get(&key) {
                if *is_seen {
                    wait = Some(Duration::ZERO);
                }
                self.runs.remove(&key);
            }
            if let Some(wait) = wait {
                self.put_off(key, wait);
            }
        }
        self.fill();
    }

    /// Has a run looked at after a while, unless it is sooner.
    fn put_off(&mut self, key: ObjectKey, wait: Duration) {
        let at = Instant::now() + wait;
        match self.runs.entry(key).or_insert(CleanUp::At(at)) {
            CleanUp::At(before) => *before = at.min(*before),
            CleanUp::Due => {}
            CleanUp::Looking { is_seen } => *is_seen = true,
        }
    }

    /// Has a run looked at in its turn.
    fn queue(&mut self, key: ObjectKey) {
        let (namespace, name) = key.clone();
        let due = self.due.entry(namespace.clone()).or_default();
        if due.is_empty() {
            self.turns.push_back(namespace);
        }
        due.push_back(name);
        self.runs.insert(key, CleanUp::Due);
    }

    /// Begins as many looks as may be taken.
    fn fill(&mut self) {
        while self.looks.len() < AT_ONCE
            && let Some(namespace) = self.turns.pop_front()
        {
            let Some(due) = self.due.get_mut(&namespace) else { continue };
            let mut keys = Vec::new();
            while keys.len() < references::BATCH
                && let Some(name) = due.pop_front()
            {
                let key = (namespace.clone(), name);
                if let Some(standing) = self.runs.get_mut(&key).filter(|standing| **standing == CleanUp::Due) {
                    *standing = CleanUp::Looking { is_seen: false };
                    keys.push(key);
                }
            }
            if due.is_empty() {
                self.due.remove(&namespace);
            } else {
                self.turns.push_back(namespace);
            }
            if !keys.is_empty() {
                self.looks.spawn(look(self.services.clone(), keys));
            }
        }
    }
}

/// How long an ended run is still kept, if not for good.
fn left(run: &Run, now: Timestamp) -> Option<Duration> {
    let (ttl, Time(ended)) = run.spec.ttl_seconds_after_finished.zip(status(run).completion_time)?;
    let left = ttl.saturating_sub(now.duration_since(ended).as_secs());
    Some(Duration::from_secs(u64::try_from(left).unwrap_or_default()).min(LONGEST))
}

/// Whether a run that is deleted stays until it is let go.
fn is_held(run: &Run) -> bool {
    run.finalizers().iter().any(|finalizer| finalizer == labels::RUN_FINALIZER)
}

async fn look(services: Services, keys: Vec<ObjectKey>) -> Vec<Cleaned> {
    let looked = Box::pin(look_at(&services, &keys));
    AssertUnwindSafe(looked).catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!(namespace = keys[0].0, "a look at ended runs panicked");
        keys.iter().map(|key| (key.clone(), Some(NEEDED))).collect()
    })
}

async fn look_at(services: &Services, keys: &[ObjectKey]) -> Vec<Cleaned> {
    let (mut looked, mut over) = (Vec::new(), Vec::new());
    for key in keys {
        match find(services, key).await {
            Ok(Found::Over(run)) => over.push(*run),
            Ok(Found::Done) => looked.push((key.clone(), None)),
            Ok(Found::FinishedRuns(left)) => looked.push((key.clone(), Some(left))),
            Err(error) => looked.push((key.clone(), Some(complain(key, &error)))),
        }
    }
    let asked: Vec<&Run> = over.iter().collect();
    let needed = references::to_be_carried_out(&services.lookup, &asked).await.ok();
    for run in &over {
        let key = queue::key_of(run);
        if needed.as_ref().is_none_or(|needed| needed.contains(&key)) {
            looked.push((key, Some(NEEDED)));
            continue;
        }
        let wait = match remove(services, run).await {
            // It is seen once it is deleted, and let go then.
            Ok(true) => None,
            Ok(false) => Some(TAKE_UP),
            Err(error) => Some(complain(&key, &error)),
        };
        looked.push((key, wait));
    }
    looked
}

enum Found {
    /// Nothing any more.
    Done,
    /// Nothing for so long.
    FinishedRuns(Duration),
    /// It has had its time.
    Over(Box<Run>),
}

/// Finds a run as it is now, and lets it go if it is deleted.
async fn find(services: &Services, (namespace, name): &ObjectKey) -> Result<Found, ApiError> {
    let run = services.lookup.api::<Run>()?.get_opt(namespace, name).await?;
    // Another may have its name.
    let Some(run) = run.filter(|run| status(run).phase.is_terminal()) else { return Ok(Found::Done) };
    if run.metadata.deletion_timestamp.is_some() {
        if is_held(&run) {
            free(services, &run).await?;
        }
        return Ok(Found::Done);
    }
    Ok(match left(&run, services.now()) {
        None => Found::Done,
        Some(left) if left.is_zero() => Found::Over(Box::new(run)),
        Some(left) => Found::FinishedRuns(left),
    })
}

async fn remove(services: &Services, run: &Run) -> Result<bool, ApiError> {
    queue::delete(&services.lookup.api::<Run>()?, run).await
}

/// Removes what is kept beside a run, then lets it go.
async fn free(services: &Services, run: &Run) -> Result<(), ApiError> {
    run_log::remove(&*services.log, &run.uid().unwrap_or_default()).await.map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "a journal cannot be removed");
        ApiError::internal("the storage failed")
    })?;
    remove_finalizer(&services.lookup.api::<Run>()?, run, labels::RUN_FINALIZER).await
}

/// Logs a failure; how long to wait before the next try.
fn complain((namespace, run): &ObjectKey, error: &ApiError) -> Duration {
    tracing::warn!(namespace, run, %error, "an ended run could not be taken care of");
    TAKE_UP
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stoa_controller::testing::FaultyLog;
    use stoa_machinery::registry::DeleteOptions;
    use stoa_runs::testing::unreachable_runner;
    use stoa_types::delivery::RunPhase;
    use tokio_util::sync::CancellationToken;

    use super::{super::Scheduler, *};
    use crate::testing::TestServer;

    const RUNS: usize = 40;
    /// Longer than anything here takes.
    const PATIENCE: Duration = Duration::from_secs(30);

    impl FinishedRuns {
        /// Waits until nothing is looked at any more.
        pub(in crate::controllers::runs) async fn settled(&mut self) {
            while let Some(looked) = self.next().await {
                self.note(looked.unwrap());
            }
        }

        /// Makes all due that are put off; how many.
        pub(in crate::controllers::runs) fn hurry(&mut self) -> usize {
            let put_off = self.runs.values_mut().filter(|standing| matches!(standing, CleanUp::At(_)));
            put_off.map(|standing| *standing = CleanUp::At(Instant::now())).count()
        }

        fn are_looked_at(&self, namespace: &str) -> usize {
            let looked_at = |(key, standing): &(&ObjectKey, &CleanUp)| {
                key.0 == namespace && matches!(standing, CleanUp::Looking { .. })
            };
            self.runs.iter().filter(looked_at).count()
        }
    }

    async fn scheduling() -> (std::sync::Arc<FaultyLog>, TestServer, Scheduler) {
        let log = FaultyLog::new(0);
        let world = TestServer::over(log.clone(), unreachable_runner(), |builder| builder).await;
        let scheduler = Scheduler::new(world.services.clone(), CancellationToken::new());
        (log, world, scheduler)
    }

    impl TestServer {
        /// A run that has just ended, and is kept for so long.
        async fn ended_run(&self, name: &str, operation: &str, ttl: Option<i64>) -> Run {
            let spec = json!({"stack": "web", "workspace": "dev", "operation": operation,
                "ttlSecondsAfterFinished": ttl});
            self.create("Run", name, spec).await;
            let now = self.services.now();
            let end = |run: &mut Run| {
                let status = run.status.get_or_insert_default();
                (status.phase, status.completion_time) = (RunPhase::Succeeded, Some(Time(now)));
            };
            self.registry.api::<Run>().update_status_with("shop", name, end).await.unwrap()
        }
    }

    #[tokio::test]
    async fn sweep_lists_runs_once_for_all_previews() {
        let (log, world, mut scheduler) = scheduling().await;
        let apply = json!({"stack": "web", "workspace": "dev", "operation": "Apply", "plan": "preview-7"});
        let runs = world.registry.api::<Run>();
        let mut reads = Vec::new();
        for operation in ["Refresh", "Preview"] {
            for number in 0..RUNS {
                let name = format!("{}-{number}", operation.to_lowercase());
                scheduler.see(world.ended_run(&name, operation, Some(0)).await).await;
            }
            if operation == "Preview" {
                world.create("Run", "apply", apply.clone()).await;
            }
            let before = log.heads();
            scheduler.sweep().await;
            scheduler.kept.settled().await;
            reads.push(log.heads() - before);
        }
        let [of_others, of_previews] = reads[..] else { panic!("{reads:?}") };
        // Others may ask where the log ends meanwhile.
        assert!(of_previews < of_others + RUNS / 2, "{reads:?}");
        let left = runs.list(Some("shop"), "").await.unwrap();
        let is_left = |run: &&Run| run.metadata.deletion_timestamp.is_none();
        let left: Vec<String> = left.iter().filter(is_left).map(|run| run.name_any()).collect();
        assert_eq!(left, ["apply", "preview-7"]);
    }

    #[tokio::test]
    async fn undeletable_ended_run_blocks_no_execution() {
        for is_deleted in [false, true] {
            let (log, world, mut scheduler) = scheduling().await;
            let runs = world.registry.api::<Run>();
            let mut old = world.ended_run("old", "Preview", Some(0)).await;
            if is_deleted {
                // What else holds it has it written once more.
                let hold = |run: &mut Run| run.finalizers_mut().push("example.com/hold".to_owned());
                runs.update_with("shop", "old", hold).await.unwrap();
                runs.delete("shop", "old", &DeleteOptions::default()).await.unwrap();
                old = runs.get("shop", "old").await.unwrap();
            }
            world.create("Run", "new", json!({"stack": "web", "workspace": "dev", "operation": "Preview"})).await;
            let new = runs.get("shop", "new").await.unwrap();
            log.hang("deletionTimestamp");
            let executes = async {
                scheduler.see(old).await;
                scheduler.sweep().await;
                log.hangs.notified().await;
                scheduler.see(new.clone()).await;
                scheduler.sweep().await;
            };
            tokio::time::timeout(PATIENCE, executes).await.expect("nobody waits for it");
            assert!(scheduler.active.contains_key(&new.uid().unwrap()));
        }
    }

    #[tokio::test]
    async fn ended_run_deletion_removes_journal_with_retries() {
        let (log, world, mut scheduler) = scheduling().await;
        let runs = world.registry.api::<Run>();
        let old = world.ended_run("old", "Preview", None).await;
        let uid = old.uid().unwrap();
        let mut journal = run_log::RunLog::new(log.clone(), world.services.clock.clone(), &uid);
        journal.note("Pending", "a line");
        journal.flush().await;
        scheduler.see(old).await;
        assert!(scheduler.kept.runs.is_empty(), "it is kept for good");
        runs.delete("shop", "old", &DeleteOptions::default()).await.unwrap();
        log.fail(1);
        scheduler.see(runs.get("shop", "old").await.unwrap()).await;
        scheduler.kept.settled().await;
        assert!(runs.get_opt("shop", "old").await.unwrap().is_some());
        assert_eq!(scheduler.kept.hurry(), 1, "it is put off");
        scheduler.sweep().await;
        scheduler.kept.settled().await;
        assert!(runs.get_opt("shop", "old").await.unwrap().is_none());
        assert!(run_log::read(&*log, &uid).await.unwrap().0.is_empty() && scheduler.kept.runs.is_empty());
    }

    #[tokio::test]
    async fn sweep_rechecks_run_deleted_during_check() {
        let (_log, world, mut scheduler) = scheduling().await;
        let old = world.ended_run("old", "Preview", Some(3600)).await;
        let key = queue::key_of(&old);
        scheduler.see(old).await;
        scheduler.kept.hurry();
        scheduler.kept.sweep();
        let found = scheduler.kept.next().await.unwrap().unwrap();
        assert!(matches!(found[..], [(_, Some(_))]), "it is kept: {found:?}");
        let runs = world.registry.api::<Run>();
        runs.delete("shop", "old", &DeleteOptions::default()).await.unwrap();
        scheduler.see(runs.get("shop", "old").await.unwrap()).await;
        assert_eq!(scheduler.kept.runs[&key], CleanUp::Looking { is_seen: true });
        scheduler.kept.note(found);
        scheduler.sweep().await;
        scheduler.kept.settled().await;
        assert!(runs.get_opt("shop", "old").await.unwrap().is_none());
    }

    #[tokio::test]
    async fn busy_namespace_shares_cleanup_with_others() {
        let (_log, _world, mut scheduler) = scheduling().await;
        let kept = &mut scheduler.kept;
        for number in 0..2_000 {
            kept.put_off(("many".to_owned(), format!("run-{number}")), Duration::ZERO);
        }
        kept.sweep();
        assert_eq!(kept.are_looked_at("many"), AT_ONCE * references::BATCH);
        kept.put_off(("few".to_owned(), "run".to_owned()), Duration::ZERO);
        kept.sweep();
        // One more of the many may have been before it in its turn.
        for _ in 0..2 {
            let looked = kept.next().await.unwrap().unwrap();
            assert_eq!(looked.iter().filter(|(key, _)| key.0 == "many").count(), references::BATCH);
            kept.note(looked);
        }
        assert_eq!(kept.are_looked_at("few"), 1);
        kept.settled().await;
        assert!(kept.runs.is_empty() && kept.due.is_empty() && kept.turns.is_empty());
    }
}
