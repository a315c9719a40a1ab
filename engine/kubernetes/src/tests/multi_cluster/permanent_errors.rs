//! Tests of permanent errors: they end a Run in bounded time, and leave no call open.

use stoa_engine::Problem;
use tokio::time::Instant;

use super::*;

const WEBHOOK: &str = "Internal error occurred: failed calling webhook \"check.example.com\": failed to call webhook: Post \
                       \"https://guard.shop.svc:443/check?timeout=10s\": context deadline exceeded";
const CONVERSION: &str =
    "conversion webhook for example.com/v1, Kind=Widget failed: Post \"https://guard.shop.svc:443/convert\": refused";
const STALE: &str = "Operation cannot be fulfilled on widgets \"web\": the object has been modified; please apply your \
                     changes to the latest version and try again";
const MISMATCH: &str = "Operation cannot be fulfilled on widgets \"web\": uid mismatch: the provided object specified uid \
                        0b1f6f0e, and no existing object was found";

/// What is wrong with a plan.
fn problems(planned: Result<Planned, PlanError>) -> Vec<Problem> {
    match planned {
        Err(PlanError::Problems(problems)) => problems,
        other => panic!("{other:?} instead of problems"),
    }
}

/// Applies a widget to a server with this answer; returns how long that takes, and the message of its problem. The next
/// run succeeds once the server accepts it.
async fn refused(code: u16, message: &str, resource: Resource) -> (Duration, Problem) {
    let deployment = Deployment::new();
    let wanted = spec(vec![resource, in_cluster("", "beside", "b", false)]);
    let planned = deployment.plan(&wanted).await.unwrap();
    deployment.main.refuse_with("APPLY /apis/example.com/v1/namespaces/shop/widgets/web?", code, message);
    let began = Instant::now();
    let (outcome, mut results) = deployment.carry_out(&wanted, &planned).await;
    let took = began.elapsed();
    results.sort_by(|a, b| a.0.cmp(&b.0));
    let ended: Vec<_> = results.iter().map(|(id, _, outcome)| (id.as_str(), *outcome)).collect();
    assert_eq!(ended, [("beside", ResourceOutcome::Done), ("web", ResourceOutcome::Failed)], "{message}");
    assert_eq!(deployment.state().open, [], "{message}");
    deployment.main.refuse_nothing();
    let mended = spec(vec![in_cluster("", "web", "a", false), in_cluster("", "beside", "b", false)]);
    assert!(deployment.apply(&mended).await.0.succeeded, "{message}");
    let [problem] = &outcome.problems[..] else { panic!("{message}: {outcome:?}") };
    assert_eq!(problem.resource_id, Some(in_cluster("", "web", "a", false).id));
    (took, problem.clone())
}

