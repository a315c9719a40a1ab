//! The authenticator of requests, and the union of several.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use http::{HeaderMap, header};
use rustls::DistinguishedName;
use stoa_meta::request::UserInfo;

use super::{certificates::PeerCertificates, delegate::DelegateError};

/// The name of a user nobody knows.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of everybody who showed who they are.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of everybody else.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";

/// What a request shows of its sender.
#[derive(Clone, Copy, Debug)]
pub struct Credentials<'a> {
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// The certificates presented in the TLS handshake, whose private key the sender holds. Nobody has looked at
    /// who signed them.
    pub certificates: Option<&'a PeerCertificates>,
}

/// Why credentials that were shown are not believed. The client hears 401; the rest is for the log.
#[derive(Debug, thiserror::Error)]
pub enum AuthenticationError {
    /// No CA of ours signed the certificate, or it has expired, or it is not for clients.
    #[error("the client certificate does not verify against the {ca}")]
    Certificate {
        /// Which CA was asked for.
        ca: &'static str,
        /// What is wrong with it.
        source: rustls::Error,
    },
    /// The certificate cannot be read.
    #[error("the client certificate cannot be read")]
    MalformedCertificate,
    /// The certificate has more than one UID, or one that is empty or no text.
    #[error("the client certificate has a UID that cannot be read, or several")]
    UntoldUid,
    /// The front proxy's certificate is good, but not of a proxy that is allowed.
    #[error("the common name {name:?} is not one of the allowed front proxies")]
    ProxyNotAllowed {
        /// The certificate's common name.
        name: String,
    },
    /// A header that says who asks is not UTF-8.
    #[error("the header {name} is not UTF-8")]
    MalformedHeader {
        /// The header's name, lower case.
        name: String,
    },
    /// The bearer token is nobody's.
    #[error("invalid bearer token{}", if reason.is_empty() { String::new() } else { format!(": {reason}") })]
    InvalidToken {
        /// What the reviewer said, or empty.
        reason: String,
    },
    /// The token could not be reviewed.
    #[error("the bearer token could not be reviewed")]
    Review(#[from] DelegateError),
    /// Every way that was tried failed.
    #[error("{}", .0.iter().map(|error| stoa_meta::errors::chain(error)).collect::<Vec<_>>().join("; "))]
    All(Vec<AuthenticationError>),
}

/// One way of showing who asks.
#[async_trait]
pub trait Authenticator: fmt::Debug + Send + Sync + 'static {
    /// Says who asks; `None` when this kind of credentials was not shown.
    /// Fails with [`AuthenticationError`] when it was shown and is not believed. The request then gets a 401, unless
    /// another kind of credentials is believed.
    async fn authenticate(&self, credentials: Credentials<'_>) -> Result<Option<UserInfo>, AuthenticationError>;

    /// Removes from the headers what this authenticator reads, so that nothing behind it sees credentials.
    fn clear(&self, _headers: &mut HeaderMap) {}

    /// The names of the authorities whose client certificates it looks at. They are told to clients, of which Go's show
    /// no certificate of any other.
    fn authorities(&self) -> Vec<DistinguishedName> {
        Vec::new()
    }
}

/// Several ways, tried in order: the first that knows the user decides, even if an earlier one failed.
///
/// Users get the group `system:authenticated`. Follows `union.New` and `group.NewAuthenticatedGroupAdder` upstream.
#[derive(Debug)]
pub struct Union(Vec<Arc<dyn Authenticator>>);

impl Union {
    /// Joins authenticators; upstream's order is request header, client certificate, bearer token.
    pub fn new(authenticators: Vec<Arc<dyn Authenticator>>) -> Self {
        Self(authenticators)
    }
}

#[async_trait]
impl Authenticator for Union {
    async fn authenticate(&self, credentials: Credentials<'_>) -> Result<Option<UserInfo>, AuthenticationError> {
        let mut errors = Vec::new();
        for authenticator in &self.0 {
            match authenticator.authenticate(credentials).await {
                Ok(Some(mut user)) => {
                    let known = user.in_group(AUTHENTICATED) || user.in_group(UNAUTHENTICATED);
                    if !known && user.name != ANONYMOUS {
                        user.groups.push(AUTHENTICATED.to_owned());
                    }
                    return Ok(Some(user));
                }
                Ok(None) => {}
                Err(error) => errors.push(error),
            }
        }
        match errors.len() {
            0 => Ok(None),
            1 => Err(errors.remove(0)),
            _ => Err(AuthenticationError::All(errors)),
        }
    }

    fn clear(&self, headers: &mut HeaderMap) {
        for authenticator in &self.0 {
            authenticator.clear(headers);
        }
    }

