//! The conformance suite of [`Runtime`]: one function for each sentence of the trait.
//!
//! Start at [`all`]. Each function uses ConfigMaps of its own in the given namespace, so that they may run at once
//! against one infrastructure.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use stoa_engine::cascade::DELETE_CONTENTS;
use stoa_engine::owner::{LeftAlone, TAKE_OVER_FROM};
use stoa_engine::resolve::Resolved;
use stoa_engine::{Cascade, DigestKeys, Live, Owner, Preview, Resource, ResourceType, StateResource};

use crate::{Applied, ApplyRequest, Deleted, Finished, Found, Grant, Health, ReadRequest, Runtime, RuntimeError};

/// Makes runtimes over the infrastructure under test.
pub trait Subject: fmt::Debug + Send + Sync {
    /// A runtime for a run of its own of that deployment.
    fn runtime_of(&self, owner: Owner) -> Arc<dyn Runtime>;

    /// A runtime for a run of its own.
    fn runtime(&self) -> Arc<dyn Runtime> {
        self.runtime_of(deployment("one"))
    }

    /// A namespace, which need not exist.
    fn namespace(&self) -> &str;
}

/// Runs every check.
pub async fn all(subject: &dyn Subject) {
    missing_object_reads_as_absent(subject).await;
    answers_keep_request_order(subject).await;
    applied_object_is_live(subject).await;
    second_apply_changes_nothing(subject).await;
    dropped_field_is_removed(subject).await;
    preview_shows_apply_result(subject).await;
    preview_changes_nothing(subject).await;
    existing_object_is_adopted(subject).await;
    deleted_object_is_absent(subject).await;
    second_deletion_succeeds(subject).await;
    wait_for_deleted_object_ends(subject).await;
    lost_creation_is_found(subject).await;
    applied_object_has_owner_annotation(subject).await;
    object_of_another_deployment_is_not_changed(subject).await;
    object_of_another_deployment_is_taken_over_explicitly(subject).await;
    object_of_another_deployment_is_not_deleted(subject).await;
    object_of_another_deployment_is_not_recovered(subject).await;
    foreign_contents_prevent_namespace_deletion(subject).await;
    object_without_name_is_rejected(subject).await;
    health_is_reported(subject).await;
    parallel_applies_succeed(subject).await;
    second_finish_changes_nothing(subject).await;
    run_without_changes_finishes(subject).await;
    deferred_changes_need_call_lease(subject).await;
}

/// The deployment of a stack.
pub fn deployment(stack: &str) -> Owner {
    Owner {
        organization: "conformance".to_owned(),
        stack: stack.to_owned(),
        workspace: "dev".to_owned(),
        stack_uid: format!("uid-of-{stack}"),
    }
}

/// A ConfigMap called `conformance-<name>` with `data.key` set to `value`.
pub fn config_map(subject: &dyn Subject, name: &str, value: &str) -> Resource {
    let namespace = subject.namespace();
    let attributes = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": format!("conformance-{name}"), "namespace": namespace},
        "data": {"key": value},
    });
    Resource {
        id: format!("v1:ConfigMap:{namespace}:conformance-{name}").as_str().into(),
        kind: ResourceType::Kubernetes,
        attributes: object(attributes),
        depends_on: Vec::new(),
        extensions: Map::new(),
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("{other} is no object"),
    }
}

/// The record after an apply.
pub fn recorded(desired: &Resource, applied: &Applied) -> StateResource {
    let resolved = Resolved::plain(&desired.attributes);
    let cluster = applied.kubernetes.as_ref().map(|object| object.cluster.clone()).unwrap_or_default();
    let keys = DigestKeys::new(&[7; 32], &[]);
    StateResource::applied(desired, &resolved, applied.live.clone(), &keys).in_cluster(cluster)
}

async fn apply(runtime: &dyn Runtime, desired: &Resource, prior: Option<&StateResource>) -> Applied {
    let request = ApplyRequest::new(desired, prior);
    runtime.apply(&request).await.expect("a good resource is applied")
}

/// Applies in a run of its own, and returns what would be recorded.
async fn bring(subject: &dyn Subject, desired: &Resource, prior: Option<&StateResource>) -> StateResource {
    let runtime = subject.runtime();
    let applied = apply(&*runtime, desired, prior).await;
    runtime.finish(&Grant::unlimited()).await.expect("a run finishes");
    recorded(desired, &applied)
}

