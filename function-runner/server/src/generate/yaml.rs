//! Reads YAML as kubectl does: YAML 1.1 booleans and octal numbers, several documents in a file.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::{DeserializeError, Spanned};
use stoa_proto::Problem;

use crate::failure::{problem, reason};
use crate::source::SourceFile;

/// One document of a file.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) value: Value,
    /// Where it begins, from 1.
    pub(super) line: u32,
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: 64,
            max_documents: 10_000,
            max_nodes: 1_000_000,
            max_events: 4_000_000,
            max_aliases: 10_000,
            max_anchors: 10_000,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 200_000,
            max_replay_stack_depth: 16,
        },
        // `defaultMode: 0644` means 420 to Kubernetes.
        legacy_octal_numbers: true,
        // A snippet would repeat a line of the file, which may be a Secret's.
        with_snippet: false,
    }
}

/// The documents of a file that are not empty.
pub(super) fn documents(file: &SourceFile) -> Result<Vec<Document>, Box<Problem>> {
    let text = std::str::from_utf8(&file.bytes).map_err(|_| malformed(file, 0, "is not UTF-8"))?;
    let documents: Vec<Spanned<Value>> =
        serde_saphyr::from_multiple_with_options(text, options()).map_err(|err| explain(file, &err))?;
    let documents = documents.into_iter().map(|document| {
        let line = u32::try_from(document.referenced.line()).unwrap_or_default();
        Document { value: document.value, line }
    });
    Ok(documents.filter(|document| !document.value.is_null()).collect())
}

/// The first document of a file that is not empty, read as some type; nothing when it is no such thing.
pub(super) fn first<T: DeserializeOwned>(file: &SourceFile) -> Option<T> {
    let text = std::str::from_utf8(&file.bytes).ok()?;
    let documents: Vec<Option<T>> = serde_saphyr::from_multiple_with_options(text, options()).ok()?;
    documents.into_iter().flatten().next()
}

fn explain(file: &SourceFile, err: &DeserializeError) -> Box<Problem> {
    let err = err.without_snippet();
    let line = err.location().and_then(|location| u32::try_from(location.line()).ok()).unwrap_or_default();
    let message = err.to_string();
    // The line stands in its own field; parsers that say it again do so at the end.
    let message = message.split(" at line ").next().unwrap_or(&message);
    malformed(file, line, message)
}

fn malformed(file: &SourceFile, line: u32, message: &str) -> Box<Problem> {
    Box::new(Problem { file: file.path.clone(), line, ..problem(reason::MALFORMED_YAML, message) })
}
