//! Events of the core group, as client-go's `record.EventRecorder` writes them.
//!
//! Recording never delays or fails its caller. Events go through a queue; the recorder logs and drops an Event
//! that it cannot write.

use std::{collections::HashMap, fmt, sync::Arc};

use async_trait::async_trait;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{Resource, ResourceExt};
use stoa_machinery::ApiError;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How many events may wait.
const QUEUE: usize = 1024;
/// How many events are remembered to count repetitions.
const REMEMBERED: usize = 4096;

/// Whether an event is good news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Progress or success.
    Normal,
    /// A failure, or a problem that somebody has to solve.
    Warning,
}

/// Writes Events, as client-go's `record.EventSink` does.
#[async_trait]
pub trait EventSink: fmt::Debug + Send + Sync + 'static {
    /// Writes an Event: a new one, or one that happened again and has a count.
    async fn record(&self, event: Event) -> Result<(), ApiError>;
}

/// Records Events.
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: mpsc::Sender<Occurrence>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Occurrence {
    object: Involved,
    kind: Kind,
    reason: String,
    message: String,
}

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Involved {
    /// Group and version.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// Its namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid; empty when there is no such object.
    pub uid: String,
}

impl Recorder {
    /// Starts to record; what is queued when the token ends is still written.
    pub fn start(sink: Arc<dyn EventSink>, end: CancellationToken) -> Self {
        let (queue, occurrences) = mpsc::channel(QUEUE);
        tokio::spawn(write(sink, occurrences, end));
        Self { queue }
    }

    /// Tells what happened to an object. `reason` is one CamelCase word.
    pub fn record<K>(&self, object: &K, kind: Kind, reason: &str, message: impl Into<String>)
    where
        K: Resource<DynamicType = ()>,
    {
        let involved = Involved {
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
        };
        self.record_about(involved, kind, reason, message);
    }

    /// The same for an object that is at hand by its names only.
    pub fn record_about(&self, object: Involved, kind: Kind, reason: &str, message: impl Into<String>) {
        let occurrence = Occurrence { object, kind, reason: reason.to_owned(), message: message.into() };
        if let Err(error) = self.queue.try_send(occurrence) {
            tracing::warn!(%error, "an event is dropped");
        }
    }
}

async fn write(sink: Arc<dyn EventSink>, mut occurrences: mpsc::Receiver<Occurrence>, end: CancellationToken) {
    let mut seen: HashMap<Occurrence, Event> = HashMap::new();
    loop {
        let occurrence = tokio::select! {
            biased;
            next = occurrences.recv() => next,
            () = end.cancelled() => return,
        };
        let Some(occurrence) = occurrence else { return };
        let now = Time(jiff::Timestamp::now());
        let event = match seen.get(&occurrence) {
            Some(earlier) => {
                Event { count: earlier.count.map(|n| n + 1), last_timestamp: Some(now), ..earlier.clone() }
            }
            None => new_event(&occurrence, now),
        };
        match sink.record(event.clone()).await {
            Ok(()) => {
                if seen.len() >= REMEMBERED {
                    seen.clear();
                }
                seen.insert(occurrence, event);
            }
            Err(error) => {
                // The event may have been deleted, or its namespace; the next one starts anew.
                seen.remove(&occurrence);
                tracing::debug!(%error, reason = occurrence.reason, "an event is not written");
            }
        }
    }
}

fn new_event(occurrence: &Occurrence, now: Time) -> Event {
    let object = &occurrence.object;
    let namespace = if object.namespace.is_empty() { "default" } else { &object.namespace };
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{}", object.name, short_id())),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(object.api_version.clone()),
            kind: Some(object.kind.clone()),
            namespace: (!object.namespace.is_empty()).then(|| object.namespace.clone()),
            name: Some(object.name.clone()),
            uid: Some(object.uid.clone()),
            ..ObjectReference::default()
        },
        type_: Some(format!("{:?}", occurrence.kind)),
        reason: Some(occurrence.reason.clone()),
        message: Some(occurrence.message.chars().take(1024).collect()),
        source: Some(EventSource { component: Some("stoa".to_owned()), host: None }),
        reporting_component: Some("stoa".to_owned()),
        reporting_instance: Some(String::new()),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        count: Some(1),
        ..Event::default()
    }
}

/// Sixteen hexadecimal digits that no two events share.
fn short_id() -> String {
    uuid::Uuid::new_v4().simple().to_string()[..16].to_owned()
}
