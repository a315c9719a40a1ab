use std::{cell::Cell, hash::Hasher};

use proptest::prelude::*;
use serde_json::json;

use super::*;

mod flow;
mod revisions;

const FILE: &str = "\
# who asked for this: anna
apiVersion: config.stoa.dev/v1alpha1
kind: Stack
metadata:
  name: web-dev      # the one in Basel
  labels: {tier: 'front', team: web}
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
        &["-  labels: {tier: 'front', team: web}", "+  labels: {tier: 'front', team: web, zone: \"a, b\"}"],
    );
    check(
        |value| value["metadata"]["labels"]["area"] = json!("x"),
        &["-  labels: {tier: 'front', team: web}", "+  labels: {tier: 'front', team: web, area: x}"],
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
    for current in ["replicas: [\n", "- a\n", "text\n", "", "\u{0}", "---\na: 1\n---\na: 1\n"] {
        assert_eq!(
            updated(Some(current.as_bytes()), Some("a: 1\n"), "a: 2\n").as_deref(),
            Some("a: 2\n"),
            "{current:?}"
        );
    }
    assert_eq!(updated(Some(b"\xff"), Some("a: 1\n"), "a: 2\n").as_deref(), Some("a: 2\n"));
    assert_eq!(updated(None, None, "a: 2\n").as_deref(), Some("a: 2\n"));
    assert_eq!(updated(Some(b"# note\na: 2"), None, "a: 2\n"), None);
    assert_eq!(made_to_say(b"# note\na: 2", "a: 2\n"), None);
    let after = "a: 2\nc: 3\n";
    assert_eq!(made_to_say(b"# note\nc: 1 # here\nb: 1\na: 2\n", after).unwrap(), "# note\nc: 3 # here\na: 2\n");
    assert_eq!(made_to_say(b"a: [", after).as_deref(), Some(after));
}

/// What becomes of a file that says what the object is, when that becomes `after`.
#[track_caller]
fn becomes(file: &str, after: Value, expected: &str) {
    let before = parse(file.as_bytes()).unwrap();
    let render = |value: &Value| serde_saphyr::to_string(value).unwrap();
    let text = updated(Some(file.as_bytes()), Some(&render(&before)), &render(&after)).unwrap();
    assert_eq!(text, expected);
    assert_eq!(parse(text.as_bytes()), Some(after));
}

const OWNERS: &str = "\
# top
owners: # who is asked
# the first
- name: ann # since May
  # what she is
  kind: User
# the second

- name: bob
  kind: User # for now
  # his groups
  groups:
  - a # one
  # two
  - b
# nobody else
";

#[test]
fn items_of_lists_keep_their_comments() {
    becomes(
        OWNERS,
        json!({"owners": [
            {"name": "bob", "kind": "Group", "groups": ["b", "c"]},
            {"name": "ann", "kind": "User"},
            {"name": "cy"},
        ]}),
        "\
# top
owners: # who is asked
- name: bob
  kind: Group # for now
  # his groups
  groups:
  # two
  - b
  - c
# the first
- name: ann # since May
  # what she is
  kind: User
# the second

- name: cy
# nobody else
",
    );
    becomes(
        "owners:\n- name: ann # x\n  # kept\n  kind: User\n- name: bob\n",
        json!({"owners": [{"kind": "User"}, {"name": "bob"}]}),
        "owners:\n- kind: User\n- name: bob\n",
    );
    becomes("a:\n  - 1 # x\n  - 2 # y\nb: 3\n", json!({"a": [], "b": 3}), "a: []\nb: 3\n");
    becomes("a: [1,\n  2] # x\n", json!({"a": [1]}), "a: [1] # x\n");
}

#[test]
fn a_key_goes_with_its_comments_and_no_others() {
    becomes(
        "# top\na: 1\nspec:\n  # about b\n\n  # on b\n  b: 2 # beside b\n  # on c\n  c: 3\n",
        json!({"spec": {"c": 3}}),
        "# top\nspec:\n  # about b\n\n  # on c\n  c: 3\n",
    );
    becomes("a: # why\n  b: 1\nc: 1\n", json!({"a": {}, "c": 1}), "a: {} # why\nc: 1\n");
    becomes("a: # why\n  b: 1\nc: 1\n", json!({"a": 2, "c": 1}), "a: 2 # why\nc: 1\n");
}

#[test]
fn long_texts_keep_their_form() {
    becomes(
        "a: | # why\n    one\n    two\n\nb: >-\n  x\n  y\n",
        json!({"a": "one\n\n  three\n", "b": "x y"}),
        "a: | # why\n    one\n\n      three\n\nb: >-\n  x\n  y\n",
    );
    becomes("a: |\n  one\n  two\nb: 1\n", json!({"a": "one\ntwo", "b": 1}), "a: |-\n  one\n  two\nb: 1\n");
    becomes("a: one # why\n", json!({"a": "one\ntwo\n"}), "a: | # why\n  one\n  two\n");
}

