//! The `continue` token: where the next page of a list begins, and in which version.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use crate::{log::Version, status::ApiError};

/// Where a list goes on. Opaque to clients.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Continue {
    /// The version that all pages show; nothing says "whatever is current", which is what a
    /// client gets to go on with when its version is gone.
    #[serde(rename = "rv")]
    pub(super) version: Option<Version>,
    /// The last key of the page before, after the list's prefix.
    #[serde(rename = "after")]
    pub(super) after: String,
    /// How many objects come after that key, when nothing is selected.
    #[serde(rename = "left", default, skip_serializing_if = "Option::is_none")]
    pub(super) remaining: Option<i64>,
}

impl Continue {
    pub(super) fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    pub(super) fn decode(token: &str) -> Result<Self, ApiError> {
        let bad = |error: &dyn std::fmt::Display| {
            ApiError::bad_request(format!("invalid continue token: continue key is not valid: {error}"))
        };
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|error| bad(&error))?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|error| bad(&error))?;
        if token.after.is_empty() || token.after.starts_with('/') || token.after.split('/').any(|part| part == "..") {
            return Err(bad(&token.after));
        }
        Ok(token)
    }
}

/// 410 for a token whose version is gone, with one to go on with in the current version.
pub(super) fn expired(token: Continue) -> ApiError {
    let mut error = ApiError::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    error.0.metadata.continue_ = Some(Continue { version: None, remaining: None, ..token }.encode());
    error
}
