//! The pure part of the engine: what is wanted ([`Spec`]), what is recorded ([`State`]), in which
//! order things depend on each other, and what has to change ([`Plan`]).
//!
//! **Invariant:** nothing here waits, and nothing reads a clock, file or socket. Everything a
//! function needs is an argument, so the same input always gives the same plan.
//!
//! Elsewhere: `stoa-runtime` reaches the infrastructure, `stoa-apply` carries a plan out.

pub mod plan;
pub mod spec;
pub mod state;

pub use plan::{Action, Plan, PlannedAction};
pub use spec::{Resource, ResourceId, ResourceType, Spec};
pub use state::{State, StateResource};
