//! Verdicts about failed calls: whether to repeat the call, and whether the server wrote anything.
//!
//! [`Verdict::of_answer`] is the only table of the answers of a kube-apiserver.
//!
//! Follows, as of Kubernetes 1.34:
//!
//! * `failed calling webhook` and `admission webhook … denied the request`:
//!   k8s.io/apiserver/pkg/admission/plugin/webhook
//!   (`mutating/dispatcher.go`, `validating/dispatcher.go`, `errors/statuserror.go`).
//! * `conversion webhook for … failed`: k8s.io/apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go.
//! * `uid mismatch`: k8s.io/apiserver/pkg/endpoints/handlers/patch.go.
//! * `request is too large`: go.etcd.io/etcd/api/v3/v3rpc/rpctypes/error.go. `trying to send message larger than max`:
//!   google.golang.org/grpc/stream.go, by which the client in kube-apiserver refuses to send the write to etcd at all.

use crate::error::{CallError, Failure};

/// The meaning of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The server wrote nothing, and the same call may succeed soon.
    Retry,
    /// The server wrote nothing because a webhook failed. The answer is final once the webhook has failed for
    /// [`PATIENCE`](crate::webhooks::PATIENCE).
    RetryBriefly,
    /// The server wrote nothing, and the same call fails again.
    Refuse,
    /// The server may have written. The same call may succeed later.
    Unknown,
}

impl Verdict {
    /// The verdict on one failure.
    pub(crate) fn of(error: &CallError) -> Self {
        match error {
            // The call was not sent.
            CallError::Suspended(_) => Self::Retry,
            // The answer is lost.
            CallError::Unreachable(_) | CallError::TooLarge => Self::Unknown,
            CallError::Status(failure) => Self::of_answer(failure),
        }
    }

    /// The verdict on a failure that the server answers. The first line that matches counts.
    pub(crate) fn of_answer(failure: &Failure) -> Self {
        match failure.code {
            // The manifest has fields that the kind lacks. Go's apiserver answers 500 for it, too.
            500 if failure.is_schema_error() => Self::Refuse,
            // Admission and conversion come before the write. A status of the webhook's own may be any.
            409 | 429 | 500.. if failure.webhook().is_some() => Self::RetryBriefly,
            // The manifest has values that cannot be decoded.
            500 if failure.is_unconvertible() => Self::Refuse,
            // A mutating webhook answered with a patch that does not fit the object.
            500 if failure.is_unfit_patch() => Self::Refuse,
            // No write of that size ever fits into etcd.
            500 if failure.is_too_large() => Self::Refuse,
            // The manifest conflicts with other managers, or has an unknown uid.
            409 if failure.is_ownership_conflict() || failure.is_unknown_uid() => Self::Refuse,
            // Another client wrote the object, or a quota that counts it, at the same moment.
            409 => Self::Retry,
            // The server turned the call away before it handled it: too many requests, or a cache that is not filled yet.
            429 => Self::Retry,
            // The server or a proxy before it gave up waiting, or failed in the middle. The write may go on.
            408 | 500.. => Self::Unknown,
            _ => Self::Refuse,
        }
    }
}

impl Failure {
    /// The webhook that the server blames: its name, or the kind that it converts.
    pub(crate) fn webhook(&self) -> Option<&str> {
        const BLAMED: [(&str, &[&str]); 3] = [
            ("failed calling webhook \"", &["\""]),
            ("admission webhook \"", &["\""]),
            ("conversion webhook for ", &[" failed: ", " returned "]),
        ];
        BLAMED.iter().find_map(|(before, after)| {
            let (_, rest) = self.status.message.split_once(before)?;
            after.iter().find_map(|after| Some(rest.split_once(after)?.0))
        })
    }

    /// A mutating webhook answered with a JSON patch that cannot be applied to the object. The server does not name it.
    pub(crate) fn is_unfit_patch(&self) -> bool {
        let message = &self.status.message;
        message.starts_with("Internal error occurred: ") && message.contains("operation does not apply: doc is missing")
    }

    /// The write is larger than etcd accepts.
    pub(crate) fn is_too_large(&self) -> bool {
        const SAID: [&str; 2] = ["etcdserver: request is too large", "trying to send message larger than max"];
        SAID.iter().any(|said| self.status.message.contains(said))
    }

