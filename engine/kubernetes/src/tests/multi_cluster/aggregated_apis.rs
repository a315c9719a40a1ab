//! Tests of aggregated APIs whose server is unavailable.

use stoa_runtime::RuntimeError;

use super::*;

/// Why there is no plan.
fn unreadable(planned: Result<Planned, PlanError>) -> RuntimeError {
    match planned {
        Err(PlanError::Runtime(error)) => error,
        other => panic!("{other:?} instead of an error that may pass"),
    }
}

#[tokio::test(start_paused = true)]
async fn object_of_unavailable_api_is_not_absent() {
    // As an aggregator answers, and as what stands in for the server may.
    for code in [503, 404] {
        let deployment = Deployment::new();
        let wanted = spec(vec![in_cluster("", "web", "a", false)]);
        deployment.brings(&wanted).await;
        deployment.main.be_without_server(Some(code));
        for refresh in [false, true] {
            let error = unreadable(deployment.planned_to(&spec(Vec::new()), refresh).await);
            let told = error.to_string();
            assert!(
                error.is_retryable() && told.contains("no server answers for API example.com/v1"),
                "{code}: {told}"
            );
        }
        deployment.main.be_without_server(None);
        assert_eq!(deployment.brings(&spec(Vec::new())).await, [("web".to_owned(), Action::Delete)]);
        assert_eq!((deployment.values("web"), deployment.state()), ([None, None], State::default()));
    }
}

#[tokio::test(start_paused = true)]
async fn deletion_in_unavailable_api_keeps_record() {
    for code in [503, 404] {
        let deployment = Deployment::new();
        deployment.brings(&spec(vec![in_cluster("", "web", "a", false)])).await;
        let planned = deployment.plan(&spec(Vec::new())).await.unwrap();
        deployment.main.be_without_server(Some(code));
        let (outcome, _) = deployment.carry_out(&spec(Vec::new()), &planned).await;
        assert!(!outcome.succeeded, "{code}: {outcome:?}");
        assert_eq!(deployment.state().resources.len(), 1, "{code}");
        deployment.main.be_without_server(None);
        deployment.brings(&spec(Vec::new())).await;
        assert_eq!(deployment.values("web"), [None, None]);
    }
}

#[tokio::test(start_paused = true)]
async fn lost_call_in_unavailable_api_stays_open() {
    let deployment = Deployment::new();
    deployment.crash(&spec(vec![in_cluster("", "web", "a", false)])).await;
    deployment.main.be_without_server(Some(404));
    let error = unreadable(deployment.plan(&spec(Vec::new())).await);
    assert!(error.is_retryable(), "{error}");
    deployment.main.be_without_server(None);
    deployment.brings(&spec(Vec::new())).await;
    assert_eq!(deployment.values("web"), [None, None]);
}
