//! The seam between the engine and the infrastructure: the [`Runtime`] trait, a fake runtime for
//! tests, and the conformance suite that every runtime runs.
//!
//! The engine reads everything a plan needs in one [`Runtime::read`], decides with the pure core,
//! and makes one call per resource while it walks.

#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "fake")]
pub mod fake;
mod grant;
mod limit;
mod retry;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};
use stoa_engine::object::uid_of;
use stoa_engine::owner::{LeftAlone, Standing, is_marked};
use stoa_engine::{
    Clusters, Contents, DigestKeys, FieldChange, FieldConflict, Held, Owner, Problem, Resource, ResourceId, Schemas,
    Sensitive, StateResource, conflict, problem::reason,
};
pub use stoa_engine::{Health, KubernetesObject, Live, Preview, Validation as Level};

pub use grant::{Grant, Lapsed};
pub use limit::{CallLimits, Caller, Turn, Turns};

/// What is told of a resource that is not written, and of which no preview is made, while what is there is being deleted.
pub const GOING: &str = "what is there is being deleted, and has to be gone first";

/// Why a Secret is refused where everything is in the open, and what to use in its place.
pub const SECRET_IN_THE_OPEN: &str = "a Secret with values in the open is not written to Git; use a SealedSecret (Sealed \
                                      Secrets) or an ExternalSecret (External Secrets), or encrypt the values with SOPS";

/// What a runtime is asked to look at.
#[derive(Clone, Debug)]
pub struct ReadRequest<'a> {
    /// The wanted resource, references replaced where they are known; `None` when it is only recorded.
    pub desired: Option<&'a Resource>,
    /// The recorded resource, if there is one.
    pub prior: Option<&'a StateResource>,
}

impl ReadRequest<'_> {
    /// The id of whichever is there.
    ///
    /// # Panics
    ///
    /// When neither is, which is no request.
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
    /// What is wanted, all references replaced.
    pub desired: &'a Resource,
    /// What is recorded, if anything.
    pub prior: Option<&'a StateResource>,
    /// Whether it was not there before and is taken over.
    pub adopt: bool,
    /// Whether the plan says that nothing is there, or will be once it has been removed to be made anew, so that what others
    /// made since then is not taken.
    pub create: bool,
    /// The fields that the plan changes, with what it found there: all of them, and none of what is left to others. `None` where
    /// there is no plan yet, where it could not look, or where the resource is made anew in the place of another.
    pub changes: Option<&'a [FieldChange]>,
    /// The fields that the plan takes from other managers. `None` where there is no plan yet, or where it could not ask:
    /// then [`may_take`](stoa_engine::conflict::may_take) decides.
    pub taken: Option<&'a [FieldConflict]>,
    /// What is masked in `taken`.
    pub sensitive: Option<&'a Sensitive>,
    /// What the digests in `prior` were made with. Without them nobody knows whether a sensitive value is what was recorded.
    pub keys: Option<&'a DigestKeys>,
}

impl<'a> ApplyRequest<'a> {
    /// To bring a resource to `desired`, of which `prior` is recorded, with no plan that says of whom fields are taken.
    pub fn new(desired: &'a Resource, prior: Option<&'a StateResource>) -> Self {
        let (adopt, create, changes, taken, sensitive, keys) = Default::default();
        Self { desired, prior, adopt, create, changes, taken, sensitive, keys }
    }

    /// To take over what is there and not recorded.
    pub fn adopting(desired: &'a Resource) -> Self {
        Self { adopt: true, ..Self::new(desired, None) }
    }

    /// Refuses what is live where the plan says that nothing is there, or that something else is, and nothing says that a
    /// try of ours made it. What bears a mark is decided about by [`RuntimeError::unless_owned`].
    ///
    /// # Errors
    ///
    /// [`RuntimeError::Conflict`]. The next plan shows it as taken over.
    pub fn unless_late(&self, live: &Map<String, Value>) -> Result<(), RuntimeError> {
        if self.adopt || is_marked(live) {
            return Ok(());
        }
        let message = match (self.prior.and_then(StateResource::uid), uid_of(live)) {
            (Some(recorded), Some(uid)) if recorded == uid => return Ok(()),
            _ if self.create => "others made it, which the plan does not know of; plan again to take it over",
            (Some(_), Some(_)) => {
                "what was applied is gone, and others made another of its name, which the plan does not know of; plan \
                 again to take it over"
            }
            (None, _) | (_, None) => return Ok(()),
        };
        Err(RuntimeError::Conflict(message.to_owned()))
    }

