//! What the error of a call says of the runner that was asked, and whether another one may be.

use std::{error::Error as _, sync::Arc};

use prost::Message as _;
use stoa_engine::forgotten_clusters;
use stoa_proto::Problem;
use stoa_types::reason;
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
pub fn is_unheard(status: &Status) -> bool {
    of(status) != Verdict::Answer && broken_calls(status) == 0
}

/// Whether the runner itself said so, rather than whatever is between it and us.
pub(crate) fn is_of_runner(status: &Status) -> bool {
    problem(status).is_some()
}

/// Whether the connection broke, so that the result is unknown. HTTP/2 has several codes for that.
pub(super) fn is_broken(status: &Status) -> bool {
    !is_of_runner(status) && (matches!(status.code(), Code::Cancelled | Code::Unknown) || status.source().is_some())
}

/// Whether the connection broke after the call was sent, so that the call may have ended the runner.
pub(super) fn is_in_flight(status: &Status) -> bool {
    is_broken(status) && status.code() != Code::Unavailable
}

/// What is kept with a status of so many calls that broke in flight.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{0} calls broke in flight")]
struct Broke(usize);

/// Says of a call that it was made so many times, and broke in flight each time.
pub(super) fn broke(message: String, times: usize) -> Status {
    let mut status = Status::unavailable(message);
    status.set_source(Arc::new(Broke(times)));
    status
}

/// How many calls broke in flight before this was said; 0 where something else went wrong.
pub fn broken_calls(status: &Status) -> usize {
    status.source().and_then(|source| source.downcast_ref::<Broke>()).map_or(0, |broke| broke.0)
}

/// Whether a source was looked at that has no such version.
pub fn lacks_version(status: &Status) -> bool {
    problem(status).is_some_and(|problem| problem.reason == reason::VERSION_NOT_FOUND)
}

/// Whether a source was looked at whose commit has nothing at the path.
pub fn lacks_path(status: &Status) -> bool {
    problem(status).is_some_and(|problem| problem.reason == reason::PATH_NOT_FOUND)
}

/// Whether what is wrong is what a run asks for, and neither its Spec nor what is live.
pub(crate) fn is_mistaken(status: &Status) -> bool {
    problem(status).is_some_and(|problem| {
        problem.reason == stoa_engine::problem::reason::NOT_IN_SPEC
            || (problem.resource_id.is_empty() && problem.field == forgotten_clusters::FIELD)
    })
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
    fn busy_or_absent_runner_is_replaced() {
        assert_eq!(said(Code::ResourceExhausted, "Busy"), Verdict::Busy);
        assert_eq!(said(Code::Unavailable, "Draining"), Verdict::Away);
        assert_eq!(of(&Status::unavailable("connection refused")), Verdict::Away);
        let reset = h2_error();
        assert_eq!((of(&reset), reset.code()), (Verdict::Away, Code::Internal));
    }

    #[test]
    fn sent_request_may_have_ended_the_runner() {
        assert!(is_in_flight(&h2_error()) && is_in_flight(&Status::unknown("transport error")));
        assert!(!is_in_flight(&Status::unavailable("connection refused")));
        let problem = Problem { message: "told".to_owned(), ..Problem::default() };
        let told = Status::with_details(Code::Unknown, "told", problem.encode_to_vec().into());
        assert!(!is_in_flight(&told), "it is there to say so");
        let said = broke("they went away".to_owned(), 2);
        assert_eq!((of(&said), broken_calls(&said)), (Verdict::Away, 2));
        assert!(!is_unheard(&said) && is_unheard(&Status::unavailable("connection refused")), "it was taken on");
        assert_eq!(broken_calls(&h2_error()), 0, "how often, only whoever called knows");
    }

    #[test]
    fn faults_of_a_run_and_of_its_spec_differ() {
        let said = |reason: &str, [resource_id, field]: [&str; 2]| {
            let [reason, resource_id, field] = [reason, resource_id, field].map(str::to_owned);
            let problem = Problem { reason, resource_id, field, message: "told".to_owned(), ..Problem::default() };
            is_mistaken(&Status::with_details(Code::InvalidArgument, "told", problem.encode_to_vec().into()))
        };
        assert!(said("NoRuntime", ["", "spec.forgetClusters"]) && said("NotInSpec", ["v1:ConfigMap:shop:a", ""]));
        assert!(!said("NoRuntime", ["v1:ConfigMap:shop:a", "extensions.cluster"]));
        assert!(!said("InvalidSpec", ["", "spec.gitops.repository"]) && !is_mistaken(&Status::internal("told")));
    }

    #[test]
    fn answer_of_one_runner_is_final() {
        assert_eq!(said(Code::Unavailable, "SourceUnavailable"), Verdict::Answer);
        assert_eq!(said(Code::Internal, "InternalError"), Verdict::Answer);
        assert_eq!(said(Code::InvalidArgument, "MissingField"), Verdict::Answer);
        assert_eq!(of(&Status::internal("cannot be decoded")), Verdict::Answer);
    }

    /// What a connection that is closed without an error makes of its calls.
    fn h2_error() -> Status {
        let mut status = Status::internal("h2 protocol error");
        status.set_source(Arc::new(std::io::Error::other("closed")));
        status
    }
}
