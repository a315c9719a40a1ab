//! Organization: its namespace is created with it and deleted with it, and its people get their roles there.

use std::{ops::RangeInclusive, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use stoa_machinery::{
    ApiError,
    registry::{ListOptions, is_undecodable},
};
use stoa_types::{DeletionPolicy, Organization, Run, Stack, labels, reason};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    finalizers::let_go,
    groups::GATHER,
    members,
    pauses::Pauses,
    queue::{self, FirstError, ObjectKey, Trigger},
    stacks::{self, Destruction},
};
use crate::{
    cluster::NamespaceInfo,
    events::Kind,
    kinds::{check::set_condition, live},
    runs::Services,
};

/// How often to look whether a namespace is still there.
const LOOK: Duration = Duration::from_secs(60);
/// How often to look whether a namespace that goes is gone.
const GOING: RangeInclusive<Duration> = Duration::from_millis(500)..=LOOK;
/// How often to look while stacks are to be destroyed, besides whenever a run of one ends.
const DESTROYING: RangeInclusive<Duration> = Duration::from_secs(5)..=LOOK;
/// Why an organization that goes is still there.
const WAITS: &str = "the organization waits for its stacks to be destroyed";

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let (Ok(organizations), Ok(runs)) = (services.lookup.api::<Organization>(), services.lookup.api::<Run>()) else {
        return;
    };
    let of_namespace = |namespace: String, _: String| (String::new(), namespace);
    let mut triggers = vec![
        Trigger::on(&organizations, |o| vec![queue::key_of(o)]),
        stacks::of_runs_waited_for::<Organization>(&services.lookup, &runs, of_namespace).within(GATHER),
    ];
    // Of those of a cluster nobody tells.
    if services.lookup.is_standalone()
        && let Ok(namespaces) = services.lookup.api::<Namespace>()
    {
        triggers.push(Trigger::on(&namespaces, |namespace| vec![queue::key_of(namespace)]));
    }
    let pauses = Pauses::default();
    queue::drive(services.queues.of("organizations"), triggers, end, |key| look(services.clone(), pauses.clone(), key))
        .await;
}

async fn look(services: Services, pauses: Pauses, (_, name): ObjectKey) -> Result<Option<Duration>, ApiError> {
    let Some(organization) = services.lookup.api::<Organization>()?.get_opt("", &name).await? else {
        pauses.forget(&name);
        return Ok(None);
    };
    if organization.metadata.deletion_timestamp.is_some() {
        // Each run that ends makes it due, of which there may be thousands.
        if let Some(left) = pauses.left(&name) {
            return Ok(Some(left));
        }
        let began = Instant::now();
        let removed = remove(&services, &organization).await;
        pauses.begin(&name, began, LOOK);
        return removed;
    }
    let found = services.cluster.namespace(&name).await?;
    let own = organization.uid();
    let namespace = match found {
        None => create(&services, &organization).await?,
        Some(info) if info.organization_uid == own => info,
        Some(_) => {
            let message = format!("namespace {name} exists and was not created for this organization");
            note(&services, &organization, None, reason::NAMESPACE_EXISTS, &message).await?;
            return Ok(Some(LOOK));
        }
    };
    if namespace.terminating {
        note(&services, &organization, None, reason::TERMINATING, &namespace_goes(&name)).await?;
        return Ok(Some(*GOING.start()));
    }
    note(&services, &organization, Some(&namespace), reason::AVAILABLE, "the namespace is there").await?;
    members::bind(&services, &organization).await?;
    Ok(Some(LOOK))
}

fn namespace_goes(name: &str) -> String {
    format!("namespace {name} is being deleted")
}

async fn create(services: &Services, organization: &Organization) -> Result<NamespaceInfo, ApiError> {
    let created = services.cluster.create_namespace(organization).await?;
    let message = format!("created namespace {}", organization.name_any());
    services.recorder.record(organization, Kind::Normal, "NamespaceCreated", message);
    Ok(created)
}

async fn note(
    services: &Services,
    organization: &Organization,
    namespace: Option<&NamespaceInfo>,
    why: &str,
    message: &str,
) -> Result<(), ApiError> {
    let name = organization.name_any();
    let organizations = services.lookup.api::<Organization>()?;
    organizations
        .update_status_with("", &name, |o: &mut Organization| {
            let generation = o.metadata.generation;
            let status = o.status.get_or_insert_default();
            if let Some(namespace) = namespace {
                status.namespace = Some(name.clone());
                status.namespace_uid = Some(namespace.uid.clone());
            }
            set_condition(&mut status.conditions, reason::READY, namespace.is_some(), why, message, generation);
        })
        .await?;
    Ok(())
}

