//! `search-replace`: finds fields by value, path and file, and sets their values and comments.

use regex::Regex;
use serde_json::{Map, Value};

use super::{
    Failure,
    budget::Budget,
    config::data,
    scalars::{Edits, Field, fields},
};
use crate::{
    files::Limits,
    ignore::glob,
    resources::{Resource, object_name},
    results::{self, FileRef, Finding},
    text,
};

/// The keys of a configuration.
const KEYS: [&str; 6] = ["by-value", "by-value-regex", "by-path", "by-file-path", "put-value", "put-comment"];

/// A search. Empty texts are no conditions and no changes.
struct Search {
    value: String,
    regex: Option<Regex>,
    path: String,
    file: String,
    put_value: String,
    put_comment: String,
}

/// Runs the function.
pub(super) fn run(items: &mut [Resource], config: Option<&Resource>, limits: &Limits) -> Result<Vec<Finding>, Failure> {
    let search = Search::of(config)?;
    let (mut findings, mut budget) = (Vec::new(), Budget::of(limits));
    for resource in items.iter_mut() {
        if !search.file.is_empty() && !glob(&search.file, &resource.path) {
            continue;
        }
        if search.puts_by_path() {
            findings.push(search.put_by_path(resource, &mut budget)?);
        } else {
            search.fields(resource, &mut findings, &mut budget)?;
        }
    }
    if findings.is_empty() {
        findings.push(Finding::info("no matches"));
    }
    Ok(findings)
}

