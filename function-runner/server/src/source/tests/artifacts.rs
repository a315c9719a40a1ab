//! Artifacts and charts of a real registry, and of a chart repository.

use std::fs;

use bytes::Bytes;
use stoa_test_registry::{Answer, Front, PASSWORD, Registry as Server, Settings, USER, tar_gz};

use super::*;

const SHOWN: &str = "apps/web/spec.yaml";

/// Whether there is a registry to test with.
fn is_there() -> bool {
    let is_there = Server::is_there();
    if !is_there {
        eprintln!("skipped: STOA_TEST_REGISTRY and STOA_TEST_ORAS name no programs");
    }
    is_there
}

fn source(provider: &str, remote: String) -> Source {
    Source { provider: provider.to_owned(), remote, ..Source::default() }
}

/// A folder with files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

/// The archive of a chart, and its digest.
fn chart(version: &str) -> (TempDir, String) {
    let metadata = format!("apiVersion: v2\nname: web\nversion: {version}\n");
    let folder = folder(&[("web/Chart.yaml", &metadata), ("web/templates/a.yaml", "a: {{ .Values.a }}\n")]);
    tar_gz(folder.path(), "web", &folder.path().join("chart.tgz"));
    let digest = stoa_artifacts::Digest::of(&fs::read(folder.path().join("chart.tgz")).unwrap());
    (folder, digest.to_string())
}

fn texts(content: &Content) -> Vec<(&str, &str)> {
    content.files().iter().map(|file| (file.path.as_str(), std::str::from_utf8(&file.bytes).unwrap())).collect()
}

#[tokio::test]
async fn artifact_is_a_source_by_its_digest() {
    if !is_there() {
        return;
    }
    let server = Server::start_with(Settings { login: true, ..Settings::default() });
    let first = server.push_flux("shop/config:1.0.0", folder(&[(SHOWN, "v: 1\n"), ("other/x.yaml", "x: 1\n")]).path());
    let caches = TempDir::new().unwrap();
    let sources = sources_in(caches.path());
    let mut source = source("OCI", format!("oci://{}/shop/config", server.host()));
    let refused = sources.resolve(&source, "latest", "1.0.0").await.unwrap_err();
    assert_eq!(refused.problems()[0].reason, reason::SOURCE_UNAUTHORIZED);
    let keys = [("username", USER), ("password", PASSWORD)];
    source.credentials = keys.map(|(key, value)| (key.to_owned(), value.into())).into();

    let resolved = sources.resolve(&source, "latest", "1.0.0").await.unwrap();
    let subject = "main@sha1:b3b00fe35424a45d373bf4c7214178bc36fd7872";
    assert_eq!((resolved.commit.as_str(), resolved.subject.as_str()), (first.as_str(), subject));
    let read = sources.read(&source, &first, "apps/web").await.unwrap();
    assert_eq!(texts(&read), [(SHOWN, "v: 1\n")]);
    let file = sources.file(&source, &first, SHOWN, 100).await.unwrap();
    assert_eq!(file, (SHOWN.to_owned(), "v: 1\n".to_owned()));
    let missing = sources.read(&source, &first, "apps/api").await.unwrap_err();
    assert_eq!(missing.problems()[0].message, format!("does not exist at commit {first}"));

    let second = server.push_flux("shop/config:1.1.0", folder(&[(SHOWN, "v: 2\n"), ("other/x.yaml", "x: 1\n")]).path());
    let versions = ["1.0.0", "2.0.0", ">=1, <1.1", "a/b"].map(str::to_owned).to_vec();
    let looked = sources.look(&source, "^1", versions).await.unwrap();
    assert_eq!(looked.latest, second);
    let found = ["1.0.0", ">=1, <1.1"].map(|version| (version.to_owned(), first.clone()));
    assert_eq!(looked.commits, found.into());
    let paths = || ["apps/web", "other", "none"].map(str::to_owned).to_vec();
    let contents = async |commit: &str| sources.contents(&source, commit, paths()).await.unwrap();
    let (before, after) = (contents(&first).await, contents(&second).await);
    assert!(before["apps/web"] != after["apps/web"] && before["other"] == after["other"] && before.len() == 2);
    let changed = sources.changed(&source, &first, &second, paths()).await.unwrap();
    assert_eq!(changed, Some(vec!["apps/web".to_owned()]));
    assert_eq!(sources.changed(&source, &first, &first, paths()).await.unwrap(), None);

    // A cached revision needs no server, and another runner fetches it by its digest.
    let other = TempDir::new().unwrap();
    let read = sources_in(other.path()).read(&source, &first, "apps/web").await.unwrap();
    assert_eq!(texts(&read), [(SHOWN, "v: 1\n")]);
    drop(server);
    let read = sources.read(&source, &second, "").await.unwrap();
    assert_eq!(texts(&read), [(SHOWN, "v: 2\n"), ("other/x.yaml", "x: 1\n")]);
    assert_eq!(sources.resolve(&source, &first, "").await.unwrap().subject, subject);
    let gone = sources.resolve(&source, "latest", "1.0.0").await.unwrap_err();
    assert_eq!((gone.code(), gone.problems()[0].reason.as_str()), (Code::Unavailable, reason::SOURCE_UNAVAILABLE));
    assert!(fs::read_dir(caches.path().join("git")).unwrap().all(|cache| {
        let names = fs::read_dir(cache.unwrap().path()).unwrap();
        names.into_iter().all(|name| !name.unwrap().file_name().to_string_lossy().starts_with("new-"))
    }));
}

