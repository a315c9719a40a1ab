//! The body of an answer on its way out: counted, and ended by its deadline or with the server.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use stoa_registry::stream_timers::StreamTimers;
use tokio::{
    sync::oneshot,
    time::{Sleep, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{filters::deadline, record::Record, write_buffer::LongAnswer};
use crate::http::Body;

/// A body of a known size up to that is handed to the connection whole, and nobody waits for its end.
const SHORT: u64 = 64 * 1024;

/// How many frames of a watch go out before its end is asked for.
const IN_A_ROW: u8 = 16;

/// Whether a body is handed to the connection whole.
pub(crate) fn is_short(body: &Body) -> bool {
    body.size_hint().exact().is_some_and(|size| size <= SHORT)
}

/// When a body must end, whatever there is still to say.
pub(crate) enum Ends {
    /// At this time, by breaking it off: the answer is incomplete and the client must see that. What is in memory
    /// already may still go.
    At(Instant),
    /// When the server shuts down, cleanly: a watch ends, and the client goes on elsewhere. What is in memory already is
    /// no watch, and goes to its end.
    With(CancellationToken, LongAnswer),
}

enum End {
    OfItself,
    At(Pin<Box<Sleep>>),
    With(StreamTimers<()>),
}

/// The last frame of an answer, or its end, until the request is recorded.
struct Last {
    frame: Option<Frame<Bytes>>,
    recorded: Pin<Box<dyn Future<Output = ()> + Send>>,
}

struct Outgoing {
    inner: Body,
    /// What is left of a frame that is longer than others.
    rest: Bytes,
    record: Record,
    end: End,
    /// What waits for the audit log, until `due` at most.
    last: Option<Last>,
    due: Option<Instant>,
    /// How many frames went out since the end was asked for.
    frames: u8,
    /// Keeps the share of the limit that a task of its own holds.
    alive: Option<oneshot::Sender<()>>,
    _long: Option<LongAnswer>,
}

/// Sends `inner`; the request lasts as long as this does.
pub(crate) fn outgoing(inner: Body, mut record: Record, ends: Ends) -> Body {
    let (mut alive, mut long) = (None, None);
    let due = match &ends {
        Ends::At(deadline) => Some(*deadline),
        Ends::With(..) => None,
    };
    let end = match ends {
        _ if is_short(&inner) => End::OfItself,
        Ends::At(deadline) => {
            // A body is asked for more only as fast as the client reads. One that has stopped reading must not keep
            // its share of the limit, so that share is held by a task of its own, which ends with the body or in time.
            if let Some(permit) = record.permit.take() {
                let (sender, gone) = oneshot::channel::<()>();
                alive = Some(sender);
                tokio::spawn(async move {
                    // Either way there is nothing to do but to let go.
                    let _ = timeout_at(deadline.into(), gone).await;
                    drop(permit);
                });
            }
            End::At(Box::pin(sleep_until(deadline.into())))
        }
        Ends::With(stop, answer) => {
            let timers = StreamTimers::new();
            timers.set(stop.cancelled_owned());
            long = Some(answer);
            End::With(timers)
        }
    };
    Outgoing { inner, rest: Bytes::new(), record, end, last: None, due, frames: 0, alive, _long: long }.boxed_unsync()
}

impl Outgoing {
    /// Whether to ask for the end before the next frame: a body with much to say must end, too. Of a watch it is enough to
    /// do that now and then, since an event is mostly followed by a pause.
    fn asks_first(&self) -> bool {
        match self.end {
            End::OfItself => false,
            End::At(_) => true,
            End::With(_) => self.frames >= IN_A_ROW,
        }
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.frames = 0;
        match &mut self.end {
            End::OfItself => Poll::Pending,
            End::With(stop) => stop.poll_next(context).map(|()| None),
            End::At(deadline) => deadline.as_mut().poll(context).map(|()| {
                self.record.terminated(deadline::timed_out().code());
                Some(Err(io::ErrorKind::TimedOut.into()))
            }),
        }
    }

    /// What comes next of the body, in pieces as a client takes them: what HTTP/2 has been handed it keeps until it is
    /// taken, though the answer is long over.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.inner).poll_frame(context)).transpose()?.map(Frame::into_data) {
                None => return Poll::Ready(None),
                Some(Err(other)) => return Poll::Ready(Some(Ok(other))),
                Some(Ok(data)) => self.rest = data,
            }
        }
        let length = self.rest.len().min(SHORT as usize);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn released(&mut self, frame: Option<Frame<Bytes>>) -> Option<io::Result<Frame<Bytes>>> {
        if self.is_end_stream() {
            // What is left to do is the connection's. HTTP/2 keeps this body until the client takes the last frame, which
            // it may never do, and nobody asks it for anything more.
            self.record.permit = None;
            self.alive = None;
        }
        frame.map(Ok)
    }
}

impl HttpBody for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let mut last = match self.last.take() {
            Some(last) => last,
            None => {
                if self.asks_first()
                    && let Poll::Ready(ended) = self.poll_end(context)
                {
                    return Poll::Ready(ended);
                }
                let Poll::Ready(frame) = self.poll_piece(context) else { return self.poll_end(context) };
                self.frames = self.frames.saturating_add(1);
                let frame = frame.transpose()?;
                if let Some(bytes) = frame.as_ref().and_then(Frame::data_ref) {
                    self.record.sent(bytes);
                }
                let is_last = frame.is_none() || self.is_end_stream();
                let recorded: Pin<Box<dyn Future<Output = ()> + Send>> = match self.record.ending.take_if(|_| is_last) {
                    Some(ending) => Box::pin(ending.finish().until(self.due)),
                    None => return Poll::Ready(self.released(frame)),
                };
                Last { frame, recorded }
            }
        };
        if last.recorded.as_mut().poll(context).is_pending() {
            self.last = Some(last);
            return Poll::Pending;
        }
        Poll::Ready(self.released(last.frame))
    }

    fn is_end_stream(&self) -> bool {
        self.last.is_none() && self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let last = self.last.as_ref().and_then(|last| last.frame.as_ref()?.data_ref()).map_or(0, Bytes::len);
        let (rest, mut hint) = ((self.rest.len() + last) as u64, self.inner.size_hint());
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}
