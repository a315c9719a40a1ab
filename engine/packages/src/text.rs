//! The text of one YAML document and the value that it has.

use std::io;

use serde_json::Value;
use stoa_yaml::{Cause, Document, Limits, Outline};

/// The number of maps and lists around a value, at most.
pub(crate) const DEPTH: usize = 100;

/// The limits of one document.
const LIMITS: Limits = Limits { depth: DEPTH, values: 2_000_000, documents: 1, copied: 16 << 20 };

/// The limits of a list of objects.
const LIST_LIMITS: Limits = Limits { depth: DEPTH + 2, values: 20_000_000, documents: 1, copied: 64 << 20 };

/// Why a text is no document of a package.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// The text is not YAML.
    #[error(transparent)]
    Yaml(#[from] stoa_yaml::Error),
    /// A map has a key twice, so that one value would be lost.
    #[error("line {line}: mapping key {key:?} already defined; remove one of them")]
    DuplicateKey {
        /// The line, from 1.
        line: usize,
        /// The key.
        key: String,
    },
}

impl TextError {
    /// The same error in a text that has more lines before.
    pub(crate) fn below(mut self, lines: usize) -> Self {
        match &mut self {
            Self::Yaml(error) => error.line += lines,
            Self::DuplicateKey { line, .. } => *line += lines,
        }
        self
    }
}

/// The value of a text with one document; null for an empty one.
pub(crate) fn read(text: &str) -> Result<Value, TextError> {
    document(text, &LIMITS, false).map(|document| document.value)
}

/// The document of a text with a list of objects, with its lines.
pub(crate) fn read_list(text: &str) -> Result<Document, TextError> {
    document(text, &LIST_LIMITS, true)
}

fn document(text: &str, limits: &Limits, outlined: bool) -> Result<Document, TextError> {
    let documents = stoa_yaml::documents(text, limits, outlined)?;
    let Some(document) = documents.into_iter().next() else {
        let (value, outline, duplicates) = (Value::Null, Outline::default(), Vec::new());
        return Ok(Document { value, line: 0, outline, duplicates, is_inexact: false });
    };
    match document.duplicates.iter().find(|duplicate| duplicate.cause != Cause::Merged) {
        Some(duplicate) => Err(TextError::DuplicateKey { line: duplicate.line, key: duplicate.key.clone() }),
        None => Ok(document),
    }
}

/// The text with the leaves that differ between two values. A text that cannot be edited is written anew.
pub(crate) fn changed(text: &str, before: &Value, after: &Value) -> String {
    stoa_yaml_edit::changed(text, |text| read(text).ok(), before, after).unwrap_or_else(|| written(after))
}

/// A text for a value.
pub(crate) fn written(value: &Value) -> String {
    let yaml = stoa_yaml_edit::written(value).filter(|text| read(text).as_ref() == Ok(value));
    // Every JSON text is YAML.
    yaml.unwrap_or_else(|| pretty(value))
}

/// A JSON text for a value.
pub(crate) fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// The size of a value as JSON, in bytes.
pub(crate) fn size(value: &Value) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.saturating_add(bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Neither a value nor the count can fail.
    serde_json::to_writer(&mut count, value).map_or(usize::MAX, |()| count.0)
}

/// An error with its causes on one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |message, cause| format!("{message}: {cause}"))
}
