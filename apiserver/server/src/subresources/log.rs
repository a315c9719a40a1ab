//! `runs/log`: what happened in a run.

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http::{Response, StatusCode, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use kube::ResourceExt as _;
use stoa_machinery::{
    ApiError,
    definition::{SubresourceCall, SubresourceHandler, SubresourceResponse},
};
use stoa_types::Run;

use super::{Subresources, answer, parameter, wants_json};
use crate::runs::{
    Services,
    journal::{self, Line},
    status,
};

#[derive(Debug)]
pub(super) struct RunLog {
    pub(super) subresources: Subresources,
}

#[async_trait]
impl SubresourceHandler for RunLog {
    /// Query parameters: `follow=true` goes on until the run has ended; `format=json` gives one JSON
    /// object per line instead of text.
    async fn call(&self, call: SubresourceCall) -> Result<SubresourceResponse, ApiError> {
        let services = self.subresources.services()?;
        let run = services.lookup.api::<Run>()?.get(&call.namespace, &call.name).await?;
        let uid = run.uid().unwrap_or_default();
        let as_json = wants_json(&call.headers, &call.query);
        let content_type = if as_json { "application/json" } else { "text/plain; charset=utf-8" };
        let (lines, version) = journal::read(&*services.log, &uid).await.map_err(unreadable)?;
        let written = render(&lines, as_json);
        if !matches!(parameter(&call.query, "follow"), Some("true" | "1" | "")) || status(&run).phase.is_terminal() {
            return answer(StatusCode::OK, content_type, written);
        }
        let later = journal::follow(&*services.log, &uid, version).await.map_err(unreadable)?;
        let until_end = until_ended(services.clone(), run, later, as_json);
        let frames = stream::once(std::future::ready(written))
            .chain(until_end)
            .map(|bytes| Ok::<_, std::io::Error>(Frame::data(bytes)));
        Response::builder()
            .status(StatusCode::OK)
            .header(header::CONTENT_TYPE, content_type)
            .body(StreamBody::new(frames).boxed_unsync())
            .map_err(|error| ApiError::internal(error.to_string()))
    }
}

fn unreadable(error: stoa_machinery::log::LogError) -> ApiError {
    tracing::error!(error = &error as &dyn std::error::Error, "a journal cannot be read");
    ApiError::internal("the journal cannot be read")
}

/// New lines, until the one with which a run ends.
fn until_ended(
    services: Services,
    run: Run,
    later: impl Stream<Item = Result<Vec<Line>, stoa_machinery::log::LogError>> + Send + 'static,
    as_json: bool,
) -> impl Stream<Item = Bytes> + Send {
    let later = later.boxed();
    stream::unfold((later, false), move |(mut later, ended)| {
        let (services, run) = (services.clone(), run.clone());
        async move {
            if ended {
                return None;
            }
            loop {
                // The end of a run is its last line; a run that is deleted has none.
                let next = tokio::time::timeout(std::time::Duration::from_secs(5), later.next()).await;
                match next {
                    Ok(None | Some(Err(_))) => return None,
                    Ok(Some(Ok(lines))) => {
                        let ended =
                            lines.iter().any(|l| matches!(l.phase.as_str(), "Succeeded" | "Failed" | "Canceled"));
                        return Some((render(&lines, as_json), (later, ended)));
                    }
                    Err(_) => {
                        let runs = services.lookup.api::<Run>().ok()?;
                        let now = runs.get(&run.namespace().unwrap_or_default(), &run.name_any()).await.ok()?;
                        if now.uid() != run.uid() || status(&now).phase.is_terminal() {
                            return None;
                        }
                    }
                }
            }
        }
    })
}

fn render(lines: &[Line], as_json: bool) -> Bytes {
    let text: String = if as_json {
        lines.iter().map(|line| serde_json::to_string(line).expect("a line serializes") + "\n").collect()
    } else {
        lines.iter().map(Line::text).collect()
    };
    Bytes::from(text)
}
