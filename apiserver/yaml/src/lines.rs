//! Finds the line of a field in a YAML text, for messages about the field.

use std::collections::HashMap;

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle};

/// The line, counted from 1, of a field such as `spec.workspaces[0]`, or of what it would be in.
///
/// `None` when not even the field that it would be in is there, or the text is no YAML.
pub fn line_of(text: &str, field: &str) -> Option<usize> {
    let lines = lines(text, field);
    let mut end = field.len();
    loop {
        if let Some(line) = lines.get(&end) {
            return Some(*line);
        }
        end = field[..end].rfind(['.', '['])?;
    }
}

/// The line, counted from 1, of the first thing after the first document of a text, even if that is no YAML. Comments and
/// documents with nothing in them are no things.
pub fn after_first_document(text: &str) -> Option<usize> {
    let mut is_over = false;
    for event in Parser::new_from_str(text) {
        let (event, span) = match event {
            Ok(event) => event,
            Err(error) => return is_over.then(|| error.marker().line()),
        };
        match event {
            Event::DocumentEnd => is_over = true,
            // What an empty document has in it.
            Event::Scalar(text, ScalarStyle::Plain, 0, None) if ["", "~"].contains(&text.as_ref()) => {}
            Event::Scalar(..) | Event::Alias(_) | Event::SequenceStart(..) | Event::MappingStart(..) if is_over => {
                return Some(span.start.line());
            }
            _ => {}
        }
    }
    None
}

/// A collection that has begun and not ended. Its path is told by how much of the wanted one it is: paths of a file may
/// be far longer than the file.
enum Open {
    /// The key whose value comes next; nothing when a key comes next.
    Mapping {
        path: Option<usize>,
        key: Option<String>,
    },
    Sequence {
        path: Option<usize>,
        next: usize,
    },
}

/// The lines of a field and of what it is in, by the length of their paths, as validation writes them. Of a text that
/// breaks off, those before.
fn lines(text: &str, field: &str) -> HashMap<usize, usize> {
    let mut lines = HashMap::new();
    let mut open: Vec<Open> = Vec::new();
    for event in Parser::new_from_str(text) {
        let Ok((event, span)) = event else { break };
        let mut note = |path: Option<usize>| {
            if let Some(path) = path {
                lines.entry(path).or_insert(span.start.line());
            }
        };
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
            None => Some(0),
            Some(Open::Sequence { path, next }) => {
                *next += 1;
                path.and_then(|path| extended(field, path, &format!("[{}]", *next - 1)))
            }
            Some(Open::Mapping { path, key }) => match key.take() {
                Some(key) => path.and_then(|path| joined(field, path, &key)),
                None => {
                    // A key that is a collection is nothing that any object has.
                    let name = leaf.unwrap_or("?");
                    note(path.and_then(|path| joined(field, path, name)));
                    *key = Some(name.to_owned());
                    if leaf.is_some() {
                        continue;
                    }
                    None
                }
            },
        };
        match event {
            Event::MappingStart(..) => open.push(Open::Mapping { path, key: None }),
            Event::SequenceStart(..) => open.push(Open::Sequence { path, next: 0 }),
            _ => {}
        }
        // The value of a key is where its key is.
        note(path);
    }
    lines
}

/// How much of the field the path is that goes on with this text; nothing when it leads elsewhere.
fn extended(field: &str, path: usize, text: &str) -> Option<usize> {
    field[path..].starts_with(text).then_some(path + text.len())
}

fn joined(field: &str, path: usize, key: &str) -> Option<usize> {
    let path = if path == 0 { 0 } else { extended(field, path, ".")? };
    extended(field, path, key)
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
    fn what_is_after_the_first_document_is_found() {
        for (text, line) in [
            (FILE.to_owned(), None),
            (format!("---\n{FILE}"), None),
            (format!("%YAML 1.1\n---\n{FILE}...\n"), None),
            (format!("{FILE}---\n"), None),
            (format!("{FILE}---\n# nothing\n...\n# here\n"), None),
            ("a: 1\n---\nb: 2\n".to_owned(), Some(3)),
            ("a: 1\n---\n---\n# and\n- b\n".to_owned(), Some(5)),
            ("a: 1\n...\n---\ntext\n".to_owned(), Some(4)),
            ("a: 1\n--- ''\n".to_owned(), Some(2)),
            ("a: 1\n---\n@\n".to_owned(), Some(3)),
        ] {
            assert_eq!(after_first_document(&text), line, "{text}");
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

    /// A file in which the paths of all fields are gigabytes.
    #[test]
    fn long_paths_are_not_made() {
        let key = "k".repeat(1 << 20);
        let mut file = format!("? {key}\n:\n");
        (0..20_000).for_each(|number| file.push_str(&format!("  a{number}: 1\n")));
        assert_eq!(line_of(&file, &format!("{key}.a7.x")), Some(10));
        assert_eq!(line_of(&file, "spec.x"), None);
    }

    #[test]
    fn fields_with_dots_and_collections_as_keys_are_told_apart() {
        let file = "metadata:\n  annotations:\n    a.b: 1\n    a: 2\n? [x]\n: y\nspec: {ab: 1, a: {c: 1}}\n";
        for (field, line) in [
            ("metadata.annotations.a.b", 3),
            ("metadata.annotations.a", 4),
            ("spec.ab", 7),
            ("spec.a.c", 7),
            ("spec.abc", 7),
        ] {
            assert_eq!(line_of(file, field), Some(line), "{field}");
        }
    }
}