    /// Whether fields are taken from those who manage them.
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

/// A call that may have been made and whose result nobody knows.
#[derive(Clone, Copy, Debug)]
pub struct LostCall<'a> {
    /// The resource that it was for: what is recorded of it, or only what its id and its extensions say.
    pub resource: &'a StateResource,
    /// The uid of the run that made it.
    pub run: &'a str,
}

/// How resources are validated that no cluster sees before they are deployed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Validation {
    /// What an invalid resource does to a plan.
    pub level: Level,
    /// The version of Kubernetes by whose schemas its own kinds are validated, one of
    /// [`KUBERNETES_VERSIONS`](stoa_engine::validation::KUBERNETES_VERSIONS); empty: they are not.
    pub kubernetes: String,
    /// The CustomResourceDefinitions that are deployed and not wanted here.
    pub definitions: Vec<Map<String, Value>>,
}

/// What is there after a call whose result nobody knows.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// Nothing.
    Absent,
    /// What the call made, or what is recorded: it bears our mark, or has the uid that is recorded and nobody's mark.
    Ours(Applied),
    /// Something that others made, or have by now.
    Foreign,
    /// Nobody can look, and a second call might make a second resource.
    Unknowable,
}

/// What an apply left behind.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The resource as the infrastructure reports it afterwards.
    pub live: Map<String, Value>,
    /// Where it lives, if it is a Kubernetes object.
    pub kubernetes: Option<KubernetesObject>,
}

/// What became of a resource that was to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// It is gone.
    Gone,
    /// It was asked to go and is still there, as while finalizers hold it: [`Runtime::wait_gone`] waits for this object.
    Going(Box<KubernetesObject>),
    /// It stays, for this reason: it is another deployment's, or not what is recorded, which is gone.
    Left(LeftAlone),
}

/// What hears of a health and its reason, for people. A type of its own, because `async_trait`
/// would give the text the lifetime of the call.
pub type HealthReport<'a> = dyn Fn(Health, &str) + Send + Sync + 'a;

/// What hears of what holds an object that is being deleted, in a sentence.
pub type HeldReport<'a> = dyn Fn(&str) + Send + Sync + 'a;

/// What a runtime reports at the end of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// The commit that a GitOps runtime wrote or found written for this run.
    pub commit: Option<String>,
    /// What was to be deleted and was left, since it bears the mark of another deployment, whose name this is: what a
    /// runtime that [is deferred](Runtime::is_deferred) knows only now.
    pub left: BTreeMap<ResourceId, String>,
    /// Set when nothing was done but proposed to people, by a runtime that [is deferred](Runtime::is_deferred).
    pub proposal: Option<Proposal>,
}

/// Changes that people are asked to merge. Nothing of them is done until they do.
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
    /// What became of it.
    pub state: ProposalState,
    /// What keeps people from merging it, and has to be left to them; nothing where it is not known that there is something.
    pub blocked: Option<String>,
}

/// What became of a proposal that is not merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProposalState {
    /// It waits for people.
    Open,
    /// Somebody closed it.
    Closed,
    /// Another run of the same deployment, whose name this is, proposes something else in its place.
    Superseded(String),
}

