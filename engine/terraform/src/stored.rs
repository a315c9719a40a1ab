//! Stored states of objects.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;
use stoa_engine::{StateResource, StoredIdentity, StoredState};
use stoa_runtime::RuntimeError;
use stoa_terraform_provider::change::Object;
use stoa_terraform_provider::protocol::Schemas;
use stoa_terraform_provider::value::{Json, state};

/// What prevents the use of a stored state.
fn unusable(message: impl ToString) -> RuntimeError {
    RuntimeError::Invalid { message: message.to_string(), field: None }
}

/// The stored state of an object.
///
/// # Errors
///
/// When the provider's value has no stored form, such as an infinite number.
pub(crate) fn of_object(resource: &str, object: &Object, schemas: &Schemas) -> Result<StoredState, RuntimeError> {
    let failed = |error: &dyn std::fmt::Display| RuntimeError::Rejected {
        message: format!("the provider's state of {resource} cannot be stored: {error}; report it to the provider"),
        field: None,
        by_definition: false,
    };
    let raw = |json: Json| RawValue::from_string(json.to_string()).map_err(|error| failed(&error));
    let schema = &schemas.resources[resource];
    let attributes = state::to_json(&object.state, &schema.block.implied_type()).map_err(|error| failed(&error))?;
    let identity = match (&object.identity, schemas.identities.get(resource)) {
        (Some(identity), Some(schema)) => {
            let json = state::to_json(identity, &schema.implied_type()).map_err(|error| failed(&error))?;
            Some(StoredIdentity { schema_version: schema.version, attributes: raw(json)? })
        }
        _ => None,
    };
    let stored = StoredState::new(Some(schema.version), raw(attributes)?);
    Ok(StoredState { private: STANDARD.encode(&object.private), identity, tainted: object.tainted, ..stored })
}

/// The state that is recorded of a resource; `None` where there is none.
///
/// # Errors
///
/// When it is encrypted or has another form.
pub(crate) fn recorded(record: &StateResource) -> Result<Option<StoredState>, RuntimeError> {
    let Some(recorded) = &record.provider_state else { return Ok(None) };
    let text = recorded.open().ok_or_else(|| unusable("the recorded state is encrypted"))?;
    StoredState::parse(text).map(Some).map_err(unusable)
}

/// The private data of a stored state.
///
/// # Errors
///
/// When they are not base64.
pub(crate) fn private(stored: &StoredState) -> Result<Vec<u8>, RuntimeError> {
    let decoded = STANDARD.decode(&stored.private);
    decoded.map_err(|_| unusable("the private data of the recorded state are not base64"))
}
