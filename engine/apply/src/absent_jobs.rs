//! Recorded Jobs that no longer exist, have no recorded end, and count as finished.
//!
//! Start at [`find`]. Kubernetes deletes a Job with `ttlSecondsAfterFinished` after its end. A Job that runs longer than a
//! Run follows it may end and go unseen. A Job that was never seen healthy after its last change may have failed, so
//! that it counts as missing.

use std::collections::BTreeMap;

use stoa_engine::{Action, Plan, ResourceId, StateResource};
use stoa_runtime::{JobEnd, Live, ReadRequest, Runtime, RuntimeError};

/// Jobs that count as finished, with what is known of their end.
#[derive(Debug, Default)]
pub(crate) struct AbsentJobs(BTreeMap<ResourceId, JobEnd>);

impl AbsentJobs {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn has(&self, id: &ResourceId) -> bool {
        self.0.contains_key(id)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = &ResourceId> {
        self.0.keys()
    }

    /// Marks their records.
    pub(crate) fn mark(&self, records: &mut [StateResource]) {
        records.iter_mut().filter(|record| self.has(&record.id)).for_each(|record| record.finished = true);
    }

    /// Warnings about those that a plan leaves as they are by an assumption.
    pub(crate) fn warnings(&self, plan: &Plan) -> Vec<String> {
        let assumed = |id: &ResourceId| self.0.get(id) == Some(&JobEnd::Assumed);
        let left = plan.actions.iter().filter(|it| it.action == Action::Unchanged && assumed(&it.id));
        let warning = |id: &ResourceId| {
            format!(
                "{id}: the Job no longer exists, and counts as finished because its ttlSecondsAfterFinished has passed; to run it \
                 again, change its template or its name"
            )
        };
        left.map(|planned| warning(&planned.id)).collect()
    }
}

/// Reads the recorded Jobs whose end is not recorded, and finds those that no longer exist.
pub(crate) async fn find<'r>(
    runtime: &dyn Runtime,
    records: impl IntoIterator<Item = &'r StateResource>,
) -> Result<AbsentJobs, RuntimeError> {
    let running: Vec<&StateResource> = records.into_iter().filter(|record| may_end_unseen(runtime, record)).collect();
    if running.is_empty() {
        return Ok(AbsentJobs::default());
    }
    let requests: Vec<ReadRequest<'_>> =
        running.iter().map(|job| ReadRequest { desired: None, prior: Some(job) }).collect();
    let live = runtime.read(&requests).await?;
    let absent = running.into_iter().zip(live).filter(|(_, live)| matches!(live, Ok(Live::Absent)));
    of_absent(runtime, absent.map(|(job, _)| job)).await
}

/// The same for resources that are known to be absent.
pub(crate) async fn of_absent<'r>(
    runtime: &dyn Runtime,
    records: impl IntoIterator<Item = &'r StateResource>,
) -> Result<AbsentJobs, RuntimeError> {
    let absent: Vec<&StateResource> = records.into_iter().filter(|record| may_end_unseen(runtime, record)).collect();
    if absent.is_empty() {
        return Ok(AbsentJobs::default());
    }
    let ends = runtime.kubernetes().job_ends(&absent).await?;
    let ended = absent.into_iter().zip(ends).filter(|(_, end)| *end != JobEnd::Missing);
    Ok(AbsentJobs(ended.map(|(job, end)| (job.id.clone(), end)).collect()))
}

fn may_end_unseen(runtime: &dyn Runtime, record: &StateResource) -> bool {
    record.verified && !record.finished && runtime.kubernetes().is_deleted_when_finished(record)
}
