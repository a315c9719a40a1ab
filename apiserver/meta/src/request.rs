//! The context of a request, which travels with a call from the socket to the log.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use serde_json::{Map, Value};
use stoa_log::Fence;
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{authorizer::Authorizer, object::Object};

/// The most bytes that the body of a request may hold: the limit of kube-apiserver.
pub const MAX_REQUEST_BYTES: usize = 3 * 1024 * 1024;

/// An authenticated identity, as in `authentication.k8s.io/v1 UserInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UserInfo {
    /// The user name, such as `ann` or `system:serviceaccount:ns:name`.
    pub name: String,
    /// The uid, or empty.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Whatever else the authenticator knows; keys are lower case.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// A component of the server itself: user `system:stoa:<component>` in `system:masters`.
    pub fn internal(component: &str) -> Self {
        Self {
            name: format!("system:stoa:{component}"),
            groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
            ..Self::default()
        }
    }

    /// Whether this is a component of the server itself, as [`internal`](Self::internal) makes them.
    pub fn is_internal(&self) -> bool {
        self.name.starts_with("system:stoa:") && self.in_group("system:masters")
    }

    /// Whether the user is in a group.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}

/// How unknown and duplicate fields are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// They are dropped.
    Ignore,
    /// They are dropped, with a warning. What upstream does when nothing is asked for.
    #[default]
    Warn,
    /// They are an error.
    Strict,
}

/// Records the body of a request in its audit event.
///
/// Follows `LogRequestObject` and `LogRequestPatch` in `k8s.io/apiserver/pkg/audit`.
pub trait RequestRecorder: std::fmt::Debug + Send + Sync + 'static {
    /// Records the object that was decoded from the body.
    fn request_object(&self, object: &Object);

    /// Records a patch or options: a change that does not show the object. `change` runs only where bodies are recorded.
    fn request_change(&self, change: &mut dyn FnMut() -> Option<Value>);
}

/// What travels with one call.
///
/// Cheap to clone; clones share the warnings.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// Who asks.
    pub user: UserInfo,
    /// The name written into `managedFields`.
    pub field_manager: String,
    /// Whether everything but the store runs.
    pub dry_run: bool,
    /// How unknown fields are treated.
    pub field_validation: FieldValidation,
    /// Decides what the user may do; strategies ask it about what an object refers to.
    pub authorizer: Arc<dyn Authorizer>,
    /// What the log says about the writes of this call besides who made them, in
    /// [`Origin::message`](stoa_log::Origin::message); may be empty.
    pub origin_message: String,
    /// The lease that the writes of this call are made under: none is made once that is lost.
    pub fence: Option<Fence>,
    /// `dryRun`, `fieldManager` and `fieldValidation` as they were sent, for admission to show.
    write_options: Arc<Map<String, Value>>,
    warnings: Arc<Mutex<Vec<String>>>,
    annotations: Arc<Mutex<Annotations>>,
    waits: Arc<Waits>,
    /// When there is an answer, whatever it is.
    end: Option<Instant>,
    outlasting: Outlasting,
    /// Records the request's body in the audit log. It refers to this context itself.
    recorder: Option<Weak<dyn RequestRecorder>>,
    internal: bool,
    writes_status: bool,
}

/// What goes on after its answer, and without its connection, such as a WebSocket.
#[derive(Clone, Debug, Default)]
pub struct Outlasting {
    /// When it has to end.
    pub end: CancellationToken,
    /// What there is of it.
    pub tasks: TaskTracker,
}

/// How long a request waited for webhooks, in nanoseconds. Those that mutate are asked one after the other, those that
/// validate at once.
#[derive(Debug, Default)]
pub struct Waits {
    mutating: AtomicU64,
    validating: AtomicU64,
}

impl Waits {
    /// A webhook that mutates was waited for.
    pub fn mutating(&self, took: Duration) {
        self.mutating.fetch_add(nanoseconds(took), Relaxed);
    }

    /// A webhook that validates was waited for.
    pub fn validating(&self, took: Duration) {
        self.validating.fetch_max(nanoseconds(took), Relaxed);
    }

