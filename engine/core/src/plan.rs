//! What has to change, complete and decided before anything does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::conflict::FieldConflict;
use crate::document::Document;
use crate::spec::{ResourceId, ResourceType};
use crate::stage::Stage;

/// What is live, as a runtime found it.
#[derive(Clone, Debug, PartialEq)]
pub enum Live {
    /// Nothing.
    Absent,
    /// The resource as the infrastructure reports it.
    Present(Map<String, Value>),
    /// It cannot be known yet, for this reason: its CRD is not there, for instance.
    Unverified(String),
}

/// What would change, as the infrastructure itself says (a server-side dry run).
#[derive(Clone, Debug, PartialEq)]
pub enum Preview {
    /// The resource as it would be.
    Changed(Map<String, Value>),
    /// The same, with fields taken from other managers.
    Contested(Map<String, Value>, Vec<FieldConflict>),
    /// It cannot be changed in place, and may be deleted and made again: the resource as it would be then, if that is
    /// known.
    Replaced(Option<Map<String, Value>>),
    /// It cannot be asked yet, for this reason.
    Unverified(String),
    /// The same, since the namespace is not there that it goes to.
    MissingNamespace(String),
    /// It is rejected now, for this reason, and may be accepted after changes of these, which the plan makes first.
    Lifted(String, Vec<ResourceId>),
    /// It is refused, for this reason, which is no problem where nothing is to be changed.
    Refused(String),
}

/// What is done about one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Action {
    /// It is not there: make it.
    Create,
    /// It is there and differs.
    Update,
    /// It is recorded and no longer wanted: remove it.
    Delete,
    /// It cannot be changed in place: remove it and make it again.
    Replace,
    /// It is there but not recorded, made by somebody in place of what is, or another deployment's: take it over.
    Adopt,
    /// It is recorded, no longer wanted, and gone already, also where somebody made another of its name, another deployment's,
    /// wanted under another id, in a cluster that is given up, or was imported to be left alone: drop the record.
    Forget,
    /// It is there and not recorded: record it as it is, and change nothing.
    Import,
    /// Nothing to do.
    Unchanged,
}

impl Action {
    /// Every action, in the order summaries list them.
    pub const ALL: [Self; 8] = [
        Self::Create,
        Self::Update,
        Self::Delete,
        Self::Replace,
        Self::Adopt,
        Self::Import,
        Self::Forget,
        Self::Unchanged,
    ];

    /// The mark of its lines and counts in what people read: `+`, `~`, `-`, `±`, `>`, `=` and `.`; a space for Unchanged.
    pub fn mark(self) -> &'static str {
        match self {
            Self::Create => "+",
            Self::Update => "~",
            Self::Delete => "-",
            Self::Replace => "±",
            Self::Adopt => ">",
            Self::Import => "=",
            Self::Forget => ".",
            Self::Unchanged => " ",
        }
    }

    /// Whether carrying it out changes the infrastructure.
    pub fn is_call(self) -> bool {
        !matches!(self, Self::Import | Self::Forget | Self::Unchanged)
    }

    /// Whether the resource is there afterwards.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldChange {
    /// Its path, such as `spec.template.spec.containers[name=web].image`.
    pub path: String,
    /// What it is; absent when it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// What it will be; absent when it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    /// Whether the live value moved away from what was recorded, rather than the wanted one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drift: bool,
}

