//! The lease of the function-runner for its calls to infrastructure, and the exclusion of two runners at once.
//!
//! Each acknowledgement extends the lease of the runner ([`CallLease::ack`]); it never outlasts the lease of
//! the Run. The head of the State names the process of the runner that may have calls open. A conversation with
//! another process waits until that one's lease has expired ([`CallLease::admit`]). The same process ends its
//! earlier calls itself. A runner that stayed silent until its lease expired has none either ([`answered`]).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{Stream, StreamExt as _};
use kube::ResourceExt as _;
use stoa_controller::lease::HeldLease;
use stoa_proto::{Ack, ApplyEvent, ApplyRequest, apply_event::Event, apply_request::Message};
use tokio::{sync::mpsc, time::Instant};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;

use crate::{
    StepError,
    execution::Execution,
    state::{Head, State},
};

/// For how long calls may go on without another word of ours.
const GRANT: Duration = Duration::from_secs(6);
/// For clocks that do not run quite alike, and for what was on its way when the time was over.
const MARGIN: Duration = Duration::from_secs(2);
/// How many events may wait to be recorded.
const AHEAD: usize = 256;

/// What is granted under a lease. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct CallLease {
    lease: HeldLease,
    /// The runner was silent for so long that nothing of what was granted is left.
    lapsed: Arc<AtomicBool>,
}

impl CallLease {
    pub(super) fn new(lease: &HeldLease) -> Self {
        Self { lease: lease.clone(), lapsed: Arc::default() }
    }

    /// What may be granted now, from when the runner sent what is answered, which was earlier.
    fn left(&self) -> Duration {
        if self.have_lapsed() {
            return Duration::ZERO;
        }
        self.lease.left().saturating_sub(MARGIN).min(GRANT)
    }

    /// Whether the runner can have no calls under way any more, though it did not say so.
    pub(super) fn have_lapsed(&self) -> bool {
        self.lapsed.load(Ordering::SeqCst)
    }

    pub(super) fn ack(&self, sequence: u64) -> Ack {
        Ack { sequence, lease_millis: self.left().as_millis().try_into().unwrap_or(0) }
    }

    /// The answer to a heartbeat, as long as there is time to give.
    pub(super) fn answer(&self, sequence: u64) -> Option<Ack> {
        Some(self.ack(sequence)).filter(|ack| ack.lease_millis > 0)
    }

    /// Lets a process of the runner begin. If another one may have calls under way, it is waited for until that cannot
    /// be any more. If this one is going to make any, the head says so before it may.
    ///
    /// # Errors
    ///
    /// Canceled when the run is meanwhile, and whatever keeps the head from being written.
    pub(super) async fn admit(
        &self,
        execution: &mut Execution,
        state: &mut State,
        instance: &str,
        is_changing: bool,
    ) -> Result<(), StepError> {
        // Whoever had the lease before gave no time after this.
        let lapsed = self.lease.since() + GRANT + MARGIN;
        let is_another = state.head().runner.as_ref().is_some_and(|open| open != instance);
        if is_another && Instant::now() < lapsed {
            let left = lapsed.saturating_duration_since(Instant::now());
            let why = format!(
                "waiting for {:.1} s: the connection to another function-runner was lost, and its calls may continue \
                 until then",
                left.as_secs_f64()
            );
            execution.journal.note("Applying", why);
            execution.journal.flush().await;
            execution.unless_canceled(tokio::time::sleep_until(lapsed)).await?;
        }
        if is_changing {
            let run = execution.run.uid().unwrap_or_default();
            let head = Head { run, dirty: true, runner: Some(instance.to_owned()), ..state.head().clone() };
            state.set_head(&*execution.services.log, head).await?;
        }
        Ok(())
    }
}

pub(super) type RunnerEvent = Result<ApplyEvent, Status>;

/// Answers heartbeats as they come, whatever is being recorded at the time, and passes all other events on. A runner that
/// was not heard of for so long that its time is over counts as gone: it may be cut off, and nothing else would tell.
pub(super) fn answered(
    grants: CallLease,
    requests: mpsc::Sender<ApplyRequest>,
    mut events: impl Stream<Item = RunnerEvent> + Send + Unpin + 'static,
) -> (AbortOnDropHandle<()>, ReceiverStream<RunnerEvent>) {
    let (others, passed_on) = mpsc::channel(AHEAD);
    let answering = tokio::spawn(async move {
        loop {
            let event = match tokio::time::timeout(GRANT + MARGIN, events.next()).await {
                Ok(Some(event)) => event,
                Ok(None) => return,
                Err(_) => {
                    grants.lapsed.store(true, Ordering::SeqCst);
                    let why = format!("no message from the function-runner for {:?}", GRANT + MARGIN);
                    // Nobody listens to a conversation that is over.
                    let _ = others.send(Err(Status::unavailable(why))).await;
                    return;
                }
            };
            let sequence = match &event {
                Ok(ApplyEvent { sequence, event: Some(Event::Heartbeat(_)) }) => Some(*sequence),
                _ => None,
            };
            let goes_on = match sequence.map(|sequence| grants.answer(sequence)) {
                None => others.send(event).await.is_ok(),
                Some(Some(ack)) => {
                    // How it went away otherwise, its events tell.
                    let _ = requests.send(ApplyRequest { message: Some(Message::Ack(ack)) }).await;
                    true
                }
                // It hears nothing, and its time runs out.
                Some(None) => true,
            };
            if !goes_on {
                return;
            }
        }
    });
    (AbortOnDropHandle::new(answering), ReceiverStream::new(passed_on))
}

