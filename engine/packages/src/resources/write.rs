//! Writes objects back to the files of a tree.

use std::collections::{BTreeMap, BTreeSet};

use super::{Resource, object_name};
use crate::{
    files::{KPTFILE, Tree, TreeError, file_name, has_objects, ignore_rules, join, path_problem},
    ignore::Rules,
    text,
};

/// Why objects cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The path is outside of the package.
    #[error(
        "function must not modify resources outside of package: resource has path {path}; \
         set a path inside of the package for {object}"
    )]
    Outside {
        /// The object.
        object: String,
        /// The path.
        path: String,
    },
    /// The path is not one of a file that packages read.
    #[error("{object} has path {path:?}, which {problem}; set a path such as \"dir/name.yaml\"")]
    Path {
        /// The object.
        object: String,
        /// The path.
        path: String,
        /// The problem, as the rest of a sentence.
        problem: &'static str,
    },
    /// Two objects have the same index in one file.
    #[error("resource at path {path:?} and index \"{index}\" already exists; set another index for {object}")]
    SameIndex {
        /// The second object.
        object: String,
        /// The path of the file in the tree.
        path: String,
        /// The index of both.
        index: usize,
    },
    /// The tree cannot have the file.
    #[error("the object cannot be written")]
    Tree(#[from] TreeError),
}

/// The tree with the objects as they are now: `before` are those that were read from the tree, `after` those of the result.
///
/// A file without objects is removed. The objects of a file are in the order of their index; those without one follow.
///
/// # Errors
///
/// [`WriteError`] when a path or an index is rejected.
pub fn write(tree: &Tree, before: &[Resource], after: &[Resource]) -> Result<Tree, WriteError> {
    let mut files: BTreeMap<String, Vec<&Resource>> = BTreeMap::new();
    for resource in after {
        files.entry(resource.file()).or_default().push(resource);
    }
    let mut read: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for origin in before.iter().filter_map(|resource| resource.origin.as_ref()) {
        read.entry(&origin.file).or_default().insert(origin.document);
        files.entry(origin.file.clone()).or_default();
    }
    let mut written = tree.clone();
    let mut checks = Checks::of(tree);
    let none = BTreeSet::new();
    for (path, mut resources) in files {
        resources.sort_by_key(|resource| resource.index.unwrap_or(usize::MAX));
        if let Some(pair) = resources.windows(2).find(|pair| pair[0].index.is_some() && pair[0].index == pair[1].index)
        {
            let index = pair[0].index.unwrap_or_default();
            return Err(WriteError::SameIndex { object: object_name(pair[1]), path, index });
        }
        let removable = read.get(path.as_str()).unwrap_or(&none);
        if is_as_read(&path, &resources, removable) {
            continue;
        }
        if let Some(resource) = resources.first() {
            checks.check(resource)?;
        }
        match file_text(tree.text(&path).unwrap_or_default(), &path, &resources, removable) {
            text if text.is_empty() => drop(written.remove(&path)),
            text => written.write(&path, text)?,
        }
    }
    Ok(written)
}

/// Checks the paths and indexes of objects before they are written.
///
/// # Errors
///
/// [`WriteError`] for the first object whose path is rejected, or whose path and index another one has.
pub(crate) fn check_paths(tree: &Tree, resources: &[Resource]) -> Result<(), WriteError> {
    let mut taken = BTreeSet::new();
    let mut checks = Checks::of(tree);
    for resource in resources {
        checks.check(resource)?;
        if let Some(index) = resource.index
            && !taken.insert((resource.file(), index))
        {
            return Err(WriteError::SameIndex { object: object_name(resource), path: resource.file(), index });
        }
    }
    Ok(())
}

/// A path without empty segments and `.`, and with `..` resolved where it stays inside.
pub(crate) fn clean_path(path: &str) -> String {
    let mut clean: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." if clean.last().is_some_and(|last| *last != "..") => drop(clean.pop()),
            segment => clean.push(segment),
        }
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    format!("{root}{}", clean.join("/"))
}

/// The path of a new object: `<namespace>/<kind>_<name>.yaml`, with the kind in lower case.
pub(crate) fn default_path(resource: &Resource) -> String {
    let file = format!("{}_{}.yaml", resource.kind().to_lowercase(), resource.name());
    join(resource.namespace(), &file)
}

