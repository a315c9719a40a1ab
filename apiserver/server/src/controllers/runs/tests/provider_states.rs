//! The states of providers in all that Runs store and show.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use stoa_engine::{ProviderState, StateResource};
use stoa_machinery::{registry::ListOptions, serve::Reload as _};
use stoa_proto::{FinishedEvent, IntentEvent, ResultEvent, apply_event::Event};
use stoa_runs::{encryption::Encryption, testing::runner_at};
use stoa_types::Resource;

use super::fenced_runners::{Conversation, Scripted};
use super::*;

const ID: &str = "hashicorp:random:random_password:db";
const SECRET: &str = "hunter2-of-the-provider";

impl Conversation {
    /// Reports a resource of a provider, and ends well.
    async fn report(mut self, action: &str, state: &ProviderState) {
        let (ids, of) = (vec![ID.to_owned()], action.to_owned());
        self.ask(Event::Intent(IntentEvent { ids, action: of, ..IntentEvent::default() })).await;
        let extensions = json!({"provider": "random/3.6.0", "resourceType": "random_password"});
        let live = json!({"id": "none", "length": 16, "result": {"$sensitive": "hmac-sha256:00"}});
        let resource = json!({"id": ID, "type": "Terraform", "attributes": {"length": 16}, "live": live,
            "extensions": extensions, "providerState": state});
        let resource = serde_json::to_vec(&resource).unwrap().into();
        let (id, action, outcome) = (ID.to_owned(), action.to_owned(), "Done".to_owned());
        self.ask(Event::Result(ResultEvent { id, action, outcome, resource, ..ResultEvent::default() })).await;
        self.tell(Event::Finished(FinishedEvent { succeeded: true, ..FinishedEvent::default() })).await;
    }

    /// The provider state that the runner gets.
    fn provider_state(&self) -> ProviderState {
        let [entry] = &self.start.state[..] else { panic!("{:?}", self.start.state) };
        let resource: StateResource = serde_json::from_slice(&entry.resource).unwrap();
        resource.provider_state.unwrap()
    }
}

impl TestServer {
    /// All bytes in the log and in the Backend, as text.
    async fn stored(&self) -> String {
        let stack = self.registry.api::<Stack>().get("shop", "web").await.unwrap();
        let scope = format!("shop/{}", stack.uid().unwrap());
        let mut stored = String::new();
        for entry in self.services.log.scan("/", None).await.unwrap().entries {
            stored += &String::from_utf8_lossy(&entry.value);
        }
        let documents = self.services.backends.store("default").await.unwrap();
        for digest in documents.list(&scope).await.unwrap() {
            stored += &String::from_utf8_lossy(&documents.get(&scope, &digest).await.unwrap().unwrap());
        }
        stored
    }

