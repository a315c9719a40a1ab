//! Where the runtime gets its providers from.

use std::fmt;

use async_trait::async_trait;
use serde_json::{Map, Value};
use stoa_engine::SourceLock;
use stoa_engine::provider::ProviderLock;
use stoa_runtime::RuntimeError;
use stoa_terraform_provider::package::Address;
use stoa_terraform_provider::pool::Lease;

/// A provider that a resource needs.
#[derive(Clone, Debug)]
pub struct ProviderRequest<'a> {
    /// The address of the provider.
    pub address: &'a Address,
    /// The version that the resource names, if any.
    pub version: Option<&'a str>,
    /// The configuration that the resource names. It takes precedence over that of the workspace, argument by argument.
    pub configuration: Option<&'a Map<String, Value>>,
    /// The lock of the source, for a workspace without one.
    pub lock: Option<&'a SourceLock>,
}

/// The providers of a workspace: installed, verified, started and configured.
#[async_trait]
pub trait Providers: fmt::Debug + Send + Sync + 'static {
    /// A provider that is ready for calls. The caller drops the lease after its calls.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::Invalid`] when the workspace, the mirror or the lock file does not have the provider, or when
    /// its configuration is wrong. [`RuntimeError::Unread`] when a retry may help. No message contains a secret.
    async fn get(&self, request: &ProviderRequest<'_>) -> Result<Lease, RuntimeError>;

    /// The lock that decides the version of a provider, if there is one and it has the provider.
    fn lock(&self, _request: &ProviderRequest<'_>) -> Option<ProviderLock> {
        None
    }

    /// What the destination of the resources is, for people, without secrets. It is the same text for the same
    /// providers with the same configuration.
    fn destination(&self) -> String;
}
