//! Backend: exactly one kind of store, which stays the one it is.

use kube::CustomResourceExt as _;
use stoa_machinery::{
    ResourceDefinition,
    definition::{Cell, Column, SelectableField},
    status::FieldError,
    strategy::Strategy,
};
use stoa_types::{Backend, platform::BackendType};

use super::check;

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
pub(crate) struct BackendStrategy;

impl Strategy for BackendStrategy {
    type Object = Backend;

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
