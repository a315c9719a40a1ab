//! The errors of calls, and their gRPC statuses.
//!
//! Start at [`Failure`]. The proto documents the codes. The details of a status contain one encoded [`Problem`], the first of all.

use std::fmt;

use prost::Message as _;
use stoa_proto::Problem;
use stoa_runtime::RuntimeError;
use tonic::{Code, Status};

use crate::convert;

/// Reasons of problems outside the engine, in CamelCase; the engine has its own.
pub(crate) mod reason {
    // Of manifests, of clusters and of files it is the same fault as of a Spec.
    pub(crate) use stoa_engine::problem::reason::{TOO_LARGE, UNKNOWN_KIND};

    pub(crate) const INVALID_REQUEST: &str = "InvalidRequest";
    pub(crate) const AMBIGUOUS_GENERATOR: &str = "AmbiguousGenerator";
    pub(crate) const NOT_AVAILABLE: &str = "NotAvailable";
    pub(crate) const SOURCE_NOT_FOUND: &str = "SourceNotFound";
    pub(crate) const SOURCE_UNAVAILABLE: &str = "SourceUnavailable";
    pub(crate) const SOURCE_UNAUTHORIZED: &str = "SourceUnauthorized";
    pub(crate) const VERSION_NOT_FOUND: &str = "VersionNotFound";
    pub(crate) const PATH_NOT_FOUND: &str = "PathNotFound";
    pub(crate) const TOOK_TOO_LONG: &str = "TookTooLong";
    pub(crate) const INVALID_KCL: &str = "InvalidKCL";
    pub(crate) const MALFORMED_YAML: &str = "MalformedYAML";
    pub(crate) const INVALID_MANIFEST: &str = "InvalidManifest";
    pub(crate) const UNKNOWN_VALUE: &str = "UnknownValue";
    pub(crate) const NOT_RENDERED: &str = "NotRendered";
    pub(crate) const MISSING_FIELD: &str = "MissingField";
    pub(crate) const DUPLICATE_RESOURCE: &str = "DuplicateResource";
    pub(crate) const NO_RUNTIME: &str = "NoRuntime";
    pub(crate) const BUSY: &str = "Busy";
    pub(crate) const DRAINING: &str = "Draining";
    pub(crate) const UNAVAILABLE: &str = "Unavailable";
    pub(crate) const REJECTED: &str = "Rejected";
    pub(crate) const INVALID_KEYS: &str = "InvalidKeys";
    pub(crate) const SIGNATURE_MISSING: &str = "SignatureMissing";
    pub(crate) const SIGNATURE_UNTRUSTED: &str = "SignatureUntrusted";
    pub(crate) const SIGNATURE_INVALID: &str = "SignatureInvalid";
    pub(crate) const NOT_DECRYPTED: &str = "NotDecrypted";
    pub(crate) const SECRET_STORE: &str = "SecretStore";
    pub(crate) const UNKNOWN_FUNCTION: &str = "UnknownFunction";
    pub(crate) const FUNCTION_FAILED: &str = "FunctionFailed";
    pub(crate) const INTERNAL: &str = "InternalError";
}

/// The most problems that one message names, and about how long it may be, in bytes; it counts the rest. The message is a header of
/// HTTP/2, which encodes each other byte than a letter in three, and the first problem is another header. Headers that are too
/// long break the call off, and the caller never learns why it failed.
const NAMED: usize = 20;
const LONGEST: usize = 3072;
/// The length of each text of the first problem, except its message, in bytes.
const LONGEST_PART: usize = 512;

/// A failed call, with all of its problems.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    problems: Vec<Problem>,
}

impl Failure {
    pub(crate) fn new(code: Code, reason: &str, message: impl Into<String>) -> Self {
        Self::of(code, vec![problem(reason, message)])
    }

    pub(crate) fn of(code: Code, problems: Vec<Problem>) -> Self {
        Self { code, problems }
    }

    /// The input is wrong.
    pub(crate) fn invalid(problems: Vec<Problem>) -> Self {
        Self::of(Code::InvalidArgument, problems)
    }

