//! The state: the result of the last operation on each resource of one stack in one workspace.
//!
//! [`State`] is the input of plans and the content of a release.
//!
//! Elsewhere: `record` has the record of one resource between Runs, and `found` identifies the object of a record.

mod found;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cluster::CLUSTER;
use crate::diff::still_sensitive;
use crate::document::Document;
use crate::object::without_bookkeeping;
use crate::path::Segment;
use crate::plan::Action;
use crate::provider_state::ProviderState;
use crate::record::CallTarget;
use crate::resolve::Resolved;
use crate::secret_digest::{DigestKeys, STATE_KEY, contains_mask};
use crate::sensitive::Sensitive;
use crate::spec::{DELETE_CONTENTS, Resource, ResourceId, ResourceType};

/// The recorded state of one resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StateResource {
    /// Its id.
    pub id: ResourceId,
    /// The resource type.
    #[serde(rename = "type")]
    pub kind: ResourceType,
    /// The applied attributes, with resolved references and sensitive values replaced by `{"$sensitive": "hmac-sha256:…"}`.
    pub attributes: Map<String, Value>,
    /// The live object after the operation, with values that the infrastructure chose and others may refer to, such as
    /// `metadata.uid` or `spec.clusterIP`. Sensitive values are masked the same way. Empty for runtimes without one.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub live: Map<String, Value>,
    /// Its explicit and implicit dependencies when it was applied. Deletions follow them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<ResourceId>,
    /// The extensions it was applied with.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extensions: Map<String, Value>,
    /// The Kubernetes cluster it lives in, by its name in the workspace; empty for others.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// The state that its provider needs back, for resources of providers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_state: Option<ProviderState>,
    /// The version of the provider that it was applied with, whichever lock decided it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_version: Option<String>,
    /// A lost call may have created it, Stoa cannot find out, and a repeated call might create a second one. A user has to
    /// decide.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
    /// It existed before and was adopted, and so may its contents.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
    /// Masks of formerly recorded fields ([`as_found`](Self::as_found)): attributes and live objects with little besides
    /// the masks. Live values at these paths are not shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masked: Vec<Map<String, Value>>,
    /// The id that its digests were made with, where that is not its own: it was recorded under that one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digests_of: Option<ResourceId>,
    /// Whether a Job has finished that Kubernetes deletes then. A Job that disappears without that counts as deleted by
    /// others. The last result has this, and no document.
    #[serde(skip)]
    pub finished: bool,
    /// Whether it was seen healthy after its last change. The last result has this, and no document.
    #[serde(skip)]
    pub verified: bool,
}

impl Document for StateResource {
    const SCHEMA_VERSION: u32 = 1;
}

impl Document for State {
    const SCHEMA_VERSION: u32 = 1;
}

/// All recorded resources.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The resources, by id.
    pub resources: Vec<StateResource>,
    /// Calls that may have been made, of earlier runs or earlier tries of the same run. None is left in a release.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<OpenCall>,
}

/// A call whose result is not recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCall {
    /// The resource that it was for.
    pub id: ResourceId,
    /// The action.
    pub action: Action,
    /// The uid of the run that made it.
    pub run: String,
    /// Its target.
    #[serde(default, skip_serializing_if = "CallTarget::is_empty")]
    pub place: CallTarget,
    /// A user confirmed that the call left nothing behind where Stoa cannot find out, so that it may be repeated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retry: bool,
}

impl OpenCall {
    /// Whether the live objects may differ from the record because of the call. A repeatable call has to be searched too:
    /// its intent may have replaced that of a call that created a resource.
    pub fn needs_recovery(&self, is_recorded: bool) -> bool {
        match self.action {
            // An adopted object has our owner annotation and no record.
            Action::Create | Action::Update | Action::Replace | Action::Delete | Action::Adopt => true,
            Action::Forget | Action::Unchanged => self.may_have_made(is_recorded),
            // They change nothing.
            Action::Import | Action::Read => false,
        }
    }

