//! Runs whose tasks panic.

use async_trait::async_trait;
use stoa_machinery::{
    auth::{Attributes, Authorizer, Decision},
    request::UserInfo,
};
use stoa_runs::testing::runner_at;

use super::fenced_runners::{A, Scripted};
use super::*;

/// Makes a mistake whenever it is asked about Ann.
#[derive(Debug)]
struct Mistaken;

#[async_trait]
impl Authorizer for Mistaken {
    async fn authorize(&self, user: &UserInfo, _: &Attributes) -> Result<Decision, stoa_machinery::ApiError> {
        assert_ne!(user.name, "ann", "a mistake");
        Ok(Decision::Allow(String::new()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_panics_end_run_and_release_turn() {
    let (address, _conversations) = Scripted::start(&[A]).await;
    let mut world = TestServer::with_runner(runner_at(address)).await;
    world.services.authorizer = Arc::new(Mistaken);
    let mut scheduler = Scheduler::new(world.services.clone(), world.end.clone());
    let runs = world.registry.api::<Run>();
    world.destroy_for_ann("one").await;
    world.destroy("two").await;
    for name in ["one", "two"] {
        scheduler.see(runs.get("shop", name).await.unwrap()).await;
    }
    let two = runs.get("shop", "two").await.unwrap().uid().unwrap();
    let mut panics = 0;
    let ended = loop {
        let one = scheduler.next_ends().await;
        let found = status(&runs.get("shop", "one").await.unwrap());
        if found.phase.is_terminal() {
            break found;
        }
        panics += 1;
        assert!(panics < 20 && scheduler.lanes.has_turn(&one));
        scheduler.later.values_mut().for_each(|at| *at = Instant::now());
        scheduler.sweep().await;
    };
    let (_, why, message) = super::approval::told(&ended, reason::FAILED);
    assert_eq!((ended.phase, why, panics), (RunPhase::Failed, reason::SERVER_FAILED, 5));
    assert!(message.contains("the server failed 5 times in a row"), "{message}");
    assert!(scheduler.lanes.has_turn(&two));
    assert_eq!(world.deployment().await, (Some("one".to_owned()), Some(RunPhase::Failed)));
}

/// A clock that makes a mistake once.
#[derive(Debug, Default)]
struct Stumbling(AtomicBool);

impl Clock for Stumbling {
    fn now_ms(&self) -> i64 {
        assert!(self.0.swap(true, Ordering::Relaxed), "a mistake");
        Timestamp::now().as_millisecond()
    }
}

#[tokio::test]
async fn abandoned_run_ends_despite_other_failures() {
    let mut world = TestServer::new().await;
    world.services.clock = Arc::new(Stumbling::default());
    world.apply("one").await;
    let run = world.registry.api::<Run>().get("shop", "one").await.unwrap();
    let given_up = crate::controllers::runs::panics::give_up(world.services.clone(), run, world.end.clone());
    tokio::time::timeout(PATIENCE, given_up).await.unwrap();
    let ended = world.ended("one").await;
    assert_eq!((ended.phase, why(&ended.conditions)), (RunPhase::Failed, reason::SERVER_FAILED));
}
