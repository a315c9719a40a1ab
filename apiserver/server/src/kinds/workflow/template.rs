//! Reads the steps of a workflow from a file, as strictly as a request with `fieldValidation=Strict`.
//!
//! The file is a Workflow of which only the stack and the steps are said. `${name}` in its texts is replaced before
//! anything else is looked at, in the values that were parsed, so that a parameter is a text and never more of the file.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use serde_json::Value;
use stoa_machinery::{
    request::FieldValidation,
    schema::{self, Decoder, Format},
};
use stoa_types::delivery::{Step, WorkflowSpec};

use super::{definition, validate};
use crate::git::{Complaint, complaints, explain};

/// How large the file may be.
pub(crate) const MOST_BYTES: u32 = 64 << 10;
/// How large it may be as JSON with its aliases and parameters put in: it has to fit into the workflow's status.
const MOST_FILLED: usize = 256 << 10;
/// So many things that are wrong with parameters are told.
const MOST_WRONG: usize = 100;

static DECODER: LazyLock<Decoder> =
    LazyLock::new(|| Decoder::new(&definition()).expect("a derived schema is complete"));

/// The stack and the steps of a file.
///
/// # Errors
///
/// What is wrong with it, with lines and fields.
pub(crate) fn read(
    spec: &WorkflowSpec,
    parameters: &BTreeMap<String, String>,
    text: &str,
) -> Result<(String, Vec<Step>), Complaint> {
    let content = text.as_bytes();
    let parsed = schema::parse(content, Format::Yaml).map_err(|error| {
        let why = error.to_string();
        complaints(content, &[("yaml", why.strip_prefix("yaml: ").unwrap_or(&why))])
    })?;
    let twice: Vec<(String, String)> =
        parsed.strict.warnings().into_iter().map(|why| ("yaml".to_owned(), why)).collect();
    refuse(content, &twice)?;
    let mut file = parsed.value;
    let mut filling = Filling { parameters, size: 0, used: BTreeSet::new(), wrong: Vec::new() };
    filling.fill(&mut file, "");
    let Filling { size, used, mut wrong, .. } = filling;
    let json = file.to_string();
    if size.max(json.len()) > MOST_FILLED {
        let why = format!("is more than {MOST_FILLED} bytes after aliases and parameters are expanded");
        return Err(complaints(content, &[("spec", &why)]));
    }
    let unused = parameters.keys().filter(|name| !used.contains(name.as_str()));
    wrong.extend(unused.map(|name| ("spec".to_owned(), format!("parameter {name:?} is not used"))));
    wrong.extend(strange(&file));
    refuse(content, &wrong)?;
    let decoded = DECODER.decode(json.as_bytes(), Format::Json, FieldValidation::Strict);
    let object = decoded.map_err(|error| explain("Workflow", &error, content))?.object;
    let errors = DECODER.structural_errors(&object);
    refuse(content, &errors.into_iter().map(|error| (error.field, error.message)).collect::<Vec<_>>())?;
    let of_file = object.0.get("spec").cloned().unwrap_or_default();
    let of_file: WorkflowSpec =
        serde_json::from_value(of_file).map_err(|error| complaints(content, &[("spec", &error.to_string())]))?;
    let stack = if spec.stack.is_empty() { of_file.stack } else { spec.stack.clone() };
    let whole = WorkflowSpec { stack: stack.clone(), steps: of_file.steps, template: None, ..spec.clone() };
    let mut errors = Vec::new();
    validate::spec(&whole, &mut errors);
    refuse(content, &errors.into_iter().map(|error| (error.field, error.message)).collect::<Vec<_>>())?;
    Ok((stack, whole.steps))
}

/// Refuses a file of which something is wrong.
fn refuse(content: &[u8], wrong: &[(String, String)]) -> Result<(), Complaint> {
    if wrong.is_empty() {
        return Ok(());
    }
    let fields: Vec<(&str, &str)> = wrong.iter().map(|(field, why)| (field.as_str(), why.as_str())).collect();
    Err(complaints(content, &fields))
}

