//! Query parameters: parsing them into options, and refusing what is wrong with them.
//!
//! Follows the parameter codec of `k8s.io/apimachinery` (a malformed number is 400) and its
//! validation of list, create, update, patch and delete options (a wrong value is 422).

use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::{
    request::{FieldValidation, RequestContext},
    status::{ApiError, FieldError, FieldErrorKind},
};

/// The group that the options' kinds are in.
const META: &str = "meta.k8s.io";

/// The parameters of a query, decoded, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses what stands after the `?`.
    pub(crate) fn parse(query: &str) -> Self {
        let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(name, value)| (decode(name), decode(value)))
                .collect(),
        )
    }

    /// The pairs.
    pub(crate) fn into_pairs(self) -> Vec<(String, String)> {
        self.0
    }

    /// The values of a parameter.
    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, value)| &**value)
    }

    /// The first value of a parameter; others are ignored, as upstream does.
    pub(crate) fn first(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| &**value)
    }

    /// The first value, unless it is empty.
    fn text(&self, name: &str) -> Option<String> {
        self.first(name).filter(|value| !value.is_empty()).map(str::to_owned)
    }

    /// A flag: true unless its value is `0` or `false`.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.first(name).map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// A whole number.
    fn integer(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.first(name) else { return Ok(None) };
        value.parse().map(Some).map_err(|error: std::num::ParseIntError| {
            // In the words of Go's strconv, which is what clients are used to.
            let problem = match error.kind() {
                std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => "value out of range",
                _ => "invalid syntax",
            };
            ApiError::bad_request(format!("strconv.ParseInt: parsing {value:?}: {problem}"))
        })
    }

    /// The options of a `list`, `watch` or `deletecollection`.
    ///
    /// # Errors
    ///
    /// 400 for a malformed number, 422 for values that do not go together.
    pub(crate) fn collection(&self, watch: bool) -> Result<CollectionOptions, ApiError> {
        let mut options = CollectionOptions {
            label_selector: self.text("labelSelector"),
            field_selector: self.text("fieldSelector"),
            limit: self.integer("limit")?.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0),
            continue_token: self.text("continue"),
            resource_version: self.text("resourceVersion"),
            resource_version_match: self.text("resourceVersionMatch"),
            timeout: self
                .integer("timeoutSeconds")?
                .filter(|s| *s != 0)
                .map(|s| Duration::from_secs(u64::try_from(s).unwrap_or(0))),
            allow_bookmarks: self.flag("allowWatchBookmarks").unwrap_or(false),
            send_initial_events: self.flag("sendInitialEvents"),
        };
        let errors = if watch { options.default_and_validate_watch() } else { options.validate_list() };
        if errors.is_empty() { Ok(options) } else { Err(ApiError::invalid(META, "ListOptions", "", &errors)) }
    }

    /// The options of a write. `kind` is that of the options, such as `CreateOptions`.
    ///
    /// # Errors
    ///
    /// 422 for a value that is none.
    pub(crate) fn write(&self, kind: &str) -> Result<WriteOptions, ApiError> {
        let mut errors = Vec::new();
        if kind == "PatchOptions" && self.first("force").is_some() {
            errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
        }
        let field_manager = self.first("fieldManager").unwrap_or("");
        errors.extend(field_manager_errors(field_manager));
        let dry_run = dry_run(&self.all("dryRun").collect::<Vec<_>>(), &mut errors);
        let validation = self.first("fieldValidation").unwrap_or("");
        let field_validation = match validation {
            "Ignore" => FieldValidation::Ignore,
            "" | "Warn" => FieldValidation::Warn,
            "Strict" => FieldValidation::Strict,
            _ => {
                let known = ["", "Ignore", "Strict", "Warn"];
                errors.push(FieldError::not_supported("fieldValidation", validation, &known));
                FieldValidation::default()
            }
        };
        if !errors.is_empty() {
            return Err(ApiError::invalid(META, kind, "", &errors));
        }
        Ok(WriteOptions { dry_run, field_validation, field_manager: field_manager.to_owned() })
    }

    /// The options of a delete that has no body, as the JSON that a body would be.
    ///
    /// # Errors
    ///
    /// 400 for a malformed number.
    pub(crate) fn delete(&self) -> Result<DeleteParameters, ApiError> {
        Ok(DeleteParameters {
            dry_run: self.all("dryRun").map(str::to_owned).collect(),
            grace_period_seconds: self.integer("gracePeriodSeconds")?,
            orphan_dependents: self.flag("orphanDependents"),
            propagation_policy: self.first("propagationPolicy").map(str::to_owned),
            preconditions: None,
        })
    }

    /// What the rows of a table carry.
    ///
    /// # Errors
    ///
    /// 400 for an unknown policy.
    pub(crate) fn include_object(&self) -> Result<IncludeObject, ApiError> {
        match self.first("includeObject").unwrap_or("") {
            "" | "Metadata" => Ok(IncludeObject::Metadata),
            "Object" => Ok(IncludeObject::Object),
            "None" => Ok(IncludeObject::None),
            other => {
                let detail = "must be 'Metadata', 'Object', 'None', or empty";
                let error = FieldError::invalid("includeObject", other, detail);
                Err(ApiError::bad_request(format!(
                    "Unable to convert to Table as requested: {}: {}",
                    error.field, error.message
                )))
            }
        }
    }
}

