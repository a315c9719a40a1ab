//! Properties of updates of random packages, and their comparison with kpt.
//!
//! Each name in a package has a comment with the name beside it, so that a comment at the wrong item shows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use super::{oracle, run, texts, tree, values};
use crate::Tree;
use crate::kptfile::UpdateStrategy::ResourceMerge;
use crate::merge::Cause;
use crate::update::UpdateConflict;

/// Containers by name: their image and arguments.
type Containers = Vec<(char, (u8, Vec<u8>))>;

/// A random package.
#[derive(Clone, Debug)]
struct Package {
    config: Option<BTreeMap<char, u8>>,
    pod: Option<Containers>,
    service: Option<BTreeMap<u16, u8>>,
    widget: Option<(BTreeMap<char, u8>, Vec<u8>)>,
    file: Option<u8>,
}

fn package() -> impl Strategy<Value = Package> {
    let config = btree_map(prop::char::range('a', 'd'), 0..3_u8, 1..4);
    let container = (0..3_u8, vec(0..2_u8, 0..3));
    let pod = btree_map(prop::char::range('a', 'd'), container, 1..4)
        .prop_map(|containers| containers.into_iter().collect::<Vec<_>>())
        .prop_shuffle();
    let service = btree_map(80..84_u16, 0..3_u8, 1..3);
    let widget = (btree_map(prop::char::range('a', 'd'), 0..3_u8, 1..4), vec(0..3_u8, 0..3));
    (option::of(config), option::of(pod), option::of(service), option::of(widget), option::of(0..3_u8))
        .prop_map(|(config, pod, service, widget, file)| Package { config, pod, service, widget, file })
}

/// A package, and two with some changes of it.
fn related() -> impl Strategy<Value = [Package; 3]> {
    let change = || (package(), any::<u64>());
    (package(), change(), change()).prop_map(|(origin, one, other)| {
        let changed = |(to, bits): (Package, u64)| origin.changed(&to, &mut Bits(bits));
        let (one, other) = (changed(one), changed(other));
        [origin, one, other]
    })
}

/// Decisions, one after another.
struct Bits(u64);

impl Bits {
    fn next(&mut self) -> bool {
        self.0 = self.0.rotate_right(1);
        self.0 >> 63 == 1
    }

    fn pick<T: Clone>(&mut self, one: &T, other: &T) -> T {
        if self.next() { other.clone() } else { one.clone() }
    }

    fn map<K: Clone + Ord, V: Clone>(&mut self, one: &BTreeMap<K, V>, other: &BTreeMap<K, V>) -> BTreeMap<K, V> {
        let keys: BTreeSet<&K> = one.keys().chain(other.keys()).collect();
        let pick = |key: &K| Some((key.clone(), self.pick(&one.get(key), &other.get(key))?.clone()));
        keys.into_iter().filter_map(pick).collect()
    }
}

impl Package {
    /// The package with some parts of another.
    fn changed(&self, to: &Self, bits: &mut Bits) -> Self {
        let both = |one: &Option<BTreeMap<char, u8>>, other: &Option<_>, bits: &mut Bits| match (one, other) {
            (Some(one), Some(other)) if bits.next() => Some(bits.map(one, other)),
            (one, other) => bits.pick(one, other),
        };
        let pod = match (&self.pod, &to.pod) {
            (Some(one), Some(other)) if !bits.next() => {
                let merged = bits.map(&one.iter().cloned().collect(), &other.iter().cloned().collect());
                let is_in_order = |(name, _): &(char, _)| one.iter().position(|(other, _)| other == name);
                let mut merged: Containers = merged.into_iter().collect();
                merged.sort_by_key(is_in_order);
                Some(merged).filter(|containers| !containers.is_empty())
            }
            (one, other) => bits.pick(one, other),
        };
        let service = match (&self.service, &to.service) {
            (Some(one), Some(other)) => Some(bits.map(one, other)).filter(|ports| !ports.is_empty()),
            (one, other) => bits.pick(one, other),
        };
        let widget = match (&self.widget, &to.widget) {
            (Some((fields, list)), Some((other, others))) => {
                Some((bits.map(fields, other), bits.pick(list, others))).filter(|(fields, _)| !fields.is_empty())
            }
            (one, other) => bits.pick(one, other),
        };
        let config = both(&self.config, &to.config, bits).filter(|data| !data.is_empty());
        Self { config, pod, service, widget, file: bits.pick(&self.file, &to.file) }
    }
}

