//! `releases/spec` and `releases/state`: the two documents of a release, granted separately. Both are as they are kept, sensitive
//! values sealed in one and digested in the other; those that an earlier version kept in clear are masked.

use async_trait::async_trait;
use bytes::Bytes;
use kube::ResourceExt as _;
use stoa_machinery::{
    ApiError,
    definition::{SubresourceCall, SubresourceHandler, SubresourceResponse},
};
use stoa_types::Release;

use super::{Subresources, document_aside, kept::Place, wants_json};
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
        let as_json = wants_json(&call.headers, &call.query, "yaml")?;
        let services = self.subresources.services()?;
        let release = services.lookup.api::<Release>()?.get(&call.namespace, &call.name).await?;
        let bytes = read(services, &release, self.document).await?;
        document_aside(bytes, as_json).await
    }
}

/// A document of a release, as it may be shown.
///
/// # Errors
///
/// 404 when the Workspace is gone, or the document is not in its Backend any more; 503 when that cannot be read.
pub(super) async fn read(services: &Services, release: &Release, document: Document) -> Result<Bytes, ApiError> {
    let spec = &release.spec;
    let digest = match document {
        Document::Spec => &spec.spec_digest,
        Document::State => &spec.state_digest,
    };
    let name = format!("release {}", release.name_any());
    let place = Place { namespace: release.namespace().unwrap_or_default(), stack_uid: spec.stack_uid.clone() };
    let bytes = place.read(services, &spec.workspace, digest, &name).await?;
    match document {
        Document::Spec => documents::shown(bytes).await.map_err(ApiError::internal),
        Document::State => Ok(bytes),
    }
}
