//! Validation of a Spec on its own, before anything is read.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use crate::bounds::Budget;
use crate::cluster;
use crate::declared;
use crate::dependencies::written;
use crate::graph::{Before, Graph};
use crate::ignore::Ignored;
use crate::import::check_import_id;
use crate::kind_rules::KindRules;
use crate::lookup::Settled;
use crate::object::ObjectRef;
use crate::path::{FieldPath, type_name};
use crate::plan::Action;
use crate::problem::{Problem, reason};
use crate::reference::{Reference, ReferenceError, may_refer};
use crate::resolve::{self, Lookup};
use crate::spec::{Resource, ResourceId, ResourceType, Spec};
use crate::stored_secret;
use crate::timeout::timeout;

impl Spec {
    /// Checks ids, identities of Kubernetes objects, dependencies and references, and that there is no cycle.
    ///
    /// Only the planner checks whether the paths of references exist. Their expansion is counted as far as the Spec alone
    /// allows.
    pub fn validate(&self, rules: &dyn KindRules) -> Result<(), Vec<Problem>> {
        let before = self.checked(rules)?;
        let problems = self.too_large(&before);
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// Problems of references that expand to too much, by the Spec alone.
    fn too_large(&self, before: &Before) -> Vec<Problem> {
        let by_id: HashMap<&str, &Resource> = self.resources.iter().map(|it| (it.id.0.as_str(), it)).collect();
        let referring: HashSet<&ResourceId> =
            self.resources.iter().filter(|it| resolve::refers(&it.attributes)).map(|it| &it.id).collect();
        let mut problems = Vec::new();
        if referring.is_empty() {
            return problems;
        }
        let needed: HashSet<&ResourceId> = referring.iter().filter_map(|id| before.get(*id)).flatten().collect();
        let known = |id: &str| by_id.contains_key(id);
        let mut settled: HashMap<&ResourceId, Settled<'_>> = HashMap::new();
        let mut budget = Budget::default();
        let order = Graph::new(before).order().unwrap_or_default();
        for resource in order.iter().filter_map(|id| by_id.get(id.0.as_str())) {
            let id = &resource.id;
            if !referring.contains(id) && !needed.contains(id) {
                continue;
            }
            let mut lookup = |reference: &Reference| match settled.get(&reference.id) {
                Some(target) => target.lookup(reference),
                None => Ok(Lookup::Unknown),
            };
            match resolve::resolve(resource, &known, &mut lookup, &mut budget) {
                Ok(resolved) if needed.contains(id) => {
                    // Without live objects, the Spec alone decides.
                    settled.insert(id, Settled::new(resource, Cow::Owned(resolved), Action::Create, None));
                }
                Ok(_) => {}
                Err(errors) => {
                    let too_large = errors.iter().filter(|(_, err)| matches!(err, ReferenceError::TooLarge(_)));
                    problems.extend(too_large.map(|(field, err)| reference_problem(id, field, err)));
                    if budget.is_spent() {
                        break;
                    }
                }
            }
        }
        problems
    }

    /// As [`validate`](Self::validate), with the explicit dependencies of each resource.
    pub(crate) fn checked(&self, rules: &dyn KindRules) -> Result<Before, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut ids = HashSet::new();
        let known: HashSet<&str> = self.resources.iter().map(|resource| resource.id.0.as_str()).collect();
        let mut objects: HashMap<_, &Resource> = HashMap::with_capacity(self.resources.len());
        let kubernetes = self.resources.iter().filter(|resource| resource.kind == ResourceType::Kubernetes);
        let scopes = rules.scopes(&kubernetes.map(|resource| &resource.attributes).collect::<Vec<_>>());
        for (position, resource) in self.resources.iter().enumerate() {
            let id = &resource.id;
            if id.0.trim().is_empty() {
                let message = "the id is empty";
                problems
                    .push(Problem::new(reason::INVALID_RESOURCE_ID, message).at(format!("resources[{position}].id")));
                continue;
            }
            if !ids.insert(id) {
                problems.push(Problem::new(reason::DUPLICATE_RESOURCE, "two resources have this id").of(id).at("id"));
                continue;
            }
            if resource.kind == ResourceType::Kubernetes {
                let found = check_object(resource, rules).into_iter().chain(check_import_id(resource));
                problems.extend(found.map(|problem| problem.of(id)));
                let place = cluster::named(&resource.extensions).map_err(|field| {
                    let message = "must be the name of a cluster";
                    problems.push(Problem::new(reason::INVALID_RESOURCE, message).of(id).at(field));
                });
                let object = ObjectRef::of(&resource.attributes).and_then(|it| identity_of(scopes.scoped(it)));
                let object = object.map(|object| (place.unwrap_or_default(), object));
                if let Some(first) = object.and_then(|object| objects.insert(object, resource)) {
                    problems.push(same_object(first, resource));
                }
            }
            problems.extend(stored_secret::check(resource));
            problems.extend(resource.check_switches());
            problems.extend(Ignored::of(resource).err().map(|problem| problem.of(id)));
            problems.extend(declared::check(resource));
            problems.extend(timeout(&resource.extensions, &resource.attributes).err().map(|problem| problem.of(id)));
            problems.extend(check_dependencies(resource, &known));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        written(&self.resources.iter().collect::<Vec<_>>())
    }
}

/// Two resources that want the same object. One of a kind that has no namespace may name one all the same.
pub(crate) fn same_object(first: &Resource, second: &Resource) -> Problem {
    let objects = [first, second].map(|it| ObjectRef::of(&it.attributes));
    let (message, field) = match objects {
        [Some(one), Some(other)] if one.namespace != other.namespace => (
            format!("{} is cluster-scoped, so this is the same object as {}", other.kind, first.named()),
            "attributes.metadata.namespace",
        ),
        _ => (format!("this is the same object as {}", first.named()), "attributes"),
    };
    Problem::new(reason::DUPLICATE_RESOURCE, message).of(&second.id).at(field)
}

/// The identity of an object apart from its version; `None` while a reference is in it.
pub(crate) fn identity(attributes: &Map<String, Value>) -> Option<[String; 4]> {
    identity_of(ObjectRef::of(attributes)?)
}

/// The same of a parsed object.
pub(crate) fn identity_of(object: ObjectRef) -> Option<[String; 4]> {
    let parts = [object.group, object.kind, object.namespace, object.name];
    (!parts.iter().any(|part| may_refer(part))).then_some(parts)
}

fn check_dependencies(resource: &Resource, known: &HashSet<&str>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (position, dependency) in resource.depends_on.iter().enumerate() {
        if !known.contains(dependency.0.as_str()) {
            let message = format!("no resource has the id {dependency}");
            let problem = Problem::new(reason::DANGLING_REFERENCE, message).of(&resource.id);
            problems.push(problem.at(format!("dependsOn[{position}]")));
        }
    }
    let (_, errors) = resolve::references(&resource.attributes, &|id| known.contains(id));
    problems.extend(errors.into_iter().map(|(field, err)| reference_problem(&resource.id, &field, &err)));
    problems
}

/// Tells of a reference that is wrong.
pub(crate) fn reference_problem(id: &ResourceId, field: &FieldPath, err: &ReferenceError) -> Problem {
    Problem::new(err.reason(), err.to_string()).of(id).at(format!("attributes.{field}"))
}

/// Checks that the attributes are an object and that the id is that object's.
fn check_object(resource: &Resource, rules: &dyn KindRules) -> Vec<Problem> {
    let attributes = &resource.attributes;
    let mut problems = Vec::new();
    for (parent, key) in [(None, "apiVersion"), (None, "kind"), (Some("metadata"), "name")] {
        let field = parent.map_or_else(|| format!("attributes.{key}"), |parent| format!("attributes.{parent}.{key}"));
        let map = match parent.map(|parent| attributes.get(parent)) {
            None => Some(attributes),
            Some(Some(Value::Object(map))) => Some(map),
            Some(None | Some(Value::Null)) => None,
            Some(Some(other)) => {
                let message = format!("must be a map, not {}", type_name(other));
                problems.push(Problem::new(reason::INVALID_RESOURCE, message).at("attributes.metadata"));
                continue;
            }
        };
        match map.and_then(|map| map.get(key)) {
            Some(Value::String(text)) if !text.is_empty() => {}
            None | Some(Value::Null | Value::String(_)) => {
                let message = format!("a Kubernetes object needs {}", field.trim_start_matches("attributes."));
                problems.push(Problem::new(reason::MISSING_FIELD, message).at(field));
            }
            Some(other) => {
                let message = format!("must be text, not {}", type_name(other));
                problems.push(Problem::new(reason::INVALID_RESOURCE, message).at(field));
            }
        }
    }
    if let Some(namespace @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_))) =
        attributes.get("metadata").and_then(|metadata| metadata.get("namespace"))
    {
        let message = format!("must be text, not {}", type_name(namespace));
        problems.push(Problem::new(reason::INVALID_RESOURCE, message).at("attributes.metadata.namespace"));
    }
    let Some(object) = ObjectRef::of(attributes).filter(|_| problems.is_empty()) else { return problems };
    for (field, text) in [("name", &object.name), ("namespace", &object.namespace)] {
        // Kubernetes' rule for every name, since names become parts of paths.
        if matches!(text.as_str(), "." | "..") || (!may_refer(text) && text.contains(['/', '%'])) {
            let message = format!("`{text}` cannot be a {field}: it may not be `.` or `..` nor contain `/` or `%`");
            problems.push(Problem::new(reason::INVALID_RESOURCE, message).at(format!("attributes.metadata.{field}")));
        }
    }
    let api_version = object.api_version();
    let named = [
        ("apiVersion", &api_version),
        ("kind", &object.kind),
        ("metadata.name", &object.name),
        ("metadata.namespace", &object.namespace),
    ];
    for (field, text) in named {
        if !may_refer(text) && text.contains(char::is_control) {
            let message = "must not contain control characters";
            problems.push(Problem::new(reason::INVALID_RESOURCE, message).at(format!("attributes.{field}")));
        }
    }
    problems.extend(rules.problems(&object, attributes));
    if problems.is_empty() {
        // A name that is not text has a problem of its own.
        let cluster = cluster::named(&resource.extensions).unwrap_or_default();
        problems.extend(check_id(&resource.id, &object, Some(cluster)));
    }
    problems
}

