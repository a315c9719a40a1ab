//! Applies pushed files as writes through the registry, by the same rules as every other write.
//!
//! Start at [`ControlIngest`]. Elsewhere: `stoa_control_repo` reads the files and decides when to apply them, and
//! [`super::report`] reports problems.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use async_trait::async_trait;
use serde_json::Value;
use stoa_control_repo::{
    CommitInfo, GitPath, Identity, Ingest, IngestError, ObjectPath, PushedFile, explain, read_file, read_leniently,
};
use stoa_controller::events::Recorder;
use stoa_kinds::{GIT_PATHS, destroyed, validation};
use stoa_machinery::{
    ApiError, Object, Registry, RequestContext,
    auth::{self, Attributes, Authorizer},
    log::Fence,
    registry::{Apply, DeleteOptions, Store, Stored, Target, UpdateSource, is_undecodable},
    request::{FieldValidation, UserInfo},
    schema::Decoder,
};
use tokio::time::Instant;

use super::{
    layout::USER,
    report::{REFUSED, Reports},
};

/// The time for which other writers may come first.
const PATIENCE: Duration = Duration::from_secs(5);
/// The delay after a lost race.
const LOOK: Duration = Duration::from_millis(50);

/// The authored kinds of a server, as the control repository writes them.
#[derive(Debug)]
pub(super) struct ControlIngest {
    kinds: Vec<Served>,
    authorizer: Arc<dyn Authorizer>,
    /// The fence of the term: a suspended process that lost its lease may not apply an old file over later writes of others.
    fence: Option<Fence>,
    reports: Reports,
}

/// A kind with its store and decoder.
#[derive(Clone, Debug)]
struct Served {
    kind: &'static GitPath,
    store: Arc<Store>,
    decoder: Arc<Decoder>,
}

/// The content of a file, now and before.
struct Said {
    configuration: Object,
    previous: Option<Object>,
}

/// Why a write failed.
enum Refusal {
    /// Another object blocks it.
    Waits(String),
    /// Another write came first; the object has to be read again.
    Raced,
    /// The server's answer.
    Answer(ApiError),
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self::Answer(error)
    }
}

impl ControlIngest {
    /// Writes to the registry's stores, under the fence, what `authorizer` allows the user of the repository.
    ///
    /// # Errors
    ///
    /// When an authored kind is not registered, or has an invalid schema.
    pub(super) fn new(
        registry: &Registry,
        authorizer: Arc<dyn Authorizer>,
        recorder: Recorder,
        fence: Option<Fence>,
    ) -> anyhow::Result<Self> {
        let mut kinds = Vec::new();
        for kind in GIT_PATHS.0.iter().copied() {
            let store = registry
                .store(kind.group, kind.version, kind.plural)
                .with_context(|| format!("{} are not served", kind.plural))?
                .clone();
            let decoder = Decoder::new(store.definition())
                .with_context(|| format!("the schema of {} makes no sense", kind.plural))?;
            kinds.push(Served { kind, store, decoder: Arc::new(decoder) });
        }
        let stores = kinds.iter().map(|served| (served.kind, served.store.clone())).collect();
        let reports = Reports::new(stores, recorder, fence.clone());
        Ok(Self { kinds, authorizer, fence, reports })
    }

    fn served(&self, kind: &'static GitPath) -> &Served {
        self.kinds.iter().find(|served| served.kind == kind).expect("new takes every kind")
    }

    fn context(&self, commit: &CommitInfo) -> RequestContext {
        let user =
            UserInfo { name: USER.to_owned(), groups: vec!["system:authenticated".to_owned()], ..UserInfo::default() };
        let mut context = RequestContext::new(user, self.authorizer.clone());
        context.field_manager = "git".to_owned();
        context.field_validation = FieldValidation::Strict;
        context.origin_message = commit.origin_message();
        context.fence = self.fence.clone();
        context
    }

    async fn require(&self, context: &RequestContext, verb: &str, identity: &Identity) -> Result<(), ApiError> {
        let attributes = Attributes {
            verb: verb.to_owned(),
            group: identity.kind.group.to_owned(),
            version: identity.kind.version.to_owned(),
            resource: identity.kind.plural.to_owned(),
            namespace: identity.namespace.clone(),
            name: identity.name.clone(),
            ..Attributes::default()
        };
        auth::require(&context.authorizer, &context.user, &attributes).await
    }

