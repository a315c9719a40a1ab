//! The identity of an object in its upstream, which survives that the object is renamed here.
//!
//! A cloned object has a comment `kpt-merge: <namespace>/<name>` behind `metadata:`, and an annotation. [`Identity`] reads
//! them and [`marked`] sets them, as kpt does.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::files::{KPTFILE, Tree, file_name, resource_files};
use crate::merge::{ListTypes, revise};
use crate::resources::{Resource, read_file, write};

/// The beginning of the comment behind `metadata:`.
const COMMENT: &str = "kpt-merge:";

/// The annotation with `<group>|<kind>|<namespace>|<name>`.
const ANNOTATION: &str = "internal.kpt.dev/upstream-identifier";

/// What makes an object another one that has marks.
const WITHOUT_MARKS: &str = "remove its kpt-merge comment and the annotation internal.kpt.dev/upstream-identifier";

/// The same for an object that has the name in its marks.
const RENAMED_WITHOUT_MARKS: &str =
    "rename one and remove its kpt-merge comment and the annotation internal.kpt.dev/upstream-identifier";

/// The namespace of an object without one.
const NO_NAMESPACE: &str = "default";

/// An object, as messages name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectId {
    /// Its group and version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace; empty if it has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectId {
    pub(crate) fn of(resource: &Resource) -> Self {
        Self {
            api_version: resource.api_version().to_owned(),
            kind: resource.kind().to_owned(),
            namespace: resource.namespace().to_owned(),
            name: resource.name().to_owned(),
        }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{} {}", self.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind, self.name),
        }
    }
}

/// The identity of an object in its upstream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    group: String,
    kind: String,
    namespace: String,
    name: String,
}

impl Identity {
    /// The identity by the comment, or else by the annotation, or else by the metadata.
    pub(crate) fn of(resource: &Resource) -> Self {
        Self::named(resource, upstream_name(resource))
    }

    /// The identity that an object without marks has.
    fn by_metadata(resource: &Resource) -> Self {
        Self::named(resource, own_name(resource))
    }

    fn named(resource: &Resource, (namespace, name): (String, String)) -> Self {
        let namespace = if namespace.is_empty() { NO_NAMESPACE.to_owned() } else { namespace };
        Self { group: resource.group().to_owned(), kind: resource.kind().to_owned(), namespace, name }
    }
}

fn upstream_name(resource: &Resource) -> (String, String) {
    let annotated = || {
        let mut parts = resource.annotation(ANNOTATION)?.splitn(4, '|').skip(2);
        Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
    };
    comment_name(&resource.text()).or_else(annotated).unwrap_or_else(|| own_name(resource))
}

fn own_name(resource: &Resource) -> (String, String) {
    (resource.namespace().to_owned(), resource.name().to_owned())
}

/// The namespace and name in the comment.
fn comment_name(text: &str) -> Option<(String, String)> {
    let (_, comment) = metadata_line(text)?.split_once('#')?;
    let (namespace, name) = comment.trim().strip_prefix(COMMENT)?.trim().split_once('/')?;
    Some((namespace.to_owned(), name.to_owned()))
}

/// The line `metadata:` of an object in block style.
fn metadata_line(text: &str) -> Option<&str> {
    text.lines().find(|line| {
        line.strip_prefix("metadata:").is_some_and(|rest| rest.trim().is_empty() || rest.trim().starts_with('#'))
    })
}

/// Whether an object has a mark of its upstream.
pub(crate) fn is_marked(resource: &Resource) -> bool {
    resource.annotation(ANNOTATION).is_some() || comment_name(&resource.text()).is_some()
}

/// The object with both marks. A comment that it has already stays, and names it in the annotation.
pub(crate) fn marked(resource: &Resource) -> Resource {
    let mut marked = resource.clone();
    if resource.is_kptfile() || resource.name().is_empty() {
        return marked;
    }
    let text = resource.text();
    let (namespace, name) = comment_name(&text).unwrap_or_else(|| own_name(resource));
    let comment = format!("metadata: # {COMMENT} {namespace}/{name}");
    let Identity { group, kind, namespace, name } = Identity::named(resource, (namespace, name));
    let mut value = resource.value.clone();
    annotate(&mut value, format!("{group}|{kind}|{namespace}|{name}"));
    let text = revise(&text, (&resource.value, &value), &ListTypes::default(), None);
    let text = match metadata_line(&text).filter(|line| !line.contains('#')) {
        Some(line) => text.replacen(&format!("{line}\n"), &format!("{comment}\n"), 1),
        None => text,
    };
    match marked.set_text(text) {
        Ok(()) => marked,
        Err(_) => resource.clone(),
    }
}

