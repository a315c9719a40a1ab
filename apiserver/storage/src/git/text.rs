//! YAML files as people keep them: what they say, and how to change that with their comments, order and
//! quotes left alone.
//!
//! Start at [`updated`]. Each leaf that changed is edited in the text, where [`outline`] says it is; the result is
//! read again, and when it does not say what it should, the file is written anew instead. Lists
//! count as leaves.

mod outline;

use serde_json::{Map, Value};

use self::outline::{Kind, Node};

/// Whether two files say the same, whatever their comments and order. A file that does not parse
/// says nothing, so it equals none but itself.
pub(super) fn same(one: &[u8], other: &[u8]) -> bool {
    one == other || parse(one).is_some_and(|value| Some(value) == parse(other))
}

fn parse(text: &[u8]) -> Option<Value> {
    serde_saphyr::from_str(std::str::from_utf8(text).ok()?).ok()
}

/// What becomes of the file `current` when its object rendered as `before` and now as `after`; `None`
/// when it may stay as it is.
pub(super) fn updated(current: Option<&[u8]>, before: Option<&str>, after: &str) -> Option<String> {
    let Some(current) = current else { return Some(after.to_owned()) };
    if same(current, after.as_bytes()) {
        return None;
    }
    match before.and_then(|before| edited(current, before, after)) {
        Some(text) if text.as_bytes() == current => None,
        Some(text) => Some(text),
        None => Some(after.to_owned()),
    }
}

fn edited(current: &[u8], before: &str, after: &str) -> Option<String> {
    let mut expected = parse(current)?;
    let mut text = std::str::from_utf8(current).ok()?.to_owned();
    for change in changes(&parse(before.as_bytes())?, &parse(after.as_bytes())?) {
        set(&mut expected, &change.path, change.value.as_ref())?;
        if parse(text.as_bytes()).as_ref() != Some(&expected) {
            text = edit(&text, &change.path, change.value.as_ref())?;
        }
    }
    (parse(text.as_bytes()) == Some(expected)).then_some(text)
}

/// A leaf that has another value, or none any more.
struct Change {
    path: Vec<String>,
    value: Option<Value>,
}

fn changes(before: &Value, after: &Value) -> Vec<Change> {
    fn compare(path: &mut Vec<String>, before: &Value, after: &Value, changes: &mut Vec<Change>) {
        let (Value::Object(old), Value::Object(new)) = (before, after) else {
            if before != after {
                changes.push(Change { path: path.clone(), value: Some(after.clone()) });
            }
            return;
        };
        for key in old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))) {
            path.push(key.clone());
            match (old.get(key), new.get(key)) {
                (Some(before), Some(after)) => compare(path, before, after, changes),
                (_, value) => changes.push(Change { path: path.clone(), value: value.cloned() }),
            }
            path.pop();
        }
    }
    let mut found = Vec::new();
    compare(&mut Vec::new(), before, after, &mut found);
    found
}

/// Sets or removes a leaf of a value, making the mappings on the way. `None` when something
/// else is in the way.
fn set(value: &mut Value, path: &[String], new: Option<&Value>) -> Option<()> {
    let Some((key, rest)) = path.split_first() else {
        *value = new?.clone();
        return Some(());
    };
    let fields = value.as_object_mut()?;
    match (fields.get_mut(key), new) {
        (Some(_), None) if rest.is_empty() => drop(fields.remove(key)),
        (Some(field), _) => set(field, rest, new)?,
        (None, Some(new)) => drop(fields.insert(key.clone(), nested(rest, new))),
        (None, None) => {}
    }
    Some(())
}

/// The value inside a mapping for each step of the path.
fn nested(path: &[String], value: &Value) -> Value {
    path.iter().rev().fold(value.clone(), |inner, key| Value::Object(Map::from_iter([(key.clone(), inner)])))
}