    /// Whether the call may have created an object without a record.
    pub fn may_have_made(&self, is_recorded: bool) -> bool {
        match self.action {
            Action::Create | Action::Replace => true,
            // An adopted object existed before. An updated one without a record was found before.
            Action::Adopt | Action::Import | Action::Read => false,
            Action::Update | Action::Delete | Action::Forget | Action::Unchanged => !is_recorded,
        }
    }
}

impl StateResource {
    /// The record of a resource that was applied as `resolved` and has this live object; an empty map for runtimes without
    /// one.
    pub fn applied(resource: &Resource, resolved: &Resolved<'_>, live: Map<String, Value>, keys: &DigestKeys) -> Self {
        Self::applied_over(&[], resource, resolved, live, keys)
    }

    /// The same over earlier records: a formerly sensitive value stays masked while it is live, even if the Spec drops it.
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
            extensions: resource.recorded_extensions(),
            ..Self::default()
        }
    }

    /// The same after a lost call may have set untracked fields: the record does not have these texts in its live object.
    #[must_use]
    pub fn hiding(self, texts: &Sensitive, keys: &DigestKeys) -> Self {
        let mut anywhere = Sensitive::default();
        anywhere.extend_texts(texts);
        let id = self.digest_id();
        let live = anywhere.replaced(&self.live, &mut |at, value| match at.0.last() {
            // The text replaces a value already, and may contain such a text by chance.
            Some(Segment::Key(key)) if key == STATE_KEY => value.clone(),
            Some(_) | None => keys.mask(id, value),
        });
        Self { live, ..self }
    }

    /// All recorded fields, with masks for sensitive ones.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Map<String, Value>> {
        [&self.attributes, &self.live].into_iter().chain(&self.masked)
    }

    /// The id that its digests are made with.
    pub fn digest_id(&self) -> &ResourceId {
        self.digests_of.as_ref().unwrap_or(&self.id)
    }

    /// The same under another id. Its digests stay as they are, since the values are not known.
    #[must_use]
    pub fn under(self, id: ResourceId) -> Self {
        let has_digests = [&self.attributes, &self.live].iter().any(|object| object.values().any(contains_mask));
        let digests_of = Some(self.digest_id()).filter(|of| has_digests && **of != id).cloned();
        Self { id, digests_of, ..self }
    }

    /// The record of an object that is recreated as `wanted`: the new Spec decides about [`DELETE_CONTENTS`], not the
    /// old record.
    pub fn replaced_by(&self, wanted: &Resource) -> Self {
        let mut record = self.clone();
        record.extensions.insert(DELETE_CONTENTS.to_owned(), wanted.is_set(DELETE_CONTENTS).into());
        record
    }

    /// The applied resource at its recorded location; sensitive values are digests.
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

    /// The same with other dependencies.
    #[must_use]
    pub fn depending_on(self, depends_on: Vec<ResourceId>) -> Self {
        Self { depends_on, ..self }
    }

    /// The same, adopted or not.
    #[must_use]
    pub fn adopted(self, adopted: bool) -> Self {
        Self { adopted, ..self }
    }

    /// The same in another cluster.
    #[must_use]
    pub fn in_cluster(self, cluster: String) -> Self {
        Self { cluster, ..self }
    }
}

impl State {
    /// The record under an id.
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
    fn formerly_sensitive_fields_stay_masked() {
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
    fn hidden_texts_are_not_recorded() {
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
    fn leftover_list_item_is_found_by_position() {
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
    fn applied_record_becomes_resource() {
        let named = StateResource::named_by(&"v1:ConfigMap:shop:a".into()).unwrap();
        assert!(named.as_applied().extensions.is_empty());
        let mut record = named.in_cluster("east".to_owned());
        record.extensions.insert(CLUSTER.to_owned(), "main".into());
        assert_eq!(record.as_applied().extensions[CLUSTER], "east");
    }
}
