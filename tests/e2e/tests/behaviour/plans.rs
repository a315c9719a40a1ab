//! The plan that was looked at is the plan that is applied, or nothing is.

use serde_json::json;
use stoa_e2e::fixture::{ANY_FIELDS, Organization, condition, config_maps, widgets};
use stoa_e2e::{Cluster, Server, Standalone};

use crate::bad_input::message_names;

fn log_of(server: &dyn Server, organization: &Organization, run: &str) -> String {
    let path = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{}/runs/{run}/log", organization.name);
    server.kubectl().raw(&path)
}

fn preview_shows_and_changes_nothing(server: &dyn Server) {
    let organization = Organization::create(server);
    let namespace = format!("{}-web", organization.name);
    organization.stack("web", &config_maps(&namespace, 2, "a"));
    let run = organization.succeed("web", "Preview", "");
    let summary = &run["status"]["plan"]["summary"];
    assert_eq!((&summary["create"], &summary["update"]), (&3.into(), &0.into()), "{run:#}");
    assert!(run["status"]["plan"]["digest"].as_str().unwrap().starts_with("sha256:"), "{run:#}");
    let log = log_of(server, &organization, run["metadata"]["name"].as_str().unwrap());
    for id in ["c0", "c1"] {
        let id = format!("v1:ConfigMap:{namespace}:{id}");
        let mut lines = log.lines().skip_while(|line| !(line.starts_with("+ create") && line.contains(&id)));
        let told = [lines.next().is_some(), lines.next() == Some(r#"    + data: {"value":"a"}"#)];
        assert_eq!(told, [true; 2], "{id} is not as it is to be in\n{log}");
    }
    assert!(organization.of_stack("releases", "web").is_empty());
    assert!(organization.of_stack("resources", "web").is_empty());
    let stack = server.kubectl().get(&["stack", "web", "--namespace", &organization.name]);
    assert_ne!(condition(&stack, "Ready")["status"], "True", "{stack:#}");
}

#[test]
fn preview_shows_changes_without_effect_standalone() {
    preview_shows_and_changes_nothing(&*Standalone::shared());
}

#[test]
fn preview_shows_changes_without_effect_in_cluster() {
    preview_shows_and_changes_nothing(&Cluster::shared());
}

#[test]
fn planned_apply_deploys_preview_despite_newer_source() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    let previewed = organization.stack("web", &config_maps(&namespace, 2, "previewed"));
    let preview = organization.succeed("web", "Preview", "");
    let name = preview["metadata"]["name"].as_str().unwrap();
    organization.stack("web", &config_maps(&namespace, 2, "newer"));

    let apply = organization.succeed("web", "Apply", &format!("plan: {name}"));
    assert_eq!(apply["status"]["plan"]["digest"], preview["status"]["plan"]["digest"]);
    assert_eq!(apply["status"]["source"]["commit"], previewed.as_str());
    let releases = organization.of_stack("releases", "web");
    assert_eq!(releases[0]["spec"]["planDigest"], preview["status"]["plan"]["digest"]);
    let map = cluster.kubectl().get(&["configmap", "c1", "--namespace", &namespace]);
    assert_eq!(map["data"]["value"], "previewed");
}

#[test]
fn plan_is_refused_after_somebody_changed_a_live_object() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    organization.stack("web", &config_maps(&namespace, 2, "a"));
    organization.succeed("web", "Apply", "");
    organization.stack("web", &config_maps(&namespace, 2, "b"));
    let preview = organization.succeed("web", "Preview", "");
    let name = preview["metadata"]["name"].as_str().unwrap();

    let by_hand = ["patch", "configmap/c1", "--type=merge", "--patch={\"data\":{\"value\":\"b\"}}"];
    kubectl.run(&[&by_hand[..], &["--namespace", &namespace]].concat());
    let message = organization.fail("web", "Apply", &format!("plan: {name}"));
    assert!(message.contains(name) && message.contains(&format!("v1:ConfigMap:{namespace}:c1")), "{message}");
    let untouched = kubectl.get(&["configmap", "c0", "--namespace", &namespace]);
    assert_eq!(untouched["data"]["value"], "a", "a stale plan was applied in part");
    assert_eq!(organization.of_stack("releases", "web").len(), 1);
}

