//! Another generator, or another version of it, than that of the deployed release: the plan warns of it before it changes anything.

use bytes::Bytes;
use kube::ResourceExt as _;
use serde_json::Value;
use stoa_controller::blocking::run_blocking;
use stoa_engine::digest::canonical_json;
use stoa_kinds::{release, run_status::status};
use stoa_proto::PlanResponse;
use stoa_types::{
    Release,
    delivery::{Operation, UsedGenerator},
    reason,
};

use crate::{StepError, execution::Execution, state::State, target::Target};

/// Adds the warning to a plan: to its document, and to the warnings that the Run reports. The digest of a plan is without warnings.
///
/// # Errors
///
/// Failed when the plan is no JSON; Retry when the release cannot be read.
pub(super) async fn warn(
    execution: &Execution,
    target: &Target,
    state: &State,
    response: &mut PlanResponse,
) -> Result<(), StepError> {
    let Some(sentence) = changed(execution, target, state).await? else { return Ok(()) };
    let (plan, warning) = (response.plan.clone(), sentence.clone());
    let with_warning = run_blocking(plan.len(), move || prepended(&plan, warning)).await;
    response.plan = with_warning.map_err(|error| {
        StepError::failed(reason::PLAN_FAILED, format!("the function-runner's plan is no JSON: {error}"))
    })?;
    response.warnings.insert(0, sentence);
    Ok(())
}

/// The plan with one more warning. Other fields stay as the function-runner wrote them, known here or not.
fn prepended(plan: &Bytes, warning: String) -> serde_json::Result<Bytes> {
    let mut plan: Value = serde_json::from_slice(plan)?;
    let mut warnings = vec![Value::String(warning)];
    if let Some(Value::Array(others)) = plan.get_mut("warnings").map(Value::take) {
        warnings.extend(others);
    }
    if let Some(fields) = plan.as_object_mut() {
        fields.insert("warnings".to_owned(), warnings.into());
    }
    Ok(canonical_json(&plan).into())
}

/// The sentence about the generator, if the deployed release had another one.
async fn changed(execution: &Execution, target: &Target, state: &State) -> Result<Option<String>, StepError> {
    let now = status(&execution.run).source.and_then(|source| source.generator);
    let number = state.head().last_release;
    let Some(now) = now.filter(|_| execution.run.spec.planned() == Operation::Apply && number > 0) else {
        return Ok(None);
    };
    let name = release::name(&target.stack.name_any(), &target.workspace.name_any(), number);
    let found = execution.services.lookup.api::<Release>()?.get_opt(&target.namespace(), &name).await?;
    let own = found.filter(|release| Some(&release.spec.stack_uid) == target.stack.metadata.uid.as_ref());
    Ok(own.and_then(|release| release.spec.generator).and_then(|then| difference(&then, &now)))
}

/// `generator Helm: helm v4.1.0 → v4.2.0`, or `generator Manifests → Kustomize (kustomize v0.20.1)`.
fn difference(then: &UsedGenerator, now: &UsedGenerator) -> Option<String> {
    if then == now {
        return None;
    }
    let UsedGenerator { name, version } = now;
    if then.name != *name {
        let whole = |of: &UsedGenerator| match of.version.as_str() {
            "" => of.name.clone(),
            version => format!("{} ({version})", of.name),
        };
        return Some(format!("generator {} → {}", whole(then), whole(now)));
    }
    // The tool is named once.
    let tool = |version: &str| version.rsplit_once(' ').map(|(tool, _)| format!("{tool} "));
    let version = match tool(&then.version) {
        Some(of) => version.strip_prefix(&of).unwrap_or(version),
        None => version,
    };
    Some(format!("generator {name}: {} → {version}", then.version))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generator(name: &str, version: &str) -> UsedGenerator {
        UsedGenerator { name: name.to_owned(), version: version.to_owned() }
    }

    #[test]
    fn difference_names_both_versions() {
        let helm = generator("Helm", "helm v4.1.0");
        assert_eq!(difference(&helm, &helm), None);
        for (now, expected) in [
            (generator("Helm", "helm v4.2.0"), "generator Helm: helm v4.1.0 → v4.2.0"),
            (generator("Helm", "chart 1"), "generator Helm: helm v4.1.0 → chart 1"),
            (generator("Manifests", ""), "generator Helm (helm v4.1.0) → Manifests"),
        ] {
            assert_eq!(difference(&helm, &now).as_deref(), Some(expected));
        }
    }

    #[test]
    fn warning_changes_no_other_field() {
        let added = |plan: &'static str| prepended(&Bytes::from_static(plan.as_bytes()), "new".to_owned()).unwrap();
        assert_eq!(added(r#"{"later":1,"warnings":["old"]}"#), r#"{"later":1,"warnings":["new","old"]}"#);
        assert_eq!(added(r#"{"actions":[]}"#), r#"{"actions":[],"warnings":["new"]}"#);
    }
}
