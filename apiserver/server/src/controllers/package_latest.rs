//! The newest published revision of each package: its label, and the PorchPackage that names it.
//!
//! A change of a revision concerns its package only, whose revisions an index has. So the cost does not grow with the repository.

use std::time::Duration;

use futures_util::StreamExt as _;
use kube::ResourceExt as _;
use serde::{Deserialize, de::IgnoredAny};
use stoa_controller::{
    index::{Index, Member},
    object::ObjectKey,
    queue::{self, Trigger},
};
use stoa_kinds::package_names::package_name;
use stoa_machinery::{
    ApiError, RequestContext,
    registry::{Api, DeleteOptions},
};
use stoa_types::porch::{
    LATEST_REVISION, Lifecycle, PackageRevision, PorchPackage, PorchPackageSpec, PorchPackageStatus,
};
use tokio_util::sync::CancellationToken;

use crate::packages::PackageService;

/// How many packages are compared at once.
const AT_ONCE: usize = 4;
/// How long changes of a package are gathered.
const GATHER: Duration = Duration::from_millis(100);
/// The wait for the index, which reads all revisions first.
const UNREAD: Duration = Duration::from_millis(200);

/// A package: namespace, repository and path.
type Package = (String, String, String);

/// The fields of a PackageRevision that decide which one of its package is the newest.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Numbered {
    pub(super) repository: String,
    pub(super) package_name: String,
    lifecycle: Lifecycle,
    revision: i64,
}

/// The address of a PorchPackage.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Address {
    repository: String,
    package_name: String,
}

/// The key of a package in the queue. No object has a name with a slash.
fn key_of(namespace: &str, repository: &str, package: &str) -> ObjectKey {
    (namespace.to_owned(), format!("{repository}/{package}"))
}

fn package_of((namespace, name): &ObjectKey) -> Option<Package> {
    let (repository, package) = name.split_once('/')?;
    Some((namespace.clone(), repository.to_owned(), package.to_owned()))
}

pub(crate) async fn run(service: PackageService, end: CancellationToken) {
    let Ok(registry) = service.services().lookup.registry() else { return };
    let (revisions, packages) = (registry.api::<PackageRevision>(), registry.api::<PorchPackage>());
    let index = Index::<Package>::default();
    let followed = index.follow(&revisions, |revision: &Member<Numbered, IgnoredAny>| {
        let Numbered { repository, package_name, .. } = revision.spec.clone();
        vec![(revision.namespace().to_owned(), repository, package_name)]
    });
    let keys = |(namespace, repository, package): &Package| key_of(namespace, repository, package);
    let moved = followed.map(move |moved| moved.groups.iter().map(keys).collect());
    let triggers = vec![
        Trigger::new(moved.boxed()).within(GATHER),
        Trigger::on_change(&revisions, |revision: &Member<Numbered, IgnoredAny>| {
            let Numbered { repository, package_name, .. } = &revision.spec;
            vec![key_of(revision.namespace(), repository, package_name)]
        })
        .within(GATHER),
        // One whose revisions were deleted while no server saw it.
        Trigger::on_change(&packages, |package: &Member<Address, IgnoredAny>| {
            vec![key_of(package.namespace(), &package.spec.repository, &package.spec.package_name)]
        })
        .within(GATHER),
    ];
    let update = |key| update(service.clone(), index.clone(), key);
    queue::drive_some(service.services().queues.of("package-latest"), AT_ONCE, triggers, end, update).await;
}

fn context() -> RequestContext {
    RequestContext::internal("package-repositories").with_status()
}