/// Deletes, and waits until the object is deleted.
pub async fn delete(runtime: &dyn Runtime, prior: &StateResource) -> Result<Deleted, RuntimeError> {
    match runtime.delete(prior).await? {
        Deleted::Terminating(object) => runtime.wait_deleted(&object, &|_| {}).await.map(|()| Deleted::Gone),
        ended => Ok(ended),
    }
}

async fn remove(subject: &dyn Subject, prior: &StateResource) {
    assert_eq!(remove_of(subject, deployment("one"), prior).await, None);
}

/// Deletes in a run of its own. Returns the owner of an object that stays.
async fn remove_of(subject: &dyn Subject, owner: Owner, prior: &StateResource) -> Option<String> {
    let runtime = subject.runtime_of(owner);
    let deleted = delete(&*runtime, prior).await.expect("what is recorded is deleted");
    let mut finished = runtime.finish(&Grant::unlimited()).await.expect("a run finishes");
    match deleted {
        Deleted::Gone => finished.left.remove(&prior.id),
        Deleted::Left(LeftAlone::Owned(other)) => Some(other),
        Deleted::Left(LeftAlone::Recreated) => panic!("nobody made {} anew", prior.id),
        Deleted::Terminating(object) => panic!("{object:?} was waited for"),
    }
}

/// Applies in a run of its own of that deployment.
async fn try_to_apply(
    subject: &dyn Subject,
    owner: Owner,
    request: &ApplyRequest<'_>,
) -> Result<Applied, RuntimeError> {
    let runtime = subject.runtime_of(owner);
    let applied = runtime.apply(request).await?;
    runtime.finish(&Grant::unlimited()).await?;
    Ok(applied)
}

fn whole(live: Live) -> Map<String, Value> {
    match live {
        Live::Present(object) => object,
        other => panic!("{other:?} is not there"),
    }
}

/// Reads by a runtime that has made no change.
async fn live(subject: &dyn Subject, desired: &Resource, prior: Option<&StateResource>) -> Live {
    let requests = [ReadRequest { desired: Some(desired), prior }];
    let mut answers = subject.runtime().read(&requests).await.expect("the infrastructure is there");
    assert_eq!(answers.len(), 1, "one answer for one request");
    answers.remove(0).expect("a good resource is read")
}

fn data(live: &Live) -> Value {
    match live {
        Live::Present(object) => object.get("data").cloned().unwrap_or_default(),
        other => panic!("{other:?} is not there"),
    }
}

/// A lost creation is found by its id alone, and an absent object is not.
pub async fn lost_creation_is_found(subject: &dyn Subject) {
    let desired = config_map(subject, "lost", "a");
    let named = StateResource::named_by(&desired.id).expect("it is an object's id");
    let look = async || {
        let mut found = subject.runtime().inspect(&[&named]).await.expect("the infrastructure is there");
        assert_eq!(found.len(), 1, "one answer for one call");
        found.remove(0).expect("a good id is looked for")
    };
    assert_eq!(look().await, Found::Absent);
    let prior = bring(subject, &desired, None).await;
    let found = look().await;
    let Found::Ours(applied) = found else { panic!("{found:?} is ours") };
    // A runtime that only gathers knows no uid before it has finished.
    let found = named.clone().found(&applied.live, String::new());
    assert!(prior.uid().is_none_or(|recorded| found.uid() == Some(recorded)), "{found:?}");
    remove(subject, &prior).await;
    assert_eq!(look().await, Found::Absent);
}

/// An applied object has the owner annotation, in the answer and when it is read, whatever the Spec has.
pub async fn applied_object_has_owner_annotation(subject: &dyn Subject) {
    let mut desired = config_map(subject, "owner", "a");
    desired.attributes = deployment("other").marked(&desired.attributes);
    let prior = bring(subject, &desired, None).await;
    let owner = deployment("one");
    assert!(owner.has(&prior.live), "{:?}", prior.live);
    assert!(owner.has(&whole(live(subject, &desired, Some(&prior)).await)));
    remove(subject, &prior).await;
}

