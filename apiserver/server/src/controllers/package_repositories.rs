//! Repository: lists the package revisions in Git or a registry, at the times of its schedule, and keeps one PackageRevision for
//! each.
//!
//! A synchronization asks a function-runner for the refs that changed since the last one. Revisions with changes that Git does not
//! have yet stay as they are: `package_pushes` pushes them, or shows the conflict. Objects of a Repository that is unregistered are
//! removed from the server, and from nowhere else.
//!
//! - `reconcile`: from the answer of a function-runner to objects;
//! - `status`: from the result to the status, which `function_repositories` shares.
//!
//! Elsewhere: `package_latest` has the label of the newest revision, and PorchPackages.

mod reconcile;
mod status;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use parking_lot::Mutex;
use serde::{Deserialize, de::IgnoredAny};
use stoa_controller::{
    events::Kind,
    index::Member,
    object::ObjectKey,
    queue::{self, Trigger},
};
use stoa_kinds::{cron::Schedule, repository::FUNCTIONS};
use stoa_machinery::{ApiError, RequestContext, registry::DeleteOptions};
use stoa_packages::git_layout;
use stoa_proto::{DiscoverRequest, GitRef, NewCommit, PushRequest, RefUpdate, commit_ref, ref_update};
use stoa_runs::runner::Discovery;
use stoa_types::{
    common::condition,
    porch::{Lifecycle, PackageRevision, PorchPackage},
    porchconfig::Repository,
    reason,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::reconcile::Outcome;
pub(super) use self::status::{Found, write_status};
use super::sources::wait_after;
use crate::packages::{Address, PackageService, path_in_registry, registry_of, unanswered};

/// How many repositories are synchronized at once.
const AT_ONCE: usize = 8;
/// How long a synchronization may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// The time between synchronizations without a schedule.
const INTERVAL: Duration = Duration::from_secs(600);
/// The first wait after a failure.
const RETRY: Duration = Duration::from_secs(5);
/// The wait for revisions that changed during a synchronization.
const SOON: Duration = Duration::from_secs(2);
/// The commit of a ref that counts as changed.
const UNSETTLED: &str = "unsettled";
/// How long changes of revisions are gathered.
const GATHER: Duration = Duration::from_millis(300);

/// The fields of a PackageRevision that change what its repository shows.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Shown {
    repository: String,
    lifecycle: Lifecycle,
    revision: i64,
}

/// The last synchronization of a repository.
#[derive(Clone, Debug)]
struct Synchronized {
    of: (Option<String>, Option<i64>),
    /// The refs that were found.
    refs: Vec<GitRef>,
    /// When the next one is due.
    next: Timestamp,
    failures: u32,
    /// The last request of a webhook before it began.
    webhook: Option<MicroTime>,
}

#[derive(Clone, Debug, Default)]
struct Memory {
    synchronized: Arc<Mutex<HashMap<ObjectKey, Synchronized>>>,
    /// The repositories whose branch a publication has changed.
    published: Arc<Mutex<HashSet<ObjectKey>>>,
}

pub(crate) async fn run(service: PackageService, end: CancellationToken) {
    let Ok(registry) = service.services().lookup.registry() else { return };
    let memory = Memory::default();
    let published = memory.published.clone();
    let triggers = vec![
        Trigger::on(&registry.api::<Repository>(), |repository| vec![queue::key_of(repository)]),
        Trigger::on_change(&registry.api::<PackageRevision>(), move |revision: &Member<Shown, IgnoredAny>| {
            let key = (revision.namespace().to_owned(), revision.spec.repository.clone());
            if revision.spec.lifecycle.is_published() {
                published.lock().insert(key.clone());
            }
            vec![key]
        })
        .within(GATHER),
    ];
    let reconcile = |key| reconcile(service.clone(), memory.clone(), key);
    queue::drive_some(service.services().queues.of("package-repositories"), AT_ONCE, triggers, end, reconcile).await;
}

fn context() -> RequestContext {
    RequestContext::internal("package-repositories").with_status()
}