    /// The caller broke the contract of the proto.
    pub(crate) fn request(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, reason::INVALID_REQUEST, message)
    }

    /// An internal error. Only the log shows its cause.
    pub(crate) fn internal(cause: &dyn fmt::Display) -> Self {
        tracing::error!(error = %cause, "internal error");
        Self::new(Code::Internal, reason::INTERNAL, "internal error")
    }

    pub(crate) fn is_internal(&self) -> bool {
        self.code == Code::Internal
    }

    /// Whether a version, file or source does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        self.code == Code::NotFound
    }

    /// An error of a runtime about a workspace or a cluster as a whole.
    pub(crate) fn runtime(err: &RuntimeError) -> Self {
        let code = if err.is_retryable() { Code::Unavailable } else { Code::InvalidArgument };
        Self::of(code, vec![convert::problem(err.problem())])
    }

    pub(crate) fn into_parts(self) -> (Code, Vec<Problem>) {
        (self.code, self.problems)
    }

    pub(crate) fn code(&self) -> Code {
        self.code
    }

    #[cfg(test)]
    pub(crate) fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        let mut message = String::new();
        let mut named = 0;
        for told in failure.problems.iter().take(NAMED).map(sentence) {
            if named > 0 && message.len() + told.len() > LONGEST {
                break;
            }
            message.push_str(if named > 0 { "; " } else { "" });
            message.push_str(&cut(told, LONGEST));
            named += 1;
        }
        if failure.problems.len() > named {
            message.push_str(&format!("; and {} more", failure.problems.len() - named));
        }
        let first = failure.problems.into_iter().next().map(shortened);
        let details = first.map(|problem| problem.encode_to_vec()).unwrap_or_default();
        Status::with_details(failure.code, message, details.into())
    }
}

/// A problem whose texts are short enough for gRPC.
fn shortened(problem: Problem) -> Problem {
    let Problem { reason, message, file, resource_id, field, line } = problem;
    Problem {
        reason,
        message: cut(message, LONGEST),
        file: cut(file, LONGEST_PART),
        resource_id: cut(resource_id, LONGEST_PART),
        field: cut(field, LONGEST_PART),
        line,
    }
}

/// The beginning of a text that is too long.
fn cut(mut text: String, longest: usize) -> String {
    if text.len() > longest {
        text.truncate(text.floor_char_boundary(longest));
        text.push('…');
    }
    text
}

/// A problem without a file, resource or field.
pub(crate) fn problem(reason: &str, message: impl Into<String>) -> Problem {
    Problem { reason: reason.to_owned(), message: message.into(), ..Problem::default() }
}

/// Bytes in whole GiB, or else in MiB.
pub(crate) fn size(bytes: u64) -> String {
    if bytes >= 1 << 30 && bytes.is_multiple_of(1 << 30) {
        format!("{} GiB", bytes >> 30)
    } else {
        format!("{} MiB", bytes >> 20)
    }
}

/// `<file>:<line>: <id>: <field>: <message>`, without the parts that are unknown.
pub(crate) fn sentence(problem: &Problem) -> String {
    let mut text = String::new();
    if !problem.file.is_empty() {
        text.push_str(&problem.file);
        if problem.line > 0 {
            text.push_str(&format!(":{}", problem.line));
        }
        text.push_str(": ");
    }
    for part in [&problem.resource_id, &problem.field] {
        // Some messages begin with the field already.
        if !part.is_empty() && !problem.message.starts_with(part.as_str()) {
            text.push_str(part);
            text.push_str(": ");
        }
    }
    text + &problem.message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_names_the_field_and_carries_the_problem() {
        let wrong = Problem {
            file: "apps/web.yaml".to_owned(),
            line: 7,
            field: "metadata.name".to_owned(),
            ..problem(reason::MISSING_FIELD, "is required")
        };
        let status = Status::from(Failure::invalid(vec![wrong.clone()]));
        assert_eq!(status.message(), "apps/web.yaml:7: metadata.name: is required");
        assert_eq!(Problem::decode(status.details()).unwrap(), wrong);
    }

    #[test]
    fn many_problems_are_counted() {
        let many = |length: usize| {
            let problems = (0..22).map(|n| problem("X", format!("{}m{n}", "x".repeat(length)))).collect();
            Status::from(Failure::invalid(problems)).message().to_owned()
        };
        assert!(many(0).starts_with("m0; m1; ") && many(0).ends_with("; m19; and 2 more"), "{}", many(0));
        assert!(many(1000).ends_with("m2; and 19 more") && many(5000).ends_with("x…; and 21 more"));
    }

    #[test]
    fn messages_fit_into_headers() {
        let long = "→".repeat(50_000);
        let wrong =
            Problem { file: long.clone(), resource_id: long.clone(), field: long.clone(), ..problem("X", long) };
        let status = Status::from(Failure::invalid(vec![wrong]));
        let told = Problem::decode(status.details()).unwrap();
        assert!(told.message.ends_with("→…") && told.file.ends_with("→…"), "{told:?}");
        // As headers have it: three bytes for each, and four for three.
        assert!(status.message().len() * 3 + status.details().len() * 4 / 3 < 16 << 10);
    }
}
