//! `${stoa_value.NAME}` in manifests, Spec files and overlays: a value of the platform, or a parameter.
//!
//! Start at [`OfFile::fill`]. Other texts with `${` stay, since shells and templates have them; `$${stoa_value.` stands for
//! `${stoa_value.` itself. A scalar that is a placeholder alone gets the value with its type, and a longer one its text.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use stoa_engine::path::{FieldPath, Segment};
use stoa_engine::suggest::suggestion;
use stoa_proto::Problem;

use super::field_lines::FieldLines;
use super::{Values, yaml};
use crate::failure::{problem, reason};
use crate::source::SourceFile;

/// The beginning of a placeholder.
const START: &str = "${stoa_value.";
/// The text that stands for it.
const ESCAPED: &str = "$${stoa_value.";
/// The largest index in the name of a parameter, as `helm --set` has it.
const LARGEST_INDEX: usize = 65_536;
/// The number of unread values that a warning names.
const NAMED: usize = 10;

/// The values and parameters of a stack by their names.
#[derive(Debug)]
pub(super) struct Placeholders {
    known: Value,
    /// Each name as its object has it, with words for people.
    names: BTreeMap<String, String>,
    read: RefCell<BTreeSet<String>>,
}

/// A placeholder that has no value: its field, and why.
type Wrong = (FieldPath, String);

impl Placeholders {
    pub(super) fn of(values: &Values) -> Self {
        let mut known = Value::Object(Map::new());
        let mut names = BTreeMap::new();
        for stoa_proto::Value { name, json, origin, .. } in &values.platform {
            let value = serde_json::from_str(json).unwrap_or_else(|_| Value::String(json.clone()));
            set(&mut known, &[Segment::Key(name.clone())], value);
            names.insert(name.clone(), format!("value {name} of {origin}"));
        }
        let parameters: BTreeMap<_, _> = values.parameters.iter().collect();
        for (name, text) in parameters {
            set(&mut known, &path_of(name).unwrap_or_else(|| vec![Segment::Key(name.clone())]), typed(text));
            names.insert(name.clone(), format!("parameter {name}"));
        }
        Self { known, names, read: RefCell::default() }
    }

    /// Those of a file.
    pub(super) fn of_file<'a>(&'a self, file: &'a SourceFile) -> OfFile<'a> {
        let has_some = std::str::from_utf8(&file.bytes).is_ok_and(|text| text.contains(START));
        OfFile { placeholders: self, file, has_some, lines: OnceCell::new() }
    }

