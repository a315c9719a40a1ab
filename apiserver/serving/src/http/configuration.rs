//! The body of a server-side apply: a partial object in YAML, which JSON is too.

use serde_json::Value;
use stoa_meta::{
    object::Object,
    request::{FieldValidation, RequestContext},
    schema::{self, Format, StrictErrors},
    status::ApiError,
};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;

/// A configuration that was read.
#[derive(Debug)]
pub(crate) struct Configuration {
    pub(crate) object: Object,
    pub(crate) duplicates: Duplicates,
}

/// The keys that stand twice.
#[derive(Debug)]
pub(crate) struct Duplicates(Vec<String>);

impl Configuration {
    /// Reads a body. An empty one is an object without a kind.
    /// Fails with 400 for what is no YAML, and for what is no map.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let malformed = |error: String| ApiError::bad_request(format!("error decoding YAML: {error}"));
        let parsed = schema::parse(body, Format::Yaml)
            .map_err(|error| malformed(format!("error converting YAML to JSON: {error}")))?;
        let object = match parsed.value {
            Value::Object(map) => Object(map),
            Value::Null => Object::default(),
            other => {
                return Err(malformed(format!(
                    "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type \
                     map[string]interface {{}}",
                    schema::json_type(&other)
                )));
            }
        };
        Ok(Self { object, duplicates: Duplicates(StrictErrors::warnings(parsed.strict)) })
    }
}

impl Duplicates {
    /// Warns of them, or refuses them.
    /// Fails with 400 when validation is strict and there are any.
    pub(crate) fn check(&self, context: &RequestContext) -> Result<(), ApiError> {
        match context.field_validation {
            FieldValidation::Strict if !self.0.is_empty() => Err(ApiError::bad_request(format!(
                "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {}",
                self.0.join("\n  ")
            ))),
            FieldValidation::Warn => {
                self.0.iter().for_each(|text| context.warn(text));
                Ok(())
            }
            FieldValidation::Strict | FieldValidation::Ignore => Ok(()),
        }
    }
}
