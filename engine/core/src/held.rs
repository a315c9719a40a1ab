//! What others own of what goes with something that is deleted: objects in a namespace, or of the kind that a definition defines.
//!
//! Start at [`Contents::at_stake`], which says what a runtime is to look through. Of each object [`Contents::foreign`] says
//! whether it is somebody else's, and a [`Held`] in the end why the deletion is refused, if it is.
//!
//! Elsewhere: what goes with it and is wanted by the same Spec, `contents` knows without looking.

use std::collections::{BTreeSet, HashSet};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::object::{ObjectRef, comes_by_itself, is_going, uid_of};
use crate::owner::{MARK, Owner, is_marked};
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

    /// What a Held notes of an object that is among it, where it is not the owner's. Its `metadata` has to be there.
    ///
    /// What goes by itself is not held, and neither is what a controller made: that copies marks, such as those of
    /// Deployments to their ReplicaSets, and goes with what it was made for.
    pub fn foreign(&self, owner: &Owner, object: &Map<String, Value>) -> Option<Foreign> {
        if is_going(object) || is_controlled(object) {
            return None;
        }
        let ObjectRef { group, kind, namespace, name, .. } = ObjectRef::of(object)?;
        let owner = owner.other(object);
        if owner.is_none() && (is_marked(object) || comes_with_others(&group, &kind, &name, object)) {
            return None;
        }
        let place = match self {
            Self::Kind { .. } if !namespace.is_empty() => format!(" in namespace {namespace}"),
            Self::Kind { .. } | Self::Namespace(_) => String::new(),
        };
        let uid = uid_of(object).unwrap_or_default().to_owned();
        Some(Foreign { owner, uid, told: format!("{kind} {name}{place}") })
    }
}

/// An object that somebody else has, or nobody says to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// Whose mark it bears, if any.
    owner: Option<String>,
    uid: String,
    /// What it is called.
    told: String,
}

/// What becomes of a deletion with which something may go that cannot be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum UnlistedContents {
    /// It is refused.
    #[default]
    Refuse,
    /// It is done, and people are told.
    Ignore,
}

/// What others own of some [`Contents`], as far as it was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    is_of_kind: bool,
    /// Owners, and what each has.
    others: BTreeSet<(String, String)>,
    /// What bears no mark, and its uid.
    unmarked: BTreeSet<(String, String)>,
    /// Kinds, by group and plural, whose objects nobody here may look at.
    unlisted: BTreeSet<(String, String)>,
    /// Kinds whose objects nobody can look at, as in `webs.x.dev`.
    unlistable: BTreeSet<String>,
    /// What follows from that.
    policy: UnlistedContents,
}

impl Held {
    /// Nothing yet.
    pub fn of(contents: &Contents) -> Self {
        Self { is_of_kind: matches!(contents, Contents::Kind { .. }), ..Self::default() }
    }

    /// Notes an object.
    pub fn note(&mut self, Foreign { owner, uid, told }: Foreign) {
        match owner {
            Some(owner) => drop(self.others.insert((owner, told))),
            None => drop(self.unmarked.insert((told, uid))),
        }
    }

    /// Leaves out the objects of these uids: they are on record, though something keeps our mark off.
    pub fn leave_out(&mut self, recorded: &HashSet<&str>) {
        self.unmarked.retain(|(_, uid)| !recorded.contains(uid.as_str()));
    }

    /// Notes a kind, by its group and plural, whose objects the credentials may not list.
    pub fn note_unlisted(&mut self, group: &str, plural: &str) {
        self.unlisted.insert((group.to_owned(), plural.to_owned()));
    }

    /// Notes a kind whose objects no credentials can list, such as one that is served in no version.
    pub fn note_unlistable(&mut self, group: &str, plural: &str) {
        self.unlistable.insert(qualified(group, plural));
    }

    /// The same where this is to become of what was not seen.
    #[must_use]
    pub fn with_unlisted(self, policy: UnlistedContents) -> Self {
        Self { policy, ..self }
    }

    /// Why the deletion of `holder` is refused: sentences that name some of what others own, and of what cannot be seen.
    pub fn refusal(&self, holder: &StateResource) -> Option<String> {
        let before = self.before_us().filter(|_| holder.adopted);
        let refusals: Vec<String> = self.owned().into_iter().chain(before).chain(self.unseen()).collect();
        (!refusals.is_empty()).then(|| refusals.join("; "))
    }

    fn owned(&self) -> Option<String> {
        if self.others.is_empty() {
            return None;
        }
        let what = self.deletes();
        let owned = listed(self.others.iter().map(|(owner, object)| format!("{object} of {owner}")));
        Some(format!(
            "deleting it {what}, of which others own {owned}; keep it until they have removed these or given them away, or, \
             to have these deleted with it, annotate it with {DELETE_CONTENTS}: \"true\""
        ))
    }

