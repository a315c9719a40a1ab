//! The seam between the engine and the infrastructure: the [`Runtime`] trait, two fakes for tests, and the conformance
//! suite.
//!
//! The engine reads everything that a plan needs in one [`Runtime::read`], decides with the pure core, and makes one
//! call per resource while it walks.

#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "fake")]
pub mod fake;
#[cfg(feature = "fake")]
pub mod fake_provider;
mod grant;
mod kubernetes_checks;
mod limit;
mod provider_checks;
mod retry;
mod runtime_set;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};
use stoa_engine::object::uid_of;
use stoa_engine::owner::{LeftAlone, Ownership, is_marked};
use stoa_engine::{
    Action, DigestKeys, FieldChange, FieldConflict, FieldPath, Owner, Problem, ProviderPlan, ProviderState, Resource,
    ResourceId, ResourceType, Sensitive, StateResource, conflict,
    planner::{Planned, changes, disagreements},
    problem::reason,
};
pub use stoa_engine::{Health, KubernetesObject, Live, Preview, Validation as Level};

pub use grant::{Grant, Lapsed};
pub use kubernetes_checks::{DeletionVerdict, JobEnd, KubernetesChecks, NoKubernetes};
pub use limit::{CallLimits, Caller, Turn, Turns};
pub use provider_checks::{NoProviders, ProviderChecks};
pub use runtime_set::RuntimeSet;

/// The message about a resource that cannot be written or dry-run while the existing object is terminating.
pub const TERMINATING: &str = "the existing object is still being deleted";

/// Why a Secret with plain-text values is rejected, and what to use instead.
pub const SECRET_IN_THE_OPEN: &str = "a Secret with plain-text values is not written to Git; use a SealedSecret \
                                      (Sealed Secrets) or an ExternalSecret (External Secrets), or encrypt the \
                                      values with SOPS";

/// A resource to read.
#[derive(Clone, Debug)]
pub struct ReadRequest<'a> {
    /// The wanted resource, references replaced where they are known; `None` when it is only recorded.
    pub desired: Option<&'a Resource>,
    /// The recorded resource, if there is one.
    pub prior: Option<&'a StateResource>,
}

impl ReadRequest<'_> {
    /// The id of the resource.
    ///
    /// # Panics
    ///
    /// When neither is set.
    pub fn id(&self) -> &ResourceId {
        match (self.desired, self.prior) {
            (Some(desired), _) => &desired.id,
            (None, Some(prior)) => &prior.id,
            (None, None) => panic!("a read request names a resource"),
        }
    }
}

/// Brings one resource to what is wanted.
#[derive(Clone, Debug)]
pub struct ApplyRequest<'a> {
    /// The wanted resource with resolved references.
    pub desired: &'a Resource,
    /// The record, if any.
    pub prior: Option<&'a StateResource>,
    /// Whether an existing object is adopted.
    pub adopt: bool,
    /// Whether the plan found no object, or a replacement has deleted it, so that an object of others must not be
    /// adopted.
    pub create: bool,
    /// The fields that the plan changes, with the values that it found, without ignored fields. `None` without a plan,
    /// without a read, or for a replacement.
    pub changes: Option<&'a [FieldChange]>,
    /// The fields that the plan takes from other managers. `None` without a plan or dry run: then
    /// [`may_take`](stoa_engine::conflict::may_take) decides.
    pub taken: Option<&'a [FieldConflict]>,
    /// The sensitive values of `desired`, whose texts are masked in `taken` and `changes`.
    pub sensitive: Option<&'a Sensitive>,
    /// The paths of `desired` whose values are unknown, for a runtime that [decides](ProviderChecks::decides).
    pub unknown: Option<&'a BTreeSet<FieldPath>>,
    /// Whether a data source is read by the apply alone, because something that it depends on changes first.
    pub read_later: bool,
    /// The keys of the digests in `prior`. Without them, sensitive values cannot be compared with the record.
    pub keys: Option<&'a DigestKeys>,
}

impl<'a> ApplyRequest<'a> {
    /// An apply of `desired` with the record `prior`, without a plan.
    pub fn new(desired: &'a Resource, prior: Option<&'a StateResource>) -> Self {
        let (adopt, create, changes, taken, sensitive, unknown, read_later, keys) = Default::default();
        Self { desired, prior, adopt, create, changes, taken, sensitive, unknown, read_later, keys }
    }

