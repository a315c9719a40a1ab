//! Premises of a plan: what it found in a file, and whether that has changed since.

use serde_json::{Map, Value};
use stoa_engine::diff::{Comparison, against_preview};
use stoa_engine::object::is_terminating;
use stoa_engine::resolve::Resolved;
use stoa_engine::{DigestKeys, FieldChange, ResourceId, ResourceType, stale_plan};
use stoa_runtime::ApplyRequest;

/// How many fields of a file a message names.
const NAMED: usize = 5;

/// The finding of a plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Premise {
    /// Nothing.
    Absent,
    /// An object with changed fields.
    Object(Box<Changed>),
}

/// The planned change of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Changed {
    id: ResourceId,
    changes: Vec<FieldChange>,
    /// The record, whose lists may have keys.
    prior: Option<Map<String, Value>>,
}

/// The present content of a file.
#[derive(Debug)]
pub(crate) enum There {
    Nothing,
    /// A file that is none of an object.
    Spoilt,
    Object(Map<String, Value>),
}

impl Premise {
    /// The premise of a request, if it has a plan.
    pub(crate) fn of(request: &ApplyRequest<'_>) -> Option<Self> {
        let changes = request.changes?;
        if request.create {
            return Some(Self::Absent);
        }
        let prior = request.prior.map(|prior| prior.attributes.clone());
        Some(Self::Object(Box::new(Changed { id: request.desired.id.clone(), changes: changes.to_vec(), prior })))
    }

    /// The difference from the premise, where a file is to hold `wanted`: the end of a message that starts with its
    /// path.
    pub(crate) fn broken(&self, there: &There, wanted: &Map<String, Value>) -> Option<String> {
        match (self, there) {
            (Self::Absent, There::Nothing) => None,
            // A plan counts a terminating object as absent.
            (Self::Absent, There::Object(live)) if is_terminating(live) => None,
            (Self::Absent, There::Spoilt | There::Object(_)) => Some("was created by others".to_owned()),
            (Self::Object(_), There::Nothing) => Some("is gone".to_owned()),
            (Self::Object(planned), There::Spoilt) => {
                // Unless it was no object either.
                let was_read = planned.changes.iter().any(|change| change.before.is_some());
                was_read.then(|| "is no longer an object".to_owned())
            }
            (Self::Object(planned), There::Object(live)) => {
                let since_applied = planned.prior.as_ref().map(|prior| planned.now(prior, wanted));
                let now = planned.now(live, wanted);
                let stale = stale_plan::stale_fields(&planned.changes, &now, &since_applied.unwrap_or_default());
                let told = [
                    ("was changed by others", stale.live),
                    ("would change differently, because a value that it refers to has changed", stale.referenced),
                ];
                let told = told.iter().filter(|(_, fields)| !fields.is_empty());
                let told: Vec<String> = told.map(|(how, fields)| format!("{how}: {}", named(fields))).collect();
                (!told.is_empty()).then(|| told.join(", and "))
            }
        }
    }
}

/// Some of the fields, and how many there are more.
fn named(fields: &[String]) -> String {
    let more = fields.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", fields[..fields.len().min(NAMED)].join(", "))
}

impl Changed {
    /// The changes that a plan would have if this object were live.
    fn now(&self, live: &Map<String, Value>, wanted: &Map<String, Value>) -> Vec<FieldChange> {
        let desired = Resolved::plain(wanted);
        // Nothing sensitive is in a repository, so that no digest of it is made.
        let keys = DigestKeys::new(&[0; 32], &[]);
        let comparison = Comparison {
            id: &self.id,
            kind: ResourceType::Kubernetes,
            prior: self.prior.as_ref(),
            records: &[],
            unsure: false,
            desired: &desired,
            live,
            keys: &keys,
            schema: None,
        };
        against_preview(&comparison, wanted)
    }
}
