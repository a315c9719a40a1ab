//! PackageVariant: keeps a downstream package equal to its upstream, apart from the changes that the variant names.
//!
//! It writes drafts, and people propose and approve them. A draft that is there is changed, and never replaced. Conditions, names
//! of drafts and functions, and the finalizer are those of Porch.
//!
//! - `downstream`: the revisions of the downstream package; `changes`: their content.

mod changes;
mod downstream;

use std::time::Duration;

use kube::ResourceExt as _;
use serde::Deserialize;
use stoa_controller::{
    conditions::set_condition,
    finalizers::{remove_finalizer, update_same, update_status_of_same},
    index::Member,
    object::ObjectKey,
    queue::{self, Trigger},
};
use stoa_kinds::{
    lookup::Lookup,
    package_variant::{FINALIZER, INVALID, READY, STALLED, problems, reasons},
};
use stoa_machinery::{ApiError, registry::ListOptions};
use stoa_types::{
    porch::{Locator, PackageContent, PackageRevision, StoredInGit},
    porchconfig::{Downstream, DownstreamTarget, PackageVariant, Upstream},
};
use tokio_util::sync::CancellationToken;

use super::package_latest::Numbered;
use crate::packages::{Agent, PackageService};

/// As whom revisions are written.
const COMPONENT: &str = "package-variants";
/// How many variants are reconciled at once.
const AT_ONCE: usize = 8;
/// How long changes of revisions are gathered.
const GATHER: Duration = Duration::from_millis(300);
/// The wait after a write that was refused, which somebody has to resolve.
const REFUSED: Duration = Duration::from_secs(30);
/// The wait while a repository is out of reach.
const AWAY: Duration = Duration::from_secs(5);

/// The fields of a PackageRevision's status that matter to variants.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    content: Option<PackageContent>,
    git: Option<StoredInGit>,
    upstream_lock: Option<Locator>,
}

pub(crate) async fn run(service: PackageService, end: CancellationToken) {
    let Ok(registry) = service.services().lookup.registry() else { return };
    let lookup = service.services().lookup.clone();
    let triggers = vec![
        Trigger::on(&registry.api::<PackageVariant>(), |variant| vec![queue::key_of(variant)]),
        Trigger::on_change(&registry.api::<PackageRevision>(), move |revision: &Member<Numbered, Status>| {
            variants_of(&lookup, revision)
        })
        .within(GATHER),
    ];
    let reconcile = |key| reconcile(service.clone(), key);
    queue::drive_some(service.services().queues.of("package-variants"), AT_ONCE, triggers, end, reconcile).await;
}

/// The variants whose upstream or downstream package a revision is of.
fn variants_of(lookup: &Lookup, revision: &Member<Numbered, Status>) -> Vec<ObjectKey> {
    let Numbered { repository, package_name, .. } = &revision.spec;
    let of_repository = |field| lookup.cached_keys::<PackageVariant>(revision.namespace(), field, repository);
    let mut keys = of_repository("spec.upstream.repo");
    keys.extend(of_repository("spec.downstream.repo"));
    keys.sort();
    keys.dedup();
    let names_package = |(namespace, name): &ObjectKey| {
        lookup.cached_spec::<PackageVariant>(namespace, name).is_some_and(|spec| {
            let upstream = spec.upstream.is_some_and(|it| it.repo == *repository && it.package == *package_name);
            upstream || spec.downstream.is_some_and(|it| it.repo == *repository && it.package == *package_name)
        })
    };
    keys.into_iter().filter(names_package).collect()
}

/// The revisions of a package.
pub(super) async fn revisions_of(
    lookup: &Lookup,
    namespace: &str,
    (repository, package): (&str, &str),
) -> Result<Vec<PackageRevision>, ApiError> {
    let selector = format!("spec.repository={repository},spec.packageName={package}");
    let options = ListOptions { field_selector: Some(selector), ..ListOptions::default() };
    lookup.api::<PackageRevision>()?.list_with(Some(namespace), &options).await
}

/// The revision that an upstream stands for. Without a number or workspace it is the newest published revision, or else the
/// package on the branch.
pub(super) fn upstream_of(upstream: &Upstream, revisions: &[PackageRevision]) -> Option<PackageRevision> {
    let published = || revisions.iter().filter(|revision| revision.spec.lifecycle.is_published());
    let found = match (upstream.workspace_name.as_str(), upstream.revision) {
        ("", number) if number > 0 => published().find(|revision| revision.spec.revision == number),
        ("", _) => published().max_by_key(|revision| revision.spec.revision),
        (workspace, _) => revisions.iter().find(|revision| revision.spec.workspace_name == workspace),
    };
    found.cloned()
}

/// A sentence about an upstream that does not exist.
pub(super) fn no_upstream(upstream: &Upstream) -> String {
    let Upstream { repo, package, revision, workspace_name } = upstream;
    let which = match (workspace_name.as_str(), *revision) {
        ("", number) if number > 0 => format!("published revision {number}"),
        ("", _) => "a revision".to_owned(),
        (workspace, _) => format!("workspace {workspace:?}"),
    };
    format!("could not find upstream package {package:?} of repository {repo:?} with {which}")
}