    /// Fills a value in an object of a kind.
    fn value(&self, value: &mut Value, kind: &str, at: &mut FieldPath, wrong: &mut Vec<Wrong>) {
        match value {
            Value::String(text) if text.contains(START) => match self.scalar(text) {
                Ok(filled) => *value = if wants_text(kind, &at.0) { Value::String(text_of(&filled)) } else { filled },
                Err(message) => wrong.push((at.clone(), message)),
            },
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    at.0.push(Segment::Index(index));
                    self.value(item, kind, at, wrong);
                    at.0.pop();
                }
            }
            Value::Object(map) => {
                let own = map.get("kind").and_then(Value::as_str).map(str::to_owned);
                let kind = own.as_deref().unwrap_or(kind);
                for (key, value) in map.iter_mut() {
                    at.0.push(Segment::Key(key.clone()));
                    self.value(value, kind, at, wrong);
                    at.0.pop();
                }
                self.keys(map, at, wrong);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Fills the keys of a map.
    fn keys(&self, map: &mut Map<String, Value>, at: &FieldPath, wrong: &mut Vec<Wrong>) {
        let placeholders: Vec<String> = map.keys().filter(|key| key.contains(START)).cloned().collect();
        for key in placeholders {
            match self.scalar(&key).map(|filled| text_of(&filled)) {
                Ok(filled) if map.contains_key(&filled) => {
                    wrong.push((at.key(&key), format!("{filled:?} is a key of the map already")));
                }
                Ok(filled) => {
                    let value = map.remove(&key).unwrap_or_default();
                    map.insert(filled, value);
                }
                Err(message) => wrong.push((at.key(&key), message)),
            }
        }
    }

    fn scalar(&self, text: &str) -> Result<Value, String> {
        let is_alone = text.strip_prefix(START).and_then(|rest| rest.strip_suffix('}'));
        if let Some(name) = is_alone.filter(|name| !name.contains('}')) {
            return self.named(name).cloned();
        }
        let (mut filled, mut rest) = (String::new(), text);
        while let Some(found) = rest.find(START) {
            let before = &rest[..found];
            let after = &rest[found + START.len()..];
            if let Some(before) = before.strip_suffix('$') {
                filled.push_str(before);
                filled.push_str(START);
                rest = after;
                continue;
            }
            filled.push_str(before);
            let (name, after) = after.split_once('}').ok_or_else(|| {
                format!("a placeholder lacks its closing brace; write {START}NAME}}, or {ESCAPED} for the text itself")
            })?;
            filled.push_str(&text_of(self.named(name)?));
            rest = after;
        }
        filled.push_str(rest);
        Ok(Value::String(filled))
    }

    fn named(&self, name: &str) -> Result<&Value, String> {
        let path = path_of(name).ok_or_else(|| {
            format!("{name:?} is no name of a value; write a name such as image.tag, or {ESCAPED} for the text itself")
        })?;
        self.read.borrow_mut().insert(name.to_owned());
        match lookup(&self.known, &path) {
            Some(value) => Ok(value),
            None => Err(self.unknown(name)),
        }
    }

    fn unknown(&self, name: &str) -> String {
        let names: Vec<&str> = self.names.keys().map(String::as_str).collect();
        let hint = match (suggestion(name, &names), names.is_empty()) {
            (Some(meant), _) => format!("did you mean {meant}?"),
            (None, true) => "it has none.".to_owned(),
            (None, false) => format!("it has {}.", listed(names.into_iter().map(str::to_owned))),
        };
        format!(
            "the stack has no value {name:?}; {hint} Set it in a VariableSet, the Workspace or the Stack, or write {ESCAPED} for the \
             text itself"
        )
    }

    /// The warning about values that no placeholder reads; `hint` says what reads one.
    pub(super) fn unread(&self, hint: &str) -> Option<String> {
        let read = self.read.borrow();
        let is_read = |name: &str| read.iter().any(|read| covers(read, name) || covers(name, read));
        let unread: Vec<String> =
            self.names.iter().filter(|(name, _)| !is_read(name)).map(|(_, words)| words.clone()).collect();
        (!unread.is_empty()).then(|| format!("nothing in the stack reads {}; {hint}", listed(unread.into_iter())))
    }

    /// All values as texts: each one by its name, and the parts of maps and lists by their paths, such as `image.tag`.
    pub(super) fn flat(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for (name, value) in self.known.as_object().into_iter().flatten() {
            all.insert(name.clone(), text_of(value));
            parts(name, value, &mut all);
        }
        all
    }
}

/// The placeholders of a file.
#[derive(Debug)]
pub(super) struct OfFile<'a> {
    placeholders: &'a Placeholders,
    file: &'a SourceFile,
    /// Whether it has one, possibly one that is escaped.
    has_some: bool,
    /// For problems alone, since finding lines takes as long as reading the file.
    lines: OnceCell<FieldLines>,
}

