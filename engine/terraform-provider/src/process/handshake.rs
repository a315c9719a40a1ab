//! The line that a plugin prints when it accepts calls.

use std::path::{Path, PathBuf};

use rustls_pki_types::CertificateDer;

use super::tls;

/// The parts of the line that matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// The version of its protocol. Providers ignore the versions that a client asks for.
    pub version: u32,
    /// The socket.
    pub socket: PathBuf,
    /// The certificate of the provider, if it speaks TLS.
    pub certificate: Option<CertificateDer<'static>>,
}

/// A line that does not begin the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The line has another form.
    #[error("its first line {0:?} is no handshake; the executable is no plugin")]
    Form(String),
    /// The plugin speaks another version than the supported ones.
    #[error("it speaks version {0} of the protocol; supported: {1}")]
    Version(String, String),
    /// The provider listens elsewhere.
    #[error("it listens at {0:?}, which is not in its folder")]
    Address(String),
    /// The certificate has another form.
    #[error("it sends a certificate that cannot be read; its library does not follow the plugin protocol")]
    Certificate,
}

impl Handshake {
    /// Reads the line of a plugin that may have these versions. The socket has to be directly in the plugin's folder.
    ///
    /// # Errors
    ///
    /// If the line has another form, version or address.
    pub fn parse(line: &str, folder: &Path, versions: &[u32]) -> Result<Self, HandshakeError> {
        let form = || HandshakeError::Form(line.chars().take(200).collect());
        let mut fields = line.trim_end_matches(['\r', '\n']).split('|');
        let mut next = || fields.next().ok_or_else(form);
        let (core, version, network, address) = (next()?, next()?, next()?, next()?);
        if core != "1" || next()? != "grpc" {
            return Err(form());
        }
        let is_supported = |found: &u32| versions.contains(found);
        let wrong = || HandshakeError::Version(version.to_owned(), joined(versions));
        let version = version.parse().ok().filter(is_supported).ok_or_else(wrong)?;
        let socket = PathBuf::from(address);
        if network != "unix" || socket.parent() != Some(folder) {
            return Err(HandshakeError::Address(format!("{network}:{address}")));
        }
        // Another field may follow, which says whether calls can share brokered connections.
        match fields.next() {
            None | Some("") => Ok(Self { version, socket, certificate: None }),
            Some(text) => {
                let certificate = tls::certificate(text).ok_or(HandshakeError::Certificate)?;
                Ok(Self { version, socket, certificate: Some(certificate) })
            }
        }
    }
}

/// Versions with commas in between, as the environment of a plugin and errors have them.
pub(super) fn joined(versions: &[u32]) -> String {
    versions.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Handshake, HandshakeError> {
        Handshake::parse(line, Path::new("/t"), &[5, 6])
    }

    #[test]
    fn lines_name_version_and_socket() {
        let expected = |version| Ok(Handshake { version, socket: "/t/plugin1".into(), certificate: None });
        assert_eq!(parse("1|5|unix|/t/plugin1|grpc|\n"), expected(5));
        assert_eq!(parse("1|6|unix|/t/plugin1|grpc||true\n"), expected(6));
        assert_eq!(parse("1|6|unix|/t/plugin1|grpc"), expected(6));
    }

    #[test]
    fn other_lines_are_rejected() {
        assert_eq!(parse("1|4|unix|/t/plugin1|grpc|"), Err(HandshakeError::Version("4".to_owned(), "5,6".to_owned())));
        assert_eq!(parse("1|5|tcp|127.0.0.1:1|grpc|"), Err(HandshakeError::Address("tcp:127.0.0.1:1".to_owned())));
        assert!(matches!(parse("1|5|unix|/t/../etc/x|grpc|"), Err(HandshakeError::Address(_))));
        assert_eq!(parse("1|5|unix|/t/plugin1|grpc|MIIB"), Err(HandshakeError::Certificate));
        for line in ["", "hello", "2|5|unix|/t/plugin1|grpc|", "1|5|unix|/t/plugin1|netrpc|"] {
            assert_eq!(parse(line), Err(HandshakeError::Form(line.to_owned())));
        }
    }
}
