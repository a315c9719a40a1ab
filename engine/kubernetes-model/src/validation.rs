//! Problems of objects that their kind alone shows, before any server is asked.

use serde_json::{Map, Value};
use stoa_engine::bounds::LARGEST_SECRET;
use stoa_engine::object::is_base64;
use stoa_engine::path::{FieldPath, Segment, type_name};
use stoa_engine::problem::reason;
use stoa_engine::reference::may_refer;
use stoa_engine::stored_secret::may_be_stored;
use stoa_engine::{ObjectRef, Problem};

use crate::kinds;

/// The problems of an object, without its id.
pub(crate) fn problems(object: &ObjectRef, attributes: &Map<String, Value>) -> Vec<Problem> {
    let mut problems = check_bytes(attributes, object);
    problems.extend(check_size(attributes, object));
    let api_version = object.api_version();
    if let Some(message) = kinds::unknown(&api_version, &object.kind)
        && !may_refer(&api_version)
        && !may_refer(&object.kind)
    {
        problems.push(Problem::new(reason::UNKNOWN_KIND, message).at("attributes.kind"));
    }
    problems
}

/// Checks that the bytes of a Secret or ConfigMap are base64, as far as they are not references: an API server answers
/// others with code 500. Values are not quoted.
fn check_bytes(attributes: &Map<String, Value>, object: &ObjectRef) -> Vec<Problem> {
    let field = match (object.group.as_str(), object.kind.as_str()) {
        ("", "Secret") => "data",
        ("", "ConfigMap") => "binaryData",
        _ => return Vec::new(),
    };
    let Some(Value::Object(data)) = attributes.get(field) else { return Vec::new() };
    let wrong = data.iter().filter_map(|(key, value)| match value {
        Value::Null => None,
        Value::String(text) if may_refer(text) || may_be_stored(text) || is_base64(text) => None,
        Value::String(_) => Some((key, "must be base64; a Secret takes plain text in stringData".to_owned())),
        other => Some((key, format!("must be text in base64, not {}", type_name(other)))),
    });
    wrong
        .map(|(key, message)| {
            let path = FieldPath(vec![Segment::Key(field.to_owned()), Segment::Key(key.clone())]);
            Problem::new(reason::INVALID_RESOURCE, message).at(format!("attributes.{path}"))
        })
        .collect()
}

/// Checks that a Secret is not larger than Kubernetes allows, as far as its values are not references.
fn check_size(attributes: &Map<String, Value>, object: &ObjectRef) -> Option<Problem> {
    if !object.is_secret() {
        return None;
    }
    let values = |field: &str| attributes.get(field).and_then(Value::as_object);
    let (data, strings) = (values("data"), values("stringData"));
    // `stringData` wins over `data`.
    let is_taken = |key: &String| strings.is_none_or(|strings| !strings.contains_key(key));
    let data = data.into_iter().flatten().filter(|(key, _)| is_taken(key));
    let bytes: usize = data.filter_map(|(_, value)| written_out(value)).map(decoded_size).sum();
    let text: usize = strings.into_iter().flatten().filter_map(|(_, value)| written_out(value)).map(str::len).sum();
    (bytes + text > LARGEST_SECRET).then(|| {
        let field = if text > bytes { "stringData" } else { "data" };
        let message = format!(
            "the values of a Secret may have at most {} MiB together, not {} bytes; split it into several Secrets",
            LARGEST_SECRET >> 20,
            bytes + text
        );
        Problem::new(reason::TOO_LARGE, message).at(format!("attributes.{field}"))
    })
}

/// A text in which there is no reference.
fn written_out(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !may_refer(text))
}

