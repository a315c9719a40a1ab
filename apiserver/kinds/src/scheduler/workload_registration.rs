//! WorkloadRegistration: the repository of an application team.

use stoa_machinery::{
    ResourceDefinition,
    definition::{Cell, Column},
    status::FieldError,
};
use stoa_types::scheduler::WorkloadRegistration;

use super::{
    environment,
    owned::{self, OwnedStrategy},
};
use crate::{
    kind::Kind,
    ready,
    rights::{MEMBERS, OBJECTS, OWNED, READ, READERS, right},
};

/// The kind WorkloadRegistration.
pub(crate) static KIND: Kind = Kind {
    definition,
    register: |builder, definition, surroundings| {
        builder.register(
            definition,
            OwnedStrategy::<WorkloadRegistration>::of_repository(&surroundings, check, |registration| {
                &registration.spec.workload.repo
            }),
        )
    },
    rights: &[right(READERS, OBJECTS, READ), right(MEMBERS, &["status"], READ), OWNED],
    ..Kind::of::<WorkloadRegistration>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<WorkloadRegistration>().columns(&[
        Column::new("Repository", Cell::Path(&["spec", "workload", "repo"]), "The repository."),
        Column::new("Branch", Cell::Path(&["spec", "workload", "branch"]), "The branch."),
        Column::new("Workspace", Cell::Path(&["spec", "workspace"]), "The workspace of the team."),
        ready::status("Whether the repository was read."),
        Column::age(),
        ready::reason(),
        ready::message(),
        owned::column(),
    ])
}

fn check(registration: &WorkloadRegistration, errors: &mut Vec<FieldError>) {
    environment::repository("spec.workload", &registration.spec.workload, errors);
}
