//! Tests of limits: references that expand to too much, in the Spec and in live objects.

use std::collections::BTreeMap;

use serde_json::{Map, json};

use super::*;
use crate::planner::{PlanInput, plan};
use crate::problem::{Problem, reason};
use crate::reference::{Reference, ReferenceError};
use crate::resolve::{Lookup, Resolved, resolve};
use crate::spec::{Resource, Spec};
use crate::{DigestKeys, Live, Owner, State};

const MIB: usize = 1 << 20;

fn id(name: impl std::fmt::Display) -> ResourceId {
    ResourceId(format!("v1:ConfigMap:n:{name}"))
}

fn object(name: &str, x: Value) -> Map<String, Value> {
    let metadata = json!({"name": name, "namespace": "n"});
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": x}});
    object.as_object().unwrap().clone()
}

/// A ConfigMap with this under `data.x`.
fn holding(name: impl std::fmt::Display, x: Value) -> Resource {
    let attributes = object(&name.to_string(), x);
    let kind = crate::ResourceType::Kubernetes;
    Resource { id: id(name), kind, attributes, depends_on: Vec::new(), extensions: Map::new() }
}

fn whole(name: impl std::fmt::Display) -> Value {
    format!("$kusion_path.{}.data.x", id(name)).into()
}

fn inside(name: impl std::fmt::Display) -> String {
    format!("${{kusion_path.{}.data.x}}", id(name))
}

/// What is wrong by the Spec alone, which nobody has to look at anything for: of the Spec, and of a plan that was begun.
fn refused(resources: Vec<Resource>) -> Vec<Problem> {
    let spec = Spec { resources, ..Spec::default() };
    let found = spec.validate(&crate::kind_rules::NoRules).err().unwrap_or_default();
    let (state, owner, keys) = (State::default(), Owner::default(), DigestKeys::new(&[7; 32], &[]));
    let planned = plan(&PlanInput::blind(&spec, &state, &owner, &keys)).err().unwrap_or_default();
    assert_eq!(planned, found);
    found
}

#[track_caller]
fn check(resources: Vec<Resource>, expected: &[(&str, &str, &str)]) {
    let found = refused(resources);
    assert!(found.iter().all(|problem| problem.reason == reason::TOO_LARGE), "{found:?}");
    let told = |it: &Problem| (it.resource_id.clone().unwrap(), it.field.clone(), it.message.clone());
    let expected = expected.iter().map(|(name, field, message)| (id(name), (*field).into(), (*message).into()));
    assert_eq!(found.iter().map(told).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

#[test]
fn nested_text_references_are_limited() {
    let first = holding("a0", "AAAAAAAAAA".into());
    let next = (1..10).map(|n| holding(format!("a{n}"), inside(format!("a{}", n - 1)).repeat(10).into()));
    let message = "the references of the resource expand to more than 16 MiB";
    check(std::iter::once(first).chain(next).collect(), &[("a7", "attributes.data.x", message)]);
}

#[test]
fn nested_lists_and_maps_are_limited() {
    let first = holding("a", json!(vec![0; 1000]));
    let many = |times: usize| vec![first.clone(), holding("b", json!({ "all": vec![whole("a"); times] }))];
    check(many(249), &[]);
    let message = "the references of the resource expand to more than 250000 values";
    check(many(250), &[("b", "attributes.data.x.all[249]", message)]);
}

#[test]
fn limit_of_all_resources_is_reported_once() {
    let first = holding("a", "A".repeat(MIB).into());
    let many = |count: usize| {
        let others = (0..count).map(|n| holding(format!("b{n}"), vec![whole("a"); 10].into()));
        std::iter::once(first.clone()).chain(others).collect()
    };
    check(many(6), &[]);
    let message = "the references of all resources expand to more than 64 MiB";
    check(many(9), &[("b6", "attributes.data.x[4]", message)]);
}

#[test]
fn literal_values_are_not_counted() {
    let long = "A".repeat(20 * MIB);
    let resources = vec![holding("a", "x".into()), holding("b", format!("{long}{}", inside("a")).into())];
    check(resources, &[]);
}

#[test]
fn nesting_depth_is_limited() {
    let chain = |length: usize| {
        let next = (1..=length).map(|n| holding(format!("a{n:04}"), vec![whole(format!("a{:04}", n - 1))].into()));
        std::iter::once(holding("a0000", "leaf".into())).chain(next).collect::<Vec<_>>()
    };
    // The attributes, `data`, and a list for each step.
    let deepest = DEEPEST - 2;
    check(chain(deepest), &[]);
    let name = format!("a{:04}", deepest + 1);
    let message = "with references replaced, it nests more than 64 levels of maps and lists";
    // What comes behind it is not known then, and so on.
    check(chain(deepest * 2), &[(&name, "attributes.data.x[0]", message)]);
    let found = refused(chain(3000));
    assert_eq!(found[0].resource_id, Some(id(&name)), "{found:?}");
}

#[test]
fn references_in_keys_are_limited() {
    let key = inside("a").repeat(17);
    let resources = vec![holding("a", "A".repeat(MIB).into()), holding("b", json!({ (key.clone()): 1 }))];
    let found = refused(resources);
    assert_eq!((found.len(), found[0].reason.as_str()), (1, reason::TOO_LARGE));
    assert_eq!(found[0].field, format!("attributes.data.x[\"{key}\"]"));
}

#[test]
fn live_values_are_counted() {
    let (a, b) = (holding("a", "x".into()), holding("b", json!("")));
    let uid = "${kusion_path.v1:ConfigMap:n:a.metadata.annotations.long}".repeat(17);
    let deep = "$kusion_path.v1:ConfigMap:n:a.status.deep";
    let mut live = object("a", "x".into());
    live["metadata"]["annotations"] = json!({"long": "A".repeat(MIB)});
    live.insert("status".to_owned(), json!({"deep": (0..DEEPEST).fold(json!(1), |inner, _| json!([inner]))}));
    let live = BTreeMap::from([(a.id.clone(), Live::Present(live)), (b.id.clone(), Live::Absent)]);
    for (x, message) in [
        (uid.as_str(), "the references of the resource expand to more than 16 MiB"),
        (deep, "with references replaced, it nests more than 64 levels of maps and lists"),
    ] {
        let spec = Spec { resources: vec![a.clone(), holding("b", x.into())], ..Spec::default() };
        spec.validate(&crate::kind_rules::NoRules).unwrap();
        let record = |name: &str, x: Value| {
            let named = crate::StateResource::named_by(&id(name)).unwrap();
            crate::StateResource { attributes: object(name, x), ..named }
        };
        let state = State { resources: vec![record("a", "x".into())], ..State::default() };
        let (owner, keys) = (Owner::default(), DigestKeys::new(&[7; 32], &[]));
        let input = PlanInput { live: &live, ..PlanInput::blind(&spec, &state, &owner, &keys) };
        // Nothing of it changes, so that what is live holds.
        let problems = plan(&input).unwrap_err();
        let told: Vec<_> = problems.iter().map(|it| (it.reason.as_str(), it.message.as_str())).collect();
        assert_eq!(told, [(reason::TOO_LARGE, message)]);
    }
}

/// Replaces the references of a resource, all of which lead to this.
fn replaced<'r>(
    resource: &'r Resource,
    looked: &Result<Lookup<'_>, ReferenceError>,
    budget: &mut Budget,
) -> Result<Resolved<'r>, Vec<(FieldPath, ReferenceError)>> {
    resolve(resource, &|known| known == id("a").0, &mut |_: &Reference| looked.clone(), budget)
}

