//! The generator `Manifests`: Kubernetes objects in YAML and JSON files.
//!
//! It does not order kinds. The engine applies a Namespace before its objects, and a definition before its custom resources, for every
//! Spec. `depends_on` reads the order that manifests declare themselves.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde_json::{Map, Value};
use stoa_engine::{
    ObjectRef, Resource, ResourceId, ResourceType, Scopes, Spec, Warnings,
    object::split_api_version,
    spec::{FILE, LINE},
};
use stoa_kubernetes_model::{kinds, normalize::normalize, scopes};
use stoa_proto::Problem;
use stoa_proto::renderer::Document;

use super::{At, Generated, Generator, Input, Profile, depends_on, field_lines::FieldLines, spec_file, tools, yaml};
use crate::failure::{Failure, problem, reason};
use crate::source::{Content, SourceFile};

/// The generator's name.
pub(super) const NAME: &str = "Manifests";

/// The number of warnings that are listed one by one.
const WARNED: usize = 100;

/// Names of files of other tools, whose documents may have no `apiVersion` or `kind`, or are for the tool alone.
const OF_OTHER_TOOLS: [&str; 5] =
    ["values.yaml", "skaffold.yaml", "project.yaml", "stack.yaml", "package-context.yaml"];

/// Groups of tools' kinds, which are ignored in every file.
const GROUPS_OF_TOOLS: [&str; 2] = ["config.kubernetes.io/", "skaffold/"];

/// The annotation of objects that kpt and kustomize do not deploy, with the value `true`.
const LOCAL_CONFIG: &str = "config.kubernetes.io/local-config";

/// The number of problems that get lines of their fields: no message names more.
const LOCATED: usize = 20;

/// The generator `Manifests`.
#[derive(Debug)]
pub(super) struct Manifests;

impl Generator for Manifests {
    fn name(&self) -> &'static str {
        NAME
    }

    /// No file is typical of manifests: they are for this generator where no other one detects its files.
    fn detects(&self, _: &Content, _: At<'_>) -> Option<String> {
        None
    }

    fn profile(&self) -> Profile {
        Profile::Nothing
    }

    fn generate(&self, input: &Input<'_>) -> Result<Generated, Failure> {
        let content = input.files.content()?;
        let mut warnings = Warnings::at_most(WARNED);
        let spec = read(content.files(), &mut warnings, input).map_err(Failure::invalid)?;
        let mut warnings = warnings.into_lines();
        if spec.resources.is_empty() {
            let is_nothing = |file: &&SourceFile| {
                spec_file::is_called_spec(file) && yaml::documents(file).is_ok_and(|it| it.is_empty())
            };
            warnings.push(match content.files().iter().find(is_nothing) {
                Some(file) => {
                    format!("{} is empty, and the folder has no manifests; add resources to the Spec", file.path)
                }
                None => "the folder has no manifests; add YAML or JSON files of Kubernetes objects".to_owned(),
            });
        }
        Ok(Generated { warnings, ..Generated::from(spec) })
    }
}

pub(super) struct Manifest {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) object: Map<String, Value>,
    file: String,
    /// 0 in the output of a tool.
    line: u32,
}

/// A kind's group, the kind, the namespace and the name.
type Identity = [String; 4];

impl Manifest {
    /// Identifies the object, in any version.
    fn identity(&self, scopes: &Scopes) -> Option<Identity> {
        let ObjectRef { group, kind, namespace, name, .. } = scopes.scoped(ObjectRef::of(&self.object)?);
        Some([group, kind, namespace, name])
    }

    pub(super) fn id(&self) -> ResourceId {
        let Self { api_version, kind, namespace, name, .. } = self;
        ResourceId(match namespace {
            Some(namespace) => format!("{api_version}:{kind}:{namespace}:{name}"),
            None => format!("{api_version}:{kind}:{name}"),
        })
    }

    pub(super) fn wrong(&self, reason: &str, message: impl Into<String>) -> Problem {
        Problem { file: self.file.clone(), line: self.line, resource_id: self.id().0, ..problem(reason, message) }
    }
}

