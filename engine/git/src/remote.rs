//! One connection to a Git server, for its refs and for a push.
//!
//! Start at [`Connection::open`]. Repositories in folders have no connection: see `folder`.

use std::io::{self, Read};
use std::path::PathBuf;

use git2::Oid;
use stoa_git::Credentials;

use crate::http::Http;
use crate::packet::{self, Packet};
use crate::ssh::Ssh;

/// The most bytes of a list of refs: a million of them.
const MOST_LISTED: usize = 128 << 20;

/// How a server is reached.
#[derive(Clone, Debug)]
pub struct Access {
    /// The URL, after Git's settings.
    pub url: String,
    /// What the server is shown, and who it has to be.
    pub credentials: Credentials,
    /// The file with the certificates of all authorities, PEM; those of the system if absent.
    pub authorities: Option<PathBuf>,
}

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// To fetch.
    UploadPack,
    /// To push.
    ReceivePack,
}

impl Service {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::UploadPack => "git-upload-pack",
            Self::ReceivePack => "git-receive-pack",
        }
    }
}

/// Why a server could not be used. No message has a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// The server wants other credentials.
    #[error("{0} refuses the credentials: {1}; correct the Secret")]
    Unauthorized(String, String),
    /// The server is not who it should be.
    #[error("{0} is not who it should be: {1}")]
    Untrusted(String, String),
    /// There is no such repository, or not for these credentials.
    #[error("{0} does not exist: {1}")]
    NotFound(String, String),
    /// The server leads to another address.
    #[error("{0} leads to {1}; write that address instead")]
    Elsewhere(String, String),
    /// The server is away, or failed. Nothing was pushed.
    #[error("{0} cannot be reached: {1}")]
    Unreachable(String, String),
    /// The server did not answer a push, which may have arrived.
    #[error("{0} did not answer the push: {1}; repeat it")]
    Unanswered(String, String),
    /// The address cannot be used.
    #[error("{0} cannot be used: {1}")]
    Invalid(String, String),
}

/// The refs of a server, and what it can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advertised {
    /// Full names with their ids, in the order of the server. Ids of tags are those of the tags themselves.
    pub refs: Vec<(String, Oid)>,
    /// Such as `atomic`.
    pub capabilities: Vec<String>,
}

impl Advertised {
    /// The id of a ref.
    pub fn get(&self, name: &str) -> Option<Oid> {
        self.refs.iter().find(|(other, _)| other == name).map(|(_, id)| *id)
    }

    /// Whether the server has a capability.
    pub fn can(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|other| other == capability)
    }

    /// The branch that HEAD stands for, if the server says so.
    pub fn head(&self) -> Option<&str> {
        self.capabilities.iter().find_map(|capability| capability.strip_prefix("symref=HEAD:"))
    }

    /// Reads the list up to its end.
    pub(crate) fn read(from: &mut impl Read) -> io::Result<Self> {
        let invalid = |message: &str| io::Error::new(io::ErrorKind::InvalidData, message.to_owned());
        let mut advertised = Self::default();
        let mut listed = 0;
        let mut is_first = true;
        loop {
            let line = match packet::read(from)? {
                Some(Packet::Data(line)) => line,
                Some(Packet::Flush) if is_first => return Ok(advertised),
                Some(Packet::Flush) => break,
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            };
            listed += line.len();
            if listed > MOST_LISTED {
                return Err(invalid("it has too many refs"));
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches('\n');
            if let Some(message) = text.strip_prefix("ERR ") {
                return Err(io::Error::other(message.to_owned()));
            }
            let (entry, capabilities) = text.split_once('\0').unwrap_or((text, ""));
            if is_first {
                advertised.capabilities = capabilities.split_whitespace().map(str::to_owned).collect();
            }
            is_first = false;
            let (id, name) = entry.split_once(' ').ok_or_else(|| invalid("it lists no refs; is it a Git server?"))?;
            let id = Oid::from_str(id).ok().filter(|_| id.len() == 40);
            let id = id.ok_or_else(|| invalid("it lists no refs with SHA-1 ids"))?;
            if name != "capabilities^{}" && !name.ends_with("^{}") && !name.starts_with('.') {
                advertised.refs.push((name.to_owned(), id));
            }
        }
        Ok(advertised)
    }
}