/// Whether a file has exactly the documents that were read, unchanged.
fn is_as_read(path: &str, resources: &[&Resource], read: &BTreeSet<usize>) -> bool {
    let origins = resources.iter().map(|resource| {
        let origin = resource.origin.as_ref().filter(|origin| origin.file == path && resource.is_untouched());
        origin.map(|origin| origin.document)
    });
    resources.len() == read.len() && origins.eq(read.iter().map(|document| Some(*document)))
}

/// Checks the files of objects that are written.
struct Checks<'c> {
    tree: &'c Tree,
    /// The rules of each package, which are read once.
    rules: BTreeMap<&'c str, Rules>,
}

impl<'c> Checks<'c> {
    fn of(tree: &'c Tree) -> Self {
        Self { tree, rules: BTreeMap::new() }
    }

    fn check(&mut self, resource: &'c Resource) -> Result<(), WriteError> {
        let rejected =
            |problem| WriteError::Path { object: object_name(resource), path: resource.path.clone(), problem };
        if resource.path == ".." || resource.path.starts_with("../") {
            return Err(WriteError::Outside { object: object_name(resource), path: resource.path.clone() });
        }
        if let Some(problem) = path_problem(&resource.path) {
            return Err(rejected(problem));
        }
        if !has_objects(&resource.path) {
            return Err(rejected("is no *.yaml, *.yml or *.json and would not be read again"));
        }
        if file_name(&resource.path) == KPTFILE && !resource.is_kptfile() {
            return Err(rejected("is the path of a Kptfile"));
        }
        let package = resource.package.as_str();
        let rules = self.rules.entry(package).or_insert_with(|| ignore_rules(self.tree, package));
        if rules.ignores(&resource.path) {
            return Err(rejected("is ignored by .krmignore and would not be read again"));
        }
        Ok(())
    }
}

/// The text of a file with these objects in this order, in which the documents of `removable` may be missing.
fn file_text(text: &str, path: &str, resources: &[&Resource], removable: &BTreeSet<usize>) -> String {
    let documents = stoa_yaml_edit::documents(text);
    let mut changes: BTreeMap<usize, Option<String>> =
        removable.iter().filter_map(|document| Some((documents.get(*document)?.start, None))).collect();
    let mut added = Vec::new();
    let (mut last, mut is_in_order) = (None, true);
    let mut used = BTreeSet::new();
    for resource in resources {
        let origin = resource.origin.as_ref().filter(|origin| origin.file == path);
        let document = origin.map(|origin| origin.document).filter(|document| used.insert(*document));
        match document.and_then(|document| documents.get(document)) {
            Some(range) => {
                is_in_order &= added.is_empty() && last < document;
                last = document;
                match resource.is_untouched() {
                    true => drop(changes.remove(&range.start)),
                    false => drop(changes.insert(range.start, Some(document_text(resource, path)))),
                }
            }
            None => added.push(*resource),
        }
    }
    if !is_in_order {
        return joined(text, path, resources);
    }
    let rest = stoa_yaml_edit::rewritten(text, &changes);
    match (rest.is_empty(), added.as_slice()) {
        (true, [only]) if path.ends_with(".json") => json_text(only),
        (true, added) => joined("", path, added),
        (false, added) => {
            added.iter().fold(rest, |file, resource| stoa_yaml_edit::appended(&file, &document_text(resource, path)))
        }
    }
}

/// The documents one after another, below the head of the file.
fn joined(text: &str, path: &str, resources: &[&Resource]) -> String {
    let head = stoa_yaml_edit::documents(text).first().map_or(0, |first| first.start);
    let texts: Vec<String> = resources.iter().map(|resource| document_text(resource, path)).collect();
    if texts.is_empty() { String::new() } else { format!("{}{}", &text[..head], texts.join("---\n")) }
}

/// The text of an object with a line end.
fn document_text(resource: &Resource, path: &str) -> String {
    let text = resource.text();
    if path.ends_with(".json") && resource.origin.is_none() {
        return json_text(resource);
    }
    if text.ends_with('\n') { text } else { format!("{text}\n") }
}

fn json_text(resource: &Resource) -> String {
    text::pretty(&resource.value)
}
