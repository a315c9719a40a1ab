//! What is recorded: the result of the last operation on every resource of one stack in one
//! workspace.
//!
//! [`Record`] is what is kept of one resource while runs go on: what is there, which call is under way, and what came
//! of the last. [`State`] is what plans are made from, and what a release keeps.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cluster::CLUSTER;
use crate::diff::still_sensitive;
use crate::document::Document;
use crate::import::IMPORT_ID;
use crate::masks::{DigestKeys, STATE_KEY, contains_mask, only_masks};
use crate::object::{KubernetesObject, ObjectRef, named, split_api_version, uid_of, without_bookkeeping};
use crate::path::Segment;
use crate::plan::Action;
use crate::resolve::Resolved;
use crate::sensitive::Sensitive;
use crate::spec::{Resource, ResourceId, ResourceType};

/// What is kept of the metadata of an object that was found, which says which it is.
const FOUND: [&str; 2] = ["uid", "namespace"];

/// The namespace in ids of objects that name it, and of such as name none, wherever these go.
const PERHAPS_NONE: &str = "default";

/// What is recorded of one resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StateResource {
    /// Its id.
    pub id: ResourceId,
    /// Who drives it.
    #[serde(rename = "type")]
    pub kind: ResourceType,
    /// What was applied: the wanted attributes with references replaced, and sensitive values
    /// replaced by `{"$sensitive": "hmac-sha256:…"}`.
    pub attributes: Map<String, Value>,
    /// What other resources may refer to and the infrastructure chose, such as `metadata.uid` or
    /// `spec.clusterIP`: the live object as it was after the operation, sensitive values masked
    /// the same way; absent for runtimes that have none.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub live: Map<String, Value>,
    /// What it depended on, explicitly and implicitly, when it was applied: deletes follow this.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<ResourceId>,
    /// The extensions it was applied with.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extensions: Map<String, Value>,
    /// The Kubernetes cluster it lives in, by its name in the workspace; empty for others.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// A call was made whose result nobody knows and nobody can find out, and to make it again might make a second
    /// resource: nothing may be done before a person decides.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
    /// It was there before, and was taken over: what is in it may have been there before, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
    /// Where its fields were sensitive that are not recorded any more ([`as_found`](Self::as_found)): the attributes and what was
    /// live, with masks there, and little else. What is live in these places is still not shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masked: Vec<Map<String, Value>>,
    /// The id that its digests were made with, where that is not its own: it was recorded under that one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digests_of: Option<ResourceId>,
}

/// What came of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ResourceOutcome {
    /// Its action was carried out.
    Done,
    /// Its action failed, and is known to have changed nothing or only in part.
    Failed,
    /// Its action was not begun: something before it failed, or the walk was stopped.
    Skipped,
    /// Nobody knows whether its action was carried out.
    Unknown,
}

impl fmt::Display for ResourceOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// How a resource fares, in kstatus' words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Health {
    /// It is what it should be.
    Current,
    /// It is on its way.
    InProgress,
    /// It will not get there by itself.
    Failed,
    /// It is going away.
    Terminating,
    /// Nobody can say.
    Unknown,
}

impl Health {
    /// Whether there is nothing to wait for: it is there, or nobody can say.
    pub fn is_settled(self) -> bool {
        matches!(self, Self::Current | Self::Unknown)
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What is kept of one resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its id.
    pub id: ResourceId,
    /// What is there; absent when nothing ever was, or no longer is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<StateResource>,
    /// The digest of the document that it is kept in instead, when it is large: `sha256:<hex>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
    /// A call that may have been made and whose result is not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
    /// What came of the last call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Outcome>,
}

/// A call about to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// What it is to do.
    pub action: Action,
    /// The uid of the run.
    pub run: String,
    /// Where it goes.
    #[serde(default, skip_serializing_if = "Place::is_empty")]
    pub place: Place,
}

/// Where a call may leave something behind, and what has to be known of that when its answer is lost: no record may say so,
/// and by the next run its resource may have left the Spec, or go elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// The Kubernetes clusters by their names in the workspace: several where the object goes from one to another, or where
    /// an earlier call without a result went. None for other runtimes, and from before they were kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<String>,
    /// What the resource is called outside, when it says so ([`IMPORT_ID`]): it is not removed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub import_id: String,
}

