//! Backend: finds out whether documents can be kept there.

use std::time::Duration;

use bytes::Bytes;
use stoa_machinery::ApiError;
use stoa_storage::documents::{Digest, DocumentError, Refusal};
use stoa_types::{Backend, platform::BackendType, reason};
use tokio_util::sync::CancellationToken;

use super::queue::{self, ObjectKey, Trigger};
use crate::{
    kinds::check::set_condition,
    runs::{Services, backends::Use},
};

/// How often to look again at what is ready, and at what is not.
const LOOK: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_secs(10);

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let Ok(backends) = services.lookup.api::<Backend>() else { return };
    let triggers = vec![Trigger::on(&backends, |b| vec![queue::key_of(b)])];
    queue::drive("backends", triggers, end, |key| look(services.clone(), key)).await;
}

async fn look(services: Services, (_, name): ObjectKey) -> Result<Option<Duration>, ApiError> {
    let backends = services.lookup.api::<Backend>()?;
    let Some(backend) = backends.get_opt("", &name).await? else { return Ok(None) };
    let (ready, why, message) = match probe(&services, &name, &backend).await {
        Ok(()) => (true, reason::AVAILABLE, "documents can be kept and read".to_owned()),
        Err(error) => (false, reason_of(&error, backend.spec.kind), error.in_full()),
    };
    backends
        .update_status_with("", &name, |b: &mut Backend| {
            let generation = b.metadata.generation;
            let status = b.status.get_or_insert_default();
            set_condition(&mut status.conditions, reason::READY, ready, why, message.clone(), generation);
        })
        .await?;
    Ok(Some(if ready { LOOK } else { LOOK_AGAIN }))
}

/// Keeps a document and reads it back; the same one every time, so that nothing piles up.
async fn probe(services: &Services, name: &str, backend: &Backend) -> Result<(), DocumentError> {
    let store = services.backends.open(name, backend, Use::Probe)?;
    let digest = store.put("probe", Bytes::from_static(b"probe")).await?;
    if store.get("probe", &digest).await?.is_none() {
        return Err(DocumentError::Unavailable("a document that was kept is not there".into()));
    }
    // S3 denies access to what is not there, where it may not be listed. A run could not tell the two apart.
    store.get("probe", &Digest::of(b"nothing is kept under this digest")).await.map(drop)
}

fn reason_of(error: &DocumentError, kind: BackendType) -> &'static str {
    match error {
        DocumentError::Full(_) => reason::BACKEND_FULL,
        DocumentError::Refused { refusal: Refusal::Credentials, .. } => reason::CREDENTIALS_NOT_FOUND,
        DocumentError::Refused { refusal: Refusal::Access, .. } => reason::ACCESS_DENIED,
        DocumentError::Refused { refusal: Refusal::Bucket, .. } => reason::BUCKET_NOT_FOUND,
        DocumentError::Unavailable(_) if kind != BackendType::Local => reason::UNREACHABLE,
        DocumentError::Refused { refusal: Refusal::Request, .. }
        | DocumentError::Unavailable(_)
        | DocumentError::Scope(_)
        | DocumentError::Corrupt { .. }
        | DocumentError::Conflict { .. }
        | DocumentError::TooLarge { .. } => reason::BACKEND_UNAVAILABLE,
    }
}
