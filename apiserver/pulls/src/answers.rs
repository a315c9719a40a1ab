//! What a server answers: which of it is read, and what its refusals mean.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use jiff::Timestamp;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{PullError, PullRequest, PullState};

/// How much of what a server says of a refusal is passed on, in characters.
const SAID: usize = 200;
/// The longest wait that a server may ask for.
const LONGEST: Duration = Duration::from_secs(3600);
/// How long to wait where a server limits us and says no time.
const UNSAID: Duration = Duration::from_secs(60);
/// The longest name of a branch, or URL, that is taken, in bytes.
const LONGEST_TEXT: usize = 2_000;

/// A pull request as servers write it.
#[derive(Deserialize)]
pub(crate) struct Pull {
    number: u64,
    html_url: Option<String>,
    title: Option<String>,
    body: Option<String>,
    state: String,
    merged: Option<bool>,
    merged_at: Option<String>,
    merge_commit_sha: Option<String>,
    mergeable: Option<bool>,
    head: Branch,
    base: Branch,
}

#[derive(Deserialize)]
struct Branch {
    #[serde(rename = "ref")]
    name: String,
    /// The branch's name, also once there is no such branch; at GitHub with its owner before it.
    label: Option<String>,
    sha: Option<String>,
    repo: Option<Repository>,
}

#[derive(Deserialize)]
struct Repository {
    full_name: String,
    default_branch: Option<String>,
}

/// A merge request as GitLab writes it.
#[derive(Deserialize)]
pub(crate) struct MergeRequest {
    iid: u64,
    web_url: Option<String>,
    title: Option<String>,
    description: Option<String>,
    state: String,
    sha: Option<String>,
    merge_commit_sha: Option<String>,
    squash_commit_sha: Option<String>,
    source_branch: String,
    target_branch: String,
    /// Absent where the fork is gone.
    source_project_id: Option<u64>,
    target_project_id: u64,
    has_conflicts: Option<bool>,
    detailed_merge_status: Option<String>,
}

impl MergeRequest {
    /// As other servers write it, in a repository with this default branch.
    pub(crate) fn with_default(self, default_branch: Option<String>) -> Pull {
        let is_merged = self.state == "merged";
        let state = match self.state.as_str() {
            // The latter while it is being merged.
            "opened" | "locked" => "open".to_owned(),
            "merged" => "closed".to_owned(),
            _ => self.state,
        };
        let mergeable = match self.detailed_merge_status.as_deref() {
            _ if self.has_conflicts == Some(true) => Some(false),
            Some("conflict" | "broken_status" | "need_rebase") => Some(false),
            None | Some("unchecked" | "checking" | "preparing" | "not_open") => None,
            // Others wait for people or pipelines.
            Some(_) => Some(true),
        };
        // A merge without a commit of its own brings in the head.
        let merged_by = self.merge_commit_sha.or(self.squash_commit_sha).or_else(|| self.sha.clone());
        let branch = |name: String, sha: Option<String>, project: Option<u64>, default_branch: Option<String>| {
            let repo = project.map(|id| Repository { full_name: id.to_string(), default_branch });
            Branch { name, label: None, sha, repo }
        };
        Pull {
            number: self.iid,
            html_url: self.web_url,
            title: self.title,
            body: self.description,
            state,
            merged: Some(is_merged),
            merged_at: None,
            merge_commit_sha: merged_by.filter(|_| is_merged),
            mergeable,
            head: branch(self.source_branch, self.sha, self.source_project_id, None),
            base: branch(self.target_branch, None, Some(self.target_project_id), default_branch),
        }
    }
}

/// A repository as GitLab writes it.
#[derive(Deserialize)]
pub(crate) struct Project {
    pub(crate) default_branch: Option<String>,
}

/// A branch as GitLab writes it.
#[derive(Deserialize)]
pub(crate) struct BaseBranch {
    commit: Commit,
    default: Option<bool>,
}

#[derive(Deserialize)]
struct Commit {
    id: String,
}

