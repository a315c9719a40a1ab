//! Which cluster of a workspace a resource goes to, and the names of clusters in ids.
//!
//! An object is told from others by its cluster, too: one name in two clusters is two objects.

use serde_json::{Map, Value};

use crate::object::ObjectRef;
use crate::reference::may_refer;
use crate::scope::Scopes;
use crate::spec::{Resource, ResourceId, ResourceType};
use crate::state::StateResource;
use crate::validate::identity_of;

/// The extension that names the cluster of a resource. Kusion's own name for it is taken, too.
pub const CLUSTER: &str = "cluster";
/// Kusion's name of that extension.
pub(crate) const KUBECONFIG: &str = "kubeConfig";
/// Both names, the first of which counts.
const NAMES: [&str; 2] = [CLUSTER, KUBECONFIG];

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

/// The id of what has the object of an id in a cluster, beside another that is elsewhere.
pub fn id_in(id: &ResourceId, cluster: &str) -> ResourceId {
    ResourceId(format!("{}{SEPARATOR}{cluster}", split(id).0))
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
    /// For each name the namespace of objects that name none, where that is known.
    namespaces: Vec<String>,
    /// The kinds that are known to be in no namespace.
    scopes: Scopes,
}

/// What tells an object from all others: its server by the first of its names, group, kind, namespace and name.
pub(crate) type Identity = (String, [String; 4]);

impl Clusters {
    /// No clusters.
    pub const NONE: Self =
        Self { names: Vec::new(), servers: Vec::new(), namespaces: Vec::new(), scopes: Scopes::BUILT_IN };

    /// Clusters by their names, of which nobody knows that two lead to one server.
    pub fn new(names: Vec<String>) -> Self {
        let servers = (0..names.len()).collect();
        Self { names, servers, ..Self::NONE }
    }

    /// Clusters by their names and places, whatever these look like: what is at one place is one server.
    pub fn at(places: impl IntoIterator<Item = (String, String)>) -> Self {
        let (names, places): (Vec<String>, Vec<String>) = places.into_iter().unzip();
        let first = |place: &String| places.iter().position(|other| other == place).unwrap_or_default();
        let servers = places.iter().map(first).collect();
        Self { names, servers, ..Self::NONE }
    }

    /// The same, where these kinds are in no namespace.
    #[must_use]
    pub fn with_scopes(self, scopes: Scopes) -> Self {
        Self { scopes, ..self }
    }

    /// Whether objects of a kind are known to be in no namespace.
    pub fn is_cluster_scoped(&self, group: &str, kind: &str) -> bool {
        self.scopes.is_cluster_scoped(group, kind)
    }

    /// The same, where objects that name no namespace go to these: one for each name.
    #[must_use]
    pub fn with_default_namespaces(self, namespaces: impl IntoIterator<Item = String>) -> Self {
        Self { namespaces: namespaces.into_iter().collect(), ..self }
    }

