//! Objects whose values SOPS encrypted, so that they are in no repository in the open.
//!
//! Source: the format of files of SOPS (`getsops/sops`, `aes/cipher.go` and `stores`): a block `sops` beside what is encrypted,
//! and `ENC[AES256_GCM,data:…,type:…]` in the place of each value.

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

/// Whether a value stands for one that SOPS encrypted.
pub fn is_ciphertext(value: &Value) -> bool {
    let text = value.as_str().unwrap_or_default();
    text.starts_with("ENC[AES256_GCM,data:") && text.ends_with(']')
}

/// Where an encrypted object has ciphertext: values of any type stand there as text. None of others.
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
    fn ciphertext_of_an_encrypted_secret_is_not_sensitive() {
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
