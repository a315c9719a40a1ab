//! Source: looks what its versions are, at its interval, when a webhook says so, and when a run has found another commit.
//!
//! One look is one question to the remote, for the source's own ref and for all versions that stacks of its projects want. It is
//! asked when it is the turn of the source's namespace ([`Turns`]): no few whose servers do not answer keep others waiting, and a
//! dozen do for as long as a look may take. Each look has a place of a function-runner, of which runs need some.

mod ahead;
#[cfg(test)]
mod changed_tests;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures_util::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use parking_lot::Mutex;
use rand::RngExt as _;
use serde::{Deserialize, de::IgnoredAny};
use stoa_machinery::{ApiError, backoff::Backoff};
use stoa_types::{Project, Run, Source, Stack, common::condition, config::ObservedVersion, reason};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::ahead::{Ahead, OfRun};
use super::{
    asks::Turns,
    groups::{GATHER, Groups, Member},
    queue::{self, ObjectKey, Trigger},
};
use crate::{
    events::Kind,
    kinds::check::set_condition,
    runs::{
        Halt, Services,
        readiness::{self, OfProjectSpec},
        runner, target,
    },
};

/// How long one look may take.
const LOOK: Duration = Duration::from_secs(30);
/// How long to wait for function-runners that have no time.
const BUSY: Duration = Duration::from_secs(2);
/// How many sources are looked at at once: any number, since each waits for its turn.
const AT_ONCE: usize = usize::MAX;
/// The longest wait after looks that failed, unless the interval is longer.
const LONGEST: Duration = Duration::from_secs(600);
/// How often it is noted that looks succeed where nothing is new: each time is a write.
const NOTED: Duration = Duration::from_secs(300);
/// From how many function-runners in a row that did not outlive a look the source is taken for the cause: one may go away at
/// any time.
const MOST_BROKE: usize = 2;
/// As how many failures a look counts at least that may be the cause.
const BROKE: u32 = 4;

/// A look at a source, and what it was for: a status write makes the object due again, and must not lead to another.
#[derive(Clone, Debug)]
struct Looked {
    at: Instant,
    /// How long it is good for.
    wait: Duration,
    /// How many failed, one after the other.
    failures: u32,
    /// How many function-runners in a row did not outlive it and those before it.
    broke: usize,
    /// Of which object, and how it was; another of the same name is looked at anew.
    of: (Option<String>, Option<i64>),
    webhook: Option<MicroTime>,
    versions: BTreeSet<String>,
}

impl Looked {
    /// How long this is still good for a source as it is. After looks that broke function-runners in a row nothing but time
    /// makes the next one due: whoever writes the source would break them all by writing it again and again.
    fn left(
        &self,
        of: &(Option<String>, Option<i64>),
        webhook: Option<&MicroTime>,
        versions: &BTreeSet<String>,
    ) -> Option<Duration> {
        let is_same = self.of == *of && self.webhook.as_ref() == webhook && versions.is_subset(&self.versions);
        let left = self.wait.saturating_sub(self.at.elapsed());
        let breaks_them = self.is_of(of) && self.broke >= MOST_BROKE;
        (left > Duration::ZERO && (is_same || breaks_them)).then_some(left)
    }

    /// Whether it was this object that was looked at, however it was.
    fn is_of(&self, (uid, _): &(Option<String>, Option<i64>)) -> bool {
        self.of.0 == *uid
    }
}

/// Why nothing is known of a source.
struct Unseen {
    reason: &'static str,
    message: String,
    /// How many function-runners did not outlive the look; nothing where one answered.
    broke: Option<usize>,
}

impl Unseen {
    /// How many function-runners in a row did not outlive this look and those before it. Of one that no runner heard nothing is
    /// known.
    fn broke_after(&self, before: usize) -> usize {
        self.broke.map_or(0, |broke| before.saturating_add(broke))
    }
}

