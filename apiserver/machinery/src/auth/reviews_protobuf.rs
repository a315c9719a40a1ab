//! Reviews in protobuf, which is all that typed Go clients such as kubectl send of kinds that Kubernetes itself has.
//!
//! Fields are numbered as in `generated.proto` of `k8s.io/api/authorization/v1` and of `k8s.io/apimachinery`; what is
//! not listed is skipped. The answer is JSON, which such clients take.

use serde_json::{Map, Value};

use crate::status::ApiError;

/// How every message begins.
const MAGIC: &[u8] = b"k8s\0";

/// What a field of a message holds.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    /// Text that may come several times.
    Texts,
    Message(Fields),
    /// Messages that may come several times.
    Messages(Fields),
    /// Lists of texts by name.
    TextsByName,
}

/// Number, name and shape.
type Fields = &'static [(u64, &'static str, Shape)];

const REQUIREMENT: Fields = &[(1, "key", Shape::Text), (2, "operator", Shape::Text), (3, "values", Shape::Texts)];
const SELECTOR: Fields = &[(1, "rawSelector", Shape::Text), (2, "requirements", Shape::Messages(REQUIREMENT))];
const RESOURCE: Fields = &[
    (1, "namespace", Shape::Text),
    (2, "verb", Shape::Text),
    (3, "group", Shape::Text),
    (4, "version", Shape::Text),
    (5, "resource", Shape::Text),
    (6, "subresource", Shape::Text),
    (7, "name", Shape::Text),
    (8, "fieldSelector", Shape::Message(SELECTOR)),
    (9, "labelSelector", Shape::Message(SELECTOR)),
];
const PATH: Fields = &[(1, "path", Shape::Text), (2, "verb", Shape::Text)];
const METADATA: Fields = &[(1, "name", Shape::Text), (3, "namespace", Shape::Text)];
/// Of the reviews of access; those about oneself have only the first two.
const ACCESS: Fields = &[
    (1, "resourceAttributes", Shape::Message(RESOURCE)),
    (2, "nonResourceAttributes", Shape::Message(PATH)),
    (3, "user", Shape::Text),
    (4, "groups", Shape::Texts),
    (5, "extra", Shape::TextsByName),
    (6, "uid", Shape::Text),
];
const RULES: Fields = &[(1, "namespace", Shape::Text)];

/// A review as JSON.
///
/// # Errors
///
/// 400 for what is no such message.
pub(super) fn to_json(kind: &str, body: &[u8]) -> Result<Vec<u8>, ApiError> {
    read(kind, body).ok_or_else(|| ApiError::bad_request(format!("the body is no {kind} in protobuf")))
}

