//! Reads YAML as `sigs.k8s.io/yaml` does, which kubectl and API servers use: scalars of YAML 1.1 as values and as keys,
//! anchors, merge keys in the order of the text.
//!
//! Start at [`documents`], or at [`first`] for the first document of a text. Both read within [`Limits`], so that no small
//! text becomes a large value.
//!
//! The reader is built on the event parser below `serde-saphyr`: serde's data model hides how a key is written, which key
//! comes twice, and where a merge key is. Follows `go.yaml.in/yaml/v2` 2.4.3 and `sigs.k8s.io/yaml` 1.6.0.

mod compose;
mod json;
pub mod lines;
mod outline;
mod scalar;

use serde_json::Value;

pub use outline::Outline;

/// How much a text may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most levels of maps and lists.
    pub depth: usize,
    /// The most values of all documents: keys, scalars, maps and lists.
    pub values: usize,
    /// The most documents.
    pub documents: usize,
    /// How much anchors and aliases may copy: bytes of text, plus 32 for each value.
    pub copied: usize,
}

/// One document of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The value; null for an empty document.
    pub value: Value,
    /// The line of its root, from 1.
    pub line: usize,
    /// The lines of its keys and items; empty unless they were asked for.
    pub outline: Outline,
    /// The keys that a map has more than once. The last value of a key stands.
    pub duplicates: Vec<Duplicate>,
    /// Whether a number of it has more digits than JSON's float of it.
    pub is_inexact: bool,
}

/// The value of a number that has more digits than a float.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// The nearest float, as Go reads it.
    #[default]
    Nearest,
    /// Its text.
    Text,
    /// The nearest float, and a float where Go's decoder has one: `1.0` is no integer.
    Typed,
}

/// A key that a map has already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// The key as it is in JSON.
    pub key: String,
    /// Whether it is written as text: `'1'`, and not `1`.
    pub is_text: bool,
    /// The line of the key.
    pub line: usize,
    /// The line of its value.
    pub value_line: usize,
    /// How the map came to have it already.
    pub cause: Cause,
}

/// Why a map has a key already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The key is written twice.
    Written,
    /// A merge key brought it, before or now. YAML allows that; the later value stands.
    Merged,
    /// Another key is the same in JSON, such as `1` and `'1'`.
    SameInJson,
}

/// Why a text is no YAML that Kubernetes reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {kind}")]
pub struct Error {
    /// The line, from 1; 0 when none is known.
    pub line: usize,
    /// What is wrong.
    pub kind: ErrorKind,
}

/// What is wrong with a text. [`ErrorKind::Mistagged`] alone repeats a part of the text, which may be a Secret's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ErrorKind {
    /// The text is not YAML. In the words of Go's library, without its `yaml: line 3: `.
    #[error("{0}")]
    Syntax(String),
    /// A tag such as `!!int` is on a scalar that is something else.
    #[error("cannot decode !!{is} `{text}` as a !!{tag}")]
    Mistagged {
        /// The tag, without its `!!`.
        tag: String,
        /// The tag that the scalar would have by itself.
        is: &'static str,
        /// The scalar.
        text: String,
    },
    /// JSON has no such number: `NaN`, `+Inf` or `-Inf`.
    #[error("json: unsupported value: {0}")]
    NotJson(&'static str),
    /// More levels than [`Limits::depth`].
    #[error("exceeded max depth of {0}")]
    TooDeep(usize),
    /// More values than [`Limits::values`].
    #[error("document has more than {0} values")]
    TooManyValues(usize),
    /// More documents than [`Limits::documents`].
    #[error("more than {0} documents")]
    TooManyDocuments(usize),
    /// Anchors and aliases copy more than [`Limits::copied`].
    #[error("document contains excessive aliasing")]
    TooManyCopies,
}

/// Reads all documents of a text, with the lines of what is in them if `outlined`. Empty documents are among them.
///
/// A text that begins with `{` and is no YAML may be JSON objects one after another, as kubectl reads it. JSON allows
/// characters that YAML wants escaped, such as U+007F. Such documents have no outline.
///
/// # Errors
///
/// [`Error`] for what is no YAML, and for more than the limits allow.
pub fn documents(text: &str, limits: &Limits, outlined: bool) -> Result<Vec<Document>, Error> {
    let read = of_yaml(text, limits, outlined);
    let is_no_yaml = matches!(&read, Err(Error { kind: ErrorKind::Syntax(_), .. }));
    match is_no_yaml.then(|| json::documents(text)).flatten() {
        Some(documents) => json::check(documents, limits),
        None => read,
    }
}

/// The same documents with the text of each decimal number that is [inexact](Document::is_inexact), instead of the nearest
/// float.
///
/// # Errors
///
/// As [`documents`].
pub fn exact_documents(text: &str, limits: &Limits) -> Result<Vec<Document>, Error> {
    all(compose::Composer::new(text, limits, false).with_numbers(Numbers::Text), limits)
}

/// The same as [`first`], with floats such as `1.0` as floats, as Go's decoder has them before they become JSON.
///
/// # Errors
///
/// As [`documents`].
pub fn first_typed(text: &str, limits: &Limits) -> Result<Option<Document>, Error> {
    compose::Composer::new(text, limits, false).with_numbers(Numbers::Typed).document()
}

fn of_yaml(text: &str, limits: &Limits, outlined: bool) -> Result<Vec<Document>, Error> {
    all(compose::Composer::new(text, limits, outlined), limits)
}

fn all(mut composer: compose::Composer<'_>, limits: &Limits) -> Result<Vec<Document>, Error> {
    let mut documents = Vec::new();
    while let Some(document) = composer.document()? {
        if documents.len() == limits.documents {
            return Err(Error { line: document.line, kind: ErrorKind::TooManyDocuments(limits.documents) });
        }
        documents.push(document);
    }
    Ok(documents)
}

/// Reads the first document of a text and nothing behind it; `None` for a text without documents.
///
/// # Errors
///
/// As [`documents`].
pub fn first(text: &str, limits: &Limits) -> Result<Option<Document>, Error> {
    compose::Composer::new(text, limits, false).document()
}

#[cfg(test)]
mod tests;
