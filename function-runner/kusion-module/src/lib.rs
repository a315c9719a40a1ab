//! A client of Kusion's modules: programs that make resources of the accessories and workloads of an AppConfiguration.
//!
//! Start at [`module::Module`], a process that answers calls, and at [`mirror::Mirror`], the folder with the programs. [`patcher`] reads
//! the part of an answer that changes the resources of others, and [`configuration`] the platform's settings of a module.
//!
//! Elsewhere: `stoa_terraform_provider::process` starts the processes, which follow the same plugin protocol as providers of Terraform.
#![forbid(unsafe_code)]

pub mod configuration;
pub mod mirror;
pub mod module;
pub mod patcher;

/// The contract of a module, which `cargo run -p xtask --example protos` writes from `proto/`.
pub mod proto {
    #![allow(missing_docs, unreachable_pub, reason = "generated code; the documentation is in the proto")]
    #![allow(clippy::all, clippy::allow_attributes_without_reason, reason = "generated code")]

    include!("generated/_.rs");
}
