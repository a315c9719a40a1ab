//! `notificationsinks/deadletters` lists and deletes dead letters; `notificationsinks/redelivery` retries them.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use stoa_machinery::{
    ApiError, Key, Version,
    definition::{Subresource, SubresourceCall, SubresourceHandler, SubresourceResponse},
    outbound,
};
use stoa_types::{NotificationSink, names};

use crate::{
    Services,
    records::{DeadLetter, RecordError, Records},
};

/// The subresources of NotificationSinks.
pub fn subresources(services: &Services) -> Vec<Subresource> {
    let kind = names::sibling::<NotificationSink>("DeadLetterList");
    vec![
        Subresource {
            name: "deadletters",
            verbs: &["get", "delete"],
            kind,
            description: "The dead letters with their causes, oldest first. A delete drops those that the query parameter id names, or all.",
            produces: &[],
            handler: Arc::new(DeadLetters { services: services.clone() }),
        },
        Subresource {
            name: "redelivery",
            verbs: &["create"],
            kind,
            description: "Delivers dead letters again: those that the query parameter id names, or all.",
            produces: &[],
            handler: Arc::new(DeadLetters { services: services.clone() }),
        },
    ]
}

/// Shows the dead letters of a sink, oldest first, deletes them, or asks for them to be delivered again.
#[derive(Debug)]
struct DeadLetters {
    services: Services,
}

/// The records of a sink. Whoever leads writes under a fence, and others do not.
async fn records(services: &Services, name: &str) -> Result<Records, ApiError> {
    let sink = services.lookup.api::<NotificationSink>()?.get("", name).await?;
    Ok(Records::new(services.log.clone(), &sink.uid().unwrap_or_default(), None))
}

fn unavailable(error: impl Into<RecordError>) -> ApiError {
    let error = error.into();
    tracing::warn!(error = outbound::causes(&error), "dead letters cannot be read or written");
    match error {
        RecordError::Log(_) => ApiError::service_unavailable("the log cannot be used").with_retry_after(1),
        RecordError::Unreadable(_) => ApiError::internal(error),
    }
}

/// The dead letters of the events that the query parameter `id` names, as often as wanted; without it, all.
async fn chosen(records: &Records, call: &SubresourceCall) -> Result<Vec<(Key, Version, DeadLetter)>, ApiError> {
    let ids: Vec<&str> = call.query.iter().filter(|(name, _)| name == "id").map(|(_, id)| id.as_str()).collect();
    let mut letters = records.dead().await.map_err(unavailable)?;
    letters.retain(|(_, _, letter)| ids.is_empty() || ids.contains(&letter.event.id.as_str()));
    if let Some(id) = ids.iter().find(|id| !letters.iter().any(|(_, _, letter)| letter.event.id == **id)) {
        let message = format!("there is no dead letter of an event with the id {id:?}");
        return Err(ApiError::new(404, "NotFound", message));
    }
    Ok(letters)
}

impl DeadLetters {
    /// Deletes those that are [chosen]. The body is not read.
    async fn delete(&self, records: &Records, call: &SubresourceCall) -> Result<SubresourceResponse, ApiError> {
        let mut deleted = 0;
        for (key, version, _) in chosen(records, call).await? {
            // One that changes meanwhile is being delivered.
            if call.context.dry_run || records.drop_dead(key, version).await.map_err(unavailable)? {
                deleted += 1;
            }
        }
        answer(StatusCode::OK, &json!({ "deleted": deleted }))
    }

    /// Asks for those that are [chosen] to be delivered again. The body is not read.
    async fn redeliver(&self, records: &Records, call: &SubresourceCall) -> Result<SubresourceResponse, ApiError> {
        let mut asked = 0;
        for (key, version, letter) in chosen(records, call).await? {
            // One that changes meanwhile is being delivered.
            let now = self.services.now();
            if call.context.dry_run || records.ask(key, version, letter, now).await.map_err(unavailable)? {
                asked += 1;
            }
        }
        answer(StatusCode::ACCEPTED, &json!({ "redelivering": asked }))
    }
}

#[async_trait]
impl SubresourceHandler for DeadLetters {
    async fn call(&self, call: SubresourceCall) -> Result<SubresourceResponse, ApiError> {
        let records = records(&self.services, &call.name).await?;
        match call.method {
            Method::DELETE => return self.delete(&records, &call).await,
            Method::POST => return self.redeliver(&records, &call).await,
            _ => {}
        }
        let letters = records.dead().await.map_err(unavailable)?;
        let items: Vec<_> = letters
            .into_iter()
            .map(|(_, _, letter)| {
                let mut item = json!({
                    "id": letter.event.id, "reason": letter.reason, "attempts": letter.attempts, "time": letter.time,
                    "event": letter.event,
                });
                if let Some(asked) = letter.redeliver {
                    item["redeliver"] = json!(asked);
                }
                item
            })
            .collect();
        let list = json!({
            "apiVersion": "platform.stoa.dev/v1alpha1",
            "kind": "DeadLetterList",
            "items": items,
            "dropped": records.dropped().await.map_err(unavailable)?,
        });
        answer(StatusCode::OK, &list)
    }
}

/// A whole answer in JSON.
fn answer(code: StatusCode, value: &Value) -> Result<SubresourceResponse, ApiError> {
    let body = Full::new(Bytes::from(value.to_string() + "\n")).map_err(|never| match never {}).boxed_unsync();
    let answer = Response::builder().status(code).header(header::CONTENT_TYPE, "application/json").body(body);
    answer.map_err(|error| ApiError::internal(error.to_string()))
}
