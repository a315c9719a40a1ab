//! Keyed digests of sensitive values, which states hold in their place.
//!
//! Start at [`DigestKeys`]. Only a holder of the key can compare a digest with a guess. A plain digest would expose
//! short passwords to guessing.
//!
//! Elsewhere: `sensitive` decides which values are sensitive.

use std::collections::BTreeSet;
use std::fmt;

use ring::hmac;
use serde_json::{Map, Value, json};

use crate::digest::{canonical_json, hex};
use crate::object::decoded;
use crate::path::FieldPath;
use crate::spec::ResourceId;

/// The key of the map that stands in a state for a sensitive value.
pub const STATE_KEY: &str = "$sensitive";

/// A key for digests: random, and as long as the digests are.
pub type DigestKey = [u8; 32];

/// The keys of the digests in the state of one deployment.
///
/// The first key makes new digests, and all keys recognize their own. Thus a new key does not make values look changed.
#[derive(Clone)]
pub struct DigestKeys {
    first: hmac::Key,
    others: Vec<hmac::Key>,
}

/// Never shows a key.
impl fmt::Debug for DigestKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DigestKeys").field("others", &self.others.len()).finish_non_exhaustive()
    }
}

impl DigestKeys {
    /// Keys; `first` makes new digests.
    pub fn new(first: &DigestKey, others: &[DigestKey]) -> Self {
        let key = |key: &DigestKey| hmac::Key::new(hmac::HMAC_SHA256, key);
        Self { first: key(first), others: others.iter().map(key).collect() }
    }

    /// The stored form of a sensitive value: `{"$sensitive": "hmac-sha256:<64 hex digits>"}`. The digest covers the id too,
    /// so that equal secrets of two resources differ.
    pub fn mask(&self, id: &ResourceId, value: &Value) -> Value {
        keyed(&self.first, id, value)
    }

    /// All stored forms of a sensitive value, the present one first.
    pub(crate) fn masks(&self) -> impl Iterator<Item = impl Fn(&ResourceId, &Value) -> Value> {
        let keys = std::iter::once(&self.first).chain(&self.others);
        keys.map(|key| move |id: &ResourceId, value: &Value| keyed(key, id, value))
    }

    /// Whether `mask` is the stored form of this value, or of its base64-decoded text, as for `stringData` of a Secret.
    pub fn is_mask_of(&self, id: &ResourceId, mask: &Value, value: &Value) -> bool {
        let text = value.as_str().and_then(decoded).map(Value::from);
        let values = [Some(value), text.as_ref()];
        self.masks().any(|masked| values.iter().flatten().any(|value| masked(id, value) == *mask))
    }

    /// Whether `recorded` is the stored form of this value, with any parts masked.
    pub(crate) fn is_record_of(&self, id: &ResourceId, recorded: &Value, value: &Value) -> bool {
        match (recorded, value) {
            _ if recorded == value => true,
            _ if is_masked(recorded) => self.is_mask_of(id, recorded, value),
            (Value::Object(recorded), Value::Object(map)) => {
                let is_same = |(key, recorded): (&String, &Value)| {
                    map.get(key).is_some_and(|value| self.is_record_of(id, recorded, value))
                };
                recorded.len() == map.len() && recorded.iter().all(is_same)
            }
            (Value::Array(recorded), Value::Array(items)) => {
                let mut pairs = recorded.iter().zip(items);
                recorded.len() == items.len() && pairs.all(|(recorded, item)| self.is_record_of(id, recorded, item))
            }
            _ => false,
        }
    }
}

fn keyed(key: &hmac::Key, id: &ResourceId, value: &Value) -> Value {
    let mut context = hmac::Context::with_key(key);
    for part in [id.0.as_bytes(), b"\0", &canonical_json(value)] {
        context.update(part);
    }
    json!({ STATE_KEY: format!("hmac-sha256:{}", hex(context.sign().as_ref())) })
}

/// Whether a value is the stored form of a sensitive value.
pub fn is_masked(value: &Value) -> bool {
    value.as_object().is_some_and(|map| map.len() == 1 && map.contains_key(STATE_KEY))
}

/// The masked paths of an object. A list counts as a whole, since its items may be reordered.
pub(crate) fn masked_paths(object: &Map<String, Value>) -> BTreeSet<FieldPath> {
    fn visit(object: &Map<String, Value>, at: &FieldPath, found: &mut BTreeSet<FieldPath>) {
        for (key, value) in object {
            match value {
                Value::Object(map) if !is_masked(value) => visit(map, &at.key(key), found),
                _ if contains_mask(value) => drop(found.insert(at.key(key))),
                _ => {}
            }
        }
    }
    let mut found = BTreeSet::new();
    visit(object, &FieldPath::default(), &mut found);
    found
}