#[test]
fn plan_is_refused_after_another_run_changed_the_deployment() {
    let server = Cluster::shared();
    let organization = Organization::create(&server);
    organization.stack("web", &config_maps(&format!("{}-web", organization.name), 2, "a"));
    let preview = organization.succeed("web", "Preview", "");
    organization.succeed("web", "Apply", "");
    let name = preview["metadata"]["name"].as_str().unwrap();
    let run = organization.ended(&organization.start("web", "Apply", &format!("plan: {name}")), crate::PATIENCE);
    assert_eq!(condition(&run, "Failed")["reason"], "PlanStale", "{run:#}");
    assert_eq!(organization.of_stack("releases", "web").len(), 1);
}

#[test]
fn rollback_and_destroy_follow_their_previews() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    let value = || kubectl.get(&["configmap", "c0", "--namespace", &namespace])["data"]["value"].clone();
    for state in ["a", "b"] {
        organization.stack("web", &config_maps(&namespace, 2, state));
        organization.succeed("web", "Apply", "");
    }
    let previewed = |of: &str, counts: [u32; 2]| {
        let preview = organization.succeed("web", "Preview", of);
        let summary = &preview["status"]["plan"]["summary"];
        assert_eq!([&summary["update"], &summary["delete"]], [&json!(counts[0]), &json!(counts[1])], "{preview:#}");
        assert_eq!((value(), organization.of_stack("releases", "web").len()), ("b".into(), 2), "something was changed");
        (preview["metadata"]["name"].as_str().unwrap().to_owned(), preview["status"]["plan"]["digest"].clone())
    };
    let (destroy, destroyed) = previewed("of: Destroy", [0, 3]);
    let (rollback, digest) = previewed("of: Rollback, release: 1", [2, 0]);

    let message = organization.fail("web", "Destroy", &format!("plan: {rollback}"));
    let expected = format!("run {rollback:?} is a Preview of a Rollback to release 1, and this is a Destroy");
    assert!(message.contains(&expected), "{message}");
    let message = organization.fail("web", "Rollback", &format!("release: 2, plan: {rollback}"));
    assert!(message.contains("and this is a Rollback to release 2"), "{message}");
    let back = organization.succeed("web", "Rollback", &format!("release: 1, plan: {rollback}"));
    assert_eq!((&back["status"]["plan"]["digest"], value()), (&digest, "a".into()), "{back:#}");
    let gone = organization.succeed("web", "Destroy", &format!("plan: {destroy}"));
    assert_eq!(gone["status"]["plan"]["digest"], destroyed);
    assert!(!kubectl.succeeds(&["get", "namespace", &namespace]), "the namespace is still there");
}

#[test]
fn apply_accepts_only_finished_preview_of_stack() {
    let server = Standalone::shared();
    let organization = Organization::create(&*server);
    for stack in ["one", "two"] {
        organization.stack(stack, &config_maps(stack, 1, "a"));
    }
    let other = organization.succeed("two", "Preview", "");
    let name = other["metadata"]["name"].as_str().unwrap();
    let message = organization.fail("one", "Apply", &format!("plan: {name}"));
    assert!(message.contains(name) && message.contains("not a Preview of this stack"), "{message}");
    let unknown = server.kubectl().create_refused(&format!(
        "{{apiVersion: delivery.stoa.dev/v1alpha1, kind: Run, metadata: {{generateName: one-, namespace: {}}},
          spec: {{stack: one, operation: Apply, plan: nobody}}}}",
        organization.name
    ));
    assert!(unknown.contains("spec.plan: Not found: \"nobody\""), "{unknown}");
}

#[test]
fn recreate_extension_replaces_immutable_object() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    let fixed = |value: &str, extensions: &str| {
        format!(
            "resources:
- id: v1:ConfigMap:{name}:fixed
  type: Kubernetes
  attributes:
    apiVersion: v1
    kind: ConfigMap
    metadata: {{name: fixed, namespace: {name}}}
    immutable: true
    data: {{value: {value}}}
  extensions: {{{extensions}}}
"
        )
    };
    let live = || cluster.kubectl().get(&["configmap/fixed", "--namespace", name]);
    organization.stack("web", &fixed("one", ""));
    organization.succeed("web", "Apply", "");
    let first = live();
    organization.stack("web", &fixed("two", ""));
    let message = organization.fail("web", "Apply", "");
    assert!(message.contains("immutable") && message.contains("stoa.dev/recreate"), "{message}");
    assert_eq!(live()["metadata"]["uid"], first["metadata"]["uid"]);

    organization.stack("web", &fixed("two", "stoa.dev/recreate: \"true\""));
    let preview = organization.succeed("web", "Preview", "");
    assert_eq!(preview["status"]["plan"]["summary"]["replace"], 1, "{preview:#}");
    organization.succeed("web", "Apply", "");
    let second = live();
    assert_eq!(second["data"]["value"], "two");
    assert_ne!(second["metadata"]["uid"], first["metadata"]["uid"]);
    let preview = organization.succeed("web", "Preview", "");
    assert_eq!(preview["status"]["plan"]["summary"]["unchanged"], 1, "{preview:#}");
}