impl Place {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The extensions of a resource of which nothing else is known.
    pub fn extensions(&self) -> Map<String, Value> {
        let import_id = Some(&self.import_id).filter(|id| !id.is_empty());
        import_id.map(|id| (IMPORT_ID.to_owned(), Value::from(id.as_str()))).into_iter().collect()
    }
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The uid of the run.
    pub run: String,
    /// What was to be done.
    pub action: Action,
    /// What came of it.
    pub outcome: ResourceOutcome,
    /// When.
    #[serde(default)]
    pub time: Timestamp,
    /// What Kubernetes calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesObject>,
    /// Whether it is no longer recorded, and what it was may be there all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left: bool,
    /// What it depends on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<ResourceId>,
    /// How it fared when that was last recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Whether it was healthy after its last change. A release is made only of what was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub verified: bool,
}

impl Document for Record {
    const SCHEMA_VERSION: u32 = 1;
}

impl Document for StateResource {
    const SCHEMA_VERSION: u32 = 1;
}

impl Document for State {
    const SCHEMA_VERSION: u32 = 1;
}

impl Record {
    /// Nothing is known of this one yet.
    pub fn new(id: ResourceId) -> Self {
        Self { id, resource: None, document: None, intent: None, result: None }
    }

    /// Whether something is there, as far as is recorded.
    pub fn is_there(&self) -> bool {
        self.resource.is_some() || self.document.is_some()
    }
}

/// All that is recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The resources, by id.
    pub resources: Vec<StateResource>,
    /// Calls that may have been made, of earlier runs or earlier tries of the same run. None is left in a release.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<OpenCall>,
}

/// A call that may have been made and whose result is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCall {
    /// The resource that it was for.
    pub id: ResourceId,
    /// What it was to do.
    pub action: Action,
    /// The uid of the run that made it.
    pub run: String,
    /// Where it went.
    #[serde(default, skip_serializing_if = "Place::is_empty")]
    pub place: Place,
    /// Somebody looked, and says that nothing is left of it where nobody else can find that out: it may be made again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retry: bool,
}

impl OpenCall {
    /// Whether what is there now may say more than the record does. That a call can be repeated does not tell: its
    /// intent may have taken the place of another, of a call that made a new resource.
    pub fn is_to_be_looked_for(&self, is_recorded: bool) -> bool {
        match self.action {
            // What was taken over bears our mark since, and is nowhere on record.
            Action::Create | Action::Update | Action::Replace | Action::Delete | Action::Adopt => true,
            Action::Forget | Action::Unchanged => self.may_have_made(is_recorded),
            // It changes nothing.
            Action::Import => false,
        }
    }

    /// Whether it may have left something that no record says: a new resource, or a new one in place of the old.
    pub fn may_have_made(&self, is_recorded: bool) -> bool {
        match self.action {
            Action::Create | Action::Replace => true,
            // What is taken over was there before. What is changed and not recorded was found before it was changed.
            Action::Adopt | Action::Import => false,
            Action::Update | Action::Delete | Action::Forget | Action::Unchanged => !is_recorded,
        }
    }
}

impl StateResource {
    /// What to record of a resource that was applied as `resolved` and is live as told; an empty
    /// map for runtimes that report nothing.
    pub fn applied(resource: &Resource, resolved: &Resolved<'_>, live: Map<String, Value>, keys: &DigestKeys) -> Self {
        Self::applied_over(&[], resource, resolved, live, keys)
    }

