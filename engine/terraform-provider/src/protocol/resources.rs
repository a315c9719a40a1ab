//! The calls of resources.
//!
//! A state, a plan and a configuration are values of the resource's type, and null where there is none. Private data
//! are opaque: the bytes of an answer return unchanged with the next request, empty ones included.

use bytes::Bytes;

use crate::generated::tfplugin6 as proto;
use crate::schema::Schema;
use crate::value::{Json, Path, Type, Value};

use super::call::{Call, CallError};
use super::messages::{client_capabilities, path};
use super::{Diagnostics, Provider};

/// A stored state in JSON.
#[derive(Clone, Debug)]
pub struct RawState<'a> {
    /// The version of the schema that it has the form of.
    pub version: i64,
    /// The attributes.
    pub json: &'a Json,
}

/// A state of the schema's version.
#[derive(Clone, Debug)]
pub struct UpgradeAnswer {
    /// The state.
    pub state: Value,
    /// The reports; errors mean that the state cannot be converted.
    pub diagnostics: Diagnostics,
}

/// The object that is read.
#[derive(Clone, Copy, Debug)]
pub struct ReadRequest<'a> {
    /// The known state.
    pub state: &'a Value,
    /// Its private data.
    pub private: &'a [u8],
    /// Its identity, if the resource has one.
    pub identity: Option<&'a Value>,
}

/// The current state of an object.
#[derive(Clone, Debug)]
pub struct ReadAnswer {
    /// The state; null if the object does not exist.
    pub state: Value,
    /// Its private data.
    pub private: Bytes,
    /// Its identity.
    pub identity: Option<Value>,
    /// The reason for an answer without facts.
    pub deferred: Option<DeferredReason>,
    /// The reports; errors mean that nothing is known.
    pub diagnostics: Diagnostics,
}

/// A change that is planned. A create has no prior state, and a delete neither proposed state nor configuration.
#[derive(Clone, Copy, Debug)]
pub struct PlanRequest<'a> {
    /// The state before.
    pub prior: &'a Value,
    /// The state that the configuration asks for.
    pub proposed: &'a Value,
    /// The configuration.
    pub config: &'a Value,
    /// The private data of the state before. For the second plan of a replacement: those of the first plan.
    pub prior_private: &'a [u8],
    /// The identity of the state before.
    pub prior_identity: Option<&'a Value>,
}

/// A planned change.
#[derive(Clone, Debug)]
pub struct PlanAnswer {
    /// The state after, with unknown parts.
    pub planned: Value,
    /// The attributes whose change needs another object. Such a plan must not be applied: plan again without a prior
    /// state.
    pub requires_replace: Vec<Path>,
    /// The private data for the apply.
    pub private: Bytes,
    /// The planned identity.
    pub identity: Option<Value>,
    /// Whether the provider's library cannot keep the promises of plans.
    pub legacy_type_system: bool,
    /// The reason for an answer without facts.
    pub deferred: Option<DeferredReason>,
    /// The reports; errors mean that there is no plan.
    pub diagnostics: Diagnostics,
}

/// A change that is made.
#[derive(Clone, Copy, Debug)]
pub struct ApplyRequest<'a> {
    /// The state before.
    pub prior: &'a Value,
    /// The planned state; null for a delete.
    pub planned: &'a Value,
    /// The configuration; null for a delete.
    pub config: &'a Value,
    /// The private data of the plan.
    pub planned_private: &'a [u8],
    /// The planned identity.
    pub planned_identity: Option<&'a Value>,
}

/// The result of a change.
#[derive(Clone, Debug)]
pub struct ApplyAnswer {
    /// The state after. With errors, it is the state of a part of the change.
    pub state: Value,
    /// Its private data.
    pub private: Bytes,
    /// Its identity.
    pub identity: Option<Value>,
    /// Whether the provider's library cannot keep the promises of plans.
    pub legacy_type_system: bool,
    /// The reports.
    pub diagnostics: Diagnostics,
}

