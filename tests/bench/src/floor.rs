//! The least that an answer can cost: TLS, HTTP and a copy of bytes that are ready.
//!
//! Start at [`Floor::start`]. It runs this program once more, as a server that relays the first request of each kind
//! to Stoa and from then on repeats what was answered; of a watch, what Stoa says to one is repeated to all. Writes are
//! Stoa's own. It knows no users, no versions and no objects: what an API server uses beyond it is what serving the
//! Kubernetes API costs.

use std::collections::HashMap;
use std::convert::Infallible;
use std::env;
use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use stoa_pki::{CertificateAuthority, CertificateRequest};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio_rustls::TlsAcceptor;

use crate::bed::{self, Bed};
use crate::client::{Call, Client, Endpoint, Protocol};
use crate::measure::MAX_IDLE;

/// The server that repeats, until this is dropped.
#[derive(Debug)]
pub(crate) struct Floor {
    pub(crate) endpoint: Endpoint,
    process: Child,
}

impl Floor {
    /// Starts the server for the test bed in `folder`.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub(crate) fn start(folder: &Path, bed: &Bed, protocol: Protocol) -> Result<Self> {
        let certificates = tempfile::tempdir().context("making a folder")?;
        let authority = CertificateAuthority::new("bench-floor")?;
        authority.issue(&CertificateRequest::server("floor").loopback())?.write(certificates.path(), "floor")?;
        fs::write(certificates.path().join("ca.crt"), authority.certificate_pem())?;

        let program = env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
        command.arg("--dir").arg(folder).arg("--repeat").arg(certificates.path());
        command.args((protocol == Protocol::Http1).then_some("--http1")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().context("starting the floor")?;
        let mut address = String::new();
        let output = process.stdout.take().context("the floor has no output")?;
        BufReader::new(output).read_line(&mut address).context("waiting for the floor")?;
        ensure!(!address.is_empty(), "the floor does not start");
        let config = bed::tls(&certificates.path().join("ca.crt"), bed.identity(), protocol)?;
        Ok(Self { endpoint: Endpoint::new(&format!("https://{}", address.trim()), config, protocol)?, process })
    }

    /// The server's process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        // It ends with its input; nothing depends on whether it was there to be waited for.
        drop(self.process.stdin.take());
        drop(self.process.wait());
    }
}

/// What tells one request from another here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Question {
    path: String,
    accept: HeaderValue,
    gzip: bool,
}

/// What was answered.
#[derive(Clone, Debug)]
struct CachedAnswer {
    gzip: bool,
    body: Bytes,
}

/// How many events a watch may be behind.
const BEHIND: usize = 1024;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What is known so far, and who is asked for the rest.
#[derive(Debug)]
struct Repeater {
    stoa: Endpoint,
    /// The connection that writes, and since when it has not.
    writer: tokio::sync::Mutex<(Instant, Client)>,
    known: Mutex<HashMap<Question, CachedAnswer>>,
    /// What is said to the watches of each path.
    watches: Mutex<HashMap<String, broadcast::WeakSender<Bytes>>>,
}

impl Repeater {
    /// The body of a watch. The first of a path opens one at Stoa, which lasts as long as anybody listens.
    async fn watch(&self, path: String) -> Result<Body> {
        let lock = || self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(&path).and_then(broadcast::WeakSender::upgrade).map(|says| says.subscribe());
        let heard = match known {
            Some(heard) => heard,
            None => {
                let mut client = self.stoa.connect().await?;
                let mut lines = client.stream(&Call::get(path.clone())).await?;
                let (says, heard) = broadcast::channel(BEHIND);
                // Only as long as somebody listens; who comes later begins anew.
                lock().insert(path, says.downgrade());
                tokio::spawn(async move {
                    let _connection = client;
                    let mut say =
                        |line: &[u8]| says.send([line, b"\n"].concat().into()).map(drop).context("nobody listens");
                    while let Ok(true) = lines.next(&mut say).await {}
                });
                heard
            }
        };
        let frames = futures_util::stream::unfold(heard, async |mut heard| {
            let event = heard.recv().await.ok()?;
            Some((Ok(Frame::data(event)), heard))
        });
        Ok(StreamBody::new(frames).boxed_unsync())
    }

