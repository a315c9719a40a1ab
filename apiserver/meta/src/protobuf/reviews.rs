//! Reviews in protobuf: the messages of `k8s.io/api/authorization/v1` and `authentication/v1` as their types.

use k8s_openapi::{
    api::{authentication::v1::SelfSubjectReview, authorization::v1 as authorization},
    apimachinery::pkg::apis::meta::v1::{FieldSelectorRequirement, LabelSelectorRequirement},
};

use super::{
    messages::{
        api::{authentication::v1 as authentication_pb, authorization::v1 as pb},
        apimachinery::pkg::apis::meta::v1 as meta,
    },
    objects::{FromProtobuf, list, map, metadata, text},
};

fn resource(found: pb::ResourceAttributes) -> authorization::ResourceAttributes {
    let of_field = |found: meta::FieldSelectorRequirement| FieldSelectorRequirement {
        key: found.key.unwrap_or_default(),
        operator: found.operator.unwrap_or_default(),
        values: list(found.values, |value| value),
    };
    let of_label = |found: meta::LabelSelectorRequirement| LabelSelectorRequirement {
        key: found.key.unwrap_or_default(),
        operator: found.operator.unwrap_or_default(),
        values: list(found.values, |value| value),
    };
    authorization::ResourceAttributes {
        field_selector: found.field_selector.map(|selector| authorization::FieldSelectorAttributes {
            raw_selector: text(selector.raw_selector),
            requirements: list(selector.requirements, of_field),
        }),
        group: text(found.group),
        label_selector: found.label_selector.map(|selector| authorization::LabelSelectorAttributes {
            raw_selector: text(selector.raw_selector),
            requirements: list(selector.requirements, of_label),
        }),
        name: text(found.name),
        namespace: text(found.namespace),
        resource: text(found.resource),
        subresource: text(found.subresource),
        verb: text(found.verb),
        version: text(found.version),
    }
}

fn path(found: pb::NonResourceAttributes) -> authorization::NonResourceAttributes {
    authorization::NonResourceAttributes { path: text(found.path), verb: text(found.verb) }
}

fn of_subject(found: pb::SubjectAccessReviewSpec) -> authorization::SubjectAccessReviewSpec {
    authorization::SubjectAccessReviewSpec {
        extra: map(found.extra, |extra| extra.items),
        groups: list(found.groups, |group| group),
        non_resource_attributes: found.non_resource_attributes.map(path),
        resource_attributes: found.resource_attributes.map(resource),
        uid: text(found.uid),
        user: text(found.user),
    }
}

impl FromProtobuf for SelfSubjectReview {
    type Message = authentication_pb::SelfSubjectReview;

    fn from_message(message: Self::Message) -> Option<Self> {
        Some(Self { metadata: metadata(message.metadata)?, status: None })
    }
}

impl FromProtobuf for authorization::SelfSubjectAccessReview {
    type Message = pb::SelfSubjectAccessReview;

    fn from_message(message: Self::Message) -> Option<Self> {
        let spec = message.spec.unwrap_or_default();
        let spec = authorization::SelfSubjectAccessReviewSpec {
            non_resource_attributes: spec.non_resource_attributes.map(path),
            resource_attributes: spec.resource_attributes.map(resource),
        };
        Some(Self { metadata: metadata(message.metadata)?, spec, status: None })
    }
}

impl FromProtobuf for authorization::SelfSubjectRulesReview {
    type Message = pb::SelfSubjectRulesReview;

    fn from_message(message: Self::Message) -> Option<Self> {
        let namespace = text(message.spec.unwrap_or_default().namespace);
        let spec = authorization::SelfSubjectRulesReviewSpec { namespace };
        Some(Self { metadata: metadata(message.metadata)?, spec, status: None })
    }
}

impl FromProtobuf for authorization::SubjectAccessReview {
    type Message = pb::SubjectAccessReview;

    fn from_message(message: Self::Message) -> Option<Self> {
        let spec = of_subject(message.spec.unwrap_or_default());
        Some(Self { metadata: metadata(message.metadata)?, spec, status: None })
    }
}

impl FromProtobuf for authorization::LocalSubjectAccessReview {
    type Message = pb::LocalSubjectAccessReview;

