//! Starts runs: each once, under a name that follows from what the stack's status says, in place of those that have not begun.

use kube::ResourceExt as _;
use sha2::{Digest as _, Sha256};
use stoa_controller::{events::Kind, finalizers::update_same, object::Kind as ServedKind, queue};
use stoa_engine::digest::hex;
use stoa_kinds::{
    source::short_revision,
    trigger::{self, is_triggered},
};
use stoa_machinery::{ApiError, registry::Api};
use stoa_runs::Services;
use stoa_types::{Run, Stack, config::Started, delivery::Operation, labels, reason};

use super::{is_waiting, people, started_in};
use crate::controllers::stacks;

/// As whom runs are created.
const COMPONENT: &str = "trigger";

/// How many names are tried if others have taken them.
pub(super) const NAMES: i64 = 5;

/// The name of the run with this number: nothing else makes one of it.
pub(super) fn name_of(stack: &Stack, workspace: &str, cause: &str, number: i64) -> String {
    let uid = stack.uid().unwrap_or_default();
    let digest = hex(&Sha256::digest(format!("{uid}/{workspace}/{cause}/{number}")));
    format!("{}-{}", stack.name_any(), &digest[..10])
}

/// Creates the run, or finds it; those that it takes the place of do not begin any more.
pub(super) async fn start(
    services: &Services,
    stack: &Stack,
    workspace: &str,
    operation: Operation,
    commit: &str,
    cause: &str,
) -> Result<Started, ApiError> {
    let mut number = started_in(stack, workspace).map_or(0, |started| started.number);
    let last = number + NAMES;
    let mut run = stacks::run_of(stack, workspace, operation);
    run.spec.version = Some(commit.to_owned());
    run.metadata.generate_name = None;
    // The trigger itself, which was given leave when it was set, and by these.
    let (caused_by, seen) = people::behind(services, stack, workspace).await?;
    let context = trigger::on_behalf_of(COMPONENT, caused_by.clone());
    let runs = services.lookup.api::<Run>()?.with_context(context);
    loop {
        number += 1;
        let name = name_of(stack, workspace, cause, number);
        run.metadata.name = Some(name.clone());
        let message =
            format!("run {name}: {operation:?} of commit {} in workspace {workspace}", short_revision(commit));
        if let Some(taken) = create_or_find(services, stack, (&runs, &run), message, is_triggered).await? {
            if number < last {
                continue;
            }
            return Err(taken);
        }
        // Not before it is there: where it may not be, what waits is all that there is.
        supersede(services, stack, workspace, &name).await?;
        return Ok(Started {
            workspace: workspace.to_owned(),
            number,
            cause: cause.to_owned(),
            commit: commit.to_owned(),
            run: name,
            phase: None,
            retries: 0,
            retry_time: None,
            caused_by,
            seen: Some(seen),
        });
    }
}

/// Creates a run or workflow, or finds the one that an earlier try created. Returns 409 `AlreadyExists` if somebody else took
/// the name.
pub(super) async fn create_or_find<K: ServedKind + Sync>(
    services: &Services,
    stack: &Stack,
    (api, object): (&Api<K>, &K),
    message: String,
    is_triggered: fn(&K) -> bool,
) -> Result<Option<ApiError>, ApiError> {
    match api.create(object).await {
        Ok(created) => {
            services.recorder.record(&created, Kind::Normal, reason::STARTED, &message);
            services.recorder.record(stack, Kind::Normal, reason::STARTED, message);
            Ok(None)
        }
        Err(error) if error.is("AlreadyExists") => {
            let found = api.get_opt(&object.namespace().unwrap_or_default(), &object.name_any()).await?;
            let is_own = found.is_some_and(|found| is_triggered(&found));
            Ok((!is_own).then_some(error))
        }
        Err(error) => Err(error),
    }
}

/// Cancels earlier runs of the trigger in a workspace that have not begun to change anything.
async fn supersede(services: &Services, stack: &Stack, workspace: &str, by: &str) -> Result<(), ApiError> {
    let runs = services.lookup.api::<Run>()?;
    for run in stacks::runs_of(services, stack).await? {
        let is_earlier = is_triggered(&run) && run.spec.workspace == workspace && run.name_any() != by;
        if !is_earlier || !is_waiting(&run) || run.spec.cancel {
            continue;
        }
        let cancel = |run: &mut Run| {
            // It may have begun in between: then it is finished.
            if is_waiting(run) {
                run.annotations_mut().insert(labels::SUPERSEDED_BY.to_owned(), by.to_owned());
                run.spec.cancel = true;
            }
        };
        queue::unless_gone(update_same(&runs, &run, cancel).await)?;
    }
    Ok(())
}
