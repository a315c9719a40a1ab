//! The packages of a registry, from a server that answers as one.

use std::collections::{BTreeMap, HashMap};
use std::fs;

use bytes::Bytes;
use serde_json::{Value, json};
use stoa_artifacts::{Digest, media};
use stoa_proto::{
    DiscoverRequest, DiscoveredRefs, DiscoveredRevision, FilesRequest, GitPerson, GitRef, PackageFile,
    PushArtifactRequest, PushedArtifact, RemoveArtifactRequest, TakenTag, push_artifact_response::Outcome as Pushed,
    remove_artifact_response::Outcome as Removed,
};
use stoa_test_registry::{Answer, Front, Registry, tar_gz};

use super::*;
use crate::packages::DiscoverJob;

const KPTFILE: (&str, &str) = ("Kptfile", "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\n");
const LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";

/// What a registry has.
#[derive(Default)]
struct State {
    /// Manifests by repository and tag.
    tags: BTreeMap<String, BTreeMap<String, Bytes>>,
    /// Manifests and blobs by digest.
    documents: HashMap<String, Bytes>,
}

/// A registry whose content the test changes.
#[derive(Clone, Default)]
struct FakeRegistry(Arc<Mutex<State>>);

impl FakeRegistry {
    async fn start(&self) -> Front {
        let registry = self.clone();
        Front::start("", move |seen| registry.answer(seen.path.split('?').next().unwrap())).await
    }

    fn answer(&self, path: &str) -> Answer {
        let state = self.0.lock().unwrap();
        let path = path.strip_prefix("/v2/").unwrap();
        let found: Option<Bytes> = if path.is_empty() {
            Some(Bytes::from_static(b"{}"))
        } else if path == "_catalog" {
            let names: Vec<&String> = state.tags.keys().collect();
            Some(json!({ "repositories": names }).to_string().into())
        } else if let Some(repository) = path.strip_suffix("/tags/list") {
            let tags = state.tags.get(repository).map(|tags| tags.keys().collect::<Vec<_>>());
            tags.map(|tags| json!({ "tags": tags }).to_string().into())
        } else if let Some((repository, name)) = path.split_once("/manifests/") {
            let tagged = state.tags.get(repository).and_then(|tags| tags.get(name));
            tagged.or_else(|| state.documents.get(name)).cloned()
        } else {
            path.split_once("/blobs/").and_then(|(_, digest)| state.documents.get(digest)).cloned()
        };
        match found {
            Some(body) => Answer::own(200, &[], body),
            None => Answer::own(404, &[], Bytes::new()),
        }
    }

    fn add(&self, content: Bytes) -> String {
        let digest = Digest::of(&content).to_string();
        self.0.lock().unwrap().documents.insert(digest.clone(), content);
        digest
    }

    /// Gives a tag to a manifest; the digest of the manifest.
    fn tag(&self, repository: &str, tag: &str, manifest: impl Into<Bytes>) -> String {
        let manifest = manifest.into();
        let digest = self.add(manifest.clone());
        let mut state = self.0.lock().unwrap();
        state.tags.entry(repository.to_owned()).or_default().insert(tag.to_owned(), manifest);
        digest
    }

    /// Adds an artifact with these layers, and annotations of its manifest; its digest.
    fn push(&self, repository: &str, tag: &str, layers: &[Bytes], annotations: Value) -> String {
        let descriptor = |kind: &str, content: &Bytes| json!({"mediaType": kind, "digest": self.add(content.clone()), "size": content.len()});
        let layers: Vec<Value> = layers.iter().map(|layer| descriptor(LAYER, layer)).collect();
        let config = descriptor("application/vnd.docker.container.image.v1+json", &Bytes::from_static(b"{}"));
        let manifest = json!({
            "schemaVersion": 2, "mediaType": media::DOCKER_MANIFEST, "config": config, "layers": layers,
            "annotations": annotations,
        });
        self.tag(repository, tag, manifest.to_string())
    }

    fn untag(&self, repository: &str, tag: &str) {
        self.0.lock().unwrap().tags.get_mut(repository).unwrap().remove(tag).unwrap();
    }
}

