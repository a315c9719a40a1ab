//! The checks of runtimes that decide what a change is, and whose objects have a state that they need back.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use stoa_engine::import::IMPORT_ID;
use stoa_engine::planner::{Planned, changes};
use stoa_engine::provider::RESOURCE_TYPE;
use stoa_engine::{
    Action, DigestKeys, FieldChange, FieldPath, Preview, ProviderPlan, ProviderState, Resource, StateResource,
};

use super::{Provided, Subject, apply, bring, delete, live, prepare, recorded, remove, whole};
use crate::{Applied, ApplyRequest, Deleted, Found, Live, ReadRequest, Runtime, RuntimeError};

pub(super) async fn all(subject: &dyn Subject, attributes: Provided) {
    runtime_decides_about_its_resources(subject).await;
    new_object_has_unknown_values(subject, attributes).await;
    plan_is_applied_as_planned(subject, attributes).await;
    applied_object_is_planned_unchanged(subject).await;
    unknown_argument_makes_unknown_value(subject, attributes).await;
    immutable_change_is_planned_as_replacement(subject, attributes).await;
    plan_with_other_values_is_stale(subject, attributes).await;
    deleted_object_is_not_updated(subject).await;
    sensitive_attributes_are_known_by_schema(subject, attributes).await;
    record_without_state_is_not_enough(subject).await;
    state_alone_is_enough(subject).await;
    object_is_searched_by_its_state(subject).await;
    existing_object_is_adopted_by_its_id(subject, attributes).await;
    missing_object_is_not_imported(subject).await;
    unknown_type_is_rejected(subject).await;
}

fn keys() -> DigestKeys {
    DigestKeys::new(&[7; 32], &[])
}

fn path(attribute: &str) -> FieldPath {
    FieldPath::of_keys([attribute])
}

fn with(resource: &Resource, attribute: &str, value: &str) -> Resource {
    let mut changed = resource.clone();
    changed.attributes.insert(attribute.to_owned(), value.into());
    changed
}

/// A plan of a runtime that has read the object, and has made no change.
async fn plan(runtime: &dyn Runtime, request: &ApplyRequest<'_>, live: Option<&Map<String, Value>>) -> ProviderPlan {
    match runtime.preview(request, live).await.expect("a good resource is planned") {
        Preview::Planned(plan) => *plan,
        other => panic!("{other:?} is no plan"),
    }
}

/// The plan of a resource, and its changes as people see them.
async fn shown(
    subject: &dyn Subject,
    desired: &Resource,
    prior: Option<&StateResource>,
) -> (ProviderPlan, Vec<FieldChange>) {
    let runtime = subject.runtime();
    prepare(&*runtime, desired).await.expect("a good resource is prepared");
    let request = [ReadRequest { desired: Some(desired), prior }];
    let read = runtime.read(&request).await.expect("the infrastructure is there").remove(0);
    let before = match read.expect("a good resource is read") {
        Live::Present(object) => Some(object),
        Live::Absent => None,
        Live::Unverified(why) => panic!("it can be read: {why}"),
    };
    let request = ApplyRequest { adopt: prior.is_none() && before.is_some(), ..ApplyRequest::new(desired, prior) };
    let plan = plan(&*runtime, &request, before.as_ref()).await;
    let mut sensitive = runtime.providers().sensitive_paths(desired, &desired.attributes);
    sensitive.extend(before.iter().flat_map(|before| runtime.providers().sensitive_paths(desired, before)));
    let planned = Planned { plan: &plan, live: before.as_ref(), prior, sensitive: &sensitive, keys: &keys() };
    let changes = changes(&desired.id, &planned);
    (plan, changes)
}

async fn apply_planned(
    subject: &dyn Subject,
    desired: &Resource,
    prior: Option<&StateResource>,
    (action, planned): (Action, &[FieldChange]),
) -> Result<Applied, RuntimeError> {
    let runtime = subject.runtime();
    prepare(&*runtime, desired).await.expect("a good resource is prepared");
    let keys = keys();
    let request = ApplyRequest {
        create: action == Action::Create,
        adopt: action == Action::Adopt,
        changes: Some(planned),
        keys: Some(&keys),
        ..ApplyRequest::new(desired, prior)
    };
    runtime.apply(&request).await
}

