//! The values that `sigs.k8s.io/yaml` 1.6.0 makes of the same texts, read by kubectl's decoder
//! (`k8s.io/apimachinery/pkg/util/yaml` 0.36.3).

use serde_json::json;

use super::*;

const LIMITS: Limits = Limits { depth: 64, values: 1000, documents: 4, copied: 4096 };

#[track_caller]
fn value(text: &str) -> Value {
    documents(text, &LIMITS, false).unwrap().remove(0).value
}

#[track_caller]
fn wrong(text: &str) -> (usize, String) {
    let Error { line, kind } = documents(text, &LIMITS, true).unwrap_err();
    (line, kind.to_string())
}

#[test]
fn values_are_those_of_yaml_1_1() {
    let text = "a: y\nb: off\nc: 1_000\nd: 0644\ne: 0o17\nf: 0x1F\ng: 190:20:30\nh: 2001-01-01\ni: 08\nj: 1_0.5\n\
                k: 685_230.15\nl: 0b1010\nm: 1e3\nnn: !!binary aGVsbG8=\no: 2001-12-14t21:59:43.10-05:00\np: 'yes'\n\
                q: .5_0\nr: Null\ns: !!str 1\nt: 1e20\n";
    assert_eq!(
        value(text),
        json!({
            "a": true, "b": false, "c": 1000, "d": 420, "e": 15, "f": 31, "g": "190:20:30", "h": "2001-01-01", "i": 8,
            "j": 10.5, "k": 685_230.15, "l": 10, "m": 1000, "nn": "hello", "o": "2001-12-14t21:59:43.10-05:00", "p": "yes",
            "q": 0.5, "r": null, "s": "1", "t": 1e20,
        })
    );
}

#[test]
fn keys_are_read_as_values_are() {
    for (key, expected) in [
        ("on", "true"),
        ("y", "true"),
        ("No", "false"),
        ("0644", "420"),
        ("1_000", "1000"),
        ("0x1F", "31"),
        ("190:20:30", "190:20:30"),
        ("2001-01-01", "2001-01-01"),
        ("1.50", "1.5"),
        ("1.0", "1"),
        (".5", "0.5"),
        ("0.0001", "0.0001"),
        ("1e-7", "1e-07"),
        ("100000.0", "100000"),
        ("1e6", "1e+06"),
        ("1234567.5", "1.2345675e+06"),
        ("3.14159265358979", "3.1415927"),
        (".inf", ".inf"),
        ("'on'", "on"),
        ("\"0644\"", "0644"),
    ] {
        assert_eq!(value(&format!("{key}: x\n")), json!({ expected: "x" }), "{key}");
    }
    assert_eq!(wrong("a: 1\n~: x\n"), (2, "unsupported map key of type null".to_owned()));
    assert_eq!(wrong("18446744073709551615: x\n"), (1, "unsupported map key of type uint64".to_owned()));
}

#[test]
fn a_merge_key_sets_its_keys_where_it_stands() {
    let base = "base: &base {colour: blue, size: small}\n";
    assert_eq!(
        value(&format!("{base}a:\n  colour: red\n  <<: *base\n"))["a"],
        json!({"colour": "blue", "size": "small"})
    );
    assert_eq!(
        value(&format!("{base}a:\n  <<: *base\n  colour: red\n"))["a"],
        json!({"colour": "red", "size": "small"})
    );
    let several = value("{<<: [{x: 1, z: 1}, {x: 2, y: 3}], '<<': k}");
    assert_eq!(several, json!({"x": 1, "z": 1, "true": 3, "<<": "k"}));
    let message = "map merge requires map or sequence of maps as the value".to_owned();
    assert_eq!(wrong("a: 1\n<<: 2\n"), (2, message));
}

#[test]
fn parser_records_duplicate_keys_with_cause() {
    let noted = |text: &str| -> Vec<(String, usize, Cause)> {
        let found = documents(text, &LIMITS, false).unwrap().remove(0).duplicates;
        found.into_iter().map(|it| (it.key, it.line, it.cause)).collect()
    };
    assert_eq!(noted("a: 1\nb: 2\na:\n  3\n"), [("a".to_owned(), 3, Cause::Written)]);
    assert_eq!(noted("1: a\n'1': b\n"), [("1".to_owned(), 2, Cause::SameInJson)]);
    assert_eq!(noted("<<: {a: 1}\na: 2\n"), [("a".to_owned(), 2, Cause::Merged)]);
    assert_eq!(noted("a: 2\n<<: {a: 1}\n"), [("a".to_owned(), 2, Cause::Merged)]);
    let twice = [("a".to_owned(), 2, Cause::Merged), ("a".to_owned(), 3, Cause::Written)];
    assert_eq!(noted("<<: {a: 1}\na: 2\na: 3\n"), twice);
}

