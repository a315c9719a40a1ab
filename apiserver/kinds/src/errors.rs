//! Errors about an object of a kind, by the type of the kind.

use std::fmt::Display;

use kube::Resource;
use stoa_machinery::{ApiError, status::FieldError};
use stoa_types::names::{group, kind, plural};

/// 422 for an object with invalid fields.
pub fn invalid<K: Resource<DynamicType = ()>>(name: &str, errors: &[FieldError]) -> ApiError {
    ApiError::invalid(group::<K>(), kind::<K>(), name, errors)
}

/// 403 for a write that is not permitted.
pub fn forbidden<K: Resource<DynamicType = ()>>(name: &str, why: impl Display) -> ApiError {
    ApiError::forbidden(group::<K>(), plural::<K>(), name, why)
}

/// 409 for a write that the present state excludes.
pub fn conflict<K: Resource<DynamicType = ()>>(name: &str, why: impl Display) -> ApiError {
    ApiError::conflict(group::<K>(), plural::<K>(), name, why)
}
