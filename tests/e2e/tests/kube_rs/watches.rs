//! Watchers that list first and watchers whose list is streamed, of objects and of metadata: whatever happens, all of
//! them end at what is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use http::{Request, Response};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector;
use kube::runtime::watcher::{self, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use stoa_e2e::{Follower, FollowerReport, Versions, unique};
use stoa_types::platform::Backend;

use crate::{LABEL, backend, both_doors};

async fn versions(backends: &Api<Backend>, selector: &str) -> Result<Versions> {
    let list = backends.list(&ListParams::default().labels(selector)).await?;
    let entry = |object: &Backend| (object.name_any(), object.resource_version().unwrap_or_default());
    Ok(list.items.iter().map(entry).collect())
}

/// Waits until every follower is at what a consistent list says; controllers may still be writing.
async fn all_at_the_truth(followers: &[Follower], backends: &Api<Backend>, selector: &str) -> Result<()> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let truth = versions(backends, selector).await?;
        let Some(behind) = followers.iter().find(|follower| follower.look(|told| told.there != truth)) else {
            break;
        };
        if tokio::time::Instant::now() > deadline {
            bail!("{} says {:?}, and there is {truth:?}", behind.name, behind.look(|told| told.there.clone()));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for follower in followers {
        follower.look(|told| ensure_sound(follower.name, told))?;
    }
    Ok(())
}

fn ensure_sound(name: &str, told: &FollowerReport) -> Result<()> {
    ensure!(told.faults.is_empty(), "{name}: {:?}", told.faults);
    Ok(())
}

/// Creates, changes, moves out of the selector and deletes.
async fn churn(backends: &Api<Backend>, id: &str, from: usize) -> Result<()> {
    for number in from..from + 9 {
        backends.create(&PostParams::default(), &backend(id, number)).await?;
    }
    for number in from..from + 9 {
        let name = format!("{id}-{number}");
        match number % 3 {
            0 => {
                let patch = Patch::Merge(json!({"spec": {"description": "changed"}}));
                backends.patch(&name, &PatchParams::default(), &patch).await?;
            }
            1 => {
                let patch = Patch::Merge(json!({"metadata": {"labels": {LABEL: format!("{id}-other")}}}));
                backends.patch(&name, &PatchParams::default(), &patch).await?;
            }
            _ => drop(backends.delete(&name, &DeleteParams::default()).await?),
        }
    }
    Ok(())
}

async fn clean_up(backends: &Api<Backend>, id: &str) -> Result<()> {
    let selector = format!("{LABEL} in ({id},{id}-other)");
    backends.delete_collection(&DeleteParams::default(), &ListParams::default().labels(&selector)).await?;
    Ok(())
}

async fn watchers_end_at_what_is_there(client: Client) -> Result<()> {
    let id = unique("kube-rs");
    let selector = format!("{LABEL}={id}");
    let backends: Api<Backend> = Api::all(client.clone());
    let metadata: Api<PartialObjectMeta<Backend>> = Api::all(client);
    churn(&backends, &id, 0).await?;
    let config = || watcher::Config::default().labels(&selector);
    let (store, writer) = reflector::store();
    let reflected = reflector(writer, watcher(backends.clone(), config().streaming_lists()));
    let followers = [
        Follower::new("lists", watcher(backends.clone(), config().page_size(2))),
        Follower::new("lists of any version", watcher(backends.clone(), config().any_semantic())),
        Follower::new("streamed lists", watcher(backends.clone(), config().streaming_lists())),
        Follower::new("metadata", watcher(metadata.clone(), config())),
        Follower::new("streamed metadata", watcher(metadata.clone(), config().streaming_lists())),
        // Ends and resumes again and again, from the last event or bookmark.
        Follower::new("short watches", watcher(backends.clone(), config().timeout(1))),
        Follower::new("reflector", reflected),
    ];
    all_at_the_truth(&followers, &backends, &selector).await?;
    churn(&backends, &id, 9).await?;
    all_at_the_truth(&followers, &backends, &selector).await?;
    let entry = |object: &Arc<Backend>| (object.name_any(), object.resource_version().unwrap_or_default());
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let truth = versions(&backends, &selector).await?;
        let stored: Versions = store.state().iter().map(entry).collect();
        if stored == truth {
            break;
        }
        ensure!(tokio::time::Instant::now() < deadline, "the store has {stored:?}, and there is {truth:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for follower in &followers {
        let (lists, errors) = follower.look(|told| (told.lists, format!("{:?}", told.errors)));
        ensure!(lists == 1 && errors == "[]", "{}: {lists} lists, errors {errors}", follower.name);
    }
    clean_up(&backends, &id).await
}

#[tokio::test]
async fn watchers_of_every_form_end_at_what_is_there() -> Result<()> {
    for client in both_doors() {
        watchers_end_at_what_is_there(client).await?;
    }
    Ok(())
}

/// A client whose next watch is answered as one from a version that is no longer known: the server keeps far more
/// history than a test makes.
fn forgetful(client: Client, forgets: Arc<AtomicBool>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, forgets) = (client.clone(), forgets.clone());
        async move {
            let query = request.uri().query().unwrap_or_default();
            let resumes = query.contains("watch=true") && !query.contains("sendInitialEvents=true");
            if !resumes || !forgets.swap(false, Ordering::SeqCst) {
                return client.send(request).await;
            }
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "too old resource version: 1 (2)", "reason": "Expired", "code": 410});
            let event = json!({"type": "ERROR", "object": status}).to_string() + "\n";
            Ok::<_, kube::Error>(Response::new(Body::from(event.into_bytes())))
        }
    });
    Client::new(service, "default")
}

async fn watchers_begin_anew(client: Client) -> Result<()> {
    let id = unique("kube-rs");
    let selector = format!("{LABEL}={id}");
    let backends: Api<Backend> = Api::all(client.clone());
    backends.create(&PostParams::default(), &backend(&id, 0)).await?;
    let config = || watcher::Config::default().labels(&selector).timeout(1);
    let mut followers = Vec::new();
    let mut forgets = Vec::new();
    for (name, config) in [("a list", config()), ("a streamed list", config().streaming_lists())] {
        let flag = Arc::new(AtomicBool::new(false));
        let backends: Api<Backend> = Api::all(forgetful(client.clone(), flag.clone()));
        followers.push(Follower::new(name, watcher(backends, config)));
        forgets.push(flag);
    }
    all_at_the_truth(&followers, &backends, &selector).await?;
    for flag in &forgets {
        flag.store(true, Ordering::SeqCst);
    }
    churn(&backends, &id, 1).await?;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while followers.iter().any(|follower| follower.look(|told| told.lists < 2)) {
        ensure!(tokio::time::Instant::now() < deadline, "not every watcher listed again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    all_at_the_truth(&followers, &backends, &selector).await?;
    for follower in &followers {
        follower.look(|told| {
            let error = told.errors.first().with_context(|| format!("{} saw no error", follower.name))?;
            let said = format!("{error:?}");
            ensure!(told.errors.len() == 1 && said.contains("Expired"), "{}: {:?}", follower.name, told.errors);
            ensure!(told.lists == 2, "{} listed {} times", follower.name, told.lists);
            Ok(())
        })?;
    }
    clean_up(&backends, &id).await
}

#[tokio::test]
async fn watchers_restart_after_expired_version() -> Result<()> {
    for client in both_doors() {
        watchers_begin_anew(client).await?;
    }
    Ok(())
}
