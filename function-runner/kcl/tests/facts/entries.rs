//! Entries, their order, and packages.

use crate::support::Expected::{Json, Wrong};
use crate::support::{Case, check, source};

const TWO: &[(&str, &str)] = &[("main.k", "a = 1\n"), ("other.k", "b = 2\n")];

#[test]
fn every_entry_takes_part() {
    check(&[
        Case { entries: &["main.k", "other.k"], ..source("both", TWO, Json(r#"{"a": 1, "b": 2}"#)) },
        Case {
            entries: &["main.k", "missing.k"],
            ..source("missing entry", TWO, Wrong("Missing", ":0:0", r#"entry "missing.k" does not exist"#))
        },
        Case {
            entries: &["folder"],
            ..source(
                "folder",
                &[("folder/main.k", "a = 1\n")],
                Wrong("Missing", ":0:0", r#"entry "folder" is a folder; name its files"#),
            )
        },
        Case {
            entries: &["../x.k"],
            ..source("outside", TWO, Wrong("Missing", ":0:0", r#"entry "../x.k" leads out of the source"#))
        },
    ]);
}

const LIB: &str = "import lib\nx = lib.v\n";

#[test]
fn imports_begin_at_the_module() {
    check(&[
        source(
            "without kcl.mod",
            &[("s/p/main.k", LIB), ("s/lib/l.k", "v = 1\n")],
            Wrong("E2F04", "s/p/main.k:1:1", "pkgpath lib not found in the program"),
        ),
        source(
            "with kcl.mod",
            &[("s/p/main.k", LIB), ("s/lib/l.k", "v = 1\n"), ("s/kcl.mod", "[package]\nname = \"s\"\n")],
            Json(r#"{"x": 1}"#),
        ),
        source(
            "hidden file and test of a package",
            &[("main.k", LIB), ("lib/l.k", "v = 1\n"), ("lib/_h.k", "v = 2\n"), ("lib/l_test.k", "v = 3\n")],
            Json(r#"{"x": 1}"#),
        ),
        source(
            "cycle",
            &[("main.k", "import a\nx = a.v\n"), ("a/a.k", "import b\nv = b.v\n"), ("b/b.k", "import a\nv = a.v\n")],
            Wrong("E1001", ":1:1", "cyclic import statements - b/b.k - a/a.k"),
        ),
        source(
            "plugin",
            &[("main.k", "import kcl_plugin.x\na = x.f()\n")],
            Wrong("E2F04", "main.k:1:1", "the plugin package `kcl_plugin.x` is not found"),
        ),
    ]);
}

const KAM: &str = "import kam.v1 as ac\nx = ac.v\n";

#[test]
fn packages_are_those_of_the_list() {
    check(&[
        Case {
            packages: &[("kam", "kam")],
            ..source("package", &[("s/main.k", KAM), ("kam/v1/a.k", "v = 1\n")], Json(r#"{"x": 1}"#))
        },
        source(
            "package that is not listed",
            &[("s/main.k", KAM), ("kam/v1/a.k", "v = 1\n")],
            Wrong("E2F04", "s/main.k:1:1", "pkgpath kam.v1 not found in the program"),
        ),
        Case {
            packages: &[("kam", "kam")],
            ..source(
                "package without a folder",
                &[("s/main.k", KAM)],
                Wrong("Missing", ":0:0", r#"package kam has no folder "kam""#),
            )
        },
        Case {
            packages: &[("kam", "kam")],
            ..source(
                "package and folder of one name",
                &[
                    ("s/main.k", "import kam\nx = kam.v\n"),
                    ("s/kam/a.k", "v = 2\n"),
                    ("s/kcl.mod", "[package]\nname = \"s\"\n"),
                    ("kam/a.k", "v = 1\n"),
                ],
                Wrong("E2F04", "s/main.k:1:1", "the `kam` is found multiple times"),
            )
        },
        Case {
            packages: &[("kam", "kam"), ("parts", "parts")],
            ..source(
                "package of a package",
                &[
                    ("s/main.k", "import kam\nx = kam.v\n"),
                    ("kam/a.k", "import parts\nv = parts.w\n"),
                    ("parts/p.k", "w = 5\n"),
                ],
                Json(r#"{"x": 5}"#),
            )
        },
        Case {
            packages: &[("kam", "kam")],
            ..source(
                "package of a package that is not listed",
                &[
                    ("s/main.k", "import kam\nx = kam.v\n"),
                    ("kam/a.k", "import parts\nv = parts.w\n"),
                    ("parts/p.k", "w = 5\n"),
                ],
                Wrong("E2F04", "kam/a.k:1:1", "pkgpath parts not found in the program"),
            )
        },
        Case {
            packages: &[("kam", "kam"), ("kam", "kam2")],
            ..source(
                "two versions of a package",
                &[("s/main.k", KAM), ("kam/v1/a.k", "v = 1\n"), ("kam2/v1/a.k", "v = 2\n")],
                Wrong("Missing", ":0:0", "package kam has two folders"),
            )
        },
    ]);
}
