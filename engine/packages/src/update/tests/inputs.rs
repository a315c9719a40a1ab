//! Large packages, and files that make no sense.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::{KPTFILE, run, texts, tree, values};
use crate::Tree;
use crate::kptfile::UpdateStrategy::{CopyMerge, FastForward, ForceDeleteReplace, ResourceMerge};

/// A package with 100 packages in it, and ten objects in each.
fn large(value: &str) -> Tree {
    let mut tree = tree(&[]);
    for package in 0..100 {
        tree.write(&format!("p{package}/Kptfile"), KPTFILE).unwrap();
        for number in 0..10 {
            let text = format!(
                "# about {number}\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c{number}\ndata:\n  a: {value}\n  b: one # b\n"
            );
            tree.write(&format!("p{package}/in/{number}.yaml"), text).unwrap();
        }
    }
    tree
}

#[test]
fn large_package_is_updated() {
    let (origin, upstream) = (large("one"), large("two"));
    let mut local = tree(&[]);
    for (path, file) in origin.iter() {
        let text = std::str::from_utf8(&file.content).unwrap().replace("b: one", "b: mine");
        local.write(path, text).unwrap();
    }
    let updated = run(ResourceMerge, &origin, &upstream, &local).unwrap();
    assert_eq!(updated.conflicts, []);
    let is_merged = |text: &String| text.contains("a: two\n  b: mine # b\n");
    assert_eq!(texts(&updated.tree).values().filter(|text| is_merged(text)).count(), 1000);
}

#[test]
fn long_lists_are_merged() {
    let list = |value: usize, more: &str| {
        let items: String = (0..5000).map(|item| format!("  - name: n{item}\n    value: {value} # {item}\n")).collect();
        format!("apiVersion: example.com/v1\nkind: Widget\nmetadata:\n  name: w\nspec:\n  list:\n{more}{items}")
    };
    let mine = "  - name: mine\n    value: 1\n";
    let [origin, upstream, local] = [list(1, ""), list(2, ""), list(1, mine)].map(|text| tree(&[("w.yaml", &text)]));
    let updated = run(ResourceMerge, &origin, &upstream, &local).unwrap();
    assert_eq!(texts(&updated.tree)["w.yaml"], list(2, mine));
}

/// Lines that make up files: most of them are no object, many are no YAML.
const LINES: &[&str] = &[
    "apiVersion: v1",
    "kind: ConfigMap",
    "kind: Kptfile",
    "metadata: # kpt-merge: /a",
    "metadata:",
    "metadata: {name: a, annotations: {internal.kpt.dev/upstream-identifier: 'x'}}",
    "  name: a",
    "  name: b",
    "  annotations:",
    "    internal.kpt.dev/upstream-identifier: '|ConfigMap|default|a'",
    "data:",
    "data: &d {a: 1, b: [x, {c: 1}]}",
    "more: *d",
    "  a: one # one",
    "  a: |",
    "    text",
    "  # comment",
    "  b: >-",
    "  - name: x",
    "  - name: 'y' # y",
    "  - 1",
    "  <<: {z: 1}",
    "on: yes",
    "? [a]",
    "---",
    "--- # next",
    "...",
    "%YAML 1.1",
    "\t",
    "",
    "{}",
    "[]",
];

fn text() -> impl Strategy<Value = String> {
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n";
    (any::<bool>(), vec(select(LINES), 0..8), select(["\n", "\r\n"].as_slice())).prop_map(
        move |(is_object, lines, end)| {
            let head = if is_object { object } else { "" };
            format!("{head}{}", lines.iter().map(|line| format!("{line}\n")).collect::<String>()).replace('\n', end)
        },
    )
}

fn any_tree() -> impl Strategy<Value = Tree> {
    const PATHS: &[&str] = &["a.yaml", "in/b.yaml", "in/Kptfile", "c.json", ".krmignore", "README.md"];
    proptest::collection::btree_map(select(PATHS), text(), 0..4)
        .prop_map(|files| tree(&files.iter().map(|(path, text)| (*path, text.as_str())).collect::<Vec<_>>()))
}

proptest! {
    #[test]
    fn any_files_are_answered(origin in any_tree(), upstream in any_tree(), local in any_tree()) {
        for strategy in [ResourceMerge, FastForward, ForceDeleteReplace, CopyMerge] {
            // An error names the reason, and the caller has its tree still.
            let Ok(updated) = run(strategy, &origin, &upstream, &local) else { continue };
            if strategy == ResourceMerge {
                let again = run(strategy, &upstream, &upstream, &updated.tree);
                prop_assert_eq!(texts(&again.unwrap().tree), texts(&updated.tree));
            }
        }
        let Ok(unchanged) = run(ResourceMerge, &origin, &origin, &local) else { return Ok(()) };
        let (mut found, mut expected) = (texts(&unchanged.tree), texts(&local));
        found.remove("Kptfile");
        expected.remove("Kptfile");
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn objects_with_odd_texts_are_merged(one in text(), other in text()) {
        let object = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n";
        let origin = tree(&[("a.yaml", object)]);
        let [upstream, local] = [one, other].map(|text| tree(&[("a.yaml", &format!("{object}{text}"))]));
        if let Ok(updated) = run(ResourceMerge, &origin, &upstream, &local)
            && let Ok(swapped) = run(ResourceMerge, &origin, &local, &upstream)
            && updated.conflicts.is_empty()
        {
            prop_assert_eq!(values(&texts(&updated.tree)), values(&texts(&swapped.tree)));
        }
    }
}