fn head(api_version: &str, kind: &str) -> String {
    let name = kind.to_lowercase();
    format!("# about {kind}\napiVersion: {api_version}\nkind: {kind}\nmetadata:\n  name: {name} # about {name}\n")
}

impl Package {
    fn tree(&self) -> Tree {
        let mut files = BTreeMap::new();
        if let Some(data) = &self.config {
            let data: String = data.iter().fold(String::new(), |mut text, (key, value)| {
                let _ = writeln!(text, "  k{key}: v{value} # about k{key}");
                text
            });
            files.insert("config.yaml", format!("{}data:\n{data}", head("v1", "ConfigMap")));
        }
        if let Some(containers) = &self.pod {
            let mut text = format!("{}spec:\n  containers:\n", head("v1", "Pod"));
            for (name, (image, args)) in containers {
                let _ = write!(text, "  # about n{name}\n  - name: n{name}\n    image: i{image}\n");
                if !args.is_empty() {
                    text.push_str("    args:\n");
                }
                args.iter().for_each(|arg| text.push_str(&format!("    - x{arg}\n")));
            }
            files.insert("pod.yaml", text);
        }
        if let Some(ports) = &self.service {
            let mut text = format!("{}spec:\n  ports:\n", head("v1", "Service"));
            for (port, name) in ports {
                let _ = write!(text, "  - name: p{name}\n    port: {port} # about {port}\n    protocol: TCP\n");
            }
            files.insert("in/service.yaml", text);
        }
        if let Some((fields, list)) = &self.widget {
            let mut text = format!("{}spec:\n", head("example.com/v1", "Widget"));
            fields.iter().for_each(|(key, value)| text.push_str(&format!("  f{key}: {value} # about f{key}\n")));
            if !list.is_empty() {
                text.push_str("  list:\n");
            }
            list.iter().for_each(|item| text.push_str(&format!("  - l{item} # about l{item}\n")));
            files.insert("in/widget.yaml", text);
        }
        if let Some(file) = self.file {
            files.insert("file", file.to_string());
        }
        tree(&files.iter().map(|(path, text)| (*path, text.as_str())).collect::<Vec<_>>())
    }
}

/// Checks that each comment is at what it is about.
fn check_comments(tree: &Tree) -> Result<(), TestCaseError> {
    for (path, text) in texts(tree) {
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let Some((before, about)) = line.split_once("# about ") else { continue };
            let is_above = before.trim().is_empty();
            let mut subject = if is_above { lines[number..].iter() } else { lines[number..=number].iter() };
            let is_found = match is_above && about.starts_with(char::is_uppercase) {
                true => subject.any(|line| *line == format!("kind: {about}")),
                false => subject.nth(usize::from(is_above)).is_some_and(|line| {
                    let words = line.split('#').next().unwrap_or_default();
                    words.split([' ', ':', '-']).any(|word| word == about)
                }),
            };
            prop_assert!(is_found, "{path}: {line:?} in\n{text}");
        }
    }
    Ok(())
}

