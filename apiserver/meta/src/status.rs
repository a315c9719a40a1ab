//! Errors as clients see them: Kubernetes `Status` objects.
//!
//! Start at [`ApiError`]; its constructors give the reasons, codes and sentences that
//! `k8s.io/apimachinery/pkg/api/errors` gives. Field errors of validation are [`FieldError`]s.

mod encoding;

use std::{collections::HashSet, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, Status, StatusCause, StatusDetails};
pub use stoa_cel::go::text::is_printable;
pub use stoa_cel::go::text::quote;

pub use self::encoding::encode;
use crate::json;

/// A request's failure: a `Status` with `status: Failure`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", .0.message.as_deref().unwrap_or_default())]
pub struct ApiError(pub Box<Status>);

/// Why a field is refused; the words are those of `field.ErrorType` upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// The value is malformed or out of range.
    Invalid,
    /// The value is missing.
    Required,
    /// The value is not one of the supported ones.
    NotSupported,
    /// The value may not be set here.
    Forbidden,
    /// The value stands twice.
    Duplicate,
    /// The value refers to what does not exist.
    NotFound,
    /// The value has the wrong type.
    TypeInvalid,
    /// The string is too long.
    TooLong,
    /// The list is too long.
    TooMany,
}

impl FieldErrorKind {
    /// The cause's reason, such as `FieldValueInvalid`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Invalid => "FieldValueInvalid",
            Self::Required => "FieldValueRequired",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotFound => "FieldValueNotFound",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
        }
    }

    /// The words that begin the message, such as `Invalid value`.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::Required => "Required value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::Duplicate => "Duplicate value",
            Self::NotFound => "Not found",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }
}

/// One refused field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Its path, such as `spec.workspaces[0]`.
    pub field: String,
    /// Why.
    pub kind: FieldErrorKind,
    /// The whole message after the path, such as `Invalid value: "x": must be a path`.
    pub message: String,
}

impl FieldError {
    /// `field: Invalid value: <value as JSON, a text as Go quotes it>: detail`.
    pub fn invalid(field: impl Into<String>, value: impl serde::Serialize, detail: impl fmt::Display) -> Self {
        let kind = FieldErrorKind::Invalid;
        let value = shown(&value);
        Self { field: field.into(), kind, message: format!("{}: {value}: {detail}", kind.prefix()) }
    }

    /// `field: Required value: detail`.
    pub fn required(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::with_detail(FieldErrorKind::Required, field, detail)
    }

    /// `field: Forbidden: detail`.
    pub fn forbidden(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::with_detail(FieldErrorKind::Forbidden, field, detail)
    }

    /// `field: Not found: "value"`.
    pub fn not_found(field: impl Into<String>, value: impl serde::Serialize) -> Self {
        Self::with_detail(FieldErrorKind::NotFound, field, shown(&value))
    }

    /// `field: Duplicate value: "value"`.
    pub fn duplicate(field: impl Into<String>, value: impl serde::Serialize) -> Self {
        Self::with_detail(FieldErrorKind::Duplicate, field, shown(&value))
    }

    /// `field: Unsupported value: "value": supported values: "a", "b"`.
    pub fn not_supported(field: impl Into<String>, value: impl serde::Serialize, supported: &[&str]) -> Self {
        let value = shown(&value);
        let list: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        Self::with_detail(
            FieldErrorKind::NotSupported,
            field,
            format_args!("{value}: supported values: {}", list.join(", ")),
        )
    }

    fn with_detail(kind: FieldErrorKind, field: impl Into<String>, detail: impl fmt::Display) -> Self {
        let detail = detail.to_string();
        let message = if detail.is_empty() { kind.prefix().to_owned() } else { format!("{}: {detail}", kind.prefix()) };
        Self { field: field.into(), kind, message }
    }
}

/// A value in a message: a text as Go quotes it, whatever else as JSON.
fn shown(value: &impl serde::Serialize) -> String {
    let json = json::to_vec(value).unwrap_or_else(|_| b"null".to_vec());
    match serde_json::from_slice::<String>(&json) {
        Ok(text) => quote(&text),
        Err(_) => String::from_utf8_lossy(&json).into_owned(),
    }
}

/// After how many bytes of texts about fields no more are made.
pub(crate) const MAX_TOLD_BYTES: usize = 4 << 20;

/// Refused fields, up to some megabytes of them: each may say nearly as much as a request holds, and there may be one
/// for every few bytes of it.
#[derive(Debug, Default)]
pub struct FieldErrors {
    errors: Vec<FieldError>,
    told: usize,
}

