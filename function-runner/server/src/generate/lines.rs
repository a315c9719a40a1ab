//! Where in a file its resources and their fields are, so that people are sent to the right line.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_saphyr::Spanned;

use super::places::Places;
use super::yaml;
use crate::source::SourceFile;

/// The lines of a Spec file, from 1; 0 where one is not known.
#[derive(Debug, Default)]
pub(super) struct Lines {
    fields: Vec<(String, u32)>,
    resources: Vec<(u32, Vec<(String, u32)>)>,
    places: Places,
}

impl Lines {
    /// Those of a file of one document. Of one that is written in an unusual way, none.
    pub(super) fn of(file: &SourceFile) -> Self {
        let line = |location: serde_saphyr::Location| u32::try_from(location.line()).unwrap_or_default();
        let keys = |keys: Keys| -> Vec<(String, u32)> {
            keys.0.into_iter().map(|key| (key.value, line(key.referenced))).collect()
        };
        let fields = yaml::first::<Keys>(file).map(keys).unwrap_or_default();
        let resources = yaml::first::<Resources>(file).and_then(|found| found.resources).unwrap_or_default();
        let resources = resources.into_iter().map(|resource| (line(resource.referenced), keys(resource.value)));
        Self { fields, resources: resources.collect(), places: Places::of(file) }
    }

    /// The line of a field of the document, such as `context`.
    pub(super) fn field(&self, field: &str) -> u32 {
        find(&self.fields, field).unwrap_or_default()
    }

    /// The line of a resource, by its position; that of the list where it is not known.
    pub(super) fn resource(&self, position: usize) -> u32 {
        self.resources.get(position).map_or_else(|| self.field("resources"), |(line, _)| *line)
    }

    /// The line of a resource's field, such as `dependsOn[0]` or `attributes.kind`, or of the innermost part of it that is
    /// there; of a large file that of the first part, or of the resource.
    pub(super) fn resource_field(&self, position: usize, field: &str) -> u32 {
        if let Some(line) = self.places.line(None, &format!("resources[{position}].{field}")) {
            return line;
        }
        let first = field.split(['.', '[']).next().unwrap_or(field);
        let fields = self.resources.get(position).map(|(_, fields)| fields.as_slice()).unwrap_or_default();
        find(fields, first).unwrap_or_else(|| self.resource(position))
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

fn find(fields: &[(String, u32)], name: &str) -> Option<u32> {
    fields.iter().find(|(field, _)| field == name).map(|(_, line)| *line)
}

#[derive(serde::Deserialize)]
struct Resources {
    resources: Option<Vec<Spanned<Keys>>>,
}

/// The keys of a map, each with its place.
struct Keys(Vec<Spanned<String>>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Keys;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
                let mut keys = Vec::new();
                while let Some((key, IgnoredAny)) = map.next_entry()? {
                    keys.push(key);
                }
                Ok(Keys(keys))
            }
        }

        deserializer.deserialize_map(Collect)
    }
}