/// The name of an existing object.
#[derive(Clone, Copy, Debug)]
pub enum ImportRequest<'a> {
    /// The id, whose form the resource defines.
    Id(&'a str),
    /// The identity.
    Identity(&'a Value),
}

/// An existing object. Only a read shows whether it exists.
#[derive(Clone, Debug)]
pub struct ImportAnswer {
    /// The state for the read that has to follow.
    pub state: Value,
    /// The private data for this read.
    pub private: Bytes,
    /// The identity for this read.
    pub identity: Option<Value>,
    /// The reports.
    pub diagnostics: Diagnostics,
}

/// A state of another type.
#[derive(Clone, Debug)]
pub struct MoveRequest<'a> {
    /// The address of the provider of the other type, such as `registry.terraform.io/hashicorp/null`.
    pub source_provider: &'a str,
    /// The other type.
    pub source_type: &'a str,
    /// The state.
    pub source: RawState<'a>,
    /// The private data.
    pub source_private: &'a [u8],
    /// The identity with its version.
    pub source_identity: Option<RawState<'a>>,
}

/// A state that moved.
#[derive(Clone, Debug)]
pub struct MoveAnswer {
    /// The state.
    pub state: Value,
    /// Its private data.
    pub private: Bytes,
    /// Its identity.
    pub identity: Option<Value>,
    /// The reports; errors mean that the state cannot move.
    pub diagnostics: Diagnostics,
}

/// Why a provider answered without facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeferredReason {
    /// The configuration of the resource is unknown.
    ResourceConfigUnknown,
    /// The configuration of the provider is unknown.
    ProviderConfigUnknown,
    /// Something that it needs does not exist.
    AbsentPrerequisite,
    /// Another reason.
    Other,
}

fn deferred(message: Option<proto::Deferred>) -> Option<DeferredReason> {
    use proto::deferred::Reason;
    message.map(|it| match it.reason() {
        Reason::ResourceConfigUnknown => DeferredReason::ResourceConfigUnknown,
        Reason::ProviderConfigUnknown => DeferredReason::ProviderConfigUnknown,
        Reason::AbsentPrereq => DeferredReason::AbsentPrerequisite,
        Reason::Unknown => DeferredReason::Other,
    })
}

fn raw(json: &Json) -> Option<proto::RawState> {
    Some(proto::RawState { json: json.to_string().into(), ..Default::default() })
}

impl Provider {
    pub(super) fn resource(&self, resource: &str) -> Result<(&Schema, Type), CallError> {
        let schema = self.schemas.resources.get(resource);
        let schema = schema.ok_or_else(|| CallError::Unknown { kind: "resource", name: resource.to_owned() })?;
        Ok((schema, schema.block.implied_type()))
    }

    /// Validates the configuration of a resource. Unknown parts are permitted.
    ///
    /// # Errors
    ///
    /// If the call has no answer.
    pub async fn validate_resource(&self, resource: &str, config: &Value) -> Result<Diagnostics, CallError> {
        let call = Call::ValidateResource;
        let (_, ty) = self.resource(resource)?;
        let request = proto::validate_resource_config::Request {
            type_name: resource.to_owned(),
            config: self.encode(call, resource, config, &ty)?,
            client_capabilities: Some(client_capabilities()),
        };
        let answer: proto::validate_resource_config::Response = self.call(call, resource, request).await?;
        Ok(answer.diagnostics.into())
    }

    /// Converts a stored state to the version of the schema. The call is required at an equal version too.
    ///
    /// # Errors
    ///
    /// If the state is newer than the schema, or the call has no answer. Some providers accept newer states silently,
    /// and damage them.
    pub async fn upgrade_state(&self, resource: &str, state: RawState<'_>) -> Result<UpgradeAnswer, CallError> {
        let call = Call::UpgradeResourceState;
        let (schema, ty) = self.resource(resource)?;
        if state.version > schema.version {
            return Err(CallError::NewerState {
                object: resource.to_owned(),
                stored: state.version,
                known: schema.version,
            });
        }
        let request = proto::upgrade_resource_state::Request {
            type_name: resource.to_owned(),
            version: state.version,
            raw_state: raw(state.json),
        };
        let answer: proto::upgrade_resource_state::Response = self.call(call, resource, request).await?;
        let state = self.decode(call, resource, answer.upgraded_state, &ty)?;
        // Write-only values of a version without this property survive the conversion.
        let state = schema.without_write_only(state);
        Ok(UpgradeAnswer { state, diagnostics: answer.diagnostics.into() })
    }

