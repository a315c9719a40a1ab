//! Source: looks for new commits.

use std::{collections::HashMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use parking_lot::Mutex;
use stoa_machinery::ApiError;
use stoa_types::{Source, reason};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::queue::{self, ObjectKey, Trigger};
use crate::{
    kinds::check::set_condition,
    runs::{Halt, Services, runner, target},
};

/// How long one look may take.
const LOOK: Duration = Duration::from_secs(30);

/// When each source, at which generation, was last looked at: a status write makes the object due
/// again, and must not lead to another look.
type Looked = Arc<Mutex<HashMap<ObjectKey, (Instant, Option<i64>)>>>;

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let Ok(sources) = services.lookup.api::<Source>() else { return };
    let looked = Looked::default();
    let triggers = vec![Trigger::on(&sources, |s| vec![queue::key_of(s)])];
    queue::drive("sources", triggers, end, |key| look(services.clone(), looked.clone(), key)).await;
}

async fn look(services: Services, looked: Looked, key: ObjectKey) -> Result<Option<Duration>, ApiError> {
    let sources = services.lookup.api::<Source>()?;
    let Some(source) = sources.get_opt(&key.0, &key.1).await? else {
        looked.lock().remove(&key);
        return Ok(None);
    };
    let interval = source.spec.poll_interval.parse().unwrap_or(Duration::from_secs(60));
    let last = looked.lock().get(&key).copied();
    if let Some((at, generation)) = last
        && generation == source.metadata.generation
        && at.elapsed() < interval
    {
        return Ok(Some(interval - at.elapsed()));
    }
    let head = resolve(&services, &source).await;
    looked.lock().insert(key.clone(), (Instant::now(), source.metadata.generation));
    let now = Time(Timestamp::now());
    sources
        .update_status_with(&key.0, &key.1, |s: &mut Source| {
            let generation = s.metadata.generation;
            let status = s.status.get_or_insert_default();
            let (ready, why, message) = match &head {
                Ok(commit) => {
                    if status.observed_commit.as_ref() != Some(commit) || status.last_sync_time.is_none() {
                        status.last_sync_time = Some(now.clone());
                    }
                    status.observed_commit = Some(commit.clone());
                    (true, reason::AVAILABLE, "the repository can be read".to_owned())
                }
                Err((why, message)) => (false, *why, message.clone()),
            };
            set_condition(&mut status.conditions, reason::READY, ready, why, message, generation);
        })
        .await?;
    Ok(Some(interval))
}

/// The head of a source, or the reason and message why there is none to be had.
async fn resolve(services: &Services, source: &Source) -> Result<String, (&'static str, String)> {
    let failed = |halt: Halt| match halt {
        Halt::Failed { reason, message } => (reason, message),
        Halt::Retry(message) | Halt::SourceUnreachable(message) | Halt::Abandoned(message) => {
            (reason::SOURCE_UNREACHABLE, message)
        }
        Halt::Canceled => (reason::SOURCE_UNREACHABLE, "the look was cancelled".to_owned()),
    };
    let request = stoa_proto::ResolveRequest {
        source: Some(target::source(services, source).await.map_err(failed)?),
        version: String::new(),
        r#ref: source.spec.reference.clone(),
    };
    let mut runner = services.runner.client();
    let response = tokio::time::timeout(LOOK, runner.resolve(request)).await;
    let response = response.unwrap_or_else(|_| {
        Err(tonic::Status::deadline_exceeded(format!("the repository did not answer within {LOOK:?}")))
    });
    let response = response.map_err(|status| failed(runner::halt(&status, reason::SOURCE_UNREACHABLE)))?;
    Ok(response.into_inner().commit)
}