impl OfFile<'_> {
    /// Fills the placeholders of a document of the file, which begins at this line.
    pub(super) fn fill(&self, begin: usize, document: &mut Value) -> Result<(), Vec<Problem>> {
        self.fill_part(begin, document, (&FieldPath::default(), "", &[]))
    }

    /// Fills the placeholders of a field of a document, whose value is for an object of this kind at this path.
    pub(super) fn fill_part(
        &self,
        begin: usize,
        part: &mut Value,
        (field, kind, path): (&FieldPath, &str, &[Segment]),
    ) -> Result<(), Vec<Problem>> {
        if !self.has_some {
            return Ok(());
        }
        let mut wrong = Vec::new();
        self.placeholders.value(part, kind, &mut FieldPath(path.to_vec()), &mut wrong);
        if wrong.is_empty() {
            return Ok(());
        }
        let begin = yaml::narrow(begin);
        let lines = self.lines.get_or_init(|| FieldLines::of(self.file));
        let located = |(of_object, message): Wrong| {
            let below = of_object.0.into_iter().skip(path.len());
            let field = FieldPath(field.0.iter().cloned().chain(below).collect()).to_string();
            let line = lines.line(begin, &field).unwrap_or(begin);
            Problem { file: self.file.path.clone(), line, field, ..problem(reason::UNKNOWN_VALUE, message) }
        };
        Err(wrong.into_iter().map(located).collect())
    }
}

/// Adds the scalars in a value, by their paths.
fn parts(name: &str, value: &Value, all: &mut BTreeMap<String, String>) {
    let mut add = |name: String, value: &Value| match value {
        Value::Object(_) | Value::Array(_) => parts(&name, value, all),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => drop(all.insert(name, text_of(value))),
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| add(format!("{name}.{key}"), value)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, value)| add(format!("{name}[{index}]"), value));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Some names, the first of many.
fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    let rest = names.len().saturating_sub(NAMED);
    let mut listed = names.take(NAMED).collect::<Vec<_>>().join(", ");
    if rest > 0 {
        listed.push_str(&format!(" and {rest} more"));
    }
    listed
}

/// Whether the value of a name includes that of the other.
fn covers(whole: &str, part: &str) -> bool {
    part.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The type that `helm --set` gives to a parameter, too.
pub(super) fn typed(text: &str) -> Value {
    match (text, text.parse::<i64>()) {
        ("true", _) => true.into(),
        ("false", _) => false.into(),
        (_, Ok(number)) if number.to_string() == text => number.into(),
        _ => text.into(),
    }
}

/// A value in a text.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Whether Kubernetes wants a text at a path of an object: a number there would be rejected.
fn wants_text(kind: &str, path: &[Segment]) -> bool {
    let key = |from_end: usize| match path.len().checked_sub(from_end).and_then(|at| path.get(at)) {
        Some(Segment::Key(key)) => key.as_str(),
        Some(Segment::Index(_) | Segment::Item { .. }) | None => "",
    };
    let is_index = matches!(path.last(), Some(Segment::Index(_)));
    match key(2) {
        "labels" | "annotations" | "matchLabels" | "nodeSelector" | "stringData" => !is_index,
        "args" | "command" => is_index,
        "data" => matches!(kind, "ConfigMap" | "Secret") && !is_index,
        _ => key(1) == "value" && key(3) == "env",
    }
}

/// The path of a name such as `image.tag` or `hosts[0].name`.
fn path_of(name: &str) -> Option<Vec<Segment>> {
    let is_word = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    let mut path = Vec::new();
    for part in name.split('.') {
        let (word, mut rest) = part.split_at(part.find('[').unwrap_or(part.len()));
        path.push(Segment::Key(Some(word).filter(|word| is_word(word))?.to_owned()));
        while !rest.is_empty() {
            let (index, after) = rest.strip_prefix('[')?.split_once(']')?;
            let digits = Some(index).filter(|index| index.bytes().all(|byte| byte.is_ascii_digit()))?;
            path.push(Segment::Index(digits.parse().ok().filter(|index| *index <= LARGEST_INDEX)?));
            rest = after;
        }
    }
    Some(path)
}

/// The first word of a name such as `image.tag`, and the path of the part in its value; nothing for a whole value.
pub(super) fn part_of(name: &str) -> Option<(String, Vec<Segment>)> {
    let mut path = path_of(name)?;
    let word = match path.remove(0) {
        Segment::Key(word) => word,
        Segment::Index(_) | Segment::Item { .. } => return None,
    };
    (!path.is_empty()).then_some((word, path))
}

fn lookup<'v>(value: &'v Value, path: &[Segment]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, segment| match segment {
        Segment::Key(key) => value.get(key),
        Segment::Index(index) => value.get(index),
        Segment::Item { .. } => None,
    })
}

