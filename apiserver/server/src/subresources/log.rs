//! `runs/log`: what happened in a run.

use std::{io, time::Duration};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use http::{Response, StatusCode, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use kube::ResourceExt as _;
use stoa_kinds::run_status::status;
use stoa_machinery::{
    ApiError,
    definition::{SubresourceCall, SubresourceResponse},
    log::LogError,
};
use stoa_runs::{
    Services,
    run_log::{self, Line},
};
use stoa_types::Run;

use super::{answer, parameter, stored::DocumentScope, wants_json};

/// After so much silence whoever follows a run looks whether it is still there.
const SILENCE: Duration = Duration::from_secs(5);

/// Query parameters: `follow=true` goes on until the run has ended; `format=json` gives one JSON
/// object per line instead of text.
pub(super) async fn run_log(services: Services, call: SubresourceCall) -> Result<SubresourceResponse, ApiError> {
    let as_json = wants_json(&call.headers, &call.query, "text")?;
    let services = &services;
    let runs = services.lookup.api::<Run>()?;
    let run = runs.get(&call.namespace, &call.name).await?;
    let uid = run.uid().unwrap_or_default();
    let content_type = content_type(as_json);
    if let Some(kept) = kept(services, &run, as_json, content_type).await? {
        return Ok(kept);
    }
    let (lines, version) = run_log::read(&*services.log, &uid).await.map_err(unreadable)?;
    // It may have ended meanwhile: once the run names its document the records go.
    let now = runs.get(&call.namespace, &call.name).await?;
    if now.uid().as_deref() == Some(uid.as_str())
        && let Some(kept) = kept(services, &now, as_json, content_type).await?
    {
        return Ok(kept);
    }
    let written = render(&lines, as_json);
    let has_ended = status(&now).phase.is_terminal() || lines.iter().any(Line::is_end);
    if !is_followed(&call.query) || has_ended {
        return answer(StatusCode::OK, content_type, written);
    }
    let later = run_log::follow(&*services.log, &uid, version).await.map_err(unreadable)?;
    let services = services.clone();
    let later = until_ended(later, move || is_over(services.clone(), run.clone()), as_json);
    streamed(content_type, written, later)
}

/// The type of a log's lines.
pub(super) fn content_type(as_json: bool) -> &'static str {
    if as_json { "application/json" } else { "text/plain; charset=utf-8" }
}

/// Whether a client waits for further lines.
pub(super) fn is_followed(query: &[(String, String)]) -> bool {
    matches!(parameter(query, "follow"), Some("true" | "1" | ""))
}

/// An answer of lines that are there and lines that come later.
pub(super) fn streamed(
    content_type: &'static str,
    written: Bytes,
    later: impl Stream<Item = Result<Bytes, io::Error>> + Send + 'static,
) -> Result<SubresourceResponse, ApiError> {
    let frames = stream::once(std::future::ready(Ok(written))).chain(later).map_ok(Frame::data);
    Response::builder()
        .status(StatusCode::OK)
        .header(header::CONTENT_TYPE, content_type)
        .body(StreamBody::new(frames).boxed_unsync())
        .map_err(|error| ApiError::internal(error.to_string()))
}

fn unreadable(error: LogError) -> ApiError {
    tracing::error!(error = &error as &dyn std::error::Error, "a journal cannot be read");
    ApiError::internal("the journal cannot be read")
}

/// The journal of a run that has ended and whose Backend has it.
async fn kept(
    services: &Services,
    run: &Run,
    as_json: bool,
    content_type: &'static str,
) -> Result<Option<SubresourceResponse>, ApiError> {
    let Some(digest) = status(run).log else { return Ok(None) };
    let place = DocumentScope::of_run(services, run).await?;
    let kept = place.find(services, &run.spec.workspace, &digest, &format!("run {}", run.name_any())).await?;
    let (bytes, room) = kept.read().await?;
    let write = move || match run_log::of_document(&bytes) {
        Ok(lines) => answer(StatusCode::OK, content_type, render(&lines, as_json)),
        Err(error) => {
            tracing::error!(%error, digest, "a journal does not decode");
            Err(ApiError::internal("the journal cannot be read"))
        }
    };
    let (written, room) = room.work(write).await;
    room.until_sent(written?).await.map(Some)
}

