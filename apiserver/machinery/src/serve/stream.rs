//! The body of an answer on its way out: counted, ended in time, and ended when the server ends.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::{
    sync::oneshot,
    time::{Sleep, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{deadline, gather::LongAnswer, metrics::Record};
use crate::{alarms::Alarms, http::Body};

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
    With(Alarms<()>),
}

struct Outgoing {
    inner: Body,
    record: Record,
    end: End,
    _alive: Option<oneshot::Sender<()>>,
    _long: Option<LongAnswer>,
}

/// Sends `inner`; the request lasts as long as this does.
pub(crate) fn outgoing(inner: Body, mut record: Record, ends: Ends) -> Body {
    let (mut alive, mut long) = (None, None);
    let end = match ends {
        _ if inner.size_hint().exact().is_some() => End::OfItself,
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
            let alarms = Alarms::new();
            alarms.set(stop.cancelled_owned());
            long = Some(answer);
            End::With(alarms)
        }
    };
    Outgoing { inner, record, end, _alive: alive, _long: long }.boxed_unsync()
}

impl HttpBody for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        // A body with much to say must end too, so this is asked first.
        let ended = match &mut self.end {
            End::OfItself => None,
            End::With(stop) => stop.poll_next(context).is_ready().then_some(None),
            End::At(deadline) => {
                let over = deadline.as_mut().poll(context).is_ready();
                over.then(|| Some(Err(io::ErrorKind::TimedOut.into())))
            }
        };
        if let Some(ended) = ended {
            if ended.is_some() {
                self.record.terminated(deadline::timed_out().code());
            }
            return Poll::Ready(ended);
        }
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(bytes) = frame.data_ref()
        {
            self.record.sent(bytes);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
