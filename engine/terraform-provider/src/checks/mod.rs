//! The promises of plans and results, which the protocol leaves to the client.
//!
//! Start at [`planned::check`], [`applied::check`] and [`Action::of`]. Providers with the older library break some
//! promises by design: the answer says so, and their faults are only worth a log line.

pub mod action;
pub mod applied;
pub mod planned;

use std::fmt;

use crate::value::Path;

pub use self::action::{Action, Replacement};

/// A broken promise of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The attribute.
    pub path: Path,
    /// The promise.
    pub kind: FaultKind,
}

/// The promise that a provider broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    /// The answer has another type than the schema.
    #[error("the value does not have the type of the schema")]
    Type,
    /// A value of the configuration is planned otherwise.
    #[error("the plan differs from the configuration, and the provider may not choose the value")]
    NotConfigured,
    /// A plan has another number of blocks or elements than the configuration.
    #[error("the plan has {planned} elements, and the configuration {configured}")]
    Count {
        /// Those of the plan.
        planned: usize,
        /// Those of the configuration.
        configured: usize,
    },
    /// A plan or state has a write-only value.
    #[error("a write-only value is not null")]
    WriteOnly,
    /// A delete is planned as something else, or the reverse.
    #[error("the object is {found}, and should be {expected}")]
    Existence {
        /// What the answer has.
        found: &'static str,
        /// What the request asks for.
        expected: &'static str,
    },
    /// A value differs from the plan.
    #[error("the value after the apply differs from the plan")]
    NotPlanned,
    /// A value is unknown after the apply.
    #[error("the value is unknown after the apply")]
    Unknown,
    /// A path that needs another object leads nowhere.
    #[error("the provider requires another object for an attribute that does not exist")]
    NoSuchAttribute,
}

impl FaultKind {
    /// Whether providers with the older library may break this promise too.
    fn is_tolerated(self) -> bool {
        !matches!(self, Self::Type | Self::Unknown | Self::NoSuchAttribute)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_root() { write!(f, "{}", self.kind) } else { write!(f, "{}: {}", self.path, self.kind) }
    }
}

/// The broken promises of one answer. Each is a defect of the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Faults that forbid the use of a plan, or make a result suspicious.
    pub errors: Vec<Fault>,
    /// Faults that the provider's older library cannot avoid.
    pub tolerated: Vec<Fault>,
}

impl Faults {
    fn sorted(all: Vec<Fault>, legacy_type_system: bool) -> Self {
        let (tolerated, errors) = all.into_iter().partition(|it| legacy_type_system && it.kind.is_tolerated());
        Self { errors, tolerated }
    }
}

impl fmt::Display for Faults {
    /// The errors.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.errors.iter().enumerate() {
            write!(f, "{}{fault}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
