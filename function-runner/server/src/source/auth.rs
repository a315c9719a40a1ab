//! Shows a source's credentials to its Git server, and checks who the server is.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use git2::cert::Cert;
use git2::{CertificateCheckStatus, Cred, CredentialType, Error, ErrorClass, ErrorCode, RemoteCallbacks};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use stoa_proto::Source;
use stoa_runtime_gitops::Connect;

/// The credentials of a repository, as a runtime that reaches it wants them.
#[derive(Clone)]
pub(crate) struct Credentials(Source);

impl Credentials {
    /// Those of a source.
    pub(crate) fn of(source: Source) -> Self {
        Self(source)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl Connect for Credentials {
    fn callbacks(&self) -> RemoteCallbacks<'_> {
        callbacks(&self.0)
    }
}

/// Keys as in Secrets of type kubernetes.io/basic-auth and kubernetes.io/ssh-auth, or `token`;
/// `known_hosts` and `ca.crt` say who the server is.
pub(super) fn callbacks(source: &Source) -> RemoteCallbacks<'_> {
    let text = |key: &str| source.credentials.get(key).and_then(|value| std::str::from_utf8(value).ok()).map(str::trim);
    let mut callbacks = RemoteCallbacks::new();
    // libgit2 asks again for as long as the server refuses; what was refused once stays refused.
    let mut shown = CredentialType::empty();
    callbacks.credentials(move |_, user, allowed| {
        let user = text("username").filter(|name| !name.is_empty()).or(user);
        let mut show = |kind: CredentialType| {
            let first = allowed.contains(kind) && !shown.contains(kind);
            shown.insert(kind);
            first
        };
        if allowed.contains(CredentialType::USERNAME) && show(CredentialType::USERNAME) {
            return Cred::username(user.unwrap_or("git"));
        }
        if let Some(key) = source.credentials.get("ssh-privatekey").and_then(|key| std::str::from_utf8(key).ok())
            && show(CredentialType::SSH_KEY)
        {
            return Cred::ssh_key_from_memory(user.unwrap_or("git"), None, key, text("ssh-passphrase"));
        }
        if let Some(password) = text("password").or_else(|| text("token"))
            && show(CredentialType::USER_PASS_PLAINTEXT)
        {
            // Servers that take tokens look at the password only, but want some user.
            return Cred::userpass_plaintext(user.unwrap_or("git"), password);
        }
        let message = if shown.is_empty() {
            "the server asks for credentials, and the source has none that fit"
        } else {
            "the server refuses the source's credentials"
        };
        Err(Error::new(ErrorCode::Auth, ErrorClass::Callback, message))
    });
    if source.credentials.contains_key("ca.crt") || source.credentials.contains_key("known_hosts") {
        callbacks.certificate_check(|certificate, host| check(source, certificate, host));
    }
    callbacks
}

fn check(source: &Source, certificate: &Cert<'_>, host: &str) -> Result<CertificateCheckStatus, Error> {
    let trusted = if let (Some(x509), Some(ca)) = (certificate.as_x509(), source.credentials.get("ca.crt")) {
        is_signed(x509.data(), ca, host)
    } else if let (Some(key), Some(known)) = (certificate.as_hostkey(), source.credentials.get("known_hosts")) {
        key.hostkey().is_some_and(|key| is_known(key, &String::from_utf8_lossy(known), host))
    } else {
        return Ok(CertificateCheckStatus::CertificatePassthrough);
    };
    if trusted {
        return Ok(CertificateCheckStatus::CertificateOk);
    }
    let by = if certificate.as_x509().is_some() { "ca.crt" } else { "known_hosts" };
    Err(Error::new(
        ErrorCode::Certificate,
        ErrorClass::Callback,
        format!("{by} of the source does not vouch for {host}"),
    ))
}

/// Whether a certificate for `host` leads to one of the PEM certificates of `ca`.
///
/// libgit2 shows the server's own certificate only, so `ca` has to hold the intermediates as well.
fn is_signed(leaf: &[u8], ca: &[u8], host: &str) -> bool {
    let authorities: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(ca).filter_map(Result::ok).collect();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities.iter().cloned());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let Ok(verifier) = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build() else {
        return false;
    };
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
