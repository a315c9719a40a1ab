//! The plan: all actions and changed fields, decided before anything is called.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::conflict::FieldConflict;
use crate::document::Document;
use crate::hook::PlannedHook;
use crate::path::FieldPath;
use crate::spec::{ResourceId, ResourceType};
use crate::stage::Stage;

/// The live object, as a runtime read it.
#[derive(Clone, Debug, PartialEq)]
pub enum Live {
    /// Nothing.
    Absent,
    /// The resource as the infrastructure reports it.
    Present(Map<String, Value>),
    /// It cannot be known yet, for this reason: its CRD is not there, for instance.
    Unverified(String),
}

/// The result of a server-side dry run.
#[derive(Clone, Debug, PartialEq)]
pub enum Preview {
    /// The resource as it would be.
    Changed(Map<String, Value>),
    /// The same, with fields taken over from other managers.
    Contested(Map<String, Value>, Vec<FieldConflict>),
    /// The change needs a replacement: the new object, if known.
    Replaced(Option<Map<String, Value>>),
    /// There is no dry run yet, for this reason.
    Unverified(String),
    /// The same, since the namespace does not exist.
    MissingNamespace(String),
    /// It is rejected now, for this reason, and may be accepted after changes of these, which the plan makes first.
    RejectedUntil(String, Vec<ResourceId>),
    /// It is refused, for this reason, which is no problem where nothing is to be changed.
    Refused(String),
    /// The provider decides.
    Planned(Box<ProviderPlan>),
}

/// The plan of a provider for one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProviderPlan {
    /// Create, Update, Replace, Unchanged, or Read for a data source.
    pub action: Action,
    /// The object afterwards; null at unknown paths.
    pub after: Map<String, Value>,
    /// The paths of values that are unknown until the change is made.
    pub unknown: BTreeSet<FieldPath>,
    /// The paths that need another object.
    pub replaced_by: Vec<FieldPath>,
    /// The paths of the object that are sensitive by the schema of the provider.
    pub sensitive: BTreeSet<FieldPath>,
    /// The unknown paths of the configuration that it was made with.
    pub config_unknown: BTreeSet<FieldPath>,
    /// The warnings of the provider, without secrets.
    pub warnings: Vec<String>,
}

impl Preview {
    /// The resource as it would be, if that is known.
    pub fn made(&self) -> Option<&Map<String, Value>> {
        match self {
            Self::Changed(made) | Self::Contested(made, _) | Self::Replaced(Some(made)) => Some(made),
            Self::Replaced(None)
            | Self::Unverified(_)
            | Self::MissingNamespace(_)
            | Self::RejectedUntil(..)
            | Self::Refused(_)
            | Self::Planned(_) => None,
        }
    }
}

/// The action of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Action {
    /// It is not there: make it.
    Create,
    /// It exists and differs.
    Update,
    /// It is recorded and no longer wanted: remove it.
    Delete,
    /// Its change needs a deletion and a new creation.
    Replace,
    /// It exists without a record, was recreated by others, or belongs to another deployment: take it over.
    Adopt,
    /// It is recorded and no longer wanted: drop the record without a deletion. The object does not exist, was recreated by
    /// others, belongs to another deployment, has another id, is in a forgotten cluster, or was imported.
    Forget,
    /// It exists and is not recorded: record it without a change.
    Import,
    /// It is a data source or an ephemeral resource: read it. Nothing is changed or recorded.
    Read,
    /// Nothing to do.
    #[default]
    Unchanged,
}

impl Action {
    /// Every action, in the order summaries list them.
    pub const ALL: [Self; 9] = [
        Self::Create,
        Self::Update,
        Self::Delete,
        Self::Replace,
        Self::Adopt,
        Self::Import,
        Self::Forget,
        Self::Read,
        Self::Unchanged,
    ];

