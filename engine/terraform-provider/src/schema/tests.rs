//! Types, configuration and attributes by one schema with every kind of nesting.

use super::*;
use crate::value::{Json, Path};

pub(crate) fn nested(nesting: Nesting, attributes: &[(&str, Attribute)]) -> Attribute {
    let attributes = attributes.iter().map(|(name, it)| ((*name).to_owned(), it.clone())).collect();
    Attribute {
        form: AttributeForm::Nested(NestedAttributes { nesting, attributes }),
        ..Attribute::optional(Type::Bool)
    }
}

pub(crate) fn block(attributes: &[(&str, Attribute)], blocks: &[(&str, NestedBlock)]) -> Block {
    Block {
        attributes: attributes.iter().map(|(name, it)| ((*name).to_owned(), it.clone())).collect(),
        blocks: blocks.iter().map(|(name, it)| ((*name).to_owned(), it.clone())).collect(),
        ..Block::default()
    }
}

pub(crate) fn nested_block(nesting: Nesting, block: Block) -> NestedBlock {
    NestedBlock { nesting, block, min_items: 0, max_items: 0 }
}

fn schema() -> Schema {
    let string = || Attribute::optional(Type::String);
    let secret = Attribute { sensitive: true, ..string() };
    let write_only = Attribute { write_only: true, ..string() };
    let of = |nesting| nested_block(nesting, block(&[("a", string()), ("secret", secret.clone())], &[]));
    let any = nested_block(Nesting::List, block(&[("any", Attribute::optional(Type::Dynamic)), ("b", string())], &[]));
    let limited = NestedBlock { min_items: 1, max_items: 2, ..of(Nesting::List) };
    Schema {
        version: 0,
        block: block(
            &[
                ("id", Attribute::computed(Type::String)),
                ("name", Attribute { required: true, optional: false, ..string() }),
                ("map", nested(Nesting::Map, &[("secret", secret.clone()), ("write_only", write_only)])),
                ("set", nested(Nesting::Set, &[("secret", secret.clone())])),
            ],
            &[
                ("any", any),
                ("single", of(Nesting::Single)),
                ("group", of(Nesting::Group)),
                ("list", limited),
                ("block_set", of(Nesting::Set)),
                ("block_map", of(Nesting::Map)),
            ],
        ),
    }
}

