//! The memory budget for large documents that clients ask for.
//!
//! A decoded and compared document takes some 15 times as many bytes as it has. So a request takes memory for all that it
//! reads before it reads any of it ([`take`]), and holds it until the answer is made, some seconds as a rule. Answers have a budget
//! apart from that until they are sent, so that no slow client keeps a large document from being read. Namespaces share
//! both budgets ([`stoa_fairness`]).
//!
//! Documents that runs read and write have a budget of their own (`blocking`).

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
use stoa_fairness::{FairSemaphore, MaxShare, Permit};
use stoa_machinery::{ApiError, definition::SubresourceResponse};
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::blocking::{SMALL, joined, on_own_thread};

/// The budget, in MiB of documents: two of the largest Specs, which are compared.
const ALL: usize = 128;
/// The least that a request takes, in MiB, so that only a few threads work at once.
const LEAST: usize = 16;
/// The same in bytes: a request begins with that if it does not know yet how much it reads.
pub const FIRST: usize = LEAST * MIB;
/// How many requests of one namespace may wait. They count among the requests that the server works on at once.
const MAX_QUEUED: usize = 32;
/// How long a request waits for memory.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long an answer stays in memory for a client that does not take it, as long as any request may take.
const SENDING: Duration = Duration::from_secs(60);
/// The budget for answers that are being sent, in their own bytes, for each byte of documents that may be read.
const ANSWERS: usize = 4;
/// The size of the pieces in which an answer is sent, in bytes. A connection keeps every piece that it was handed.
const PIECE: usize = 64 << 10;
const MIB: usize = 1 << 20;

static BUDGET: LazyLock<Budget> = LazyLock::new(|| Budget::new(ALL, LEAST));

/// Takes memory for documents of a namespace that have so many bytes in all. Small documents take none.
///
/// # Errors
///
/// 429 if too many requests wait already, and after 15 s.
pub async fn take(namespace: &str, bytes: usize) -> Result<Memory, ApiError> {
    BUDGET.take(namespace, bytes).await
}

/// The memory for all requests.
struct Budget {
    /// The least that a request takes, in MiB.
    least: usize,
    /// In MiB of documents.
    documents: FairSemaphore,
    /// For answers that are being sent, in MiB of their own. Clients decide how long that takes.
    answers: FairSemaphore,
}

/// Memory for the documents of one request, until it is dropped.
#[derive(Debug)]
pub struct Memory(Option<Taken>);

#[derive(Debug)]
struct Taken {
    _permit: Permit,
    namespace: String,
    /// For answers, of all namespaces.
    answers: FairSemaphore,
}

impl Budget {
    fn new(all: usize, least: usize) -> Self {
        let [documents, answers] =
            [all, all * ANSWERS].map(|permits| FairSemaphore::new(permits, MaxShare::ThreeQuarters));
        Self { least, documents, answers }
    }

    /// One request may need more than the share of its namespace: it is the only one of its namespace then.
    async fn take(&self, namespace: &str, bytes: usize) -> Result<Memory, ApiError> {
        if bytes < SMALL {
            return Ok(Memory(None));
        }
        if self.documents.queued_by(namespace) >= MAX_QUEUED {
            return Err(full());
        }
        let weight = bytes.div_ceil(MIB).max(self.least);
        let permit = timeout(PATIENCE, self.documents.acquire(namespace, weight)).await.map_err(|_| full())?;
        Ok(Memory(Some(Taken { _permit: permit, namespace: namespace.to_owned(), answers: self.answers.clone() })))
    }
}

impl Taken {
    /// Returns the memory, in exchange for memory for an answer of so many bytes until it is sent.
    ///
    /// # Errors
    ///
    /// 429 if there is none: requests that wait to read are not to wait for slow clients as well.
    fn exchange(self, bytes: usize) -> Result<Permit, ApiError> {
        self.answers.try_acquire(&self.namespace, bytes.div_ceil(MIB)).ok_or_else(full)
    }
}

fn full() -> ApiError {
    ApiError::too_many_requests("too many large documents are being read; try again", 1)
}

impl Memory {
    /// Whether it is more than none.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_taken(&self) -> bool {
        self.0.is_some()
    }

    /// Reads documents into the memory. The read goes on, and holds the memory, when its caller leaves.
    pub async fn read<T: Send + 'static>(self, reading: impl Future<Output = T> + Send + 'static) -> (T, Self) {
        if self.0.is_none() {
            return (reading.await, self);
        }
        joined(tokio::spawn(async move { (reading.await, self) })).await
    }

    /// Works on documents in the memory on a thread of its own. The work goes on as well when its caller leaves.
    pub async fn work<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> (T, Self) {
        if self.0.is_none() {
            return (work(), self);
        }
        on_own_thread(move || (work(), self)).await
    }

    /// The answer, which holds the memory that it takes itself until it is sent. An answer that is not sent within a minute breaks
    /// off.
    ///
    /// # Errors
    ///
    /// 429 if too many answers are being sent.
    pub async fn until_sent(self, answer: SubresourceResponse) -> Result<SubresourceResponse, ApiError> {
        let Some(taken) = self.0 else { return Ok(answer) };
        let (parts, body) = answer.into_parts();
        let bytes = body.collect().await.map_err(|error| ApiError::internal(error.to_string()))?.to_bytes();
        let permit = taken.exchange(bytes.len())?;
        Ok(SubresourceResponse::from_parts(parts, Sending::new(bytes, permit).boxed_unsync()))
    }
}

/// A body that is in memory until it is sent or times out.
struct Sending {
    /// How many bytes are still to be sent.
    length: usize,
    left: Arc<Mutex<Option<Remainder>>>,
    _end: AbortOnDropHandle<()>,
}

struct Remainder {
    bytes: Bytes,
    _permit: Permit,
}

impl Sending {
    fn new(bytes: Bytes, permit: Permit) -> Self {
        let length = bytes.len();
        let left = Arc::new(Mutex::new((length > 0).then_some(Remainder { bytes, _permit: permit })));
        // Nobody polls this body on behalf of a client that takes nothing.
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
            let Some(Remainder { bytes, .. }) = &mut *left else {
                return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
            };
            // A copy, since a slice would keep the whole answer.
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
