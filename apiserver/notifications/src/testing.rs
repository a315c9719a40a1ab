//! Fixtures of tests: an HTTP endpoint on loopback that receives events and answers as the test wants.
#![allow(clippy::unwrap_used, reason = "a fixture that cannot be made fails its test")]

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::Value;
use stoa_pki::{CertificateAuthority, CertificateRequest};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::{Notify, mpsc},
    time::Instant,
};
use tokio_rustls::TlsAcceptor;

/// Longer than anything in a test takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is answered.
#[derive(Clone, Debug)]
pub enum Reply {
    /// With a status code.
    Code(u16),
    /// With a header.
    With(u16, &'static str, String),
    /// With a body in JSON.
    Says(u16, Value),
    /// Once the test says so.
    Once(Arc<Notify>, u16),
    /// So much later than anybody waits.
    Never,
    /// The connection is closed instead.
    Close,
}

/// A request that came.
#[derive(Clone, Debug)]
pub struct Received {
    /// The event.
    pub event: Value,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The time of its arrival.
    pub at: Instant,
}

type Behaviour = Arc<Mutex<Box<dyn FnMut(&Value) -> Reply + Send>>>;

/// The endpoint; it ends when this is dropped.
pub struct Receiver {
    address: SocketAddr,
    scheme: &'static str,
    /// The certificate authority, PEM, with TLS.
    pub ca: String,
    received: tokio::sync::Mutex<mpsc::UnboundedReceiver<Received>>,
    behaviour: Behaviour,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Receiver {
    /// Starts one without TLS.
    pub async fn start(reply: impl FnMut(&Value) -> Reply + Send + 'static) -> Self {
        Self::serve(None, String::new(), reply).await
    }

    /// The same with TLS.
    pub async fn start_tls(reply: impl FnMut(&Value) -> Reply + Send + 'static) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let directory = tempfile::TempDir::new().unwrap();
        let ca = CertificateAuthority::load_or_create(directory.path(), "ca", "test").unwrap();
        let issued = ca.issue(&CertificateRequest::server("receiver").loopback()).unwrap();
        let certificate =
            stoa_machinery::serve::ServingCertificate::from_pem(&issued.certificate_pem, &issued.key_pem).unwrap();
        let tls = rustls::ServerConfig::builder().with_no_client_auth().with_cert_resolver(Arc::new(certificate));
        Self::serve(Some(TlsAcceptor::from(Arc::new(tls))), ca.certificate_pem().to_owned(), reply).await
    }

    async fn serve(tls: Option<TlsAcceptor>, ca: String, reply: impl FnMut(&Value) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, received) = mpsc::unbounded_channel();
        let behaviour: Behaviour = Arc::new(Mutex::new(Box::new(reply)));
        let answers = behaviour.clone();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let task = tokio::spawn(async move {
            // They end with the receiver.
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (tls, sender, answers) = (tls.clone(), sender.clone(), answers.clone());
                connections.spawn(async move {
                    match tls {
                        None => connection(stream, sender, answers).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                connection(stream, sender, answers).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, scheme, ca, received: tokio::sync::Mutex::new(received), behaviour, task }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("{}://{}/hook?team=shop", self.scheme, self.address)
    }

    /// Answers otherwise from now on.
    pub fn behave(&self, reply: impl FnMut(&Value) -> Reply + Send + 'static) {
        *self.behaviour.lock() = Box::new(reply);
    }

    /// What comes next.
    pub async fn next(&self) -> Received {
        let mut received = self.received.lock().await;
        let next = tokio::time::timeout(PATIENCE, received.recv()).await;
        next.expect("something comes").expect("the receiver listens")
    }

    /// What has come already.
    pub fn try_next(&self) -> Option<Received> {
        self.received.try_lock().expect("a test waits for one at a time").try_recv().ok()
    }

    /// How many requests come in a while.
    pub async fn count_for(&self, time: Duration) -> usize {
        tokio::time::sleep(time).await;
        std::iter::from_fn(|| self.try_next()).count()
    }
}

async fn connection<S>(stream: S, sender: mpsc::UnboundedSender<Received>, behaviour: Behaviour)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (sender, behaviour) = (sender.clone(), behaviour.clone());
        async move {
            assert_eq!((request.method().as_str(), request.uri().to_string().as_str()), ("POST", "/hook?team=shop"));
            let headers = request.headers().clone();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let event: Value = serde_json::from_slice(&body).unwrap();
            let reply = (behaviour.lock())(&event);
            // Nobody may care any more.
            let _ = sender.send(Received { event, headers, body, at: Instant::now() });
            let mut response = Response::builder();
            // What is answered is nobody's business, unless it is said so.
            let mut text = "hunter2".to_owned();
            match reply {
                Reply::Code(code) => response = response.status(code),
                Reply::With(code, name, value) => response = response.status(code).header(name, value),
                Reply::Says(code, said) => {
                    response = response.status(code).header("content-type", "application/json");
                    text = said.to_string();
                }
                Reply::Once(told, code) => {
                    told.notified().await;
                    response = response.status(code);
                }
                Reply::Never => std::future::pending().await,
                Reply::Close => return Err("the connection is closed"),
            }
            Ok(response.body(Full::new(Bytes::from(text))).unwrap())
        }
    });
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
