//! What people see and do while a run is at work, and what Specs may have that a cluster makes difficult.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use stoa_e2e::fixture::{ANY_FIELDS, Organization, condition, config_maps, widgets};
use stoa_e2e::webhook::Webhooks;
use stoa_e2e::{Cluster, Kubectl, Server as _, eventually};

use crate::admission::Scene;
use crate::{PATIENCE, rollouts::chain};

fn subresource(kubectl: &Kubectl, organization: &Organization, run: &str, path: &str) -> String {
    let runs = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{}/runs", organization.name);
    kubectl.raw(&format!("{runs}/{run}/{path}"))
}

/// The names of the config maps that are live.
fn live(kubectl: &Kubectl, namespace: &str) -> BTreeSet<String> {
    let list = kubectl.get(&["configmaps", "--namespace", namespace]);
    let names = list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap());
    names.filter(|name| *name != "kube-root-ca.crt").map(str::to_owned).collect()
}

/// The names of the config maps that are on record as applied.
fn recorded(organization: &Organization) -> BTreeSet<String> {
    let resources = organization.of_stack("resources", "web");
    let applied = resources.iter().filter(|resource| {
        resource["status"]["phase"] == "Applied" && resource["spec"]["kubernetes"]["kind"] == "ConfigMap"
    });
    applied.map(|resource| resource["spec"]["kubernetes"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn next_run_continues_after_cancelled_run() {
    const LENGTH: usize = 100;
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    organization.stack("web", &chain(&namespace, LENGTH));
    let run = organization.start("web", "Apply", "");
    kubectl.watch(&organization.name, &format!("run/{run}"), PATIENCE, |run| {
        (run["status"]["progress"]["done"].as_i64() >= Some(3)).then_some(())
    });
    let cancel = ["patch", "run", &run, "--namespace", &organization.name, "--type=merge"];
    kubectl.run(&[&cancel[..], &["--patch={\"spec\":{\"cancel\":true}}"]].concat());
    let ended = organization.ended(&run, PATIENCE);
    assert_eq!(ended["status"]["phase"], "Canceled", "{ended:#}");
    assert_eq!(condition(&ended, "Failed")["reason"], "Canceled");

    let there = live(&kubectl, &namespace);
    assert!(!there.is_empty() && there.len() < LENGTH, "{} of {LENGTH} were made", there.len());
    assert_eq!(recorded(&organization), there, "the record is what is there");
    // It stopped in the order of dependencies: nothing is there without what it depends on.
    let first: BTreeSet<String> = (0..there.len()).map(|number| format!("c{number}")).collect();
    assert_eq!(there, first);
    assert!(organization.of_stack("releases", "web").is_empty());

    let next = organization.succeed("web", "Apply", "");
    let summary = &next["status"]["plan"]["summary"];
    assert_eq!((&summary["create"], &summary["update"]), (&(LENGTH - there.len()).into(), &0.into()), "{summary:#}");
    assert_eq!(live(&kubectl, &namespace).len(), LENGTH);
    assert_eq!(recorded(&organization).len(), LENGTH);
    let last = organization.succeed("web", "Preview", "");
    assert_eq!(last["status"]["plan"]["summary"]["unchanged"], LENGTH + 1, "{last:#}");
}

#[test]
fn kubectl_reads_and_follows_plan_and_log() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    organization.stack("web", &chain(&namespace, 20));
    let run = organization.start("web", "Apply", "");
    kubectl.watch(&organization.name, &format!("run/{run}"), PATIENCE, |run| {
        run["status"]["startTime"].is_string().then_some(())
    });
    let read = |path: &str| subresource(&kubectl, &organization, &run, path);
    let [text, lines] = thread::scope(|scope| {
        ["log?follow=true", "log?follow=true&format=json"]
            .map(|path| scope.spawn(move || read(path)))
            .map(|it| it.join().unwrap())
    });
    // It came to an end because the run did.
    let ended = organization.run(&run);
    assert!(text.lines().last().unwrap().contains("Succeeded"), "{text}");
    let parsed: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(parsed.last().unwrap()["phase"], "Succeeded");
    let done = parsed.iter().filter(|line| line["phase"] == "Applying" && line["outcome"] == "Done").count();
    assert_eq!(done, 21, "{lines}");
    let ended = if ended["status"]["log"].is_string() { ended } else { organization.ended(&run, PATIENCE) };
    assert!(ended["status"]["log"].as_str().is_some_and(|log| log.starts_with("sha256:")), "{ended:#}");
    assert_eq!(read("log"), text, "what is kept is what was told");
    assert_eq!(read("log?follow=true&format=json"), lines);

    let plan: Value = serde_json::from_str(&read("plan")).unwrap();
    assert_eq!(plan["actions"].as_array().unwrap().len(), 21, "{plan:#}");
    let table = read("plan?format=table");
    assert!(table.contains(&format!("+ create   v1:ConfigMap:{namespace}:c19 ")), "{table}");
    assert!(table.contains("\nPlan: 21 to create;") && !table.contains('\u{1b}'), "{table}");
    assert!(text.contains(&table), "the log has a plan of this size, too");
    assert!(read("plan?format=table&colour=true").contains("\u{1b}[32m+ create  \u{1b}[0m v1:ConfigMap"), "{table}");
}

#[test]
fn one_run_applies_and_destroys_difficult_resources() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    let namespace = format!("{name}-web");
    // Of no sorting: what comes first needs what comes last.
    let group = format!("{name}.example.com");
    let definition = widgets(&group, "Namespaced", ANY_FIELDS);
    let spec = format!(
        "resources:
- id: {group}/v1:Widget:{namespace}:w
  type: Kubernetes
  attributes:
    apiVersion: {group}/v1
    kind: Widget
    metadata: {{name: w, namespace: {namespace}}}
    spec: {{of: $kusion_path.rbac.authorization.k8s.io/v1:Role:{namespace}:system:web.reader.metadata.name}}
- id: v1:ConfigMap:{namespace}:copy
  type: Kubernetes
  attributes:
    apiVersion: v1
    kind: ConfigMap
    metadata: {{name: copy, namespace: {namespace}}}
    data:
      \"uid.${{kusion_path.v1:Namespace:{namespace}.metadata.uid}}\": a key
      address: $kusion_path.v1:Service:{namespace}:web.spec.clusterIP
      dotted: $kusion_path.v1:ConfigMap:{namespace}:web.v2.data[\"app.properties\"]
      escaped: $${{kusion_path.v1:Namespace:{namespace}.metadata.uid}}
- id: v1:ConfigMap:{namespace}:web.v2
  type: Kubernetes
  attributes: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: web.v2, namespace: {namespace}}}, data: {{app.properties: dots}}}}
