//! The mirrors that packages come from: a folder that the runner allows, a server over HTTPS, or an OCI registry.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::{Request, Response};
use stoa_outbound::{Client, InvalidBundle};
use stoa_pulls::Credentials;
use stoa_terraform_provider::package::{HttpAnswer, HttpClient, HttpError};
use tokio::io::AsyncWriteExt as _;

use super::registry_mirror::RegistryMirror;

/// The timeout of an answer's head, and of a document.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The timeout of a package.
const DOWNLOAD: Duration = Duration::from_secs(15 * 60);

/// Where the packages of a workspace come from.
#[derive(Clone)]
pub(super) enum Mirror {
    /// A folder.
    Folder(PathBuf),
    /// The URL of a network mirror, and what it is shown.
    Url(String, Credentials),
    /// An OCI registry.
    Registry(RegistryMirror),
}

/// An answer that is larger than it may be.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the answer has more than {0} bytes")]
pub(super) struct TooLarge(u64);

/// Sends requests to a mirror, and to the servers of its archives. The credentials are for the mirror alone.
pub(super) struct MirrorClient {
    client: Client<Empty<Bytes>>,
    /// The host of the mirror, with its port.
    host: String,
    authorization: Option<HeaderValue>,
}

impl MirrorClient {
    pub(super) fn new(url: &str, credentials: &Credentials) -> Result<Self, InvalidBundle> {
        let client = stoa_outbound::client(stoa_outbound::tls(&credentials.authorities)?);
        Ok(Self { client, host: host(url).to_owned(), authorization: credentials.authorization() })
    }

    async fn request(&self, url: &str) -> Result<Response<Incoming>, HttpError> {
        let mut request = Request::get(url).header(USER_AGENT, "stoa");
        if let Some(authorization) = self.authorization.as_ref().filter(|_| host(url) == self.host) {
            request = request.header(AUTHORIZATION, authorization);
        }
        let answer = self.client.request(request.body(Empty::new())?);
        Ok(tokio::time::timeout(TIMEOUT, answer).await.map_err(|_| late(TIMEOUT))??)
    }
}

/// The host of a URL, with its port if it has one.
fn host(url: &str) -> &str {
    url.strip_prefix("https://").and_then(|rest| rest.split(['/', '?']).next()).unwrap_or_default()
}

fn late(time: Duration) -> String {
    format!("no answer within {} s", time.as_secs())
}

/// A body, up to a size.
struct Parts {
    body: Incoming,
    size: u64,
    limit: u64,
}

impl Parts {
    fn of(body: Incoming, limit: u64) -> Self {
        Self { body, size: 0, limit }
    }

    /// The next part; nothing at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, HttpError> {
        while let Some(frame) = self.body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            self.size += data.len() as u64;
            return if self.size > self.limit { Err(TooLarge(self.limit).into()) } else { Ok(Some(data)) };
        }
        Ok(None)
    }
}

#[async_trait]
impl HttpClient for MirrorClient {
    async fn get(&self, url: &str, limit: usize) -> Result<HttpAnswer, HttpError> {
        let (head, body) = self.request(url).await?.into_parts();
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).map(str::to_owned);
        let reading = async {
            let (mut whole, mut parts) = (Vec::new(), Parts::of(body, limit as u64));
            while let Some(data) = parts.next().await? {
                whole.extend_from_slice(&data);
            }
            Ok::<_, HttpError>(whole)
        };
        let whole = tokio::time::timeout(TIMEOUT, reading).await.map_err(|_| late(TIMEOUT))??;
        Ok(HttpAnswer { status: head.status.as_u16(), content_type, body: whole.into() })
    }

    async fn download(&self, url: &str, into: &Path, limit: u64) -> Result<u16, HttpError> {
        let answer = self.request(url).await?;
        let status = answer.status().as_u16();
        if status != 200 {
            return Ok(status);
        }
        let mut file = tokio::fs::File::create_new(into).await?;
        let writing = async {
            let mut parts = Parts::of(answer.into_body(), limit);
            while let Some(data) = parts.next().await? {
                file.write_all(&data).await?;
            }
            file.flush().await?;
            Ok::<_, HttpError>(status)
        };
        tokio::time::timeout(DOWNLOAD, writing).await.map_err(|_| late(DOWNLOAD))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_for_one_host_and_port() {
        assert_eq!(host("https://mirror.example.com:8443/m/index.json"), "mirror.example.com:8443");
        assert_eq!(host("https://mirror.example.com?x"), "mirror.example.com");
        assert_eq!(host("http://mirror.example.com/"), "");
    }
}
