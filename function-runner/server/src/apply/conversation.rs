//! The two directions of an apply: events go out numbered, acks come in.
//!
//! **Invariant:** nothing waits for an ack that can no longer come: once the stream is broken every
//! wait ends with [`Broken`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use stoa_proto::apply_event::Event;
use stoa_proto::{ApplyEvent, ApplyRequest, apply_request};
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot};
use tokio_stream::{Stream, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// The caller is gone, or does not keep to the proto.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

type Events = mpsc::Sender<Result<ApplyEvent, Status>>;

/// One apply's stream.
#[derive(Debug)]
pub(crate) struct Conversation {
    /// The next sequence number, and where events go: held together, so that they arrive in order.
    /// Nothing after the last event.
    out: AsyncMutex<Option<(u64, Events)>>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<()>>>,
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
            broken: CancellationToken::new(),
            canceled: CancellationToken::new(),
        })
    }

    /// Hears the caller until the stream ends, which breaks the conversation.
    pub(crate) async fn listen(&self, mut requests: impl Stream<Item = Result<ApplyRequest, Status>> + Unpin) {
        while let Some(request) = requests.next().await {
            match request.map(|request| request.message) {
                Ok(Some(apply_request::Message::Ack(ack))) => {
                    let waiter = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&ack.sequence);
                    if let Some(waiter) = waiter {
                        // Whoever waited may have given up.
                        let _ = waiter.send(());
                    }
                }
                Ok(Some(apply_request::Message::Cancel(_))) => self.canceled.cancel(),
                Ok(Some(apply_request::Message::Start(_)) | None) => {
                    tracing::warn!("the caller sent what is no ack and no cancel");
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

    /// Sends an event that wants no ack.
    pub(crate) async fn tell(&self, event: Event) -> Result<(), Broken> {
        self.send(event, None).await
    }

    /// Sends an event and waits until the caller has made it durable.
    pub(crate) async fn ask(&self, event: Event) -> Result<(), Broken> {
        let (acked, ack) = oneshot::channel();
        self.send(event, Some(acked)).await?;
        match self.broken.run_until_cancelled(ack).await {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) | None => Err(Broken),
        }
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

    async fn send(&self, event: Event, acked: Option<oneshot::Sender<()>>) -> Result<(), Broken> {
        let mut open = self.out.lock().await;
        let Some((next, out)) = open.as_mut() else { return Err(Broken) };
        let sequence = *next;
        *next += 1;
        if let Some(acked) = acked {
            // Before it is sent, since the ack may be faster than this task.
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(sequence, acked);
        }
        let event = ApplyEvent { sequence, event: Some(event) };
        // A caller that reads no events holds this up; one that is gone does not.
        match self.broken.run_until_cancelled(out.send(Ok(event))).await {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) | None => {
                self.broken.cancel();
                Err(Broken)
            }
        }
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
    async fn an_intent_waits_for_its_own_ack() {
        let (conversation, requests, mut events) = start();
        let first = tokio::spawn({
            let conversation = Arc::clone(&conversation);
            async move { conversation.ask(Event::Intent(IntentEvent::default())).await }
        });
        assert_eq!(events.recv().await.unwrap().unwrap().sequence, 1);
        conversation.tell(Event::Health(HealthEvent::default())).await.unwrap();
        assert_eq!(events.recv().await.unwrap().unwrap().sequence, 2);
        requests.send(message(apply_request::Message::Ack(Ack { sequence: 7 }))).await.unwrap();
        requests.send(message(apply_request::Message::Cancel(Cancel {}))).await.unwrap();
        conversation.canceled().cancelled().await;
        assert!(!first.is_finished(), "only its own ack lets it go on");
        requests.send(message(apply_request::Message::Ack(Ack { sequence: 1 }))).await.unwrap();
        assert_eq!(first.await.unwrap(), Ok(()));
    }

    #[tokio::test]
    async fn the_end_of_the_stream_ends_every_wait() {
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
    async fn the_stream_ends_after_the_last_event_though_the_caller_holds_its_side_open() {
        let (conversation, _requests, mut events) = start();
        conversation.end(Ok(Event::Health(HealthEvent::default()))).await;
        assert_eq!(events.recv().await.unwrap().unwrap().sequence, 1);
        assert!(events.recv().await.is_none());
        assert_eq!(conversation.tell(Event::Health(HealthEvent::default())).await, Err(Broken));
    }

    #[tokio::test]
    async fn a_second_start_breaks_the_conversation() {
        let (conversation, requests, _events) = start();
        requests.send(message(apply_request::Message::Start(stoa_proto::ApplyStart::default()))).await.unwrap();
        conversation.broken().cancelled().await;
    }
}
