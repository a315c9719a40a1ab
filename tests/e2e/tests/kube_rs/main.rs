//! Programs on kube-rs, with the published types, against all forms of the server.
//!
//! Elsewhere: `watches` follows objects through anything, `writes` has what kube-rs has beyond create and replace,
//! `controller` is a controller.

mod controller;
mod watches;
mod writes;

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures_util::{Stream, StreamExt as _, pin_mut};
use http::Request;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::{await_condition, conditions::is_deleted};
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt as _, reflector};
use kube::{Client, Config, ResourceExt as _};
use serde_json::json;
use stoa_e2e::fixture::Organization;
use stoa_e2e::{Cluster, Server, Standalone, unique};
use stoa_types::Stack;
use stoa_types::platform::{Backend, BackendSpec, BackendType, LocalBackend};

const LABEL: &str = "stoa.dev/kube-rs-test";

async fn client(server: &dyn Server) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(server.kubectl().kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Behind kube-apiserver, and Stoa itself.
fn both_doors() -> Vec<Client> {
    let cluster = Cluster::shared();
    let mut clients = cluster.replicas();
    clients.push(cluster.front_door().client());
    clients
}

fn backend(id: &str, number: usize) -> Backend {
    let local = LocalBackend { directory: id.to_owned() };
    let spec = BackendSpec { kind: BackendType::Local, local: Some(local), ..BackendSpec::default() };
    let mut backend = Backend::new(&format!("{id}-{number}"), spec);
    backend.metadata.labels = Some(BTreeMap::from([(LABEL.to_owned(), id.to_owned())]));
    backend
}

/// The next event; status that a controller wrote makes events too.
async fn next(
    events: &mut (impl Stream<Item = Result<Event<Backend>, watcher::Error>> + Unpin),
) -> Result<Event<Backend>> {
    let event = tokio::time::timeout(Duration::from_secs(30), events.next()).await.context("no event in 30 s")?;
    Ok(event.context("the watcher ended")??)
}

async fn check(server: &dyn Server) -> Result<()> {
    let id = unique("kube-rs");
    let backends: Api<Backend> = Api::all(client(server).await?);
    let mut made = Vec::new();
    for number in 0..3 {
        made.push(backends.create(&PostParams::default(), &backend(&id, number)).await?);
    }
    let selector = format!("{LABEL}={id}");
    let list = backends.list(&ListParams::default().labels(&selector)).await?;
    ensure!(list.items.len() == 3, "the list has {} objects, not 3", list.items.len());

    // The first list is streamed, as informers of today's client-go do it.
    let events = watcher(backends.clone(), watcher::Config::default().labels(&selector).streaming_lists());
    pin_mut!(events);
    let mut initial = Vec::new();
    loop {
        match next(&mut events).await? {
            Event::Init => {}
            Event::InitApply(object) => initial.push(object.name_any()),
            Event::InitDone => break,
            event @ (Event::Apply(_) | Event::Delete(_)) => bail!("{event:?} before the first list was complete"),
        }
    }
    initial.sort();
    let names: Vec<String> = made.iter().map(|backend| backend.name_any()).collect();
    ensure!(initial == names, "the first list had {initial:?}");

    let patch = Patch::Merge(json!({"spec": {"description": "changed"}}));
    let changed = backends.patch(&names[0], &PatchParams::default(), &patch).await?;
    ensure!(changed.metadata.generation == Some(2), "a change of the spec is a new generation: {changed:?}");
    backends.delete(&names[1], &DeleteParams::default()).await?;
    let mut seen_change = false;
    loop {
        match next(&mut events).await? {
            Event::Apply(object) if object.name_any() == names[0] => {
                seen_change |= object.spec.description.as_deref() == Some("changed");
            }
            Event::Apply(_) => {}
            Event::Delete(object) => {
                ensure!(object.name_any() == names[1] && seen_change, "deletion of {} out of order", object.name_any());
                break;
            }
            event => bail!("the watcher began anew: {event:?}"),
        }
    }

    let mut stale = made.swap_remove(0);
    stale.spec.description = Some("stale".to_owned());
    match backends.replace(&names[0], &PostParams::default(), &stale).await {
        Err(kube::Error::Api(status)) => ensure!(status.is_conflict(), "a stale write answers {status:?}"),
        other => bail!("a stale write answers {other:?}"),
    }
    match backends.get(&names[1]).await {
        Err(kube::Error::Api(status)) => ensure!(status.is_not_found(), "reading what is gone answers {status:?}"),
        other => bail!("reading what is gone answers {other:?}"),
    }
    backends.delete_collection(&DeleteParams::default(), &ListParams::default().labels(&selector)).await?;
    Ok(())
}

/// A typed program's life with a stack: create, read, change, status, list, delete; a reflector sees all of it, with
/// lists and watches instead of a streamed list.
async fn stacks_are_typed_objects(server: &dyn Server) -> Result<()> {
    let organization = Organization::create(server);
    let namespace = &organization.name;
    let client = client(server).await?;
    let stacks: Api<Stack> = Api::namespaced(client.clone(), namespace);

    let (store, writer) = reflector::store();
    let config = watcher::Config::default().page_size(2);
    let stream = watcher(stacks.clone(), config).reflect(writer).applied_objects();
    let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
    // Ends when nobody listens any more.
    tokio::spawn(async move {
        let mut stream = pin!(stream);
        while let Some(object) = stream.next().await {
            if sender.send(object).is_err() {
                return;
            }
        }
    });
    store.wait_until_ready().await?;

    let spec = serde_json::from_value(json!({"project": namespace, "workspaces": [namespace]}))?;
    let mut stack = Stack::new("typed", spec);
    stack.metadata.labels = Some(BTreeMap::from([("tier".to_owned(), "front".to_owned())]));
    let created = stacks.create(&PostParams::default(), &stack).await?;
    ensure!(created.spec.stack_name == "typed" && created.spec.desired_version == "latest", "defaults: {created:?}");
    ensure!(created.metadata.generation == Some(1) && created.uid().is_some(), "metadata: {created:?}");

    let patch = Patch::Merge(json!({"spec": {"description": "The shop window"}}));
    let changed = stacks.patch("typed", &PatchParams::default(), &patch).await?;
    ensure!(changed.metadata.generation == Some(2), "a change of the spec is a new generation: {changed:?}");
    let ready = tokio::time::timeout(Duration::from_secs(30), async {
        while let Some(object) = seen.recv().await {
            let status = object?.status.unwrap_or_default();
            if status.conditions.iter().any(|condition| condition.type_ == "Ready") {
                return Ok::<_, watcher::Error>(status);
            }
        }
        unreachable!("a watcher does not end by itself")
    });
    let status = ready.await.context("no condition in 30 s")??;
    ensure!(status.conditions[0].reason == "NotDeployed", "{status:?}");
    let reflected = store.get(&reflector::ObjectRef::new("typed").within(namespace)).context("not in the store")?;
    ensure!(reflected.uid() == created.uid(), "the store has {reflected:?}");

    let metadata = stacks.list_metadata(&ListParams::default().labels("tier=front")).await?;
    ensure!(metadata.items.len() == 1 && metadata.items[0].name_any() == "typed", "metadata: {metadata:?}");
    let one = stacks.get_metadata("typed").await?;
    ensure!(one.types.as_ref().is_some_and(|types| types.kind == "PartialObjectMetadata"), "{one:?}");

    let table = Request::get(format!("/apis/config.stoa.dev/v1alpha1/namespaces/{namespace}/stacks"))
        .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())?;
    let table: serde_json::Value = client.request(table).await?;
    let columns: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .context("no columns")?
        .iter()
        .filter_map(|c| c["name"].as_str())
        .collect();
    let people_want = ["Name", "Project", "Desired", "Workspaces", "Release", "Ready", "Age"];
    ensure!(columns.starts_with(&people_want), "columns: {columns:?}");
    ensure!(table["rows"][0]["object"]["kind"] == "PartialObjectMetadata", "{table:#}");

    match stacks.create(&PostParams { dry_run: true, ..PostParams::default() }, &stack).await {
        Err(kube::Error::Api(status)) => ensure!(status.is_already_exists(), "a dry run of what exists: {status:?}"),
        other => bail!("a dry run of what exists: {other:?}"),
    }
    stacks.delete("typed", &DeleteParams::default()).await?;
    tokio::time::timeout(
        Duration::from_secs(30),
        await_condition(stacks, "typed", is_deleted(&created.uid().expect("a created object has a uid"))),
    )
    .await
    .context("the stack is not gone in 30 s")??;
    Ok(())
}

#[tokio::test]
async fn kube_rs_reads_typed_stacks_standalone() -> Result<()> {
    stacks_are_typed_objects(&*Standalone::shared()).await
}

#[tokio::test]
async fn kube_rs_reads_typed_stacks_behind_kube_apiserver() -> Result<()> {
    stacks_are_typed_objects(&Cluster::shared()).await
}

#[tokio::test]
async fn kube_rs_works_with_stoa_on_its_own() -> Result<()> {
    check(&*Standalone::shared()).await
}

#[tokio::test]
async fn kube_rs_works_with_stoa_behind_kube_apiserver() -> Result<()> {
    check(&Cluster::shared()).await
}
