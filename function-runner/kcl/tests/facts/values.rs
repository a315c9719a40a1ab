//! Values: order, None, names, numbers, texts and operators.

use crate::support::Expected::{Json, Warned, Wrong};
use crate::support::{CASE, Case, check, source};

const NESTED: &str =
    "schema B:\n    b: int = 1\nschema A(B):\n    a: int = 2\n    [...str]: int\nx = A {z = 3, c = 4}\n";
const NONE: &str =
    "a = None\nb = Undefined\nc = {d = None}\nl = [1, None, {a = None}, 2]\nschema S:\n    o?: int\ns = S {}\n";
const HIDDEN: &str = "_a = 1\nd = {_x = 1, \"_y\" = 2, z = 3}\nf = lambda x {x}\nschema Q:\n    a: int = 1\n";

#[test]
fn order_none_and_names() {
    check(&[
        source("order of a schema", &[("main.k", NESTED)], Json(r#"{"x": {"b": 1, "a": 2, "z": 3, "c": 4}}"#)),
        Case {
            settings: |it| it.sort_keys = true,
            ..source("sorted", &[("main.k", NESTED)], Json(r#"{"x": {"a": 2, "b": 1, "c": 4, "z": 3}}"#))
        },
        source(
            "None",
            &[("main.k", NONE)],
            Json(r#"{"a": null, "c": {"d": null}, "l": [1, null, {"a": null}, 2], "s": {}}"#),
        ),
        Case {
            settings: |it| it.disable_none = true,
            ..source("None left out", &[("main.k", NONE)], Json(r#"{"c": {}, "l": [1, {}, 2], "s": {}}"#))
        },
        source(
            "None in a required attribute",
            &[("main.k", "schema S:\n    o: int\ns = S {o = None}\n")],
            Wrong("EvaluationError", "main.k:3:1", "attribute 'o' of S is required and can't be None or Undefined"),
        ),
        source("hidden names", &[("main.k", HIDDEN)], Json(r#"{"d": {"z": 3}}"#)),
        Case {
            settings: |it| it.show_hidden = true,
            ..source(
                "hidden names shown",
                &[("main.k", "_a = 1\nd = {_x = 1, \"_y\" = 2, z = 3}\n")],
                Json(r#"{"_a": 1, "d": {"_x": 1, "_y": 2, "z": 3}}"#),
            )
        },
        source("missing key", &[("main.k", "_l = {a = 1}\na = _l.b\n")], Wrong("EmptyResult", ":0:0", "is empty")),
        source("circle of names", &[("main.k", "a = b\nb = a\n")], Wrong("EmptyResult", ":0:0", "is empty")),
        source("only hidden names", &[("main.k", "_a = 1\n")], Wrong("EmptyResult", ":0:0", "is empty")),
    ]);
}

#[test]
fn numbers_and_units() {
    check(&[
        source(
            "floats",
            &[("main.k", "a = 1.0\nb = 1e20\nc: float = 1\nd = 1e400\ne = -0.0\n")],
            Json(r#"{"a": 1.0, "b": 1e+20, "c": 1, "d": null, "e": 0.0}"#),
        ),
        source(
            "largest integers",
            &[("main.k", "a = 9223372036854775807\nb = -9223372036854775808\nc = 9007199254740993\n")],
            Json(r#"{"a": 9223372036854775807, "b": -9223372036854775808, "c": 9007199254740993}"#),
        ),
        source(
            "computed overflow",
            &[("main.k", "a = 9223372036854775807 + 1\n")],
            Wrong("EvaluationError", "main.k:1:1", "A 64 bit integer overflow"),
        ),
        Case {
            settings: |it| it.strict_range_check = true,
            ..source(
                "computed overflow of 32 bits",
                &[("main.k", "a = 2147483647 + 1\n")],
                Wrong("EvaluationError", "main.k:1:1", "A 32 bit integer overflow"),
            )
        },
        source(
            "literal that wraps",
            &[("main.k", "_big = 1\nspec = {\n    limit = 18446744073709551615\n}\n")],
            Wrong("IntegerLiteral", "main.k:3:13", "spec.limit is -1, because the integer 18446744073709551615"),
        ),
        Case {
            settings: |it| it.strict_range_check = true,
            ..source(
                "literal that wraps under strict_range_check",
                &[("main.k", "a = 9223372036854775808\n")],
                Wrong("IntegerLiteral", "main.k:1:5", "a is -9223372036854775808"),
            )
        },
        source(
            "literal of a package that wraps",
            &[("main.k", "import lib\na = lib.limit\n"), ("lib/lib.k", "limit = 0xFFFFFFFFFFFFFFFF\n")],
            Wrong("IntegerLiteral", "lib/lib.k:1:9", "a is -1"),
        ),
        source(
            "literal that wraps and is not used",
            &[("main.k", "_big = 18446744073709551615\na = 1\n")],
            Warned(r#"{"a": 1}"#, "main.k:1:8 the integer 18446744073709551615 has more than 64 bits"),
        ),
        source(
            "literal beyond 2^64",
            &[("main.k", "a = 18446744073709551616\n")],
            Wrong("E1001", "main.k:1:5", "18446744073709551616"),
        ),
        source(
            "units",
            &[("main.k", "a = 64Mi\nb = 100m\nc = '${64Mi}'\n_n = 64Mi\n")],
            Json(r#"{"a": 67108864.0, "b": 0.1, "c": "64Mi"}"#),
        ),
    ]);
}

#[test]
fn texts_and_operators() {
    check(&[
        source("text of several lines", &[("main.k", "a = \"\"\"\n  x\n\"\"\"\n")], Json(r#"{"a": "x\n"}"#)),
        source("division", &[("main.k", "a = round(2.5)\nb = 6 / 2\n")], Json(r#"{"a": 3, "b": 3.0}"#)),
        source("power", &[("main.k", "a = 2 ** -1\n")], Wrong("EvaluationError", "main.k:1:1", "integer overflow")),
        source(
            "order of texts",
            &[("main.k", "a = 'a' < 'b'\n")],
            Wrong("E2G22", "main.k:1:5", "unsupported operand type(s) for <"),
        ),
        source(
            "division by zero",
            &[("main.k", "a = 1 // 0\n")],
            Wrong("E2G22", "main.k:1:5", "integer division or modulo by zero"),
        ),
        source(
            "override and append",
            &[("main.k", "a = {x = 1, x = 2}\nb = {x: [1], x += [2]}\n")],
            Json(r#"{"a": {"x": 2}, "b": {"x": [1, 2]}}"#),
        ),
        source(
            "conflict",
            &[("main.k", "a = {x: 1, x: 2}\n")],
            Wrong(
                "EvaluationError",
                "main.k:1:1",
                "conflicting values on the attribute 'x' between : 1 and 2 with union path : x",
            ),
        ),
        source(
            "conflict of lists",
            &[("main.k", "a = {x: [1], x: [2]}\n")],
            Wrong("EvaluationError", "main.k:1:1", "conflicting values on the attribute 'x'"),
        ),
        source("equal values", &[("main.k", "a = {x: 1, x: 1}\n")], Json(r#"{"a": {"x": 1}}"#)),
        source("union with None", &[("main.k", "a = {x: 1} | {x: None}\n")], Json(r#"{"a": {"x": 1}}"#)),
        Case {
            entries: &["main.k", "two.k"],
            ..source(
                "configurations of two files",
                &[
                    ("main.k", "schema App:\n    r: int\n    i: str\napp: App {r: 1}\n"),
                    ("two.k", "app: App {i: \"x\"}\n"),
                ],
                Json(r#"{"app": {"r": 1, "i": "x"}}"#),
            )
        },
        Case {
            entries: &["main.k", "two.k"],
            ..source(
                "one name in two files",
                &[("main.k", "a = 1\n"), ("two.k", "a = 1\n")],
                Wrong("E1001", "two.k:1:1", "Can not change the value of 'a'"),
            )
        },
        source(
            "one name in two branches",
            &[("main.k", "if True:\n    a = 1\nelse:\n    a = 2\n")],
            Wrong("E1001", "main.k:4:5", "Can not change the value of 'a'"),
        ),
    ]);
}

const APP: &[(&str, &str)] = &[("main.k", "schema App:\n    r: int\napp: App {r: 1}\nb = app.r\n")];
const LIST: &[(&str, &str)] = &[("main.k", "a = {b = [1, 2]}\nc = 3\n")];

#[test]
fn overrides_and_selected_paths() {
    check(&[
        Case {
            settings: |it| it.overrides = vec!["app.r=5".to_owned()],
            ..source("override", APP, Json(r#"{"app": {"r": 5}, "b": 5}"#))
        },
        Case { settings: |it| it.path_selector = vec!["a.b.1".to_owned()], ..source("one path", LIST, Json("2")) },
        Case {
            settings: |it| it.path_selector = vec!["a.b.1".to_owned(), "c".to_owned()],
            ..source("two paths", LIST, Json("[2, 3]"))
        },
    ]);
}

const STREAM: &str = "import manifests\n_x = 1\nmanifests.yaml_stream([{a = 1}, None, [{b = 2}]])\n";

#[test]
fn streams_are_documents() {
    check(&[
        source("stream", &[("main.k", STREAM)], Json("{\"a\": 1}\n{\"b\": 2}")),
        source(
            "empty stream",
            &[("main.k", "import manifests\nmanifests.yaml_stream([])\n")],
            Wrong("EmptyResult", ":0:0", "is empty"),
        ),
        source(
            "stream beside values",
            &[("main.k", "import manifests\nb = 2\nmanifests.yaml_stream([{a = 1}])\n")],
            Warned(r#"{"a": 1}"#, "main.k:2:1 manifests.yaml_stream replaces all other results: b"),
        ),
        source(
            "two streams",
            &[("main.k", "import manifests\nmanifests.yaml_stream([{a = 1}])\nmanifests.yaml_stream([{a = 2}])\n")],
            Json(r#"{"a": 2}"#),
        ),
        Case {
            entries: &["two.k", "main.k"],
            ..source(
                "stream beside values of another entry",
                &[("main.k", STREAM), ("two.k", "b = 2\n")],
                Warned("{\"a\": 1}\n{\"b\": 2}", "two.k:1:1 manifests.yaml_stream replaces all other results: b"),
            )
        },
        Case {
            name: "no stream",
            files: &[("main.k", "import manifests\na = {b = 1}\nif a.b == 2:\n    manifests.yaml_stream([{c = 1}])\n")],
            expected: Json(r#"{"a": {"b": 1}}"#),
            ..CASE
        },
    ]);
}
