//! Plans and executes changes: reads live objects, makes a plan, and walks it against a runtime.
//!
//! Start at [`plan()`] and [`execute`]. The pure decisions are `stoa-engine`'s, and the calls are the runtime's. The
//! caller of [`execute`] records intents and results through an [`Observer`].

mod absent_jobs;
mod call;
mod commit_order;
mod custom;
mod destination;
mod ephemeral;
mod execute;
mod health;
mod hooks;
mod importing;
mod missing_namespaces;
mod observer;
mod permits;
mod planning;
mod providers;
mod recovery;
mod results;
mod retry;
mod schedule;
pub mod structural;
mod validation;
mod values;
mod verify;
mod verify_unchanged;
mod walk;

pub use call::MARGIN;
pub use destination::leads_elsewhere;
pub use execute::{Execution, Interrupted, Options, Outcome, execute};
pub use health::{Unhealthy, unhealthy};
pub use hooks::FailedHook;
pub use importing::import;
pub use observer::{Abandoned, Intended, Observer, ResourceOutcome, ResourceResult};
pub use planning::{PlanError, Planned, Planning, plan};
pub use stoa_runtime::Grant;
