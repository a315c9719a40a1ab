//! The generator `Spec`: a Kusion Spec, read unchanged.

use std::cell::LazyCell;
use std::collections::{HashMap, HashSet, hash_map::Entry};

use serde_json::{Map, Value};
use stoa_engine::{
    Resource, ResourceType, Spec,
    problem::reason,
    spec::{FILE, LINE},
    suggest::suggestion,
};
use stoa_kubernetes_model::normalize::normalize;
use stoa_proto::Problem;
use stoa_yaml::Document;
use tonic::Code;

use super::{
    At, Generated, Generator, Input, Profile, in_folder, join,
    lines::{self, Lines},
    manifests, overlays,
    placeholders::Placeholders,
    yaml,
};
use crate::failure::{self, Failure, problem};
use crate::source::{Content, SourceFile};

/// The generator's name.
pub(super) const NAME: &str = "Spec";
/// The name of a Kusion Spec file in a folder.
const SPEC_FILE: &str = "spec.yaml";
/// The number of ignored files that are named.
const NAMED: usize = 5;

/// The generator `Spec`.
#[derive(Debug)]
pub(super) struct SpecFile;

impl Generator for SpecFile {
    fn name(&self) -> &'static str {
        NAME
    }

    fn detects(&self, content: &Content, at: At<'_>) -> Option<String> {
        let file = match content {
            Content::File(file) => Some(file),
            Content::Folder { .. } => in_folder(content, SPEC_FILE, at),
        };
        file.filter(|file| is_spec(file)).map(|file| file.path.clone())
    }

    fn profile(&self) -> Profile {
        Profile::Nothing
    }

    fn generate(&self, input: &Input<'_>) -> Result<Generated, Failure> {
        let content = input.files.content()?;
        let file = match content {
            Content::File(file) => file,
            Content::Folder { path, .. } => in_folder(content, SPEC_FILE, input.at).ok_or_else(|| {
                let of = join(path, SPEC_FILE);
                let wrong = Problem { file: of, ..problem(failure::reason::PATH_NOT_FOUND, "does not exist") };
                Failure::of(Code::NotFound, vec![wrong])
            })?,
        };
        read(file, Some(input.placeholders)).map(Generated::from).map_err(Failure::invalid)
    }
}

/// Warns about files beside a Spec that look like manifests, since they are ignored.
pub(super) fn not_read_beside(content: &Content) -> Option<String> {
    let Content::Folder { path, files, .. } = content else { return None };
    let spec = join(path, SPEC_FILE);
    let others = files.iter().map(|file| file.path.as_str());
    let is_unread =
        |file: &&str| *file != spec && !manifests::may_be_of_tool(file) && !overlays::is_in_overlay(path, file);
    let unread: Vec<&str> = others.filter(is_unread).collect();
    let rest = unread.len().saturating_sub(NAMED);
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    let named = unread[..unread.len() - rest].join(", ");
    let because = format!("{spec} is a Spec, and Stoa deploys nothing else of the folder");
    (!unread.is_empty()).then(|| format!("{named}{more}: ignored, because {because}"))
}

/// Whether a file has the name of a Spec.
pub(super) fn is_called_spec(file: &SourceFile) -> bool {
    file.path.rsplit('/').next() == Some(SPEC_FILE)
}

/// Whether a file looks like a Spec: one document with `resources`, or a misspelling of it, that is not a Kubernetes object.
///
/// A file of that name that does not parse, or has a list at its top, counts as a Spec, so that its problems are those of a Spec.
pub(super) fn is_spec(file: &SourceFile) -> bool {
    match yaml::documents(file).as_deref() {
        Ok([Document { value: value @ Value::Object(_), .. }]) => {
            value.get("apiVersion").is_none() && has_resources(value)
        }
        Ok([_]) | Err(_) => is_called_spec(file),
        Ok(_) => false,
    }
}

fn has_resources(value: &Value) -> bool {
    let is_near = |key: &String| suggestion(key, &SPEC_FIELDS) == Some("resources");
    let is_near = |fields: &Map<String, Value>| fields.get("kind").is_none() && fields.keys().any(is_near);
    value.get("resources").is_some() || value.as_object().is_some_and(is_near)
}

