//! The scalars of an object in its text, with their comments, and changes to them that leave their quotes.

use std::ops::Range;

use serde::de::IgnoredAny;
use serde_json::Value;
use stoa_yaml_edit::{Form, Step, nodes, with_comments};

use super::Failure;
use crate::{
    resources::{Resource, object_name},
    text,
};

/// A scalar or a list of an object.
#[derive(Clone, Debug)]
pub(super) struct Field {
    /// The steps from the root.
    pub(super) path: Vec<Step>,
    /// The path as findings and patterns have it: `spec.containers[0].image`.
    pub(super) name: String,
    /// The text of a scalar, without quotes; `None` for a list.
    pub(super) scalar: Option<String>,
    /// The comment on its line, with `#`.
    pub(super) comment: Option<String>,
    range: Range<usize>,
}

/// Changes to the text of an object.
#[derive(Debug, Default)]
pub(super) struct Edits {
    sources: Vec<(Range<usize>, String)>,
    comments: Vec<(Vec<Step>, String)>,
}

/// The scalars and lists of an object in the order of its text. Aliases and texts after `|` or `>` are not among them.
pub(super) fn fields(text: &str, value: &Value) -> Vec<Field> {
    let mut found = Vec::new();
    for node in nodes(text).unwrap_or_default() {
        let Some(current) = at(value, &node.path) else { continue };
        let scalar = match (node.form, current) {
            (Form::List, Value::Array(_)) => None,
            (Form::Scalar, Value::String(text)) => Some(text.clone()),
            (Form::Scalar, Value::Number(_) | Value::Bool(_) | Value::Null) => {
                Some(text[node.range.clone()].to_owned())
            }
            _ => continue,
        };
        let comment = node.comment.map(|range| text[range].to_owned());
        found.push(Field { name: name(&node.path), path: node.path, scalar, comment, range: node.range });
    }
    found
}

fn at<'v>(value: &'v Value, path: &[Step]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, step| match step {
        Step::Key(key) => value.get(key),
        Step::Item(position) => value.get(position),
    })
}

/// A value inside of another.
pub(super) fn at_mut<'v>(value: &'v mut Value, path: &[Step]) -> Option<&'v mut Value> {
    path.iter().try_fold(value, |value, step| match step {
        Step::Key(key) => value.get_mut(key),
        Step::Item(position) => value.get_mut(position),
    })
}

fn name(path: &[Step]) -> String {
    let mut name = String::new();
    for step in path {
        match step {
            Step::Key(key) if name.is_empty() => name.push_str(key),
            Step::Key(key) => name.push_str(&format!(".{key}")),
            Step::Item(position) => name.push_str(&format!("[{position}]")),
        }
    }
    name
}

impl Edits {
    /// Sets the text of a scalar. In quotes it stays text; without, its type is that of the new text.
    pub(super) fn set(&mut self, text: &str, field: &Field, new: &str) {
        let old = &text[field.range.clone()];
        self.sources.push((field.range.clone(), source_like(old, new, is_json(text))));
    }

    /// Sets the comment beside a field.
    pub(super) fn set_comment(&mut self, field: &Field, comment: &str) {
        self.comments.push((field.path.clone(), comment.to_owned()));
    }

    /// Makes the changes to an object with this text.
    ///
    /// # Errors
    ///
    /// [`Failure`] when a comment cannot be beside its field, or the result is no YAML.
    pub(super) fn apply(mut self, text: String, resource: &mut Resource) -> Result<(), Failure> {
        if self.sources.is_empty() && self.comments.is_empty() {
            return Ok(());
        }
        let object = object_name(resource);
        let mut text = self.with_sources(&text);
        if !self.comments.is_empty() {
            let comments: Vec<(&[Step], &str)> =
                self.comments.iter().map(|(path, comment)| (path.as_slice(), comment.as_str())).collect();
            let (commented, failed) = with_comments(&text, &comments).unwrap_or_else(|| (String::new(), vec![0]));
            if let Some((path, _)) = failed.first().and_then(|failed| comments.get(*failed)) {
                let field = name(path);
                let problem = format!("{object}: {field} can have no comment; write it on a line of its own");
                return Err(Failure::new(problem));
            }
            text = commented;
        }
        resource.set_text(text).map_err(|error| Failure::new(format!("{object}: the changed text is no YAML: {error}")))
    }

    /// The text with the new scalars.
    fn with_sources(&mut self, text: &str) -> String {
        self.sources.sort_by_key(|(range, _)| range.start);
        let mut out = String::with_capacity(text.len());
        let mut copied = 0;
        for (range, source) in &self.sources {
            out.push_str(&text[copied..range.start]);
            // Null may be nothing at all.
            if range.is_empty() && !out.ends_with(' ') {
                out.push(' ');
            }
            out.push_str(source);
            copied = range.end;
        }
        out.push_str(&text[copied..]);
        out
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// A scalar's source for a new text, with the quotes of the old one.
fn source_like(old: &str, new: &str, is_json: bool) -> String {
    let is_plain = match old.chars().next() {
        Some('\'') if !new.contains(['\n', '\r']) => return format!("'{}'", new.replace('\'', "''")),
        Some('"' | '\'') => false,
        _ if is_json => serde_json::from_str::<Value>(new).is_ok_and(|value| !value.is_object() && !value.is_array()),
        _ => is_plain(new),
    };
    if is_plain { new.to_owned() } else { Value::from(new).to_string() }
}

/// Whether a text without quotes is a scalar, and if it is text, the same.
fn is_plain(text: &str) -> bool {
    if text.is_empty() || text.contains([',', '[', ']', '{', '}', '\n']) || text.trim() != text {
        return false;
    }
    match text::read(&format!("key: {text}")).ok().as_ref().and_then(|value| value.get("key")) {
        Some(Value::String(read)) => read == text,
        Some(Value::Number(_) | Value::Bool(_) | Value::Null) => !text.starts_with(['&', '!', '*', '#']),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_keep_their_quotes() {
        for (old, new, expected) in [
            ("4", "3", "3"),
            ("\"a\"", "3", "\"3\""),
            ("'a'", "it's", "'it''s'"),
            ("a", "b: c", "\"b: c\""),
            ("a", "", "\"\""),
            ("a", "x, y", "\"x, y\""),
            ("a", "b # c", "\"b # c\""),
            ("a", "nginx:1.2", "nginx:1.2"),
            ("'a'", "b\nc", "\"b\\nc\""),
        ] {
            assert_eq!(source_like(old, new, false), expected, "{old} {new}");
        }
        assert_eq!((source_like("1", "x", true), source_like("1", "2", true)), ("\"x\"".to_owned(), "2".to_owned()));
    }

    #[test]
    fn fields_have_names_and_comments() {
        let text = "a: 1.10 # one\nb: # two\n- c: 'x'\nd: &x y\ne: *x\nf: |\n  z\n";
        let value = text::read(text).unwrap();
        let found: Vec<_> = fields(text, &value).into_iter().map(|it| (it.name, it.scalar, it.comment)).collect();
        let field = |name: &str, scalar: Option<&str>, comment: Option<&str>| {
            (name.to_owned(), scalar.map(str::to_owned), comment.map(str::to_owned))
        };
        assert_eq!(
            found,
            [
                field("a", Some("1.10"), Some("# one")),
                field("b", None, Some("# two")),
                field("b[0].c", Some("x"), None),
                field("d", Some("y"), None),
            ]
        );
    }
}
