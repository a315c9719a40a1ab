//! Requests to registries and chart repositories, with limits of time and size.
//!
//! Start at [`Http::get`] for one request, [`Http::follow`] for one that may be redirected, and [`Http::send`] for a write.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use stoa_outbound::{Client, InvalidBundle};
use tokio::io::AsyncWriteExt as _;
use url::{Host, Url};

use super::digest::Check;
use super::{Digest, Expected, Mismatch};

/// The timeout of an answer's head, and of a document.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The timeout of a blob.
const DOWNLOAD: Duration = Duration::from_secs(15 * 60);
/// The timeout of an upload.
const UPLOAD: Duration = Duration::from_secs(2 * 60);
/// The most redirects of one request.
const REDIRECTS: usize = 5;
/// The largest answer with an error that is quoted, in bytes.
const QUOTED: usize = 16 << 10;

/// The address of a server: `https`, or `http` of a loopback address. It has no user and no fragment.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint(Url);

/// A text that is no address of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not a URL with https, or with http and a loopback address, without user and fragment")]
pub struct InvalidUrl;

impl Endpoint {
    /// Reads a URL.
    ///
    /// # Errors
    ///
    /// If it has another form.
    pub fn new(text: &str) -> Result<Self, InvalidUrl> {
        Url::parse(text).map_err(|_| InvalidUrl).and_then(Self::of)
    }

    fn of(url: Url) -> Result<Self, InvalidUrl> {
        let is_permitted = url.scheme() == "https" || (url.scheme() == "http" && is_loopback(&url));
        let is_plain = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
        if is_permitted && is_plain && url.has_host() { Ok(Self(url)) } else { Err(InvalidUrl) }
    }

    /// The URL that a reference in a document of this one means.
    ///
    /// # Errors
    ///
    /// If it is not permitted. From another host than loopback, none leads there.
    pub fn join(&self, reference: &str) -> Result<Self, InvalidUrl> {
        let joined = Self::of(self.0.join(reference).map_err(|_| InvalidUrl)?)?;
        if is_loopback(&joined.0) && !is_loopback(&self.0) { Err(InvalidUrl) } else { Ok(joined) }
    }

    /// The same with parameters added.
    pub(crate) fn with(mut self, parameters: &[(&str, &str)]) -> Self {
        self.0.query_pairs_mut().extend_pairs(parameters);
        self
    }

