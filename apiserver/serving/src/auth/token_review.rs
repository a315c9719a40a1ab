//! Bearer tokens by TokenReviews, which the kube-apiserver answers.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use http::{HeaderMap, HeaderValue, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::Client;
use sha2::{Digest, Sha256};
use stoa_meta::{request::UserInfo, schema::binary::RAW_URL};

use super::{
    authenticator::{AuthenticationError, Authenticator, Credentials, bearer_token},
    cache::ExpiringCache,
    delegate::reviewed,
    metrics::Metrics,
};
use crate::http::websocket;

const REMEMBERED: usize = 4096;

type Review = Result<UserInfo, Refusal>;

/// Why a token is nobody's.
#[derive(Clone, Debug)]
enum Refusal {
    /// Nobody knows it, or it is for others; the reason may be empty.
    Answer(String),
    /// What the reviewer says went wrong. It may know the token the next time.
    Error(String),
}

/// Asks the kube-apiserver whose token it is, by `TokenReview`.
///
/// Answers are kept for some time under a salted digest; no token is held in memory for longer than its request. Errors
/// that the kube-apiserver has with a token are not kept, as upstream keeps none.
#[derive(educe::Educe)]
#[educe(Debug)]
pub struct TokenReviewer {
    #[educe(Debug(ignore))]
    client: Client,
    audiences: Vec<String>,
    #[educe(Debug(ignore))]
    salt: [u8; 32],
    kept: Duration,
    reviews: ExpiringCache<[u8; 32], Review>,
    metrics: Metrics,
}

impl TokenReviewer {
    /// How long answers are kept, good or bad, if nothing else is said: `CacheTTL` of upstream's delegating options.
    pub const KEPT_FOR: Duration = Duration::from_secs(10);

    /// Asks with `client`, whose user needs the ClusterRole `system:auth-delegator`. `audiences` are those a token
    /// must be for; empty for the kube-apiserver's own.
    pub fn new(client: Client, audiences: Vec<String>) -> Self {
        Self::keeping(client, audiences, Self::KEPT_FOR)
    }

    /// As [`new`](Self::new), with another time for which answers are kept.
    pub fn keeping(client: Client, audiences: Vec<String>, kept: Duration) -> Self {
        Self {
            client,
            audiences,
            salt: rand::random(),
            kept,
            reviews: ExpiringCache::new(kept, REMEMBERED),
            metrics: Metrics::default(),
        }
    }

    /// Counts in these metrics.
    #[must_use]
    pub fn counted(self, metrics: &Metrics) -> Self {
        Self { metrics: metrics.clone(), ..self }
    }

    async fn fetch(&self, token: &str) -> Result<Review, AuthenticationError> {
        let _in_flight = self.metrics.tokens.in_flight();
        let found = self.review(token).await;
        let is_answer = matches!(&found, Ok(Ok(_) | Err(Refusal::Answer(_))));
        self.metrics.tokens.fetched(is_answer);
        found
    }

    async fn review(&self, token: &str) -> Result<Review, AuthenticationError> {
        let asked = (!self.audiences.is_empty()).then(|| self.audiences.clone());
        let review = TokenReview {
            spec: TokenReviewSpec { token: token.to_owned(), audiences: asked },
            ..TokenReview::default()
        };
        let answer = reviewed(&self.client, &review, &self.metrics.token_reviews).await?;
        let status = answer.status.unwrap_or_default();
        if status.authenticated != Some(true) {
            // Without an error it is an answer that nobody knows the token.
            let error = status.error.filter(|error| !error.is_empty());
            return Ok(Err(error.map_or_else(|| Refusal::Answer(String::new()), Refusal::Error)));
        }
        // A reviewer that knows no audiences answers none; then a token could be for anybody.
        let answered = status.audiences.unwrap_or_default();
        if !self.audiences.is_empty() && !self.audiences.iter().any(|audience| answered.contains(audience)) {
            return Ok(Err(Refusal::Answer(format!("it is for the audiences {answered:?}"))));
        }
        let user = status.user.unwrap_or_default();
        Ok(Ok(UserInfo {
            name: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        }))
    }
}

