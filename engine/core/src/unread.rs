//! What a Spec of Kusion may say and nobody here reads: refused where it would be applied as it stands and mean something
//! else, and told where it is merely left out.

use serde_json::{Map, Value};

use crate::conflict::FORCE;
use crate::held::DELETE_CONTENTS;
use crate::ignore::IGNORE_FIELDS;
use crate::owner::TAKE_OVER_FROM;
use crate::problem::{Problem, reason};
use crate::reference::is_misplaced;
use crate::resolve::{has_text, texts};
use crate::spec::{FILE, LINE, RECREATE, Resource, Spec};
use crate::timeout::TIMEOUT;

/// How Kusion writes a value that is in a secret store.
const SECRET: &str = "ref://";

/// The extensions of ours that a resource may have.
const EXTENSIONS: [&str; 8] = [FILE, LINE, RECREATE, FORCE, DELETE_CONTENTS, TAKE_OVER_FROM, IGNORE_FIELDS, TIMEOUT];

/// Whether it is `true` or `false`, as a text or not.
fn is_flag(value: &Value) -> bool {
    value.is_boolean() || value == "true" || value == "false"
}

/// What is wrong with a resource: values that are in a secret store, which there is none of. The text itself would be applied
/// in their place.
pub(crate) fn check_secrets(resource: &Resource) -> Vec<Problem> {
    let mut problems = Vec::new();
    let is_secret = |text: &str| text.starts_with(SECRET);
    if !has_text(&resource.attributes, &is_secret) {
        return problems;
    }
    texts(&resource.attributes, &mut |field, text| {
        if is_secret(text) {
            let message = "at character 1: ref:// names a value of a secret store, and there are none yet; \
                           write the value itself, into a Secret";
            let problem = Problem::new(reason::INVALID_REFERENCE, message).of(&resource.id);
            problems.push(problem.at(format!("attributes.{field}")));
        }
    });
    problems
}

/// What people should know of a Spec that is planned as it is.
pub fn warnings(spec: &Spec) -> Vec<String> {
    let mut told = Vec::new();
    for (name, value) in [("secretStore", &spec.secret_store), ("context", &spec.context)] {
        let is_said = |value: &Value| !value.is_null() && value.as_object().is_none_or(|map| !map.is_empty());
        if value.as_ref().is_some_and(is_said) {
            let message = "is not read: the Workspace says which clusters there are, and how to get into them";
            told.push(format!("{name} of the Spec {message}"));
        }
    }
    for resource in &spec.resources {
        let ours = resource.extensions.keys().filter(|name| name.starts_with("stoa.dev/"));
        for unknown in ours.filter(|name| !EXTENSIONS.contains(&name.as_str())) {
            told.push(format!("{}: extensions[\"{unknown}\"]: nothing is called so, and it is not read", resource.id));
        }
        for flag in [RECREATE, DELETE_CONTENTS] {
            if let Some(value) = resource.setting(flag).filter(|value| !is_flag(value)) {
                told.push(format!("{}: {flag}: {value} is neither \"true\" nor \"false\", and not read", resource.id));
            }
        }
        if !has_text(&resource.attributes, &is_misplaced) {
            continue;
        }
        texts(&resource.attributes, &mut |field, text| {
            if is_misplaced(text) {
                told.push(format!(
                    "{}: attributes.{field}: $kusion_path. is not at the beginning and is applied as it stands; \
                     inside a text a reference is written ${{kusion_path.…}}",
                    resource.id
                ));
            }
        });
    }
    told
}

/// Whether the name of a cluster that the extension `kubeConfig` has is rather the path of a file, as Kusion reads it.
pub fn is_path_of_kubeconfig(extensions: &Map<String, Value>) -> bool {
    let named = extensions.get("cluster").is_none().then(|| extensions.get("kubeConfig")).flatten();
    named.and_then(Value::as_str).is_some_and(|text| text.contains(['/', '\\']) || text.starts_with('~'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(data: Value) -> Spec {
        let metadata = json!({"name": "a", "namespace": "shop"});
        serde_json::from_value(json!({"resources": [{"id": "v1:ConfigMap:shop:a", "type": "Kubernetes", "attributes": {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}}]}))
        .unwrap()
    }

    #[test]
    fn a_value_of_a_secret_store_is_refused_with_its_place() {
        let problems = spec(json!({"p": "ref://db/password", "q": "see ref://x"})).validate().unwrap_err();
        let told: Vec<String> = problems.iter().map(|problem| format!("{} {problem}", problem.reason)).collect();
        assert_eq!(
            told,
            [
                "InvalidReference v1:ConfigMap:shop:a: attributes.data.p: at character 1: ref:// names a value of a secret \
              store, and there are none yet; write the value itself, into a Secret"
            ]
        );
    }

    #[test]
    fn what_is_not_read_is_told() {
        let mut quiet = spec(json!({"a": "$kusion_path.v1:ConfigMap:shop:a.metadata.name", "b": "x ${kusion_path.v1}",
            "c": "$${kusion_path.x}", "d": "price: $5"}));
        (quiet.secret_store, quiet.context) = (Some(Value::Null), Some(json!({})));
        assert_eq!(warnings(&quiet), [""; 0]);
        let mut told = spec(json!({"url": "http://$kusion_path.v1:ConfigMap:shop:a.metadata.name/"}));
        told.secret_store = Some(json!({"provider": {"fake": {}}}));
        let told = warnings(&told);
        assert!(told[0].starts_with("secretStore of the Spec is not read"), "{told:?}");
        assert!(told[1].starts_with("v1:ConfigMap:shop:a: attributes.data.url: $kusion_path. is not at the beginning"));
        assert_eq!(told.len(), 2);
    }

    #[test]
    fn settings_that_nobody_reads_are_told() {
        let mut spec = spec(json!({}));
        let all = EXTENSIONS.iter().map(|name| ((*name).to_owned(), json!("true")));
        spec.resources[0].extensions = all.chain([("kusionstack.io/import-id".to_owned(), json!("a"))]).collect();
        assert_eq!(warnings(&spec), [""; 0]);
        spec.resources[0]
            .extensions
            .extend([("stoa.dev/ignore-field".to_owned(), json!([])), (RECREATE.to_owned(), json!("yes"))]);
        let told = warnings(&spec);
        let id = "v1:ConfigMap:shop:a";
        let unknown = format!("{id}: extensions[\"stoa.dev/ignore-field\"]: nothing is called so, and it is not read");
        let flag = format!("{id}: stoa.dev/recreate: \"yes\" is neither \"true\" nor \"false\", and not read");
        assert_eq!(told, [unknown, flag]);
    }

    #[test]
    fn a_path_is_told_from_a_name() {
        let check = |extensions: Value| is_path_of_kubeconfig(extensions.as_object().unwrap());
        assert!(
            check(json!({"kubeConfig": "/home/deployer/.kube/config"}))
                && check(json!({"kubeConfig": "~/.kube/config"}))
        );
        assert!(!check(json!({"kubeConfig": "edge"})) && !check(json!({})));
        assert!(
            !check(json!({"kubeConfig": "/home/deployer/.kube/config", "cluster": "edge"})),
            "the other one counts"
        );
    }
}
