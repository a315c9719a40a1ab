//! Documents of a run in the Backend, by their digests.

use bytes::Bytes;
use stoa_storage::documents::{Digest, DocumentStore};
use stoa_types::reason;

use super::Halt;

/// The document of a digest.
///
/// # Errors
///
/// Failed when it is not there, Retry when the Backend cannot be read.
pub(crate) async fn get(store: &dyn DocumentStore, scope: &str, digest: &str) -> Result<Bytes, Halt> {
    let lost = |what: String| Halt::failed(reason::BACKEND_UNAVAILABLE, what);
    let parsed: Digest = digest.parse().map_err(|e| lost(format!("{e}")))?;
    match store.get(scope, &parsed).await {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err(lost(format!("document {digest} is not in the backend"))),
        Err(error) => Err(Halt::Retry(format!("the backend cannot be read: {error}"))),
    }
}

/// Keeps a document; the text of its digest.
pub(crate) async fn put(store: &dyn DocumentStore, scope: &str, bytes: Bytes) -> Result<String, Halt> {
    let digest = store.put(scope, bytes).await;
    digest.map(|d| d.to_string()).map_err(|error| Halt::Retry(format!("the backend cannot be written: {error}")))
}