impl FieldErrors {
    pub(crate) fn is_full(&self) -> bool {
        self.told > MAX_TOLD_BYTES
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// Adds one, unless there are too many.
    pub fn push(&mut self, error: FieldError) {
        self.extend([error]);
    }

    /// All of them, in the order in which they were found.
    pub fn into_vec(self) -> Vec<FieldError> {
        self.errors
    }
}

/// Those that are not taken are not made either.
impl Extend<FieldError> for FieldErrors {
    fn extend<I: IntoIterator<Item = FieldError>>(&mut self, errors: I) {
        let mut errors = errors.into_iter();
        while !self.is_full()
            && let Some(error) = errors.next()
        {
            self.told += error.field.len() + error.message.len();
            self.errors.push(error);
        }
    }
}

impl ApiError {
    /// A failure of this code, reason and message, with no details.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self(Box::new(Status {
            code: Some(i32::from(code)),
            reason: (!reason.is_empty()).then(|| reason.to_owned()),
            message: Some(message.into()),
            status: Some("Failure".to_owned()),
            metadata: ListMeta::default(),
            details: None,
        }))
    }

    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        self.0.code.and_then(|code| u16::try_from(code).ok()).unwrap_or(500)
    }

    /// The reason, or the empty string.
    pub fn reason(&self) -> &str {
        self.0.reason.as_deref().unwrap_or("")
    }

    /// The message, or the empty string.
    pub fn message(&self) -> &str {
        self.0.message.as_deref().unwrap_or("")
    }

    /// Whether this is the failure with that reason, such as `NotFound`.
    pub fn is(&self, reason: &str) -> bool {
        self.reason() == reason
    }

    fn with_object(mut self, group: &str, kind: &str, name: &str) -> Self {
        let details = self.0.details.get_or_insert_with(StatusDetails::default);
        details.group = (!group.is_empty()).then(|| group.to_owned());
        details.kind = (!kind.is_empty()).then(|| kind.to_owned());
        details.name = (!name.is_empty()).then(|| name.to_owned());
        self
    }

    /// Adds a cause.
    #[must_use]
    pub fn with_cause(mut self, reason: &str, field: &str, message: impl Into<String>) -> Self {
        let details = self.0.details.get_or_insert_with(StatusDetails::default);
        details.causes.get_or_insert_with(Vec::new).push(StatusCause {
            reason: (!reason.is_empty()).then(|| reason.to_owned()),
            field: (!field.is_empty()).then(|| field.to_owned()),
            message: Some(message.into()),
        });
        self
    }

    /// Asks the client to come back.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: i32) -> Self {
        self.0.details.get_or_insert_with(StatusDetails::default).retry_after_seconds = Some(seconds);
        self
    }

    /// 404 for an object; `resource` is the plural noun.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {} not found", qualified(resource, group), quote(name)))
            .with_object(group, resource, name)
    }

    /// 409 for a name that is taken.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} {} already exists", qualified(resource, group), quote(name)))
            .with_object(group, resource, name)
    }

    /// 409 for a lost race or failed precondition.
    pub fn conflict(group: &str, resource: &str, name: &str, detail: impl fmt::Display) -> Self {
        Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {} {}: {detail}", qualified(resource, group), quote(name)),
        )
        .with_object(group, resource, name)
    }

    /// 409 for a stale resourceVersion, with the sentence that clients know.
    pub fn stale(group: &str, resource: &str, name: &str) -> Self {
        Self::conflict(
            group,
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 403 with a reason for people.
    pub fn forbidden(group: &str, resource: &str, name: &str, detail: impl fmt::Display) -> Self {
        let what = qualified(resource, group);
        let message = if name.is_empty() {
            format!("{what} is forbidden: {detail}")
        } else {
            format!("{what} {} is forbidden: {detail}", quote(name))
        };
        Self::new(403, "Forbidden", message).with_object(group, resource, name)
    }

    /// 422 with one cause per refused field; `kind` is the Kind.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        // Whatever is said twice has two causes and one place in the sentence.
        let mut said = HashSet::new();
        let new = errors.iter().filter(|error| said.insert((&error.field, &error.message)));
        let texts: Vec<String> = new.map(|error| format!("{}: {}", error.field, error.message)).collect();
        let joined = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut error =
            Self::new(422, "Invalid", format!("{} {} is invalid: {joined}", qualified(kind, group), quote(name)))
                .with_object(group, kind, name);
        for e in errors {
            error = error.with_cause(e.kind.reason(), &e.field, &e.message);
        }
        error
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 405 for a verb that the resource does not have.
    pub fn method_not_supported(group: &str, resource: &str, verb: &str) -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            format!("{verb} is not supported on resources of kind {:?}", qualified(resource, group)),
        )
        .with_object(group, resource, "")
    }

    /// 413 for a request that is larger than `detail` allows.
    pub fn request_entity_too_large(detail: impl fmt::Display) -> Self {
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: {detail}"))
    }

    /// The failure for a code that no handler explains: 404, 405, 422, or 500 for any other.
    ///
    /// Follows `NewGenericServerResponse` in `k8s.io/apimachinery/pkg/api/errors`.
    pub fn generic(code: u16) -> Self {
        let (reason, message) = match code {
            404 => ("NotFound", "the server could not find the requested resource"),
            405 => ("MethodNotAllowed", "the server does not allow this method on the requested resource"),
            422 => ("Invalid", "the server rejected our request due to an error in our request"),
            _ => ("InternalError", "an error on the server has prevented the request from succeeding"),
        };
        let mut error = Self::new(code, reason, message);
        error.0.details = Some(Default::default());
        error
    }

    /// 410 for a version outside the window.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 500; the detail belongs in the server's log, not here.
    pub fn internal(message: impl fmt::Display) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {message}")).with_cause(
            "",
            "",
            message.to_string(),
        )
    }

    /// 500 for an operation that may succeed when tried again; `resource` is the plural noun.
    pub fn server_timeout(group: &str, resource: &str, operation: &str, retry_after: i32) -> Self {
        let what = qualified(resource, group);
        let message =
            format!("The {operation} operation against {what} could not be completed at this time, please try again.");
        Self::new(500, "ServerTimeout", message).with_object(group, resource, operation).with_retry_after(retry_after)
    }

    /// 503.
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    /// 504 with the seconds after which to try again.
    pub fn timeout(message: impl fmt::Display, retry_after: i32) -> Self {
        Self::new(504, "Timeout", format!("Timeout: {message}")).with_retry_after(retry_after)
    }

    /// 429.
    pub fn too_many_requests(message: impl Into<String>, retry_after: i32) -> Self {
        Self::new(429, "TooManyRequests", message).with_retry_after(retry_after)
    }
}

/// `resource.group`, or `resource` in the core group.
pub fn qualified(resource: &str, group: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}
