//! WorkloadRegistration: the repository of an application team.

use stoa_machinery::{
    definition::{Cell, Column},
    status::FieldError,
};
use stoa_types::scheduler::WorkloadRegistration;

use super::{
    environment,
    owned::{self, Owned},
};
use crate::kind::Kind;

/// The kind WorkloadRegistration.
pub(crate) static KIND: Kind = owned::kind::<WorkloadRegistration>();

impl Owned for WorkloadRegistration {
    const COLUMNS: &'static [Column] = &[
        Column::new("Repository", Cell::Path(&["spec", "workload", "repo"]), "The repository."),
        Column::new("Branch", Cell::Path(&["spec", "workload", "branch"]), "The branch."),
        Column::new("Workspace", Cell::Path(&["spec", "workspace"]), "The workspace of the team."),
    ];
    const READY: Option<&'static str> = Some("Whether the repository was read.");

    fn check(&self, errors: &mut Vec<FieldError>) {
        environment::repository("spec.workload", &self.spec.workload, errors);
    }

    fn repository(&self) -> Option<&str> {
        Some(&self.spec.workload.repo)
    }
}
