//! The steps of a workflow that are in a file: read once, at the commit that its version was then.

use stoa_control_repo::{Complaint, complaints};
use stoa_machinery::RequestContext;
use stoa_proto::ReadFileRequest;
use stoa_types::{
    Workflow,
    delivery::{ResolvedTemplate, WorkflowStatus, WorkflowTemplate},
    reason,
};

use super::versions;
use crate::{
    controllers::asks::TurnsOf,
    kinds::workflow::{admissible, effective, fill_workspaces, require_template, template},
    runs::{Halt, Services, runner, target::Target},
};

/// Reads the file, for whoever asked for the workflow and as far as they may, and checks its steps as if they had been
/// sent.
///
/// # Errors
///
/// Failed with the file, line and field of what is wrong, or with what they may not do.
pub(super) async fn read(
    services: &Services,
    turns: &TurnsOf,
    context: &RequestContext,
    workflow: &Workflow,
    of: &WorkflowTemplate,
) -> Result<ResolvedTemplate, Halt> {
    require_template(context, workflow, of).await?;
    let namespace = workflow.metadata.namespace.clone().unwrap_or_default();
    let version = workflow.spec.version.clone().unwrap_or_default();
    let (_, request) = Target::version_of(services, &namespace, &of.project, &version).await?;
    let source = request.source.clone();
    let commit = versions::resolve(services, turns, request).await?;
    let request =
        ReadFileRequest { source, commit: commit.clone(), path: of.path.clone(), max_bytes: template::MOST_BYTES };
    let response = turns.ask_repository(services.runner.read_file(request)).await?;
    let file = response.map_err(|status| runner::halt(&status, reason::INVALID_TEMPLATE))?.into_inner();
    let wrong = |Complaint(why)| Halt::failed(reason::INVALID_TEMPLATE, format!("{}: {why}", file.path));
    let (stack, steps) = template::read(&workflow.spec, &of.parameters, &file.text).map_err(wrong)?;
    let mut resolved = ResolvedTemplate { commit, path: file.path.clone(), stack, steps };
    let mut whole = workflow.clone();
    whole.status = Some(WorkflowStatus { template: Some(resolved.clone()), ..whole.status.unwrap_or_default() });
    whole.spec = effective(&whole);
    fill_workspaces(&services.lookup, &namespace, &mut whole.spec);
    let errors = admissible(&services.lookup, context, &whole).await?;
    if !errors.is_empty() {
        let fields: Vec<(&str, &str)> = errors.iter().map(|e| (e.field.as_str(), e.message.as_str())).collect();
        return Err(wrong(complaints(file.text.as_bytes(), &fields)));
    }
    resolved.steps = whole.spec.steps;
    Ok(resolved)
}