    fn from_message(message: Self::Message) -> Option<Self> {
        let spec = of_subject(message.spec.unwrap_or_default());
        Some(Self { metadata: metadata(message.metadata)?, spec, status: None })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::authorization::v1::{
        LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview,
    };
    use serde_json::{Value, json};

    use super::super::objects::{FromProtobuf, to_json};

    const MAGIC: &[u8] = b"k8s\0";

    /// A field of bytes.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).unwrap();
        assert!(length < 0x80);
        [&[number << 3 | 2, length], bytes].concat()
    }

    fn enveloped(kind: &str, raw: &[u8]) -> Vec<u8> {
        let of = [field(1, b"authorization.k8s.io/v1"), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &of), field(2, raw), field(3, b""), field(4, b"")].concat()
    }

    fn check<K: FromProtobuf>(raw: &[u8], expected: Value) {
        let kind = K::kind(&());
        let json: Value = serde_json::from_slice(&to_json::<K>(&enveloped(&kind, raw)).unwrap()).unwrap();
        let mut wanted = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "metadata": {}});
        wanted.as_object_mut().unwrap().extend(expected.as_object().unwrap().clone());
        assert_eq!(json, wanted);
    }

    #[test]
    fn reviews_are_read_with_all_that_they_ask_about() {
        let resource = [field(1, b"shop"), field(2, b"list"), field(3, b""), field(5, b"stacks")].concat();
        // What kubectl sends: metadata with an empty time and a number in it.
        let metadata = [field(1, b""), field(8, b""), vec![7 << 3, 0]].concat();
        let raw = [field(1, &metadata), field(2, &field(1, &resource)), field(3, &[8, 0])].concat();
        let spec = json!({"resourceAttributes": {"namespace": "shop", "verb": "list", "resource": "stacks"}});
        check::<SelfSubjectAccessReview>(&raw, json!({"metadata": {}, "spec": spec}));

        let extra = [field(1, b"scope"), field(2, &[field(1, b"a"), field(1, b"b")].concat())].concat();
        let spec = [field(3, b"ann"), field(4, b"dev"), field(4, b"ops"), field(5, &extra)].concat();
        let raw = [field(1, &field(3, b"shop")), field(2, &spec)].concat();
        check::<LocalSubjectAccessReview>(
            &raw,
            json!({
                "metadata": {"namespace": "shop"},
                "spec": {"user": "ann", "groups": ["dev", "ops"], "extra": {"scope": ["a", "b"]}},
            }),
        );
        let requirement = [field(1, b"env"), field(2, b"In"), field(3, b"a"), field(3, b"b")].concat();
        let selector = [field(2, &requirement), field(2, &field(1, b"x"))].concat();
        let raw = field(2, &field(1, &field(9, &selector)));
        let requirements =
            json!([{"key": "env", "operator": "In", "values": ["a", "b"]}, {"key": "x", "operator": ""}]);
        let spec = json!({"resourceAttributes": {"labelSelector": {"requirements": requirements}}});
        check::<SelfSubjectAccessReview>(&raw, json!({ "spec": spec }));
        check::<SelfSubjectRulesReview>(&field(2, &field(1, b"shop")), json!({"spec": {"namespace": "shop"}}));
    }

    #[test]
    fn what_is_broken_is_refused() {
        let good = enveloped("SelfSubjectAccessReview", &field(2, &field(2, &field(1, b"/version"))));
        assert!(to_json::<SelfSubjectAccessReview>(&good).is_ok());
        for cut in [0, 3, 5, good.len() - 30] {
            assert_eq!(to_json::<SelfSubjectAccessReview>(&good[..cut]).unwrap_err().code(), 400, "{cut}");
        }
        let mut endless = MAGIC.to_vec();
        endless.extend([0xff; 20]);
        assert_eq!(to_json::<SelfSubjectAccessReview>(&endless).unwrap_err().code(), 400);
        let not_text = enveloped("SelfSubjectRulesReview", &field(2, &field(1, &[0xff, 0xfe])));
        assert_eq!(to_json::<SelfSubjectRulesReview>(&not_text).unwrap_err().code(), 400);
    }
}
