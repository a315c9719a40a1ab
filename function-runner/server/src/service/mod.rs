//! The gRPC services of the process: one module each.
//!
//! Start at `runner`, which serves the API server. `packages` has package repositories, `functions` Porch's functions, and `fleet`
//! the templates and proposals of fleets. All share [`Calls`], the limits of calls.
//!
//! Elsewhere: `serve` has sockets, health and shutdown. The services only decode requests, ask others, and encode their answers.

mod calls;
mod fleet;
mod functions;
mod packages;
mod runner;

use crate::failure::Failure;

pub(crate) use self::calls::{Calls, Limits};
pub(crate) use self::fleet::FleetService;
pub(crate) use self::functions::FunctionService;
pub(crate) use self::packages::PackageService;
pub(crate) use self::runner::RunnerService;

/// The value of a field that a request must have.
///
/// # Errors
///
/// `INVALID_ARGUMENT` that names the field.
pub(crate) fn required<T>(value: Option<T>, field: &str) -> Result<T, Failure> {
    value.ok_or_else(|| Failure::request(format!("{field} is missing")))
}
