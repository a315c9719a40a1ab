//! Changes between two states, such as those of two releases.
//!
//! States have digests in place of sensitive values. Digests are compared and never shown:
//! [`MASK`](crate::sensitive::MASK) stands in their place.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::cluster::Identity;
use crate::diff::between;
use crate::moved::MOVED_FROM;
use crate::object::secret_as_stored;
use crate::path::FieldPath;
use crate::plan::FieldChange;
use crate::secret_digest::{blank, masked_paths};
use crate::spec::{ResourceId, ResourceType};
use crate::state::{State, StateResource};
use crate::validate::identity;

/// How a resource changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Change {
    /// It is only in the later state.
    Added,
    /// It is in both, and differs.
    Changed,
    /// It is only in the earlier state.
    Removed,
}

/// A resource that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceChange {
    /// Which.
    pub id: ResourceId,
    /// Its resource type.
    #[serde(rename = "type")]
    pub kind: ResourceType,
    /// How it changed.
    pub change: Change,
    /// The id that the same object had before, when its id changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded_as: Option<ResourceId>,
    /// Which of its attributes changed; empty unless it is in both states.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FieldChange>,
    /// Changed settings: `type`, `cluster`, `dependsOn`, `extensions[<key>]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<FieldChange>,
}

/// The changes between two states.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Changes {
    /// The resources that differ, by id.
    pub resources: Vec<ResourceChange>,
    /// The number of resources without a difference.
    pub unchanged: usize,
    /// By id, where sensitive values are that are not compared.
    #[serde(rename = "notCompared", skip_serializing_if = "Vec::is_empty")]
    pub not_compared: Vec<NotCompared>,
}

/// A resource with sensitive values whose digests cannot be compared, since they have different keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotCompared {
    /// Which.
    pub id: ResourceId,
    /// The paths of these values; a list counts as a whole.
    pub paths: Vec<String>,
}

impl Changes {
    /// The changes from one state to another. Values that only the infrastructure chose are not compared.
    pub fn between(before: &State, after: &State) -> Self {
        let mut gone: BTreeMap<&ResourceId, &StateResource> = before.resources.iter().map(|it| (&it.id, it)).collect();
        let kept: Vec<(&StateResource, Option<&StateResource>)> =
            after.resources.iter().map(|it| (it, gone.remove(&it.id))).collect();
        let mut renamed: HashMap<Identity, &StateResource> =
            gone.values().filter_map(|it| Some((object(it)?, *it))).collect();
        let mut changes = Self::default();
        for (after, before) in kept {
            let before = before.or_else(|| renamed.remove(&object(after)?));
            let Some(before) = before else {
                changes.resources.push(whole(after, Change::Added));
                continue;
            };
            gone.remove(&before.id);
            let change = ResourceChange {
                recorded_as: (before.id != after.id).then(|| before.id.clone()),
                changes: between(&after.id, after.kind, &before.attributes, &after.attributes),
                settings: settings(before, after),
                ..whole(after, Change::Changed)
            };
            if change.changes.is_empty() && change.settings.is_empty() && change.recorded_as.is_none() {
                changes.unchanged += 1;
            } else {
                changes.resources.push(change);
            }
        }
        changes.resources.extend(gone.into_values().map(|it| whole(it, Change::Removed)));
        changes.resources.sort_by(|a, b| a.id.cmp(&b.id));
        changes
    }

    /// The differences between two deployments, of one stack or several. Digests and cluster names are not compared, since
    /// each deployment has its own.
    pub fn across(before: &State, after: &State) -> Self {
        let [before, after] = [before, after].map(without_what_is_its_own);
        let mut changes = Self::between(&before, &after);
        let recorded_as = |change: &ResourceChange| Some((change.id.clone(), change.recorded_as.clone()?));
        let renamed: HashMap<ResourceId, ResourceId> = changes.resources.iter().filter_map(recorded_as).collect();
        let masked: HashMap<&ResourceId, BTreeSet<FieldPath>> =
            before.resources.iter().map(|it| (&it.id, masked_paths(&it.attributes))).collect();
        for resource in &after.resources {
            let Some(there) = masked.get(renamed.get(&resource.id).unwrap_or(&resource.id)) else { continue };
            let here = masked_paths(&resource.attributes);
            let paths: Vec<String> = here.intersection(there).map(ToString::to_string).collect();
            if !paths.is_empty() {
                changes.not_compared.push(NotCompared { id: resource.id.clone(), paths });
            }
        }
        changes.not_compared.sort_by(|a, b| a.id.cmp(&b.id));
        changes
    }

