//! Clusters of a workspace: the target cluster of a resource, and cluster names in ids.
//!
//! The cluster is a part of an object's identity: one name in two clusters is two objects.

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
/// Both names; the first one wins.
const NAMES: [&str; 2] = [CLUSTER, KUBECONFIG];

/// Separates the id of an object from its cluster name. Object names cannot contain it.
const SEPARATOR: char = '/';

/// The cluster name in extensions; empty without one.
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

/// The clusters of a workspace. Resources without a cluster name go to the first one. Deployments to Git have none.
///
/// Several names may lead to one server, such as two contexts of one kubeconfig. Such names are equivalent in comparisons
/// and in the order of actions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clusters {
    names: Vec<String>,
    /// For each name, the position of the first name that leads to the same server.
    servers: Vec<usize>,
    /// For each name, its default namespace, if known.
    namespaces: Vec<String>,
    /// The kinds that are known to be in no namespace.
    scopes: Scopes,
}

/// The identity of an object: the first name of its server, group, kind, namespace and name.
pub(crate) type Identity = (String, [String; 4]);

impl Clusters {
    /// No clusters.
    pub const NONE: Self =
        Self { names: Vec::new(), servers: Vec::new(), namespaces: Vec::new(), scopes: Scopes::NONE };

    /// Clusters by name, each on a server of its own.
    pub fn new(names: Vec<String>) -> Self {
        let servers = (0..names.len()).collect();
        Self { names, servers, ..Self::NONE }
    }

    /// Clusters by name and address, in any form: equal addresses are one server.
    pub fn at(places: impl IntoIterator<Item = (String, String)>) -> Self {
        let (names, places): (Vec<String>, Vec<String>) = places.into_iter().unzip();
        let first = |place: &String| places.iter().position(|other| other == place).unwrap_or_default();
        let servers = places.iter().map(first).collect();
        Self { names, servers, ..Self::NONE }
    }

    /// The same with known cluster-scoped kinds.
    #[must_use]
    pub fn with_scopes(self, scopes: Scopes) -> Self {
        Self { scopes, ..self }
    }

    /// Whether a kind is known to be cluster-scoped.
    pub fn is_cluster_scoped(&self, group: &str, kind: &str) -> bool {
        self.scopes.is_cluster_scoped(group, kind)
    }

    /// The same with the default namespace of each cluster.
    #[must_use]
    pub fn with_default_namespaces(self, namespaces: impl IntoIterator<Item = String>) -> Self {
        Self { namespaces: namespaces.into_iter().collect(), ..self }
    }

    /// The default namespace of a cluster; empty if unknown.
    pub fn default_namespace(&self, cluster: &str) -> &str {
        let position = self.names.iter().position(|name| name == cluster);
        position.and_then(|position| self.namespaces.get(position)).map_or("", String::as_str)
    }

    /// Whether there are no clusters.
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

    /// The cluster name that identifies the location of an object: the first name of its server. An object in an unknown
    /// default namespace is identified by its own cluster name, since contexts have namespaces of their own.
    pub fn location<'a>(&'a self, cluster: &'a str, object: &ObjectRef) -> &'a str {
        let ObjectRef { group, kind, namespace, .. } = object;
        if namespace.is_empty() && !self.is_cluster_scoped(group, kind) { cluster } else { self.server(cluster) }
    }

    /// Whether a recorded object is already in the wanted cluster and namespace.
    pub fn is_at_target(&self, record: &StateResource, wanted: &Resource) -> bool {
        let (from, to) = (self.of_recorded(record), self.of_wanted(wanted));
        let is_one = |object: ObjectRef| self.location(from, &object) == self.location(to, &object);
        (from == to || self.recorded_object(record).is_some_and(is_one)) && self.namespaces(record, wanted).is_none()
    }

    /// The namespace that a recorded object is in, and the other one that it is wanted in: a cluster's default may have changed.
    pub(crate) fn namespaces(&self, record: &StateResource, wanted: &Resource) -> Option<[String; 2]> {
        let objects = [self.recorded_object(record)?, self.wanted_object(wanted)?];
        let [from, to] = objects.map(|object| object.namespace);
        // The namespace may contain a reference.
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

    /// The target cluster of a resource of the Spec.
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

    pub(crate) fn recorded(&self, record: &StateResource) -> Option<Identity> {
        self.identity(self.recorded_object(record)?, self.of_recorded(record))
    }

    /// The identity of a wanted object, with its target namespace.
    pub fn wanted_object(&self, resource: &Resource) -> Option<ObjectRef> {
        let object = ObjectRef::of(&resource.attributes).filter(|_| resource.kind == ResourceType::Kubernetes)?;
        Some(self.in_namespace(self.of_wanted(resource), object))
    }

    /// The identity of a recorded object, with the namespace that it was applied to.
    pub fn recorded_object(&self, record: &StateResource) -> Option<ObjectRef> {
        let mut object = ObjectRef::of(&record.attributes).filter(|_| record.kind == ResourceType::Kubernetes)?;
        if let Some(namespace) = record.default_namespace().filter(|_| object.namespace.is_empty()) {
            namespace.clone_into(&mut object.namespace);
        }
        Some(self.in_namespace(self.of_recorded(record), object))
    }

    /// The object with its actual namespace: the default one of its cluster if it has none, or none if its kind is
    /// cluster-scoped. The scope of unknown kinds does not matter, since the result is only compared.
    fn in_namespace(&self, cluster: &str, object: ObjectRef) -> ObjectRef {
        let mut object = self.scopes.scoped(object);
        if object.namespace.is_empty() && !self.is_cluster_scoped(&object.group, &object.kind) {
            self.default_namespace(cluster).clone_into(&mut object.namespace);
        }
        object
    }

    fn identity(&self, object: ObjectRef, cluster: &str) -> Option<Identity> {
        let place = self.location(cluster, &object).to_owned();
        Some((place, identity_of(object)?))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn id_may_end_in_cluster() {
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
    fn resource_without_cluster_goes_to_first() {
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

    /// Kinds outside of namespaces.
    fn scopes() -> Scopes {
        Scopes::NONE.with([("", "Namespace"), ("apiextensions.k8s.io", "CustomResourceDefinition")])
    }

    #[test]
    fn object_without_namespace_is_in_default_namespace() {
        let places = [("main", "a"), ("also", "a"), ("apart", "a")];
        let places = places.map(|(name, place)| (name.to_owned(), place.to_owned()));
        let clusters = Clusters::at(places)
            .with_default_namespaces(["shop", "shop", "other"].map(str::to_owned))
            .with_scopes(scopes());
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
    fn server_aliases_share_objects_of_one_namespace() {
        let places = [("main", "a"), ("east", "b"), ("also", "a"), ("far", "b")];
        let clusters =
            Clusters::at(places.map(|(name, place)| (name.to_owned(), place.to_owned()))).with_scopes(scopes());
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
