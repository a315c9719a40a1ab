//! The line of every field of a file that something is wrong with.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::yaml;
use crate::source::SourceFile;

/// The largest file, in bytes, that is read once more for it: in memory it takes many times as much.
const LARGEST: usize = 1 << 20;

/// The documents of a file, each with the line where it begins.
#[derive(Debug, Default)]
pub(super) struct Places(Vec<(u32, Node)>);

impl Places {
    /// Those of a file; of a large one, and of one that does not parse, none.
    pub(super) fn of(file: &SourceFile) -> Self {
        if file.bytes.len() > LARGEST {
            return Self::default();
        }
        let documents: Vec<Spanned<Node>> = yaml::read(file).unwrap_or_default();
        Self(documents.into_iter().map(|document| (line(&document), document.value)).collect())
    }

    /// The line of the innermost part of a path, such as `metadata.labels["a.b/c"]` or `items[0].kind`, that is in the
    /// document which begins there, or in the first one. Nothing when not even its first part is.
    pub(super) fn line(&self, begin: Option<u32>, path: &str) -> Option<u32> {
        let (_, document) = self.0.iter().find(|(line, _)| begin.is_none_or(|begin| begin == *line))?;
        let (mut node, mut found) = (document, None);
        for part in parts(path) {
            let next = match (&part, node) {
                (Part::Key(key), Node::Map(fields)) => {
                    fields.iter().find(|(name, ..)| name == key).map(|(_, at, it)| (at, it))
                }
                (Part::Index(index), Node::List(items)) => items.get(*index).map(|(at, it)| (at, it)),
                (Part::Key(_) | Part::Index(_), _) => None,
            };
            let Some((at, inner)) = next else { break };
            (node, found) = (inner, Some(*at));
        }
        found
    }
}

fn line<T>(of: &Spanned<T>) -> u32 {
    u32::try_from(of.referenced.line()).unwrap_or_default()
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

#[derive(Debug)]
enum Node {
    Map(Vec<(String, u32, Node)>),
    List(Vec<(u32, Node)>),
    Scalar,
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Look)
    }
}

struct Look;

impl<'de> Visitor<'de> for Look {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut fields = Vec::new();
        while let Some((key, node)) = map.next_entry::<Spanned<String>, Node>()? {
            let at = line(&key);
            fields.push((key.value, at, node));
        }
        Ok(Node::Map(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element::<Spanned<Node>>()? {
            items.push((line(&item), item.value));
        }
        Ok(Node::List(items))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Node, D::Error> {
        Node::deserialize(inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &str) -> Places {
        Places::of(&SourceFile { path: "a.yaml".to_owned(), bytes: text.as_bytes().to_vec() })
    }

    #[test]
    fn a_field_is_found_by_its_path_or_else_what_it_would_be_in() {
        let text = "# a comment\nmetadata:\n  name: a\n  labels:\n    a.b/c: x\nspec:\n  list:\n  - a: 1\n    b: [true, ~, 1.5,\n      2]\n";
        let places = places(text);
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
            assert_eq!(places.line(None, path), line, "{path}");
        }
    }

    #[test]
    fn each_document_has_its_own_fields() {
        let places = places("kind: a\n---\n---\nkind: b\nx:\n  y: 1\n");
        assert_eq!((places.line(Some(1), "kind"), places.line(Some(4), "kind")), (Some(1), Some(4)));
        assert_eq!((places.line(Some(4), "x.y"), places.line(Some(3), "x.y")), (Some(6), None));
    }
}