/// The size of decoded base64, in bytes.
fn decoded_size(text: &str) -> usize {
    let letters = text.bytes().filter(|byte| !matches!(byte, b'\n' | b'\r' | b'=')).count();
    letters * 3 / 4
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stoa_engine::Spec;

    use super::*;
    use crate::KubernetesRules;

    fn check(resources: Value, expected: &str) {
        let spec: Spec = serde_json::from_value(json!({ "resources": resources })).unwrap();
        let told: Vec<String> = match spec.validate(&KubernetesRules) {
            Ok(()) => Vec::new(),
            Err(problems) => problems.iter().map(|problem| format!("{}: {problem}", problem.reason)).collect(),
        };
        assert_eq!(told.join("\n"), expected);
    }

    #[test]
    fn bytes_are_base64() {
        let secret = |data: Value| {
            json!({"id": "v1:Secret:a", "type": "Kubernetes", "attributes": {
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": data,
            }})
        };
        check(
            json!([secret(
                json!({"a.b": "hunter2!", "n": 7, "good": "aGVs\nbG9=", "none": null, "ref": "$kusion_path.x.y"})
            )]),
            "InvalidResource: v1:Secret:a: attributes.data[\"a.b\"]: must be base64; a Secret takes plain text in \
             stringData\nInvalidResource: v1:Secret:a: attributes.data.n: must be text in base64, not a \
             number\nDanglingReference: v1:Secret:a: attributes.data.ref: at character 1: `x.y` does not begin with \
             the id of a resource",
        );
    }

    #[test]
    fn secret_size_is_limited() {
        const MIB: usize = 1 << 20;
        let secret = |data: Value, strings: Value| {
            json!([{"id": "v1:Secret:a", "type": "Kubernetes", "attributes": {
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": data, "stringData": strings,
            }}])
        };
        // In base64: three bytes for each four of these.
        let encoded = |bytes: usize| "AAAA".repeat(bytes / 3);
        let text = |bytes: usize| "x".repeat(bytes);
        check(secret(json!({"a": encoded(MIB / 2)}), json!({"b": text(MIB / 2)})), "");
        let both = json!({"a": encoded(MIB), "b": "AA=="});
        check(secret(both, json!({"a": text(MIB - 1), "none": null})), "");
        let referring = format!("$kusion_path.x.{}", text(MIB));
        let of_reference = secret(json!({}), json!({"a": referring, "b": text(MIB)}));
        let spec: Spec = serde_json::from_value(json!({ "resources": of_reference })).unwrap();
        assert!(spec.validate(&KubernetesRules).unwrap_err().iter().all(|problem| problem.reason != reason::TOO_LARGE));
        let told = |field: &str, bytes: usize| {
            format!(
                "TooLarge: v1:Secret:a: attributes.{field}: the values of a Secret may have at most 1 MiB together, \
                 not {bytes} bytes; split it into several Secrets"
            )
        };
        check(secret(json!({"a": "AA=="}), json!({"b": text(MIB)})), &told("stringData", MIB + 1));
        check(secret(json!({"a": encoded(MIB), "b": "AAAA"}), Value::Null), &told("data", MIB / 3 * 3 + 3));
    }

    #[test]
    fn unknown_stable_kind_is_rejected() {
        let object = |id: &str, api_version: &str, kind: &str| {
            json!({"id": id, "type": "Kubernetes", "attributes": {
                "apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "namespace": "shop"}}})
        };
        let reference = "$kusion_path.v1:ConfigMap:shop:a.data.kind";
        check(
            json!([
                object("apps/v1:Deploymnt:shop:a", "apps/v1", "Deploymnt"),
                object("example.com/v1:Deploymnt:shop:a", "example.com/v1", "Deploymnt"),
                object("v1:Deployment:shop:a", "v1", "Deployment"),
                // The cluster says whether it has it.
                object("apps/v1:WorkloadGroup:shop:a", "apps/v1", "WorkloadGroup"),
                object("v1:ConfigMap:shop:a", "v1", "ConfigMap"),
                object("v1:ConfigMap:shop:b", "v1", reference),
            ]),
            "UnknownKind: apps/v1:Deploymnt:shop:a: attributes.kind: apps/v1 has no kind \"Deploymnt\"\n\
             UnknownKind: v1:Deployment:shop:a: attributes.kind: v1 has no kind \"Deployment\"",
        );
    }

    #[test]
    fn cluster_scoped_object_ignores_namespace() {
        let object = |api_version: &str, kind: &str, namespace: Option<&str>, line: u32| {
            let id = match namespace {
                Some(namespace) => format!("{api_version}:{kind}:{namespace}:a"),
                None => format!("{api_version}:{kind}:a"),
            };
            json!({"id": id, "type": "Kubernetes", "extensions": {"stoa.dev/file": "s/all.yaml", "stoa.dev/line": line},
                "attributes": {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "namespace": namespace}}})
        };
        let roles = "rbac.authorization.k8s.io/v1";
        check(json!([object(roles, "ClusterRole", Some("shop"), 1)]), "");
        check(
            json!([object(roles, "ClusterRole", None, 1), object(roles, "ClusterRole", Some("shop"), 7)]),
            "DuplicateResource: rbac.authorization.k8s.io/v1:ClusterRole:shop:a: attributes.metadata.namespace: ClusterRole is \
             cluster-scoped, so this is the same object as rbac.authorization.k8s.io/v1:ClusterRole:a in s/all.yaml:1",
        );
        let custom = || [object("example.com/v1", "Cell", None, 1), object("example.com/v1", "Cell", Some("shop"), 7)];
        check(custom().into_iter().collect(), "");
        let mut crd = object("apiextensions.k8s.io/v1", "CustomResourceDefinition", None, 20);
        crd["attributes"]["spec"] = json!({"group": "example.com", "names": {"kind": "Cell"}, "scope": "Cluster"});
        check(
            custom().into_iter().chain([crd]).collect(),
            "DuplicateResource: example.com/v1:Cell:shop:a: attributes.metadata.namespace: Cell is cluster-scoped, so this is \
             the same object as example.com/v1:Cell:a in s/all.yaml:1",
        );
    }
}
