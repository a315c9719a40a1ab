//! Packages over HTTPS: the provider network mirror protocol.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use semver::Version;
use serde_json::Value as JsonValue;

use super::{Address, Hash, HashError, MirrorError, Package, Platform, VersionConstraint, newest};

/// The largest document, in bytes.
const DOCUMENT: usize = 4 << 20;

/// Sends requests, which this crate leaves to its caller: the limits, certificates and credentials are theirs.
#[async_trait::async_trait]
pub trait HttpClient: Send + Sync {
    /// Sends a GET without a body. An answer over the limit, in bytes, is an error. Redirects are followed by the
    /// client or are errors.
    ///
    /// # Errors
    ///
    /// If there is no whole answer.
    async fn get(&self, url: &str, limit: usize) -> Result<HttpAnswer, HttpError>;

    /// The same with the body in a new file, which memory need not have. Returns the status code; another than 200 has
    /// no file.
    ///
    /// # Errors
    ///
    /// If there is no whole answer, or the file cannot be written.
    async fn download(&self, url: &str, into: &Path, limit: u64) -> Result<u16, HttpError>;
}

/// An answer.
#[derive(Clone, Debug)]
pub struct HttpAnswer {
    /// The status code.
    pub status: u16,
    /// The header `Content-Type`.
    pub content_type: Option<String>,
    /// The body.
    pub body: Bytes,
}

/// A request without an answer.
pub type HttpError = Box<dyn std::error::Error + Send + Sync>;

/// A network mirror.
#[derive(Clone, Debug)]
pub struct NetworkMirror {
    base: String,
}

/// A package that a network mirror does not have, or does not send.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The URL is wrong.
    #[error("{0:?} is not a URL of a mirror; HTTPS is required, without user, query and fragment")]
    Url(String),
    /// There is no answer.
    #[error("requesting {url}")]
    Request {
        /// The URL.
        url: String,
        /// The reason.
        source: HttpError,
    },
    /// The answer is an error.
    #[error("{url} answered with status {status}")]
    Status {
        /// The URL.
        url: String,
        /// The status code.
        status: u16,
    },
    /// The document has another form.
    #[error("the document {url} is wrong: {problem}")]
    Document {
        /// The URL.
        url: String,
        /// The reason.
        problem: &'static str,
    },
    /// The document has a wrong checksum.
    #[error("the document {url} has a wrong checksum")]
    Hash {
        /// The URL.
        url: String,
        /// The reason.
        source: HashError,
    },
    /// The mirror does not have the version.
    #[error(transparent)]
    Missing(#[from] MirrorError),
}

impl NetworkMirror {
    /// A mirror by its URL. The last part of the path counts with and without a slash at its end.
    ///
    /// # Errors
    ///
    /// If the URL is not one of HTTPS, or has a user, a query or a fragment.
    pub fn new(base: &str) -> Result<Self, NetworkError> {
        let host = base.strip_prefix("https://").and_then(|rest| rest.split('/').next()).unwrap_or_default();
        if host.is_empty() || host.contains('@') || base.contains(['?', '#', ' ', '\\']) {
            return Err(NetworkError::Url(base.to_owned()));
        }
        Ok(Self { base: format!("{}/", base.trim_end_matches('/')) })
    }

    fn url(&self, address: &Address, document: &str) -> String {
        format!("{}{address}/{document}.json", self.base)
    }

    /// All versions of a provider, for any platform.
    ///
    /// # Errors
    ///
    /// If the mirror does not answer with such a document.
    pub async fn versions(&self, client: &dyn HttpClient, address: &Address) -> Result<Vec<Version>, NetworkError> {
        let url = self.url(address, "index");
        let document = document(client, &url).await?;
        let Some(versions) = document.get("versions").and_then(JsonValue::as_object) else {
            return Err(NetworkError::Document { url, problem: "it has no versions" });
        };
        Ok(versions.keys().filter_map(|version| version.parse().ok()).collect())
    }

