//! Organization: its namespace is created with it and deleted with it, and its people get their roles there.

use std::{ops::RangeInclusive, time::Duration};

use kube::ResourceExt as _;
use stoa_machinery::{ApiError, registry::ListOptions};
use stoa_types::{DeletionPolicy, Organization, Run, Stack, labels, reason};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    finalizers::let_go,
    groups::GATHER,
    members,
    queue::{self, FirstError, ObjectKey, Trigger},
    stacks::{self, Destruction},
};
use crate::{
    cluster::NamespaceInfo,
    events::Kind,
    kinds::{check::set_condition, stack::is_deployed},
    runs::Services,
};

/// How often to look whether a namespace is still there.
const LOOK: Duration = Duration::from_secs(60);
/// How often to look whether a namespace that goes is gone.
const GOING: RangeInclusive<Duration> = Duration::from_millis(500)..=LOOK;
/// How often to look while stacks are to be destroyed, besides whenever a run of one ends.
const DESTROYING: RangeInclusive<Duration> = Duration::from_secs(5)..=LOOK;

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let (Ok(organizations), Ok(runs)) = (services.lookup.api::<Organization>(), services.lookup.api::<Run>()) else {
        return;
    };
    let of_namespace = |namespace: String, _: String| (String::new(), namespace);
    let triggers = vec![
        Trigger::on(&organizations, |o| vec![queue::key_of(o)]),
        stacks::of_runs_waited_for::<Organization>(&services.lookup, &runs, of_namespace).within(GATHER),
    ];
    queue::drive("organizations", triggers, end, |key| look(services.clone(), key)).await;
}

async fn look(services: Services, (_, name): ObjectKey) -> Result<Option<Duration>, ApiError> {
    let Some(organization) = services.lookup.api::<Organization>()?.get_opt("", &name).await? else {
        return Ok(None);
    };
    if organization.metadata.deletion_timestamp.is_some() {
        return remove(&services, &organization).await;
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
        let message = format!("namespace {name} is being deleted");
        note(&services, &organization, None, reason::TERMINATING, &message).await?;
        return Ok(Some(*GOING.start()));
    }
    note(&services, &organization, Some(&namespace), reason::AVAILABLE, "the namespace is there").await?;
    members::bind(&services, &organization).await?;
    Ok(Some(LOOK))
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
    let stacks = services.lookup.api::<Stack>()?;
    let began = Instant::now();
    let if_deployed = |stack: Stack| is_deployed(&stack).then_some(stack);
    let deployed = stacks.list_of(Some(&name), &ListOptions::default(), if_deployed).await?;
    // All of an organization's stacks are looked through, each time.
    let later = |bounds| Ok(Some(queue::wait_after_look(began.elapsed(), bounds)));
    if !deployed.is_empty() {
        let destruction = match organization.spec.deletion_policy {
            DeletionPolicy::Destroy => Some(Destruction::of(services, &name, &ListOptions::default()).await?),
            DeletionPolicy::Orphan | DeletionPolicy::Refuse => None,
        };
        // One that is refused keeps no other waiting.
        let mut failed = FirstError::default();
        for stack in &deployed {
            let set = stacks::set_policy(services, stack, organization.spec.deletion_policy).await;
            if let (Some(()), Some(destruction)) = (failed.note(set), &destruction) {
                failed.note(destruction.begin(services, stack).await);
            }
        }
        failed.told()?;
        match organization.spec.deletion_policy {
            DeletionPolicy::Orphan => {}
            DeletionPolicy::Destroy => return later(DESTROYING),
            DeletionPolicy::Refuse => {
                // They were deployed after the deletion was admitted.
                services.recorder.record(
                    organization,
                    Kind::Warning,
                    reason::TERMINATING,
                    "the organization waits for its stacks to be destroyed: their infrastructure is live and its \
                     deletionPolicy is Refuse",
                );
                return later(DESTROYING);
            }
        }
    }
    if let Some(namespace) = services.cluster.namespace(&name).await?
        && namespace.organization_uid == organization.uid()
    {
        if !namespace.terminating {
            services.cluster.delete_namespace(&name, &namespace.uid).await?;
        }
        return later(GOING);
    }
    let_go(&services.lookup.api::<Organization>()?, organization, labels::NAMESPACE_FINALIZER).await?;
    Ok(None)
}
