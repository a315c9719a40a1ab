//! The Terraform runtime: resources of Terraform's providers, without Terraform.
//!
//! Start at [`TerraformRuntime`]. `stoa-terraform-provider` speaks with the providers; this crate maps resources,
//! records and plans of the engine to its objects.
//!
//! Elsewhere: `session` has the calls for one object, `data_source` and `ephemeral` those of what is only read,
//! `conversion` its values, `stored` their form in records,
//! `errors` what a failure means, and [`Providers`] is where providers come from.

mod conversion;
mod data_source;
mod ephemeral;
mod errors;
mod providers;
mod runtime;
mod session;
mod stored;

pub use providers::{ProviderRequest, Providers};
pub use runtime::{DESTINATION, TerraformRuntime};
