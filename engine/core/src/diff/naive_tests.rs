//! Tests of list matching against a naive search.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

use super::tests::keys;
use super::*;
use crate::schema::Merge;

/// The straightforward way to compare a list of scalars and of flat maps, which looks through all items for each.
struct Naive<'a> {
    merge: Option<Merge>,
    strict: bool,
    recorded: Option<&'a Map<String, Value>>,
    wanted: &'a Map<String, Value>,
    changes: Vec<FieldChange>,
}

impl Naive<'_> {
    fn list(&mut self, prior: Option<&[Value]>, want: &[Value], have: &[Value]) {
        let at = FieldPath::of_keys(["list"]);
        match lists::matching(self.merge.as_ref(), prior, want, have) {
            lists::Matching::ByKeys { keys, shared } => {
                let position = |items: &[Value], text: &Option<String>| {
                    items.iter().position(|item| lists::key_of(item, &keys) == *text)
                };
                let mut positions = Vec::new();
                for wanted in want {
                    let text = lists::key_of(wanted, &keys);
                    let had = position(have, &text);
                    positions.extend(had);
                    let prior = prior.and_then(|prior| position(prior, &text).map(|found| &prior[found]));
                    let at = at.join(lists::step_to(&keys, text.unwrap()));
                    self.value(&at, prior, wanted, had.map(|found| &have[found]));
                }
                for had in have {
                    let text = lists::key_of(had, &keys);
                    let was_wanted = prior.is_some_and(|prior| position(prior, &text).is_some());
                    if position(want, &text).is_none() && (was_wanted || !shared || self.strict) {
                        self.change(at.join(lists::step_to(&keys, text.unwrap())), Some(had), None);
                    }
                }
                if !positions.is_sorted() {
                    let names =
                        |items: &[Value]| Value::from_iter(items.iter().filter_map(|it| lists::key_of(it, &keys)));
                    self.change(at, Some(&names(have)), Some(&names(want)));
                }
            }
            lists::Matching::Set => {
                for (index, wanted) in want.iter().enumerate().filter(|(_, wanted)| !have.contains(wanted)) {
                    self.change(at.index(index), None, Some(wanted));
                }
                for (index, had) in have.iter().enumerate().filter(|(_, had)| !want.contains(had)) {
                    if self.strict || prior.is_some_and(|prior| prior.contains(had)) {
                        self.change(at.index(index), Some(had), None);
                    }
                }
            }
            lists::Matching::ByPosition => {
                for index in 0..want.len().max(have.len()) {
                    let prior = prior.and_then(|prior| prior.get(index));
                    match want.get(index) {
                        Some(want) => self.value(&at.index(index), prior, want, have.get(index)),
                        None => self.change(at.index(index), have.get(index), None),
                    }
                }
            }
        }
    }

    fn value(&mut self, at: &FieldPath, prior: Option<&Value>, want: &Value, have: Option<&Value>) {
        match (want, have) {
            (Value::Object(want), Some(Value::Object(have))) => {
                for (key, wanted) in want {
                    self.value(&at.key(key), prior.and_then(|it| it.get(key)), wanted, have.get(key));
                }
                for (key, had) in have.iter().filter(|(key, _)| !want.contains_key(*key)) {
                    let was_wanted = prior.is_some_and(|it| it.get(key).is_some());
                    let is_filled = key == "proto" && had == "T";
                    if was_wanted || self.strict || self.merge.is_none() && !is_filled {
                        self.change(at.key(key), Some(had), None);
                    }
                }
            }
            (Value::Null, None | Some(Value::Null)) => {}
            (Value::Null, Some(had)) => {
                if prior.is_some_and(|prior| !prior.is_null()) || self.strict || self.merge.is_none() {
                    self.change(at.clone(), Some(had), None);
                }
            }
            (want, None | Some(Value::Null)) => self.change(at.clone(), None, Some(want)),
            (want, have) if have.is_some_and(|have| equality::same(None, at, want, have)) => {}
            (want, have) => self.change(at.clone(), have, Some(want)),
        }
    }

    fn change(&mut self, path: FieldPath, before: Option<&Value>, after: Option<&Value>) {
        let drift = self.recorded.is_some_and(|recorded| match (path.get(recorded), path.get(self.wanted)) {
            (Some(recorded), Some(wanted)) => recorded == wanted,
            (None, None) => !self.strict || self.merge.is_none() && before.is_some(),
            _ => false,
        });
        let (path, before, after) = (path.to_string(), before.cloned(), after.cloned());
        self.changes.push(FieldChange { path, before, after, drift, ..FieldChange::default() });
    }
}

/// The schema of a kind whose `list` is merged like that.
fn schema(said: &Value) -> Schema {
    let mut list = json!({"type": "array", "items": {"properties": {"proto": {"default": "T"}}}});
    list.as_object_mut().unwrap().extend(said.as_object().cloned().unwrap());
    let kind = json!([{"group": "x.dev", "version": "v1", "kind": "Web"}]);
    let web = json!({"x-kubernetes-group-version-kind": kind, "properties": {"list": list}});
    Schema::of_kind(&json!({"components": {"schemas": {"Web": web}}}), "x.dev", "v1", "Web").unwrap()
}

