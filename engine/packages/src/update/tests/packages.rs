//! The rows about packages in folders of the table in `reference/packages.md`.

use super::{Case, KPTFILE, Kpt, UpdateError, run, tree};
use crate::kptfile::UpdateStrategy;

const CONFIG: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  a: one\n";

fn changed(value: &str) -> String {
    CONFIG.replace("one", value)
}

#[test]
fn package_of_both_sides_merges() {
    // kpt: the same.
    Case {
        origin: &[("sub/Kptfile", KPTFILE), ("sub/a.yaml", CONFIG), ("sub/README.md", "1")],
        upstream: &[("sub/Kptfile", KPTFILE), ("sub/a.yaml", &changed("two")), ("sub/README.md", "2")],
        local: &[("sub/Kptfile", KPTFILE), ("sub/a.yaml", &format!("{CONFIG}  b: mine\n")), ("sub/README.md", "1")],
        expected: &[
            ("sub/Kptfile", KPTFILE),
            ("sub/a.yaml", &format!("{}  b: mine\n", changed("two"))),
            ("sub/README.md", "2"),
        ],
        ..Case::default()
    }
    .check();
}

#[test]
fn package_that_both_add_is_an_error() {
    // kpt: the same.
    let (upstream, local) = ([("sub/Kptfile", KPTFILE), ("sub/a", "1")], [("sub/Kptfile", KPTFILE), ("sub/a", "2")]);
    let trees = [tree(&[]), tree(&upstream), tree(&local)];
    let error = run(UpdateStrategy::ResourceMerge, &trees[0], &trees[1], &trees[2]).unwrap_err();
    assert_eq!(error.to_string(), "subpackage \"sub\" added in both upstream and local; move the local one");
    Case { kpt: Kpt::Error("added in both upstream and local"), ..Case::default() }
        .check_kpt([&trees[0], &trees[1], &trees[2]]);
}

#[test]
fn equal_package_that_both_add_stays() {
    // kpt: an error.
    let files = [("sub/Kptfile", KPTFILE), ("sub/a.yaml", CONFIG)];
    Case {
        upstream: &files,
        local: &files,
        expected: &files,
        kpt: Kpt::Error("added in both upstream and local"),
        ..Case::default()
    }
    .check();
}

#[test]
fn package_that_upstream_adds_comes_along() {
    // kpt: the same.
    Case {
        upstream: &[("sub/Kptfile", KPTFILE), ("sub/in/README.md", "1"), ("sub/in/Kptfile", KPTFILE)],
        expected: &[("sub/Kptfile", KPTFILE), ("sub/in/README.md", "1"), ("sub/in/Kptfile", KPTFILE)],
        ..Case::default()
    }
    .check();
}

#[test]
fn unchanged_package_is_deleted_with_upstreams() {
    // kpt: the same.
    Case { origin: &[("sub/Kptfile", KPTFILE), ("sub/a.yaml", CONFIG), ("sub/b", "1")], ..Case::default() }
        .with_local_of_origin()
        .check();
}

#[test]
fn changed_package_stays_when_upstream_deletes_it() {
    // kpt: the same, silently.
    Case {
        origin: &[("sub/Kptfile", KPTFILE), ("sub/a.yaml", CONFIG)],
        local: &[("sub/Kptfile", KPTFILE), ("sub/a.yaml", &changed("mine"))],
        expected: &[("sub/Kptfile", KPTFILE), ("sub/a.yaml", &changed("mine"))],
        conflicts: &["sub is deleted upstream and changed here; it stays"],
        ..Case::default()
    }
    .check();
}

#[test]
fn deleted_package_stays_deleted() {
    // kpt: the same, silently.
    Case {
        origin: &[("sub/Kptfile", KPTFILE), ("sub/a.yaml", CONFIG)],
        upstream: &[("sub/Kptfile", KPTFILE), ("sub/a.yaml", &changed("two"))],
        conflicts: &["sub is deleted here and changed upstream; it stays deleted"],
        ..Case::default()
    }
    .check();
}

#[test]
fn package_with_another_upstream_stays() {
    // kpt: the same.
    let kptfile = |reference: &str| {
        format!(
            "{KPTFILE}upstream:\n  type: git\n  git:\n    repo: https://example.com/sub\n    directory: /\n    ref: {reference}\n"
        )
    };
    let local = [("sub/Kptfile", kptfile("v9")), ("sub/a.yaml", CONFIG.to_owned())];
    let local = local.each_ref().map(|(path, text)| (*path, text.as_str()));
    Case {
        origin: &[("sub/Kptfile", &kptfile("v1")), ("sub/a.yaml", CONFIG)],
        upstream: &[("sub/Kptfile", &kptfile("v2")), ("sub/a.yaml", &changed("two"))],
        local: &local,
        expected: &local,
        ..Case::default()
    }
    .check();
}

#[test]
fn folder_that_becomes_a_package_keeps_local_files() {
    Case {
        upstream: &[("db/Kptfile", KPTFILE), ("db/README.md", "2"), ("db/same", "1"), ("db/.krmignore", "x.yaml\n")],
        local: &[("db/README.md", "mine"), ("db/same", "1"), ("db/.krmignore", "y.yaml\n")],
        expected: &[("db/Kptfile", KPTFILE), ("db/README.md", "mine"), ("db/same", "1"), ("db/.krmignore", "y.yaml\n")],
        conflicts: &[
            "db/.krmignore changed upstream and here; it stays as it is here",
            "db/README.md changed upstream and here; it stays as it is here",
        ],
        ..Case::default()
    }
    .check_ours();
}

