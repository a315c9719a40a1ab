//! The lines of the fields of a file, for error messages.
//!
//! Start at [`FieldLines`]. `lines` uses it for the resources of a Spec.

use stoa_yaml::Outline;

use super::yaml::{self, narrow};
use crate::source::SourceFile;

/// The largest file, in bytes, that is read once more for it: in memory it takes many times as much.
const LARGEST: usize = 4 << 20;

/// The documents of a file, each with the line where it begins.
#[derive(Debug, Default)]
pub(super) struct FieldLines(Vec<(u32, Outline)>);

impl FieldLines {
    /// Those of a file; of a large one, and of one that does not parse, none.
    pub(super) fn of(file: &SourceFile) -> Self {
        if file.bytes.len() > LARGEST {
            return Self::default();
        }
        let documents = yaml::outlined(file).unwrap_or_default();
        Self(documents.into_iter().map(|document| (narrow(document.line), document.outline)).collect())
    }

    /// The first document.
    pub(super) fn first(&self) -> Option<&Outline> {
        self.0.first().map(|(_, document)| document)
    }

    /// The line of the innermost part of a path, such as `metadata.labels["a.b/c"]` or `items[0].kind`, that is in the
    /// document which begins there. Nothing when not even its first part is.
    pub(super) fn line(&self, begin: u32, path: &str) -> Option<u32> {
        let (_, document) = self.0.iter().find(|(line, _)| *line == begin)?;
        line(document, path)
    }
}

/// The line of the innermost part of a path that is in a value.
pub(super) fn line(value: &Outline, path: &str) -> Option<u32> {
    let (mut inner, mut found) = (value, None);
    for part in parts(path) {
        let next = match &part {
            Part::Key(key) => inner.key(key),
            Part::Index(index) => inner.item(*index),
        };
        let Some((at, value)) = next else { break };
        (inner, found) = (value, Some(at));
    }
    found
}

enum Part {
    Key(String),
    Index(usize),
}

/// The parts of a path, as far as they name keys and indexes.
fn parts(path: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("[\"") {
            let Some((key, after)) = after.split_once("\"]") else { break };
            parts.push(Part::Key(key.to_owned()));
            rest = after;
        } else if let Some(after) = rest.strip_prefix('[') {
            let Some((index, after)) = after.split_once(']') else { break };
            let Ok(index) = index.parse() else { break };
            parts.push(Part::Index(index));
            rest = after;
        } else {
            let text = rest.strip_prefix('.').unwrap_or(rest);
            let (key, after) = text.split_at(text.find(['.', '[']).unwrap_or(text.len()));
            if !key.is_empty() {
                parts.push(Part::Key(key.to_owned()));
            } else if after.len() == rest.len() {
                break;
            }
            rest = after;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> FieldLines {
        FieldLines::of(&SourceFile { path: "a.yaml".to_owned(), bytes: text.as_bytes().to_vec() })
    }

    #[test]
    fn missing_field_has_the_line_of_its_parent() {
        let text = "# a comment\nmetadata:\n  name: a\n  labels:\n    a.b/c: x\nspec:\n  list:\n  - a: 1\n    b: [true, ~, 1.5,\n      2]\n";
        let lines = lines(text);
        for (path, line) in [
            ("metadata.name", Some(3)),
            ("metadata.labels[\"a.b/c\"]", Some(5)),
            ("metadata.namespace", Some(2)),
            ("spec.list[0]", Some(8)),
            ("spec.list[0].b[3]", Some(10)),
            ("spec.list[name=a].b", Some(7)),
            ("spec.list[7].b", Some(7)),
            ("kind", None),
            ("", None),
            ("..[", None),
        ] {
            assert_eq!(lines.line(2, path), line, "{path}");
        }
    }

    #[test]
    fn each_document_has_its_own_fields() {
        let lines = lines("kind: a\n---\n---\nkind: b\nx:\n  z: 1\n");
        assert_eq!((lines.line(1, "kind"), lines.line(4, "kind")), (Some(1), Some(4)));
        assert_eq!((lines.line(4, "x.z"), lines.line(3, "x.z")), (Some(6), None));
    }
}
