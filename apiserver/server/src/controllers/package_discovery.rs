//! What package revisions say of others: their upstream with its newest revision, and the Stacks that deploy them.
//!
//! A change of one revision may concern each downstream of its package, so that all revisions of a namespace are looked at
//! together, once for all changes within a moment.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use kube::ResourceExt as _;
use serde::{Deserialize, de::IgnoredAny};
use stoa_controller::{
    index::Member,
    object::ObjectKey,
    queue::{self, Trigger},
};
use stoa_machinery::{ApiError, RequestContext, registry::ListOptions};
use stoa_runs::Services;
use stoa_types::{
    Project, Source, Stack,
    config::Deployment,
    porch::{Lifecycle, Locator, PackageRevision, RevisionDeployment, StoredInGit, UpstreamRevision},
};
use tokio_util::sync::CancellationToken;

use crate::packages::{Upstreams, upstream_lock};

/// How many namespaces are looked at at once.
const AT_ONCE: usize = 2;
/// How long changes are gathered.
const GATHER: Duration = Duration::from_secs(1);
/// The most deployments in the status of a revision.
const MOST_DEPLOYMENTS: usize = 100;

/// The fields of a PackageRevision that concern others.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Spec {
    lifecycle: Lifecycle,
    revision: i64,
}

/// As [`Spec`].
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    upstream_lock: Option<Locator>,
    self_lock: Option<Locator>,
    git: Option<StoredInGit>,
}

/// The project of a stack, and its deployments.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct OfStack {
    project: String,
}

/// As [`OfStack`].
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct OfStackStatus {
    deployments: Vec<Deployment>,
}

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let Ok(registry) = services.lookup.registry() else { return };
    let namespace = |namespace: &str| vec![(namespace.to_owned(), String::new())];
    let triggers = vec![
        Trigger::on_change(&registry.api::<PackageRevision>(), move |revision: &Member<Spec, Status>| {
            namespace(revision.namespace())
        })
        .within(GATHER),
        Trigger::on_change(&registry.api::<Stack>(), move |stack: &Member<OfStack, OfStackStatus>| {
            namespace(stack.namespace())
        })
        .within(GATHER),
        Trigger::on_change(&registry.api::<Project>(), move |project: &Member<serde_json::Value, IgnoredAny>| {
            namespace(project.namespace())
        })
        .within(GATHER),
        Trigger::on_change(&registry.api::<Source>(), move |source: &Member<serde_json::Value, IgnoredAny>| {
            namespace(source.namespace())
        })
        .within(GATHER),
    ];
    let reconcile = |key| reconcile(services.clone(), key);
    queue::drive_some(services.queues.of("package-discovery"), AT_ONCE, triggers, end, reconcile).await;
}

async fn reconcile(services: Services, (namespace, _): ObjectKey) -> Result<Option<Duration>, ApiError> {
    let revisions = services.lookup.api::<PackageRevision>()?;
    let all = revisions.list_with(Some(&namespace), &ListOptions::default()).await?;
    if all.is_empty() {
        return Ok(None);
    }
    let deployed = deployments(&services, &namespace).await?;
    let upstreams: Upstreams = all.iter().cloned().collect();
    let newest = newest(&all);
    let revisions = revisions.with_context(RequestContext::internal("package-discovery").with_status());
    for revision in &all {
        let has_successor = has_successor(revision, &newest);
        let upstream = upstream_of(revision, &upstreams, has_successor);
        let deployments = deployments_of(revision, &deployed);
        let status = revision.status.as_ref();
        let is_known = status.map_or(upstream.is_none() && deployments.is_empty(), |status| {
            status.upstream == upstream && status.deployments == deployments
        });
        if is_known {
            continue;
        }
        let lock = upstream_lock(revision).cloned();
        let change = |current: &mut PackageRevision| {
            // Another upstream since makes the namespace due again.
            if current.metadata.uid == revision.metadata.uid && upstream_lock(current).cloned() == lock {
                let status = current.status.get_or_insert_default();
                status.upstream.clone_from(&upstream);
                status.deployments.clone_from(&deployments);
            }
        };
        queue::unless_gone(revisions.update_with(&namespace, &revision.name_any(), change).await)?;
    }
    Ok(None)
}

/// The numbers of the newest published revisions, by repository and package.
fn newest(all: &[PackageRevision]) -> HashMap<(&str, &str), i64> {
    let mut newest = HashMap::new();
    for revision in all.iter().filter(|revision| revision.spec.lifecycle.is_published()) {
        let entry = newest.entry((&*revision.spec.repository_name, &*revision.spec.package_name)).or_insert(0);
        *entry = revision.spec.revision.max(*entry);
    }
    newest
}

/// Whether a revision is not the newest of its package, and no draft or proposal.
fn has_successor(revision: &PackageRevision, newest: &HashMap<(&str, &str), i64>) -> bool {
    let of_package = (&*revision.spec.repository_name, &*revision.spec.package_name);
    revision.spec.lifecycle.is_published()
        && newest.get(&of_package).is_some_and(|newest| *newest != revision.spec.revision)
}

