//! Failures of Git servers as the caller of the runner has to take them.

use git2::{ErrorClass, ErrorCode};
use stoa_git::{Explanation, Problem};
use stoa_proto::Source;
use tonic::Code;

use super::auth;
use crate::failure::{Failure, reason};

pub(super) fn explain(err: &git2::Error, source: &Source) -> Failure {
    let is_here = match err.class() {
        ErrorClass::Odb | ErrorClass::Object | ErrorClass::Zlib | ErrorClass::Config => true,
        ErrorClass::Reference => err.code() == ErrorCode::GenericError,
        _ => false,
    };
    if is_here {
        // No server has a part in that: what was fetched before is broken.
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
