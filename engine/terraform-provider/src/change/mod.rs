//! A change of one object, from the configuration to the state that is stored.
//!
//! Start at [`plan`], then [`Plan::steps`] and [`apply`]. The order of calls is that of Terraform: the configuration is
//! validated before each plan, and a replacement is planned twice. A create or an update is planned again when it is
//! applied, unless nothing has become known since its plan.
//!
//! Elsewhere: `apply` makes the change and decides what is stored of the result.

mod apply;

use bytes::Bytes;

use crate::checks::planned::{self, Planned};
use crate::checks::{Action, Fault, Faults, Replacement};
use crate::proposed::ignore::{IgnoreChanges, ignore_changes};
use crate::proposed::proposed_new_state;
use crate::protocol::{CallError, Diagnostics, PlanAnswer, PlanRequest, Provider};
use crate::schema::Schema;
use crate::value::{Path, Value};

pub use self::apply::{Applied, apply};

/// An object that exists, as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// The state of the schema's version.
    pub state: Value,
    /// The private data, unchanged.
    pub private: Bytes,
    /// The identity, if the resource has one.
    pub identity: Option<Value>,
    /// Whether its create failed half-way, so that it has to be replaced.
    pub tainted: bool,
}

/// A part of a change that is recorded before it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The object is deleted.
    Delete,
    /// An object is created.
    Create,
    /// The object changes.
    Update,
}

/// A planned change of one object.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The type of the resource.
    pub resource: String,
    /// The action.
    pub action: Action,
    /// The object before.
    pub prior: Option<Object>,
    /// The state after, with unknown parts; null after a delete.
    pub planned: Value,
    /// The private data of the plan, or of the object where nothing changes.
    pub private: Bytes,
    /// The planned identity.
    pub identity: Option<Value>,
    /// The attributes that need another object.
    pub replace_paths: Vec<Path>,
    /// The changes that were ignored.
    pub ignored: Option<IgnoreChanges>,
    /// The configuration that the provider has planned, without ignored changes.
    config: Value,
    /// The warnings of the provider.
    pub diagnostics: Diagnostics,
    /// Broken promises that the provider's older library cannot avoid.
    pub tolerated: Vec<Fault>,
}

/// A change that cannot be planned or made.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// A call has no answer. After an apply without an answer, the stored object and its private data
    /// remain.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The provider rejected the configuration or the plan.
    #[error("the provider rejected {resource}: {diagnostics}")]
    Rejected {
        /// The type of the resource.
        resource: String,
        /// The reports.
        diagnostics: Diagnostics,
    },
    /// The plan breaks a promise of the protocol.
    #[error("the provider made an invalid plan of {resource}: {faults}; report it to the provider")]
    InvalidPlan {
        /// The type of the resource.
        resource: String,
        /// The broken promises.
        faults: Faults,
    },
    /// The plan at the apply differs from the approved one.
    #[error("the plan of {resource} changed before the apply: {reason}; plan again")]
    PlanChanged {
        /// The type of the resource.
        resource: String,
        /// The difference.
        reason: String,
    },
}

impl Plan {
    /// The steps of the change, in order.
    pub fn steps(&self) -> &'static [Step] {
        match self.action {
            Action::NoOp => &[],
            Action::Create => &[Step::Create],
            Action::Update => &[Step::Update],
            Action::Replace => &[Step::Delete, Step::Create],
            Action::Delete => &[Step::Delete],
        }
    }

    /// Whether it is the plan of exactly this step with a configuration, so that another one would be the same.
    fn is_of(&self, step: Step, config: &Value) -> bool {
        self.steps() == [step] && self.config == *config
    }
}

