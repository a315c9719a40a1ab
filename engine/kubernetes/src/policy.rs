//! Health policies: the health of an object by CEL expressions of its resource or workspace.
//!
//! A resource has its policy in the extension `healthPolicy`, a manifest in annotations:
//!
//! ```yaml
//! extensions:
//!   healthPolicy:
//!     cel:
//!       current: status.phase == 'Running'     # annotation stoa.dev/health-current
//!       failed: status.phase == 'Broken'       # annotation stoa.dev/health-failed; may be left out
//!       inProgress: status.phase == 'Starting' # annotation stoa.dev/health-in-progress; may be left out
//! ```
//!
//! Policies of a workspace ([`KindHealth`]) are for all objects of a kind whose resources have none.
//!
//! Names and order are those of Flux's `healthCheckExprs`, whose expressions work unchanged: the fields of the object
//! are variables. The whole object is `object`, as in admission policies, for fields that other kinds do not have.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};
use stoa_cel::{Answers, Batch, Declarations, Evaluated, Inputs, Interrupted, Program};
use stoa_engine::health::{self, OBJECT, POLICY, VARIABLES};
use stoa_engine::object::split_api_version;
use stoa_engine::problem::reason;
use stoa_engine::{Problem, Resource, ResourceType, Spec};
use stoa_runtime::{Health, RuntimeError};

use crate::kstatus::{self, Verdict};
use crate::target::Gvk;

/// The maximum steps of all expressions of a policy for one object; upstream's `PerCallLimit`.
const BUDGET: u64 = 1_000_000;
/// The maximum length of a quoted expression error, in bytes; it may quote the object.
const LONGEST_ERROR: usize = 256;

/// The extension with Kusion's policies in KCL.
const KCL: &str = "health.kcl";

/// The fields of an object that are variables, and the whole object.
const DECLARED: Declarations = Declarations { variables: VARIABLES, constructs: false };

/// An expression of a policy: its name, its annotation, and its meaning. In the order of evaluation.
struct Expression {
    name: &'static str,
    annotation: &'static str,
    health: Health,
}

const EXPRESSIONS: [Expression; 3] = [
    Expression { name: "inProgress", annotation: health::IN_PROGRESS, health: Health::InProgress },
    Expression { name: "failed", annotation: health::FAILED, health: Health::Failed },
    Expression { name: CURRENT, annotation: health::CURRENT, health: Health::Current },
];
/// The expression that every policy has.
const CURRENT: &str = "current";

#[derive(Debug)]
pub(crate) struct HealthPolicy {
    /// As they are written, in the order of [`EXPRESSIONS`].
    sources: [Option<String>; 3],
    batch: Batch,
}

/// Problems of the health policies in a Spec, in the order of the resources.
pub fn check_health_policies(spec: &Spec) -> Vec<Problem> {
    spec.resources.iter().filter_map(|resource| HealthPolicy::of(resource).err()).flatten().collect()
}

impl HealthPolicy {
    /// The policy of a resource, if it has one.
    pub(crate) fn of(resource: &Resource) -> Result<Option<Self>, Vec<Problem>> {
        let wrong =
            |field: String, message: String| Problem::new(reason::INVALID_RESOURCE, message).of(&resource.id).at(field);
        let written = match resource.extensions.get(POLICY).filter(|policy| !policy.is_null()) {
            Some(_) if resource.kind != ResourceType::Kubernetes => {
                let message = "only Kubernetes objects have health policies";
                return Err(vec![wrong(format!("extensions.{POLICY}"), message.to_owned())]);
            }
            Some(policy) => in_extension(policy),
            None => in_annotations(&resource.attributes),
        };
        let written = written.map_err(|found| found.into_iter().map(|(f, m)| wrong(f, m)).collect::<Vec<_>>())?;
        let Some(written) = written else { return Ok(None) };
        let policy = Self::compile(written);
        policy.map(Some).map_err(|found| found.into_iter().map(|(f, m)| wrong(f, m)).collect())
    }

