//! Registries by OCI's distribution protocol.
//!
//! Start at [`Registry::find`]; `push` has the writes. A registry that demands credentials is asked again with them, or
//! with a token that they buy at the server which the registry names.

use std::path::Path;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde::Deserialize;

use super::challenge::{Challenge, challenges};
use super::http_client::{Asked, Http, Sent, document, download, succeeded};
use super::login::sensitive;
use super::reference::{is_tag, newest, version_of};
use super::{Digest, Document, Endpoint, Expected, FetchError, Login, Pick, Repository, Selector, media};

/// The largest manifest, list of tags or token, in bytes: the protocol asks for that much.
const DOCUMENT: u64 = 4 << 20;
/// The most pages of a list of tags.
const PAGES: usize = 100;
/// The largest list of tags or names, in bytes: all pages.
const LIST: usize = 16 << 20;
/// The longest list of tags that is asked for at once.
const PAGE: &str = "1000";
/// The scope of a token for the names of all repositories.
const CATALOG: &str = "registry:catalog:*";

/// The purpose of requests, for which a token is bought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    Pull,
    /// Reading and writing.
    Push,
    /// Reading and deleting.
    Delete,
}

/// A repository of a registry, with the credentials for it.
#[derive(Debug)]
pub struct Registry {
    http: Http,
    repository: Repository,
    base: Endpoint,
    login: Login,
    access: Access,
    /// The header that the registry accepted last.
    authorization: Mutex<Option<HeaderValue>>,
}

/// A document of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The digest of its bytes.
    pub digest: Digest,
    /// The document.
    pub document: Document,
    /// The tag by which it was found.
    pub tag: Option<String>,
}

impl Registry {
    /// A repository, at its registry: over HTTPS, except on loopback.
    ///
    /// # Errors
    ///
    /// [`FetchError::Authorities`] and [`FetchError::Wrong`], before anything is requested.
    pub fn new(repository: Repository, login: Login) -> Result<Self, FetchError> {
        Self::with_access(repository, login, Access::Pull)
    }