/// The masks of an object and nothing else. Lists stay whole, since their items are identified by other fields. Digests are
/// removed.
pub(crate) fn only_masks(object: &Map<String, Value>) -> Map<String, Value> {
    let masked = object.iter().filter(|(_, value)| contains_mask(value));
    let kept = masked.map(|(key, value)| match value {
        Value::Object(map) if !is_masked(value) => (key.clone(), Value::Object(only_masks(map))),
        _ => (key.clone(), blank(value)),
    });
    kept.collect()
}

/// A value with the digests of its masks left out.
pub(crate) fn blank(value: &Value) -> Value {
    match value {
        _ if is_masked(value) => json!({ STATE_KEY: "" }),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), blank(value))).collect(),
        Value::Array(items) => items.iter().map(blank).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Whether a value is or contains a mask.
pub fn contains_mask(value: &Value) -> bool {
    is_masked(value)
        || match value {
            Value::Object(map) => map.values().any(contains_mask),
            Value::Array(items) => items.iter().any(contains_mask),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(mask: &Value) -> &str {
        mask[STATE_KEY].as_str().unwrap()
    }

    #[test]
    fn digests_depend_on_resource_key_and_value() {
        let (value, keys) = (json!("hunter2"), DigestKeys::new(&[1; 32], &[]));
        assert_eq!(keys.mask(&"a".into(), &value), keys.mask(&"a".into(), &value));
        assert_ne!(keys.mask(&"a".into(), &value), keys.mask(&"b".into(), &value));
        assert_ne!(keys.mask(&"a".into(), &value), DigestKeys::new(&[2; 32], &[]).mask(&"a".into(), &value));
        assert!(is_masked(&keys.mask(&"a".into(), &value)));
    }

    #[test]
    fn digest_is_hmac_sha256_of_id_and_value() {
        // printf 'a\0"hunter2"' | openssl dgst -sha256 -mac HMAC -macopt hexkey:$(printf '01%.0s' {1..32})
        let keys = DigestKeys::new(&[1; 32], &[]);
        let expected = "hmac-sha256:ebaadf91e21dd6ffc226eaf12024da94097e8c6f8976206d4037f9ec18fa42e3";
        assert_eq!(text(&keys.mask(&"a".into(), &json!("hunter2"))), expected);
    }

    #[test]
    fn value_is_recognized_with_every_key() {
        let (id, old) = ("a".into(), DigestKeys::new(&[1; 32], &[]));
        let keys = DigestKeys::new(&[2; 32], &[[1; 32]]);
        for mask in [keys.mask(&id, &json!("hunter2")), old.mask(&id, &json!("hunter2"))] {
            assert!(
                keys.is_mask_of(&id, &mask, &json!("hunter2")) && keys.is_mask_of(&id, &mask, &json!("aHVudGVyMg=="))
            );
            assert!(
                !keys.is_mask_of(&id, &mask, &json!("hunter3"))
                    && !keys.is_mask_of(&"b".into(), &mask, &json!("hunter2"))
            );
        }
        assert!(!old.is_mask_of(&id, &keys.mask(&id, &json!("hunter2")), &json!("hunter2")), "it has not that key");
    }

    #[test]
    fn masks_are_kept_without_digests() {
        let (id, keys) = ("a".into(), DigestKeys::new(&[1; 32], &[]));
        let (old, new) =
            (DigestKeys::new(&[2; 32], &[]).mask(&id, &json!("hunter2")), keys.mask(&id, &json!("hunter2")));
        let object = json!({"kind": "Pod", "data": {"pw": old, "plain": "x"}, "whole": new, "args": ["a"],
            "env": [{"name": "A", "value": "a"}, {"name": "PW", "value": new}]});
        let blank = json!({ STATE_KEY: "" });
        let kept = json!({"data": {"pw": blank}, "whole": blank,
            "env": [{"name": "A", "value": "a"}, {"name": "PW", "value": blank}]});
        assert!(contains_mask(&kept));
        assert_eq!(Value::Object(only_masks(object.as_object().unwrap())), kept);
    }

    #[test]
    fn keys_are_not_shown() {
        assert_eq!(format!("{:?}", DigestKeys::new(&[42; 32], &[[43; 32]])), "DigestKeys { others: 1, .. }");
    }
}