/// The values with lists of named items in the order of their names.
fn sorted(tree: &BTreeMap<String, String>) -> BTreeMap<String, Vec<Value>> {
    fn sort(value: &mut Value) {
        match value {
            Value::Object(map) => map.values_mut().for_each(sort),
            Value::Array(items) => {
                items.iter_mut().for_each(sort);
                if items.iter().all(Value::is_object) {
                    items.sort_by_key(Value::to_string);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut values = values(tree);
    values.values_mut().flatten().for_each(sort);
    values
}

proptest! {
    #[test]
    fn unchanged_upstream_changes_nothing(origin in package(), local in package()) {
        let (origin, local) = (origin.tree(), local.tree());
        let updated = run(ResourceMerge, &origin, &origin, &local).unwrap();
        let again = run(ResourceMerge, &origin, &origin, &updated.tree).unwrap();
        prop_assert_eq!(texts(&again.tree), texts(&updated.tree));
        let mut expected = texts(&local);
        let kptfile = texts(&updated.tree).remove("Kptfile").unwrap();
        expected.insert("Kptfile".to_owned(), kptfile);
        prop_assert_eq!(texts(&updated.tree), expected);
        prop_assert_eq!(updated.conflicts.len(), 0);
    }

    #[test]
    fn unchanged_package_becomes_upstreams(origin in package(), upstream in package()) {
        let (origin, upstream) = (origin.tree(), upstream.tree());
        let updated = run(ResourceMerge, &origin, &upstream, &origin).unwrap();
        let (found, mut expected) = (texts(&updated.tree), texts(&upstream));
        expected.insert("Kptfile".to_owned(), found["Kptfile"].clone());
        prop_assert_eq!(values(&found), values(&expected));
        for path in texts(&origin).keys().filter(|path| *path != "Kptfile") {
            prop_assert_eq!(found.get(path), expected.get(path));
        }
        prop_assert_eq!(updated.conflicts.len(), 0);
    }

    #[test]
    fn second_update_changes_nothing([origin, upstream, local] in related()) {
        let (origin, upstream, local) = (origin.tree(), upstream.tree(), local.tree());
        let once = run(ResourceMerge, &origin, &upstream, &local).unwrap().tree;
        for origin in [&origin, &upstream] {
            let twice = run(ResourceMerge, origin, &upstream, &once).unwrap().tree;
            prop_assert_eq!(texts(&twice), texts(&once));
        }
    }

    #[test]
    fn changes_without_conflicts_commute([origin, one, other] in related()) {
        let (origin, one, other) = (origin.tree(), one.tree(), other.tree());
        let updated = run(ResourceMerge, &origin, &one, &other).unwrap();
        let swapped = run(ResourceMerge, &origin, &other, &one).unwrap();
        prop_assert_eq!(updated.conflicts.len(), swapped.conflicts.len());
        if updated.conflicts.is_empty() {
            prop_assert_eq!(sorted(&texts(&updated.tree)), sorted(&texts(&swapped.tree)));
        }
    }

    #[test]
    fn comments_stay_at_their_items([origin, upstream, local] in related()) {
        let (origin, upstream, local) = (origin.tree(), upstream.tree(), local.tree());
        let updated = run(ResourceMerge, &origin, &upstream, &local).unwrap();
        check_comments(&updated.tree)?;
    }

}

proptest! {
    // A question takes kpt a tenth of a second.
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 4, ..ProptestConfig::default() })]

    #[test]
    fn updates_equal_kpts([origin, upstream, local] in related()) {
        // kpt brings a file back that was deleted here.
        let plain = |package: Package| Package { file: None, ..package }.tree();
        let (origin, upstream, local) = (plain(origin), plain(upstream), plain(local));
        let updated = run(ResourceMerge, &origin, &upstream, &local).unwrap();
        // Of a list's item that one side deleted and the other changed, kpt leaves a part.
        let is_field = |conflict: &UpdateConflict| conflict.cause == Cause::ChangedOnBothSides;
        if updated.conflicts.iter().all(is_field) && let Some(kpt) = oracle::ask(ResourceMerge, &origin, &upstream, &local) {
            let (mut found, mut expected) = (sorted(&texts(&updated.tree)), sorted(&kpt.unwrap()));
            found.remove("Kptfile");
            expected.remove("Kptfile");
            prop_assert_eq!(found, expected);
        }
    }
}
