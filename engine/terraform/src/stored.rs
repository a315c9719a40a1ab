//! The stored state of an object: what its provider needs back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use stoa_engine::{ProviderState, StateResource};
use stoa_runtime::RuntimeError;
use stoa_terraform_provider::change::Object;
use stoa_terraform_provider::protocol::Schemas;
use stoa_terraform_provider::value::{Json, state};

/// The version of this form.
const FORM: u32 = 1;

/// The stored state, in the form of `terraform.tfstate` where that has one.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredState {
    form: u32,
    /// The version of the resource's schema.
    pub schema_version: i64,
    /// The attributes, with all digits of numbers.
    pub attributes: Box<RawValue>,
    /// The private data of the provider, in base64.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub private: String,
    /// The identity, if the resource has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<StoredIdentity>,
    /// Whether the object has to be replaced, because its creation failed half-way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tainted: bool,
}

/// The stored identity of an object.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredIdentity {
    /// The version of the identity's schema.
    pub schema_version: i64,
    /// The attributes.
    pub attributes: Box<RawValue>,
}

/// What prevents the use of a stored state.
fn unusable(message: String) -> RuntimeError {
    RuntimeError::Invalid { message, field: None }
}

impl StoredState {
    /// The state of an object that other tools recorded.
    pub fn new(schema_version: i64, attributes: Box<RawValue>, private: String) -> Self {
        Self { form: FORM, schema_version, attributes, private, identity: None, tainted: false }
    }

    /// The state of an object.
    ///
    /// # Errors
    ///
    /// When the provider's value has no stored form, such as an infinite number.
    pub(crate) fn of(resource: &str, object: &Object, schemas: &Schemas) -> Result<Self, RuntimeError> {
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
        Ok(Self {
            identity,
            tainted: object.tainted,
            ..Self::new(schema.version, raw(attributes)?, STANDARD.encode(&object.private))
        })
    }

    /// The state that is recorded of a resource; `None` where there is none.
    ///
    /// # Errors
    ///
    /// When it is encrypted or has another form.
    pub fn recorded(record: &StateResource) -> Result<Option<Self>, RuntimeError> {
        let Some(recorded) = &record.provider_state else { return Ok(None) };
        let text = recorded.open().ok_or_else(|| unusable("the recorded state is encrypted".to_owned()))?;
        // The error of the parser could quote a secret.
        let stored: Self =
            serde_json::from_str(text).map_err(|_| unusable("the recorded state has an unknown form".to_owned()))?;
        if stored.form > FORM {
            let message = "a later version of Stoa recorded the state; use that version";
            return Err(unusable(message.to_owned()));
        }
        Ok(Some(stored))
    }

    /// The private data.
    pub(crate) fn private(&self) -> Result<Vec<u8>, RuntimeError> {
        let decoded = STANDARD.decode(&self.private);
        decoded.map_err(|_| unusable("the private data of the recorded state are not base64".to_owned()))
    }

    /// The state as a record has it.
    pub fn to_recorded(&self) -> ProviderState {
        ProviderState::Open(serde_json::to_string(self).expect("a stored state is JSON"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_state_survives_with_all_digits() {
        let attributes = r#"{"big":100000000000000000000001,"text":"a"}"#;
        let attributes = RawValue::from_string(attributes.to_owned()).unwrap();
        let stored = StoredState::new(3, attributes, STANDARD.encode(b"null"));
        let record = StateResource { provider_state: Some(stored.to_recorded()), ..StateResource::default() };
        let read = StoredState::recorded(&record).unwrap().unwrap();
        assert_eq!((read.schema_version, read.private().unwrap(), read.tainted), (3, b"null".to_vec(), false));
        assert!(read.attributes.get().contains("100000000000000000000001"));
        assert!(StoredState::recorded(&StateResource::default()).unwrap().is_none());
    }

    #[test]
    fn unreadable_state_is_an_error() {
        for state in [
            ProviderState::Sealed("v1:x".to_owned()),
            ProviderState::Open("hunter2".to_owned()),
            ProviderState::Open(r#"{"form":2,"schemaVersion":0,"attributes":{}}"#.to_owned()),
        ] {
            let record = StateResource { provider_state: Some(state), ..StateResource::default() };
            let error = StoredState::recorded(&record).unwrap_err().to_string();
            assert!(error.contains("state") && !error.contains("hunter2"), "{error}");
        }
    }
}
