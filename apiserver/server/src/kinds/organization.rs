//! Organization: names that may be namespaces, and none that exists already.

use std::sync::Arc;

use async_trait::async_trait;
use kube::{CustomResourceExt as _, ResourceExt as _};
use stoa_machinery::{
    ApiError, RequestContext, ResourceDefinition,
    definition::{Cell, Column},
    status::FieldError,
    strategy::{Admission, Strategy},
};
use stoa_types::{DeletionPolicy, Organization, Stack, labels};

use super::{check, lookup::Lookup};
use crate::cluster::Cluster;

/// Namespaces that belong to Kubernetes or to Stoa.
const RESERVED: &[&str] = &["default", "stoa-system"];

pub(crate) fn definition() -> ResourceDefinition {
    ResourceDefinition::from_crd(&Organization::crd()).columns(&[
        Column::new(
            "Namespace",
            Cell::Path(&["status", "namespace"]),
            "The namespace that was created for the organization.",
        ),
        Column::new(
            "Ready",
            Cell::Compute(|o| check::condition_status(o.get_path(&["status", "conditions"]), "Ready")),
            "Whether the namespace is there and is the organization's own.",
        ),
        Column::age(),
        Column::new("Description", Cell::Path(&["spec", "description"]), "What the organization is.").wide(),
    ])
}

#[derive(Debug)]
pub(crate) struct OrganizationStrategy {
    pub(crate) lookup: Lookup,
    pub(crate) cluster: Arc<dyn Cluster>,
}

#[async_trait]
impl Strategy for OrganizationStrategy {
    type Object = Organization;

    fn prepare_for_create(&self, _: &RequestContext, object: &mut Organization) {
        let finalizers = object.finalizers_mut();
        if !finalizers.iter().any(|f| f == labels::NAMESPACE_FINALIZER) {
            finalizers.push(labels::NAMESPACE_FINALIZER.to_owned());
        }
    }

    fn validate(&self, object: &Organization) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let name = object.name_any();
        let is_label = name.len() <= 63
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !name.starts_with('-')
            && !name.ends_with('-');
        if !is_label {
            errors.push(FieldError::invalid(
                "metadata.name",
                &name,
                "must be usable as the name of a namespace: at most 63 characters of a-z, 0-9 and '-', beginning and ending with a letter or digit",
            ));
        }
        if RESERVED.contains(&name.as_str()) || name.starts_with("kube-") {
            errors.push(FieldError::invalid("metadata.name", &name, "the name is reserved"));
        }
        check::subjects("spec.owners", &object.spec.owners, &mut errors);
        for (i, member) in object.spec.members.iter().enumerate() {
            check::subject(&format!("spec.members[{i}].subject"), &member.subject, &mut errors);
        }
        errors
    }

    async fn admit(&self, _: &RequestContext, change: Admission<'_, Organization>) -> Result<(), ApiError> {
        match change {
            Admission::Create(object) => {
                let name = object.name_any();
                if self.cluster.namespace(&name).await?.is_some() {
                    let error = ApiError::already_exists("", "namespaces", &name);
                    return Err(ApiError::new(
                        409,
                        "AlreadyExists",
                        format!(
                            "{}; an organization owns the namespace that is created with it and adopts none",
                            error.message()
                        ),
                    ));
                }
                Ok(())
            }
            Admission::Delete(object) => {
                if object.spec.deletion_policy != DeletionPolicy::Refuse {
                    return Ok(());
                }
                let name = object.name_any();
                let stacks = self.lookup.api::<Stack>()?.list(Some(&name), "").await?;
                match stacks.iter().find(|s| super::stack::is_deployed(s)) {
                    None => Ok(()),
                    Some(stack) => Err(ApiError::forbidden(
                        "config.stoa.dev",
                        "organizations",
                        &name,
                        format!(
                            "stack {:?} still has live infrastructure and the organization's deletionPolicy is Refuse",
                            stack.name_any()
                        ),
                    )),
                }
            }
            Admission::Update { .. } => Ok(()),
        }
    }
}
