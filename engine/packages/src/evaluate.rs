//! Runs one built-in function on a `ResourceList`, as a function's program would.
//!
//! Start at [`evaluate`]. It serves Porch's `FunctionEvaluator`.

use serde_json::Value;

use crate::{
    builtins::{self, Failure},
    files::Limits,
    resource_list::{self, AnswerError},
    resources::Resource,
    results::FunctionResult,
    run,
};

/// The outcome of a function that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluated {
    /// A `ResourceList` as YAML: the objects, the configuration and the results.
    pub resource_list: String,
}

/// Why a function has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum EvaluateError {
    /// No built-in function has this name.
    #[error("function {0:?} is not built in")]
    Unknown(String),
    /// The list cannot be read.
    #[error("the ResourceList of function {0:?} cannot be read")]
    List(String, #[source] AnswerError),
    /// The function failed.
    #[error("function {image:?} failed: {message}")]
    Failed {
        /// The function.
        image: String,
        /// Its findings, or else its words.
        message: String,
    },
}

/// Runs a function, by its image, on a list as YAML or JSON. Comments of objects stay.
///
/// # Errors
///
/// [`EvaluateError`].
pub fn evaluate(image: &str, list: &[u8], limits: &Limits) -> Result<Evaluated, EvaluateError> {
    let full = crate::kptfile::full_image(image);
    let builtin = builtins::find(&full).ok_or_else(|| EvaluateError::Unknown(image.to_owned()))?;
    let input = resource_list::Input::read(list).map_err(|err| EvaluateError::List(image.to_owned(), err))?;
    let (mut items, config) = (input.items, input.config);
    let results = builtin(&mut items, config.as_ref(), limits).map_err(|Failure { message, findings }| {
        let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
        let message = if findings.is_empty() { message } else { findings.join("; ") };
        EvaluateError::Failed { image: image.to_owned(), message }
    })?;
    let texts: Vec<String> = items.iter().map(Resource::text).collect();
    let values: Vec<Value> = items.into_iter().map(|item| item.value).collect();
    Ok(Evaluated { resource_list: resource_list::written(&values, &texts, config.as_ref(), &results) })
}

/// The message about a function that ended with an exit code other than 0: its findings and the end of its standard error.
pub fn failure_message(image: &str, answer: &[u8], stderr: &str, exit_code: i32) -> String {
    let results = resource_list::findings(answer);
    let result = FunctionResult { stderr: stderr.to_owned(), exit_code, results, ..FunctionResult::default() };
    format!("function {image:?} failed: {}", run::failed(&result))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    const LIST: &str = "\
apiVersion: config.kubernetes.io/v1
kind: ResourceList
functionConfig:
  apiVersion: v1
  kind: ConfigMap
  metadata:
    name: function-input
  data:
    namespace: prod
items:
- apiVersion: v1
  kind: ConfigMap
  metadata:
    name: a # a comment
    annotations:
      internal.config.kubernetes.io/path: a.yaml
  data:
    x: y
";

    fn run(image: &str, list: &str) -> Result<Value, EvaluateError> {
        let evaluated = evaluate(image, list.as_bytes(), &Limits::default())?;
        Ok(text::read_list(&evaluated.resource_list).unwrap().value)
    }

    #[test]
    fn function_changes_items_and_reports_results() {
        let evaluated = evaluate("set-namespace:v0.4.1", LIST.as_bytes(), &Limits::default()).unwrap().resource_list;
        assert!(evaluated.contains("name: a # a comment\n"), "{evaluated}");
        let list = text::read_list(&evaluated).unwrap().value;
        assert_eq!(list["items"][0]["metadata"]["namespace"], "prod");
        let path = &list["items"][0]["metadata"]["annotations"]["internal.config.kubernetes.io/path"];
        assert_eq!(path, "a.yaml");
        assert_eq!(list["functionConfig"]["data"]["namespace"], "prod");
        assert!(list["results"].is_array(), "{list}");
        let image = "ghcr.io/kptdev/krm-functions-catalog/set-namespace:v0.4.1";
        assert_eq!(run(image, LIST).unwrap(), list);
    }

    #[test]
    fn unknown_and_failed_functions_differ() {
        assert!(
            matches!(run("example.com/own:v1", LIST), Err(EvaluateError::Unknown(image)) if image == "example.com/own:v1")
        );
        let without = LIST.replace("    namespace: prod\n", "");
        let failed = run("set-namespace:v0.4.1", &without).unwrap_err();
        assert!(matches!(failed, EvaluateError::Failed { .. }), "{failed}");
        for list in ["", "a: 1", "apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nitems:\n- a: 1\n"] {
            let failed = run("set-namespace:v0.4.1", list).unwrap_err();
            assert!(matches!(failed, EvaluateError::List(..)), "{list}: {failed}");
        }
    }

    #[test]
    fn failure_has_findings_and_standard_error() {
        let answer =
            format!("{LIST}results:\n- {{message: no team, severity: error}}\n- {{message: old, severity: warning}}\n");
        assert_eq!(
            failure_message("example.com/check", answer.as_bytes(), "checked\n", 1),
            "function \"example.com/check\" failed: exit code 1; [error]: no team; [warning]: old; stderr: checked"
        );
        let crashed = failure_message("example.com/check", b"\xff not a list", "", 2);
        assert_eq!(crashed, "function \"example.com/check\" failed: exit code 2");
    }
}
