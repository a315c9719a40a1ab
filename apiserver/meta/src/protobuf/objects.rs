//! Objects of Kubernetes' own kinds in protobuf, which is how typed Go clients such as kubectl send them.
//!
//! Start at [`to_json`]. A body is the magic bytes and a `runtime.Unknown`, which has the message of the kind
//! (`k8s.io/apimachinery/pkg/runtime/serializer/protobuf`). `messages` has the messages; they become the types of
//! `k8s_openapi`, and these JSON, which is read as if the client had sent it. The answer is JSON, which such clients take.
//!
//! Go writes empty texts and zeros too; they count as absent, as in the JSON of Go.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::core::v1 as core,
    apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, MicroTime, ObjectMeta, OwnerReference, Time},
};
use prost::Message;
use serde::Serialize;
use serde_json::json;

use super::messages::{api::core::v1 as core_pb, apimachinery::pkg as meta_pb};
use crate::status::ApiError;
use meta_pb::apis::meta::v1 as meta;

/// How every body begins.
pub(crate) const MAGIC: &[u8] = b"k8s\0";

/// A kind that is read from protobuf.
pub trait FromProtobuf: kube_core::Resource<DynamicType = ()> + Serialize + Sized + 'static {
    /// Its message.
    type Message: Message + Default;

    /// The object; `None` when the message has a value that no such object has, as a time in the year 20000.
    fn from_message(message: Self::Message) -> Option<Self>;
}

/// An object as JSON. One of another kind comes without its fields: the decoder of the JSON refuses it by its kind.
///
/// # Errors
///
/// 400 `BadRequest` for what is no such message.
pub(crate) fn to_json<K: FromProtobuf>(body: &[u8]) -> Result<Vec<u8>, ApiError> {
    read::<K>(body).ok_or_else(|| ApiError::bad_request(format!("the body is no {} in protobuf", K::kind(&()))))
}

fn read<K: FromProtobuf>(body: &[u8]) -> Option<Vec<u8>> {
    let unknown = meta_pb::runtime::Unknown::decode(body.strip_prefix(MAGIC)?).ok()?;
    let of = unknown.type_meta.unwrap_or_default();
    let (version, kind) = (of.api_version.unwrap_or_default(), of.kind.unwrap_or_default());
    if (version.as_str(), kind.as_str()) != (&*K::api_version(&()), &*K::kind(&())) {
        return serde_json::to_vec(&json!({"apiVersion": version, "kind": kind})).ok();
    }
    let message = K::Message::decode(unknown.raw.unwrap_or_default().as_slice()).ok()?;
    serde_json::to_vec(&K::from_message(message)?).ok()
}

