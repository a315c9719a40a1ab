//! The files outside of a stack's folder that decide what it renders to, such as bases.
//!
//! A change of one is a change of the stack. Start at [`Dependencies::ids`]. Each way of writing configuration has a function that finds
//! paths: [`Dependencies::kustomize`] and [`Dependencies::helm`] here, and that of KCL in `kcl`. More may count than a generator reads,
//! such as a whole folder, and never less. Nothing is rendered for it.

mod kcl;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use git2::{ObjectType, Oid, Repository, Tree};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use stoa_yaml::Limits;

use super::content::{id_in, size};
use crate::generate::KUSTOMIZATIONS;

/// The largest file that is read for it, in bytes; a larger one leads nowhere.
const LARGEST: usize = 1 << 20;
/// The most kustomizations of a stack; others lead nowhere.
const MOST: usize = 1_000;
/// The longest path, in bytes.
const LONGEST: usize = 1_024;

const LIMITS: Limits = Limits { depth: 64, values: 100_000, documents: 10, copied: 1 << 20 };

/// A stack in a commit.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackPath<'a> {
    /// From the root of the source, normalized.
    pub(super) path: &'a str,
    /// The values files of a chart, from the stack's folder.
    pub(super) values_files: &'a [String],
}

/// Finds what stacks depend on. It parses a file of a repository once, however many stacks it is for.
pub(super) struct Dependencies<'r> {
    repository: &'r Repository,
    /// The imports of KCL files, by the id of their content.
    imports: RefCell<HashMap<Oid, Rc<[String]>>>,
}

impl<'r> Dependencies<'r> {
    pub(super) fn new(repository: &'r Repository) -> Self {
        Self { repository, imports: RefCell::default() }
    }

    /// A digest of the ids of everything outside of its folder that decides a stack; empty if that is nothing.
    pub(super) fn ids(&self, root: &Tree<'_>, stack: StackPath<'_>) -> String {
        let mut outside = Outside { root, stack: stack.path, found: BTreeSet::new() };
        self.kustomize(&mut outside);
        self.kcl(&mut outside);
        Self::helm(&mut outside, stack.values_files);
        if outside.found.is_empty() {
            return String::new();
        }
        let mut hasher = Sha256::new();
        outside.found.iter().for_each(|line| hasher.update(format!("{line}\n")));
        hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What kustomizations lead to. Every text of a kustomization that is a path in the repository counts, so that a path in a field
    /// that is not known here is not missed.
    fn kustomize(&self, outside: &mut Outside<'_, '_>) {
        let mut visited = BTreeSet::new();
        let mut folders = vec![outside.stack.to_owned()];
        while let Some(folder) = folders.pop() {
            if visited.len() >= MOST || !visited.insert(folder.clone()) {
                continue;
            }
            for name in KUSTOMIZATIONS {
                for text in self.texts(outside.root, &join(&folder, name)) {
                    // Files of generators may have a key.
                    let text = text.split_once('=').map_or(text.as_str(), |(_, path)| path);
                    let Some(path) = resolve(&folder, text).filter(|path| !path.is_empty()) else { continue };
                    if outside.add(&path) {
                        folders.push(path);
                    }
                }
            }
        }
    }

    /// The values files of a chart.
    fn helm(outside: &mut Outside<'_, '_>, values_files: &[String]) {
        for path in values_files.iter().filter_map(|file| resolve(outside.stack, file)) {
            outside.add(&path);
        }
    }

    /// The text of a small file.
    fn text(&self, root: &Tree<'_>, path: &str) -> Option<(Oid, String)> {
        let entry = root.get_path(path.as_ref()).ok()?;
        let is_small = || size(self.repository, entry.id()).is_ok_and(|bytes| bytes <= LARGEST);
        if entry.kind() != Some(ObjectType::Blob) || !is_small() {
            return None;
        }
        let blob = self.repository.find_blob(entry.id()).ok()?;
        Some((entry.id(), std::str::from_utf8(blob.content()).ok()?.to_owned()))
    }

    /// All texts in a YAML file.
    fn texts(&self, root: &Tree<'_>, path: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let Some((_, text)) = self.text(root, path) else { return found };
        // The generator says what is wrong with it.
        for document in stoa_yaml::documents(&text, &LIMITS, false).unwrap_or_default() {
            collect(&document.value, &mut found);
        }
        found
    }
}

/// What was found for a stack.
struct Outside<'a, 't> {
    root: &'a Tree<'t>,
    /// The stack's path.
    stack: &'a str,
    /// The paths outside of it, with their ids.
    found: BTreeSet<String>,
}

impl Outside<'_, '_> {
    /// Adds the file or folder at a path, unless it is in the stack's folder. Whether it exists.
    fn add(&mut self, path: &str) -> bool {
        let Some(id) = id_in(self.root, path) else { return false };
        if !is_below(path, self.stack) {
            self.found.insert(format!("{path} {id}"));
        }
        true
    }
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

fn is_below(path: &str, folder: &str) -> bool {
    folder.is_empty() || path == folder || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
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
fn resolve(folder: &str, path: &str) -> Option<String> {
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
mod tests;
