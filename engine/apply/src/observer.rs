//! The observer of a walk: it records intents before calls, and results after them.

use std::fmt;

use async_trait::async_trait;
pub use stoa_engine::ResourceOutcome;
use stoa_engine::{Action, Problem, ResourceId, StateResource, record::CallTarget};
use stoa_runtime::{Health, KubernetesObject};

/// The observer can keep no more, so the walk must not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the results can no longer be recorded")]
pub struct Abandoned;

/// A resource that is about to be called for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intended {
    /// Which.
    pub id: ResourceId,
    /// Its target, which the observer records with the intent: a lost call is searched there.
    pub place: CallTarget,
}

/// The result of one resource, and its record.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceResult {
    /// Which.
    pub id: ResourceId,
    /// The action.
    pub action: Action,
    /// The result.
    pub outcome: ResourceOutcome,
    /// Why the action was not done, or the resource is not healthy or was left; holds no sensitive values.
    pub message: String,
    /// When done: the new record; `None` drops the record. When failed: the object of an earlier call, to be recorded;
    /// `None` keeps the record.
    pub resource: Option<StateResource>,
    /// The Kubernetes object, if it is one.
    pub kubernetes: Option<KubernetesObject>,
    /// Whether the record is dropped although the object may still exist: another deployment owns it, another id has
    /// it, or its cluster is forgotten.
    pub left: bool,
    /// Its dependencies.
    pub depends_on: Vec<ResourceId>,
    /// The problem of a failed or unknown result, or of an unhealthy resource.
    pub problem: Option<Problem>,
}

/// Records everything that a walk does.
///
/// The walk continues only after a report is durable: each method completes then.
#[async_trait]
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// Records that these resources are about to be called. No call starts before this completes.
    ///
    /// # Errors
    ///
    /// [`Abandoned`] when the intent cannot be recorded; the calls are then not made.
    async fn intent(&self, calls: &[Intended], action: Action) -> Result<(), Abandoned>;

    /// Records the result of a resource. No dependent starts before this completes.
    ///
    /// # Errors
    ///
    /// [`Abandoned`] when the result cannot be recorded; the walk then starts nothing more.
    async fn result(&self, result: ResourceResult) -> Result<(), Abandoned>;

    /// Reports the health of a resource. Nothing waits for this.
    async fn health(&self, id: &ResourceId, health: Health, message: &str);

    /// A Job that Kubernetes deletes then was seen to finish, and is waited for no more. Nothing waits for this.
    async fn finished(&self, id: &ResourceId) {
        let _ = id;
    }

    /// A resource that fared so last is waited for no more, for this reason. Nothing waits for this.
    async fn health_timed_out(&self, id: &ResourceId, health: Health, message: &str);
}
