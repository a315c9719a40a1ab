//! The steps of a workflow that are in a file: read once, at the commit that its version was then.

use std::collections::BTreeMap;

use stoa_control_repo::{Complaint, complaints, explain};
use stoa_controller::probes::NamespaceSlots;
use stoa_kinds::workflow::{
    admissible, effective, fill_workspaces, require_template,
    template::{self, TemplateError},
};
use stoa_machinery::RequestContext;
use stoa_proto::ReadFileRequest;
use stoa_runs::{Services, StepError, runner, target::Target};
use stoa_types::{
    Workflow,
    delivery::{ResolvedTemplate, Step, WorkflowSpec, WorkflowStatus, WorkflowTemplate},
    reason,
};

use super::versions;

/// Reads the file, for whoever asked for the workflow and as far as they may, and checks its steps as if they had been
/// sent.
///
/// # Errors
///
/// Failed with the file, line and field of what is wrong, or with what they may not do.
pub(super) async fn read(
    services: &Services,
    turns: &NamespaceSlots,
    context: &RequestContext,
    workflow: &Workflow,
    of: &WorkflowTemplate,
) -> Result<ResolvedTemplate, StepError> {
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
    let wrong = |Complaint(why)| StepError::failed(reason::INVALID_TEMPLATE, format!("{}: {why}", file.path));
    let (stack, steps) = parse(&workflow.spec, &of.parameters, &file.text).map_err(wrong)?;
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

fn parse(
    spec: &WorkflowSpec,
    parameters: &BTreeMap<String, String>,
    text: &str,
) -> Result<(String, Vec<Step>), Complaint> {
    template::read(spec, parameters, text).map_err(|error| match error {
        TemplateError::Fields(wrong) => {
            let fields: Vec<(&str, &str)> = wrong.iter().map(|(field, why)| (field.as_str(), why.as_str())).collect();
            complaints(text.as_bytes(), &fields)
        }
        TemplateError::Decode(error) => explain("Workflow", &error, text.as_bytes()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const FILE: &str = "apiVersion: delivery.stoa.dev/v1alpha1
kind: Workflow
spec:
  stack: ${app}-dev
  steps:
  - name: dev
    run: {operation: Apply, parameters: {note: \"$${app} of ${app}\"}}
  - name: prod
    dependsOn: [dev]
    run: {operation: Apply, stack: \"${app}-prod\", workspaces: [\"${region}\"]}
";

    fn read_with(spec: Value, parameters: &[(&str, &str)], text: &str) -> Result<(String, Vec<Step>), String> {
        let parameters = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        parse(&serde_json::from_value(spec).unwrap(), &parameters, text).map_err(|Complaint(why)| why)
    }

    #[test]
    fn parameters_are_texts_and_nothing_more() {
        let (stack, steps) = read_with(json!({}), &[("app", "web"), ("region", "eu], x: [us")], FILE).unwrap();
        assert_eq!(stack, "web-dev");
        let runs: Vec<_> = steps.iter().filter_map(|step| step.run.as_ref()).collect();
        assert_eq!(runs[0].parameters["note"], "${app} of web");
        assert_eq!((runs[1].stack.as_str(), &runs[1].workspaces), ("web-prod", &vec!["eu], x: [us".to_owned()]));
        let (stack, _) = read_with(json!({"stack": "mine"}), &[("app", "web"), ("region", "eu")], FILE).unwrap();
        assert_eq!(stack, "mine");
    }

    #[test]
    fn template_error_reports_line_and_field() {
        let given: &[(&str, &str)] = &[("app", "web"), ("region", "eu")];
        let check = |file: &str, expected: &str| {
            assert_eq!(read_with(json!({}), given, file).unwrap_err(), expected);
        };
        check(&FILE.replace("kind: Workflow", "kind: Run"), "line 2: kind: must be Workflow");
        check(
            &FILE.replace("  stack: ${app}-dev", "  version: main"),
            "line 4: spec.version: may not be in a template",
        );
        check(
            &FILE.replace("${region}", "${zone} ${region}"),
            "line 10: spec.steps[1].run.workspaces[0]: parameter \"zone\" is not given",
        );
        check(&FILE.replace("[dev]", "[stage]"), "line 9: spec.steps[1].dependsOn[0]: Not found: \"stage\"");
        check(
            &FILE.replace("{operation: Apply, parameters", "{operation: Explode, parameters"),
            "line 7: spec.steps[0].run.operation: Unsupported value: \"Explode\": supported values: \"Preview\", \"Apply\", \
             \"Destroy\", \"Rollback\", \"Import\", \"Refresh\"",
        );
        let unused = read_with(json!({}), &[("app", "web"), ("region", "eu"), ("x", "")], FILE).unwrap_err();
        assert_eq!(unused, "line 3: spec: parameter \"x\" is not used");
        for (file, part) in [
            (FILE.replace("operation: Apply, stack", "operatoin: Apply, stack"), "line 10: "),
            ("a: [".to_owned(), "did not find expected"),
            (FILE.replace("  stack: ${app}-dev", "  stack: ${app}\n  stack: b"), "already set in map"),
            (String::new(), "apiVersion: must be"),
        ] {
            let why = read_with(json!({}), given, &file).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn file_may_have_parameters_where_nothing_is_rendered() {
        for operation in ["Destroy", "Refresh"] {
            let file = FILE.replace("{operation: Apply, parameters", &format!("{{operation: {operation}, parameters"));
            let (_, steps) = read_with(json!({}), &[("app", "web"), ("region", "eu")], &file).unwrap();
            assert_eq!(steps.len(), 2, "{operation}");
        }
    }

    #[test]
    fn file_stays_small_whatever_is_put_into_it() {
        let most = "line 3: spec: is more than 262144 bytes after aliases and parameters are expanded";
        let value = "v".repeat(60 << 10);
        let file = |times: usize| FILE.replace("$${app} of ${app}", &"${large}".repeat(times));
        let given = [("app", "web"), ("region", "eu"), ("large", value.as_str())];
        let (_, steps) = read_with(json!({}), &given, &file(4)).unwrap();
        assert_eq!(steps[0].run.as_ref().unwrap().parameters["note"].len(), 4 * value.len());
        // The second would be 480 MB.
        for times in [5, 8_000] {
            assert_eq!(read_with(json!({}), &given, &file(times)).unwrap_err(), most);
        }

        let aliases = |text: &str| {
            let (texts, again) = (vec![format!("{text:?}"); 600].join(", "), vec!["*a"; 80].join(", "));
            format!("apiVersion: v1\nkind: Workflow\nspec:\n  steps:\n  - &a [{texts}]\n  - [{again}]\n")
        };
        for text in ["${large}", "plain"] {
            let why = read_with(json!({}), &given[2..], &aliases(text)).unwrap_err();
            assert_eq!(why, most, "{text}");
        }
        let why = read_with(json!({}), &[], &aliases("${none}")).unwrap_err();
        assert!(why.ends_with("; and 91 more"), "{why}");
    }
}
