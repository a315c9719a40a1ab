//! Which cluster of a workspace a resource goes to, and the names of clusters in ids.
//!
//! An object is told from others by its cluster, too: one name in two clusters is two objects.

use serde_json::{Map, Value};

use crate::spec::{Resource, ResourceId, ResourceType};
use crate::state::StateResource;
use crate::validate::identity;

/// The extension that names the cluster of a resource. Kusion's own name for it is taken, too.
pub const CLUSTER: &str = "cluster";
/// Both names, the first of which counts.
const NAMES: [&str; 2] = [CLUSTER, "kubeConfig"];

/// What stands between the id of an object and the name of the cluster that it is in. No name of an object has it.
const SEPARATOR: char = '/';

/// The cluster that extensions name; empty when they name none.
///
/// # Errors
///
/// The field whose value is no name.
pub fn named(extensions: &Map<String, Value>) -> Result<&str, String> {
    match NAMES.iter().find_map(|name| Some((name, extensions.get(*name)?))) {
        None | Some((_, Value::Null)) => Ok(""),
        Some((_, Value::String(cluster))) => Ok(cluster),
        Some((name, _)) => Err(format!("extensions.{name}")),
    }
}

/// An id without the name of the cluster at its end, and that name; empty when there is none.
pub(crate) fn split(id: &ResourceId) -> (&str, &str) {
    // The version in `apiVersion` may follow a slash, too, and a kind comes after that.
    match id.0.rsplit_once(SEPARATOR) {
        Some((object, cluster)) if !cluster.contains(':') => (object, cluster),
        Some(_) | None => (&id.0, ""),
    }
}

/// The clusters of a workspace, the first of which is where resources go that name none. None where resources do not go to
/// clusters, but to one place that something else deploys from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clusters(pub Vec<String>);

/// What tells an object from all others: cluster, group, kind, namespace and name.
pub(crate) type Identity = (String, [String; 4]);

impl Clusters {
    /// Whether there is a cluster of that name.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|cluster| cluster == name)
    }

    fn or_first<'a>(&'a self, name: &'a str) -> &'a str {
        match self.0.first() {
            Some(first) if name.is_empty() => first,
            Some(_) => name,
            None => "",
        }
    }

    /// The cluster that a wanted resource goes to.
    pub fn of_wanted<'a>(&'a self, resource: &'a Resource) -> &'a str {
        self.or_first(named(&resource.extensions).unwrap_or_default())
    }

    /// The cluster that a recorded resource is in.
    pub fn of_recorded<'a>(&'a self, record: &'a StateResource) -> &'a str {
        let named = || named(&record.extensions).unwrap_or_default();
        self.or_first(if record.cluster.is_empty() { named() } else { &record.cluster })
    }

    /// Which object is wanted, once it is known.
    pub(crate) fn wanted(&self, resource: &Resource) -> Option<Identity> {
        let object = identity(&resource.attributes).filter(|_| resource.kind == ResourceType::Kubernetes)?;
        Some((self.of_wanted(resource).to_owned(), object))
    }

    /// Which object a record is of.
    pub(crate) fn recorded(&self, record: &StateResource) -> Option<Identity> {
        let object = identity(&record.attributes).filter(|_| record.kind == ResourceType::Kubernetes)?;
        Some((self.of_recorded(record).to_owned(), object))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_id_may_end_in_a_cluster() {
        for (id, object, cluster) in [
            ("v1:ConfigMap:shop:web", "v1:ConfigMap:shop:web", ""),
            ("v1:ConfigMap:shop:web/east", "v1:ConfigMap:shop:web", "east"),
            ("apps/v1:Deployment:shop:web", "apps/v1:Deployment:shop:web", ""),
            ("apps/v1:Deployment:shop:web/east", "apps/v1:Deployment:shop:web", "east"),
            (
                "rbac.authorization.k8s.io/v1:ClusterRole:system:web/east.1",
                "rbac.authorization.k8s.io/v1:ClusterRole:system:web",
                "east.1",
            ),
        ] {
            assert_eq!(split(&id.into()), (object, cluster));
        }
    }

    #[test]
    fn what_names_no_cluster_goes_to_the_first() {
        let resource = |extensions: Value| Resource {
            id: "v1:Namespace:a".into(),
            kind: ResourceType::Kubernetes,
            attributes: Map::new(),
            depends_on: Vec::new(),
            extensions: extensions.as_object().unwrap().clone(),
        };
        let two = Clusters(vec!["main".to_owned(), "east".to_owned()]);
        for (extensions, cluster) in [
            (json!({}), "main"),
            (json!({"cluster": null}), "main"),
            (json!({"cluster": "east"}), "east"),
            (json!({"kubeConfig": "east"}), "east"),
            (json!({"cluster": "main", "kubeConfig": "east"}), "main"),
        ] {
            assert_eq!(two.of_wanted(&resource(extensions.clone())), cluster);
            assert_eq!(Clusters::default().of_wanted(&resource(extensions)), "");
        }
        assert_eq!(named(json!({"kubeConfig": 1}).as_object().unwrap()), Err("extensions.kubeConfig".to_owned()));
    }
}
