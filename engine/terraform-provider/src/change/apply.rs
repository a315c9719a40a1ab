//! The steps of a planned change.

use crate::checks::{Fault, FaultKind, Faults, Replacement, applied};
use crate::protocol::{ApplyAnswer, ApplyRequest, Diagnostics, Provider};
use crate::value::{Path, Value};

use super::{Action, ChangeError, Checked, Object, Plan, Planner, Step};
use crate::proposed::ignore::ignore_changes;

/// The result of a step.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The object to store; nothing if it does not exist.
    pub object: Option<Object>,
    /// The reports. With errors the step failed, and the object has a part of the change.
    pub diagnostics: Diagnostics,
    /// Broken promises of the provider. The object is stored all the same.
    pub faults: Faults,
    /// Whether the object has to be read before its state can be trusted: older libraries report the values of a failed
    /// update as if it had succeeded.
    pub read_first: bool,
}

/// Makes one step of a plan, in the order of [`Plan::steps`]. The configuration is that of the plan, with values that
/// have become known since. Where none has, and the step is the whole change, the provider does not plan it again.
///
/// # Errors
///
/// If the change was not begun, or if the provider did not answer. The part that was made is unknown in the latter case.
pub async fn apply(provider: &Provider, plan: &Plan, step: Step, config: &Value) -> Result<Applied, ChangeError> {
    let planner = Planner::new(provider, &plan.resource)?;
    match step {
        Step::Delete => planner.delete(plan).await,
        Step::Create | Step::Update => planner.change(plan, step, config).await,
    }
}

impl Planner<'_> {
    async fn delete(&self, plan: &Plan) -> Result<Applied, ChangeError> {
        let Some(prior) = &plan.prior else {
            return Err(self.changed("there is no object to delete"));
        };
        let request = ApplyRequest {
            prior: &prior.state,
            planned: &Value::Null,
            config: &Value::Null,
            planned_private: &plan.private,
            planned_identity: prior.identity.as_ref(),
        };
        let answer = self.provider.apply(self.resource, request).await?;
        let mut faults = Faults::default();
        let failed = answer.diagnostics.has_errors();
        if !failed && !answer.state.is_null() {
            let kind = FaultKind::Existence { found: "present", expected: "absent" };
            faults.errors.push(Fault { path: Path::default(), kind });
        }
        // A null state with an error is no deletion: older libraries answer so for every failure.
        let object = (failed || !answer.state.is_null()).then(|| prior.clone());
        Ok(Applied { object, diagnostics: answer.diagnostics, faults, read_first: false })
    }

    async fn change(&self, plan: &Plan, step: Step, config: &Value) -> Result<Applied, ChangeError> {
        let prior = plan.prior.as_ref().filter(|_| step == Step::Update);
        let state = prior.map_or(Value::Null, |it| it.state.clone());
        let ignoring;
        let config = match &plan.ignored {
            Some(ignored) => {
                ignoring = ignore_changes(self.schema, &state, config, ignored);
                &ignoring
            }
            None => config,
        };
        let replanned;
        let (planned, private, identity) = if plan.is_of(step, config) {
            (&plan.planned, &plan.private, plan.identity.as_ref())
        } else {
            self.validate(config).await?;
            let (private, identity) = prior.map_or((&[][..], None), |it| (&it.private[..], it.identity.as_ref()));
            let Checked { answer: second, .. } = self.plan(&state, config, private, identity).await?;
            let action = self.agreed(plan, &state, &second.planned, &second.requires_replace)?;
            if action == Action::NoOp {
                // All unknown values of the plan turned out to be those of before.
                let diagnostics = second.diagnostics;
                let object = prior.cloned();
                return Ok(Applied { object, diagnostics, faults: Faults::default(), read_first: false });
            }
            replanned = second;
            (&replanned.planned, &replanned.private, replanned.identity.as_ref())
        };

        let request =
            ApplyRequest { prior: &state, planned, config, planned_private: private, planned_identity: identity };
        let answer = self.provider.apply(self.resource, request).await?;
        Ok(self.result(prior, planned, answer))
    }

    /// The action of the second plan, which may only know more than the first.
    fn agreed(
        &self,
        plan: &Plan,
        state: &Value,
        second: &Value,
        requires_replace: &[Path],
    ) -> Result<Action, ChangeError> {
        let replacement = Replacement::of(self.schema, state, second, requires_replace);
        let action = Action::of(state, second, &replacement);
        let is_expected = match plan.action {
            Action::Replace | Action::Create => action == Action::Create,
            // An update may turn out to change nothing, when its unknown values are those of before.
            Action::Update => matches!(action, Action::Update | Action::NoOp),
            Action::NoOp | Action::Delete => false,
        };
        if !is_expected {
            return Err(self.changed(&format!("{:?} became {action:?}", plan.action)));
        }
        let faults = applied::differences(&plan.planned, second);
        if faults.is_empty() { Ok(action) } else { Err(self.changed(&join(&faults))) }
    }

    fn changed(&self, reason: &str) -> ChangeError {
        ChangeError::PlanChanged { resource: self.resource.to_owned(), reason: reason.to_owned() }
    }

    /// The object to store after a create or an update.
    fn result(&self, prior: Option<&Object>, planned: &Value, answer: ApplyAnswer) -> Applied {
        let ApplyAnswer { state, private, identity, legacy_type_system, diagnostics } = answer;
        let failed = diagnostics.has_errors();
        // The state of a failure promises nothing except its type.
        let faults = if failed {
            let mistyped = !state.conforms(&self.schema.block.implied_type());
            let fault = mistyped.then(|| Fault { path: Path::default(), kind: FaultKind::Type });
            Faults { errors: fault.into_iter().collect(), tolerated: Vec::new() }
        } else {
            applied::check(self.schema, planned, &state, legacy_type_system)
        };
        let object = if state.is_null() {
            // A failed create made nothing. A null after an update is no deletion.
            prior.cloned()
        } else {
            let state = self.schema.without_write_only(state.without_unknowns());
            // Private data are opaque: bytes that seem to say nothing are stored too.
            let identity = identity.or_else(|| prior.and_then(|it| it.identity.clone()));
            Some(Object { state, private, identity, tainted: failed && prior.is_none() })
        };
        let read_first = failed && prior.is_some() && legacy_type_system;
        Applied { object, diagnostics, faults, read_first }
    }
}

fn join(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
