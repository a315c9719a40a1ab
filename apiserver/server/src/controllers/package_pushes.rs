//! Pushes drafts and proposals to Git, a moment after their objects are written.
//!
//! A draft that cannot be pushed keeps its content, and the condition Pushed names the reason.

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

use crate::packages::{PackageService, digest, set_condition};

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
    if repository.spec.read_only {
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
    queue::unless_gone(changed.await)?;
    drop(claim);
    // One Event for a problem, not one for each retry.
    if let Some((reason, message)) = condition.filter(|_| is_news) {
        service.services().recorder.record(&revision, Kind::Warning, reason, message);
    }
    Ok(wait)
}

#[cfg(test)]
mod tests {
    use stoa_types::porch::PackageRevisionStatus;

    use super::*;

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
