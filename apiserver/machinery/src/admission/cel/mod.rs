//! The Common Expression Language, with what Kubernetes adds to it, in bounds of time and memory.
//!
//! Start at [`Program`] and [`evaluate`]. Expressions are parsed by the crate `cel` when their policy is read, and
//! evaluated here: the evaluation counts its steps, speaks cel-go's words, and never waits. Variables are those of
//! `k8s.io/apiserver/pkg/admission/plugin/cel`: `object`, `oldObject`, `request`, `params`, `namespaceObject`,
//! `authorizer` and `variables`. There is no type checker: what a type checker would refuse fails when it is evaluated.
//!
//! Submodules: `eval` and `operators` are the language, `functions` the library, `value` what both work on, `structs`
//! what mutations construct, `outcome` what comes out, `check` what is refused at once, `size` what is not even read.

use std::{sync::Arc, time::Instant};

use cel::{IdedExpr, parser::Parser};
use k8s_openapi::api::{admissionregistration::v1::MatchCondition, core::v1::Namespace};
use serde_json::Value as Json;

pub(super) use self::outcome::Evaluated;
use self::{
    authorizer::Answers,
    eval::{Error, Evaluation},
};
use super::{Attributes, metrics::ConditionsOf, webhook::review};
use crate::{auth, object::Object, request::RequestContext};

mod authorizer;
mod check;
mod eval;
mod functions;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod operators;
mod outcome;
mod quantity;
mod size;
mod stack;
mod structs;
#[cfg(test)]
mod tests;
mod value;

/// How many steps all validations of a policy may take together; upstream's `RuntimeCELCostBudget`.
pub(super) const BUDGET: u64 = 10_000_000;
/// How many steps all match conditions may take together; upstream's `RuntimeCELCostBudgetMatchConditions`.
const CONDITIONS_BUDGET: u64 = 2_500_000;
/// How many steps, some milliseconds, an evaluation may take on a thread that serves others as well.
const QUICK: u64 = 20_000;
/// How many expressions may be evaluated one for the other on a thread as they usually are. An expression is not that
/// deep, but variables may refer to each other one by one.
const SHALLOW: usize = 300;
/// How many on a thread that has [`STACK`].
const DEEP: usize = 3_000;
/// How many questions one evaluation may put to the authorizer.
const MOST_QUESTIONS: usize = 64;
/// The longest string, in bytes, that an expression may make.
const LARGEST_STRING: usize = 8 << 20;
/// The longest expression that is read, in bytes.
const LONGEST_SOURCE: usize = 64 << 10;
/// How many operators and brackets an expression may have. The parser bounds how deeply brackets are nested, but not how
/// long `1+1+1+…` is, of which it makes as deep a tree; [`STACK`] is enough for that many levels.
const MOST_OPERATORS: usize = 4096;
/// How much stack, in bytes, reading an expression may take, or an evaluation that goes deep. Only what is used of it is
/// ever there.
const STACK: usize = 64 << 20;

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";
const TOO_DEEP: &str = "the evaluation is nested too deeply";
const UNEXPECTED: &str = "unexpected internal error evaluating expression";

/// An expression that was read, or why it could not be.
#[derive(Debug)]
pub(super) struct Program {
    source: String,
    expression: Result<IdedExpr, String>,
}

/// A named expression that others refer to as `variables.<name>`; evaluated once, when it is needed.
#[derive(Debug)]
pub(super) struct Variable {
    name: String,
    expression: Result<IdedExpr, String>,
}

/// What an expression is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// To tell something of a write.
    Tell,
    /// To say how the object is to be changed, for which there are types besides.
    Mutate,
}

/// Reads an expression, on a thread of its own: a tree that is deep must neither be made nor dropped on another.
fn parse(source: &str, purpose: Purpose) -> Result<IdedExpr, String> {
    if source.len() > LONGEST_SOURCE || size::operators(source) > MOST_OPERATORS {
        return Err("compilation failed: the expression is too long".to_owned());
    }
    stack::with(STACK, || read(source, purpose))
        .unwrap_or_else(|| Err("compilation failed: unexpected internal error".to_owned()))
}

