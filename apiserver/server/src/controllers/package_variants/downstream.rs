//! The revisions of a variant's downstream package: those that it owns, adopts, creates and gives up.

use kube::ResourceExt as _;
use stoa_controller::{finalizers::update_same, queue};
use stoa_kinds::{lookup::Lookup, package_variant::OWNER_LABEL};
use stoa_machinery::{ApiError, RequestContext, registry::Api};
use stoa_types::{
    porch::{
        CloneTask, EditTask, LATEST_REVISION, Lifecycle, NameReference, PackageRevision, PackageRevisionSpec, Task,
        UpgradeTask, UpstreamPackage,
    },
    porchconfig::{AdoptionPolicy, Downstream, DownstreamDeletion, PackageVariant},
};

use super::{COMPONENT, revisions_of};
use crate::packages::{Agent, PackageService, owner_reference};

/// The beginning of the names of a variant's workspaces.
const WORKSPACE: &str = "packagevariant-";

/// The revisions as the server's own metadata is written: Git has no part in it.
fn metadata_of(lookup: &Lookup) -> Result<Api<PackageRevision>, ApiError> {
    Ok(lookup.api::<PackageRevision>()?.with_context(RequestContext::internal(COMPONENT)))
}

fn is_owned(revision: &PackageRevision, variant: &PackageVariant) -> bool {
    let uid = variant.uid().unwrap_or_default();
    revision.owner_references().iter().any(|owner| owner.uid == uid)
}

/// The revisions that a variant owns, of whatever package.
async fn owned(lookup: &Lookup, variant: &PackageVariant) -> Result<Vec<PackageRevision>, ApiError> {
    let selector = format!("{OWNER_LABEL}={}", variant.uid().unwrap_or_default());
    lookup.api::<PackageRevision>()?.list(variant.namespace().as_deref(), &selector).await
}

/// Makes a variant the owner of a revision, with the labels and annotations of its spec.
fn own(revision: &mut PackageRevision, variant: &PackageVariant) {
    if !is_owned(revision, variant) {
        revision.owner_references_mut().push(owner_reference(variant));
    }
    // Those of the server name the owner and the newest revision, and decide about deletions.
    let is_free = |(key, _): &(String, String)| ![OWNER_LABEL, LATEST_REVISION].contains(&key.as_str());
    revision.labels_mut().extend(variant.spec.labels.clone().into_iter().filter(is_free));
    revision.labels_mut().insert(OWNER_LABEL.to_owned(), variant.uid().unwrap_or_default());
    if !variant.spec.annotations.is_empty() {
        revision.annotations_mut().extend(variant.spec.annotations.clone());
    }
}

/// Takes the owner away from a revision.
fn disown(revision: &mut PackageRevision, variant: &PackageVariant) {
    let uid = variant.uid().unwrap_or_default();
    revision.owner_references_mut().retain(|owner| owner.uid != uid);
    if revision.labels().get(OWNER_LABEL) == Some(&uid) {
        revision.labels_mut().remove(OWNER_LABEL);
    }
}

async fn orphan(lookup: &Lookup, revision: &PackageRevision, variant: &PackageVariant) -> Result<(), ApiError> {
    let change = |revision: &mut PackageRevision| disown(revision, variant);
    queue::unless_gone(update_same(&metadata_of(lookup)?, revision, change).await).map(drop)
}

/// Gives up a revision that is not wanted any more, by the deletion policy.
async fn release(
    lookup: &Lookup,
    agent: &Agent,
    (variant, revision): (&PackageVariant, &PackageRevision),
) -> Result<(), ApiError> {
    if variant.spec.deletion_policy == DownstreamDeletion::Orphan {
        return orphan(lookup, revision, variant).await;
    }
    match revision.spec.lifecycle {
        Lifecycle::Draft | Lifecycle::Proposed => agent.delete(revision).await,
        Lifecycle::Published => {
            queue::unless_gone(agent.set_lifecycle(revision, Lifecycle::DeletionProposed).await).map(drop)
        }
        Lifecycle::DeletionProposed => Ok(()),
    }
}

/// Gives up all revisions of a variant that is being deleted. Published ones lose their owner, since the garbage collector would
/// delete those whose deletion is proposed.
pub(super) async fn release_all(
    service: &PackageService,
    agent: &Agent,
    variant: &PackageVariant,
) -> Result<(), ApiError> {
    let lookup = &service.services().lookup;
    for revision in owned(lookup, variant).await? {
        release(lookup, agent, (variant, &revision)).await?;
        if revision.spec.lifecycle.is_published() {
            orphan(lookup, &revision, variant).await?;
        }
    }
    Ok(())
}

/// The drafts of the downstream package, or else its newest published revision; none without one that the variant owns. Owned
/// revisions of other packages are given up.
pub(super) async fn targets(
    service: &PackageService,
    agent: &Agent,
    variant: &PackageVariant,
    downstream: &Downstream,
) -> Result<Vec<PackageRevision>, ApiError> {
    let lookup = &service.services().lookup;
    let namespace = variant.namespace().unwrap_or_default();
    let is_of_package = |revision: &PackageRevision| {
        revision.spec.repository_name == downstream.repo && revision.spec.package_name == downstream.package
    };
    for revision in owned(lookup, variant).await?.iter().filter(|revision| !is_of_package(revision)) {
        release(lookup, agent, (variant, revision)).await?;
    }
    let (mut drafts, mut newest) = (Vec::new(), None::<PackageRevision>);
    for revision in revisions_of(lookup, &namespace, (&downstream.repo, &downstream.package)).await? {
        // The package on the branch is that of its newest revision.
        let is_candidate = is_owned(&revision, variant)
            || (variant.spec.adoption_policy == AdoptionPolicy::AdoptExisting && revision.spec.revision >= 0);
        if !is_candidate || revision.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let revision = ensure_metadata(lookup, revision, variant).await?;
        if !revision.spec.lifecycle.is_published() {
            drafts.push(revision);
        } else if newest.as_ref().is_none_or(|newest| newest.spec.revision < revision.spec.revision) {
            newest = Some(revision);
        }
    }
    if !drafts.is_empty() {
        return Ok(drafts);
    }
    let Some(newest) = newest else { return Ok(Vec::new()) };
    // It was given up earlier, and is wanted again.
    let newest = match newest.spec.lifecycle {
        Lifecycle::DeletionProposed => agent.set_lifecycle(&newest, Lifecycle::Published).await?,
        Lifecycle::Draft | Lifecycle::Proposed | Lifecycle::Published => newest,
    };
    Ok(vec![newest])
}

