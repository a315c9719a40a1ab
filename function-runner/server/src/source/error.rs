//! Failures of Git servers as the caller of the runner has to take them.

use stoa_git::{Explanation, Problem};
use stoa_proto::Source;
use tonic::Code;

use super::auth;
use crate::failure::{Failure, reason};

pub(super) fn explain(err: &git2::Error, source: &Source) -> Failure {
    if stoa_git::is_here(err) {
        return Failure::internal(err);
    }
    let Explanation { problem, message } = stoa_git::explain(err, &source.remote, &auth::credentials(source));
    let (code, reason) = match problem {
        Problem::Unauthorized | Problem::Untrusted => (Code::InvalidArgument, reason::SOURCE_UNAUTHORIZED),
        Problem::NotFound => (Code::NotFound, reason::SOURCE_NOT_FOUND),
        Problem::Unreachable | Problem::Other => (Code::Unavailable, reason::SOURCE_UNAVAILABLE),
    };
    Failure::new(code, reason, message)
}
