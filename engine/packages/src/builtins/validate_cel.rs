//! `validate-cel`: validates objects by expressions of CEL, as a ValidatingAdmissionPolicy does.
//!
//! The configuration is a `CELValidation` with `validations`, or a ConfigMap with one `expression` and `message`.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use stoa_cel::{Answers, Batch, Declarations, Evaluated, Inputs, Interrupted, Program};

use super::{
    Failure,
    config::{Config, config, field, is_local},
    validation::{about, outcome},
};
use crate::{files::Limits, resources::Resource, results::Finding};

/// The names of expressions.
const DECLARED: Declarations = Declarations { variables: &["object"], constructs: false };

/// The steps of one expression on one object; some ten milliseconds.
const EACH: u64 = 200_000;
/// The steps of all expressions on all objects.
const ALL: u64 = 200_000_000;
/// The most expressions.
const MOST: usize = 200;

/// One rule.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Validation {
    /// True for a valid object.
    expression: String,
    /// The message about an object that is not valid; by default the expression.
    #[serde(default)]
    message: String,
    /// The objects; all by default.
    #[serde(default, rename = "match")]
    selector: Match,
}

/// The objects of a rule. An empty field matches all.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Match {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
}

impl Match {
    fn matches(&self, item: &Resource) -> bool {
        let pairs = [
            (&self.api_version, item.api_version()),
            (&self.kind, item.kind()),
            (&self.name, item.name()),
            (&self.namespace, item.namespace()),
        ];
        pairs.into_iter().all(|(wanted, own)| wanted.is_empty() || wanted == own)
    }
}

/// The object that an expression sees.
#[derive(Debug)]
struct Seen(Value);

impl Inputs for Seen {
    fn variable(&self, name: &str) -> Option<&Value> {
        (name == "object").then_some(&self.0)
    }
}

fn validations(source: Option<&Resource>) -> Result<Vec<Validation>, Failure> {
    let found = match config(source, "CELValidation")? {
        Config::Object(object) => field::<Vec<Validation>>(object, "validations")?,
        Config::Data(mut data) => {
            let mut take = |key: &str| data.remove(key).unwrap_or_default();
            vec![Validation { expression: take("expression"), message: take("message"), selector: Match::default() }]
        }
    };
    if found.is_empty() || found.iter().any(|validation| validation.expression.is_empty()) {
        return Err(Failure::new(
            "functionConfig has no expression; set `validations`, or `expression` of a ConfigMap",
        ));
    }
    if found.len() > MOST {
        return Err(Failure::new(format!("functionConfig has more than {MOST} validations; split it")));
    }
    Ok(found)
}

