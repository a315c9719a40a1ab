//! The REST APIs of Gitea, Forgejo, GitHub and GitLab: the same steps, with the paths and fields of each.

mod issues;

use std::ops::ControlFlow;

use async_trait::async_trait;
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use stoa_outbound::InvalidBundle;
use tracing::warn;

use crate::{
    Address, CommentText, CommitStatus, Provider, PullError, PullRequest, PullRequests, PullState, StatusState, Text,
    answers::{self, BaseBranch, Combined, Comment, Label, MergeRequest, Project, Pull, Said, User},
    is_marked, marked,
    transport::{Credentials, PAGE, Pauses, Transport},
};

/// How many characters are sent of texts for which servers have limits: GitHub takes 65,536 and 140, Gitea and GitLab 255 of a
/// title, GitLab 255 of a status.
const TITLE: usize = 200;
const BODY: usize = 60_000;
const DESCRIPTION: usize = 140;
/// The colour of labels that are made.
const LABEL_COLOUR: &str = "#0e8a16";

/// The pull requests of a repository at a server.
#[derive(Debug)]
pub struct Server {
    transport: Transport,
}

impl Server {
    /// Reaches nothing yet.
    ///
    /// # Errors
    ///
    /// [`InvalidBundle`] when the certificate authorities are none.
    pub fn new(address: Address, credentials: &Credentials, pauses: Pauses) -> Result<Self, InvalidBundle> {
        Ok(Self { transport: Transport::new(address, credentials, pauses)? })
    }

    /// The same, whose errors quote the server's words only where it is on the host of the repository. Those of another host have
    /// the status alone: the author of its address may have no access there.
    #[must_use]
    pub fn quoting_at_remote_alone(self) -> Self {
        Self { transport: self.transport.quoting_at_remote_alone() }
    }

    fn provider(&self) -> Provider {
        self.transport.address.provider
    }

    /// The path of the repository.
    fn root(&self) -> String {
        let Address { owner, name, .. } = &self.transport.address;
        match self.provider() {
            Provider::Gitea | Provider::GitHub => format!("/repos/{owner}/{name}"),
            // Names have no other character that means something in a path.
            Provider::GitLab => format!("/projects/{}%2F{name}", owner.replace('/', "%2F")),
        }
    }

    /// The path of something in the repository, such as `labels`.
    fn path(&self, of: &str) -> String {
        format!("{}/{of}", self.root())
    }

    /// The path of all pull requests.
    fn pulls(&self) -> String {
        self.path(match self.provider() {
            Provider::Gitea | Provider::GitHub => "pulls",
            Provider::GitLab => "merge_requests",
        })
    }

    /// The path of one pull request.
    fn pull(&self, number: u64) -> String {
        format!("{}/{number}", self.pulls())
    }

    /// The method that changes some fields.
    fn edit(&self) -> Method {
        match self.provider() {
            Provider::Gitea | Provider::GitHub => Method::PATCH,
            Provider::GitLab => Method::PUT,
        }
    }

    /// The query for the pull requests in a state, `open` or `closed`, between branches as far as the server can tell; those that
    /// were changed last come first where a head is named.
    fn query(&self, state: &str, head: Option<&str>, base: &str) -> String {
        let to = |field: &str| if base.is_empty() { String::new() } else { format!("{field}={}&", escaped(base)) };
        match (self.provider(), head) {
            (Provider::Gitea, None) => format!("state={state}&"),
            (Provider::Gitea, Some(_)) => format!("state={state}&sort=recentupdate&"),
            (Provider::GitHub, None) => format!("state={state}&{}", to("base")),
            (Provider::GitHub, Some(head)) => {
                let of = escaped(&format!("{}:{head}", self.transport.address.owner));
                format!("state={state}&sort=updated&direction=desc&head={of}&{}", to("base"))
            }
            (Provider::GitLab, head) => {
                let state = if state == "open" { "opened" } else { state };
                let of = head.map(|head| format!("source_branch={}&", escaped(head))).unwrap_or_default();
                format!("state={state}&order_by=updated_at&sort=desc&{of}{}", to("target_branch"))
            }
        }
    }

    /// The change that closes a pull request or an issue.
    fn closing(&self) -> Value {
        match self.provider() {
            Provider::Gitea | Provider::GitHub => json!({"state": "closed"}),
            Provider::GitLab => json!({"state_event": "close"}),
        }
    }