    /// The symbol of the action in tables: `+`, `~`, `-`, `±`, `>`, `=`, `.` and `<`; a space for Unchanged.
    pub fn mark(self) -> &'static str {
        match self {
            Self::Create => "+",
            Self::Update => "~",
            Self::Delete => "-",
            Self::Replace => "±",
            Self::Adopt => ">",
            Self::Import => "=",
            Self::Forget => ".",
            Self::Read => "<",
            Self::Unchanged => " ",
        }
    }

    /// Whether the action changes the infrastructure.
    pub fn is_call(self) -> bool {
        !matches!(self, Self::Import | Self::Forget | Self::Read | Self::Unchanged)
    }

    /// Whether the resource exists afterwards.
    pub fn keeps(self) -> bool {
        !matches!(self, Self::Delete | Self::Forget)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// One field that changes. Sensitive values are masked as `"(sensitive)"`, values not known until
/// apply are `"(known after apply)"`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldChange {
    /// Its path, such as `spec.template.spec.containers[name=web].image`.
    pub path: String,
    /// The present value; `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The new value; `None` if it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    /// Whether the live value drifted from the record, rather than the wanted one changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drift: bool,
    /// Whether this change alone needs another object.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forces_replacement: bool,
}

/// The action of one resource, with its reasons.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedAction {
    /// Which.
    pub id: ResourceId,
    /// The resource type.
    #[serde(rename = "type")]
    pub kind: ResourceType,
    /// The action.
    pub action: Action,
    /// Which fields change, or are set where nothing is yet; empty for deletions and no change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FieldChange>,
    /// The ids whose actions come first. For deletions these are the dependents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<ResourceId>,
    /// The stage in which it begins, where that is not the one of its action ([`Stage::of`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// Its explicit and implicit dependencies, which are recorded when it is applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<ResourceId>,
    /// Whether the live resource drifted from its record, or does not exist.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drift: bool,
    /// Why there was no dry run: its namespace or CRD does not exist yet, for instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unverified: Option<String>,
    /// The id under which the same object was recorded before, when only its id changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded_as: Option<ResourceId>,
    /// The id of the same object in the Spec, for a record that is forgotten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_as: Option<ResourceId>,
    /// The other deployment that has the live object: it is taken over from that one on purpose, or left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owned_by: Option<String>,
    /// The recorded object no longer exists, and others created one of its name, which is adopted or left.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recreated: bool,
    /// For [`Action::Replace`]: an object already exists at the new location and is taken over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_over: bool,
    /// Fields that are taken from other managers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<FieldConflict>,
    /// It is left by its [resource policy](crate::hook::RESOURCE_POLICY).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept_by_policy: bool,
    /// For a refresh: why an apply would fail, by the owner or the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// It was imported: nothing was applied yet, or its resource says that it is never deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub imported: bool,
    /// The forgotten clusters with a record of it. The objects there stay.
    #[serde(default, rename = "givenUp", skip_serializing_if = "Vec::is_empty")]
    pub forgotten_clusters: Vec<String>,
    /// For [`Action::Import`]: the content of the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<FoundResource>,
}

/// The message about an object whose record is forgotten because the Spec has it under another id.
pub fn same_object_message(wanted: &ResourceId) -> String {
    format!("the Spec has the same object as {wanted}, so it is not deleted")
}

/// The result of an import's read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FoundResource {
    /// The uid of the live object: an object with another uid is not the one that was planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The extensions to record it with.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extensions: Map<String, Value>,
}

impl PlannedAction {
    /// An action about one resource, and nothing more known of it.
    pub fn new(id: ResourceId, kind: ResourceType, action: Action) -> Self {
        Self { id, kind, action, ..Self::default() }
    }

    /// Whether it is shown to people: it changes something, or is a data source that only the apply can read.
    pub fn is_shown(&self) -> bool {
        match self.action {
            Action::Unchanged => false,
            Action::Read => !self.changes.is_empty(),
            _ => true,
        }
    }

    /// The stage in which it begins.
    pub fn stage(&self) -> Stage {
        self.stage.unwrap_or(Stage::of(self.action))
    }

