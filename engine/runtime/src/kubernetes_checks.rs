//! The questions that only the planner of Kubernetes objects asks.

use async_trait::async_trait;
use stoa_engine::{Cascade, Clusters, ForeignContents, Resource, ResourceId, Schemas, StateResource};

use crate::{RuntimeError, Validation};

/// The questions of the planner about Kubernetes objects. The defaults are the answers of a runtime that has none.
#[async_trait]
pub trait KubernetesChecks: Send + Sync {
    /// The clusters of the workspace. Resources without a cluster name go to the first one. A runtime with a single
    /// destination has none.
    fn clusters(&self) -> &Clusters {
        static NONE: Clusters = Clusters::NONE;
        &NONE
    }

    /// Whether [`preview`](crate::Runtime::preview) asks a server that validates, and that rejects unknown fields.
    /// Otherwise the planner validates, and unknown fields are warnings: later versions may have them.
    fn validates(&self) -> bool {
        true
    }

    /// The planner's validation for a runtime that [does not validate](Self::validates).
    async fn validation(&self) -> Result<Validation, RuntimeError> {
        Ok(Validation::default())
    }

    /// The namespaces that [`preview`](crate::Runtime::preview) found not to be there, with the names of their clusters.
    fn missing_namespaces(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// The merge schemas of these resources, whose kinds are not built in, as far as the infrastructure has them. Makes
    /// as few calls as possible.
    ///
    /// # Errors
    ///
    /// The infrastructure cannot be reached. A kind without a readable schema is left out.
    async fn schemas(&self, desired: &[&Resource]) -> Result<Schemas, RuntimeError> {
        let _ = desired;
        Ok(Schemas::new())
    }

    /// The cluster-scoped kinds of these resources, as group and kind. The engine asks where the scope decides whether
    /// two resources are one object.
    ///
    /// # Errors
    ///
    /// The infrastructure cannot be reached. Kinds that do not exist are left out.
    async fn cluster_scoped(&self, desired: &[&Resource]) -> Result<Vec<(String, String)>, RuntimeError> {
        let _ = desired;
        Ok(Vec::new())
    }

    /// The objects of other owners in a recorded namespace, or of a recorded definition. Changes nothing.
    ///
    /// # Errors
    ///
    /// They cannot be listed for now. Kinds that the credentials may not list are in the answer, and reject the
    /// deletion by default.
    async fn foreign_contents(
        &self,
        holder: &StateResource,
        contents: &Cascade,
    ) -> Result<ForeignContents, RuntimeError> {
        let _ = (holder, contents);
        Ok(ForeignContents::default())
    }

    /// Whether the infrastructure deletes a finished resource, such as a Job with `spec.ttlSecondsAfterFinished`.
    fn is_deleted_when_finished(&self, desired: &Resource) -> bool {
        let _ = desired;
        false
    }

    /// Whether a resource finished during the wait for its health: a Job that the infrastructure then deletes.
    fn has_finished(&self, id: &ResourceId) -> bool {
        let _ = id;
        false
    }
}

/// The answers of a runtime without Kubernetes objects.
#[derive(Clone, Copy, Debug)]
pub struct NoKubernetes;

impl KubernetesChecks for NoKubernetes {}
