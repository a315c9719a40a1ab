//! Git's own CGI program behind a small HTTP server, for tests: with a password, with TLS on request, and with failures on
//! request. And Git over SSH, where the machine has an SSH server. [`tree()`] writes trees without any of these.

#![expect(clippy::unwrap_used, reason = "this is for tests, where a panic is how they fail")]

mod remote;
mod ssh;
mod tree;

use std::{
    convert::Infallible,
    io::Write as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, StatusCode, body::Incoming, http::request::Parts};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::{io::AsyncWriteExt as _, net::TcpListener, sync::watch, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

pub use self::{
    remote::{ControlRemote, committed},
    ssh::SshServer,
    tree::tree,
};

/// Says what is not tested here, and why; also by a test that succeeds.
#[expect(clippy::explicit_write, reason = "what a test prints in another way is seen only if it fails")]
pub fn skipped(what: &str) {
    writeln!(std::io::stderr(), "SKIPPED: {what}").unwrap();
}

/// Empties all files below a folder, as a machine may that lost its power.
pub fn empty_files(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            empty_files(&path);
        } else {
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, "").unwrap();
        }
    }
}

/// Serves the bare repositories in a folder; ends with the value.
#[derive(Debug)]
pub struct GitServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    root: PathBuf,
    /// What the header `Authorization` has to be.
    authorization: Mutex<String>,
    behaviour: watch::Sender<Behaviour>,
    late: Mutex<Vec<(Parts, Bytes)>>,
    requests: AtomicU64,
    pushes: AtomicU64,
    packs: AtomicU64,
}

/// How many branches [`Behaviour::Endless`] tells of: whoever keeps that needs a quarter of a gigabyte.
const REPORTED: usize = 3 << 20;

/// How the server answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behaviour {
    /// As it should.
    #[default]
    Normal,
    /// With 503.
    Away,
    /// Pushes get 503 and are lost.
    TakesNoPush,
    /// It takes pushes, and answers with 502 instead of telling what became of them.
    Mute,
    /// The same, but pushes arrive only when [`GitServer::deliver`] lets them.
    Late,
    /// It takes pushes, and tells what became of so many branches that it comes to no end.
    Endless,
    /// Requests wait until it behaves otherwise.
    Held,
    /// The same of requests that pushes begin with.
    HeldPushes,
    /// The same of requests that have what is pushed, of which nothing is read meanwhile.
    HeldPacks,
}

impl GitServer {
    /// Starts it on any port of loopback; user `bot` gets in with this password. With a certificate and its key, PEM, it
    /// speaks TLS.
    pub async fn start(root: &Path, password: &str, tls: Option<(&str, &str)>) -> Self {
        let shared = Arc::new(Shared {
            root: root.to_owned(),
            authorization: Mutex::default(),
            behaviour: watch::Sender::default(),
            late: Mutex::default(),
            requests: AtomicU64::new(0),
            pushes: AtomicU64::new(0),
            packs: AtomicU64::new(0),
        });
        let acceptor = tls.map(|(certificate, key)| acceptor(certificate, key));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(serve(listener, acceptor, Arc::clone(&shared)));
        let server = Self { shared, address, task };
        server.set_password(password);
        server
    }

    /// The URL of a repository in the folder, by its name.
    pub fn url(&self, scheme: &str, repository: &str) -> String {
        format!("{scheme}://localhost:{}/{repository}", self.address.port())
    }

    /// From now on another password is right.
    pub fn set_password(&self, password: &str) {
        *self.shared.authorization.lock().unwrap() = format!("Basic {}", STANDARD.encode(format!("bot:{password}")));
    }

    /// From now on this bearer token is right, and no password.
    pub fn set_token(&self, token: &str) {
        *self.shared.authorization.lock().unwrap() = format!("Bearer {token}");
    }

    /// From now on it answers so.
    pub fn behave(&self, behaviour: Behaviour) {
        self.shared.behaviour.send_replace(behaviour);
    }

    /// Lets the pushes arrive that are late; returns how many there were.
    pub async fn deliver(&self) -> usize {
        let late = std::mem::take(&mut *self.shared.late.lock().unwrap());
        let count = late.len();
        for (head, body) in late {
            backend(&self.shared.root, head, body).await;
        }
        count
    }

    /// How many requests came so far.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// How many pushes were let begin so far.
    pub fn pushes(&self) -> u64 {
        self.shared.pushes.load(Ordering::Relaxed)
    }

