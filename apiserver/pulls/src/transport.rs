//! Calls to the REST API of a Git server: credentials, pauses, bounded answers and pages.

use std::{
    collections::{HashMap, hash_map::DefaultHasher},
    hash::{Hash as _, Hasher as _},
    ops::ControlFlow,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stoa_outbound::{Client, InvalidBundle, causes};
use tokio::{sync::OnceCell, time::Instant};

use crate::{
    Address, Provider, PullError,
    answers::{self, User},
};

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How much of an answer is read: a page of pull requests with long descriptions.
const ANSWER: usize = 8 << 20;
/// How many a page has.
pub(crate) const PAGE: usize = 50;
/// How many pages are read.
const PAGES: usize = 20;

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
        match (&self.token, &self.basic) {
            (Some(token), _) => sensitive(&format!("Bearer {token}")),
            (None, Some((user, password))) => {
                sensitive(&format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
            }
            (None, None) => None,
        }
    }

    /// The same for a server whose API takes no password: a password is a token then, as Git takes it.
    fn token_authorization(&self) -> Option<HeaderValue> {
        let password = self.basic.as_ref().map(|(_, password)| password);
        self.token.as_ref().or(password).and_then(|token| sensitive(&format!("Bearer {token}")))
    }
}

/// A header that no log shows.
fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
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

/// The way to the API of a repository's server.
#[derive(educe::Educe)]
#[educe(Debug)]
pub(crate) struct Transport {
    pub(crate) address: Address,
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

impl Transport {
    /// Reaches nothing yet.
    ///
    /// # Errors
    ///
    /// [`InvalidBundle`] when the certificate authorities are none.
    pub(crate) fn new(address: Address, credentials: &Credentials, pauses: Pauses) -> Result<Self, InvalidBundle> {
        let client = stoa_outbound::client(stoa_outbound::tls(&credentials.authorities)?);
        let authorization = match address.provider {
            Provider::Gitea | Provider::GitHub => credentials.authorization(),
            Provider::GitLab => credentials.token_authorization(),
        };
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

    /// The same, whose errors quote the server's words only where it is on the host of the repository. Those of another host have
    /// the status alone: the author of its address may have no access there.
    #[must_use]
    pub(crate) fn quoting_at_remote_alone(self) -> Self {
        Self { quotes: self.address.is_at_remote(), ..self }
    }

    /// Reads what is at a path.
    pub(crate) async fn get_json<T: DeserializeOwned>(&self, path: &str) -> Result<T, PullError> {
        let (_, body) = self.call(Method::GET, path, None).await?;
        answers::decode(&body)
    }

    /// Makes a call whose answer is JSON, if it is read at all.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Value,
    ) -> Result<T, PullError> {
        let (_, body) = self.call(method, path, Some(&body)).await?;
        answers::decode(&body)
    }

    /// Makes one call: what it answered if that is a success.
    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<(HeaderMap, Bytes), PullError> {
        let shown = self.address.shown();
        if let Some(wait) = self.pauses.left(self.limited) {
            // The message lacks the time: a condition with it would change at every look.
            let message = format!("{shown} asked to be left alone for a while");
            return Err(PullError::Limited { message, wait });
        }
        let failed = |why: &str| PullError::Unavailable(format!("{shown} {why}"));
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.address.api));
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let accept = match self.address.provider {
            Provider::Gitea | Provider::GitLab => "application/json",
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
    pub(crate) async fn each<T: DeserializeOwned, R>(
        &self,
        path: &str,
        query: &str,
        mut look: impl FnMut(T) -> ControlFlow<R> + Send,
    ) -> Result<Option<ControlFlow<R>>, PullError> {
        let size = match self.address.provider {
            Provider::Gitea => "limit",
            Provider::GitHub | Provider::GitLab => "per_page",
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

    /// The error of a list with more entries than the server's pages that are read.
    pub(crate) fn too_many(&self) -> PullError {
        let message = format!(
            "{} has more than {} entries in one list, the most that are read; close or remove old ones there",
            self.address.shown(),
            PAGES * PAGE
        );
        PullError::Refused(message)
    }

    /// The name of the user of the token; `None` where the server does not tell it, as GitHub does not for an app.
    pub(crate) async fn login(&self) -> Result<Option<&str>, PullError> {
        let login = self.login.get_or_try_init(|| async {
            match self.get_json::<User>("/user").await {
                Ok(user) => Ok(user.name().map(str::to_owned)),
                Err(PullError::Unauthorized(_) | PullError::NotFound(_)) => Ok(None),
                Err(error) => Err(error),
            }
        });
        Ok(login.await?.as_deref())
    }
}
