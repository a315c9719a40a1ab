//! The object after an apply that releases fields of other managers, which a dry run cannot show.
//!
//! Start at [`applied`]. An apply makes two calls: the first releases fields, the second applies, and a server then
//! removes our own unwanted fields. A dry run of the second call alone still merges with the released fields. A server
//! may reject that, such as for two ports of one name. Therefore the dry run is made with the result instead.
//!
//! Follows `prune` of sigs.k8s.io/structured-merge-diff/v6/merge.

use serde_json::{Map, Value, json};
use stoa_engine::{Schema, merge};

use crate::field_ownership::{ReleasedFields, is_ours};
use crate::field_step::Step;

/// Fields of `metadata` that a dry run does not send: the server sets them, or they identify the object.
const NOT_PATCHED: [&str; 6] = ["managedFields", "resourceVersion", "generation", "uid", "name", "namespace"];

/// The object after the release and the apply of `wanted`, which is all that is sent.
pub(crate) fn applied(schema: &Schema, released: &ReleasedFields, wanted: &Map<String, Value>) -> Map<String, Value> {
    let mut object = Value::Object(released.object.clone());
    let fields = |manager: &'_ Value| manager["fieldsV1"].as_object().cloned().unwrap_or_default();
    let (ours, others): (Vec<&Value>, Vec<&Value>) = released.managers.iter().partition(|manager| is_ours(manager));
    let others: Vec<Map<String, Value>> = others.into_iter().map(fields).collect();
    let others: Vec<&Map<String, Value>> = others.iter().collect();
    let whole = Value::Object(wanted.clone());
    for manager in ours {
        prune(&fields(manager), &others, Some(&whole), &mut object);
    }
    let Value::Object(object) = object else { return Map::new() };
    merge::merged(schema, &object, wanted)
}

/// Removes the fields that we alone have and do not want.
fn prune(ours: &Map<String, Value>, others: &[&Map<String, Value>], wanted: Option<&Value>, object: &mut Value) {
    for (key, below) in ours {
        let (Some(step), Some(below)) = (Step::parse(key), below.as_object()) else { continue };
        let wanted = wanted.and_then(|wanted| step.in_value(wanted));
        let others: Vec<&Map<String, Value>> =
            others.iter().filter_map(|fields| fields.get(key)?.as_object()).collect();
        let is_whole = below.is_empty() || below.contains_key(".");
        if wanted.is_none() && others.is_empty() && is_whole {
            step.remove_from(object);
        } else if let Some(inner) = step.in_value_mut(object) {
            prune(below, &others, wanted, inner);
        }
    }
}

/// The JSON patch that makes `result` of the live object; refused when the object was changed since.
pub(crate) fn patch(live: &Map<String, Value>, result: &Map<String, Value>) -> Value {
    let nothing = Map::new();
    let metadata = |object: &'_ Map<String, Value>| object.get("metadata").and_then(Value::as_object).cloned();
    let (live_metadata, metadata) = (metadata(live), metadata(result));
    let version =
        json!({"op": "replace", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]});
    let mut patch = vec![version];
    let of_object = |key: &str| !matches!(key, "apiVersion" | "kind" | "metadata" | "status");
    differences("", live, result, &of_object, &mut patch);
    let (before, after) = (live_metadata.as_ref().unwrap_or(&nothing), metadata.as_ref().unwrap_or(&nothing));
    differences("/metadata", before, after, &|key| !NOT_PATCHED.contains(&key), &mut patch);
    patch.into()
}