    /// How many requests that have what is pushed came so far.
    pub fn packs(&self) -> u64 {
        self.shared.packs.load(Ordering::Relaxed)
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn acceptor(certificate: &str, key: &str) -> TlsAcceptor {
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    TlsAcceptor::from(Arc::new(tls))
}

async fn serve(listener: TcpListener, acceptor: Option<TlsAcceptor>, shared: Arc<Shared>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (acceptor, shared) = (acceptor.clone(), Arc::clone(&shared));
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request| answer(Arc::clone(&shared), request));
            let http = hyper::server::conn::http1::Builder::new();
            // Whoever hangs up has a reason, such as a certificate that is not trusted.
            let _ = match acceptor {
                Some(acceptor) => match acceptor.accept(stream).await {
                    Ok(stream) => http.serve_connection(TokioIo::new(stream), service).await,
                    Err(_) => return,
                },
                None => http.serve_connection(TokioIo::new(stream), service).await,
            };
        });
    }
}

/// Asks for a password, and lets Git's program answer.
async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    shared.requests.fetch_add(1, Ordering::Relaxed);
    let mut behaviours = shared.behaviour.subscribe();
    let begins_push = request.uri().query() == Some("service=git-receive-pack");
    let is_push = request.method() == "POST" && request.uri().path().ends_with("/git-receive-pack");
    shared.packs.fetch_add(is_push.into(), Ordering::Relaxed);
    let is_held = |behaviour: &Behaviour| match behaviour {
        Behaviour::Held => true,
        Behaviour::HeldPushes => begins_push,
        Behaviour::HeldPacks => is_push,
        _ => false,
    };
    let behaviour = *behaviours.wait_for(|behaviour| !is_held(behaviour)).await.unwrap();
    let plain = |code: StatusCode| Response::builder().status(code);
    if behaviour == Behaviour::Away {
        return Ok(plain(StatusCode::SERVICE_UNAVAILABLE).body(Full::default()).unwrap());
    }
    let expected = shared.authorization.lock().unwrap().clone();
    if request.headers().get("authorization").is_none_or(|shown| shown != expected.as_str()) {
        let refused = plain(StatusCode::UNAUTHORIZED).header("www-authenticate", "Basic realm=\"git\"");
        return Ok(refused.body(Full::default()).unwrap());
    }
    if begins_push {
        shared.pushes.fetch_add(1, Ordering::Relaxed);
    }
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else { return Ok(Response::new(Full::default())) };
    let body = body.to_bytes();
    let failed = |code: StatusCode| Ok(plain(code).body(Full::default()).unwrap());
    match behaviour {
        Behaviour::TakesNoPush if is_push => failed(StatusCode::SERVICE_UNAVAILABLE),
        Behaviour::Mute if is_push => {
            backend(&shared.root, head, body).await;
            failed(StatusCode::BAD_GATEWAY)
        }
        Behaviour::Endless if is_push => {
            backend(&shared.root, head, body).await;
            let report = "0017ok refs/heads/other".repeat(REPORTED);
            let answer = plain(StatusCode::OK).header("content-type", "application/x-git-receive-pack-result");
            Ok(answer.body(Full::from(report)).unwrap())
        }
        Behaviour::Late if is_push => {
            shared.late.lock().unwrap().push((head, body));
            failed(StatusCode::BAD_GATEWAY)
        }
        _ => Ok(backend(&shared.root, head, body).await),
    }
}

async fn backend(root: &Path, head: Parts, body: Bytes) -> Response<Full<Bytes>> {
    let header = |name: &str| head.headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    let mut child = tokio::process::Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("REMOTE_USER", "bot")
        .env("REQUEST_METHOD", head.method.as_str())
        .env("PATH_INFO", head.uri.path())
        .env("QUERY_STRING", head.uri.query().unwrap_or_default())
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // It is read while it is written, lest both wait for the other.
    let write = tokio::spawn(async move {
        // A program that has seen enough reads no more.
        let _ = stdin.write_all(&body).await;
    });
    let output = child.wait_with_output().await.unwrap().stdout;
    write.await.unwrap();
    let end = output.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let mut response = Response::builder();
    for line in String::from_utf8_lossy(&output[..end]).lines() {
        let (name, value) = line.split_once(": ").unwrap();
        response = match name {
            "Status" => response.status(value.split(' ').next().unwrap()),
            _ => response.header(name, value),
        };
    }
    response.body(Full::from(Bytes::copy_from_slice(&output[end + 4..]))).unwrap()
}