/// Destroys or forgets what is deployed, then the namespace, then lets the organization go.
async fn remove(services: &Services, organization: &Organization) -> Result<Option<Duration>, ApiError> {
    let name = organization.name_any();
    if !organization.finalizers().iter().any(|f| f == labels::NAMESPACE_FINALIZER) {
        return Ok(None);
    }
    let (began, policy) = (Instant::now(), organization.spec.deletion_policy);
    // All of an organization's stacks are looked through, each time.
    let later = |bounds| Ok(Some(queue::wait_after_look(began.elapsed(), bounds)));
    // One that is refused keeps no other waiting.
    let mut failed = FirstError::default();
    if policy != DeletionPolicy::Refuse {
        // Also those of which nothing seems to be live: what a run makes it tells when it is done.
        let stacks = services.lookup.api::<Stack>()?;
        let all = stacks.store().list(Some(&name), &ListOptions::default()).await?.items;
        for stored in &all {
            if stacks::has_policy(stored, policy) {
                continue;
            }
            let found = match stacks.get_opt(&name, stored.name()).await {
                // Nobody can write it, and what it says is left to its namespace.
                Err(error) if is_undecodable(&error) => continue,
                found => failed.note(found),
            };
            if let Some(Some(stack)) = found {
                failed.note(stacks::set_policy(services, &stack, policy).await);
            }
        }
    }
    let live = live::live_of(&services.lookup, &name, &ListOptions::default()).await?;
    if !live.is_empty() {
        match policy {
            DeletionPolicy::Orphan => {}
            DeletionPolicy::Destroy => {
                let destruction = Destruction::of(services, &name, &ListOptions::default()).await?;
                for of in &live {
                    failed.note(destruction.begin(services, &of.stack).await);
                }
                failed.told()?;
                note(services, organization, None, reason::TERMINATING, WAITS).await?;
                return later(DESTROYING);
            }
            DeletionPolicy::Refuse => {
                for of in &live {
                    failed.note(stacks::set_policy(services, &of.stack, policy).await);
                }
                failed.told()?;
                // They were deployed after the deletion was admitted.
                let message = format!("{WAITS}: their infrastructure is live and its deletionPolicy is Refuse");
                note(services, organization, None, reason::TERMINATING, &message).await?;
                services.recorder.record(organization, Kind::Warning, reason::TERMINATING, message);
                return later(DESTROYING);
            }
        }
    }
    failed.told()?;
    if let Some(namespace) = services.cluster.namespace(&name).await?
        && namespace.organization_uid == organization.uid()
    {
        if !namespace.terminating {
            services.cluster.delete_namespace(&name, &namespace.uid).await?;
        }
        note(services, organization, None, reason::TERMINATING, &namespace_goes(&name)).await?;
        return later(GOING);
    }
    let_go(&services.lookup.api::<Organization>()?, organization, labels::NAMESPACE_FINALIZER).await?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stoa_machinery::registry::DeleteOptions;
    use stoa_types::{common::condition, delivery::RunPhase};

    use super::*;
    use crate::{controllers::runs::tests::World, kinds::testing::deploying};

    /// A world in which an organization with this policy goes, and its stacks have another: the first run of one is under way,
    /// and nothing of the other is live.
    async fn going(policy: DeletionPolicy) -> World {
        let world = World::with_secrets().await;
        let other = if policy == DeletionPolicy::Orphan { DeletionPolicy::Destroy } else { DeletionPolicy::Orphan };
        world.create_in("", "Organization", "shop", json!({"deletionPolicy": policy})).await;
        let organizations = world.registry.api::<Organization>();
        let organization = organizations.get("", "shop").await.unwrap();
        world.services.cluster.create_namespace(&organization).await.unwrap();
        world.create("Stack", "api", json!({"project": "web", "deletionPolicy": other})).await;
        let stacks = world.registry.api::<Stack>();
        stacks.update_with("shop", "web", |stack: &mut Stack| stack.spec.deletion_policy = other).await.unwrap();
        world.create("Run", "first", json!({"stack": "web", "workspace": "dev", "operation": "Apply"})).await;
        let set = |run: &mut Run| run.status.get_or_insert_default().phase = RunPhase::Generating;
        world.registry.api::<Run>().update_status_with("shop", "first", set).await.unwrap();
        let begin = deploying(json!([{"workspace": "dev", "resources": 0, "phase": "Generating", "lastRun": "first"}]));
        stacks.update_status_with("shop", "web", begin).await.unwrap();
        organizations.delete("", "shop", &DeleteOptions::default()).await.unwrap();
        world
    }

    async fn policies(world: &World) -> Vec<DeletionPolicy> {
        let stacks = world.registry.api::<Stack>().list(Some("shop"), "").await.unwrap();
        stacks.iter().map(|stack| stack.spec.deletion_policy).collect()
    }

    #[tokio::test]
    async fn stacks_go_as_their_organization_says_and_are_waited_for_where_a_run_makes_what_is_to_be_destroyed() {
        for policy in [DeletionPolicy::Destroy, DeletionPolicy::Orphan] {
            let world = going(policy).await;
            let key = (String::new(), "shop".to_owned());
            let later = look(world.services.clone(), Pauses::default(), key).await.unwrap();
            assert!(later.is_some(), "it is still there");
            assert_eq!(policies(&world).await, [policy; 2]);
            let namespace = world.services.cluster.namespace("shop").await.unwrap().unwrap();
            assert_eq!(namespace.terminating, policy == DeletionPolicy::Orphan, "{policy:?}");
            let organization = world.registry.api::<Organization>().get("", "shop").await.unwrap();
            let conditions = organization.status.unwrap().conditions;
            let ready = condition(&conditions, reason::READY).unwrap();
            let message = if namespace.terminating { "namespace shop is being deleted" } else { WAITS };
            let expected = ("False", reason::TERMINATING, message);
            assert_eq!((&*ready.status, &*ready.reason, &*ready.message), expected, "{policy:?}");
        }
    }

    #[tokio::test]
    async fn organization_that_goes_is_left_alone_for_a_while_after_a_look() {
        let (world, pauses) = (going(DeletionPolicy::Destroy).await, Pauses::default());
        let look = async || {
            let key = (String::new(), "shop".to_owned());
            look(world.services.clone(), pauses.clone(), key).await.unwrap();
            policies(&world).await
        };
        pauses.set("shop", LOOK);
        assert_eq!(look().await, [DeletionPolicy::Orphan; 2]);
        pauses.forget("shop");
        assert_eq!(look().await, [DeletionPolicy::Destroy; 2]);
        assert!(pauses.until("shop").is_some());
    }
}
