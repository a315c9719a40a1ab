//! Resources of Terraform's providers beside Kubernetes objects, through kubectl alone, behind a real kube-apiserver and
//! standalone.
//!
//! Elsewhere: `harness` makes a mirror of providers and a Workspace that uses it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod adoption;
mod crashes;
mod data;
mod failures;
mod harness;
mod journey;
mod standalone;