    /// Has Stoa do what only Stoa can.
    async fn write(&self, path: String, body: Incoming) -> Result<Bytes> {
        let patch = serde_json::from_slice(&body.collect().await?.to_bytes()).context("the patch is no JSON")?;
        let mut writer = self.writer.lock().await;
        let (since, client) = &mut *writer;
        // Between what is measured first and the watches are minutes.
        if since.elapsed() >= MAX_IDLE {
            *client = self.stoa.connect().await?;
        }
        let answer = client.succeed(&Call::merge(path, &patch)).await?;
        *since = Instant::now();
        Ok(answer.body())
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<CachedAnswer> {
        let header = |name| request.headers().get(name).cloned();
        let question = Question {
            path: request.uri().path_and_query().map_or_else(String::new, ToString::to_string),
            accept: header(ACCEPT).context("the request accepts nothing")?,
            gzip: header(ACCEPT_ENCODING).is_some(),
        };
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&question).cloned();
        // One object is asked for to learn the version, which is another each time.
        if let Some(known) = known.filter(|_| !question.path.ends_with("?limit=1")) {
            return Ok(known);
        }
        let call = Call::get(question.path.clone()).accept(question.accept.clone());
        let call = if question.gzip { call.gzip() } else { call };
        let answer = self.stoa.connect().await?.succeed(&call).await?;
        let known = CachedAnswer { gzip: answer.is_gzip(), body: answer.body() };
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(question, known.clone());
        Ok(known)
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
        let whole = |bytes: Bytes| Full::new(bytes).boxed_unsync();
        let answer = match *request.method() {
            Method::PATCH => self.write(path, request.into_body()).await.map(|body| (whole(body), false)),
            _ if path.contains("watch=true") && !path.contains("sendInitialEvents") => {
                self.watch(path).await.map(|body| (body, false))
            }
            _ => self.answer(request).await.map(|known| (whole(known.body), known.gzip)),
        };
        let (body, gzip) = match answer {
            Ok(answer) => answer,
            Err(error) => {
                let mut response = Response::new(whole(Bytes::from(format!("{error:#}\n"))));
                *response.status_mut() = StatusCode::BAD_GATEWAY;
                return response;
            }
        };
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }
}

/// Serves what is asked of the test bed's Stoa until the standard input ends; prints the address first.
///
/// # Errors
///
/// When it cannot listen.
#[expect(clippy::print_stdout, reason = "the process that started this one waits for the address")]
pub(crate) async fn serve(bed: Bed, certificates: &Path) -> Result<()> {
    let config = Arc::new(server_config(certificates)?);
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.context("listening")?;
    println!("{}", listener.local_addr()?);
    let input = tokio::task::spawn_blocking(|| io::copy(&mut io::stdin().lock(), &mut io::sink()));
    let writer = tokio::sync::Mutex::new((Instant::now(), bed.stoa.connect().await?));
    let repeater = Arc::new(Repeater { writer, stoa: bed.stoa, known: Mutex::default(), watches: Mutex::default() });
    let accept = async {
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(connection(stream, TlsAcceptor::from(config.clone()), repeater.clone()));
        }
    };
    tokio::select! {
        ended = input => ended.context("waiting for the input's end")?.map(drop).context("reading the input"),
        failed = accept => failed,
    }
}

fn server_config(certificates: &Path) -> Result<ServerConfig> {
    let certificate = CertificateDer::from_pem_file(certificates.join("floor.crt"))?;
    let key = PrivateKeyDer::from_pem_file(certificates.join("floor.key"))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = [Protocol::Http2, Protocol::Http1].map(|protocol| protocol.alpn().to_vec()).to_vec();
    Ok(config)
}

/// Serves one connection. A client that goes away in the middle sees to that itself.
async fn connection(stream: TcpStream, acceptor: TlsAcceptor, repeater: Arc<Repeater>) {
    drop(stream.set_nodelay(true));
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(move |request| {
        let repeater = repeater.clone();
        async move { Ok::<_, Infallible>(repeater.respond(request).await) }
    });
    drop(auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await);
}