impl BaseBranch {
    /// Adds what it says of the branch that a pull request goes to.
    ///
    /// # Errors
    ///
    /// [`PullError::Malformed`] when its commit is none.
    pub(crate) fn complete(self, pull: &mut PullRequest) -> Result<(), PullError> {
        if !is_commit(&self.commit.id) {
            return Err(PullError::Malformed("the server told a branch with a commit that is none".to_owned()));
        }
        pull.base_commit = Some(self.commit.id);
        pull.is_to_default = self.default == Some(true);
        Ok(())
    }
}

/// What is said of a commit, the last in each context.
#[derive(Deserialize)]
pub(crate) struct Combined {
    pub(crate) statuses: Option<Vec<Said>>,
}

/// One of the things that are said of a commit.
#[derive(Deserialize)]
pub(crate) struct Said {
    pub(crate) id: Option<u64>,
    /// Who says it; GitLab calls it the name.
    #[serde(alias = "name")]
    pub(crate) context: String,
    /// How it is; Gitea and GitLab call it the status.
    #[serde(alias = "status")]
    pub(crate) state: String,
    pub(crate) description: Option<String>,
}

/// A label of a repository.
#[derive(Debug, Deserialize)]
pub(crate) struct Label {
    pub(crate) id: u64,
    pub(crate) name: String,
}

/// A comment as servers write it.
#[derive(Deserialize)]
pub(crate) struct Comment {
    pub(crate) id: u64,
    pub(crate) body: Option<String>,
    user: Option<User>,
    /// The same at GitLab.
    author: Option<User>,
}

impl Comment {
    /// Who wrote it.
    pub(crate) fn writer(&self) -> Option<&User> {
        self.user.as_ref().or(self.author.as_ref())
    }
}

/// An issue as servers write it.
#[derive(Deserialize)]
pub(crate) struct Issue {
    /// Its number; GitLab calls it so in a project.
    #[serde(alias = "iid")]
    pub(crate) number: u64,
    title: Option<String>,
    #[serde(alias = "description")]
    body: Option<String>,
    state: String,
    user: Option<User>,
    /// The same at GitLab.
    author: Option<User>,
    /// A pull request is an issue, too, at GitHub.
    pull_request: Option<Value>,
}

impl Issue {
    /// Whether it is open, and no pull request.
    pub(crate) fn is_open(&self) -> bool {
        self.pull_request.is_none() && matches!(self.state.as_str(), "open" | "opened")
    }

    /// Its description.
    pub(crate) fn body(&self) -> &str {
        self.body.as_deref().unwrap_or_default()
    }

    /// Who opened it.
    pub(crate) fn writer(&self) -> Option<&User> {
        self.user.as_ref().or(self.author.as_ref())
    }

    /// Whether it has the title and description of a change.
    pub(crate) fn says(&self, change: &Value) -> bool {
        let body = change["body"].as_str().or(change["description"].as_str()).unwrap_or_default();
        // Servers differ in how they keep the end of a text.
        self.title.as_deref() == change["title"].as_str() && self.body().trim_end() == body.trim_end()
    }
}

/// Somebody with an account.
#[derive(Deserialize)]
pub(crate) struct User {
    login: Option<String>,
    /// The same at GitLab; Gitea has both.
    username: Option<String>,
    /// What GitHub says of it: `User`, `Organization` or `Bot`.
    #[serde(rename = "type")]
    kind: Option<String>,
}

impl User {
    /// The name of the account.
    pub(crate) fn name(&self) -> Option<&str> {
        self.login.as_deref().or(self.username.as_deref())
    }

    /// Whether it is a program, such as an app.
    pub(crate) fn is_program(&self) -> bool {
        self.kind.as_deref() == Some("Bot")
    }
}

/// What servers say of a refusal: a text, or at GitLab a list or a map with texts.
#[derive(Deserialize)]
struct Refusal {
    message: Option<Value>,
    error: Option<Value>,
}

impl TryFrom<Pull> for PullRequest {
    type Error = PullError;

