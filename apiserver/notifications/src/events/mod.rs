//! Events of objects: each follows from one write of an object and from the version before it.
//!
//! Each kind is one module with an `ObjectEvents`. The state of an object has *marks*: what happened to it according
//! to its own fields, such as that a Run began and that it failed. A write causes the events of the marks that
//! the object has after it and had not before. The events of a record therefore follow from the log alone. The
//! id of an event follows from the object and the mark, and is the same on every repeat.
//!
//! Another kind is a module with an `ObjectEvents`, a line in `ALL`, and its types in the value of the kind
//! (`stoa_kinds::kind::Kind::events`).

mod releases;
mod runs;
mod stacks;
mod workflows;
mod workspaces;

use std::{borrow::Cow, fmt, marker::PhantomData, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use stoa_controller::object::Kind;
use stoa_engine::digest::hex;
use stoa_kinds::{lookup::Lookup, text::cut};
use stoa_machinery::{
    ApiError, Version,
    registry::{ListOptions, Store, is_undecodable},
};
use stoa_types::{Condition, Release, Run, Stack, Workflow, Workspace, labels};

/// The most characters of a message.
const MESSAGE: usize = 1024;

/// Everything that is told of.
static ALL: [&dyn Watched; 5] = [
    &Of::<Run>(PhantomData),
    &Of::<Release>(PhantomData),
    &Of::<Stack>(PhantomData),
    &Of::<Workflow>(PhantomData),
    &Of::<Workspace>(PhantomData),
];

/// That history was gone before a sink was told of it. Every sink is told of its own.
pub(super) const GAP: &str = "dev.stoa.notificationsink.gap";

/// The kind whose objects are at a key.
pub(crate) fn of_key(key: &str) -> Option<&'static dyn Watched> {
    let (group, rest) = key.strip_prefix("/registry/")?.split_once('/')?;
    let (plural, _) = rest.split_once('/')?;
    ALL.into_iter().find(|kind| kind.resource() == (group.into(), plural.into()))
}

/// All kinds.
pub(crate) fn kinds() -> impl Iterator<Item = &'static dyn Watched> {
    ALL.into_iter()
}

/// An event as it is sent: a CloudEvent 1.0 in JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// `1.0`
    pub specversion: String,
    /// The same on every repeat, and no other event's.
    pub id: String,
    /// The API path of what it happened in: an organization, or the platform.
    pub source: String,
    /// The type, such as `dev.stoa.run.failed`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// The object, as kubectl names it: `runs/web-dev-x7k2p`.
    pub subject: String,
    /// When it happened.
    pub time: Timestamp,
    /// `application/json`
    pub datacontenttype: String,
    /// Names, phases, digests, counts, reasons and messages, as the object has them, and where to read on. Sensitive values are
    /// masked in objects.
    pub data: Value,
}

/// An event and whom it is for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Happened {
    pub(crate) event: Event,
    /// What events of the same lane are about; they are delivered one after the other.
    pub(crate) lane: String,
    pub(crate) scope: Scope,
}

/// Where something happened; what is empty does not apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    pub(crate) organization: String,
    pub(crate) project: String,
    pub(crate) stack: String,
    pub(crate) workspaces: Vec<String>,
}

impl Scope {
    /// The scope of an object of a stack, in some workspaces. `project` is the label.
    fn of_stack(object: &impl kube::Resource, stack: &str, workspaces: Vec<String>) -> Self {
        Self {
            organization: object.namespace().unwrap_or_default(),
            project: object.labels().get(labels::PROJECT).cloned().unwrap_or_default(),
            stack: stack.to_owned(),
            workspaces,
        }
    }
}

/// Something that has happened to an object.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    event_type: &'static str,
    /// Which time, of what may happen more than once; otherwise empty.
    which: String,
    /// When, if the object says.
    time: Option<Timestamp>,
    /// What must have been before, where it is no news otherwise.
    only_after: Option<&'static str>,
}

impl Mark {
    fn new(event_type: &'static str, time: Option<&Time>) -> Self {
        Self { event_type, which: String::new(), time: time.map(|Time(time)| *time), only_after: None }
    }

