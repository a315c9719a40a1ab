//! The front proxy: kube-apiserver's aggregation layer, which authenticated the user and says so in headers.
//!
//! The headers are believed only when the connection's own certificate verifies against the request-header CA and
//! its common name is allowed. In every other case they are removed unread.

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use http::{HeaderMap, HeaderName, HeaderValue};
use rustls::DistinguishedName;
use stoa_meta::request::UserInfo;

use super::{
    authenticator::{AuthenticationError, Authenticator, Credentials},
    certificates::DynamicCa,
};

/// Which headers carry what, and which proxies may send them. Names are compared without case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeaderConfig {
    /// Headers with the user's name; the first that is not empty counts.
    pub username_headers: Vec<String>,
    /// Headers with the user's uid; the first that is not empty counts.
    pub uid_headers: Vec<String>,
    /// Headers with groups; all values of all count.
    pub group_headers: Vec<String>,
    /// Prefixes of headers whose rest is the key of an extra, percent-encoded.
    pub extra_prefixes: Vec<String>,
    /// The common names of proxies that are believed; empty for every certificate of the CA.
    pub allowed_names: Vec<String>,
}

impl Default for RequestHeaderConfig {
    /// The standard headers, `X-Remote-User` and so on, from every proxy of the CA.
    fn default() -> Self {
        Self {
            username_headers: vec!["x-remote-user".to_owned()],
            uid_headers: vec!["x-remote-uid".to_owned()],
            group_headers: vec!["x-remote-group".to_owned()],
            extra_prefixes: vec!["x-remote-extra-".to_owned()],
            allowed_names: Vec::new(),
        }
    }
}

impl RequestHeaderConfig {
    pub(super) fn clear(&self, headers: &mut HeaderMap) {
        for name in self.username_headers.iter().chain(&self.uid_headers).chain(&self.group_headers) {
            headers.remove(name.as_str());
        }
        let extras: Vec<HeaderName> = headers.keys().filter(|name| self.extra_key(name).is_some()).cloned().collect();
        for name in extras {
            headers.remove(name);
        }
    }

    pub(super) fn user(&self, headers: &HeaderMap) -> Result<Option<UserInfo>, AuthenticationError> {
        let Some(name) = first(headers, &self.username_headers)? else { return Ok(None) };
        let mut groups = Vec::new();
        for header in &self.group_headers {
            for value in headers.get_all(header.as_str()) {
                groups.push(text(header, value)?);
            }
        }
        groups.retain(|group| !group.is_empty());
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (header, value) in headers {
            if let Some(key) = self.extra_key(header) {
                extra.entry(unescape(key)).or_default().push(text(header.as_str(), value)?);
            }
        }
        let uid = first(headers, &self.uid_headers)?.unwrap_or_default();
        Ok(Some(UserInfo { name, uid, groups, extra }))
    }

    /// The rest of the name of a header with an extra; `http` keeps names in lower case.
    fn extra_key<'a>(&self, header: &'a HeaderName) -> Option<&'a str> {
        self.extra_prefixes.iter().find_map(|prefix| {
            let (start, rest) = header.as_str().split_at_checked(prefix.len())?;
            start.eq_ignore_ascii_case(prefix).then_some(rest)
        })
    }
}

/// Removes the standard front-proxy headers, whoever sent them.
pub(crate) fn clear_standard_headers(headers: &mut HeaderMap) {
    if headers.keys().any(|name| name.as_str().starts_with("x-remote-")) {
        RequestHeaderConfig::default().clear(headers);
    }
}

/// Believes the headers of allowed front proxies.
#[derive(Debug)]
pub struct RequestHeader {
    ca: Arc<DynamicCa>,
    config: Arc<ArcSwap<RequestHeaderConfig>>,
}

impl RequestHeader {
    /// Believes proxies that `ca` vouches for and `config` allows; both may change at any time.
    pub fn new(ca: Arc<DynamicCa>, config: Arc<ArcSwap<RequestHeaderConfig>>) -> Self {
        Self { ca, config }
    }
}

