//! PackageOperation: plans one change of many packages, waits for its approval, and makes it package by package.
//!
//! The plan and the progress are in the status, and the name of each draft follows from the operation. After a crash, packages
//! that had begun are continued with the drafts that are there. Writes to packages are those of the user who created the operation.
//!
//! - `plan`: the packages and their changes; `execute`: one package.

mod execute;
mod plan;

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use stoa_controller::{
    conditions::set_condition,
    events::Kind,
    finalizers::update_status_of_same,
    object::ObjectKey,
    queue::{self, Trigger},
};
use stoa_engine::digest::{canonical_json, hex};
use stoa_kinds::{approval::sentence, run_status::user};
use stoa_machinery::{ApiError, RequestContext};
use stoa_types::{
    delivery::{
        Decision, PackageChange, PackageOperation, PackageOperationPhase, PackageOperationStatus, PackageOperationType,
        PackagePhase, PackageProgress,
    },
    reason,
};
use tokio_util::sync::CancellationToken;

use crate::packages::PackageService;

pub(crate) use self::plan::planned;

/// As whom packages are written, besides the user.
const COMPONENT: &str = "package-operations";
/// How many operations are reconciled at once.
const AT_ONCE: usize = 4;
/// The wait while a repository is out of reach.
const AWAY: Duration = Duration::from_secs(5);

pub(crate) async fn run(service: PackageService, end: CancellationToken) {
    let Ok(registry) = service.services().lookup.registry() else { return };
    let triggers = vec![Trigger::on(&registry.api::<PackageOperation>(), |operation| vec![queue::key_of(operation)])];
    let reconcile = |key| reconcile(service.clone(), key);
    queue::drive_some(service.services().queues.of("package-operations"), AT_ONCE, triggers, end, reconcile).await;
}

/// The context of the user who created an operation, for writes to packages.
pub(crate) fn context_of(service: &PackageService, operation: &PackageOperation) -> RequestContext {
    let requester = operation.status.clone().unwrap_or_default().requester;
    let mut context = RequestContext::new(user(&requester), service.services().authorizer.clone());
    context.field_manager = format!("stoa-{COMPONENT}");
    context
}

async fn reconcile(service: PackageService, key: ObjectKey) -> Result<Option<Duration>, ApiError> {
    let operations = service.services().lookup.api::<PackageOperation>()?;
    loop {
        let Some(operation) = operations.get_opt(&key.0, &key.1).await? else { return Ok(None) };
        let status = operation.status.clone().unwrap_or_default();
        if operation.metadata.deletion_timestamp.is_some() || status.phase.is_terminal() {
            return Ok(None);
        }
        if operation.spec.cancel {
            end(&service, &operation, Ending::Canceled("the operation was canceled".to_owned())).await?;
            continue;
        }
        match status.phase {
            PackageOperationPhase::Pending | PackageOperationPhase::Planning => {
                Box::pin(make_plan(&service, &operation)).await?;
            }
            PackageOperationPhase::AwaitingApproval => match &status.approval {
                None => return Ok(None),
                Some(approval) if approval.decision == Decision::Rejected => {
                    end(&service, &operation, Ending::Rejected(sentence(approval, None))).await?;
                }
                Some(approval) => {
                    let message = sentence(approval, None);
                    write(&service, &operation, |status, generation| begin(status, &message, generation)).await?;
                }
            },
            PackageOperationPhase::Running => {
                if !Box::pin(next_wave(&service, &operation)).await? {
                    return Ok(Some(AWAY));
                }
            }
            PackageOperationPhase::Succeeded | PackageOperationPhase::Failed | PackageOperationPhase::Canceled => {
                return Ok(None);
            }
        }
    }
}

async fn write(
    service: &PackageService,
    operation: &PackageOperation,
    mut change: impl FnMut(&mut PackageOperationStatus, Option<i64>) + Send,
) -> Result<(), ApiError> {
    let generation = operation.metadata.generation;
    let operations = service.services().lookup.api::<PackageOperation>()?;
    let change = |operation: &mut PackageOperation| {
        let status = operation.status.get_or_insert_default();
        if !status.phase.is_terminal() {
            change(status, generation);
        }
    };
    queue::unless_gone(update_status_of_same(&operations, operation, change).await).map(drop)
}

fn now() -> Time {
    Time(jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap_or_default())
}

fn begin(status: &mut PackageOperationStatus, message: &str, generation: Option<i64>) {
    status.phase = PackageOperationPhase::Running;
    status.start_time.get_or_insert_with(now);
    if !message.is_empty() {
        set_condition(&mut status.conditions, reason::AWAITING_APPROVAL, false, reason::APPROVED, message, generation);
    }
}