#[test]
fn white_space_that_is_none_to_yaml_is_text() {
    for space in ["\u{2028}", "\u{2029}", "\u{a0}", "\u{3000}"] {
        let file = format!("a: x{space} # why\nb: 1\n");
        becomes(&file, json!({"a": "z", "b": 1}), "a: z # why\nb: 1\n");
        let file = format!("a: x{space} # why{space}\n# on{space}b\nb: 1\n");
        becomes(&file, json!({"a": format!("x{space}"), "b": 2}), &file.replace("b: 1", "b: 2"));
    }
}

#[test]
fn anchors_stay_unless_what_they_stand_for_changes() {
    let file = "a: &x\n  k: 1 # why\nb: *x # same\nc: 2\n";
    let both = json!({"k": 1});
    becomes(file, json!({"a": both, "b": both, "c": 3}), &file.replace("c: 2", "c: 3"));
    becomes(file, json!({"a": both, "b": {"k": 2}, "c": 2}), "a: &x\n  k: 1 # why\nb: # same\n  k: 2\nc: 2\n");
    becomes(file, json!({"a": {"k": 2}, "b": both, "c": 2}), "a:\n  k: 2\nb:\n  k: 1\nc: 2\n");
    becomes(file, json!({"b": both, "c": 2}), "b:\n  k: 1\nc: 2\n");
}

#[test]
fn what_a_merge_key_brings_stays() {
    let file = "a: &x {z: 1, k: 1} # why\nb:\n  <<: *x # those\n  # own\n  c: 2\n";
    let a = json!({"z": 1, "k": 1});
    let expected = file.replace("c: 2", "c: 3\n  d: 4");
    becomes(file, json!({"a": a, "b": {"z": 1, "k": 1, "c": 3, "d": 4}}), &expected);
    becomes(file, json!({"a": a, "b": {"z": 5, "k": 1, "c": 2}}), &file.replace("c: 2", "c: 2\n  z: 5"));
    // One of them cannot go alone.
    becomes(file, json!({"a": a, "b": {"c": 2, "k": 1}}), "a: &x {z: 1, k: 1} # why\nb:\n  c: 2\n  k: 1\n");
    let file = "a: &x {z: 1} # why\nb: {<<: *x, c: 2} # those\n";
    becomes(file, json!({"a": {"z": 1}, "b": {"z": 1, "c": 3}}), "a: &x {z: 1} # why\nb: {c: 3, z: 1} # those\n");
}

#[test]
fn what_has_no_value_gets_one() {
    let file = "a: # why\nb:\nc: &x\nd: |\ne:\n-  # this\n- &y\n";
    becomes(
        file,
        json!({"a": 1, "b": ["x"], "c": "w", "d": "z", "e": [null, null]}),
        "a: 1 # why\nb:\n- x\nc: &x w\nd: z\ne:\n-  # this\n- &y\n",
    );
    becomes(file, json!({"a": null, "b": null, "c": null, "e": [null, null]}), &file.replace("d: |\n", ""));
}

#[test]
fn what_is_written_anew_has_its_old_order() {
    becomes(
        "z: 1\nspec:\n  ? z\n  : w: 1\n    b: 2\n  a: 3\nkind: x\n",
        json!({"z": 1, "spec": {"z": {"b": 3, "w": 1, "a": 1}, "a": 3, "c": 4}, "kind": "x"}),
        "z: 1\nspec:\n  z:\n    w: 1\n    b: 3\n    a: 1\n  a: 3\n  c: 4\nkind: x\n",
    );
    becomes(
        "z: 1\ns:\n  y: &x [2]\n  m: {<<: {k: 1, f: 2}, c: 3}\n  a: 1\nb: 1\n",
        json!({"z": 1, "s": {"y": [2], "m": {"f": 2, "c": 3, "a": 4}, "a": 1}, "b": 1}),
        "z: 1\ns:\n  y: &x [2]\n  m: {c: 3, a: 4, f: 2}\n  a: 1\nb: 1\n",
    );
    becomes(
        "l:\n  - {z: 1, a: {y: 1, b: 1}}\n  - z: &x\n    a: 1\n",
        json!({"l": [{"a": {"y": 1, "c": 2}, "z": "one\ntwo\n"}, {"z": null, "a": 1}]}),
        "l:\n  - {z: \"one\\ntwo\\n\", a: {\"y\": 1, c: 2}}\n  - z: &x\n    a: 1\n",
    );
}

