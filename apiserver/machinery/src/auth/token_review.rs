//! Bearer tokens, which the kube-apiserver knows.

use std::{
    fmt,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use http::{HeaderMap, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::{Api, Client, api::PostParams};
use sha2::{Digest, Sha256};

use super::{
    authenticator::{AuthenticationError, Authenticator, Credentials, bearer_token},
    cache::ExpiringCache,
    delegate::with_retries,
};
use crate::request::UserInfo;

/// How long an answer is kept, good or bad; `CacheTTL` of upstream's delegating options.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// How many tokens are remembered.
const REMEMBERED: usize = 4096;

/// What a review said: the user, or why there is none.
type Review = Result<UserInfo, String>;

/// Asks the kube-apiserver whose token it is, by `TokenReview`.
///
/// Answers are kept for ten seconds under a salted digest; no token is held in memory for longer than its request.
pub struct TokenReviewer {
    api: Api<TokenReview>,
    audiences: Vec<String>,
    salt: [u8; 32],
    reviews: ExpiringCache<[u8; 32], Review>,
}

impl fmt::Debug for TokenReviewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenReviewer").field("audiences", &self.audiences).finish_non_exhaustive()
    }
}

impl TokenReviewer {
    /// Asks with `client`, whose user needs the ClusterRole `system:auth-delegator`. `audiences` are those a token
    /// must be for; empty for the kube-apiserver's own.
    pub fn new(client: Client, audiences: Vec<String>) -> Self {
        Self {
            api: Api::all(client),
            audiences,
            salt: rand::random(),
            reviews: ExpiringCache::new(KEPT_FOR, REMEMBERED),
        }
    }

    async fn review(&self, token: &str) -> Result<Review, AuthenticationError> {
        let asked = (!self.audiences.is_empty()).then(|| self.audiences.clone());
        let review = TokenReview {
            spec: TokenReviewSpec { token: token.to_owned(), audiences: asked },
            ..TokenReview::default()
        };
        let params = PostParams::default();
        let status = with_retries(|| self.api.create(&params, &review)).await?.status.unwrap_or_default();
        if status.authenticated != Some(true) {
            return Ok(Err(status.error.unwrap_or_default()));
        }
        // A reviewer that knows no audiences answers none; then a token could be for anybody.
        let answered = status.audiences.unwrap_or_default();
        if !self.audiences.is_empty() && !self.audiences.iter().any(|audience| answered.contains(audience)) {
            return Ok(Err(format!("it is for the audiences {answered:?}")));
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
        let Some(token) = bearer_token(credentials.headers) else { return Ok(None) };
        let key = Sha256::new().chain_update(self.salt).chain_update(token).finalize().into();
        let review = self.reviews.get_or_ask(&key, Instant::now(), || self.review(token)).await?;
        review.map(Some).map_err(|reason| AuthenticationError::InvalidToken { reason })
    }

    fn clear(&self, headers: &mut HeaderMap) {
        headers.remove(header::AUTHORIZATION);
    }
}
