//! Where the API of a repository is, by the address that Git knows it by.

use std::net::IpAddr;

/// Which server keeps a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// Gitea, and Forgejo, which has the same API.
    Gitea,
    /// GitHub, or GitHub Enterprise Server.
    GitHub,
    /// GitLab, hosted or of one's own.
    GitLab,
}

impl Provider {
    /// The server of the repository at `remote`: by its name (`Gitea`, `GitHub`, `GitLab`), or else by the host, where
    /// `github.com`, `gitlab.com` and `gitlab.*` are known; Gitea where neither says.
    pub fn of(name: Option<&str>, remote: &str) -> Self {
        let (server, _) = split(remote);
        let host =
            server.and_then(|server| server.parse::<http::Uri>().ok()).map(|uri| plain_host(&uri)).unwrap_or_default();
        match (name, host.as_str()) {
            (Some("GitHub"), _) | (None, "github.com") => Self::GitHub,
            (Some("GitLab"), _) => Self::GitLab,
            (None, host) if host.starts_with("gitlab.") => Self::GitLab,
            _ => Self::Gitea,
        }
    }
}

/// Where the API of a repository is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub(crate) provider: Provider,
    /// The URL that all paths begin with, without a slash at its end.
    pub(crate) api: String,
    /// The owner; at GitLab a group, with `/` before subgroups.
    pub(crate) owner: String,
    pub(crate) name: String,
    /// Whether the server is at the host that Git reaches the repository at, on whatever port.
    is_at_remote: bool,
}

/// Why an address leads to no API. It says nothing of user and password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAddress {
    /// The repository is not named by an owner and a name.
    #[error("the repository's address does not end in <owner>/<name>")]
    Unnamed,
    /// The repository is in a folder or has no host, so that the server has to be named.
    #[error("the repository's address names no server; name its URL")]
    NoServer,
    /// The URL of the server is none.
    #[error("the server's URL has to be like https://git.example.com, without user and password")]
    Url,
    /// What is sent could be read on the way.
    #[error("the server's URL has to be https, unless it is a loopback address")]
    InClear,
}

impl Address {
    /// Where the API of the repository at `remote` is: at the same host, or at `url`, the address that people open the server
    /// by.
    ///
    /// # Errors
    ///
    /// [`InvalidAddress`].
    pub fn new(provider: Provider, remote: &str, url: Option<&str>) -> Result<Self, InvalidAddress> {
        let (server, path) = split(remote);
        let url = url.filter(|url| !url.is_empty());
        let path = path.trim_matches('/');
        let path = path.strip_suffix(".git").unwrap_or(path);
        let (before, owner, name) = match provider {
            Provider::Gitea | Provider::GitHub => {
                let mut parts = path.rsplitn(3, '/');
                let (name, owner) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                (parts.next().unwrap_or_default(), owner, name)
            }
            Provider::GitLab => {
                let path = url.map_or(path, |url| below(remote, path, url));
                let (owner, name) = path.rsplit_once('/').unwrap_or_default();
                ("", owner, name)
            }
        };
        let of_remote = server.as_ref().and_then(|server| server.parse::<http::Uri>().ok());
        if !owner.split('/').all(is_name) || !is_name(name) {
            return Err(InvalidAddress::Unnamed);
        }
        let root = match (url, server) {
            (Some(url), _) => url.trim_end_matches('/').to_owned(),
            (None, Some(server)) if before.is_empty() => server,
            (None, Some(server)) => format!("{server}/{before}"),
            (None, None) => return Err(InvalidAddress::NoServer),
        };
        let uri: http::Uri = root.parse().map_err(|_| InvalidAddress::Url)?;
        let is_plain = uri.query().is_none() && uri.authority().is_some_and(|of| !of.as_str().contains('@'));
        let host = host(&uri);
        match uri.scheme_str() {
            Some("https") if is_plain => {}
            Some("http") if is_plain => {
                let is_loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
                if !is_loopback {
                    return Err(InvalidAddress::InClear);
                }
            }
            _ => return Err(InvalidAddress::Url),
        }
        let api = match provider {
            Provider::Gitea => format!("{root}/api/v1"),
            Provider::GitHub if host.eq_ignore_ascii_case("github.com") => "https://api.github.com".to_owned(),
            Provider::GitHub => format!("{root}/api/v3"),
            Provider::GitLab => format!("{root}/api/v4"),
        };
        let is_at_remote = of_remote.is_some_and(|remote| plain_host(&remote) == plain_host(&uri));
        Ok(Self { provider, api, owner: owner.to_owned(), name: name.to_owned(), is_at_remote })
    }

