//! Access to Git servers: credentials, the identity of the server, and the meaning of errors.
//!
//! Start at [`Credentials`]. [`explain`] sorts libgit2's errors by the reaction of a caller, in words without secrets. [`cache`] has
//! cached repositories, and [`fetch`] the limits of a fetch. Callers decide what to fetch and push.

mod auth;
pub mod cache;
mod error;
pub mod fetch;
mod local;
#[cfg(feature = "testing")]
pub mod testing;

use std::{collections::BTreeMap, fs, io, path::Path, sync::Arc};

use git2::{Config, ConfigLevel, ErrorClass, ErrorCode, RemoteRedirect, Repository};

pub use self::{
    auth::{Login, decoded},
    error::{Explanation, Problem, explain, is_here, scrub, without_userinfo},
    local::local_path,
};

/// What is shown to a Git server, and who it has to be: keys as in Secrets of the types `kubernetes.io/basic-auth`
/// (`username`, `password`) and `kubernetes.io/ssh-auth` (`ssh-privatekey`), or `token`, or `bearerToken`; `ssh-passphrase` opens the key,
/// `known_hosts` and `ca.crt` (PEM, with the intermediates) say who the server is.
#[derive(Clone, Default, educe::Educe)]
#[educe(Debug)]
pub struct Credentials(#[educe(Debug(ignore))] Arc<BTreeMap<String, Vec<u8>>>);

impl Credentials {
    /// The keys that mean anything.
    pub const KEYS: [&str; 8] =
        ["username", "password", "token", "bearerToken", "ssh-privatekey", "ssh-passphrase", "known_hosts", "ca.crt"];

    /// Reads a folder in which each key is a file, as where a Secret is mounted; other files in it are left alone.
    ///
    /// # Errors
    ///
    /// When the folder is not there, or a file in it cannot be read.
    pub fn read(folder: &Path) -> io::Result<Self> {
        fs::read_dir(folder)?;
        let mut credentials = BTreeMap::new();
        for key in Self::KEYS {
            match fs::read(folder.join(key)) {
                Ok(value) => drop(credentials.insert(key.to_owned(), value)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self(Arc::new(credentials)))
    }

    /// Whether there is anything that no other server may see.
    pub fn has_secrets(&self) -> bool {
        self.secrets().next().is_some()
    }

    /// How far a server is followed that sends us elsewhere: libgit2 shows what it was given once to whoever asks next, so that
    /// nobody is followed to another host who was shown a secret.
    pub fn redirects(&self) -> RemoteRedirect {
        if self.has_secrets() { RemoteRedirect::None } else { RemoteRedirect::Initial }
    }

    fn get(&self, key: &str) -> Option<&[u8]> {
        self.0.get(key).map(Vec::as_slice)
    }

    /// A value that is text, without white space around it.
    fn text(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(|value| std::str::from_utf8(value).ok()).map(str::trim)
    }

    /// The values that nobody may see.
    fn secrets(&self) -> impl Iterator<Item = &str> {
        let is_secret = |key: &str| !matches!(key, "username" | "ca.crt" | "known_hosts");
        self.0.keys().filter(move |key| is_secret(key)).filter_map(|key| self.text(key))
    }
}

impl FromIterator<(String, Vec<u8>)> for Credentials {
    fn from_iter<I: IntoIterator<Item = (String, Vec<u8>)>>(values: I) -> Self {
        Self(Arc::new(values.into_iter().collect()))
    }
}

/// Has connections of a repository follow no server to another host, also those that only list refs, which take no
/// [`RemoteRedirect`] but go by the settings. Those that are in the repository stay as they are.
///
/// # Errors
///
/// When the settings cannot be written or read.
pub fn stay_at_host(repository: &Repository) -> Result<(), git2::Error> {
    const SETTINGS: &str = "[http]\n\tfollowRedirects = false\n";
    let os = |err: io::Error| git2::Error::new(ErrorCode::GenericError, ErrorClass::Os, err.to_string());
    let path = repository.path().join("redirects.gitconfig");
    if fs::read_to_string(&path).ok().as_deref() != Some(SETTINGS) {
        // Whole or not at all: others may read it.
        let unfinished = tempfile::NamedTempFile::new_in(repository.path()).map_err(os)?;
        fs::write(unfinished.path(), SETTINGS).map_err(os)?;
        unfinished.persist(&path).map_err(|err| os(err.error))?;
    }
    let mut config: Config = repository.config()?;
    config.add_file(&path, ConfigLevel::App, true)?;
    repository.set_config(&config)
}

/// Bounds how long a Git server may take to accept a connection, and to send or take the next bytes, for the whole
/// process.
///
/// libgit2 has no other way: by itself it waits for ever.
///
/// # Errors
///
/// What libgit2 has against it.
///
/// # Safety
///
/// No other thread may use Git: libgit2 keeps its options in globals without a lock. Call it first thing in `main`.
#[expect(unsafe_code, reason = "libgit2's options are globals")]
pub unsafe fn set_timeouts() -> Result<(), git2::Error> {
    // SAFETY: the caller sees to it that no other thread uses Git.
    unsafe {
        git2::opts::set_server_connect_timeout_in_milliseconds(10_000)?;
        git2::opts::set_server_timeout_in_milliseconds(30_000)
    }
}
