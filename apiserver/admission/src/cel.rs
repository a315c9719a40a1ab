//! CEL expressions of admission: their variables, and the authorizer that they may ask.
//!
//! Start at [`evaluate`]. The language is `stoa_cel`'s. Variables are those of
//! `k8s.io/apiserver/pkg/admission/plugin/cel`: `object`, `oldObject`, `request`, `params`, `namespaceObject`,
//! `authorizer` and `variables`.

use std::{sync::Arc, time::Instant};

use k8s_openapi::api::{admissionregistration::v1::MatchCondition, core::v1::Namespace};
use serde_json::Value as Json;
use stoa_cel::{Answer, Answers, Declarations, Interrupted, Outcomes, Question, ServiceAccount};
pub(super) use stoa_cel::{Batch, Evaluated, Program, Variable};
use stoa_meta::{
    authorizer::Decision,
    object::Object,
    request::{RequestContext, UserInfo},
    service_account,
};
use stoa_registry::admission::{Attributes, metrics::ConditionsOf};

use super::webhook::review;

/// How many steps all validations of a policy may take together; upstream's `RuntimeCELCostBudget`.
pub(super) const BUDGET: u64 = 10_000_000;
/// How many steps all match conditions may take together; upstream's `RuntimeCELCostBudgetMatchConditions`.
const CONDITIONS_BUDGET: u64 = 2_500_000;

/// What an expression may use that tells something of a write.
const TELLING: Declarations = Declarations {
    variables: &["object", "oldObject", "request", "params", "namespaceObject", "authorizer", "variables"],
    constructs: false,
};
/// What one may use that says how an object is to be changed.
const MUTATING: Declarations = Declarations { constructs: true, ..TELLING };

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";
const TOO_DEEP: &str = "the evaluation is nested too deeply";
const UNEXPECTED: &str = "unexpected internal error evaluating expression";

pub(super) fn program(source: &str) -> Program {
    Program::compile(source, &TELLING)
}

/// Reads an expression that says how an object is to be changed.
pub(super) fn mutation(source: &str) -> Program {
    Program::compile(source, &MUTATING)
}

pub(super) fn variable(name: &str, source: &str) -> Variable {
    Variable::compile(name, source, &TELLING)
}

#[derive(Debug, Default)]
pub(super) struct Inputs {
    object: Json,
    old_object: Json,
    request: Json,
    params: Arc<Json>,
    namespace: Json,
    /// The resource of the request, for `authorizer.requestResource`.
    resource: Question,
}

impl Inputs {
    pub(super) fn new(
        attributes: &Attributes<'_>,
        object: Option<&Object>,
        params: Arc<Json>,
        namespace: Option<&Namespace>,
    ) -> Self {
        let json = |object: Option<&Object>| object.map_or(Json::Null, |object| Json::Object(object.0.clone()));
        let mut namespace = namespace.map_or(Json::Null, |found| serde_json::to_value(found).unwrap_or_default());
        if let Some(metadata) = namespace.get_mut("metadata").and_then(Json::as_object_mut) {
            metadata.remove("managedFields");
        }
        let definition = attributes.definition;
        Self {
            object: json(object),
            old_object: json(attributes.old_object),
            request: Json::Object(review::request(attributes)),
            params,
            namespace,
            resource: Question {
                group: definition.group.clone(),
                version: definition.version.clone(),
                resource: definition.plural.clone(),
                subresource: attributes.subresource.to_owned(),
                namespace: attributes.namespace.to_owned(),
                name: attributes.name.to_owned(),
                ..Question::default()
            },
        }
    }
}

impl stoa_cel::Inputs for Inputs {
    fn variable(&self, name: &str) -> Option<&Json> {
        match name {
            "object" => Some(&self.object),
            "oldObject" => Some(&self.old_object),
            "request" => Some(&self.request),
            "params" => Some(&*self.params),
            "namespaceObject" => Some(&self.namespace),
            _ => None,
        }
    }

    fn authorizer(&self) -> Option<&Question> {
        Some(&self.resource)
    }
}

/// Evaluates a batch, and asks the authorizer what it has to know, of which each question is paid from the budget.
/// Fails when the budget is spent, or when it goes too deep; the text is for the client.
pub(super) async fn evaluate(
    batch: &Batch,
    inputs: &Arc<Inputs>,
    context: &RequestContext,
    budget: u64,
) -> Result<Outcomes, String> {
    let mut answers = Answers::new();
    loop {
        match stoa_cel::evaluate(batch, inputs, &answers, budget).await {
            Ok(outcomes) => return Ok(outcomes),
            Err(Interrupted::OutOfBudget) => return Err(OUT_OF_BUDGET.to_owned()),
            Err(Interrupted::TooDeep) => return Err(TOO_DEEP.to_owned()),
            Err(Interrupted::Unexpected) => return Err(UNEXPECTED.to_owned()),
            Err(Interrupted::Unanswered(inquiry)) => {
                let account = inquiry.service_account.as_ref().map(user_of);
                let user = account.as_ref().unwrap_or(&context.user);
                let answer = match context.authorizer.authorize(user, &inquiry.question).await {
                    Ok(Decision::Allow(reason)) => Answer::Allowed(reason),
                    Ok(Decision::Deny(reason)) => Answer::Denied(reason),
                    Err(error) => Answer::Errored(error.message().to_owned()),
                };
                answers.insert(*inquiry, answer);
            }
        }
    }
}

