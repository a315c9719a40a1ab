//! Tests of plans against a real server.

use super::*;

/// The changes that a plan would make of a resource with its own record, by the live object and the schema of the
/// cluster, without a dry run.
async fn planned(runtime: &KubernetesRuntime, desired: &Resource) -> Vec<String> {
    let requests = [ReadRequest { desired: Some(desired), prior: None }];
    let live = BTreeMap::from([(desired.id.clone(), runtime.read(&requests).await.unwrap().remove(0).unwrap())]);
    let asked: Vec<&Resource> = [desired].into_iter().filter(|it| it.needs_schema()).collect();
    let schemas = runtime.kubernetes().schemas(&asked).await.unwrap();
    assert_eq!(schemas.len(), asked.len(), "the cluster says nothing of the kind");
    let spec = Spec { resources: vec![desired.clone()], ..Spec::default() };
    let state = State { resources: vec![recorded(desired, Map::new())], ..State::default() };
    let keys = DigestKeys::new(&[7; 32], &[]);
    let input = PlanInput {
        live: &live,
        schemas: &schemas,
        clusters: runtime.kubernetes().clusters(),
        ..PlanInput::blind(&spec, &state, runtime.owner(), &keys)
    };
    let action = stoa_engine::plan(&input).unwrap().actions.remove(0);
    action.changes.into_iter().map(|change| format!("{}{}", if change.drift { "!" } else { "" }, change.path)).collect()
}

#[tokio::test]
async fn custom_lists_are_compared_by_definition() {
    let test = TestNamespace::new().await;
    let group = format!("{}.example.com", unique("g"));
    let item = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string"}, "value": {"type": "string"}}});
    let spec = json!({"type": "object", "properties": {
        "shared": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": item},
        "ports": {"type": "array", "items": item}}});
    let definition = resource(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}}));
    let crd = test.apply(&definition, None).await.unwrap();
    assert_eq!(test.runtime.wait_healthy(&definition, &ignore).await.unwrap(), Health::Current);
    let ours = json!([{"name": "a", "value": "1"}]);
    let widget = resource(json!({"apiVersion": format!("{group}/v1"), "kind": "Widget",
        "metadata": {"name": "w", "namespace": test.namespace}, "spec": {"shared": ours, "ports": ours}}));
    test.apply(&widget, None).await.unwrap();
    // The server takes a moment to describe what it serves already.
    let mut waits = 0;
    while runtime_of("web").await.schemas(&[&widget]).await.unwrap().is_empty() {
        waits += 1;
        assert!(waits < 100, "the kind is never described");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let runtime = runtime_of("web").await;
    assert_eq!(planned(&runtime, &widget).await, [""; 0]);

    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&group, "v1", "Widget"), "widgets");
    let widgets: Api<DynamicObject> = Api::namespaced_with(test.client.clone(), &test.namespace, &kind);
    let theirs = json!({"name": "theirs", "value": "2"});
    let applied =
        Patch::Apply(json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "spec": {"shared": [theirs]}}));
    widgets.patch("w", &PatchParams::apply("others"), &applied).await.unwrap();
    assert_eq!(planned(&runtime, &widget).await, [""; 0], "they may add to a list that is shared");
    let by_hand = Patch::Merge(json!({"spec": {"ports": [ours[0], theirs]}}));
    widgets.patch("w", &PatchParams::default(), &by_hand).await.unwrap();
    assert_eq!(planned(&runtime, &widget).await, ["!spec.ports[name=theirs]"]);
    test.delete(&recorded(&widget, Map::new())).await.unwrap();
    test.delete(&recorded(&definition, crd.live)).await.unwrap();
}