    /// An adoption of an existing object without a record.
    pub fn adopting(desired: &'a Resource) -> Self {
        Self { adopt: true, ..Self::new(desired, None) }
    }

    /// Rejects a live object that the plan does not know: it found none, or another one, and no try of ours created it.
    /// [`RuntimeError::check_owner`] decides about objects with an owner.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::Conflict`]. The next plan shows an adoption.
    pub fn check_unplanned(&self, live: &Map<String, Value>) -> Result<(), RuntimeError> {
        if self.adopt || is_marked(live) {
            return Ok(());
        }
        let message = match (self.prior.and_then(StateResource::uid), uid_of(live)) {
            (Some(recorded), Some(uid)) if recorded == uid => return Ok(()),
            _ if self.create => "others created it after the plan; plan again to take it over",
            (Some(_), Some(_)) => {
                "the applied object no longer exists, and others created one of its name after the plan; plan again \
                 to take it over"
            }
            (None, _) | (_, None) => return Ok(()),
        };
        Err(RuntimeError::Conflict(message.to_owned()))
    }

    /// Rejects a provider's plan at the time of the apply that differs from the approved one, or that needs another
    /// object where none was planned. `live` is the object before, and `sensitive` has its paths that are sensitive by the
    /// schema.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::Stale`], with the fields that differ.
    pub fn check_plan(
        &self,
        plan: &ProviderPlan,
        live: Option<&Map<String, Value>>,
        sensitive: &BTreeSet<FieldPath>,
    ) -> Result<(), RuntimeError> {
        let stale = |message: String| Err(RuntimeError::Stale(format!("{message}; plan again")));
        if !self.create && plan.action == Action::Replace {
            let paths: Vec<String> = plan.replaced_by.iter().map(FieldPath::to_string).collect();
            let why = if paths.is_empty() { String::new() } else { format!(", because of {}", paths.join(", ")) };
            return stale(format!("the change now needs another object{why}"));
        }
        if !self.create && (self.prior.is_some() || self.adopt) && live.is_none() {
            return stale("the object no longer exists".to_owned());
        }
        let (Some(planned), Some(keys)) = (self.changes, self.keys) else { return Ok(()) };
        let mut all = sensitive.clone();
        all.extend(self.sensitive.into_iter().flat_map(|sensitive| sensitive.paths().iter().cloned()));
        let now = Planned { plan, live, prior: self.prior, sensitive: &all, keys };
        let differing = disagreements(planned, &changes(&self.desired.id, &now));
        if differing.is_empty() {
            return Ok(());
        }
        stale(format!("the provider now plans other values than were approved: {}", differing.join(", ")))
    }

    /// Whether these fields are taken from their managers.
    pub fn takes(&self, conflicts: &[FieldConflict]) -> bool {
        match self.taken {
            Some(planned) => match self.sensitive {
                Some(sensitive) => conflict::are_planned(planned, &conflict::masked(conflicts, sensitive)),
                None => conflict::are_planned(planned, conflicts),
            },
            None => conflict::may_take(self.desired, self.prior.is_some() && !self.adopt, conflicts),
        }
    }
}

/// How resources are validated that no cluster checks before they are deployed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Validation {
    /// The effect of an invalid resource on a plan.
    pub level: Level,
    /// The version of Kubernetes whose schemas validate built-in kinds, one of
    /// [`KUBERNETES_VERSIONS`](stoa_engine::validation::KUBERNETES_VERSIONS); empty for no validation.
    pub kubernetes: String,
    /// The CustomResourceDefinitions of the validated kinds that are deployed and not wanted here. Several of one kind are
    /// equally near; one of them has to accept a resource.
    pub definitions: Vec<Map<String, Value>>,
}

/// The object after a call without a known result.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "it exists for a few lost calls at a time")]
pub enum Found {
    /// Nothing.
    Absent,
    /// The object of the call, or the recorded one: it has our owner annotation, or the recorded uid and no owner.
    Ours(Applied),
    /// An object of others.
    Foreign,
    /// It cannot be read, and a second call might create a second resource.
    Unknowable,
}

/// The result of an apply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Applied {
    /// The resource as the infrastructure reports it afterwards.
    pub live: Map<String, Value>,
    /// The Kubernetes object, if it is one.
    pub kubernetes: Option<KubernetesObject>,
    /// The state that its provider needs back, if it has one.
    pub provider_state: Option<ProviderState>,
    /// Warnings of its provider, without sensitive texts.
    pub warnings: Vec<String>,
}