    /// The host with its port, if that is not the usual one.
    pub fn host(&self) -> String {
        let host = self.0.host_str().unwrap_or_default();
        self.0.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    pub(crate) fn is_same_server(&self, other: &Self) -> bool {
        self.0.origin() == other.0.origin()
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => {
            let name = name.strip_suffix('.').unwrap_or(name);
            name == "localhost" || name.ends_with(".localhost")
        }
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

impl fmt::Display for Endpoint {
    /// Without the query, which may have a signature.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str().split('?').next().unwrap_or_default())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An artifact, document or list that was not fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The certificate authorities cannot be read.
    #[error("ca.crt of the Secret")]
    Authorities(#[source] InvalidBundle),
    /// There is no answer, or it breaks off.
    #[error("requesting {url}")]
    Unreachable {
        /// The URL.
        url: String,
        /// The reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server refuses the credentials, or their absence.
    #[error("{url} requires other credentials{message}")]
    Unauthorized {
        /// The URL.
        url: String,
        /// The message of the server, after a colon.
        message: String,
    },
    /// The server does not have it.
    #[error("{url} does not exist")]
    NotFound {
        /// The URL.
        url: String,
    },
    /// The answer is another error.
    #[error("{url} answered with status {status}{message}")]
    Status {
        /// The URL.
        url: String,
        /// The status code.
        status: u16,
        /// The message of the server, after a colon.
        message: String,
    },
    /// The answer has another form.
    #[error("the answer of {url} is wrong: {problem}")]
    Wrong {
        /// The URL.
        url: String,
        /// The reason.
        problem: String,
    },
    /// The content differs from the expected one.
    #[error("the content of {url} is wrong")]
    Mismatch {
        /// The URL.
        url: String,
        /// The difference.
        source: Mismatch,
    },
    /// A file cannot be written.
    #[error("writing {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
}

impl FetchError {
    pub(crate) fn wrong(url: &impl fmt::Display, problem: impl fmt::Display) -> Self {
        Self::Wrong { url: url.to_string(), problem: problem.to_string() }
    }
}

/// Sends requests, each without a redirect.
pub(crate) struct Http(Client<Full<Bytes>>);

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}

/// The request of a document or blob.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) url: &'a Endpoint,
    /// The media types that are taken, if they matter.
    pub(crate) accept: &'a str,
    /// The credentials, for the server of the URL alone.
    pub(crate) authorization: Option<&'a HeaderValue>,
}

/// A write to a registry, or the question whether it is needed.
#[derive(Clone, Debug)]
pub(crate) struct Sent<'a> {
    pub(crate) method: Method,
    pub(crate) url: &'a Endpoint,
    /// The media type of the body, if there is one.
    pub(crate) content_type: &'a str,
    pub(crate) body: Bytes,
    /// The credentials, for the server of the URL alone.
    pub(crate) authorization: Option<&'a HeaderValue>,
}

impl Http {
    /// Trusts these certificate authorities, PEM; those of the system where there are none.
    pub(crate) fn new(authorities: &[u8]) -> Result<Self, FetchError> {
        let tls = stoa_outbound::tls(authorities).map_err(FetchError::Authorities)?;
        Ok(Self(stoa_outbound::client(tls)))
    }

    /// The head of an answer.
    pub(crate) async fn get(&self, asked: Asked<'_>) -> Result<Response<Incoming>, FetchError> {
        let Asked { url, accept, authorization } = asked;
        let mut request = Request::get(url.0.as_str()).header(header::USER_AGENT, "stoa");
        if !accept.is_empty() {
            request = request.header(header::ACCEPT, accept);
        }
        if let Some(authorization) = authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Full::default()).map_err(|error| unreachable(url, error))?;
        let answer = tokio::time::timeout(TIMEOUT, self.0.request(request)).await;
        answer.map_err(|_| late(url, TIMEOUT))?.map_err(|error| unreachable(url, error))
    }

    /// The head of the answer to a write. A redirect is an answer.
    pub(crate) async fn send(&self, sent: &Sent<'_>) -> Result<Response<Incoming>, FetchError> {
        let Sent { method, url, content_type, body, authorization } = sent;
        let mut request = Request::builder().method(method).uri(url.0.as_str()).header(header::USER_AGENT, "stoa");
        if *method == Method::POST || *method == Method::PUT {
            // Some proxies demand it of empty bodies too.
            request = request.header(header::CONTENT_LENGTH, body.len());
        }
        if !content_type.is_empty() {
            request = request.header(header::CONTENT_TYPE, *content_type);
        }
        if let Some(authorization) = authorization {
            request = request.header(header::AUTHORIZATION, *authorization);
        }
        let time = if body.is_empty() { TIMEOUT } else { UPLOAD };
        let request = request.body(Full::new(body.clone())).map_err(|error| unreachable(url, error))?;
        let answer = tokio::time::timeout(time, self.0.request(request)).await;
        answer.map_err(|_| late(url, time))?.map_err(|error| unreachable(url, error))
    }

    /// The same through redirects, with the URL that answered. Other servers get no credentials.
    pub(crate) async fn follow(&self, asked: Asked<'_>) -> Result<(Endpoint, Response<Incoming>), FetchError> {
        let (mut url, mut authorization) = (asked.url.clone(), asked.authorization);
        for _ in 0..=REDIRECTS {
            let answer = self.get(Asked { url: &url, authorization, ..asked }).await?;
            let is_redirect = matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308);
            if !is_redirect {
                return Ok((url, answer));
            }
            let location = answer.headers().get(header::LOCATION).and_then(|it| it.to_str().ok()).unwrap_or_default();
            let next = url.join(location).map_err(|error| {
                FetchError::wrong(&url, format_args!("it redirects to a URL that is not permitted, since {error}"))
            })?;
            if !next.is_same_server(asked.url) {
                authorization = None;
            }
            url = next;
        }
        Err(FetchError::wrong(asked.url, format_args!("it has more than {REDIRECTS} redirects")))
    }
}

fn unreachable(url: &Endpoint, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> FetchError {
    FetchError::Unreachable { url: url.to_string(), source: source.into() }
}

fn late(url: &Endpoint, time: Duration) -> FetchError {
    unreachable(url, format!("no whole answer within {} s", time.as_secs()))
}

/// An answer with status 200, or its error.
pub(crate) async fn succeeded(url: &Endpoint, answer: Response<Incoming>) -> Result<Response<Incoming>, FetchError> {
    answered(url, answer, &[StatusCode::OK]).await
}

/// An answer with one of these statuses, or its error.
pub(crate) async fn answered(
    url: &Endpoint,
    answer: Response<Incoming>,
    accepted: &[StatusCode],
) -> Result<Response<Incoming>, FetchError> {
    let status = answer.status();
    if accepted.contains(&status) {
        return Ok(answer);
    }
    let body = tokio::time::timeout(TIMEOUT, stoa_outbound::read(answer.into_body(), QUOTED)).await;
    let message = message(&body.ok().flatten().unwrap_or_default());
    let url = url.to_string();
    Err(match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => FetchError::Unauthorized { url, message },
        StatusCode::NOT_FOUND => FetchError::NotFound { url },
        _ => FetchError::Status { url, status: status.as_u16(), message },
    })
}

