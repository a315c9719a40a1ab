//! Git over SSH, with libssh2, as libgit2 has it.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use ssh2::{Channel, CheckResult, KnownHostFileKind, Session};

use crate::remote::{Access, Advertised, Errors, RemoteError, Service};

/// How long a connection may take, and how long the server may be silent.
const CONNECT: Duration = Duration::from_secs(10);
const SILENCE_MILLIS: u32 = 60_000;

/// The most bytes of an answer.
const MOST_ANSWERED: u64 = 256 << 20;

/// A session with one running command.
pub(crate) struct Ssh {
    channel: Channel,
    /// It ends with the session.
    _session: Session,
    errors: Errors,
}

impl std::fmt::Debug for Ssh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ssh").finish_non_exhaustive()
    }
}

/// The parts of an address.
#[derive(Debug, PartialEq, Eq)]
struct Address {
    user: Option<String>,
    host: String,
    port: u16,
    path: String,
}

impl Address {
    /// Parses `ssh://user@host:port/path` and `user@host:path`.
    fn parse(url: &str) -> Option<Self> {
        if url.contains("://") {
            let parsed = url::Url::parse(url).ok()?;
            let host = parsed.host_str()?.trim_start_matches('[').trim_end_matches(']').to_owned();
            let user = Some(parsed.username()).filter(|user| !user.is_empty()).map(str::to_owned);
            let path = stoa_git::decoded(parsed.path());
            // A path from somebody's home.
            let path = if path.starts_with("/~") { path[1..].to_owned() } else { path };
            return Some(Self { user, host, port: parsed.port().unwrap_or(22), path });
        }
        let (authority, path) = url.split_once(':')?;
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user.to_owned()), host),
            None => (None, authority),
        };
        Some(Self { user, host: host.to_owned(), port: 22, path: path.to_owned() }).filter(|all| !all.host.is_empty())
    }
}

/// A word of a shell command.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''").replace('!', r"'\!'"))
}

impl Ssh {
    /// Connects, starts the service and lists the refs.
    pub(crate) fn open(access: &Access, service: Service) -> Result<(Self, Advertised), RemoteError> {
        let errors = Errors::of(access);
        let invalid = || errors.make(RemoteError::Invalid, "it is no address of an SSH server");
        let address = Address::parse(&access.url).ok_or_else(invalid)?;
        let unreachable = |message: String| errors.make(RemoteError::Unreachable, message);
        let of_session = |err: ssh2::Error| unreachable(err.message().to_owned());
        let stream = connect(&address).map_err(|err| unreachable(err.to_string()))?;
        let mut session = Session::new().map_err(of_session)?;
        session.set_timeout(SILENCE_MILLIS);
        session.set_tcp_stream(stream);
        session.handshake().map_err(of_session)?;
        check_host(&session, access, &address).map_err(|message| errors.make(RemoteError::Untrusted, message))?;
        log_in(&session, access, &address).map_err(|message| errors.make(RemoteError::Unauthorized, message))?;
        let mut channel = session.channel_session().map_err(of_session)?;
        channel.exec(&format!("{} {}", service.name(), quoted(&address.path))).map_err(of_session)?;
        let advertised = Advertised::read(&mut channel).map_err(|err| {
            let mut said = String::new();
            // The server's reason, if it has one.
            let _ = channel.stderr().take(4096).read_to_string(&mut said);
            let said = said.trim();
            let is_absent = said.contains("does not appear to be a git repository") || said.contains("not found");
            match said {
                "" => unreachable(err.to_string()),
                said if is_absent => errors.make(RemoteError::NotFound, said),
                said => unreachable(said.to_owned()),
            }
        })?;
        Ok((Self { channel, _session: session, errors }, advertised))
    }

    /// Sends a push.
    pub(crate) fn push(mut self, request: &[u8]) -> Result<Vec<u8>, RemoteError> {
        let mut answer = Vec::new();
        let sent = self.channel.write_all(request).and_then(|()| self.channel.flush());
        let sent = sent.and_then(|()| self.channel.send_eof().map_err(std::io::Error::from));
        let sent = sent.and_then(|()| (&mut self.channel).take(MOST_ANSWERED).read_to_end(&mut answer));
        match sent {
            Ok(_) => Ok(answer),
            Err(err) => Err(self.errors.make(RemoteError::Unanswered, err.to_string())),
        }
    }
}

fn connect(address: &Address) -> std::io::Result<TcpStream> {
    let mut failed = std::io::Error::other("the host has no address");
    for address in (address.host.as_str(), address.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(err) => failed = err,
        }
    }
    Err(failed)
}

/// Checks the key of the server by `known_hosts` of the credentials, else by that of the user.
fn check_host(session: &Session, access: &Access, address: &Address) -> Result<(), String> {
    let (key, _) = session.host_key().ok_or("it shows no host key")?;
    let Address { host, port, .. } = address;
    if let Some(is_known) = access.credentials.knows_host_key(key, host) {
        return if is_known { Ok(()) } else { Err(format!("known_hosts does not vouch for {host}")) };
    }
    let mut known = session.known_hosts().map_err(|err| err.message().to_owned())?;
    let file = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".ssh/known_hosts"));
    if let Some(file) = file.filter(|file| file.is_file()) {
        known.read_file(&file, KnownHostFileKind::OpenSSH).map_err(|err| err.message().to_owned())?;
    }
    match known.check_port(host, *port, key) {
        CheckResult::Match => Ok(()),
        CheckResult::Mismatch => Err(format!("known_hosts has another key for {host}")),
        CheckResult::NotFound | CheckResult::Failure => {
            Err(format!("known_hosts has no key for {host}; add known_hosts to the Secret"))
        }
    }
}

fn log_in(session: &Session, access: &Access, address: &Address) -> Result<(), String> {
    let login = access.credentials.login();
    // The server knows the URL's user by then.
    let user = address.user.as_deref().or(login.user).unwrap_or("git");
    let result = match (login.key, login.password) {
        (Some(key), _) => session.userauth_pubkey_memory(user, None, key, login.passphrase),
        (None, Some(password)) => session.userauth_password(user, password),
        (None, None) => return Err("there is no ssh-privatekey".to_owned()),
    };
    result.map_err(|err| err.message().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_two_forms() {
        let parsed = |url: &str| Address::parse(url).map(|it| (it.user, it.host, it.port, it.path));
        let some = |user: Option<&str>, host: &str, port: u16, path: &str| {
            Some((user.map(str::to_owned), host.to_owned(), port, path.to_owned()))
        };
        assert_eq!(parsed("git@example.com:a/b.git"), some(Some("git"), "example.com", 22, "a/b.git"));
        assert_eq!(parsed("ssh://example.com/a%20b.git"), some(None, "example.com", 22, "/a b.git"));
        assert_eq!(parsed("ssh://me@[::1]:2222/~me/a"), some(Some("me"), "::1", 2222, "~me/a"));
        assert_eq!(parsed("/srv/a.git"), None);
    }

    #[test]
    fn quoted_paths_are_one_word() {
        assert_eq!(quoted("/srv/it's.git"), r"'/srv/it'\''s.git'");
    }
}