/// The reason and the message of why a run failed.
fn failure(run: &serde_json::Value) -> (String, String) {
    let failed = condition(run, "Failed");
    let text = |key: &str| failed[key].as_str().unwrap_or_default().to_owned();
    (text("reason"), text("message"))
}

#[test]
fn emptying_plan_requires_mass_deletion_permission() {
    let server = Cluster::shared();
    let organization = Organization::create(&server);
    let namespace = format!("{}-web", organization.name);
    organization.stack("web", &config_maps(&namespace, 2, "a"));
    organization.succeed("web", "Apply", "");
    organization.stack("web", "");

    let sentence = "the plan deletes 3 of 3 resources and keeps none; to delete them, start a run with \
                    spec.allowMassDeletion: true, or a Destroy";
    let preview = organization.succeed("web", "Preview", "");
    let told = condition(&preview, "Complete")["message"].as_str().unwrap().to_owned();
    assert_eq!(
        told,
        format!("the plan is made; nothing was changed; an Apply would fail: {sentence} (plan: +0 ~0 -3)")
    );
    let log = log_of(&server, &organization, preview["metadata"]["name"].as_str().unwrap());
    assert!(log.contains(&format!("warning: an Apply would fail: {sentence}")), "{log}");

    let plan = format!("plan: {}", preview["metadata"]["name"].as_str().unwrap());
    for fields in ["", &plan] {
        let refused = organization.ended(&organization.start("web", "Apply", fields), crate::PATIENCE);
        let said = format!("{sentence} (plan: +0 ~0 -3)");
        assert_eq!(failure(&refused), ("MassDeletion".to_owned(), said), "{refused:#}");
        assert_eq!(refused["status"]["plan"]["summary"]["delete"], 3, "{refused:#}");
    }
    assert_eq!(organization.of_stack("releases", "web").len(), 1);
    assert_eq!(organization.of_stack("resources", "web").len(), 3, "something was touched");

    let run = organization.succeed("web", "Apply", "allowMassDeletion: true");
    assert_eq!(run["status"]["release"], 2, "{run:#}");
    let after = organization.succeed("web", "Preview", "");
    assert_eq!(after["status"]["plan"]["summary"]["delete"], 0, "{after:#}");
}

#[test]
fn plan_removing_majority_requires_mass_deletion_permission() {
    let server = Cluster::shared();
    let organization = Organization::create(&server);
    let namespace = format!("{}-web", organization.name);
    organization.stack("web", &config_maps(&namespace, 21, "a"));
    organization.succeed("web", "Apply", "");
    organization.stack("web", &config_maps(&namespace, 9, "b"));
    let refused = organization.ended(&organization.start("web", "Apply", ""), crate::PATIENCE);
    let (reason, message) = failure(&refused);
    assert_eq!(reason, "MassDeletion", "{refused:#}");
    assert!(message.starts_with("the plan deletes 12 of 22 resources; "), "{message}");
    organization.stack("web", &config_maps(&namespace, 10, "b"));
    organization.succeed("web", "Apply", "");
    organization.succeed("web", "Destroy", "");
}

/// A Service whose address the cluster chooses.
fn service(namespace: &str) -> String {
    format!(
        "- id: v1:Service:{namespace}:front
  type: Kubernetes
  attributes: {{apiVersion: v1, kind: Service, metadata: {{name: front, namespace: {namespace}}}, spec: {{ports: [{{port: 80}}]}}}}
"
    )
}

/// A ConfigMap that has an address, and a field that is others' once it is there.
fn address(namespace: &str, address: &str) -> String {
    format!(
        "- id: v1:ConfigMap:{namespace}:address
  type: Kubernetes
  attributes:
    apiVersion: v1
    kind: ConfigMap
    metadata: {{name: address, namespace: {namespace}}}
    data: {{address: {address}, ours: here, theirs: first}}
  extensions:
    stoa.dev/ignore-fields: [data.theirs]
"
    )
}

