//! Identity of a recorded object: by its id, its live object, or its uid.
//!
//! An object of a call without a known result is recorded by its identity alone.

use serde_json::{Map, Value};

use super::StateResource;
use crate::object::{ObjectRef, named, split_api_version, uid_of};
use crate::secret_digest::only_masks;
use crate::spec::ResourceId;

/// The metadata fields that identify a found object.
const FOUND: [&str; 2] = ["uid", "namespace"];

/// The namespace in ids of objects in `default`, and of objects without a namespace.
const PERHAPS_NONE: &str = "default";

impl StateResource {
    /// The object that the id of a Kubernetes resource names, perhaps with its cluster. `None` for other ids. The object
    /// may lack the namespace: [`without_namespace`](Self::without_namespace).
    ///
    /// Only names of RBAC objects contain colons, as in `system:node`. Thus the kind decides whether the part before the
    /// first colon is a namespace.
    pub fn named_by(id: &ResourceId) -> Option<Self> {
        let (object, cluster) = crate::cluster::split(id);
        let mut parts = object.splitn(3, ':');
        let (api_version, kind, rest) = (parts.next()?, parts.next()?, parts.next()?);
        let is_cluster_role = split_api_version(api_version).0 == "rbac.authorization.k8s.io"
            && matches!(kind, "ClusterRole" | "ClusterRoleBinding");
        let (namespace, name) = match rest.split_once(':') {
            Some((namespace, name)) if !is_cluster_role => (Some(namespace), name),
            Some(_) | None => (None, rest),
        };
        let mut metadata = Map::from_iter([("name".to_owned(), name.into())]);
        metadata.extend(namespace.map(|namespace| ("namespace".to_owned(), namespace.into())));
        let attributes = Map::from_iter([
            ("apiVersion".to_owned(), api_version.into()),
            ("kind".to_owned(), kind.into()),
            ("metadata".to_owned(), metadata.into()),
        ]);
        Some(Self { id: id.clone(), attributes, cluster: cluster.to_owned(), ..Self::default() })
    }

    /// The other object that the same id may name: one without a namespace, since Kusion writes `default` for none. `None`
    /// where the id is unambiguous.
    pub fn without_namespace(&self) -> Option<Self> {
        let mut other = self.clone();
        let namespace = other.attributes.get_mut("metadata")?.as_object_mut()?.remove("namespace")?;
        (namespace == PERHAPS_NONE).then_some(other)
    }

    /// The same, found live after a lost call. Only the identity is recorded, since sensitive values are not known here.
    /// Former masks are kept.
    #[must_use]
    pub fn found(self, live: &Map<String, Value>, cluster: String) -> Self {
        let metadata = live.get("metadata").and_then(Value::as_object);
        let kept = FOUND.iter().filter_map(|key| metadata?.get_key_value(*key));
        let kept: Map<String, Value> = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
        let live = (!kept.is_empty()).then(|| ("metadata".to_owned(), kept.into()));
        let masked = with_masks(&self.masked, &self.live);
        Self { live: live.into_iter().collect(), cluster, masked, ..self }
    }

    /// The same with another uid.
    #[must_use]
    pub fn with_uid(self, uid: &str) -> Self {
        let metadata = Map::from_iter([("uid".to_owned(), Value::from(uid))]);
        Self { live: Map::from_iter([("metadata".to_owned(), metadata.into())]), ..self }
    }

    /// The same after a possible lost call: only the identity is recorded, so that the next plan asks which fields are
    /// ours.
    #[must_use]
    pub fn as_found(self) -> Self {
        if ObjectRef::of(&self.attributes).is_none() {
            return self;
        }
        let (attributes, live, cluster) = (named(&self.attributes), self.live.clone(), self.cluster.clone());
        let masked = with_masks(&self.masked, &self.attributes);
        Self { attributes, masked, ..self }.found(&live, cluster)
    }

    /// Whether only the identity is recorded.
    pub fn is_only_found(&self) -> bool {
        let is_kept = |metadata: &Map<String, Value>| metadata.keys().all(|key| FOUND.contains(&key.as_str()));
        let is_found = |(key, value): (&String, &Value)| key == "metadata" && value.as_object().is_some_and(is_kept);
        let is_object = ObjectRef::of(&self.attributes).is_some();
        is_object && self.live.iter().all(is_found) && self.attributes == named(&self.attributes)
    }

    /// The uid of the object that was applied, where there is one.
    pub fn uid(&self) -> Option<&str> {
        uid_of(&self.live)
    }

