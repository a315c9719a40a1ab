//! `releases/spec` and `releases/state`: the two documents of a release, granted separately. Both are as they are kept, sensitive
//! values sealed in one and digested in the other; those that an earlier version kept in clear are masked.

use async_trait::async_trait;
use bytes::Bytes;
use kube::ResourceExt as _;
use stoa_machinery::{
    ApiError,
    definition::{SubresourceCall, SubresourceHandler, SubresourceResponse},
};
use stoa_storage::documents::Digest;
use stoa_types::{Release, Workspace};

use super::{Subresources, document, failure, wants_json};
use crate::runs::{Services, documents};

/// Which of the two.
#[derive(Clone, Copy, Debug)]
pub(super) enum Document {
    Spec,
    State,
}

#[derive(Debug)]
pub(super) struct ReleaseDocument {
    pub(super) subresources: Subresources,
    pub(super) document: Document,
}

#[async_trait]
impl SubresourceHandler for ReleaseDocument {
    async fn call(&self, call: SubresourceCall) -> Result<SubresourceResponse, ApiError> {
        let services = self.subresources.services()?;
        let release = services.lookup.api::<Release>()?.get(&call.namespace, &call.name).await?;
        let bytes = read(services, &release, self.document).await?;
        document(&bytes, wants_json(&call.headers, &call.query))
    }
}

/// A document of a release, as it may be shown.
///
/// # Errors
///
/// 404 when the Workspace is gone, or the document is not in its Backend any more; 503 when that cannot be read.
pub(super) async fn read(services: &Services, release: &Release, document: Document) -> Result<Bytes, ApiError> {
    let spec = &release.spec;
    let workspace = services.lookup.api::<Workspace>()?.get("", &spec.workspace).await?;
    let backend = &workspace.spec.backend.name;
    let store = services.backends.store(backend).await.map_err(failure)?;
    let text = match document {
        Document::Spec => &spec.spec_digest,
        Document::State => &spec.state_digest,
    };
    let digest: Digest = text.parse().map_err(|e| ApiError::internal(format!("{e}")))?;
    let scope = format!("{}/{}", release.namespace().unwrap_or_default(), spec.stack_uid);
    match store.get(&scope, &digest).await {
        Ok(Some(bytes)) => match document {
            Document::Spec => documents::shown(bytes).map_err(ApiError::internal),
            Document::State => Ok(bytes),
        },
        Ok(None) => {
            let message = format!("document {text} of release {} is not in backend {backend:?}", release.name_any());
            Err(ApiError::new(404, "NotFound", message))
        }
        Err(error) => {
            tracing::error!(error = error.in_full(), "a document cannot be read");
            Err(ApiError::service_unavailable("the backend cannot be read").with_retry_after(5))
        }
    }
}
