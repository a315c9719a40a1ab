//! Project: counts its stacks, looks for its Source, and takes its stacks along when it goes.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Preconditions;
use kube::ResourceExt as _;
use serde::de::IgnoredAny;
use stoa_controller::{
    conditions::set_condition,
    events::Kind,
    finalizers::{remove_finalizer, update_status_of_same},
    index::{GATHER, Index, Member},
    object::ObjectKey,
    probes::Requeue,
    queue::{self, FirstError, Trigger},
};
use stoa_kinds::{
    cluster,
    deletion::{Owner, Policies},
    deployed, project, readiness, stack, trigger,
};
use stoa_machinery::{ApiError, registry::DeleteOptions};
use stoa_runs::{Services, contents::Folder};
use stoa_types::{DeletionPolicy, Project, Source, Stack, config::StackSpec, labels, reason};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::folders::{Folders, Seen};

/// How often to look whether the stacks of a project that goes are gone, besides whenever one is.
const WAIT: RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_secs(60);

/// Why a project that is being deleted is still there.
const WAITS: &str = "the project waits for its stacks to be deleted";

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let Ok(registry) = services.lookup.registry() else { return };
    let lookup = services.lookup.clone();
    let by_project = Index::default();
    let stacks = by_project.follow(&registry.api::<Stack>(), |s: &Member<StackSpec, IgnoredAny>| {
        vec![(s.namespace().to_owned(), s.spec.project.clone())]
    });
    let (requeue, poked) = Requeue::triggering();
    let folders = Folders::new(requeue);
    let triggers = vec![
        poked,
        Trigger::on(&registry.api::<Project>(), |p| vec![queue::key_of(p)]),
        Trigger::new(stacks.map(|moved| moved.groups).boxed()).within(GATHER),
        Trigger::on(&registry.api::<Source>(), move |s: &Source| {
            lookup.cached_keys::<Project>(&s.namespace().unwrap_or_default(), "spec.source.name", &s.name_any())
        }),
    ];
    queue::drive(services.queues.of("projects"), triggers, end, |key| {
        look(services.clone(), by_project.clone(), folders.clone(), key)
    })
    .await;
}

async fn look(
    services: Services,
    stacks: Index<ObjectKey>,
    folders: Arc<Folders>,
    (namespace, name): ObjectKey,
) -> Result<Option<Duration>, ApiError> {
    let projects = services.lookup.api::<Project>()?;
    let key = (namespace.clone(), name.clone());
    let found = projects.get_opt(&namespace, &name).await?;
    let Some(project) = found.as_ref().filter(|project| project.metadata.deletion_timestamp.is_none()) else {
        folders.forget(&key);
        return match found {
            Some(project) => remove(&services, &project).await,
            None => Ok(None),
        };
    };
    let Some(stacks) = stacks.count(&key) else { return Ok(Some(GATHER)) };
    let seen = look_for_folder(&services, &folders, &key, project);
    projects
        .update_status_with(&namespace, &name, |p: &mut Project| {
            let status = p.status.get_or_insert_default();
            status.stacks = i64::try_from(stacks).unwrap_or(i64::MAX);
            seen.note(&mut status.missing_folder);
            project::observe(&services.lookup, p);
        })
        .await?;
    Ok(seen.again())
}

/// Looks for the folder of a project, once its source was looked at. The whole source is there in any case.
fn look_for_folder(services: &Services, folders: &Folders, key: &ObjectKey, project: &Project) -> Seen {
    let (source, path) = (&project.spec.source.name, &project.spec.path);
    if path.is_empty() {
        return Seen::Found;
    }
    match readiness::latest(&services.lookup, &key.0, source) {
        Some(commit) => {
            let (source, path) = (source.clone(), path.clone());
            folders.look(services, key, Folder { source, commit, path, values_files: Vec::new() })
        }
        None => Seen::Unknown,
    }
}

