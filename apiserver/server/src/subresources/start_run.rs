//! `stacks/<operation>`: creates the Run that a person would create as an object.

use serde_json::{Value, json};
use stoa_kinds::lookup;
use stoa_machinery::{
    ApiError, Object,
    definition::{SubresourceCall, SubresourceResponse},
    http::SubresourceCallExt as _,
};
use stoa_runs::Services;
use stoa_types::{Run, Stack, delivery::Operation};

use super::non_empty;

/// The body is a Run, or nothing; `workspace`, `of`, `version`, `plan` and `release` may also come as
/// query parameters, and empty ones say nothing. The stack and the operation are those of the path.
pub(super) async fn start_run(
    services: Services,
    operation: Operation,
    call: SubresourceCall,
) -> Result<SubresourceResponse, ApiError> {
    let services = &services;
    lookup::require::<Run>(&call.context, "create", "", &call.namespace, "").await?;
    // What is not there has no subresources.
    services.lookup.api::<Stack>()?.get(&call.namespace, &call.name).await?;
    let api = services.lookup.api::<Run>()?;
    call.create(api.store(), |run| complete(run, operation, &call.name, &call.query)).await
}

/// Makes what a client sent the Run that the path and the query ask for.
fn complete(run: &mut Object, operation: Operation, stack: &str, query: &[(String, String)]) -> Result<(), ApiError> {
    let metadata = run.metadata_mut();
    let is_named = |field: &str| metadata.get(field).and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    if !is_named("name") && !is_named("generateName") {
        metadata.insert("generateName".to_owned(), json!(format!("{stack}-")));
    }
    let Value::Object(spec) = run.0.entry("spec").or_insert_with(|| json!({})) else {
        return Err(ApiError::bad_request("spec must be an object"));
    };
    for (field, of_path) in [("stack", stack.to_owned()), ("operation", format!("{operation:?}"))] {
        match spec.get(field).and_then(Value::as_str) {
            None | Some("") => {}
            Some(same) if same == of_path => {}
            Some(other) => {
                return Err(ApiError::bad_request(format!(
                    "the {field} of the object ({other}) does not match the {field} on the URL ({of_path})"
                )));
            }
        }
        spec.insert(field.to_owned(), json!(of_path));
    }
    for field in ["workspace", "of", "version", "plan"] {
        if let Some(value) = non_empty(query, field) {
            spec.insert(field.to_owned(), json!(value));
        }
    }
    if let Some(number) = non_empty(query, "release") {
        let number: i64 =
            number.parse().map_err(|_| ApiError::bad_request("release must be the number of a release"))?;
        spec.insert("release".to_owned(), json!(number));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_determines_stack_and_operation_of_run() {
        let query = [("release".to_owned(), "3".to_owned())];
        let completed = |body: Value| {
            let Value::Object(body) = body else { panic!("an object") };
            let mut run = Object(body);
            complete(&mut run, Operation::Rollback, "web", &query).map(|()| Value::Object(run.0))
        };
        let spec = json!({ "stack": "web", "operation": "Rollback", "release": 3 });
        let whole = json!({ "metadata": { "generateName": "web-" }, "spec": spec });
        assert_eq!(completed(json!({})), Ok(whole.clone()));
        assert_eq!(completed(whole.clone()), Ok(whole));
        let named = completed(json!({ "metadata": { "name": "a" }, "spec": { "stack": "" } }));
        assert_eq!(named, Ok(json!({ "metadata": { "name": "a" }, "spec": spec })));
        for (field, value) in [("stack", "other"), ("operation", "Apply")] {
            let refused = completed(json!({ "spec": { field: value } })).unwrap_err();
            assert_eq!(refused.code(), 400);
            assert!(refused.message().contains(&format!("({value})")), "{}", refused.message());
        }
    }

    #[test]
    fn an_empty_parameter_says_nothing() {
        let query = ["workspace", "of", "version", "plan", "release"].map(|name| (name.to_owned(), String::new()));
        let spec = json!({ "stack": "web", "operation": "Apply", "version": "v2" });
        let Value::Object(body) = json!({ "spec": { "version": "v2" } }) else { panic!("an object") };
        let mut run = Object(body);
        complete(&mut run, Operation::Apply, "web", &query).unwrap();
        assert_eq!(run.0["spec"], spec);
    }
}
