//! Shows credentials to a Git server, and checks who the server is.

use std::net::IpAddr;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use git2::{CertificateCheckStatus, Cred, CredentialType, Error, ErrorClass, ErrorCode, RemoteCallbacks, cert::Cert};
use percent_encoding::percent_decode_str;
use rustls::{
    client::danger::ServerCertVerifier as _,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};
use stoa_tls::ServerVerifier;

use crate::Credentials;

impl Credentials {
    /// What libgit2 asks of a client, for one connection to `remote`. Wherever that sends us, no other host sees the
    /// credentials.
    pub fn callbacks(&self, remote: &str) -> RemoteCallbacks<'static> {
        let mut callbacks = RemoteCallbacks::new();
        let (credentials, remote) = (self.clone(), remote.to_owned());
        // libgit2 asks again for as long as the server refuses; what was refused once stays refused.
        let mut shown = CredentialType::empty();
        callbacks.credentials(move |url, user, allowed| {
            if is_elsewhere(&remote, url) {
                let message = "the server sends us to another one, which is shown no credentials";
                return Err(Error::new(ErrorCode::Auth, ErrorClass::Callback, message));
            }
            credentials.answer(&mut shown, credentials.user(&remote, user), allowed)
        });
        if self.get("ca.crt").is_some() || self.get("known_hosts").is_some() {
            let credentials = self.clone();
            callbacks.certificate_check(move |certificate, host| credentials.check(certificate, host));
        }
        callbacks
    }

    /// The header `Authorization` for a server over HTTP: `Bearer` with a bearer token, else `Basic`. A user and password in the
    /// URL count where the credentials have none. A bearer token is for HTTPS, and for servers of this machine.
    pub fn authorization(&self, remote: &str) -> Option<String> {
        if let Some(token) = self.bearer_token(remote) {
            return Some(format!("Bearer {token}"));
        }
        let in_url = remote.split_once("://").and_then(|(_, rest)| {
            let authority = rest.split(['/', '?', '#']).next()?;
            let (userinfo, _) = authority.rsplit_once('@')?;
            let (user, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
            Some((decoded(user), decoded(password)))
        });
        let (user, password) = in_url.unwrap_or_default();
        let password = self.text("password").or_else(|| self.text("token")).unwrap_or(&password);
        let user = self.text("username").filter(|name| !name.is_empty()).unwrap_or(&user);
        if password.is_empty() && user.is_empty() {
            return None;
        }
        let user = if user.is_empty() { "git" } else { user };
        Some(format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
    }

    /// The header with the bearer token for `remote`, for libgit2, which asks for no credentials then.
    pub fn bearer_header(&self, remote: &str) -> Option<String> {
        self.bearer_token(remote).map(|token| format!("Authorization: Bearer {token}"))
    }

    fn bearer_token(&self, remote: &str) -> Option<&str> {
        self.text("bearerToken").filter(|_| is_private(remote))
    }

    /// The certificates of the server's authorities, PEM, if no others count.
    pub fn authority(&self) -> Option<&[u8]> {
        self.get("ca.crt")
    }

    /// Whether `known_hosts` has this key for a host; nothing without `known_hosts`.
    pub fn knows_host_key(&self, key: &[u8], host: &str) -> Option<bool> {
        let known = self.get("known_hosts")?;
        Some(is_known(key, &String::from_utf8_lossy(known), host))
    }

    /// The user, key and password for a server over SSH.
    pub fn login(&self) -> Login<'_> {
        Login {
            user: self.text("username").filter(|name| !name.is_empty()),
            key: self.get("ssh-privatekey").and_then(|key| std::str::from_utf8(key).ok()),
            passphrase: self.text("ssh-passphrase"),
            password: self.text("password").or_else(|| self.text("token")),
        }
    }

    /// Whom to be at `remote`, whose URL may name a user.
    fn user<'a>(&'a self, remote: &str, named: Option<&'a str>) -> Option<&'a str> {
        let ours = self.text("username").filter(|name| !name.is_empty());
        // Over SSH the server has been told the URL's before it asks for anything, and takes no other.
        let is_ssh = remote.split_once("://").is_none_or(|(scheme, _)| scheme == "ssh");
        if is_ssh { named.or(ours) } else { ours.or(named) }
    }

    fn answer(&self, shown: &mut CredentialType, user: Option<&str>, allowed: CredentialType) -> Result<Cred, Error> {
        let mut show = |kind: CredentialType| {
            let first = allowed.contains(kind) && !shown.contains(kind);
            shown.insert(kind);
            first
        };
        if allowed.contains(CredentialType::USERNAME) && show(CredentialType::USERNAME) {
            return Cred::username(user.unwrap_or("git"));
        }
        if let Some(key) = self.get("ssh-privatekey").and_then(|key| std::str::from_utf8(key).ok())
            && show(CredentialType::SSH_KEY)
        {
            return Cred::ssh_key_from_memory(user.unwrap_or("git"), None, key, self.text("ssh-passphrase"));
        }
        if let Some(password) = self.text("password").or_else(|| self.text("token"))
            && show(CredentialType::USER_PASS_PLAINTEXT)
        {
            // Servers that take tokens look at the password only, but want some user.
            return Cred::userpass_plaintext(user.unwrap_or("git"), password);
        }
        let message = if shown.is_empty() {
            "the server asks for credentials, and there are none that fit"
        } else {
            "the server refuses the credentials"
        };
        Err(Error::new(ErrorCode::Auth, ErrorClass::Callback, message))
    }

    fn check(&self, certificate: &Cert<'_>, host: &str) -> Result<CertificateCheckStatus, Error> {
        let trusted = if let (Some(x509), Some(ca)) = (certificate.as_x509(), self.get("ca.crt")) {
            is_signed(x509.data(), ca, host)
        } else if let (Some(key), Some(known)) = (certificate.as_hostkey(), self.get("known_hosts")) {
            key.hostkey().is_some_and(|key| is_known(key, &String::from_utf8_lossy(known), host))
        } else {
            return Ok(CertificateCheckStatus::CertificatePassthrough);
        };
        if trusted {
            return Ok(CertificateCheckStatus::CertificateOk);
        }
        let by = if certificate.as_x509().is_some() { "ca.crt" } else { "known_hosts" };
        Err(Error::new(ErrorCode::Certificate, ErrorClass::Callback, format!("{by} does not vouch for {host}")))
    }
}

