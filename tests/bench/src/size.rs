//! How much is measured.

use std::time::Duration;

/// How much is measured: enough to see that it works, or enough to judge by.
#[derive(Clone, Debug)]
pub(crate) struct Size {
    /// Objects in the collection that is read.
    pub(crate) objects: usize,
    /// The first of the numbers of objects, each ten times the one before, at which one object is read and written.
    pub(crate) step: usize,
    /// Turns of each side.
    pub(crate) rounds: usize,
    /// How long a turn of reading lasts at least.
    pub(crate) turn: Duration,
    /// Objects of a page.
    pub(crate) page: usize,
    /// Lists of a turn and client, at most: their bodies are kept until they are checked.
    pub(crate) lists: usize,
    /// Writes of a turn, by one client.
    pub(crate) writes_alone: usize,
    /// Writes of a turn, by all clients together.
    pub(crate) writes_together: usize,
    /// Numbers of watchers, and how many of them share a connection.
    pub(crate) watchers: &'static [(usize, usize)],
    /// Writes that are watched in a turn.
    pub(crate) watched_writes: usize,
    /// The time between two of them.
    pub(crate) watched_interval: Duration,
    /// Resources of a rollout beside its namespace.
    pub(crate) config_maps: usize,
    /// Stacks that are previewed at once.
    pub(crate) stacks: usize,
    /// Resources of the one stack that is large.
    pub(crate) large_stack: usize,
    /// Numbers of Terraform resources that are deployed, besides one.
    pub(crate) terraform_resources: &'static [usize],
    /// Generations of one kustomization, chart or program, each of a Stack of its own.
    pub(crate) generations: usize,
    /// Generations of all of them together, by two clients.
    pub(crate) generations_together: usize,
    /// Cluster types of a fleet in this process.
    pub(crate) cluster_types: usize,
    /// Cluster types of a fleet that are stored objects.
    pub(crate) stored_cluster_types: usize,
    /// Workloads of both fleets, which are on each cluster type.
    pub(crate) workloads: usize,
    /// Commits to a control plane until each has its pull request.
    pub(crate) fleet_commits: usize,
    /// Clusters that report to the hub, each with one Reconciler.
    pub(crate) reporting_clusters: usize,
    /// Transitions of each of them in the last 30 days; an even number.
    pub(crate) transitions_before: usize,
    /// How long clusters report at each rate.
    pub(crate) reporting: Duration,
    /// How often the idle servers are looked at.
    pub(crate) idle_windows: u32,
    /// How long to wait for the servers to have nothing to do.
    pub(crate) patience: Duration,
}

/// Clients that read or write at the same time.
pub(crate) const MANY_CLIENTS: usize = 32;
/// Clients that list at the same time.
pub(crate) const LISTING_CLIENTS: usize = 8;

impl Size {
    /// Everything once, in some two minutes.
    pub(crate) fn small() -> Self {
        Self {
            objects: 500,
            step: 50,
            rounds: 1,
            turn: Duration::from_millis(100),
            page: 100,
            lists: 5,
            writes_alone: 30,
            writes_together: 96,
            watchers: &[(20, 1), (20, 10)],
            watched_writes: 10,
            watched_interval: Duration::from_millis(50),
            config_maps: 50,
            stacks: 20,
            large_stack: 100,
            terraform_resources: &[50],
            generations: 5,
            generations_together: 60,
            cluster_types: 300,
            stored_cluster_types: 500,
            workloads: 20,
            fleet_commits: 2,
            reporting_clusters: 2_000,
            transitions_before: 30,
            reporting: Duration::from_secs(3),
            idle_windows: 2,
            patience: Duration::from_secs(30),
        }
    }

    /// Some half an hour.
    pub(crate) fn full() -> Self {
        Self {
            objects: 10_000,
            step: 1_000,
            rounds: 3,
            turn: Duration::from_millis(1500),
            page: 500,
            lists: 10,
            writes_alone: 300,
            writes_together: 1_600,
            watchers: &[(100, 1), (1_000, 1), (1_000, 100)],
            watched_writes: 50,
            watched_interval: Duration::from_millis(100),
            config_maps: 1_000,
            stacks: 1_000,
            large_stack: 10_000,
            terraform_resources: &[50, 500, 5_000],
            generations: 40,
            generations_together: 10_000,
            cluster_types: 10_000,
            stored_cluster_types: 10_000,
            workloads: 100,
            fleet_commits: 10,
            reporting_clusters: 100_000,
            // One report in a hundred, every five minutes.
            transitions_before: 86,
            reporting: Duration::from_secs(60),
            idle_windows: 10,
            patience: Duration::from_secs(180),
        }
    }
}
