//! The Common Expression Language, with what Kubernetes adds to it, in bounds of time and memory.
//!
//! Start at [`Program`] and [`evaluate`]. Expressions are parsed by the crate `cel` when what they are part of is read,
//! and evaluated here: the evaluation counts its steps, speaks cel-go's words, and never waits. There is no type
//! checker: of what one would refuse, names and numbers of arguments are told at once, and the rest fails when it is
//! evaluated.
//!
//! The library is that of `environment.MustBaseEnvSet` in `k8s.io/apiserver/pkg/cel` at Kubernetes 1.36, with `cel.bind`,
//! but for messages of Protobuf (`google.protobuf.Int64Value{…}`). Timestamps end on the 30th of December 9999,
//! quantities have 38 digits, and no map has a key that is no whole number, boolean or text. Errors of regular
//! expressions are those of the crate `regex`; URLs, addresses and versions have one error text each.
//!
//! What variables there are is up to whoever evaluates ([`Declarations`], [`Inputs`]). A policy of admission has those of
//! `k8s.io/apiserver/pkg/admission/plugin/cel`, a health policy an object and its fields.
//!
//! Submodules: `eval` and `operators` are the language, `functions` the library, `value` what both work on, `structs`
//! what mutations construct, `outcome` what comes out, `budget` what all of it is paid from, `held` what bounds its memory,
//! `check` what is refused at once, `size` what is not even read. Others have use for [`go`], what Go's library does
//! otherwise than Rust's, and for [`names`], the rules of Kubernetes' names.

use std::{fmt, sync::Arc};

use cel::{
    IdedExpr,
    parser::{ParseErrors, Parser},
};
use serde_json::Value as Json;

pub use self::authorizer::{Answer, Answers, Inquiry, Question, ServiceAccount};
use self::eval::{Error, Evaluation, OVER_LIMIT};
pub use self::outcome::Evaluated;
pub use self::stack::{STACK, on_the_calling_thread};

mod authorizer;
mod budget;
mod check;
mod eval;
mod functions;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod go;
mod held;
mod loops;
pub mod names;
mod operators;
mod outcome;
mod quantity;
mod size;
mod stack;
mod structs;
#[cfg(test)]
mod tests;
mod timestamp;
mod value;

/// How many steps an expression may take of those that all have, and a variable besides what refers to it; upstream's
/// `PerCallLimit`.
const EACH: u64 = 1_000_000;
/// How many steps, some milliseconds, an evaluation may take on a thread that serves others as well.
const QUICK: u64 = 20_000;
/// How many expressions may be evaluated one for the other on a thread as they usually are. An expression is not that
/// deep, but variables may refer to each other one by one.
const SHALLOW: usize = 300;
/// How many on a thread that has [`STACK`].
const DEEP: usize = 3_000;
/// The longest string, in bytes, that an expression may make.
const LARGEST_STRING: usize = 8 << 20;
/// The longest expression that is read, in bytes.
const LONGEST_SOURCE: usize = 64 << 10;
/// How many operators and brackets an expression may have. The parser bounds how deeply brackets are nested, but not how
/// long `1+1+1+…` is, of which it makes as deep a tree; [`STACK`] is enough for that many levels.
const MOST_OPERATORS: usize = 4096;

/// The names that an expression may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declarations {
    /// The variables, besides those that it binds itself.
    pub variables: &'static [&'static str],
    /// Whether it may construct `Object` and `JSONPatch`, to say how an object is to be changed.
    pub constructs: bool,
}

/// An expression that was read, or why it could not be.
#[derive(Debug)]
pub struct Program {
    source: String,
    expression: Result<IdedExpr, String>,
}

/// A named expression that others refer to as `variables.<name>`, where that is declared; evaluated once, when it is needed.
#[derive(Debug)]
pub struct Variable {
    name: String,
    expression: Result<IdedExpr, String>,
}

/// Reads an expression, on a thread of its own: a tree that is deep must neither be made nor dropped on another.
fn parse(source: &str, declared: &Declarations) -> Result<IdedExpr, String> {
    if source.len() > LONGEST_SOURCE || size::operators(source) > MOST_OPERATORS {
        return Err("compilation failed: the expression is too long".to_owned());
    }
    stack::with(STACK, || read(source, declared))
        .unwrap_or_else(|| Err("compilation failed: unexpected internal error".to_owned()))
}

fn read(source: &str, declared: &Declarations) -> Result<IdedExpr, String> {
    let failed = |problem: &str| format!("compilation failed: {problem}");
    let parser = Parser::new().enable_optional_syntax(true).enable_ident_escape_syntax(true);
    // Lines are set off as cel-go does it.
    let syntax = |errors: ParseErrors| failed(&errors.to_string().replace("\n| ", "\n | "));
    let (expression, info) = parser.parse_with_source_info(source).map_err(syntax)?;
    check::problems(&expression, &info, declared).map_err(|problems| failed(&problems))?;
    Ok(expression)
}

impl Program {
    /// Reads an expression.
    pub fn compile(source: &str, declared: &Declarations) -> Self {
        Self { source: source.to_owned(), expression: parse(source, declared) }
    }

    /// Why it could not be read: `compilation failed: …`.
    pub fn compile_error(&self) -> Option<&str> {
        self.expression.as_ref().err().map(String::as_str)
    }
}

impl Variable {
    /// Reads a variable's expression.
    pub fn compile(name: &str, source: &str, declared: &Declarations) -> Self {
        Self { name: name.to_owned(), expression: parse(source, declared) }
    }
}