    /// The number of resources with a change.
    pub fn count(&self, change: Change) -> usize {
        self.resources.iter().filter(|it| it.change == change).count()
    }
}

/// A state without digests and names of clusters.
fn without_what_is_its_own(state: &State) -> State {
    let resources = state.resources.iter().map(|resource| {
        let stored = secret_as_stored(&resource.attributes);
        let attributes = stored.as_ref().unwrap_or(&resource.attributes);
        let attributes = attributes.iter().map(|(key, value)| (key.clone(), blank(value))).collect();
        StateResource { attributes, cluster: String::new(), ..resource.clone() }
    });
    State { resources: resources.collect(), open: Vec::new() }
}

fn whole(resource: &StateResource, change: Change) -> ResourceChange {
    ResourceChange {
        id: resource.id.clone(),
        kind: resource.kind,
        change,
        recorded_as: None,
        changes: Vec::new(),
        settings: Vec::new(),
    }
}

/// The identity of a Kubernetes object, apart from its id.
fn object(resource: &StateResource) -> Option<Identity> {
    let object = identity(&resource.attributes).filter(|_| resource.kind == ResourceType::Kubernetes)?;
    Some((resource.cluster.clone(), object))
}

/// The changes outside of the attributes.
fn settings(before: &StateResource, after: &StateResource) -> Vec<FieldChange> {
    let of = |resource: &StateResource| {
        let mut settings = Map::new();
        settings.insert("type".to_owned(), json!(resource.kind));
        settings.insert("cluster".to_owned(), json!(resource.cluster));
        settings.insert("dependsOn".to_owned(), json!(resource.depends_on));
        let extensions = resource.extensions.iter().filter(|(key, _)| *key != MOVED_FROM);
        settings.extend(extensions.map(|(key, value)| (format!("extensions[{key}]"), value.clone())));
        settings.retain(|_, value| *value != json!("") && *value != json!([]));
        settings
    };
    let (before, after) = (of(before), of(after));
    let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let get = |settings: &Map<String, Value>, path: &String| settings.get(path).cloned();
    paths
        .into_iter()
        .map(|path| FieldChange {
            path: path.clone(),
            before: get(&before, path),
            after: get(&after, path),
            ..FieldChange::default()
        })
        .filter(|change| change.before != change.after)
        .collect()
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::render::{Colour, render_changes};

    fn state(resources: &Value) -> State {
        serde_json::from_value(json!({ "resources": resources })).unwrap()
    }

    fn check(before: &Value, after: &Value) -> String {
        render_changes(&Changes::between(&state(before), &state(after)), Colour::Never)
    }

    fn map(name: &str, data: &Value) -> Value {
        json!({"id": format!("v1:ConfigMap:shop:{name}"), "type": "Kubernetes", "attributes": {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}, "data": data}})
    }

    #[test]
    fn resource_changes_are_listed_by_field() {
        let before = json!([map("same", &json!({})), map("old", &json!({})), map("web", &json!({"a": "1", "b": "2"}))]);
        let after = json!([map("web", &json!({"a": "2", "c": "3"})), map("new", &json!({})), map("same", &json!({}))]);
        assert_snapshot!(check(&before, &after), @r#"
        + added    v1:ConfigMap:shop:new
        - removed  v1:ConfigMap:shop:old
        ~ changed  v1:ConfigMap:shop:web
            data.a: "1" → "2"
            - data.b: "2"
            + data.c: "3"

        1 added, 1 changed, 1 removed; 1 unchanged.
        "#);
        assert_snapshot!(check(&before, &before), @"no changes; 3 unchanged.");
    }

    #[test]
    fn items_are_matched_by_key() {
        let deployment = |containers: &Value| {
            json!([{"id": "apps/v1:Deployment:shop:web", "type": "Kubernetes", "attributes": {
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
                "spec": {"template": {"spec": {"containers": containers}}}}}])
        };
        let before = deployment(&json!([{"name": "web", "image": "web:1"}]));
        let after = deployment(&json!([{"name": "proxy", "image": "p"}, {"name": "web", "image": "web:2"}]));
        assert_snapshot!(check(&before, &after), @r#"
        ~ changed  apps/v1:Deployment:shop:web
            + spec.template.spec.containers[name=proxy]: {"image":"p","name":"proxy"}
            spec.template.spec.containers[name=web].image: "web:1" → "web:2"

        1 changed; 0 unchanged.
        "#);
    }

    #[test]
    fn digests_are_compared_and_never_shown() {
        let sealed = |digest: &str| json!({"$sensitive": digest});
        let resources = |password: &Value, variable: &Value, nested: &Value| {
            json!([
                {"id": "v1:Secret:shop:db", "type": "Kubernetes", "attributes": {"apiVersion": "v1", "kind": "Secret",
                    "metadata": {"name": "db", "namespace": "shop"}, "stringData": {"password": password, "same": sealed("d0")}}},
                map("web", &json!({"flowed": variable, "same": sealed("d0"), "nested": nested})),
            ])
        };
        let before = resources(&sealed("d1"), &sealed("d2"), &Value::Null);
        let after = resources(&sealed("d3"), &sealed("d4"), &json!([{"a": "b", "c": sealed("d5")}]));
        let text = check(&before, &after);
        assert_snapshot!(text, @r#"
        ~ changed  v1:ConfigMap:shop:web
            data.flowed: (sensitive) → (sensitive)
            + data.nested: [{"a":"b","c":"(sensitive)"}]
        ~ changed  v1:Secret:shop:db
            data.password: (sensitive) → (sensitive)

        2 changed; 0 unchanged.
        "#);
        assert_eq!(check(&before, &before).lines().count(), 1);
        let json = serde_json::to_string(&Changes::between(&state(&before), &state(&after))).unwrap();
        let clear = resources(&json!("clear"), &json!("clear"), &Value::Null);
        let became = serde_json::to_string(&Changes::between(&state(&clear), &state(&after))).unwrap();
        for shown in [text, json, became] {
            assert!(!shown.contains("$sensitive") && !(0..6).any(|n| shown.contains(&format!("d{n}"))), "{shown}");
            assert!(!shown.contains("clear"), "{shown}");
        }
    }

    #[test]
    fn digests_of_two_deployments_are_not_compared() {
        let secret = |cluster: &str, field: &str, data: &Value| {
            json!({"id": "v1:Secret:shop:db", "type": "Kubernetes", "cluster": cluster, "attributes": {
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "namespace": "shop"}, field: data}})
        };
        let sealed = |digest: &str| json!({"$sensitive": digest});
        let dev = json!([
            secret("dev", "data", &json!({"password": sealed("d1"), "old": sealed("d2")})),
            map("web", &json!({"url": "dev.example.com", "token": sealed("d3"), "was": sealed("d4")})),
        ]);
        let prod = json!([
            secret("prod", "stringData", &json!({"password": sealed("d5"), "new": sealed("d6")})),
            map("web", &json!({"url": "example.com", "token": sealed("d7"), "was": "plain"})),
        ]);
        let changes = Changes::across(&state(&dev), &state(&prod));
        assert_snapshot!(render_changes(&changes, Colour::Never), @r#"
        ~ changed  v1:ConfigMap:shop:web
            data.url: "dev.example.com" → "example.com"
            data.was: (sensitive) → (sensitive)
        ~ changed  v1:Secret:shop:db
            + data.new: (sensitive)
            - data.old: (sensitive)

        2 changed; 0 unchanged.
        Sensitive values that are not compared:
            v1:ConfigMap:shop:web: data.token
            v1:Secret:shop:db: data.password
        "#);
        let json = serde_json::to_value(&changes).unwrap();
        assert_eq!(json["notCompared"][1], json!({"id": "v1:Secret:shop:db", "paths": ["data.password"]}));
        let same = json!([secret("prod", "data", &json!({"password": sealed("d5")}))]);
        let other = json!([secret("dev", "data", &json!({"password": sealed("d1")}))]);
        let changes = Changes::across(&state(&other), &state(&same));
        assert_eq!((changes.resources.len(), changes.unchanged, changes.not_compared.len()), (0, 1, 1));
        // Of one deployment everything is.
        assert_eq!(Changes::between(&state(&other), &state(&same)).count(Change::Changed), 1);
    }

    #[test]
    fn renamed_object_is_same() {
        let ingress = |version: &str, extensions: &Value| {
            json!([{"id": format!("networking.k8s.io/{version}:Ingress:shop:web"), "type": "Kubernetes",
                "dependsOn": ["v1:Namespace:shop"], "extensions": extensions, "cluster": "main",
                "attributes": {"apiVersion": format!("networking.k8s.io/{version}"), "kind": "Ingress",
                    "metadata": {"name": "web", "namespace": "shop"}}}])
        };
        let after = ingress("v1", &json!({"stoa.dev/recreate": "true"}));
        assert_snapshot!(check(&ingress("v1beta1", &json!({})), &after), @r#"
        ~ changed  networking.k8s.io/v1:Ingress:shop:web  (recorded as networking.k8s.io/v1beta1:Ingress:shop:web)
            apiVersion: "networking.k8s.io/v1beta1" → "networking.k8s.io/v1"
            + its extensions[stoa.dev/recreate]: "true"

        1 changed; 0 unchanged.
        "#);
    }
}