/// What is known of sources besides what is in the log.
#[derive(Clone, Debug, Default)]
struct Memory {
    looked: Arc<Mutex<HashMap<ObjectKey, Looked>>>,
    /// What runs found since.
    ahead: Ahead,
}

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let lookup = &services.lookup;
    let (Ok(sources), Ok(projects), Ok(stacks), Ok(runs)) =
        (lookup.api::<Source>(), lookup.api::<Project>(), lookup.api::<Stack>(), lookup.api::<Run>())
    else {
        return;
    };
    let memory = Memory::default();
    let turns = Arc::<Turns>::default();
    let wanted = Groups::default();
    let moved = wanted.follow(&stacks, |s: &Member<OfStackSpec, IgnoredAny>| {
        let OfStackSpec { project, desired_version: version } = &s.spec;
        let wanted = || Wanted { project: (s.namespace().to_owned(), project.clone()), version: version.clone() };
        (!readiness::is_told_by_itself(version)).then(wanted).into_iter().collect()
    });
    let lookup = services.lookup.clone();
    let source_of = move |Wanted { project: (namespace, project), .. }: &Wanted| {
        Some((namespace.clone(), readiness::source_of(&lookup, namespace, project)?))
    };
    let triggers = vec![
        Trigger::on(&sources, |s| vec![queue::key_of(s)]),
        // A stack may want a version that nobody wanted before.
        Trigger::on_change(&projects, |p: &Member<OfProjectSpec, IgnoredAny>| {
            vec![(p.namespace().to_owned(), p.spec.source.name.clone())]
        }),
        Trigger::new(moved.map(move |moved| moved.groups.iter().filter_map(&source_of).collect()).boxed()),
        Trigger::on_change(&runs, {
            let (lookup, ahead) = (services.lookup.clone(), memory.ahead.clone());
            move |run: &OfRun| ahead.note(&lookup, run).into_iter().collect()
        }),
    ];
    let look = |key| look(services.clone(), wanted.clone(), memory.clone(), turns.clone(), key);
    queue::drive_some(services.queues.of("sources"), AT_ONCE, triggers, end, look).await;
}

/// A version that stacks of a project want, which the remote has to be asked for.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Wanted {
    project: ObjectKey,
    version: String,
}

/// What of a stack says which version it wants.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfStackSpec {
    project: String,
    desired_version: String,
}

/// The versions that the remote has to be asked for, besides the latest one, once all stacks have been seen.
fn versions_of(
    services: &Services,
    wanted: &Groups<Wanted>,
    (namespace, name): &ObjectKey,
) -> Option<BTreeSet<String>> {
    let projects = services.lookup.cached_keys::<Project>(namespace, "spec.source.name", name);
    let projects: HashSet<ObjectKey> = projects.into_iter().collect();
    let wanted = wanted.filter(|wanted| projects.contains(&wanted.project))?;
    Some(wanted.into_iter().map(|wanted| wanted.version).collect())
}

/// How long to wait after so many failures, one after the other: ever longer, and not all sources of one server that is
/// away at the same moment.
pub(super) fn wait_after(failures: u32, interval: Duration) -> Duration {
    if failures == 0 {
        return interval;
    }
    // The interval itself is that without a failure.
    let wait = Backoff::new(interval, LONGEST.max(interval)).after(failures.saturating_add(1));
    wait.mul_f64(rand::rng().random_range(0.8..1.2))
}