    /// The namespace of the live object, if the object has none in the Spec.
    pub fn default_namespace(&self) -> Option<&str> {
        let is_named = ObjectRef::of(&self.attributes).is_none_or(|object| !object.namespace.is_empty());
        self.live.get("metadata").filter(|_| !is_named)?.get("namespace")?.as_str()
    }

    /// The same in another cluster, where it never was: without a namespace it is in the default one there.
    #[must_use]
    pub fn created_in_cluster(self, cluster: &str) -> Self {
        let mut record = self.in_cluster(cluster.to_owned());
        if record.default_namespace().is_some()
            && let Some(metadata) = record.live.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.remove("namespace");
        }
        record
    }
}

/// The masks of fields, with those of a dropped object.
fn with_masks(masked: &[Map<String, Value>], object: &Map<String, Value>) -> Vec<Map<String, Value>> {
    let (mut masked, more) = (masked.to_vec(), only_masks(object));
    if !more.is_empty() && !masked.contains(&more) {
        masked.push(more);
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_namespace_of_found_object_is_recorded() {
        let live = serde_json::json!({"metadata": {"name": "a", "namespace": "shop", "uid": "u", "labels": {}}});
        let found = StateResource::named_by(&"v1:ConfigMap:a".into()).unwrap();
        let found = found.found(live.as_object().unwrap(), "main".to_owned());
        assert_eq!((found.uid(), found.default_namespace()), (Some("u"), Some("shop")));
        assert!(found.is_only_found());
        let elsewhere = found.created_in_cluster("east");
        assert_eq!((elsewhere.cluster.as_str(), elsewhere.default_namespace()), ("east", None));
        let named = StateResource::named_by(&"v1:ConfigMap:shop:a".into()).unwrap();
        assert_eq!(
            named.found(live.as_object().unwrap(), String::new()).default_namespace(),
            None,
            "it says so itself"
        );
    }

    #[test]
    fn id_with_default_namespace_may_lack_namespace() {
        for (id, may_be) in [
            ("v1:ConfigMap:default:a", true),
            ("v1:ConfigMap:default:a/east", true),
            ("v1:ConfigMap:shop:a", false),
            ("v1:ConfigMap:a", false),
            ("v1:Namespace:default", false),
        ] {
            let named = StateResource::named_by(&id.into()).unwrap();
            assert_eq!(named.without_namespace().is_some(), may_be, "{id}");
        }
        let live = serde_json::json!({"metadata": {"name": "a", "namespace": "shop", "uid": "u"}});
        let other = StateResource::named_by(&"v1:ConfigMap:default:a".into()).unwrap().without_namespace().unwrap();
        let found = other.found(live.as_object().unwrap(), "main".to_owned());
        assert_eq!((found.uid(), found.default_namespace()), (Some("u"), Some("shop")));
        // What is recorded of it says so, too.
        let mut applied = found.clone();
        applied.attributes.insert("data".to_owned(), serde_json::json!({"a": "1"}));
        assert!(found.is_only_found() && !applied.is_only_found());
        assert_eq!(applied.as_found(), found);
    }

    #[test]
    fn id_has_namespace_and_name_with_colons() {
        let rbac = "rbac.authorization.k8s.io/v1";
        for (id, namespace, name) in [
            ("v1:Namespace:shop".to_owned(), "", "shop"),
            ("v1:ConfigMap:shop:a.b".to_owned(), "shop", "a.b"),
            (format!("{rbac}:ClusterRole:system:node"), "", "system:node"),
            (format!("{rbac}:ClusterRoleBinding:system:controller:job"), "", "system:controller:job"),
            (format!("{rbac}:Role:kube-system:system:controller:job"), "kube-system", "system:controller:job"),
            ("example.com/v1:ClusterRole:shop:a".to_owned(), "shop", "a"),
        ] {
            let named = StateResource::named_by(&ResourceId(id.clone())).unwrap();
            let object = crate::ObjectRef::of(&named.attributes).unwrap();
            assert_eq!((object.namespace.as_str(), object.name.as_str()), (namespace, name), "{id}");
            assert!(named.is_only_found() && named.uid().is_none() && named.cluster.is_empty());
            let named = StateResource::named_by(&ResourceId(format!("{id}/east"))).unwrap();
            assert_eq!((crate::ObjectRef::of(&named.attributes), named.cluster.as_str()), (Some(object), "east"));
        }
        for id in ["a", "v1:Namespace"] {
            assert_eq!(StateResource::named_by(&id.into()), None);
        }
    }
}
