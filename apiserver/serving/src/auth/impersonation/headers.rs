//! The `Impersonate-` headers of a request.

use http::{HeaderMap, HeaderName};
use stoa_meta::{
    request::UserInfo,
    status::{ApiError, quote},
};

use super::super::request_header::{text, unescape};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA_PREFIX: &str = "impersonate-extra-";

/// Takes the headers out and reads them; nothing when they name nobody.
/// Fails with 400 when there is no user to impersonate or a value is not UTF-8.
pub(in super::super) fn take_requested(headers: &mut HeaderMap) -> Result<Option<UserInfo>, ApiError> {
    let names: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("impersonate-")).cloned().collect();
    if names.is_empty() {
        return Ok(None);
    }
    let mut requested = UserInfo::default();
    for name in names {
        let values: Vec<_> = headers.get_all(&name).iter().cloned().collect();
        headers.remove(&name);
        for (index, value) in values.into_iter().enumerate() {
            let value = text(name.as_str(), &value).map_err(|error| ApiError::bad_request(error.to_string()))?;
            match name.as_str() {
                // The first alone counts, also when it is empty.
                USER if index == 0 => requested.name = value,
                UID if index == 0 => requested.uid = value,
                GROUP => requested.groups.push(value),
                other => {
                    if let Some(key) = other.strip_prefix(EXTRA_PREFIX) {
                        requested.extra.entry(unescape(key)).or_default().push(value);
                    }
                }
            }
        }
    }
    if !requested.name.is_empty() {
        return Ok(Some(requested));
    }
    if requested == UserInfo::default() {
        return Ok(None);
    }
    // The words are Go's for such a user.
    let list = |values: &[String]| match values {
        [] => "(nil)".to_owned(),
        values => format!("{{{}}}", values.iter().map(|value| quote(value)).collect::<Vec<_>>().join(", ")),
    };
    let extra = match requested.extra.is_empty() {
        true => "(nil)".to_owned(),
        false => {
            let pairs = requested.extra.iter().map(|(key, values)| format!("{}:[]string{}", quote(key), list(values)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
    };
    Err(ApiError::bad_request(format!(
        "requested &user.DefaultInfo{{Name:\"\", UID:{}, Groups:[]string{}, Extra:map[string][]string{extra}}} without \
         impersonating a user name",
        quote(&requested.uid),
        list(&requested.groups)
    )))
}