/// An object of another deployment is not changed, whatever is recorded or planned.
pub async fn object_of_another_deployment_is_not_changed(subject: &dyn Subject) {
    let theirs = config_map(subject, "theirs", "a");
    let prior = bring(subject, &theirs, None).await;
    let before = live(subject, &theirs, Some(&prior)).await;
    let mut wanted = config_map(subject, "theirs", "b");
    for from in [None, Some("conformance/third/dev")] {
        wanted.extensions.extend(from.map(|from| (TAKE_OVER_FROM.to_owned(), from.into())));
        for (prior, adopt) in [(None, false), (None, true), (Some(&prior), false)] {
            let request = ApplyRequest { adopt, ..ApplyRequest::new(&wanted, prior) };
            let refused = try_to_apply(subject, deployment("two"), &request).await.expect_err("it is another's");
            assert!(matches!(refused, RuntimeError::Owned(_)) && !refused.is_retryable(), "{refused:?}");
            assert!(refused.to_string().contains("conformance/one/dev"), "{refused}");
        }
    }
    assert_eq!(live(subject, &theirs, Some(&prior)).await, before);
    remove(subject, &prior).await;
}

/// An object of another deployment is taken over by a resource that names that owner.
pub async fn object_of_another_deployment_is_taken_over_explicitly(subject: &dyn Subject) {
    let theirs = config_map(subject, "taken", "a");
    let old = bring(subject, &theirs, None).await;
    let mut wanted = config_map(subject, "taken", "b");
    wanted.extensions.insert(TAKE_OVER_FROM.to_owned(), "conformance/one/dev".into());
    let request = ApplyRequest::adopting(&wanted);
    let applied = try_to_apply(subject, deployment("two"), &request).await.expect("it is taken over");
    let taken = whole(live(subject, &wanted, None).await);
    assert!(deployment("two").has(&taken), "{taken:?}");
    assert_eq!(taken.get("data"), wanted.attributes.get("data"));

    let request = ApplyRequest::new(&theirs, Some(&old));
    try_to_apply(subject, deployment("one"), &request).await.expect_err("it is another's now");
    assert_eq!(remove_of(subject, deployment("one"), &old).await.as_deref(), Some("conformance/two/dev"));
    assert_eq!(whole(live(subject, &wanted, None).await), taken);
    assert_eq!(remove_of(subject, deployment("two"), &recorded(&wanted, &applied)).await, None);
    assert_eq!(live(subject, &wanted, None).await, Live::Absent);
}

/// An object of another deployment is not deleted, and its owner is reported.
pub async fn object_of_another_deployment_is_not_deleted(subject: &dyn Subject) {
    let theirs = config_map(subject, "kept", "a");
    let prior = bring(subject, &theirs, None).await;
    let before = live(subject, &theirs, Some(&prior)).await;
    assert_eq!(remove_of(subject, deployment("two"), &prior).await.as_deref(), Some("conformance/one/dev"));
    assert_eq!(live(subject, &theirs, Some(&prior)).await, before);
    remove(subject, &prior).await;
}

/// A lost call of ours did not make what another deployment has, though its uid may be recorded.
pub async fn object_of_another_deployment_is_not_recovered(subject: &dyn Subject) {
    let theirs = config_map(subject, "lost-theirs", "a");
    let prior = bring(subject, &theirs, None).await;
    let named = StateResource::named_by(&theirs.id).expect("it is an object's id");
    let found =
        subject.runtime_of(deployment("two")).inspect(&[&named, &prior]).await.expect("the infrastructure is there");
    assert!(found.iter().all(|found| matches!(found, Ok(Found::Foreign))), "{found:?}");
    remove(subject, &prior).await;
}

/// A namespace with objects of another deployment is not deleted, unless its record allows it. The objects are
/// reported.
pub async fn foreign_contents_prevent_namespace_deletion(subject: &dyn Subject) {
    let name = format!("{}-held", subject.namespace());
    let namespace = Resource {
        id: format!("v1:Namespace:{name}").as_str().into(),
        attributes: object(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})),
        ..config_map(subject, "namespace", "")
    };
    let ours = bring(subject, &namespace, None).await;
    let mut theirs = config_map(subject, "held", "a");
    theirs.attributes["metadata"]["namespace"] = name.clone().into();
    theirs.id = format!("v1:ConfigMap:{name}:conformance-held").as_str().into();
    let request = ApplyRequest::new(&theirs, None);
    let applied = try_to_apply(subject, deployment("two"), &request).await.expect("it is nobody's");

    let refusal = async |owner: Owner| {
        let held =
            subject.runtime_of(owner).kubernetes().foreign_contents(&ours, &Cascade::Namespace(name.clone())).await;
        held.expect("the infrastructure is there").refusal(&ours)
    };
    let told = refusal(deployment("one")).await.expect("another deployment has something in it");
    assert!(told.contains("(ConfigMap conformance-held of conformance/two/dev);"), "{told}");
    assert_eq!(refusal(deployment("two")).await, None, "it has nothing but its own in it");
    let runtime = subject.runtime();
    let refused = match runtime.delete(&ours).await {
        Ok(_) => runtime.finish(&Grant::unlimited()).await.map(drop),
        Err(error) => Err(error),
    };
    assert!(matches!(&refused, Err(RuntimeError::ForeignContents(message)) if *message == told), "{refused:?}");
    let before = [live(subject, &namespace, None).await, live(subject, &theirs, None).await];
    assert!(before.iter().all(|live| matches!(live, Live::Present(_))), "{before:?}");

    let mut says_so = ours.clone();
    says_so.extensions.insert(DELETE_CONTENTS.to_owned(), "true".into());
    remove(subject, &says_so).await;
    // A deferred change reaches no cluster, which deleted it with its namespace.
    assert_eq!(remove_of(subject, deployment("two"), &recorded(&theirs, &applied)).await, None);
    assert_eq!(live(subject, &theirs, None).await, Live::Absent);
    let again = bring(subject, &namespace, None).await;
    remove(subject, &again).await;
}

