//! Definitions of kinds: a CustomResourceDefinition defines one kind, an APIService all kinds of a group and version.
//!
//! Start at `undefined`, which finds the resources whose kinds neither the cluster nor the plan has. [`Definitions`]
//! finds the definition of an object.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value};
use stoa_engine::cluster::Clusters;
use stoa_engine::object::ObjectRef;
use stoa_engine::plan::Plan;
use stoa_engine::spec::{Resource, ResourceId, ResourceType};

use crate::kinds::{is_built_in, runs_programs};

/// The kinds that an object defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition<'a> {
    group: &'a str,
    /// `None` where it is every kind of the group and versions.
    kind: Option<&'a str>,
    /// The versions that are served.
    versions: Vec<&'a str>,
}

impl<'a> Definition<'a> {
    /// Reads it from a CustomResourceDefinition or an APIService; `None` of anything else, and where a text is missing.
    pub fn of(object: &'a Map<String, Value>) -> Option<Self> {
        let defined = ObjectRef::of(object)?;
        let spec = object.get("spec")?;
        let group = spec.get("group")?.as_str()?;
        if defined.is_custom_resource_definition() {
            let versions = spec.get("versions").and_then(Value::as_array).into_iter().flatten();
            let served = versions.filter(|version| version.get("served") != Some(&false.into()));
            let versions = served.filter_map(|version| version.get("name")?.as_str()).collect();
            return Some(Self { group, kind: Some(spec.get("names")?.get("kind")?.as_str()?), versions });
        }
        let is_service = defined.group == "apiregistration.k8s.io" && defined.kind == "APIService";
        let version = spec.get("version").and_then(Value::as_str).filter(|_| is_service)?;
        Some(Self { group, kind: None, versions: vec![version] })
    }

    /// Whether it defines the kind in this version.
    pub fn has(&self, group: &str, version: &str, kind: &str) -> bool {
        self.group == group && self.kind.is_none_or(|it| it == kind) && self.versions.contains(&version)
    }

    /// Whether it is the CustomResourceDefinition of an object's kind, in any version.
    pub fn defines(&self, object: &ObjectRef) -> bool {
        self.deletes_objects() && self.is_of(object)
    }

    /// Whether it defines the kind of an object. The versions of a CustomResourceDefinition do not matter.
    pub(crate) fn is_of(&self, object: &ObjectRef) -> bool {
        let is_of_kind = match self.kind {
            Some(kind) => kind == object.kind,
            None => self.versions.contains(&object.version.as_str()),
        };
        self.group == object.group && is_of_kind
    }

    /// The group and the kind that it defines; `None` where it is every kind of the group.
    pub(crate) fn group_and_kind(&self) -> Option<(String, String)> {
        Some((self.group.to_owned(), self.kind?.to_owned()))
    }

    /// Whether its deletion deletes the objects of its kind. The server of an APIService keeps them.
    pub(crate) fn deletes_objects(&self) -> bool {
        self.kind.is_some()
    }
}

/// The definitions in a list of resources.
#[derive(Debug)]
pub struct Definitions<'a> {
    clusters: &'a Clusters,
    /// By the first name of their server, and the group.
    by_place: HashMap<(&'a str, &'a str), Vec<(&'a ResourceId, Definition<'a>)>>,
}

impl<'a> Definitions<'a> {
    /// Gathers it.
    pub fn of(resources: impl IntoIterator<Item = &'a Resource>, clusters: &'a Clusters) -> Self {
        let mut by_place: HashMap<_, Vec<_>> = HashMap::new();
        for resource in resources.into_iter().filter(|resource| resource.kind == ResourceType::Kubernetes) {
            if let Some(definition) = Definition::of(&resource.attributes) {
                let place = (clusters.server(clusters.of_wanted(resource)), definition.group);
                by_place.entry(place).or_default().push((&resource.id, definition));
            }
        }
        Self { clusters, by_place }
    }

    fn of_group<'s>(&'s self, cluster: &'s str, group: &'s str) -> &'s [(&'a ResourceId, Definition<'a>)] {
        self.by_place.get(&(self.clusters.server(cluster), group)).map(Vec::as_slice).unwrap_or_default()
    }

    /// The resources that an object comes after, since they define its kind.
    pub(crate) fn before<'s>(
        &'s self,
        cluster: &'s str,
        object: &'s ObjectRef,
    ) -> impl Iterator<Item = &'a ResourceId> {
        let of_group = self.of_group(cluster, &object.group).iter();
        of_group.filter(move |(_, definition)| definition.is_of(object)).map(|(id, _)| *id)
    }

    /// The CustomResourceDefinition of an object in a cluster, in any version.
    pub fn custom(&self, cluster: &str, object: &ObjectRef) -> Option<&'a ResourceId> {
        let mut all = self.of_group(cluster, &object.group).iter();
        all.find(|(_, definition)| definition.defines(object)).map(|(id, _)| *id)
    }

    /// Whether any of them defines the kind of an object in its version.
    pub(crate) fn has(&self, cluster: &str, object: &ObjectRef) -> bool {
        let all = self.of_group(cluster, &object.group);
        all.iter().any(|(_, definition)| definition.has(&object.group, &object.version, &object.kind))
    }
}

