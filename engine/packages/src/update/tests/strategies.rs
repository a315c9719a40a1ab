//! The strategies.

use super::{Case, KPTFILE, Kpt, run, texts, tree, with_strategy};
use crate::kptfile::{GitLock, Kptfile, UpdateStrategy, UpstreamLock};
use crate::update::{Update, update};

const CONFIG: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  a: one\n";

/// The object with upstream's marks.
fn marked(text: &str) -> String {
    text.replacen("metadata:\n", "metadata: # kpt-merge: /a\n", 1).replacen(
        "  name: a\n",
        "  name: a\n  annotations:\n    internal.kpt.dev/upstream-identifier: \"|ConfigMap|default|a\"\n",
        1,
    )
}

#[test]
fn fast_forward_takes_upstream_of_unchanged_files() {
    // kpt: the same.
    let two = CONFIG.replace("one", "two");
    Case {
        strategy: UpdateStrategy::FastForward,
        origin: &[("a.yaml", CONFIG), ("b", "1")],
        upstream: &[("a.yaml", &two), ("c", "1")],
        local: &[("a.yaml", CONFIG), ("b", "1")],
        expected: &[("a.yaml", &marked(&two)), ("c", "1")],
        ..Case::default()
    }
    .check();
}

#[test]
fn fast_forward_sees_through_marks() {
    // kpt: the same, after it marked the origin, too.
    let trees = [tree(&[("a.yaml", CONFIG)]), tree(&[]), tree(&[("a.yaml", &marked(CONFIG))])];
    let updated = run(UpdateStrategy::FastForward, &trees[0], &trees[1], &trees[2]).unwrap();
    assert_eq!(updated.tree.paths().collect::<Vec<_>>(), ["Kptfile"]);
}

#[test]
fn fast_forward_refuses_local_changes() {
    // kpt: the same, but it has already changed `upstream.ref` and marked objects.
    let origin = [("a.yaml", CONFIG), ("b", "1"), ("c.yaml", CONFIG)];
    let local = [("a.yaml", CONFIG), ("b", "2"), ("c.yaml", &*format!("# mine\n{CONFIG}")), ("d", "1")];
    let trees = [tree(&origin), tree(&[]), tree(&local)];
    let error = run(UpdateStrategy::FastForward, &trees[0], &trees[1], &trees[2]).unwrap_err();
    let expected = "local package files have been modified: [\"b\", \"c.yaml\", \"d\"]. \
                    use a different update strategy, such as resource-merge";
    assert_eq!(error.to_string(), expected);
    Case {
        strategy: UpdateStrategy::FastForward,
        kpt: Kpt::Error("local package files have been modified: ["),
        ..Case::default()
    }
    .check_kpt([&trees[0], &trees[1], &trees[2]]);
}

#[test]
fn replacement_has_upstreams_files() {
    // kpt: the same.
    Case {
        strategy: UpdateStrategy::ForceDeleteReplace,
        origin: &[("a.yaml", CONFIG), ("b", "1")],
        upstream: &[("a.yaml", CONFIG), ("b", "2")],
        local: &[("a.yaml", &CONFIG.replace("one", "mine")), ("b", "3"), ("d", "1"), ("sub/Kptfile", KPTFILE)],
        expected: &[("a.yaml", &marked(CONFIG)), ("b", "2")],
        ..Case::default()
    }
    .check();
}

#[test]
fn replacement_keeps_the_kptfiles_info() {
    // kpt: the same.
    let renamed = KPTFILE.replace("pkg", "mine");
    let trees = [
        tree(&[]),
        tree(&[("Kptfile", &format!("{KPTFILE}info:\n  site: theirs\n"))]),
        tree(&[("Kptfile", &format!("{renamed}info:\n  description: ours\n"))]),
    ];
    let updated = run(UpdateStrategy::ForceDeleteReplace, &trees[0], &trees[1], &trees[2]).unwrap();
    let expected = format!(
        "{renamed}info:\n  description: ours\n  site: theirs\nupstream:\n  updateStrategy: force-delete-replace\n"
    );
    assert_eq!(updated.tree.text("Kptfile").unwrap(), expected);
}

#[test]
fn copy_lays_upstreams_files_over() {
    // kpt: the same.
    let renamed = CONFIG.replace("name: a", "name: mine");
    Case {
        strategy: UpdateStrategy::CopyMerge,
        origin: &[("a.yaml", CONFIG), ("old", "1")],
        upstream: &[("a.yaml", CONFIG), ("new", "1")],
        local: &[("a.yaml", &renamed), ("old", "2"), ("mine", "1")],
        expected: &[("a.yaml", &marked(CONFIG)), ("new", "1"), ("mine", "1")],
        ..Case::default()
    }
    .check();
}

#[test]
fn kptfiles_strategy_is_used() {
    // kpt: resource-merge, unless the command names another.
    let trees = [tree(&[]), tree(&[]), with_strategy(&tree(&[("a", "1")]), UpdateStrategy::FastForward)];
    let update = |strategy| {
        update(&Update { origin: &trees[0], upstream: &trees[1], local: &trees[2], strategy, revision: None })
    };
    assert!(update(None).is_err());
    let updated = update(Some(UpdateStrategy::ResourceMerge)).unwrap();
    assert_eq!(
        updated.tree.text("Kptfile").unwrap(),
        format!("{KPTFILE}upstream:\n  updateStrategy: resource-merge\n")
    );
}

#[test]
fn unknown_strategy_changes_nothing() {
    let local = tree(&[("Kptfile", &format!("{KPTFILE}upstream:\n  updateStrategy: magic\n"))]);
    let error = update(&Update { origin: &local, upstream: &local, local: &local, strategy: None, revision: None })
        .unwrap_err();
    assert_eq!(error.to_string(), "Kptfile of the local package cannot be read");
}

#[test]
fn revision_is_recorded() {
    let git = |reference: &str| GitLock {
        repo: "https://example.com/r".to_owned(),
        directory: "/a".to_owned(),
        reference: reference.to_owned(),
        commit: "0".repeat(40),
    };
    let revision = UpstreamLock { kind: "git".to_owned(), git: Some(git("v2")) };
    let local = tree(&[("Kptfile", &format!("{KPTFILE}# ours\ninfo:\n  site: s # here\n"))]);
    let empty = tree(&[]);
    let updated =
        update(&Update { origin: &empty, upstream: &empty, local: &local, strategy: None, revision: Some(&revision) })
            .unwrap();
    let text = &texts(&updated.tree)["Kptfile"];
    assert!(text.starts_with(&format!("{KPTFILE}# ours\ninfo:\n  site: s # here\n")), "{text}");
    let kptfile = Kptfile::parse(text).unwrap();
    assert_eq!(kptfile.upstream_lock, Some(revision));
    assert_eq!(kptfile.upstream.unwrap().git.unwrap().reference, "v2");
}
