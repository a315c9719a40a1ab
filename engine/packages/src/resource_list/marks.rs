//! The annotations by which orchestrators and functions recognise objects. Files never have them.
//!
//! Follows `kio/kioutil` and `internal/annotations` of kyaml.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{AnswerError, Request, name_of, source};
use crate::{
    files::{join, packages},
    resources::{Resource, clean_path, default_path},
    text,
};

const PREFIX: &str = "internal.config.kubernetes.io/";
const PATH: [&str; 2] = ["internal.config.kubernetes.io/path", "config.kubernetes.io/path"];
const INDEX: [&str; 2] = ["internal.config.kubernetes.io/index", "config.kubernetes.io/index"];
const ID: [&str; 2] = ["internal.config.kubernetes.io/id", "config.k8s.io/id"];
const PACKAGE: &str = "internal.config.kubernetes.io/package-path";
const SEQUENCE_INDENT: &str = "internal.config.kubernetes.io/seqindent";
const RESOURCE_ID: &str = "internal.config.k8s.io/kpt-resource-id";

fn is_mark(name: &str) -> bool {
    name.starts_with(PREFIX) || name == RESOURCE_ID || [PATH[1], INDEX[1], ID[1]].contains(&name)
}

/// The annotation of the package in a folder.
fn package_path(package: &str) -> String {
    format!("/{package}")
}

/// An object with its annotations, as value and as text. The id is its number in the list, from 1.
pub(super) fn marked(resource: &Resource, id: usize) -> (Value, String) {
    let text = resource.text().replace("\r\n", "\n");
    let mut value = resource.value.clone();
    let mut set = |name: &str, mark: String| set_annotation(&mut value, name, mark);
    if let Some(index) = resource.index {
        INDEX.iter().for_each(|name| set(name, index.to_string()));
    }
    ID.iter().for_each(|name| set(name, id.to_string()));
    PATH.iter().for_each(|name| set(name, resource.path.clone()));
    set(PACKAGE, package_path(&resource.package));
    set(SEQUENCE_INDENT, sequence_indent(&text).to_owned());
    let text = text::changed(&text, &resource.value, &value);
    (value, text)
}

fn set_annotation(value: &mut Value, name: &str, mark: String) {
    let Value::Object(object) = value else { return };
    let metadata = object.entry("metadata").or_insert_with(|| Map::new().into());
    let Value::Object(metadata) = metadata else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| Map::new().into());
    if !annotations.is_object() {
        *annotations = Map::new().into();
    }
    annotations[name] = mark.into();
}

/// Whether the first list of a text is indented more than its key.
fn sequence_indent(text: &str) -> &'static str {
    let column = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let mut key: Option<&str> = None;
    for line in text.lines().filter(|line| !line.trim_start().starts_with('#') && !line.trim().is_empty()) {
        if let Some(key) = key.filter(|key| key.trim_end().ends_with(':') && line.trim_start().starts_with("- ")) {
            return if column(line) > column(key) { "wide" } else { "compact" };
        }
        key = Some(line);
    }
    "compact"
}

/// The text of an annotation. Numbers count as their text, since some functions write them so.
fn annotation(value: &Value, name: &str) -> Option<String> {
    match value.get("metadata")?.get("annotations")?.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The path of an item of an answer.
pub(super) fn path_of(value: &Value) -> Option<&str> {
    let annotations = value.get("metadata")?.get("annotations")?;
    PATH.iter().find_map(|name| annotations.get(name)?.as_str())
}

/// Which objects of a request an answer has used already.
pub(super) struct Claims<'r> {
    request: &'r Request<'r>,
    packages: BTreeMap<String, &'r str>,
    used: BTreeSet<usize>,
}

/// What the annotations of an item say.
struct Marks {
    package: Option<String>,
    path: Option<String>,
    index: Option<usize>,
}

impl<'r> Claims<'r> {
    pub(super) fn new(request: &'r Request<'r>) -> Self {
        // A tree without any Kptfile is a package, too.
        let packages = std::iter::once("").chain(packages(request.tree));
        let packages = packages.map(|package| (package_path(package), package)).collect();
        Self { request, packages, used: BTreeSet::new() }
    }

    /// The object of an item, without annotations of lists. Text is that of the item, with its annotations.
    pub(super) fn resource(&mut self, value: &Value, text: Option<&str>) -> Result<Resource, AnswerError> {
        let by_id = self.by_id(value)?;
        let marks = self.marks(value, by_id.map(|at| (at, &self.request.items[at])))?;
        let origin = by_id.or_else(|| self.by_path(&marks)).or_else(|| self.by_name(value, &marks));
        let before = origin.map(|at| &self.request.items[at]);
        let package = match (&marks.package, before) {
            (Some(package), _) => package.clone(),
            (None, Some(before)) => before.package.clone(),
            (None, None) => self.request.package.to_owned(),
        };
        let stripped = without_marks(value, before.map(|before| &before.value));
        let mut resource = match before {
            Some(before) => source::updated(before, stripped, text),
            None => {
                let text = text.map(|text| text::changed(text, value, &stripped));
                Resource::new(&package, "", stripped, text)
            }
        };
        let path = match (marks.path, before) {
            (Some(path), _) => path,
            (None, Some(before)) => before.path.clone(),
            (None, None) if resource.is_kptfile() => {
                return Err(AnswerError::NewKptfile { name: resource.name().to_owned() });
            }
            (None, None) => join(self.request.folder, &default_path(&resource)),
        };
        resource.package = package;
        resource.path = clean_path(&path);
        let same_file = before.filter(|before| (&before.package, &before.path) == (&resource.package, &resource.path));
        resource.index = marks.index.or(same_file.and_then(|before| before.index));
        if let Some(at) = origin {
            self.used.insert(at);
        }
        Ok(resource)
    }

