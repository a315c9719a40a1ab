//! The Spec of a run: rendered once, and then kept.

use bytes::Bytes;
use stoa_failpoint::reached;
use stoa_types::{delivery::Operation, reason};

use super::{plan, resolve};
use crate::runs::{Halt, documents, execution::Execution, runner, status, target::Target};

/// The Spec, which is rendered once and then kept.
pub(super) async fn spec(execution: &mut Execution, target: &Target, commit: &str) -> Result<(Bytes, String), Halt> {
    if let Some(digest) = status(&execution.run).source.and_then(|s| s.spec_digest) {
        let spec = documents::get(&*target.documents, &target.scope(), &digest).await?;
        return Ok((spec, digest));
    }
    let spec = match (execution.run.spec.operation, execution.run.spec.plan.clone()) {
        (Operation::Destroy, _) => Bytes::from_static(b"{\"resources\":[]}"),
        (Operation::Rollback, _) => {
            let release = resolve::rollback_release(execution, target).await?;
            documents::get(&*target.documents, &target.scope(), &release.spec.spec_digest).await?
        }
        (_, Some(plan)) => {
            let (source, _) = plan::previewed(execution, target, &plan).await?;
            let digest = source.spec_digest.unwrap_or_default();
            documents::get(&*target.documents, &target.scope(), &digest).await?
        }
        (_, None) => generate(execution, target, commit).await?,
    };
    let digest = documents::put(&*target.documents, &target.scope(), spec.clone()).await?;
    reached("spec-kept");
    execution.update(|status| status.source.get_or_insert_default().spec_digest = Some(digest.clone())).await?;
    Ok((spec, digest))
}

async fn generate(execution: &mut Execution, target: &Target, commit: &str) -> Result<Bytes, Halt> {
    let request = target.generate_request(&execution.services, commit, &execution.run.spec.parameters).await?;
    let mut runner = execution.services.runner.client();
    let response = execution.unless_canceled(runner.generate(request)).await?;
    let response = response.map_err(|e| runner::halt(&e, reason::GENERATE_FAILED))?.into_inner();
    for warning in &response.warnings {
        execution.journal.note("Generating", format!("warning: {warning}"));
    }
    execution
        .journal
        .note("Generating", format!("the {} generator made the Spec {}", response.generator, response.spec_digest));
    Ok(response.spec)
}
