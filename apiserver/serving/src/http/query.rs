//! Query parameters: parsing them into options, and refusing what is wrong with them.
//!
//! Follows the parameter codec of `k8s.io/apimachinery` (a malformed number is 400) and its
//! validation of create, update and patch options (a wrong value is 422). Those of lists, watches
//! and deletes are validated by the store, which other parts of the server call too.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Preconditions;
use stoa_meta::{
    request::{FieldValidation, RequestContext},
    status::{ApiError, FieldError, FieldErrors, is_printable, quote},
};
use stoa_registry::registry::{
    DeleteOptions, FIELD_MANAGER_BYTES, ListOptions, WatchOptions, field_manager_errors, is_dry_run,
};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;

const META: &str = "meta.k8s.io";

/// The parameters of a query, decoded, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses what stands after the `?`. As in Go's `net/url`, a pair with a semicolon or a broken escape is none.
    pub(crate) fn parse(query: &str) -> Self {
        Self(stoa_cel::go::query(query))
    }

    /// The parameters of pairs that were decoded before.
    pub(crate) fn of_pairs(pairs: Vec<(String, String)>) -> Self {
        Self(pairs)
    }

    pub(crate) fn into_pairs(self) -> Vec<(String, String)> {
        self.0
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, value)| &**value)
    }

    /// The first value of a parameter; others are ignored, as upstream does.
    pub(crate) fn first(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| &**value)
    }

    /// The options of a write as they were sent, in the form that `CreateOptions` have.
    pub(crate) fn write_options_sent(&self) -> serde_json::Map<String, serde_json::Value> {
        let mut sent = serde_json::Map::new();
        let dry_run: Vec<&str> = self.all("dryRun").filter(|value| !value.is_empty()).collect();
        if !dry_run.is_empty() {
            sent.insert("dryRun".to_owned(), dry_run.into());
        }
        for name in ["fieldManager", "fieldValidation"] {
            sent.extend(self.text(name).map(|value| (name.to_owned(), value.into())));
        }
        sent
    }

    fn text(&self, name: &str) -> Option<String> {
        self.first(name).filter(|value| !value.is_empty()).map(str::to_owned)
    }

    /// A flag: true unless its value is `0` or `false`.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.first(name).map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    fn integer(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.first(name) else { return Ok(None) };
        value.parse().map(Some).map_err(|error: std::num::ParseIntError| {
            // In the words of Go's strconv, which is what clients are used to.
            let problem = match error.kind() {
                std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => "value out of range",
                _ => "invalid syntax",
            };
            ApiError::bad_request(format!("strconv.ParseInt: parsing {}: {problem}", quote(value)))
        })
    }

    /// The options of a `list` or `deletecollection`; the store says whether they go together.
    /// Fails with 400 for a malformed number.
    pub(crate) fn list(&self) -> Result<ListOptions, ApiError> {
        // It means nothing to a list, but has to be a number.
        self.integer("timeoutSeconds")?;
        Ok(ListOptions {
            label_selector: self.text("labelSelector"),
            field_selector: self.text("fieldSelector"),
            limit: self.integer("limit")?.and_then(|limit| u64::try_from(limit).ok()),
            continue_token: self.text("continue"),
            resource_version: self.text("resourceVersion"),
            resource_version_match: self.text("resourceVersionMatch"),
            send_initial_events: self.flag("sendInitialEvents"),
        })
    }

    /// The options of a `watch`; the store says whether they go together. Lasts for `default` unless the client
    /// says otherwise.
    /// Fails with 400 for a malformed number.
    pub(crate) fn watch(&self, default: Duration) -> Result<WatchOptions, ApiError> {
        let list = self.list()?;
        // Counted as Go does: as nanoseconds, which wrap. A watch whose end is past already ends at once.
        let timeout = self.integer("timeoutSeconds")?.map(|seconds| seconds.wrapping_mul(1_000_000_000));
        let mut options = WatchOptions {
            label_selector: list.label_selector,
            field_selector: list.field_selector,
            name: None,
            continue_token: list.continue_token,
            resource_version: list.resource_version,
            resource_version_match: list.resource_version_match,
            allow_bookmarks: self.flag("allowWatchBookmarks").unwrap_or(false),
            send_initial_events: list.send_initial_events,
            timeout: timeout
                .filter(|nanos| *nanos != 0)
                .map_or(default, |nanos| Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))),
        };
        // A watch that does not say where it begins has always begun with what is there.
        let from_now = matches!(options.resource_version.as_deref(), None | Some("0"));
        if from_now && options.send_initial_events.is_none() && options.resource_version_match.is_none() {
            options.send_initial_events = Some(true);
            options.resource_version_match = Some("NotOlderThan".to_owned());
        }
        Ok(options)
    }

    /// The options of a write. `kind` is that of the options, such as `CreateOptions`.
    /// Fails with 422 for a value that is none.
    pub(crate) fn write(&self, kind: &str) -> Result<WriteOptions, ApiError> {
        let forced = kind == "PatchOptions" && self.first("force").is_some();
        let forced = forced.then(|| FieldError::forbidden("force", "may not be specified for non-apply patch"));
        self.write_options(kind, forced)
    }

    /// The options of an apply, and whether it is forced.
    /// Fails with 422 for a value that is none, and without a field manager.
    pub(crate) fn apply(&self) -> Result<(WriteOptions, bool), ApiError> {
        let nobody = self.first("fieldManager").unwrap_or("").is_empty();
        let nobody = nobody.then(|| FieldError::required("fieldManager", "is required for apply patch"));
        Ok((self.write_options("PatchOptions", nobody)?, self.flag("force").unwrap_or(false)))
    }

    fn write_options(&self, kind: &str, error: Option<FieldError>) -> Result<WriteOptions, ApiError> {
        let mut errors = FieldErrors::default();
        errors.extend(error);
        let field_manager = self.first("fieldManager").unwrap_or("");
        errors.extend(field_manager_errors(|| "fieldManager".to_owned(), field_manager));
        let dry_run = is_dry_run(&self.all("dryRun").collect::<Vec<_>>(), &mut errors);
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
            return Err(ApiError::invalid(META, kind, "", &errors.into_vec()));
        }
        Ok(WriteOptions { dry_run, field_validation, field_manager: field_manager.to_owned() })
    }

    /// The options of a delete that has no body.
    /// Fails with 400 for a malformed number.
    pub(crate) fn delete(&self) -> Result<DeleteOptions, ApiError> {
        let dry_run: Vec<_> = self.all("dryRun").map(str::to_owned).collect();
        let (uid, resource_version) = (self.text("uid"), self.text("resourceVersion"));
        let preconditions =
            (uid.is_some() || resource_version.is_some()).then_some(Preconditions { uid, resource_version });
        Ok(DeleteOptions {
            preconditions,
            dry_run: (!dry_run.is_empty()).then_some(dry_run),
            grace_period_seconds: self.integer("gracePeriodSeconds")?,
            orphan_dependents: self.flag("orphanDependents"),
            propagation_policy: self.first("propagationPolicy").map(str::to_owned),
            ignore_store_read_error_with_cluster_breaking_potential: self
                .flag("ignoreStoreReadErrorWithClusterBreakingPotential"),
            ..DeleteOptions::default()
        })
    }

    /// What the rows of a table carry.
    /// Fails with 400 for an unknown policy.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum IncludeObject {
    None,
    Metadata,
    Object,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) field_validation: FieldValidation,
    pub(crate) field_manager: String,
}