    fn marks(&self, value: &Value, before: Option<(usize, &Resource)>) -> Result<Marks, AnswerError> {
        let path = either("path", PATH, value, before.map(|(_, before)| before.path.clone()))?;
        let was = before.and_then(|(_, before)| before.index).map(|index| index.to_string());
        let index = match either("index", INDEX, value, was)? {
            Some(index) => match index.parse() {
                Ok(index) => Some(index),
                Err(_) => return Err(AnswerError::Index { object: name_of(value), index }),
            },
            None => None,
        };
        let package = match annotation(value, PACKAGE) {
            Some(package) => match self.packages.get(package.as_str()) {
                Some(package) => Some((*package).to_owned()),
                None => return Err(AnswerError::UnknownPackage { object: name_of(value), package }),
            },
            None => None,
        };
        Ok(Marks { package, path, index })
    }

    fn by_id(&self, value: &Value) -> Result<Option<usize>, AnswerError> {
        let id = match (annotation(value, ID[0]), annotation(value, ID[1])) {
            (Some(internal), Some(legacy)) if internal != legacy => {
                return Err(AnswerError::Mismatched { what: "id", object: name_of(value), legacy, internal });
            }
            (internal, legacy) => internal.or(legacy),
        };
        let at = id.and_then(|id| id.parse::<usize>().ok()).and_then(|id| id.checked_sub(1));
        Ok(at.filter(|at| *at < self.request.items.len() && !self.used.contains(at)))
    }

    /// The unused object at the path and index of an item.
    fn by_path(&self, marks: &Marks) -> Option<usize> {
        let (path, index) = (marks.path.as_ref()?, marks.index?);
        let package = marks.package.as_deref().unwrap_or(self.request.package);
        self.unused(|it| it.package == package && it.path == *path && it.index == Some(index))
    }

    /// The unused object of the name of an item without path, if no other has it.
    fn by_name(&self, value: &Value, marks: &Marks) -> Option<usize> {
        if marks.path.is_some() {
            return None;
        }
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let is_same = |it: &Resource| {
            it.api_version() == text("/apiVersion")
                && it.kind() == text("/kind")
                && it.name() == text("/metadata/name")
                && it.namespace() == text("/metadata/namespace")
                && !it.is_kptfile()
        };
        let first = self.unused(is_same)?;
        let others = self.request.items.iter().enumerate().filter(|(at, it)| *at != first && is_same(it)).count();
        (others == 0).then_some(first)
    }

    fn unused(&self, is_same: impl Fn(&Resource) -> bool) -> Option<usize> {
        let items = self.request.items.iter().enumerate();
        items.filter(|(at, _)| !self.used.contains(at)).find(|(_, it)| is_same(it)).map(|(at, _)| at)
    }
}

/// The value of two annotations that say the same, unless a function changed one.
fn either(
    what: &'static str,
    names: [&str; 2],
    value: &Value,
    before: Option<String>,
) -> Result<Option<String>, AnswerError> {
    let (internal, legacy) = match (annotation(value, names[0]), annotation(value, names[1])) {
        (Some(internal), Some(legacy)) if internal != legacy => (internal, legacy),
        (internal, legacy) => return Ok(internal.or(legacy)),
    };
    match before {
        Some(before) if before == internal => Ok(Some(legacy)),
        Some(before) if before == legacy => Ok(Some(internal)),
        _ => Err(AnswerError::Mismatched { what, object: name_of(value), legacy, internal }),
    }
}

/// A value without the annotations of lists, except those that its file has.
fn without_marks(value: &Value, before: Option<&Value>) -> Value {
    let mut value = value.clone();
    let own = before.and_then(|before| before.get("metadata")?.get("annotations"));
    let Some(Value::Object(metadata)) = value.get_mut("metadata") else { return value };
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.retain(|name, _| !is_mark(name));
        for (name, text) in own.and_then(Value::as_object).into_iter().flatten().filter(|(name, _)| is_mark(name)) {
            annotations.insert(name.clone(), text.clone());
        }
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    // An empty map stays as the file has it.
    if let (None, Some(own)) = (metadata.get("annotations"), own)
        && (own.is_null() || own.as_object().is_some_and(Map::is_empty))
    {
        metadata.insert("annotations".to_owned(), own.clone());
    }
    value
}
