//! Errors of a program, with their positions.

use crate::support::Expected::{Json, Warned, Wrong};
use crate::support::{check, library, run_main, sentence, source};

#[test]
fn compile_errors_have_a_code_and_a_position() {
    check(&[
        source("name", &[("main.k", "a = x\n")], Wrong("E2L23", "main.k:1:5", "name 'x' is not defined")),
        source("type", &[("main.k", "a: int = \"x\"\n")], Wrong("E2G22", "main.k:1:1", "expected int, got str(x)")),
        source("syntax", &[("a/main.k", "a = \n  b c\n")], Wrong("E1001", "a/main.k:1:5", "expected one of")),
        source("no text", &[("main.k", "a = '\u{0}'\n")], Json(r#"{"a": "\u0000"}"#)),
    ]);
}

const CHECKED: &str = "schema A:\n    a: int\n    b: int\n    check:\n        a > 1, \"a must be more\"\n        b > 1, \"b, too\"\nx = A {a = 1, b = 1}\n";

#[test]
fn evaluation_errors_have_a_position_and_the_authors_text() {
    check(&[
        source(
            "check",
            &[("main.k", CHECKED)],
            Wrong(
                "EvaluationError",
                "main.k:7:5",
                "Instance check failed: Check failed on the condition: a must be more; other checks may fail after this one",
            ),
        ),
        source(
            "assert",
            &[("main.k", "a = 1\nassert a == 2, \"wrong a\"\n")],
            Wrong("EvaluationError", "main.k:2:1", "wrong a"),
        ),
    ]);
}

#[test]
fn errors_have_neither_escapes_nor_private_paths() {
    let Some(mut library) = library() else { return };
    for text in [CHECKED, "a = x\n", "import missing\n", "a = {x: 1, x: 2}\n"] {
        let Err(stoa_kcl::Error::Program(problems)) = run_main(&mut library, text) else { panic!("{text}") };
        for problem in problems {
            let shown = sentence(&problem);
            let private = std::env::temp_dir();
            assert!(!shown.contains('\u{1b}') && !shown.contains(&*private.to_string_lossy()), "{shown}");
        }
    }
}

#[test]
fn placeholders_are_errors() {
    check(&[
        source(
            "placeholder",
            &[("main.k", "app = {\n    image = \"<no value>\"\n}\n")],
            Wrong("NoValue", "main.k:2:0", r#"app.image is "<no value>", a placeholder"#),
        ),
        source("part of a text", &[("main.k", "a = \"an <no value>\"\n")], Json(r#"{"a": "an <no value>"}"#)),
    ]);
}

#[test]
fn results_that_change_are_warned_about() {
    let Some(mut library) = library() else { return };
    let output = run_main(&mut library, "import crypto\na = crypto.uuid()\n").unwrap();
    assert!(output.warnings[0].message.starts_with("the result differs from run to run"), "{:?}", output.warnings);
    drop(library);
    check(&[
        source("unused clock", &[("main.k", "import datetime\na = 1\n")], Json(r#"{"a": 1}"#)),
        source(
            "literal that wraps",
            &[("main.k", "_a = 18446744073709551615\nb = 1\n")],
            Warned(r#"{"b": 1}"#, "KCL changes it silently"),
        ),
    ]);
}
