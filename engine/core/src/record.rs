//! What is kept of one resource while runs go on: what is there, which call is under way, and what came of the last.
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
use crate::spec::ResourceId;
use crate::state::StateResource;

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
    /// The Kubernetes clusters by their names in the workspace: several where the object goes from one to another, the last of
    /// which is where it is to be, or where an earlier call without a result went, unless somebody has found nothing there since.
    /// None for other runtimes, and from before they were kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<String>,
    /// What the resource is called outside, when it says so ([`IMPORT_ID`]): it is not removed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub import_id: String,
}

impl Place {
    pub(crate) fn is_empty(&self) -> bool {
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
    /// Whether it is a Job that was seen to finish after its last change, which Kubernetes deletes then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub finished: bool,
}

impl Document for Record {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
