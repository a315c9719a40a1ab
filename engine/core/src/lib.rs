//! The pure part of the engine: what is wanted ([`Spec`]), what is recorded ([`State`]), in which
//! order things depend on each other, and what has to change ([`Plan`]).
//!
//! **Invariant:** nothing here waits, and nothing reads a clock, file or socket. Everything a
//! function needs is an argument, so the same input always gives the same plan.
//!
//! Elsewhere: `stoa-runtime` reaches the infrastructure, `stoa-apply` carries a plan out.

pub mod bounds;
pub mod changes;
mod claims;
pub mod cluster;
pub mod conflict;
mod contents;
pub mod definitions;
pub mod deletion;
mod dependencies;
pub mod diff;
pub mod digest;
pub mod document;
pub mod encrypted;
pub mod given_up;
pub mod going;
pub mod graph;
pub mod health;
pub mod held;
pub mod ignore;
pub mod import;
pub mod kinds;
pub mod lifting;
pub mod lookup;
pub mod masks;
pub mod merge;
pub mod namespaced;
pub mod near;
pub mod normalize;
pub mod object;
pub mod owner;
pub mod path;
pub mod plan;
pub mod planner;
pub mod premises;
mod prerequisites;
pub mod problem;
pub mod pruned;
pub mod record;
pub mod reference;
pub mod render;
pub mod resolve;
pub mod schema;
pub mod scope;
pub mod sealed;
pub mod sensitive;
pub mod spec;
pub mod stage;
pub mod state;
pub mod timeout;
pub mod types;
pub mod unread;
pub mod unrecorded;
mod validate;
pub mod validation;
pub mod warnings;

pub use changes::{Change, Changes, ResourceChange};
pub use cluster::Clusters;
pub use conflict::FieldConflict;
pub use deletion::MassDeletion;
pub use given_up::GivenUp;
pub use graph::{Cycle, Graph};
pub use held::{Contents, Foreign, Held, UnlistedContents};
pub use ignore::Ignored;
pub use lifting::Lifting;
pub use masks::{DigestKey, DigestKeys};
pub use object::{KubernetesObject, ObjectRef};
pub use owner::Owner;
pub use path::FieldPath;
pub use plan::{Action, FieldChange, FoundResource, Live, Plan, PlannedAction, Preview, Summary};
pub use planner::{PlanInput, plan};
pub use problem::Problem;
pub use record::{Health, ResourceOutcome};
pub use schema::{Schema, Schemas};
pub use scope::Scopes;
pub use sensitive::Sensitive;
pub use spec::{Resource, ResourceId, ResourceType, Spec};
pub use stage::Stage;
pub use state::{OpenCall, State, StateResource};
pub use validation::Validation;
pub use warnings::Warnings;
