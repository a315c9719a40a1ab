//! One run that goes to two clusters: the one around the server, and a server of its own that has a kubeconfig in a Secret.

use std::fs;

use base64::Engine as _;
use serde_json::Value;
use stoa_e2e::fixture::{Organization, condition};
use stoa_e2e::{Cluster, Kubectl, Server as _, Standalone};

/// A workspace that has both clusters: the cluster around the server is the first.
fn add_cluster(organization: &Organization, kubectl: &Kubectl, other: &Standalone) {
    let name = &organization.name;
    let kubeconfig = base64::prelude::BASE64_STANDARD.encode(fs::read(other.data().join("kubeconfig")).unwrap());
    kubectl.apply(&format!(
        "apiVersion: v1
kind: Secret
metadata: {{name: east, namespace: {name}}}
data: {{kubeconfig: {kubeconfig}}}
---
apiVersion: platform.stoa.dev/v1alpha1
kind: Workspace
metadata: {{name: {name}}}
spec:
  backend: {{name: {name}}}
  kubernetes:
    clusters:
    - {{name: main, inCluster: true}}
    - {{name: east, kubeconfigSecretRef: {{namespace: {name}, name: east, key: kubeconfig}}}}
"
    ));
}

/// A namespace and a config map of the same names in both clusters; the one there has the uid of the one here. With
/// `further`, another config map in each.
fn spec(namespace: &str, value: &str, further: bool) -> String {
    let mut spec = format!(
        "resources:
- id: v1:Namespace:{namespace}
  type: Kubernetes
  attributes: {{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}
- id: v1:Namespace:{namespace}/east
  type: Kubernetes
  extensions: {{cluster: east}}
  attributes: {{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}
- id: v1:ConfigMap:{namespace}:web
  type: Kubernetes
  attributes: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: web, namespace: {namespace}}}, data: {{value: {value}}}}}
- id: v1:ConfigMap:{namespace}:web/east
  type: Kubernetes
  extensions: {{cluster: east}}
  attributes:
    apiVersion: v1
    kind: ConfigMap
    metadata: {{name: web, namespace: {namespace}}}
    data: {{value: {value}, uid: \"${{kusion_path.v1:ConfigMap:{namespace}:web.metadata.uid}}\"}}
"
    );
    for (suffix, extensions) in [("", "{}"), ("/east", "{cluster: east}")].into_iter().filter(|_| further) {
        spec.push_str(&format!(
            "- id: v1:ConfigMap:{namespace}:more{suffix}
  type: Kubernetes
  extensions: {extensions}
  attributes: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: more, namespace: {namespace}}}}}
"
        ));
    }
    spec
}

fn config_map(kubectl: &Kubectl, namespace: &str, name: &str) -> Option<Value> {
    let list = kubectl.get(&["configmaps", "--namespace", namespace]);
    list["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == name).cloned()
}

#[test]
fn one_run_goes_to_two_clusters_and_a_plan_says_which_does_not_answer() {
    let cluster = Cluster::shared();
    let mut other = Standalone::start();
    let (here, there) = (cluster.kubectl(), other.kubectl());
    let organization = Organization::create(&cluster);
    add_cluster(&organization, &here, &other);
    let namespace = format!("{}-web", organization.name);

    organization.stack("web", &spec(&namespace, "a", true));
    let first = organization.succeed("web", "Apply", "");
    assert_eq!(first["status"]["plan"]["summary"]["create"], 6, "{first:#}");
    let (web, web_there) =
        (config_map(&here, &namespace, "web").unwrap(), config_map(&there, &namespace, "web").unwrap());
    assert_eq!((&web["data"]["value"], &web_there["data"]["value"]), (&"a".into(), &"a".into()));
    assert_eq!(web_there["data"]["uid"], web["metadata"]["uid"], "a value crosses the clusters");
    let mut clusters: Vec<String> = organization
        .of_stack("resources", "web")
        .iter()
        .map(|resource| resource["spec"]["kubernetes"]["cluster"].as_str().unwrap_or_default().to_owned())
        .collect();
    clusters.sort();
    assert_eq!(clusters, ["east", "east", "east", "main", "main", "main"]);

    // What goes from one cluster stays in the other.
    let all = spec(&namespace, "a", true);
    let without_one = all.split("- id: ").filter(|part| !part.starts_with(&format!("v1:ConfigMap:{namespace}:more\n")));
    organization.stack("web", &without_one.collect::<Vec<_>>().join("- id: "));
    let second = organization.succeed("web", "Apply", "");
    assert_eq!(second["status"]["plan"]["summary"]["delete"], 1, "{second:#}");
    assert!(config_map(&here, &namespace, "more").is_none() && config_map(&there, &namespace, "more").is_some());
    organization.succeed("web", "Refresh", "");

    other.kill();
    organization.stack("web", &spec(&namespace, "b", false));
    let preview = organization.succeed("web", "Preview", "");
    let summary = &preview["status"]["plan"]["summary"];
    // What is there cannot be looked at: the config map that is wanted, its namespace, and the one that goes.
    assert_eq!((&summary["unverified"], &summary["unchanged"]), (&3.into(), &1.into()), "{preview:#}");
    let refresh = organization.ended(&organization.start("web", "Refresh", ""), crate::PATIENCE);
    let message = condition(&refresh, "Failed")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("could not be looked at"), "{refresh:#}");
    // Nothing says how to get in.
    let secret = fs::read_to_string(other.data().join("kubeconfig")).unwrap();
    let key =
        secret.lines().find_map(|line| line.trim().strip_prefix("client-key-data:")).unwrap().trim().trim_matches('"');
    let runs = here.run(&["get", "runs,stacks,workspaces,resources", "--namespace", &organization.name, "-o", "yaml"]);
    assert!(key.len() > 40 && !runs.contains(key));
}
