//! Git over HTTP. Follows no redirect: credentials are for one host.

use std::io::Read;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, LOCATION, USER_AGENT, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use rustls::{ClientConfig, RootCertStore};
use stoa_outbound::Client;
use tokio::runtime::Runtime;

use crate::packet::{self, Packet};
use crate::remote::{Access, Advertised, Errors, RemoteError, Service};

/// The most bytes of an answer.
const MOST_ANSWERED: usize = 256 << 20;

/// How long a list of refs may take to begin.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a server may take to accept a push, which runs its hooks.
const PUSH: Duration = Duration::from_secs(240);

/// A client of one repository.
#[derive(Debug)]
pub(crate) struct Http {
    /// Drives the client on the calling thread.
    runtime: Runtime,
    client: Client<Full<Bytes>>,
    /// Without user and password.
    url: String,
    authorization: Option<HeaderValue>,
    errors: Errors,
}

impl Http {
    /// Lists the refs.
    pub(crate) fn open(access: &Access, service: Service) -> Result<(Self, Advertised), RemoteError> {
        let errors = Errors::of(access);
        let invalid = |message: &str| errors.make(RemoteError::Invalid, message);
        let mut url = url::Url::parse(&access.url).map_err(|err| invalid(&err.to_string()))?;
        let authorization = access.credentials.authorization(&access.url);
        let authorization = authorization.map(|text| {
            let mut value = HeaderValue::from_str(&text).map_err(|_| invalid("the credentials are no header"))?;
            value.set_sensitive(true);
            Ok(value)
        });
        let authorization = authorization.transpose()?;
        let _ = (url.set_username(""), url.set_password(None));
        let config = tls(access).map_err(|message| errors.make(RemoteError::Untrusted, message))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|err| errors.make(RemoteError::Unreachable, err.to_string()))?;
        let client = {
            let _entered = runtime.enter();
            stoa_outbound::client(config)
        };
        let url = url.as_str().trim_end_matches('/').to_owned();
        let http = Self { runtime, client, url, authorization, errors };
        let advertised = http.list(service)?;
        Ok((http, advertised))
    }

    fn list(&self, service: Service) -> Result<Advertised, RemoteError> {
        let name = service.name();
        let (status, answer) = self.send(Method::GET, &format!("info/refs?service={name}"), None, PATIENCE)?;
        self.check(status, &answer)?;
        let mut answer = answer.body.as_ref();
        let unreachable = |err: std::io::Error| self.errors.make(RemoteError::Unreachable, err.to_string());
        match packet::read(&mut answer).map_err(|_| self.no_git())? {
            Some(Packet::Data(line)) if line.starts_with(format!("# service={name}").as_bytes()) => {}
            _ => return Err(self.no_git()),
        }
        match packet::read(&mut answer).map_err(unreachable)? {
            Some(Packet::Flush) => {}
            _ => return Err(self.no_git()),
        }
        Advertised::read(&mut answer.by_ref()).map_err(unreachable)
    }

    /// Sends a push.
    pub(crate) fn push(self, request: Vec<u8>) -> Result<Vec<u8>, RemoteError> {
        let in_doubt = |error| match error {
            RemoteError::Unreachable(url, message) => RemoteError::Unanswered(url, message),
            other => other,
        };
        let name = Service::ReceivePack.name();
        let (status, answer) = self.send(Method::POST, name, Some(request), PUSH).map_err(in_doubt)?;
        self.check(status, &answer).map_err(in_doubt)?;
        Ok(answer.body.to_vec())
    }

    fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        longest: Duration,
    ) -> Result<(StatusCode, Answer), RemoteError> {
        let uri = format!("{}/{path}", self.url);
        let mut request = Request::builder().method(method).uri(&uri).header(USER_AGENT, "git/2.0 (stoa)");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, format!("application/x-{path}-request"));
            request = request.header(ACCEPT, format!("application/x-{path}-result"));
        }
        let request = request.body(Full::from(body.unwrap_or_default()));
        let request = request.map_err(|err| self.errors.make(RemoteError::Invalid, err.to_string()))?;
        let sent = async {
            let response = self.client.request(request).await.map_err(|err| stoa_outbound::causes(&err))?;
            let (head, body) = response.into_parts();
            let body = stoa_outbound::read(body, MOST_ANSWERED).await;
            let body = body.ok_or_else(|| "the answer breaks off, or is too long".to_owned())?;
            Ok::<_, String>(Response::from_parts(head, body))
        };
        let sent = async {
            let late = |_| format!("no answer within {} s", longest.as_secs());
            tokio::time::timeout(longest, sent).await.map_err(late)?
        };
        let response = self.runtime.block_on(sent).map_err(|message| {
            let is_untrusted = message.contains("certificate");
            let kind = if is_untrusted { RemoteError::Untrusted } else { RemoteError::Unreachable };
            self.errors.make(kind, message)
        })?;
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (location, challenge) = (header(LOCATION).to_owned(), header(WWW_AUTHENTICATE).to_owned());
        Ok((response.status(), Answer { location, challenge, body: response.into_body() }))
    }

    fn check(&self, status: StatusCode, answer: &Answer) -> Result<(), RemoteError> {
        let make = |kind: fn(String, String) -> RemoteError, message: &str| Err(self.errors.make(kind, message));
        match status.as_u16() {
            200 => Ok(()),
            300..=399 => make(RemoteError::Elsewhere, &stoa_git::without_userinfo(&answer.location)),
            401 if self.authorization.is_none() => {
                make(RemoteError::Unauthorized, &format!("it asks for {}, and there are none", answer.challenge))
            }
            401 | 403 | 407 => make(RemoteError::Unauthorized, &format!("status code: {}", status.as_u16())),
            404 | 410 => make(RemoteError::NotFound, &format!("status code: {}", status.as_u16())),
            code => make(RemoteError::Unreachable, &format!("status code: {code}")),
        }
    }

    fn no_git(&self) -> RemoteError {
        self.errors.make(RemoteError::Unreachable, "it lists no refs; is it a Git server?")
    }
}

/// The parts of an answer that matter.
struct Answer {
    location: String,
    challenge: String,
    body: Bytes,
}

/// Whom a client trusts: only the source's own authority if it has one.
fn tls(access: &Access) -> Result<ClientConfig, String> {
    if let Some(own) = access.credentials.authority() {
        return stoa_outbound::tls(own).map_err(|err| format!("ca.crt: {err}"));
    }
    let Some(file) = &access.authorities else { return stoa_outbound::tls(&[]).map_err(|err| err.to_string()) };
    let pem = std::fs::read(file).map_err(|err| format!("{} cannot be read: {err}", file.display()))?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|err| err.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
