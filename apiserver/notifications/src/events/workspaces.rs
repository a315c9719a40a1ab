//! Events of Workspaces: unavailable, and available again.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use stoa_kinds::event_types::workspaces::{AVAILABLE, UNAVAILABLE};
use stoa_types::reason;

use super::{Condition, Mark, Metadata, ObjectEvents, Parts, Scope, condition};

#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Workspace(Parts<IgnoredAny, Status>);

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
}

impl ObjectEvents for Workspace {
    type Kind = stoa_types::Workspace;

    fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    fn scope(&self) -> Scope {
        Scope { workspaces: vec![self.0.metadata.name.clone()], ..Scope::default() }
    }

    fn marks(&self) -> Vec<Mark> {
        let Some(ready) = condition(&self.0.status.conditions, reason::READY) else { return Vec::new() };
        let since = ready.last_transition_time;
        let which = since.map(|since| since.to_string()).unwrap_or_default();
        match ready.status.as_str() {
            "False" => vec![Mark::new(UNAVAILABLE, since).which(which)],
            // One that is made and at once all right is no news.
            "True" => vec![Mark::new(AVAILABLE, since).which(which).only_after(UNAVAILABLE)],
            // Nobody has looked yet.
            _ => Vec::new(),
        }
    }

    fn data(&self) -> Value {
        let ready = condition(&self.0.status.conditions, reason::READY);
        json!({
            "workspace": self.0.metadata.name,
            "reason": ready.map(|condition| &condition.reason),
            "message": ready.map(Condition::message),
        })
    }
}
