//! Working copies as archives: rendered like a commit, within limits, and removed afterwards.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use prost::bytes::Bytes;
use serde_json::Value;
use stoa_proto::{GenerateRequest, GenerateResponse};
use tonic::{Code, Response, Status};

use crate::bed::{Bed, problem};

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\ndata: {a: b}\n";

/// The archive of a folder.
fn archive(folder: &Path, arguments: &[&str]) -> Bytes {
    let output = Command::new("tar").arg("-C").arg(folder).args(arguments).arg(".").output().unwrap();
    assert!(output.status.success());
    output.stdout.into()
}

async fn generate(bed: &Bed, archive: Bytes, path: &str) -> Result<GenerateResponse, Status> {
    let (path, organization) = (path.to_owned(), "shop".to_owned());
    let request = GenerateRequest { archive, path, organization, ..GenerateRequest::default() };
    bed.client().await.generate(request).await.map(Response::into_inner)
}

/// How many caches and trees there are.
fn folders_of_sources(bed: &Bed) -> usize {
    let folders =
        |folder: &Path| std::fs::read_dir(folder).map(|found| found.flatten().collect::<Vec<_>>()).unwrap_or_default();
    let kinds = folders(&bed.path("cache"));
    let is_of_sources = |name: &str| name == "git" || name.starts_with("trees-");
    kinds
        .iter()
        .filter(|kind| kind.file_name().to_str().is_some_and(is_of_sources))
        .map(|kind| folders(&kind.path()).len())
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn working_copy_is_rendered_and_removed() {
    let bed = Bed::start();
    let copy = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(copy.path().join("apps/web")).unwrap();
    std::fs::create_dir_all(copy.path().join(".git")).unwrap();
    std::fs::write(copy.path().join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    std::fs::write(copy.path().join("apps/web/a.yaml"), MAP).unwrap();
    for arguments in [["-c"].as_slice(), &["-c", "-z"]] {
        let response = generate(&bed, archive(copy.path(), arguments), "apps/web").await.unwrap();
        let spec: Value = serde_json::from_slice(&response.spec).unwrap();
        assert_eq!(spec["resources"][0]["id"], "v1:ConfigMap:shop:a");
        assert_eq!(spec["resources"][0]["extensions"]["stoa.dev/file"], "apps/web/a.yaml");
    }
    let missing = generate(&bed, archive(copy.path(), &["-c"]), "apps/other").await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound, "{missing:?}");
    let start = Instant::now();
    while folders_of_sources(&bed) > 0 {
        assert!(start.elapsed() < Duration::from_secs(30), "something stays of a working copy");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn archives_that_lead_out_are_rejected() {
    let bed = Bed::start();
    let copy = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("../../etc/passwd", copy.path().join("a.yaml")).unwrap();
    for (archive, says) in [
        (archive(copy.path(), &["-c"]), "is a link that leads elsewhere"),
        (Bytes::from_static(b"\x1f\x8bnothing"), "the archive is damaged"),
        (Bytes::from_static(b"nothing"), "the archive is damaged"),
    ] {
        let status = generate(&bed, archive, "").await.unwrap_err();
        let (code, found) = problem(&status);
        assert!(code == Code::InvalidArgument && found.message.contains(says), "{found:?}");
    }
}