/// A text, unless it is empty.
pub(super) fn text(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// A list, unless it is empty.
pub(super) fn list<T, U>(items: Vec<T>, each: impl FnMut(T) -> U) -> Option<Vec<U>> {
    (!items.is_empty()).then(|| items.into_iter().map(each).collect())
}

/// A list, unless it is empty. The outer `None` is one with a bad item.
fn checked<T, U>(items: Vec<T>, each: impl FnMut(T) -> Option<U>) -> Option<Option<Vec<U>>> {
    let items = items.into_iter().map(each).collect::<Option<Vec<U>>>()?;
    Some((!items.is_empty()).then_some(items))
}

/// A map, unless it is empty.
pub(super) fn map<T, U>(entries: BTreeMap<String, T>, mut each: impl FnMut(T) -> U) -> Option<BTreeMap<String, U>> {
    (!entries.is_empty()).then(|| entries.into_iter().map(|(key, value)| (key, each(value))).collect())
}

/// A time, unless it is Go's zero, which is an empty message. The outer `None` is a time that cannot be.
fn timestamp(seconds: Option<i64>, nanoseconds: Option<i32>) -> Option<Option<Timestamp>> {
    if seconds.is_none() && nanoseconds.is_none() {
        return Some(None);
    }
    Timestamp::new(seconds.unwrap_or(0), nanoseconds.unwrap_or(0)).ok().map(Some)
}

fn time(time: Option<meta::Time>) -> Option<Option<Time>> {
    time.map_or(Some(None), |time| Some(timestamp(time.seconds, time.nanos)?.map(Time)))
}

fn micro_time(time: Option<meta::MicroTime>) -> Option<Option<MicroTime>> {
    time.map_or(Some(None), |time| Some(timestamp(time.seconds, time.nanos)?.map(MicroTime)))
}

/// The metadata of any object.
pub(super) fn metadata(found: Option<meta::ObjectMeta>) -> Option<ObjectMeta> {
    let found = found.unwrap_or_default();
    let owner = |owner: meta::OwnerReference| OwnerReference {
        api_version: owner.api_version.unwrap_or_default(),
        block_owner_deletion: owner.block_owner_deletion,
        controller: owner.controller,
        kind: owner.kind.unwrap_or_default(),
        name: owner.name.unwrap_or_default(),
        uid: owner.uid.unwrap_or_default(),
    };
    let managed = |entry: meta::ManagedFieldsEntry| {
        let fields = entry.fields_v1.and_then(|fields| fields.raw).filter(|raw| !raw.is_empty());
        let fields = fields.map_or(Some(None), |raw| serde_json::from_slice(&raw).ok().map(Some))?;
        Some(ManagedFieldsEntry {
            api_version: text(entry.api_version),
            fields_type: text(entry.fields_type),
            fields_v1: fields.map(FieldsV1),
            manager: text(entry.manager),
            operation: text(entry.operation),
            subresource: text(entry.subresource),
            time: time(entry.time)?,
        })
    };
    Some(ObjectMeta {
        annotations: map(found.annotations, |value| value),
        creation_timestamp: time(found.creation_timestamp)?,
        deletion_grace_period_seconds: found.deletion_grace_period_seconds,
        deletion_timestamp: time(found.deletion_timestamp)?,
        finalizers: list(found.finalizers, |finalizer| finalizer),
        generate_name: text(found.generate_name),
        generation: found.generation.filter(|generation| *generation != 0),
        labels: map(found.labels, |value| value),
        managed_fields: checked(found.managed_fields, managed)?,
        name: text(found.name),
        namespace: text(found.namespace),
        owner_references: list(found.owner_references, owner),
        resource_version: text(found.resource_version),
        self_link: text(found.self_link),
        uid: text(found.uid),
    })
}

impl FromProtobuf for core::Secret {
    type Message = core_pb::Secret;

    fn from_message(message: core_pb::Secret) -> Option<Self> {
        Some(Self {
            data: map(message.data, ByteString),
            immutable: message.immutable,
            metadata: metadata(message.metadata)?,
            string_data: map(message.string_data, |value| value),
            type_: text(message.r#type),
        })
    }
}

impl FromProtobuf for core::ConfigMap {
    type Message = core_pb::ConfigMap;

    fn from_message(message: core_pb::ConfigMap) -> Option<Self> {
        Some(Self {
            binary_data: map(message.binary_data, ByteString),
            data: map(message.data, |value| value),
            immutable: message.immutable,
            metadata: metadata(message.metadata)?,
        })
    }
}

impl FromProtobuf for core::Namespace {
    type Message = core_pb::Namespace;

    fn from_message(message: core_pb::Namespace) -> Option<Self> {
        let condition = |condition: core_pb::NamespaceCondition| {
            Some(core::NamespaceCondition {
                last_transition_time: time(condition.last_transition_time)?,
                message: text(condition.message),
                reason: text(condition.reason),
                status: condition.status.unwrap_or_default(),
                type_: condition.r#type.unwrap_or_default(),
            })
        };
        let status = message.status.map_or(Some(None), |status| {
            let conditions = checked(status.conditions, condition)?;
            Some(Some(core::NamespaceStatus { conditions, phase: text(status.phase) }))
        });
        let spec =
            message.spec.map(|spec| core::NamespaceSpec { finalizers: list(spec.finalizers, |finalizer| finalizer) });
        Some(Self { metadata: metadata(message.metadata)?, spec, status: status? })
    }
}

impl FromProtobuf for core::Event {
    type Message = core_pb::Event;

    fn from_message(message: core_pb::Event) -> Option<Self> {
        let reference = |reference: core_pb::ObjectReference| core::ObjectReference {
            api_version: text(reference.api_version),
            field_path: text(reference.field_path),
            kind: text(reference.kind),
            name: text(reference.name),
            namespace: text(reference.namespace),
            resource_version: text(reference.resource_version),
            uid: text(reference.uid),
        };
        let series = message.series.map_or(Some(None), |series| {
            let last_observed_time = micro_time(series.last_observed_time)?;
            Some(Some(core::EventSeries { count: series.count, last_observed_time }))
        });
        Some(Self {
            action: text(message.action),
            count: message.count.filter(|count| *count != 0),
            event_time: micro_time(message.event_time)?,
            first_timestamp: time(message.first_timestamp)?,
            involved_object: message.involved_object.map(reference).unwrap_or_default(),
            last_timestamp: time(message.last_timestamp)?,
            message: text(message.message),
            metadata: metadata(message.metadata)?,
            reason: text(message.reason),
            related: message.related.map(reference),
            reporting_component: text(message.reporting_component),
            reporting_instance: text(message.reporting_instance),
            series: series?,
            source: message
                .source
                .map(|source| core::EventSource { component: text(source.component), host: text(source.host) }),
            type_: text(message.r#type),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::testing::protobuf_body;

    fn json_of<K: FromProtobuf>(message: &K::Message) -> Value {
        let body = protobuf_body(&K::api_version(&()), &K::kind(&()), message);
        serde_json::from_slice(&to_json::<K>(&body).unwrap()).unwrap()
    }

    fn named(name: &str) -> Option<meta::ObjectMeta> {
        // Go writes what is empty, too, and a time that is zero as an empty message.
        let empty = Some(String::new());
        Some(meta::ObjectMeta {
            name: Some(name.to_owned()),
            generate_name: empty.clone(),
            namespace: Some("shop".to_owned()),
            self_link: empty.clone(),
            uid: empty.clone(),
            resource_version: empty,
            generation: Some(0),
            creation_timestamp: Some(meta::Time::default()),
            ..meta::ObjectMeta::default()
        })
    }

    #[test]
    fn secrets_and_config_maps_are_read_with_their_data() {
        let secret = core_pb::Secret {
            metadata: named("db"),
            data: [("password".to_owned(), vec![0, 255])].into(),
            string_data: [("user".to_owned(), "ann".to_owned())].into(),
            r#type: Some("kubernetes.io/tls".to_owned()),
            immutable: Some(false),
        };
        assert_eq!(
            json_of::<core::Secret>(&secret),
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "namespace": "shop"},
                "data": {"password": "AP8="}, "stringData": {"user": "ann"}, "type": "kubernetes.io/tls", "immutable": false,
            })
        );
        let settings = core_pb::ConfigMap {
            metadata: named("settings"),
            data: [("a".to_owned(), "1".to_owned())].into(),
            binary_data: [("b".to_owned(), vec![1])].into(),
            immutable: Some(true),
        };
        assert_eq!(
            json_of::<core::ConfigMap>(&settings),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "shop"},
                "data": {"a": "1"}, "binaryData": {"b": "AQ=="}, "immutable": true,
            })
        );
    }

    #[test]
    fn metadata_is_read_whole() {
        let at = |seconds, nanos| Some(meta::Time { seconds: Some(seconds), nanos: Some(nanos) });
        let text = |text: &str| Some(text.to_owned());
        let found = meta::ObjectMeta {
            generate_name: text("db-"),
            uid: text("u"),
            resource_version: text("7"),
            generation: Some(2),
            creation_timestamp: at(0, 0),
            deletion_timestamp: at(1, 0),
            deletion_grace_period_seconds: Some(0),
            labels: [("app".to_owned(), "web".to_owned())].into(),
            annotations: [("note".to_owned(), String::new())].into(),
            finalizers: vec!["a/b".to_owned()],
            owner_references: vec![meta::OwnerReference {
                api_version: text("v1"),
                kind: text("ConfigMap"),
                name: text("a"),
                uid: text("v"),
                controller: Some(true),
                block_owner_deletion: None,
            }],
            managed_fields: vec![meta::ManagedFieldsEntry {
                manager: text("kubectl"),
                operation: text("Update"),
                api_version: text("v1"),
                time: at(2, 0),
                fields_type: text("FieldsV1"),
                fields_v1: Some(meta::FieldsV1 { raw: Some(br#"{"f:data":{}}"#.to_vec()) }),
                subresource: text(""),
            }],
            ..meta::ObjectMeta::default()
        };
        let namespace = core_pb::Namespace {
            metadata: Some(found),
            spec: Some(core_pb::NamespaceSpec { finalizers: vec!["kubernetes".to_owned()] }),
            status: Some(core_pb::NamespaceStatus { phase: text("Active"), conditions: Vec::new() }),
        };
        assert_eq!(
            json_of::<core::Namespace>(&namespace),
            json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {
                    "generateName": "db-", "uid": "u", "resourceVersion": "7", "generation": 2,
                    "creationTimestamp": "1970-01-01T00:00:00Z", "deletionTimestamp": "1970-01-01T00:00:01Z",
                    "deletionGracePeriodSeconds": 0, "labels": {"app": "web"}, "annotations": {"note": ""},
                    "finalizers": ["a/b"],
                    "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "v", "controller": true}],
                    "managedFields": [{
                        "manager": "kubectl", "operation": "Update", "apiVersion": "v1", "time": "1970-01-01T00:00:02Z",
                        "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}},
                    }],
                },
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
            })
        );
    }

    #[test]
    fn events_are_read_with_what_they_are_about() {
        let text = |text: &str| Some(text.to_owned());
        let at = meta::MicroTime { seconds: Some(1), nanos: Some(250_000_000) };
        let event = core_pb::Event {
            metadata: named("web.1"),
            involved_object: Some(core_pb::ObjectReference {
                kind: text("Run"),
                name: text("web"),
                ..Default::default()
            }),
            reason: text("Applied"),
            message: text("all of it"),
            source: Some(core_pb::EventSource { component: text("stoa"), host: text("") }),
            first_timestamp: Some(meta::Time { seconds: Some(1), nanos: Some(0) }),
            last_timestamp: Some(meta::Time::default()),
            count: Some(3),
            r#type: text("Normal"),
            event_time: Some(at),
            series: Some(core_pb::EventSeries { count: Some(2), last_observed_time: Some(at) }),
            ..core_pb::Event::default()
        };
        assert_eq!(
            json_of::<core::Event>(&event),
            json!({
                "apiVersion": "v1", "kind": "Event", "metadata": {"name": "web.1", "namespace": "shop"},
                "involvedObject": {"kind": "Run", "name": "web"}, "reason": "Applied", "message": "all of it",
                "source": {"component": "stoa"}, "firstTimestamp": "1970-01-01T00:00:01Z", "count": 3, "type": "Normal",
                "eventTime": "1970-01-01T00:00:01.250000Z",
                "series": {"count": 2, "lastObservedTime": "1970-01-01T00:00:01.250000Z"},
            })
        );
    }

    #[test]
    fn object_of_another_kind_is_sent_on_without_its_fields() {
        let settings = core_pb::ConfigMap { metadata: named("settings"), ..core_pb::ConfigMap::default() };
        let json = to_json::<core::Secret>(&protobuf_body("v1", "ConfigMap", &settings)).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&json).unwrap(), json!({"apiVersion": "v1", "kind": "ConfigMap"}));
    }

    #[test]
    fn broken_bodies_are_refused() {
        let good =
            protobuf_body("v1", "Secret", &core_pb::Secret { metadata: named("db"), ..core_pb::Secret::default() });
        let late = Some(meta::Time { seconds: Some(i64::MAX), nanos: Some(0) });
        let late = meta::ObjectMeta { creation_timestamp: late, ..meta::ObjectMeta::default() };
        let late =
            protobuf_body("v1", "Secret", &core_pb::Secret { metadata: Some(late), ..core_pb::Secret::default() });
        let endless = [MAGIC, &[0xff; 20]].concat();
        // In the middle of the message, which two empty texts follow.
        let cut = good[..good.len() - 6].to_vec();
        for broken in [Vec::new(), b"k8s".to_vec(), good[4..].to_vec(), cut, late, endless, b"{}".to_vec()] {
            let refused = to_json::<core::Secret>(&broken).unwrap_err();
            assert_eq!((refused.code(), refused.message()), (400, "the body is no Secret in protobuf"), "{broken:?}");
        }
    }
}