/// What expressions see.
pub trait Inputs: fmt::Debug + Send + Sync + 'static {
    /// The value of a declared variable; `None` when it has none now.
    fn variable(&self, name: &str) -> Option<&Json>;

    /// The resource that `authorizer.requestResource` is, where there is an `authorizer` to ask.
    fn authorizer(&self) -> Option<&Question> {
        None
    }
}

/// Expressions that share variables.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The variables; each sees those before it.
    pub variables: Arc<Vec<Variable>>,
    /// The expressions; nothing where there is none.
    pub programs: Arc<Vec<Option<Program>>>,
}

/// The outcomes of a batch.
#[derive(Debug)]
pub struct Outcomes {
    /// One for each program, nothing where there is no program. An error is a sentence with the expression in it.
    pub results: Vec<Option<Result<Evaluated, String>>>,
    /// What is left of the budget.
    pub budget: u64,
}

/// How far an evaluation may go.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// How many steps it may take.
    budget: u64,
    /// How many steps each expression may take.
    each: u64,
    /// How many steps it may take on this thread. What others do for it takes none.
    here: u64,
    /// How many expressions may be evaluated one for the other.
    depth: usize,
}

/// Why a batch has no outcomes.
#[derive(Clone, Debug, PartialEq)]
pub enum Interrupted {
    /// Its budget is spent.
    OutOfBudget,
    /// It is nested too deeply.
    TooDeep,
    /// The authorizer has to be asked this first; whoever has the answer evaluates again.
    Unanswered(Box<Inquiry>),
    /// Something that should not go wrong did; the log has it.
    Unexpected,
}

/// Evaluates a batch within so many steps, of which none of its expressions may take more than a million. What takes
/// long or goes deep runs on a thread of its own. May be dropped at any time; a thread then ends by itself.
///
/// # Errors
///
/// [`Interrupted`]; what is wrong with one expression is its outcome.
pub async fn evaluate<I: Inputs>(
    batch: &Batch,
    inputs: &Arc<I>,
    answers: &Answers,
    budget: u64,
) -> Result<Outcomes, Interrupted> {
    let limits = Limits { budget, each: EACH, here: u64::MAX, depth: SHALLOW };
    let mut outcome = run(batch, &**inputs, answers, Limits { here: QUICK, ..limits });
    if matches!(outcome, Err(Interrupted::OutOfBudget)) && budget > QUICK {
        let (batch, inputs, known) = (batch.clone(), inputs.clone(), answers.clone());
        let slow = move || run(&batch, &*inputs, &known, limits);
        outcome = tokio::task::spawn_blocking(slow).await.unwrap_or(Err(Interrupted::Unexpected));
    }
    if matches!(outcome, Err(Interrupted::TooDeep)) {
        let (batch, inputs, known) = (batch.clone(), inputs.clone(), answers.clone());
        let deep = move || stack::with(STACK, || run(&batch, &*inputs, &known, Limits { depth: DEEP, ..limits }));
        let deep = tokio::task::spawn_blocking(deep).await.ok().flatten();
        outcome = deep.unwrap_or(Err(Interrupted::Unexpected));
    }
    outcome
}

/// The same on this thread, which may wait.
///
/// # Errors
///
/// As [`evaluate`].
pub fn evaluate_here<I: Inputs>(
    batch: &Batch,
    inputs: &Arc<I>,
    answers: &Answers,
    budget: u64,
) -> Result<Outcomes, Interrupted> {
    let limits = Limits { budget, each: EACH, here: u64::MAX, depth: SHALLOW };
    match run(batch, &**inputs, answers, limits) {
        Err(Interrupted::TooDeep) => {
            let deep = stack::with(STACK, || run(batch, &**inputs, answers, Limits { depth: DEEP, ..limits }));
            deep.unwrap_or(Err(Interrupted::Unexpected))
        }
        outcome => outcome,
    }
}

fn run(batch: &Batch, inputs: &dyn Inputs, answers: &Answers, limits: Limits) -> Result<Outcomes, Interrupted> {
    let mut evaluation = Evaluation::new(inputs, answers, &batch.variables, limits);
    let mut results = Vec::with_capacity(batch.programs.len());
    for program in batch.programs.iter() {
        let Some(program) = program else {
            results.push(None);
            continue;
        };
        let failed = |text: &str| Err(format!("expression '{}' resulted in error: {text}", program.source));
        let outcome = match &program.expression {
            Err(error) => Err(format!("compilation error: {error}")),
            Ok(expression) => match outcome(&mut evaluation, expression) {
                Ok(evaluated) => Ok(evaluated),
                Err(Error::Message(text)) => failed(&text),
                Err(Error::OverLimit) => failed(OVER_LIMIT),
                Err(Error::OutOfBudget) => return Err(Interrupted::OutOfBudget),
                Err(Error::TooDeep) => return Err(Interrupted::TooDeep),
                Err(Error::Unanswered(inquiry)) => return Err(Interrupted::Unanswered(inquiry)),
            },
        };
        results.push(Some(outcome));
    }
    Ok(Outcomes { results, budget: evaluation.budget().left() })
}

fn outcome<'a>(evaluation: &mut Evaluation<'a>, expression: &'a IdedExpr) -> Result<Evaluated, Error> {
    let value = evaluation.whole(&expression.expr)?;
    // To go through what comes out is no part of the expression.
    evaluation.budget().grant(u64::MAX);
    Evaluated::of(value, evaluation.budget())
}
