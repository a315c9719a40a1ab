//! Credentials of sources and repositories.

use git2::RemoteCallbacks;
use stoa_git::Credentials;
use stoa_proto::Source;

use super::authorities;

/// The credentials of a repository, for connections to its server.
#[derive(Clone, Debug)]
pub(super) struct Authenticated {
    remote: String,
    credentials: Credentials,
    has_authority: bool,
}

impl Authenticated {
    /// The credentials of a source.
    pub(super) fn with(source: &Source) -> Self {
        let has_authority = has_authority(source);
        Self { remote: source.remote.clone(), credentials: credentials(source), has_authority }
    }

    pub(super) fn callbacks(&self) -> RemoteCallbacks<'_> {
        self.credentials.callbacks(&self.remote)
    }

    pub(super) fn credentials(&self) -> Credentials {
        self.credentials.clone()
    }

    /// Prepares a connection to a server, by its URL after Git's settings.
    pub(super) fn before(&self, address: &[u8]) {
        authorities::ready_for(address, self.has_authority);
    }
}

/// Whether a source names the authority of its server, and no other counts.
pub(super) fn has_authority(source: &Source) -> bool {
    source.credentials.contains_key("ca.crt")
}

pub(super) fn credentials(source: &Source) -> Credentials {
    source.credentials.iter().map(|(key, value)| (key.clone(), value.to_vec())).collect()
}

pub(super) fn callbacks(source: &Source) -> RemoteCallbacks<'static> {
    credentials(source).callbacks(&source.remote)
}
