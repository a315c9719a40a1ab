//! Reads the files of a source as kubectl reads them.
//!
//! Limits keep a file from using much more memory than it has bytes: anchors can expand a few lines to any size, and many small values
//! use more memory than their text. `stoa-yaml` reads within these limits.

use stoa_engine::bounds::DEEPEST;
use stoa_proto::Problem;
use stoa_yaml::{Cause, Document, Duplicate, Error, ErrorKind, Limits};

use crate::failure::{problem, reason};
use crate::source::SourceFile;

const MOST_DOCUMENTS: usize = 20_000;
/// The most values of a file: keys, scalars, maps and lists. 10,000 objects may have 300 each, as large Deployments
/// have; a map takes some 600 bytes, however short its text.
const MOST_NODES: usize = 3_000_000;

const LIMITS: Limits = Limits { depth: DEEPEST, values: MOST_NODES, documents: MOST_DOCUMENTS, copied: 8 << 20 };
/// The limits of texts that the runner itself reads, not a worker with a limit of memory.
const OF_RUNNER: Limits = Limits { values: 100_000, documents: 100, copied: 1 << 20, ..LIMITS };

/// The documents of a file that are not empty.
pub(super) fn documents(file: &SourceFile) -> Result<Vec<Document>, Box<Problem>> {
    read(file, false)
}

/// The same documents with the lines of all of their fields. Needs several times as much memory.
pub(super) fn outlined(file: &SourceFile) -> Result<Vec<Document>, Box<Problem>> {
    read(file, true)
}

/// The documents of a file with the text of each number that is no float.
pub(super) fn exact(file: &SourceFile) -> Result<Vec<Document>, Box<Problem>> {
    let text = std::str::from_utf8(&file.bytes).map_err(|_| malformed(file, 0, "is not UTF-8"))?;
    let documents = stoa_yaml::exact_documents(text, &LIMITS).map_err(|err| explain(file, &err))?;
    Ok(documents.into_iter().filter(|document| !document.value.is_null()).collect())
}

/// The documents of a file. Those with numbers that are no floats come with the texts of these, for resources of providers.
pub(super) fn with_exact(file: &SourceFile) -> Result<Vec<(Document, Option<serde_json::Value>)>, Box<Problem>> {
    let documents = documents(file)?;
    let is_inexact = documents.iter().any(|document| document.is_inexact);
    let mut exact = if is_inexact { exact(file)? } else { Vec::new() }.into_iter();
    Ok(documents.into_iter().map(|document| (document, exact.next().map(|exact| exact.value))).collect())
}

/// The values of a text, and nothing for a text that is not YAML, or has more than 100,000 values.
pub(crate) fn values(text: &str) -> Vec<serde_json::Value> {
    let documents = stoa_yaml::documents(text, &OF_RUNNER, false).unwrap_or_default();
    documents.into_iter().map(|document| document.value).collect()
}

/// A line as problems have it.
pub(super) fn narrow(line: usize) -> u32 {
    u32::try_from(line).unwrap_or_default()
}

fn read(file: &SourceFile, outlined: bool) -> Result<Vec<Document>, Box<Problem>> {
    let text = std::str::from_utf8(&file.bytes).map_err(|_| malformed(file, 0, "is not UTF-8"))?;
    let documents = stoa_yaml::documents(text, &LIMITS, outlined).map_err(|err| explain(file, &err))?;
    let mut duplicates = documents.iter().flat_map(|document| &document.duplicates);
    if let Some(Duplicate { key, line, cause, .. }) = duplicates.find(|it| it.cause != Cause::Merged) {
        let why = match cause {
            Cause::SameInJson => ", with and without quotes",
            Cause::Written | Cause::Merged => "",
        };
        return Err(malformed(file, *line, &format!("key {key:?} is a duplicate in a map{why}")));
    }
    Ok(documents.into_iter().filter(|document| !document.value.is_null()).collect())
}

