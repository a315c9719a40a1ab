//! Replacement: whether a rejected change is of an immutable field, and whether the object may be recreated.
//!
//! Start at [`decide`]. A change that is rejected for an existing object, and accepted for a new one, needs a
//! replacement. Messages alone do not decide, since each kind and definition has its own. An error advises recreation
//! only if it deletes no more than the object and what its controller creates again.

use stoa_engine::spec::RECREATE;
use stoa_runtime::{Preview, RuntimeError};

use crate::error::{CallError, Failure};
use crate::target::Gvk;

/// The objects that are deleted with an object of a kind and are not created again with it; `None` for all other kinds.
pub(crate) fn deleted_with(gvk: &Gvk) -> Option<&'static str> {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("apiextensions.k8s.io", "CustomResourceDefinition") => Some("every object of its kind"),
        ("", "Namespace") => Some("everything in it"),
        _ => None,
    }
}

/// Decides about a rejected change, after a dry run of the same object as a new one: it would be `created`, or not. A
/// replacement has to be allowed (`is_allowed`). `deleted_with` are the other objects that its deletion deletes.
pub(crate) fn decide(
    refused: Failure,
    created: Result<(), CallError>,
    is_allowed: bool,
    deleted_with: Option<&str>,
    explain: &dyn Fn(CallError) -> RuntimeError,
) -> Result<Preview, RuntimeError> {
    let is_immutable = refused.is_immutable();
    let against = match created {
        Ok(()) => None,
        // The object itself has the name, and nothing else was checked: the rejection alone has to decide.
        Err(CallError::Status(failure)) if failure.is_taken() || failure.is_dry_run_unsupported() => {
            if !is_immutable {
                return Err(explain(CallError::Status(refused)));
            }
            None
        }
        Err(err) => Some(explain(err)),
    };
    match against {
        Some(err) if err.is_retryable() => return Err(err),
        None if is_allowed => return Ok(Preview::Replaced(None)),
        Some(_) | None => {}
    }
    let (message, field, by_definition) = match explain(CallError::Status(refused)) {
        RuntimeError::Rejected { message, field, by_definition } => (message, field, by_definition),
        other => return Err(other),
    };
    // No definition lets that change which would let it be made as it is.
    let by_definition = by_definition && against.is_some() && !is_immutable;
    let message = match against {
        None => match deleted_with {
            Some(others) => format!(
                "{message}; recreating it would delete {others}; undo this change, or create an object of another name"
            ),
            None => format!(
                "{message}; to delete the object and create it again, set {RECREATE}: \"true\" in the resource's extensions \
                 or annotations"
            ),
        },
        Some(err) if is_immutable => format!("{message}; recreating it would fail too: {err}"),
        Some(_) => message,
    };
    Err(RuntimeError::Rejected { message, field, by_definition })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stoa_engine::Sensitive;

    use super::*;

    fn failure(code: u16, reason: &str, message: &str) -> Failure {
        let causes = json!([{"reason": reason, "message": message, "field": "spec.a"}]);
        let status =
            json!({"kind": "Status", "message": format!("it is refused: {message}"), "details": {"causes": causes}});
        Failure::new(code, None, status.to_string().as_bytes())
    }

    /// What becomes of a change that is refused with one message, where a new object is refused with another, or not at all.
    fn check(refused: &str, created: Option<(u16, &str)>) -> [String; 2] {
        [false, true].map(|is_allowed| {
            let created = created
                .map_or(Ok(()), |(code, message)| Err(CallError::Status(failure(code, "FieldValueInvalid", message))));
            let explain = |err: CallError| err.into_runtime("main", &Sensitive::default());
            match decide(failure(422, "FieldValueInvalid", refused), created, is_allowed, None, &explain) {
                Ok(preview) => format!("{preview:?}"),
                Err(err) => err.to_string(),
            }
        })
    }

    #[test]
    fn acceptable_new_object_means_immutable_field() {
        for said in ["field is immutable", "a disk does not shrink"] {
            let [refused, allowed] = check(said, None);
            assert!(refused.starts_with(&format!("it is refused: {said}; to delete ")), "{refused}");
            assert!(refused.contains("stoa.dev/recreate: \"true\""), "{refused}");
            assert_eq!(allowed, "Replaced(None)");
        }
    }

    #[test]
    fn recreation_advice_excludes_cascading_deletes() {
        let explain = |err: CallError| err.into_runtime("main", &Sensitive::default());
        for (group, kind, is_advised) in [
            ("apiextensions.k8s.io", "CustomResourceDefinition", false),
            ("", "Namespace", false),
            ("", "PersistentVolumeClaim", true),
            ("apps", "Deployment", true),
        ] {
            let gvk = Gvk { group: group.to_owned(), version: "v1".to_owned(), kind: kind.to_owned() };
            let refused = failure(422, "FieldValueInvalid", "field is immutable");
            let err = decide(refused, Ok(()), false, deleted_with(&gvk), &explain).unwrap_err().to_string();
            assert!(err.starts_with("it is refused: field is immutable; "), "{err}");
            assert_eq!(err.contains(RECREATE), is_advised, "{err}");
        }
    }

    #[test]
    fn invalid_object_is_not_replaced() {
        let wrong = "must be between 1 and 65535";
        for told in check(wrong, Some((422, wrong))) {
            assert_eq!(told, format!("it is refused: {wrong}"));
        }
        for (code, why) in [(422, wrong), (403, "pods are forbidden here"), (400, "a webhook denied the request")] {
            let told = format!("it is refused: field is immutable; recreating it would fail too: it is refused: {why}");
            assert_eq!(check("field is immutable", Some((code, why))), [told.clone(), told]);
        }
    }

    #[test]
    fn unpreviewable_rejection_is_decided_by_message() {
        for (code, why) in [
            (422, "provided port is already allocated"),
            (403, "exceeded quota: pods"),
            (400, "the webhook does not support dry run"),
        ] {
            assert_eq!(check("field is immutable", Some((code, why)))[1], "Replaced(None)", "{why}");
            assert_eq!(check("a disk does not shrink", Some((code, why)))[1], "it is refused: a disk does not shrink");
        }
    }

    #[test]
    fn busy_server_is_asked_again() {
        for allowed in check("field is immutable", Some((503, "come again"))) {
            assert_eq!(allowed, "cluster main: it is refused: come again");
        }
    }
}