/// A runtime of providers decides about its resources, and makes changes at once.
pub async fn runtime_decides_about_its_resources(subject: &dyn Subject) {
    let (runtime, kind) = (subject.runtime(), subject.resource("decided", "a").kind);
    assert!(runtime.providers().decides(kind) && !runtime.is_deferred(kind));
}

/// The plan of a new object has the wanted value, and values that are known after apply.
pub async fn new_object_has_unknown_values(subject: &dyn Subject, attributes: Provided) {
    let desired = subject.resource("new", "a");
    let (plan, _) = shown(subject, &desired, None).await;
    assert_eq!((plan.action, subject.value(&plan.after)), (Action::Create, "a".into()));
    assert!(plan.unknown.contains(&path(attributes.id)) && plan.config_unknown.is_empty(), "{plan:?}");
    assert_eq!(plan.after.get(attributes.id), Some(&Value::Null), "null stands at an unknown path");
}

/// An apply makes the planned values, and unknown ones become known.
pub async fn plan_is_applied_as_planned(subject: &dyn Subject, attributes: Provided) {
    let desired = subject.resource("planned", "a");
    let (plan, changes) = shown(subject, &desired, None).await;
    let applied = apply_planned(subject, &desired, None, (plan.action, &changes)).await.expect("it is as planned");
    for (attribute, value) in &plan.after {
        let is_known = !plan.unknown.iter().any(|unknown| unknown.first_key() == Some(attribute));
        assert!(!is_known || applied.live.get(attribute) == Some(value), "{attribute} is {:?}", applied.live);
    }
    assert!(applied.live.get(attributes.id).is_some_and(|id| !id.is_null()), "{:?}", applied.live);
    let prior = recorded(&desired, &applied);
    let changed = subject.resource("planned", "b");
    let (plan, changes) = shown(subject, &changed, Some(&prior)).await;
    assert_eq!(plan.action, Action::Update);
    let paths: Vec<&str> = changes.iter().map(|change| change.path.as_str()).collect();
    assert!(paths.contains(&attributes.value), "{changes:?}");
    let updated = apply_planned(subject, &changed, Some(&prior), (plan.action, &changes)).await;
    let updated = updated.expect("it is as planned");
    assert_eq!(subject.value(&updated.live), "b");
    assert_eq!(updated.live.get(attributes.id), applied.live.get(attributes.id), "it is the same object");
    remove(subject, &recorded(&changed, &updated)).await;
}

/// The plan of an applied object changes nothing.
pub async fn applied_object_is_planned_unchanged(subject: &dyn Subject) {
    let desired = subject.resource("same", "a");
    let prior = bring(subject, &desired, None).await;
    let (plan, changes) = shown(subject, &desired, Some(&prior)).await;
    assert!(plan.action == Action::Unchanged && plan.unknown.is_empty() && changes.is_empty(), "{plan:?} {changes:?}");
    remove(subject, &prior).await;
}

/// An unknown argument makes its value unknown, and is a known part of the plan.
pub async fn unknown_argument_makes_unknown_value(subject: &dyn Subject, attributes: Provided) {
    let mut desired = subject.resource("unknown", "a");
    desired.attributes.insert(attributes.value.to_owned(), Value::Null);
    let unknown = BTreeSet::from([path(attributes.value)]);
    let request = ApplyRequest { unknown: Some(&unknown), ..ApplyRequest::new(&desired, None) };
    let runtime = subject.runtime();
    prepare(&*runtime, &desired).await.expect("a good resource is prepared");
    let plan = plan(&*runtime, &request, None).await;
    assert!(plan.unknown.contains(&path(attributes.value)) && plan.config_unknown == unknown, "{plan:?}");
}

/// An immutable change is a replacement with its reasons, and an update with it is rejected.
pub async fn immutable_change_is_planned_as_replacement(subject: &dyn Subject, attributes: Provided) {
    let desired = with(&subject.resource("fixed", "a"), attributes.fixed, "a");
    let prior = bring(subject, &desired, None).await;
    let changed = with(&desired, attributes.fixed, "b");
    let (plan, changes) = shown(subject, &changed, Some(&prior)).await;
    assert_eq!((plan.action, &plan.replaced_by[..]), (Action::Replace, &[path(attributes.fixed)][..]));
    assert!(plan.unknown.contains(&path(attributes.id)), "the new object has another id: {plan:?}");
    assert!(changes.iter().any(|it| it.path == attributes.fixed && it.forces_replacement), "{changes:?}");
    let before = live(subject, &desired, Some(&prior)).await;
    let refused = apply_planned(subject, &changed, Some(&prior), (Action::Update, &changes)).await;
    let refused = refused.expect_err("it needs another object");
    let names_it = refused.to_string().contains(attributes.fixed);
    assert!(matches!(refused, RuntimeError::Stale(_)) && names_it, "{refused:?}");
    assert_eq!(live(subject, &desired, Some(&prior)).await, before);

    // The engine deletes the former object, then asks for a new one.
    remove(subject, &prior).await;
    let runtime = subject.runtime();
    prepare(&*runtime, &changed).await.expect("a good resource is prepared");
    let request = ApplyRequest { create: true, ..ApplyRequest::new(&changed, None) };
    let applied = runtime.apply(&request).await.expect("it is created");
    assert_ne!(applied.live.get(attributes.id), whole(before).get(attributes.id));
    remove(subject, &recorded(&changed, &applied)).await;
}

