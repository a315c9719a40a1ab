//! The types of the events that NotificationSinks select.
//!
//! The values of the kinds refer to them. Elsewhere: notifications find the events of each type in the writes of objects.

use crate::kinds;

/// Event types of Releases.
pub mod releases {
    /// `dev.stoa.release.created`
    pub const CREATED: &str = "dev.stoa.release.created";
    /// All of them, in the order in which they happen.
    pub const ALL: [&str; 1] = [CREATED];
}

/// Event types of Runs.
pub mod runs {
    /// `dev.stoa.run.started`
    pub const STARTED: &str = "dev.stoa.run.started";
    /// `dev.stoa.run.awaitingapproval`
    pub const AWAITING_APPROVAL: &str = "dev.stoa.run.awaitingapproval";
    /// `dev.stoa.run.approved`
    pub const APPROVED: &str = "dev.stoa.run.approved";
    /// `dev.stoa.run.rejected`
    pub const REJECTED: &str = "dev.stoa.run.rejected";
    /// `dev.stoa.run.awaitingmerge`
    pub const AWAITING_MERGE: &str = "dev.stoa.run.awaitingmerge";
    /// `dev.stoa.run.succeeded`
    pub const SUCCEEDED: &str = "dev.stoa.run.succeeded";
    /// `dev.stoa.run.failed`
    pub const FAILED: &str = "dev.stoa.run.failed";
    /// `dev.stoa.run.canceled`
    pub const CANCELED: &str = "dev.stoa.run.canceled";
    /// All of them, in the order in which they happen.
    pub const ALL: [&str; 8] =
        [STARTED, AWAITING_APPROVAL, APPROVED, REJECTED, AWAITING_MERGE, SUCCEEDED, FAILED, CANCELED];
}

/// Event types of Stacks.
pub mod stacks {
    /// `dev.stoa.stack.created`
    pub const CREATED: &str = "dev.stoa.stack.created";
    /// `dev.stoa.stack.deleting`
    pub const DELETING: &str = "dev.stoa.stack.deleting";
    /// `dev.stoa.stack.drifted`
    pub const DRIFTED: &str = "dev.stoa.stack.drifted";
    /// `dev.stoa.stack.driftcleared`
    pub const DRIFT_CLEARED: &str = "dev.stoa.stack.driftcleared";
    /// All of them, in the order in which they happen.
    pub const ALL: [&str; 4] = [CREATED, DELETING, DRIFTED, DRIFT_CLEARED];
}

/// Event types of Workflows.
pub mod workflows {
    /// `dev.stoa.workflow.started`
    pub const STARTED: &str = "dev.stoa.workflow.started";
    /// `dev.stoa.workflow.awaitingapproval`
    pub const AWAITING_APPROVAL: &str = "dev.stoa.workflow.awaitingapproval";
    /// `dev.stoa.workflow.approved`
    pub const APPROVED: &str = "dev.stoa.workflow.approved";
    /// `dev.stoa.workflow.rejected`
    pub const REJECTED: &str = "dev.stoa.workflow.rejected";
    /// `dev.stoa.workflow.succeeded`
    pub const SUCCEEDED: &str = "dev.stoa.workflow.succeeded";
    /// `dev.stoa.workflow.failed`
    pub const FAILED: &str = "dev.stoa.workflow.failed";
    /// `dev.stoa.workflow.canceled`
    pub const CANCELED: &str = "dev.stoa.workflow.canceled";
    /// All of them, in the order in which they happen.
    pub const ALL: [&str; 7] = [STARTED, AWAITING_APPROVAL, APPROVED, REJECTED, SUCCEEDED, FAILED, CANCELED];
}

/// Event types of Workspaces.
pub mod workspaces {
    /// `dev.stoa.workspace.unavailable`
    pub const UNAVAILABLE: &str = "dev.stoa.workspace.unavailable";
    /// `dev.stoa.workspace.available`
    pub const AVAILABLE: &str = "dev.stoa.workspace.available";
    /// All of them, in the order in which they happen.
    pub const ALL: [&str; 2] = [UNAVAILABLE, AVAILABLE];
}

/// The types of events that a sink may ask for.
pub fn types() -> impl Iterator<Item = &'static str> {
    kinds().flat_map(|kind| kind.events).copied()
}

/// Whether a type is one that a sink asks for: by its name, or by its beginning and `.*`.
pub fn matches(pattern: &str, event_type: &str) -> bool {
    match pattern.strip_suffix(".*") {
        None => pattern == event_type,
        Some(beginning) => event_type.strip_prefix(beginning).is_some_and(|rest| rest.starts_with('.')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_selects_event_types_by_prefix() {
        assert!(types().all(|event_type| event_type.starts_with("dev.stoa.")));
        let asked = |pattern: &str| types().filter(|event_type| matches(pattern, event_type)).count();
        assert_eq!(asked("dev.stoa.run.failed"), 1);
        assert_eq!(asked("dev.stoa.run.*"), 8);
        assert_eq!(asked("dev.stoa.*"), types().count());
        for pattern in ["*", "dev.stoa.ru*", "dev.stoa.run", "dev.stoa.run.*.*", "", ".*"] {
            assert_eq!(asked(pattern), 0, "{pattern}");
        }
    }
}
