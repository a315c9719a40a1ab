//! Writes to a registry: blobs, manifests under tags, and deletions.
//!
//! Start at [`Registry::upload`] and [`Registry::put`]. Registries have no compare-and-swap: callers read a tag right before a
//! write and after it.

use bytes::Bytes;
use http::{Method, StatusCode, header};

use super::http_client::answered;
use super::reference::is_tag;
use super::{Digest, FetchError, Registry, media};

/// The media type of an upload.
const BYTES: &str = "application/octet-stream";

impl Registry {
    /// Uploads a blob, unless the repository has it.
    ///
    /// # Errors
    ///
    /// [`FetchError::Unauthorized`] where the credentials do not permit it.
    pub async fn upload(&self, content: &Bytes) -> Result<Digest, FetchError> {
        let digest = Digest::of(content);
        let url = self.url(&format!("blobs/{digest}"))?;
        let known = self.send((Method::HEAD, &url), "", Bytes::new()).await?;
        // Some registries redirect to their storage.
        if known.status().is_success() || known.status().is_redirection() {
            return Ok(digest);
        }
        answered(&url, known, &[StatusCode::NOT_FOUND]).await?;
        let url = self.url("blobs/uploads/")?;
        let begun = self.send((Method::POST, &url), "", Bytes::new()).await?;
        let begun = answered(&url, begun, &[StatusCode::ACCEPTED]).await?;
        let location = begun.headers().get(header::LOCATION).and_then(|it| it.to_str().ok()).unwrap_or_default();
        let session = url.join(location);
        let session =
            session.map_err(|error| FetchError::wrong(&url, format_args!("the URL of the upload: {error}")))?;
        let session = session.with(&[("digest", digest.to_string().as_str())]);
        let done = self.send((Method::PUT, &session), BYTES, content.clone()).await?;
        answered(&session, done, &[StatusCode::CREATED]).await?;
        Ok(digest)
    }

    /// Gives a tag to a manifest of OCI, whose blobs the repository has.
    ///
    /// # Errors
    ///
    /// As [`upload`](Self::upload), and for a text that is no tag.
    pub async fn put(&self, tag: &str, manifest: &Bytes) -> Result<Digest, FetchError> {
        if !is_tag(tag) {
            let shown: String = tag.chars().take(128).collect();
            return Err(FetchError::wrong(self.repository(), format_args!("{shown:?} is no tag")));
        }
        let url = self.url(&format!("manifests/{tag}"))?;
        let put = self.send((Method::PUT, &url), media::MANIFEST, manifest.clone()).await?;
        answered(&url, put, &[StatusCode::CREATED]).await?;
        Ok(Digest::of(manifest))
    }

    /// Removes a tag, and no manifest.
    ///
    /// # Errors
    ///
    /// [`FetchError::NotFound`] where it does not exist; [`FetchError::Status`] where the registry removes no tags.
    pub async fn remove_tag(&self, tag: &str) -> Result<(), FetchError> {
        if !is_tag(tag) {
            return Err(FetchError::NotFound { url: format!("a tag of {}", self.repository()) });
        }
        self.delete(tag).await
    }

    /// Removes a manifest with all of its tags.
    ///
    /// # Errors
    ///
    /// As [`remove_tag`](Self::remove_tag).
    pub async fn remove_manifest(&self, digest: &Digest) -> Result<(), FetchError> {
        self.delete(&digest.to_string()).await
    }

    async fn delete(&self, name: &str) -> Result<(), FetchError> {
        let url = self.url(&format!("manifests/{name}"))?;
        let deleted = self.send((Method::DELETE, &url), "", Bytes::new()).await?;
        let accepted = [StatusCode::ACCEPTED, StatusCode::OK, StatusCode::NO_CONTENT];
        answered(&url, deleted, &accepted).await.map(drop)
    }
}
