//! The HTTPS client of one webhook: its endpoint, its certificate authorities, and its idle connections.
//!
//! What goes wrong is told in the words of Go's client, since those are what kube-apiserver shows to people.

use std::{io, net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::admissionregistration::v1::WebhookClientConfig;
use parking_lot::Mutex;
use rustls::{CertificateError, ClientConfig};
use rustls_pki_types::ServerName;
use tokio::{net::TcpStream, time::Instant};
use tokio_rustls::TlsConnector;

use super::hook::CallError;
use crate::cluster::ServiceResolver;
use stoa_meta::errors::chain;
use stoa_outbound as outbound;

/// The longest answer that is read.
const LONGEST_ANSWER: usize = 16 << 20;
/// How often a webhook is asked again.
const MOST_RETRIES: usize = 10;
/// How many idle connections to one webhook are kept.
const MOST_IDLE: usize = 16;

#[derive(Debug)]
pub(super) struct HookClient {
    /// Where it is, or why it cannot be called.
    target: Result<Endpoint, String>,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

#[derive(Debug)]
struct Endpoint {
    /// `https://host[:port]/path`.
    url: String,
    host: String,
    port: u16,
    /// Namespace and name, when it is reached through a Service.
    service: Option<(String, String)>,
    resolver: Arc<dyn ServiceResolver>,
    tls: Arc<ClientConfig>,
}

impl HookClient {
    /// A client for what a configuration says; what is wrong with that is told at each call.
    pub(super) fn new(config: &WebhookClientConfig, resolver: Arc<dyn ServiceResolver>) -> Self {
        Self { target: Endpoint::new(config, resolver), idle: Mutex::default() }
    }

    /// Posts JSON and returns the JSON that comes back in that time. The webhook is told how long it has, which is less
    /// where all of it `ends` before; one that asks for it is asked again. Redirects are not followed: the object would go
    /// to whom nobody configured.
    pub(super) async fn post(
        &self,
        body: Vec<u8>,
        timeout: Duration,
        ends: Option<Instant>,
    ) -> Result<Bytes, CallError> {
        let target = self.target.as_ref();
        let target = target.map_err(|error| CallError::new(500, format!("could not get REST client: {error}")))?;
        let left = ends.map_or(timeout, |ends| timeout.min(ends.saturating_duration_since(Instant::now())));
        let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        let url = format!("{}?timeout={seconds}s", target.url);
        let failed = |text: String| CallError::new(503, format!("failed to call webhook: Post {url:?}: {text}"));
        let call = self.call_again(target, &url, Bytes::from(body));
        let answer = match tokio::time::timeout(timeout, call).await {
            Err(_) => return Err(failed("context deadline exceeded".to_owned())),
            Ok(outcome) => outcome.map_err(failed)?,
        };
        let code = answer.status();
        if !code.is_success() {
            let reason = format!("failed to call webhook: {}", unsuccessful(code, answer.body()));
            return Err(CallError::new(code.as_u16(), reason));
        }
        if answer.body().is_empty() {
            let media_type = answer.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let reason = format!(
                "failed to call webhook: 0-length response with status code: {} and content type: {}",
                code.as_u16(),
                media_type.filter(|media_type| !media_type.is_empty()).unwrap_or("application/json")
            );
            return Err(CallError::new(503, reason));
        }
        Ok(answer.into_body())
    }

    /// Calls until the answer does not ask for another try any more, as client-go does.
    async fn call_again(&self, target: &Endpoint, url: &str, body: Bytes) -> Result<Response<Bytes>, String> {
        let mut tries = 0;
        loop {
            let (answer, wait) = self.call(target, url, body.clone()).await?;
            match wait.filter(|_| tries < MOST_RETRIES) {
                None => return Ok(answer),
                Some(wait) => tokio::time::sleep(wait).await,
            }
            tries += 1;
        }
    }

    /// Calls once: what is answered, and after how long it wants to be asked again.
    async fn call(
        &self,
        target: &Endpoint,
        url: &str,
        body: Bytes,
    ) -> Result<(Response<Bytes>, Option<Duration>), String> {
        let path = url.strip_prefix("https://").and_then(|rest| rest.find('/').map(|at| &rest[at..])).unwrap_or("/");
        loop {
            let kept = self.idle.lock().pop();
            let reused = kept.is_some();
            let mut sender = match kept {
                Some(sender) => sender,
                None => target.connect().await?,
            };
            if sender.ready().await.is_err() {
                if reused {
                    continue;
                }
                return Err("EOF".to_owned());
            }
            let request = Request::post(path)
                .header(header::HOST, target.authority())
                .header(header::CONTENT_TYPE, "application/json")
                .header(header::ACCEPT, "application/json, */*")
                .header(header::USER_AGENT, HeaderValue::from_static("kube-apiserver-admission"))
                .body(Full::new(body.clone()))
                .map_err(|error| error.to_string())?;
            let response = match sender.send_request(request).await {
                Ok(response) => response,
                // The other side had closed it already; what was sent was not taken.
                Err(error) if reused && (error.is_canceled() || error.is_closed() || error.is_incomplete_message()) => {
                    continue;
                }
                Err(error) => return Err(in_words(&error)),
            };
            let (head, body) = response.into_parts();
            let wait = wait(head.status, &head.headers);
            let answer = Limited::new(body, LONGEST_ANSWER).collect().await;
            let answer = answer.map_err(|error| error.to_string())?.to_bytes();
            if !sender.is_closed() {
                let mut idle = self.idle.lock();
                if idle.len() < MOST_IDLE {
                    idle.push(sender);
                }
            }
            return Ok((Response::from_parts(head, answer), wait));
        }
    }
}

impl Endpoint {
    fn new(config: &WebhookClientConfig, resolver: Arc<dyn ServiceResolver>) -> Result<Self, String> {
        let tls = Arc::new(tls(config.ca_bundle.as_ref().map_or(&[], |bundle| bundle.0.as_slice()))?);
        if let Some(service) = &config.service {
            let port = service.port.and_then(|port| u16::try_from(port).ok()).unwrap_or(443);
            let host = format!("{}.{}.svc", service.name, service.namespace);
            let path = service.path.as_deref().unwrap_or("").trim_start_matches('/');
            return Ok(Self {
                url: format!("https://{host}:{port}/{path}"),
                host,
                port,
                service: Some((service.namespace.clone(), service.name.clone())),
                resolver,
                tls,
            });
        }
        let url = config.url.as_deref().ok_or("webhook configuration must have either service or URL")?;
        let uri: Uri = url.parse().map_err(|error| format!("Unparsable URL: {error}"))?;
        let host = uri.host().filter(|_| uri.scheme_str() == Some("https"));
        let host = host.ok_or_else(|| format!("Unparsable URL: {url:?} is no https URL"))?;
        let authority = uri.authority().map_or(host, http::uri::Authority::as_str);
        Ok(Self {
            url: format!("https://{authority}{}", uri.path()),
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(443),
            service: None,
            resolver,
            tls,
        })
    }

    fn authority(&self) -> &str {
        let rest = self.url.strip_prefix("https://").unwrap_or(&self.url);
        rest.split('/').next().unwrap_or(rest)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let host = match &self.service {
            Some((namespace, name)) => self.resolver.resolve(namespace, name).await?,
            None => self.host.clone(),
        };
        let address = match host.parse::<IpAddr>() {
            Ok(ip) => (ip, self.port).into(),
            Err(_) => {
                let mut found = tokio::net::lookup_host((host.as_str(), self.port))
                    .await
                    .map_err(|_| format!("dial tcp: lookup {host}: no such host"))?;
                found.next().ok_or_else(|| format!("dial tcp: lookup {host}: no such host"))?
            }
        };
        let stream = TcpStream::connect(address)
            .await
            .map_err(|error| format!("dial tcp {address}: connect: {}", system_error(&error)))?;
        // A small request must not wait for more to be sent.
        let _ = stream.set_nodelay(true);
        let name = ServerName::try_from(self.host.clone()).map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(self.tls.clone()).connect(name, stream).await.map_err(|e| tls_error(&e))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| in_words(&error))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = chain(&error), "a connection to a webhook ended");
            }
        });
        Ok(sender)
    }
}

