//! `packageoperations/log`: the history of a PackageOperation, line by line.
//!
//! The lines follow from the status, which has the plan, the decision and the times of each package. So they survive a
//! restart, and each replica has the same.
//!
//! Elsewhere: `log` has the log of a Run, and the forms of both.

use std::{collections::HashSet, io};

use bytes::Bytes;
use futures_util::{
    Stream, StreamExt as _,
    stream::{self, BoxStream},
};
use http::StatusCode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use stoa_kinds::approval::sentence;
use stoa_machinery::{
    ApiError,
    definition::{SubresourceCall, SubresourceResponse},
    registry::api::Change,
};
use stoa_runs::{Services, run_log::Line};
use stoa_types::{
    delivery::{PackageChange, PackageOperation, PackageOperationStatus, PackagePhase},
    reason,
};

use super::{answer, log, wants_json};

/// Query parameters: those of `runs/log`.
pub(super) async fn operation_log(services: Services, call: SubresourceCall) -> Result<SubresourceResponse, ApiError> {
    let as_json = wants_json(&call.headers, &call.query, "text")?;
    let content_type = log::content_type(as_json);
    let operations = services.lookup.api::<PackageOperation>()?;
    let operation = operations.get(&call.namespace, &call.name).await?;
    let lines = lines_of(&operation);
    let written = log::render(&lines, as_json);
    if !log::is_followed(&call.query) || has_ended(&operation) {
        return answer(StatusCode::OK, content_type, written);
    }
    let changes = operations.subscribe(Some(&call.namespace));
    let uid = operation.metadata.uid.unwrap_or_default();
    log::streamed(content_type, written, until_ended(changes, uid, lines, as_json))
}

fn has_ended(operation: &PackageOperation) -> bool {
    operation.status.as_ref().is_some_and(|status| status.phase.is_terminal())
}

/// The lines of an operation, oldest first.
fn lines_of(operation: &PackageOperation) -> Vec<Line> {
    let Some(status) = &operation.status else { return Vec::new() };
    let action = format!("{:?}", operation.spec.operation);
    let mut lines = Vec::new();
    let created = format!("{} created the operation {action}", status.requester.username);
    lines.extend(line(operation.metadata.creation_timestamp.as_ref(), "Pending", created));
    lines.extend(planned(status, &action));
    if let Some(approval) = &status.approval {
        lines.extend(line(approval.time.as_ref(), "AwaitingApproval", sentence(approval, None)));
    }
    let begun = format!("packages begin, {} at once at most", operation.spec.max_parallel);
    lines.extend(line(status.start_time.as_ref(), "Running", begun));
    for package in &status.packages {
        let began = line(package.start_time.as_ref(), "Running", String::new());
        lines.extend(about(package, &action, "began", began));
        let ended = line(package.completion_time.as_ref(), "Running", result(package));
        lines.extend(about(package, &action, &format!("{:?}", package.phase), ended));
    }
    let is_result = |type_: &str| type_ == reason::COMPLETE || type_ == reason::FAILED;
    let result = status.conditions.iter().find(|condition| condition.status == "True" && is_result(&condition.type_));
    let message = result.map_or_else(String::new, |condition| condition.message.clone());
    lines.extend(line(status.completion_time.as_ref(), &format!("{:?}", status.phase), message));
    // Lines of one second stay as they are.
    lines.sort_by_key(|line| line.time);
    lines
}

/// The lines about the plan.
fn planned(status: &PackageOperationStatus, action: &str) -> Vec<Line> {
    let time = status.plan_time.as_ref();
    let (digest, count) = (&status.plan_digest, status.packages.len());
    let mut lines = Vec::from_iter(line(time, "Planning", format!("plan {digest} has {count} packages")));
    for package in &status.packages {
        // A package that has ended without a start ended in the plan.
        let ended = matches!(package.phase, PackagePhase::Skipped | PackagePhase::Failed);
        let (outcome, message) = match ended && package.start_time.is_none() {
            true => (format!("{:?}", package.phase), package.message.clone()),
            false => (String::new(), package.change.clone()),
        };
        lines.extend(about(package, action, &outcome, line(time, "Planning", message)));
    }
    if status.conditions.iter().any(|condition| condition.type_ == reason::AWAITING_APPROVAL) {
        lines.extend(line(time, "AwaitingApproval", "the plan waits for approval".to_owned()));
    }
    lines
}

