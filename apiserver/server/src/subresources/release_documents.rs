//! `releases/spec` and `releases/state`: the two documents of a release, granted separately. Both are as they are kept, sensitive
//! values sealed in one and digested in the other; those that an earlier version kept in clear are masked. A State is without
//! the states of providers.

use kube::ResourceExt as _;
use stoa_machinery::{
    ApiError,
    definition::{SubresourceCall, SubresourceResponse},
};
use stoa_runs::{Services, documents};
use stoa_types::Release;

use super::{
    document,
    stored::{DocumentScope, StoredDocument},
    wants_json,
};

/// Which of the two.
#[derive(Clone, Copy, Debug)]
pub(super) enum Document {
    Spec,
    State,
}

pub(super) async fn release_document(
    services: Services,
    which: Document,
    call: SubresourceCall,
) -> Result<SubresourceResponse, ApiError> {
    let as_json = wants_json(&call.headers, &call.query, "yaml")?;
    let services = &services;
    let release = services.lookup.api::<Release>()?.get(&call.namespace, &call.name).await?;
    let (kept, room) = find(services, &release, which).await?.read().await?;
    let show = move || match which {
        Document::Spec => document(&documents::shown(kept).map_err(ApiError::internal)?, as_json),
        Document::State => document(&documents::shown_state(kept).map_err(ApiError::internal)?, as_json),
    };
    let (answer, room) = room.work(show).await;
    room.until_sent(answer?).await
}

/// A document of a release.
///
/// # Errors
///
/// 404 when the Workspace is gone, or the document is not in its Backend any more; 503 when that cannot be read.
pub(super) async fn find(
    services: &Services,
    release: &Release,
    document: Document,
) -> Result<StoredDocument, ApiError> {
    let spec = &release.spec;
    let digest = match document {
        Document::Spec => &spec.spec_digest,
        Document::State => &spec.state_digest,
    };
    let name = format!("release {}", release.name_any());
    let place = DocumentScope { namespace: release.namespace().unwrap_or_default(), stack_uid: spec.stack_uid.clone() };
    place.find(services, &spec.workspace, digest, &name).await
}