/// What a file says that is none of a template.
fn strange(file: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (field, expected) in [("apiVersion", "delivery.stoa.dev/v1alpha1"), ("kind", "Workflow")] {
        if file[field] != expected {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FILE: &str = "apiVersion: delivery.stoa.dev/v1alpha1
kind: Workflow
spec:
  stack: ${app}-dev
  steps:
  - name: dev
    run: {operation: Apply, parameters: {note: \"$${app} of ${app}\"}}
  - name: prod
    dependsOn: [dev]
    run: {operation: Apply, stack: \"${app}-prod\", workspaces: [\"${region}\"]}
";

    fn read_with(spec: Value, parameters: &[(&str, &str)], text: &str) -> Result<(String, Vec<Step>), String> {
        let parameters = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        read(&serde_json::from_value(spec).unwrap(), &parameters, text).map_err(|Complaint(why)| why)
    }

    #[test]
    fn parameters_are_texts_and_nothing_more() {
        let (stack, steps) = read_with(json!({}), &[("app", "web"), ("region", "eu], x: [us")], FILE).unwrap();
        assert_eq!(stack, "web-dev");
        let runs: Vec<_> = steps.iter().filter_map(|step| step.run.as_ref()).collect();
        assert_eq!(runs[0].parameters["note"], "${app} of web");
        assert_eq!((runs[1].stack.as_str(), &runs[1].workspaces), ("web-prod", &vec!["eu], x: [us".to_owned()]));
        let (stack, _) = read_with(json!({"stack": "mine"}), &[("app", "web"), ("region", "eu")], FILE).unwrap();
        assert_eq!(stack, "mine");
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told_with_lines_and_fields() {
        let given: &[(&str, &str)] = &[("app", "web"), ("region", "eu")];
        let check = |file: &str, expected: &str| {
            assert_eq!(read_with(json!({}), given, file).unwrap_err(), expected);
        };
        check(&FILE.replace("kind: Workflow", "kind: Run"), "line 2: kind: must be Workflow");
        check(
            &FILE.replace("  stack: ${app}-dev", "  version: main"),
            "line 4: spec.version: may not be in a template",
        );
        check(
            &FILE.replace("${region}", "${zone} ${region}"),
            "line 10: spec.steps[1].run.workspaces[0]: parameter \"zone\" is not given",
        );
        check(&FILE.replace("[dev]", "[stage]"), "line 9: spec.steps[1].dependsOn[0]: Not found: \"stage\"");
        check(
            &FILE.replace("{operation: Apply, parameters", "{operation: Explode, parameters"),
            "line 7: spec.steps[0].run.operation: Unsupported value: \"Explode\": supported values: \"Preview\", \"Apply\", \
             \"Destroy\", \"Rollback\", \"Import\", \"Refresh\"",
        );
        let unused = read_with(json!({}), &[("app", "web"), ("region", "eu"), ("x", "")], FILE).unwrap_err();
        assert_eq!(unused, "line 3: spec: parameter \"x\" is not used");
        for (file, part) in [
            (FILE.replace("operation: Apply, stack", "operatoin: Apply, stack"), "line 10: "),
            ("a: [".to_owned(), "did not find expected"),
            (FILE.replace("  stack: ${app}-dev", "  stack: ${app}\n  stack: b"), "already set in map"),
            (String::new(), "apiVersion: must be"),
        ] {
            let why = read_with(json!({}), given, &file).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn file_may_have_parameters_where_nothing_is_rendered() {
        for operation in ["Destroy", "Refresh"] {
            let file = FILE.replace("{operation: Apply, parameters", &format!("{{operation: {operation}, parameters"));
            let (_, steps) = read_with(json!({}), &[("app", "web"), ("region", "eu")], &file).unwrap();
            assert_eq!(steps.len(), 2, "{operation}");
        }
    }

    #[test]
    fn file_stays_small_whatever_is_put_into_it() {
        let most = "line 3: spec: is more than 262144 bytes after aliases and parameters are expanded";
        let value = "v".repeat(60 << 10);
        let file = |times: usize| FILE.replace("$${app} of ${app}", &"${large}".repeat(times));
        let given = [("app", "web"), ("region", "eu"), ("large", value.as_str())];
        let (_, steps) = read_with(json!({}), &given, &file(4)).unwrap();
        assert_eq!(steps[0].run.as_ref().unwrap().parameters["note"].len(), 4 * value.len());
        // The second would be 480 MB.
        for times in [5, 8_000] {
            assert_eq!(read_with(json!({}), &given, &file(times)).unwrap_err(), most);
        }

        let aliases = |text: &str| {
            let (texts, again) = (vec![format!("{text:?}"); 600].join(", "), vec!["*a"; 80].join(", "));
            format!("apiVersion: v1\nkind: Workflow\nspec:\n  steps:\n  - &a [{texts}]\n  - [{again}]\n")
        };
        for text in ["${large}", "plain"] {
            let why = read_with(json!({}), &given[2..], &aliases(text)).unwrap_err();
            assert_eq!(why, most, "{text}");
        }
        let why = read_with(json!({}), &[], &aliases("${none}")).unwrap_err();
        assert!(why.ends_with("; and 91 more"), "{why}");
    }
}
