//! A cluster that is asked and does not answer: what was asked of it may have been done.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use stoa_e2e::fixture::Organization;
use stoa_e2e::{Cluster, Kubectl, Proxy, Server as _};

/// The end of a request that is no dry run of an apply.
const APPLY: &str = "fieldValidation=Strict HTTP/1.1";

/// The cluster without TLS, by `kubectl proxy`, so that what stands before it can tell requests apart.
struct InClear {
    kubectl: Child,
    way: Proxy,
}

impl Drop for InClear {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
    }
}

impl InClear {
    fn start(kubectl: &Kubectl) -> Self {
        let mut kubectl = kubectl.command(&["proxy", "--port=0"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(kubectl.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        let port = said.trim().rsplit_once(':').unwrap_or_else(|| panic!("no port in {said:?}")).1.parse().unwrap();
        let way = Proxy::start();
        way.lead_to(port);
        Self { kubectl, way }
    }

    /// Has the workspace of an organization lead there, and nowhere else, by this name.
    fn is_cluster(&self, name: &str, organization: &Organization, kubectl: &Kubectl) {
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": format!("http://127.0.0.1:{}", self.way.port())}}],
            "users": [{"name": "it", "user": {}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        });
        kubectl.apply(&format!(
            "apiVersion: v1
kind: Secret
metadata: {{name: kubeconfig, namespace: {of}}}
data: {{kubeconfig: {kubeconfig}}}
---
apiVersion: platform.stoa.dev/v1alpha1
kind: Workspace
metadata: {{name: {of}}}
spec:
  backend: {{name: {of}}}
  kubernetes:
    clusters:
    - {{name: {name}, kubeconfigSecretRef: {{namespace: {of}, name: kubeconfig, key: kubeconfig}}}}
",
            of = organization.name,
            kubeconfig = BASE64_STANDARD.encode(kubeconfig.to_string()),
        ));
    }
}

fn id(namespace: &str, name: &str) -> String {
    format!("v1:ConfigMap:{namespace}:{name}")
}

/// A config map that is to be there within seconds.
fn spec(namespace: &str, name: &str) -> String {
    format!(
        "resources:
- id: {id}
  type: Kubernetes
  extensions: {{stoa.dev/timeout: 4s}}
  attributes: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: {namespace}}}}}
",
        id = id(namespace, name)
    )
}

#[test]
fn a_create_whose_answer_is_lost_is_unknown_until_it_is_found_or_somebody_looked() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let namespace = organization.name.as_str();
    let far = InClear::start(&kubectl);
    far.is_cluster("far", &organization, &kubectl);
    let resource = |name: &str| {
        let found = organization.of_stack("resources", name);
        let [resource] = &found[..] else { panic!("{found:#?}") };
        assert_eq!(resource["spec"]["id"], id(namespace, name));
        (resource["status"]["phase"].clone(), resource["spec"]["kubernetes"]["cluster"].clone())
    };
    let is_there = |name: &str| kubectl.succeeds(&["get", "configmap", name, "--namespace", namespace]);

    far.way.lose_answers_to(APPLY);
    for name in ["found", "gone"] {
        organization.stack(name, &spec(namespace, name));
        let preview = organization.succeed(name, "Preview", "");
        let plan = format!("plan: {}", preview["metadata"]["name"].as_str().unwrap());
        let said = organization.fail(name, "Apply", &plan);
        assert!(said.contains("took longer than 4s") && said.contains("spec.retry"), "{said}");
        assert!(said.contains(&format!("not known of \"{}\"", id(namespace, name))), "{said}");
        assert_eq!(resource(name), (json!("Unknown"), json!("far")));
        assert!(is_there(name));
    }
    far.way.heal();

    // It is looked for, and found.
    organization.succeed("found", "Apply", "");
    assert_eq!(resource("found"), (json!("Applied"), json!("far")));

    // Nobody can look there any more; somebody did, and nothing is left.
    kubectl.run(&["delete", "configmap", "gone", "--namespace", namespace]);
    far.is_cluster("near", &organization, &kubectl);
    let said = organization.fail("gone", "Apply", "");
    assert!(said.contains("in cluster far, which the workspace does not have"), "{said}");
    assert!(said.contains(&id(namespace, "gone")) && said.contains("spec.retry"), "{said}");
    assert_eq!(resource("gone"), (json!("Unknown"), json!("far")));
    assert!(!is_there("gone"));
    organization.succeed("gone", "Apply", &format!("retry: [\"{}\"]", id(namespace, "gone")));
    assert_eq!(resource("gone"), (json!("Applied"), json!("near")));
    assert!(is_there("gone"));
}