#[tokio::test(start_paused = true)]
async fn rejected_apply_fails_quickly_and_closes_call() {
    let widget = || in_cluster("", "web", "a", false);
    for (code, message, at_most, names) in [
        (500, WEBHOOK, 60, "check.example.com"),
        (500, CONVERSION, 60, "example.com/v1, Kind=Widget"),
        (503, "admission webhook \"check.example.com\" denied the request: not ready", 60, "check.example.com"),
        (500, "etcdserver: request is too large", 1, "smaller"),
        (
            500,
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max (3 vs. 2)",
            1,
            "smaller",
        ),
    ] {
        let (took, problem) = refused(code, message, widget()).await;
        assert!(took <= Duration::from_secs(at_most), "{message}: {took:?}");
        assert!(problem.message.contains(message) && problem.message.contains(names), "{problem}");
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_uid_fails_at_once_with_field() {
    let mut exported = in_cluster("", "web", "a", false);
    exported.attributes["metadata"]["uid"] = "0b1f6f0e".into();
    let (took, problem) = refused(409, MISMATCH, exported).await;
    assert!(took <= Duration::from_secs(1), "{took:?}");
    assert_eq!(problem.field, "metadata.uid");
}

#[tokio::test(start_paused = true)]
async fn stale_manifest_fails_at_once_with_field() {
    let deployment = Deployment::new();
    let mut exported = in_cluster("", "web", "a", false);
    exported.attributes["metadata"]["resourceVersion"] = "12".into();
    deployment.main.refuse_with("PREVIEW", 409, STALE);
    let began = Instant::now();
    let problems = problems(deployment.plan(&spec(vec![exported])).await);
    assert_eq!((problems.len(), problems[0].field.as_str()), (1, "metadata.resourceVersion"), "{problems:?}");
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn plan_outlasts_the_writes_of_another_client() {
    let deployment = Deployment::new();
    deployment.main.refuse_with("PREVIEW", 409, STALE);
    let (wanted, main) = (spec(vec![in_cluster("", "web", "a", false)]), deployment.main.clone());
    let written = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        main.refuse_nothing();
    };
    let (planned, ()) = tokio::join!(deployment.plan(&wanted), written);
    assert_eq!(planned.unwrap().plan.actions[0].action, Action::Create);
}

#[tokio::test(start_paused = true)]
async fn rolling_webhook_restart_fails_nothing() {
    let deployment = Deployment::new();
    let wanted = spec(vec![in_cluster("", "web", "a", false)]);
    for verb in ["PREVIEW", "APPLY"] {
        deployment.main.refuse_with(verb, 500, WEBHOOK);
        let main = deployment.main.clone();
        let restarted = async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            main.refuse_nothing();
        };
        if verb == "PREVIEW" {
            let (planned, ()) = tokio::join!(deployment.plan(&wanted), restarted);
            planned.unwrap();
        } else {
            let planned = {
                main.refuse_nothing();
                let planned = deployment.plan(&wanted).await.unwrap();
                main.refuse_with(verb, 500, WEBHOOK);
                planned
            };
            let ((outcome, _), ()) = tokio::join!(deployment.carry_out(&wanted, &planned), restarted);
            assert!(outcome.succeeded, "{outcome:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_webhook_fails_plan_within_two_minutes() {
    let deployment = Deployment::new();
    let wanted = spec((0..400).map(|n| in_cluster("", &format!("w{n:03}"), "a", false)).collect());
    deployment.main.slow_down("dryRun", Duration::from_secs(10));
    deployment.main.refuse_with("PREVIEW", 500, WEBHOOK);
    let began = Instant::now();
    let problems = problems(deployment.plan(&wanted).await);
    assert!(began.elapsed() <= Duration::from_secs(120), "{:?}", began.elapsed());
    assert!(problems[0].resource_id.is_some() && problems[0].message.contains("check.example.com"), "{}", problems[0]);
    let last = problems.last().unwrap().to_string();
    assert!(last.contains("more resources were not checked within"), "{last}");
}

#[tokio::test(start_paused = true)]
async fn conversion_webhook_failure_names_object_and_webhook() {
    let deployment = Deployment::new();
    let wanted = spec(vec![in_cluster("", "web", "a", false)]);
    deployment.brings(&wanted).await;
    deployment.main.refuse_with("GET", 500, CONVERSION);
    let began = Instant::now();
    let problems = problems(deployment.plan(&wanted).await);
    assert!(began.elapsed() <= Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!(problems[0].resource_id.as_ref(), Some(&wanted.resources[0].id));
    assert!(problems[0].message.contains(CONVERSION), "{}", problems[0]);
}

#[tokio::test(start_paused = true)]
async fn rejected_deletion_fails_and_closes_call() {
    let deployment = Deployment::new();
    deployment.brings(&spec(vec![in_cluster("", "web", "a", false)])).await;
    deployment.main.refuse_with("DELETE", 500, WEBHOOK);
    let began = Instant::now();
    let (outcome, results) = deployment.apply(&spec(Vec::new())).await;
    assert!(began.elapsed() <= Duration::from_secs(60), "{:?}", began.elapsed());
    assert!(outcome.problems[0].message.contains("check.example.com"), "{outcome:?}");
    assert_eq!(results, [("web".to_owned(), Action::Delete, ResourceOutcome::Failed)]);
    assert_eq!((deployment.state().open, deployment.state().resources.len()), (Vec::new(), 1));
    deployment.main.refuse_nothing();
    deployment.brings(&spec(Vec::new())).await;
}