fn read(source: &str, purpose: Purpose) -> Result<IdedExpr, String> {
    let failed = |problem: &dyn std::fmt::Display| format!("compilation failed: {problem}");
    let parser = Parser::new().enable_optional_syntax(true).enable_ident_escape_syntax(true);
    let expression = parser.parse(source).map_err(|errors| failed(&errors))?;
    check::references(&expression.expr, purpose)
        .map_err(|error| failed(&format_args!("ERROR: <input>:1:1: {error}")))?;
    Ok(expression)
}

impl Program {
    /// Reads an expression.
    pub(super) fn compile(source: &str) -> Self {
        Self { source: source.to_owned(), expression: parse(source, Purpose::Tell) }
    }

    /// Reads an expression that says how an object is to be changed.
    pub(super) fn compile_mutation(source: &str) -> Self {
        Self { source: source.to_owned(), expression: parse(source, Purpose::Mutate) }
    }

    /// Why it could not be read.
    pub(super) fn compile_error(&self) -> Option<&str> {
        self.expression.as_ref().err().map(String::as_str)
    }
}

impl Variable {
    /// Reads a variable's expression.
    pub(super) fn compile(name: &str, source: &str) -> Self {
        Self { name: name.to_owned(), expression: parse(source, Purpose::Tell) }
    }
}

/// What expressions see.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    object: Json,
    old_object: Json,
    request: Json,
    params: Arc<Json>,
    namespace: Json,
    /// The resource of the request, for `authorizer.requestResource`.
    resource: auth::Attributes,
}

impl Inputs {
    /// What expressions see of a write.
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
            resource: auth::Attributes {
                group: definition.group.clone(),
                version: definition.version.clone(),
                resource: definition.plural.clone(),
                subresource: attributes.subresource.to_owned(),
                namespace: attributes.namespace.to_owned(),
                name: attributes.name.to_owned(),
                ..auth::Attributes::default()
            },
        }
    }
}

/// Expressions that share variables.
#[derive(Clone, Debug, Default)]
pub(super) struct Batch {
    pub(super) variables: Arc<Vec<Variable>>,
    pub(super) programs: Arc<Vec<Option<Program>>>,
}

/// The outcomes of a batch: one for each program, nothing where there is no program.
#[derive(Debug)]
pub(super) struct Outcomes {
    pub(super) results: Vec<Option<Result<Evaluated, String>>>,
    /// What is left of the budget.
    pub(super) budget: u64,
}

/// How far an evaluation may go.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// How many steps it may take.
    budget: u64,
    /// How many expressions may be evaluated one for the other.
    depth: usize,
}

enum Interrupted {
    OutOfBudget,
    TooDeep,
    Unanswered(Box<auth::Attributes>),
}

/// Evaluates a batch. What takes long or goes deep runs on a thread of its own.
///
/// # Errors
///
/// When the budget is spent, when it goes too deep, or the authorizer is asked too much; the text is for the client.
pub(super) async fn evaluate(
    batch: &Batch,
    inputs: &Arc<Inputs>,
    context: &RequestContext,
    budget: u64,
) -> Result<Outcomes, String> {
    let mut answers = Answers::new();
    loop {
        let quick = Limits { budget: budget.min(QUICK), depth: SHALLOW };
        let mut outcome = run(batch, inputs, &answers, quick);
        if let Ok(outcomes) = &mut outcome {
            // Whatever was left of the quick budget, the whole one was granted.
            outcomes.budget += budget - quick.budget;
        }
        if matches!(outcome, Err(Interrupted::OutOfBudget)) && budget > QUICK {
            let (batch, inputs, known) = (batch.clone(), inputs.clone(), answers.clone());
            let slow = move || run(&batch, &inputs, &known, Limits { budget, depth: SHALLOW });
            outcome = tokio::task::spawn_blocking(slow).await.map_err(|_| UNEXPECTED.to_owned())?;
        }
        if matches!(outcome, Err(Interrupted::TooDeep)) {
            let (batch, inputs, known) = (batch.clone(), inputs.clone(), answers.clone());
            let deep = move || stack::with(STACK, || run(&batch, &inputs, &known, Limits { budget, depth: DEEP }));
            let deep = tokio::task::spawn_blocking(deep).await.ok().flatten();
            outcome = deep.ok_or_else(|| UNEXPECTED.to_owned())?;
        }
        match outcome {
            Ok(outcomes) => return Ok(outcomes),
            Err(Interrupted::OutOfBudget) => return Err(OUT_OF_BUDGET.to_owned()),
            Err(Interrupted::TooDeep) => return Err(TOO_DEEP.to_owned()),
            Err(Interrupted::Unanswered(_)) if answers.len() >= MOST_QUESTIONS => {
                return Err("the authorizer was asked too many questions".to_owned());
            }
            Err(Interrupted::Unanswered(question)) => {
                let answer = context.authorizer.authorize(&context.user, &question).await;
                answers.insert(*question, answer.map_err(|error| error.message().to_owned()));
            }
        }
    }
}

