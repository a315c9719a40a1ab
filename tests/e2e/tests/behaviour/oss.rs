//! Documents in a bucket of OSS, set up with kubectl. What OSS has otherwise than S3 is before a real S3 server.

use std::path::Path;

use serde_json::Value;
use stoa_e2e::fixture::{Organization, condition, config_maps};
use stoa_e2e::{Cluster, Kubectl, Server as _, unique};
use stoa_test_s3::{OssServer, REGION};

use crate::{PATIENCE, backends::contents, secrets::Secrets};

/// Where its key is.
const SYSTEM: &str = "stoa-system";

/// Makes a Backend of type OSS in the bucket `documents`, and the Secret of the same name that it takes the key from; the
/// name.
pub(crate) fn in_oss(organization: &Organization, server: &OssServer, url: &str) -> String {
    let kubectl = Cluster::shared().kubectl();
    let backend = format!("{}-oss", organization.name);
    tell_key(&kubectl, &backend, &server.access_key, &server.secret_key);
    kubectl.apply(&format!(
        "apiVersion: platform.stoa.dev/v1alpha1
kind: Backend
metadata: {{name: {backend}}}
spec:
  type: OSS
  s3: {{bucket: documents, prefix: team/stoa, region: {REGION}, endpoint: \"{url}\", credentialsSecretRef: {{namespace: {SYSTEM}, name: {backend}}}}}
"
    ));
    kubectl.run(&["wait", "--for=condition=Ready", "--timeout=120s", &format!("backend/{backend}")]);
    backend
}

fn tell_key(kubectl: &Kubectl, backend: &str, id: &str, key: &str) {
    kubectl.apply_secret(SYSTEM, backend, &[("accessKey", id), ("secretKey", key)]);
}

/// Config maps with a value, and a Secret.
fn spec(namespace: &str, value: &str, password: &str) -> String {
    config_maps(namespace, 2, value)
        + &format!(
            "- id: v1:Secret:{namespace}:db
  type: Kubernetes
  dependsOn: [\"v1:Namespace:{namespace}\"]
  attributes: {{apiVersion: v1, kind: Secret, metadata: {{name: db, namespace: {namespace}}}, stringData: {{password: {password}}}}}
"
        )
}

/// All that is below a folder of the bucket has nothing of this.
fn not_in_bucket(secrets: &Secrets, folder: &Path, at_least: usize) {
    let kept = contents(folder);
    assert!(kept.len() >= at_least, "{} documents", kept.len());
    for (path, bytes) in kept {
        secrets.not_in(&path.display().to_string(), &bytes);
    }
}

#[test]
fn oss_stores_documents_of_cluster_deployment() {
    let server = OssServer::start("documents");
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = organization.name.as_str();
    let backend = in_oss(&organization, &server, &server.url());
    let namespace = format!("{name}-web");
    organization.keep_in(&backend);
    let passwords = [unique("first"), unique("second")];
    let read = |path: &str| kubectl.raw(&format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{name}/{path}"));
    let run_of = |run: &Value| run["metadata"]["name"].as_str().unwrap().to_owned();
    let is_deployed = |value: &str| {
        let map = kubectl.get(&["configmap/c1", "--namespace", &namespace]);
        assert_eq!(map["data"]["value"], value);
    };

    organization.stack("web", &spec(&namespace, "one", &passwords[0]));
    let preview = run_of(&organization.succeed("web", "Preview", ""));
    assert!(read(&format!("runs/{preview}/plan")).contains("\"Create\""));
    let apply = organization.succeed("web", "Apply", &format!("plan: {preview}"));
    assert_eq!(apply["status"]["release"], 1, "{apply:#}");
    is_deployed("one");
    assert!(read(&format!("runs/{}/log", run_of(&apply))).contains("Succeeded"));

    organization.stack("web", &spec(&namespace, "two", &passwords[1]));
    let second = organization.succeed("web", "Apply", "");
    assert_eq!(second["status"]["release"], 2, "{second:#}");
    is_deployed("two");
    let rollback = organization.succeed("web", "Rollback", "release: 1");
    assert_eq!(rollback["status"]["release"], 3, "{rollback:#}");
    is_deployed("one");

    let secrets = Secrets::of(&[&passwords[0], &passwords[1], &server.secret_key]);
    for (release, value) in [(1, "one"), (2, "two"), (3, "one")] {
        for part in ["spec", "state"] {
            let text = read(&format!("releases/web.{name}.{release}/{part}"));
            assert!(text.contains(value), "{part} of release {release}: {text}");
            secrets.not_in(part, text.as_bytes());
        }
    }
    // Two Specs, three plans, logs and states.
    not_in_bucket(&secrets, &server.bucket("documents").join("team/stoa").join(name), 11);
    let shown = kubectl.run(&["get", "backend", &backend, "--output=yaml", "--show-managed-fields"]);
    secrets.not_in("the Backend", shown.as_bytes());
    organization.succeed("web", "Destroy", "");
}

#[test]
fn run_awaits_valid_oss_key_without_disclosure() {
    let server = OssServer::start("documents");
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = organization.name.as_str();
    let backend = in_oss(&organization, &server, &server.url());
    organization.keep_in(&backend);
    organization.stack("web", &config_maps(&format!("{name}-web"), 2, "first"));

    let wrong = [unique("wrong-id"), unique("wrong-key")];
    let secrets = Secrets::of(&[&wrong[0], &wrong[1], &server.access_key, &server.secret_key]);
    for (id, key, code) in [
        (server.access_key.as_str(), wrong[1].as_str(), "SignatureDoesNotMatch"),
        (&wrong[0], &wrong[1], "InvalidAccessKeyId"),
    ] {
        tell_key(&kubectl, &backend, id, key);
        let told = kubectl.watch("", &format!("backend/{backend}"), PATIENCE, |backend| {
            let ready = condition(backend, "Ready");
            ready["message"].as_str().is_some_and(|message| message.contains(code)).then(|| backend.clone())
        });
        let ready = condition(&told, "Ready");
        assert_eq!((&ready["status"], &ready["reason"]), (&"False".into(), &"AccessDenied".into()), "{told:#}");
        secrets.not_in("the Backend", told.to_string().as_bytes());
    }
    let run = organization.start("web", "Apply", "");
    let waiting = kubectl.watch(name, &format!("run/{run}"), PATIENCE, |run| {
        (condition(run, "Waiting")["status"] == "True").then(|| run.clone())
    });
    let message = condition(&waiting, "Waiting")["message"].clone();
    assert!(message.as_str().is_some_and(|message| message.contains("InvalidAccessKeyId")), "{waiting:#}");
    secrets.not_in("the run", waiting.to_string().as_bytes());

    tell_key(&kubectl, &backend, &server.access_key, &server.secret_key);
    let ended = organization.ended(&run, PATIENCE);
    assert_eq!(ended["status"]["phase"], "Succeeded", "{ended:#}");
    kubectl.run(&["wait", "--for=condition=Ready", "--timeout=120s", &format!("backend/{backend}")]);
    organization.succeed("web", "Destroy", "");
}

#[test]
fn bucket_that_oss_cannot_be_asked_for_is_refused() {
    let kubectl = Cluster::shared().kubectl();
    let backend = |bucket: &str, place: &str| {
        kubectl.create_refused(&format!(
            "apiVersion: platform.stoa.dev/v1alpha1
kind: Backend
metadata: {{name: {name}}}
spec:
  type: OSS
  s3: {{bucket: {bucket}, {place}, credentialsSecretRef: {{namespace: {SYSTEM}, name: oss}}}}
",
            name = unique("oss")
        ))
    };
    for (bucket, place, field, why) in [
        ("team.documents", "region: cn-hangzhou", "bucket", "must not contain '.' when type is OSS"),
        ("documents", "endpoint: \"https://documents.oss.example.com\"", "endpoint", "must not contain the bucket"),
        ("documents", "endpoint: \"https://192.0.2.1\"", "endpoint", "must not be an IP address"),
        ("documents", "region: cn-hangzhou, addressing: Path", "addressing", "must not be Path when type is OSS"),
        (
            "documents",
            "region: cn-hangzhou, addressing: CustomDomain",
            "endpoint",
            "Required value: must be the bucket's domain",
        ),
        ("documents", "region: cn-hangzhou, addressing: Host", "addressing", "Unsupported value: \"Host\""),
    ] {
        let said = backend(bucket, place);
        assert!(said.contains(&format!("spec.s3.{field}")) && said.contains(why), "{said}");
    }
}