/// Whether a run has ended or is gone.
async fn is_over(services: Services, run: Run) -> bool {
    let Ok(runs) = services.lookup.api::<Run>() else { return true };
    match runs.get(&run.namespace().unwrap_or_default(), &run.name_any()).await {
        Ok(now) => now.uid() != run.uid() || status(&now).phase.is_terminal(),
        // Where it cannot be read nobody knows.
        Err(error) => error.code() == 404,
    }
}

/// New lines, until the one with which a run ends. A run that is deleted may have none, so that it is looked at while there
/// is silence. Where the log cannot be read on the answer breaks off, so that nobody takes it for whole.
fn until_ended<F: Future<Output = bool> + Send>(
    later: impl Stream<Item = Result<Vec<Line>, LogError>> + Send + 'static,
    is_over: impl Fn() -> F + Send + 'static,
    as_json: bool,
) -> impl Stream<Item = Result<Bytes, io::Error>> + Send {
    stream::unfold(Some((later.boxed(), is_over)), move |state| async move {
        let (mut later, is_over) = state?;
        loop {
            match tokio::time::timeout(SILENCE, later.next()).await {
                Ok(None) => return None,
                Ok(Some(Err(error))) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "a journal cannot be followed");
                    return Some((Err(io::Error::other("the log cannot be read on")), None));
                }
                Ok(Some(Ok(lines))) => {
                    let has_ended = lines.iter().any(Line::is_end);
                    return Some((Ok(render(&lines, as_json)), (!has_ended).then_some((later, is_over))));
                }
                Err(_) if is_over().await => return None,
                Err(_) => {}
            }
        }
    })
}

/// Lines as a client wants them.
pub(super) fn render(lines: &[Line], as_json: bool) -> Bytes {
    if as_json { run_log::json_lines(lines) } else { lines.iter().map(Line::text).collect::<String>().into() }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;
    use tokio::time::Instant;

    use super::*;

    fn line(phase: &str, message: &str) -> Line {
        serde_json::from_value(json!({"time": "2026-01-02T03:04:05Z", "phase": phase, "message": message})).unwrap()
    }

    /// What a follower gets of these, and whether it is whole.
    async fn followed(later: Vec<Result<Vec<Line>, LogError>>, as_json: bool) -> (String, bool) {
        let frames = until_ended(stream::iter(later), async || panic!("nobody is silent"), as_json);
        let frames: Vec<_> = frames.collect().await;
        let is_whole = frames.iter().all(Result::is_ok);
        (frames.into_iter().flatten().map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()).collect(), is_whole)
    }

    #[tokio::test]
    async fn follower_stops_at_final_run_line() {
        for end in ["Succeeded", "Failed", "Canceled"] {
            let later = || vec![Ok(vec![line("Applying", "a"), line(end, "b")]), Ok(vec![line("Applying", "after")])];
            assert_eq!(followed(later(), false).await, (format!("03:04:05 Applying: a\n03:04:05 {end}: b\n"), true));
            let (text, _) = followed(later(), true).await;
            let lines: Vec<Line> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(lines, [line("Applying", "a"), line(end, "b")]);
        }
    }

    #[tokio::test]
    async fn an_answer_that_cannot_go_on_breaks_off() {
        let gone = LogError::Expired { asked: stoa_machinery::Version(1), oldest: stoa_machinery::Version(2) };
        let (text, is_whole) = followed(vec![Ok(vec![line("Applying", "a")]), Err(gone)], false).await;
        assert_eq!((text.as_str(), is_whole), ("03:04:05 Applying: a\n", false));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_rechecks_run_without_last_line() {
        let looks = std::sync::Arc::<AtomicUsize>::default();
        let (counted, began) = (looks.clone(), Instant::now());
        let is_over = move || {
            let look = counted.fetch_add(1, Ordering::SeqCst);
            async move { look == 2 }
        };
        let frames: Vec<_> = until_ended(stream::pending(), is_over, false).collect().await;
        assert!(frames.is_empty());
        assert_eq!((looks.load(Ordering::SeqCst), began.elapsed()), (3, 3 * SILENCE));
    }
}
