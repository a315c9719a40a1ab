//! When a run is done: its custom resources say themselves when they are healthy.

use serde_json::{Value, json};
use stoa_e2e::fixture::{Organization, condition, config_maps};
use stoa_e2e::{Cluster, Server as _, eventually};

use crate::PATIENCE;

/// A definition and an object of its kind, which is healthy when its phase is `Running`.
fn spec(namespace: &str, policy: &str) -> String {
    format!(
        "resources:
- id: v1:Namespace:{namespace}
  type: Kubernetes
  attributes: {{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}
- id: {namespace}.example.com/v1:Widget:{namespace}:w
  type: Kubernetes
  attributes: {{apiVersion: {namespace}.example.com/v1, kind: Widget, metadata: {{name: w, namespace: {namespace}}}, spec: {{size: 1}}}}
  extensions:
    healthPolicy: {policy}
- id: apiextensions.k8s.io/v1:CustomResourceDefinition:widgets.{namespace}.example.com
  type: Kubernetes
  attributes:
    apiVersion: apiextensions.k8s.io/v1
    kind: CustomResourceDefinition
    metadata: {{name: widgets.{namespace}.example.com}}
    spec:
      group: {namespace}.example.com
      scope: Namespaced
      names: {{plural: widgets, singular: widget, kind: Widget}}
      versions:
      - name: v1
        served: true
        storage: true
        subresources: {{status: {{}}}}
        schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
"
    )
}

#[test]
fn run_awaits_custom_resource_with_its_definition() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    let widget = format!("widgets.{namespace}.example.com/w");
    let policy = "{cel: {current: \"status.phase == 'Running'\", failed: \"status.phase == 'Broken'\"}}";
    organization.stack("web", &spec(&namespace, policy));
    let run = organization.start("web", "Apply", "");
    let path = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{}/runs/{run}/log", organization.name);
    let told = |said: &str| {
        let log = || kubectl.raw(&path);
        eventually(&format!("{said} is in the log"), PATIENCE, || log().contains(said).then_some(()));
    };
    told("`failed` of its health policy cannot be evaluated");
    let set = |phase: &str| {
        let status = format!(
            "{{\"status\": {{\"phase\": \"{phase}\", \"conditions\": [{{\"type\": \"Ready\", \"status\": \"True\"}}]}}}}"
        );
        kubectl.run(&[
            "patch",
            &widget,
            "--namespace",
            &namespace,
            "--subresource=status",
            "--type=merge",
            "-p",
            &status,
        ]);
    };
    // By the conventions it would be healthy now.
    set("Starting");
    told("`current` of its health policy does not hold yet");
    set("Running");
    let run = organization.ended(&run, PATIENCE);
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");

    set("Broken");
    organization.stack("web", &spec(&namespace, policy).replace("size: 1", "size: 2"));
    let said = organization.fail("web", "Apply", "");
    assert!(said.contains("`failed` of its health policy holds"), "{said}");

    // Said once, for all stacks of the workspace.
    let policies = format!(
        "{{\"spec\": {{\"healthPolicies\": [{{\"apiVersion\": \"{namespace}.example.com/v1\", \"kind\": \"Widget\",
          \"current\": \"status.phase == 'Fine'\", \"failed\": \"status.phase == 'Broken'\"}}]}}}}"
    );
    kubectl.run(&["patch", "workspace", &organization.name, "--type=merge", "-p", &policies]);
    organization.stack("web", &spec(&namespace, "null").replace("size: 1", "size: 3"));
    let said = organization.fail("web", "Apply", "");
    assert!(said.contains("`failed` of its health policy holds"), "{said}");
    set("Fine");
    organization.succeed("web", "Apply", "");

    set("Starting");
    let impatient = spec(&namespace, policy).replace("healthPolicy:", "stoa.dev/timeout: 2s\n    healthPolicy:");
    organization.stack("web", &impatient.replace("size: 1", "size: 4"));
    let said = organization.fail("web", "Apply", "");
    assert!(
        said.contains("did not become healthy in time: `current` of its health policy does not hold yet"),
        "{said}"
    );
    organization.stack("web", &spec(&namespace, policy).replace("size: 1", "size: 5"));
    let run = organization.ended(&organization.start("web", "Apply", "timeout: 3s"), PATIENCE);
    assert_eq!(condition(&run, "Failed")["reason"], "TimedOut", "{run:#}");

    organization.stack("web", &spec(&namespace, "{health.kcl: 'assert res.status.ready'}"));
    let run = organization.ended(&organization.start("web", "Preview", ""), PATIENCE);
    let message = condition(&run, "Failed")["message"].as_str().unwrap_or_default().to_owned();
    let told = ["spec.yaml", "extensions.healthPolicy[health.kcl]", "health policies in KCL are not supported"];
    assert!(told.iter().all(|part| message.contains(part)) && run["status"]["plan"] == Value::Null, "{run:#}");
}

