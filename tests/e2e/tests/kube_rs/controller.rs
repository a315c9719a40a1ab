//! A controller on kube-rs: for every Stack it keeps a ConfigMap of the cluster and a Source, both owned by the stack,
//! says so in the stack's status, and clears up before the stack goes.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{self, Event, finalizer};
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::json;
use stoa_e2e::Cluster;
use stoa_e2e::fixture::Organization;
use stoa_types::{Source, Stack};

use crate::client;

const FINALIZER: &str = "mirror.example.com/finalizer";
const MANAGER: &str = "mirror.example.com";
const LABEL: &str = "mirror.example.com/wanted=yes";

/// What the controller keeps for a stack.
fn mirror(stack: &str) -> String {
    format!("{stack}-mirror")
}

/// What it leaves behind.
fn epitaph(stack: &str) -> String {
    format!("{stack}-was-here")
}

fn api<K>(client: &Client, namespace: &str) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client.clone(), namespace)
}

async fn keep(client: &Client, stack: &Stack) -> Result<Action, kube::Error> {
    let namespace = stack.namespace().unwrap_or_default();
    let owner = stack.controller_owner_ref(&()).expect("it was read from the server");
    let metadata = json!({"name": mirror(&stack.name_any()), "ownerReferences": [owner]});
    let params = PatchParams::apply(MANAGER).force();
    let description = stack.spec.description.clone().unwrap_or_default();
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
        "data": {"description": description}});
    api::<ConfigMap>(client, &namespace).patch(&mirror(&stack.name_any()), &params, &Patch::Apply(config_map)).await?;
    let source = json!({"apiVersion": "config.stoa.dev/v1alpha1", "kind": "Source", "metadata": metadata,
        "spec": {"remote": format!("file:///{}.git", mirror(&stack.name_any())), "pollInterval": "1h"}});
    api::<Source>(client, &namespace).patch(&mirror(&stack.name_any()), &params, &Patch::Apply(source)).await?;

    let there = stack.status.iter().flat_map(|status| &status.conditions);
    let since =
        there.filter(|condition| condition.type_ == "Mirrored").map(|condition| &condition.last_transition_time);
    let since = since.map(|time| json!(time)).next().unwrap_or_else(|| json!("2026-01-02T03:04:05Z"));
    let status = json!({"apiVersion": "config.stoa.dev/v1alpha1", "kind": "Stack", "status": {"conditions": [{
        "type": "Mirrored", "status": "True", "reason": "Mirrored", "message": description, "lastTransitionTime": since,
        "observedGeneration": stack.metadata.generation,
    }]}});
    api::<Stack>(client, &namespace).patch_status(&stack.name_any(), &params, &Patch::Apply(status)).await?;
    Ok(Action::await_change())
}

async fn clear_up(client: &Client, stack: &Stack) -> Result<Action, kube::Error> {
    let mut left = ConfigMap::default();
    left.metadata.name = Some(epitaph(&stack.name_any()));
    left.data = Some(BTreeMap::from([("uid".to_owned(), stack.uid().unwrap_or_default())]));
    match api::<ConfigMap>(client, &stack.namespace().unwrap_or_default()).create(&PostParams::default(), &left).await {
        Err(kube::Error::Api(status)) if !status.is_already_exists() => Err(kube::Error::Api(status)),
        _ => Ok(Action::await_change()),
    }
}

type Failure = finalizer::Error<kube::Error>;

async fn reconcile(stack: Arc<Stack>, client: Arc<Client>) -> Result<Action, Failure> {
    let stacks: Api<Stack> = api(&client, &stack.namespace().unwrap_or_default());
    finalizer(&stacks, FINALIZER, stack, |event| async {
        match event {
            Event::Apply(stack) => keep(&client, &stack).await,
            Event::Cleanup(stack) => clear_up(&client, &stack).await,
        }
    })
    .await
}

