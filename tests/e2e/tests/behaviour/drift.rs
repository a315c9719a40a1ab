//! What is live is looked at again, on demand and by itself, and what moved away from the release is told.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stoa_e2e::fixture::{Organization, condition, config_maps};
use stoa_e2e::{Cluster, Server, eventually};

#[test]
fn refresh_finds_drift_and_apply_clears_it() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    let namespace = format!("{name}-web");
    organization.stack("web", &config_maps(&namespace, 3, "a"));
    let message = organization.fail("web", "Refresh", "");
    assert_eq!(message, format!("workspace {name} has no release yet"));
    organization.succeed("web", "Apply", "");

    let said = |run: &Value| condition(run, "Complete")["message"].as_str().unwrap().to_owned();
    let drifted = || condition(&cluster.kubectl().get(&["stack", "web", "--namespace", name]), "Drifted");
    let refresh = organization.succeed("web", "Refresh", "");
    assert_eq!(said(&refresh), "nothing moved away from release 1");
    assert_eq!(drifted()["status"], "False");
    // What the source says by now does not count.
    organization.stack("web", &config_maps(&namespace, 3, "b"));
    assert_eq!(said(&organization.succeed("web", "Refresh", "")), "nothing moved away from release 1");

    let edit = r#"{"data":{"value":"edited"}}"#;
    cluster.kubectl().run(&["patch", "configmap/c0", "--namespace", &namespace, "--type=merge", "--patch", edit]);
    cluster.kubectl().run(&["delete", "configmap/c2", "--namespace", &namespace]);
    let found =
        format!("2 resources moved away from release 1: v1:ConfigMap:{namespace}:c0, v1:ConfigMap:{namespace}:c2");
    let refresh = organization.succeed("web", "Refresh", "");
    assert_eq!(said(&refresh), found);
    let condition = drifted();
    assert_eq!((&condition["status"], &condition["reason"]), (&"True".into(), &"Drifted".into()));
    assert_eq!(condition["message"], format!("workspace {name}: {found}"));
    let data = cluster.kubectl().get(&["configmap/c0", "--namespace", &namespace])["data"]["value"].clone();
    assert_eq!(data, "edited", "a Refresh changes nothing");

    organization.succeed("web", "Apply", "");
    assert_eq!(drifted()["status"], "False");
    organization.succeed("web", "Destroy", "");
    let message = organization.fail("web", "Refresh", "");
    assert!(message.ends_with("records that everything was removed"), "{message}");
}

#[test]
fn drift_after_failed_run_names_field_owners() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    let namespace = format!("{name}-web");
    // The last of them says itself that it is not well with another value.
    let policy =
        "  extensions: {healthPolicy: {cel: {current: \"data.value == 'a'\", failed: \"data.value == 'b'\"}}}\n";
    organization.stack("web", &(config_maps(&namespace, 2, "a") + policy));
    organization.succeed("web", "Apply", "");
    organization.stack("web", &(config_maps(&namespace, 3, "b") + policy));
    organization.fail("web", "Apply", "");

    let said = |run: &Value| condition(run, "Complete")["message"].as_str().unwrap().to_owned();
    let refresh = organization.succeed("web", "Refresh", "");
    assert_eq!(said(&refresh), "nothing moved away from the record");

    let edit = r#"{"data":{"value":"edited"}}"#;
    cluster.kubectl().run(&["patch", "configmap/c0", "--namespace", &namespace, "--type=merge", "--patch", edit]);
    cluster.kubectl().run(&["delete", "configmap/c2", "--namespace", &namespace]);
    cluster.kubectl().claim(
        "flux",
        &format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: c1, namespace: {namespace}}}, data: {{value: theirs}}}}"
        ),
    );
    let id = |object: &str| format!("v1:ConfigMap:{namespace}:{object}");
    let found = format!("3 resources moved away from the record: {}, {}, {}", id("c0"), id("c1"), id("c2"));
    let refresh = organization.succeed("web", "Refresh", "");
    assert_eq!(said(&refresh), found);
    let resources = refresh["status"]["resources"].as_array().unwrap();
    let of_flux = resources.iter().find(|resource| resource["id"] == id("c1")).unwrap();
    assert!(of_flux["message"].as_str().unwrap().contains("flux"), "{refresh:#}");
    let stack = cluster.kubectl().get(&["stack", "web", "--namespace", name]);
    assert_eq!(condition(&stack, "Drifted")["message"], format!("workspace {name}: {found}"));
    organization.succeed("web", "Destroy", "");
}

