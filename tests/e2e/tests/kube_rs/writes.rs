//! What kube-rs has beyond create and replace: server-side apply, entries, status, pages.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use kube::api::entry::{CommitError, Entry};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::Status;
use kube::runtime::wait::await_condition;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use stoa_e2e::unique;
use stoa_types::platform::Backend;

use crate::{LABEL, backend, both_doors};

/// The Status of a request that has to fail.
fn refusal<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> Result<Status> {
    match answer {
        Err(kube::Error::Api(status)) => Ok(*status),
        other => bail!("not refused: {other:?}"),
    }
}

async fn clean_up(backends: &Api<Backend>, id: &str) -> Result<()> {
    let selector = format!("{LABEL}={id}");
    backends.delete_collection(&DeleteParams::default(), &ListParams::default().labels(&selector)).await?;
    Ok(())
}

/// What a manager applies: the type, and a description where there is one.
fn applied(name: &str, description: Option<&str>) -> Patch<Value> {
    let mut object = json!({
        "apiVersion": "platform.stoa.dev/v1alpha1", "kind": "Backend", "metadata": {"name": name},
        "spec": {"type": "Local"},
    });
    if let Some(description) = description {
        object["spec"]["description"] = description.into();
    }
    Patch::Apply(object)
}

async fn apply(client: Client) -> Result<()> {
    let backends: Api<Backend> = Api::all(client);
    let name = unique("kube-rs");
    let (ann, bob) = (PatchParams::apply("ann"), PatchParams::apply("bob"));
    let created = backends.patch(&name, &ann, &applied(&name, Some("Ann's"))).await?;
    ensure!(created.spec.description.as_deref() == Some("Ann's"), "{created:?}");
    let same = backends.patch(&name, &ann, &applied(&name, Some("Ann's"))).await?;
    ensure!(same.metadata.generation == Some(1), "the same again is no change: {same:?}");

    // What both say alike, both own.
    backends.patch(&name, &bob, &applied(&name, Some("Ann's"))).await?;
    let status = refusal(backends.patch(&name, &bob, &applied(&name, Some("Bob's"))).await)?;
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    ensure!(status.code == 409 && status.reason == "Conflict" && causes.len() == 1, "{status:?}");
    ensure!(causes[0].reason == "FieldManagerConflict" && causes[0].field == ".spec.description", "{causes:?}");
    ensure!(causes[0].message == "conflict with \"ann\"", "{causes:?}");

    let forced = backends.patch(&name, &bob.clone().force(), &applied(&name, Some("Bob's"))).await?;
    ensure!(forced.spec.description.as_deref() == Some("Bob's"), "{forced:?}");
    let status = refusal(backends.patch(&name, &ann, &applied(&name, Some("Ann's"))).await)?;
    ensure!(status.message.contains("conflict with \"bob\""), "{status:?}");

    // Who says nothing of a field gives it up; it goes with its last owner.
    let kept = backends.patch(&name, &ann, &applied(&name, None)).await?;
    ensure!(kept.spec.description.as_deref() == Some("Bob's"), "{kept:?}");
    let gone = backends.patch(&name, &bob, &applied(&name, None)).await?;
    ensure!(gone.spec.description.is_none(), "{gone:?}");
    let managers: Vec<&str> = gone.managed_fields().iter().filter_map(|entry| entry.manager.as_deref()).collect();
    ensure!(managers.contains(&"ann") && managers.contains(&"bob"), "{managers:?}");

    // Only an apply can be forced, and it needs a manager.
    let anybody = PatchParams::default();
    ensure!(backends.patch(&name, &anybody, &applied(&name, None)).await.is_err(), "applied by nobody");
    backends.delete(&name, &DeleteParams::default()).await?;
    Ok(())
}

#[tokio::test]
async fn server_side_apply_reports_and_forces_conflicts() -> Result<()> {
    for client in both_doors() {
        apply(client).await?;
    }
    Ok(())
}

/// Waits until the server's own controller has had its say, which would be somebody who was faster.
async fn settled(backends: &Api<Backend>, name: &str) -> Result<()> {
    let ready = |backend: Option<&Backend>| {
        let generation = backend.and_then(|backend| backend.metadata.generation);
        let conditions = backend.and_then(|backend| backend.status.as_ref()).map(|status| status.conditions.as_slice());
        conditions.unwrap_or_default().iter().any(|c| c.type_ == "Ready" && c.observed_generation == generation)
    };
    let waited = await_condition(backends.clone(), name, ready);
    tokio::time::timeout(Duration::from_secs(30), waited).await??;
    Ok(())
}

async fn entries(client: Client) -> Result<()> {
    let backends: Api<Backend> = Api::all(client);
    let id = unique("kube-rs");
    let name = format!("{id}-0");
    let params = PostParams::default();
    let Entry::Vacant(vacant) = backends.entry(&name).await? else { bail!("{name} is there") };
    let mut entry = vacant.insert(backend(&id, 0));
    entry.commit(&params).await?;
    ensure!(entry.get().uid().is_some(), "{:?}", entry.get());

    let describe = |text: &str| {
        let text = text.to_owned();
        move |backend: &mut Backend| backend.spec.description = Some(text)
    };
    settled(&backends, &name).await?;
    let (first, second) = (backends.entry(&name).await?, backends.entry(&name).await?);
    first.and_modify(describe("first")).or_insert(|| backend(&id, 0)).commit(&params).await?;
    let late = second.and_modify(describe("second")).or_insert(|| backend(&id, 0)).commit(&params).await;
    match late {
        Err(CommitError::Save(kube::Error::Api(status))) => ensure!(status.is_conflict(), "{status:?}"),
        other => bail!("a stale entry was committed: {other:?}"),
    }
    settled(&backends, &name).await?;
    let mut again = backends.entry(&name).await?.and_modify(describe("second")).or_insert(|| backend(&id, 0));
    again.commit(&PostParams { dry_run: true, ..PostParams::default() }).await?;
    ensure!(backends.get(&name).await?.spec.description.as_deref() == Some("first"), "a dry run wrote");
    again.commit(&params).await?;
    ensure!(backends.get(&name).await?.spec.description.as_deref() == Some("second"), "nothing was written");

    // Somebody creates what was not there when it was looked for.
    let raced = format!("{id}-1");
    let mut entry = backends.entry(&raced).await?.or_insert(|| backend(&id, 1));
    backends.create(&params, &backend(&id, 1)).await?;
    match entry.commit(&params).await {
        Err(CommitError::Save(kube::Error::Api(status))) => ensure!(status.is_already_exists(), "{status:?}"),
        other => bail!("an object was created twice: {other:?}"),
    }
    clean_up(&backends, &id).await
}

