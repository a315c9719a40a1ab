//! Tests of order and parallelism.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;
use stoa_runtime::fake::Operation;
use tokio::sync::Semaphore;

use crate::fixtures::{Stack, config_map, id, maps, names, options, spec};

#[tokio::test]
async fn dependencies_come_first_and_references_are_replaced() {
    let stack = Stack::default();
    let reference = format!("$kusion_path.{}.metadata.uid", id("base"));
    let outcome = stack
        .apply(&spec(vec![
            config_map("top", &[], json!({"uid": reference, "text": format!("uid={{{}}}", "x"), "name": format!("is ${{kusion_path.{}.metadata.name}}", id("middle"))})),
            config_map("middle", &["base"], json!({"a": "1"})),
            config_map("base", &[], json!({"a": "1"})),
        ]))
        .await;
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!(names(&stack.cloud.called(Operation::Apply)), ["base", "middle", "top"]);
    let uid = stack.cloud.live(&id("base")).unwrap()["metadata"]["uid"].clone();
    let top = stack.cloud.live(&id("top")).unwrap();
    assert_eq!(top["data"], json!({"uid": uid, "text": "uid={x}", "name": "is middle"}));
    assert_eq!(stack.observer.record(&id("top")).attributes["data"]["uid"], uid);
}

#[tokio::test]
async fn dependents_are_deleted_first() {
    let stack = Stack::default();
    stack.bring(&maps(&[("a", &["b"]), ("b", &["c"]), ("c", &[])])).await;
    let outcome = stack.destroy().await;
    assert!(outcome.succeeded);
    assert_eq!(names(&stack.cloud.called(Operation::Delete)), ["a", "b", "c"]);
    assert!(stack.cloud.ids().is_empty() && stack.observer.state().resources.is_empty());
}

#[tokio::test]
async fn deletion_waits_for_former_dependents() {
    let stack = Stack::default();
    stack.bring(&maps(&[("user", &["used"]), ("used", &[])])).await;
    stack.bring_order(&spec(vec![config_map("user", &[], json!({"a": "2"}))])).await;
    assert_eq!(
        stack
            .cloud
            .calls()
            .iter()
            .filter(|(it, _)| matches!(it, Operation::Apply | Operation::Delete))
            .map(|(it, id)| format!("{it:?} {}", names(std::slice::from_ref(id))[0]))
            .collect::<Vec<_>>(),
        ["Apply user", "Delete used"]
    );
}

impl Stack {
    /// Applies and keeps the calls.
    async fn bring_order(&self, spec: &stoa_engine::Spec) {
        let outcome = self.apply(spec).await;
        assert!(outcome.succeeded, "{outcome:?}");
    }
}

#[tokio::test]
async fn parallelism_limits_concurrent_calls() {
    let stack = Stack::default();
    let all: Vec<String> = (0..12).map(|n| format!("m{n:02}")).collect();
    let gates: Vec<Arc<Semaphore>> = all.iter().map(|name| stack.cloud.gate(&id(name))).collect();
    let spec = spec(all.iter().map(|name| config_map(name, &[], json!({}))).collect());
    let planned = stack.plan(&spec).await.unwrap();
    let limit = options().parallelism;
    let (outcome, ()) = tokio::join!(stack.execute(&spec, &planned, &[]), async {
        // Whatever is called hangs; so many intents are kept that no more calls would begin.
        stack
            .observer
            .until(|observer| observer.intents().iter().map(|(_, ids)| ids.len()).sum::<usize>() >= 2 * limit)
            .await;
        while stack.cloud.most_in_flight() < limit {
            tokio::task::yield_now().await;
        }
        gates.iter().for_each(|gate| gate.add_permits(1));
    });
    assert!(outcome.unwrap().succeeded);
    assert_eq!(stack.cloud.most_in_flight(), limit);
}

#[tokio::test]
async fn intent_is_recorded_before_call() {
    let stack = Stack::default();
    let gate = Arc::new(Semaphore::new(0));
    *stack.observer.gate.lock() = Some(gate.clone());
    let spec = maps(&[("a", &[]), ("b", &[]), ("c", &["a"])]);
    let planned = stack.plan(&spec).await.unwrap();
    let mut walk = Box::pin(stack.execute(&spec, &planned, &[]));
    for _ in 0..100 {
        assert!(futures_util::poll!(&mut walk).is_pending());
        tokio::task::yield_now().await;
    }
    assert!(stack.cloud.called(Operation::Apply).is_empty());
    gate.add_permits(2);
    assert!(walk.await.unwrap().succeeded);
    let intents = stack.observer.intents();
    assert_eq!(names(&intents[0].1), ["a", "b"], "what is ready shares an intent");
    assert_eq!(names(&intents[1].1), ["c"]);
}

#[tokio::test]
async fn two_thousand_resources_are_brought_in_seconds() {
    let stack = Stack::default();
    let of = |n: usize| config_map(&format!("m{n}"), &[], json!({"a": "1"}));
    let spec = spec((0..2_000).map(of).collect());
    let start = std::time::Instant::now();
    stack.bring(&spec).await;
    assert!(stack.plan(&spec).await.unwrap().plan.is_unchanged());
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

/// Dependencies of numbered resources on smaller ones.
fn edges() -> impl Strategy<Value = Vec<(usize, usize)>> {
    prop::collection::vec((0..10_usize, 0..10_usize), 0..20)
        .prop_map(|edges| edges.into_iter().filter(|(from, to)| from > to).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_walk_respects_its_edges(first in edges(), second in edges(), kept in prop::collection::vec(any::<bool>(), 10)) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let stack = Stack::default();
            let of = |edges: &[(usize, usize)], is_kept: &dyn Fn(usize) -> bool, value: &str| {
                let all = (0..10).filter(|n| is_kept(*n)).map(|n| {
                    let before: Vec<String> = edges.iter().filter(|(from, to)| *from == n && is_kept(*to)).map(|(_, to)| format!("m{to}")).collect();
                    config_map(&format!("m{n}"), &before.iter().map(String::as_str).collect::<Vec<_>>(), json!({"a": value}))
                });
                spec(all.collect())
            };
            stack.bring(&of(&first, &|_| true, "1")).await;
            stack.bring_order(&of(&second, &|n| kept[n], "2")).await;
            let position: BTreeMap<String, usize> = stack.cloud.calls().iter()
                .filter(|(it, _)| matches!(it, Operation::Apply | Operation::Delete))
                .enumerate()
                .map(|(at, (_, id))| (names(std::slice::from_ref(id))[0].to_owned(), at))
                .collect();
            let at = |n: usize| position.get(&format!("m{n}")).copied();
            for (from, to) in second.iter().filter(|(from, to)| kept[*from] && kept[*to]) {
                assert!(at(*to) < at(*from), "{to} before {from}");
            }
            for (from, to) in first.iter().filter(|(_, to)| !kept[*to]) {
                assert!(at(*from) < at(*to), "{from} lets go of {to} before it is deleted");
            }
        });
    }
}