/// Reads all files, and reports all problems of all.
pub(super) fn read(files: &[SourceFile], warnings: &mut Warnings, input: &Input<'_>) -> Result<Spec, Vec<Problem>> {
    let at = input.at;
    if let Some(problem) = tools::find(files) {
        return Err(vec![problem]);
    }
    let mut manifests = Vec::new();
    let mut problems = Vec::new();
    for (position, file) in files.iter().enumerate() {
        let may_be_of_tool = may_be_of_tool(&file.path);
        at(Some(position));
        // An unreadable file is rejected whatever its name: it may be a manifest, and ignoring it would delete its objects.
        let placeholders = input.placeholders.of_file(file);
        match yaml::documents(file) {
            Ok(documents) => {
                for mut document in documents {
                    let line = yaml::narrow(document.line);
                    if may_be_of_tool && is_of_tool(&document.value) {
                        warnings.add(|| format!("{}:{line}: is not a manifest and is ignored", file.path));
                        continue;
                    }
                    if let Err(wrong) = placeholders.fill(document.line, &mut document.value) {
                        problems.extend(wrong);
                        continue;
                    }
                    let place = Place { file: &file.path, line, within: String::new() };
                    collect(document.value, &place, &mut manifests, &mut problems, warnings);
                }
            }
            Err(problem) => problems.push(*problem),
        }
    }
    at(None);
    let mut problems = match finish(manifests, problems) {
        Ok(spec) => return Ok(spec),
        Err(problems) => problems,
    };
    locate(files, &mut problems);
    Err(problems)
}

/// Reads the documents that a tool rendered. Objects without a namespace get the one of their release, if it has one.
pub(super) fn rendered(documents: &[Document], namespace: &str) -> Result<Generated, Failure> {
    let mut warnings = Warnings::at_most(WARNED);
    let (mut manifests, mut problems) = (Vec::new(), Vec::new());
    for document in documents {
        let file = SourceFile { path: document.file.clone(), bytes: document.yaml.to_vec() };
        match yaml::documents(&file) {
            Ok(values) => {
                for value in values {
                    let place = Place { file: &file.path, line: 0, within: String::new() };
                    collect(value.value, &place, &mut manifests, &mut problems, &mut warnings);
                }
            }
            Err(problem) => {
                let message = format!("line {} of its output: {}", problem.line, problem.message);
                problems.push(Problem { line: 0, message, ..*problem });
            }
        }
    }
    if !namespace.is_empty() && namespace != DEFAULT_NAMESPACE {
        put_into(namespace, &mut manifests);
    }
    let spec = finish(manifests, problems).map_err(Failure::invalid)?;
    let mut warnings = warnings.into_lines();
    if spec.resources.is_empty() {
        warnings.push("the stack has no objects".to_owned());
    }
    Ok(Generated { warnings, ..Generated::from(spec) })
}

/// The namespace of objects that name none.
const DEFAULT_NAMESPACE: &str = "default";

/// Puts the objects without a namespace into one. A server drops it from objects of a cluster-scoped kind that is not known here.
fn put_into(namespace: &str, manifests: &mut [Manifest]) {
    let scopes = scopes(manifests.iter().map(|manifest| &manifest.object));
    for manifest in manifests.iter_mut().filter(|manifest| manifest.namespace.is_none()) {
        if scopes.is_cluster_scoped(split_api_version(&manifest.api_version).0, &manifest.kind) {
            continue;
        }
        if let Some(Value::Object(metadata)) = manifest.object.get_mut("metadata") {
            metadata.insert("namespace".to_owned(), namespace.into());
            manifest.namespace = Some(namespace.to_owned());
        }
    }
}

/// An object, and the file and line that it comes from.
#[derive(Clone, Debug)]
pub(super) struct Located {
    pub(super) value: Value,
    pub(super) file: String,
    pub(super) line: u32,
}

/// The Spec of objects.
pub(super) fn of_objects(objects: Vec<Located>, warnings: &mut Warnings) -> Result<Spec, Vec<Problem>> {
    let (mut manifests, mut problems) = (Vec::new(), Vec::new());
    for Located { value, file, line } in objects {
        let place = Place { file: &file, line, within: String::new() };
        collect(value, &place, &mut manifests, &mut problems, warnings);
    }
    finish(manifests, problems)
}

