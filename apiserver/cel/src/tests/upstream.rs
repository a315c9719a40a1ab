//! Expressions whose outcomes are those of `environment.MustBaseEnvSet` in `k8s.io/apiserver` 0.36.3 with cel-go 0.26.0.
//!
//! `upstream.txt` has an expression on a line and its outcome on the next: a value, as [`shown`] tells it, `error: …`, or
//! `COMPILE` and all that is wrong as JSON. An expression in double quotation marks is JSON itself.
//! One text stands for all reasons why a URL, an address or a version is none.

use super::*;
use crate::{
    budget::Budget,
    eval::{Error, Evaluation},
    functions,
    go::text::shortest,
    value::{Key, Value},
};

const OUTCOMES: &str = include_str!("upstream.txt");

/// A value as an expression would have it, by and large.
fn shown(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => format!("{number}u"),
        Value::Double(number) => format!("d{}", shortest(*number)),
        Value::String(text) => json!(**text).to_string(),
        Value::Bytes(bytes) => format!("b{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
        Value::Optional(None) => "none".to_owned(),
        Value::Optional(Some(value)) => format!("some({})", shown(value)),
        Value::List(list) => format!("[{}]", list.iter().map(|item| shown(&item)).collect::<Vec<_>>().join(", ")),
        Value::Map(map) => {
            let entry = |(key, value): (Key, Value<'_>)| match key {
                Key::String(text) => format!("{}: {}", json!(text), shown(&value)),
                key => format!("{key}: {}", shown(&value)),
            };
            let mut entries: Vec<String> = map.entries().map(entry).collect();
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Type(name) => format!("type {name}"),
        Value::Timestamp(_) | Value::Duration(_) => functions::display(value, &mut Budget::new(1_000)).unwrap(),
        other => format!("<{}>", other.type_name()),
    }
}

fn outcome(source: &str) -> String {
    let declared = Declarations { variables: &["object", "request", "authorizer"], constructs: false };
    let inputs = Policy {
        object: json!({ "s": "x", "i": 1, "l": [1, 2], "m": { "a": 1 }, "n": null }),
        request: json!({}),
        ..Policy::default()
    };
    let expression = match parse(source, &declared) {
        Ok(expression) => expression,
        Err(error) => return format!("COMPILE {}", json!(error.strip_prefix("compilation failed: "))),
    };
    let answers = Answers::new();
    let mut evaluation = Evaluation::new(&inputs, &answers, &[], WHOLE);
    match evaluation.whole(&expression.expr) {
        Ok(value) => shown(&value),
        Err(Error::Message(text)) => format!("error: {}", text.replace('\n', "\\n")),
        Err(other) => format!("{other:?}"),
    }
}

#[test]
fn expressions_have_the_outcomes_that_they_have_in_kubernetes() {
    let lines: Vec<&str> = OUTCOMES.lines().collect();
    assert!(lines.len() > 2_000 && lines.len().is_multiple_of(2), "{}", lines.len());
    for pair in lines.chunks(2) {
        let source: String = serde_json::from_str(pair[0]).unwrap_or_else(|_| pair[0].to_owned());
        assert_eq!(outcome(&source), pair[1], "{source}");
    }
}
