//! The API groups of Stoa: types, defaults and schemas. Data only.
//!
//! Each kind is a Rust type that a kube-rs client uses as it is
//! (`kube::Api::<Stack>::namespaced(client, "shop")`) and that the API server serves: names,
//! schema, descriptions and defaults come from the derives. The server checks
//! fields that depend on each other, with one strategy per kind.
//!
//! - [`config`]: Organization, Project, Stack, Source: the kinds that application teams write.
//! - [`platform`]: Workspace, Backend, NotificationSink: the kinds that the platform team writes.
//! - [`delivery`]: Run, Workflow, Release, Resource: the kinds that record what Stoa does.

pub mod common;
pub mod config;
pub mod delivery;
pub mod labels;
pub mod platform;
pub mod reason;

pub use common::{
    Condition, DeletionPolicy, DurationString, LocalReference, LocalSecretKeyReference, SecretKeyReference,
    SecretReference, Subject,
};
pub use config::{Organization, Project, Source, Stack};
pub use delivery::{Release, Resource, Run, Workflow};
pub use platform::{Backend, NotificationSink, Workspace};

/// Returns the definitions of all kinds, as `kube` derives them.
///
/// Tools use them as CRDs, and the server makes its own definitions from them.
pub fn crds() -> Vec<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition> {
    use kube::CustomResourceExt as _;
    vec![
        Organization::crd(),
        Project::crd(),
        Stack::crd(),
        Source::crd(),
        Workspace::crd(),
        Backend::crd(),
        NotificationSink::crd(),
        Run::crd(),
        Release::crd(),
        Resource::crd(),
        Workflow::crd(),
    ]
}

#[cfg(test)]
mod tests;
