//! Cascading deletes: objects of other owners that the deletion of a Namespace or CustomResourceDefinition removes too.
//!
//! Start at [`Cascade::of`], which states what a runtime has to list before it deletes a recorded object. [`Cascade::foreign`]
//! finds the listed objects of other owners. [`ForeignContents::refusal`] says why the deletion is rejected, if it is.
//!
//! Elsewhere: `cascade_check` rejects plans whose deletions would remove objects of the same Spec.

use std::collections::{BTreeSet, HashSet};

use serde::Deserialize;
use serde_json::{Map, Value};
use stoa_engine::object::{ObjectRef, is_auto_created, is_terminating, uid_of};
use stoa_engine::owner::{MARK, Owner, is_marked};
use stoa_engine::spec::{DELETE_CONTENTS, ResourceId, ResourceType, setting};
use stoa_engine::state::StateResource;

/// How many objects or kinds a message names.
const NAMED: usize = 3;

/// The objects that a server deletes together with another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cascade {
    /// All objects in this namespace.
    Namespace(String),
    /// All objects of a custom kind, in all namespaces.
    Kind {
        /// The API group.
        group: String,
        /// The version to list them in: the stored version if it is served, else another served one. `None` when no version is
        /// served.
        version: Option<String>,
        /// The kind.
        kind: String,
        /// The plural resource name in URLs.
        plural: String,
    },
}

impl Cascade {
    /// The cascade of a Namespace or CustomResourceDefinition; `None` for any other object.
    pub fn of_object(object: &Map<String, Value>) -> Option<Self> {
        let holder = ObjectRef::of(object)?;
        if holder.is_namespace() {
            return Some(Self::Namespace(holder.name));
        }
        let spec = object.get("spec").filter(|_| holder.is_custom_resource_definition())?;
        let text = |value: Option<&Value>| Some(value?.as_str()?.to_owned());
        let name = |name: &str| text(spec.get("names")?.get(name));
        let versions = spec.get("versions").and_then(Value::as_array).into_iter().flatten();
        let mut served: Vec<&Value> = versions.filter(|version| version.get("served") != Some(&false.into())).collect();
        served.sort_by_key(|version| version.get("storage") != Some(&true.into()));
        let version = served.first().and_then(|version| text(version.get("name")));
        Some(Self::Kind { group: text(spec.get("group"))?, version, kind: name("kind")?, plural: name("plural")? })
    }

    /// The cascade of a recorded object whose deletion is planned. `live` is the object found under its name, which may be
    /// another one.
    ///
    /// Returns `None` when the deletion removes nothing else, or when [`DELETE_CONTENTS`] allows it.
    pub fn of(record: &StateResource, live: Option<&Map<String, Value>>) -> Option<Self> {
        if record.kind != ResourceType::Kubernetes {
            return None;
        }
        let is_it = |live: &&Map<String, Value>| record.uid().is_none_or(|uid| uid_of(live) == Some(uid));
        let deleted = live.filter(is_it);
        let none = Map::new();
        let allows = |object: &Map<String, Value>| setting(&none, object, DELETE_CONTENTS).is_some_and(is_true);
        // An extension wins over annotations.
        let is_allowed = match record.extensions.get(DELETE_CONTENTS) {
            Some(extension) => is_true(extension),
            None => allows(&record.attributes) || deleted.is_some_and(allows),
        };
        if is_allowed {
            return None;
        }
        deleted
            .and_then(Self::of_object)
            .or_else(|| Self::of_object(&record.attributes))
            .or_else(|| live.and_then(Self::of_object))
    }

    /// Whether the cascade includes an object.
    pub fn has(&self, object: &Map<String, Value>) -> bool {
        let Some(object) = ObjectRef::of(object) else { return false };
        match self {
            Self::Namespace(name) => object.namespace == *name,
            Self::Kind { group, kind, .. } => object.group == *group && object.kind == *kind,
        }
    }

    /// An object of the cascade as a [`ForeignObject`]; `None` when it is the owner's. The object needs its `metadata`.
    ///
    /// Objects that are being deleted already do not count. Objects with a controller do not count either: a controller copies
    /// the owner annotation, such as from a Deployment to its ReplicaSets, and its objects are deleted with their controller.
    pub fn foreign(&self, owner: &Owner, object: &Map<String, Value>) -> Option<ForeignObject> {
        if is_terminating(object) || is_controlled(object) {
            return None;
        }
        let ObjectRef { group, kind, namespace, name, .. } = ObjectRef::of(object)?;
        let owner = owner.other(object);
        if owner.is_none() && (is_marked(object) || is_generated(&group, &kind, &name, object)) {
            return None;
        }
        let suffix = match self {
            Self::Kind { .. } if !namespace.is_empty() => format!(" in namespace {namespace}"),
            Self::Kind { .. } | Self::Namespace(_) => String::new(),
        };
        let uid = uid_of(object).unwrap_or_default().to_owned();
        Some(ForeignObject { owner, uid, name: format!("{kind} {name}{suffix}") })
    }
}

