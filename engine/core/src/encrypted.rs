//! Objects that SOPS encrypted, so that their values are not sensitive in a repository.
//!
//! Source: the file format of SOPS (`getsops/sops`, `aes/cipher.go` and `stores`): a block `sops` beside the encrypted
//! fields, and `ENC[AES256_GCM,data:…,type:…]` in place of each value.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::path::{FieldPath, Segment};

/// The field with the keys and the checksum of an encrypted file, which is no field of the object.
pub const SOPS: &str = "sops";

/// Whether SOPS encrypted an object.
pub fn is_encrypted(object: &Map<String, Value>) -> bool {
    let block = object.get(SOPS).and_then(Value::as_object);
    block.is_some_and(|block| block.get("mac").is_some_and(Value::is_string) && block.contains_key("version"))
}

/// Whether a value is SOPS ciphertext.
pub fn is_ciphertext(value: &Value) -> bool {
    let text = value.as_str().unwrap_or_default();
    text.starts_with("ENC[AES256_GCM,data:") && text.ends_with(']')
}

/// The paths of ciphertext in an encrypted object, which has text in place of any type; empty for other objects.
pub fn ciphertexts(object: &Map<String, Value>) -> BTreeSet<FieldPath> {
    fn gather(value: &Value, at: &mut FieldPath, found: &mut BTreeSet<FieldPath>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| {
                at.0.push(Segment::Key(key.clone()));
                gather(value, at, found);
                at.0.pop();
            }),
            Value::Array(items) => items.iter().enumerate().for_each(|(index, value)| {
                at.0.push(Segment::Index(index));
                gather(value, at, found);
                at.0.pop();
            }),
            Value::String(_) if is_ciphertext(value) => drop(found.insert(at.clone())),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut found = BTreeSet::new();
    if is_encrypted(object) {
        for (key, value) in object.iter().filter(|(key, _)| *key != SOPS) {
            gather(value, &mut FieldPath::of_keys([key]), &mut found);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sensitive::inherent;

    fn secret(sops: Value) -> Map<String, Value> {
        let value = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "sops": sops,
            "data": {"encrypted": "ENC[AES256_GCM,data:qX0=,iv:aa=,tag:bb=,type:str]", "plain": "YQ=="}});
        value.as_object().unwrap().clone()
    }

    #[test]
    fn encrypted_secret_is_not_sensitive() {
        let encrypted = secret(json!({"mac": "ENC[AES256_GCM,data:x]", "version": "3.9.0"}));
        let data = |key: &str| FieldPath::of_keys(["data", key]);
        assert_eq!(ciphertexts(&encrypted), [data("encrypted")].into());
        assert_eq!(inherent(&encrypted), [data("plain")].into());
        // Anybody can write such a text.
        for sops in [json!(null), json!({}), json!({"mac": 1, "version": "3.9.0"})] {
            let object = secret(sops);
            assert!(ciphertexts(&object).is_empty());
            assert_eq!(inherent(&object).len(), 2);
        }
    }
}