/// The archive of a folder with these files.
fn archive(files: &[(&str, &str)]) -> Bytes {
    let (folder, archives) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    archive_of(folder.path(), archives.path())
}

fn archive_of(folder: &Path, archives: &Path) -> Bytes {
    let file = archives.join("package.tgz");
    tar_gz(folder, ".", &file);
    fs::read(file).unwrap().into()
}

/// A runner's sources, and the source of a name in a registry.
struct Scene {
    sources: Sources,
    front: Front,
    _caches: TempDir,
}

impl Scene {
    async fn new(registry: &FakeRegistry) -> Self {
        let caches = TempDir::new().unwrap();
        Self { sources: sources_in(caches.path()), front: registry.start().await, _caches: caches }
    }

    fn source(&self, name: &str) -> Source {
        let remote = format!("oci://{}/{name}", self.front.host());
        Source { provider: "OCI".to_owned(), remote, ..Source::default() }
    }

    async fn discover(&self, name: &str, known: &[GitRef]) -> (DiscoveredRefs, Vec<DiscoveredRevision>) {
        let request = DiscoverRequest { known: known.to_vec(), ..DiscoverRequest::default() };
        let page = self.sources.discover(&self.source(name), DiscoverJob::first(request)).await.unwrap();
        (page.refs.unwrap(), page.revisions)
    }
}