    /// The last change of a condition, which changes several times.
    fn since(event_type: &'static str, condition: &Condition) -> Self {
        let since = &condition.last_transition_time;
        Self::new(event_type, Some(since)).which(since.0.to_string())
    }

    /// One of several times.
    fn which(mut self, which: impl Into<String>) -> Self {
        self.which = which.into();
        self
    }

    fn only_after(mut self, event_type: &'static str) -> Self {
        self.only_after = Some(event_type);
        self
    }
}

/// A kind with events.
trait ObjectEvents: Kind + Sync {
    fn scope(&self) -> Scope;
    /// In the order in which they happen.
    fn marks(&self) -> Vec<Mark>;
    /// What is said of the object besides its names.
    fn data(&self) -> Value;

    /// The command that shows a person more; `path` is that of the object in the API.
    fn command(&self, _path: &str) -> String {
        let within = self.namespace().map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
        format!("kubectl describe {} {}{within}", Self::kind(&()).to_lowercase(), self.name_any())
    }
}

/// The message of a condition, which an object may keep longer than a person reads.
fn message(condition: &Condition) -> String {
    cut(&condition.message, MESSAGE)
}

/// The command that shows a document of an object.
fn get_raw(path: &str) -> String {
    format!("kubectl get --raw \"{path}\"")
}

/// An object's state, as far as it is told of.
#[derive(Debug)]
pub(crate) struct State {
    uid: String,
    marks: Vec<Mark>,
    scope: Scope,
    lane: String,
    source: String,
    subject: String,
    data: Value,
}

/// What an object had been through: by this alone it is known what is new.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    uid: String,
    marks: Vec<(&'static str, String)>,
}

impl State {
    /// Whether there is anything that could be told.
    pub(super) fn has_marks(&self) -> bool {
        !self.marks.is_empty()
    }

    /// What is to be remembered of it.
    pub(crate) fn known(&self) -> Known {
        Known {
            uid: self.uid.clone(),
            marks: self.marks.iter().map(|mark| (mark.event_type, mark.which.clone())).collect(),
        }
    }

    /// The events that led here from what was known. `written` is when the object was written.
    pub(crate) fn events(&self, before: &Known, written: Timestamp, prefix: &str) -> Vec<Happened> {
        // Another object of the same name has been through nothing.
        let before: &[_] = if before.uid == self.uid { &before.marks } else { &[] };
        let is_new = |mark: &&Mark| {
            let is_known = before.iter().any(|(known, which)| *known == mark.event_type && *which == mark.which);
            let follows = mark.only_after.is_none_or(|after| before.iter().any(|(known, _)| *known == after));
            !is_known && follows
        };
        self.marks.iter().filter(is_new).map(|mark| self.event(mark, written, prefix)).collect()
    }

    fn event(&self, mark: &Mark, written: Timestamp, prefix: &str) -> Happened {
        let event = Event {
            specversion: "1.0".to_owned(),
            id: id(&[&self.uid, mark.event_type, &mark.which]),
            source: format!("{prefix}{}", self.source),
            event_type: mark.event_type.to_owned(),
            subject: self.subject.clone(),
            time: mark.time.unwrap_or(written),
            datacontenttype: "application/json".to_owned(),
            data: self.data.clone(),
        };
        Happened { event, lane: self.lane.clone(), scope: self.scope.clone() }
    }
}

/// The event that tells a sink that history is gone.
pub(super) fn gap(sink: (&str, &str), from: Version, to: Version, time: Timestamp, prefix: &str) -> Event {
    let (name, uid) = sink;
    Event {
        specversion: "1.0".to_owned(),
        id: id(&[uid, GAP, &from.to_string()]),
        source: format!("{prefix}{PLATFORM}"),
        event_type: GAP.to_owned(),
        subject: format!("notificationsinks/{name}"),
        time,
        datacontenttype: "application/json".to_owned(),
        data: json!({ "kind": "NotificationSink", "name": name, "uid": uid, "from": from.to_string(),
            "to": to.to_string(), "link": format!("{prefix}{PLATFORM}/notificationsinks/{name}") }),
    }
}

/// Where what is in an organization happens.
pub fn source_of(organization: &str) -> String {
    format!("/apis/config.stoa.dev/v1alpha1/organizations/{organization}")
}

