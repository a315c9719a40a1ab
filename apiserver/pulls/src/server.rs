//! The REST APIs of Gitea, Forgejo and GitHub, which are alike in what is needed here.

use std::{
    collections::{HashMap, hash_map::DefaultHasher},
    hash::{Hash as _, Hasher as _},
    ops::ControlFlow,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};
use stoa_outbound::{Client, InvalidBundle, causes};
use tokio::sync::OnceCell;
use tracing::warn;

use crate::{
    Address, CommentText, CommitStatus, Provider, PullError, PullRequest, PullRequests, PullState, StatusState, Text,
    answers::{self, Combined, Comment, Label, Pull, User},
    is_marked, marked,
};

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How much of an answer is read: a page of pull requests with long descriptions.
const ANSWER: usize = 8 << 20;
/// How many a page has.
const PAGE: usize = 50;
/// How many pages are read.
const PAGES: usize = 20;
/// How many characters are sent of texts for which servers have limits: GitHub takes 65,536 and 140, Gitea 255 of a title.
const TITLE: usize = 200;
const BODY: usize = 60_000;
const DESCRIPTION: usize = 140;
/// The colour of labels that are made.
const LABEL_COLOUR: &str = "#0e8a16";

/// What is shown to a server, and whom it has to have its certificate from.
#[derive(Clone, Default, educe::Educe)]
#[educe(Debug)]
pub struct Credentials {
    /// A token; or none, and then the user name and password are shown.
    #[educe(Debug(ignore))]
    pub token: Option<String>,
    /// The user and the password, which may be a token, too.
    #[educe(Debug(ignore))]
    pub basic: Option<(String, String)>,
    /// Certificate authorities, PEM; empty: those of the system.
    #[educe(Debug(ignore))]
    pub authorities: Vec<u8>,
}

impl Credentials {
    /// What keys as in Secrets of the type `kubernetes.io/basic-auth` (`username`, `password`), or `token`, and `ca.crt` mean.
    pub fn of_keys<'a>(mut get: impl FnMut(&str) -> Option<&'a [u8]>) -> Self {
        let mut text = |key: &str| {
            let text = get(key).and_then(|value| std::str::from_utf8(value).ok()).map(str::trim);
            text.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let (token, password) = (text("token"), text("password"));
        // Servers that take a token in place of the password want some user.
        let user = text("username").unwrap_or_else(|| "git".to_owned());
        Self { token, basic: password.map(|it| (user, it)), authorities: get("ca.crt").unwrap_or_default().to_vec() }
    }

    /// The header `Authorization` that shows them, if there are any.
    pub fn authorization(&self) -> Option<HeaderValue> {
        let text = match (&self.token, &self.basic) {
            (Some(token), _) => format!("Bearer {token}"),
            (None, Some((user, password))) => format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))),
            (None, None) => return None,
        };
        let mut value = HeaderValue::from_str(&text).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// Until when servers are not asked, since they said so. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Pauses(Arc<Mutex<HashMap<u64, Instant>>>);

impl Pauses {
    fn left(&self, key: u64) -> Option<Duration> {
        let mut pauses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        pauses.retain(|_, until| *until > now);
        pauses.get(&key).map(|until| *until - now)
    }

    fn pause(&self, key: u64, wait: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Instant::now() + wait);
    }
}

/// The pull requests of a repository at a server.
#[derive(educe::Educe)]
#[educe(Debug)]
pub struct Server {
    address: Address,
    client: Client<Full<Bytes>>,
    #[educe(Debug(ignore))]
    authorization: Option<HeaderValue>,
    #[educe(Debug(ignore))]
    secrets: Vec<String>,
    pauses: Pauses,
    /// Whether errors have what the server says of a refusal.
    quotes: bool,
    /// Whom a server limits: the address and the credentials, as a hash.
    limited: u64,
    /// Who we are there.
    login: OnceCell<Option<String>>,
}

impl Server {
    /// Reaches nothing yet.
    ///
    /// # Errors
    ///
    /// [`InvalidBundle`] when the certificate authorities are none.
    pub fn new(address: Address, credentials: &Credentials, pauses: Pauses) -> Result<Self, InvalidBundle> {
        let client = stoa_outbound::client(stoa_outbound::tls(&credentials.authorities)?);
        let authorization = credentials.authorization();
        let mut hasher = DefaultHasher::new();
        (&address.api, authorization.as_ref().map(HeaderValue::as_bytes)).hash(&mut hasher);
        let limited = hasher.finish();
        let shown =
            authorization.as_ref().and_then(|value| value.to_str().ok()).and_then(|text| text.split(' ').nth(1));
        let password = credentials.basic.as_ref().map(|(_, password)| password.clone());
        let secrets = shown.map(str::to_owned).into_iter().chain(password).chain(credentials.token.clone()).collect();
        let login = OnceCell::new();
        Ok(Self { address, client, authorization, secrets, pauses, quotes: true, limited, login })
    }