/// Checks the objects of all files together.
fn finish(manifests: Vec<Manifest>, mut problems: Vec<Problem>) -> Result<Spec, Vec<Problem>> {
    report_duplicates(&manifests, &mut problems);
    let (before, wrong) = depends_on::read(&manifests);
    problems.extend(wrong);
    if problems.is_empty() {
        let spec = to_spec(manifests, before);
        match super::check(&spec) {
            Ok(()) => return Ok(spec),
            Err(found) => {
                let found = found.into_iter().map(|found| crate::convert::problem_in(&spec, found));
                problems.extend(found.map(|found| depends_on::located(&spec, found)));
            }
        }
    }
    Err(problems)
}

/// Whether a file has the name of another tool's file.
pub(super) fn may_be_of_tool(path: &str) -> bool {
    OF_OTHER_TOOLS.contains(&path.rsplit('/').next().unwrap_or(path))
}

/// Whether a document in a file of such a name is for the tool, and not a manifest.
fn is_of_tool(document: &Value) -> bool {
    let is_manifest =
        ["apiVersion", "kind"].iter().all(|field| document.get(field).is_some_and(|value| !value.is_null()));
    let is_local = || document["metadata"]["annotations"][LOCAL_CONFIG] == "true";
    !is_manifest || is_local()
}

/// Finds the lines of the fields of problems, from the lines of their documents.
fn locate(files: &[SourceFile], problems: &mut [Problem]) {
    let mut known: HashMap<String, FieldLines> = HashMap::new();
    for problem in problems.iter_mut().filter(|problem| problem.line > 0 && !problem.field.is_empty()).take(LOCATED) {
        let lines = known.entry(problem.file.clone()).or_insert_with(|| {
            files.iter().find(|file| file.path == problem.file).map(FieldLines::of).unwrap_or_default()
        });
        let field = problem.field.strip_prefix("attributes.").unwrap_or(&problem.field);
        if let Some(line) = lines.line(problem.line, field) {
            problem.line = line;
        }
    }
}

struct Place<'a> {
    file: &'a str,
    line: u32,
    /// The path in a List, such as `items[3].`.
    within: String,
}