    /// What is said of something that was there before, and so may others' contents have been.
    fn before_us(&self) -> Option<String> {
        let (what, unmarked) = (self.deletes(), self.told_unmarked()?);
        Some(format!(
            "it was there before it was taken over, and deleting it {what}, of which no mark says whose they are: {unmarked}; \
             remove these first, or, to have it left alone, annotate it with another {MARK}, or, to have these deleted with \
             it, annotate it with {DELETE_CONTENTS}: \"true\""
        ))
    }

    fn told_unmarked(&self) -> Option<String> {
        (!self.unmarked.is_empty()).then(|| listed(self.unmarked.iter().map(|(told, _)| told.clone())))
    }

    fn unseen(&self) -> Option<String> {
        let kinds = self.kinds_unseen().filter(|_| self.policy == UnlistedContents::Refuse)?;
        let what = self.deletes();
        let values = |values: BTreeSet<&String>| serde_json::to_string(&values).expect("text can be written");
        let may_list = (!self.unlisted.is_empty()).then(|| {
            let groups = values(self.unlisted.iter().map(|(group, _)| group).collect());
            let plurals = values(self.unlisted.iter().map(|(_, plural)| plural).collect());
            format!(
                "give its credentials the rule {{apiGroups: {groups}, resources: {plurals}, verbs: [\"list\"]}}, or, "
            )
        });
        Some(format!(
            "deleting it {what}, and nobody knows whether others own something of that, since this workspace cannot list \
             {kinds} in the cluster; {}to have that deleted with it unseen, annotate it with {DELETE_CONTENTS}: \"true\", or \
             set spec.kubernetes.unlistedContents of the Workspace to Ignore",
            may_list.unwrap_or_default()
        ))
    }

    fn deletes(&self) -> &'static str {
        if self.is_of_kind { "deletes all objects of its kind" } else { "deletes all that is in it" }
    }

    /// The first few of the kinds that were not looked at.
    fn kinds_unseen(&self) -> Option<String> {
        let mut kinds = self.unlistable.clone();
        kinds.extend(self.unlisted.iter().map(|(group, plural)| qualified(group, plural)));
        (!kinds.is_empty()).then(|| listed(kinds.into_iter()))
    }

    /// What people should know of a deletion that is not refused.
    pub fn warnings(&self, id: &ResourceId) -> Vec<String> {
        let unmarked = self.told_unmarked().map(|told| match self.unmarked.len() {
            1 => format!("{id}: 1 object that bears no mark goes with it: {told}"),
            count => format!("{id}: {count} objects that bear no mark go with it: {told}"),
        });
        let unseen = self.kinds_unseen().map(|kinds| {
            format!(
                "{id}: this workspace cannot list {kinds} in the cluster; what others own of that goes with it unseen"
            )
        });
        unmarked.into_iter().chain(unseen).collect()
    }
}

/// Whether an object that bears no mark is there for others alone, and nobody misses it: what Kubernetes makes in each
/// namespace and of each Service, and what clients and nodes keep to tell who is alive.
fn comes_with_others(group: &str, kind: &str, name: &str, object: &Map<String, Value>) -> bool {
    let annotations = object.get("metadata").and_then(|metadata| metadata.get("annotations"));
    let is_token = || annotations.is_some_and(|it| it.get("kubernetes.io/service-account.uid").is_some());
    comes_by_itself(group, kind, name)
        || match (group, kind) {
            ("", "Endpoints") | ("coordination.k8s.io", "Lease") => true,
            ("", "Secret") => is_token(),
            _ => false,
        }
}

