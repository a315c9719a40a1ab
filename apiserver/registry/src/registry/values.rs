//! Values that a resource's schema refuses, and when a write is told of them: after admission, as upstream, whose
//! strategies validate what admission made of an object.

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;
use stoa_meta::{
    definition::Target,
    object::Object,
    request::RequestContext,
    status::{ApiError, FieldError, FieldErrors},
};

use super::{Store, Stored, erased::Draft, metadata};

impl Store {
    /// The object as its type has it, with defaults.
    ///
    /// One with values that its schema refuses may be none of the type, such as one that lacks a required field; it
    /// stays as it is, since it is refused once admission has seen it.
    /// Fails with 400 when it does not decode though its schema takes it.
    pub(super) fn typed(&self, object: &Object, target: Target) -> Result<Object, ApiError> {
        match self.strategy.typed(object) {
            Err(error) if self.refused_values(object, target).is_empty() => Err(error),
            Err(_) => Ok(object.clone()),
            typed => typed,
        }
    }

    /// What the schema does not take in the part of an object that is written.
    pub(super) fn refused_values(&self, object: &Object, target: Target) -> Vec<FieldError> {
        let mut errors = self.decoder.structural_errors(object);
        if let Some(part) = self.definition.parts.iter().find(|part| target == Target::Part(part.name)) {
            errors.retain(|error| is_within(&error.field, &part.path.join(".")));
        } else if self.definition.has_status {
            errors.retain(|error| is_within(&error.field, "status") == (target == Target::Status));
        }
        errors.extend(self.scaling.as_ref().map(|scaling| scaling.errors(object, target)).unwrap_or_default());
        errors
    }

    /// What the strategy makes of a new object, which comes with its `managedFields` beside it.
    /// Fails with 422 `Invalid` with all that is wrong; but where that is only what the strategy found, it comes
    /// without what is wrong with metadata, since a kind's own sentences know more. 400 when it does not decode.
    pub(super) fn draft_new(
        &self,
        context: &RequestContext,
        (object, managed_fields): (&Object, Option<&Value>),
    ) -> Result<Draft, ApiError> {
        let refused = self.refused_values(object, Target::Main);
        let draft = self.strategy.create(context, object);
        let mut in_metadata = FieldErrors::default();
        if !(refused.is_empty() && draft.as_ref().is_ok_and(|draft| !draft.errors.is_empty())) {
            let metadata = metadata::typed(made(&draft, object), &self.definition.kind)?;
            metadata::validate(&metadata, self.definition.scope, &mut in_metadata);
            metadata::validate_managed_fields(managed_fields, &mut in_metadata);
        }
        self.settle(made(&draft, object).name().to_owned(), in_metadata, refused, draft)
    }

    /// What the strategy makes of a changed object, which comes with its `managedFields` beside it.
    /// Fails with 422 `Invalid` with all that is wrong: with its metadata, then with its values. 400 when it does not
    /// decode.
    pub(super) fn draft_change(
        &self,
        context: &RequestContext,
        target: Target,
        (new, managed_fields): (&Object, Option<&Value>),
        (old, current): (&Object, &Stored),
    ) -> Result<Draft, ApiError> {
        let refused = self.refused_values(new, target);
        let draft = self.strategy.update(context, new, &current.json(), target);
        let metadata = metadata::typed(made(&draft, new), &self.definition.kind)?;
        let mut in_metadata = FieldErrors::default();
        metadata::validate(&metadata, self.definition.scope, &mut in_metadata);
        metadata::validate_managed_fields(managed_fields, &mut in_metadata);
        metadata::validate_update(&metadata, &metadata::typed(old, &self.definition.kind)?, &mut in_metadata);
        // Upstream looks at these once more as a part of the change.
        metadata::validate_managed_fields(managed_fields, &mut in_metadata);
        self.settle(made(&draft, new).name().to_owned(), in_metadata, refused, draft)
    }

    fn settle(
        &self,
        name: String,
        in_metadata: FieldErrors,
        refused: Vec<FieldError>,
        draft: Result<Draft, ApiError>,
    ) -> Result<Draft, ApiError> {
        let mut own = draft.as_ref().map(|draft| draft.errors.clone()).unwrap_or_default();
        drop_told(&mut own, &refused);
        self.refuse(&name, [in_metadata.into_vec(), refused, own].concat())?;
        draft
    }

    pub(super) fn refuse(&self, name: &str, errors: Vec<FieldError>) -> Result<(), ApiError> {
        if errors.is_empty() {
            return Ok(());
        }
        Err(ApiError::invalid(&self.definition.group, &self.definition.kind, name, &errors))
    }
}

/// Whether a field is the one at a path, or in it.
fn is_within(field: &str, path: &str) -> bool {
    field.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Drops what is said of a field that was refused already, or of a part of one: what the schema refuses the strategy
/// need not refuse once more.
fn drop_told(errors: &mut Vec<FieldError>, refused: &[FieldError]) {
    let told: HashSet<&str> = refused.iter().map(|error| error.field.as_str()).collect();
    let lengths: BTreeSet<usize> = told.iter().map(|field| field.len()).collect();
    errors.retain(|FieldError { field, .. }| {
        let ends_at = |end: usize| matches!(field.as_bytes().get(end), None | Some(b'.' | b'['));
        !lengths.range(..=field.len()).any(|&end| ends_at(end) && told.contains(&field[..end]))
    });
}

/// What the strategy made of an object, or the object itself where that was impossible.
fn made<'a>(draft: &'a Result<Draft, ApiError>, object: &'a Object) -> &'a Object {
    draft.as_ref().map_or(object, |draft| &draft.object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategy_errors_omit_already_rejected_fields() {
        let of = |fields: &[&str]| -> Vec<FieldError> {
            fields.iter().map(|field| FieldError::required(*field, "")).collect()
        };
        let mut own = of(&["spec", "spec.a", "spec.a.b", "spec.ab", "spec.a[0]", "spec.größe", "spec.größe.x", ""]);
        drop_told(&mut own, &of(&["spec.a", "spec.größe"]));
        assert_eq!(own, of(&["spec", "spec.ab", ""]));
    }
}
