//! Reads YAML as kubectl does: YAML 1.1 booleans and octal numbers, several documents in a file.
//!
//! A file has limits, so that none takes much more memory than it has bytes: anchors could make a few lines as large as one
//! likes, and many small values take more than their text.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::{DeserializeError, Spanned, budget::BudgetBreach};
use stoa_engine::bounds::DEEPEST;
use stoa_proto::Problem;

use crate::failure::{problem, reason};
use crate::source::SourceFile;

/// The most documents of a file.
const MOST_DOCUMENTS: usize = 20_000;
/// The most values of a file: keys, scalars, maps and lists. 10,000 objects may have 300 each, as large Deployments
/// have; a map takes some 600 bytes, however short its text.
const MOST_NODES: usize = 3_000_000;

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
            max_depth: DEEPEST,
            max_documents: MOST_DOCUMENTS,
            max_nodes: MOST_NODES,
            max_events: 4 * MOST_NODES,
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

/// The documents of a file that are not empty, read as some type; nothing when they are no such thing.
pub(super) fn read<T: DeserializeOwned>(file: &SourceFile) -> Option<Vec<T>> {
    let text = std::str::from_utf8(&file.bytes).ok()?;
    let documents: Vec<Option<T>> = serde_saphyr::from_multiple_with_options(text, options()).ok()?;
    Some(documents.into_iter().flatten().collect())
}

/// The first of them.
pub(super) fn first<T: DeserializeOwned>(file: &SourceFile) -> Option<T> {
    read(file)?.into_iter().next()
}

fn explain(file: &SourceFile, err: &DeserializeError) -> Box<Problem> {
    let err = err.without_snippet();
    let line = err.location().and_then(|location| u32::try_from(location.line()).ok()).unwrap_or_default();
    let message = err.to_string();
    // The line stands in its own field; parsers that say it again do so at the end.
    let message = message.split(" at line ").next().unwrap_or(&message);
    if let DeserializeError::DuplicateMappingKey { key, .. } = innermost(err) {
        let key = key.as_ref().map_or_else(|| "a key".to_owned(), |key| format!("key {key:?}"));
        return malformed(file, line, &format!("{key} is there twice in one map"));
    }
    match limit(err) {
        Some(limit) => Box::new(Problem { reason: reason::TOO_LARGE.to_owned(), ..*malformed(file, line, &limit) }),
        None => malformed(file, line, message),
    }
}

/// What is wrong, wherever it was noticed.
fn innermost(mut err: &DeserializeError) -> &DeserializeError {
    while let DeserializeError::AliasError { error, .. } | DeserializeError::WithSnippet { error, .. } = err {
        err = error;
    }
    err
}

/// The limit that a file is over, if it is no more than that.
fn limit(err: &DeserializeError) -> Option<String> {
    let of_aliases = || Some("its anchors and aliases stand for more than a file may hold".to_owned());
    let breach = match innermost(err) {
        DeserializeError::Budget { breach, .. } => breach,
        DeserializeError::AliasReplayCounterOverflow { .. }
        | DeserializeError::AliasReplayLimitExceeded { .. }
        | DeserializeError::AliasReplayStackDepthExceeded { .. } => return of_aliases(),
        _ => return None,
    };
    match breach {
        BudgetBreach::Nodes { .. } | BudgetBreach::Events { .. } => {
            Some(format!("has more than {MOST_NODES} values; put its objects in several files"))
        }
        BudgetBreach::Documents { .. } => {
            Some(format!("has more than {MOST_DOCUMENTS} documents; put them in several files"))
        }
        BudgetBreach::Depth { .. } => Some(format!("has more than {DEEPEST} levels of maps and lists")),
        BudgetBreach::SequenceUnbalanced => None,
        BudgetBreach::Aliases { .. }
        | BudgetBreach::Anchors { .. }
        | BudgetBreach::AliasAnchorRatio { .. }
        | BudgetBreach::RecordedAnchorEvents { .. }
        | BudgetBreach::MergeKeys { .. } => of_aliases(),
        _ => Some("is larger than a file may be".to_owned()),
    }
}

fn malformed(file: &SourceFile, line: u32, message: &str) -> Box<Problem> {
    Box::new(Problem { file: file.path.clone(), line, ..problem(reason::MALFORMED_YAML, message) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told of a text that is over a limit.
    #[track_caller]
    fn told(text: &str, budget: Option<serde_saphyr::Budget>) -> Problem {
        let mut options = serde_saphyr::Options::default();
        options.budget = budget;
        let err = serde_saphyr::from_multiple_with_options::<Value>(text, options).unwrap_err();
        *explain(&SourceFile { path: "s/a.yaml".to_owned(), bytes: text.as_bytes().to_vec() }, &err)
    }

    #[test]
    fn a_file_over_a_limit_is_well_formed_all_the_same() {
        let values = format!("has more than {MOST_NODES} values; put its objects in several files");
        let documents = format!("has more than {MOST_DOCUMENTS} documents; put them in several files");
        let levels = format!("has more than {DEEPEST} levels of maps and lists");
        for (budget, limit) in [
            (serde_saphyr::budget! { max_nodes: 3 }, &values),
            (serde_saphyr::budget! { max_events: 5 }, &values),
            (serde_saphyr::budget! { max_documents: 1 }, &documents),
            (serde_saphyr::budget! { max_depth: 1 }, &levels),
        ] {
            let problem = told("a: [1, 2, {b: c}]\n---\nd: 1\n", budget);
            assert_eq!((problem.reason.as_str(), problem.message.as_str()), (reason::TOO_LARGE, limit.as_str()));
        }
        let problem = told("a: [1\n", Some(serde_saphyr::Budget::default()));
        assert_eq!((problem.reason.as_str(), problem.file.as_str()), (reason::MALFORMED_YAML, "s/a.yaml"));
    }
}
