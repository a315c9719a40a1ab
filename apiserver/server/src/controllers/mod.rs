//! Controllers: each brings one kind of object to what it should be, again and again.
//!
//! [`queue`] is what they share: keys that are due, one at a time per controller, with backoff. [`groups`] knows which
//! objects belong to which others, [`probes`] asks those who may not answer, [`folders`] asks sources for folders, [`needed`] knows what is not to be removed yet,
//! [`cooldown`] what was looked at just now, and [`finalizers`] lets go what was looked at, and nothing else of its name.

pub(crate) mod backends;
pub(crate) mod compliance;
mod cooldown;
pub(crate) mod events;
mod finalizers;
mod folders;
pub(crate) mod garbage_collector;
mod groups;
mod members;
pub(crate) mod namespaces;
mod needed;
pub(crate) mod organizations;
pub(crate) mod probes;
pub(crate) mod projects;
pub(crate) mod pull_requests;
pub(crate) mod queue;
pub(crate) mod retention;
pub(crate) mod runs;
pub(crate) mod sources;
pub(crate) mod stacks;
pub(crate) mod triggers;
pub(crate) mod workflows;
pub(crate) mod workspaces;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::runs::{Services, garbage};

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