async fn remove(services: &Services, project: &Project) -> Result<Option<Duration>, ApiError> {
    if !project.finalizers().iter().any(|f| f == labels::STACKS_FINALIZER) {
        return Ok(None);
    }
    let (namespace, name) = queue::key_of(project);
    let began = Instant::now();
    // Looked at again and again until all are gone, most of which are going already.
    let own = stack::stored_of_project(&services.lookup, &namespace, &name).await?;
    let deleted_by = project.status.as_ref().map(|status| status.deleted_by.clone());
    let context = trigger::on_behalf_of("projects", deleted_by.into_iter().collect());
    // Each stack keeps who it was, whatever becomes of the project.
    let api = services.lookup.api::<Stack>()?.with_context(context);
    let policies = Policies::of_project(&services.lookup, project).await?;
    let mut owner = Owner { kind: "project", name: &name, policy: policies.project(&name).policy };
    if !own.is_empty() && cluster::is_emptied(&*services.cluster, &namespace).await? {
        // In a namespace that is being deleted the Refuse of a project keeps no stack that says otherwise.
        owner.policy = DeletionPolicy::Orphan;
    }
    // One that is refused keeps no other waiting.
    let (mut failed, mut kept) = (FirstError::default(), Vec::new());
    // Most are being deleted already.
    for stored in own.iter().filter(|stored| !stored.is_deleting()) {
        // Read anew only where it is written: there may be thousands.
        let Some(Some(stack)) = failed.note(api.get_opt(&namespace, stored.name()).await) else { continue };
        if owner.keeps(&stack, &policies) {
            // It was deployed after the deletion was admitted.
            let Some(used) = failed.note(deployed::used_by(&services.lookup, &stack).await) else { continue };
            if !used.is_empty() {
                kept.push(stack);
                continue;
            }
        }
        let preconditions = Preconditions { uid: stack.uid(), ..Preconditions::default() };
        let same = DeleteOptions { preconditions: Some(preconditions), ..DeleteOptions::default() };
        match api.delete(&namespace, stored.name(), &same).await {
            // Another that has its name is looked at next time.
            Err(error) if matches!(error.code(), 404 | 409) => {}
            deleted => drop(failed.note(deleted)),
        }
    }
    let held = (!kept.is_empty()).then(|| owner.message(&kept.iter().collect::<Vec<_>>(), &policies));
    if !own.is_empty() {
        let why = held.as_ref().map_or_else(|| WAITS.to_owned(), |held| format!("{WAITS}: {held}"));
        failed.note(note(services, project, &why).await);
    }
    if let Some(held) = held {
        services.recorder.record(project, Kind::Warning, reason::TERMINATING, held);
    }
    failed.told()?;
    if !own.is_empty() {
        return Ok(Some(queue::wait_after_look(began.elapsed(), WAIT)));
    }
    remove_finalizer(&services.lookup.api::<Project>()?, project, labels::STACKS_FINALIZER).await?;
    Ok(None)
}

