//! Sensitive values are where they are deployed to, and nowhere else in clear.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use stoa_e2e::fixture::{Organization, config_maps};
use stoa_e2e::{Cluster, Kubectl, Server as _, Standalone, eventually, run, unique};

use crate::PATIENCE;

/// What must not be found: texts, and what they are in base64.
pub(crate) struct Secrets(Vec<String>);

impl Secrets {
    pub(crate) fn of(texts: &[&str]) -> Self {
        let encoded = texts.iter().map(|text| STANDARD.encode(text).trim_end_matches('=').to_owned());
        Self(texts.iter().map(|text| (*text).to_owned()).chain(encoded).collect())
    }

    pub(crate) fn not_in(&self, place: &str, bytes: &[u8]) {
        for secret in &self.0 {
            let is_there = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!is_there, "{secret:?} is in {place}");
        }
    }

    /// Looks into every file, and into every object of the control repository, which are compressed.
    fn not_below(&self, folder: &Path) {
        let mut files = Vec::new();
        list(folder, &mut files);
        assert!(files.len() > 10, "there is little in {}", folder.display());
        for file in files {
            // Some go while they are looked for.
            if let Ok(bytes) = fs::read(&file) {
                self.not_in(&file.display().to_string(), &bytes);
            }
        }
        let repository = folder.join("control.git");
        let mut objects = Command::new("git");
        objects.arg("-C").arg(&repository).args(["cat-file", "--batch-all-objects", "--batch"]);
        self.not_in("control.git", &objects.output().unwrap().stdout);
    }
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { list(&path, files) } else { files.push(path) }
    }
}

fn raw(kubectl: &Kubectl, organization: &str, path: &str) -> String {
    kubectl.raw(&format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{organization}/{path}"))
}

/// What `sha256:<hex>` a text has.
fn digest(text: &str) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    let line = run(Command::new("sha256sum").arg(file.path()));
    format!("sha256:{}", line.split_whitespace().next().unwrap())
}

