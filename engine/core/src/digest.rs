//! Canonical JSON and its digests: equal documents have equal digests, however they were written.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The JSON of a value with sorted keys and no whitespace.
///
/// # Panics
///
/// When the value has no JSON form, such as a map with keys that are not text. None of the types here is like that.
pub fn canonical_json<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    let value = serde_json::to_value(value).expect("documents of the engine are JSON");
    let mut out = Vec::with_capacity(256);
    write_canonical(&value, &mut out);
    out
}

/// The digest of the canonical JSON: `sha256:<64 hex digits>`.
pub fn digest<T: Serialize + ?Sized>(value: &T) -> String {
    digest_bytes(&[&canonical_json(value)])
}

/// The digest of bytes, as `sha256:<64 hex digits>`.
pub fn digest_bytes(parts: &[&[u8]]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    format!("sha256:{}", hex(&hasher.finalize()))
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(text, "{byte:02x}").expect("writing to a string");
    }
    text
}

fn write_canonical(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Object(map) => {
            // Sorted here rather than by the map, whose order depends on a feature of serde_json that any crate may
            // enable.
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
            out.push(b'{');
            for (position, (key, value)) in entries.into_iter().enumerate() {
                if position > 0 {
                    out.push(b',');
                }
                write_scalar(key, out);
                out.push(b':');
                write_canonical(value, out);
            }
            out.push(b'}');
        }
        Value::Array(items) => {
            out.push(b'[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    out.push(b',');
                }
                write_canonical(item, out);
            }
            out.push(b']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => write_scalar(value, out),
    }
}

fn write_scalar<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("a scalar is JSON, and memory takes it");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn canonical_json_sorts_keys_without_whitespace() {
        let value: Value = serde_json::from_str(r#"{ "b": [1, {"z": null, "a": "é\n"}], "a": true }"#).unwrap();
        assert_eq!(String::from_utf8(canonical_json(&value)).unwrap(), r#"{"a":true,"b":[1,{"a":"é\n","z":null}]}"#);
    }

    #[test]
    fn digest_is_of_canonical_bytes() {
        // printf '{}' | sha256sum
        assert_eq!(digest(&json!({})), "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
    }
}