/// An object that another deployment owns, or that has no owner annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignObject {
    /// The other owner; `None` without an owner annotation.
    owner: Option<String>,
    uid: String,
    /// Kind and name for people, such as `ConfigMap settings`.
    name: String,
}

/// The policy for a deletion that may remove objects which Stoa cannot list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum UnlistedContents {
    /// Reject the deletion.
    #[default]
    Refuse,
    /// Delete, with a warning.
    Ignore,
}

/// The objects of a [`Cascade`] that belong to other owners, as far as they could be listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeignContents {
    /// Owners, each with the name of an object.
    owned: BTreeSet<(String, String)>,
    /// Objects without an owner annotation: name and uid.
    unmarked: BTreeSet<(String, String)>,
    /// Kinds, by group and plural, that the credentials may not list.
    unlisted: BTreeSet<(String, String)>,
    /// Kinds that no credentials can list, such as `webs.x.dev`.
    unlistable: BTreeSet<String>,
    policy: UnlistedContents,
}

impl ForeignContents {
    /// Adds an object.
    pub fn add(&mut self, ForeignObject { owner, uid, name }: ForeignObject) {
        match owner {
            Some(owner) => drop(self.owned.insert((owner, name))),
            None => drop(self.unmarked.insert((name, uid))),
        }
    }

    /// Removes objects with recorded uids: the owner annotation is missing on them, but they are the deployment's own.
    fn exclude(&mut self, recorded: &HashSet<&str>) {
        self.unmarked.retain(|(_, uid)| !recorded.contains(uid.as_str()));
    }

    /// Adds a kind, by group and plural, that the credentials may not list.
    pub fn add_unlisted(&mut self, group: &str, plural: &str) {
        self.unlisted.insert((group.to_owned(), plural.to_owned()));
    }

    /// Adds a kind that no credentials can list, such as one that is served in no version.
    pub fn add_unlistable(&mut self, group: &str, plural: &str) {
        self.unlistable.insert(qualified(group, plural));
    }

    /// The same with another policy for kinds that could not be listed.
    #[must_use]
    pub fn with_unlisted(self, policy: UnlistedContents) -> Self {
        Self { policy, ..self }
    }

    /// The [refusal](Self::refusal) and the [warnings](Self::warnings), where objects with the uids in `own` are the
    /// deployment's own.
    pub fn verdict(mut self, holder: &StateResource, own: &HashSet<&str>) -> (Option<String>, Vec<String>) {
        self.exclude(own);
        (self.refusal(holder), self.warnings(&holder.id))
    }

    /// Why the deletion of `holder` is rejected, with the first few objects and kinds; `None` when it is allowed.
    pub fn refusal(&self, holder: &StateResource) -> Option<String> {
        let unmarked = self.unmarked_refusal().filter(|_| holder.adopted);
        let refusals: Vec<String> =
            self.owned_refusal().into_iter().chain(unmarked).chain(self.unlisted_refusal()).collect();
        (!refusals.is_empty()).then(|| refusals.join("; "))
    }

    fn owned_refusal(&self) -> Option<String> {
        if self.owned.is_empty() {
            return None;
        }
        let objects = listed(self.owned.iter().map(|(owner, object)| format!("{object} of {owner}")));
        Some(format!(
            "deleting it also deletes objects of other owners ({objects}); keep it until they remove or hand over these \
             objects; to delete them with it, annotate it with {DELETE_CONTENTS}: \"true\""
        ))
    }

    /// An adopted object may have contained these objects before Stoa adopted it.
    fn unmarked_refusal(&self) -> Option<String> {
        let objects = self.unmarked_names()?;
        Some(format!(
            "it existed before Stoa adopted it, and deleting it also deletes objects without an owner ({objects}); remove \
             these first; to keep it, annotate it with another {MARK}; to delete them with it, annotate it with \
             {DELETE_CONTENTS}: \"true\""
        ))
    }