    async fn stored_records(&self) -> Vec<(String, String)> {
        let found = self.services.log.scan("/stoa/state/", None).await.unwrap().entries;
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        found.iter().map(|entry| (entry.key.as_str().to_owned(), text(&entry.value))).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_state_is_stored_encrypted_and_sent_in_clear() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("keys");
    let write = |keys: &[u8]| {
        let lines: String = keys.iter().map(|key| STANDARD.encode([*key; 32]) + "\n").collect();
        std::fs::write(&file, lines).unwrap();
    };
    write(&[1]);
    let (address, mut conversations) = Scripted::start(&[ID]).await;
    let mut world = TestServer::with_runner(runner_at(address)).await;
    let encryption = Encryption::open(Some(&file), false, folder.path()).unwrap();
    world.services.encryption = encryption.clone();
    let world = world.controlled();
    let use_keys = |keys: &[u8]| {
        write(keys);
        assert!(encryption.reload().unwrap());
    };

    let state =
        ProviderState::Open(json!({"values": {"result": SECRET}, "private": STANDARD.encode(SECRET)}).to_string());
    world.destroy("one").await;
    let mut talk = conversations.recv().await.unwrap();
    talk.begin("it").await;
    talk.report("Create", &state).await;
    assert_eq!(world.ended("one").await.release, Some(1));
    let stored = world.stored().await;
    assert_eq!(stored.matches("\"sealed\"").count(), 2, "the record and the release");
    for clear in [SECRET, &STANDARD.encode(SECRET), "\"open\""] {
        assert!(!stored.contains(clear), "{clear} is stored");
    }
    let (delivery, config) =
        ("/apis/delivery.stoa.dev/v1alpha1/namespaces/shop", "/apis/config.stoa.dev/v1alpha1/namespaces/shop");
    for path in [
        format!("{delivery}/releases/web.dev.1/state"),
        format!("{config}/stacks/web/state?workspace=dev"),
        format!("{delivery}/releases/web.dev.1/diff"),
        format!("{delivery}/resources"),
        format!("{delivery}/runs/one/plan"),
        format!("{delivery}/runs/one/log"),
    ] {
        let shown = world.get(&path).await.text().await;
        assert!(shown.contains(ID), "{path}: {shown}");
        assert!(!shown.contains("providerState") && !shown.contains("v1:"), "{path}: {shown}");
    }
    let selector = Some("spec.cloud.id=none,spec.cloud.provider=hashicorp/random".to_owned());
    let options = ListOptions { field_selector: selector, ..ListOptions::default() };
    let resources = world.registry.api::<Resource>().list_with(Some("shop"), &options).await.unwrap();
    let [resource] = &resources[..] else { panic!("{resources:?}") };
    assert_eq!(resource.spec.kind, "Terraform");
    let identity = json!({"provider": "hashicorp/random", "resourceType": "random_password", "id": "none"});
    assert_eq!(serde_json::to_value(&resource.spec.cloud).unwrap(), identity);

    // Without its key, a Run fails before it changes anything.
    use_keys(&[2]);
    let before = world.stored_records().await;
    world.destroy("two").await;
    let ended = world.ended("two").await;
    let failed = condition(&ended.conditions, reason::FAILED).unwrap();
    assert_eq!((ended.phase, failed.reason.as_str()), (RunPhase::Failed, reason::UNREADABLE_STATE));
    for part in [ID, "Nothing was changed", "put that key behind the others in the file with the sealing keys"] {
        assert!(failed.message.contains(part), "{}", failed.message);
    }
    assert_eq!(world.stored_records().await, before);

    // The next Run renews the key.
    use_keys(&[2, 1]);
    world.destroy("three").await;
    let mut talk = conversations.recv().await.unwrap();
    assert_eq!(talk.provider_state(), state);
    talk.begin("it").await;
    talk.tell(Event::Finished(FinishedEvent { succeeded: true, ..FinishedEvent::default() })).await;
    assert_eq!(world.ended("three").await.phase, RunPhase::Succeeded);
    use_keys(&[2]);
    world.destroy("four").await;
    let mut talk = conversations.recv().await.unwrap();
    assert_eq!(talk.provider_state(), state);
    talk.begin("it").await;
    talk.carry_out(&[ID]).await;
    assert_eq!(world.ended("four").await.phase, RunPhase::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn runner_that_encrypts_provider_states_is_rejected() {
    let (world, mut conversations) = TestServer::scripted(&[ID]).await;
    world.destroy("one").await;
    let mut talk = conversations.recv().await.unwrap();
    talk.begin("it").await;
    let (id, action, outcome) = (ID.to_owned(), "Create".to_owned(), "Done".to_owned());
    let sealed = json!({"id": ID, "type": "Terraform", "attributes": {}, "providerState": {"sealed": SECRET}});
    let resource = sealed.to_string().into_bytes().into();
    talk.tell(Event::Result(ResultEvent { id, action, outcome, resource, ..ResultEvent::default() })).await;
    let ended = world.ended("one").await;
    let failed = condition(&ended.conditions, reason::FAILED).unwrap();
    assert!(failed.message.contains("incompatible function-runner version"), "{}", failed.message);
    assert!(!world.stored().await.contains(SECRET));
}