#[tokio::test]
async fn artifacts_of_oras_have_files_and_folders() {
    if !is_there() {
        return;
    }
    let server = Server::start();
    let files = folder(&[("web.yaml", "a: 1\n"), ("apps/api/b.yaml", "b: 1\n")]);
    let digest = server.push("config:latest", &["web.yaml:application/yaml", "apps"], files.path());
    let caches = TempDir::new().unwrap();
    let (sources, source) = (sources_in(caches.path()), source("OCI", format!("oci://{}/config", server.host())));
    assert_eq!(sources.resolve(&source, "", "").await.unwrap().commit, digest);
    let read = sources.read(&source, &digest, "").await.unwrap();
    assert_eq!(texts(&read), [("apps/api/b.yaml", "b: 1\n"), ("web.yaml", "a: 1\n")]);
}

#[tokio::test]
async fn artifacts_that_mean_harm_are_refused() {
    if !is_there() {
        return;
    }
    let server = Server::start();
    let files = folder(&[("a.yaml", "a: 1\n")]);
    std::os::unix::fs::symlink("/etc/passwd", files.path().join("link.yaml")).unwrap();
    server.push_flux("config:link", files.path());
    fs::write(files.path().join("content.tgz"), "no archive").unwrap();
    server.push("config:damaged", &["content.tgz:application/vnd.cncf.flux.content.v1.tar+gzip"], files.path());
    server.push("config:empty", &["--artifact-type=application/x"], files.path());
    let caches = TempDir::new().unwrap();
    let (sources, source) = (sources_in(caches.path()), source("OCI", format!("oci://{}/config", server.host())));
    for (tag, message) in [
        ("link", "which is a link that leads elsewhere"),
        ("damaged", "it is no tar archive, or ends too early"),
        ("empty", "the media type \"application/vnd.oci.empty.v1+json\""),
    ] {
        let failure = sources.resolve(&source, tag, "").await.unwrap_err();
        let problem = &failure.problems()[0];
        assert!(failure.code() == Code::InvalidArgument && problem.message.contains(message), "{tag}: {problem:?}");
    }
    for (provider, remote) in [("OCI", "oci://a.example.com/A"), ("OCI", "a"), ("Helm", "ftp://a.example.com")] {
        let source = Source { chart: "web".to_owned(), ..self::source(provider, remote.to_owned()) };
        sources.resolve(&source, "1", "").await.unwrap_err();
    }
    let other = self::source("Mercurial", "https://a.example.com".to_owned());
    assert_eq!(sources.resolve(&other, "1", "").await.unwrap_err().problems()[0].reason, reason::NOT_AVAILABLE);
}