    /// The id of the record that the action is about, if it is recorded.
    pub fn recorded_id(&self) -> &ResourceId {
        self.recorded_as.as_ref().unwrap_or(&self.id)
    }
}

/// Everything that has to change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The shape of this document, [`Document::SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The digest of the stored Spec document with sealed values: `sha256:<hex>`.
    pub spec_digest: String,
    /// The destinations: digests by cluster name, or under an empty name for a repository. The digest depends on the
    /// server, or on the repository and branch.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub destinations: BTreeMap<String, String>,
    /// One action per resource, in an order that respects `after`.
    pub actions: Vec<PlannedAction>,
    /// The hooks to run before and after the actions, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<PlannedHook>,
    /// Warnings to read before an approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The number of resources by action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// To create.
    pub create: u32,
    /// To update.
    pub update: u32,
    /// To delete.
    pub delete: u32,
    /// To replace.
    pub replace: u32,
    /// To adopt.
    pub adopt: u32,
    /// To import.
    pub import: u32,
    /// To forget.
    pub forget: u32,
    /// Data sources and ephemeral resources.
    pub read: u32,
    /// Unchanged.
    pub unchanged: u32,
    /// Resources without a dry run.
    pub unverified: u32,
    /// Hooks to run.
    pub hooks: u32,
}

impl Summary {
    /// The count of one action.
    pub fn count(&self, action: Action) -> u32 {
        match action {
            Action::Create => self.create,
            Action::Update => self.update,
            Action::Delete => self.delete,
            Action::Replace => self.replace,
            Action::Adopt => self.adopt,
            Action::Import => self.import,
            Action::Forget => self.forget,
            Action::Read => self.read,
            Action::Unchanged => self.unchanged,
        }
    }
}

impl Document for Plan {
    const SCHEMA_VERSION: u32 = 1;
}

impl Plan {
    /// A plan for a Spec, which does nothing.
    pub fn of(spec_digest: &str) -> Self {
        let (destinations, actions, hooks, warnings) = Default::default();
        let spec_digest = spec_digest.to_owned();
        Self { schema_version: Self::SCHEMA_VERSION, spec_digest, destinations, actions, hooks, warnings }
    }

    /// The digest of the decisions, `sha256:<hex>`: actions, known fields and destinations. Warnings and the wording of
    /// reasons are left out.
    pub fn digest(&self) -> String {
        let mut value = serde_json::to_value(self).expect("a plan is JSON");
        value.as_object_mut().expect("a plan is a map").remove("warnings");
        for action in value["actions"].as_array_mut().into_iter().flatten() {
            if let Some(unverified) = action.get_mut("unverified") {
                *unverified = json!(true);
            }
        }
        crate::digest::digest(&value)
    }

    /// The number of resources by action.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        for action in &self.actions {
            let count = match action.action {
                Action::Create => &mut summary.create,
                Action::Update => &mut summary.update,
                Action::Delete => &mut summary.delete,
                Action::Replace => &mut summary.replace,
                Action::Adopt => &mut summary.adopt,
                Action::Import => &mut summary.import,
                Action::Forget => &mut summary.forget,
                Action::Read => &mut summary.read,
                Action::Unchanged => &mut summary.unchanged,
            };
            *count += 1;
            summary.unverified += u32::from(action.unverified.is_some());
        }
        summary.hooks = u32::try_from(self.hooks.len()).unwrap_or(u32::MAX);
        summary
    }

    /// The clusters that are given up by it.
    pub fn forgotten_clusters(&self) -> Vec<String> {
        let all: BTreeSet<&String> = self.actions.iter().flat_map(|action| &action.forgotten_clusters).collect();
        all.into_iter().cloned().collect()
    }

    /// Whether it changes and records nothing, and runs nothing.
    pub fn is_unchanged(&self) -> bool {
        self.hooks.is_empty()
            && self.actions.iter().all(|action| matches!(action.action, Action::Read | Action::Unchanged))
    }
}