    /// The namespace of objects in a cluster that name none; empty where nobody knows it.
    pub fn default_namespace(&self, cluster: &str) -> &str {
        let position = self.names.iter().position(|name| name == cluster);
        position.and_then(|position| self.namespaces.get(position)).map_or("", String::as_str)
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
    /// be in the default namespace is in another one where nobody knows that: contexts have namespaces of their own.
    pub fn place<'a>(&'a self, cluster: &'a str, object: &ObjectRef) -> &'a str {
        let ObjectRef { group, kind, namespace, .. } = object;
        if namespace.is_empty() && !self.is_cluster_scoped(group, kind) { cluster } else { self.server(cluster) }
    }

    /// Whether a recorded object is in the cluster and namespace that it is wanted in, under whatever name.
    pub fn is_in_place(&self, record: &StateResource, wanted: &Resource) -> bool {
        let (from, to) = (self.of_recorded(record), self.of_wanted(wanted));
        let is_one = |object: ObjectRef| self.place(from, &object) == self.place(to, &object);
        (from == to || self.recorded_object(record).is_some_and(is_one)) && self.namespaces(record, wanted).is_none()
    }

    /// The namespace that a recorded object is in, and the other one that it is wanted in: a cluster's default may have changed.
    pub(crate) fn namespaces(&self, record: &StateResource, wanted: &Resource) -> Option<[String; 2]> {
        let objects = [self.recorded_object(record)?, self.wanted_object(wanted)?];
        let [from, to] = objects.map(|object| object.namespace);
        // While a reference stands in it nobody knows.
        let is_known = |namespace: &String| !namespace.is_empty() && !may_refer(namespace);
        (is_known(&from) && is_known(&to) && from != to).then_some([from, to])
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
        self.identity(self.wanted_object(resource)?, self.of_wanted(resource))
    }

    /// Which object a record is of.
    pub(crate) fn recorded(&self, record: &StateResource) -> Option<Identity> {
        self.identity(self.recorded_object(record)?, self.of_recorded(record))
    }

    /// What a wanted object is called, and the namespace that it goes to.
    pub fn wanted_object(&self, resource: &Resource) -> Option<ObjectRef> {
        let object = ObjectRef::of(&resource.attributes).filter(|_| resource.kind == ResourceType::Kubernetes)?;
        Some(self.in_namespace(self.of_wanted(resource), object))
    }

    /// What a recorded object is called, and the namespace that it is in: what names none is where it was applied.
    pub fn recorded_object(&self, record: &StateResource) -> Option<ObjectRef> {
        let mut object = ObjectRef::of(&record.attributes).filter(|_| record.kind == ResourceType::Kubernetes)?;
        if let Some(namespace) = record.default_namespace().filter(|_| object.namespace.is_empty()) {
            namespace.clone_into(&mut object.namespace);
        }
        Some(self.in_namespace(self.of_recorded(record), object))
    }

    /// The object in the default namespace of its cluster where it names none, and in none where its kind has none. Nobody knows of every kind whether it has
    /// namespaces, and where one has none it does not matter which is told.
    fn in_namespace(&self, cluster: &str, object: ObjectRef) -> ObjectRef {
        let mut object = self.scopes.scoped(object);
        if object.namespace.is_empty() && !self.is_cluster_scoped(&object.group, &object.kind) {
            self.default_namespace(cluster).clone_into(&mut object.namespace);
        }
        object
    }

    fn identity(&self, object: ObjectRef, cluster: &str) -> Option<Identity> {
        let place = self.place(cluster, &object).to_owned();
        Some((place, identity_of(object)?))
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
            assert_eq!(id_in(&id.into(), "west").0, format!("{object}/west"));
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
    fn what_names_no_namespace_is_in_the_default_of_its_cluster() {
        let places = [("main", "a"), ("also", "a"), ("apart", "a")];
        let places = places.map(|(name, place)| (name.to_owned(), place.to_owned()));
        let clusters = Clusters::at(places).with_default_namespaces(["shop", "shop", "other"].map(str::to_owned));
        let wanted = |kind: &str, namespace: Option<&str>, cluster: &str| {
            let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a", "namespace": namespace}});
            let resource = Resource {
                id: "a".into(),
                kind: ResourceType::Kubernetes,
                attributes: object.as_object().unwrap().clone(),
                depends_on: Vec::new(),
                extensions: json!({ "cluster": cluster }).as_object().unwrap().clone(),
            };
            clusters.wanted(&resource).unwrap()
        };
        let named = wanted("ConfigMap", Some("shop"), "main");
        assert_eq!(wanted("ConfigMap", None, "main"), named);
        assert_eq!(wanted("ConfigMap", None, "also"), named, "it is one server");
        assert_ne!(wanted("ConfigMap", None, "apart"), named);
        assert_eq!(wanted("Namespace", None, "apart"), wanted("Namespace", None, "main"));
        assert_eq!(clusters.default_namespace("gone"), "");
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
