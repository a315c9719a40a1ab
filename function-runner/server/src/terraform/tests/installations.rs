//! Installation from the three kinds of mirrors.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::crypto::ring;
use stoa_pki::{CertificateAuthority, CertificateRequest};
use stoa_terraform_provider::package::{Hash, Platform};
use stoa_test_registry::{PASSWORD, Registry, Settings, USER};
use stoa_tls::ServingCertificate;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::bed::{Bed, Scene, locked, provider};

const TOKEN: &str = "hunter2-token";

/// A network mirror over HTTPS, with archives on a server of its own.
struct Mirror {
    authority: CertificateAuthority,
    url: String,
    downloads: Arc<AtomicUsize>,
}

impl Mirror {
    /// Serves one archive of a provider.
    async fn start(name: &'static str, version: &'static str, archive: &Path, hash: &Hash) -> Self {
        let authority = CertificateAuthority::new("mirror test").unwrap();
        let archive = Bytes::from(std::fs::read(archive).unwrap());
        let downloads = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&downloads);
        // Another host is not shown the credentials of the mirror.
        let archives = serve(&authority, move |request| {
            assert_eq!(request.headers().get(AUTHORIZATION), None);
            counted.fetch_add(1, SeqCst);
            Response::builder().body(Full::new(archive.clone())).unwrap()
        })
        .await;
        let platform = Platform::current();
        let archive = format!("{archives}/x.zip?signature=hunter2-signature");
        let document = format!(r#"{{"archives":{{"{platform}":{{"url":"{archive}","hashes":["{hash}"]}}}}}}"#);
        let folder = format!("/m/registry.terraform.io/hashicorp/{name}");
        let url = serve(&authority, move |request| {
            let answer = Response::builder().header(CONTENT_TYPE, "application/json");
            let shown = request.headers().get(AUTHORIZATION).and_then(|it| it.to_str().ok());
            if shown != Some(&format!("Bearer {TOKEN}")) {
                return answer.status(401).body(Full::default()).unwrap();
            }
            let body = match request.uri().path().strip_prefix(&folder) {
                Some("/index.json") => format!(r#"{{"versions":{{"{version}":{{}}}}}}"#),
                Some(path) if path == format!("/{version}.json") => document.clone(),
                _ => return answer.status(404).body(Full::default()).unwrap(),
            };
            answer.body(Full::from(body)).unwrap()
        })
        .await;
        Self { authority, url: format!("{url}/m"), downloads }
    }

    /// The same workspace with this mirror.
    fn of<'b>(&self, mut scene: Scene<'b>, token: &str) -> Scene<'b> {
        scene.spec["mirror"] = serde_json::json!({"url": self.url});
        let ca = self.authority.certificate_pem().as_bytes().to_vec();
        let credentials = [("token", token.as_bytes().to_vec()), ("ca.crt", ca)];
        scene.workspace.mirror_credentials =
            credentials.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
        scene
    }
}

