//! A cluster that is asked and does not answer: what was asked of it may have been done.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stoa_e2e::fixture::{Organization, condition};
use stoa_e2e::{Cluster, Kubectl, Proxy, Server as _};

use crate::PATIENCE;

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
    /// The one cluster of an organization, `far`.
    fn start(organization: &Organization, kubectl: &Kubectl) -> Self {
        let mut proxy = kubectl.command(&["proxy", "--port=0"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(proxy.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        let port = said.trim().rsplit_once(':').unwrap_or_else(|| panic!("no port in {said:?}")).1.parse().unwrap();
        let way = Proxy::start();
        way.lead_to(port);
        let far = Self { kubectl: proxy, way };
        far.is_cluster("far", organization);
        far
    }

    /// Has the workspace of an organization lead there, and nowhere else, by this name.
    fn is_cluster(&self, name: &str, organization: &Organization) {
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": format!("http://127.0.0.1:{}", self.way.port())}}],
            "users": [{"name": "it", "user": {}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        });
        organization.lead_to(name, &kubeconfig.to_string(), "");
    }
}

fn id(namespace: &str, name: &str) -> String {
    format!("v1:ConfigMap:{namespace}:{name}")
}

/// A config map that is to be there soon.
fn spec(namespace: &str, name: &str) -> String {
    format!(
        "resources:
- id: {id}
  type: Kubernetes
  extensions: {{stoa.dev/timeout: 20s}}
  attributes: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: {namespace}}}}}
",
        id = id(namespace, name)
    )
}

#[test]
fn create_without_answer_stays_unknown_until_resolved() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let namespace = organization.name.as_str();
    let far = InClear::start(&organization, &kubectl);
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
        assert!(said.contains("took longer than 20s") && said.contains("spec.retry"), "{said}");
        assert!(said.contains(&format!("unknown for \"{}\"", id(namespace, name))), "{said}");
        assert_eq!(resource(name), (json!("Unknown"), json!("far")));
        assert!(is_there(name));
    }
    far.way.heal();

    // It is looked for, and found.
    organization.succeed("found", "Apply", "");
    assert_eq!(resource("found"), (json!("Applied"), json!("far")));

    // What only looks says so, too, and leaves it to the next Apply to settle the call.
    organization.stack("found", &spec(namespace, "found").replace("}}\n", "}, data: {value: b}}\n"));
    far.way.lose_answers_to(APPLY);
    organization.fail("found", "Apply", "");
    far.way.heal();
    assert_eq!(resource("found"), (json!("Unknown"), json!("far")));
    organization.succeed("found", "Refresh", "");
    assert_eq!(resource("found"), (json!("Applied"), json!("far")));
    let uid = kubectl.get(&["configmap", "found", "--namespace", namespace])["metadata"]["uid"].clone();
    assert_eq!(organization.of_stack("resources", "found")[0]["spec"]["kubernetes"]["uid"], uid);
    let settled = organization.succeed("found", "Apply", "");
    assert_eq!(settled["status"]["plan"]["summary"]["create"], 0, "{settled:#}");

    // Nobody can look there any more; somebody did, and nothing is left.
    kubectl.run(&["delete", "configmap", "gone", "--namespace", namespace]);
    far.is_cluster("near", &organization);
    let said = organization.fail("gone", "Apply", "");
    assert!(said.contains("in cluster far, which the workspace does not have"), "{said}");
    assert!(said.contains(&id(namespace, "gone")) && said.contains("spec.retry"), "{said}");
    assert_eq!(resource("gone"), (json!("Unknown"), json!("far")));
    assert!(!is_there("gone"));
    organization.succeed("gone", "Apply", &format!("retry: [\"{}\"]", id(namespace, "gone")));
    assert_eq!(resource("gone"), (json!("Applied"), json!("near")));
    assert!(is_there("gone"));
}

#[test]
fn run_names_unresponsive_cluster_until_recovery() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let namespace = organization.name.as_str();
    let far = InClear::start(&organization, &kubectl);
    organization.stack("web", &spec(namespace, "web"));
    far.way.cut();
    let (begin, run) = (Instant::now(), organization.start("web", "Preview", ""));
    let said = kubectl.watch(namespace, &format!("run/{run}"), PATIENCE, |run| {
        condition(run, "Waiting")["message"].as_str().map(str::to_owned)
    });
    assert!(begin.elapsed() < Duration::from_secs(45), "{:?}", begin.elapsed());
    assert_eq!(said, "cluster far does not answer: waiting for GET /api/v1");
    let shown = kubectl.run(&["get", "run", &run, "--namespace", namespace, "--output=wide"]);
    assert!(shown.contains("  waiting  ") && shown.contains(&said), "{shown}");
    far.way.heal();
    let ended = organization.ended(&run, PATIENCE);
    assert_eq!((&ended["status"]["phase"], condition(&ended, "Waiting")), (&json!("Succeeded"), Value::Null));
}
