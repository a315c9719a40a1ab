//! Errors of a kube-apiserver as [`RuntimeError`], without secrets.
//!
//! Elsewhere: `verdict` says which answers are final, and `transport` describes a server that does not answer.

use std::time::Duration;

use kube::core::{Status, response::StatusCause};
use stoa_engine::conflict::FORCE;
use stoa_engine::{FieldConflict, Sensitive};
use stoa_runtime::RuntimeError;

use crate::body::LARGEST;
use crate::target::segment_name;
use crate::verdict::Verdict;
use crate::webhooks::PATIENCE;

/// Why a call to a kube-apiserver failed.
#[derive(Clone, Debug)]
pub(crate) enum CallError {
    /// It answered with a failure.
    Status(Failure),
    /// It could not be reached, did not answer in time or answered with nonsense.
    Unreachable(String),
    /// It answered with more than there is room for.
    TooLarge,
    /// The call was not made, because the server has not answered for long: the last error.
    Suspended(String),
}

/// A failure that a kube-apiserver answered with.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) code: u16,
    pub(crate) status: Box<Status>,
    /// The pause of the `Retry-After` header.
    pub(crate) retry_after: Option<Duration>,
}

impl Failure {
    /// Reads the body of an answer; one that is no Status is its own message.
    pub(crate) fn new(code: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        let status =
            serde_json::from_slice::<Status>(body).ok().filter(|s| !s.message.is_empty()).unwrap_or_else(|| {
                let text: String = String::from_utf8_lossy(body).trim().chars().take(512).collect();
                let text = if text.is_empty() { format!("the server answered {code}") } else { text };
                Status::failure(&text, "").with_code(code)
            });
        Self { code, status: Box::new(status), retry_after }
    }

    /// The object at `path`, such as `/api/v1/namespaces/a`, is not there, as opposed to the
    /// namespace it would be in or its kind.
    pub(crate) fn is_missing(&self, path: &str) -> bool {
        let mut parts = path.rsplit('/');
        let (name, plural) = (segment_name(parts.next().unwrap_or_default()), parts.next().unwrap_or_default());
        self.code == 404 && self.status.details.as_ref().is_some_and(|d| d.name == name && d.kind == plural)
    }

    /// The namespace is not there.
    pub(crate) fn is_missing_namespace(&self) -> bool {
        self.code == 404 && self.status.details.as_ref().is_some_and(|d| d.kind == "namespaces" && !d.name.is_empty())
    }

    /// The namespace is being deleted, and nothing new can be in it (k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle).
    pub(crate) fn is_terminating_namespace(&self) -> bool {
        self.code == 403 && self.causes().iter().any(|cause| cause.reason == "NamespaceTerminating")
    }

    /// The server does not serve the path.
    pub(crate) fn is_missing_kind(&self) -> bool {
        self.code == 404 && self.status.details.as_ref().is_none_or(|d| d.name.is_empty())
    }

    /// The object has changed since it was read.
    pub(crate) fn is_stale(&self) -> bool {
        self.code == 409 && !self.is_ownership_conflict() && !self.is_unknown_uid()
    }

    /// Other field managers own fields that are to be applied.
    pub(crate) fn is_ownership_conflict(&self) -> bool {
        self.conflicts().next().is_some()
    }

    /// The fields that others have, by manager.
    pub(crate) fn field_conflicts(&self) -> Vec<FieldConflict> {
        let mut conflicts: Vec<FieldConflict> = Vec::new();
        for cause in self.conflicts() {
            let (manager, applies) = manager_of(&cause.message);
            match conflicts.iter_mut().find(|known| known.manager == manager && known.applies == applies) {
                Some(known) => known.fields.push(cause.field.clone()),
                None => conflicts.push(FieldConflict { manager, applies, fields: vec![cause.field.clone()] }),
            }
        }
        conflicts.sort();
        conflicts
    }

    fn conflicts(&self) -> impl Iterator<Item = &StatusCause> {
        self.causes().iter().filter(|cause| cause.reason == "FieldManagerConflict")
    }

    fn causes(&self) -> &[StatusCause] {
        self.status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default()
    }

