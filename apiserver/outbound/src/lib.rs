//! HTTPS to others: whom it trusts, and the client that everything but Kubernetes' own API is called with.

mod resolver;

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Incoming};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client as Legacy, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use jiff::{Timestamp, fmt::rfc2822};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use stoa_tls::ServerVerifier;

pub use self::resolver::Resolver;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// For how long an idle connection is kept: less than services keep them open, so that few requests meet a closed one.
const IDLE: Duration = Duration::from_secs(15);

/// A client over HTTP/1.1 that keeps connections, follows no redirect and uses no proxy. `localhost` and names below it are
/// loopback to it.
pub type Client<B> = Legacy<HttpsConnector<HttpConnector<Resolver>>, B>;

/// Certificate authorities that are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no certificate in it, or one that cannot be read: PEM is expected")]
pub struct InvalidBundle;

/// Trusts the certificate authorities of a bundle, PEM, and servers whose own certificates are in it; or the authorities of
/// the system when it is empty.
///
/// # Errors
///
/// [`InvalidBundle`], never for an empty one.
pub fn tls(bundle: &[u8]) -> Result<ClientConfig, InvalidBundle> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has the protocol versions that rustls takes for safe");
    let config = if bundle.is_empty() {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        config.with_root_certificates(roots)
    } else {
        let trusted: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bundle).collect();
        let trusted = trusted.map_err(|_| InvalidBundle)?;
        // Whoever adds a damaged one has to hear of it before the others are out of date.
        if trusted.iter().any(|certificate| RootCertStore::empty().add(certificate.clone()).is_err()) {
            return Err(InvalidBundle);
        }
        let verifier = ServerVerifier::new(trusted).map_err(|_| InvalidBundle)?;
        config.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
    };
    Ok(config.with_no_client_auth())
}

/// A client for `https://` and `http://`.
pub fn client<B>(tls: ClientConfig) -> Client<B>
where
    B: Body + Send,
    B::Data: Send,
{
    let mut tcp = HttpConnector::new_with_resolver(Resolver::new());
    tcp.enforce_http(false);
    // A small request must not wait for more to be sent.
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    Legacy::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).build(connector)
}

/// Reads a body to its end, so that its connection can be used again. One that is longer than `most` bytes or breaks off is
/// left, and its connection with it: that is nothing.
pub async fn read(mut body: Incoming, most: usize) -> Option<Bytes> {
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.ok()?.into_data() {
            if read.len() + data.len() > most {
                return None;
            }
            read.extend_from_slice(&data);
        }
    }
    Some(read.freeze())
}

/// How long an answer asks to wait, by its `Retry-After`: seconds, or a date. No longer than `longest`.
pub fn retry_after(headers: &HeaderMap, now: Timestamp, longest: Duration) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
            Duration::try_from(date.duration_since(now)).unwrap_or_default()
        }
    };
    Some(wait.min(longest))
}

/// An error and its causes in one line, none twice.
pub fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut told: Vec<String> = Vec::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        let said = error.to_string();
        if told.last() != Some(&said) {
            told.push(said);
        }
        cause = error.source();
    }
    told.join(": ")
}