/// The user, key and password for a server over SSH.
#[derive(Clone, Copy, educe::Educe)]
#[educe(Debug)]
pub struct Login<'c> {
    /// The user, unless the URL names one.
    pub user: Option<&'c str>,
    /// The private key, PEM.
    #[educe(Debug(ignore))]
    pub key: Option<&'c str>,
    /// The passphrase of the key.
    #[educe(Debug(ignore))]
    pub passphrase: Option<&'c str>,
    /// The password.
    #[educe(Debug(ignore))]
    pub password: Option<&'c str>,
}

/// The text of a part of a URL, without percent-encoding.
pub fn decoded(part: &str) -> String {
    percent_decode_str(part).decode_utf8_lossy().into_owned()
}

/// Whether a server is reached over HTTPS, or is on this machine.
fn is_private(remote: &str) -> bool {
    let Some((scheme, rest)) = remote.split_once("://") else { return false };
    let authority = rest.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let name = match host.strip_prefix('[') {
        Some(address) => address.split(']').next(),
        None => host.split(':').next(),
    };
    let is_loopback =
        |name: &str| name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    scheme.eq_ignore_ascii_case("https") || (scheme.eq_ignore_ascii_case("http") && name.is_some_and(is_loopback))
}

/// Whether a URL names another host than that of the remote, or one that is reached less safely.
///
/// libgit2 decodes a user before it tells the URL that has it: the `/` of `https://git.example.com%2F@evil.example.com/` would
/// end the name of the host. So what has another user than the remote is elsewhere, and so is what has an `@` that is not the
/// remote's.
fn is_elsewhere(remote: &str, url: &str) -> bool {
    // Others, as in `git@example.com:a.git`, lead nowhere else.
    let (Some((scheme, rest)), Some((other_scheme, other))) = (remote.split_once("://"), url.split_once("://")) else {
        return false;
    };
    let (scheme, other_scheme) = (scheme.to_lowercase(), other_scheme.to_lowercase());
    let authority = rest.split('/').next().unwrap_or(rest);
    let (user, rest) = match authority.rfind('@') {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => ("", rest),
    };
    let user: Vec<u8> = percent_decode_str(user).chain([b'@']).collect();
    let other = other.strip_prefix(&*String::from_utf8_lossy(&user)).unwrap_or(other);
    if other.contains('@') {
        return scheme != other_scheme || !other.eq_ignore_ascii_case(rest);
    }
    let host = |rest: &str| rest.split('/').next().unwrap_or(rest).to_lowercase();
    let (host, other_host) = (host(rest), host(other));
    if scheme == other_scheme {
        return host != other_host;
    }
    let name = |host: &str| host.rsplit_once(':').map_or(host, |(name, _)| name).to_owned();
    other_scheme != "https" || name(&host) != name(&other_host)
}

/// Whether a certificate for `host` leads to one of the PEM certificates of `ca`, or is one of them.
///
/// libgit2 shows the server's own certificate only, so `ca` has to hold the intermediates as well.
fn is_signed(leaf: &[u8], ca: &[u8], host: &str) -> bool {
    let authorities: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(ca).filter_map(Result::ok).collect();
    let Ok(verifier) = ServerVerifier::new(authorities.clone()) else { return false };
    let Ok(name) = ServerName::try_from(host.to_owned()) else { return false };
    verifier.verify_server_cert(&CertificateDer::from(leaf), &authorities, &name, &[], UnixTime::now()).is_ok()
}

