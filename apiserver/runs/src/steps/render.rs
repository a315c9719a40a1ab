//! The Spec of a run: rendered once, and then kept, with what is sensitive of it sealed.

use bytes::Bytes;
use stoa_controller::{blocking::run_blocking, events::Kind};
use stoa_engine::hook;
use stoa_failpoint::reached;
use stoa_kinds::{pull_request, run_status::status, text};
use stoa_types::{
    delivery::{Operation, UsedGenerator},
    reason,
};

use super::{plan, resolve};
use crate::{
    StepError, documents,
    execution::Execution,
    runner,
    status::StatusUpdate,
    target::{Target, requester},
    values::StackValues,
    working_copy,
};

/// So many warnings are in the Event about them.
const TOLD: usize = 5;

/// The Spec in clear, which is rendered once and then kept, the digest of what is kept, and what is to be recorded.
pub(super) async fn spec(
    execution: &mut Execution,
    target: &Target,
    commit: &str,
) -> Result<(Bytes, String, Option<StatusUpdate>), StepError> {
    let sealing = execution.services.encryption.clone();
    if let Some(digest) = status(&execution.run).source.and_then(|s| s.spec_digest) {
        let spec = documents::get_spec(target, &sealing, &digest).await?;
        return Ok((spec, digest, None));
    }
    let (mut generator, mut values) = (None, None);
    let (spec, kept) = match (execution.run.spec.planned(), execution.run.spec.plan.clone()) {
        (_, Some(plan)) => {
            // The plan names it by this digest.
            let previewed = plan::previewed(execution, target, &plan).await?.plan;
            let digest = previewed.spec_digest.unwrap_or_default();
            (generator, values) = (previewed.generator, previewed.values);
            (documents::get_spec(target, &sealing, &digest).await?, Some(digest))
        }
        (Operation::Destroy, None) => match deletion_hooks(execution, target).await? {
            Some(hooks) => (hooks, None),
            None => {
                let spec = Bytes::from_static(b"{\"resources\":[]}");
                let digest = documents::put_owed(&*target.documents, &target.scope(), spec.clone()).await?;
                (spec, Some(digest))
            }
        },
        (Operation::Rollback, None) => {
            let release = resolve::release(execution, target).await?;
            generator = release.spec.generator;
            // Sealed anew below: an earlier version may have kept it in clear, and its key may be about to go.
            (documents::get_spec(target, &sealing, &release.spec.spec_digest).await?, None)
        }
        (Operation::Refresh, None) => {
            // The release is known by this digest.
            let release = resolve::release(execution, target).await?.spec;
            generator = release.generator;
            let digest = release.spec_digest;
            (documents::get_spec(target, &sealing, &digest).await?, Some(digest))
        }
        (Operation::Preview | Operation::Apply | Operation::Import, None) => {
            let drawn = drawn(execution, target).await?;
            if let Some(sentence) = drawn.sentence() {
                execution.journal.note("Generating", sentence);
            }
            values = drawn.recorded();
            let (spec, used) = generate(execution, target, commit, &drawn).await?;
            let digest = documents::put_spec(target, &sealing, &spec).await?;
            let of_tool = if used.version.is_empty() { String::new() } else { format!(" ({})", used.version) };
            let name = &used.name;
            execution.journal.note("Generating", format!("the {name}{of_tool} generator made the Spec {digest}"));
            generator = Some(used);
            (spec, Some(digest))
        }
    };
    let digest = match kept {
        Some(digest) => digest,
        None => documents::put_spec(target, &sealing, &spec).await?,
    };
    reached("spec-kept");
    Ok((spec, digest.clone(), Some(StatusUpdate::Rendered { digest, generator, values })))
}