async fn reconcile(service: PackageService, memory: Memory, key: ObjectKey) -> Result<Option<Duration>, ApiError> {
    let repositories = service.services().lookup.api::<Repository>()?;
    let Some(repository) = repositories.get_opt(&key.0, &key.1).await? else {
        memory.synchronized.lock().remove(&key);
        unregister(&service, &key).await?;
        return Ok(None);
    };
    if repository.spec.content == FUNCTIONS {
        return Ok(None);
    }
    let now = service.services().now();
    let of = (repository.metadata.uid.clone(), repository.metadata.generation);
    let last = memory.synchronized.lock().get(&key).cloned().filter(|last| last.of.0 == of.0);
    let is_published = memory.published.lock().remove(&key);
    let webhook = repository.status.as_ref().and_then(|status| status.last_webhook_time.clone());
    if let Some(last) = &last
        && last.of == of
        && last.next > now
        && last.webhook == webhook
        && !is_published
    {
        return Ok(Some(until(last.next, now)));
    }
    let Some(address) = Address::of(&repository) else { return Ok(None) };
    let known = last.as_ref().map(|last| last.refs.clone()).unwrap_or_default();
    let failures = last.as_ref().map_or(0, |last| last.failures);
    let found = synchronize(&service, &repository, &address, known).await;
    let (refs, next, failures) = match &found {
        Ok(Synchronization { is_whole: false, .. }) => (Vec::new(), SOON, 0),
        Ok(found) if found.has_newer => (found.refs.clone(), SOON, 0),
        Ok(found) => (found.refs.clone(), until(next_time(&repository, now), now), 0),
        Err(_) => (Vec::new(), wait_after(failures.saturating_add(1), RETRY), failures.saturating_add(1)),
    };
    let next = now.checked_add(next).unwrap_or(Timestamp::MAX);
    memory.synchronized.lock().insert(key.clone(), Synchronized { of, refs, next, failures, webhook });
    report(&service, &repository, (found.as_ref(), next)).await?;
    Ok(Some(until(next, now)))
}

pub(super) fn until(time: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(time.duration_since(now)).unwrap_or(Duration::ZERO).max(Duration::from_millis(100))
}

/// When a repository is synchronized next: by its schedule or its request of one synchronization.
pub(super) fn next_time(repository: &Repository, now: Timestamp) -> Timestamp {
    let sync = repository.spec.sync.as_ref();
    let scheduled =
        sync.and_then(|sync| sync.schedule.parse::<Schedule>().ok()).and_then(|schedule| schedule.after(now));
    let regular = scheduled.unwrap_or_else(|| now.checked_add(INTERVAL).unwrap_or(Timestamp::MAX));
    let once = sync.and_then(|sync| sync.run_once_at.as_ref()).map(|Time(time)| *time).filter(|time| *time > now);
    once.map_or(regular, |once| once.min(regular))
}

/// Removes the objects of a Repository that is not registered.
async fn unregister(service: &PackageService, (namespace, name): &ObjectKey) -> Result<(), ApiError> {
    let lookup = &service.services().lookup;
    let revisions = lookup.api::<PackageRevision>()?.with_context(context());
    for (namespace, revision) in lookup.cached_keys::<PackageRevision>(namespace, "spec.repository", name) {
        queue::unless_gone(revisions.delete(&namespace, &revision, &DeleteOptions::default()).await)?;
    }
    let packages = lookup.api::<PorchPackage>()?.with_context(context());
    for (namespace, package) in lookup.cached_keys::<PorchPackage>(namespace, "spec.repository", name) {
        queue::unless_gone(packages.delete(&namespace, &package, &DeleteOptions::default()).await)?;
    }
    Ok(())
}

/// The outcome of a synchronization.
struct Synchronization {
    refs: Vec<GitRef>,
    branch_commit: String,
    /// Whether every object whose revision is gone was removed.
    is_whole: bool,
    /// Whether an object changed during the synchronization.
    has_newer: bool,
    /// The errors of single packages.
    problems: Vec<String>,
    count: usize,
}

