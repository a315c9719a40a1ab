//! The checks of Kubernetes objects, which have names, owners and contents.

use std::collections::HashSet;

use serde_json::{Value, json};
use stoa_engine::owner::TAKE_OVER_FROM;
use stoa_engine::spec::DELETE_CONTENTS;
use stoa_engine::{Live, Owner, Preview, Resource, StateResource};

use super::{Subject, apply, bring, deployment, live, object, recorded, remove, remove_of, whole};
use crate::{Applied, ApplyRequest, Found, Grant, RuntimeError};

/// Runs the checks of Kubernetes objects, which have names, owners and contents.
pub(super) async fn all(subject: &dyn Subject) {
    applied_object_reports_its_location(subject).await;
    preview_shows_apply_result(subject).await;
    existing_object_is_adopted(subject).await;
    wait_for_deleted_object_ends(subject).await;
    lost_creation_is_found(subject).await;
    applied_object_has_owner_annotation(subject).await;
    object_of_another_deployment_is_not_changed(subject).await;
    object_of_another_deployment_is_taken_over_explicitly(subject).await;
    object_of_another_deployment_is_not_deleted(subject).await;
    object_of_another_deployment_is_not_recovered(subject).await;
    foreign_contents_prevent_namespace_deletion(subject).await;
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

fn data(live: &Live) -> Value {
    match live {
        Live::Present(object) => object.get("data").cloned().unwrap_or_default(),
        other => panic!("{other:?} is not there"),
    }
}

/// A lost creation is found by its id alone, and an absent object is not.
pub async fn lost_creation_is_found(subject: &dyn Subject) {
    let desired = subject.resource("lost", "a");
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
    let mut desired = subject.resource("owner", "a");
    desired.attributes = deployment("other").marked(&desired.attributes);
    let prior = bring(subject, &desired, None).await;
    let owner = deployment("one");
    assert!(owner.has(&prior.live), "{:?}", prior.live);
    assert!(owner.has(&whole(live(subject, &desired, Some(&prior)).await)));
    remove(subject, &prior).await;
}

/// An object of another deployment is not changed, whatever is recorded or planned.
pub async fn object_of_another_deployment_is_not_changed(subject: &dyn Subject) {
    let theirs = subject.resource("theirs", "a");
    let prior = bring(subject, &theirs, None).await;
    let before = live(subject, &theirs, Some(&prior)).await;
    let mut wanted = subject.resource("theirs", "b");
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
    let theirs = subject.resource("taken", "a");
    let old = bring(subject, &theirs, None).await;
    let mut wanted = subject.resource("taken", "b");
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
    let theirs = subject.resource("kept", "a");
    let prior = bring(subject, &theirs, None).await;
    let before = live(subject, &theirs, Some(&prior)).await;
    assert_eq!(remove_of(subject, deployment("two"), &prior).await.as_deref(), Some("conformance/one/dev"));
    assert_eq!(live(subject, &theirs, Some(&prior)).await, before);
    remove(subject, &prior).await;
}

/// A lost call of ours did not make what another deployment has, though its uid may be recorded.
pub async fn object_of_another_deployment_is_not_recovered(subject: &dyn Subject) {
    let theirs = subject.resource("lost-theirs", "a");
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
    let name = format!("{}-held", subject.namespace().expect("the subject has namespaces"));
    let namespace = Resource {
        id: format!("v1:Namespace:{name}").as_str().into(),
        attributes: object(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})),
        ..subject.resource("namespace", "")
    };
    let ours = bring(subject, &namespace, None).await;
    let mut theirs = subject.resource("held", "a");
    theirs.attributes["metadata"]["namespace"] = name.clone().into();
    theirs.id = format!("v1:ConfigMap:{name}:conformance-held").as_str().into();
    let request = ApplyRequest::new(&theirs, None);
    let applied = try_to_apply(subject, deployment("two"), &request).await.expect("it is nobody's");

    let refusal = async |owner: Owner| {
        let held = subject.runtime_of(owner).kubernetes().foreign_contents(&ours, None, &HashSet::new()).await;
        held.expect("the infrastructure is there").refusal
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

/// An applied object reports its location.
pub async fn applied_object_reports_its_location(subject: &dyn Subject) {
    let desired = subject.resource("located", "a");
    let runtime = subject.runtime();
    let applied = apply(&*runtime, &desired, None).await;
    runtime.finish(&Grant::unlimited()).await.expect("a run finishes");
    let object = applied.kubernetes.clone().expect("a ConfigMap is a Kubernetes object");
    assert_eq!((object.group.as_str(), object.version.as_str(), object.kind.as_str()), ("", "v1", "ConfigMap"));
    assert_eq!((Some(object.namespace.as_str()), object.name.as_str()), (subject.namespace(), "conformance-located"));
    remove(subject, &recorded(&desired, &applied)).await;
}

/// A preview shows the result of an apply.
pub async fn preview_shows_apply_result(subject: &dyn Subject) {
    let before = subject.resource("preview", "a");
    let prior = bring(subject, &before, None).await;
    let desired = subject.resource("preview", "b");
    let Live::Present(object) = live(subject, &desired, Some(&prior)).await else { panic!("it was applied") };
    let request = ApplyRequest::new(&desired, Some(&prior));
    let preview = subject.runtime().preview(&request, Some(&object)).await.expect("a good resource is previewed");
    let Preview::Changed(object) = preview else { panic!("{preview:?} of what can be changed") };
    assert_eq!(object.get("data"), Some(&json!({"key": "b"})));
    remove(subject, &prior).await;
}

/// An existing object without a record is adopted.
pub async fn existing_object_is_adopted(subject: &dyn Subject) {
    let desired = subject.resource("adopt", "a");
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

/// A wait for a deleted object ends at once, even if another one has its name.
pub async fn wait_for_deleted_object_ends(subject: &dyn Subject) {
    let desired = subject.resource("gone", "a");
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
