//! The path of fields: keys with dots between them, `*` and `[key=value]` for items, and numbers for positions.

use serde_json::{Map, Value, json};

use crate::results::scalar_text;

/// The path of fields in an object.
#[derive(Debug)]
pub(super) struct FieldPath(Vec<Step>);

#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// A key of a map, or a position in a list.
    Key(String),
    /// The items of a list with this value of a key; without a key, the scalars of this value.
    Match(String, String),
    /// All items or values.
    All,
}

impl FieldPath {
    /// Reads a path such as `spec.containers.[name=web].image` or `metadata.annotations.[a.b/c]`. A dot behind a backslash
    /// is a part of its key.
    pub(super) fn parse(path: &str) -> Self {
        let (mut steps, mut current, mut depth) = (Vec::new(), String::new(), 0_usize);
        let mut characters = path.chars().peekable();
        while let Some(character) = characters.next() {
            match character {
                '\\' if characters.peek() == Some(&'.') => current.extend(characters.next()),
                '.' if depth == 0 => steps.push(std::mem::take(&mut current)),
                _ => {
                    match character {
                        '[' => depth += 1,
                        ']' => depth = depth.saturating_sub(1),
                        _ => {}
                    }
                    current.push(character);
                }
            }
        }
        steps.push(current);
        Self(steps.into_iter().filter(|step| !step.is_empty()).flat_map(|step| Step::parse(&step)).collect())
    }

    /// The number of steps.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The first value at the path.
    pub(super) fn get<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        get(value, &self.0)
    }

    /// Calls a function with each value at the path. The result is their number.
    pub(super) fn visit(&self, value: &mut Value, create: bool, change: &mut dyn FnMut(&mut Value)) -> usize {
        visit(value, &self.0, create, change)
    }
}

impl Step {
    /// The steps of a text between dots, such as `containers[name=web]`.
    fn parse(text: &str) -> Vec<Self> {
        let Some((key, inside)) = text.strip_suffix(']').and_then(|text| text.split_once('[')) else {
            return vec![if text == "*" { Self::All } else { Self::Key(text.to_owned()) }];
        };
        let item = match inside.split_once('=') {
            Some((name, value)) => Self::Match(name.to_owned(), value.to_owned()),
            None if inside == "*" => Self::All,
            None => Self::Key(inside.to_owned()),
        };
        match key {
            "" => vec![item],
            key => vec![Self::Key(key.to_owned()), item],
        }
    }

    fn matches(&self, item: &Value) -> bool {
        match self {
            Self::All => true,
            Self::Key(_) => false,
            Self::Match(name, value) if name.is_empty() => !item.is_object() && scalar_text(item) == *value,
            Self::Match(name, value) => item.get(name).is_some_and(|field| scalar_text(field) == *value),
        }
    }

    /// The item that a step adds to a list.
    fn new_item(&self) -> Option<Value> {
        match self {
            Self::Match(name, value) if !name.is_empty() => Some(json!({ name: value })),
            Self::Match(_, value) => Some(value.as_str().into()),
            Self::Key(_) | Self::All => None,
        }
    }
}

fn get<'v>(value: &'v Value, steps: &[Step]) -> Option<&'v Value> {
    let Some((step, rest)) = steps.split_first() else { return Some(value) };
    match (value, step) {
        (Value::Object(fields), Step::Key(key)) => get(fields.get(key)?, rest),
        (Value::Object(fields), Step::All) => fields.values().find_map(|field| get(field, rest)),
        (Value::Array(items), Step::Key(key)) if key == "-" => get(items.last()?, rest),
        (Value::Array(items), Step::Key(key)) => get(items.get(key.parse::<usize>().ok()?)?, rest),
        (Value::Array(items), step) => items.iter().filter(|item| step.matches(item)).find_map(|item| get(item, rest)),
        _ => None,
    }
}

fn visit(value: &mut Value, steps: &[Step], create: bool, change: &mut dyn FnMut(&mut Value)) -> usize {
    let Some((step, rest)) = steps.split_first() else {
        change(value);
        return 1;
    };
    if create && value.is_null() {
        *value = match step {
            Step::Key(_) => Map::new().into(),
            Step::Match(..) | Step::All => Value::Array(Vec::new()),
        };
    }
    match (value, step) {
        (Value::Object(fields), Step::Key(key)) => {
            if create {
                fields.entry(key.clone()).or_insert(Value::Null);
            }
            fields.get_mut(key).map_or(0, |field| visit(field, rest, create, change))
        }
        (Value::Object(fields), Step::All) => fields.values_mut().map(|field| visit(field, rest, create, change)).sum(),
        (Value::Array(items), Step::Key(key)) => {
            let position = if key == "-" { items.len().checked_sub(1) } else { key.parse::<usize>().ok() };
            if create && position == Some(items.len()) {
                items.push(Value::Null);
            }
            let item = position.and_then(|position| items.get_mut(position));
            item.map_or(0, |item| visit(item, rest, create, change))
        }
        (Value::Array(items), step) => {
            if create && !items.iter().any(|item| step.matches(item)) {
                items.extend(step.new_item());
            }
            let matching = items.iter_mut().filter(|item| step.matches(item));
            matching.map(|item| visit(item, rest, create, change)).sum()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_find_fields() {
        let value = json!({"a": {"b.c": 1, "l": [{"name": "x", "v": 1}, {"name": "y", "v": 2}], "s": ["p", "q"]}});
        for (path, expected) in [
            ("a.[b.c]", Some(json!(1))),
            ("a.b\\.c", Some(json!(1))),
            ("a.l.[name=y].v", Some(json!(2))),
            ("a.l[name=y].v", Some(json!(2))),
            ("a.l.1.v", Some(json!(2))),
            ("a.l.*.v", Some(json!(1))),
            ("a.l.-.v", Some(json!(2))),
            ("a.s.[=q]", Some(json!("q"))),
            ("a.x", None),
            ("a.l.9", None),
        ] {
            assert_eq!(FieldPath::parse(path).get(&value), expected.as_ref(), "{path}");
        }
    }

    #[test]
    fn missing_fields_are_created() {
        for (path, before, after) in [
            ("a.b", json!({}), json!({"a": {"b": 1}})),
            ("a.[name=x].v", json!({}), json!({"a": [{"name": "x", "v": 1}]})),
            ("a.1", json!({"a": [0]}), json!({"a": [0, 1]})),
        ] {
            let mut value = before;
            assert_eq!(FieldPath::parse(path).visit(&mut value.clone(), false, &mut |_| {}), 0, "{path}");
            assert_eq!(FieldPath::parse(path).visit(&mut value, true, &mut |field| *field = json!(1)), 1, "{path}");
            assert_eq!(value, after, "{path}");
        }
    }
}