    /// All causes may be changes of immutable fields. Validation reports these, and admission policies do not, since
    /// they name no field. Causes in the status are not about the manifest, and a new object does not fix them.
    pub(crate) fn may_be_immutable(&self) -> bool {
        if self.causes().iter().any(is_of_status) {
            return false;
        }
        let is_of_field = |cause: &StatusCause| {
            matches!(cause.reason.as_str(), "FieldValueInvalid" | "FieldValueForbidden") && !cause.field.is_empty()
        };
        let is_of_fields = self.code == 422 && !self.causes().is_empty() && self.causes().iter().all(is_of_field);
        is_of_fields || self.is_immutable()
    }

    /// All causes are changes of immutable fields, by the messages of the API server's validation and that of built-in
    /// kinds (k8s.io/apimachinery/pkg/api, k8s.io/kubernetes/pkg/apis).
    pub(crate) fn is_immutable(&self) -> bool {
        const SAID: [&str; 10] = [
            "immutable",
            "may not change",
            "may not be changed",
            "cannot change roleRef",
            "updates to statefulset spec for fields other than",
            "updates to driverName are forbidden",
            "updates to parameters are forbidden",
            "once set",
            "once created",
            "can not be less than previous value",
        ];
        let is_immutable = |cause: &StatusCause| SAID.iter().any(|said| cause.message.contains(said));
        self.code == 422 && !self.causes().is_empty() && self.causes().iter().all(is_immutable)
    }

    /// An object of that name exists already.
    pub(crate) fn is_there_already(&self) -> bool {
        self.code == 409 && self.status.reason == "AlreadyExists"
    }

    /// Somebody has what there is once only already, such as a port of a Service or the rest of a quota.
    pub(crate) fn is_taken(&self) -> bool {
        const SAID: [&str; 3] = ["is already allocated", "is already marked as default", "exceeded quota"];
        SAID.iter().any(|said| self.status.message.contains(said))
    }

    /// Admission cannot say what it would do, or the server cannot answer with the object.
    pub(crate) fn is_dry_run_unsupported(&self) -> bool {
        (self.code == 400 && self.status.message.contains("does not support dry run")) || self.is_taken_for_list()
    }

    /// The request succeeded, but the server answers with an error because the object has `items` at its top, like a
    /// list (`transformResponseObject` of k8s.io/apiserver/pkg/endpoints/handlers/response.go).
    pub(crate) fn is_taken_for_list(&self) -> bool {
        self.code == 500 && self.status.message.ends_with("is not a list: no Items field in this object")
    }

    /// All causes are values of fields, and not by authorization or admission. Webhooks name fields too
    /// (k8s.io/apiserver/pkg/admission/plugin/webhook/errors).
    pub(crate) fn is_by_validation(&self) -> bool {
        self.code == 422
            && !self.causes().is_empty()
            && self.causes().iter().all(|cause| cause.reason.starts_with("FieldValue"))
            && !self.status.message.starts_with("admission webhook ")
    }

    /// All causes are about the definition of its kind. Rules for all kinds are about `metadata`.
    pub(crate) fn is_by_definition(&self) -> bool {
        let is_of_kind = |cause: &StatusCause| !cause.field.starts_with("metadata");
        self.is_schema_error() || (self.is_by_validation() && self.causes().iter().all(is_of_kind))
    }

    fn first_field(&self) -> Option<String> {
        let field = self.causes().iter().map(|c| c.field.as_str()).find(|field| !field.is_empty() && *field != "<nil>");
        let field = field.or(self.is_unknown_uid().then_some("metadata.uid"));
        field.map(|f| f.trim_start_matches('.').to_owned()).or_else(|| field_in_message(&self.status.message))
    }

    /// The kind has no such fields, or they are of another type.
    pub(crate) fn is_schema_error(&self) -> bool {
        // The managed-fields converter's error is no API error, so Go's apiserver reports it as 500.
        self.status.message.contains("typed patch object") || self.status.message.contains("typed live object")
    }

    /// The applied object cannot be converted to its kind, such as a Secret without base64. The code is 500 for this
    /// too.
    pub(crate) fn is_unconvertible(&self) -> bool {
        self.status.message.starts_with("failed to convert new object")
    }
}

