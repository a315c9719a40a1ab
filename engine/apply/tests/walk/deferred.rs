//! Tests of deferred runtimes, which write all changes at the end.

use std::sync::Arc;

use stoa_apply::Outcome;
use stoa_engine::Spec;
use stoa_runtime::RuntimeError;
use stoa_runtime::fake::{FINISH, FakeRuntime, Operation};

use crate::fixtures::{Stack, id, maps, options};

impl Stack {
    async fn apply_deferred(&self, runtime: FakeRuntime, spec: &Spec) -> Outcome {
        let planned = self.plan(spec).await.unwrap();
        self.execute_with(Arc::new(runtime), spec, &planned, &[], &options()).await.unwrap()
    }
}

#[tokio::test]
async fn changes_are_written_and_recorded_at_the_end() {
    let stack = Stack::default();
    let outcome = stack.apply_deferred(stack.runtime().deferred(), &maps(&[("a", &[]), ("b", &["a"])])).await;
    assert!(outcome.succeeded && outcome.commit.is_some(), "{outcome:?}");
    assert_eq!(stack.cloud.ids().len(), 2);
    assert_eq!(stack.observer.state().resources.len(), 2);
}

#[tokio::test]
async fn graph_level_shares_one_intent() {
    let stack = Stack::default();
    let all: Vec<String> = (0..50).map(|n| format!("m{n}")).collect();
    let spec = maps(&all.iter().map(|name| (name.as_str(), [].as_slice())).collect::<Vec<_>>());
    assert!(stack.apply_deferred(stack.runtime().deferred(), &spec).await.succeeded);
    assert_eq!(stack.observer.intents().len(), 1);
}

#[tokio::test]
async fn half_of_a_change_is_not_made() {
    let stack = Stack::default();
    let invalid = RuntimeError::Invalid { message: "no".to_owned(), field: None };
    stack.cloud.fail(Operation::Apply, &id("b"), invalid);
    let outcome = stack.apply_deferred(stack.runtime().deferred(), &maps(&[("a", &[]), ("b", &[])])).await;
    assert!(!outcome.succeeded);
    assert!(stack.cloud.ids().is_empty() && stack.observer.state().resources.is_empty());
    assert_eq!(stack.observer.results(), [format!("Failed {}", id("b")), format!("Skipped {}", id("a"))]);
}

#[tokio::test(start_paused = true)]
async fn lost_answer_of_earlier_try_stays_unknown() {
    let lost = || RuntimeError::Unavailable { message: "connection reset".to_owned() };
    let rejected = || RuntimeError::Rejected { message: "unauthorized".to_owned(), field: None, by_definition: false };
    for (errors, told) in [
        (vec![rejected()], "Skipped"),
        (vec![lost(), rejected()], "Unknown"),
        // Whoever finds this has looked at what is there.
        (vec![lost(), RuntimeError::Stale("it moved".to_owned())], "Skipped"),
    ] {
        let stack = Stack::default();
        let last = errors.last().unwrap().to_string();
        errors.into_iter().for_each(|error| stack.cloud.fail(Operation::Finish, FINISH, error));
        let outcome = stack.apply_deferred(stack.runtime().deferred(), &maps(&[("a", &[])])).await;
        let messages: Vec<_> = outcome.problems.iter().map(|problem| problem.message.as_str()).collect();
        assert!(!outcome.succeeded && messages == [last.as_str()], "{outcome:?}");
        assert_eq!(stack.observer.results(), [format!("{told} {}", id("a"))], "{last}");
    }
}

#[tokio::test]
async fn second_try_repeats_deferred_changes() {
    let stack = Stack::default();
    let spec = maps(&[("a", &[]), ("b", &["a"])]);
    let planned = stack.plan(&spec).await.unwrap();
    stack.observer.leave_after(1);
    let runtime = Arc::new(stack.runtime().deferred());
    stack.execute_with(runtime, &spec, &planned, &[], &options()).await.unwrap_err();
    stack.observer.stay();
    // One result was kept, so the first try had finished; that the other was not makes no difference.
    let done = stack.observer.done();
    assert_eq!(done.len(), 1);
    let runtime = Arc::new(stack.runtime().deferred());
    let outcome = stack.execute_with(runtime, &spec, &planned, &done, &options()).await.unwrap();
    assert!(outcome.succeeded);
    assert_eq!(stack.observer.state().resources.len(), 2);
    assert_eq!(stack.cloud.ids().len(), 2);
}
