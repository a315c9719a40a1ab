//! A program on kube-rs, with the published types, against both forms of the server.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures_util::{Stream, StreamExt as _, pin_mut};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Config, ResourceExt as _};
use serde_json::json;
use stoa_e2e::{Cluster, Server, Standalone, unique};
use stoa_types::platform::{Backend, BackendSpec, BackendType, LocalBackend};

const LABEL: &str = "stoa.dev/kube-rs-test";

async fn client(server: &dyn Server) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(server.kubectl().kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
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

#[tokio::test]
async fn kube_rs_works_with_stoa_on_its_own() -> Result<()> {
    check(&Standalone::start()).await
}

#[tokio::test]
async fn kube_rs_works_with_stoa_behind_kube_apiserver() -> Result<()> {
    check(&Cluster::shared()).await
}
