//! Organization: its namespace is created with it and deleted with it, and its people get their roles there.

use std::{ops::RangeInclusive, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use stoa_controller::{
    conditions::set_condition,
    events::Kind,
    finalizers::remove_finalizer,
    index::GATHER,
    object::ObjectKey,
    queue::{self, FirstError, Trigger},
};
use stoa_kinds::{
    cluster::NamespaceInfo,
    deletion::{Owner, Policies},
    deployed,
};
use stoa_machinery::{ApiError, registry::ListOptions};
use stoa_runs::Services;
use stoa_types::{DeletionPolicy, Organization, Run, Stack, labels, reason};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    cooldown::Cooldown,
    members,
    stacks::{self, Destruction},
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
    let Ok(registry) = services.lookup.registry() else { return };
    let of_namespace = |namespace: String, _: String| (String::new(), namespace);
    let mut triggers = vec![
        Trigger::on(&registry.api::<Organization>(), |o| vec![queue::key_of(o)]),
        stacks::of_runs_waited_for::<Organization>(&services.lookup, &registry.api::<Run>(), of_namespace)
            .within(GATHER),
    ];
    // Of those of a cluster nobody tells.
    if services.lookup.is_standalone()
        && let Ok(namespaces) = services.lookup.api::<Namespace>()
    {
        triggers.push(Trigger::on(&namespaces, |namespace| vec![queue::key_of(namespace)]));
    }
    let cooldown = Cooldown::default();
    queue::drive(services.queues.of("organizations"), triggers, end, |key| {
        look(services.clone(), cooldown.clone(), key)
    })
    .await;
}

