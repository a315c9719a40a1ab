//! Sorts libgit2's errors by what a caller can do about them.

use git2::{ErrorClass, ErrorCode};

use crate::Credentials;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The server wants other credentials.
    Unauthorized,
    /// The server is not who it should be.
    Untrusted,
    /// The server sends us to another one, which is not to see the credentials.
    Elsewhere,
    /// There is no such repository, or not for whoever asks.
    NotFound,
    /// The server is out of reach for now, or failed.
    Unreachable,
    /// Anything else; it may go by itself.
    Other,
}

/// What an error means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What a caller can tell apart.
    pub problem: Problem,
    /// For people, without secrets.
    pub message: String,
}

/// Explains an error about the repository at `remote`, with no credential in what it says.
pub fn explain(err: &git2::Error, remote: &str, credentials: &Credentials) -> Explanation {
    let shown = without_userinfo(remote);
    let said = scrub(err.message(), remote, credentials);
    let lower = said.to_lowercase();
    let absent = lower.contains("status code: 404")
        || lower.contains("repository not found")
        || lower.contains("does not appear to be a git repository")
        || (err.class() == ErrorClass::Os && lower.contains("no such file or directory"));
    let refused = lower.contains("status code: 401")
        || lower.contains("status code: 403")
        || lower.contains("authentication")
        // A key that makes no sense, or that the passphrase does not open.
        || (err.class() == ErrorClass::Ssh && lower.contains("failed to authenticate"));
    // libgit2's words, with both hosts, or with both schemes where one of them is less safe.
    let is_elsewhere = err.class() == ErrorClass::Net && lower.starts_with("cannot redirect from ");
    let (problem, message) = match (err.class(), err.code()) {
        _ if is_elsewhere => {
            let instead = "write the address that it leads to instead, if that is to see them";
            (Problem::Elsewhere, format!("{shown} leads to where no credentials are shown: {said}; {instead}"))
        }
        (_, ErrorCode::Auth) => (Problem::Unauthorized, format!("{shown} refuses the credentials: {said}")),
        _ if refused => (Problem::Unauthorized, format!("{shown} refuses the credentials: {said}")),
        (ErrorClass::Ssh, ErrorCode::Certificate) => {
            let known = "known_hosts has another key for it or none; it needs all keys that ssh-keyscan tells";
            (Problem::Untrusted, format!("{shown} is not who it should be: {said}: {known}"))
        }
        (_, ErrorCode::Certificate) => (Problem::Untrusted, format!("{shown} is not who it should be: {said}")),
        (_, ErrorCode::Owner) => (Problem::Untrusted, format!("{shown} belongs to another user of this machine")),
        _ if absent => (Problem::NotFound, format!("{shown} does not exist: {said}")),
        (ErrorClass::Os | ErrorClass::Repository | ErrorClass::Filesystem, ErrorCode::NotFound) => {
            (Problem::NotFound, format!("{shown} does not exist: {said}"))
        }
        (ErrorClass::Net | ErrorClass::Http | ErrorClass::Ssh | ErrorClass::Ssl | ErrorClass::Os, _)
        | (_, ErrorCode::Timeout | ErrorCode::Eof) => {
            (Problem::Unreachable, format!("{shown} cannot be reached: {said}"))
        }
        _ => (Problem::Other, format!("{shown} cannot be used: {said}")),
    };
    Explanation { problem, message }
}

/// Whether an error of fetching or reading is one of what is kept here, in which no server has a part: it can be had again.
pub fn is_here(err: &git2::Error) -> bool {
    match err.class() {
        ErrorClass::Odb | ErrorClass::Object | ErrorClass::Zlib | ErrorClass::Config => true,
        ErrorClass::Reference => err.code() == ErrorCode::GenericError,
        _ => false,
    }
}

/// A URL without user and password, which stand before its host.
pub fn without_userinfo(remote: &str) -> String {
    let Some((scheme, rest)) = remote.split_once("://") else { return remote.to_owned() };
    format!("{scheme}://{}", from_host(rest))
}

/// A URL from its host on, given what follows its scheme. Where something before the first of `/?#` is no port, it is taken for
/// the start of a password that has one of them in it, though it has to be escaped there.
fn from_host(rest: &str) -> &str {
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    if let Some(at) = authority.rfind('@') {
        return &rest[at + 1..];
    }
    let address = authority.strip_prefix('[').and_then(|address| address.split_once(']'));
    let host = address.map_or(authority, |(_, port)| port);
    let is_host = host.split_once(':').is_none_or(|(_, port)| !port.starts_with('+') && port.parse::<u16>().is_ok());
    match rest.rfind('@') {
        Some(at) if !is_host => &rest[at + 1..],
        _ => rest,
    }
}

/// What somebody said about the repository at `remote`, with no credential in it.
pub fn scrub(message: &str, remote: &str, credentials: &Credentials) -> String {
    let mut message = message.replace(remote, &without_userinfo(remote));
    for secret in credentials.secrets().filter(|secret| secret.len() >= 3) {
        message = message.replace(secret, "(sensitive)");
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_urls_are_not_shown() {
        assert_eq!(without_userinfo("https://bot:hunter2@git.example.com/a@b.git"), "https://git.example.com/a@b.git");
        assert_eq!(without_userinfo("https://bot:hunter2@git.example.com?a=b@c"), "https://git.example.com?a=b@c");
        assert_eq!(without_userinfo("https://git.example.com?a=b@c"), "https://git.example.com?a=b@c");
        for password in ["hunter/2", "hun?ter2", "/?#", "12345678/a", "+443/a"] {
            assert_eq!(without_userinfo(&format!("https://bot:{password}@x/a.git")), "https://x/a.git");
        }
        for url in ["https://x:8443/a@b.git", "https://[::1]/a@b.git", "https://[::1]:8443/a@b.git"] {
            assert_eq!(without_userinfo(url), url);
        }
        assert_eq!(without_userinfo("git@example.com:a.git"), "git@example.com:a.git");
        assert_eq!(without_userinfo("/srv/a@b.git"), "/srv/a@b.git");
    }

    #[test]
    fn server_that_sends_us_elsewhere_is_told_by_where() {
        let said = "cannot redirect from 'git.example.com' to 'code.example.com'";
        let err = git2::Error::new(ErrorCode::GenericError, ErrorClass::Net, said);
        let Explanation { problem, message } = explain(&err, "https://git.example.com/a.git", &Credentials::default());
        assert_eq!(problem, Problem::Elsewhere);
        assert!(message.contains(said) && message.contains("write the address that it leads to"), "{message}");
    }

    #[test]
    fn no_credential_is_in_a_message() {
        let credentials: Credentials = [("token".to_owned(), b"s3cr3t\n".to_vec())].into_iter().collect();
        let err = git2::Error::new(ErrorCode::GenericError, ErrorClass::Http, "https://bot:hunter2@x/y said s3cr3t");
        let Explanation { problem, message } = explain(&err, "https://bot:hunter2@x/y", &credentials);
        assert_eq!(problem, Problem::Unreachable);
        assert!(!message.contains("hunter2") && !message.contains("s3cr3t"), "{message}");
        assert!(!format!("{credentials:?}").contains("s3cr3t"));
    }
}
