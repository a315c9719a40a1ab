//! How deployed commits compare with that of the desired version, as the repository's history has it.
//!
//! A task of its own asks the function-runner for each pair of commits, so that no look waits for that. The stack's status
//! records the answer.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use parking_lot::Mutex;
use stoa_machinery::ApiError;
use stoa_proto::CompareRequest;
use stoa_types::{
    Stack,
    config::{CommitOrder, ComparedCommits, Deployment},
    reason,
};

use crate::{
    controllers::{
        asks::{Poke, Questions, Turns, TurnsOf},
        queue::{self, ObjectKey},
    },
    runs::{Halt, Services, readiness, runner, target::Target},
};

/// How long until commits are compared again that could not be.
const AGAIN: Duration = Duration::from_mins(1);

/// Two commits of a stack's source: the deployed one, and that of the desired version.
type Pair = (ObjectKey, String, String);

/// The questions under way.
#[derive(Debug, Default)]
pub(super) struct Commits {
    orders: Questions<Pair, CommitOrder>,
    /// The pairs that are asked about, by stack.
    asked: Mutex<HashMap<ObjectKey, BTreeSet<Pair>>>,
    turns: Turns,
    poke: Poke,
}

impl Commits {
    /// Has a stack looked at by `poke` once an answer is there.
    pub(super) fn new(poke: Poke) -> Self {
        Self { poke, ..Self::default() }
    }

    /// Asks about no other commits of a stack than these.
    fn restrict(&self, key: &ObjectKey, pairs: BTreeSet<Pair>) {
        let mut asked = self.asked.lock();
        let before = asked.remove(key).unwrap_or_default();
        before.difference(&pairs).for_each(|pair| self.orders.forget(pair));
        if !pairs.is_empty() {
            asked.insert(key.clone(), pairs);
        }
    }

    /// Asks about no commits of a stack any more.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.restrict(key, BTreeSet::new());
    }
}

/// Records the order of each deployed commit that is not the desired one, as far as it is known by now. Returns when
/// to ask again for one that could not be found out.
///
/// # Errors
///
/// When the status cannot be written.
pub(super) async fn compare(
    services: &Services,
    commits: &Commits,
    stack: &Stack,
) -> Result<Option<Duration>, ApiError> {
    let key = queue::key_of(stack);
    let pairs = unordered(&key, stack);
    commits.restrict(&key, pairs.clone());
    let mut found: Vec<ComparedCommits> = Vec::new();
    let mut again = None;
    for pair in pairs {
        let (_, commit, desired) = pair.clone();
        let answer = commits.orders.answer(pair, (&commits.poke, &key), || {
            let (services, turns, stack) = (services.clone(), commits.turns.of(&key.0), stack.clone());
            let (commit, desired) = (commit.clone(), desired.clone());
            async move { Box::pin(order(&services, &turns, &stack, [commit, desired])).await }
        });
        match answer {
            Some(Ok(order)) => found.push(ComparedCommits { commit, desired, order }),
            Some(Err(halt)) => {
                tracing::debug!(stack = key.1, commit, ?halt, "commits are not compared yet");
                again = Some(AGAIN);
            }
            None => {}
        }
    }
    if !found.is_empty() {
        let record = |stack: &mut Stack| {
            let deployments = stack.status.iter_mut().flat_map(|status| &mut status.deployments);
            for of in deployments {
                let is_of = |found: &&ComparedCommits| of.commit.as_ref() == Some(&found.commit);
                if let Some(found) = found.iter().find(is_of) {
                    of.compared = Some(found.clone());
                }
            }
            readiness::set(&services.lookup, stack, None);
        };
        services.lookup.api::<Stack>()?.update_status_with(&key.0, &key.1, record).await?;
    }
    Ok(again)
}

/// The pairs whose order the status does not have.
fn unordered(key: &ObjectKey, stack: &Stack) -> BTreeSet<Pair> {
    let Some(status) = &stack.status else { return BTreeSet::new() };
    let Some(desired) = &status.observed_commit else { return BTreeSet::new() };
    let is_unordered = |of: &&Deployment| of.resources > 0 && readiness::order(of, Some(desired)).is_none();
    let deployed = status.deployments.iter().filter(is_unordered).filter_map(|of| of.commit.as_ref());
    let others = deployed.filter(|commit| *commit != desired);
    others.map(|commit| (key.clone(), commit.clone(), desired.clone())).collect()
}

