//! Applies pushed files as writes, through the same rules as every other write.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use async_trait::async_trait;
use serde_json::Value;
use stoa_controller::events::Recorder;
use stoa_kinds::{destroyed, validation};
use stoa_machinery::{
    ApiError, Object, Registry, RequestContext,
    auth::{self, Attributes, Authorizer},
    log::Fence,
    registry::{Apply, DeleteOptions, Store, Stored, Target, UpdateSource, is_undecodable},
    request::{FieldValidation, UserInfo},
    schema::Decoder,
};
use stoa_storage::git::{CommitInfo, Ingest, IngestError, PushedFile};
use tokio::time::Instant;

use super::{
    file,
    layout::USER,
    place::{Authored, Identity, Place, VERSION},
    report::{REFUSED, Reports},
};

/// How long others may come first.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to leave it to them each time.
const LOOK: Duration = Duration::from_millis(50);

/// The authored kinds of a server, as the control repository writes them.
#[derive(Debug)]
pub(super) struct ControlIngest {
    kinds: Vec<Served>,
    authorizer: Arc<dyn Authorizer>,
    /// The term's. Whoever was suspended and leads no more has an old file at hand, which is not to be applied over what
    /// others wrote since.
    fence: Option<Fence>,
    reports: Reports,
}

/// A kind with what it takes to read and write it.
#[derive(Clone, Debug)]
struct Served {
    kind: Authored,
    store: Arc<Store>,
    decoder: Arc<Decoder>,
}

/// What a file says, and what it said before.
struct Said {
    configuration: Object,
    previous: Option<Object>,
}

/// Why a write was not made.
enum Refusal {
    /// As long as something else is as it is.
    Waits(String),
    /// Another write came first; what is there has to be looked at again.
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
    /// When an authored kind is not registered, or its schema makes no sense.
    pub(super) fn new(
        registry: &Registry,
        authorizer: Arc<dyn Authorizer>,
        recorder: Recorder,
        fence: Option<Fence>,
    ) -> anyhow::Result<Self> {
        let mut kinds = Vec::new();
        for kind in Authored::ALL {
            let store = registry
                .store(kind.group(), VERSION, kind.plural())
                .with_context(|| format!("{} are not served", kind.plural()))?
                .clone();
            let decoder = Decoder::new(store.definition())
                .with_context(|| format!("the schema of {} makes no sense", kind.plural()))?;
            kinds.push(Served { kind, store, decoder: Arc::new(decoder) });
        }
        let stores = kinds.iter().map(|served| (served.kind, served.store.clone())).collect();
        let reports = Reports::new(stores, recorder, fence.clone());
        Ok(Self { kinds, authorizer, fence, reports })
    }