fn read(kind: &str, body: &[u8]) -> Option<Vec<u8>> {
    const TYPE: Fields = &[(1, "apiVersion", Shape::Text), (2, "kind", Shape::Text)];
    let unknown = body.strip_prefix(MAGIC)?;
    let (mut object, mut raw) = (Map::new(), &[][..]);
    each(unknown, |number, value| {
        match (number, value) {
            (1, Wire::Bytes(bytes)) => object = message(bytes, TYPE)?,
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
        Some(())
    })?;
    let fields: Fields = match kind {
        "SelfSubjectReview" => &[(1, "metadata", Shape::Message(METADATA))],
        "SelfSubjectRulesReview" => &[(1, "metadata", Shape::Message(METADATA)), (2, "spec", Shape::Message(RULES))],
        _ => &[(1, "metadata", Shape::Message(METADATA)), (2, "spec", Shape::Message(ACCESS))],
    };
    object.extend(message(raw, fields)?);
    serde_json::to_vec(&object).ok()
}

fn message(bytes: &[u8], fields: Fields) -> Option<Map<String, Value>> {
    let mut object = Map::new();
    each(bytes, |number, value| {
        let (Some((_, name, shape)), Wire::Bytes(bytes)) = (fields.iter().find(|field| field.0 == number), value)
        else {
            return Some(());
        };
        match shape {
            // Go's encoder writes texts that are empty, too.
            Shape::Text if bytes.is_empty() => {}
            Shape::Text => drop(object.insert((*name).to_owned(), text(bytes)?)),
            Shape::Texts => add(&mut object, name, text(bytes)?)?,
            Shape::Messages(inner) => add(&mut object, name, message(bytes, inner)?.into())?,
            Shape::Message(inner) => drop(object.insert((*name).to_owned(), message(bytes, inner)?.into())),
            Shape::TextsByName => {
                let entry = message(bytes, &[(1, "name", Shape::Text), (2, "value", Shape::Message(ITEMS))])?;
                let by_name = object.entry(*name).or_insert_with(|| Value::Object(Map::new()));
                let items = entry.get("value").and_then(|value| value.get("items")).cloned();
                let key = entry.get("name").and_then(Value::as_str).unwrap_or("");
                by_name.as_object_mut()?.insert(key.to_owned(), items.unwrap_or_else(|| Value::Array(Vec::new())));
            }
        }
        Some(())
    })?;
    Some(object)
}

/// Adds to a list, which is made with its first item.
fn add(object: &mut Map<String, Value>, name: &str, item: Value) -> Option<()> {
    let list = object.entry(name).or_insert_with(|| Value::Array(Vec::new()));
    list.as_array_mut()?.push(item);
    Some(())
}

const ITEMS: Fields = &[(1, "items", Shape::Texts)];

fn text(bytes: &[u8]) -> Option<Value> {
    std::str::from_utf8(bytes).ok().map(Value::from)
}

/// A field's value as it is on the wire.
enum Wire<'a> {
    Bytes(&'a [u8]),
    /// A number, of which there are none here.
    Other,
}

/// Calls `field` for each field of a message; nothing when it is broken.
fn each<'a>(mut bytes: &'a [u8], mut field: impl FnMut(u64, Wire<'a>) -> Option<()>) -> Option<()> {
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let value = match key & 7 {
            0 => varint(&mut bytes).map(|_| Wire::Other),
            1 => bytes.split_off(..8).map(|_| Wire::Other),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                bytes.split_off(..length).map(Wire::Bytes)
            }
            5 => bytes.split_off(..4).map(|_| Wire::Other),
            _ => None,
        };
        field(key >> 3, value?)?;
    }
    Some(())
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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

    fn check(kind: &str, raw: &[u8], expected: Value) {
        let json: Value = serde_json::from_slice(&to_json(kind, &enveloped(kind, raw)).unwrap()).unwrap();
        let mut wanted = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind});
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
        check("SelfSubjectAccessReview", &raw, json!({"metadata": {}, "spec": spec}));

        let extra = [field(1, b"scope"), field(2, &[field(1, b"a"), field(1, b"b")].concat())].concat();
        let spec = [field(3, b"ann"), field(4, b"dev"), field(4, b"ops"), field(5, &extra)].concat();
        let raw = [field(1, &field(3, b"shop")), field(2, &spec)].concat();
        check(
            "LocalSubjectAccessReview",
            &raw,
            json!({
                "metadata": {"namespace": "shop"},
                "spec": {"user": "ann", "groups": ["dev", "ops"], "extra": {"scope": ["a", "b"]}},
            }),
        );
        let requirement = [field(1, b"env"), field(2, b"In"), field(3, b"a"), field(3, b"b")].concat();
        let selector = [field(2, &requirement), field(2, &field(1, b"x"))].concat();
        let raw = field(2, &field(1, &field(9, &selector)));
        let requirements = json!([{"key": "env", "operator": "In", "values": ["a", "b"]}, {"key": "x"}]);
        let spec = json!({"resourceAttributes": {"labelSelector": {"requirements": requirements}}});
        check("SelfSubjectAccessReview", &raw, json!({ "spec": spec }));
        check("SelfSubjectRulesReview", &field(2, &field(1, b"shop")), json!({"spec": {"namespace": "shop"}}));
    }

    #[test]
    fn what_is_broken_is_refused() {
        let good = enveloped("SelfSubjectAccessReview", &field(2, &field(2, &field(1, b"/version"))));
        assert!(to_json("SelfSubjectAccessReview", &good).is_ok());
        for cut in [0, 3, 5, good.len() - 30] {
            assert_eq!(to_json("SelfSubjectAccessReview", &good[..cut]).unwrap_err().code(), 400, "{cut}");
        }
        let mut endless = MAGIC.to_vec();
        endless.extend([0xff; 20]);
        assert_eq!(to_json("SelfSubjectAccessReview", &endless).unwrap_err().code(), 400);
        let not_text = enveloped("SelfSubjectRulesReview", &field(2, &field(1, &[0xff, 0xfe])));
        assert_eq!(to_json("SelfSubjectRulesReview", &not_text).unwrap_err().code(), 400);
    }
}
