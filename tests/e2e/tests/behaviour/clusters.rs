//! One run that goes to two clusters: the one around the server, and another one that has a kubeconfig in a Secret, which is
//! a server of ours where it has to end, and a kube-apiserver otherwise.

use std::fs;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde_json::{Value, json};
use stoa_e2e::fixture::{ANY_FIELDS, Organization, condition, widgets, workspace};
use stoa_e2e::{Cluster, Kubectl, Server as _, Standalone};

/// The second control plane, which the tests of this file share. It ends with the last of them.
fn second() -> Arc<Cluster> {
    static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
    // A test that failed to start it leaves nothing behind that the next one could not begin with.
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let cluster = Arc::new(Cluster::without_stoa());
        *shared = Arc::downgrade(&cluster);
        cluster
    })
}

/// A workspace that has both clusters: the cluster around the server is the first.
fn add_cluster(organization: &Organization, other: &Kubectl) {
    let kubeconfig = fs::read_to_string(&other.kubeconfig).unwrap();
    organization.lead_to("east", &kubeconfig, "    - {name: main, inCluster: true}\n");
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
fn run_covers_two_clusters_and_reports_unresponsive_one() {
    let cluster = Cluster::shared();
    let mut other = Standalone::start();
    let (here, there) = (cluster.kubectl(), other.kubectl());
    let organization = Organization::create(&cluster);
    add_cluster(&organization, &there);
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
    assert!(message.contains("could not be checked"), "{refresh:#}");
    // Nothing says how to get in.
    let secret = fs::read_to_string(other.data().join("kubeconfig")).unwrap();
    let key =
        secret.lines().find_map(|line| line.trim().strip_prefix("client-key-data:")).unwrap().trim().trim_matches('"');
    let runs = here.run(&["get", "runs,stacks,workspaces,resources", "--namespace", &organization.name, "-o", "yaml"]);
    assert!(key.len() > 40 && !runs.contains(key));

    // It does not come back, and leaves the workspace. The resources that went there have left the Spec before.
    let name = &organization.name;
    here.apply(&workspace(name, name, "  kubernetes: {clusters: [{name: main, inCluster: true}]}\n"));
    let all = spec(&namespace, "b", false);
    let remaining: Vec<&str> = all.split("- id: ").filter(|part| !part.contains("cluster: east")).collect();
    organization.stack("web", &remaining.join("- id: "));
    let refused = organization.fail("web", "Apply", "");
    assert!(refused.contains("name it in spec.forgetClusters of a Run"), "{refused}");
    let mistaken = organization.refused("web", "Preview", "forgetClusters: [main]");
    assert!(
        mistaken.contains("spec.forgetClusters[0]") && mistaken.contains("the workspace still has this cluster"),
        "{mistaken}"
    );
    let run = organization.succeed("web", "Apply", "forgetClusters: [east]");
    let summary = &run["status"]["plan"]["summary"];
    assert_eq!(
        (&summary["forget"], &summary["update"], &summary["delete"]),
        (&3.into(), &1.into(), &0.into()),
        "{run:#}"
    );
    let resources = organization.of_stack("resources", "web");
    let phases = ["Applied", "Destroyed", "Forgotten"]
        .map(|phase| resources.iter().filter(|resource| resource["status"]["phase"] == phase).count());
    assert_eq!(phases, [2, 1, 3], "{resources:#?}");
    organization.succeed("web", "Refresh", "");
}

/// Kinds of Kubernetes in both clusters. Values go over and back: the Deployment in the east has the address of the Service
/// here, and the ConfigMap here has the uid of that Deployment. Of the kind Widget each cluster has a definition of its
/// own: here its objects are in namespaces, in the east they are not.
fn kinds(namespace: &str, group: &str) -> String {
    let definition = |suffix: &str, cluster: &str, scope: &str| {
        let attributes = widgets(group, scope, ANY_FIELDS);
        format!(
            "- id: apiextensions.k8s.io/v1:CustomResourceDefinition:widgets.{group}{suffix}
  type: Kubernetes
  extensions: {{cluster: {cluster}}}
  attributes: {attributes}
"
        )
    };
    let account = "system:serviceaccount";
    format!(
        "resources:
- id: v1:Namespace:{namespace}
  type: Kubernetes
  attributes: {{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}
- id: v1:Service:{namespace}:web
  type: Kubernetes
  attributes:
    apiVersion: v1
    kind: Service
    metadata: {{name: web, namespace: {namespace}}}
    spec: {{selector: {{app: web}}, ports: [{{name: http, port: 80}}]}}
- id: v1:ConfigMap:{namespace}:back
  type: Kubernetes
  attributes:
    apiVersion: v1
    kind: ConfigMap
    metadata: {{name: back, namespace: {namespace}}}
    data: {{uid: \"${{kusion_path.apps/v1:Deployment:{namespace}:web/east.metadata.uid}}\"}}
- id: {group}/v1:Widget:{namespace}:w
  type: Kubernetes
  dependsOn: [\"apiextensions.k8s.io/v1:CustomResourceDefinition:widgets.{group}\"]
  attributes: {{apiVersion: {group}/v1, kind: Widget, metadata: {{name: w, namespace: {namespace}}}, spec: {{at: here}}}}
- id: v1:Namespace:{namespace}/east
  type: Kubernetes
  extensions: {{cluster: east}}
  attributes: {{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}
- id: v1:ServiceAccount:{namespace}:web/east
  type: Kubernetes
  extensions: {{cluster: east}}
  attributes: {{apiVersion: v1, kind: ServiceAccount, metadata: {{name: web, namespace: {namespace}}}}}
- id: rbac.authorization.k8s.io/v1:Role:{namespace}:web/east
  type: Kubernetes
  extensions: {{cluster: east}}
  attributes:
    apiVersion: rbac.authorization.k8s.io/v1
    kind: Role
    metadata: {{name: web, namespace: {namespace}}}
    rules: [{{apiGroups: [\"\"], resources: [configmaps], verbs: [get]}}]
- id: rbac.authorization.k8s.io/v1:RoleBinding:{namespace}:web/east
  type: Kubernetes
  extensions: {{cluster: east}}
  attributes:
    apiVersion: rbac.authorization.k8s.io/v1
    kind: RoleBinding
    metadata: {{name: web, namespace: {namespace}}}
    roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: web}}
    subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: \"{account}:{namespace}:web\"}}]
- id: apps/v1:Deployment:{namespace}:web/east
  type: Kubernetes
  extensions: {{cluster: east}}
  attributes:
    apiVersion: apps/v1
    kind: Deployment
    metadata: {{name: web, namespace: {namespace}}}
    spec:
      # There are no nodes.
      replicas: 0
      selector: {{matchLabels: {{app: web}}}}
      template:
        metadata: {{labels: {{app: web}}}}
        spec:
          serviceAccountName: web
          containers:
          - name: web
            image: example.com/web:1
            env: [{{name: UPSTREAM, value: \"${{kusion_path.v1:Service:{namespace}:web.spec.clusterIP}}:80\"}}]
- id: {group}/v1:Widget:w/east
  type: Kubernetes
  extensions: {{cluster: east}}
  dependsOn: [\"apiextensions.k8s.io/v1:CustomResourceDefinition:widgets.{group}/east\"]
  attributes: {{apiVersion: {group}/v1, kind: Widget, metadata: {{name: w}}, spec: {{at: there}}}}
{}{}",
        definition("", "main", "Namespaced"),
        definition("/east", "east", "Cluster")
    )
}

/// When a request of this kind for an object was first taken, and not as a dry run.
fn asked(cluster: &Cluster, verbs: &[&str], resource: &str, namespace: &str, name: &str) -> String {
    let is_it = |event: &Value| {
        let object = &event["objectRef"];
        verbs.contains(&event["verb"].as_str().unwrap_or_default())
            && (&object["resource"], &object["namespace"], &object["name"])
                == (&resource.into(), &namespace.into(), &name.into())
            && !event["requestURI"].as_str().is_some_and(|uri| uri.contains("dryRun="))
    };
    let audit = cluster.audit(name);
    let event = audit.iter().find(|event| is_it(event));
    let event = event.unwrap_or_else(|| panic!("{verbs:?} of {resource} {name} is not in the audit log"));
    event["requestReceivedTimestamp"].as_str().unwrap().to_owned()
}

#[test]
fn two_clusters_receive_all_kinds_in_dependency_order() {
    let (cluster, other) = (Cluster::shared(), second());
    let (here, there) = (cluster.kubectl(), other.kubectl());
    let organization = Organization::create(&cluster);
    add_cluster(&organization, &there);
    let (name, namespace) = (&organization.name, format!("{}-web", organization.name));
    let group = format!("{name}.example.com");
    let spec = kinds(&namespace, &group);

    organization.stack("web", &spec);
    let first = organization.succeed("web", "Apply", "");
    assert_eq!(first["status"]["plan"]["summary"]["create"], 12, "{first:#}");
    let get = |kubectl: &Kubectl, what: &str| kubectl.get(&[what, "--namespace", &namespace]);
    let address = get(&here, "service/web")["spec"]["clusterIP"].as_str().unwrap().to_owned();
    let deployment = get(&there, "deployment/web");
    let upstream = &deployment["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"];
    assert_eq!(upstream, &format!("{address}:80"));
    assert_eq!(get(&here, "configmap/back")["data"]["uid"], deployment["metadata"]["uid"]);
    assert_eq!(get(&here, &format!("widgets.{group}/w"))["metadata"]["namespace"], namespace.as_str());
    let widget = there.get(&[&format!("widgets.{group}/w")]);
    assert_eq!((&widget["spec"]["at"], &widget["metadata"]["namespace"]), (&"there".into(), &Value::Null));
    for (kubectl, what) in [(&here, "deployment/web"), (&there, "service/web"), (&there, "configmap/back")] {
        assert!(!kubectl.succeeds(&["get", what, "--namespace", &namespace]), "{what} is in the other cluster, too");
    }
    let made = ["patch", "create"];
    let order = [
        asked(&cluster, &made, "services", &namespace, "web"),
        asked(&other, &made, "deployments", &namespace, "web"),
        asked(&cluster, &made, "configmaps", &namespace, "back"),
    ];
    assert!(order.is_sorted(), "{order:?}");
    let again = organization.succeed("web", "Preview", "");
    assert_eq!(again["status"]["plan"]["summary"]["unchanged"], 12, "{again:#}");

    // Somebody changes and removes objects there; those of the same kinds here are as they were.
    there.run(&["scale", "deployment/web", "--replicas=2", "--namespace", &namespace]);
    there.run(&["delete", &format!("widgets.{group}/w")]);
    let refresh = organization.succeed("web", "Refresh", "");
    let drifted = condition(&here.get(&["stack/web", "--namespace", name]), "Drifted");
    let message = drifted["message"].as_str().unwrap_or_default();
    let begin = format!("workspace {name}: 2 resources moved away from release 1: ");
    assert!(drifted["status"] == "True" && message.starts_with(&begin), "{refresh:#}\n{drifted}");
    for id in [format!("apps/v1:Deployment:{namespace}:web/east"), format!("{group}/v1:Widget:w/east")] {
        assert!(message.contains(&id), "{message}");
    }
    let mended = organization.succeed("web", "Apply", "");
    let summary = &mended["status"]["plan"]["summary"];
    assert_eq!((&summary["update"], &summary["create"]), (&1.into(), &1.into()), "{mended:#}");
    assert_eq!(get(&there, "deployment/web")["spec"]["replicas"], 0);
    assert!(there.succeeds(&["get", &format!("widgets.{group}/w")]));
    assert_eq!(condition(&here.get(&["stack/web", "--namespace", name]), "Drifted")["status"], "False");

    // What is dropped goes from the cluster that it was in, and from it alone.
    let kept = spec.split("- id: ").filter(|part| !part.contains("/v1:Widget:"));
    organization.stack("web", &kept.collect::<Vec<_>>().join("- id: "));
    let pruned = organization.succeed("web", "Apply", "");
    assert_eq!(pruned["status"]["plan"]["summary"]["delete"], 2, "{pruned:#}");
    for kubectl in [&here, &there] {
        let widgets = kubectl.get(&[&format!("widgets.{group}"), "--all-namespaces"]);
        assert_eq!(widgets["items"], Value::Array(Vec::new()));
    }
    organization.succeed("web", "Destroy", "");
    for kubectl in [&here, &there] {
        assert!(!kubectl.succeeds(&["get", "namespace", &namespace]));
        assert!(!kubectl.succeeds(&["get", &format!("crd/widgets.{group}")]));
    }
    let order = [
        asked(&cluster, &["delete"], "configmaps", &namespace, "back"),
        asked(&other, &["delete"], "deployments", &namespace, "web"),
        asked(&cluster, &["delete"], "services", &namespace, "web"),
    ];
    assert!(order.is_sorted(), "{order:?}");
}

/// A workspace of contexts of one kubeconfig: `main` and `also` are the cluster around the server, and `east` is another one.
fn add_contexts(organization: &Organization, here: &Kubectl, there: &Kubectl) {
    let [near, far] = [here, there].map(|kubectl| {
        let text = kubectl.run(&["config", "view", "--raw", "--flatten", "--minify", "--output=json"]);
        let config: Value = serde_json::from_str(&text).unwrap();
        (config["clusters"][0]["cluster"].clone(), config["users"][0]["user"].clone())
    });
    let context = |name: &str, of: &str| json!({"name": name, "context": {"cluster": of, "user": of}});
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "nowhere",
        "clusters": [{"name": "near", "cluster": near.0}, {"name": "far", "cluster": far.0}],
        "users": [{"name": "near", "user": near.1}, {"name": "far", "user": far.1}],
        "contexts": [context("one", "near"), context("same", "near"), context("other", "far")],
    });
    let name = &organization.name;
    let secret = json!({"namespace": name, "name": "contexts", "key": "kubeconfig"});
    let cluster = |name: &str, context: &str| json!({"name": name, "context": context, "kubeconfigSecretRef": secret});
    let clusters = [cluster("main", "one"), cluster("also", "same"), cluster("east", "other")];
    here.apply_secret(name, "contexts", &[("kubeconfig", &kubeconfig.to_string())]);
    let workspace = json!({
        "apiVersion": "platform.stoa.dev/v1alpha1", "kind": "Workspace", "metadata": {"name": name},
        "spec": {"backend": {"name": name}, "kubernetes": {"clusters": clusters}},
    });
    here.apply(&workspace.to_string());
}

/// A resource of a Spec, in a cluster as Kusion names one, and with that in its id.
fn in_cluster(cluster: &str, object: &Value, extensions: &Value) -> Value {
    let metadata = &object["metadata"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let parts = [&object["apiVersion"], &object["kind"], &metadata["namespace"], &metadata["name"]];
    let id = parts.into_iter().filter_map(text).collect::<Vec<_>>().join(":");
    let mut extensions = extensions.clone();
    extensions["kubeConfig"] = cluster.into();
    json!({"id": format!("{id}/{cluster}"), "type": "Kubernetes", "attributes": object, "extensions": extensions})
}

fn spec_of(resources: &[Value]) -> String {
    json!({ "resources": resources }).to_string()
}

#[test]
fn kubeconfig_contexts_become_clusters_unless_server_repeats() {
    let (cluster, other) = (Cluster::shared(), second());
    let (here, there) = (cluster.kubectl(), other.kubectl());
    let organization = Organization::create(&cluster);
    add_contexts(&organization, &here, &there);
    let namespace = format!("{}-web", organization.name);
    let group = format!("{}.example.com", organization.name);
    let none = json!({});
    let anew = json!({"stoa.dev/recreate": "true"});
    let of_namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    let fixed = |value: &str| {
        let metadata = json!({"name": "fixed", "namespace": namespace});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": true, "data": {"value": value}})
    };
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("widgets.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    let metadata = json!({"name": "w", "namespace": namespace});
    let widget = json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": metadata});

    // What is in one cluster is no reason to begin with another: neither a kind nor a namespace.
    let [ours, kind] = [in_cluster("main", &of_namespace, &none), in_cluster("main", &definition, &none)];
    organization.stack("web", &spec_of(&[ours.clone(), kind.clone(), in_cluster("east", &widget, &none)]));
    let said = organization.fail("web", "Apply", "");
    assert!(said.contains("cluster east has no kind \"Widget\""), "{said}");
    assert!(!here.succeeds(&["get", "namespace", &namespace]), "it was begun with");
    organization.stack("web", &spec_of(&[ours.clone(), in_cluster("east", &fixed("a"), &none)]));
    let preview = organization.succeed("web", "Preview", "");
    let runs = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{}/runs", organization.name);
    let run = preview["metadata"]["name"].as_str().unwrap();
    let table = here.raw(&format!("{runs}/{run}/plan?format=table"));
    assert!(table.contains(&format!("namespace {namespace} does not exist in cluster east yet")), "{table}");
    // One object under two names is one object.
    let twice = ["main", "also"].map(|name| in_cluster(name, &fixed("a"), &none));
    organization.stack("web", &spec_of(&twice));
    let said = organization.fail("web", "Preview", "");
    assert!(
        said.contains("clusters also and main are the same server")
            || said.contains("clusters main and also are the same server"),
        "{said}"
    );

    // What comes first is there under another name of the same server.
    let spec = |value_there: &str| {
        spec_of(&[
            in_cluster("also", &widget, &none),
            in_cluster("also", &fixed("a"), &anew),
            in_cluster("east", &fixed(value_there), &anew),
            kind.clone(),
            ours.clone(),
            in_cluster("east", &of_namespace, &none),
        ])
    };
    organization.stack("web", &spec("a"));
    let applied = organization.succeed("web", "Apply", "");
    assert_eq!(applied["status"]["plan"]["summary"]["create"], 6, "{applied:#}");
    assert!(here.succeeds(&["get", &format!("widgets.{group}/w"), "--namespace", &namespace]));
    let made = ["patch", "create"];
    let order = [
        asked(&cluster, &made, "namespaces", &namespace, &namespace),
        asked(&cluster, &made, "configmaps", &namespace, "fixed"),
    ];
    assert!(order.is_sorted(), "{order:?}");
    let again = organization.succeed("web", "Preview", "");
    assert_eq!(again["status"]["plan"]["summary"]["unchanged"], 6, "{again:#}");

    // What is made anew in one cluster is the same object as before in the other.
    let objects = || [&here, &there].map(|kubectl| config_map(kubectl, &namespace, "fixed").unwrap());
    let before = objects();
    organization.stack("web", &spec("b"));
    let replaced = organization.succeed("web", "Apply", "");
    let summary = &replaced["status"]["plan"]["summary"];
    assert_eq!((&summary["replace"], &summary["unchanged"]), (&1.into(), &5.into()), "{replaced:#}");
    let after = objects();
    assert_eq!(after[0]["metadata"], before[0]["metadata"]);
    assert_ne!(after[1]["metadata"]["uid"], before[1]["metadata"]["uid"]);
    assert_eq!((&after[0]["data"]["value"], &after[1]["data"]["value"]), (&"a".into(), &"b".into()));

    organization.succeed("web", "Destroy", "");
    for kubectl in [&here, &there] {
        assert!(!kubectl.succeeds(&["get", "namespace", &namespace]));
    }
}