/// Checks that an id is `apiVersion:Kind:namespace:name` or `apiVersion:Kind:name` of the object, with an optional `/` and
/// cluster name, as far as no reference hides that.
pub(crate) fn check_id(id: &ResourceId, object: &ObjectRef, cluster: Option<&str>) -> Option<Problem> {
    let (id, at) = cluster::split(id);
    if let Some(named) = cluster.filter(|named| !at.is_empty() && at != *named) {
        let message = format!("the id does not match the cluster `{named}`");
        return Some(Problem::new(reason::INVALID_RESOURCE_ID, message).at(format!("extensions.{}", cluster::CLUSTER)));
    }
    let api_version = object.api_version();
    let mismatch = |field: &str, text: &str| {
        let message = format!("the id does not match {field} `{text}`");
        Some(Problem::new(reason::INVALID_RESOURCE_ID, message).at(format!("attributes.{field}")))
    };
    let mut rest = id;
    for (field, text) in [("apiVersion", &api_version), ("kind", &object.kind)] {
        if may_refer(text) {
            return None;
        }
        match rest.strip_prefix(text.as_str()).and_then(|rest| rest.strip_prefix(':')) {
            Some(after) => rest = after,
            None => return mismatch(field, text),
        }
    }
    if may_refer(&object.name) {
        return None;
    }
    let Some(before) = rest.strip_suffix(object.name.as_str()) else { return mismatch("metadata.name", &object.name) };
    let namespace = before.strip_suffix(':');
    match (before, namespace) {
        // `apiVersion:Kind:name`
        ("", _) if object.namespace.is_empty() => None,
        // Kusion writes `default` for an object without a namespace.
        (_, Some("default")) if object.namespace.is_empty() => None,
        (_, Some(namespace)) if namespace == object.namespace || may_refer(&object.namespace) => None,
        ("", _) | (_, Some(_)) => mismatch("metadata.namespace", &object.namespace),
        (_, None) => mismatch("metadata.name", &object.name),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kind_rules::NoRules;

    fn check(resources: Value, expected: &str) {
        let spec: Spec = serde_json::from_value(json!({ "resources": resources })).unwrap();
        let told: Vec<String> = match spec.validate(&NoRules) {
            Ok(()) => Vec::new(),
            Err(problems) => problems.iter().map(|problem| format!("{}: {problem}", problem.reason)).collect(),
        };
        assert_eq!(told.join("\n"), expected);
    }

    fn config_map(id: &str, metadata: Value) -> Value {
        json!({"id": id, "type": "Kubernetes", "attributes": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}})
    }

    #[test]
    fn dependency_cycle_is_reported_with_path() {
        let after = |name: &str, other: &str| {
            let id = |name| format!("v1:ConfigMap:shop:{name}");
            let mut resource = config_map(&id(name), json!({"name": name, "namespace": "shop"}));
            resource["dependsOn"] = json!([id(other)]);
            resource
        };
        check(
            json!([after("a", "b"), after("b", "a")]),
            "CyclicDependency: v1:ConfigMap:shop:a: resources depend on each other: \
             v1:ConfigMap:shop:a → v1:ConfigMap:shop:b → v1:ConfigMap:shop:a",
        );
    }

    #[test]
    fn flags_accept_true_or_false_only() {
        let with = |extensions: Value, annotations: Value| {
            let mut resource = config_map("v1:ConfigMap:a", json!({"name": "a", "annotations": annotations}));
            resource["extensions"] = extensions;
            json!([resource])
        };
        for value in [json!(true), json!(false), json!("true"), json!("false"), Value::Null] {
            check(with(json!({"stoa.dev/recreate": value}), json!({"stoa.dev/force-conflicts": value})), "");
        }
        check(
            with(
                json!({"stoa.dev/recreate": "yes", "stoa.dev/delete-contents": 1}),
                json!({"stoa.dev/force-conflicts": "True"}),
            ),
            "InvalidResource: v1:ConfigMap:a: extensions[\"stoa.dev/recreate\"]: must be \"true\" or \"false\", not \
             \"yes\"\nInvalidResource: v1:ConfigMap:a: \
             attributes.metadata.annotations[\"stoa.dev/force-conflicts\"]: must be \"true\" or \"false\", not \
             \"True\"\nInvalidResource: v1:ConfigMap:a: extensions[\"stoa.dev/delete-contents\"]: must be \"true\" \
             or \"false\", not 1",
        );
    }

    #[test]
    fn valid_spec_has_no_problems() {
        check(
            json!([
                config_map("v1:ConfigMap:shop:web", json!({"name": "web", "namespace": "shop"})),
                config_map("v1:ConfigMap:default:a", json!({"name": "a"})),
                config_map("v1:ConfigMap:b", json!({"name": "b"})),
                config_map("v1:ConfigMap:shop:c", json!({"name": "c", "namespace": "$kusion_path.v1:ConfigMap:b.metadata.name"})),
                {"id": "rbac.authorization.k8s.io/v1:ClusterRole:system:web", "type": "Kubernetes", "attributes":
                    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "system:web"}}},
                {"id": "hashicorp:random:random_password:db", "type": "Terraform", "attributes": {"length": 16}},
            ]),
            "",
        );
    }

    #[test]
    fn ids_are_there_and_unique() {
        check(
            json!([
                {"id": " ", "type": "Terraform", "attributes": {}},
                {"id": "a", "type": "Terraform", "attributes": {}},
                {"id": "a", "type": "Terraform", "attributes": {}},
            ]),
            "InvalidResourceID: resources[0].id: the id is empty\nDuplicateResource: a: id: two resources have this id",
        );
    }

    #[test]
    fn id_mismatch_names_field() {
        check(
            json!([
                config_map("v2:ConfigMap:shop:web", json!({"name": "web", "namespace": "shop"})),
                config_map("v1:Secret:shop:web", json!({"name": "web", "namespace": "shop"})),
                config_map("v1:ConfigMap:other:web2", json!({"name": "web2", "namespace": "shop"})),
                config_map("v1:ConfigMap:shop:api", json!({"name": "web3", "namespace": "shop"})),
                config_map("v1:ConfigMap:web4", json!({"name": "web4", "namespace": "shop"})),
            ]),
            "InvalidResourceID: v2:ConfigMap:shop:web: attributes.apiVersion: the id does not match apiVersion \
             `v1`\nInvalidResourceID: v1:Secret:shop:web: attributes.kind: the id does not match kind \
             `ConfigMap`\nDuplicateResource: v1:Secret:shop:web: attributes: this is the same object as \
             v2:ConfigMap:shop:web\nInvalidResourceID: v1:ConfigMap:other:web2: attributes.metadata.namespace: the \
             id does not match metadata.namespace `shop`\nInvalidResourceID: v1:ConfigMap:shop:api: \
             attributes.metadata.name: the id does not match metadata.name `web3`\nInvalidResourceID: \
             v1:ConfigMap:web4: attributes.metadata.namespace: the id does not match metadata.namespace `shop`",
        );
    }

    #[test]
    fn clusters_are_part_of_id() {
        let metadata = || json!({"name": "web", "namespace": "shop"});
        let in_cluster = |id: &str, extensions: Value| {
            let mut resource = config_map(id, metadata());
            resource["extensions"] = extensions;
            resource
        };
        check(
            json!([
                config_map("v1:ConfigMap:shop:web", metadata()),
                in_cluster("v1:ConfigMap:shop:web/east", json!({"cluster": "east"})),
                in_cluster("v1:ConfigMap:shop:web/west", json!({"kubeConfig": "west"})),
                {"id": "v1:ConfigMap:shop:api", "type": "Kubernetes", "extensions": {"cluster": "east"}, "attributes": {
                    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "api", "namespace": "shop"},
                    "data": {"a": "$kusion_path.v1:ConfigMap:shop:web/east.data.a", "b": "${kusion_path.v1:ConfigMap:shop:web.data.a}"}}},
            ]),
            "",
        );
        check(
            json!([
                in_cluster("v1:ConfigMap:shop:web/east", json!({"cluster": "west"})),
                in_cluster("v1:ConfigMap:shop:web", json!({"cluster": "west"})),
                in_cluster("v1:ConfigMap:shop:web/nowhere", json!({})),
                in_cluster("v1:ConfigMap:shop:web/x", json!({"cluster": 1})),
            ]),
            "InvalidResourceID: v1:ConfigMap:shop:web/east: extensions.cluster: the id does not match the cluster \
             `west`\nDuplicateResource: v1:ConfigMap:shop:web: attributes: this is the same object as \
             v1:ConfigMap:shop:web/east\nInvalidResourceID: v1:ConfigMap:shop:web/nowhere: extensions.cluster: the \
             id does not match the cluster ``\nInvalidResourceID: v1:ConfigMap:shop:web/x: extensions.cluster: the \
             id does not match the cluster ``\nInvalidResource: v1:ConfigMap:shop:web/x: extensions.cluster: \
             must be the name of a cluster\nDuplicateResource: v1:ConfigMap:shop:web/x: attributes: this is the same \
             object as v1:ConfigMap:shop:web/nowhere",
        );
    }

    #[test]
    fn identity_fields_are_required() {
        check(
            json!([
                {"id": "v1:ConfigMap:a", "type": "Kubernetes", "attributes": {"kind": "ConfigMap", "metadata": {"name": "a"}}},
                {"id": "v1:ConfigMap:b", "type": "Kubernetes", "attributes": {"apiVersion": "v1", "kind": "", "metadata": {"name": "b", "namespace": 7}}},
                config_map("v1:ConfigMap:c", json!({"generateName": "c-"})),
                config_map("v1:ConfigMap:7", json!({"name": 7})),
                config_map("v1:ConfigMap:..", json!({"name": ".."})),
            ]),
            "MissingField: v1:ConfigMap:a: attributes.apiVersion: a Kubernetes object needs \
             apiVersion\nMissingField: v1:ConfigMap:b: attributes.kind: a Kubernetes object needs \
             kind\nInvalidResource: v1:ConfigMap:b: attributes.metadata.namespace: must be text, not a \
             number\nMissingField: v1:ConfigMap:c: attributes.metadata.name: a Kubernetes object needs \
             metadata.name\nInvalidResource: v1:ConfigMap:7: attributes.metadata.name: must be text, not a \
             number\nInvalidResource: v1:ConfigMap:..: attributes.metadata.name: `..` cannot be a name: it may not \
             be `.` or `..` nor contain `/` or `%`",
        );
    }

    #[test]
    fn no_control_character_identifies_an_object() {
        let named = |api_version: &str, name: &str, namespace: &str| {
            let id = format!("{api_version}:Widget:{namespace}:{name}");
            json!({"id": id, "type": "Kubernetes", "attributes": {
                "apiVersion": api_version, "kind": "Widget", "metadata": {"name": name, "namespace": namespace}}})
        };
        check(
            json!([
                named("example\0.com/v1", "a", "shop"),
                named("example.com/v1", "b", "shop\0"),
                named("example.com/v1", "c\n", "shop"),
            ]),
            "InvalidResource: example\0.com/v1:Widget:shop:a: attributes.apiVersion: must not contain control \
             characters\nInvalidResource: example.com/v1:Widget:shop\0:b: attributes.metadata.namespace: must not \
             contain control characters\nInvalidResource: example.com/v1:Widget:shop:c\n: attributes.metadata.name: \
             must not contain control characters",
        );
    }

    #[test]
    fn dependencies_and_references_must_name_resources() {
        check(
            json!([{"id": "a", "type": "Terraform", "dependsOn": ["b"], "attributes": {
                "x": "$kusion_path.c.name", "y": ["${kusion_path.a.name", "${kusion_path.d.x}"]}}]),
            "DanglingReference: a: dependsOn[0]: no resource has the id b\nDanglingReference: a: attributes.x: at \
             character 1: `c.name` does not begin with the id of a resource\nInvalidReference: a: attributes.y[0]: \
             at character 21: the reference is not closed with `}`\nDanglingReference: a: attributes.y[1]: at \
             character 1: `d.x` does not begin with the id of a resource",
        );
    }
}
