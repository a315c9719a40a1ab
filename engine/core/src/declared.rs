//! Declared sensitive values: fields that a Spec names as sensitive, besides the values of Secrets.
//!
//! Start at [`declared`]. A person declares them in a Spec file, and the server those that have the text of a secret
//! value ([`declare`]). They count as if a reference had carried a sensitive value there.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::ignore::parse_path;
use crate::path::FieldPath;
use crate::problem::{Problem, reason};
use crate::sensitive::Sensitive;
use crate::spec::{Resource, Spec};

/// The extension of a resource that lists its sensitive fields: a list of paths in `attributes`, such as `spec.password`
/// or `env[0].value`, in the syntax of [`IGNORE_FIELDS`](crate::ignore::IGNORE_FIELDS).
pub const SENSITIVE: &str = "stoa.dev/sensitive";

/// The declared sensitive fields of a resource. Paths that do not parse have none; the validation of a Spec reports them.
pub fn declared(resource: &Resource) -> BTreeSet<FieldPath> {
    let items = resource.extensions.get(SENSITIVE).and_then(Value::as_array);
    items.into_iter().flatten().filter_map(Value::as_str).filter_map(|text| parse_path(text).ok()).collect()
}

/// Declares each field that has one of the sensitive texts.
pub fn declare(spec: &mut Spec, sensitive: &Sensitive) {
    for resource in &mut spec.resources {
        let mut paths = declared(resource);
        let before = paths.len();
        paths.extend(sensitive.paths_with_texts(&resource.attributes));
        if paths.len() > before {
            declare_paths(resource, &paths);
        }
    }
}

/// Declares fields of a resource.
pub(crate) fn declare_paths(resource: &mut Resource, paths: &BTreeSet<FieldPath>) {
    let paths: Vec<Value> = paths.iter().map(|path| path.to_string().into()).collect();
    resource.extensions.insert(SENSITIVE.to_owned(), paths.into());
}

/// The problem of declarations that cannot be read.
pub(crate) fn check(resource: &Resource) -> Option<Problem> {
    let complaint = |why: String| {
        let problem = Problem::new(reason::INVALID_RESOURCE, why);
        problem.of(&resource.id).at(format!("extensions[\"{SENSITIVE}\"]"))
    };
    match resource.extensions.get(SENSITIVE)? {
        Value::Array(items) => items.iter().find_map(|item| match item.as_str() {
            Some(text) => parse_path(text).err().map(|why| complaint(format!("`{text}` is not a path: {why}"))),
            None => Some(complaint("must be a list of paths such as spec.password".to_owned())),
        }),
        _ => Some(complaint("must be a list of paths such as spec.password".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(attributes: Value) -> Spec {
        serde_json::from_value(json!({"resources": [{"id": "a", "type": "Kubernetes", "attributes": attributes}]}))
            .unwrap()
    }

    #[test]
    fn fields_with_secret_texts_are_declared() {
        let mut spec =
            spec(json!({"kind": "Deployment", "metadata": {"name": "hunter22", "labels": {"a.b/c": "hunter22"}},
            "spec": {"env": [{"value": "x"}, {"value": "db://hunter22@db"}], "encoded": "aHVudGVyMjI=", "n": 1}}));
        declare(&mut spec, &Sensitive::of_texts(["hunter22", "x"]));
        let paths = &spec.resources[0].extensions[SENSITIVE];
        assert_eq!(
            *paths,
            json!(["metadata.labels[\"a.b/c\"]", "spec.encoded", "spec.env[0].value", "spec.env[1].value"])
        );
        let read: Vec<String> = declared(&spec.resources[0]).iter().map(ToString::to_string).collect();
        assert_eq!(json!(read), *paths, "the paths are read as they were written");
        assert_eq!(check(&spec.resources[0]), None);
    }

    #[test]
    fn spec_without_secret_texts_is_unchanged() {
        let mut same = spec(json!({"kind": "ConfigMap", "data": {"a": "b"}}));
        declare(&mut same, &Sensitive::of_texts(["hunter22"]));
        assert_eq!(same, spec(json!({"kind": "ConfigMap", "data": {"a": "b"}})));
    }

    #[test]
    fn unreadable_declaration_is_a_problem() {
        for (declaration, message) in [
            (json!("spec.a"), "must be a list of paths such as spec.password"),
            (json!([1]), "must be a list of paths such as spec.password"),
            (json!(["a."]), "`a.` is not a path: a name is missing"),
        ] {
            let mut spec = spec(json!({}));
            spec.resources[0].extensions.insert(SENSITIVE.to_owned(), declaration);
            assert_eq!(check(&spec.resources[0]).unwrap().message, message);
        }
    }
}
