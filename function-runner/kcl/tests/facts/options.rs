//! Options, and the values that callers give.

use serde_json::json;

use crate::support::Expected::{Json, Warned, Wrong};
use crate::support::{Case, check, source};

const TYPED: &[(&str, &str)] = &[(
    "main.k",
    "s = option('s', type='str')\ni = option('i', type='int')\nb = option('b', type='bool')\nl = option('l', type='list')\n\
     d = option('d', type='dict')\n",
)];
const UNTYPED: &[(&str, &str)] = &[("main.k", "a = option('a')\nb = option('b')\n")];
const REQUIRED: &[(&str, &str)] = &[("main.k", "a = option('a', required=True)\n")];

#[test]
fn declared_types_convert() {
    check(&[
        Case {
            options: || {
                vec![
                    ("s", json!("1e3")),
                    ("i", json!("03")),
                    ("b", json!("false")),
                    ("l", json!("[1, \"x\"]")),
                    ("d", json!({"k": [1]})),
                ]
            },
            ..source("texts", TYPED, Json(r#"{"s": "1e3", "i": 3, "b": false, "l": [1, "x"], "d": {"k": [1]}}"#))
        },
        Case {
            options: || vec![("s", json!(1.5)), ("i", json!(9_223_372_036_854_775_807_i64)), ("b", json!(1))],
            ..source("JSON", TYPED, Json(r#"{"s": "1.5", "i": 9223372036854775807, "b": true, "l": null, "d": null}"#))
        },
        Case {
            options: || vec![("b", json!("x"))],
            ..source(
                "wrong boolean",
                TYPED,
                Wrong("Option", ":0:0", r#"parameter "b" is "x", and the option wants a boolean"#),
            )
        },
        Case {
            options: || vec![("i", json!("x"))],
            ..source("wrong integer", TYPED, Wrong("EvaluationError", "main.k:2:1", "cannot use 'x' as type 'int'"))
        },
        Case {
            options: || vec![("i", json!("9223372036854775808"))],
            ..source("large integer", TYPED, Wrong("EvaluationError", "main.k:2:1", "as type 'int'"))
        },
        Case {
            options: || vec![("l", json!("x"))],
            ..source("wrong list", TYPED, Wrong("Option", ":0:0", "the option wants a list in JSON"))
        },
    ]);
}

#[test]
fn numbers_without_a_declared_type_are_numbers() {
    check(&[
        Case {
            options: || vec![("a", json!("3")), ("b", json!("true"))],
            ..source("numbers", UNTYPED, Json(r#"{"a": 3, "b": true}"#))
        },
        Case {
            options: || vec![("a", json!("1e3")), ("b", json!(" 7 "))],
            ..source("texts", UNTYPED, Json(r#"{"a": "1e3", "b": " 7 "}"#))
        },
        Case {
            options: || vec![("a", json!("9223372036854775808")), ("b", json!("x"))],
            ..source("large number", UNTYPED, Json(r#"{"a": "9223372036854775808", "b": "x"}"#))
        },
        Case {
            options: || vec![("a", json!(1)), ("a", json!(2))],
            ..source("given twice", UNTYPED, Json(r#"{"a": 2, "b": null}"#))
        },
        Case {
            options: || vec![("a", json!(1)), ("c", json!(2))],
            ..source("not declared", UNTYPED, Warned(r#"{"a": 1, "b": null}"#, r#"the program has no option "c""#))
        },
        Case {
            options: || vec![("a", json!(1))],
            ..source("syntax", &[("main.k", "map = 1\n")], Wrong("E1001", "main.k:1:5", "expected one of"))
        },
        source(
            "required",
            REQUIRED,
            Wrong("EvaluationError", "main.k:1:1", "option('a') must be initialized, try '-D a=?' argument"),
        ),
    ]);
}
