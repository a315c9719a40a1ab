//! Deliveries over TLS, to a server whose Secrets are its own.

use std::io;

use http_body_util::StreamBody;
use hyper::body::Frame;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use serde_json::{Value, json};
use stoa_pki::{CertificateAuthority, CertificateRequest};
use stoa_types::{
    Source,
    hub::{DeploymentStatus, Reconciler},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    net::TcpStream,
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;
use crate::testing::TestServer;

const TOKEN: &str = "s3cret-s3cret";
/// One with that token.
const DELIVERY: &[u8] = b"POST /webhooks/shop/hooked HTTP/1.1\r\nhost: stoa\r\nx-gitlab-token: s3cret-s3cret\r\n\
    content-length: 2\r\n\r\n{}";

/// A server, and what trusts it.
struct Bed {
    world: TestServer,
    address: SocketAddr,
    /// What connections without a network need.
    shared: Shared,
    connector: TlsConnector,
    _directory: tempfile::TempDir,
}

impl Bed {
    async fn new() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let world = TestServer::with_secrets().await;
        let directory = tempfile::TempDir::new().unwrap();
        let ca = CertificateAuthority::load_or_create(directory.path(), "ca", "test").unwrap();
        let issued = ca.issue(&CertificateRequest::server("stoa-apiserver").loopback()).unwrap();
        let certificate = Arc::new(ServingCertificate::from_pem(&issued.certificate_pem, &issued.key_pem).unwrap());
        let webhooks = Webhooks::bind("127.0.0.1:0".parse().unwrap(), certificate).await.unwrap();
        let address = webhooks.listener.local_addr().unwrap();
        let shared = Shared::new(world.services.clone(), webhooks.tls.clone());
        tokio::spawn(webhooks.serve(world.services.clone(), CancellationToken::new()));
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca.certificate_pem().as_bytes()).unwrap()).unwrap();
        let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(client));
        let hook = json!({"remote": "file:///hooked.git", "webhook": {"secretRef": {"name": "hook"}}});
        world.create("Source", "hooked", hook).await;
        let secret = json!({"metadata": {"name": "hook"}, "stringData": {"token": format!("{TOKEN}\n")}});
        world.create_core("Secret", secret).await;
        Self { world, address, shared, connector, _directory: directory }
    }

    /// Sends a request whose body is `pieces`; what is answered.
    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], pieces: Vec<Bytes>) -> StatusCode {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let stream = self.connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header("host", "stoa");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let frames = pieces.into_iter().map(|piece| Ok::<_, io::Error>(Frame::data(piece)));
        let body = StreamBody::new(futures_util::stream::iter(frames));
        sender.send_request(request.body(body).unwrap()).await.unwrap().status()
    }

    async fn post(&self, path: &str, headers: &[(&str, &str)]) -> u16 {
        self.send("POST", path, headers, vec![Bytes::from_static(b"{}")]).await.as_u16()
    }

    /// A connection without a network, whose time is the test's, and its task.
    fn connect(&self, waiting: &Arc<WaitingConnections>) -> (DuplexStream, JoinHandle<()>) {
        let (near, far) = tokio::io::duplex(64 << 10);
        let place = waiting.enter("192.0.2.1".parse().unwrap());
        (near, tokio::spawn(connection(self.shared.clone(), far, place)))
    }

    /// The same, on which TLS and these bytes were said.
    async fn say(&self, waiting: &Arc<WaitingConnections>, said: &[u8]) -> (TlsStream<DuplexStream>, JoinHandle<()>) {
        let (near, task) = self.connect(waiting);
        let mut stream = self.connector.connect(ServerName::try_from("localhost").unwrap(), near).await.unwrap();
        stream.write_all(said).await.unwrap();
        stream.flush().await.unwrap();
        (stream, task)
    }

    /// Begins with TLS and these bytes; after how many seconds the connection is closed.
    async fn closed_after(&self, said: &[u8]) -> u64 {
        let begin = Instant::now();
        let (_stream, task) = self.say(&WaitingConnections::new(1), said).await;
        task.await.unwrap();
        begin.elapsed().as_secs()
    }

    async fn asked(&self, source: &str) -> Option<MicroTime> {
        let source = self.world.registry.api::<Source>().get("shop", source).await.unwrap();
        source.status.and_then(|status| status.last_webhook_time)
    }
}