/// A line about the operation itself, if the time has come.
fn line(time: Option<&Time>, phase: &str, message: String) -> Option<Line> {
    time.map(|time| Line::new(time.0, phase, message))
}

/// A line about one package.
fn about(package: &PackageChange, action: &str, outcome: &str, line: Option<Line>) -> Option<Line> {
    let mut line = line?;
    line.id = format!("{}/{}", package.repository, package.package);
    action.clone_into(&mut line.action);
    outcome.clone_into(&mut line.outcome);
    Some(line)
}

/// The new revision of a package, and the cause of its phase.
fn result(package: &PackageChange) -> String {
    let lifecycle = package.lifecycle.map(|lifecycle| format!("{} is {}", package.revision, lifecycle.name()));
    let message = Some(package.message.clone()).filter(|message| !message.is_empty());
    lifecycle.into_iter().chain(message).collect::<Vec<_>>().join("; ")
}

/// News of a followed operation.
enum News {
    /// It is about another operation.
    Unrelated,
    /// It changed.
    Changed(Box<PackageOperation>),
    /// It was deleted.
    Deleted,
}

fn news(change: Change<PackageOperation>, uid: &str) -> News {
    let is_it = |operation: &PackageOperation| operation.metadata.uid.as_deref() == Some(uid);
    match change {
        Change::Restarted(all) => {
            all.into_iter().find(is_it).map_or(News::Deleted, |operation| News::Changed(Box::new(operation)))
        }
        Change::Applied(operation) if is_it(&operation) => News::Changed(Box::new(operation)),
        Change::Deleted(operation) if is_it(&operation) => News::Deleted,
        Change::Applied(_) | Change::Deleted(_) => News::Unrelated,
    }
}