/// The Spec of a Destroy that has hooks: those of deletions of the last release. A Destroy needs no document that is lost.
async fn deletion_hooks(execution: &mut Execution, target: &Target) -> Result<Option<Bytes>, StepError> {
    if execution.run.spec.skip_hooks {
        return Ok(None);
    }
    let Some(release) = resolve::last_release(execution, target).await? else { return Ok(None) };
    let kept = documents::get_spec(target, &execution.services.encryption, &release.spec.spec_digest).await;
    let hooks = match kept {
        Ok(spec) => run_blocking(spec.len(), move || of_deletion(&spec)).await,
        Err(StepError::Failed { .. }) => None,
        Err(halt) => return Err(halt),
    };
    if hooks.is_none() {
        let warning = "warning: the Spec of the last release cannot be read, so that no hooks of deletions run";
        execution.journal.note("Generating", warning);
    }
    Ok(hooks.flatten())
}

/// The hooks of deletions of a Spec, if there are any; `None` where the Spec cannot be understood.
fn of_deletion(spec: &Bytes) -> Option<Option<Bytes>> {
    let hooks = hook::of_deletion(serde_json::from_slice(spec).ok()?);
    let bytes = || Bytes::from(serde_json::to_vec(&hooks).expect("a Spec serializes"));
    Some((!hooks.resources.is_empty()).then(bytes))
}

/// The values for the generator, which the requester may use. A pull request has none of a Secret.
async fn drawn(execution: &Execution, target: &Target) -> Result<StackValues, StepError> {
    let Execution { services, run, .. } = execution;
    let context = requester(services, run);
    let values = StackValues::of(services, target, &run.spec.parameters, context.as_ref()).await?;
    if !pull_request::is_plan(run) {
        return Ok(values);
    }
    working_copy::values(services, target, values)
}

/// What the function-runner renders, and the generator that it took.
async fn generate(
    execution: &mut Execution,
    target: &Target,
    commit: &str,
    values: &StackValues,
) -> Result<(Bytes, UsedGenerator), StepError> {
    let request = target.generate_request(&execution.services, commit, values).await?;
    let runner = execution.runners();
    let response = execution.unless_canceled(runner.generate(request)).await?;
    let response = response.map_err(|e| execution.refused(&e, reason::GENERATE_FAILED))?;
    execution.runner = runner::answerer(&response);
    let response = response.into_inner();
    for warning in &response.warnings {
        execution.journal.note("Generating", format!("warning: {warning}"));
    }
    if let Some(message) = told(&response.warnings) {
        execution.services.recorder.record(&execution.run, Kind::Warning, reason::GENERATED_WITH_WARNINGS, message);
    }
    Ok((response.spec, UsedGenerator { name: response.generator, version: response.generator_version }))
}

pub(super) fn told(warnings: &[String]) -> Option<String> {
    let see = if warnings.len() > TOLD { ", see runs/log" } else { "" };
    (!warnings.is_empty()).then(|| text::first(warnings, TOLD, "; ") + see)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destroy_has_hooks_of_deletions_alone() {
        let job = |event: &str| {
            let object = serde_json::json!({"apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"name": event, "annotations": {"helm.sh/hook": event}}});
            serde_json::json!({"id": format!("batch/v1:Job:{event}"), "type": "Kubernetes", "attributes": object})
        };
        let found = |events: &[&str]| {
            let spec = serde_json::json!({"resources": events.iter().map(|event| job(event)).collect::<Vec<_>>()});
            of_deletion(&spec.to_string().into())
        };
        let hooks: stoa_engine::Spec =
            serde_json::from_slice(&found(&["pre-install", "post-delete"]).unwrap().unwrap()).unwrap();
        assert_eq!(hooks.resources.iter().map(|it| it.id.0.as_str()).collect::<Vec<_>>(), ["batch/v1:Job:post-delete"]);
        assert_eq!(found(&["pre-install"]), Some(None));
        assert_eq!(of_deletion(&Bytes::from_static(b"{")), None);
    }

    #[test]
    fn event_names_the_first_warnings() {
        let warnings: Vec<String> = (0..7).map(|number| number.to_string()).collect();
        assert_eq!(told(&[]), None);
        assert_eq!(told(&warnings[..5]).unwrap(), "0; 1; 2; 3; 4");
        assert_eq!(told(&warnings).unwrap(), "0; 1; 2; 3; 4; and 2 more, see runs/log");
    }
}