/// One line for each revision.
fn table(revisions: &[DiscoveredRevision]) -> Vec<String> {
    let line = |of: &DiscoveredRevision| {
        let problem = of.problem.as_ref().map(|problem| format!(" {}", problem.reason)).unwrap_or_default();
        format!("{}: {} {} {} {}{problem}", of.r#ref, of.package, of.workspace, of.revision, of.lifecycle)
    };
    revisions.iter().map(line).collect()
}

#[tokio::test]
async fn tags_of_a_registry_are_published_revisions() {
    let registry = FakeRegistry::default();
    let web = archive(&[KPTFILE, ("net/map.yaml", "a: 1\n")]);
    let created = json!({"org.opencontainers.image.created": "2026-01-02T03:04:05Z"});
    let first = registry.push("packages/web", "v1", std::slice::from_ref(&web), created);
    registry.push("packages/net/db", "1.2.0", &[archive(&[KPTFILE])], json!({"kpt.dev/revision": "v7"}));
    registry.push("packages/web", "next", std::slice::from_ref(&web), json!({"kpt.dev/lifecycle": "Draft"}));
    registry.push("packages/image", "v1", &[archive(&[("a", "a")]), archive(&[("b", "b")])], json!({}));
    registry.push("other/web", "v1", std::slice::from_ref(&web), json!({}));
    let scene = Scene::new(&registry).await;
    let (refs, revisions) = scene.discover("packages", &[]).await;
    assert_eq!(
        table(&revisions),
        ["refs/tags/packages/net/db/1.2.0: net/db 1.2.0 7 Published", "refs/tags/packages/web/v1: web v1 1 Published",]
    );
    assert_eq!((refs.refs.len(), refs.unchanged), (4, false));
    let found = &revisions[1];
    assert_eq!((found.commit.as_str(), found.ref_commit.as_str()), (first.as_str(), first.as_str()));
    assert_eq!((&found.kptfile[..], found.path.as_str()), (KPTFILE.1.as_bytes(), "packages/web"));
    assert_eq!(found.author.as_ref().unwrap().seconds, 1_767_323_045);

    let request = FilesRequest { commit: first, ..FilesRequest::default() };
    let read = scene.sources.package_files(&scene.source("packages/web"), request).await.unwrap();
    assert_eq!(read.tree.unwrap().tree, found.tree);
    let files: Vec<(&str, &[u8])> = read.files.iter().map(|file| (file.path.as_str(), &file.content[..])).collect();
    assert_eq!(files, [("Kptfile", KPTFILE.1.as_bytes()), ("net/map.yaml", b"a: 1\n".as_slice())]);

    let (same, none) = scene.discover("packages", &refs.refs).await;
    assert!(same.unchanged && none.is_empty());
    // A repository with tags is a package by itself.
    let (_, single) = scene.discover("packages/web", &[]).await;
    assert_eq!(table(&single), ["refs/tags/packages/web/v1: web v1 1 Published"]);
}

#[tokio::test]
async fn only_changed_tags_of_a_registry_are_read() {
    let registry = FakeRegistry::default();
    for tag in ["v1", "v2", "v3"] {
        registry.push("packages/web", tag, &[archive(&[KPTFILE, ("tag", tag)])], json!({}));
    }
    let scene = Scene::new(&registry).await;
    let (before, _) = scene.discover("packages", &[]).await;
    let moved = registry.push("packages/web", "v2", &[archive(&[KPTFILE, ("tag", "moved")])], json!({}));
    registry.untag("packages/web", "v3");
    let (empty, _) = scene.discover("nothing", &[]).await;
    assert!(!empty.unchanged && empty.refs.is_empty(), "a caller removes what it has");
    let (after, revisions) = scene.discover("packages", &before.refs).await;
    assert_eq!(table(&revisions), ["refs/tags/packages/web/v2: web v2 2 Published"]);
    assert_eq!(revisions[0].commit, moved);
    assert_eq!((after.removed_refs, after.refs.len()), (vec!["refs/tags/packages/web/v3".to_owned()], 2));
}

#[tokio::test]
async fn broken_artifact_hides_no_other() {
    let registry = FakeRegistry::default();
    let push = |tag: &str, layer: Bytes| registry.push("packages/web", tag, &[layer], json!({}));
    push("v1", archive(&[KPTFILE]));
    push("v2", archive(&[("web/Kptfile", KPTFILE.1)]));
    push("v3", Bytes::from_static(b"no archive"));
    push("v4", archive(&[("Kptfile", "kind: Other\n")]));
    let (folder, archives) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::write(folder.path().join(KPTFILE.0), KPTFILE.1).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("passwd")).unwrap();
    push("v5", archive_of(folder.path(), archives.path()));
    registry.tag("packages/web", "v6", "<html>");
    let index = json!({"schemaVersion": 2, "mediaType": media::INDEX, "manifests": []});
    registry.tag("packages/web", "v7", index.to_string());
    let scene = Scene::new(&registry).await;
    let (refs, revisions) = scene.discover("packages", &[]).await;
    let expected =
        ["v1", "v2 MissingKptfile", "v3 InvalidManifest", "v4 InvalidKptfile", "v5 InvalidManifest", "v6 InvalidRef"];
    let found: Vec<String> = revisions
        .iter()
        .map(|of| match &of.problem {
            None => of.workspace.clone(),
            Some(problem) => format!("{} {}", of.workspace, problem.reason),
        })
        .collect();
    assert_eq!(found, expected);
    let link = revisions[4].problem.as_ref().unwrap();
    assert!(link.message.contains("a link that leads elsewhere"), "{link:?}");
    let (same, _) = scene.discover("packages", &refs.refs).await;
    assert!(same.unchanged, "broken artifacts are not fetched again");
}

#[tokio::test]
async fn registry_without_a_catalog_needs_the_name_of_a_repository() {
    let registry = FakeRegistry::default();
    registry.push("packages/web", "v1", &[archive(&[KPTFILE])], json!({}));
    let answers = registry.clone();
    let front = Front::start("", move |seen| match seen.path.starts_with("/v2/_catalog") {
        true => Answer::own(405, &[], Bytes::new()),
        false => answers.answer(seen.path.split('?').next().unwrap()),
    })
    .await;
    let caches = TempDir::new().unwrap();
    let scene = Scene { sources: sources_in(caches.path()), front, _caches: caches };
    let job = DiscoverJob::first(DiscoverRequest::default());
    let failure = scene.sources.discover(&scene.source("packages"), job).await.unwrap_err();
    let message = &failure.problems()[0].message;
    assert!(failure.is_not_found() && message.contains("name a repository with tags"), "{message}");
    assert_eq!(scene.discover("packages/web", &[]).await.1.len(), 1);
}