/// Adds owner, labels and annotations where they lack.
async fn ensure_metadata(
    lookup: &Lookup,
    revision: PackageRevision,
    variant: &PackageVariant,
) -> Result<PackageRevision, ApiError> {
    let mut wanted = revision.clone();
    own(&mut wanted, variant);
    if wanted.metadata == revision.metadata {
        return Ok(revision);
    }
    update_same(&metadata_of(lookup)?, &revision, |revision: &mut PackageRevision| own(revision, variant)).await
}

/// A draft of the downstream package, without its task.
async fn draft(
    service: &PackageService,
    variant: &PackageVariant,
    downstream: &Downstream,
) -> Result<PackageRevision, ApiError> {
    let namespace = variant.namespace().unwrap_or_default();
    let of_package = (&*downstream.repo, &*downstream.package);
    let revisions = revisions_of(&service.services().lookup, &namespace, of_package).await?;
    let number = |revision: &PackageRevision| revision.spec.workspace_name.strip_prefix(WORKSPACE)?.parse::<u64>().ok();
    let last = revisions.iter().filter_map(number).max().unwrap_or_default();
    let spec = PackageRevisionSpec {
        package_name: downstream.package.clone(),
        repository_name: downstream.repo.clone(),
        workspace_name: format!("{WORKSPACE}{}", last + 1),
        ..PackageRevisionSpec::default()
    };
    let mut draft = PackageRevision { spec, ..PackageRevision::default() };
    draft.metadata.namespace = Some(namespace);
    // The server makes the real name of the spec.
    draft.metadata.name = Some(variant.name_any());
    own(&mut draft, variant);
    Ok(draft)
}

fn named(revision: &PackageRevision) -> NameReference {
    NameReference { name: revision.name_any() }
}

/// Creates the first draft of the downstream package.
pub(super) async fn clone(
    service: &PackageService,
    agent: &Agent,
    variant: &PackageVariant,
    (upstream, downstream): (&PackageRevision, &Downstream),
) -> Result<PackageRevision, ApiError> {
    let mut new = draft(service, variant, downstream).await?;
    let clone = CloneTask {
        upstream: UpstreamPackage { upstream_ref: Some(named(upstream)), ..UpstreamPackage::default() },
        ..CloneTask::default()
    };
    new.spec.tasks = vec![Task { kind: "clone".to_owned(), clone: Some(clone), ..Task::default() }];
    agent.create(&new).await
}

/// Creates a draft after a published revision: as it is, or with an upgrade from one revision of upstream to another.
pub(super) async fn next(
    service: &PackageService,
    agent: &Agent,
    variant: &PackageVariant,
    (from, upgrade): (&PackageRevision, Option<(&PackageRevision, &PackageRevision)>),
) -> Result<PackageRevision, ApiError> {
    let downstream = Downstream { repo: from.spec.repository_name.clone(), package: from.spec.package_name.clone() };
    let mut new = draft(service, variant, &downstream).await?;
    let task = match upgrade {
        None => Task { kind: "edit".to_owned(), edit: Some(EditTask { source: Some(named(from)) }), ..Task::default() },
        Some((old, upstream)) => Task {
            kind: "upgrade".to_owned(),
            upgrade: Some(UpgradeTask {
                old_upstream: named(old),
                new_upstream: named(upstream),
                local: named(from),
                strategy: String::new(),
            }),
            ..Task::default()
        },
    };
    new.spec.tasks = vec![task];
    agent.create(&new).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn variant() -> PackageVariant {
        let spec = json!({"labels": {"team": "web"}, "annotations": {"note": "x"}});
        let metadata = json!({"name": "web", "namespace": "shop", "uid": "7"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    #[test]
    fn owner_is_added_once_and_taken_away() {
        let (variant, mut revision) = (variant(), PackageRevision::default());
        own(&mut revision, &variant);
        own(&mut revision, &variant);
        assert_eq!((revision.owner_references().len(), revision.labels()[OWNER_LABEL].as_str()), (1, "7"));
        assert_eq!((revision.labels()["team"].as_str(), revision.annotations()["note"].as_str()), ("web", "x"));
        assert!(is_owned(&revision, &variant));
        disown(&mut revision, &variant);
        assert!(!is_owned(&revision, &variant) && !revision.labels().contains_key(OWNER_LABEL));
        assert_eq!(revision.labels()["team"], "web");
    }

    #[test]
    fn labels_of_the_spec_leave_those_of_the_server() {
        let (mut variant, mut revision) = (variant(), PackageRevision::default());
        for key in [OWNER_LABEL, LATEST_REVISION] {
            variant.spec.labels.insert(key.to_owned(), "8".to_owned());
        }
        own(&mut revision, &variant);
        assert_eq!(revision.labels()[OWNER_LABEL], "7", "another variant would delete it");
        assert!(!revision.labels().contains_key(LATEST_REVISION));
    }
}
