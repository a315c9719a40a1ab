//! Sorts libgit2's errors by what a caller can do about them.

use git2::{ErrorClass, ErrorCode};
use stoa_proto::Source;
use tonic::Code;

use crate::failure::{Failure, reason};

pub(super) fn explain(err: &git2::Error, source: &Source) -> Failure {
    let remote = without_userinfo(&source.remote);
    let said = scrub(err.message(), source);
    let lower = said.to_lowercase();
    let absent = lower.contains("status code: 404")
        || lower.contains("repository not found")
        || lower.contains("does not appear to be a git repository")
        || (err.class() == ErrorClass::Os && lower.contains("no such file or directory"));
    let refused =
        lower.contains("status code: 401") || lower.contains("status code: 403") || lower.contains("authentication");
    let (code, reason, message) = match (err.class(), err.code()) {
        (_, ErrorCode::Auth) => {
            (Code::InvalidArgument, reason::SOURCE_UNAUTHORIZED, format!("{remote} refuses the credentials: {said}"))
        }
        _ if refused => {
            (Code::InvalidArgument, reason::SOURCE_UNAUTHORIZED, format!("{remote} refuses the credentials: {said}"))
        }
        (_, ErrorCode::Certificate) => {
            (Code::InvalidArgument, reason::SOURCE_UNAUTHORIZED, format!("{remote} is not who it should be: {said}"))
        }
        (_, ErrorCode::Owner) => (
            Code::InvalidArgument,
            reason::SOURCE_UNAUTHORIZED,
            format!("{remote} belongs to another user of this machine"),
        ),
        _ if absent => (Code::NotFound, reason::SOURCE_NOT_FOUND, format!("{remote} does not exist: {said}")),
        (ErrorClass::Os | ErrorClass::Repository | ErrorClass::Filesystem, ErrorCode::NotFound) => {
            (Code::NotFound, reason::SOURCE_NOT_FOUND, format!("{remote} does not exist: {said}"))
        }
        (ErrorClass::Net | ErrorClass::Http | ErrorClass::Ssh | ErrorClass::Ssl | ErrorClass::Os, _)
        | (_, ErrorCode::Timeout | ErrorCode::Eof) => {
            (Code::Unavailable, reason::SOURCE_UNAVAILABLE, format!("{remote} cannot be reached: {said}"))
        }
        _ => (Code::Unavailable, reason::SOURCE_UNAVAILABLE, format!("{remote} cannot be fetched: {said}")),
    };
    Failure::new(code, reason, message)
}

/// A URL without user and password.
pub(super) fn without_userinfo(remote: &str) -> String {
    let Some((scheme, rest)) = remote.split_once("://") else { return remote.to_owned() };
    let end = rest.find('/').unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => remote.to_owned(),
    }
}

fn scrub(message: &str, source: &Source) -> String {
    let mut message = message.replace(&source.remote, &without_userinfo(&source.remote));
    for (key, value) in &source.credentials {
        // User names and certificates are no secrets.
        if matches!(key.as_str(), "username" | "ca.crt" | "known_hosts") {
            continue;
        }
        if let Ok(value) = std::str::from_utf8(value)
            && value.trim().len() >= 3
        {
            message = message.replace(value.trim(), "(sensitive)");
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_urls_are_not_shown() {
        assert_eq!(without_userinfo("https://bot:hunter2@git.example.com/a@b.git"), "https://git.example.com/a@b.git");
        assert_eq!(without_userinfo("git@example.com:a.git"), "git@example.com:a.git");
        assert_eq!(without_userinfo("/srv/a@b.git"), "/srv/a@b.git");
    }

    #[test]
    fn no_credential_is_in_a_message() {
        let source = Source {
            remote: "https://bot:hunter2@x/y".to_owned(),
            credentials: [("token".to_owned(), "s3cr3t".as_bytes().to_vec().into())].into(),
            ..Source::default()
        };
        let err = git2::Error::new(ErrorCode::GenericError, ErrorClass::Http, "https://bot:hunter2@x/y said s3cr3t");
        let status = tonic::Status::from(explain(&err, &source));
        assert_eq!(status.code(), Code::Unavailable);
        assert!(!status.message().contains("hunter2") && !status.message().contains("s3cr3t"), "{}", status.message());
    }
}
