//! What Stoa keeps in etcd, past Stoa.

use std::collections::BTreeMap;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use crate::caller::Caller;

/// Where the log keeps the values of its keys.
const DATA: &str = "/stoa/log/data";

/// Reads and writes values by the keys that they have in the log, such as `/registry/config.stoa.dev/sources/shop/config`,
/// in the JSON that etcd takes in the place of gRPC.
#[derive(Clone)]
pub struct Etcd(Caller);

impl Etcd {
    pub(crate) fn new(caller: Caller) -> Self {
        Self(caller)
    }

    async fn ask(&self, what: &str, body: &Value) -> Value {
        let answer = self.0.ask("POST", &format!("/v3/kv/{what}"), &[("content-type", "application/json")], body).await;
        assert_eq!(answer.code, 200, "{answer:?}");
        answer.body
    }

    /// Writes a value.
    pub async fn put(&self, key: &str, value: &[u8]) {
        let key = format!("{DATA}{key}");
        self.ask("put", &json!({"key": BASE64_STANDARD.encode(key), "value": BASE64_STANDARD.encode(value)})).await;
    }

    /// Reads a value.
    pub async fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.below(key).await.remove(key)
    }

    /// Whether what there was at a version cannot be read any more.
    pub async fn has_let_go_of(&self, version: u64) -> bool {
        let at = json!({"key": BASE64_STANDARD.encode(DATA), "revision": version.to_string()});
        let answer = self.0.ask("POST", "/v3/kv/range", &[("content-type", "application/json")], &at).await;
        assert!(answer.code == 200 || answer.message().contains("compacted"), "{answer:?}");
        answer.code != 200
    }

    /// Reads all values whose keys begin with this.
    pub async fn below(&self, prefix: &str) -> BTreeMap<String, Vec<u8>> {
        let from = format!("{DATA}{prefix}");
        // The first key that is behind all of them: its last byte is the next one.
        let mut to = from.clone().into_bytes();
        *to.last_mut().expect("it is not empty") += 1;
        let range = json!({"key": BASE64_STANDARD.encode(&from), "range_end": BASE64_STANDARD.encode(to)});
        let found = self.ask("range", &range).await;
        let decoded =
            |entry: &Value, field: &str| BASE64_STANDARD.decode(entry[field].as_str().unwrap_or_default()).unwrap();
        let entries = found["kvs"].as_array().map(Vec::as_slice).unwrap_or_default().iter().map(|entry| {
            let key = String::from_utf8(decoded(entry, "key")).unwrap();
            (key[DATA.len()..].to_owned(), decoded(entry, "value"))
        });
        entries.collect()
    }
}
