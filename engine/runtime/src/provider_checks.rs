//! The questions about resources that a provider decides about.

use std::collections::BTreeSet;

use async_trait::async_trait;
use serde_json::{Map, Value};
use stoa_engine::provider::ProviderLock;
use stoa_engine::{FieldPath, Resource, ResourceType, StateResource};

use crate::RuntimeError;

/// The questions about resources that a provider decides about. The defaults are the answers of a runtime without providers.
#[async_trait]
pub trait ProviderChecks: Send + Sync {
    /// Whether [`preview`](crate::Runtime::preview) decides what a change of a resource of this type is
    /// ([`Preview::Planned`](crate::Preview::Planned)). It then takes unknown values, and is asked for unchanged resources
    /// too.
    fn decides(&self, kind: ResourceType) -> bool {
        let _ = kind;
        false
    }

    /// Gets ready for these resources, in the order of their answers: it finds the schemas for
    /// [`sensitive_paths`](Self::sensitive_paths).
    ///
    /// # Errors
    ///
    /// Nothing can be prepared at all. Problems of one resource are in its answer, such as an unknown type.
    async fn prepare(&self, resources: &[&Resource]) -> Result<Vec<Result<(), RuntimeError>>, RuntimeError> {
        Ok(resources.iter().map(|_| Ok(())).collect())
    }

    /// The paths in attributes or a live object of a [prepared](Self::prepare) resource that are sensitive by a schema.
    fn sensitive_paths(&self, resource: &Resource, object: &Map<String, Value>) -> BTreeSet<FieldPath> {
        let _ = (resource, object);
        BTreeSet::new()
    }

    /// The paths in attributes of a [prepared](Self::prepare) resource whose values are sent with a change, and neither
    /// planned, read back nor recorded.
    fn write_only_paths(&self, resource: &Resource, attributes: &Map<String, Value>) -> BTreeSet<FieldPath> {
        let _ = (resource, attributes);
        BTreeSet::new()
    }

    /// The lock that decides the version of the provider of a resource, where it has one.
    fn lock(&self, resource: &Resource) -> Option<ProviderLock> {
        let _ = resource;
        None
    }

    /// Asks whether the object of a record may be deleted, without a change. [`read`](crate::Runtime::read) of the same
    /// runtime has found it. Returns warnings, without secrets.
    ///
    /// # Errors
    ///
    /// The rejections of [`delete`](crate::Runtime::delete) that are known before it.
    async fn preview_delete(&self, prior: &StateResource) -> Result<Vec<String>, RuntimeError> {
        let _ = prior;
        Ok(Vec::new())
    }
}

/// The answers of a runtime without providers.
#[derive(Clone, Copy, Debug)]
pub struct NoProviders;

impl ProviderChecks for NoProviders {}
