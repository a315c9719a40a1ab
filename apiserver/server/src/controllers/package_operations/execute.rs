//! The change of one package: a draft, its functions, and its way to the wanted lifecycle. Each step may run again.

use std::time::Duration;

use futures_util::StreamExt as _;
use kube::ResourceExt as _;
use stoa_controller::queue;
use stoa_kinds::{
    lookup,
    package_access::{self, RepositoryVerb},
    package_names::revision_name,
    package_operation::workspace_of,
    package_revision::APPROVAL,
};
use stoa_machinery::{
    ApiError,
    registry::{Api, WatchOptions},
};
use stoa_types::{
    delivery::{PackageChange, PackageOperation, PackageOperationType, PackagePhase},
    porch::{
        EditTask, Lifecycle, NameReference, PackageCondition, PackageRevision, PackageRevisionSpec, Task, UpgradeTask,
    },
    reason,
};

use super::{AWAY, context_of, plan};
use crate::packages::{Agent, PackageService};

/// The annotation of revisions with the uid of the operation that created them.
const OPERATION: &str = "delivery.stoa.dev/package-operation";
/// How often a change of the lifecycle is repeated after a conflict.
const TRIES: usize = 10;
/// The longest wait before that. The cause of a conflict may be in Git, and no write of the revision ends the wait then.
const AGAIN: Duration = Duration::from_millis(200);

/// Changes a package, from wherever an earlier try ended. A refusal is its failure.
pub(super) async fn execute(
    service: &PackageService,
    operation: &PackageOperation,
    change: PackageChange,
) -> Result<PackageChange, ApiError> {
    let done = match operation.spec.operation {
        PackageOperationType::Validate => validate(service, operation, change.clone()).await,
        PackageOperationType::Upgrade | PackageOperationType::Rollback | PackageOperationType::AddFunction => {
            revise(service, operation, change.clone()).await
        }
    };
    match done {
        Err(error) if queue::is_refusal(&error) => {
            Ok(PackageChange { phase: PackagePhase::Failed, message: error.message().to_owned(), ..change })
        }
        done => done,
    }
}

/// Runs the functions of a package, and writes nothing.
async fn validate(
    service: &PackageService,
    operation: &PackageOperation,
    change: PackageChange,
) -> Result<PackageChange, ApiError> {
    let namespace = operation.namespace().unwrap_or_default();
    let revision = service.services().lookup.api::<PackageRevision>()?.get(&namespace, &change.from).await?;
    let files = service.tree(&revision).await?;
    Ok(match service.render_error(&revision, &files).await? {
        None => PackageChange { phase: PackagePhase::Succeeded, message: String::new(), ..change },
        Some(message) => PackageChange { phase: PackagePhase::Failed, message, ..change },
    })
}

/// Creates the new revision of a package, and brings it to the wanted lifecycle.
async fn revise(
    service: &PackageService,
    operation: &PackageOperation,
    change: PackageChange,
) -> Result<PackageChange, ApiError> {
    let lookup = &service.services().lookup;
    let agent = Agent::of(lookup, context_of(service, operation));
    if operation.spec.operation == PackageOperationType::Upgrade {
        require_clone(service, operation, &change).await?;
    }
    let revision = draft(service, operation, &agent, &change).await?;
    let (namespace, name) = queue::key_of(&revision);
    let change = PackageChange { revision: name.clone(), ..change };
    match operation.spec.operation {
        _ if revision.spec.lifecycle != Lifecycle::Draft => {}
        PackageOperationType::AddFunction => {
            let added = operation.spec.add_function.clone().unwrap_or_default();
            agent.save((&namespace, &name), |files| plan::with_function(files, &added)).await?;
        }
        // The task merged upstream, if its old revision has an object.
        PackageOperationType::Upgrade if change.old_upstream.is_empty() => {
            let after = plan::planned(service, operation, &change).await?.after;
            agent.save((&namespace, &name), |_| Ok(after.clone())).await?;
        }
        PackageOperationType::Upgrade | PackageOperationType::Rollback | PackageOperationType::Validate => {}
    }
    let revisions = lookup.api::<PackageRevision>()?;
    let is_rendering = |revision: &PackageRevision| rendered(revision).is_some_and(|it| it.status == "Unknown");
    let mut revision = revisions.get(&namespace, &name).await?;
    if is_rendering(&revision) {
        changed(&revisions, &revision, AWAY).await?;
        revision = revisions.get(&namespace, &name).await?;
    }
    if let Some(error) = render_error(&revision) {
        let message = format!("its functions fail, so that it stays {}: {error}", revision.spec.lifecycle.name());
        let lifecycle = Some(revision.spec.lifecycle);
        return Ok(PackageChange { phase: PackagePhase::Failed, message, lifecycle, ..change });
    }
    if is_rendering(&revision) {
        return Err(ApiError::service_unavailable(format!("the functions of {name} still run")));
    }
    let (lifecycle, message) = advance(service, operation, &agent, revision).await?;
    Ok(PackageChange { phase: PackagePhase::Succeeded, lifecycle: Some(lifecycle), message, ..change })
}