/// After how long a server that cannot answer now wants to be asked again, if it says so in seconds.
fn wait(code: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    if code != StatusCode::TOO_MANY_REQUESTS && code.as_u16() < 500 {
        return None;
    }
    let seconds: i64 = headers.get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    // Less than none is none.
    Some(Duration::from_secs(seconds.try_into().unwrap_or(0)))
}

/// Trusts the bundle, or what the system trusts when there is none.
fn tls(bundle: &[u8]) -> Result<ClientConfig, String> {
    let unusable = |_| "unable to load root certificates: unable to parse bytes as PEM block".to_owned();
    let mut config = outbound::tls(bundle).map_err(unusable)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn system_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::HostUnreachable => "no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        io::ErrorKind::TimedOut => "connection timed out".to_owned(),
        _ => error.to_string(),
    }
}

fn tls_error(error: &io::Error) -> String {
    let verification = |text: String| format!("tls: failed to verify certificate: x509: {text}");
    match error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(reason)) => match reason {
            CertificateError::UnknownIssuer => verification("certificate signed by unknown authority".to_owned()),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                verification("certificate has expired or is not yet valid".to_owned())
            }
            CertificateError::NotValidForName => verification("certificate is not valid for the name".to_owned()),
            CertificateError::NotValidForNameContext { expected, presented } => {
                verification(format!("certificate is valid for {}, not {}", presented.join(", "), expected.to_str()))
            }
            other => verification(other.to_string()),
        },
        Some(rustls::Error::InvalidMessage(_)) => "http: server gave HTTP response to HTTPS client".to_owned(),
        Some(other) => format!("tls: {other}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        None => error.to_string(),
    }
}

fn in_words(error: &hyper::Error) -> String {
    if error.is_incomplete_message() || error.is_closed() { "EOF".to_owned() } else { chain(error) }
}

/// What client-go says of an answer that is none: the `Status` in it, or what its code means.
fn unsuccessful(code: StatusCode, body: &[u8]) -> String {
    let status: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let status = status.filter(|value| value["kind"] == "Status" && value["status"] == "Failure");
    if let Some(message) = status.as_ref().and_then(|status| status["message"].as_str()).filter(|m| !m.is_empty()) {
        return message.to_owned();
    }
    let text = String::from_utf8_lossy(&body[..body.len().min(2048)]);
    let text = text.trim();
    match code.as_u16() {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 => text.to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        406 | 415 => format!("the server was unable to respond with a content type that the client supports: {text}"),
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned()
        }
        500.. => format!("an error on the server ({text:?}) has prevented the request from succeeding"),
        other => format!("the server responded with the status code {other} but did not return more information"),
    }
}
