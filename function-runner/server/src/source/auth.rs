//! The credentials of sources and repositories, as the wire has them.

use git2::RemoteCallbacks;
use stoa_git::Credentials;
use stoa_proto::Source;
use stoa_runtime_gitops::Connect;

/// The credentials of a repository, as a runtime that reaches it wants them.
#[derive(Clone, Debug)]
pub(crate) struct Authenticated {
    remote: String,
    credentials: Credentials,
}

impl Authenticated {
    /// With those of a source.
    pub(crate) fn with(source: &Source) -> Self {
        Self { remote: source.remote.clone(), credentials: credentials(source) }
    }
}

impl Connect for Authenticated {
    fn callbacks(&self) -> RemoteCallbacks<'_> {
        self.credentials.callbacks(&self.remote)
    }

    fn credentials(&self) -> Credentials {
        self.credentials.clone()
    }
}

pub(super) fn credentials(source: &Source) -> Credentials {
    source.credentials.iter().map(|(key, value)| (key.clone(), value.to_vec())).collect()
}

pub(super) fn callbacks(source: &Source) -> RemoteCallbacks<'static> {
    credentials(source).callbacks(&source.remote)
}
