//! The generator `Spec`: a Kusion Spec, read unchanged.

use serde_json::Value;
use stoa_engine::Spec;
use stoa_proto::Problem;

use super::yaml;
use crate::failure::problem;
use crate::source::SourceFile;

/// Whether a file looks like a Spec: one document with `resources` that is no Kubernetes object.
/// A file that does not parse counts as one, so that what is wrong with it is said of a Spec.
pub(super) fn is_spec(file: &SourceFile) -> bool {
    match yaml::documents(file) {
        Ok(documents) => matches!(documents.as_slice(), [document]
            if document.value.get("resources").is_some() && document.value.get("apiVersion").is_none()),
        Err(_) => file.path.rsplit('/').next() == Some(super::SPEC_FILE),
    }
}

pub(super) fn read(file: &SourceFile) -> Result<Spec, Vec<Problem>> {
    let wrong = |line, field: &str, message: String| Problem {
        file: file.path.clone(),
        line,
        field: field.to_owned(),
        ..problem(stoa_engine::problem::reason::INVALID_SPEC, message)
    };
    let mut documents = yaml::documents(file).map_err(|problem| vec![*problem])?;
    let document = match documents.len() {
        // An empty file wants nothing.
        0 => return Ok(Spec::default()),
        1 => documents.remove(0),
        _ => return Err(vec![wrong(documents[1].line, "", "a Spec is one document".to_owned())]),
    };
    check_resources(&document.value).map_err(|(field, message)| vec![wrong(document.line, &field, message)])?;
    let spec: Spec = serde_json::from_value(document.value)
        .map_err(|err| vec![wrong(document.line, "", format!("is no Spec: {err}"))])?;
    spec.validate().map_err(|problems| {
        problems
            .into_iter()
            .map(|p| Problem { file: file.path.clone(), ..crate::convert::problem(p) })
            .collect::<Vec<_>>()
    })?;
    Ok(spec)
}

/// Says of which resource something is missing; serde would say only what.
fn check_resources(value: &Value) -> Result<(), (String, String)> {
    let resources = match value.get("resources") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(resources)) => resources,
        Some(_) => return Err(("resources".to_owned(), "has to be a list".to_owned())),
    };
    for (position, resource) in resources.iter().enumerate() {
        for (field, is_right, what) in [
            ("id", resource.get("id").is_some_and(Value::is_string), "a string"),
            (
                "type",
                resource.get("type").is_some_and(|v| v == "Kubernetes" || v == "Terraform"),
                "Kubernetes or Terraform",
            ),
            ("attributes", resource.get("attributes").is_some_and(Value::is_object), "a map"),
        ] {
            if is_right {
                continue;
            }
            let message =
                if resource.get(field).is_none() { "is required".to_owned() } else { format!("has to be {what}") };
            return Err((format!("resources[{position}].{field}"), message));
        }
    }
    Ok(())
}