fn explain(file: &SourceFile, Error { line, kind }: &Error) -> Box<Problem> {
    let too_large =
        |limit: &str| Box::new(Problem { reason: reason::TOO_LARGE.to_owned(), ..*malformed(file, *line, limit) });
    match kind {
        ErrorKind::Syntax(message) => malformed(file, *line, message),
        ErrorKind::Mistagged { tag, is, .. } => {
            malformed(file, *line, &format!("a value of type {is} cannot have the tag !!{tag}"))
        }
        ErrorKind::NotJson(number) => {
            malformed(file, *line, &format!("{number} is not a JSON number; put it in quotes"))
        }
        ErrorKind::TooDeep(_) => too_large(&format!("has more than {DEEPEST} levels of maps and lists")),
        ErrorKind::TooManyValues(_) => {
            too_large(&format!("has more than {MOST_NODES} values; put its objects in several files"))
        }
        ErrorKind::TooManyDocuments(_) => {
            too_large(&format!("has more than {MOST_DOCUMENTS} documents; put them in several files"))
        }
        ErrorKind::TooManyCopies => too_large("its anchors and aliases expand to more than a file may hold"),
    }
}

fn malformed(file: &SourceFile, line: usize, message: &str) -> Box<Problem> {
    Box::new(Problem { file: file.path.clone(), line: narrow(line), ..problem(reason::MALFORMED_YAML, message) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> SourceFile {
        SourceFile { path: "s/a.yaml".to_owned(), bytes: text.as_bytes().to_vec() }
    }

    #[test]
    fn file_over_a_limit_is_well_formed() {
        let text = "a: [1, 2, {b: c}]\n---\nd: 1\n";
        let values = format!("has more than {MOST_NODES} values; put its objects in several files");
        let documents = format!("has more than {MOST_DOCUMENTS} documents; put them in several files");
        let levels = format!("has more than {DEEPEST} levels of maps and lists");
        for (limits, limit) in [
            (Limits { values: 3, ..LIMITS }, &values),
            (Limits { documents: 1, ..LIMITS }, &documents),
            (Limits { depth: 1, ..LIMITS }, &levels),
        ] {
            let problem = explain(&file(text), &stoa_yaml::documents(text, &limits, false).unwrap_err());
            assert_eq!((problem.reason.as_str(), problem.message.as_str()), (reason::TOO_LARGE, limit.as_str()));
        }
    }

    #[test]
    fn text_with_too_many_values_has_none() {
        assert_eq!(values("a: 1\n---\nb\n").len(), 2);
        assert!(values(&format!("[{}]", "a,".repeat(OF_RUNNER.values))).is_empty());
    }

    #[test]
    fn errors_quote_no_value() {
        for (text, line, message) in [
            ("a: 1\nb: [\n", 2, "did not find expected ',' or ']'"),
            ("a: 1\nb: !!int hunter2\n", 2, "a value of type str cannot have the tag !!int"),
            ("a: 1\nb: .nan\n", 2, "NaN is not a JSON number; put it in quotes"),
            ("a: 1\nb: 2\na: hunter2\n", 3, "key \"a\" is a duplicate in a map"),
            ("1: a\n'1': b\n", 2, "key \"1\" is a duplicate in a map, with and without quotes"),
        ] {
            let problem = documents(&file(text)).unwrap_err();
            assert_eq!((problem.file.as_str(), problem.line, problem.message.as_str()), ("s/a.yaml", line, message));
            assert_eq!(problem.reason, reason::MALFORMED_YAML);
        }
    }

    #[test]
    fn merged_key_beside_an_explicit_one_is_valid() {
        let read = documents(&file("base: &b {a: 1}\nc: {a: 2, <<: *b}\nd: {<<: *b, a: 2}\n")).unwrap();
        assert_eq!((&read[0].value["c"]["a"], &read[0].value["d"]["a"]), (&1.into(), &2.into()));
    }
}