    /// The title and description of a pull request or an issue.
    fn text_json(&self, text: &Text) -> Value {
        let (title, body) = (cut(&one_line(&text.title), TITLE), self.markdown(&text.body));
        match self.provider() {
            Provider::Gitea | Provider::GitHub => json!({"title": title, "body": body}),
            Provider::GitLab => json!({"title": title, "description": body}),
        }
    }

    /// A text that is not too long, and orders nothing: GitLab carries out lines such as `/merge`, but not behind a space.
    fn markdown(&self, text: &str) -> String {
        let text = cut_body(text);
        match self.provider() {
            Provider::Gitea | Provider::GitHub => text,
            Provider::GitLab if text.starts_with('/') => format!(" {}", text.replace("\n/", "\n /")),
            Provider::GitLab => text.replace("\n/", "\n /"),
        }
    }

    /// A pull request of an answer. `default` is the repository's default branch where no such answer names it.
    fn read(&self, pull: Value, default: Option<String>) -> Result<PullRequest, PullError> {
        let pull = match self.provider() {
            Provider::Gitea | Provider::GitHub => answers::read::<Pull>(pull)?,
            Provider::GitLab => answers::read::<MergeRequest>(pull)?.with_default(default),
        };
        pull.try_into()
    }

    /// The repository's default branch, unless the answers with pull requests name it.
    async fn default_branch(&self) -> Result<Option<String>, PullError> {
        match self.provider() {
            Provider::Gitea | Provider::GitHub => Ok(None),
            Provider::GitLab => Ok(self.transport.get_json::<Project>(&self.root()).await?.default_branch),
        }
    }