/// The lines of the operation with this uid after those that were sent, until it ends or is deleted.
fn until_ended(
    changes: BoxStream<'static, Change<PackageOperation>>,
    uid: String,
    sent: Vec<Line>,
    as_json: bool,
) -> impl Stream<Item = Result<Bytes, io::Error>> + Send + 'static {
    let sent: HashSet<Line> = sent.into_iter().collect();
    stream::unfold(Some((changes, uid, sent)), move |state| async move {
        let (mut changes, uid, mut sent) = state?;
        loop {
            let operation = match news(changes.next().await?, &uid) {
                News::Unrelated => continue,
                News::Changed(operation) => operation,
                News::Deleted => return None,
            };
            let mut lines = lines_of(&operation);
            lines.retain(|line| sent.insert(line.clone()));
            let has_ended = has_ended(&operation);
            if !lines.is_empty() || has_ended {
                let state = (!has_ended).then_some((changes, uid, sent));
                return Some((Ok(log::render(&lines, as_json)), state));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn operation(status: Value) -> PackageOperation {
        serde_json::from_value(json!({
            "metadata": {"name": "op", "namespace": "shop", "uid": "u", "creationTimestamp": "2026-01-02T03:04:00Z"},
            "spec": {"operation": "Upgrade"},
            "status": status,
        }))
        .unwrap()
    }

    fn condition(type_: &str, status: &str, message: &str) -> Value {
        let time = "2026-01-02T03:04:09Z";
        json!({"type": type_, "status": status, "reason": type_, "message": message, "lastTransitionTime": time})
    }

    fn pending() -> PackageOperation {
        operation(json!({"phase": "Pending", "requester": {"username": "ann"}}))
    }

    /// A package that changes, and one that has nothing to change.
    fn running() -> PackageOperation {
        operation(json!({
            "phase": "Running", "requester": {"username": "ann"}, "planDigest": "sha256:ab",
            "planTime": "2026-01-02T03:04:01Z", "startTime": "2026-01-02T03:04:02Z",
            "approval": {
                "decision": "Approved", "planDigest": "sha256:ab", "message": "go",
                "approver": {"username": "bob"}, "time": "2026-01-02T03:04:02Z",
            },
            "packages": [
                {
                    "repository": "blueprints", "package": "web", "change": "changes 1 object",
                    "phase": "Running", "startTime": "2026-01-02T03:04:03Z",
                },
                {"repository": "blueprints", "package": "api", "phase": "Skipped", "message": "nothing changes"},
            ],
            "conditions": [condition("AwaitingApproval", "False", "bob approved it")],
        }))
    }

    fn ended() -> PackageOperation {
        let mut ended = running();
        let status = ended.status.as_mut().unwrap();
        let over = operation(json!({
            "phase": "Succeeded", "completionTime": "2026-01-02T03:04:05Z",
            "packages": [{
                "repository": "blueprints", "package": "web", "change": "changes 1 object", "phase": "Succeeded",
                "revision": "blueprints.web.op", "lifecycle": "Proposed", "message": "it stays Proposed",
                "startTime": "2026-01-02T03:04:03Z", "completionTime": "2026-01-02T03:04:05Z",
            }],
            "conditions": [condition("Complete", "True", "1 of 2 packages succeeded")],
        }));
        let over = over.status.unwrap();
        (status.phase, status.completion_time) = (over.phase, over.completion_time);
        status.packages[0] = over.packages[0].clone();
        status.conditions.extend(over.conditions);
        ended
    }

    fn text(operation: &PackageOperation) -> String {
        lines_of(operation).iter().map(Line::text).collect()
    }

    const BEGINNING: &str = "03:04:00 Pending: ann created the operation Upgrade\n";
    const MIDDLE: &str = "\
        03:04:01 Planning: plan sha256:ab has 2 packages\n\
        03:04:01 Planning Upgrade blueprints/web: changes 1 object\n\
        03:04:01 Planning Upgrade blueprints/api Skipped: nothing changes\n\
        03:04:01 AwaitingApproval: the plan waits for approval\n\
        03:04:02 AwaitingApproval: bob approved plan sha256:ab: go\n\
        03:04:02 Running: packages begin, 10 at once at most\n\
        03:04:03 Running Upgrade blueprints/web began\n";
    const END: &str = "\
        03:04:05 Running Upgrade blueprints/web Succeeded: blueprints.web.op is Proposed; it stays Proposed\n\
        03:04:05 Succeeded: 1 of 2 packages succeeded\n";

    #[test]
    fn lines_follow_from_the_status() {
        assert_eq!(text(&pending()), BEGINNING);
        assert_eq!(text(&running()), format!("{BEGINNING}{MIDDLE}"));
        assert_eq!(text(&ended()), format!("{BEGINNING}{MIDDLE}{END}"));
        assert!(lines_of(&ended()).last().unwrap().is_end());
    }

    /// The frames for a follower that has the lines of a pending operation.
    async fn followed(changes: Vec<Change<PackageOperation>>) -> Vec<String> {
        let changes = stream::iter(changes).boxed();
        let frames = until_ended(changes, "u".to_owned(), lines_of(&pending()), false);
        frames.map(|frame| String::from_utf8(frame.unwrap().to_vec()).unwrap()).collect().await
    }

    #[tokio::test]
    async fn follower_reads_each_line_once_until_the_end() {
        let mut other = ended();
        other.metadata.uid = Some("other".to_owned());
        let changes = vec![
            Change::Restarted(vec![other.clone(), pending()]),
            Change::Applied(other.clone()),
            Change::Applied(running()),
            Change::Deleted(other),
            Change::Restarted(vec![running()]),
            Change::Applied(ended()),
            Change::Deleted(ended()),
        ];
        assert_eq!(followed(changes).await, [MIDDLE, END]);
    }

    #[tokio::test]
    async fn follower_stops_when_the_operation_is_deleted() {
        for last in [Change::Deleted(running()), Change::Restarted(Vec::new())] {
            assert_eq!(followed(vec![Change::Applied(running()), last, Change::Applied(ended())]).await, [MIDDLE]);
        }
    }
}