/// A Spec of a namespace with objects of which other people's additions are drift.
fn with_one_owner(namespace: &str) -> String {
    let resource = |api_version: &str, kind: &str, name: &str, spec: &str| {
        format!(
            "- id: {api_version}:{kind}:{namespace}:{name}
  type: Kubernetes
  dependsOn: [\"v1:Namespace:{namespace}\"]
  attributes:
    apiVersion: {api_version}
    kind: {kind}
    metadata: {{name: {name}, namespace: {namespace}}}
    spec: {spec}
"
        )
    };
    let policy = |name: &str, spec: &str| resource("networking.k8s.io/v1", "NetworkPolicy", name, spec);
    let service = resource("v1", "Service", "web", "{selector: {app: web}, ports: [{port: 80}]}");
    let ports = policy("ports", "{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 80}]}]}");
    config_maps(namespace, 0, "") + &policy("all", "{podSelector: {}}") + &ports + &service
}

#[test]
fn apply_reverts_additions_to_exclusively_owned_fields() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    organization.stack("web", &with_one_owner(&namespace));
    organization.succeed("web", "Apply", "");
    let said = || condition(&organization.succeed("web", "Refresh", ""), "Complete")["message"].clone();
    assert_eq!(said(), "nothing moved away from release 1");

    let patch = |object: &str, patch: &str| {
        cluster.kubectl().run(&["patch", object, "--namespace", &namespace, "--type=json", "--patch", patch]);
    };
    patch("networkpolicy/all", r#"[{"op":"add","path":"/spec/podSelector/matchLabels","value":{"app":"web"}}]"#);
    patch("networkpolicy/ports", r#"[{"op":"add","path":"/spec/ingress/0/ports/-","value":{"port":22}}]"#);
    patch("service/web", r#"[{"op":"add","path":"/spec/selector/track","value":"canary"}]"#);
    let policies = format!("networking.k8s.io/v1:NetworkPolicy:{namespace}");
    let found =
        format!("3 resources moved away from release 1: {policies}:all, {policies}:ports, v1:Service:{namespace}:web");
    assert_eq!(said(), found);

    organization.succeed("web", "Apply", "");
    let spec = |object: &str| cluster.kubectl().get(&[object, "--namespace", &namespace])["spec"].clone();
    assert_eq!(spec("networkpolicy/all")["podSelector"], json!({}));
    assert_eq!(spec("networkpolicy/ports")["ingress"], json!([{"ports": [{"port": 80, "protocol": "TCP"}]}]));
    assert_eq!(spec("service/web")["selector"], json!({"app": "web"}));
    assert_eq!(said(), "nothing moved away from release 2");
    organization.succeed("web", "Destroy", "");
}

#[test]
fn drift_is_looked_for_by_itself() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    let namespace = format!("{name}-web");
    organization.stack("web", &config_maps(&namespace, 1, "a"));
    let stack = ["stack", "web", "--namespace", name];
    let patch = |interval: &str| {
        let patch = format!(r#"{{"spec":{{"driftInterval":"{interval}"}}}}"#);
        cluster.kubectl().run(&[&["patch"], &stack[..], &["--type=merge", "--patch", &patch]].concat());
    };
    organization.succeed("web", "Apply", "");
    let refreshes = || {
        let runs = organization.of_stack("runs", "web");
        runs.iter().filter(|run| run["spec"]["operation"] == "Refresh").count()
    };
    // What waits for somebody, and what waits behind it, may do so for weeks.
    organization.stack("web", &config_maps(&namespace, 1, "b"));
    let waiting = organization.start("web", "Apply", "requireApproval: true");
    cluster.kubectl().watch(name, &format!("run/{waiting}"), Duration::from_secs(60), |run| {
        (run["status"]["phase"] == "AwaitingApproval").then_some(())
    });
    let behind = organization.start("web", "Apply", "");
    assert_eq!(refreshes(), 0);
    cluster.kubectl().run(&["delete", "configmap/c0", "--namespace", &namespace]);
    let began = Instant::now();
    patch("10s");
    let is_drifted = || {
        let stack = cluster.kubectl().get(&stack);
        (condition(&stack, "Drifted")["status"] == "True").then_some(())
    };
    eventually("the drift is found", Duration::from_secs(60), is_drifted);
    patch("0s");
    let runs = organization.of_stack("runs", "web");
    let refresh = runs.iter().find(|run| run["spec"]["operation"] == "Refresh").unwrap();
    assert_eq!(refresh["spec"]["ttlSecondsAfterFinished"], 620, "{refresh:#}");
    let (found, took) = (refreshes(), began.elapsed());
    assert!(found as u64 <= took.as_secs() / 10 + 2, "{found} runs in {took:?}");
    for (run, phase) in [(waiting, "AwaitingApproval"), (behind, "Pending")] {
        assert_eq!(organization.run(&run)["status"]["phase"], phase);
    }
}
