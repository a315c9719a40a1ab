use proptest::prelude::*;
use serde_json::json;

use super::*;

const FILE: &str = "\
# who asked for this: anna
apiVersion: config.stoa.dev/v1alpha1
kind: Stack
metadata:
  name: web-dev      # the one in Basel
  labels: {team: web, tier: 'front'}
spec:
  # newest first
  workspaces:
  - prod
  - dev    # for now

  description: |
    spec:
      not: here

  generator:
    type: Auto # or Spec
  trigger: \"Manual\"
";

/// Changes the object of `FILE` and compares the lines that differ.
fn check(change: impl FnOnce(&mut Value), expected: &[&str]) {
    let before = parse(FILE.as_bytes()).unwrap();
    let mut after = before.clone();
    change(&mut after);
    let render = |value: &Value| serde_saphyr::to_string(value).unwrap();
    let text = updated(Some(FILE.as_bytes()), Some(&render(&before)), &render(&after)).unwrap();
    assert_eq!(parse(text.as_bytes()), Some(after), "{text}");
    let (old, new): (Vec<&str>, Vec<&str>) = (FILE.lines().collect(), text.lines().collect());
    let removed = old.iter().filter(|line| !new.contains(line)).map(|line| format!("-{line}"));
    let added = new.iter().filter(|line| !old.contains(line)).map(|line| format!("+{line}"));
    assert_eq!(removed.chain(added).collect::<Vec<_>>(), expected, "{text}");
}

#[test]
fn a_scalar_is_replaced_in_its_line() {
    check(
        |value| value["spec"]["generator"]["type"] = json!("KCL"),
        &["-    type: Auto # or Spec", "+    type: KCL # or Spec"],
    );
    check(|value| value["spec"]["trigger"] = json!("Apply"), &["-  trigger: \"Manual\"", "+  trigger: Apply"]);
    check(
        |value| value["metadata"]["name"] = json!("true"),
        &["-  name: web-dev      # the one in Basel", "+  name: \"true\"      # the one in Basel"],
    );
}

#[test]
fn a_list_is_replaced_as_a_whole() {
    check(|value| value["spec"]["workspaces"] = json!(["prod"]), &["-  - dev    # for now"]);
}

#[test]
fn braces_stay_braces() {
    check(
        |value| value["metadata"]["labels"]["zone"] = json!("a, b"),
        &["-  labels: {team: web, tier: 'front'}", "+  labels: {team: web, tier: front, zone: \"a, b\"}"],
    );
}

#[test]
fn a_field_is_added_and_removed_where_it_belongs() {
    check(
        |value| value["spec"]["generator"]["parameters"] = json!({"cell": "c1"}),
        &["+    parameters:", "+      cell: c1"],
    );
    check(
        |value| drop(value["spec"].as_object_mut().unwrap().remove("description")),
        &["-  description: |", "-    spec:", "-      not: here"],
    );
    check(
        |value| value["spec"]["description"] = json!("short"),
        &["-  description: |", "-    spec:", "-      not: here", "+  description: short"],
    );
}

#[test]
fn what_the_file_never_said_stays_unsaid() {
    // The object has a default that the file does not have.
    let before = "spec:\n  path: a\n  trigger: Manual\n";
    let after = "spec:\n  path: b\n  trigger: Manual\n";
    let current = "spec:\n  path: a # here\n";
    assert_eq!(updated(Some(current.as_bytes()), Some(before), after).as_deref(), Some("spec:\n  path: b # here\n"));
}

#[test]
fn what_cannot_be_edited_is_written_anew() {
    for current in ["replicas: [\n", "- a\n", "a: &x 1\nb: *x\n", "text\n", "", "\u{0}"] {
        assert_eq!(
            updated(Some(current.as_bytes()), Some("a: 1\n"), "a: 2\n").as_deref(),
            Some("a: 2\n"),
            "{current:?}"
        );
    }
    assert_eq!(updated(Some(b"\xff"), Some("a: 1\n"), "a: 2\n").as_deref(), Some("a: 2\n"));
    assert_eq!(updated(None, None, "a: 2\n").as_deref(), Some("a: 2\n"));
    assert_eq!(updated(Some(b"# note\na: 2"), None, "a: 2\n"), None);
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[ -~]{0,12}".prop_map(Value::from),
        "([a-z#:]{0,6}\n){1,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            fields(inner).prop_map(Value::from),
        ]
    })
}

fn fields(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    proptest::collection::btree_map("[a-e]|[a-c: ]{1,4}", value, 0..5).prop_map(Map::from_iter)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// A file that says what the object was says what the object is afterwards.
    #[test]
    fn the_result_says_what_it_should(before in fields(value()), after in fields(value())) {
        let render = |fields: &Map<String, Value>| serde_saphyr::to_string(fields).unwrap();
        let (before_text, after_text) = (render(&before), render(&after));
        prop_assume!(parse(before_text.as_bytes()) == Some(Value::Object(before)));
        prop_assume!(parse(after_text.as_bytes()) == Some(Value::Object(after.clone())));
        let current = format!("# by hand\n{before_text}# the end\n");
        let text = updated(Some(current.as_bytes()), Some(&before_text), &after_text).unwrap_or(current);
        prop_assert_eq!(parse(text.as_bytes()), Some(Value::Object(after)), "{}", text);
    }

    #[test]
    fn any_text_is_answered(current: Vec<u8>, before: String, after: String) {
        let _ = updated(Some(&current), Some(&before), &after);
    }
}