/// Labels the newest revision of a package, and keeps the PorchPackage.
async fn update(service: PackageService, index: Index<Package>, key: ObjectKey) -> Result<Option<Duration>, ApiError> {
    let Some(package) = package_of(&key) else { return Ok(None) };
    if index.count(&package).is_none() {
        return Ok(Some(UNREAD));
    }
    let lookup = &service.services().lookup;
    let revisions = lookup.api::<PackageRevision>()?.with_context(context());
    let mut found = Vec::new();
    for (namespace, name) in index.members(&package) {
        found.extend(revisions.get_opt(&namespace, &name).await?);
    }
    let latest = newest(&found);
    for revision in &found {
        let is_latest = latest.is_some_and(|latest| latest.name_any() == revision.name_any());
        if revision.labels().contains_key(LATEST_REVISION) != is_latest {
            set_label(&revisions, revision, is_latest).await?;
        }
    }
    let number = latest.map_or(0, |latest| latest.spec.revision);
    let packages = lookup.api::<PorchPackage>()?.with_context(context());
    keep_package(&packages, &package, (!found.is_empty()).then_some(number)).await?;
    Ok(None)
}

/// The newest published revision.
fn newest(revisions: &[PackageRevision]) -> Option<&PackageRevision> {
    let published = revisions.iter().filter(|it| it.spec.lifecycle.is_published() && it.spec.revision > 0);
    published.max_by_key(|revision| revision.spec.revision)
}

async fn set_label(revisions: &Api<PackageRevision>, of: &PackageRevision, is_latest: bool) -> Result<(), ApiError> {
    let (namespace, name) = queue::key_of(of);
    let change = |object: &mut PackageRevision| {
        if is_latest {
            object.labels_mut().insert(LATEST_REVISION.to_owned(), "true".to_owned());
        } else {
            object.labels_mut().remove(LATEST_REVISION);
        }
    };
    queue::unless_gone(revisions.update_with(&namespace, &name, change).await).map(drop)
}

/// Creates, changes or removes the PorchPackage of a package; `latest` is absent where it has no revisions.
async fn keep_package(
    packages: &Api<PorchPackage>,
    (namespace, repository, path): &Package,
    latest: Option<i64>,
) -> Result<(), ApiError> {
    let name = package_name(repository, path);
    let existing = packages.get_opt(namespace, &name).await?;
    // Two paths may make one name.
    let is_own = |package: &PorchPackage| package.spec.package_name == *path;
    let Some(latest_revision) = latest else {
        if existing.as_ref().is_some_and(is_own) {
            queue::unless_gone(packages.delete(namespace, &name, &DeleteOptions::default()).await)?;
        }
        return Ok(());
    };
    let status = PorchPackageStatus { latest_revision };
    match existing {
        Some(package) if package.status.as_ref() == Some(&status) || !is_own(&package) => {}
        Some(_) => {
            let change = |package: &mut PorchPackage| package.status = Some(status.clone());
            queue::unless_gone(packages.update_with(namespace, &name, change).await)?;
        }
        None => {
            let spec = PorchPackageSpec { package_name: path.clone(), repository_name: repository.clone() };
            let mut package = PorchPackage { spec, status: Some(status), ..PorchPackage::default() };
            package.metadata.namespace = Some(namespace.clone());
            package.metadata.name = Some(name);
            match packages.create(&package).await {
                Err(error) if !queue::is_refusal(&error) => return Err(error),
                // A path that makes no name is reported with the repository.
                Ok(_) | Err(_) => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_revision_is_the_published_one_with_the_highest_number() {
        let revision = |lifecycle: Lifecycle, number: i64| {
            let mut revision = PackageRevision::default();
            revision.spec.lifecycle = lifecycle;
            revision.spec.revision = number;
            revision
        };
        let found = [
            revision(Lifecycle::Published, -1),
            revision(Lifecycle::Published, 9),
            revision(Lifecycle::DeletionProposed, 10),
            revision(Lifecycle::Draft, 0),
        ];
        assert_eq!(newest(&found).unwrap().spec.revision, 10);
        assert!(newest(&[revision(Lifecycle::Published, -1), revision(Lifecycle::Draft, 0)]).is_none());
    }

    #[test]
    fn key_names_a_package_with_folders() {
        let key = key_of("shop", "blueprints", "network/basens");
        let package = ("shop".to_owned(), "blueprints".to_owned(), "network/basens".to_owned());
        assert_eq!(package_of(&key), Some(package));
    }
}