/// Requires that the creator of the operation may clone the new upstream of a package, whose files the server merges.
///
/// # Errors
///
/// 403 that names the verb and the repository, 404 for an upstream that was deleted.
async fn require_clone(
    service: &PackageService,
    operation: &PackageOperation,
    change: &PackageChange,
) -> Result<(), ApiError> {
    let namespace = operation.namespace().unwrap_or_default();
    let upstream = service.services().lookup.api::<PackageRevision>()?.get(&namespace, &change.to).await?;
    let of_upstream = (namespace.as_str(), upstream.spec.repository_name.as_str());
    package_access::require(&context_of(service, operation), RepositoryVerb::Clone, of_upstream).await
}

/// A user besides the creator of the operation who changed a revision. The approved plan has no such change.
fn other_author<'r>(operation: &PackageOperation, revision: &'r PackageRevision) -> Option<&'r str> {
    let requester = operation.status.as_ref().map_or("", |status| status.requester.username.as_str());
    let authors = revision.status.iter().flat_map(|status| &status.changed_by);
    authors.map(|author| author.name.as_str()).find(|name| *name != requester)
}

/// The outcome of the last save's functions.
fn rendered(revision: &PackageRevision) -> Option<&PackageCondition> {
    let mut conditions = revision.status.iter().flat_map(|status| &status.conditions);
    conditions.find(|condition| condition.type_ == reason::RENDERED)
}

/// The error of the last save's functions.
fn render_error(revision: &PackageRevision) -> Option<&str> {
    let rendered = rendered(revision).filter(|condition| condition.status == "False");
    rendered.map(|condition| condition.message.as_str())
}

/// The draft of an operation for a package, which an earlier try may have created.
async fn draft(
    service: &PackageService,
    operation: &PackageOperation,
    agent: &Agent,
    change: &PackageChange,
) -> Result<PackageRevision, ApiError> {
    let namespace = operation.namespace().unwrap_or_default();
    let (uid, workspace) = (operation.uid().unwrap_or_default(), workspace_of(operation));
    let name = revision_name(&change.repository, &change.package, &workspace);
    let revisions = service.services().lookup.api::<PackageRevision>()?;
    if let Some(found) = revisions.get_opt(&namespace, &name).await? {
        if found.annotations().get(OPERATION) == Some(&uid) {
            return Ok(found);
        }
        let why = "somebody else created it; set spec.workspaceName of another operation";
        return Err(stoa_kinds::errors::conflict::<PackageRevision>(&name, why));
    }
    let reference = |name: &String| NameReference { name: name.clone() };
    let edit = |source: &String| Task {
        kind: "edit".to_owned(),
        edit: Some(EditTask { source: Some(reference(source)) }),
        ..Task::default()
    };
    let task = match operation.spec.operation {
        PackageOperationType::Upgrade if !change.old_upstream.is_empty() => Task {
            kind: "upgrade".to_owned(),
            upgrade: Some(UpgradeTask {
                old_upstream: reference(&change.old_upstream),
                new_upstream: reference(&change.to),
                local: reference(&change.from),
                strategy: operation.spec.upgrade.clone().unwrap_or_default().strategy,
            }),
            ..Task::default()
        },
        PackageOperationType::Rollback => edit(&change.to),
        PackageOperationType::Upgrade | PackageOperationType::AddFunction | PackageOperationType::Validate => {
            edit(&change.from)
        }
    };
    let spec = PackageRevisionSpec {
        package_name: change.package.clone(),
        repository_name: change.repository.clone(),
        workspace_name: workspace,
        tasks: vec![task],
        ..PackageRevisionSpec::default()
    };
    let mut draft = PackageRevision { spec, ..PackageRevision::default() };
    draft.metadata.namespace = Some(namespace.clone());
    draft.metadata.name = Some(name);
    draft.annotations_mut().insert(OPERATION.to_owned(), uid);
    agent.create(&draft).await
}

