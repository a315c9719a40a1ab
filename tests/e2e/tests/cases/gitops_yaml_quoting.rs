//! Case `gitops-yaml-quoting`.
//!
//! Reports: kcl-lang/kcl#2013, cdk8s-team/cdk8s-core#1230.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use stoa_e2e::git;

use crate::harness::Case;

/// What kubectl reads in a file, without the mark of the deployment.
fn read(case: &Case, file: &Path) -> Value {
    let file = file.to_str().unwrap();
    let create = ["create", "--dry-run=client", "--validate=false", "--output=json", "--filename", file];
    let mut object: Value = serde_json::from_str(&case.kubectl().run(&create)).unwrap();
    let metadata = object["metadata"].as_object_mut().unwrap();
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({})).as_object_mut().unwrap();
    annotations.retain(|key, _| !key.starts_with("stoa.dev/"));
    object
}

#[test]
fn committed_files_say_to_kubectl_what_their_source_says() {
    let case = Case::new("gitops-yaml-quoting");
    let organization = &case.organization;
    let repository = format!("file://{}", organization.deploy.display());
    let gitops = json!({"repository": repository, "branch": "main", "createBranch": true});
    let patch = json!({"spec": {"kubernetes": null, "gitops": gitops}}).to_string();
    let workspace = ["patch", "workspace.platform.stoa.dev", &organization.name, "--type=merge", "--patch", &patch];
    case.kubectl().run(&workspace);
    case.apply("source");
    case.assert_settled();

    let namespace = case.input("source/namespace.json");
    case.prepare("source/namespace.json");
    let sources = ["namespace", "texts", "web"].map(|name| read(&case, &case.input(&format!("source/{name}.json"))));
    let committed = git(&organization.deploy, &["ls-tree", "-r", "--name-only", "main"]);
    let folder = tempfile::tempdir().unwrap();
    let mut found = Vec::new();
    for path in committed.lines() {
        let file = folder.path().join(path.replace('/', "_"));
        fs::write(&file, git(&organization.deploy, &["show", &format!("main:{path}")])).unwrap();
        found.push(read(&case, &file));
        case.kubectl().run(&["apply", "--dry-run=server", "--filename", file.to_str().unwrap()]);
    }
    let key = |object: &Value| object["kind"].as_str().unwrap().to_owned();
    found.sort_by_key(key);
    let mut sources = sources.to_vec();
    sources.sort_by_key(key);
    assert_eq!(found, sources);
    case.destroy();
    case.kubectl().run(&["delete", "--filename", namespace.to_str().unwrap()]);
}
