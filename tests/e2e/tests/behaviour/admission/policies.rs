use serde_json::{Value, json};
use stoa_e2e::fixture::{Organization, condition, config_maps};
use stoa_e2e::{Cluster, Server as _, eventually};

use super::{Scene, rules};
use crate::PATIENCE;

/// Configures a policy about new Sources in the scene's namespace, and its binding.
fn policy(scene: &mut Scene, kind: &str, spec: Value, binding: Value) {
    let mut policy = json!({"matchConstraints": {"resourceRules": rules(&["CREATE"])}});
    policy.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let mut bound = json!({"policyName": scene.namespace, "matchResources": {"namespaceSelector": scene.selector()}});
    bound.as_object_mut().unwrap().extend(binding.as_object().unwrap().clone());
    scene.configure(kind, json!({"spec": policy}));
    scene.configure(&format!("{kind}Binding"), json!({"spec": bound}));
}

#[test]
fn a_policy_with_a_parameter_refuses_objects() {
    let cluster = Cluster::shared();
    let mut scene = Scene::new(cluster.kubectl());
    let namespace = scene.namespace.clone();
    scene.kubectl.apply(
        &json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "names", "namespace": namespace},
            "data": {"prefix": "app-"},
        })
        .to_string(),
    );
    policy(
        &mut scene,
        "ValidatingAdmissionPolicy",
        json!({
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "validations": [{
                "expression": "object.metadata.name.startsWith(params.data.prefix)",
                "messageExpression": "'names begin with ' + params.data.prefix + ' in ' + namespaceObject.metadata.name",
            }],
        }),
        json!({
            "validationActions": ["Deny"], "paramRef": {"name": "names", "parameterNotFoundAction": "Deny"},
        }),
    );
    let text = format!(
        "ValidatingAdmissionPolicy '{namespace}' with binding '{namespace}' denied request: names begin with app- in \
         {namespace}"
    );
    eventually("the policy refuses with its parameter", PATIENCE, || {
        scene.would_create("web", json!({})).err().filter(|refusal| refusal.contains(&text))
    });
    scene.create("app-web", json!({}));
    scene.kubectl.run(&["delete", "configmap", "names", "--namespace", &namespace]);
    let missing = "no params found for policy binding with `Deny` parameterNotFoundAction";
    eventually("a missing parameter refuses", PATIENCE, || {
        scene.would_create("app-web-2", json!({})).err().filter(|refusal| refusal.contains(missing))
    });
}

#[test]
fn failed_policy_follows_failure_policy() {
    let cluster = Cluster::shared();
    let mut scene = Scene::new(cluster.kubectl());
    let spec = |failure_policy: &str| {
        json!({
            "failurePolicy": failure_policy,
            "validations": [{"expression": "object.spec.missing == 'here'"}],
        })
    };
    let actions = json!({"validationActions": ["Deny"]});
    policy(&mut scene, "ValidatingAdmissionPolicy", spec("Fail"), actions.clone());
    let refusal = scene.refusal("a", &json!({}));
    assert!(refusal.contains("resulted in error: no such key: missing"), "{refusal}");
    policy(&mut scene, "ValidatingAdmissionPolicy", spec("Ignore"), actions);
    scene.acceptance("a", &json!({}));
}

#[test]
fn binding_turns_violation_into_warning_and_audit_entry() {
    let cluster = Cluster::shared();
    let mut scene = Scene::new(cluster.kubectl());
    policy(
        &mut scene,
        "ValidatingAdmissionPolicy",
        json!({"validations": [{"expression": "has(object.metadata.labels)", "message": "it has no labels"}]}),
        json!({"validationActions": ["Warn", "Audit"]}),
    );
    let name = scene.namespace.clone();
    let file = tempfile::NamedTempFile::new().unwrap();
    let bare = json!({
        "apiVersion": "config.stoa.dev/v1alpha1", "kind": "Source", "metadata": {"name": "bare", "namespace": name},
        "spec": {"remote": "file:///bare.git"},
    });
    std::fs::write(file.path(), bare.to_string()).unwrap();
    let warning = format!(
        "Warning: Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{name}': it has no labels"
    );
    let path = file.path().to_str().unwrap();
    let create = [
        "create",
        "--dry-run=server",
        "--filename",
        path,
        "--as=ann",
        "--as-group=system:masters",
        "--as-group=audited:metadata",
    ];
    eventually("the warning", PATIENCE, || {
        let output = scene.kubectl.command(&create).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap().contains(&warning).then_some(())
    });
    let failures = eventually("the audit event", PATIENCE, || {
        let events = cluster.stoa_audit();
        let of_scene = events.iter().filter(|event| event["objectRef"]["namespace"] == name.as_str());
        of_scene
            .filter_map(|event| event["annotations"]["validation.policy.admission.k8s.io/validation_failure"].as_str())
            .next_back()
            .map(str::to_owned)
    });
    let failures: Value = serde_json::from_str(&failures).unwrap();
    assert_eq!(
        failures,
        json!([{
            "message": "it has no labels", "policy": name, "binding": name, "expressionIndex": 0,
            "validationActions": ["Warn", "Audit"],
        }])
    );
}

