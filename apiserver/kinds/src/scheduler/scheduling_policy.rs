//! SchedulingPolicy: which deployment targets run on which cluster types.

use stoa_machinery::{
    content,
    definition::{Cell, Column},
    status::FieldError,
};
use stoa_types::scheduler::{ExternalScheduler, SchedulingPolicy};

use super::owned::{self, Owned};
use crate::kind::Kind;

/// The most parameters for a scheduler, and the most bytes of a value.
const PARAMETERS: usize = 32;
const VALUE: usize = 1024;

/// The kind SchedulingPolicy.
pub(crate) static KIND: Kind = owned::kind::<SchedulingPolicy>();

impl Owned for SchedulingPolicy {
    const COLUMNS: &'static [Column] = &[
        Column::new(
            "Workspace",
            Cell::Path(&["spec", "deploymentTargetSelector", "workspace"]),
            "The workspace of the targets.",
        ),
        Column::new("Scheduler", Cell::Path(&["spec", "scheduler", "name"]), "The external scheduler."),
    ];
    const READY: Option<&'static str> = Some("Whether its assignments exist.");

    fn check(&self, errors: &mut Vec<FieldError>) {
        let Some(scheduler) = &self.spec.scheduler else { return };
        check_scheduler("spec.scheduler", scheduler, errors);
    }
}

/// Finds errors in the reference to an external scheduler.
fn check_scheduler(
    path: &str,
    ExternalScheduler { name, parameters }: &ExternalScheduler,
    errors: &mut Vec<FieldError>,
) {
    let complaints = content::dns_label(name);
    errors.extend(complaints.iter().map(|why| FieldError::invalid(format!("{path}.name"), name, why)));
    if parameters.len() > PARAMETERS {
        let detail = format!("must have at most {PARAMETERS} entries");
        errors.push(FieldError::invalid(format!("{path}.parameters"), parameters.len(), detail));
    }
    for (key, value) in parameters {
        if key.is_empty() || key.len() > 63 || value.len() > VALUE {
            let detail = format!("a key must have 1 to 63 bytes, and a value at most {VALUE}");
            errors.push(FieldError::invalid(format!("{path}.parameters[{key}]"), value.len(), detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_to_a_scheduler_is_limited() {
        let found = |name: &str, key: &str, value: &str| {
            let parameters = [(key.to_owned(), value.to_owned())].into();
            let mut errors = Vec::new();
            check_scheduler("spec.scheduler", &ExternalScheduler { name: name.to_owned(), parameters }, &mut errors);
            errors.dedup_by(|a, b| a.field == b.field);
            errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
        };
        assert_eq!(found("ocm", "placement", "drones"), [] as [&str; 0]);
        for wrong in ["", "OCM", "a/b", "-a", "http://host", "a".repeat(64).as_str()] {
            assert_eq!(found(wrong, "placement", "drones"), ["spec.scheduler.name"], "{wrong}");
        }
        assert_eq!(found("ocm", "", "x"), ["spec.scheduler.parameters[]"]);
        assert_eq!(found("ocm", "a", &"x".repeat(VALUE + 1)), ["spec.scheduler.parameters[a]"]);
        let parameters = (0..=PARAMETERS).map(|at| (at.to_string(), String::new())).collect();
        let mut errors = Vec::new();
        check_scheduler("s", &ExternalScheduler { name: "ocm".to_owned(), parameters }, &mut errors);
        assert_eq!(errors.len(), 1);
    }
}
