//! Events of Stacks: creation, deletion and drift. Runs and Releases have the events of their deployments.

use kube::ResourceExt as _;
use serde_json::{Value, json};
use stoa_kinds::event_types::stacks::{CREATED, DELETING, DRIFT_CLEARED, DRIFTED};
use stoa_types::{Condition, Stack, common::condition, config::Deployment, reason};

use super::{Mark, ObjectEvents, Scope, message};

fn deployments(stack: &Stack) -> impl Iterator<Item = &Deployment> {
    stack.status.iter().flat_map(|status| &status.deployments)
}

fn drift(stack: &Stack) -> Option<&Condition> {
    condition(&stack.status.as_ref()?.conditions, reason::DRIFTED)
}

impl ObjectEvents for Stack {
    fn scope(&self) -> Scope {
        let mut workspaces = self.spec.workspaces.clone();
        workspaces.extend(deployments(self).map(|deployment| deployment.workspace.clone()));
        workspaces.sort();
        workspaces.dedup();
        Scope {
            organization: self.namespace().unwrap_or_default(),
            project: self.spec.project.clone(),
            stack: self.name_any(),
            workspaces,
        }
    }

    fn marks(&self) -> Vec<Mark> {
        let mut marks = vec![Mark::new(CREATED, self.metadata.creation_timestamp.as_ref())];
        marks.extend(drift(self).map(|drifted| match drifted.status.as_str() {
            "True" => Mark::since(DRIFTED, drifted),
            _ => Mark::since(DRIFT_CLEARED, drifted).only_after(DRIFTED),
        }));
        marks.extend(self.metadata.deletion_timestamp.as_ref().map(|at| Mark::new(DELETING, Some(at))));
        marks
    }

    fn data(&self) -> Value {
        let drifted = deployments(self).filter(|deployment| deployment.drifted);
        let drifted: Vec<&str> = drifted.map(|deployment| deployment.workspace.as_str()).collect();
        let drift = drift(self);
        json!({
            "reason": drift.map(|condition| &condition.reason),
            "message": drift.map(message),
            "workspaces": self.scope().workspaces,
            "driftedWorkspaces": drifted,
        })
    }
}
