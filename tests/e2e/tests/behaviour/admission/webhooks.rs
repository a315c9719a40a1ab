use serde_json::{Value, json};
use stoa_e2e::webhook::{Webhooks, patched};
use stoa_e2e::{Cluster, Server as _, eventually};

use super::{Scene, rules};
use crate::PATIENCE;

/// A webhook for writes of Sources in the scene's namespace.
fn hook(scene: &Scene, name: &str, client_config: &Value) -> Value {
    json!({
        "name": format!("{name}.hooks.test"), "admissionReviewVersions": ["v1"], "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": 20, "clientConfig": client_config, "namespaceSelector": scene.selector(),
        "rules": rules(&["CREATE", "UPDATE"]),
    })
}

/// Denies what is labelled `forbidden: yes`, and warns of everything else.
fn gate(_: &str, request: &Value) -> Value {
    if request["object"]["metadata"]["labels"]["forbidden"] == "yes" {
        return json!({"allowed": false, "status": {"message": "it says so itself", "code": 403}});
    }
    json!({"allowed": true, "warnings": ["looked at"]})
}

const DENIED: &str = "admission webhook \"gate.hooks.test\" denied the request: it says so itself";

#[test]
fn webhooks_change_and_refuse_objects() {
    let cluster = Cluster::shared();
    let mut scene = Scene::new(cluster.kubectl());
    let service = format!("gate.{}.svc", scene.namespace);
    let hooks = Webhooks::start(&service, |path, request| match path {
        "mark" => patched(&json!([{"op": "add", "path": "/metadata/labels/touched", "value": request["operation"]}])),
        _ => gate(path, request),
    });
    let mark = hook(&scene, "mark", &hooks.client_config("mark"));
    scene.configure("MutatingWebhookConfiguration", json!({"webhooks": [mark]}));
    // One is reached at a URL, the other through a Service.
    let namespace = scene.namespace.clone();
    scene.kubectl.apply(
        &json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "gate", "namespace": namespace},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        })
        .to_string(),
    );
    let service = json!({
        "service": {"name": "gate", "namespace": namespace, "port": hooks.port, "path": "/gate"},
        "caBundle": hooks.ca_bundle,
    });
    let gate = hook(&scene, "gate", &service);
    scene.configure("ValidatingWebhookConfiguration", json!({"webhooks": [gate]}));

    let refusal = scene.refusal("bad", &json!({"forbidden": "yes"}));
    assert!(refusal.contains(DENIED), "{refusal}");
    let touched = eventually("the label that the webhook adds", PATIENCE, || {
        scene.dry("good", json!({"a": "b"}))["metadata"]["labels"]["touched"].as_str().map(str::to_owned)
    });
    assert_eq!(touched, "CREATE");
    scene.create("good", json!({"a": "b"}));
    let created = scene.read("good");
    assert_eq!(created["metadata"]["labels"], json!({"a": "b", "touched": "CREATE"}));
    let annotated = scene.kubectl.command(&["label", "source", "good", "x=y", "--namespace", &namespace]).output();
    let said = String::from_utf8(annotated.unwrap().stderr).unwrap();
    assert!(said.contains("Warning: looked at"), "{said}");
    assert_eq!(scene.read("good")["metadata"]["labels"], json!({"a": "b", "touched": "UPDATE", "x": "y"}));
    let label = ["label", "source", "good", "forbidden=yes", "--namespace", &namespace];
    assert!(scene.kubectl.refused(&label).contains(DENIED));

    // The first, dry runs too, were asked as such.
    let asked = hooks.asked("good");
    let creations: Vec<_> = asked.iter().filter(|(_, request)| request["operation"] == "CREATE").collect();
    assert!(creations.iter().any(|(_, request)| request["dryRun"] == true), "{creations:#?}");
    assert_eq!(creations.iter().filter(|(_, request)| request["dryRun"] == false).count(), 2, "{creations:#?}");
    let (_, shown) = creations.iter().find(|(path, _)| path == "mark").unwrap();
    let manager = &shown["object"]["metadata"]["managedFields"][0];
    assert_eq!(manager["manager"], "kubectl-create", "{shown:#}");
    // What the webhook adds is nobody's.
    let owned = scene.kubectl.run(&[
        "get",
        "source",
        "good",
        "--namespace",
        &namespace,
        "--show-managed-fields",
        "--output=jsonpath={.metadata.managedFields}",
    ]);
    assert!(owned.contains("f:a") && !owned.contains("f:touched"), "{owned}");
}

#[test]
fn unavailable_webhook_follows_failure_policy() {
    let cluster = Cluster::shared();
    let mut scene = Scene::new(cluster.kubectl());
    let hooks = Webhooks::start("gate", gate);
    let mut down = hook(&scene, "down", &hooks.client_config("gate"));
    drop(hooks);
    down["matchConditions"] = json!([{"name": "not-excused", "expression": "object.metadata.name != 'excused'"}]);
    scene.configure("ValidatingWebhookConfiguration", json!({"webhooks": [down]}));
    let refusal = scene.refusal("a", &json!({}));
    let text = "Internal error occurred: failed calling webhook \"down.hooks.test\": failed to call webhook: Post";
    assert!(refusal.contains(text) && refusal.contains("connection refused"), "{refusal}");
    // Its conditions are looked at before it is called.
    scene.would_create("excused", json!({})).unwrap();
    down["failurePolicy"] = json!("Ignore");
    scene.configure("ValidatingWebhookConfiguration", json!({"webhooks": [down]}));
    scene.acceptance("a", &json!({}));
}

