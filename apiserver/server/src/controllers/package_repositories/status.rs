//! The status of a Repository after a synchronization of its packages or functions.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use stoa_controller::{conditions::set_condition, queue};
use stoa_machinery::ApiError;
use stoa_runs::Services;
use stoa_types::{porchconfig::Repository, reason};

/// The result of a synchronization.
pub(crate) struct Found<'f> {
    /// The plural noun of the content: packages or functions.
    pub(crate) content: &'static str,
    /// The message of `Ready`.
    pub(crate) message: String,
    pub(crate) revision: &'f str,
    /// The number of packages, where the content is packages.
    pub(crate) packages: Option<usize>,
    /// The errors of single packages or functions.
    pub(crate) problems: &'f [String],
}

/// Writes the result, or an error with its reason, into the status. Another object of the same name stays as it is.
pub(crate) async fn write_status(
    services: &Services,
    repository: &Repository,
    found: Result<Found<'_>, (&str, &ApiError)>,
    next: Timestamp,
) -> Result<(), ApiError> {
    let (namespace, name) = queue::key_of(repository);
    let seconds = |time: Timestamp| Time(Timestamp::from_second(time.as_second()).unwrap_or_default());
    let now = services.now();
    let change = |object: &mut Repository| {
        if object.metadata.uid != repository.metadata.uid {
            return;
        }
        let generation = repository.metadata.generation;
        let run_once = repository.spec.sync.as_ref().and_then(|sync| sync.run_once_at.clone());
        let status = object.status.get_or_insert_default();
        let conditions = &mut status.conditions;
        match &found {
            Ok(Found { content, message, revision, packages, problems }) => {
                set_condition(conditions, reason::READY, true, reason::AVAILABLE, message, generation);
                let (are_readable, why, message) = match problems.first() {
                    None => (true, reason::AVAILABLE, format!("all {content} can be read")),
                    Some(first) => {
                        let message = format!("{} {content} cannot be read; the first: {first}", problems.len());
                        (false, reason::INVALID_PACKAGES, message)
                    }
                };
                set_condition(conditions, reason::PACKAGES_READABLE, are_readable, why, message, generation);
                status.last_full_sync_time = Some(seconds(now));
                if let Some(packages) = packages {
                    status.package_count = i64::try_from(*packages).ok();
                }
                status.git_commit_hash = (*revision).to_owned();
                status.observed_generation = generation;
                if run_once.as_ref().is_some_and(|Time(time)| *time <= now) {
                    status.last_run_once_at = run_once;
                }
            }
            Err((why, error)) => {
                set_condition(conditions, reason::READY, false, why, error.message(), generation);
            }
        }
        status.next_full_sync_time = Some(seconds(next));
    };
    let written = services.lookup.api::<Repository>()?.update_status_with(&namespace, &name, change).await;
    queue::unless_gone(written).map(drop)
}
