//! Messages about a file, with the line of the field that they are about.
//!
//! Start at [`complaints`] for messages about fields, and at [`explain`] for an answer of the server.

use stoa_machinery::ApiError;
use stoa_yaml::lines;

/// The problem of a file, on one line and with the line of the file where that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint(pub String);

/// How many fields of a file are named that something is wrong with; the others are counted.
const NAMED: usize = 10;

/// The server's answer to a file of this kind, as a complaint about the file.
pub fn explain(kind: &str, error: &ApiError, content: &[u8]) -> Complaint {
    let causes = error.0.details.iter().flat_map(|d| d.causes.iter().flatten());
    let fields: Vec<(&str, &str)> = causes
        .filter_map(|cause| Some((cause.field.as_deref()?, cause.message.as_deref().unwrap_or_default())))
        .collect();
    if !fields.is_empty() {
        return complaints(content, &fields);
    }
    let message = without_kind(kind, error.message());
    match named_field(message) {
        Some(field) => complaint(content, field, message),
        None => Complaint(one_line(message)),
    }
}

/// A message without its beginning about the kind that a client sent, which the path of a file says already.
fn without_kind<'a>(kind: &str, message: &'a str) -> &'a str {
    let rest = || {
        let (_version, rest) = message.strip_prefix(kind)?.strip_prefix(" in version \"")?.split_once('"')?;
        rest.strip_prefix(" cannot be handled as a ")?.strip_prefix(kind)?.strip_prefix(": ")
    };
    rest().unwrap_or(message)
}

/// The first field that a message about a file names, in the words of strict decoding.
fn named_field(message: &str) -> Option<&str> {
    let between = |start: &str, end: &str| {
        let rest = &message[message.find(start)? + start.len()..];
        rest.find(end).map(|end| &rest[..end])
    };
    between("unknown field \"", "\"")
        .or_else(|| between("duplicate field \"", "\""))
        .or_else(|| between("Go struct field ", " of type")?.split_once('.').map(|(_, field)| field))
}

/// Messages about fields, as one.
pub fn complaints(content: &[u8], fields: &[(&str, &str)]) -> Complaint {
    let named = fields.iter().take(NAMED);
    let mut messages: Vec<String> =
        named.map(|(field, message)| complaint(content, field, &format!("{field}: {message}")).0).collect();
    if let Some(more) = fields.len().checked_sub(NAMED).filter(|more| *more > 0) {
        messages.push(format!("and {more} more"));
    }
    Complaint(messages.join("; "))
}

/// A message that begins with the line of the field, where there is one.
pub(crate) fn complaint(content: &[u8], field: &str, message: &str) -> Complaint {
    let line = std::str::from_utf8(content).ok().and_then(|text| lines::line_of(text, field));
    let message = one_line(message);
    Complaint(line.map_or_else(|| message.clone(), |line| format!("line {line}: {message}")))
}

/// Conditions and Events are read in lines.
pub(crate) fn one_line(text: &str) -> String {
    let text = text.strip_prefix("yaml: ").unwrap_or(text);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
