//! The limits of calls, which all services of the process share.
//!
//! Start at [`Calls`]. It limits how many calls, and how many bytes of large ones, are under way at once.

use std::time::{Duration, Instant};

use stoa_fairness::{FairSemaphore, MaxShare, Permit};
use stoa_proto::Source;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Response, Status};
use tracing::Instrument as _;

use crate::apply;
use crate::failure::{Failure, reason};
use crate::metrics::Metrics;

/// A call that carries less needs no memory permit, in bytes.
const LARGE: usize = 1 << 20;

/// How long a large call waits for memory before it is rejected.
const TURN: Duration = Duration::from_secs(15);

/// The limits on calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Resources of one run at once, unless the caller sets it.
    pub(crate) parallelism: u32,
    /// Calls at once.
    pub(crate) calls: u32,
    /// Memory for the documents of large plans, applies and health checks, in MiB.
    pub(crate) calls_mib: u32,
    pub(crate) resource_timeout: Duration,
    /// The timeout for all resources of a run to become healthy at its end.
    pub(crate) health_timeout: Duration,
    /// How long calls in flight for a resource may go on once its apply is stopped.
    pub(crate) grace: Duration,
}

/// A call that asks for a slot.
pub(super) struct Call {
    pub(super) method: &'static str,
    /// The organization that pays for it; empty for callers of earlier versions.
    pub(super) organization: String,
    pub(super) span: tracing::Span,
}

impl Call {
    /// A call about a source.
    pub(super) fn of_source(method: &'static str, source: Option<&Source>, span: tracing::Span) -> Self {
        let organization = source.map(|source| source.organization.clone()).unwrap_or_default();
        Self { method, organization, span }
    }
}

/// Admits, counts and logs the calls of all services.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(super) metrics: Metrics,
    pub(super) limits: Limits,
    /// A slot for each call that is under way, for minutes as a rule.
    slots: FairSemaphore,
    /// Memory for the documents of large calls, in MiB. One call may need half of it by default.
    memory: FairSemaphore,
    /// As much again for calls that wait for it, whose documents are in memory too. A large call may use half as much beside.
    queued_memory: FairSemaphore,
    pub(super) shutdown: CancellationToken,
}

impl Calls {
    pub(crate) fn new(metrics: Metrics, limits: Limits, shutdown: CancellationToken) -> Self {
        let semaphore = |permits: u32| FairSemaphore::new(permits as usize, MaxShare::ThreeQuarters);
        Self {
            metrics,
            limits,
            slots: semaphore(limits.calls),
            memory: semaphore(limits.calls_mib),
            queued_memory: semaphore(limits.calls_mib),
            shutdown,
        }
    }

    /// Waits until no call is under way.
    pub(crate) fn idle(&self) -> impl Future<Output = ()> + use<> {
        let (slots, all) = (self.slots.clone(), self.limits.calls as usize);
        async move { drop(slots.acquire("", all).await) }
    }

    /// Takes a slot for a call of an organization.
    ///
    /// # Errors
    ///
    /// `RESOURCE_EXHAUSTED` if the organization has its share, or no slot is free: the caller hears of that at once, and no
    /// request waits in memory. `UNAVAILABLE` if the process is about to end.
    pub(super) fn slot(&self, organization: &str) -> Result<Permit, Failure> {
        if self.shutdown.is_cancelled() {
            return Err(apply::draining());
        }
        self.slots.try_acquire(organization, 1).ok_or_else(|| {
            let message = match (self.slots.available(), self.slots.held_by(organization)) {
                (1.., own @ 1..) => {
                    format!(
                        "organization {organization:?} has reached its limit of {own} concurrent calls; retry later"
                    )
                }
                _ => format!(
                    "the function-runner has reached its limit of {} concurrent calls; retry later",
                    self.limits.calls
                ),
            };
            Failure::new(Code::ResourceExhausted, reason::BUSY, message)
        })
    }

    /// Takes memory for a call of an organization that carries so many bytes. A call that is larger than all of it takes all of it.
    ///
    /// # Errors
    ///
    /// `RESOURCE_EXHAUSTED` if none is free in time, or too much waits already. `UNAVAILABLE` if the process is about to end.
    pub(super) async fn memory(&self, organization: &str, bytes: usize) -> Result<Option<Permit>, Failure> {
        if bytes < LARGE {
            return Ok(None);
        }
        let most = self.limits.calls_mib;
        let mib = bytes.div_ceil(LARGE).min(most as usize);
        let busy = || {
            let message = match self.memory.held_by(organization) {
                _ if organization.is_empty() => {
                    format!("{mib} of the {most} MiB for large calls are not free; retry later")
                }
                0 => format!("the call needs {mib} of the {most} MiB for large calls, which others use; retry later"),
                own => format!(
                    "organization {organization:?} uses {own} of the {most} MiB for large calls, and the call needs {mib} more; \
                     retry later"
                ),
            };
            Failure::new(Code::ResourceExhausted, reason::BUSY, message)
        };
        if let Some(memory) = self.memory.try_acquire(organization, mib) {
            return Ok(Some(memory));
        }
        // A call of nearly all the memory would never be queued where a little waits already. So an organization that has nothing queued
        // takes what is free, if that is half of what it needs: the queue uses half as much beside at most.
        let free = self.queued_memory.available();
        let queued =
            if self.queued_memory.held_by(organization) == 0 && free >= mib.div_ceil(2) { mib.min(free) } else { mib };
        let _queued = self.queued_memory.try_acquire(organization, queued).ok_or_else(busy)?;
        let turn = tokio::time::timeout(TURN, self.memory.acquire(organization, mib));
        match self.shutdown.run_until_cancelled(turn).await {
            Some(Ok(memory)) => Ok(Some(memory)),
            Some(Err(_)) => Err(busy()),
            None => Err(apply::draining()),
        }
    }

