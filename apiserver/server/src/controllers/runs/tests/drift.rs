//! What a Refresh finds of what is live, and until when that is told.

use std::sync::Mutex;

use stoa_engine::Plan;
use stoa_proto::{FinishedEvent, IntentEvent, Problem, ResultEvent, apply_event::Event};
use stoa_runs::testing::runner_at;
use tokio::sync::mpsc::UnboundedReceiver;

use super::fenced_runners::{A, Conversation, Planned, Rendered, Scripted};
use super::*;

/// A plan of one action about one object, or of none.
pub(super) fn plan(action: Option<Value>) -> Plan {
    let mut actions = Vec::from_iter(action);
    for action in &mut actions {
        (action["id"], action["type"], action["changes"]) = (json!(A), json!("Kubernetes"), json!([]));
    }
    serde_json::from_value(json!({"schemaVersion": 1, "specDigest": "", "actions": actions})).unwrap()
}

/// A deployment, the plan that the next run gets, and what is carried out.
pub(super) struct Deployed {
    pub(super) world: TestServer,
    planned: Planned,
    /// The version of the generator.
    pub(super) generator_version: Arc<Mutex<String>>,
    conversations: UnboundedReceiver<Conversation>,
}

impl Deployed {
    pub(super) async fn new() -> Self {
        let planned: Planned = Arc::new(Mutex::new(plan(Some(json!({"action": "Create"})))));
        let generator_version = Arc::new(Mutex::new("tool v1.0".to_owned()));
        let rendered = Rendered {
            spec: r#"{"resources":[]}"#,
            generator_version: generator_version.clone(),
            ..Rendered::default()
        };
        let (address, conversations) = Scripted::rendering(planned.clone(), rendered).await;
        let world = TestServer::with_runner(runner_at(address)).await.controlled();
        let mut deployed = Self { world, planned, generator_version, conversations };
        deployed.makes("first", true).await;
        deployed
    }

    pub(super) async fn start(&self, name: &str, operation: &str, plan: Plan) {
        *self.planned.lock().unwrap() = plan;
        self.world.create("Run", name, json!({"stack": "web", "workspace": "dev", "operation": operation})).await;
    }

    /// An Apply makes the object, and gets to its release or not.
    async fn makes(&mut self, name: &str, succeeded: bool) {
        self.start(name, "Apply", plan(Some(json!({"action": "Create"})))).await;
        let mut talk = self.conversations.recv().await.unwrap();
        talk.begin("it").await;
        let (ids, action) = (vec![A.to_owned()], "Create".to_owned());
        talk.ask(Event::Intent(IntentEvent { ids, action, ..IntentEvent::default() })).await;
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"}});
        let made = json!({"id": A, "type": "Kubernetes", "attributes": object}).to_string();
        let (id, action, outcome) = (A.to_owned(), "Create".to_owned(), "Done".to_owned());
        let resource = made.into_bytes().into();
        talk.ask(Event::Result(ResultEvent { id, action, outcome, resource, ..ResultEvent::default() })).await;
        let problems = if succeeded { Vec::new() } else { vec![Problem::default()] };
        talk.tell(Event::Finished(FinishedEvent { succeeded, problems, ..FinishedEvent::default() })).await;
        let expected = if succeeded { RunPhase::Succeeded } else { RunPhase::Failed };
        assert_eq!(self.world.ended(name).await.phase, expected);
    }

    /// A run has nothing to do, and does it well.
    async fn does_nothing(&mut self, name: &str, operation: &str) {
        self.start(name, operation, plan(None)).await;
        let mut talk = self.conversations.recv().await.unwrap();
        talk.begin("it").await;
        talk.tell(Event::Finished(FinishedEvent { succeeded: true, ..FinishedEvent::default() })).await;
        let ended = self.world.ended(name).await;
        assert_eq!(ended.phase, RunPhase::Succeeded, "{ended:?}");
    }

    /// Looks, and finds this; how the run ends, and what it says.
    async fn looks(&self, name: &str, found: Option<Value>) -> (RunStatus, String) {
        self.start(name, "Refresh", plan(found)).await;
        let ended = self.world.ended(name).await;
        let message = condition(&ended.conditions, reason::COMPLETE).map(|it| it.message.clone()).unwrap_or_default();
        (ended, message)
    }

    /// Whether the deployment drifted, by its own status and by the stack's condition.
    async fn is_drifted(&self) -> (bool, bool) {
        let status = self.world.registry.api::<Stack>().get("shop", "web").await.unwrap().status.unwrap();
        let told = condition(&status.conditions, reason::DRIFTED).is_some_and(|drifted| drifted.status == "True");
        (status.deployments[0].drifted, told)
    }
}

fn moved() -> Option<Value> {
    Some(json!({"action": "Update", "drift": true, "refused": "shop/api/dev owns it now"}))
}

#[tokio::test(flavor = "multi_thread")]
async fn import_leaves_drift_and_apply_clears_it() {
    let mut deployed = Deployed::new().await;
    let (_, message) = deployed.looks("still", None).await;
    assert_eq!(message, "nothing moved away from release 1");
    assert_eq!(deployed.is_drifted().await, (false, false));

    let (ended, message) = deployed.looks("moved", moved()).await;
    assert_eq!(message, format!("1 resource moved away from release 1: {A}"));
    assert_eq!(ended.resources[0].message, "shop/api/dev owns it now", "{ended:?}");
    assert!(deployed.world.journal("moved").await.contains("shop/api/dev owns it now"));
    assert_eq!(deployed.is_drifted().await, (true, true));

    deployed.does_nothing("import", "Import").await;
    assert_eq!(deployed.is_drifted().await, (true, true), "nothing was put back");
    deployed.does_nothing("apply", "Apply").await;
    assert_eq!(deployed.is_drifted().await, (false, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_after_failed_run_compares_with_record() {
    let mut deployed = Deployed::new().await;
    deployed.makes("second", false).await;
    assert_eq!(deployed.looks("still", None).await.1, "nothing moved away from the record");
    let (_, message) = deployed.looks("moved", moved()).await;
    assert_eq!(message, format!("1 resource moved away from the record: {A}"));
    assert_eq!(deployed.is_drifted().await, (true, true));
}
