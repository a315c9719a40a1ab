//! The fields of the messages of Kubernetes' own kinds, as `k8s.io/api` has them.

use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    authorization::v1::{
        LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
    },
    core::v1::{ConfigMap, Event, Namespace, Secret},
};

use super::{
    FromProtobuf, Message,
    Type::{Always, Bool, Bytes, Count, Extra, Fields, Int, List, Map, MicroTime, Object, String, Text, Time},
};

const OBJECT_META: Message = &[
    (1, "name", Text),
    (2, "generateName", Text),
    (3, "namespace", Text),
    (4, "selfLink", Text),
    (5, "uid", Text),
    (6, "resourceVersion", Text),
    (7, "generation", Count),
    (8, "creationTimestamp", Time),
    (9, "deletionTimestamp", Time),
    (10, "deletionGracePeriodSeconds", Int),
    (11, "labels", Map(&String)),
    (12, "annotations", Map(&String)),
    (13, "ownerReferences", List(&Object(OWNER_REFERENCE))),
    (14, "finalizers", List(&String)),
    (17, "managedFields", List(&Object(MANAGED_FIELDS_ENTRY))),
];

const OWNER_REFERENCE: Message = &[
    (1, "kind", String),
    (3, "name", String),
    (4, "uid", String),
    (5, "apiVersion", String),
    (6, "controller", Bool),
    (7, "blockOwnerDeletion", Bool),
];

const MANAGED_FIELDS_ENTRY: Message = &[
    (1, "manager", Text),
    (2, "operation", Text),
    (3, "apiVersion", Text),
    (4, "time", Time),
    (6, "fieldsType", Text),
    (7, "fieldsV1", Fields),
    (8, "subresource", Text),
];

impl FromProtobuf for Secret {
    const MESSAGE: Message = &[
        (1, "metadata", Always(OBJECT_META)),
        (2, "data", Map(&Bytes)),
        (3, "type", Text),
        (4, "stringData", Map(&String)),
        (5, "immutable", Bool),
    ];
}

impl FromProtobuf for ConfigMap {
    const MESSAGE: Message = &[
        (1, "metadata", Always(OBJECT_META)),
        (2, "data", Map(&String)),
        (3, "binaryData", Map(&Bytes)),
        (4, "immutable", Bool),
    ];
}

impl FromProtobuf for Namespace {
    const MESSAGE: Message = &[
        (1, "metadata", Always(OBJECT_META)),
        (2, "spec", Object(&[(1, "finalizers", List(&String))])),
        (3, "status", Object(&[(1, "phase", Text), (2, "conditions", List(&Object(NAMESPACE_CONDITION)))])),
    ];
}

const NAMESPACE_CONDITION: Message = &[
    (1, "type", String),
    (2, "status", String),
    (4, "lastTransitionTime", Time),
    (5, "reason", Text),
    (6, "message", Text),
];

impl FromProtobuf for Event {
    const MESSAGE: Message = &[
        (1, "metadata", Always(OBJECT_META)),
        (2, "involvedObject", Always(OBJECT_REFERENCE)),
        (3, "reason", Text),
        (4, "message", Text),
        (5, "source", Object(&[(1, "component", Text), (2, "host", Text)])),
        (6, "firstTimestamp", Time),
        (7, "lastTimestamp", Time),
        (8, "count", Count),
        (9, "type", Text),
        (10, "eventTime", MicroTime),
        (11, "series", Object(&[(1, "count", Int), (2, "lastObservedTime", MicroTime)])),
        (12, "action", Text),
        (13, "related", Object(OBJECT_REFERENCE)),
        (14, "reportingComponent", Text),
        (15, "reportingInstance", Text),
    ];
}

const OBJECT_REFERENCE: Message = &[
    (1, "kind", Text),
    (2, "namespace", Text),
    (3, "name", Text),
    (4, "uid", Text),
    (5, "apiVersion", Text),
    (6, "resourceVersion", Text),
    (7, "fieldPath", Text),
];

impl FromProtobuf for SelfSubjectReview {
    const MESSAGE: Message = &[(1, "metadata", Always(OBJECT_META))];
}

impl FromProtobuf for SelfSubjectAccessReview {
    const MESSAGE: Message = &[
        (1, "metadata", Always(OBJECT_META)),
        (2, "spec", Always(&[(1, "resourceAttributes", RESOURCE), (2, "nonResourceAttributes", PATH)])),
    ];
}

impl FromProtobuf for SelfSubjectRulesReview {
    const MESSAGE: Message = &[(1, "metadata", Always(OBJECT_META)), (2, "spec", Always(&[(1, "namespace", Text)]))];
}

impl FromProtobuf for SubjectAccessReview {
    const MESSAGE: Message = &[(1, "metadata", Always(OBJECT_META)), (2, "spec", Always(SUBJECT))];
}

impl FromProtobuf for LocalSubjectAccessReview {
    const MESSAGE: Message = &[(1, "metadata", Always(OBJECT_META)), (2, "spec", Always(SUBJECT))];
}

const SUBJECT: Message = &[
    (1, "resourceAttributes", RESOURCE),
    (2, "nonResourceAttributes", PATH),
    (3, "user", Text),
    (4, "groups", List(&String)),
    (5, "extra", Map(&Extra)),
    (6, "uid", Text),
];

const PATH: super::Type = Object(&[(1, "path", Text), (2, "verb", Text)]);

const RESOURCE: super::Type = Object(&[
    (1, "namespace", Text),
    (2, "verb", Text),
    (3, "group", Text),
    (4, "version", Text),
    (5, "resource", Text),
    (6, "subresource", Text),
    (7, "name", Text),
]);
