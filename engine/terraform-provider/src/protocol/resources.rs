//! The calls of resources.
//!
//! A state, a plan and a configuration are values of the resource's type, and null where there is none. Private data
//! are opaque: the bytes of an answer return unchanged with the next request, empty ones included.

use bytes::Bytes;

use crate::generated::tfplugin6 as proto;
use crate::schema::Schema;
use crate::value::{Json, Type, Value};

use super::call::{Call, CallError};
use super::messages::{client_capabilities, path, refuse_deferral};
use super::requests::{
    ApplyAnswer, ApplyRequest, ImportAnswer, ImportRequest, MoveAnswer, MoveRequest, PlanAnswer, PlanRequest, RawState,
    ReadAnswer, ReadRequest, UpgradeAnswer,
};
use super::{Diagnostics, Provider};

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
        refuse_deferral(call, resource, answer.deferred)?;
        let state = self.decode(call, resource, answer.new_state, &ty)?;
        Ok(ReadAnswer {
            state: schema.with_empty_blocks(state),
            private: answer.private,
            identity: self.decode_identity(call, resource, answer.new_identity)?,
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
        refuse_deferral(call, resource, answer.deferred)?;
        Ok(PlanAnswer {
            planned: self.decode(call, resource, answer.planned_state, &ty)?,
            requires_replace: answer.requires_replace.into_iter().map(path).collect(),
            private: answer.planned_private,
            identity: self.decode_identity(call, resource, answer.planned_identity)?,
            legacy_type_system: answer.legacy_type_system,
            diagnostics: answer.diagnostics.into(),
        })
    }

    /// Makes a change. An answer with errors may still have the state of a part of the change.
    ///
    /// The provider does not check that the plan permits the change: never apply a plan with
    /// [`PlanAnswer::requires_replace`]. A dropped future cancels the call, and the change may remain half-made.
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
        refuse_deferral(call, resource, answer.deferred)?;
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
}