#[test]
fn plan_shows_late_values_and_own_drift() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    let maps = config_maps(&namespace, 1, "a");
    organization.stack("web", &(maps.clone() + &address(&namespace, "none")));
    organization.succeed("web", "Apply", "");
    let chosen = format!("$kusion_path.v1:Service:{namespace}:front.spec.clusterIP");
    organization.stack("web", &(maps + &service(&namespace) + &address(&namespace, &chosen)));
    let table = || {
        let preview = organization.succeed("web", "Preview", "");
        let run = preview["metadata"]["name"].as_str().unwrap();
        let path = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{}/runs/{run}", organization.name);
        kubectl.raw(&format!("{path}/plan?format=table"))
    };
    let first = table();
    assert!(first.contains("data.address: \"none\" → (known after apply)"), "{first}");
    organization.succeed("web", "Apply", "");
    let live = |what: &str| kubectl.get(&[what, "--namespace", &namespace]);
    assert_eq!(live("configmap/address")["data"]["address"], live("service/front")["spec"]["clusterIP"]);

    let edit = "{\"data\": {\"ours\": \"there\", \"theirs\": \"second\"}}";
    kubectl.run(&["patch", "configmap/address", "--namespace", &namespace, "--type=merge", "-p", edit]);
    let second = table();
    assert!(second.contains("data.ours: \"there\" → \"here\"  (drift)"), "{second}");
    assert!(!second.contains("theirs") && second.contains("\nPlan: 1 to update;"), "{second}");
    organization.succeed("web", "Apply", "");
    let data = &live("configmap/address")["data"];
    assert_eq!((&data["ours"], &data["theirs"]), (&"here".into(), &"second".into()));

    // Whose an object is can be asked with what the cluster calls it.
    let uid = live("service/front")["metadata"]["uid"].as_str().unwrap().to_owned();
    let by_name =
        format!("spec.kubernetes.kind=Service,spec.kubernetes.namespace={namespace},spec.kubernetes.name=front");
    for selector in [by_name, format!("spec.kubernetes.uid={uid}")] {
        let found = kubectl.get(&["resources.delivery.stoa.dev", "--all-namespaces", "--field-selector", &selector]);
        let ids: Vec<_> = found["items"].as_array().unwrap().iter().map(|it| it["spec"]["id"].clone()).collect();
        assert_eq!(ids, [format!("v1:Service:{namespace}:front")], "{selector}");
    }
}

#[test]
fn plan_spares_namespaces_and_definitions_in_use() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    let group = format!("{}.example.com", organization.name);
    let held = format!(
        "- id: v1:ConfigMap:{namespace}:a
  type: Kubernetes
  attributes: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: a, namespace: {namespace}}}}}
- id: {group}/v1:Widget:w
  type: Kubernetes
  attributes: {{apiVersion: {group}/v1, kind: Widget, metadata: {{name: w}}}}
"
    );
    let home = format!(
        "- id: v1:Namespace:{namespace}
  type: Kubernetes
  attributes: {{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}
"
    );
    let definition = format!(
        "- id: apiextensions.k8s.io/v1:CustomResourceDefinition:widgets.{group}
  type: Kubernetes
  attributes: {}
",
        widgets(&group, "Cluster", ANY_FIELDS)
    );
    organization.stack("web", &format!("resources:\n{home}{definition}{held}"));
    organization.succeed("web", "Apply", "");
    for (kept, dropped, needs) in [
        (&definition, format!("v1:Namespace:{namespace}"), format!("keeps v1:ConfigMap:{namespace}:a;")),
        (
            &home,
            format!("apiextensions.k8s.io/v1:CustomResourceDefinition:widgets.{group}"),
            format!("keeps {group}/v1:Widget:w;"),
        ),
    ] {
        organization.stack("web", &format!("resources:\n{kept}{held}"));
        let why = organization.fail("web", "Apply", "");
        message_names(&why, &[&dropped, "it is no longer in the Spec; deleting it deletes all", &needs]);
        assert!(cluster.kubectl().succeeds(&["get", "configmap/a", "--namespace", &namespace]));
        assert!(cluster.kubectl().succeeds(&["get", &format!("widgets.{group}/w")]));
    }
    // With what needs them they may go.
    organization.succeed("web", "Destroy", "");
    assert!(!cluster.kubectl().succeeds(&["get", "namespace", &namespace]));
}
