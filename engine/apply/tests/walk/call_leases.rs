//! Tests of call leases: a walk whose lease expires makes no more calls.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use stoa_apply::{Grant, Interrupted, Options, Outcome, ResourceOutcome};
use stoa_engine::problem::reason;
use stoa_engine::{Action, Spec};
use stoa_runtime::RuntimeError;
use stoa_runtime::fake::{FINISH, FakeRuntime, Operation};
use tokio::time::Instant;

use crate::fixtures::{Stack, config_map, id, maps, options, spec};

const SECOND: Duration = Duration::from_secs(1);

fn granted(for_: Duration) -> Options {
    Options { grant: Grant::until(Instant::now() + for_), ..options() }
}

impl Stack {
    async fn apply_under(&self, runtime: FakeRuntime, options: &Options, spec: &Spec) -> Outcome {
        let planned = self.plan(spec).await.unwrap();
        self.execute_with(Arc::new(runtime), spec, &planned, &[], options).await.unwrap()
    }

    /// Plans and applies again, with time enough.
    async fn goes_on(&self, spec: &Spec) {
        let outcome = self.apply_under(self.runtime(), &options(), spec).await;
        assert!(outcome.succeeded, "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn expired_lease_drops_call_in_flight() {
    let stack = Stack::default();
    let hangs = stack.cloud.gate(&id("a"));
    let (start, spec) = (Instant::now(), maps(&[("a", &[]), ("b", &[]), ("c", &["a"]), ("d", &["b"])]));
    let outcome = stack.apply_under(stack.runtime(), &granted(6 * SECOND), &spec).await;
    assert_eq!(start.elapsed().as_secs(), 6);
    assert!(outcome.canceled && !outcome.succeeded, "{outcome:?}");
    assert_eq!(
        stack.observer.results(),
        [
            format!("Done {}", id("b")),
            format!("Done {}", id("d")),
            format!("Skipped {}", id("c")),
            format!("Unknown {}", id("a")),
        ]
    );
    let problem = stack.observer.result(&id("a")).problem.unwrap();
    assert_eq!(problem.reason, reason::TIMED_OUT);
    assert_eq!(problem.message, "the call lease has expired while the call was still running");
    // However long it is waited for, it does not happen any more.
    hangs.add_permits(1);
    tokio::time::sleep(60 * SECOND).await;
    assert!(stack.cloud.live(&id("a")).is_none());
    let open: Vec<_> = stack.observer.state().open.into_iter().map(|call| (call.action, call.id.0)).collect();
    assert_eq!(open, [(Action::Create, id("a"))], "whoever goes on looks for what became of it");
    hangs.add_permits(1);
    stack.goes_on(&spec).await;
    assert!(stack.cloud.live(&id("c")).is_some() && stack.observer.state().open.is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_begins_without_a_grant() {
    let stack = Stack::default();
    let spec = maps(&[("a", &[]), ("b", &["a"])]);
    let outcome = stack.apply_under(stack.runtime(), &granted(Duration::ZERO), &spec).await;
    assert!(outcome.canceled && outcome.problems.is_empty(), "{outcome:?}");
    assert!(stack.observer.intents().is_empty(), "nothing is even about to be called");
    assert!(stack.cloud.called(Operation::Apply).is_empty());

    // It was over while the intent was being kept.
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    *stack.observer.gate.lock() = Some(gate.clone());
    let options = granted(SECOND);
    let (outcome, ()) = tokio::join!(stack.apply_under(stack.runtime(), &options, &spec), async {
        tokio::time::sleep(2 * SECOND).await;
        gate.add_permits(1);
    });
    assert!(outcome.canceled, "{outcome:?}");
    assert_eq!(stack.observer.results(), [format!("Skipped {}", id("a")), format!("Skipped {}", id("b"))]);
    assert!(stack.cloud.called(Operation::Apply).is_empty());
}

#[tokio::test(start_paused = true)]
async fn renewed_lease_lets_call_continue() {
    let stack = Stack::default();
    let hangs = stack.cloud.gate(&id("a"));
    let (options, spec) = (granted(2 * SECOND), maps(&[("a", &[])]));
    let (outcome, ()) = tokio::join!(stack.apply_under(stack.runtime(), &options, &spec), async {
        for _ in 0..20 {
            tokio::time::sleep(SECOND).await;
            options.grant.extend(Instant::now() + 2 * SECOND);
        }
        hangs.add_permits(1);
    });
    assert!(outcome.succeeded, "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn expired_lease_ends_retries() {
    let stack = Stack::default();
    for _ in 0..1_000 {
        stack.cloud.fail(Operation::Apply, &id("a"), RuntimeError::Unavailable { message: "away".to_owned() });
    }
    let start = Instant::now();
    let outcome = stack.apply_under(stack.runtime(), &granted(6 * SECOND), &maps(&[("a", &[])])).await;
    assert!(outcome.canceled && start.elapsed().as_secs() == 6, "{outcome:?} after {:?}", start.elapsed());
    let tries = stack.cloud.called(Operation::Apply).len();
    assert!(tries > 3, "{tries}");
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(stack.cloud.called(Operation::Apply).len(), tries);
    assert_eq!(stack.observer.result(&id("a")).outcome, ResourceOutcome::Unknown);
}

#[tokio::test(start_paused = true)]
async fn suspended_process_makes_no_more_calls() {
    let stack = Stack::default();
    let gates = [stack.cloud.gate(&id("a")), stack.cloud.gate(&id("old"))];
    stack.cloud.put(&id("old"), json!({"metadata": {"name": "old", "namespace": "shop"}, "data": {}}));
    let spec = spec(vec![config_map("a", &[], json!({"a": "1"})), config_map("old", &[], json!({"a": "1"}))]);
    let options = granted(6 * SECOND);
    let before = stack.cloud.live(&id("old"));
    let (outcome, ()) = tokio::join!(stack.apply_under(stack.runtime(), &options, &spec), async {
        while stack.cloud.most_in_flight() < 2 {
            tokio::task::yield_now().await;
        }
        // Their answers come and a new grant as well, but nothing of this process runs before the end of the old one.
        gates.iter().for_each(|gate| gate.add_permits(1));
        tokio::time::advance(7 * SECOND).await;
    });
    assert!(outcome.canceled && !outcome.succeeded, "{outcome:?}");
    assert_eq!(stack.observer.results(), [format!("Unknown {}", id("a")), format!("Unknown {}", id("old"))]);
    assert!(stack.cloud.live(&id("a")).is_none() && stack.cloud.live(&id("old")) == before);
    options.grant.extend(Instant::now() + 60 * SECOND);
    let outcome = stack.apply_under(stack.runtime(), &options, &spec).await;
    assert!(outcome.canceled, "a grant that was found to be over stays so: {outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn deferred_runtime_finishes_within_lease_only() {
    let stack = Stack::default();
    let hangs = stack.cloud.gate(FINISH);
    let spec = maps(&[("a", &[]), ("b", &["a"])]);
    let outcome = stack.apply_under(stack.runtime().deferred(), &granted(6 * SECOND), &spec).await;
    assert!(outcome.canceled && !outcome.succeeded && outcome.commit.is_none(), "{outcome:?}");
    hangs.add_permits(1);
    tokio::time::sleep(60 * SECOND).await;
    assert!(stack.cloud.ids().is_empty());
    assert_eq!(stack.observer.results(), [format!("Unknown {}", id("a")), format!("Unknown {}", id("b"))]);

    stack.observer.clear();
    let planned = stack.plan(&spec).await.unwrap();
    let runtime = Arc::new(stack.runtime().deferred());
    let over = stack.execute_with(runtime, &spec, &planned, &[], &granted(Duration::ZERO)).await;
    assert!(matches!(&over, Ok(Outcome { canceled: true, .. })), "{over:?}");
    assert!(stack.cloud.ids().is_empty() && stack.observer.results().is_empty(), "{:?}", stack.observer.results());

    hangs.add_permits(1);
    let again: Result<Outcome, Interrupted> = {
        let runtime = Arc::new(stack.runtime().deferred());
        stack.execute_with(runtime, &spec, &planned, &[], &granted(6 * SECOND)).await
    };
    assert!(again.unwrap().succeeded && stack.cloud.ids().len() == 2);
}