#[tokio::test]
async fn image_of_several_layers_is_a_package() {
    let registry = FakeRegistry::default();
    let base = archive(&[KPTFILE, ("old.yaml", "a: 1\n"), ("net/map.yaml", "a: 1\n"), ("net/gone.yaml", "a: 1\n")]);
    let change = archive(&[("net/map.yaml", "a: 2\n"), ("net/.wh.gone.yaml", ""), (".wh.old.yaml", "")]);
    let annotations = json!({"kpt.dev/revision": "4", "stoa.dev/workspace": "fixes"});
    let digest = registry.push("packages/web", "v4", &[base, change], annotations);
    let scene = Scene::new(&registry).await;
    let (_, revisions) = scene.discover("packages", &[]).await;
    assert_eq!(table(&revisions), ["refs/tags/packages/web/v4: web fixes 4 Published"]);
    let request = FilesRequest { commit: digest, ..FilesRequest::default() };
    let read = scene.sources.package_files(&scene.source("packages/web"), request).await.unwrap();
    let files: Vec<(&str, &[u8])> = read.files.iter().map(|file| (file.path.as_str(), &file.content[..])).collect();
    assert_eq!(files, [("Kptfile", KPTFILE.1.as_bytes()), ("net/map.yaml", b"a: 2\n".as_slice())]);
}

#[tokio::test]
async fn second_tag_of_a_manifest_has_its_own_workspace() {
    let registry = FakeRegistry::default();
    let web = archive(&[KPTFILE]);
    let push = |tag: &str| {
        let annotations = json!({"kpt.dev/revision": "1", "stoa.dev/workspace": "ws"});
        registry.push("packages/web", tag, std::slice::from_ref(&web), annotations)
    };
    assert_eq!(push("v1"), push("latest"), "both tags have one manifest");
    let (_, revisions) = Scene::new(&registry).await.discover("packages", &[]).await;
    assert_eq!(
        table(&revisions),
        ["refs/tags/packages/web/latest: web latest 1 Published", "refs/tags/packages/web/v1: web ws 1 Published"]
    );
}

#[tokio::test]
async fn known_repositories_are_read_without_a_catalog() {
    let registry = FakeRegistry::default();
    registry.push("packages/web", "v1", &[archive(&[KPTFILE])], json!({}));
    let answers = registry.clone();
    let front = Front::start("", move |seen| match seen.path.starts_with("/v2/_catalog") {
        true => Answer::own(403, &[], Bytes::new()),
        false => answers.answer(seen.path.split('?').next().unwrap()),
    })
    .await;
    let caches = TempDir::new().unwrap();
    let scene = Scene { sources: sources_in(caches.path()), front, _caches: caches };
    let paths = ["packages/web", "packages/draft", "other/web"].map(str::to_owned).to_vec();
    let request = DiscoverRequest { paths, ..DiscoverRequest::default() };
    let page = scene.sources.discover(&scene.source("packages"), DiscoverJob::first(request)).await.unwrap();
    assert_eq!(table(&page.revisions), ["refs/tags/packages/web/v1: web v1 1 Published"]);
}

#[tokio::test]
async fn proxy_without_its_registry_removes_no_revision() {
    let front = Front::start("", |_| Answer::own(404, &[], Bytes::new())).await;
    let caches = TempDir::new().unwrap();
    let scene = Scene { sources: sources_in(caches.path()), front, _caches: caches };
    for name in ["packages", "packages/web"] {
        let request = DiscoverRequest { paths: vec!["packages/web".to_owned()], ..DiscoverRequest::default() };
        let failure = scene.sources.discover(&scene.source(name), DiscoverJob::first(request)).await.unwrap_err();
        let problem = &failure.problems()[0];
        assert_eq!(problem.reason, reason::SOURCE_UNAVAILABLE, "{name}: {problem:?}");
        assert!(problem.message.starts_with("no registry answers at 127.0.0.1:"), "{name}: {problem:?}");
    }
}