    /// The same, but for what a server at another host than the repository's says of a refusal, of which errors have the status
    /// alone: whoever named the host, or reads of it, may be one who could not ask there.
    #[must_use]
    pub fn quoting_at_remote_alone(self) -> Self {
        Self { quotes: self.address.is_at_remote(), ..self }
    }

    /// The path of something in the repository, such as `pulls/7`.
    fn path(&self, of: &str) -> String {
        format!("/repos/{}/{}/{of}", self.address.owner, self.address.name)
    }

    async fn get_json<T: DeserializeOwned>(&self, path: &str) -> Result<T, PullError> {
        let (_, body) = self.call(Method::GET, path, None).await?;
        answers::decode(&body)
    }

    /// Makes a call whose answer is JSON, if it is read at all.
    async fn send<T: DeserializeOwned>(&self, method: Method, path: &str, body: Value) -> Result<T, PullError> {
        let (_, body) = self.call(method, path, Some(&body)).await?;
        answers::decode(&body)
    }

    /// Makes one call: what it answered if that is a success.
    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<(HeaderMap, Bytes), PullError> {
        let shown = self.address.shown();
        if let Some(wait) = self.pauses.left(self.limited) {
            // Without the time: what is told of it is to change no more often than what it says.
            let message = format!("{shown} asked to be left alone for a while");
            return Err(PullError::Limited { message, wait });
        }
        let failed = |why: &str| PullError::Unavailable(format!("{shown} {why}"));
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.address.api));
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let accept = match self.address.provider {
            Provider::Gitea => "application/json",
            Provider::GitHub => "application/vnd.github+json",
        };
        let sent = body.map(Value::to_string).unwrap_or_default();
        let request = request
            .header(header::ACCEPT, accept)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, "stoa")
            .body(Full::new(Bytes::from(sent)))
            .map_err(|_| PullError::Refused(format!("{shown} cannot be asked for {path}")))?;
        let answered = async {
            let response = self.client.request(request).await.map_err(|error| failed(&causes(&error)))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, ANSWER).collect().await;
            let body = body.map_err(|error| match error.downcast::<http_body_util::LengthLimitError>() {
                Ok(_) => PullError::Malformed(format!("{shown} answered more than {ANSWER} bytes")),
                Err(error) => failed(&causes(&*error)),
            })?;
            Ok((head, body.to_bytes()))
        };
        let answered = tokio::time::timeout(TIMEOUT, answered).await;
        let (head, body) = answered.map_err(|_| failed(&format!("did not answer within {TIMEOUT:?}")))??;
        if head.status.is_success() {
            return Ok((head.headers, body));
        }
        let said: &[u8] = if self.quotes { &body } else { &[] };
        let error = answers::refusal(head.status, &head.headers, said, Timestamp::now(), &self.secrets);
        if let PullError::Limited { wait, .. } = &error {
            self.pauses.pause(self.limited, *wait);
        }
        Err(self.naming(error))
    }

    /// An error that says which server it is of.
    fn naming(&self, error: PullError) -> PullError {
        let named = |said: String| format!("{}: {said}", self.address.shown());
        match error {
            PullError::Unauthorized(said) => PullError::Unauthorized(named(said)),
            PullError::NotFound(said) => PullError::NotFound(named(said)),
            PullError::Refused(said) => PullError::Refused(named(said)),
            PullError::Limited { message, wait } => PullError::Limited { message: named(message), wait },
            PullError::Unavailable(said) => PullError::Unavailable(named(said)),
            PullError::Malformed(said) => PullError::Malformed(named(said)),
        }
    }

    /// Shows `look` what is in a list, page by page, until it breaks with something or there is no more. `None` when there is more
    /// than is read.
    async fn each<T: DeserializeOwned, R>(
        &self,
        path: &str,
        query: &str,
        mut look: impl FnMut(T) -> ControlFlow<R> + Send,
    ) -> Result<Option<ControlFlow<R>>, PullError> {
        let size = match self.address.provider {
            Provider::Gitea => "limit",
            Provider::GitHub => "per_page",
        };
        for number in 1..=PAGES {
            let path = format!("{path}?{query}{size}={PAGE}&page={number}");
            let (headers, body) = self.call(Method::GET, &path, None).await?;
            let of_page: Vec<T> = answers::decode(&body)?;
            let mut links = headers.get_all(header::LINK).iter().filter_map(|link| link.to_str().ok());
            let is_last = of_page.is_empty() || !links.any(|link| link.contains("rel=\"next\""));
            for item in of_page {
                if let found @ ControlFlow::Break(_) = look(item) {
                    return Ok(Some(found));
                }
            }
            if is_last {
                return Ok(Some(ControlFlow::Continue(())));
            }
        }
        Ok(None)
    }

    /// The same for pull requests. One that cannot be read is not in the way of the others.
    async fn each_pull<R>(
        &self,
        query: &str,
        mut look: impl FnMut(PullRequest) -> ControlFlow<R> + Send,
    ) -> Result<Option<ControlFlow<R>>, PullError> {
        let look = |pull: Value| {
            let number = pull["number"].as_u64();
            match answers::read::<Pull>(pull).and_then(PullRequest::try_from) {
                Ok(pull) => look(pull),
                Err(error) => {
                    let of = self.address.shown();
                    warn!(%of, number, %error, "pull request cannot be read, and is left out");
                    ControlFlow::Continue(())
                }
            }
        };
        self.each(&self.path("pulls"), query, look).await
    }

    fn too_many(&self) -> PullError {
        let message = format!("{} has more than {} of what was asked for", self.address.shown(), PAGES * PAGE);
        PullError::Refused(message)
    }

    /// The open pull request of two branches, among all that are open: those that were changed last come first, and no more are
    /// read than it takes.
    async fn find_listed(&self, head: &str, base: &str) -> Result<Option<PullRequest>, PullError> {
        let query = match self.address.provider {
            Provider::Gitea => "state=open&sort=recentupdate&".to_owned(),
            Provider::GitHub => {
                let of = escaped(&format!("{}:{head}", self.address.owner));
                format!("state=open&head={of}&base={}&", escaped(base))
            }
        };
        let is_it =
            |pull| if is_between(&pull, head, base) { ControlFlow::Break(pull) } else { ControlFlow::Continue(()) };
        let found = self.each_pull(&query, is_it).await?.ok_or_else(|| self.too_many())?;
        Ok(found.break_value())
    }

    /// Who we are; nobody where the server does not tell, as GitHub does not tell an app.
    async fn login(&self) -> Result<Option<&str>, PullError> {
        let login = self.login.get_or_try_init(|| async {
            match self.get_json::<User>("/user").await {
                Ok(user) => Ok(Some(user.login)),
                Err(PullError::Unauthorized(_) | PullError::NotFound(_)) => Ok(None),
                Err(error) => Err(error),
            }
        });
        Ok(login.await?.as_deref())
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

fn text_json(text: &Text) -> Value {
    json!({"title": cut(&one_line(&text.title), TITLE), "body": cut_body(&text.body)})
}

#[async_trait]
impl PullRequests for Server {
    async fn get(&self, number: u64) -> Result<PullRequest, PullError> {
        self.get_json::<Pull>(&self.path(&format!("pulls/{number}"))).await?.try_into()
    }

    async fn find(&self, head: &str, base: &str) -> Result<Option<PullRequest>, PullError> {
        // Gitea tells one of the two branches, which may be closed; without any, there is no open one either.
        if self.address.provider == Provider::Gitea && !base.contains('/') {
            let branch = head.split('/').map(escaped).collect::<Vec<_>>().join("/");
            let path = self.path(&format!("pulls/{}/{branch}", escaped(base)));
            match self.get_json::<Pull>(&path).await.and_then(PullRequest::try_from) {
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
        let query = match self.address.provider {
            Provider::Gitea => "state=closed&sort=recentupdate&".to_owned(),
            Provider::GitHub => {
                let of = escaped(&format!("{}:{head}", self.address.owner));
                format!("state=closed&sort=updated&direction=desc&head={of}&base={}&", escaped(base))
            }
        };
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
        Ok(self.each_pull(&query, is_it).await?.and_then(ControlFlow::break_value).flatten())
    }

    async fn list_open(&self, base: &str) -> Result<Vec<PullRequest>, PullError> {
        let query = match self.address.provider {
            Provider::GitHub if !base.is_empty() => format!("state=open&base={}&", escaped(base)),
            Provider::GitHub | Provider::Gitea => "state=open&".to_owned(),
        };
        let mut open = Vec::new();
        let keep = |pull: PullRequest| {
            open.extend(pull.goes_to(base).then_some(pull));
            ControlFlow::<()>::Continue(())
        };
        // Those that are not read any more were changed long ago.
        self.each_pull(&query, keep).await.map(drop)?;
        Ok(open)
    }

    async fn open(&self, head: &str, base: &str, text: &Text) -> Result<PullRequest, PullError> {
        let mut body = text_json(text);
        body["head"] = head.into();
        body["base"] = base.into();
        match self.send::<Pull>(Method::POST, &self.path("pulls"), body).await {
            Ok(pull) => pull.try_into(),
            // Gitea answers 409 and GitHub 422 where there is one already, as after a try whose answer was lost.
            Err(PullError::Refused(why)) => self.find_listed(head, base).await?.ok_or(PullError::Refused(why)),
            Err(error) => Err(error),
        }
    }

    async fn update(&self, number: u64, text: &Text) -> Result<(), PullError> {
        let path = self.path(&format!("pulls/{number}"));
        self.send::<IgnoredAny>(Method::PATCH, &path, text_json(text)).await.map(drop)
    }

    async fn label(&self, number: u64, label: &str) -> Result<(), PullError> {
        let labels = match self.address.provider {
            Provider::GitHub => json!([label]),
            Provider::Gitea => {
                let is_it = |found: Label| {
                    if found.name == label { ControlFlow::Break(found.id) } else { ControlFlow::Continue(()) }
                };
                let found = self.each(&self.path("labels"), "", is_it).await?.and_then(ControlFlow::break_value);
                let id = match found {
                    Some(id) => id,
                    None => {
                        let new = json!({"name": label, "color": LABEL_COLOUR});
                        self.send::<Label>(Method::POST, &self.path("labels"), new).await?.id
                    }
                };
                json!([id])
            }
        };
        let path = self.path(&format!("issues/{number}/labels"));
        self.send::<IgnoredAny>(Method::POST, &path, json!({"labels": labels})).await.map(drop)
    }

    async fn close(&self, number: u64) -> Result<(), PullError> {
        if self.get(number).await?.state != PullState::Open {
            return Ok(());
        }
        let path = self.path(&format!("pulls/{number}"));
        self.send::<IgnoredAny>(Method::PATCH, &path, json!({"state": "closed"})).await.map(drop)
    }

    async fn set_status(&self, commit: &str, status: &CommitStatus) -> Result<(), PullError> {
        if !answers::is_commit(commit) {
            return Err(PullError::Refused("a status is of a commit, named in full".to_owned()));
        }
        let state = match status.state {
            StatusState::Pending => "pending",
            StatusState::Success => "success",
            StatusState::Failure => "failure",
            StatusState::Error => "error",
        };
        let description = cut(&one_line(&status.description), DESCRIPTION);
        // Servers keep everything that was ever said of a commit.
        let said = match self.get_json::<Combined>(&self.path(&format!("commits/{commit}/status"))).await {
            Ok(said) => said.statuses.unwrap_or_default(),
            Err(error) if error.is_retryable() => return Err(error),
            // Whether it may be said of this commit is told when it is.
            Err(_) => Vec::new(),
        };
        let is_same = |said: &answers::Said| {
            said.context == status.context && said.state == state && said.description.as_deref() == Some(&description)
        };
        if said.iter().any(is_same) {
            return Ok(());
        }
        let mut body = json!({"context": status.context, "state": state, "description": description});
        if let Some(url) = &status.url {
            body["target_url"] = url.as_str().into();
        }
        let path = self.path(&format!("statuses/{commit}"));
        self.send::<IgnoredAny>(Method::POST, &path, body).await.map(drop)
    }

    async fn comment(&self, number: u64, comment: &CommentText<'_>) -> Result<u64, PullError> {
        let path = self.path(&format!("issues/{number}/comments"));
        let mut comments = Vec::new();
        let keep = |comment: Comment| {
            comments.push(comment);
            ControlFlow::<()>::Continue(())
        };
        // Ours may be among those that are not read.
        self.each(&path, "", keep).await?.map(drop).ok_or_else(|| self.too_many())?;
        let login = self.login().await?;
        let is_by_us = |there: &Comment| match (login, comment.before) {
            (Some(login), _) => there.user.as_ref().is_some_and(|user| user.login == login),
            (None, Some(id)) => there.id == id,
            (None, None) => there.user.as_ref().is_some_and(User::is_program),
        };
        let is_ours =
            |there: &&Comment| is_marked(there.body.as_deref().unwrap_or_default(), comment.marker) && is_by_us(there);
        let text = cut_body(&marked(comment.body, comment.marker));
        match comments.iter().find(is_ours) {
            // Servers differ in how they keep the end of a text.
            Some(there) if there.body.as_deref().unwrap_or_default().trim_end() == text.trim_end() => Ok(there.id),
            Some(there) => {
                let path = self.path(&format!("issues/comments/{}", there.id));
                self.send::<IgnoredAny>(Method::PATCH, &path, json!({"body": text})).await.map(|_| there.id)
            }
            None => self.send::<Comment>(Method::POST, &path, json!({"body": text})).await.map(|made| made.id),
        }
    }
}

#[cfg(test)]
mod tests;