/// The result of a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// It is deleted.
    Gone,
    /// Its deletion was requested and is not complete, such as with finalizers: [`Runtime::wait_deleted`] waits for
    /// this object.
    Terminating(Box<KubernetesObject>),
    /// It stays, for this reason: another deployment owns it, or it is not the recorded one.
    Left(LeftAlone),
}

/// Receives a health and its reason, for people. A type of its own, because `async_trait` would give the text the
/// lifetime of the call.
pub type HealthReport<'a> = dyn Fn(Health, &str) + Send + Sync + 'a;

/// Receives what a deletion waits for, as a message.
pub type DeletionReport<'a> = dyn Fn(&str) + Send + Sync + 'a;

/// The end of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// The commit that a GitOps runtime wrote or found written for this run.
    pub commit: Option<String>,
    /// Resources that were not deleted, with the names of their owners: a [deferred](Runtime::is_deferred) runtime
    /// knows them only now.
    pub left: BTreeMap<ResourceId, String>,
    /// The pull request of a [deferred](Runtime::is_deferred) runtime, which changed nothing yet.
    pub proposal: Option<Proposal>,
}

/// A pull request. Nothing is changed until people merge it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The number of the pull request.
    pub number: u64,
    /// Its page; empty when that is not known.
    pub url: String,
    /// The branch that it brings in.
    pub branch: String,
    /// The head of that branch.
    pub commit: String,
    /// Its state.
    pub state: ProposalState,
    /// What prevents the merge, if known, for people to resolve.
    pub blocked: Option<String>,
}

/// The state of a pull request that is not merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProposalState {
    /// It is open.
    Open,
    /// Somebody closed it.
    Closed,
    /// A newer run of the same deployment, with this name, proposes other changes.
    Superseded(String),
}