#[test]
fn there_may_be_any_number_of_comments() {
    let comments: String = (0..500).map(|number| format!("  # {number}\n")).collect();
    let file = format!("a:\n{comments}  b: 1\nc: [\n{comments}  1,\n]\n");
    becomes(&file, json!({"a": {"b": 2}, "c": [3]}), &file.replace("b: 1", "b: 2").replace("1,\n]", "3,\n]"));
}

#[test]
fn marks_around_the_document_stay() {
    becomes("---\n# top\na: 1\n...\n", json!({"a": 2}), "---\n# top\na: 2\n...\n");
    becomes("%YAML 1.2\n---\na: 1 # x", json!({"a": 1, "b": 2}), "%YAML 1.2\n---\na: 1 # x\nb: 2\n");
}

#[test]
fn defaults_of_items_do_not_come_into_the_file() {
    let file = "list:\n- name: a # x\n- name: b\n";
    let before = "list:\n- name: a\n  kind: User\n- name: b\n  kind: User\n";
    let after = "list:\n- name: a\n  kind: User\n- name: b\n  kind: Group\n";
    let expected = "list:\n- name: a # x\n- name: b\n  kind: Group\n";
    assert_eq!(updated(Some(file.as_bytes()), Some(before), after).as_deref(), Some(expected));
}

/// An object as people may write it: mappings, lists of texts, lists of named things.
fn authored() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<i16>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        "[a-z :#-]{0,8}".prop_map(Value::from),
        "([a-z]{1,6}\n){1,3}".prop_map(Value::from),
        proptest::collection::btree_set("[a-e]{1,2}", 0..4).prop_map(|items| items.into_iter().collect()),
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        let mapping = proptest::collection::btree_map("[a-e]", inner.clone(), 1..4);
        let named = proptest::collection::btree_map("[a-d]", mapping.clone(), 0..4).prop_map(|items| {
            let named = |(name, fields)| {
                let mut fields: Map<String, Value> = Map::from_iter::<std::collections::BTreeMap<_, _>>(fields);
                fields.insert("name".to_owned(), Value::String(name));
                Value::Object(fields)
            };
            items.into_iter().map(named).collect()
        });
        prop_oneof![mapping.prop_map(|fields| Map::from_iter(fields).into()), named]
    })
}

fn document() -> impl Strategy<Value = Map<String, Value>> {
    proptest::collection::btree_map("[a-e]", authored(), 1..5).prop_map(Map::from_iter)
}

/// Writes a value with a comment above every key and item, and beside every scalar.
fn write(out: &mut String, column: usize, path: &str, value: &Value) {
    let indent = " ".repeat(column);
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            out.push('\n');
            for (key, value) in fields {
                let path = format!("{path}/{key}");
                out.push_str(&format!("{indent}# above {path}.\n{indent}{key}:"));
                write(out, column + 2, &path, value);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            for item in items {
                let name = item.get("name").unwrap_or(item);
                let path = format!("{path}/{name}");
                out.push_str(&format!("{indent}# above {path}.\n{indent}-"));
                match item {
                    Value::Object(_) => {
                        let mut inner = String::new();
                        write(&mut inner, column + 2, &path, item);
                        out.push_str(&inner);
                    }
                    item => write(out, column + 2, &path, item),
                }
            }
        }
        Value::String(text) if text.contains('\n') => {
            out.push_str(&format!(" | # beside {path}.\n"));
            text.lines().for_each(|line| out.push_str(&format!("{indent}{line}\n")));
        }
        scalar => out.push_str(&format!(" {scalar} # beside {path}.\n")),
    }
}