/// Runs the function.
pub(super) fn run(items: &mut [Resource], source: Option<&Resource>, _: &Limits) -> Result<Vec<Finding>, Failure> {
    let (mut findings, mut left) = (Vec::new(), ALL);
    let seen: Vec<(&Resource, Arc<Seen>)> = items
        .iter()
        .filter(|item| !is_local(item) && !item.is_kptfile())
        .map(|item| (item, Arc::new(Seen(item.value.clone()))))
        .collect();
    for validation in validations(source)? {
        let program = Program::compile(&validation.expression, &DECLARED);
        if let Some(error) = program.compile_error() {
            return Err(Failure::new(format!("expression {:?}: {error}", validation.expression)));
        }
        let batch = Batch { programs: Arc::new(vec![Some(program)]), ..Batch::default() };
        for (item, object) in seen.iter().filter(|(item, _)| validation.selector.matches(item)) {
            let budget = left.min(EACH);
            let outcomes = stoa_cel::evaluate_here(&batch, object, &Answers::new(), budget);
            left -= budget - outcomes.as_ref().map_or(0, |outcomes| outcomes.budget.min(budget));
            let result = match outcomes {
                Ok(outcomes) => outcomes.results.into_iter().next().flatten(),
                Err(Interrupted::OutOfBudget) if left == 0 => {
                    return Err(Failure::new(
                        "the validations take too long; make them simpler or the package smaller",
                    ));
                }
                Err(Interrupted::OutOfBudget) => Some(Err("the expression takes too long".to_owned())),
                Err(Interrupted::TooDeep) => Some(Err("the expression is nested too deeply".to_owned())),
                Err(Interrupted::Unanswered(_) | Interrupted::Unexpected) => {
                    Some(Err("the expression cannot be evaluated".to_owned()))
                }
            };
            match result {
                Some(Ok(Evaluated::Bool(true))) => {}
                Some(Ok(Evaluated::Bool(false))) => {
                    let failed = || format!("failed expression: {}", validation.expression);
                    let message = Some(validation.message.clone()).filter(|message| !message.is_empty());
                    findings.push(about(item, "", message.unwrap_or_else(failed)));
                }
                Some(Err(error)) => findings.push(about(item, "", error)),
                Some(Ok(_)) | None => {
                    let message = format!("expression {:?} must be true or false", validation.expression);
                    findings.push(about(item, "", message));
                }
            }
        }
    }
    outcome(findings)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn failures(config: Value) -> Result<(), (String, Vec<String>)> {
        let config = Resource::new("", "", config, None);
        let object = |name: &str, replicas: u64| {
            let object = json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {"replicas": replicas},
            });
            Resource::new("", "a.yaml", object, None)
        };
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}});
        let mut items = [object("a", 2), object("b", 9), Resource::new("", "s.yaml", service, None)];
        let texts = |findings: Vec<Finding>| findings.iter().map(ToString::to_string).collect();
        let done = run(&mut items, Some(&config), &Limits::default());
        done.map(drop).map_err(|failure| (failure.message, texts(failure.findings)))
    }

    fn of(validations: &Value) -> Value {
        json!({
            "apiVersion": "fn.kpt.dev/v1alpha1", "kind": "CELValidation", "metadata": {"name": "v"},
            "validations": validations,
        })
    }

    #[test]
    fn object_that_fails_an_expression_is_named() {
        let rule = json!({
            "expression": "object.spec.replicas <= 5",
            "message": "at most 5 replicas",
            "match": {"kind": "Deployment"},
        });
        let (message, findings) = failures(of(&json!([rule]))).unwrap_err();
        assert_eq!(message, "1 errors");
        assert_eq!(findings, ["[error] apps/v1/Deployment/b: at most 5 replicas"]);
        assert_eq!(failures(of(&json!([{"expression": "has(object.metadata.name)"}]))), Ok(()));
    }

    #[test]
    fn config_map_has_one_expression() {
        let config = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "v"},
            "data": {"expression": "object.kind != 'Service'"},
        });
        let (_, findings) = failures(config).unwrap_err();
        assert_eq!(findings, ["[error] v1/Service/s: failed expression: object.kind != 'Service'"]);
    }

    #[test]
    fn wrong_expressions_say_why() {
        for (validations, part) in [
            (json!([{"expression": "object.("}]), "compilation failed"),
            (json!([{"expression": "request.user"}]), "compilation failed"),
            (json!([]), "no expression"),
            (json!([{"expression": ""}]), "no expression"),
            (json!([{"expression": "true", "more": 1}]), "unknown field"),
        ] {
            let (message, _) = failures(of(&validations)).unwrap_err();
            assert!(message.contains(part), "{validations}: {message}");
        }
        // A Service has no spec.
        let (_, findings) = failures(of(&json!([{"expression": "object.spec.replicas < 10"}]))).unwrap_err();
        assert!(findings[0].contains("v1/Service/s") && findings[0].contains("resulted in error"), "{findings:?}");
        let (_, findings) = failures(of(&json!([{"expression": "object.metadata.name"}]))).unwrap_err();
        assert!(findings[0].contains("must be true or false"), "{findings:?}");
    }
}