/// A kind of infrastructure the engine can drive, such as Kubernetes or a GitOps repository.
///
/// A runtime is made for one run. The engine may run calls for different resources at once.
///
/// Each applied object has the owner annotation of the deployment ([`stoa_engine::owner`]). Objects of other
/// deployments are neither changed nor deleted, whatever is planned.
#[async_trait]
pub trait Runtime: fmt::Debug + Send + Sync + 'static {
    /// The deployment that it works for.
    fn owner(&self) -> &Owner;

    /// The destinations of its changes: by cluster name, or under an empty name for a single one. The text is the same
    /// for the same server, or repository and branch. It holds no credentials.
    fn destinations(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// The questions about Kubernetes objects, which only their planner asks.
    fn kubernetes(&self) -> &dyn KubernetesChecks {
        &NoKubernetes
    }

    /// The questions about resources that a provider decides about.
    fn providers(&self) -> &dyn ProviderChecks {
        &NoProviders
    }

    /// Whether [`apply`](Self::apply) and [`delete`](Self::delete) only collect changes of resources of a type, and
    /// [`finish`](Self::finish) makes them all at once. Nothing counts as done before, and a resumed walk collects
    /// everything again.
    fn is_deferred(&self, kind: ResourceType) -> bool {
        let _ = kind;
        false
    }

    /// Whether sensitive values of resources of a type may be applied. A Git repository stores plain text, so that a
    /// resource with a sensitive value is rejected before any change.
    fn accepts_sensitive(&self, kind: ResourceType) -> bool {
        let _ = kind;
        true
    }

    /// Reads live objects, in the order of the requests, with as few calls as possible. A resource without a wanted
    /// form is read in any version that has its kind, and is [`Absent`](Live::Absent) without one.
    ///
    /// # Errors
    ///
    /// The infrastructure cannot be reached at all. Problems of one resource are in its answer, such as a wanted kind
    /// that does not exist ([`UnknownKind`](RuntimeError::UnknownKind)).
    async fn read(&self, requests: &[ReadRequest<'_>]) -> Result<Vec<Result<Live, RuntimeError>>, RuntimeError>;

    /// What slow calls wait for now, one message each, such as a cluster that does not answer.
    fn awaited(&self) -> Vec<String> {
        Vec::new()
    }

    /// Searches the objects of lost calls, in the order of their resources: what is recorded of each, or only what its id
    /// and extensions say. Changes nothing, and may be called again.
    ///
    /// # Errors
    ///
    /// The infrastructure cannot be reached at all; problems of one resource are in its answer.
    async fn inspect(&self, resources: &[&StateResource]) -> Result<Vec<Result<Found, RuntimeError>>, RuntimeError>;

    /// Dry-runs an apply, without a change. `live` is the result of [`read`](Self::read), which the same runtime has made.
    ///
    /// # Errors
    ///
    /// The rejections of [`apply`](Self::apply). [`RuntimeError::Terminating`] names the namespace of the resource,
    /// which is being deleted with its contents and accepts nothing new.
    async fn preview(
        &self,
        request: &ApplyRequest<'_>,
        live: Option<&Map<String, Value>>,
    ) -> Result<Preview, RuntimeError>;

    /// Brings the resource to `request.desired`, or reads it if that is [only read](Resource::is_only_read).
    /// An ephemeral resource stays open until [`close`](Self::close). A second call with the same request changes nothing.
    /// When its future is dropped the change may or may not have been made; [`inspect`](Self::inspect) finds out.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::Owned`], here or by [`finish`](Self::finish), when another deployment owns the object and
    /// `request.desired` does not take it over. [`RuntimeError::Conflict`] when others created the object since the
    /// plan ([`ApplyRequest::check_unplanned`]). A deferred runtime does not check that, and [`finish`](Self::finish)
    /// returns [`RuntimeError::Stale`] when an object is not as the plan found it ([`ApplyRequest::changes`]).
    /// [`RuntimeError::Terminating`] when the object is being deleted: repeat the call after that.
    async fn apply(&self, request: &ApplyRequest<'_>) -> Result<Applied, RuntimeError>;

    /// Requests the deletion of the resource, without a wait for its completion. An absent object counts as deleted. An
    /// object of another deployment stays, and so does one with another uid than the recorded one and without our owner
    /// annotation. May be called again, even during the deletion.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::ForeignContents`], here or by [`finish`](Self::finish), when it would delete objects of other
    /// deployments, and nothing allows that ([`DELETE_CONTENTS`](stoa_engine::spec::DELETE_CONTENTS)).
    async fn delete(&self, prior: &StateResource) -> Result<Deleted, RuntimeError>;

    /// Waits until a terminating object is deleted, and at most until the caller drops the future. Another object of
    /// its name does not count. Reports what the deletion waits for, without secrets. Changes nothing, and may be
    /// called again.
    async fn wait_deleted(&self, object: &KubernetesObject, report: &DeletionReport<'_>) -> Result<(), RuntimeError> {
        let _ = (object, report);
        Ok(())
    }

    /// Waits until the resource is Current or Failed, and at most until the caller drops the
    /// future. `report` hears of every change on the way.
    async fn wait_healthy(&self, desired: &Resource, report: &HealthReport<'_>) -> Result<Health, RuntimeError>;

    /// The same for a check of an earlier apply: a running Job counts as Current.
    async fn check_health(&self, desired: &Resource, report: &HealthReport<'_>) -> Result<Health, RuntimeError> {
        self.wait_healthy(desired, report).await
    }

    /// Waits until a Job or a Pod has completed: Current when it has succeeded. An object of another kind has completed once
    /// it exists. Otherwise as [`wait_healthy`](Self::wait_healthy).
    async fn wait_completed(&self, desired: &Resource, report: &HealthReport<'_>) -> Result<Health, RuntimeError> {
        self.wait_healthy(desired, report).await
    }

    /// Ends the walk: a deferred runtime writes its changes now, once for the same run. It is also called after
    /// failures, but then not of a [deferred](Self::is_deferred) runtime, which writes all changes or none.
    ///
    /// The caller drops it when the lease expires. Work on a thread of its own continues then, so that it checks the
    /// lease right before each change.
    async fn finish(&self, grant: &Grant) -> Result<Finished, RuntimeError>;

    /// Ends everything that this run has opened, whatever became of the run.
    async fn close(&self) {}
}

/// Why a [`Runtime`] call failed. Messages hold no secrets.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The infrastructure refuses; trying again does not help.
    #[error("{message}")]
    Rejected {
        /// Its message.
        message: String,
        /// The field it named, if any, such as `spec.replicas`.
        field: Option<String>,
        /// Whether only the definition of its kind rejects it, so that another definition may accept it.
        by_definition: bool,
    },
    /// Somebody else manages fields that are wanted here, and they are not to be taken.
    #[error("{0}")]
    Conflict(String),
    /// Another deployment owns the resource: a sentence that names it.
    #[error("{0}")]
    Owned(String),
    /// The deletion would delete objects of other owners, or unlisted ones: a message with some of them.
    #[error("{0}")]
    ForeignContents(String),
    /// The object is not as the plan found it: a message with the changes of others. Nothing was done.
    #[error("{0}")]
    Stale(String),
    /// It could not be reached or was busy; trying again may help. The call may have been made.
    #[error("{message}")]
    Unavailable {
        /// The message.
        message: String,
    },
    /// The call has no answer. It may have been made, and must not be repeated, because that could create a second object.
    #[error("{message}")]
    Lost {
        /// The message.
        message: String,
    },
    /// The call failed after a part of the change: the object as it is now.
    #[error("{message}")]
    Partial {
        /// The message.
        message: String,
        /// The field that it named, if any.
        field: Option<String>,
        /// The object.
        applied: Box<Applied>,
    },
    /// A read failed, the time for a change was over, or the infrastructure turned the change away. Nothing was done; a
    /// retry may help.
    #[error("{message}")]
    Unread {
        /// The message.
        message: String,
    },
    /// The cluster has not answered for long and was not called. Nothing was done; a retry may help later.
    #[error("{message}")]
    Suspended {
        /// The last error.
        message: String,
    },
    /// The server asks for a pause: retry after it. Earlier requests of the call may have taken effect.
    #[error("{message}")]
    Limited {
        /// The message.
        message: String,
        /// The pause from now on.
        wait: Duration,
    },
    /// The existing object is being deleted, and nothing was done. [`Runtime::wait_deleted`] waits for that.
    #[error("{}", TERMINATING)]
    Terminating(Box<KubernetesObject>),
    /// The target has no such kind for now. Another resource of the plan may create it.
    #[error("{0}")]
    UnknownKind(String),
    /// The resource cannot be handled by this runtime as it is written.
    #[error("{message}")]
    Invalid {
        /// The problem.
        message: String,
        /// The field, such as `attributes.metadata.name`.
        field: Option<String>,
    },
}

impl RuntimeError {
    /// Rejects an apply over a live object of another deployment than `owner`, unless it is taken over. `from` is the
    /// owner that the resource names ([`stoa_engine::owner::take_over_from`]).
    pub fn check_owner(owner: &Owner, from: Option<&str>, live: &Map<String, Value>) -> Result<(), Self> {
        match owner.ownership(from, live) {
            Ownership::Free | Ownership::TakesOver(_) => Ok(()),
            Ownership::Refused(message) => Err(Self::Owned(message)),
        }
    }

    /// The same for a read before any change.
    #[must_use]
    pub fn before_a_change(self) -> Self {
        match self {
            Self::Unavailable { message } => Self::Unread { message },
            other => other,
        }
    }

    /// The problem, without the resource. Its message is that of the error, which the caller redacts.
    pub fn problem(&self) -> Problem {
        let (why, field) = match self {
            Self::Rejected { field, .. } | Self::Partial { field, .. } => (reason::REJECTED, field.as_deref()),
            Self::Conflict(_) | Self::Terminating(_) => (reason::CONFLICT, None),
            Self::Owned(_) => (reason::OWNED_BY_ANOTHER, None),
            Self::ForeignContents(_) => (reason::HOLDS_OTHERS, None),
            Self::Stale(_) => (reason::STALE_PLAN, None),
            Self::Unavailable { .. }
            | Self::Lost { .. }
            | Self::Unread { .. }
            | Self::Suspended { .. }
            | Self::Limited { .. } => (reason::UNAVAILABLE, None),
            Self::UnknownKind(_) => (reason::UNKNOWN_KIND, Some("attributes.kind")),
            Self::Invalid { field, .. } => (reason::INVALID_RESOURCE, field.as_deref()),
        };
        Problem::new(why, self.to_string()).at(field.unwrap_or_default())
    }

    /// Whether the call may have taken effect.
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Lost { .. } | Self::Limited { .. })
    }

    /// Whether a later retry may succeed.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Unread { .. } | Self::Suspended { .. } | Self::Limited { .. })
    }
}