fn run(batch: &Batch, inputs: &Inputs, answers: &Answers, limits: Limits) -> Result<Outcomes, Interrupted> {
    let mut evaluation = Evaluation::new(inputs, answers, &batch.variables, limits);
    let mut results = Vec::with_capacity(batch.programs.len());
    for program in batch.programs.iter() {
        let Some(program) = program else {
            results.push(None);
            continue;
        };
        let outcome = match &program.expression {
            Err(error) => Err(format!("compilation error: {error}")),
            Ok(expression) => match outcome(&mut evaluation, expression) {
                Ok(evaluated) => Ok(evaluated),
                Err(Error::Message(text)) => Err(format!("expression '{}' resulted in error: {text}", program.source)),
                Err(Error::OutOfBudget) => return Err(Interrupted::OutOfBudget),
                Err(Error::TooDeep) => return Err(Interrupted::TooDeep),
                Err(Error::Unanswered(question)) => return Err(Interrupted::Unanswered(question)),
            },
        };
        results.push(Some(outcome));
    }
    Ok(Outcomes { results, budget: *evaluation.budget() })
}

fn outcome<'a>(evaluation: &mut Evaluation<'a>, expression: &'a IdedExpr) -> Result<Evaluated, Error> {
    let value = evaluation.value(&expression.expr)?;
    Evaluated::of(value, evaluation.budget())
}

/// The `matchConditions` of a webhook or policy: all have to hold.
#[derive(Debug)]
pub(super) struct Conditions {
    batch: Batch,
    ignores_failures: bool,
}

impl Conditions {
    /// Reads the conditions; `ignores_failures` is the failure policy.
    pub(super) fn compile(conditions: &[MatchCondition], ignores_failures: bool) -> Self {
        let programs = conditions.iter().map(|condition| Some(Program::compile(&condition.expression))).collect();
        Self { batch: Batch { variables: Arc::default(), programs: Arc::new(programs) }, ignores_failures }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.batch.programs.is_empty()
    }

    /// Whether all hold, for a webhook.
    ///
    /// # Errors
    ///
    /// What went wrong where the failure policy counts that.
    pub(super) async fn hold(
        &self,
        of: ConditionsOf<'_>,
        attributes: &Attributes<'_>,
        object: Option<&Object>,
    ) -> Result<bool, String> {
        if self.is_empty() {
            return Ok(true);
        }
        let inputs = Arc::new(Inputs::new(attributes, object, Arc::default(), None));
        self.hold_for(of, attributes, &inputs).await
    }

    /// Whether all hold.
    ///
    /// # Errors
    ///
    /// As for [`hold`](Self::hold).
    pub(super) async fn hold_for(
        &self,
        of: ConditionsOf<'_>,
        attributes: &Attributes<'_>,
        inputs: &Arc<Inputs>,
    ) -> Result<bool, String> {
        if self.is_empty() {
            return Ok(true);
        }
        let began = Instant::now();
        let outcome = evaluate(&self.batch, inputs, attributes.context, CONDITIONS_BUDGET).await;
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