    fn try_from(pull: Pull) -> Result<Self, PullError> {
        let malformed = |what: &str| PullError::Malformed(format!("the server told a pull request with {what}"));
        let mut pull = pull;
        // Gitea calls a branch that is gone by the ref of its pull request.
        if pull.head.name.starts_with("refs/pull/")
            && let Some(label) = pull.head.label.take()
        {
            pull.head.name = label.rsplit_once(':').map_or(label.as_str(), |(_, name)| name).to_owned();
        }
        if [&pull.head.name, &pull.base.name].iter().any(|name| name.len() > LONGEST_TEXT) {
            return Err(malformed("a branch whose name is too long"));
        }
        let commit = |sha: Option<String>| sha.filter(|sha| !sha.is_empty());
        let (head_commit, merge_commit) = (commit(pull.head.sha.clone()), commit(pull.merge_commit_sha));
        let base_commit = commit(pull.base.sha.clone());
        if [&head_commit, &merge_commit, &base_commit].into_iter().flatten().any(|sha| !is_commit(sha)) {
            return Err(malformed("a commit that is none"));
        }
        let state = match pull.state.as_str() {
            _ if pull.merged == Some(true) || pull.merged_at.is_some() => PullState::Merged(merge_commit),
            "open" => PullState::Open,
            "closed" => PullState::Closed,
            _ => return Err(malformed("a state that is not known")),
        };
        let name = |branch: &Branch| branch.repo.as_ref().map(|repository| repository.full_name.to_lowercase());
        // Whoever may read a repository of Gitea may push to `refs/for/<branch>`. What comes of it is told as if it were of the
        // repository, but without the name of a branch.
        let is_of_no_branch = matches!(pull.head.label.as_deref(), Some(""))
            || pull.head.name.is_empty()
            || pull.head.name.starts_with("refs/pull/");
        let is_fork = is_of_no_branch || name(&pull.head).is_none() || name(&pull.head) != name(&pull.base);
        let default = pull.base.repo.as_ref().and_then(|repository| repository.default_branch.as_deref());
        let is_to_default = default == Some(&pull.base.name);
        let url = pull.html_url.filter(|url| {
            let is_web = url.starts_with("https://") || url.starts_with("http://");
            is_web && url.len() <= LONGEST_TEXT && url.chars().all(|c| c.is_ascii_graphic())
        });
        Ok(Self {
            number: pull.number,
            url: url.unwrap_or_default(),
            title: pull.title.unwrap_or_default(),
            body: pull.body.unwrap_or_default(),
            state,
            head: pull.head.name,
            head_commit,
            is_fork,
            base: pull.base.name,
            is_to_default,
            base_commit,
            is_mergeable: pull.mergeable,
        })
    }
}

/// Whether something is the name of a commit.
pub(crate) fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Reads what a server answered to a call that went well.
pub(crate) fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, PullError> {
    // What serde says may quote the answer; where is enough.
    serde_json::from_slice(body).map_err(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        PullError::Malformed(format!("the server's answer is not what was asked for, from {place} on"))
    })
}

/// Reads one of the things in a list.
pub(crate) fn read<T: DeserializeOwned>(value: Value) -> Result<T, PullError> {
    // As above, and there is no place.
    T::deserialize(value).map_err(|_| PullError::Malformed("a part of the server's answer makes no sense".to_owned()))
}

/// What an answer other than success means. `secrets` are in nothing that is passed on.
pub(crate) fn refusal(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
    secrets: &[String],
) -> PullError {
    let said = said(body, secrets);
    let message =
        if said.is_empty() { format!("it answered {status}") } else { format!("it answered {status}: {said}") };
    let is_exhausted = headers.get("x-ratelimit-remaining").is_some_and(|left| left == "0");
    let is_limit = status == StatusCode::TOO_MANY_REQUESTS
        || (status == StatusCode::FORBIDDEN && (is_exhausted || headers.contains_key(header::RETRY_AFTER)));
    match status {
        _ if is_limit => PullError::Limited { message, wait: wait(headers, now) },
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => PullError::Unauthorized(message),
        StatusCode::NOT_FOUND => PullError::NotFound(message),
        StatusCode::REQUEST_TIMEOUT => PullError::Unavailable(message),
        _ if status.is_server_error() => PullError::Unavailable(message),
        _ if status.is_redirection() => PullError::Refused(format!("{message}; redirects are not followed")),
        _ => PullError::Refused(message),
    }
}