/// What is done about one resource, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedAction {
    /// Which.
    pub id: ResourceId,
    /// Who drives it.
    #[serde(rename = "type")]
    pub kind: ResourceType,
    /// What.
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
    /// What it depends on, explicitly and implicitly; recorded in the state when it is applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<ResourceId>,
    /// Whether the live resource moved away from what was recorded, or is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drift: bool,
    /// Why the server could not be asked, when it could not: its namespace or CRD is not there yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unverified: Option<String>,
    /// The id under which the same object was recorded before, when only its id changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded_as: Option<ResourceId>,
    /// The id under which the recorded object is wanted, for what is forgotten because of that, or goes elsewhere without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_as: Option<ResourceId>,
    /// The other deployment that has the live object: it is taken over from that one on purpose, or left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owned_by: Option<String>,
    /// The recorded object is gone, and somebody made another of its name: that is taken over like anything that is not
    /// recorded, or left alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recreated: bool,
    /// For [`Action::Replace`]: something is there already where it is made anew, such as in the cluster that it goes to, and
    /// is taken over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_over: bool,
    /// Fields that are taken from other managers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<FieldConflict>,
    /// Why nothing could be done about it, where nothing is to be changed: whose it is by now, or what the infrastructure says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// It was imported: nothing was ever applied to it, or its resource says that it is not to be removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub imported: bool,
    /// The clusters that are given up, which the workspace does not have any more: what is on record of it there is
    /// forgotten, and what is there is left alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given_up: Vec<String>,
    /// For [`Action::Import`]: what is to be recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<FoundResource>,
}

/// What is told of an object that is forgotten under one id, since it is wanted under another.
pub fn left_as(wanted: &ResourceId) -> String {
    format!("it is the object of {wanted}, which is wanted, and is left alone")
}

/// What an import found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FoundResource {
    /// The uid of the live object: what has another by then is not the one that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The extensions to record it with.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extensions: Map<String, Value>,
}

impl PlannedAction {
    /// An action about one resource, and nothing more known of it.
    pub fn new(id: ResourceId, kind: ResourceType, action: Action) -> Self {
        Self {
            id,
            kind,
            action,
            changes: Vec::new(),
            after: Vec::new(),
            stage: None,
            depends_on: Vec::new(),
            drift: false,
            unverified: None,
            recorded_as: None,
            kept_as: None,
            owned_by: None,
            recreated: false,
            takes_over: false,
            taken: Vec::new(),
            refused: None,
            imported: false,
            given_up: Vec::new(),
            found: None,
        }
    }

    /// The stage in which it begins.
    pub fn stage(&self) -> Stage {
        self.stage.unwrap_or(Stage::of(self.action))
    }

    /// The id under which is recorded what it is about, as far as that is recorded at all.
    pub fn recorded_id(&self) -> Option<&ResourceId> {
        let is_left = self.kept_as.is_some() && self.action.keeps();
        self.recorded_as.as_ref().or((!is_left).then_some(&self.id))
    }
}

/// Everything that has to change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The shape of this document, [`Document::SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Of the document that the Spec it was made from is kept as, sensitive values sealed: `sha256:<hex>`.
    pub spec_digest: String,
    /// Where it goes: by the name of a cluster, or under no name where there is one place for all, a digest that is the same
    /// for the same server, or repository and branch. Only what it goes to is here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub destinations: BTreeMap<String, String>,
    /// One action per resource, in an order that respects `after`.
    pub actions: Vec<PlannedAction>,
    /// What people should know before they approve it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// How many resources there are of each action.
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
    /// Unchanged.
    pub unchanged: u32,
    /// How many of these the server could not be asked about.
    pub unverified: u32,
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
        let (destinations, actions, warnings) = Default::default();
        let spec_digest = spec_digest.to_owned();
        Self { schema_version: Self::SCHEMA_VERSION, spec_digest, destinations, actions, warnings }
    }

    /// The digest of what was decided, `sha256:<hex>`: the actions, the fields that are known, and where they go.
    /// Warnings, and why something could not be verified, are left out, since the same may be worded anew.
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

    /// How many resources there are of each action.
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
                Action::Unchanged => &mut summary.unchanged,
            };
            *count += 1;
            summary.unverified += u32::from(action.unverified.is_some());
        }
        summary
    }

    /// The clusters that are given up by it.
    pub fn given_up(&self) -> Vec<String> {
        let all: BTreeSet<&String> = self.actions.iter().flat_map(|action| &action.given_up).collect();
        all.into_iter().cloned().collect()
    }

    /// Whether nothing is to be done, but perhaps records brought up to date.
    pub fn is_unchanged(&self) -> bool {
        self.actions.iter().all(|action| action.action == Action::Unchanged)
    }
}