    /// How long it was for each of the two, by upstream's names.
    pub fn of_webhooks(&self) -> [(&'static str, Duration); 2] {
        let of = |waited: &AtomicU64| Duration::from_nanos(waited.load(Relaxed));
        [("mutating-webhook", of(&self.mutating)), ("validating-webhook", of(&self.validating))]
    }

    /// How long all of it was.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.mutating.load(Relaxed).saturating_add(self.validating.load(Relaxed)))
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What the audit event of a request says besides, in two parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// Said at every level.
    pub always: BTreeMap<String, String>,
    /// Said where bodies of requests are logged, as these show parts of them.
    pub with_bodies: BTreeMap<String, String>,
}

impl Annotations {
    /// Adds them to what is said already, which stays.
    pub fn add_to(self, said: &mut BTreeMap<String, String>, with_bodies: bool) {
        let of_bodies = if with_bodies { self.with_bodies } else { BTreeMap::new() };
        for (key, value) in self.always.into_iter().chain(of_bodies) {
            said.entry(key).or_insert(value);
        }
    }
}

impl RequestContext {
    /// The context of a user's call.
    pub fn new(user: UserInfo, authorizer: Arc<dyn Authorizer>) -> Self {
        Self {
            user,
            field_manager: String::new(),
            dry_run: false,
            field_validation: FieldValidation::default(),
            authorizer,
            origin_message: String::new(),
            fence: None,
            write_options: Arc::default(),
            warnings: Arc::default(),
            annotations: Arc::default(),
            waits: Arc::default(),
            end: None,
            outlasting: Outlasting::default(),
            recorder: None,
            internal: false,
            writes_status: false,
        }
    }

    /// The context of a component of this server, which may do everything.
    pub fn internal(component: &str) -> Self {
        let mut context = Self::new(UserInfo::internal(component), Arc::new(crate::authorizer::AllowAll));
        context.field_manager = format!("stoa-{component}");
        context.internal = true;
        context
    }

    /// Whether this is the server's own call. No user name makes a call internal, so strategies may
    /// keep to the server what is its own to write.
    pub fn is_internal(&self) -> bool {
        self.internal
    }

    /// The server's own call on behalf of this one's user, for the writes that follow from it. Its writes to an object set
    /// the status too, together with everything else.
    #[must_use]
    pub fn for_consequences(&self, component: &str) -> Self {
        let mut context = Self::internal(component);
        context.user = self.user.clone();
        context.fence = self.fence.clone();
        context.end = self.end;
        context.writes_status = true;
        context
    }

    /// The same call, whose writes to an object set the status too. Only the server's own calls may.
    #[must_use]
    pub fn with_status(mut self) -> Self {
        self.writes_status = self.internal;
        self
    }

    /// Whether writes to an object set the status too, though it has a subresource `status`.
    pub fn writes_status(&self) -> bool {
        self.writes_status
    }

    /// Adds a `Warning` header to the response.
    pub fn warn(&self, text: impl Into<String>) {
        let mut warnings = self.warnings.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        warnings.push(text.into());
    }

    /// The options that the query of a write has.
    pub fn set_write_options(&mut self, options: Map<String, Value>) {
        self.write_options = Arc::new(options);
    }

    /// The options that the query of a write has.
    pub fn write_options(&self) -> &Map<String, Value> {
        &self.write_options
    }

    /// Notes in `waits` what the request waits for.
    pub fn share_waits(&mut self, waits: &Arc<Waits>) {
        self.waits = waits.clone();
    }

    /// How long the request has waited for webhooks.
    pub fn waits(&self) -> &Waits {
        &self.waits
    }

    /// Has the request answered by then, if not before.
    pub fn end_by(&mut self, end: Instant) {
        self.end = Some(self.end.map_or(end, |before| before.min(end)));
    }

    /// When it is answered at the latest.
    pub fn end(&self) -> Option<Instant> {
        self.end
    }

    /// What goes on after the answer is a part of this.
    pub fn set_outlasting(&mut self, outlasting: &Outlasting) {
        self.outlasting = outlasting.clone();
    }

    /// The tasks that go on after the answer, such as WebSockets.
    pub fn outlasting(&self) -> &Outlasting {
        &self.outlasting
    }

    /// Has the request's body recorded by `recorder`, as long as that is there.
    pub fn set_recorder(&mut self, recorder: &Arc<impl RequestRecorder>) {
        let recorder: Arc<dyn RequestRecorder> = recorder.clone();
        self.recorder = Some(Arc::downgrade(&recorder));
    }

    /// The recorder of the request's body, if the audit policy wants the request.
    pub fn recorder(&self) -> Option<Arc<dyn RequestRecorder>> {
        self.recorder.as_ref()?.upgrade()
    }

    /// Adds to what the audit event says. What was said first of a key stays.
    pub fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        let mut annotations = self.annotations.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        annotations.always.entry(key.into()).or_insert_with(|| value.into());
    }

    /// The same for what shows parts of a body; said only where bodies are logged.
    pub fn annotate_request(&self, key: impl Into<String>, value: impl Into<String>) {
        let mut annotations = self.annotations.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        annotations.with_bodies.entry(key.into()).or_insert_with(|| value.into());
    }

    /// What was added to the audit event so far.
    pub fn annotations(&self) -> Annotations {
        self.annotations.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// The warnings so far; takes them.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}
