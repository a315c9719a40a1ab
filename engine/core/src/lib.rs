//! The pure part of the engine: the wanted resources ([`Spec`]), the recorded ones ([`State`]), their order, and the
//! changes between them ([`Plan`]).
//!
//! **Invariant:** nothing here waits, and nothing reads a clock, file or socket. Everything a function needs is an
//! argument, so the same input always gives the same plan.
//!
//! Elsewhere: `stoa-runtime` reaches the infrastructure, `stoa-apply` carries a plan out.

pub mod bounds;
pub mod changes;
pub mod cluster;
pub mod conflict;
pub mod declared;
pub mod deletion;
mod dependencies;
pub mod diff;
pub mod digest;
pub mod document;
pub mod encrypted;
pub mod forgotten_clusters;
pub mod graph;
pub mod health;
pub mod hook;
pub mod ignore;
pub mod import;
pub mod kind_rules;
pub mod lookup;
pub mod moved;
pub mod object;
pub mod overlay;
pub mod owner;
pub mod path;
pub mod plan;
pub mod planner;
pub mod problem;
pub mod provider;
pub mod provider_address;
mod provider_state;
pub mod record;
pub mod reference;
pub mod render;
pub mod resolve;
pub mod revision;
pub mod schema;
pub mod scope;
pub mod sealed;
pub mod secret_digest;
pub mod sensitive;
pub mod spec;
pub mod stage;
pub mod stale_plan;
pub mod state;
pub mod stored_secret;
mod stored_state;
pub mod suggest;
pub mod timeout;
pub mod types;
pub mod unsupported;
pub mod untracked;
mod validate;
pub mod validation;
pub mod warnings;

pub use changes::{Change, Changes, ResourceChange};
pub use cluster::Clusters;
pub use conflict::FieldConflict;
pub use deletion::MassDeletion;
pub use forgotten_clusters::ForgottenClusters;
pub use graph::{Cycle, Graph};
pub use hook::{HookEvent, HookOperation, PlannedHook};
pub use ignore::Ignored;
pub use kind_rules::{KindRules, NoRules};
pub use object::{KubernetesObject, ObjectRef};
pub use owner::Owner;
pub use path::FieldPath;
pub use plan::{Action, FieldChange, FoundResource, Live, Plan, PlannedAction, Preview, ProviderPlan, Summary};
pub use planner::{PlanInput, plan};
pub use problem::Problem;
pub use provider::{ProviderReference, ResourceMode, SourceLock};
pub use provider_address::ProviderAddress;
pub use provider_state::ProviderState;
pub use record::{Health, ResourceOutcome};
pub use schema::{Schema, Schemas};
pub use scope::Scopes;
pub use secret_digest::{DigestKey, DigestKeys};
pub use sensitive::Sensitive;
pub use spec::{Resource, ResourceId, ResourceType, Spec};
pub use stage::Stage;
pub use state::{OpenCall, State, StateResource};
pub use stored_state::{StoredIdentity, StoredState, StoredStateError};
pub use validation::Validation;
pub use warnings::Warnings;
