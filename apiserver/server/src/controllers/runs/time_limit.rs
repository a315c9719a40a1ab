//! The time limit of a Run, and the time that it has spent.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use stoa_kinds::run_status::{awaits_approval, status};
use stoa_types::{Run, delivery::PullRequestStatus};
use tokio::time::Instant;

/// From when the time of a run counts. The clock of the machine may be set while it goes on, which no run may be ended
/// for; what it says is taken only for the time before this server knew the run, and a start in the future for now. The
/// time in which a run waits for approval does not count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopwatch {
    /// When the run was first taken up here, or again after it had waited; nothing while it waits.
    pub(super) at: Option<Instant>,
    /// What it had spent by then.
    pub(super) before: Duration,
}

impl Stopwatch {
    pub(super) fn new(run: &Run, now: Timestamp) -> Self {
        let status = status(run);
        let between = |from: Timestamp, to: Timestamp| Duration::try_from(to.duration_since(from)).unwrap_or_default();
        let all = status.start_time.map(|Time(start)| between(start, now)).unwrap_or_default();
        let decided = status.approval.as_ref().map(|approval| approval.time.as_ref().map_or(now, |Time(at)| *at));
        let until = decided.or_else(|| awaits_approval(run).then_some(now));
        let waited = status.plan.and_then(|plan| plan.time).zip(until).map(|(Time(from), to)| between(from, to));
        let merging = |pull: PullRequestStatus| {
            let to = pull.end_time.map_or(now, |Time(at)| at);
            pull.time.map(|Time(from)| between(from, to))
        };
        let merging = status.pull_request.and_then(merging);
        let waited = waited.unwrap_or_default() + merging.unwrap_or_default();
        Self { at: Some(Instant::now()), before: all.saturating_sub(waited) }
    }

    pub(super) fn spent(self) -> Duration {
        self.before + self.at.map_or(Duration::ZERO, |at| at.elapsed())
    }

    /// Ends the count until the run is taken up again.
    pub(super) fn pause(&mut self) {
        *self = Self { at: None, before: self.spent() };
    }

    pub(super) fn resume(&mut self) {
        self.at.get_or_insert_with(Instant::now);
    }

    pub(super) fn is_over(self, limit: Duration) -> bool {
        self.at.is_some() && self.spent() >= limit
    }
}

pub(super) fn limit_of(run: &Run) -> Duration {
    run.spec.timeout.parse().unwrap_or(Duration::from_secs(3600))
}
