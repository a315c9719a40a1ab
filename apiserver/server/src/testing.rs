//! Fixtures of tests: a server over a log in memory.
//!
//! Elsewhere: `stoa_runs::testing` has the services below it and fake function-runners, and `stoa_controller::testing` a
//! log with failures.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use futures_util::StreamExt as _;
use serde_json::json;
use stoa_kinds::{core_v1, run_status::status};
use stoa_machinery::{
    log::MemoryLog,
    registry::{DeleteOptions, RegistryBuilder},
};
use stoa_runs::{
    runner::Runner,
    testing::{TestServices, unreachable_runner},
};
use stoa_types::{
    Run, Stack,
    delivery::{RunPhase, RunStatus},
};
use tokio::task::JoinHandle;

use crate::{behaviours, controllers::runs, services::AllServices, subresources::Subresources};

/// Longer than anything in a test takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A server with an unreachable function-runner or a fake one, and no controller until [`controlled`](Self::controlled) starts
/// that of Runs.
pub(crate) struct TestServer {
    base: TestServices,
    _controller: Option<JoinHandle<()>>,
}

impl Deref for TestServer {
    type Target = TestServices;

    fn deref(&self) -> &TestServices {
        &self.base
    }
}

impl DerefMut for TestServer {
    fn deref_mut(&mut self) -> &mut TestServices {
        &mut self.base
    }
}

impl TestServer {
    pub(crate) async fn new() -> Self {
        Self::with_runner(unreachable_runner()).await
    }

    pub(crate) async fn with_runner(runner: Runner) -> Self {
        Self::with(runner, |builder| builder).await
    }

    /// A server with the core kinds that a standalone server serves, such as Secrets.
    pub(crate) async fn with_secrets() -> Self {
        Self::with_runner_and_secrets(unreachable_runner()).await
    }

    pub(crate) async fn with_runner_and_secrets(runner: Runner) -> Self {
        Self::with(runner, core_v1::register).await
    }

    /// A server with further kinds registered.
    pub(crate) async fn with(runner: Runner, more: impl FnOnce(RegistryBuilder) -> RegistryBuilder) -> Self {
        Self::over(Arc::new(MemoryLog::new()), runner, more).await
    }

    /// A server over a log of the test's own.
    pub(crate) async fn over(
        log: Arc<dyn stoa_machinery::Log>,
        runner: Runner,
        more: impl FnOnce(RegistryBuilder) -> RegistryBuilder,
    ) -> Self {
        // Futures of tests contain this one.
        let base = Box::pin(TestServices::over(log, runner, more, |services| {
            let subresources = Subresources::new(AllServices::of_test(services.clone()));
            move |kind, definition| behaviours::attach(kind, definition, &subresources)
        }))
        .await;
        Self { base, _controller: None }
    }

    /// A server with the controller of Runs.
    pub(crate) async fn with_controller() -> Self {
        Self::new().await.controlled()
    }

    pub(crate) fn controlled(mut self) -> Self {
        self._controller = Some(tokio::spawn(runs::run(self.services.clone(), self.end.clone())));
        self
    }

    pub(crate) async fn apply(&self, name: &str) {
        self.create("Run", name, json!({"stack": "web", "workspace": "dev", "operation": "Apply"})).await;
    }

    pub(crate) async fn change(&self, name: &str, change: impl FnMut(&mut Run) + Send) {
        self.registry.api::<Run>().update_with("shop", name, change).await.unwrap();
    }

    /// Waits until the status of a run is as expected.
    pub(crate) async fn until(&self, name: &str, is_there: impl Fn(&RunStatus) -> bool) -> RunStatus {
        let runs = self.registry.api::<Run>();
        let mut changes = runs.subscribe(None);
        let found = async {
            loop {
                let found = status(&runs.get("shop", name).await.unwrap());
                if is_there(&found) {
                    return found;
                }
                changes.next().await.unwrap();
            }
        };
        match tokio::time::timeout(PATIENCE, found).await {
            Ok(found) => found,
            Err(_) => panic!("{name} does not get there: {:?}", runs.get("shop", name).await.unwrap().status),
        }
    }

    pub(crate) async fn began(&self, name: &str) {
        self.until(name, |status| status.phase == RunPhase::Generating).await;
    }

    pub(crate) async fn ended(&self, name: &str) -> RunStatus {
        self.until(name, |status| status.phase.is_terminal()).await
    }

    /// Deletes a run, and waits until it is gone.
    pub(crate) async fn remove(&self, name: &str) {
        let runs = self.registry.api::<Run>();
        let mut changes = runs.subscribe(None);
        runs.delete("shop", name, &DeleteOptions::default()).await.unwrap();
        let gone = async {
            while runs.get_opt("shop", name).await.unwrap().is_some() {
                changes.next().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, gone).await.expect("it goes");
    }

    /// The run that the stack's deployment names, and how it fares.
    pub(crate) async fn deployment(&self) -> (Option<String>, Option<RunPhase>) {
        let stack = self.registry.api::<Stack>().get("shop", "web").await.unwrap();
        let deployment = stack.status.unwrap().deployments.remove(0);
        (deployment.last_run, deployment.phase)
    }
}