    /// The same where this was recorded before: what was sensitive then stays so for as long as it is live, which it may be
    /// though nobody wants it any more.
    pub fn applied_over(
        records: &[Self],
        resource: &Resource,
        resolved: &Resolved<'_>,
        live: Map<String, Value>,
        keys: &DigestKeys,
    ) -> Self {
        let mut sensitive = Sensitive::of(&resolved.attributes, &resolved.sensitive);
        sensitive.extend(&Sensitive::of(&live, &resolved.sensitive));
        let mut sensitive_live = sensitive.clone();
        let objects = records.iter().flat_map(Self::objects);
        sensitive_live.extend(&still_sensitive(resource.kind, objects, &resolved.attributes, &live));
        Self {
            id: resource.id.clone(),
            kind: resource.kind,
            attributes: sensitive.recorded(&resource.id, &resolved.attributes, keys),
            live: sensitive_live.recorded(&resource.id, &without_bookkeeping(live), keys),
            depends_on: Vec::new(),
            extensions: resource.kept_extensions(),
            cluster: String::new(),
            unknown: false,
            adopted: false,
            masked: Vec::new(),
            digests_of: None,
        }
    }

    /// The same where a call may have set fields that no record tells of, and others may have them by now: these texts are not
    /// recorded of what is live, wherever they are.
    #[must_use]
    pub fn hiding(self, texts: &Sensitive, keys: &DigestKeys) -> Self {
        let mut anywhere = Sensitive::default();
        anywhere.extend_texts(texts);
        let id = self.digest_id();
        let live = anywhere.replaced(&self.live, &mut |at, value| match at.0.last() {
            // It is in place of a value already, and may have such a text by chance.
            Some(Segment::Key(key)) if key == STATE_KEY => value.clone(),
            Some(_) | None => keys.mask(id, value),
        });
        Self { live, ..self }
    }

