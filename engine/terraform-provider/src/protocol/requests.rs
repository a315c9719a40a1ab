//! The requests and answers of resources.

use bytes::Bytes;

use crate::value::{Json, Path, Value};

use super::Diagnostics;

/// A stored state in JSON.
#[derive(Clone, Debug)]
pub struct RawState<'a> {
    /// The version of the schema that it has the form of.
    pub version: i64,
    /// The attributes.
    pub json: &'a Json,
}

/// A state of the schema's version.
#[derive(Clone, Debug)]
pub struct UpgradeAnswer {
    /// The state.
    pub state: Value,
    /// The reports; errors mean that the state cannot be converted.
    pub diagnostics: Diagnostics,
}

/// The object that is read.
#[derive(Clone, Copy, Debug)]
pub struct ReadRequest<'a> {
    /// The known state.
    pub state: &'a Value,
    /// Its private data.
    pub private: &'a [u8],
    /// Its identity, if the resource has one.
    pub identity: Option<&'a Value>,
}

/// The current state of an object.
#[derive(Clone, Debug)]
pub struct ReadAnswer {
    /// The state; null if the object does not exist.
    pub state: Value,
    /// Its private data.
    pub private: Bytes,
    /// Its identity.
    pub identity: Option<Value>,
    /// The reports; errors mean that nothing is known.
    pub diagnostics: Diagnostics,
}

/// A change that is planned. A create has no prior state, and a delete neither proposed state nor configuration.
#[derive(Clone, Copy, Debug)]
pub struct PlanRequest<'a> {
    /// The state before.
    pub prior: &'a Value,
    /// The state that the configuration asks for.
    pub proposed: &'a Value,
    /// The configuration.
    pub config: &'a Value,
    /// The private data of the state before. For the second plan of a replacement: those of the first plan.
    pub prior_private: &'a [u8],
    /// The identity of the state before.
    pub prior_identity: Option<&'a Value>,
}

/// A planned change.
#[derive(Clone, Debug)]
pub struct PlanAnswer {
    /// The state after, with unknown parts.
    pub planned: Value,
    /// The attributes whose change needs another object. Such a plan must not be applied: plan again without a prior
    /// state.
    pub requires_replace: Vec<Path>,
    /// The private data for the apply.
    pub private: Bytes,
    /// The planned identity.
    pub identity: Option<Value>,
    /// Whether the provider's library cannot keep the promises of plans.
    pub legacy_type_system: bool,
    /// The reports; errors mean that there is no plan.
    pub diagnostics: Diagnostics,
}

/// A change that is made.
#[derive(Clone, Copy, Debug)]
pub struct ApplyRequest<'a> {
    /// The state before.
    pub prior: &'a Value,
    /// The planned state; null for a delete.
    pub planned: &'a Value,
    /// The configuration; null for a delete.
    pub config: &'a Value,
    /// The private data of the plan.
    pub planned_private: &'a [u8],
    /// The planned identity.
    pub planned_identity: Option<&'a Value>,
}

/// The result of a change.
#[derive(Clone, Debug)]
pub struct ApplyAnswer {
    /// The state after. With errors, it is the state of a part of the change.
    pub state: Value,
    /// Its private data.
    pub private: Bytes,
    /// Its identity.
    pub identity: Option<Value>,
    /// Whether the provider's library cannot keep the promises of plans.
    pub legacy_type_system: bool,
    /// The reports.
    pub diagnostics: Diagnostics,
}

/// The name of an existing object.
#[derive(Clone, Copy, Debug)]
pub enum ImportRequest<'a> {
    /// The id, whose form the resource defines.
    Id(&'a str),
    /// The identity.
    Identity(&'a Value),
}

/// An existing object. Only a read shows whether it exists.
#[derive(Clone, Debug)]
pub struct ImportAnswer {
    /// The state for the read that has to follow.
    pub state: Value,
    /// The private data for this read.
    pub private: Bytes,
    /// The identity for this read.
    pub identity: Option<Value>,
    /// The reports.
    pub diagnostics: Diagnostics,
}

/// A state of another type.
#[derive(Clone, Debug)]
pub struct MoveRequest<'a> {
    /// The address of the provider of the other type, such as `registry.terraform.io/hashicorp/null`.
    pub source_provider: &'a str,
    /// The other type.
    pub source_type: &'a str,
    /// The state.
    pub source: RawState<'a>,
    /// The private data.
    pub source_private: &'a [u8],
    /// The identity with its version.
    pub source_identity: Option<RawState<'a>>,
}

/// A state that moved.
#[derive(Clone, Debug)]
pub struct MoveAnswer {
    /// The state.
    pub state: Value,
    /// Its private data.
    pub private: Bytes,
    /// Its identity.
    pub identity: Option<Value>,
    /// The reports; errors mean that the state cannot move.
    pub diagnostics: Diagnostics,
}
