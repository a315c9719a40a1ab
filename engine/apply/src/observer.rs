//! Who hears of everything a walk does, and keeps it.

use std::fmt;

use async_trait::async_trait;
pub use stoa_engine::ResourceOutcome;
use stoa_engine::{Action, Problem, ResourceId, StateResource, record::Place};
use stoa_runtime::{Health, KubernetesObject};

/// The observer can keep no more, so the walk must not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("whoever keeps the results is gone")]
pub struct Abandoned;

/// A resource that is about to be called for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intended {
    /// Which.
    pub id: ResourceId,
    /// Where, which whoever keeps the intent keeps with it: by that it is looked for when the answer is lost.
    pub place: Place,
}

/// What came of one resource, and what to record of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceResult {
    /// Which.
    pub id: ResourceId,
    /// What was to be done.
    pub action: Action,
    /// What came of it.
    pub outcome: ResourceOutcome,
    /// Why, when it was not done, is not healthy, or was left as it is; holds no sensitive values.
    pub message: String,
    /// When done: what to record; `None` drops the record. When failed: what an earlier call turned out to have made,
    /// to be recorded; `None` leaves the record.
    pub resource: Option<StateResource>,
    /// Where it lives, if it is a Kubernetes object.
    pub kubernetes: Option<KubernetesObject>,
    /// Whether it is no longer recorded, and what it was may be there all the same: it is another deployment's, wanted under
    /// another id, or in a cluster that is given up.
    pub left: bool,
    /// What it depends on.
    pub depends_on: Vec<ResourceId>,
    /// What is wrong, when it failed, nobody knows, or it was done and is not healthy.
    pub problem: Option<Problem>,
}

/// Hears of everything a walk does.
///
/// The walk goes on only when what it told is durable: each method completes then.
#[async_trait]
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// These resources are about to be called for. Nothing is called before this completes.
    ///
    /// # Errors
    ///
    /// [`Abandoned`] when it cannot be kept; the calls are then not made.
    async fn intent(&self, calls: &[Intended], action: Action) -> Result<(), Abandoned>;

    /// This came of a resource. Nothing that depends on it starts before this completes.
    ///
    /// # Errors
    ///
    /// [`Abandoned`] when it cannot be kept; the walk then starts nothing more.
    async fn result(&self, result: ResourceResult) -> Result<(), Abandoned>;

    /// A resource fares so. Nothing waits for this.
    async fn health(&self, id: &ResourceId, health: Health, message: &str);

    /// A Job that Kubernetes deletes then was seen to finish, and is waited for no more. Nothing waits for this.
    async fn finished(&self, id: &ResourceId) {
        let _ = id;
    }

    /// A resource that fared so last is waited for no more, for this reason. Nothing waits for this.
    async fn given_up(&self, id: &ResourceId, health: Health, message: &str);
}
