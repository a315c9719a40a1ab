//! Tests of permits: a resource that only waits does not block other calls.

use std::time::Duration;

use serde_json::{Value, json};
use stoa_apply::ResourceOutcome;
use stoa_engine::problem::reason;
use stoa_engine::{Action, Spec, spec::RECREATE};
use stoa_runtime::fake::Operation;
use stoa_runtime::{Deleted, Health, Runtime as _, RuntimeError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::fixtures::{RecordingObserver, Stack, config_map, id, maps, names, options, spec};

/// More resources than the window of a walk.
const MANY: usize = 40;

fn many() -> Vec<String> {
    (0..MANY).map(|number| format!("held{number:02}")).collect()
}

/// These, and one more.
fn many_and(other: Value) -> Spec {
    let held = many().into_iter().map(|name| config_map(&name, &[], json!({"a": "1"})));
    spec(held.chain([other]).collect())
}

fn intended(observer: &RecordingObserver) -> usize {
    observer.intents().iter().map(|(_, ids)| ids.len()).sum()
}

impl Stack {
    /// A stack with many objects that have finalizers.
    async fn with_held() -> Self {
        let stack = Self::default();
        stack.bring(&many_and(config_map("other", &[], json!({"a": "1"})))).await;
        many().iter().for_each(|name| stack.cloud.hold(&id(name)));
        stack
    }

    fn let_all_go(&self) {
        many().iter().for_each(|name| self.cloud.let_go(&id(name)));
    }
}

#[tokio::test(start_paused = true)]
async fn slow_deletions_do_not_block_other_calls() {
    let stack = Stack::with_held().await;
    let others = || (0..10).map(|number| config_map(&format!("new{number}"), &[], json!({"a": "1"})));
    let wanted = spec(others().chain([config_map("other", &[], json!({"a": "2"}))]).collect());
    let planned = stack.plan(&wanted).await.unwrap();
    let start = Instant::now();
    let (outcome, ()) = tokio::join!(stack.execute(&wanted, &planned, &[]), async {
        stack.observer.until(|observer| observer.done().len() == 11 && intended(observer) == MANY + 11).await;
        assert_eq!(start.elapsed(), Duration::ZERO, "nothing was waited for");
        while stack.cloud.called(Operation::WaitGone).len() < MANY {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!(many().iter().all(|name| stack.cloud.live(&id(name)).is_some()));
        assert_eq!(stack.observer.state().open.len(), MANY, "each intent stays until its object is gone");
        stack.let_all_go();
    });
    let outcome = outcome.unwrap();
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!((stack.observer.state().resources.len(), stack.cloud.ids().len()), (11, 11));
}

#[tokio::test]
async fn dependency_of_slow_deletion_is_deleted_later() {
    let stack = Stack::default();
    stack.bring(&maps(&[("a", &["b"]), ("b", &[])])).await;
    stack.cloud.hold(&id("a"));
    let (outcome, ()) = tokio::join!(stack.destroy(), async {
        while stack.cloud.called(Operation::WaitGone).is_empty() {
            tokio::task::yield_now().await;
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(names(&stack.cloud.called(Operation::Delete)), ["a"]);
        assert!(stack.observer.results().is_empty());
        stack.cloud.let_go(&id("a"));
    });
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!(names(&stack.cloud.called(Operation::Delete)), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn stuck_deletions_time_out_together() {
    let stack = Stack::with_held().await;
    let start = Instant::now();
    let outcome = stack.destroy().await;
    // Until nothing of them can arrive any more.
    assert_eq!(start.elapsed().as_secs(), 62);
    assert_eq!(outcome.problems.len(), MANY);
    for problem in &outcome.problems {
        assert_eq!((&*problem.reason, &*problem.message), (reason::TIMED_OUT, "it took longer than 60s"));
    }
    let state = stack.observer.state();
    assert_eq!((state.resources.len(), state.open.len()), (MANY, MANY));
    assert!(state.open.iter().all(|call| call.action == Action::Delete));
    // Whoever goes on waits for the same.
    stack.observer.clear();
    let (outcome, ()) = tokio::join!(stack.destroy(), async {
        stack.observer.until(|observer| intended(observer) == MANY).await;
        stack.let_all_go();
    });
    assert!(outcome.succeeded, "{outcome:?}");
    assert!(stack.observer.state() == stoa_engine::State::default() && stack.cloud.ids().is_empty());
}

#[tokio::test(start_paused = true)]
async fn stopped_walk_does_not_wait_for_deletions() {
    let stack = Stack::with_held().await;
    let start = Instant::now();
    let (outcome, ()) = tokio::join!(stack.destroy(), async {
        stack.observer.until(|observer| intended(observer) == MANY + 1).await;
        stack.cloud.let_go(&id("held00"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        stack.cancel.cancel();
    });
    assert!(outcome.canceled && outcome.problems.len() == MANY - 1, "{outcome:?}");
    assert_eq!(start.elapsed().as_secs(), 1, "it ends at once");
    assert_eq!(stack.observer.result(&id("held00")).outcome, ResourceOutcome::Done);
    let result = stack.observer.result(&id("held01"));
    let message = "the run was stopped before it was deleted";
    assert_eq!((result.outcome, result.message.as_str()), (ResourceOutcome::Failed, message));
    // They stay on record, and nobody has to find out what became of the calls.
    let state = stack.observer.state();
    assert_eq!((state.resources.len(), state.open), (MANY - 1, Vec::new()));
    let after = Stack { cancel: CancellationToken::new(), ..stack };
    after.let_all_go();
    let outcome = after.destroy().await;
    assert!(outcome.succeeded && after.observer.state() == stoa_engine::State::default(), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn stopped_walk_knows_of_repeated_deletion() {
    let stack = Stack::default();
    stack.bring(&maps(&[("a", &[])])).await;
    stack.cloud.hold(&id("a"));
    stack.cloud.lose(&id("a"), RuntimeError::Unavailable { message: "connection reset".to_owned() });
    let (outcome, ()) = tokio::join!(stack.destroy(), async {
        while stack.cloud.called(Operation::WaitGone).is_empty() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        stack.cancel.cancel();
    });
    assert!(outcome.canceled, "{outcome:?}");
    assert_eq!(stack.observer.result(&id("a")).outcome, ResourceOutcome::Failed);
    assert_eq!((stack.observer.state().resources.len(), stack.observer.state().open), (1, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn stopped_walk_does_not_wait_for_terminating_object() {
    let stack = Stack::default();
    let wanted = maps(&[("a", &[])]);
    stack.bring(&wanted).await;
    stack.cloud.hold(&id("a"));
    let record = stack.observer.record(&id("a"));
    assert!(matches!(stack.runtime().delete(&record).await, Ok(Deleted::Terminating(_))));
    let planned = stack.plan(&wanted).await.unwrap();
    let (outcome, ()) = tokio::join!(stack.execute(&wanted, &planned, &[]), async {
        while stack.cloud.called(Operation::WaitGone).is_empty() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        stack.cancel.cancel();
    });
    assert!(outcome.unwrap().canceled);
    let result = stack.observer.result(&id("a"));
    let message = "the run was stopped before the existing object was deleted";
    assert_eq!((result.outcome, result.message.as_str()), (ResourceOutcome::Failed, message));
    assert!(stack.observer.state().open.is_empty());
}

#[tokio::test]
async fn number_of_waiting_resources_is_limited() {
    const ALL: usize = 1_100;
    const MOST: usize = 1_024 + 8;
    let stack = Stack::default();
    let all: Vec<String> = (0..ALL).map(|number| format!("m{number}")).collect();
    stack.bring(&spec(all.iter().map(|name| config_map(name, &[], json!({}))).collect())).await;
    all.iter().for_each(|name| stack.cloud.hold(&id(name)));
    let (outcome, ()) = tokio::join!(stack.destroy(), async {
        stack.observer.until(|observer| intended(observer) == MOST).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(intended(&stack.observer), MOST);
        all.iter().for_each(|name| stack.cloud.let_go(&id(name)));
    });
    assert!(outcome.succeeded && stack.cloud.ids().is_empty());
}

#[tokio::test(start_paused = true)]
async fn creation_waits_for_terminating_object_without_permit() {
    let stack = Stack::with_held().await;
    let state = stack.observer.state();
    for record in state.resources.iter().filter(|record| record.id.0 != id("other")) {
        assert!(matches!(stack.runtime().delete(record).await, Ok(Deleted::Terminating(_))));
    }
    stack.cloud.clear_calls();
    let wanted = many_and(config_map("other", &[], json!({"a": "2"})));
    let planned = stack.plan(&wanted).await.unwrap();
    assert_eq!((planned.summary.create as usize, planned.summary.update), (MANY, 1));
    // The first call for each is answered, and the second hangs.
    let gates: Vec<_> = many().iter().map(|name| stack.cloud.gate(&id(name))).collect();
    gates.iter().for_each(|gate| gate.add_permits(1));
    let (outcome, ()) = tokio::join!(stack.execute(&wanted, &planned, &[]), async {
        stack.observer.until(|observer| intended(observer) == MANY + 1 && observer.done().len() == 1).await;
        while stack.cloud.called(Operation::WaitGone).len() < MANY {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        stack.let_all_go();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(stack.cloud.most_in_flight(), options().parallelism, "each waits for its turn again");
        gates.iter().for_each(|gate| gate.add_permits(1));
    });
    let outcome = outcome.unwrap();
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!(stack.cloud.called(Operation::Apply).len(), 2 * MANY + 1);
    assert_eq!(stack.cloud.most_in_flight(), options().parallelism);
    let (before, after) = (state, stack.observer.state());
    let uid = |state: &stoa_engine::State| state.resources[0].uid().unwrap().to_owned();
    assert_ne!(uid(&before), uid(&after));
}

#[tokio::test(start_paused = true)]
async fn replacement_waits_for_deletion() {
    let web = |kind: &str| {
        let mut map = config_map("a", &[], json!({"a": "1"}));
        map["extensions"] = json!({RECREATE: "true"});
        map["attributes"]["type"] = json!(kind);
        spec(vec![map])
    };
    for (is_refused, outcome) in [(false, ResourceOutcome::Done), (true, ResourceOutcome::Failed)] {
        let stack = Stack::default();
        stack.cloud.fix("type");
        stack.bring(&web("x")).await;
        stack.cloud.hold(&id("a"));
        // Neither a deletion whose answer was lost nor a wait that broke is open once the object is gone.
        let unavailable = || RuntimeError::Unavailable { message: "connection reset".to_owned() };
        stack.cloud.lose(&id("a"), unavailable());
        stack.cloud.fail(Operation::WaitGone, &id("a"), unavailable());
        if is_refused {
            stack.cloud.fail(Operation::Apply, &id("a"), RuntimeError::Invalid { message: "no".into(), field: None });
        }
        let wanted = web("y");
        let planned = stack.plan(&wanted).await.unwrap();
        assert_eq!(planned.plan.actions[0].action, Action::Replace);
        let (ended, ()) = tokio::join!(stack.execute(&wanted, &planned, &[]), async {
            while stack.cloud.called(Operation::WaitGone).len() < 2 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            assert!(stack.cloud.called(Operation::Apply).is_empty());
            stack.cloud.let_go(&id("a"));
        });
        assert_eq!((ended.unwrap().succeeded, stack.observer.result(&id("a")).outcome), (!is_refused, outcome));
        assert_eq!(stack.cloud.live(&id("a")).is_some(), !is_refused);
        assert!(stack.observer.state().open.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn unestablished_definitions_delay_dependents_only() {
    let name = |number: usize| format!("widgets.g{number}.example.com");
    let id_of = |number: usize| format!("apiextensions.k8s.io/v1:CustomResourceDefinition:{}", name(number));
    let definition = |number: usize| {
        json!({"id": id_of(number), "type": "Kubernetes", "attributes": {
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": name(number)}}})
    };
    let mut after = config_map("z-after", &[], json!({}));
    after["dependsOn"] = json!([id_of(0)]);
    let others = (0..10).map(|number| config_map(&format!("z{number}"), &[], json!({})));
    let wanted = spec((0..20).map(definition).chain(others).chain([after]).collect());
    let stack = Stack::default();
    (0..20).for_each(|number| stack.cloud.set_health(&id_of(number), &[(Health::InProgress, "not accepted yet")]));
    let planned = stack.plan(&wanted).await.unwrap();
    let start = Instant::now();
    let (outcome, ()) = tokio::join!(stack.execute(&wanted, &planned, &[]), async {
        stack.observer.until(|observer| observer.done().len() == 10).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    });
    let outcome = outcome.unwrap();
    assert_eq!((outcome.problems.len(), start.elapsed().as_secs()), (20, 60), "{outcome:?}");
    assert_eq!(stack.observer.result(&id("z-after")).outcome, ResourceOutcome::Skipped);
}