#[tokio::test]
async fn only_signed_delivery_triggers_source_check() {
    let bed = Bed::new().await;
    let hooked = "/webhooks/shop/hooked";
    let signature = hmac_of(b"{}");
    for (path, headers) in [
        (hooked, vec![]),
        (hooked, vec![("x-gitlab-token", "another")]),
        (hooked, vec![("x-gitlab-token", "")]),
        (hooked, vec![("x-hub-signature-256", "sha256=0000")]),
        (hooked, vec![("x-gitea-signature", signature.as_str()), ("x-hub-signature-256", "sha256=")]),
        ("/webhooks/shop/config", vec![("x-gitlab-token", TOKEN)]),
        ("/webhooks/shop/nobody", vec![("x-gitlab-token", TOKEN)]),
        ("/webhooks/elsewhere/hooked", vec![("x-gitlab-token", TOKEN)]),
    ] {
        assert_eq!(bed.post(path, &headers).await, 401, "{path} {headers:?}");
    }
    for path in ["/", "/webhooks/shop", "/webhooks/shop/", "/webhooks/shop/hooked/more", "/apis", "/readyz"] {
        assert_eq!(bed.post(path, &[("x-gitlab-token", TOKEN)]).await, 404, "{path}");
    }
    assert_eq!(bed.send("GET", hooked, &[("x-gitlab-token", TOKEN)], Vec::new()).await, 405);
    assert_eq!(bed.post(hooked, &[("x-gitlab-token", TOKEN), ("x-github-event", "ping")]).await, 200);
    assert_eq!(bed.asked("hooked").await, None);

    let mut last = None;
    for headers in [
        vec![("x-gitlab-token", TOKEN), ("x-gitlab-event", "Push Hook")],
        vec![("x-gitea-signature", signature.as_str())],
        vec![("authorization", "Bearer s3cret-s3cret")],
    ] {
        assert_eq!(bed.post(hooked, &headers).await, 202, "{headers:?}");
        let asked = bed.asked("hooked").await.map(|MicroTime(at)| at);
        assert!(asked > last, "{asked:?} is later than {last:?}");
        last = asked;
    }
    assert_eq!(bed.asked("config").await, None);
}

#[tokio::test]
async fn signed_event_of_flux_is_a_report_of_its_reconciler() {
    let bed = Bed::new().await;
    let spec = json!({
        "hostName": "drone", "reconcilerName": "web", "reconcilerType": "flux",
        "manifestsEndpoint": "https://git.example.com/web/dev/test",
    });
    bed.world.create("Reconciler", "plain", spec.clone()).await;
    let mut hooked = spec;
    hooked["webhook"] = json!({"secretRef": {"name": "hook"}});
    bed.world.create("Reconciler", "drone-web", hooked).await;
    let commit = "b".repeat(40);
    let time = Timestamp::from_second(Timestamp::now().as_second() - 60).unwrap();
    let event = json!({
        "involvedObject": {"kind": "Kustomization", "namespace": "flux-system", "name": "web"},
        "severity": "error", "timestamp": time.to_string(), "reason": "HealthCheckFailed", "message": "no image",
        "metadata": {"revision": format!("main@sha1:{commit}")},
    });
    let post = |path: &'static str, event: Value| {
        let bed = &bed;
        async move {
            let body = event.to_string();
            let signature = format!("sha256={}", hmac_of(body.as_bytes()));
            let headers = [("x-signature", signature.as_str())];
            bed.send("POST", path, &headers, vec![Bytes::from(body.clone())]).await.as_u16()
        }
    };
    let path = "/webhooks/shop/reconcilers/drone-web";
    assert_eq!(bed.post(path, &[("x-signature", "sha256=0000")]).await, 401);
    assert_eq!(post("/webhooks/shop/reconcilers/plain", event.clone()).await, 401);
    assert_eq!(post("/webhooks/shop/reconcilers/nobody", event.clone()).await, 401);
    assert_eq!(post(path, json!({})).await, 400);
    assert_eq!(post(path, json!({"padding": " ".repeat(LARGEST_EVENT)})).await, 413);
    let mut other = event.clone();
    other["involvedObject"]["name"] = json!("api");
    assert_eq!(post(path, other).await, 200);
    let api = bed.world.registry.api::<Reconciler>();
    let none = api.get("shop", "drone-web").await.unwrap().status.unwrap_or_default();
    assert_eq!(none.deployment, None);

    assert_eq!(post(path, event.clone()).await, 202);
    let status = api.get("shop", "drone-web").await.unwrap().status.unwrap();
    let deployment = status.deployment.clone().unwrap();
    assert_eq!((deployment.git_ops_commit_id, deployment.status), (commit, DeploymentStatus::Failure));
    assert_eq!((deployment.status_message.as_str(), deployment.since.0), ("no image", time));
    // A repeated delivery changes nothing.
    assert_eq!(post(path, event).await, 202);
    assert_eq!(api.get("shop", "drone-web").await.unwrap().status.unwrap(), status);
}