    /// The same for a purpose.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_access(repository: Repository, login: Login, access: Access) -> Result<Self, FetchError> {
        let url = |scheme: &str| format!("{scheme}://{}/v2/{}/", repository.registry, repository.name);
        // A registry on loopback with certificate authorities has a certificate.
        let plain = Endpoint::new(&url("http")).ok().filter(|_| login.authorities().is_empty());
        let base = plain.map_or_else(|| Endpoint::new(&url("https")), Ok);
        let base = base.map_err(|error| FetchError::wrong(&repository, error))?;
        let http = Http::new(login.authorities())?;
        Ok(Self { http, repository, base, login, access, authorization: Mutex::default() })
    }

    /// The repository.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// The document that a selector means now.
    ///
    /// # Errors
    ///
    /// [`FetchError::NotFound`] where there is none.
    pub async fn find(&self, selector: &Selector) -> Result<Found, FetchError> {
        if let Some(digest) = &selector.digest {
            return self.by_digest(digest).await;
        }
        let tag = match &selector.pick {
            Pick::Name(name) => name.replace('+', "_"),
            Pick::Newest | Pick::Digest => "latest".to_owned(),
            Pick::Range(range) => {
                let versions = self.tags().await?.into_iter().filter_map(|tag| Some((version_of(&tag)?, tag)));
                let found = newest(versions, Some(range)).map(|(_, tag)| tag);
                found.ok_or_else(|| FetchError::NotFound {
                    url: format!("a version of {} that meets {range}", self.repository),
                })?
            }
        };
        self.by_tag(&tag).await
    }

    /// The newest release, by its tag.
    ///
    /// # Errors
    ///
    /// [`FetchError::NotFound`] where there is none.
    pub async fn newest_release(&self) -> Result<Found, FetchError> {
        let versions = self.tags().await?.into_iter().filter_map(|tag| Some((version_of(&tag)?, tag)));
        let none = || FetchError::NotFound { url: format!("a release of {}", self.repository) };
        let (_, tag) = newest(versions, None).ok_or_else(none)?;
        self.by_tag(&tag).await
    }

    /// The document of a tag.
    ///
    /// # Errors
    ///
    /// [`FetchError::NotFound`] where there is none, and for a text that is no tag: it could lead to another repository.
    pub async fn by_tag(&self, tag: &str) -> Result<Found, FetchError> {
        if !is_tag(tag) {
            let shown: String = tag.chars().take(128).collect();
            return Err(FetchError::NotFound { url: format!("the tag {shown:?} of {}", self.repository) });
        }
        let found = self.manifest(tag, None).await?;
        Ok(Found { tag: Some(tag.to_owned()), ..found })
    }

    /// The document with a digest.
    ///
    /// # Errors
    ///
    /// [`FetchError::NotFound`] where there is none.
    pub async fn by_digest(&self, digest: &Digest) -> Result<Found, FetchError> {
        self.manifest(&digest.to_string(), Some(digest.clone())).await
    }

    async fn manifest(&self, name: &str, digest: Option<Digest>) -> Result<Found, FetchError> {
        let url = self.url(&format!("manifests/{name}"))?;
        let accept = [media::MANIFEST, media::INDEX, media::DOCKER_MANIFEST, media::DOCKER_INDEX].join(", ");
        let (url, answer) = self.request(&url, &accept).await?;
        let answer = succeeded(&url, answer).await?;
        let header =
            |name: header::HeaderName| answer.headers().get(name).and_then(|it: &HeaderValue| it.to_str().ok());
        let said = header(header::CONTENT_TYPE).unwrap_or_default().to_owned();
        // A registry may name its document by another hash, which is not compared.
        let by_registry = header(header::HeaderName::from_static("docker-content-digest"));
        let by_registry = by_registry.and_then(|text| text.parse::<Digest>().ok());
        let expected = Expected { digest: digest.or(by_registry), size: None, limit: DOCUMENT };
        let (bytes, digest) = document(&url, answer.into_body(), expected).await?;
        let document = Document::parse(&bytes, &said).map_err(|error| FetchError::wrong(&url, error))?;
        Ok(Found { digest, document, tag: None })
    }

    /// All tags.
    ///
    /// # Errors
    ///
    /// If they cannot be listed.
    pub async fn tags(&self) -> Result<Vec<String>, FetchError> {
        self.names(self.url("tags/list")?, &self.scope()).await
    }

    /// The names of all repositories of the registry. Registries of several users do not list them.
    ///
    /// # Errors
    ///
    /// If they cannot be listed.
    pub async fn catalog(&self) -> Result<Vec<String>, FetchError> {
        let url = self.base.join("/v2/_catalog").map_err(|error| FetchError::wrong(&self.repository, error))?;
        self.names(url, CATALOG).await
    }

    /// Whether a registry answers at the address. A proxy that has lost its registry does not find anything.
    ///
    /// # Errors
    ///
    /// If nothing answers.
    pub async fn is_registry(&self) -> Result<bool, FetchError> {
        let url = self.base.join("/v2/").map_err(|error| FetchError::wrong(&self.repository, error))?;
        // A demand for credentials is an answer of a registry, too.
        let (_, answer) = self.http.follow(Asked { url: &url, accept: "", authorization: None }).await?;
        Ok(answer.status() != StatusCode::NOT_FOUND)
    }

    /// The names in all pages of a list, with a token of this scope if the registry demands one.
    async fn names(&self, first: Endpoint, scope: &str) -> Result<Vec<String>, FetchError> {
        #[derive(Deserialize)]
        struct Names {
            #[serde(default, alias = "repositories")]
            tags: Option<Vec<String>>,
        }
        let mut url = first.with(&[("n", PAGE)]);
        let (mut all, mut read) = (Vec::new(), 0);
        for _ in 0..PAGES {
            let (answered, answer) = self.request_for(scope, &url, "application/json").await?;
            let answer = succeeded(&answered, answer).await?;
            let next = answer.headers().get(header::LINK).and_then(|it| next_page(it.to_str().ok()?));
            let next = next.map(|next| answered.join(&next)).transpose();
            let next = next.map_err(|error| FetchError::wrong(&answered, format_args!("the next page: {error}")))?;
            let expected = Expected { digest: None, size: None, limit: DOCUMENT };
            let (bytes, _) = document(&answered, answer.into_body(), expected).await?;
            read += bytes.len();
            if read > LIST {
                return Err(FetchError::wrong(&answered, format_args!("it has more than {} MiB of names", LIST >> 20)));
            }
            let names = serde_json::from_slice(&bytes);
            let names: Names = names.map_err(|_| FetchError::wrong(&answered, "it is no list of names"))?;
            all.extend(names.tags.unwrap_or_default());
            match next {
                Some(next) if next.host() == self.base.host() => url = next,
                Some(_) => return Err(FetchError::wrong(&answered, "the next page is at another server")),
                None => return Ok(all),
            }
        }
        Err(FetchError::wrong(&self.repository, format_args!("it has more than {PAGES} pages of names")))
    }

    /// Downloads a blob into a new file, which exists only if the content is the expected one.
    ///
    /// # Errors
    ///
    /// [`FetchError::Mismatch`] where the content is another one.
    pub async fn blob(&self, digest: &Digest, size: Option<u64>, limit: u64, into: &Path) -> Result<(), FetchError> {
        let url = self.url(&format!("blobs/{digest}"))?;
        let (url, answer) = self.request(&url, "").await?;
        let answer = succeeded(&url, answer).await?;
        let expected = Expected { digest: Some(digest.clone()), size, limit };
        download(&url, answer.into_body(), expected, into).await.map(drop)
    }

    /// The content of a small blob, such as the payload of a signature.
    ///
    /// # Errors
    ///
    /// [`FetchError::Mismatch`] where the content is another one, or larger.
    pub async fn small_blob(&self, digest: &Digest, limit: u64) -> Result<Vec<u8>, FetchError> {
        let url = self.url(&format!("blobs/{digest}"))?;
        let (url, answer) = self.request(&url, "").await?;
        let answer = succeeded(&url, answer).await?;
        let expected = Expected { digest: Some(digest.clone()), size: None, limit };
        document(&url, answer.into_body(), expected).await.map(|(bytes, _)| bytes)
    }

    pub(crate) fn url(&self, path: &str) -> Result<Endpoint, FetchError> {
        // A digest has a colon, which alone would be a scheme.
        self.base.join(&format!("./{path}")).map_err(|error| FetchError::wrong(&self.base, error))
    }

    /// The scope of a token for the repository.
    fn scope(&self) -> String {
        let actions = match self.access {
            Access::Pull => "pull",
            Access::Push => "pull,push",
            Access::Delete => "pull,delete",
        };
        format!("repository:{}:{actions}", self.repository.name)
    }

    /// Asks for something of the repository.
    async fn request(&self, url: &Endpoint, accept: &str) -> Result<(Endpoint, Response<Incoming>), FetchError> {
        let scope = self.scope();
        self.request_for(&scope, url, accept).await
    }

    /// Asks, and once more with credentials if the registry demands them. A token has this scope.
    async fn request_for(
        &self,
        scope: &str,
        url: &Endpoint,
        accept: &str,
    ) -> Result<(Endpoint, Response<Incoming>), FetchError> {
        let known = self.authorization.lock().clone();
        let asked = Asked { url, accept, authorization: known.as_ref() };
        let (answered, answer) = self.http.follow(asked).await?;
        // Another server, to which the registry redirects, is shown nothing.
        if answer.status() != StatusCode::UNAUTHORIZED || !answered.is_same_server(&self.base) {
            return Ok((answered, answer));
        }
        let offered = challenges(answer.headers());
        let authorization = self.authorize(scope, &answered, &offered).await?;
        *self.authorization.lock() = Some(authorization.clone());
        self.http.follow(Asked { authorization: Some(&authorization), ..asked }).await
    }

    /// Sends a write, and once more with credentials if the registry demands them. Another server gets none.
    pub(crate) async fn send(
        &self,
        (method, url): (Method, &Endpoint),
        content_type: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, FetchError> {
        let is_own = url.is_same_server(&self.base);
        let known = self.authorization.lock().clone().filter(|_| is_own);
        let sent = Sent { method, url, content_type, body, authorization: known.as_ref() };
        let answer = self.http.send(&sent).await?;
        if answer.status() != StatusCode::UNAUTHORIZED || !is_own {
            return Ok(answer);
        }
        let offered = challenges(answer.headers());
        let authorization = self.authorize(&self.scope(), url, &offered).await?;
        *self.authorization.lock() = Some(authorization.clone());
        self.http.send(&Sent { authorization: Some(&authorization), ..sent }).await
    }

    async fn authorize(&self, scope: &str, url: &Endpoint, offered: &[Challenge]) -> Result<HeaderValue, FetchError> {
        let refused = |message: &str| FetchError::Unauthorized { url: url.to_string(), message: message.to_owned() };
        let takes_tokens = offered.iter().any(|it| matches!(it, Challenge::Bearer { .. }));
        if let Some(bearer) = self.login.bearer().filter(|_| takes_tokens) {
            return Ok(bearer);
        }
        for challenge in offered {
            match (challenge, self.login.basic()) {
                (Challenge::Basic, Some(basic)) => return Ok(basic),
                (Challenge::Basic, None) => {}
                // Many registries demand a token for public artifacts, too.
                (Challenge::Bearer { realm, service }, basic) => {
                    return self.token(scope, (realm, service), basic).await;
                }
            }
        }
        Err(refused(if self.login.basic().is_none() { ": it has no public access" } else { "" }))
    }

    /// Buys a token of a scope.
    async fn token(
        &self,
        scope: &str,
        (realm, service): (&str, &str),
        basic: Option<HeaderValue>,
    ) -> Result<HeaderValue, FetchError> {
        #[derive(Deserialize)]
        struct Token {
            #[serde(default)]
            token: String,
            #[serde(default)]
            access_token: String,
        }
        let wrong = |problem: &str| FetchError::wrong(&self.base, problem);
        // As a reference, so that it leads to loopback from there only.
        let url = self.base.join(realm).map_err(|_| wrong("the server of its tokens is not permitted"))?;
        let mut parameters = vec![("scope", scope)];
        if !service.is_empty() {
            parameters.push(("service", service));
        }
        let url = url.with(&parameters);
        let asked = Asked { url: &url, accept: "application/json", authorization: basic.as_ref() };
        let answer = succeeded(&url, self.http.get(asked).await?).await?;
        let expected = Expected { digest: None, size: None, limit: DOCUMENT };
        let (bytes, _) = document(&url, answer.into_body(), expected).await?;
        let Token { token, access_token } =
            serde_json::from_slice(&bytes).map_err(|_| FetchError::wrong(&url, "it has no token"))?;
        let token = if token.is_empty() { access_token } else { token };
        let header = sensitive(&format!("Bearer {token}")).filter(|_| !token.is_empty());
        header.ok_or_else(|| FetchError::wrong(&url, "it has no token"))
    }
}

