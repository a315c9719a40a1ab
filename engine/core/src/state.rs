//! What is recorded: the result of the last operation on every resource of one stack in one
//! workspace.
//!
//! [`State`] is what plans are made from, and what a release keeps. Elsewhere: `record` has what is kept of one resource while
//! runs go on, and `found` tells which object a record is of.

mod found;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cluster::CLUSTER;
use crate::diff::still_sensitive;
use crate::document::Document;
use crate::masks::{DigestKeys, STATE_KEY, contains_mask};
use crate::object::without_bookkeeping;
use crate::path::Segment;
use crate::plan::Action;
use crate::record::Place;
use crate::resolve::Resolved;
use crate::sensitive::Sensitive;
use crate::spec::{Resource, ResourceId, ResourceType};

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
    /// Whether it is a Job that Kubernetes deletes after it has finished, and was seen to finish. One that is not there any more
    /// and was not seen to counts as deleted by somebody. What came of the last call says so, and no document does.
    #[serde(skip)]
    pub finished: bool,
}

impl Document for StateResource {
    const SCHEMA_VERSION: u32 = 1;
}

impl Document for State {
    const SCHEMA_VERSION: u32 = 1;
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
            finished: false,
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
}
