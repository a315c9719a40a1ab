//! How deployed commits compare with that of the desired version, as the repository's history has it.
//!
//! A task of its own asks the function-runner for each pair of commits of a Source, so that no look waits for that. Every
//! stack with that pair shares the answer and records it in its status. The answer is in memory while a stack has the pair.

use std::{collections::HashSet, time::Duration};

use stoa_controller::{
    probes::{NamespaceSlots, Questions},
    queue,
};
use stoa_kinds::readiness;
use stoa_proto::CompareRequest;
use stoa_runs::{Services, StepError, runner, target};
use stoa_types::{
    Stack,
    config::{CommitOrder, ComparedCommits, Deployment},
    reason,
};

/// How long until commits are compared again that could not be.
const AGAIN: Duration = Duration::from_mins(1);

/// Two commits of a Source. All Stacks of the Source that have them share the answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pair {
    namespace: String,
    source: String,
    commit: String,
    desired: String,
}

/// The questions of Stacks.
pub(super) type Commits = Questions<Pair, CommitOrder, StepError>;

/// The answers about the deployed commits of a Stack.
#[derive(Debug, Default)]
pub(super) struct Answers {
    found: Vec<ComparedCommits>,
    /// Whether an answer is outstanding.
    pub(super) is_asking: bool,
    /// When to ask again.
    pub(super) again: Option<Duration>,
}

impl Answers {
    /// Records the order of deployed commits, as far as it is known.
    pub(super) fn note(&self, stack: &mut Stack) {
        let deployments = stack.status.iter_mut().flat_map(|status| &mut status.deployments);
        for of in deployments {
            let is_of = |found: &&ComparedCommits| of.commit.as_ref() == Some(&found.commit);
            if let Some(found) = self.found.iter().find(is_of) {
                of.compared = Some(found.clone());
            }
        }
    }
}

/// Compares the deployed commits of a Stack with the commit of its desired version.
pub(super) fn compare(services: &Services, commits: &Commits, stack: &Stack, desired: Option<&String>) -> Answers {
    let key = queue::key_of(stack);
    let (pairs, unordered) = pairs(services, &key.0, stack, desired);
    commits.set(&key, pairs);
    let mut answers = Answers::default();
    for pair in unordered {
        let Pair { commit, desired, .. } = pair.clone();
        let answer = commits.answer(&key, &pair, &key.0, |turns| {
            let (services, pair) = (services.clone(), pair.clone());
            async move { Box::pin(order(&services, &turns, &pair)).await }
        });
        match answer {
            Some(Ok(order)) => answers.found.push(ComparedCommits { commit, desired, order }),
            Some(Err(halt)) => {
                tracing::debug!(stack = key.1, commit, ?halt, "commits are not compared yet");
                answers.again = Some(AGAIN);
            }
            None => answers.is_asking = true,
        }
    }
    answers
}

/// The pairs of a Stack, and those of them whose order its status does not have.
fn pairs(
    services: &Services,
    namespace: &str,
    stack: &Stack,
    desired: Option<&String>,
) -> (HashSet<Pair>, HashSet<Pair>) {
    let (mut all, mut unordered) = (HashSet::new(), HashSet::new());
    let Some((status, desired)) = stack.status.as_ref().zip(desired) else { return (all, unordered) };
    let others = |of: &&Deployment| of.resources > 0 && of.commit.as_ref() != Some(desired);
    let deployed: Vec<&Deployment> = status.deployments.iter().filter(others).collect();
    if deployed.is_empty() {
        return (all, unordered);
    }
    // The Stack is due when its Project appears.
    let Some(source) = readiness::source_of(&services.lookup, namespace, &stack.spec.project) else {
        return (all, unordered);
    };
    for of in deployed {
        let Some(commit) = of.commit.clone() else { continue };
        let pair = Pair { namespace: namespace.to_owned(), source: source.clone(), commit, desired: desired.clone() };
        if readiness::order(of, Some(desired)).is_none() {
            unordered.insert(pair.clone());
        }
        all.insert(pair);
    }
    (all, unordered)
}

/// Asks in which order two commits are.
async fn order(services: &Services, turns: &NamespaceSlots, pair: &Pair) -> Result<CommitOrder, StepError> {
    let Pair { commit, desired, .. } = pair;
    if is_in(services, turns, pair, [commit, desired]).await? {
        return Ok(CommitOrder::Behind);
    }
    let is_ahead = is_in(services, turns, pair, [desired, commit]).await?;
    Ok(if is_ahead { CommitOrder::Ahead } else { CommitOrder::Diverged })
}