/// Sets a part of a value, and makes maps and lists on the way.
pub(super) fn set(value: &mut Value, path: &[Segment], new: Value) {
    let Some((first, rest)) = path.split_first() else {
        *value = new;
        return;
    };
    match first {
        Segment::Key(key) => {
            if !value.is_object() {
                *value = Value::Object(Map::new());
            }
            if let Value::Object(map) = value {
                set(map.entry(key.clone()).or_insert(Value::Null), rest, new);
            }
        }
        Segment::Index(index) => {
            if !value.is_array() {
                *value = Value::Array(Vec::new());
            }
            if let Value::Array(items) = value {
                if items.len() <= *index {
                    items.resize(index + 1, Value::Null);
                }
                set(&mut items[*index], rest, new);
            }
        }
        Segment::Item { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn placeholders() -> Placeholders {
        let value = |name: &str, json: Value| stoa_proto::Value {
            name: name.to_owned(),
            json: json.to_string(),
            origin: "VariableSet eu".to_owned(),
            ..stoa_proto::Value::default()
        };
        let parameters = [("image.tag", "17"), ("hosts[1]", "b"), ("text", "1.10"), ("debug", "true")];
        Placeholders::of(&Values {
            platform: vec![
                value("replicas", json!(3)),
                value("image", json!({"tag": "1", "registry": "r"})),
                value("limits", json!({"cpu": "1"})),
                value("literal", json!("${stoa_value.replicas}")),
            ],
            parameters: parameters.map(|(name, text)| (name.to_owned(), text.to_owned())).into(),
            ..Values::default()
        })
    }

    fn filled(text: &str) -> Result<Value, Vec<String>> {
        let file = SourceFile { path: "a.yaml".to_owned(), bytes: text.as_bytes().to_vec() };
        let mut document = yaml::documents(&file).unwrap().remove(0);
        match placeholders().of_file(&file).fill(document.line, &mut document.value) {
            Ok(()) => Ok(document.value),
            Err(problems) => Err(problems.iter().map(crate::failure::sentence).collect()),
        }
    }

    #[test]
    fn scalar_gets_the_value_with_its_type() {
        for (text, expected) in [
            ("a: ${stoa_value.replicas}", json!({"a": 3})),
            ("a: '${stoa_value.replicas}'", json!({"a": 3})),
            ("a: x-${stoa_value.replicas}-${stoa_value.debug}", json!({"a": "x-3-true"})),
            ("a: ${stoa_value.limits}", json!({"a": {"cpu": "1"}})),
            ("a: 'l: ${stoa_value.limits}'", json!({"a": "l: {\"cpu\":\"1\"}"})),
            ("a: [\"${stoa_value.image.tag}\", \"${stoa_value.image.registry}\"]", json!({"a": [17, "r"]})),
            ("a: ${stoa_value.hosts}", json!({"a": [null, "b"]})),
            ("a: ${stoa_value.hosts[1]}", json!({"a": "b"})),
            ("a: ${stoa_value.text}", json!({"a": "1.10"})),
            ("${stoa_value.text}: 1", json!({"1.10": 1})),
            // A value is no text with placeholders.
            ("a: ${stoa_value.literal}", json!({"a": "${stoa_value.replicas}"})),
        ] {
            assert_eq!(filled(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn other_texts_stay_as_they_are() {
        for (text, expected) in [
            ("a: ${HOME} $${HOME} ${stoa_values} ${stoa_value} $stoa_value.x", None),
            ("a: $${stoa_value.replicas}", Some("${stoa_value.replicas}")),
            ("a: x $${stoa_value.none", Some("x ${stoa_value.none")),
            ("a: $$${stoa_value.text}", Some("$${stoa_value.text}")),
            ("a: $(${stoa_value.text})${X}", Some("$(1.10)${X}")),
        ] {
            let expected = expected.unwrap_or(&text[3..]);
            assert_eq!(filled(text), Ok(json!({"a": expected})), "{text}");
        }
    }

    #[test]
    fn kubernetes_gets_texts_where_it_wants_them() {
        let text = "kind: ConfigMap\nmetadata: {labels: {m: '${stoa_value.replicas}'}}\ndata: {m: '${stoa_value.replicas}', d: '${stoa_value.debug}'}\n\
                    spec: {data: '${stoa_value.replicas}', env: [{name: M, value: '${stoa_value.replicas}'}], args: ['${stoa_value.replicas}']}\n";
        let expected = json!({"kind": "ConfigMap", "metadata": {"labels": {"m": "3"}}, "data": {"m": "3", "d": "true"},
            "spec": {"data": 3, "env": [{"name": "M", "value": "3"}], "args": ["3"]}});
        assert_eq!(filled(text), Ok(expected));
        assert_eq!(
            filled("kind: Widget\ndata: {m: '${stoa_value.replicas}'}"),
            Ok(json!({"kind": "Widget", "data": {"m": 3}}))
        );
    }

    #[test]
    fn unknown_value_names_its_line() {
        for (text, expected) in [
            (
                "a: 1\nb:\n- 2\n- x ${stoa_value.replica}",
                "a.yaml:4: b[1]: the stack has no value \"replica\"; did you mean replicas?",
            ),
            ("a:\n  b: ${stoa_value.image.none}", "a.yaml:2: a.b: the stack has no value \"image.none\""),
            (
                "a: 1\n${stoa_value.region}: 2",
                "a.yaml:2: [\"${stoa_value.region}\"]: the stack has no value \"region\"; it has debug, ",
            ),
            ("a: ${stoa_value.replicas", "a.yaml:1: a placeholder lacks its closing brace"),
            ("a: ${stoa_value.}", "a.yaml:1: a: \"\" is no name of a value"),
            ("a: ${stoa_value.a b}", "a.yaml:1: a: \"a b\" is no name of a value"),
            (
                "'17': 1\n${stoa_value.image.tag}: 2",
                "a.yaml:2: [\"${stoa_value.image.tag}\"]: \"17\" is a key of the map already",
            ),
        ] {
            let found = filled(text).unwrap_err();
            assert!(found.len() == 1 && found[0].starts_with(expected), "{text}: {found:?}");
        }
    }

    #[test]
    fn unread_values_are_named_with_their_origin() {
        let placeholders = placeholders();
        for name in ["image", "replicas", "hosts[1]", "literal"] {
            placeholders.named(name).unwrap();
        }
        let expected =
            "nothing in the stack reads parameter debug, value limits of VariableSet eu, parameter text; remove them";
        assert_eq!(placeholders.unread("remove them").unwrap(), expected);
        for name in ["debug", "limits.cpu", "text"] {
            placeholders.named(name).unwrap();
        }
        assert_eq!(placeholders.unread(""), None);
    }

    #[test]
    fn flat_values_have_the_paths_of_parts() {
        let flat = placeholders().flat();
        let some: Vec<_> = ["image", "image.tag", "image.registry", "hosts[1]", "limits.cpu", "replicas"]
            .map(|name| flat[name].as_str())
            .into();
        assert_eq!(some, ["{\"registry\":\"r\",\"tag\":17}", "17", "r", "b", "1", "3"]);
    }
}