/// Asks in which order two commits are: the deployed one and the desired one.
async fn order(
    services: &Services,
    turns: &TurnsOf,
    stack: &Stack,
    [commit, desired]: [String; 2],
) -> Result<CommitOrder, Halt> {
    if is_in(services, turns, stack, [&commit, &desired]).await? {
        return Ok(CommitOrder::Behind);
    }
    let is_ahead = is_in(services, turns, stack, [&desired, &commit]).await?;
    Ok(if is_ahead { CommitOrder::Ahead } else { CommitOrder::Diverged })
}

/// Whether a commit is in the history of another. One that the repository does not have any more is in none.
async fn is_in(
    services: &Services,
    turns: &TurnsOf,
    stack: &Stack,
    [commit, base]: [&String; 2],
) -> Result<bool, Halt> {
    let source = Some(Target::source_of(services, stack).await?);
    let request = CompareRequest { source, base: base.clone(), commit: commit.clone(), paths: Vec::new() };
    match turns.ask_repository(services.runner.compare(request)).await? {
        Ok(response) => Ok(response.into_inner().is_in_base),
        Err(status) if runner::lacks_version(&status) => Ok(false),
        Err(status) => Err(runner::halt(&status, reason::SOURCE_UNREACHABLE)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stoa_proto::CompareResponse;
    use stoa_types::{Source, common::condition};
    use tonic::{Request, Response};

    use super::*;
    use crate::{
        controllers::runs::tests::World,
        kinds::testing::deploying,
        runs::runner::testing::{Answer, Answers},
    };

    /// A repository whose commits follow each other as letters do, but `x`, which is in another history.
    struct Letters;

    #[tonic::async_trait]
    impl Answers for Letters {
        async fn compare(&self, request: Request<CompareRequest>) -> Answer<CompareResponse> {
            let CompareRequest { base, commit, .. } = request.into_inner();
            let is_in_base = commit <= base && !base.starts_with('x');
            Ok(Response::new(CompareResponse { is_in_base, ..CompareResponse::default() }))
        }
    }

    #[tokio::test]
    async fn ready_tells_behind_ahead_and_diverged_apart() {
        let world = World::with_runner(runner::at(Letters.serve())).await;
        let services = &world.services;
        let (stacks, sources) = (world.registry.api::<Stack>(), world.registry.api::<Source>());
        let observe =
            |source: &mut Source| source.status.get_or_insert_default().observed_commit = Some("b".repeat(40));
        sources.update_status_with("shop", "config", observe).await.unwrap();
        let (poke, mut poked) = Poke::new();
        let asked = super::super::Asked::new(poke);
        let key = ("shop".to_owned(), "web".to_owned());
        for (deployed, order, said) in [
            ("a", CommitOrder::Behind, "it is behind"),
            ("c", CommitOrder::Ahead, "it is ahead"),
            ("x", CommitOrder::Diverged, "it diverged"),
        ] {
            let commit = deployed.repeat(40);
            let of =
                json!([{"workspace": "dev", "resources": 1, "release": 1, "phase": "Succeeded", "commit": commit}]);
            stacks.update_status_with("shop", "web", deploying(of)).await.unwrap();
            super::super::look(services.clone(), asked.clone(), key.clone()).await.unwrap();
            assert_eq!(poked.recv().await, Some(key.clone()));
            super::super::look(services.clone(), asked.clone(), key.clone()).await.unwrap();
            let status = stacks.get("shop", "web").await.unwrap().status.unwrap();
            let desired = "b".repeat(40);
            assert_eq!(status.deployments[0].compared, Some(ComparedCommits { commit, desired, order }));
            let ready = condition(&status.conditions, reason::READY).unwrap();
            assert!(ready.status == "True" && ready.message.contains(said), "{deployed}: {ready:?}");
            super::super::look(services.clone(), asked.clone(), key.clone()).await.unwrap();
            assert!(poked.try_recv().is_err() && asked.commits.asked.lock().is_empty(), "it is asked once");
        }
    }
}