fn object(list: &[Value]) -> Map<String, Value> {
    let object = json!({"apiVersion": "x.dev/v1", "kind": "Web", "metadata": {"name": "a"}, "list": list});
    object.as_object().cloned().unwrap()
}

fn compared(
    schema: &Schema,
    prior: Option<&[Value]>,
    want: &[Value],
    have: &[Value],
    strict: bool,
) -> (Vec<FieldChange>, Vec<FieldChange>) {
    let (prior, desired, live) = (prior.map(object), object(want), object(have));
    let resolved = Resolved::plain(&desired);
    let id = "x.dev/v1:Web:a".into();
    let comparison = Comparison {
        id: &id,
        kind: ResourceType::Kubernetes,
        prior: prior.as_ref(),
        records: &[],
        unsure: false,
        desired: &resolved,
        live: &live,
        keys: &keys(),
        schema: Some(schema),
    };
    let found = if strict { against_preview(&comparison, &desired) } else { three_way(&comparison) };
    let merge = schema.list(&FieldPath::of_keys(["list"])).cloned();
    let mut naive = Naive { merge, strict, recorded: prior.as_ref(), wanted: &desired, changes: Vec::new() };
    let recorded = prior.as_ref().filter(|_| !strict).map(|prior| prior["list"].as_array().unwrap().as_slice());
    // Equal lists are not looked at.
    if want != have {
        naive.list(recorded, want, have);
    }
    (found, naive.changes)
}

fn scalars() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!(1),
        json!(1.0),
        json!("1"),
        json!(0.0),
        json!(-0.0),
        json!(true),
        json!(null),
        json!("a,b"),
    ])
}

fn items() -> impl Strategy<Value = Value> {
    let name = prop::option::weighted(0.95, "[a-e]");
    let (port, proto) = (prop::option::weighted(0.8, 1..4u8), prop::option::of("[TU]"));
    (name, port, proto, prop::option::of(0..2u8)).prop_map(|(name, port, proto, other)| {
        let fields = [
            ("name", name.map(Value::from)),
            ("port", port.map(Value::from)),
            ("proto", proto.map(Value::from)),
            ("other", other.map(Value::from)),
        ];
        fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    })
}

/// Lists of maps, most of which have names of their own, or of anything.
fn list() -> impl Strategy<Value = Vec<Value>> {
    let unique = |mut items: Vec<Value>| {
        let mut seen = HashSet::new();
        items.retain(|item| seen.insert(item["name"].clone()));
        items
    };
    prop_oneof![
        4 => vec(items(), 0..6).prop_map(unique),
        1 => vec(items(), 0..6),
        2 => vec(scalars(), 0..6),
        1 => vec(prop_oneof![items(), scalars()], 0..6),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn lists_are_compared_like_naive_search(
        prior in prop::option::of(list()),
        want in list(),
        have in list(),
        said in prop::sample::select(vec![
            json!({}),
            json!({"x-kubernetes-list-type": "set"}),
            json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}),
            json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "proto"]}),
        ]),
        strict: bool,
    ) {
        let (found, expected) = compared(&schema(&said), prior.as_deref(), &want, &have, strict);
        prop_assert_eq!(found, expected);
    }
}

/// To look for each item among all others would take long, and hours for the list of `hack/test --all`.
#[test]
fn long_list_of_renamed_items_is_compared() {
    let long = if std::env::var_os("STOA_TEST_ALL").is_some() { 100_000 } else { 20_000 };
    let list = |prefix: &str| (0..long).map(|n| json!({"name": format!("{prefix}{n}")})).collect::<Vec<_>>();
    let (old, new) = (object(&list("old")), object(&list("new")));
    let keyed = json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]});
    let check = |said: Value, prior, live, strict: bool, expected| {
        let (id, desired, schema) = ("x.dev/v1:Web:a".into(), Resolved::plain(&new), Some(&schema(&said)));
        let (kind, keys) = (ResourceType::Kubernetes, &keys());
        let (id, desired) = (&id, &desired);
        let (prior, unsure) = (Some(prior), false);
        let comparison = Comparison { id, kind, prior, records: &[], unsure, desired, live, keys, schema };
        let changes = if strict { against_preview(&comparison, &new) } else { three_way(&comparison) };
        assert_eq!(changes.len(), expected, "{said}");
        changes
    };
    check(json!({}), &old, &old, false, 2 * long);
    check(keyed, &old, &old, true, 2 * long);
    check(json!({"x-kubernetes-list-type": "set"}), &old, &old, false, 2 * long);
    // Of what somebody took away, each is looked up in what is recorded.
    let gone = check(json!({}), &new, &old, false, 2 * long);
    assert_eq!(gone.iter().filter(|change| change.drift).count(), 2 * long);
}
