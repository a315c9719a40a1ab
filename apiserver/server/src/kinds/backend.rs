//! Backend: exactly one kind of store, which stays the one it is.

use async_trait::async_trait;
use kube::{CustomResourceExt as _, ResourceExt as _};
use stoa_machinery::{
    ApiError, RequestContext, ResourceDefinition,
    definition::{Cell, Column, SelectableField},
    registry::ListOptions,
    status::FieldError,
    strategy::{Admission, Strategy},
};
use stoa_types::{Backend, Workspace, platform::BackendType};

use super::{check, lookup::Lookup, stack};

pub(crate) fn definition() -> ResourceDefinition {
    ResourceDefinition::from_crd(&Backend::crd())
        .columns(&[
            Column::new("Type", Cell::Path(&["spec", "type"]), "Which kind of store."),
            Column::new(
                "Ready",
                Cell::Compute(|o| check::condition_status(o.get_path(&["status", "conditions"]), "Ready")),
                "Whether the store can be written and read.",
            ),
            Column::age(),
        ])
        .selectable(&[SelectableField { name: "spec.type", path: &["spec", "type"] }])
}

#[derive(Debug)]
pub(crate) struct BackendStrategy {
    pub(crate) lookup: Lookup,
}

#[async_trait]
impl Strategy for BackendStrategy {
    type Object = Backend;

    async fn admit(&self, _: &RequestContext, change: Admission<'_, Backend>) -> Result<(), ApiError> {
        let Admission::Delete(backend) = change else { return Ok(()) };
        let name = backend.name_any();
        let of_backend =
            ListOptions { field_selector: Some(format!("spec.backend.name={name}")), ..ListOptions::default() };
        let workspaces = self.lookup.api::<Workspace>()?.list_with(None, &of_backend).await?;
        let of_backend: Vec<String> = workspaces.iter().map(|workspace| workspace.name_any()).collect();
        stack::refuse_while_used(&self.lookup, ("backends", &name), &of_backend).await
    }

    fn validate(&self, object: &Backend) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let spec = &object.spec;
        check::subjects("spec.owners", &spec.owners, &mut errors);
        if spec.kind != BackendType::Local {
            check::not_available("spec.type", "a store other than Local", &mut errors);
        }
        if spec.kind != BackendType::S3 && spec.s3.is_some() {
            errors.push(FieldError::forbidden("spec.s3", "may only be set when type is S3"));
        }
        if let Some(local) = &spec.local {
            if spec.kind != BackendType::Local {
                errors.push(FieldError::forbidden("spec.local", "may only be set when type is Local"));
            }
            if local.directory.split('/').any(|part| part == "..") {
                errors.push(FieldError::invalid("spec.local.directory", &local.directory, "must not contain '..'"));
            }
        }
        errors
    }

    fn validate_update(&self, new: &Backend, old: &Backend) -> Vec<FieldError> {
        let mut errors = Vec::new();
        // Documents are found by digest in the store that they were put in.
        check::immutable("spec.type", &new.spec.kind, &old.spec.kind, &mut errors);
        check::immutable("spec.local", &new.spec.local, &old.spec.local, &mut errors);
        errors
    }
}
