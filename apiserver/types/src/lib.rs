//! The API groups of Stoa: types, defaults and schemas. Data only.
//!
//! Each kind is a Rust type that a kube-rs client uses as it is
//! (`kube::Api::<Stack>::namespaced(client, "shop")`) and that the API server serves: names,
//! schema, descriptions and defaults come from the derives. The server checks
//! fields that depend on each other, with one strategy per kind.
//!
//! - [`config`]: the kinds that application teams write.
//! - [`platform`]: the kinds that the platform team writes.
//! - [`delivery`]: the kinds that record what Stoa does.
//! - [`scheduler`]: the kinds of Kalypso's scheduler.
//! - [`hub`]: the kinds of Kalypso's observability hub.
//! - [`porch`] and [`porchconfig`]: packages and their repositories, by the names of Porch.
//!
//! Elsewhere: `stoa-kinds` lists all kinds.

pub mod common;
pub mod config;
pub mod delivery;
pub mod hub;
pub mod labels;
pub mod names;
pub mod platform;
pub mod porch;
pub mod porchconfig;
pub mod reason;
pub mod scheduler;

pub use common::{
    Condition, DeletionPolicy, DurationString, LocalReference, LocalSecretKeyReference, SecretKeyReference,
    SecretReference, Subject,
};
pub use config::{Organization, Project, Source, Stack};
pub use delivery::{Release, Resource, Run, Workflow};
pub use platform::{Backend, Module, NotificationSink, VariableSet, Workspace};

#[cfg(test)]
mod tests;