#[async_trait]
impl Authenticator for RequestHeader {
    async fn authenticate(&self, credentials: Credentials<'_>) -> Result<Option<UserInfo>, AuthenticationError> {
        let Some(certificates) = credentials.certificates else { return Ok(None) };
        let Some(verified) = self.ca.verify(certificates) else { return Ok(None) };
        verified?;
        let config = self.config.load();
        let name = &certificates.subject()?.common_name;
        if !config.allowed_names.is_empty() && !config.allowed_names.contains(name) {
            return Err(AuthenticationError::ProxyNotAllowed { name: name.clone() });
        }
        config.user(credentials.headers)
    }

    fn clear(&self, headers: &mut HeaderMap) {
        self.config.load().clear(headers);
    }

    fn authorities(&self) -> Vec<DistinguishedName> {
        self.ca.subjects()
    }
}

fn first(headers: &HeaderMap, names: &[String]) -> Result<Option<String>, AuthenticationError> {
    for name in names {
        if let Some(value) = headers.get(name.as_str())
            && !value.is_empty()
        {
            return text(name, value).map(Some);
        }
    }
    Ok(None)
}

/// A header's value as Go reads it: bytes that are UTF-8.
pub(crate) fn text(name: &str, value: &HeaderValue) -> Result<String, AuthenticationError> {
    String::from_utf8(value.as_bytes().to_vec())
        .map_err(|_| AuthenticationError::MalformedHeader { name: name.to_lowercase() })
}

/// The key of an extra: percent-decoded, or as it is when that cannot be done; Go's `url.PathUnescape`.
pub(crate) fn unescape(key: &str) -> String {
    let bytes = key.as_bytes();
    let well_formed = bytes
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'%')
        .all(|(at, _)| bytes.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)));
    if !well_formed {
        return key.to_owned();
    }
    percent_encoding::percent_decode_str(key).decode_utf8().map_or_else(|_| key.to_owned(), Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    #[test]
    fn user_uid_groups_and_extras_are_read() {
        let headers = headers(&[
            ("x-remote-user", "änn"),
            ("x-remote-uid", "42"),
            ("x-remote-group", "a"),
            ("x-remote-group", ""),
            ("x-remote-group", "b"),
            ("x-remote-extra-example.com%2fscope", "one"),
            ("x-remote-extra-example.com%2Fscope", "two"),
            ("x-remote-extra-bad%zz%41", "kept"),
            ("x-remote-other", "no"),
        ]);
        let user = RequestHeaderConfig::default().user(&headers).unwrap().unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("änn", "42"));
        assert_eq!(user.groups, ["a", "b"]);
        let extra: Vec<_> = user.extra.iter().map(|(key, values)| (key.as_str(), values.join("+"))).collect();
        assert_eq!(extra, [("bad%zz%41", "kept".to_owned()), ("example.com/scope", "one+two".to_owned())]);
    }

    #[test]
    fn headers_without_a_user_name_nobody() {
        let headers = headers(&[("x-remote-group", "system:masters"), ("x-remote-user", "")]);
        assert_eq!(RequestHeaderConfig::default().user(&headers).unwrap(), None);
    }

    #[test]
    fn first_nonempty_header_names_user() {
        let config = RequestHeaderConfig {
            username_headers: vec!["X-First".to_owned(), "X-Second".to_owned()],
            ..RequestHeaderConfig::default()
        };
        let user = config.user(&headers(&[("x-first", ""), ("x-second", "ann")])).unwrap().unwrap();
        assert_eq!(user.name, "ann");
    }

    #[test]
    fn a_name_that_is_not_utf8_is_an_error() {
        let mut headers = HeaderMap::new();
        headers.insert("x-remote-user", HeaderValue::from_bytes(b"\xff").unwrap());
        let error = RequestHeaderConfig::default().user(&headers).unwrap_err();
        assert_eq!(error.to_string(), "the header x-remote-user is not UTF-8");
    }

    #[test]
    fn all_of_the_headers_are_removed_and_no_others() {
        let mut headers = headers(&[
            ("x-remote-user", "ann"),
            ("x-remote-uid", "1"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-a", "1"),
            ("x-remote-extra-b", "1"),
            ("accept", "x"),
        ]);
        clear_standard_headers(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    }
}
