//! Source: looks what its versions are, at its interval, when a webhook says so, and when a run has found another commit.
//!
//! One look is one question to the remote, for the source's own ref and for all versions that stacks of its projects want. It is
//! asked when it is the turn of the source's namespace ([`ProbeSlots`]): no few whose servers do not answer keep others waiting, and
//! six do for as long as a look may take. Each look has a place of a function-runner, of which runs need some.

#[cfg(test)]
mod changed_tests;
mod observed_commits;
mod packages;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures_util::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use parking_lot::Mutex;
use serde::de::IgnoredAny;
use stoa_controller::{
    conditions::set_condition,
    events::Kind,
    index::{GATHER, Index, Member},
    object::ObjectKey,
    probes::ProbeSlots,
    queue::{self, Trigger},
};
use stoa_kinds::{readiness, source::short_revision};
use stoa_machinery::{
    ApiError,
    backoff::{Jitter, Policy},
};
use stoa_runs::{Services, StepError, runner, target};
use stoa_types::{
    Project, Run, Source, Stack,
    common::condition,
    config::{ObservedVersion, ProjectSpec, SourceStatus, StackSpec},
    reason,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::observed_commits::{ObservedCommits, OfRun};

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
/// After so many function-runners in a row that ended during a look, the source counts as the cause.
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

struct Unseen {
    reason: &'static str,
    message: String,
    /// How many function-runners did not outlive the look; nothing where one answered.
    broke: Option<usize>,
}

impl Unseen {
    /// How many function-runners in a row ended during a look; one that no runner took says nothing.
    fn broke_after(&self, before: usize) -> usize {
        self.broke.map_or(0, |broke| before.saturating_add(broke))
    }
}

#[derive(Clone, Debug, Default)]
struct Memory {
    looked: Arc<Mutex<HashMap<ObjectKey, Looked>>>,
    /// What runs found since.
    ahead: ObservedCommits,
}

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let Ok(registry) = services.lookup.registry() else { return };
    let memory = Memory::default();
    let turns = Arc::<ProbeSlots>::default();
    let wanted = Index::default();
    let moved = wanted.follow(&registry.api::<Stack>(), |s: &Member<StackSpec, IgnoredAny>| {
        let StackSpec { project, desired_version: version, .. } = &s.spec;
        let wanted = || Wanted { project: (s.namespace().to_owned(), project.clone()), version: version.clone() };
        (!readiness::is_told_by_itself(version)).then(wanted).into_iter().collect()
    });
    let lookup = services.lookup.clone();
    let source_of = move |Wanted { project: (namespace, project), .. }: &Wanted| {
        Some((namespace.clone(), readiness::source_of(&lookup, namespace, project)?))
    };
    let triggers = vec![
        Trigger::on(&registry.api::<Source>(), |s| vec![queue::key_of(s)]),
        // A stack may want a version that nobody wanted before.
        Trigger::on_change(&registry.api::<Project>(), |p: &Member<ProjectSpec, IgnoredAny>| {
            vec![(p.namespace().to_owned(), p.spec.source.name.clone())]
        }),
        Trigger::new(moved.map(move |moved| moved.groups.iter().filter_map(&source_of).collect()).boxed()),
        packages::trigger(&registry, services.lookup.clone()),
        Trigger::on_change(&registry.api::<Run>(), {
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

/// The versions that the remote has to be asked for, besides the latest one, once all stacks have been seen.
fn versions_of(services: &Services, wanted: &Index<Wanted>, (namespace, name): &ObjectKey) -> Option<BTreeSet<String>> {
    let projects = services.lookup.cached_keys::<Project>(namespace, "spec.source.name", name);
    let projects: HashSet<ObjectKey> = projects.into_iter().collect();
    let wanted = wanted.filter(|wanted| projects.contains(&wanted.project))?;
    Some(wanted.into_iter().map(|wanted| wanted.version).collect())
}

/// The wait after so many failures in a row, with a jitter.
pub(super) fn wait_after(failures: u32, interval: Duration) -> Duration {
    if failures == 0 {
        return interval;
    }
    // The interval itself is that without a failure.
    Policy::new(interval, LONGEST.max(interval)).with_jitter(Jitter::FIFTH).after(failures.saturating_add(1))
}

async fn look(
    services: Services,
    wanted: Index<Wanted>,
    memory: Memory,
    turns: Arc<ProbeSlots>,
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
    // The revisions of a package are at hand, so that each change of one is looked at.
    let last = last.filter(|_| source.spec.package.is_none());
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
    let resolved = match &source.spec.package {
        Some(package) => packages::resolve(&services, &source, package, &versions).await.map(Some),
        None => resolve(&services, &source, &versions).await,
    };
    let Some(found) = resolved.transpose() else { return Ok(Some(BUSY)) };
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
                    let signed = format!("commit {} is signed by {}", short_revision(&found.latest), found.signed_by);
                    note_signature(status, source.spec.verify.as_ref().map(|_| Ok(signed)), generation);
                    (true, reason::AVAILABLE, "the repository can be read".to_owned())
                }
                Err(Unseen { reason, message, .. }) => {
                    if reason::OF_SIGNATURES.contains(reason) {
                        note_signature(status, Some(Err((*reason, message.clone()))), generation);
                    }
                    let message = format!("{message}; fetches become less frequent until this is fixed");
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

/// Records whether a trusted key signed the commit of the ref: the signer, or the reason and message of what is wrong. A
/// source without keys has no such condition.
fn note_signature(status: &mut SourceStatus, found: Option<Result<String, (&str, String)>>, generation: Option<i64>) {
    let conditions = &mut status.conditions;
    match found {
        None => conditions.retain(|condition| condition.type_ != reason::VERIFIED),
        Some(Ok(signed)) => {
            set_condition(conditions, reason::VERIFIED, true, reason::VERIFIED, signed, generation);
        }
        Some(Err((why, message))) => {
            set_condition(conditions, reason::VERIFIED, false, why, message, generation);
        }
    }
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

/// The commits of a source, or why there are none; nothing while no function-runner has time.
async fn resolve(
    services: &Services,
    source: &Source,
    versions: &BTreeSet<String>,
) -> Result<Option<stoa_proto::LookResponse>, Unseen> {
    let failed = |halt: StepError| {
        let (reason, message) = halt.into_reason(reason::SOURCE_UNREACHABLE);
        Unseen { reason, message, broke: Some(0) }
    };
    let request = stoa_proto::LookRequest {
        source: Some(target::source(services, source).await.map_err(failed)?),
        r#ref: source.spec.reference.clone(),
        versions: versions.iter().cloned().collect(),
        branch_only: false,
    };
    let response = tokio::time::timeout(LOOK, services.runner.look(request)).await;
    let response = response.unwrap_or_else(|_| {
        Err(tonic::Status::deadline_exceeded(format!("the repository did not answer within {LOOK:?}")))
    });
    match response {
        Ok(response) if response.get_ref().signed_by.is_empty() && source.spec.verify.is_some() => {
            let message = "the function-runner is older than the API server and verifies no signatures; upgrade it";
            Err(failed(StepError::failed(reason::RUNNER_UNAVAILABLE, message)))
        }
        Ok(response) => Ok(Some(response.into_inner())),
        Err(status) if status.code() == tonic::Code::ResourceExhausted => Ok(None),
        // The message names the repository and the ref.
        Err(status) if !source.spec.reference.is_empty() && runner::lacks_version(&status) => {
            Err(failed(StepError::failed(reason::REF_NOT_FOUND, format!("spec.ref: {}", status.message()))))
        }
        Err(status) => {
            let broke = Some(runner::broken_calls(&status)).filter(|calls| *calls > 0 || runner::is_unheard(&status));
            Err(Unseen { broke, ..failed(runner::halt(&status, reason::SOURCE_UNREACHABLE)) })
        }
    }
}

#[cfg(test)]
mod tests;
