//! The behaviour of the kinds: their controllers, and the handlers of their subresources.
//!
//! Start at [`BEHAVIOURS`]. A kind without either is not in the list. Elsewhere: the kinds themselves are in [`stoa_kinds`],
//! which knows neither.

use std::ptr;

use futures_util::{FutureExt as _, future::BoxFuture};
use stoa_kinds::{
    backend,
    hub::deployment_query,
    kind::Kind,
    module, notification_sink, organization, package_operation, package_revision, project, release, run,
    scheduler::{assignment, gitops_repo},
    source, stack, workflow, workspace,
};
use stoa_machinery::{ResourceDefinition, definition::Subresource};
use stoa_runs::{Services, garbage};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    controllers::{
        backends, compliance, modules, organizations, projects, pull_requests, retention, runs, sources, stacks,
        triggers, workflows, workspaces,
    },
    subresources::Subresources,
};

/// Runs a controller until the token ends.
type Controller = fn(Services, CancellationToken) -> BoxFuture<'static, ()>;

/// The behaviour of a kind.
struct Behaviour {
    kind: &'static Kind,
    subresources: fn(&Subresources) -> Vec<Subresource>,
    controllers: &'static [Controller],
}

/// The functions `run` of controllers.
macro_rules! controllers {
    ($($run:path),*) => { &[$(|services, end| $run(services, end).boxed()),*] };
}

const fn behaviour(
    kind: &'static Kind,
    subresources: fn(&Subresources) -> Vec<Subresource>,
    controllers: &'static [Controller],
) -> Behaviour {
    Behaviour { kind, subresources, controllers }
}

static BEHAVIOURS: [Behaviour; 16] = [
    behaviour(&organization::KIND, Subresources::of_organizations, controllers![organizations::run]),
    behaviour(&project::KIND, Subresources::of_projects, controllers![projects::run]),
    behaviour(&stack::KIND, Subresources::of_stacks, controllers![stacks::run, triggers::run]),
    behaviour(&source::KIND, |_| Vec::new(), controllers![sources::run, pull_requests::run]),
    behaviour(&workspace::KIND, |_| Vec::new(), controllers![workspaces::run, compliance::run]),
    behaviour(&backend::KIND, |_| Vec::new(), controllers![backends::run, garbage::run]),
    behaviour(&module::KIND, |_| Vec::new(), controllers![modules::run]),
    // `stoa_notifications::run` delivers to the sinks.
    behaviour(&notification_sink::KIND, Subresources::of_notification_sinks, &[]),
    behaviour(&run::KIND, Subresources::of_runs, controllers![runs::run]),
    behaviour(&workflow::KIND, |_| Vec::new(), controllers![workflows::run]),
    // Their controllers need the packages: `server` starts them.
    behaviour(&package_revision::KIND, Subresources::of_package_revisions, &[]),
    behaviour(&package_operation::KIND, Subresources::of_package_operations, &[]),
    behaviour(&release::KIND, Subresources::of_releases, controllers![retention::run, retention::deleted::run]),
    // `controllers::fleets` brings about all kinds of fleets.
    behaviour(&gitops_repo::KIND, Subresources::of_gitops_repos, &[]),
    behaviour(&assignment::KIND, Subresources::of_assignments, &[]),
    // `controllers::deployment_archive` needs the archive: `server` starts it.
    behaviour(&deployment_query::KIND, Subresources::of_deployment_queries, &[]),
];

/// Adds its subresources to the definition of a kind.
pub(crate) fn attach(
    kind: &'static Kind,
    definition: ResourceDefinition,
    subresources: &Subresources,
) -> ResourceDefinition {
    let behaviours = BEHAVIOURS.iter().filter(|behaviour| ptr::eq(behaviour.kind, kind));
    let handlers = behaviours.flat_map(|behaviour| (behaviour.subresources)(subresources));
    handlers.fold(definition, ResourceDefinition::subresource)
}

/// Starts the controllers of all kinds; they end with the token.
pub(crate) fn start(services: &Services, end: &CancellationToken, tasks: &mut JoinSet<()>) {
    for controller in BEHAVIOURS.iter().flat_map(|behaviour| behaviour.controllers) {
        tasks.spawn(controller(services.clone(), end.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_with_a_behaviour_is_in_a_group() {
        let is_listed = |behaviour: &&Behaviour| stoa_kinds::kinds().any(|kind| ptr::eq(kind, behaviour.kind));
        let listed = BEHAVIOURS.iter().filter(is_listed).count();
        assert_eq!(listed, BEHAVIOURS.len());
    }
}