    /// Whether the server is at the host that Git reaches the repository at, on whatever port.
    pub fn is_at_remote(&self) -> bool {
        self.is_at_remote
    }

    /// The host with its port, if it is another one than the repository's.
    pub fn other_host(&self) -> Option<String> {
        let named = || self.api.parse::<http::Uri>().map_or_else(|_| self.api.clone(), |uri| with_port(&uri));
        (!self.is_at_remote).then(named)
    }

    /// The host with its port, if whoever makes the calls reaches itself by it.
    pub fn own_host(&self) -> Option<String> {
        let uri: http::Uri = self.api.parse().ok()?;
        let host = plain_host(&uri);
        let is_own = match host.parse::<IpAddr>() {
            Ok(ip) => ip.to_canonical().is_loopback() || ip.to_canonical().is_unspecified(),
            // Numbers that are no address in full, such as `127.1`, are one to resolvers.
            Err(_) => {
                let last = host.rsplit('.').next().unwrap_or_default();
                last == "localhost" || last.starts_with(|c: char| c.is_ascii_digit())
            }
        };
        is_own.then(|| with_port(&uri))
    }

    /// The server as it is named to people.
    pub(crate) fn shown(&self) -> &str {
        &self.api
    }
}

fn host(uri: &http::Uri) -> &str {
    uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
}

/// A host, whichever way it is written.
fn plain_host(uri: &http::Uri) -> String {
    host(uri).trim_end_matches('.').to_ascii_lowercase()
}

/// The same with its port, unless that is the usual one.
fn with_port(uri: &http::Uri) -> String {
    let host = plain_host(uri);
    let usual = if uri.scheme_str() == Some("http") { 80 } else { 443 };
    match uri.port_u16().filter(|port| *port != usual) {
        Some(port) => format!("{host}:{port}"),
        None => host,
    }
}

/// The server that people open, if the address names one, and the path there.
fn split(remote: &str) -> (Option<String>, &str) {
    let without_user = |authority: &str| authority.rsplit_once('@').map_or(authority, |(_, host)| host).to_owned();
    if let Some((scheme, rest)) = remote.split_once("://") {
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = without_user(authority);
        return match scheme {
            "http" | "https" => (Some(format!("{scheme}://{host}")), path),
            // The port is that of SSH.
            "ssh" => (Some(format!("https://{}", host.split(':').next().unwrap_or_default())), path),
            _ => (None, path),
        };
    }
    match remote.split_once(':') {
        // As in `git@example.com:shop/deploy.git`.
        Some((host, path)) if !host.contains('/') => (Some(format!("https://{}", without_user(host))), path),
        _ => (None, remote),
    }
}

/// The path of a repository at a server whose own URL has a path, such as `/gitlab`, as far as Git's address has it too.
fn below<'p>(remote: &str, path: &'p str, url: &str) -> &'p str {
    let own = url.parse::<http::Uri>().map(|uri| uri.path().trim_matches('/').to_owned()).unwrap_or_default();
    let is_web = remote.starts_with("https://") || remote.starts_with("http://");
    let rest = path.strip_prefix(own.as_str()).and_then(|rest| rest.strip_prefix('/'));
    rest.filter(|_| is_web && !own.is_empty()).unwrap_or(path)
}

