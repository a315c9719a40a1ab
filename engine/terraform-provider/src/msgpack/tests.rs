//! Exact bytes, tolerance and limits.

use proptest::prelude::*;

use super::{DecodeProblem, decode, encode};
use crate::value::{Dynamic, Number, Type, Value};

fn number(text: &str) -> Value {
    Value::Number(text.parse().unwrap())
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn with_type(ty: Type, value: Value) -> Value {
    Value::Dynamic(Box::new(Dynamic { ty, value }))
}

#[test]
fn each_value_has_one_form() {
    let strings = Type::set(Type::String);
    for (value, ty, form) in [
        (Value::Null, Type::Bool, "c0"),
        (Value::Unknown, strings.clone(), "d40000"),
        (Value::Bool(true), Type::Bool, "c3"),
        (number("127"), Type::Number, "7f"),
        (number("128"), Type::Number, "cc80"),
        (number("65536"), Type::Number, "ce00010000"),
        (number("9223372036854775807"), Type::Number, "cf7fffffffffffffff"),
        (number("-32"), Type::Number, "e0"),
        (number("-33"), Type::Number, "d0df"),
        (number("-129"), Type::Number, "d1ff7f"),
        (number("-32769"), Type::Number, "d2ffff7fff"),
        (number("-9223372036854775808"), Type::Number, "d38000000000000000"),
        (number("0.5"), Type::Number, "cb3fe0000000000000"),
        (number("0.1"), Type::Number, "a3302e31"),
        (Value::Number(Number::from_f64(0.1).unwrap()), Type::Number, "cb3fb999999999999a"),
        (number("9223372036854775808"), Type::Number, "b339323233333732303336383534373735383038"),
        (number("1e20"), Type::Number, "b5313030303030303030303030303030303030303030"),
        (Value::Number(Number::INFINITY), Type::Number, "cb7ff0000000000000"),
        (Value::set([Value::string("b"), Value::string("a")]), strings.clone(), "92a161a162"),
        (
            Value::object([("b", Value::Null), ("a", Value::Bool(false))]),
            Type::object([("a", Type::Bool), ("b", Type::Bool)]),
            "82a161c2a162c0",
        ),
        (Value::Null, Type::Dynamic, "c0"),
        (Value::Unknown, Type::Dynamic, "d40000"),
        (with_type(Type::String, Value::Null), Type::Dynamic, "92c40822737472696e6722c0"),
        (with_type(Type::String, Value::Unknown), Type::Dynamic, "92c40822737472696e6722d40000"),
    ] {
        assert_eq!(hex(&encode(&value, &ty).unwrap()), form, "{value:?}");
        assert_eq!(decode(&bytes(form), &ty).unwrap(), value, "{form}");
    }
}

#[test]
fn long_texts_and_collections_have_longer_lengths() {
    for (length, mark) in [(31, "bf"), (32, "d920"), (256, "da0100"), (65536, "db00010000")] {
        let value = Value::string("x".repeat(length));
        let encoded = encode(&value, &Type::String).unwrap();
        assert!(hex(&encoded).starts_with(mark));
        assert_eq!(decode(&encoded, &Type::String).unwrap(), value);
    }
    for (length, mark) in [(15, "9f"), (16, "dc0010"), (65536, "dd00010000")] {
        let value = Value::List(vec![Value::Null; length]);
        let encoded = encode(&value, &Type::list(Type::Bool)).unwrap();
        assert!(hex(&encoded).starts_with(mark));
        assert_eq!(decode(&encoded, &Type::list(Type::Bool)).unwrap(), value);
    }
}

#[test]
fn other_forms_of_the_same_value_are_accepted() {
    let numbers = Type::set(Type::Number);
    for (form, ty, value) in [
        // A refined unknown, and extensions of other lengths and types.
        ("c7090c8201c202a47072652d", Type::String, Value::Unknown),
        ("d50c0001", Type::String, Value::Unknown),
        ("c80001050a", numbers.clone(), Value::Unknown),
        // Binary data as text, any number form, a text as a type.
        ("c40161", Type::String, Value::string("a")),
        ("d903313030", Type::Number, number("100")),
        ("d300000000000000ff", Type::Number, number("255")),
        ("ca3f000000", Type::Number, number("0.5")),
        ("cb4059000000000000", Type::Number, number("100")),
        ("92a822737472696e6722a161", Type::Dynamic, with_type(Type::String, Value::string("a"))),
        // Unsorted keys, sets in any order with duplicates, bytes after the value, and a decomposed character.
        (
            "82a162c0a161c2",
            Type::object([("a", Type::Bool), ("b", Type::Bool)]),
            Value::object([("a", Value::Bool(false)), ("b", Value::Null)]),
        ),
        ("93020102", numbers.clone(), Value::set([number("1"), number("2")])),
        ("92d40000d40000", numbers, Value::Set(vec![Value::Unknown, Value::Unknown])),
        ("c2ffff", Type::Bool, Value::Bool(false)),
        ("a365cc81", Type::String, Value::string("\u{e9}")),
    ] {
        assert_eq!(decode(&bytes(form), &ty).unwrap(), value, "{form}");
    }
}

#[test]
fn bytes_that_are_no_value_are_rejected() {
    let object = Type::object([("a", Type::list(Type::Bool))]);
    for (form, ty, message) in [
        ("", Type::Bool, "value: the bytes end too early"),
        ("81a161", object.clone(), "a: the bytes end too early"),
        ("81a16191a0", object.clone(), r#"a[0]: byte 0xa0 does not begin "bool""#),
        ("80", object.clone(), "value: attribute \"a\" is missing"),
        ("82a161c0a162c0", object, "value: unexpected attribute \"b\""),
        ("a1ff", Type::String, "value: a text is not UTF-8"),
        ("cb7ff8000000000001", Type::Number, "value: a number has no value"),
        ("92c40122c0", Type::Dynamic, "value: the type of a value cannot be read"),
        ("ddffffffff", Type::list(Type::Bool), "[0]: the bytes end too early"),
        ("dbffffffff", Type::String, "value: the bytes end too early"),
        ("c1", Type::String, r#"value: byte 0xc1 does not begin "string""#),
    ] {
        assert_eq!(decode(&bytes(form), &ty).unwrap_err().to_string(), message, "{form}");
    }
}

#[test]
fn depth_is_limited() {
    let mut deep = Vec::new();
    for _ in 0..1000 {
        deep.extend(bytes("92c411"));
        deep.extend(br#"["list","dynamic"]"#.get(..17).unwrap());
    }
    assert!(decode(&deep, &Type::Dynamic).is_err());
    let mut deep = Vec::new();
    for _ in 0..1000 {
        deep.extend(bytes("92c412"));
        deep.extend(br#"["list","dynamic"]"#);
        deep.push(0x91);
    }
    assert!(matches!(decode(&deep, &Type::Dynamic).unwrap_err().problem, DecodeProblem::TooDeep));
}

#[test]
fn values_of_another_type_are_not_encoded() {
    let object = Type::object([("a", Type::set(Type::Bool))]);
    let of = |value: Value| encode(&value, &object).unwrap_err().to_string();
    assert_eq!(
        of(Value::object([("a", Value::set([Value::string("x")]))])),
        r#"a[0]: the value does not have the form of "bool""#
    );
    assert!(of(Value::object([("b", Value::Null)])).starts_with("value: "));
    assert!(of(Value::Map([("a".to_owned(), Value::Null)].into())).starts_with("value: "));
}

/// Any type without attributes of any type, and a value of it.
fn typed() -> impl Strategy<Value = (Type, Value)> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(|it| (Type::Bool, Value::Bool(it))),
        any::<i64>().prop_map(|it| (Type::Number, Value::number(it))),
        any::<f64>().prop_filter_map("a number", |it| Some((Type::Number, Value::Number(Number::from_f64(it).ok()?)))),
        "-?[0-9]{1,30}\\.[0-9]{1,10}".prop_map(|it| (Type::Number, number(&it))),
        "\\PC{0,40}".prop_map(|it| (Type::String, Value::string(it))),
        Just((Type::String, Value::Null)),
        Just((Type::Number, Value::Unknown)),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        let same = (inner.clone(), 0..4usize, any::<bool>()).prop_map(|((ty, value), count, null)| {
            let mut all = vec![value; count];
            if null {
                all.push(Value::Null);
            }
            (ty, all)
        });
        prop_oneof![
            same.clone().prop_map(|(ty, all)| (Type::list(ty), Value::List(all))),
            same.clone().prop_map(|(ty, all)| (Type::set(ty), Value::set(all))),
            same.prop_map(|(ty, all)| (
                Type::map(ty),
                Value::map((0..).zip(all).map(|(key, it): (i32, _)| (key.to_string(), it)))
            )),
            prop::collection::vec(inner.clone(), 0..4).prop_map(|all| {
                let (types, values) = all.into_iter().unzip();
                (Type::Tuple(types), Value::Tuple(values))
            }),
            prop::collection::btree_map("[a-z]{1,3}", inner.clone(), 0..4).prop_map(|all| {
                let (types, values): (Vec<_>, Vec<_>) =
                    all.into_iter().map(|(name, (ty, value))| ((name.clone(), ty), (name, value))).unzip();
                (Type::object(types), Value::object(values))
            }),
            inner.prop_map(|(ty, value)| (Type::Dynamic, with_type(ty, value))),
        ]
    })
}

proptest! {
    #[test]
    fn values_survive((ty, value) in typed()) {
        prop_assert!(value.conforms(&ty));
        let encoded = encode(&value, &ty).unwrap();
        // A value whose type is any type has no type of its own.
        let simple = |it: &Value| !format!("{it:?}").contains("ty: Dynamic");
        prop_assume!(simple(&value));
        prop_assert_eq!(decode(&encoded, &ty).unwrap(), value);
    }
}
