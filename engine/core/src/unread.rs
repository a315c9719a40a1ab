//! What a Spec of Kusion may say and nobody here reads: refused where it would be applied as it stands and mean something
//! else, and told where it is merely left out.

use serde_json::{Map, Value};

use crate::cluster::{CLUSTER, KUBECONFIG};
use crate::conflict::FORCE;
use crate::health::{CURRENT, FAILED, IN_PROGRESS, POLICY};
use crate::held::DELETE_CONTENTS;
use crate::ignore::IGNORE_FIELDS;
use crate::import::IMPORT_ID;
use crate::near::meant;
use crate::object::ObjectRef;
use crate::owner::{MARK, TAKE_OVER_FROM};
use crate::problem::{Problem, reason};
use crate::reference::is_misplaced;
use crate::resolve::{has_text, texts};
use crate::spec::{FILE, LINE, RECREATE, Resource, Spec};
use crate::timeout::TIMEOUT;
use crate::warnings::Warnings;

/// How Kusion writes a value that is in a secret store.
const SECRET: &str = "ref://";

/// What the names of ours begin with, but for those that Kusion has, too.
const OURS: &str = "stoa.dev/";

/// The extensions that people may write and that are read.
const EXTENSIONS: [&str; 10] =
    [RECREATE, FORCE, DELETE_CONTENTS, TAKE_OVER_FROM, IGNORE_FIELDS, TIMEOUT, IMPORT_ID, CLUSTER, KUBECONFIG, POLICY];

/// The annotations that people may write and that are read.
const ANNOTATIONS: [&str; 10] =
    [RECREATE, FORCE, DELETE_CONTENTS, TAKE_OVER_FROM, IGNORE_FIELDS, TIMEOUT, MARK, CURRENT, FAILED, IN_PROGRESS];

/// So many warnings of resources are told one by one.
const WARNED: usize = 50;

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
    let mut of_resources = Warnings::at_most(WARNED);
    for resource in &spec.resources {
        for (field, unknown, meant) in unknown(resource) {
            of_resources.add(|| {
                let meant = meant.map(|meant| format!("; probably {meant} is meant")).unwrap_or_default();
                format!("{}: {field}[\"{unknown}\"]: nothing is called so, and it is not read{meant}", resource.id)
            });
        }
        for flag in [RECREATE, DELETE_CONTENTS] {
            if let Some(value) = resource.setting(flag).filter(|value| !is_flag(value)) {
                of_resources.add(|| {
                    format!("{}: {flag}: {value} is neither \"true\" nor \"false\", and not read", resource.id)
                });
            }
        }
        if !has_text(&resource.attributes, &is_misplaced) {
            continue;
        }
        texts(&resource.attributes, &mut |field, text| {
            if is_misplaced(text) {
                of_resources.add(|| {
                    format!(
                        "{}: attributes.{field}: $kusion_path. is not at the beginning and is applied as it stands; \
                         inside a text a reference is written ${{kusion_path.…}}",
                        resource.id
                    )
                });
            }
        });
    }
    told.extend(of_resources.into_told());
    told
}

/// The extensions and annotations of a resource that are called as ours are, or nearly so, and are none: the field that they are
/// in, the name, and what is probably meant.
fn unknown(resource: &Resource) -> Vec<(&'static str, &str, Option<&'static str>)> {
    let mut unknown = Vec::new();
    let known = |name: &str| EXTENSIONS.contains(&name) || name == FILE || name == LINE;
    for name in resource.extensions.keys().filter(|name| !known(name)) {
        // Others are for other tools.
        let near = meant(name, &EXTENSIONS);
        if name.starts_with(OURS) || near.is_some() {
            unknown.push(("extensions", name.as_str(), near));
        }
    }
    // Our own kinds have annotations of their own.
    if ObjectRef::of(&resource.attributes).is_some_and(|object| object.group.ends_with("stoa.dev")) {
        return unknown;
    }
    let annotations = resource.attributes.get("metadata").and_then(|metadata| metadata.get("annotations"));
    let names = annotations.and_then(Value::as_object).into_iter().flat_map(Map::keys);
    for name in names.filter(|name| name.starts_with(OURS) && !ANNOTATIONS.contains(&name.as_str())) {
        unknown.push(("attributes.metadata.annotations", name.as_str(), meant(name, &ANNOTATIONS)));
    }
    unknown
}

