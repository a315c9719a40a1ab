use std::sync::mpsc;

use serde_json::json;
use stoa_fleet::{Origin, objects::AnyObject};

use super::{
    testing::{FakeScheduler, decisions},
    *,
};

/// Longer than a retry takes.
const LONG: Duration = Duration::from_secs(30);

fn candidate(name: &str) -> Candidate {
    Candidate { name: name.to_owned(), labels: HashMap::new() }
}

fn question() -> Question {
    let request = DecideRequest {
        environment: "dev".to_owned(),
        policy: "drones".to_owned(),
        cluster_types: vec![candidate("drone"), candidate("large")],
        deployment_targets: vec![candidate("hello-edge"), candidate("hello-core")],
        ..DecideRequest::default()
    };
    Question { scheduler: "fake".to_owned(), request }
}

fn decided(cluster_types: &[&str], targets: Option<&[&str]>) -> SchedulingDecision {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    SchedulingDecision { cluster_types: names(cluster_types), deployment_targets: targets.map(names) }
}

#[test]
fn answer_counts_for_selected_objects_only() {
    let question = question();
    let answer = decisions(&[
        (&["large", "drone", "drone"], &[]),
        (&["drone", "gone"], &["hello-edge", "lost"]),
        (&["drone"], &["lost"]),
        (&["gone"], &[]),
        (&["large", "drone"], &[]),
    ]);
    let found = question.read(answer).unwrap();
    let expected = [decided(&["drone"], Some(&["hello-edge"])), decided(&["drone", "large"], None)];
    assert_eq!(found.decisions, expected);
    assert_eq!(
        found.unknown.unwrap(),
        "scheduler fake names objects that the policy does not select, without effect: \
         ClusterType \"gone\", DeploymentTarget \"lost\""
    );
    let many: Vec<String> = (0..7).map(|at| format!("c{at}\n")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let complaint = question.read(decisions(&[(&many, &[]), (&["drone"], &[])])).unwrap().unknown.unwrap();
    assert!(complaint.contains("\"c0 \"") && complaint.ends_with(" and 2 more"), "{complaint}");
}

#[test]
fn unusable_answers_are_failures() {
    let question = question();
    let undecided = Decisions { undecided: "no Placement".to_owned(), ..decisions(&[(&["drone"], &[])]) };
    let failed = question.read(undecided).unwrap_err();
    assert_eq!(failed.reason, reason::UNDECIDED);
    assert_eq!(failed.message, "scheduler fake has not decided: no Placement");
    let other = question.read(decisions(&[(&["gone"], &[]), (&["drone"], &["lost"])])).unwrap_err();
    assert_eq!(other.reason, reason::UNKNOWN_OBJECTS, "it is no decision for nothing");
    assert!(question.read(decisions(&[])).unwrap().decisions.is_empty(), "an empty answer is one");
    let many = Decisions { decisions: vec![Decision::default(); MOST_DECISIONS + 1], undecided: String::new() };
    let failed = question.read(many).unwrap_err();
    assert_eq!(failed.message, "scheduler fake: its answer has 1001 decisions, and 1000 are allowed");
}

#[test]
fn question_has_the_selected_objects() {
    let mut inputs = Inputs { environment: "dev".to_owned(), ..Inputs::default() };
    let object = |kind: &str, name: &str, spec: serde_json::Value| {
        let value = json!({"apiVersion": stoa_fleet::objects::API_VERSION, "kind": kind,
            "metadata": {"name": name, "labels": {"name": name}}, "spec": spec});
        AnyObject::read(&value, Origin::default()).unwrap().unwrap()
    };
    let spec = json!({"reconciler": "flux", "namespaceService": "default"});
    for name in ["drone", "large"] {
        let AnyObject::ClusterType(it) = object("ClusterType", name, spec.clone()) else { unreachable!("it is one") };
        inputs.cluster_types.insert(it.name.clone(), it);
    }
    let policy = |scheduler: serde_json::Value| {
        let spec = json!({"deploymentTargetSelector": {"labelSelector": {}},
            "clusterTypeSelector": {"labelSelector": {"matchLabels": {"name": "drone"}}}, "scheduler": scheduler});
        let AnyObject::SchedulingPolicy(it) = object("SchedulingPolicy", "p", spec) else { unreachable!("it is one") };
        it
    };
    assert_eq!(Question::of(&inputs, &policy(json!(null))), None);
    let found = Question::of(&inputs, &policy(json!({"name": "ocm", "parameters": {"placement": "a"}}))).unwrap();
    let DecideRequest { environment, policy, parameters, cluster_types, deployment_targets } = found.request;
    assert_eq!((found.scheduler.as_str(), environment.as_str(), policy.as_str()), ("ocm", "dev", "p"));
    assert_eq!(parameters["placement"], "a");
    assert_eq!((cluster_types.len(), cluster_types[0].labels["name"].as_str()), (1, "drone"));
    assert!(deployment_targets.is_empty());
}

/// A conversation, and a wait for a state of its answer.
#[expect(clippy::type_complexity, reason = "a closure that waits has no shorter name")]
fn talking(
    schedulers: &Schedulers,
    question: Question,
) -> (Conversation, impl Fn(&str, &dyn Fn(&Answer) -> bool) -> Answer + use<>) {
    let (sender, changes) = mpsc::channel();
    let conversation = schedulers.converse(question, move || {
        let _ = sender.send(());
    });
    let answer = conversation.answer.clone();
    let until = move |what: &str, is_it: &dyn Fn(&Answer) -> bool| loop {
        let found = answer.lock().clone();
        if is_it(&found) {
            break found;
        }
        assert!(changes.recv_timeout(LONG).is_ok(), "{what}: {found:?}");
    };
    (conversation, until)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversation_outlives_an_outage() {
    let scheduler = FakeScheduler::new(Some(decisions(&[(&["drone"], &[])])));
    let (conversation, until) = talking(&scheduler.serve(), question());
    assert_eq!(conversation.question(), &question());
    let has = |answer: &Answer, cluster_type: &str| {
        answer.decided.as_ref().is_some_and(|it| it.decisions == [decided(&[cluster_type], None)])
    };
    until("the first answer", &|answer| has(answer, "drone") && answer.failed.is_none());
    scheduler.set(Some(decisions(&[(&["large"], &[])])));
    until("another answer in the same call", &|answer| has(answer, "large"));
    assert_eq!(scheduler.requests(), [question().request]);

    scheduler.set(None);
    let away = until("an outage", &|answer| answer.failed.is_some());
    assert!(has(&away, "large"), "the last decisions stay: {away:?}");
    let failed = away.failed.unwrap();
    assert_eq!(failed.reason, reason::SCHEDULER_UNAVAILABLE);
    assert_eq!(failed.message, "scheduler fake: Unavailable: it is away");
    scheduler.set(Some(decisions(&[])));
    let back = until("it is back", &|answer| answer.failed.is_none());
    assert!(back.decided.unwrap().decisions.is_empty(), "an empty answer is a decision");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn name_without_an_address_is_reported() {
    let question = Question { scheduler: "other".to_owned(), ..question() };
    let (_conversation, until) = talking(&FakeScheduler::new(None).serve(), question);
    let failed = until("a failure", &|answer| answer.failed.is_some()).failed.unwrap();
    assert_eq!(failed.reason, reason::SCHEDULER_NOT_FOUND);
    assert!(failed.message.contains("--scheduler=other=URL"), "{}", failed.message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_answer_is_rejected() {
    let name = "x".repeat(LARGEST_ANSWER);
    let scheduler = FakeScheduler::new(Some(decisions(&[(&[name.as_str()], &[])])));
    let (_conversation, until) = talking(&scheduler.serve(), question());
    let answer = until("a failure", &|answer| answer.failed.is_some());
    assert!(answer.decided.is_none());
    assert!(answer.failed.unwrap().message.contains("too large"), "the limit is named");
}
