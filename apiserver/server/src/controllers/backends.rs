//! Backend: finds out whether documents can be kept there.

use std::time::Duration;

use bytes::Bytes;
use stoa_machinery::ApiError;
use stoa_types::{Backend, reason};
use tokio_util::sync::CancellationToken;

use super::queue::{self, ObjectKey, Trigger};
use crate::{
    kinds::check::set_condition,
    runs::{Halt, Services},
};

/// How often to look again.
const LOOK: Duration = Duration::from_secs(60);

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let Ok(backends) = services.lookup.api::<Backend>() else { return };
    let triggers = vec![Trigger::on(&backends, |b| vec![queue::key_of(b)])];
    queue::drive("backends", triggers, end, |key| look(services.clone(), key)).await;
}

async fn look(services: Services, (_, name): ObjectKey) -> Result<Option<Duration>, ApiError> {
    let backends = services.lookup.api::<Backend>()?;
    let Some(backend) = backends.get_opt("", &name).await? else { return Ok(None) };
    let (ready, message) = match probe(&services, &name, &backend).await {
        Ok(()) => (true, "documents can be kept and read".to_owned()),
        Err(message) => (false, message),
    };
    let why = if ready { reason::AVAILABLE } else { reason::BACKEND_UNAVAILABLE };
    backends
        .update_status_with("", &name, |b: &mut Backend| {
            let generation = b.metadata.generation;
            let status = b.status.get_or_insert_default();
            set_condition(&mut status.conditions, reason::READY, ready, why, message.clone(), generation);
        })
        .await?;
    Ok(Some(LOOK))
}

/// Keeps a document and reads it back; the same one every time, so that nothing piles up.
async fn probe(services: &Services, name: &str, backend: &Backend) -> Result<(), String> {
    let store = services.backends.open(name, backend).map_err(|halt| match halt {
        Halt::Failed { message, .. }
        | Halt::Retry(message)
        | Halt::SourceUnreachable(message)
        | Halt::Abandoned(message) => message,
        Halt::Canceled => "cancelled".to_owned(),
    })?;
    let digest = store.put("probe", Bytes::from_static(b"probe")).await.map_err(|e| e.to_string())?;
    match store.get("probe", &digest).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err("a document that was kept is not there".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