/// The first message in an error of a registry, in one line after a colon; nothing in others.
fn message(body: &[u8]) -> String {
    let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let text = body.pointer("/errors/0/message").and_then(|it| it.as_str()).unwrap_or_default();
    let line: String = text.chars().map(|it| if it.is_control() { ' ' } else { it }).take(200).collect();
    if line.trim().is_empty() { String::new() } else { format!(": {}", line.trim()) }
}

/// The next part of a body; nothing at its end.
async fn next(url: &Endpoint, body: &mut Incoming) -> Result<Option<Bytes>, FetchError> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(|error| unreachable(url, error))?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// The body of a document in memory, with its digest.
pub(crate) async fn document(
    url: &Endpoint,
    mut body: Incoming,
    expected: Expected,
) -> Result<(Vec<u8>, Digest), FetchError> {
    let mismatch = |source| FetchError::Mismatch { url: url.to_string(), source };
    let reading = async {
        let (mut check, mut whole) = (Check::new(expected), Vec::new());
        while let Some(data) = next(url, &mut body).await? {
            check.add(&data).map_err(mismatch)?;
            whole.extend_from_slice(&data);
        }
        Ok((whole, check.finish().map_err(mismatch)?))
    };
    tokio::time::timeout(TIMEOUT, reading).await.unwrap_or_else(|_| Err(late(url, TIMEOUT)))
}

/// Writes a body to a new file, and returns its digest. The file exists only if the content is the expected one.
pub(crate) async fn download(
    url: &Endpoint,
    mut body: Incoming,
    expected: Expected,
    into: &Path,
) -> Result<Digest, FetchError> {
    let io = |source| FetchError::Io { path: into.to_owned(), source };
    let mismatch = |source| FetchError::Mismatch { url: url.to_string(), source };
    let mut file = tokio::fs::File::create_new(into).await.map_err(io)?;
    let writing = async {
        let mut check = Check::new(expected);
        while let Some(data) = next(url, &mut body).await? {
            check.add(&data).map_err(mismatch)?;
            file.write_all(&data).await.map_err(io)?;
        }
        file.flush().await.map_err(io)?;
        check.finish().map_err(mismatch)
    };
    let written = tokio::time::timeout(DOWNLOAD, writing).await.unwrap_or_else(|_| Err(late(url, DOWNLOAD)));
    if written.is_err() {
        // Nothing may use it by mistake.
        tokio::fs::remove_file(into).await.map_err(io)?;
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_https_or_loopback() {
        for url in [
            "https://a.example.com/x",
            "http://localhost:5000",
            "http://a.localhost/",
            "http://127.0.0.2/",
            "http://[::1]:1/",
        ] {
            assert!(Endpoint::new(url).is_ok(), "{url}");
        }
        for url in [
            "http://a.example.com/",
            "http://localhost.example.com/",
            "https://u@a.example.com/",
            "https://:p@a.example.com/",
            "https://a.example.com/#x",
            "file:///etc/passwd",
            "https://",
            "a",
        ] {
            assert!(Endpoint::new(url).is_err(), "{url}");
        }
    }

    #[test]
    fn references_stay_away_from_loopback() {
        let base = Endpoint::new("https://a.example.com/charts/index.yaml?token=x").unwrap();
        assert_eq!(base.to_string(), "https://a.example.com/charts/index.yaml");
        for (reference, joined) in [
            ("x-1.tgz", Some("https://a.example.com/charts/x-1.tgz")),
            ("/x-1.tgz", Some("https://a.example.com/x-1.tgz")),
            ("https://b.example.com/x.tgz?sig=1", Some("https://b.example.com/x.tgz")),
            ("http://b.example.com/x.tgz", None),
            ("https://localhost/x.tgz", None),
            ("http://127.0.0.1/x.tgz", None),
            ("file:///etc/passwd", None),
            ("https://u:p@b.example.com/", None),
        ] {
            assert_eq!(base.join(reference).ok().map(|it| it.to_string()).as_deref(), joined, "{reference}");
        }
        assert!(Endpoint::new("http://localhost:1/").unwrap().join("http://localhost:2/x").is_ok());
    }

    #[test]
    fn messages_of_registries_are_one_line() {
        let body = br#"{"errors": [{"code": "DENIED", "message": "access\nto it is denied"}]}"#;
        assert_eq!(message(body), ": access to it is denied");
        assert_eq!((message(b"<html>"), message(b"")), (String::new(), String::new()));
    }
}