/// A missing object reads as [`Live::Absent`].
pub async fn missing_object_reads_as_absent(subject: &dyn Subject) {
    assert_eq!(live(subject, &config_map(subject, "absent", "a"), None).await, Live::Absent);
}

/// Answers come in the order of the requests, for wanted and for recorded resources, and none for
/// no request.
pub async fn answers_keep_request_order(subject: &dyn Subject) {
    let (there, not) = (config_map(subject, "order-there", "a"), config_map(subject, "order-not", "a"));
    let prior = bring(subject, &there, None).await;
    let requests = [
        ReadRequest { desired: Some(&not), prior: None },
        ReadRequest { desired: None, prior: Some(&prior) },
        ReadRequest { desired: Some(&not), prior: None },
        ReadRequest { desired: Some(&there), prior: Some(&prior) },
    ];
    let answers = subject.runtime().read(&requests).await.expect("the infrastructure is there");
    let present: Vec<bool> = answers.iter().map(|answer| matches!(answer, Ok(Live::Present(_)))).collect();
    assert_eq!(present, [false, true, false, true]);
    assert!(subject.runtime().read(&[]).await.expect("nothing is asked").is_empty());
    remove(subject, &prior).await;
}

/// An applied object is live with the wanted fields, and reports its location.
pub async fn applied_object_is_live(subject: &dyn Subject) {
    let desired = config_map(subject, "applied", "a");
    let runtime = subject.runtime();
    let applied = apply(&*runtime, &desired, None).await;
    runtime.finish(&Grant::unlimited()).await.expect("a run finishes");
    assert_eq!(applied.live.get("data"), desired.attributes.get("data"));
    let object = applied.kubernetes.clone().expect("a ConfigMap is a Kubernetes object");
    assert_eq!((object.group.as_str(), object.version.as_str(), object.kind.as_str()), ("", "v1", "ConfigMap"));
    assert_eq!((object.namespace.as_str(), object.name.as_str()), (subject.namespace(), "conformance-applied"));
    let prior = recorded(&desired, &applied);
    assert_eq!(data(&live(subject, &desired, Some(&prior)).await), json!({"key": "a"}));
    remove(subject, &prior).await;
}

/// A second call with the same request changes nothing.
pub async fn second_apply_changes_nothing(subject: &dyn Subject) {
    let desired = config_map(subject, "twice", "a");
    let prior = bring(subject, &desired, None).await;
    let before = live(subject, &desired, Some(&prior)).await;
    // Once as after a crash, when nothing was recorded, and once as in a later run.
    bring(subject, &desired, None).await;
    bring(subject, &desired, Some(&prior)).await;
    assert_eq!(live(subject, &desired, Some(&prior)).await, before);
    remove(subject, &prior).await;
}

/// Applying removes what was recorded and is no longer wanted.
pub async fn dropped_field_is_removed(subject: &dyn Subject) {
    let mut desired = config_map(subject, "field", "a");
    desired.attributes.insert("data".to_owned(), json!({"key": "a", "old": "b"}));
    let prior = bring(subject, &desired, None).await;
    desired.attributes.insert("data".to_owned(), json!({"key": "c"}));
    let prior = bring(subject, &desired, Some(&prior)).await;
    assert_eq!(data(&live(subject, &desired, Some(&prior)).await), json!({"key": "c"}));
    remove(subject, &prior).await;
}