async fn synchronize(
    service: &PackageService,
    repository: &Repository,
    address: &Address,
    known: Vec<GitRef>,
) -> Result<Synchronization, ApiError> {
    let (namespace, _) = queue::key_of(repository);
    let source = address.source(service.services(), &namespace).await?;
    let git = repository.spec.git.clone().unwrap_or_default();
    // Every object of this list was written before the refs are read. A later list has revisions that the answer lacks.
    let (began, existing) = (Instant::now(), reconcile::existing(service, repository).await?);
    let request = DiscoverRequest {
        source: Some(source),
        branch: git.branch.clone(),
        directory: git.directory.trim_matches('/').to_owned(),
        known: known.clone(),
        paths: paths(repository, existing.values()),
    };
    let mut found = discover(service, request.clone()).await?;
    if found.refs.branch_commit.is_empty() && !address.is_registry() {
        if !git.create_branch {
            let why = format!(
                "branch {:?} does not exist in the repository; create it, or set spec.git.createBranch",
                git.branch
            );
            return Err(ApiError::new(422, reason::REF_NOT_FOUND, why));
        }
        create_branch(service, &request).await?;
        found = discover(service, request).await?;
    }
    // An answer without changes names no refs.
    let mut refs = if found.refs.unchanged { known } else { found.refs.refs.clone() };
    let branch_commit = found.refs.branch_commit.clone();
    let Outcome { is_whole, has_newer, unsettled, refused, mut problems, count } =
        reconcile::reconcile(service, repository, found, (existing, began)).await?;
    // The next answer has these again, and is none without changes.
    for found in refs.iter_mut().filter(|found| unsettled.contains(&found.name)) {
        UNSETTLED.clone_into(&mut found.commit);
    }
    if !refused.is_empty() {
        // They have no object that names them, so the next answer has to.
        refs.clear();
    }
    problems.extend(refused);
    Ok(Synchronization { refs, branch_commit, is_whole, has_newer, problems, count })
}

/// The repositories of a registry that the server knows, for one that does not list them.
fn paths<'r>(repository: &Repository, revisions: impl Iterator<Item = &'r PackageRevision>) -> Vec<String> {
    let Some(oci) = registry_of(repository) else { return Vec::new() };
    let paths: BTreeSet<String> = revisions.map(|revision| path_in_registry(oci, revision)).collect();
    paths.into_iter().collect()
}

async fn discover(service: &PackageService, request: DiscoverRequest) -> Result<Discovery, ApiError> {
    let answer = tokio::time::timeout(PATIENCE, service.services().runner.discover(request)).await;
    let late = || ApiError::service_unavailable(format!("the repository did not answer within {PATIENCE:?}"));
    answer.map_err(|_| late())?.map_err(|status| unanswered(&status))
}

/// Creates the branch of a repository that has none, with an empty commit.
async fn create_branch(service: &PackageService, request: &DiscoverRequest) -> Result<(), ApiError> {
    let (name, email) = git_layout::COMMITTER;
    let author = stoa_proto::GitPerson {
        name: name.to_owned(),
        email: email.to_owned(),
        seconds: service.services().now().as_second(),
    };
    // The commit changes nothing; its path only has to be one.
    let path = if request.directory.is_empty() { "packages" } else { &request.directory };
    let commit = NewCommit {
        message: "Initial commit\n".to_owned(),
        author: Some(author),
        path: path.to_owned(),
        ..NewCommit::default()
    };
    let new = stoa_proto::CommitRef { commit: Some(commit_ref::Commit::NewCommit(0)) };
    let update = RefUpdate {
        name: git_layout::branch_ref(&request.branch),
        target: Some(ref_update::Target::Commit(new)),
        ..RefUpdate::default()
    };
    let push = PushRequest { source: request.source.clone(), commits: vec![commit], updates: vec![update] };
    service.services().runner.push(push).await.map(drop).map_err(|status| unanswered(&status))
}

/// Writes the outcome into the status, and an Event when the repository becomes unreadable or readable.
async fn report(
    service: &PackageService,
    repository: &Repository,
    (found, next): (Result<&Synchronization, &ApiError>, Timestamp),
) -> Result<(), ApiError> {
    let services = service.services();
    let outcome = match found {
        Ok(found) => Ok(Found {
            content: "packages",
            message: "the repository was read".to_owned(),
            revision: &found.branch_commit,
            packages: Some(found.count),
            problems: &found.problems,
        }),
        Err(error) if error.is(reason::REF_NOT_FOUND) => Err((reason::REF_NOT_FOUND, error)),
        Err(error) => Err((reason::SOURCE_UNREACHABLE, error)),
    };
    write_status(services, repository, outcome, next).await?;
    let conditions = repository.status.as_ref().map_or(&[][..], |status| status.conditions.as_slice());
    let ready = condition(conditions, reason::READY);
    let was_unready = ready.is_some_and(|ready| ready.status == "False");
    match found {
        // One Event for a problem, not one for each retry.
        Err(error) if was_unready && ready.is_some_and(|ready| ready.message == error.message()) => {}
        Err(error) => services.recorder.record(repository, Kind::Warning, reason::SOURCE_UNREACHABLE, error.message()),
        Ok(_) if was_unready => {
            services.recorder.record(repository, Kind::Normal, reason::AVAILABLE, "the repository can be read again");
        }
        Ok(_) => {}
    }
    Ok(())
}