#[test]
fn a_webhook_that_points_elsewhere_is_not_followed() {
    let cluster = Cluster::shared();
    let mut scene = Scene::new(cluster.kubectl());
    let hooks = Webhooks::start("gate", gate);
    let moved = hook(&scene, "moved", &hooks.client_config("moved"));
    scene.configure("ValidatingWebhookConfiguration", json!({"webhooks": [moved]}));
    let refusal = scene.refusal("a", &json!({}));
    assert!(refusal.contains("failed calling webhook \"moved.hooks.test\""), "{refusal}");
    assert!(hooks.asked("a").is_empty());
}

#[test]
fn selectors_decide_which_objects_a_webhook_is_asked_about() {
    let cluster = Cluster::shared();
    let mut scene = Scene::new(cluster.kubectl());
    let elsewhere = Scene::new(cluster.kubectl());
    let hooks = Webhooks::start("gate", gate);
    let mut gate = hook(&scene, "gate", &hooks.client_config("gate"));
    gate["objectSelector"] =
        json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["prod", "stage"]}]});
    scene.configure("ValidatingWebhookConfiguration", json!({"webhooks": [gate]}));
    let refusal = scene.refusal("a", &json!({"forbidden": "yes", "tier": "prod"}));
    assert!(refusal.contains(DENIED), "{refusal}");
    scene.would_create("b", json!({"forbidden": "yes", "tier": "test"})).unwrap();
    elsewhere.would_create("c", json!({"forbidden": "yes", "tier": "prod"})).unwrap();
    assert!(hooks.asked("b").is_empty() && hooks.asked("c").is_empty());
    // An object that had the label counts, too, so that nobody slips away by taking it off.
    scene.create("d", json!({"tier": "stage"}));
    let namespace = scene.namespace.clone();
    scene.kubectl.run(&["label", "source", "d", "tier-", "--namespace", &namespace]);
    let last = hooks.asked("d").pop().expect("it was asked").1;
    assert_eq!((&last["operation"], &last["object"]["metadata"]["labels"]), (&json!("UPDATE"), &json!(null)));
}

#[test]
fn later_change_reinvokes_webhook() {
    let cluster = Cluster::shared();
    let mut scene = Scene::new(cluster.kubectl());
    let hooks = Webhooks::start("gate", |path, request| {
        let labels = &request["object"]["metadata"]["labels"];
        let missing = |label: &str| labels[label].is_null();
        let add = |label: &str, value: &str| {
            patched(&json!([{"op": "add", "path": format!("/metadata/labels/{label}"), "value": value}]))
        };
        match path {
            "late" if missing("late") => add("late", "yes"),
            "early" if !missing("late") => add("early", "again"),
            _ => json!({"allowed": true}),
        }
    });
    let mut early = hook(&scene, "early", &hooks.client_config("early"));
    early["reinvocationPolicy"] = json!("IfNeeded");
    let late = hook(&scene, "late", &hooks.client_config("late"));
    scene.configure("MutatingWebhookConfiguration", json!({"webhooks": [early, late]}));
    let labels = eventually("both were asked", PATIENCE, || {
        let labels = scene.dry("a", json!({"a": "b"}))["metadata"]["labels"].clone();
        (labels["late"] == "yes").then_some(labels)
    });
    assert_eq!(labels["early"], "again");
    let paths: Vec<_> = hooks.asked("a").into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths[paths.len() - 3..], ["early", "late", "early"]);
}

#[tokio::test]
async fn calls_of_webhooks_are_counted() {
    let cluster = Cluster::shared();
    let counted = tokio::task::spawn_blocking(move || {
        let mut scene = Scene::new(cluster.kubectl());
        let hooks = Webhooks::start("gate", gate);
        let name = format!("{}.hooks.test", scene.namespace);
        let mut counted = hook(&scene, "gate", &hooks.client_config("gate"));
        counted["name"] = json!(name);
        scene.configure("ValidatingWebhookConfiguration", json!({"webhooks": [counted]}));
        scene.refusal("a", &json!({"forbidden": "yes"}));
        (cluster.replicas().swap_remove(0), name)
    });
    let (direct, name) = counted.await.unwrap();
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = direct.request_text(request).await.unwrap();
    let rejections = format!(
        "apiserver_admission_webhook_rejection_count{{error_type=\"no_error\",name=\"{name}\",operation=\"CREATE\",\
         rejection_code=\"403\",type=\"validating\"}} 1"
    );
    assert!(metrics.contains(&rejections), "{rejections}");
    let help =
        "# HELP apiserver_admission_webhook_rejection_count [ALPHA] Admission webhook rejection count, identified by";
    assert!(metrics.contains(help), "{help}");
    for name in [
        "apiserver_admission_controller_admission_duration_seconds",
        "apiserver_admission_step_admission_duration_seconds",
    ] {
        assert!(metrics.contains(&format!("{name}_count{{")), "{name}");
    }
}