    /// Applies the file to the object, and creates it if need be.
    async fn write(&self, context: &RequestContext, target: &ObjectPath, file: &Said) -> Result<(), Refusal> {
        let identity = &target.identity;
        let Served { store, decoder, .. } = self.served(identity.kind);
        let finish = |mut merged: Object| {
            decoder.conform(&mut merged, FieldValidation::Ignore)?;
            let mut errors = decoder.structural_errors(&merged);
            errors.retain(|error| error.field != "status" && !error.field.starts_with("status."));
            if errors.is_empty() {
                return Ok(merged);
            }
            Err(ApiError::invalid(identity.kind.group, identity.kind.kind, &identity.name, &errors))
        };
        let apply = || {
            UpdateSource::Apply(Apply {
                configuration: file.configuration.clone(),
                force: true,
                previous: file.previous.clone(),
                finish: Box::new(finish),
            })
        };
        let Some(current) = find(store, identity).await? else {
            self.require(context, "create", identity).await?;
            return match store.update(context, &identity.namespace, &identity.name, Target::Main, apply()).await {
                Ok(_) => Ok(()),
                Err(error) => Err(self.not_created(target, error).await?),
            };
        };
        if current.is_deleting() {
            return Err(Refusal::Waits(format!("{} {identity} is still being deleted", identity.kind.singular)));
        }
        if let Some(there) = path_of(&current).filter(|there| there != target) {
            let found = there.path();
            return Err(Refusal::Waits(format!(
                "{} {identity} exists already, and its file is {found}",
                identity.kind.singular
            )));
        }
        self.require(context, "patch", identity).await?;
        // An object that is deleted meanwhile is created again.
        match store.update(context, &identity.namespace, &identity.name, Target::Main, apply()).await {
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether an object that was not created may be created later.
    async fn not_created(&self, target: &ObjectPath, error: ApiError) -> Result<Refusal, ApiError> {
        let identity = &target.identity;
        if error.code() == 409 && find(&self.served(identity.kind).store, identity).await?.is_some() {
            return Ok(Refusal::Raced);
        }
        let about_namespace = error.0.details.as_ref().is_some_and(|d| d.kind.as_deref() == Some("namespaces"));
        if error.code() == 404 && about_namespace {
            // It is made for the organization, soon after the organization.
            let owner = super::organization(&identity.namespace);
            if find(&self.served(owner.kind).store, &owner).await?.is_some_and(|o| !o.is_deleting()) {
                return Ok(Refusal::Waits(format!("the namespace of organization {owner} is not there")));
            }
            return Ok(Refusal::Waits(format!("organization {owner} does not exist")));
        }
        if waits_for_another(&error) {
            return Ok(Refusal::Waits(explain(identity.kind.kind, &error, b"").0));
        }
        Ok(Refusal::Answer(error))
    }
}

#[async_trait]
impl Ingest for ControlIngest {
    async fn apply(&self, file: PushedFile<'_>) -> Result<(), IngestError> {
        let PushedFile { path, content, before, commit, is_first } = file;
        if is_of_no_object(path) {
            return Ok(());
        }
        let target = GIT_PATHS.of_path(path).ok_or_else(|| no_object(path))?;
        let kind = target.identity.kind;
        let configuration = read_file(&self.served(kind).decoder, &target, content)
            .map_err(|complaint| IngestError::Invalid(complaint.0))?;
        let previous = before.and_then(|before| read_leniently(&target, before));
        let file = Said { configuration, previous };
        let mut context = self.context(commit);
        if is_first {
            validation::note_restored(&mut context);
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let is_late = Instant::now() >= deadline;
            match self.write(&context, &target, &file).await {
                Ok(()) => return Ok(()),
                Err(Refusal::Waits(message)) => return Err(IngestError::Waiting(message)),
                Err(Refusal::Raced) if is_late => {
                    return Err(IngestError::Unavailable("others write the object again and again".into()));
                }
                Err(Refusal::Answer(error)) => return Err(refused(kind, error, content)),
                Err(Refusal::Raced) => tokio::time::sleep(LOOK).await,
            }
        }
    }

    async fn remove(&self, path: &str, commit: &CommitInfo) -> Result<(), IngestError> {
        if is_of_no_object(path) {
            return Ok(());
        }
        let target = GIT_PATHS.of_path(path).ok_or_else(|| no_object(path))?;
        let identity = &target.identity;
        let store = &self.served(identity.kind).store;
        let failed = |error| refused(identity.kind, error, b"");
        let Some(current) = find(store, identity).await.map_err(failed)? else { return Ok(()) };
        // The object may have moved to another file since, or is terminating.
        if current.is_deleting() || path_of(&current).is_none_or(|there| there != target) {
            return Ok(());
        }
        let context = self.context(commit);
        self.require(&context, "delete", identity).await.map_err(failed)?;
        match store.delete(&context, &identity.namespace, &identity.name, &DeleteOptions::default()).await {
            Ok(_) => Ok(()),
            Err(error) if is_missing(&error, identity) => Ok(()),
            Err(error) if is_still_used(&error, identity) => {
                let why = explain(identity.kind.kind, &error, b"").0;
                Err(IngestError::Waiting(format!("{REFUSED}{why}")))
            }
            Err(error) => Err(failed(error)),
        }
    }

    async fn invalid(&self, path: &str, reason: &str, commit: &CommitInfo) -> Result<(), IngestError> {
        if is_of_no_object(path) {
            return Ok(());
        }
        let target = GIT_PATHS.of_path(path).ok_or_else(|| no_object(path))?;
        self.reports.invalid(&target, reason, &commit.id).await.map_err(unavailable)
    }

    async fn valid_again(&self, path: &str) -> Result<(), IngestError> {
        if is_of_no_object(path) {
            return Ok(());
        }
        let target = GIT_PATHS.of_path(path).ok_or_else(|| no_object(path))?;
        self.reports.valid_again(&target).await.map_err(unavailable)
    }
}

/// Whether a file is a record of Stoa's own, which a push cannot change.
fn is_of_no_object(path: &str) -> bool {
    destroyed::Names::of_path(path).is_some()
}

/// The object, if it exists.
pub(super) async fn find(store: &Store, identity: &Identity) -> Result<Option<Arc<Stored>>, ApiError> {
    match store.get(&identity.namespace, &identity.name, None).await {
        Ok(stored) => Ok(Some(stored)),
        Err(error) if error.code() == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// The path of the file of a stored object.
pub(super) fn path_of(stored: &Stored) -> Option<ObjectPath> {
    GIT_PATHS.of_object(&stored.key, &Value::Object(stored.object().0))
}

/// Whether the object itself was not found, rather than a referenced one.
fn is_missing(error: &ApiError, identity: &Identity) -> bool {
    let details = error.0.details.as_ref();
    error.code() == 404 && details.is_some_and(|d| d.kind.as_deref() == Some(identity.kind.plural))
}

/// Whether an object was not deleted because others refer to it. The same push may change or remove these later, as their
/// paths come later.
fn is_still_used(error: &ApiError, identity: &Identity) -> bool {
    error.code() == 409 && identity.kind.removal_waits_for_references
}

/// Whether an object was not created because of another one, which may be blocked itself: the project of a stack, or a
/// terminating namespace.
fn waits_for_another(error: &ApiError) -> bool {
    let causes = error.0.details.iter().flat_map(|details| details.causes.iter().flatten());
    let mut about = causes.map(|cause| (cause.field.as_deref(), cause.reason.as_deref()));
    about.any(|cause| match cause {
        (Some("spec.project"), Some("FieldValueNotFound")) => error.code() == 422,
        (_, Some("NamespaceTerminating")) => error.code() == 403,
        _ => false,
    })
}

/// Classifies an error: a temporary failure may work later, and a rejection lasts until somebody acts.
fn refused(kind: &'static GitPath, error: ApiError, content: &[u8]) -> IngestError {
    // A configuration that server-side apply cannot read has this code and no reason.
    let is_senseless = error.code() == 500 && error.0.reason.as_deref().unwrap_or_default().is_empty();
    // An undecodable object does not block other files until somebody repairs it.
    let is_undecodable = is_undecodable(&error);
    if (error.code() >= 500 && !is_senseless && !is_undecodable) || error.code() == 429 {
        return unavailable(error);
    }
    let why = explain(kind.kind, &error, content).0;
    // The file itself is valid when it is forbidden or when other objects are in its way.
    let is_refusal = matches!(error.code(), 403 | 409) || is_undecodable;
    IngestError::Invalid(if is_refusal { format!("{REFUSED}{why}") } else { why })
}

fn unavailable(error: ApiError) -> IngestError {
    IngestError::Unavailable(Box::new(error))
}

fn no_object(path: &str) -> IngestError {
    IngestError::Invalid(format!("no object has its file at {path}"))
}