#[async_trait]
impl Authenticator for TokenReviewer {
    async fn authenticate(&self, credentials: Credentials<'_>) -> Result<Option<UserInfo>, AuthenticationError> {
        let token = match bearer_token(credentials.headers) {
            Some(token) => token,
            None => match protocol_token(credentials.headers)? {
                Some(token) => token,
                None => return Ok(None),
            },
        };
        let key = Sha256::new().chain_update(self.salt).chain_update(&token).finalize().into();
        let (began, tokens) = (Instant::now(), &self.metrics.tokens);
        // Who waits for the same review hears of an error as well.
        let answer = self.reviews.entry(&key, began, |review| match review {
            Ok(_) | Err(Refusal::Answer(_)) => self.kept,
            Err(Refusal::Error(_)) => Duration::ZERO,
        });
        if let Some(review) = answer.get() {
            tokens.asked(true, began.elapsed());
            return found(review.clone());
        }
        let _blocked = tokens.blocked();
        let review = answer.get_or_try_init(|| self.fetch(&token)).await.cloned();
        tokens.asked(false, began.elapsed());
        found(review?)
    }

    fn clear(&self, headers: &mut HeaderMap) {
        headers.remove(header::AUTHORIZATION);
        let offered = websocket::protocols(headers);
        if offered.iter().any(|protocol| protocol.starts_with(PROTOCOL_PREFIX)) {
            let others: Vec<&str> =
                offered.into_iter().filter(|protocol| !protocol.starts_with(PROTOCOL_PREFIX)).collect();
            let others = HeaderValue::from_str(&others.join(",")).expect("they were headers' values");
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, others);
        }
    }
}

fn found(review: Review) -> Result<Option<UserInfo>, AuthenticationError> {
    review.map(Some).map_err(|refusal| {
        let (Refusal::Answer(reason) | Refusal::Error(reason)) = refusal;
        AuthenticationError::InvalidToken { reason }
    })
}

/// What the subprotocol begins with in which a browser, which cannot set headers, carries a token.
const PROTOCOL_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// The token among the subprotocols of a WebSocket's handshake.
///
/// Follows `k8s.io/apiserver/pkg/authentication/request/websocket`.
fn protocol_token(headers: &HeaderMap) -> Result<Option<String>, AuthenticationError> {
    if !websocket::is_requested(headers) {
        return Ok(None);
    }
    let invalid = |reason: &str| AuthenticationError::InvalidToken { reason: reason.to_owned() };
    let protocols = websocket::protocols(headers);
    let mut tokens = protocols.iter().filter_map(|protocol| protocol.strip_prefix(PROTOCOL_PREFIX));
    let Some(encoded) = tokens.next() else { return Ok(None) };
    if tokens.next().is_some() {
        return Err(invalid("multiple base64.bearer.authorization tokens specified"));
    }
    let decoded = RAW_URL.decode(encoded).map_err(|_| invalid("its encoding is not base64"))?;
    let token = String::from_utf8(decoded).map_err(|_| invalid("it is not UTF-8"))?;
    if protocols.len() == 1 {
        return Err(invalid("missing additional subprotocol"));
    }
    Ok((!token.is_empty()).then_some(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(protocols: &'static str) -> Result<Option<String>, String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocols));
        protocol_token(&headers).map_err(|error| error.to_string())
    }

    #[test]
    fn token_may_be_a_subprotocol_beside_another() {
        assert_eq!(
            token("base64url.bearer.authorization.k8s.io.c2VjcmV0, base64.binary.k8s.io"),
            Ok(Some("secret".to_owned()))
        );
        // The last letter has bits over.
        assert_eq!(token("base64url.bearer.authorization.k8s.io.YR, x"), Ok(Some("a".to_owned())));
        assert_eq!(token("base64.binary.k8s.io"), Ok(None));
        assert!(token("base64url.bearer.authorization.k8s.io.c2VjcmV0").is_err());
        assert!(token("base64url.bearer.authorization.k8s.io.!, x").is_err());
        let twice = "base64url.bearer.authorization.k8s.io.YQ,base64url.bearer.authorization.k8s.io.Yg,x";
        assert!(token(twice).is_err());
        assert_eq!(protocol_token(&HeaderMap::new()).map_err(|error| error.to_string()), Ok(None));
    }
}
