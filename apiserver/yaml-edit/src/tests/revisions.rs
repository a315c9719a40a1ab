//! Documents with known values, and parts that are copied from another text.

use serde_json::{Value, json};

use crate::{Revision, parse, revised};

fn by_name(_: &[String], old: &[Value], new: &[Value]) -> Vec<Option<usize>> {
    let name = |item: &Value| item.get("name").cloned().unwrap_or_else(|| item.clone());
    new.iter().map(|item| old.iter().position(|old| name(old) == name(item))).collect()
}

#[track_caller]
fn check(text: &str, source: &str, new: &Value, expected: &str) {
    let read = |text: &str| parse(text.as_bytes()).unwrap();
    let (old, from) = (read(text), read(source));
    let says = |text: &str| parse(text.as_bytes()).as_ref() == Some(new);
    let revision = Revision { old: &old, new, pairs: &by_name, source: Some((source, &from)), says: &says };
    assert_eq!(revised(text, &revision).unwrap(), expected);
}

#[test]
fn new_parts_bring_their_comments() {
    check(
        "a: 1 # mine\nlist:\n- name: x\n",
        "list:\n  # about x\n  - name: x\n    # about y\n    y: 'no' # kpt-set: ${y}\n  # about z\n  - name: z # beside\n    b: 1\na: 1\nc:\n  d: 1 # one\n",
        &json!({"a": 1, "c": {"d": 1}, "list": [{"name": "x", "y": "no"}, {"name": "z", "b": 1}]}),
        "a: 1 # mine\nlist:\n- name: x\n  # about y\n  y: 'no' # kpt-set: ${y}\n# about z\n- name: z # beside\n  b: 1\nc:\n  d: 1 # one\n",
    );
}

#[test]
fn changed_scalar_brings_its_quotes_and_comment() {
    check(
        "a: 1\nb: 1 # mine\n",
        "a: '2' # two\nb: 3 # three\n",
        &json!({"a": "2", "b": 3}),
        "a: '2' # two\nb: 3 # mine\n",
    );
}

#[test]
fn parts_with_other_values_are_written_anew() {
    check("a: 1\n", "a: 1\nb: 2 # two\n", &json!({"a": 1, "b": 3}), "a: 1\nb: 3\n");
    check("a: 1\n", "x: &x 1\nb: [*x] # two\n", &json!({"a": 1, "b": [1]}), "a: 1\nb:\n- 1\n");
}

#[test]
fn comments_move_only_with_their_item() {
    let text = "ports:\n- port: 80 # web\n- port: 443 # safe\n";
    check(text, "a: 1\n", &json!({"ports": [{"port": 22}, {"port": 80}]}), "ports:\n- port: 22\n- port: 80 # web\n");
}