#[tokio::test]
async fn chart_of_a_registry_is_a_source_by_its_archive() {
    if !is_there() {
        return;
    }
    let server = Server::start();
    let (first, second) = (chart("1.2.0"), chart("1.10.0"));
    for (version, (folder, _)) in [("1.2.0", &first), ("1.10.0", &second)] {
        server.push_chart(&format!("charts/web:{version}"), &folder.path().join("chart.tgz"));
    }
    let caches = TempDir::new().unwrap();
    let sources = sources_in(caches.path());
    let source = Source { chart: "web".to_owned(), ..source("Helm", format!("oci://{}/charts", server.host())) };
    let resolve = async |version: &str| sources.resolve(&source, "latest", version).await;
    assert_eq!(
        resolve("").await.unwrap(),
        Resolved { commit: second.1.clone(), subject: "web 1.10.0".to_owned(), ..Resolved::default() }
    );
    for version in ["1.2.0", "<1.10", &format!("1.2.0@{}", first.1), &first.1] {
        assert_eq!(resolve(version).await.unwrap().commit, first.1, "{version}");
    }
    let pinned = resolve(&format!("1.2.0@{}", second.1)).await.unwrap_err();
    assert!(pinned.problems()[0].message.starts_with("chart \"web\" 1.2.0 has the digest"), "{pinned:?}");
    let read = sources.read(&source, &second.1, "").await.unwrap();
    let metadata = "apiVersion: v2\nname: web\nversion: 1.10.0\n";
    assert_eq!(texts(&read)[0], ("Chart.yaml", metadata));
    // Another runner has the digest alone.
    let other = TempDir::new().unwrap();
    assert_eq!(sources_in(other.path()).read(&source, &second.1, "").await.unwrap(), read);
}

#[tokio::test]
async fn chart_of_a_repository_is_a_source_by_its_archive() {
    let (first, second) = (chart("1.2.0"), chart("1.10.0"));
    let archive = |folder: &TempDir| Bytes::from(fs::read(folder.path().join("chart.tgz")).unwrap());
    let (archives, tampered) = ([archive(&first.0), archive(&second.0)], Bytes::from_static(b"tampered"));
    // The archives are at another server, which is shown no credentials.
    let storage = Front::start("", move |seen| {
        assert_eq!(seen.authorization, None);
        match seen.path.as_str() {
            "/web-1.2.0.tgz" => Answer::own(200, &[], archives[0].clone()),
            "/web-1.10.0.tgz" => Answer::own(200, &[], archives[1].clone()),
            _ => Answer::own(200, &[], tampered.clone()),
        }
    })
    .await;
    let entry = |version: &str, digest: &str, file: &str| {
        format!("  - {{version: {version}, digest: {}, urls: ['http://{}/{file}']}}\n", &digest[7..], storage.host())
    };
    let index = [
        "apiVersion: v1\nentries:\n  web:\n".to_owned(),
        entry("1.2.0", &first.1, "web-1.2.0.tgz"),
        entry("1.10.0", &second.1, "web-1.10.0.tgz"),
        entry("2.0.0-rc.1", &first.1.replace(&first.1[7..15], "00000000"), "tampered.tgz"),
    ]
    .concat();
    let repository = Front::start("", move |seen| match (seen.path.as_str(), seen.authorization.is_some()) {
        (_, false) => Answer::own(401, &[], ""),
        ("/stable/index.yaml", true) => Answer::own(200, &[], index.clone()),
        (_, true) => Answer::own(404, &[], ""),
    })
    .await;
    let caches = TempDir::new().unwrap();
    let sources = sources_in(caches.path());
    let mut source =
        Source { chart: "web".to_owned(), ..source("Helm", format!("http://{}/stable", repository.host())) };
    let refused = sources.resolve(&source, "latest", "").await.unwrap_err();
    assert_eq!(refused.problems()[0].reason, reason::SOURCE_UNAUTHORIZED);
    source.credentials = [("password".to_owned(), PASSWORD.into())].into();
    let resolve = async |version: &str| sources.resolve(&source, "latest", version).await;
    assert_eq!(
        resolve("").await.unwrap(),
        Resolved { commit: second.1.clone(), subject: "web 1.10.0".to_owned(), ..Resolved::default() }
    );
    assert_eq!(resolve(&format!("1.2.0@{}", first.1)).await.unwrap().commit, first.1);
    let tampered = resolve("2.0.0-rc.1").await.unwrap_err();
    assert!(tampered.problems()[0].message.contains("has the digest"), "{tampered:?}");
    assert_eq!(resolve("3.0.0").await.unwrap_err().problems()[0].reason, reason::VERSION_NOT_FOUND);
    let other = Source { chart: "api".to_owned(), ..source.clone() };
    let missing = sources.resolve(&other, "1.2.0", "").await.unwrap_err();
    assert_eq!(missing.problems()[0].message, "the repository has no chart \"api\"");
    let read = sources.read(&source, &second.1, "").await.unwrap();
    assert_eq!(texts(&read)[1], ("templates/a.yaml", "a: {{ .Values.a }}\n"));
    let other = TempDir::new().unwrap();
    assert_eq!(sources_in(other.path()).read(&source, &second.1, "").await.unwrap(), read);
}
