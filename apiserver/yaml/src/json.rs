//! JSON objects one after another, where the text is no YAML.

use serde_json::{Deserializer, Value};

use crate::compose::height;
use crate::outline::Outline;
use crate::{Document, Error, ErrorKind, Limits};

/// The values of a text that begins with `{`; `None` if it is not JSON.
pub(crate) fn documents(text: &str) -> Option<Vec<Document>> {
    if !text.trim_start().starts_with('{') {
        return None;
    }
    let mut documents = Vec::new();
    let mut values = Deserializer::from_str(text).into_iter::<Value>();
    let (mut begin, mut line) = (0, 1);
    while let Some(value) = values.next() {
        let gap = text[begin..].len() - text[begin..].trim_start().len();
        line += lines(&text[begin..begin + gap]);
        let (value, duplicates) = (value.ok()?, Vec::new());
        documents.push(Document { value, line, outline: Outline::Leaf, duplicates, is_inexact: false });
        line += lines(&text[begin + gap..values.byte_offset()]);
        begin = values.byte_offset();
    }
    Some(documents)
}

fn lines(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

/// The documents, if they are within the limits.
pub(crate) fn check(documents: Vec<Document>, limits: &Limits) -> Result<Vec<Document>, Error> {
    let mut values: usize = 0;
    for (position, document) in documents.iter().enumerate() {
        values = values.saturating_add(size(&document.value));
        let kind = if position >= limits.documents {
            ErrorKind::TooManyDocuments(limits.documents)
        } else if height(&document.value) > limits.depth {
            ErrorKind::TooDeep(limits.depth)
        } else if values > limits.values {
            ErrorKind::TooManyValues(limits.values)
        } else {
            continue;
        };
        return Err(Error { line: document.line, kind });
    }
    Ok(documents)
}

/// How many keys, scalars, maps and lists a value has.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(map) => map.values().map(|value| 1 + size(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}
