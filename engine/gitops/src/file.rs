//! A file with one or more objects: edits some of them, and keeps the others.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::{Map, Value};
use stoa_yaml_edit::{appended, documents, made_to_say, rewritten};

use crate::manifest;

/// The document of an object in a file.
#[derive(Debug)]
pub(crate) enum Document {
    /// The object, and where it is in the text.
    Object(Range<usize>, Map<String, Value>),
    /// Nothing: the file has other objects.
    Others,
    /// The file has no object at all.
    Spoilt,
}

/// The object in its own file, if it is not found by its identity: others may have changed a single object.
pub(crate) fn own(path: &str, content: &[u8]) -> Document {
    let Ok(text) = std::str::from_utf8(content) else { return Document::Spoilt };
    let parsed = |range: &Range<usize>| manifest::parse(path, text[range.clone()].as_bytes()).ok();
    match documents(text).as_slice() {
        [only] => parsed(only).map_or(Document::Spoilt, |object| Document::Object(only.clone(), object)),
        several if several.iter().any(|range| parsed(range).is_some()) => Document::Others,
        _ => Document::Spoilt,
    }
}

/// The new bytes of a document with the content of `rendered`; `None` without a change.
pub(crate) fn document(path: &str, current: &str, rendered: &[u8]) -> Option<String> {
    let wanted = manifest::parse(path, rendered).ok()?;
    let says = |text: &str| manifest::parse(path, text.as_bytes()).is_ok_and(|object| object == wanted);
    if says(current) {
        return None;
    }
    let whole = String::from_utf8_lossy(rendered);
    // The editor and the clusters may parse a file differently, as YAML 1.1 and 1.2 do.
    let new = made_to_say(current.as_bytes(), &whole).filter(|text| says(text)).unwrap_or_else(|| whole.into_owned());
    if path.ends_with(".json") && serde_json::from_str::<Value>(&new).is_err() {
        // Tools may read a file of this name as JSON alone.
        return serde_json::to_string_pretty(&wanted).ok().map(|text| text + "\n");
    }
    Some(new)
}

/// The changes of one file.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    /// Documents by where they start; none of one that is to go.
    documents: BTreeMap<usize, Option<String>>,
    appended: Vec<String>,
    /// The whole content, or none of a file that is to go.
    whole: Option<Option<Vec<u8>>>,
}

impl Edits {
    pub(crate) fn replace(&mut self, document: &Range<usize>, new: Option<String>) {
        self.documents.insert(document.start, new);
    }

    pub(crate) fn append(&mut self, document: String) {
        self.appended.push(document);
    }

    pub(crate) fn set(&mut self, content: Option<Vec<u8>>) {
        self.whole = Some(content);
    }

    /// The file with the changes; none when nothing is left of it.
    pub(crate) fn made(self, content: &[u8]) -> Option<Vec<u8>> {
        if let Some(whole) = self.whole {
            return whole;
        }
        let text = String::from_utf8_lossy(content);
        let text = rewritten(&text, &self.documents);
        let text = self.appended.iter().fold(text, |text, document| appended(&text, document));
        (!text.is_empty()).then(|| text.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FILE: &str = "# maps of the shop\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  x: \"1\" # one\n---\n\
                        apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: b\ndata: {z: \"2\"}\n";

    fn map(name: &str, data: Value) -> Vec<u8> {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
        manifest::render(object.as_object().unwrap()).unwrap()
    }

    /// The file with one of its documents changed; `None` when it says that already.
    fn changed(number: usize, rendered: &[u8]) -> Option<String> {
        let range = documents(FILE)[number].clone();
        let new = document("maps.yml", &FILE[range.clone()], rendered)?;
        let mut edits = Edits::default();
        edits.replace(&range, Some(new));
        edits.made(FILE.as_bytes()).map(|content| String::from_utf8(content).unwrap())
    }

    #[test]
    fn document_is_edited_in_place() {
        assert_eq!(changed(0, &map("a", json!({"x": "1"}))), None);
        assert_eq!(changed(0, &map("a", json!({"x": "3"}))).unwrap(), FILE.replace("\"1\"", "\"3\""));
        assert_eq!(changed(1, &map("b", json!({"z": "3"}))).unwrap(), FILE.replace("\"2\"", "\"3\""));
        let mut edits = Edits::default();
        edits.append(String::from_utf8(map("c", json!({}))).unwrap());
        let added = String::from_utf8(edits.made(FILE.as_bytes()).unwrap()).unwrap();
        assert!(added.starts_with(FILE) && added.contains("\n---\napiVersion: v1\nkind: ConfigMap\n"), "{added}");
    }

    #[test]
    fn document_means_same_to_kubectl() {
        let current = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: yes}\n";
        for (wanted, is_changed) in [(json!({"x": true}), false), (json!({"x": "yes"}), true)] {
            let rendered = map("a", wanted.clone());
            let new = document("a.yaml", current, &rendered);
            assert_eq!(new.is_some(), is_changed, "{wanted}");
            let text = new.unwrap_or(current.to_owned());
            assert_eq!(manifest::parse("a.yaml", text.as_bytes()).unwrap()["data"], wanted);
        }
    }

    #[test]
    fn object_of_json_file_stays_json() {
        let object = "{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"a\"}, \"data\": {\"x\": \"1\"}}\n";
        for data in [json!({"x": "2"}), json!({"x": "two\nlines", "y": "#"}), json!({})] {
            let text = document("a.json", object, &map("a", data.clone())).unwrap();
            let read: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(read["data"], data, "{text}");
        }
    }

    #[test]
    fn removed_documents_leave_their_neighbours() {
        let ranges = documents(FILE);
        let mut edits = Edits::default();
        edits.replace(&ranges[0], None);
        assert_eq!(edits.made(FILE.as_bytes()).unwrap(), FILE.split_once("---\n").unwrap().1.as_bytes());
        let mut edits = Edits::default();
        ranges.iter().for_each(|range| edits.replace(range, None));
        assert_eq!(edits.made(FILE.as_bytes()), None);
    }
}
