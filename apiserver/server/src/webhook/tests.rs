//! Deliveries over TLS, to a server whose Secrets are its own.

use std::io;

use http_body_util::StreamBody;
use hyper::body::Frame;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use serde_json::{Value, json};
use stoa_pki::{CertificateAuthority, CertificateRequest};
use tokio_rustls::TlsConnector;

use super::*;
use crate::controllers::runs::tests::World;

const TOKEN: &str = "s3cret-s3cret";

/// A server, and what trusts it.
struct Bed {
    world: World,
    address: SocketAddr,
    connector: TlsConnector,
    _directory: tempfile::TempDir,
}

impl Bed {
    async fn new() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let world = World::with_secrets().await;
        let directory = tempfile::TempDir::new().unwrap();
        let ca = CertificateAuthority::load_or_create(directory.path(), "ca", "test").unwrap();
        let issued = ca.issue(&CertificateRequest::server("stoa-apiserver").loopback()).unwrap();
        let certificate = Arc::new(ServingCertificate::from_pem(&issued.certificate_pem, &issued.key_pem).unwrap());
        let webhooks = Webhooks::bind("127.0.0.1:0".parse().unwrap(), certificate).await.unwrap();
        let address = webhooks.listener.local_addr().unwrap();
        tokio::spawn(webhooks.serve(world.services.clone(), CancellationToken::new()));
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca.certificate_pem().as_bytes()).unwrap()).unwrap();
        let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(client));
        let hook = json!({"remote": "file:///config.git", "webhook": {"secretRef": {"name": "hook"}}});
        world.create("Source", "hooked", hook).await;
        let secret = json!({"metadata": {"name": "hook"}, "stringData": {"token": format!("{TOKEN}\n")}});
        world.create_core("Secret", secret).await;
        Self { world, address, connector, _directory: directory }
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

    async fn asked(&self, source: &str) -> Option<MicroTime> {
        let source = self.world.registry.api::<Source>().get("shop", source).await.unwrap();
        source.status.and_then(|status| status.last_webhook_time)
    }
}

#[tokio::test]
async fn signed_delivery_asks_for_a_look_and_nothing_else_does() {
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

impl World {
    async fn create_core(&self, kind: &str, object: Value) {
        let store = self.registry.stores().find(|store| store.definition().kind == kind).unwrap();
        let Value::Object(object) = object else { unreachable!("a map") };
        let context = stoa_machinery::RequestContext::internal("test");
        store.create(&context, "shop", stoa_machinery::Object(object)).await.unwrap();
    }
}
