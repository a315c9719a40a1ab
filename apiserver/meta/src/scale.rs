//! The definition of the subresource `scale`, which takes and answers `autoscaling/v1 Scale`.
//!
//! Writes of a Scale are in `stoa-registry`.

use k8s_openapi::api::autoscaling::v1::Scale;

use crate::definition::{Cell, Column, ResourceDefinition};

/// What Kubernetes says of the age.
const CREATED_AT: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

const COLUMNS: [Column; 3] = [
    Column::new("Desired", Cell::Path(&["spec", "replicas"]), "Number of desired replicas").kind("integer"),
    Column::new("Available", Cell::Path(&["status", "replicas"]), "Number of actual replicas").kind("integer"),
    Column { description: CREATED_AT, ..Column::age() },
];

/// How the `scale` of a resource is served, if it has one.
pub fn scale_definition(parent: &ResourceDefinition) -> Option<ResourceDefinition> {
    parent.scale.as_ref()?;
    Some(ResourceDefinition {
        plural: parent.plural.clone(),
        scope: parent.scope,
        columns: COLUMNS.to_vec(),
        ..ResourceDefinition::built_in::<Scale>()
    })
}