/// A connection, whose server has listed its refs.
#[derive(Debug)]
pub struct Connection {
    channel: Channel,
    advertised: Advertised,
    errors: Errors,
}

#[derive(Debug)]
enum Channel {
    Http(Box<Http>),
    Ssh(Ssh),
}

/// Makes errors about one server.
#[derive(Clone, Debug)]
pub(crate) struct Errors {
    url: String,
    credentials: Credentials,
}

impl Errors {
    pub(crate) fn of(access: &Access) -> Self {
        Self { url: access.url.clone(), credentials: access.credentials.clone() }
    }

    /// An error with this message, which may repeat words of the server.
    pub(crate) fn make(
        &self,
        make: impl FnOnce(String, String) -> RemoteError,
        message: impl AsRef<str>,
    ) -> RemoteError {
        make(stoa_git::without_userinfo(&self.url), self.scrub(message.as_ref()))
    }

    /// A text of the server without credentials.
    pub(crate) fn scrub(&self, text: &str) -> String {
        stoa_git::scrub(text, &self.url, &self.credentials)
    }
}

impl Connection {
    /// Connects, and lists the refs.
    ///
    /// # Errors
    ///
    /// All of [`RemoteError`] but [`RemoteError::Unanswered`].
    pub fn open(access: &Access, service: Service) -> Result<Self, RemoteError> {
        let errors = Errors::of(access);
        let scheme = access.url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        let (channel, advertised) = match scheme.as_deref() {
            Some("http" | "https") => {
                let (http, advertised) = Http::open(access, service)?;
                (Channel::Http(Box::new(http)), advertised)
            }
            None | Some("ssh" | "git+ssh" | "ssh+git") => {
                let (ssh, advertised) = Ssh::open(access, service)?;
                (Channel::Ssh(ssh), advertised)
            }
            Some(_) => return Err(errors.make(RemoteError::Invalid, "use https://, ssh:// or a path")),
        };
        Ok(Self { channel, advertised, errors })
    }

    /// The refs.
    pub fn advertised(&self) -> &Advertised {
        &self.advertised
    }

    /// Sends a push, and returns the whole answer.
    ///
    /// # Errors
    ///
    /// [`RemoteError::Unanswered`] once anything was sent.
    pub(crate) fn push(self, request: Vec<u8>) -> Result<Vec<u8>, RemoteError> {
        match self.channel {
            Channel::Http(http) => http.push(request),
            Channel::Ssh(ssh) => ssh.push(&request),
        }
    }

    pub(crate) fn errors(&self) -> &Errors {
        &self.errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(lines: &[&[u8]]) -> io::Result<Advertised> {
        let mut bytes = Vec::new();
        lines.iter().for_each(|line| packet::write(&mut bytes, line));
        packet::flush(&mut bytes);
        Advertised::read(&mut bytes.as_slice())
    }

    #[test]
    fn refs_and_capabilities_are_read() {
        let id = "1".repeat(40);
        let first = format!("{id} refs/heads/main\0report-status atomic symref=HEAD:refs/heads/main\n");
        let tag = format!("{id} refs/tags/v1\n");
        let peeled = format!("{id} refs/tags/v1^{{}}\n");
        let advertised = listed(&[first.as_bytes(), tag.as_bytes(), peeled.as_bytes()]).unwrap();
        assert_eq!(advertised.refs.len(), 2);
        assert_eq!(advertised.get("refs/tags/v1"), Oid::from_str(&id).ok());
        assert!(advertised.can("atomic") && !advertised.can("quiet"));
        assert_eq!(advertised.head(), Some("refs/heads/main"));
    }

    #[test]
    fn empty_repository_has_capabilities_alone() {
        let line = format!("{} capabilities^{{}}\0report-status atomic\n", "0".repeat(40));
        let advertised = listed(&[line.as_bytes()]).unwrap();
        assert!(advertised.refs.is_empty() && advertised.can("atomic"));
        assert_eq!(listed(&[]).unwrap(), Advertised::default());
    }

    #[test]
    fn other_answers_are_errors() {
        let refused = listed(&[b"ERR no such repository\n"]).unwrap_err();
        assert_eq!(refused.to_string(), "no such repository");
        for line in [b"<html>".as_slice(), b"abc refs/heads/main"] {
            assert!(listed(&[line]).is_err());
        }
    }
}
