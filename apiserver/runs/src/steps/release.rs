//! What a successful run leaves behind: one Release, and the Resources that it names.
//!
//! Each step may be repeated: the number of the release is decided in the state head before the
//! Release is created, and the head says which run it was for.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use stoa_engine::document;
use stoa_failpoint::reached;
use stoa_kinds::{
    destroyed::{self, Destroyed},
    release::name,
    run_status::status,
    trigger::CAUSED_BY,
};
use stoa_machinery::registry::ListOptions;
use stoa_types::{
    Release,
    delivery::{Operation, ReleaseSpec, Requester},
    reason,
};

use crate::{
    StepError, documents,
    execution::Execution,
    resources::{self, Made},
    state::{self, Head, State},
    target::Target,
};

/// Records a successful run; the number of its release, or nothing when it changed nothing.
pub(super) async fn release(
    execution: &Execution,
    target: &Target,
    state: &mut State,
    spec_digest: &str,
) -> Result<Option<i64>, StepError> {
    let run_uid = execution.run.uid().unwrap_or_default();
    let log = execution.services.log.clone();
    let head = state.head().clone();
    if !head.dirty && head.last_release_run != run_uid {
        // What is only said of a resource, such as what it depends on, may be another.
        resources::record(execution, target, state, None).await?;
        return Ok(None);
    }
    // An import that found nothing does not speak for what an earlier run changed and did not see to its end.
    let is_import = execution.run.spec.operation == Operation::Import;
    if is_import && head.last_release_run != run_uid && state.changed_by(&run_uid) == 0 {
        return Ok(None);
    }
    let state_digest = documents::put_owed(&*target.documents, &target.scope(), state.document()).await?;
    reached("state-kept");
    let mut number = if head.last_release_run == run_uid {
        head.last_release
    } else {
        next(execution, target, head.last_release).await?
    };
    // What was only recorded nobody has seen healthy yet.
    let verified = if is_import { Some(head.verified.unwrap_or_default()) } else { state.newest() };
    loop {
        let released = Head {
            run: run_uid.clone(),
            dirty: false,
            last_release: number,
            last_release_run: run_uid.clone(),
            verified,
            runner: None,
        };
        state.set_head(&*log, released).await?;
        reached("release-numbered");
        if create_release(execution, target, number, spec_digest, &state_digest).await? {
            break;
        }
        number += 1;
    }
    reached("release-created");
    let after = before(execution, target, number).await?;
    resources::record(execution, target, state, Some(Made { number, after })).await?;
    reached("resources-written");
    if execution.run.spec.operation == Operation::Destroy {
        record_destroyed(execution, target, state, number).await?;
    }
    state.forget_removed(&*log, &run_uid).await?;
    reached("records-dropped");
    Ok(Some(number))
}

/// Records what a Destroy removed, where it outlives the stack: what the last release had, and what was removed since.
async fn record_destroyed(execution: &Execution, target: &Target, state: &State, number: i64) -> Result<(), StepError> {
    let mut ids = released(execution, target, number - 1).await?;
    ids.extend(state.removed().map(|id| id.0.clone()));
    let Requester { username, mut extra, .. } = status(&execution.run).requester;
    let mut destroyed = Destroyed {
        stack: target.stack.name_any(),
        stack_uid: target.stack.uid().unwrap_or_default(),
        project: target.project.name_any(),
        workspace: target.workspace.name_any(),
        release: number,
        run: execution.run.name_any(),
        run_uid: execution.run.uid().unwrap_or_default(),
        requested_by: username,
        caused_by: extra.remove(CAUSED_BY).unwrap_or_default(),
        time: execution.services.now(),
        resources: Vec::new(),
        more: None,
    };
    destroyed.set_resources(ids);
    let log = &*execution.services.log;
    destroyed::record(log, &target.namespace(), &destroyed, state.fence()).await.map_err(|error| state::halt(&error))
}

