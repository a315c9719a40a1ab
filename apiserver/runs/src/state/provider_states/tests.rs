//! Which bytes are stored of the states of providers, and which of them open.

use std::{fs, path::Path, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use stoa_engine::{ProviderState, ResourceId, StateResource, document, record::Record};
use stoa_machinery::{
    Key,
    log::{Change, Expect, Log as _, MemoryLog, Write},
};
use stoa_storage::documents::LocalDocuments;
use stoa_types::reason;
use tempfile::TempDir;

use super::super::{Bodies, State};
use crate::{StepError, documents, encryption::Encryption};

const SCOPE: &str = "shop/uid";
const SECRET: &str = "hunter2-of-the-provider";
const KEY: &str = "/stoa/state/uid/dev/resources/";

/// A deployment over a log in memory and documents in a folder.
struct Deployment {
    log: MemoryLog,
    documents: TempDir,
}

impl Deployment {
    fn new() -> Self {
        Self { log: MemoryLog::new(), documents: TempDir::new().unwrap() }
    }

    async fn load(&self, keys: &[u8]) -> State {
        let bodies = Bodies {
            store: Arc::new(LocalDocuments::open(self.documents.path()).unwrap()),
            scope: SCOPE.to_owned(),
            encryption: Encryption::with_keys(keys),
        };
        State::load(&self.log, "uid", "dev", None).await.unwrap().with_bodies(bodies).await.unwrap()
    }

    /// All bytes in the log and in the folder with the documents, as text.
    async fn stored(&self) -> String {
        let mut stored = String::new();
        for entry in self.log.scan("/", None).await.unwrap().entries {
            stored += &String::from_utf8_lossy(&entry.value);
        }
        read_all(self.documents.path(), &mut stored);
        stored
    }

    /// Changes the record of a resource in the log.
    async fn change(&self, id: &str, change: impl FnOnce(&mut Value)) {
        let key = Key::new(format!("{KEY}{id}"));
        let mut record: Value = serde_json::from_slice(&self.log.read(&key).await.unwrap().unwrap().value).unwrap();
        change(&mut record);
        self.log.append(Write::new(key, Expect::Any, Change::Put(record.to_string().into()))).await.unwrap();
    }
}

fn read_all(folder: &Path, stored: &mut String) {
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        match path.is_dir() {
            true => read_all(&path, stored),
            false => stored.push_str(&String::from_utf8_lossy(&fs::read(path).unwrap())),
        }
    }
}

fn record(id: &str, attribute: &str) -> Record {
    let resource = json!({"id": id, "type": "Terraform", "attributes": {"a": attribute}});
    let mut resource: StateResource = serde_json::from_value(resource).unwrap();
    let state = json!({"attributes": {"result": SECRET}, "private": STANDARD.encode(SECRET)}).to_string();
    resource.provider_state = Some(ProviderState::Open(state));
    Record { resource: Some(resource), ..Record::new(id.into()) }
}

/// The provider states that a runner gets, or the message of the failure.
async fn opened(state: &State) -> Result<Vec<String>, String> {
    match state.for_runner().await {
        Ok(entries) => Ok(entries
            .iter()
            .map(|entry| serde_json::from_slice::<StateResource>(&entry.resource).unwrap())
            .map(|resource| resource.provider_state.unwrap().open().expect("it is in clear").to_owned())
            .collect()),
        Err(StepError::Failed { reason: reason::UNREADABLE_STATE, message }) => Err(message),
        Err(other) => panic!("{other:?}"),
    }
}

fn sealed(record: &Value) -> String {
    record["resource"]["providerState"]["sealed"].as_str().expect("it is encrypted").to_owned()
}

#[tokio::test]
async fn stored_bytes_have_no_provider_state_in_clear() {
    let deployment = Deployment::new();
    let mut state = deployment.load(&[1]).await;
    let large = "x".repeat(1 << 20);
    let records = vec![record("small", "x"), record("large", &large)];
    state.record(&deployment.log, records.clone()).await.unwrap();
    // As a release does.
    let store = LocalDocuments::open(deployment.documents.path()).unwrap();
    documents::put(&store, SCOPE, state.document()).await.unwrap();
    // An intent is recorded with what was recorded before.
    let again = state.entry(&"large".into());
    state.record(&deployment.log, vec![again]).await.unwrap();

    let stored = deployment.stored().await;
    assert_eq!(stored.matches("\"sealed\"").count(), 4, "a record, a body, and two in the release");
    assert!(stored.contains(&large), "the documents are read");
    for clear in [SECRET, &STANDARD.encode(SECRET), "\"open\""] {
        assert!(!stored.contains(clear), "{clear} is stored");
    }
    for loaded in [&state, &deployment.load(&[1]).await] {
        let state = records[0].resource.as_ref().and_then(|resource| resource.provider_state.as_ref()?.open());
        assert_eq!(opened(loaded).await, Ok(vec![state.unwrap().to_owned(); 2]));
        let shown = serde_json::to_string(&loaded.shown().collect::<Vec<_>>()).unwrap();
        assert!(shown.contains("\"small\"") && !shown.contains("providerState"), "people see none");
    }
}