    /// Reads the current state of an object.
    ///
    /// # Errors
    ///
    /// If the call has no answer.
    pub async fn read_resource(&self, resource: &str, request: ReadRequest<'_>) -> Result<ReadAnswer, CallError> {
        let call = Call::ReadResource;
        let (schema, ty) = self.resource(resource)?;
        let request = proto::read_resource::Request {
            type_name: resource.to_owned(),
            current_state: self.encode(call, resource, request.state, &ty)?,
            private: Bytes::copy_from_slice(request.private),
            client_capabilities: Some(client_capabilities()),
            current_identity: self.encode_identity(call, resource, request.identity)?,
            ..Default::default()
        };
        let answer: proto::read_resource::Response = self.call(call, resource, request).await?;
        let state = self.decode(call, resource, answer.new_state, &ty)?;
        Ok(ReadAnswer {
            state: schema.with_empty_blocks(state),
            private: answer.private,
            identity: self.decode_identity(call, resource, answer.new_identity)?,
            deferred: deferred(answer.deferred),
            diagnostics: answer.diagnostics.into(),
        })
    }

    /// Plans a change. A delete is planned by a call only if the provider has [`Capabilities::plan_destroy`]; otherwise
    /// its plan is null with the prior private data.
    ///
    /// [`Capabilities::plan_destroy`]: super::Capabilities::plan_destroy
    ///
    /// # Errors
    ///
    /// If the call has no answer.
    pub async fn plan(&self, resource: &str, request: PlanRequest<'_>) -> Result<PlanAnswer, CallError> {
        let call = Call::PlanResourceChange;
        let (_, ty) = self.resource(resource)?;
        let private = Bytes::copy_from_slice(request.prior_private);
        if request.proposed.is_null() && !self.schemas.capabilities.plan_destroy {
            return Ok(PlanAnswer {
                planned: Value::Null,
                requires_replace: Vec::new(),
                private,
                identity: request.prior_identity.cloned(),
                legacy_type_system: false,
                deferred: None,
                diagnostics: Diagnostics::default(),
            });
        }
        let request = proto::plan_resource_change::Request {
            type_name: resource.to_owned(),
            prior_state: self.encode(call, resource, request.prior, &ty)?,
            proposed_new_state: self.encode(call, resource, request.proposed, &ty)?,
            config: self.encode(call, resource, request.config, &ty)?,
            prior_private: private,
            client_capabilities: Some(client_capabilities()),
            prior_identity: self.encode_identity(call, resource, request.prior_identity)?,
            ..Default::default()
        };
        let answer: proto::plan_resource_change::Response = self.call(call, resource, request).await?;
        Ok(PlanAnswer {
            planned: self.decode(call, resource, answer.planned_state, &ty)?,
            requires_replace: answer.requires_replace.into_iter().map(path).collect(),
            private: answer.planned_private,
            identity: self.decode_identity(call, resource, answer.planned_identity)?,
            legacy_type_system: answer.legacy_type_system,
            deferred: deferred(answer.deferred),
            diagnostics: answer.diagnostics.into(),
        })
    }

    /// Makes a change. An answer with errors may still have the state of a part of the change.
    ///
    /// The provider does not check that the plan permits the change: never apply a plan with
    /// [`PlanAnswer::requires_replace`].
    ///
    /// # Errors
    ///
    /// If the call has no answer. The part of the change that was made is unknown then.
    pub async fn apply(&self, resource: &str, request: ApplyRequest<'_>) -> Result<ApplyAnswer, CallError> {
        let call = Call::ApplyResourceChange;
        let (_, ty) = self.resource(resource)?;
        let request = proto::apply_resource_change::Request {
            type_name: resource.to_owned(),
            prior_state: self.encode(call, resource, request.prior, &ty)?,
            planned_state: self.encode(call, resource, request.planned, &ty)?,
            config: self.encode(call, resource, request.config, &ty)?,
            planned_private: Bytes::copy_from_slice(request.planned_private),
            planned_identity: self.encode_identity(call, resource, request.planned_identity)?,
            ..Default::default()
        };
        let answer: proto::apply_resource_change::Response = self.call(call, resource, request).await?;
        Ok(ApplyAnswer {
            state: self.decode(call, resource, answer.new_state, &ty)?,
            private: answer.private,
            identity: self.decode_identity(call, resource, answer.new_identity)?,
            legacy_type_system: answer.legacy_type_system,
            diagnostics: answer.diagnostics.into(),
        })
    }