    /// The branch that a pull request goes to, unless the answer with it has what there is to know; nothing where it is gone.
    async fn base(&self, pull: &PullRequest) -> Result<Option<BaseBranch>, PullError> {
        match self.provider() {
            Provider::Gitea | Provider::GitHub => Ok(None),
            Provider::GitLab => {
                let path = self.path(&format!("repository/branches/{}", escaped(&pull.base)));
                match self.transport.get_json::<BaseBranch>(&path).await {
                    Ok(branch) => Ok(Some(branch)),
                    Err(PullError::NotFound(_)) => Ok(None),
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Shows `look` the pull requests of a query, as [`Transport::each`] does. One that cannot be read is not in the way of the
    /// others.
    async fn each_pull<R>(
        &self,
        query: &str,
        mut look: impl FnMut(PullRequest) -> ControlFlow<R> + Send,
    ) -> Result<Option<ControlFlow<R>>, PullError> {
        let default = self.default_branch().await?;
        let look = |pull: Value| {
            let number = pull["number"].as_u64().or(pull["iid"].as_u64());
            match self.read(pull, default.clone()) {
                Ok(pull) => look(pull),
                Err(error) => {
                    let of = self.transport.address.shown();
                    warn!(%of, number, %error, "pull request cannot be read, and is left out");
                    ControlFlow::Continue(())
                }
            }
        };
        self.transport.each(&self.pulls(), query, look).await
    }

    /// The open pull request of two branches, among all that are open: those that were changed last come first, and no more are
    /// read than it takes.
    async fn find_listed(&self, head: &str, base: &str) -> Result<Option<PullRequest>, PullError> {
        let is_it =
            |pull| if is_between(&pull, head, base) { ControlFlow::Break(pull) } else { ControlFlow::Continue(()) };
        let found = self.each_pull(&self.query("open", Some(head), base), is_it).await?;
        Ok(found.ok_or_else(|| self.transport.too_many())?.break_value())
    }

    /// What was said last of a commit in a context, among what was said in others.
    async fn said(&self, commit: &str, context: &str) -> Result<Vec<Said>, PullError> {
        match self.provider() {
            Provider::Gitea | Provider::GitHub => {
                let path = self.path(&format!("commits/{commit}/status"));
                Ok(self.transport.get_json::<Combined>(&path).await?.statuses.unwrap_or_default())
            }
            Provider::GitLab => {
                let path = self.path(&format!("repository/commits/{commit}/statuses"));
                let path = format!("{path}?name={}&per_page={PAGE}", escaped(context));
                let said: Vec<Said> = self.transport.get_json(&path).await?;
                let of_context = said.into_iter().filter(|said| said.context == context);
                Ok(of_context.max_by_key(|said| said.id).into_iter().collect())
            }
        }
    }
}

/// Whether it is that of two branches of the repository itself.
fn is_between(pull: &PullRequest, head: &str, base: &str) -> bool {
    pull.head == head && pull.base == base && !pull.is_fork
}

/// A text as a part of a path or query.
fn escaped(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// At most so many characters, and how much that leaves out.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// A description that is not too long; its last line may be a marker, which stays.
fn cut_body(text: &str) -> String {
    if text.chars().count() <= BODY {
        return text.to_owned();
    }
    match text.trim_end().rsplit_once("\n\n") {
        Some((before, marker)) if marker.starts_with("<!-- ") && marker.len() < 1_000 => {
            format!("{}\n\n{marker}\n", cut(before, BODY - 1_010))
        }
        _ => cut(text, BODY),
    }
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[async_trait]
impl PullRequests for Server {
    async fn get(&self, number: u64) -> Result<PullRequest, PullError> {
        let mut pull = self.read(self.transport.get_json(&self.pull(number)).await?, None)?;
        if let Some(base) = self.base(&pull).await? {
            base.complete(&mut pull)?;
        }
        Ok(pull)
    }

    async fn find(&self, head: &str, base: &str) -> Result<Option<PullRequest>, PullError> {
        // Gitea tells one of the two branches, which may be closed; without any, there is no open one either.
        if self.provider() == Provider::Gitea && !base.contains('/') {
            let branch = head.split('/').map(escaped).collect::<Vec<_>>().join("/");
            let path = self.path(&format!("pulls/{}/{branch}", escaped(base)));
            match self.transport.get_json::<Pull>(&path).await.and_then(PullRequest::try_from) {
                Ok(pull) if pull.state == PullState::Open && is_between(&pull, head, base) => return Ok(Some(pull)),
                Err(PullError::NotFound(_)) => return Ok(None),
                // It may be an old one.
                Ok(_) | Err(PullError::Malformed(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.find_listed(head, base).await
    }

    async fn find_closed(&self, head: &str, base: &str, commit: &str) -> Result<Option<PullRequest>, PullError> {
        let mut left = PAGE;
        let is_it = |pull: PullRequest| {
            left = left.saturating_sub(1);
            let is_at = pull.head_commit.as_deref() == Some(commit);
            if is_at && pull.state == PullState::Closed && is_between(&pull, head, base) {
                ControlFlow::Break(Some(pull))
            } else if left == 0 {
                ControlFlow::Break(None)
            } else {
                ControlFlow::Continue(())
            }
        };
        let found = self.each_pull(&self.query("closed", Some(head), base), is_it).await?;
        Ok(found.and_then(ControlFlow::break_value).flatten())
    }

    async fn list_open(&self, base: &str) -> Result<Vec<PullRequest>, PullError> {
        let mut open = Vec::new();
        let keep = |pull: PullRequest| {
            open.extend(pull.goes_to(base).then_some(pull));
            ControlFlow::<()>::Continue(())
        };
        // Those that are not read any more were changed long ago.
        self.each_pull(&self.query("open", None, base), keep).await.map(drop)?;
        Ok(open)
    }

    async fn open(&self, head: &str, base: &str, text: &Text) -> Result<PullRequest, PullError> {
        let (from, to) = match self.provider() {
            Provider::Gitea | Provider::GitHub => ("head", "base"),
            Provider::GitLab => ("source_branch", "target_branch"),
        };
        let mut body = self.text_json(text);
        body[from] = head.into();
        body[to] = base.into();
        match self.transport.send(Method::POST, &self.pulls(), body).await {
            Ok(pull) => self.read(pull, self.default_branch().await?),
            // Gitea and GitLab answer 409 and GitHub 422 where there is one already, as after a try whose answer was lost.
            Err(PullError::Refused(why)) => self.find_listed(head, base).await?.ok_or(PullError::Refused(why)),
            Err(error) => Err(error),
        }
    }

    async fn update(&self, number: u64, text: &Text) -> Result<(), PullError> {
        self.transport.send::<IgnoredAny>(self.edit(), &self.pull(number), self.text_json(text)).await.map(drop)
    }

    async fn label(&self, number: u64, label: &str) -> Result<(), PullError> {
        let labels = match self.provider() {
            Provider::GitHub => json!([label]),
            Provider::GitLab => {
                // It makes the label, too.
                let body = json!({"add_labels": label});
                return self.transport.send::<IgnoredAny>(Method::PUT, &self.pull(number), body).await.map(drop);
            }
            Provider::Gitea => {
                let is_it = |found: Label| {
                    if found.name == label { ControlFlow::Break(found.id) } else { ControlFlow::Continue(()) }
                };
                let found = self.transport.each(&self.path("labels"), "", is_it).await?;
                let id = match found.and_then(ControlFlow::break_value) {
                    Some(id) => id,
                    None => {
                        let new = json!({"name": label, "color": LABEL_COLOUR});
                        self.transport.send::<Label>(Method::POST, &self.path("labels"), new).await?.id
                    }
                };
                json!([id])
            }
        };
        let path = self.path(&format!("issues/{number}/labels"));
        self.transport.send::<IgnoredAny>(Method::POST, &path, json!({"labels": labels})).await.map(drop)
    }

    async fn close(&self, number: u64) -> Result<(), PullError> {
        if self.get(number).await?.state != PullState::Open {
            return Ok(());
        }
        self.transport.send::<IgnoredAny>(self.edit(), &self.pull(number), self.closing()).await.map(drop)
    }

    async fn set_status(&self, commit: &str, status: &CommitStatus) -> Result<(), PullError> {
        if !answers::is_commit(commit) {
            return Err(PullError::Refused("a status is of a commit, named in full".to_owned()));
        }
        let is_gitlab = self.provider() == Provider::GitLab;
        let state = match status.state {
            StatusState::Pending => "pending",
            StatusState::Success => "success",
            StatusState::Failure | StatusState::Error if is_gitlab => "failed",
            StatusState::Failure => "failure",
            StatusState::Error => "error",
        };
        // GitLab rejects a new description for a status that stays pending.
        let is_any_description = is_gitlab && status.state == StatusState::Pending;
        let description = cut(&one_line(&status.description), DESCRIPTION);
        // Servers keep everything that was ever said of a commit.
        let said = match self.said(commit, &status.context).await {
            Ok(said) => said,
            Err(error) if error.is_retryable() => return Err(error),
            // Whether it may be said of this commit is told when it is.
            Err(_) => Vec::new(),
        };
        let is_same = |said: &Said| {
            let is_described = is_any_description || said.description.as_deref() == Some(&description);
            said.context == status.context && said.state == state && is_described
        };
        if said.iter().any(is_same) {
            return Ok(());
        }
        let mut body = json!({"context": status.context, "state": state, "description": description});
        if let Some(url) = &status.url {
            body["target_url"] = url.as_str().into();
        }
        let path = self.path(&format!("statuses/{commit}"));
        self.transport.send::<IgnoredAny>(Method::POST, &path, body).await.map(drop)
    }

    async fn comment(&self, number: u64, comment: &CommentText<'_>) -> Result<u64, PullError> {
        let (path, query, one) = match self.provider() {
            Provider::Gitea | Provider::GitHub => {
                (self.path(&format!("issues/{number}/comments")), "", self.path("issues/comments"))
            }
            Provider::GitLab => {
                let notes = format!("{}/notes", self.pull(number));
                (notes.clone(), "sort=asc&order_by=created_at&", notes)
            }
        };
        let mut comments = Vec::new();
        let keep = |comment: Comment| {
            comments.push(comment);
            ControlFlow::<()>::Continue(())
        };
        // Ours may be among those that are not read.
        let all = self.transport.each(&path, query, keep).await?;
        all.map(drop).ok_or_else(|| self.transport.too_many())?;
        let login = self.transport.login().await?;
        let is_by_us = |there: &Comment| match (login, comment.before) {
            (Some(login), _) => there.writer().and_then(User::name) == Some(login),
            (None, Some(id)) => there.id == id,
            (None, None) => there.writer().is_some_and(User::is_program),
        };
        let is_ours =
            |there: &&Comment| is_marked(there.body.as_deref().unwrap_or_default(), comment.marker) && is_by_us(there);
        let text = self.markdown(&marked(comment.body, comment.marker));
        match comments.iter().find(is_ours) {
            // Servers differ in how they keep the end of a text.
            Some(there) if there.body.as_deref().unwrap_or_default().trim_end() == text.trim_end() => Ok(there.id),
            Some(there) => {
                let (path, body) = (format!("{one}/{}", there.id), json!({"body": text}));
                self.transport.send::<IgnoredAny>(self.edit(), &path, body).await.map(|_| there.id)
            }
            None => {
                let made = self.transport.send::<Comment>(Method::POST, &path, json!({"body": text})).await;
                made.map(|made| made.id)
            }
        }
    }
}

#[cfg(test)]
mod tests;
