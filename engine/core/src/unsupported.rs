//! Unsupported fields of a Kusion Spec, which are ignored with a warning.
//!
//! Start at [`warnings`].

use serde_json::{Map, Value};

use crate::cluster::{CLUSTER, KUBECONFIG};
use crate::conflict::FORCE;
use crate::declared::SENSITIVE;
use crate::health::{CURRENT, FAILED, IN_PROGRESS, POLICY};
use crate::ignore::IGNORE_FIELDS;
use crate::import::IMPORT_ID;
use crate::moved::MOVED_FROM;
use crate::object::ObjectRef;
use crate::owner::{MARK, TAKE_OVER_FROM};
use crate::provider::SOURCE_LOCK;
use crate::reference::is_misplaced;
use crate::resolve::{has_text, texts};
use crate::spec::{DELETE_CONTENTS, FILE, LINE, RECREATE, Resource, Spec};
use crate::stored_secret;
use crate::suggest::suggestion;
use crate::timeout::TIMEOUT;
use crate::warnings::Warnings;

/// The prefix of our extensions and annotations. Those that Kusion has too are without it.
const OURS: &str = "stoa.dev/";

/// All extensions that Stoa reads from a Spec.
const EXTENSIONS: [&str; 12] = [
    RECREATE,
    FORCE,
    DELETE_CONTENTS,
    TAKE_OVER_FROM,
    IGNORE_FIELDS,
    TIMEOUT,
    SENSITIVE,
    IMPORT_ID,
    MOVED_FROM,
    CLUSTER,
    KUBECONFIG,
    POLICY,
];

/// All annotations that Stoa reads from a Spec.
const ANNOTATIONS: [&str; 10] =
    [RECREATE, FORCE, DELETE_CONTENTS, TAKE_OVER_FROM, IGNORE_FIELDS, TIMEOUT, MARK, CURRENT, FAILED, IN_PROGRESS];

/// How many warnings about resources a plan has at most.
const WARNED: usize = 50;

/// Warnings about ignored fields of a Spec.
pub fn warnings(spec: &Spec) -> Vec<String> {
    let mut warnings = Vec::new();
    for (name, value) in [("secretStore", &spec.secret_store), ("context", &spec.context)] {
        let is_set = |value: &Value| !value.is_null() && value.as_object().is_none_or(|map| !map.is_empty());
        if value.as_ref().is_some_and(is_set) {
            let message = "is ignored: the Workspace configures clusters and their credentials";
            warnings.push(format!("{name} of the Spec {message}"));
        }
    }
    let mut of_resources = Warnings::at_most(WARNED);
    for resource in &spec.resources {
        for (field, unknown, meant) in unknown(resource) {
            of_resources.add(|| {
                let meant = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
                format!("{}: {field}[\"{unknown}\"] is unknown and ignored{meant}", resource.id)
            });
        }
        let is_any_misplaced = |text: &str| is_misplaced(text) || stored_secret::is_misplaced(text);
        if !has_text(&resource.attributes, &is_any_misplaced) {
            continue;
        }
        texts(&resource.attributes, &mut |field, text| {
            if is_misplaced(text) {
                of_resources.add(|| {
                    format!(
                        "{}: attributes.{field}: $kusion_path. is a reference only at the start of a text and is \
                         applied literally here; inside a text, write ${{kusion_path.…}}",
                        resource.id
                    )
                });
            }
            if stored_secret::is_misplaced(text) {
                of_resources.add(|| {
                    format!(
                        "{}: attributes.{field}: ref:// names a value in a secret store only as a whole text and is \
                         applied literally here",
                        resource.id
                    )
                });
            }
        });
    }
    warnings.extend(of_resources.into_lines());
    warnings
}

/// Unknown extensions and annotations of a resource whose names are like ours: field, name and suggestion.
fn unknown(resource: &Resource) -> Vec<(&'static str, &str, Option<&'static str>)> {
    let mut unknown = Vec::new();
    // A render sets the others.
    let known = |name: &str| EXTENSIONS.contains(&name) || [FILE, LINE, SOURCE_LOCK].contains(&name);
    for name in resource.extensions.keys().filter(|name| !known(name)) {
        // Other tools have extensions of their own.
        let near = suggestion(name, &EXTENSIONS);
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
        unknown.push(("attributes.metadata.annotations", name.as_str(), suggestion(name, &ANNOTATIONS)));
    }
    unknown
}