    /// Adopts an existing object. A read has to follow: a null state then means that the object does not exist.
    ///
    /// # Errors
    ///
    /// If the provider reports errors, answers with another number of objects than one, or the call has no answer.
    pub async fn import(&self, resource: &str, request: ImportRequest<'_>) -> Result<ImportAnswer, CallError> {
        let call = Call::ImportResourceState;
        let (_, ty) = self.resource(resource)?;
        let (id, identity) = match request {
            ImportRequest::Id(id) => (id.to_owned(), None),
            ImportRequest::Identity(identity) => (String::new(), Some(identity)),
        };
        let request = proto::import_resource_state::Request {
            type_name: resource.to_owned(),
            id,
            client_capabilities: Some(client_capabilities()),
            identity: self.encode_identity(call, resource, identity)?,
        };
        let answer: proto::import_resource_state::Response = self.call(call, resource, request).await?;
        let object = || resource.to_owned();
        let diagnostics = Diagnostics::from(answer.diagnostics);
        if diagnostics.has_errors() {
            return Err(CallError::Reported { call, object: object(), diagnostics });
        }
        let mut imported = answer.imported_resources.into_iter();
        let (Some(imported), None) = (imported.next(), imported.next()) else {
            let reason = "the provider answered with another number of objects than one";
            return Err(CallError::Invalid { call, object: object(), reason });
        };
        if imported.type_name != resource {
            let reason = "the provider answered with an object of another type";
            return Err(CallError::Invalid { call, object: object(), reason });
        }
        Ok(ImportAnswer {
            state: self.decode(call, resource, imported.state, &ty)?,
            private: imported.private,
            identity: self.decode_identity(call, resource, imported.identity)?,
            diagnostics,
        })
    }

    /// Converts the state of another type to one of this resource.
    ///
    /// # Errors
    ///
    /// If the provider cannot do this for any type, or the call has no answer.
    pub async fn move_state(&self, resource: &str, request: MoveRequest<'_>) -> Result<MoveAnswer, CallError> {
        let call = Call::MoveResourceState;
        let (_, ty) = self.resource(resource)?;
        if !self.schemas.capabilities.move_resource_state {
            return Err(CallError::Unimplemented { call, object: resource.to_owned() });
        }
        let identity_version = request.source_identity.as_ref().map_or(0, |it| it.version);
        let request = proto::move_resource_state::Request {
            source_provider_address: request.source_provider.to_owned(),
            source_type_name: request.source_type.to_owned(),
            source_schema_version: request.source.version,
            source_state: raw(request.source.json),
            target_type_name: resource.to_owned(),
            source_private: Bytes::copy_from_slice(request.source_private),
            source_identity: request.source_identity.and_then(|it| raw(it.json)),
            source_identity_schema_version: identity_version,
        };
        let answer: proto::move_resource_state::Response = self.call(call, resource, request).await?;
        Ok(MoveAnswer {
            state: self.decode(call, resource, answer.target_state, &ty)?,
            private: answer.target_private,
            identity: self.decode_identity(call, resource, answer.target_identity)?,
            diagnostics: answer.diagnostics.into(),
        })
    }

    /// Makes a configuration that fits a state, such as one of an imported object.
    ///
    /// # Errors
    ///
    /// If the provider cannot do this, or the call has no answer.
    pub async fn generate_config(&self, resource: &str, state: &Value) -> Result<(Value, Diagnostics), CallError> {
        let call = Call::GenerateResourceConfig;
        let (_, ty) = self.resource(resource)?;
        if !self.schemas.capabilities.generate_resource_config {
            return Err(CallError::Unimplemented { call, object: resource.to_owned() });
        }
        let request = proto::generate_resource_config::Request {
            type_name: resource.to_owned(),
            state: self.encode(call, resource, state, &ty)?,
        };
        let answer: proto::generate_resource_config::Response = self.call(call, resource, request).await?;
        Ok((self.decode(call, resource, answer.config, &ty)?, answer.diagnostics.into()))
    }
}