/// Sets or removes a leaf in a text. `None` when that is more than this can do.
fn edit(text: &str, path: &[String], new: Option<&Value>) -> Option<String> {
    let root = outline::outline(text)?;
    let mut parent = &root;
    for (depth, key) in path.iter().enumerate() {
        let Kind::Mapping(entries) = &parent.kind else { return None };
        let entry = entries.iter().find(|entry| entry.key == *key);
        if parent.flow {
            // A mapping in braces is short: it is written anew as a whole.
            let mut value = parse(text.as_bytes())?;
            set(&mut value, path, new)?;
            let whole = path[..depth].iter().try_fold(&value, |value, key| value.get(key))?;
            return Some(replace(text, parent.start..parent.end, &flow(whole)?));
        }
        let last = depth + 1 == path.len();
        match (entry, new) {
            (Some(entry), Some(new)) if last => {
                let rest_of_line = &text[line_start(text, entry.start)..entry.value.start];
                return match inline(&entry.value, new) {
                    Some(inline) if !rest_of_line.contains('\n') => {
                        Some(replace(text, entry.value.start..entry.value.end, &inline))
                    }
                    _ => {
                        let block = block(text, entry.start, key, new)?;
                        let range = line_start(text, entry.start)..line_end(text, entry.value.end);
                        Some(replace(text, range, &block))
                    }
                };
            }
            (Some(entry), None) if last => {
                let range = line_start(text, entry.start)..line_end(text, entry.value.end);
                return (entries.len() > 1).then(|| replace(text, range, ""));
            }
            (Some(entry), _) => parent = &entry.value,
            (None, Some(new)) => {
                let (sibling, last) = (entries.first()?, entries.last()?);
                let block = block(text, sibling.start, key, &nested(&path[depth + 1..], new))?;
                let at = line_end(text, last.value.end);
                let newline = if at > 0 && !text[..at].ends_with('\n') { "\n" } else { "" };
                return Some(replace(text, at..at, &format!("{newline}{block}")));
            }
            (None, None) => return Some(text.to_owned()),
        }
    }
    None
}

fn replace(text: &str, range: std::ops::Range<usize>, with: &str) -> String {
    format!("{}{with}{}", &text[..range.start], &text[range.end..])
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

/// Where the line after the one that ends a node begins.
fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |newline| at + newline + 1)
}

/// The new value in place of an old one that is on a line with its key.
fn inline(old: &Node, new: &Value) -> Option<String> {
    let fits = match (&old.kind, new) {
        (Kind::Scalar { block: false }, Value::Array(_) | Value::Object(_)) => false,
        (Kind::Scalar { block }, _) => !block,
        _ => old.flow,
    };
    if fits { flow(new) } else { None }
}

/// A value on one line.
fn flow(value: &Value) -> Option<String> {
    Some(match value {
        Value::Array(items) => {
            let items: Option<Vec<_>> = items.iter().map(flow_item).collect();
            format!("[{}]", items?.join(", "))
        }
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| {
                Some(format!("{}: {}", flow_item(&Value::String(key.clone()))?, flow_item(value)?))
            };
            let fields: Option<Vec<_>> = fields.iter().map(field).collect();
            format!("{{{}}}", fields?.join(", "))
        }
        _ => {
            let text = serde_saphyr::to_string(value).ok()?;
            let text = text.trim_end_matches('\n');
            // A text of many lines has a way to be on one.
            if text.contains('\n') { serde_json::to_string(value).ok()? } else { text.to_owned() }
        }
    })
}

/// A value inside brackets or braces, where more characters mean something.
fn flow_item(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if text.contains([',', '[', ']', '{', '}', ':', '#']) => serde_json::to_string(text).ok(),
        _ => flow(value),
    }
}

/// The lines of a key and its value, as far to the right as the key at `beside` is.
fn block(text: &str, beside: usize, key: &str, value: &Value) -> Option<String> {
    let indent = &text[line_start(text, beside)..beside];
    if !indent.bytes().all(|byte| byte == b' ') {
        return None;
    }
    let lines = serde_saphyr::to_string(&Map::from_iter([(key.to_owned(), value.clone())])).ok()?;
    let indented = |line: &str| if line.is_empty() { "\n".to_owned() } else { format!("{indent}{line}\n") };
    Some(lines.lines().map(indented).collect())
}

#[cfg(test)]
mod tests;
