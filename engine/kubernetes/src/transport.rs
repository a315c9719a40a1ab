//! Messages about calls without an answer: the server's address, and the cause.

use std::error::Error;
use std::time::Duration;

use crate::error::{CallError, Failure};

/// hyper's wrapper around the cause, without information.
const AROUND: &str = "client error (";

/// Why a call to the server at a URL failed.
pub(crate) fn failed(url: &str, err: kube::Error) -> CallError {
    let is_unreached = matches!(&err, kube::Error::Service(_));
    match CallError::from(err) {
        CallError::Unreachable(why) if is_unreached => {
            CallError::Unreachable(format!("{} cannot be reached: {why}", address(url)))
        }
        err => err,
    }
}

/// The server at a URL did not answer in time.
pub(crate) fn late(url: &str, after: Duration) -> CallError {
    CallError::Unreachable(format!("{} did not answer within {after:?}", address(url)))
}

/// A URL as it may be shown: without whom it names before its host. `stoa_git::without_userinfo` does the same for repositories,
/// with which nothing here has to do.
fn address(url: &str) -> String {
    let url = url.trim_end_matches('/');
    let Some((scheme, rest)) = url.split_once("://") else { return "the server".to_owned() };
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

impl From<kube::Error> for CallError {
    fn from(err: kube::Error) -> Self {
        match err {
            kube::Error::Api(status) => Self::Status(Failure { code: status.code, status, retry_after: None }),
            // The output of an authentication plugin may hold credentials.
            kube::Error::Auth(_) => Self::Unreachable("the credentials could not be loaded".to_owned()),
            // Its own text is that of its cause.
            kube::Error::Service(err) => Self::Unreachable(causes(&*err)),
            err => Self::Unreachable(causes(&err)),
        }
    }
}

/// An error with its causes, each once, without system error numbers.
fn causes(err: &(dyn Error + 'static)) -> String {
    let mut told: Vec<String> = Vec::new();
    let mut next = Some(err);
    while let Some(err) = next {
        next = err.source();
        let text = err.to_string();
        let is_around = next.is_some() && text.starts_with(AROUND);
        if !is_around && !told.iter().any(|told| told.contains(&text)) {
            told.push(text);
        }
    }
    let text = told.join(": ");
    text.split(" (os error ").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use kube::{Client, Config};

    use super::*;

    fn told(err: CallError) -> String {
        match err {
            CallError::Unreachable(message) => message,
            CallError::Status(_) | CallError::TooLarge | CallError::Suspended(_) => panic!("{err:?}"),
        }
    }

    #[tokio::test]
    async fn unreachable_server_is_reported_with_address_and_cause() {
        // Nobody listens there, since nobody may.
        let client = Client::try_from(Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let request = http::Request::get("/api").body(kube::client::Body::empty()).unwrap();
        let err = client.send(request).await.unwrap_err();
        assert_eq!(
            told(failed("http://127.0.0.1:1/", err)),
            "http://127.0.0.1:1 cannot be reached: tcp connect error: Connection refused"
        );
    }

    #[test]
    fn secrets_in_url_are_redacted() {
        let err = || kube::Error::Service(std::io::Error::other("no").into());
        assert_eq!(
            told(failed("https://u:hunter2@a.example.com/", err())),
            "https://a.example.com cannot be reached: no"
        );
        assert_eq!(told(failed("", err())), "the server cannot be reached: no");
        assert_eq!(
            told(failed("https://u:hunter2@a.example.com/k8s/clusters/c@d", err())),
            "https://a.example.com/k8s/clusters/c@d cannot be reached: no"
        );
        for url in
            ["https://u:hun/ter2@a.example.com", "https://u:hun?ter2@a.example.com", "https://u:/#@a.example.com"]
        {
            assert_eq!(address(url), "https://a.example.com", "{url}");
        }
        for url in ["https://a.example.com:6443/c@d", "https://[::1]/c@d", "https://[::1]:6443/c@d"] {
            assert_eq!(address(url), url);
        }
        let late = late("https://a.example.com/", Duration::from_secs(5));
        assert_eq!(told(late), "https://a.example.com did not answer within 5s");
    }
}
