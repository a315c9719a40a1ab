//! Field ownership: releases fields that were applied, are dropped from the Spec, and that another manager wrote too.
//!
//! A server keeps a field while any manager has it. Writers by other means than apply, such as `kubectl edit`, `kubectl
//! apply` without `--server-side`, Helm or Kusion, keep their fields forever. Therefore a dropped field is removed from
//! their entries before the apply, if it still has the value that was applied last. A field that others changed since
//! stays theirs. Managers that apply keep their fields: they drop them themselves.
//!
//! Sensitive values are compared by their digests. Ignored fields, and fields that may contain one, are not released.
//!
//! A field without a manager stays forever too. A Secret that was applied with `stringData` has no manager for the
//! resulting `data`. These keys are ours to remove, whatever their values.
//!
//! The annotation with the last manifest of `kubectl apply` says which fields the next `kubectl apply` removes. It is
//! removed with the first released field of its manager, since it does not describe the object any more.
//!
//! Follows `csaupgrade` of k8s.io/client-go.

use serde_json::{Map, Value, json};
use stoa_engine::object::{is_secret, secret_as_stored};
use stoa_engine::path::FieldPath;
use stoa_engine::secret_digest::is_masked;
use stoa_engine::{DigestKeys, Ignored, StateResource};

use crate::cluster::FIELD_MANAGER;
use crate::field_step::Step;

/// The annotation of `kubectl apply`, and the sets of fields around it.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const ANNOTATIONS: &str = "/f:metadata/f:annotations";

/// The applied and the wanted object, whose difference may be dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DroppedFields<'a> {
    pub(crate) prior: &'a StateResource,
    pub(crate) wanted: &'a Map<String, Value>,
    /// The keys of the digests in `prior`.
    pub(crate) keys: Option<&'a DigestKeys>,
    pub(crate) ignored: &'a Ignored,
}

impl DroppedFields<'_> {
    /// Whether a live value contains the recorded one.
    fn is_within(&self, recorded: &Value, live: &Value) -> bool {
        if is_masked(recorded) {
            return self.keys.is_some_and(|keys| keys.is_mask_of(self.prior.digest_id(), recorded, live));
        }
        match (recorded, live) {
            (Value::Object(recorded), Value::Object(live)) => recorded
                .iter()
                .all(|(name, recorded)| live.get(name).is_some_and(|live| self.is_within(recorded, live))),
            (Value::Array(recorded), Value::Array(live)) => {
                recorded.len() == live.len() && recorded.iter().zip(live).all(|(it, live)| self.is_within(it, live))
            }
            (recorded, live) => recorded == live,
        }
    }
}

/// An object without released fields.
#[derive(Debug, PartialEq)]
pub(crate) struct ReleasedFields {
    /// The object without them.
    pub(crate) object: Map<String, Value>,
    /// The `managedFields` without released fields.
    pub(crate) managers: Vec<Value>,
}

