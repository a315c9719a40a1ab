//! Properties of the headers of front proxies.

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use stoa_meta::request::UserInfo;

use super::{
    clear_standard_headers,
    impersonation::headers::take_requested,
    request_header::{RequestHeaderConfig, unescape},
};

/// Lines `name: value`, as headers of a front proxy and of impersonation: what is read was sent, and nothing of it is
/// left when they are cleared.
pub(crate) fn front_proxy(data: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in data.split(|byte| *byte == b'\n').take(100) {
        let (name, value) = line.iter().position(|byte| *byte == b':').map_or((line, &[][..]), |at| line.split_at(at));
        let value = HeaderValue::from_bytes(value.strip_prefix(b":").unwrap_or(value).trim_ascii());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), value) {
            headers.append(name, value);
        }
        let text = String::from_utf8_lossy(line);
        let key = utf8_percent_encode(&text, NON_ALPHANUMERIC).to_string();
        assert_eq!(unescape(&key), text, "a key that was escaped is read as it was");
        unescape(&text);
    }
    let sent: Vec<Vec<u8>> = headers.values().map(|value| value.as_bytes().to_vec()).collect();
    let was_sent = |user: &UserInfo| {
        let texts = [&user.name, &user.uid].into_iter().chain(&user.groups).chain(user.extra.values().flatten());
        texts.filter(|text| !text.is_empty()).all(|text| sent.iter().any(|value| value == text.as_bytes()))
    };
    let default = RequestHeaderConfig::default();
    if let Ok(Some(user)) = default.user(&headers) {
        assert!(!user.name.is_empty() && user.groups.iter().all(|group| !group.is_empty()), "{user:?}");
        assert!(was_sent(&user), "{user:?}");
    }
    let mut impersonating = headers.clone();
    match take_requested(&mut impersonating) {
        Ok(Some(user)) => assert!(!user.name.is_empty() && was_sent(&user), "{user:?}"),
        Ok(None) => {}
        Err(error) => assert_eq!((error.code(), error.reason()), (400, "BadRequest")),
    }
    let begins = |headers: &HeaderMap, prefix: &str| headers.keys().any(|name| name.as_str().starts_with(prefix));
    assert!(!begins(&impersonating, "impersonate-") || take_requested(&mut headers.clone()).is_err());
    clear_standard_headers(&mut headers);
    assert_eq!(default.user(&headers).ok(), Some(None));
    assert!(!begins(&headers, "x-remote-extra-"));
}
