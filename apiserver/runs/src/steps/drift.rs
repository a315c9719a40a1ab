//! What a Refresh finds: whether what is live is still what was applied.

use bytes::Bytes;
use stoa_engine::{Action, PlannedAction, problem};
use stoa_kinds::text;

use super::{plan, resolve};
use crate::{StepError, deployment, documents, execution::Execution, state::State, target::Target};

/// So many resources are named.
const NAMED: usize = 10;

/// Notes in the stack's status what moved away from its last release, or from what was applied since without getting to one, by
/// the plan that would bring it back; says it in a sentence.
///
/// # Errors
///
/// Failed when the plan cannot be read, nothing is deployed any more, or something could not be looked at; Retry when the
/// status cannot be written.
pub(super) async fn note(
    execution: &Execution,
    target: &Target,
    spec_digest: &str,
    plan: &Bytes,
    state: &State,
) -> Result<String, StepError> {
    let plan = documents::plan(plan).await.map_err(|e| plan::unreadable("this run", &e))?;
    let release = resolve::release(execution, target).await?;
    if release.spec.spec_digest != spec_digest {
        return Ok("another release was created meanwhile; no drift was recorded".to_owned());
    }
    let unseen: Vec<&str> = plan.actions.iter().filter(|it| is_unseen(it)).map(|it| it.id.0.as_str()).collect();
    if let Some(first) = unseen.first() {
        let message = format!("{} recorded resources could not be checked, {first} among them", unseen.len());
        return Err(StepError::failed(problem::reason::UNAVAILABLE, message));
    }
    let mut moved: Vec<&str> =
        plan.actions.iter().filter(|planned| planned.drift).map(|planned| planned.id.0.as_str()).collect();
    moved.sort_unstable();
    let revision = release.spec.revision;
    let place = if state.head().dirty { "the record".to_owned() } else { format!("release {revision}") };
    let message = match moved.len() {
        0 => format!("nothing moved away from {place}"),
        count => {
            let noun = if count == 1 { "resource" } else { "resources" };
            format!("{count} {noun} moved away from {place}: {}", text::first(&moved, NAMED, ", "))
        }
    };
    deployment::note_drift(execution, target, revision, !moved.is_empty(), &message).await?;
    Ok(message)
}

/// Whether nobody could look at what is recorded, as where one of several clusters does not answer.
fn is_unseen(planned: &PlannedAction) -> bool {
    planned.action == Action::Update && planned.unverified.is_some() && planned.changes.is_empty()
}