fn hmac_of(body: &[u8]) -> String {
    use ring::hmac;
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, TOKEN.as_bytes()), body);
    signature.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn deliveries_are_bounded() {
    let bed = Bed::new().await;
    let mebibyte = Bytes::from(vec![b' '; 1 << 20]);
    let send = |count: usize| {
        let pieces = vec![mebibyte.clone(); count];
        let headers = [("x-gitlab-token", TOKEN)];
        let bed = &bed;
        async move { bed.send("POST", "/webhooks/shop/hooked", &headers, pieces).await.as_u16() }
    };
    assert_eq!(send(25).await, 202);
    let asked = bed.asked("hooked").await;
    assert_eq!(send(26).await, 413);
    assert_eq!(bed.asked("hooked").await, asked);
}

#[tokio::test]
async fn connection_has_little_time_until_its_headers_are_there() {
    let bed = Bed::new().await;
    tokio::time::pause();
    let (silent, task) = bed.connect(&WaitingConnections::new(1));
    let begin = Instant::now();
    task.await.unwrap();
    assert_eq!(begin.elapsed().as_secs(), SILENCE.as_secs(), "not even a handshake");
    drop(silent);
    let head = "POST /webhooks/shop/hooked HTTP/1.1\r\nhost: stoa\r\nx-gitlab-token: s3cret-s3cret\r\n";
    assert_eq!(bed.closed_after(head.as_bytes()).await, SILENCE.as_secs());
    let whole = format!("{head}content-length: 9\r\n\r\n");
    assert_eq!(bed.closed_after(whole.as_bytes()).await, TIME.as_secs(), "its body has longer");
}

#[tokio::test]
async fn delivery_comes_through_however_many_connections_are_silent() {
    let bed = Bed::new().await;
    // So that none of them is closed for its silence meanwhile.
    tokio::time::pause();
    let (waiting, begin) = (WaitingConnections::new(2), Instant::now());
    let mut silent: Vec<_> = (0..3).map(|_| bed.connect(&waiting)).collect();
    let (mut stream, _task) = bed.say(&waiting, DELIVERY).await;
    assert_eq!(status_of(&mut stream).await, "202");
    let (last, others) = (silent.pop().unwrap(), silent);
    for (mut near, task) in others {
        task.await.unwrap();
        assert_eq!(near.read(&mut [0]).await.unwrap(), 0, "it is closed");
    }
    assert!(!last.1.is_finished() && begin.elapsed() < SILENCE, "the last of them was none too many");
}

#[tokio::test]
async fn slow_strangers_block_no_signed_delivery() {
    let bed = Bed::new().await;
    let waiting = WaitingConnections::new(AT_ONCE);
    let head = format!(
        "POST /webhooks/shop/hooked HTTP/1.1\r\nhost: stoa\r\nx-gitea-signature: {}\r\ncontent-length: 9\r\n\r\n{{",
        "0".repeat(64)
    );
    let mut slow = Vec::new();
    for _ in 0..AT_ONCE {
        slow.push(bed.say(&waiting, head.as_bytes()).await);
    }
    // So many handshakes take their time.
    tokio::time::pause();
    tokio::time::sleep(2 * SILENCE).await;
    assert!(slow.iter().all(|(_, task)| !task.is_finished()), "they were heard");
    let (mut stream, _task) = bed.say(&waiting, DELIVERY).await;
    assert_eq!(status_of(&mut stream).await, "202");
    let (_stream, first) = slow.remove(0);
    first.await.unwrap();
    assert!(slow.iter().all(|(_, task)| !task.is_finished()), "only the oldest was one too many");
}

#[tokio::test]
async fn delivery_with_another_token_is_refused_before_its_body() {
    let bed = Bed::new().await;
    tokio::time::pause();
    let head =
        "POST /webhooks/shop/hooked HTTP/1.1\r\nhost: stoa\r\nx-gitlab-token: another\r\ncontent-length: 9\r\n\r\n";
    let (mut stream, _task) = bed.say(&WaitingConnections::new(1), head.as_bytes()).await;
    assert_eq!(status_of(&mut stream).await, "401");
}

/// The status code that is answered.
async fn status_of(stream: &mut TlsStream<DuplexStream>) -> String {
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).replace("HTTP/1.1 ", "")
}

impl TestServer {
    async fn create_core(&self, kind: &str, object: Value) {
        let store = self.registry.stores().find(|store| store.definition().kind == kind).unwrap();
        let Value::Object(object) = object else { unreachable!("a map") };
        let context = stoa_machinery::RequestContext::internal("test");
        store.create(&context, "shop", stoa_machinery::Object(object)).await.unwrap();
    }
}
