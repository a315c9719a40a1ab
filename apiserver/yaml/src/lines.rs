//! Finds the line of a field in a YAML text, for messages about the field.

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle};

use crate::{Limits, compose::Composer, outline::Outline};

/// The limits of a text whose lines are wanted. A deeper one has none.
const LIMITS: Limits = Limits { depth: 128, values: usize::MAX, documents: 1, copied: 16 << 20 };

/// The line, counted from 1, of a field such as `spec.workspaces[0]`, or of what it would be in.
///
/// `None` when not even the field that it would be in is there, or the text is no YAML.
pub fn line_of(text: &str, field: &str) -> Option<usize> {
    let document = Composer::new(text, &LIMITS, true).document().ok()??;
    let (_, line) = deepest(&document.outline, field)?;
    usize::try_from(line).ok()
}

/// How much of the end of a field is not there, and the line of the rest.
fn deepest(outline: &Outline, field: &str) -> Option<(usize, u32)> {
    let inside = |rest: &str, line: u32, inner: &Outline| {
        deepest(inner, rest.strip_prefix('.').unwrap_or(rest)).unwrap_or((rest.len(), line))
    };
    match outline {
        Outline::Leaf => None,
        Outline::Map(fields) => {
            let found = fields.iter().filter_map(|(key, line, inner)| {
                let rest = field.strip_prefix(key.as_str())?;
                (rest.is_empty() || rest.starts_with(['.', '['])).then(|| inside(rest, *line, inner))
            });
            found.min_by_key(|(left, _)| *left)
        }
        Outline::List(_) => {
            let (position, rest) = field.strip_prefix('[')?.split_once(']')?;
            let (line, inner) = outline.item(position.parse().ok()?)?;
            Some(inside(rest, line, inner))
        }
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
    fn fields_with_dots_are_told_apart() {
        let file = "metadata:\n  annotations:\n    a.b: 1\n    a: 2\nspec: {ab: 1, a: {c: 1}}\n";
        for (field, line) in [
            ("metadata.annotations.a.b", 3),
            ("metadata.annotations.a", 4),
            ("spec.ab", 5),
            ("spec.a.c", 5),
            ("spec.abc", 5),
        ] {
            assert_eq!(line_of(file, field), Some(line), "{field}");
        }
    }
}