#[test]
fn sensitive_paths_are_counted() {
    let field = "f".repeat(MIB);
    let many = holding("b", json!({ (field): vec![whole("a"); 100] }));
    let text = holding("b", json!({ ("f".repeat(MIB)): inside("a").repeat(100) }));
    let secret = Lookup::Known { value: &json!({"p": "x", "q": "y"}), sensitive: vec![FieldPath::of_keys(["p"])] };
    let dangling = Err(ReferenceError::Dangling("it cannot exist".to_owned()));
    for (resource, looked) in
        [(&many, &Ok(Lookup::Unknown)), (&many, &Ok(secret)), (&many, &dangling), (&text, &dangling)]
    {
        let errors = replaced(resource, looked, &mut Budget::default()).unwrap_err();
        assert!(errors.len() < 17, "{} places are kept", errors.len());
        assert!(matches!(errors.last(), Some((_, ReferenceError::TooLarge(TooLarge::Resource(_))))), "{looked:?}");
    }
}

#[test]
fn repeated_resolution_counts_once() {
    let (value, mut budget) = (json!("A".repeat(10 * MIB)), Budget::default());
    let looked = Ok(Lookup::Known { value: &value, sensitive: Vec::new() });
    for _ in 0..20 {
        replaced(&holding("b", whole("a")), &looked, &mut budget).unwrap();
    }
    for n in 0..5 {
        replaced(&holding(n, whole("a")), &looked, &mut budget).unwrap();
    }
    assert!(!budget.is_spent());
    replaced(&holding("c", whole("a")), &looked, &mut budget).unwrap_err();
    assert!(budget.is_spent());
    budget.give_back(&id("c"));
    budget.give_back(&id("b"));
    replaced(&holding("d", whole("a")), &looked, &mut budget).unwrap();
}

#[test]
fn spec_size_limit_fits_stack_folder() {
    assert_eq!(check_spec_size(64 * MIB), Ok(()));
    let told = check_spec_size(64 * MIB + 1).unwrap_err().to_string();
    assert_eq!(told, "the Spec is larger than 64 MiB as JSON; split it into several stacks");
}