#[cfg(test)]
mod tests {
    use stoa_machinery::log::{Log as _, MemoryLog};
    use stoa_proto::{HealthEvent, HeartbeatEvent};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    async fn held(log: &MemoryLog) -> HeldLease {
        HeldLease::acquire(log, "runs/a", "server", 30 * SECOND).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn no_grant_outlasts_the_lease() {
        let log = MemoryLog::new();
        let lease = held(&log).await;
        let grants = CallLease::new(&lease);
        let mut given = Vec::new();
        for _ in 0..8 {
            given.push(grants.answer(1).map(|ack| ack.lease_millis / 1_000));
            tokio::time::sleep(4 * SECOND).await;
        }
        assert_eq!(given, [Some(6), Some(6), Some(6), Some(6), Some(6), Some(6), Some(4), None]);
        assert_eq!(grants.ack(1), Ack { sequence: 1, lease_millis: 0 });
        assert!(log.acquire("runs/a", "another", SECOND).await.is_ok(), "only now can another have it");
    }

    #[tokio::test(start_paused = true)]
    async fn heartbeats_are_answered_while_nothing_can_be_recorded() {
        let log = MemoryLog::new();
        let grants = CallLease::new(&held(&log).await);
        let (events, incoming) = mpsc::channel(1);
        let (requests, mut acks) = mpsc::channel(1);
        let (_answering, mut others) = answered(grants, requests, ReceiverStream::new(incoming));
        let health = Event::Health(HealthEvent::default());
        let heartbeat = Event::Heartbeat(HeartbeatEvent::default());
        for (sequence, event) in [(1, health), (2, heartbeat.clone()), (3, heartbeat)] {
            events.send(Ok(ApplyEvent { sequence, event: Some(event) })).await.unwrap();
        }
        for sequence in [2, 3] {
            let ack = Ack { sequence, lease_millis: 6_000 };
            assert_eq!(acks.recv().await.unwrap().message, Some(Message::Ack(ack)));
        }
        assert_eq!(others.next().await.unwrap().unwrap().sequence, 1);
        drop(events);
        assert!(others.next().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn end_of_a_runner_is_passed_on() {
        let log = MemoryLog::new();
        let grants = CallLease::new(&held(&log).await);
        let (events, incoming) = mpsc::channel(2);
        let (requests, acks) = mpsc::channel(1);
        drop(acks);
        let (_answering, mut others) = answered(grants, requests, ReceiverStream::new(incoming));
        let heartbeat = ApplyEvent { sequence: 2, event: Some(Event::Heartbeat(HeartbeatEvent::default())) };
        for event in [Ok(heartbeat), Err(Status::unknown("transport error"))] {
            events.send(event).await.unwrap();
        }
        assert_eq!(others.next().await.unwrap().unwrap_err().code(), tonic::Code::Unknown);
    }

    #[tokio::test(start_paused = true)]
    async fn silent_runner_times_out() {
        let log = MemoryLog::new();
        let grants = CallLease::new(&held(&log).await);
        let (events, incoming) = mpsc::channel(1);
        let (requests, mut acks) = mpsc::channel(8);
        let (_answering, mut others) = answered(grants.clone(), requests, ReceiverStream::new(incoming));
        let start = Instant::now();
        for sequence in 1..=3 {
            tokio::time::sleep(2 * SECOND).await;
            let event = Some(Event::Heartbeat(HeartbeatEvent::default()));
            events.send(Ok(ApplyEvent { sequence, event })).await.unwrap();
            acks.recv().await.unwrap();
        }
        let status = others.next().await.unwrap().unwrap_err();
        assert_eq!((status.code(), start.elapsed()), (tonic::Code::Unavailable, 14 * SECOND));
        assert!(grants.have_lapsed());
        assert_eq!(grants.ack(3), Ack { sequence: 3, lease_millis: 0 }, "what is recorded late gives no time");
        assert!(others.next().await.is_none());
    }
}
