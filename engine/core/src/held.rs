//! What others own of what goes with something that is deleted: objects in a namespace, or of the kind that a definition defines.
//!
//! Start at [`Contents::at_stake`], which says what a runtime is to look through. It shows each object to a [`Held`], which
//! says in the end why the deletion is refused, if it is.
//!
//! Elsewhere: what goes with it and is wanted by the same Spec, `contents` knows without looking.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::object::{ObjectRef, is_going, uid_of};
use crate::owner::Owner;
use crate::spec::{Resource, ResourceId, ResourceType, setting};
use crate::state::StateResource;

/// The extension, or annotation, of a namespace or definition that lets it be deleted with what others own in it. As it is
/// recorded, or as it is live: what is deleted has left the Spec.
pub const DELETE_CONTENTS: &str = "stoa.dev/delete-contents";

/// How many objects of others are named.
const TOLD: usize = 3;

/// What goes with an object that is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Whatever is in this namespace.
    Namespace(String),
    /// All objects of a custom kind, in whatever namespaces.
    Kind {
        /// The API group.
        group: String,
        /// The version to ask for them in: that in which they are stored, if it is served. None where none is.
        version: Option<String>,
        /// The kind.
        kind: String,
        /// What they are called in URLs.
        plural: String,
    },
}

impl Contents {
    /// What goes with a namespace or a CustomResourceDefinition; `None` of anything else.
    pub fn of(object: &Map<String, Value>) -> Option<Self> {
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

    /// What goes with a recorded object that is to be deleted, unless something says that it may go with what others own.
    /// `live` is what was found of it, or of another object that it is to become.
    pub fn at_stake(record: &StateResource, live: Option<&Map<String, Value>>) -> Option<Self> {
        if record.kind != ResourceType::Kubernetes {
            return None;
        }
        let is_it = |live: &&Map<String, Value>| record.uid().is_none_or(|uid| uid_of(live) == Some(uid));
        let deleted = live.filter(is_it);
        let none = Map::new();
        let said = |object: &Map<String, Value>| setting(&none, object, DELETE_CONTENTS).is_some_and(is_true);
        // An extension has the last word.
        let is_let = match record.extensions.get(DELETE_CONTENTS) {
            Some(extension) => is_true(extension),
            None => said(&record.attributes) || deleted.is_some_and(said),
        };
        if is_let {
            return None;
        }
        deleted.and_then(Self::of).or_else(|| Self::of(&record.attributes)).or_else(|| live.and_then(Self::of))
    }

    /// The record of what is made anew as `wanted`, which says whether it may go with what others own, whatever was said before.
    pub fn replaced(record: &StateResource, wanted: &Resource) -> StateResource {
        let mut record = record.clone();
        record.extensions.insert(DELETE_CONTENTS.to_owned(), wanted.is_set(DELETE_CONTENTS).into());
        record
    }

    /// Whether a whole object is among it.
    pub fn has(&self, object: &Map<String, Value>) -> bool {
        let Some(object) = ObjectRef::of(object) else { return false };
        match self {
            Self::Namespace(name) => object.namespace == *name,
            Self::Kind { group, kind, .. } => object.group == *group && object.kind == *kind,
        }
    }
}

/// What others own of some [`Contents`], as far as it was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    is_of_kind: bool,
    /// Owners, and what each has.
    others: BTreeSet<(String, String)>,
    /// Kinds whose objects nobody here may look at.
    unseen: BTreeSet<String>,
}

impl Held {
    /// Nothing yet.
    pub fn of(contents: &Contents) -> Self {
        Self { is_of_kind: matches!(contents, Contents::Kind { .. }), ..Self::default() }
    }

    /// Notes an object of a kind, of which `metadata` has to be there, where it is another deployment's than `owner`.
    ///
    /// What goes by itself is not held, and neither is what a controller made: that copies marks, such as those of
    /// Deployments to their ReplicaSets, and goes with what it was made for.
    pub fn note(&mut self, owner: &Owner, kind: &str, object: &Map<String, Value>) {
        let Some(other) = owner.other(object).filter(|_| !is_going(object) && !is_controlled(object)) else { return };
        let text = |field: &str| object.get("metadata").and_then(|it| it.get(field)?.as_str()).unwrap_or_default();
        let place = match text("namespace") {
            namespace if self.is_of_kind && !namespace.is_empty() => format!(" in namespace {namespace}"),
            _ => String::new(),
        };
        self.others.insert((other, format!("{kind} {}{place}", text("name"))));
    }

    /// Notes a kind whose objects could not be looked at, as in `rolebindings.rbac.authorization.k8s.io`.
    pub fn note_unseen(&mut self, kind: String) {
        self.unseen.insert(kind);
    }

    /// Why the deletion is refused: a sentence that names some of what others own.
    pub fn refusal(&self) -> Option<String> {
        if self.others.is_empty() {
            return None;
        }
        let what = if self.is_of_kind { "deletes all objects of its kind" } else { "deletes all that is in it" };
        let owned = listed(self.others.iter().map(|(owner, object)| format!("{object} of {owner}")));
        Some(format!(
            "deleting it {what}, of which others own {owned}; keep it until they have removed these or given them away, or, \
             to have these deleted with it, annotate it with {DELETE_CONTENTS}: \"true\""
        ))
    }

    /// What people should know of a deletion that is not refused.
    pub fn warning(&self, id: &ResourceId) -> Option<String> {
        if self.unseen.is_empty() {
            return None;
        }
        let kinds = listed(self.unseen.iter().cloned());
        Some(format!(
            "{id}: this workspace cannot list {kinds} in the cluster; what others own of that goes with it unseen"
        ))
    }
}