impl Search {
    fn of(config: Option<&Resource>) -> Result<Self, Failure> {
        let mut data = config.map(data).unwrap_or_default();
        if let Some(key) = data.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(Failure::new(format!("invalid matcher {key:?}, must be one of {KEYS:?}")));
        }
        let mut take = |key: &str| data.remove(key).unwrap_or_default();
        let (value, expression) = (take("by-value"), take("by-value-regex"));
        if !value.is_empty() && !expression.is_empty() {
            return Err(Failure::new("only one of [\"by-value\", \"by-value-regex\"] can be provided"));
        }
        let regex =
            match expression.as_str() {
                "" => None,
                // The documents promise a match of the whole value.
                expression => Some(Regex::new(&format!("^(?:{expression})$")).map_err(|error| {
                    Failure::new(format!("failed to compile input pattern {expression:?}: {error}"))
                })?),
            };
        let put_comment = take("put-comment");
        if put_comment.contains(['\n', '\r']) {
            return Err(Failure::new("put-comment must be one line"));
        }
        let (path, file, put_value) = (take("by-path"), take("by-file-path"), take("put-value"));
        Ok(Self { value, regex, path, file, put_value, put_comment })
    }

    /// Whether the value is put at a path, even if nothing is there.
    fn puts_by_path(&self) -> bool {
        let is_exact = self.path.split('.').all(|element| !element.is_empty() && !element.contains(['*', '[']));
        is_exact && self.value.is_empty() && self.regex.is_none() && !self.put_value.is_empty()
    }

    fn put_by_path(&self, resource: &mut Resource, budget: &mut Budget) -> Result<Finding, Failure> {
        if self.path.split('.').count() > text::DEPTH {
            return Err(Failure::new(format!("by-path has more than {} elements; choose a shorter path", text::DEPTH)));
        }
        budget.take(self.put_value.len()).map_err(Failure::new)?;
        let text = resource.text();
        let current = fields(&text, &resource.value).into_iter().find(|field| field.name == self.path);
        if let Some(field) = current.filter(|field| field.scalar.is_some()) {
            let mut edits = Edits::default();
            if field.scalar.as_ref() != Some(&self.put_value) {
                edits.set(&text, &field, &self.put_value);
            }
            edits.apply(text, resource)?;
            return Ok(self.finding(resource, self.path.clone(), &self.put_value));
        }
        let new = match text::read(&self.put_value) {
            Ok(scalar @ (Value::Number(_) | Value::Bool(_))) => scalar,
            _ => Value::from(self.put_value.as_str()),
        };
        let mut target = &mut resource.value;
        for element in self.path.split('.') {
            if target.is_null() {
                *target = Map::new().into();
            }
            let Value::Object(map) = target else {
                let problem = format!("{}: {} is no field of a map", object_name(resource), self.path);
                return Err(Failure::new(format!("failed to perform search-replace operation: {problem}")));
            };
            target = map.entry(element.to_owned()).or_insert(Value::Null);
        }
        *target = new;
        Ok(self.finding(resource, self.path.clone(), &self.put_value))
    }

    fn fields(&self, resource: &mut Resource, findings: &mut Vec<Finding>, budget: &mut Budget) -> Result<(), Failure> {
        let text = resource.text();
        let mut edits = Edits::default();
        for field in fields(&text, &resource.value) {
            match &field.scalar {
                Some(current) if self.matches(&field, current) => {
                    let mut new = current.clone();
                    if !self.put_comment.is_empty() {
                        edits.set_comment(&field, &format!("# {}", self.resolved(current, &self.put_comment, budget)?));
                    }
                    if !self.put_value.is_empty() {
                        new = self.resolved(current, &self.put_value, budget)?;
                        if new != *current {
                            edits.set(&text, &field, &new);
                        }
                    }
                    findings.push(self.finding(resource, field.name, &new));
                }
                None if !self.put_comment.is_empty() && !self.path.is_empty() && is_at(&self.path, &field.name) => {
                    budget.take(self.put_comment.len()).map_err(Failure::new)?;
                    edits.set_comment(&field, &format!("# {}", self.put_comment));
                    let name = format!("{} # {}", field.name, self.put_comment);
                    findings.push(self.finding(resource, name, "list"));
                }
                _ => {}
            }
        }
        edits.apply(text, resource)
    }

    fn matches(&self, field: &Field, current: &str) -> bool {
        let has_path = !self.path.is_empty() && is_at(&self.path, &field.name);
        let has_value = (!self.value.is_empty() && self.value == current)
            || self.regex.as_ref().is_some_and(|regex| regex.is_match(current));
        match (self.path.is_empty(), self.value.is_empty() && self.regex.is_none()) {
            (true, _) => has_value,
            (false, true) => has_path,
            (false, false) => has_path && has_value,
        }
    }

    /// A pattern with the groups of the expression in the current value.
    fn resolved(&self, current: &str, pattern: &str, budget: &mut Budget) -> Result<String, Failure> {
        budget.take(pattern.len()).map_err(Failure::new)?;
        let Some(captures) = self.regex.as_ref().and_then(|regex| regex.captures(current)) else {
            return Ok(pattern.to_owned());
        };
        let mut resolved = String::new();
        let mut rest = pattern;
        while let Some((before, behind)) = rest.split_once("${") {
            resolved.push_str(before);
            let group = behind.split_once('}').and_then(|(name, behind)| Some((name.parse::<usize>().ok()?, behind)));
            match group {
                Some((group, behind)) => {
                    let value = captures.get(group).filter(|_| group > 0);
                    let value = value.ok_or_else(|| Failure::new("unable to resolve capture groups"))?;
                    budget.take(value.len()).map_err(Failure::new)?;
                    resolved.push_str(value.as_str());
                    rest = behind;
                }
                None => {
                    resolved.push_str("${");
                    rest = behind;
                }
            }
        }
        Ok(resolved + rest)
    }

    fn finding(&self, resource: &Resource, name: String, value: &str) -> Finding {
        let message = match self.put_value.is_empty() && self.put_comment.is_empty() {
            true => format!("Matched field value {value:?}"),
            false => format!("Mutated field value to {value:?}"),
        };
        Finding {
            field: Some(results::Field { path: name, ..results::Field::default() }),
            file: Some(FileRef { path: resource.path.clone(), index: resource.index.unwrap_or_default() }),
            ..Finding::info(message)
        }
    }
}

/// Whether a field is at a path with `*` for one element and `**` for any number; `[*]` is any item of a list.
fn is_at(pattern: &str, name: &str) -> bool {
    let elements: Vec<&str> = name.split('.').collect();
    // For each length of the name's beginning: whether the pattern so far matches it.
    let mut reached = vec![false; elements.len() + 1];
    reached[0] = true;
    for element in pattern.split('.') {
        let mut next = vec![false; reached.len()];
        for at in 0..reached.len() {
            next[at] = match element {
                "**" => reached[..=at].contains(&true),
                _ => at > 0 && reached[at - 1] && is_element(element, elements[at - 1]),
            };
        }
        reached = next;
    }
    reached[elements.len()]
}

/// Whether one element matches: `a`, `*`, `a[1]`, `a[*]`, `*[*]`.
fn is_element(pattern: &str, element: &str) -> bool {
    if pattern == "*" || pattern == element {
        return true;
    }
    let (Some((name, index)), Some((pattern_name, pattern_index))) = (element.split_once('['), pattern.split_once('['))
    else {
        return false;
    };
    (pattern_name == "*" || pattern_name == name) && (pattern_index == "*]" || pattern_index == index)
}