/// Whether a cause is about the status.
fn is_of_status(cause: &StatusCause) -> bool {
    cause.field == "status" || cause.field.starts_with("status.")
}

/// The manager of a field, and whether it applies the field, from `conflict with "kubectl-edit" using v1`: an apply has
/// no version (k8s.io/apimachinery/pkg/util/managedfields/internal/conflict.go).
fn manager_of(message: &str) -> (String, bool) {
    let quoted = message.strip_prefix("conflict with ").unwrap_or(message);
    let mut texts = serde_json::Deserializer::from_str(quoted).into_iter::<String>();
    match texts.next() {
        Some(Ok(manager)) => (manager, !quoted[texts.byte_offset()..].contains(" using ")),
        // Nobody knows who it is; it is not taken unasked.
        Some(Err(_)) | None => (quoted.to_owned(), true),
    }
}

/// Server-side apply names a field only in its message: `… : .spec.replica: field not declared in schema`.
fn field_in_message(message: &str) -> Option<String> {
    let known = ["field not declared in schema", "expected ", "strict decoding error"];
    if !known.iter().any(|k| message.contains(k)) {
        return None;
    }
    if let Some((_, rest)) = message.split_once("unknown field \"") {
        return rest.split_once('"').map(|(field, _)| field.to_owned());
    }
    message.split_whitespace().find_map(|word| word.strip_prefix('.')?.strip_suffix(':')).map(str::to_owned)
}

impl CallError {
    /// The server does not let us.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Status(failure) if failure.code == 403)
    }

    /// The same after a request was sent: its result is unknown, even if further calls are suspended.
    pub(crate) fn after_a_call(self) -> Self {
        match self {
            Self::Suspended(message) => Self::Unreachable(message),
            Self::Status(_) | Self::Unreachable(_) | Self::TooLarge => self,
        }
    }

    /// The engine's error, without `sensitive` texts. [`Cluster`](crate::cluster::Cluster) has repeated the call by
    /// then as long as a webhook may fail.
    pub(crate) fn into_runtime(self, cluster: &str, sensitive: &Sensitive) -> RuntimeError {
        let verdict = Verdict::of(&self);
        match self {
            Self::Unreachable(message) => {
                RuntimeError::Unavailable { message: format!("cluster {cluster}: {}", sensitive.redact(&message)) }
            }
            Self::TooLarge => RuntimeError::Unavailable {
                message: format!("cluster {cluster}: the answer is larger than {} MiB and was not read", LARGEST >> 20),
            },
            Self::Suspended(message) => RuntimeError::Suspended {
                message: format!("cluster {cluster} has not answered for a long time: {}", sensitive.redact(&message)),
            },
            Self::Status(failure) => {
                let message = readable(&sensitive.redact(&failure.status.message));
                let message = failure.advice().map_or(message.clone(), |advice| format!("{message}; {advice}"));
                match verdict {
                    Verdict::Refuse if failure.is_ownership_conflict() => RuntimeError::Conflict(message),
                    Verdict::Refuse | Verdict::RetryBriefly => RuntimeError::Rejected {
                        field: failure.first_field(),
                        message,
                        by_definition: failure.is_by_definition(),
                    },
                    Verdict::Retry => RuntimeError::Unread { message: format!("cluster {cluster}: {message}") },
                    Verdict::Unknown => RuntimeError::Unavailable { message: format!("cluster {cluster}: {message}") },
                }
            }
        }
    }
}