/// Plans the change from an object to a configuration. A null configuration is a delete.
///
/// The object is current: its stored state was upgraded and read before ([`Provider::upgrade_state`],
/// [`Provider::read_resource`]), also where no version differs.
///
/// # Errors
///
/// If the provider rejects the configuration, makes an invalid plan, or does not answer.
pub async fn plan(
    provider: &Provider,
    resource: &str,
    prior: Option<Object>,
    config: &Value,
    ignored: Option<&IgnoreChanges>,
) -> Result<Plan, ChangeError> {
    let planner = Planner::new(provider, resource)?;
    let original = config;
    let state = prior.as_ref().map_or(Value::Null, |it| it.state.clone());
    let ignoring;
    let config = match ignored {
        Some(ignored) => {
            ignoring = ignore_changes(planner.schema, &state, config, ignored);
            &ignoring
        }
        None => config,
    };
    planner.validate(config).await?;

    let is_tainted = prior.as_ref().is_some_and(|it| it.tainted) && !config.is_null();
    let (first, replacement) = if is_tainted {
        // The object is replaced in any case, so its state plans nothing.
        (planner.plan(&Value::Null, original, &[], None).await?, Replacement::default())
    } else {
        let (private, identity) = prior.as_ref().map_or((&[][..], None), |it| (&it.private[..], it.identity.as_ref()));
        let first = planner.plan(&state, config, private, identity).await?;
        let replacement =
            Replacement::of(planner.schema, &state, &first.answer.planned, &first.answer.requires_replace);
        if !replacement.faults.is_empty() {
            let faults = Faults { errors: replacement.faults, tolerated: Vec::new() };
            return Err(planner.invalid(faults));
        }
        (first, replacement)
    };
    let action = if is_tainted { Action::Replace } else { Action::of(&state, &first.answer.planned, &replacement) };
    let chosen = match action {
        // The first plan has values of the object that will be deleted.
        Action::Replace if !is_tainted => planner.plan(&Value::Null, original, &first.answer.private, None).await?,
        _ => first,
    };
    let private = match (&prior, action) {
        (Some(prior), Action::NoOp) => prior.private.clone(),
        _ => chosen.answer.private,
    };
    Ok(Plan {
        resource: resource.to_owned(),
        config: config.clone(),
        action,
        prior,
        planned: chosen.answer.planned,
        private,
        identity: chosen.answer.identity,
        replace_paths: replacement.paths,
        ignored: ignored.cloned(),
        diagnostics: chosen.answer.diagnostics,
        tolerated: chosen.tolerated,
    })
}

/// A plan without errors.
#[derive(Debug)]
struct Checked {
    answer: PlanAnswer,
    tolerated: Vec<Fault>,
}

/// The calls around plans of one resource.
#[derive(Debug)]
struct Planner<'a> {
    provider: &'a Provider,
    resource: &'a str,
    schema: &'a Schema,
}

impl<'a> Planner<'a> {
    fn new(provider: &'a Provider, resource: &'a str) -> Result<Self, ChangeError> {
        let schema = provider.schemas().resources.get(resource);
        let unknown = || CallError::Unknown { kind: "resource", name: resource.to_owned() };
        Ok(Self { provider, resource, schema: schema.ok_or_else(unknown)? })
    }

    fn invalid(&self, faults: Faults) -> ChangeError {
        ChangeError::InvalidPlan { resource: self.resource.to_owned(), faults }
    }

    fn accepted(&self, diagnostics: Diagnostics) -> Result<Diagnostics, ChangeError> {
        if diagnostics.has_errors() {
            return Err(ChangeError::Rejected { resource: self.resource.to_owned(), diagnostics });
        }
        Ok(diagnostics)
    }

    /// Providers defend themselves against nothing that they reject here.
    async fn validate(&self, config: &Value) -> Result<(), ChangeError> {
        if !config.is_null() {
            self.accepted(self.provider.validate_resource(self.resource, config).await?)?;
        }
        Ok(())
    }

    async fn plan(
        &self,
        prior: &Value,
        config: &Value,
        prior_private: &[u8],
        prior_identity: Option<&Value>,
    ) -> Result<Checked, ChangeError> {
        let proposed = proposed_new_state(self.schema, prior, config);
        let request = PlanRequest { prior, proposed: &proposed, config, prior_private, prior_identity };
        let answer = self.provider.plan(self.resource, request).await?;
        let diagnostics = self.accepted(answer.diagnostics)?;
        let answer = PlanAnswer { diagnostics, ..answer };
        let values = Planned { prior, config, planned: &answer.planned };
        let faults = planned::check(self.schema, values, answer.legacy_type_system);
        if !faults.errors.is_empty() {
            return Err(self.invalid(faults));
        }
        Ok(Checked { answer, tolerated: faults.tolerated })
    }
}