/// The digest of a plan, by which an approval names it.
fn digest_of(operation: &PackageOperation, packages: &[PackageChange]) -> String {
    let plan = json!({ "spec": operation.spec, "packages": packages });
    format!("sha256:{}", hex(&Sha256::digest(canonical_json(&plan))))
}

/// Selects the packages and computes their changes.
async fn make_plan(service: &PackageService, operation: &PackageOperation) -> Result<(), ApiError> {
    write(service, operation, |status, _| status.phase = PackageOperationPhase::Planning).await?;
    let packages = match plan::packages(service, operation).await {
        Ok(packages) => packages,
        Err(error) if queue::is_refusal(&error) => {
            return end(service, operation, Ending::Failed(error.message().to_owned())).await;
        }
        Err(error) => return Err(error),
    };
    let digest = digest_of(operation, &packages);
    let waits = operation.spec.require_approval
        && operation.spec.operation != PackageOperationType::Validate
        && packages.iter().any(|package| !package.phase.is_terminal());
    let message = format!("plan {digest} for {} packages waits for approval", packages.len());
    write(service, operation, |status, generation| {
        status.packages.clone_from(&packages);
        status.plan_time = Some(now());
        status.plan_digest.clone_from(&digest);
        status.progress = Some(counted(&status.packages));
        match waits {
            true => {
                status.phase = PackageOperationPhase::AwaitingApproval;
                let why = reason::AWAITING_APPROVAL;
                set_condition(&mut status.conditions, why, true, why, message.clone(), generation);
            }
            false => begin(status, "", generation),
        }
    })
    .await
}

fn counted(packages: &[PackageChange]) -> PackageProgress {
    let count = |phase: PackagePhase| {
        i64::try_from(packages.iter().filter(|package| package.phase == phase).count()).unwrap_or(i64::MAX)
    };
    PackageProgress {
        total: i64::try_from(packages.len()).unwrap_or(i64::MAX),
        succeeded: count(PackagePhase::Succeeded),
        failed: count(PackagePhase::Failed),
        skipped: count(PackagePhase::Skipped),
    }
}

/// A package after an attempt. One that is continued later names the cause.
fn after(change: PackageChange, outcome: Result<PackageChange, ApiError>) -> PackageChange {
    outcome.unwrap_or_else(|error| PackageChange {
        phase: PackagePhase::Running,
        message: format!("it is retried: {}", error.message()),
        ..change
    })
}

fn is_same(one: &PackageChange, other: &PackageChange) -> bool {
    (&one.repository, &one.package) == (&other.repository, &other.package)
}

/// Replaces the entries of packages by their new ones.
fn replace(packages: &mut [PackageChange], new: &[PackageChange]) {
    for package in packages {
        if let Some(change) = new.iter().find(|change| is_same(change, package)) {
            package.clone_from(change);
        }
    }
}

/// Changes the next packages, or ends the operation; whether nothing is out of reach.
async fn next_wave(service: &PackageService, operation: &PackageOperation) -> Result<bool, ApiError> {
    let status = operation.status.clone().unwrap_or_default();
    let failed = counted(&status.packages).failed;
    let most = usize::try_from(operation.spec.max_parallel).unwrap_or(1).max(1);
    let may_begin = failed <= operation.spec.max_failures;
    // Those that had begun come first.
    let begun = status.packages.iter().filter(|package| package.phase == PackagePhase::Running);
    let pending = status.packages.iter().filter(|package| may_begin && package.phase == PackagePhase::Pending);
    let mut wave: Vec<PackageChange> = begun.chain(pending).take(most).cloned().collect();
    if wave.is_empty() {
        end(service, operation, outcome(&status, may_begin)).await?;
        return Ok(true);
    }
    for package in &mut wave {
        package.phase = PackagePhase::Running;
        package.start_time.get_or_insert_with(now);
    }
    write(service, operation, |status, _| replace(&mut status.packages, &wave)).await?;
    let work = wave.into_iter().map(|change| async move {
        let outcome = execute::execute(service, operation, change.clone()).await;
        (change, outcome.map(|change| PackageChange { completion_time: Some(now()), ..change }))
    });
    let done: Vec<(PackageChange, Result<PackageChange, ApiError>)> =
        stream::iter(work).buffer_unordered(most).collect().await;
    let away = done.iter().find_map(|(_, outcome)| outcome.as_ref().err().cloned());
    let changed: Vec<PackageChange> = done.into_iter().map(|(change, outcome)| after(change, outcome)).collect();
    write(service, operation, |status, _| {
        replace(&mut status.packages, &changed);
        status.progress = Some(counted(&status.packages));
    })
    .await?;
    if let Some(error) = &away {
        tracing::info!(operation = operation.name_any(), %error, "packages of an operation are continued later");
    }
    Ok(away.is_none())
}