/// The ids of the resources of a release of the same stack; none where it or its document does not exist any more.
async fn released(execution: &Execution, target: &Target, number: i64) -> Result<BTreeSet<String>, StepError> {
    let name = name(&target.stack.name_any(), &target.workspace.name_any(), number);
    let release = execution.services.lookup.api::<Release>()?.get_opt(&target.namespace(), &name).await?;
    let Some(release) = release.filter(|release| Some(&release.spec.stack_uid) == target.stack.uid().as_ref()) else {
        return Ok(BTreeSet::new());
    };
    let document = match documents::get(&*target.documents, &target.scope(), &release.spec.state_digest).await {
        Ok(document) => document,
        // The end of a Destroy does not depend on a document that is lost.
        Err(StepError::Failed { .. }) => return Ok(BTreeSet::new()),
        Err(halt) => return Err(halt),
    };
    let state: Option<stoa_engine::State> = document::decode(&document).ok();
    let resources = state.map(|state| state.resources).unwrap_or_default();
    Ok(resources.into_iter().map(|resource| resource.id.0).collect())
}

/// The time of the release before, to the second; the epoch before the first, nothing if it is deleted.
async fn before(execution: &Execution, target: &Target, number: i64) -> Result<Option<Timestamp>, StepError> {
    if number <= 1 {
        return Ok(Some(Timestamp::UNIX_EPOCH));
    }
    let name = name(&target.stack.name_any(), &target.workspace.name_any(), number - 1);
    let release = execution.services.lookup.api::<Release>()?.get_opt(&target.namespace(), &name).await?;
    let made = release.and_then(|release| release.metadata.creation_timestamp);
    Ok(made.and_then(|Time(at)| at.checked_add(SignedDuration::from_secs(1)).ok()))
}

/// The number of the next release: after the last one, and after those of an earlier Stack of the name.
async fn next(execution: &Execution, target: &Target, last: i64) -> Result<i64, StepError> {
    let (stack, workspace) = (target.stack.name_any(), target.workspace.name_any());
    let releases = execution.services.lookup.api::<Release>()?;
    // The first one goes past all of them, also where somebody deleted some.
    if last > 0 && releases.get_opt(&target.namespace(), &name(&stack, &workspace, last + 1)).await?.is_none() {
        return Ok(last + 1);
    }
    let selector = Some(format!("spec.stack={stack},spec.workspace={workspace}"));
    let options = ListOptions { field_selector: selector, ..ListOptions::default() };
    let left = releases.list_with(Some(&target.namespace()), &options).await?;
    Ok(left.iter().map(|release| release.spec.revision).fold(last, i64::max) + 1)
}

/// Creates the release of this number, unless this run did before; false where its name is that of another deployment's:
/// `web` in `eu.prod` and `web.eu` in `prod` have the same, where workspaces are from before their names had no dots.
async fn create_release(
    execution: &Execution,
    target: &Target,
    number: i64,
    spec_digest: &str,
    state_digest: &str,
) -> Result<bool, StepError> {
    let (stack, workspace) = (target.stack.name_any(), target.workspace.name_any());
    let run = &execution.run;
    let status = status(run);
    let source = status.source.unwrap_or_default();
    let operation = run.spec.operation;
    let mut release = Release::new(
        &name(&stack, &workspace, number),
        ReleaseSpec {
            stack,
            stack_uid: target.stack.uid().unwrap_or_default(),
            workspace,
            revision: number,
            run: run.name_any(),
            commit: source.commit,
            commit_url: source.commit_url,
            generator: source.generator,
            plan_digest: status.plan.map(|p| p.digest).unwrap_or_default(),
            spec_digest: spec_digest.to_owned(),
            state_digest: state_digest.to_owned(),
            rollback_of: run.spec.release.filter(|_| operation == Operation::Rollback),
            tombstone: operation == Operation::Destroy,
            imported: operation == Operation::Import,
        },
    );
    release.metadata.namespace = Some(target.namespace());
    release.metadata.labels = Some(target.labels());
    let releases = execution.services.lookup.api::<Release>()?;
    match releases.create(&release).await {
        Ok(_) => Ok(true),
        Err(error) if error.is("AlreadyExists") => {
            let there = releases.get(&target.namespace(), &release.name_any()).await?;
            if there.spec.stack != release.spec.stack || there.spec.workspace != release.spec.workspace {
                return Ok(false);
            }
            // An earlier try of this run made it.
            if there.spec.run == release.spec.run && there.spec.stack_uid == release.spec.stack_uid {
                return Ok(true);
            }
            Err(StepError::failed(
                reason::CONFLICTING_RUN,
                format!("release {} exists and belongs to another run; delete it", release.name_any()),
            ))
        }
        Err(error) => Err(error.into()),
    }
}
