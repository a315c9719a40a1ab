//! Rendered values that are too long for one line, much like YAML.

use serde_json::Value;

use super::{WIDTH, cut, short};

/// The lines of a map, a list or a text that is too long for one line; none of other values.
pub(super) fn lines(value: &Value) -> Vec<String> {
    let is_long = match value {
        Value::Object(_) | Value::Array(_) => value.to_string().chars().nth(WIDTH).is_some(),
        Value::String(text) => text.trim_end().contains('\n'),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    };
    match value {
        Value::Object(map) if is_long => map.iter().flat_map(|(key, value)| entry(&format!("{key}:"), value)).collect(),
        Value::Array(items) if is_long => items.iter().flat_map(item).collect(),
        Value::String(text) if is_long => text.lines().map(cut).collect(),
        _ => Vec::new(),
    }
}

/// A value behind its name, on lines of its own where it is long.
pub(super) fn entry(name: &str, value: &Value) -> Vec<String> {
    let below = lines(value);
    if below.is_empty() {
        return vec![format!("{name} {}", short(value))];
    }
    let head = if value.is_string() { format!("{name} |") } else { name.to_owned() };
    std::iter::once(head).chain(below.into_iter().map(|line| format!("  {line}"))).collect()
}

fn item(value: &Value) -> Vec<String> {
    let mut below = lines(value);
    match below.first_mut() {
        None => return vec![format!("- {}", short(value))],
        Some(_) if value.is_string() => below.insert(0, "|".to_owned()),
        Some(_) => {}
    }
    let marks = std::iter::once("- ").chain(std::iter::repeat("  "));
    marks.zip(below).map(|(mark, line)| format!("{mark}{line}")).collect()
}
