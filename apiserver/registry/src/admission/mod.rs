//! The chain of admission plugins, which change or refuse writes beside the rules of a kind.
//!
//! Start at [`AdmissionPlugin`]. A [`Chain`] has the plugins of one server; the registry asks it twice for each write,
//! once for changes before the object is validated and once for objections after. Both happen outside any lock and
//! before the compare-and-swap, so a write that lost a race is admitted again. Follows `k8s.io/apiserver/pkg/admission`.
//!
//! Submodules: `webhook` asks servers that a cluster configures, `policy` evaluates rules in CEL (`cel`), and `cluster`
//! keeps what both are configured with.

use std::{fmt::Debug, sync::Arc, time::Instant};

use async_trait::async_trait;
pub use lifecycle::NamespaceLifecycle;
pub use metrics::Metrics;
use metrics::Step;
pub use namespace::{NamespaceLookup, NamespacePhase};
pub use reinvocation::Reinvocation;
use serde_json::Value;
use stoa_meta::{
    content,
    definition::ResourceDefinition,
    managed_fields::FieldManagers,
    object::Object,
    request::{FieldValidation, RequestContext},
    schema::{self, Decoder},
    status::ApiError,
};

mod lifecycle;
pub mod metrics;
mod namespace;
pub mod reinvocation;

/// What a write does, in the words of `admission.k8s.io/v1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A change of an object; also by patch and apply.
    Update,
    /// A removal.
    Delete,
}

impl Operation {
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// Sets what was left out of objects, as their kind's strategy does it.
pub(crate) trait Defaulter: Send + Sync {
    /// The object as its type has it, with defaults. One that is not of that type stays as it is.
    fn with_defaults(&self, object: Object) -> Object;
}

/// A write on its way through admission; the object itself travels beside it, since it may change.
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    /// Who asks, and how.
    pub context: &'a RequestContext,
    /// The resource that is written to, also through a subresource.
    pub definition: &'a ResourceDefinition,
    /// The kind of what is written: the resource's, or the one that the subresource takes, such as `Scale`.
    pub kind: &'a ResourceDefinition,
    /// What the write does.
    pub operation: Operation,
    /// The namespace; empty for resources of the cluster.
    pub namespace: &'a str,
    /// The name; empty while it is still to be generated.
    pub name: &'a str,
    /// `status`, `scale` or empty.
    pub subresource: &'a str,
    /// The object as it is, for updates and deletes.
    pub old_object: Option<&'a Object>,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions` of `meta.k8s.io/v1`.
    pub options: &'a Value,
    /// Whether nothing will be stored.
    pub dry_run: bool,
    /// Reads the object anew after it was changed.
    pub decoder: &'a Decoder,
    /// Sets what it lacks then, besides its schema's defaults; nothing for a Scale, which has no others.
    pub(crate) defaulter: Option<&'a dyn Defaulter>,
    /// Merges configurations into it.
    pub fields: &'a FieldManagers,
    /// Counts what is done about it.
    pub metrics: &'a Metrics,
}

impl Debug for Attributes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attributes")
            .field("operation", &self.operation)
            .field("resource", &self.definition.plural)
            .field("namespace", &self.namespace)
            .field("name", &self.name)
            .field("subresource", &self.subresource)
            .finish_non_exhaustive()
    }
}

impl Attributes<'_> {
    /// 403 that names the object, as `admission.NewForbidden` upstream.
    pub fn forbidden(&self, object: Option<&Object>, detail: impl std::fmt::Display) -> ApiError {
        let given = object.map(|object| [object.name(), object.meta_str("generateName")]).unwrap_or_default();
        let name = [self.name, given[0], given[1]].into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown");
        ApiError::forbidden(&self.definition.group, &self.definition.plural, name, detail)
    }

    /// Adds to the audit event what a webhook or a policy says there, under a key that begins with its name.
    ///
    /// Follows `AddAnnotation` upstream, which takes no key that is not a qualified name.
    pub fn annotate(&self, key: String, value: String) {
        match content::label_key(&key).as_slice() {
            [] => self.context.annotate(key, value),
            complaints => tracing::warn!(key, complaints = complaints.join(", "), "an audit annotation is left out"),
        }
    }

    /// An object that was changed, with defaults for what it lacks now: the next one who is asked sees them.
    pub fn with_defaults(&self, object: Object) -> Object {
        match self.defaulter {
            Some(defaulter) => defaulter.with_defaults(object),
            None => object,
        }
    }

    /// Reads what a patch made of the object. Fails with 500 in the words of Go's decoder: the author of the patch is
    /// told why, as nobody else is.
    pub fn reread(&self, document: Value, validation: FieldValidation) -> Result<Object, ApiError> {
        let mut object = match document {
            Value::Object(fields) => Object(fields),
            other => {
                let problem = schema::no_type(&other);
                let text = format!("couldn't get version/kind; json parse error: {problem}");
                return Err(ApiError::internal(text));
            }
        };
        let unknown = self.decoder.settle(&mut object).map_err(|type_error| ApiError::internal(type_error.decoded))?;
        if validation == FieldValidation::Strict && !unknown.is_empty() {
            return Err(ApiError::internal(unknown.message()));
        }
        Ok(self.with_defaults(object))
    }
}