    /// Counts a call, logs its result, and converts its failure to a status.
    pub(super) async fn call<T>(
        &self,
        call: Call,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<Response<T>, Status> {
        let with_slot = |slot: Permit| async move {
            let _slot = slot;
            work.await
        };
        self.call_with_slot(call, with_slot).await
    }

    /// The same for work that holds its slot itself, since it may go on for a while when its caller leaves.
    pub(super) async fn call_with_slot<T, W: Future<Output = Result<T, Failure>>>(
        &self,
        Call { method, organization, span }: Call,
        work: impl FnOnce(Permit) -> W,
    ) -> Result<Response<T>, Status> {
        let start = Instant::now();
        let with_slot = async { work(self.slot(&organization)?).await };
        let result = with_slot.instrument(span.clone()).await.map_err(Status::from);
        self.metrics.called(method, start, &result);
        let _entered = span.enter();
        match &result {
            Ok(_) => tracing::info!(elapsed = ?start.elapsed(), "done"),
            Err(status) => {
                tracing::info!(elapsed = ?start.elapsed(), code = ?status.code(), error = status.message(), "failed")
            }
        }
        result.map(Response::new)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::args::LimitArgs;

    const MIB: usize = 1 << 20;

    /// Calls with these limits, until they are shut down.
    fn calls(limits: LimitArgs, shutdown: &CancellationToken) -> Calls {
        Calls::new(Metrics::new().unwrap(), limits.of_calls(Duration::ZERO), shutdown.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn large_plan_is_served_before_later_small_ones() {
        let limits = LimitArgs { max_calls_mib: 4, ..LimitArgs::default() };
        let shutdown = CancellationToken::new();
        let calls = calls(limits, &shutdown);
        let short = TURN / 5;
        let first = calls.memory("a", 3 * MIB).await.unwrap();
        let mut large = Box::pin(calls.memory("b", 3 * MIB));
        assert!(timeout(short, &mut large).await.is_err(), "it waits");
        let mut small = Box::pin(calls.memory("c", MIB));
        assert!(timeout(short, &mut small).await.is_err(), "the free memory is for the large plan");
        let refused = timeout(short, calls.memory("d", MIB)).await.expect("the queue is full");
        assert_eq!(Status::from(refused.unwrap_err()).code(), Code::ResourceExhausted);
        drop(first);
        let _taken = (large.await.unwrap(), small.await.unwrap());
        assert_eq!((calls.memory.held_by("b"), calls.memory.held_by("c")), (3, 1));

        let mut waiting = Box::pin(calls.memory("d", 4 * MIB));
        assert!(timeout(short, &mut waiting).await.is_err(), "the queue is empty");
        shutdown.cancel();
        assert_eq!(Status::from(waiting.await.unwrap_err()).code(), Code::Unavailable);
    }

    #[tokio::test(start_paused = true)]
    async fn long_large_plans_leave_memory_to_other_organizations() {
        let limits = LimitArgs { max_calls_mib: 8, ..LimitArgs::default() };
        let calls = calls(limits, &CancellationToken::new());
        let short = TURN / 5;
        let _first = calls.memory("a", 6 * MIB).await.unwrap();
        let mut waiting = Box::pin(calls.memory("a", 4 * MIB));
        assert!(timeout(short, &mut waiting).await.is_err(), "it has its share");
        let refused = timeout(short, calls.memory("a", 3 * MIB)).await.expect("its share of the queue is used, too");
        assert_eq!(Status::from(refused.unwrap_err()).code(), Code::ResourceExhausted);
        let _other = timeout(short, calls.memory("b", 2 * MIB)).await.expect("nobody delays it").unwrap();
        let mut other = Box::pin(calls.memory("c", 4 * MIB));
        assert!(timeout(short, &mut other).await.is_err(), "it may wait");
    }

    #[tokio::test(start_paused = true)]
    async fn plan_for_all_memory_is_queued_behind_others() {
        let limits = LimitArgs { max_calls_mib: 4, ..LimitArgs::default() };
        let calls = calls(limits, &CancellationToken::new());
        let short = TURN / 5;
        let first = calls.memory("a", 4 * MIB).await.unwrap();
        let mut small = Box::pin(calls.memory("b", MIB));
        assert!(timeout(short, &mut small).await.is_err(), "it waits");
        let mut large = Box::pin(calls.memory("c", 4 * MIB));
        assert!(timeout(short, &mut large).await.is_err(), "it waits, too");
        drop(first);
        let small = small.await.unwrap();
        assert!(timeout(short, &mut large).await.is_err(), "not all is free");
        drop(small);
        let all = large.await.unwrap();
        assert_eq!(calls.memory.held_by("c"), 4);

        // It is queued only if half of the queue is free.
        let mut waiting = Box::pin(calls.memory("d", 3 * MIB));
        assert!(timeout(short, &mut waiting).await.is_err(), "it waits");
        let refused = timeout(short, calls.memory("e", 4 * MIB)).await.expect("too much would be in memory");
        assert_eq!(Status::from(refused.unwrap_err()).code(), Code::ResourceExhausted);
        drop(all);
    }
}