/// Sets `Ready` of a project that is being deleted to why it is still there.
async fn note(services: &Services, project: &Project, why: &str) -> Result<(), ApiError> {
    let set = |project: &mut Project| {
        let generation = project.metadata.generation;
        let conditions = &mut project.status.get_or_insert_default().conditions;
        set_condition(conditions, reason::READY, false, reason::TERMINATING, why, generation);
    };
    queue::unless_gone(update_status_of_same(&services.lookup.api::<Project>()?, project, set).await).map(drop)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;
    use serde_json::json;
    use stoa_controller::testing::FaultyLog;
    use stoa_kinds::testing::deploying;
    use stoa_runs::testing::unreachable_runner;
    use stoa_types::common::condition;

    use super::*;
    use crate::testing::TestServer;

    #[tokio::test]
    async fn project_is_ready_while_its_source_can_be_read() {
        let world = TestServer::with_secrets().await;
        let (sources, projects) = (world.registry.api::<Source>(), world.registry.api::<Project>());
        let told = async || {
            let mut project = projects.get("shop", "web").await.unwrap();
            project::observe(&world.services.lookup, &mut project);
            let status = project.status.unwrap();
            let ready = condition(&status.conditions, reason::READY).unwrap();
            format!("{} {}: {}", ready.status, ready.reason, ready.message)
        };
        assert_eq!(told().await, "Unknown Progressing: source \"config\" was not fetched yet");
        for (is_ready, expected) in
            [(false, "False Looked: source \"config\" is not ready"), (true, "True Available: the source can be read")]
        {
            let look = |source: &mut Source| {
                let conditions = &mut source.status.get_or_insert_default().conditions;
                set_condition(conditions, reason::READY, is_ready, "Looked", "", None);
            };
            sources.update_status_with("shop", "config", look).await.unwrap();
            assert!(sources.get_opt("shop", "config").await.unwrap().is_some());
            assert_eq!(told().await, expected);
        }
        world.lose("/registry/config.stoa.dev/sources/shop/config").await;
        assert!(sources.get_opt("shop", "config").await.unwrap().is_none());
        assert_eq!(told().await, "False ReferenceNotFound: source \"config\" does not exist");
    }

    /// Sets the policies of a project and of its one stack, which is live, deletes the project, and looks at it once.
    async fn delete(world: &TestServer, of_project: Option<DeletionPolicy>, of_stack: Option<DeletionPolicy>) -> Stack {
        let (projects, stacks) = (world.registry.api::<Project>(), world.registry.api::<Stack>());
        stacks.update_with("shop", "web", |s: &mut Stack| s.spec.deletion_policy = of_stack).await.unwrap();
        projects.update_with("shop", "web", |p: &mut Project| p.spec.deletion_policy = of_project).await.unwrap();
        projects.delete("shop", "web", &DeleteOptions::default()).await.unwrap();
        // A run that was under way deployed it after the deletion was admitted.
        let deploy = deploying(json!([{"workspace": "dev", "resources": 1}]));
        stacks.update_status_with("shop", "web", deploy).await.unwrap();
        let project = projects.get("shop", "web").await.unwrap();
        assert!(remove(&world.services, &project).await.unwrap().is_some(), "its stack is still there");
        stacks.get("shop", "web").await.unwrap()
    }

    #[tokio::test]
    async fn stack_keeps_its_policy_when_its_project_is_deleted() {
        use DeletionPolicy::{Destroy, Orphan, Refuse};
        for (of_project, of_stack, is_deleted) in [
            (Some(Orphan), None, true),
            (Some(Destroy), None, true),
            (Some(Destroy), Some(Orphan), true),
            (Some(Orphan), Some(Destroy), true),
            (Some(Destroy), Some(Refuse), false),
            (Some(Orphan), Some(Refuse), false),
            (Some(Refuse), None, false),
            (None, None, false),
            (Some(Refuse), Some(Destroy), false),
        ] {
            let world = TestServer::with_secrets().await;
            world.create_in("", "Namespace", "shop", json!({})).await;
            let stack = delete(&world, of_project, of_stack).await;
            assert_eq!(stack.spec.deletion_policy, of_stack, "no policy is written");
            let deleted = stack.metadata.deletion_timestamp.is_some();
            assert_eq!(deleted, is_deleted, "{of_project:?} {of_stack:?}");
        }
    }

    #[tokio::test]
    async fn deleted_project_says_which_stacks_hold_it() {
        let held = "project \"web\" has 1 live stack with deletionPolicy Refuse (web); destroy it first";
        for (of_stack, expected) in
            [(Some(DeletionPolicy::Refuse), format!("{WAITS}: {held}")), (None, WAITS.to_owned())]
        {
            let world = TestServer::with_secrets().await;
            world.create_in("", "Namespace", "shop", json!({})).await;
            delete(&world, Some(DeletionPolicy::Orphan), of_stack).await;
            let status = world.registry.api::<Project>().get("shop", "web").await.unwrap().status.unwrap();
            let ready = condition(&status.conditions, reason::READY).unwrap();
            assert_eq!((&*ready.status, &*ready.reason), ("False", reason::TERMINATING));
            assert_eq!(ready.message, expected);
        }
    }

    #[tokio::test]
    async fn deleted_namespace_overrides_project_refuse_policy() {
        let world = TestServer::with_secrets().await;
        world.create_in("", "Namespace", "shop", json!({})).await;
        world.registry.api::<Namespace>().delete("", "shop", &DeleteOptions::default()).await.unwrap();
        let stack = delete(&world, Some(DeletionPolicy::Refuse), Some(DeletionPolicy::Orphan)).await;
        assert!(stack.metadata.deletion_timestamp.is_some());
    }

    #[tokio::test]
    async fn project_deletion_skips_stacks_already_deleting() {
        const STACKS: usize = 40;
        let log = FaultyLog::new(0);
        let world = TestServer::over(log.clone(), unreachable_runner(), stoa_kinds::core_v1::register).await;
        world.create_in("", "Namespace", "shop", json!({})).await;
        for number in 1..STACKS {
            world.create("Stack", &format!("web-{number}"), json!({"project": "web"})).await;
        }
        let projects = world.registry.api::<Project>();
        let orphan = |project: &mut Project| project.spec.deletion_policy = Some(DeletionPolicy::Orphan);
        projects.update_with("shop", "web", orphan).await.unwrap();
        projects.delete("shop", "web", &DeleteOptions::default()).await.unwrap();
        let project = projects.get("shop", "web").await.unwrap();
        let look = async || {
            let before = log.heads();
            assert!(remove(&world.services, &project).await.unwrap().is_some(), "its stacks are still there");
            log.heads() - before
        };
        assert!(look().await >= STACKS, "each is read once, at least, to be written");
        let stacks = world.registry.api::<Stack>().list(Some("shop"), "").await.unwrap();
        assert!(stacks.iter().all(|stack| stack.metadata.deletion_timestamp.is_some()));
        // Others may ask where the log ends meanwhile.
        let reads = look().await;
        assert!(reads < STACKS / 2, "{reads}");
    }
}