/// A kind as people know it, such as `rolebindings.rbac.authorization.k8s.io`.
fn qualified(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
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

    /// What is seen of these objects by the deployment `web`.
    fn seen(contents: &Contents, objects: &[Map<String, Value>]) -> Held {
        let mut held = Held::of(contents);
        objects.iter().filter_map(|object| contents.foreign(&owner("web"), object)).for_each(|it| held.note(it));
        held
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
    fn what_others_own_is_named_with_its_owners_and_counted() {
        let contents = Contents::of(&namespace(json!({}))).unwrap();
        let mut going = of("api", "ConfigMap", "going");
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let mut copied = of("api", "ReplicaSet", "web-5d8f");
        copied["metadata"]["ownerReferences"] = json!([{"kind": "Deployment", "name": "web", "controller": true}]);
        let nothing = seen(&contents, &[of("web", "ConfigMap", "ours"), going, copied]);
        assert_eq!((nothing.refusal(&holder()), nothing.warnings(&"v1:Namespace:shop".into())), (None, Vec::new()));

        let mut objects =
            vec![of("db", "Secret", "password"), of("api", "ConfigMap", "a"), of("api", "ConfigMap", "a")];
        let held = seen(&contents, &objects);
        assert_snapshot!(held.refusal(&holder()).unwrap(), @r#"deleting it deletes all that is in it, of which others own ConfigMap a of shop/api/dev, Secret password of shop/db/dev; keep it until they have removed these or given them away, or, to have these deleted with it, annotate it with stoa.dev/delete-contents: "true""#);
        objects.extend(["b", "c", "d"].map(|name| of("api", "ConfigMap", name)));
        let refusal = seen(&contents, &objects).refusal(&holder()).unwrap();
        assert!(refusal.contains("ConfigMap c of shop/api/dev and 2 more; "), "{refusal}");

        let contents = Contents::of(&definition(json!([{"name": "v1"}]))).unwrap();
        let refusal = seen(&contents, &[of("api", "Web", "a")]).refusal(&holder()).unwrap();
        assert!(refusal.contains("of its kind, of which others own Web a in namespace shop of shop/api/dev;"));
    }

    #[test]
    fn what_bears_no_mark_is_counted_and_keeps_what_was_there_before() {
        let contents = Contents::of(&namespace(json!({}))).unwrap();
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
        let nothing = seen(&contents, &by_themselves);
        assert_eq!((nothing.refusal(&adopted), nothing.warnings(&id)), (None, Vec::new()));

        let names = ["a", "b", "c", "d"];
        let objects: Vec<_> = names.iter().map(|name| object("PersistentVolumeClaim", name, json!({}))).collect();
        let mut held = seen(&contents, &objects);
        assert_eq!(held.refusal(&holder()), None, "who made a namespace has what is in it");
        assert_snapshot!(held.warnings(&id).join(""), @"v1:Namespace:shop: 4 objects that bear no mark go with it: PersistentVolumeClaim a, PersistentVolumeClaim b, PersistentVolumeClaim c and 1 more");
        held.leave_out(&HashSet::from(["uid-of-a", "uid-of-b", "uid-of-c"]));
        assert_snapshot!(held.warnings(&id).join(""), @"v1:Namespace:shop: 1 object that bears no mark goes with it: PersistentVolumeClaim d");
        assert_snapshot!(held.refusal(&adopted).unwrap(), @r#"it was there before it was taken over, and deleting it deletes all that is in it, of which no mark says whose they are: PersistentVolumeClaim d; remove these first, or, to have it left alone, annotate it with another stoa.dev/owner, or, to have these deleted with it, annotate it with stoa.dev/delete-contents: "true""#);
    }

    #[test]
    fn what_could_not_be_looked_at_refuses_unless_the_workspace_lets_it_go() {
        let mut held = Held::of(&Contents::of(&namespace(json!({}))).unwrap());
        held.note_unlisted("", "secrets");
        held.note_unlisted("rbac.authorization.k8s.io", "roles");
        assert_snapshot!(held.refusal(&holder()).unwrap(), @r#"deleting it deletes all that is in it, and nobody knows whether others own something of that, since this workspace cannot list roles.rbac.authorization.k8s.io, secrets in the cluster; give its credentials the rule {apiGroups: ["","rbac.authorization.k8s.io"], resources: ["roles","secrets"], verbs: ["list"]}, or, to have that deleted with it unseen, annotate it with stoa.dev/delete-contents: "true", or set spec.kubernetes.unlistedContents of the Workspace to Ignore"#);
        let ignoring = held.clone().with_unlisted(UnlistedContents::Ignore);
        assert_eq!(ignoring.refusal(&holder()), None);
        assert_snapshot!(ignoring.warnings(&"v1:Namespace:shop".into()).join(""), @"v1:Namespace:shop: this workspace cannot list roles.rbac.authorization.k8s.io, secrets in the cluster; what others own of that goes with it unseen");

        // What others are known to own is told first, and is never ignored.
        let contents = Contents::of(&namespace(json!({}))).unwrap();
        let mut both = ignoring.clone();
        both.note(contents.foreign(&owner("web"), &of("api", "ConfigMap", "a")).unwrap());
        assert!(both.refusal(&holder()).unwrap().ends_with("stoa.dev/delete-contents: \"true\""), "{both:?}");
        let refusal = both.with_unlisted(UnlistedContents::Refuse).refusal(&holder()).unwrap();
        assert!(
            refusal.contains("ConfigMap a of shop/api/dev; keep it") && refusal.contains("; deleting it deletes all")
        );
    }

    #[test]
    fn no_rule_lets_list_what_nobody_can() {
        let mut held = Held::of(&Contents::of(&definition(json!([{"name": "v1", "served": false}]))).unwrap());
        held.note_unlistable("x.dev", "webs");
        let refusal = held.refusal(&holder()).unwrap();
        assert!(refusal.contains("cannot list webs.x.dev in the cluster; to have that deleted with it"), "{refusal}");
    }
}