/// The comments of what is in both.
fn kept(path: &str, before: &Value, after: &Value, comments: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            for (key, value) in old {
                if let Some(new) = new.get(key) {
                    comments.push(format!("# above {path}/{key}."));
                    kept(&format!("{path}/{key}"), value, new, comments);
                }
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            let name = |item: &Value| item.get("name").unwrap_or(item).clone();
            for item in old {
                let is_same = |new: &&Value| name(new) == name(item) && new.is_object() == item.is_object();
                if let Some(new) = new.iter().find(is_same) {
                    let path = format!("{path}/{}", name(item));
                    comments.push(format!("# above {path}."));
                    kept(&path, item, new, comments);
                }
            }
        }
        (old, new) if old == new => comments.push(format!("# beside {path}.")),
        _ => {}
    }
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]

    /// Comments of what stays are all still there, once.
    #[test]
    fn comments_of_what_stays_stay(before in document(), mut after in document(), keep in any::<[bool; 5]>()) {
        for ((key, value), _) in before.iter().zip(keep).filter(|(_, keep)| *keep) {
            after.insert(key.clone(), value.clone());
        }
        let (before, after) = (Value::Object(before), Value::Object(after));
        let mut file = "# the top".to_owned();
        write(&mut file, 0, "", &before);
        prop_assert_eq!(parse(file.as_bytes()), Some(before.clone()), "{}", file);
        let render = |value: &Value| serde_saphyr::to_string(value).unwrap();
        prop_assume!(parse(render(&after).as_bytes()) == Some(after.clone()));
        prop_assume!(parse(render(&before).as_bytes()) == Some(before.clone()));
        let text = updated(Some(file.as_bytes()), Some(&render(&before)), &render(&after)).unwrap_or(file.clone());
        prop_assert_eq!(parse(text.as_bytes()), Some(after.clone()), "{}", text);
        let mut comments = Vec::new();
        kept("", &before, &after, &mut comments);
        if !comments.is_empty() {
            comments.push("# the top\n".to_owned());
        }
        for comment in comments {
            prop_assert_eq!(text.matches(&comment).count(), 1, "{}\nof\n{}\nin\n{}", comment, file, text);
        }
    }
}

#[test]
fn a_large_file_that_changes_everywhere_keeps_its_comments() {
    let file = |value: u32| (0..5_000).map(|number| format!("key{number}: {value}\n")).collect::<String>();
    let (before, after) = (file(1), file(2));
    let text = updated(Some(format!("# a comment\n{before}").as_bytes()), Some(&before), &after).unwrap();
    assert_eq!(text, format!("# a comment\n{after}"));

    let list = |range: std::ops::Range<u32>| range.map(|number| format!("- {number}\n")).collect::<String>();
    let before = format!("items:\n{}", list(0..5_000));
    let after = format!("items:\n{}{}", list(2_000..5_000), list(0..2_000));
    let noted = |text: &str| text.replace("- 7\n", "- 7 # seven\n");
    assert_eq!(updated(Some(noted(&before).as_bytes()), Some(&before), &after), Some(noted(&after)));
}

/// Lists may have as many items as a file has room for.
#[test]
fn items_of_long_lists_are_paired_with_few_comparisons() {
    thread_local!(static COMPARED: Cell<usize> = const { Cell::new(0) });
    struct Counted<'v>(&'v Value);
    impl PartialEq for Counted<'_> {
        fn eq(&self, other: &Self) -> bool {
            COMPARED.set(COMPARED.get() + 1);
            self.0 == other.0
        }
    }
    impl Eq for Counted<'_> {}
    impl Hash for Counted<'_> {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }
    let old: Vec<Value> = (0..10_000).map(Value::from).collect();
    let new: Vec<Value> = old.iter().rev().cloned().collect();
    let (mut taken, mut found) = (vec![false; old.len()], vec![None; new.len()]);
    pair_by(|item| Some(Counted(item)), &old, &new, &mut taken, &mut found);
    let are_reversed =
        |found: &[Option<usize>]| (0..found.len()).all(|index| found[index] == Some(found.len() - 1 - index));
    assert!(are_reversed(&found));
    assert!(are_reversed(&pairs(&old, &new)));
    let names = |items: &[Value], n: i32| items.iter().map(|name| json!({"name": name, "n": n})).collect::<Vec<_>>();
    assert!(are_reversed(&pairs(&names(&old, 1), &names(&new, 2))));
    assert!((10_000..30_000).contains(&COMPARED.get()), "{}", COMPARED.get());
}

#[test]
fn values_of_another_reader_change_in_the_text() {
    let read = |text: &str| parse(text.as_bytes()).filter(|value| value["a"] != json!("unreadable"));
    for (text, before, after, expected) in [
        ("a: 1 # why\r\nb: 2\r\n", json!({"a": 1}), json!({"a": 3, "c": 4}), Some("a: 3 # why\r\nb: 2\r\nc: 4\r\n")),
        ("a: 1\nb: '2'\n", json!({"a": 1}), json!({"a": 1}), Some("a: 1\nb: '2'\n")),
        ("a: 1\n", json!({"a": 1}), json!({"a": "unreadable"}), None),
        ("a: 1\n", json!({"a": {"b": 1}}), json!({"a": {"b": 2}}), None),
    ] {
        assert_eq!(changed(text, read, &before, &after).as_deref(), expected, "{text:?}");
    }
}

#[test]
fn documents_begin_with_the_keys_of_objects() {
    let value =
        json!({"data": {"b": "1", "a": "yes"}, "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x"}});
    assert_eq!(
        written(&value).as_deref(),
        Some("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\ndata:\n  a: \"yes\"\n  b: \"1\"\n")
    );
}