/// Releases the fields that were applied, are dropped, and have their applied values in `live`, and those without a
/// manager; `None` if there are none.
pub(crate) fn released(live: &Map<String, Value>, dropped: &DroppedFields<'_>) -> Option<ReleasedFields> {
    let managers = live.get("metadata")?.get("managedFields")?.as_array()?;
    // Most objects have other managers of their status only, and need no copy.
    if !is_secret(live) && !managers.iter().any(updates_without_apply) {
        return None;
    }
    let mut managers = managers.clone();
    // A Secret is live without `stringData`.
    let stored = |object| Value::Object(secret_as_stored(object).unwrap_or_else(|| Map::clone(object)));
    let (prior, wanted) = (stored(&dropped.prior.attributes), stored(dropped.wanted));
    let untouched = Value::Object(live.clone());
    let mut object = untouched.clone();
    let mut unmanaged = unmanaged(live, &prior, &managers);
    // Nobody else can have changed it.
    let at = At { dropped, path: FieldPath::default(), live: &untouched, prior: &untouched, wanted: Some(&wanted) };
    let mut released = release(&mut unmanaged, &at, Some(&mut object));
    for manager in managers.iter_mut().filter(|manager| updates_without_apply(manager)) {
        if let Some(fields) = manager.get_mut("fieldsV1").and_then(Value::as_object_mut) {
            let path = FieldPath::default();
            let at = At { dropped, path, live: &untouched, prior: &prior, wanted: Some(&wanted) };
            let of_manager = release(fields, &at, Some(&mut object));
            if !of_manager.is_empty() && remove_last_applied(manager) {
                let annotations = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
                annotations.into_iter().for_each(|annotations| drop(annotations.remove(LAST_APPLIED)));
            }
            unite(&mut released, of_manager);
        }
    }
    if released.is_empty() {
        return None;
    }
    // A field that always had its wanted value was never applied; ours is removed by the apply.
    add_to_manager(&mut managers, live.get("apiVersion"), released);
    managers.retain(|manager| manager["fieldsV1"].as_object().is_none_or(|fields| !fields.is_empty()));
    let Value::Object(object) = object else { return None };
    Some(ReleasedFields { object, managers })
}

/// Takes the annotation of `kubectl apply` from a manager; whether the manager had it.
fn remove_last_applied(manager: &mut Value) -> bool {
    let annotations = manager["fieldsV1"].pointer_mut(ANNOTATIONS).and_then(Value::as_object_mut);
    annotations.is_some_and(|annotations| annotations.remove(&format!("f:{LAST_APPLIED}")).is_some())
}

/// The applied keys of a Secret without a manager, in the form of a manager's fields; empty if there are none. A server
/// records the apply of `stringData`, and not the `data` that results (kubernetes/kubernetes#108008).
fn unmanaged(live: &Map<String, Value>, prior: &Value, managers: &[Value]) -> Map<String, Value> {
    let applied = prior.get("data").and_then(Value::as_object).filter(|_| is_secret(live));
    let is_held = |step: &str| {
        managers.iter().any(|manager| {
            let holds = |field: &str| manager["fieldsV1"].get(field).is_some_and(|keys| keys.get(step).is_some());
            holds("f:data") || holds("f:stringData") && !is_ours(manager)
        })
    };
    let steps = applied.into_iter().flat_map(|data| data.keys()).map(|key| format!("f:{key}"));
    let keys: Map<String, Value> = steps.filter(|step| !is_held(step)).map(|step| (step, json!({}))).collect();
    // An empty set would stand for the whole field.
    if keys.is_empty() { keys } else { Map::from_iter([("f:data".to_owned(), keys.into())]) }
}

/// The JSON patch that releases the fields. It fails when the object has changed since.
pub(crate) fn patch(live: &Map<String, Value>, released: &ReleasedFields) -> Value {
    let mut patch = vec![
        json!({"op": "replace", "path": "/metadata/managedFields", "value": released.managers}),
        json!({"op": "replace", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]}),
    ];
    let has_last_applied = |object: &Map<String, Value>| object["metadata"]["annotations"].get(LAST_APPLIED).is_some();
    if has_last_applied(live) && !has_last_applied(&released.object) {
        let path = format!("/metadata/annotations/{}", LAST_APPLIED.replace('/', "~1"));
        patch.push(json!({"op": "remove", "path": path}));
    }
    patch.into()
}