/// Brings a revision to the wanted lifecycle, as far as the user may; the lifecycle, and what keeps it there.
async fn advance(
    service: &PackageService,
    operation: &PackageOperation,
    agent: &Agent,
    mut revision: PackageRevision,
) -> Result<(Lifecycle, String), ApiError> {
    let wanted = operation.spec.lifecycle;
    if wanted != Lifecycle::Draft && revision.spec.lifecycle == Lifecycle::Draft {
        revision = change_lifecycle(service, agent, &revision, Lifecycle::Proposed).await?;
    }
    if wanted != Lifecycle::Published || revision.spec.lifecycle != Lifecycle::Proposed {
        return Ok((revision.spec.lifecycle, String::new()));
    }
    if let Some(other) = other_author(operation, &revision) {
        return Ok((
            revision.spec.lifecycle,
            format!("it stays Proposed: {other} changed it, too; approve it by hand"),
        ));
    }
    let context = context_of(service, operation);
    let (namespace, name) = queue::key_of(&revision);
    let published = match lookup::require::<PackageRevision>(&context, "update", APPROVAL, &namespace, &name).await {
        Ok(()) => change_lifecycle(service, agent, &revision, Lifecycle::Published).await,
        Err(error) => Err(error),
    };
    match published {
        Ok(published) => Ok((published.spec.lifecycle, String::new())),
        Err(error) if queue::is_refusal(&error) => {
            Ok((revision.spec.lifecycle, format!("it stays Proposed: {}", error.message())))
        }
        Err(error) => Err(error),
    }
}

/// Changes the lifecycle, also when a push of the draft comes between.
async fn change_lifecycle(
    service: &PackageService,
    agent: &Agent,
    revision: &PackageRevision,
    lifecycle: Lifecycle,
) -> Result<PackageRevision, ApiError> {
    let revisions = service.services().lookup.api::<PackageRevision>()?;
    let (namespace, name) = queue::key_of(revision);
    let mut tries = 0;
    loop {
        let before = revisions.get(&namespace, &name).await?;
        match agent.set_lifecycle(revision, lifecycle).await {
            Err(error) if error.code() == 409 && tries < TRIES => {
                tries += 1;
                changed(&revisions, &before, AGAIN).await?;
            }
            done => return done,
        }
    }
}

/// Waits until a revision has another version than the one that was read, and no longer than `most`.
async fn changed(revisions: &Api<PackageRevision>, read: &PackageRevision, most: Duration) -> Result<(), ApiError> {
    let (namespace, name) = queue::key_of(read);
    let options = WatchOptions {
        name: Some(name),
        resource_version: read.resource_version(),
        timeout: most,
        ..WatchOptions::default()
    };
    revisions.store().watch(Some(&namespace), &options).await?.next().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use serde_json::json;
    use stoa_machinery::{
        RequestContext,
        auth::{Attributes, Authorizer, Decision},
        request::UserInfo,
    };
    use stoa_runs::Services;

    use super::*;
    use crate::testing::TestServer;

    /// Denies everything, and names the question.
    #[derive(Debug)]
    struct Nothing;

    #[async_trait]
    impl Authorizer for Nothing {
        async fn authorize(&self, _: &UserInfo, attributes: &Attributes) -> Result<Decision, ApiError> {
            Ok(Decision::Deny(format!("{} {}", attributes.verb, attributes.name)))
        }
    }

    fn operation() -> PackageOperation {
        serde_json::from_value(json!({
            "metadata": {"name": "op", "namespace": "shop"},
            "spec": {"operation": "Upgrade"},
            "status": {"requester": {"username": "ann"}},
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn upgrade_needs_the_verb_clone_on_the_upstream() {
        let world = TestServer::new().await;
        let spec = json!({"packageName": "basens", "repository": "blueprints", "workspaceName": "v1"});
        let upstream: PackageRevision =
            serde_json::from_value(json!({"metadata": {"namespace": "shop"}, "spec": spec})).unwrap();
        let context = RequestContext::internal("test");
        let revisions = world.services.lookup.api::<PackageRevision>().unwrap().with_context(context);
        revisions.create(&upstream).await.unwrap();
        let change = PackageChange { to: "blueprints.basens.v1".to_owned(), ..PackageChange::default() };
        let service = PackageService::new(Services { authorizer: Arc::new(Nothing), ..world.services.clone() });
        let refused = require_clone(&service, &operation(), &change).await.unwrap_err();
        assert!(refused.code() == 403 && refused.message().contains("clone"), "{}", refused.message());
        let service = PackageService::new(world.services.clone());
        require_clone(&service, &operation(), &change).await.unwrap();
    }

    #[test]
    fn change_of_another_user_is_noticed() {
        let revision = |authors: &[&str]| -> PackageRevision {
            let authors: Vec<_> =
                authors.iter().map(|name| json!({"name": name, "time": "2026-01-01T00:00:00.000000Z"})).collect();
            let spec = json!({"packageName": "web", "repository": "deployments", "workspaceName": "op"});
            serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": {"changedBy": authors}})).unwrap()
        };
        assert_eq!(other_author(&operation(), &revision(&["ann"])), None);
        assert_eq!(other_author(&operation(), &revision(&["ann", "eve"])), Some("eve"));
    }
}
