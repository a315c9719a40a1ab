//! The calls of data sources and functions.

use crate::generated::tfplugin6 as proto;
use crate::value::convert::convert;
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

/// The result of a function.
#[derive(Clone, Debug, PartialEq)]
pub enum FunctionAnswer {
    /// The result.
    Result(Value),
    /// The function failed.
    Error {
        /// The reason.
        text: String,
        /// The argument that it concerns, from zero.
        argument: Option<usize>,
    },
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

    /// Calls a function, which needs no configuration. Arguments are converted to the types of their parameters.
    ///
    /// An unknown argument that its parameter does not permit gives an unknown result without a call.
    ///
    /// # Errors
    ///
    /// If the call has no answer. A null or wrong argument is an answer instead.
    pub async fn call_function(&self, name: &str, arguments: Vec<Value>) -> Result<FunctionAnswer, CallError> {
        let call = Call::CallFunction;
        let function = self.schemas.functions.get(name);
        let function = function.ok_or_else(|| CallError::Unknown { kind: "function", name: name.to_owned() })?;
        let (given, required) = (arguments.len(), function.parameters.len());
        if given < required || given > required && function.variadic.is_none() {
            let text = format!("{required} arguments are required, not {given}");
            return Ok(FunctionAnswer::Error { text, argument: None });
        }
        let mut encoded = Vec::with_capacity(given);
        let mut is_unknown = false;
        let parameters =
            function.parameters.iter().chain(std::iter::repeat_with(|| function.variadic.iter()).flatten());
        for (index, (argument, parameter)) in arguments.into_iter().zip(parameters).enumerate() {
            let failed = |text| Ok(FunctionAnswer::Error { text, argument: Some(index) });
            let argument = match convert(argument, &parameter.ty) {
                Ok(argument) => argument,
                Err(error) => return failed(format!("{}: {error}", parameter.name)),
            };
            if argument.is_null() && !parameter.allow_null {
                return failed(format!("{}: the argument is null", parameter.name));
            }
            is_unknown |= !parameter.allow_unknown && !argument.is_wholly_known();
            encoded.extend(self.encode(call, name, &argument, &parameter.ty)?);
        }
        if is_unknown {
            return Ok(FunctionAnswer::Result(Value::Unknown));
        }
        let request = proto::call_function::Request { name: name.to_owned(), arguments: encoded };
        let answer: proto::call_function::Response = self.call(call, name, request).await?;
        // A failed function may have a result all the same.
        if let Some(error) = answer.error {
            let argument = error.function_argument.and_then(|index| index.try_into().ok());
            return Ok(FunctionAnswer::Error { text: error.text, argument });
        }
        Ok(FunctionAnswer::Result(self.decode(call, name, answer.result, &function.result)?))
    }
}
