//! The two directions of an apply: numbered events go out; acks come in, and extend the time for calls.
//!
//! **Invariant:** nothing waits for an ack that can no longer come: once the stream is broken every
//! wait ends with [`Broken`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stoa_apply::Grant;
use stoa_proto::apply_event::Event;
use stoa_proto::{ApplyEvent, ApplyRequest, HeartbeatEvent, apply_request};
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_stream::{Stream, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// The caller left, or broke the contract of the proto.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

type Events = mpsc::Sender<Result<ApplyEvent, Status>>;

/// How often the runner asks for more time; the caller grants several times as much.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// An event that needs an ack.
#[derive(Debug)]
struct Waiting {
    sent: Instant,
    acked: oneshot::Sender<()>,
}

/// One apply's stream.
#[derive(Debug)]
pub(crate) struct Conversation {
    /// The next sequence number and the channel of events, under one lock, so that events arrive in order. Nothing after the
    /// last event.
    out: AsyncMutex<Option<(u64, Events)>>,
    waiting: Mutex<HashMap<u64, Waiting>>,
    /// What the acks say about the time for calls.
    grant: Grant,
    /// No more acks will come.
    broken: CancellationToken,
    /// The caller wants no more calls to begin.
    canceled: CancellationToken,
}

impl Conversation {
    pub(crate) fn new(out: Events) -> Arc<Self> {
        Arc::new(Self {
            out: AsyncMutex::new(Some((1, out))),
            waiting: Mutex::default(),
            grant: Grant::until(Instant::now()),
            broken: CancellationToken::new(),
            canceled: CancellationToken::new(),
        })
    }

    /// Reads messages of the caller until the stream ends, which breaks the conversation.
    pub(crate) async fn listen(&self, mut requests: impl Stream<Item = Result<ApplyRequest, Status>> + Unpin) {
        while let Some(request) = requests.next().await {
            match request.map(|request| request.message) {
                Ok(Some(apply_request::Message::Ack(ack))) => {
                    let waiter = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&ack.sequence);
                    if let Some(Waiting { sent, acked }) = waiter {
                        // The caller counts from when it answered, which is later.
                        self.grant.extend(sent + Duration::from_millis(ack.lease_millis.into()));
                        // The sender may have given up.
                        let _ = acked.send(());
                    }
                }
                Ok(Some(apply_request::Message::Cancel(_))) => self.canceled.cancel(),
                Ok(Some(apply_request::Message::Start(_)) | None) => {
                    tracing::warn!("unexpected message in the apply stream; send an ack or a cancel");
                    break;
                }
                Err(status) => {
                    tracing::debug!(%status, "the stream broke");
                    break;
                }
            }
        }
        self.broken.cancel();
    }

    /// Sends an event that needs no ack.
    pub(crate) async fn tell(&self, event: Event) -> Result<(), Broken> {
        self.send(event, None).await
    }

    /// Sends an event, and waits until the caller has stored it.
    pub(crate) async fn ask(&self, event: Event) -> Result<(), Broken> {
        let (acked, ack) = oneshot::channel();
        self.send(event, Some(acked)).await?;
        match self.broken.run_until_cancelled(ack).await {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) | None => Err(Broken),
        }
    }

    /// Asks for time for calls. No call may begin before this completes.
    pub(crate) async fn begin(&self, instance: &str) -> Result<(), Broken> {
        self.ask(Event::Heartbeat(HeartbeatEvent { instance: instance.to_owned() })).await
    }

    /// Asks for more time periodically, until the conversation is broken.
    pub(crate) async fn go_on(&self, instance: &str) {
        let mut ticks = tokio::time::interval(HEARTBEAT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first is at once, and the conversation has just begun.
        ticks.tick().await;
        loop {
            ticks.tick().await;
            // A later answer counts when it comes.
            if let Ok(Err(Broken)) = tokio::time::timeout(HEARTBEAT, self.begin(instance)).await {
                return;
            }
        }
    }

    /// Until when calls may be under way.
    pub(crate) fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Ends the conversation, with a last event or an error. The stream ends too, though the caller
    /// may still be talking.
    pub(crate) async fn end(&self, last: Result<Event, Status>) {
        let Some((sequence, out)) = self.out.lock().await.take() else { return };
        let last = last.map(|event| ApplyEvent { sequence, event: Some(event) });
        // Nobody listens to a broken stream.
        let _ = self.broken.run_until_cancelled(out.send(last)).await;
    }

    /// Set when no more acks can come.
    pub(crate) fn broken(&self) -> &CancellationToken {
        &self.broken
    }

    /// Set when the caller cancels.
    pub(crate) fn canceled(&self) -> &CancellationToken {
        &self.canceled
    }

    /// Sends an event. When this future is dropped, the event was sent with its number, or has none.
    async fn send(&self, event: Event, acked: Option<oneshot::Sender<()>>) -> Result<(), Broken> {
        let mut open = self.out.lock().await;
        let Some((next, out)) = open.as_mut() else { return Err(Broken) };
        // A caller that reads no events delays this; one that left does not.
        let Some(Ok(place)) = self.broken.run_until_cancelled(out.reserve()).await else {
            self.broken.cancel();
            return Err(Broken);
        };
        let sequence = *next;
        *next += 1;
        if let Some(acked) = acked {
            // Before it is sent, since the ack may be faster than this task.
            let waiting = Waiting { sent: Instant::now(), acked };
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(sequence, waiting);
        }
        place.send(Ok(ApplyEvent { sequence, event: Some(event) }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stoa_proto::{Ack, Cancel, HealthEvent, IntentEvent};
    use tokio_stream::wrappers::ReceiverStream;

    use super::*;

    type Requests = mpsc::Sender<Result<ApplyRequest, Status>>;

    fn start() -> (Arc<Conversation>, Requests, mpsc::Receiver<Result<ApplyEvent, Status>>) {
        let (out, events) = mpsc::channel(16);
        let (requests, incoming) = mpsc::channel(16);
        let conversation = Conversation::new(out);
        let listener = Arc::clone(&conversation);
        tokio::spawn(async move { listener.listen(ReceiverStream::new(incoming)).await });
        (conversation, requests, events)
    }

    fn message(message: apply_request::Message) -> Result<ApplyRequest, Status> {
        Ok(ApplyRequest { message: Some(message) })
    }

    #[tokio::test]
    async fn intent_waits_for_its_own_ack() {
        let (conversation, requests, mut events) = start();
        let first = tokio::spawn({
            let conversation = Arc::clone(&conversation);
            async move { conversation.ask(Event::Intent(IntentEvent::default())).await }
        });
        assert_eq!(events.recv().await.unwrap().unwrap().sequence, 1);
        conversation.tell(Event::Health(HealthEvent::default())).await.unwrap();
        assert_eq!(events.recv().await.unwrap().unwrap().sequence, 2);
        requests.send(message(apply_request::Message::Ack(Ack { sequence: 7, lease_millis: 0 }))).await.unwrap();
        requests.send(message(apply_request::Message::Cancel(Cancel {}))).await.unwrap();
        conversation.canceled().cancelled().await;
        assert!(!first.is_finished(), "only its own ack lets it go on");
        requests.send(message(apply_request::Message::Ack(Ack { sequence: 1, lease_millis: 0 }))).await.unwrap();
        assert_eq!(first.await.unwrap(), Ok(()));
    }

    #[tokio::test]
    async fn end_of_the_stream_ends_every_wait() {
        let (conversation, requests, mut events) = start();
        let waiting = tokio::spawn({
            let conversation = Arc::clone(&conversation);
            async move { conversation.ask(Event::Intent(IntentEvent::default())).await }
        });
        events.recv().await.unwrap().unwrap();
        drop(requests);
        assert_eq!(waiting.await.unwrap(), Err(Broken));
        assert!(conversation.broken().is_cancelled());
        assert_eq!(conversation.ask(Event::Intent(IntentEvent::default())).await, Err(Broken));
    }

    #[tokio::test]
    async fn stream_ends_after_the_last_event() {
        let (conversation, _requests, mut events) = start();
        conversation.end(Ok(Event::Health(HealthEvent::default()))).await;
        assert_eq!(events.recv().await.unwrap().unwrap().sequence, 1);
        assert!(events.recv().await.is_none());
        assert_eq!(conversation.tell(Event::Health(HealthEvent::default())).await, Err(Broken));
    }

    #[tokio::test]
    async fn second_start_breaks_the_conversation() {
        let (conversation, requests, _events) = start();
        requests.send(message(apply_request::Message::Start(stoa_proto::ApplyStart::default()))).await.unwrap();
        conversation.broken().cancelled().await;
    }

    #[tokio::test(start_paused = true)]
    async fn granted_time_counts_from_the_event() {
        let (conversation, requests, mut events) = start();
        let beginning = tokio::spawn({
            let conversation = Arc::clone(&conversation);
            async move { conversation.begin("one").await }
        });
        let sent = Instant::now();
        let first = events.recv().await.unwrap().unwrap();
        assert_eq!(first.event, Some(Event::Heartbeat(HeartbeatEvent { instance: "one".to_owned() })));
        // The answer takes four seconds, and says six.
        tokio::time::sleep(Duration::from_secs(4)).await;
        let ack = Ack { sequence: first.sequence, lease_millis: 6_000 };
        requests.send(message(apply_request::Message::Ack(ack))).await.unwrap();
        beginning.await.unwrap().unwrap();
        conversation.grant().check().unwrap();
        conversation.grant().during(std::future::pending::<()>()).await.unwrap_err();
        assert_eq!(sent.elapsed(), Duration::from_secs(6));
    }

    #[tokio::test(start_paused = true)]
    async fn silent_caller_is_asked_for_more_time() {
        let (conversation, requests, mut events) = start();
        let start = Instant::now();
        let asking = tokio::spawn({
            let conversation = Arc::clone(&conversation);
            async move { conversation.go_on("one").await }
        });
        let mut asked = Vec::new();
        for sequence in 1..=4 {
            assert_eq!(events.recv().await.unwrap().unwrap().sequence, sequence);
            asked.push(start.elapsed().as_secs());
        }
        assert_eq!(asked, [2, 4, 6, 8]);
        // The first answer comes late, and counts from long ago; a later one does more.
        let ack = |sequence| message(apply_request::Message::Ack(Ack { sequence, lease_millis: 6_000 }));
        requests.send(ack(1)).await.unwrap();
        requests.send(ack(4)).await.unwrap();
        requests.send(ack(2)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        conversation.grant().during(std::future::pending::<()>()).await.unwrap_err();
        assert_eq!(start.elapsed(), Duration::from_secs(14));
        drop(requests);
        asking.await.unwrap();
    }
}