/// Something that has a say in writes.
#[async_trait]
pub trait AdmissionPlugin: Debug + Send + Sync + 'static {
    /// Its name, such as `NamespaceLifecycle`.
    fn name(&self) -> &'static str;

    /// Whether [`admit`](Self::admit) may do something about such writes. Cheap, for it is asked about each.
    fn admits(&self, _attributes: &Attributes<'_>) -> bool {
        false
    }

    /// Whether [`admit`](Self::admit) looks at the object, or at the old one, of an update rather than at the request alone:
    /// otherwise both may be left out.
    fn reads_object(&self) -> bool {
        true
    }

    /// Whether [`validate`](Self::validate) may do something about such writes. Cheap: the object is copied if so.
    fn validates(&self, _attributes: &Attributes<'_>) -> bool {
        false
    }

    /// Changes the object, or refuses the write. Comes before validation; there is no object when one is deleted.
    ///
    /// # Errors
    ///
    /// The [`ApiError`] that the client gets.
    async fn admit(
        &self,
        _attributes: &Attributes<'_>,
        _object: Option<&mut Object>,
        _reinvocation: &mut Reinvocation,
    ) -> Result<(), ApiError> {
        Ok(())
    }

    /// Refuses the write, or lets it pass. The object is as it will be stored.
    ///
    /// # Errors
    ///
    /// The [`ApiError`] that the client gets.
    async fn validate(&self, _attributes: &Attributes<'_>, _object: Option<&Object>) -> Result<(), ApiError> {
        Ok(())
    }
}

/// What of a write admission has to see. More compares as greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Visibility {
    /// Nobody has a say in it.
    #[default]
    Nothing,
    /// Who writes what where.
    Request,
    /// The objects, too.
    Object,
}

impl Visibility {
    /// What a plugin that has a say sees.
    fn of(plugin: &dyn AdmissionPlugin) -> Self {
        if plugin.reads_object() { Self::Object } else { Self::Request }
    }
}

/// The plugins of a server, in the order in which they are asked.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    plugins: Vec<Arc<dyn AdmissionPlugin>>,
    metrics: Arc<Metrics>,
}

impl Chain {
    /// These plugins, in this order.
    pub fn new(plugins: Vec<Arc<dyn AdmissionPlugin>>) -> Self {
        Self { plugins, metrics: Arc::default() }
    }

    /// Counts what they do in `metrics`; without this, nobody sees it.
    #[must_use]
    pub fn counted(mut self, metrics: Metrics) -> Self {
        self.metrics = Arc::new(metrics);
        self
    }

    /// The names of the plugins, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.plugins.iter().map(|plugin| plugin.name())
    }

    /// Puts a plugin before all others.
    pub fn prepend(&mut self, plugin: Arc<dyn AdmissionPlugin>) {
        self.plugins.insert(0, plugin);
    }

    /// The metrics of the chain and its plugins.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// What the plugins that may change or refuse such writes before they are validated have to see of them.
    pub fn admits(&self, attributes: &Attributes<'_>) -> Visibility {
        let asked = self.plugins.iter().filter(|plugin| plugin.admits(attributes));
        asked.map(|plugin| Visibility::of(&**plugin)).max().unwrap_or_default()
    }

    /// Whether any plugin may object to such writes.
    pub fn validates(&self, attributes: &Attributes<'_>) -> bool {
        self.plugins.iter().any(|plugin| plugin.validates(attributes))
    }

    /// Lets every plugin change the object, and once more when one does. Says whether it was changed.
    ///
    /// # Errors
    ///
    /// The first refusal.
    pub async fn admit(&self, attributes: &Attributes<'_>, object: Option<&mut Object>) -> Result<bool, ApiError> {
        self.admit_with(Visibility::Object, attributes, object).await
    }

    /// Lets the plugins refuse an update that do not look at the object. What [`admits`](Self::admits) said may not hold
    /// any more, and those that do get none.
    ///
    /// # Errors
    ///
    /// The first refusal.
    pub async fn admit_request(&self, attributes: &Attributes<'_>) -> Result<(), ApiError> {
        self.admit_with(Visibility::Request, attributes, None).await.map(|_| ())
    }

    async fn admit_with(
        &self,
        visibility: Visibility,
        attributes: &Attributes<'_>,
        object: Option<&mut Object>,
    ) -> Result<bool, ApiError> {
        let began = Instant::now();
        let outcome = self.rounds(visibility, attributes, object).await;
        self.metrics.step(Step::Admit, attributes.operation, outcome.is_err(), began.elapsed());
        outcome
    }

    async fn rounds(
        &self,
        visibility: Visibility,
        attributes: &Attributes<'_>,
        mut object: Option<&mut Object>,
    ) -> Result<bool, ApiError> {
        let mut reinvocation = Reinvocation::default();
        loop {
            let able = self.plugins.iter().filter(|plugin| Visibility::of(&***plugin) <= visibility);
            for plugin in able.filter(|plugin| plugin.admits(attributes)) {
                let began = Instant::now();
                let outcome = plugin.admit(attributes, object.as_deref_mut(), &mut reinvocation).await;
                let took = began.elapsed();
                self.metrics.plugin(plugin.name(), Step::Admit, attributes.operation, outcome.is_err(), took);
                outcome?;
            }
            if reinvocation.second || !reinvocation.changed {
                return Ok(reinvocation.changed);
            }
            reinvocation.second = true;
        }
    }

    /// Asks every plugin for its objections.
    ///
    /// # Errors
    ///
    /// The first refusal.
    pub async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Object>) -> Result<(), ApiError> {
        let began = Instant::now();
        let mut outcome = Ok(());
        for plugin in self.plugins.iter().filter(|plugin| plugin.validates(attributes)) {
            let began = Instant::now();
            outcome = plugin.validate(attributes, object).await;
            let took = began.elapsed();
            self.metrics.plugin(plugin.name(), Step::Validate, attributes.operation, outcome.is_err(), took);
            if outcome.is_err() {
                break;
            }
        }
        self.metrics.step(Step::Validate, attributes.operation, outcome.is_err(), began.elapsed());
        outcome
    }
}