fn configuration(text: &str) -> Result<Value, Vec<String>> {
    let value = Value::from_json(Json::parse(text.as_bytes()).unwrap());
    schema().configuration(value).map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

#[test]
fn types_have_all_attributes_and_blocks() {
    insta::assert_snapshot!(schema().block.implied_type(), @r#"["object",{"any":"dynamic","block_map":["map",["object",{"a":"string","secret":"string"}]],"block_set":["set",["object",{"a":"string","secret":"string"}]],"group":["object",{"a":"string","secret":"string"}],"id":"string","list":["list",["object",{"a":"string","secret":"string"}]],"map":["map",["object",{"secret":"string","write_only":"string"}]],"name":"string","set":["set",["object",{"secret":"string"}]],"single":["object",{"a":"string","secret":"string"}]}]"#);
}

#[test]
fn missing_blocks_are_empty_and_missing_attributes_null() {
    let value = configuration(r#"{"name":1,"list":{"a":true}}"#).unwrap();
    assert!(value.conforms(&schema().block.implied_type()), "{value:?}");
    let expected = [("a", Value::string("true")), ("secret", Value::Null)];
    assert_eq!(value.get("list"), Some(&Value::List(vec![Value::object(expected)])));
    assert_eq!(value.get("name"), Some(&Value::string("1")));
    assert_eq!(value.get("single"), Some(&Value::Null));
    assert_eq!(value.get("group"), Some(&Value::object([("a", Value::Null), ("secret", Value::Null)])));
    assert_eq!(value.get("block_set"), Some(&Value::Set(vec![])));
    assert_eq!(value.get("block_map"), Some(&Value::map::<String>([])));
    assert_eq!(value.get("any"), Some(&Value::dynamic(Value::Tuple(vec![]))));
    assert_eq!(value.get("map"), Some(&Value::Null));
    let mut without: std::collections::BTreeMap<_, _> = match value.clone() {
        Value::Object(it) => it,
        other => panic!("{other:?}"),
    };
    for name in ["any", "group", "block_set", "block_map"] {
        without.insert(name.to_owned(), Value::Null);
    }
    assert_eq!(schema().with_empty_blocks(Value::Object(without)), value);
}

#[test]
fn blocks_with_attributes_of_any_type_have_types_of_their_own() {
    let value = configuration(r#"{"name":"n","list":[{}],"any":[{"any":1},{"any":{"k":[true]},"b":"x"}]}"#).unwrap();
    let Some(Value::Dynamic(any)) = value.get("any") else { panic!("{value:?}") };
    insta::assert_snapshot!(any.ty, @r#"["tuple",[["object",{"any":"number","b":"string"}],["object",{"any":["object",{"k":["tuple",["bool"]]}],"b":"string"}]]]"#);
    assert!(any.value.conforms(&any.ty));
    let ty = schema().block.implied_type();
    let bytes = crate::msgpack::encode(&value, &ty).unwrap();
    assert_eq!(crate::msgpack::decode(&bytes, &ty).unwrap(), value);
}

#[test]
fn configuration_errors_name_every_argument() {
    let text = r#"{"id":"x","other":1,"list":[{},{"b":1},{}],"map":{"k":1},"set":{},"single":{"a":[]}}"#;
    insta::assert_snapshot!(configuration(text).unwrap_err().join("\n"), @r#"
    id: the provider computes this attribute; remove it
    map["k"]: an object is required, not a number
    value: argument "name" is required
    set: a set is required, not an object
    list[1]: unknown argument "b"
    list: 3 blocks are not permitted; the schema permits 1 to 2
    single.a: a string is required, not a tuple
    value: unknown argument "other"
    "#);
    let none = configuration(r#"{"name":"n"}"#).unwrap_err().join("\n");
    assert_eq!(none, "list: 0 blocks are not permitted; the schema permits 1 to 2");
    assert_eq!(configuration("[]").unwrap_err(), ["value: an object is required, not a tuple"]);
}

#[test]
fn unknown_parts_of_configuration_remain() {
    let list = Value::Tuple(vec![Value::object([("a", Value::Unknown)])]);
    let value = Value::object([("name", Value::Unknown), ("list", list), ("block_set", Value::Unknown)]);
    let value = schema().configuration(value).unwrap();
    assert!(value.get("name").unwrap().is_unknown() && value.get("block_set").unwrap().is_unknown());
    assert!(value.at(&Path::attribute("list").index(0).name("a")).unwrap().is_unknown());
}

#[test]
fn secret_paths_end_at_sets_and_write_only_values_vanish() {
    let value = configuration(
        r#"{"name":"n","list":[{"secret":"a"},{}],"map":{"k":{"secret":"b","write_only":"c"}},
            "set":[{"secret":"d"},{"secret":"e"}],"block_set":[{"secret":"f"}],"group":{"secret":"g"}}"#,
    )
    .unwrap();
    let print = |paths: Vec<Path>| paths.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let schema = schema();
    assert_eq!(print(schema.sensitive_paths(&value)), r#"map["k"].secret set block_set group.secret list[0].secret"#);
    assert_eq!(print(schema.write_only_paths(&value)), r#"map["k"].write_only"#);
    let stored = schema.without_write_only(value);
    assert!(schema.write_only_paths(&stored).is_empty());
    let path = Path::attribute("map").key("k").name("secret");
    assert_eq!(stored.at(&path), Some(&Value::string("b")));
    assert!(schema.attribute(&path).unwrap().sensitive);
    assert!(schema.attribute(&Path::attribute("list").index(0).name("secret")).unwrap().sensitive);
    assert!(schema.attribute(&Path::attribute("list")).is_none());
}
