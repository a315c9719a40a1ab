//! Artifacts of a real registry, pushed by a real client: `STOA_TEST_REGISTRY` and `STOA_TEST_ORAS`.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;

use stoa_artifacts::{
    Access, Digest, Document, FetchError, Found, Login, Manifest, Mismatch, PackageImage, PackageImageFile,
    PackageImageRevision, Registry, Selector, layers,
};
use stoa_test_registry::{Answer, Front, PASSWORD, Registry as Server, Settings, USER};
use tempfile::TempDir;

/// Whether there is a registry to test with.
fn is_there() -> bool {
    let is_there = Server::is_there();
    if !is_there {
        eprintln!("skipped: STOA_TEST_REGISTRY and STOA_TEST_ORAS name no programs");
    }
    is_there
}

fn login(keys: &[(&str, &str)]) -> Login {
    Login::of_keys("x", |key| keys.iter().find(|(it, _)| *it == key).map(|(_, value)| value.as_bytes())).unwrap()
}

fn registry(host: &str, name: &str, login: Login) -> Registry {
    Registry::new(format!("oci://{host}/{name}").parse().unwrap(), login).unwrap()
}

fn selector(text: &str) -> Selector {
    text.parse().unwrap()
}

fn manifest(found: Found) -> Manifest {
    match found.document {
        Document::Manifest(manifest) => manifest,
        Document::Index(index) => panic!("{index:?}"),
    }
}

/// A folder with one file.
fn folder(content: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("web.yaml"), content).unwrap();
    folder
}

#[tokio::test]
async fn artifacts_are_found_by_tag_digest_and_range() {
    if !is_there() {
        return;
    }
    let server = Server::start();
    let digests: Vec<Digest> = ["1.2.0", "v1.10.0", "2.0.0-rc.1", "main"]
        .iter()
        .map(|tag| server.push_flux(&format!("shop/config:{tag}"), folder(tag).path()).parse().unwrap())
        .collect();
    let registry = registry(&server.host(), "shop/config", Login::default());
    let digest = async |text: &str| registry.find(&selector(text)).await.map(|found| found.digest);
    assert_eq!(digest("main").await.unwrap(), digests[3]);
    assert_eq!(digest("^1").await.unwrap(), digests[1]);
    assert_eq!(digest("<1.10").await.unwrap(), digests[0]);
    assert_eq!(digest(&digests[2].to_string()).await.unwrap(), digests[2]);
    assert_eq!(digest(&format!("main@{}", digests[0])).await.unwrap(), digests[0], "the digest decides");
    assert_eq!(registry.newest_release().await.unwrap().digest, digests[1]);
    for missing in ["", "nothing", "^3", &Digest::of(b"x").to_string()] {
        let error = digest(missing).await.unwrap_err();
        assert!(matches!(error, FetchError::NotFound { .. }), "{missing}: {error:?}");
    }

    let found = manifest(registry.find(&selector("main")).await.unwrap());
    let layers = layers::of_manifest(&found).unwrap();
    let [layer] = &layers[..] else { panic!("{layers:?}") };
    let into = TempDir::new().unwrap();
    let path = into.path().join("blob");
    let blob = &layer.blob;
    registry.blob(&blob.digest, Some(blob.size), 1 << 20, &path).await.unwrap();
    assert_eq!(Digest::of(&fs::read(&path).unwrap()), blob.digest);
    let again = registry.blob(&blob.digest, Some(blob.size), 1 << 20, &path).await.unwrap_err();
    assert!(matches!(again, FetchError::Io { .. }), "nothing is overwritten");
}

#[tokio::test]
async fn altered_content_is_never_used() {
    if !is_there() {
        return;
    }
    let server = Server::start();
    let digest: Digest = server.push_flux("shop/config:1", folder("x").path()).parse().unwrap();
    let registry = registry(&server.host(), "shop/config", Login::default());
    let layer = manifest(registry.by_digest(&digest).await.unwrap()).layers.remove(0);
    let into = TempDir::new().unwrap();
    let path = into.path().join("blob");
    let blob = async |size, limit| registry.blob(&layer.digest, size, limit, &path).await.unwrap_err();
    let mismatch = |error: FetchError| match error {
        FetchError::Mismatch { source, .. } => source,
        error => panic!("{error:?}"),
    };
    let limit = layer.size - 1;
    assert_eq!(mismatch(blob(None, limit).await), Mismatch::TooLarge(limit));
    assert!(matches!(mismatch(blob(Some(layer.size + 1), 1 << 20).await), Mismatch::Size { .. }));

    let file = server.blob(layer.digest.hex());
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    assert!(matches!(mismatch(blob(Some(layer.size), 1 << 20).await), Mismatch::Digest { .. }));
    assert!(!path.exists(), "nothing is left of it");

    let mut altered = fs::read(server.blob(digest.hex())).unwrap();
    altered.push(b' ');
    let header = digest.to_string();
    let front =
        Front::start("", move |_| Answer::own(200, &[("docker-content-digest", &header)], altered.clone())).await;
    let registry = self::registry(&front.host(), "shop/config", Login::default());
    assert!(matches!(mismatch(registry.by_digest(&digest).await.unwrap_err()), Mismatch::Digest { .. }));
    assert!(matches!(mismatch(registry.by_tag("1").await.unwrap_err()), Mismatch::Digest { .. }));
}