/// Whether something is the name of an owner or a repository.
fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    !text.is_empty() && text.len() <= 200 && text.chars().all(is_plain) && text.chars().any(|c| c != '.')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn told(provider: Provider, remote: &str, url: Option<&str>) -> String {
        match Address::new(provider, remote, url) {
            Ok(address) => format!("{} {}/{}", address.api, address.owner, address.name),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn api_is_where_the_repository_is() {
        use Provider::{GitHub, GitLab, Gitea};
        for (provider, remote, url, expected) in [
            (Gitea, "https://git.example.com/shop/deploy.git", None, "https://git.example.com/api/v1 shop/deploy"),
            (
                Gitea,
                "https://bot:x@git.example.com:3000/shop/deploy",
                None,
                "https://git.example.com:3000/api/v1 shop/deploy",
            ),
            (Gitea, "https://example.com/git/shop/deploy.git/", None, "https://example.com/git/api/v1 shop/deploy"),
            (
                Gitea,
                "ssh://git@git.example.com:2222/shop/deploy.git",
                None,
                "https://git.example.com/api/v1 shop/deploy",
            ),
            (Gitea, "git@git.example.com:shop/deploy.git", None, "https://git.example.com/api/v1 shop/deploy"),
            (
                Gitea,
                "git@git.example.com:shop/deploy.git",
                Some("http://localhost:3000/"),
                "http://localhost:3000/api/v1 shop/deploy",
            ),
            (
                Gitea,
                "file:///srv/shop/deploy.git",
                Some("https://git.example.com"),
                "https://git.example.com/api/v1 shop/deploy",
            ),
            (GitHub, "https://github.com/shop/deploy.git", None, "https://api.github.com shop/deploy"),
            (GitHub, "git@github.com:shop/deploy.git", None, "https://api.github.com shop/deploy"),
            (GitHub, "https://github.example.com/shop/deploy", None, "https://github.example.com/api/v3 shop/deploy"),
            (GitLab, "https://gitlab.com/shop/deploy.git", None, "https://gitlab.com/api/v4 shop/deploy"),
            (GitLab, "git@gitlab.com:shop/eu/deploy.git", None, "https://gitlab.com/api/v4 shop/eu/deploy"),
            (
                GitLab,
                "https://example.com/gitlab/shop/eu/deploy",
                Some("https://example.com/gitlab/"),
                "https://example.com/gitlab/api/v4 shop/eu/deploy",
            ),
            (
                GitLab,
                "git@example.com:gitlab/deploy.git",
                Some("https://example.com/gitlab"),
                "https://example.com/gitlab/api/v4 gitlab/deploy",
            ),
        ] {
            assert_eq!(told(provider, remote, url), expected);
        }
    }

    #[test]
    fn provider_follows_from_name_or_host() {
        for (name, remote, expected) in [
            (None, "https://github.com/shop/deploy", Provider::GitHub),
            (None, "git@github.com:shop/deploy.git", Provider::GitHub),
            (None, "https://gitlab.com/shop/eu/deploy.git", Provider::GitLab),
            (None, "ssh://git@GitLab.example.com:2222/shop/deploy.git", Provider::GitLab),
            (None, "https://git.example.com/gitlab.com/deploy.git", Provider::Gitea),
            (None, "file:///srv/shop/deploy.git", Provider::Gitea),
            (Some("GitLab"), "https://git.example.com/shop/deploy", Provider::GitLab),
            (Some("GitHub"), "https://git.example.com/shop/deploy", Provider::GitHub),
            (Some("Gitea"), "https://gitlab.example.com/shop/deploy", Provider::Gitea),
        ] {
            assert_eq!(Provider::of(name, remote), expected, "{name:?} {remote}");
        }
    }

    #[test]
    fn invalid_address_error_omits_password() {
        for (remote, url, error) in [
            ("https://git.example.com/deploy.git", None, InvalidAddress::Unnamed),
            ("https://git.example.com/../deploy.git", None, InvalidAddress::Unnamed),
            ("https://git.example.com/shop/a?b.git", None, InvalidAddress::Unnamed),
            ("/srv/shop/deploy.git", None, InvalidAddress::NoServer),
            ("file:///srv/shop/deploy.git", None, InvalidAddress::NoServer),
            ("http://git.example.com/shop/deploy.git", None, InvalidAddress::InClear),
            ("git@x:shop/deploy.git", Some("ftp://git.example.com"), InvalidAddress::Url),
            ("git@x:shop/deploy.git", Some("https://bot:hunter2@git.example.com"), InvalidAddress::Url),
            ("git@x:shop/deploy.git", Some("git.example.com"), InvalidAddress::Url),
        ] {
            let found = Address::new(Provider::Gitea, remote, url).unwrap_err();
            assert_eq!(found, error, "{remote} {url:?}");
            assert!(!found.to_string().contains("hunter2"));
        }
    }

    #[test]
    fn address_recognizes_own_host_in_any_spelling() {
        let own = |remote: &str, url: Option<&str>| {
            Address::new(Provider::Gitea, remote, url).unwrap().own_host().unwrap_or_default()
        };
        for (remote, expected) in [
            ("http://127.0.0.1:3000/shop/deploy.git", "127.0.0.1:3000"),
            ("http://localhost/shop/deploy.git", "localhost"),
            ("https://LOCALHOST.:8443/shop/deploy.git", "localhost:8443"),
            ("https://git.localhost/shop/deploy.git", "git.localhost"),
            ("https://[::1]/shop/deploy.git", "::1"),
            ("https://[::ffff:127.0.0.1]/shop/deploy.git", "::ffff:127.0.0.1"),
            ("https://0.0.0.0:6443/shop/deploy.git", "0.0.0.0:6443"),
            ("https://127.1:6443/shop/deploy.git", "127.1:6443"),
            ("https://2130706433/shop/deploy.git", "2130706433"),
            ("https://0x7f000001/shop/deploy.git", "0x7f000001"),
            ("git@127.0.0.1:shop/deploy.git", "127.0.0.1"),
            ("https://git.example.com/shop/deploy.git", ""),
            ("https://10.0.0.7:3000/shop/deploy.git", ""),
        ] {
            assert_eq!(own(remote, None), expected, "{remote}");
        }
        assert_eq!(own("git@git.example.com:shop/deploy.git", Some("https://127.0.0.1:6443")), "127.0.0.1:6443");
    }

    #[test]
    fn server_at_another_host_than_the_repositorys_is_known() {
        use Provider::{GitHub, Gitea};
        let other = |provider: Provider, remote: &str, url: Option<&str>| {
            let address = Address::new(provider, remote, url).unwrap();
            let other = address.other_host();
            assert_eq!(other.is_none(), address.is_at_remote());
            other.unwrap_or_default()
        };
        for (provider, remote, url, expected) in [
            (Gitea, "https://git.example.com/shop/deploy.git", None, ""),
            (Gitea, "https://git.example.com/shop/deploy.git", Some("https://GIT.example.com.:3000"), ""),
            (Gitea, "ssh://git@git.example.com:2222/shop/deploy.git", Some("https://git.example.com"), ""),
            (GitHub, "git@github.com:shop/deploy.git", Some("https://github.com"), ""),
            (Gitea, "git@git.example.com:shop/deploy.git", Some("https://forge.example.com"), "forge.example.com"),
            (Gitea, "https://git.example.com/shop/deploy.git", Some("https://10.0.0.7:8443"), "10.0.0.7:8443"),
            (Gitea, "https://x@git.example.com/shop/deploy.git", Some("https://x"), "x"),
            (Gitea, "file:///srv/shop/deploy.git", Some("https://git.example.com"), "git.example.com"),
            (GitHub, "git@git.example.com:shop/deploy.git", Some("https://github.com"), "api.github.com"),
        ] {
            assert_eq!(other(provider, remote, url), expected, "{remote} {url:?}");
        }
    }

    proptest! {
        /// Whatever the address, the owner and name are two path segments, and nothing else is sent to.
        #[test]
        fn names_are_path_segments(remote in ".{0,60}", url in proptest::option::of("https://[a-z./:@]{0,20}")) {
            if let Ok(address) = Address::new(Provider::GitLab, &remote, url.as_deref()) {
                prop_assert!(address.owner.split('/').all(is_name) && is_name(&address.name));
            }
            if let Ok(address) = Address::new(Provider::Gitea, &remote, url.as_deref()) {
                prop_assert!(is_name(&address.owner) && is_name(&address.name));
                prop_assert!(address.api.parse::<http::Uri>().is_ok());
            }
        }
    }
}
