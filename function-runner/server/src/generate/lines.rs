//! The lines of resources and their fields in a file, for error messages.

use stoa_yaml::Outline;

use super::field_lines::FieldLines;
use crate::source::SourceFile;

/// The lines of a Spec file, from 1; 0 where one is not known.
#[derive(Debug, Default)]
pub(super) struct Lines(FieldLines);

impl Lines {
    /// The lines of a file of one document; none of a large file, or of one that does not parse.
    pub(super) fn of(file: &SourceFile) -> Self {
        Self(FieldLines::of(file))
    }

    /// The line of a field of the document, such as `context`.
    pub(super) fn field(&self, field: &str) -> u32 {
        self.0.first().and_then(|root| root.key(field)).map(|(line, _)| line).unwrap_or_default()
    }

    /// The line of a resource's field, such as `dependsOn[0]` or `attributes.kind`, or of its innermost part that
    /// exists; or else that of the resource, or of the list.
    pub(super) fn resource_field(&self, position: usize, field: &str) -> u32 {
        match self.found(position) {
            Some((line, resource)) => super::field_lines::line(resource, field).unwrap_or(line),
            None => self.field("resources"),
        }
    }

    fn found(&self, position: usize) -> Option<(u32, &Outline)> {
        self.0.first()?.key("resources")?.1.item(position)
    }
}

/// The lines of the `count` resources of a Spec file, from 1, where they are a list in block style, as people write it: these are
/// found without parsing the file once more. None of a file that is written otherwise.
pub(super) fn of_resources(file: &SourceFile, count: usize) -> Vec<u32> {
    let mut lines = file.bytes.split(|byte| *byte == b'\n').zip(1u32..);
    let is_comment = |rest: &[u8]| rest.is_empty() || rest.starts_with(b"#");
    let is_list =
        |(line, _): &(&[u8], u32)| line.strip_prefix(b"resources:").is_some_and(|rest| is_comment(rest.trim_ascii()));
    if lines.by_ref().find(is_list).is_none() {
        return Vec::new();
    }
    let mut indent = None;
    let mut found = Vec::new();
    for (line, number) in lines {
        let text = line.trim_ascii_start();
        if is_comment(text.trim_ascii_end()) {
            continue;
        }
        let indented = line.len() - text.len();
        // What belongs to an item is indented more than its dash.
        let is_item = indented == *indent.get_or_insert(indented) && text.starts_with(b"-");
        match is_item {
            true => found.push(number),
            false if indent.is_some_and(|indent| indented <= indent) => break,
            false => {}
        }
    }
    if found.len() == count { found } else { Vec::new() }
}
