//! What a reference to a resource leads to, once it is decided what is done about that resource.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::ignore::{IGNORE_FIELDS, Ignored};
use crate::object::{has_data, has_no_default, is_fixed, is_volatile, may_exist, secret_as_stored};
use crate::path::{FieldPath, Found};
use crate::plan::Action;
use crate::reference::{Reference, ReferenceError};
use crate::resolve::{Looked, Resolved};
use crate::sensitive::Sensitive;
use crate::spec::{Resource, ResourceType};
use crate::state::StateResource;

/// What the infrastructure says that an action makes of a resource.
#[derive(Clone, Copy, Debug)]
pub enum Made<'l> {
    /// It is yet to be asked.
    Later,
    /// It was not asked, or cannot say.
    Untold,
    /// This.
    Object(&'l Map<String, Value>),
}

/// A wanted resource whose references are replaced and whose action is decided.
#[derive(Clone, Debug)]
pub struct Settled<'l> {
    kind: ResourceType,
    resolved: Cow<'l, Resolved<'l>>,
    /// The attributes as a server keeps them, where that differs: a Secret's.
    stored: Option<Map<String, Value>>,
    action: Action,
    live: Option<Cow<'l, Map<String, Value>>>,
    /// What is recorded of it.
    before: Option<&'l StateResource>,
    /// The resource itself, where it was looked at what is there.
    seen: Option<&'l Resource>,
    made: Made<'l>,
    sensitive: Sensitive,
}

impl Settled<'static> {
    /// A resource whose action was carried out: what is live now is certain.
    #[must_use]
    pub fn applied(resource: &Resource, resolved: Resolved<'static>, live: Map<String, Value>) -> Self {
        Self::new(resource, Cow::Owned(resolved), Action::Unchanged, Some(Cow::Owned(live)))
    }
}

impl<'l> Settled<'l> {
    /// Takes what is known of a resource. `live` is the resource as the infrastructure reports it:
    /// before the action while planning, after it while applying.
    pub fn new(
        resource: &Resource,
        resolved: Cow<'l, Resolved<'l>>,
        action: Action,
        live: Option<Cow<'l, Map<String, Value>>>,
    ) -> Self {
        let stored = match resource.kind {
            ResourceType::Kubernetes => secret_as_stored(&resolved.attributes),
            ResourceType::Terraform => None,
        };
        let mut sensitive = Sensitive::of(&resolved.attributes, &resolved.sensitive);
        for object in [stored.as_ref(), live.as_deref()].into_iter().flatten() {
            sensitive.extend(&Sensitive::of(object, &resolved.sensitive));
        }
        let (before, seen, made) = (None, None, Made::Untold);
        Self { kind: resource.kind, resolved, stored, action, live, before, seen, made, sensitive }
    }

    /// The same where this is recorded: what was applied then and is not wanted any more goes.
    #[must_use]
    pub fn after(self, prior: &'l StateResource) -> Self {
        Self { before: Some(prior), ..self }
    }

    /// The same where it was looked at what is there: nobody but who is known to fills in data.
    #[must_use]
    pub fn seen(self, resource: &'l Resource) -> Self {
        Self { seen: Some(resource), ..self }
    }

    /// The same where the infrastructure says that the action makes this of it.
    #[must_use]
    pub fn making(self, made: Made<'l>) -> Self {
        Self { made, ..self }
    }

