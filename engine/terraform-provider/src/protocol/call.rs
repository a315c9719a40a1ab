//! One call: its names, its limits and its failures.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::generated::tfplugin6 as proto;
use crate::msgpack::{self, DecodeError, EncodeError};
use crate::schema::SchemaError;
use crate::value::json::JsonError;
use crate::value::state::StateError;
use crate::value::{Json, Type, Value, state};

use super::{Diagnostics, Protocol, Provider};

/// How long a process may take to end after it stopped answering.
const END: Duration = Duration::from_secs(2);

/// A call of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// The schemas of everything.
    GetProviderSchema,
    /// The schemas of identities.
    GetResourceIdentitySchemas,
    /// The validation of the provider's configuration.
    ValidateProvider,
    /// The validation of a resource.
    ValidateResource,
    /// The validation of a data source.
    ValidateDataSource,
    /// The validation of an ephemeral resource.
    ValidateEphemeralResource,
    /// The configuration of the provider.
    Configure,
    /// The end of all calls in flight.
    Stop,
    /// The conversion of a stored state.
    UpgradeResourceState,
    /// The conversion of a stored identity.
    UpgradeResourceIdentity,
    /// The current state of a resource.
    ReadResource,
    /// The plan of a change.
    PlanResourceChange,
    /// A change.
    ApplyResourceChange,
    /// The adoption of an existing resource.
    ImportResourceState,
    /// The conversion of the state of another type.
    MoveResourceState,
    /// The result of a data source.
    ReadDataSource,
    /// The start of an ephemeral resource.
    OpenEphemeralResource,
    /// The renewal of an ephemeral resource.
    RenewEphemeralResource,
    /// The end of an ephemeral resource.
    CloseEphemeralResource,
}

impl Call {
    /// The name in a protocol.
    pub(crate) fn name(self, protocol: Protocol) -> &'static str {
        let (five, six) = match self {
            Self::GetProviderSchema => ("GetSchema", "GetProviderSchema"),
            Self::ValidateProvider => ("PrepareProviderConfig", "ValidateProviderConfig"),
            Self::ValidateResource => ("ValidateResourceTypeConfig", "ValidateResourceConfig"),
            Self::ValidateDataSource => ("ValidateDataSourceConfig", "ValidateDataResourceConfig"),
            Self::Configure => ("Configure", "ConfigureProvider"),
            Self::Stop => ("Stop", "StopProvider"),
            Self::GetResourceIdentitySchemas => return "GetResourceIdentitySchemas",
            Self::ValidateEphemeralResource => return "ValidateEphemeralResourceConfig",
            Self::UpgradeResourceState => return "UpgradeResourceState",
            Self::UpgradeResourceIdentity => return "UpgradeResourceIdentity",
            Self::ReadResource => return "ReadResource",
            Self::PlanResourceChange => return "PlanResourceChange",
            Self::ApplyResourceChange => return "ApplyResourceChange",
            Self::ImportResourceState => return "ImportResourceState",
            Self::MoveResourceState => return "MoveResourceState",
            Self::ReadDataSource => return "ReadDataSource",
            Self::OpenEphemeralResource => return "OpenEphemeralResource",
            Self::RenewEphemeralResource => return "RenewEphemeralResource",
            Self::CloseEphemeralResource => return "CloseEphemeralResource",
        };
        match protocol {
            Protocol::V5 => five,
            Protocol::V6 => six,
        }
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name(Protocol::V6))
    }
}

/// A call without an answer that can be used. The object is a type name, or empty for the provider itself.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The process ended during the call, with all calls in flight. The part of a change that was made is unknown.
    #[error("the provider ended during {call}{} ({exit}); it starts again with the next call", of(object))]
    Crashed {
        /// The call.
        call: Call,
        /// The type name.
        object: String,
        /// The end of the process.
        exit: String,
        /// The last lines of its output. The message omits them, because they may contain secrets.
        last_lines: Vec<String>,
    },
    /// The provider does not have this call.
    #[error("the provider does not support {call}{}; use a newer version of the provider", of(object))]
    Unimplemented {
        /// The call.
        call: Call,
        /// The type name.
        object: String,
    },
    /// The call took too long. The part of a change that was made is unknown.
    #[error("the provider did not answer {call}{} within {} s", of(object), time.as_secs())]
    TimedOut {
        /// The call.
        call: Call,
        /// The type name.
        object: String,
        /// The time limit.
        time: Duration,
    },
    /// The call failed otherwise, such as for an answer that is too large.
    #[error("{call}{} failed", of(object))]
    Failed {
        /// The call.
        call: Call,
        /// The type name.
        object: String,
        /// The status of the call.
        source: Box<Status>,
    },
    /// The provider reported errors in a call whose answer is of no use then.
    #[error("the provider reported errors in {call}{}: {diagnostics}", of(object))]
    Reported {
        /// The call.
        call: Call,
        /// The type name.
        object: String,
        /// All that it reported.
        diagnostics: Diagnostics,
    },
    /// The provider has no such resource, data source or ephemeral resource.
    #[error("the provider has no {kind} {name:?}; it may need a newer version")]
    Unknown {
        /// What the name is of.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A value does not have the form of the schema.
    #[error("a value for {call}{} does not have the form of the schema", of(object))]
    Encode {
        /// The call.
        call: Call,
        /// The type name.
        object: String,
        /// The part of the value.
        source: EncodeError,
    },
    /// An answer does not have the form of the schema.
    #[error(
        "the provider's answer to {call}{} does not have the form of its schema; report it to the provider",
        of(object)
    )]
    Decode {
        /// The call.
        call: Call,
        /// The type name.
        object: String,
        /// The part of the value.
        source: AnswerError,
    },
    /// A schema cannot be read.
    #[error("the schema of {object:?} cannot be read")]
    Schema {
        /// The type name.
        object: String,
        /// The reason.
        source: SchemaError,
    },
    /// The stored state is of a newer version of the provider.
    #[error(
        "the state of {object} has version {stored}, and the provider knows versions up to {known}; use the provider's newer version"
    )]
    NewerState {
        /// The type name.
        object: String,
        /// The version of the state.
        stored: i64,
        /// The version of the schema.
        known: i64,
    },
    /// The provider wants to be asked in a later run, which only Terraform's experimental stacks do.
    #[error(
        "the provider deferred {call}{} because {reason}; make this known or create it in an earlier run",
        of(object)
    )]
    Deferred {
        /// The call.
        call: Call,
        /// The type name.
        object: String,
        /// The provider's reason.
        reason: &'static str,
    },
    /// A request that no provider answers sensibly.
    #[error("{call}{} is not possible: {reason}", of(object))]
    Invalid {
        /// The call.
        call: Call,
        /// The type name.
        object: String,
        /// The reason.
        reason: &'static str,
    },
    /// The provider cannot stop its calls.
    #[error("the provider cannot stop its calls: {0}")]
    Stop(String),
}