/// A preview shows the result of an apply.
pub async fn preview_shows_apply_result(subject: &dyn Subject) {
    let before = config_map(subject, "preview", "a");
    let prior = bring(subject, &before, None).await;
    let desired = config_map(subject, "preview", "b");
    let Live::Present(object) = live(subject, &desired, Some(&prior)).await else { panic!("it was applied") };
    let request = ApplyRequest::new(&desired, Some(&prior));
    let preview = subject.runtime().preview(&request, Some(&object)).await.expect("a good resource is previewed");
    let Preview::Changed(object) = preview else { panic!("{preview:?} of what can be changed") };
    assert_eq!(object.get("data"), Some(&json!({"key": "b"})));
    remove(subject, &prior).await;
}

/// A preview changes nothing, whether the resource exists or not.
pub async fn preview_changes_nothing(subject: &dyn Subject) {
    let desired = config_map(subject, "unchanged", "a");
    let runtime = subject.runtime();
    let request = ApplyRequest::new(&desired, None);
    runtime.preview(&request, None).await.expect("a good resource is previewed");
    runtime.finish(&Grant::unlimited()).await.expect("a run finishes");
    assert_eq!(live(subject, &desired, None).await, Live::Absent);

    let prior = bring(subject, &desired, None).await;
    let before = live(subject, &desired, Some(&prior)).await;
    let other = config_map(subject, "unchanged", "b");
    let runtime = subject.runtime();
    let request = ApplyRequest::new(&other, Some(&prior));
    runtime.preview(&request, None).await.expect("a good resource is previewed");
    runtime.finish(&Grant::unlimited()).await.expect("a run finishes");
    assert_eq!(live(subject, &desired, Some(&prior)).await, before);
    remove(subject, &prior).await;
}

/// An existing object without a record is adopted.
pub async fn existing_object_is_adopted(subject: &dyn Subject) {
    let desired = config_map(subject, "adopt", "a");
    bring(subject, &desired, None).await;
    let mut wanted = desired.clone();
    wanted.attributes.insert("data".to_owned(), json!({"key": "a", "more": "b"}));
    let runtime = subject.runtime();
    let request = ApplyRequest::adopting(&wanted);
    let applied = runtime.apply(&request).await.expect("it is adopted");
    runtime.finish(&Grant::unlimited()).await.expect("a run finishes");
    let prior = recorded(&wanted, &applied);
    assert_eq!(data(&live(subject, &wanted, Some(&prior)).await), json!({"key": "a", "more": "b"}));
    remove(subject, &prior).await;
}

/// A deleted object is gone when the run is finished.
pub async fn deleted_object_is_absent(subject: &dyn Subject) {
    let desired = config_map(subject, "deleted", "a");
    let prior = bring(subject, &desired, None).await;
    remove(subject, &prior).await;
    assert_eq!(live(subject, &desired, Some(&prior)).await, Live::Absent);
}

/// An absent object counts as deleted.
pub async fn second_deletion_succeeds(subject: &dyn Subject) {
    let desired = config_map(subject, "deleted-twice", "a");
    let prior = bring(subject, &desired, None).await;
    remove(subject, &prior).await;
    remove(subject, &prior).await;
}

/// A wait for a deleted object ends at once, even if another one has its name.
pub async fn wait_for_deleted_object_ends(subject: &dyn Subject) {
    let desired = config_map(subject, "gone", "a");
    let runtime = subject.runtime();
    let applied = apply(&*runtime, &desired, None).await;
    runtime.finish(&Grant::unlimited()).await.expect("a run finishes");
    remove(subject, &recorded(&desired, &applied)).await;
    let gone = applied.kubernetes.expect("a ConfigMap is a Kubernetes object");
    subject.runtime().wait_deleted(&gone, &|_| {}).await.expect("it is gone");
    let prior = bring(subject, &desired, None).await;
    subject.runtime().wait_deleted(&gone, &|_| {}).await.expect("another has its name");
    remove(subject, &prior).await;
}

/// A permanently invalid object is rejected by preview and apply, without a retry.
pub async fn object_without_name_is_rejected(subject: &dyn Subject) {
    let mut desired = config_map(subject, "unnamed", "a");
    desired.attributes.insert("metadata".to_owned(), json!({"namespace": subject.namespace()}));
    let runtime = subject.runtime();
    let request = ApplyRequest::new(&desired, None);
    let of_preview = runtime.preview(&request, None).await.expect_err("it has no name");
    let of_apply = runtime.apply(&request).await.expect_err("it has no name");
    for err in [of_preview, of_apply] {
        assert!(!err.is_retryable(), "{err:?}");
        assert!(matches!(err, RuntimeError::Invalid { .. } | RuntimeError::Rejected { .. }), "{err:?}");
    }
}

