//! Watches: a body of frames, one JSON document per line, each sent at once.

use std::{
    cell::RefCell,
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
use serde_json::{Map, Value};
use stoa_meta::{
    definition::ResourceDefinition,
    status::{self, ApiError},
};
use stoa_registry::registry::{Event, Stored};

use super::{
    body::Body,
    render::{self, Bookmark, Form},
};

/// The shortest time that a watch lasts when the client does not say; the longest is twice as much, and
/// chance decides, so that clients that came together do not come back together.
const MIN_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// How many bytes of events that are ready at once go into one frame of the connection.
const FRAME_BYTES: usize = 64 * 1024;

/// At least as many bytes as stand around an object in an event.
const FRAMING: usize = 64;

pub(crate) fn random_timeout() -> Duration {
    MIN_TIMEOUT.mul_f64(1.0 + rand::random::<f64>())
}

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
        let mut lines = Lines::default();
        while lines.len() < FRAME_BYTES {
            match events.as_mut().poll_next(cx) {
                Poll::Pending if lines.is_empty() => return Poll::Pending,
                Poll::Pending => break,
                Poll::Ready(Some(event)) if this.encoder.tells(&event) => {
                    lines.push(&mut this.encoder, &event);
                    if matches!(event, Event::Error(_)) {
                        this.events = None;
                        break;
                    }
                }
                Poll::Ready(_) => {
                    this.events = None;
                    break;
                }
            }
        }
        Poll::Ready((!lines.is_empty()).then(|| Ok(Frame::data(lines.into_bytes()))))
    }

    fn is_end_stream(&self) -> bool {
        self.events.is_none()
    }
}

/// The lines of a frame. Most have one, which others who watch the same are told, too.
#[derive(Default)]
struct Lines {
    first: Bytes,
    /// All of them, where there are more.
    all: Vec<u8>,
}

impl Lines {
    fn len(&self) -> usize {
        self.first.len().max(self.all.len())
    }

    fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    fn push(&mut self, encoder: &mut Encoder, event: &Event) {
        if self.first.is_empty() {
            self.first = encoder.line(event);
            return;
        }
        if self.all.is_empty() {
            self.all.extend_from_slice(&self.first);
        }
        encoder.write(&mut self.all, event);
    }

    fn into_bytes(self) -> Bytes {
        if self.all.is_empty() { self.first } else { self.all.into() }
    }
}

thread_local! {
    /// What was said last: an event goes to all who watch it one after the other, so that most find it here, and in the
    /// processor's cache.
    static LAST: RefCell<Option<Said>> = const { RefCell::new(None) };
}

/// A line that says the same to everybody.
struct Said {
    kind: &'static str,
    stored: Arc<Stored>,
    definition: Arc<ResourceDefinition>,
    form: Form,
    line: Bytes,
}

pub(crate) struct Encoder {
    definition: Arc<ResourceDefinition>,
    /// What a bookmark's object has besides its metadata.
    zero: Arc<Map<String, Value>>,
    form: Form,
    /// Tells what ages are counted to. A watch lasts, so each event is told its own time.
    now: fn() -> Timestamp,
    /// Whether a table has to tell its columns still: only the first event does.
    headers: bool,
}

impl Encoder {
    /// Begins a watch in a form. Bookmarks have `zero` besides their metadata.
    pub(crate) fn new(
        definition: Arc<ResourceDefinition>,
        zero: Arc<Map<String, Value>>,
        form: Form,
        now: fn() -> Timestamp,
    ) -> Self {
        Self { definition, zero, form, now, headers: true }
    }

    /// Whether there is a way to tell of an event. One object is no list, and upstream ends a watch that asks for one with its
    /// first event, unless that is an error.
    pub(crate) fn tells(&self, event: &Event) -> bool {
        !matches!(self.form, Form::PartialList(_)) || matches!(event, Event::Error(_))
    }

    /// An event and a line's end, encoded once for all watches that say it alike.
    fn line(&mut self, event: &Event) -> Bytes {
        let stored = match event {
            // Ages in a table change from one moment to the next.
            Event::Added(stored) | Event::Modified(stored) | Event::Deleted(stored)
                if !matches!(self.form, Form::Table(_)) =>
            {
                stored
            }
            _ => return self.encode(event),
        };
        LAST.with_borrow_mut(|last| {
            let (kind, definition, form) = (kind(event), &self.definition, self.form);
            if let Some(said) = last
                && Arc::ptr_eq(&said.stored, stored)
                && Arc::ptr_eq(&said.definition, definition)
                && (said.kind, said.form) == (kind, form)
            {
                return said.line.clone();
            }
            let (stored, definition, line) = (stored.clone(), definition.clone(), self.encode(event));
            *last = Some(Said { kind, stored, definition, form, line: line.clone() });
            line
        })
    }

    fn encode(&mut self, event: &Event) -> Bytes {
        let mut line = Vec::new();
        self.write(&mut line, event);
        line.into()
    }

    pub(crate) fn write(&mut self, out: &mut Vec<u8>, event: &Event) {
        if let Event::Added(stored) | Event::Modified(stored) | Event::Deleted(stored) = event {
            out.reserve(FRAMING + stored.encoded().len());
        }
        for part in [r#"{"type":""#, kind(event), r#"","object":"#] {
            out.extend_from_slice(part.as_bytes());
        }
        let headers = std::mem::replace(&mut self.headers, false);
        match event {
            Event::Added(stored) | Event::Modified(stored) | Event::Deleted(stored) => {
                let form = self.form.at(self.now);
                render::write_object(out, &self.definition, form, stored, headers);
            }
            &Event::Bookmark { version, initial_events_end } => {
                let bookmark = Bookmark { version, initial_events_end, zero: &self.zero };
                render::write_bookmark(out, &self.definition, self.form, &bookmark, headers);
            }
            Event::Error(error) => write_status(out, error),
        }
        out.extend_from_slice(b"}\n");
    }
}

fn kind(event: &Event) -> &'static str {
    match event {
        Event::Added(_) => "ADDED",
        Event::Modified(_) => "MODIFIED",
        Event::Deleted(_) => "DELETED",
        Event::Bookmark { .. } => "BOOKMARK",
        Event::Error(_) => "ERROR",
    }
}

fn write_status(out: &mut Vec<u8>, error: &ApiError) {
    out.extend_from_slice(&status::encode(&error.0));
}