/// How long a server that limits us wants us to wait.
fn wait(headers: &HeaderMap, now: Timestamp) -> Duration {
    let reset = || {
        let at: i64 = headers.get("x-ratelimit-reset")?.to_str().ok()?.trim().parse().ok()?;
        let left = u64::try_from(at.saturating_sub(now.as_second())).unwrap_or_default();
        Some(Duration::from_secs(left).min(LONGEST))
    };
    let wait = stoa_outbound::retry_after(headers, now, LONGEST).or_else(reset).unwrap_or(UNSAID);
    wait.max(Duration::from_secs(1))
}

/// The sentence of a refusal, on one line, cut short, and without secrets.
fn said(body: &[u8], secrets: &[String]) -> String {
    let Ok(Refusal { message, error }) = serde_json::from_slice(body) else { return String::new() };
    let mut message = message.or(error).map(|value| texts(&value).join(", ")).unwrap_or_default();
    for secret in secrets.iter().filter(|secret| secret.len() >= 3) {
        message = message.replace(secret.as_str(), "(sensitive)");
    }
    let line: String = message.chars().take(SAID).map(|c| if c.is_control() { ' ' } else { c }).collect();
    line.trim().to_owned()
}

/// All texts in a value, without the keys.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(fields) => fields.values().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const COMMIT: &str = "0123456789012345678901234567890123456789";

    fn pull(changes: Value) -> Value {
        let mut pull = json!({
            "number": 7, "html_url": "https://git.example.com/shop/deploy/pulls/7", "title": "t", "body": "b", "state": "open",
            "merged": false, "merged_at": null, "merge_commit_sha": null,
            "head": {"ref": "stoa/x", "sha": COMMIT, "repo": {"full_name": "Shop/deploy"}},
            "base": {"ref": "main", "sha": COMMIT, "repo": {"full_name": "shop/deploy"}},
        });
        json_merge(&mut pull, changes);
        pull
    }

    fn json_merge(into: &mut Value, from: Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                from.into_iter().for_each(|(key, value)| json_merge(into.entry(key).or_insert(Value::Null), value));
            }
            (into, from) => *into = from,
        }
    }

    fn read(value: &Value) -> Result<PullRequest, PullError> {
        decode::<Pull>(value.to_string().as_bytes())?.try_into()
    }

    #[test]
    fn pull_request_is_read_as_its_server_tells_it() {
        let open = read(&pull(json!({}))).unwrap();
        assert_eq!((open.number, open.head.as_str(), open.base.as_str()), (7, "stoa/x", "main"));
        assert_eq!((open.state, open.head_commit.as_deref(), open.is_fork), (PullState::Open, Some(COMMIT), false));
        assert_eq!(open.url, "https://git.example.com/shop/deploy/pulls/7");
        for (changes, state) in [
            (json!({"state": "closed"}), PullState::Closed),
            (
                json!({"state": "closed", "merged": true, "merge_commit_sha": COMMIT}),
                PullState::Merged(Some(COMMIT.to_owned())),
            ),
            (json!({"state": "closed", "merged_at": "2026-01-01T00:00:00Z"}), PullState::Merged(None)),
            // GitHub has a commit there that tries whether it can be merged.
            (json!({"merge_commit_sha": COMMIT}), PullState::Open),
        ] {
            assert_eq!(read(&pull(changes)).unwrap().state, state);
        }
        for fork in [
            json!({"head": {"repo": {"full_name": "eve/deploy"}}}),
            json!({"head": {"repo": null}}),
            // Pushed to `refs/for/main`; the second beside a branch of that name.
            json!({"head": {"ref": "refs/pull/7/head", "label": ""}}),
            json!({"head": {"ref": "stoa/x", "label": ""}}),
            json!({"head": {"ref": "refs/pull/7/head"}}),
        ] {
            assert!(read(&pull(fork.clone())).unwrap().is_fork, "{fork}");
        }
        let gone = read(&pull(json!({"head": {"ref": "refs/pull/7/head", "label": "stoa/x"}}))).unwrap();
        assert_eq!((gone.head.as_str(), gone.is_fork), ("stoa/x", false));
        assert_eq!(read(&pull(json!({"head": {"sha": ""}}))).unwrap().head_commit, None);
        assert_eq!(read(&pull(json!({"html_url": "javascript:alert(1)"}))).unwrap().url, "");
    }

    /// From GitLab's documentation of merge requests, without fields that are not read.
    fn merge_request(changes: Value) -> Value {
        let mut request = json!({
            "id": 1, "iid": 7, "project_id": 3, "title": "test1", "description": "fixed login page css paddings",
            "state": "opened", "merged_at": null, "target_branch": "main", "source_branch": "stoa/x", "author": {"id": 1,
            "username": "admin"}, "source_project_id": 3, "target_project_id": 3, "draft": false, "has_conflicts": false,
            "merge_status": "can_be_merged", "detailed_merge_status": "mergeable", "sha": COMMIT, "merge_commit_sha": null,
            "squash_commit_sha": null, "web_url": "https://gitlab.example.com/shop/deploy/-/merge_requests/7",
        });
        json_merge(&mut request, changes);
        request
    }

    #[test]
    fn merge_request_of_gitlab_is_read() {
        let read = |changes: Value| {
            let request = decode::<MergeRequest>(merge_request(changes).to_string().as_bytes())?;
            PullRequest::try_from(request.with_default(Some("main".to_owned())))
        };
        let open = read(json!({})).unwrap();
        assert_eq!((open.number, open.head.as_str(), open.base.as_str()), (7, "stoa/x", "main"));
        assert_eq!((&open.state, open.head_commit.as_deref(), open.is_fork), (&PullState::Open, Some(COMMIT), false));
        assert_eq!((open.is_to_default, open.base_commit, open.is_mergeable), (true, None, Some(true)));
        assert_eq!(open.body, "fixed login page css paddings");
        assert_eq!(open.url, "https://gitlab.example.com/shop/deploy/-/merge_requests/7");
        let other = "a".repeat(40);
        for (changes, state) in [
            (json!({"state": "closed"}), PullState::Closed),
            (json!({"state": "locked"}), PullState::Open),
            (json!({"state": "merged", "merge_commit_sha": other}), PullState::Merged(Some(other.clone()))),
            (json!({"state": "merged", "squash_commit_sha": other}), PullState::Merged(Some(other.clone()))),
            // Fast forward.
            (json!({"state": "merged"}), PullState::Merged(Some(COMMIT.to_owned()))),
        ] {
            assert_eq!(read(changes).unwrap().state, state);
        }
        for (changes, expected) in [
            (json!({"has_conflicts": true, "detailed_merge_status": "conflict"}), Some(false)),
            (json!({"detailed_merge_status": "need_rebase"}), Some(false)),
            (json!({"detailed_merge_status": "checking"}), None),
            (json!({"detailed_merge_status": "not_approved"}), Some(true)),
        ] {
            assert_eq!(read(changes).unwrap().is_mergeable, expected);
        }
        for fork in [json!({"source_project_id": 4}), json!({"source_project_id": null})] {
            assert!(read(fork.clone()).unwrap().is_fork, "{fork}");
        }
        assert!(!read(json!({"target_branch": "dev"})).unwrap().is_to_default);
        assert!(matches!(read(json!({"state": "half open"})), Err(PullError::Malformed(_))));
        assert!(matches!(read(json!({"sha": "none"})), Err(PullError::Malformed(_))));
    }

    #[test]
    fn malformed_pull_request_error_quotes_nothing() {
        for changes in [
            json!({"number": -1}),
            json!({"state": "hunter2"}),
            json!({"head": {"sha": "hunter2"}}),
            json!({"head": {"ref": "x".repeat(3000)}}),
            json!({"base": "hunter2"}),
        ] {
            let Err(PullError::Malformed(message)) = read(&pull(changes.clone())) else { panic!("{changes}") };
            assert!(!message.contains("hunter2"), "{message}");
        }
        assert!(matches!(decode::<Pull>(b"<html>"), Err(PullError::Malformed(_))));
    }

    #[test]
    fn refusals_say_what_to_do_and_no_secret() {
        let now = Timestamp::from_second(1_000).unwrap();
        let answer = |status: u16, headers: &[(&'static str, &'static str)], body: &str| {
            let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
            let status = StatusCode::from_u16(status).unwrap();
            refusal(status, &headers, body.as_bytes(), now, &["s3cr3t".to_owned()])
        };
        let limited = |error| match error {
            PullError::Limited { wait, .. } => wait.as_secs(),
            other => panic!("{other:?}"),
        };
        assert_eq!(limited(answer(429, &[("retry-after", "7")], "")), 7);
        assert_eq!(limited(answer(429, &[], "")), 60);
        assert_eq!(limited(answer(403, &[("retry-after", "0")], "")), 1);
        assert_eq!(limited(answer(403, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1030")], "")), 30);
        assert_eq!(limited(answer(429, &[("x-ratelimit-reset", "999999999999")], "")), 3600);
        assert_eq!(limited(answer(429, &[("retry-after", "99999999999999999")], "")), 3600);
        let told = answer(401, &[], r#"{"message": "token s3cr3t\nis not known"}"#);
        assert_eq!(
            told,
            PullError::Unauthorized("it answered 401 Unauthorized: token (sensitive) is not known".to_owned())
        );
        for body in [
            r#"{"message": ["Another open merge request already exists for this source branch: !1"]}"#,
            r#"{"message": {"base": ["Another open merge request already exists for this source branch: !1"]}}"#,
            r#"{"error": "Another open merge request already exists for this source branch: !1"}"#,
        ] {
            let told = answer(409, &[], body).to_string();
            assert!(told.ends_with("Another open merge request already exists for this source branch: !1"), "{told}");
        }
        assert!(matches!(answer(403, &[], "{}"), PullError::Unauthorized(_)));
        assert!(matches!(answer(404, &[], "[]"), PullError::NotFound(_)));
        assert!(matches!(answer(502, &[], "<html>"), PullError::Unavailable(_)));
        assert!(matches!(answer(422, &[], ""), PullError::Refused(_)));
        let PullError::Refused(message) = answer(302, &[], "") else { panic!() };
        assert!(message.ends_with("redirects are not followed"), "{message}");
        let long = format!(r#"{{"message": "{}"}}"#, "x".repeat(10_000));
        assert!(answer(422, &[], &long).to_string().len() < 300);
    }

    /// JSON of the shapes that servers have, with anything in place of what should be there.
    fn anything() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,50}".prop_map(Value::from),
        ];
        leaf.prop_recursive(2, 8, 3, |inner| {
            let keys = prop::sample::select(vec!["ref", "sha", "repo", "full_name", "message", "login"]);
            prop::collection::hash_map(keys, inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()))
        })
    }

    proptest! {
        /// Whatever stands in a field: it is read or refused, and what was read is within bounds.
        #[test]
        fn hostile_answers_are_read_or_refused(
            field in prop::sample::select(vec!["number", "html_url", "title", "body", "state", "merged", "merged_at",
                "merge_commit_sha", "head", "base"]),
            value in anything(),
        ) {
            let mut answer = pull(json!({}));
            answer[field] = value;
            if let Ok(pull) = read(&answer) {
                prop_assert!(pull.url.len() <= LONGEST_TEXT && pull.head.len() <= LONGEST_TEXT);
                prop_assert!(pull.head_commit.is_none_or(|commit| is_commit(&commit)));
            }
        }

        /// No refusal makes a panic, or passes on more than a line.
        #[test]
        fn hostile_refusals_are_a_line(
            status in 300_u16..600,
            wait in "[0-9a-zA-Z,: -]{0,30}",
            reset in "-?[0-9]{0,25}",
            body in prop::collection::vec(any::<u8>(), 0..200),
            message in ".{0,300}",
        ) {
            let mut headers = HeaderMap::new();
            headers.insert("retry-after", wait.parse().unwrap());
            headers.insert("x-ratelimit-reset", reset.parse().unwrap());
            for body in [body, json!({"message": message}).to_string().into_bytes()] {
                let told = refusal(StatusCode::from_u16(status).unwrap(), &headers, &body, Timestamp::UNIX_EPOCH, &[]);
                prop_assert!(!told.to_string().contains('\n') && told.to_string().chars().count() < SAID + 100);
            }
        }
    }
}
