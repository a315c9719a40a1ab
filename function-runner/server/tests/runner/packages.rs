//! Package repositories and functions, by the processes of a runner in their sandboxes.

use std::collections::HashMap;
use std::time::Duration;

use stoa_git::testing::{Behaviour, GitServer};
use stoa_pki::{CertificateAuthority, CertificateRequest};
use stoa_proto::evaluator::EvaluateFunctionRequest;
use stoa_proto::evaluator::function_evaluator_client::FunctionEvaluatorClient;
use stoa_proto::packages_client::PackagesClient;
use stoa_proto::{
    CommitRef, DiscoverRequest, DiscoveredRefs, DiscoveredRevision, FilesRequest, FolderFiles, GitPerson, GitRef,
    NewCommit, PackageFile, PushRequest, PushResponse, RefUpdate, Source, commit_ref, new_commit, push_response,
    ref_update,
};
use stoa_test_registry::Registry;
use tempfile::TempDir;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::bed::{Bed, problem};
use crate::caller::git;

const MAIN: &str = "refs/heads/main";
const DRAFT: &str = "refs/heads/drafts/web/ws";
const KPTFILE: &str = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\n";

struct Scene {
    bed: Bed,
    client: PackagesClient<Channel>,
    source: Source,
}

impl Scene {
    /// A runner, and an empty repository at a path.
    async fn new() -> Self {
        let bed = Bed::start();
        let path = bed.path("git/a.git");
        git2::Repository::init_bare(&path).unwrap();
        let client = PackagesClient::new(bed.channel().await);
        let source = git(&format!("file://{}", path.display()));
        Self { bed, client, source }
    }

    async fn discover(&mut self, known: Vec<GitRef>) -> Result<(DiscoveredRefs, Vec<DiscoveredRevision>), Status> {
        let (source, branch) = (Some(self.source.clone()), "main".to_owned());
        let request = DiscoverRequest { source, branch, known, ..DiscoverRequest::default() };
        let mut messages = self.client.discover(request).await?.into_inner();
        let head = messages.message().await?.unwrap().refs.unwrap();
        let mut revisions = Vec::new();
        while let Some(message) = messages.message().await? {
            revisions.extend(message.revisions);
        }
        Ok((head, revisions))
    }

    /// A commit with a package, to which a ref moves.
    async fn push(&mut self, name: &str, from: (&str, &[&str]), yaml: &str) -> Result<PushResponse, Status> {
        let request = self.request(name, from, yaml);
        Ok(self.client.push(request).await?.into_inner())
    }

    fn request(&self, name: &str, (expected, to): (&str, &[&str]), yaml: &str) -> PushRequest {
        let file = |path: &str, text: &str| PackageFile {
            path: path.to_owned(),
            content: text.as_bytes().to_vec().into(),
            ..PackageFile::default()
        };
        let files = vec![file("Kptfile", KPTFILE), file("cm.yaml", yaml)];
        let person = GitPerson { name: "Ada".to_owned(), email: "ada@example.com".to_owned(), seconds: 1_700_000_000 };
        let id = |id: &&str| CommitRef { commit: Some(commit_ref::Commit::Id((*id).to_owned())) };
        let commit = NewCommit {
            parents: to.iter().map(id).collect(),
            message: "m".to_owned(),
            author: Some(person),
            committer: None,
            path: "web".to_owned(),
            change: Some(new_commit::Change::Files(FolderFiles { files, ..FolderFiles::default() })),
        };
        let target = ref_update::Target::Commit(CommitRef { commit: Some(commit_ref::Commit::NewCommit(0)) });
        let update = RefUpdate { name: name.to_owned(), expected: expected.to_owned(), target: Some(target) };
        PushRequest { source: Some(self.source.clone()), commits: vec![commit], updates: vec![update] }
    }

