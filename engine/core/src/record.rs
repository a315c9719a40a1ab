//! The record of one resource between Runs: its state, the intent of a call in flight, and the last result.
//!
//! Start at [`Record`]. Plans are made from the [`State`](crate::State) that is read from the records.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::document::Document;
use crate::import::IMPORT_ID;
use crate::object::KubernetesObject;
use crate::plan::Action;
use crate::spec::{ResourceId, ResourceType};
use crate::state::StateResource;

/// The result of one resource.
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

/// The health of a resource, in kstatus' terms.
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
    /// Whether there is nothing to wait for: it is Current, or its health is unknown.
    pub fn is_settled(self) -> bool {
        matches!(self, Self::Current | Self::Unknown)
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The record of one resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its id.
    pub id: ResourceId,
    /// The recorded resource; `None` when it does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<StateResource>,
    /// The digest of the separate document of a large record: `sha256:<hex>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
    /// A call whose result is not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
    /// The result of the last call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Outcome>,
}

/// A call about to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The action.
    pub action: Action,
    /// The uid of the run.
    pub run: String,
    /// Its target.
    #[serde(default, skip_serializing_if = "CallTarget::is_empty")]
    pub place: CallTarget,
}

/// The target of a call, so that a lost call can be found later: its resource may have left the Spec by then, or may move.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallTarget {
    /// Kubernetes clusters by their names in the workspace. A moving object has several, its target last. Clusters of
    /// earlier lost calls are included until the object was found to be absent there. Empty for other runtimes, and for old
    /// records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<String>,
    /// The external name of the resource ([`IMPORT_ID`]), which is never deleted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub import_id: String,
    /// The type of the resource.
    #[serde(default, rename = "type", skip_serializing_if = "ResourceType::is_kubernetes")]
    pub kind: ResourceType,
}

impl CallTarget {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The extensions of a resource without any other record.
    pub fn extensions(&self) -> Map<String, Value> {
        let import_id = Some(&self.import_id).filter(|id| !id.is_empty());
        import_id.map(|id| (IMPORT_ID.to_owned(), Value::from(id.as_str()))).into_iter().collect()
    }
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The uid of the run.
    pub run: String,
    /// The action.
    pub action: Action,
    /// The result.
    pub outcome: ResourceOutcome,
    /// The time of the result.
    #[serde(default)]
    pub time: Timestamp,
    /// The Kubernetes object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesObject>,
    /// Whether the record is dropped although the object may still exist.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left: bool,
    /// Its dependencies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<ResourceId>,
    /// The health when it was last recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Whether it was healthy after its last change. A release needs that of all resources.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub verified: bool,
    /// Whether a Job has finished since its last change and Kubernetes deletes it then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub finished: bool,
    /// The message of a failed hook, which a resumed Run reports again.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Document for Record {
    const SCHEMA_VERSION: u32 = 1;
}

impl Record {
    /// Nothing is known of this one yet.
    pub fn new(id: ResourceId) -> Self {
        Self { id, resource: None, document: None, intent: None, result: None }
    }

    /// Whether the resource exists, as far as is recorded.
    pub fn is_there(&self) -> bool {
        self.resource.is_some() || self.document.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intent_records_call_target() {
        let (clusters, import_id) = (vec!["east".to_owned()], "shop/a".to_owned());
        let place = CallTarget { clusters, import_id, ..CallTarget::default() };
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
}
