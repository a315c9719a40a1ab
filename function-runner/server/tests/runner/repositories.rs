//! GitOps repositories behind servers, which processes of their own reach.

use serde_json::json;
use stoa_git::testing::{Behaviour, GitServer};
use stoa_pki::{CertificateAuthority, CertificateRequest};
use stoa_proto::Summary;
use tonic::Code;

use crate::bed::{Bed, Origin, problem};
use crate::caller::Caller;
use crate::delivery::Scene;
use crate::grants::{ACKED, at_a_server_with};
use crate::sources::{PATIENCE, endless};

/// A runner and a source, and a workspace that leads to a repository.
async fn scene(bed: Bed, repository: &str) -> Scene {
    let origin = Origin::new(&bed.path("origin"));
    let deploy = bed.path("git/deploy.git");
    let workspace = json!({"gitops": {
        "repository": repository, "branch": "main", "createBranch": true, "directory": "dev", "mode": "Commit"
    }});
    let caller = Caller::new(bed.client().await, &workspace);
    Scene { bed, origin, deploy, caller }
}

#[tokio::test(flavor = "multi_thread")]
async fn stack_is_delivered_to_a_server() {
    let bed = Bed::start();
    let repository = git2::Repository::init_opts(
        bed.path("git/deploy.git"),
        git2::RepositoryInitOptions::new().bare(true).mkpath(true).initial_head("main"),
    );
    repository.unwrap().config().unwrap().set_bool("http.receivepack", true).unwrap();
    let authority = CertificateAuthority::new("git test").unwrap();
    let issued = authority.issue(&CertificateRequest::server("git").loopback()).unwrap();
    let tls = (issued.certificate_pem.as_str(), issued.key_pem.as_str());
    let server = GitServer::start(&bed.path("git"), "s3cr3t", Some(tls)).await;
    let mut scene = scene(bed, &server.url("https", "deploy.git")).await;
    let credentials = &mut scene.caller.target.workspace.as_mut().unwrap().credentials;
    for (key, value) in [("username", "bot"), ("password", "s3cr3t"), ("ca.crt", authority.certificate_pem())] {
        credentials.insert(key.to_owned(), value.as_bytes().to_vec().into());
    }

    let spec = scene.spec(1).await;
    let plan = scene.caller.plan(&spec, false).await.unwrap();
    let applied = scene.caller.apply(&spec, &plan).await;
    assert!(applied.finished().succeeded, "{applied:?}");
    assert_eq!(scene.commits(), std::slice::from_ref(&applied.finished().gitops_commit));
    assert!(scene.delivered().iter().any(|text| text.contains("replicas: 1")));
    scene.caller.next_run("web-dev-2");
    let again = scene.caller.plan(&spec, false).await.unwrap();
    assert_eq!(again.summary, Some(Summary { unchanged: 3, ..Summary::default() }), "{}", again.table);

    server.set_password("another");
    let (code, told) = problem(&scene.caller.plan(&spec, false).await.unwrap_err());
    assert_eq!((code, told.field.as_str()), (Code::InvalidArgument, "spec.gitops.repository"));
    assert!(told.message.contains("refuses the credentials") && !told.message.contains("s3cr3t"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_refs_of_a_repository_use_no_runner_memory() {
    let bed = Bed::start_with(&["--workers=1", "--source-memory-mib=96"]);
    let mut scene = scene(bed, &endless()).await;
    let spec = scene.spec(1).await;
    let before = scene.bed.most_memory();
    let refused = tokio::time::timeout(PATIENCE, scene.caller.plan(&spec, false)).await.unwrap();
    let (code, told) = problem(&refused.unwrap_err());
    assert_eq!((code, told.field.as_str()), (Code::InvalidArgument, "spec.gitops.repository"), "{told:?}");
    assert!(told.message.contains("memory"), "{told:?}");
    let more = scene.bed.most_memory() - before;
    assert!(more < 64 << 20, "{} MiB more in the runner", more >> 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn push_with_an_oversized_answer_is_found() {
    let (mut scene, server, spec, plan) = at_a_server_with(&["--source-memory-mib=96"]).await;
    scene.caller.lease = ACKED;
    server.behave(Behaviour::Endless);
    let applied = scene.caller.apply(&spec, &plan).await;
    assert!(applied.finished().succeeded, "{applied:?}");
    assert_eq!(scene.commits(), std::slice::from_ref(&applied.finished().gitops_commit));
    assert_eq!(server.pushes(), 1, "it was looked for, and not pushed anew");
}
