//! The conformance suite of [`Runtime`]: one function for each sentence of the trait.
//!
//! Start at [`all`]. Each function uses resources of its own, so that they may run at once against one infrastructure.
//!
//! Elsewhere: `kubernetes` has the checks of Kubernetes objects, and `provided` those of runtimes that decide what a
//! change is.

pub mod kubernetes;
pub mod provided;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use stoa_engine::owner::LeftAlone;
use stoa_engine::resolve::Resolved;
use stoa_engine::{DigestKeys, Live, Owner, Resource, ResourceType, StateResource};

use crate::{Applied, ApplyRequest, Deleted, Finished, Grant, Health, ReadRequest, Runtime, RuntimeError};

/// Makes runtimes over the infrastructure under test.
pub trait Subject: fmt::Debug + Send + Sync {
    /// A runtime for a run of its own of that deployment.
    fn runtime_of(&self, owner: Owner) -> Arc<dyn Runtime>;

    /// A runtime for a run of its own.
    fn runtime(&self) -> Arc<dyn Runtime> {
        self.runtime_of(deployment("one"))
    }

    /// The namespace of its objects, which need not exist, where they are Kubernetes objects.
    fn namespace(&self) -> Option<&str> {
        None
    }

    /// A resource with a name and a value. The same name is the same resource.
    fn resource(&self, name: &str, value: &str) -> Resource {
        config_map(self.namespace().expect("the subject has ConfigMaps"), name, value)
    }

    /// The value of a live object.
    fn value(&self, live: &Map<String, Value>) -> Value {
        live.get("data").and_then(|data| data.get("key")).cloned().unwrap_or_default()
    }

    /// The attributes of its resources, where the runtime [decides](crate::ProviderChecks::decides).
    fn provided(&self) -> Option<Provided> {
        None
    }
}

/// Attributes of resources whose runtime decides what a change is.
#[derive(Clone, Copy, Debug)]
pub struct Provided {
    /// The argument with the value.
    pub value: &'static str,
    /// The attribute with the id, which the provider chooses.
    pub id: &'static str,
    /// An argument whose change needs another object.
    pub fixed: &'static str,
    /// A sensitive attribute of every object.
    pub sensitive: &'static str,
}