#[test]
fn secret_values_deploy_without_stored_clear_text() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = organization.name.as_str();
    let namespace = format!("{name}-web");
    let passwords = [unique("first"), unique("second")];
    let spec = |password: &str| {
        let secret = format!("v1:Secret:{namespace}:db");
        config_maps(&namespace, 1, "a")
            + &format!(
                "- id: {secret}
  type: Kubernetes
  dependsOn: [\"v1:Namespace:{namespace}\"]
  attributes: {{apiVersion: v1, kind: Secret, metadata: {{name: db, namespace: {namespace}}}, stringData: {{password: {password}, user: db}}}}
- id: v1:Secret:{namespace}:copy
  type: Kubernetes
  dependsOn: [\"v1:Namespace:{namespace}\"]
  attributes:
    apiVersion: v1
    kind: Secret
    metadata: {{name: copy, namespace: {namespace}}}
    stringData:
      whole: $kusion_path.{secret}.stringData.password
      url: pg://app:{password}-own@${{kusion_path.{secret}.stringData.password}}
"
            )
    };
    let deployed = |secret: &str, key: &str| {
        let secret = kubectl.get(&["secret", secret, "--namespace", &namespace]);
        let text = STANDARD.decode(secret["data"][key].as_str().unwrap()).unwrap();
        String::from_utf8(text).unwrap()
    };
    let is_deployed = |password: &str| {
        assert_eq!(deployed("db", "password"), *password);
        assert_eq!(deployed("copy", "whole"), *password);
        assert_eq!(deployed("copy", "url"), format!("pg://app:{password}-own@{password}"));
    };
    let start = |operation: &str, fields: &str| organization.succeed("web", operation, fields);
    let mut runs = Vec::new();
    organization.stack("web", &spec(&passwords[0]));
    runs.push(start("Preview", ""));
    let plan = runs[0]["metadata"]["name"].as_str().unwrap().to_owned();
    runs.push(start("Apply", &format!("plan: {plan}")));
    assert_eq!(runs[0]["status"]["plan"]["digest"], runs[1]["status"]["plan"]["digest"]);
    is_deployed(&passwords[0]);
    // The same Spec is the same document, and nothing has changed.
    runs.push(start("Apply", ""));
    assert_eq!(runs[2]["status"]["source"]["specDigest"], runs[0]["status"]["source"]["specDigest"]);
    assert_eq!(runs[2]["status"]["release"], Value::Null);
    organization.stack("web", &spec(&passwords[1]));
    runs.push(start("Apply", ""));
    is_deployed(&passwords[1]);
    runs.push(start("Rollback", "release: 1"));
    is_deployed(&passwords[0]);

    let secrets = Secrets::of(&[&passwords[0], &passwords[1]]);
    for release in 1..=3 {
        let served = raw(&kubectl, name, &format!("releases/web.{name}.{release}/spec?format=json"));
        assert!(served.contains("$sealed") && served.contains(&format!("$kusion_path.v1:Secret:{namespace}:db")));
        let object = kubectl.get(&["release", &format!("web.{name}.{release}"), "--namespace", name]);
        assert_eq!(object["spec"]["specDigest"], digest(&served), "what is served is what is named");
        let state = raw(&kubectl, name, &format!("releases/web.{name}.{release}/state?format=json"));
        assert!(state.contains(r#"{"$sensitive":"hmac-sha256:"#) && !state.contains(r#"{"$sensitive":"sha256:"#));
        for text in [served, state] {
            secrets.not_in("a document of a release", text.as_bytes());
        }
    }
    for run in &runs {
        secrets.not_in("a run", run.to_string().as_bytes());
        let log = raw(&kubectl, name, &format!("runs/{}/log", run["metadata"]["name"].as_str().unwrap()));
        secrets.not_in("the log of a run", log.as_bytes());
    }
    let generate = format!("/apis/config.stoa.dev/v1alpha1/namespaces/{name}/stacks/web/generate");
    let generated = kubectl.run(&["create", "--raw", &generate, "--filename", "/dev/null"]);
    assert!(generated.contains("(sensitive)"), "{generated}");
    secrets.not_in("what is generated", generated.as_bytes());
    start("Destroy", "");
    secrets.not_below(&cluster.data());
    for log in cluster.logs() {
        secrets.not_in(&log.display().to_string(), &fs::read(&log).unwrap());
    }
}

#[test]
fn key_rotation_succeeds_and_missing_key_fails_run() {
    let mut server = Standalone::start();
    let organization = Organization::create(&server);
    let name = organization.name.clone();
    let token = unique("token");
    // What a workspace of Kusion has among its settings.
    let spec = |value: &str| config_maps("web", 1, value) + &format!("context: {{AWS_SECRET_ACCESS_KEY: {token}}}\n");
    let release = |server: &Standalone, number: usize| {
        raw(&server.kubectl(), &name, &format!("releases/web.{name}.{number}/spec?format=json"))
    };
    organization.stack("web", &spec("a"));
    organization.succeed("web", "Apply", "");
    organization.stack("web", &spec("b"));
    organization.succeed("web", "Apply", "");
    assert!(release(&server, 1).contains("$sealed"));
    Secrets::of(&[&token]).not_below(&server.data());
    Secrets::of(&[&token]).not_in("the server's log", server.log().as_bytes());

    let file = server.data().join("sealing.key");
    let old = fs::read_to_string(&file).unwrap();
    Secrets::of(&[old.trim()]).not_in("the server's log", server.log().as_bytes());
    server.kill();
    fs::write(&file, STANDARD.encode([9; 32])).unwrap();
    server.restart();
    let before = kept(&server);
    let run = organization.ended(&organization.start("web", "Rollback", "release: 1"), PATIENCE);
    let failed = stoa_e2e::fixture::condition(&run, "Failed");
    assert_eq!(failed["reason"], "UnreadableSpec", "{run:#}");
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains("put that key behind the others") && message.contains("Nothing was changed"), "{message}");
    let log = run["status"]["log"].as_str().unwrap().trim_start_matches("sha256:").to_owned();
    let mut after = kept(&server);
    after.retain(|(path, _)| !path.ends_with(&log));
    assert_eq!(after, before, "a document was written besides the run's log");

    // The old key behind the new one: the server finds it by itself.
    fs::write(&file, format!("{}\n{old}", STANDARD.encode([9; 32]))).unwrap();
    eventually("the old key is found", PATIENCE, || {
        let run = organization.ended(&organization.start("web", "Rollback", "release: 1"), PATIENCE);
        (run["status"]["phase"] == "Succeeded").then_some(())
    });
    let key = |text: &str| text.split("\"v1:").nth(1).unwrap().split(':').next().unwrap().to_owned();
    assert_ne!(key(&release(&server, 3)), key(&release(&server, 1)), "it is sealed with the new key");
    // Nothing is left that needs the old one but the releases of before.
    fs::write(&file, STANDARD.encode([9; 32])).unwrap();
    server.kill();
    server.restart();
    assert_eq!(organization.succeed("web", "Apply", "")["status"]["release"], 4);
    organization.succeed("web", "Rollback", "release: 3");
    Secrets::of(&[&token]).not_below(&server.data());
}

/// The documents that are kept, and of what size.
fn kept(server: &Standalone) -> Vec<(PathBuf, u64)> {
    let mut files = Vec::new();
    list(&server.data().join("documents"), &mut files);
    let mut sizes: Vec<_> = files.into_iter().map(|file| (file.clone(), fs::metadata(file).unwrap().len())).collect();
    sizes.sort();
    sizes
}