#[tokio::test]
async fn entries_are_committed_unless_somebody_was_faster() -> Result<()> {
    for client in both_doors() {
        entries(client).await?;
    }
    Ok(())
}

async fn status(client: Client) -> Result<()> {
    let backends: Api<Backend> = Api::all(client);
    let id = unique("kube-rs");
    let created = backends.create(&PostParams::default(), &backend(&id, 0)).await?;
    let name = created.name_any();
    let condition = json!({"type": "Tested", "status": "True", "reason": "Tested", "message": "by a test",
        "lastTransitionTime": "2026-01-02T03:04:05Z"});
    let object = |part: &str, value: Value| {
        let mut object = json!({"apiVersion": "platform.stoa.dev/v1alpha1", "kind": "Backend"});
        object[part] = value;
        object
    };
    let tested = |backend: &Backend| {
        let conditions = backend.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "Tested")
    };

    // The main resource has no say in the status, nor the status in the spec.
    let merge = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    let unchanged = backends.patch(&name, &PatchParams::default(), &merge).await?;
    ensure!(!tested(&unchanged), "{unchanged:?}");
    let merge = Patch::Merge(json!({"spec": {"description": "no"}, "status": {"conditions": [condition]}}));
    let written = backends.patch_status(&name, &PatchParams::default(), &merge).await?;
    ensure!(tested(&written) && written.spec.description.is_none(), "{written:?}");
    ensure!(written.metadata.generation == Some(1), "a status is no new generation: {written:?}");

    // A controller with a condition of its own, as conditions are a map by type.
    let apply = Patch::Apply(object("status", json!({"conditions": [condition]})));
    let applied = backends.patch_status(&name, &PatchParams::apply("tester").force(), &apply).await?;
    ensure!(tested(&applied), "{applied:?}");
    let entry = applied.managed_fields().iter().find(|entry| entry.manager.as_deref() == Some("tester"));
    ensure!(entry.is_some_and(|entry| entry.subresource.as_deref() == Some("status")), "{entry:?}");

    let read = backends.get_status(&name).await?;
    let mut stale = created;
    stale.status = read.status;
    let refused = refusal(backends.replace_status(&name, &PostParams::default(), &stale).await)?;
    ensure!(refused.is_conflict(), "{refused:?}");
    clean_up(&backends, &id).await
}

#[tokio::test]
async fn status_and_spec_are_written_apart() -> Result<()> {
    for client in both_doors() {
        status(client).await?;
    }
    Ok(())
}

async fn pages(client: Client) -> Result<()> {
    let backends: Api<Backend> = Api::all(client);
    let id = unique("kube-rs");
    for number in 0..7 {
        backends.create(&PostParams::default(), &backend(&id, number)).await?;
    }
    let params = ListParams::default().labels(&format!("{LABEL}={id}")).limit(3);
    let mut names = Vec::new();
    let mut versions = Vec::new();
    let mut token = String::new();
    for page in 0.. {
        // Objects and metadata have the same pages.
        let params = params.clone().continue_token(&token);
        let list = backends.list(&params).await?;
        let metadata = backends.list_metadata(&params).await?;
        let of_metadata: Vec<String> = metadata.items.iter().map(|object| object.name_any()).collect();
        let of_page: Vec<String> = list.items.iter().map(|object| object.name_any()).collect();
        ensure!(of_page == of_metadata || page == 0, "{of_page:?} and {of_metadata:?}");
        ensure!(of_page.len() == [3, 3, 1][page], "page {page}: {of_page:?}");
        names.extend(of_page);
        versions.push(list.metadata.resource_version.clone().unwrap_or_default());
        token = list.metadata.continue_.clone().unwrap_or_default();
        if token.is_empty() {
            break;
        }
        // Behind and ahead of the reader.
        if page == 0 {
            backends.delete(&format!("{id}-0"), &DeleteParams::default()).await?;
            backends.delete(&format!("{id}-5"), &DeleteParams::default()).await?;
            backends.create(&PostParams::default(), &backend(&id, 8)).await?;
        }
    }
    let wanted: Vec<String> = (0..7).map(|number| format!("{id}-{number}")).collect();
    ensure!(names == wanted, "{names:?}");
    ensure!(versions.iter().all(|version| *version == versions[0]), "pages of several versions: {versions:?}");
    let refused = refusal(backends.list(&params.continue_token("nonsense")).await)?;
    ensure!(refused.code == 400, "{refused:?}");
    clean_up(&backends, &id).await
}

#[tokio::test]
async fn pages_are_of_one_moment() -> Result<()> {
    for client in both_doors() {
        pages(client).await?;
    }
    Ok(())
}
