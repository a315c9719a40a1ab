//! Which cluster of a workspace a resource goes to, and the names of clusters in ids.
//!
//! An object is told from others by its cluster, too: one name in two clusters is two objects.

use serde_json::{Map, Value};

use crate::kinds::is_cluster_scoped;
use crate::object::ObjectRef;
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
///
/// Several names may lead to one server, such as two contexts of one kubeconfig. What is in such a server, or comes before
/// something there, is so under each of its names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clusters {
    names: Vec<String>,
    /// For each name the position of the first that is known to lead to the same server.
    servers: Vec<usize>,
}

/// What tells an object from all others: its server by the first of its names, group, kind, namespace and name.
pub(crate) type Identity = (String, [String; 4]);

impl Clusters {
    /// No clusters.
    pub const NONE: Self = Self { names: Vec::new(), servers: Vec::new() };

    /// Clusters by their names, of which nobody knows that two lead to one server.
    pub fn new(names: Vec<String>) -> Self {
        let servers = (0..names.len()).collect();
        Self { names, servers }
    }

    /// Clusters by their names and places, whatever these look like: what is at one place is one server.
    pub fn at(places: impl IntoIterator<Item = (String, String)>) -> Self {
        let (names, places): (Vec<String>, Vec<String>) = places.into_iter().unzip();
        let first = |place: &String| places.iter().position(|other| other == place).unwrap_or_default();
        let servers = places.iter().map(first).collect();
        Self { names, servers }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The names.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether there is a cluster of that name.
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|cluster| cluster == name)
    }

    /// The first name of the server that a name leads to, as far as that is known.
    pub fn server<'a>(&'a self, name: &'a str) -> &'a str {
        let known = self.names.iter().position(|cluster| cluster == name);
        known.map_or(name, |position| &self.names[self.servers[position]])
    }

    /// The name that stands for where an object is: of one name it is one object in all clusters that have the same. What may
    /// be in the default namespace is in another one where that differs, as it does between contexts.
    pub fn place<'a>(&'a self, cluster: &'a str, object: &ObjectRef) -> &'a str {
        let ObjectRef { group, kind, namespace, .. } = object;
        if namespace.is_empty() && !is_cluster_scoped(group, kind) { cluster } else { self.server(cluster) }
    }

    /// Whether a recorded object is in the cluster that it is wanted in, under whatever name.
    pub fn is_in_place(&self, record: &StateResource, wanted: &Resource) -> bool {
        let (from, to) = (self.of_recorded(record), self.of_wanted(wanted));
        let is_one = |object: ObjectRef| self.place(from, &object) == self.place(to, &object);
        from == to || ObjectRef::of(&record.attributes).is_some_and(is_one)
    }

    fn or_first<'a>(&'a self, name: &'a str) -> &'a str {
        match self.names.first() {
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
        self.identity(resource.kind, &resource.attributes, self.of_wanted(resource))
    }

    /// Which object a record is of.
    pub(crate) fn recorded(&self, record: &StateResource) -> Option<Identity> {
        self.identity(record.kind, &record.attributes, self.of_recorded(record))
    }

    fn identity(&self, kind: ResourceType, attributes: &Map<String, Value>, cluster: &str) -> Option<Identity> {
        let object = identity(attributes).filter(|_| kind == ResourceType::Kubernetes)?;
        let place = self.place(cluster, &ObjectRef::of(attributes)?).to_owned();
        Some((place, object))
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
        let two = Clusters::new(vec!["main".to_owned(), "east".to_owned()]);
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

    #[test]
    fn an_object_is_one_under_all_names_of_its_server_where_its_namespace_is_the_same() {
        let places = [("main", "a"), ("east", "b"), ("also", "a"), ("far", "b")];
        let clusters = Clusters::at(places.map(|(name, place)| (name.to_owned(), place.to_owned())));
        let servers: Vec<&str> = clusters.names().iter().map(|name| clusters.server(name)).collect();
        assert_eq!(servers, ["main", "east", "main", "east"]);
        assert_eq!(clusters.server("gone"), "gone", "of what the workspace does not have nothing is known");
        let apart = Clusters::new(clusters.names().to_vec());
        assert_eq!(apart.server("also"), "also");

        for (api_version, kind, namespace, is_one) in [
            ("v1", "ConfigMap", Some("shop"), true),
            // In the default namespace, which each context has its own of.
            ("v1", "ConfigMap", None, false),
            ("v1", "Namespace", None, true),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition", None, true),
            // Nobody knows whether it is in a namespace.
            ("example.com/v1", "Widget", None, false),
        ] {
            let object =
                json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "namespace": namespace}});
            let wanted = |cluster: &str| Resource {
                id: "a".into(),
                kind: ResourceType::Kubernetes,
                attributes: object.as_object().unwrap().clone(),
                depends_on: Vec::new(),
                extensions: json!({ "cluster": cluster }).as_object().unwrap().clone(),
            };
            let [main, also, east] = ["main", "also", "east"].map(|name| clusters.wanted(&wanted(name)).unwrap());
            assert_eq!((main == also, main == east), (is_one, false), "{kind}");
        }
    }
}
