//! What reads and writes are asked with, and what they answer.

use std::{sync::Arc, time::Duration};

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;

use crate::{
    cache::Stored,
    log::Version,
    object::Object,
    status::{ApiError, FieldError},
};

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
    /// `resourceVersion`: unset and `0` begin with what is there, a number with what came after it.
    pub resource_version: Option<String>,
    /// `resourceVersionMatch`: only `NotOlderThan`, and only with `sendInitialEvents`.
    pub resource_version_match: Option<String>,
    /// `allowWatchBookmarks`.
    pub allow_bookmarks: bool,
    /// `sendInitialEvents`.
    pub send_initial_events: Option<bool>,
    /// How long the watch lasts; the caller chooses when the client did not.
    pub timeout: Duration,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self {
            label_selector: None,
            field_selector: None,
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

/// What a watch tells.
#[derive(Clone, Debug)]
pub enum Event {
    /// The object is new to this watch.
    Added(Arc<Stored>),
    /// The object was changed.
    Modified(Arc<Stored>),
    /// The object is gone, for this watch at least: its last state, with the version of its going.
    Deleted(Arc<Stored>),
    /// Nothing before this version is left to tell.
    Bookmark {
        /// Where a next watch may begin.
        version: Version,
        /// Whether this is the one that ends the initial events, to be annotated with
        /// `k8s.io/initial-events-end`.
        initial_events_end: bool,
    },
    /// The watch failed; nothing comes after this.
    Error(ApiError),
}

/// Which part of an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Everything but the status, when there is a status subresource.
    Main,
    /// Nothing but the status.
    Status,
    /// The number of replicas, as a Scale.
    Scale,
    /// Nothing but the [`Part`](crate::definition::Part) whose subresource this is.
    Part(&'static str),
}

impl Target {
    /// The subresource that writes it, or nothing.
    pub(crate) fn subresource(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Part(name) => name,
        }
    }
}

/// Makes the new object from the current one; may be called again when a write is retried.
pub type Transform<'a> = Box<dyn FnMut(&Object) -> Result<Object, ApiError> + Send + 'a>;

/// Where the new state of an update comes from.
pub enum UpdateSource<'a> {
    /// It is this (PUT).
    Object(Object),
    /// It is made from the current one (PATCH), `metadata.resourceVersion` in it. Called again
    /// with the newer one when another write comes between. A `resourceVersion` in the outcome
    /// that is not the current one is a conflict.
    Transform(Transform<'a>),
    /// A configuration is merged into the current one, or creates it. The context's field manager
    /// owns what the configuration says from then on.
    Apply(Apply<'a>),
}

/// Brings an object that a configuration was merged into to its schema, or refuses it; may be called again when a
/// write is retried.
pub type Finish<'a> = Box<dyn FnMut(Object) -> Result<Object, ApiError> + Send + 'a>;

/// A configuration to apply: server-side apply.
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
    pub finish: Finish<'a>,
}

impl std::fmt::Debug for Apply<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { configuration, force, previous: _, finish: _ } = self;
        f.debug_struct("Apply").field("configuration", configuration).field("force", force).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for UpdateSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Object(object) => f.debug_tuple("Object").field(object).finish(),
            Self::Transform(_) => f.write_str("Transform"),
            Self::Apply(apply) => f.debug_tuple("Apply").field(apply).finish(),
        }
    }
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
    /// The object is gone; this was its last state.
    Gone(Arc<Stored>),
    /// The object waits for its finalizers; this is its state.
    Pending(Arc<Stored>),
}

fn invalid_options(kind: &str, errors: &[FieldError]) -> Result<(), ApiError> {
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid("meta.k8s.io", kind, "", errors)) }
}

impl ListOptions {
    /// 422 for combinations that upstream's `ValidateListOptions` refuses.
    pub(super) fn validate(&self) -> Result<(), ApiError> {
        let mut errors = Vec::new();
        let version = self.resource_version.as_deref().unwrap_or("");
        if let Some(wanted) = self.resource_version_match.as_deref().filter(|wanted| !wanted.is_empty()) {
            let field = "resourceVersionMatch";
            if version.is_empty() {
                errors.push(FieldError::forbidden(
                    field,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if self.token().is_some() {
                errors
                    .push(FieldError::forbidden(field, "resourceVersionMatch is forbidden when continue is provided"));
            }
            if wanted != EXACT && wanted != NOT_OLDER_THAN {
                errors.push(FieldError::not_supported(field, wanted, &[EXACT, NOT_OLDER_THAN, ""]));
            }
            if wanted == EXACT && version == "0" {
                errors.push(FieldError::forbidden(
                    field,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
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
    /// otherwise, since the next pages will be of that version.
    pub(super) fn wants_exact(&self) -> bool {
        match self.resource_version_match.as_deref() {
            Some(wanted) if !wanted.is_empty() => wanted == EXACT,
            _ => self.limit.is_some_and(|limit| limit > 0),
        }
    }
}

impl WatchOptions {
    /// 422 for combinations that upstream's `ValidateListOptions` refuses.
    pub(super) fn validate(&self) -> Result<(), ApiError> {
        let mut errors = Vec::new();
        let field = "resourceVersionMatch";
        let wanted = self.resource_version_match.as_deref().unwrap_or("");
        if self.send_initial_events.is_some() && wanted != NOT_OLDER_THAN {
            errors.push(FieldError::forbidden(
                field,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        if !wanted.is_empty() {
            if self.send_initial_events.is_none() {
                errors.push(FieldError::forbidden(
                    field,
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ));
            }
            if wanted != NOT_OLDER_THAN {
                errors.push(FieldError::not_supported(field, wanted, &[NOT_OLDER_THAN]));
            }
        }
        invalid_options("ListOptions", &errors)
    }
}

/// 422 for what upstream's `ValidateDeleteOptions` refuses.
pub(super) fn validate_delete(options: &DeleteOptions) -> Result<(), ApiError> {
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
    invalid_options("DeleteOptions", &errors)
}

/// `resourceVersionMatch`: the version itself.
const EXACT: &str = "Exact";
/// `resourceVersionMatch`: the version or a later one.
const NOT_OLDER_THAN: &str = "NotOlderThan";

/// `propagationPolicy`: dependents first.
pub(super) const FOREGROUND: &str = "Foreground";
/// `propagationPolicy`: dependents afterwards.
const BACKGROUND: &str = "Background";
/// `propagationPolicy`: dependents stay.
pub(super) const ORPHAN: &str = "Orphan";