/// The entry of `spec.versions` in a CustomResourceDefinition, for a version that it serves.
pub fn served_version<'a>(definition: &'a Map<String, Value>, version: &str) -> Option<&'a Value> {
    let versions = definition.get("spec")?.get("versions")?.as_array()?;
    let is_it = |it: &&Value| it["name"] == version && it.get("served") != Some(&Value::Bool(false));
    versions.iter().find(is_it)
}

/// The resources of `lacking`, whose kinds do not exist in their cluster, that the plan does not provide either.
///
/// A kind is provided by a definition in `desired`, or by a changed dependency that may install kinds, such as an operator.
pub(crate) fn undefined(
    plan: &Plan,
    desired: &BTreeMap<&ResourceId, &Resource>,
    clusters: &Clusters,
    lacking: &BTreeSet<&ResourceId>,
) -> Vec<ResourceId> {
    if lacking.is_empty() {
        return Vec::new();
    }
    let definitions = Definitions::of(desired.values().copied(), clusters);
    let may_have = |resource: &Resource, is_brought: bool| match ObjectRef::of(&resource.attributes) {
        Some(object) if definitions.has(clusters.of_wanted(resource), &object) => true,
        // Only Kubernetes itself brings its own.
        Some(object) => is_brought && !is_built_in(&object.group),
        None => is_brought,
    };
    let mut undefined = Vec::new();
    // Changed resources that may install kinds, and their dependents.
    let mut bringing: HashSet<&ResourceId> = HashSet::new();
    for action in &plan.actions {
        let Some(resource) = desired.get(&action.id).copied() else { continue };
        let is_after = action.depends_on.iter().any(|id| bringing.contains(id));
        if lacking.contains(&action.id) && !may_have(resource, is_after) {
            undefined.push(action.id.clone());
        } else if is_after || (action.action.is_call() && may_bring_kinds(resource)) {
            bringing.insert(&action.id);
        }
    }
    undefined
}

