//! Room in memory for the large documents that clients ask for.
//!
//! Once it is decoded, compared and written anew a document takes some 15 times as many bytes as it has. So room for all that a
//! request needs is taken before any of it is read ([`take`]), and held until the answer is made. Answers have room apart from
//! that until they are sent, so that no slow client keeps a large document from being read. A namespace has half of each at
//! most, and so does what waits of it among all: no tenant alone keeps others from reading, while two that take all they may have
//! others wait for a few of theirs; and no number of them has the server run out of memory.
//!
//! What runs read and write has places of its own (`aside`).

use std::{
    collections::HashMap,
    io,
    pin::Pin,
    sync::{Arc, LazyLock, Weak},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use stoa_machinery::{ApiError, definition::SubresourceResponse};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use crate::aside::{SMALL, apart, joined};

/// How much there is, in MiB of documents: two of the largest Specs, which are compared.
const ALL: u32 = 128;
/// What each request counts at least, in MiB, so that a few threads are at it.
const LEAST: u32 = 16;
/// The same in bytes: with that a request begins that does not know yet how much there is to be read.
pub(crate) const FIRST: usize = LEAST as usize * MIB;
/// So many requests of one namespace wait. They are among those that the server works on at once.
const IN_LINE: usize = 32;
/// How long a request waits.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long the answer is in memory for a client that does not take it, as long as any request may take.
const SENDING: Duration = Duration::from_secs(60);
/// How much there is for answers that are being sent, in their own bytes, for each byte of documents that may be read.
const ANSWERS: u32 = 4;
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

/// The room that there is, in MiB of documents; who comes first gets it first.
struct Rooms {
    all: u32,
    least: u32,
    free: Arc<Semaphore>,
    /// For answers that are being sent, in MiB of their own.
    answers: Arc<Semaphore>,
    /// Of the namespaces that have some or wait for it.
    shares: Mutex<HashMap<String, Weak<Share>>>,
}

/// What a namespace may have.
#[derive(Debug)]
struct Share {
    free: Arc<Semaphore>,
    answers: Arc<Semaphore>,
    /// So much there is for its answers, in MiB.
    most: u32,
    line: Semaphore,
}

/// Room for the documents of one request, until it is dropped.
#[derive(Debug)]
pub(crate) struct Room(Option<Held>);

#[derive(Debug)]
struct Held {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
    /// For answers, of all namespaces.
    answers: Arc<Semaphore>,
    /// It is the namespace's as long as anything of it is held.
    share: Arc<Share>,
}

/// Room for an answer that is being sent.
#[derive(Debug)]
struct Kept {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
    _share: Arc<Share>,
}

impl Rooms {
    fn new(all: u32, least: u32) -> Self {
        let [free, answers] = [all, all * ANSWERS].map(|most| Arc::new(Semaphore::new(most as usize)));
        Self { all, least, free, answers, shares: Mutex::default() }
    }

    fn share(&self, namespace: &str) -> Arc<Share> {
        let mut shares = self.shares.lock();
        shares.retain(|_, share| share.strong_count() > 0);
        shares.get(namespace).and_then(Weak::upgrade).unwrap_or_else(|| {
            let most = self.all * ANSWERS / 2;
            let [free, answers] = [self.all / 2, most].map(|most| Arc::new(Semaphore::new(most as usize)));
            let share = Arc::new(Share { free, answers, most, line: Semaphore::new(IN_LINE) });
            shares.insert(namespace.to_owned(), Arc::downgrade(&share));
            share
        })
    }

    async fn take(&self, namespace: &str, bytes: usize) -> Result<Room, ApiError> {
        if bytes < SMALL {
            return Ok(Room(None));
        }
        let weight = u32::try_from(bytes.div_ceil(MIB)).unwrap_or(u32::MAX).clamp(self.least, self.all);
        let share = self.share(namespace);
        let _in_line = share.line.try_acquire().map_err(|_| full())?;
        let waiting = async {
            // Among its own first, so that no more of a namespace waits among all than its share. One request may need more than
            // that: it is the only one of its namespace then, and waits for the others' room.
            let own = Arc::clone(&share.free).acquire_many_owned(weight.min(self.all / 2)).await;
            let own = own.expect("nobody closes it");
            let all = Arc::clone(&self.free).acquire_many_owned(weight).await.expect("nobody closes it");
            Held { _own: own, _all: all, answers: self.answers.clone(), share: share.clone() }
        };
        timeout(PATIENCE, waiting).await.map(|held| Room(Some(held))).map_err(|_| full())
    }
}

impl Held {
    /// Gives all back for room in which an answer of so many bytes is until it is sent. One that is larger than all that a
    /// namespace may have takes that.
    ///
    /// # Errors
    ///
    /// 429 where there is none: those that wait to read are not to wait for clients as well.
    fn keep(self, bytes: usize) -> Result<Kept, ApiError> {
        let weight = u32::try_from(bytes.div_ceil(MIB)).unwrap_or(u32::MAX).min(self.share.most);
        let acquire = |of: &Arc<Semaphore>| Arc::clone(of).try_acquire_many_owned(weight).map_err(|_| full());
        Ok(Kept { _own: acquire(&self.share.answers)?, _all: acquire(&self.answers)?, _share: self.share })
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
    _kept: Kept,
}

impl Sending {
    fn new(bytes: Bytes, kept: Kept) -> Self {
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
