//! `NamespaceLifecycle`: no object is created in a namespace that is missing or terminating.

use std::sync::Arc;

use async_trait::async_trait;
use stoa_meta::{definition::Scope, object::Object, status::ApiError};

use super::{AdmissionPlugin, Attributes, Operation, Reinvocation};
use super::{NamespaceLookup, NamespacePhase};

/// Refuses writes in a namespace that is missing (404), and new objects in one that is terminating (403).
///
/// Components of the server itself may still create in a terminating one: what has to be done for it to go is theirs
/// to do.
#[derive(Debug)]
pub struct NamespaceLifecycle(Arc<dyn NamespaceLookup>);

impl NamespaceLifecycle {
    /// Looks namespaces up in `lookup`.
    pub fn new(lookup: Arc<dyn NamespaceLookup>) -> Self {
        Self(lookup)
    }
}

#[async_trait]
impl AdmissionPlugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn admits(&self, attributes: &Attributes<'_>) -> bool {
        let namespaced = attributes.definition.scope == Scope::Namespaced && !attributes.namespace.is_empty();
        let internal = attributes.context.user.is_internal();
        namespaced
            && match attributes.operation {
                Operation::Create => true,
                // The server itself may take its finalizers from what a namespace left behind.
                Operation::Update => !internal,
                Operation::Delete => false,
            }
    }

    fn reads_object(&self) -> bool {
        false
    }

    async fn admit(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&mut Object>,
        reinvocation: &mut Reinvocation,
    ) -> Result<(), ApiError> {
        if reinvocation.is_second() {
            return Ok(());
        }
        let namespace = attributes.namespace;
        match self.0.phase(namespace).await? {
            Some(NamespacePhase::Active) => Ok(()),
            Some(NamespacePhase::Terminating) if attributes.operation != Operation::Create => Ok(()),
            Some(NamespacePhase::Terminating) if attributes.context.user.is_internal() => Ok(()),
            None => Err(ApiError::not_found("", "namespaces", namespace)),
            Some(NamespacePhase::Terminating) => Err(attributes
                .forbidden(
                    object.as_deref(),
                    format_args!(
                        "unable to create new content in namespace {namespace} because it is being terminated"
                    ),
                )
                .with_cause(
                    "NamespaceTerminating",
                    "metadata.namespace",
                    format!("namespace {namespace} is being terminated"),
                )),
        }
    }
}