fn collect(
    value: Value,
    place: &Place<'_>,
    manifests: &mut Vec<Manifest>,
    problems: &mut Vec<Problem>,
    warnings: &mut Warnings,
) {
    let wrong = |field: &str, reason: &str, message: String| Problem {
        file: place.file.to_owned(),
        line: place.line,
        field: format!("{}{field}", place.within).trim_end_matches('.').to_owned(),
        ..problem(reason, message)
    };
    let Value::Object(mut object) = value else {
        problems.push(wrong("", reason::INVALID_MANIFEST, "is not a Kubernetes object".to_owned()));
        return;
    };
    let named = [text(&object, "apiVersion"), text(&object, "kind")];
    let [Ok(api_version), Ok(kind)] = named.clone() else {
        let name = object.get("metadata").and_then(Value::as_object).map(|metadata| text(metadata, "name"));
        let all = ["apiVersion", "kind", "metadata.name"].into_iter().zip(named.into_iter().chain(name));
        problems.extend(all.filter_map(|(field, read)| {
            let (reason, message) = read.err()?;
            Some(wrong(field, reason, message))
        }));
        return;
    };
    if GROUPS_OF_TOOLS.iter().any(|group| api_version.starts_with(group)) {
        warnings.add(|| format!("{}: a {kind} of {api_version} is not a manifest and is ignored", place.file));
        return;
    }
    if is_list(&kind, &object) {
        let Some(Value::Array(items)) = object.remove("items") else { return };
        if items.is_empty() && kind != LIST {
            let message = format!("is required; as a list of objects, this {kind} has no items");
            return problems.push(wrong("metadata.name", reason::MISSING_FIELD, message));
        }
        for (position, mut item) in items.into_iter().enumerate() {
            let within = format!("{}items[{position}].", place.within);
            inherit_kind(&mut item, &api_version, &kind);
            collect(item, &Place { within, ..*place }, manifests, problems, warnings);
        }
        return;
    }
    if let Some(message) = kinds::unknown(&api_version, &kind) {
        return problems.push(wrong("kind", reason::UNKNOWN_KIND, message));
    }
    let empty = Map::new();
    let metadata = match object.get("metadata") {
        Some(Value::Object(metadata)) => metadata,
        None | Some(Value::Null) => &empty,
        Some(_) => return problems.push(wrong("metadata", reason::INVALID_MANIFEST, "must be a map".to_owned())),
    };
    let name = text(metadata, "name").map_err(|(reason, message)| wrong("metadata.name", reason, message));
    let namespace = match metadata.get("namespace") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(namespace)) => Ok(Some(namespace.clone()).filter(|namespace| !namespace.is_empty())),
        Some(_) => {
            let message = "must be a string; put it in quotes".to_owned();
            Err(wrong("metadata.namespace", reason::INVALID_MANIFEST, message))
        }
    };
    let (name, namespace) = match (name, namespace) {
        (Ok(name), Ok(namespace)) => (name, namespace),
        (name, namespace) => return problems.extend(name.err().into_iter().chain(namespace.err())),
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

/// The kind of a list of several kinds.
const LIST: &str = "List";

/// Whether it is a list of objects. Other kinds may end in "List", too: an object has a name.
fn is_list(kind: &str, object: &Map<String, Value>) -> bool {
    let name = object.get("metadata").and_then(|metadata| metadata.get("name"));
    let is_named = name.is_some_and(|name| !name.is_null() && name != "");
    kind.ends_with(LIST) && !is_named && object.get("items").is_some_and(Value::is_array)
}

/// Gives an item of a list the kind of the list, if it has none: API servers leave it out.
///
/// Follows `decodeToList` in `k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/helpers.go`.
fn inherit_kind(item: &mut Value, api_version: &str, list: &str) {
    let Value::Object(item) = item else { return };
    let kind = list.strip_suffix(LIST).unwrap_or_default();
    let has = |field: &str| item.get(field).is_some_and(|value| !value.is_null() && value != "");
    if !kind.is_empty() && !has("apiVersion") && !has("kind") {
        item.insert("apiVersion".to_owned(), api_version.into());
        item.insert("kind".to_owned(), kind.into());
    }
}

fn text(map: &Map<String, Value>, key: &str) -> Result<String, (&'static str, String)> {
    match map.get(key) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        None | Some(Value::Null | Value::String(_)) => Err((reason::MISSING_FIELD, "is required".to_owned())),
        Some(_) => Err((reason::INVALID_MANIFEST, "must be a string; put it in quotes".to_owned())),
    }
}

fn report_duplicates(manifests: &[Manifest], problems: &mut Vec<Problem>) {
    let scopes = scopes(manifests.iter().map(|manifest| &manifest.object));
    let mut seen: HashMap<Identity, &Manifest> = HashMap::new();
    for manifest in manifests {
        let Some(identity) = manifest.identity(&scopes) else { continue };
        match seen.entry(identity) {
            Entry::Vacant(entry) => {
                entry.insert(manifest);
            }
            Entry::Occupied(entry) => {
                let first = entry.get();
                let why = match first.namespace == manifest.namespace {
                    true => String::new(),
                    false => format!("; {} is cluster-scoped", manifest.kind),
                };
                let line = if first.line > 0 { format!(":{}", first.line) } else { String::new() };
                let message = format!("is a duplicate of the object in {}{line}{why}", first.file);
                problems.push(manifest.wrong(reason::DUPLICATE_RESOURCE, message));
            }
        }
    }
}

fn to_spec(manifests: Vec<Manifest>, before: Vec<Vec<ResourceId>>) -> Spec {
    let resources = manifests.into_iter().zip(before).map(|(manifest, depends_on)| Resource {
        id: manifest.id(),
        kind: ResourceType::Kubernetes,
        attributes: manifest.object,
        depends_on,
        extensions: [(FILE.to_owned(), manifest.file.into())]
            .into_iter()
            .chain((manifest.line > 0).then(|| (LINE.to_owned(), manifest.line.into())))
            .collect(),
    });
    let mut spec = Spec { resources: resources.collect(), ..Spec::default() };
    normalize(&mut spec);
    spec
}
