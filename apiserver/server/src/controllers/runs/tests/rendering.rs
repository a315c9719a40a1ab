//! What people are told of how the Spec of a run was made, and why it was not.

use std::sync::Mutex;

use k8s_openapi::api::core::v1::Event;
use stoa_engine::{Action, Plan};
use stoa_runs::testing::runner_at;

use super::fenced_runners::{Planned, Rendered, Scripted, deleting};
use super::*;

/// A world whose runner renders this, and plans nothing of it.
async fn rendering(rendered: Rendered) -> TestServer {
    let planned: Planned = Arc::new(Mutex::new(deleting(&[])));
    let rendered = Rendered { spec: r#"{"resources":[]}"#, ..rendered };
    let (address, _) = Scripted::rendering(planned, rendered).await;
    TestServer::with_runner_and_secrets(runner_at(address)).await.controlled()
}

/// A world whose runner makes this plan, with this action for each of its resources.
async fn planning(mut plan: Plan, action: Action) -> TestServer {
    plan.actions.iter_mut().for_each(|planned| planned.action = action);
    let rendered = Rendered { spec: r#"{"resources":[]}"#, ..Rendered::default() };
    let (address, _) = Scripted::rendering(Arc::new(Mutex::new(plan)), rendered).await;
    TestServer::with_runner_and_secrets(runner_at(address)).await.controlled()
}

impl TestServer {
    async fn previews(&self, name: &str, more: Value) -> RunStatus {
        let mut spec = json!({"stack": "web", "workspace": "dev", "operation": "Preview"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.create("Run", name, spec).await;
        self.ended(name).await
    }

    /// Waits for an Event of a reason; what it says.
    async fn event(&self, why: &str) -> String {
        let events = self.registry.api::<Event>();
        let mut changes = events.subscribe(None);
        let found = async {
            loop {
                let all = events.list(Some("shop"), "").await.unwrap();
                let told = all.into_iter().find(|event| event.reason.as_deref() == Some(why));
                if let Some(told) = told {
                    return told.message.unwrap_or_default();
                }
                changes.next().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, found).await.expect("it is told")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn event_reports_generator_warnings() {
    let warnings = vec!["generator Spec takes no parameters: cell".to_owned(), "a: is passed over".to_owned()];
    let world = rendering(Rendered { warnings, ..Rendered::default() }).await;
    let ended = world.previews("one", json!({"version": "main", "parameters": {"cell": "c1"}})).await;
    assert_eq!(ended.phase, RunPhase::Succeeded, "{ended:?}");
    let told = world.event(reason::GENERATED_WITH_WARNINGS).await;
    assert_eq!(told, "generator Spec takes no parameters: cell; a: is passed over");
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_warnings_appear_in_condition_and_event() {
    let warnings: Vec<String> = (0..6).map(|number| format!("warning {number}")).collect();
    let world = planning(Plan { warnings, ..deleting(&["v1:Namespace:a"]) }, Action::Create).await;
    let ended = world.previews("one", json!({"version": "main"})).await;
    let told = "warning 0; warning 1; warning 2; warning 3; warning 4; and 1 more, see runs/log";
    let warned = condition(&ended.conditions, reason::PLANNED_WITH_WARNINGS).unwrap();
    assert_eq!((warned.status.as_str(), warned.message.as_str()), ("True", told));
    assert_eq!(world.event(reason::PLANNED_WITH_WARNINGS).await, told);
}

#[tokio::test(flavor = "multi_thread")]
async fn preview_reports_mass_deletion_in_condition_and_event() {
    let warnings = (0..6).map(|number| format!("warning {number}")).collect();
    let world = planning(Plan { warnings, ..deleting(&["v1:Namespace:a"]) }, Action::Delete).await;
    let ended = world.previews("one", json!({"version": "main"})).await;
    let warned = condition(&ended.conditions, reason::PLANNED_WITH_WARNINGS).unwrap();
    let expected = "an Apply would fail: the plan deletes 1 of 0 resources and keeps none";
    assert!(warned.message.starts_with(expected), "{}", warned.message);
    assert!(warned.message.ends_with("; warning 3; and 2 more, see runs/log"), "{}", warned.message);
    assert_eq!(world.event(reason::PLANNED_WITH_WARNINGS).await, warned.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn run_with_missing_version_leaves_deployment_unchanged() {
    let world = rendering(Rendered { lacking: "latest", ..Rendered::default() }).await;
    let stacks = world.registry.api::<Stack>();
    let applies = async |name: &str, more: Value| {
        let mut spec = json!({"stack": "web", "workspace": "dev", "operation": "Apply"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        world.create("Run", name, spec).await;
        let ended = world.ended(name).await;
        assert_eq!((ended.phase, why(&ended.conditions)), (RunPhase::Failed, reason::SOURCE_NOT_FOUND));
        assert!(ended.stack_uid.is_some(), "it has begun: {ended:?}");
    };
    let said = async |type_: &str| {
        let status = stacks.get("shop", "web").await.unwrap().status.unwrap();
        let said = condition(&status.conditions, type_).map(|said| (said.reason.clone(), said.message.clone()));
        (status.deployments.len(), said)
    };
    let nothing = Some((reason::NOT_DEPLOYED.to_owned(), "nothing is deployed".to_owned()));
    applies("first", json!({"version": "latest"})).await;
    assert_eq!((said(reason::READY).await, said(reason::LAST_RUN).await), ((0, nothing.clone()), (0, None)));
    // The version is the Stack's, so that this is what became of the deployment.
    applies("second", json!({})).await;
    let told = said(reason::LAST_RUN).await;
    assert_eq!(world.deployment().await, (Some("second".to_owned()), Some(RunPhase::Failed)));
    applies("third", json!({"version": "latest"})).await;
    assert_eq!(world.deployment().await, (Some("second".to_owned()), Some(RunPhase::Failed)));
    assert_eq!(said(reason::LAST_RUN).await, told, "it still says why");
    assert_eq!(said(reason::READY).await.1, nothing, "the run changed nothing");
    let (_, Some((why, message))) = told else { panic!("{told:?}") };
    assert_eq!(why, reason::SOURCE_NOT_FOUND);
    assert!(message.contains("spec.desiredVersion of the Stack"), "{message}");
    let deployment = stacks.get("shop", "web").await.unwrap().status.unwrap().deployments.remove(0);
    assert_eq!(deployment.before, None, "nothing is under way");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_version_error_names_its_field() {
    let world = rendering(Rendered { lacking: "latest", ..Rendered::default() }).await;
    for (name, more, field) in
        [("one", json!({"version": "latest"}), "spec.version"), ("two", json!({}), "spec.desiredVersion of the Stack")]
    {
        let ended = world.previews(name, more).await;
        let failed = condition(&ended.conditions, reason::FAILED).unwrap();
        let message = format!("{field}: it has no commit \"latest\"");
        assert_eq!((&*failed.reason, &*failed.message), (reason::SOURCE_NOT_FOUND, &*message));
    }
}