/// Where what is cluster-scoped happens.
const PLATFORM: &str = "/apis/platform.stoa.dev/v1alpha1";

/// 32 hex digits that follow from the parts.
pub fn id(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hex(&hash.finalize()[..16])
}

/// An object that was written after some version.
#[derive(Clone, Debug)]
pub(crate) struct Changed {
    pub(crate) version: Version,
    pub(crate) kind: &'static dyn Watched,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// A kind that is told of, whatever its type.
#[async_trait]
pub(super) trait Watched: fmt::Debug + Send + Sync {
    /// Its group and plural.
    fn resource(&self) -> (Cow<'static, str>, Cow<'static, str>);

    /// Reads an object.
    fn read(&self, json: &[u8], prefix: &str) -> serde_json::Result<State>;

    /// The objects that were written after `since`, and the version at which they were listed.
    async fn changed(&'static self, lookup: &Lookup, since: Version) -> Result<(Version, Vec<Changed>), ApiError>;

    /// An object as it is now, if it is there.
    async fn current(&self, lookup: &Lookup, namespace: &str, name: &str) -> Result<Option<Bytes>, ApiError>;
}

#[derive(Debug)]
struct Of<T>(PhantomData<fn() -> T>);

impl<K: ObjectEvents> Of<K> {
    fn store(lookup: &Lookup) -> Result<Arc<Store>, ApiError> {
        Ok(lookup.api::<K>()?.store().clone())
    }
}

#[async_trait]
impl<K: ObjectEvents> Watched for Of<K> {
    fn resource(&self) -> (Cow<'static, str>, Cow<'static, str>) {
        (K::group(&()), K::plural(&()))
    }

    fn read(&self, json: &[u8], prefix: &str) -> serde_json::Result<State> {
        let object: K = serde_json::from_slice(json)?;
        let (name, uid, scope) = (object.name_any(), object.uid().unwrap_or_default(), object.scope());
        let (group, resource) = self.resource();
        let namespace = object.namespace();
        let place = namespace.as_ref().map(|namespace| format!("/namespaces/{namespace}")).unwrap_or_default();
        let path = format!("/apis/{group}/{}{place}/{resource}/{name}", K::version(&()));
        let mut data = json!({
            "kind": K::kind(&()),
            "name": name,
            "uid": uid,
            "link": format!("{prefix}{path}"),
            "command": object.command(&path),
        });
        let mut names = json!({ "namespace": namespace, "organization": scope.organization,
            "project": scope.project, "stack": scope.stack });
        for more in [&mut names, &mut object.data()] {
            let said = more.as_object_mut().into_iter().flat_map(std::mem::take);
            let is_said = |value: &Value| !value.is_null() && value.as_str() != Some("");
            for (name, value) in said.filter(|(_, value)| is_said(value)) {
                data[name] = value;
            }
        }
        let lane = match scope.stack.as_str() {
            "" => format!("{resource}/{name}"),
            stack => format!("{}/{stack}", namespace.unwrap_or_default()),
        };
        let source = match scope.organization.as_str() {
            "" => PLATFORM.to_owned(),
            organization => source_of(organization),
        };
        Ok(State { uid, marks: object.marks(), lane, source, subject: format!("{resource}/{name}"), scope, data })
    }

    async fn changed(&'static self, lookup: &Lookup, since: Version) -> Result<(Version, Vec<Changed>), ApiError> {
        let list = Self::store(lookup)?.list(None, &ListOptions::default()).await?;
        let since = list.items.iter().filter(|stored| stored.version > since);
        let changed = since.map(|stored| Changed {
            version: stored.version,
            kind: self,
            namespace: stored.namespace().to_owned(),
            name: stored.name().to_owned(),
        });
        Ok((list.version, changed.collect()))
    }

    async fn current(&self, lookup: &Lookup, namespace: &str, name: &str) -> Result<Option<Bytes>, ApiError> {
        match Self::store(lookup)?.get(namespace, name, None).await {
            Ok(stored) => Ok(Some(stored.json())),
            // What does not decode is nobody's event, and keeps no others waiting.
            Err(error) if error.code() == 404 || is_undecodable(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
