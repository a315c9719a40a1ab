//! The guard against mass deletion: a push that empties a folder does not empty a cluster.
//!
//! [`stoa_engine::deletion`] says what is much. Looked at before anything of a plan is carried out, and never after that:
//! what is recorded gets less while the plan is.

use bytes::Bytes;
use kube::ResourceExt as _;
use stoa_engine::{MassDeletion, Plan, document};
use stoa_types::{
    delivery::{Operation, RunPhase},
    reason,
};

use super::plan::unreadable;
use crate::runs::{Halt, execution::Execution, state::State, status};

/// What to write where that is meant.
const ADVICE: &str = "if that is meant, start a run with spec.allowMassDeletion: true, or a Destroy";

/// Fails a run before its plan is carried out that would remove most of what is deployed and does not say that it may.
pub(super) fn require_allowed(execution: &Execution, plan: &Bytes, state: &State) -> Result<(), Halt> {
    let run = &execution.run;
    let is_asked = matches!(run.spec.operation, Operation::Apply | Operation::Rollback);
    if !is_asked || run.spec.allow_mass_deletion || status(run).phase >= RunPhase::Applying {
        return Ok(());
    }
    match decoded(execution, plan)?.mass_deletion(owned(state)) {
        Some(found) => Err(Halt::failed(reason::MASS_DELETION, sentence(found))),
        None => Ok(()),
    }
}

/// What a Preview says of a plan that an Apply would fail with.
pub(super) fn warning(execution: &Execution, plan: &Bytes, state: &State) -> Result<Option<String>, Halt> {
    Ok(told(&decoded(execution, plan)?, state))
}

/// The same of a plan that is decoded.
pub(super) fn told(plan: &Plan, state: &State) -> Option<String> {
    plan.mass_deletion(owned(state)).map(|found| format!("an Apply would fail: {}", sentence(found)))
}

fn decoded(execution: &Execution, plan: &Bytes) -> Result<Plan, Halt> {
    document::decode(plan).map_err(|error| unreadable(&execution.run.name_any(), &error))
}

fn owned(state: &State) -> usize {
    state.entries().filter(|entry| entry.is_there()).count()
}

fn sentence(found: MassDeletion) -> String {
    format!("the plan {found}; {ADVICE}")
}
