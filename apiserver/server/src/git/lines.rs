//! Finds the line of a field in a YAML file, so that people are sent to the right place.

use std::collections::HashMap;

use serde_saphyr::granit_parser::{Event, Parser};

/// The line, counted from 1, of a field such as `spec.workspaces[0]`, or of what it would be in.
///
/// Nothing when not even the field that it would be in is there, or the text is no YAML.
pub(super) fn line_of(text: &str, field: &str) -> Option<usize> {
    let lines = lines(text);
    let mut field = field;
    loop {
        if let Some(line) = lines.get(field) {
            return Some(*line);
        }
        field = &field[..field.rfind(['.', '['])?];
    }
}

/// A collection that has begun and not ended.
enum Open {
    /// The key whose value comes next; nothing when a key comes next.
    Mapping {
        path: String,
        key: Option<String>,
    },
    Sequence {
        path: String,
        next: usize,
    },
}

/// The lines of all fields by their paths, as validation writes them. Of a text that breaks off, those before.
fn lines(text: &str) -> HashMap<String, usize> {
    let mut lines = HashMap::new();
    let mut open: Vec<Open> = Vec::new();
    for event in Parser::new_from_str(text) {
        let Ok((event, span)) = event else { break };
        let leaf = match &event {
            Event::Scalar(text, ..) => Some(text.as_ref()),
            Event::Alias(_) => Some("*"),
            Event::SequenceStart(..) | Event::MappingStart(..) => None,
            Event::SequenceEnd | Event::MappingEnd => {
                open.pop();
                continue;
            }
            _ => continue,
        };
        let path = match open.last_mut() {
            None => String::new(),
            Some(Open::Sequence { path, next }) => {
                *next += 1;
                format!("{path}[{}]", *next - 1)
            }
            Some(Open::Mapping { path, key }) => match key.take() {
                Some(key) => join(path, &key),
                None => {
                    // A key that is a collection is nothing that any object has.
                    let name = leaf.unwrap_or("?");
                    lines.entry(join(path, name)).or_insert(span.start.line());
                    *key = Some(name.to_owned());
                    if leaf.is_some() {
                        continue;
                    }
                    "?".to_owned()
                }
            },
        };
        match event {
            Event::MappingStart(..) => open.push(Open::Mapping { path: path.clone(), key: None }),
            Event::SequenceStart(..) => open.push(Open::Sequence { path: path.clone(), next: 0 }),
            _ => {}
        }
        // The value of a key is where its key is.
        lines.entry(path).or_insert(span.start.line());
    }
    lines
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# a comment
apiVersion: config.stoa.dev/v1alpha1
metadata:
  name: web-dev
spec:
  workspaces:
  - dev
  - prod
  generator:
    parameters: {a: 1, b: [x,
      y]}
  description: |
    spec:
      nothing: here
  owners:
  - kind: User
    name: ann
";

    #[test]
    fn fields_are_found() {
        for (field, line) in [
            ("apiVersion", 2),
            ("metadata.name", 4),
            ("spec.workspaces", 6),
            ("spec.workspaces[0]", 7),
            ("spec.workspaces[1]", 8),
            ("spec.generator.parameters.b[1]", 11),
            ("spec.owners[0].name", 17),
        ] {
            assert_eq!(line_of(FILE, field), Some(line), "{field}");
        }
    }

    #[test]
    fn missing_field_is_where_it_would_be() {
        assert_eq!(line_of(FILE, "spec.project"), Some(5));
        assert_eq!(line_of(FILE, "spec.owners[0].apiGroup"), Some(16));
        assert_eq!(line_of(FILE, "spec.nothing"), Some(5));
        assert_eq!(line_of(FILE, "status"), None);
        assert_eq!(line_of("a: [", "b"), None);
    }
}