fn may_bring_kinds(resource: &Resource) -> bool {
    let is_able = |object: ObjectRef| !is_built_in(&object.group) || runs_programs(&object.group, &object.kind);
    resource.kind != ResourceType::Kubernetes || ObjectRef::of(&resource.attributes).is_some_and(is_able)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stoa_engine::plan::{Action, PlannedAction};

    use super::*;

    fn resource(api_version: &str, kind: &str, name: &str, spec: Value) -> Resource {
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
        Resource {
            id: name.into(),
            kind: ResourceType::Kubernetes,
            attributes: object.as_object().unwrap().clone(),
            depends_on: Vec::new(),
            extensions: Map::new(),
        }
    }

    fn definition(group: &str, kind: &str) -> Resource {
        let versions = json!([{"name": "v1", "served": true}, {"name": "v0", "served": false}]);
        let spec = json!({"group": group, "names": {"kind": kind}, "versions": versions});
        resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "crd", spec)
    }

    /// Whether nothing brings the kind of a resource `w`, where these come before it one after the other.
    fn check(lacking: (&str, &str), before: &[(Resource, Action)]) -> bool {
        let widget = (resource(lacking.0, lacking.1, "w", json!({})), Action::Create);
        let mut plan = Plan::of("");
        let mut desired = BTreeMap::new();
        for (resource, action) in before.iter().cloned().chain([widget]) {
            let depends_on = plan.actions.last().map(|last: &PlannedAction| last.id.clone()).into_iter().collect();
            let planned = PlannedAction::new(resource.id.clone(), resource.kind, action);
            plan.actions.push(PlannedAction { depends_on, ..planned });
            desired.insert(resource.id.clone(), resource);
        }
        let w = ResourceId::from("w");
        let desired = desired.iter().collect();
        let undefined = undefined(&plan, &desired, &Clusters::default(), &BTreeSet::from([&w]));
        assert!(undefined.is_empty() || undefined == [w.clone()]);
        !undefined.is_empty()
    }

    #[test]
    fn definition_brings_its_served_versions() {
        let widget = ("example.com/v1", "Widget");
        let defined = |group, kind| [(definition(group, kind), Action::Unchanged)];
        assert!(!check(widget, &defined("example.com", "Widget")));
        for (group, kind) in [("exmple.com", "Widget"), ("example.com", "Wigdet")] {
            assert!(check(widget, &defined(group, kind)), "{group} {kind}");
        }
        for version in ["example.com/v0", "example.com/v2"] {
            assert!(check((version, "Widget"), &defined("example.com", "Widget")), "{version}");
        }
        let service = |version: &str| {
            let spec = json!({"group": "example.com", "version": version});
            [(resource("apiregistration.k8s.io/v1", "APIService", "service", spec), Action::Create)]
        };
        assert!(!check(widget, &service("v1")));
        assert!(check(widget, &service("v2")));
    }

    #[test]
    fn workloads_and_custom_resources_may_bring_kinds() {
        let widget = ("example.com/v1", "Widget");
        for (before, action, is_undefined) in [
            (("apps/v1", "Deployment"), Action::Create, false),
            (("apps/v1", "Deployment"), Action::Update, false),
            (("apps/v1", "Deployment"), Action::Unchanged, true),
            (("batch/v1", "Job"), Action::Replace, false),
            (("v1", "Pod"), Action::Adopt, false),
            (("helm.example.com/v1", "Release"), Action::Create, false),
            (("v1", "Namespace"), Action::Create, true),
            (("v1", "ConfigMap"), Action::Create, true),
            (("rbac.authorization.k8s.io/v1", "ClusterRole"), Action::Create, true),
        ] {
            let first = (resource(before.0, before.1, "a", json!({})), action);
            let between = (resource("v1", "ConfigMap", "b", json!({})), Action::Unchanged);
            assert_eq!(check(widget, std::slice::from_ref(&first)), is_undefined, "{before:?} {action}");
            assert_eq!(check(widget, &[first, between]), is_undefined, "{before:?} {action}");
        }
        let of_terraform = Resource { kind: ResourceType::Terraform, ..resource("v1", "ConfigMap", "a", json!({})) };
        assert!(!check(widget, &[(of_terraform, Action::Create)]));
        let operator = (resource("apps/v1", "Deployment", "a", json!({})), Action::Create);
        assert!(check(("networking.k8s.io/v9", "Ingress"), &[operator]), "Kubernetes brings its own alone");
    }

    #[test]
    fn object_has_definition_of_its_cluster() {
        let clusters = Clusters::new(vec!["main".to_owned(), "east".to_owned()]);
        let mut in_east = definition("example.com", "Gadget");
        in_east.extensions.insert("cluster".to_owned(), json!("east"));
        let in_main = definition("example.com", "Widget");
        let service = json!({"group": "example.com", "version": "v1"});
        let service = resource("apiregistration.k8s.io/v1", "APIService", "service", service);
        let definitions = Definitions::of([&service, &in_main, &in_east], &clusters);
        let has = |cluster: &str, api_version: &str, kind: &str| {
            let object = resource(api_version, kind, "w", json!({}));
            definitions.custom(cluster, &ObjectRef::of(&object.attributes).unwrap()).is_some()
        };
        assert!(has("main", "example.com/v1", "Widget") && has("main", "example.com/v7", "Widget"));
        assert!(has("east", "example.com/v1", "Gadget") && !has("main", "example.com/v1", "Gadget"));
        assert!(!has("main", "example.org/v1", "Widget"));
        assert_eq!(served_version(&in_main.attributes, "v1").unwrap()["name"], "v1");
        assert_eq!(
            (served_version(&in_main.attributes, "v0"), served_version(&in_main.attributes, "v2")),
            (None, None)
        );
    }

    #[test]
    fn undefined_resource_brings_no_kinds() {
        let all = ["a", "b"].map(|name| resource("example.com/v1", "Widget", name, json!({})));
        let plan = Plan {
            actions: vec![
                PlannedAction::new("a".into(), ResourceType::Kubernetes, Action::Create),
                PlannedAction {
                    depends_on: vec!["a".into()],
                    ..PlannedAction::new("b".into(), ResourceType::Kubernetes, Action::Create)
                },
            ],
            ..Plan::of("")
        };
        let desired: BTreeMap<_, _> = all.iter().map(|resource| (&resource.id, resource)).collect();
        let lacking: BTreeSet<&ResourceId> = desired.keys().copied().collect();
        let undefined = undefined(&plan, &desired, &Clusters::default(), &lacking);
        assert_eq!(undefined.iter().map(|id| id.0.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    }
}