impl Failure {
    /// Advice about an answer that does not say what to do.
    fn advice(&self) -> Option<String> {
        const STORED: &str = "objects may be stored in the removed version; keep it in spec.versions and store every \
                              object again (`kubectl get <plural>.<group> -A -o json | kubectl replace -f -`); then \
                              remove it from status.storedVersions (`kubectl edit crd <plural>.<group> \
                              --subresource=status`) and from spec.versions";
        const TOO_LARGE: &str =
            "the object is too large for the cluster (etcd's limit is 1.5 MiB); make it smaller or split it";
        if self.causes().iter().any(|cause| cause.field.starts_with("status.storedVersions")) {
            Some(STORED.to_owned())
        } else if self.is_ownership_conflict() {
            Some(format!("to take these fields, set {FORCE}: \"true\" in the resource's extensions or annotations"))
        } else if self.is_too_large() {
            Some(TOO_LARGE.to_owned())
        } else if self.is_unfit_patch() {
            Some(
                "a mutating webhook returned this patch; fix the webhook, or change or remove its configuration"
                    .to_owned(),
            )
        } else if self.is_unknown_uid() {
            Some("remove metadata.uid from the manifest".to_owned())
        } else if Verdict::of_answer(self) == Verdict::RetryBriefly {
            let time = PATIENCE.as_secs();
            Some(format!("the webhook has failed for {time} s; fix its server, or change or remove its configuration"))
        } else {
            None
        }
    }
}

/// The prefixes of a value as Go prints it in errors of server-side apply.
const GO_VALUES: [&str; 2] = ["&value.valueUnstructured{Value:", "&{"];

/// A message of server-side apply with the type of a value in place of the value as Go prints it, which may be long or
/// secret.
fn readable(message: &str) -> String {
    let mut rest = message;
    let mut text = String::new();
    while let Some(at) = rest.find("got &") {
        let (before, value) = rest.split_at(at + "got ".len());
        text.push_str(before);
        let Some(inner) = GO_VALUES.iter().find_map(|start| value.strip_prefix(start)) else {
            text.push('&');
            rest = &value[1..];
            continue;
        };
        text.push_str(go_kind(inner));
        // Errors are separated by lines; the text of the value does not matter.
        rest = inner.find("}\n").map_or("", |end| &inner[end + 1..]);
    }
    text + rest
}

