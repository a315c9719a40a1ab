//! Sources of provider Package: the commits of their revisions, by the objects of the server.

use std::{collections::BTreeSet, sync::Arc};

use serde::Deserialize;
use stoa_controller::{index::Member, queue::Trigger};
use stoa_kinds::lookup::Lookup;
use stoa_machinery::registry::Registry;
use stoa_proto::LookResponse;
use stoa_runs::{Services, package_source};
use stoa_types::{
    Source,
    config::SourcePackage,
    porch::{PackageRevision, StoredInGit},
    reason,
};

use super::{super::package_latest::Numbered, Unseen};

/// The fields of a PackageRevision's status that decide about its commit.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Status {
    git: Option<StoredInGit>,
}

/// Makes the sources of a package due when one of its revisions changes.
pub(super) fn trigger(registry: &Arc<Registry>, lookup: Lookup) -> Trigger {
    Trigger::on_change(&registry.api::<PackageRevision>(), move |revision: &Member<Numbered, Status>| {
        let Numbered { repository, package_name, .. } = &revision.spec;
        let of_repository = lookup.cached_keys::<Source>(revision.namespace(), "spec.package.repository", repository);
        let is_of_package = |key: &(String, String)| {
            let source = lookup.cached_spec::<Source>(&key.0, &key.1);
            source.and_then(|source| source.package).is_some_and(|package| package.name == *package_name)
        };
        of_repository.into_iter().filter(is_of_package).collect()
    })
}

/// The commits of `latest` and of other versions.
pub(super) async fn resolve(
    services: &Services,
    source: &Source,
    package: &SourcePackage,
    versions: &BTreeSet<String>,
) -> Result<LookResponse, Unseen> {
    let unseen = |reason, message| Unseen { reason, message, broke: Some(0) };
    let found = package_source::revisions(services, source, package).await.map_err(|halt| {
        let (reason, message) = halt.into_reason(reason::SOURCE_UNREACHABLE);
        unseen(reason, message)
    })?;
    let commit = |version: &str| {
        let revision = package_source::find(&found, version, &source.spec.reference)?;
        Some(revision.commit.clone()).filter(|commit| !commit.is_empty())
    };
    let latest = commit("latest").ok_or_else(|| {
        unseen(reason::REF_NOT_FOUND, package_source::no_revision(package, "latest", &source.spec.reference))
    })?;
    let commits = versions.iter().filter_map(|version| Some((version.clone(), commit(version)?))).collect();
    Ok(LookResponse { latest, commits, ..LookResponse::default() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stoa_machinery::RequestContext;
    use stoa_types::common::condition;
    use tokio_util::sync::CancellationToken;

    use super::{super::run, *};
    use crate::testing::{PATIENCE, TestServer};

    fn revision(number: i64, commit: &str) -> PackageRevision {
        serde_json::from_value(json!({
            "metadata": {"name": format!("blueprints.web.v{number}"), "namespace": "shop"},
            "spec": {"repository": "blueprints", "packageName": "web", "workspaceName": format!("v{number}"),
                "revision": number, "lifecycle": "Published"},
            "status": {"git": {"ref": format!("refs/tags/web/v{number}"), "commit": commit, "lifecycle": "Published"}},
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn source_follows_the_newest_revision_of_its_package() {
        let world = TestServer::new().await;
        let package = json!({"repository": "blueprints", "name": "web"});
        world.create("Source", "package", json!({"provider": "Package", "package": package})).await;
        let end = CancellationToken::new();
        let _end = end.clone().drop_guard();
        tokio::spawn(run(world.services.clone(), end));
        let sources = world.registry.api::<Source>();
        let until = async |what: &str, is_so: &(dyn Fn(&Source) -> bool + Sync)| {
            let so = async {
                while !is_so(&sources.get("shop", "package").await.unwrap()) {
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(PATIENCE, so).await.expect(what);
        };
        let ready = |source: &Source| {
            let conditions = source.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
            condition(&conditions, reason::READY).map(|ready| ready.status.clone())
        };
        until("it has no revision", &|source| ready(source).as_deref() == Some("False")).await;
        let context = RequestContext::internal("test").with_status();
        let revisions = world.registry.api::<PackageRevision>().with_context(context);
        for (number, commit) in [(1, "a"), (2, "b")] {
            let commit = commit.repeat(40);
            revisions.create(&revision(number, &commit)).await.unwrap();
            let is_observed = |source: &Source| {
                let observed = source.status.as_ref().and_then(|status| status.observed_commit.as_ref());
                observed == Some(&commit) && ready(source).as_deref() == Some("True")
            };
            until("the newest revision is observed", &is_observed).await;
        }
    }
}