/// The form that manifests have, which have no place for extensions.
#[test]
fn manifest_says_by_annotations_when_it_is_healthy() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    let manifest = |phase: &str| {
        format!(
            "apiVersion: v1
kind: ConfigMap
metadata:
  name: web
  namespace: {name}
  annotations:
    stoa.dev/health-current: data.phase == 'Running'
    stoa.dev/health-failed: data.phase == 'Broken'
data: {{phase: {phase}}}
"
        )
    };
    let commit = |phase: &str| organization.source.commit("apps/web/web.yaml", &manifest(phase));
    commit("Broken");
    cluster.kubectl().apply(&format!(
        "{{apiVersion: config.stoa.dev/v1alpha1, kind: Stack, metadata: {{name: web, namespace: {name}}},
          spec: {{project: {name}, workspaces: [{name}], generator: {{type: Manifests}}}}}}"
    ));
    let said = organization.fail("web", "Apply", "");
    assert!(said.contains("`failed` of its health policy holds"), "{said}");
    commit("Running");
    organization.succeed("web", "Apply", "");
}

/// Workloads of which the cluster's controllers make pods.
fn workloads(namespace: &str, image: &str) -> String {
    let template = |policy: &str| {
        let containers = format!("containers: [{{name: web, image: \"{image}\"}}]");
        format!("template: {{metadata: {{labels: {{app: web}}}}, spec: {{{containers}{policy}}}}}")
    };
    let mut spec = config_maps(namespace, 0, "a");
    for (group, kind, fields) in [
        ("apps", "Deployment", format!("replicas: 2, selector: {{matchLabels: {{app: web}}}}, {}", template(""))),
        (
            "apps",
            "StatefulSet",
            format!("replicas: 2, serviceName: web, selector: {{matchLabels: {{app: web}}}}, {}", template("")),
        ),
        ("batch", "Job", template(", restartPolicy: Never")),
    ] {
        let name = kind.to_lowercase();
        // The controllers tell their pods apart by these.
        let fields = fields.replace("app: web", &format!("app: {name}"));
        spec += &format!(
            "- id: {group}/v1:{kind}:{namespace}:{name}
  type: Kubernetes
  dependsOn: [\"v1:Namespace:{namespace}\"]
  attributes: {{apiVersion: {group}/v1, kind: {kind}, metadata: {{name: {name}, namespace: {namespace}}}, spec: {{{fields}}}}}
  extensions: {{stoa.dev/recreate: \"true\"}}
"
        );
    }
    spec
}

#[test]
fn workloads_are_healthy_once_their_pods_are() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    let pods = || kubectl.get(&["pods", "--namespace", &namespace])["items"].as_array().cloned().unwrap_or_default();
    // No kubelet is here: the test says what one would.
    let run_pods = || {
        for pod in pods().iter().filter(|pod| pod["status"]["phase"] == "Pending") {
            let is_job = pod["metadata"]["ownerReferences"][0]["kind"] == "Job";
            let status = match is_job {
                true => json!({"phase": "Succeeded"}),
                false => json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}),
            };
            let (name, patch) = (pod["metadata"]["name"].as_str().unwrap(), json!({"status": status}).to_string());
            let at = ["--namespace", &namespace, "--subresource=status", "--type=merge", "-p", &patch];
            // It may be gone by now.
            kubectl.succeeds(&[&["patch", "pod", name], &at[..]].concat());
        }
    };
    for image in ["pause:3.10", "pause:3.11"] {
        organization.stack("web", &workloads(&namespace, image));
        let run = organization.start("web", "Apply", "");
        let verifies = |run: &Value| (run["status"]["phase"] == "Verifying").then_some(());
        kubectl.watch(&organization.name, &format!("run/{run}"), PATIENCE, verifies);
        let path = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{}/runs/{run}/log", organization.name);
        for kind in ["Deployment", "StatefulSet", "Job"] {
            let waits = format!("{kind}:{namespace}:{}", kind.to_lowercase());
            eventually(&format!("{waits} is waited for"), PATIENCE, || {
                let log = kubectl.raw(&path);
                log.lines().any(|line| line.contains(&waits) && line.contains("InProgress")).then_some(())
            });
        }
        assert_eq!(organization.run(&run)["status"]["phase"], "Verifying", "nothing is ready yet");
        let run = eventually("the run ends", PATIENCE, || {
            run_pods();
            Some(organization.run(&run)).filter(|run| !run["status"]["completionTime"].is_null())
        });
        assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
        let ready = pods().iter().filter(|pod| pod["status"]["conditions"][0]["status"] == "True").count();
        assert!(ready >= 4, "it did not wait for all pods: {ready}");
    }
    let resources = organization.of_stack("resources", "web");
    let healths: Vec<&Value> = resources.iter().map(|resource| &resource["status"]["health"]).collect();
    assert_eq!(healths, ["Current"; 4], "{resources:#?}");
}