/// Whether the name of a cluster that the extension `kubeConfig` has is rather the path of a file, as Kusion reads it.
pub fn is_path_of_kubeconfig(extensions: &Map<String, Value>) -> bool {
    let named = extensions.get(CLUSTER).is_none().then(|| extensions.get(KUBECONFIG)).flatten();
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
        let set = |name: &&str| ((*name).to_owned(), json!("true"));
        // What Kusion has besides is for others.
        let others = [FILE, LINE, "GVK", "provider", "providerMeta", "resourceType", "kusion.io/is-workload"];
        spec.resources[0].extensions = EXTENSIONS.iter().chain(&others).map(set).collect();
        let annotations: Map<String, Value> = ANNOTATIONS.iter().chain(&["example.com/x"]).map(set).collect();
        spec.resources[0].attributes["metadata"]["annotations"] = annotations.into();
        assert_eq!(warnings(&spec), [""; 0]);
        spec.resources[0]
            .extensions
            .extend([("stoa.dev/ignore-field".to_owned(), json!([])), (RECREATE.to_owned(), json!("yes"))]);
        let told = warnings(&spec);
        let id = "v1:ConfigMap:shop:a";
        let unknown = format!(
            "{id}: extensions[\"stoa.dev/ignore-field\"]: nothing is called so, and it is not read; probably \
             stoa.dev/ignore-fields is meant"
        );
        let flag = format!("{id}: stoa.dev/recreate: \"yes\" is neither \"true\" nor \"false\", and not read");
        assert_eq!(told, [unknown, flag]);
    }

    #[test]
    fn what_is_nearly_called_as_something_that_is_read_is_told() {
        let mut spec = spec(json!({}));
        let unread = |field: &str, name: &str, meant: &str| {
            let told = "nothing is called so, and it is not read; probably";
            format!("v1:ConfigMap:shop:a: {field}[\"{name}\"]: {told} {meant} is meant")
        };
        for (name, meant) in [
            ("clusterr", "cluster"),
            ("kubeconfig", "kubeConfig"),
            ("healthpolicy", "healthPolicy"),
            ("kusionstack.io/importid", IMPORT_ID),
        ] {
            spec.resources[0].extensions = Map::from_iter([(name.to_owned(), json!("edge"))]);
            assert_eq!(warnings(&spec), [unread("extensions", name, meant)]);
        }
        spec.resources[0].extensions.clear();
        for (name, meant) in [
            ("stoa.dev/ignore-field", IGNORE_FIELDS),
            ("stoa.dev/take-over-form", TAKE_OVER_FROM),
            ("stoa.dev/health-curent", CURRENT),
        ] {
            spec.resources[0].attributes["metadata"]["annotations"] = json!({ name: "x" });
            assert_eq!(warnings(&spec), [unread("attributes.metadata.annotations", name, meant)]);
        }
        spec.resources[0].attributes["metadata"]["annotations"] = json!({"stoa.dev/caused-by": "x"});
        let far = "attributes.metadata.annotations[\"stoa.dev/caused-by\"]: nothing is called so, and it is not read";
        assert_eq!(warnings(&spec), [format!("v1:ConfigMap:shop:a: {far}")]);
        // A Run may have it.
        spec.resources[0].attributes.insert("apiVersion".to_owned(), json!("run.stoa.dev/v1alpha1"));
        assert_eq!(warnings(&spec), [""; 0]);
    }

    #[test]
    fn of_very_many_warnings_the_first_are_told_and_the_rest_counted() {
        let mut spec = spec(json!({}));
        spec.resources[0].extensions = Map::from_iter([("clusterr".to_owned(), json!("edge"))]);
        spec.resources = vec![spec.resources[0].clone(); WARNED + 7];
        let told = warnings(&spec);
        assert_eq!((told.len(), told[WARNED].as_str()), (WARNED + 1, "and 7 more such warnings"));
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
