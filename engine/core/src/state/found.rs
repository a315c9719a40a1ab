//! Which object a record is of: by its id alone, by what was found live, or by the uid that is meant.
//!
//! An object whose call has no known result is recorded by its identity, and nothing of its fields.

use serde_json::{Map, Value};

use super::StateResource;
use crate::masks::only_masks;
use crate::object::{ObjectRef, named, split_api_version, uid_of};
use crate::spec::{ResourceId, ResourceType};

/// What is kept of the metadata of an object that was found, which says which it is.
const FOUND: [&str; 2] = ["uid", "namespace"];

/// The namespace in ids of objects that name it, and of such as name none, wherever these go.
const PERHAPS_NONE: &str = "default";

impl StateResource {
    /// All that the id of a Kubernetes object tells of it: which object it is, and perhaps in which cluster. `None` for
    /// other ids. The object need not name the namespace: [`without_namespace`](Self::without_namespace).
    ///
    /// Names may hold colons in RBAC alone, as in `system:node`, and namespaces nowhere. So the kind has to say whether what
    /// is before the first colon is a namespace.
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
        Some(Self {
            id: id.clone(),
            kind: ResourceType::Kubernetes,
            attributes,
            live: Map::new(),
            depends_on: Vec::new(),
            extensions: Map::new(),
            cluster: cluster.to_owned(),
            unknown: false,
            adopted: false,
            masked: Vec::new(),
            digests_of: None,
            finished: false,
        })
    }

    /// The other object that the same id may be of: one that names no namespace, as Kusion writes `default` for none. `None`
    /// where the id says enough.
    pub fn without_namespace(&self) -> Option<Self> {
        let mut other = self.clone();
        let namespace = other.attributes.get_mut("metadata")?.as_object_mut()?.remove("namespace")?;
        (namespace == PERHAPS_NONE).then_some(other)
    }

    /// The same, found live after a call whose result was lost. Of the object only its identity is kept: which of its
    /// values are sensitive is known only to whoever applies it. Where they were before stays known.
    #[must_use]
    pub fn found(self, live: &Map<String, Value>, cluster: String) -> Self {
        let metadata = live.get("metadata").and_then(Value::as_object);
        let kept = FOUND.iter().filter_map(|key| metadata?.get_key_value(*key));
        let kept: Map<String, Value> = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
        let live = (!kept.is_empty()).then(|| ("metadata".to_owned(), kept.into()));
        let masked = with_masks(&self.masked, &self.live);
        Self { live: live.into_iter().collect(), cluster, masked, ..self }
    }

    /// The same with the uid of the object that is meant.
    #[must_use]
    pub fn with_uid(self, uid: &str) -> Self {
        let metadata = Map::from_iter([("uid".to_owned(), Value::from(uid))]);
        Self { live: Map::from_iter([("metadata".to_owned(), metadata.into())]), ..self }
    }

    /// The same where a call may have been made that the record does not tell of: which object it is, and nothing of its
    /// fields, so that the infrastructure is asked which of them are ours.
    #[must_use]
    pub fn as_found(self) -> Self {
        if ObjectRef::of(&self.attributes).is_none() {
            return self;
        }
        let (attributes, live, cluster) = (named(&self.attributes), self.live.clone(), self.cluster.clone());
        let masked = with_masks(&self.masked, &self.attributes);
        Self { attributes, masked, ..self }.found(&live, cluster)
    }

    /// Whether nothing is recorded but which object it is.
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

    /// The namespace that the object was live in, where it named none: whoever looked then knew the default.
    pub fn default_namespace(&self) -> Option<&str> {
        let is_named = ObjectRef::of(&self.attributes).is_none_or(|object| !object.namespace.is_empty());
        self.live.get("metadata").filter(|_| !is_named)?.get("namespace")?.as_str()
    }

    /// The same in a cluster in which it never was: where it names no namespace, in the default of that.
    #[must_use]
    pub fn anew_in_cluster(self, cluster: &str) -> Self {
        let mut record = self.in_cluster(cluster.to_owned());
        if record.default_namespace().is_some()
            && let Some(metadata) = record.live.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.remove("namespace");
        }
        record
    }
}

/// Where fields were sensitive, those of an object among them that is not kept.
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
    fn where_an_object_was_found_that_names_no_namespace_is_kept_for_its_cluster_alone() {
        let live = serde_json::json!({"metadata": {"name": "a", "namespace": "shop", "uid": "u", "labels": {}}});
        let found = StateResource::named_by(&"v1:ConfigMap:a".into()).unwrap();
        let found = found.found(live.as_object().unwrap(), "main".to_owned());
        assert_eq!((found.uid(), found.default_namespace()), (Some("u"), Some("shop")));
        assert!(found.is_only_found());
        let elsewhere = found.anew_in_cluster("east");
        assert_eq!((elsewhere.cluster.as_str(), elsewhere.default_namespace()), ("east", None));
        let named = StateResource::named_by(&"v1:ConfigMap:shop:a".into()).unwrap();
        assert_eq!(
            named.found(live.as_object().unwrap(), String::new()).default_namespace(),
            None,
            "it says so itself"
        );
    }

    #[test]
    fn an_id_with_the_namespace_default_may_be_of_an_object_that_names_none() {
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
    fn an_id_tells_namespace_and_name_though_the_name_has_colons() {
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