#[test]
fn upstreams_folder_becomes_a_package() {
    let files = [("db/a.yaml", CONFIG), ("db/README.md", "1")];
    let marked = [("db/Kptfile", KPTFILE), ("db/a.yaml", &changed("two")), ("db/README.md", "2")];
    let updated = run(UpdateStrategy::ResourceMerge, &tree(&files), &tree(&marked), &tree(&files)).unwrap();
    assert_eq!(updated.conflicts, []);
    assert_eq!(updated.tree.text("db/README.md"), Some("2"));
    let text = updated.tree.text("db/a.yaml").unwrap();
    assert!(text.contains("a: two") && !text.contains("---"), "{text}");
}

#[test]
fn taken_file_of_an_added_package_is_an_error() {
    let upstream = tree(&[("db/Kptfile", KPTFILE), ("db/a.yaml", CONFIG)]);
    for local in [
        tree(&[("db/a.yaml", &CONFIG.replace("name: a", "name: mine"))]),
        tree(&[("db/a.yaml", "no object\n"), (".krmignore", "db/a.yaml\n")]),
    ] {
        let error = run(UpdateStrategy::ResourceMerge, &tree(&[]), &upstream, &local).unwrap_err();
        assert!(matches!(&error, UpdateError::PackageOnBothSides { path } if path == "db"), "{error}");
    }
}

#[test]
fn package_that_stays_has_its_own_rules() {
    let values = ("sub/values.yaml", "a: 1\n");
    let ignored = |rules: &'static str| ("sub/.krmignore", rules);
    let (kptfile, object) = (("sub/Kptfile", KPTFILE), ("sub/a.yaml", CONFIG));
    // Upstream deletes a changed package, of which it ignored another file.
    let local = [kptfile, object, values, ignored("values.yaml\nb.yaml\n"), ("sub/b.yaml", "- 1\n")];
    Case {
        origin: &[kptfile, object, values, ignored("values.yaml\n")],
        local: &local,
        expected: &local,
        conflicts: &["sub is deleted upstream and changed here; it stays"],
        ..Case::default()
    }
    .check_ours();
    // A deleted package stays deleted, with its rules.
    Case {
        origin: &[kptfile, object, values, ignored("values.yaml\n")],
        upstream: &[kptfile, object, values, ignored("values.yaml\n# new\n")],
        conflicts: &["sub is deleted here and changed upstream; it stays deleted"],
        ..Case::default()
    }
    .check_ours();
}

#[test]
fn rules_come_and_go_with_their_package() {
    let files = [("sub/Kptfile", KPTFILE), ("sub/values.yaml", "a: 1\n"), ("sub/.krmignore", "values.yaml\n")];
    Case { origin: &files, local: &files, ..Case::default() }.check_ours();
    Case { upstream: &files, expected: &files, ..Case::default() }.check_ours();
}

#[test]
fn ignored_files_are_other_files() {
    // kpt: the ignored file stays as it is here.
    let ignored = (".krmignore", "values.yaml\n");
    Case {
        origin: &[ignored, ("values.yaml", "a: 1\n")],
        upstream: &[ignored, ("values.yaml", "a: 2\n")],
        local: &[ignored, ("values.yaml", "a: 1\n")],
        expected: &[ignored, ("values.yaml", "a: 2\n")],
        kpt: Kpt::Files(&[ignored, ("values.yaml", "a: 1\n")]),
        ..Case::default()
    }
    .check();
}

#[test]
fn unreadable_files_change_nothing() {
    let trees = [tree(&[]), tree(&[("in/a.yaml", "a: [\n")]), tree(&[])];
    let error = run(UpdateStrategy::ResourceMerge, &trees[0], &trees[1], &trees[2]).unwrap_err();
    assert_eq!(error.to_string(), "upstream cannot be read");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "in/a.yaml is no YAML; correct it, or list it in .krmignore if it has no objects");
}

#[test]
fn duplicate_objects_are_an_error() {
    // kpt: the same.
    let doubled = format!("{CONFIG}---\n{CONFIG}");
    let trees = [tree(&[]), tree(&[]), tree(&[("a.yaml", &doubled)])];
    let error = run(UpdateStrategy::ResourceMerge, &trees[0], &trees[1], &trees[2]).unwrap_err();
    let expected =
        "the local package has duplicate objects ConfigMap a in a.yaml; rename one, or move it to another file";
    assert_eq!(error.to_string(), expected);
    Case { kpt: Kpt::Error("found duplicate"), ..Case::default() }.check_kpt([&trees[0], &trees[1], &trees[2]]);
}

#[test]
fn duplicates_by_marks_lose_their_marks() {
    const REMOVE: &str = "remove its kpt-merge comment and the annotation internal.kpt.dev/upstream-identifier";
    let marked = |name: &str| {
        let text = CONFIG.replace("metadata:", "metadata: # kpt-merge: default/a");
        text.replace("name: a", &format!("name: {name}"))
    };
    for (one, other, expected) in [
        (marked("a"), marked("b"), format!("ConfigMap b in a.yaml; {REMOVE}")),
        (marked("b"), CONFIG.to_owned(), format!("ConfigMap b in a.yaml; {REMOVE}")),
        (marked("a"), marked("a"), format!("ConfigMap a in a.yaml; rename one and {REMOVE}")),
    ] {
        let local = tree(&[("a.yaml", &format!("{one}---\n{other}"))]);
        let error = run(UpdateStrategy::ResourceMerge, &tree(&[]), &tree(&[]), &local).unwrap_err();
        let expected = format!("the local package has duplicate objects {expected}, or move it to another file");
        assert_eq!(error.to_string(), expected);
    }
}

impl Case<'_> {
    fn with_local_of_origin(self) -> Self {
        Self { local: self.origin, ..self }
    }
}