fn go_kind(value: &str) -> &'static str {
    match value {
        v if v.starts_with("map[") => "a map",
        v if v.starts_with('[') => "a list",
        v if v.starts_with('"') => "a string",
        v if v.starts_with("true") || v.starts_with("false") => "a boolean",
        v if v.starts_with(|c: char| c.is_ascii_digit() || c == '-') => "a number",
        _ => "another value",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(code: u16, body: &str) -> RuntimeError {
        CallError::Status(Failure::new(code, None, body.as_bytes())).into_runtime("main", &Sensitive::default())
    }

    #[test]
    fn rejection_names_first_field() {
        let err = check(
            422,
            &json!({"kind": "Status", "message": "Service \"x\" is invalid", "reason": "Invalid", "details": {"causes": [
                {"reason": "FieldValueInvalid", "message": "m", "field": "spec.ports[0].port"},
                {"field": "spec.type"}
            ]}})
            .to_string(),
        );
        assert!(
            matches!(&err, RuntimeError::Rejected { field: Some(f), message, .. } if f == "spec.ports[0].port" && message == "Service \"x\" is invalid"),
            "{err:?}"
        );
    }

    #[test]
    fn stored_version_error_has_advice() {
        let message = "CustomResourceDefinition \"wells.stored.example.com\" is invalid: status.storedVersions[0]: Invalid \
                       value: \"v1alpha1\": missing from spec.versions";
        let cause = |field: &str| json!({"reason": "FieldValueInvalid", "message": "Invalid value", "field": field});
        let failure = |field: &str| {
            let status = json!({"kind": "Status", "message": message, "details": {"causes": [cause(field)]}});
            Failure::new(422, None, status.to_string().as_bytes())
        };
        let refused = failure("status.storedVersions[0]");
        assert!(!refused.may_be_immutable() && !failure("status.phase").may_be_immutable());
        assert!(failure("spec.statusField").may_be_immutable());
        let told = CallError::Status(refused).into_runtime("main", &Sensitive::default()).to_string();
        assert!(told.starts_with(&format!("{message}; ")) && told.contains("status.storedVersions ("), "{told}");
        assert!(!told.contains("recreate"), "{told}");
    }

    #[test]
    fn definition_errors_differ_from_other_rejections() {
        let refused = |message: &str, reason: &str, field: &str| {
            let causes = json!([{"reason": reason, "message": "m", "field": field}]);
            let status = json!({"kind": "Status", "message": message, "details": {"causes": causes}}).to_string();
            let err = check(422, &status);
            matches!(err, RuntimeError::Rejected { by_definition: true, .. })
        };
        assert!(refused("Widget \"w\" is invalid", "FieldValueNotSupported", "spec.mode"));
        // The root.
        assert!(refused("Widget \"w\" is invalid", "FieldValueInvalid", "<nil>"));
        assert!(!refused("Widget \"w\" is invalid", "FieldValueInvalid", "metadata.labels"));
        assert!(!refused("admission webhook \"a\" denied the request: no", "FieldValueInvalid", "spec.mode"));
        assert!(!refused("a policy denied the request: no", "", ""));
        let forbidden = check(403, &json!({"kind": "Status", "message": "widgets is forbidden"}).to_string());
        assert!(matches!(forbidden, RuntimeError::Rejected { by_definition: false, .. }));
    }

    #[test]
    fn unknown_field_with_code_500_is_rejection() {
        let message = "failed to create typed patch object (n/web; apps/v1, Kind=Deployment): .spec.replica: field not declared in schema";
        let err = check(500, &json!({"kind": "Status", "message": message, "code": 500}).to_string());
        assert!(matches!(&err, RuntimeError::Rejected { field: Some(f), .. } if f == "spec.replica"), "{err:?}");
    }

    #[test]
    fn wrong_type_with_code_500_is_rejection() {
        let message = "failed to convert new object (n/s; /v1, Kind=Secret) to proposed version: illegal base64 data at input byte 3";
        let err = check(500, &json!({"kind": "Status", "message": message, "code": 500}).to_string());
        assert!(matches!(&err, RuntimeError::Rejected { by_definition: false, .. }), "{err:?}");
    }

    #[test]
    fn unexpected_values_are_named_by_type() {
        for (printed, told) in [
            ("expected string, got &value.valueUnstructured{Value:5}", "expected string, got a number"),
            (
                "expected string, got &value.valueUnstructured{Value:map[string]interface {}{\"a\":\"}\"}}",
                "expected string, got a map",
            ),
            (
                "expected list, got &{map[a:1]}\n  .b: expected map, got &{[x]}",
                "expected list, got a map\n  .b: expected map, got a list",
            ),
            ("expected numeric (int or float), got string", "expected numeric (int or float), got string"),
            ("expected scalar, got &other", "expected scalar, got &other"),
        ] {
            let message =
                format!("failed to create typed patch object (n/web; apps/v1, Kind=Deployment): .spec.a: {printed}");
            let err = check(500, &json!({"kind": "Status", "message": message, "code": 500}).to_string());
            let RuntimeError::Rejected { field: Some(field), message: found, .. } = err else { panic!("{err:?}") };
            assert_eq!((field.as_str(), found), ("spec.a", message.replace(printed, told)), "{printed}");
        }
    }

    #[test]
    fn strict_decoding_names_field() {
        let message = "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: unknown field \"spec.replica\"";
        let err = check(400, &json!({"kind": "Status", "message": message, "code": 400}).to_string());
        assert!(matches!(&err, RuntimeError::Rejected { field: Some(f), .. } if f == "spec.replica"), "{err:?}");
    }

    #[test]
    fn ownership_conflict_differs_from_write_race() {
        let owned = json!({"message": "Apply failed with 1 conflict", "reason": "Conflict", "details": {"causes": [
            {"reason": "FieldManagerConflict", "field": ".spec.replicas"}]}});
        assert!(matches!(check(409, &owned.to_string()), RuntimeError::Conflict(_)));
        let raced = json!({"message": "the object has been modified", "reason": "Conflict", "details": {}});
        assert!(check(409, &raced.to_string()).is_retryable());
    }

    #[test]
    fn conflict_names_managers_and_fields() {
        let cause =
            |message: &str, field: &str| json!({"reason": "FieldManagerConflict", "message": message, "field": field});
        let status = json!({"message": "Apply failed with 4 conflicts", "details": {"causes": [
            cause(r#"conflict with "kubectl-edit" using apps/v1"#, ".spec.replicas"),
            cause(r#"conflict with "flux""#, ".data.a"),
            cause(r#"conflict with "kubectl-edit" using apps/v1 at 2026-01-02T03:04:05Z"#, ".spec.paused"),
            cause(r#"conflict with "a \"b\" using c" with subresource "scale" using v1"#, ".spec.x"),
        ]}});
        let failure = Failure::new(409, None, status.to_string().as_bytes());
        let told: Vec<_> =
            failure.field_conflicts().into_iter().map(|c| (c.manager, c.applies, c.fields.join(" "))).collect();
        let expected = [
            (r#"a "b" using c"#, false, ".spec.x"),
            ("flux", true, ".data.a"),
            ("kubectl-edit", false, ".spec.replicas .spec.paused"),
        ];
        assert_eq!(told, expected.map(|(manager, applies, fields)| (manager.to_owned(), applies, fields.to_owned())));
    }

    #[test]
    fn immutable_field_differs_from_invalid_one() {
        let refused = |code: u16, messages: &[&str]| {
            let causes: Vec<_> =
                messages.iter().map(|message| json!({"message": message, "field": "spec.a"})).collect();
            let status = json!({"kind": "Status", "message": "it is invalid", "details": {"causes": causes}});
            Failure::new(code, None, status.to_string().as_bytes())
        };
        let fixed = [
            "Invalid value: {}: field is immutable",
            "Forbidden: field is immutable when `immutable` is set",
            "Invalid value: []: may not change once set",
            "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals' are forbidden",
            "Forbidden: spec is immutable after creation except resources.requests",
            "Invalid value: {}: cannot change roleRef",
            "Forbidden: pod updates may not change fields other than `spec.containers[*].image`",
            "Forbidden: may not be changed in an update.",
            "Forbidden: updates to parameters are forbidden.",
            "Invalid value: null: field cannot be modified once set",
            "Forbidden: field can not be less than previous value",
        ];
        for message in fixed {
            assert!(refused(422, &[message]).is_immutable(), "{message}");
        }
        let wrong = "Invalid value: 70000: must be between 1 and 65535, inclusive";
        for messages in [&[wrong][..], &[fixed[0], wrong], &[]] {
            assert!(!refused(422, messages).is_immutable(), "{messages:?}");
        }
        assert!(!refused(409, &fixed).is_immutable());
    }

    #[test]
    fn only_field_validation_may_concern_change() {
        let cause = |reason: &str, field: &str| json!({"reason": reason, "message": "no", "field": field});
        let refused = |code: u16, causes: &[Value]| {
            let status = json!({"kind": "Status", "message": "it is invalid", "details": {"causes": causes}});
            Failure::new(code, None, status.to_string().as_bytes()).may_be_immutable()
        };
        let (invalid, forbidden) = (cause("FieldValueInvalid", "spec.a"), cause("FieldValueForbidden", "spec"));
        assert!(refused(422, &[invalid.clone(), forbidden]));
        for other in [cause("FieldValueRequired", "spec.a"), cause("FieldValueInvalid", ""), cause("", "")] {
            assert!(!refused(422, &[invalid.clone(), other]));
        }
        assert!(!refused(422, &[]) && !refused(403, &[invalid]));
    }

    #[test]
    fn overloaded_server_is_retryable() {
        for code in [408, 429, 500, 502, 503, 504] {
            assert!(check(code, "Too many requests, please try again later.").is_retryable(), "{code}");
        }
        for code in [400, 401, 403, 404, 405, 413, 415, 422] {
            assert!(!check(code, "no").is_retryable(), "{code}");
        }
    }

    #[test]
    fn missing_resources_are_distinguished() {
        let failure = |kind: &str, name: &str| {
            Failure::new(
                404,
                None,
                json!({"message": "not found", "details": {"kind": kind, "name": name}}).to_string().as_bytes(),
            )
        };
        assert!(failure("configmaps", "a").is_missing("/api/v1/namespaces/n/configmaps/a"));
        assert!(failure("namespaces", "n").is_missing_namespace());
        assert!(failure("namespaces", "n").is_missing("/api/v1/namespaces/n"));
        assert!(!failure("namespaces", "n").is_missing("/api/v1/namespaces/n/configmaps/n"));
        assert!(Failure::new(404, None, b"404 page not found\n").is_missing_kind());
    }
}