    fn unlisted_refusal(&self) -> Option<String> {
        let kinds = self.unlisted_kinds().filter(|_| self.policy == UnlistedContents::Refuse)?;
        let values = |values: BTreeSet<&String>| serde_json::to_string(&values).expect("text can be written");
        let grant = (!self.unlisted.is_empty()).then(|| {
            let groups = values(self.unlisted.iter().map(|(group, _)| group).collect());
            let plurals = values(self.unlisted.iter().map(|(_, plural)| plural).collect());
            format!(
                "give the workspace's credentials the rule {{apiGroups: {groups}, resources: {plurals}, verbs: [\"list\"]}}; "
            )
        });
        Some(format!(
            "cannot list {kinds}, so deleting it may delete objects of other owners; {}to delete them unseen, annotate it \
             with {DELETE_CONTENTS}: \"true\", or set spec.kubernetes.unlistedContents of the Workspace to Ignore",
            grant.unwrap_or_default()
        ))
    }

    fn unmarked_names(&self) -> Option<String> {
        (!self.unmarked.is_empty()).then(|| listed(self.unmarked.iter().map(|(name, _)| name.clone())))
    }

    /// The first few kinds that could not be listed.
    fn unlisted_kinds(&self) -> Option<String> {
        let mut kinds = self.unlistable.clone();
        kinds.extend(self.unlisted.iter().map(|(group, plural)| qualified(group, plural)));
        (!kinds.is_empty()).then(|| listed(kinds.into_iter()))
    }

    /// Warnings about a deletion that is not rejected.
    pub fn warnings(&self, id: &ResourceId) -> Vec<String> {
        let unmarked = self.unmarked_names().map(|names| match self.unmarked.len() {
            1 => format!("{id}: 1 object without an owner is deleted with it: {names}"),
            count => format!("{id}: {count} objects without an owner are deleted with it: {names}"),
        });
        let unlisted = self
            .unlisted_kinds()
            .map(|kinds| format!("{id}: cannot list {kinds}: objects of other owners may be deleted with it"));
        unmarked.into_iter().chain(unlisted).collect()
    }
}

/// Whether an object without an owner annotation was generated for other objects, so that its deletion loses nothing.
///
/// That is the case for objects that Kubernetes creates in each namespace or for each Service, and for Leases of clients
/// and nodes.
fn is_generated(group: &str, kind: &str, name: &str, object: &Map<String, Value>) -> bool {
    let annotations = object.get("metadata").and_then(|metadata| metadata.get("annotations"));
    let is_token = || annotations.is_some_and(|it| it.get("kubernetes.io/service-account.uid").is_some());
    is_auto_created(group, kind, name)
        || match (group, kind) {
            ("", "Endpoints") | ("coordination.k8s.io", "Lease") => true,
            ("", "Secret") => is_token(),
            _ => false,
        }
}