fn differences(
    path: &str,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    is_patched: &dyn Fn(&str) -> bool,
    patch: &mut Vec<Value>,
) {
    let pointer = |key: &str| format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
    for (key, value) in after.iter().filter(|(key, value)| is_patched(key) && before.get(*key) != Some(value)) {
        // The patch replaces an existing field.
        patch.push(json!({"op": "add", "path": pointer(key), "value": value}));
    }
    for key in before.keys().filter(|key| is_patched(key) && !after.contains_key(*key)) {
        patch.push(json!({"op": "remove", "path": pointer(key)}));
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use http::{Request, Response};
    use http_body_util::BodyExt as _;
    use kube::Client;
    use kube::client::Body;
    use stoa_engine::{Owner, Resource, ResourceType, StateResource};
    use stoa_runtime::{ApplyRequest, Preview, Runtime as _};

    use super::*;
    use crate::KubernetesRuntime;
    use crate::cluster::{Cluster, FIELD_MANAGER};
    use crate::connections::Connection;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn service(ports: Value) -> Map<String, Value> {
        map(json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "web", "resourceVersion": "7", "labels": {"tier": "web"}}, "spec": {"ports": ports}}))
    }

    fn entry(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "fieldsV1": fields})
    }

    fn result(object: Map<String, Value>, managers: Value, wanted: &Map<String, Value>) -> Map<String, Value> {
        let released = ReleasedFields { object, managers: managers.as_array().unwrap().clone() };
        applied(Schema::built_in(wanted).unwrap(), &released, wanted)
    }

    #[test]
    fn released_port_frees_its_name() {
        // Port 80 is released: it is not in the object any more, and among our fields.
        let port = json!({".": {}, "f:port": {}, "f:name": {}});
        let ours = json!({"f:spec": {"f:ports": {r#"k:{"port":80,"protocol":"TCP"}"#: port}}});
        let wanted = service(json!([{"name": "http", "port": 8081}]));
        let result = result(service(json!([])), json!([entry(FIELD_MANAGER, "Apply", ours)]), &wanted);
        assert_eq!(result["spec"], json!({"ports": [{"name": "http", "port": 8081}]}));
        let live = service(json!([{"name": "http", "port": 80, "protocol": "TCP"}]));
        let expected = json!([
            {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
            {"op": "add", "path": "/spec", "value": {"ports": [{"name": "http", "port": 8081}]}},
        ]);
        assert_eq!(patch(&live, &result), expected);
    }

    #[test]
    fn unwanted_own_fields_are_removed() {
        let fields = json!({
            "f:metadata": {"f:labels": {"f:tier": {}}},
            "f:spec": {"f:ports": {
                ".": {},
                r#"k:{"port":80,"protocol":"TCP"}"#: {".": {}, "f:port": {}},
                r#"k:{"port":81,"protocol":"TCP"}"#: {".": {}, "f:port": {}, "f:name": {}},
                r#"k:{"port":82,"protocol":"TCP"}"#: {"f:name": {}},
            }},
        });
        let theirs = json!({"f:spec": {"f:ports": {r#"k:{"port":81,"protocol":"TCP"}"#: {".": {}, "f:port": {}}}}});
        let port = |port: u16| json!({"name": format!("p{port}"), "port": port, "protocol": "TCP"});
        let object = service(json!([port(80), port(81), port(82), port(83)]));
        let managers = json!([entry(FIELD_MANAGER, "Apply", fields), entry("flux", "Apply", theirs)]);
        let mut wanted = service(json!([{"name": "p83", "port": 83}]));
        wanted["metadata"] = json!({"name": "web"});
        let result = result(object.clone(), managers, &wanted);
        let left = json!([{"port": 81, "protocol": "TCP"}, {"port": 82, "protocol": "TCP"}, port(83)]);
        assert_eq!(result["spec"]["ports"], left);
        assert_eq!(result["metadata"]["labels"], json!({}));
        assert_eq!(patch(&object, &result).as_array().unwrap().len(), 3);
    }
    /// A cluster with one Service, that refuses what is applied to it and takes a dry run of a JSON patch as it is.
    fn cluster(live: Map<String, Value>) -> Cluster {
        let server = tower::service_fn(move |request: Request<Body>| {
            let live = live.clone();
            async move {
                let (parts, body) = request.into_parts();
                let sent: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap_or_default();
                let content = parts.headers.get("content-type").map_or("", |it| it.to_str().unwrap());
                let (code, answer) = match (parts.uri.path(), content) {
                    ("/api/v1", _) => {
                        let services = json!({"name": "services", "kind": "Service", "namespaced": true});
                        (200_u16, json!({"resources": [services]}))
                    }
                    ("/api/v1/namespaces/shop", _) => {
                        (200, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}))
                    }
                    (_, "application/apply-patch+yaml") => {
                        let cause =
                            json!({"reason": "FieldValueDuplicate", "message": "m", "field": "spec.ports[1].name"});
                        let message = "spec.ports[1].name: Duplicate value: \"http\"";
                        (422, json!({"kind": "Status", "message": message, "details": {"causes": [cause]}}))
                    }
                    (_, "application/json-patch+json") => {
                        assert!(parts.uri.query().unwrap().contains("dryRun=All"));
                        let mut object = Value::Object(live);
                        for operation in sent.as_array().unwrap() {
                            let path = operation["path"].as_str().unwrap();
                            let (map, key) = path.rsplit_once('/').unwrap();
                            let map = object.pointer_mut(map).unwrap().as_object_mut().unwrap();
                            map.insert(key.to_owned(), operation["value"].clone());
                        }
                        (200, object)
                    }
                    _ => (200, Value::Object(live)),
                };
                let body = Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        Cluster::new("main".to_owned(), Connection::new(String::new(), Client::new(server, "default")))
    }

    #[tokio::test]
    async fn preview_omits_released_fields() {
        let of_shop = |mut object: Map<String, Value>| {
            object["metadata"]["namespace"] = "shop".into();
            object
        };
        let ports = json!({r#"k:{"port":80,"protocol":"TCP"}"#: {".": {}, "f:port": {}, "f:name": {}}});
        let check = async |manager: &str, operation: &str| {
            let mut live = of_shop(service(json!([{"name": "http", "port": 80, "protocol": "TCP"}])));
            live["metadata"]["managedFields"] =
                json!([entry(manager, operation, json!({"f:spec": {"f:ports": ports}}))]);
            let wanted = of_shop(service(json!([{"name": "http", "port": 8081}])));
            let (id, kind) = ("v1:Service:shop:web".into(), ResourceType::Kubernetes);
            let (depends_on, extensions) = Default::default();
            let desired = Resource { id, kind, attributes: wanted, depends_on, extensions };
            let named = StateResource::named_by(&desired.id).unwrap();
            let prior = StateResource { attributes: of_shop(service(json!([{"name": "http", "port": 80}]))), ..named };
            let [organization, stack, workspace, stack_uid] = ["shop", "web", "dev", "uid"].map(str::to_owned);
            let owner = Owner { organization, stack, workspace, stack_uid };
            let runtime = KubernetesRuntime::of(vec![Arc::new(cluster(live.clone()))], owner);
            runtime.preview(&ApplyRequest::new(&desired, Some(&prior)), Some(&live)).await
        };
        for manager in ["kubectl-client-side-apply", "kubectl-create"] {
            let Preview::Changed(object) = check(manager, "Update").await.unwrap() else { panic!("{manager}") };
            assert_eq!(object["spec"], json!({"ports": [{"name": "http", "port": 8081}]}));
        }
        // A manager that applies a field still owns it.
        let refused = check("flux", "Apply").await.unwrap_err();
        assert!(refused.to_string().contains("Duplicate value"), "{refused}");
    }
}
