//! Pushes drafts and proposals to Git, a moment after their objects are written.
//!
//! A draft that cannot be pushed keeps its content, and the condition Pushed names the reason. One that is deleted during its push
//! is removed from Git again.

use std::time::Duration;

use serde::Deserialize;
use stoa_controller::{
    events::Kind,
    index::Member,
    object::ObjectKey,
    queue::{self, Trigger},
};
use stoa_machinery::{ApiError, RequestContext};
use stoa_types::{
    porch::{Lifecycle, PackageCondition, PackageContent, PackageRevision, StoredInGit},
    porchconfig::Repository,
    reason,
};
use tokio_util::sync::CancellationToken;

use crate::packages::{PackageService, digest, registry_of, set_condition};

/// How many drafts are pushed at once.
const AT_ONCE: usize = 16;
/// The wait for another writer of the revision.
const BUSY: Duration = Duration::from_millis(300);
/// The wait for a repository that was not read yet.
const UNREAD: Duration = Duration::from_secs(1);
/// The wait after a conflict, which somebody has to resolve.
const CONFLICT: Duration = Duration::from_secs(30);
/// The wait while the Git server or all function-runners are away.
const AWAY: Duration = Duration::from_secs(5);

/// The fields that decide whether there is something to push.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Spec {
    lifecycle: Lifecycle,
}

/// As [`Spec`].
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Status {
    content: Option<PackageContent>,
    git: Option<StoredInGit>,
}

pub(crate) async fn run(service: PackageService, end: CancellationToken) {
    let Ok(registry) = service.services().lookup.registry() else { return };
    let triggers =
        vec![Trigger::on_change(&registry.api::<PackageRevision>(), |revision: &Member<Spec, Status>| match revision
            .spec
            .lifecycle
            .is_published()
        {
            true => Vec::new(),
            false => vec![revision.key()],
        })];
    let push = |key| push(service.clone(), key);
    queue::drive_some(service.services().queues.of("package-pushes"), AT_ONCE, triggers, end, push).await;
}

/// Whether Git lacks something of a revision.
fn is_due(revision: &PackageRevision) -> bool {
    if revision.spec.lifecycle.is_published() {
        return false;
    }
    let stored = revision.status.as_ref().and_then(|status| status.git.as_ref());
    stored.is_none_or(|stored| {
        stored.lifecycle != revision.spec.lifecycle
            || (!digest(revision).is_empty() && digest(revision) != stored.digest)
    })
}

/// Whether the outcome of a push is that of the object. Another replica may have published it or pushed it meanwhile.
fn is_same_push(object: &PackageRevision, pushed: &PackageRevision) -> bool {
    let git = |revision: &PackageRevision| revision.status.as_ref().and_then(|status| status.git.clone());
    object.metadata.uid == pushed.metadata.uid && !object.spec.lifecycle.is_published() && git(object) == git(pushed)
}

