//! Events of Stacks: creation, deletion and drift. Runs and Releases have the events of their deployments.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use stoa_kinds::event_types::stacks::{CREATED, DELETING, DRIFT_CLEARED, DRIFTED};
use stoa_types::reason;

use super::{Condition, Mark, Metadata, ObjectEvents, Parts, Scope, condition};

#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Stack(Parts<Spec, Status>);

#[derive(Deserialize)]
struct Spec {
    project: String,
    #[serde(default)]
    workspaces: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    deployments: Vec<Deployment>,
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Deployment {
    workspace: String,
    #[serde(default)]
    drifted: bool,
}

impl ObjectEvents for Stack {
    type Kind = stoa_types::Stack;

    fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    fn scope(&self) -> Scope {
        let Parts { metadata, spec, status } = &self.0;
        let mut workspaces = spec.workspaces.clone();
        workspaces.extend(status.deployments.iter().map(|deployment| deployment.workspace.clone()));
        workspaces.sort();
        workspaces.dedup();
        Scope {
            organization: metadata.namespace.clone(),
            project: spec.project.clone(),
            stack: metadata.name.clone(),
            workspaces,
        }
    }

    fn marks(&self) -> Vec<Mark> {
        let metadata = &self.0.metadata;
        let mut marks = vec![Mark::new(CREATED, metadata.creation_timestamp)];
        if let Some(drifted) = condition(&self.0.status.conditions, reason::DRIFTED) {
            let since = drifted.last_transition_time;
            let which = since.map(|since: Timestamp| since.to_string()).unwrap_or_default();
            marks.push(match drifted.status.as_str() {
                "True" => Mark::new(DRIFTED, since).which(which),
                _ => Mark::new(DRIFT_CLEARED, since).which(which).only_after(DRIFTED),
            });
        }
        marks.extend(metadata.deletion_timestamp.map(|at| Mark::new(DELETING, Some(at))));
        marks
    }

    fn data(&self) -> Value {
        let status = &self.0.status;
        let drifted: Vec<&str> =
            status.deployments.iter().filter(|d| d.drifted).map(|deployment| deployment.workspace.as_str()).collect();
        let drift = condition(&status.conditions, reason::DRIFTED);
        json!({
            "reason": drift.map(|condition| &condition.reason),
            "message": drift.map(Condition::message),
            "workspaces": self.scope().workspaces,
            "driftedWorkspaces": drifted,
        })
    }
}