#[tokio::test]
async fn built_in_schemas_match_server() {
    let test = TestNamespace::new().await;
    let get = async |path: &str| -> Value {
        test.client.request(http::Request::get(path).body(Vec::new()).unwrap()).await.unwrap()
    };
    let is_built_in = |group: &str| !group.contains('.') || group.ends_with(".k8s.io");
    let is_stable = |version: &str| version[1..].bytes().all(|digit| digit.is_ascii_digit());
    let groups = get("/apis").await;
    let mut served = vec![(String::new(), "v1".to_owned(), "/api/v1".to_owned())];
    for group in groups["groups"].as_array().unwrap() {
        let name = group["name"].as_str().unwrap();
        let versions = group["versions"].as_array().unwrap().iter().map(|version| version["version"].as_str().unwrap());
        let stable = versions.filter(|version| is_built_in(name) && is_stable(version));
        served.extend(stable.map(|version| (name.to_owned(), version.to_owned(), format!("/apis/{name}/{version}"))));
    }
    let mut compared = 0;
    for (group, version, path) in served {
        let document = get(&format!("/openapi/v3{path}")).await;
        for row in get(&path).await["resources"].as_array().unwrap() {
            let can_be_applied = row["verbs"].as_array().unwrap().contains(&json!("patch"));
            if row["name"].as_str().unwrap().contains('/') || !can_be_applied {
                continue;
            }
            let kind = row["kind"].as_str().unwrap();
            let api_version = path.trim_start_matches("/apis/").trim_start_matches("/api/");
            let object = json!({"apiVersion": api_version, "kind": kind}).as_object().cloned().unwrap();
            let told = Schema::of_kind(&document, &group, &version, kind).map(|schema| schema.merges());
            assert_eq!(Schema::built_in(&object).map(Schema::merges), told, "{api_version} {kind}");
            compared += 1;
        }
    }
    assert!(compared > 50, "{compared} kinds");
}

/// A Pod template with many server defaults. Pods of one name would be adopted by each other's owners.
fn pod_template(app: &str) -> Value {
    let labels = json!({ "app": app });
    json!({"metadata": {"labels": labels}, "spec": {
        "nodeSelector": {"disk": "ssd"},
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]}},
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm":
                {"topologyKey": "zone", "labelSelector": {"matchLabels": labels}}}]}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": labels}}],
        "imagePullSecrets": [{"name": "registry"}],
        "initContainers": [{"name": "init", "image": "example.com/a", "command": ["true"]}],
        "containers": [{
            "name": "web", "image": "example.com/a:1", "args": ["-v", "1"],
            "ports": [{"containerPort": 53}, {"containerPort": 53, "protocol": "UDP"}],
            "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}},
                {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "D", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            ],
            "envFrom": [{"configMapRef": {"name": "settings"}}],
            "resources": {"limits": {"cpu": "1000m"}},
            "readinessProbe": {"httpGet": {"port": 80, "httpHeaders": [{"name": "Host", "value": "web"}]}},
            "volumeMounts": [{"name": "all", "mountPath": "/all"}],
        }],
        "volumes": [
            {"name": "settings", "configMap": {"name": "settings", "items": [{"key": "a", "path": "a"}]}},
            {"name": "pod", "downwardAPI": {"items": [
                {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
                {"path": "cpu", "resourceFieldRef": {"containerName": "web", "resource": "limits.cpu"}}]}},
            {"name": "all", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token"}},
                {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                {"secret": {"name": "db"}}]}},
            {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}},
        ],
    }})
}