/// Whether a commit is in the history of another. One that the repository does not have any more is in none.
async fn is_in(
    services: &Services,
    turns: &NamespaceSlots,
    Pair { namespace, source, .. }: &Pair,
    [commit, base]: [&String; 2],
) -> Result<bool, StepError> {
    let source = Some(target::source_at(services, namespace, source).await?);
    let (base, commit) = (base.clone(), commit.clone());
    let request = CompareRequest { source, base, commit, ..CompareRequest::default() };
    match turns.ask_repository(services.runner.compare(request)).await? {
        Ok(response) => Ok(response.into_inner().is_in_base),
        Err(status) if runner::lacks_version(&status) => Ok(false),
        Err(status) => Err(runner::halt(&status, reason::SOURCE_UNREACHABLE)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use serde_json::json;
    use stoa_controller::probes::Requeue;
    use stoa_kinds::testing::deploying;
    use stoa_proto::CompareResponse;
    use stoa_runs::testing::{Answer, FakeRunner, runner_at};
    use stoa_types::{Source, common::condition};
    use tonic::{Request, Response};

    use super::*;
    use crate::testing::TestServer;

    /// A repository whose commits follow each other as letters do, but `x`, which is in another history.
    /// It counts what it is asked.
    #[derive(Clone, Debug, Default)]
    struct Letters(Arc<AtomicUsize>);

    #[tonic::async_trait]
    impl FakeRunner for Letters {
        async fn compare(&self, request: Request<CompareRequest>) -> Answer<CompareResponse> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let CompareRequest { base, commit, .. } = request.into_inner();
            let is_in_base = commit <= base && !base.starts_with('x');
            Ok(Response::new(CompareResponse { is_in_base, ..CompareResponse::default() }))
        }
    }

    /// Sets the observed commit of the Source to `b`.
    async fn observe(world: &TestServer) {
        let observe =
            |source: &mut Source| source.status.get_or_insert_default().observed_commit = Some("b".repeat(40));
        world.registry.api::<Source>().update_status_with("shop", "config", observe).await.unwrap();
    }

    /// Records that a Stack is deployed at the commit of a letter.
    async fn deploy(world: &TestServer, stack: &str, letter: &str) {
        let commit = letter.repeat(40);
        let of = json!([{"workspace": "dev", "resources": 1, "release": 1, "phase": "Succeeded", "commit": commit}]);
        world.registry.api::<Stack>().update_status_with("shop", stack, deploying(of)).await.unwrap();
    }

    #[tokio::test]
    async fn ready_tells_behind_ahead_and_diverged_apart() {
        let world = TestServer::with_runner(runner_at(Letters::default().serve())).await;
        let services = &world.services;
        let stacks = world.registry.api::<Stack>();
        observe(&world).await;
        let (requeue, mut poked) = Requeue::new();
        let asked = super::super::Lookups::new(requeue);
        let key = ("shop".to_owned(), "web".to_owned());
        for (deployed, order, said) in [
            ("a", CommitOrder::Behind, "it is behind"),
            ("c", CommitOrder::Ahead, "it is ahead"),
            ("x", CommitOrder::Diverged, "it diverged"),
        ] {
            let commit = deployed.repeat(40);
            deploy(&world, "web", deployed).await;
            super::super::look(services.clone(), asked.clone(), key.clone()).await.unwrap();
            assert_eq!(poked.recv().await, Some(key.clone()));
            super::super::look(services.clone(), asked.clone(), key.clone()).await.unwrap();
            let status = stacks.get("shop", "web").await.unwrap().status.unwrap();
            let desired = "b".repeat(40);
            assert_eq!(status.deployments[0].compared, Some(ComparedCommits { commit, desired, order }));
            let ready = condition(&status.conditions, reason::READY).unwrap();
            assert!(ready.status == "True" && ready.message.contains(said), "{deployed}: {ready:?}");
            super::super::look(services.clone(), asked.clone(), key.clone()).await.unwrap();
            assert!(poked.try_recv().is_err(), "it is asked once");
        }
    }

    #[tokio::test]
    async fn new_commit_and_its_order_are_one_write() {
        let world = TestServer::with_runner(runner_at(Letters::default().serve())).await;
        let stacks = world.registry.api::<Stack>();
        let (requeue, mut poked) = Requeue::new();
        let asked = super::super::Lookups::new(requeue);
        let look = async || {
            let key = ("shop".to_owned(), "web".to_owned());
            super::super::look(world.services.clone(), asked.clone(), key).await.unwrap();
            stacks.get("shop", "web").await.unwrap()
        };
        deploy(&world, "web", "a").await;
        let before = look().await;
        observe(&world).await;
        let waiting = look().await;
        assert_eq!(waiting.metadata.resource_version, before.metadata.resource_version, "the order is not known yet");
        poked.recv().await.unwrap();
        let written = look().await;
        let status = written.status.unwrap();
        assert_eq!(status.observed_commit, Some("b".repeat(40)));
        assert_eq!(status.deployments[0].compared.as_ref().map(|it| it.order), Some(CommitOrder::Behind));
        assert_eq!(look().await.metadata.resource_version, written.metadata.resource_version);
    }

    #[tokio::test]
    async fn stacks_of_one_source_share_commit_comparison() {
        let letters = Letters::default();
        let world = TestServer::with_runner(runner_at(letters.clone().serve())).await;
        let (requeue, mut poked) = Requeue::new();
        let asked = super::super::Lookups::new(requeue);
        let look = async |name: &str| {
            let key = ("shop".to_owned(), name.to_owned());
            super::super::look(world.services.clone(), asked.clone(), key).await.unwrap();
        };
        let order = async |name: &str| {
            let status = world.registry.api::<Stack>().get("shop", name).await.unwrap().status.unwrap();
            status.deployments[0].compared.as_ref().map(|compared| compared.order)
        };
        observe(&world).await;
        for name in ["api", "late"] {
            world.create("Stack", name, json!({"project": "web"})).await;
        }
        for name in ["web", "api", "late"] {
            deploy(&world, name, "a").await;
        }
        look("web").await;
        look("api").await;
        poked.recv().await.unwrap();
        for name in ["web", "api", "late"] {
            look(name).await;
            assert_eq!(order(name).await, Some(CommitOrder::Behind), "{name}");
        }
        assert_eq!(letters.0.load(Ordering::Relaxed), 1);

        // The desired commit is deployed everywhere.
        for name in ["web", "api", "late"] {
            deploy(&world, name, "b").await;
            look(name).await;
        }
        assert!(asked.commits.is_empty(), "{:?}", asked.commits);
    }
}