/// What the rows of a table carry beside their cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    /// Nothing.
    None,
    /// The object's metadata.
    Metadata,
    /// The object.
    Object,
}

/// The options of `list`, `watch` and `deletecollection`, validated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CollectionOptions {
    pub(crate) label_selector: Option<String>,
    pub(crate) field_selector: Option<String>,
    pub(crate) limit: Option<usize>,
    pub(crate) continue_token: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) resource_version_match: Option<String>,
    /// How long a watch lasts, when the client has said so.
    pub(crate) timeout: Option<Duration>,
    pub(crate) allow_bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
}

impl CollectionOptions {
    fn validate_list(&self) -> Vec<FieldError> {
        const FIELD: &str = "resourceVersionMatch";
        let mut errors = Vec::new();
        if let Some(wanted) = self.resource_version_match.as_deref() {
            if self.resource_version.is_none() {
                errors.push(FieldError::forbidden(
                    FIELD,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if self.continue_token.is_some() {
                errors
                    .push(FieldError::forbidden(FIELD, "resourceVersionMatch is forbidden when continue is provided"));
            }
            if !matches!(wanted, "Exact" | "NotOlderThan") {
                errors.push(not_supported(FIELD, wanted, &["Exact", "NotOlderThan", ""]));
            }
            if wanted == "Exact" && self.resource_version.as_deref() == Some("0") {
                let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                errors.push(FieldError::forbidden(FIELD, detail));
            }
        }
        if self.send_initial_events.is_some() {
            errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        errors
    }

    fn default_and_validate_watch(&mut self) -> Vec<FieldError> {
        const FIELD: &str = "resourceVersionMatch";
        let from_now = matches!(self.resource_version.as_deref(), None | Some("0"));
        if from_now && self.send_initial_events.is_none() && self.resource_version_match.is_none() {
            self.send_initial_events = Some(true);
            self.resource_version_match = Some("NotOlderThan".to_owned());
        }

        let mut errors = Vec::new();
        let wanted = self.resource_version_match.as_deref();
        if self.send_initial_events.is_some() && wanted != Some("NotOlderThan") {
            let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden(FIELD, detail));
        }
        if let Some(wanted) = wanted {
            if self.send_initial_events.is_none() {
                let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                errors.push(FieldError::forbidden(FIELD, detail));
            }
            if wanted != "NotOlderThan" {
                errors.push(not_supported(FIELD, wanted, &["NotOlderThan"]));
            }
            if self.continue_token.is_some() {
                errors
                    .push(FieldError::forbidden(FIELD, "resourceVersionMatch is forbidden when continue is provided"));
            }
        }
        errors
    }
}

/// The options of `create`, `update` and `patch`, validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) field_validation: FieldValidation,
    pub(crate) field_manager: String,
}

impl WriteOptions {
    /// The context of the write: `context`, with these options in it.
    pub(crate) fn context(self, context: &RequestContext, user_agent: &str) -> RequestContext {
        let mut context = context.clone();
        context.dry_run = self.dry_run;
        context.field_validation = self.field_validation;
        context.field_manager =
            if self.field_manager.is_empty() { manager_from(user_agent) } else { self.field_manager };
        context
    }
}

/// The options of a delete as clients send them, not validated.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeleteParameters {
    pub(crate) dry_run: Vec<String>,
    pub(crate) grace_period_seconds: Option<i64>,
    pub(crate) orphan_dependents: Option<bool>,
    pub(crate) propagation_policy: Option<String>,
    pub(crate) preconditions: Option<Preconditions>,
}

/// What must hold of an object for it to be deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Preconditions {
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

impl DeleteParameters {
    /// Finds what is wrong with them, and says whether it is a dry run.
    ///
    /// # Errors
    ///
    /// 422 for wrong values.
    pub(crate) fn validate(&self) -> Result<bool, ApiError> {
        const FIELD: &str = "propagationPolicy";
        let mut errors = Vec::new();
        if let Some(policy) = self.propagation_policy.as_deref() {
            if self.orphan_dependents.is_some() {
                let detail = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(FieldError::invalid(FIELD, policy, detail));
            }
            if !matches!(policy, "Foreground" | "Background" | "Orphan") {
                errors.push(not_supported(FIELD, policy, &["Foreground", "Background", "Orphan", "nil"]));
            }
        }
        let dry_run = dry_run(&self.dry_run.iter().map(|value| &**value).collect::<Vec<_>>(), &mut errors);
        if errors.is_empty() { Ok(dry_run) } else { Err(ApiError::invalid(META, "DeleteOptions", "", &errors)) }
    }
}

/// `FieldError::not_supported` with the values in the order given.
fn not_supported(field: &str, value: &str, supported: &[&str]) -> FieldError {
    let list: Vec<_> = supported.iter().map(|s| format!("{s:?}")).collect();
    let kind = FieldErrorKind::NotSupported;
    let message = format!("{}: {value:?}: supported values: {}", kind.prefix(), list.join(", "));
    FieldError { field: field.to_owned(), kind, message }
}

fn dry_run(values: &[&str], errors: &mut Vec<FieldError>) -> bool {
    if values.iter().any(|value| *value != "All") {
        errors.push(FieldError::not_supported("dryRun", values, &["All"]));
    }
    !values.is_empty()
}

/// The longest name of a field manager, in bytes.
const FIELD_MANAGER_BYTES: usize = 128;

fn field_manager_errors(manager: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if manager.len() > FIELD_MANAGER_BYTES {
        let kind = FieldErrorKind::TooLong;
        let message = format!("{}: may not be more than {FIELD_MANAGER_BYTES} bytes", kind.prefix());
        errors.push(FieldError { field: "fieldManager".to_owned(), kind, message });
    }
    for (position, c) in manager.char_indices().filter(|(_, c)| !is_printable(*c)) {
        let detail = format!("invalid character U+{:04X} (at position {position})", u32::from(c));
        errors.push(FieldError::invalid("fieldManager", manager, detail));
    }
    errors
}

/// Whether a character leaves a mark or is a space, as Go's `unicode.IsPrint` has it. Unassigned
/// characters, of which Rust has no table, pass here.
fn is_printable(c: char) -> bool {
    let invisible = matches!(u32::from(c),
        0xAD | 0x600..=0x605 | 0x61C | 0x6DD | 0x70F | 0x180E | 0x200B..=0x200F | 0x202A..=0x202E
        | 0x2060..=0x206F | 0xE000..=0xF8FF | 0xFEFF | 0xFFF0..=0xFFFB | 0xE0000..=0x0010_FFFF);
    c == ' ' || !(c.is_control() || c.is_whitespace() || invisible)
}

/// The field manager of a client that names none: its `User-Agent` up to the first `/`.
fn manager_from(user_agent: &str) -> String {
    let mut manager = String::new();
    for c in user_agent.split('/').next().unwrap_or("").chars().filter(|c| is_printable(*c)) {
        if manager.len() + c.len_utf8() > FIELD_MANAGER_BYTES {
            break;
        }
        manager.push(c);
    }
    manager
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused<T: std::fmt::Debug>(result: Result<T, ApiError>, code: u16, message: &str) {
        let error = result.unwrap_err();
        assert_eq!((error.code(), error.message()), (code, message));
    }

    fn list(query: &str) -> Result<CollectionOptions, ApiError> {
        Query::parse(query).collection(false)
    }

    fn watch(query: &str) -> Result<CollectionOptions, ApiError> {
        Query::parse(query).collection(true)
    }

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse("a=1&b=x%20y+z&a=2&c&&d=%3D");
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!((query.first("b"), query.first("c"), query.first("d")), (Some("x y z"), Some(""), Some("=")));
    }