impl WriteOptions {
    pub(crate) fn context(self, context: &RequestContext, user_agent: &str) -> RequestContext {
        let mut context = context.clone();
        context.dry_run = self.dry_run;
        context.field_validation = self.field_validation;
        context.field_manager =
            if self.field_manager.is_empty() { manager_from(user_agent) } else { self.field_manager };
        context
    }
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

    fn watch(query: &str) -> WatchOptions {
        Query::parse(query).watch(Duration::from_secs(7)).unwrap()
    }

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse("a=1&b=x%20y+z&a=2&c&&d=%3D");
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!((query.first("b"), query.first("c"), query.first("d")), (Some("x y z"), Some(""), Some("=")));
    }

    #[test]
    fn malformed_numbers_are_bad_requests() {
        let list = |query: &str| Query::parse(query).list();
        refused(list("limit=ten"), 400, "strconv.ParseInt: parsing \"ten\": invalid syntax");
        refused(
            list("limit=99999999999999999999"),
            400,
            "strconv.ParseInt: parsing \"99999999999999999999\": value out of range",
        );
        assert_eq!(list("limit=-1").unwrap().limit, None);
        assert_eq!(list("limit=7").unwrap().limit, Some(7));
    }

    #[test]
    fn watch_from_now_begins_with_what_is_there() {
        for query in ["", "resourceVersion=0", "resourceVersion="] {
            assert_eq!(watch(query).send_initial_events, Some(true), "{query}");
        }
        assert_eq!(watch("resourceVersion=5").send_initial_events, None);
        assert_eq!(watch("sendInitialEvents=false").send_initial_events, Some(false));
    }

    #[test]
    fn watch_lasts_as_long_as_the_client_says() {
        assert_eq!(watch("timeoutSeconds=5").timeout, Duration::from_secs(5));
        assert_eq!(watch("timeoutSeconds=0").timeout, Duration::from_secs(7));
        assert_eq!(watch("timeoutSeconds=-1").timeout, Duration::ZERO);
        assert_eq!(watch("timeoutSeconds=9223372036854775807").timeout, Duration::ZERO);
        assert_eq!(watch("timeoutSeconds=-9223372036854775808").timeout, Duration::from_secs(7));
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
}