fn upstream_of(revision: &PackageRevision, upstreams: &Upstreams, has_successor: bool) -> Option<UpstreamRevision> {
    let lock = upstream_lock(revision)?;
    let (named, newest) = (upstreams.named(lock), upstreams.newest(lock)?);
    let number = named.map_or(0, |named| named.number);
    Some(UpstreamRevision {
        repository: newest.repository.clone(),
        package: newest.package.clone(),
        name: named.map_or_else(String::new, |named| named.name.clone()),
        revision: number,
        newest: (!has_successor).then_some(newest.number),
        outdated: !has_successor && number < newest.number,
    })
}

/// The deployments by the package and the commit that is deployed.
type Deployed = BTreeMap<(String, String, String), Vec<RevisionDeployment>>;

/// The deployments of all stacks whose sources are packages.
async fn deployments(services: &Services, namespace: &str) -> Result<Deployed, ApiError> {
    let of_package = |source: Source| Some((source.name_any(), source.spec.package?));
    let sources = services.lookup.api::<Source>()?;
    let sources: HashMap<_, _> =
        sources.list_of(Some(namespace), &ListOptions::default(), of_package).await?.into_iter().collect();
    if sources.is_empty() {
        return Ok(Deployed::new());
    }
    let of_source = |project: Project| Some((project.name_any(), sources.get(&project.spec.source.name)?.clone()));
    let projects = services.lookup.api::<Project>()?;
    let projects: HashMap<_, _> =
        projects.list_of(Some(namespace), &ListOptions::default(), of_source).await?.into_iter().collect();
    let mut found = Deployed::new();
    for stack in services.lookup.api::<Stack>()?.list(Some(namespace), "").await? {
        let Some(package) = projects.get(&stack.spec.project) else { continue };
        let live = stack.status.iter().flat_map(|status| &status.deployments).filter(|it| it.resources > 0);
        for Deployment { workspace, release, commit, .. } in live {
            let Some(commit) = commit else { continue };
            let key = (package.repository.clone(), package.name.clone(), commit.clone());
            let (stack, workspace) = (stack.name_any(), workspace.clone());
            found.entry(key).or_default().push(RevisionDeployment { stack, workspace, release: *release });
        }
    }
    for deployments in found.values_mut() {
        deployments.sort_by(|one, other| (&one.stack, &one.workspace).cmp(&(&other.stack, &other.workspace)));
        deployments.truncate(MOST_DEPLOYMENTS);
    }
    Ok(found)
}

fn deployments_of(revision: &PackageRevision, deployed: &Deployed) -> Vec<RevisionDeployment> {
    // The package on the branch has the commit of its newest revision, which is deployed.
    let commit = revision.status.as_ref().and_then(|status| status.git.as_ref()).map(|git| &git.commit);
    let Some(commit) = commit.filter(|commit| !commit.is_empty() && revision.spec.revision > 0) else {
        return Vec::new();
    };
    let key = (revision.spec.repository_name.clone(), revision.spec.package_name.clone(), commit.clone());
    deployed.get(&key).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn revision(repository: &str, package: &str, number: i64, status: Value) -> PackageRevision {
        let lifecycle = if number == 0 { "Draft" } else { "Published" };
        serde_json::from_value(json!({
            "metadata": {"name": format!("{repository}.{package}.v{number}"), "namespace": "shop"},
            "spec": {"packageName": package, "repository": repository, "revision": number, "lifecycle": lifecycle},
            "status": status,
        }))
        .unwrap()
    }

    fn lock(field: &str, number: i64) -> Value {
        let git =
            json!({"repo": "https://git.example.com/r.git", "directory": "basens", "ref": format!("basens/v{number}")});
        json!({field: {"type": "git", "git": git}})
    }

    #[test]
    fn newest_revisions_and_drafts_say_whether_upstream_is_newer() {
        let all = [
            revision("blueprints", "basens", 1, lock("selfLock", 1)),
            revision("blueprints", "basens", 2, lock("selfLock", 2)),
            revision("deployments", "web", 1, lock("upstreamLock", 1)),
            revision("deployments", "web", 2, lock("upstreamLock", 1)),
            revision("deployments", "web", 0, lock("upstreamLock", 2)),
            revision("deployments", "own", 1, json!({})),
        ];
        let (upstreams, newest) = (all.iter().cloned().collect::<Upstreams>(), newest(&all));
        let said = |at: usize| {
            let found = upstream_of(&all[at], &upstreams, has_successor(&all[at], &newest))?;
            Some((found.revision, found.newest, found.outdated))
        };
        assert_eq!(said(2), Some((1, None, false)), "it has a successor");
        assert_eq!(said(3), Some((1, Some(2), true)));
        assert_eq!(said(4), Some((2, Some(2), false)), "a draft");
        assert_eq!([said(0), said(5)], [None, None]);
    }

    #[test]
    fn deployed_commit_names_its_revision() {
        let git = json!({"git": {"ref": "refs/tags/web/v1", "commit": "aaa", "lifecycle": "Published"}});
        let of = |number: i64| revision("deployments", "web", number, git.clone());
        let deployment = RevisionDeployment { stack: "web".to_owned(), workspace: "prod".to_owned(), release: Some(3) };
        let key = ("deployments".to_owned(), "web".to_owned(), "aaa".to_owned());
        let deployed = Deployed::from([(key, vec![deployment.clone()])]);
        assert_eq!(deployments_of(&of(1), &deployed), [deployment]);
        assert!(deployments_of(&of(-1), &deployed).is_empty(), "the package on the branch");
        assert!(deployments_of(&revision("deployments", "web", 2, json!({})), &deployed).is_empty());
    }
}
