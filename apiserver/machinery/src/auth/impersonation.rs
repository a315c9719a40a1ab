//! Acting as another user, for requests that reach this server directly.
//!
//! Behind the aggregation layer the kube-apiserver has done it already and sends no such headers on.

use http::{HeaderMap, HeaderName};

use super::{
    Attributes,
    authenticator::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED},
    request_header::{text, unescape},
};
use crate::{
    auth::{Authorizer, Decision, forbidden},
    request::UserInfo,
    status::{ApiError, quote},
};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA_PREFIX: &str = "impersonate-extra-";

/// Whom the request wants to act as, each part allowed to `user` by the verb `impersonate`; `None` when it wants
/// nobody else. The headers are removed.
///
/// Follows `WithImpersonation` in `k8s.io/apiserver/pkg/endpoints/filters/impersonation`.
///
/// # Errors
///
/// 400 when there is no user to impersonate or a value is not UTF-8; 403 when a part is not allowed; what the
/// authorizer fails with.
pub async fn impersonate(
    headers: &mut HeaderMap,
    user: &UserInfo,
    authorizer: &dyn Authorizer,
) -> Result<Option<UserInfo>, ApiError> {
    let Some(requested) = take_requested(headers)? else { return Ok(None) };
    let may = async |attributes: Attributes| {
        let attributes = Attributes { verb: "impersonate".to_owned(), ..attributes };
        match authorizer.authorize(user, &attributes).await? {
            Decision::Allow => Ok(()),
            Decision::Deny(reason) => Err(forbidden(user, &attributes, &reason)),
        }
    };
    let core = |resource: &str, name: &str| Attributes {
        resource: resource.to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    };
    let authentication = |resource: &str, name: &str| Attributes {
        group: "authentication.k8s.io".to_owned(),
        version: "v1".to_owned(),
        ..core(resource, name)
    };

    let mut groups = requested.groups.clone();
    match service_account(&requested.name) {
        Some((namespace, name)) => {
            may(Attributes { namespace: namespace.to_owned(), ..core("serviceaccounts", name) }).await?;
            if groups.is_empty() {
                groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
            }
        }
        None => may(core("users", &requested.name)).await?,
    }
    for group in &requested.groups {
        may(core("groups", group)).await?;
    }
    for (key, values) in &requested.extra {
        for value in values {
            may(Attributes { subresource: key.clone(), ..authentication("userextras", value) }).await?;
        }
    }
    if !requested.uid.is_empty() {
        may(authentication("uids", &requested.uid)).await?;
    }

    let has = |group: &str| groups.iter().any(|g| g == group);
    if requested.name == ANONYMOUS {
        if !has(UNAUTHENTICATED) {
            groups.push(UNAUTHENTICATED.to_owned());
        }
    } else if !has(AUTHENTICATED) && !has(UNAUTHENTICATED) {
        groups.push(AUTHENTICATED.to_owned());
    }
    Ok(Some(UserInfo { groups, ..requested }))
}

/// Takes the headers out and reads them.
fn take_requested(headers: &mut HeaderMap) -> Result<Option<UserInfo>, ApiError> {
    let names: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("impersonate-")).cloned().collect();
    if names.is_empty() {
        return Ok(None);
    }
    let mut requested = UserInfo::default();
    for name in names {
        let values: Vec<_> = headers.get_all(&name).iter().cloned().collect();
        headers.remove(&name);
        for value in values {
            let value = text(name.as_str(), &value).map_err(|error| ApiError::bad_request(error.to_string()))?;
            match name.as_str() {
                USER if requested.name.is_empty() => requested.name = value,
                UID if requested.uid.is_empty() => requested.uid = value,
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

/// The namespace and name in `system:serviceaccount:<namespace>:<name>`.
fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let label = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b))
    };
    (label(namespace) && label(name)).then_some((namespace, name))
}

#[cfg(test)]
#[path = "impersonation_tests.rs"]
mod tests;
