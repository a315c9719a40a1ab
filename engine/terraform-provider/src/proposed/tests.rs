//! The table of proposed states, and ignored changes.

use super::ignore::{IgnoreChanges, ignore_changes};
use super::*;
use crate::schema::tests::{block, nested, nested_block};
use crate::value::{Json, Path};

/// The attributes of the table: `a` is optional, `b` computed, `c` both.
fn abc() -> [(&'static str, Attribute); 3] {
    let string = || Attribute::optional(Type::String);
    [("a", string()), ("b", Attribute::computed(Type::String)), ("c", Attribute { computed: true, ..string() })]
}

/// A value from JSON where absent attributes are null.
fn value(schema: &Schema, text: &str) -> Value {
    // A state has computed attributes too, which configuration may not.
    let permissive = Schema { version: 0, block: permitted(schema.block.clone()) };
    permissive.configuration(Value::from_json(Json::parse(text.as_bytes()).unwrap())).unwrap()
}

fn permitted(block: Block) -> Block {
    let attribute = |(name, it): (String, Attribute)| {
        let form = match it.form {
            AttributeForm::Nested(nested) => AttributeForm::Nested(NestedAttributes {
                attributes: nested
                    .attributes
                    .into_iter()
                    .map(|(name, it)| (name, Attribute { optional: true, ..it }))
                    .collect(),
                ..nested
            }),
            form @ AttributeForm::Type(_) => form,
        };
        (name, Attribute { optional: true, form, ..it })
    };
    let nested = |(name, it): (String, NestedBlock)| (name, NestedBlock { block: permitted(it.block), ..it });
    Block {
        attributes: block.attributes.into_iter().map(attribute).collect(),
        blocks: block.blocks.into_iter().map(nested).collect(),
        ..block
    }
}

fn schema(attribute: Attribute) -> Schema {
    Schema { version: 0, block: block(&[("x", attribute)], &[]) }
}

fn block_schema(nesting: Nesting) -> Schema {
    Schema { version: 0, block: block(&[], &[("x", nested_block(nesting, block(&abc(), &[])))]) }
}

#[track_caller]
fn check(schema: &Schema, prior: &str, config: &str, expected: &str) {
    let with = |text: &str| value(schema, &format!("{{\"x\":{text}}}"));
    let found = proposed_new_state(schema, &with(prior), &with(config));
    assert_eq!(found, with(expected), "prior {prior}, config {config}");
    assert!(found.conforms(&schema.block.implied_type()));
}

#[test]
fn computed_attributes_remain_where_configuration_has_none() {
    let [(_, optional), (_, computed), (_, both)] = abc();
    check(&schema(optional.clone()), r#""set""#, "null", "null");
    check(&schema(computed), r#""B""#, "null", r#""B""#);
    check(&schema(both.clone()), r#""set""#, "null", r#""set""#);
    check(&schema(both), r#""set""#, r#""new""#, r#""new""#);
    let unknown = Value::object([("x", Value::Unknown)]);
    assert_eq!(proposed_new_state(&schema(optional), &Value::Null, &unknown), unknown);
}

#[test]
fn creates_and_deletes_have_one_side() {
    let schema = schema(nested(Nesting::Single, &abc()));
    let config = value(&schema, r#"{"x":{"a":"1"}}"#);
    assert_eq!(proposed_new_state(&schema, &Value::Null, &config), config);
    assert_eq!(proposed_new_state(&schema, &config, &Value::Null), Value::Null);
}

#[test]
fn single_objects_recurse() {
    for schema in [schema(nested(Nesting::Single, &abc())), block_schema(Nesting::Single)] {
        let prior = r#"{"a":"1","b":"B","c":"cc"}"#;
        check(&schema, prior, r#"{"a":"1"}"#, prior);
        check(&schema, prior, r#"{"c":"cc"}"#, r#"{"b":"B","c":"cc"}"#);
        check(&schema, prior, "null", "null");
    }
}

#[test]
fn optional_and_computed_objects_vanish_with_their_configuration() {
    let both = Attribute { computed: true, ..nested(Nesting::Single, &abc()) };
    let schema = schema(both);
    check(&schema, r#"{"a":"1","b":"b","c":"c"}"#, "null", "null");
    check(&schema, r#"{"b":"b","c":"1"}"#, "null", r#"{"b":"b","c":"1"}"#);
    check(&schema, "null", "null", "null");
}

#[test]
fn lists_match_by_index_and_maps_by_key() {
    for schema in [schema(nested(Nesting::List, &abc())), block_schema(Nesting::List)] {
        let prior = r#"[{"a":"1","b":"1B"},{"a":"2","b":"2B"}]"#;
        check(
            &schema,
            prior,
            r#"[{"a":"0"},{"a":"1"},{"a":"2"}]"#,
            r#"[{"a":"0","b":"1B"},{"a":"1","b":"2B"},{"a":"2"}]"#,
        );
        check(&schema, prior, "[]", "[]");
    }
    for schema in [schema(nested(Nesting::Map, &abc())), block_schema(Nesting::Map)] {
        let prior = r#"{"k":{"a":"1","b":"1B"},"l":{"b":"2B"}}"#;
        check(&schema, prior, r#"{"j":{"a":"1"},"l":{}}"#, r#"{"j":{"a":"1"},"l":{"b":"2B"}}"#);
    }
}

#[test]
fn sets_match_by_what_is_configured() {
    for schema in [schema(nested(Nesting::Set, &abc())), block_schema(Nesting::Set)] {
        let prior = r#"[{"a":"1","b":"1B"},{"a":"2","b":"2B"}]"#;
        check(&schema, prior, r#"[{"a":"1"},{"a":"3"}]"#, r#"[{"a":"1","b":"1B"},{"a":"3"}]"#);
        check(&schema, r#"[{"a":"1","b":"B","c":"x"}]"#, r#"[{"a":"1"}]"#, r#"[{"a":"1","b":"B","c":"x"}]"#);
        check(&schema, r#"[{"b":"B"}]"#, r#"[{},{"a":"1"}]"#, r#"[{"b":"B"},{"a":"1"}]"#);
        check(&schema, r#"[{"a":"1","b":"B","c":"x"}]"#, r#"[{"a":"1","c":"y"}]"#, r#"[{"a":"1","c":"y"}]"#);
        check(&schema, prior, "[]", "[]");
    }
}

#[test]
fn partners_of_set_elements_are_used_once() {
    let schema = schema(nested(Nesting::Set, &abc()));
    let prior = r#"[{"a":"1","b":"B","c":"x"}]"#;
    check(&schema, prior, r#"[{"a":"1"},{"a":"1","c":"x"}]"#, r#"[{"a":"1","b":"B","c":"x"},{"a":"1","c":"x"}]"#);
}

#[test]
fn ignored_paths_have_their_prior_values() {
    let [(_, a), (_, b), (_, c)] = abc();
    let labels = Attribute::optional(Type::map(Type::String));
    let list = nested(Nesting::List, &abc());
    let schema =
        Schema { version: 0, block: block(&[("a", a), ("b", b), ("c", c), ("labels", labels), ("list", list)], &[]) };
    let prior = value(&schema, r#"{"a":"1","b":"B","c":"c","labels":{"k":"1","l":"2"},"list":[{"a":"1","b":"B"}]}"#);
    let config = value(&schema, r#"{"a":"2","labels":{"k":"3","m":"4"},"list":[{"a":"2"}]}"#);
    let with = |paths: Vec<Path>| ignore_changes(&schema, &prior, &config, &IgnoreChanges::Paths(paths));
    let at = |value: &Value, path: &Path| value.at(path).unwrap().clone();
    let a = Path::attribute("a");
    assert_eq!(at(&with(vec![a.clone()]), &a), Value::string("1"));
    let labels = Path::attribute("labels");
    let ignored = with(["k", "l", "m"].map(|key| labels.clone().key(key)).to_vec());
    assert_eq!(at(&ignored, &labels), Value::map([("k", Value::string("1")), ("l", Value::string("2"))]));
    let inner = Path::attribute("list").index(0).name("a");
    assert_eq!(at(&with(vec![inner.clone()]), &inner), Value::string("1"));
    assert_eq!(with(vec![Path::attribute("list").index(5)]), config);

    let all = ignore_changes(&schema, &prior, &config, &IgnoreChanges::All);
    assert_eq!(at(&all, &a), Value::string("1"));
    assert_eq!(at(&all, &Path::attribute("b")), Value::Null);
    assert_eq!(at(&all, &Path::attribute("c")), Value::string("c"));
    assert_eq!(ignore_changes(&schema, &Value::Null, &config, &IgnoreChanges::All), config);
}
