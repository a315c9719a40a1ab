//! Files of any lines, read as kubectl's own libraries read them (`tests/oracle`).

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use serde_json::{Map, Value, json};
use stoa_yaml::{Cause, Limits, documents};

/// Names the program.
const PROGRAM: &str = "STOA_TEST_ORACLE";
const LIMITS: Limits = Limits { depth: 64, values: 100_000, documents: 100, copied: 1 << 20 };

/// Scalars that are read otherwise than they look.
const SCALARS: &[&str] = &[
    "a",
    "y",
    "n",
    "yes",
    "No",
    "ON",
    "off",
    "true",
    "True",
    "null",
    "~",
    "\"\"",
    "'on'",
    "\"0644\"",
    "0",
    "00",
    "08",
    "0644",
    "0o17",
    "0O17",
    "0x1F",
    "-0x1f",
    "0b101",
    "-0b11",
    "+12",
    "-1",
    "1_000",
    "1__0",
    "_1",
    "1.50",
    "1.0",
    ".5",
    "5.",
    "1e3",
    "1e6",
    "1E-7",
    "1e400",
    "6.8523015e+5",
    "685_230.15",
    "190:20:30",
    "1:2",
    ".inf",
    "-.Inf",
    "2001-01-01",
    "2001-12-14t21:59:43.10-05:00",
    "12345678901",
    "9223372036854775808",
    "123456789012345678901",
    "3.14159265358979",
    "1234567.5",
    "0.0001",
    "0.00001",
    "!!str 1",
    "!!int \"5\"",
    "!!float 1",
    "!!binary aGVsbG8=",
    "<<",
    "=",
    "1-2",
    "--",
    "+",
    ".",
    "..",
    "0x",
    "0b",
    "0b12",
    "0xg",
    "infinity",
    ".nan",
    "x: y",
    "[a, on]",
    "{on: 1, 0644: 2}",
    "&a {x: 1, y: 2}",
    "*a",
    "|\n    text\n    on",
    "a b\n   c",
];

/// The lines of a map. Some of them are no YAML beside others.
fn text() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        12 => (select(SCALARS), select(SCALARS)).prop_map(|(key, value)| format!("{key}: {value}")),
        2 => select(&["<<: *a", "<<: {x: 3, z: 4}", "<<: [{x: 5}, {x: 6, w: 7}]", "<<: 1", "- on", "---", "# on", ""][..]).prop_map(str::to_owned),
        1 => select(SCALARS).prop_map(str::to_owned),
    ];
    let lines = prop::collection::vec(line, 1..6).prop_map(|lines| lines.join("\n"));
    let flow = prop::collection::vec((select(SCALARS), select(SCALARS)), 0..4).prop_map(|entries| {
        let entries: Vec<String> = entries.iter().map(|(key, value)| format!("{key}: {value}")).collect();
        format!("{{{}}}", entries.join(", "))
    });
    prop_oneof![4 => lines.prop_map(|lines| format!("base: &a {{x: 1, on: 2}}\n{lines}\n")), 1 => flow]
}

/// A value as it is in JSON that Go writes: whole numbers have no fraction.
fn as_of_go(value: &Value) -> Value {
    match value {
        Value::Number(number) => {
            number.as_f64().filter(|_| !number.is_i64()).map_or_else(|| value.clone(), Value::from)
        }
        Value::Array(items) => items.iter().map(as_of_go).collect(),
        Value::Object(map) => {
            Value::Object(map.iter().map(|(key, value)| (key.clone(), as_of_go(value))).collect::<Map<_, _>>())
        }
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

/// Each file that both read has the same values. Some are YAML 1.2 alone, such as a key of several lines, and kubectl refuses
/// them.
#[test]
fn files_have_the_values_that_kubectl_reads() {
    let Some(program) = env::var_os(PROGRAM) else {
        eprintln!("skipped: {PROGRAM} does not name the oracle");
        return;
    };
    let mut oracle = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut questions, answers) = (oracle.stdin.take().unwrap(), oracle.stdout.take().unwrap());
    let mut answers = BufReader::new(answers);
    let mut ask = |file: &str| -> Value {
        writeln!(questions, "{}", json!({ "file": file })).unwrap();
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    };
    let config = ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() };
    let runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let (texts, mut runner, mut both) = (text(), runner, 0);
    for _ in 0..2000 {
        let file = texts.new_tree(&mut runner).unwrap().current();
        let theirs = ask(&file);
        let Ok(ours) = documents(&file, &LIMITS, false) else { continue };
        if ours.iter().flat_map(|document| &document.duplicates).any(|it| it.cause != Cause::Merged) {
            continue;
        }
        let ours: Vec<Value> = ours.iter().map(|it| as_of_go(&it.value)).filter(|value| !value.is_null()).collect();
        if theirs.get("error").is_some() {
            continue;
        }
        let theirs = theirs["documents"].as_array().map(Vec::as_slice).unwrap_or_default();
        assert_eq!(ours, theirs.iter().map(as_of_go).collect::<Vec<_>>(), "{file}");
        both += 1;
    }
    assert!(both > 200, "{both} files were read by both");
    drop(questions);
    oracle.wait().unwrap();
}
