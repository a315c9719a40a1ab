//! The objects of one file: which of its documents is an object, and what becomes of the file when that changes.

use std::ops::Range;

use serde_json::{Map, Value};
use stoa_engine::ObjectRef;
use stoa_yaml_edit::{appended, documents, made_to_say, without};

use crate::manifest;

/// What a file has of an object.
#[derive(Debug)]
pub(crate) enum Document {
    /// The object, and where it is in the text.
    Object(Range<usize>, Map<String, Value>),
    /// Nothing: the file has other objects.
    Others,
    /// Nothing: the file has no object at all.
    Spoilt,
}

/// Finds an object in a file. `is_own`: the file is the object's own by its name, so that whatever single object is in it is
/// what became of that object.
pub(crate) fn find(path: &str, content: &[u8], object: Option<&ObjectRef>, is_own: bool) -> Document {
    let Ok(text) = std::str::from_utf8(content) else { return Document::Spoilt };
    let ranges = documents(text);
    let parsed = |range: &Range<usize>| manifest::parse(path, text[range.clone()].as_bytes()).ok();
    if let [only] = ranges.as_slice()
        && is_own
    {
        return parsed(only).map_or(Document::Spoilt, |found| Document::Object(only.clone(), found));
    }
    let is_it = |found: &Map<String, Value>| {
        ObjectRef::of(found).zip(object).is_some_and(|(found, object)| is_same(&found, object))
    };
    let mut is_spoilt = true;
    for range in ranges {
        match parsed(&range) {
            Some(found) if is_it(&found) => return Document::Object(range, found),
            Some(_) => is_spoilt = false,
            None => {}
        }
    }
    if is_spoilt { Document::Spoilt } else { Document::Others }
}

/// What becomes of a file that is to have an object, rendered as `rendered`; `None` when it says that already.
pub(crate) fn with(path: &str, content: &[u8], found: &Document, rendered: &[u8]) -> Option<Vec<u8>> {
    let (text, after) = (String::from_utf8_lossy(content), String::from_utf8_lossy(rendered));
    let new = match found {
        Document::Object(range, _) => {
            let document = &text[range.clone()];
            let made = made_to_say(document.as_bytes(), &after)?;
            let newline = if made.ends_with('\n') || range.end == text.len() { "" } else { "\n" };
            format!("{}{made}{newline}{}", &text[..range.start], &text[range.end..])
        }
        Document::Others => appended(&text, &after),
        Document::Spoilt => after.clone().into_owned(),
    };
    if path.ends_with(".json") && serde_json::from_str::<Value>(&new).is_err() {
        // What reads a file of this name may read JSON alone.
        let object = manifest::parse(path, rendered).ok()?;
        return serde_json::to_vec_pretty(&object).ok();
    }
    Some(new.into_bytes())
}

/// What becomes of a file that is not to have an object any more; `None` when nothing is left of it.
pub(crate) fn less(content: &[u8], found: &Document) -> Option<Vec<u8>> {
    let Document::Object(range, _) = found else { return None };
    let left = without(&String::from_utf8_lossy(content), range);
    (!documents(&left).is_empty()).then(|| left.into_bytes())
}

fn is_same(one: &ObjectRef, other: &ObjectRef) -> bool {
    (&one.group, &one.kind, &one.namespace, &one.name) == (&other.group, &other.kind, &other.namespace, &other.name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FILE: &str = "# maps of the shop\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  x: \"1\" # one\n---\n\
                        apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: b\ndata: {y: \"2\"}\n";

    fn map(name: &str, data: Value) -> (ObjectRef, Vec<u8>) {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
        let object = object.as_object().unwrap();
        (ObjectRef::of(object).unwrap(), manifest::render(object).unwrap())
    }

    fn changed(path: &str, content: &str, name: &str, data: Value) -> Option<String> {
        let (object, rendered) = map(name, data);
        let found = find(path, content.as_bytes(), Some(&object), false);
        with(path, content.as_bytes(), &found, &rendered).map(|new| String::from_utf8(new).unwrap())
    }

    #[test]
    fn object_is_edited_where_it_is() {
        let changed = |name: &str, data: Value| changed("maps.yml", FILE, name, data);
        assert_eq!(changed("a", json!({"x": "1"})), None);
        assert_eq!(changed("a", json!({"x": "3"})).unwrap(), FILE.replace("\"1\"", "\"3\""));
        assert_eq!(changed("b", json!({"y": "3"})).unwrap(), FILE.replace("\"2\"", "\"3\""));
        let added = changed("c", json!({})).unwrap();
        assert!(added.starts_with(FILE) && added.contains("\n---\napiVersion: v1\nkind: ConfigMap\n"), "{added}");
    }

    #[test]
    fn object_of_a_json_file_stays_json() {
        let file = "{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"a\"}, \"data\": {\"x\": \"1\"}}\n";
        for data in [json!({"x": "2"}), json!({"x": "two\nlines", "y": "#"}), json!({})] {
            let text = changed("a.json", file, "a", data.clone()).unwrap();
            let read: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(read["data"], data, "{text}");
        }
    }

    #[test]
    fn removed_object_leaves_its_neighbours() {
        let (object, _) = map("a", json!({}));
        let found = find("maps.yml", FILE.as_bytes(), Some(&object), false);
        let left = String::from_utf8(less(FILE.as_bytes(), &found).unwrap()).unwrap();
        assert_eq!(left, FILE.split_once("---\n").unwrap().1);
        let (object, _) = map("b", json!({}));
        let found = find("maps.yml", left.as_bytes(), Some(&object), false);
        assert_eq!(less(left.as_bytes(), &found), None);
    }
}
