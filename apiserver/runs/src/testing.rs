//! Fixtures of tests: the services of Runs over a log in memory, and fake function-runners.
#![allow(clippy::unwrap_used, reason = "a fixture that cannot be made fails its test")]

use std::{
    ops::Deref,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use stoa_controller::{events::Recorder, queue};
use stoa_kinds::{
    kind::{Kind, Surroundings},
    testing::TestRegistry,
};
use stoa_machinery::{Log, ResourceDefinition, auth::AllowAll, metrics::Families, registry::RegistryBuilder};
use stoa_storage::Clock;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::{Services, backends::Backends, contents::Contents, encryption::Encryption, runner::Runner};

pub use crate::runner::testing::{
    ANYWHERE, Answer, Events, FakeRunner, Service, runner_at, runner_at_each, service, unreachable_runner,
};

/// The metadata in which a runner says how many bytes a Spec has.
pub const SPEC_BYTES: &str = crate::runner::announced::SPEC_BYTES;

/// The clock of the machine, shifted by some milliseconds.
#[derive(Debug)]
pub struct Shifted(pub Arc<AtomicI64>);

impl Clock for Shifted {
    fn now_ms(&self) -> i64 {
        Timestamp::now().as_millisecond() + self.0.load(Ordering::Relaxed)
    }
}

/// Services that permit everything, with the documents of Backends in a folder.
pub fn services(
    log: &Arc<dyn Log>,
    Surroundings { lookup, cluster, .. }: &Surroundings,
    runner: Runner,
    documents: &Path,
    end: &CancellationToken,
) -> Services {
    Services {
        lookup: lookup.clone(),
        log: log.clone(),
        backends: Backends::new(lookup.clone(), cluster.clone(), documents.to_owned()).impatient(),
        encryption: Encryption::with_keys(&[1]),
        runner,
        contents: Contents::default(),
        cluster: cluster.clone(),
        recorder: Recorder::start(cluster.clone(), end.clone()),
        authorizer: Arc::new(AllowAll),
        identity: "test".to_owned(),
        clock: Arc::new(Shifted(Arc::default())),
        max_runs: 64,
        run_lease: Duration::from_secs(30),
        merges_patience: Duration::from_secs(1),
        queues: queue::Metrics::new(&Families::default()).unwrap(),
    }
}

/// A registry with the objects of [`TestRegistry::create_web`] and the services of Runs.
#[derive(Debug)]
pub struct TestServices {
    base: TestRegistry,
    /// The services.
    pub services: Services,
    _documents: TempDir,
}

impl Deref for TestServices {
    type Target = TestRegistry;

    fn deref(&self) -> &TestRegistry {
        &self.base
    }
}

impl TestServices {
    /// Fixtures over a log. `more` registers further kinds, and `complete` makes the function that adds subresources.
    pub async fn over<C: Fn(&'static Kind, ResourceDefinition) -> ResourceDefinition>(
        log: Arc<dyn Log>,
        runner: Runner,
        more: impl FnOnce(RegistryBuilder) -> RegistryBuilder,
        complete: impl FnOnce(&Services) -> C,
    ) -> Self {
        let documents = TempDir::new().unwrap();
        let mut made = None;
        let base = TestRegistry::completed(log.clone(), more, |surroundings, end| {
            complete(made.insert(services(&log, surroundings, runner, documents.path(), end)))
        })
        .await;
        let services = made.expect("the registry has called for it");
        base.create_web().await;
        Self { base, services, _documents: documents }
    }
}