fn annotate(object: &mut Value, identifier: String) {
    let mut at = object;
    for key in ["metadata", "annotations"] {
        let Some(map) = at.as_object_mut() else { return };
        at = map.entry(key).or_insert_with(|| Value::Object(Map::new()));
        if at.is_null() {
            *at = Value::Object(Map::new());
        }
    }
    if let Some(annotations) = at.as_object_mut() {
        annotations.insert(ANNOTATION.to_owned(), Value::String(identifier));
    }
}

/// The tree with all of its objects marked. A file that cannot be read stays as it is, as in kpt.
pub(crate) fn marked_tree(tree: &Tree) -> Tree {
    let mut marked_tree = tree.clone();
    for file in resource_files(tree).into_iter().filter(|file| file_name(file.path) != KPTFILE) {
        let Ok(resources) = read_file(tree, file.package, file.path) else { continue };
        let text = changed_file(tree, file.path, &resources.iter().collect::<Vec<_>>(), marked);
        if marked_tree.write(file.path, text).is_err() {
            return tree.clone();
        }
    }
    marked_tree
}

/// The text of a file after a change of its objects.
pub(crate) fn changed_file(
    tree: &Tree,
    path: &str,
    resources: &[&Resource],
    change: fn(&Resource) -> Resource,
) -> String {
    let text = tree.text(path).unwrap_or_default();
    let before: Vec<Resource> = resources.iter().copied().cloned().collect();
    let after: Vec<Resource> = before.iter().map(change).collect();
    let mut single = Tree::default();
    let written = single.write(path, text.to_owned()).ok().and_then(|()| write(&single, &before, &after).ok());
    written.and_then(|tree| tree.text(path).map(str::to_owned)).unwrap_or_else(|| text.to_owned())
}

/// The value without its mark, for comparisons.
pub(crate) fn unmarked(resource: &Resource) -> Value {
    let mut value = resource.value.clone();
    let annotations = value.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    let is_left_empty =
        annotations.is_some_and(|annotations| annotations.remove(ANNOTATION).is_some() && annotations.is_empty());
    if is_left_empty && let Some(metadata) = value.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.remove("annotations");
    }
    value
}

/// An object and its position among those of its side.
pub(crate) type Found<'r> = Option<(usize, &'r Resource)>;

/// The objects of several sides that are the same object, by identity.
///
/// Where a side has several of one identity, as with patches or environments, they are found by identity and file, as in kpt.
pub(crate) fn matched<'r, const N: usize>(sides: [&[&'r Resource]; N]) -> Vec<[Found<'r>; N]> {
    let mut groups: BTreeMap<Identity, [Vec<(usize, &'r Resource)>; N]> = BTreeMap::new();
    for (side, resources) in sides.into_iter().enumerate() {
        for (position, resource) in resources.iter().enumerate() {
            let group = groups.entry(Identity::of(resource)).or_insert_with(|| [const { Vec::new() }; N]);
            group[side].push((position, *resource));
        }
    }
    let mut matched = Vec::new();
    for group in groups.into_values() {
        if group.iter().all(|found| found.len() <= 1) {
            matched.push(group.map(|found| found.first().copied()));
            continue;
        }
        // The number counts objects of one identity and file.
        let mut by_file: BTreeMap<(&str, usize), [Found<'r>; N]> = BTreeMap::new();
        for (side, found) in group.iter().enumerate() {
            let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
            for object in found {
                let number = numbers.entry(&object.1.path).or_default();
                by_file.entry((&object.1.path, *number)).or_insert([None; N])[side] = Some(*object);
                *number += 1;
            }
        }
        matched.extend(by_file.into_values());
    }
    matched
}

/// One of two objects of one identity and file, and what makes it another object, as a part of a sentence. An object whose
/// marks name another object comes before the one that has the name.
pub(crate) fn duplicate<'r>(resources: &[&'r Resource]) -> Option<(&'r Resource, &'static str)> {
    let mut found: BTreeMap<(Identity, &str), &'r Resource> = BTreeMap::new();
    for resource in resources.iter().copied() {
        let Some(first) = found.insert((Identity::of(resource), &resource.path), resource) else { continue };
        let pair = [resource, first];
        let is_renamed = |resource: &&Resource| Identity::of(resource) != Identity::by_metadata(resource);
        return Some(match pair.into_iter().find(is_renamed) {
            Some(renamed) => (renamed, WITHOUT_MARKS),
            None if pair.into_iter().any(is_marked) => (resource, RENAMED_WITHOUT_MARKS),
            None => (resource, "rename one"),
        });
    }
    None
}
