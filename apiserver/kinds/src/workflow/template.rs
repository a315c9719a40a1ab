//! The template file of a Workflow, decoded as strictly as a request with `fieldValidation=Strict`.
//!
//! The file is a Workflow with nothing but the stack and the steps. `${name}` is replaced in the parsed texts,
//! before anything else reads them. A parameter is therefore always a text and never adds structure to the
//! file.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use kube::Resource as _;
use serde_json::Value;
use stoa_machinery::{
    ApiError,
    request::FieldValidation,
    schema::{self, Decoder, Format},
};
use stoa_types::{
    Workflow,
    delivery::{Step, WorkflowSpec},
};

use super::{definition, validate};

/// How large the file may be.
pub const MOST_BYTES: u32 = 64 << 10;
/// How large it may be as JSON with its aliases and parameters put in: it has to fit into the workflow's status.
const MOST_FILLED: usize = 256 << 10;
/// So many things that are wrong with parameters are told.
const MOST_WRONG: usize = 100;

static DECODER: LazyLock<Decoder> =
    LazyLock::new(|| Decoder::new(&definition()).expect("a derived schema is complete"));

/// Errors of a template's file.
#[derive(Debug)]
pub enum TemplateError {
    /// Invalid fields, each with its message.
    Fields(Vec<(String, String)>),
    /// The rejection of strict decoding, which names the field in its message.
    Decode(ApiError),
}

impl TemplateError {
    fn field(field: &str, why: &str) -> Self {
        Self::Fields(vec![(field.to_owned(), why.to_owned())])
    }
}

/// Reads the stack and the steps of a file.
///
/// # Errors
///
/// [`TemplateError`] for a file that is no template.
pub fn read(
    spec: &WorkflowSpec,
    parameters: &BTreeMap<String, String>,
    text: &str,
) -> Result<(String, Vec<Step>), TemplateError> {
    let parsed = schema::parse(text.as_bytes(), Format::Yaml).map_err(|error| {
        let why = error.to_string();
        TemplateError::field("yaml", why.strip_prefix("yaml: ").unwrap_or(&why))
    })?;
    let twice: Vec<(String, String)> =
        parsed.strict.warnings().into_iter().map(|why| ("yaml".to_owned(), why)).collect();
    refuse(twice)?;
    let mut file = parsed.value;
    let mut filling = Filling { parameters, size: 0, used: BTreeSet::new(), wrong: Vec::new() };
    filling.fill(&mut file, "");
    let Filling { size, used, mut wrong, .. } = filling;
    let json = file.to_string();
    if size.max(json.len()) > MOST_FILLED {
        let why = format!("is more than {MOST_FILLED} bytes after aliases and parameters are expanded");
        return Err(TemplateError::field("spec", &why));
    }
    let unused = parameters.keys().filter(|name| !used.contains(name.as_str()));
    wrong.extend(unused.map(|name| ("spec".to_owned(), format!("parameter {name:?} is not used"))));
    wrong.extend(strange(&file));
    refuse(wrong)?;
    let decoded = DECODER.decode(json.as_bytes(), Format::Json, FieldValidation::Strict);
    let object = decoded.map_err(TemplateError::Decode)?.object;
    let errors = DECODER.structural_errors(&object);
    refuse(errors.into_iter().map(|error| (error.field, error.message)).collect())?;
    let of_file = object.0.get("spec").cloned().unwrap_or_default();
    let of_file: WorkflowSpec =
        serde_json::from_value(of_file).map_err(|error| TemplateError::field("spec", &error.to_string()))?;
    let stack = if spec.stack.is_empty() { of_file.stack } else { spec.stack.clone() };
    let whole = WorkflowSpec { stack: stack.clone(), steps: of_file.steps, template: None, ..spec.clone() };
    let mut errors = Vec::new();
    validate::spec(&whole, &mut errors);
    refuse(errors.into_iter().map(|error| (error.field, error.message)).collect())?;
    Ok((stack, whole.steps))
}

/// Rejects a file with invalid fields.
fn refuse(wrong: Vec<(String, String)>) -> Result<(), TemplateError> {
    if wrong.is_empty() { Ok(()) } else { Err(TemplateError::Fields(wrong)) }
}

/// What a file says that is none of a template.
fn strange(file: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (field, expected) in [("apiVersion", Workflow::api_version(&())), ("kind", Workflow::kind(&()))] {
        if file[field] != *expected {
            found.push((field.to_owned(), format!("must be {expected}")));
        }
    }
    let unknown = |value: &Value, known: &[&str], path: &str| -> Vec<(String, String)> {
        let keys = value.as_object().into_iter().flat_map(|object| object.keys());
        let strange = keys.filter(|key| !known.contains(&key.as_str()));
        strange.map(|key| (format!("{path}{key}"), "may not be in a template".to_owned())).collect()
    };
    found.extend(unknown(file, &["apiVersion", "kind", "metadata", "spec"], ""));
    found.extend(unknown(&file["spec"], &["stack", "steps"], "spec."));
    found
}

/// Replaces parameters, and knows which were used and what was wrong.
struct Filling<'a> {
    parameters: &'a BTreeMap<String, String>,
    /// How many bytes all texts have with their parameters; those beyond the limit are left out.
    size: usize,
    used: BTreeSet<&'a str>,
    wrong: Vec<(String, String)>,
}

impl Filling<'_> {
    fn fill(&mut self, value: &mut Value, path: &str) {
        match value {
            Value::String(text) => *text = self.filled(text, path),
            Value::Array(items) => {
                for (i, item) in items.iter_mut().enumerate() {
                    self.fill(item, &format!("{path}[{i}]"));
                }
            }
            Value::Object(fields) => {
                for (key, field) in fields {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    self.fill(field, &path);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// A text in which `${name}` is replaced; `$${` stands for `${`.
    fn filled(&mut self, text: &str, path: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let (before, from) = rest.split_at(at);
            if let Some(before) = before.strip_suffix('$') {
                self.push(&mut filled, before);
                self.push(&mut filled, "${");
                rest = &from[2..];
                continue;
            }
            self.push(&mut filled, before);
            let Some(end) = from.find('}') else {
                self.complain(path, "a parameter is not closed by }");
                return filled;
            };
            let name = &from[2..end];
            match self.parameters.get_key_value(name) {
                Some((name, value)) => {
                    self.push(&mut filled, value);
                    self.used.insert(name);
                }
                None => self.complain(path, &format!("parameter {name:?} is not given")),
            }
            rest = &from[end + 1..];
        }
        self.push(&mut filled, rest);
        filled
    }

    fn push(&mut self, filled: &mut String, text: &str) {
        self.size = self.size.saturating_add(text.len());
        if self.size <= MOST_FILLED {
            filled.push_str(text);
        }
    }

    fn complain(&mut self, path: &str, why: &str) {
        if self.wrong.len() < MOST_WRONG {
            self.wrong.push((path.to_owned(), why.to_owned()));
        }
    }
}
