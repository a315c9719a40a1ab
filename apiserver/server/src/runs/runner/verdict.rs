//! What the error of a call says of the runner that was asked, and whether another one may be.

use std::error::Error as _;

use prost::Message as _;
use stoa_proto::Problem;
use tonic::{Code, Status};

/// The runner's word for having no time.
const BUSY: &str = "Busy";
/// Its word for being about to end.
const DRAINING: &str = "Draining";

/// What to make of a call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is the answer, whichever runner is asked.
    Answer,
    /// This runner has no time now, and another may.
    Busy,
    /// This runner is out of reach or about to end.
    Away,
}

/// Judges an error by what it is and by who says so.
pub(super) fn of(status: &Status) -> Verdict {
    match problem(status) {
        Some(problem) if problem.reason == BUSY => Verdict::Busy,
        Some(problem) if problem.reason == DRAINING => Verdict::Away,
        Some(_) => Verdict::Answer,
        None if status.code() == Code::Unavailable || is_broken(status) => Verdict::Away,
        None => Verdict::Answer,
    }
}

/// Whether no runner took the call on: each has no time or is away.
pub(crate) fn is_unheard(status: &Status) -> bool {
    of(status) != Verdict::Answer
}

/// Whether the runner itself said so, rather than whatever is between it and us.
pub(crate) fn is_of_runner(status: &Status) -> bool {
    problem(status).is_some()
}

/// Whether the connection broke rather than the call: what became of the call is not known. HTTP/2 has several words for
/// it, one of which becomes `INTERNAL`.
pub(super) fn is_broken(status: &Status) -> bool {
    !is_of_runner(status) && (matches!(status.code(), Code::Cancelled | Code::Unknown) || status.source().is_some())
}

/// The problem in the details of a status, if there is one.
pub(super) fn problem(status: &Status) -> Option<Problem> {
    let problem = Problem::decode(status.details()).ok()?;
    (!problem.message.is_empty()).then_some(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: Code, reason: &str) -> Verdict {
        let problem = Problem { reason: reason.to_owned(), message: "told".to_owned(), ..Problem::default() };
        of(&Status::with_details(code, "told", problem.encode_to_vec().into()))
    }

    #[test]
    fn another_runner_is_asked_when_one_has_no_time_or_is_away() {
        assert_eq!(said(Code::ResourceExhausted, "Busy"), Verdict::Busy);
        assert_eq!(said(Code::Unavailable, "Draining"), Verdict::Away);
        assert_eq!(of(&Status::unavailable("connection refused")), Verdict::Away);
        let reset = h2_error();
        assert_eq!((of(&reset), reset.code()), (Verdict::Away, Code::Internal));
    }

    #[test]
    fn what_a_runner_answers_is_the_answer_of_all() {
        assert_eq!(said(Code::Unavailable, "SourceUnavailable"), Verdict::Answer);
        assert_eq!(said(Code::Internal, "InternalError"), Verdict::Answer);
        assert_eq!(said(Code::InvalidArgument, "MissingField"), Verdict::Answer);
        assert_eq!(of(&Status::internal("cannot be decoded")), Verdict::Answer);
    }

    /// What a connection that is closed without an error makes of its calls.
    fn h2_error() -> Status {
        let mut status = Status::internal("h2 protocol error");
        status.set_source(std::sync::Arc::new(std::io::Error::other("closed")));
        status
    }
}
