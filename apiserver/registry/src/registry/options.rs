//! Options and results of reads and writes: `ListOptions`, `DeleteOptions` and the like.

use std::{sync::Arc, time::Duration};

use stoa_log::Version;
use stoa_meta::{
    object::Object,
    status::{ApiError, FieldError},
};

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;

use crate::cache::Stored;

/// The query of a list, each parameter as it was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// `labelSelector`.
    pub label_selector: Option<String>,
    /// `fieldSelector`.
    pub field_selector: Option<String>,
    /// `limit`; 0 is none.
    pub limit: Option<u64>,
    /// `continue`.
    pub continue_token: Option<String>,
    /// `resourceVersion`: unset shows what is there now, `0` whatever is at hand, a number nothing older.
    pub resource_version: Option<String>,
    /// `resourceVersionMatch`: `Exact` or `NotOlderThan`.
    pub resource_version_match: Option<String>,
    /// `sendInitialEvents`, which a list refuses.
    pub send_initial_events: Option<bool>,
}

/// The query of a watch, each parameter as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchOptions {
    /// `labelSelector`.
    pub label_selector: Option<String>,
    /// `fieldSelector`.
    pub field_selector: Option<String>,
    /// The only object that it is about, where the path names one.
    pub name: Option<String>,
    /// `continue`, which tells a watch nothing.
    pub continue_token: Option<String>,
    /// `resourceVersion`: unset and `0` begin with what is there, a number with what came after it.
    pub resource_version: Option<String>,
    /// `resourceVersionMatch`: only `NotOlderThan`, and only with `sendInitialEvents`.
    pub resource_version_match: Option<String>,
    /// `allowWatchBookmarks`.
    pub allow_bookmarks: bool,
    /// `sendInitialEvents`.
    pub send_initial_events: Option<bool>,
    /// How long the watch lasts; the caller chooses when the client did not. One that lasts no time tells nothing.
    pub timeout: Duration,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self {
            label_selector: None,
            field_selector: None,
            name: None,
            continue_token: None,
            resource_version: None,
            resource_version_match: None,
            allow_bookmarks: false,
            send_initial_events: None,
            timeout: Duration::from_secs(1800),
        }
    }
}

/// A list or one page of it.
#[derive(Clone, Debug)]
pub struct List {
    /// Its `resourceVersion`: a watch from here misses nothing.
    pub version: Version,
    /// The objects, in key order.
    pub items: Vec<Arc<Stored>>,
    /// Gives the next page, when there is one.
    pub continue_token: Option<String>,
    /// How many objects come after this page; unknown with selectors.
    pub remaining_item_count: Option<i64>,
}

/// Makes the new object from the current one; may be called again when a write is retried.
pub type Transform<'a> = Box<dyn FnMut(&Object) -> Result<Object, ApiError> + Send + 'a>;

/// Where the new state of an update comes from.
#[derive(educe::Educe)]
#[educe(Debug)]
pub enum UpdateSource<'a> {
    /// It is this (PUT).
    Object(Object),
    /// It is made from the current one (PATCH), `metadata.resourceVersion` in it. Called again
    /// with the newer one when another write comes between. A `resourceVersion` in the outcome
    /// that is not the current one is a conflict.
    Transform(#[educe(Debug(ignore))] Transform<'a>),
    /// A configuration is merged into the current one, or creates it. The context's field manager
    /// owns what the configuration says from then on.
    Apply(Apply<'a>),
}

/// Brings an object that a configuration was merged into to its schema, or refuses it; may be called again when a
/// write is retried.
pub type Finish<'a> = Box<dyn FnMut(Object) -> Result<Object, ApiError> + Send + 'a>;

/// A configuration to apply: server-side apply.
#[derive(educe::Educe)]
#[educe(Debug)]
pub struct Apply<'a> {
    /// What is applied; `apiVersion`, `kind` and `metadata.name` in it.
    pub configuration: Object,
    /// Whether it takes the fields that others own and it would change.
    pub force: bool,
    /// What its author had before, where that is known and it is the author who decides about all of it, as about a
    /// file: what the configuration leaves out of this goes, whoever owns it. Without it, only what the same manager
    /// applied before and nobody else owns goes.
    pub previous: Option<Object>,
    /// What is left to do with the merged object: defaults, types, values.
    #[educe(Debug(ignore))]
    pub finish: Finish<'a>,
}