    #[test]
    fn malformed_numbers_are_bad_requests() {
        refused(list("limit=ten"), 400, "strconv.ParseInt: parsing \"ten\": invalid syntax");
        refused(
            list("timeoutSeconds=99999999999999999999"),
            400,
            "strconv.ParseInt: parsing \"99999999999999999999\": value out of range",
        );
        assert_eq!(list("limit=0").unwrap().limit, None);
        assert_eq!(list("limit=-1").unwrap().limit, None);
        assert_eq!(list("limit=7").unwrap().limit, Some(7));
    }

    #[test]
    fn resource_version_match_needs_what_it_matches() {
        let prefix = "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: ";
        refused(
            list("resourceVersionMatch=Exact"),
            422,
            &format!("{prefix}Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"),
        );
        refused(
            list("resourceVersionMatch=Newest&resourceVersion=1"),
            422,
            &format!("{prefix}Unsupported value: \"Newest\": supported values: \"Exact\", \"NotOlderThan\", \"\""),
        );
        refused(
            list("resourceVersionMatch=Exact&resourceVersion=0"),
            422,
            &format!("{prefix}Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""),
        );
        refused(
            list("resourceVersionMatch=Exact&resourceVersion=1&continue=x"),
            422,
            &format!("{prefix}Forbidden: resourceVersionMatch is forbidden when continue is provided"),
        );
        refused(
            list("sendInitialEvents=true"),
            422,
            "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
        );
        assert!(list("resourceVersionMatch=NotOlderThan&resourceVersion=0").is_ok());
    }

    #[test]
    fn watch_from_now_begins_with_what_is_there() {
        for query in ["", "resourceVersion=0", "resourceVersion="] {
            assert_eq!(watch(query).unwrap().send_initial_events, Some(true), "{query}");
        }
        assert_eq!(watch("resourceVersion=5").unwrap().send_initial_events, None);
        refused(
            watch("sendInitialEvents=true&resourceVersion=5"),
            422,
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        );
        refused(
            watch("resourceVersionMatch=NotOlderThan&resourceVersion=5"),
            422,
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        );
    }

    #[test]
    fn write_options_are_validated() {
        let write = |query: &str| Query::parse(query).write("PatchOptions");
        let prefix = "PatchOptions.meta.k8s.io \"\" is invalid: ";
        refused(
            write("dryRun=Some"),
            422,
            &format!("{prefix}dryRun: Unsupported value: [\"Some\"]: supported values: \"All\""),
        );
        refused(
            write("fieldValidation=Maybe"),
            422,
            &format!(
                "{prefix}fieldValidation: Unsupported value: \"Maybe\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""
            ),
        );
        refused(
            write(&format!("fieldManager={}", "x".repeat(129))),
            422,
            &format!("{prefix}fieldManager: Too long: may not be more than 128 bytes"),
        );
        refused(
            write("fieldManager=a%0Ab"),
            422,
            &format!("{prefix}fieldManager: Invalid value: \"a\\nb\": invalid character U+000A (at position 1)"),
        );
        refused(
            write("force=true"),
            422,
            &format!("{prefix}force: Forbidden: may not be specified for non-apply patch"),
        );
        let options = write("dryRun=All&fieldValidation=Strict&fieldManager=me").unwrap();
        assert_eq!(
            options,
            WriteOptions { dry_run: true, field_validation: FieldValidation::Strict, field_manager: "me".to_owned() }
        );
    }

    #[test]
    fn field_manager_defaults_to_the_user_agent() {
        let context = RequestContext::internal("test");
        let manager = |query: &str, agent: &str| {
            Query::parse(query).write("CreateOptions").unwrap().context(&context, agent).field_manager
        };
        assert_eq!(manager("", "kubectl/v1.32 (linux)"), "kubectl");
        assert_eq!(manager("fieldManager=me", "kubectl/v1.32"), "me");
        assert_eq!(manager("", &"é".repeat(100)), "é".repeat(64));
    }

    #[test]
    fn delete_options_are_validated() {
        let validate = |query: &str| Query::parse(query).delete().unwrap().validate();
        let prefix = "DeleteOptions.meta.k8s.io \"\" is invalid: ";
        refused(
            validate("propagationPolicy=Later"),
            422,
            &format!(
                "{prefix}propagationPolicy: Unsupported value: \"Later\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
            ),
        );
        refused(
            validate("propagationPolicy=Orphan&orphanDependents=true"),
            422,
            &format!(
                "{prefix}propagationPolicy: Invalid value: \"Orphan\": orphanDependents and deletionPropagation cannot be both set"
            ),
        );
        assert!(validate("dryRun=All&propagationPolicy=Foreground").unwrap());
    }
}