    fn compile(written: Written) -> Result<Self, Wrong> {
        let (mut sources, mut programs, mut problems) = ([const { None }; 3], Vec::new(), Vec::new());
        for (position, found) in written.into_iter().enumerate() {
            let program = found.as_ref().map(|(_, source)| Program::compile(source, &DECLARED));
            if let Some((field, _)) = &found
                && let Some(error) = program.as_ref().and_then(Program::compile_error)
            {
                problems.push((field.clone(), error.to_owned()));
            }
            sources[position] = found.map(|(_, source)| source);
            programs.push(program);
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self { sources, batch: Batch { programs: Arc::new(programs), ..Batch::default() } })
    }

    /// The health of an object as a server reported it: by the expressions, once the object's last change was observed.
    /// One that cannot be evaluated, as while a field is not there yet, leaves the object in progress.
    ///
    /// Follows Flux's `StatusEvaluator` (`github.com/fluxcd/pkg/runtime/cel`).
    pub(crate) async fn health(&self, gvk: &Gvk, object: &Map<String, Value>) -> Verdict {
        if let Some(verdict) = kstatus::unobserved(object) {
            return verdict;
        }
        let seen = Arc::new(ObjectInputs(Value::Object(object.clone())));
        let outcomes = match stoa_cel::evaluate(&self.batch, &seen, &Answers::new(), BUDGET).await {
            Ok(outcomes) => outcomes,
            Err(interrupted) => {
                let why = match interrupted {
                    Interrupted::OutOfBudget => "takes too many steps",
                    Interrupted::TooDeep => "is nested too deeply",
                    // There is no authorizer here.
                    Interrupted::Unanswered(_) | Interrupted::Unexpected => "cannot be evaluated",
                };
                return (Health::InProgress, format!("its health policy {why}"));
            }
        };
        for ((expression, source), result) in EXPRESSIONS.iter().zip(&self.sources).zip(outcomes.results) {
            let (name, Some(result)) = (expression.name, result) else { continue };
            match result {
                Ok(Evaluated::Bool(false)) => {}
                Ok(Evaluated::Bool(true)) => {
                    return (expression.health, format!("`{name}` of its health policy holds"));
                }
                Ok(other) => {
                    let message = format!("`{name}` of its health policy is {}, not a bool", other.type_name());
                    return (Health::InProgress, message);
                }
                Err(error) => {
                    let source = source.as_deref().unwrap_or_default();
                    let message = format!("`{name}` of its health policy cannot be evaluated");
                    // A quoted text may be a value.
                    let told =
                        if gvk.is("", "Secret") { message } else { format!("{message}: {}", cause(&error, source)) };
                    return (Health::InProgress, told);
                }
            }
        }
        (Health::InProgress, format!("`{CURRENT}` of its health policy does not hold yet"))
    }
}

/// The health policy of a workspace for objects of a kind whose resources have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KindHealth {
    /// The apiVersion of the objects; only its group counts.
    pub api_version: String,
    /// Their kind.
    pub kind: String,
    /// The expression that holds for a healthy object.
    pub current: String,
    /// The expression that holds for a failed object.
    #[serde(default)]
    pub failed: Option<String>,
    /// The expression that holds for an object in progress, whatever else does.
    #[serde(default)]
    pub in_progress: Option<String>,
}

/// The policies of a workspace.
#[derive(Debug, Default)]
pub(crate) struct KindPolicies(Vec<((String, String), HealthPolicy)>);

impl KindPolicies {
    /// Reads them.
    pub(crate) fn new(of: &[KindHealth]) -> Result<Self, RuntimeError> {
        let policies = of.iter().enumerate().map(|(position, kind)| {
            let KindHealth { api_version, current, failed, in_progress, .. } = kind;
            let written = [in_progress.as_ref(), failed.as_ref(), Some(current)];
            let mut fields = EXPRESSIONS.iter().map(|it| format!("spec.healthPolicies[{position}].{}", it.name));
            let written = written.map(|source| fields.next().zip(source.cloned()));
            let policy = HealthPolicy::compile(written).map_err(|wrong| {
                let (field, message) = wrong.into_iter().next().unwrap_or_default();
                RuntimeError::Invalid { message, field: Some(field) }
            })?;
            Ok(((split_api_version(api_version).0.to_owned(), kind.kind.clone()), policy))
        });
        policies.collect::<Result<_, _>>().map(Self)
    }

