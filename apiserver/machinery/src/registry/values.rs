//! Values that a resource's schema refuses, and when a write is told of them: after admission, as upstream, whose
//! strategies validate what admission made of an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Store, Target, erased::Draft, metadata};
use crate::{
    object::Object,
    status::{ApiError, FieldError},
};

impl Store {
    /// The object as its type has it, with defaults.
    ///
    /// One with values that its schema refuses may be none of the type, such as one that lacks a required field; it
    /// stays as it is, since it is refused once admission has seen it.
    ///
    /// # Errors
    ///
    /// 400 when it does not decode though its schema takes it.
    pub(super) fn typed(&self, object: &Object, target: Target) -> Result<Object, ApiError> {
        match self.strategy.typed(object) {
            Err(error) if self.refused_values(object, target)?.is_empty() => Err(error),
            Err(_) => Ok(object.clone()),
            typed => typed,
        }
    }

    /// What the schema does not take in the part of an object that is written.
    fn refused_values(&self, object: &Object, target: Target) -> Result<Vec<FieldError>, ApiError> {
        let mut errors = self.decoder()?.structural_errors(object);
        if self.definition.has_status {
            let of_status = |error: &FieldError| error.field == "status" || error.field.starts_with("status.");
            errors.retain(|error| of_status(error) == (target == Target::Status));
        }
        Ok(errors)
    }

    /// Refuses a new object whose values the schema does not take; all that is wrong with its metadata is told, too.
    ///
    /// # Errors
    ///
    /// 422 `Invalid`.
    pub(super) fn check_new_values(&self, object: &Object) -> Result<(), ApiError> {
        let refused = self.refused_values(object, Target::Main)?;
        if refused.is_empty() {
            return Ok(());
        }
        let metadata = metadata::typed(object, &self.definition.kind)?;
        self.refuse(object.name(), metadata::validate(&metadata, self.definition.scope), refused)
    }

    /// Refuses a new object that the strategy finds something wrong with, or whose metadata make no sense. The kind's
    /// own sentences come alone, since they know more.
    ///
    /// # Errors
    ///
    /// 422 `Invalid`.
    pub(super) fn check_new(&self, draft: &Draft) -> Result<(), ApiError> {
        let name = draft.object.name();
        if !draft.errors.is_empty() {
            return self.refuse(name, Vec::new(), draft.errors.clone());
        }
        let metadata = metadata::typed(&draft.object, &self.definition.kind)?;
        self.refuse(name, metadata::validate(&metadata, self.definition.scope), Vec::new())
    }

    /// The same as [`check_new_values`](Self::check_new_values) for a changed object.
    ///
    /// # Errors
    ///
    /// 422 `Invalid`.
    pub(super) fn check_changed_values(&self, new: &Object, old: &ObjectMeta, target: Target) -> Result<(), ApiError> {
        let refused = self.refused_values(new, target)?;
        if refused.is_empty() { Ok(()) } else { self.refuse_change(new, old, refused) }
    }

    /// Refuses a changed object with all that is wrong: first with its metadata, then what the strategy found.
    ///
    /// # Errors
    ///
    /// 422 `Invalid`.
    pub(super) fn check_changed(&self, draft: &Draft, old: &ObjectMeta) -> Result<(), ApiError> {
        self.refuse_change(&draft.object, old, draft.errors.clone())
    }

    fn refuse_change(&self, new: &Object, old: &ObjectMeta, errors: Vec<FieldError>) -> Result<(), ApiError> {
        let metadata = metadata::typed(new, &self.definition.kind)?;
        let mut in_metadata = metadata::validate(&metadata, self.definition.scope);
        in_metadata.extend(metadata::validate_update(&metadata, old));
        self.refuse(new.name(), in_metadata, errors)
    }

    fn refuse(&self, name: &str, in_metadata: Vec<FieldError>, others: Vec<FieldError>) -> Result<(), ApiError> {
        let errors: Vec<FieldError> = in_metadata.into_iter().chain(others).collect();
        if errors.is_empty() {
            return Ok(());
        }
        Err(ApiError::invalid(&self.definition.group, &self.definition.kind, name, &errors))
    }
}
