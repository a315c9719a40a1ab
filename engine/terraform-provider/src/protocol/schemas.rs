//! Everything that a provider offers.

use std::collections::BTreeMap;

use crate::generated::{tfplugin5, tfplugin6};
use crate::schema::{Schema, decode};

use super::call::{Call, CallError};
use super::identity::IdentitySchema;
use super::{Diagnostics, Protocol, Provider};

/// The schemas of a provider.
#[derive(Clone, Debug, Default)]
pub struct Schemas {
    /// The configuration of the provider.
    pub provider: Schema,
    /// The resources by type name.
    pub resources: BTreeMap<String, Schema>,
    /// The data sources by type name.
    pub data_sources: BTreeMap<String, Schema>,
    /// The ephemeral resources by type name.
    pub ephemeral_resources: BTreeMap<String, Schema>,
    /// The identities of resources by type name.
    pub identities: BTreeMap<String, IdentitySchema>,
    /// The optional abilities.
    pub capabilities: Capabilities,
}

/// The optional abilities of a provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether a delete is planned by a call. Otherwise its plan is null, with the private data as they are.
    pub plan_destroy: bool,
    /// Whether a process accepts other calls before the call for the schemas.
    pub get_provider_schema_optional: bool,
    /// Whether states can move from other types.
    pub move_resource_state: bool,
}

impl Provider {
    /// Reads the schemas of everything, identities included.
    pub(super) async fn read_schemas(&self) -> Result<Schemas, CallError> {
        let request = tfplugin6::get_provider_schema::Request {};
        let answer = match self.protocol {
            Protocol::V6 => self.call(Call::GetProviderSchema, "", request).await?,
            Protocol::V5 => of_protocol_5(self.call(Call::GetProviderSchema, "", request).await?),
        };
        let diagnostics = Diagnostics::from(answer.diagnostics);
        if diagnostics.has_errors() {
            return Err(CallError::Reported { call: Call::GetProviderSchema, object: String::new(), diagnostics });
        }
        let capabilities = answer.server_capabilities.unwrap_or_default();
        Ok(Schemas {
            provider: schema("provider", answer.provider.unwrap_or_default())?,
            resources: schemas(answer.resource_schemas)?,
            data_sources: schemas(answer.data_source_schemas)?,
            ephemeral_resources: schemas(answer.ephemeral_resource_schemas)?,
            identities: self.read_identity_schemas().await?,
            capabilities: Capabilities {
                plan_destroy: capabilities.plan_destroy,
                get_provider_schema_optional: capabilities.get_provider_schema_optional,
                move_resource_state: capabilities.move_resource_state,
            },
        })
    }
}

fn schema(name: &str, message: tfplugin6::Schema) -> Result<Schema, CallError> {
    decode::schema(message).map_err(|source| CallError::Schema { object: name.to_owned(), source })
}

fn schemas(
    messages: impl IntoIterator<Item = (String, tfplugin6::Schema)>,
) -> Result<BTreeMap<String, Schema>, CallError> {
    messages
        .into_iter()
        .map(|(name, message)| {
            let schema = schema(&name, message)?;
            Ok((name, schema))
        })
        .collect()
}

/// The answer of protocol 5 as one of protocol 6.
fn of_protocol_5(message: tfplugin5::get_provider_schema::Response) -> tfplugin6::get_provider_schema::Response {
    use prost::Message as _;
    let schemas = |all: std::collections::HashMap<String, tfplugin5::Schema>| {
        all.into_iter().map(|(name, it)| (name, decode::of_protocol_5(it))).collect()
    };
    let rest = tfplugin5::get_provider_schema::Response {
        diagnostics: message.diagnostics,
        server_capabilities: message.server_capabilities,
        ..Default::default()
    };
    let rest = tfplugin6::get_provider_schema::Response::decode(&rest.encode_to_vec()[..]);
    tfplugin6::get_provider_schema::Response {
        provider: message.provider.map(decode::of_protocol_5),
        resource_schemas: schemas(message.resource_schemas),
        data_source_schemas: schemas(message.data_source_schemas),
        ephemeral_resource_schemas: schemas(message.ephemeral_resource_schemas),
        ..rest.expect("these fields have one form in both protocols")
    }
}
