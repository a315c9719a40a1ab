//! The calls of a provider, by one type for both protocols.
//!
//! Start at [`Provider::start`]. The schemas come with it, so that every call encodes strictly what the schema permits.
//! Calls in flight share one process; each may be called at any time, and by any number of tasks.
//!
//! Elsewhere: `resources` with its `requests`, `data`, `identity` and `ephemeral` have the calls by subject, [`Diagnostic`] is what a
//! provider reports, [`CallError`] is a call without an answer.

mod call;
mod data;
mod diagnostics;
mod ephemeral;
mod identity;
mod messages;
mod observer;
mod requests;
mod resources;
mod schemas;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tonic::transport::Channel;

use crate::generated::tfplugin6 as proto;
use crate::process::{Exit, Launcher, Process, StartError, StartOptions};
use crate::value::Value;

pub use self::call::{Call, CallError};
pub use self::data::DataAnswer;
pub use self::diagnostics::{Diagnostic, Diagnostics, Severity};
pub use self::ephemeral::{OpenAnswer, RenewAnswer};
pub use self::identity::IdentitySchema;
pub use self::observer::Observer;
pub use self::requests::{
    ApplyAnswer, ApplyRequest, ImportAnswer, ImportRequest, MoveAnswer, MoveRequest, PlanAnswer, PlanRequest, RawState,
    ReadAnswer, ReadRequest, UpgradeAnswer,
};
pub use self::schemas::{Capabilities, Schemas};

/// The version of Terraform that providers see.
const TERRAFORM_VERSION: &str = "1.11.4";

/// The version of the provider protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Version 5.
    V5,
    /// Version 6.
    V6,
}

/// The limits of calls.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The size of an answer, in bytes.
    pub answer: usize,
    /// The size of the answer with all schemas, in bytes.
    pub schemas: usize,
    /// The duration of a change. A create may take an hour.
    pub time: Duration,
    /// The duration of any other call, such as a read or a plan.
    pub read: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            answer: 256 << 20,
            schemas: 64 << 20,
            time: Duration::from_secs(2 * 60 * 60),
            read: Duration::from_secs(10 * 60),
        }
    }
}

/// A provider that accepts calls. Its process ends with this value.
#[derive(Debug)]
pub struct Provider {
    process: Process,
    channel: Channel,
    protocol: Protocol,
    limits: Limits,
    schemas: Arc<Schemas>,
    /// The number of calls.
    calls: AtomicU64,
    observer: Arc<dyn Observer>,
}

/// A provider that did not start, or did not answer with its schemas.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// The process did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The schemas are not available.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl Provider {
    /// Starts a provider and reads its schemas.
    ///
    /// Schemas of an earlier process of the same executable are used again if the provider permits it. Some providers
    /// know their resources only after the call for the schemas.
    ///
    /// # Errors
    ///
    /// If the process does not start, or the call for the schemas fails.
    pub async fn start(
        launcher: &dyn Launcher,
        options: &StartOptions,
        limits: Limits,
        known: Option<Arc<Schemas>>,
    ) -> Result<Self, ProviderError> {
        let process = Process::start(launcher, options).await?;
        // The handshake accepts no other version than 5 and 6.
        let protocol = if process.version == 5 { Protocol::V5 } else { Protocol::V6 };
        let channel = process.channel();
        let schemas = known.clone().unwrap_or_default();
        let (calls, observer) = (AtomicU64::new(0), Arc::new(()));
        let mut provider = Self { process, channel, protocol, limits, schemas, calls, observer };
        match known {
            Some(known) if known.capabilities.get_provider_schema_optional => {}
            _ => provider.schemas = Arc::new(provider.read_schemas().await?),
        }
        Ok(provider)
    }

    /// The same, whose further calls an observer hears of.
    #[must_use]
    pub fn observed(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer, ..self }
    }

    /// The schemas of everything that the provider offers.
    pub fn schemas(&self) -> &Arc<Schemas> {
        &self.schemas
    }

    /// The protocol that the provider speaks.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// How many calls there were. Providers keep some memory of each.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Validates the configuration of the provider. Its answer is only a verdict: the configuration itself is used.
    ///
    /// # Errors
    ///
    /// If the call has no answer.
    pub async fn validate_provider(&self, config: &Value) -> Result<Diagnostics, CallError> {
        let config = self.encode(Call::ValidateProvider, "", config, &self.schemas.provider.block.implied_type())?;
        let request = proto::validate_provider_config::Request { config };
        let answer: proto::validate_provider_config::Response = self.call(Call::ValidateProvider, "", request).await?;
        Ok(answer.diagnostics.into())
    }

    /// Configures the process. The last configuration is that of all calls, so a process has one configuration.
    ///
    /// # Errors
    ///
    /// If the call has no answer.
    pub async fn configure(&self, config: &Value) -> Result<Diagnostics, CallError> {
        let config = self.encode(Call::Configure, "", config, &self.schemas.provider.block.implied_type())?;
        let request = proto::configure_provider::Request {
            terraform_version: TERRAFORM_VERSION.to_owned(),
            config,
            client_capabilities: Some(messages::client_capabilities()),
        };
        let answer: proto::configure_provider::Response = self.call(Call::Configure, "", request).await?;
        Ok(answer.diagnostics.into())
    }

    /// Asks all calls in flight to end, and frees the memory that each call leaves behind. Providers with the older
    /// library have to be configured again.
    ///
    /// # Errors
    ///
    /// If the call has no answer, or the provider cannot stop.
    pub async fn stop(&self) -> Result<(), CallError> {
        let request = proto::stop_provider::Request {};
        let answer: proto::stop_provider::Response = self.call(Call::Stop, "", request).await?;
        if answer.error.is_empty() { Ok(()) } else { Err(CallError::Stop(answer.error)) }
    }

    /// Ends the process and all calls in flight.
    pub async fn shut_down(self) -> Exit {
        drop(self.channel);
        self.process.shut_down().await
    }
}
