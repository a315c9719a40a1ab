//! Documents in directories and in a bucket of a real S3 server, set up with kubectl.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use stoa_e2e::fixture::{Organization, config_maps, workspace};
use stoa_e2e::{Cluster, Kubectl, Server as _, Standalone, run};
use stoa_test_s3::{REGION, S3Server};

/// The documents below a folder, by their paths.
pub(crate) fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let of = |path: PathBuf| match path.is_dir() {
        true => contents(&path),
        false => BTreeMap::from([(path.clone(), fs::read(path).unwrap())]),
    };
    entries.flat_map(|entry| of(entry.path())).collect()
}

/// How many documents are below a folder.
fn documents(folder: &Path) -> usize {
    contents(folder).len()
}

fn state(kubectl: &Kubectl, organization: &str, release: &str) -> String {
    let path = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{organization}/releases/{release}/state");
    kubectl.raw(&path)
}

/// Makes a Backend in the bucket `documents`, which is reached at this URL; its name.
pub(crate) fn in_bucket(organization: &Organization, bucket: &S3Server, url: &str) -> String {
    create(&Cluster::shared().kubectl(), organization, bucket, &format!("endpoint: \"{url}\""))
}

/// Makes a Backend in the bucket `documents`, with these other fields of its `s3`, as in YAML; its name.
fn create(kubectl: &Kubectl, organization: &Organization, bucket: &S3Server, fields: &str) -> String {
    let backend = format!("{}-s3", organization.name);
    kubectl.create(&format!(
        "apiVersion: platform.stoa.dev/v1alpha1
kind: Backend
metadata: {{name: {backend}}}
spec:
  type: S3
  s3: {{bucket: documents, region: {REGION}, {fields}}}
  accessKey: {id}
  secretKey: {key}
",
        id = bucket.access_key,
        key = bucket.secret_key
    ));
    kubectl.run(&["wait", "--for=condition=Ready", "--timeout=120s", &format!("backend/{backend}")]);
    backend
}

#[test]
fn bucket_stores_documents_of_cluster_deployment() {
    let bucket = S3Server::start("documents");
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = organization.name.as_str();
    let backend = in_bucket(&organization, &bucket, &bucket.url());
    organization.stack("web", &config_maps(&format!("{name}-web"), 2, "first"));
    organization.keep_in(&backend);
    let run = organization.succeed("web", "Apply", "");
    let map = kubectl.get(&["configmap/c1", "--namespace", &format!("{name}-web")]);
    assert_eq!(map["data"]["value"], "first");
    assert!(state(&kubectl, name, &format!("web.{name}.1")).contains("first"));
    let kept = documents(&bucket.bucket("documents").join(name));
    assert!(kept >= 4, "a Spec, a plan, a log and a state, not {kept}");
    let run = run["metadata"]["name"].as_str().unwrap();
    for (what, says) in [("plan", "\"Create\""), ("log", "Succeeded")] {
        let path = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{name}/runs/{run}/{what}");
        assert!(kubectl.raw(&path).contains(says));
    }
    organization.succeed("web", "Destroy", "");
}

#[test]
fn bucket_stores_documents_and_secret_stores_keys() {
    let mut bucket = S3Server::start("documents");
    let server = Standalone::start();
    let kubectl = server.kubectl();
    let organization = Organization::create(&server);
    let name = organization.name.as_str();
    let fields = format!("prefix: team, endpoint: \"{}\"", bucket.url());
    let backend = create(&kubectl, &organization, &bucket, &fields);
    kubectl.apply(&workspace(&backend, &backend, &server.target(&organization.deploy)));
    kubectl.apply(&format!(
        "apiVersion: config.stoa.dev/v1alpha1
kind: Stack
metadata: {{name: web, namespace: {name}}}
spec: {{project: {name}, workspaces: [{backend}]}}
"
    ));
    let namespace = format!("{name}-web");
    organization.source.commit("apps/web/spec.yaml", &config_maps(&namespace, 2, "first"));
    assert_eq!(organization.succeed("web", "Apply", "")["status"]["release"], 1);
    let kept = documents(&bucket.bucket("documents").join("team").join(name));
    assert!(kept >= 3, "a Spec, a plan and a state, not {kept}");
    // Of the Backend that the organization came with there is what shows that it works.
    assert_eq!(documents(&server.data().join("documents").join(name).join(name)), 0);
    let release = |number: usize| {
        let releases = organization.of_stack("releases", "web");
        let found = releases.iter().find(|release| release["spec"]["revision"] == number).unwrap();
        found["metadata"]["name"].as_str().unwrap().to_owned()
    };
    assert!(state(&kubectl, name, &release(1)).contains("first"));

    // The key is exchanged, first at the service and then in the Secret.
    let first = bucket.secret_key.clone();
    bucket.exchange_key("second-key", "second-secret-of-the-tests");
    let keys = [("accessKey", &*bucket.access_key), ("secretKey", &*bucket.secret_key)];
    kubectl.apply_secret("stoa-system", &format!("backend-{backend}"), &keys);
    organization.source.commit("apps/web/spec.yaml", &config_maps(&namespace, 2, "second"));
    assert_eq!(organization.succeed("web", "Apply", "")["status"]["release"], 2);
    assert!(state(&kubectl, name, &release(1)).contains("first"));
    assert!(state(&kubectl, name, &release(2)).contains("second"));

    let shown = kubectl.run(&["get", "backend", &backend, "--output=yaml", "--show-managed-fields"]);
    assert!(shown.contains(&format!("name: backend-{backend}")), "{shown}");
    let control = server.data().join("control.git");
    let mut objects = Command::new("git");
    let history = run(objects.arg("-C").arg(&control).args(["log", "--all", "--patch", "--", "platform"]));
    assert!(history.contains(&format!("backend-{backend}")), "{history}");
    for (place, text) in [("the Backend", shown), ("the control repository", history), ("the log", server.log())] {
        for key in [&first, &bucket.secret_key] {
            let is_there = text.contains(key.as_str()) || text.contains(&STANDARD.encode(key));
            assert!(!is_there, "{key} is in {place}");
        }
    }
}

#[test]
fn server_reports_damaged_documents_without_overwriting_them() {
    let server = Standalone::shared();
    let organization = Organization::create(&*server);
    let name = organization.name.as_str();
    organization.stack("web", &config_maps("web", 2, "first"));
    organization.succeed("web", "Apply", "");
    organization.stack("web", &config_maps("web", 2, "second"));
    organization.succeed("web", "Apply", "");
    let folder = server.data().join("documents").join(name);
    let whole = contents(&folder);
    let damaged: BTreeMap<_, _> = whole.iter().map(|(path, bytes)| (path, bytes[..bytes.len() / 2].to_vec())).collect();
    damaged.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    let said = organization.fail("web", "Rollback", "release: 1");
    assert!(said.contains("is corrupt") && said.contains("Restore the document"), "{said}");
    for (path, bytes) in damaged {
        assert_eq!(fs::read(path).unwrap(), bytes, "{} was overwritten", path.display());
    }
    whole.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    organization.succeed("web", "Rollback", "release: 1");
}
