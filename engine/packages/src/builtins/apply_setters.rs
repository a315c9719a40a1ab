//! `apply-setters`: sets the fields with a comment `# kpt-set: ${name}` to the values of a ConfigMap.
//!
//! A comment may have several setters and other text around them. Setters that the ConfigMap does not have keep the values
//! that the field has for them. A list takes the value of one setter, which is a list in YAML.

use std::{collections::BTreeMap, sync::LazyLock};

use regex::{Captures, Regex};
use serde_json::Value;

use super::{
    Failure,
    budget::Budget,
    config::data,
    scalars::{Edits, Field, at_mut, fields},
};
use crate::{
    files::Limits,
    resources::{Resource, object_name},
    results::{self, FileRef, Finding},
    text,
};

/// How the comment of a setter begins.
const COMMENT: &str = "# kpt-set: ";

static SETTER: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\$\{([^}]*)\}").expect("the pattern is constant and is tested"));

/// Runs the function.
pub(super) fn run(items: &mut [Resource], config: Option<&Resource>, limits: &Limits) -> Result<Vec<Finding>, Failure> {
    let setters = config.map(data).unwrap_or_default();
    let (mut findings, mut budget) = (Vec::new(), Budget::of(limits));
    for resource in items.iter_mut() {
        set(resource, &setters, &mut findings, &mut budget)?;
    }
    if findings.is_empty() {
        findings.push(Finding::info("no matches for input setter(s)"));
    }
    Ok(findings)
}

fn set(
    resource: &mut Resource,
    setters: &BTreeMap<String, String>,
    findings: &mut Vec<Finding>,
    budget: &mut Budget,
) -> Result<(), Failure> {
    let text = resource.text();
    if !text.contains(COMMENT) {
        return Ok(());
    }
    let (mut edits, mut lists) = (Edits::default(), Vec::new());
    for field in fields(&text, &resource.value) {
        let pattern = field.comment.as_deref().and_then(|comment| comment.strip_prefix(COMMENT)).map(str::trim);
        let Some(pattern) = pattern.filter(|pattern| names(pattern).any(|name| setters.contains_key(name))) else {
            continue;
        };
        let failed = |problem: String| {
            Failure::new(format!("failed to apply setters: {} {}: {problem}", object_name(resource), field.name))
        };
        let new = match &field.scalar {
            Some(current) => {
                let new = resolved(pattern, current, setters, budget).map_err(failed)?;
                if new != *current {
                    edits.set(&text, &field, &new);
                }
                new
            }
            None => {
                let (new, list) = list(pattern, setters, budget).map_err(failed)?;
                lists.push((field.path.clone(), list));
                new
            }
        };
        findings.push(finding(resource, &field, &new));
    }
    edits.apply(text, resource)?;
    for (path, list) in lists {
        if let Some(target) = at_mut(&mut resource.value, &path) {
            *target = list;
        }
    }
    Ok(())
}

/// The names of the setters in a comment.
fn names(pattern: &str) -> impl Iterator<Item = &str> {
    SETTER.captures_iter(pattern).filter_map(|captures| captures.get(1)).map(|name| name.as_str())
}

/// The value of a scalar with this comment.
fn resolved(
    pattern: &str,
    current: &str,
    setters: &BTreeMap<String, String>,
    budget: &mut Budget,
) -> Result<String, String> {
    let known = current_values(pattern, current);
    let mut missing = Vec::new();
    let mut within = budget.take(pattern.len());
    let new = SETTER.replace_all(pattern, |captures: &Captures<'_>| {
        let name = &captures[1];
        match setters.get(name).or_else(|| known.get(name)) {
            Some(value) => {
                if within.is_ok() {
                    within = budget.take(value.len());
                }
                if within.is_ok() { value.clone() } else { String::new() }
            }
            None => {
                missing.push(captures[0].to_owned());
                String::new()
            }
        }
    });
    within?;
    if missing.is_empty() {
        return Ok(new.into_owned());
    }
    Err(format!("values for setters [{}] must be provided", missing.join(" ")))
}

/// The values that the setters of a comment have in a field; empty when one is not found.
fn current_values(pattern: &str, current: &str) -> BTreeMap<String, String> {
    let mut expression = String::new();
    let mut end = 0;
    for setter in SETTER.find_iter(pattern) {
        expression.push_str(&regex::escape(&pattern[end..setter.start()]));
        expression.push_str("(.*)");
        end = setter.end();
    }
    expression.push_str(&regex::escape(&pattern[end..]));
    let Ok(expression) = Regex::new(&expression) else { return BTreeMap::new() };
    let Some(captures) = expression.captures(current) else { return BTreeMap::new() };
    let values = captures.iter().skip(1).map(|value| value.map(|value| value.as_str().to_owned()).unwrap_or_default());
    let found: Vec<(String, String)> = names(pattern).map(str::to_owned).zip(values).collect();
    if found.iter().any(|(_, value)| value.is_empty()) { BTreeMap::new() } else { found.into_iter().collect() }
}

/// The list for a comment with one setter, as text and as value.
fn list(pattern: &str, setters: &BTreeMap<String, String>, budget: &mut Budget) -> Result<(String, Value), String> {
    let name = match names(pattern).collect::<Vec<_>>().as_slice() {
        [name] if pattern.len() == name.len() + 3 => *name,
        _ => {
            return Err(format!(
                "invalid setter pattern for array node: {pattern:?}; use one setter such as ${{name}}"
            ));
        }
    };
    let new = setters.get(name).map(String::as_str).unwrap_or_default();
    budget.take(new.len())?;
    let new = new.to_owned();
    if new.is_empty() {
        return Ok((new, Value::Array(Vec::new())));
    }
    match text::read(&new) {
        Ok(list @ Value::Array(_)) => Ok((new, list)),
        _ => Err(format!("input to array setter must be an array of values, but found {new:?}")),
    }
}

fn finding(resource: &Resource, field: &Field, new: &str) -> Finding {
    Finding {
        field: Some(results::Field { path: field.name.clone(), ..results::Field::default() }),
        file: Some(FileRef { path: resource.path.clone(), index: resource.index.unwrap_or_default() }),
        ..Finding::info(format!("set field value to {new:?}"))
    }
}