/// An answer that is no value of its type.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The answer in msgpack.
    #[error(transparent)]
    Msgpack(#[from] DecodeError),
    /// The answer in JSON is no JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The answer in JSON.
    #[error(transparent)]
    State(#[from] StateError),
}

/// The object in a message.
fn of(object: &str) -> String {
    if object.is_empty() { String::new() } else { format!(" of {object}") }
}

impl Provider {
    pub(crate) async fn call<Q, A>(&self, call: Call, object: &str, request: Q) -> Result<A, CallError>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let time = if call == Call::ApplyResourceChange { self.limits.time } else { self.limits.read };
        let limit = if call == Call::GetProviderSchema { self.limits.schemas } else { self.limits.answer };
        let path = match self.protocol {
            Protocol::V5 => format!("/tfplugin5.Provider/{}", call.name(Protocol::V5)),
            Protocol::V6 => format!("/tfplugin6.Provider/{}", call.name(Protocol::V6)),
        };
        let path = PathAndQuery::try_from(path).expect("the names of calls are paths");
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(limit);
        let start = Instant::now();
        let answered = async {
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            grpc.unary::<Q, A, _>(Request::new(request), path, ProstCodec::default()).await
        };
        let answered = tokio::time::timeout(time, answered).await;
        self.observer.called(call, matches!(answered, Ok(Ok(_))), start.elapsed());
        match answered {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(self.failed(call, object, status).await),
            Err(_) => Err(CallError::TimedOut { call, object: object.to_owned(), time }),
        }
    }

    /// The meaning of a status. Providers report their own errors in answers, so each status is a fault.
    async fn failed(&self, call: Call, object: &str, status: Status) -> CallError {
        let object = object.to_owned();
        match status.code() {
            Code::Unimplemented => CallError::Unimplemented { call, object },
            Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled => {
                // The connection ends a little before the process.
                let ended = tokio::time::timeout(END, self.process.ended()).await;
                match ended {
                    Ok(exit) => CallError::Crashed {
                        call,
                        object,
                        exit: exit.to_string(),
                        last_lines: self.process.output().last_lines(),
                    },
                    Err(_) => CallError::Failed { call, object, source: Box::new(status) },
                }
            }
            _ => CallError::Failed { call, object, source: Box::new(status) },
        }
    }

    pub(crate) fn encode(
        &self,
        call: Call,
        object: &str,
        value: &Value,
        ty: &Type,
    ) -> Result<Option<proto::DynamicValue>, CallError> {
        let encoded = msgpack::encode(value, ty);
        let encoded = encoded.map_err(|source| CallError::Encode { call, object: object.to_owned(), source })?;
        Ok(Some(proto::DynamicValue { msgpack: encoded.into(), ..Default::default() }))
    }

    /// The value of an answer. A missing one is null.
    pub(crate) fn decode(
        &self,
        call: Call,
        object: &str,
        answer: Option<proto::DynamicValue>,
        ty: &Type,
    ) -> Result<Value, CallError> {
        let decoded = match answer {
            None => Ok(Value::Null),
            Some(answer) if !answer.msgpack.is_empty() => msgpack::decode(&answer.msgpack, ty).map_err(Into::into),
            Some(answer) if !answer.json.is_empty() => {
                let json = Json::parse(&answer.json).map_err(AnswerError::from);
                json.and_then(|json| Ok(state::from_json(&json, ty)?))
            }
            Some(_) => Ok(Value::Null),
        };
        decoded.map_err(|source| CallError::Decode { call, object: object.to_owned(), source })
    }
}