- id: v1:ConfigMap:{namespace}:web
  type: Kubernetes
  attributes: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: web, namespace: {namespace}}}, data: {{app.properties: none}}}}
- id: v1:Service:{namespace}:web
  type: Kubernetes
  attributes: {{apiVersion: v1, kind: Service, metadata: {{name: web, namespace: {namespace}}}, spec: {{ports: [{{port: 80}}]}}}}
- id: rbac.authorization.k8s.io/v1:Role:{namespace}:system:web.reader
  type: Kubernetes
  attributes:
    apiVersion: rbac.authorization.k8s.io/v1
    kind: Role
    metadata: {{name: \"system:web.reader\", namespace: {namespace}}}
    rules: []
- id: apiextensions.k8s.io/v1:CustomResourceDefinition:widgets.{group}
  type: Kubernetes
  attributes: {definition}
- id: v1:Namespace:{namespace}
  type: Kubernetes
  attributes: {{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}
"
    );
    organization.stack("web", &spec);
    let preview = organization.succeed("web", "Preview", "");
    let table =
        subresource(&kubectl, &organization, preview["metadata"]["name"].as_str().unwrap(), "plan?format=table");
    assert!(table.contains(&format!("has no kind \"Widget\" in apiVersion \"{group}/v1\" yet)")), "{table}");
    let applied = organization.succeed("web", "Apply", "");
    assert_eq!(applied["status"]["plan"]["summary"]["create"], 8, "{applied:#}");

    let get = |what: &str| kubectl.get(&[what, "--namespace", &namespace]);
    assert_eq!(get(&format!("widgets.{group}/w"))["spec"]["of"], "system:web.reader");
    let copy = &get("configmap/copy")["data"];
    let uid = get(&format!("namespace/{namespace}"))["metadata"]["uid"].as_str().unwrap().to_owned();
    assert_eq!(copy[format!("uid.{uid}")], "a key", "{copy:#}");
    assert_eq!((&copy["address"], &copy["dotted"]), (&get("service/web")["spec"]["clusterIP"], &"dots".into()));
    assert_eq!(copy["escaped"], format!("${{kusion_path.v1:Namespace:{namespace}.metadata.uid}}"));
    let again = organization.succeed("web", "Apply", "");
    assert_eq!(again["status"]["plan"]["summary"]["unchanged"], 8, "{again:#}");

    // Somebody holds one object, so that the run which destroys it waits, and others are refused meanwhile.
    let hold = |finalizers: &str| {
        let patch = format!("--patch={{\"metadata\":{{\"finalizers\":{finalizers}}}}}");
        kubectl.run(&["patch", "configmap/web", "--namespace", &namespace, "--type=merge", &patch]);
    };
    hold("[\"example.com/hold\"]");
    let destroy = organization.start("web", "Destroy", "");
    kubectl.watch(&namespace, "configmap/web", PATIENCE, |held| {
        held["metadata"]["deletionTimestamp"].is_string().then_some(())
    });
    let refused = organization.ended(&organization.start("web", "Apply", "onConflict: Refuse"), PATIENCE);
    assert_eq!(condition(&refused, "Failed")["reason"], "ConflictingRun", "{refused:#}");
    let waiting = organization.run(&destroy);
    assert_eq!(waiting["status"]["phase"], "Applying", "{waiting:#}");
    assert!(
        get(&format!("namespace/{namespace}"))["metadata"]["deletionTimestamp"].is_null(),
        "its namespace goes last"
    );
    hold("null");
    let destroyed = organization.ended(&destroy, PATIENCE);
    assert_eq!(destroyed["status"]["phase"], "Succeeded", "{destroyed:#}");
    assert!(!kubectl.succeeds(&["get", "namespace", &namespace]));
    assert!(!kubectl.succeeds(&["get", "crd", &format!("widgets.{group}")]));

    let brief = organization.start("web", "Preview", "ttlSecondsAfterFinished: 1");
    let gone = ["wait", "--for=delete", "--timeout=120s", "--namespace", name, &format!("run/{brief}")];
    kubectl.run(&gone);
}

#[test]
fn an_apply_without_changes_makes_a_handful_of_requests() {
    const COUNT: usize = 300;
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    organization.stack("web", &config_maps(&namespace, COUNT, "a"));
    organization.succeed("web", "Apply", "");
    let requests = || -> Vec<String> {
        let audit = cluster.audit(&namespace);
        let of_runner = audit
            .iter()
            .filter(|event| event["user"]["username"] == "system:serviceaccount:stoa-system:function-runner")
            .filter_map(|event| event["requestURI"].as_str());
        of_runner.filter(|uri| uri.contains(&namespace)).map(str::to_owned).collect()
    };
    let before = requests().len();
    assert!(before > COUNT, "they are in the audit log");
    let run = organization.succeed("web", "Apply", "");
    assert_eq!(run["status"]["plan"]["summary"]["unchanged"], COUNT + 1, "{run:#}");
    let made = requests().split_off(before);
    assert!(!made.is_empty() && made.len() < 20, "{made:#?}");
}

/// Writes that a webhook was asked about at once.
#[derive(Default)]
struct Writes {
    now: usize,
    most: usize,
}

#[test]
fn runner_limits_parallel_resource_writes() {
    // The runner's default.
    const PARALLELISM: usize = 16;
    const COUNT: usize = 40;
    let cluster = Cluster::shared();
    let mut scene = Scene::new(cluster.kubectl());
    let writes: Arc<(Mutex<Writes>, Condvar)> = Arc::default();
    let counted = Arc::clone(&writes);
    let hooks = Webhooks::start("localhost", move |_, request| {
        let name = request["name"].as_str().unwrap_or_default();
        if name == "probe" {
            return json!({"allowed": false, "status": {"message": "asked"}});
        }
        if name != "kube-root-ca.crt" && request["dryRun"] != true {
            let (writes, changed) = &*counted;
            let mut all = writes.lock().unwrap();
            all.now += 1;
            all.most = all.most.max(all.now);
            changed.notify_all();
            // Each is held until there are as many as there may be, and as long as another one would take to come.
            let held = changed.wait_timeout_while(all, Duration::from_secs(20), |all| all.most < PARALLELISM);
            drop(held.unwrap());
            thread::sleep(Duration::from_millis(300));
            writes.lock().unwrap().now -= 1;
        }
        json!({"allowed": true})
    });
    let hook = json!({
        "name": "slow.hooks.test",
        "clientConfig": hooks.client_config("slow"),
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
        "namespaceSelector": scene.selector(),
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 30,
    });
    scene.configure("ValidatingWebhookConfiguration", json!({"webhooks": [hook]}));
    let namespace = scene.namespace.clone();
    let probe = format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: probe, namespace: {namespace}}}}}");
    eventually("the webhook is asked", PATIENCE, || cluster.kubectl().would_create(&probe).err());

    let organization = Organization::create(&cluster);
    let config_map = |number: usize| {
        format!(
            "- id: v1:ConfigMap:{namespace}:c{number}
  type: Kubernetes
  attributes: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: c{number}, namespace: {namespace}}}}}