impl<'a> UpdateSource<'a> {
    /// The source of a PATCH.
    pub fn transform(transform: impl FnMut(&Object) -> Result<Object, ApiError> + Send + 'a) -> Self {
        Self::Transform(Box::new(transform))
    }
}

/// What a delete did.
#[derive(Clone, Debug)]
pub enum Deleted {
    /// What was stored did not decode, and is gone.
    Undecodable,
    /// The object is gone; this was its last state.
    Gone(Arc<Stored>),
    /// The object waits for its finalizers; this is its state.
    Pending(Arc<Stored>),
}

fn invalid_options(kind: &str, errors: &[FieldError]) -> Result<(), ApiError> {
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid("meta.k8s.io", kind, "", errors)) }
}

const MATCH: &str = "resourceVersionMatch";

fn wrong_match(detail: &str) -> FieldError {
    FieldError::forbidden(MATCH, detail)
}

/// What is wrong with a `resourceVersionMatch` beside a `continue`.
fn match_of_a_page(token: &Option<String>) -> Option<FieldError> {
    token.as_deref().filter(|token| !token.is_empty())?;
    Some(wrong_match("resourceVersionMatch is forbidden when continue is provided"))
}

impl ListOptions {
    /// 422 for combinations that upstream's `ValidateListOptions` refuses.
    pub(super) fn validate(&self) -> Result<(), ApiError> {
        let mut errors = Vec::new();
        let version = self.resource_version.as_deref().unwrap_or("");
        if let Some(wanted) = self.resource_version_match.as_deref().filter(|wanted| !wanted.is_empty()) {
            if version.is_empty() {
                errors.push(wrong_match("resourceVersionMatch is forbidden unless resourceVersion is provided"));
            }
            errors.extend(match_of_a_page(&self.continue_token));
            if wanted != EXACT && wanted != NOT_OLDER_THAN {
                errors.push(FieldError::not_supported(MATCH, wanted, &[EXACT, NOT_OLDER_THAN, ""]));
            }
            if wanted == EXACT && version == "0" {
                errors.push(wrong_match("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
            }
        }
        if self.send_initial_events.is_some() {
            errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        invalid_options("ListOptions", &errors)
    }

    pub(super) fn token(&self) -> Option<&str> {
        self.continue_token.as_deref().filter(|token| !token.is_empty())
    }

    /// Whether the list says that it wants exactly its version.
    pub(super) fn says_exact(&self) -> bool {
        self.resource_version_match.as_deref() == Some(EXACT)
    }

    /// Whether the list must show exactly its version. A limit asks for that too, unless it says
    /// otherwise, since the next pages will be of that version; of one object there are none.
    pub(super) fn wants_exact(&self, is_of_one: bool) -> bool {
        match self.resource_version_match.as_deref() {
            Some(wanted) if !wanted.is_empty() => wanted == EXACT,
            _ => !is_of_one && self.limit.is_some_and(|limit| limit > 0),
        }
    }

    /// Whether the list asks for a version rather than for nothing older, whatever it shows then.
    pub(super) fn is_of_a_version(&self) -> bool {
        self.wants_exact(false)
    }
}

impl WatchOptions {
    /// 422 for combinations that upstream's `ValidateListOptions` refuses.
    pub(super) fn validate(&self) -> Result<(), ApiError> {
        let mut errors = Vec::new();
        let wanted = self.resource_version_match.as_deref().unwrap_or("");
        if self.send_initial_events.is_some() && wanted != NOT_OLDER_THAN {
            errors.push(wrong_match("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
        }
        if !wanted.is_empty() {
            if self.send_initial_events.is_none() {
                errors.push(wrong_match(
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ));
            }
            if wanted != NOT_OLDER_THAN {
                errors.push(FieldError::not_supported(MATCH, wanted, &[NOT_OLDER_THAN]));
            }
            errors.extend(match_of_a_page(&self.continue_token));
        }
        invalid_options("ListOptions", &errors)
    }
}

/// Says whether a delete is a dry run. Fails with 422 for what upstream's `ValidateDeleteOptions` refuses.
pub fn check_delete(options: &DeleteOptions) -> Result<bool, ApiError> {
    let mut errors = Vec::new();
    let field = "propagationPolicy";
    if let Some(policy) = options.propagation_policy.as_deref() {
        if options.orphan_dependents.is_some() {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid(field, policy, detail));
        }
        if ![FOREGROUND, BACKGROUND, ORPHAN].contains(&policy) {
            errors.push(FieldError::not_supported(field, policy, &[FOREGROUND, BACKGROUND, ORPHAN, "nil"]));
        }
    }
    let dry_run: Vec<_> = options.dry_run.iter().flatten().map(String::as_str).collect();
    let dry_run = is_dry_run(&dry_run, &mut errors);
    invalid_options("DeleteOptions", &errors).map(|()| dry_run)
}

/// Whether a delete is to go on where what is stored does not decode.
pub(super) fn ignores_read_error(options: &DeleteOptions) -> bool {
    options.ignore_store_read_error_with_cluster_breaking_potential == Some(true)
}

/// Rejects options that need the object, for an undecodable one.
/// Fails with 422 for what upstream's `ValidateIgnoreStoreReadError` refuses.
pub(super) fn check_undecodable_delete(options: &DeleteOptions) -> Result<(), ApiError> {
    let others = [
        ("dryRun", options.dry_run.as_ref().is_some_and(|dry_run| !dry_run.is_empty())),
        ("propagationPolicy", options.propagation_policy.is_some()),
        ("orphanDependents", options.orphan_dependents.is_some()),
        ("gracePeriodSeconds", options.grace_period_seconds.is_some()),
        ("preconditions", options.preconditions.is_some()),
    ];
    let set = others.into_iter().filter(|(_, is_set)| *is_set);
    let errors: Vec<_> = set
        .map(|(other, _)| {
            FieldError::invalid(IGNORE_READ_ERROR, true, format_args!("cannot be set together with .{other}"))
        })
        .collect();
    invalid_options("DeleteOptions", &errors)
}

/// Says whether a write with these `dryRun`s is one, of which nothing is kept.
pub fn is_dry_run(values: &[&str], errors: &mut impl Extend<FieldError>) -> bool {
    if values.iter().any(|value| *value != "All") {
        errors.extend([FieldError::not_supported("dryRun", values, &["All"])]);
    }
    !values.is_empty()
}

const EXACT: &str = "Exact";
const NOT_OLDER_THAN: &str = "NotOlderThan";

/// The option of a delete that goes on where what is stored does not decode.
const IGNORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

pub(super) const FOREGROUND: &str = "Foreground";
const BACKGROUND: &str = "Background";
pub(super) const ORPHAN: &str = "Orphan";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delete_options_report_every_error() {
        let check = |orphan: Option<bool>, policy: Option<&str>, dry_run: &[&str]| {
            let options = DeleteOptions {
                dry_run: Some(dry_run.iter().map(|&value| value.to_owned()).collect()),
                orphan_dependents: orphan,
                propagation_policy: policy.map(str::to_owned),
                ..DeleteOptions::default()
            };
            check_delete(&options).map_err(|error| (error.code(), error.message().to_owned()))
        };
        assert_eq!(check(None, Some(ORPHAN), &[]), Ok(false));
        assert_eq!(check(Some(true), None, &["All"]), Ok(true));
        let refused = |errors: &str| Err((422, format!("DeleteOptions.meta.k8s.io \"\" is invalid: {errors}")));
        let dry_run = "dryRun: Unsupported value: [\"x\"]: supported values: \"All\"";
        assert_eq!(check(None, None, &["x"]), refused(dry_run));
        let unknown = "propagationPolicy: Unsupported value: \"z\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"";
        assert_eq!(check(None, Some("z"), &["x"]), refused(&format!("[{unknown}, {dry_run}]")));
        let both =
            "propagationPolicy: Invalid value: \"Orphan\": orphanDependents and deletionPropagation cannot be both set";
        assert_eq!(check(Some(false), Some(ORPHAN), &["x"]), refused(&format!("[{both}, {dry_run}]")));
    }
}