async fn look(services: Services, cooldown: Cooldown, (_, name): ObjectKey) -> Result<Option<Duration>, ApiError> {
    let Some(organization) = services.lookup.api::<Organization>()?.get_opt("", &name).await? else {
        cooldown.forget(&name);
        return Ok(None);
    };
    if organization.metadata.deletion_timestamp.is_some() {
        // Each run that ends makes it due, of which there may be thousands.
        if let Some(left) = cooldown.left(&name) {
            return Ok(Some(left));
        }
        let began = Instant::now();
        let removed = remove(&services, &organization).await;
        cooldown.begin(&name, began, LOOK);
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
    note(&services, &organization, Some(&namespace), reason::AVAILABLE, "the namespace exists").await?;
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
    let began = Instant::now();
    // All of an organization's stacks are looked through, each time.
    let later = |bounds| Ok(Some(queue::wait_after_look(began.elapsed(), bounds)));
    let live = deployed::live_of(&services.lookup, &name, &ListOptions::default()).await?;
    if !live.is_empty() {
        let mut policies = Policies::of_organization(organization);
        policies.read_projects(&services.lookup, live.iter().map(|of| &of.stack)).await?;
        let owner = Owner { kind: "organization", name: &name, policy: policies.organization().policy };
        let kept = owner.kept_by(&live, &policies);
        let is_destroyed = |stack: &Stack| policies.stack(stack).policy == DeletionPolicy::Destroy;
        let is_kept = |stack: &Stack| kept.iter().any(|kept| kept.uid() == stack.uid());
        let destroyed = || live.iter().map(|of| &of.stack).filter(|stack| is_destroyed(stack) && !is_kept(stack));
        if destroyed().next().is_some() {
            let destruction = Destruction::of(services, &name, &ListOptions::default()).await?;
            // A stack that cannot be destroyed now does not delay the others.
            let mut failed = FirstError::default();
            for stack in destroyed() {
                failed.note(destruction.begin(services, stack).await);
            }
            failed.told()?;
        }
        if !kept.is_empty() {
            // They were deployed after the deletion was admitted.
            let message = format!("{WAITS}: {}", owner.message(&kept, &policies));
            note(services, organization, None, reason::TERMINATING, &message).await?;
            services.recorder.record(organization, Kind::Warning, reason::TERMINATING, message);
            return later(DESTROYING);
        }
        if destroyed().next().is_some() {
            note(services, organization, None, reason::TERMINATING, WAITS).await?;
            return later(DESTROYING);
        }
    }
    if let Some(namespace) = services.cluster.namespace(&name).await?
        && namespace.organization_uid == organization.uid()
    {
        if !namespace.terminating {
            services.cluster.delete_namespace(&name, &namespace.uid).await?;
        }
        note(services, organization, None, reason::TERMINATING, &namespace_goes(&name)).await?;
        return later(GOING);
    }
    remove_finalizer(&services.lookup.api::<Organization>()?, organization, labels::NAMESPACE_FINALIZER).await?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stoa_kinds::testing::deploying;
    use stoa_machinery::registry::DeleteOptions;
    use stoa_types::{
        common::condition,
        delivery::{Operation, RunPhase},
    };

    use super::*;
    use crate::testing::TestServer;

    /// A world in which an organization with this policy is being deleted, and its stacks set none: the first run of one is
    /// under way, and nothing of the other is live.
    async fn terminating(policy: DeletionPolicy) -> TestServer {
        let world = TestServer::with_secrets().await;
        world.create_in("", "Organization", "shop", json!({"deletionPolicy": policy})).await;
        let organizations = world.registry.api::<Organization>();
        let organization = organizations.get("", "shop").await.unwrap();
        world.services.cluster.create_namespace(&organization).await.unwrap();
        world.create("Stack", "api", json!({"project": "web"})).await;
        world.create("Run", "first", json!({"stack": "web", "workspace": "dev", "operation": "Apply"})).await;
        let set = |run: &mut Run| run.status.get_or_insert_default().phase = RunPhase::Generating;
        world.registry.api::<Run>().update_status_with("shop", "first", set).await.unwrap();
        let begin = deploying(json!([{"workspace": "dev", "resources": 0, "phase": "Generating", "lastRun": "first"}]));
        world.registry.api::<Stack>().update_status_with("shop", "web", begin).await.unwrap();
        organizations.delete("", "shop", &DeleteOptions::default()).await.unwrap();
        world
    }

    async fn deploy(world: &TestServer, stack: &str) {
        let set = deploying(json!([{"workspace": "dev", "resources": 1}]));
        world.registry.api::<Stack>().update_status_with("shop", stack, set).await.unwrap();
    }

    async fn destroyed(world: &TestServer) -> Vec<String> {
        let runs = world.registry.api::<Run>().list(Some("shop"), "").await.unwrap();
        let destroys = runs.into_iter().filter(|run| run.spec.operation == Operation::Destroy);
        destroys.map(|run| run.spec.stack).collect()
    }

    async fn ready_message(world: &TestServer) -> String {
        let organization = world.registry.api::<Organization>().get("", "shop").await.unwrap();
        let conditions = organization.status.unwrap().conditions;
        let ready = condition(&conditions, reason::READY).unwrap();
        assert_eq!((&*ready.status, &*ready.reason), ("False", reason::TERMINATING));
        ready.message.clone()
    }

    async fn policies(world: &TestServer) -> Vec<Option<DeletionPolicy>> {
        let stacks = world.registry.api::<Stack>().list(Some("shop"), "").await.unwrap();
        stacks.iter().map(|stack| stack.spec.deletion_policy).collect()
    }

    async fn is_namespace_terminating(world: &TestServer) -> bool {
        world.services.cluster.namespace("shop").await.unwrap().unwrap().terminating
    }

    #[tokio::test]
    async fn stacks_without_a_policy_follow_their_organization() {
        for policy in [DeletionPolicy::Destroy, DeletionPolicy::Orphan] {
            let world = terminating(policy).await;
            let key = (String::new(), "shop".to_owned());
            let later = look(world.services.clone(), Cooldown::default(), key).await.unwrap();
            assert!(later.is_some(), "it is still there");
            assert_eq!(policies(&world).await, [None; 2], "no policy is written");
            let is_orphaned = policy == DeletionPolicy::Orphan;
            assert_eq!(is_namespace_terminating(&world).await, is_orphaned, "{policy:?}");
            let message = if is_orphaned { "namespace shop is being deleted" } else { WAITS };
            assert_eq!(ready_message(&world).await, message, "{policy:?}");
        }
    }

    #[tokio::test]
    async fn refuse_of_a_stack_keeps_an_organization_that_destroys() {
        for policy in [DeletionPolicy::Destroy, DeletionPolicy::Orphan] {
            let world = terminating(policy).await;
            let refuse = |stack: &mut Stack| stack.spec.deletion_policy = Some(DeletionPolicy::Refuse);
            world.registry.api::<Stack>().update_with("shop", "web", refuse).await.unwrap();
            deploy(&world, "web").await;
            deploy(&world, "api").await;
            let key = (String::new(), "shop".to_owned());
            look(world.services.clone(), Cooldown::default(), key).await.unwrap();
            assert_eq!(policies(&world).await, [None, Some(DeletionPolicy::Refuse)], "no policy is written");
            assert!(!is_namespace_terminating(&world).await, "{policy:?}");
            let expected: &[&str] = if policy == DeletionPolicy::Destroy { &["api"] } else { &[] };
            assert_eq!(destroyed(&world).await, expected, "{policy:?}");
            let message = ready_message(&world).await;
            assert!(message.contains("1 live stack with deletionPolicy Refuse (web)"), "{message}");
        }
    }

    #[tokio::test]
    async fn organization_pauses_between_looks_at_its_stacks() {
        let (world, cooldown) = (terminating(DeletionPolicy::Destroy).await, Cooldown::default());
        deploy(&world, "api").await;
        let look = async || {
            let key = (String::new(), "shop".to_owned());
            look(world.services.clone(), cooldown.clone(), key).await.unwrap();
            destroyed(&world).await
        };
        cooldown.set("shop", LOOK);
        assert!(look().await.is_empty());
        cooldown.forget("shop");
        assert_eq!(look().await, ["api"]);
        assert!(cooldown.until("shop").is_some());
    }
}