/// A Deployment of one pod.
fn deployment(namespace: &str) -> String {
    config_maps(namespace, 0, "a")
        + &format!(
            "- id: apps/v1:Deployment:{namespace}:web
  type: Kubernetes
  dependsOn: [\"v1:Namespace:{namespace}\"]
  attributes:
    apiVersion: apps/v1
    kind: Deployment
    metadata: {{name: web, namespace: {namespace}}}
    spec:
      selector: {{matchLabels: {{app: web}}}}
      template:
        metadata: {{labels: {{app: web}}}}
        spec: {{containers: [{{name: web, image: \"registry.invalid/web:1\"}}]}}
"
        )
}

#[test]
fn waiting_run_reports_pod_waiting_reasons() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    organization.stack("web", &deployment(&namespace));
    let run = organization.start("web", "Apply", "");
    let pod = eventually("the pod is made", PATIENCE, || {
        let pods = kubectl.try_get(&["pods", "--namespace", &namespace])?;
        pods["items"].as_array()?.first().cloned()
    });
    let name = pod["metadata"]["name"].as_str().unwrap();
    // No kubelet is here: the test says what one would.
    let set = |status: Value| {
        let patch = json!({ "status": status }).to_string();
        let at = ["--namespace", &namespace, "--subresource=status", "--type=merge", "-p", &patch];
        kubectl.run(&[&["patch", "pod", name], &at[..]].concat());
    };
    let message = "Back-off pulling image registry.invalid/web:1";
    let state = json!({"waiting": {"reason": "ImagePullBackOff", "message": message}});
    let container = json!({"name": "web", "image": "registry.invalid/web:1", "imageID": "", "ready": false, "restartCount": 0,
        "state": state});
    set(json!({"phase": "Pending", "containerStatuses": [container]}));
    kubectl.apply(
        &json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "web-mount", "namespace": namespace},
            "type": "Warning", "reason": "FailedMount", "message": "secret web is not there",
            "involvedObject": {"kind": "Pod", "namespace": namespace, "name": name, "uid": pod["metadata"]["uid"]}})
        .to_string(),
    );
    let said =
        [format!("Pod {name}: container web: ImagePullBackOff: {message}"), "secret web is not there".to_owned()];
    let is_said = |text: &str| said.iter().all(|part| text.contains(part)).then_some(());
    kubectl.watch(&organization.name, &format!("run/{run}"), PATIENCE, |run| {
        is_said(condition(run, "Waiting")["message"].as_str().unwrap_or_default())
    });
    let described = kubectl.run(&["describe", "run", &run, "--namespace", &organization.name]);
    assert!(described.contains("ImagePullBackOff"), "{described}");
    let path = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{}/runs/{run}/log", organization.name);
    eventually("it is in the log", PATIENCE, || is_said(&kubectl.raw(&path)));
    set(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}));
    let run = organization.ended(&run, PATIENCE);
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
}

#[test]
fn waiting_run_reports_events_of_any_kind() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    let object = |id: &str, attributes: Value| {
        format!(
            "- {}\n",
            json!({"id": id, "type": "Kubernetes", "dependsOn": [format!("v1:Namespace:{namespace}")], "attributes": attributes})
        )
    };
    let metadata = |name: &str| json!({"name": name, "namespace": namespace});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata("front"),
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata("data"),
        "spec": {"storageClassName": "none-of-this-name", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}});
    let spec = config_maps(&namespace, 0, "a")
        + &object(&format!("v1:Service:{namespace}:front"), service)
        + &object(&format!("v1:PersistentVolumeClaim:{namespace}:data"), claim);
    organization.stack("web", &spec);
    let run = organization.start("web", "Apply", "");
    let mut said = Vec::new();
    for (kind, name) in [("Service", "front"), ("PersistentVolumeClaim", "data")] {
        let what = format!("{kind}/{name}");
        let live = eventually("it is made", PATIENCE, || kubectl.try_get(&[what.as_str(), "--namespace", &namespace]));
        let message = format!("nothing here provides a {kind}");
        kubectl.apply(
            &json!({"apiVersion": "v1", "kind": "Event", "metadata": metadata(&format!("{name}-refused")),
                "type": "Warning", "reason": "Refused", "message": message,
                "involvedObject": {"kind": kind, "namespace": namespace, "name": name, "uid": live["metadata"]["uid"]}})
            .to_string(),
        );
        said.push(format!("Warning Refused: {message}"));
    }
    let is_said = |text: &str| said.iter().all(|part| text.contains(part)).then_some(());
    kubectl.watch(&organization.name, &format!("run/{run}"), PATIENCE, |run| {
        is_said(condition(run, "Waiting")["message"].as_str().unwrap_or_default())
    });
    let cancel = r#"{"spec":{"cancel":true}}"#;
    kubectl.run(&["patch", "run", &run, "--namespace", &organization.name, "--type=merge", "--patch", cancel]);
    organization.ended(&run, PATIENCE);
}
