//! Streams that break, runs that are cancelled, plans that do not fit.

use std::time::Duration;

use stoa_engine::Spec;
use stoa_git::testing::Behaviour;
use stoa_proto::apply_event::Event;
use stoa_proto::{ApplyEvent, Summary};
use tonic::Code;

use crate::bed::{Bed, problem};
use crate::caller::Reaction;
use crate::delivery::Scene;
use crate::grants::at_a_server;

/// The caller is gone before it has heard what came of anything.
fn hang_up_at_a_result(event: &ApplyEvent) -> Reaction {
    match event.event {
        Some(Event::Result(_)) => Reaction::HangUp,
        _ => Reaction::Keep,
    }
}

#[tokio::test]
async fn broken_stream_resumes_and_makes_one_commit() {
    // A heartbeat, 3 intents and 3 results, or fewer when a runtime takes them in a batch.
    for break_at in 1..=7 {
        let mut scene = Scene::new().await;
        let spec = scene.spec(1).await;
        let plan = scene.caller.plan(&spec, false).await.unwrap();
        let broken =
            scene
                .caller
                .apply_with(&spec, &plan, &[], |event| {
                    if event.sequence == break_at { Reaction::HangUp } else { Reaction::Keep }
                })
                .await;
        if broken.finished.is_some() {
            continue;
        }
        let done: Vec<String> = broken.results.iter().map(|result| result.id.clone()).collect();
        let resumed = scene.caller.apply_with(&spec, &plan, &done, |_| Reaction::Keep).await;
        assert!(resumed.finished().succeeded, "broken at {break_at}: {resumed:?}");
        assert_eq!(scene.commits(), [resumed.finished().gitops_commit.clone()], "broken at {break_at}");
        assert_eq!(scene.delivered().iter().filter(|text| text.contains("kind:")).count(), 3, "broken at {break_at}");
        scene.caller.next_run("after");
        let after = scene.caller.plan(&spec, false).await.unwrap();
        assert_eq!(after.summary.unwrap().unchanged, 3, "broken at {break_at}: {}", after.table);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_without_a_reachable_server_resumes_later() {
    let (mut scene, server, spec, plan) = at_a_server().await;
    scene.caller.lease = Duration::from_secs(30);
    server.behave(Behaviour::Normal);
    let lost = scene.caller.apply_with(&spec, &plan, &[], hang_up_at_a_result).await;
    assert!(lost.finished.is_none() && scene.caller.state.values().all(|entry| entry.intent.is_some()), "{lost:?}");
    server.behave(Behaviour::Away);
    let away = scene.caller.apply(&spec, &plan).await;
    let status = away.error.as_ref().unwrap_or_else(|| panic!("{away:?}"));
    assert_eq!((problem(status).0, problem(status).1.reason.as_str()), (Code::Unavailable, "Unavailable"));
    assert!(away.results.is_empty(), "{away:?}");
    server.behave(Behaviour::Normal);
    let again = scene.caller.apply(&spec, &plan).await;
    assert!(again.finished().succeeded, "{again:?}");
    assert_eq!(scene.commits().len(), 1);
}

#[tokio::test]
async fn lost_run_removes_only_its_own_files() {
    let mut scene = Scene::new().await;
    let spec = scene.spec(1).await;
    let plan = scene.caller.plan(&spec, false).await.unwrap();
    let lost = scene.caller.apply_with(&spec, &plan, &[], hang_up_at_a_result).await;
    assert!(lost.finished.is_none() && lost.results.is_empty() && scene.commits().len() == 1, "{lost:?}");
    assert!(scene.caller.state.values().all(|entry| entry.intent.is_some() && entry.resource.is_empty()));
    let open = scene.caller.state.clone();

    // The same intents, of another stack's run that wrote nothing.
    scene.caller.next_run("another");
    let stack = std::mem::replace(&mut scene.caller.target.stack_uid, "uid-of-another-stack".to_owned());
    let run = "uid-of-one-that-wrote-nothing";
    scene.caller.state.values_mut().for_each(|entry| entry.intent.as_mut().unwrap().run = run.to_owned());
    let plan = scene.caller.plan(&Spec::default(), true).await.unwrap();
    assert_eq!(plan.summary, Some(Summary { forget: 3, ..Summary::default() }), "{}", plan.table);
    assert!(scene.caller.apply(&Spec::default(), &plan).await.finished().succeeded);
    assert!(scene.caller.state.is_empty());
    assert_eq!((scene.commits().len(), scene.delivered().len()), (1, 3), "they are somebody else's");

    scene.caller.state = open;
    scene.caller.target.stack_uid = stack;
    let plan = scene.caller.plan(&Spec::default(), true).await.unwrap();
    assert_eq!(plan.summary, Some(Summary { delete: 3, ..Summary::default() }), "{}", plan.table);
    assert!(scene.caller.apply(&Spec::default(), &plan).await.finished().succeeded);
    assert!(scene.caller.state.is_empty() && scene.delivered().is_empty(), "{:?}", scene.delivered());
}

#[tokio::test]
async fn cancelled_run_writes_nothing_more() {
    let mut scene = Scene::new().await;
    let spec = scene.spec(1).await;
    let plan = scene.caller.plan(&spec, false).await.unwrap();
    let applied = scene
        .caller
        .apply_with(&spec, &plan, &[], |event| match event.event {
            Some(Event::Intent(_)) => Reaction::CancelAndKeep,
            _ => Reaction::Keep,
        })
        .await;
    assert!(applied.finished().canceled && !applied.finished().succeeded, "{applied:?}");
    assert!(applied.outcomes().iter().all(|(_, _, outcome)| *outcome == "Skipped"), "{:?}", applied.outcomes());
    assert!(scene.commits().is_empty());
}

#[tokio::test]
async fn plan_of_another_spec_is_rejected() {
    let mut scene = Scene::new().await;
    let spec = scene.spec(1).await;
    let plan = scene.caller.plan(&spec, false).await.unwrap();
    let other = scene.spec(2).await;
    let applied = scene.caller.apply(&other, &plan).await;
    assert_eq!(applied.error.map(|status| status.code()), Some(Code::Aborted));
    assert!(scene.commits().is_empty());
}

#[tokio::test]
async fn draining_runner_hands_the_caller_over() {
    let mut scene = Scene::new().await;
    let spec = scene.spec(1).await;
    let plan = scene.caller.plan(&spec, false).await.unwrap();
    let bed = &scene.bed;
    let applied = scene
        .caller
        .apply_with(&spec, &plan, &[], |event| {
            if let Some(Event::Intent(_)) = event.event {
                bed.terminate();
            }
            Reaction::Keep
        })
        .await;
    // Whatever was in flight is told; what was not begun is left to another runner.
    if let Some(finished) = &applied.finished {
        assert!(finished.succeeded, "{applied:?}");
    } else {
        assert_eq!(applied.error.as_ref().map(tonic::Status::code), Some(Code::Unavailable), "{applied:?}");
        let another = Bed::start();
        scene.caller.client = another.client().await;
        let again = scene.caller.apply(&spec, &plan).await;
        assert!(again.finished().succeeded, "{again:?}");
    }
    assert_eq!(scene.delivered().iter().filter(|text| text.contains("kind:")).count(), 3);
    let ended = tokio::time::timeout(Duration::from_secs(30), scene.bed.ended()).await.unwrap();
    assert!(ended.success(), "{ended:?}");
}