fn user_of(account: &ServiceAccount) -> UserInfo {
    let ServiceAccount { namespace, name } = account;
    UserInfo {
        name: service_account::user_name(namespace, name),
        groups: service_account::groups(namespace),
        ..UserInfo::default()
    }
}

/// The `matchConditions` of a webhook or policy: all have to hold.
#[derive(Debug)]
pub(super) struct Conditions {
    batch: Batch,
    ignores_failures: bool,
}

impl Conditions {
    pub(super) fn compile(conditions: &[MatchCondition], ignores_failures: bool) -> Self {
        let programs = conditions.iter().map(|condition| Some(program(&condition.expression))).collect();
        Self { batch: Batch { variables: Arc::default(), programs: Arc::new(programs) }, ignores_failures }
    }

    /// Whether all hold. They see no namespace, as upstream's `matchconditions` shows them none.
    pub(super) async fn hold(
        &self,
        of: ConditionsOf<'_>,
        attributes: &Attributes<'_>,
        object: Option<&Object>,
        params: &Arc<Json>,
    ) -> Result<bool, String> {
        if self.batch.programs.is_empty() {
            return Ok(true);
        }
        let inputs = Arc::new(Inputs::new(attributes, object, params.clone(), None));
        let began = Instant::now();
        let outcome = evaluate(&self.batch, &inputs, attributes.context, CONDITIONS_BUDGET).await;
        let mut failed = 0;
        let mut errors = Vec::new();
        let mut holds = true;
        match outcome {
            Err(error) => errors.push(error),
            Ok(outcomes) => {
                for result in outcomes.results.into_iter().flatten() {
                    match result {
                        Ok(Evaluated::Bool(true)) => {}
                        // One that does not hold decides, whatever is wrong with others.
                        Ok(Evaluated::Bool(false)) => {
                            holds = false;
                            break;
                        }
                        Ok(_) => errors.push("a match condition must evaluate to bool".to_owned()),
                        Err(error) => errors.push(error),
                    }
                    failed = errors.len();
                }
            }
        }
        attributes.metrics.conditions(of, attributes.operation, failed, began.elapsed());
        if !holds {
            return Ok(false);
        }
        match (errors.as_slice(), self.ignores_failures) {
            ([], _) => Ok(true),
            (_, true) => Ok(false),
            ([one], false) => Err(one.clone()),
            (many, false) => Err(format!("[{}]", many.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn outcomes(sources: &[&str], budget: u64) -> Result<Outcomes, String> {
        let programs = sources.iter().map(|source| Some(program(source))).collect();
        let batch = Batch { variables: Arc::default(), programs: Arc::new(programs) };
        evaluate(&batch, &Arc::new(Inputs::default()), &RequestContext::internal("test"), budget).await
    }

    #[tokio::test]
    async fn the_authorizer_is_asked_and_the_evaluation_goes_on() {
        let sources = [
            "authorizer.group('apps').resource('deployments').namespace('shop').check('create').allowed() && \
             authorizer.requestResource.check('custom').allowed()",
            "authorizer.path('/x').check('get').reason() == ''",
        ];
        let outcomes = outcomes(&sources, BUDGET).await.unwrap();
        assert!(outcomes.results.iter().all(|result| *result == Some(Ok(Evaluated::Bool(true)))), "{outcomes:?}");
        assert!(outcomes.budget < BUDGET);
    }

    #[tokio::test]
    async fn expression_reads_absent_variables_as_null() {
        let source = "[object, oldObject, request, params, namespaceObject].all(value, value == null)";
        let outcomes = outcomes(&[source], BUDGET).await.unwrap();
        assert_eq!(outcomes.results[0], Some(Ok(Evaluated::Bool(true))));
        assert!(program("status.ready").compile_error().is_some_and(|error| error.contains("'status'")));
    }

    #[tokio::test]
    async fn spent_budget_reports_upstream_message() {
        // As many as a policy and match conditions may ask upstream.
        let question = "authorizer.requestResource.check('get').allowed()";
        for (budget, most) in [(BUDGET, 28), (CONDITIONS_BUDGET, 7)] {
            assert!(outcomes(&vec![question; most], budget).await.is_ok(), "{budget}");
            assert_eq!(outcomes(&vec![question; most + 1], budget).await.unwrap_err(), OUT_OF_BUDGET, "{budget}");
        }
        // Of one expression it is another sentence, and the others are evaluated all the same.
        let three = [question; 3].join(" && ");
        let results = outcomes(&[three.as_str(), question], CONDITIONS_BUDGET).await.unwrap().results;
        let told = format!("expression '{three}' resulted in error: operation cancelled: actual cost limit exceeded");
        assert_eq!(results, [Some(Err(told)), Some(Ok(Evaluated::Bool(true)))]);
    }
}
