//! Tests of other writers: additions to shared values stay, additions to atomic values are drift.

use super::*;

/// Compares what is live with what is wanted and recorded so, without a look at what the server would make, and then with the
/// answer that it would make it as wanted.
fn check_drift(wanted: Value, live: Value, expected: &str) {
    check_recorded(wanted.clone(), wanted.clone(), live.clone(), expected);
    assert_eq!(changes(Some(wanted.clone()), wanted.clone(), live, Some(wanted)), expected);
}

#[test]
fn additions_to_atomic_value_are_drift() {
    let policy = |spec: Value| object("networking.k8s.io/v1", "NetworkPolicy", spec);
    check_drift(
        policy(json!({"ingress": [{"ports": [{"port": 80, "protocol": "TCP"}]}], "podSelector": {}})),
        policy(json!({"ingress": [{"ports": [{"port": 80, "protocol": "TCP"}, {"port": 22, "protocol": "TCP"}]}],
            "podSelector": {"matchLabels": {"app": "web"}}})),
        "!spec.ingress[0].ports[1]: {\"port\":22,\"protocol\":\"TCP\"} > -\n\
         !spec.podSelector.matchLabels: {\"app\":\"web\"} > -",
    );
    check_drift(
        policy(json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}]}]})),
        policy(json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {}, "namespaceSelector": {}}]}]})),
        "!spec.ingress[0].from[0].namespaceSelector: {} > -",
    );
    for selector in [json!({"app": "web"}), json!({"app": "web", "track": null})] {
        check_drift(
            service(json!({ "selector": selector })),
            service(json!({"selector": {"app": "web", "track": "canary"}})),
            "!spec.selector.track: \"canary\" > -",
        );
    }
    let template = |selector: Value, key: Value| {
        let env = json!([{"name": "A", "valueFrom": {"secretKeyRef": key}}]);
        let spec = json!({"containers": [{"name": "web", "env": env}], "nodeSelector": selector});
        object("apps/v1", "Deployment", json!({"template": {"spec": spec}}))
    };
    check_drift(
        template(json!({"disk": "ssd"}), json!({"name": "a", "key": "b"})),
        template(json!({"disk": "ssd", "zone": "a"}), json!({"name": "a", "key": "b", "optional": true})),
        "!spec.template.spec.containers[name=web].env[name=A].valueFrom.secretKeyRef.optional: true > -\n\
         !spec.template.spec.nodeSelector.zone: \"a\" > -",
    );
}

#[test]
fn additions_to_shared_value_stay() {
    check_recorded(
        service(json!({"ports": [{"port": 80}]})),
        service(json!({"ports": [{"port": 80}]})),
        service(json!({"ports": [{"port": 80, "protocol": "TCP", "nodePort": 30000}, {"port": 81, "protocol": "TCP"}],
            "selector": {"theirs": "x"}})),
        "",
    );
}

#[test]
fn server_defaults_are_not_drift() {
    let check = |api_version: &str, kind: &str, wanted: Value, live: Value, moved: Value| {
        let [wanted, live, moved] = [wanted, live, moved].map(|spec| object(api_version, kind, spec));
        check_recorded(wanted.clone(), wanted.clone(), live.clone(), "");
        assert_ne!(changes(Some(wanted.clone()), wanted, moved.clone(), None), "", "{moved}");
    };
    let ports = |port: Value| json!({"podSelector": {}, "egress": [{"ports": [port]}]});
    check(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        ports(json!({"port": 80})),
        ports(json!({"port": 80, "protocol": "TCP"})),
        ports(json!({"port": 80, "protocol": "UDP"})),
    );
    let claims = |claim: Value| json!({ "volumeClaimTemplates": [claim] });
    let wanted = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}});
    let mut live = wanted.clone();
    live["apiVersion"] = json!("v1");
    live["kind"] = json!("PersistentVolumeClaim");
    live["spec"]["volumeMode"] = json!("Filesystem");
    live["status"] = json!({"phase": "Pending"});
    let mut moved = live.clone();
    moved["spec"]["storageClassName"] = json!("fast");
    check("apps/v1", "StatefulSet", claims(wanted), claims(live), claims(moved));
    let limits = |limit: Value| json!({ "limits": [{"type": "Pod", "max": {"cpu": "4"}}, limit] });
    let wanted = json!({"type": "Container", "max": {"cpu": "2000m", "memory": "1Gi"}, "min": {"storage": "1Gi"},
        "default": {"memory": "512Mi"}});
    let live = json!({"type": "Container", "max": {"cpu": "2", "memory": "1Gi"}, "min": {"storage": "1Gi"},
        "default": {"cpu": "2", "memory": "512Mi"}, "defaultRequest": {"cpu": "2", "memory": "512Mi", "storage": "1Gi"}});
    for (map, resource, quantity) in [
        ("default", "cpu", "1"),
        ("default", "storage", "1Gi"),
        ("defaultRequest", "memory", "1Gi"),
        ("defaultRequest", "pods", "1"),
    ] {
        let mut moved = live.clone();
        moved[map][resource] = json!(quantity);
        check("v1", "LimitRange", limits(wanted.clone()), limits(live.clone()), limits(moved));
    }
    let devices = |request: Value| json!({"devices": {"requests": [{"name": "gpu", "exactly": request}]}});
    let wanted = json!({"deviceClassName": "gpu", "tolerations": [{"key": "a"}]});
    let mut live = wanted.clone();
    live["allocationMode"] = json!("ExactCount");
    live["count"] = json!(1);
    live["tolerations"][0]["operator"] = json!("Equal");
    let mut moved = live.clone();
    moved["count"] = json!(2);
    for (kind, is_template) in [("ResourceClaim", false), ("ResourceClaimTemplate", true)] {
        let claim = |request: &Value| match is_template {
            true => json!({"spec": devices(request.clone())}),
            false => devices(request.clone()),
        };
        check("resource.k8s.io/v1", kind, claim(&wanted), claim(&live), claim(&moved));
    }
    let claim = |claim: Value| json!({ "claimRef": claim });
    check(
        "v1",
        "PersistentVolume",
        claim(json!({"name": "data", "namespace": "shop"})),
        claim(json!({"name": "data", "namespace": "shop", "uid": "u", "kind": "PersistentVolumeClaim"})),
        claim(json!({"name": "other", "namespace": "shop", "uid": "u"})),
    );
}

#[test]
fn owner_annotation_is_no_change() {
    let object =
        |annotations: Value| json!({"metadata": {"name": "web", "annotations": annotations}, "data": {"a": "1"}});
    let bare = json!({"metadata": {"name": "web"}, "data": {"a": "1"}});
    let marked = object(json!({crate::owner::MARK: "shop/web/dev/u"}));
    for (desired, live, preview) in [
        (&bare, &marked, None),
        (&bare, &bare, Some(&marked)),
        (&bare, &marked, Some(&marked)),
        (&bare, &object(json!({crate::owner::MARK: "shop/other/dev/u"})), Some(&marked)),
        (&marked, &object(json!({crate::owner::MARK: "shop/other/dev/u"})), None),
    ] {
        let prior = Some(bare.clone());
        assert_eq!(changes(prior, desired.clone(), live.clone(), preview.cloned()), "", "{live} {preview:?}");
    }
    let more = object(json!({"x": "y", crate::owner::MARK: "shop/web/dev/u"}));
    assert_eq!(
        changes(Some(bare.clone()), object(json!({"x": "y"})), bare, Some(more)),
        r#"metadata.annotations: - > {"x":"y"}"#,
        "what is wanted beside it is shown"
    );
}
