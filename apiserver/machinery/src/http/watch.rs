//! Watches: a body of frames, one JSON document per line, each sent as soon as it is known.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use http_body_util::BodyExt;
use hyper::body::Frame;
use jiff::Timestamp;

use super::{
    body::Body,
    render::{self, Form},
};
use crate::{definition::ResourceDefinition, registry::Event, status::ApiError};

/// The shortest time that a watch lasts when the client does not say; the longest is twice as much, and
/// chance decides, so that clients that came together do not come back together.
const MIN_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// How many bytes of events that are ready at once go into one frame of the connection.
const FRAME_BYTES: usize = 64 * 1024;

/// At least as many bytes as stand around an object in an event.
const FRAMING: usize = 64;

/// How long a watch lasts when the client does not say.
pub(crate) fn random_timeout() -> Duration {
    MIN_TIMEOUT.mul_f64(1.0 + rand::random::<f64>())
}

/// The body of a watch: ends cleanly with its events, and after an error.
pub(crate) fn body(encoder: Encoder, events: BoxStream<'static, Event>) -> Body {
    Watch { events: Some(events), encoder }.boxed_unsync()
}

struct Watch {
    /// What is watched; nothing once it is over.
    events: Option<BoxStream<'static, Event>>,
    encoder: Encoder,
}

impl hyper::body::Body for Watch {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        let Some(events) = &mut this.events else { return Poll::Ready(None) };
        let mut out = Vec::new();
        while out.len() < FRAME_BYTES {
            match events.as_mut().poll_next(cx) {
                Poll::Pending => break,
                Poll::Ready(Some(event)) => {
                    let last = matches!(event, Event::Error(_));
                    this.encoder.write(&mut out, &event);
                    if last {
                        this.events = None;
                        break;
                    }
                }
                Poll::Ready(None) => {
                    this.events = None;
                    break;
                }
            }
        }
        match (out.is_empty(), &this.events) {
            (false, _) => Poll::Ready(Some(Ok(Frame::data(out.into())))),
            (true, None) => Poll::Ready(None),
            (true, Some(_)) => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.events.is_none()
    }
}

/// Turns events into frames.
pub(crate) struct Encoder {
    definition: Arc<ResourceDefinition>,
    form: Form,
    /// Tells what ages are counted to. A watch lasts, so each event is told its own time.
    now: fn() -> Timestamp,
    /// Whether a table has to tell its columns still: only the first event does.
    headers: bool,
}

impl Encoder {
    /// Begins a watch in a form.
    pub(crate) fn new(definition: Arc<ResourceDefinition>, form: Form, now: fn() -> Timestamp) -> Self {
        Self { definition, form, now, headers: true }
    }

    /// Appends an event and a line's end.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>, event: &Event) {
        let kind = match event {
            Event::Added(_) => "ADDED",
            Event::Modified(_) => "MODIFIED",
            Event::Deleted(_) => "DELETED",
            Event::Bookmark { .. } => "BOOKMARK",
            Event::Error(_) => "ERROR",
        };
        if let Event::Added(stored) | Event::Modified(stored) | Event::Deleted(stored) = event {
            out.reserve(FRAMING + stored.encoded().len());
        }
        for part in [r#"{"type":""#, kind, r#"","object":"#] {
            out.extend_from_slice(part.as_bytes());
        }
        let headers = std::mem::replace(&mut self.headers, false);
        match event {
            Event::Added(stored) | Event::Modified(stored) | Event::Deleted(stored) => {
                let form = self.form.at(self.now);
                render::write_object(out, &self.definition, form, stored, headers);
            }
            Event::Bookmark { version, initial_events_end } => {
                render::write_bookmark(out, &self.definition, self.form, *version, *initial_events_end, headers);
            }
            Event::Error(error) => write_status(out, error),
        }
        out.extend_from_slice(b"}\n");
    }
}

fn write_status(out: &mut Vec<u8>, error: &ApiError) {
    serde_json::to_writer(out, &error.0).expect("a Status serializes");
}
