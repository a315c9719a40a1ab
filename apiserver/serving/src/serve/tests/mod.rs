//! The server over real sockets, with real certificates.

use std::{net::SocketAddr, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::{
    body::{Frame, Incoming},
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls::{
    RootCertStore,
    client::{ResolvesClientCert, WebPkiServerVerifier},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};
use stoa_meta::authorizer::AllowAll;
use stoa_pki::{CertificateAuthority, CertificateRequest, IssuedCertificate};
use tokio::{
    net::TcpStream,
    sync::{Notify, mpsc, oneshot},
    task::JoinHandle,
};
use tokio_rustls::client::TlsStream;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::auth::{ClientCertificates, DynamicCa, OrAnonymous, RequestHeader, RequestHeaderConfig, Union};

mod access;
mod audit;
mod connections;
mod counted;
mod debug;
mod delegation;
mod extension;
mod fake_cluster;
mod lifecycle;

/// Tells who asked, and what came with it. `slows` wait to be released, `panics` panic, `endless` has no end, `longs` are
/// known to have 8 MiB, `lasting` leaves something behind, a watch says what it is told.
#[derive(Debug, Default)]
pub(crate) struct Echo {
    /// Told when a slow request has begun.
    pub(crate) begun: Notify,
    /// Releases one slow request.
    pub(crate) release: Notify,
    /// What the latest watch is to say.
    pub(crate) events: Mutex<Option<mpsc::UnboundedSender<Bytes>>>,
    /// How long that lasts which a request leaves behind.
    pub(crate) lasts: Mutex<Option<oneshot::Receiver<()>>>,
}

#[async_trait]
impl Handler for Echo {
    async fn handle(&self, info: RequestInfo, context: RequestContext, request: Request<Body>) -> Response<Body> {
        match info.resource.as_str() {
            "panics" => panic!("as asked for"),
            "slows" => {
                self.begun.notify_one();
                self.release.notified().await;
            }
            "lasting" => {
                let lasts = self.lasts.lock().take();
                context.outlasting().tasks.spawn(async move {
                    if let Some(lasts) = lasts {
                        let _ = lasts.await;
                    }
                });
            }
            "longs" => return Response::new(crate::http::body::full(vec![b'x'; 8 * 1024 * 1024])),
            "endless" => {
                let frames =
                    futures_util::stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(&[b'x'; 64 * 1024]))));
                return Response::new(StreamBody::new(frames).boxed_unsync());
            }
            _ => {}
        }
        if info.verb == "watch" {
            let (sender, receiver) = mpsc::unbounded_channel();
            *self.events.lock() = Some(sender);
            self.begun.notify_one();
            let frames = UnboundedReceiverStream::new(receiver).map(|bytes| Ok(Frame::data(bytes)));
            return Response::new(StreamBody::new(frames).boxed_unsync());
        }
        let user = &context.user;
        let headers: Vec<&str> = request.headers().keys().map(http::HeaderName::as_str).collect();
        let body = json!({
            "user": user.name, "groups": user.groups, "extra": user.extra, "uid": user.uid,
            "headers": headers, "path": info.path,
        });
        Response::new(crate::http::body::full(body.to_string()))
    }
}

/// The certificate authorities of a test.
pub(crate) struct Cas {
    pub(crate) serving: CertificateAuthority,
    pub(crate) client: CertificateAuthority,
    pub(crate) proxy: CertificateAuthority,
}

impl Cas {
    pub(crate) fn new() -> Self {
        let ca = |name| CertificateAuthority::new(name).unwrap();
        Self { serving: ca("serving-ca"), client: ca("client-ca"), proxy: ca("proxy-ca") }
    }

    pub(crate) fn client(&self, name: &str) -> IssuedCertificate {
        self.client.issue(&CertificateRequest::client(name)).unwrap()
    }

    fn serving_certificate(&self) -> Arc<ServingCertificate> {
        let issued = self.serving.issue(&CertificateRequest::server("stoa").loopback()).unwrap();
        Arc::new(ServingCertificate::from_pem(&issued.certificate_pem, &issued.key_pem).unwrap())
    }

    /// Front proxy `front-proxy`, client certificates, and nobody for everybody else.
    fn authenticator(&self) -> Arc<dyn Authenticator> {
        let (client, proxy) = (DynamicCa::new("client CA"), DynamicCa::new("request header CA"));
        client.set(self.client.certificate_pem()).unwrap();
        proxy.set(self.proxy.certificate_pem()).unwrap();
        let config =
            RequestHeaderConfig { allowed_names: vec!["front-proxy".to_owned()], ..RequestHeaderConfig::default() };
        let config = Arc::new(arc_swap::ArcSwap::from_pointee(config));
        Arc::new(OrAnonymous(Union::new(vec![
            Arc::new(RequestHeader::new(Arc::new(proxy), config)),
            Arc::new(ClientCertificates::new(Arc::new(client))),
        ])))
    }
}

/// A running server.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) echo: Arc<Echo>,
    pub(crate) stop: CancellationToken,
    pub(crate) ended: JoinHandle<()>,
    roots: Arc<RootCertStore>,
}

/// What a test may change about a server.
pub(crate) struct Setup {
    pub(crate) cas: Cas,
    pub(crate) certificate: Option<Arc<ServingCertificate>>,
    pub(crate) authenticator: Option<Arc<dyn Authenticator>>,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) limits: Limits,
    pub(crate) auditor: Option<Arc<Auditor>>,
    pub(crate) profiling: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            cas: Cas::new(),
            certificate: None,
            authenticator: None,
            authorizer: Arc::new(AllowAll),
            limits: Limits::default(),
            auditor: None,
            profiling: true,
        }
    }
}