/// The URL in `<url>; rel="next"`.
fn next_page(link: &str) -> Option<String> {
    let (url, rest) = link.trim().strip_prefix('<')?.split_once('>')?;
    let is_next = rest.split(';').any(|it| matches!(it.trim(), r#"rel="next""# | "rel=next"));
    is_next.then(|| url.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_pages_are_found() {
        assert_eq!(next_page(r#"</v2/a/tags/list?n=1&last=x>; rel="next""#).unwrap(), "/v2/a/tags/list?n=1&last=x");
        for link in ["", "</v2/a>", r#"</v2/a>; rel="prev""#, "v2/a; rel=next"] {
            assert_eq!(next_page(link), None, "{link}");
        }
    }

    #[tokio::test]
    async fn only_tags_are_asked_for() {
        // Nothing listens there.
        let registry = Registry::new("127.0.0.1:9/a/b".parse().unwrap(), Login::default()).unwrap();
        for tag in ["", "..", "..\\..\\c\\manifests\\v1", "v1?x", "v1#x", "%2e%2e", "a/b"] {
            let error = registry.by_tag(tag).await.unwrap_err();
            assert!(matches!(error, FetchError::NotFound { .. }), "{tag}: {error}");
        }
        assert!(matches!(registry.by_tag("v1").await.unwrap_err(), FetchError::Unreachable { .. }));
    }

    #[test]
    fn registries_have_https_except_on_loopback() {
        let base = |repository: &str, keys: &[(&str, &[u8])]| {
            let get = |key: &str| keys.iter().find(|(it, _)| *it == key).map(|(_, value)| *value);
            let login = Login::of_keys("x", get).unwrap();
            Registry::new(repository.parse().unwrap(), login).map(|it| it.base.to_string())
        };
        assert_eq!(base("registry.example.com/a/b", &[]).unwrap(), "https://registry.example.com/v2/a/b/");
        assert_eq!(base("localhost:5000/a", &[]).unwrap(), "http://localhost:5000/v2/a/");
        assert!(matches!(base("localhost:5000/a", &[("ca.crt", b"x")]), Err(FetchError::Authorities(_))));
    }
}