fn is_true(said: &Value) -> bool {
    *said == Value::Bool(true) || said == "true"
}

/// The first few of them.
fn listed(all: impl ExactSizeIterator<Item = String>) -> String {
    let more = all.len().saturating_sub(TOLD);
    let told = all.take(TOLD).collect::<Vec<_>>().join(", ");
    if more == 0 { told } else { format!("{told} and {more} more") }
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
    fn a_kind_is_looked_at_in_the_version_that_it_is_stored_in_if_that_is_served() {
        let version =
            |name: &str, served: bool, storage: bool| json!({"name": name, "served": served, "storage": storage});
        for (versions, expected) in [
            (json!([version("v1", true, false), version("v2", true, true)]), Some("v2")),
            (json!([version("v1", true, false), version("v2", false, true)]), Some("v1")),
            (json!([version("v2", false, true)]), None),
            (json!([]), None),
        ] {
            let definition = definition(versions);
            let Some(Contents::Kind { group, version, kind, plural }) = Contents::of(&definition) else { panic!() };
            assert_eq!((&*group, version.as_deref(), &*kind, &*plural), ("x.dev", expected, "Web", "webs"));
        }
        assert_eq!(
            Contents::of(&map(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}))),
            None
        );
    }

    #[test]
    fn what_may_go_with_all_that_it_holds_says_so_where_it_is_recorded_or_live() {
        let (yes, none) = (json!({DELETE_CONTENTS: "true"}), json!({}));
        let at_stake = |recorded: &Value, extensions: &Value, live: &Value| {
            let (record, live) = (record(namespace(recorded.clone()), extensions.clone()), namespace(live.clone()));
            Contents::at_stake(&record, Some(&live)).is_some()
        };
        assert!(at_stake(&none, &none, &none));
        assert!(at_stake(&json!({DELETE_CONTENTS: "false"}), &json!({DELETE_CONTENTS: "yes"}), &none));
        assert!(!at_stake(&yes, &none, &none));
        assert!(!at_stake(&none, &json!({DELETE_CONTENTS: true}), &none));
        assert!(!at_stake(&none, &none, &yes));
        assert!(at_stake(&yes, &json!({DELETE_CONTENTS: false}), &yes), "an extension has the last word");
        let another = record(namespace(none.clone()), none).with_uid("u-2");
        assert!(Contents::at_stake(&another, Some(&namespace(yes))).is_some(), "it is not what is deleted");
    }

    #[test]
    fn what_was_only_found_is_known_by_what_is_live() {
        let full = definition(json!([{"name": "v1"}]));
        let found = record(
            map(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "webs.x.dev"}})),
            json!({}),
        );
        assert_eq!(Contents::at_stake(&found, Some(&full)), Contents::of(&full));
        assert_eq!(Contents::at_stake(&found, None), None);
        // Where it goes from its cluster to another, nothing may be there yet.
        assert_eq!(Contents::at_stake(&record(full.clone(), json!({})), None), Contents::of(&full));
    }

    #[test]
    fn what_others_own_is_named_with_its_owners_and_counted() {
        let live = namespace(json!({}));
        let mut held = Held::of(&Contents::of(&live).unwrap());
        let bare = |name: &str| map(json!({"metadata": {"name": name, "namespace": "shop"}}));
        held.note(&owner("web"), "ConfigMap", &owner("web").marked(&bare("ours")));
        held.note(&owner("web"), "ConfigMap", &bare("nobodys"));
        let mut going = owner("api").marked(&bare("going"));
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        held.note(&owner("web"), "ConfigMap", &going);
        let mut copied = owner("api").marked(&bare("web-5d8f"));
        copied["metadata"]["ownerReferences"] = json!([{"kind": "Deployment", "name": "web", "controller": true}]);
        held.note(&owner("web"), "ReplicaSet", &copied);
        assert_eq!((held.refusal(), held.warning(&"v1:Namespace:shop".into())), (None, None));

        held.note(&owner("web"), "Secret", &owner("db").marked(&bare("password")));
        for _ in 0..2 {
            held.note(&owner("web"), "ConfigMap", &owner("api").marked(&bare("a")));
        }
        assert_snapshot!(held.refusal().unwrap(), @r#"deleting it deletes all that is in it, of which others own ConfigMap a of shop/api/dev, Secret password of shop/db/dev; keep it until they have removed these or given them away, or, to have these deleted with it, annotate it with stoa.dev/delete-contents: "true""#);
        for name in ["b", "c", "d"] {
            held.note(&owner("web"), "ConfigMap", &owner("api").marked(&bare(name)));
        }
        assert!(held.refusal().unwrap().contains("ConfigMap c of shop/api/dev and 2 more; "), "{held:?}");

        let definition = definition(json!([{"name": "v1"}]));
        let mut held = Held::of(&Contents::of(&definition).unwrap());
        held.note(&owner("web"), "Web", &owner("api").marked(&bare("a")));
        assert!(
            held.refusal()
                .unwrap()
                .contains("of its kind, of which others own Web a in namespace shop of shop/api/dev;")
        );
    }

    #[test]
    fn what_could_not_be_looked_at_is_told() {
        let live = namespace(json!({}));
        let mut held = Held::of(&Contents::of(&live).unwrap());
        ["secrets", "roles.rbac.authorization.k8s.io"].into_iter().for_each(|kind| held.note_unseen(kind.to_owned()));
        assert_eq!(held.refusal(), None);
        assert_snapshot!(held.warning(&"v1:Namespace:shop".into()).unwrap(), @"v1:Namespace:shop: this workspace cannot list roles.rbac.authorization.k8s.io, secrets in the cluster; what others own of that goes with it unseen");
    }
}