    fn served(&self, kind: Authored) -> &Served {
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
            group: identity.kind.group().to_owned(),
            version: VERSION.to_owned(),
            resource: identity.kind.plural().to_owned(),
            namespace: identity.namespace.clone(),
            name: identity.name.clone(),
            ..Attributes::default()
        };
        auth::require(&context.authorizer, &context.user, &attributes).await
    }

    /// Applies what the file says to the object, which is made if need be.
    async fn write(&self, context: &RequestContext, place: &Place, file: &Said) -> Result<(), Refusal> {
        let identity = &place.identity;
        let Served { store, decoder, .. } = self.served(identity.kind);
        let finish = |mut merged: Object| {
            decoder.conform(&mut merged, FieldValidation::Ignore)?;
            let mut errors = decoder.structural_errors(&merged);
            errors.retain(|error| error.field != "status" && !error.field.starts_with("status."));
            if errors.is_empty() {
                return Ok(merged);
            }
            Err(ApiError::invalid(identity.kind.group(), identity.kind.kind(), &identity.name, &errors))
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
                Err(error) => Err(self.not_created(place, error).await?),
            };
        };
        if current.is_deleting() {
            return Err(Refusal::Waits(format!("{} {identity} is still being deleted", identity.kind.singular())));
        }
        if let Some(there) = place_of(&current).filter(|there| there != place) {
            let found = there.path();
            return Err(Refusal::Waits(format!(
                "{} {identity} exists already, and its file is {found}",
                identity.kind.singular()
            )));
        }
        self.require(context, "patch", identity).await?;
        // One that goes meanwhile is made again.
        match store.update(context, &identity.namespace, &identity.name, Target::Main, apply()).await {
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether an object that was not created may be later.
    async fn not_created(&self, place: &Place, error: ApiError) -> Result<Refusal, ApiError> {
        let identity = &place.identity;
        if error.code() == 409 && find(&self.served(identity.kind).store, identity).await?.is_some() {
            return Ok(Refusal::Raced);
        }
        let about_namespace = error.0.details.as_ref().is_some_and(|d| d.kind.as_deref() == Some("namespaces"));
        if error.code() == 404 && about_namespace {
            // It is made for the organization, soon after that was created.
            let owner =
                Identity { kind: Authored::Organization, namespace: String::new(), name: identity.namespace.clone() };
            if find(&self.served(owner.kind).store, &owner).await?.is_some_and(|o| !o.is_deleting()) {
                return Ok(Refusal::Waits(format!("the namespace of organization {owner} is not there")));
            }
            return Ok(Refusal::Waits(format!("organization {owner} does not exist")));
        }
        if waits_for_another(&error) {
            return Ok(Refusal::Waits(file::explain(identity.kind.kind(), &error, b"").0));
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
        let place = Place::of_path(path).ok_or_else(|| no_place(path))?;
        let kind = place.identity.kind;
        let configuration = file::read(&self.served(kind).decoder, &place, content)
            .map_err(|complaint| IngestError::Invalid(complaint.0))?;
        let previous = before.and_then(|before| file::said(&place, before));
        let file = Said { configuration, previous };
        let mut context = self.context(commit);
        if is_first {
            validation::note_restored(&mut context);
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let is_late = Instant::now() >= deadline;
            match self.write(&context, &place, &file).await {
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
        let place = Place::of_path(path).ok_or_else(|| no_place(path))?;
        let identity = &place.identity;
        let store = &self.served(identity.kind).store;
        let failed = |error| refused(identity.kind, error, b"");
        let Some(current) = find(store, identity).await.map_err(failed)? else { return Ok(()) };
        // The object may have moved to another file since, or be on its way out.
        if current.is_deleting() || place_of(&current).is_none_or(|there| there != place) {
            return Ok(());
        }
        let context = self.context(commit);
        self.require(&context, "delete", identity).await.map_err(failed)?;
        match store.delete(&context, &identity.namespace, &identity.name, &DeleteOptions::default()).await {
            Ok(_) => Ok(()),
            Err(error) if is_missing(&error, identity) => Ok(()),
            Err(error) if is_still_used(&error, identity) => {
                let why = file::explain(identity.kind.kind(), &error, b"").0;
                Err(IngestError::Waiting(format!("{REFUSED}{why}")))
            }
            Err(error) => Err(failed(error)),
        }
    }

    async fn invalid(&self, path: &str, reason: &str, commit: &CommitInfo) -> Result<(), IngestError> {
        if is_of_no_object(path) {
            return Ok(());
        }
        let place = Place::of_path(path).ok_or_else(|| no_place(path))?;
        self.reports.invalid(&place, reason, &commit.id).await.map_err(unavailable)
    }

    async fn valid_again(&self, path: &str) -> Result<(), IngestError> {
        if is_of_no_object(path) {
            return Ok(());
        }
        let place = Place::of_path(path).ok_or_else(|| no_place(path))?;
        self.reports.valid_again(&place).await.map_err(unavailable)
    }
}

/// Whether a file is a record of Stoa's own, which a push does not change.
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

/// Where the file of a stored object is.
pub(super) fn place_of(stored: &Stored) -> Option<Place> {
    Place::of_object(&stored.key, &Value::Object(stored.object().0))
}

/// Whether the object itself was not found, and not something that it refers to.
fn is_missing(error: &ApiError, identity: &Identity) -> bool {
    let details = error.0.details.as_ref();
    error.code() == 404 && details.is_some_and(|d| d.kind.as_deref() == Some(identity.kind.plural()))
}

/// Whether an object was not deleted because others refer to it. The same push may change or remove these later, as their
/// paths come later.
fn is_still_used(error: &ApiError, identity: &Identity) -> bool {
    error.code() == 409 && matches!(identity.kind, Authored::Source | Authored::Backend)
}

/// Whether an object was not created because of another one, which may be waiting itself: the project of a stack, or a
/// namespace that goes.
fn waits_for_another(error: &ApiError) -> bool {
    let causes = error.0.details.iter().flat_map(|details| details.causes.iter().flatten());
    let mut about = causes.map(|cause| (cause.field.as_deref(), cause.reason.as_deref()));
    about.any(|cause| match cause {
        (Some("spec.project"), Some("FieldValueNotFound")) => error.code() == 422,
        (_, Some("NamespaceTerminating")) => error.code() == 403,
        _ => false,
    })
}

/// What the server could not do now may work later; what it refused stays wrong until somebody acts.
fn refused(kind: Authored, error: ApiError, content: &[u8]) -> IngestError {
    // What server-side apply cannot make sense of has this code and no reason.
    let is_senseless = error.code() == 500 && error.0.reason.as_deref().unwrap_or_default().is_empty();
    // Nor does an object that does not decode keep other files waiting until somebody sees to it.
    let is_undecodable = is_undecodable(&error);
    if (error.code() >= 500 && !is_senseless && !is_undecodable) || error.code() == 429 {
        return unavailable(error);
    }
    let why = file::explain(kind.kind(), &error, content).0;
    // Nothing is wrong with the file itself when it is forbidden or when other objects are in its way.
    let is_refusal = matches!(error.code(), 403 | 409) || is_undecodable;
    IngestError::Invalid(if is_refusal { format!("{REFUSED}{why}") } else { why })
}

fn unavailable(error: ApiError) -> IngestError {
    IngestError::Unavailable(Box::new(error))
}

fn no_place(path: &str) -> IngestError {
    IngestError::Invalid(format!("no object has its file at {path}"))
}