/// Runs every check that the subject has the resources for.
pub async fn all(subject: &dyn Subject) {
    missing_object_reads_as_absent(subject).await;
    answers_keep_request_order(subject).await;
    applied_object_is_live(subject).await;
    second_apply_changes_nothing(subject).await;
    dropped_field_is_removed(subject).await;
    preview_changes_nothing(subject).await;
    deleted_object_is_absent(subject).await;
    second_deletion_succeeds(subject).await;
    invalid_resource_is_rejected(subject).await;
    health_is_reported(subject).await;
    parallel_applies_succeed(subject).await;
    second_finish_changes_nothing(subject).await;
    run_without_changes_finishes(subject).await;
    deferred_changes_need_call_lease(subject).await;
    if subject.namespace().is_some() {
        kubernetes::all(subject).await;
    }
    if let Some(attributes) = subject.provided() {
        provided::all(subject, attributes).await;
    }
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
pub fn config_map(namespace: &str, name: &str, value: &str) -> Resource {
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
    let record = StateResource::applied(desired, &resolved, applied.live.clone(), &keys).in_cluster(cluster);
    StateResource { provider_state: applied.provider_state.clone(), ..record }
}

async fn apply(runtime: &dyn Runtime, desired: &Resource, prior: Option<&StateResource>) -> Applied {
    prepare(runtime, desired).await.expect("a good resource is prepared");
    let request = ApplyRequest::new(desired, prior);
    runtime.apply(&request).await.expect("a good resource is applied")
}

async fn prepare(runtime: &dyn Runtime, desired: &Resource) -> Result<(), RuntimeError> {
    let mut answers = runtime.providers().prepare(&[desired]).await.expect("the infrastructure is there");
    assert_eq!(answers.len(), 1, "one answer for one resource");
    answers.remove(0)
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

/// A missing object reads as [`Live::Absent`].
pub async fn missing_object_reads_as_absent(subject: &dyn Subject) {
    assert_eq!(live(subject, &subject.resource("absent", "a"), None).await, Live::Absent);
}

/// Answers come in the order of the requests, for wanted and for recorded resources, and none for
/// no request.
pub async fn answers_keep_request_order(subject: &dyn Subject) {
    let (there, not) = (subject.resource("order-there", "a"), subject.resource("order-not", "a"));
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

/// An applied object is live with the wanted value.
pub async fn applied_object_is_live(subject: &dyn Subject) {
    let desired = subject.resource("applied", "a");
    let runtime = subject.runtime();
    let applied = apply(&*runtime, &desired, None).await;
    runtime.finish(&Grant::unlimited()).await.expect("a run finishes");
    assert_eq!(subject.value(&applied.live), "a");
    let prior = recorded(&desired, &applied);
    assert_eq!(subject.value(&whole(live(subject, &desired, Some(&prior)).await)), "a");
    remove(subject, &prior).await;
}

/// A second call with the same request changes nothing. A provider finds an object by its state alone.
pub async fn second_apply_changes_nothing(subject: &dyn Subject) {
    let desired = subject.resource("twice", "a");
    let prior = bring(subject, &desired, None).await;
    let before = live(subject, &desired, Some(&prior)).await;
    // Once as after a crash, when nothing was recorded, and once as in a later run.
    if subject.provided().is_none() {
        bring(subject, &desired, None).await;
    }
    bring(subject, &desired, Some(&prior)).await;
    assert_eq!(live(subject, &desired, Some(&prior)).await, before);
    remove(subject, &prior).await;
}

/// Applying removes what was recorded and is no longer wanted.
pub async fn dropped_field_is_removed(subject: &dyn Subject) {
    let mut desired = subject.resource("field", "a");
    let full = desired.clone();
    match subject.provided() {
        Some(attributes) => drop(desired.attributes.remove(attributes.value)),
        None => drop(desired.attributes.insert("data".to_owned(), json!({"other": "b"}))),
    }
    let prior = bring(subject, &full, None).await;
    let prior = bring(subject, &desired, Some(&prior)).await;
    assert_eq!(subject.value(&whole(live(subject, &desired, Some(&prior)).await)), Value::Null);
    remove(subject, &prior).await;
}

/// A preview changes nothing, whether the resource exists or not.
pub async fn preview_changes_nothing(subject: &dyn Subject) {
    let desired = subject.resource("unchanged", "a");
    let runtime = subject.runtime();
    prepare(&*runtime, &desired).await.expect("a good resource is prepared");
    let request = ApplyRequest::new(&desired, None);
    runtime.preview(&request, None).await.expect("a good resource is previewed");
    runtime.finish(&Grant::unlimited()).await.expect("a run finishes");
    assert_eq!(live(subject, &desired, None).await, Live::Absent);

    let prior = bring(subject, &desired, None).await;
    let before = live(subject, &desired, Some(&prior)).await;
    let other = subject.resource("unchanged", "b");
    let runtime = subject.runtime();
    prepare(&*runtime, &other).await.expect("a good resource is prepared");
    let request = ApplyRequest::new(&other, Some(&prior));
    runtime.preview(&request, None).await.expect("a good resource is previewed");
    runtime.finish(&Grant::unlimited()).await.expect("a run finishes");
    assert_eq!(live(subject, &desired, Some(&prior)).await, before);
    remove(subject, &prior).await;
}

/// A deleted object is gone when the run is finished.
pub async fn deleted_object_is_absent(subject: &dyn Subject) {
    let desired = subject.resource("deleted", "a");
    let prior = bring(subject, &desired, None).await;
    remove(subject, &prior).await;
    assert_eq!(live(subject, &desired, Some(&prior)).await, Live::Absent);
}

/// An absent object counts as deleted.
pub async fn second_deletion_succeeds(subject: &dyn Subject) {
    let desired = subject.resource("deleted-twice", "a");
    let prior = bring(subject, &desired, None).await;
    remove(subject, &prior).await;
    remove(subject, &prior).await;
}

/// A permanently invalid resource is rejected by preview and apply, without a retry.
pub async fn invalid_resource_is_rejected(subject: &dyn Subject) {
    let mut desired = subject.resource("unnamed", "a");
    match subject.provided() {
        Some(attributes) => drop(desired.attributes.insert(attributes.id.to_owned(), "mine".into())),
        None => drop(desired.attributes.insert("metadata".to_owned(), json!({"namespace": subject.namespace()}))),
    }
    let runtime = subject.runtime();
    prepare(&*runtime, &desired).await.expect("its type is known");
    let request = ApplyRequest::new(&desired, None);
    let of_preview = runtime.preview(&request, None).await.expect_err("it is invalid");
    let of_apply = runtime.apply(&request).await.expect_err("it is invalid");
    for err in [of_preview, of_apply] {
        assert!(!err.is_retryable(), "{err:?}");
        assert!(matches!(err, RuntimeError::Invalid { .. } | RuntimeError::Rejected { .. }), "{err:?}");
    }
}

/// Waiting for health ends, and its last report is what it returns.
pub async fn health_is_reported(subject: &dyn Subject) {
    let desired = subject.resource("health", "a");
    let runtime = subject.runtime();
    let applied = apply(&*runtime, &desired, None).await;
    runtime.finish(&Grant::unlimited()).await.expect("a run finishes");
    let reports = Mutex::new(Vec::new());
    let report = |health: Health, _: &str| reports.lock().unwrap_or_else(PoisonError::into_inner).push(health);
    let health = runtime.wait_healthy(&desired, &report).await.expect("it can be watched");
    assert!(matches!(health, Health::Current | Health::Unknown), "it is {health}");
    assert_eq!(reports.into_inner().unwrap_or_else(PoisonError::into_inner).last(), Some(&health));
    remove(subject, &recorded(&desired, &applied)).await;
}

/// Calls for different resources may run at once.
pub async fn parallel_applies_succeed(subject: &dyn Subject) {
    let wanted: Vec<Resource> = (0..20).map(|n| subject.resource(&format!("many-{n}"), &n.to_string())).collect();
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
    for (number, answer) in answers.into_iter().enumerate() {
        assert_eq!(subject.value(&whole(answer.expect("it is read"))), number.to_string());
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
    let desired = subject.resource("finish", "a");
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
    let desired = subject.resource("grant", "a");
    let runtime = subject.runtime();
    let is_deferred = runtime.is_deferred(desired.kind);
    let prior = recorded(&desired, &apply(&*runtime, &desired, None).await);
    let finished = runtime.finish(&Grant::until(tokio::time::Instant::now())).await;
    assert_eq!(finished.is_err(), is_deferred, "{finished:?}");
    let live = live(subject, &desired, Some(&prior)).await;
    assert_eq!(live == Live::Absent, is_deferred, "{live:?}");
    remove(subject, &prior).await;
}
