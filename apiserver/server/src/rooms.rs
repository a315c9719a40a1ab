//! Room in memory for the large documents that clients ask for.
//!
//! Once it is decoded, compared and written anew a document takes some 15 times as many bytes as it has. So room for all that a
//! request needs is taken before any of it is read ([`take`]), and held until the answer is made, some seconds as a rule. Answers
//! have room apart from that until they are sent, so that no slow client keeps a large document from being read. Namespaces share
//! both ([`stoa_shares`]): no tenant alone keeps others from reading, while a few that take all they may have others wait for one
//! of theirs each; and no number of them has the server run out of memory.
//!
//! What runs read and write has places of its own (`aside`).

use std::{
    io,
    pin::Pin,
    sync::{Arc, LazyLock},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use stoa_machinery::{ApiError, definition::SubresourceResponse};
use stoa_shares::{Most, Taken};
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::aside::{SMALL, apart, joined};

/// How much there is, in MiB of documents: two of the largest Specs, which are compared.
const ALL: usize = 128;
/// What each request counts at least, in MiB, so that a few threads are at it.
const LEAST: usize = 16;
/// The same in bytes: with that a request begins that does not know yet how much there is to be read.
pub(crate) const FIRST: usize = LEAST * MIB;
/// So many requests of one namespace wait. They are among those that the server works on at once.
const IN_LINE: usize = 32;
/// How long a request waits.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long the answer is in memory for a client that does not take it, as long as any request may take.
const SENDING: Duration = Duration::from_secs(60);
/// How much there is for answers that are being sent, in their own bytes, for each byte of documents that may be read.
const ANSWERS: usize = 4;
/// An answer is sent in pieces of so many bytes: what a connection has been handed it keeps, whatever becomes of the answer.
const PIECE: usize = 64 << 10;
const MIB: usize = 1 << 20;

static ROOMS: LazyLock<Rooms> = LazyLock::new(|| Rooms::new(ALL, LEAST));

/// Takes room for documents of a namespace that have so many bytes in all. Small ones take none.
///
/// # Errors
///
/// 429 where too many wait already, and after 15 s.
pub(crate) async fn take(namespace: &str, bytes: usize) -> Result<Room, ApiError> {
    ROOMS.take(namespace, bytes).await
}

/// The room that there is.
struct Rooms {
    /// What each request counts at least, in MiB.
    least: usize,
    /// In MiB of documents.
    documents: stoa_shares::Room,
    /// For answers that are being sent, in MiB of their own. How long that takes is up to clients.
    answers: stoa_shares::Room,
}

/// Room for the documents of one request, until it is dropped.
#[derive(Debug)]
pub(crate) struct Room(Option<Held>);

#[derive(Debug)]
struct Held {
    _taken: Taken,
    namespace: String,
    /// For answers, of all namespaces.
    answers: stoa_shares::Room,
}

impl Rooms {
    fn new(all: usize, least: usize) -> Self {
        let documents = stoa_shares::Room::new(all, Most::ThreeQuarters);
        Self { least, documents, answers: stoa_shares::Room::new(all * ANSWERS, Most::Half) }
    }

    /// One request may need more than a namespace may have: it is the only one of its namespace then.
    async fn take(&self, namespace: &str, bytes: usize) -> Result<Room, ApiError> {
        if bytes < SMALL {
            return Ok(Room(None));
        }
        if self.documents.waiting(namespace) >= IN_LINE {
            return Err(full());
        }
        let weight = bytes.div_ceil(MIB).clamp(self.least, self.documents.all());
        let taken = timeout(PATIENCE, self.documents.take(namespace, weight)).await.map_err(|_| full())?;
        Ok(Room(Some(Held { _taken: taken, namespace: namespace.to_owned(), answers: self.answers.clone() })))
    }
}

impl Held {
    /// Gives all back for room in which an answer of so many bytes is until it is sent. One that is larger than all that there
    /// is takes that.
    ///
    /// # Errors
    ///
    /// 429 where there is none: those that wait to read are not to wait for clients as well.
    fn keep(self, bytes: usize) -> Result<Taken, ApiError> {
        let weight = bytes.div_ceil(MIB).min(self.answers.all());
        self.answers.try_take(&self.namespace, weight).ok_or_else(full)
    }
}

fn full() -> ApiError {
    ApiError::too_many_requests("too many large documents are being read; try again", 1)
}

impl Room {
    /// Whether there is any.
    #[cfg(test)]
    pub(crate) fn is_taken(&self) -> bool {
        self.0.is_some()
    }

    /// Waits for what is read into the room. That goes on, and holds the room, when its caller is gone.
    pub(crate) async fn read<T: Send + 'static>(self, reading: impl Future<Output = T> + Send + 'static) -> (T, Self) {
        if self.0.is_none() {
            return (reading.await, self);
        }
        joined(tokio::spawn(async move { (reading.await, self) })).await
    }

    /// Does some work in the room without keeping a thread of the runtime for long. It goes on as well.
    pub(crate) async fn work<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> (T, Self) {
        if self.0.is_none() {
            return (work(), self);
        }
        apart(move || (work(), self)).await
    }

    /// The answer, which holds what it takes itself until it is sent. One that is not sent within a minute breaks off.
    ///
    /// # Errors
    ///
    /// 429 where too many answers are being sent.
    pub(crate) async fn until_sent(self, answer: SubresourceResponse) -> Result<SubresourceResponse, ApiError> {
        let Some(held) = self.0 else { return Ok(answer) };
        let (parts, body) = answer.into_parts();
        let bytes = body.collect().await.map_err(|error| ApiError::internal(error.to_string()))?.to_bytes();
        let kept = held.keep(bytes.len())?;
        Ok(SubresourceResponse::from_parts(parts, Sending::new(bytes, kept).boxed_unsync()))
    }
}

/// A body that is in memory until it is sent, and not for ever.
struct Sending {
    /// How many bytes are to be sent yet.
    length: usize,
    left: Arc<Mutex<Option<Left>>>,
    _end: AbortOnDropHandle<()>,
}

struct Left {
    bytes: Bytes,
    _kept: Taken,
}

impl Sending {
    fn new(bytes: Bytes, kept: Taken) -> Self {
        let length = bytes.len();
        let left = Arc::new(Mutex::new((length > 0).then_some(Left { bytes, _kept: kept })));
        // Nobody asks this for more on behalf of a client that takes nothing.
        let ending = left.clone();
        let end = tokio::spawn(async move {
            sleep(SENDING).await;
            ending.lock().take();
        });
        Self { length, left, _end: AbortOnDropHandle::new(end) }
    }
}

impl Body for Sending {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if self.length == 0 {
            return Poll::Ready(None);
        }
        let piece = {
            let mut left = self.left.lock();
            let Some(Left { bytes, .. }) = &mut *left else {
                return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
            };
            // A copy, or else the piece would keep the whole.
            let piece = Bytes::copy_from_slice(&bytes.split_to(bytes.len().min(PIECE)));
            if bytes.is_empty() {
                *left = None;
            }
            piece
        };
        self.length -= piece.len();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.length == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length as u64)
    }
}

#[cfg(test)]
mod tests;
