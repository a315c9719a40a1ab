//! When a run is done: its custom resources say themselves when they are healthy.

use serde_json::Value;
use stoa_e2e::fixture::{Organization, condition};
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
fn custom_resource_and_its_definition_are_one_run_that_waits_for_what_the_resource_says() {
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
        let log = || kubectl.run(&["get", "--raw", &path]);
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
    assert!(said.contains("is not healthy in time: `current` of its health policy does not hold yet"), "{said}");
    organization.stack("web", &spec(&namespace, policy).replace("size: 1", "size: 5"));
    let run = organization.ended(&organization.start("web", "Apply", "timeout: 3s"), PATIENCE);
    assert_eq!(condition(&run, "Failed")["reason"], "TimedOut", "{run:#}");

    organization.stack("web", &spec(&namespace, "{health.kcl: 'assert res.status.ready'}"));
    let run = organization.ended(&organization.start("web", "Preview", ""), PATIENCE);
    let message = condition(&run, "Failed")["message"].as_str().unwrap_or_default().to_owned();
    let told = ["spec.yaml", "extensions.healthPolicy[health.kcl]", "in KCL are not evaluated"];
    assert!(told.iter().all(|part| message.contains(part)) && run["status"]["plan"] == Value::Null, "{run:#}");
}