/// A request for the revision of a workspace with one file besides the Kptfile.
fn push_request(number: i32, workspace: &str, text: &str) -> PushArtifactRequest {
    let file = |(path, text): (&str, &str)| PackageFile {
        path: path.to_owned(),
        content: text.to_owned().into(),
        ..PackageFile::default()
    };
    PushArtifactRequest {
        revision: number,
        workspace: workspace.to_owned(),
        files: [KPTFILE, ("map.yaml", text)].map(file).to_vec(),
        author: Some(GitPerson { name: "ann".to_owned(), email: String::new(), seconds: 1_767_323_045 }),
        ..PushArtifactRequest::default()
    }
}

#[tokio::test]
async fn revision_is_pushed_once_and_removed() {
    if !Registry::is_there() {
        eprintln!("skipped: STOA_TEST_REGISTRY and STOA_TEST_ORAS name no programs");
        return;
    }
    let (server, caches) = (Registry::start(), TempDir::new().unwrap());
    let sources = sources_in(caches.path());
    let source = |name: &str| {
        let remote = format!("oci://{}/{name}", server.host());
        Source { provider: "OCI".to_owned(), remote, ..Source::default() }
    };
    let web = source("packages/web");
    let push =
        async |request: PushArtifactRequest| sources.push_artifact(&web, request).await.unwrap().outcome.unwrap();
    let Pushed::Done(first) = push(push_request(1, "ws", "a: 1\n")).await else { panic!("the tag is taken") };
    assert!(!first.was_done);
    let tag = first.r#ref.clone().unwrap();
    assert_eq!(tag.name, "refs/tags/packages/web/v1");
    // A later approval by somebody else, after a crash.
    let mut again = push_request(1, "ws", "a: 1\n");
    again.author = Some(GitPerson { name: "bob".to_owned(), email: String::new(), seconds: 1_767_400_000 });
    let Pushed::Done(repeated) = push(again).await else { panic!("the tag is taken") };
    assert_eq!(repeated, PushedArtifact { was_done: true, ..first.clone() });
    for (workspace, text) in [("ws", "a: 2\n"), ("other", "a: 1\n")] {
        let taken = push(push_request(1, workspace, text)).await;
        let expected = TakenTag { digest: tag.commit.clone(), workspace: "ws".to_owned() };
        assert_eq!(taken, Pushed::Taken(expected), "{workspace}");
    }
    let job = DiscoverJob::first(DiscoverRequest::default());
    let page = sources.discover(&source("packages"), job).await.unwrap();
    assert_eq!(table(&page.revisions), ["refs/tags/packages/web/v1: web ws 1 Published"]);
    let found = &page.revisions[0];
    assert_eq!((&found.tree, &found.commit), (&first.tree, &tag.commit));
    assert_eq!(found.author.as_ref().unwrap().name, "ann");

    let remove = async |digest: &str| {
        let request = RemoveArtifactRequest {
            tag: "v1".to_owned(),
            digest: digest.to_owned(),
            ..RemoveArtifactRequest::default()
        };
        sources.remove_artifact(&web, &request).await.unwrap().outcome.unwrap()
    };
    assert_eq!(remove(&Digest::of(b"other").to_string()).await, Removed::Moved(tag.commit.clone()));
    for _ in 0..2 {
        assert_eq!(remove(&tag.commit).await, Removed::Removed(true));
    }
    let job = DiscoverJob::first(DiscoverRequest::default());
    assert!(sources.discover(&source("packages"), job).await.unwrap().revisions.is_empty());
}

#[tokio::test]
async fn files_that_no_image_has_are_refused() {
    let registry = FakeRegistry::default();
    let scene = Scene::new(&registry).await;
    for (path, expected) in [("../x", "is no path of a file"), ("net/.wh.map.yaml", "begins with .wh.")] {
        let mut request = push_request(1, "ws", "");
        path.clone_into(&mut request.files[1].path);
        let failure = scene.sources.push_artifact(&scene.source("packages/web"), request).await.unwrap_err();
        let message = &failure.problems()[0].message;
        assert!(message.contains(expected), "{message}");
    }
    let git = Source { provider: "Git".to_owned(), ..Source::default() };
    assert!(scene.sources.push_artifact(&git, push_request(1, "ws", "")).await.is_err());
}