async fn push(service: PackageService, key: ObjectKey) -> Result<Option<Duration>, ApiError> {
    let lookup = &service.services().lookup;
    let context = RequestContext::internal("package-pushes").with_status();
    let revisions = lookup.api::<PackageRevision>()?.with_context(context);
    let Some(claim) = service.claims().take(&key) else { return Ok(Some(BUSY)) };
    let Some(revision) = revisions.get_opt(&key.0, &key.1).await? else { return Ok(None) };
    if !is_due(&revision) {
        return Ok(None);
    }
    let repositories = lookup.api::<Repository>()?;
    let Some(repository) = repositories.get_opt(&key.0, &revision.spec.repository_name).await? else { return Ok(None) };
    // A registry gets published revisions only.
    if repository.spec.read_only || registry_of(&repository).is_some() {
        return Ok(None);
    }
    if repository.status.is_none_or(|status| status.last_full_sync_time.is_none()) {
        return Ok(Some(UNREAD));
    }
    let in_git = service.in_git(&revision).await;
    let pushed = match &in_git {
        Ok(_) => service.push_draft(&revision).await,
        Err(error) => Err(error.clone()),
    };
    let (condition, wait) = match &pushed {
        Ok(_) => (None, None),
        Err(error) => {
            let (why, wait) = match error.code() {
                409 | 422 => (reason::PUSH_CONFLICT, CONFLICT),
                _ => (reason::SOURCE_UNREACHABLE, AWAY),
            };
            // The condition is on the object, which needs no name in its message.
            let prefix = format!("Operation cannot be fulfilled on packagerevisions.porch.kpt.dev {:?}: ", key.1);
            let message = error.message().strip_prefix(&prefix).unwrap_or(error.message());
            (Some((why, message.to_owned())), Some(wait))
        }
    };
    let mut is_news = false;
    let changed = revisions.update_with(&key.0, &key.1, |object: &mut PackageRevision| {
        is_news = false;
        if !is_same_push(object, &revision) {
            return;
        }
        if let (Ok(pushed), Ok(in_git)) = (&pushed, &in_git) {
            pushed.record(in_git, object);
        }
        let condition = condition.clone().map(|(reason, message)| PackageCondition {
            type_: reason::PUSHED.to_owned(),
            status: "False".to_owned(),
            reason: reason.to_owned(),
            message,
        });
        let status = object.status.get_or_insert_default();
        is_news = set_condition(&mut status.conditions, reason::PUSHED, condition);
    });
    let changed = queue::unless_gone(changed.await)?;
    let is_gone = changed.is_none();
    if changed.is_none_or(|object| object.metadata.uid != revision.metadata.uid) {
        if let Ok(pushed) = &pushed {
            service.withdraw(&revision, pushed).await?;
        }
        // Somebody may have created it again.
        return Ok((!is_gone).then_some(BUSY));
    }
    drop(claim);
    // One Event for a problem, not one for each retry.
    if let Some((reason, message)) = condition.filter(|_| is_news) {
        service.services().recorder.record(&revision, Kind::Warning, reason, message);
    }
    Ok(wait)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, OnceLock};

    use futures_util::stream::BoxStream;
    use k8s_openapi::api::core::v1::Namespace;
    use parking_lot::Mutex;
    use serde_json::json;
    use stoa_kinds::lookup::Lookup;
    use stoa_machinery::registry::DeleteOptions;
    use stoa_proto::{
        DiscoverRequest, DiscoverResponse, FilesRequest, FilesResponse, FunctionsRequest, FunctionsResponse,
        PushArtifactRequest, PushArtifactResponse, PushDone, PushRequest, PushResponse, PushedCommit,
        RemoveArtifactRequest, RemoveArtifactResponse,
        packages_server::{Packages, PackagesServer},
        push_response::Outcome,
        ref_update,
    };
    use stoa_runs::testing::{ANYWHERE, runner_at};
    use stoa_types::porch::PackageRevisionStatus;
    use tonic::{
        Request, Response, Status as Refusal,
        transport::{Server, server::TcpIncoming},
    };

    use super::*;
    use crate::testing::TestServer;

    /// The deletions of others during the first push.
    #[derive(Clone, Copy, PartialEq)]
    enum Deleted {
        Revision,
        RevisionAndRepository,
    }

    /// A function-runner that keeps pushes.
    #[derive(Clone)]
    struct Git {
        deleted: Deleted,
        lookup: Arc<OnceLock<Lookup>>,
        pushes: Arc<Mutex<Vec<PushRequest>>>,
    }

    const NAME: &str = "blueprints.web.v1";

    #[tonic::async_trait]
    impl Packages for Git {
        type DiscoverStream = BoxStream<'static, Result<DiscoverResponse, Refusal>>;
        type FilesStream = BoxStream<'static, Result<FilesResponse, Refusal>>;

        async fn discover(&self, _: Request<DiscoverRequest>) -> Result<Response<Self::DiscoverStream>, Refusal> {
            Err(Refusal::unimplemented("pushes only"))
        }

        async fn files(&self, _: Request<FilesRequest>) -> Result<Response<Self::FilesStream>, Refusal> {
            Err(Refusal::unimplemented("pushes only"))
        }

        async fn functions(&self, _: Request<FunctionsRequest>) -> Result<Response<FunctionsResponse>, Refusal> {
            Err(Refusal::unimplemented("pushes only"))
        }

        async fn push_artifact(
            &self,
            _: Request<PushArtifactRequest>,
        ) -> Result<Response<PushArtifactResponse>, Refusal> {
            Err(Refusal::unimplemented("pushes only"))
        }

        async fn remove_artifact(
            &self,
            _: Request<RemoveArtifactRequest>,
        ) -> Result<Response<RemoveArtifactResponse>, Refusal> {
            Err(Refusal::unimplemented("pushes only"))
        }

        async fn push(&self, request: Request<PushRequest>) -> Result<Response<PushResponse>, Refusal> {
            let is_first = {
                let mut pushes = self.pushes.lock();
                pushes.push(request.into_inner());
                pushes.len() == 1
            };
            if is_first {
                let (lookup, options) = (self.lookup.get().unwrap(), DeleteOptions::default());
                lookup.api::<PackageRevision>().unwrap().delete("shop", NAME, &options).await.unwrap();
                if self.deleted == Deleted::RevisionAndRepository {
                    lookup.api::<Repository>().unwrap().delete("shop", "blueprints", &options).await.unwrap();
                }
            }
            let commits = vec![PushedCommit { commit: "a".repeat(40), tree: "b".repeat(40) }];
            Ok(Response::new(PushResponse { commits, outcome: Some(Outcome::Done(PushDone::default())) }))
        }
    }

    /// The pushes of a draft that is deleted during the first one.
    async fn pushes_of_deleted(deleted: Deleted) -> Vec<PushRequest> {
        let git = Git { deleted, lookup: Arc::default(), pushes: Arc::default() };
        let incoming = TcpIncoming::bind(ANYWHERE).unwrap();
        let address = incoming.local_addr().unwrap();
        tokio::spawn(Server::builder().add_service(PackagesServer::new(git.clone())).serve_with_incoming(incoming));
        let world = TestServer::with_runner_and_secrets(runner_at(address)).await;
        let lookup = &world.services.lookup;
        git.lookup.set(lookup.clone()).unwrap();
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": "shop"}})).unwrap();
        world.registry.api::<Namespace>().create(&namespace).await.unwrap();
        let context = RequestContext::internal("test").with_status();
        let repository: Repository = serde_json::from_value(json!({
            "metadata": {"name": "blueprints", "namespace": "shop"},
            "spec": {"git": {"repo": "file:///r.git", "branch": "main"}},
            "status": {"lastFullSyncTime": "2026-01-01T00:00:00Z"},
        }))
        .unwrap();
        lookup.api::<Repository>().unwrap().with_context(context.clone()).create(&repository).await.unwrap();
        let revision: PackageRevision = serde_json::from_value(json!({
            "metadata": {"namespace": "shop"},
            "spec": {"packageName": "web", "repository": "blueprints", "workspaceName": "v1", "lifecycle": "Draft"},
        }))
        .unwrap();
        lookup.api::<PackageRevision>().unwrap().with_context(context).create(&revision).await.unwrap();
        let service = PackageService::new(world.services.clone());
        assert_eq!(push(service, ("shop".to_owned(), NAME.to_owned())).await.unwrap(), None);
        std::mem::take(&mut *git.pushes.lock())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn draft_that_is_deleted_during_its_push_leaves_git() {
        let pushes = pushes_of_deleted(Deleted::Revision).await;
        assert_eq!(pushes.len(), 2, "{pushes:?}");
        let update = &pushes[1].updates[0];
        assert_eq!((&*update.name, &*update.expected), ("refs/heads/drafts/web/v1", &*"a".repeat(40)));
        assert!(matches!(update.target, Some(ref_update::Target::Delete(true))), "{update:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn draft_of_an_unregistered_repository_stays_in_git() {
        assert_eq!(pushes_of_deleted(Deleted::RevisionAndRepository).await.len(), 1);
    }

    #[test]
    fn outcome_is_not_for_an_object_that_another_replica_changed() {
        let mut pushed = PackageRevision::default();
        pushed.metadata.uid = Some("one".to_owned());
        let change = |change: fn(&mut PackageRevision)| {
            let mut object = pushed.clone();
            change(&mut object);
            is_same_push(&object, &pushed)
        };
        assert!(change(|object| object.spec.lifecycle = Lifecycle::Proposed), "its own changes are pushed next");
        assert!(!change(|object| object.spec.lifecycle = Lifecycle::Published));
        assert!(!change(|object| object.metadata.uid = Some("two".to_owned())));
        assert!(!change(|object| {
            let git = Some(StoredInGit { commit: "b".to_owned(), ..StoredInGit::default() });
            object.status = Some(PackageRevisionStatus { git, ..PackageRevisionStatus::default() });
        }));
    }
}
