//! Controllers: each brings one kind of object to what it should be, again and again.
//!
//! Start at [`start`]. Each is a `run` that drives a queue of `stoa-controller`. Several share [`folders`], the folders of Sources,
//! [`references`], the references that keep an object, and [`cooldown`], the cool-down of objects that were processed just now.

pub(crate) mod backends;
pub(crate) mod compliance;
mod cooldown;
pub(crate) mod events;
mod folders;
pub(crate) mod garbage_collector;
mod members;
pub(crate) mod namespaces;
pub(crate) mod organizations;
pub(crate) mod projects;
pub(crate) mod pull_requests;
mod references;
pub(crate) mod retention;
pub(crate) mod runs;
pub(crate) mod sources;
pub(crate) mod stacks;
pub(crate) mod triggers;
pub(crate) mod workflows;
pub(crate) mod workspaces;

use stoa_runs::{Services, garbage};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Starts the controllers of Stoa's own kinds; they end with the token.
pub(crate) fn start(services: &Services, end: &CancellationToken, tasks: &mut JoinSet<()>) {
    tasks.spawn(organizations::run(services.clone(), end.clone()));
    tasks.spawn(projects::run(services.clone(), end.clone()));
    tasks.spawn(stacks::run(services.clone(), end.clone()));
    tasks.spawn(triggers::run(services.clone(), end.clone()));
    tasks.spawn(sources::run(services.clone(), end.clone()));
    tasks.spawn(pull_requests::run(services.clone(), end.clone()));
    tasks.spawn(retention::run(services.clone(), end.clone()));
    tasks.spawn(retention::deleted::run(services.clone(), end.clone()));
    tasks.spawn(garbage::run(services.clone(), end.clone()));
    tasks.spawn(workspaces::run(services.clone(), end.clone()));
    tasks.spawn(backends::run(services.clone(), end.clone()));
    tasks.spawn(compliance::run(services.clone(), end.clone()));
    tasks.spawn(runs::run(services.clone(), end.clone()));
    tasks.spawn(workflows::run(services.clone(), end.clone()));
}
