//! Events of Workspaces: unavailable, and available again.

use kube::ResourceExt as _;
use serde_json::{Value, json};
use stoa_kinds::event_types::workspaces::{AVAILABLE, UNAVAILABLE};
use stoa_types::{Condition, Workspace, common::condition, reason};

use super::{Mark, ObjectEvents, Scope, message};

fn ready(workspace: &Workspace) -> Option<&Condition> {
    condition(&workspace.status.as_ref()?.conditions, reason::READY)
}

impl ObjectEvents for Workspace {
    fn scope(&self) -> Scope {
        Scope { workspaces: vec![self.name_any()], ..Scope::default() }
    }

    fn marks(&self) -> Vec<Mark> {
        let Some(ready) = ready(self) else { return Vec::new() };
        match ready.status.as_str() {
            "False" => vec![Mark::since(UNAVAILABLE, ready)],
            // A new workspace without a problem is no news.
            "True" => vec![Mark::since(AVAILABLE, ready).only_after(UNAVAILABLE)],
            // The workspace was not checked yet.
            _ => Vec::new(),
        }
    }

    fn data(&self) -> Value {
        let ready = ready(self);
        json!({
            "workspace": self.name_any(),
            "reason": ready.map(|condition| &condition.reason),
            "message": ready.map(message),
        })
    }
}
