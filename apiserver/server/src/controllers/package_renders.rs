//! Finishes renders that last longer than their requests, also after a restart.
//!
//! Such a revision has the condition `Rendered=Unknown` and its files as they were sent.

use std::time::Duration;

use serde::{Deserialize, de::IgnoredAny};
use stoa_controller::{
    index::Member,
    object::ObjectKey,
    queue::{self, Trigger},
};
use stoa_machinery::ApiError;
use stoa_types::{
    porch::{PackageCondition, PackageContent, PackageRevision},
    reason,
};
use tokio_util::sync::CancellationToken;

use crate::packages::PackageService;

/// How many renders are awaited at once.
const AT_ONCE: usize = 16;

/// The fields that show a render in progress. A save changes the content.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Vec<PackageCondition>,
    content: Option<PackageContent>,
}

pub(crate) async fn run(service: PackageService, end: CancellationToken) {
    let Ok(registry) = service.services().lookup.registry() else { return };
    let triggers =
        vec![Trigger::on_change(&registry.api::<PackageRevision>(), |revision: &Member<IgnoredAny, Status>| {
            match &revision.status {
                Some(status) if is_rendering(&status.conditions) => vec![revision.key()],
                _ => Vec::new(),
            }
        })];
    let finish = |key| finish(service.clone(), key);
    queue::drive_some(service.services().queues.of("package-renders"), AT_ONCE, triggers, end, finish).await;
}

fn is_rendering(conditions: &[PackageCondition]) -> bool {
    conditions.iter().any(|found| found.type_ == reason::RENDERED && found.status == "Unknown")
}

async fn finish(service: PackageService, key: ObjectKey) -> Result<Option<Duration>, ApiError> {
    let revisions = service.services().lookup.api::<PackageRevision>()?;
    let Some(revision) = revisions.get_opt(&key.0, &key.1).await? else { return Ok(None) };
    if revision.status.as_ref().is_some_and(|status| is_rendering(&status.conditions)) {
        service.finish_render(&revision).await?;
    }
    Ok(None)
}