#[test]
fn json_has_characters_that_yaml_wants_escaped() {
    let read =
        documents("\n{\"a\": \"x\u{7f}y\",\n\t\"b\": \"\u{fffe}\"}\n\n{\"c\": \"\\ud83d\\ude00\"}", &LIMITS, true)
            .unwrap();
    let values: Vec<_> = read.into_iter().map(|document| (document.line, document.value)).collect();
    assert_eq!(values, [(2, json!({"a": "x\u{7f}y", "b": "\u{fffe}"})), (5, json!({"c": "😀"}))]);
    assert_eq!(wrong("a: 1\nb: x\u{7f}y\n").0, 2);
    let deep = format!("{{\"a\": \"\u{7f}\", \"b\": {}1{}}}", "[".repeat(70), "]".repeat(70));
    assert_eq!(wrong(&deep), (1, "exceeded max depth of 64".to_owned()));
}

#[test]
fn each_limit_is_an_error_with_its_line() {
    assert_eq!(wrong(&"---\na: 1\n".repeat(5)), (10, "more than 4 documents".to_owned()));
    assert_eq!(wrong(&format!("[\n{}]", "1,\n".repeat(1000))), (1001, "document has more than 1000 values".to_owned()));
    assert_eq!(
        wrong(&format!("a:\n  {}1{}", "[".repeat(70), "]".repeat(70))),
        (2, "exceeded max depth of 64".to_owned())
    );
    let copies = format!("a: &a [{}]\nb: [*a, *a,\n *a]\n", "x, ".repeat(40));
    assert_eq!(wrong(&copies), (3, "document contains excessive aliasing".to_owned()));
    assert_eq!(wrong("a: &a [*a]\n"), (1, "an anchor's value contains itself".to_owned()));
}

#[test]
fn outline_contains_line_of_every_key_and_item() {
    let text = "base: &b {x: 1,\n  w: 2}\nlist:\n- a: 1\n  b:\n  - c\nmerged:\n  <<: *b\n  x: 3\non: z\n";
    let outline = documents(text, &LIMITS, true).unwrap().remove(0).outline;
    let (line, list) = outline.key("list").unwrap();
    let (item_line, item) = list.item(0).unwrap();
    assert_eq!((line, item_line, item.key("b").unwrap().0), (3, 4, 5));
    let (_, merged) = outline.key("merged").unwrap();
    assert_eq!((merged.key("w").unwrap().0, merged.key("x").unwrap().0), (8, 9));
    assert_eq!(outline.key("true").unwrap().0, 10);
    assert_eq!(documents(text, &LIMITS, false).unwrap()[0].outline, Outline::Leaf);
}

#[test]
fn typed_floats_stay_floats() {
    let text = "a: 1.0\nb: 1e6\nc: 7\nd: 1.5\n";
    let typed = first_typed(text, &LIMITS).unwrap().unwrap().value;
    assert_eq!(typed, json!({"a": 1.0, "b": 1_000_000.0, "c": 7, "d": 1.5}));
    assert_eq!(first(text, &LIMITS).unwrap().unwrap().value, json!({"a": 1, "b": 1_000_000, "c": 7, "d": 1.5}));
}

#[test]
fn numbers_beyond_floats_have_their_digits() {
    let text = "a: 100000000000000000000001\nb: -0.1234567890123456789012\nc: 1_000_000_000_000_000_000_000_1\nd: [1.0e+30, 0.1, \
                100000000000000000000000, 18446744073709551615, 1.50, 0.0, -0.0, 1e-7, .5]\ne: 9007199254740993.5\n";
    let ordinary = documents(text, &LIMITS, false).unwrap();
    assert!(ordinary[0].is_inexact);
    assert_eq!(ordinary[0].value["a"], 1.000_000_000_000_000_1e23);
    let exact = exact_documents(text, &LIMITS).unwrap();
    for (key, digits) in [
        ("a", "100000000000000000000001"),
        ("b", "-0.1234567890123456789012"),
        ("c", "10000000000000000000001"),
        ("e", "9007199254740993.5"),
    ] {
        assert_eq!(exact[0].value[key], digits);
    }
    // All others are the same.
    assert_eq!(exact[0].value["d"], ordinary[0].value["d"]);
    let plain = documents("a: [1.5, 0.1, 1e30]\nb: '100000000000000000000001'\n", &LIMITS, false).unwrap();
    assert!(!plain[0].is_inexact);
}