/// Whether `known_hosts` has this key for the host. Hashed host names are not read.
fn is_known(key: &[u8], known_hosts: &str, host: &str) -> bool {
    known_hosts.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', '@'])).any(|line| {
        let mut words = line.split_whitespace();
        let (Some(hosts), Some(_kind), Some(encoded)) = (words.next(), words.next(), words.next()) else {
            return false;
        };
        let named = hosts.split(',').any(|name| {
            // `[host]:port` names a port; libgit2 tells the host alone.
            let name = name.strip_prefix('[').and_then(|rest| rest.split_once(']')).map_or(name, |(name, _)| name);
            name == host
        });
        named && STANDARD.decode(encoded).is_ok_and(|known| known == key)
    })
}

#[cfg(test)]
mod tests {
    use stoa_pki::{CertificateAuthority, CertificateRequest};

    use super::*;

    #[test]
    fn a_certificate_is_checked_against_the_sources_own_authority() {
        let ca = CertificateAuthority::new("git").unwrap();
        let other = CertificateAuthority::new("other").unwrap();
        let issued = ca.issue(&CertificateRequest::server("git").dns("git.example.com")).unwrap();
        let leaf = CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).unwrap();
        assert!(is_signed(&leaf, ca.certificate_pem().as_bytes(), "git.example.com"));
        assert!(!is_signed(&leaf, ca.certificate_pem().as_bytes(), "evil.example.com"));
        assert!(!is_signed(&leaf, other.certificate_pem().as_bytes(), "git.example.com"));
        assert!(!is_signed(&leaf, b"", "git.example.com"));
        assert!(is_signed(&leaf, issued.certificate_pem.as_bytes(), "git.example.com"), "it is its own authority");
    }

    #[test]
    fn authorization_is_a_bearer_token_or_a_password() {
        let header = |values: &[(&str, &str)], url: &str| {
            let values = values.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
            values.collect::<Credentials>().authorization(url)
        };
        let basic = |text: &str| Some(format!("Basic {}", STANDARD.encode(text)));
        let url = "https://git.example.com/a.git";
        assert_eq!(header(&[], url), None);
        assert_eq!(header(&[("token", "t\n")], url), basic("git:t"));
        assert_eq!(header(&[("username", "bot"), ("password", "p")], url), basic("bot:p"));
        assert_eq!(header(&[("bearerToken", "b"), ("password", "p")], url), Some("Bearer b".to_owned()));
        for loopback in ["http://localhost:3000/a.git", "http://127.0.0.1/a.git", "http://[::1]:3000/a.git"] {
            assert_eq!(header(&[("bearerToken", "b")], loopback), Some("Bearer b".to_owned()), "{loopback}");
        }
        for open in ["http://git.example.com/a.git", "http://localhost@git.example.com/a.git"] {
            let shown = header(&[("bearerToken", "b")], open).unwrap_or_default();
            assert!(!shown.starts_with("Bearer"), "{open}");
        }
        let with_user = "https://b%40t:p%2Fw@git.example.com/a@b.git";
        assert_eq!(header(&[], with_user), basic("b@t:p/w"));
        assert_eq!(header(&[("token", "t")], with_user), basic("b@t:t"));
    }

    #[test]
    fn another_host_sees_no_credentials() {
        for (remote, url, elsewhere) in [
            ("https://git.example.com/a.git", "https://git.example.com/a.git/info/refs", false),
            ("https://bot@Git.example.com/a.git", "https://git.example.com/b.git", false),
            ("http://git.example.com/a.git", "https://git.example.com/a.git", false),
            ("http://git.example.com:80/a.git", "https://git.example.com/a.git", false),
            ("https://git.example.com/a.git", "http://git.example.com/a.git", true),
            ("https://git.example.com/a.git", "https://evil.example.com/a.git", true),
            ("https://git.example.com/a.git", "https://git.example.com@evil.example.com/a.git", true),
            ("https://git.example.com/a.git", "https://git.example.com:8443/a.git", true),
            ("git@git.example.com:a.git", "git@git.example.com:a.git", false),
            // As libgit2 tells `https://git.example.com%2F@evil.example.com/x`.
            ("https://git.example.com/a.git", "https://git.example.com/@evil.example.com/x", true),
            ("https://bot@git.example.com/a.git", "https://bot@git.example.com/@evil.example.com/x", true),
            ("https://git.example.com/a.git", "https://bot@git.example.com/a.git", true),
            ("https://b%40t@git.example.com/a.git", "https://b@t@git.example.com/a.git", false),
            ("https://git.example.com/@team/a.git", "https://git.example.com/@team/a.git", false),
            ("https://git.example.com/@team/a.git", "https://git.example.com/@evil.example.com/a.git", true),
        ] {
            assert_eq!(is_elsewhere(remote, url), elsewhere, "{remote} {url}");
        }
    }

    #[test]
    fn a_host_key_is_checked_against_known_hosts() {
        let known = format!("# ours\n[git.example.com]:2222,alias ssh-ed25519 {}\n", STANDARD.encode("key"));
        assert!(is_known(b"key", &known, "git.example.com"));
        assert!(is_known(b"key", &known, "alias"));
        assert!(!is_known(b"other", &known, "git.example.com"));
        assert!(!is_known(b"key", &known, "evil.example.com"));
    }
}
