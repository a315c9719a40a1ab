//! The generator `Manifests`: Kubernetes objects in YAML and JSON files.
//!
//! There is no order of kinds. That an object comes after its Namespace and a custom resource after
//! its definition is the engine's rule for every Spec, so nothing is said of it here.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde_json::{Map, Value};
use stoa_engine::{
    Resource, ResourceId, ResourceType, Spec,
    spec::{FILE, LINE},
};
use stoa_proto::Problem;

use super::{At, kinds, yaml};
use crate::failure::{problem, reason};
use crate::source::SourceFile;

/// Files that look like manifests and belong to other tools.
const NOT_MANIFESTS: [&str; 8] = [
    "kustomization.yaml",
    "kustomization.yml",
    "Chart.yaml",
    "values.yaml",
    "skaffold.yaml",
    "project.yaml",
    "stack.yaml",
    "package-context.yaml",
];

struct Manifest {
    api_version: String,
    kind: String,
    namespace: Option<String>,
    name: String,
    object: Map<String, Value>,
    file: String,
    line: u32,
}

impl Manifest {
    fn id(&self) -> ResourceId {
        let Self { api_version, kind, namespace, name, .. } = self;
        ResourceId(match namespace {
            Some(namespace) => format!("{api_version}:{kind}:{namespace}:{name}"),
            None => format!("{api_version}:{kind}:{name}"),
        })
    }

    fn wrong(&self, reason: &str, message: impl Into<String>) -> Problem {
        Problem { file: self.file.clone(), line: self.line, resource_id: self.id().0, ..problem(reason, message) }
    }
}

/// Reads all files; says everything that is wrong with any.
pub(super) fn read(files: &[SourceFile], warnings: &mut Vec<String>, at: At<'_>) -> Result<Spec, Vec<Problem>> {
    let mut manifests = Vec::new();
    let mut problems = Vec::new();
    for (position, file) in files.iter().enumerate() {
        let name = file.path.rsplit('/').next().unwrap_or(&file.path);
        if NOT_MANIFESTS.contains(&name) {
            warnings.push(format!("{}: is no manifest and was passed over", file.path));
            continue;
        }
        at(Some(position));
        match yaml::documents(file) {
            Ok(documents) => {
                for document in documents {
                    let place = Place { file: &file.path, line: document.line, within: String::new() };
                    collect(document.value, &place, &mut manifests, &mut problems, warnings);
                }
            }
            Err(problem) => problems.push(*problem),
        }
    }
    at(None);
    report_duplicates(&manifests, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let spec = to_spec(manifests);
    let located = |found| crate::convert::problem_in(&spec, found);
    match super::check(&spec) {
        Ok(()) => Ok(spec),
        Err(found) => Err(found.into_iter().map(located).collect()),
    }
}

struct Place<'a> {
    file: &'a str,
    line: u32,
    /// Where in a List, such as `items[3].`.
    within: String,
}

fn collect(
    value: Value,
    place: &Place<'_>,
    manifests: &mut Vec<Manifest>,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<String>,
) {
    let wrong = |field: &str, reason: &str, message: String| Problem {
        file: place.file.to_owned(),
        line: place.line,
        field: format!("{}{field}", place.within).trim_end_matches('.').to_owned(),
        ..problem(reason, message)
    };
    let Value::Object(mut object) = value else {
        problems.push(wrong("", reason::INVALID_MANIFEST, "is no Kubernetes object".to_owned()));
        return;
    };
    let api_version = match text(&object, "apiVersion") {
        Ok(api_version) => api_version,
        Err((reason, message)) => return problems.push(wrong("apiVersion", reason, message)),
    };
    let kind = match text(&object, "kind") {
        Ok(kind) => kind,
        Err((reason, message)) => return problems.push(wrong("kind", reason, message)),
    };
    if api_version.starts_with("kustomize.config.k8s.io/") || api_version.starts_with("config.kubernetes.io/") {
        warnings.push(format!("{}: a {kind} of {api_version} is no manifest and was passed over", place.file));
        return;
    }
    if kind.ends_with("List") && object.get("items").is_some_and(Value::is_array) {
        let Some(Value::Array(items)) = object.remove("items") else { return };
        for (position, item) in items.into_iter().enumerate() {
            let within = format!("{}items[{position}].", place.within);
            collect(item, &Place { within, ..*place }, manifests, problems, warnings);
        }
        return;
    }
    if kinds::is_unknown(&api_version, &kind) {
        let message = format!("{api_version} has no kind {kind:?}");
        return problems.push(wrong("kind", reason::UNKNOWN_KIND, message));
    }
    let empty = Map::new();
    let metadata = match object.get("metadata") {
        Some(Value::Object(metadata)) => metadata,
        None | Some(Value::Null) => &empty,
        Some(_) => return problems.push(wrong("metadata", reason::INVALID_MANIFEST, "has to be a map".to_owned())),
    };
    let name = match text(metadata, "name") {
        Ok(name) => name,
        Err((reason, message)) => return problems.push(wrong("metadata.name", reason, message)),
    };
    let namespace = match metadata.get("namespace") {
        None | Some(Value::Null) => None,
        Some(Value::String(namespace)) => Some(namespace.clone()).filter(|namespace| !namespace.is_empty()),
        Some(_) => {
            return problems.push(wrong(
                "metadata.namespace",
                reason::INVALID_MANIFEST,
                "has to be a string; put it in quotes".to_owned(),
            ));
        }
    };
    manifests.push(Manifest {
        api_version,
        kind,
        namespace,
        name,
        object,
        file: place.file.to_owned(),
        line: place.line,
    });
}

fn text(map: &Map<String, Value>, key: &str) -> Result<String, (&'static str, String)> {
    match map.get(key) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        None | Some(Value::Null | Value::String(_)) => Err((reason::MISSING_FIELD, "is required".to_owned())),
        Some(_) => Err((reason::INVALID_MANIFEST, "has to be a string; put it in quotes".to_owned())),
    }
}

fn report_duplicates(manifests: &[Manifest], problems: &mut Vec<Problem>) {
    let mut seen: HashMap<ResourceId, &Manifest> = HashMap::new();
    for manifest in manifests {
        match seen.entry(manifest.id()) {
            Entry::Vacant(entry) => {
                entry.insert(manifest);
            }
            Entry::Occupied(entry) => {
                let first = entry.get();
                let message = format!("is also in {}:{}", first.file, first.line);
                problems.push(manifest.wrong(reason::DUPLICATE_RESOURCE, message));
            }
        }
    }
}

fn to_spec(manifests: Vec<Manifest>) -> Spec {
    let resources = manifests.into_iter().map(|manifest| Resource {
        id: manifest.id(),
        kind: ResourceType::Kubernetes,
        attributes: manifest.object,
        depends_on: Vec::new(),
        extensions: [(FILE.to_owned(), manifest.file.into()), (LINE.to_owned(), manifest.line.into())]
            .into_iter()
            .collect(),
    });
    Spec { resources: resources.collect(), ..Spec::default() }
}