/// The end of an operation.
#[derive(Debug)]
enum Ending {
    Succeeded(String),
    Failed(String),
    Rejected(String),
    Canceled(String),
}

/// The outcome once no package is left to begin.
fn outcome(status: &PackageOperationStatus, may_begin: bool) -> Ending {
    let PackageProgress { total, succeeded, failed, skipped } = counted(&status.packages);
    let numbers =
        format!("{succeeded} of {total} packages succeeded, {failed} failed, {skipped} had nothing to change");
    if may_begin {
        return Ending::Succeeded(numbers);
    }
    let first = status.packages.iter().find(|package| package.phase == PackagePhase::Failed);
    let first = first.map_or_else(String::new, |package| {
        format!("; the first failure: {}/{}: {}", package.repository, package.package, package.message)
    });
    Ending::Failed(format!("{numbers}{first}"))
}

async fn end(service: &PackageService, operation: &PackageOperation, ending: Ending) -> Result<(), ApiError> {
    let (phase, type_, why, message) = match ending {
        Ending::Succeeded(message) => (PackageOperationPhase::Succeeded, reason::COMPLETE, reason::SUCCEEDED, message),
        Ending::Failed(message) => (PackageOperationPhase::Failed, reason::FAILED, reason::FAILED, message),
        Ending::Rejected(message) => (PackageOperationPhase::Failed, reason::FAILED, reason::REJECTED, message),
        Ending::Canceled(message) => (PackageOperationPhase::Canceled, reason::FAILED, reason::CANCELED, message),
    };
    write(service, operation, |status, generation| {
        status.phase = phase;
        status.completion_time = Some(now());
        for package in status.packages.iter_mut().filter(|package| !package.phase.is_terminal()) {
            package.phase = PackagePhase::Canceled;
            package.completion_time = package.start_time.as_ref().map(|_| now());
        }
        let conditions = &mut status.conditions;
        if conditions.iter().any(|condition| condition.type_ == reason::AWAITING_APPROVAL && condition.status == "True")
        {
            set_condition(conditions, reason::AWAITING_APPROVAL, false, why, message.clone(), generation);
        }
        set_condition(conditions, type_, true, why, message.clone(), generation);
    })
    .await?;
    let kind = if phase == PackageOperationPhase::Succeeded { Kind::Normal } else { Kind::Warning };
    service.services().recorder.record(operation, kind, why, message);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, phase: PackagePhase) -> PackageChange {
        PackageChange { package: name.to_owned(), phase, message: "it broke".to_owned(), ..PackageChange::default() }
    }

    #[test]
    fn outcome_counts_packages_and_names_a_failure() {
        let packages = vec![
            package("a", PackagePhase::Succeeded),
            package("b", PackagePhase::Failed),
            package("c", PackagePhase::Skipped),
            package("d", PackagePhase::Pending),
        ];
        let status = PackageOperationStatus { packages, ..PackageOperationStatus::default() };
        let progress = counted(&status.packages);
        assert_eq!((progress.total, progress.succeeded, progress.failed, progress.skipped), (4, 1, 1, 1));
        let Ending::Failed(message) = outcome(&status, false) else { panic!("too many failed") };
        assert!(message.contains("1 of 4") && message.contains("/b: it broke"), "{message}");
        assert!(matches!(outcome(&status, true), Ending::Succeeded(_)), "tolerated");
    }

    #[test]
    fn package_that_is_retried_names_the_cause() {
        let pending = package("a", PackagePhase::Pending);
        let error = ApiError::service_unavailable("the functions of web still run");
        let retried = after(pending.clone(), Err(error));
        assert_eq!(
            (retried.phase, &*retried.message),
            (PackagePhase::Running, "it is retried: the functions of web still run")
        );
        let done = package("a", PackagePhase::Succeeded);
        assert_eq!(after(pending, Ok(done.clone())), done);
    }

    #[test]
    fn digest_names_the_plan() {
        let operation = PackageOperation::default();
        let one = digest_of(&operation, &[package("a", PackagePhase::Pending)]);
        assert_eq!(one.len(), "sha256:".len() + 64);
        assert_eq!(one, digest_of(&operation, &[package("a", PackagePhase::Pending)]));
        assert_ne!(one, digest_of(&operation, &[package("b", PackagePhase::Pending)]));
    }
}
