//! Identities of resources, which providers may have beside the state.

use std::collections::BTreeMap;

use crate::generated::tfplugin6 as proto;
use crate::schema::SchemaError;
use crate::value::{Json, Type, Value};

use super::call::{Call, CallError};
use super::{Diagnostics, Provider};

/// The schema of an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentitySchema {
    /// The version of the identity.
    pub version: i64,
    /// The attributes by name.
    pub attributes: BTreeMap<String, Type>,
}

impl IdentitySchema {
    /// The type of an identity.
    pub fn implied_type(&self) -> Type {
        Type::Object(self.attributes.clone())
    }
}

impl Provider {
    /// Reads the schemas of identities. A provider without the call has none.
    pub(super) async fn read_identity_schemas(&self) -> Result<BTreeMap<String, IdentitySchema>, CallError> {
        let call = Call::GetResourceIdentitySchemas;
        let request = proto::get_resource_identity_schemas::Request {};
        let answer = self.call::<_, proto::get_resource_identity_schemas::Response>(call, "", request).await;
        let answer = match answer {
            Err(CallError::Unimplemented { .. }) => return Ok(BTreeMap::new()),
            answer => answer?,
        };
        let diagnostics = Diagnostics::from(answer.diagnostics);
        if diagnostics.has_errors() {
            return Err(CallError::Reported { call, object: String::new(), diagnostics });
        }
        let schemas = answer.identity_schemas.into_iter().map(|(object, message)| {
            let attributes = message.identity_attributes.into_iter().map(|it| match Type::parse(&it.r#type) {
                Ok(ty) => Ok((it.name, ty)),
                Err(source) => Err(SchemaError::Type { name: it.name, source }),
            });
            match attributes.collect::<Result<_, _>>() {
                Ok(attributes) => Ok((object, IdentitySchema { version: message.version, attributes })),
                Err(source) => Err(CallError::Schema { object, source }),
            }
        });
        schemas.collect()
    }

    /// The type of a resource's identity, if it has one.
    fn identity_type(&self, resource: &str) -> Option<Type> {
        self.schemas.identities.get(resource).map(IdentitySchema::implied_type)
    }

    pub(super) fn encode_identity(
        &self,
        call: Call,
        resource: &str,
        identity: Option<&Value>,
    ) -> Result<Option<proto::ResourceIdentityData>, CallError> {
        let Some((identity, ty)) = identity.zip(self.identity_type(resource)) else { return Ok(None) };
        let identity_data = self.encode(call, resource, identity, &ty)?;
        Ok(Some(proto::ResourceIdentityData { identity_data }))
    }

    pub(super) fn decode_identity(
        &self,
        call: Call,
        resource: &str,
        answer: Option<proto::ResourceIdentityData>,
    ) -> Result<Option<Value>, CallError> {
        let Some((answer, ty)) = answer.zip(self.identity_type(resource)) else { return Ok(None) };
        let identity = self.decode(call, resource, answer.identity_data, &ty)?;
        Ok(if identity.is_null() { None } else { Some(identity) })
    }

    /// Converts a stored identity to the version of the schema. At this version nothing is called: providers reject it.
    ///
    /// # Errors
    ///
    /// If the resource has no identity, the identity is newer than the schema, or the call has no answer.
    pub async fn upgrade_identity(
        &self,
        resource: &str,
        version: i64,
        identity: &Json,
    ) -> Result<(Option<Value>, Diagnostics), CallError> {
        let call = Call::UpgradeResourceIdentity;
        let object = || resource.to_owned();
        let unknown = || CallError::Unknown { kind: "identity of", name: object() };
        let schema = self.schemas.identities.get(resource).ok_or_else(unknown)?;
        if version > schema.version {
            return Err(CallError::NewerState { object: object(), stored: version, known: schema.version });
        }
        if version == schema.version {
            let identity = crate::value::state::from_json(identity, &schema.implied_type());
            let identity =
                identity.map_err(|source| CallError::Decode { call, object: object(), source: source.into() })?;
            return Ok((Some(identity), Diagnostics::default()));
        }
        let raw = proto::RawState { json: identity.to_string().into(), ..Default::default() };
        let request =
            proto::upgrade_resource_identity::Request { type_name: object(), version, raw_identity: Some(raw) };
        let answer: proto::upgrade_resource_identity::Response = self.call(call, resource, request).await?;
        let diagnostics = Diagnostics::from(answer.diagnostics);
        if diagnostics.has_errors() {
            return Err(CallError::Reported { call, object: object(), diagnostics });
        }
        Ok((self.decode_identity(call, resource, answer.upgraded_identity)?, diagnostics))
    }
}
