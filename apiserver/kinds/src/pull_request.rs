//! Runs of pull requests: the plan that a pull request shows, and the Run that follows its merge.
//!
//! Elsewhere: the controller of pull requests starts the plans, and the execution of Runs compares with them.

use kube::ResourceExt as _;
use stoa_types::{Run, delivery::RunPhase, labels};

use crate::{run_status::status, trigger::is_triggered};

/// The user that this is.
pub const USER: &str = "system:stoa:pull-request";

/// Whether a run is a plan of a pull request. Labels alone are anybody's.
pub fn is_plan(run: &Run) -> bool {
    run.labels().contains_key(labels::PULL_REQUEST) && status(run).requester.username == USER
}

/// Whether a run has brought about what the merge of a pull request with this plan asked for.
pub fn has_followed(run: &Run, plan: &Run) -> bool {
    is_following(run, plan) && status(run).phase == RunPhase::Succeeded
}

/// Whether a Run of the trigger follows the merge of a pull request that had this plan.
pub fn is_following(run: &Run, plan: &Run) -> bool {
    let uid = plan.metadata.uid.as_deref().unwrap_or_default();
    is_triggered(run) && status(run).merged_plans.iter().any(|merged| merged.run_uid == uid)
}
