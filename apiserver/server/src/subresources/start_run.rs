//! `stacks/<operation>`: creates the Run that a person would create as an object.

use async_trait::async_trait;
use http::StatusCode;
use serde_json::{Map, Value, json};
use stoa_machinery::{
    ApiError, Object,
    definition::{SubresourceCall, SubresourceHandler, SubresourceResponse},
    registry::Store,
};
use stoa_types::{Run, delivery::Operation};

use super::{Subresources, answer, parameter};
use crate::kinds::lookup;

/// Starts runs of one operation.
#[derive(Debug)]
pub(super) struct StartRun {
    pub(super) subresources: Subresources,
    pub(super) operation: Operation,
}

#[async_trait]
impl SubresourceHandler for StartRun {
    /// The body is a Run, or nothing; `workspace`, `version`, `plan` and `release` may also come as
    /// query parameters. The stack and the operation are those of the path.
    async fn call(&self, call: SubresourceCall) -> Result<SubresourceResponse, ApiError> {
        let services = self.subresources.services()?;
        let context = &call.context;
        lookup::require(context, "create", "delivery.stoa.dev", "runs", "", &call.namespace, "").await?;
        let object = self.run(&call)?;
        let api = services.lookup.api::<Run>()?;
        let store: &Store = api.store();
        let stored = store.create(context, &call.namespace, object).await?;
        answer(StatusCode::CREATED, "application/json", stored.json.clone())
    }
}

impl StartRun {
    fn run(&self, call: &SubresourceCall) -> Result<Object, ApiError> {
        let mut body: Map<String, Value> = if call.body.is_empty() {
            Map::new()
        } else {
            serde_json::from_slice(&call.body)
                .map_err(|e| ApiError::bad_request(format!("the body must be a Run in JSON, or empty: {e}")))?
        };
        body.insert("apiVersion".to_owned(), json!("delivery.stoa.dev/v1alpha1"));
        body.insert("kind".to_owned(), json!("Run"));
        let mut object = Object(body);
        let metadata = object.metadata_mut();
        if !metadata.contains_key("name") && !metadata.contains_key("generateName") {
            metadata.insert("generateName".to_owned(), json!(format!("{}-", call.name)));
        }
        metadata.insert("namespace".to_owned(), json!(call.namespace));
        let spec = object.0.entry("spec").or_insert_with(|| json!({}));
        let Value::Object(spec) = spec else {
            return Err(ApiError::bad_request("spec must be an object"));
        };
        spec.insert("stack".to_owned(), json!(call.name));
        spec.insert("operation".to_owned(), json!(format!("{:?}", self.operation)));
        for field in ["workspace", "version", "plan"] {
            if let Some(value) = parameter(&call.query, field) {
                spec.insert(field.to_owned(), json!(value));
            }
        }
        if let Some(number) = parameter(&call.query, "release") {
            let number: i64 =
                number.parse().map_err(|_| ApiError::bad_request("release must be the number of a release"))?;
            spec.insert("release".to_owned(), json!(number));
        }
        // What the type says of the rest, such as unknown operations or wrong types.
        object.to_typed::<Run>().map_err(|e| ApiError::bad_request(format!("the body is not a Run: {e}")))?;
        Ok(object)
    }
}
