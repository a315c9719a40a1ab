//! The Terraform runtime: resources of Terraform's providers, without Terraform.
//!
//! Start at [`TerraformRuntime`]. `stoa-terraform-provider` speaks with the providers; this crate maps resources,
//! records and plans of the engine to its objects.

mod providers;

pub use providers::{ProviderRequest, Providers};
