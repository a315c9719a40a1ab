//! The rules of functions in a Kptfile, and the path of a field that is wrong.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

use super::{API_VERSION, Function, Kptfile};
use crate::{
    files::{Tree, join, package_of},
    resources::{Resource, read_file},
};

/// The registry and folder of images with a short name.
const CATALOG: &str = "ghcr.io/kptdev/krm-functions-catalog";

/// A name of Docker's grammar, with a tag or a digest.
static IMAGE: LazyLock<Regex> = LazyLock::new(|| {
    let domain = "[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?";
    let path = "[a-z0-9]+(?:(?:[_.]|__|-*)[a-z0-9]+)*";
    let pattern = format!(
        r"^(?:{domain}(?:\.{domain})*(?::[0-9]+)?/)?{path}(?:/{path})*(?:[:@](?:[\w][\w.-]{{0,127}}|sha256:[a-zA-Z0-9]{{64}}))?$"
    );
    Regex::new(&pattern).expect("the pattern is constant and is tested")
});

/// A field of a Kptfile's pipeline that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Kptfile is invalid: {field}: {problem}")]
pub struct CheckError {
    /// The path of the field.
    pub field: String,
    /// The problem and the correction.
    pub problem: String,
}

/// The image with the prefix of the catalog, if its name is short.
pub fn full_image(image: &str) -> String {
    if image.contains('/') { image.to_owned() } else { format!("{CATALOG}/{image}") }
}

impl Kptfile {
    /// Checks the functions of the pipeline of a package, given by its folder in a tree.
    ///
    /// # Errors
    ///
    /// [`CheckError`] for the first function that is wrong.
    pub fn check(&self, tree: &Tree, package: &str) -> Result<(), CheckError> {
        let Some(pipeline) = &self.pipeline else { return Ok(()) };
        for (list, functions) in [("mutators", &pipeline.mutators), ("validators", &pipeline.validators)] {
            for (position, function) in functions.iter().enumerate() {
                check_function(function, tree, package).map_err(|(field, problem)| CheckError {
                    field: format!("pipeline.{list}[{position}]{field}"),
                    problem,
                })?;
            }
        }
        Ok(())
    }
}

/// The field in the function that is wrong, and the problem.
fn check_function(function: &Function, tree: &Tree, package: &str) -> Result<(), (&'static str, String)> {
    let whole = |problem: &str| Err(("", problem.to_owned()));
    match (function.image.is_empty(), function.exec.is_empty()) {
        (true, true) => return whole("must specify a function (`image` or `exec`) to execute"),
        (false, false) => return whole("must not specify both `image` and `exec` at the same time"),
        (false, true) if !IMAGE.is_match(&function.image) => {
            return Err((".image", format!("function name {:?} is invalid", function.image)));
        }
        _ => {}
    }
    if function.config_path.is_empty() {
        return Ok(());
    }
    if !function.config_map.is_empty() {
        return whole("functionConfig must not specify both `configMap` and `configPath` at the same time");
    }
    config_file(tree, package, &function.config_path).map(drop).map_err(|problem| (".configPath", problem))
}

/// The object in the file with the configuration of a function.
///
/// # Errors
///
/// The problem with the path or the file, as a sentence.
pub(crate) fn config_file(tree: &Tree, package: &str, path: &str) -> Result<Resource, String> {
    if path.trim().is_empty() {
        return Err("path must not be empty".to_owned());
    }
    if path.starts_with('/') {
        return Err(format!("path {path:?} must be relative"));
    }
    if path.contains("..") {
        return Err(format!("path {path:?} must not be outside the package"));
    }
    let clean: Vec<&str> = path.split('/').filter(|segment| !matches!(*segment, "" | ".")).collect();
    let file = join(package, &clean.join("/"));
    if tree.get(&file).is_none() || package_of(tree, &file) != package {
        return Err(format!("functionConfig {path:?} must exist in the current package"));
    }
    let mut objects = read_file(tree, package, &file)
        .map_err(|error| format!("functionConfig {path:?} cannot be read: {}", crate::text::with_causes(&error)))?;
    match (objects.pop(), objects.len()) {
        (Some(object), 0) => Ok(object),
        (None, _) => Err(format!("functionConfig {path:?} must contain one config, got none")),
        (Some(_), others) => {
            Err(format!("functionConfig {path:?} must not contain more than one config, got {}", others + 1))
        }
    }
}

/// The path of the field that makes a value no Kptfile.
pub(super) fn wrong_field(value: &Value) -> Option<String> {
    let is_wrong = |fields: Value| serde_json::from_value::<Kptfile>(fields).is_err();
    let (mut steps, mut at): (Vec<Step>, &Value) = (Vec::new(), value);
    loop {
        let inner: Vec<(Step, &Value)> = match at {
            Value::Object(fields) => fields.iter().map(|(key, value)| (Step::Key(key), value)).collect(),
            Value::Array(items) => items.iter().enumerate().map(|(at, value)| (Step::Item(at), value)).collect(),
            _ => break,
        };
        let wrong = inner.into_iter().find(|(step, value)| is_wrong(alone(&steps, *step, value)));
        let Some((step, value)) = wrong else { break };
        steps.push(step);
        at = value;
        let empty = match value {
            Value::Object(_) => json!({}),
            Value::Array(_) => json!([]),
            scalar => scalar.clone(),
        };
        if is_wrong(alone(&steps[..steps.len() - 1], step, &empty)) {
            break;
        }
    }
    let mut path = String::new();
    for step in &steps {
        match step {
            Step::Key(key) if path.is_empty() => path.push_str(key),
            Step::Key(key) => path.push_str(&format!(".{key}")),
            Step::Item(position) => path.push_str(&format!("[{position}]")),
        }
    }
    (!path.is_empty()).then_some(path)
}

#[derive(Clone, Copy)]
enum Step<'v> {
    Key(&'v str),
    Item(usize),
}

/// A Kptfile with nothing but one field.
fn alone(steps: &[Step<'_>], last: Step<'_>, value: &Value) -> Value {
    let wrap = |inner: Value, step: &Step<'_>| match step {
        Step::Key(key) => json!({ *key: inner }),
        Step::Item(_) => json!([inner]),
    };
    let mut whole = std::iter::once(&last).chain(steps.iter().rev()).fold(value.clone(), wrap);
    if let Value::Object(fields) = &mut whole {
        fields.entry("apiVersion").or_insert_with(|| API_VERSION.into());
        fields.entry("kind").or_insert_with(|| "Kptfile".into());
    }
    whole
}
