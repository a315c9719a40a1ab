//! Values as conflicts and differences show them: those of Secrets masked, and long ones without their end.

use serde_json::Value;
use stoa_engine::FieldPath;
use stoa_engine::path::Segment;
use stoa_engine::sensitive::MASK;

use crate::resources::Resource;

/// The size of a value in a text for people, in characters.
const SHOWN: usize = 200;

/// The fields of a Secret whose values nobody else may read.
const SECRET_FIELDS: [&str; 2] = ["data", "stringData"];

/// A value as JSON, without its end if it is long.
pub(crate) fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}... ({} bytes)", &text[..end], text.len()),
        None => text,
    }
}

/// Whether an object is a v1 Secret, in which [`mask`] masks values.
pub(crate) fn has_secrets(resource: &Resource) -> bool {
    resource.kind() == "Secret" && resource.api_version() == "v1"
}

/// Masks the secret values in a value that a Secret has at this field. Whether they differ is no longer visible then.
pub(crate) fn mask(field: &FieldPath, value: &mut Value) {
    match field.0.first() {
        None => {
            for name in SECRET_FIELDS {
                value.get_mut(name).into_iter().for_each(mask_leaves);
            }
        }
        Some(Segment::Key(key)) if SECRET_FIELDS.contains(&key.as_str()) => mask_leaves(value),
        Some(_) => {}
    }
}

fn mask_leaves(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(mask_leaves),
        Value::Array(items) => items.iter_mut().for_each(mask_leaves),
        Value::Null => {}
        leaf => *leaf = MASK.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_secrets_are_masked() {
        for (field, value, expected) in [
            ("", json!({"data": {"a": "eA=="}, "type": "x"}), json!({"data": {"a": MASK}, "type": "x"})),
            ("data", json!({"a": "eA==", "b": null}), json!({"a": MASK, "b": null})),
            ("data.a", json!("eA=="), json!(MASK)),
            ("stringData.a", json!(["x", {"b": 1}]), json!([MASK, {"b": MASK}])),
            ("metadata.labels", json!({"data": "x"}), json!({"data": "x"})),
        ] {
            let mut masked = value;
            let keys = field.split('.').filter(|key| !key.is_empty());
            mask(&FieldPath(keys.map(|key| Segment::Key(key.to_owned())).collect()), &mut masked);
            assert_eq!(masked, expected, "{field}");
        }
    }

    #[test]
    fn long_values_lose_their_end() {
        let text = shown(&"x".repeat(300).into());
        assert_eq!(text, format!("\"{}... (302 bytes)", "x".repeat(199)));
    }
}