#[tokio::test]
async fn state_without_keys_records_no_provider_state() {
    let deployment = Deployment::new();
    let mut state = State::load(&deployment.log, "uid", "dev", None).await.unwrap();
    let failed = state.record(&deployment.log, vec![record("a", "x")]).await;
    assert!(matches!(failed, Err(StepError::Failed { .. })), "{failed:?}");
    assert_eq!(deployment.stored().await, "");
}

#[tokio::test]
async fn missing_key_fails_with_advice() {
    let deployment = Deployment::new();
    deployment.load(&[1]).await.record(&deployment.log, vec![record("a", "x")]).await.unwrap();
    let before = deployment.stored().await;
    let mut state = deployment.load(&[2]).await;
    let message = opened(&state).await.unwrap_err();
    for part in
        ["the provider state of a", "sealing keys", "Nothing was changed", "put that key behind the others", KEY]
    {
        assert!(message.contains(part), "{message:?} says nothing of {part:?}");
    }
    assert!(!message.contains(SECRET));
    assert!(matches!(state.renew_keys(&deployment.log).await, Err(StepError::Failed { .. })));
    assert_eq!(deployment.stored().await, before);
}

#[tokio::test]
async fn changed_or_moved_text_does_not_open() {
    let deployment = Deployment::new();
    let records = vec![record("a", "x"), record("b", "x")];
    deployment.load(&[1]).await.record(&deployment.log, records).await.unwrap();
    let mut original = String::new();
    deployment.change("a", |record| original = sealed(record)).await;
    let restore = "restore it from a backup";
    for (changed, advice) in [
        (original.replace("v1:", "v2:"), "run the version of Stoa that wrote it"),
        (original[..original.len() - 8].to_owned(), restore),
        (format!("{}AAAAAAAA", &original[..original.len() - 8]), restore),
    ] {
        deployment.change("a", |record| record["resource"]["providerState"]["sealed"] = json!(changed)).await;
        let message = opened(&deployment.load(&[1]).await).await.unwrap_err();
        assert!(message.contains("the provider state of a ") && message.contains(advice), "{message}");
    }
    deployment.change("a", |record| record["resource"]["providerState"]["sealed"] = json!(original)).await;
    assert!(opened(&deployment.load(&[1]).await).await.is_ok());
    deployment.change("b", |record| record["resource"]["providerState"]["sealed"] = json!(original)).await;
    let message = opened(&deployment.load(&[1]).await).await.unwrap_err();
    assert!(message.contains("the provider state of b ") && message.contains(restore), "{message}");
}

#[tokio::test]
async fn apply_renews_earlier_keys() {
    let deployment = Deployment::new();
    let large = record("large", &"x".repeat(1 << 20));
    deployment.load(&[1]).await.record(&deployment.log, vec![record("a", "x"), large]).await.unwrap();
    let mut state = deployment.load(&[2, 1]).await;
    assert_eq!(opened(&state).await.unwrap().len(), 2, "every key opens");
    state.renew_keys(&deployment.log).await.unwrap();
    assert_eq!(opened(&deployment.load(&[2]).await).await, opened(&state).await);
    let version = state.version(&"a".into());
    state.renew_keys(&deployment.log).await.unwrap();
    assert_eq!(state.version(&"a".into()), version, "nothing is left to do");
}

#[tokio::test]
async fn records_without_provider_state_are_read() {
    let deployment = Deployment::new();
    let record = json!({"id": "v1:ConfigMap:shop:a",
        "resource": {"id": "v1:ConfigMap:shop:a", "type": "Kubernetes", "attributes": {"data": {"a": "1"}}}});
    let key = Key::new(format!("{KEY}v1:ConfigMap:shop:a"));
    let change = Change::Put(record.to_string().into());
    deployment.log.append(Write::new(key, Expect::Absent, change)).await.unwrap();
    let mut state = deployment.load(&[1]).await;
    state.renew_keys(&deployment.log).await.unwrap();
    let id = ResourceId::from("v1:ConfigMap:shop:a");
    let resource = state.entry(&id).resource.unwrap();
    assert_eq!(resource.provider_state, None);
    let sent: StateResource = serde_json::from_slice(&state.for_runner().await.unwrap()[0].resource).unwrap();
    assert_eq!(sent, resource);
    let release: stoa_engine::State = document::decode(&state.document()).unwrap();
    assert_eq!(release.resources, [resource]);
}
