//! Terminating objects: those in a namespace, or of a definition, that is being deleted.
//!
//! Kubernetes deletes these one after the other, in a namespace the Pods first (KEP-5080). They have no `deletionTimestamp` yet.
//!
//! Elsewhere: `cascade_check` rejects plans that cannot recreate such an object.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use stoa_engine::object::{deletion_time, is_terminating};
use stoa_engine::plan::Live;
use stoa_engine::spec::ResourceId;

use crate::cascade::Cascade;

/// Copies the `deletionTimestamp` of Namespaces and CustomResourceDefinitions to the live objects that are deleted with them.
/// `server_of` returns the server of an id, by the first of its names.
pub(crate) fn mark_contents<'a>(live: &mut BTreeMap<ResourceId, Live>, server_of: &dyn Fn(&ResourceId) -> &'a str) {
    for (id, time) in terminating(live, server_of) {
        if let Some(Live::Present(object)) = live.get_mut(&id)
            && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.insert("deletionTimestamp".to_owned(), time);
        }
    }
}

/// The ids of objects that are deleted with another one, and its `deletionTimestamp`.
fn terminating<'a>(
    live: &BTreeMap<ResourceId, Live>,
    server_of: &dyn Fn(&ResourceId) -> &'a str,
) -> Vec<(ResourceId, Value)> {
    let there = || live.iter().filter_map(|(id, live)| Some((id, object(live)?)));
    let holder = |(id, object): (&ResourceId, &Map<String, Value>)| {
        let time = deletion_time(object)?.clone();
        Some((server_of(id), Cascade::of_object(object)?, time))
    };
    let holders: Vec<(&str, Cascade, Value)> = there().filter_map(holder).collect();
    if holders.is_empty() {
        return Vec::new();
    }
    let left = there().filter(|(_, object)| !is_terminating(object));
    left.filter_map(|(id, object)| {
        let server = server_of(id);
        let (.., time) = holders.iter().find(|(of, contents, _)| *of == server && contents.has(object))?;
        Some((id.clone(), time.clone()))
    })
    .collect()
}

fn object(live: &Live) -> Option<&Map<String, Value>> {
    match live {
        Live::Present(object) => Some(object),
        Live::Absent | Live::Unverified(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The ids of what is being deleted, where these objects are live, each on a server.
    fn going(objects: &[(&str, &str, Value)]) -> Vec<String> {
        let of = |object: &Value| Live::Present(object.as_object().unwrap().clone());
        let mut live: BTreeMap<ResourceId, Live> =
            objects.iter().map(|(id, _, object)| ((*id).into(), of(object))).collect();
        live.insert("absent".into(), Live::Absent);
        live.insert("away".into(), Live::Unverified("it is away".to_owned()));
        let server_of = |id: &ResourceId| objects.iter().find(|(of, ..)| id.0 == *of).map_or("main", |(_, at, _)| *at);
        mark_contents(&mut live, &server_of);
        let is_there = |live: &Live| object(live).is_some_and(is_terminating);
        live.iter().filter(|(_, live)| is_there(live)).map(|(id, _)| id.0.clone()).collect()
    }

    fn plain(kind: &str, api_version: &str, namespace: Option<&str>, name: &str) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}})
    }

    fn deleted(mut object: Value) -> Value {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        object
    }

    #[test]
    fn namespace_contents_terminate_with_it() {
        let namespace = plain("Namespace", "v1", None, "shop");
        let map = |namespace: &str| plain("ConfigMap", "v1", Some(namespace), "a");
        let all = |namespace: Value| {
            [
                ("shop", "main", namespace),
                ("in it", "main", map("shop")),
                ("beside it", "main", map("other")),
                ("in no namespace", "main", plain("ClusterRole", "rbac.authorization.k8s.io/v1", None, "shop")),
                ("in another cluster", "east", map("shop")),
            ]
        };
        assert_eq!(going(&all(deleted(namespace.clone()))), ["in it", "shop"]);
        assert!(going(&all(namespace)).is_empty());
    }

    #[test]
    fn definition_objects_terminate_with_it() {
        let mut definition = plain("CustomResourceDefinition", "apiextensions.k8s.io/v1", None, "webs.x.dev");
        definition["spec"] = json!({"group": "x.dev", "names": {"kind": "Web", "plural": "webs"},
            "versions": [{"name": "v1"}, {"name": "v2"}]});
        let web = |version: &str| plain("Web", &format!("x.dev/{version}"), Some("shop"), "a");
        let all = [
            ("definition", "main", deleted(definition)),
            ("first", "main", web("v1")),
            ("second", "main", web("v2")),
            ("of another kind", "main", plain("Shop", "x.dev/v1", Some("shop"), "a")),
            ("elsewhere", "east", web("v1")),
        ];
        assert_eq!(going(&all), ["definition", "first", "second"]);
    }

    #[test]
    fn other_objects_do_not_terminate() {
        let all = [
            ("a", "main", deleted(plain("ConfigMap", "v1", Some("shop"), "shop"))),
            ("b", "main", plain("ConfigMap", "v1", Some("shop"), "b")),
        ];
        assert_eq!(going(&all), ["a"]);
    }
}