/// Waiting for health ends, and its last report is what it returns.
pub async fn health_is_reported(subject: &dyn Subject) {
    let desired = config_map(subject, "health", "a");
    let runtime = subject.runtime();
    let applied = apply(&*runtime, &desired, None).await;
    runtime.finish(&Grant::unlimited()).await.expect("a run finishes");
    let reports = Mutex::new(Vec::new());
    let report = |health: Health, _: &str| reports.lock().unwrap_or_else(PoisonError::into_inner).push(health);
    let health = runtime.wait_healthy(&desired, &report).await.expect("it can be watched");
    assert!(matches!(health, Health::Current | Health::Unknown), "a ConfigMap is {health}");
    assert_eq!(reports.into_inner().unwrap_or_else(PoisonError::into_inner).last(), Some(&health));
    remove(subject, &recorded(&desired, &applied)).await;
}

/// Calls for different resources may run at once.
pub async fn parallel_applies_succeed(subject: &dyn Subject) {
    let wanted: Vec<Resource> = (0..20).map(|n| config_map(subject, &format!("many-{n}"), &n.to_string())).collect();
    let runtime = subject.runtime();
    let applied = join_all(wanted.iter().map(|desired| apply(&*runtime, desired, None))).await;
    runtime.finish(&Grant::unlimited()).await.expect("a run finishes");
    let priors: Vec<StateResource> =
        wanted.iter().zip(&applied).map(|(desired, applied)| recorded(desired, applied)).collect();
    let requests: Vec<ReadRequest<'_>> = wanted
        .iter()
        .zip(&priors)
        .map(|(desired, prior)| ReadRequest { desired: Some(desired), prior: Some(prior) })
        .collect();
    let answers = subject.runtime().read(&requests).await.expect("the infrastructure is there");
    for (desired, answer) in wanted.iter().zip(answers) {
        assert_eq!(Some(&data(&answer.expect("it is read"))), desired.attributes.get("data"));
    }
    let runtime = subject.runtime();
    for deleted in join_all(priors.iter().map(|prior| delete(&*runtime, prior))).await {
        assert_eq!(deleted.expect("what is recorded is deleted"), Deleted::Gone);
    }
    runtime.finish(&Grant::unlimited()).await.expect("a run finishes");
    let answers = subject.runtime().read(&requests).await.expect("the infrastructure is there");
    assert!(answers.into_iter().all(|answer| matches!(answer, Ok(Live::Absent))));
}

/// However often a run is finished, its changes are written once.
pub async fn second_finish_changes_nothing(subject: &dyn Subject) {
    let desired = config_map(subject, "finish", "a");
    let runtime = subject.runtime();
    let applied = apply(&*runtime, &desired, None).await;
    let first = runtime.finish(&Grant::unlimited()).await.expect("a run finishes");
    let second = runtime.finish(&Grant::unlimited()).await.expect("a run finishes again");
    assert_eq!(first, second);
    remove(subject, &recorded(&desired, &applied)).await;
}

/// A run that made no change finishes, and wrote nothing.
pub async fn run_without_changes_finishes(subject: &dyn Subject) {
    let finished: Finished = subject.runtime().finish(&Grant::unlimited()).await.expect("a run finishes");
    assert_eq!(finished.commit, None);
}

/// Once its grant is over a run that gathered its changes writes none of them.
pub async fn deferred_changes_need_call_lease(subject: &dyn Subject) {
    let desired = config_map(subject, "grant", "a");
    let runtime = subject.runtime();
    let applied = apply(&*runtime, &desired, None).await;
    let finished = runtime.finish(&Grant::until(tokio::time::Instant::now())).await;
    assert_eq!(finished.is_err(), runtime.is_deferred(ResourceType::Kubernetes), "{finished:?}");
    let request = ReadRequest { desired: Some(&desired), prior: None };
    let live = subject.runtime().read(std::slice::from_ref(&request)).await.expect("the infrastructure is there");
    assert_eq!(
        matches!(live.as_slice(), [Ok(Live::Absent)]),
        runtime.is_deferred(ResourceType::Kubernetes),
        "{live:?}"
    );
    remove(subject, &recorded(&desired, &applied)).await;
}