/// A front of a registry that answers the deletion of the tag `v1` with a status, and is asked for the manifest before.
async fn without_deletion(registry: &FakeRegistry, status: u16) -> Scene {
    let answers = registry.clone();
    // A front sees no method, so the second question for the manifest is the deletion.
    let asked = Mutex::new(0);
    let front = Front::start("", move |seen| {
        let is_manifest = seen.path.contains("/manifests/v1");
        *asked.lock().unwrap() += usize::from(is_manifest);
        let body = r#"{"errors": [{"message": "deletion is disabled"}]}"#;
        match is_manifest && *asked.lock().unwrap() == 2 {
            true => Answer::own(status, &[], body),
            false if seen.path.contains("/manifests/sha256") => Answer::own(405, &[], body),
            false => answers.answer(seen.path.split('?').next().unwrap()),
        }
    })
    .await;
    let caches = TempDir::new().unwrap();
    Scene { sources: sources_in(caches.path()), front, _caches: caches }
}

#[tokio::test]
async fn registry_that_removes_nothing_says_so() {
    // The last one is of a registry that knows no tags there.
    for status in [405, 400, 404] {
        let registry = FakeRegistry::default();
        let digest = registry.push("packages/web", "v1", &[archive(&[KPTFILE])], json!({}));
        let scene = without_deletion(&registry, status).await;
        let request = RemoveArtifactRequest { tag: "v1".to_owned(), digest, ..RemoveArtifactRequest::default() };
        let removed = scene.sources.remove_artifact(&scene.source("packages/web"), &request).await.unwrap();
        let Some(Removed::Refused(why)) = removed.outcome else { panic!("{status}: {removed:?}") };
        assert!(why.contains("405: deletion is disabled"), "{status}: {why}");
    }
}

#[tokio::test]
async fn manifest_with_countless_tags_is_not_removed() {
    let registry = FakeRegistry::default();
    let digest = registry.push("packages/web", "v1", &[archive(&[KPTFILE])], json!({}));
    for number in 0..2001 {
        registry.tag("packages/web", &format!("next-{number}"), "{}");
    }
    let scene = without_deletion(&registry, 405).await;
    let request = RemoveArtifactRequest { tag: "v1".to_owned(), digest, ..RemoveArtifactRequest::default() };
    let failure = scene.sources.remove_artifact(&scene.source("packages/web"), &request).await.unwrap_err();
    let problem = &failure.problems()[0];
    assert_eq!(problem.reason, reason::TOO_LARGE, "{problem:?}");
    let seen = scene.front.seen();
    assert!(seen.iter().all(|it| !it.path.contains("/manifests/next") && !it.path.contains("/manifests/sha256")));
}

#[tokio::test]
async fn name_that_git_refuses_breaks_no_other_package() {
    let registry = FakeRegistry::default();
    // A name of Git's own folder on Windows.
    let wrong = archive(&[KPTFILE, ("git~1/config", "")]);
    registry.push("packages/one", "v1", std::slice::from_ref(&wrong), json!({}));
    registry.push("packages/several", "v1", &[archive(&[KPTFILE]), wrong], json!({"kpt.dev/revision": "1"}));
    registry.push("packages/web", "v1", &[archive(&[KPTFILE])], json!({}));
    let (_, revisions) = Scene::new(&registry).await.discover("packages", &[]).await;
    assert_eq!(
        table(&revisions),
        [
            "refs/tags/packages/one/v1: one v1 1 Published InvalidManifest",
            "refs/tags/packages/several/v1: several v1 1 Published InvalidManifest",
            "refs/tags/packages/web/v1: web v1 1 Published",
        ]
    );
    let message = &revisions[0].problem.as_ref().unwrap().message;
    assert!(message.contains("git~1/config") && message.contains("Git refuses"), "{message}");
}
