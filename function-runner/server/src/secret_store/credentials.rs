//! The credentials of secret stores, which the API server reads from Secrets.

use std::collections::HashMap;

use bytes::Bytes;
use hyper::header::HeaderValue;

use super::invalid;
use crate::failure::Failure;

/// The keys of the Secret with the credentials of a store.
#[derive(Clone, Copy)]
pub(super) struct Credentials<'c>(pub(super) &'c HashMap<String, Bytes>);

impl Credentials<'_> {
    /// The certificate authorities; empty for those of the system.
    pub(super) fn authorities(&self) -> &[u8] {
        self.optional("ca.crt").unwrap_or_default()
    }

    pub(super) fn optional(&self, key: &str) -> Option<&[u8]> {
        self.0.get(key).map(|value| value.trim_ascii())
    }

    fn required(&self, key: &str) -> Result<&[u8], Failure> {
        let missing = || invalid(format!("the Secret of the secret store has no key {key:?}; set its secretRef"));
        self.optional(key).filter(|value| !value.is_empty()).ok_or_else(missing)
    }

    pub(super) fn text(&self, key: &str) -> Result<String, Failure> {
        self.required(key).and_then(|value| text(key, value))
    }

    pub(super) fn optional_text(&self, key: &str) -> Result<Option<String>, Failure> {
        self.optional(key).map(|value| text(key, value)).transpose()
    }

    pub(super) fn header(&self, key: &str) -> Result<HeaderValue, Failure> {
        let no_header = |_| invalid(format!("key {key:?} of the Secret of the secret store is no header value"));
        HeaderValue::from_bytes(self.required(key)?).map_err(no_header)
    }
}

fn text(key: &str, value: &[u8]) -> Result<String, Failure> {
    let no_text = |_| invalid(format!("key {key:?} of the Secret of the secret store is no text in UTF-8"));
    std::str::from_utf8(value).map(str::to_owned).map_err(no_text)
}