    /// The manifest names a uid, and no object has it. Stoa itself names none where it applies.
    pub(crate) fn is_unknown_uid(&self) -> bool {
        self.code == 409 && self.status.message.contains("uid mismatch: the provided object specified uid")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verdict(code: u16, message: &str) -> Verdict {
        let status = json!({"kind": "Status", "status": "Failure", "message": message, "code": code});
        Verdict::of(&CallError::Status(Failure::new(code, None, status.to_string().as_bytes())))
    }

    #[test]
    fn every_server_answer_has_verdict() {
        use Verdict::{Refuse, Retry, RetryBriefly, Unknown};
        for (code, message, expected) in [
            (400, "the body is invalid", Refuse),
            (401, "Unauthorized", Refuse),
            (403, "configmaps is forbidden", Refuse),
            (403, "admission webhook \"a.example.com\" denied the request: no", Refuse),
            (404, "configmaps \"a\" not found", Refuse),
            (405, "the server does not allow this method on the requested resource", Refuse),
            (408, "request timeout", Unknown),
            (409, "Operation cannot be fulfilled on configmaps \"a\": the object has been modified", Retry),
            (409, "Operation cannot be fulfilled on resourcequotas \"q\": the object has been modified", Retry),
            (409, "configmaps \"a\" already exists", Retry),
            (
                409,
                "Operation cannot be fulfilled on configmaps \"a\": uid mismatch: the provided object specified uid 0b1f, and no \
                 existing object was found",
                Refuse,
            ),
            (409, "admission webhook \"a.example.com\" denied the request: busy", RetryBriefly),
            (413, "Request entity too large: limit is 3145728", Refuse),
            (415, "unsupported media type", Refuse),
            (422, "ConfigMap \"a\" is invalid: data: Invalid value", Refuse),
            (429, "Too many requests, please try again later.", Retry),
            (429, "storage is (re)initializing", Retry),
            (
                500,
                "failed to create typed patch object (n/a; apps/v1, Kind=Deployment): .spec.x: field not declared in schema",
                Refuse,
            ),
            (
                500,
                "failed to convert new object (n/s; /v1, Kind=Secret) to proposed version: illegal base64 data",
                Refuse,
            ),
            (500, "etcdserver: request is too large", Refuse),
            (
                500,
                "rpc error: code = ResourceExhausted desc = trying to send message larger than max (3 vs. 2)",
                Refuse,
            ),
            (
                500,
                "Internal error occurred: failed calling webhook \"a.example.com\": failed to call webhook: refused",
                RetryBriefly,
            ),
            (500, "admission webhook \"a.example.com\" denied the request: the cache is not filled", RetryBriefly),
            (500, "conversion webhook for example.com/v1, Kind=Widget failed: connection refused", RetryBriefly),
            (
                500,
                "failed to convert new object (n/a; example.com/v1, Kind=Widget) to proposed version: conversion webhook for \
                 example.com/v1, Kind=Widget failed: connection refused",
                RetryBriefly,
            ),
            (
                500,
                "Internal error occurred: jsonpatch add operation does not apply: doc is missing path: \"/a/b\": missing value",
                Refuse,
            ),
            (500, "etcdserver: request timed out", Unknown),
            (500, "etcdserver: leader changed", Unknown),
            (502, "bad gateway", Unknown),
            (503, "the server is currently unable to handle the request", Unknown),
            (504, "Timeout: request did not complete within the allotted timeout", Unknown),
        ] {
            assert_eq!(verdict(code, message), expected, "{code} {message}");
        }
        let owned = json!({"message": "Apply failed with 1 conflict", "details": {"causes": [
            {"reason": "FieldManagerConflict", "field": ".spec.replicas"}]}});
        let owned = CallError::Status(Failure::new(409, None, owned.to_string().as_bytes()));
        assert_eq!(Verdict::of(&owned), Refuse);
        assert_eq!(Verdict::of(&CallError::Suspended("refused".to_owned())), Retry);
        assert_eq!(Verdict::of(&CallError::Unreachable("refused".to_owned())), Unknown);
        assert_eq!(Verdict::of(&CallError::TooLarge), Unknown);
    }

    #[test]
    fn answer_names_failed_webhook() {
        for (message, webhook) in [
            (
                "Internal error occurred: failed calling webhook \"a.example.com\": failed to call webhook: x",
                Some("a.example.com"),
            ),
            ("admission webhook \"b.example.com\" denied the request: x", Some("b.example.com")),
            (
                "conversion webhook for example.com/v1, Kind=Widget failed: Post \"https://x\": refused",
                Some("example.com/v1, Kind=Widget"),
            ),
            (
                "conversion webhook for example.com/v1, Kind=Widget returned no objects",
                Some("example.com/v1, Kind=Widget"),
            ),
            ("etcdserver: leader changed", None),
        ] {
            let failure = Failure::new(500, None, json!({"message": message}).to_string().as_bytes());
            assert_eq!(failure.webhook(), webhook, "{message}");
        }
    }
}