#[tokio::test]
async fn registry_with_login_and_certificate_is_used() {
    if !is_there() {
        return;
    }
    let (certificate, key) = certificate();
    let settings = Settings { login: true, certificate: Some((certificate.clone(), key)) };
    let server = Server::start_with(settings);
    let digest = server.push_flux("shop/config:1", folder("x").path());
    let find = async |keys: &[(&str, &str)]| {
        registry(&server.host(), "shop/config", login(keys)).by_tag("1").await.map(|found| found.digest.to_string())
    };
    let authority = ("ca.crt", certificate.as_str());
    assert_eq!(find(&[authority, ("username", USER), ("password", PASSWORD)]).await.unwrap(), digest);
    for keys in [vec![authority], vec![authority, ("username", USER), ("password", "hunter2")]] {
        let error = find(&keys).await.unwrap_err();
        assert!(matches!(error, FetchError::Unauthorized { .. }), "{error:?}");
        assert!(!format!("{error:?}").contains("hunter2"));
    }
    let other = certificate_of_another();
    let error = find(&[("ca.crt", &other), ("username", USER), ("password", PASSWORD)]).await.unwrap_err();
    assert!(matches!(error, FetchError::Unreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn token_of_another_server_is_used_for_one_repository() {
    if !is_there() {
        return;
    }
    let server = Server::start();
    let digest = server.push_flux("shop/config:1", folder("x").path());
    let tokens = Front::start("", |_| Answer::own(200, &[], r#"{"token": "t1"}"#)).await;
    let realm = format!("Bearer realm=\"http://{}/token?x=1\",service=\"reg\",scope=\"all\"", tokens.host());
    let front = Front::start(&server.host(), move |seen| match seen.authorization.as_deref() {
        Some("Bearer t1") => Answer::PassOn,
        _ => Answer::own(401, &[("www-authenticate", &realm)], ""),
    })
    .await;
    let registry = registry(&front.host(), "shop/config", login(&[("username", USER), ("password", PASSWORD)]));
    assert_eq!(registry.by_tag("1").await.unwrap().digest.to_string(), digest);
    assert_eq!(registry.by_tag("1").await.unwrap().digest.to_string(), digest);
    let [asked] = &tokens.seen()[..] else { panic!("one token is enough: {:?}", tokens.seen()) };
    assert_eq!(asked.path, "/token?x=1&scope=repository%3Ashop%2Fconfig%3Apull&service=reg");
    assert!(asked.authorization.as_ref().unwrap().starts_with("Basic "));
    assert!(front.seen().iter().all(|seen| !seen.authorization.iter().any(|it| it.starts_with("Basic"))));
}

#[tokio::test]
async fn catalog_needs_a_token_of_its_own_scope() {
    let tokens = Front::start("", |_| Answer::own(200, &[], r#"{"token": "t1"}"#)).await;
    let realm = format!("Bearer realm=\"http://{}/token\",service=\"reg\"", tokens.host());
    let front = Front::start("", move |seen| match seen.authorization.as_deref() {
        Some("Bearer t1") => Answer::own(200, &[], r#"{"repositories": ["a", "b/c"]}"#),
        _ => Answer::own(401, &[("www-authenticate", &realm)], ""),
    })
    .await;
    let registry = registry(&front.host(), "a", Login::default());
    assert_eq!(registry.catalog().await.unwrap(), ["a", "b/c"]);
    let [asked] = &tokens.seen()[..] else { panic!("one token is enough: {:?}", tokens.seen()) };
    assert_eq!(asked.path, "/token?scope=registry%3Acatalog%3A*&service=reg");
}

#[tokio::test]
async fn token_of_the_secret_is_used_as_it_is() {
    let front = Front::start("", |seen| match seen.authorization.as_deref() {
        Some("Bearer mine") => Answer::own(200, &[], r#"{"tags": ["v1"]}"#),
        _ => Answer::own(401, &[("www-authenticate", "Bearer realm=\"http://127.0.0.1:1/\"")], ""),
    })
    .await;
    let tags = async |token: &str| registry(&front.host(), "a", login(&[("bearerToken", token)])).tags().await;
    assert_eq!(tags("mine").await.unwrap(), ["v1"]);
    let error = tags("other").await.unwrap_err();
    assert!(matches!(error, FetchError::Unauthorized { .. }), "{error:?}");
}

#[tokio::test]
async fn redirect_to_another_server_has_no_credentials() {
    if !is_there() {
        return;
    }
    let server = Server::start();
    server.push_flux("shop/config:1", folder("x").path());
    let storage = Front::start(&server.host(), |_| Answer::PassOn).await;
    let storage_host = storage.host();
    let front = Front::start(&server.host(), move |seen| match &seen.authorization {
        None => Answer::own(401, &[("www-authenticate", "Basic realm=\"x\"")], ""),
        Some(_) if seen.path.contains("/blobs/") => {
            Answer::own(307, &[("location", &format!("http://{storage_host}{}", seen.path))], "")
        }
        Some(_) => Answer::PassOn,
    })
    .await;
    let registry = registry(&front.host(), "shop/config", login(&[("token", PASSWORD)]));
    let layer = manifest(registry.by_tag("1").await.unwrap()).layers.remove(0);
    let into = TempDir::new().unwrap();
    registry.blob(&layer.digest, Some(layer.size), 1 << 20, &into.path().join("blob")).await.unwrap();
    let [seen] = &storage.seen()[..] else { panic!("{:?}", storage.seen()) };
    assert_eq!(seen.authorization, None);

    let round = Front::start("", |seen| Answer::own(302, &[("location", &seen.path)], "")).await;
    let error = self::registry(&round.host(), "a", Login::default()).by_tag("1").await.unwrap_err();
    assert!(error.to_string().ends_with("it has more than 5 redirects"), "{error}");
}

#[tokio::test]
async fn broken_answers_are_errors() {
    for (path, answer, expected) in [
        ("manifests", (200, "<html>"), "is wrong: it is no manifest of a registry"),
        ("manifests", (503, r#"{"errors": [{"message": "down\nfor now"}]}"#), "answered with status 503: down for now"),
        ("tags", (200, r#"{"tags": 1}"#), "is wrong: it is no list of names"),
    ] {
        let front = Front::start("", move |_| Answer::own(answer.0, &[], answer.1)).await;
        let registry = registry(&front.host(), "a", Login::default());
        let error = match path {
            "tags" => registry.tags().await.unwrap_err(),
            _ => registry.by_tag("1").await.unwrap_err(),
        };
        assert!(error.to_string().contains(expected), "{error}");
    }
    let large = Front::start("", |_| Answer::own(200, &[], vec![b' '; (4 << 20) + 1])).await;
    let error = registry(&large.host(), "a", Login::default()).by_tag("1").await.unwrap_err();
    assert!(matches!(error, FetchError::Mismatch { source: Mismatch::TooLarge(_), .. }), "{error:?}");
    let many = Front::start("", |seen| {
        let second = seen.path.contains("last=a");
        let link =
            if second { "<http://other.localhost/>; rel=next" } else { "</v2/a/tags/list?last=a>; rel=\"next\"" };
        Answer::own(200, &[("link", link)], r#"{"tags": ["a"]}"#)
    })
    .await;
    let error = registry(&many.host(), "a", Login::default()).tags().await.unwrap_err();
    assert!(error.to_string().ends_with("the next page is at another server"), "{error}");
    assert_eq!(many.seen().len(), 2);
}

#[tokio::test]
async fn oras_artifacts_have_files_and_folders() {
    if !is_there() {
        return;
    }
    let server = Server::start();
    let folder = folder("x");
    fs::create_dir(folder.path().join("apps")).unwrap();
    fs::write(folder.path().join("apps/api.yaml"), "y").unwrap();
    server.push("shop/config:1", &["web.yaml:application/yaml", "apps"], folder.path());
    let registry = registry(&server.host(), "shop/config", Login::default());
    let layers = layers::of_manifest(&manifest(registry.by_tag("1").await.unwrap())).unwrap();
    let forms: Vec<_> = layers.iter().map(|layer| layer.form.clone()).collect();
    let archive = layers::Form::Archive(layers::Compression::Gzip);
    assert_eq!(forms, [layers::Form::File("web.yaml".to_owned()), archive]);
    let path = folder.path().join("blob");
    let blob = &layers[1].blob;
    registry.blob(&blob.digest, Some(blob.size), 1 << 20, &path).await.unwrap();
    assert_eq!(names(&path), ["apps/api.yaml"]);
}

/// The image of a package with one file.
fn image() -> PackageImage {
    let file = PackageImageFile { path: "Kptfile", content: b"kind: Kptfile\n", is_executable: false };
    let created = "2026-01-02T03:04:05Z";
    let revision = PackageImageRevision { number: 1, workspace: "ws", author: "ann", created, task: "{}" };
    PackageImage::new(&[file], &revision).unwrap()
}

fn writable(host: &str, access: Access, keys: &[(&str, &str)]) -> Registry {
    Registry::with_access(format!("oci://{host}/shop/web").parse().unwrap(), login(keys), access).unwrap()
}

#[tokio::test]
async fn package_is_pushed_and_removed() {
    if !is_there() {
        return;
    }
    let server = Server::start_with(Settings { login: true, ..Settings::default() });
    let (image, keys) = (image(), [("username", USER), ("password", PASSWORD)]);
    let registry = writable(&server.host(), Access::Push, &keys);
    for blob in [&image.layer, &image.config, &image.layer] {
        assert_eq!(registry.upload(blob).await.unwrap(), Digest::of(blob), "a second upload changes nothing");
    }
    let digest = registry.put("v1", &image.manifest).await.unwrap();
    assert_eq!(registry.by_tag("v1").await.unwrap().digest, digest);
    let folder = TempDir::new().unwrap();
    let reference = format!("{}/shop/web:v1", server.host());
    let fetched = server.oras(&["manifest", "fetch", &reference], folder.path());
    assert_eq!(Digest::of(fetched.trim_end().as_bytes()), digest, "{fetched}");
    let layer = format!("{}/shop/web@{}", server.host(), Digest::of(&image.layer));
    server.oras(&["blob", "fetch", "--output", "layer.tgz", &layer], folder.path());
    assert_eq!(names(&folder.path().join("layer.tgz")), ["Kptfile"]);

    let registry = writable(&server.host(), Access::Delete, &keys);
    registry.remove_tag("v1").await.unwrap();
    let missing = |error: FetchError| assert!(matches!(error, FetchError::NotFound { .. }), "{error:?}");
    missing(registry.by_tag("v1").await.unwrap_err());
    assert_eq!(registry.by_digest(&digest).await.unwrap().digest, digest, "others may have the manifest");
    registry.remove_manifest(&digest).await.unwrap();
    missing(registry.by_digest(&digest).await.unwrap_err());
    missing(registry.remove_tag("v1").await.unwrap_err());

    let refused = writable(&server.host(), Access::Push, &[]).upload(&image.layer).await.unwrap_err();
    assert!(matches!(refused, FetchError::Unauthorized { .. }), "{refused:?}");
}

#[tokio::test]
async fn write_needs_a_token_of_its_own_scope() {
    for (access, scope) in [(Access::Push, "pull%2Cpush"), (Access::Delete, "pull%2Cdelete")] {
        let tokens = Front::start("", |_| Answer::own(200, &[], r#"{"token": "t1"}"#)).await;
        let realm = format!("Bearer realm=\"http://{}/token\",service=\"reg\"", tokens.host());
        let front = Front::start("", move |seen| match seen.authorization.as_deref() {
            Some("Bearer t1") => Answer::own(202, &[], ""),
            _ => Answer::own(401, &[("www-authenticate", &realm)], ""),
        })
        .await;
        let registry = writable(&front.host(), access, &[]);
        match access {
            Access::Delete => registry.remove_tag("v1").await.unwrap(),
            Access::Pull | Access::Push => drop(registry.upload(&image().layer).await.unwrap()),
        }
        let [asked] = &tokens.seen()[..] else { panic!("one token is enough: {:?}", tokens.seen()) };
        assert_eq!(asked.path, format!("/token?scope=repository%3Ashop%2Fweb%3A{scope}&service=reg"));
    }
}

/// The names in an archive.
fn names(path: &Path) -> Vec<String> {
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(fs::File::open(path).unwrap()));
    let files = tar.entries().unwrap().map(Result::unwrap).filter(|it| it.header().entry_type().is_file());
    files.map(|it| it.path().unwrap().display().to_string()).collect()
}

/// A certificate for loopback, and its key.
fn certificate() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

fn certificate_of_another() -> String {
    certificate().0
}