/// Reads an object until it is as wanted.
async fn until<K>(api: &Api<K>, name: &str, wanted: impl Fn(Option<&K>) -> bool) -> Result<()>
where
    K: Clone + Debug + DeserializeOwned,
{
    // The garbage collector finds kinds that are new to it within half a minute.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(90);
    loop {
        let object = api.get_opt(name).await?;
        if wanted(object.as_ref()) {
            return Ok(());
        }
        ensure!(tokio::time::Instant::now() < deadline, "{name} is not as wanted: {object:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn controller_maintains_and_removes_owned_objects() -> Result<()> {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let namespace = organization.name.as_str();
    let client = client(&cluster).await?;
    let stacks: Api<Stack> = api(&client, namespace);
    let (sources, config_maps): (Api<Source>, Api<ConfigMap>) = (api(&client, namespace), api(&client, namespace));

    let wanted = watcher::Config::default().labels(LABEL);
    let controller = Controller::new(stacks.clone(), wanted.streaming_lists())
        .owns(config_maps.clone(), watcher::Config::default())
        .owns(sources.clone(), watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(100)), Arc::new(client.clone()));
    let running = tokio::spawn(controller.for_each(|_| async {}));

    let spec = json!({"project": namespace, "description": "one"});
    let mut stack = Stack::new("web", serde_json::from_value(spec)?);
    let (key, value) = LABEL.split_once('=').context("a label")?;
    stack.metadata.labels = Some(BTreeMap::from([(key.to_owned(), value.to_owned())]));
    let created = stacks.create(&PostParams::default(), &stack).await?;
    let mut other = stack.clone();
    other.metadata.labels = None;
    other.metadata.name = Some("other".to_owned());
    stacks.create(&PostParams::default(), &other).await?;

    let says = |text: &'static str| {
        move |map: Option<&ConfigMap>| {
            map.and_then(|map| map.data.as_ref()).is_some_and(|data| data.get("description").is_some_and(|d| d == text))
        }
    };
    let mirrored = |generation: i64| {
        move |stack: Option<&Stack>| {
            let conditions = stack.and_then(|stack| stack.status.as_ref()).map(|status| status.conditions.as_slice());
            let is =
                |kind: &str| conditions.unwrap_or_default().iter().find(|condition| condition.type_ == kind).cloned();
            // Beside the server's own.
            is("Ready").is_some() && is("Mirrored").is_some_and(|m| m.observed_generation == Some(generation))
        }
    };
    until(&config_maps, "web-mirror", says("one")).await?;
    until(&sources, "web-mirror", |source| source.is_some()).await?;
    until(&stacks, "web", mirrored(1)).await?;

    // A change of the stack, and of what it owns.
    let patch = Patch::Merge(json!({"spec": {"description": "two"}}));
    stacks.patch("web", &PatchParams::default(), &patch).await?;
    until(&config_maps, "web-mirror", says("two")).await?;
    until(&stacks, "web", mirrored(2)).await?;
    let patch = Patch::Merge(json!({"data": {"description": "meddled"}}));
    config_maps.patch("web-mirror", &PatchParams::default(), &patch).await?;
    until(&config_maps, "web-mirror", says("two")).await?;
    let before = sources.get("web-mirror").await?.uid();
    sources.delete("web-mirror", &DeleteParams::default()).await?;
    until(&sources, "web-mirror", |source| source.is_some_and(|source| source.uid() != before)).await?;

    stacks.delete("web", &DeleteParams::default()).await?;
    until(&stacks, "web", |stack| stack.is_none()).await?;
    let left = config_maps.get(&epitaph("web")).await?;
    ensure!(left.data.unwrap_or_default().get("uid") == created.uid().as_ref(), "the wrong stack was cleared up after");
    // The cluster's garbage collector does the rest, of its own kinds and of ours.
    until(&config_maps, "web-mirror", |map| map.is_none()).await?;
    until(&sources, "web-mirror", |source| source.is_none()).await?;

    // What was not asked for was left alone.
    ensure!(!stacks.get("other").await?.finalizers().iter().any(|name| name == FINALIZER), "the other stack was kept");
    ensure!(config_maps.get_opt("other-mirror").await?.is_none(), "the other stack was mirrored");
    running.abort();
    Ok(())
}