/// An apply that would make other values than were approved names them, and changes nothing.
pub async fn plan_with_other_values_is_stale(subject: &dyn Subject, attributes: Provided) {
    let desired = subject.resource("stale", "a");
    let prior = bring(subject, &desired, None).await;
    let (_, approved) = shown(subject, &subject.resource("stale", "b"), Some(&prior)).await;
    let before = live(subject, &desired, Some(&prior)).await;
    let other = subject.resource("stale", "c");
    let refused = apply_planned(subject, &other, Some(&prior), (Action::Update, &approved)).await;
    let refused = refused.expect_err("another value was approved");
    let names_it = refused.to_string().contains(attributes.value);
    assert!(matches!(refused, RuntimeError::Stale(_)) && names_it && !refused.is_retryable(), "{refused:?}");
    assert_eq!(live(subject, &desired, Some(&prior)).await, before);
    remove(subject, &prior).await;
}

/// An object that no longer exists is not created by a planned update.
pub async fn deleted_object_is_not_updated(subject: &dyn Subject) {
    let prior = bring(subject, &subject.resource("vanished", "a"), None).await;
    let changed = subject.resource("vanished", "b");
    let (plan, changes) = shown(subject, &changed, Some(&prior)).await;
    remove(subject, &prior).await;
    let refused = apply_planned(subject, &changed, Some(&prior), (plan.action, &changes)).await;
    assert!(matches!(refused, Err(RuntimeError::Stale(_))), "{refused:?}");
}

/// The schema says which attributes are sensitive, also of values that are not known yet.
pub async fn sensitive_attributes_are_known_by_schema(subject: &dyn Subject, attributes: Provided) {
    let desired = subject.resource("sensitive", "a");
    let runtime = subject.runtime();
    let (plan, _) = shown(subject, &desired, None).await;
    let applied = apply(&*runtime, &desired, None).await;
    for paths in [plan.sensitive, runtime.providers().sensitive_paths(&desired, &applied.live)] {
        assert!(paths.contains(&path(attributes.sensitive)) && !paths.contains(&path(attributes.id)), "{paths:?}");
    }
    assert!(applied.live.get(attributes.sensitive).is_some_and(|value| !value.is_null()));
    remove(subject, &recorded(&desired, &applied)).await;
}

/// Without its state, an object is neither read, changed nor deleted.
pub async fn record_without_state_is_not_enough(subject: &dyn Subject) {
    let desired = subject.resource("stateless", "a");
    let prior = bring(subject, &desired, None).await;
    let sealed = Some(ProviderState::Sealed("sealed".to_owned()));
    for provider_state in [None, sealed] {
        let record = StateResource { provider_state, ..prior.clone() };
        let runtime = subject.runtime();
        let request = [ReadRequest { desired: None, prior: Some(&record) }];
        let read = runtime.read(&request).await.expect("the infrastructure is there").remove(0);
        assert!(read.as_ref().is_err_and(|error| !error.is_retryable()), "{read:?}");
        let applied = runtime.apply(&ApplyRequest::new(&desired, Some(&record))).await;
        assert!(applied.as_ref().is_err_and(|error| !error.is_retryable()), "{applied:?}");
        let deleted = runtime.delete(&record).await;
        assert!(deleted.as_ref().is_err_and(|error| !error.is_retryable()), "{deleted:?}");
    }
    assert!(matches!(live(subject, &desired, Some(&prior)).await, Live::Present(_)), "it stays");
    remove(subject, &prior).await;
}

