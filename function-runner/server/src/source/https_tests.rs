//! Against a Git server over HTTPS, with its own certificate authority and with passwords: Git's
//! own CGI program behind a small server.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use base64::Engine as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use stoa_pki::{CertificateAuthority, CertificateRequest};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use super::*;

struct Server {
    directory: TempDir,
    authority: CertificateAuthority,
    remote: String,
    commit: String,
}

const PASSWORD: &str = "correct horse";

impl Server {
    async fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let repository = Repository::init_bare(directory.path().join("a.git")).unwrap();
        let tree = repository.treebuilder(None).unwrap().write().unwrap();
        let author = git2::Signature::now("t", "t@example.com").unwrap();
        let tree = repository.find_tree(tree).unwrap();
        let commit =
            repository.commit(Some("refs/heads/main"), &author, &author, "first", &tree, &[]).unwrap().to_string();
        repository.set_head("refs/heads/main").unwrap();

        let authority = CertificateAuthority::new("git test").unwrap();
        let issued = authority.issue(&CertificateRequest::server("git").loopback()).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let remote = format!("https://localhost:{}/a.git", listener.local_addr().unwrap().port());
        let root = directory.path().to_owned();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, root) = (acceptor.clone(), root.clone());
                tokio::spawn(async move {
                    // Clients that do not trust the certificate hang up here.
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = hyper::service::service_fn(move |request| answer(root.clone(), request));
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { directory, authority, remote, commit }
    }

    async fn resolve(&self, credentials: &[(&str, &str)]) -> Result<String, Failure> {
        let source = Source {
            provider: "Git".to_owned(),
            remote: self.remote.clone(),
            credentials: credentials
                .iter()
                .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec().into()))
                .collect(),
        };
        let sources = Sources::new(self.directory.path().join("caches"));
        sources.resolve(&source, "latest", "").await.map(|resolved| resolved.commit)
    }
}

/// Asks for a password, and lets Git's program answer.
async fn answer(root: PathBuf, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let expected = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("bot:{PASSWORD}")));
    if request.headers().get("authorization").is_none_or(|shown| shown != expected.as_str()) {
        let refused =
            Response::builder().status(StatusCode::UNAUTHORIZED).header("www-authenticate", "Basic realm=\"git\"");
        return Ok(refused.body(Full::default()).unwrap());
    }
    Ok(backend(&root, request).await)
}

async fn backend(root: &Path, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let header = |name: &str| head.headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    let mut child = tokio::process::Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
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
    child.stdin.take().unwrap().write_all(&body).await.unwrap();
    let output = child.wait_with_output().await.unwrap().stdout;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_password_or_token_opens_a_server_whose_authority_the_source_names() {
    let server = Server::start().await;
    let ca = server.authority.certificate_pem().to_owned();
    for key in ["password", "token"] {
        let opened = server.resolve(&[("username", "bot"), (key, PASSWORD), ("ca.crt", &ca)]).await;
        assert_eq!(opened.unwrap(), server.commit, "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_or_is_not_vouched_for_is_told_from_one_that_is_away() {
    let server = Server::start().await;
    let ca = server.authority.certificate_pem().to_owned();
    let other = CertificateAuthority::new("other").unwrap().certificate_pem().to_owned();
    for credentials in [
        vec![("username", "bot"), ("password", "wrong password"), ("ca.crt", ca.as_str())],
        vec![("ca.crt", ca.as_str())],
        vec![("username", "bot"), ("password", PASSWORD), ("ca.crt", other.as_str())],
        vec![("username", "bot"), ("password", PASSWORD)],
    ] {
        let failure = server.resolve(&credentials).await.unwrap_err();
        let problem = &failure.problems()[0];
        assert_eq!(
            (failure.code(), problem.reason.as_str()),
            (Code::InvalidArgument, reason::SOURCE_UNAUTHORIZED),
            "{problem:?}"
        );
        assert!(!problem.message.contains("wrong password") && !problem.message.contains(PASSWORD), "{problem:?}");
    }
}
