//! The credentials of sources and repositories, as the wire has them.

use std::collections::HashMap;

use stoa_git::Credentials;
use stoa_proto::Source;
use stoa_runtime_gitops::Connect;

/// The credentials of a repository, as a runtime that reaches it wants them.
#[derive(Clone, Debug)]
pub(crate) struct Authenticated(Credentials);

impl Authenticated {
    /// With those of a source.
    pub(crate) fn with(source: &Source) -> Self {
        Self(credentials(source))
    }
}

impl Connect for Authenticated {
    fn callbacks(&self) -> git2::RemoteCallbacks<'_> {
        self.0.callbacks()
    }
}

pub(super) fn credentials(source: &Source) -> Credentials {
    source.credentials.iter().map(|(key, value)| (key.clone(), value.to_vec())).collect()
}
