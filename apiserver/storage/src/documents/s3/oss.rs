//! The differences of Alibaba Cloud OSS from S3, whose API it offers.
//!
//! OSS rejects conditions on a put: its answer to `If-None-Match` is `NotImplemented`. Its own condition is the header
//! `x-oss-forbid-overwrite: true`, and its answer for an existing object is 409 `FileAlreadyExists`. The client cannot add a signed
//! header. So such a put is changed on its way to OSS, and signed once more.
//!
//! Source: Alibaba Cloud's "Compatibility with Amazon S3", "PutObject" and "HTTP status code 409".

use std::{error::Error, sync::Arc};

use http::{HeaderName, HeaderValue, Method, header};
use object_store::{
    aws::AwsAuthorizer,
    client::{HttpError, HttpErrorKind, HttpRequest},
};

use super::{super::Digest, ALGORITHM, AccessKeys, credential};

/// Keeps an object that is there from being written over. Buckets with versions take no notice of it.
const FORBID_OVERWRITE: HeaderName = HeaderName::from_static("x-oss-forbid-overwrite");
/// The digest of what is sent, in hex, as the client found it.
const CONTENT_DIGEST: &str = "x-amz-content-sha256";
const TOKEN: &str = "x-amz-security-token";
/// What signatures are made for.
const SERVICE: &str = "s3";

/// Makes requests of S3 those of OSS.
#[derive(Debug)]
pub(super) struct Oss {
    region: String,
    keys: Arc<dyn AccessKeys>,
}

impl Oss {
    pub(super) fn new(region: &str, keys: Arc<dyn AccessKeys>) -> Self {
        Self { region: region.to_owned(), keys }
    }

    /// Says the same as OSS has it: a put that may write nothing over is another one, and signed anew.
    ///
    /// # Errors
    ///
    /// With a `KeyError` as the cause where there is no key. Nothing is sent then, and no other try would do.
    pub(super) async fn prepare(&self, request: &mut HttpRequest) -> Result<(), HttpError> {
        if request.method() != Method::PUT || request.headers_mut().remove(header::IF_NONE_MATCH).is_none() {
            return Ok(());
        }
        request.headers_mut().insert(FORBID_OVERWRITE, HeaderValue::from_static("true"));
        let digest = request.headers().get(CONTENT_DIGEST).and_then(|hex| hex.to_str().ok()).unwrap_or_default();
        let digest: Digest = format!("{ALGORITHM}:{digest}").parse().map_err(refused)?;
        // The key may be another one by now, and need none.
        request.headers_mut().remove(TOKEN);
        let credential = credential(&*self.keys).await.map_err(refused)?;
        let signer = AwsAuthorizer::new(&credential, SERVICE, &self.region);
        signer.try_authorize(request, Some(&digest.0)).map_err(refused)
    }
}

fn refused(error: impl Error + Send + Sync + 'static) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, error)
}