/// The message about an unknown field.
fn unknown_field(field: &str, of: &str, known: &[&'static str]) -> String {
    match suggestion(field, known) {
        Some(meant) => format!("unknown field; did you mean {meant}? {of} has {}", known.join(", ")),
        None => format!("unknown field; {of} has {}", known.join(", ")),
    }
}

/// Reads a Spec file, and reports all of its problems with their lines. Placeholders are those of a file of people.
pub(super) fn read(file: &SourceFile, placeholders: Option<&Placeholders>) -> Result<Spec, Vec<Problem>> {
    let mut documents = yaml::documents(file).map_err(|problem| vec![*problem])?;
    let mut document = match documents.len() {
        // An empty file declares nothing.
        0 => return Ok(Spec::default()),
        1 => documents.remove(0),
        _ => {
            let message = "a Spec must be one document";
            return Err(vec![Problem {
                file: file.path.clone(),
                line: yaml::narrow(documents[1].line),
                ..problem(reason::INVALID_SPEC, message)
            }]);
        }
    };
    if let Some(placeholders) = placeholders {
        placeholders.of_file(file).fill(document.line, &mut document.value)?;
    }
    let check = Check { file, lines: LazyCell::new(Box::new(|| Lines::of(file))), begin: yaml::narrow(document.line) };
    let mut problems = check.shape(&document.value);
    if !problems.is_empty() {
        problems.extend(check.others(&document.value));
        return Err(problems);
    }
    let is_inexact = document.is_inexact;
    let mut spec: Spec = serde_json::from_value(document.value)
        .map_err(|err| vec![check.document("", format!("is not a valid Spec: {err}"))])?;
    if is_inexact {
        take_digits(file, &mut spec, placeholders)?;
    }
    normalize(&mut spec);
    super::check(&spec)
        .map_err(|found| found.into_iter().map(|found| check.found(&spec, found)).collect::<Vec<_>>())?;
    let lines = lines::of_resources(file, spec.resources.len());
    for (position, resource) in spec.resources.iter_mut().enumerate() {
        resource.extensions.insert(FILE.to_owned(), file.path.as_str().into());
        resource.extensions.remove(LINE);
        if let Some(line) = lines.get(position) {
            resource.extensions.insert(LINE.to_owned(), (*line).into());
        }
    }
    Ok(spec)
}

/// Takes the texts of numbers that are no floats into resources of providers, whose schemas make numbers of them.
/// Kubernetes has no such numbers.
fn take_digits(file: &SourceFile, spec: &mut Spec, placeholders: Option<&Placeholders>) -> Result<(), Vec<Problem>> {
    let mut exact = yaml::exact(file).map_err(|problem| vec![*problem])?.into_iter().next();
    if let (Some(document), Some(placeholders)) = (&mut exact, placeholders) {
        placeholders.of_file(file).fill(document.line, &mut document.value)?;
    }
    let exact: Option<Spec> = exact.and_then(|document| serde_json::from_value(document.value).ok());
    for (resource, exact) in spec.resources.iter_mut().zip(exact.unwrap_or_default().resources) {
        if resource.kind == ResourceType::Terraform {
            (resource.attributes, resource.extensions) = (exact.attributes, exact.extensions);
        }
    }
    Ok(())
}

const SPEC_FIELDS: [&str; 3] = ["resources", "secretStore", "context"];
const RESOURCE_FIELDS: [&str; 5] = ["id", "type", "attributes", "dependsOn", "extensions"];

/// Checks a document as people wrote it. Serde would report one problem, without its line.
struct Check<'a> {
    file: &'a SourceFile,
    /// Computed only if there are problems, since it takes as long as reading the file.
    lines: LazyCell<Lines, Box<dyn Fn() -> Lines + 'a>>,
    /// The line where the document begins.
    begin: u32,
}