#[test]
fn a_policy_changes_objects() {
    let cluster = Cluster::shared();
    let mut scene = Scene::new(cluster.kubectl());
    policy(
        &mut scene,
        "MutatingAdmissionPolicy",
        json!({
            "reinvocationPolicy": "Never",
            "matchConditions": [{"name": "asks-for-it", "expression": "has(object.metadata.labels)"}],
            "variables": [{"name": "who", "expression": "request.userInfo.username.replace(':', '-')"}],
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {"expression":
                        "Object{metadata: Object.metadata{labels: {'by': variables.who}}, spec: Object.spec{ref: 'v1'}}"
                    },
                },
                {
                    "patchType": "JSONPatch",
                    "jsonPatch": {"expression":
                        "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('test.dev/ref'), \
                          value: object.spec.ref}]"
                    },
                },
            ],
        }),
        json!({}),
    );
    let made = eventually("the policy changes the object", PATIENCE, || {
        let made = scene.dry("a", json!({"a": "b"}));
        (made["spec"]["ref"] == "v1").then_some(made)
    });
    let labels = &made["metadata"]["labels"];
    assert_eq!((&labels["a"], &labels["test.dev/ref"]), (&json!("b"), &json!("v1")));
    assert!(labels["by"].as_str().is_some_and(|by| !by.is_empty()), "{labels}");
    scene.create("a", json!({"a": "b"}));
    assert_eq!(scene.read("a")["spec"]["ref"], "v1");

    // A change that does not fit the kind is told, where failures count.
    let broken = |failure_policy: &str| {
        json!({
            "reinvocationPolicy": "Never", "failurePolicy": failure_policy,
            "mutations": [{
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": "Object{spec: Object.spec{colour: 'red'}}"},
            }],
        })
    };
    policy(&mut scene, "MutatingAdmissionPolicy", broken("Fail"), json!({}));
    let refusal = scene.refusal("b", &json!({}));
    let name = &scene.namespace;
    let text = format!("policy '{name}' with binding '{name}' denied request: error applying patch");
    assert!(refusal.contains(&text) && refusal.contains(".spec.colour: field not declared in schema"), "{refusal}");
    policy(&mut scene, "MutatingAdmissionPolicy", broken("Ignore"), json!({}));
    scene.acceptance("b", &json!({}));
}

/// Refuses new Releases and Sources in the scene's namespace, with this message.
fn refuse_releases(scene: &mut Scene, message: &str) {
    policy(
        scene,
        "ValidatingAdmissionPolicy",
        json!({
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["delivery.stoa.dev", "config.stoa.dev"], "apiVersions": ["*"],
                "resources": ["releases", "sources"], "operations": ["CREATE"],
            }]},
            "validations": [{"expression": "false", "message": message, "reason": "Forbidden"}],
        }),
        json!({"validationActions": ["Deny"]}),
    );
}

/// The changes are made by then, and nobody would put them on record if the run ended with them.
#[test]
fn run_waits_until_admission_accepts_its_release() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let mut scene = Scene::of(cluster.kubectl(), &organization.name);
    refuse_releases(&mut scene, "not today");
    // Of the same policy.
    scene.refusal("other", &json!({}));
    organization.stack("web", &config_maps(&format!("{}-web", organization.name), 1, "first"));
    let run = organization.start("web", "Apply", "");
    let kubectl = cluster.kubectl();
    let is_told = |why: &str| {
        kubectl.watch(&organization.name, &format!("run/{run}"), PATIENCE, |run| {
            let message = condition(run, "Waiting")["message"].as_str().unwrap_or_default().to_owned();
            (message.contains("release 1 is not recorded yet") && message.contains(why)).then_some(())
        });
    };
    is_told("not today");
    let cancel = "--patch={\"spec\":{\"cancel\":true}}";
    kubectl.run(&["patch", "run", &run, "--namespace", &organization.name, "--type=merge", cancel]);
    // It is tried again, and tells of that rather than end.
    refuse_releases(&mut scene, "nor tomorrow");
    is_told("nor tomorrow");
    scene.lift();
    let ended = organization.ended(&run, PATIENCE);
    assert_eq!((&ended["status"]["phase"], &ended["status"]["release"]), (&"Succeeded".into(), &1.into()), "{ended:#}");
    assert_eq!(organization.revisions("web"), [1]);
    organization.succeed("web", "Destroy", "");
}
