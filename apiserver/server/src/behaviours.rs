//! The behaviour of the kinds: their controllers, and the handlers of their subresources.
//!
//! Start at [`BEHAVIOURS`]. A kind without either is not in the list. A controller of several kinds stands beside the first.
//! Elsewhere: the kinds themselves are in [`stoa_kinds`], which knows neither.

use std::ptr;

use futures_util::{FutureExt as _, future::BoxFuture};
use stoa_kinds::{
    backend,
    hub::{deployment_query, reconciler},
    kind::Kind,
    module, notification_sink, organization, package_operation, package_revision, package_variant, package_variant_set,
    project, promotion, release, repository, run,
    scheduler::{assignment, environment, gitops_repo},
    source, stack, workflow, workspace,
};
use stoa_machinery::{ResourceDefinition, definition::Subresource};
use stoa_runs::garbage;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    controllers::{
        backends, compliance, deployment_archive, fleet_issues, fleets, function_repositories, modules, organizations,
        package_discovery, package_documents, package_latest, package_operations, package_pushes, package_renders,
        package_repositories, package_variant_sets, package_variants, projects, promotions, pull_requests, retention,
        runs, sources, stacks, triggers, workflows, workspaces,
    },
    services::AllServices,
    subresources::Subresources,
};

/// Runs a controller until the token ends.
type Controller = fn(&AllServices, CancellationToken) -> BoxFuture<'static, ()>;

/// The behaviour of a kind.
struct Behaviour {
    kind: &'static Kind,
    subresources: fn(&Subresources) -> Vec<Subresource>,
    controllers: &'static [Controller],
}

/// The functions `run` of controllers. Each takes the part of the services that it needs.
macro_rules! controllers {
    ($($run:path),*) => { &[$(|services: &AllServices, end| $run(services.into(), end).boxed()),*] };
}

const fn behaviour(
    kind: &'static Kind,
    subresources: fn(&Subresources) -> Vec<Subresource>,
    controllers: &'static [Controller],
) -> Behaviour {
    Behaviour { kind, subresources, controllers }
}

static BEHAVIOURS: [Behaviour; 22] = [
    behaviour(&organization::KIND, Subresources::of_organizations, controllers![organizations::run]),
    behaviour(&project::KIND, Subresources::of_projects, controllers![projects::run]),
    behaviour(&stack::KIND, Subresources::of_stacks, controllers![stacks::run, triggers::run]),
    behaviour(&source::KIND, |_| Vec::new(), controllers![sources::run, pull_requests::run]),
    behaviour(&workspace::KIND, |_| Vec::new(), controllers![workspaces::run, compliance::run]),
    behaviour(&backend::KIND, |_| Vec::new(), controllers![backends::run, garbage::run]),
    behaviour(&module::KIND, |_| Vec::new(), controllers![modules::run]),
    // `stoa_notifications::run` delivers to the sinks under the fence of the leader, which `server` has.
    behaviour(&notification_sink::KIND, Subresources::of_notification_sinks, &[]),
    behaviour(&run::KIND, Subresources::of_runs, controllers![runs::run]),
    behaviour(&workflow::KIND, |_| Vec::new(), controllers![workflows::run]),
    behaviour(&release::KIND, Subresources::of_releases, controllers![retention::run, retention::deleted::run]),
    behaviour(&repository::KIND, |_| Vec::new(), controllers![package_repositories::run, function_repositories::run]),
    behaviour(
        &package_revision::KIND,
        Subresources::of_package_revisions,
        controllers![
            package_documents::run,
            package_latest::run,
            package_pushes::run,
            package_renders::run,
            package_discovery::run
        ],
    ),
    behaviour(&package_variant::KIND, |_| Vec::new(), controllers![package_variants::run]),
    behaviour(&package_variant_set::KIND, |_| Vec::new(), controllers![package_variant_sets::run]),
    behaviour(&package_operation::KIND, Subresources::of_package_operations, controllers![package_operations::run]),
    // `fleets` brings about all kinds of fleets.
    behaviour(
        &environment::KIND,
        |_| Vec::new(),
        controllers![fleets::run, fleets::schedulers::run, fleet_issues::run],
    ),
    behaviour(&promotion::KIND, |_| Vec::new(), controllers![promotions::run]),
    behaviour(&gitops_repo::KIND, Subresources::of_gitops_repos, &[]),
    behaviour(&assignment::KIND, Subresources::of_assignments, &[]),
    behaviour(&reconciler::KIND, |_| Vec::new(), controllers![deployment_archive::run]),
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
pub(crate) fn start(services: &AllServices, end: &CancellationToken, tasks: &mut JoinSet<()>) {
    for controller in BEHAVIOURS.iter().flat_map(|behaviour| behaviour.controllers) {
        tasks.spawn(controller(services, end.clone()));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::{PATIENCE, TestServer};

    #[test]
    fn every_kind_with_a_behaviour_is_in_a_group() {
        let is_listed = |behaviour: &&Behaviour| stoa_kinds::kinds().any(|kind| ptr::eq(kind, behaviour.kind));
        let listed = BEHAVIOURS.iter().filter(is_listed).count();
        assert_eq!(listed, BEHAVIOURS.len());
    }

    #[tokio::test]
    async fn every_controller_runs_until_its_token_ends() {
        let server = TestServer::with_secrets().await;
        let (end, mut tasks) = (CancellationToken::new(), JoinSet::new());
        start(&AllServices::of_test(server.services.clone()), &end, &mut tasks);
        // Long enough for a controller without its objects to give up.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(tasks.try_join_next().is_none(), "a controller ended before its token");
        end.cancel();
        let all_end = async {
            while let Some(ended) = tasks.join_next().await {
                ended.expect("no controller panics");
            }
        };
        tokio::time::timeout(PATIENCE, all_end).await.expect("every controller ends with its token");
    }
}