    /// All that is recorded of its fields, with masks wherever something was sensitive.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Map<String, Value>> {
        [&self.attributes, &self.live].into_iter().chain(&self.masked)
    }

    /// The id that its digests are made with.
    pub fn digest_id(&self) -> &ResourceId {
        self.digests_of.as_ref().unwrap_or(&self.id)
    }

    /// The same under another id. Of its sensitive values nothing but the digests is known, which stay as they are.
    #[must_use]
    pub fn under(self, id: ResourceId) -> Self {
        let has_digests = [&self.attributes, &self.live].iter().any(|object| object.values().any(contains_mask));
        let digests_of = Some(self.digest_id()).filter(|of| has_digests && **of != id).cloned();
        Self { id, digests_of, ..self }
    }

    /// What was applied, as if it were wanted where it is recorded; in place of sensitive values are their digests.
    pub fn as_applied(&self) -> Resource {
        let mut extensions = self.extensions.clone();
        if !self.cluster.is_empty() {
            extensions.insert(CLUSTER.to_owned(), self.cluster.as_str().into());
        }
        Resource {
            id: self.id.clone(),
            kind: self.kind,
            attributes: self.attributes.clone(),
            depends_on: self.depends_on.clone(),
            extensions,
        }
    }

    /// All that the id of a Kubernetes object tells of it: which object it is, and perhaps in which cluster. `None` for
    /// other ids. The object need not name the namespace: [`without_namespace`](Self::without_namespace).
    ///
    /// Names may hold colons in RBAC alone, as in `system:node`, and namespaces nowhere. So the kind has to say whether what
    /// is before the first colon is a namespace.
    pub fn named_by(id: &ResourceId) -> Option<Self> {
        let (object, cluster) = crate::cluster::split(id);
        let mut parts = object.splitn(3, ':');
        let (api_version, kind, rest) = (parts.next()?, parts.next()?, parts.next()?);
        let is_cluster_role = split_api_version(api_version).0 == "rbac.authorization.k8s.io"
            && matches!(kind, "ClusterRole" | "ClusterRoleBinding");
        let (namespace, name) = match rest.split_once(':') {
            Some((namespace, name)) if !is_cluster_role => (Some(namespace), name),
            Some(_) | None => (None, rest),
        };
        let mut metadata = Map::from_iter([("name".to_owned(), name.into())]);
        metadata.extend(namespace.map(|namespace| ("namespace".to_owned(), namespace.into())));
        let attributes = Map::from_iter([
            ("apiVersion".to_owned(), api_version.into()),
            ("kind".to_owned(), kind.into()),
            ("metadata".to_owned(), metadata.into()),
        ]);
        Some(Self {
            id: id.clone(),
            kind: ResourceType::Kubernetes,
            attributes,
            live: Map::new(),
            depends_on: Vec::new(),
            extensions: Map::new(),
            cluster: cluster.to_owned(),
            unknown: false,
            adopted: false,
            masked: Vec::new(),
            digests_of: None,
        })
    }

    /// The other object that the same id may be of: one that names no namespace, as Kusion writes `default` for none. `None`
    /// where the id says enough.
    pub fn without_namespace(&self) -> Option<Self> {
        let mut other = self.clone();
        let namespace = other.attributes.get_mut("metadata")?.as_object_mut()?.remove("namespace")?;
        (namespace == PERHAPS_NONE).then_some(other)
    }

    /// The same, found live after a call whose result was lost. Of the object only its identity is kept: which of its
    /// values are sensitive is known only to whoever applies it. Where they were before stays known.
    #[must_use]
    pub fn found(self, live: &Map<String, Value>, cluster: String) -> Self {
        let metadata = live.get("metadata").and_then(Value::as_object);
        let kept = FOUND.iter().filter_map(|key| metadata?.get_key_value(*key));
        let kept: Map<String, Value> = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
        let live = (!kept.is_empty()).then(|| ("metadata".to_owned(), kept.into()));
        let masked = with_masks(&self.masked, &self.live);
        Self { live: live.into_iter().collect(), cluster, masked, ..self }
    }

    /// The same with the uid of the object that is meant.
    #[must_use]
    pub fn with_uid(self, uid: &str) -> Self {
        let metadata = Map::from_iter([("uid".to_owned(), Value::from(uid))]);
        Self { live: Map::from_iter([("metadata".to_owned(), metadata.into())]), ..self }
    }

    /// The same where a call may have been made that the record does not tell of: which object it is, and nothing of its
    /// fields, so that the infrastructure is asked which of them are ours.
    #[must_use]
    pub fn as_found(self) -> Self {
        if ObjectRef::of(&self.attributes).is_none() {
            return self;
        }
        let (attributes, live, cluster) = (named(&self.attributes), self.live.clone(), self.cluster.clone());
        let masked = with_masks(&self.masked, &self.attributes);
        Self { attributes, masked, ..self }.found(&live, cluster)
    }

    /// Whether nothing is recorded but which object it is.
    pub fn is_only_found(&self) -> bool {
        let is_kept = |metadata: &Map<String, Value>| metadata.keys().all(|key| FOUND.contains(&key.as_str()));
        let is_found = |(key, value): (&String, &Value)| key == "metadata" && value.as_object().is_some_and(is_kept);
        let is_object = ObjectRef::of(&self.attributes).is_some();
        is_object && self.live.iter().all(is_found) && self.attributes == named(&self.attributes)
    }

    /// The uid of the object that was applied, where there is one.
    pub fn uid(&self) -> Option<&str> {
        uid_of(&self.live)
    }

    /// The namespace that the object was live in, where it named none: whoever looked then knew the default.
    pub fn default_namespace(&self) -> Option<&str> {
        let is_named = ObjectRef::of(&self.attributes).is_none_or(|object| !object.namespace.is_empty());
        self.live.get("metadata").filter(|_| !is_named)?.get("namespace")?.as_str()
    }

    /// The same in a cluster in which it never was: where it names no namespace, in the default of that.
    #[must_use]
    pub fn anew_in_cluster(self, cluster: &str) -> Self {
        let mut record = self.in_cluster(cluster.to_owned());
        if record.default_namespace().is_some()
            && let Some(metadata) = record.live.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.remove("namespace");
        }
        record
    }

    /// The same with what it depends on.
    #[must_use]
    pub fn depending_on(self, depends_on: Vec<ResourceId>) -> Self {
        Self { depends_on, ..self }
    }

    /// The same where it was there before, and was taken over.
    #[must_use]
    pub fn adopted(self, adopted: bool) -> Self {
        Self { adopted, ..self }
    }

    /// The same with another name of the cluster.
    #[must_use]
    pub fn in_cluster(self, cluster: String) -> Self {
        Self { cluster, ..self }
    }
}