    /// What is wanted.
    pub fn resolved(&self) -> &Resolved<'l> {
        &self.resolved
    }

    /// What is wanted, by value.
    pub fn into_resolved(self) -> Resolved<'l> {
        self.resolved.into_owned()
    }

    /// What of it is sensitive.
    pub fn sensitive(&self) -> &Sensitive {
        &self.sensitive
    }

    /// Whether the wanted attributes alone answer a reference.
    pub fn answers(&self, path: &FieldPath) -> bool {
        let wanted = [Some(&*self.resolved.attributes), self.stored.as_ref()];
        wanted.into_iter().flatten().any(|attributes| path.get(attributes).is_some())
    }

    /// Finds the value of a reference to this resource: what is wanted of it, else what is live.
    ///
    /// # Errors
    ///
    /// [`ReferenceError::Dangling`] when there is no such value and applying will not make one.
    pub fn look(&self, reference: &Reference) -> Result<Looked<'_>, ReferenceError> {
        let path = &reference.path;
        if self.resolved.is_unknown(path) {
            return Ok(Looked::Unknown);
        }
        for attributes in [Some(&*self.resolved.attributes), self.stored.as_ref()].into_iter().flatten() {
            match path.find(attributes) {
                Found::Value(value) => return Ok(self.known(path, value)),
                Found::Impossible { depth, found } => {
                    let message =
                        format!("{reference} cannot exist: {} of {} is {found}", path.up_to(depth), reference.id);
                    return Err(ReferenceError::Dangling(message));
                }
                Found::Missing => {}
            }
        }
        if self.kind == ResourceType::Kubernetes && !may_exist(path) {
            let message = format!("{reference} cannot exist: objects have no field {}", path.up_to(2));
            return Err(ReferenceError::Dangling(message));
        }
        let live = self.live.as_ref().and_then(|live| path.get(live));
        match (self.action, live) {
            (Action::Unchanged, Some(value)) => Ok(self.known(path, value)),
            (Action::Unchanged, None) => {
                let message = format!("{} has no {path}, neither as it is written nor as it is live", reference.id);
                Err(ReferenceError::Dangling(message))
            }
            (Action::Update | Action::Adopt | Action::Replace, _) if self.is_dropped(path) => {
                let stays = match self.made {
                    // A default may come, and others may have it: nobody but the infrastructure knows.
                    Made::Later => true,
                    Made::Untold => !has_no_default(&self.resolved.attributes, path),
                    Made::Object(made) => path.get(made).is_some(),
                };
                if stays {
                    return Ok(Looked::Unknown);
                }
                let message =
                    format!("{} will have no {path}: it was applied before, and is not wanted any more", reference.id);
                Err(ReferenceError::Dangling(message))
            }
            (Action::Update | Action::Adopt, Some(value)) if self.keeps(path, value) => Ok(self.known(path, value)),
            (Action::Create | Action::Update | Action::Adopt | Action::Replace, None) if self.will_lack(path) => {
                let message = format!(
                    "{} will have no {path}: it is not wanted so, and nobody else has given it that; name it in \
                     {IGNORE_FIELDS} there if somebody does once it is there",
                    reference.id
                );
                Err(ReferenceError::Dangling(message))
            }
            _ => Ok(Looked::Unknown),
        }
    }

    /// Whether a change leaves a field that is not wanted at the value that is live.
    fn keeps(&self, path: &FieldPath, value: &Value) -> bool {
        match self.made {
            _ if is_volatile(path) => false,
            // Until the infrastructure says otherwise, so that it is asked about what refers to it.
            Made::Later => true,
            // Another value need not be what comes of it: a dry run of a Service has ports of its own.
            Made::Object(made) => path.get(made) == Some(value),
            Made::Untold => is_fixed(path) || has_no_default(&self.resolved.attributes, path),
        }
    }

    /// Whether nobody gives a value that is neither wanted nor live: the infrastructure has no default for it and makes none,
    /// it is not left to others, and none of them was there before. A ConfigMap or Secret that is wanted with no data is there
    /// for others to fill, as a bundle of certificates or what is merged from a store of secrets.
    fn will_lack(&self, path: &FieldPath) -> bool {
        let Some(resource) = self.seen else { return false };
        let attributes = &self.resolved.attributes;
        if self.kind != ResourceType::Kubernetes || !has_no_default(attributes, path) || !has_data(attributes) {
            return false;
        }
        let is_made = match self.made {
            Made::Later => true,
            Made::Untold => false,
            Made::Object(made) => path.get(made).is_some(),
        };
        let was_others = || self.before.is_some_and(|prior| path.get(&prior.live).is_some()) && !self.was_applied(path);
        let is_left = || Ignored::of(resource).is_ok_and(|ignored| ignored.touches(path));
        !is_made && !was_others() && !is_left()
    }

    /// Whether a field is not wanted and was applied before.
    fn is_dropped(&self, path: &FieldPath) -> bool {
        self.was_applied(path) && !is_volatile(path)
    }

    /// Whether a field is on record as applied.
    fn was_applied(&self, path: &FieldPath) -> bool {
        let Some(prior) = self.before else { return false };
        let stored = match self.kind {
            ResourceType::Kubernetes => secret_as_stored(&prior.attributes),
            ResourceType::Terraform => None,
        };
        let has_it = |object: &Map<String, Value>| path.get(object).is_some_and(|value| !value.is_null());
        [Some(&prior.attributes), stored.as_ref()].into_iter().flatten().any(has_it)
    }

    fn known<'v>(&self, path: &FieldPath, value: &'v Value) -> Looked<'v> {
        Looked::Known { value, sensitive: self.sensitive.below(path) }
    }
}
