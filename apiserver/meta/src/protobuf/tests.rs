use k8s_openapi::api::{
    authorization::v1::{LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview},
    core::v1::{ConfigMap, Event, Namespace, Secret},
};
use serde_json::{Value, json};

use super::{FromProtobuf, MAGIC, to_json};
use crate::testing::{protobuf_body, protobuf_field as field};

#[track_caller]
fn check<K: FromProtobuf>(message: &[Vec<u8>], expected: Value) {
    let body = protobuf_body(&K::api_version(&()), &K::kind(&()), &message.concat());
    let json: Value = serde_json::from_slice(&to_json::<K>(&body).unwrap()).unwrap();
    let mut wanted = json!({"apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": {}});
    wanted.as_object_mut().unwrap().extend(expected.as_object().unwrap().clone());
    assert_eq!(json, wanted);
}

/// A field of a number.
fn number(number: u8, value: u8) -> Vec<u8> {
    assert!(number < 16 && value < 0x80);
    vec![number << 3, value]
}

fn pair(number: u32, key: &str, value: &[u8]) -> Vec<u8> {
    field(number, &[field(1, key.as_bytes()), field(2, value)].concat())
}

/// Metadata as Go writes it: also what is empty, and a time that is zero as an empty message.
fn named(name: &str) -> Vec<u8> {
    let empty = [2, 4, 5, 6, 8].map(|number| field(number, b"")).concat();
    field(1, &[field(1, name.as_bytes()), empty, field(3, b"shop"), number(7, 0)].concat())
}

#[test]
fn secrets_and_config_maps_are_read_with_their_data() {
    check::<Secret>(
        &[
            named("db"),
            pair(2, "password", &[0, 255]),
            field(3, b"kubernetes.io/tls"),
            pair(4, "user", b"ann"),
            number(5, 0),
        ],
        json!({
            "metadata": {"name": "db", "namespace": "shop"},
            "data": {"password": "AP8="}, "stringData": {"user": "ann"}, "type": "kubernetes.io/tls", "immutable": false,
        }),
    );
    check::<ConfigMap>(
        &[named("settings"), pair(2, "a", b"1"), field(2, &field(1, b"none")), pair(3, "b", &[1]), number(4, 1)],
        json!({
            "metadata": {"name": "settings", "namespace": "shop"},
            "data": {"a": "1", "none": ""}, "binaryData": {"b": "AQ=="}, "immutable": true,
        }),
    );
}

#[test]
fn metadata_is_read_whole() {
    let owner = [field(5, b"v1"), field(1, b"ConfigMap"), field(3, b"a"), field(4, b"v"), number(6, 1)].concat();
    let manager = [
        field(1, b"kubectl"),
        field(2, b"Update"),
        field(3, b"v1"),
        field(4, &[number(1, 2), number(2, 0)].concat()),
        field(6, b"FieldsV1"),
        field(7, &field(1, br#"{"f:data":{}}"#)),
        field(8, b""),
    ];
    let metadata = [
        field(2, b"db-"),
        field(5, b"u"),
        field(6, b"7"),
        number(7, 2),
        field(8, &number(1, 0)),
        field(9, &number(1, 1)),
        number(10, 0),
        pair(11, "app", b"web"),
        pair(12, "note", b""),
        field(13, &owner),
        field(14, b"a/b"),
        field(17, &manager.concat()),
    ];
    check::<Namespace>(
        &[field(1, &metadata.concat()), field(2, &field(1, b"kubernetes")), field(3, &field(1, b"Active"))],
        json!({
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
        }),
    );
}

#[test]
fn events_are_read_with_what_they_are_about() {
    // A quarter of a second, in nanoseconds.
    let quarter = [number(1, 1), vec![2 << 3, 0x80, 0xe5, 0x9a, 0x77]].concat();
    check::<Event>(
        &[
            named("web.1"),
            field(2, &[field(1, b"Run"), field(3, b"web")].concat()),
            field(3, b"Applied"),
            field(4, b"all of it"),
            field(5, &[field(1, b"stoa"), field(2, b"")].concat()),
            field(6, &[number(1, 1), number(2, 0)].concat()),
            field(7, b""),
            number(8, 3),
            field(9, b"Normal"),
            field(10, &quarter),
            field(11, &[number(1, 2), field(2, &quarter)].concat()),
        ],
        json!({
            "metadata": {"name": "web.1", "namespace": "shop"},
            "involvedObject": {"kind": "Run", "name": "web"}, "reason": "Applied", "message": "all of it",
            "source": {"component": "stoa"}, "firstTimestamp": "1970-01-01T00:00:01Z", "count": 3, "type": "Normal",
            "eventTime": "1970-01-01T00:00:01.250000Z",
            "series": {"count": 2, "lastObservedTime": "1970-01-01T00:00:01.250000Z"},
        }),
    );
    check::<Event>(&[], json!({"involvedObject": {}}));
}

#[test]
fn reviews_are_read_with_all_that_they_ask_about() {
    let resource = [field(1, b"shop"), field(2, b"list"), field(3, b""), field(5, b"stacks")].concat();
    let spec = json!({"resourceAttributes": {"namespace": "shop", "verb": "list", "resource": "stacks"}});
    check::<SelfSubjectAccessReview>(
        &[
            field(1, &[field(1, b""), field(8, b""), number(7, 0)].concat()),
            field(2, &field(1, &resource)),
            field(3, &number(1, 0)),
        ],
        json!({"metadata": {}, "spec": spec}),
    );
    let extra = pair(5, "scope", &[field(1, b"a"), field(1, b"b")].concat());
    check::<LocalSubjectAccessReview>(
        &[
            field(1, &field(3, b"shop")),
            field(2, &[field(3, b"ann"), field(4, b"dev"), field(4, b"ops"), extra].concat()),
        ],
        json!({
            "metadata": {"namespace": "shop"},
            "spec": {"user": "ann", "groups": ["dev", "ops"], "extra": {"scope": ["a", "b"]}},
        }),
    );
    check::<SelfSubjectRulesReview>(&[field(2, &field(1, b"shop"))], json!({"spec": {"namespace": "shop"}}));
    check::<SelfSubjectRulesReview>(&[], json!({"spec": {}}));
}

#[test]
fn decoder_drops_fields_of_other_kind() {
    let json = to_json::<Secret>(&protobuf_body("v1", "ConfigMap", &named("settings"))).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&json).unwrap(), json!({"apiVersion": "v1", "kind": "ConfigMap"}));
}

#[test]
fn broken_bodies_are_refused() {
    let good = protobuf_body("v1", "Secret", &named("db"));
    let of = |message: &[u8]| protobuf_body("v1", "Secret", message);
    // A year that no timestamp has.
    let late = vec![1 << 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    for broken in [
        Vec::new(),
        b"k8s".to_vec(),
        good[4..].to_vec(),
        // In the middle of the message, which two empty texts follow.
        good[..good.len() - 6].to_vec(),
        of(&field(1, &field(8, &late))),
        of(&field(3, &[0xff, 0xfe])),
        of(&field(5, b"true")),
        of(&field(1, &field(17, &field(7, &field(1, b"{"))))),
        [MAGIC, &[0xff; 20]].concat(),
        b"{}".to_vec(),
    ] {
        let refused = to_json::<Secret>(&broken).unwrap_err();
        assert_eq!((refused.code(), refused.message()), (400, "the body is no Secret in protobuf"), "{broken:?}");
    }
}
