//! The calls of data sources.

use crate::generated::tfplugin6 as proto;
use crate::value::{Type, Value};

use super::call::{Call, CallError};
use super::messages::{client_capabilities, refuse_deferral};
use super::{Diagnostics, Provider};

/// The result of a data source.
#[derive(Clone, Debug)]
pub struct DataAnswer {
    /// The attributes.
    pub state: Value,
    /// The reports; errors mean that nothing is known.
    pub diagnostics: Diagnostics,
}

impl Provider {
    fn data_source(&self, name: &str) -> Result<Type, CallError> {
        let schema = self.schemas.data_sources.get(name);
        let schema = schema.ok_or_else(|| CallError::Unknown { kind: "data source", name: name.to_owned() })?;
        Ok(schema.block.implied_type())
    }

    /// Validates the configuration of a data source. Unknown parts are permitted.
    ///
    /// # Errors
    ///
    /// If the call has no answer.
    pub async fn validate_data_source(&self, name: &str, config: &Value) -> Result<Diagnostics, CallError> {
        let call = Call::ValidateDataSource;
        let ty = self.data_source(name)?;
        let config = self.encode(call, name, config, &ty)?;
        let request = proto::validate_data_resource_config::Request { type_name: name.to_owned(), config };
        let answer: proto::validate_data_resource_config::Response = self.call(call, name, request).await?;
        Ok(answer.diagnostics.into())
    }

    /// Reads a data source.
    ///
    /// # Errors
    ///
    /// If the configuration has unknown parts, which providers do not notice, or the call has no answer.
    pub async fn read_data_source(&self, name: &str, config: &Value) -> Result<DataAnswer, CallError> {
        let call = Call::ReadDataSource;
        let ty = self.data_source(name)?;
        if !config.is_wholly_known() {
            let reason = "a part of its configuration is unknown";
            return Err(CallError::Invalid { call, object: name.to_owned(), reason });
        }
        let request = proto::read_data_source::Request {
            type_name: name.to_owned(),
            config: self.encode(call, name, config, &ty)?,
            client_capabilities: Some(client_capabilities()),
            ..Default::default()
        };
        let answer: proto::read_data_source::Response = self.call(call, name, request).await?;
        refuse_deferral(call, name, answer.deferred)?;
        Ok(DataAnswer { state: self.decode(call, name, answer.state, &ty)?, diagnostics: answer.diagnostics.into() })
    }
}
