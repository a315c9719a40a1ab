//! The files outside of a stack's folder that its kustomization leads to, such as bases.
//!
//! A change of one is a change of the stack. Every text of a kustomization that is a path in the repository counts, so that a path in a
//! field that is not known here is not missed.

use std::collections::BTreeSet;

use git2::{ObjectType, Repository, Tree};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use stoa_yaml::Limits;

use super::content::{id_in, size};
use crate::generate::KUSTOMIZATIONS;

/// The largest kustomization that is read, in bytes; a larger one leads nowhere.
const LARGEST: usize = 1 << 20;
/// The most kustomizations of a stack; others lead nowhere.
const MOST: usize = 1_000;
/// The longest path, in bytes.
const LONGEST: usize = 1_024;

const LIMITS: Limits = Limits { depth: 64, values: 100_000, documents: 10, copied: 1 << 20 };

/// A digest of the ids of everything outside of a folder that its kustomization leads to; empty if that is nothing.
pub(super) fn ids(repository: &Repository, root: &Tree<'_>, stack: &str) -> String {
    let (mut seen, mut outside) = (BTreeSet::new(), BTreeSet::new());
    let mut folders = vec![stack.to_owned()];
    while let Some(folder) = folders.pop() {
        if seen.len() >= MOST || !seen.insert(folder.clone()) {
            continue;
        }
        for text in texts(repository, root, &folder) {
            let Some(path) = resolve(&folder, &text) else { continue };
            let Some(id) = id_in(root, &path).filter(|_| !path.is_empty()) else { continue };
            if !is_below(&path, stack) {
                outside.insert(format!("{path} {id}"));
            }
            folders.push(path);
        }
    }
    if outside.is_empty() {
        return String::new();
    }
    let mut hasher = Sha256::new();
    outside.iter().for_each(|line| hasher.update(format!("{line}\n")));
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_below(path: &str, folder: &str) -> bool {
    folder.is_empty() || path == folder || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// All texts of the kustomization right in a folder.
fn texts(repository: &Repository, root: &Tree<'_>, folder: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for name in KUSTOMIZATIONS {
        let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
        let Ok(entry) = root.get_path(path.as_ref()) else { continue };
        let is_small = || size(repository, entry.id()).is_ok_and(|bytes| bytes <= LARGEST);
        if entry.kind() != Some(ObjectType::Blob) || !is_small() {
            continue;
        }
        let Ok(blob) = repository.find_blob(entry.id()) else { continue };
        let Ok(text) = std::str::from_utf8(blob.content()) else { continue };
        // The generator says what is wrong with it.
        for document in stoa_yaml::documents(text, &LIMITS, false).unwrap_or_default() {
            collect(&document.value, &mut found);
        }
    }
    found
}

fn collect(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::String(text) if text.len() <= LONGEST && !text.contains('\n') => {
            found.insert(text.clone());
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
        Value::Object(fields) => fields.values().for_each(|value| collect(value, found)),
        _ => {}
    }
}

/// The path from the root that a text means in a folder; nothing where it leads out.
fn resolve(folder: &str, text: &str) -> Option<String> {
    // Files of generators may have a key.
    let path = text.split_once('=').map_or(text, |(_, path)| path);
    if path.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A commit's tree with these files.
    fn tree(repository: &Repository, files: &[(&str, &str)]) -> git2::Oid {
        let mut index = git2::Index::new().unwrap();
        for (path, text) in files {
            let id = repository.blob(text.as_bytes()).unwrap();
            let time = git2::IndexTime::new(0, 0);
            let entry = git2::IndexEntry {
                ctime: time,
                mtime: time,
                dev: 0,
                ino: 0,
                mode: 0o100_644,
                uid: 0,
                gid: 0,
                file_size: 0,
                id,
                flags: 0,
                flags_extended: 0,
                path: path.as_bytes().to_vec(),
            };
            index.add(&entry).unwrap();
        }
        index.write_tree_to(repository).unwrap()
    }

    #[test]
    fn change_of_a_base_is_a_change_of_the_stack() {
        let folder = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        let overlay =
            "resources: [../../base, own.yaml]\nconfigMapGenerator: [{name: a, files: [k=../../shared/a.txt]}]\n";
        let files = [
            ("apps/dev/kustomization.yaml", overlay),
            ("apps/dev/own.yaml", "x"),
            ("base/kustomization.yaml", "resources: [a.yaml, ../deeper, ../../out]\n"),
            ("base/a.yaml", "1"),
            ("deeper/Kustomization", "resources: [../base]\n"),
            ("deeper/a.yaml", "1"),
            ("shared/a.txt", "1"),
            ("other/a.yaml", "1"),
            ("plain/a.yaml", "1"),
        ];
        let id = |files: &[(&str, &str)], stack: &str| {
            let root = repository.find_tree(tree(&repository, files)).unwrap();
            ids(&repository, &root, stack)
        };
        let before = id(&files, "apps/dev");
        for (changed, expected) in [
            ("base/a.yaml", true),
            ("deeper/a.yaml", true),
            ("shared/a.txt", true),
            ("other/a.yaml", false),
            ("apps/dev/own.yaml", false),
        ] {
            let mut after = files;
            after.iter_mut().filter(|(path, _)| *path == changed).for_each(|(_, text)| *text = "2");
            assert_eq!(id(&after, "apps/dev") != before, expected, "{changed}");
        }
        assert_eq!(id(&files, "plain"), "");
        assert_eq!(id(&files, ""), "", "nothing is outside");
    }

    #[test]
    fn paths_stay_in_the_repository() {
        assert_eq!(resolve("a/b", "../c").as_deref(), Some("a/c"));
        assert_eq!(resolve("a/b", "./c/.././d").as_deref(), Some("a/b/d"));
        assert_eq!(resolve("a", "key=../c").as_deref(), Some("c"));
        assert_eq!(resolve("a", "../../c"), None);
        assert_eq!(resolve("a", "/etc/passwd"), None);
        assert!(is_below("a/b", "a") && is_below("a", "") && !is_below("ab", "a"));
    }
}