"
        )
    };
    organization.stack("web", &format!("resources:\n{}", (0..COUNT).map(config_map).collect::<String>()));
    let run = organization.succeed("web", "Apply", "");
    assert_eq!(run["status"]["plan"]["summary"]["create"], COUNT, "{run:#}");
    assert_eq!(writes.0.lock().unwrap().most, PARALLELISM);
    assert_eq!(live(&cluster.kubectl(), &namespace).len(), COUNT);
}

/// What Kusion's generators write beside the resources.
#[test]
fn warning_names_unread_secret_stores_and_context() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let spec = |value: &str| {
        let resources = config_maps(&format!("{}-web", organization.name), 1, value);
        format!("{resources}secretStore: {{provider: {{fake: {{}}}}}}\ncontext: {{KUBECONFIG_CONTENT: hunter2}}\n")
    };
    organization.stack("web", &spec("a"));
    let run = organization.succeed("web", "Apply", "");
    let log = subresource(&kubectl, &organization, run["metadata"]["name"].as_str().unwrap(), "log");
    for field in ["secretStore", "context"] {
        assert!(log.contains(&format!("{field} of the Spec is ignored: the Workspace configures clusters")), "{log}");
    }
    assert!(!log.contains("hunter2"), "{log}");

    organization.stack("web", &spec("ref://database/password"));
    let why = organization.fail("web", "Preview", "");
    assert!(why.contains("ref://database/password: spec.secretStore of workspace"), "{why}");
}