async fn reconcile(service: PackageService, key: ObjectKey) -> Result<Option<Duration>, ApiError> {
    let variants = service.services().lookup.api::<PackageVariant>()?;
    let Some(variant) = variants.get_opt(&key.0, &key.1).await? else { return Ok(None) };
    let agent = Agent::component(&service.services().lookup, COMPONENT);
    if variant.metadata.deletion_timestamp.is_some() {
        downstream::release_all(&service, &agent, &variant).await?;
        remove_finalizer(&variants, &variant, FINALIZER).await?;
        return Ok(None);
    }
    if !variant.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
        let add = |variant: &mut PackageVariant| {
            let finalizers = variant.finalizers_mut();
            if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
                finalizers.push(FINALIZER.to_owned());
            }
        };
        queue::unless_gone(update_same(&variants, &variant, add).await)?;
    }
    let found = problems(&variant.spec);
    if !found.is_empty() {
        stalled(&service, &variant, found.join("; ")).await?;
        return Ok(None);
    }
    let (upstream, downstream) =
        (variant.spec.upstream.clone().unwrap_or_default(), variant.spec.downstream.clone().unwrap_or_default());
    let of_upstream = (&*upstream.repo, &*upstream.package);
    let revisions = revisions_of(&service.services().lookup, &key.0, of_upstream).await?;
    let Some(wanted) = upstream_of(&upstream, &revisions) else {
        // Its appearance makes the variant due.
        stalled(&service, &variant, no_upstream(&upstream)).await?;
        return Ok(None);
    };
    let ensured = ensure(&service, &agent, &variant, (&wanted, &revisions), &downstream).await;
    report(&service, &variant, &ensured).await?;
    Ok(match &ensured {
        Ok(_) => None,
        Err(error) if queue::is_refusal(error) => Some(REFUSED),
        Err(_) => Some(AWAY),
    })
}

/// Brings the downstream package to its upstream, and returns its drafts, or else its newest published revision.
async fn ensure(
    service: &PackageService,
    agent: &Agent,
    variant: &PackageVariant,
    (upstream, revisions): (&PackageRevision, &[PackageRevision]),
    downstream: &Downstream,
) -> Result<Vec<DownstreamTarget>, ApiError> {
    let targets = downstream::targets(service, agent, variant, downstream).await?;
    if targets.is_empty() {
        let created = downstream::clone(service, agent, variant, (upstream, downstream)).await?;
        return Ok(vec![changes::customize(service, agent, variant, &created).await?]);
    }
    let mut found = Vec::with_capacity(targets.len());
    for target in targets {
        let target = changes::upgrade(service, agent, variant, (&target, upstream, revisions)).await?;
        found.push(changes::customize(service, agent, variant, &target).await?);
    }
    Ok(found)
}

async fn stalled(service: &PackageService, variant: &PackageVariant, message: String) -> Result<(), ApiError> {
    let generation = variant.metadata.generation;
    let write = |variant: &mut PackageVariant| {
        let conditions = &mut variant.status.get_or_insert_default().conditions;
        set_condition(conditions, STALLED, true, reasons::VALIDATION_ERROR, message.clone(), generation);
        set_condition(conditions, READY, false, reasons::ERROR, INVALID, generation);
    };
    let variants = service.services().lookup.api::<PackageVariant>()?;
    queue::unless_gone(update_status_of_same(&variants, variant, write).await).map(drop)
}

async fn report(
    service: &PackageService,
    variant: &PackageVariant,
    ensured: &Result<Vec<DownstreamTarget>, ApiError>,
) -> Result<(), ApiError> {
    let generation = variant.metadata.generation;
    let write = |variant: &mut PackageVariant| {
        let status = variant.status.get_or_insert_default();
        let valid = "all validation checks passed";
        set_condition(&mut status.conditions, STALLED, false, reasons::VALID, valid, generation);
        match ensured {
            Ok(targets) => {
                status.downstream_targets.clone_from(targets);
                let message = "successfully ensured downstream package variant";
                set_condition(&mut status.conditions, READY, true, reasons::NO_ERRORS, message, generation);
            }
            Err(error) => {
                set_condition(&mut status.conditions, READY, false, reasons::ERROR, error.message(), generation);
            }
        }
    };
    let variants = service.services().lookup.api::<PackageVariant>()?;
    queue::unless_gone(update_status_of_same(&variants, variant, write).await).map(drop)
}

#[cfg(test)]
mod tests {
    use stoa_types::porch::{Lifecycle, PackageRevisionSpec};

    use super::*;

    fn revision(number: i64, workspace: &str, lifecycle: Lifecycle) -> PackageRevision {
        let spec = PackageRevisionSpec {
            revision: number,
            workspace_name: workspace.to_owned(),
            lifecycle,
            ..PackageRevisionSpec::default()
        };
        PackageRevision { spec, ..PackageRevision::default() }
    }

    #[test]
    fn upstream_is_a_number_a_workspace_or_the_newest() {
        let revisions = [
            revision(-1, "main", Lifecycle::Published),
            revision(1, "v1", Lifecycle::Published),
            revision(2, "v2", Lifecycle::DeletionProposed),
            revision(0, "next", Lifecycle::Draft),
        ];
        for (number, workspace, expected) in [
            (1, "", Some("v1")),
            (0, "", Some("v2")),
            (-1, "", Some("v2")),
            (1, "next", Some("next")),
            (3, "", None),
            (0, "gone", None),
        ] {
            let upstream = Upstream { revision: number, workspace_name: workspace.to_owned(), ..Upstream::default() };
            let found = upstream_of(&upstream, &revisions).map(|found| found.spec.workspace_name);
            assert_eq!(found.as_deref(), expected, "{number} {workspace:?}");
            assert!(!no_upstream(&upstream).is_empty());
        }
        assert_eq!(upstream_of(&Upstream::default(), &revisions[..1]).unwrap().spec.workspace_name, "main");
    }
}