impl Check<'_> {
    fn shape(&self, value: &Value) -> Vec<Problem> {
        let Some(fields) = value.as_object() else {
            return vec![self.document("", "must be a map with resources".to_owned())];
        };
        let unknown = fields.keys().filter(|field| !SPEC_FIELDS.contains(&field.as_str()));
        let mut problems: Vec<Problem> =
            unknown.map(|field| self.document(field, unknown_field(field, "a Spec", &SPEC_FIELDS))).collect();
        match fields.get("resources") {
            None | Some(Value::Null) => {}
            Some(Value::Array(resources)) => problems.extend(self.resources(resources)),
            Some(_) => problems.push(self.document("resources", "must be a list".to_owned())),
        }
        problems
    }

    fn resources(&self, resources: &[Value]) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut first: HashMap<&str, usize> = HashMap::new();
        for (position, resource) in resources.iter().enumerate() {
            let id = resource.get("id").and_then(Value::as_str).unwrap_or_default();
            let wrong = |reason, field: &str, message: String| Problem {
                line: self.lines.resource_field(position, field),
                resource_id: id.to_owned(),
                field: format!("resources[{position}].{field}").trim_end_matches('.').to_owned(),
                ..self.problem(reason, message)
            };
            let Some(fields) = resource.as_object() else {
                problems.push(wrong(reason::INVALID_SPEC, "", "must be a map".to_owned()));
                continue;
            };
            for field in fields.keys().filter(|field| !RESOURCE_FIELDS.contains(&field.as_str())) {
                problems.push(wrong(reason::INVALID_SPEC, field, unknown_field(field, "a resource", &RESOURCE_FIELDS)));
            }
            problems.extend(
                mistyped(fields).into_iter().map(|(field, message)| wrong(reason::INVALID_SPEC, field, message)),
            );
            if id.trim().is_empty() {
                continue;
            }
            match first.entry(id) {
                Entry::Vacant(entry) => {
                    entry.insert(position);
                }
                Entry::Occupied(entry) => {
                    let line = self.lines.resource_field(*entry.get(), "id");
                    let message =
                        format!("is a duplicate; it is also the id of the resource in {}:{line}", self.file.path);
                    problems.push(wrong(reason::DUPLICATE_RESOURCE, "id", message));
                }
            }
        }
        problems
    }

    /// Further problems of the well-formed resources. They may refer to one of the others.
    fn others(&self, value: &Value) -> Vec<Problem> {
        let resources = value.get("resources").and_then(Value::as_array);
        let read = |(position, value): (usize, &Value)| {
            let resource = serde_json::from_value::<Resource>(value.clone()).ok()?;
            (!resource.id.0.trim().is_empty()).then_some((position, resource))
        };
        let mut ids = HashSet::new();
        let (positions, resources): (Vec<usize>, Vec<Resource>) = resources
            .into_iter()
            .flat_map(|resources| resources.iter().enumerate().filter_map(read))
            .filter(|(_, resource)| ids.insert(resource.id.clone()))
            .unzip();
        let spec = Spec { resources, ..Spec::default() };
        let found = super::check(&spec).err().unwrap_or_default();
        let found = found.into_iter().filter(|found| found.reason != reason::DANGLING_REFERENCE);
        let position = |found: &stoa_engine::Problem| {
            spec.resources.iter().position(|it| found.resource_id.as_ref() == Some(&it.id))
        };
        found.map(|found| self.at(position(&found).map(|position| positions[position]), found)).collect()
    }

    fn found(&self, spec: &Spec, found: stoa_engine::Problem) -> Problem {
        self.at(spec.resources.iter().position(|resource| found.resource_id.as_ref() == Some(&resource.id)), found)
    }

    fn at(&self, position: Option<usize>, found: stoa_engine::Problem) -> Problem {
        let line = match position {
            Some(position) => self.lines.resource_field(position, &found.field),
            None => self.begin,
        };
        Problem { file: self.file.path.clone(), line, ..crate::convert::problem(found) }
    }

    fn document(&self, field: &str, message: String) -> Problem {
        let line = match self.lines.field(field) {
            0 => self.begin,
            line => line,
        };
        Problem { line, field: field.to_owned(), ..self.problem(reason::INVALID_SPEC, message) }
    }

    fn problem(&self, reason: &str, message: String) -> Problem {
        Problem { file: self.file.path.clone(), ..problem(reason, message) }
    }
}

/// A field: whether it is required, its expected value, and a check of a value.
type Rule<'a> = (&'static str, bool, &'static str, &'a dyn Fn(&Value) -> bool);

/// The fields of a resource that are missing or wrong.
fn mistyped(fields: &Map<String, Value>) -> Vec<(&'static str, String)> {
    let strings = |value: &Value| value.as_array().is_some_and(|items| items.iter().all(Value::is_string));
    let id = |value: &Value| value.as_str().is_some_and(|id| !id.trim().is_empty());
    let rules: [Rule<'_>; 5] = [
        ("id", true, "a non-empty string", &id),
        ("type", true, "Kubernetes or Terraform", &|value| value == "Kubernetes" || value == "Terraform"),
        ("attributes", true, "a map", &Value::is_object),
        ("dependsOn", false, "a list of ids", &strings),
        ("extensions", false, "a map", &Value::is_object),
    ];
    let wrong = |(field, required, what, is_right): Rule<'_>| {
        let message = match fields.get(field) {
            None if required => "is required".to_owned(),
            None => return None,
            Some(Value::Null) if !required => return None,
            Some(value) if is_right(value) => return None,
            Some(_) => format!("must be {what}"),
        };
        Some((field, message))
    };
    rules.into_iter().filter_map(wrong).collect()
}