/// The plural and group of a kind, such as `rolebindings.rbac.authorization.k8s.io`.
fn qualified(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

fn is_true(value: &Value) -> bool {
    *value == Value::Bool(true) || value == "true"
}

/// The first [`NAMED`] of them, and how many more there are.
fn listed(all: impl ExactSizeIterator<Item = String>) -> String {
    let more = all.len().saturating_sub(NAMED);
    let named = all.take(NAMED).collect::<Vec<_>>().join(", ");
    if more == 0 { named } else { format!("{named} and {more} more") }
}

fn is_controlled(object: &Map<String, Value>) -> bool {
    let owners = object.get("metadata").and_then(|metadata| metadata.get("ownerReferences")?.as_array());
    owners.into_iter().flatten().any(|owner| owner.get("controller") == Some(&true.into()))
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use serde_json::json;

    use super::*;

    fn owner(stack: &str) -> Owner {
        Owner {
            organization: "shop".to_owned(),
            stack: stack.to_owned(),
            workspace: "dev".to_owned(),
            stack_uid: format!("uid-of-{stack}"),
        }
    }

    fn map(object: Value) -> Map<String, Value> {
        object.as_object().cloned().unwrap()
    }

    fn namespace(annotations: Value) -> Map<String, Value> {
        let metadata = json!({"name": "shop", "uid": "u-1", "annotations": annotations});
        map(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
    }

    fn definition(versions: Value) -> Map<String, Value> {
        map(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "webs.x.dev"},
            "spec": {"group": "x.dev", "names": {"kind": "Web", "plural": "webs"}, "versions": versions}}))
    }

    fn record(attributes: Map<String, Value>, extensions: Value) -> StateResource {
        let named = StateResource::named_by(&"v1:Namespace:shop".into()).unwrap();
        StateResource { attributes, extensions: map(extensions), ..named }
    }

    #[test]
    fn kind_is_listed_in_stored_version_if_served() {
        let version =
            |name: &str, served: bool, storage: bool| json!({"name": name, "served": served, "storage": storage});
        for (versions, expected) in [
            (json!([version("v1", true, false), version("v2", true, true)]), Some("v2")),
            (json!([version("v1", true, false), version("v2", false, true)]), Some("v1")),
            (json!([version("v2", false, true)]), None),
            (json!([]), None),
        ] {
            let definition = definition(versions);
            let Some(Cascade::Kind { group, version, kind, plural }) = Cascade::of_object(&definition) else {
                panic!()
            };
            assert_eq!((&*group, version.as_deref(), &*kind, &*plural), ("x.dev", expected, "Web", "webs"));
        }
        assert_eq!(
            Cascade::of_object(&map(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}))),
            None
        );
    }

    #[test]
    fn annotation_or_extension_allows_cascade() {
        let (yes, none) = (json!({DELETE_CONTENTS: "true"}), json!({}));
        let is_checked = |recorded: &Value, extensions: &Value, live: &Value| {
            let (record, live) = (record(namespace(recorded.clone()), extensions.clone()), namespace(live.clone()));
            Cascade::of(&record, Some(&live)).is_some()
        };
        assert!(is_checked(&none, &none, &none));
        assert!(is_checked(&json!({DELETE_CONTENTS: "false"}), &json!({DELETE_CONTENTS: "yes"}), &none));
        assert!(!is_checked(&yes, &none, &none));
        assert!(!is_checked(&none, &json!({DELETE_CONTENTS: true}), &none));
        assert!(!is_checked(&none, &none, &yes));
        assert!(is_checked(&yes, &json!({DELETE_CONTENTS: false}), &yes), "an extension wins");
        let another = record(namespace(none.clone()), none).with_uid("u-2");
        assert!(Cascade::of(&another, Some(&namespace(yes))).is_some(), "it is not what is deleted");
    }

    #[test]
    fn imported_definition_uses_live_object() {
        let full = definition(json!([{"name": "v1"}]));
        let found = record(
            map(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "webs.x.dev"}})),
            json!({}),
        );
        assert_eq!(Cascade::of(&found, Some(&full)), Cascade::of_object(&full));
        assert_eq!(Cascade::of(&found, None), None);
        // Where it goes from its cluster to another, nothing may be there yet.
        assert_eq!(Cascade::of(&record(full.clone(), json!({})), None), Cascade::of_object(&full));
    }

    /// What is seen of these objects by the deployment `web`.
    fn listed_by(contents: &Cascade, objects: &[Map<String, Value>]) -> ForeignContents {
        let mut foreign = ForeignContents::default();
        objects.iter().filter_map(|object| contents.foreign(&owner("web"), object)).for_each(|it| foreign.add(it));
        foreign
    }

    fn object(kind: &str, name: &str, more: Value) -> Map<String, Value> {
        let mut metadata = json!({"name": name, "namespace": "shop", "uid": format!("uid-of-{name}")});
        metadata.as_object_mut().unwrap().extend(map(more));
        map(json!({"apiVersion": "v1", "kind": kind, "metadata": metadata}))
    }

    fn of(stack: &str, kind: &str, name: &str) -> Map<String, Value> {
        owner(stack).marked(&object(kind, name, json!({})))
    }

    fn holder() -> StateResource {
        record(namespace(json!({})), json!({}))
    }

    #[test]
    fn foreign_objects_are_named_with_owners() {
        let contents = Cascade::of_object(&namespace(json!({}))).unwrap();
        let mut going = of("api", "ConfigMap", "going");
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let mut copied = of("api", "ReplicaSet", "web-5d8f");
        copied["metadata"]["ownerReferences"] = json!([{"kind": "Deployment", "name": "web", "controller": true}]);
        let nothing = listed_by(&contents, &[of("web", "ConfigMap", "ours"), going, copied]);
        assert_eq!((nothing.refusal(&holder()), nothing.warnings(&"v1:Namespace:shop".into())), (None, Vec::new()));

        let mut objects =
            vec![of("db", "Secret", "password"), of("api", "ConfigMap", "a"), of("api", "ConfigMap", "a")];
        let foreign = listed_by(&contents, &objects);
        assert_snapshot!(foreign.refusal(&holder()).unwrap(), @r#"deleting it also deletes objects of other owners (ConfigMap a of shop/api/dev, Secret password of shop/db/dev); keep it until they remove or hand over these objects; to delete them with it, annotate it with stoa.dev/delete-contents: "true""#);
        objects.extend(["b", "c", "d"].map(|name| of("api", "ConfigMap", name)));
        let refusal = listed_by(&contents, &objects).refusal(&holder()).unwrap();
        assert!(refusal.contains("ConfigMap c of shop/api/dev and 2 more); "), "{refusal}");

        let contents = Cascade::of_object(&definition(json!([{"name": "v1"}]))).unwrap();
        let refusal = listed_by(&contents, &[of("api", "Web", "a")]).refusal(&holder()).unwrap();
        assert!(refusal.contains("objects of other owners (Web a in namespace shop of shop/api/dev);"));
    }

    #[test]
    fn unmarked_objects_block_deletion_of_adopted_holder() {
        let contents = Cascade::of_object(&namespace(json!({}))).unwrap();
        let lease = map(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}}));
        let token = json!({"annotations": {"kubernetes.io/service-account.uid": "u"}});
        let by_themselves = [
            object("ServiceAccount", "default", json!({})),
            object("ConfigMap", "kube-root-ca.crt", json!({})),
            object("Endpoints", "web", json!({})),
            object("Secret", "default-token", token),
            object("Pod", "web-0", json!({"ownerReferences": [{"controller": true}]})),
            lease,
        ];
        let (id, adopted) = ("v1:Namespace:shop".into(), holder().adopted(true));
        let nothing = listed_by(&contents, &by_themselves);
        assert_eq!((nothing.refusal(&adopted), nothing.warnings(&id)), (None, Vec::new()));

        let names = ["a", "b", "c", "d"];
        let objects: Vec<_> = names.iter().map(|name| object("PersistentVolumeClaim", name, json!({}))).collect();
        let mut foreign = listed_by(&contents, &objects);
        assert_eq!(foreign.refusal(&holder()), None, "who made a namespace has what is in it");
        assert_snapshot!(foreign.warnings(&id).join(""), @"v1:Namespace:shop: 4 objects without an owner are deleted with it: PersistentVolumeClaim a, PersistentVolumeClaim b, PersistentVolumeClaim c and 1 more");
        foreign.exclude(&HashSet::from(["uid-of-a", "uid-of-b", "uid-of-c"]));
        assert_snapshot!(foreign.warnings(&id).join(""), @"v1:Namespace:shop: 1 object without an owner is deleted with it: PersistentVolumeClaim d");
        assert_snapshot!(foreign.refusal(&adopted).unwrap(), @r#"it existed before Stoa adopted it, and deleting it also deletes objects without an owner (PersistentVolumeClaim d); remove these first; to keep it, annotate it with another stoa.dev/owner; to delete them with it, annotate it with stoa.dev/delete-contents: "true""#);
    }

    #[test]
    fn unlisted_kinds_reject_unless_ignored() {
        let mut foreign = ForeignContents::default();
        foreign.add_unlisted("", "secrets");
        foreign.add_unlisted("rbac.authorization.k8s.io", "roles");
        assert_snapshot!(foreign.refusal(&holder()).unwrap(), @r#"cannot list roles.rbac.authorization.k8s.io, secrets, so deleting it may delete objects of other owners; give the workspace's credentials the rule {apiGroups: ["","rbac.authorization.k8s.io"], resources: ["roles","secrets"], verbs: ["list"]}; to delete them unseen, annotate it with stoa.dev/delete-contents: "true", or set spec.kubernetes.unlistedContents of the Workspace to Ignore"#);
        let ignoring = foreign.clone().with_unlisted(UnlistedContents::Ignore);
        assert_eq!(ignoring.refusal(&holder()), None);
        assert_snapshot!(ignoring.warnings(&"v1:Namespace:shop".into()).join(""), @"v1:Namespace:shop: cannot list roles.rbac.authorization.k8s.io, secrets: objects of other owners may be deleted with it");

        // What others are known to own is told first, and is never ignored.
        let contents = Cascade::of_object(&namespace(json!({}))).unwrap();
        let mut both = ignoring.clone();
        both.add(contents.foreign(&owner("web"), &of("api", "ConfigMap", "a")).unwrap());
        assert!(both.refusal(&holder()).unwrap().ends_with("stoa.dev/delete-contents: \"true\""), "{both:?}");
        let refusal = both.with_unlisted(UnlistedContents::Refuse).refusal(&holder()).unwrap();
        assert!(refusal.contains("(ConfigMap a of shop/api/dev); keep it") && refusal.contains("; cannot list "));
    }

    #[test]
    fn unlistable_kinds_suggest_no_rule() {
        let mut foreign = ForeignContents::default();
        foreign.add_unlistable("x.dev", "webs");
        let refusal = foreign.refusal(&holder()).unwrap();
        assert!(
            refusal.contains(
                "cannot list webs.x.dev, so deleting it may delete objects of other owners; to delete them unseen"
            ),
            "{refusal}"
        );
    }
}
