//! The calls of ephemeral resources, whose results are never stored.

use std::time::SystemTime;

use bytes::Bytes;

use crate::generated::tfplugin6 as proto;
use crate::value::{Type, Value};

use super::call::{Call, CallError};
use super::messages::{client_capabilities, refuse_deferral, time};
use super::{Diagnostics, Provider};

/// An open ephemeral resource.
#[derive(Clone, Debug)]
pub struct OpenAnswer {
    /// The attributes, which are usually secret.
    pub result: Value,
    /// The private data for the next call.
    pub private: Option<Bytes>,
    /// The time by which it has to be renewed.
    pub renew_at: Option<SystemTime>,
    /// The reports; errors mean that it is not open.
    pub diagnostics: Diagnostics,
}

/// A renewed ephemeral resource.
#[derive(Clone, Debug)]
pub struct RenewAnswer {
    /// The private data for the next call.
    pub private: Option<Bytes>,
    /// The time by which it has to be renewed again.
    pub renew_at: Option<SystemTime>,
    /// The reports.
    pub diagnostics: Diagnostics,
}

impl Provider {
    fn ephemeral_resource(&self, name: &str) -> Result<Type, CallError> {
        let schema = self.schemas.ephemeral_resources.get(name);
        let schema = schema.ok_or_else(|| CallError::Unknown { kind: "ephemeral resource", name: name.to_owned() })?;
        Ok(schema.block.implied_type())
    }

    /// Validates the configuration of an ephemeral resource. Unknown parts are permitted.
    ///
    /// # Errors
    ///
    /// If the call has no answer.
    pub async fn validate_ephemeral(&self, name: &str, config: &Value) -> Result<Diagnostics, CallError> {
        let call = Call::ValidateEphemeralResource;
        let ty = self.ephemeral_resource(name)?;
        let config = self.encode(call, name, config, &ty)?;
        let request = proto::validate_ephemeral_resource_config::Request { type_name: name.to_owned(), config };
        let answer: proto::validate_ephemeral_resource_config::Response = self.call(call, name, request).await?;
        Ok(answer.diagnostics.into())
    }

    /// Opens an ephemeral resource. It has to be closed with its latest private data.
    ///
    /// # Errors
    ///
    /// If the configuration has unknown parts, or the call has no answer.
    pub async fn open_ephemeral(&self, name: &str, config: &Value) -> Result<OpenAnswer, CallError> {
        let call = Call::OpenEphemeralResource;
        let ty = self.ephemeral_resource(name)?;
        if !config.is_wholly_known() {
            let reason = "a part of its configuration is unknown";
            return Err(CallError::Invalid { call, object: name.to_owned(), reason });
        }
        let request = proto::open_ephemeral_resource::Request {
            type_name: name.to_owned(),
            config: self.encode(call, name, config, &ty)?,
            client_capabilities: Some(client_capabilities()),
        };
        let answer: proto::open_ephemeral_resource::Response = self.call(call, name, request).await?;
        refuse_deferral(call, name, answer.deferred)?;
        Ok(OpenAnswer {
            result: self.decode(call, name, answer.result, &ty)?,
            private: answer.private,
            renew_at: answer.renew_at.and_then(time),
            diagnostics: answer.diagnostics.into(),
        })
    }

    /// Renews an ephemeral resource.
    ///
    /// # Errors
    ///
    /// If the call has no answer.
    pub async fn renew_ephemeral(&self, name: &str, private: Option<Bytes>) -> Result<RenewAnswer, CallError> {
        let request = proto::renew_ephemeral_resource::Request { type_name: name.to_owned(), private };
        let answer: proto::renew_ephemeral_resource::Response =
            self.call(Call::RenewEphemeralResource, name, request).await?;
        Ok(RenewAnswer {
            private: answer.private,
            renew_at: answer.renew_at.and_then(time),
            diagnostics: answer.diagnostics.into(),
        })
    }

    /// Closes an ephemeral resource.
    ///
    /// # Errors
    ///
    /// If the call has no answer.
    pub async fn close_ephemeral(&self, name: &str, private: Option<Bytes>) -> Result<Diagnostics, CallError> {
        let request = proto::close_ephemeral_resource::Request { type_name: name.to_owned(), private };
        let answer: proto::close_ephemeral_resource::Response =
            self.call(Call::CloseEphemeralResource, name, request).await?;
        Ok(answer.diagnostics.into())
    }
}