/// Gives fields to our own manager.
fn add_to_manager(managers: &mut Vec<Value>, api_version: Option<&Value>, fields: Map<String, Value>) {
    let own =
        managers.iter_mut().find(|manager| is_ours(manager)).and_then(|own| own.get_mut("fieldsV1")?.as_object_mut());
    match own {
        Some(own) => unite(own, fields),
        None => managers.push(json!({
            "manager": FIELD_MANAGER, "operation": "Apply", "apiVersion": api_version, "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        })),
    }
}

/// Adds fields to others.
fn unite(fields: &mut Map<String, Value>, more: Map<String, Value>) {
    for (key, more) in more {
        match (fields.get_mut(&key), more) {
            (Some(Value::Object(below)), Value::Object(more)) => unite(below, more),
            (_, more) => {
                fields.insert(key, more);
            }
        }
    }
}

/// Whether a manager is Stoa itself, with its applies.
fn is_ours(manager: &Value) -> bool {
    manager["manager"] == FIELD_MANAGER && manager["operation"] == "Apply" && is_of_object(manager)
}

/// Whether a manager is another one that updated the object without an apply, so that it keeps its fields forever.
fn updates_without_apply(manager: &Value) -> bool {
    manager["operation"] == "Update" && manager["manager"] != FIELD_MANAGER && is_of_object(manager)
}

fn is_of_object(manager: &Value) -> bool {
    manager.get("subresource").and_then(Value::as_str).is_none_or(str::is_empty)
}

/// One path in each form of the object.
struct At<'a> {
    dropped: &'a DroppedFields<'a>,
    path: FieldPath,
    live: &'a Value,
    prior: &'a Value,
    wanted: Option<&'a Value>,
}

/// Removes the released fields at a path and below from `fields` and from the object, if they are still there. Returns
/// them.
fn release(fields: &mut Map<String, Value>, at: &At<'_>, mut object: Option<&mut Value>) -> Map<String, Value> {
    let mut released = Map::new();
    let keys: Vec<String> = fields.keys().cloned().collect();
    for key in keys {
        let Some(step) = Step::parse(&key) else { continue };
        let (Some(live), Some(prior)) = (step.in_value(at.live), step.in_value(at.prior)) else { continue };
        let wanted = at.wanted.and_then(|wanted| step.in_value(wanted));
        let Some(path) = step.after(&at.path) else { continue };
        let below = At { dropped: at.dropped, path, live, prior, wanted };
        let Some(held) = fields.get_mut(&key).and_then(Value::as_object_mut) else { continue };
        // An item is removed as a whole or not at all, since a part would lack its key.
        let is_whole = held.is_empty() || matches!(step, Step::Item(_));
        let goes = if is_whole && below.wanted.is_none() {
            if at.dropped.ignored.touches(&below.path) || !at.dropped.is_within(prior, live) {
                continue;
            }
            true
        } else {
            let mut inner = object.as_deref_mut().and_then(|object| step.in_value_mut(object));
            let within = release(held, &below, inner.as_deref_mut());
            if within.is_empty() {
                continue;
            }
            released.insert(key.clone(), within.into());
            let is_empty = inner.is_none_or(|inner| match inner {
                Value::Object(map) => map.is_empty(),
                Value::Array(items) => items.is_empty(),
                _ => false,
            });
            let (is_released, is_over) = (held.is_empty(), held.keys().all(|key| key == "."));
            if is_released {
                fields.remove(&key);
            }
            below.wanted.is_none() && is_empty && is_over
        };
        if goes {
            if let Some(Value::Object(held)) = fields.remove(&key) {
                unite(&mut released, Map::from_iter([(key.clone(), held.into())]));
            }
            if let Some(object) = object.as_deref_mut() {
                step.remove_from(object);
            }
        }
    }
    released
}

#[cfg(test)]
mod tests {
    use stoa_engine::ignore::IGNORE_FIELDS;
    use stoa_engine::{Resource, ResourceType};

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    /// What is recorded of an object.
    fn record(attributes: &Map<String, Value>) -> StateResource {
        let named = StateResource::named_by(&"v1:Secret:shop:web".into()).unwrap();
        StateResource { attributes: attributes.clone(), ..named }
    }

    /// A resource that leaves these fields to others.
    fn ignoring(fields: Value) -> Ignored {
        let extensions = Map::from_iter([(IGNORE_FIELDS.to_owned(), fields)]);
        let (attributes, depends_on) = Default::default();
        let kind = ResourceType::Kubernetes;
        Ignored::of(&Resource { id: "web".into(), kind, attributes, depends_on, extensions }).unwrap()
    }

    fn released(
        live: &Map<String, Value>,
        prior: &Map<String, Value>,
        wanted: &Map<String, Value>,
    ) -> Option<ReleasedFields> {
        let ignored = &Ignored::default();
        super::released(live, &DroppedFields { prior: &record(prior), wanted, keys: None, ignored })
    }

    fn deployment(containers: Value, managers: Value) -> Map<String, Value> {
        map(json!({
            "metadata": {"name": "web", "resourceVersion": "7", "managedFields": managers},
            "spec": {"paused": true, "template": {"spec": {"containers": containers}}},
        }))
    }

    fn spec(containers: Value) -> Value {
        json!({"metadata": {"name": "web"}, "spec": {"template": {"spec": {"containers": containers}}}})
    }

    fn manager(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    /// A container `web` with environment variables of these names and values.
    fn container(variables: &[(&str, &str)]) -> Value {
        let variables: Vec<Value> =
            variables.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        json!([{"name": "web", "image": "web:1", "env": variables}])
    }

    /// What a manager holds who has written these environment variables.
    fn variables(names: &[&str]) -> Value {
        let held = names.iter().map(|name| {
            let key = format!("k:{}", json!({ "name": name }));
            (key, json!({".": {}, "f:name": {}, "f:value": {}}))
        });
        let mut env: Map<String, Value> = held.collect();
        env.insert(".".to_owned(), json!({}));
        json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {
            r#"k:{"name":"web"}"#: {".": {}, "f:name": {}, "f:image": {}, "f:env": env},
        }}}}})
    }

    #[test]
    fn dropped_field_is_released_from_its_writer() {
        let managers = json!([
            manager(FIELD_MANAGER, "Apply", &variables(&["A", "B"])),
            manager("kubectl-edit", "Update", &variables(&["A", "B", "C"])),
        ]);
        let live = deployment(container(&[("A", "1"), ("B", "2"), ("C", "3")]), managers.clone());
        let (prior, wanted) = (map(spec(container(&[("A", "1"), ("B", "2")]))), map(spec(container(&[("A", "1")]))));
        let released = released(&live, &prior, &wanted).unwrap();
        let left = json!([managers[0], manager("kubectl-edit", "Update", &variables(&["A", "C"]))]);
        assert_eq!(managers[0]["fieldsV1"], variables(&["A", "B"]), "it was ours, too");
        assert_eq!(json!(released.managers), left);
        let expected = deployment(container(&[("A", "1"), ("C", "3")]), managers);
        assert_eq!(released.object, expected, "what somebody else added stays");
        assert_eq!(
            patch(&live, &released),
            json!([
                {"op": "replace", "path": "/metadata/managedFields", "value": left},
                {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
            ])
        );
    }

    #[test]
    fn last_applied_annotation_is_released_with_field() {
        let mut fields = variables(&["A", "B"]);
        fields["f:metadata"] =
            json!({"f:annotations": {".": {}, "f:kubectl.kubernetes.io/last-applied-configuration": {}}});
        let client_side = manager("kubectl-client-side-apply", "Update", &fields);
        let mut live = deployment(container(&[("A", "1"), ("B", "2")]), json!([client_side]));
        live["metadata"]["annotations"] = json!({LAST_APPLIED: "{}", "a": "b"});
        let (both, one) = (map(spec(container(&[("A", "1"), ("B", "2")]))), map(spec(container(&[("A", "1")]))));
        assert_eq!(released(&live, &both, &both), None, "nothing is released");
        let change = released(&live, &both, &one).unwrap();
        assert_eq!(change.object["metadata"]["annotations"], json!({"a": "b"}));
        assert_eq!(change.managers[0]["fieldsV1"]["f:metadata"], json!({"f:annotations": {".": {}}}));
        let path = "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";
        assert_eq!(patch(&live, &change)[2], json!({"op": "remove", "path": path}));
        // Another manager has nothing to do with it.
        live["metadata"]["managedFields"] = json!([manager("kubectl-edit", "Update", &variables(&["A", "B"]))]);
        let released = released(&live, &both, &one).unwrap();
        assert_eq!(released.object["metadata"]["annotations"], live["metadata"]["annotations"]);
    }

    #[test]
    fn changed_and_applied_fields_of_others_stay() {
        let (prior, wanted) = (map(spec(container(&[("A", "1"), ("B", "2")]))), map(spec(container(&[("A", "1")]))));
        let check = |value: &str, manager: Value| {
            let live = deployment(container(&[("A", "1"), ("B", value)]), json!([manager]));
            released(&live, &prior, &wanted).is_some()
        };
        let fields = variables(&["A", "B"]);
        assert!(check("2", manager("kubectl-edit", "Update", &fields)));
        assert!(!check("3", manager("kubectl-edit", "Update", &fields)), "it is another value by now");
        assert!(!check("2", manager("argocd", "Apply", &fields)));
        assert!(!check("2", manager(FIELD_MANAGER, "Update", &fields)));
        assert!(!check("2", manager("kubectl-edit", "Update", &variables(&["A"]))));
        let mut of_status = manager("controller", "Update", &fields);
        of_status["subresource"] = "status".into();
        assert!(!check("2", of_status));
        // What is wanted still is nobody's to give up.
        let live =
            deployment(container(&[("A", "1"), ("B", "2")]), json!([manager("kubectl-edit", "Update", &fields)]));
        assert_eq!(released(&live, &prior, &prior), None);
    }

    #[test]
    fn released_field_is_removed_without_siblings() {
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:tier": {}}},
            "f:spec": {"f:paused": {}, "f:strategy": {"f:type": {}}},
        });
        let live = map(json!({
            "metadata": {
                "name": "web", "labels": {"tier": "web"},
                "managedFields": [manager("helm", "Update", &fields)],
            },
            "spec": {"paused": true, "strategy": {"type": "Recreate"}},
        }));
        let prior = map(json!({"metadata": {"labels": {"tier": "web"}}, "spec": {"paused": true}}));
        let released = released(&live, &prior, &map(json!({"metadata": {}, "spec": {}}))).unwrap();
        let ours = json!({"f:metadata": {"f:labels": {".": {}, "f:tier": {}}}, "f:spec": {"f:paused": {}}});
        let mut of_ours = manager(FIELD_MANAGER, "Apply", &ours);
        of_ours["apiVersion"] = Value::Null;
        let of_helm = manager("helm", "Update", &json!({"f:spec": {"f:strategy": {"f:type": {}}}}));
        assert_eq!(json!(released.managers), json!([of_helm, of_ours]), "what was never applied is ours to remove");
        assert_eq!(released.object["spec"], json!({"strategy": {"type": "Recreate"}}));
        assert_eq!(released.object["metadata"].get("labels"), None);
    }

    #[test]
    fn item_is_found_by_keys_with_defaults() {
        let ports = |ports: Value| map(json!({"spec": {"ports": ports}}));
        let key = r#"k:{"port":80,"protocol":"TCP"}"#;
        let fields = json!({"f:spec": {"f:ports": {".": {}, key: {".": {}, "f:port": {}, "f:protocol": {}}}}});
        let mut live = ports(json!([{"port": 80, "protocol": "TCP"}, {"port": 81, "protocol": "TCP"}]));
        live.insert("metadata".to_owned(), json!({"managedFields": [manager("kubectl-edit", "Update", &fields)]}));
        let prior = ports(json!([{"port": 80}, {"port": 81}]));
        let released = released(&live, &prior, &ports(json!([{"port": 81}]))).unwrap();
        assert_eq!(released.object["spec"], json!({"ports": [{"port": 81, "protocol": "TCP"}]}));
        let left = manager("kubectl-edit", "Update", &json!({"f:spec": {"f:ports": {".": {}}}}));
        assert_eq!(released.managers[0], left);
        assert_eq!(released.managers[1]["fieldsV1"]["f:spec"]["f:ports"][key], fields["f:spec"]["f:ports"][key]);
    }

    #[test]
    fn sensitive_value_is_released_by_digest() {
        let fields = json!({"f:data": {".": {}, "f:user": {}, "f:password": {}}});
        let (keys, others) = (DigestKeys::new(&[7; 32], &[[1; 32]]), DigestKeys::new(&[1; 32], &[]));
        let secret = |more: Value| {
            let mut object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web"}});
            object.as_object_mut().unwrap().extend(map(more));
            map(object)
        };
        let check = |prior: Value, password: &str, keys: Option<&DigestKeys>| {
            let mut live = secret(json!({"data": {"user": "YQ==", "password": password}}));
            live["metadata"]["managedFields"] = json!([manager("kubectl-create", "Update", &fields)]);
            let (prior, ignored) = (record(&secret(prior)), Ignored::default());
            let wanted = secret(json!({"stringData": {"user": "a"}}));
            let released =
                super::released(&live, &DroppedFields { prior: &prior, wanted: &wanted, keys, ignored: &ignored });
            released.map(|released| released.object["data"].clone())
        };
        let id = "v1:Secret:shop:web".into();
        let text = |keys: &DigestKeys| json!({"stringData": {"user": keys.mask(&id, &json!("a")), "password": keys.mask(&id, &json!("hunter2"))}});
        let encoded = json!({"data": {"password": keys.mask(&id, &json!("aHVudGVyMg=="))}});
        let left = Some(json!({"user": "YQ=="}));
        for prior in [text(&keys), text(&others), encoded] {
            assert_eq!(check(prior.clone(), "aHVudGVyMg==", Some(&keys)), left, "{prior}");
            assert_eq!(check(prior.clone(), "aHVudGVyMw==", Some(&keys)), None, "somebody changed it: {prior}");
            assert_eq!(check(prior, "aHVudGVyMg==", None), None, "nobody can tell");
        }
    }

    #[test]
    fn unmanaged_secret_key_is_removed() {
        let secret = |more: Value| {
            let mut object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web"}});
            object.as_object_mut().unwrap().extend(map(more));
            map(object)
        };
        let set = |field: &str| json!({field: {".": {}, "f:user": {}, "f:password": {}}});
        let prior = record(&secret(json!({"stringData": {"user": "a", "password": "hunter2"}})));
        let check = |managers: &[Value], wanted: Value, ignored: &Ignored| {
            let mut live = secret(json!({"data": {"user": "YQ==", "password": "aHVudGVyMg==", "theirs": "Yg=="}}));
            live["metadata"]["managedFields"] = managers.into();
            super::released(&live, &DroppedFields { prior: &prior, wanted: &secret(wanted), keys: None, ignored })
        };
        let (none, one) = (Ignored::default(), json!({"stringData": {"user": "a"}}));
        // As a server notes an apply of `stringData`.
        let applied = manager(FIELD_MANAGER, "Apply", &set("f:stringData"));
        let released = check(std::slice::from_ref(&applied), one.clone(), &none).unwrap();
        assert_eq!(released.object["data"], json!({"user": "YQ==", "theirs": "Yg=="}));
        let mut ours = set("f:stringData");
        ours["f:data"] = json!({"f:password": {}});
        assert_eq!(released.managers, [manager(FIELD_MANAGER, "Apply", &ours)]);
        // What is applied as `data` is nobody's, too, once the dry run of that is all that is known.
        let planned = manager(FIELD_MANAGER, "Apply", &json!({"f:data": {"f:user": {}}}));
        assert_eq!(check(&[planned], one.clone(), &none).unwrap().object["data"], released.object["data"]);
        assert_eq!(check(&[], json!({}), &none).unwrap().object["data"], json!({"theirs": "Yg=="}));

        // Whoever applies it has it, and so have we what goes anyway.
        for field in ["f:data", "f:stringData"] {
            assert_eq!(check(&[applied.clone(), manager("flux", "Apply", &set(field))], one.clone(), &none), None);
        }
        assert_eq!(check(&[manager(FIELD_MANAGER, "Apply", &set("f:data"))], one.clone(), &none), None);
        let both = json!({"data": {"user": "Yg=="}, "stringData": {"password": "other"}});
        assert_eq!(check(std::slice::from_ref(&applied), both, &none), None, "both are wanted");
        assert_eq!(check(&[applied], one, &ignoring(json!(["data.password"]))), None);
        // Of anything else it is not looked at.
        let mut live = map(json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"password": "hunter2"}}));
        live.insert(
            "metadata".to_owned(),
            json!({"managedFields": [manager("hpa", "Update", &json!({"f:spec": {}}))]}),
        );
        let prior = map(json!({"data": {"password": "hunter2"}}));
        assert_eq!(self::released(&live, &prior, &map(json!({}))), None);
    }

    #[test]
    fn ignored_fields_stay_with_others() {
        let managers = json!([manager("kubectl-edit", "Update", &variables(&["A", "B", "C"]))]);
        let live = deployment(container(&[("A", "1"), ("B", "2"), ("C", "3")]), managers);
        let prior = record(&map(spec(container(&[("A", "1"), ("B", "2"), ("C", "3")]))));
        let wanted = map(spec(container(&[("A", "1")])));
        let check = |fields: Value| {
            let released = super::released(
                &live,
                &DroppedFields { prior: &prior, wanted: &wanted, keys: None, ignored: &ignoring(fields) },
            );
            let object = Value::Object(released?.object);
            let env = object["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
            Some(env.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect::<String>())
        };
        assert_eq!(check(json!(["spec.replicas"])).as_deref(), Some("A"));
        let env = "spec.template.spec.containers[name=web].env";
        assert_eq!(check(json!([format!("{env}[name=B]")])).as_deref(), Some("AB"));
        assert_eq!(check(json!([format!("{env}[name=B].value")])).as_deref(), Some("AB"), "an item goes as a whole");
        assert_eq!(check(json!([env])), None);
        assert_eq!(check(json!(["spec.template.spec.containers[0].env[1]"])), None, "any of them may be meant");
        assert_eq!(check(json!(["spec.template"])), None);
    }

    #[test]
    fn set_value_is_released() {
        let finalizers = |names: &[&str]| map(json!({"metadata": {"name": "web", "finalizers": names}}));
        let fields =
            json!({"f:metadata": {"f:finalizers": {".": {}, "v:\"a/x\"": {}, "v:\"b/x\"": {}, "v:\"c/x\"": {}}}});
        let mut live = finalizers(&["a/x", "b/x", "c/x"]);
        live["metadata"]["managedFields"] = json!([manager("kubectl-edit", "Update", &fields)]);
        let prior = finalizers(&["a/x", "b/x"]);
        let released = released(&live, &prior, &finalizers(&["a/x"])).unwrap();
        assert_eq!(released.object["metadata"]["finalizers"], json!(["a/x", "c/x"]), "what others added stays");
        let ours = &released.managers[1]["fieldsV1"];
        assert_eq!(*ours, json!({"f:metadata": {"f:finalizers": {"v:\"b/x\"": {}}}}));
        let (ignored, wanted) = (ignoring(json!(["metadata.finalizers[0]"])), finalizers(&["a/x"]));
        let prior = record(&prior);
        let dropped = DroppedFields { prior: &prior, wanted: &wanted, keys: None, ignored: &ignored };
        assert_eq!(super::released(&live, &dropped), None);
    }
}