/// Whether the extension `kubeConfig` has the path of a file, as in Kusion, rather than the name of a cluster.
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
    fn ignored_spec_fields_are_reported() {
        let mut quiet = spec(json!({"a": "$kusion_path.v1:ConfigMap:shop:a.metadata.name", "b": "x ${kusion_path.v1}",
            "c": "$${kusion_path.x}", "d": "price: $5"}));
        (quiet.secret_store, quiet.context) = (Some(Value::Null), Some(json!({})));
        assert_eq!(warnings(&quiet), [""; 0]);
        let stored = warnings(&spec(json!({"a": "ref://db/password", "url": "postgres://shop:ref://db/password@db"})));
        let expected =
            "v1:ConfigMap:shop:a: attributes.data.url: ref:// names a value in a secret store only as a whole";
        assert!(stored.len() == 1 && stored[0].starts_with(expected), "{stored:?}");
        let mut told = spec(json!({"url": "http://$kusion_path.v1:ConfigMap:shop:a.metadata.name/"}));
        told.secret_store = Some(json!({"provider": {"fake": {}}}));
        let told = warnings(&told);
        assert!(told[0].starts_with("secretStore of the Spec is ignored"), "{told:?}");
        assert!(
            told[1].starts_with(
                "v1:ConfigMap:shop:a: attributes.data.url: $kusion_path. is a reference only at the start"
            )
        );
        assert_eq!(told.len(), 2);
    }

    #[test]
    fn unknown_settings_are_reported() {
        let mut spec = spec(json!({}));
        let set = |name: &&str| ((*name).to_owned(), json!("true"));
        // What Kusion has besides is for others.
        let others =
            [FILE, LINE, SOURCE_LOCK, "GVK", "provider", "providerMeta", "resourceType", "kusion.io/is-workload"];
        spec.resources[0].extensions = EXTENSIONS.iter().chain(&others).map(set).collect();
        let annotations: Map<String, Value> = ANNOTATIONS.iter().chain(&["example.com/x"]).map(set).collect();
        spec.resources[0].attributes["metadata"]["annotations"] = annotations.into();
        assert_eq!(warnings(&spec), [""; 0]);
        spec.resources[0].extensions.insert("stoa.dev/ignore-field".to_owned(), json!([]));
        let told = warnings(&spec);
        let id = "v1:ConfigMap:shop:a";
        let unknown = format!(
            "{id}: extensions[\"stoa.dev/ignore-field\"] is unknown and ignored; did you mean stoa.dev/ignore-fields?"
        );
        assert_eq!(told, [unknown]);
    }

    #[test]
    fn misspelled_settings_are_reported() {
        let mut spec = spec(json!({}));
        let ignored = |field: &str, name: &str, meant: &str| {
            let told = "is unknown and ignored; did you mean";
            format!("v1:ConfigMap:shop:a: {field}[\"{name}\"] {told} {meant}?")
        };
        for (name, meant) in [
            ("clusterr", "cluster"),
            ("kubeconfig", "kubeConfig"),
            ("healthpolicy", "healthPolicy"),
            ("kusionstack.io/importid", IMPORT_ID),
        ] {
            spec.resources[0].extensions = Map::from_iter([(name.to_owned(), json!("edge"))]);
            assert_eq!(warnings(&spec), [ignored("extensions", name, meant)]);
        }
        spec.resources[0].extensions.clear();
        for (name, meant) in [
            ("stoa.dev/ignore-field", IGNORE_FIELDS),
            ("stoa.dev/take-over-form", TAKE_OVER_FROM),
            ("stoa.dev/health-curent", CURRENT),
        ] {
            spec.resources[0].attributes["metadata"]["annotations"] = json!({ name: "x" });
            assert_eq!(warnings(&spec), [ignored("attributes.metadata.annotations", name, meant)]);
        }
        spec.resources[0].attributes["metadata"]["annotations"] = json!({"stoa.dev/caused-by": "x"});
        let far = "attributes.metadata.annotations[\"stoa.dev/caused-by\"] is unknown and ignored";
        assert_eq!(warnings(&spec), [format!("v1:ConfigMap:shop:a: {far}")]);
        // A Run may have it.
        spec.resources[0].attributes.insert("apiVersion".to_owned(), json!("run.stoa.dev/v1alpha1"));
        assert_eq!(warnings(&spec), [""; 0]);
    }

    #[test]
    fn warnings_are_limited() {
        let mut spec = spec(json!({}));
        spec.resources[0].extensions = Map::from_iter([("clusterr".to_owned(), json!("edge"))]);
        spec.resources = vec![spec.resources[0].clone(); WARNED + 7];
        let told = warnings(&spec);
        assert_eq!((told.len(), told[WARNED].as_str()), (WARNED + 1, "and 7 more such warnings"));
    }

    #[test]
    fn kubeconfig_path_differs_from_name() {
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