    fn authorities(&self) -> Vec<DistinguishedName> {
        self.0.iter().flat_map(|authenticator| authenticator.authorities()).collect()
    }
}

/// Lets whoever shows no credentials in as `system:anonymous`; wrong credentials stay wrong.
#[derive(Debug)]
pub struct OrAnonymous<A>(pub A);

#[async_trait]
impl<A: Authenticator> Authenticator for OrAnonymous<A> {
    async fn authenticate(&self, credentials: Credentials<'_>) -> Result<Option<UserInfo>, AuthenticationError> {
        let user = self.0.authenticate(credentials).await?;
        Ok(Some(user.unwrap_or_else(|| UserInfo {
            name: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..UserInfo::default()
        })))
    }

    fn clear(&self, headers: &mut HeaderMap) {
        self.0.clear(headers);
    }

    fn authorities(&self) -> Vec<DistinguishedName> {
        self.0.authorities()
    }
}

/// The token of an `Authorization: Bearer` header, if there is one. One that is no text is a token too, though nobody's.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Option<String> {
    let value = String::from_utf8_lossy(headers.get(header::AUTHORIZATION)?.as_bytes());
    let (scheme, token) = value.trim().split_once(' ')?;
    // What follows a second blank is ignored, as upstream ignores it.
    let token = token.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}

/// Whether a token stands behind two blanks, which makes it none: what is between them counts for the token.
pub(crate) fn has_blank_before_token(headers: &HeaderMap) -> bool {
    let value = headers.get(header::AUTHORIZATION).map_or(&[][..], http::HeaderValue::as_bytes);
    let value = String::from_utf8_lossy(value);
    let scheme = value.trim().split_once("  ").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers the same, whoever asks.
    #[derive(Debug)]
    struct Fixed(Result<Option<UserInfo>, ()>);

    #[async_trait]
    impl Authenticator for Fixed {
        async fn authenticate(&self, _: Credentials<'_>) -> Result<Option<UserInfo>, AuthenticationError> {
            self.0.clone().map_err(|()| AuthenticationError::InvalidToken { reason: String::new() })
        }
    }

    fn user(name: &str, groups: &[&str]) -> UserInfo {
        UserInfo {
            name: name.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            ..UserInfo::default()
        }
    }

    async fn ask(ways: Vec<Result<Option<UserInfo>, ()>>) -> Result<UserInfo, String> {
        let ways = ways.into_iter().map(|way| Arc::new(Fixed(way)) as Arc<dyn Authenticator>).collect();
        let all = OrAnonymous(Union::new(ways));
        let headers = HeaderMap::new();
        let found = all.authenticate(Credentials { headers: &headers, certificates: None }).await;
        found.map(Option::unwrap).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn first_authenticator_with_user_decides_despite_failure() {
        let found = ask(vec![Ok(None), Err(()), Ok(Some(user("ann", &["dev"]))), Ok(Some(user("bob", &[])))]).await;
        assert_eq!(found, Ok(user("ann", &["dev", AUTHENTICATED])));
    }

    #[tokio::test]
    async fn wrong_credentials_are_not_anonymous_and_none_are() {
        assert_eq!(ask(vec![Ok(None), Err(())]).await, Err("invalid bearer token".to_owned()));
        assert_eq!(ask(vec![Err(()), Err(())]).await, Err("invalid bearer token; invalid bearer token".to_owned()));
        assert_eq!(ask(vec![Ok(None)]).await, Ok(user(ANONYMOUS, &[UNAUTHENTICATED])));
    }

    #[tokio::test]
    async fn proxied_user_retains_its_authentication_group() {
        let found = ask(vec![Ok(Some(user("proxied", &[UNAUTHENTICATED])))]).await;
        assert_eq!(found, Ok(user("proxied", &[UNAUTHENTICATED])));
        let found = ask(vec![Ok(Some(user(ANONYMOUS, &[])))]).await;
        assert_eq!(found, Ok(user(ANONYMOUS, &[])));
    }

    #[test]
    fn bearer_tokens_are_found_as_upstream_finds_them() {
        let check = |value: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, http::HeaderValue::from_bytes(value).unwrap());
            bearer_token(&headers)
        };
        assert_eq!(check(b"Bearer abc").as_deref(), Some("abc"));
        assert_eq!(check(b" bearer abc extra").as_deref(), Some("abc"));
        assert_eq!(check("Bearer ü".as_bytes()).as_deref(), Some("ü"));
        assert_eq!(check(b"Bearer \xff").as_deref(), Some("\u{fffd}"));
        assert_eq!(check(b"Bearer "), None);
        assert_eq!(check(b"Basic abc"), None);
        assert_eq!(check(b"Bearer"), None);
        assert_eq!(check(b"Bearer  abc"), None);
    }

    #[test]
    fn token_behind_two_blanks_is_told_from_none() {
        for (value, expected) in [
            ("Bearer  abc", true),
            (" bearer   abc", true),
            ("Bearer abc  d", false),
            ("Bearer  ", false),
            ("Basic  abc", false),
        ] {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
            assert_eq!(has_blank_before_token(&headers), expected, "{value:?}");
        }
    }
}
