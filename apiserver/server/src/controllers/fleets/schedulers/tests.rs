use serde_json::json;
use stoa_proto::scheduler::{Candidate, DecideRequest};
use stoa_types::{
    common::condition,
    scheduler::{ExternalScheduler, SchedulingPolicyStatus},
};

use super::*;
use crate::{
    fleet::{FakeScheduler, decisions},
    testing::{PATIENCE, TestServer},
};

async fn until(
    world: &TestServer,
    what: &str,
    is_it: impl Fn(&SchedulingPolicyStatus) -> bool,
) -> SchedulingPolicyStatus {
    let policies = world.registry.api::<SchedulingPolicy>();
    let found = async {
        loop {
            let status = policies.get("shop", "drones").await.unwrap().status.unwrap_or_default();
            if is_it(&status) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect(what)
}

fn state(status: &SchedulingPolicyStatus, kind: &str) -> Option<(String, String)> {
    condition(&status.conditions, kind).map(|it| (it.status.clone(), it.reason.clone()))
}

fn names(status: &SchedulingPolicyStatus) -> Vec<String> {
    let decisions = status.decisions.iter().flatten();
    decisions.flat_map(|decision| decision.cluster_types.clone()).collect()
}

fn pair(status: &str, reason: &str) -> Option<(String, String)> {
    Some((status.to_owned(), reason.to_owned()))
}

#[tokio::test]
async fn decisions_outlive_the_scheduler_and_the_leader() {
    let world = TestServer::new().await;
    let spec = json!({"reconciler": "flux", "namespaceService": "default"});
    world.create("ClusterType", "drone", spec.clone()).await;
    let any = json!({"labelSelector": {}});
    let policy = json!({"deploymentTargetSelector": any, "clusterTypeSelector": any, "scheduler": {"name": "fake"}});
    world.create("SchedulingPolicy", "drones", policy).await;
    let scheduler = FakeScheduler::new(Some(decisions(&[(&["drone", "large"], &[])])));
    let schedulers = scheduler.serve();
    let lead = || {
        let end = CancellationToken::new();
        tokio::spawn(run((world.services.clone(), schedulers.clone()), end.clone()));
        end
    };
    let end = lead();
    let _ended = end.clone().drop_guard();
    let first = until(&world, "a decision", |status| names(status) == ["drone"]).await;
    assert_eq!(state(&first, reason::DECIDED), pair("True", reason::DECIDED));
    assert_eq!(state(&first, reason::DECISIONS_VALID), pair("False", reason::UNKNOWN_OBJECTS));

    // A new cluster type is a new question.
    world.create("ClusterType", "large", spec).await;
    let second = until(&world, "a decision about both", |status| names(status) == ["drone", "large"]).await;
    assert_eq!(state(&second, reason::DECISIONS_VALID), pair("True", reason::AVAILABLE));
    assert_eq!(scheduler.requests().last().unwrap().cluster_types.len(), 2);

    // The decisions stay without the scheduler, and in the next term.
    scheduler.set(None);
    let is_away = |status: &SchedulingPolicyStatus| {
        state(status, reason::DECIDED) == pair("False", reason::SCHEDULER_UNAVAILABLE)
    };
    let away = until(&world, "an outage", is_away).await;
    assert_eq!(names(&away), ["drone", "large"]);
    let message = &condition(&away.conditions, reason::DECIDED).unwrap().message;
    assert!(message.ends_with("the last decisions stay"), "{message}");
    end.cancel();
    let _ended = lead().drop_guard();
    let asked = scheduler.requests().len();
    let is_asked = async {
        while scheduler.requests().len() == asked {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, is_asked).await.expect("the next leader asks");
    assert_eq!(names(&until(&world, "an outage", is_away).await), ["drone", "large"]);

    // A name without an address changes nothing either; a policy without a scheduler has no decisions.
    let policies = world.registry.api::<SchedulingPolicy>();
    let rename = |policy: &mut SchedulingPolicy| {
        policy.spec.scheduler = Some(ExternalScheduler { name: "other".to_owned(), ..ExternalScheduler::default() });
    };
    policies.update_with("shop", "drones", rename).await.unwrap();
    let unknown = until(&world, "an unknown scheduler", |status| {
        state(status, reason::DECIDED) == pair("False", reason::SCHEDULER_NOT_FOUND)
    });
    assert_eq!(names(&unknown.await), ["drone", "large"]);
    policies.update_with("shop", "drones", |policy: &mut SchedulingPolicy| policy.spec.scheduler = None).await.unwrap();
    let cleared = until(&world, "no decisions", |status| status.decisions.is_none()).await;
    assert_eq!((state(&cleared, reason::DECIDED), state(&cleared, reason::DECISIONS_VALID)), (None, None));
}

#[test]
fn questions_of_a_namespace_have_limits() {
    let question = |candidates: usize| {
        let candidate = |at: usize| Candidate { name: format!("c{at:07}"), labels: HashMap::new() };
        let cluster_types = (0..candidates).map(candidate).collect();
        let request = DecideRequest { cluster_types, ..DecideRequest::default() };
        Question { scheduler: "fake".to_owned(), request }
    };
    let one = question(1).size();
    let found = |bytes: usize| {
        let questions = [1, 5, 2].into_iter().map(|count| (format!("p{count}"), question(count)));
        within(questions, bytes).into_keys().collect::<Vec<_>>()
    };
    assert_eq!(found(8 * one), ["p1", "p2", "p5"]);
    assert_eq!(found(3 * one), ["p1", "p2"], "a large one keeps no other from its scheduler");
    let many = (0..=MOST).map(|at| (format!("p{at}"), question(1)));
    assert_eq!(within(many, BYTES).len(), MOST);
}
