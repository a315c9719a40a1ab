//! Notifications: delivery of events to the endpoints of NotificationSinks.
//!
//! Start at [`run`]. The log is the queue: nothing is written when an event happens, and an endpoint that does
//! not answer delays no other.
//!
//! - `feed` reads the log for one sink, [`events`] finds the events in its records, and `selection` keeps
//!   those that the sink selects;
//! - `inflight` has the events that are not delivered yet, `worker` and [`delivery`] post them;
//! - `records` has the position and the dead letters of each sink in the log; [`subresources`] shows them.
//!
//! One replica delivers during its term; writes carry the term's fence.

mod dead_letters;
pub mod delivery;
pub mod events;
mod feed;
mod inflight;
mod metrics;
mod records;
mod retry_policy;
mod selection;
mod sender;
mod sink_status;
mod start_cursor;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod worker;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use futures_util::StreamExt as _;
use jiff::Timestamp;
use kube::ResourceExt as _;
use stoa_controller::{events::Recorder, leader::Term};
use stoa_kinds::{cluster::Cluster, lookup::Lookup};
use stoa_machinery::{Log, outbound, registry::api::Change};
use stoa_storage::Clock;
use stoa_types::NotificationSink;
use tokio::task::JoinHandle;
use tokio_util::sync::DropGuard;

use self::worker::Worker;
pub use self::{dead_letters::subresources, metrics::Metrics};

/// The parts of the server that deliveries use.
#[derive(Clone, Debug)]
pub struct Services {
    /// The objects.
    pub lookup: Lookup,
    /// The log, with the records of writes and of deliveries.
    pub log: Arc<dyn Log>,
    /// The cluster, for the Secrets that sign events.
    pub cluster: Arc<dyn Cluster>,
    /// Events of sinks.
    pub recorder: Recorder,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl Services {
    /// The time to the millisecond, which may be set back at any moment: for people to read, and never to wait by.
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.clock.now_ms()).unwrap_or_default()
    }
}

/// How long a worker may take to end before it is dropped.
const END: Duration = Duration::from_secs(2);

/// Delivers to all sinks until the term ends.
pub async fn run(services: Services, metrics: Metrics, term: Term) {
    let Ok(sinks) = services.lookup.api::<NotificationSink>() else { return };
    let mut changes = sinks.subscribe(None);
    let mut manager = Manager { services, metrics, term, workers: HashMap::new() };
    let end = manager.term.end.clone();
    while let Some(Some(change)) = end.run_until_cancelled(changes.next()).await {
        match change {
            Change::Restarted(all) => manager.restart(all).await,
            Change::Applied(sink) => manager.apply(sink).await,
            Change::Deleted(sink) => {
                manager.stop(&sink.name_any()).await;
                manager.metrics.forget(&sink.name_any());
                manager.clean().await;
            }
        }
    }
    let names: Vec<String> = manager.workers.keys().cloned().collect();
    for name in names {
        manager.stop(&name).await;
        // Another replica counts from now on.
        manager.metrics.forget(&name);
    }
}

/// The delivery of one sink.
#[derive(Debug)]
struct Running {
    uid: Option<String>,
    generation: Option<i64>,
    end: DropGuard,
    task: Option<JoinHandle<()>>,
}

struct Manager {
    services: Services,
    metrics: Metrics,
    term: Term,
    /// By the name of the sink.
    workers: HashMap<String, Running>,
}

impl Manager {
    /// These are all sinks there are.
    async fn restart(&mut self, all: Vec<NotificationSink>) {
        let there: BTreeSet<String> = all.iter().map(|sink| sink.name_any()).collect();
        let gone: Vec<String> = self.workers.keys().filter(|name| !there.contains(*name)).cloned().collect();
        for name in gone {
            self.stop(&name).await;
            self.metrics.forget(&name);
        }
        for sink in all {
            self.apply(sink).await;
        }
        self.clean().await;
    }

    /// Delivers as the sink says now.
    async fn apply(&mut self, sink: NotificationSink) {
        let name = sink.name_any();
        let (uid, generation) = (sink.uid(), sink.metadata.generation);
        // Most changes are those of its status.
        if self.workers.get(&name).is_some_and(|running| running.uid == uid && running.generation == generation) {
            return;
        }
        self.stop(&name).await;
        let end = self.term.end.child_token();
        let task = if sink.spec.suspend {
            self.metrics.forget(&name);
            worker::suspend(&self.services, self.term.fence.clone(), &sink).await;
            None
        } else {
            let worker = Worker {
                services: self.services.clone(),
                metrics: self.metrics.clone(),
                fence: self.term.fence.clone(),
                sink,
            };
            Some(tokio::spawn(worker.run(end.clone())))
        };
        self.workers.insert(name, Running { uid, generation, end: end.drop_guard(), task });
    }

    /// Ends a delivery, so that another can begin where it stopped.
    async fn stop(&mut self, name: &str) {
        let Some(Running { end, task, .. }) = self.workers.remove(name) else { return };
        drop(end);
        let Some(mut task) = task else { return };
        match tokio::time::timeout(END, &mut task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(sink = name, %error, "the delivery to a notification sink ended badly"),
            Err(_) => task.abort(),
        }
    }

    /// Removes what is kept of sinks that are gone.
    async fn clean(&self) {
        // What does not decode is nowhere to be seen, and not gone: it may be repaired.
        let sinks = self.services.lookup.api::<NotificationSink>();
        if !sinks.is_ok_and(|sinks| sinks.store().undecodable_values().is_empty()) {
            return;
        }
        let uids = self.workers.values().filter_map(|running| running.uid.clone()).collect();
        if let Err(error) = records::retain(&*self.services.log, &uids, self.term.fence.as_ref()).await {
            tracing::warn!(error = outbound::causes(&error), "records of deleted notification sinks are left for now");
        }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // Tokens end with their guards; a task that hangs is not waited for.
        self.workers.values().filter_map(|running| running.task.as_ref()).for_each(JoinHandle::abort);
    }
}