/// A deletion needs the state, and nothing else of the record but its provider.
pub async fn state_alone_is_enough(subject: &dyn Subject) {
    let desired = subject.resource("alone", "a");
    let prior = bring(subject, &desired, None).await;
    let record = StateResource {
        id: prior.id.clone(),
        kind: prior.kind,
        extensions: prior.extensions.clone(),
        provider_state: prior.provider_state.clone(),
        ..StateResource::default()
    };
    assert_eq!(delete(&*subject.runtime(), &record).await.expect("its state is known"), Deleted::Gone);
    assert_eq!(live(subject, &desired, Some(&prior)).await, Live::Absent);
}

/// An object is found after a lost call by its state alone: without one, and without the object, a call may have created
/// another object.
pub async fn object_is_searched_by_its_state(subject: &dyn Subject) {
    let desired = subject.resource("searched", "a");
    let prior = bring(subject, &desired, None).await;
    let stateless = StateResource { provider_state: None, ..prior.clone() };
    let search = async || {
        let runtime = subject.runtime();
        let found = runtime.inspect(&[&prior, &stateless]).await.expect("the infrastructure is there");
        let found: Vec<Found> = found.into_iter().map(|found| found.expect("it is searched")).collect();
        <[Found; 2]>::try_from(found).expect("one answer for each")
    };
    let [found, unknown] = search().await;
    let Found::Ours(applied) = found else { panic!("{found:?} is ours") };
    assert!(applied.provider_state.is_some() && subject.value(&applied.live) == "a", "{applied:?}");
    assert_eq!(unknown, Found::Unknowable);
    remove(subject, &recorded(&desired, &applied)).await;
    assert_eq!(search().await, [Found::Unknowable, Found::Unknowable]);
}

/// An existing object is adopted by its id, and is then recorded as any other.
pub async fn existing_object_is_adopted_by_its_id(subject: &dyn Subject, attributes: Provided) {
    let before = bring(subject, &subject.resource("adopted", "a"), None).await;
    let object = whole(live(subject, &subject.resource("adopted", "a"), Some(&before)).await);
    let mut desired = subject.resource("adopted", "b");
    desired.extensions.insert(IMPORT_ID.to_owned(), object[attributes.id].clone());
    // A provider may read less of an object that it has not made.
    assert_eq!(whole(live(subject, &desired, None).await).get(attributes.id), object.get(attributes.id));
    let (plan, changes) = shown(subject, &desired, None).await;
    assert_eq!(plan.action, Action::Update);
    let applied = apply_planned(subject, &desired, None, (Action::Adopt, &changes)).await.expect("it is adopted");
    assert_eq!(
        (applied.live.get(attributes.id), subject.value(&applied.live)),
        (object.get(attributes.id), "b".into())
    );
    let prior = recorded(&desired, &applied);
    let (plan, _) = shown(subject, &desired, Some(&prior)).await;
    assert_eq!(plan.action, Action::Unchanged);
    remove(subject, &prior).await;
}

/// An import id without an object reads as nothing, or as an error, and an adoption creates nothing.
pub async fn missing_object_is_not_imported(subject: &dyn Subject) {
    let mut desired = subject.resource("imported", "a");
    desired.extensions.insert(IMPORT_ID.to_owned(), "no-such-object".into());
    let runtime = subject.runtime();
    prepare(&*runtime, &desired).await.expect("its type is known");
    let request = [ReadRequest { desired: Some(&desired), prior: None }];
    let read = runtime.read(&request).await.expect("the infrastructure is there").remove(0);
    assert!(read.as_ref().map_or_else(|error| !error.is_retryable(), |live| *live == Live::Absent), "{read:?}");
    let adopted = runtime.apply(&ApplyRequest::adopting(&desired)).await;
    assert!(adopted.as_ref().is_err_and(|error| !error.is_retryable()), "{adopted:?}");
}

/// A type that the provider does not have is rejected before anything is planned, with the field.
pub async fn unknown_type_is_rejected(subject: &dyn Subject) {
    let mut desired = subject.resource("untyped", "a");
    desired.extensions.insert(RESOURCE_TYPE.to_owned(), "no_such_type".into());
    let error = prepare(&*subject.runtime(), &desired).await.expect_err("there is no such type");
    let field = format!("extensions.{RESOURCE_TYPE}");
    assert!(matches!(&error, RuntimeError::Invalid { field: Some(named), .. } if *named == field), "{error:?}");
    assert!(error.to_string().contains("no_such_type"), "{error}");
}