    /// Downloads the newest version that a constraint permits into a new file, and returns the checksums of the mirror.
    ///
    /// # Errors
    ///
    /// If there is no such version, the newest is not there for the platform, or the mirror does not send it.
    pub async fn fetch(
        &self,
        client: &dyn HttpClient,
        wanted: (&Address, &VersionConstraint, &Platform),
        into: &Path,
        limit: u64,
    ) -> Result<(Version, Package, Vec<Hash>), NetworkError> {
        let (address, constraint, platform) = wanted;
        let versions = self.versions(client, address).await?;
        let version = newest(&versions, constraint);
        let version = version.ok_or_else(|| MirrorError::no_version(address, constraint, versions.iter()))?.clone();
        let url = self.url(address, &version.to_string());
        let document = document(client, &url).await?;
        let archives = document.get("archives").and_then(JsonValue::as_object);
        let archives =
            archives.ok_or_else(|| NetworkError::Document { url: url.clone(), problem: "it has no archives" })?;
        let archives: BTreeMap<_, _> = archives.iter().collect();
        let Some(archive) = archives.get(&platform.0) else {
            let (address, platform) = (Box::new(address.clone()), platform.clone());
            return Err(MirrorError::NoPlatform { address, version, platform }.into());
        };
        let wrong = |problem| NetworkError::Document { url: url.clone(), problem };
        let location = archive.get("url").and_then(JsonValue::as_str).ok_or_else(|| wrong("an archive has no url"))?;
        let location = join(&url, location).ok_or_else(|| wrong("the url of an archive is not one of HTTPS"))?;
        let hashes = match archive.get("hashes") {
            None | Some(JsonValue::Null) => Vec::new(),
            Some(hashes) => {
                let hashes = hashes.as_array().ok_or_else(|| wrong("hashes is no list"))?;
                let texts = hashes.iter().map(|it| it.as_str().unwrap_or_default().parse());
                let parsed: Result<Vec<Hash>, _> = texts.collect();
                parsed.map_err(|source| NetworkError::Hash { url: url.clone(), source })?
            }
        };
        let path = into.join(format!("terraform-provider-{}_{version}_{platform}.zip", address.kind));
        let status = client.download(&location, &path, limit).await;
        let status = status.map_err(|source| NetworkError::Request { url: shown(&location), source })?;
        if status != 200 {
            return Err(NetworkError::Status { url: shown(&location), status });
        }
        Ok((version, Package::Archive(path), hashes))
    }
}

/// The URL in errors. A query may have a signature, which is a credential.
fn shown(url: &str) -> String {
    url.split('?').next().unwrap_or_default().to_owned()
}

async fn get(client: &dyn HttpClient, url: &str, limit: usize) -> Result<HttpAnswer, NetworkError> {
    let answer = client.get(url, limit).await;
    let answer = answer.map_err(|source| NetworkError::Request { url: url.to_owned(), source })?;
    if answer.status == 200 {
        Ok(answer)
    } else {
        Err(NetworkError::Status { url: url.to_owned(), status: answer.status })
    }
}

async fn document(client: &dyn HttpClient, url: &str) -> Result<JsonValue, NetworkError> {
    let answer = get(client, url, DOCUMENT).await?;
    let wrong = |problem| NetworkError::Document { url: url.to_owned(), problem };
    let content_type = answer.content_type.unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        return Err(wrong("its type is not application/json"));
    }
    serde_json::from_slice(&answer.body).map_err(|_| wrong("it is no JSON"))
}

/// The URL that a reference in a document leads to, if it is one of HTTPS.
fn join(base: &str, reference: &str) -> Option<String> {
    if reference.contains(['\\', ' ', '#', '\n']) || reference.is_empty() {
        return None;
    }
    if let Some(rest) = reference.strip_prefix("https://") {
        let host = rest.split(['/', '?']).next().unwrap_or_default();
        return (!host.is_empty() && !host.contains('@')).then(|| reference.to_owned());
    }
    // Another scheme stands before the first slash.
    if reference.split(['/', '?']).next().is_some_and(|first| first.contains(':')) || reference.starts_with("//") {
        return None;
    }
    let after_scheme = base.strip_prefix("https://")?;
    let (host, path) = after_scheme.split_once('/').unwrap_or((after_scheme, ""));
    let (reference, query) = match reference.split_once('?') {
        Some((reference, query)) => (reference, format!("?{query}")),
        None => (reference, String::new()),
    };
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> =
        if reference.starts_with('/') { Vec::new() } else { folder.split('/').filter(|it| !it.is_empty()).collect() };
    for part in reference.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    Some(format!("https://{host}/{}{query}", parts.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_relative_to_the_document() {
        let base = "https://example.org/m/registry.terraform.io/hashicorp/random/3.6.0.json";
        let folder = "https://example.org/m/registry.terraform.io/hashicorp/random";
        for (reference, url) in [
            ("x.zip", Some(format!("{folder}/x.zip"))),
            ("./d/x.zip?sig=a/b", Some(format!("{folder}/d/x.zip?sig=a/b"))),
            ("../../x.zip", Some("https://example.org/m/registry.terraform.io/x.zip".to_owned())),
            ("../../../../../../x.zip", Some("https://example.org/x.zip".to_owned())),
            ("/x.zip", Some("https://example.org/x.zip".to_owned())),
            ("https://other.org/x.zip", Some("https://other.org/x.zip".to_owned())),
            ("http://other.org/x.zip", None),
            ("file:///etc/passwd", None),
            ("//other.org/x.zip", None),
            ("https://user@other.org/x.zip", None),
            ("", None),
        ] {
            assert_eq!(join(base, reference), url, "{reference}");
        }
    }

    #[test]
    fn mirrors_need_https() {
        for url in
            ["http://example.org/", "https://", "example.org", "https://u@example.org/", "https://example.org/?x"]
        {
            assert!(NetworkMirror::new(url).is_err(), "{url}");
        }
        let address = "random".parse().unwrap();
        for url in ["https://example.org/m", "https://example.org/m/"] {
            let url = NetworkMirror::new(url).unwrap().url(&address, "index");
            assert_eq!(url, "https://example.org/m/registry.terraform.io/hashicorp/random/index.json");
        }
    }
}
