//! The rows about Kptfiles of the table in `reference/packages.md`.

use super::{Case, KPTFILE, Kpt};

/// A Kptfile with these mutators.
fn pipeline(mutators: &str) -> String {
    format!("{KPTFILE}pipeline:\n  mutators:\n{mutators}")
}

#[track_caller]
fn check(origin: &str, upstream: &str, local: &str, expected: &str, conflicts: &[&str], kpt: Option<&str>) {
    let kpt_files = [("Kptfile", kpt.unwrap_or(expected))];
    Case {
        origin: &[("Kptfile", origin)],
        upstream: &[("Kptfile", upstream)],
        local: &[("Kptfile", local)],
        expected: &[("Kptfile", expected)],
        conflicts,
        kpt: if kpt.is_some() { Kpt::Files(&kpt_files) } else { Kpt::Same },
        ..Case::default()
    }
    .check();
}

#[test]
fn functions_merge_by_image_without_tag() {
    // kpt: the same.
    check(
        &pipeline("  - image: example.com/set-labels:v0.1\n    configMap:\n      app: web\n"),
        &pipeline("  - image: example.com/set-labels:v0.2\n    configMap:\n      app: web\n"),
        &pipeline("  - image: example.com/set-labels:v0.1 # ours\n    configMap:\n      app: web\n      tier: front\n"),
        &pipeline("  - image: example.com/set-labels:v0.2 # ours\n    configMap:\n      app: web\n      tier: front\n"),
        &[],
        None,
    );
}

#[test]
fn functions_merge_by_name() {
    // kpt: the same.
    check(
        &pipeline("  - image: a:v1\n    name: one\n  - image: a:v1\n    name: two\n"),
        &pipeline("  - image: a:v1\n    name: one\n  - image: a:v2\n    name: two\n"),
        &pipeline("  - image: b:v1\n    name: one\n  - image: a:v1\n    name: two\n  - image: c:v1\n    name: mine\n"),
        &pipeline("  - image: b:v1\n    name: one\n  - image: a:v2\n    name: two\n  - image: c:v1\n    name: mine\n"),
        &[],
        None,
    );
}

#[test]
fn function_that_upstream_puts_first_stays_first() {
    // kpt: it comes last.
    let (first, common, mine) = ("  - image: first:v1\n", "  - image: common:v1\n", "  - image: mine:v1\n");
    check(
        &pipeline(common),
        &pipeline(&format!("{first}{common}")),
        &pipeline(&format!("{common}{mine}")),
        &pipeline(&format!("{first}{common}{mine}")),
        &[],
        Some(&pipeline(&format!("{common}{mine}{first}"))),
    );
}

#[test]
fn doubled_functions_are_one_value() {
    // kpt: the same, silently.
    let two = "  - image: a:v1\n  - image: a:v1\n";
    check(
        &pipeline(two),
        &pipeline("  - image: a:v1\n  - image: a:v1\n  - image: b:v1\n"),
        &pipeline("  - image: a:v1\n  - image: a:v1\n  - image: mine:v1\n"),
        &pipeline("  - image: a:v1\n  - image: a:v1\n  - image: b:v1\n"),
        &["Kptfile: pipeline.mutators changed from [{\"image\":\"a:v1\"},{\"image\":\"a:v1\"}] to \
           [{\"image\":\"a:v1\"},{\"image\":\"a:v1\"},{\"image\":\"b:v1\"}] upstream and to \
           [{\"image\":\"a:v1\"},{\"image\":\"a:v1\"},{\"image\":\"mine:v1\"}] here; upstream's value is used"],
        None,
    );
}

#[test]
fn name_and_upstream_are_local() {
    // kpt: the same.
    let upstream =
        |repo: &str| format!("upstream:\n  type: git\n  git:\n    repo: {repo}\n    directory: /\n    ref: main\n");
    let renamed = KPTFILE.replace("pkg", "mine");
    check(
        KPTFILE,
        &format!("{KPTFILE}{}info:\n  description: new\n", upstream("https://example.com/theirs")),
        &format!("{renamed}{}", upstream("https://example.com/ours")),
        &format!("{renamed}{}info:\n  description: new\n", upstream("https://example.com/ours")),
        &[],
        None,
    );
}

#[test]
fn labels_info_inventory_and_status_merge() {
    // kpt: the same.
    let kptfile = |label: &str, info: &str, id: &str, status: &str| {
        format!(
            "{KPTFILE}  labels:\n    tier: {label}\n    app: web\ninfo:\n  description: {info}\n  site: https://example.com\n\
             inventory:\n  namespace: ns\n  name: {id}\n  inventoryID: i\nstatus:\n  conditions:\n  - type: A\n    status: \"{status}\"\n"
        )
    };
    check(
        &kptfile("a", "a", "a", "True"),
        &kptfile("b", "a", "b", "True"),
        &kptfile("a", "c", "a", "False"),
        &kptfile("b", "c", "b", "False"),
        &[],
        None,
    );
}

#[test]
fn conditions_merge_by_type() {
    // kpt: upstream's list.
    let status = |types: &[&str]| {
        let conditions: String = types.iter().map(|it| format!("  - type: {it}\n    status: \"True\"\n")).collect();
        format!("{KPTFILE}status:\n  conditions:\n{conditions}")
    };
    let (upstream, merged) = (status(&["A", "B"]), status(&["A", "C", "B"]));
    check(&status(&["A"]), &upstream, &status(&["A", "C"]), &merged, &[], Some(&upstream));
}

#[test]
fn gates_merge_by_type() {
    // kpt: upstream's list.
    let gates = |types: &[&str]| {
        let gates: String = types.iter().map(|it| format!("  - conditionType: {it}\n")).collect();
        format!("{KPTFILE}info:\n  readinessGates:\n{gates}")
    };
    check(
        &gates(&["A"]),
        &gates(&["A", "B"]),
        &gates(&["A", "C"]),
        &gates(&["A", "C", "B"]),
        &[],
        Some(&gates(&["A", "B"])),
    );
}
