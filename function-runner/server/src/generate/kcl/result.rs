//! The Spec of a result: a Spec, Kubernetes objects, or AppConfigurations.

use stoa_engine::{Spec, Warnings};
use stoa_kcl::{Export, Map, Output, Value};
use stoa_proto::Problem;

use super::application::{self, SCHEMA};
use super::fields::{TYPE, without_schemas};
use super::layout::{Names, STACK};
use crate::failure::{problem, reason};
use crate::generate::manifests::{self, Located};
use crate::generate::modules::{Call, Platform};
use crate::generate::spec_file;
use crate::source::SourceFile;

/// The number of warnings that are listed one by one.
const WARNED: usize = 100;
/// The field of a Spec with its resources.
const RESOURCES: &str = "resources";

/// Where the exported names are set.
struct Places(Vec<Export>);

impl Places {
    /// The file and line of a name; the last entry that sets it decides its value.
    fn of(&self, name: &str) -> (String, u32) {
        let found = self.0.iter().rev().find(|export| export.name == name).or(self.0.last());
        found.map(|export| (export.file.clone(), export.line)).unwrap_or_default()
    }

    fn wrong(&self, name: &str, field: &str, message: impl Into<String>) -> Problem {
        let (file, line) = self.of(name);
        Problem { file, line, field: field.to_owned(), ..problem(reason::INVALID_KCL, message) }
    }
}

/// The Spec of a result, with warnings, and the calls of modules for the rest of it.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) spec: Spec,
    pub(super) warnings: Vec<String>,
    pub(super) calls: Vec<Call>,
}

/// The Spec of a result.
pub(super) fn spec(output: Output, names: Option<&Names>, platform: &Platform) -> Result<Found, Vec<Problem>> {
    let places = Places(output.exports);
    let fallback = output.files.first().cloned().unwrap_or_default();
    let mut objects: Vec<Located> = Vec::new();
    let mut problems = Vec::new();
    let mut documents = output.documents;
    if let [Value::Map(map)] = documents.as_slice()
        && !is_object(map)
    {
        if is_spec(map) {
            let (file, line) = places.of(RESOURCES);
            return read_spec(&documents[0], file, line);
        }
        let (objects, calls) = configured(map, &places, names, platform)?;
        return Ok(Found { calls, ..read_objects(objects)? });
    }
    for document in documents.drain(..) {
        if let Err(found) = collect("", &document, (fallback.clone(), 0), &mut objects) {
            problems.push(Problem { file: fallback.clone(), ..*found });
        }
    }
    if problems.is_empty() { read_objects(objects) } else { Err(problems) }
}

fn read_objects(objects: Vec<Located>) -> Result<Found, Vec<Problem>> {
    let mut warnings = Warnings::at_most(WARNED);
    let spec = manifests::of_objects(objects, &mut warnings)?;
    Ok(Found { spec, warnings: warnings.into_lines(), calls: Vec::new() })
}

fn is_object(map: &Map) -> bool {
    map.get("apiVersion").is_some() && map.get("kind").is_some()
}

/// Whether a result has the resources of a Spec.
fn is_spec(map: &Map) -> bool {
    matches!(map.get(RESOURCES), Some(Value::List(list)) if list.iter().all(|resource| {
        matches!(resource, Value::Map(resource) if resource.get("id").is_some() && resource.get("attributes").is_some())
    }))
}

fn read_spec(document: &Value, file: String, line: u32) -> Result<Found, Vec<Problem>> {
    let bytes = without_schemas(document).to_string().into_bytes();
    match spec_file::read(&SourceFile { path: file, bytes }, None) {
        Ok(mut spec) => {
            for resource in &mut spec.resources {
                resource.extensions.insert(stoa_engine::spec::LINE.to_owned(), line.into());
            }
            Ok(Found { spec, warnings: Vec::new(), calls: Vec::new() })
        }
        // Lines of the result are not those of the source.
        Err(problems) => Err(problems.into_iter().map(|found| Problem { line, ..found }).collect()),
    }
}

/// The objects of exported names: AppConfigurations, or Kubernetes objects. Modules are called for the rest of AppConfigurations.
fn configured(
    map: &Map,
    places: &Places,
    names: Option<&Names>,
    platform: &Platform,
) -> Result<(Vec<Located>, Vec<Call>), Vec<Problem>> {
    let is_application = |value: &Value| matches!(value, Value::Map(map) if is_application(map));
    let exported = || map.0.iter().filter(|(name, _)| name != TYPE);
    let (mut objects, mut calls, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    let applications = exported().filter(|(_, value)| is_application(value)).count();
    if let Some((name, _)) = exported().find(|(_, value)| is_application(value)) {
        let Some(names) = names else {
            let message = format!("is an {SCHEMA}, for which the folder needs a {STACK} with the name of the stack");
            return Err(vec![places.wrong(name, name, message)]);
        };
        let (file, line) = places.of(name);
        objects.push(Located { value: application::namespace(names), file, line });
        for (name, value) in exported() {
            if !is_application(value) {
                let message = format!("is no {SCHEMA}, and the stack has {applications}; begin its name with _");
                problems.push(places.wrong(name, name, message));
                continue;
            }
            match application::objects(name, value, names, platform) {
                Ok((found, of_modules)) => {
                    let (file, line) = places.of(name);
                    calls.extend(of_modules.into_iter().map(|call| call.at(&file, line)));
                    let located = |value| Located { value, file: file.clone(), line };
                    objects.extend(found.into_iter().map(located));
                }
                Err(wrong) => {
                    problems.extend(wrong.into_iter().map(|wrong| places.wrong(name, &wrong.field, wrong.message)));
                }
            }
        }
    } else {
        for (name, value) in exported() {
            if let Err(found) = collect(name, value, places.of(name), &mut objects) {
                let (file, line) = places.of(name);
                problems.push(Problem { file, line, ..*found });
            }
        }
    }
    if problems.is_empty() { Ok((objects, calls)) } else { Err(problems) }
}

fn is_application(map: &Map) -> bool {
    matches!(map.get(TYPE), Some(Value::Text(schema)) if schema.rsplit('.').next() == Some(SCHEMA))
}

/// Collects the objects of a value: an object, a list or a map of objects.
fn collect(path: &str, value: &Value, place: (String, u32), objects: &mut Vec<Located>) -> Result<(), Box<Problem>> {
    let wrong = || {
        let message = "is no Kubernetes object; add apiVersion and kind, or begin its name with _";
        Box::new(Problem { field: path.to_owned(), ..problem(reason::INVALID_KCL, message) })
    };
    match value {
        Value::Map(map) if is_object(map) => {
            let (file, line) = place;
            objects.push(Located { value: without_schemas(value), file, line });
            Ok(())
        }
        Value::Map(map) if !map.0.is_empty() => {
            let fields = map.0.iter().filter(|(name, _)| name != TYPE);
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                // An attribute of an object without apiVersion or kind.
                if !matches!(value, Value::Map(_) | Value::List(_)) {
                    return Err(wrong());
                }
                collect(&path, value, place.clone(), objects)?;
            }
            Ok(())
        }
        Value::List(list) => {
            for (at, value) in list.iter().enumerate() {
                collect(&format!("{path}[{at}]"), value, place.clone(), objects)?;
            }
            Ok(())
        }
        // An object that a condition leaves out.
        Value::Null => Ok(()),
        _ => Err(wrong()),
    }
}
