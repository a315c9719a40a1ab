//! `releases/spec` and `releases/state`: the two documents of a release, granted separately. Both are as they are kept, sensitive
//! values sealed in one and digested in the other; those that an earlier version kept in clear are masked.

use async_trait::async_trait;
use kube::ResourceExt as _;
use stoa_machinery::{
    ApiError,
    definition::{SubresourceCall, SubresourceHandler, SubresourceResponse},
};
use stoa_storage::documents::Digest;
use stoa_types::{Release, Workspace};

use super::{Subresources, document, failure, wants_json};
use crate::runs::documents;

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
        let spec = &release.spec;
        let workspace = services.lookup.api::<Workspace>()?.get("", &spec.workspace).await?;
        let store = services.backends.store(&workspace.spec.backend.name).await.map_err(failure)?;
        let text = match self.document {
            Document::Spec => &spec.spec_digest,
            Document::State => &spec.state_digest,
        };
        let digest: Digest = text.parse().map_err(|e| ApiError::internal(format!("{e}")))?;
        let scope = format!("{}/{}", call.namespace, spec.stack_uid);
        match store.get(&scope, &digest).await {
            Ok(Some(bytes)) => {
                let shown = match self.document {
                    Document::Spec => documents::shown(bytes).map_err(ApiError::internal)?,
                    Document::State => bytes,
                };
                document(&shown, wants_json(&call.headers, &call.query))
            }
            Ok(None) => Err(ApiError::new(
                404,
                "NotFound",
                format!(
                    "document {text} of release {} is not in backend {:?}",
                    release.name_any(),
                    workspace.spec.backend.name
                ),
            )),
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "a document cannot be read");
                Err(ApiError::service_unavailable("the backend cannot be read").with_retry_after(5))
            }
        }
    }
}