/// Where fields were sensitive, those of an object among them that is not kept.
fn with_masks(masked: &[Map<String, Value>], object: &Map<String, Value>) -> Vec<Map<String, Value>> {
    let (mut masked, more) = (masked.to_vec(), only_masks(object));
    if !more.is_empty() && !masked.contains(&more) {
        masked.push(more);
    }
    masked
}

impl State {
    /// What is recorded under an id.
    pub fn get(&self, id: &ResourceId) -> Option<&StateResource> {
        self.resources.iter().find(|resource| resource.id == *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::FieldPath;

    #[test]
    fn an_intent_says_where_its_call_goes_and_one_of_before_that_reads_as_it_was() {
        let place = Place { clusters: vec!["east".to_owned()], import_id: "shop/a".to_owned() };
        let intent = Intent { action: Action::Create, run: "r".to_owned(), place };
        let kept =
            serde_json::json!({"action": "Create", "run": "r", "place": {"clusters": ["east"], "importId": "shop/a"}});
        assert_eq!(serde_json::to_value(&intent).unwrap(), kept);
        assert_eq!(serde_json::from_value::<Intent>(kept).unwrap(), intent);
        assert_eq!(intent.place.extensions()[IMPORT_ID], "shop/a");

        let kept = serde_json::json!({"action": "Create", "run": "r"});
        let before: Intent = serde_json::from_value(kept.clone()).unwrap();
        assert!(before.place.is_empty() && before.place.extensions().is_empty());
        assert_eq!(serde_json::to_value(&before).unwrap(), kept);
    }

    #[test]
    fn where_an_object_was_found_that_names_no_namespace_is_kept_for_its_cluster_alone() {
        let live = serde_json::json!({"metadata": {"name": "a", "namespace": "shop", "uid": "u", "labels": {}}});
        let found = StateResource::named_by(&"v1:ConfigMap:a".into()).unwrap();
        let found = found.found(live.as_object().unwrap(), "main".to_owned());
        assert_eq!((found.uid(), found.default_namespace()), (Some("u"), Some("shop")));
        assert!(found.is_only_found());
        let elsewhere = found.anew_in_cluster("east");
        assert_eq!((elsewhere.cluster.as_str(), elsewhere.default_namespace()), ("east", None));
        let named = StateResource::named_by(&"v1:ConfigMap:shop:a".into()).unwrap();
        assert_eq!(
            named.found(live.as_object().unwrap(), String::new()).default_namespace(),
            None,
            "it says so itself"
        );
    }

    fn config_map(data: serde_json::Value) -> Resource {
        let object = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "shop"}, "data": data});
        let resource = serde_json::json!({"id": "v1:ConfigMap:shop:a", "type": "Kubernetes", "attributes": object});
        serde_json::from_value(resource).unwrap()
    }

    #[test]
    fn where_something_was_sensitive_stays_known_for_as_long_as_it_is_live() {
        let keys = DigestKeys::new(&[7; 32], &[]);
        let resource = config_map(serde_json::json!({"pw": "hunter2", "plain": "x"}));
        let sensitive = [FieldPath::of_keys(["data", "pw"])].into();
        let resolved = Resolved { sensitive, ..Resolved::plain(&resource.attributes) };
        let mut live = resource.attributes.clone();
        live["metadata"]["uid"] = "u".into();
        let record = StateResource::applied(&resource, &resolved, live.clone(), &keys);
        let found = record.clone().as_found();
        assert!(found.is_only_found() && found.uid() == Some("u"));
        let masked = serde_json::json!([{"data": {"pw": {"$sensitive": ""}}}]);
        assert_eq!(serde_json::to_value(&found.masked).unwrap(), masked);
        assert_eq!(found.clone().as_found(), found);
        let again = record.clone().found(&live, String::new());
        assert_eq!(again.masked, found.masked, "also where what was applied stays on record");

        // It is not wanted any more, and left to others or theirs, too.
        let wanted = config_map(serde_json::json!({"plain": "x"}));
        let over = |record: &StateResource, wanted: &Resource, live: &Map<String, Value>| {
            let records = std::slice::from_ref(record);
            let resolved = Resolved::plain(&wanted.attributes);
            StateResource::applied_over(records, wanted, &resolved, live.clone(), &keys)
        };
        for record in [&record, &found] {
            let left = over(record, &wanted, &live);
            assert_eq!(left.live["data"]["pw"], keys.mask(&resource.id, &"hunter2".into()));
            assert_eq!(left.live["data"]["plain"], "x");
            assert_eq!(over(&left, &wanted, &live), left);
        }
        // It is wanted in clear.
        let plain = config_map(serde_json::json!({"pw": "none", "plain": "x"}));
        assert_eq!(over(&record, &plain, &plain.attributes).live["data"]["pw"], "none");
        // As it was kept before.
        let mut kept = serde_json::to_value(&found).unwrap();
        kept.as_object_mut().unwrap().remove("masked");
        assert!(serde_json::from_value::<StateResource>(kept).unwrap().masked.is_empty());
    }

    #[test]
    fn texts_that_are_not_to_be_recorded_are_not_and_digests_stay_as_they_are() {
        let keys = DigestKeys::new(&[7; 32], &[]);
        let resource = config_map(serde_json::json!({"pw": "hunter2", "plain": "x"}));
        let sensitive = [FieldPath::of_keys(["data", "pw"])].into();
        let resolved = Resolved { sensitive, ..Resolved::plain(&resource.attributes) };
        let mut live = resource.attributes.clone();
        live["data"]["theirs"] = "login:hunter3".into();
        let record = StateResource::applied(&resource, &resolved, live, &keys);
        let secret = serde_json::json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
            "stringData": {"a": "hunter3", "b": "hmac-sha256"}});
        let texts = Sensitive::of(secret.as_object().unwrap(), &Default::default());
        let hidden = record.clone().hiding(&texts, &keys);
        assert_eq!(hidden.live["data"]["theirs"], keys.mask(&resource.id, &"login:hunter3".into()));
        let rest = |record: &StateResource| (record.live["data"]["pw"].clone(), record.live["data"]["plain"].clone());
        assert_eq!(rest(&hidden), rest(&record));
    }

    #[test]
    fn digests_are_recognized_under_another_id() {
        let keys = DigestKeys::new(&[7; 32], &[]);
        let resource = config_map(serde_json::json!({"pw": "hunter2"}));
        let sensitive = [FieldPath::of_keys(["data", "pw"])].into();
        let resolved = Resolved { sensitive, ..Resolved::plain(&resource.attributes) };
        let record = StateResource::applied(&resource, &resolved, resource.attributes.clone(), &keys);
        let (own, other) = (resource.id.clone(), ResourceId::from("v1:ConfigMap:shop:b"));
        let moved = record.clone().under(other.clone());
        assert_eq!((&moved.id, moved.digest_id()), (&other, &own));
        assert!(keys.is_mask_of(moved.digest_id(), &moved.live["data"]["pw"], &"hunter2".into()));
        assert_eq!(serde_json::to_value(&moved).unwrap()["digestsOf"], serde_json::json!(own));
        assert_eq!(moved.clone().under("v1:ConfigMap:shop:c".into()).digest_id(), &own);
        assert_eq!(moved.under(own), record);
        // Where there are none, nothing has to be said of them.
        let plain = StateResource::applied(&resource, &Resolved::plain(&resource.attributes), Map::new(), &keys);
        assert_eq!(plain.under(other).digests_of, None);
    }

    #[test]
    fn what_was_left_in_an_item_of_a_list_is_told_by_where_it_is_live() {
        let keys = DigestKeys::new(&[7; 32], &[]);
        let pod = |env: serde_json::Value| -> Resource {
            let object = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
                "spec": {"containers": [{"name": "web", "env": env}]}});
            let resource = serde_json::json!({"id": "v1:Pod:a", "type": "Kubernetes", "attributes": object});
            serde_json::from_value(resource).unwrap()
        };
        let [password, rest] =
            [["PW", "hunter2"], ["B", "b"]].map(|[name, value]| serde_json::json!({"name": name, "value": value}));
        let (both, one) = (pod(serde_json::json!([password, rest])), pod(serde_json::json!([rest])));
        let variable = FieldPath::of_keys(["spec", "containers"]).index(0).key("env").index(0).key("value");
        let resolved = Resolved { sensitive: [variable].into(), ..Resolved::plain(&both.attributes) };
        let record = StateResource::applied(&both, &resolved, both.attributes.clone(), &keys);
        // Somebody else has it, who put another value there.
        let mut live = both.attributes.clone();
        live["spec"]["containers"][0]["env"][0]["value"] = "rotated".into();
        for record in [record.clone(), record.as_found()] {
            let plain = Resolved::plain(&one.attributes);
            let left = StateResource::applied_over(&[record], &one, &plain, live.clone(), &keys);
            let env = &left.live["spec"]["containers"][0]["env"];
            assert_eq!(env[0]["value"], keys.mask(&both.id, &"rotated".into()), "{env}");
            assert_eq!(env[1], rest);
        }
    }

    #[test]
    fn what_was_applied_is_as_if_it_were_wanted_where_it_is_recorded() {
        let named = StateResource::named_by(&"v1:ConfigMap:shop:a".into()).unwrap();
        assert!(named.as_applied().extensions.is_empty());
        let mut record = named.in_cluster("east".to_owned());
        record.extensions.insert(CLUSTER.to_owned(), "main".into());
        assert_eq!(record.as_applied().extensions[CLUSTER], "east");
    }

    #[test]
    fn an_id_with_the_namespace_default_may_be_of_an_object_that_names_none() {
        for (id, may_be) in [
            ("v1:ConfigMap:default:a", true),
            ("v1:ConfigMap:default:a/east", true),
            ("v1:ConfigMap:shop:a", false),
            ("v1:ConfigMap:a", false),
            ("v1:Namespace:default", false),
        ] {
            let named = StateResource::named_by(&id.into()).unwrap();
            assert_eq!(named.without_namespace().is_some(), may_be, "{id}");
        }
        let live = serde_json::json!({"metadata": {"name": "a", "namespace": "shop", "uid": "u"}});
        let other = StateResource::named_by(&"v1:ConfigMap:default:a".into()).unwrap().without_namespace().unwrap();
        let found = other.found(live.as_object().unwrap(), "main".to_owned());
        assert_eq!((found.uid(), found.default_namespace()), (Some("u"), Some("shop")));
        // What is recorded of it says so, too.
        let mut applied = found.clone();
        applied.attributes.insert("data".to_owned(), serde_json::json!({"a": "1"}));
        assert!(found.is_only_found() && !applied.is_only_found());
        assert_eq!(applied.as_found(), found);
    }

    #[test]
    fn an_id_tells_namespace_and_name_though_the_name_has_colons() {
        let rbac = "rbac.authorization.k8s.io/v1";
        for (id, namespace, name) in [
            ("v1:Namespace:shop".to_owned(), "", "shop"),
            ("v1:ConfigMap:shop:a.b".to_owned(), "shop", "a.b"),
            (format!("{rbac}:ClusterRole:system:node"), "", "system:node"),
            (format!("{rbac}:ClusterRoleBinding:system:controller:job"), "", "system:controller:job"),
            (format!("{rbac}:Role:kube-system:system:controller:job"), "kube-system", "system:controller:job"),
            ("example.com/v1:ClusterRole:shop:a".to_owned(), "shop", "a"),
        ] {
            let named = StateResource::named_by(&ResourceId(id.clone())).unwrap();
            let object = crate::ObjectRef::of(&named.attributes).unwrap();
            assert_eq!((object.namespace.as_str(), object.name.as_str()), (namespace, name), "{id}");
            assert!(named.is_only_found() && named.uid().is_none() && named.cluster.is_empty());
            let named = StateResource::named_by(&ResourceId(format!("{id}/east"))).unwrap();
            assert_eq!((crate::ObjectRef::of(&named.attributes), named.cluster.as_str()), (Some(object), "east"));
        }
        for id in ["a", "v1:Namespace"] {
            assert_eq!(StateResource::named_by(&id.into()), None);
        }
    }
}