/// Answers requests over HTTPS, and returns the URL.
pub(super) async fn serve(
    authority: &CertificateAuthority,
    answer: impl Fn(Request<Incoming>) -> Response<Full<Bytes>> + Send + Sync + 'static,
) -> String {
    let issued = authority.issue(&CertificateRequest::server("mirror").loopback()).unwrap();
    let certificate = ServingCertificate::from_pem(&issued.certificate_pem, &issued.key_pem).unwrap();
    let tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let tls = tls.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let tls = TlsAcceptor::from(Arc::new(tls.with_cert_resolver(Arc::new(certificate))));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (tls, answer) = (tls.clone(), Arc::clone(&answer));
            tokio::spawn(async move {
                let Ok(stream) = tls.accept(stream).await else { return };
                let service = service_fn(move |request| {
                    let answer = answer(request);
                    async move { Ok::<_, Infallible>(answer) }
                });
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    url
}

#[tokio::test]
async fn filesystem_mirrors_have_folders_and_archives() {
    let Some(executable) = provider("random") else { return };
    let bed = Bed::new();
    bed.unpacked("random", "3.6.0", &executable);
    let lease = bed.scene("a").get("random").await.unwrap();
    assert!(lease.schemas().resources.contains_key("random_password"));
    let files = bed.unpacked("random", "3.6.1", &executable);
    let (_, archive) = bed.packed("random", "3.6.1", &executable);
    for hashes in [&[archive.to_string()][..], &[files.to_string(), archive.to_string()], &[files.to_string()]] {
        let lock = locked("random", "3.6.1", hashes);
        bed.scene("a").with_lock(&lock).get("random").await.unwrap();
    }
    let wrong = format!("zh:{}", "0".repeat(64));
    let (message, passes) = bed.scene("a").with_lock(&locked("random", "3.6.1", &[wrong])).failure("random").await;
    assert!(!passes && message.contains(&archive.to_string()), "{message}");
}

#[tokio::test]
async fn network_mirrors_are_reached_with_credentials() {
    let Some(executable) = provider("random") else { return };
    let bed = Bed::new();
    let (path, hash) = bed.packed("random", "3.6.0", &executable);
    let mirror = Mirror::start("random", "3.6.0", &path, &hash).await;
    let lock = locked("random", "3.6.0", &[hash.to_string()]);
    let scene = |organization: &str, token: &str| mirror.of(bed.scene(organization).with_lock(&lock), token);
    let (message, passes) = scene("a", "wrong-token").failure("random").await;
    assert!(!passes && message.contains("status 401") && message.contains("mirror.secretRef"), "{message}");
    assert!(!message.contains("wrong-token"), "{message}");

    // Those who wait for one installation share it, in all organizations.
    let scenes = ["a", "b", "c"].map(|organization| scene(organization, TOKEN));
    let [first, second, third] = &scenes;
    let leases = tokio::join!(first.get("random"), second.get("random"), third.get("random"));
    let leases = [leases.0.unwrap(), leases.1.unwrap(), leases.2.unwrap()];
    assert_eq!(mirror.downloads.load(SeqCst), 1);
    assert!(leases[0].schemas().resources.contains_key("random_password"));

    let other = locked("random", "3.7.0", &[hash.to_string()]);
    let (message, passes) = mirror.of(bed.scene("a").with_lock(&other), TOKEN).failure("random").await;
    assert!(!passes && message.contains("it has 3.6.0; add the package to the mirror"), "{message}");
    let missing = locked("missing", "3.6.0", &[hash.to_string()]);
    let (message, passes) = mirror.of(bed.scene("a").with_lock(&missing), TOKEN).failure("missing").await;
    assert!(!passes && message.contains("status 404; add the package to the mirror"), "{message}");
}

#[tokio::test]
async fn wrong_archives_of_network_mirrors_are_rejected() {
    let bed = Bed::new();
    let (path, hash) = bed.packed("x", "1.0.0", Path::new("/bin/true"));
    let mirror = Mirror::start("x", "1.0.0", &path, &Hash::Archive([0; 32])).await;
    let lock = locked("x", "1.0.0", &[hash.to_string()]);
    let (message, passes) = mirror.of(bed.scene("a").with_lock(&lock), TOKEN).failure("x").await;
    assert!(!passes && message.contains("which the mirror does not permit"), "{message}");
    // A mirror that does not answer is tried again.
    let mut away = mirror.of(bed.scene("a").with_lock(&lock), TOKEN);
    away.spec["mirror"]["url"] = "https://127.0.0.1:1/m".into();
    let (message, passes) = away.failure("x").await;
    assert!(passes && message.ends_with("the mirror is tried again"), "{message}");
}

/// Pushes a package as `oras` and OpenTofu's documents say: a manifest for the platform, and an index by its version.
fn push(registry: &Registry, tag: &str, package: &Path, types: [&str; 2]) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(package, folder.path().join("package.zip")).unwrap();
    let platform = Platform::current().0.replace('_', "/");
    let words = [
        &format!("--artifact-type={}", types[1]),
        &format!("--artifact-platform={platform}"),
        "package.zip:archive/zip",
    ];
    let target = registry.push("providers/hashicorp/random:target", &words, folder.path());
    let reference = format!("{}/providers/hashicorp/random", registry.host());
    let size = registry.oras(&["manifest", "fetch", "--descriptor", &format!("{reference}@{target}")], folder.path());
    let size = serde_json::from_str::<serde_json::Value>(&size).unwrap()["size"].clone();
    let (os, architecture) = platform.split_once('/').unwrap();
    let index = serde_json::json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "artifactType": types[0],
        "manifests": [{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": target, "size": size,
            "artifactType": types[1], "platform": {"os": os, "architecture": architecture}}],
    });
    std::fs::write(folder.path().join("index.json"), index.to_string()).unwrap();
    registry.oras(&["manifest", "push", &format!("{reference}:{tag}"), "index.json"], folder.path());
}

#[tokio::test]
async fn registry_has_providers_in_the_layout_of_opentofu() {
    let Some(executable) = provider("random").filter(|_| Registry::is_there()) else { return };
    let registry = Registry::start_with(Settings { login: true, ..Settings::default() });
    let bed = Bed::new();
    let (path, hash) = bed.packed("random", "3.6.0", &executable);
    let types = ["application/vnd.opentofu.provider", "application/vnd.opentofu.provider-target"];
    push(&registry, "3.6.0", &path, types);
    push(&registry, "3.6.1_build", &path, types);
    push(&registry, "3.6.2", &path, [types[1], types[1]]);
    let scene = |version: &str, hash: &str, keys: &[(&str, &str)]| {
        let mut scene = bed.scene("a").with_lock(&locked("random", version, &[hash.to_owned()]));
        let template = format!("{}/providers/${{namespace}}/${{type}}", registry.host());
        scene.spec["mirror"] = serde_json::json!({"repositoryTemplate": template});
        scene.workspace.mirror_credentials =
            keys.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec().into())).collect();
        scene
    };
    let keys = [("username", USER), ("password", PASSWORD)];
    let failure = async |version: &str, hash: &str, keys: &[(&str, &str)]| {
        let (message, passes) = scene(version, hash, keys).failure("random").await;
        assert!(!passes, "{message}");
        message
    };
    let hash = hash.to_string();
    let wrong = failure("3.6.0", &hash, &[("password", "hunter2")]).await;
    assert!(wrong.contains("mirror.secretRef") && !wrong.contains("hunter2"), "{wrong}");
    let lease = scene("3.6.0", &hash, &keys).get("random").await.unwrap();
    assert!(lease.schemas().resources.contains_key("random_password"));
    scene("3.6.1+build", &hash, &keys).get("random").await.unwrap();
    let other = format!("zh:{}", "0".repeat(64));
    for (version, hash, expected) in [
        ("3.6.0", &other, "compare the mirror with the lock file"),
        ("3.6.2", &hash, "its artifactType is not application/vnd.opentofu.provider"),
        ("3.7.0", &hash, "push the package to the registry"),
    ] {
        let message = failure(version, hash, &keys).await;
        assert!(message.contains(expected), "{message}");
    }
}