async fn look(
    services: Services,
    wanted: Groups<Wanted>,
    memory: Memory,
    turns: Arc<Turns>,
    key: ObjectKey,
) -> Result<Option<Duration>, ApiError> {
    let sources = services.lookup.api::<Source>()?;
    let Some(source) = sources.get_opt(&key.0, &key.1).await? else {
        memory.looked.lock().remove(&key);
        memory.ahead.forget(&key);
        return Ok(None);
    };
    let interval = source.spec.poll_interval.parse().unwrap_or(Duration::from_secs(60));
    let Some(versions) = versions_of(&services, &wanted, &key) else { return Ok(Some(GATHER)) };
    let of = (source.metadata.uid.clone(), source.metadata.generation);
    let webhook = source.status.as_ref().and_then(|status| status.last_webhook_time.clone());
    let last = memory.looked.lock().get(&key).cloned();
    // As a webhook: but where looks break function-runners nothing but time makes the next one due.
    let ahead = memory.ahead.of(&key, &source);
    let is_told = ahead.is_some() && last.as_ref().is_none_or(|last| last.broke < MOST_BROKE);
    if let Some(left) = last.as_ref().and_then(|last| last.left(&of, webhook.as_ref(), &versions)).filter(|_| !is_told)
    {
        return Ok(Some(left));
    }
    let last = last.filter(|last| last.is_of(&of) && (last.of == of || last.broke > 0));
    let (mut failures, broke) = last.map_or((0, 0), |last| (last.failures, last.broke));
    // Without an answer nothing is known of the source that was not before, and it is looked at as soon as may be.
    let turns = turns.of(&key.0);
    let turn = turns.take().await;
    let Some(found) = resolve(&services, &source, &versions).await.transpose() else { return Ok(Some(BUSY)) };
    drop(turn);
    let broke = found.as_ref().err().map_or(0, |unseen| unseen.broke_after(broke));
    failures = match &found {
        Ok(_) => 0,
        Err(_) if broke >= MOST_BROKE => failures.saturating_add(1).max(BROKE),
        Err(_) => failures.saturating_add(1),
    };
    let wait = wait_after(failures, interval);
    let look = Looked { at: Instant::now(), wait, failures, broke, of, webhook, versions: versions.clone() };
    let now = Time(Timestamp::now());
    let mut is_same = false;
    sources
        .update_status_with(&key.0, &key.1, |s: &mut Source| {
            // What was found is of the source as it was, and this one is looked at next.
            is_same = s.metadata.uid == source.metadata.uid && s.spec == source.spec;
            if !is_same {
                return;
            }
            let generation = s.metadata.generation;
            let status = s.status.get_or_insert_default();
            let (ready, why, message) = match &found {
                Ok(found) => {
                    let is_new = status.observed_commit.as_ref() != Some(&found.latest);
                    if is_new || is_to_note(status.last_sync_time.as_ref(), &now) {
                        status.last_sync_time = Some(now.clone());
                    }
                    status.observed_commit = Some(found.latest.clone());
                    let observed = |version: &String| ObservedVersion {
                        version: version.clone(),
                        commit: found.commits.get(version).cloned(),
                    };
                    status.versions = versions.iter().map(observed).collect();
                    (true, reason::AVAILABLE, "the repository can be read".to_owned())
                }
                Err(Unseen { reason, message, .. }) => {
                    let message = format!("{message}; it is looked at less and less often, until that is mended");
                    (false, *reason, message)
                }
            };
            set_condition(&mut status.conditions, reason::READY, ready, why, message, generation);
        })
        .await?;
    if is_same {
        tell(&services, &source, found.as_ref().err());
    }
    // What nobody has heard of is looked for once more.
    if let Some(commit) = &ahead {
        memory.ahead.looked(&key, commit);
    }
    memory.looked.lock().insert(key, look);
    Ok(Some(wait))
}

/// Records that a source cannot be read, each time since Events go after a while, and once that it can be again.
fn tell(services: &Services, source: &Source, unseen: Option<&Unseen>) {
    let conditions = source.status.as_ref().map_or(&[][..], |status| status.conditions.as_slice());
    let was_unready = condition(conditions, reason::READY).is_some_and(|ready| ready.status == "False");
    match unseen {
        Some(Unseen { reason, message, .. }) => services.recorder.record(source, Kind::Warning, reason, message),
        None if was_unready => {
            services.recorder.record(source, Kind::Normal, reason::AVAILABLE, "the repository can be read again");
        }
        None => {}
    }
}

/// Whether it is to be noted that a look succeeded: it was not for a while, or the clock was set back.
fn is_to_note(last: Option<&Time>, Time(now): &Time) -> bool {
    last.is_none_or(|Time(last)| now.duration_since(*last).unsigned_abs() >= NOTED)
}