/// A kind of infrastructure the engine can drive, such as Kubernetes or a GitOps repository.
///
/// A runtime is made for one run. The engine may run calls for different resources at once.
///
/// Everything that it applies bears the mark of the deployment that it works for ([`stoa_engine::owner`]), and what bears
/// the mark of another is neither changed nor deleted, however it was planned.
#[async_trait]
pub trait Runtime: fmt::Debug + Send + Sync + 'static {
    /// The deployment that it works for.
    fn owner(&self) -> &Owner;

    /// The clusters that resources go to, the first of which is where they go that name none. None where all go to one
    /// place that something else deploys from.
    fn clusters(&self) -> &Clusters {
        static NONE: Clusters = Clusters::NONE;
        &NONE
    }

    /// Where it changes things: by the name of a cluster, or under no name where there is one place for all, a text that is the
    /// same for the same server, or repository and branch. Nothing in it opens anything.
    fn places(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// Whether changes are only gathered by [`apply`](Self::apply) and [`delete`](Self::delete), and
    /// made all at once by [`finish`](Self::finish). Nothing counts as done before that then, and an
    /// interrupted walk gathers everything again.
    fn is_deferred(&self) -> bool {
        false
    }

    /// Whether sensitive values may be applied. Where everything is kept in the open, as in a Git
    /// repository, they may not, and a resource that holds one is refused before anything is done.
    fn accepts_sensitive(&self) -> bool {
        true
    }

    /// Whether [`preview`](Self::preview) asks whoever decides what is taken, and refuses fields that nobody knows. Where
    /// it does not, whoever plans looks at values, and such fields are warnings: later versions may know them.
    fn validates(&self) -> bool {
        true
    }

    /// How whoever plans validates resources, where the runtime [does not](Self::validates).
    ///
    /// # Errors
    ///
    /// When the infrastructure cannot be reached.
    async fn validation(&self) -> Result<Validation, RuntimeError> {
        Ok(Validation::default())
    }

    /// The namespaces that [`preview`](Self::preview) found not to be there, with the names of their clusters.
    fn missing_namespaces(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Reads what is live, in the order of the requests. Does as few calls outside as it can.
    ///
    /// # Errors
    ///
    /// When the infrastructure cannot be reached at all; what is wrong with one resource is told
    /// in its place, such as that something is wanted of a kind that is not there
    /// ([`UnknownKind`](RuntimeError::UnknownKind)). What is only recorded is read in whatever version has the
    /// kind, and is [`Absent`](Live::Absent) where none does.
    async fn read(&self, requests: &[ReadRequest<'_>]) -> Result<Vec<Result<Live, RuntimeError>>, RuntimeError>;

    /// What calls that take long wait for now, a sentence each, such as a cluster that does not answer.
    fn awaited(&self) -> Vec<String> {
        Vec::new()
    }

    /// What the infrastructure says of the kinds of these resources, which are not built in: of those that it has. Does
    /// as few calls outside as it can.
    ///
    /// # Errors
    ///
    /// When the infrastructure cannot be reached. What does not tell, or not to us, has no schema.
    async fn schemas(&self, desired: &[&Resource]) -> Result<Schemas, RuntimeError> {
        let _ = desired;
        Ok(Schemas::new())
    }

    /// The kinds of these resources, as groups and kinds, whose objects are in no namespace as the infrastructure says. The
    /// engine asks where two resources are one object if that is so.
    ///
    /// # Errors
    ///
    /// When the infrastructure cannot be reached. A kind that is not there is not among them.
    async fn cluster_scoped(&self, desired: &[&Resource]) -> Result<Vec<(String, String)>, RuntimeError> {
        let _ = desired;
        Ok(Vec::new())
    }

    /// Looks what is there of resources for which calls may have been made, in the order of the calls. Changes nothing,
    /// and may be called again.
    ///
    /// # Errors
    ///
    /// When the infrastructure cannot be reached at all; what is wrong with one resource is told in its place.
    async fn look_for(&self, calls: &[LostCall<'_>]) -> Result<Vec<Result<Found, RuntimeError>>, RuntimeError>;

    /// Looks what others own of what would go with a recorded namespace or definition. Changes nothing.
    ///
    /// # Errors
    ///
    /// When it cannot be known for now. What nobody lets us look at is in the answer, and refuses the deletion unless the
    /// runtime was told otherwise.
    async fn held(&self, holder: &StateResource, contents: &Contents) -> Result<Held, RuntimeError>;

    /// Asks what applying would make of a resource, changing nothing. `live` is what
    /// [`read`](Self::read) found.
    ///
    /// # Errors
    ///
    /// What [`apply`](Self::apply) would be refused for. [`RuntimeError::Going`] names the namespace of the resource: that is
    /// being deleted, so that nothing new can be in it, and what is there goes with it.
    async fn preview(
        &self,
        request: &ApplyRequest<'_>,
        live: Option<&Map<String, Value>>,
    ) -> Result<Preview, RuntimeError>;

    /// Brings the resource to `request.desired`. A second call with the same request changes
    /// nothing. When its future is dropped the change may or may not have been made; [`look_for`](Self::look_for) tells.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::Owned`], here or by [`finish`](Self::finish), when another deployment has the resource and
    /// `request.desired` does not say that it is taken over from that one. [`RuntimeError::Conflict`] when others made it
    /// though the plan says that it is not there, or in place of what is recorded ([`ApplyRequest::unless_late`]). What is
    /// deferred does not look for that, and [`RuntimeError::Stale`] comes of [`finish`](Self::finish) when what is there is not
    /// what the plan found ([`ApplyRequest::changes`]).
    /// [`RuntimeError::Going`] when what is there is being deleted: the same call can be made once that is gone.
    async fn apply(&self, request: &ApplyRequest<'_>) -> Result<Applied, RuntimeError>;

    /// Asks for the resource to be deleted, and does not wait for what may take long after that. One that is already gone
    /// counts as deleted. One that bears the mark of another deployment stays, and so does one that has another uid than is
    /// recorded and not our mark, which somebody made in its place. May be called again, also while it is going.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::HoldsOthers`], here or by [`finish`](Self::finish), when something would go with it that other
    /// deployments own, and nothing says that it may ([`Contents::at_stake`]).
    async fn delete(&self, prior: &StateResource) -> Result<Deleted, RuntimeError>;

    /// Waits until an object is gone that is being deleted, and at most until the caller drops the future. Another object
    /// that has its name by then is not it. Tells `report` what holds it, without secrets. Changes nothing, and may be called
    /// again.
    ///
    /// # Errors
    ///
    /// When nobody can say any more whether it is there.
    async fn wait_gone(&self, object: &KubernetesObject, report: &HeldReport<'_>) -> Result<(), RuntimeError>;

    /// Waits until the resource is Current or Failed, and at most until the caller drops the
    /// future. `report` hears of every change on the way.
    async fn wait_healthy(&self, desired: &Resource, report: &HealthReport<'_>) -> Result<Health, RuntimeError>;

    /// The same for a check of what was applied earlier: what runs to its end by itself, as a Job does, counts as Current
    /// while it runs.
    async fn check_health(&self, desired: &Resource, report: &HealthReport<'_>) -> Result<Health, RuntimeError> {
        self.wait_healthy(desired, report).await
    }

    /// Whether the infrastructure deletes a resource once it has finished, as Kubernetes does with a Job that has
    /// `spec.ttlSecondsAfterFinished`.
    fn ends_by_itself(&self, desired: &Resource) -> bool {
        let _ = desired;
        false
    }

    /// Whether a resource was seen to finish while its health was waited for: a Job that the infrastructure deletes then.
    fn has_finished(&self, id: &ResourceId) -> bool {
        let _ = id;
        false
    }

    /// Ends the walk: a runtime that gathers its changes writes them now, once however often this
    /// is called for the same run. Called also when some resources failed, but then not of a
    /// runtime that [is deferred](Self::is_deferred): half of a change is not written.
    ///
    /// Whoever waits for it drops it when the grant is over. What is done on a thread of its own goes on then, so it asks
    /// the grant right before it changes anything.
    async fn finish(&self, grant: &Grant) -> Result<Finished, RuntimeError>;
}

/// Why a [`Runtime`] call failed. Messages hold no secrets.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The infrastructure refuses; trying again does not help.
    #[error("{message}")]
    Rejected {
        /// What it said.
        message: String,
        /// The field it named, if any, such as `spec.replicas`.
        field: Option<String>,
        /// Whether all that is wrong is what the definition of its kind says, so that it may be taken by another.
        by_definition: bool,
    },
    /// Somebody else manages fields that are wanted here, and they are not to be taken.
    #[error("{0}")]
    Conflict(String),
    /// Another deployment owns the resource: a sentence that names it.
    #[error("{0}")]
    Owned(String),
    /// Others own what would go with the resource, or nobody knows: sentences that name some of it ([`Held::refusal`]).
    #[error("{0}")]
    HoldsOthers(String),
    /// What is there is not what the plan found: a sentence with what others changed since. Nothing was done.
    #[error("{0}")]
    Stale(String),
    /// It could not be reached or was busy; trying again may help. The call may have been made.
    #[error("{message}")]
    Unavailable {
        /// What happened.
        message: String,
    },
    /// What is there could not be looked at, no time was left for a change by then, or the infrastructure turned the change away,
    /// so that nothing was done; trying again may help.
    #[error("{message}")]
    Unread {
        /// What happened.
        message: String,
    },
    /// It has not answered for so long that it was not asked: nothing was done. Trying again may help, but not soon.
    #[error("{message}")]
    GivenUp {
        /// What came of the last that was asked.
        message: String,
    },
    /// A server asks not to be asked for so long: trying again helps after that. What the call asked before may have been done.
    #[error("{message}")]
    Limited {
        /// What happened.
        message: String,
        /// For how long from now.
        wait: Duration,
    },
    /// What is there is being deleted, and nothing was done: it has to be gone first, for which [`Runtime::wait_gone`] waits.
    #[error("{}", GOING)]
    Going(Box<KubernetesObject>),
    /// There is no such kind where the resource is to go, for now. Something that is deployed with it may bring the kind, which
    /// whoever plans knows.
    #[error("{0}")]
    UnknownKind(String),
    /// The resource cannot be handled by this runtime as it is written.
    #[error("{message}")]
    Invalid {
        /// What is wrong.
        message: String,
        /// Where, such as `attributes.metadata.name`.
        field: Option<String>,
    },
}

impl RuntimeError {
    /// Refuses to apply over a live resource of another deployment than `owner`, unless it is taken over from that one.
    /// `from` is what the resource says of that ([`stoa_engine::owner::taken_from`]).
    ///
    /// # Errors
    ///
    /// [`Owned`](Self::Owned).
    pub fn unless_owned(owner: &Owner, from: Option<&str>, live: &Map<String, Value>) -> Result<(), Self> {
        match owner.standing(from, live) {
            Standing::Free | Standing::TakesOver(_) => Ok(()),
            Standing::Refused(message) => Err(Self::Owned(message)),
        }
    }

    /// The same of a look that comes before anything is changed.
    #[must_use]
    pub fn before_a_change(self) -> Self {
        match self {
            Self::Unavailable { message } => Self::Unread { message },
            other => other,
        }
    }

    /// What is wrong, without saying for which resource. Its message is this error's, from which whoever knows texts that are
    /// sensitive takes them.
    pub fn problem(&self) -> Problem {
        let (why, field) = match self {
            Self::Rejected { field, .. } => (reason::REJECTED, field.as_deref()),
            Self::Conflict(_) | Self::Going(_) => (reason::CONFLICT, None),
            Self::Owned(_) => (reason::OWNED_BY_ANOTHER, None),
            Self::HoldsOthers(_) => (reason::HOLDS_OTHERS, None),
            Self::Stale(_) => (reason::STALE_PLAN, None),
            Self::Unavailable { .. } | Self::Unread { .. } | Self::GivenUp { .. } | Self::Limited { .. } => {
                (reason::UNAVAILABLE, None)
            }
            Self::UnknownKind(_) => (reason::UNKNOWN_KIND, Some("attributes.kind")),
            Self::Invalid { field, .. } => (reason::INVALID_RESOURCE, field.as_deref()),
        };
        Problem::new(why, self.to_string()).at(field.unwrap_or_default())
    }

    /// Whether the call may have been made all the same.
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Limited { .. })
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Unread { .. } | Self::GivenUp { .. } | Self::Limited { .. })
    }
}
