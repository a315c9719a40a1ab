//! Carries out what the engine decides: reads what is live, plans, and walks a plan against a runtime.
//!
//! Start at [`plan()`] and [`execute`]. The pure decisions are `stoa-engine`'s; what the calls do is
//! the runtime's. Whoever calls [`execute`] keeps what it is told through an [`Observer`].

mod call;
mod custom;
mod destination;
mod early;
mod execute;
mod health;
mod importing;
mod leave;
mod lost;
mod observer;
mod permits;
mod planning;
mod results;
mod retry;
mod schedule;
pub mod structural;
mod unmade;
mod validation;
mod values;
mod verify;
mod walk;

pub use call::MARGIN;
pub use destination::leads_elsewhere;
pub use execute::{Execution, Interrupted, Options, Outcome, execute};
pub use health::{Unhealthy, unhealthy};
pub use importing::import;
pub use observer::{Abandoned, Intended, Observer, ResourceOutcome, ResourceResult};
pub use planning::{PlanError, Planned, Planning, plan};
pub use stoa_runtime::Grant;
