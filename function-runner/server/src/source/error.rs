//! Classifies errors of Git servers for the caller of the runner.

use git2::ErrorClass;
use stoa_engine_git::push::PushError;
use stoa_engine_git::remote::RemoteError;
use stoa_git::{Explanation, Problem};
use stoa_proto::Source;
use tonic::Code;

use super::auth;
use crate::failure::{Failure, reason};

pub(super) fn explain(err: &git2::Error, source: &Source) -> Failure {
    if stoa_git::is_here(err) || is_too_large(err) {
        return here(err);
    }
    let Explanation { problem, message } = stoa_git::explain(err, &source.remote, &auth::credentials(source));
    let (code, reason) = match problem {
        Problem::Unauthorized | Problem::Untrusted | Problem::Elsewhere => {
            (Code::InvalidArgument, reason::SOURCE_UNAUTHORIZED)
        }
        Problem::NotFound => (Code::NotFound, reason::SOURCE_NOT_FOUND),
        Problem::Unreachable | Problem::Other => (Code::Unavailable, reason::SOURCE_UNAVAILABLE),
    };
    Failure::new(code, reason, message)
}

/// The same of a server that is reached without libgit2.
pub(crate) fn of_remote(err: &RemoteError) -> Failure {
    let (code, reason) = match err {
        RemoteError::Unauthorized(..) | RemoteError::Untrusted(..) | RemoteError::Elsewhere(..) => {
            (Code::InvalidArgument, reason::SOURCE_UNAUTHORIZED)
        }
        RemoteError::Invalid(..) => (Code::InvalidArgument, reason::INVALID_REQUEST),
        RemoteError::NotFound(..) => (Code::NotFound, reason::SOURCE_NOT_FOUND),
        RemoteError::Unreachable(..) | RemoteError::Unanswered(..) => (Code::Unavailable, reason::SOURCE_UNAVAILABLE),
    };
    Failure::new(code, reason, err.to_string())
}

/// Classifies the error of a push.
pub(crate) fn of_push(err: PushError) -> Failure {
    match err {
        PushError::Remote(err) => of_remote(&err),
        PushError::Git(err) => here(&err),
        PushError::Folder(message) => Failure::new(Code::Unavailable, reason::SOURCE_UNAVAILABLE, message),
    }
}

/// The message if the process exceeded a limit.
pub(super) const OVER_LIMITS: &str = "fetching the repository takes more memory than --source-memory-mib of the function-runner allows, or its files are larger than a source may have";

/// An error of the local cache. It can be fetched anew, unless it exceeds a limit.
pub(crate) fn here(err: &git2::Error) -> Failure {
    if is_too_large(err) {
        return Failure::new(Code::InvalidArgument, reason::TOO_LARGE, OVER_LIMITS);
    }
    Failure::internal(err)
}

/// Whether the process exceeded a limit.
pub(super) fn is_too_large(err: &git2::Error) -> bool {
    // The words of `EFBIG`.
    err.class() == ErrorClass::NoMemory || (err.class() == ErrorClass::Os && err.message().contains("File too large"))
}

#[cfg(test)]
mod tests {
    use git2::ErrorCode;

    use super::*;

    #[test]
    fn fetch_over_the_memory_limit_is_not_repeated() {
        let failure = |class, message| {
            let failure = explain(&git2::Error::new(ErrorCode::GenericError, class, message), &Source::default());
            (failure.code(), failure.problems()[0].reason.clone())
        };
        let too_large = (Code::InvalidArgument, reason::TOO_LARGE.to_owned());
        assert_eq!(failure(ErrorClass::NoMemory, "Out of memory"), too_large);
        assert_eq!(failure(ErrorClass::Os, "failed to write: File too large"), too_large);
        assert_eq!(failure(ErrorClass::Odb, "object is corrupt").0, Code::Internal);
    }
}
