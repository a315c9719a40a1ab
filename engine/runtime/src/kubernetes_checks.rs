//! The questions that only the planner of Kubernetes objects asks.

use std::collections::HashSet;

use async_trait::async_trait;
use serde_json::{Map, Value};
use stoa_engine::{Clusters, KindRules, NoRules, Resource, ResourceId, Schemas, StateResource};

use crate::{RuntimeError, Validation};

/// The effect of a deletion on objects of other owners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeletionVerdict {
    /// Why the deletion is rejected, if it is.
    pub refusal: Option<String>,
    /// The warnings about a deletion that is not rejected.
    pub warnings: Vec<String>,
}

/// The end of a Job that no longer exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// It finished, and the infrastructure deleted it for that.
    Finished,
    /// The same is assumed, since nothing contradicts it.
    Assumed,
    /// It failed, or somebody deleted it before its end.
    Missing,
}

/// The questions of the planner about Kubernetes objects. The defaults are the answers of a runtime that has none.
#[async_trait]
pub trait KubernetesChecks: Send + Sync {
    /// The rules of its kinds.
    fn rules(&self) -> &'static dyn KindRules {
        &NoRules
    }

    /// The clusters of the workspace. Resources without a cluster name go to the first one. A runtime with a single
    /// destination has none, but [scopes](KindRules::scopes) if its kinds have them.
    fn clusters(&self) -> &Clusters {
        static NONE: Clusters = Clusters::NONE;
        &NONE
    }

    /// Whether [`preview`](crate::Runtime::preview) asks a server that validates, and that rejects unknown fields.
    /// Otherwise the planner validates, and unknown fields are warnings: later versions may have them.
    fn validates(&self) -> bool {
        true
    }

    /// The planner's validation of these resources, for a runtime that [does not validate](Self::validates).
    async fn validation(&self, desired: &[&Resource]) -> Result<Validation, RuntimeError> {
        let _ = desired;
        Ok(Validation::default())
    }

    /// The files in which objects may be that cannot be read, each with the reason: a sentence that begins with its path.
    async fn unreadable_files(&self) -> Result<Vec<String>, RuntimeError> {
        Ok(Vec::new())
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

    /// The objects of other owners that the deletion of a recorded namespace or definition would delete too. `live` is the
    /// object under its name. Objects with the uids in `own` are the deployment's. Changes nothing.
    ///
    /// # Errors
    ///
    /// They cannot be listed for now. Kinds that the credentials may not list are in the answer, and reject the
    /// deletion by default.
    async fn foreign_contents(
        &self,
        holder: &StateResource,
        live: Option<&Map<String, Value>>,
        own: &HashSet<&str>,
    ) -> Result<DeletionVerdict, RuntimeError> {
        let _ = (holder, live, own);
        Ok(DeletionVerdict::default())
    }

    /// Whether the infrastructure deletes a recorded resource after its end, such as a Job with
    /// `spec.ttlSecondsAfterFinished`.
    fn is_deleted_when_finished(&self, recorded: &StateResource) -> bool {
        let _ = recorded;
        false
    }

    /// Whether a resource finished during the wait for its health: a Job that the infrastructure then deletes.
    fn has_finished(&self, id: &ResourceId) -> bool {
        let _ = id;
        false
    }

    /// The ends of recorded Jobs that are [deleted after their end](Self::is_deleted_when_finished) and no longer exist, in
    /// their order. Changes nothing.
    ///
    /// # Errors
    ///
    /// The infrastructure cannot be reached.
    async fn job_ends(&self, absent: &[&StateResource]) -> Result<Vec<JobEnd>, RuntimeError> {
        Ok(vec![JobEnd::Missing; absent.len()])
    }
}

/// The answers of a runtime without Kubernetes objects.
#[derive(Clone, Copy, Debug)]
pub struct NoKubernetes;

impl KubernetesChecks for NoKubernetes {}