impl Setup {
    pub(crate) async fn start(&self) -> Running {
        let echo = Arc::new(Echo::default());
        let certificate = self.certificate.clone().unwrap_or_else(|| self.cas.serving_certificate());
        let authenticator = self.authenticator.clone().unwrap_or_else(|| self.cas.authenticator());
        let version = VersionInfo { git_version: "v1.36.0".to_owned(), ..VersionInfo::default() };
        let builder = ServerBuilder {
            limits: self.limits.clone(),
            profiling: self.profiling,
            version,
            auditor: self.auditor.clone(),
            ..Server::builder(certificate, authenticator, self.authorizer.clone(), echo.clone())
        };
        Running::of(builder.bind().await.unwrap(), &self.cas, echo)
    }
}

/// Which certificate a client presents.
pub(crate) enum Identity<'a> {
    Nobody,
    Certificate(&'a IssuedCertificate),
    /// The certificate of one with the key of another.
    Stolen(&'a IssuedCertificate, &'a IssuedCertificate),
}

#[derive(Debug)]
struct Present(Arc<CertifiedKey>);

impl ResolvesClientCert for Present {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// One connection.
pub(crate) enum Client {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// Why there is no connection.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// An answer read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

impl Running {
    /// Runs a server whose certificate is of these authorities.
    fn of(server: Server, cas: &Cas, echo: Arc<Echo>) -> Self {
        let stop = CancellationToken::new();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(cas.serving.certificate_pem().as_bytes()).unwrap()).unwrap();
        let address = server.address();
        assert!(address.ip().is_loopback() && address.port() != 0);
        let ended = tokio::spawn(server.run(stop.clone()));
        Self { address, echo, stop, ended, roots: Arc::new(roots) }
    }

    /// Connects by HTTP/1.1.
    pub(crate) async fn connect(&self, identity: Identity<'_>) -> Client {
        self.try_connect(identity, false, &rustls::version::TLS13).await.unwrap().0
    }

    /// Connects by HTTP/2; the task ends with the connection.
    pub(crate) async fn connect_h2(&self, identity: Identity<'_>) -> (Client, JoinHandle<()>) {
        self.try_connect(identity, true, &rustls::version::TLS13).await.unwrap()
    }

    pub(crate) async fn try_connect(
        &self,
        identity: Identity<'_>,
        h2: bool,
        version: &'static rustls::SupportedProtocolVersion,
    ) -> Result<(Client, JoinHandle<()>), Failure> {
        let alpn: &[u8] = if h2 { b"h2" } else { b"http/1.1" };
        let stream = TokioIo::new(self.handshake(identity, &[alpn], version).await?);
        Ok(if h2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
            (Client::Http2(sender), tokio::spawn(async move { drop(connection.await) }))
        } else {
            let (sender, connection) = http1::handshake(stream).await?;
            (Client::Http1(sender), tokio::spawn(async move { drop(connection.await) }))
        })
    }

    /// A connection on which nothing has been said yet; the client says that it speaks `protocols`.
    pub(crate) async fn handshake(
        &self,
        identity: Identity<'_>,
        protocols: &[&[u8]],
        version: &'static rustls::SupportedProtocolVersion,
    ) -> Result<TlsStream<TcpStream>, Failure> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(self.roots.clone(), provider.clone()).build()?;
        let config = rustls::ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[version])?
            .with_webpki_verifier(verifier);
        let chain_and_key = match identity {
            Identity::Nobody => None,
            Identity::Certificate(own) => Some((own, own)),
            Identity::Stolen(certificate, key) => Some((certificate, key)),
        };
        let mut config = match chain_and_key {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.certificate_pem.as_bytes())?];
                let key = PrivateKeyDer::from_pem_slice(key.key_pem.as_bytes())?;
                let key = provider.key_provider.load_private_key(key)?;
                config.with_client_cert_resolver(Arc::new(Present(Arc::new(CertifiedKey::new(chain, key)))))
            }
        };
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let stream = TcpStream::connect(self.address).await?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        Ok(connector.connect("localhost".try_into()?, stream).await?)
    }

    /// Stops the server and waits until it has ended.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.ended.await.unwrap();
    }
}

impl Client {
    pub(crate) async fn send(
        &mut self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
    ) -> hyper::Result<Response<Incoming>> {
        let uri = if matches!(self, Self::Http2(_)) { format!("https://localhost{target}") } else { target.to_owned() };
        let mut request = Request::builder().method(method).uri(uri);
        if matches!(self, Self::Http1(_)) {
            request = request.header("host", "localhost");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::default()).unwrap();
        match self {
            Self::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }

    pub(crate) async fn get_with(&mut self, target: &str, headers: &[(&str, &str)]) -> Answer {
        read(self.send(Method::GET, target, headers).await.unwrap()).await
    }

    pub(crate) async fn get(&mut self, target: &str) -> Answer {
        self.get_with(target, &[]).await
    }
}

pub(crate) async fn read(response: Response<Incoming>) -> Answer {
    let (code, headers, body) = read_bytes(response).await;
    Answer { code, headers, text: String::from_utf8(body.to_vec()).unwrap() }
}

pub(crate) async fn read_bytes(response: Response<Incoming>) -> (StatusCode, HeaderMap, Bytes) {
    let (parts, body) = response.into_parts();
    (parts.status, parts.headers, body.collect().await.unwrap().to_bytes())
}