/// Objects of most kinds, by apiVersion and kind, without metadata. `true` marks cluster-scoped ones.
fn of_many_kinds() -> Vec<(&'static str, &'static str, bool, Value)> {
    const ADMISSION: &str = "admissionregistration.k8s.io/v1";
    const RBAC: &str = "rbac.authorization.k8s.io/v1";
    let labels = json!({"matchLabels": {"app": "web"}});
    let workload =
        |app: &str| json!({"spec": {"selector": {"matchLabels": {"app": app}}, "template": pod_template(app)}});
    let with = |mut object: Value, field: &str, value: Value| {
        object["spec"][field] = value;
        object
    };
    let claim = || json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}});
    let mut job = json!({"spec": {"template": pod_template("job"), "podFailurePolicy": {"rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}}});
    job["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    let webhooks = json!({"webhooks": [{
        "name": "web.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"service": {"name": "web", "namespace": "nowhere"}}, "objectSelector": labels,
        "rules": [{"apiGroups": ["nobody.example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["things"]}],
    }]});
    let matched = json!({"resourceRules": [
        {"apiGroups": ["nobody.example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["things"]}]});
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let binding = |kind: &str| {
        json!({"roleRef": {"kind": kind, "name": "web"}, "subjects": [
        {"kind": "User", "name": "jane"}, {"kind": "ServiceAccount", "name": "web", "namespace": "default"}]})
    };
    let scaled = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    vec![
        ("v1", "ConfigMap", false, json!({"data": {"a": "1"}})),
        ("v1", "Secret", false, json!({"stringData": {"a": "1"}})),
        (
            "v1",
            "ServiceAccount",
            false,
            json!({"imagePullSecrets": [{"name": "registry"}], "secrets": [{"name": "a"}]}),
        ),
        (
            "v1",
            "Service",
            false,
            json!({"spec": {"selector": {"app": "web"}, "ports": [
            {"name": "dns", "port": 53}, {"name": "dns-udp", "port": 53, "protocol": "UDP"}, {"name": "web", "port": 80}]}}),
        ),
        ("v1", "Endpoints", false, json!({"subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80}]}]})),
        ("v1", "PersistentVolumeClaim", false, json!({"spec": claim()})),
        (
            "v1",
            "PersistentVolume",
            true,
            json!({"spec": {"capacity": {"storage": "1024Mi"}, "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/nowhere"}, "claimRef": {"name": "nobody", "namespace": "nowhere"}}}),
        ),
        ("v1", "Pod", false, json!({"spec": pod_template("pod")["spec"]})),
        ("v1", "PodTemplate", false, json!({"template": pod_template("template")})),
        (
            "v1",
            "ReplicationController",
            false,
            json!({"spec": {"replicas": 0, "selector": {"app": "rc"}, "template": pod_template("rc")}}),
        ),
        (
            "v1",
            "ResourceQuota",
            false,
            json!({"spec": {"hard": {"pods": 1000}, "scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "In", "values": ["none"]}]}}}),
        ),
        ("apps/v1", "Deployment", false, workload("deployment")),
        ("apps/v1", "DaemonSet", false, workload("daemon")),
        ("apps/v1", "ReplicaSet", false, workload("replicas")),
        (
            "apps/v1",
            "StatefulSet",
            false,
            with(
                with(workload("stateful"), "serviceName", json!("web")),
                "volumeClaimTemplates",
                json!([{"metadata": {"name": "data"}, "spec": claim()}]),
            ),
        ),
        ("batch/v1", "Job", false, job.clone()),
        ("batch/v1", "CronJob", false, json!({"spec": {"schedule": "0 0 1 1 *", "jobTemplate": job}})),
        (
            "autoscaling/v1",
            "HorizontalPodAutoscaler",
            false,
            json!({"spec": {"scaleTargetRef": scaled, "maxReplicas": 2, "targetCPUUtilizationPercentage": 50}}),
        ),
        (
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            false,
            json!({"spec": {"scaleTargetRef": scaled, "maxReplicas": 2,
            "behavior": {"scaleDown": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "1000m"}}}]}}),
        ),
        (
            "networking.k8s.io/v1",
            "NetworkPolicy",
            false,
            json!({"spec": {"podSelector": {},
            "ingress": [{"from": [{"podSelector": labels}, {"ipBlock": {"cidr": "192.0.2.0/24"}}], "ports": [{"port": 80}]}],
            "egress": [{"ports": [{"port": 53, "protocol": "UDP"}, {"port": 1000, "endPort": 2000}]}]}}),
        ),
        (
            "networking.k8s.io/v1",
            "Ingress",
            false,
            json!({"spec": {
            "defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}, "tls": [{"hosts": ["a.example.com"]}],
            "rules": [{"host": "a.example.com", "http": {"paths": [{"path": "/", "pathType": "Prefix",
                "backend": {"service": {"name": "web", "port": {"name": "web"}}}}]}}]}}),
        ),
        (
            "networking.k8s.io/v1",
            "IngressClass",
            true,
            json!({"spec": {"controller": "example.com/a",
            "parameters": {"apiGroup": "example.com", "kind": "Thing", "name": "a"}}}),
        ),
        ("policy/v1", "PodDisruptionBudget", false, json!({"spec": {"minAvailable": 1, "selector": labels}})),
        (
            "discovery.k8s.io/v1",
            "EndpointSlice",
            false,
            json!({"addressType": "IPv4",
            "endpoints": [{"addresses": ["192.0.2.1"]}], "ports": [{"port": 80}]}),
        ),
        (RBAC, "Role", false, json!({"rules": rules})),
        (RBAC, "RoleBinding", false, binding("Role")),
        (RBAC, "ClusterRole", true, json!({"rules": rules})),
        (RBAC, "ClusterRoleBinding", true, binding("ClusterRole")),
        (ADMISSION, "ValidatingWebhookConfiguration", true, webhooks.clone()),
        (ADMISSION, "MutatingWebhookConfiguration", true, webhooks),
        (
            ADMISSION,
            "ValidatingAdmissionPolicy",
            true,
            json!({"spec": {"matchConstraints": matched,
            "validations": [{"expression": "true"}], "variables": [{"name": "a", "expression": "1"}]}}),
        ),
        (
            ADMISSION,
            "ValidatingAdmissionPolicyBinding",
            true,
            json!({"spec": {"policyName": "nobody", "validationActions": ["Audit"], "matchResources": matched}}),
        ),
        ("scheduling.k8s.io/v1", "PriorityClass", true, json!({"value": 1})),
        (
            "storage.k8s.io/v1",
            "StorageClass",
            true,
            json!({"provisioner": "example.com/a", "mountOptions": ["ro"],
            "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}]}),
        ),
        ("storage.k8s.io/v1", "CSIDriver", true, json!({"spec": {"volumeLifecycleModes": ["Ephemeral"]}})),
        (
            "node.k8s.io/v1",
            "RuntimeClass",
            true,
            json!({"handler": "a", "scheduling": {"nodeSelector": {"a": "b"},
            "tolerations": [{"key": "a", "operator": "Exists"}]}}),
        ),
        ("coordination.k8s.io/v1", "Lease", false, json!({"spec": {"holderIdentity": "a"}})),
        (
            "flowcontrol.apiserver.k8s.io/v1",
            "FlowSchema",
            true,
            json!({"spec": {
            "priorityLevelConfiguration": {"name": "catch-all"}, "rules": [{
                "subjects": [{"kind": "User", "user": {"name": "nobody"}}],
                "nonResourceRules": [{"nonResourceURLs": ["/nowhere"], "verbs": ["get"]}]}]}}),
        ),
    ]
}

#[tokio::test]
async fn built_in_defaults_are_not_drift() {
    let test = TestNamespace::new().await;
    let name = unique("as-wanted");
    let mut all = Vec::new();
    for (api_version, kind, is_global, mut object) in of_many_kinds() {
        let (version, lower) = (api_version.rsplit('/').next().unwrap(), kind.to_lowercase());
        // Two kinds may not have the same pods.
        object["metadata"] = json!({"name": format!("{name}-{lower}-{version}")});
        if !is_global {
            object["metadata"]["namespace"] = json!(test.namespace);
        }
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        let desired = resource(object);
        let applied = test.apply(&desired, None).await.unwrap_or_else(|err| panic!("{}: {err:?}", desired.id));
        all.push((desired, applied.live));
    }
    let mut moved = Vec::new();
    for (desired, _) in &all {
        assert!(!desired.needs_schema(), "{} is not known", desired.id);
        moved.extend(planned(&test.runtime, desired).await.into_iter().map(|field| format!("{}: {field}", desired.id)));
    }
    for (desired, live) in all {
        test.delete(&recorded(&desired, live)).await.unwrap();
    }
    assert_eq!(moved, [""; 0]);
}

#[tokio::test]
async fn volume_binding_is_not_drift() {
    let test = TestNamespace::new().await;
    let spec = json!({"accessModes": ["ReadWriteOnce"]});
    let object = |kind: &str, metadata: Value, more: Value| {
        let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec});
        object["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        resource(object)
    };
    let claimed = json!({"name": "data", "namespace": test.namespace});
    let volume = json!({"capacity": {"storage": "1Gi"}, "hostPath": {"path": "/nowhere"}, "claimRef": claimed});
    let volume = object("PersistentVolume", json!({"name": unique("bound")}), volume);
    let more = json!({"storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}});
    let claim = object("PersistentVolumeClaim", claimed, more);
    for desired in [&volume, &claim] {
        test.apply(desired, None).await.unwrap();
    }
    let mut waits = 0;
    let live = loop {
        let Live::Present(live) = test.read(&volume).await.unwrap() else { panic!("{volume:?}") };
        if live["status"]["phase"] == "Bound" {
            break live;
        }
        waits += 1;
        assert!(waits < 300, "{live:?}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    assert!(live["spec"]["claimRef"]["uid"].is_string(), "{live:?}");
    for desired in [&volume, &claim] {
        assert_eq!(planned(&test.runtime, desired).await, [""; 0]);
    }
    // It is protected while it is bound.
    for (desired, live) in [(&claim, Map::new()), (&volume, live)] {
        test.delete(&recorded(desired, live)).await.unwrap();
    }
}

/// The managers that have a field of `data`.
async fn managers_of(test: &TestNamespace, name: &str, key: &str) -> Vec<String> {
    let entries = test.config_maps().get(name).await.unwrap().metadata.managed_fields.unwrap_or_default();
    let field = format!("f:{key}");
    let has = |fields: &Value| fields["f:data"].get(&field).is_some();
    let holders = entries.into_iter().filter(|entry| entry.fields_v1.as_ref().is_some_and(|fields| has(&fields.0)));
    holders.filter_map(|entry| entry.manager).collect()
}

#[tokio::test]
async fn ignored_fields_stay_with_managers() {
    let test = TestNamespace::new().await;
    let mut desired = test.config_map("shared", &json!({"ours": "1", "theirs": "at first"}));
    let prior = recorded(&desired, test.apply(&desired, None).await.unwrap().live);
    desired.extensions.insert(IGNORE_FIELDS.to_owned(), json!(["data.theirs"]));
    desired.attributes["data"] = json!({"ours": "2", "theirs": "written anew"});
    let data = |applied: &Applied| applied.live["data"].clone();
    // Nobody else has it yet: left out, it would go.
    let first = test.apply(&desired, Some(&prior)).await.unwrap();
    assert_eq!(data(&first), json!({"ours": "2", "theirs": "at first"}));
    assert_eq!(managers_of(&test, "shared", "theirs").await, ["stoa"]);

    let autoscaler = PatchParams { field_manager: Some("autoscaler".to_owned()), ..PatchParams::default() };
    let moved = Patch::Merge(json!({"data": {"theirs": "moved"}}));
    test.config_maps().patch("shared", &autoscaler, &moved).await.unwrap();
    desired.attributes["data"]["ours"] = json!("3");
    let preview = test.runtime.preview(&ApplyRequest::new(&desired, Some(&prior)), None).await.unwrap();
    assert!(matches!(&preview, Preview::Changed(object) if object["data"]["theirs"] == "moved"), "{preview:?}");
    let second = test.apply(&desired, Some(&prior)).await.unwrap();
    assert_eq!(data(&second), json!({"ours": "3", "theirs": "moved"}));
    assert_eq!(managers_of(&test, "shared", "theirs").await, ["autoscaler"]);
    assert_eq!(managers_of(&test, "shared", "ours").await, ["stoa"]);
}