/// The commits of a source, or the reason and message why there are none to be had; nothing when no function-runner has
/// the time to look.
async fn resolve(
    services: &Services,
    source: &Source,
    versions: &BTreeSet<String>,
) -> Result<Option<stoa_proto::LookResponse>, Unseen> {
    let failed = |halt: Halt| {
        let (reason, message) = match halt {
            Halt::Failed { reason, message } => (reason, message),
            Halt::Retry(message) | Halt::SourceUnreachable(message) | Halt::Abandoned(message) => {
                (reason::SOURCE_UNREACHABLE, message)
            }
            Halt::Canceled | Halt::AwaitingApproval | Halt::AwaitingMerge | Halt::Superseded(_) => {
                (reason::SOURCE_UNREACHABLE, "the look was cancelled".to_owned())
            }
        };
        Unseen { reason, message, broke: Some(0) }
    };
    let request = stoa_proto::LookRequest {
        source: Some(target::source(services, source).await.map_err(failed)?),
        r#ref: source.spec.reference.clone(),
        versions: versions.iter().cloned().collect(),
    };
    let response = tokio::time::timeout(LOOK, services.runner.look(request)).await;
    let response = response.unwrap_or_else(|_| {
        Err(tonic::Status::deadline_exceeded(format!("the repository did not answer within {LOOK:?}")))
    });
    match response {
        Ok(response) => Ok(Some(response.into_inner())),
        Err(status) if status.code() == tonic::Code::ResourceExhausted => Ok(None),
        Err(status) => {
            let broke = Some(runner::broken_calls(&status)).filter(|calls| *calls > 0 || runner::is_unheard(&status));
            Err(Unseen { broke, ..failed(runner::halt(&status, reason::SOURCE_UNREACHABLE)) })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use k8s_openapi::api::core::v1::Event;
    use serde_json::json;
    use stoa_proto::{LookRequest, LookResponse};
    use stoa_types::delivery::{RunPhase, RunSource};
    use tokio::sync::Notify;
    use tonic::{Request, Response};

    use super::*;
    use crate::{
        controllers::runs::tests::World,
        runs::runner::testing::{Answer, Answers},
    };

    /// Longer than anything here takes.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// Finds a commit when the test says so.
    #[derive(Clone, Debug, Default)]
    struct Held {
        asked: Arc<Notify>,
        answer: Arc<Notify>,
    }

    #[tonic::async_trait]
    impl Answers for Held {
        async fn look(&self, _: Request<LookRequest>) -> Answer<LookResponse> {
            self.asked.notify_one();
            self.answer.notified().await;
            Ok(Response::new(LookResponse { latest: "a".repeat(40), ..LookResponse::default() }))
        }
    }

    #[tokio::test]
    async fn what_was_found_of_a_source_is_not_told_of_another_one_of_its_name() {
        let held = Held::default();
        let world = World::with_runner(runner::at(held.clone().serve())).await;
        let sources = world.registry.api::<Source>();
        let is_asked = || tokio::time::timeout(PATIENCE, held.asked.notified());
        let end = CancellationToken::new();
        tokio::spawn(run(world.services.clone(), end.clone()));
        let _end = end.drop_guard();
        is_asked().await.expect("it is looked at");
        sources.delete("shop", "config", &Default::default()).await.unwrap();
        world.create("Source", "config", json!({"remote": "file:///config.git"})).await;
        held.answer.notify_one();
        is_asked().await.expect("the other is looked at");
        let found = async || sources.get("shop", "config").await.unwrap().status.unwrap_or_default().observed_commit;
        assert_eq!(found().await, None);
        held.answer.notify_one();
        let is_found = async {
            while found().await.is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, is_found).await.expect("and told of");
    }

    #[tokio::test]
    async fn source_is_looked_at_when_a_run_finds_another_commit() {
        let held = Held::default();
        let world = World::with_runner(runner::at(held.clone().serve())).await;
        let is_asked = || tokio::time::timeout(PATIENCE, held.asked.notified());
        let end = CancellationToken::new();
        tokio::spawn(run(world.services.clone(), end.clone()));
        let _end = end.drop_guard();
        is_asked().await.expect("it is looked at");
        held.answer.notify_one();
        world.create("Run", "one", json!({"stack": "web", "workspace": "dev", "operation": "Apply"})).await;
        let find = |run: &mut Run| {
            let status = run.status.get_or_insert_default();
            let (commit, path) = ("b".repeat(40), "web".to_owned());
            status.phase = RunPhase::Generating;
            status.source = Some(RunSource { commit, path, spec_digest: None });
        };
        // Sooner than after the minute that passes between two looks.
        world.registry.api::<Run>().update_status_with("shop", "one", find).await.unwrap();
        is_asked().await.expect("it is looked at again");
    }

    #[tokio::test]
    async fn source_says_every_few_minutes_that_looks_succeed() {
        let held = Held::default();
        let world = World::with_runner(runner::at(held.clone().serve())).await;
        let sources = world.registry.api::<Source>();
        let is_asked = || tokio::time::timeout(PATIENCE, held.asked.notified());
        let synced = async || sources.get("shop", "config").await.unwrap().status.and_then(|it| it.last_sync_time);
        // A webhook asks for a look, the last before which succeeded then, or when it is said to have.
        let ask = async |last: Option<Timestamp>| {
            let set = |source: &mut Source| {
                let status = source.status.get_or_insert_default();
                status.last_sync_time = last.map(Time).or_else(|| status.last_sync_time.take());
                status.last_webhook_time = Some(MicroTime(Timestamp::now()));
            };
            sources.update_status_with("shop", "config", set).await.unwrap();
            is_asked().await.expect("it is looked at");
        };
        let end = CancellationToken::new();
        tokio::spawn(run(world.services.clone(), end.clone()));
        let _end = end.drop_guard();
        is_asked().await.expect("it is looked at");
        held.answer.notify_one();
        let is_noted = async |before: Option<Timestamp>| {
            while synced().await.map(|Time(at)| at) == before {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, is_noted(None)).await.expect("it is noted");

        let long_ago = Timestamp::UNIX_EPOCH;
        ask(Some(long_ago)).await;
        held.answer.notify_one();
        tokio::time::timeout(PATIENCE, is_noted(Some(long_ago))).await.expect("it is noted again");

        let recently = Timestamp::from_second(Timestamp::now().as_second() - 60).unwrap();
        ask(Some(recently)).await;
        held.answer.notify_one();
        // The next look begins when this one is over.
        ask(None).await;
        let Time(found) = synced().await.unwrap();
        assert_eq!(found, recently, "a write for nothing");
    }

    /// Finds no repository until that is mended.
    #[derive(Clone, Debug, Default)]
    struct Mended(Arc<AtomicBool>);

    #[tonic::async_trait]
    impl Answers for Mended {
        async fn look(&self, _: Request<LookRequest>) -> Answer<LookResponse> {
            match self.0.load(Ordering::Relaxed) {
                true => Ok(Response::new(LookResponse { latest: "a".repeat(40), ..LookResponse::default() })),
                false => Err(tonic::Status::not_found("there is no such repository")),
            }
        }
    }

    #[tokio::test]
    async fn events_tell_that_a_source_cannot_be_read_and_that_it_can_be_again() {
        let mended = Mended::default();
        let world = World::with_runner_and_secrets(runner::at(mended.clone().serve())).await;
        let until = async |kind: &str, text: &str| {
            let is_it = |event: &Event| {
                let is_of_kind = event.type_.as_deref() == Some(kind);
                is_of_kind && event.message.as_ref().is_some_and(|message| message.contains(text))
            };
            let is_told = async {
                while !world.registry.api::<Event>().list(Some("shop"), "").await.unwrap().iter().any(is_it) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(PATIENCE, is_told).await.expect("an Event tells of it");
        };
        let end = CancellationToken::new();
        tokio::spawn(run(world.services.clone(), end.clone()));
        let _end = end.drop_guard();
        until("Warning", "there is no such repository").await;
        mended.0.store(true, Ordering::Relaxed);
        let ask = |source: &mut Source| {
            source.status.get_or_insert_default().last_webhook_time = Some(MicroTime(Timestamp::now()));
        };
        world.registry.api::<Source>().update_status_with("shop", "config", ask).await.unwrap();
        until("Normal", "the repository can be read again").await;
    }

    #[test]
    fn what_is_noted_is_not_noted_again_for_five_minutes() {
        let at = |second: i64| Time(Timestamp::from_second(second).unwrap());
        let now = at(1_000_000);
        for (last, expected) in [(999_701, false), (999_700, true), (1_000_000, false), (1_000_300, true)] {
            assert_eq!(is_to_note(Some(&at(last)), &now), expected, "{last}");
        }
        assert!(is_to_note(None, &now));
    }

    /// Does not answer about what is slow.
    #[derive(Clone, Copy, Debug)]
    struct Slow;

    const SLOW: &str = "file:///slow.git";

    #[tonic::async_trait]
    impl Answers for Slow {
        async fn look(&self, request: Request<LookRequest>) -> Answer<LookResponse> {
            if request.into_inner().source.is_some_and(|source| source.remote == SLOW) {
                std::future::pending::<()>().await;
            }
            Ok(Response::new(LookResponse { latest: "a".repeat(40), ..LookResponse::default() }))
        }
    }

    #[tokio::test]
    async fn namespace_whose_servers_do_not_answer_keeps_no_other_from_being_looked_at() {
        let world = World::with_runner(runner::at(Slow.serve())).await;
        // It comes first in every order.
        for number in 0..200 {
            world.create_in("a-slow-one", "Source", &format!("s{number}"), json!({ "remote": SLOW })).await;
        }
        let end = CancellationToken::new();
        tokio::spawn(run(world.services.clone(), end.clone()));
        let _end = end.drop_guard();
        let sources = world.registry.api::<Source>();
        let is_found = async {
            while sources.get("shop", "config").await.unwrap().status.unwrap_or_default().observed_commit.is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, is_found).await.expect("it is looked at");
    }

    #[tokio::test(start_paused = true)]
    async fn source_whose_look_breaks_function_runners_is_not_looked_at_sooner_for_a_new_spec() {
        let of = |uid: &str, generation: i64| (Some(uid.to_owned()), Some(generation));
        let versions = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let wait = Duration::from_secs(480);
        let last = |broke: usize| Looked {
            at: Instant::now(),
            wait,
            failures: 4,
            broke,
            of: of("uid", 1),
            webhook: None,
            versions: versions(&["v1"]),
        };
        let (failed, once, twice) = (last(0), last(1), last(2));
        let webhook = MicroTime(Timestamp::UNIX_EPOCH);
        for looked in [&failed, &once, &twice] {
            assert_eq!(looked.left(&of("uid", 1), None, &versions(&["v1"])), Some(wait));
            assert_eq!(looked.left(&of("another", 1), None, &versions(&["v1"])), None);
        }
        let changes = [
            (of("uid", 2), None, versions(&["v1"])),
            (of("uid", 1), Some(&webhook), versions(&["v1"])),
            (of("uid", 1), None, versions(&["v1", "v2"])),
        ];
        for (of, webhook, versions) in &changes {
            assert_eq!(failed.left(of, *webhook, versions), None);
            assert_eq!(once.left(of, *webhook, versions), None, "that runner may have gone away by itself");
            assert_eq!(twice.left(of, *webhook, versions), Some(wait));
        }
        tokio::time::advance(wait).await;
        for (of, webhook, versions) in &changes {
            assert_eq!(twice.left(of, *webhook, versions), None);
        }
    }

    #[test]
    fn function_runners_that_a_look_broke_are_counted_until_one_answers() {
        let unseen = |broke| Unseen { reason: reason::SOURCE_UNREACHABLE, message: String::new(), broke };
        for (broke, before, after) in
            [(Some(1), 0, 1), (Some(1), 1, 2), (Some(2), 0, 2), (Some(0), 1, 1), (Some(0), 0, 0), (None, 3, 0)]
        {
            assert_eq!(unseen(broke).broke_after(before), after, "{broke:?} after {before}");
        }
    }

    #[test]
    fn source_that_fails_is_looked_at_less_and_less_often() {
        let minute = Duration::from_secs(60);
        assert_eq!(wait_after(0, minute), minute);
        let around = |wait: Duration, seconds: f64| {
            let found = wait.as_secs_f64();
            assert!((seconds * 0.8..=seconds * 1.2).contains(&found), "{found} is not around {seconds}");
        };
        for (failures, seconds) in [(1, 120.0), (2, 240.0), (3, 480.0), (4, 600.0), (1000, 600.0)] {
            around(wait_after(failures, minute), seconds);
        }
        around(wait_after(5, Duration::from_secs(3600)), 3600.0);
        let waits: BTreeSet<Duration> = (0..20).map(|_| wait_after(3, minute)).collect();
        assert!(waits.len() > 1, "all at the same moment");
    }
}