    async fn check(&mut self) {
        let first = self.push(MAIN, ("", &[]), "a: 1\n").await.unwrap();
        assert!(matches!(first.outcome, Some(push_response::Outcome::Done(_))), "{first:?}");
        let main = first.commits[0].commit.clone();
        let draft = self.push(DRAFT, ("", &[&main]), "a: 2\n").await.unwrap();
        let (refs, revisions) = self.discover(Vec::new()).await.unwrap();
        assert_eq!((refs.branch_commit.as_str(), refs.refs.len()), (main.as_str(), 2));
        let found: HashMap<&str, &str> =
            revisions.iter().map(|of| (of.lifecycle.as_str(), of.commit.as_str())).collect();
        let expected = [("Published", main.as_str()), ("Draft", draft.commits[0].commit.as_str())];
        assert_eq!(found, expected.into());
        let (same, none) = self.discover(refs.refs).await.unwrap();
        assert!(same.unchanged && none.is_empty());
        let commit = draft.commits[0].commit.clone();
        let request = FilesRequest {
            source: Some(self.source.clone()),
            commit,
            path: "web".to_owned(),
            ..FilesRequest::default()
        };
        let mut messages = self.client.files(request).await.unwrap().into_inner();
        let tree = messages.message().await.unwrap().unwrap().tree.unwrap();
        assert_eq!((tree.tree, tree.files), (draft.commits[0].tree.clone(), 2));
        let files = messages.message().await.unwrap().unwrap().files;
        assert_eq!((files[1].path.as_str(), &files[1].content[..]), ("cm.yaml", b"a: 2\n".as_slice()));
        let stale = self.push(MAIN, (&"1".repeat(40), &[&main]), "a: 3\n").await.unwrap();
        let Some(push_response::Outcome::Conflict(conflict)) = stale.outcome else { panic!("{stale:?}") };
        assert_eq!(conflict.refs[0].actual, main);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn package_is_pushed_to_a_folder() {
    Scene::new().await.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn package_of_a_registry_is_listed_and_read() {
    if !Registry::is_there() {
        eprintln!("skipped: STOA_TEST_REGISTRY or STOA_TEST_ORAS is not set");
        return;
    }
    let bed = Bed::start();
    let (registry, files) = (Registry::start(), TempDir::new().unwrap());
    std::fs::write(files.path().join("Kptfile"), KPTFILE).unwrap();
    let digest = registry.push_flux("packages/web:v3", files.path());
    let of = |name: &str| Source {
        provider: "OCI".to_owned(),
        remote: format!("oci://{}/{name}", registry.host()),
        organization: "shop".to_owned(),
        ..Source::default()
    };
    let mut client = PackagesClient::new(bed.channel().await);
    let request = DiscoverRequest { source: Some(of("packages")), ..DiscoverRequest::default() };
    let mut messages = client.discover(request).await.unwrap().into_inner();
    let refs = messages.message().await.unwrap().unwrap().refs.unwrap().refs;
    assert_eq!(refs, [GitRef { name: "refs/tags/packages/web/v3".to_owned(), commit: digest.clone() }]);
    let revisions = messages.message().await.unwrap().unwrap().revisions;
    let [web] = &revisions[..] else { panic!("{revisions:?}") };
    assert_eq!((web.package.as_str(), web.revision, &web.kptfile[..]), ("web", 3, KPTFILE.as_bytes()));
    let request = FilesRequest { source: Some(of("packages/web")), commit: digest, ..FilesRequest::default() };
    let mut messages = client.files(request).await.unwrap().into_inner();
    let tree = messages.message().await.unwrap().unwrap().tree.unwrap();
    assert_eq!((tree.tree, tree.files), (web.tree.clone(), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn package_is_pushed_over_https() {
    let mut scene = Scene::new().await;
    let authority = CertificateAuthority::new("git test").unwrap();
    let issued = authority.issue(&CertificateRequest::server("git").loopback()).unwrap();
    let tls = (issued.certificate_pem.as_str(), issued.key_pem.as_str());
    let server = GitServer::start(&scene.bed.path("git"), "correct horse", Some(tls)).await;
    let with = |password: &str| {
        let values = [("username", "bot"), ("password", password), ("ca.crt", authority.certificate_pem())];
        let values = values.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec().into()));
        Source { credentials: values.into(), ..git(&server.url("https", "a.git")) }
    };
    scene.source = with("wrong password");
    let refused = scene.push(MAIN, ("", &[]), "a: 1\n").await.unwrap_err();
    let (code, problem) = problem(&refused);
    assert_eq!((code, problem.reason.as_str()), (Code::InvalidArgument, "SourceUnauthorized"), "{problem:?}");
    assert!(!refused.message().contains("wrong password"), "{refused}");
    scene.source = with("correct horse");
    scene.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn built_in_function_is_evaluated_in_a_worker() {
    let bed = Bed::start();
    let mut client = FunctionEvaluatorClient::new(bed.channel().await);
    let list = "apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  \
                metadata:\n    name: a # ours\nfunctionConfig:\n  apiVersion: v1\n  kind: ConfigMap\n  metadata:\n    \
                name: function-input\n  data:\n    namespace: prod\n";
    let mut run = async |image: &str, list: &str| {
        let resource_list = list.as_bytes().to_vec().into();
        client.evaluate_function(EvaluateFunctionRequest { resource_list, image: image.to_owned() }).await
    };
    let image = "ghcr.io/kptdev/krm-functions-catalog/set-namespace:v0.4.1";
    let answer = run(image, list).await.unwrap().into_inner();
    let text = String::from_utf8(answer.resource_list.to_vec()).unwrap();
    assert!(text.contains("namespace: prod\n") && text.contains("name: a # ours\n"), "{text}");
    assert_eq!(run("example.com/own:v1", list).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(run(image, "a: [").await.unwrap_err().code(), Code::InvalidArgument);
    let failed = run(image, &list.replace("    namespace: prod\n", "")).await.unwrap_err();
    assert_eq!(failed.code(), Code::FailedPrecondition, "{failed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_or_unanswered_push_is_repeated() {
    let mut scene = Scene::new().await;
    let server = GitServer::start(&scene.bed.path("git"), "correct horse", None).await;
    let credentials = [("username", "bot"), ("password", "correct horse")];
    let credentials = credentials.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec().into())).into();
    scene.source = Source { credentials, ..git(&server.url("http", "a.git")) };
    server.behave(Behaviour::HeldPacks);
    let remote = git2::Repository::open_bare(scene.bed.path("git/a.git")).unwrap();
    let kill = async {
        while server.packs() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let workers = scene.bed.workers();
        for process in scene.bed.children().into_iter().filter(|process| !workers.contains(process)) {
            let killed = std::process::Command::new("kill").args(["-s", "KILL", &process.to_string()]).status();
            assert!(killed.unwrap().success());
        }
    };
    let mut client = scene.client.clone();
    let (pushed, ()) = tokio::join!(client.push(scene.request(MAIN, ("", &[]), "a: 1\n")), kill);
    assert_eq!(pushed.unwrap_err().code(), Code::Unavailable);
    assert!(remote.refname_to_id(MAIN).is_err());
    // The server may still read what the process had sent.
    server.behave(Behaviour::Normal);
    let repeated = scene.push(MAIN, ("", &[]), "a: 1\n").await.unwrap();
    assert!(matches!(repeated.outcome, Some(push_response::Outcome::Done(_))), "{repeated:?}");
    let main = repeated.commits[0].commit.clone();
    assert_eq!(remote.refname_to_id(MAIN).unwrap().to_string(), main);

    // It arrives, and nobody hears of it.
    server.behave(Behaviour::Mute);
    let unanswered = scene.push(DRAFT, ("", &[&main]), "a: 2\n").await.unwrap_err();
    assert_eq!(unanswered.code(), Code::Unavailable, "{unanswered}");
    let arrived = remote.refname_to_id(DRAFT).unwrap().to_string();
    server.behave(Behaviour::Normal);
    let repeated = scene.push(DRAFT, ("", &[&main]), "a: 2\n").await.unwrap();
    assert_eq!(repeated.commits[0].commit, arrived);
    assert!(matches!(repeated.outcome, Some(push_response::Outcome::Done(done)) if done.was_done));
}