    /// The policy of a kind, in any version.
    pub(crate) fn of(&self, gvk: &Gvk) -> Option<&HealthPolicy> {
        self.0.iter().find(|((group, kind), _)| *group == gvk.group && *kind == gvk.kind).map(|(_, policy)| policy)
    }
}

/// The expressions of a policy with the fields that they are in, in the order of [`EXPRESSIONS`].
type Written = [Option<(String, String)>; 3];
/// Fields, and what is wrong with them.
type Wrong = Vec<(String, String)>;

fn in_extension(policy: &Value) -> Result<Option<Written>, Wrong> {
    let field = |name: &str| format!("extensions.{POLICY}{name}");
    let advice = format!(
        "must be a map with `cel`, such as {{cel: {{{CURRENT}: \"status.phase == 'Running'\", failed: \"status.phase \
         == 'Broken'\"}}}}"
    );
    let Some(fields) = policy.as_object() else { return Err(vec![(field(""), advice)]) };
    let mut problems = Vec::new();
    for name in fields.keys().filter(|name| *name != "cel") {
        problems.push(if name == KCL {
            let message = format!(
                "health policies in KCL are not supported; write them in CEL, in {}: {{cel: {{{CURRENT}: \
                 \"status.phase == 'Running'\", failed: \"status.phase == 'Broken'\"}}}}",
                field("")
            );
            (field(&format!("[{KCL}]")), message)
        } else {
            (field(&format!(".{name}")), "unknown field; a health policy has the field cel".to_owned())
        });
    }
    let mut written: Written = [const { None }; 3];
    match fields.get("cel") {
        Some(Value::Object(expressions)) => {
            let is_known = |name: &&String| EXPRESSIONS.iter().any(|known| known.name == **name);
            for name in expressions.keys().filter(|name| !is_known(name)) {
                let message = "unknown field; use current, failed or inProgress".to_owned();
                problems.push((field(&format!(".cel.{name}")), message));
            }
            for (position, Expression { name, .. }) in EXPRESSIONS.iter().enumerate() {
                let field = field(&format!(".cel.{name}"));
                match expressions.get(*name) {
                    Some(Value::String(source)) if !source.trim().is_empty() => {
                        written[position] = Some((field, source.clone()));
                    }
                    None | Some(Value::Null) if *name != CURRENT => {}
                    None | Some(Value::Null) => problems.push((field, "is required".to_owned())),
                    Some(_) => problems.push((field, "must be an expression in CEL".to_owned())),
                }
            }
        }
        // The problem of the KCL policy has the alternative.
        None if fields.contains_key(KCL) => {}
        _ => problems.push((field(""), advice)),
    }
    if problems.is_empty() { Ok(Some(written)) } else { Err(problems) }
}

fn in_annotations(attributes: &Map<String, Value>) -> Result<Option<Written>, Wrong> {
    let annotations = attributes.get("metadata").and_then(|metadata| metadata.get("annotations"));
    let field = |annotation: &str| format!("attributes.metadata.annotations[{annotation}]");
    let written: Written = EXPRESSIONS.each_ref().map(|Expression { annotation, .. }| {
        let source = annotations?.get(annotation)?.as_str()?;
        Some((field(annotation), source.to_owned()))
    });
    match &written {
        [None, None, None] => Ok(None),
        [_, _, Some(_)] => Ok(Some(written)),
        [_, _, None] => {
            let message = "is required beside other expressions of a health policy";
            Err(vec![(field(EXPRESSIONS[2].annotation), message.to_owned())])
        }
    }
}

/// An evaluation error without its expression, cut to the maximum length.
fn cause<'e>(error: &'e str, source: &str) -> &'e str {
    let cause = error.strip_prefix(&format!("expression '{source}' resulted in error: ")).unwrap_or(error);
    &cause[..cause.floor_char_boundary(LONGEST_ERROR)]
}

/// An object as expressions see it.
#[derive(Debug)]
struct ObjectInputs(Value);

impl Inputs for ObjectInputs {
    fn variable(&self, name: &str) -> Option<&Value> {
        if name == OBJECT {
            return Some(&self.0);
        }
        DECLARED.variables.contains(&name).then(|| self.0.get(name))?
    }
}

#[cfg(feature = "fuzzing")]
pub mod fuzzing;
#[cfg(test)]
mod tests;
