//! The form of the state of an object of a Terraform provider, in records and in imports of other tools' states.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::provider_state::ProviderState;

/// The version of this form.
const FORM: u32 = 1;

/// The stored state, in the terms of `terraform.tfstate`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredState {
    /// The version of this form, for later versions of Stoa.
    pub form: u32,
    /// The version of the resource's schema. `None` in a state of Kusion, which has the version of its provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema_version: Option<i64>,
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

/// A text that is no stored state. Its message does not quote the text, which may contain secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoredStateError {
    /// It has another form.
    #[error("the recorded state has an unknown form")]
    Unknown,
    /// A later version wrote it.
    #[error("a later version of Stoa recorded the state; use that version")]
    Newer,
}

impl StoredState {
    /// The state with these attributes, without private data.
    pub fn new(schema_version: Option<i64>, attributes: Box<RawValue>) -> Self {
        let (private, identity, tainted) = Default::default();
        Self { form: FORM, schema_version, attributes, private, identity, tainted }
    }

    /// Reads a recorded text.
    ///
    /// # Errors
    ///
    /// When the text has another form.
    pub fn parse(text: &str) -> Result<Self, StoredStateError> {
        let stored: Self = serde_json::from_str(text).map_err(|_| StoredStateError::Unknown)?;
        if stored.form > FORM { Err(StoredStateError::Newer) } else { Ok(stored) }
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
        let stored = StoredState { private: "bnVsbA==".to_owned(), ..StoredState::new(Some(3), attributes) };
        let recorded = stored.to_recorded();
        let read = StoredState::parse(recorded.open().unwrap()).unwrap();
        assert_eq!((read.schema_version, &*read.private, read.tainted), (Some(3), "bnVsbA==", false));
        assert!(read.attributes.get().contains("100000000000000000000001"));
    }

    #[test]
    fn unreadable_state_is_an_error() {
        assert_eq!(StoredState::parse("hunter2").unwrap_err(), StoredStateError::Unknown);
        let newer = r#"{"form":2,"schemaVersion":0,"attributes":{}}"#;
        assert_eq!(StoredState::parse(newer).unwrap_err(), StoredStateError::Newer);
    }
}
